// attention.cuh: ATTENTION, one tile: each query of a KV head's group against its keys.
//
// A group of LANES threads holds one key at a time, RUN or more elements a thread; of the groups with the
// same queries each takes every KEY_LANES-th key, with a running maximum (Milakov and Gimelshein 2018),
// and they are merged at the end, in order. A thread's queries share what is read.
//
// U, the generated instantiation, has operands x, out or partial, and k, v or else cache, pages, pos, seq,
// beside which k and v are those of the rows' own positions; rotation; PAGE_SIZE, HEAD_DIM, GROUP; RUN,
// elements that are loaded at once; NEIGHBOURS, of the rotation. Few queries over a cache of 16 bits, in a
// kernel whose weights stream, are attention_ring.cuh's.
#pragma once
#include "attention_keys.cuh"
#include "rotate.cuh"

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
  using keys = gpuos_attention_keys<U>;
  using range = typename keys::range;

  enum {
    PAGED = keys::PAGED,
    OWN = keys::OWN,
    STORE = keys::STORE,
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
    SMEM_BYTES = KEY_LANES * AT_ONCE * PITCH * 4,
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
    __device__ __forceinline__ void widen(float (&out)[ELEMENTS]) const {
#pragma unroll
      for (int i = 0; i < PER_LANE; i++) run[i].widen(out + i * RUN);
    }
  };

  // How a thread's elements of vectors of this step are rotated.
  using rotate = gpuos_rotate<U>;
  struct turns {
    typename rotate::angles of[PER_LANE] = {}; // a lane without elements adds nothing to scores
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
      const bool found = keys::find_key(ctx, r, first + i * KEY_LANES, key_at, value_at);
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
    const bool inside = attend_memory(ctx, r, s);
    share(ctx, s);
    gpuos_barrier();
    store(ctx, r, first);
    gpuos_barrier();
    return inside;
  }

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const gpuos_box_t box = ctx.slot->box;
    bool inside = true;
    for (uint32_t i = 0; i < box.n[0] * box.n[1] * box.n[2] * box.n[3]; i++) {
      range r;
      keys::find_point(ctx, i, r);
      if (!keys::find_range(ctx, r)) return false; // the same for all threads
      for (uint32_t first = 0; first < U::GROUP; first += AT_ONCE)
        inside &= run_queries(ctx, r, first);
    }
    return inside;
  }
};
