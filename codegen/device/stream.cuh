// stream.cuh: the ring that weights stream through, for units that read them once, and the workers' and
// the store warp's way from tile to tile where the scheduler and the loader run ahead of what tiles
// wait for.
//
// A step's weights are known before its activations are: the loader goes on with the next tile's, so
// that memory does not rest while a result travels from SM to SM. The ring hides as much time as it
// holds bytes: 160 KiB at an SM's share of 35 GB/s are 4.7 us.
//
// The workers' part ends with their partial sums in shared memory: what is slow, adding them, results,
// fences and signals, is the store warp's, while the workers multiply the next tile.
//
// Dynamic shared memory: what a unit may use (also the X of the tiles that stream), then the workers'
// partial sums for each slot, then the stages.
#pragma once
#include "ring.cuh"

// Of a stage: what a warp does once a stage is half of its time even so; and copies of 8 KiB hold the memory's
// ceiling on 72 SMs, those of 32 KiB on 40 (tests/bench/ring.cu, on an H200).
enum { GPUOS_STREAM_BYTES = 32 * 1024 };

constexpr gpuos_stream_layout gpuos_lay_out(uint32_t unit_bytes, uint32_t sum_bytes) {
  const uint32_t sums = (unit_bytes + 127) / 128 * 128;
  const uint32_t stages = (sums + GPUOS_SLOTS * sum_bytes + 127) / 128 * 128;
  const uint32_t most = GPUOS_SMEM_LIMIT - GPUOS_STATIC_SMEM;
  const uint32_t room = stages < most ? (most - stages) / GPUOS_STREAM_BYTES : 0;
  const uint32_t count =
      room < GPUOS_MOST_STREAM_STAGES ? room : (uint32_t)GPUOS_MOST_STREAM_STAGES;
  return {sums, sum_bytes, stages, count};
}
constexpr uint32_t gpuos_stream_smem(uint32_t unit_bytes, uint32_t sum_bytes) {
  const gpuos_stream_layout layout = gpuos_lay_out(unit_bytes, sum_bytes);
  return layout.stages + layout.stage_count * GPUOS_STREAM_BYTES;
}

// ---- the loader: one thread ---------------------------------------------------------------------

// The next stage is empty, its mbarrier told what is to come. False: stop.
GPUOS_DEVICE bool gpuos_enter_stream(gpuos_loader &loader, uint32_t bytes, uint32_t &out_full,
                                     uint32_t &out_to) {
  gpuos_cta &cta = *loader.cta;
  const uint32_t stage = loader.stream.stage;
  if (!gpuos_wait_loader(cta, &cta.stream_empty[stage], loader.stream.parity ^ 1)) return false;
  gpuos_hold_loader(cta); // as late as can be: nothing is issued after the look
  if (ld_relaxed_shared(&cta.stop)) return false;
  out_full = shared_address(&cta.stream_full[stage]);
  out_to = shared_address(loader.smem) + cta.layout.stages + stage * GPUOS_STREAM_BYTES;
  mbarrier_arrive_expect_tx(out_full, bytes);
  loader.stream.next(cta.layout.stage_count);
  return true;
}

// ---- the workers --------------------------------------------------------------------------------

GPUOS_DEVICE uint32_t gpuos_warp() { return gpuos_thread() / 32; }

// What the tile reads is there. All warps come here with the same tiles in the same order, so they
// agree on when to wait. False: stop.
__device__ __noinline__ bool gpuos_await_inputs(gpuos_ctx ctx) {
  gpuos_cta &cta = *ctx.cta;
  gpuos_flow &flow = cta.flow[gpuos_warp()];
  const uint64_t mark = gpuos_wait_mark(*ctx.slot);
  if (flow.met == mark) return true;
  bool over = true;
  if (gpuos_warp() == 0) {
    uint64_t met = flow.met;
    over = gpuos_wait_all(cta, *ctx.slot, met, [] {});
  }
  over = !gpuos_barrier_or(!over);
  if (over && gpuos_lane0()) *(volatile uint64_t *)&flow.met = mark;
  __syncwarp();
  return over;
}

// A tile whose unit loads by itself: not in a pause. False: give it up.
GPUOS_DEVICE bool gpuos_enter_plain(const gpuos_ctx &ctx) {
  if (!gpuos_yield(ctx)) return false;
  if (gpuos_thread() == 0) st_relaxed_shared(&ctx.cta->worker_loads, 1);
  return true;
}

// What it reads is there, and X's place in shared memory is its own. In a cluster the scheduler has seen
// to that. False: give it up.
GPUOS_DEVICE bool gpuos_enter(const gpuos_ctx &ctx) {
  if constexpr (GPUOS_CTAS == 1) {
    if (!gpuos_await_inputs(ctx)) return false;
    if (gpuos_thread() == 0) gpuos_report(*ctx.cta, GPUOS_SM_RUNNING, ctx.slot->number);
    if (gpuos_thread() == 0) gpuos_begin_unit(*ctx.cta);
    if (!gpuos_enter_plain(ctx)) return false;
    if (gpuos_lane0()) ctx.cta->flow[gpuos_warp()].op = GPUOS_NONE;
  }
  return true;
}

// Where a warp is in the ring, by shared addresses: they stay in registers over all of its stages.
struct gpuos_reader {
  uint32_t full, empty, stages, count;
  gpuos_stream_at at;
};
GPUOS_DEVICE gpuos_reader gpuos_read_stream(const gpuos_ctx &ctx) {
  gpuos_cta &cta = *ctx.cta;
  return {mov_shared_address(cta.stream_full), mov_shared_address(cta.stream_empty),
          mov_shared_address(ctx.smem) + cta.layout.stages, cta.layout.stage_count,
          cta.flow[gpuos_warp()].stream};
}

// The stage is full, at `out`; false: stop.
GPUOS_DEVICE bool gpuos_await_stream(gpuos_cta &cta, const gpuos_reader &r, uint32_t &out) {
  const uint32_t all = 0xffffffffu, full = r.full + r.at.stage * (uint32_t)sizeof(uint64_t);
  out = r.stages + r.at.stage * GPUOS_STREAM_BYTES;
  while (!__all_sync(all, mbarrier_try_wait_parity(full, r.at.parity)))
    if (__all_sync(all, ld_relaxed_shared(&cta.gone) != 0)) return false;
  return true;
}

// This warp has read it.
GPUOS_DEVICE void gpuos_leave_stream(gpuos_reader &r) {
  __syncwarp();
  if (gpuos_lane0()) mbarrier_arrive(r.empty + r.at.stage * (uint32_t)sizeof(uint64_t));
  r.at.next(r.count);
}

// ---- partial sums: from the workers to the store warp -------------------------------------------

GPUOS_DEVICE uint32_t gpuos_slot_number(const gpuos_ctx &ctx) {
  return (uint32_t)(ctx.slot - ctx.cta->slots);
}
GPUOS_DEVICE float *gpuos_sums(const gpuos_ctx &ctx) {
  const gpuos_stream_layout &layout = ctx.cta->layout;
  return (float *)(ctx.smem + layout.sums + gpuos_slot_number(ctx) * layout.sum_bytes);
}

// This warp has written its sums of the tile, and needs nothing of its slot any more.
GPUOS_DEVICE void gpuos_hand_sums(const gpuos_ctx &ctx) {
  gpuos_cta &cta = *ctx.cta;
  const uint32_t at = gpuos_slot_number(ctx);
  __syncwarp();
  if (gpuos_lane0()) mbarrier_arrive(&cta.sums_full[at]);
}

// The tile after it is of the same operator and waits for the same: the way from tile to tile without
// leaving the unit's code. Where `turn` is afterwards, and true: `ctx` is that tile's.
GPUOS_DEVICE bool gpuos_next_alike(gpuos_ctx &ctx, uint32_t &turn) {
  gpuos_cta &cta = *ctx.cta;
  const gpuos_slot &before = *ctx.slot;
  const uint32_t op = before.tile.op, from = turn % GPUOS_SLOTS;
  const uint64_t mark = gpuos_wait_mark(before);
  __syncwarp(); // all lanes have read it
  if (gpuos_lane0()) mbarrier_arrive(&cta.slot_empty[from]);
  turn++;
  const uint32_t at = turn % GPUOS_SLOTS;
  if (!gpuos_wait_worker(cta, &cta.slot_full[at], turn / GPUOS_SLOTS & 1)) return false;
  ctx.slot = &cta.slots[at];
  return ctx.slot->tile.op == op && gpuos_wait_mark(*ctx.slot) == mark;
}

GPUOS_DEVICE void gpuos_keep_place(const gpuos_ctx &ctx, const gpuos_reader &r) {
  if (gpuos_lane0()) ctx.cta->flow[gpuos_warp()].stream = r.at;
  __syncwarp();
}

// Everything is being given up: the turn after this one.
GPUOS_DEVICE uint32_t gpuos_give_up_stream(const gpuos_ctx &ctx, uint32_t turn) {
  __syncwarp();
  if (gpuos_lane0()) mbarrier_arrive(&ctx.cta->slot_empty[turn % GPUOS_SLOTS]);
  return turn + 1;
}

// ---- the store warp -----------------------------------------------------------------------------

// How far it is: mbarriers are waited for at the parity of the slot's use.
struct gpuos_storer {
  uint32_t turn;     // slots seen
  uint32_t unsaid;   // lane 0: tiles stored whose counter has not been told
  uint32_t sum_uses; // bit s: parity of the next sums in slot s
  bool follows;      // lane 0: the tile before was one of those
};

// What the tile reads is there, so its other inputs can be loaded; `waited`: it was not when asked first.
// False: stop.
GPUOS_DEVICE bool gpuos_await_begun(const gpuos_ctx &ctx, uint32_t parity, bool &waited) {
  gpuos_cta &cta = *ctx.cta;
  const uint64_t mark = gpuos_wait_mark(*ctx.slot);
  const volatile uint64_t *met = &cta.flow[0].met;
  uint64_t *sums = &cta.sums_full[gpuos_slot_number(ctx)];
  waited = false;
  while (!__any_sync(0xffffffffu, *met == mark || mbarrier_test_wait_parity(sums, parity))) {
    if (__all_sync(0xffffffffu, ld_relaxed_shared(&cta.gone) != 0)) return false;
    waited = true;
    __nanosleep(100);
  }
  __threadfence_block();
  return true;
}

// False: stop.
GPUOS_DEVICE bool gpuos_await_sums(const gpuos_ctx &ctx, uint32_t parity) {
  gpuos_cta &cta = *ctx.cta;
  if (!gpuos_wait_worker(cta, &cta.sums_full[gpuos_slot_number(ctx)], parity)) return false;
  if (gpuos_lane0() && cta.args.stats) cta.sums_over = gpuos_now(cta);
  return true;
}

// Tells the watchdog which tile runs, unless the workers are through with it: they may have something else
// to tell by now.
GPUOS_DEVICE void gpuos_say_running(const gpuos_ctx &ctx, uint32_t parity) {
  gpuos_cta &cta = *ctx.cta;
  if (gpuos_lane0() && !mbarrier_test_wait_parity(&cta.sums_full[gpuos_slot_number(ctx)], parity))
    gpuos_report(cta, GPUOS_SM_RUNNING, ctx.slot->number);
}

// A tile whose weights stream runs from the end of the one before it, or from when its inputs are there,
// until its sums are.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_store_stream(const gpuos_ctx &ctx, gpuos_storer &s) {
  gpuos_cta &cta = *ctx.cta;
  const uint32_t at = gpuos_slot_number(ctx), parity = s.sum_uses >> at & 1;
  bool waited;
  if (!gpuos_await_begun(ctx, parity, waited)) return false;
  gpuos_say_running(ctx, parity);
  gpuos_moment start = {0, 0};
  if (gpuos_lane0() && cta.args.stats)
    start = s.follows && !waited ? cta.sums_over : gpuos_now(cta);
  if (!PROGRAM::store(ctx, parity, ctx.slot->unit)) return false;
  s.sum_uses ^= 1u << at;
  s.follows = true;
  if (!gpuos_lane0()) return true;
  const uint32_t number = gpuos_count_unit(cta, 0);
  if (cta.args.stats) gpuos_record_unit(cta, *ctx.slot, 0, number, start, cta.sums_over);
  s.unsaid++;
  return true;
}

// The next tile has the same counter and is on its way here: whoever waits for one of them waits for
// both, and a fence of the GPU's memory takes as long as a tile.
GPUOS_DEVICE bool gpuos_another_follows(gpuos_cta &cta, const gpuos_slot &slot, uint32_t turn) {
  const uint32_t next = (turn + 1) % GPUOS_SLOTS;
  const gpuos_slot &after = cta.slots[next];
  if (!mbarrier_test_wait_parity(&cta.slot_full[next], (turn + 1) / GPUOS_SLOTS & 1)) return false;
  return after.tile.op == slot.tile.op && after.tile.signal == slot.tile.signal &&
         after.step == slot.step;
}

// One tile's results, all lanes. False: stop. The slot is free before others are told: a fence and the way to
// the L2 and back take longer than a tile, and with the next tiles here they are for several at once.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_store_tile(gpuos_cta &cta, char *smem, gpuos_storer &s) {
  const uint32_t at = s.turn % GPUOS_SLOTS;
  const gpuos_ctx ctx = {&cta, &cta.slots[at], smem};
  const gpuos_done done = {ctx.slot->tile.signal, ctx.slot->step};
  if (!PROGRAM::bulk(ctx.slot->unit))
    s.follows = false;
  else if (!gpuos_store_stream<PROGRAM>(ctx, s))
    return false;
  __syncwarp();
  if (gpuos_lane0()) {
    const bool wait = s.unsaid == 0 || gpuos_another_follows(cta, *ctx.slot, s.turn);
    mbarrier_arrive(&cta.slot_empty[at]);
    if (!wait) gpuos_signal(cta, done, s.unsaid);
    if (!wait) s.unsaid = 0;
  }
  __syncwarp();
  s.turn++;
  return true;
}

template <class PROGRAM> GPUOS_DEVICE void gpuos_store_loop(gpuos_cta &cta, char *smem) {
  gpuos_storer s = {};
  while (gpuos_wait_worker(cta, &cta.slot_full[s.turn % GPUOS_SLOTS], s.turn / GPUOS_SLOTS & 1) &&
         gpuos_store_tile<PROGRAM>(cta, smem, s)) {
  }
}
