// attention_combine.cuh: ATTENTION_COMBINE, one tile: merges the splits of ATTENTION, in order.
//
// U, the generated instantiation, has operands partial, out; HEAD_DIM, GROUP.
#pragma once
#include "unit.cuh"

template <class U> struct gpuos_attention_combine {
  using partial = typename U::partial;
  using out = typename U::out;
  enum { HEAD_DIM = U::HEAD_DIM, PITCH = HEAD_DIM + 2, SMEM_BYTES = 0 };

  GPUOS_DEVICE float load(uint64_t at) { return gpuos_widen<GPUOS_F32>(ld_global_u32((void *)at)); }

  // ---- compute ----------------------------------------------------------------------------------

  // Element d of the query whose part of split 0 lies at `from`.
  GPUOS_DEVICE float compute(const gpuos_ctx &ctx, uint64_t from, uint32_t d) {
    const uint64_t step = partial::stride(ctx, 3) * 4ull, split = partial::stride(ctx, 2) * 4ull;
    const uint32_t splits = partial::extent(ctx, 2);
    float sum = 0.0f, total = 0.0f, largest = gpuos_minus_infinity();
#pragma unroll 4
    for (uint32_t s = 0; s < splits; s++, from += split) {
      const float part = load(from + d * step), part_largest = load(from + HEAD_DIM * step);
      const float part_total = load(from + (HEAD_DIM + 1) * step);
      const float now = fmaxf(largest, part_largest);
      const bool none = part_largest == gpuos_minus_infinity(); // the split saw no key
      const float old_factor = now == largest ? 1.0f : expf(largest - now);
      const float factor = none ? 0.0f : expf(part_largest - now);
      sum = sum * old_factor + part * factor;
      total = total * old_factor + part_total * factor;
      largest = now;
    }
    return total == 0.0f ? 0.0f : sum / total;
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const gpuos_box_t &box = ctx.slot->box;
    constexpr uint32_t WIDTH = U::GROUP * HEAD_DIM;
    for (uint32_t i = gpuos_thread(); i < box.n[1] * box.n[2] * WIDTH; i += GPUOS_THREADS) {
      const uint32_t vector = i / WIDTH, element = i % WIDTH;
      const uint32_t point[GPUOS_DIMS] = {0, box.lo[1] + vector / box.n[2],
                                          box.lo[2] + vector % box.n[2], 0};
      const uint64_t query = (uint64_t)(element / HEAD_DIM) * PITCH * partial::stride(ctx, 3) * 4;
      const float result[1] = {compute(ctx, partial::at(ctx, point) + query, element % HEAD_DIM)};
      gpuos_store<out::DTYPE, 1>(
          out::at(ctx, point) + (uint64_t)element * out::stride(ctx, 3) * out::BYTES, result);
    }
    return true;
  }
};
