// ahead.cuh: while the ring is full and nobody empties it, weights that come next are brought into the L2, so that
// memory does not rest: attention's way from tile to tile takes longer than the rings of few SMs last. Those of
// 132 hold enough that it costs more than it brings (stream.cuh; tests/bench/results/2026-11-30e-h200.md).
//
// What is asked for by prefetch instructions of any kind an H200 does not keep (tests/bench/touch.cu); what is loaded
// it does, and one word that is loaded brings 256 bytes. So a warp loads words and looks at none: 32 KiB a
// microsecond, about an SM's share of the memory.
//
// The loader says what is left of its tile, the scheduler, when an operator has no tickets any more, which
// tiles of the next one are likely to be this SM's.
#pragma once
#include "take.cuh"

// Bytes that are loaded at once.
enum { GPUOS_TOUCH_BYTES = 32 * 1024, GPUOS_TOUCH_STEP = 256 };

// By each of the two threads that say what is to be touched. False: its last piece is not done yet.
GPUOS_DEVICE bool gpuos_ask_touch(gpuos_cta &cta, gpuos_touch_t who, uint64_t from,
                                  uint32_t bytes) {
  gpuos_piece &piece = cta.touch[who];
  if (ld_relaxed_shared(&piece.bytes)) return false;
  piece.from = from;
  __threadfence_block();
  st_relaxed_shared(&piece.bytes, bytes);
  return true;
}

GPUOS_DEVICE void gpuos_touch(uint64_t from, uint32_t bytes) {
  enum { LOADS = GPUOS_TOUCH_BYTES / GPUOS_TOUCH_STEP / 32 };
  uint32_t seen = 0;
#pragma unroll
  for (int i = 0; i < LOADS; i++) {
    const uint32_t at = (i * 32 + gpuos_lane()) * GPUOS_TOUCH_STEP;
    if (at < bytes) seen |= ld_touch_u32(from + at);
  }
  keep_u32(seen); // until all of it is there
}

// All lanes.
GPUOS_DEVICE void gpuos_touch_piece(gpuos_cta &cta, gpuos_piece &piece) {
  const uint32_t all = 0xffffffffu, bytes = __shfl_sync(all, ld_relaxed_shared(&piece.bytes), 0);
  if (bytes == 0) return;
  __threadfence_block();
  const uint64_t from = piece.from;
  if (gpuos_lane0())
    st_relaxed_shared(&cta.touching, 1); // first, so that nobody says too early that all is held
  __threadfence_block();
  __syncwarp();
  for (uint32_t at = 0; at < bytes; at += GPUOS_TOUCH_BYTES) {
    if (__any_sync(all, !ld_relaxed_shared(&cta.stalled) || ld_relaxed_shared(&cta.hold))) break;
    gpuos_touch(from + at, bytes - at);
  }
  __syncwarp();
  if (gpuos_lane0()) st_relaxed_shared(&cta.touching, 0);
  if (gpuos_lane0()) st_relaxed_shared(&piece.bytes, 0);
}

GPUOS_DEVICE void gpuos_run_ahead(gpuos_cta &cta) {
  while (!__all_sync(0xffffffffu, ld_relaxed_shared(&cta.gone) != 0)) {
    for (int who = 0; who < GPUOS_TOUCHES; who++) gpuos_touch_piece(cta, cta.touch[who]);
    if (!ld_relaxed_shared(&cta.stalled)) __nanosleep(200);
  }
}
