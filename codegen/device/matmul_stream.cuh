// matmul_stream.cuh: MATMUL of a few rows of X, one tile: W is read once, as it lies, through the ring of
// stream.cuh; X stays in shared memory over all tiles of an operator.
//
// The tensor cores see W as 8 columns: ROWS rows of W, each cut into SEGS = 8 / ROWS segments of 32
// elements, and X as 16 rows: the same segments of 2 ROWS rows. Of the 16 x 8 products those of equal
// segments count; their sum over segments is the result. So a warp's load of 512 bytes of W is what two
// mma.m16n8k16 need, without bank conflicts or packing, however few the rows of W are: K in a fragment
// may run in any order that A and B share. A piece is what a warp loads at once: SEGS * 64 bytes of
// each of ROWS rows; the pieces of a row go round the warps.
//
// U, the generated instantiation, has operands x, w0, w1, norm, out, inputs; M, rows of X; K; TILE_N;
// ROWS; ELEM, the format of W and of X in shared memory; X_STAMPED, OUT_STAMPED: what travels stamped
// (stamp.cuh); of(acc, in), the expression.
#pragma once
#include "reduce.cuh"
#include "stamp.cuh"
#include "stream.cuh"

template <class U> struct gpuos_matmul_stream {
  using x = typename U::x;
  using w0 = typename U::w0;
  using w1 = typename U::w1;
  using norm = typename U::norm;
  using out = typename U::out;
  using inputs = typename U::inputs;

  GPUOS_DEVICE constexpr int up(int n, int to) { return (n + to - 1) / to * to; }
  enum {
    COUNT = w1::PRESENT ? 2 : 1,
    M = U::M,
    ROWS = U::ROWS,
    SEGS = 8 / ROWS,
    ROW_BYTES = U::K * 2,
    PIECE_BYTES = SEGS * 64, // of one row
    ROW_PIECES = (ROW_BYTES + PIECE_BYTES - 1) / PIECE_BYTES,
    // Two whole rows in a phase of a load would lie in the same banks.
    PAD = SEGS == 1 ? 64 : 0,
    // Whole rows in a stage, in groups of ROWS that are multiplied together; or a part of one group.
    FIT = GPUOS_STREAM_BYTES / (ROWS * (ROW_BYTES + PAD)),
    GROUPS = FIT <= 1   ? 1
             : FIT > 16 ? 16
                        : FIT / 2 * 2,
    MOST_PIECES = (GPUOS_STREAM_BYTES / ROWS - PAD) / PIECE_BYTES / GPUOS_WARPS * GPUOS_WARPS,
    PARTS = FIT ? 1 : (ROW_PIECES + MOST_PIECES - 1) / MOST_PIECES,
    PART_PIECES = PARTS == 1 ? (int)ROW_PIECES : up((ROW_PIECES + PARTS - 1) / PARTS, GPUOS_WARPS),
    PART_BYTES = PART_PIECES * PIECE_BYTES, // of one row
    PITCH = (PARTS == 1 ? (int)ROW_BYTES : (int)PART_BYTES) + PAD,
    STAGE_ROWS = GROUPS * ROWS,
    TURNS = (PART_PIECES + GPUOS_WARPS - 1) / GPUOS_WARPS, // pieces of a warp
    EVEN = ROW_BYTES % (GPUOS_WARPS * PIECE_BYTES) == 0,   // in each part all warps have as many
    X_PITCH = ROW_PIECES * PIECE_BYTES + PAD,              // zeros follow K
    // A thread's part of a row that comes stamped and is to be normalised waits for the others' there.
    KEEPS_ROW = U::X_STAMPED && norm::PRESENT,
    KEPT = up(M * X_PITCH + GPUOS_REDUCE_BYTES, 16),
    SMEM_BYTES = KEPT + (KEEPS_ROW ? up(U::K, 8 * GPUOS_THREADS) * 4 : 0),
    SUM_BYTES = COUNT * U::TILE_N * M * GPUOS_WARPS * 4,
    BOTH_HALVES = M > ROWS, // of a fragment's 16 rows
    BULK = 1,
  };
  static_assert(M <= 2 * ROWS, "rows of X");
  static_assert(PARTS == 1 || PART_PIECES <= MOST_PIECES, "a part is a stage");
  static_assert(TURNS <= 8, "what a warp loads at once");

  // ---- load: the loader's thread ----------------------------------------------------------------

  GPUOS_DEVICE uint32_t part_bytes(uint32_t part) {
    const uint32_t from = part * PART_BYTES;
    return PARTS == 1 ? ROW_BYTES : min((uint32_t)PART_BYTES, ROW_BYTES - from);
  }

  // Stage by stage, in the order of run.
  GPUOS_DEVICE void load(gpuos_loader &loader) {
    const gpuos_slot &slot = *loader.slot;
    const uint32_t n = slot.box.n[2];
    const uint64_t skip = (uint64_t)slot.box.lo[2] * ROW_BYTES;
    const uint64_t w[2] = {slot.of->places[w0::PLACE].address + skip,
                           COUNT == 2 ? slot.of->places[second_place()].address + skip : 0};
    for (uint32_t first = 0; first < n; first += STAGE_ROWS) {
      const uint32_t rows = min(n - first, (uint32_t)STAGE_ROWS);
#pragma unroll
      for (int c = 0; c < COUNT; c++)
#pragma unroll 1
        for (uint32_t part = 0; part < PARTS; part++)
          if (!load_stage(loader, w[c] + (uint64_t)first * ROW_BYTES, rows, part)) return;
    }
  }
  GPUOS_DEVICE constexpr int second_place() {
    if constexpr (w1::PRESENT) return w1::PLACE;
    return 0;
  }

  // In one copy, if rows follow each other there as they do here: few long copies are faster.
  GPUOS_DEVICE bool load_stage(gpuos_loader &loader, uint64_t from, uint32_t rows, uint32_t part) {
    const uint32_t bytes = part_bytes(part);
    const uint64_t policy = createpolicy_evict_first();
    uint32_t full, to;
    if (!gpuos_enter_stream(loader, rows * bytes, full, to)) return false;
    if constexpr (PITCH == ROW_BYTES) {
      cp_async_bulk_hint(to, from, rows * bytes, full, policy);
    } else {
      for (uint32_t r = 0; r < rows; r++)
        cp_async_bulk_hint(to + r * PITCH, from + r * ROW_BYTES + part * PART_BYTES, bytes, full,
                           policy);
    }
    return true;
  }

  // ---- X ----------------------------------------------------------------------------------------

  enum { CHUNKS = U::K / 8, TURNS_OF_X = (CHUNKS + GPUOS_THREADS - 1) / GPUOS_THREADS };

  GPUOS_DEVICE uint64_t row_of_x(const gpuos_ctx &ctx, uint32_t row) {
    const uint32_t point[GPUOS_DIMS] = {0, row, 0, 0};
    return x::at(ctx, point);
  }

  // Eight elements of row `row` of X in shared memory, as `add` wants them.
  GPUOS_DEVICE void put(const gpuos_ctx &ctx, uint32_t row, uint32_t chunk, uint4 words) {
    if (!BOTH_HALVES) words = make_uint4(words.x, words.z, words.y, words.w);
    *(uint4 *)(ctx.smem + row * X_PITCH + chunk * 16) = words;
  }

  GPUOS_DEVICE void put_half(const gpuos_ctx &ctx, uint32_t row, uint32_t chunk, int half,
                             uint2 words) {
    uint32_t *to = (uint32_t *)(ctx.smem + row * X_PITCH + chunk * 16);
    if (BOTH_HALVES)
      *(uint2 *)(to + 2 * half) = words;
    else
      to[half] = words.x, to[2 + half] = words.y;
  }

  // All rows, chunk by chunk.
  GPUOS_DEVICE void copy_rows(const gpuos_ctx &ctx) {
    enum { ALL = M * CHUNKS, TURNS_OF_ALL = (ALL + GPUOS_THREADS - 1) / GPUOS_THREADS };
#pragma unroll 8
    for (int i = 0; i < TURNS_OF_ALL; i++) {
      const uint32_t at = gpuos_thread() + i * GPUOS_THREADS, row = at / CHUNKS,
                     chunk = at % CHUNKS;
      if (at < ALL)
        put(ctx, row, chunk, ld_global_cg_v4((const void *)(row_of_x(ctx, row) + chunk * 16)));
    }
  }

  // What X is multiplied by, on its way before X is there.
  enum { NORM_DTYPE = norm::DTYPE };
  struct weights {
    gpuos_words<NORM_DTYPE, 8> words[norm::PRESENT ? (int)TURNS_OF_X : 1];
  };
  GPUOS_DEVICE void load_weights(const gpuos_ctx &ctx, weights &by) {
#pragma unroll
    for (int i = 0; i < TURNS_OF_X; i++) {
      const uint32_t chunk = gpuos_thread() + i * GPUOS_THREADS;
      if (chunk < CHUNKS) by.words[i].load(norm::base(ctx) + (uint64_t)chunk * 8 * norm::BYTES);
    }
  }

  // A thread's loads of a row that travels stamped: its chunks, one after the other.
  using stamped = gpuos_stamped<x::DTYPE>;
  enum { LOADS = 8 / stamped::WORDS, ROW_LOADS = TURNS_OF_X * LOADS };
  GPUOS_DEVICE uint32_t chunk_of(int load) { return gpuos_thread() + load / LOADS * GPUOS_THREADS; }

  // Looks until all of it is there, and hands each load to take(number, words) once it is: in registers only
  // as long as that. First it looks at the words that are likely to come last, which leaves memory to others.
  // False: stop.
  template <class TAKE>
  GPUOS_DEVICE bool await_row(const gpuos_ctx &ctx, uint32_t row, uint32_t stamp, TAKE take) {
    const uint64_t from = stamped::at(*ctx.cta, row_of_x(ctx, row));
    if (CHUNKS < GPUOS_THREADS && gpuos_thread() >= CHUNKS) return true;
    const uint32_t last = CHUNKS - 1 - (CHUNKS - 1 - gpuos_thread()) % GPUOS_THREADS;
    bool there = false, stop = false;
    while (!there && !stop) {
      there = stamped::there(stamped::load(from + last * (16 * LOADS)), stamp);
      stop = !there && gpuos_look_again(ctx);
    }
    for (there = false; !there && !stop;) {
      uint4 words[ROW_LOADS];
#pragma unroll
      for (int i = 0; i < ROW_LOADS; i++)
        words[i] = stamped::load(from + min(chunk_of(i), last) * (16 * LOADS) + i % LOADS * 16);
      there = true;
#pragma unroll
      for (int i = 0; i < ROW_LOADS; i++) {
        there &= stamped::there(words[i], stamp);
        if (chunk_of(i) < CHUNKS) take(i, words[i]);
      }
      stop = !there && gpuos_look_again(ctx);
    }
    return there;
  }

  // Where a thread keeps floats of its load number `load` for itself.
  GPUOS_DEVICE float2 *kept(const gpuos_ctx &ctx, int load) {
    return (float2 *)(ctx.smem + KEPT) + load * GPUOS_THREADS + gpuos_thread();
  }

  // A thread's chunks of the row, rounded as X is. False: stop.
  GPUOS_DEVICE bool load_row(const gpuos_ctx &ctx, uint32_t row, uint32_t stamp,
                             float (&v)[TURNS_OF_X][8]) {
    bool over = true;
    if constexpr (KEEPS_ROW) {
      over = await_row(ctx, row, stamp, [&](int i, const uint4 &w) {
        *kept(ctx, i) = make_float2(__uint_as_float(w.x), __uint_as_float(w.z));
      });
#pragma unroll
      for (int i = 0; i < ROW_LOADS; i++) {
        const float2 two = *kept(ctx, i);
        const bool has = chunk_of(i) < CHUNKS;
        v[i / LOADS][i % LOADS * 2] = has ? two.x : 0.0f;
        v[i / LOADS][i % LOADS * 2 + 1] = has ? two.y : 0.0f;
      }
    } else {
      const uint64_t from = row_of_x(ctx, row);
#pragma unroll
      for (int i = 0; i < TURNS_OF_X; i++) {
        const uint32_t chunk = gpuos_thread() + i * GPUOS_THREADS;
        if (chunk < CHUNKS) gpuos_load<x::DTYPE, 8>(from + (uint64_t)chunk * 8 * x::BYTES, v[i]);
      }
    }
    return over;
  }

  // Divided by its root mean square, rounded as X is, times NORM, rounded to ELEM. False: stop.
  GPUOS_DEVICE bool normalise_row(const gpuos_ctx &ctx, uint32_t row, uint32_t stamp,
                                  const weights &by) {
    float v[TURNS_OF_X][8] = {}, sum = 0.0f;
    const bool over = load_row(ctx, row, stamp, v);
#pragma unroll
    for (int i = 0; i < TURNS_OF_X; i++)
#pragma unroll
      for (int e = 0; e < 8; e++) sum = fmaf(v[i][e], v[i][e], sum);
    sum = gpuos_reduce_sum(sum, ctx.smem + M * X_PITCH);
    const float scale = scale_of(ctx, sum);
#pragma unroll
    for (int i = 0; i < TURNS_OF_X; i++) {
      const uint32_t chunk = gpuos_thread() + i * GPUOS_THREADS;
      if (chunk < CHUNKS) put(ctx, row, chunk, scaled(v[i], by.words[i], scale));
    }
    return over;
  }

  // Half a chunk with each load.
  GPUOS_DEVICE bool copy_stamped(const gpuos_ctx &ctx, uint32_t row, uint32_t stamp) {
    if constexpr (stamped::BYTES == 2)
      return await_row(ctx, row, stamp, [&](int i, const uint4 &w) {
        put_half(ctx, row, chunk_of(i), i % 2, stamped::pack(w));
      });
    return false; // X has the format that W has
  }

  GPUOS_DEVICE uint4 scaled(const float (&v)[8], const gpuos_words<NORM_DTYPE, 8> &by,
                            float scale) {
    float weight[8], result[8];
    by.widen(weight);
#pragma unroll
    for (int e = 0; e < 8; e++) result[e] = gpuos_round<x::DTYPE>(v[e] * scale) * weight[e];
    using format = gpuos_format<U::ELEM>;
    return make_uint4(format::narrow(result), format::narrow(result + 2),
                      format::narrow(result + 4), format::narrow(result + 6));
  }

  // Of more rows than two a warp has its own, and nobody waits for the others; it reads them twice.
  GPUOS_DEVICE void normalise_rows(const gpuos_ctx &ctx) {
    for (uint32_t row = gpuos_warp(); row < M; row += GPUOS_WARPS) {
      const uint64_t from = row_of_x(ctx, row);
      float sum = 0.0f;
#pragma unroll 4
      for (uint32_t chunk = gpuos_lane(); chunk < CHUNKS; chunk += 32) {
        float v[8];
        gpuos_load<x::DTYPE, 8>(from + (uint64_t)chunk * 8 * x::BYTES, v);
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
        gpuos_load<x::DTYPE, 8>(from + (uint64_t)chunk * 8 * x::BYTES, v);
        by.load(norm::base(ctx) + (uint64_t)chunk * 8 * norm::BYTES);
        put(ctx, row, chunk, scaled(v, by, scale));
      }
    }
  }

  GPUOS_DEVICE float scale_of(const gpuos_ctx &ctx, float squares) {
    const float mean = squares / (float)U::K;
    return 1.0f / sqrtf(mean + __uint_as_float(ctx.slot->of->op.params[0]));
  }

  GPUOS_DEVICE void pad_row(const gpuos_ctx &ctx, uint32_t row) {
    constexpr uint32_t END = ROW_PIECES * PIECE_BYTES / 16;
    for (uint32_t chunk = CHUNKS + gpuos_thread(); chunk < END; chunk += GPUOS_THREADS)
      put(ctx, row, chunk, make_uint4(0, 0, 0, 0));
  }

  // X as it is wanted. False: stop.
  GPUOS_DEVICE bool fetch_x(const gpuos_ctx &ctx, const weights &by) {
    const gpuos_slot &slot = *ctx.slot;
    const uint32_t stamp = U::X_STAMPED ? gpuos_stamp(slot.step, slot.of->from[0]) : 0;
    bool over = true;
    if constexpr (norm::PRESENT && M > 2) {
      normalise_rows(ctx);
    } else if constexpr (norm::PRESENT) {
      for (uint32_t row = 0; row < M; row++) over &= normalise_row(ctx, row, stamp, by);
    } else if constexpr (U::X_STAMPED) {
      for (uint32_t row = 0; row < M; row++) over &= copy_stamped(ctx, row, stamp);
    } else {
      copy_rows(ctx);
    }
    return over;
  }

  // All warps: X into shared memory, once it is there, unless it lies there already. False: stop. A
  // function of its own, once an operator: what it keeps in registers is nothing to the tiles' loop.
  static __device__ __noinline__ bool load_x(gpuos_ctx ctx) {
    gpuos_flow &flow = ctx.cta->flow[gpuos_warp()];
    const uint64_t mark = gpuos_wait_mark(*ctx.slot);
    const uint32_t op = ctx.slot->tile.op;
    if (flow.op == op && flow.x_met == mark) return true; // the operator's tile before
    uint64_t with = 0;
    if constexpr (norm::PRESENT) with = norm::base(ctx);
    constexpr uint64_t FORM = (((uint64_t)U::K * 64 + M) * 16 + U::ELEM) * 16 + x::DTYPE;
    const uint64_t base = x::base(ctx);
    const uint32_t step = x::step(ctx, 1), eps = ctx.slot->of->op.params[0];
    const bool there = flow.op != GPUOS_NONE && flow.x == base && flow.x_norm == with &&
                       flow.x_met == mark && flow.x_form == FORM && flow.x_step == step &&
                       flow.x_eps == eps;
    weights by;
    if constexpr (norm::PRESENT && M <= 2)
      if (!there) load_weights(ctx, by);
    if (!U::X_STAMPED && !gpuos_await_inputs(ctx)) return false;
    if (!there) {
      if (!gpuos_yield(ctx)) return false; // nobody reads what lies there
      const bool over = fetch_x(ctx, by);
      for (uint32_t row = 0; row < M; row++) pad_row(ctx, row);
      if (gpuos_barrier_or(!over)) return false;
      if (gpuos_thread() == 0) gpuos_begin_unit(*ctx.cta);
    }
    __syncwarp(); // all lanes have looked
    if (gpuos_lane0()) {
      flow.op = op, flow.x = base, flow.x_norm = with, flow.x_met = mark, flow.x_form = FORM;
      flow.x_step = step, flow.x_eps = eps;
    }
    __syncwarp();
    return true;
  }

  // ---- multiply: a warp -------------------------------------------------------------------------

  GPUOS_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (U::ELEM == GPUOS_BF16)
      mma_m16n8k16_bf16(c, a, b0, b1);
    else
      mma_m16n8k16_f16(c, a, b0, b1);
  }

  enum { HALVES = BOTH_HALVES ? 2 : 1, EVEN_BIT = 1, ODD_BIT = 2, NO_ROW = 1 << 30 };

  // What depends on the lane alone, in registers: asking for the lane's number takes as long as two products.
  struct place {
    uint32_t row, skip, w, x; // its 16 bytes of its warp's first piece: in a group of W, and in X
    uint32_t takes;           // which of its two sums are those of equal segments
    uint32_t kept;            // which row of a group it keeps the sum of, or NO_ROW
    uint32_t sum[HALVES];     // where: bytes from the group's first
    bool has[HALVES];         // X has that row
  };
  GPUOS_DEVICE place find_place(const gpuos_ctx &ctx) {
    const uint32_t lane = gpuos_lane(), g = lane / 4, q = lane % 4, row = g / SEGS;
    const uint32_t skip = gpuos_warp() * PIECE_BYTES + (g % SEGS * 4 + q) * 16;
    const bool one = SEGS == 1 || (g % SEGS == 0 && q % (SEGS / 2) == 0);
    const uint32_t even = g % SEGS == 2 * q % SEGS, odd = g % SEGS == (2 * q + 1) % SEGS;
    const uint32_t kept = SEGS == 1 ? 2 * q : q / (SEGS / 2);
    place p = {row, skip, row * PITCH + skip, mov_shared_address(ctx.smem) + row * X_PITCH + skip};
    p.takes = mov_u32(even * EVEN_BIT + odd * ODD_BIT);
    p.kept = mov_u32(one ? kept : (uint32_t)NO_ROW);
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
      p.sum[half] = mov_u32(sum_at(0, kept, row + half * ROWS) + gpuos_warp() * 4);
      p.has[half] = row + half * ROWS < M;
    }
    return p;
  }

  enum {
    // A warp's part of X is the same in all stages, and stays in registers if those last.
    STAYS = PARTS == 1 && (!BOTH_HALVES || TURNS <= 4),
    X_PIECES = STAYS ? (int)TURNS : 4, // of X in registers at once
    // What a warp loads while it multiplies what it has loaded before: a group of a stage, or of a group
    // half of the pieces.
    CHUNKS_OF_STAGE = GROUPS == 1 ? 2 : (int)GROUPS,
    CHUNK = GROUPS == 1 ? (TURNS + 1) / 2 : (int)TURNS, // pieces
    // Of one result, so that products wait for fewer others.
    SUMS = BOTH_HALVES ? 2 : 4,
  };
  static_assert(CHUNKS_OF_STAGE % 2 == 0 && CHUNK <= 4, "two sets of registers in turn");

  // A lane's part of X, of so many pieces. Lanes whose rows X does not have keep what is there: it only
  // gets into results that nobody looks at.
  struct fragment {
    uint4 low[X_PIECES], high[BOTH_HALVES ? (int)X_PIECES : 1];
  };
  GPUOS_DEVICE void load_fragment(fragment &f, const place &p, uint32_t xs) {
#pragma unroll
    for (int i = 0; i < X_PIECES; i++) {
      const uint32_t at = xs + p.x + i * GPUOS_WARPS * PIECE_BYTES;
      if (p.row < M) f.low[i] = ld_shared_v4(at);
      if (BOTH_HALVES && p.row + ROWS < M) f.high[i] = ld_shared_v4(at + ROWS * X_PITCH);
    }
  }

  // Where half of a fragment's rows would do, a lane's words are a fragment as they are: the first product is
  // in its lower half, the second in its upper one.
  GPUOS_DEVICE void multiply_piece(float (&first)[4], float (&second)[4], const fragment &f, int i,
                                   const uint4 &w) {
    const uint4 &low = f.low[i], &high = f.high[BOTH_HALVES ? i : 0];
    if constexpr (BOTH_HALVES) {
      mma(first, {low.x, high.x, low.y, high.y}, w.x, w.y);
      mma(second, {low.z, high.z, low.w, high.w}, w.z, w.w);
    } else {
      mma(first, {low.x, low.y, low.z, low.w}, w.x, w.y);
      mma(second, {low.x, low.y, low.z, low.w}, w.z, w.w);
    }
  }

  // This warp's pieces of a group of rows, from number `from` on.
  struct words {
    uint4 piece[CHUNK];
  };
  GPUOS_DEVICE void load_words(words &w, const place &p, uint32_t ws, int from, uint32_t bytes) {
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      const uint32_t skip = (from + i) * GPUOS_WARPS * PIECE_BYTES;
      if (!EVEN) w.piece[i] = make_uint4(0, 0, 0, 0);
      if (from + i < TURNS && (EVEN ? 0 : p.skip) + skip < bytes)
        w.piece[i] = ld_shared_v4(ws + p.w + skip);
    }
  }
  // The X of them is number `x` on.
  GPUOS_DEVICE void multiply_words(float (&sum)[SUMS][4], const fragment &f, const words &w,
                                   int from, int x, uint32_t bytes) {
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      const uint32_t warp = EVEN ? 0 : gpuos_warp();
      if (from + i >= TURNS) break;
      if ((warp + (from + i) * GPUOS_WARPS) * PIECE_BYTES >= bytes) break; // the same in all lanes
      multiply_piece(sum[2 * i % SUMS], sum[(2 * i + 1) % SUMS], f, x + i, w.piece[i]);
    }
  }

  // Of row `row` of W number c and row b of X: a sum of each warp, in bytes from the tile's.
  GPUOS_DEVICE uint32_t sum_at(int c, uint32_t row, uint32_t b) {
    return ((c * U::TILE_N + row) * M + b) * GPUOS_WARPS * 4;
  }

  // The products of equal segments, over all segments, to this warp's place among the sums at `to`: of a group
  // from row `first` of W number c, of which there are `rows`.
  GPUOS_DEVICE void keep(const float (&sum)[SUMS][4], const place &p, uint32_t to, int c,
                         uint32_t first, uint32_t rows) {
    const uint32_t row = first + p.kept, at = to + sum_at(c, first, 0);
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
      const int low = 2 * half, other = BOTH_HALVES ? low : 2;
      float even = sum[0][low] + sum[1][other], odd = sum[0][low + 1] + sum[1][other + 1];
      if constexpr (SUMS == 4) {
        even += sum[2][low] + sum[3][other];
        odd += sum[2][low + 1] + sum[3][other + 1];
      }
      if constexpr (SEGS == 1) {
        if (p.has[half] && row < rows) st_shared_f32(at + p.sum[half], even);
        if (p.has[half] && row + 1 < rows) st_shared_f32(at + p.sum[half] + sum_at(0, 1, 0), odd);
      } else {
        float value = (p.takes & EVEN_BIT ? even : 0.0f) + (p.takes & ODD_BIT ? odd : 0.0f);
        value = add_lanes<1, SEGS / 2>(value);
        value = add_lanes<4, 4 * SEGS>(value);
        if (p.has[half] && row < rows) st_shared_f32(at + p.sum[half], value);
      }
    }
  }
  // Over lanes FROM, 2 FROM.. below TO apart.
  template <int FROM, int TO> GPUOS_DEVICE float add_lanes(float value) {
#pragma unroll
    for (int lanes = FROM; lanes < TO; lanes *= 2)
      value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
  }
  // ---- run: all warps, each at its own pace -----------------------------------------------------

  // One tile's products, where X stays. While a chunk is multiplied the next one is loaded, from the next
  // stage if need be, so that one's latencies are the other's work. False: stop.
  GPUOS_DEVICE bool run_tile(const gpuos_ctx &ctx, gpuos_reader &r, const place &p, fragment &f,
                             uint32_t to) {
    const uint32_t n = ld_relaxed_shared(&ctx.slot->box.n[2]);
    words w[2];
    uint32_t ws, first = 0;
    int c = 0;
    if (!gpuos_await_stream(*ctx.cta, r, ws)) return false;
    load_words(w[0], p, ws, 0, ROW_BYTES);
    for (;;) {
      const bool wraps = c + 1 == COUNT;
      const uint32_t next = wraps ? first + STAGE_ROWS : first;
      float sum[SUMS][4];
#pragma unroll
      for (int j = 0; j < CHUNKS_OF_STAGE; j++) {
        const bool last = j + 1 == CHUNKS_OF_STAGE;
        const int from = GROUPS == 1 ? j * CHUNK : 0, group = GROUPS == 1 ? 0 : j;
        if (!last)
          load_words(w[(j + 1) % 2], p, ws + (GROUPS == 1 ? 0 : (j + 1) * (ROWS * PITCH)),
                     GROUPS == 1 ? CHUNK : 0, ROW_BYTES);
        if (from == 0) clear(sum);
        multiply_words(sum, f, w[j % 2], from, from, ROW_BYTES);
        if (last) {
          gpuos_leave_stream(r);
          if (next < n && !gpuos_await_stream(*ctx.cta, r, ws)) return false;
          if (next < n) load_words(w[0], p, ws, 0, ROW_BYTES);
        }
        if (last || GROUPS > 1) keep(sum, p, to, c, first + group * ROWS, n);
      }
      if (next >= n) return true;
      first = next, c = wraps ? 0 : c + 1;
    }
  }
  GPUOS_DEVICE void clear(float (&sum)[SUMS][4]) {
#pragma unroll
    for (int i = 0; i < SUMS; i++)
#pragma unroll
      for (int k = 0; k < 4; k++) sum[i][k] = 0.0f;
  }

  // One tile's products, where X comes from shared memory with each part of a group, 4 pieces at a time.
  GPUOS_DEVICE bool run_parts(const gpuos_ctx &ctx, gpuos_reader &r, const place &p, fragment &f,
                              uint32_t to) {
    const uint32_t n = ld_relaxed_shared(&ctx.slot->box.n[2]);
#pragma unroll 1
    for (uint32_t first = 0; first < n; first += STAGE_ROWS)
#pragma unroll 1
      for (int c = 0; c < COUNT; c++) {
        float sum[SUMS][4];
        clear(sum);
#pragma unroll 1
        for (uint32_t part = 0; part < PARTS; part++) {
          uint32_t ws;
          if (!gpuos_await_stream(*ctx.cta, r, ws)) return false;
#pragma unroll
          for (int from = 0; from < TURNS; from += CHUNK) {
            words w;
            load_fragment(f, p, part * PART_BYTES + from * GPUOS_WARPS * PIECE_BYTES);
            load_words(w, p, ws, from, part_bytes(part));
            multiply_words(sum, f, w, from, 0, part_bytes(part));
          }
          gpuos_leave_stream(r);
        }
        keep(sum, p, to, c, first, n);
      }
    return true;
  }

  // The tile of this turn, and those after it that have the same X. The turn after them.
  GPUOS_DEVICE uint32_t run(gpuos_ctx ctx, uint32_t turn) {
    if (!load_x(ctx)) return gpuos_give_up_stream(ctx, turn);
    const place p = find_place(ctx);
    gpuos_reader r = gpuos_read_stream(ctx);
    fragment f = {};
    if (STAYS) load_fragment(f, p, 0);
    do {
      const uint32_t to = gpuos_sums(ctx, turn);
      if (!(STAYS ? run_tile(ctx, r, p, f, to) : run_parts(ctx, r, p, f, to)))
        return gpuos_give_up_stream(ctx, turn);
    } while (gpuos_next_alike(ctx, turn));
    gpuos_keep_place(ctx, r);
    return turn;
  }

  // ---- store: a store warp ----------------------------------------------------------------------

  GPUOS_DEVICE float total(uint32_t sums, int c, uint32_t row, uint32_t b) {
    static_assert(GPUOS_WARPS == 8, "two times four");
    const uint4 low = ld_shared_v4(sums + sum_at(c, row, b));
    const uint4 high = ld_shared_v4(sums + sum_at(c, row, b) + 16);
    return add_four(low) + add_four(high);
  }
  GPUOS_DEVICE float add_four(const uint4 &v) {
    return (__uint_as_float(v.x) + __uint_as_float(v.y)) +
           (__uint_as_float(v.z) + __uint_as_float(v.w));
  }

  // What else result number i of the tile is made from.
  using others = float[inputs::ROOM][1];
  GPUOS_DEVICE void load_others(const gpuos_ctx &ctx, uint32_t i, others &in) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint32_t point[GPUOS_DIMS] = {0, i % M, box.lo[2] + i / M, 0};
    if (i < box.n[2] * M) inputs::template load<1, 2>(ctx, point, in);
  }

  // What the tile reads is there. False: stop.
  GPUOS_DEVICE bool store(const gpuos_ctx &ctx, uint32_t turn) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint32_t count = box.n[2] * M, sums = gpuos_sums(ctx, turn);
    const uint32_t stamp = gpuos_stamp(ctx.slot->step, ctx.slot->tile.op);
    others in = {};
    load_others(ctx, gpuos_lane(), in); // on its way while weights are multiplied
    if (!gpuos_await_sums(ctx, turn)) return false;
    for (uint32_t i = gpuos_lane(); i < count; i += 32) {
      const uint32_t row = i / M, b = i % M;
      const uint32_t point[GPUOS_DIMS] = {0, b, box.lo[2] + row, 0};
      float arguments[inputs::ROOM];
      if (i >= 32) load_others(ctx, i, in);
#pragma unroll
      for (int k = 0; k < inputs::COUNT; k++) arguments[k] = in[k][0];
      const float acc[2] = {total(sums, 0, row, b), COUNT == 2 ? total(sums, 1, row, b) : 0.0f};
      const float result[1] = {U::of(acc, arguments)};
      if constexpr (U::OUT_STAMPED)
        gpuos_stamped<out::DTYPE>::store(*ctx.cta, out::at(ctx, point), result[0], stamp);
      out::template store<1>(ctx, point, result);
    }
    return true;
  }
};
