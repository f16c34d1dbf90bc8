// language.h: CUDA C++ on a CPU: what the language and its built-in functions are to generated source.
//
// Included before it. A CTA is a POSIX thread, its threads are coroutines of it in an order drawn from a
// seed, so whatever is wrong without a barrier or a wait goes wrong here as well. Shared memory is
// thread-local; addresses of device memory are the host's. Copies land late: see ptx.cuh.
#ifndef GPUOS_EMULATE_LANGUAGE_H_
#define GPUOS_EMULATE_LANGUAGE_H_

#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

// ---- coroutines ---------------------------------------------------------------------------------

enum { EMULATED_STACK = 128 << 10, EMULATED_MOST = 1024, EMULATED_WARPS = EMULATED_MOST / 32 };

struct emulated_thread {
  ucontext_t start;
  jmp_buf at;
  bool started, over;
  const uint32_t *wait_word; // it need not run before this word has changed
  uint32_t wait_value;
  char *stack;
};

// All lanes of a warp hand in up to eight words and see those of all. Two sets: a lane may still read
// the last ones when another one hands in the next.
struct emulated_warp {
  uint32_t arrived, rounds;
  uint32_t words[2][32][8];
};

struct emulated_barrier {
  uint32_t arrived, rounds, any[2];
};

struct emulated_copy {
  void *to;
  const void *from;
  uint32_t bytes;
  uint64_t *barrier; // counts them when they have landed
};
enum { EMULATED_COPIES = 4096 };

struct emulated_cta {
  uint32_t number, threads, current, left;
  uint64_t seed;
  jmp_buf sweep;
  emulated_thread thread[EMULATED_MOST];
  emulated_warp warp[EMULATED_WARPS];
  emulated_barrier barrier[16];
  emulated_copy copies[EMULATED_COPIES];
  uint32_t copy_count;
};
static thread_local emulated_cta *emulated; // this OS thread's

static inline uint32_t emulated_random() {
  emulated->seed = emulated->seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(emulated->seed >> 33);
}

// Lets the other threads of the CTA run; until `word` is no longer `value`, if there is one.
__attribute__((noinline)) static void emulated_yield(const uint32_t *word = nullptr,
                                                     uint32_t value = 0) {
  emulated_thread &t = emulated->thread[emulated->current];
  t.wait_word = word, t.wait_value = value;
  if (_setjmp(t.at) == 0) _longjmp(emulated->sweep, 1);
}
static inline void emulated_wait(const uint32_t *word, uint32_t value) {
  while (*(const volatile uint32_t *)word == value) emulated_yield(word, value);
}

[[noreturn]] static inline void emulated_fail(const char *what) {
  fprintf(stderr, "emulated CTA %u, thread %u: %s\n", emulated->number, emulated->current, what);
  abort();
}

// What all lanes of the warp hand in, `count` words each.
static inline const uint32_t (*emulated_exchange(const uint32_t *words, int count))[8] {
  emulated_warp &w = emulated->warp[emulated->current / 32];
  const uint32_t round = w.rounds;
  memcpy(w.words[round % 2][emulated->current % 32], words, (size_t)count * 4);
  if (++w.arrived == 32)
    w.arrived = 0, w.rounds++;
  else
    emulated_wait(&w.rounds, round);
  return w.words[round % 2];
}

// Of `threads` threads at barrier number `id`: whether any of them says `value`.
static inline bool emulated_join(int id, uint32_t threads, bool value) {
  emulated_barrier &b = emulated->barrier[id];
  const uint32_t round = b.rounds;
  b.any[round % 2] |= value;
  if (++b.arrived == threads)
    b.arrived = 0, b.any[(round + 1) % 2] = 0, b.rounds++;
  else
    emulated_wait(&b.rounds, round);
  return b.any[round % 2] != 0;
}

// ---- the language -------------------------------------------------------------------------------

#define __device__
#define __constant__
#define __host__
#define __global__
#define __shared__      thread_local
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

struct emulated_index {
  uint32_t x;
};
#define threadIdx (emulated_index{emulated->current})
#define blockIdx  (emulated_index{emulated->number})

struct __align__(8) uint2 {
  uint32_t x, y;
};
struct __align__(16) uint4 {
  uint32_t x, y, z, w;
};
struct __align__(8) float2 {
  float x, y;
};
struct __align__(16) float4 {
  float x, y, z, w;
};
static inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
static inline uint32_t min(int a, uint32_t b) { return min((uint32_t)a, b); }
static inline uint32_t min(uint32_t a, int b) { return min(a, (uint32_t)b); }

template <class TO, class FROM> static inline TO emulated_bits(FROM from) {
  static_assert(sizeof(TO) == sizeof(FROM), "bits");
  TO to;
  memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __uint_as_float(uint32_t bits) { return emulated_bits<float>(bits); }
static inline uint32_t __float_as_uint(float value) { return emulated_bits<uint32_t>(value); }
static inline float __int2float_rn(int value) { return (float)value; }
static inline int __float2int_rn(float value) {
  if (value != value) return 0;
  return value >= 0x1p31f ? INT32_MAX : value <= -0x1p31f ? INT32_MIN : (int)rintf(value);
}
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

static inline void sincospif(float x, float *sine, float *cosine) {
  *sine = (float)sin(M_PI * (double)x), *cosine = (float)cos(M_PI * (double)x);
}

static inline void __syncwarp() {
  const uint32_t none = 0;
  emulated_exchange(&none, 1);
}
static inline void __syncthreads() { emulated_join(0, emulated->threads, false); }
static inline void __threadfence_block() {}
// Copies take microseconds: whoever sleeps for longer finds them landed.
static inline void __nanosleep(uint32_t ns) {
  do emulated_yield();
  while (ns >= 100000 && emulated->copy_count);
}
static inline int __popc(uint32_t word) { return __builtin_popcount(word); }

template <class T> static inline T __shfl_sync(uint32_t mask, T value, int lane) {
  static_assert(sizeof(T) <= 8, "shuffled");
  if (mask != 0xffffffffu) emulated_fail("a shuffle of some lanes");
  uint32_t words[2] = {};
  memcpy(words, &value, sizeof value);
  memcpy(&value, emulated_exchange(words, 2)[lane % 32], sizeof value);
  return value;
}
template <class T> static inline T __shfl_xor_sync(uint32_t mask, T value, int lanes) {
  return __shfl_sync(mask, value, (int)(emulated->current % 32) ^ lanes);
}
template <class T> static inline T __shfl_down_sync(uint32_t mask, T value, int lanes) {
  const int lane = (int)(emulated->current % 32);
  return __shfl_sync(mask, value, lane + lanes < 32 ? lane + lanes : lane);
}
static inline bool __all_sync(uint32_t, bool value) {
  const uint32_t word = value;
  const uint32_t(*all)[8] = emulated_exchange(&word, 1);
  bool result = true;
  for (int l = 0; l < 32; l++) result &= all[l][0] != 0;
  return result;
}
static inline int __any_sync(uint32_t mask, int value) { return !__all_sync(mask, !value); }

static inline uint32_t atomicAdd(uint32_t *at, uint32_t value) { // of shared memory
  const uint32_t old = *at;
  *at += value;
  return old;
}

#endif // GPUOS_EMULATE_LANGUAGE_H_
