// stream.cuh: the ring that weights stream through, for units that read them once, and the worker's way
// from tile to tile where the scheduler and the loader run ahead of what tiles wait for.
//
// A step's weights are known before its activations are: the loader goes on with the next tile's, so
// that memory does not rest while a result travels from SM to SM. The ring hides as much time as it
// holds bytes: 176 KiB at an SM's share of 35 GB/s would be
// 5 us.
//
// Dynamic shared memory: what a unit may use (also the X of the tiles that stream), then the workers'
// partial sums for each slot, then the stages.
#pragma once
#include "ring.cuh"

enum { GPUOS_STREAM_BYTES = 16 * 1024 }; // of a stage

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
GPUOS_DEVICE bool gpuos_await_inputs(const gpuos_ctx &ctx) {
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
  if (over && gpuos_lane0()) flow.met = mark;
  __syncwarp();
  return over;
}

// The same, and the tile is begun.
GPUOS_DEVICE bool gpuos_begin_tile(const gpuos_ctx &ctx) {
  if (!gpuos_await_inputs(ctx)) return false;
  if (gpuos_thread() == 0) gpuos_report(*ctx.cta, GPUOS_SM_RUNNING, ctx.slot->number);
  if (gpuos_thread() == 0) gpuos_begin_unit(*ctx.cta);
  return true;
}

// The stage is full; false: stop.
GPUOS_DEVICE bool gpuos_await_stream(gpuos_cta &cta, const gpuos_stream_at &at) {
  const uint32_t all = 0xffffffffu;
  while (!__all_sync(all, mbarrier_try_wait_parity(&cta.stream_full[at.stage], at.parity)))
    if (__all_sync(all, ld_relaxed_shared(&cta.gone) != 0)) return false;
  return true;
}

// This warp has read it.
GPUOS_DEVICE void gpuos_leave_stream(gpuos_cta &cta, gpuos_stream_at &at) {
  __syncwarp();
  if (gpuos_lane0()) mbarrier_arrive(&cta.stream_empty[at.stage]);
  at.next(cta.layout.stage_count);
}

// The tile's results are written: one thread. A fence of the GPU's memory takes about as long as a tile's
// weights, so tiles of an operator that follow each other are signalled together, by the last one that is on its way here.
// Whoever waits for one of them waits for all of the operator's tiles anyway.
GPUOS_DEVICE void gpuos_signal_stream(const gpuos_ctx &ctx) {
  gpuos_series &series = ctx.cta->series[ctx.slot->series];
  __threadfence_block();
  atomicAdd(&series.done, 1);
  if (atomicAdd(&series.open, 0xffffffffu) != 1) return;
  const uint32_t tiles = atomicExch(&series.done, 0);
  __threadfence_block();
  if (tiles) gpuos_signal(*ctx.cta, {ctx.slot->tile.signal, ctx.slot->step}, tiles);
}

// This warp has written its partial sums of the tile. True for the last one, which sees all of them.
GPUOS_DEVICE bool gpuos_finish_stream(const gpuos_ctx &ctx) {
  uint32_t before = 0;
  __syncwarp();
  if (gpuos_lane0()) {
    __threadfence_block();
    before = atomicAdd(&ctx.cta->finished[ctx.slot - ctx.cta->slots], 1);
    __threadfence_block();
  }
  const bool last = __shfl_sync(0xffffffffu, before, 0) == GPUOS_WARPS - 1;
  __syncwarp(); // a shuffle orders no memory
  return last;
}
