// map.cuh: MAP, one tile: OUT = of(EXTRA...), element by element.
//
// U, the generated instantiation, has operands out and inputs; RUN, elements along dimension 3 that
// move at once; of(acc, in), the expression.
#pragma once
#include "unit.cuh"

template <class U> struct gpuos_map {
  using out = typename U::out;
  using inputs = typename U::inputs;

  enum {
    RUN = U::RUN,
    // Runs whose loads a thread starts before it needs the first: a unit is as fast as it has bytes
    // in flight.
    AHEAD = inputs::COUNT <= 1   ? 4
            : inputs::COUNT <= 3 ? 2
                                 : 1,
    SMEM_BYTES = 0,
  };

  // A walk through the runs of a slice: threads along dimension 3 as far as they go, then over
  // rows.
  struct walk {
    uint32_t point[GPUOS_DIMS];
    uint32_t first, end, step; // of point[3]
    uint32_t row, rows, row_step;
  };

  GPUOS_DEVICE void enter_row(const gpuos_ctx &ctx, walk &w) {
    const gpuos_box_t &box = ctx.slot->box;
    uint32_t row = w.row;
#pragma unroll
    for (int d = 2; d >= 0; d--) {
      w.point[d] = box.lo[d] + row % box.n[d];
      row /= box.n[d];
    }
    w.point[3] = w.first;
  }

  GPUOS_DEVICE walk make_walk(const gpuos_ctx &ctx, uint32_t from, uint32_t to) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint32_t runs = (to - from + RUN - 1) / RUN;
    uint32_t lanes = 1;
    while (lanes < runs && lanes < GPUOS_THREADS) lanes *= 2;
    walk w;
    w.first = from + gpuos_thread() % lanes * RUN, w.end = to, w.step = lanes * RUN;
    w.row = gpuos_thread() / lanes, w.rows = box.n[0] * box.n[1] * box.n[2];
    w.row_step = GPUOS_THREADS / lanes;
    if (w.first >= to) w.row = w.rows;
    if (w.row < w.rows) enter_row(ctx, w);
    return w;
  }

  GPUOS_DEVICE void advance(const gpuos_ctx &ctx, walk &w) {
    w.point[3] += w.step;
    if (w.point[3] < w.end) return;
    w.row += w.row_step;
    if (w.row < w.rows) enter_row(ctx, w);
  }

  // ---- compute ----------------------------------------------------------------------------------

  GPUOS_DEVICE void compute(const float (&in)[inputs::ROOM][RUN], float (&values)[RUN]) {
    const float no_acc[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < RUN; i++) {
      float arguments[inputs::ROOM];
#pragma unroll
      for (int n = 0; n < inputs::COUNT; n++) arguments[n] = in[n][i];
      values[i] = U::of(no_acc, arguments);
    }
  }

  GPUOS_DEVICE void slice(const gpuos_ctx &ctx, uint32_t from, uint32_t to) {
    walk loads = make_walk(ctx, from, to), stores = loads;
    while (loads.row < loads.rows) {
      float in[AHEAD][inputs::ROOM][RUN], values[RUN];
#pragma unroll
      for (int a = 0; a < AHEAD; a++)
        if (loads.row < loads.rows) {
          inputs::template load<RUN, 3>(ctx, loads.point, in[a]);
          advance(ctx, loads);
        }
#pragma unroll
      for (int a = 0; a < AHEAD; a++)
        if (stores.row < stores.rows) {
          compute(in[a], values);
          out::template store<RUN>(ctx, stores.point, values);
          advance(ctx, stores);
        }
    }
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const uint32_t lo = ctx.slot->box.lo[3], end = lo + ctx.slot->box.n[3];
    const uint32_t step = ctx.slot->of->op.slice == 0 ? end - lo : ctx.slot->of->op.slice;
    for (uint32_t from = lo; from < end; from += step) {
      if (from > lo) {
        if (!gpuos_yield(ctx)) return false;
        gpuos_next_slice(ctx);
      }
      slice(ctx, from, end - from < step ? end : from + step);
    }
    return true;
  }
};
