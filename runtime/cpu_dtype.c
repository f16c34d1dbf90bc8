// cpu_dtype.c: conversions between floats and the storage formats.
#include "cpu_dtype.h"

#include <math.h>

// Magnitude of x in a format of `mantissa` bits and this exponent bias, rounded to nearest even.
// A rounding carry runs into the exponent field by itself; anything beyond `largest` becomes it.
static uint32_t narrow(uint32_t magnitude, int mantissa, int bias, uint32_t largest) {
  int exponent = (int)(magnitude >> 23) - 127 + bias, shift = 23 - mantissa;
  uint32_t bits = magnitude & 0x7fffffu;
  if (exponent > 0) {
    bits |= (uint32_t)exponent << 23;
  } else {
    bits |= 0x800000u;
    shift += 1 - exponent;
  }
  if (shift > 25) return 0;
  uint32_t kept = bits >> shift, rest = bits & ((1u << shift) - 1), half = 1u << (shift - 1);
  kept += rest > half || (rest == half && (kept & 1));
  return kept < largest ? kept : largest;
}

uint16_t gos_f32_to_f16(float x) {
  uint32_t bits = gos_float_bits(x), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  return (uint16_t)((bits >> 16 & 0x8000u) | narrow(magnitude, 10, 15, 0x7c00));
}

uint8_t gos_f32_to_e4m3(float x) {
  uint32_t bits = gos_float_bits(x), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  return (uint8_t)((bits >> 24 & 0x80u) | narrow(magnitude, 3, 7, 0x7e));
}

uint8_t gos_f32_to_e5m2(float x) {
  uint32_t bits = gos_float_bits(x), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7f;
  return (uint8_t)((bits >> 24 & 0x80u) | narrow(magnitude, 2, 15, 0x7b));
}

static int32_t to_i32(float x) {
  if (isnan(x)) return 0;
  if (x >= 0x1p31f) return INT32_MAX;
  if (x <= -0x1p31f) return INT32_MIN;
  return (int32_t)rintf(x);
}

// One loop for packed elements, so that it vectorises, and one for the others.
#define LOAD(type, widen)                                                                          \
  do {                                                                                             \
    const type *in = source;                                                                       \
    if (stride == 1)                                                                               \
      for (uint32_t i = 0; i < count; i++) out_floats[i] = widen(in[i]);                           \
    else                                                                                           \
      for (uint32_t i = 0; i < count; i++) out_floats[i] = widen(in[i * stride]);                  \
  } while (0)

GOS_WIDE void gos_load_f32(uint32_t dtype, const void *source, uint64_t stride, uint32_t count,
                           float *out_floats) {
  switch (dtype) {
  case GPUOS_F32: LOAD(float, ); break;
  case GPUOS_F16: LOAD(uint16_t, gos_f16_to_f32); break;
  case GPUOS_BF16: LOAD(uint16_t, gos_bf16_to_f32); break;
  case GPUOS_E4M3: LOAD(uint8_t, gos_e4m3_to_f32); break;
  case GPUOS_E5M2: LOAD(uint8_t, gos_e5m2_to_f32); break;
  default: LOAD(int32_t, (float)); break;
  }
}

#define STORE(type, narrow)                                                                        \
  do {                                                                                             \
    type *out = target;                                                                            \
    if (stride == 1)                                                                               \
      for (uint32_t i = 0; i < count; i++) out[i] = narrow(floats[i]);                             \
    else                                                                                           \
      for (uint32_t i = 0; i < count; i++) out[i * stride] = narrow(floats[i]);                    \
  } while (0)

GOS_WIDE void gos_store_f32(uint32_t dtype, void *target, uint64_t stride, uint32_t count,
                            const float *floats) {
  switch (dtype) {
  case GPUOS_F32: STORE(float, ); break;
  case GPUOS_F16: STORE(uint16_t, gos_f32_to_f16); break;
  case GPUOS_BF16: STORE(uint16_t, gos_f32_to_bf16); break;
  case GPUOS_E4M3: STORE(uint8_t, gos_f32_to_e4m3); break;
  case GPUOS_E5M2: STORE(uint8_t, gos_f32_to_e5m2); break;
  default: STORE(int32_t, to_i32); break;
  }
}

#define ROUND(widen, narrow)                                                                       \
  for (uint32_t i = 0; i < count; i++) floats[i] = widen(narrow(floats[i]))

GOS_WIDE void gos_round_f32(uint32_t dtype, uint32_t count, float *floats) {
  switch (dtype) {
  case GPUOS_F16: ROUND(gos_f16_to_f32, gos_f32_to_f16); break;
  case GPUOS_BF16: ROUND(gos_round_bf16, ); break;
  case GPUOS_E4M3: ROUND(gos_e4m3_to_f32, gos_f32_to_e4m3); break;
  case GPUOS_E5M2: ROUND(gos_e5m2_to_f32, gos_f32_to_e5m2); break;
  case GPUOS_I32: ROUND((float), to_i32); break;
  default: break;
  }
}
