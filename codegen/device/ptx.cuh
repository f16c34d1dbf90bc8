// ptx.cuh: one PTX instruction, one function, named after it. Nothing else holds asm.
//
// Source: PTX ISA 9.0, the section of the instruction's name. A function that is never called costs
// nothing, so instructions of newer chips stand here without guards; kernel_source.c refuses
// operators that would need them on older ones.
#pragma once
#include "gpuos_abi.h"

#define GPUOS_DEVICE static __device__ __forceinline__

// The thread's number in the CTA, asked for anew each time.
GPUOS_DEVICE uint32_t mov_tid() {
  uint32_t tid;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
  return tid;
}

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

// Four words, each by itself.
GPUOS_DEVICE void ld_relaxed_sys_v4(const uint32_t *at, uint32_t *v) {
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "l"(at));
}

GPUOS_DEVICE void st_relaxed_sys(uint32_t *at, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

GPUOS_DEVICE uint64_t ld_relaxed_gpu_u64(const uint64_t *at) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at));
  return value;
}

GPUOS_DEVICE void st_relaxed_sys_u64(uint64_t *at, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

GPUOS_DEVICE uint64_t atom_relaxed_gpu_add_u64(uint64_t *at, uint64_t value) {
  uint64_t old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(old)
               : "l"(at), "l"(value)
               : "memory");
  return old;
}

GPUOS_DEVICE uint64_t atom_relaxed_gpu_cas_u64(uint64_t *at, uint64_t expected, uint64_t value) {
  uint64_t old;
  asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(at), "l"(expected), "l"(value)
               : "memory");
  return old;
}

GPUOS_DEVICE void red_relaxed_gpu_add_u64(uint64_t *at, uint64_t value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}

GPUOS_DEVICE void red_relaxed_gpu_max(uint32_t *at, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

GPUOS_DEVICE void fence_sc_sys() { asm volatile("fence.sc.sys;" ::: "memory"); }

GPUOS_DEVICE void fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

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

// ---- within the CTA and its cluster -------------------------------------------------------------

// Of the first `threads` that arrive at named barrier ID.
template <int ID> GPUOS_DEVICE void barrier_sync(uint32_t threads) {
  asm volatile("barrier.sync %0, %1;" ::"n"(ID), "r"(threads) : "memory");
}

template <int ID> GPUOS_DEVICE bool barrier_red_or(uint32_t threads, bool value) {
  uint32_t any;
  asm volatile("{.reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.or.pred q, %2, %3, p; "
               "selp.u32 %0, 1, 0, q;}"
               : "=r"(any)
               : "r"((uint32_t)value), "n"(ID), "r"(threads)
               : "memory");
  return any != 0;
}

// Words of shared memory that another warp changes.
GPUOS_DEVICE uint32_t shared_address(const void *at) {
  return (uint32_t)__cvta_generic_to_shared(at);
}
GPUOS_DEVICE uint32_t ld_relaxed_shared(uint32_t at) {
  uint32_t value;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];" : "=r"(value) : "r"(at));
  return value;
}
GPUOS_DEVICE uint32_t ld_relaxed_shared(const uint32_t *at) {
  return ld_relaxed_shared(shared_address(at));
}
GPUOS_DEVICE void st_relaxed_shared(uint32_t *at, uint32_t value) {
  asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(shared_address(at)), "r"(value)
               : "memory");
}

// The address again, but the compiler takes it for a value of its own and keeps it in a register,
// instead of making it anew from the CTA's place in the cluster each time.
GPUOS_DEVICE uint32_t mov_shared_address(const void *at) {
  uint32_t address;
  asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(shared_address(at)));
  return address;
}

// True for one thread of `mask`, all of which call it. ptxas then knows that bulk copies behind it
// have one issuer.
GPUOS_DEVICE bool elect_sync(uint32_t mask) { // sm_90
  uint32_t chosen;
  asm volatile("{.reg .pred p; elect.sync _|p, %1; selp.u32 %0, 1, 0, p;}"
               : "=r"(chosen)
               : "r"(mask));
  return chosen != 0;
}

GPUOS_DEVICE void mbarrier_init(uint64_t *barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}

GPUOS_DEVICE void mbarrier_inval(uint64_t *barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

GPUOS_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
GPUOS_DEVICE void mbarrier_arrive(uint64_t *barrier) { mbarrier_arrive(shared_address(barrier)); }

GPUOS_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Whether the phase of this parity is over: without waiting.
GPUOS_DEVICE bool mbarrier_test_wait_parity(uint32_t barrier, uint32_t parity) {
  uint32_t over;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; "
               "selp.u32 %0, 1, 0, p;}"
               : "=r"(over)
               : "r"(barrier), "r"(parity)
               : "memory");
  return over != 0;
}
GPUOS_DEVICE bool mbarrier_test_wait_parity(const uint64_t *barrier, uint32_t parity) {
  return mbarrier_test_wait_parity(shared_address(barrier), parity);
}

// True: the phase of that parity is over. Sleeps for it, but not for longer than about LIMIT_NS:
// whoever waits looks at commands as well.
template <int LIMIT_NS = 500>
GPUOS_DEVICE bool mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
  uint32_t over;
#if __CUDA_ARCH__ >= 900
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3; "
               "selp.u32 %0, 1, 0, p;}"
               : "=r"(over)
               : "r"(barrier), "r"(parity), "n"(LIMIT_NS)
               : "memory");
#else // no sleeping there
  over = mbarrier_test_wait_parity(barrier, parity);
#endif
  return over != 0;
}
GPUOS_DEVICE bool mbarrier_try_wait_parity(const uint64_t *barrier, uint32_t parity) {
  return mbarrier_try_wait_parity(shared_address(barrier), parity);
}

// Address of CTA `rank`'s counterpart of an own shared address.
GPUOS_DEVICE uint32_t mapa_shared_cluster(const void *at, uint32_t rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(rank));
  return there;
}

// At another CTA's. Not .release.cluster, which orders far more than a stage's reads and costs a
// fifth of a GEMM (measured on an H200).
GPUOS_DEVICE void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Words of shared memory that CTAs of a cluster tell each other things by.
GPUOS_DEVICE void st_release_cluster(uint32_t at, uint32_t value) {
  asm volatile("st.release.cluster.shared::cluster.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}
GPUOS_DEVICE uint32_t ld_acquire_cluster(uint32_t at) {
  uint32_t value;
  asm volatile("ld.acquire.cluster.shared::cluster.u32 %0, [%1];"
               : "=r"(value)
               : "r"(at)
               : "memory");
  return value;
}
GPUOS_DEVICE uint32_t atom_acq_rel_cluster_cas(uint32_t at, uint32_t expected, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.cluster.shared::cluster.cas.b32 %0, [%1], %2, %3;"
               : "=r"(before)
               : "r"(at), "r"(expected), "r"(value)
               : "memory");
  return before;
}

// 16 bytes to another CTA, which its mbarrier counts.
GPUOS_DEVICE void st_async_v4(uint32_t to, uint4 v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
               "[%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
               : "memory");
}

// A value that stays in its register, instead of being made anew where it is wanted.
GPUOS_DEVICE uint32_t mov_u32(uint32_t value) {
  uint32_t same;
  asm volatile("mov.u32 %0, %1;" : "=r"(same) : "r"(value));
  return same;
}

GPUOS_DEVICE uint32_t mov_smid() {
  uint32_t smid;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
  return smid;
}

GPUOS_DEVICE void barrier_cluster() {
  asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// For copies that are going to signal it; there are none where there is no such fence.
GPUOS_DEVICE void fence_mbarrier_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Orders what threads wrote before what the copy engine does after, and the reverse. Nothing to order
// where there is none.
GPUOS_DEVICE void fence_proxy_async() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

// The same for shared memory of the CTA alone.
GPUOS_DEVICE void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int REGISTERS> GPUOS_DEVICE void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS> GPUOS_DEVICE void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
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

// Four times four values, STRIDE bytes apart, into v[0..15], or nothing at all. Few instructions: what
// runs once a tile is fetched from far.
template <int STRIDE> GPUOS_DEVICE void ld_global_16_f32_if(bool wanted, float *v, const void *at) {
  asm volatile("{.reg .pred p; setp.ne.u32 p, %17, 0;"
               "@p ld.global.v4.f32 {%0, %1, %2, %3}, [%16];"
               "@p ld.global.v4.f32 {%4, %5, %6, %7}, [%16 + %18];"
               "@p ld.global.v4.f32 {%8, %9, %10, %11}, [%16 + %19];"
               "@p ld.global.v4.f32 {%12, %13, %14, %15}, [%16 + %20];}"
               : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]), "+f"(v[4]), "+f"(v[5]), "+f"(v[6]),
                 "+f"(v[7]), "+f"(v[8]), "+f"(v[9]), "+f"(v[10]), "+f"(v[11]), "+f"(v[12]),
                 "+f"(v[13]), "+f"(v[14]), "+f"(v[15])
               : "l"(at), "r"((uint32_t)wanted), "n"(STRIDE), "n"(2 * STRIDE), "n"(3 * STRIDE));
}

GPUOS_DEVICE uint2 ld_global_cg_v2(const void *at) {
  uint2 v;
  asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at));
  return v;
}

GPUOS_DEVICE void st_global_v4(uint64_t at, uint4 v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}

GPUOS_DEVICE void st_global_v2(uint64_t at, uint2 v) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y) : "memory");
}

GPUOS_DEVICE uint4 ld_shared_v4(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

GPUOS_DEVICE uint2 ld_shared_v2(uint32_t at) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(at) : "memory");
  return v;
}

// Each 64-bit word of it, or each 32-bit one, as its writer had it.
GPUOS_DEVICE uint4 ld_relaxed_gpu_v2_u64(uint64_t at) {
  uint64_t a, b;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b)
               : "l"(at)
               : "memory");
  return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}
GPUOS_DEVICE uint4 ld_relaxed_gpu_v4_u32(uint64_t at) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at)
               : "memory");
  return v;
}
// 16 bytes, aligned, at once: PTX ISA, "Memory Consistency Model", scalar data-types of 128 bits.
GPUOS_DEVICE uint4 ld_relaxed_gpu_b128(uint64_t at) {
  uint64_t a, b;
  asm volatile("{\n.reg .b128 both;\n"
               "ld.relaxed.gpu.global.b128 both, [%2];\n"
               "mov.b128 {%0, %1}, both;\n}"
               : "=l"(a), "=l"(b)
               : "l"(at)
               : "memory");
  return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}
GPUOS_DEVICE void st_relaxed_gpu_b128(uint64_t at, uint4 v) {
  asm volatile("{\n.reg .b128 both;\n"
               "mov.b128 both, {%1, %2};\n"
               "st.relaxed.gpu.global.b128 [%0], both;\n}" ::"l"(at),
               "l"((uint64_t)v.y << 32 | v.x), "l"((uint64_t)v.w << 32 | v.z)
               : "memory");
}
GPUOS_DEVICE void st_relaxed_gpu_u64(uint64_t at, uint64_t value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
GPUOS_DEVICE void st_relaxed_gpu_v2_u64(uint64_t at, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(first), "l"(second)
               : "memory");
}
GPUOS_DEVICE void st_relaxed_gpu_u32(uint64_t at, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

GPUOS_DEVICE void st_shared_v4(uint32_t at, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w)
               : "memory");
}
GPUOS_DEVICE void st_shared_v2(uint32_t at, uint2 v) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v.x), "r"(v.y) : "memory");
}

GPUOS_DEVICE void st_shared_f32(uint32_t at, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
}

// Through L1: for strided reads, which come back for the rest of the line. Still coherent, because
// the acquire that the tile or the step began with emptied this SM's L1.
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

// ---- bulk copies (sm_90) ------------------------------------------------------------------------

// Contiguous bytes into shared memory, which the mbarrier counts; L2 treats the lines as the policy
// says.
GPUOS_DEVICE void cp_async_bulk_hint(uint32_t to, uint64_t from, uint32_t bytes, uint32_t barrier,
                                     uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}

// A box of a tensor map at (x, y, z) into shared memory; the mbarrier counts its bytes.
GPUOS_DEVICE void cp_async_bulk_tensor_load(uint32_t to, uint64_t map, uint32_t barrier, uint32_t x,
                                            uint32_t y, uint32_t z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
               : "memory");
}

// What createpolicy.fractional.L2::evict_last makes (CUTLASS, TMA::CacheHintSm90): as a constant it needs
// no registers in the meantime.
#define GPUOS_EVICT_LAST 0x14f0000000000000ull

// The same; L2 treats the lines as the policy says.
GPUOS_DEVICE void cp_async_bulk_tensor_load_hint(uint32_t to, uint64_t map, uint32_t barrier,
                                                 uint32_t x, uint32_t y, uint32_t z,
                                                 uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(policy)
               : "memory");
}

// The same into the same place of each CTA of the cluster in `mask`.
GPUOS_DEVICE void cp_async_bulk_tensor_multicast(uint32_t to, uint64_t map, uint32_t barrier,
                                                 uint32_t x, uint32_t y, uint32_t z,
                                                 uint32_t mask) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
               ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
               "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"((unsigned short)mask)
               : "memory");
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

#define GPUOS_MMA_K8(name, type)                                                                   \
  GPUOS_DEVICE void name(float(&c)[4], const uint32_t(&a)[2], uint32_t b) {                        \
    asm("mma.sync.aligned.m16n8k8.row.col.f32." type "." type ".f32 "                              \
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                                      \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                           \
        : "r"(a[0]), "r"(a[1]), "r"(b));                                                           \
  }
GPUOS_MMA_K8(mma_m16n8k8_bf16, "bf16")
GPUOS_MMA_K8(mma_m16n8k8_f16, "f16")
#undef GPUOS_MMA_K8

// Of an 8x8 matrix of 16-bit elements in a warp, as ldmatrix leaves it, the transposed one.
GPUOS_DEVICE uint32_t movmatrix_trans(uint32_t v) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(v));
  return transposed;
}

// Four 8x8 matrices of 16-bit elements to shared memory, as ldmatrix_x4 reads them.
GPUOS_DEVICE void stmatrix_x4(uint32_t at, const uint32_t (&v)[4]) { // sm_90
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

// ---- matrices of a warpgroup (sm_90a) -----------------------------------------------------------

GPUOS_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GPUOS_DEVICE void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING> GPUOS_DEVICE void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Nothing: but the compiler takes all of d to change here, and so neither moves what defines it into
// a pipeline of wgmma nor what uses it.
template <int COUNT> GPUOS_DEVICE void wgmma_fence_operand(float (&d)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(d[i])::"memory");
}

// d += a b; a: 64 rows, b: 128 or 256 rows, both descriptors of shared memory, 32 bytes of k.
#define GPUOS_R8(n)                                                                                \
  "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3]), "+f"(d[n + 4]), "+f"(d[n + 5]),      \
      "+f"(d[n + 6]), "+f"(d[n + 7])
#define GPUOS_WGMMA_N128(name, shape, types, tail)                                                 \
  GPUOS_DEVICE void name(float(&d)[64], uint64_t a, uint64_t b) {                                  \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128" shape ".f32." types " "                    \
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"             \
                 "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,"            \
                 "%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,"            \
                 "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, 1, 1, 1" tail ";"        \
                 : GPUOS_R8(0), GPUOS_R8(8), GPUOS_R8(16), GPUOS_R8(24), GPUOS_R8(32),             \
                   GPUOS_R8(40), GPUOS_R8(48), GPUOS_R8(56)                                        \
                 : "l"(a), "l"(b));                                                                \
  }
#define GPUOS_WGMMA_N256(name, shape, types, tail)                                                 \
  GPUOS_DEVICE void name(float(&d)[128], uint64_t a, uint64_t b) {                                 \
    asm volatile(                                                                                  \
        "wgmma.mma_async.sync.aligned.m64n256" shape ".f32." types " "                             \
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,"                      \
        "%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,"                     \
        "%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,"                     \
        "%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,"                     \
        "%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,"                     \
        "%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,"                      \
        "%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,"                   \
        "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, %128, %129, 1, 1, 1" tail ";"    \
        : GPUOS_R8(0), GPUOS_R8(8), GPUOS_R8(16), GPUOS_R8(24), GPUOS_R8(32), GPUOS_R8(40),        \
          GPUOS_R8(48), GPUOS_R8(56), GPUOS_R8(64), GPUOS_R8(72), GPUOS_R8(80), GPUOS_R8(88),      \
          GPUOS_R8(96), GPUOS_R8(104), GPUOS_R8(112), GPUOS_R8(120)                                \
        : "l"(a), "l"(b));                                                                         \
  }
GPUOS_WGMMA_N128(wgmma_bf16, "k16", "bf16.bf16", ", 0, 0")
GPUOS_WGMMA_N256(wgmma_bf16, "k16", "bf16.bf16", ", 0, 0")
GPUOS_WGMMA_N128(wgmma_f16, "k16", "f16.f16", ", 0, 0")
GPUOS_WGMMA_N256(wgmma_f16, "k16", "f16.f16", ", 0, 0")
GPUOS_WGMMA_N128(wgmma_e4m3_e4m3, "k32", "e4m3.e4m3", "")
GPUOS_WGMMA_N256(wgmma_e4m3_e4m3, "k32", "e4m3.e4m3", "")
GPUOS_WGMMA_N128(wgmma_e4m3_e5m2, "k32", "e4m3.e5m2", "")
GPUOS_WGMMA_N256(wgmma_e4m3_e5m2, "k32", "e4m3.e5m2", "")
GPUOS_WGMMA_N128(wgmma_e5m2_e4m3, "k32", "e5m2.e4m3", "")
GPUOS_WGMMA_N256(wgmma_e5m2_e4m3, "k32", "e5m2.e4m3", "")
GPUOS_WGMMA_N128(wgmma_e5m2_e5m2, "k32", "e5m2.e5m2", "")
GPUOS_WGMMA_N256(wgmma_e5m2_e5m2, "k32", "e5m2.e5m2", "")
#undef GPUOS_WGMMA_N128
#undef GPUOS_WGMMA_N256
#undef GPUOS_R8

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

GPUOS_DEVICE float rcp_approx_f32(float value) {
  float reciprocal;
  asm("rcp.approx.f32 %0, %1;" : "=f"(reciprocal) : "f"(value));
  return reciprocal;
}

GPUOS_DEVICE float ex2_approx_f32(float value) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
  return power;
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
