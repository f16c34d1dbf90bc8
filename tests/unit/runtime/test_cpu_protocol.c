// The unit protocol on the CPU device: any order, any number of SMs, SMs taken back and lent at any
// moment give the same bits; what goes wrong ends the step, with its cause named.
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu_chain.h"
#include "cpu_sm.h"

#define SECONDS UINT64_C(1000000000)

static gos_cpu_t *open_cpu(const chain_t *chain, uint32_t sm_count, uint64_t seed, bool take_back) {
  gos_cpu_options_t options = {.sm_count = sm_count, .interleave_seed = seed};
  options.take_back = take_back;
  gos_cpu_t *cpu = gos_cpu_create(chain->f.table, chain->f.buffers, &options);
  cr_assert_not_null(cpu);
  return cpu;
}

static void step(chain_t *chain, gos_cpu_t *cpu, uint8_t out[CHAIN_BYTES]) {
  chain_clear(chain);
  gos_cpu_submit(cpu, 1);
  cr_assert_eq(gos_cpu_wait(cpu, 20 * SECONDS), GPUOS_OK);
  chain_take(chain, out);
}

// What one SM computes in table order.
static void in_order(chain_t *chain, uint8_t out[CHAIN_BYTES]) {
  gos_cpu_t *cpu = open_cpu(chain, 1, 0, false);
  step(chain, cpu, out);
  gos_cpu_destroy(cpu);
}

static void expect_bits(chain_t *chain, gos_cpu_t *cpu, const uint8_t want[CHAIN_BYTES]) {
  uint8_t got[CHAIN_BYTES];
  step(chain, cpu, got);
  cr_expect_arr_eq(got, want, CHAIN_BYTES);
}

Test(cpu_protocol, thousand_orders_give_the_same_bits) {
  chain_t chain = chain_make();
  uint8_t want[CHAIN_BYTES];
  in_order(&chain, want);
  for (uint64_t seed = 1; seed <= 1000; seed++) {
    gos_cpu_t *cpu = open_cpu(&chain, 1 + (uint32_t)(seed % 9), seed, true);
    for (int steps = 0; steps < 2; steps++) expect_bits(&chain, cpu, want);
    gos_cpu_destroy(cpu);
  }
  chain_free(&chain);
}

Test(cpu_protocol, one_to_eight_threads_give_the_same_bits) {
  chain_t chain = chain_make();
  uint8_t want[CHAIN_BYTES];
  in_order(&chain, want);
  for (uint32_t threads = 1; threads <= 8; threads++) {
    gos_cpu_t *cpu = open_cpu(&chain, threads, 0, false);
    for (int steps = 0; steps < 20; steps++) expect_bits(&chain, cpu, want);
    gos_cpu_destroy(cpu);
  }
  chain_free(&chain);
}

// Counters are words that run on: a step near their end is like any other.
Test(cpu_protocol, epochs_wrap) {
  chain_t chain = chain_make();
  uint8_t want[CHAIN_BYTES];
  in_order(&chain, want);
  gos_cpu_t *cpu = open_cpu(&chain, 3, 5, true);
  gpuos_control_t *control = (gpuos_control_t *)(void *)gos_cpu_control(cpu);
  control->ticket = (uint64_t)(UINT32_MAX - 3) << 32;
  gos_cpu_submit(cpu, 1); // an aborted step leaves the counters where this epoch wants them
  gos_cpu_abort(cpu);
  cr_assert_eq(gos_cpu_wait(cpu, SECONDS), GPUOS_ABORTED);
  for (int steps = 0; steps < 6; steps++) expect_bits(&chain, cpu, want);
  gos_cpu_destroy(cpu);
  chain_free(&chain);
}

// ---- stalls -------------------------------------------------------------------------------------

// Drops the signal of the second tile of operator 1, which counter 3 counts, as check would never
// let pass.
static gpuos_table_t *drop_signal(const chain_t *chain, uint32_t *out_first_waiting) {
  gpuos_table_t *table = aligned_alloc(64, (chain->f.table->bytes + 63) / 64 * 64);
  memcpy(table, chain->f.table, chain->f.table->bytes);
  gpuos_tile_t *tiles = (gpuos_tile_t *)((char *)table + table->tiles.offset);
  tiles[16].signal = GPUOS_NONE;
  *out_first_waiting = 18;
  return table;
}

// Each of the 4 SMs waits with a tile of its own, from `first` on; any of them may be the first to
// find its time up.
static void expect_stall(gos_cpu_t *cpu, uint32_t first) {
  gos_cpu_submit(cpu, 1);
  cr_assert_eq(gos_cpu_wait(cpu, 20 * SECONDS), GPUOS_STALL);
  const gpuos_control_t *c = gos_cpu_control(cpu);
  cr_expect_eq(c->fault, GPUOS_FAULT_STALL);
  cr_expect_lt(c->fault_sm, 4);
  cr_expect(c->fault_tile >= first && c->fault_tile < first + 4, "tile %u", c->fault_tile);
  cr_expect_eq(c->fault_a, 3, "counter %u", c->fault_a);
  cr_expect_eq(c->fault_b, 3 * (uint32_t)(c->ticket >> 32));
  cr_expect_eq(c->fault_c, 3 * (uint32_t)(c->ticket >> 32) - 1);
}

Test(cpu_protocol, lost_signal_is_a_stall_with_its_cause) {
  chain_t chain = chain_make();
  uint32_t first;
  gpuos_table_t *table = drop_signal(&chain, &first);
  for (uint64_t seed = 0; seed < 4; seed++) {
    gos_cpu_options_t options = {.sm_count = 4, .interleave_seed = seed, .wait_limit_us = 100000};
    options.take_back = seed == 3;
    gos_cpu_t *cpu = gos_cpu_create(table, chain.f.buffers, &options);
    for (int steps = 0; steps < 2; steps++) expect_stall(cpu, first); // usable after a stall
    gos_cpu_destroy(cpu);
  }
  free(table);
  chain_free(&chain);
}

// ---- abort, pause, lend -------------------------------------------------------------------------

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

static void *abort_soon(void *cpu) {
  nap(20000000);
  gos_cpu_abort(cpu);
  return NULL;
}

// With every SM taken back a step does not move: the state from which the calls below are tried.
static gos_cpu_t *start_held(const chain_t *chain, uint64_t seed) {
  gos_cpu_t *cpu = open_cpu(chain, 4, seed, false);
  for (uint32_t s = 0; s < 4; s++) gos_cpu_set_lent(cpu, s, false);
  gos_cpu_submit(cpu, 1);
  cr_assert_eq(gos_cpu_wait(cpu, 0), GPUOS_TIMEOUT);
  cr_assert_eq(gos_cpu_wait(cpu, SECONDS / 100), GPUOS_TIMEOUT);
  return cpu;
}

Test(cpu_protocol, abort_from_another_thread_ends_the_step) {
  chain_t chain = chain_make();
  uint8_t want[CHAIN_BYTES];
  in_order(&chain, want);
  for (uint64_t seed = 0; seed < 2; seed++) {
    gos_cpu_t *cpu = start_held(&chain, seed);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, abort_soon, cpu), 0);
    cr_expect_eq(gos_cpu_wait(cpu, 20 * SECONDS), GPUOS_ABORTED);
    pthread_join(thread, NULL);
    cr_expect_eq(gos_cpu_wait(cpu, 0), GPUOS_ABORTED);
    gos_cpu_abort(cpu); // without a running step: nothing
    for (uint32_t s = 0; s < 4; s++) gos_cpu_set_lent(cpu, s, true);
    expect_bits(&chain, cpu, want);
    gos_cpu_destroy(cpu);
  }
  chain_free(&chain);
}

Test(cpu_protocol, one_lent_sm_finishes_the_step) {
  chain_t chain = chain_make();
  uint8_t want[CHAIN_BYTES], got[CHAIN_BYTES];
  in_order(&chain, want);
  for (uint64_t seed = 0; seed < 2; seed++) {
    chain_clear(&chain);
    gos_cpu_t *cpu = start_held(&chain, seed);
    cr_expect_eq(gos_cpu_sms(cpu)[0].units_run, 0);
    gos_cpu_set_lent(cpu, 2, true);
    cr_assert_eq(gos_cpu_wait(cpu, 20 * SECONDS), GPUOS_OK);
    chain_take(&chain, got);
    cr_expect_arr_eq(got, want, CHAIN_BYTES);
    cr_expect_eq(gos_cpu_sms(cpu)[0].units_run, 0);
    cr_expect_eq(gos_cpu_sms(cpu)[2].units_run, 15 * 8 + 3 + 9 * 3 + 3 + 6 + 3);
    gos_cpu_destroy(cpu);
  }
  chain_free(&chain);
}

Test(cpu_protocol, destroying_a_running_step) {
  chain_t chain = chain_make();
  for (uint64_t seed = 0; seed < 2; seed++) gos_cpu_destroy(start_held(&chain, seed));
  gos_cpu_destroy(NULL);
  chain_free(&chain);
}

// ---- one SM at a time, by hand ------------------------------------------------------------------

enum { HAND_SMS = 2 };

typedef struct hand {
  chain_t chain;
  gpuos_control_t control;
  uint32_t counters[16];
  gpuos_sm_t reports[HAND_SMS];
  gpuos_park_t parks[2 * HAND_SMS];
  _Alignas(64) uint8_t area[2 * HAND_SMS * 256];
  _Alignas(64) float memory[HAND_SMS][1 << 15];
  gos_protocol_t shared;
  gos_sm_t sms[HAND_SMS];
} hand_t;

static hand_t *make_hand(void) {
  hand_t *h = aligned_alloc(64, (sizeof *h + 63) / 64 * 64);
  memset(h, 0, sizeof *h);
  h->chain = chain_make();
  h->control.ticket = UINT64_C(1) << 32, h->control.sm_lent[0] = 3,
  h->control.wait_limit_us = 1000000;
  h->shared =
      (gos_protocol_t){h->chain.f.table, h->chain.f.buffers, &h->control, h->counters, h->reports,
                       h->parks,         2 * HAND_SMS,       h->area,     256};
  for (uint32_t s = 0; s < HAND_SMS; s++) {
    h->sms[s] = (gos_sm_t){.shared = &h->shared, .number = s, .accs = h->memory[s]};
    h->sms[s].scratch = h->memory[s] + 256;
    gos_sm_reset(&h->sms[s]);
  }
  return h;
}

static void free_hand(hand_t *h) {
  chain_free(&h->chain);
  free(h);
}

static void times(gos_sm_t *sm, int count, gos_sm_result_t want) {
  for (int i = 0; i < count; i++) cr_assert_eq(gos_sm_step(sm), want);
}

Test(cpu_protocol, pause_stops_in_place) {
  hand_t *h = make_hand();
  times(&h->sms[0], 4, GOS_SM_MOVED); // a ticket, three units
  h->control.command = GPUOS_PAUSE;
  times(&h->sms[0], 5, GOS_SM_STILL);
  cr_expect_eq(h->sms[0].running, 0);
  cr_expect_eq(h->sms[0].slice, 3);
  cr_expect_eq(h->control.parked_count, 0);
  h->control.command = GPUOS_RUN;
  times(&h->sms[0], 5, GOS_SM_MOVED);
  cr_expect_eq(h->control.tiles_done, 1);
  free_hand(h);
}

Test(cpu_protocol, parked_tile_is_taken_up_before_a_ticket) {
  hand_t *h = make_hand();
  times(&h->sms[0], 4, GOS_SM_MOVED);
  h->control.sm_lent[0] = 2;
  times(&h->sms[0], 2, GOS_SM_AWAY);
  cr_expect_eq(h->reports[0].phase, GPUOS_SM_GONE);
  cr_expect_eq(h->control.parked_count, 1);
  cr_expect_eq(h->parks[0].state, GPUOS_PARK_FULL);
  cr_expect_eq(h->parks[0].slice, 3);
  times(&h->sms[1], 1, GOS_SM_MOVED);
  cr_expect_eq(h->sms[1].running, 0);
  cr_expect_eq(h->sms[1].slice, 3);
  cr_expect_eq(h->control.ticket, (UINT64_C(1) << 32) + 1);
  cr_expect_eq(h->parks[0].state, GPUOS_PARK_FREE);
  free_hand(h);
}

// Runs the first operator but for its last tile, which sm 0 has begun; sm 1 then waits with
// tile 17.
static void leave_last_tile(hand_t *h) {
  times(&h->sms[1], 14 * 9, GOS_SM_MOVED);
  times(&h->sms[0], 4, GOS_SM_MOVED);
  times(&h->sms[1], 2 * 2 + 1, GOS_SM_MOVED);
  times(&h->sms[1], 2, GOS_SM_STILL);
  cr_assert_eq(h->reports[1].phase, GPUOS_SM_WAITING);
  cr_assert_eq(h->reports[1].tile, 17);
}

Test(cpu_protocol, waiting_sm_helps_out_with_parked_tiles) {
  hand_t *h = make_hand();
  leave_last_tile(h);
  h->control.sm_lent[0] = 2;
  times(&h->sms[0], 1, GOS_SM_AWAY);
  times(&h->sms[1], 6, GOS_SM_MOVED); // takes the tile up, runs its other five units
  cr_expect_eq(h->control.tiles_done, 17);
  times(&h->sms[1], 1, GOS_SM_MOVED); // its own wait is over
  cr_expect_eq(h->control.tiles_done, 18);
  free_hand(h);
}

// An SM that helps out and is taken back puts down both tiles; the one not started comes back as a
// wait.
Test(cpu_protocol, helping_sm_puts_down_two_tiles) {
  hand_t *h = make_hand();
  leave_last_tile(h);
  h->control.sm_lent[0] = 2;
  times(&h->sms[0], 1, GOS_SM_AWAY);
  times(&h->sms[1], 2, GOS_SM_MOVED);
  h->control.sm_lent[0] = 1;
  times(&h->sms[1], 1, GOS_SM_AWAY);
  cr_expect_eq(h->control.parked_count, 2);
  times(&h->sms[0], 1 + 4 + 1 + 1, GOS_SM_MOVED);
  cr_expect_eq(h->control.tiles_done, 18);
  cr_expect_eq(h->control.parked_count, 0);
  free_hand(h);
}

// Without a free slot the tile stays where it is and runs on.
Test(cpu_protocol, full_slots_do_not_lose_a_tile) {
  hand_t *h = make_hand();
  times(&h->sms[0], 4, GOS_SM_MOVED);
  for (int i = 0; i < 2 * HAND_SMS; i++) h->parks[i].state = GPUOS_PARK_BUSY;
  h->control.sm_lent[0] = 2;
  times(&h->sms[0], 5, GOS_SM_MOVED);
  cr_expect_eq(h->control.tiles_done, 1);
  times(&h->sms[0], 1, GOS_SM_AWAY);
  free_hand(h);
}
