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
// ROWS; ELEM, the format of W and of X in shared memory; of(acc, in), the expression.
#pragma once
#include "reduce.cuh"
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
    MOST_PIECES = (GPUOS_STREAM_BYTES / ROWS - PAD) / PIECE_BYTES,
    PARTS = FIT ? 1 : (ROW_PIECES + MOST_PIECES - 1) / MOST_PIECES,
    PART_PIECES = PARTS == 1 ? (int)ROW_PIECES : up((ROW_PIECES + PARTS - 1) / PARTS, GPUOS_WARPS),
    PART_BYTES = PART_PIECES * PIECE_BYTES, // of one row
    PITCH = (PARTS == 1 ? (int)ROW_BYTES : (int)PART_BYTES) + PAD,
    STAGE_ROWS = GROUPS * ROWS,
    TURNS = (PART_PIECES + GPUOS_WARPS - 1) / GPUOS_WARPS, // pieces of a warp
    // Groups, so that one's latencies are the other's work, as long as registers last.
    AT_ONCE = GROUPS % 2 == 0 && TURNS <= 4 ? 2 : 1,
    EVEN = ROW_BYTES % (GPUOS_WARPS * PIECE_BYTES) == 0, // in each part all warps have as many
    X_PITCH = ROW_PIECES * PIECE_BYTES + PAD,            // zeros follow K
    SMEM_BYTES = M * X_PITCH + GPUOS_REDUCE_BYTES,
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
    const uint64_t w[2] = {slot.places[w0::PLACE].address + skip,
                           COUNT == 2 ? slot.places[second_place()].address + skip : 0};
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

  // Divided by its root mean square, rounded as X is, times NORM, rounded to ELEM.
  GPUOS_DEVICE void normalise_row(const gpuos_ctx &ctx, uint32_t row, const weights &by) {
    float v[TURNS_OF_X][8] = {}, sum = 0.0f;
    const uint64_t from = row_of_x(ctx, row);
#pragma unroll
    for (int i = 0; i < TURNS_OF_X; i++) {
      const uint32_t chunk = gpuos_thread() + i * GPUOS_THREADS;
      if (chunk < CHUNKS) gpuos_load<x::DTYPE, 8>(from + (uint64_t)chunk * 8 * x::BYTES, v[i]);
    }
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
    return 1.0f / sqrtf(mean + __uint_as_float(ctx.slot->op.params[0]));
  }

  GPUOS_DEVICE void pad_row(const gpuos_ctx &ctx, uint32_t row) {
    constexpr uint32_t END = ROW_PIECES * PIECE_BYTES / 16;
    for (uint32_t chunk = CHUNKS + gpuos_thread(); chunk < END; chunk += GPUOS_THREADS)
      put(ctx, row, chunk, make_uint4(0, 0, 0, 0));
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
    const uint32_t step = x::step(ctx, 1), eps = ctx.slot->op.params[0];
    const bool there = flow.op != GPUOS_NONE && flow.x == base && flow.x_norm == with &&
                       flow.x_met == mark && flow.x_form == FORM && flow.x_step == step &&
                       flow.x_eps == eps;
    weights by;
    if constexpr (norm::PRESENT && M <= 2)
      if (!there) load_weights(ctx, by);
    if (!gpuos_await_inputs(ctx)) return false;
    if (!there) {
      if (!gpuos_yield(ctx)) return false; // nobody reads what lies there
      if constexpr (!norm::PRESENT) {
        copy_rows(ctx);
      } else if constexpr (M > 2) {
        normalise_rows(ctx);
      } else {
        for (uint32_t row = 0; row < M; row++) normalise_row(ctx, row, by);
      }
      for (uint32_t row = 0; row < M; row++) pad_row(ctx, row);
      gpuos_barrier();
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

  // Where this lane's 16 bytes of its warp's first piece lie: in a group of W, and in X.
  struct place {
    uint32_t row, skip, w, x;
  };
  GPUOS_DEVICE place find_place(const gpuos_ctx &ctx) {
    const uint32_t lane = gpuos_lane(), row = lane / 4 / SEGS;
    const uint32_t skip = gpuos_warp() * PIECE_BYTES + (lane / 4 % SEGS * 4 + lane % 4) * 16;
    return {row, skip, row * PITCH + skip, mov_shared_address(ctx.smem) + row * X_PITCH + skip};
  }

  enum {
    CHUNK = BOTH_HALVES && TURNS > 4 ? 4 : (int)TURNS, // pieces at once, as registers last
    // A warp's part of X is the same in all stages, and stays in registers.
    STAYS = PARTS == 1 && CHUNK == TURNS,
  };

  // A lane's part of X, of so many pieces. Lanes whose rows X does not have keep what is there: it only
  // gets into results that nobody looks at.
  struct fragment {
    uint4 low[CHUNK], high[BOTH_HALVES ? (int)CHUNK : 1];
  };
  GPUOS_DEVICE void load_fragment(fragment &f, const place &p, uint32_t xs) {
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      const uint32_t at = xs + p.x + i * GPUOS_WARPS * PIECE_BYTES;
      if (p.row < M) f.low[i] = ld_shared_v4(at);
      if (BOTH_HALVES && p.row + ROWS < M) f.high[i] = ld_shared_v4(at + ROWS * X_PITCH);
    }
  }

  // Adds this warp's pieces of GROUPS_ groups of rows, `bytes` of each row from `ws`, to SUMS sums each, so
  // that products wait for fewer others; X from `xs` on. Where half of a fragment's rows would do, a
  // lane's words are a fragment as they are: the first product is in its lower half, the second in its
  // upper one.
  enum { SUMS = AT_ONCE == 1 && !BOTH_HALVES ? 4 : 2 };
  template <int GROUPS_>
  GPUOS_DEVICE void add(float (&sum)[GROUPS_][SUMS][4], fragment &f, const place &p, uint32_t ws,
                        uint32_t xs, uint32_t bytes) {
#pragma unroll
    for (int from = 0; from < TURNS; from += CHUNK) {
      uint4 w[GROUPS_][CHUNK];
      if (!STAYS) load_fragment(f, p, xs + from * GPUOS_WARPS * PIECE_BYTES);
#pragma unroll
      for (int i = 0; i < CHUNK; i++) {
        const uint32_t skip = (from + i) * GPUOS_WARPS * PIECE_BYTES;
#pragma unroll
        for (int g = 0; g < GROUPS_; g++) {
          if (!EVEN) w[g][i] = make_uint4(0, 0, 0, 0);
          if ((EVEN ? 0 : p.skip) + skip < bytes)
            w[g][i] = ld_shared_v4(ws + g * (ROWS * PITCH) + p.w + skip);
        }
      }
#pragma unroll
      for (int i = 0; i < CHUNK; i++) {
        const uint32_t first = ((EVEN ? 0 : gpuos_warp()) + (from + i) * GPUOS_WARPS) * PIECE_BYTES;
        if (first >= bytes) break; // the same in all lanes
#pragma unroll
        for (int g = 0; g < GROUPS_; g++)
          multiply_piece(sum[g][2 * i % SUMS], sum[g][(2 * i + 1) % SUMS], f, i, w[g][i]);
      }
    }
  }
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

  // Of row `row` of W number c and row b of X: a sum of each warp.
  GPUOS_DEVICE uint32_t sum_at(int c, uint32_t row, uint32_t b) {
    return ((c * U::TILE_N + row) * M + b) * GPUOS_WARPS;
  }

  // The products of equal segments, over all segments, to this warp's place: of COUNT_ groups from row
  // `first` of W number c, of which there are `rows`.
  template <int COUNT_>
  GPUOS_DEVICE void keep(const float (&sum)[COUNT_][SUMS][4], float *to, int c, uint32_t first,
                         uint32_t rows) {
    const uint32_t g = gpuos_lane() / 4, q = gpuos_lane() % 4;
#pragma unroll
    for (int half = 0; half < (BOTH_HALVES ? 2 : 1); half++) {
      const uint32_t b = g / SEGS + half * ROWS;
      float even[COUNT_], odd[COUNT_], value[COUNT_];
#pragma unroll
      for (int i = 0; i < COUNT_; i++) {
        const int at = 2 * half, other = BOTH_HALVES ? at : 2;
        even[i] = sum[i][0][at] + sum[i][1][other];
        odd[i] = sum[i][0][at + 1] + sum[i][1][other + 1];
        if constexpr (SUMS == 4) {
          even[i] += sum[i][2][at] + sum[i][3][other];
          odd[i] += sum[i][2][at + 1] + sum[i][3][other + 1];
        }
        value[i] = (g % SEGS == 2 * q % SEGS ? even[i] : 0.0f) +
                   (g % SEGS == (2 * q + 1) % SEGS ? odd[i] : 0.0f);
      }
      if constexpr (SEGS > 1) {
        add_lanes<1, SEGS / 2>(value);
        add_lanes<4, 4 * SEGS>(value);
      }
#pragma unroll
      for (int i = 0; i < COUNT_; i++) {
        const uint32_t row = first + i * ROWS;
        if constexpr (SEGS == 1) {
          keep_one(to, even[i], c, row + 2 * q, b, rows, true);
          keep_one(to, odd[i], c, row + 2 * q + 1, b, rows, true);
        } else {
          const bool one = g % SEGS == 0 && q % (SEGS / 2) == 0;
          keep_one(to, value[i], c, row + q / (SEGS / 2), b, rows, one);
        }
      }
    }
  }
  // Over lanes FROM, 2 FROM.. below TO apart.
  template <int FROM, int TO, int COUNT_> GPUOS_DEVICE void add_lanes(float (&value)[COUNT_]) {
#pragma unroll
    for (int lanes = FROM; lanes < TO; lanes *= 2)
#pragma unroll
      for (int i = 0; i < COUNT_; i++) value[i] += __shfl_xor_sync(0xffffffffu, value[i], lanes);
  }
  GPUOS_DEVICE void keep_one(float *to, float value, int c, uint32_t row, uint32_t b, uint32_t rows,
                             bool wanted) {
    if (wanted && row < rows && b < M) to[sum_at(c, row, b) + gpuos_warp()] = value;
  }

  // One stage of whole rows, or all parts of a group. False: stop.
  GPUOS_DEVICE bool multiply(const gpuos_ctx &ctx, gpuos_reader &r, const place &p, fragment &f,
                             float *to, int c, uint32_t first, uint32_t n) {
    uint32_t ws;
    if constexpr (PARTS == 1) {
      if (!gpuos_await_stream(*ctx.cta, r, ws)) return false;
#pragma unroll 1
      for (uint32_t group = 0; group < GROUPS; group += AT_ONCE) {
        if (first + group * ROWS >= n) break;
        float sum[AT_ONCE][SUMS][4] = {};
        add(sum, f, p, ws + group * (ROWS * PITCH), 0, ROW_BYTES);
        if (group + AT_ONCE >= GROUPS || first + (group + AT_ONCE) * ROWS >= n)
          gpuos_leave_stream(r);
        keep(sum, to, c, first + group * ROWS, n);
      }
    } else {
      float sum[1][SUMS][4] = {};
#pragma unroll 1
      for (uint32_t part = 0; part < PARTS; part++) {
        if (!gpuos_await_stream(*ctx.cta, r, ws)) return false;
        add(sum, f, p, ws, part * PART_BYTES, part_bytes(part));
        gpuos_leave_stream(r);
      }
      keep(sum, to, c, first, n);
    }
    return true;
  }

  // ---- run: all warps, each at its own pace -----------------------------------------------------

  // One tile's products. False: stop.
  GPUOS_DEVICE bool run_tile(const gpuos_ctx &ctx, gpuos_reader &r, const place &p, fragment &f) {
    const uint32_t n = ctx.slot->box.n[2];
    float *to = gpuos_sums(ctx);
#pragma unroll 1
    for (uint32_t first = 0; first < n; first += STAGE_ROWS)
#pragma unroll 1
      for (int c = 0; c < COUNT; c++)
        if (!multiply(ctx, r, p, f, to, c, first, n)) return false;
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
      if (!run_tile(ctx, r, p, f)) return gpuos_give_up_stream(ctx, turn);
      gpuos_hand_sums(ctx);
    } while (gpuos_next_alike(ctx, turn));
    gpuos_keep_place(ctx, r);
    return turn;
  }

  // ---- store: the store warp --------------------------------------------------------------------

  GPUOS_DEVICE float total(const gpuos_ctx &ctx, int c, uint32_t row, uint32_t b) {
    const float4 *sums = (const float4 *)(gpuos_sums(ctx) + sum_at(c, row, b));
    static_assert(GPUOS_WARPS == 8, "two times four");
    const float4 low = sums[0], high = sums[1];
    return ((low.x + low.y) + (low.z + low.w)) + ((high.x + high.y) + (high.z + high.w));
  }

  // What else result number i of the tile is made from.
  using others = float[inputs::ROOM][1];
  GPUOS_DEVICE void load_others(const gpuos_ctx &ctx, uint32_t i, others &in) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint32_t point[GPUOS_DIMS] = {0, i % M, box.lo[2] + i / M, 0};
    if (i < box.n[2] * M) inputs::template load<1, 2>(ctx, point, in);
  }

  // What the tile reads is there. `parity`: of the slot's sums. False: stop.
  GPUOS_DEVICE bool store(const gpuos_ctx &ctx, uint32_t parity) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint32_t count = box.n[2] * M;
    others in = {};
    load_others(ctx, gpuos_lane(), in); // on its way while weights are multiplied
    if (!gpuos_await_sums(ctx, parity)) return false;
    for (uint32_t i = gpuos_lane(); i < count; i += 32) {
      const uint32_t row = i / M, b = i % M;
      const uint32_t point[GPUOS_DIMS] = {0, b, box.lo[2] + row, 0};
      float arguments[inputs::ROOM];
      if (i >= 32) load_others(ctx, i, in);
#pragma unroll
      for (int k = 0; k < inputs::COUNT; k++) arguments[k] = in[k][0];
      const float acc[2] = {total(ctx, 0, row, b), COUNT == 2 ? total(ctx, 1, row, b) : 0.0f};
      const float result[1] = {U::of(acc, arguments)};
      out::template store<1>(ctx, point, result);
    }
    return true;
  }
};
