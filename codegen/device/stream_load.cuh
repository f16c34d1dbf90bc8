// stream_load.cuh: the loader's part of a matmul whose weights stream: tile after tile of them into the ring.
//
// One code for all shapes, which are its data: a layer has several, and code that was not run for a while has
// to come from the L2, as slowly as all else.
#pragma once
#include "stream.cuh"

// How the weights of a unit are cut into stages.
struct gpuos_stream_cut {
  uint32_t count;             // operands, row by row in turn; 0: nothing streams
  uint32_t place[2];          // which of the operator's they are
  uint32_t row_bytes, rows;   // of a row; whole or part rows in a stage
  uint32_t parts, part_bytes; // of a row: a stage each
  uint32_t pitch;             // bytes from row to row in a stage
};

// Rows of weights or parts of them at `from` into a stage, in one copy if they follow each other there as they do
// here: few long copies are faster. False: stop.
GPUOS_DEVICE bool gpuos_load_stage(gpuos_loader &loader, const gpuos_stream_cut &cut, uint64_t from,
                                   uint32_t rows, uint32_t bytes) {
  const uint64_t policy = createpolicy_evict_first();
  uint32_t full, to;
  if (!gpuos_enter_stream(loader, rows * bytes, full, to)) return false;
  if (cut.pitch == bytes) bytes *= rows, rows = 1;
#pragma unroll 1
  for (uint32_t r = 0; r < rows; r++) {
    cp_async_bulk_hint(to, from, bytes, full, policy);
    to += cut.pitch, from += cut.row_bytes;
  }
  return true;
}

// Stage by stage, in the order of gpuos_stream_shape::run_tile. False: stop.
GPUOS_DEVICE bool gpuos_load_tile(gpuos_loader &loader, const gpuos_stream_cut &cut,
                                  const uint64_t (&w)[2], uint32_t stages) {
  const gpuos_box_t &box = loader.slot->box;
  const uint32_t rows_end = box.lo[2] + box.n[2];
  if (stages <= 2 * GPUOS_WANT_STAGES) gpuos_want_after(loader);
#pragma unroll 1
  for (uint32_t first = box.lo[2]; first < rows_end; first += cut.rows) {
    const uint32_t rows = min(rows_end - first, cut.rows);
#pragma unroll 1
    for (uint32_t c = 0; c < cut.count; c++) {
      const uint64_t from = (c ? w[1] : w[0]) + (uint64_t)first * cut.row_bytes;
      loader.rest = {from, (rows_end - first) * cut.row_bytes};
#pragma unroll 1
      for (uint32_t at = 0; at < cut.row_bytes; at += cut.part_bytes) {
        const uint32_t bytes = min(cut.part_bytes, cut.row_bytes - at);
        if (!gpuos_load_stage(loader, cut, from + at, rows, bytes)) return false;
        if (--stages == GPUOS_WANT_STAGES) gpuos_want_after(loader);
      }
    }
  }
  return true;
}

// This tile, and those after it that are alike.
GPUOS_DEVICE void gpuos_load_stream(gpuos_loader &loader, const gpuos_stream_cut &cut) {
  const gpuos_known &of = *loader.slot->of;
  const uint64_t w[2] = {of.places[cut.place[0]].address, of.places[cut.place[1]].address};
  const uint32_t stages =
      (of.op.tile[2] + cut.rows - 1) / cut.rows * (cut.count * cut.parts); // of a full tile
  while (gpuos_load_tile(loader, cut, w, stages) && gpuos_load_alike(loader)) {
  }
}
