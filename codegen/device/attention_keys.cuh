// attention_keys.cuh: which keys a tile of ATTENTION sees, and where they lie.
//
// U, the generated instantiation, has operands k, v or else cache, pages, pos, seq, beside which k and v are
// those of the rows' own positions; PAGE_SIZE, HEAD_DIM.
#pragma once
#include "cache.cuh"

template <class U> struct gpuos_attention_keys {
  using k = typename U::k;
  using v = typename U::v;
  using cache = typename U::cache;
  using slots = gpuos_cache<U>;
  enum {
    PAGED = cache::PRESENT,
    OWN = PAGED && (int)k::PRESENT, // the key of a row's own position is not in the cache yet
    STORE = PAGED ? (int)cache::DTYPE : (int)k::DTYPE,
  };

  // One query row, KV head and split; the keys it sees.
  struct range {
    uint32_t point[GPUOS_DIMS];
    uint32_t sequence, from, to; // keys in memory
    bool own;                    // and the row's own
    bool rotates;
  };

  // Iteration point number i of the tile.
  GPUOS_DEVICE void find_point(const gpuos_ctx &ctx, uint32_t i, range &r) {
    const gpuos_box_t &box = ctx.slot->box;
#pragma unroll
    for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
      r.point[d] = box.lo[d] + i % box.n[d];
      i /= box.n[d];
    }
  }

  template <bool FAULTS = true> GPUOS_DEVICE bool find_range(const gpuos_ctx &ctx, range &r) {
    r.sequence = r.from = r.to = 0, r.own = r.rotates = false;
    if constexpr (PAGED) {
      typename slots::slot slot;
      if (!slots::template find_slot<FAULTS>(ctx, r.point[1], slot)) return false;
      const gpuos_op_t &op = ctx.slot->of->op;
      const uint32_t keys = slot.position < 0 ? 0 : slot.position + 1;
      const uint32_t length = gpuos_split_keys(keys, op.params[7], op.params[4]);
      const uint32_t from = r.point[3] * length;
      r.sequence = slot.sequence, r.from = from;
      r.to = keys < from ? from : keys - from < length ? keys : from + length;
      r.own = OWN && slot.position >= 0 && keys > from && keys - from <= length;
      if (r.own) r.to--;
      r.rotates = slot.position >= 0;
    } else {
      const uint32_t keys = k::extent(ctx, 1), rows = ctx.slot->of->op.extent[1];
      const int seen = (int)(keys + r.point[1] + 1 - rows); // counted from the end
      r.to = ctx.slot->of->op.params[5] == 0 ? keys : seen < 0 ? 0 : min((uint32_t)seen, keys);
    }
    return true;
  }

  // Addresses of a key and its value.
  GPUOS_DEVICE bool find_key(const gpuos_ctx &ctx, const range &r, uint32_t key, uint64_t &key_at,
                             uint64_t &value_at) {
    if constexpr (PAGED) {
      bool inside = slots::find_key(ctx, r.sequence, key, r.point[2], key_at);
      value_at = key_at + slots::value_offset(ctx);
      return inside;
    } else {
      const uint32_t point[GPUOS_DIMS] = {r.point[0], 0, r.point[2], 0};
      key_at = k::at(ctx, point) + (uint64_t)key * k::stride(ctx, 1) * k::BYTES;
      value_at = v::at(ctx, point) + (uint64_t)key * v::stride(ctx, 1) * v::BYTES;
      return true;
    }
  }
};
