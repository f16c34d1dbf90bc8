// order.cu: how soon a resident kernel hears of an order: of a word in host memory that it polls, or
// of one in its own memory that a stream writes.
//
//   nvcc -O2 -std=c++17 -arch=sm_90a tests/bench/order.cu -o order -lcuda
//   ./order
//
// One thread polls a word and echoes it into host memory. Printed: from the order until its echo, and
// what the call costs the host; microseconds.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include <cuda.h>
#include <cuda_runtime.h>

#define TRY(call)                                                                                  \
  do {                                                                                             \
    if ((int)(call) == 0) break;                                                                   \
    printf("%s failed\n", #call);                                                                  \
    _Exit(1);                                                                                      \
  } while (0)

enum { ORDERS = 2000, GAP_US = 20, LIMIT_US = 2000000 };
enum how_t { STORE, WRITE_VALUE, COPY, WAYS };

__global__ void echo(uint32_t *word, volatile uint32_t *out) {
  for (uint32_t seen = 0; seen != ORDERS; __nanosleep(100)) {
    uint32_t now;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    if (now != seen) *out = seen = now;
  }
}

static double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static double quantile(std::vector<double> &v, double q) {
  std::sort(v.begin(), v.end());
  return v[(size_t)(q * (v.size() - 1))];
}

static void order(how_t how, uint32_t *host, uint32_t *device, cudaStream_t stream, uint32_t i) {
  if (how == STORE) *(volatile uint32_t *)host = i;
  if (how == WRITE_VALUE)
    TRY(cuStreamWriteValue32((CUstream)stream, (CUdeviceptr)device, i, 0));
  if (how == COPY) TRY(cudaMemcpyAsync(device, &i, sizeof i, cudaMemcpyHostToDevice, stream));
}

int main() {
  static const char *const names[WAYS] = {"a store to host memory", "cuStreamWriteValue32",
                                          "cudaMemcpyAsync of 4 bytes"};
  uint32_t *host, *out, *device;
  cudaStream_t kernel, side;
  TRY(cudaHostAlloc(&host, 4096, cudaHostAllocMapped));
  TRY(cudaHostAlloc(&out, 4096, cudaHostAllocMapped));
  TRY(cudaMalloc(&device, 4096));
  TRY(cudaStreamCreateWithFlags(&kernel, cudaStreamNonBlocking));
  TRY(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  for (int how = 0; how < WAYS; how++) {
    std::vector<double> heard, call;
    *host = *out = 0;
    TRY(cudaMemset(device, 0, sizeof *device));
    TRY(cudaDeviceSynchronize());
    echo<<<1, 1, 0, kernel>>>(how == STORE ? host : device, out);
    TRY(cudaGetLastError());
    for (uint32_t i = 1; i <= ORDERS; i++) {
      for (double rest = now_us(); now_us() - rest < GAP_US;) {}
      double begin = now_us();
      order((how_t)how, host, device, side, i);
      double called = now_us();
      while (*(volatile uint32_t *)out != i)
        if (now_us() - called > LIMIT_US) printf("no echo\n"), _Exit(1);
      heard.push_back(now_us() - begin), call.push_back(called - begin);
    }
    TRY(cudaStreamSynchronize(kernel));
    printf("%-28s echo P50 %.2f, P99 %.2f; call P50 %.2f, P99 %.2f us\n", names[how],
           quantile(heard, 0.5), quantile(heard, 0.99), quantile(call, 0.5), quantile(call, 0.99));
  }
  return 0;
}
