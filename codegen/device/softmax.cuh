// softmax.cuh: SOFTMAX, one tile, row by row.
//
// U, the generated instantiation, has operands x, out; RUN, elements that move at once.
#pragma once
#include "rows.cuh"

template <class U> struct gpuos_softmax {
  using x = typename U::x;
  using out = typename U::out;
  enum { RUN = U::RUN, SMEM_BYTES = GPUOS_REDUCE_BYTES };

  // ---- load -------------------------------------------------------------------------------------

  struct row {
    uint64_t from, to;
    uint32_t width, stride;
    float largest, total;
  };

  GPUOS_DEVICE row load(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS]) {
    row r = {x::at(ctx, point), out::at(ctx, point), x::extent(ctx, 3), x::stride(ctx, 3)};
    float largest = gpuos_minus_infinity(), total = 0.0f;
    gpuos_each_run<x, RUN>(r.from, r.width, r.stride, [&](uint32_t, float(&v)[RUN]) {
#pragma unroll
      for (int i = 0; i < RUN; i++) largest = fmaxf(largest, v[i]);
    });
    r.largest = gpuos_reduce_max(largest, ctx.smem);
    gpuos_each_run<x, RUN>(r.from, r.width, r.stride, [&](uint32_t, float(&v)[RUN]) {
#pragma unroll
      for (int i = 0; i < RUN; i++) total += expf(v[i] - r.largest);
    });
    r.total = gpuos_reduce_sum(total, ctx.smem);
    return r;
  }

  // ---- store ------------------------------------------------------------------------------------

  GPUOS_DEVICE void store(const gpuos_ctx &ctx, const row &r) {
    const uint32_t out_stride = out::stride(ctx, 3);
    gpuos_each_run<x, RUN>(r.from, r.width, r.stride, [&](uint32_t k, float(&v)[RUN]) {
#pragma unroll
      for (int i = 0; i < RUN; i++) v[i] = expf(v[i] - r.largest) / r.total;
      gpuos_store<out::DTYPE, RUN>(r.to + (uint64_t)k * out_stride * out::BYTES, v);
    });
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    gpuos_each_row(ctx, [&](const uint32_t(&point)[GPUOS_DIMS]) { store(ctx, load(ctx, point)); });
    return true;
  }
};
