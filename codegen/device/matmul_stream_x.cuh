// matmul_stream_x.cuh: X of a matmul whose weights stream: into shared memory, once an operator and SM.
//
// It comes as it is, or divided by its rows' root mean squares and multiplied by NORM; from memory, when what
// the tile waits for is over, or stamped, when it is there (stamp.cuh). It stays over all tiles of the operator,
// and over those after it that have the same X.
//
// M rows of K elements of format FROM, to ELEM; NORM, the format of what it is multiplied by, NO_NORM: as it is;
// STAMPED, how it travels; PITCH, bytes from row to row in shared memory; END, bytes of a row with the zeros that follow it. Not
// a unit's: operators with the same X share the code, which is cold whenever an operator begins.
#pragma once
#include "reduce.cuh"
#include "stamp.cuh"
#include "stream.cuh"

enum { GPUOS_NO_NORM = -1 };

// Where it lies in memory.
struct gpuos_x_source {
  uint64_t x, norm;
  uint32_t step; // elements from row to row
};

template <int M, int K, int FROM, int NORM, int ELEM, int STAMPED, int PITCH, int END>
struct gpuos_stream_x {
  using source = gpuos_x_source;

  GPUOS_DEVICE constexpr int up(int n, int to) { return (n + to - 1) / to * to; }
  enum {
    NORMED = NORM != GPUOS_NO_NORM,
    NORM_DTYPE = NORMED ? NORM : (int)GPUOS_F32,
    NORM_BYTES = gpuos_format<NORM_DTYPE>::BYTES,
    CHUNKS = K / 8, // of eight elements of a row
    TURNS = (CHUNKS + GPUOS_THREADS - 1) / GPUOS_THREADS,
    // A thread's part of a row that comes stamped and is to be normalised waits for the others' there.
    KEEPS_ROW = STAMPED && NORMED,
    KEPT = up(M * PITCH + GPUOS_REDUCE_BYTES, 16),
    SMEM_BYTES = KEPT + (KEEPS_ROW ? up(K, 8 * GPUOS_THREADS) * 4 : 0),
  };

  GPUOS_DEVICE uint64_t row_of_x(const source &from, uint32_t row) {
    return from.x + (uint64_t)row * from.step * gpuos_format<FROM>::BYTES;
  }

  // Eight elements of row `row` of X in shared memory, the first and third pair first, as fragments want them.
  GPUOS_DEVICE void put(const gpuos_ctx &ctx, uint32_t row, uint32_t chunk, uint4 words) {
    *(uint4 *)(ctx.smem + row * PITCH + chunk * 16) =
        make_uint4(words.x, words.z, words.y, words.w);
  }

  GPUOS_DEVICE void put_half(const gpuos_ctx &ctx, uint32_t row, uint32_t chunk, int half,
                             uint2 words) {
    uint32_t *to = (uint32_t *)(ctx.smem + row * PITCH + chunk * 16) + half;
    to[0] = words.x, to[2] = words.y;
  }

  // All rows, chunk by chunk.
  GPUOS_DEVICE void copy_rows(const gpuos_ctx &ctx, const source &from) {
    enum { ALL = M * CHUNKS, TURNS_OF_ALL = (ALL + GPUOS_THREADS - 1) / GPUOS_THREADS };
#pragma unroll 8
    for (int i = 0; i < TURNS_OF_ALL; i++) {
      const uint32_t at = gpuos_thread() + i * GPUOS_THREADS, row = at / CHUNKS,
                     chunk = at % CHUNKS;
      if (at < ALL)
        put(ctx, row, chunk, ld_global_cg_v4((const void *)(row_of_x(from, row) + chunk * 16)));
    }
  }

  // What X is multiplied by, on its way before X is there.
  struct weights {
    gpuos_words<NORM_DTYPE, 8> words[NORMED ? (int)TURNS : 1];
  };
  GPUOS_DEVICE void load_weights(const gpuos_ctx &ctx, const source &from, weights &by) {
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
      const uint32_t chunk = gpuos_thread() + i * GPUOS_THREADS;
      if (chunk < CHUNKS) by.words[i].load(from.norm + (uint64_t)chunk * 8 * NORM_BYTES);
    }
  }

  // A thread's loads of a row that travels stamped: its chunks, one after the other.
  using stamped = gpuos_stamped<FROM>;
  using fours = gpuos_stamped_fours;
  enum {
    FOURS = STAMPED == GPUOS_BY_FOURS,
    WORDS = FOURS ? 4 : (int)stamped::WORDS,
    LOADS = 8 / WORDS,
    ROW_LOADS = TURNS * LOADS,
  };
  static_assert(!FOURS || (KEEPS_ROW && FROM == GPUOS_F32), "floats that are normalised");
  GPUOS_DEVICE uint64_t words_of(const gpuos_ctx &ctx, uint64_t row) {
    return FOURS ? fours::at(*ctx.cta, row) : stamped::at(*ctx.cta, row);
  }
  GPUOS_DEVICE uint4 load_words(uint64_t at) {
    return FOURS ? ld_relaxed_gpu_b128(at) : stamped::load(at);
  }
  GPUOS_DEVICE bool are_there(const uint4 &words, uint32_t stamp) {
    return FOURS ? fours::there(words, stamp) : stamped::there(words, stamp);
  }
  GPUOS_DEVICE uint32_t chunk_of(uint32_t load) {
    return gpuos_thread() + load / LOADS * GPUOS_THREADS;
  }

  // Looks until all of it is there, at what is missing alone, as every SM looks and takes from the L2 what others load; hands
  // each load to take(number, words) once it is: in registers only as long as that. False: stop.
  enum { MOST_LOADS = ROW_LOADS < 8 ? (int)ROW_LOADS : 8 }; // at once, as registers last
  template <class TAKE>
  GPUOS_DEVICE bool await_row(const gpuos_ctx &ctx, const source &from, uint32_t row,
                              uint32_t stamp, TAKE take) {
    const uint64_t words_at = words_of(ctx, row_of_x(from, row));
#pragma unroll 1
    for (uint32_t first = 0; first < ROW_LOADS; first += MOST_LOADS) {
      uint32_t missing = 0; // bit i: load number first + i
#pragma unroll
      for (uint32_t i = 0; i < MOST_LOADS; i++)
        if (first + i < ROW_LOADS && chunk_of(first + i) < CHUNKS) missing |= 1u << i;
      while (missing) {
        uint4 words[MOST_LOADS];
#pragma unroll
        for (uint32_t i = 0; i < MOST_LOADS; i++) {
          const uint32_t load = first + i;
          words[i] = make_uint4(0, 0, 0, 0); // what it was in the last look is not kept
          if (missing >> i & 1)
            words[i] = load_words(words_at + chunk_of(load) * (16 * LOADS) + load % LOADS * 16);
        }
        const uint32_t before = missing;
#pragma unroll
        for (uint32_t i = 0; i < MOST_LOADS; i++)
          if ((missing >> i & 1) && are_there(words[i], stamp))
            take(first + i, words[i]), missing &= ~(1u << i);
        if (missing == before && gpuos_look_again(ctx)) return false;
      }
    }
    return true;
  }

  // Where a thread keeps the floats of its load number `load` for itself.
  GPUOS_DEVICE float *kept(const gpuos_ctx &ctx, uint32_t load) {
    return (float *)(ctx.smem + KEPT) + (load * GPUOS_THREADS + gpuos_thread()) * WORDS;
  }
  GPUOS_DEVICE void keep(const gpuos_ctx &ctx, uint32_t load, const uint4 &w) {
    if constexpr (FOURS)
      *(float4 *)kept(ctx, load) =
          make_float4(fours::value(w.x), fours::value(w.y), fours::value(w.z), fours::value(w.w));
    else
      *(float2 *)kept(ctx, load) = make_float2(__uint_as_float(w.x), __uint_as_float(w.z));
  }

  // A thread's chunks of the row, rounded as X is, which are there.
  GPUOS_DEVICE void load_row(const gpuos_ctx &ctx, const source &from, uint32_t row,
                             float (&v)[TURNS][8]) {
    if constexpr (KEEPS_ROW) {
#pragma unroll
      for (int i = 0; i < ROW_LOADS; i++) {
        const bool has = chunk_of(i) < CHUNKS;
#pragma unroll
        for (int e = 0; e < WORDS; e++)
          v[i / LOADS][i % LOADS * WORDS + e] = has ? kept(ctx, i)[e] : 0.0f;
      }
    } else {
      const uint64_t at = row_of_x(from, row);
#pragma unroll
      for (int i = 0; i < TURNS; i++) {
        const uint32_t chunk = gpuos_thread() + i * GPUOS_THREADS;
        if (chunk < CHUNKS)
          gpuos_load<FROM, 8>(at + (uint64_t)chunk * 8 * gpuos_format<FROM>::BYTES, v[i]);
      }
    }
  }

  // Divided by its root mean square, rounded as X is, times NORM, rounded to ELEM.
  GPUOS_DEVICE void normalise(const gpuos_ctx &ctx, const source &from, uint32_t row,
                              const weights &by) {
    float v[TURNS][8] = {}, sum = 0.0f;
    load_row(ctx, from, row, v);
#pragma unroll
    for (int i = 0; i < TURNS; i++)
#pragma unroll
      for (int e = 0; e < 8; e++) sum = fmaf(v[i][e], v[i][e], sum);
    sum = gpuos_reduce_sum(sum, ctx.smem + M * PITCH);
    const float scale = scale_of(ctx, sum);
#pragma unroll
    for (int i = 0; i < TURNS; i++) {
      const uint32_t chunk = gpuos_thread() + i * GPUOS_THREADS;
      if (chunk < CHUNKS) put(ctx, row, chunk, scaled(v[i], by.words[i], scale));
    }
  }

  // False: stop.
  GPUOS_DEVICE bool normalise_row(const gpuos_ctx &ctx, const source &from, uint32_t row,
                                  uint32_t stamp, const weights &by) {
    bool over = true;
    if constexpr (KEEPS_ROW)
      over = await_row(ctx, from, row, stamp, [&](uint32_t i, const uint4 &w) { keep(ctx, i, w); });
    normalise(ctx, from, row, by);
    return over;
  }

  // Half a chunk with each load.
  GPUOS_DEVICE bool copy_stamped(const gpuos_ctx &ctx, const source &from, uint32_t row,
                                 uint32_t stamp) {
    static_assert(stamped::BYTES == 2, "X has the format that W has");
    return await_row(ctx, from, row, stamp, [&](uint32_t i, const uint4 &w) {
      put_half(ctx, row, chunk_of(i), i % 2, stamped::pack(w));
    });
  }

  GPUOS_DEVICE uint4 scaled(const float (&v)[8], const gpuos_words<NORM_DTYPE, 8> &by,
                            float scale) {
    float weight[8], result[8];
    by.widen(weight);
#pragma unroll
    for (int e = 0; e < 8; e++) result[e] = gpuos_round<FROM>(v[e] * scale) * weight[e];
    using format = gpuos_format<ELEM>;
    return make_uint4(format::narrow(result), format::narrow(result + 2),
                      format::narrow(result + 4), format::narrow(result + 6));
  }

  // Of more rows than two a warp has its own, and nobody waits for the others; it reads them twice.
  GPUOS_DEVICE void normalise_rows(const gpuos_ctx &ctx, const source &from) {
    for (uint32_t row = gpuos_warp(); row < M; row += GPUOS_WARPS) {
      const uint64_t at = row_of_x(from, row);
      float sum = 0.0f;
#pragma unroll 4
      for (uint32_t chunk = gpuos_lane(); chunk < CHUNKS; chunk += 32) {
        float v[8];
        gpuos_load<FROM, 8>(at + (uint64_t)chunk * 8 * gpuos_format<FROM>::BYTES, v);
#pragma unroll
        for (int e = 0; e < 8; e++) sum = fmaf(v[e], v[e], sum);
      }
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
      const float scale = scale_of(ctx, sum);
#pragma unroll 4
      for (uint32_t chunk = gpuos_lane(); chunk < CHUNKS; chunk += 32) {
        float v[8];
        gpuos_words<NORM_DTYPE, 8> by;
        gpuos_load<FROM, 8>(at + (uint64_t)chunk * 8 * gpuos_format<FROM>::BYTES, v);
        by.load(from.norm + (uint64_t)chunk * 8 * NORM_BYTES);
        put(ctx, row, chunk, scaled(v, by, scale));
      }
    }
  }

  GPUOS_DEVICE float scale_of(const gpuos_ctx &ctx, float squares) {
    const float mean = squares / (float)K;
    return 1.0f / sqrtf(mean + __uint_as_float(ctx.slot->of->op.params[0]));
  }

  GPUOS_DEVICE void pad_row(const gpuos_ctx &ctx, uint32_t row) {
    for (uint32_t chunk = CHUNKS + gpuos_thread(); chunk < END / 16; chunk += GPUOS_THREADS)
      put(ctx, row, chunk, make_uint4(0, 0, 0, 0));
  }

  // X as it is wanted. False: stop.
  GPUOS_DEVICE bool fetch_x(const gpuos_ctx &ctx, const source &from, const weights &by) {
    const gpuos_slot &slot = *ctx.slot;
    const uint32_t stamp = STAMPED ? gpuos_stamp(slot.step, slot.of->from[0]) : 0;
    bool over = true;
    if constexpr (NORMED && M > 2) {
      normalise_rows(ctx, from);
    } else if constexpr (NORMED) {
      for (uint32_t row = 0; row < M; row++) over &= normalise_row(ctx, from, row, stamp, by);
    } else if constexpr (STAMPED) {
      for (uint32_t row = 0; row < M; row++) over &= copy_stamped(ctx, from, row, stamp);
    } else {
      copy_rows(ctx, from);
    }
    return over;
  }

  // All warps: X into shared memory, once it is there, unless it lies there already. False: stop. A
  // function of its own, once an operator: what it keeps in registers is nothing to the tiles' loop.
  static __device__ __noinline__ bool load(uint32_t turn, source from) {
    const gpuos_ctx ctx = gpuos_find_ctx(turn);
    gpuos_flow &flow = ctx.cta->flow[gpuos_warp()];
    // What tells it from what lay there before in the step: who stamped it, or what was waited for.
    const uint64_t mark = STAMPED ? ~(uint64_t)gpuos_stamp(ctx.slot->step, ctx.slot->of->from[0])
                                  : gpuos_wait_mark(*ctx.slot);
    const uint32_t op = ctx.slot->tile.op;
    if (flow.op == op && flow.x_met == mark) return true; // the operator's tile before
    constexpr uint64_t FORM = (((uint64_t)K * 64 + M) * 16 + ELEM) * 16 + FROM;
    const uint32_t eps = ctx.slot->of->op.params[0];
    const bool there = flow.op != GPUOS_NONE && flow.x == from.x && flow.x_norm == from.norm &&
                       flow.x_met == mark && flow.x_form == FORM && flow.x_step == from.step &&
                       flow.x_eps == eps;
    weights by;
    if constexpr (NORMED && M <= 2)
      if (!there) load_weights(ctx, from, by);
    if (!STAMPED && !gpuos_await_inputs(ctx)) return false;
    if (!there) {
      if (!gpuos_yield(ctx)) return false; // nobody reads what lies there
      const bool over = fetch_x(ctx, from, by);
      for (uint32_t row = 0; row < M; row++) pad_row(ctx, row);
      if (gpuos_barrier_or(!over)) return false;
      if (gpuos_thread() == 0) gpuos_begin_unit(*ctx.cta);
    }
    __syncwarp(); // all lanes have looked
    if (gpuos_lane0()) {
      flow.op = op, flow.x = from.x, flow.x_norm = from.norm, flow.x_met = mark, flow.x_form = FORM;
      flow.x_step = from.step, flow.x_eps = eps;
    }
    __syncwarp();
    return true;
  }
};
