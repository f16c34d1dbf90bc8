// ring.cu: what a ring of bulk copies and tensor cores behind it get out of memory, by number of SMs.
//
//   nvcc -O2 -std=c++17 -arch=sm_90a tests/bench/ring.cu -o ring
//   ./ring
//
// y = W x, W of bf16 normals with K = 4096, 8 GiB of it: a loader, 8 worker warps that share each stage, a
// warp that stores. What differs between rows of the table: bytes of a copy and of a stage; tiles handed
// out by a ticket or dealt out beforehand; whether rows lie one after another as in memory or padded, each
// by a copy of its own; whether the next tile is asked into L2 first; whether anything is computed. GB/s,
// medians of five; results against fp32.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "bulk.cuh"

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) == cudaSuccess) break;                                                              \
    printf("%s failed\n", #call);                                                                  \
    _Exit(1);                                                                                      \
  } while (0)
enum { K = 4096, ROW = 2 * K, WARPS = 8, THREADS = (WARPS + 2) * 32, SLOTS = 4, TICKETS = 8 };

DEVICE void prefetch(const uint8_t *from, uint32_t bytes, uint64_t policy) {
  asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(from),
               "r"(bytes), "l"(policy)
               : "memory");
}
DEVICE uint4 load(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at));
  return v;
}
DEVICE void multiply(float (&c)[4], const uint4 &x, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
               "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(x.x), "r"(x.z), "r"(x.y), "r"(x.w), "r"(b0), "r"(b1));
}

// A stage and the parity of its mbarriers.
struct place {
  uint32_t at, parity;
  DEVICE place next(place p, uint32_t count) {
    return p.at + 1 == count ? place{0, p.parity ^ 1} : place{p.at + 1, p.parity};
  }
};

struct barriers {
  uint64_t full[32], empty[32], sums_full[SLOTS], sums_empty[SLOTS], tile_full[TICKETS],
      tile_empty[TICKETS];
  int tile[TICKETS];
  float sums[SLOTS][32][WARPS];
};

__device__ unsigned ticket;

// FEW: rows of a stage; STAGES of them; ROWS of a tile.
template <int FEW, int STAGES, int ROWS, bool TICKET, bool PAD, bool AHEAD, bool COMPUTE>
struct variant {
  enum { PITCH = ROW + (PAD ? 64 : 0), STAGE = FEW * PITCH, SEGS = 2, PIECE = SEGS * 64 };

  DEVICE int draw(int &dealt) {
    if (TICKET) return (int)atomicAdd(&ticket, 1);
    return (dealt += (int)gridDim.x) - (int)gridDim.x;
  }

  DEVICE void loader(barriers &b, uint32_t ring, const uint8_t *w, int tiles) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    int dealt = (int)blockIdx.x, now = draw(dealt), next = draw(dealt);
    place p = {0, 1};
    for (int turn = 0;; turn++) {
      const int slot = turn % TICKETS;
      wait(shared(&b.tile_empty[slot]), (turn / TICKETS & 1) ^ 1);
      b.tile[slot] = now < tiles ? now : -1;
      arrive(shared(&b.tile_full[slot]));
      if (now >= tiles) break;
      if (AHEAD && next < tiles) prefetch(w + (size_t)next * ROWS * ROW, ROWS * ROW, policy);
      const uint8_t *from = w + (size_t)now * ROWS * ROW;
      for (int row = 0; row < ROWS; row += FEW, p = place::next(p, STAGES)) {
        const uint32_t full = shared(&b.full[p.at]), to = ring + p.at * STAGE;
        wait(shared(&b.empty[p.at]), p.parity);
        expect(full, FEW * ROW);
        if (!PAD) copy(to, from + row * ROW, FEW * ROW, full, policy);
        for (int r = 0; PAD && r < FEW; r++)
          copy(to + r * PITCH, from + (row + r) * ROW, ROW, full, policy);
      }
      now = next, next = draw(dealt);
    }
    for (int s = 0; s < STAGES; s++, p = place::next(p, STAGES))
      wait(shared(&b.empty[p.at]), p.parity);
  }

  DEVICE bool take(barriers &b, int turn, int &tile) {
    const int slot = turn % TICKETS;
    wait(shared(&b.tile_full[slot]), turn / TICKETS & 1);
    tile = b.tile[slot];
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(shared(&b.tile_empty[slot]));
    return tile >= 0;
  }

  // The row that four groups of lanes share, in two segments: the sum of what they have of it.
  DEVICE void keep(float (&first)[4], float (&second)[4], int row, float (*sums)[WARPS]) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float even = first[0] + second[2], odd = first[1] + second[3];
    float sum = lane / 4 % SEGS == 0 ? even : odd;
    sum += __shfl_xor_sync(~0u, sum, 4);
    if (lane < 4) sums[row + lane][warp] = sum;
  }

  DEVICE void worker(barriers &b, uint32_t x, uint32_t ring) {
    enum { TURNS = ROW / PIECE / WARPS };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4;
    const uint32_t skip = warp * PIECE + (group % SEGS * 4 + lane % 4) * 16;
    uint4 xs[TURNS] = {};
    for (int i = 0; i < TURNS; i++)
      if (group < SEGS) xs[i] = load(x + skip + i * WARPS * PIECE);
    place p = {0, 0};
    int tile;
    for (int turn = 0; take(b, turn, tile); turn++) {
      const int slot = turn % SLOTS;
      wait(shared(&b.sums_empty[slot]), (turn / SLOTS & 1) ^ 1);
      for (int row = 0; row < ROWS; row += FEW, p = place::next(p, STAGES)) {
        wait(shared(&b.full[p.at]), p.parity);
        for (int few = 0; COMPUTE && few < FEW; few += 4) {
          const uint32_t w = ring + p.at * STAGE + (few + group / SEGS) * PITCH + skip;
          float first[4] = {}, second[4] = {};
#pragma unroll
          for (int i = 0; i < TURNS; i++) {
            const uint4 words = load(w + i * WARPS * PIECE);
            multiply(first, xs[i], words.x, words.y);
            multiply(second, xs[i], words.z, words.w);
          }
          keep(first, second, row + few, b.sums[slot]);
        }
        __syncwarp();
        if (lane == 0) arrive(shared(&b.empty[p.at]));
      }
      __syncwarp();
      if (lane == 0) arrive(shared(&b.sums_full[slot]));
    }
  }

  DEVICE void storer(barriers &b, float *y) {
    int tile;
    for (int turn = 0; take(b, turn, tile); turn++) {
      const int slot = turn % SLOTS, lane = threadIdx.x % 32;
      wait(shared(&b.sums_full[slot]), turn / SLOTS & 1);
      float sum = 0;
      for (int w = 0; w < WARPS; w++) sum += b.sums[slot][lane][w];
      if (lane < ROWS) y[(size_t)tile * ROWS + lane] = sum;
      __syncwarp();
      if (lane == 0) arrive(shared(&b.sums_empty[slot]));
    }
  }
};

template <class VARIANT, int STAGES>
__global__ void __launch_bounds__(THREADS, 1)
    run(const uint8_t *w, const __nv_bfloat16 *x, float *y, int tiles) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ barriers b;
  const int warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < ROW / 16; i += THREADS)
    ((uint4 *)memory)[i] = ((const uint4 *)x)[i];
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) init(shared(&b.full[i]), 1), init(shared(&b.empty[i]), WARPS);
    for (int i = 0; i < SLOTS; i++)
      init(shared(&b.sums_full[i]), WARPS), init(shared(&b.sums_empty[i]), 1);
    for (int i = 0; i < TICKETS; i++)
      init(shared(&b.tile_full[i]), 1), init(shared(&b.tile_empty[i]), WARPS + 1);
  }
  __syncthreads();
  const uint32_t at = shared(memory), ring = at + ROW;
  if (warp < WARPS) VARIANT::worker(b, at, ring);
  if (warp == WARPS && threadIdx.x % 32 == 0) VARIANT::loader(b, ring, w, tiles);
  if (warp == WARPS + 1) VARIANT::storer(b, y);
  __syncthreads();
}

__global__ void fill(__nv_bfloat16 *to, size_t count, float scale) {
  for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += (size_t)gridDim.x * blockDim.x) {
    uint64_t v = (i + 1) * 0x9e3779b97f4a7c15ull;
    v = (v ^ v >> 29) * 0xbf58476d1ce4e5b9ull, v = (v ^ v >> 32) * 0x94d049bb133111ebull,
    v ^= v >> 29;
    const float a = ((v >> 40) + 1) * 0x1p-24f, b = (v & 0xffffff) * 0x1p-24f;
    to[i] = __float2bfloat16(scale * sqrtf(-2.0f * logf(a)) * cospif(2.0f * b));
  }
}
__global__ void refer(const __nv_bfloat16 *w, const __nv_bfloat16 *x, float *y) {
  const size_t row = blockIdx.x;
  float sum = 0;
  for (int k = threadIdx.x; k < K; k += 32)
    sum += __bfloat162float(w[row * K + k]) * __bfloat162float(x[k]);
  for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (threadIdx.x == 0) y[row] = sum;
}

static uint8_t *w;
static __nv_bfloat16 *x;
static float *y;
static std::vector<float> wanted;
static const size_t rows = (8ull << 30) / ROW;

template <int FEW, int STAGES, int ROWS, bool TICKET = true, bool PAD = false, bool AHEAD = false,
          bool COMPUTE = true>
static void measure(const char *name) {
  using kind = variant<FEW, STAGES, ROWS, TICKET, PAD, AHEAD, COMPUTE>;
  const auto kernel = run<kind, STAGES>;
  const int smem = ROW + STAGES * kind::STAGE;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  CHECK(cudaMemset(y, 0xff, rows * sizeof *y));
  cudaEvent_t start, end;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&end));
  printf("%-46s", name);
  for (int sms : {132, 96, 72, 56, 48, 40, 24}) {
    std::vector<float> ms(5);
    for (float &t : ms) {
      const unsigned zero = 0;
      CHECK(cudaMemcpyToSymbol(ticket, &zero, sizeof zero));
      CHECK(cudaEventRecord(start));
      kernel<<<sms, THREADS, smem>>>(w, x, y, (int)(rows / ROWS));
      CHECK(cudaEventRecord(end));
      CHECK(cudaEventSynchronize(end));
      CHECK(cudaEventElapsedTime(&t, start, end));
    }
    std::sort(ms.begin(), ms.end());
    printf(" %d: %.0f", sms, rows * (double)ROW / ms[2] * 1e-6);
  }
  std::vector<float> found(rows);
  CHECK(cudaMemcpy(found.data(), y, rows * sizeof *y, cudaMemcpyDeviceToHost));
  double worst = 0;
  for (size_t i = 0; COMPUTE && i < rows; i++) {
    const double error = fabs(found[i] - wanted[i]);
    if (!(error <= worst)) worst = error;
  }
  if (COMPUTE) printf("   error %.1e", worst);
  puts("");
  fflush(stdout);
}

int main() {
  CHECK(cudaMalloc(&w, rows * ROW));
  CHECK(cudaMalloc(&x, ROW));
  CHECK(cudaMalloc(&y, rows * sizeof *y));
  fill<<<2048, 256>>>((__nv_bfloat16 *)w, rows * K, 0.02f);
  fill<<<16, 256>>>(x, K, 1.0f);
  refer<<<(unsigned)rows, 32>>>((const __nv_bfloat16 *)w, x, y);
  wanted.resize(rows);
  CHECK(cudaMemcpy(wanted.data(), y, rows * sizeof *y, cudaMemcpyDeviceToHost));
  measure<4, 6, 8>("32 KiB, tiles of 64 KiB by ticket");
  measure<4, 6, 8, false>("32 KiB, tiles of 64 KiB dealt out");
  measure<4, 6, 16>("32 KiB, tiles of 128 KiB by ticket");
  measure<4, 6, 16, true, true>("32 KiB by rows, padded, 128 KiB by ticket");
  measure<4, 6, 16, true, false, true>("32 KiB, 128 KiB by ticket, into L2 first");
  measure<4, 6, 16, true, false, false, false>("32 KiB, 128 KiB by ticket, only copied");
  measure<1, 24, 16, true, false, false, false>("8 KiB, 128 KiB by ticket, only copied");
}
