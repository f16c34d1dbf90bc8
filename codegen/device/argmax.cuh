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

  // ---- load -------------------------------------------------------------------------------------

  GPUOS_DEVICE gpuos_candidate load(const gpuos_ctx &ctx, uint64_t from) {
    gpuos_candidate best = {0.0f, GPUOS_NONE};
    gpuos_each_run<x, RUN>(
        from, x::extent(ctx, 3), x::stride(ctx, 3), [&](uint32_t k, float(&v)[RUN]) {
#pragma unroll
          for (int i = 0; i < RUN; i++) // NaN is equal to nothing and never chosen
            if (v[i] == v[i] && (best.index == GPUOS_NONE || v[i] > best.value))
              best = {v[i], k + i};
        });
    return gpuos_reduce(best, ctx.smem, gpuos_larger);
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    gpuos_each_row(ctx, [&](const uint32_t(&point)[GPUOS_DIMS]) {
      const gpuos_candidate best = load(ctx, x::at(ctx, point));
      if (gpuos_thread() == 0)
        *(uint32_t *)out::at(ctx, point) = best.index == GPUOS_NONE ? 0 : best.index;
    });
    return true;
  }
};
