// rotate.cuh: vectors of a head, rotated on their way, as KV_APPEND and ATTENTION take them.
//
// U, the generated instantiation, has operand rotation, of a row: its cosines, then its sines; HEAD_DIM;
// RUN, elements that move at once; NEIGHBOURS, pair i is 2 i and 2 i + 1 instead of i and i + HEAD_DIM
// / 2. Halves are a multiple of RUN, or RUN is 1; the table's elements follow each other.
#pragma once
#include "unit.cuh"

template <class U> struct gpuos_rotate {
  using rotation = typename U::rotation;
  enum { RUN = U::RUN, PAIRS = U::HEAD_DIM / 2 };

  // Cosines and sines of the pairs of a run of elements; the sine is negative for the first of a pair.
  struct angles {
    float cosine[RUN], sine[RUN];
  };
  GPUOS_DEVICE angles load_angles(uint64_t table, uint32_t d) {
    angles a;
    if constexpr (!U::NEIGHBOURS) { // a run lies in one half
      gpuos_load<GPUOS_F32, RUN>(table + d % PAIRS * 4, a.cosine);
      gpuos_load<GPUOS_F32, RUN>(table + (PAIRS + d % PAIRS) * 4, a.sine);
    }
#pragma unroll
    for (int i = 0; i < RUN; i++) {
      const uint32_t e = d + i, pair = e / 2;
      const bool first = U::NEIGHBOURS ? e % 2 == 0 : e < PAIRS;
      if constexpr (U::NEIGHBOURS) {
        a.cosine[i] = __uint_as_float(ld_global_u32((const void *)(table + pair * 4)));
        a.sine[i] = __uint_as_float(ld_global_u32((const void *)(table + (PAIRS + pair) * 4)));
      }
      a.sine[i] = first ? -a.sine[i] : a.sine[i];
    }
    return a;
  }

  // Where the other elements of the pairs of d, d + 1.. begin; among neighbours they are among these.
  GPUOS_DEVICE uint32_t partners(uint32_t d) {
    if constexpr (U::NEIGHBOURS) return RUN == 1 ? d ^ 1 : d;
    return d < PAIRS ? d + PAIRS : d - PAIRS;
  }

  // Elements d.. of the vector at `from` and their partners, on their way.
  template <class X> struct pairs {
    gpuos_words<X::DTYPE, RUN> own, other;
    __device__ __forceinline__ void load(uint64_t from, uint64_t stride, uint32_t d) {
      own.load(from + d * stride * X::BYTES);
      other.load(from + partners(d) * stride * X::BYTES);
    }
    __device__ __forceinline__ void rotate(const angles &a, float *out) const {
      float mine[RUN], partner[RUN];
      own.widen(mine);
      other.widen(partner);
#pragma unroll
      for (int i = 0; i < RUN; i++)
        out[i] = mine[i] * a.cosine[i] + partner[U::NEIGHBOURS && RUN > 1 ? i ^ 1 : i] * a.sine[i];
    }
  };
  // The same at once.
  template <class X>
  GPUOS_DEVICE void load(uint64_t from, uint64_t stride, const angles &a, uint32_t d, float *out) {
    pairs<X> p;
    p.load(from, stride, d);
    p.rotate(a, out);
  }
};
