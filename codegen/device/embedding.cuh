// embedding.cuh: EMBEDDING, one tile: rows of TABLE by number.
//
// U, the generated instantiation, has operands table, ids, out; RUN, elements that move at once.
#pragma once
#include "unit.cuh"

template <class U> struct gpuos_embedding {
  using table = typename U::table;
  using ids = typename U::ids;
  using out = typename U::out;
  enum { RUN = U::RUN, SMEM_BYTES = 0 };

  // ---- load -------------------------------------------------------------------------------------

  // Where the row of TABLE for iteration row `row` lies. False: there is no such row.
  GPUOS_DEVICE bool load(const gpuos_ctx &ctx, uint32_t row, uint64_t &from) {
    const int id = ids::index(ctx, (uint64_t)row * ids::step(ctx, 2));
    const uint32_t rows = table::extent(ctx, 2);
    if ((uint32_t)id >= rows) return gpuos_fault_index(ctx, GPUOS_AS_IDS, id, rows);
    from = table::base(ctx) + (uint64_t)id * table::stride(ctx, 2) * table::BYTES;
    return true;
  }

  // ---- store ------------------------------------------------------------------------------------

  GPUOS_DEVICE void store(const gpuos_ctx &ctx, uint32_t row, uint64_t from) {
    const gpuos_box_t &box = ctx.slot->box;
    const uint64_t step = table::step(ctx, 3);
    for (uint32_t col = gpuos_thread() * RUN; col < box.n[3]; col += GPUOS_THREADS * RUN) {
      const uint32_t point[GPUOS_DIMS] = {0, 0, row, box.lo[3] + col};
      float values[RUN];
      gpuos_load<table::DTYPE, RUN>(from + point[3] * step * table::BYTES, values);
      out::template store<RUN>(ctx, point, values);
    }
  }

  // ---- run --------------------------------------------------------------------------------------

  GPUOS_DEVICE bool run(gpuos_ctx &ctx) {
    const uint32_t lo = ctx.slot->box.lo[2], end = lo + ctx.slot->box.n[2];
    bool inside = true;
    for (uint32_t row = lo; row < end; row++) {
      uint64_t from = 0;
      if (!load(ctx, row, from))
        inside = false;
      else
        store(ctx, row, from);
    }
    return inside;
  }
};
