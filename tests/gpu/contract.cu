// contract.cu: contract.h on a GPU.
//
//   nvcc -cubin -arch=sm_90a -Iruntime tests/gpu/contract.cu -o contract.cubin
#include "gpuos_abi.h"

#define CONTRACT __device__ static

CONTRACT uint32_t ld32(const uint32_t *word) {
  uint32_t value = *(const volatile uint32_t *)word;
  __threadfence_system();
  return value;
}
CONTRACT void st32(uint32_t *word, uint32_t value) {
  __threadfence_system();
  *(volatile uint32_t *)word = value;
}
CONTRACT uint32_t add32(uint32_t *word, uint32_t value) {
  __threadfence_system();
  uint32_t old = atomicAdd_system(word, value);
  __threadfence_system();
  return old;
}
CONTRACT bool cas32(uint32_t *word, uint32_t from, uint32_t to) {
  __threadfence_system();
  return atomicCAS_system(word, from, to) == from;
}
CONTRACT uint64_t ld64(const uint64_t *word) {
  uint64_t value = *(const volatile uint64_t *)word;
  __threadfence_system();
  return value;
}
CONTRACT void st64(uint64_t *word, uint64_t value) {
  __threadfence_system();
  *(volatile uint64_t *)word = value;
}
CONTRACT uint64_t add64(uint64_t *word, uint64_t value) {
  return atomicAdd_system((unsigned long long *)word, (unsigned long long)value);
}
CONTRACT bool cas64(uint64_t *word, uint64_t from, uint64_t to) {
  return atomicCAS_system((unsigned long long *)word, from, to) == from;
}
CONTRACT uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
CONTRACT void nap() { __nanosleep(200); }
CONTRACT void trap() { asm volatile("trap;"); }
CONTRACT bool dead() { return false; }
CONTRACT uint32_t chip_sm() {
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  return sm;
}

#include "contract.h"

// The test overwrites both values in the cubin's bytes; these are what it looks for.
extern "C" __device__ const uint64_t gpuos_table_hash = 0x7ab1e7ab1e7ab1e7;
extern "C" __device__ const uint32_t gpuos_launch[8] = {64, 4096, 1, 1, 0, 0, 0, 0x1a0c4000};

extern "C" __global__ void gpuos_kernel(const __grid_constant__ gpuos_kernel_args_t args) {
  if (threadIdx.x == 0) work(&args.program[0], blockIdx.x);
  if (threadIdx.x == 32 && blockIdx.x == 0) relay(&args.program[0]);
}
