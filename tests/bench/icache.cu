// icache.cu: what instructions cost that are not in a cache: how much code an SM can go round in at full
// speed, and how long it takes to run code once that it has not run for a while, on a quiet chip and while all other
// SMs read memory as fast as plain loads do. (What they read is one byte over and over: traffic, but little power.)
//
//   nvcc -std=c++17 -arch=sm_90a -O3 icache.cu -o icache && ./icache
//
// A loop of N instructions of 16 bytes each, independent of memory, by one warp and by eight on one SM; and the same
// code once, after other code of 256 KiB. Prints a line for each N.
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                               \
  do {                                                                                            \
    cudaError_t error_ = (call);                                                                  \
    if (error_ != cudaSuccess) {                                                                  \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));             \
      exit(1);                                                                                    \
    }                                                                                             \
  } while (0)

// Four chains, so that instructions do not wait for each other.
#define FOUR "fma.rn.f32 %0, %0, %4, %0;\nfma.rn.f32 %1, %1, %4, %1;\n" \
             "fma.rn.f32 %2, %2, %4, %2;\nfma.rn.f32 %3, %3, %4, %3;\n"
#define SIXTEEN FOUR FOUR FOUR FOUR
#define KIB SIXTEEN SIXTEEN SIXTEEN SIXTEEN

struct chains {
  float a, b, c, d;
};
template <int KIBS> __device__ __noinline__ void run_code(chains &x, float y) {
#pragma unroll
  for (int i = 0; i < KIBS; i++)
    asm volatile(KIB : "+f"(x.a), "+f"(x.b), "+f"(x.c), "+f"(x.d) : "f"(y));
}

enum { OTHER_KIBS = 256, TIMES = 20 };

struct result {
  long long round, once; // cycles of a round of many, and of one after other code
};

template <int KIBS> __device__ result measure(chains &x, float y) {
  result r = {0, 0};
  run_code<KIBS>(x, y);
  long long since = clock64();
  for (int t = 0; t < TIMES; t++) run_code<KIBS>(x, y);
  r.round = (clock64() - since) / TIMES;
  for (int t = 0; t < TIMES; t++) {
    run_code<OTHER_KIBS>(x, y);
    __syncthreads();
    since = clock64();
    run_code<KIBS>(x, y);
    r.once += clock64() - since;
  }
  r.once /= TIMES;
  return r;
}

// CTA 0 measures; the others read `memory` as fast as they can until it is done.
template <int KIBS>
__global__ void __launch_bounds__(256, 1)
    time_code(result *out, const uint4 *memory, size_t words, volatile int *stop, float y) {
  extern __shared__ char most[]; // one CTA an SM
  if (blockIdx.x == 0) {
    chains x = {y, y, y, y};
    const result r = measure<KIBS>(x, y);
    if (threadIdx.x == 0) *out = r;
    __syncthreads();
    if (threadIdx.x == 0) *stop = 1;
    if (x.a + x.b + x.c + x.d == 12345.0f) out->round = 0;
    return;
  }
  uint4 sum = make_uint4(0, 0, 0, 0);
  for (size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x; !*stop; at += 16 * gridDim.x * blockDim.x) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
      const uint4 v = __ldcs(memory + (at + (size_t)i * gridDim.x * blockDim.x) % words);
      sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
    }
  }
  if (sum.x + sum.y + sum.z + sum.w == 12345u) most[threadIdx.x] = 1;
}

template <int KIBS> void report(const uint4 *memory, size_t words, int sms) {
  static result *out = nullptr;
  static int *stop = nullptr;
  if (!out) {
    CHECK(cudaMallocManaged(&out, sizeof *out));
    CHECK(cudaMallocManaged(&stop, sizeof *stop));
  }
  const int shared = 200 << 10;
  CHECK(cudaFuncSetAttribute(time_code<KIBS>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  printf("%4d KiB:", KIBS);
  const int threads[] = {32, 256, 256}, grids[] = {1, 1, sms};
  for (int i = 0; i < 3; i++) {
    *stop = 0;
    time_code<KIBS><<<grids[i], threads[i], shared>>>(out, memory, words, stop, 1e-3f);
    CHECK(cudaDeviceSynchronize());
    printf("  %6.2f %6.2f", (double)out->round / (KIBS * 64), (double)out->once / (KIBS * 8));
  }
  printf("\n");
}

int main() {
  const size_t bytes = 4ull << 30;
  uint4 *memory;
  cudaDeviceProp chip;
  CHECK(cudaGetDeviceProperties(&chip, 0));
  CHECK(cudaMalloc(&memory, bytes));
  CHECK(cudaMemset(memory, 0x3c, bytes));
  printf("%s: cycles an instruction going round, and cycles for each 128 bytes run once after %d KiB of other code:\n"
         "           one warp         eight warps      eight, others reading\n",
         chip.name, OTHER_KIBS);
  const size_t words = bytes / sizeof(uint4);
  const int sms = chip.multiProcessorCount;
  report<4>(memory, words, sms), report<8>(memory, words, sms), report<16>(memory, words, sms);
  report<24>(memory, words, sms), report<32>(memory, words, sms), report<48>(memory, words, sms);
  report<64>(memory, words, sms), report<96>(memory, words, sms), report<112>(memory, words, sms);
  report<128>(memory, words, sms), report<160>(memory, words, sms), report<192>(memory, words, sms);
  report<256>(memory, words, sms);
  return 0;
}
