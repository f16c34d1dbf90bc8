// attention_combine.cuh: ATTENTION_COMBINE, one tile: merges the splits of ATTENTION, in order.
//
// U, the generated instantiation, has operands partial, out; HEAD_DIM, GROUP; OUT_STAMPED:
// whether its results travel stamped as well.
#pragma once
#include "stamp.cuh"

template <class U> struct gpuos_attention_combine {
  using partial = typename U::partial;
  using out = typename U::out;
  enum {
    HEAD_DIM = U::HEAD_DIM,
    WIDTH = U::GROUP * HEAD_DIM, // of a KV head's result
    PITCH = HEAD_DIM + 2,
    RUN = WIDTH > GPUOS_THREADS &&HEAD_DIM % 2 == 0 ? 2 : 1, // elements of a thread
    BATCH = 16,                                              // splits that are on their way at once
    SMEM_BYTES = 0,
  };

  // Of one query, what a thread has of so many splits.
  struct parts {
    float sum[BATCH][RUN], largest[BATCH], total[BATCH];
  };
  struct state {
    float sum[RUN], largest, total;
  };

  // ---- load -------------------------------------------------------------------------------------

  // Of the query whose part of the first split lies at `from`, elements from d on.
  GPUOS_DEVICE void load(uint64_t from, uint64_t split_bytes, uint32_t splits, uint32_t d,
                         parts &p) {
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      float ends[2] = {gpuos_minus_infinity(), 0.0f};
#pragma unroll
      for (int e = 0; e < RUN; e++) p.sum[b][e] = 0.0f;
      if (b < splits) gpuos_load<GPUOS_F32, RUN>(from + b * split_bytes + d * 4, p.sum[b]);
      if (b < splits) gpuos_load<GPUOS_F32, 2>(from + b * split_bytes + HEAD_DIM * 4, ends);
      p.largest[b] = ends[0], p.total[b] = ends[1];
    }
  }

  // ---- compute ----------------------------------------------------------------------------------

  // A split that saw no key has minus infinity.
  GPUOS_DEVICE void merge(const parts &p, state &s) {
    float now = s.largest;
#pragma unroll
    for (int b = 0; b < BATCH; b++) now = fmaxf(now, p.largest[b]);
    if (now == gpuos_minus_infinity()) return;
    const float old = expf(s.largest - now);
    s.largest = now, s.total *= old;
#pragma unroll
    for (int e = 0; e < RUN; e++) s.sum[e] *= old;
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      const float factor = expf(p.largest[b] - now);
      s.total = fmaf(p.total[b], factor, s.total);
#pragma unroll
      for (int e = 0; e < RUN; e++) s.sum[e] = fmaf(p.sum[b][e], factor, s.sum[e]);
    }
  }

  // ---- run --------------------------------------------------------------------------------------

  // Elements of one KV head's result, from `element` on, of the query row and head at `point`.
  GPUOS_DEVICE void run_elements(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                                 uint32_t element) {
    const uint64_t split_bytes = partial::stride(ctx, 2) * 4ull;
    const uint32_t splits = partial::extent(ctx, 2), query = element / HEAD_DIM;
    const uint64_t from = partial::at(ctx, point) + (uint64_t)query * PITCH * 4;
    const uint32_t stamp = gpuos_stamp(ctx.slot->step, ctx.slot->tile.op);
    state s = {{}, gpuos_minus_infinity(), 0.0f};
    parts p;
    for (uint32_t first = 0; first < splits; first += BATCH) {
      load(from + first * split_bytes, split_bytes, splits - first, element % HEAD_DIM, p);
      merge(p, s);
    }
    const uint64_t to = out::at(ctx, point), stride = out::stride(ctx, 3) * (uint64_t)out::BYTES;
#pragma unroll
    for (int e = 0; e < RUN; e++) {
      const float result[1] = {s.total == 0.0f ? 0.0f : s.sum[e] / s.total};
      if constexpr (U::OUT_STAMPED)
        gpuos_stamped<out::DTYPE>::store(*ctx.cta, to + (element + e) * stride, result[0], stamp);
      gpuos_store<out::DTYPE, 1>(to + (element + e) * stride, result);
    }
  }

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint32_t count = box.n[1] * box.n[2] * WIDTH;
    for (uint32_t i = gpuos_thread() * RUN; i < count; i += GPUOS_THREADS * RUN) {
      const uint32_t vector = i / WIDTH;
      const uint32_t point[GPUOS_DIMS] = {0, box.lo[1] + vector / box.n[2],
                                          box.lo[2] + vector % box.n[2], 0};
      run_elements(ctx, point, i % WIDTH);
    }
    return true;
  }
};
