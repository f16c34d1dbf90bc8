// cpu_dtype.h: the storage formats of gpuos_dtype_t as floats and back.
//
// Called by the CPU device's units and by tests. Pure functions, any thread. Widening is exact;
// narrowing rounds to nearest even; the 8-bit formats saturate at their largest finite value
// (infinities too) and the 16-bit ones overflow to infinity. A NaN becomes the format's canonical
// one, 0x7fff or 0x7f, as the PTX instruction cvt makes it (PTX ISA, cvt, .satfinite).
#ifndef GPUOS_CPU_DTYPE_H_
#define GPUOS_CPU_DTYPE_H_

#include <string.h>

#include "gpuos_abi.h"

#ifdef __clang__
#pragma clang fp contract(off) // gcc: -std=c17 already forbids it
#endif

// Functions compiled for wider vectors too. Results are the same: no clone contracts or reorders.
// The loader resolves clones before a sanitizer is up, so there they are left out.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define GOS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define GOS_SANITIZED 1
#endif
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(GOS_SANITIZED)
#define GOS_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define GOS_WIDE
#endif

static inline uint32_t gos_float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float gos_bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static inline float gos_bf16_to_f32(uint16_t x) { return gos_bits_float((uint32_t)x << 16); }

// The exponent field moves into place and a multiplication repairs its bias, subnormals included.
static inline float gos_f16_to_f32(uint16_t x) {
  uint32_t magnitude = (x & 0x7fffu) << 13, sign = (x & 0x8000u) << 16;
  uint32_t finite = gos_float_bits(gos_bits_float(magnitude) * 0x1p112f);
  return gos_bits_float(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}

static inline float gos_e4m3_to_f32(uint8_t x) {
  uint32_t magnitude = (x & 0x7fu) << 20, sign = (x & 0x80u) << 24;
  uint32_t finite = gos_float_bits(gos_bits_float(magnitude) * 0x1p120f);
  return gos_bits_float(sign | (magnitude == 0x07f00000u ? 0x7fc00000u : finite));
}

// The upper half of an f16.
static inline float gos_e5m2_to_f32(uint8_t x) { return gos_f16_to_f32((uint16_t)(x << 8)); }

static inline uint16_t gos_f32_to_bf16(float x) {
  uint32_t bits = gos_float_bits(x);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : rounded);
}

// The same rounding, of a whole word: vectorises better than the way through 16 bits.
static inline float gos_round_bf16(float x) {
  uint32_t bits = gos_float_bits(x);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
  return gos_bits_float((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fff0000u : rounded);
}

uint16_t gos_f32_to_f16(float x);
uint8_t gos_f32_to_e4m3(float x);
uint8_t gos_f32_to_e5m2(float x);

// `count` elements, `stride` elements apart, to and from packed floats. I32 goes through float:
// nearest even, saturating, NaN to 0.
void gos_load_f32(uint32_t dtype, const void *source, uint64_t stride, uint32_t count,
                  float *out_floats);
void gos_store_f32(uint32_t dtype, void *target, uint64_t stride, uint32_t count,
                   const float *floats);

// Every float to its nearest value of dtype, in place.
void gos_round_f32(uint32_t dtype, uint32_t count, float *floats);

#endif // GPUOS_CPU_DTYPE_H_
