// kv_append.cuh: KV_APPEND, one tile: K and V of every row into the paged cache.
//
// U, the generated instantiation, has operands k, v, cache, pages, pos, seq, rotation; PAGE_SIZE,
// HEAD_DIM; RUN, elements that move at once; NEIGHBOURS, of the rotation.
#pragma once
#include "cache.cuh"
#include "rotate.cuh"

template <class U> struct gpuos_kv_append {
  using k = typename U::k;
  using v = typename U::v;
  using cache = typename U::cache;
  using rotation = typename U::rotation;
  using slots = gpuos_cache<U>;
  enum { RUN = U::RUN, RUNS = U::HEAD_DIM / RUN, SMEM_BYTES = 0 };

  // ---- store ------------------------------------------------------------------------------------

  template <class FROM, bool ROTATES>
  GPUOS_DEVICE void store(const gpuos_ctx &ctx, uint32_t row, uint32_t head, uint32_t d,
                          uint64_t to) {
    const uint64_t element =
        (uint64_t)row * FROM::stride(ctx, 1) + (uint64_t)head * FROM::stride(ctx, 2);
    const uint64_t from = FROM::base(ctx) + element * FROM::BYTES, stride = FROM::stride(ctx, 3);
    float values[RUN];
    if constexpr (ROTATES) {
      const uint64_t table = rotation::base(ctx) + (uint64_t)row * rotation::stride(ctx, 2) * 4;
      using rotate = gpuos_rotate<U>;
      rotate::template load<FROM>(from, stride, rotate::load_angles(table, d), d, values);
#pragma unroll
      for (int i = 0; i < RUN; i++) values[i] = gpuos_round<FROM::DTYPE>(values[i]);
    } else {
      gpuos_load<FROM::DTYPE, RUN>(from + d * stride * FROM::BYTES, values);
    }
    gpuos_store<cache::DTYPE, RUN>(to + (uint64_t)d * cache::stride(ctx, 3) * cache::BYTES, values);
  }

  // One run of one row's key and value. False: an index is outside.
  GPUOS_DEVICE bool append(const gpuos_ctx &ctx, uint32_t row, uint32_t head, uint32_t d) {
    typename slots::slot slot;
    uint64_t key = 0;
    if (!slots::find_slot(ctx, row, slot)) return false;
    if (slot.position < 0) return true;
    if (!slots::find_key(ctx, slot.sequence, slot.position, head, key)) return false;
    store<k, rotation::PRESENT>(ctx, row, head, d, key);
    store<v, false>(ctx, row, head, d, key + slots::value_offset(ctx));
    return true;
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const uint32_t rows = k::extent(ctx, 1), lo = ctx.slot->box.lo[2], heads = ctx.slot->box.n[2];
    bool inside = true;
    for (uint32_t i = gpuos_thread(); i < rows * heads * RUNS; i += GPUOS_THREADS) {
      const uint32_t vector = i / RUNS;
      inside &= append(ctx, vector / heads, lo + vector % heads, i % RUNS * RUN);
    }
    if constexpr (GPUOS_STREAMS) fence_proxy_async(); // later steps read it by bulk copies
    return inside;
  }
};
