// rope.cuh: ROPE, one tile: rotates pairs of elements by position times frequency.
//
// Frequencies as in Hugging Face's modeling_rope_utils; angle = position * frequency, both floats.
// Without X: the cosines, then the sines.
//
// U, the generated instantiation, has operands x, pos, out; HEAD_DIM; NEIGHBOURS, pair i is 2 i and
// 2 i + 1 instead of i and i + HEAD_DIM / 2; SCALING (0 none, 1 linear, 2 llama3); OUT_STAMPED: whether the
// table travels stamped as well.
#pragma once
#include "stamp.cuh"

template <class U> struct gpuos_rope {
  using x = typename U::x;
  using pos = typename U::pos;
  using out = typename U::out;
  enum {
    PAIRS = U::HEAD_DIM / 2,
    SMEM_BYTES = 3 * PAIRS * 4, // frequency, cosine, sine
  };

  // ---- load -------------------------------------------------------------------------------------

  GPUOS_DEVICE double param(const gpuos_ctx &ctx, int number) {
    return __uint_as_float(ctx.slot->of->op.params[number]);
  }

  // Llama 3: long wavelengths are stretched by the factor, short ones stay, those between blend.
  GPUOS_DEVICE double scale_llama3(const gpuos_ctx &ctx, double frequency) {
    const double factor = param(ctx, 3), low = param(ctx, 4), high = param(ctx, 5);
    const double context = param(ctx, 6), wavelength = 2 * 3.14159265358979323846 / frequency;
    if (wavelength < context / high) return frequency;
    if (wavelength > context / low) return frequency / factor;
    const double smooth = (context / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
  }

  GPUOS_DEVICE float find_frequency(const gpuos_ctx &ctx, uint32_t pair) {
    double frequency = exp2(log2(param(ctx, 0)) * (-2.0 / U::HEAD_DIM) * pair); // pow is a call
    if (U::SCALING == 1) frequency /= param(ctx, 3);
    if (U::SCALING == 2) frequency = scale_llama3(ctx, frequency);
    return (float)frequency;
  }

  GPUOS_DEVICE float *frequencies(const gpuos_ctx &ctx) { return (float *)ctx.smem; }
  GPUOS_DEVICE float *cosines(const gpuos_ctx &ctx) { return frequencies(ctx) + PAIRS; }
  GPUOS_DEVICE float *sines(const gpuos_ctx &ctx) { return cosines(ctx) + PAIRS; }

  // Turns instead of radians, reduced in double: sinf of a large angle would need a table in local
  // memory.
  GPUOS_DEVICE void load_angles(const gpuos_ctx &ctx, int position) {
    for (uint32_t i = gpuos_thread(); i < PAIRS; i += GPUOS_THREADS) {
      const double turns = (double)((float)position * frequencies(ctx)[i]) * 0.15915494309189533577;
      sincospif((float)(2 * (turns - rint(turns))), sines(ctx) + i, cosines(ctx) + i);
    }
  }

  // ---- store ------------------------------------------------------------------------------------

  GPUOS_DEVICE void store_table(const gpuos_ctx &ctx, uint32_t row) {
    const uint32_t point[GPUOS_DIMS] = {0, row, 0, 0};
    const uint64_t to = out::at(ctx, point), step = out::stride(ctx, 3) * 4ull;
    const uint32_t stamp = gpuos_stamp(ctx.slot->step, ctx.slot->tile.op);
    for (uint32_t i = gpuos_thread(); i < 2 * PAIRS; i += GPUOS_THREADS) { // the sines follow
      if constexpr (U::OUT_STAMPED)
        gpuos_stamped<GPUOS_F32>::store(*ctx.cta, to + i * step, cosines(ctx)[i], stamp);
      *(float *)(to + i * step) = cosines(ctx)[i];
    }
  }

  GPUOS_DEVICE void store(const gpuos_ctx &ctx, uint32_t row, bool turn) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint64_t x_step = x::stride(ctx, 3), out_step = out::stride(ctx, 3);
    for (uint32_t i = gpuos_thread(); i < box.n[2] * PAIRS; i += GPUOS_THREADS) {
      const uint32_t pair = i % PAIRS, a = U::NEIGHBOURS ? 2 * pair : pair;
      const uint32_t b = U::NEIGHBOURS ? a + 1 : a + PAIRS;
      const uint32_t point[GPUOS_DIMS] = {0, row, box.lo[2] + i / PAIRS, 0};
      const uint64_t from = x::at(ctx, point), to = out::at(ctx, point);
      float va[1], vb[1];
      gpuos_load<x::DTYPE, 1>(from + a * x_step * x::BYTES, va);
      gpuos_load<x::DTYPE, 1>(from + b * x_step * x::BYTES, vb);
      const float c = turn ? cosines(ctx)[pair] : 1.0f, s = turn ? sines(ctx)[pair] : 0.0f;
      const float ra[1] = {turn ? va[0] * c - vb[0] * s : va[0]};
      const float rb[1] = {turn ? vb[0] * c + va[0] * s : vb[0]};
      gpuos_store<out::DTYPE, 1>(to + a * out_step * out::BYTES, ra);
      gpuos_store<out::DTYPE, 1>(to + b * out_step * out::BYTES, rb);
    }
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const uint32_t lo = ctx.slot->box.lo[1], end = lo + ctx.slot->box.n[1];
    for (uint32_t i = gpuos_thread(); i < PAIRS; i += GPUOS_THREADS)
      frequencies(ctx)[i] = find_frequency(ctx, i); // read by this thread only
    for (uint32_t row = lo; row < end; row++) {
      const int position = pos::index(ctx, (uint64_t)row * pos::step(ctx, 1));
      load_angles(ctx, position < 0 ? 0 : position);
      gpuos_barrier();
      if constexpr (x::PRESENT)
        store(ctx, row, position >= 0); // a negative position leaves the row as it is
      else
        store_table(ctx, row);
      gpuos_barrier();
    }
    return true;
  }
};
