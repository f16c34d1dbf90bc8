// alone.cuh: the scheduler of a CTA that is no cluster's: one tile after another into a slot.
//
// It runs ahead of what tiles wait for, so that weights stream meanwhile, but draws a ticket only when the loader
// soon wants the tile: whoever has more than his ring can hold keeps it from others, and all wait for him when
// the operator ends. At the ceiling of the memory an SM of 56 has a tile of 128 KiB every 1.6 us, so lane 0
// alone does what most tiles take: where the next one is follows from the last. The warp comes together where
// an operator's records are fetched, or a box is divided out.
#pragma once
#include "take.cuh"

// Tiles that do not stream: the loader is through with them at no time at all, so that one SM would take several
// while others had none, and run them one after the other. So it keeps one, until that one's turn has come, as what is
// before it is stored and all is over that it waits for by counters, or the others of its operator are drawn.
struct gpuos_crowd {
  bool holds;
  uint32_t turn, step, end; // of the tile; before which ticket its operator ends
};

// Lane 0's, but for what the warp needs to help: turn, taken, of.
struct gpuos_alone {
  uint32_t turn, step; // slots filled so far; the last tile's
  bool open;           // there are tickets of tiles
  uint32_t ahead;      // operators after the last tile's whose records have been seen to
  uint32_t chain;      // the next one of them
  gpuos_crowd crowd;
  gpuos_taken taken;              // the last tile, or one that the warp is to help with
  gpuos_op_numbers of;            // of the last tile's operator
  gpuos_known_at known;           // it, unless
  bool unknown;                   // the warp is to fetch it first
  uint32_t rows, columns, n1, n3; // its tile and extent along dimension 2; of its boxes
  uint32_t tiles;                 // of it, one after the other
};

// What lane 0 needs the warp for.
enum gpuos_need {
  GPUOS_NEEDS_NOTHING,
  GPUOS_NEEDS_BOX,   // of the tile it has taken, and its operator's records
  GPUOS_NEEDS_NEXT,  // records of the operator `chain`, to have them early
  GPUOS_NEEDS_TO_GO, // it leaves
};

// ---- tickets: lane 0 ----------------------------------------------------------------------------

GPUOS_DEVICE bool gpuos_crowded(gpuos_cta &cta, gpuos_crowd &crowd, uint32_t turn) {
  if (!crowd.holds) return false;
  const gpuos_slot &slot = cta.slots[crowd.turn % GPUOS_SLOTS];
  const bool runs = turn - crowd.turn >= GPUOS_SLOTS || ld_relaxed_shared(&slot.cleared);
  const uint64_t ticket = ld_relaxed_gpu_u64(&gpuos_control_of(cta)->ticket);
  crowd.holds = !runs && (uint32_t)ticket < crowd.end && (uint32_t)(ticket >> 32) == crowd.step;
  return crowd.holds;
}

// The next tiles are of an operator that does not stream, and this SM has none of it: it loses no time over it later, and
// others nothing.
GPUOS_DEVICE bool gpuos_may_join(const gpuos_cta &cta, const gpuos_alone &s) {
  if (s.crowd.holds || s.of.count == 0 || s.of.first + s.of.count != s.of.crowd) return false;
  const uint64_t ticket = ld_relaxed_gpu_u64(&gpuos_control_of(cta)->ticket);
  return (uint32_t)(ticket >> 32) == s.step &&
         (uint32_t)ticket - s.of.crowd < s.of.crowd_end - s.of.crowd;
}

// Its last tile that does not stream has not ended, and it has one tile after that: the next ones are better drawn by SMs
// that are free when they begin.
GPUOS_DEVICE bool gpuos_stays_behind(gpuos_cta &cta, const gpuos_alone &s) {
  const uint32_t turn = s.crowd.turn, ahead = s.turn - turn;
  if (s.crowd.end == 0 || ahead < 2 || ahead >= GPUOS_SLOTS) return false;
  return !mbarrier_test_wait_parity(&cta.slot_empty[turn % GPUOS_SLOTS], gpuos_parity(turn));
}

// Fetched while no ticket is wanted: the way of records is as long as a ticket's.
enum { GPUOS_CHAIN = 2 };

// A ticket, or what else there is to do. What it has drawn it runs, also when its SM is no longer lent.
template <class PROGRAM>
GPUOS_DEVICE gpuos_need gpuos_draw_alone(gpuos_cta &cta, gpuos_alone &s, uint64_t &out_ticket) {
  gpuos_idling said = {};
  for (;;) {
    bool lent = true;
    if (!ld_relaxed_shared(&cta.usual)) {
      gpuos_wait_out_hold(cta);
      if (gpuos_leaving(cta)) return GPUOS_NEEDS_TO_GO;
      lent = ld_relaxed_shared(&cta.lent) != 0;
    }
    const bool early = (int)(s.turn - ld_relaxed_shared(&cta.wanted)) > 0;
    if (lent && (early || gpuos_crowded(cta, s.crowd, s.turn) || gpuos_stays_behind(cta, s))) {
      const bool joins = early && s.ahead > 0 && gpuos_may_join(cta, s);
      if (GPUOS_STREAMS && !joins && s.ahead < GPUOS_CHAIN) return GPUOS_NEEDS_NEXT;
      if (!joins) continue;
    }
    if (lent && !s.open) s.open = gpuos_look(cta);
    if (lent && s.open) {
      out_ticket = atom_relaxed_gpu_add_u64(&gpuos_control_of(cta)->ticket, 1);
      return GPUOS_NEEDS_NOTHING;
    }
    if (gpuos_vacates(cta, s.turn)) return GPUOS_NEEDS_TO_GO;
    gpuos_idle(cta, said, s.turn);
  }
}

GPUOS_DEVICE void gpuos_set_known(gpuos_alone &s, gpuos_known_at known) {
  s.known = known, s.unknown = false;
  s.rows = known->op.tile[2], s.columns = known->op.extent[2];
  s.n1 = known->op.extent[1], s.n3 = known->op.extent[3];
}

// The tile of ticket `number`: read, unless it follows from the last one or is of the operator after it.
template <class PROGRAM>
GPUOS_DEVICE void gpuos_find_tile(const gpuos_cta &cta, gpuos_alone &s, uint32_t number,
                                  uint32_t step) {
  s.taken.number = number, s.taken.step = step, s.tiles++;
  if (number - s.of.first < s.of.count) {
    s.taken.tile.index = number - s.of.first;
    return;
  }
  const uint32_t last = s.taken.tile.op, next = s.of.next;
  gpuos_op_numbers of = PROGRAM::numbers(next);
  if (number - of.first < of.count) {
    s.taken.tile = {next, number - of.first, of.wait_list, of.signal};
  } else {
    s.taken.tile = gpuos_tile_at(cta, number);
    if (s.taken.tile.op == last) return;
    of = PROGRAM::numbers(s.taken.tile.op);
  }
  const uint32_t place = gpuos_find_op(cta, s.taken.tile.op);
  s.of = of, s.tiles = 0, s.unknown = place == GPUOS_NONE;
  s.ahead = 0, s.chain = of.next;
  if (!s.unknown) gpuos_set_known(s, {place});
}

// ---- into a slot: lane 0 ------------------------------------------------------------------------

// False: stop.
GPUOS_DEVICE bool gpuos_await_slot(gpuos_cta &cta, uint32_t turn) {
  uint64_t *empty = &cta.slot_empty[turn % GPUOS_SLOTS];
  while (!mbarrier_try_wait_parity(empty, (turn / GPUOS_SLOTS & 1) ^ 1))
    if (ld_relaxed_shared(&cta.stop)) return false;
  return true;
}

// What the host and earlier steps wrote is there for all of the CTA: also for what is read before the tile's
// waits are over, and by bulk copies.
GPUOS_DEVICE void gpuos_enter_step() {
  fence_acq_rel_gpu();
  if constexpr (GPUOS_STREAMS) fence_proxy_async();
}

// The slot has its operator and its box: it is the tile's.
GPUOS_DEVICE void gpuos_publish_alone(gpuos_cta &cta, gpuos_alone &s) {
  gpuos_slot &slot = cta.slots[s.turn % GPUOS_SLOTS];
  slot.number = s.taken.number, slot.step = s.taken.step;
  slot.slice = slot.resume = slot.pair = slot.realign = slot.cleared = slot.failed = 0;
  slot.tile = s.taken.tile;
  slot.alike = s.tiles > 0 && s.of.count > 0 && s.taken.step == s.step;
  slot.stop_slice = slot.park = GPUOS_NONE;
  gpuos_wait_out_hold(cta); // no tile begins in a pause
  if (slot.step != s.step) gpuos_enter_step();
  s.step = slot.step;
  mbarrier_arrive(&cta.slot_full[s.turn % GPUOS_SLOTS]);
  s.turn++;
}

// The tile is one of those that follow each other, and its operator known.
GPUOS_DEVICE void gpuos_follow_on(gpuos_cta &cta, gpuos_alone &s) {
  gpuos_slot &slot = cta.slots[s.turn % GPUOS_SLOTS];
  const uint32_t lo = s.taken.tile.index * s.rows, left = s.columns - lo;
  slot.of = s.known;
  slot.box = {{0, 0, lo, 0}, {1, s.n1, left < s.rows ? left : s.rows, s.n3}};
  gpuos_publish_alone(cta, s);
}

// The next tile.
template <class PROGRAM> GPUOS_DEVICE gpuos_need gpuos_take_next(gpuos_cta &cta, gpuos_alone &s) {
  uint64_t ticket;
  const gpuos_need first = gpuos_draw_alone<PROGRAM>(cta, s, ticket);
  if (first != GPUOS_NEEDS_NOTHING) return first;
  const uint32_t number = (uint32_t)ticket, step = (uint32_t)(ticket >> 32);
  s.open = number < cta.tile_count;
  if (!s.open) return GPUOS_NEEDS_NOTHING; // its step has no more
  gpuos_find_tile<PROGRAM>(cta, s, number, step);
  if (GPUOS_STREAMS && number >= s.of.crowd) s.crowd = {true, s.turn, step, s.of.crowd_end};
  if (!gpuos_await_slot(cta, s.turn)) return GPUOS_NEEDS_TO_GO;
  if (s.unknown || s.of.count == 0) return GPUOS_NEEDS_BOX;
  gpuos_follow_on(cta, s);
  return GPUOS_STREAMS && s.ahead == 0 ? GPUOS_NEEDS_NEXT : GPUOS_NEEDS_NOTHING;
}

// ---- with the warp's help -----------------------------------------------------------------------

// The slot is empty: the taken tile's operator, and its box. False: stop.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_help_with_box(gpuos_cta &cta, gpuos_alone &s, uint32_t turn) {
  gpuos_slot &slot = cta.slots[turn % GPUOS_SLOTS];
  const uint32_t op = __shfl_sync(0xffffffffu, s.taken.tile.op, 0);
  const uint32_t next = __shfl_sync(0xffffffffu, s.of.next, 0);
  if (!gpuos_know_op<PROGRAM>(cta, turn, op, next)) return false;
  gpuos_make_box(slot, __shfl_sync(0xffffffffu, s.taken.tile.index, 0), 0);
  __syncwarp();
  if (gpuos_lane0()) {
    gpuos_set_known(s, slot.of);
    gpuos_publish_alone(cta, s);
  }
  return true;
}

// The records of the operator `chain`, unless they are there or there is no room yet before turn `turn`.
template <class PROGRAM>
GPUOS_DEVICE void gpuos_help_ahead(gpuos_cta &cta, gpuos_alone &s, uint32_t turn) {
  const uint32_t op = __shfl_sync(0xffffffffu, s.chain, 0);
  const uint32_t next = __shfl_sync(0xffffffffu, s.of.next, 0);
  if (gpuos_find_op(cta, op) == GPUOS_NONE) {
    const uint32_t room = gpuos_find_room(cta, turn, next);
    if (room == GPUOS_NONE) return;
    gpuos_fetch_op<PROGRAM>(cta, cta.known[room], op);
  }
  s.ahead++, s.chain = PROGRAM::numbers(op).next;
}

template <class PROGRAM> GPUOS_DEVICE void gpuos_schedule_alone(gpuos_cta &cta) {
  gpuos_alone s = {};
  s.taken.tile.op = GPUOS_NONE; // there was none before it
  for (;;) {
    uint32_t need = GPUOS_NEEDS_NOTHING;
    if (gpuos_lane0())
      while (need == GPUOS_NEEDS_NOTHING) need = gpuos_take_next<PROGRAM>(cta, s);
    __syncwarp();
    need = __shfl_sync(0xffffffffu, need, 0);
    if (need == GPUOS_NEEDS_TO_GO) return;
    const uint32_t turn = __shfl_sync(0xffffffffu, s.turn, 0);
    if (need == GPUOS_NEEDS_BOX && !gpuos_help_with_box<PROGRAM>(cta, s, turn)) return;
    if (need == GPUOS_NEEDS_NEXT) gpuos_help_ahead<PROGRAM>(cta, s, turn);
  }
}
