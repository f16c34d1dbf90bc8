// reduce.cuh: one value of all threads of the CTA, in a fixed order.
//
// Called by all threads together; each gets the result. `scratch` is GPUOS_REDUCE_BYTES of shared
// memory, free again when the call returns.
#pragma once
#include "unit.cuh"

enum { GPUOS_REDUCE_BYTES = GPUOS_WARPS * 8 };

template <class VALUE, class MERGE>
GPUOS_DEVICE VALUE gpuos_reduce(VALUE value, char *scratch, MERGE merge) {
  VALUE *warps = (VALUE *)scratch;
  static_assert(sizeof(VALUE) * GPUOS_WARPS <= GPUOS_REDUCE_BYTES, "scratch");
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value = merge(value, value.from_lane(lanes));
  if (gpuos_thread() % 32 == 0) warps[gpuos_thread() / 32] = value;
  gpuos_barrier();
  value = warps[0];
#pragma unroll
  for (int w = 1; w < GPUOS_WARPS; w++) value = merge(value, warps[w]);
  gpuos_barrier();
  return value;
}

struct gpuos_scalar {
  float value;
  __device__ __forceinline__ gpuos_scalar from_lane(int mask) const {
    return {__shfl_xor_sync(0xffffffffu, value, mask)};
  }
};

GPUOS_DEVICE float gpuos_reduce_sum(float value, char *scratch) {
  return gpuos_reduce(
             gpuos_scalar{value}, scratch,
             [](gpuos_scalar a, gpuos_scalar b) { return gpuos_scalar{a.value + b.value}; })
      .value;
}

GPUOS_DEVICE float gpuos_reduce_max(float value, char *scratch) {
  return gpuos_reduce(
             gpuos_scalar{value}, scratch,
             [](gpuos_scalar a, gpuos_scalar b) { return gpuos_scalar{fmaxf(a.value, b.value)}; })
      .value;
}
