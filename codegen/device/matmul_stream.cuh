// matmul_stream.cuh: MATMUL of a few rows of X, one tile: W is read once, as it lies, through the ring of
// stream.cuh; X stays in shared memory over all tiles of an operator (matmul_stream_x.cuh).
//
// The tensor cores see W as 16 rows: ROWS rows of W, each cut into SEGS = 8 / ROWS segments of 32 elements, and
// of those the first and third quarter, and the second and fourth: a lane's 16 bytes of W are a fragment as
// they are, one mma.m16n8k16, without bank conflicts or packing. X is 8 columns: the same pieces of ROWS / 2
// rows of X, in as many fragments as that takes. Of the 16 x 8 products those of equal pieces count; their sum
// is the result: K in a fragment may run in any order that A and B share. What a warp loads at once is
// SEGS * 64 bytes of each of ROWS rows; these loads of a row go round the warps.
//
// U, the generated instantiation, has operands x, w0, w1, norm, out, inputs; M, rows of X; K;
// ROWS; ELEM, the format of W and of X in shared memory; X_STAMPED, OUT_STAMPED: what travels stamped
// (stamp.cuh); of(acc, in), the expression. What depends on its shape alone is shared by all that have it: code
// that was not run for a layer is not in the instruction cache.
#pragma once
#include "matmul_stream_x.cuh"

template <int M_, int K, int ROWS_, int ELEM> struct gpuos_stream_shape {
  GPUOS_DEVICE constexpr int up(int n, int to) { return (n + to - 1) / to * to; }
  enum {
    M = M_,
    ROWS = ROWS_,
    SEGS = 8 / ROWS,
    COLUMNS = ROWS / 2, // rows of X in a fragment
    FRAGMENTS = (M + COLUMNS - 1) / COLUMNS,
    ROW_BYTES = K * 2,
    PIECE_BYTES = SEGS * 64, // of one row
    ROW_PIECES = (ROW_BYTES + PIECE_BYTES - 1) / PIECE_BYTES,
    // Two whole rows in a phase of a load would lie in the same banks.
    PAD = SEGS == 1 ? 64 : 0,
    // Whole rows in a stage, in groups of ROWS that are multiplied together; or one row of two, as few
    // long copies are faster than many short ones; or a part of one group.
    FIT = GPUOS_STREAM_BYTES / (ROWS * (ROW_BYTES + PAD)),
    MOST_PIECES = (GPUOS_STREAM_BYTES / ROWS - PAD) / PIECE_BYTES / GPUOS_WARPS * GPUOS_WARPS,
    SPREAD = !FIT && ROWS == 2 && ROW_BYTES <= GPUOS_STREAM_BYTES,
    PARTS = FIT || SPREAD ? 1 : (ROW_PIECES + MOST_PIECES - 1) / MOST_PIECES,
    PART_PIECES = PARTS == 1 ? (int)ROW_PIECES : up((ROW_PIECES + PARTS - 1) / PARTS, GPUOS_WARPS),
    PART_BYTES = PART_PIECES * PIECE_BYTES,                // of one row
    TURNS = (PART_PIECES + GPUOS_WARPS - 1) / GPUOS_WARPS, // pieces of a warp, of a group
    GROUPS = FIT < 2           ? 1
             : FIT < 8 / TURNS ? (int)FIT
                               : 8 / TURNS,
    PIECES = GROUPS * TURNS, // of a warp, of a stage
    STAGE_ROWS = SPREAD ? 1 : GROUPS * ROWS,
    STEP_ROWS = GROUPS * ROWS,
    PITCH = (PARTS == 1 ? (int)ROW_BYTES : (int)PART_BYTES) + PAD,
    EVEN = ROW_BYTES % (GPUOS_WARPS * PIECE_BYTES) == 0, // in each part all warps have as many
    X_END = ROW_PIECES * PIECE_BYTES,                    // zeros follow K
    X_PITCH = X_END + PAD,
    SUM_BYTES = M * GPUOS_WARPS * 4, // of a row of W
  };
  static_assert(ROWS >= 2 && FRAGMENTS <= 4, "rows of X");
  static_assert(PARTS == 1 || PART_PIECES <= MOST_PIECES, "a part is a stage");
  static_assert(PIECES <= (SPREAD ? 16 : 8), "two halves of four, or four quarters");

  // ---- load: the loader's thread ----------------------------------------------------------------

  GPUOS_DEVICE uint32_t part_bytes(uint32_t part) {
    const uint32_t from = part * PART_BYTES;
    return PARTS == 1 ? ROW_BYTES : min((uint32_t)PART_BYTES, ROW_BYTES - from);
  }

  // Stage by stage, in the order of run_tile, of COUNT operands in turn. False: stop.
  template <int COUNT> GPUOS_DEVICE bool load_tile(gpuos_loader &loader, const uint64_t (&w)[2]) {
    const gpuos_box_t &box = loader.slot->box;
    const uint32_t lo = box.lo[2], end = lo + box.n[2];
    uint32_t left = (box.n[2] + STAGE_ROWS - 1) / STAGE_ROWS * (COUNT * PARTS); // stages
    if (left <= 2 * GPUOS_WANT_STAGES) gpuos_want_after(loader);
    for (uint32_t first = lo; first < end; first += STEP_ROWS) {
      const uint32_t rows = min(end - first, (uint32_t)STEP_ROWS);
#pragma unroll
      for (int c = 0; c < COUNT; c++) {
        const uint64_t from = w[c] + (uint64_t)first * ROW_BYTES;
#pragma unroll 1
        for (uint32_t i = 0; i < (SPREAD ? rows : (uint32_t)PARTS); i++) {
          if (!(SPREAD ? load_stage(loader, from + i * ROW_BYTES, 1, 0)
                       : load_stage(loader, from, rows, i)))
            return false;
          if (--left == GPUOS_WANT_STAGES) gpuos_want_after(loader);
        }
      }
    }
    return true;
  }
  // This tile, and those after it that are alike, of the weights at `w`.
  template <int COUNT> GPUOS_DEVICE void load(gpuos_loader &loader, const uint64_t (&w)[2]) {
    while (load_tile<COUNT>(loader, w) && gpuos_load_alike(loader)) {
    }
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
#pragma unroll(STAGE_ROWS <= 4 ? STAGE_ROWS : 1)
      for (uint32_t r = 0; r < STAGE_ROWS; r++)
        if (r < rows)
          cp_async_bulk_hint(to + r * PITCH, from + r * ROW_BYTES + part * PART_BYTES, bytes, full,
                             policy);
    }
    return true;
  }

  // ---- multiply: a warp -------------------------------------------------------------------------

  GPUOS_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (ELEM == GPUOS_BF16)
      mma_m16n8k16_bf16(c, a, b0, b1);
    else
      mma_m16n8k16_f16(c, a, b0, b1);
  }

  enum { NO_ROW = 1 << 30 };

  // What depends on the lane alone, in registers: asking for the lane's number takes as long as two products.
  struct place {
    uint32_t skip, w;        // its 16 bytes of its warp's first piece: of a row, in a group of W
    bool second;             // it has those of a group's second row
    uint32_t x[FRAGMENTS];   // and in X
    bool has[FRAGMENTS];     // X has that row
    uint32_t kept;           // which row of a group it keeps the sum of, or NO_ROW
    uint32_t sum[FRAGMENTS]; // where: bytes from the group's first
    bool keeps[FRAGMENTS];   // X has its row
  };
  GPUOS_DEVICE place find_place(const gpuos_ctx &ctx) {
    const uint32_t lane = gpuos_lane(), g = lane / 4, q = lane % 4, row = g / SEGS;
    const uint32_t warp = gpuos_warp() * PIECE_BYTES, x = mov_shared_address(ctx.smem);
    place p;
    p.skip = warp + (g % SEGS * 4 + q) * 16;
    p.w = mov_u32(SPREAD ? p.skip : row * PITCH + p.skip), p.second = row == 1;
    p.kept = mov_u32(g % SEGS == 0 && q % SEGS == 0 ? row : (uint32_t)NO_ROW);
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++) {
      // Its column of X: a row, a segment, and of that the first and third quarter, or the others.
      const uint32_t column = g / 2, b = column / SEGS + f * COLUMNS;
      const uint32_t skip = (column % SEGS * 4 + q) * 16 + g % 2 * 8;
      p.x[f] = mov_u32(x + b * X_PITCH + warp + skip), p.has[f] = b < M;
      // And the row of the two that it gets products of.
      p.sum[f] = mov_u32(sum_at(row, q / SEGS + f * COLUMNS) + gpuos_warp() * 4);
      p.keeps[f] = q / SEGS + f * COLUMNS < M;
    }
    return p;
  }

  enum {
    ALL_PIECES = PARTS * TURNS, // of a warp, of a group over all parts
    // A warp's part of X is the same in all stages, and stays in registers if those last.
    STAYS = ALL_PIECES * FRAGMENTS <= 16,
    // What a warp loads while it multiplies what it has loaded before: half of a stage, or a quarter of two rows.
    BATCH = SPREAD ? (PIECES + 3) / 4 : (PIECES + 1) / 2,
    X_PIECES = STAYS ? (int)ALL_PIECES : (int)BATCH, // of X in registers at once
  };

  // A lane's part of X, of so many pieces. Lanes whose row X does not have keep what is there: it only gets
  // into results that nobody looks at.
  struct fragment {
    uint2 x[X_PIECES][FRAGMENTS];
  };
  GPUOS_DEVICE void load_fragment(fragment &x, const place &p, uint32_t from, int count) {
#pragma unroll
    for (int i = 0; i < X_PIECES; i++)
#pragma unroll
      for (int f = 0; f < FRAGMENTS; f++)
        if (i < count && p.has[f])
          x.x[i][f] = ld_shared_v2(p.x[f] + (from + i) * GPUOS_WARPS * PIECE_BYTES);
  }

  // A batch of this warp's pieces.
  struct words {
    uint32_t piece[BATCH][4];
  };
  GPUOS_DEVICE bool has_piece(int piece, uint32_t skip, uint32_t bytes) {
    return (EVEN ? 0 : skip) + piece % TURNS * GPUOS_WARPS * PIECE_BYTES < bytes;
  }
  // Pieces number `from` on of the stage at `ws`, which has `bytes` of each row.
  GPUOS_DEVICE void load_words(words &w, const place &p, uint32_t ws, int from, uint32_t bytes) {
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const int piece = from + i;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (piece < PIECES && has_piece(piece, p.skip, bytes))
        v = ld_shared_v4(ws + p.w + piece / TURNS * (ROWS * PITCH) +
                         piece % TURNS * (GPUOS_WARPS * PIECE_BYTES));
      w.piece[i][0] = v.x, w.piece[i][1] = v.y, w.piece[i][2] = v.z, w.piece[i][3] = v.w;
    }
  }

  // Of one group, for each fragment of X, and of one in two, so that products wait for fewer others.
  enum { CHAINS = FRAGMENTS == 1 ? 2 : 1 };
  struct sums {
    float of[FRAGMENTS][CHAINS][4];
  };
  GPUOS_DEVICE void clear(sums &s) {
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++)
#pragma unroll
      for (int i = 0; i < CHAINS * 4; i++) s.of[f][i / 4][i % 4] = 0.0f;
  }

  // Where a stage's sums go: those from row `first` of W number c on, of which there are `rows`; those of the
  // second W lie `second` bytes behind.
  struct target {
    uint32_t to, first, rows, second;
    int c;
  };

  // Pieces number `from` on of a part, of `bytes` of a row; what they have of X is number `x_from` on. Groups
  // begin with their first part, and end with their last one.
  GPUOS_DEVICE void multiply(sums &s, const fragment &x, const words &w, const place &p, int from,
                             int x_from, int part, uint32_t bytes, const target &t) {
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      const int piece = from + i, turn = piece % TURNS;
      if (piece >= PIECES) break;
      if (turn == 0 && part == 0) clear(s);
      if (has_piece(piece, EVEN ? 0 : gpuos_warp() * PIECE_BYTES, bytes)) // as in all lanes
#pragma unroll
        for (int f = 0; f < FRAGMENTS; f++) {
          const uint2 &b = x.x[STAYS ? x_from + turn : i][f];
          mma(s.of[f][turn % CHAINS], w.piece[i], b.x, b.y);
        }
      if (turn + 1 == TURNS && part + 1 == PARTS) keep(s, p, t, piece / TURNS);
    }
  }

  // Of row `row` of W and row b of X: a sum of each warp, in bytes from the tile's.
  GPUOS_DEVICE uint32_t sum_at(uint32_t row, uint32_t b) {
    return row * SUM_BYTES + b * GPUOS_WARPS * 4;
  }

  // The products of equal pieces of a group of the stage, over all segments, to this warp's places.
  GPUOS_DEVICE void keep(const sums &s, const place &p, const target &t, int group) {
    const uint32_t first = t.first + group * ROWS;
    const uint32_t at = t.to + sum_at(first, 0) + (t.c ? t.second : 0);
#pragma unroll
    for (int f = 0; f < FRAGMENTS; f++) {
      float sum = s.of[f][0][0] + s.of[f][0][3];
      if constexpr (CHAINS == 2) sum += s.of[f][1][0] + s.of[f][1][3];
      sum = add_segments(sum);
      if (p.keeps[f] && first + p.kept < t.rows) st_shared_f32(at + p.sum[f], sum);
    }
  }
  // A segment's sum is with lanes g * 4 + q whose g and q modulo SEGS are it: the others' are these bits away.
  GPUOS_DEVICE float add_segments(float value) {
    if (SEGS >= 2) value += __shfl_xor_sync(0xffffffffu, value, 4 + 1);
    if (SEGS >= 4) value += __shfl_xor_sync(0xffffffffu, value, 8 + 2);
    return value;
  }

  // ---- run: all warps, each at its own pace -----------------------------------------------------

  // One tile's products, stage by stage. While half of one is multiplied the next half is loaded, from the next
  // stage if need be, so that one's latencies are the other's work. False: stop.
  GPUOS_DEVICE bool run_tile(const gpuos_ctx &ctx, gpuos_reader &r, const place &p, fragment &x,
                             uint32_t to, int count) {
    const uint32_t rows = ld_relaxed_shared(&ctx.slot->box.n[2]);
    target t = {to, 0, rows, ctx.slot->of->op.tile[2] * SUM_BYTES, 0};
    words one, other;
    sums s;
    uint32_t ws;
    if (!gpuos_await_stream(*ctx.cta, r, ws)) return false;
    load_words(one, p, ws, 0, part_bytes(0));
    for (;;) {
      const bool wraps = t.c + 1 == count;
      const uint32_t next = wraps ? t.first + STAGE_ROWS : t.first;
#pragma unroll(STAYS ? PARTS : 1)
      for (int part = 0; part < PARTS; part++) {
        const bool last = part + 1 == PARTS;
        const uint32_t bytes = part_bytes(part);
        load_words(other, p, ws, BATCH, bytes);
        if (!STAYS) load_fragment(x, p, part * TURNS, BATCH);
        multiply(s, x, one, p, 0, part * TURNS, part, bytes, t);
        gpuos_leave_stream(r);
        if (!last || next < t.rows) {
          if (!gpuos_await_stream(*ctx.cta, r, ws)) return false;
          load_words(one, p, ws, 0, part_bytes(last ? 0 : part + 1));
        }
        if (!STAYS) load_fragment(x, p, part * TURNS + BATCH, PIECES - BATCH);
        multiply(s, x, other, p, BATCH, part * TURNS, part, bytes, t);
      }
      if (next >= t.rows) return true;
      t.first = next, t.c = wraps ? 0 : t.c + 1;
    }
  }

  // The stages of the next group's rows are full; this lane's. A row that is not there is the other one again: nobody
  // keeps its sum. False: stop.
  GPUOS_DEVICE bool await_rows(const gpuos_ctx &ctx, gpuos_reader r, const place &p, uint32_t rows,
                               uint32_t &ws) {
    uint32_t at[2];
    if (!gpuos_await_stream(*ctx.cta, r, at[0])) return false;
    at[1] = at[0];
    r.at.next(r.count);
    if (rows > 1 && !gpuos_await_stream(*ctx.cta, r, at[1])) return false;
    ws = p.second ? at[1] : at[0];
    return true;
  }

  // The same with a row in each stage, and a quarter of two rows at once.
  GPUOS_DEVICE bool run_spread(const gpuos_ctx &ctx, gpuos_reader &r, const place &p, fragment &x,
                               uint32_t to, int count) {
    const uint32_t rows = ld_relaxed_shared(&ctx.slot->box.n[2]);
    target t = {to, 0, rows, ctx.slot->of->op.tile[2] * SUM_BYTES, 0};
    words w[2];
    sums s;
    uint32_t ws;
    if (!await_rows(ctx, r, p, rows, ws)) return false;
    load_words(w[0], p, ws, 0, ROW_BYTES);
    for (;;) {
      const bool wraps = t.c + 1 == count;
      const uint32_t next = wraps ? t.first + STEP_ROWS : t.first;
#pragma unroll
      for (int q = 0; q < 4; q++) {
        if (q < 3) {
          load_words(w[(q + 1) % 2], p, ws, (q + 1) * BATCH, ROW_BYTES);
        } else {
          gpuos_leave_stream(r);
          if (rows - t.first > 1) gpuos_leave_stream(r);
          if (next < rows) {
            if (!await_rows(ctx, r, p, rows - next, ws)) return false;
            load_words(w[0], p, ws, 0, ROW_BYTES);
          }
        }
        if (!STAYS) load_fragment(x, p, q * BATCH, min((int)BATCH, PIECES - q * BATCH));
        multiply(s, x, w[q % 2], p, q * BATCH, 0, 0, ROW_BYTES, t);
      }
      if (next >= rows) return true;
      t.first = next, t.c = wraps ? 0 : t.c + 1;
    }
  }

  // The tile of this turn, of `count` operands W, and those after it that have the same X, which is there. The turn after
  // them.
  static __device__ __noinline__ uint32_t run(uint32_t turn, int count) {
    gpuos_ctx ctx = gpuos_find_ctx(turn);
    const place p = find_place(ctx);
    gpuos_reader r = gpuos_read_stream(ctx);
    fragment x = {};
    if (STAYS) load_fragment(x, p, 0, X_PIECES);
    do {
      const uint32_t to = gpuos_sums(ctx, turn);
      bool over;
      if constexpr (SPREAD)
        over = run_spread(ctx, r, p, x, to, count);
      else
        over = run_tile(ctx, r, p, x, to, count);
      if (!over) return gpuos_give_up_stream(ctx, turn);
    } while (gpuos_next_alike(ctx, turn));
    gpuos_keep_place(ctx, r);
    return turn;
  }
};

template <class U> struct gpuos_matmul_stream {
  using x = typename U::x;
  using w0 = typename U::w0;
  using w1 = typename U::w1;
  using norm = typename U::norm;
  using out = typename U::out;
  using inputs = typename U::inputs;

  enum { M = U::M, COUNT = w1::PRESENT ? 2 : 1 };
  using shape = gpuos_stream_shape<M, U::K, U::ROWS, U::ELEM>;
  enum { NORM = norm::PRESENT ? (int)norm::DTYPE : (int)GPUOS_NO_NORM };
  using rows_of_x =
      gpuos_stream_x<M, U::K, x::DTYPE, NORM, U::ELEM, U::X_STAMPED, shape::X_PITCH, shape::X_END>;
  enum {
    SMEM_BYTES = rows_of_x::SMEM_BYTES,
    BULK = 1,
  };

  GPUOS_DEVICE void load(gpuos_loader &loader) {
    const gpuos_known_at of = loader.slot->of;
    uint64_t w[2] = {of->places[w0::PLACE].address, 0};
    if constexpr (COUNT == 2) w[1] = of->places[w1::PLACE].address;
    shape::template load<COUNT>(loader, w);
  }

  GPUOS_DEVICE uint32_t run(uint32_t turn) {
    const gpuos_ctx ctx = gpuos_find_ctx(turn);
    gpuos_x_source from = {x::base(ctx), 0, x::step(ctx, 1)};
    if constexpr (norm::PRESENT) from.norm = norm::base(ctx);
    if (!rows_of_x::load(turn, from)) return gpuos_give_up_stream(gpuos_find_ctx(turn), turn);
    return shape::run(turn, COUNT);
  }

  // ---- store: a store warp ----------------------------------------------------------------------

  GPUOS_DEVICE float total(uint32_t sums, uint32_t row, uint32_t b) {
    static_assert(GPUOS_WARPS == 8, "two times four");
    const uint4 low = ld_shared_v4(sums + shape::sum_at(row, b));
    const uint4 high = ld_shared_v4(sums + shape::sum_at(row, b) + 16);
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

  // All lanes, with results of row `row` of the tile at `element`, or of none, 0: the first of four neighbours, which are M
  // lanes apart, has them all.
  GPUOS_DEVICE void store_fours(const gpuos_ctx &ctx, uint32_t row, float result, uint32_t stamp,
                                uint64_t element) {
    static_assert(U::OUT_STAMPED != GPUOS_BY_FOURS || 32 % (4 * M) == 0, "fours of one warp");
    const uint32_t word = gpuos_stamped_fours::word(result, stamp, row % 4);
    uint32_t of[4];
#pragma unroll
    for (int k = 0; k < 4; k++) of[k] = __shfl_down_sync(0xffffffffu, word, k * M);
    if (element && row % 4 == 0)
      st_relaxed_gpu_b128(gpuos_stamped_fours::at(*ctx.cta, element),
                          make_uint4(of[0], of[1], of[2], of[3]));
  }

  // What the tile reads is there. False: stop.
  GPUOS_DEVICE bool store(const gpuos_ctx &ctx, uint32_t turn) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint32_t count = box.n[2] * M, sums = gpuos_sums(ctx, turn);
    const uint32_t stamp = gpuos_stamp(ctx.slot->step, ctx.slot->tile.op);
    const uint32_t second = ctx.slot->of->op.tile[2]; // the rows of the second W
    others in = {};
    load_others(ctx, gpuos_lane(), in); // on its way while weights are multiplied
    if (!gpuos_await_sums(ctx, turn)) return false;
    for (uint32_t i = gpuos_lane(); i < (count + 31) / 32 * 32; i += 32) { // all lanes
      if (U::OUT_STAMPED != GPUOS_BY_FOURS && i >= count) break;
      const uint32_t row = i / M, b = i % M;
      const uint32_t point[GPUOS_DIMS] = {0, b, box.lo[2] + row, 0};
      float arguments[inputs::ROOM];
      if (i >= 32) load_others(ctx, i, in);
#pragma unroll
      for (int k = 0; k < inputs::COUNT; k++) arguments[k] = in[k][0];
      const float acc[2] = {total(sums, row, b), COUNT == 2 ? total(sums, second + row, b) : 0.0f};
      const float result[1] = {U::of(acc, arguments)};
      if constexpr (U::OUT_STAMPED == GPUOS_BY_WORDS)
        gpuos_stamped<out::DTYPE>::store(*ctx.cta, out::at(ctx, point), result[0], stamp);
      if constexpr (U::OUT_STAMPED == GPUOS_BY_FOURS) {
        store_fours(ctx, row, result[0], stamp, i < count ? out::at(ctx, point) : 0);
        if (i >= count) break;
      }
      out::template store<1>(ctx, point, result);
    }
    return true;
  }
};
