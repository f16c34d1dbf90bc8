// attention_combine.cuh: ATTENTION_COMBINE, one tile: merges the splits of ATTENTION, in order.
//
// Everybody waits for it, and it runs on few SMs, where its code is cold: so there is little of that, and a warp
// has a split, so that all of them are on their way at once and each is taken as it comes.
//
// U, the generated instantiation, has operands partial, out, pos; HEAD_DIM, GROUP; STAMPED, OUT_STAMPED:
// whether the splits and its results travel stamped.
#pragma once
#include "stamp.cuh"
#include "stream.cuh"

template <class U> struct gpuos_attention_combine {
  using partial = typename U::partial;
  using out = typename U::out;
  using pos = typename U::pos;
  using stamped = gpuos_stamped<GPUOS_F32>;
  enum {
    HEAD_DIM = U::HEAD_DIM,
    WIDTH = U::GROUP * HEAD_DIM, // of a KV head's result
    PITCH = HEAD_DIM + 2,        // weighted sums, maximum, sum of exponentials
    RUN = 2,                     // elements of a thread
    ROUND = GPUOS_THREADS * RUN, // elements at once
    LOADS = ROUND / (32 * RUN),  // of a lane
    // Queries that they are of, at most; an end each: a maximum and a sum.
    QUERIES = (ROUND - 1) / HEAD_DIM + 2 < U::GROUP ? (ROUND - 1) / HEAD_DIM + 2 : U::GROUP,
    ENDS_AT = GPUOS_WARPS * ROUND * 4,
    SMEM_BYTES = ENDS_AT + GPUOS_WARPS * QUERIES * 8,
    ENTERS = 1,
  };
  static_assert(HEAD_DIM % RUN == 0, "two words at once");
  static_assert(QUERIES <= 32, "a lane has an end");

  struct state {
    float sum[RUN], largest, total;
  };

  // Elements from `first` on of one KV head's result, of the query row and head at `point`.
  struct round {
    uint32_t point[GPUOS_DIMS];
    uint32_t first, splits; // of these, that have keys
    uint64_t from;          // the first split
    uint32_t split_bytes, stamp;
  };

  GPUOS_DEVICE uint32_t find_splits(const gpuos_ctx &ctx, uint32_t row) {
    const uint32_t splits = partial::extent(ctx, 2);
    if constexpr (pos::PRESENT) {
      const uint32_t *params = ctx.slot->of->op.params;
      const int position = pos::index(ctx, (uint64_t)row * pos::stride(ctx, 3));
      return gpuos_used_splits(position, splits, params[7], params[4]);
    } else {
      return splits;
    }
  }
  GPUOS_DEVICE void find_round(const gpuos_ctx &ctx, round &r) {
    r.splits = find_splits(ctx, r.point[1]);
    r.from = partial::at(ctx, r.point), r.split_bytes = partial::stride(ctx, 2) * 4, r.stamp = 0;
    if constexpr (U::STAMPED) {
      r.from = stamped::at(*ctx.cta, r.from), r.split_bytes *= 2;
      r.stamp = gpuos_stamp(ctx.slot->step, ctx.slot->of->from[0]);
    }
  }

  // ---- load -------------------------------------------------------------------------------------

  // Two floats, `at` floats into the split; false: they are not there yet.
  GPUOS_DEVICE bool look(const round &r, uint64_t split, uint32_t at, float (&v)[RUN]) {
    if constexpr (U::STAMPED) {
      const uint4 words = stamped::load(split + at * 8);
      v[0] = __uint_as_float(words.x), v[1] = __uint_as_float(words.z);
      return stamped::there(words, r.stamp);
    }
    gpuos_load<GPUOS_F32, RUN>(split + at * 4, v);
    return true;
  }
  // Where element `e` of the result lies in a split: behind each query are its ends.
  GPUOS_DEVICE uint32_t place_of(uint32_t e) { return e / HEAD_DIM * PITCH + e % HEAD_DIM; }

  // This warp's split, into shared memory, or, if nobody `waits`, what is there of it. What is beyond the result is
  // its last words again. False: stop.
  GPUOS_DEVICE bool load(const gpuos_ctx &ctx, const round &r, uint32_t split, bool waits) {
    const uint64_t from = r.from + (uint64_t)split * r.split_bytes;
    const uint32_t query = min(r.first / HEAD_DIM + gpuos_lane(), (uint32_t)U::GROUP - 1);
    float sum[LOADS][RUN], end[RUN];
    for (bool there = false; !there;) {
      there = look(r, from, query * PITCH + HEAD_DIM, end);
#pragma unroll
      for (int i = 0; i < LOADS; i++) {
        const uint32_t e = r.first + (i * 32 + gpuos_lane()) * RUN;
        there &= look(r, from, place_of(min(e, (uint32_t)WIDTH - RUN)), sum[i]);
      }
      if (!waits) break;
      if (!there && gpuos_look_again(ctx)) return false;
    }
    float2 *sums = (float2 *)ctx.smem + gpuos_warp() * (ROUND / 2) + gpuos_lane();
#pragma unroll
    for (int i = 0; i < LOADS; i++) sums[i * 32] = make_float2(sum[i][0], sum[i][1]);
    if (gpuos_lane() < QUERIES) ends(ctx, gpuos_warp())[gpuos_lane()] = make_float2(end[0], end[1]);
    return true;
  }
  GPUOS_DEVICE float2 *ends(const gpuos_ctx &ctx, uint32_t warp) {
    return (float2 *)(ctx.smem + ENDS_AT) + warp * QUERIES;
  }

  // ---- compute ----------------------------------------------------------------------------------

  // e to the power of a difference.
  GPUOS_DEVICE float weight(float below) { return ex2_approx_f32(below * 1.44269504f); }

  // The warps' splits, `count` of them, for this thread's elements, of query number `query` of the round's. A
  // split that saw no key has minus infinity.
  GPUOS_DEVICE void merge(const gpuos_ctx &ctx, uint32_t count, uint32_t query, state &s) {
    float now = s.largest;
    for (uint32_t w = 0; w < count; w++) now = fmaxf(now, ends(ctx, w)[query].x);
    if (now == gpuos_minus_infinity()) return;
    const float old = weight(s.largest - now);
    s.largest = now, s.total *= old;
#pragma unroll
    for (int e = 0; e < RUN; e++) s.sum[e] *= old;
#pragma unroll 4
    for (uint32_t w = 0; w < count; w++) {
      const float2 end = ends(ctx, w)[query];
      const float2 sum = ((const float2 *)ctx.smem)[w * (ROUND / 2) + gpuos_thread()];
      const float factor = weight(end.x - now);
      s.total = fmaf(end.y, factor, s.total);
      s.sum[0] = fmaf(sum.x, factor, s.sum[0]);
      s.sum[1] = fmaf(sum.y, factor, s.sum[1]);
    }
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE void store(const gpuos_ctx &ctx, const round &r, uint32_t element, const state &s) {
    const uint32_t stamp = gpuos_stamp(ctx.slot->step, ctx.slot->tile.op);
    const uint64_t to = out::at(ctx, r.point), stride = out::stride(ctx, 3) * (uint64_t)out::BYTES;
#pragma unroll
    for (int e = 0; e < RUN; e++) {
      const float result[1] = {s.total == 0.0f ? 0.0f : s.sum[e] / s.total};
      if constexpr (U::OUT_STAMPED)
        gpuos_stamped<out::DTYPE>::store(*ctx.cta, to + (element + e) * stride, result[0], stamp);
      gpuos_store<out::DTYPE, 1>(to + (element + e) * stride, result);
    }
  }

  // All threads, of which some have no element. The first splits are merged twice, at first whatever is there: code that
  // has not been run for a layer takes microseconds to come. `entered`: what it reads has been there before. False:
  // give it up.
  GPUOS_DEVICE bool run_round(const gpuos_ctx &ctx, const round &r, bool &entered) {
    const uint32_t element = r.first + gpuos_thread() * RUN;
    bool waits = !U::STAMPED || entered;
    state s;
#pragma unroll 1
    for (uint32_t first = 0; first < r.splits;) {
      const uint32_t split = first + gpuos_warp(), count = min(r.splits - first, GPUOS_WARPS);
      const bool over = split >= r.splits || load(ctx, r, split, waits);
      if (gpuos_barrier_or(!over)) return false;
      if (waits && !entered) gpuos_say_entered(ctx);
      entered |= waits;
      if (first == 0) s = {{}, gpuos_minus_infinity(), 0.0f};
      if (element < WIDTH) merge(ctx, count, element / HEAD_DIM - r.first / HEAD_DIM, s);
      if (waits) first += GPUOS_WARPS;
      if (first < r.splits) gpuos_barrier(); // all are through with those
      waits = true;
    }
    if (element < WIDTH) store(ctx, r, element, s);
    return true;
  }

  // What others have to be through with before it writes has been over for long: they are waited for first, so that
  // the splits are the last thing that is waited for. False: give it up.
  GPUOS_DEVICE bool enter(const gpuos_ctx &ctx) {
    const bool clear = gpuos_await_clear(ctx);
    return gpuos_take_memory(ctx) && !gpuos_barrier_or(!clear);
  }

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const gpuos_box_t &box = ctx.slot->box;
    if (!(U::STAMPED ? enter(ctx) : gpuos_enter(ctx))) return false;
    bool over = true, entered = !U::STAMPED;
#pragma unroll 1
    for (uint32_t vector = 0; over && vector < box.n[1] * box.n[2]; vector++) {
      round r = {{0, box.lo[1] + vector / box.n[2], box.lo[2] + vector % box.n[2], 0}};
      find_round(ctx, r);
#pragma unroll 1
      for (; over && r.first < WIDTH; r.first += ROUND) {
        if (vector > 0 || r.first > 0) gpuos_barrier();
        over = run_round(ctx, r, entered);
      }
    }
    return over;
  }
};
