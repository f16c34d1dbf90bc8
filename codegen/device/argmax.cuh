// argmax.cuh: ARGMAX, one tile: the index of each row's largest element, the lowest of equals.
//
// U, the generated instantiation, has operands x, out; RUN, elements that are loaded at once.
#pragma once
#include "rows.cuh"

// An element and its index; GPUOS_NONE: none yet.
struct gpuos_candidate {
  float value;
  uint32_t index;
  __device__ __forceinline__ gpuos_candidate from_lane(int mask) const {
    return {__shfl_xor_sync(0xffffffffu, value, mask), __shfl_xor_sync(0xffffffffu, index, mask)};
  }
};

GPUOS_DEVICE gpuos_candidate gpuos_larger(gpuos_candidate a, gpuos_candidate b) {
  if (a.index == GPUOS_NONE) return b;
  if (b.index == GPUOS_NONE) return a;
  const bool second = b.value > a.value || (b.value == a.value && b.index < a.index);
  return second ? b : a;
}

template <class U> struct gpuos_argmax {
  using x = typename U::x;
  using out = typename U::out;
  enum { RUN = U::RUN, SMEM_BYTES = GPUOS_REDUCE_BYTES };

  enum { BATCH = 8 }; // runs that are on their way at once

  // ---- load -------------------------------------------------------------------------------------

  // Runs k, k + GPUOS_THREADS * RUN and so on of a row of `width` elements.
  struct batch {
    gpuos_words<x::DTYPE, RUN> run[BATCH];
  };
  GPUOS_DEVICE void load(uint64_t from, uint32_t k, uint32_t width, uint64_t bytes, batch &b) {
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const uint32_t at = k + i * GPUOS_THREADS * RUN;
      if (at < width) b.run[i].load(from + at * bytes);
    }
  }

  // ---- compute ----------------------------------------------------------------------------------

  // Each place in a run has a candidate of its own, so that they do not wait for each other. NaN is larger
  // than nothing.
  GPUOS_DEVICE void compare(const batch &b, uint32_t k, uint32_t width,
                            gpuos_candidate (&best)[RUN]) {
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const uint32_t at = k + i * GPUOS_THREADS * RUN;
      float v[RUN];
      b.run[i].widen(v);
#pragma unroll
      for (int e = 0; e < RUN; e++) {
        const bool first = best[e].index == GPUOS_NONE && v[e] == v[e];
        if (at < width && (v[e] > best[e].value || first)) best[e] = {v[e], at + e};
      }
    }
  }

  GPUOS_DEVICE gpuos_candidate find(const gpuos_ctx &ctx, uint64_t from) {
    const uint32_t width = x::extent(ctx, 3), step = BATCH * GPUOS_THREADS * RUN;
    const uint64_t bytes = (uint64_t)x::stride(ctx, 3) * x::BYTES;
    gpuos_candidate best[RUN], largest = {0.0f, GPUOS_NONE};
#pragma unroll
    for (int e = 0; e < RUN; e++) best[e] = {gpuos_minus_infinity(), GPUOS_NONE};
    for (uint32_t k = gpuos_thread() * RUN; k < width; k += step) {
      batch b;
      load(from, k, width, bytes, b);
      compare(b, k, width, best);
    }
#pragma unroll
    for (int e = 0; e < RUN; e++) largest = gpuos_larger(largest, best[e]);
    return gpuos_reduce(largest, ctx.smem, gpuos_larger);
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    gpuos_each_row(ctx, [&](const uint32_t(&point)[GPUOS_DIMS]) {
      const gpuos_candidate best = find(ctx, x::at(ctx, point));
      if (gpuos_thread() == 0)
        *(uint32_t *)out::at(ctx, point) = best.index == GPUOS_NONE ? 0 : best.index;
    });
    return true;
  }
};
