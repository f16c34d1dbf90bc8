// place.cuh: makes the next kernel take SMs 0..n-1 of the chip, an equal share of every GPC.
//
// SMs are numbered by pairs that go round the GPCs. A CTA is put on every SM; those on the wanted ones
// leave, the others stay until the kernel that is to be placed is there, a second at most.
#ifndef PLACE_CUH_
#define PLACE_CUH_

#include "problem.cuh"

__global__ void hold_others(uint32_t wanted, uint32_t *held, volatile uint32_t *go) {
  uint32_t smid;
  uint64_t since_ns, now_ns;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
  if (smid < wanted) return;
  atomicAdd(held, 1);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(since_ns));
  do {
    __nanosleep(5000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
  } while (!*go && now_ns - since_ns < 1000000000);
}

struct place_t {
  cudaStream_t stream = nullptr, side = nullptr;
  uint32_t *held = nullptr; // on the GPU
  uint32_t *go = nullptr;   // page-locked
};

inline bool place_begin(place_t *p, int chip_sms, int wanted) {
  uint32_t held = 0;
  if (p->stream == nullptr) {
    TRY(cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&p->side, cudaStreamNonBlocking));
    TRY(cudaMalloc(&p->held, sizeof *p->held));
    TRY(cudaHostAlloc(&p->go, sizeof *p->go, cudaHostAllocMapped));
    TRY(cudaFuncSetAttribute(hold_others, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  }
  *(volatile uint32_t *)p->go = 0;
  TRY(cudaMemsetAsync(p->held, 0, sizeof *p->held, p->stream));
  hold_others<<<chip_sms, 1, 200 * 1024, p->stream>>>((uint32_t)wanted, p->held, p->go);
  TRY(cudaGetLastError());
  for (double start_s = now_s(); held != (uint32_t)(chip_sms - wanted);) {
    TRY(cudaMemcpyAsync(&held, p->held, sizeof held, cudaMemcpyDeviceToHost, p->side));
    if (!drained(p->side, 2)) return false;
    if (now_s() - start_s < 0.5) continue;
    printf("only %u of %d SMs could be held\n", held, chip_sms - wanted);
    return false;
  }
  return true;
}

inline bool place_end(place_t *p) {
  *(volatile uint32_t *)p->go = 1;
  return drained(p->stream, 2);
}

#endif // PLACE_CUH_
