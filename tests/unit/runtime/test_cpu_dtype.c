// The conversions between floats and the storage formats, exhaustively.
#include <criterion/criterion.h>
#include <math.h>

#include "cpu_dtype.h"
#include "cpu_fixture.h"

static const char *const dtype_names[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "i32"};

static uint32_t narrow(gpuos_dtype_t dtype, float x) {
  uint32_t bits = 0;
  gos_store_f32(dtype, &bits, 1, 1, &x);
  return bits;
}

static float widen(gpuos_dtype_t dtype, uint32_t bits) {
  float x;
  gos_load_f32(dtype, &bits, 1, 1, &x);
  return x;
}

static const struct {
  gpuos_dtype_t dtype;
  uint32_t patterns, nan, largest;
  bool saturates;
} formats[] = {{GPUOS_F16, 0x10000, 0x7fff, 0x7bff, false},
               {GPUOS_BF16, 0x10000, 0x7fff, 0x7f7f, false},
               {GPUOS_E4M3, 0x100, 0x7f, 0x7e, true},
               {GPUOS_E5M2, 0x100, 0x7f, 0x7b, true}};
enum { FORMATS = sizeof formats / sizeof *formats };

Test(cpu_dtype, every_pattern_widens_to_its_value) {
  for (int f = 0; f < FORMATS; f++)
    for (uint32_t bits = 0; bits < formats[f].patterns; bits++) {
      double want = fixture_decode(formats[f].dtype, bits), got = widen(formats[f].dtype, bits);
      bool same = isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want);
      cr_expect(same, "%s %#x: %g", dtype_names[formats[f].dtype], bits, got);
    }
}

Test(cpu_dtype, every_pattern_comes_back) {
  for (int f = 0; f < FORMATS; f++)
    for (uint32_t bits = 0; bits < formats[f].patterns; bits++) {
      float x = widen(formats[f].dtype, bits);
      uint32_t want = isnan(x) ? formats[f].nan : bits;
      if (isinf(x) && formats[f].saturates) want = (bits & 0x80) | formats[f].largest;
      cr_expect_eq(narrow(formats[f].dtype, x), want, "%s %#x", dtype_names[formats[f].dtype],
                   bits);
    }
}

// Between two neighbours: below the middle down, above it up, the middle to the even pattern.
Test(cpu_dtype, rounds_to_nearest_even) {
  for (int f = 0; f < FORMATS; f++)
    for (uint32_t bits = 0; bits < formats[f].largest; bits++) {
      float low = widen(formats[f].dtype, bits), high = widen(formats[f].dtype, bits + 1);
      float middle = (float)(((double)low + high) / 2);
      uint32_t even = bits % 2 == 0 ? bits : bits + 1;
      gpuos_dtype_t d = formats[f].dtype;
      cr_expect_eq(narrow(d, middle), even, "%s %#x", dtype_names[d], bits);
      cr_expect_eq(narrow(d, nextafterf(middle, low)), bits, "%s %#x", dtype_names[d], bits);
      cr_expect_eq(narrow(d, nextafterf(middle, INFINITY)), bits + 1, "%s %#x", dtype_names[d],
                   bits);
      cr_expect_eq(narrow(d, -middle), even | formats[f].patterns / 2);
    }
}

Test(cpu_dtype, beyond_the_largest) {
  cr_expect_eq(narrow(GPUOS_E4M3, 464.0f), 0x7e);
  cr_expect_eq(narrow(GPUOS_E4M3, -1e30f), 0xfe);
  cr_expect_eq(narrow(GPUOS_E4M3, INFINITY), 0x7e);
  cr_expect_eq(narrow(GPUOS_E5M2, 65536.0f), 0x7b);
  cr_expect_eq(narrow(GPUOS_E5M2, -INFINITY), 0xfb);
  cr_expect_eq(narrow(GPUOS_F16, 65519.0f), 0x7bff);
  cr_expect_eq(narrow(GPUOS_F16, 65520.0f), 0x7c00);
  cr_expect_eq(narrow(GPUOS_BF16, 3.4e38f), 0x7f80);
  cr_expect_eq(narrow(GPUOS_F16, 0x1p-149f), 0);
  cr_expect_eq(narrow(GPUOS_I32, 2.5f), 2);
  cr_expect_eq((int32_t)narrow(GPUOS_I32, -1e20f), INT32_MIN);
}
