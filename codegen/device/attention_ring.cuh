// attention_ring.cuh: ATTENTION of up to eight queries a KV head over a paged cache of 16 bits, one tile: a
// query row, a KV head and a split, by tensor cores; its keys come through the ring of stream.cuh, while the
// queries are on their way.
//
// A warp has eight keys of 64, with a running maximum (Milakov and Gimelshein 2018), and the warps' results
// are merged at the end, in order. A lane's number is 4 g + q. Operands have no more than 16 bits, so what is
// a float comes as two of them, in rows g and g + 8 of a product, whose results are added. K of a product and
// the columns of V may be in any order that both operands share: a lane takes 16 bytes of a row at once.
//
// U, the generated instantiation, has operands x, out or partial, cache, pages, pos, seq, and k and v, those
// of the rows' own positions; rotation; PAGE_SIZE, HEAD_DIM, GROUP; NEIGHBOURS, of the rotation; STAMPED: what
// it reads of the step travels stamped; OUT_STAMPED: partial does. The host wrote pos and pages before the step,
// and nothing in it writes keys before they are read.
#pragma once
#include "attention_own.cuh"
#include "stream.cuh"

template <class U> struct gpuos_attention_ring {
  using out = typename U::out;
  using partial = typename U::partial;
  using keys = gpuos_attention_keys<U>;
  using range = typename keys::range;

  enum {
    FORMAT = keys::STORE,
    HEAD_DIM = U::HEAD_DIM,
    GROUP = U::GROUP,
    ROW_BYTES = HEAD_DIM * 2,
    SEGMENTS = HEAD_DIM / 32, // of a row: 16 bytes of each lane's
    WARP_KEYS = 8,
    KEYS = WARP_KEYS * GPUOS_WARPS,               // looked at together
    CHUNK = GPUOS_STREAM_BYTES / 2 / ROW_BYTES,   // of a stage; their values lie behind them
    CHUNK_PAGES = (CHUNK - 2) / U::PAGE_SIZE + 2, // that it can touch
    PITCH = HEAD_DIM + 2,                         // weighted sums, maximum, sum of exponentials
    SUM_PITCH = HEAD_DIM + 4,                     // in shared memory, for words of 16 bytes
    WARP_BYTES = GROUP * SUM_PITCH * 4,
    OWN_AT = GPUOS_WARPS * WARP_BYTES,
    RUN = 4, // elements of a thread's in the end
    ENTERS = 1,
  };
  using own = gpuos_attention_own<U, OWN_AT>;
  enum { SMEM_BYTES = OWN_AT + own::BYTES };
  static_assert(keys::OWN && gpuos_format<FORMAT>::BYTES == 2, "own keys, over a cache of 16 bits");
  static_assert((int)GROUP <= 8, "a product has as many rows");
  static_assert(HEAD_DIM % 64 == 0 && HEAD_DIM <= 128, "pairs of segments, as registers last");
  static_assert(CHUNK % KEYS == 0, "a warp's keys are of one stage");
  static_assert(GROUP * HEAD_DIM <= GPUOS_THREADS * RUN, "a thread has one run in the end");

  // What a lane has of query g.
  struct state {
    float sum[SEGMENTS][8], largest, total;
  };

  GPUOS_DEVICE uint32_t lane() { return gpuos_thread() % 32; }
  GPUOS_DEVICE uint32_t first_key() { return gpuos_warp() * WARP_KEYS; }
  // No weight is below nothing, and a warp without keys has no weight beside any that has some.
  GPUOS_DEVICE float lowest() { return __uint_as_float(0xff7fffffu); }
  // e to the power of a difference.
  GPUOS_DEVICE float weight(float below) { return ex2_approx_f32(below * 1.44269504f); }

  // ---- load: the loader's thread ----------------------------------------------------------------

  // Keys `first` to before `end` of the tile's sequence, with their values, into a stage. False: stop.
  GPUOS_DEVICE bool load_chunk(gpuos_loader &loader, const gpuos_ctx &ctx, const range &r,
                               uint32_t first, uint32_t end) {
    const uint64_t policy = createpolicy_evict_first();
    uint64_t at[CHUNK_PAGES], value_at[CHUNK_PAGES];
    uint32_t full, to, count = 0;
#pragma unroll
    for (int p = 0; p < CHUNK_PAGES; p++) { // the pages' numbers on their way together
      const uint32_t key = max(first, (first / U::PAGE_SIZE + p) * U::PAGE_SIZE);
      if (key < end && !keys::find_key(ctx, r, key, at[p], value_at[p])) return false;
    }
    if (!gpuos_enter_stream(loader, (end - first) * 2 * ROW_BYTES, full, to)) return false;
#pragma unroll
    for (int p = 0; p < CHUNK_PAGES; p++) {
      const uint32_t key = first + count, next = (key / U::PAGE_SIZE + 1) * U::PAGE_SIZE;
      if (key >= end) break;
      const uint32_t bytes = (min(next, end) - key) * ROW_BYTES, place = to + count * ROW_BYTES;
      cp_async_bulk_hint(place, at[p], bytes, full, policy);
      cp_async_bulk_hint(place + CHUNK * ROW_BYTES, value_at[p], bytes, full, policy);
      count = min(next, end) - first;
    }
    return true;
  }

  // What is outside is a fault, which ends the kernel.
  GPUOS_DEVICE void load(gpuos_loader &loader) {
    const gpuos_ctx ctx = {loader.cta, loader.slot, loader.smem};
    range r;
    keys::find_point(ctx, 0, r);
    if (!keys::find_range(ctx, r)) return;
    loader.stream.most = loader.stream.count; // at once: everybody waits for the last key
    for (uint32_t key = r.from; key < r.to; key += CHUNK)
      if (!load_chunk(loader, ctx, r, key, min(key + CHUNK, r.to))) return;
  }

  // ---- compute ----------------------------------------------------------------------------------

  // What a lane has of row g, at `row` and 64 bytes further each time. Two rows would lie in the same banks:
  // of odd ones the segments are loaded the other way round.
  GPUOS_DEVICE void load_row(uint32_t row, uint4 (&w)[SEGMENTS]) {
    const uint32_t odd = lane() / 4 % 2;
#pragma unroll
    for (int i = 0; i < SEGMENTS; i++) w[i] = ld_shared_v4(row + (i ^ odd) * 64);
#pragma unroll
    for (int i = 0; i < SEGMENTS; i += 2) {
      const uint4 first = w[i];
      w[i] = odd ? w[i + 1] : first;
      w[i + 1] = odd ? first : w[i + 1];
    }
  }

  GPUOS_DEVICE void multiply(float (&c)[4], const uint4 &query, uint32_t b0, uint32_t b1) {
    const uint32_t a[4] = {query.x, query.y, query.z, query.w};
    if constexpr ((int)FORMAT == GPUOS_BF16)
      mma_m16n8k16_bf16(c, a, b0, b1);
    else
      mma_m16n8k16_f16(c, a, b0, b1);
  }
  GPUOS_DEVICE void multiply(float (&c)[4], const uint32_t (&weights)[2], uint32_t b) {
    if constexpr ((int)FORMAT == GPUOS_BF16)
      mma_m16n8k8_bf16(c, weights, b);
    else
      mma_m16n8k8_f16(c, weights, b);
  }

  // Rows that no query has are a query's again: what comes of them is nobody's.
  GPUOS_DEVICE uint32_t queries_at(const gpuos_ctx &ctx) {
    return own::query_at(mov_shared_address(ctx.smem), min(lane() / 4, (uint32_t)GROUP - 1),
                         lane() % 4);
  }

  // Query g by keys 2 q and 2 q + 1 of the warp's.
  GPUOS_DEVICE void score(uint32_t queries, const uint4 (&key)[SEGMENTS], float (&scores)[2]) {
    float even[4] = {}, odd[4] = {}; // two chains take half the time of one
#pragma unroll
    for (int i = 0; i < SEGMENTS; i++) {
      const uint32_t at = queries + i * 2 * own::PRODUCT_BYTES;
      multiply(even, ld_shared_v4(at), key[i].x, key[i].y);
      multiply(odd, ld_shared_v4(at + own::PRODUCT_BYTES), key[i].z, key[i].w);
    }
#pragma unroll
    for (int e = 0; e < 2; e++) scores[e] = (even[e] + even[e + 2]) + (odd[e] + odd[e + 2]);
  }

  // Turns scores into weights against the new maximum, in two parts; what those before are worth now.
  GPUOS_DEVICE float weigh(state &s, float (&scores)[2], uint32_t (&weights)[2]) {
    float largest = fmaxf(s.largest, fmaxf(scores[0], scores[1])), rounded[2];
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    const float factor = weight(s.largest - largest);
#pragma unroll
    for (int e = 0; e < 2; e++) scores[e] = weight(scores[e] - largest);
    s.largest = largest, s.total = fmaf(s.total, factor, scores[0] + scores[1]);
    weights[0] = gpuos_format<FORMAT>::narrow(scores);
    gpuos_format<FORMAT>::widen(weights[0], rounded);
#pragma unroll
    for (int e = 0; e < 2; e++) scores[e] -= rounded[e];
    weights[1] = gpuos_format<FORMAT>::narrow(scores);
    return factor;
  }

  // A word of the lanes is 8 keys by 8 columns of V, which the product wants key by key: 16 q.. of a row in
  // the lanes' order are 8 consecutive elements of lane q's.
  GPUOS_DEVICE void add_values(state &s, float factor, const uint32_t (&weights)[2],
                               const uint4 (&value)[SEGMENTS]) {
#pragma unroll
    for (int i = 0; i < SEGMENTS; i++) {
      const uint32_t words[4] = {value[i].x, value[i].y, value[i].z, value[i].w};
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float c[4] = {};
        multiply(c, weights, movmatrix_trans(words[j]));
#pragma unroll
        for (int e = 0; e < 2; e++)
          s.sum[i][2 * j + e] = fmaf(s.sum[i][2 * j + e], factor, c[e] + c[e + 2]);
      }
    }
  }

  // The warp's keys of those from number `first` of the tile's `count` on, at `at` and the values behind.
  GPUOS_DEVICE void attend(const gpuos_ctx &ctx, uint32_t first, uint32_t count, uint32_t key_at,
                           uint32_t value_at, state &s) {
    const float scale = __uint_as_float(ctx.slot->of->op.params[0]);
    const uint32_t left = count - first, of_pair = lane() % 4 * 2;
    uint4 key[SEGMENTS], value[SEGMENTS];
    float scores[2];
    uint32_t weights[2];
    load_row(key_at, key);
    load_row(value_at, value);
    score(queries_at(ctx), key, scores);
#pragma unroll
    for (int e = 0; e < 2; e++)
      scores[e] = of_pair + e < left ? scores[e] * scale : gpuos_minus_infinity();
    const float factor = weigh(s, scores, weights);
    add_values(s, factor, weights, value);
  }

  // The same: key g is in the stage or, after `stored` of them, the row's own. Beyond the last it is that one
  // again, without weight.
  GPUOS_DEVICE void attend_some(const gpuos_ctx &ctx, uint32_t first, uint32_t stored,
                                uint32_t count, uint32_t stage, state &s) {
    const uint32_t key = min(first + lane() / 4, count - 1), skip = lane() % 4 * 16;
    uint32_t key_at = stage + key % CHUNK * ROW_BYTES + skip, to_value = CHUNK * ROW_BYTES;
    if (key >= stored) {
      key_at = mov_shared_address(ctx.smem) + own::KEY_AT + skip;
      to_value = own::VALUE_AT - own::KEY_AT;
    }
    attend(ctx, first, count, key_at, key_at + to_value, s);
  }

  // False: stop.
  GPUOS_DEVICE bool attend_all(const gpuos_ctx &ctx, const range &r, state &s) {
    const uint32_t stored = r.to - r.from, count = stored + r.own;
    gpuos_reader ring = gpuos_read_stream(ctx);
    uint32_t stage = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < count; first += KEYS) {
      const uint32_t next = first + KEYS, mine = first + first_key();
      if (first < stored && first % CHUNK == 0 && !gpuos_await_stream(*ctx.cta, ring, stage))
        return false;
      if (mine < count) attend_some(ctx, mine, stored, count, stage, s);
      if (first < stored && (next >= stored || next % CHUNK == 0)) gpuos_leave_stream(ring);
    }
    gpuos_keep_place(ctx, ring);
    return true;
  }

  // ---- store ------------------------------------------------------------------------------------

  GPUOS_DEVICE uint2 pair(float low, float high) {
    return make_uint2(__float_as_uint(low), __float_as_uint(high));
  }
  GPUOS_DEVICE uint32_t result_at(const gpuos_ctx &ctx, uint32_t query) {
    return mov_shared_address(ctx.smem) + query * SUM_PITCH * 4;
  }

  GPUOS_DEVICE void share(const gpuos_ctx &ctx, state &s) {
    const uint32_t g = lane() / 4, q = lane() % 4;
    const uint32_t to = result_at(ctx, g) + gpuos_warp() * WARP_BYTES;
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2)
      s.total += __shfl_xor_sync(0xffffffffu, s.total, lanes);
    if (g >= GROUP) return;
#pragma unroll
    for (int i = 0; i < SEGMENTS; i++)
#pragma unroll
      for (int e = 0; e < 8; e += 4) {
        const uint2 low = pair(s.sum[i][e], s.sum[i][e + 1]);
        const uint2 high = pair(s.sum[i][e + 2], s.sum[i][e + 3]);
        st_shared_v4(to + (i * 32 + q * 8 + e) * 4, make_uint4(low.x, low.y, high.x, high.y));
      }
    if (q == 0) st_shared_v2(to + HEAD_DIM * 4, pair(s.largest, s.total));
  }

  // Elements d.. of a query over all warps.
  struct result {
    float sum[RUN], ends[2]; // maximum, sum of exponentials
  };
  GPUOS_DEVICE result merge(const gpuos_ctx &ctx, uint32_t query, uint32_t d) {
    result all = {{}, {lowest(), 0.0f}};
    const uint32_t from = result_at(ctx, query);
    uint2 ends[GPUOS_WARPS];
#pragma unroll
    for (int w = 0; w < GPUOS_WARPS; w++) {
      ends[w] = ld_shared_v2(from + w * WARP_BYTES + HEAD_DIM * 4);
      all.ends[0] = fmaxf(all.ends[0], __uint_as_float(ends[w].x));
    }
#pragma unroll
    for (int w = 0; w < GPUOS_WARPS; w++) {
      const float factor = weight(__uint_as_float(ends[w].x) - all.ends[0]);
      const uint4 sum = ld_shared_v4(from + w * WARP_BYTES + d * 4);
      all.ends[1] = fmaf(__uint_as_float(ends[w].y), factor, all.ends[1]);
      all.sum[0] = fmaf(__uint_as_float(sum.x), factor, all.sum[0]);
      all.sum[1] = fmaf(__uint_as_float(sum.y), factor, all.sum[1]);
      all.sum[2] = fmaf(__uint_as_float(sum.z), factor, all.sum[2]);
      all.sum[3] = fmaf(__uint_as_float(sum.w), factor, all.sum[3]);
    }
    return all;
  }

  // Who merges the splits sees them by their stamps, or as they are.
  GPUOS_DEVICE void store_partial(const gpuos_ctx &ctx, const range &r, uint32_t query, uint32_t d,
                                  const result &all) {
    const uint64_t to = partial::at(ctx, r.point) + query * PITCH * 4;
    if constexpr (U::OUT_STAMPED) {
      using stamped = gpuos_stamped<GPUOS_F32>;
      const uint64_t words = stamped::at(*ctx.cta, to + d * 4);
      const uint32_t stamp = gpuos_stamp(ctx.slot->step, ctx.slot->tile.op);
      stamped::store_pair(words, all.sum[0], all.sum[1], stamp);
      stamped::store_pair(words + 16, all.sum[2], all.sum[3], stamp);
      if (d == 0) stamped::store_pair(words + HEAD_DIM * 8, all.ends[0], all.ends[1], stamp);
    } else {
      st_global_v2(to + d * 4, pair(all.sum[0], all.sum[1]));
      st_global_v2(to + d * 4 + 8, pair(all.sum[2], all.sum[3]));
      if (d == 0) st_global_v2(to + HEAD_DIM * 4, pair(all.ends[0], all.ends[1]));
    }
  }
  GPUOS_DEVICE void store_out(const gpuos_ctx &ctx, const range &r, uint32_t element,
                              const result &all) {
    const uint64_t stride = (uint64_t)out::stride(ctx, 3) * out::BYTES;
#pragma unroll
    for (int e = 0; e < RUN; e++) {
      const float one[1] = {all.ends[1] == 0.0f ? 0.0f : all.sum[e] / all.ends[1]};
      gpuos_store<out::DTYPE, 1>(out::at(ctx, r.point) + (element + e) * stride, one);
    }
  }

  // OUT, or the split's share of PARTIAL.
  GPUOS_DEVICE void store(const gpuos_ctx &ctx, const range &r) {
    const uint32_t element = gpuos_thread() * RUN, query = element / HEAD_DIM;
    if (query >= GROUP) return;
    const result all = merge(ctx, query, element % HEAD_DIM);
    if constexpr (partial::PRESENT)
      store_partial(ctx, r, query, element % HEAD_DIM, all);
    else
      store_out(ctx, r, element, all);
  }

  // ---- run --------------------------------------------------------------------------------------

  // A split beyond the keys there are: who merges them does not look at it. What it would wait for the first
  // split's tile, which has the same inputs, does.
  GPUOS_DEVICE bool idle(const range &r) {
    return U::STAMPED && partial::PRESENT && r.point[3] > 0 && r.from == r.to && !r.own;
  }

  // What it reads is in shared memory. False: give it up.
  GPUOS_DEVICE bool enter(const gpuos_ctx &ctx, const range &r, const typename own::part &p,
                          typename own::words &seen) {
    if (!(U::STAMPED ? gpuos_take_memory(ctx) : gpuos_enter(ctx))) return false;
    const bool over = own::fetch(ctx, r, p, seen); // in a pause it only looks
    if (gpuos_barrier_or(!over)) return false;
    if (U::STAMPED) gpuos_say_entered(ctx);
    return true;
  }

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    range r;
    typename own::words seen = {};
    keys::find_point(ctx, 0, r);
    const typename own::part p = own::find_part(ctx, r);
    own::look(ctx, p, seen);
    const bool found = keys::template find_range<false>(ctx, r); // if not, the loader says so
    if (idle(r)) {
      gpuos_say_entered(ctx);
      return found;
    }
    if (!enter(ctx, r, p, seen)) return false;
    if (gpuos_thread() == 0) st_relaxed_shared(&ctx.cta->worker_loads, 0); // the loader does
    if (!found) return false;
    state s = {{}, lowest(), 0.0f};
    const bool whole = attend_all(ctx, r, s);
    share(ctx, s);
    const bool clear = !U::STAMPED || gpuos_await_clear(ctx);
    gpuos_barrier();
    keys::find_point(ctx, 0, r); // again: nothing of it was in registers meanwhile
    if (clear) store(ctx, r);
    return whole && clear;
  }
};
