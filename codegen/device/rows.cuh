// rows.cuh: what the operators share that reduce whole rows: RMSNORM, SOFTMAX, ARGMAX.
//
// The CTA takes one row after another; a thread has every GPUOS_THREADS-th run of it.
#pragma once
#include "reduce.cuh"

// Calls visit(point) for each row of the tile's box, all threads together.
template <class VISIT> GPUOS_DEVICE void gpuos_each_row(const gpuos_ctx &ctx, VISIT visit) {
  const gpuos_box_t box = ctx.slot->box;
  for (uint32_t a = 0; a < box.n[0]; a++)
    for (uint32_t b = 0; b < box.n[1]; b++)
      for (uint32_t c = 0; c < box.n[2]; c++) {
        const uint32_t point[GPUOS_DIMS] = {box.lo[0] + a, box.lo[1] + b, box.lo[2] + c, 0};
        visit(point);
      }
}

// Calls visit(k, values) for each of this thread's runs of the row at `from`: RUN elements from k.
template <class X, int RUN, class VISIT>
GPUOS_DEVICE void gpuos_each_run(uint64_t from, uint32_t width, uint32_t stride, VISIT visit) {
#pragma unroll 8
  for (uint32_t k = gpuos_thread() * RUN; k < width; k += GPUOS_THREADS * RUN) {
    float values[RUN];
    gpuos_load<X::DTYPE, RUN>(from + (uint64_t)k * stride * X::BYTES, values);
    visit(k, values);
  }
}
