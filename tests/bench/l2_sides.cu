// l2_sides.cu: what each SM gets out of L2 while all of them fetch the panels of a GEMM.
//
//   nvcc -O2 -std=c++17 -arch=sm_90a tests/bench/l2_sides.cu -o l2_sides -lcuda
//   ./l2_sides [N] [allocations]
//
// x and w are N x N bytes. 66 clusters of two CTAs walk over the tiles of x w^T as a GEMM does, 128
// rows of x and 256 of w, 128 bytes of k a step, w shared by multicast, through a ring of four stages,
// but multiply nothing: a consumer holds each stage for `pace` cycles. For every pair of allocations:
// time in all, and the tenth and ninetieth percentile of SMs' times for a tile; last, each SM's.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

#define TRY(call)                                                                                  \
  do {                                                                                             \
    cudaError_t e_ = (call);                                                                       \
    if (e_ != cudaSuccess) {                                                                       \
      printf("%s: %s\n", #call, cudaGetErrorString(e_));                                           \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { STAGES = 4, STAGE_BYTES = 48 * 1024, MAX_TILES = 64, WORDS = 1 << 18 };

// ---- panels -------------------------------------------------------------------------------------

struct args_t {
  int tiles_m, tiles_n, steps, group, pace;
  uint32_t *ticket, *times, *counts, *smid;
};

__device__ uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ bool ready(uint32_t barrier, uint32_t parity) {
  uint32_t ok;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, "
               "1, 0, p; }"
               : "=r"(ok)
               : "r"(barrier), "r"(parity)
               : "memory");
  return ok;
}
// A box of 128 rows of 128 bytes; to each CTA of the cluster in `mask`, or to this one.
__device__ void copy(uint32_t to, const CUtensorMap *map, uint32_t full, int k, int row, int mask) {
  if (mask)
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(full), "r"(k), "r"(row), "h"((uint16_t)mask)
                 : "memory");
  else
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(full), "r"(k), "r"(row)
                 : "memory");
}

__global__ void __cluster_dims__(2) __launch_bounds__(128, 1)
    panels(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w, args_t a) {
  extern __shared__ __align__(1024) char smem[];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  __shared__ uint32_t drawn;
  const uint32_t rank = blockIdx.x % 2, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    uint32_t id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    a.smid[blockIdx.x] = id;
    for (int s = 0; s < STAGES; s++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_at(&full[s])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(shared_at(&empty[s])));
    }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  uint32_t stage = 0, phase = 0, cstage = 0, cphase = 0, count = 0;
  for (;;) {
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (rank == 0 && threadIdx.x == 0) {
      uint32_t t = atomicAdd(a.ticket, 2), peer;
      drawn = t;
      asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(peer) : "r"(shared_at(&drawn)));
      asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(peer), "r"(t) : "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    const uint32_t tile = drawn + rank;
    if ((int)tile >= a.tiles_m * a.tiles_n) break;
    const uint32_t block = a.group * a.tiles_n, first = tile / block * a.group;
    const uint32_t height = min(a.group, a.tiles_m - (int)first), in = tile % block;
    const int m = (first + in % height) * 128, n = in / height * 256;
    uint64_t begin, end;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    if (warp == 0 && lane == 0)
      for (int i = 0; i < a.steps; i++) {
        while (!ready(shared_at(&empty[stage]), (phase >> stage & 1) ^ 1)) {
        }
        const uint32_t f = shared_at(&full[stage]), to = shared_at(smem) + stage * STAGE_BYTES;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(f),
                     "r"(STAGE_BYTES)
                     : "memory");
        copy(to, &x, f, i * 128, m, 0);
        copy(to + 16384 + rank * 16384, &w, f, i * 128, n + rank * 128, 3);
        phase ^= 1u << stage, stage = (stage + 1) % STAGES;
      }
    if (warp == 1 && lane == 0) {
      long long last = clock64();
      for (int i = 0; i < a.steps; i++) {
        while (!ready(shared_at(&full[cstage]), cphase >> cstage & 1)) {
        }
        while (clock64() - last < a.pace) {
        }
        last = clock64();
        for (int c = 0; c < 2; c++) {
          uint32_t peer;
          asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                       : "=r"(peer)
                       : "r"(shared_at(&empty[cstage])), "r"(c));
          asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(peer) : "memory");
        }
        cphase ^= 1u << cstage, cstage = (cstage + 1) % STAGES;
      }
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
      if (count < MAX_TILES) a.times[blockIdx.x * MAX_TILES + count] = (uint32_t)(end - begin);
      a.counts[blockIdx.x] = ++count;
    }
    __syncthreads();
  }
}

static CUtensorMap make_map(void *at, uint64_t n) {
  CUtensorMap map;
  cuuint64_t sizes[2] = {n, n}, strides[1] = {n};
  cuuint32_t box[2] = {128, 128}, one[2] = {1, 1};
  CUresult r =
      cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, at, sizes, strides, box, one,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) printf("map: %d\n", r), exit(1);
  return map;
}

static double quantile(std::vector<double> v, double q) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, (size_t)(q * v.size()))];
}

struct run_t {
  double us;
  std::vector<double> sm;
}; // median tile time by smid

static run_t run(void *x, void *w, int n, int group, int pace, uint32_t *words, int sms) {
  const CUtensorMap mx = make_map(x, n), mw = make_map(w, n);
  args_t a = {n / 128,
              n / 256,
              n / 128,
              group,
              pace,
              words,
              words + 1024,
              words + 1024 + 256 * MAX_TILES,
              words + 2048 + 256 * MAX_TILES};
  run_t r = {1e9, std::vector<double>(sms)};
  std::vector<std::vector<double>> t(sms);
  for (int rep = 0; rep < 4; rep++) {
    cudaEvent_t b, e;
    float ms;
    TRY(cudaEventCreate(&b));
    TRY(cudaEventCreate(&e));
    TRY(cudaMemset(words, 0, WORDS * 4));
    TRY(cudaEventRecord(b));
    panels<<<sms / 2 * 2, 128, STAGES * STAGE_BYTES>>>(mx, mw, a);
    TRY(cudaEventRecord(e));
    TRY(cudaDeviceSynchronize());
    TRY(cudaEventElapsedTime(&ms, b, e));
    r.us = std::min(r.us, ms * 1e3);
    if (rep == 0) continue;
    std::vector<uint32_t> host(WORDS);
    TRY(cudaMemcpy(host.data(), words, WORDS * 4, cudaMemcpyDeviceToHost));
    for (int s = 0; s < sms; s++)
      for (uint32_t i = 0; i < host[1024 + 256 * MAX_TILES + s] && i < MAX_TILES; i++)
        t[host[2048 + 256 * MAX_TILES + s]].push_back(host[1024 + s * MAX_TILES + i] * 1e-3);
  }
  for (int s = 0; s < sms; s++) r.sm[s] = quantile(t[s], 0.5);
  return r;
}

int main(int argc, char **argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 4096, count = argc > 2 ? atoi(argv[2]) : 8;
  uint32_t *words;
  TRY(cudaMalloc(&words, WORDS * 4));
  cudaDeviceProp prop;
  TRY(cudaGetDeviceProperties(&prop, 0));
  const int sms = prop.multiProcessorCount;
  TRY(cudaFuncSetAttribute(panels, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           STAGES * STAGE_BYTES));
  std::vector<char *> m(count);
  for (char *&p : m) {
    void *gap;
    TRY(cudaMalloc(&p, (size_t)n * n));
    TRY(cudaMemset(p, 1, (size_t)n * n));
    TRY(cudaMalloc(&gap, 2097152));
  }
  for (int pace : {0, 1100})
    for (int i = 0; i < count; i++) {
      printf("pace %4d x %d %p, w 0..:", pace, i, m[i]);
      for (int j = 0; j < count; j++) {
        run_t r = run(m[i], m[j], n, 32, pace, words, sms);
        printf("  %5.1f (%.1f-%.1f)", r.us, quantile(r.sm, 0.1), quantile(r.sm, 0.9));
      }
      printf("\n");
    }
  run_t r = run(m[0], m[1], n, 32, 0, words, sms);
  for (int s = 0; s < sms; s++) printf("%d:%.1f ", s, r.sm[s]);
  printf("\n");
  return 0;
}
