// ptx.cuh: one PTX instruction, one function, named after it. Nothing else holds asm.
//
// Source: PTX ISA 9.0, the section of the instruction's name. A function that is never called costs
// nothing, so instructions of newer chips stand here without guards; kernel_source.c refuses
// operators that would need them on older ones.
#pragma once
#include "gpuos_abi.h"

#define GPUOS_DEVICE static __device__ __forceinline__

// Of the CTA. (A template with a member type x cannot compare threadIdx.x: "x <" would open a
// list.)
GPUOS_DEVICE uint32_t gpuos_thread() { return threadIdx.x; }

// ---- synchronisation ----------------------------------------------------------------------------

GPUOS_DEVICE uint32_t ld_acquire_gpu(const uint32_t *at) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

// The host may be the writer: system scope.
GPUOS_DEVICE uint32_t ld_relaxed_sys(const uint32_t *at) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}

GPUOS_DEVICE void st_relaxed_sys(uint32_t *at, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

GPUOS_DEVICE void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

GPUOS_DEVICE void red_relaxed_gpu_add(uint32_t *at, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

GPUOS_DEVICE uint32_t atom_relaxed_gpu_add(uint32_t *at, uint32_t value) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(at), "r"(value)
               : "memory");
  return old;
}

GPUOS_DEVICE uint32_t atom_relaxed_gpu_cas(uint32_t *at, uint32_t expected, uint32_t value) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(at), "r"(expected), "r"(value)
               : "memory");
  return old;
}

GPUOS_DEVICE uint64_t mov_globaltimer() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// ---- loads --------------------------------------------------------------------------------------

// .cg: from L2. Another SM may have written the line since this one last read it.
GPUOS_DEVICE uint4 ld_global_cg_v4(const void *at) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

GPUOS_DEVICE uint2 ld_global_cg_v2(const void *at) {
  uint2 v;
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
  return v;
}

// Through L1: for strided reads, which come back for the rest of the line. Still coherent, because
// the acquire that the tile began with emptied this SM's L1.
GPUOS_DEVICE uint32_t ld_global_u32(const void *at) {
  uint32_t value;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}

GPUOS_DEVICE uint32_t ld_global_u16(const void *at) {
  uint32_t value;
  asm volatile("ld.global.u16 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}

GPUOS_DEVICE uint32_t ld_global_u8(const void *at) {
  uint32_t value;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(value) : "l"(at));
  return value;
}

// ---- copies to shared memory --------------------------------------------------------------------

// 16 bytes, of which the first `bytes` are read and the others become zero.
GPUOS_DEVICE void cp_async_cg_16(uint32_t to, const void *from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

GPUOS_DEVICE void cp_async_cg_16_hint(uint32_t to, const void *from, uint32_t bytes,
                                      uint64_t policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;" ::"r"(to),
      "l"(from), "r"(bytes), "l"(policy)
      : "memory");
}

GPUOS_DEVICE uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

GPUOS_DEVICE void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int PENDING> GPUOS_DEVICE void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- matrices -----------------------------------------------------------------------------------

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8 and
// gets elements 2 (l % 4), 2 (l % 4) + 1 of row l / 4 of each.
GPUOS_DEVICE void ldmatrix_x4(uint32_t (&v)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(at));
}

GPUOS_DEVICE void ldmatrix_x2(uint32_t (&v)[2], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(v[0]), "=r"(v[1])
               : "r"(at));
}

#define GPUOS_MMA(name, shape, a_type, b_type)                                                     \
  GPUOS_DEVICE void name(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {          \
    asm("mma.sync.aligned." shape ".row.col.f32." a_type "." b_type ".f32 "                        \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                          \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                           \
  }
GPUOS_MMA(mma_m16n8k16_bf16, "m16n8k16", "bf16", "bf16")
GPUOS_MMA(mma_m16n8k16_f16, "m16n8k16", "f16", "f16")
GPUOS_MMA(mma_m16n8k32_e4m3_e4m3, "m16n8k32", "e4m3", "e4m3") // sm_89
GPUOS_MMA(mma_m16n8k32_e4m3_e5m2, "m16n8k32", "e4m3", "e5m2")
GPUOS_MMA(mma_m16n8k32_e5m2_e4m3, "m16n8k32", "e5m2", "e4m3")
GPUOS_MMA(mma_m16n8k32_e5m2_e5m2, "m16n8k32", "e5m2", "e5m2")
#undef GPUOS_MMA

// ---- conversions --------------------------------------------------------------------------------

// Two floats to two 16-bit elements; `low` is the one with the lower address.
GPUOS_DEVICE uint32_t cvt_rn_bf16x2_f32(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

GPUOS_DEVICE uint32_t cvt_rn_f16x2_f32(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

GPUOS_DEVICE float cvt_f32_f16(uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)bits));
  return value;
}

GPUOS_DEVICE uint32_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) { // sm_89
  unsigned short bits;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
  return bits;
}

GPUOS_DEVICE uint32_t cvt_rn_satfinite_e5m2x2_f32(float low, float high) { // sm_89
  unsigned short bits;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(bits) : "f"(high), "f"(low));
  return bits;
}

GPUOS_DEVICE uint32_t cvt_rn_f16x2_e4m3x2(uint32_t pair) { // sm_89
  uint32_t bits;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(bits) : "h"((unsigned short)pair));
  return bits;
}

GPUOS_DEVICE uint32_t cvt_rn_f16x2_e5m2x2(uint32_t pair) { // sm_89
  uint32_t bits;
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(bits) : "h"((unsigned short)pair));
  return bits;
}
