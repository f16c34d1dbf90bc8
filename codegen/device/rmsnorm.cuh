// rmsnorm.cuh: RMSNORM, one tile: OUT = round(X / rms(X)) * NORM, row by row.
//
// U, the generated instantiation, has operands x, norm, out; RUN, elements that move at once.
#pragma once
#include "rows.cuh"

template <class U> struct gpuos_rmsnorm {
  using x = typename U::x;
  using norm = typename U::norm;
  using out = typename U::out;
  enum { RUN = U::RUN, SMEM_BYTES = GPUOS_REDUCE_BYTES };

  // ---- load -------------------------------------------------------------------------------------

  // 1 / root mean square of the row at `from`.
  GPUOS_DEVICE float load(const gpuos_ctx &ctx, uint64_t from) {
    const uint32_t width = x::extent(ctx, 3);
    float sum = 0.0f;
    gpuos_each_run<x, RUN>(from, width, x::stride(ctx, 3), [&](uint32_t, float(&v)[RUN]) {
#pragma unroll
      for (int i = 0; i < RUN; i++) sum = fmaf(v[i], v[i], sum);
    });
    sum = gpuos_reduce_sum(sum, ctx.smem);
    return 1.0f / sqrtf(sum / (float)width + __uint_as_float(ctx.slot->of->op.params[0]));
  }

  // ---- store ------------------------------------------------------------------------------------

  GPUOS_DEVICE void store(const gpuos_ctx &ctx, uint64_t from, uint64_t to, float scale) {
    const uint32_t norm_stride = norm::stride(ctx, 3), out_stride = out::stride(ctx, 3);
    auto run = [&](uint32_t k, float(&v)[RUN]) {
      float weights[RUN];
      gpuos_load<norm::DTYPE, RUN>(norm::base(ctx) + (uint64_t)k * norm_stride * norm::BYTES,
                                   weights);
#pragma unroll
      for (int i = 0; i < RUN; i++) v[i] = gpuos_round<x::DTYPE>(v[i] * scale) * weights[i];
      gpuos_store<out::DTYPE, RUN>(to + (uint64_t)k * out_stride * out::BYTES, v);
    };
    gpuos_each_run<x, RUN>(from, x::extent(ctx, 3), x::stride(ctx, 3), run);
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    gpuos_each_row(ctx, [&](const uint32_t(&point)[GPUOS_DIMS]) {
      const uint64_t from = x::at(ctx, point);
      store(ctx, from, out::at(ctx, point), load(ctx, from));
    });
    return true;
  }
};
