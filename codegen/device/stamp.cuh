// stamp.cuh: results that travel stamped: from product to product, to attention, and from its splits to who
// merges them.
//
// Beside each element of the workspace there is room for a word of twice its size: the element, and when it
// was written. A reader needs no more than the words: it looks until all of them have the stamp that it
// expects, so that no fence, counter and second way to the L2 lie between a result and its use. A word is
// stored and loaded at once, and holds nothing but itself. What else a tile waits for is over before it
// writes: who has seen all stamps need not wait for their writers, who write nothing else that it reads.
//
// Words beside elements of 2 bytes come first, then those of 4, then fours of floats.
#pragma once
#include "unit.cuh"

// Of what an operator writes in a step.
GPUOS_DEVICE uint32_t gpuos_stamp(uint32_t step, uint32_t op) { return step * GPUOS_OPS + op; }

// Between two looks at what is not there yet; 256 threads of every SM that look all the time take from the
// L2 what others load. True: do not, but stop.
GPUOS_DEVICE bool gpuos_look_again(const gpuos_ctx &ctx) {
  __nanosleep(50);
  return ld_relaxed_shared(&ctx.cta->stop) != 0;
}

// How a result travels.
enum { GPUOS_BY_COUNTERS, GPUOS_BY_WORDS, GPUOS_BY_FOURS };

template <int DTYPE> struct gpuos_stamped {
  enum {
    BYTES = gpuos_format<DTYPE>::BYTES,
    WORDS = 8 / BYTES, // of a load of 16 bytes
  };
  static_assert(BYTES == 2 || BYTES == 4, "half a word is the stamp");

  // Of the element at `element`; those of 4 bytes behind those of 2.
  GPUOS_DEVICE uint64_t at(const gpuos_cta &cta, uint64_t element) {
    return cta.stamps + 2 * element + (BYTES == 4 ? 2ull * GPUOS_STAMPED_BYTES : 0);
  }

  GPUOS_DEVICE void store(const gpuos_cta &cta, uint64_t element, float value, uint32_t stamp) {
    const uint32_t bits = gpuos_narrow<DTYPE>(value);
    if constexpr (BYTES == 4)
      st_relaxed_gpu_u64(at(cta, element), (uint64_t)stamp << 32 | bits);
    else
      st_relaxed_gpu_u32(at(cta, element), bits << 16 | (stamp & 0xffff));
  }

  // Two words at once.
  GPUOS_DEVICE void store_pair(uint64_t at, float low, float high, uint32_t stamp) {
    static_assert(BYTES == 4, "a word of 8 bytes each");
    const uint64_t above = (uint64_t)stamp << 32;
    st_relaxed_gpu_v2_u64(at, above | __float_as_uint(low), above | __float_as_uint(high));
  }

  GPUOS_DEVICE uint4 load(uint64_t at) {
    return BYTES == 4 ? ld_relaxed_gpu_v2_u64(at) : ld_relaxed_gpu_v4_u32(at);
  }
  GPUOS_DEVICE bool there(const uint4 &v, uint32_t stamp) {
    if constexpr (BYTES == 4) return v.y == stamp && v.w == stamp;
    return (((v.x ^ stamp) | (v.y ^ stamp) | (v.z ^ stamp) | (v.w ^ stamp)) & 0xffff) == 0;
  }

  // Four elements of two bytes as they lay.
  GPUOS_DEVICE uint2 pack(const uint4 &v) { return make_uint2(pair(v.x, v.y), pair(v.z, v.w)); }
  GPUOS_DEVICE uint32_t pair(uint32_t low, uint32_t high) {
    return low >> 16 | (high & 0xffff0000);
  }
};

// Floats of a row that is to be normalised, which all SMs read at the same time: four in 16 bytes, which are stored and loaded
// at once, of each the upper 28 bits and four of the stamp. What they lose is less than 2^-19 of them; whoever wants them whole
// reads them in memory.
struct gpuos_stamped_fours {
  enum { MASK = 15 };

  GPUOS_DEVICE uint64_t at(const gpuos_cta &cta, uint64_t element) { return cta.fours + element; }
  // Of element number i of the four.
  GPUOS_DEVICE uint32_t word(float value, uint32_t stamp, uint32_t i) {
    return (__float_as_uint(value) & ~(uint32_t)MASK) | (stamp >> 4 * i & MASK);
  }
  GPUOS_DEVICE float value(uint32_t word) { return __uint_as_float(word & ~(uint32_t)MASK); }
  GPUOS_DEVICE bool there(const uint4 &v, uint32_t stamp) {
    const uint32_t found =
        (v.x & MASK) | (v.y & MASK) << 4 | (v.z & MASK) << 8 | (v.w & MASK) << 12;
    return found == (stamp & 0xffff);
  }
};
