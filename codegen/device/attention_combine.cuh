// attention_combine.cuh: ATTENTION_COMBINE, one tile: merges the splits of ATTENTION, in order.
//
// Everybody waits for it, and it runs on few SMs, where its code is cold: so there is little of that.
//
// U, the generated instantiation, has operands partial, out; HEAD_DIM, GROUP; STAMPED, OUT_STAMPED:
// whether the splits and its results travel stamped.
#pragma once
#include "stamp.cuh"
#include "stream.cuh"

template <class U> struct gpuos_attention_combine {
  using partial = typename U::partial;
  using out = typename U::out;
  using stamped = gpuos_stamped<GPUOS_F32>;
  enum {
    HEAD_DIM = U::HEAD_DIM,
    WIDTH = U::GROUP * HEAD_DIM, // of a KV head's result
    PITCH = HEAD_DIM + 2,        // weighted sums, maximum, sum of exponentials
    RUN = 2,                     // elements of a thread
    // Splits that are on their way at once: few, so that the last one to come has few others to come with.
    BATCH = 4,
    ENDS = U::GROUP * BATCH, // maxima and sums of them, in shared memory
    ENDS_OF_THREAD = (ENDS + GPUOS_THREADS - 1) / GPUOS_THREADS,
    SMEM_BYTES = ENDS * 8,
    ENTERS = 1,
  };
  static_assert(HEAD_DIM % 2 == 0, "two words at once");

  // Splits first.. of one KV head's, of which `count` are looked at.
  struct batch {
    uint64_t from;
    uint32_t split_bytes, count, stamp;
  };
  struct state {
    float sum[RUN], largest, total;
  };

  // ---- load -------------------------------------------------------------------------------------

  // Two floats, `at` bytes into the split; false: they are not there yet.
  GPUOS_DEVICE bool look(const batch &b, uint32_t split, uint32_t at, float (&v)[2]) {
    const uint64_t from = b.from + split * b.split_bytes;
    if constexpr (U::STAMPED) {
      const uint4 words = stamped::load(from + at * 2);
      v[0] = __uint_as_float(words.x), v[1] = __uint_as_float(words.z);
      return stamped::there(words, b.stamp);
    }
    gpuos_load<GPUOS_F32, 2>(from + at, v);
    return true;
  }

  GPUOS_DEVICE float2 *ends(const gpuos_ctx &ctx, uint32_t query) {
    return (float2 *)ctx.smem + query * BATCH;
  }

  // Of this thread's elements from d of `query` on, each split's sum; and the ends that it keeps for all. Beyond
  // the last split it is that one again, with ends that give it no weight. False: stop.
  GPUOS_DEVICE bool load(const gpuos_ctx &ctx, const batch &b, uint32_t query, uint32_t d,
                         float (&sum)[BATCH][RUN]) {
    float end[ENDS_OF_THREAD][2];
    for (bool there = false; !there;) {
      there = true;
#pragma unroll
      for (int i = 0; i < ENDS_OF_THREAD; i++) {
        const uint32_t at = min(gpuos_thread() + i * GPUOS_THREADS, (uint32_t)ENDS - 1);
        there &= look(b, min(at % BATCH, b.count - 1), (at / BATCH * PITCH + HEAD_DIM) * 4, end[i]);
      }
#pragma unroll
      for (int s = 0; s < BATCH; s++)
        there &= look(b, min((uint32_t)s, b.count - 1), (query * PITCH + d) * 4, sum[s]);
      if (!there && gpuos_look_again(ctx)) return false;
    }
#pragma unroll
    for (int i = 0; i < ENDS_OF_THREAD; i++) {
      const uint32_t at = gpuos_thread() + i * GPUOS_THREADS;
      const bool none = at % BATCH >= b.count;
      if (at < ENDS)
        ends(ctx, 0)[at] =
            make_float2(none ? gpuos_minus_infinity() : end[i][0], none ? 0.0f : end[i][1]);
    }
    return true;
  }

  // ---- compute ----------------------------------------------------------------------------------

  // e to the power of a difference.
  GPUOS_DEVICE float weight(float below) { return ex2_approx_f32(below * 1.44269504f); }

  // A split that saw no key has minus infinity, or no total.
  GPUOS_DEVICE void merge(const float2 *ends, const float (&sum)[BATCH][RUN], state &s) {
    float now = s.largest;
#pragma unroll
    for (int b = 0; b < BATCH; b++) now = fmaxf(now, ends[b].x);
    if (now == gpuos_minus_infinity()) return;
    const float old = weight(s.largest - now);
    s.largest = now, s.total *= old;
#pragma unroll
    for (int e = 0; e < RUN; e++) s.sum[e] *= old;
#pragma unroll
    for (int b = 0; b < BATCH; b++) {
      const float factor = weight(ends[b].x - now);
      s.total = fmaf(ends[b].y, factor, s.total);
#pragma unroll
      for (int e = 0; e < RUN; e++) s.sum[e] = fmaf(sum[b][e], factor, s.sum[e]);
    }
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE void store(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                          uint32_t element, const state &s) {
    const uint32_t stamp = gpuos_stamp(ctx.slot->step, ctx.slot->tile.op);
    const uint64_t to = out::at(ctx, point), stride = out::stride(ctx, 3) * (uint64_t)out::BYTES;
#pragma unroll
    for (int e = 0; e < RUN; e++) {
      const float result[1] = {s.total == 0.0f ? 0.0f : s.sum[e] / s.total};
      if constexpr (U::OUT_STAMPED)
        gpuos_stamped<out::DTYPE>::store(*ctx.cta, to + (element + e) * stride, result[0], stamp);
      gpuos_store<out::DTYPE, 1>(to + (element + e) * stride, result);
    }
  }

  // Elements of one KV head's result, from `element` on, of the query row and head at `point`; all threads, of
  // which some have none. `entered`: what it reads has been there before. False: give it up.
  GPUOS_DEVICE bool run_elements(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                                 uint32_t element, bool &entered) {
    const uint32_t splits = partial::extent(ctx, 2), query = element / HEAD_DIM;
    const bool mine = query < U::GROUP;
    batch b = {partial::at(ctx, point), partial::stride(ctx, 2) * 4, 0, 0};
    if constexpr (U::STAMPED) {
      b.from = stamped::at(*ctx.cta, b.from), b.split_bytes *= 2;
      b.stamp = gpuos_stamp(ctx.slot->step, ctx.slot->of->from[0]);
    }
    state s = {{}, gpuos_minus_infinity(), 0.0f};
    float sum[BATCH][RUN];
#pragma unroll 1
    for (uint32_t first = 0; first < splits; first += BATCH) {
      b.count = min(splits - first, (uint32_t)BATCH);
      const bool over = load(ctx, b, mine ? query : 0, element % HEAD_DIM, sum);
      if (gpuos_barrier_or(!over)) return false;
      if (!entered) gpuos_say_entered(ctx);
      entered = true;
      if (mine) merge(ends(ctx, query), sum, s);
      gpuos_barrier();
      b.from += BATCH * (uint64_t)b.split_bytes;
    }
    if (U::STAMPED && gpuos_barrier_or(!gpuos_await_clear(ctx))) return false;
    if (mine) store(ctx, point, element, s);
    return true;
  }

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const gpuos_box_t &box = ctx.slot->box;
    if (!(U::STAMPED ? gpuos_take_memory(ctx) : gpuos_enter(ctx))) return false;
    bool over = true, entered = !U::STAMPED;
#pragma unroll 1
    for (uint32_t vector = 0; over && vector < box.n[1] * box.n[2]; vector++) {
      const uint32_t point[GPUOS_DIMS] = {0, box.lo[1] + vector / box.n[2],
                                          box.lo[2] + vector % box.n[2], 0};
#pragma unroll 1
      for (uint32_t first = 0; over && first < WIDTH; first += GPUOS_THREADS * RUN)
        over = run_elements(ctx, point, first + gpuos_thread() * RUN, entered);
    }
    return over;
  }
};
