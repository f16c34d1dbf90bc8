// attention.cuh: ATTENTION, one tile: each query of a KV head's group against its keys.
//
// A group of LANES threads holds one key at a time, RUN or more elements a thread; of the groups with the
// same queries each takes every KEY_LANES-th key, with a running maximum (Milakov and Gimelshein 2018),
// and they are merged at the end, in order. A thread's queries share what is read.
//
// U, the generated instantiation, has operands x, out or partial, and k, v or else cache, pages, pos, seq,
// beside which k and v are those of the rows' own positions; rotation; PAGE_SIZE, HEAD_DIM, GROUP; RUN,
// elements that are loaded at once; NEIGHBOURS, of the rotation; EARLY: the host wrote pos and pages before
// the step, nothing in it writes keys before they are read, and there is a ring, so that they are loaded
// while q is on its way; STAMPED: what it reads of the step travels stamped.
#pragma once
#include "cache.cuh"
#include "rotate.cuh"
#include "stamp.cuh"
#include "stream.cuh"

GPUOS_DEVICE constexpr uint32_t gpuos_power_of_two(uint32_t at_least) {
  uint32_t power = 1;
  while (power < at_least) power *= 2;
  return power;
}

template <class U> struct gpuos_attention {
  using x = typename U::x;
  using k = typename U::k;
  using v = typename U::v;
  using cache = typename U::cache;
  using out = typename U::out;
  using partial = typename U::partial;
  using rotation = typename U::rotation;
  using slots = gpuos_cache<U>;

  enum {
    PAGED = cache::PRESENT,
    OWN = PAGED && (int)k::PRESENT, // the key of a row's own position is not in the cache yet
    STORE = PAGED ? (int)cache::DTYPE : (int)k::DTYPE,
    STORE_BYTES = gpuos_format<STORE>::BYTES,
    HEAD_DIM = U::HEAD_DIM,
    RUN = U::RUN,
    RUNS = HEAD_DIM / RUN,
    LANES = RUNS >= 32 ? 32 : gpuos_power_of_two(RUNS),
    PER_LANE = (RUNS + LANES - 1) / LANES, // runs
    ELEMENTS = PER_LANE * RUN,
    // Queries of a thread, as many as registers hold: twice ELEMENTS floats each. Sets of threads share
    // the group's queries, and each looks at all keys: every look takes as long as the memory.
    MOST = ELEMENTS >= 16 ? 1 : 16 / ELEMENTS,
    QUERIES = U::GROUP < MOST ? U::GROUP
              : MOST < 8      ? MOST
                              : 8,
    GROUPS = GPUOS_THREADS / LANES, // of threads, that each hold a key
    SETS = gpuos_power_of_two((U::GROUP + QUERIES - 1) / QUERIES) < GROUPS
               ? gpuos_power_of_two((U::GROUP + QUERIES - 1) / QUERIES)
               : GROUPS,
    KEY_LANES = GROUPS / SETS,
    AT_ONCE = QUERIES * SETS, // queries
    // Loaded together, so that enough bytes are in flight.
    KEYS = ELEMENTS * STORE_BYTES <= 16 ? 4 : 2,
    PITCH = HEAD_DIM + 2, // weighted sums, maximum, sum of exponentials
    // Keys in memory come through the ring, so many at a time, and their values behind them.
    RINGS = U::EARLY && RUN == 8 && STORE_BYTES == 2 && (int)U::GROUP <= (int)AT_ONCE,
    RESULT_BYTES = KEY_LANES * AT_ONCE * PITCH * 4,
    // Stamped: q, then k, v and the table of angles, as they come.
    STAMPED = U::STAMPED && RINGS && OWN && !U::NEIGHBOURS && HEAD_DIM % 16 == 0,
    OWN_AT = (RESULT_BYTES + 15) / 16 * 16,
    K_AT = OWN_AT + U::GROUP * HEAD_DIM * 2,
    V_AT = K_AT + HEAD_DIM * 2,
    ANGLES_AT = V_AT + HEAD_DIM * 2,
    SMEM_BYTES = STAMPED ? ANGLES_AT + HEAD_DIM * 4 : (int)RESULT_BYTES,
    ENTERS = 1,
    ROW_BYTES = HEAD_DIM * STORE_BYTES,
    CHUNK = GPUOS_STREAM_BYTES / 2 / ROW_BYTES,
    CHUNK_PAGES = (CHUNK + U::PAGE_SIZE - 2) / U::PAGE_SIZE + 1, // that it can touch
  };

  // One query row, KV head and split; the keys it sees.
  struct range {
    uint32_t point[GPUOS_DIMS];
    uint32_t sequence, from, to; // keys in memory
    bool own;                    // and the row's own
    bool rotates;
  };

  // What a thread has of QUERIES queries.
  struct state {
    float query[QUERIES][ELEMENTS], sum[QUERIES][ELEMENTS], largest[QUERIES], total[QUERIES];
  };

  GPUOS_DEVICE uint32_t lane() { return gpuos_thread() % LANES; }
  GPUOS_DEVICE uint32_t key_lane() { return gpuos_thread() / LANES % KEY_LANES; }
  GPUOS_DEVICE uint32_t first_query() { return gpuos_thread() / LANES / KEY_LANES * QUERIES; }
  GPUOS_DEVICE uint32_t dim(int run) { return (run * LANES + lane()) * RUN; }
  GPUOS_DEVICE bool has(int run) { return run * LANES + lane() < RUNS; }

  // ---- load -------------------------------------------------------------------------------------

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
      const uint32_t length = gpuos_split_keys(keys, op.extent[3], op.params[4]);
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

  // Addresses of a key and its value, and elements they move by.
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
  GPUOS_DEVICE bool find_key(const gpuos_ctx &ctx, const range &r, uint32_t key, uint64_t &key_at) {
    uint64_t value_at;
    return find_key(ctx, r, key, key_at, value_at);
  }
  GPUOS_DEVICE uint64_t key_stride(const gpuos_ctx &ctx) {
    if constexpr (PAGED)
      return cache::stride(ctx, 3);
    else
      return k::stride(ctx, 3);
  }
  GPUOS_DEVICE uint64_t value_stride(const gpuos_ctx &ctx) {
    if constexpr (PAGED)
      return cache::stride(ctx, 3);
    else
      return v::stride(ctx, 3);
  }

  // A thread's elements of one vector, on their way.
  template <int DTYPE> struct vector {
    gpuos_words<DTYPE, RUN> run[PER_LANE];
    __device__ __forceinline__ void load(uint64_t at, uint64_t stride) {
#pragma unroll
      for (int i = 0; i < PER_LANE; i++)
        if (has(i)) run[i].load(at + dim(i) * stride * gpuos_format<DTYPE>::BYTES);
    }
    __device__ __forceinline__ void load_shared(uint32_t at) { // packed
#pragma unroll
      for (int i = 0; i < PER_LANE; i++)
        if (has(i)) run[i].load_shared(at + dim(i) * gpuos_format<DTYPE>::BYTES);
    }
    __device__ __forceinline__ void widen(float (&out)[ELEMENTS]) const {
#pragma unroll
      for (int i = 0; i < PER_LANE; i++) run[i].widen(out + i * RUN);
    }
  };

  // How a thread's elements of vectors of this step are rotated.
  using rotate = gpuos_rotate<U>;
  struct turns {
    typename rotate::angles of[PER_LANE];
  };
  GPUOS_DEVICE void load_turns(const gpuos_ctx &ctx, const range &r, turns &t) {
    if constexpr (rotation::PRESENT) {
      const uint64_t skip = (uint64_t)r.point[1] * rotation::stride(ctx, 2) * 4;
#pragma unroll
      for (int i = 0; i < PER_LANE; i++)
        if (has(i)) t.of[i] = rotate::load_angles(rotation::base(ctx) + skip, dim(i));
    }
  }

  // A thread's elements of a vector of this step, on their way, and then rotated if it is to be.
  template <class X> struct vector_of_step {
    typename rotate::template pairs<X> run[PER_LANE];
    __device__ __forceinline__ void load(uint64_t from, uint64_t stride, bool rotates) {
#pragma unroll
      for (int i = 0; i < PER_LANE; i++)
        if (has(i)) {
          if (rotates)
            run[i].load(from, stride, dim(i));
          else
            run[i].own.load(from + dim(i) * stride * X::BYTES);
        }
    }
    __device__ __forceinline__ void load_shared(uint32_t from) {
#pragma unroll
      for (int i = 0; i < PER_LANE; i++)
        if (has(i)) run[i].load_shared(from, dim(i));
    }
    __device__ __forceinline__ void widen(const turns &t, bool rotates,
                                          float (&out)[ELEMENTS]) const {
#pragma unroll
      for (int i = 0; i < PER_LANE; i++) {
        if (rotates)
          run[i].rotate(t.of[i], out + i * RUN);
        else
          run[i].own.widen(out + i * RUN);
      }
    }
  };
  GPUOS_DEVICE bool rotates(const range &r) { return rotation::PRESENT && r.rotates; }

  // What a thread has of this step's vectors, all of it on its way at once.
  struct own_key {
    vector_of_step<k> key;
    vector<v::DTYPE> value;
  };
  struct own_vectors {
    vector_of_step<x> query[QUERIES];
    turns t;
  };
  GPUOS_DEVICE void load_own(const gpuos_ctx &ctx, const range &r, uint32_t first, own_vectors &o,
                             own_key &own) {
    if constexpr (STAMPED) {
      load_shared_own(mov_shared_address(ctx.smem), r, first, o, own);
      return;
    }
    load_turns(ctx, r, o.t);
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
      const uint64_t skip = (uint64_t)(first + q) * HEAD_DIM * x::stride(ctx, 3) * x::BYTES;
      if (first + q < U::GROUP)
        o.query[q].load(x::at(ctx, r.point) + skip, x::stride(ctx, 3), rotates(r));
    }
    if constexpr (OWN) {
      const uint32_t point[GPUOS_DIMS] = {0, 0, r.point[2], 0};
      const uint64_t k_row = (uint64_t)r.point[1] * k::stride(ctx, 1) * k::BYTES;
      const uint64_t v_row = (uint64_t)r.point[1] * v::stride(ctx, 1) * v::BYTES;
      if (!r.own || key_lane() != 0) return;
      own.key.load(k::at(ctx, point) + k_row, k::stride(ctx, 3), rotates(r));
      own.value.load(v::at(ctx, point) + v_row, v::stride(ctx, 3));
    }
  }

  GPUOS_DEVICE void load_shared_own(uint32_t smem, const range &r, uint32_t first, own_vectors &o,
                                    own_key &own) {
#pragma unroll
    for (int i = 0; i < PER_LANE; i++)
      if (has(i)) o.t.of[i] = rotate::load_shared_angles(smem + ANGLES_AT, dim(i));
#pragma unroll
    for (int q = 0; q < QUERIES; q++)
      if (first + q < U::GROUP) o.query[q].load_shared(smem + OWN_AT + (first + q) * HEAD_DIM * 2);
    if (!r.own || key_lane() != 0) return;
    own.key.load_shared(smem + K_AT);
    own.value.load_shared(smem + V_AT);
  }

  // ---- stamped ----------------------------------------------------------------------------------

  // Words of 16 bytes from element `from` on, `count` of them, whose elements go to `to` in shared memory:
  // those of this thread, of all that are numbered from `first` on. False: stop.
  template <int DTYPE>
  GPUOS_DEVICE bool fetch(const gpuos_ctx &ctx, uint64_t from, uint32_t count, uint32_t op,
                          uint32_t to, uint32_t first) {
    using stamped = gpuos_stamped<DTYPE>;
    const uint32_t stamp = gpuos_stamp(ctx.slot->step, op);
    const uint32_t mine = (gpuos_thread() + GPUOS_THREADS - first % GPUOS_THREADS) % GPUOS_THREADS;
    for (uint32_t i = mine; i < count; i += GPUOS_THREADS) {
      uint4 v;
      while (!stamped::there(v = stamped::load(stamped::at(*ctx.cta, from) + i * 16), stamp))
        if (gpuos_look_again(ctx)) return false;
      *(uint2 *)(ctx.smem + to + i * 8) =
          stamped::BYTES == 2 ? stamped::pack(v) : make_uint2(v.x, v.z);
    }
    return true;
  }

  // What the tile reads of this step, into shared memory as it comes; k and v by who has the row's own key.
  GPUOS_DEVICE bool fetch_own(const gpuos_ctx &ctx, const range &r) {
    enum { QUERY_WORDS = U::GROUP * HEAD_DIM / 4, KEY_WORDS = HEAD_DIM / 4 };
    const uint32_t *by = ctx.slot->of->from, point[GPUOS_DIMS] = {0, 0, r.point[2], 0};
    bool over = true;
    if constexpr (STAMPED) {
      over = fetch<x::DTYPE>(ctx, x::at(ctx, r.point), QUERY_WORDS, by[0], OWN_AT, 0);
      if constexpr (rotation::PRESENT)
        over &= fetch<GPUOS_F32>(
            ctx, rotation::base(ctx) + (uint64_t)r.point[1] * rotation::stride(ctx, 2) * 4,
            HEAD_DIM / 2, by[3], ANGLES_AT, QUERY_WORDS + 2 * KEY_WORDS);
      if (!r.own) return over;
      over &= fetch<k::DTYPE>(ctx, k::at(ctx, point) + (uint64_t)r.point[1] * k::stride(ctx, 1) * 2,
                              KEY_WORDS, by[1], K_AT, QUERY_WORDS);
      over &= fetch<v::DTYPE>(ctx, v::at(ctx, point) + (uint64_t)r.point[1] * v::stride(ctx, 1) * 2,
                              KEY_WORDS, by[2], V_AT, QUERY_WORDS + KEY_WORDS);
    }
    return over;
  }
  GPUOS_DEVICE bool enter_stamped(const gpuos_ctx &ctx, const range &r) {
    if (!gpuos_take_memory(ctx)) return false;
    const bool over = fetch_own(ctx, r); // in a pause it only looks
    if (gpuos_barrier_or(!over)) return false;
    gpuos_say_entered(ctx);
    return true;
  }

  // ---- compute ----------------------------------------------------------------------------------

  GPUOS_DEVICE void begin(const range &r, uint32_t first, const own_vectors &o, state &s) {
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
#pragma unroll
      for (int e = 0; e < ELEMENTS; e++) s.query[q][e] = s.sum[q][e] = 0.0f;
      s.largest[q] = gpuos_minus_infinity(), s.total[q] = 0.0f;
      if (first + q < U::GROUP) o.query[q].widen(o.t, rotates(r), s.query[q]);
    }
  }

  // Keys that are looked at together, and their values, on their way.
  struct look {
    vector<STORE> keys[KEYS], values[KEYS];
  };

  // Keys first + i * KEY_LANES. False: one is outside.
  GPUOS_DEVICE bool load_keys(const gpuos_ctx &ctx, const range &r, uint32_t first, look &l) {
    bool inside = true;
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
      uint64_t key_at = 0, value_at = 0;
      if (first + i * KEY_LANES >= r.to) continue;
      const bool found = find_key(ctx, r, first + i * KEY_LANES, key_at, value_at);
      if (found) l.keys[i].load(key_at, key_stride(ctx));
      if (found) l.values[i].load(value_at, value_stride(ctx));
      inside &= found;
    }
    return inside;
  }

  // The score of one key for one query, in all LANES threads.
  GPUOS_DEVICE float score(const float (&query)[ELEMENTS], const float (&key)[ELEMENTS]) {
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < ELEMENTS; e++) sum = fmaf(query[e], key[e], sum);
#pragma unroll
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    return sum;
  }

  // Turns the scores of some keys into weights against the new maximum.
  template <int COUNT> GPUOS_DEVICE void weigh(state &s, int q, float (&scores)[COUNT]) {
    float largest = s.largest[q];
#pragma unroll
    for (int i = 0; i < COUNT; i++) largest = fmaxf(largest, scores[i]);
    const float factor = largest == s.largest[q] ? 1.0f : expf(s.largest[q] - largest);
    const bool none = largest == gpuos_minus_infinity();
    s.largest[q] = largest, s.total[q] *= factor;
#pragma unroll
    for (int e = 0; e < ELEMENTS; e++) s.sum[q][e] *= factor;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      scores[i] = none ? 0.0f : expf(scores[i] - largest);
      s.total[q] += scores[i];
    }
  }

  GPUOS_DEVICE void attend(const gpuos_ctx &ctx, const range &r, uint32_t first, const look &l,
                           state &s) {
    float weights[QUERIES][KEYS], widened[ELEMENTS];
    const float scale = __uint_as_float(ctx.slot->of->op.params[0]);
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
      l.keys[i].widen(widened);
#pragma unroll
      for (int q = 0; q < QUERIES; q++) {
        const float sum = score(s.query[q], widened); // by all lanes, whether there is a key or not
        weights[q][i] = first + i * KEY_LANES < r.to ? sum * scale : gpuos_minus_infinity();
      }
    }
#pragma unroll
    for (int q = 0; q < QUERIES; q++) weigh(s, q, weights[q]);
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
      l.values[i].widen(widened);
#pragma unroll
      for (int q = 0; q < QUERIES; q++)
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++)
          s.sum[q][e] = fmaf(weights[q][i], widened[e], s.sum[q][e]);
    }
  }

  // The row's own key, rounded as the cache will hold it: by the first key lane.
  GPUOS_DEVICE void attend_own(const gpuos_ctx &ctx, const range &r, const turns &t,
                               const own_key &own, state &s) {
    if constexpr (OWN) {
      const bool mine = key_lane() == 0;
      const float scale = __uint_as_float(ctx.slot->of->op.params[0]);
      float key[ELEMENTS] = {}, value[ELEMENTS] = {};
      if (mine) own.key.widen(t, rotates(r), key);
      if (mine) own.value.widen(value);
#pragma unroll
      for (int e = 0; e < ELEMENTS; e++) {
        key[e] = gpuos_round<STORE>(gpuos_round<k::DTYPE>(key[e]));
        value[e] = gpuos_round<STORE>(value[e]);
      }
#pragma unroll
      for (int q = 0; q < QUERIES; q++) {
        const float sum = score(s.query[q], key); // by all lanes
        float weight[1] = {mine ? sum * scale : gpuos_minus_infinity()};
        weigh(s, q, weight);
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++) s.sum[q][e] = fmaf(weight[0], value[e], s.sum[q][e]);
      }
    }
  }

  // ---- store ------------------------------------------------------------------------------------

  GPUOS_DEVICE float *shared_result(const gpuos_ctx &ctx, uint32_t key_lane, uint32_t q) {
    return (float *)ctx.smem + (key_lane * AT_ONCE + q) * PITCH;
  }

  GPUOS_DEVICE void share(const gpuos_ctx &ctx, const state &s) {
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
      float *to = shared_result(ctx, key_lane(), first_query() + q);
#pragma unroll
      for (int i = 0; i < PER_LANE; i++)
#pragma unroll
        for (int e = 0; e < RUN; e++)
          if (has(i)) to[dim(i) + e] = s.sum[q][i * RUN + e];
      if (lane() == 0) to[HEAD_DIM] = s.largest[q], to[HEAD_DIM + 1] = s.total[q];
    }
  }

  // Element d of query q over all key lanes.
  GPUOS_DEVICE void merge(const gpuos_ctx &ctx, uint32_t q, uint32_t d, float &sum, float &largest,
                          float &total) {
    largest = gpuos_minus_infinity(), sum = total = 0.0f;
    for (int l = 0; l < KEY_LANES; l++)
      largest = fmaxf(largest, shared_result(ctx, l, q)[HEAD_DIM]);
    if (largest == gpuos_minus_infinity()) return; // no key
    for (int l = 0; l < KEY_LANES; l++) {
      const float *part = shared_result(ctx, l, q), factor = expf(part[HEAD_DIM] - largest);
      sum = fmaf(part[d], factor, sum);
      total = fmaf(part[HEAD_DIM + 1], factor, total);
    }
  }

  // Queries first.. of the group: OUT, or their share of PARTIAL.
  GPUOS_DEVICE void store(const gpuos_ctx &ctx, const range &r, uint32_t first) {
    for (uint32_t i = gpuos_thread(); i < AT_ONCE * HEAD_DIM; i += GPUOS_THREADS) {
      const uint32_t q = i / HEAD_DIM, d = i % HEAD_DIM;
      if (first + q >= U::GROUP) continue;
      float sum, largest, total;
      merge(ctx, q, d, sum, largest, total);
      if constexpr (partial::PRESENT) {
        const uint64_t step = partial::stride(ctx, 3) * 4;
        const uint64_t to = partial::at(ctx, r.point) + (first + q) * PITCH * step;
        *(float *)(to + d * step) = sum;
        if (d == 0) *(float *)(to + HEAD_DIM * step) = largest;
        if (d == 0) *(float *)(to + (HEAD_DIM + 1) * step) = total;
      } else {
        const float result[1] = {total == 0.0f ? 0.0f : sum / total};
        const uint64_t element = (uint64_t)((first + q) * HEAD_DIM + d) * out::stride(ctx, 3);
        gpuos_store<out::DTYPE, 1>(out::at(ctx, r.point) + element * out::BYTES, result);
      }
    }
  }

  // ---- keys through the ring --------------------------------------------------------------------

  // Keys `first` to before `end` of the tile's sequence, with their values, into a stage. False: stop.
  GPUOS_DEVICE bool load_chunk(gpuos_loader &loader, const gpuos_ctx &ctx, const range &r,
                               uint32_t first, uint32_t end) {
    const uint64_t policy = createpolicy_evict_first();
    uint64_t at[CHUNK_PAGES];
    uint32_t full, to, keys = 0;
#pragma unroll
    for (int p = 0; p < CHUNK_PAGES; p++) { // the pages' numbers on their way together
      const uint32_t key = max(first, (first / U::PAGE_SIZE + p) * U::PAGE_SIZE);
      if (key < end && !find_key(ctx, r, key, at[p])) return false;
    }
    if (!gpuos_enter_stream(loader, (end - first) * 2 * ROW_BYTES, full, to)) return false;
#pragma unroll
    for (int p = 0; p < CHUNK_PAGES; p++) {
      const uint32_t key = first + keys, next = (key / U::PAGE_SIZE + 1) * U::PAGE_SIZE;
      if (key >= end) break;
      const uint32_t bytes = (min(next, end) - key) * ROW_BYTES, place = to + keys * ROW_BYTES;
      cp_async_bulk_hint(place, at[p], bytes, full, policy);
      cp_async_bulk_hint(place + CHUNK * ROW_BYTES, at[p] + slots::value_offset(ctx), bytes, full,
                         policy);
      keys = min(next, end) - first;
    }
    return true;
  }

  // The loader's thread. What is outside is a fault, which ends the kernel.
  GPUOS_DEVICE void load(gpuos_loader &loader) {
    if constexpr (RINGS) {
      const gpuos_ctx ctx = {loader.cta, loader.slot, loader.smem};
      range r;
      find_point(ctx, 0, r);
      if (!find_range(ctx, r)) return;
      for (uint32_t key = r.from; key < r.to; key += CHUNK)
        if (!load_chunk(loader, ctx, r, key, min(key + CHUNK, r.to))) return;
    }
  }

  // Keys key_lane(), key_lane() + KEY_LANES.. of a stage's, from number `first` of them.
  GPUOS_DEVICE void load_shared(uint32_t stage, uint32_t first, uint32_t count, look &l) {
#pragma unroll
    for (int i = 0; i < KEYS; i++) {
      const uint32_t key = first + i * KEY_LANES + key_lane();
      if (key < count) l.keys[i].load_shared(stage + key * ROW_BYTES);
      if (key < count) l.values[i].load_shared(stage + (CHUNK + key) * ROW_BYTES);
    }
  }

  GPUOS_DEVICE bool attend_ring(const gpuos_ctx &ctx, const range &r, state &s) {
    gpuos_reader ring = gpuos_read_stream(ctx);
    for (uint32_t from = r.from; from < r.to; from += CHUNK) {
      const uint32_t count = min((uint32_t)CHUNK, r.to - from);
      uint32_t stage;
      if (!gpuos_await_stream(*ctx.cta, ring, stage)) return false;
      for (uint32_t first = 0; first < count; first += KEY_LANES * KEYS) {
        look l;
        load_shared(stage, first, count, l);
        attend(ctx, r, from + first + key_lane(), l, s);
      }
      gpuos_leave_stream(ring);
    }
    gpuos_keep_place(ctx, ring);
    return true;
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool attend_memory(const gpuos_ctx &ctx, const range &r, state &s) {
    bool inside = true;
    for (uint32_t key = r.from; key < r.to; key += KEY_LANES * KEYS) {
      look l;
      inside &= load_keys(ctx, r, key + key_lane(), l);
      attend(ctx, r, key + key_lane(), l, s);
    }
    return inside;
  }

  GPUOS_DEVICE bool run_queries(const gpuos_ctx &ctx, const range &r, uint32_t first) {
    state s;
    {
      own_vectors o;
      own_key own;
      load_own(ctx, r, first + first_query(), o, own);
      begin(r, first + first_query(), o, s);
      if (r.own) attend_own(ctx, r, o.t, own, s);
    }
    const bool whole = RINGS ? attend_ring(ctx, r, s) : attend_memory(ctx, r, s);
    share(ctx, s);
    const bool over = !STAMPED || gpuos_await_clear(ctx);
    gpuos_barrier();
    if (over) store(ctx, r, first);
    gpuos_barrier();
    return whole && over;
  }

  // One query row, KV head and split; where keys come through the ring, the tile has but one.
  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const gpuos_box_t box = ctx.slot->box;
    range r = {};
    bool inside = true, early = false;
    if (RINGS) find_point(ctx, 0, r);
    if (RINGS) early = find_range<false>(ctx, r); // if not, the loader says so
    if (!(STAMPED ? enter_stamped(ctx, r) : gpuos_enter(ctx))) return false;
    if (RINGS && gpuos_thread() == 0)
      st_relaxed_shared(&ctx.cta->worker_loads, 0); // the loader does
    if (RINGS) return early && run_queries(ctx, r, 0);
    for (uint32_t i = 0; i < box.n[0] * box.n[1] * box.n[2] * box.n[3]; i++) {
      find_point(ctx, i, r);
      if (!find_range(ctx, r)) return false; // the same for all threads
      for (uint32_t first = 0; first < U::GROUP; first += AT_ONCE)
        inside &= run_queries(ctx, r, first);
    }
    return inside;
  }
};
