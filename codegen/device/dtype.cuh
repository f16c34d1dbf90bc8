// dtype.cuh: the storage formats of gpuos_dtype_t as floats and back.
//
// Widening is exact; narrowing rounds to nearest even, fp8 saturates. A format works on 32-bit
// words of PER_WORD elements, because that is what registers hold.
#pragma once
#include "ptx.cuh"

template <int DTYPE> struct gpuos_format;

template <> struct gpuos_format<GPUOS_F32> {
  enum { BYTES = 4, PER_WORD = 1 };
  GPUOS_DEVICE void widen(uint32_t word, float *out) { out[0] = __uint_as_float(word); }
  GPUOS_DEVICE uint32_t narrow(const float *in) { return __float_as_uint(in[0]); }
};

template <> struct gpuos_format<GPUOS_I32> {
  enum { BYTES = 4, PER_WORD = 1 };
  GPUOS_DEVICE void widen(uint32_t word, float *out) { out[0] = __int2float_rn((int)word); }
  GPUOS_DEVICE uint32_t narrow(const float *in) { return (uint32_t)__float2int_rn(in[0]); }
};

template <> struct gpuos_format<GPUOS_BF16> {
  enum { BYTES = 2, PER_WORD = 2 };
  GPUOS_DEVICE void widen(uint32_t word, float *out) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xffff0000u);
  }
  GPUOS_DEVICE uint32_t narrow(const float *in) { return cvt_rn_bf16x2_f32(in[0], in[1]); }
};

template <> struct gpuos_format<GPUOS_F16> {
  enum { BYTES = 2, PER_WORD = 2 };
  GPUOS_DEVICE void widen(uint32_t word, float *out) {
    out[0] = cvt_f32_f16(word);
    out[1] = cvt_f32_f16(word >> 16);
  }
  GPUOS_DEVICE uint32_t narrow(const float *in) { return cvt_rn_f16x2_f32(in[0], in[1]); }
};

template <> struct gpuos_format<GPUOS_E4M3> {
  enum { BYTES = 1, PER_WORD = 4 };
  GPUOS_DEVICE void widen(uint32_t word, float *out) {
    gpuos_format<GPUOS_F16>::widen(cvt_rn_f16x2_e4m3x2(word), out);
    gpuos_format<GPUOS_F16>::widen(cvt_rn_f16x2_e4m3x2(word >> 16), out + 2);
  }
  GPUOS_DEVICE uint32_t narrow(const float *in) {
    return cvt_rn_satfinite_e4m3x2_f32(in[0], in[1]) | cvt_rn_satfinite_e4m3x2_f32(in[2], in[3])
                                                           << 16;
  }
};

template <> struct gpuos_format<GPUOS_E5M2> {
  enum { BYTES = 1, PER_WORD = 4 };
  GPUOS_DEVICE void widen(uint32_t word, float *out) {
    gpuos_format<GPUOS_F16>::widen(cvt_rn_f16x2_e5m2x2(word), out);
    gpuos_format<GPUOS_F16>::widen(cvt_rn_f16x2_e5m2x2(word >> 16), out + 2);
  }
  GPUOS_DEVICE uint32_t narrow(const float *in) {
    return cvt_rn_satfinite_e5m2x2_f32(in[0], in[1]) | cvt_rn_satfinite_e5m2x2_f32(in[2], in[3])
                                                           << 16;
  }
};

// One element, in the low bits.
template <int DTYPE> GPUOS_DEVICE float gpuos_widen(uint32_t bits) {
  float values[4];
  gpuos_format<DTYPE>::widen(bits, values);
  return values[0];
}

template <int DTYPE> GPUOS_DEVICE uint32_t gpuos_narrow(float value) {
  const float values[4] = {value, 0.0f, 0.0f, 0.0f};
  return gpuos_format<DTYPE>::narrow(values);
}

template <int DTYPE> GPUOS_DEVICE float gpuos_round(float value) {
  return gpuos_widen<DTYPE>(gpuos_narrow<DTYPE>(value));
}

// Rounded as IEEE division is but in one of 10^7 cases, and where the divisor or its reciprocal is
// subnormal. The compiler's own takes 20 instructions, 128 times over in a tile's epilogue, and more
// registers than there are.
GPUOS_DEVICE float gpuos_divide(float a, float b) {
  const float reciprocal = rcp_approx_f32(b), rough = a * reciprocal;
  const float exact = __fmaf_rn(__fmaf_rn(-rough, b, a), reciprocal, rough);
  return exact == exact ? exact : rough; // of zeros and infinities
}

// ---- in memory ----------------------------------------------------------------------------------

template <int DTYPE> GPUOS_DEVICE uint32_t gpuos_load_bits(uint64_t address) {
  const void *at = (const void *)address;
  if constexpr (gpuos_format<DTYPE>::BYTES == 4) return ld_global_u32(at);
  if constexpr (gpuos_format<DTYPE>::BYTES == 2) return ld_global_u16(at);
  return ld_global_u8(at);
}

template <int DTYPE> GPUOS_DEVICE void gpuos_store_bits(void *at, uint32_t bits) {
  if constexpr (gpuos_format<DTYPE>::BYTES == 4)
    *(uint32_t *)at = bits;
  else if constexpr (gpuos_format<DTYPE>::BYTES == 2)
    *(uint16_t *)at = (uint16_t)bits;
  else
    *(uint8_t *)at = (uint8_t)bits;
}

// Element number `element` from `at` in shared memory.
template <int DTYPE> GPUOS_DEVICE uint32_t gpuos_load_shared(const char *at, uint32_t element) {
  if constexpr (gpuos_format<DTYPE>::BYTES == 4) return ((const uint32_t *)at)[element];
  if constexpr (gpuos_format<DTYPE>::BYTES == 2) return ((const uint16_t *)at)[element];
  return ((const uint8_t *)at)[element];
}

// RUN consecutive elements: 1, or 2 of four bytes, 4 or 8 aligned to 16 bytes or to the run, whichever is less. As
// words they take few registers while they are on their way.
template <int DTYPE, int RUN> struct gpuos_words {
  enum { PER_WORD = gpuos_format<DTYPE>::PER_WORD, COUNT = RUN == 1 ? 1 : RUN / PER_WORD };
  static_assert(RUN == 1 || RUN == 4 || RUN == 8 || (RUN == 2 && PER_WORD == 1), "a run");
  uint32_t word[COUNT] = {};

  __device__ __forceinline__ void load(uint64_t address) {
    if constexpr (RUN == 1) {
      word[0] = gpuos_load_bits<DTYPE>(address);
    } else if constexpr (COUNT == 1) {
      word[0] = ld_global_u32((const void *)address);
    } else if constexpr (COUNT == 2) {
      const uint2 v = ld_global_cg_v2((const void *)address);
      word[0] = v.x, word[1] = v.y;
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i += 4) {
        const uint4 v = ld_global_cg_v4((const void *)(address + 4 * i));
        word[i] = v.x, word[i + 1] = v.y, word[i + 2] = v.z, word[i + 3] = v.w;
      }
    }
  }

  __device__ __forceinline__ void widen(float *out) const {
    if constexpr (RUN == 1) {
      out[0] = gpuos_widen<DTYPE>(word[0]);
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i++) gpuos_format<DTYPE>::widen(word[i], out + i * PER_WORD);
    }
  }
};

template <int DTYPE, int RUN> GPUOS_DEVICE void gpuos_load(uint64_t address, float (&out)[RUN]) {
  gpuos_words<DTYPE, RUN> words;
  words.load(address);
  words.widen(out);
}

template <int DTYPE, int RUN>
GPUOS_DEVICE void gpuos_store(uint64_t address, const float (&in)[RUN]) {
  if constexpr (RUN == 1) {
    gpuos_store_bits<DTYPE>((void *)address, gpuos_narrow<DTYPE>(in[0]));
  } else {
    constexpr int PER_WORD = gpuos_format<DTYPE>::PER_WORD, COUNT = RUN / PER_WORD;
    uint32_t words[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) words[i] = gpuos_format<DTYPE>::narrow(in + i * PER_WORD);
    if constexpr (COUNT == 1) {
      *(uint32_t *)address = words[0];
    } else if constexpr (COUNT == 2) {
      *(uint2 *)address = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
      for (int i = 0; i < COUNT; i += 4)
        *(uint4 *)(address + 4 * i) =
            make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
    }
  }
}
