// attention_own.cuh: what a tile of attention_ring.cuh reads of its step: the queries, and the key and
// value of the row's own position; rotated, as tensor cores take them, in shared memory.
//
// A thread has four elements of one vector and the four that lie half a vector further, with which they
// turn, so that all there is to do takes one load of each.
//
// U, the generated instantiation, has operands x, k, v, cache of one 16-bit format, and rotation; HEAD_DIM,
// GROUP, NEIGHBOURS, as rotate.cuh has it; STAMPED: what is read travels stamped. AT: where it is to lie.
#pragma once
#include "attention_keys.cuh"
#include "stamp.cuh"

template <class U, int AT> struct gpuos_attention_own {
  using x = typename U::x;
  using k = typename U::k;
  using v = typename U::v;
  using rotation = typename U::rotation;
  using keys = gpuos_attention_keys<U>;
  using range = typename keys::range;
  using elements = gpuos_stamped<keys::STORE>;
  using angles = gpuos_stamped<GPUOS_F32>;
  enum {
    FORMAT = keys::STORE,
    GROUP = U::GROUP,
    PAIRS = U::HEAD_DIM / 2,
    ROW_BYTES = U::HEAD_DIM * 2,
    QUADS = PAIRS / 4, // of a half
    // Queries as operands A of mma.m16n8k16, a product after the other: rows 0-7 what a query is in 16
    // bits, rows 8-15 what is missing, so that scores are as of floats.
    PRODUCT_BYTES = GROUP * 64,
    KEY_AT = AT + GROUP * ROW_BYTES * 2,
    VALUE_AT = KEY_AT + ROW_BYTES,
    BYTES = GROUP * ROW_BYTES * 2 + 2 * ROW_BYTES,
  };
  static_assert((int)x::DTYPE == (int)FORMAT && (int)k::DTYPE == (int)FORMAT &&
                    (int)v::DTYPE == (int)FORMAT && gpuos_format<FORMAT>::BYTES == 2,
                "one format");
  static_assert((GROUP + 2) * QUADS <= GPUOS_THREADS, "a thread has one part");
  static_assert(!U::STAMPED || (int)rotation::PRESENT, "all of it comes stamped");

  // Of vector number `vector`: the queries, then key and value.
  struct part {
    uint32_t vector, d;
    uint64_t from, table;
  };
  // Words of a part, as they lie: both fours of elements; then, of the first two elements that turn and of
  // the other two, cosines and sines.
  enum { WORDS = rotation::PRESENT ? 6 : 2 };

  GPUOS_DEVICE uint64_t find_vector(const gpuos_ctx &ctx, const range &r, uint32_t vector) {
    const uint32_t point[GPUOS_DIMS] = {0, 0, r.point[2], 0}, row = r.point[1];
    if (vector < GROUP) return x::at(ctx, r.point) + vector * ROW_BYTES;
    if (vector == GROUP) return k::at(ctx, point) + (uint64_t)row * k::stride(ctx, 1) * 2;
    return v::at(ctx, point) + (uint64_t)row * v::stride(ctx, 1) * 2;
  }
  // Of the iteration point of `r`, whose keys need not be known.
  GPUOS_DEVICE part find_part(const gpuos_ctx &ctx, const range &r) {
    part p = {gpuos_thread() / QUADS, gpuos_thread() % QUADS * 4, 0, 0};
    if (!has_part(p)) return p;
    p.from = find_vector(ctx, r, p.vector) + p.d * 2;
    if constexpr (rotation::PRESENT)
      p.table = rotation::base(ctx) + (uint64_t)r.point[1] * rotation::stride(ctx, 2) * 4;
    return p;
  }
  GPUOS_DEVICE bool has_part(const part &p) { return p.vector < GROUP + 2; }

  // ---- load -------------------------------------------------------------------------------------

  GPUOS_DEVICE uint64_t find_word(const part &p, int i) {
    if (i < 2) return p.from + i * (ROW_BYTES / 2);
    const uint32_t two = i / 2 - 1;
    const uint32_t pair = U::NEIGHBOURS ? (p.d + two * PAIRS) / 2 : p.d + 2 * two;
    return p.table + (i % 2 * PAIRS + pair) * 4;
  }
  GPUOS_DEVICE uint4 load_stamped(const gpuos_ctx &ctx, const part &p, int i) {
    const uint64_t from = find_word(p, i);
    return i < 2 ? elements::load(elements::at(*ctx.cta, from))
                 : angles::load(angles::at(*ctx.cta, from));
  }
  struct words {
    uint4 at[WORDS];
  };
  GPUOS_DEVICE bool angles_there(const words &w, uint32_t stamp) {
    bool there = true;
#pragma unroll
    for (int i = 2; i < WORDS; i++) there &= angles::there(w.at[i], stamp);
    return there;
  }

  // Nothing but loads: they are on their way together, and with what decides which keys are seen.
  GPUOS_DEVICE void look(const gpuos_ctx &ctx, const part &p, words &w) {
#pragma unroll
    for (int i = 0; i < WORDS; i++)
      if (U::STAMPED && has_part(p)) w.at[i] = load_stamped(ctx, p, i);
  }

  // Looks again until all of it is there. Angles, which are there long before, are looked for once. False: stop.
  GPUOS_DEVICE bool await_words(const gpuos_ctx &ctx, const part &p, bool rotates, words &w) {
    const uint32_t *by = ctx.slot->of->from, step = ctx.slot->step;
    const uint32_t stamp = gpuos_stamp(step, by[p.vector < GROUP ? 0 : 1 + p.vector - GROUP]);
    const uint32_t table = gpuos_stamp(step, by[3]);
    for (;;) {
      const bool turns = !rotates || angles_there(w, table);
      if (turns && elements::there(w.at[0], stamp) && elements::there(w.at[1], stamp)) return true;
      if (gpuos_look_again(ctx)) return false;
#pragma unroll
      for (int i = 2; i < WORDS; i++)
        if (!turns) w.at[i] = load_stamped(ctx, p, i);
#pragma unroll
      for (int i = 0; i < 2; i++) w.at[i] = load_stamped(ctx, p, i);
    }
  }
  GPUOS_DEVICE bool load(const gpuos_ctx &ctx, const part &p, bool rotates, words &w,
                         uint2 (&out)[WORDS]) {
    if (U::STAMPED && !await_words(ctx, p, rotates, w)) return false;
#pragma unroll
    for (int i = 0; i < WORDS; i++)
      out[i] = !U::STAMPED ? ld_global_cg_v2((const void *)find_word(p, i))
               : i < 2     ? elements::pack(w.at[i])
                           : make_uint2(w.at[i].x, w.at[i].z);
    return true;
  }

  // ---- rotate -----------------------------------------------------------------------------------

  GPUOS_DEVICE void widen(uint2 four, float (&out)[4]) {
    gpuos_format<FORMAT>::widen(four.x, out);
    gpuos_format<FORMAT>::widen(four.y, out + 2);
  }
  GPUOS_DEVICE uint2 narrow(const float (&four)[4]) {
    return make_uint2(gpuos_format<FORMAT>::narrow(four), gpuos_format<FORMAT>::narrow(four + 2));
  }

  // By angle number i of a word of cosines and the word of sines after it, as rotate.cuh does it: the sine is
  // negative for the first of a pair.
  GPUOS_DEVICE float turn(float own, float partner, bool first, const uint2 *w, int i) {
    const float cosine = __uint_as_float(i ? w[0].y : w[0].x);
    const float sine = __uint_as_float(i ? w[1].y : w[1].x);
    return own * cosine + partner * (first ? -sine : sine);
  }
  GPUOS_DEVICE void rotate(const uint2 (&w)[WORDS], float (&low)[4], float (&high)[4]) {
    float a[4], b[4];
    widen(w[0], a), widen(w[1], b);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      if constexpr (U::NEIGHBOURS) {
        low[e] = turn(a[e], a[e ^ 1], e % 2 == 0, w + 2, e / 2);
        high[e] = turn(b[e], b[e ^ 1], e % 2 == 0, w + 4, e / 2);
      } else {
        low[e] = turn(a[e], b[e], true, w + 2 + e / 2 * 2, e % 2);
        high[e] = turn(b[e], a[e], false, w + 2 + e / 2 * 2, e % 2);
      }
    }
  }

  // ---- store ------------------------------------------------------------------------------------

  // What a lane has of a product's operand; and where lane 4 g + q finds it, of the first product.
  GPUOS_DEVICE uint4 split(const float (&four)[4]) {
    float rounded[4], rest[4];
    const uint2 high = narrow(four);
    widen(high, rounded);
#pragma unroll
    for (int e = 0; e < 4; e++) rest[e] = four[e] - rounded[e];
    const uint2 low = narrow(rest);
    return make_uint4(high.x, low.x, high.y, low.y);
  }
  GPUOS_DEVICE uint32_t query_at(uint32_t smem, uint32_t g, uint32_t q) {
    return smem + AT + g * 64 + q * 16;
  }

  // A lane has 16 bytes of 64: four elements of one product and four of the next.
  GPUOS_DEVICE void store_query(uint32_t smem, const part &p, const float (&low)[4],
                                const float (&high)[4]) {
    const uint32_t product = p.d / 32 * 2 + p.d / 4 % 2;
    const uint32_t to = query_at(smem, p.vector, p.d / 8 % 4) + product * PRODUCT_BYTES;
    st_shared_v4(to, split(low));
    st_shared_v4(to + PAIRS / 16 * PRODUCT_BYTES, split(high));
  }
  // A row, rounded as the cache will hold it.
  GPUOS_DEVICE void store_row(uint32_t smem, const part &p, const float (&low)[4],
                              const float (&high)[4]) {
    const uint32_t to = smem + KEY_AT + (p.vector - GROUP) * ROW_BYTES + p.d * 2;
    st_shared_v2(to, narrow(low));
    st_shared_v2(to + ROW_BYTES / 2, narrow(high));
  }

  // ---- run --------------------------------------------------------------------------------------

  // All of it into shared memory, by all threads, from when they looked; key and value by who has them. False: stop.
  GPUOS_DEVICE bool fetch(const gpuos_ctx &ctx, const range &r, const part &p, words &seen) {
    const uint32_t smem = mov_shared_address(ctx.smem);
    const bool rotates = r.rotates && p.vector <= GROUP;
    uint2 w[WORDS];
    float low[4], high[4];
    if (p.vector >= (r.own ? GROUP + 2 : (int)GROUP)) return true;
    if (!load(ctx, p, rotates, seen, w)) return false;
    widen(w[0], low), widen(w[1], high);
    if constexpr (rotation::PRESENT)
      if (rotates) rotate(w, low, high);
    if (p.vector < GROUP)
      store_query(smem, p, low, high);
    else
      store_row(smem, p, low, high);
    return true;
  }
};
