// matmul.cuh: MATMUL, one tile: acc_j = X W_j^T over all of k, then the expression.
//
// A ring of stages in shared memory, filled by cp.async STAGES - 1 steps ahead, so that bandwidth
// is there whatever the latency; one barrier a step, which is the yield point. k runs through the
// slices without a break: a slice ends at a yield point anyway.
//
// U, the generated instantiation, has operands x, w0, w1, norm, out, inputs; TILE_M, TILE_N; X_ELEM
// and W_ELEM, the formats in shared memory; X_COPY, W_COPY, NORM_COPY (gpuos_copy);
// NORMED, the format that a normalised X is rounded to; RUN, elements
// of n that the epilogue loads and stores at once; STREAM, W is read once;
// of(acc, in), the expression.
#pragma once
#include "matmul_warp.cuh"
#include "unit.cuh"

// How an operand comes into shared memory.
enum gpuos_copy {
  GPUOS_COPY_ASYNC, // k is contiguous, in 16-byte chunks, format unchanged: cp.async
  GPUOS_COPY_K,     // element by element, neighbouring threads along k
  GPUOS_COPY_ROW,   // the same along rows: k is not the contiguous dimension
};

// With 32-bit formats on the fp32 units, otherwise on the tensor cores.
template <class U, int COUNT, int ELEM_BYTES> struct gpuos_matmul_tile {
  using type = gpuos_mma_tile<U::X_ELEM, U::W_ELEM, U::TILE_M, U::TILE_N, COUNT>;
};
template <class U, int COUNT> struct gpuos_matmul_tile<U, COUNT, 4> {
  using type = gpuos_ffma_tile<U::TILE_M, U::TILE_N, COUNT>;
};

template <class U> struct gpuos_matmul {
  using x = typename U::x;
  using w0 = typename U::w0;
  using w1 = typename U::w1;
  using norm = typename U::norm;
  using out = typename U::out;
  using inputs = typename U::inputs;

  enum {
    COUNT = w1::PRESENT ? 2 : 1,
    ELEM_BYTES = gpuos_format<U::X_ELEM>::BYTES,
    BLOCK_K = GPUOS_ROW_BYTES / ELEM_BYTES, // elements
    ROWS = U::TILE_M + COUNT * U::TILE_N,
    // A step should move tens of KiB, or its barrier is what it costs.
    K_BLOCKS = ROWS <= 48    ? 4
               : ROWS <= 128 ? 2
                             : 1,
    STEP_K = BLOCK_K * K_BLOCKS,
    X_BYTES = U::TILE_M * GPUOS_ROW_BYTES * K_BLOCKS,
    W_BYTES = U::TILE_N * GPUOS_ROW_BYTES * K_BLOCKS, // of each of COUNT
    NORM_BYTES = norm::PRESENT ? STEP_K * norm::BYTES : 0,
    STAGE_BYTES = X_BYTES + COUNT * W_BYTES + NORM_BYTES,
    SCALE_BYTES = norm::PRESENT ? U::TILE_M * (GPUOS_WARPS + 1) * 4 : 0,
    ROOM = GPUOS_PLAIN_SMEM - SCALE_BYTES,
    STAGES = ROOM / STAGE_BYTES < 8 ? ROOM / STAGE_BYTES : 8,
  };
  static_assert(STAGES >= 2, "a matmul tile does not fit in shared memory twice");
  using tile = typename gpuos_matmul_tile<U, COUNT, ELEM_BYTES>::type;

  enum {
    PITCH = U::TILE_N + 8, // floats
    PANEL_FLOATS = tile::PANEL_ROWS * PITCH,
    PANEL_BYTES = COUNT * PANEL_FLOATS * 4,
    RING_BYTES = STAGES * STAGE_BYTES,
    SMEM_BYTES = SCALE_BYTES + (RING_BYTES > PANEL_BYTES ? RING_BYTES : PANEL_BYTES),
  };
  static_assert(SMEM_BYTES <= GPUOS_PLAIN_SMEM, "the epilogue's panel");

  // One batch of the tile.
  struct place {
    uint32_t batch, m, n, rows, cols, k_first, k_end;
  };
  GPUOS_DEVICE place make_place(const gpuos_ctx &ctx, uint32_t batch) {
    const gpuos_box_t &box = ctx.slot->box;
    return {batch, box.lo[1], box.lo[2], box.n[1], box.n[2], box.lo[3], box.lo[3] + box.n[3]};
  }

  GPUOS_DEVICE char *stage(const gpuos_ctx &ctx, uint32_t step) {
    return ctx.smem + SCALE_BYTES + step % STAGES * STAGE_BYTES;
  }
  // ---- load -------------------------------------------------------------------------------------

  // 16-byte chunks of TILE rows, of which `rows` are there; the others, and what lies beyond k_end,
  // become zero.
  template <class OPERAND, int TILE, bool STREAM>
  GPUOS_DEVICE void load_async(uint32_t to, uint64_t from, uint64_t row_bytes, uint32_t rows,
                               uint32_t k, uint32_t k_end) {
    constexpr uint32_t CHUNKS = 8 * K_BLOCKS, ROW_STEP = GPUOS_THREADS / CHUNKS;
    const uint64_t policy = STREAM ? createpolicy_evict_first() : 0;
    const uint32_t first = gpuos_thread() / CHUNKS, chunk = gpuos_thread() % CHUNKS;
    const uint32_t at_k = k + chunk * (16 / OPERAND::BYTES);
    constexpr uint32_t CHUNK = 16 / OPERAND::BYTES; // elements
    const uint32_t left = at_k < k_end ? min(CHUNK, k_end - at_k) * OPERAND::BYTES : 0;
    // ROW_STEP is a multiple of 8: the chunk's place in its row stays the same.
    to += chunk / 8 * (TILE * GPUOS_ROW_BYTES) + gpuos_swizzle(first, chunk % 8);
    from += first * row_bytes + (uint64_t)at_k * OPERAND::BYTES;
#pragma unroll
    for (uint32_t row = 0; row < TILE; row += ROW_STEP) {
      if (TILE % ROW_STEP != 0 && row + first >= TILE) break;
      const uint32_t bytes = row + first < rows ? left : 0; // of 0 nothing is read
      if constexpr (STREAM)
        cp_async_cg_16_hint(to + row * GPUOS_ROW_BYTES, (const void *)from, bytes, policy);
      else
        cp_async_cg_16(to + row * GPUOS_ROW_BYTES, (const void *)from, bytes);
      from += ROW_STEP * row_bytes;
    }
  }

  // The same element by element, for any strides and formats.
  template <class OPERAND, int ELEM, int TILE, bool ALONG_K>
  GPUOS_DEVICE void load_each(char *to, uint64_t from, uint64_t row_step, uint64_t k_step,
                              uint32_t rows, uint32_t k, uint32_t k_end) {
#pragma unroll 4
    for (uint32_t i = gpuos_thread(); i < TILE * STEP_K; i += GPUOS_THREADS) {
      uint32_t row = ALONG_K ? i / STEP_K : i % TILE, kk = ALONG_K ? i % STEP_K : i / TILE;
      uint32_t byte = kk % BLOCK_K * ELEM_BYTES, bits = 0;
      if (row < rows && k + kk < k_end) {
        uint64_t element = row * row_step + (k + kk) * k_step;
        bits = gpuos_load_bits<OPERAND::DTYPE>(from + element * OPERAND::BYTES);
        if constexpr (ELEM != OPERAND::DTYPE)
          bits = gpuos_narrow<ELEM>(gpuos_widen<OPERAND::DTYPE>(bits));
      }
      gpuos_store_bits<ELEM>(to + kk / BLOCK_K * (TILE * GPUOS_ROW_BYTES) +
                                 gpuos_swizzle(row, byte / 16) + byte % 16,
                             bits);
    }
  }

  GPUOS_DEVICE void load_x(const gpuos_ctx &ctx, const place &p, char *to, uint32_t k) {
    const uint32_t point[GPUOS_DIMS] = {p.batch, p.m, 0, 0};
    const uint64_t from = x::at(ctx, point), row_step = x::step(ctx, 1);
    if constexpr (U::X_COPY == GPUOS_COPY_ASYNC)
      load_async<x, U::TILE_M, false>(shared_address(to), from, row_step * x::BYTES, p.rows, k,
                                      p.k_end);
    else
      load_each<x, U::X_ELEM, U::TILE_M, U::X_COPY == GPUOS_COPY_K>(
          to, from, row_step, x::step(ctx, 3), p.rows, k, p.k_end);
  }

  template <class W>
  GPUOS_DEVICE void load_w(const gpuos_ctx &ctx, const place &p, char *to, uint32_t k) {
    const uint32_t point[GPUOS_DIMS] = {p.batch, 0, p.n, 0};
    const uint64_t from = W::at(ctx, point), row_step = W::step(ctx, 2);
    if constexpr (U::W_COPY == GPUOS_COPY_ASYNC)
      load_async<W, U::TILE_N, U::STREAM>(shared_address(to), from, row_step * W::BYTES, p.cols, k,
                                          p.k_end);
    else
      load_each<W, U::W_ELEM, U::TILE_N, U::W_COPY == GPUOS_COPY_K>(
          to, from, row_step, W::step(ctx, 3), p.cols, k, p.k_end);
  }

  GPUOS_DEVICE void load_norm(const gpuos_ctx &ctx, const place &p, char *to, uint32_t k) {
    constexpr uint32_t CHUNK = 16 / norm::BYTES;
    const uint64_t from = norm::base(ctx), step = norm::step(ctx, 3);
    if constexpr (U::NORM_COPY == GPUOS_COPY_ASYNC) {
      for (uint32_t i = gpuos_thread() * CHUNK; i < STEP_K; i += GPUOS_THREADS * CHUNK) {
        uint32_t left = k + i < p.k_end ? (p.k_end - k - i) * norm::BYTES : 0;
        uint64_t source = left == 0 ? from : from + (uint64_t)(k + i) * norm::BYTES;
        cp_async_cg_16(shared_address(to + i * norm::BYTES), (const void *)source,
                       left < 16 ? left : 16);
      }
    } else {
      for (uint32_t i = gpuos_thread(); i < STEP_K; i += GPUOS_THREADS) {
        uint64_t source = from + (k + i) * step * norm::BYTES;
        uint32_t bits = k + i < p.k_end ? gpuos_load_bits<norm::DTYPE>(source) : 0;
        gpuos_store_bits<norm::DTYPE>(to + i * norm::BYTES, bits);
      }
    }
  }

  // Starts the copies of one step; beyond the last one an empty group, so that groups count steps.
  GPUOS_DEVICE void load(const gpuos_ctx &ctx, const place &p, uint32_t step, uint32_t steps) {
    if (step < steps) {
      char *to = stage(ctx, step);
      const uint32_t k = p.k_first + step * STEP_K;
      load_x(ctx, p, to, k);
      load_w<w0>(ctx, p, to + X_BYTES, k);
      if constexpr (w1::PRESENT) load_w<w1>(ctx, p, to + X_BYTES + W_BYTES, k);
      if constexpr (norm::PRESENT) load_norm(ctx, p, to + X_BYTES + COUNT * W_BYTES, k);
    }
    cp_async_commit_group();
  }

  // ---- normalise --------------------------------------------------------------------------------

  // What row r of X is multiplied by: 1 / root mean square. After the sums of the warps, [TILE_M].
  GPUOS_DEVICE float *scales(const gpuos_ctx &ctx) {
    return (float *)ctx.smem + U::TILE_M * GPUOS_WARPS;
  }

  // Sum of the squares of one row of X, this warp's part of it.
  GPUOS_DEVICE float squares(const gpuos_ctx &ctx, const place &p, uint32_t row) {
    constexpr int RUN = U::X_COPY == GPUOS_COPY_ASYNC ? 8 : 1;
    const uint32_t point[GPUOS_DIMS] = {p.batch, p.m + row, 0, 0};
    const uint64_t from = x::at(ctx, point), step = x::step(ctx, 3);
    float sum = 0.0f;
#pragma unroll 2
    for (uint32_t k = p.k_first + gpuos_thread() * RUN; k < p.k_end; k += GPUOS_THREADS * RUN) {
      float values[RUN];
      if (RUN == 1 || k + RUN <= p.k_end)
        gpuos_load<x::DTYPE, RUN>(from + k * step * x::BYTES, values);
      else
        load_tail(values, from + k * step * x::BYTES, p.k_end - k);
#pragma unroll
      for (int i = 0; i < RUN; i++) sum = fmaf(values[i], values[i], sum);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    return sum;
  }

  template <int RUN>
  GPUOS_DEVICE void load_tail(float (&values)[RUN], uint64_t from, uint32_t count) {
#pragma unroll
    for (uint32_t i = 0; i < RUN; i++) {
      float one[1] = {0.0f};
      if (i < count) gpuos_load<x::DTYPE, 1>(from + i * x::BYTES, one);
      values[i] = one[0];
    }
  }

  GPUOS_DEVICE void find_scales(const gpuos_ctx &ctx, const place &p) {
    float *sums = (float *)ctx.smem;
    for (uint32_t row = 0; row < p.rows; row++) {
      float sum = squares(ctx, p, row);
      if (gpuos_thread() % 32 == 0) sums[row * GPUOS_WARPS + gpuos_thread() / 32] = sum;
    }
    gpuos_barrier();
    if (gpuos_thread() >= U::TILE_M) return;
    float sum = 0.0f;
    for (int w = 0; w < GPUOS_WARPS && gpuos_thread() < p.rows; w++)
      sum += sums[gpuos_thread() * GPUOS_WARPS + w];
    const float mean = sum / (float)(p.k_end - p.k_first);
    scales(ctx)[gpuos_thread()] = 1.0f / sqrtf(mean + __uint_as_float(ctx.slot->of->op.params[0]));
  }

  // X of one stage, in place: divided by its row's root mean square, rounded, times NORM, rounded.
  GPUOS_DEVICE void normalise(const gpuos_ctx &ctx, uint32_t step) {
    constexpr uint32_t CHUNKS = 8 * K_BLOCKS, PER_WORD = gpuos_format<U::X_ELEM>::PER_WORD;
    char *xs = stage(ctx, step), *norms = xs + X_BYTES + COUNT * W_BYTES;
    for (uint32_t i = gpuos_thread(); i < U::TILE_M * CHUNKS * 4; i += GPUOS_THREADS) {
      const uint32_t word = i % 4, chunk = i / 4 % CHUNKS, row = i / 4 / CHUNKS;
      const uint32_t k = (chunk * 4 + word) * PER_WORD;
      uint32_t *at = (uint32_t *)(xs + chunk / 8 * (U::TILE_M * GPUOS_ROW_BYTES) +
                                  gpuos_swizzle(row, chunk % 8)) +
                     word;
      float values[4];
      gpuos_format<U::X_ELEM>::widen(*at, values);
#pragma unroll
      for (int e = 0; e < PER_WORD; e++) {
        float weight = gpuos_widen<norm::DTYPE>(gpuos_load_shared<norm::DTYPE>(norms, k + e));
        values[e] =
            gpuos_round<U::NORMED>(gpuos_round<x::DTYPE>(values[e] * scales(ctx)[row]) * weight);
      }
      *at = gpuos_format<U::X_ELEM>::narrow(values);
    }
  }

  // ---- compute ----------------------------------------------------------------------------------

  GPUOS_DEVICE void compute(const gpuos_ctx &ctx, tile &sums, uint32_t step) {
    const uint32_t xs = shared_address(stage(ctx, step)), ws = xs + X_BYTES;
#pragma unroll
    for (int block = 0; block < K_BLOCKS; block++)
      sums.add(xs + block * (U::TILE_M * GPUOS_ROW_BYTES),
               ws + block * (U::TILE_N * GPUOS_ROW_BYTES), W_BYTES);
  }

  // False: given up.
  GPUOS_DEVICE bool multiply(gpuos_ctx &ctx, const place &p, tile &sums) {
    const uint32_t steps = (p.k_end - p.k_first + STEP_K - 1) / STEP_K,
                   slice = ctx.slot->of->op.slice;
    uint32_t slice_end = slice;
    for (uint32_t step = 0; step + 1 < STAGES; step++) load(ctx, p, step, steps);
    if constexpr (norm::PRESENT) find_scales(ctx, p);
    for (uint32_t step = 0; step < steps; step++) {
      cp_async_wait_group<STAGES - 2>();
      // From here on this step's copies are everyone's, and nobody reads the stage before.
      if (!gpuos_yield(ctx)) return false;
      if constexpr (norm::PRESENT) {
        normalise(ctx, step);
        gpuos_barrier();
      }
      load(ctx, p, step + STAGES - 1, steps);
      compute(ctx, sums, step);
      if (slice != 0 && (step + 1) * STEP_K >= slice_end && step + 1 < steps) {
        gpuos_next_slice(ctx);
        slice_end += slice;
      }
    }
    return true;
  }

  // ---- store ------------------------------------------------------------------------------------

  // RUN columns of one row of a panel: the expression, then OUT.
  GPUOS_DEVICE void store_run(const gpuos_ctx &ctx, const float *from,
                              const uint32_t (&point)[GPUOS_DIMS]) {
    constexpr int RUN = U::RUN;
    float values[RUN], in[inputs::ROOM][RUN];
    inputs::template load<RUN, 2>(ctx, point, in);
#pragma unroll
    for (int i = 0; i < RUN; i++) {
      const float acc[2] = {from[i], COUNT == 2 ? from[PANEL_FLOATS + i] : 0.0f};
      float arguments[inputs::ROOM];
#pragma unroll
      for (int n = 0; n < inputs::COUNT; n++) arguments[n] = in[n][i];
      values[i] = U::of(acc, arguments);
    }
    out::template store<RUN>(ctx, point, values);
  }

  // The accumulators cross shared memory a panel at a time, so that neighbouring threads load and
  // store neighbouring columns.
  GPUOS_DEVICE void store(const gpuos_ctx &ctx, const place &p, const tile &sums) {
    constexpr uint32_t RUNS = U::TILE_N / U::RUN;
    float *panel_floats = (float *)(ctx.smem + SCALE_BYTES);
#pragma unroll
    for (int panel = 0; panel < tile::PANELS; panel++) {
      gpuos_barrier();
      sums.spill(panel, panel_floats, PITCH);
      gpuos_barrier();
      for (uint32_t i = gpuos_thread(); i < tile::PANEL_ROWS * RUNS; i += GPUOS_THREADS) {
        const uint32_t r = i / RUNS, row = tile::row(panel, r), col = i % RUNS * U::RUN;
        const uint32_t point[GPUOS_DIMS] = {p.batch, p.m + row, p.n + col, 0};
        if (row < p.rows && col < p.cols) store_run(ctx, panel_floats + r * PITCH + col, point);
      }
    }
    gpuos_barrier();
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const uint32_t first = ctx.slot->box.lo[0], count = ctx.slot->box.n[0];
    for (uint32_t batch = first; batch < first + count; batch++) {
      const place p = make_place(ctx, batch);
      tile sums;
      bool whole = multiply(ctx, p, sums);
      cp_async_wait_group<0>(); // the ring is about to be something else
      if (!whole) return false;
      store(ctx, p, sums);
    }
    return true;
  }
};
