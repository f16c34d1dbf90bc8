// ptx.cuh: device/ptx.cuh for a CPU: each instruction does what "PTX ISA 9.0" says, and no more.
//
// Asynchronous copies land at some later time: a bulk copy when the CTA's threads have run a few times,
// a cp.async at the wait for its group. Instructions between CTAs of a cluster are not there.
#pragma once
#include "gpuos_abi.h"

extern "C" {
#include "cpu_dtype.h"
}

#define GPUOS_DEVICE static inline

GPUOS_DEVICE uint32_t mov_tid() { return threadIdx.x; }

// ---- shared memory by its 32-bit addresses ------------------------------------------------------

static thread_local char emulated_anchor; // what is shared lies near it

GPUOS_DEVICE uint32_t shared_address(const void *at) { return (uint32_t)(uintptr_t)at; }
GPUOS_DEVICE char *emulated_shared(uint32_t address) {
  return &emulated_anchor + (int32_t)(address - (uint32_t)(uintptr_t)&emulated_anchor);
}
GPUOS_DEVICE void *__cvta_shared_to_generic(uint32_t address) { return emulated_shared(address); }
GPUOS_DEVICE uint32_t mov_shared_address(const void *at) { return shared_address(at); }

// ---- synchronisation ----------------------------------------------------------------------------

// Whoever looks may look again and again.
template <class T> GPUOS_DEVICE T emulated_load(const T *at) {
  emulated_yield();
  return __atomic_load_n(at, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE uint32_t ld_acquire_gpu(const uint32_t *at) { return emulated_load(at); }
GPUOS_DEVICE uint32_t ld_relaxed_sys(const uint32_t *at) { return emulated_load(at); }
GPUOS_DEVICE uint64_t ld_relaxed_gpu_u64(const uint64_t *at) { return emulated_load(at); }
GPUOS_DEVICE void ld_relaxed_sys_v4(const uint32_t *at, uint32_t *v) {
  for (int i = 0; i < 4; i++) v[i] = emulated_load(at + i);
}
GPUOS_DEVICE void st_relaxed_sys(uint32_t *at, uint32_t value) {
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE void st_relaxed_sys_u64(uint64_t *at, uint64_t value) {
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE uint64_t atom_relaxed_gpu_add_u64(uint64_t *at, uint64_t value) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE uint32_t atom_relaxed_gpu_add(uint32_t *at, uint32_t value) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE uint64_t atom_relaxed_gpu_cas_u64(uint64_t *at, uint64_t expected, uint64_t value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
GPUOS_DEVICE uint32_t atom_relaxed_gpu_cas(uint32_t *at, uint32_t expected, uint32_t value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
GPUOS_DEVICE void red_relaxed_gpu_add(uint32_t *at, uint32_t value) {
  atom_relaxed_gpu_add(at, value);
}
GPUOS_DEVICE void red_relaxed_gpu_add_u64(uint64_t *at, uint64_t value) {
  atom_relaxed_gpu_add_u64(at, value);
}
GPUOS_DEVICE void red_relaxed_gpu_max(uint32_t *at, uint32_t value) {
  for (uint32_t old = *at; old < value;)
    if (__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return;
}
GPUOS_DEVICE void fence_sc_sys() {}
GPUOS_DEVICE void fence_acq_rel_sys() {}
GPUOS_DEVICE void fence_acq_rel_gpu() {}
GPUOS_DEVICE void fence_proxy_async() {}
GPUOS_DEVICE void fence_proxy_async_shared() {}
GPUOS_DEVICE void fence_mbarrier_init() {}

// As slow as the emulation, roughly: what is a stall on a GPU is none here.
enum { EMULATED_SLOWNESS = 256 };
GPUOS_DEVICE uint64_t mov_globaltimer() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) / EMULATED_SLOWNESS;
}
GPUOS_DEVICE uint32_t mov_u32(uint32_t value) { return value; }
GPUOS_DEVICE uint32_t mov_smid() { return blockIdx.x; }

template <int ID> GPUOS_DEVICE void barrier_sync(uint32_t threads) {
  emulated_join(ID, threads, false);
}
template <int ID> GPUOS_DEVICE bool barrier_red_or(uint32_t threads, bool value) {
  return emulated_join(ID, threads, value);
}
GPUOS_DEVICE uint32_t ld_relaxed_shared(const uint32_t *at) { return emulated_load(at); }
GPUOS_DEVICE uint32_t ld_relaxed_shared(uint32_t at) {
  return emulated_load((const uint32_t *)emulated_shared(at));
}
GPUOS_DEVICE void st_relaxed_shared(uint32_t *at, uint32_t value) {
  *(volatile uint32_t *)at = value;
}
GPUOS_DEVICE bool elect_sync(uint32_t) {
  __syncwarp();
  return threadIdx.x % 32 == 0;
}

// In the place of the 64 opaque bits.
struct emulated_mbarrier {
  uint16_t pending, count;
  int32_t bytes : 31; // announced and not landed
  uint32_t phase : 1;
};
static_assert(sizeof(emulated_mbarrier) == 8, "mbarrier");

GPUOS_DEVICE void emulated_advance(emulated_mbarrier *b) {
  if (b->pending != 0 || b->bytes != 0) return;
  b->pending = b->count, b->phase ^= 1;
}
GPUOS_DEVICE void mbarrier_init(uint64_t *barrier, uint32_t count) {
  *(emulated_mbarrier *)barrier = {(uint16_t)count, (uint16_t)count, 0, 0};
}
GPUOS_DEVICE void mbarrier_inval(uint64_t *) {}
GPUOS_DEVICE void mbarrier_arrive(uint64_t *barrier) {
  emulated_mbarrier *b = (emulated_mbarrier *)barrier;
  if (b->pending == 0) emulated_fail("more arrivals than an mbarrier expects");
  b->pending--;
  emulated_advance(b);
}
GPUOS_DEVICE void mbarrier_arrive(uint32_t barrier) {
  mbarrier_arrive((uint64_t *)emulated_shared(barrier));
}
GPUOS_DEVICE void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  ((emulated_mbarrier *)emulated_shared(barrier))->bytes += (int32_t)bytes;
  mbarrier_arrive((uint64_t *)emulated_shared(barrier));
}
template <int LIMIT_NS = 500>
GPUOS_DEVICE bool mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
  const emulated_mbarrier *b = (const emulated_mbarrier *)emulated_shared(barrier);
  if (b->phase != parity) return true;
  emulated_yield();
  return b->phase != parity;
}
GPUOS_DEVICE bool mbarrier_try_wait_parity(const uint64_t *barrier, uint32_t parity) {
  return mbarrier_try_wait_parity(shared_address(barrier), parity);
}
GPUOS_DEVICE bool mbarrier_test_wait_parity(uint32_t barrier, uint32_t parity) {
  return mbarrier_try_wait_parity(barrier, parity);
}
GPUOS_DEVICE bool mbarrier_test_wait_parity(const uint64_t *barrier, uint32_t parity) {
  return mbarrier_try_wait_parity(shared_address(barrier), parity);
}

template <int REGISTERS> GPUOS_DEVICE void setmaxnreg_inc() {}
template <int REGISTERS> GPUOS_DEVICE void setmaxnreg_dec() {}

// ---- clusters -----------------------------------------------------------------------------------

GPUOS_DEVICE uint32_t mapa_shared_cluster(const void *at, uint32_t rank) {
  if (rank != 0) emulated_fail("a cluster");
  return shared_address(at);
}
GPUOS_DEVICE void mbarrier_arrive_cluster(uint32_t barrier) {
  mbarrier_arrive((uint64_t *)emulated_shared(barrier));
}
GPUOS_DEVICE void st_async_v4(uint32_t, uint4, uint32_t) { emulated_fail("a cluster"); }
GPUOS_DEVICE void barrier_cluster() { emulated_fail("a cluster"); }
GPUOS_DEVICE void st_release_cluster(uint32_t, uint32_t) { emulated_fail("a cluster"); }
GPUOS_DEVICE uint32_t ld_acquire_cluster(uint32_t) { emulated_fail("a cluster"); }
GPUOS_DEVICE uint32_t atom_acq_rel_cluster_cas(uint32_t, uint32_t, uint32_t) {
  emulated_fail("a cluster");
}

// ---- loads and stores ---------------------------------------------------------------------------

template <class T> GPUOS_DEVICE T emulated_aligned(const void *at) {
  if ((uintptr_t)at % sizeof(T) != 0) emulated_fail("a misaligned access");
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}
GPUOS_DEVICE uint4 ld_global_cg_v4(const void *at) { return emulated_aligned<uint4>(at); }
GPUOS_DEVICE uint2 ld_global_cg_v2(const void *at) { return emulated_aligned<uint2>(at); }
GPUOS_DEVICE uint32_t ld_global_u32(const void *at) { return emulated_aligned<uint32_t>(at); }
GPUOS_DEVICE uint32_t ld_global_u16(const void *at) { return emulated_aligned<uint16_t>(at); }
GPUOS_DEVICE uint32_t ld_global_u8(const void *at) { return *(const uint8_t *)at; }
GPUOS_DEVICE void st_global_v4(uint64_t at, uint4 v) { memcpy((void *)at, &v, sizeof v); }
GPUOS_DEVICE void st_global_v2(uint64_t at, uint2 v) { memcpy((void *)at, &v, sizeof v); }
GPUOS_DEVICE uint4 ld_relaxed_gpu_v2_u64(uint64_t at) {
  const uint64_t *words = (const uint64_t *)at, a = emulated_load(words),
                 b = emulated_load(words + 1);
  return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}
GPUOS_DEVICE uint4 ld_relaxed_gpu_v4_u32(uint64_t at) {
  const uint32_t *words = (const uint32_t *)at;
  uint4 v = {emulated_load(words), emulated_load(words + 1), emulated_load(words + 2),
             emulated_load(words + 3)};
  return v;
}
GPUOS_DEVICE uint4 ld_relaxed_gpu_b128(uint64_t at) {
  uint4 v;
  __atomic_load((__int128 *)at, (__int128 *)&v, __ATOMIC_SEQ_CST);
  return v;
}
GPUOS_DEVICE void st_relaxed_gpu_b128(uint64_t at, uint4 v) {
  __atomic_store((__int128 *)at, (__int128 *)&v, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE void st_relaxed_gpu_u64(uint64_t at, uint64_t value) {
  __atomic_store_n((uint64_t *)at, value, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE void st_relaxed_gpu_v2_u64(uint64_t at, uint64_t first, uint64_t second) {
  st_relaxed_gpu_u64(at, first);
  st_relaxed_gpu_u64(at + 8, second);
}
GPUOS_DEVICE void st_relaxed_gpu_u32(uint64_t at, uint32_t value) {
  __atomic_store_n((uint32_t *)at, value, __ATOMIC_SEQ_CST);
}
GPUOS_DEVICE void st_shared_f32(uint32_t at, float value) {
  memcpy(emulated_shared(at), &value, sizeof value);
}
GPUOS_DEVICE uint4 ld_shared_v4(uint32_t at) {
  return emulated_aligned<uint4>(emulated_shared(at));
}

GPUOS_DEVICE uint2 ld_shared_v2(uint32_t at) {
  return emulated_aligned<uint2>(emulated_shared(at));
}
template <class T> GPUOS_DEVICE void emulated_store_aligned(uint32_t at, T v) {
  if (at % sizeof v != 0) emulated_fail("a misaligned access");
  memcpy(emulated_shared(at), &v, sizeof v);
}
GPUOS_DEVICE void st_shared_v4(uint32_t at, uint4 v) { emulated_store_aligned(at, v); }
GPUOS_DEVICE void st_shared_v2(uint32_t at, uint2 v) { emulated_store_aligned(at, v); }

// ---- copies to shared memory --------------------------------------------------------------------

GPUOS_DEVICE void emulated_land(const emulated_copy &copy) {
  memcpy(copy.to, copy.from, copy.bytes);
  if (!copy.barrier) return;
  ((emulated_mbarrier *)copy.barrier)->bytes -= (int32_t)copy.bytes;
  emulated_advance((emulated_mbarrier *)copy.barrier);
}

// Those of this thread that have no mbarrier, but for the last `pending` groups.
struct emulated_group_copy {
  uint32_t to, bytes, group;
  const void *from;
};
enum { EMULATED_GROUP_COPIES = 2048 };
struct emulated_groups {
  emulated_group_copy copy[EMULATED_GROUP_COPIES];
  uint32_t count, group;
};
static thread_local emulated_groups *emulated_groups_of[EMULATED_MOST];

GPUOS_DEVICE emulated_groups &emulated_own_groups() {
  emulated_groups *&groups = emulated_groups_of[threadIdx.x];
  if (!groups) groups = (emulated_groups *)calloc(1, sizeof *groups);
  return *groups;
}
GPUOS_DEVICE void cp_async_cg_16(uint32_t to, const void *from, uint32_t bytes) {
  emulated_groups &g = emulated_own_groups();
  if (g.count == EMULATED_GROUP_COPIES) emulated_fail("too many copies");
  if (to % 16 || (bytes && (uintptr_t)from % 16)) emulated_fail("a misaligned copy");
  g.copy[g.count++] = {to, bytes, g.group, from};
}
GPUOS_DEVICE void cp_async_cg_16_hint(uint32_t to, const void *from, uint32_t bytes, uint64_t) {
  cp_async_cg_16(to, from, bytes);
}
GPUOS_DEVICE uint64_t createpolicy_evict_first() { return 0; }
GPUOS_DEVICE void cp_async_commit_group() { emulated_own_groups().group++; }
template <int PENDING> GPUOS_DEVICE void cp_async_wait_group() {
  emulated_groups &g = emulated_own_groups();
  uint32_t kept = 0;
  for (uint32_t i = 0; i < g.count; i++) {
    const emulated_group_copy copy = g.copy[i];
    if (copy.group + PENDING >= g.group) {
      g.copy[kept++] = copy;
      continue;
    }
    char *to = emulated_shared(copy.to);
    memset(to, 0, 16);
    memcpy(to, copy.from, copy.bytes);
  }
  g.count = kept;
}

GPUOS_DEVICE void cp_async_bulk_hint(uint32_t to, uint64_t from, uint32_t bytes, uint32_t barrier,
                                     uint64_t) {
  if (to % 16 || from % 16 || bytes % 16) emulated_fail("a misaligned copy");
  while (emulated->copy_count == EMULATED_COPIES) emulated_yield();
  emulated->copies[emulated->copy_count++] = {emulated_shared(to), (const void *)from, bytes,
                                              (uint64_t *)emulated_shared(barrier)};
}

GPUOS_DEVICE void cp_async_bulk_tensor_load(uint32_t, uint64_t, uint32_t, uint32_t, uint32_t,
                                            uint32_t) {
  emulated_fail("a tensor map");
}
#define GPUOS_EVICT_LAST 0ull
GPUOS_DEVICE void cp_async_bulk_tensor_load_hint(uint32_t, uint64_t, uint32_t, uint32_t, uint32_t,
                                                 uint32_t, uint64_t) {
  emulated_fail("a tensor map");
}
GPUOS_DEVICE void cp_async_bulk_tensor_multicast(uint32_t, uint64_t, uint32_t, uint32_t, uint32_t,
                                                 uint32_t, uint32_t) {
  emulated_fail("a tensor map");
}

// ---- matrices -----------------------------------------------------------------------------------

template <int COUNT> GPUOS_DEVICE void emulated_ldmatrix(uint32_t (&v)[COUNT], uint32_t at) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t(*all)[8] = emulated_exchange(&at, 1);
  for (int i = 0; i < COUNT; i++) {
    const uint32_t row = all[i * 8 + lane / 4][0];
    if (row % 16) emulated_fail("a misaligned matrix");
    memcpy(&v[i], emulated_shared(row) + lane % 4 * 4, 4);
  }
}
GPUOS_DEVICE void ldmatrix_x4(uint32_t (&v)[4], uint32_t at) { emulated_ldmatrix(v, at); }
GPUOS_DEVICE void ldmatrix_x2(uint32_t (&v)[2], uint32_t at) { emulated_ldmatrix(v, at); }

GPUOS_DEVICE float emulated_bf16(uint32_t bits) { return gos_bf16_to_f32((uint16_t)bits); }
GPUOS_DEVICE float emulated_f16(uint32_t bits) { return gos_f16_to_f32((uint16_t)bits); }
GPUOS_DEVICE float emulated_e4m3(uint32_t bits) { return gos_e4m3_to_f32((uint8_t)bits); }
GPUOS_DEVICE float emulated_e5m2(uint32_t bits) { return gos_e5m2_to_f32((uint8_t)bits); }

// c += a b, m16n8: a lane has elements of rows g and g + 8 of A and of column g of B, g its number / 4,
// a word of them from k = q PER and one from k = (q + 4) PER, q its number % 4 (PTX ISA,
// "mma.m16n8k16", "mma.m16n8k32").
template <int BITS, float A(uint32_t), float B(uint32_t)>
GPUOS_DEVICE void emulated_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  constexpr uint32_t PER = 32 / BITS;
  const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1}, lane = threadIdx.x % 32;
  const uint32_t(*all)[8] = emulated_exchange(words, 6);
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t row = lane / 4, high = i / 2, col = lane % 4 * 2 + i % 2;
    for (uint32_t k = 0; k < 8 * PER; k++) {
      const uint32_t q = k / PER % 4, half = k / PER / 4, shift = k % PER * BITS;
      c[i] +=
          A(all[row * 4 + q][high + 2 * half] >> shift) * B(all[col * 4 + q][4 + half] >> shift);
    }
  }
}
#define EMULATED_MMA(name, bits, a_type, b_type)                                                   \
  GPUOS_DEVICE void name(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {          \
    emulated_mma<bits, a_type, b_type>(c, a, b0, b1);                                              \
  }
EMULATED_MMA(mma_m16n8k16_bf16, 16, emulated_bf16, emulated_bf16)
EMULATED_MMA(mma_m16n8k16_f16, 16, emulated_f16, emulated_f16)
EMULATED_MMA(mma_m16n8k32_e4m3_e4m3, 8, emulated_e4m3, emulated_e4m3)
EMULATED_MMA(mma_m16n8k32_e4m3_e5m2, 8, emulated_e4m3, emulated_e5m2)
EMULATED_MMA(mma_m16n8k32_e5m2_e4m3, 8, emulated_e5m2, emulated_e4m3)
EMULATED_MMA(mma_m16n8k32_e5m2_e5m2, 8, emulated_e5m2, emulated_e5m2)
#undef EMULATED_MMA

// The same with half of k: the upper half is zero.
GPUOS_DEVICE void mma_m16n8k8_bf16(float (&c)[4], const uint32_t (&a)[2], uint32_t b) {
  const uint32_t all[4] = {a[0], a[1], 0, 0};
  mma_m16n8k16_bf16(c, all, b, 0);
}
GPUOS_DEVICE void mma_m16n8k8_f16(float (&c)[4], const uint32_t (&a)[2], uint32_t b) {
  const uint32_t all[4] = {a[0], a[1], 0, 0};
  mma_m16n8k16_f16(c, all, b, 0);
}

GPUOS_DEVICE uint32_t movmatrix_trans(uint32_t v) {
  const uint32_t(*all)[8] = emulated_exchange(&v, 1), lane = threadIdx.x % 32;
  uint32_t pair = 0;
  for (uint32_t e = 0; e < 2; e++) { // row 2 (l % 4) + e of column l / 4
    const uint32_t word = all[(lane % 4 * 2 + e) * 4 + lane / 8][0];
    pair |= (word >> lane / 4 % 2 * 16 & 0xffff) << e * 16;
  }
  return pair;
}

// ---- conversions --------------------------------------------------------------------------------

GPUOS_DEVICE uint32_t cvt_rn_bf16x2_f32(float low, float high) {
  return gos_f32_to_bf16(low) | (uint32_t)gos_f32_to_bf16(high) << 16;
}
GPUOS_DEVICE uint32_t cvt_rn_f16x2_f32(float low, float high) {
  return gos_f32_to_f16(low) | (uint32_t)gos_f32_to_f16(high) << 16;
}
GPUOS_DEVICE float rcp_approx_f32(float value) { return 1.0f / value; }
GPUOS_DEVICE float ex2_approx_f32(float value) { return exp2f(value); }
GPUOS_DEVICE float cvt_f32_f16(uint32_t bits) { return emulated_f16(bits); }
GPUOS_DEVICE uint32_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
  return gos_f32_to_e4m3(low) | (uint32_t)gos_f32_to_e4m3(high) << 8;
}
GPUOS_DEVICE uint32_t cvt_rn_satfinite_e5m2x2_f32(float low, float high) {
  return gos_f32_to_e5m2(low) | (uint32_t)gos_f32_to_e5m2(high) << 8;
}
GPUOS_DEVICE uint32_t cvt_rn_f16x2_e4m3x2(uint32_t pair) {
  return cvt_rn_f16x2_f32(emulated_e4m3(pair), emulated_e4m3(pair >> 8));
}
GPUOS_DEVICE uint32_t cvt_rn_f16x2_e5m2x2(uint32_t pair) {
  return cvt_rn_f16x2_f32(emulated_e5m2(pair), emulated_e5m2(pair >> 8));
}

// ---- a CTA --------------------------------------------------------------------------------------

extern "C" {
__global__ void gpuos_kernel(const gpuos_kernel_args_t args);
extern const gpuos_launch_t gpuos_launch;
}
static thread_local const gpuos_kernel_args_t *emulated_args;
// A program of two has a namespace; the same memory on a GPU, here each has its own.
enum { EMULATED_SMEM = 232448 };
thread_local __align__(1024) char gpuos_dynamic[EMULATED_SMEM];
namespace gpuos_live {
thread_local __align__(1024) char gpuos_dynamic[EMULATED_SMEM];
}
namespace gpuos_job {
thread_local __align__(1024) char gpuos_dynamic[EMULATED_SMEM];
}

static void emulated_start() {
  gpuos_kernel(*emulated_args);
  emulated->thread[emulated->current].over = true;
  emulated->left--;
  _longjmp(emulated->sweep, 1);
}

// False: it waits for something.
static bool emulated_resume(uint32_t number) {
  emulated_thread &t = emulated->thread[number];
  const uint32_t *word = t.wait_word;
  if (t.over || (word && *(const volatile uint32_t *)word == t.wait_value)) return false;
  emulated->current = number;
  if (_setjmp(emulated->sweep)) return true;
  if (t.started) _longjmp(t.at, 1);
  t.started = true;
  setcontext(&t.start);
  return true;
}

// The lanes of a warp, in turn, a few times: they mostly wait for each other.
static void emulated_sweep(uint32_t warp) {
  enum { TURNS = 16 };
  const uint32_t first = emulated_random();
  bool ran = true;
  for (int turn = 0; ran && turn < TURNS; turn++) {
    ran = false;
    for (uint32_t i = 0; i < 32; i++) ran |= emulated_resume(warp * 32 + (first + i) % 32);
  }
}

static void emulated_land_some() {
  for (uint32_t i = 0; i < emulated->copy_count;) {
    if (emulated_random() % 64) {
      i++;
      continue;
    }
    emulated_land(emulated->copies[i]);
    emulated->copies[i] = emulated->copies[--emulated->copy_count];
  }
}

// Runs CTA `number` of the kernel until its last thread has ended.
extern "C" void gpuos_emulate_cta(const gpuos_kernel_args_t *args, uint32_t number) {
  emulated = (emulated_cta *)calloc(1, sizeof *emulated);
  emulated->number = number, emulated->threads = emulated->left = gpuos_launch.threads;
  emulated->seed = number * 2654435761u + (uint64_t)mov_globaltimer();
  emulated_args = args;
  memset(gpuos_dynamic, 0xff, EMULATED_SMEM);
  memset(gpuos_live::gpuos_dynamic, 0xff, EMULATED_SMEM);
  memset(gpuos_job::gpuos_dynamic, 0xff, EMULATED_SMEM);
  for (uint32_t i = 0; i < emulated->threads; i++) {
    emulated_thread &t = emulated->thread[i];
    t.stack = (char *)malloc(EMULATED_STACK);
    getcontext(&t.start);
    t.start.uc_stack.ss_sp = t.stack, t.start.uc_stack.ss_size = EMULATED_STACK;
    makecontext(&t.start, emulated_start, 0);
  }
  while (emulated->left) {
    const uint32_t warps = emulated->threads / 32, first = emulated_random();
    for (uint32_t i = 0; i < warps; i++) emulated_sweep((first + i) % warps);
    emulated_land_some();
    sched_yield();
  }
  if (emulated->copy_count) emulated_fail("the CTA ends before its copies");
  for (uint32_t i = 0; i < emulated->threads; i++) {
    free(emulated->thread[i].stack);
    free(emulated_groups_of[i]);
    emulated_groups_of[i] = nullptr;
  }
  free(emulated);
}
