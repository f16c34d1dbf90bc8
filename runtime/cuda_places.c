// cuda_places.c: where every operand of the table lies in the GPU's memory.
#include <stdlib.h>

#include "device_cuda.h"

// Elements that iteration dimension `dim` moves an operand by.
static uint32_t step_of(const gpuos_op_t *op, const gpuos_operand_t *x, uint32_t dim) {
  uint32_t step = 0;
  for (uint32_t d = 0; d < GPUOS_DIMS; d++) {
    bool k = op->kind == GPUOS_MATMUL && d == GPUOS_SLICED_DIM && x->follows[d] == GPUOS_ALL;
    if (x->follows[d] == dim || (k && dim == GPUOS_SLICED_DIM)) step += x->stride[d];
  }
  return step;
}

static gpuos_place_t place_of(const gpuos_op_t *op, const gpuos_operand_t *x,
                              const CUdeviceptr *buffers) {
  gpuos_place_t place = {.address = buffers[x->buffer] + x->offset_bytes};
  for (uint32_t d = 0; d < GPUOS_DIMS; d++) {
    place.step[d] = step_of(op, x, d);
    place.stride[d] = x->stride[d], place.extent[d] = x->extent[d];
  }
  return place;
}

gpuos_status_t gos_cuda_upload_places(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  const gpuos_table_t *table = program->table;
  const gpuos_op_t *ops = GPUOS_SECTION(table, gpuos_op_t, ops);
  const gpuos_operand_t *operands = GPUOS_SECTION(table, gpuos_operand_t, operands);
  gpuos_place_t *places = calloc(table->operands.count, sizeof *places);
  if (places == NULL) return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory for operands");
  for (uint32_t o = 0; o < table->ops.count; o++)
    for (uint32_t i = ops[o].first_operand; i < ops[o].first_operand + ops[o].operand_count; i++)
      places[i] = place_of(&ops[o], &operands[i], state->buffers);
  gpuos_status_t status =
      gos_cuda_upload(program, "operands' places", places, table->operands.count * sizeof *places,
                      &state->args.places);
  CUresult result = status == GPUOS_OK ? cu->cuStreamSynchronize(state->stream) : CUDA_SUCCESS;
  free(places);
  if (status != GPUOS_OK) return status;
  return gos_cu_result(cu, error, result, "cuStreamSynchronize", __FILE__, __LINE__);
}
