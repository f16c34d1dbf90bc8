// ahead.cuh: how a CTA that is no cluster's draws tiles: before they are needed, but not more of a kind than
// its share.
//
// Called by all lanes of the scheduler warp.
#pragma once
#include "take.cuh"

// ---- tickets ahead ------------------------------------------------------------------------------

// The way of a ticket to the L2 and back takes as long as a tile runs. So nothing here waits for what it
// has just asked for, nor moves it from register to register, which would be to wait for it.
struct gpuos_ahead {
  uint64_t ticket0, ticket1, ticket2; // in lane 0
  uint32_t first, held;               // which of them is the next; 0 to GPUOS_AHEAD from it on
  bool known;                         // the first's number has been looked at, by all lanes:
  uint32_t number, step;
  gpuos_tile_t tile; // unless it lies beyond the step
};
enum { GPUOS_TICKETS = 3 };
static_assert((int)GPUOS_AHEAD <= (int)GPUOS_TICKETS, "places for them");

// Lane 0. To ptxas the address differs from lane to lane: if it were the same, it would add over the lanes
// first and shuffle the result back, and so wait for it as soon as it has asked.
GPUOS_DEVICE uint64_t gpuos_draw(const gpuos_cta &cta) {
  return atom_relaxed_gpu_add_u64(&gpuos_control_of(cta)->ticket + mov_laneid(), 1);
}
GPUOS_DEVICE void gpuos_push_ahead(const gpuos_cta &cta, gpuos_ahead &ahead) {
  const uint32_t at = (ahead.first + ahead.held++) % GPUOS_TICKETS;
  if (!gpuos_lane0()) return;
  if (at == 0)
    ahead.ticket0 = gpuos_draw(cta);
  else if (at == 1)
    ahead.ticket1 = gpuos_draw(cta);
  else
    ahead.ticket2 = gpuos_draw(cta);
}
// In all lanes.
GPUOS_DEVICE uint64_t gpuos_first_ahead(const gpuos_ahead &ahead) {
  if (ahead.first == 0) return __shfl_sync(0xffffffffu, ahead.ticket0, 0);
  if (ahead.first == 1) return __shfl_sync(0xffffffffu, ahead.ticket1, 0);
  return __shfl_sync(0xffffffffu, ahead.ticket2, 0);
}

// Looks at the first. Its tile need not be read where it follows from `last`, some tile before it, if there
// is one.
template <class PROGRAM>
GPUOS_DEVICE void gpuos_know_ahead(const gpuos_cta &cta, gpuos_ahead &ahead,
                                   const gpuos_tile_t &last) {
  gpuos_op_numbers numbers = {0, 0, 0, 0, 0};
  if (last.op != GPUOS_NONE) numbers = PROGRAM::numbers(last.op);
  const uint64_t ticket = gpuos_first_ahead(ahead);
  ahead.known = true, ahead.number = (uint32_t)ticket, ahead.step = (uint32_t)(ticket >> 32);
  if (ahead.number - numbers.from < numbers.count)
    ahead.tile = {last.op, ahead.number - numbers.from, last.wait_list, last.signal};
  else if (ahead.number < cta.tile_count)
    ahead.tile = gpuos_tile_at(cta, ahead.number);
}

// The first one, which is known. False: it was beyond its step, which has no more.
GPUOS_DEVICE bool gpuos_pop_ahead(const gpuos_cta &cta, gpuos_ahead &ahead, gpuos_taken &out) {
  out = {ahead.number, ahead.step, 0, 0, ahead.tile};
  ahead.first = (ahead.first + 1) % GPUOS_TICKETS;
  ahead.held--, ahead.known = false;
  return out.number < cta.tile_count;
}

// ---- crowds -------------------------------------------------------------------------------------

// Tiles that do not stream: the scheduler runs ahead of what they wait for, at no time at all, so that
// one SM would take several while others had none, and run them one after the other. So it keeps one, until
// that is over or the others of its operator are drawn.
struct gpuos_crowd {
  bool holds;
  uint32_t turn, step, end; // of the tile; before which ticket its operator ends
};

// All lanes agree.
GPUOS_DEVICE bool gpuos_crowded(gpuos_cta &cta, gpuos_crowd &crowd, uint32_t turn) {
  if (!crowd.holds) return false;
  const uint32_t at = crowd.turn % GPUOS_SLOTS, uses = crowd.turn / GPUOS_SLOTS;
  bool over = turn - crowd.turn >= GPUOS_SLOTS; // its slot has been filled again
  if (gpuos_lane0() && !over) {
    const uint64_t ticket = ld_relaxed_gpu_u64(&gpuos_control_of(cta)->ticket);
    over = (uint32_t)ticket >= crowd.end || (uint32_t)(ticket >> 32) != crowd.step ||
           mbarrier_test_wait_parity(&cta.slot_empty[at], uses & 1);
  }
  crowd.holds = __shfl_sync(0xffffffffu, (int)over, 0) == 0;
  return crowd.holds;
}

// ---- the next tile ------------------------------------------------------------------------------

// What of the commands concerns a scheduler by itself.
enum { GPUOS_MAY_LEAVE = 1, GPUOS_MAY_DRAW = 2 };
GPUOS_DEVICE uint32_t gpuos_ask(gpuos_cta &cta) {
  uint32_t may = 0;
  if (gpuos_lane0()) {
    gpuos_wait_out_hold(cta);
    may =
        gpuos_leaving(cta) * GPUOS_MAY_LEAVE + (ld_relaxed_shared(&cta.lent) != 0) * GPUOS_MAY_DRAW;
  }
  return __shfl_sync(0xffffffffu, may, 0);
}

// How many tickets to draw ahead after tile `number`: as many as are not likely to be a crowd's, when all SMs
// draw in turn, and one, since it may keep that one; none after a tile of the crowd.
GPUOS_DEVICE uint32_t gpuos_far_sight(const gpuos_cta &cta, uint32_t number, uint32_t crowd) {
  if (GPUOS_AHEAD == 0 || number >= crowd) return 0;
  const uint32_t rounds = (crowd - number) / cta.args.sm_count;
  return rounds < 1 ? 1 : rounds < GPUOS_AHEAD ? rounds : (uint32_t)GPUOS_AHEAD;
}

// A tile for a CTA by itself, all lanes; `out`: the one before. What it has drawn it runs, also when its SM
// is no longer lent.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_draw_one(gpuos_cta &cta, bool &open, gpuos_ahead &ahead, gpuos_crowd &crowd,
                                 uint32_t turn, gpuos_taken &out) {
  gpuos_idling said = {};
  for (;;) {
    const uint32_t may = gpuos_ask(cta);
    if (may & GPUOS_MAY_LEAVE) return false;
    if (ahead.held) {
      if (!ahead.known) gpuos_know_ahead<PROGRAM>(cta, ahead, out.tile);
      open = gpuos_pop_ahead(cta, ahead, out);
      if (!open) continue;
      const gpuos_op_numbers &numbers = PROGRAM::numbers(out.tile.op);
      if (ahead.held > 1) gpuos_know_ahead<PROGRAM>(cta, ahead, out.tile);
      const uint32_t hold = gpuos_far_sight(cta, out.number, numbers.first);
      if (out.number >= numbers.first) crowd = {true, turn, out.step, numbers.end};
      while (may & GPUOS_MAY_DRAW && ahead.held < hold) gpuos_push_ahead(cta, ahead);
      return true;
    }
    if (GPUOS_AHEAD && gpuos_crowded(cta, crowd, turn)) continue;
    if (may & GPUOS_MAY_DRAW && !open)
      open = __shfl_sync(0xffffffffu, (int)(gpuos_lane0() && gpuos_look(cta)), 0) != 0;
    if (may & GPUOS_MAY_DRAW && open)
      gpuos_push_ahead(cta, ahead);
    else if (gpuos_lane0())
      gpuos_idle(cta, said, turn);
  }
}
