// matmul_warp.cuh: the arithmetic of a matmul tile, from shared memory into registers.
//
// Both operands lie in shared memory with k along rows of 128 bytes, the 16-byte chunk c of row r
// at place c ^ (r % 8), so that the eight rows an ldmatrix phase or a quarter warp reads lie in
// different banks. A block is rows x 128 bytes; a stage holds K_BLOCKS of them one after another.
//
// gpuos_mma_tile uses mma.sync, gpuos_ffma_tile plain fp32. Members of both, in order: add (one
// block), PANELS, PANEL_ROWS, row and spill, which hand the accumulators out a panel of rows at a
// time.
#pragma once
#include "unit.cuh"

enum { GPUOS_ROW_BYTES = 128, GPUOS_CHUNK_BYTES = 16 };

// Bytes from the start of a block.
GPUOS_DEVICE uint32_t gpuos_swizzle(uint32_t row, uint32_t chunk) {
  return row * GPUOS_ROW_BYTES + (chunk ^ (row & 7)) * GPUOS_CHUNK_BYTES;
}

// ---- tensor cores -------------------------------------------------------------------------------

// Chips with wgmma or tcgen05 multiply 8-bit floats only there; ptxas expands their mma.sync into
// twice the instructions and registers that it takes to widen to f16, which is exact, by hand.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
enum { GPUOS_FP8_MMA = 0 };
#else
enum { GPUOS_FP8_MMA = 1 };
#endif

template <int DTYPE> GPUOS_DEVICE constexpr bool gpuos_is_fp8() {
  return DTYPE == GPUOS_E4M3 || DTYPE == GPUOS_E5M2;
}

// Two of the four 8-bit elements of a register as f16: the lower, or the higher ones.
template <int DTYPE> GPUOS_DEVICE uint32_t gpuos_fp8_to_f16(uint32_t word, int high) {
  const uint32_t pair = high ? word >> 16 : word;
  return DTYPE == GPUOS_E4M3 ? cvt_rn_f16x2_e4m3x2(pair) : cvt_rn_f16x2_e5m2x2(pair);
}

// 32 bytes of k of 16 rows of X, or of 8 rows of W, as mma.sync takes them, in PARTS instructions.
// The fragments of 8-bit m16n8k32 and 16-bit m16n8k16 are the same bytes. Widened, k 4 t .. 4 t + 3
// of lane t become its places 2 t, 2 t + 1, 2 t + 8, 2 t + 9 of k16: another order of k, but the
// same one in X and W.
template <int DTYPE, int REGISTERS> struct gpuos_fragment {
  enum { WIDENED = gpuos_is_fp8<DTYPE>() && !GPUOS_FP8_MMA, PARTS = WIDENED ? 2 : 1 };
  uint32_t part[PARTS][REGISTERS];

  // words: as ldmatrix gives them, the upper half of the registers 16 bytes of k further.
  __device__ __forceinline__ void set(const uint32_t *words) {
    constexpr int HALF = REGISTERS / 2;
#pragma unroll
    for (int i = 0; i < REGISTERS; i++)
      if constexpr (WIDENED) {
        part[0][i] = gpuos_fp8_to_f16<DTYPE>(words[i % HALF], i / HALF);
        part[1][i] = gpuos_fp8_to_f16<DTYPE>(words[HALF + i % HALF], i / HALF);
      } else {
        part[0][i] = words[i];
      }
  }
};

template <int X, int W>
GPUOS_DEVICE void gpuos_mma(float (&c)[4], const gpuos_fragment<X, 4> &a,
                            const gpuos_fragment<W, 2> &b) {
#pragma unroll
  for (int p = 0; p < gpuos_fragment<X, 4>::PARTS; p++) {
    const uint32_t(&x)[4] = a.part[p], (&w)[2] = b.part[p];
    if constexpr (X == GPUOS_BF16)
      mma_m16n8k16_bf16(c, x, w[0], w[1]);
    else if constexpr (X == GPUOS_F16 || !GPUOS_FP8_MMA)
      mma_m16n8k16_f16(c, x, w[0], w[1]);
    else if constexpr (X == GPUOS_E4M3 && W == GPUOS_E4M3)
      mma_m16n8k32_e4m3_e4m3(c, x, w[0], w[1]);
    else if constexpr (X == GPUOS_E4M3)
      mma_m16n8k32_e4m3_e5m2(c, x, w[0], w[1]);
    else if constexpr (W == GPUOS_E4M3)
      mma_m16n8k32_e5m2_e4m3(c, x, w[0], w[1]);
    else
      mma_m16n8k32_e5m2_e5m2(c, x, w[0], w[1]);
  }
}

// COUNT accumulators of TILE_M x TILE_N; a warp has WARP_M x WARP_N of each.
template <int X, int W, int TILE_M, int TILE_N, int COUNT> struct gpuos_mma_tile {
  enum {
    N_WARPS = TILE_M == 16 ? (TILE_N >= 64 ? 8 : TILE_N / 8) : (TILE_N == 16 ? 2 : 4),
    M_WARPS = TILE_M / 16 < 8 / N_WARPS ? TILE_M / 16 : 8 / N_WARPS,
    WARP_M = TILE_M / M_WARPS,
    WARP_N = TILE_N / N_WARPS,
    M_TILES = WARP_M / 16,
    N_TILES = WARP_N / 8,
    K_STEPS = GPUOS_ROW_BYTES / 32,
  };
  float acc[COUNT][M_TILES][N_TILES][4] = {};

  GPUOS_DEVICE uint32_t warp() { return gpuos_thread() / 32; }
  GPUOS_DEVICE uint32_t lane() { return gpuos_thread() % 32; }
  GPUOS_DEVICE bool idle() { return warp() >= M_WARPS * N_WARPS; } // small tiles
  GPUOS_DEVICE uint32_t first_row() { return warp() / N_WARPS * WARP_M; }
  GPUOS_DEVICE uint32_t first_col() { return warp() % N_WARPS * WARP_N; }

  // Rows m..m+15 of X, 32 bytes of k: register 1 is 8 rows, 2 is 16 bytes of k, 3 is both further.
  GPUOS_DEVICE void load_x(gpuos_fragment<X, 4> &a, uint32_t block, uint32_t m, uint32_t k) {
    uint32_t words[4], row = first_row() + m + lane() % 16;
    ldmatrix_x4(words, block + gpuos_swizzle(row, 2 * k + lane() / 16));
    a.set(words);
  }

  // Rows n..n+15 of W: two fragments.
  GPUOS_DEVICE void load_w_pair(gpuos_fragment<W, 2> (&b)[2], uint32_t block, uint32_t n,
                                uint32_t k) {
    uint32_t words[4], row = first_col() + n + lane() / 16 * 8 + lane() % 8;
    ldmatrix_x4(words, block + gpuos_swizzle(row, 2 * k + lane() / 8 % 2));
    b[0].set(words);
    b[1].set(words + 2);
  }
  GPUOS_DEVICE void load_w_one(gpuos_fragment<W, 2> &b, uint32_t block, uint32_t n, uint32_t k) {
    uint32_t words[2], row = first_col() + n + lane() % 8; // lanes 16.. give addresses nobody uses
    ldmatrix_x2(words, block + gpuos_swizzle(row, 2 * k + lane() / 8 % 2));
    b.set(words);
  }

  __device__ __forceinline__ void add_k(uint32_t w, int j, int k,
                                        const gpuos_fragment<X, 4> (&a)[M_TILES]) {
#pragma unroll
    for (int n = 0; n + 1 < N_TILES; n += 2) {
      gpuos_fragment<W, 2> b[2];
      load_w_pair(b, w, n * 8, k);
#pragma unroll
      for (int m = 0; m < M_TILES; m++) {
        gpuos_mma<X, W>(acc[j][m][n], a[m], b[0]);
        gpuos_mma<X, W>(acc[j][m][n + 1], a[m], b[1]);
      }
    }
    if constexpr (N_TILES % 2 == 1) {
      gpuos_fragment<W, 2> b;
      load_w_one(b, w, (N_TILES - 1) * 8, k);
#pragma unroll
      for (int m = 0; m < M_TILES; m++) gpuos_mma<X, W>(acc[j][m][N_TILES - 1], a[m], b);
    }
  }

  // One block: x and w are shared memory addresses, w of the first accumulator's W and w_pitch
  // bytes before the next one's.
  __device__ __forceinline__ void add(uint32_t x, uint32_t w, uint32_t w_pitch) {
    if (idle()) return;
#pragma unroll
    for (int k = 0; k < K_STEPS; k++) {
      gpuos_fragment<X, 4> a[M_TILES];
#pragma unroll
      for (int m = 0; m < M_TILES; m++) load_x(a[m], x, m * 16, k);
#pragma unroll
      for (int j = 0; j < COUNT; j++) add_k(w + j * w_pitch, j, k, a);
    }
  }

  enum { PANELS = M_TILES, PANEL_ROWS = M_WARPS * 16 };

  // Row of the tile that is row r of panel p.
  GPUOS_DEVICE uint32_t row(uint32_t p, uint32_t r) { return r / 16 * WARP_M + p * 16 + r % 16; }

  // Panel p as floats [COUNT][PANEL_ROWS][pitch]; pitch 8 modulo 32 keeps the stores off each
  // other's banks.
  __device__ __forceinline__ void spill(int p, float *to, uint32_t pitch) const {
    if (idle()) return;
    to += (warp() / N_WARPS * 16 + lane() / 4) * pitch + first_col() + lane() % 4 * 2;
#pragma unroll
    for (int j = 0; j < COUNT; j++, to += PANEL_ROWS * pitch)
#pragma unroll
      for (int n = 0; n < N_TILES; n++) {
        const float(&c)[4] = acc[j][p][n];
        *(float2 *)(to + n * 8) = make_float2(c[0], c[1]);
        *(float2 *)(to + 8 * pitch + n * 8) = make_float2(c[2], c[3]);
      }
  }
};

// ---- plain fp32 ---------------------------------------------------------------------------------

// Thread (y, x) of 16 x 16 has rows y + 16 i and columns x + 16 i.
template <int TILE_M, int TILE_N, int COUNT> struct gpuos_ffma_tile {
  enum { ROWS = TILE_M / 16, COLS = TILE_N / 16, K_CHUNKS = GPUOS_ROW_BYTES / GPUOS_CHUNK_BYTES };
  float acc[COUNT][ROWS][COLS] = {};

  GPUOS_DEVICE uint32_t x() { return gpuos_thread() % 16; }
  GPUOS_DEVICE uint32_t y() { return gpuos_thread() / 16; }
  GPUOS_DEVICE float4 chunk(uint32_t block, uint32_t row, uint32_t k) {
    return *(const float4 *)__cvta_shared_to_generic(block + gpuos_swizzle(row, k));
  }

  __device__ __forceinline__ void add_col(int j, int col, const float4 (&a)[ROWS], float4 b) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      float &sum = acc[j][r][col];
      sum = fmaf(a[r].x, b.x, sum);
      sum = fmaf(a[r].y, b.y, sum);
      sum = fmaf(a[r].z, b.z, sum);
      sum = fmaf(a[r].w, b.w, sum);
    }
  }

  __device__ __forceinline__ void add(uint32_t block_x, uint32_t block_w, uint32_t w_pitch) {
#pragma unroll 2
    for (uint32_t k = 0; k < K_CHUNKS; k++) {
      float4 a[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) a[r] = chunk(block_x, y() + 16 * r, k);
#pragma unroll
      for (int j = 0; j < COUNT; j++)
#pragma unroll
        for (int c = 0; c < COLS; c++)
          add_col(j, c, a, chunk(block_w + j * w_pitch, x() + 16 * c, k));
    }
  }

  enum { PANELS = ROWS, PANEL_ROWS = 16 };
  GPUOS_DEVICE uint32_t row(uint32_t p, uint32_t r) { return p * 16 + r; }

  __device__ __forceinline__ void spill(int p, float *to, uint32_t pitch) const {
    to += y() * pitch + x();
#pragma unroll
    for (int j = 0; j < COUNT; j++, to += PANEL_ROWS * pitch)
#pragma unroll
      for (int c = 0; c < COLS; c++) to[16 * c] = acc[j][p][c];
  }
};
