// cache.cuh: the paged KV cache, as KV_APPEND and ATTENTION address it.
//
// U, the generated instantiation, has operands cache, pages, pos, seq; PAGE_SIZE, HEAD_DIM.
#pragma once
#include "unit.cuh"

template <class U> struct gpuos_cache {
  using cache = typename U::cache;
  using pages = typename U::pages;
  using pos = typename U::pos;
  using seq = typename U::seq;

  // Sequence and position of a row.
  struct slot {
    uint32_t sequence;
    int position; // negative: the row is absent
  };

  // False: one of them is outside its table; that is a fault, if it is to be one.
  template <bool FAULTS = true>
  GPUOS_DEVICE bool find_slot(const gpuos_ctx &ctx, uint32_t row, slot &found) {
    found = {row, pos::index(ctx, (uint64_t)row * pos::stride(ctx, 3))};
    if (found.position < 0) return true;
    if constexpr (seq::PRESENT)
      found.sequence = (uint32_t)seq::index(ctx, (uint64_t)row * seq::stride(ctx, 3));
    const uint32_t sequences = pages::extent(ctx, 2);
    const uint32_t context = pages::extent(ctx, 3) * U::PAGE_SIZE;
    if (found.sequence >= sequences)
      return FAULTS && gpuos_fault_index(ctx, GPUOS_AS_SEQ, (int)found.sequence, sequences);
    if ((uint32_t)found.position >= context)
      return FAULTS && gpuos_fault_index(ctx, GPUOS_AS_POS, found.position, context);
    return true;
  }

  // Address of the key at a position of a sequence; its value lies value_offset bytes further.
  // False: the page is outside the pool.
  GPUOS_DEVICE bool find_key(const gpuos_ctx &ctx, uint32_t sequence, uint32_t position,
                             uint32_t head, uint64_t &key) {
    const int page =
        pages::index(ctx, (uint64_t)sequence * pages::stride(ctx, 2) +
                              (uint64_t)(position / U::PAGE_SIZE) * pages::stride(ctx, 3));
    const uint32_t pool = cache::extent(ctx, 2);
    if ((uint32_t)page >= pool) return gpuos_fault_index(ctx, GPUOS_AS_PAGES, page, pool);
    const uint64_t element =
        (uint64_t)head * cache::stride(ctx, 1) + (uint64_t)page * cache::stride(ctx, 2) +
        (uint64_t)(position % U::PAGE_SIZE * U::HEAD_DIM) * cache::stride(ctx, 3);
    key = cache::base(ctx) + element * cache::BYTES;
    return true;
  }

  GPUOS_DEVICE uint64_t value_offset(const gpuos_ctx &ctx) {
    return (uint64_t)cache::stride(ctx, 0) * cache::BYTES;
  }
};
