// take.cuh: the scheduler's side of the protocol: which tile comes next, and whether it may start.
//
// Called by all lanes of the scheduler warp, which agree on what lane 0 found out, unless it says otherwise;
// gpuos_wait_all also by whoever else waits. A cluster of two
// takes two tiles at a time: its first CTA, the leader, draws them and tells the other one.
//
// Why a step always ends while one SM stays lent: tickets are handed out in table order and a tile
// waits only for lower ones, so the lowest unfinished tile never waits; only tiles that nobody waits
// for are ever put down, and every SM takes those up before it draws a new ticket.
#pragma once
#include "unit.cuh"

GPUOS_DEVICE uint32_t gpuos_lane() { return gpuos_thread() % 32; }
GPUOS_DEVICE bool gpuos_lane0() { return gpuos_lane() == 0; }

// ---- waiting without ever hanging ---------------------------------------------------------------

GPUOS_DEVICE bool gpuos_leaving(const gpuos_cta &cta) {
  return ld_relaxed_shared(&cta.stop) || ld_relaxed_shared(&cta.command) == GPUOS_LEAVE;
}

// The loader, paused: stays here.
GPUOS_DEVICE void gpuos_hold_loader(gpuos_cta &cta) {
  if (!ld_relaxed_shared(&cta.hold)) return;
  cta.loader_held_ns = mov_globaltimer();
  __threadfence_block();
  st_relaxed_shared(&cta.loader_held, 1);
  while (ld_relaxed_shared(&cta.hold) && !ld_relaxed_shared(&cta.stop)) __nanosleep(64);
  st_relaxed_shared(&cta.loader_held, 0);
}

// Nothing new is begun while a pause lasts.
GPUOS_DEVICE void gpuos_wait_out_hold(gpuos_cta &cta) {
  while (ld_relaxed_shared(&cta.hold) && !ld_relaxed_shared(&cta.stop)) __nanosleep(64);
}

// ---- steps: lane 0 ------------------------------------------------------------------------------

// The relay tells the host, which takes longer than the SMs should wait.
GPUOS_DEVICE void gpuos_end_step(const gpuos_cta &cta, uint32_t step) {
  gpuos_control_t *control = gpuos_control_of(cta);
  st_relaxed_sys(&control->tiles_done, 0);
  st_relaxed_sys_u64(&control->step_end_ns[step % GPUOS_TIMED_STEPS], mov_globaltimer());
  fence_acq_rel_gpu();
  st_relaxed_sys(&control->steps_done, step);
  const bool once = gpuos_mailbox_of(cta) == nullptr;
  if (once) st_relaxed_sys(&control->command, GPUOS_LEAVE); // launched for one step only
}

// Tiles with the same counter are done. All their writes lie before a barrier that the caller has passed;
// the fences put them before the counter for whoever acquires it, be it by loads or, in a cluster, by bulk
// copies. (ptxas makes a second barrier of the whole GPU's memory of a fence of proxies.)
GPUOS_DEVICE void gpuos_signal(const gpuos_cta &cta, gpuos_done done, uint32_t tiles = 1) {
  gpuos_control_t *control = gpuos_control_of(cta);
  if constexpr (GPUOS_CTAS == 2) fence_proxy_async();
  fence_acq_rel_gpu();
  if (done.counter != GPUOS_NONE)
    red_relaxed_gpu_add((uint32_t *)cta.args.counters + done.counter, tiles);
  if (atom_relaxed_gpu_add(&control->tiles_done, tiles) + tiles == cta.tile_count)
    gpuos_end_step(cta, done.step);
}

// Opens the step after the exhausted one of `ticket`, if that is finished and another submitted. True:
// there are tiles to be drawn, opened by us or by someone else.
GPUOS_DEVICE bool gpuos_open_step(gpuos_cta &cta, uint64_t ticket, uint32_t steps_done) {
  gpuos_control_t *control = gpuos_control_of(cta);
  const uint32_t step = (uint32_t)(ticket >> 32);
  if ((int)(ld_relaxed_shared(&cta.submitted) - step) <= 0) return false;
  if (steps_done != step) return false;
  const uint64_t next = (uint64_t)(step + 1) << 32;
  // Before the step can be over; of several CTAs any will do.
  st_relaxed_sys_u64(&control->step_start_ns[(step + 1) % GPUOS_TIMED_STEPS], mov_globaltimer());
  fence_acq_rel_gpu(); // whoever draws from the new step comes after all of the old one
  if (atom_relaxed_gpu_cas_u64(&control->ticket, ticket, next) != ticket) return true;
  if (cta.tile_count == 0) gpuos_end_step(cta, step + 1);
  return true;
}

// The scheduler's, who keeps doing this while it waits for something else: signals the tiles whose
// results are written. `signalled` counts them.
GPUOS_DEVICE void gpuos_signal_stored(gpuos_cta &cta, uint32_t &signalled) {
  for (;;) {
    const uint32_t all = GPUOS_WORKERS / 32 * (signalled / 2 + 1);
    if ((int)(ld_relaxed_shared(&cta.stored[signalled % 2]) - all) < 0) return;
    __threadfence_block();
    const gpuos_done done = cta.done[signalled % (2 * GPUOS_SLOTS)];
    signalled++;
    gpuos_signal(cta, done);
  }
}

// ---- parked tiles: lane 0 -----------------------------------------------------------------------

// A slot taken from state FREE or FULL, or GPUOS_NONE.
GPUOS_DEVICE uint32_t gpuos_claim_slot(const gpuos_cta &cta, gpuos_park_state_t state) {
  gpuos_park_t *parks = (gpuos_park_t *)cta.args.parks;
  const uint32_t count = 2 * cta.args.sm_count;
  for (uint32_t i = 0; i < count; i++) {
    const uint32_t at = (2 * blockIdx.x + i) % count; // its own first
    if (ld_acquire_gpu(&parks[at].state) != state) continue;
    if (atom_relaxed_gpu_cas(&parks[at].state, state, GPUOS_PARK_BUSY) == state) {
      fence_acq_rel_gpu();
      return at;
    }
  }
  return GPUOS_NONE;
}

GPUOS_DEVICE void gpuos_free_slot(const gpuos_cta &cta, uint32_t at) {
  fence_acq_rel_gpu();
  st_relaxed_sys(&((gpuos_park_t *)cta.args.parks)[at].state, GPUOS_PARK_FREE);
}

// The slot is BUSY and ours, its accumulators written by threads that a barrier has joined.
GPUOS_DEVICE void gpuos_fill_slot(const gpuos_cta &cta, uint32_t at, uint32_t tile,
                                  uint32_t slice) {
  gpuos_park_t *slot = (gpuos_park_t *)cta.args.parks + at;
  gpuos_sm_t *record = gpuos_record_of(cta);
  st_relaxed_sys(&slot->tile, tile);
  st_relaxed_sys(&slot->slice, slice);
  st_relaxed_sys(&record->parks, ld_relaxed_sys(&record->parks) + 1);
  red_relaxed_gpu_add(&gpuos_control_of(cta)->parked_count, 1);
  fence_acq_rel_gpu();
  st_relaxed_sys(&slot->state, GPUOS_PARK_FULL);
}

// What a CTA takes: a tile of a step, from its slice on.
struct gpuos_taken {
  uint32_t number, step, slice, resume;
  gpuos_tile_t tile;
};
GPUOS_DEVICE gpuos_taken gpuos_take_nothing() { return {GPUOS_NONE, 0, 0, 0, {0, 0, 0, 0}}; }

GPUOS_DEVICE gpuos_tile_t gpuos_tile_at(const gpuos_cta &cta, uint32_t number) {
  const uint4 words = *(const uint4 *)(cta.tiles + number);
  return {words.x, words.y, words.z, words.w};
}

GPUOS_DEVICE gpuos_taken gpuos_take_parked(const gpuos_cta &cta) {
  gpuos_control_t *control = gpuos_control_of(cta);
  const uint32_t at = gpuos_claim_slot(cta, GPUOS_PARK_FULL);
  if (at == GPUOS_NONE) return gpuos_take_nothing();
  const gpuos_park_t *slot = (const gpuos_park_t *)cta.args.parks + at;
  gpuos_taken taken = {ld_relaxed_sys(&slot->tile), 0, ld_relaxed_sys(&slot->slice), at};
  taken.tile = gpuos_tile_at(cta, taken.number);
  taken.step = (uint32_t)(ld_relaxed_gpu_u64(&control->ticket) >> 32); // no other one is open
  red_relaxed_gpu_add(&control->parked_count, 0xffffffffu);
  if (taken.slice == 0) gpuos_free_slot(cta, at); // nothing in its area
  return taken;
}

// A tile that nobody waits for may be put down.
GPUOS_DEVICE bool gpuos_may_park(const gpuos_cta &cta, const gpuos_tile_t &tile) {
  return tile.signal == GPUOS_NONE && cta.args.park_area;
}

// ---- the leader draws: lane 0 -------------------------------------------------------------------

// The workers have nothing left of `turn` tiles.
GPUOS_DEVICE bool gpuos_is_empty(gpuos_cta &cta, uint32_t turn) {
  for (uint32_t s = 0; s < GPUOS_SLOTS; s++) {
    const uint32_t uses = (turn + GPUOS_SLOTS - 1 - s) / GPUOS_SLOTS;
    if (!mbarrier_try_wait_parity(&cta.slot_empty[s], (uses & 1) ^ 1)) return false;
  }
  return true;
}
// The SM is the other program's; false as well as long as a tile is on its way.
GPUOS_DEVICE bool gpuos_vacates(gpuos_cta &cta, uint32_t turn) {
  if constexpr (GPUOS_ROLE == GPUOS_ALONE) return false;
  return ld_relaxed_shared(&cta.vacate) && gpuos_is_empty(cta, turn);
}

// The SM is not lent: once its workers have nothing left, it says that it is free.
// `turn`: slots filled so far.
GPUOS_DEVICE void gpuos_stay_away(gpuos_cta &cta, bool &away, uint32_t turn) {
  if (!away) {
    if (!gpuos_is_empty(cta, turn)) return;
    st_relaxed_sys_u64(&gpuos_record_of(cta)->away_ns, mov_globaltimer());
    st_relaxed_sys(&gpuos_record_of(cta)->phase, GPUOS_SM_GONE);
    away = true;
  }
  __nanosleep(400);
}

GPUOS_DEVICE bool gpuos_draw_parked(gpuos_cta &cta, gpuos_taken (&out)[2]) {
  if (!ld_relaxed_shared(&cta.parked)) return false;
  out[0] = gpuos_take_parked(cta);
  if (out[0].number == GPUOS_NONE) return false;
  if (cta.ctas == 2) out[1] = gpuos_take_parked(cta);
  return true;
}

GPUOS_DEVICE bool gpuos_draw_ticket(const gpuos_cta &cta, bool &open, gpuos_taken (&out)[2]) {
  const uint64_t ticket = atom_relaxed_gpu_add_u64(&gpuos_control_of(cta)->ticket, cta.ctas);
  const uint32_t step = (uint32_t)(ticket >> 32), tile = (uint32_t)ticket;
  open = tile < cta.tile_count;
  if (!open) return false;
  out[0] = {tile, step, 0, 0, gpuos_tile_at(cta, tile)};
  if (cta.ctas == 2 && tile + 1 < cta.tile_count)
    out[1] = {tile + 1, step, 0, 0, gpuos_tile_at(cta, tile + 1)};
  return true;
}

// Looks whether there are tiles, and opens a step if it is time. False: not yet.
GPUOS_DEVICE bool gpuos_look(gpuos_cta &cta) {
  const gpuos_control_t *control = gpuos_control_of(cta);
  const uint64_t ticket = ld_relaxed_gpu_u64(&control->ticket);
  const uint32_t done = ld_acquire_gpu(&control->steps_done); // both under way at once
  return (uint32_t)ticket < cta.tile_count || gpuos_open_step(cta, ticket, done);
}

struct gpuos_idling {
  bool away, idle; // has said so
};

// Nothing to draw: whether the SM is lent, said once.
GPUOS_DEVICE void gpuos_idle(gpuos_cta &cta, gpuos_idling &said, uint32_t turn) {
  if (!ld_relaxed_shared(&cta.lent)) {
    gpuos_stay_away(cta, said.away, turn);
    said.idle = false;
    return;
  }
  if (!said.idle) st_relaxed_sys(&gpuos_record_of(cta)->phase, GPUOS_SM_IDLE);
  said.away = false, said.idle = true;
  __nanosleep(64);
}

// Tiles for the CTAs of the cluster, one each; false: leave, or `vacate`. `open`: the last ticket was a tile's, so
// that the next one is drawn without a look first.
GPUOS_DEVICE bool gpuos_draw_pair(gpuos_cta &cta, bool &open, uint32_t &signalled, uint32_t turn,
                                  bool &vacate, gpuos_taken (&out)[2]) {
  gpuos_idling said = {};
  for (;;) {
    gpuos_signal_stored(cta, signalled);
    gpuos_wait_out_hold(cta);
    if (gpuos_leaving(cta)) return false;
    out[0] = out[1] = gpuos_take_nothing();
    if (ld_relaxed_shared(&cta.lent)) {
      if (gpuos_draw_parked(cta, out)) return true;
      if (open && gpuos_draw_ticket(cta, open, out)) return true;
      open = gpuos_look(cta);
      if (open) continue;
    }
    vacate = gpuos_vacates(cta, turn);
    if (vacate) return false;
    gpuos_idle(cta, said, turn);
  }
}

// ---- from the leader to its peer: lane 0 --------------------------------------------------------

struct gpuos_channels {
  uint32_t messages[GPUOS_CHANNELS]; // sent, or received
};

// `meanwhile` is done as long as the peer has not read the one before. False: the CTA has to stop.
template <int CHANNEL, class MEANWHILE>
GPUOS_DEVICE bool gpuos_send(gpuos_cta &cta, gpuos_channels &channels, const gpuos_message &message,
                             MEANWHILE meanwhile) {
  uint32_t &messages = channels.messages[CHANNEL];
  while (!mbarrier_try_wait_parity(&cta.message_free[CHANNEL], (messages & 1) ^ 1)) {
    if (ld_relaxed_shared(&cta.stop)) return false;
    meanwhile();
  }
  messages++;
  const uint32_t to = mapa_shared_cluster(&cta.message[CHANNEL], 1);
  const uint32_t full = mapa_shared_cluster(&cta.message_full[CHANNEL], 1);
#pragma unroll
  for (int i = 0; i < 3; i++) st_async_v4(to + i * (uint32_t)sizeof(uint4), message.part[i], full);
  return true;
}

// `meanwhile` is done as long as there is none.
template <int CHANNEL, class MEANWHILE>
GPUOS_DEVICE bool gpuos_receive(gpuos_cta &cta, gpuos_channels &channels, gpuos_message &message,
                                MEANWHILE meanwhile) {
  uint64_t *full = &cta.message_full[CHANNEL];
  while (!mbarrier_try_wait_parity(full, channels.messages[CHANNEL] & 1)) {
    if (gpuos_leaving(cta)) return false;
    meanwhile();
  }
  channels.messages[CHANNEL]++;
  message = cta.message[CHANNEL];
  mbarrier_arrive_expect_tx(shared_address(full), sizeof message); // the next one
  mbarrier_arrive_cluster(mapa_shared_cluster(&cta.message_free[CHANNEL], 0));
  return true;
}

// ---- a slot is filled: all lanes ----------------------------------------------------------------

// A part of at most MOST words of 8 bytes: all of it is on its way before the first is looked at.
template <int MOST> struct gpuos_part {
  uint64_t words[(MOST + 31) / 32];
  __device__ __forceinline__ void load(const void *from, uint32_t count) {
#pragma unroll
    for (uint32_t i = 0; i < MOST; i += 32) {
      words[i / 32] = 0; // or it would be kept from one call to the next
      if (i + gpuos_lane() < count) words[i / 32] = ((const uint64_t *)from)[i + gpuos_lane()];
    }
  }
  __device__ __forceinline__ void store(void *to, uint32_t count) const {
#pragma unroll
    for (uint32_t i = 0; i < MOST; i += 32)
      if (i + gpuos_lane() < count) ((uint64_t *)to)[i + gpuos_lane()] = words[i / 32];
  }
};

// A place for an operator's records, before turn `turn`, that no tile on its way needs and that does not have
// those of `keep`; GPUOS_NONE, if there is none yet.
GPUOS_DEVICE uint32_t gpuos_find_room(const gpuos_cta &cta, uint32_t turn, uint32_t keep) {
  const uint32_t s = gpuos_lane(), before = turn - 1 - (turn - 1 - s) % GPUOS_SLOTS;
  bool used = s < GPUOS_SLOTS;
  if (used && before != turn - 1)
    used = !mbarrier_test_wait_parity(&cta.slot_empty[s], before / GPUOS_SLOTS & 1);
  const uint32_t place = used ? cta.slots[s].of.place : GPUOS_NONE;
  uint32_t room = GPUOS_NONE;
#pragma unroll
  for (uint32_t k = 0; k < GPUOS_KNOWN; k++)
    if (!__any_sync(0xffffffffu, place == k) && cta.known[k].number != keep) room = k;
  return room;
}

// The place that has them, or GPUOS_NONE.
GPUOS_DEVICE uint32_t gpuos_find_op(const gpuos_cta &cta, uint32_t number) {
  uint32_t place = GPUOS_NONE;
#pragma unroll
  for (uint32_t k = 0; k < GPUOS_KNOWN; k++)
    if (cta.known[k].number == number) place = k;
  return place;
}

// The operator's records, which lie in global memory.
template <class PROGRAM>
GPUOS_DEVICE void gpuos_fetch_op(gpuos_cta &cta, gpuos_known &known, uint32_t number) {
  enum { OP = sizeof(gpuos_op_t) / 8, PLACE = sizeof(gpuos_place_t) / 8 };
  const gpuos_op_numbers &numbers = PROGRAM::numbers(number);
  const uint32_t count = numbers.operand_count * PLACE;
  gpuos_part<OP> op;
  gpuos_part<GPUOS_OPERANDS * PLACE> places;
  __syncwarp(); // all lanes have looked what is there
  op.load(cta.ops + number, OP);
  places.load((const gpuos_place_t *)cta.args.places + numbers.first_operand, count);
  op.store(&known.op, OP);
  places.store(known.places, count);
  if (gpuos_lane0()) {
    known.number = number, known.unit = numbers.unit;
    for (int i = 0; i < GPUOS_STAMPED; i++) known.from[i] = numbers.from[i];
  }
  __syncwarp();
}

// Makes operator `number` the one of the slot of turn `turn`, which is empty, and leaves the records of `keep`
// where they are. False: stop.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_know_op(gpuos_cta &cta, uint32_t turn, uint32_t number, uint32_t keep) {
  uint32_t place = gpuos_find_op(cta, number);
  if (place == GPUOS_NONE) {
    while ((place = gpuos_find_room(cta, turn, keep)) == GPUOS_NONE)
      if (__any_sync(0xffffffffu, ld_relaxed_shared(&cta.stop) != 0)) return false;
    gpuos_fetch_op<PROGRAM>(cta, cta.known[place], number);
  }
  if (gpuos_lane0()) cta.slots[turn % GPUOS_SLOTS].of = {place};
  __syncwarp();
  return true;
}

// The iteration box of the slot's tile, as gpuos_tile_box has it, a dimension a lane: one thread would
// divide for a microsecond. True: tile `other` of the same operator has the same columns and batch.
GPUOS_DEVICE bool gpuos_make_box(gpuos_slot &slot, uint32_t index, uint32_t other) {
  const uint32_t lane = gpuos_lane(), d = lane % GPUOS_DIMS, all = 0xffffffffu;
  const uint32_t extent = slot.of->op.extent[d], tile = slot.of->op.tile[d];
  uint32_t lo = (lane / GPUOS_DIMS == 0 ? index : other) * tile;
  if (!__all_sync(all, d == 2 || tile >= extent)) { // cut along more than dimension 2
    const uint32_t grid = (extent - 1) / tile + 1;
    const uint32_t g1 = __shfl_sync(all, grid, 1), g2 = __shfl_sync(all, grid, 2);
    const uint32_t g3 = __shfl_sync(all, grid, 3);
    const uint32_t stride = d == 3 ? 1 : d == 2 ? g3 : d == 1 ? g2 * g3 : g1 * g2 * g3;
    lo = (lane / GPUOS_DIMS == 0 ? index : other) / stride % grid * tile;
  } else if (d != 2) {
    lo = 0;
  }
  if (lane < GPUOS_DIMS) {
    slot.box.lo[d] = lo;
    slot.box.n[d] = extent - lo < tile ? extent - lo : tile;
  }
  if constexpr (GPUOS_CTAS == 1) return false;
  return __shfl_sync(all, lo, 0) == __shfl_sync(all, lo, GPUOS_DIMS) &&
         __shfl_sync(all, lo, 2) == __shfl_sync(all, lo, GPUOS_DIMS + 2);
}

GPUOS_DEVICE void gpuos_report(const gpuos_cta &cta, gpuos_sm_phase_t phase, uint32_t tile) {
  gpuos_sm_t *record = gpuos_record_of(cta);
  st_relaxed_sys(&record->tile, tile);
  st_relaxed_sys(&record->slice, 0);
  st_relaxed_sys(&record->phase, phase);
}

// What a lane waits for, and since when.
struct gpuos_waiting {
  gpuos_wait_t wait;
  uint32_t found;
  uint64_t since_ns;
};

// Time in which the step is paused does not count against the limit. False: it is over.
GPUOS_DEVICE bool gpuos_may_wait(gpuos_cta &cta, const gpuos_slot &slot, gpuos_waiting &w) {
  gpuos_sm_t *record = gpuos_record_of(cta);
  const uint32_t expected = w.wait.threshold * slot.step;
  const uint64_t now_ns = mov_globaltimer();
  if (w.since_ns == 0) {
    st_relaxed_sys(&record->counter, w.wait.counter); // several lanes may report; any will do
    st_relaxed_sys(&record->expected, expected);
    st_relaxed_sys(&record->found, w.found);
    gpuos_report(cta, GPUOS_SM_WAITING, slot.number);
  }
  if (w.since_ns == 0 || ld_relaxed_shared(&cta.hold)) w.since_ns = now_ns;
  if (now_ns - w.since_ns < 1000ull * cta.wait_limit_us) return true;
  gpuos_record_fault(cta, slot, GPUOS_FAULT_STALL, w.wait.counter, expected, w.found);
  return false;
}

// All lanes: up to 32 waits of a list, one a lane. Lane 0 meanwhile does what they may wait for.
template <class MEANWHILE>
GPUOS_DEVICE bool gpuos_wait_some(gpuos_cta &cta, const gpuos_slot &slot, const gpuos_wait_t *waits,
                                  uint32_t count, MEANWHILE meanwhile) {
  const uint32_t all = 0xffffffffu, lane = gpuos_lane();
  gpuos_waiting w = {lane < count ? waits[lane] : gpuos_wait_t{0, 0}, 0, 0};
  const uint32_t *counter = (const uint32_t *)cta.args.counters + w.wait.counter;
  for (bool met = lane >= count;;) {
    if (!met) {
      w.found = ld_acquire_gpu(counter);
      met = (int)(w.found - w.wait.threshold * slot.step) >= 0;
    }
    if (__all_sync(all, met)) return true;
    if (gpuos_lane0()) meanwhile();
    const bool go = !ld_relaxed_shared(&cta.stop) && (met || gpuos_may_wait(cta, slot, w));
    if (!__all_sync(all, go)) return false;
    __nanosleep(40);
  }
}

GPUOS_DEVICE gpuos_wait_list_t gpuos_list_of(const gpuos_cta &cta, const gpuos_slot &slot) {
  const gpuos_wait_list_t none = {0, 0, 0};
  return slot.tile.wait_list == 0 ? none : cta.wait_lists[slot.tile.wait_list];
}

template <class MEANWHILE>
GPUOS_DEVICE bool gpuos_wait_range(gpuos_cta &cta, const gpuos_slot &slot, uint32_t first,
                                   uint32_t count, MEANWHILE meanwhile) {
  for (uint32_t i = 0; i < count; i += 32)
    if (!gpuos_wait_some(cta, slot, cta.waits + first + i, count - i < 32 ? count - i : 32,
                         meanwhile))
      return false;
  return true;
}

// The same without anything else to do, for several agents: one code, since it is cold when it is wanted.
__device__ __noinline__ bool gpuos_wait_counters(gpuos_cta &cta, const gpuos_slot &slot,
                                                 uint32_t first, uint32_t count) {
  return gpuos_wait_range(cta, slot, first, count, [] {});
}

// All lanes: what the tile sees by stamps, by the counters. `late`: these have long been full, and the stamps should be
// there; the fault names the first counter. False: stop.
GPUOS_DEVICE bool gpuos_wait_stamped(const gpuos_ctx &ctx, bool late) {
  const gpuos_wait_list_t list = gpuos_list_of(*ctx.cta, *ctx.slot);
  const uint32_t first = list.first + list.count - list.stamped;
  if (!gpuos_wait_counters(*ctx.cta, *ctx.slot, first, list.stamped)) return false;
  if (!late || list.stamped == 0) return true;
  const gpuos_wait_t wait = ctx.cta->waits[first];
  const uint32_t count = wait.threshold * ctx.slot->step;
  gpuos_record_fault(*ctx.cta, *ctx.slot, GPUOS_FAULT_STALL, wait.counter, count, count);
  return false;
}

// Counters only grow: once a list is over in a step, it stays so. `met` remembers the last one.
GPUOS_DEVICE uint64_t gpuos_wait_mark(const gpuos_slot &slot) {
  return (uint64_t)slot.step << 32 | slot.tile.wait_list;
}
template <class WAIT>
GPUOS_DEVICE bool gpuos_wait_listed(gpuos_cta &cta, const gpuos_slot &slot, uint64_t &met,
                                    WAIT wait) {
  const uint64_t mark = gpuos_wait_mark(slot);
  if (mark == met) return true;
  if (met >> 32 != slot.step) fence_acq_rel_gpu(); // the host may have written inputs
  const gpuos_wait_list_t list = gpuos_list_of(cta, slot);
  if (!wait(list.first, list.count - list.stamped)) return false;
  if constexpr (GPUOS_CTAS == 2) fence_proxy_async(); // for bulk copies as well
  met = mark;
  return true;
}
template <class MEANWHILE>
GPUOS_DEVICE bool gpuos_wait_all(gpuos_cta &cta, const gpuos_slot &slot, uint64_t &met,
                                 MEANWHILE meanwhile) {
  return gpuos_wait_listed(cta, slot, met, [&](uint32_t first, uint32_t count) {
    return gpuos_wait_range(cta, slot, first, count, meanwhile);
  });
}
GPUOS_DEVICE bool gpuos_wait_all(gpuos_cta &cta, const gpuos_slot &slot, uint64_t &met) {
  return gpuos_wait_listed(cta, slot, met, [&](uint32_t first, uint32_t count) {
    return gpuos_wait_counters(cta, slot, first, count);
  });
}
