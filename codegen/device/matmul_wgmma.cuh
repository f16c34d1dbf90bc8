// matmul_wgmma.cuh: MATMUL on sm_90a, one tile: acc_j = X W_j^T over all of k, then the expression.
//
// The loader fills a ring of stages by bulk copies (load); warpgroups, 64 rows each, multiply, and
// each warp writes its results through shared memory, in whole lines (run). A pair of CTAs that have
// the same columns share W: each copies half of it into both. k goes through the slices without a
// break: between two of them the loader may stop, and the accumulators are put down.
//
// U, the generated instantiation, has operands x, w0, w1, out, inputs; TILE_N, 128 or 256; X_ELEM,
// W_ELEM, the formats; KEEP_X: L2 is asked to keep X, which comes again with the next columns; PIECES:
// OUT's rows are whole 16-byte pieces; of(acc, in), the expression.
#pragma once
#include "ring.cuh"

template <class U> struct gpuos_matmul_wgmma {
  using x = typename U::x;
  using w0 = typename U::w0;
  using w1 = typename U::w1;
  using out = typename U::out;
  using inputs = typename U::inputs;

  enum {
    COUNT = w1::PRESENT ? 2 : 1,
    // Accumulators, of 64 x TILE_N each: 128 registers at most. One instruction of 256 columns takes a
    // tenth less of the shared memory's bandwidth, which is what bounds a step, than two of 128.
    SETS = COUNT,
    ACCS = U::TILE_N / 2,
    TILE_M = 64 * GPUOS_GROUPS,
    ROW_BYTES = 128, // of k in a stage
    STEP_K = ROW_BYTES / x::BYTES,
    X_BYTES = TILE_M * ROW_BYTES,
    W_BYTES = U::TILE_N * ROW_BYTES, // of each of COUNT
    STEP_BYTES = X_BYTES + COUNT * W_BYTES,
    // Results pass through shared memory in boxes: each warp's 16 rows, 128 bytes of each.
    BOX_COLS = ROW_BYTES / out::BYTES,
    BOXES = U::TILE_N / BOX_COLS,
    PIECE = 16 / out::BYTES, // elements
    BULK = 1,
    SMEM_BYTES = GPUOS_RING_SMEM,
  };
  static_assert(SETS * ACCS <= 128, "accumulators");
  static_assert(STEP_BYTES <= GPUOS_STAGE_BYTES, "a step fits in a stage");

  GPUOS_DEVICE uint32_t steps(const gpuos_slot &slot) {
    return (slot.of->op.extent[3] + STEP_K - 1) / STEP_K;
  }
  GPUOS_DEVICE uint32_t slice_steps(const gpuos_slot &slot) {
    return gpuos_op_slices(&slot.of->op) <= 1 ? steps(slot) : slot.of->op.slice / STEP_K;
  }

  // ---- load: one thread -------------------------------------------------------------------------

  // Where the tile's operands are; in registers, because the loop that uses it clobbers memory.
  struct source {
    uint64_t x, w0, w1; // tensor maps
    uint32_t m, n, x_batch, w_batch;
    uint32_t half; // of W, in rows, that this CTA copies into both
  };
  enum { HALF = U::TILE_N / 2 };

  GPUOS_DEVICE source make_source(const gpuos_loader &loader) {
    const gpuos_slot &slot = *loader.slot;
    source s = {gpuos_map_of<x>(loader), gpuos_map_of<w0>(loader), 0};
    if constexpr (COUNT == 2) s.w1 = gpuos_map_of<w1>(loader);
    s.m = slot.box.lo[1], s.n = slot.box.lo[2];
    s.x_batch = x::MOVES & 1 ? slot.box.lo[0] : 0;
    s.w_batch = w0::MOVES & 1 ? slot.box.lo[0] : 0;
    s.half = loader.cta->rank * HALF;
    return s;
  }

  GPUOS_DEVICE void load_x(const source &s, uint32_t to, uint32_t full, uint32_t k) {
    if constexpr (U::KEEP_X)
      cp_async_bulk_tensor_load_hint(to, s.x, full, k, s.m, s.x_batch, GPUOS_EVICT_LAST);
    else
      cp_async_bulk_tensor_load(to, s.x, full, k, s.m, s.x_batch);
  }

  template <bool PAIR>
  GPUOS_DEVICE void load_w(const source &s, uint64_t map, uint32_t to, uint32_t full, uint32_t k) {
    if constexpr (PAIR) {
      cp_async_bulk_tensor_multicast(to + s.half * ROW_BYTES, map, full, k, s.n + s.half, s.w_batch,
                                     3);
    } else {
      cp_async_bulk_tensor_load(to, map, full, k, s.n, s.w_batch);
      cp_async_bulk_tensor_load(to + HALF * ROW_BYTES, map, full, k, s.n + HALF, s.w_batch);
    }
  }

  // Steps from `step` to `end`. What it does for each step decides how fast the whole tile is, since
  // one thread does it. False: stop.
  template <bool PAIR>
  GPUOS_DEVICE bool load_steps(gpuos_loader &loader, const source &s, uint32_t step, uint32_t end) {
    const gpuos_ring_at at = gpuos_find_ring(loader);
    uint32_t k = step * STEP_K;
    for (; step < end; step++, k += STEP_K) {
      uint32_t full, to;
      if (!gpuos_enter_stage(loader, at, STEP_BYTES, full, to)) return false;
      load_x(s, to, full, k);
      load_w<PAIR>(s, s.w0, to + X_BYTES, full, k);
      if constexpr (COUNT == 2) load_w<PAIR>(s, s.w1, to + X_BYTES + W_BYTES, full, k);
      loader.ring.next();
    }
    return true;
  }

  template <bool PAIR> GPUOS_DEVICE void load_all(gpuos_loader &loader, const source &s) {
    const gpuos_slot &slot = *loader.slot;
    const uint32_t count = steps(slot), per_slice = slice_steps(slot);
    const uint32_t want = count > GPUOS_WANT_STEPS ? count - GPUOS_WANT_STEPS : 0;
    uint32_t slice = slot.slice, step = slice * per_slice, slice_end = step + per_slice;
    while (step < count) {
      if (step == slice_end) {
        if (gpuos_stop_before(loader, ++slice)) return;
        slice_end += per_slice;
      }
      if (step >= want) gpuos_want_next(loader);
      uint32_t end = step < want ? want : count;
      if (end > slice_end) end = slice_end;
      if (!load_steps<PAIR>(loader, s, step, end)) return;
      step = end;
    }
  }

  GPUOS_DEVICE void load(gpuos_loader &loader) {
    if (!elect_sync(1)) return; // it is lane 0 alone that calls
    const source s = make_source(loader);
    if (loader.slot->pair)
      load_all<true>(loader, s);
    else
      load_all<false>(loader, s);
  }

  // ---- multiply: a warpgroup --------------------------------------------------------------------

  // K-major, 128-byte swizzle, groups of 8 rows 1024 bytes apart (PTX ISA, "Matrix Descriptor").
  GPUOS_DEVICE uint64_t descriptor(uint32_t address) {
    return (uint64_t)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
  }

  GPUOS_DEVICE void mma(float (&d)[ACCS], uint64_t a, uint64_t b) {
    if constexpr (U::X_ELEM == GPUOS_BF16)
      wgmma_bf16(d, a, b);
    else if constexpr (U::X_ELEM == GPUOS_F16)
      wgmma_f16(d, a, b);
    else if constexpr (U::X_ELEM == GPUOS_E4M3 && U::W_ELEM == GPUOS_E4M3)
      wgmma_e4m3_e4m3(d, a, b);
    else if constexpr (U::X_ELEM == GPUOS_E4M3)
      wgmma_e4m3_e5m2(d, a, b);
    else if constexpr (U::W_ELEM == GPUOS_E4M3)
      wgmma_e5m2_e4m3(d, a, b);
    else
      wgmma_e5m2_e5m2(d, a, b);
  }

  // One step: 128 bytes of k in four instructions a set; 32 bytes are 2 in descriptor units.
  GPUOS_DEVICE void multiply(float (&d)[SETS][ACCS], uint32_t stage, uint32_t group) {
    const uint64_t a = descriptor(stage + group * 64 * ROW_BYTES), b = descriptor(stage + X_BYTES);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int s = 0; s < SETS; s++) mma(d[s], a + 2 * k, b + 2 * k + (s * W_BYTES >> 4));
    wgmma_commit_group();
  }

  // The steps of the tile from slot.slice on; returns how many were done. Fewer than all: the loader
  // stopped before slot.stop_slice, or for good. There is no way out of the loop before its first
  // instruction: ptxas would find two definitions of the accumulators there and serialise it.
  GPUOS_DEVICE uint32_t multiply_all(const gpuos_ctx &ctx, gpuos_worker &worker,
                                     float (&d)[SETS][ACCS]) {
    const gpuos_slot &slot = *ctx.slot;
    const uint32_t per_slice = slice_steps(slot), group = gpuos_group();
    const uint32_t todo = steps(slot) - slot.slice * per_slice;
    const gpuos_leaver leaver = gpuos_make_leaver(ctx);
    uint32_t slice = slot.slice, slice_end = per_slice, done = 0;
    if (!gpuos_await_stage(ctx, worker, slice, ld_relaxed_shared(&ctx.cta->hold))) return 0;
    for (;;) {
      multiply(d, gpuos_stage(ctx.smem, worker.ring.stage), group);
      const uint32_t hold = ld_relaxed_shared(&ctx.cta->hold);
      // The stage before this one is free once its instructions are over; this one's stay under way.
      wgmma_wait_group<1>();
      if (done > 0) leaver.leave(worker.ring.before());
      worker.ring.next();
      if (++done == todo) break;
      if (done == slice_end) {
        if (gpuos_thread() == 0) gpuos_end_unit(*ctx.cta, slot, slice);
        slice++, slice_end += per_slice;
      }
      if (!gpuos_await_stage(ctx, worker, slice, hold)) break;
    }
    return done;
  }

  GPUOS_DEVICE void drain(float (&d)[SETS][ACCS]) {
    wgmma_wait_group<0>();
#pragma unroll
    for (int s = 0; s < SETS; s++) wgmma_fence_operand(d[s]);
  }

  // ---- park -------------------------------------------------------------------------------------

  GPUOS_DEVICE float4 *park_at(const gpuos_ctx &ctx, uint32_t slot) {
    const gpuos_table_t *table = (const gpuos_table_t *)ctx.cta->args.table;
    return (float4 *)(ctx.cta->args.park_area + (uint64_t)slot * table->park_bytes) +
           gpuos_thread();
  }

  GPUOS_DEVICE void park(const gpuos_ctx &ctx, const float (&d)[SETS][ACCS]) {
    float4 *to = park_at(ctx, ctx.slot->park);
#pragma unroll
    for (int s = 0; s < SETS; s++)
#pragma unroll
      for (int i = 0; i < ACCS; i += 4, to += GPUOS_WORKERS)
        *to = make_float4(d[s][i], d[s][i + 1], d[s][i + 2], d[s][i + 3]);
    gpuos_barrier_all();
    if (gpuos_thread() == 0)
      gpuos_fill_slot(*ctx.cta, ctx.slot->park, ctx.slot->number, ctx.slot->stop_slice);
  }

  // Zeros, or what was parked. Without a branch: ptxas serialises matrix instructions when it finds
  // two ways to their accumulators.
  GPUOS_DEVICE void begin(const gpuos_ctx &ctx, float (&d)[SETS][ACCS]) {
    const bool parked = ctx.slot->slice > 0;
    const float4 *from = park_at(ctx, ctx.slot->resume);
#pragma unroll
    for (int s = 0; s < SETS; s++)
#pragma unroll
      for (int i = 0; i < ACCS; i += 16, from += 4 * GPUOS_WORKERS) {
#pragma unroll
        for (int j = 0; j < 16; j++) d[s][i + j] = 0.0f;
        ld_global_16_f32_if<GPUOS_WORKERS * sizeof(float4)>(parked, &d[s][i], from);
      }
#pragma unroll
    for (int s = 0; s < SETS; s++) wgmma_fence_operand(d[s]);
    if (!parked) return;
    gpuos_barrier_all();
    if (gpuos_thread() == 0) gpuos_free_slot(*ctx.cta, ctx.slot->resume);
  }

  // ---- epilogue ---------------------------------------------------------------------------------

  enum { MOVES_M = 1 << 1, MOVES_N = 1 << 2, MOVES_MN = MOVES_M | MOVES_N };

  // This thread's two rows: inputs that no column changes.
  struct rows {
    uint32_t at[2]; // in the tile
    float in[2][inputs::ROOM];
  };

  GPUOS_DEVICE bool row_inside(const gpuos_ctx &ctx, const rows &r, int i) {
    return r.at[i] < ctx.slot->box.n[1];
  }

  GPUOS_DEVICE void make_point(const gpuos_ctx &ctx, uint32_t row, uint32_t col,
                               uint32_t (&point)[GPUOS_DIMS]) {
    const gpuos_box_t &box = ctx.slot->box;
    point[0] = box.lo[0], point[1] = box.lo[1] + row, point[2] = box.lo[2] + col, point[3] = 0;
  }

  GPUOS_DEVICE rows make_rows(const gpuos_ctx &ctx) {
    rows r;
    const uint32_t warp = gpuos_thread() / 32, lane = gpuos_thread() % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      uint32_t point[GPUOS_DIMS];
      r.at[i] = warp * 16 + lane / 4 + 8 * i;
      make_point(ctx, row_inside(ctx, r, i) ? r.at[i] : 0, 0, point);
      inputs::template load_moving<MOVES_MN, 0>(ctx, point, r.in[i]);
      inputs::template load_moving<MOVES_MN, MOVES_M>(ctx, point, r.in[i]);
    }
    return r;
  }

  // The expression at columns col and col + 1 of both rows; v: row by row. Accumulators of the second
  // set are another weight's.
  GPUOS_DEVICE void apply(const gpuos_ctx &ctx, const rows &r, uint32_t col, const float *acc0,
                          const float *acc1, float (&v)[4]) {
#pragma unroll
    for (int c = 0; c < 2; c++) {
      uint32_t point[GPUOS_DIMS];
      float by_col[inputs::ROOM];
      const bool col_inside = col + c < ctx.slot->box.n[2];
      make_point(ctx, 0, col_inside ? col + c : 0, point);
      inputs::template load_moving<MOVES_MN, MOVES_N>(ctx, point, by_col);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float in[inputs::ROOM], by_both[inputs::ROOM];
        const bool inside = col_inside && row_inside(ctx, r, i);
        make_point(ctx, inside ? r.at[i] : 0, inside ? col + c : 0, point);
        inputs::template load_moving<MOVES_MN, MOVES_MN>(ctx, point, by_both);
        inputs::template choose<MOVES_MN>(r.in[i], by_col, by_both, in);
        const float acc[2] = {acc0[2 * i + c], COUNT == 2 ? acc1[2 * i + c] : 0.0f};
        v[2 * i + c] = U::of(acc, in);
      }
    }
  }

  // ---- through shared memory --------------------------------------------------------------------

  // Byte `byte` of a row of a box: swizzled, so that neither side meets bank conflicts.
  GPUOS_DEVICE uint32_t result_at(uint32_t box, uint32_t row, uint32_t byte) {
    return box + row * ROW_BYTES + ((byte / 16) ^ (row & 7)) * 16 + byte % 16;
  }

  // The results of 16 columns, as they go to memory: of this thread's two rows, two neighbours each of
  // the first 8 columns and of the others.
  enum { WORDS = out::BYTES == 4 ? 8 : 4 };
  GPUOS_DEVICE void pack(const float (&a)[4], const float (&b)[4], uint32_t (&words)[WORDS]) {
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
      const float *from = i < WORDS / 2 ? a : b;
      const int at = i % (WORDS / 2) * 4 / (WORDS / 2);
      const float v[4] = {from[at], WORDS == 8 ? 0.0f : from[at + 1], 0.0f, 0.0f};
      words[i] = gpuos_format<out::DTYPE>::narrow(v);
    }
  }

  GPUOS_DEVICE void share(uint32_t box, uint32_t col, const uint32_t (&words)[WORDS]) {
    const uint32_t lane = gpuos_thread() % 32;
    if constexpr (out::BYTES == 2) {
      stmatrix_x4(result_at(box, lane % 16, (col + lane / 16 * 8) * 2), words);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const uint32_t byte = (col + i / 2 * 8 + lane % 4 * 2) * out::BYTES;
        void *to = __cvta_shared_to_generic(result_at(box, lane / 4 + i % 2 * 8, byte));
        if constexpr (out::BYTES == 4)
          *(uint2 *)to = make_uint2(words[2 * i], words[2 * i + 1]);
        else
          *(uint16_t *)to = (uint16_t)words[i];
      }
    }
  }

  GPUOS_DEVICE void store_direct(const gpuos_ctx &ctx, const rows &r, uint32_t col,
                                 const float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int c = 0; c < 2; c++) {
        uint32_t point[GPUOS_DIMS];
        const float one[1] = {v[2 * i + c]};
        make_point(ctx, r.at[i], col + c, point);
        if (row_inside(ctx, r, i) && col + c < ctx.slot->box.n[2])
          out::template store<1>(ctx, point, one);
      }
  }

  // Accumulators to results, for 16 columns from `col`.
  GPUOS_DEVICE void finish_16(const gpuos_ctx &ctx, const rows &r, const float (&d)[SETS][ACCS],
                              int col, float (&a)[4], float (&b)[4]) {
    const uint32_t lane = gpuos_thread() % 32;
    const float *acc0 = d[0] + col / 2, *acc1 = d[SETS - 1] + col / 2;
    apply(ctx, r, col + lane % 4 * 2, acc0, acc1, a);
    apply(ctx, r, col + 8 + lane % 4 * 2, acc0 + 4, acc1 + 4, b);
  }

  GPUOS_DEVICE void finish_direct(const gpuos_ctx &ctx, const rows &r,
                                  const float (&d)[SETS][ACCS]) {
    const uint32_t lane = gpuos_thread() % 32;
#pragma unroll
    for (int col = 0; col < U::TILE_N; col += 16) {
      float a[4], b[4];
      finish_16(ctx, r, d, col, a, b);
      store_direct(ctx, r, col + lane % 4 * 2, a);
      store_direct(ctx, r, col + 8 + lane % 4 * 2, b);
    }
  }

  // Box number `box` of this warp's rows into shared memory.
  GPUOS_DEVICE void finish_box(const gpuos_ctx &ctx, const rows &r, const float (&d)[SETS][ACCS],
                               int box, uint32_t to) {
#pragma unroll
    for (int c = 0; c < BOX_COLS; c += 16) {
      float a[4], b[4];
      uint32_t words[WORDS];
      finish_16(ctx, r, d, box * BOX_COLS + c, a, b);
      pack(a, b, words);
      share(to, c, words);
    }
  }

  // From there to memory, a line of 128 bytes by eight lanes. `at`: this lane's piece of row lane / 8.
  GPUOS_DEVICE void store_box(const gpuos_ctx &ctx, int box, uint32_t from, uint64_t at) {
    const uint32_t lane = gpuos_thread() % 32, first = gpuos_thread() / 32 * 16 + lane / 8;
    const bool col_inside = box * BOX_COLS + lane % 8 * PIECE < ctx.slot->box.n[2];
    const uint64_t row_bytes = (uint64_t)out::step(ctx, 1) * out::BYTES;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const uint4 v = ld_shared_v4(result_at(from, lane / 8 + i, lane % 8 * 16));
      if (col_inside && first + i < ctx.slot->box.n[1])
        st_global_v4(at + i * row_bytes + box * ROW_BYTES, v);
    }
  }

  // Each warp for itself.
  GPUOS_DEVICE void finish(const gpuos_ctx &ctx, const rows &r, const float (&d)[SETS][ACCS]) {
    if constexpr (!U::PIECES) return finish_direct(ctx, r, d);
    const uint32_t warp = gpuos_thread() / 32, lane = gpuos_thread() % 32;
    uint32_t point[GPUOS_DIMS];
    make_point(ctx, warp * 16 + lane / 8, lane % 8 * PIECE, point);
    const uint64_t at = out::at(ctx, point);
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      const uint32_t through = gpuos_result_box(ctx.smem, box);
      finish_box(ctx, r, d, box, through);
      __syncwarp();
      store_box(ctx, box, through, at);
    }
  }

  // ---- run: the workers -------------------------------------------------------------------------

  GPUOS_DEVICE gpuos_outcome run(const gpuos_ctx &ctx, gpuos_worker &worker) {
    float d[SETS][ACCS];
    begin(ctx, d);
    const uint32_t all = steps(*ctx.slot) - ctx.slot->slice * slice_steps(*ctx.slot);
    const uint32_t done = multiply_all(ctx, worker, d);
    const rows r = make_rows(ctx); // while the last step is multiplied
    drain(d);
    if (done > 0) gpuos_make_leaver(ctx).leave(worker.ring.before());
    if (done == all) {
      finish(ctx, r, d);
      gpuos_hand_over(ctx);
      return GPUOS_HANDED_OVER;
    }
    if (ctx.slot->stop_slice == GPUOS_NONE) return GPUOS_GIVEN_UP;
    park(ctx, d);
    return GPUOS_PARKED;
  }
};
