// matmul_stream.cuh: MATMUL of a few rows of X, one tile: W is read once, as it lies, through the ring of
// stream.cuh; X stays in shared memory over all tiles of an operator (matmul_stream_x.cuh).
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
#include "matmul_stream_x.cuh"

template <class U> struct gpuos_matmul_stream {
  using w0 = typename U::w0;
  using w1 = typename U::w1;
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
    SUM_BYTES = COUNT * U::TILE_N * M * GPUOS_WARPS * 4,
    BOTH_HALVES = M > ROWS, // of a fragment's 16 rows
    BULK = 1,
  };
  using rows_of_x = gpuos_stream_x<U, X_PITCH, ROW_PIECES * PIECE_BYTES, BOTH_HALVES>;
  enum { SMEM_BYTES = rows_of_x::SMEM_BYTES };
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
    if (!rows_of_x::load(ctx)) return gpuos_give_up_stream(ctx, turn);
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
