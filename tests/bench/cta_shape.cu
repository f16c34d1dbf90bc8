// cta_shape.cu: which CTA, one an SM, can play both roles: the live stream at the read ceiling and a wgmma GEMM?
//
//   nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a cta_shape.cu -o cta_shape -lcublasLt -lcuda
//   ./cta_shape
//
// Prints, on one H200 in one run: the read ceiling by CTA shape and SM count with power and clock; an FP8 GEMM 8192^3 of
// one kernel of 384 threads (wgmma, TMA, two consumer warpgroups of 2 x m64n128, setmaxnreg 232 / 40) beside cuBLASLt, burst
// and sustained, checked against sampled rows in double; and a run in which every CTA changes roles from tile to tile, which
// is what a resident kernel will do.
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_fp8.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <atomic>
#include <vector>

#define CHECK(call)                                                                                 \
  do {                                                                                              \
    auto status_ = (call);                                                                          \
    if (status_ != 0) {                                                                             \
      printf("%s:%d: %s gives %d\n", __FILE__, __LINE__, #call, (int)status_);                      \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

// ---- PTX --------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t smem_u32(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void mbarrier_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
__device__ __forceinline__ void mbarrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Arrives at the barrier of the same offset in CTA `rank` of the cluster.
__device__ __forceinline__ void mbarrier_arrive_at(uint32_t bar, uint32_t rank) {
  asm volatile("{.reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [a];}" ::"r"(bar),
               "r"(rank) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity) {
  asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra done; bra again; done:}" ::"r"(bar),
               "r"(parity) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap *map, uint32_t bar, int k, int row) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
               "l"(map), "r"(bar), "r"(k), "r"(row) : "memory");
}
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap *map, uint32_t bar, int k, int row, uint16_t mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
               "l"(map), "r"(bar), "r"(k), "r"(row), "h"(mask) : "memory");
}
__device__ __forceinline__ uint64_t descriptor(uint32_t address) { // K-major, 128-byte swizzle, groups of 8 rows 1024 bytes apart
  return (uint64_t)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
#define R8(n) "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3]), "+f"(d[n + 4]), "+f"(d[n + 5]), "+f"(d[n + 6]), "+f"(d[n + 7])
__device__ __forceinline__ void wgmma_m64n128k32(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %66, 0;"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
      " %64, %65, p, 1, 1;}"
      : R8(0), R8(8), R8(16), R8(24), R8(32), R8(40), R8(48), R8(56)
      : "l"(a), "l"(b), "r"(add));
}
template <int N> __device__ __forceinline__ void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ __forceinline__ void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// ---- the stream role ------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint4 load_first(const uint4 *p, uint64_t policy) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p), "l"(policy));
  return v;
}

// One ticket: `count` 16-byte words of the CTA's threads, LOADS in flight each.
template <int THREADS, int LOADS> __device__ __forceinline__ uint32_t stream_ticket(const uint4 *from, uint32_t count, uint64_t policy) {
  uint4 v[LOADS];
  uint32_t sum = 0;
  const uint4 *p = from + threadIdx.x;
#pragma unroll
  for (int i = 0; i < LOADS; i++) v[i] = load_first(p + i * THREADS, policy);
  uint32_t rounds = count / (THREADS * LOADS);
  for (uint32_t r = 1; r < rounds; r++) {
    p += THREADS * LOADS;
#pragma unroll
    for (int i = 0; i < LOADS; i++) { // rolling: the word is used and its place refilled
      sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
      v[i] = load_first(p + i * THREADS, policy);
    }
  }
#pragma unroll
  for (int i = 0; i < LOADS; i++) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  return sum;
}

template <int THREADS, int LOADS, int CTAS>
__global__ void __launch_bounds__(THREADS, CTAS) stream_kernel(const uint4 *data, uint32_t ticket_words, uint32_t tickets, uint32_t *ticket, uint32_t *out) {
  __shared__ uint32_t mine[2];
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  uint32_t sum = 0;
  if (threadIdx.x == 0) mine[0] = atomicAdd(ticket, 1);
  __syncthreads();
  for (int turn = 0;; turn ^= 1) {
    uint32_t t = mine[turn];
    if (t >= tickets) break;
    if (threadIdx.x == 0) mine[turn ^ 1] = atomicAdd(ticket, 1); // the next one, while this one's words fly
    sum ^= stream_ticket<THREADS, LOADS>(data + (uint64_t)t * ticket_words, ticket_words, policy);
    __syncthreads();
  }
  if (sum == 0x12345678) out[blockIdx.x] = sum;
}

// ---- the GEMM role -----------------------------------------------------------------------------------------------------------

enum { TM = 128, TN = 256, TK = 128, STAGES = 4, STAGE_BYTES = (TM + TN) * TK, C_BYTES = 32768, GEMM_SMEM = STAGES * STAGE_BYTES + C_BYTES + 1024 + 128 };

struct gemm_t {
  int tiles_m, tiles_n, steps, group, n;
  const float *scale;
  __nv_bfloat16 *c;
};

// Raster: groups of `group` tile rows, columns inside.
__device__ __forceinline__ void tile_at(const gemm_t &g, int tile, int *m, int *n) {
  int per_group = g.group * g.tiles_n, group = tile / per_group, first = group * g.group;
  int rows = min(g.group, g.tiles_m - first), in = tile - group * per_group;
  *m = first + in % rows;
  *n = in / rows;
}

struct ring_t { // of this thread's role
  uint32_t step;
};

// Tiles are pairs for clusters of two: CTA `rank` takes tile row 2 i + rank, and both share the columns of B.
template <int CLUSTER>
__device__ __forceinline__ void produce(const CUtensorMap *a, const CUtensorMap *b, const gemm_t &g, int m, int n, uint32_t smem, uint32_t bars, uint32_t &step, uint32_t rank) {
  for (int k = 0; k < g.steps; k++, step++) {
    uint32_t s = step % STAGES, full = bars + s * 8, empty = bars + (STAGES + s) * 8;
    mbarrier_wait(empty, (step / STAGES & 1) ^ 1);
    mbarrier_expect(full, STAGE_BYTES);
    uint32_t to = smem + s * STAGE_BYTES;
    tma_load(to, a, full, k * TK, m * TM);
    if (CLUSTER == 1) tma_load(to + TM * TK, b, full, k * TK, n * TN);
    else tma_load_multicast(to + TM * TK + rank * (TN / 2) * TK, b, full, k * TK, n * TN + rank * (TN / 2), 3);
  }
}

template <int CLUSTER>
__device__ __forceinline__ void consume(const CUtensorMap *cmap, const gemm_t &g, int m, int n, uint32_t smem, uint32_t bars, uint32_t &step, int group) {
  float d0[64], d1[64];
  for (int k = 0; k < g.steps; k++, step++) {
    uint32_t s = step % STAGES;
    mbarrier_wait(bars + s * 8, step / STAGES & 1);
    uint64_t a = descriptor(smem + s * STAGE_BYTES + group * 64 * TK), b = descriptor(smem + s * STAGE_BYTES + TM * TK);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < TK / 32; i++) { // 32 bytes further in the swizzled row: 2 in descriptor units
      wgmma_m64n128k32(d0, a + 2 * i, b + 2 * i, k | i);
      wgmma_m64n128k32(d1, a + 2 * i, b + 2 * i + (128 * TK >> 4), k | i);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // The stage before this one is free once its instructions are over; this one's stay in flight.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (k > 0 && threadIdx.x % 128 < CLUSTER) {
      uint32_t before = bars + (STAGES + (step - 1) % STAGES) * 8;
      if (CLUSTER == 1) mbarrier_arrive(before);
      else mbarrier_arrive_at(before, threadIdx.x % 128);
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  if (threadIdx.x % 128 < CLUSTER) {
    uint32_t last = bars + (STAGES + (step - 1) % STAGES) * 8;
    if (CLUSTER == 1) mbarrier_arrive(last);
    else mbarrier_arrive_at(last, threadIdx.x % 128);
  }
  // Half the columns at a time through shared memory, 128-byte swizzled, and out by the copy engine: whole lines, and the
  // next tile's instructions start while they are under way.
  float scale = *g.scale;
  int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, row = warp * 16 + lane / 8 % 2 * 8 + lane % 8;
  uint32_t base = smem + STAGES * STAGE_BYTES + group * 16384;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
#pragma unroll
    for (int i = 0; i < 64; i += 8) {
      const float *d = half ? d1 : d0;
      uint32_t r[4];
#pragma unroll
      for (int q = 0; q < 4; q++) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(d[i + 2 * q] * scale, d[i + 2 * q + 1] * scale);
        r[q] = *(uint32_t *)&pair;
      }
      int chunk = i / 4 + lane / 16; // of 8 columns
      uint32_t to = base + chunk / 8 * 8192 + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
    if (threadIdx.x % 128 == 0) {
      for (int box = 0; box < 2; box++)
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(cmap), "r"(base + box * 8192),
                     "r"(n * TN + half * 128 + box * 64), "r"(m * TM + group * 64) : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
}

// Warpgroups 0 and 1 multiply, with 232 registers a thread; a thread of warpgroup 2 loads, with 40 (24 spill). MIXED: after every tile
// the multiplying warpgroups stream one ticket, 256 threads x LOADS words in flight, while the loader fetches the next tile:
// both roles at one register split, since ptxas drops setmaxnreg when it stands in a loop.
enum { MIXED_LOADS = 24 };
template <int CLUSTER, bool MIXED>
__global__ void __launch_bounds__(384, 1) both_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c, gemm_t g, int tiles,
                                                      const uint4 *data, uint32_t ticket_words, uint32_t tickets, uint32_t *ticket, uint32_t *out) {
  extern __shared__ char raw[];
  __shared__ uint32_t mine;
  uint32_t smem = (smem_u32(raw) + 1023) & ~1023u, bars = smem + STAGES * STAGE_BYTES + C_BYTES;
  uint32_t rank = 0;
  if (CLUSTER > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) mbarrier_init(bars + s * 8, 1), mbarrier_init(bars + (STAGES + s) * 8, 2 * CLUSTER);
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  gemm_t pairs = g;
  pairs.tiles_m /= CLUSTER, pairs.group /= CLUSTER;
  uint32_t step = 0;
  int m, n;
  if (threadIdx.x >= 256) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 256)
      for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
        tile_at(pairs, tile, &m, &n);
        produce<CLUSTER>(&a, &b, g, m * CLUSTER + rank, n, smem, bars, step, rank);
      }
  } else {
    setmaxnreg_inc<232>();
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    uint32_t sum = 0;
    for (int tile = blockIdx.x / CLUSTER; tile < tiles; tile += gridDim.x / CLUSTER) {
      tile_at(pairs, tile, &m, &n);
      consume<CLUSTER>(&c, g, m * CLUSTER + rank, n, smem, bars, step, threadIdx.x / 128);
      if (!MIXED) continue;
      if (threadIdx.x == 0) mine = atomicAdd(ticket, 1);
      asm volatile("bar.sync 1, 256;" ::: "memory");
      uint32_t t = mine;
      asm volatile("bar.sync 1, 256;" ::: "memory");
      if (t < tickets) sum ^= stream_ticket<256, MIXED_LOADS>(data + (uint64_t)t * ticket_words, ticket_words, policy);
    }
    if (sum == 0x12345678) out[blockIdx.x] = sum;
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  if (CLUSTER > 1) asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// ---- host -----------------------------------------------------------------------------------------------------------------------

// Watts and SM clock by nvidia-smi, sampled while a measurement runs.
struct meter_t {
  std::atomic<bool> stop{false};
  std::vector<double> watts, mhz;
  std::thread thread;
  void start() {
    thread = std::thread([this] {
      while (!stop) {
        FILE *in = popen("nvidia-smi --query-gpu=power.draw.instant,clocks.sm --format=csv,noheader,nounits", "r");
        double w, c;
        if (in && fscanf(in, "%lf, %lf", &w, &c) == 2) watts.push_back(w), mhz.push_back(c);
        if (in) pclose(in);
      }
    });
  }
  void finish(double *w, double *c) {
    stop = true;
    thread.join();
    auto median = [](std::vector<double> v) { std::sort(v.begin(), v.end()); return v.empty() ? 0 : v[v.size() / 2]; };
    *w = median(watts), *c = median(mhz);
  }
};

static float median_ms(std::vector<float> v) { std::sort(v.begin(), v.end()); return v[v.size() / 2]; }

__global__ void fill_bf16(uint32_t *to, size_t words, uint32_t seed) { // pairs of normals, std 0.02
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < words; i += (size_t)gridDim.x * blockDim.x) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull, x = (x ^ x >> 27) * 0x94d049bb133111ebull, x ^= x >> 31;
    float u = ((uint32_t)x | 1) * 2.3283064e-10f, v = (uint32_t)(x >> 32) * 2.3283064e-10f, r = 0.02f * sqrtf(-2 * logf(u));
    __nv_bfloat162 pair = __floats2bfloat162_rn(r * cospif(2 * v), r * sinpif(2 * v));
    to[i] = *(uint32_t *)&pair;
  }
}
__global__ void fill_fp8(__nv_fp8_e4m3 *to, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 77ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull, x = (x ^ x >> 27) * 0x94d049bb133111ebull, x ^= x >> 31;
    float u = ((uint32_t)x | 1) * 2.3283064e-10f, v = (uint32_t)(x >> 32) * 2.3283064e-10f;
    to[i] = __nv_fp8_e4m3(sqrtf(-2 * logf(u)) * cospif(2 * v));
  }
}

template <int THREADS, int LOADS, int CTAS> static void bench_stream(const uint4 *data, size_t bytes, uint32_t *ticket, uint32_t *out) {
  auto kernel = stream_kernel<THREADS, LOADS, CTAS>;
  uint32_t ticket_words = THREADS * LOADS * 2;
  while (ticket_words * 16 < 96 << 10) ticket_words += THREADS * LOADS;
  uint32_t tickets = bytes / 16 / ticket_words;
  cudaEvent_t e0, e1;
  CHECK(cudaEventCreate(&e0));
  CHECK(cudaEventCreate(&e1));
  cudaFuncAttributes attr;
  CHECK(cudaFuncGetAttributes(&attr, kernel));
  printf("stream %4d threads x %d CTAs, %2d loads a thread (%3d KiB an SM in flight), %d registers, ticket %u KiB:", THREADS, CTAS, LOADS,
         THREADS * CTAS * LOADS * 16 / 1024, attr.numRegs, ticket_words / 64);
  for (int sms : {24, 40, 48, 56, 64, 132}) {
    std::vector<float> times;
    meter_t meter;
    if (sms == 56 || sms == 132) meter.start();
    for (int i = 0; i < (sms == 56 || sms == 132 ? 160 : 12); i++) {
      CHECK(cudaMemsetAsync(ticket, 0, 4));
      CHECK(cudaEventRecord(e0));
      kernel<<<sms * CTAS, THREADS>>>(data, ticket_words, tickets, ticket, out);
      CHECK(cudaEventRecord(e1));
      CHECK(cudaEventSynchronize(e1));
      float ms;
      CHECK(cudaEventElapsedTime(&ms, e0, e1));
      if (i > 1) times.push_back(ms);
    }
    double tbps = (double)tickets * ticket_words * 16 / median_ms(times) * 1e-9, w = 0, c = 0;
    if (sms == 56 || sms == 132) {
      meter.finish(&w, &c);
      printf("  %d: %.3f (%.0f W, %.0f MHz)", sms, tbps, w, c);
    } else printf("  %d: %.3f", sms, tbps);
  }
  printf("\n");
  fflush(stdout);
}

static CUtensorMap make_map(void *encode, void *base, int rows, int k, int box_rows) {
  CUtensorMap map;
  cuuint64_t dims[2] = {(cuuint64_t)k, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)k};
  cuuint32_t box[2] = {TK, (cuuint32_t)box_rows}, one[2] = {1, 1};
  CHECK(((decltype(&cuTensorMapEncodeTiled))encode)(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, base, dims, strides, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                                    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

static CUtensorMap make_c_map(void *encode, void *base, int rows, int cols) {
  CUtensorMap map;
  cuuint64_t dims[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)cols * 2};
  cuuint32_t box[2] = {64, 64}, one[2] = {1, 1};
  CHECK(((decltype(&cuTensorMapEncodeTiled))encode)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dims, strides, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                                    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

typedef struct cublas_gemm {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulHeuristicResult_t best;
  void *work;
} cublas_gemm_t;
enum { WORK_BYTES = 64 << 20 };

// C^T = B A^T column-major, which is our row-major C = A B^T; the best of the heuristics by time.
static cublas_gemm_t make_cublas(int m, int n, int k, void *a, void *b, void *c, float *sa) {
  cublas_gemm_t g = {};
  CHECK(cublasLtCreate(&g.handle));
  CHECK(cudaMalloc(&g.work, WORK_BYTES));
  CHECK(cublasLtMatmulDescCreate(&g.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  cublasOperation_t t = CUBLAS_OP_T;
  int8_t fast = 1;
  CHECK(cublasLtMatmulDescSetAttribute(g.desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t));
  CHECK(cublasLtMatmulDescSetAttribute(g.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast));
  CHECK(cublasLtMatmulDescSetAttribute(g.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &sa, sizeof sa));
  CHECK(cublasLtMatrixLayoutCreate(&g.a, CUDA_R_8F_E4M3, k, n, k));
  CHECK(cublasLtMatrixLayoutCreate(&g.b, CUDA_R_8F_E4M3, k, m, k));
  CHECK(cublasLtMatrixLayoutCreate(&g.c, CUDA_R_16BF, n, m, n));
  cublasLtMatmulPreference_t pref;
  size_t bytes = WORK_BYTES;
  CHECK(cublasLtMatmulPreferenceCreate(&pref));
  CHECK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes));
  cublasLtMatmulHeuristicResult_t all[16];
  int found = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(g.handle, g.desc, g.a, g.b, g.c, g.c, pref, 16, all, &found));
  float best = 1e9, one = 1, zero = 0;
  cudaEvent_t e0, e1;
  cudaEventCreate(&e0), cudaEventCreate(&e1);
  for (int i = 0; i < found; i++)
    for (int r = 0; r < 4; r++) {
      cudaEventRecord(e0);
      CHECK(cublasLtMatmul(g.handle, g.desc, &one, b, g.a, a, g.b, &zero, c, g.c, c, g.c, &all[i].algo, g.work, WORK_BYTES, 0));
      cudaEventRecord(e1);
      CHECK(cudaEventSynchronize(e1));
      float ms;
      cudaEventElapsedTime(&ms, e0, e1);
      if (r && ms < best) best = ms, g.best = all[i];
    }
  return g;
}

template <class RUN> static void bench_gemm(const char *name, double flops, int count, RUN run) {
  cudaEvent_t e0, e1;
  cudaEventCreate(&e0), cudaEventCreate(&e1);
  std::vector<float> times;
  meter_t meter;
  if (count > 100) meter.start();
  for (int i = 0; i < count; i++) {
    cudaEventRecord(e0);
    run();
    cudaEventRecord(e1);
    CHECK(cudaEventSynchronize(e1));
    float ms;
    cudaEventElapsedTime(&ms, e0, e1);
    if (i >= count / 3) times.push_back(ms); // the first third warms up, or down
  }
  double w = 0, c = 0;
  if (count > 100) meter.finish(&w, &c);
  printf("%-44s %7.3f ms  %6.0f TFLOP/s", name, median_ms(times), flops / median_ms(times) * 1e-9);
  if (count > 100) printf("  %.0f W, %.0f MHz (sustained, %d runs)", w, c, count);
  printf("\n");
  fflush(stdout);
}

int main() {
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  printf("%s, %d SMs\n", prop.name, prop.multiProcessorCount);
  const size_t bytes = 15ull << 30;
  uint4 *data;
  uint32_t *ticket, *out;
  CHECK(cudaMalloc(&data, bytes));
  CHECK(cudaMalloc(&ticket, 4096));
  CHECK(cudaMalloc(&out, 4096));
  fill_bf16<<<2048, 256>>>((uint32_t *)data, bytes / 4, 1);
  CHECK(cudaDeviceSynchronize());
  bench_stream<1024, 8, 2>(data, bytes, ticket, out);
  bench_stream<256, 40, 1>(data, bytes, ticket, out);
  bench_stream<256, 32, 1>(data, bytes, ticket, out);
  bench_stream<256, 24, 1>(data, bytes, ticket, out);
  bench_stream<256, 16, 1>(data, bytes, ticket, out);
  bench_stream<512, 16, 1>(data, bytes, ticket, out);
  bench_stream<512, 8, 1>(data, bytes, ticket, out);
  bench_stream<512, 8, 2>(data, bytes, ticket, out);

  const int M = 8192, N = 8192, K = 8192;
  __nv_fp8_e4m3 *a, *b;
  __nv_bfloat16 *c, *c2;
  float *scale, host_scale = 0.0625f;
  CHECK(cudaMalloc(&a, (size_t)M * K));
  CHECK(cudaMalloc(&b, (size_t)N * K));
  CHECK(cudaMalloc(&c, (size_t)M * N * 2));
  CHECK(cudaMalloc(&c2, (size_t)M * N * 2));
  CHECK(cudaMalloc(&scale, 4));
  CHECK(cudaMemcpy(scale, &host_scale, 4, cudaMemcpyHostToDevice));
  fill_fp8<<<2048, 256>>>(a, (size_t)M * K, 3);
  fill_fp8<<<2048, 256>>>(b, (size_t)N * K, 4);
  void *encode;
  cudaDriverEntryPointQueryResult q;
  CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &encode, cudaEnableDefault, &q));
  CUtensorMap mc = make_c_map(encode, c, M, N), ma = make_map(encode, a, M, K, TM), mb = make_map(encode, b, N, K, TN), mb2 = make_map(encode, b, N, K, TN / 2);
  gemm_t g = {M / TM, N / TN, K / TK, 16, N, scale, c};
  int tiles = g.tiles_m * g.tiles_n;
  const uint32_t ticket_words = 256 * MIXED_LOADS * 2;
  uint32_t tickets = bytes / 16 / ticket_words;
  auto launch = [&](auto kernel, int cluster, CUtensorMap &bmap, bool reset) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attr = {};
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = cluster, attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    config.gridDim = dim3(132), config.blockDim = dim3(384), config.dynamicSmemBytes = GEMM_SMEM;
    config.attrs = &attr, config.numAttrs = 1;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, GEMM_SMEM));
    if (reset) CHECK(cudaMemsetAsync(ticket, 0, 4));
    CHECK(cudaLaunchKernelEx(&config, kernel, ma, bmap, mc, g, tiles / cluster, (const uint4 *)data, ticket_words, tickets, ticket, out));
  };
  auto check = [&](const char *name) {
    CHECK(cudaDeviceSynchronize());
    std::vector<__nv_bfloat16> row(N);
    std::vector<__nv_fp8_e4m3> ra(K), all((size_t)N * K);
    CHECK(cudaMemcpy(all.data(), b, all.size(), cudaMemcpyDeviceToHost));
    double num = 0, den = 0;
    for (int r : {0, 77, 4099, 8191}) {
      CHECK(cudaMemcpy(ra.data(), a + (size_t)r * K, K, cudaMemcpyDeviceToHost));
      CHECK(cudaMemcpy(row.data(), c + (size_t)r * N, N * 2, cudaMemcpyDeviceToHost));
      std::vector<float> fa(K);
      for (int k = 0; k < K; k++) fa[k] = (float)ra[k];
      for (int n = 0; n < N; n += 7) {
        double sum = 0;
        for (int k = 0; k < K; k++) sum += (double)fa[k] * (float)all[(size_t)n * K + k];
        sum *= host_scale;
        double d = (double)__bfloat162float(row[n]) - sum;
        num += d * d, den += sum * sum;
      }
    }
    printf("%s: error against double %.2e\n", name, sqrt(num / den));
  };
  double flops = 2.0 * M * N * K;
  cublas_gemm_t lt = make_cublas(M, N, K, a, b, c2, scale);
  float one = 1, zero = 0;
  auto cublas = [&] { CHECK(cublasLtMatmul(lt.handle, lt.desc, &one, b, lt.a, a, lt.b, &zero, c2, lt.c, c2, lt.c, &lt.best.algo, lt.work, WORK_BYTES, 0)); };
  auto one_cta = [&] { launch(both_kernel<1, false>, 1, mb, false); };
  auto pair = [&] { launch(both_kernel<2, false>, 2, mb2, false); };
  auto mixed = [&] { launch(both_kernel<2, true>, 2, mb2, true); };
  cudaFuncAttributes attr;
  CHECK(cudaFuncGetAttributes(&attr, both_kernel<2, true>));
  printf("both roles: %d registers, %zu bytes of stack\n", attr.numRegs, attr.localSizeBytes);
  CHECK(cudaMemset(c, 0xff, (size_t)M * N * 2));
  one_cta(), check("384 threads, no cluster");
  CHECK(cudaMemset(c, 0xff, (size_t)M * N * 2));
  pair(), check("384 threads, cluster of 2, B multicast");
  CHECK(cudaMemset(c, 0xff, (size_t)M * N * 2));
  mixed(), check("the same, a stream ticket of 320 KiB after every tile");
  for (int round = 0; round < 2; round++) {
    bench_gemm("cuBLASLt, burst", flops, 12, cublas);
    bench_gemm("384 threads, no cluster, burst", flops, 12, one_cta);
    bench_gemm("384 threads, cluster of 2, burst", flops, 12, pair);
    bench_gemm("with a stream ticket after every tile", flops, 12, mixed);
  }
  bench_gemm("cuBLASLt", flops, 2200, cublas);
  bench_gemm("384 threads, cluster of 2", flops, 2200, pair);
  bench_gemm("384 threads, no cluster", flops, 2200, one_cta);
  return 0;
}
