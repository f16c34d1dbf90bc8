// touch.cu: what brings weights into the L2 before a ring of bulk copies wants them.
//
//   nvcc -O2 -std=c++17 -arch=sm_90a tests/bench/touch.cu -o touch
//   ./touch
//
// The L2 is filled with something else; then all SMs ask for the same bytes in one of the ways below, wait 40 us,
// and read them by bulk copies of 32 KiB, each SM those that it has asked for or those of another one. Time of that
// reading, with one barrier of the grid; medians of sixteen.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#include "bulk.cuh"

enum { SMS = 132, STAGE = 32768, STAGES = 6, THREADS = 128, REPEATS = 16, WAIT_NS = 40000 };

enum way {
  NOTHING,
  BULK_PREFETCH,      // cp.async.bulk.prefetch.L2 of 32 KiB
  BULK_PREFETCH_LAST, // with evict_last
  LINE_PREFETCH,      // prefetch.global.L2 of each line
  WORDS_256,          // a word of each 256 bytes, .L2::256B, by one warp
  WORDS_128,          // of each 128 bytes, .L2::128B
  WORDS_512,          // of each 512 bytes, .L2::256B
  COPIES,             // bulk copies into shared memory
  WAYS,
};
static const char *const names[WAYS] = {
    "nothing",           "bulk prefetch",     "bulk prefetch, evict_last", "prefetch.global",
    "words, 256 of 256", "words, 128 of 128", "words, 256 of 512",         "bulk copies of all",
};

DEVICE uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__device__ unsigned arrived;
__device__ uint64_t times[REPEATS];

DEVICE void grid_barrier(unsigned &turn) {
  __syncthreads();
  if (threadIdx.x == 0) {
    turn += gridDim.x;
    __threadfence();
    atomicAdd(&arrived, 1);
    while (*(volatile unsigned *)&arrived < turn) {
    }
  }
  __syncthreads();
}

// The ring: a thread's.
struct ring {
  uint64_t *full;
  uint8_t *stages;
  uint32_t count; // stages used so far, a multiple of STAGES
};

// This SM's chunks, as SM number `as` would have them.
DEVICE void stream(ring &r, const uint8_t *from, uint32_t chunks, uint32_t as, uint64_t policy) {
  if (threadIdx.x == 0) {
    const uint32_t end = r.count + chunks, all = (end + STAGES - 1) / STAGES * STAGES;
    for (uint32_t c = r.count; c < all + STAGES; c++) {
      const uint32_t full = shared(&r.full[c % STAGES]);
      if (c >= r.count + STAGES) wait(full, (c / STAGES & 1) ^ 1);
      if (c < all) expect(full, c < end ? STAGE : 0);
      if (c < end)
        copy(shared(r.stages) + c % STAGES * STAGE,
             from + ((size_t)(c - r.count) * SMS + as) * STAGE, STAGE, full, policy);
    }
    r.count = all;
  }
  __syncthreads();
}

template <int STEP> DEVICE uint32_t load_words(const uint8_t *at) {
  uint32_t seen = 0;
  if (threadIdx.x >= 32) return seen;
  for (int from = threadIdx.x * STEP; from < STAGE; from += 4 * 32 * STEP) {
    uint32_t v[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const uint8_t *word = at + from + k * 32 * STEP;
      if (word >= at + STAGE) continue;
      if (STEP == 128)
        asm volatile("ld.global.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(v[k]) : "l"(word));
      else
        asm volatile("ld.global.L1::no_allocate.L2::256B.u32 %0, [%1];" : "=r"(v[k]) : "l"(word));
    }
    seen |= v[0] | v[1] | v[2] | v[3];
  }
  return seen;
}

DEVICE uint32_t ask(int way, const uint8_t *at, uint64_t last) {
  const bool one = threadIdx.x == 0;
  if (way == BULK_PREFETCH && one)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(at), "r"((uint32_t)STAGE)
                 : "memory");
  if (way == BULK_PREFETCH_LAST && one)
    asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], %1, %2;" ::"l"(at),
                 "r"((uint32_t)STAGE), "l"(last)
                 : "memory");
  for (int i = threadIdx.x * 128; way == LINE_PREFETCH && i < STAGE; i += THREADS * 128)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(at + i) : "memory");
  if (way == WORDS_256) return load_words<256>(at);
  if (way == WORDS_128) return load_words<128>(at);
  if (way == WORDS_512) return load_words<512>(at);
  return 0;
}

__global__ void __launch_bounds__(THREADS, 1)
    run(const uint8_t *w, const uint8_t *other, int way, uint32_t chunks, uint32_t shift) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t full[STAGES];
  const uint32_t sm = blockIdx.x;
  ring r = {full, memory, 0};
  unsigned turn = 0;
  uint32_t seen = 0;
  uint64_t first, normal, last;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  for (int i = 0; threadIdx.x == 0 && i < STAGES; i++) init(shared(&full[i]), 1);
  __syncthreads();
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    stream(r, other, 64, sm, first); // 277 MB
    grid_barrier(turn);
    const uint64_t asked_ns = now_ns();
    for (uint32_t c = 0; c < chunks; c++)
      seen |= ask(way, w + ((size_t)c * SMS + sm) * STAGE, last);
    if (way == COPIES) stream(r, w, chunks, sm, normal);
    while (now_ns() - asked_ns < WAIT_NS) {
    }
    grid_barrier(turn);
    const uint64_t begun_ns = now_ns();
    stream(r, w, chunks, (sm + shift) % SMS, first);
    grid_barrier(turn);
    if (sm == 0 && threadIdx.x == 0) times[repeat] = now_ns() - begun_ns;
  }
  if (seen == 1) arrived = 0; // nobody can know that it is not
}

int main() {
  uint8_t *w, *other;
  const size_t bytes = (size_t)64 * SMS * STAGE;
  const bool there =
      cudaMalloc(&w, bytes) == cudaSuccess && cudaMalloc(&other, bytes) == cudaSuccess &&
      cudaMemset(w, 1, bytes) == cudaSuccess && cudaMemset(other, 2, bytes) == cudaSuccess &&
      cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE) ==
          cudaSuccess;
  if (!there) return puts("no memory"), 1;
  for (uint32_t chunks : {4, 8})
    for (int way = 0; way < WAYS; way++)
      for (uint32_t shift : {0, 37}) {
        const unsigned zero = 0;
        uint64_t ns[REPEATS];
        cudaMemcpyToSymbol(arrived, &zero, sizeof zero);
        run<<<SMS, THREADS, STAGES * STAGE>>>(w, other, way, chunks, shift);
        if (cudaDeviceSynchronize() != cudaSuccess) return puts("the kernel fails"), 1;
        cudaMemcpyFromSymbol(ns, times, sizeof ns);
        std::sort(ns, ns + REPEATS);
        printf("%.1f MB, %-26s %s: %.2f us\n", chunks * (double)SMS * STAGE * 1e-6, names[way],
               shift ? "by another SM" : "by the same SM", ns[REPEATS / 2] * 1e-3);
      }
}
