// argmax.cuh: ARGMAX, one tile: the index of each row's largest element, the lowest of equals, NaN never.
//
// First the largest value, with what is least to do for each element, then who has it looks for the element: one SM has
// a row, and its code has not been run for a step.
//
// U, the generated instantiation, has operands x, out; RUN, elements that are loaded at once.
#pragma once
#include "rows.cuh"

struct gpuos_lowest {
  uint32_t index; // GPUOS_NONE: none
  __device__ __forceinline__ gpuos_lowest from_lane(int mask) const {
    return {__shfl_xor_sync(0xffffffffu, index, mask)};
  }
};

template <class U> struct gpuos_argmax {
  using x = typename U::x;
  using out = typename U::out;
  enum { RUN = U::RUN, SMEM_BYTES = GPUOS_REDUCE_BYTES };
  enum { BATCH = 8, STRIDE = GPUOS_THREADS * RUN }; // runs that are on their way at once

  struct row {
    uint64_t from, bytes; // of an element
    uint32_t width;
  };

  GPUOS_DEVICE float nothing() { return __uint_as_float(0x7fffffffu); } // smaller than all but NaN

  // The largest of runs k, k + STRIDE and so on of the row, or NaN.
  GPUOS_DEVICE float find_largest(const row &r, uint32_t k) {
    gpuos_words<x::DTYPE, RUN> run[BATCH];
    float largest = nothing();
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      if (k + i * STRIDE < r.width) run[i].load(r.from + (k + i * STRIDE) * r.bytes);
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      if (k + i * STRIDE >= r.width) continue;
      float v[RUN];
      run[i].widen(v);
#pragma unroll
      for (int e = 0; e < RUN; e++) largest = fmaxf(largest, v[e]);
    }
    return largest;
  }

  // The first element of those runs that is `value`.
  GPUOS_DEVICE uint32_t find_value(const row &r, uint32_t k, float value) {
    uint32_t index = GPUOS_NONE;
#pragma unroll 1
    for (int i = 0; i < BATCH && index == GPUOS_NONE; i++, k += STRIDE) {
      float v[RUN];
      if (k >= r.width) break;
      gpuos_load<x::DTYPE, RUN>(r.from + k * r.bytes, v);
#pragma unroll
      for (int e = 0; e < RUN; e++)
        if (v[e] == value && index == GPUOS_NONE) index = k + e;
    }
    return index;
  }

  GPUOS_DEVICE uint32_t find(const gpuos_ctx &ctx, const row &r) {
    float largest = nothing();
    uint32_t at = 0; // the first of its runs
#pragma unroll 1
    for (uint32_t k = gpuos_thread() * RUN; k < r.width; k += BATCH * STRIDE) {
      const float value = find_largest(r, k);
      const bool first = largest != largest && value == value;
      if (value > largest || first) largest = value, at = k;
    }
    const float value = gpuos_reduce_max(largest, ctx.smem);
    const gpuos_lowest mine = {largest == value ? find_value(r, at, value) : GPUOS_NONE};
    return gpuos_reduce(mine, ctx.smem,
                        [](gpuos_lowest a, gpuos_lowest b) { return a.index < b.index ? a : b; })
        .index;
  }

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    gpuos_each_row(ctx, [&](const uint32_t(&point)[GPUOS_DIMS]) {
      const row r = {x::at(ctx, point), (uint64_t)x::stride(ctx, 3) * x::BYTES, x::extent(ctx, 3)};
      const uint32_t index = find(ctx, r);
      if (gpuos_thread() == 0) *(uint32_t *)out::at(ctx, point) = index == GPUOS_NONE ? 0 : index;
    });
    return true;
  }
};
