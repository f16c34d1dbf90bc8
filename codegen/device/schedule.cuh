// schedule.cuh: the scheduler of a cluster's CTA: one tile after another into a slot, ready to run.
//
// The CTAs of a cluster take tiles together: the leader draws for both and tells the other one. Two
// tiles of one operator in the same columns become a pair, which shares the copies of W.
#pragma once
#include "take.cuh"

GPUOS_DEVICE bool gpuos_agree(bool value) { return __shfl_sync(0xffffffffu, (int)value, 0) != 0; }
GPUOS_DEVICE gpuos_taken gpuos_agree(gpuos_taken t) {
  return {__shfl_sync(0xffffffffu, t.number, 0),
          __shfl_sync(0xffffffffu, t.step, 0),
          __shfl_sync(0xffffffffu, t.slice, 0),
          __shfl_sync(0xffffffffu, t.resume, 0),
          {__shfl_sync(0xffffffffu, t.tile.op, 0), __shfl_sync(0xffffffffu, t.tile.index, 0),
           __shfl_sync(0xffffffffu, t.tile.wait_list, 0),
           __shfl_sync(0xffffffffu, t.tile.signal, 0)}};
}

// What a CTA runs next, and what its cluster makes of it.
struct gpuos_next {
  gpuos_taken mine;
  uint32_t other; // grid cell of the other CTA's tile
  bool alike;     // that is of the same operator, equally far, and of a kind that shares copies
  bool paired;    // the leader's last tile was a pair's
};

struct gpuos_scheduler {
  uint32_t turn;      // slots filled so far
  uint64_t met;       // the wait list that was last over
  uint32_t signalled; // tiles that the workers have handed over
  gpuos_channels channels;
  bool open;   // the leader's last ticket was a tile's
  bool paired; // its last tile was a pair's
};

// Lane 0. False: the CTA has to stop.
GPUOS_DEVICE bool gpuos_wait_scheduler(gpuos_cta &cta, gpuos_scheduler &s, uint64_t *barrier,
                                       uint32_t parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
    gpuos_signal_stored(cta, s.signalled);
    if (ld_relaxed_shared(&cta.stop)) return false;
  }
  return true;
}

// ---- which tile ---------------------------------------------------------------------------------

enum { GPUOS_ALIKE_BIT = 1, GPUOS_PAIRED_BIT = 2, GPUOS_VACATE_BIT = 4, GPUOS_MESSAGE_BITS = 3 };

GPUOS_DEVICE gpuos_message gpuos_make_message(const gpuos_taken &mine, const gpuos_taken &peer,
                                              uint32_t bits) {
  return {{{peer.number, peer.step, peer.slice << GPUOS_MESSAGE_BITS | bits, peer.resume},
           {peer.tile.op, peer.tile.index, peer.tile.wait_list, peer.tile.signal},
           {mine.tile.index, 0, 0, 0}}};
}

// The leader of a cluster. False: leave.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_lead(gpuos_cta &cta, gpuos_scheduler &s, gpuos_next &next) {
  gpuos_taken taken[2] = {gpuos_take_nothing(), gpuos_take_nothing()};
  bool ok = true;
  if (gpuos_lane0()) {
    bool vacate = false;
    ok = gpuos_draw_pair(cta, s.open, s.signalled, s.turn, vacate, taken);
    const gpuos_taken &mine = taken[0], &peer = taken[1];
    next.other = peer.tile.index;
    next.alike = peer.number != GPUOS_NONE && mine.tile.op == peer.tile.op &&
                 (mine.tile.signal == GPUOS_NONE) == (peer.tile.signal == GPUOS_NONE) &&
                 mine.slice == peer.slice && PROGRAM::bulk(PROGRAM::unit(mine.tile.op));
    next.paired = s.paired;
    const uint32_t bits =
        next.alike * GPUOS_ALIKE_BIT + next.paired * GPUOS_PAIRED_BIT + vacate * GPUOS_VACATE_BIT;
    const bool told = (ok || vacate) && gpuos_send<GPUOS_TAKE_CHANNEL>(
                                            cta, s.channels, gpuos_make_message(mine, peer, bits),
                                            [&] { gpuos_signal_stored(cta, s.signalled); });
    gpuos_signal_stored(cta, s.signalled); // of an empty CTA all, before it goes
    ok = ok && told;
  }
  next.mine = gpuos_agree(taken[0]);
  next.other = __shfl_sync(0xffffffffu, next.other, 0);
  return gpuos_agree(ok);
}

// Without a tile from the leader: says that its SM is free, as the leader does for its own.
GPUOS_DEVICE void gpuos_idle_follower(gpuos_cta &cta, bool &away, uint32_t turn) {
  if (!ld_relaxed_shared(&cta.lent)) {
    gpuos_stay_away(cta, away, turn);
    return;
  }
  if (away) st_relaxed_sys(&gpuos_record_of(cta)->phase, GPUOS_SM_IDLE);
  away = false;
}

// The leader leaves the SM to the other program: so does this CTA, once its last tile has ended.
GPUOS_DEVICE void gpuos_vacate_after(gpuos_cta &cta, gpuos_scheduler &s) {
  while (!gpuos_is_empty(cta, s.turn) && !ld_relaxed_shared(&cta.stop))
    gpuos_signal_stored(cta, s.signalled);
  gpuos_signal_stored(cta, s.signalled);
}

GPUOS_DEVICE bool gpuos_follow(gpuos_cta &cta, gpuos_scheduler &s, gpuos_next &next) {
  gpuos_message m = {};
  bool ok = true, away = false;
  if (gpuos_lane0())
    ok = gpuos_receive<GPUOS_TAKE_CHANNEL>(cta, s.channels, m, [&] {
      gpuos_signal_stored(cta, s.signalled);
      gpuos_idle_follower(cta, away, s.turn);
    });
  if (ok && m.part[0].z & GPUOS_VACATE_BIT) {
    gpuos_vacate_after(cta, s);
    ok = false;
  }
  const uint4 &a = m.part[0], &tile = m.part[1];
  next.mine = gpuos_agree(
      gpuos_taken{a.x, a.y, a.z >> GPUOS_MESSAGE_BITS, a.w, {tile.x, tile.y, tile.z, tile.w}});
  next.other = __shfl_sync(0xffffffffu, m.part[2].x, 0);
  next.alike = a.z & GPUOS_ALIKE_BIT, next.paired = a.z & GPUOS_PAIRED_BIT;
  return gpuos_agree(ok);
}

// ---- into a slot --------------------------------------------------------------------------------

// False: stop.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_fill(gpuos_cta &cta, gpuos_scheduler &s, const gpuos_next &next) {
  const uint32_t at = s.turn % GPUOS_SLOTS;
  gpuos_slot &slot = cta.slots[at];
  bool free = true;
  if (gpuos_lane0())
    free = gpuos_wait_scheduler(cta, s, &cta.slot_empty[at], (s.turn / GPUOS_SLOTS & 1) ^ 1);
  if (!gpuos_agree(free)) return false;
  if (!gpuos_know_op<PROGRAM>(cta, s.turn, next.mine.tile.op, next.mine.tile.op)) return false;
  const bool same_columns = gpuos_make_box(slot, next.mine.tile.index, next.other);
  if (!gpuos_lane0()) return true;
  slot.number = next.mine.number, slot.step = next.mine.step;
  slot.slice = next.mine.slice, slot.resume = next.mine.resume;
  slot.pair = next.alike && same_columns;
  slot.realign = slot.pair && !next.paired;
  slot.stop_slice = slot.park = GPUOS_NONE;
  slot.tile = next.mine.tile;
  s.paired = slot.pair;
  return true;
}

// The tile's waits are over: what others wrote for it is visible to workers and bulk copies.
GPUOS_DEVICE bool gpuos_publish(gpuos_cta &cta, gpuos_scheduler &s) {
  const uint32_t at = s.turn % GPUOS_SLOTS;
  gpuos_slot &slot = cta.slots[at];
  __syncwarp();
  if (!gpuos_wait_all(cta, slot, s.met, [&] { gpuos_signal_stored(cta, s.signalled); }))
    return false;
  if (gpuos_lane0()) {
    gpuos_wait_out_hold(cta);                // no tile begins in a pause
    if (slot.slice > 0) fence_acq_rel_gpu(); // the workers read what was put down through L1
    gpuos_report(cta, GPUOS_SM_RUNNING, slot.number);
    mbarrier_arrive(&cta.slot_full[at]);
  }
  s.turn++;
  return true;
}

// ---- the loop: a warp ---------------------------------------------------------------------------

template <class PROGRAM>
GPUOS_DEVICE bool gpuos_take(gpuos_cta &cta, gpuos_scheduler &s, gpuos_next &next) {
  return cta.rank == 0 ? gpuos_lead<PROGRAM>(cta, s, next) : gpuos_follow(cta, s, next);
}

template <class PROGRAM>
GPUOS_DEVICE bool gpuos_schedule_tile(gpuos_cta &cta, gpuos_scheduler &s, gpuos_next &next) {
  bool wanted = true;
  if (gpuos_lane0()) gpuos_signal_stored(cta, s.signalled); // once a tile: cta.done is short
  if (gpuos_lane0() && s.turn > 0)
    wanted = gpuos_wait_scheduler(cta, s, &cta.want, (s.turn - 1) & 1);
  if (!gpuos_agree(wanted)) return false;
  do {
    if (!gpuos_take<PROGRAM>(cta, s, next)) return false;
    if (next.mine.number == GPUOS_NONE) s.paired = false;
  } while (next.mine.number == GPUOS_NONE);
  return gpuos_fill<PROGRAM>(cta, s, next) && gpuos_publish(cta, s);
}

template <class PROGRAM> GPUOS_DEVICE void gpuos_schedule_cluster(gpuos_cta &cta) {
  gpuos_scheduler s = {};
  s.met = ~0ull;
  gpuos_next next = {};
  while (gpuos_schedule_tile<PROGRAM>(cta, s, next)) {
  }
}
