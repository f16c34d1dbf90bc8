// cpu_sm.c: what an SM does next. The same order on every device:
//
//   1. taken back: park what it holds, leave
//   2. paused: stop in place
//   3. a tile is running: run its next unit; after the last one, signal
//   4. the wait of its tile is over: start it
//   5. a parked tile can be taken up: claim it
//   6. waiting: stay, within the limit
//   7. claim the next ticket
//
// Why a step always ends while one SM stays lent: of the tiles not yet finished the lowest ticket
// waits for nothing. Either an SM runs it, or an SM waits with it and 4 holds, or it is parked and
// 5 holds for every lent SM, because an SM that waits claims parked tiles too.
#include "cpu_sm.h"

#include "cpu_units.h"

static void report(gos_sm_t *sm, gpuos_sm_phase_t phase, uint32_t tile, uint32_t slice) {
  gpuos_sm_t *r = &sm->shared->reports[sm->number];
  gos_store(&r->tile, tile);
  gos_store(&r->slice, slice);
  gos_store(&r->phase, phase);
}

void gos_sm_reset(gos_sm_t *sm) {
  sm->waiting = sm->running = GPUOS_NONE;
  sm->slice = sm->tiles_seen = 0;
  sm->waited_ns = sm->polled_ns = 0;
  report(sm, GPUOS_SM_IDLE, GPUOS_NONE, 0);
}

static const gpuos_tile_t *tile_at(const gos_protocol_t *p, uint32_t tile) {
  return GPUOS_SECTION(p->table, gpuos_tile_t, tiles) + tile;
}

// ---- faults -------------------------------------------------------------------------------------

static void fail(gos_sm_t *sm, gpuos_fault_t fault, uint32_t tile, uint32_t slice,
                 const uint32_t abc[3]) {
  gpuos_control_t *c = sm->shared->control;
  if (!gos_swap(&c->fault, GPUOS_FAULT_NONE, fault)) return;
  gos_store(&c->fault_sm, sm->number);
  gos_store(&c->fault_tile, tile);
  gos_store(&c->fault_slice, slice);
  gos_store(&c->fault_a, abc[0]);
  gos_store(&c->fault_b, abc[1]);
  gos_store(&c->fault_c, abc[2]);
}

static bool step_over(const gos_protocol_t *p) {
  return gos_load(&p->control->tiles_done) >= p->table->tiles.count ||
         gos_load(&p->control->fault) != GPUOS_FAULT_NONE ||
         gos_load(&p->control->command) == GPUOS_ABORT;
}

// ---- waits --------------------------------------------------------------------------------------

// Whether a tile's waits are over; if not, out_unmet is counter, expected and found of the first.
static bool waits_over(const gos_protocol_t *p, uint32_t tile, uint32_t out_unmet[3]) {
  const gpuos_wait_list_t *list =
      GPUOS_SECTION(p->table, gpuos_wait_list_t, wait_lists) + tile_at(p, tile)->wait_list;
  const gpuos_wait_t *waits = GPUOS_SECTION(p->table, gpuos_wait_t, waits) + list->first;
  uint32_t step = (uint32_t)(gos_load64(&p->control->ticket) >> 32);
  for (uint32_t i = 0; i < list->count; i++) {
    uint32_t expected = waits[i].threshold * step, found = gos_load(&p->counters[waits[i].counter]);
    if ((int32_t)(found - expected) >= 0) continue;
    out_unmet[0] = waits[i].counter, out_unmet[1] = expected, out_unmet[2] = found;
    return false;
  }
  return true;
}

// The lowest ticket that waits is the cause of the others' waits. False: another SM holds it, and
// will complain itself.
static bool find_cause(const gos_sm_t *sm, uint32_t *out_tile) {
  const gos_protocol_t *p = sm->shared;
  uint32_t lowest = sm->waiting;
  for (uint32_t i = 0; i < p->park_count; i++) {
    uint32_t tile = gos_load(&p->parks[i].tile);
    bool waits = gos_load(&p->parks[i].state) == GPUOS_PARK_FULL && !gos_load(&p->parks[i].slice);
    if (waits && tile < lowest) lowest = tile;
  }
  for (uint32_t s = 0; s < p->park_count / 2; s++)
    if (gos_load(&p->reports[s].phase) == GPUOS_SM_WAITING &&
        gos_load(&p->reports[s].tile) < lowest)
      return false;
  *out_tile = lowest;
  return true;
}

// Only time spent waiting while no tile finishes anywhere counts: not pauses, helping out, or being
// away.
static bool waited_too_long(gos_sm_t *sm) {
  uint64_t now_ns = gos_clock_ns();
  uint32_t tiles_done = gos_load(&sm->shared->control->tiles_done);
  if (tiles_done != sm->tiles_seen) sm->waited_ns = 0;
  if (sm->polled_ns != 0) sm->waited_ns += now_ns - sm->polled_ns;
  sm->tiles_seen = tiles_done;
  sm->polled_ns = now_ns;
  return sm->waited_ns > (uint64_t)gos_load(&sm->shared->control->wait_limit_us) * 1000u;
}

static void stay_waiting(gos_sm_t *sm, uint32_t unmet[3]) {
  gpuos_sm_t *r = &sm->shared->reports[sm->number];
  gos_store(&r->counter, unmet[0]);
  gos_store(&r->expected, unmet[1]);
  gos_store(&r->found, unmet[2]);
  report(sm, GPUOS_SM_WAITING, sm->waiting, 0);
  uint32_t tile;
  if (waited_too_long(sm) && find_cause(sm, &tile) && !waits_over(sm->shared, tile, unmet))
    fail(sm, GPUOS_FAULT_STALL, tile, 0, unmet);
}

// ---- parking ------------------------------------------------------------------------------------

static size_t acc_bytes(const gos_protocol_t *p, uint32_t tile) {
  const gpuos_op_t *op = GPUOS_SECTION(p->table, gpuos_op_t, ops) + tile_at(p, tile)->op;
  const gpuos_operand_t *operands = GPUOS_SECTION(p->table, gpuos_operand_t, operands);
  return gos_unit_acc_floats(op, operands + op->first_operand) * sizeof(float);
}

// False: no slot is free.
static bool park(gos_sm_t *sm, uint32_t tile, uint32_t slice) {
  gos_protocol_t *p = sm->shared;
  for (uint32_t i = 0; i < p->park_count; i++) {
    if (!gos_swap(&p->parks[i].state, GPUOS_PARK_FREE, GPUOS_PARK_BUSY)) continue;
    gos_store(&p->parks[i].tile, tile);
    gos_store(&p->parks[i].slice, slice);
    if (slice > 0) memcpy(p->park_area + i * p->park_bytes, sm->accs, acc_bytes(p, tile));
    gos_add(&p->control->parked_count, 1);
    gos_add(&p->reports[sm->number].parks, 1);
    gos_store(&p->parks[i].state, GPUOS_PARK_FULL);
    return true;
  }
  return false;
}

// True once the SM holds nothing. Without a free slot it goes on as if it were lent, so that its
// tile is finished in any case.
static bool put_down(gos_sm_t *sm) {
  if (sm->running != GPUOS_NONE && park(sm, sm->running, sm->slice)) sm->running = GPUOS_NONE;
  if (sm->waiting != GPUOS_NONE && park(sm, sm->waiting, 0)) sm->waiting = GPUOS_NONE;
  return sm->running == GPUOS_NONE && sm->waiting == GPUOS_NONE;
}

// An SM that waits can take only a tile that it can run at once.
static bool can_take(const gos_sm_t *sm, const gpuos_park_t *slot) {
  uint32_t unmet[3];
  return sm->waiting == GPUOS_NONE || gos_load(&slot->slice) > 0 ||
         waits_over(sm->shared, gos_load(&slot->tile), unmet);
}

static void take_up(gos_sm_t *sm, uint32_t slot) {
  gos_protocol_t *p = sm->shared;
  uint32_t tile = gos_load(&p->parks[slot].tile), slice = gos_load(&p->parks[slot].slice);
  if (slice > 0) {
    memcpy(sm->accs, p->park_area + slot * p->park_bytes, acc_bytes(p, tile));
    sm->running = tile, sm->slice = slice;
  } else if (sm->waiting == GPUOS_NONE) {
    sm->waiting = tile;
  } else {
    sm->running = tile, sm->slice = 0;
  }
  gos_add(&p->control->parked_count, (uint32_t)-1);
  gos_store(&p->parks[slot].state, GPUOS_PARK_FREE);
}

static bool claim_parked(gos_sm_t *sm) {
  gos_protocol_t *p = sm->shared;
  if (gos_load(&p->control->parked_count) == 0) return false;
  for (uint32_t i = 0; i < p->park_count; i++) {
    gpuos_park_t *slot = &p->parks[i];
    if (gos_load(&slot->state) != GPUOS_PARK_FULL || !can_take(sm, slot)) continue;
    if (!gos_swap(&slot->state, GPUOS_PARK_FULL, GPUOS_PARK_BUSY)) continue;
    if (can_take(sm, slot)) { // the slot may have been emptied and filled again since the look
      take_up(sm, i);
      return true;
    }
    gos_store(&slot->state, GPUOS_PARK_FULL);
  }
  return false;
}

// ---- running ------------------------------------------------------------------------------------

static bool claim_ticket(gos_sm_t *sm) {
  gos_protocol_t *p = sm->shared;
  uint32_t tiles = p->table->tiles.count;
  // Do not count on for ever: the step's number stands above the tile's.
  if ((uint32_t)gos_load64(&p->control->ticket) >= tiles) return false;
  uint32_t ticket = (uint32_t)gos_add64(&p->control->ticket, 1);
  if (ticket >= tiles) return false;
  sm->waiting = ticket;
  return true;
}

static void finish_tile(gos_sm_t *sm) {
  gos_protocol_t *p = sm->shared;
  uint32_t signal = tile_at(p, sm->running)->signal;
  sm->running = GPUOS_NONE;
  if (signal != GPUOS_NONE) gos_add(&p->counters[signal], 1);
  gos_add(&p->control->tiles_done, 1);
}

static void run_unit(gos_sm_t *sm) {
  gos_protocol_t *p = sm->shared;
  report(sm, GPUOS_SM_RUNNING, sm->running, sm->slice);
  gos_unit_t unit = gos_unit_make(p->table, p->buffers, tile_at(p, sm->running), sm->slice);
  unit.accs = sm->accs;
  unit.scratch = sm->scratch;
  if (!gos_unit_run(&unit)) {
    fail(sm, GPUOS_FAULT_INDEX, sm->running, sm->slice, unit.fault);
    return;
  }
  gos_add(&p->reports[sm->number].units_run, 1);
  sm->slice++;
  if (unit.last) finish_tile(sm);
}

static bool lent(const gos_sm_t *sm) {
  return gos_load(&sm->shared->control->sm_lent[sm->number / 32]) >> sm->number % 32 & 1;
}

static gos_sm_result_t be_away(gos_sm_t *sm) {
  report(sm, GPUOS_SM_GONE, GPUOS_NONE, 0);
  return GOS_SM_AWAY;
}

static gos_sm_result_t run_on(gos_sm_t *sm) {
  run_unit(sm);
  return GOS_SM_MOVED;
}

gos_sm_result_t gos_sm_step(gos_sm_t *sm) {
  uint64_t polled_ns = sm->polled_ns;
  uint32_t unmet[3];
  sm->polled_ns = 0;
  if (step_over(sm->shared)) return GOS_SM_OVER;
  if (!lent(sm) && put_down(sm)) return be_away(sm);
  if (gos_load(&sm->shared->control->command) == GPUOS_PAUSE) return GOS_SM_STILL;
  if (sm->running != GPUOS_NONE) return run_on(sm);
  if (sm->waiting != GPUOS_NONE && waits_over(sm->shared, sm->waiting, unmet)) {
    sm->running = sm->waiting, sm->slice = 0, sm->waiting = GPUOS_NONE;
    return run_on(sm);
  }
  if (claim_parked(sm)) return GOS_SM_MOVED;
  if (sm->waiting != GPUOS_NONE) {
    sm->polled_ns = polled_ns;
    stay_waiting(sm, unmet);
    return GOS_SM_STILL;
  }
  if (claim_ticket(sm)) return GOS_SM_MOVED;
  report(sm, GPUOS_SM_IDLE, GPUOS_NONE, 0);
  return GOS_SM_STILL;
}
