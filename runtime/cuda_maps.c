// cuda_maps.c: the tensor maps (CUtensorMap) that the kernel's bulk copies go by.
//
// The kernel lists in `gpuos_maps` which operands it wants to copy in which boxes; only the runtime
// knows where buffers lie. Limits are those of cuTensorMapEncodeTiled ("CUDA Driver API", "Tensor
// Map Object Management").
#include <stdlib.h>

#include "device_cuda.h"

enum {
  MAX_BOX = 256,
  SWIZZLE_BYTES = 128,
  ALIGNMENT_BYTES = 16, // of addresses, strides and the innermost side of a box
};
#define MAX_STRIDE_BYTES (UINT64_C(1) << 40)

// ---- one map ------------------------------------------------------------------------------------

static int dtype_of(uint32_t dtype) {
  switch (dtype) {
  case GPUOS_F32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  case GPUOS_F16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  case GPUOS_BF16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  case GPUOS_I32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
  default: return CU_TENSOR_MAP_DATA_TYPE_UINT8; // fp8: bytes to a copy
  }
}

static uint64_t at_least_one(uint32_t extent) { return extent == 0 ? 1 : extent; }

// In bytes. A dimension of one element is never stepped along, but its stride is checked all the
// same: the smallest one that passes.
static uint64_t stride_of(uint64_t extent, uint64_t stride_bytes, uint64_t spanned_bytes) {
  if (extent > 1) return stride_bytes;
  return (spanned_bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
}

static const char *check_request(const gpuos_table_t *table, const gpuos_map_t *map) {
  if (map->operand >= table->operands.count) return "no operand of that number";
  const gpuos_operand_t *x = GPUOS_SECTION(table, gpuos_operand_t, operands) + map->operand;
  uint32_t box_bytes = map->box_inner * gpuos_dtype_bytes(x->dtype);
  bool outer_known = map->outer < GPUOS_DIMS || map->outer == GPUOS_ALL;
  if (map->inner >= GPUOS_DIMS || map->row >= GPUOS_DIMS || !outer_known)
    return "no dimension of that number";
  if (map->inner == map->row || map->inner == map->outer || map->row == map->outer)
    return "the same dimension twice";
  if (map->box_inner == 0 || map->box_inner > MAX_BOX || map->box_rows == 0 ||
      map->box_rows > MAX_BOX)
    return "a box of 1 to 256 a side is needed";
  if (box_bytes > SWIZZLE_BYTES || box_bytes % ALIGNMENT_BYTES != 0)
    return "the box's rows must be at most 128 bytes, a multiple of 16";
  if (x->extent[map->inner] > 1 && x->stride[map->inner] != 1)
    return "the inner dimension is not contiguous";
  if (x->extent[map->row] > 1 && x->stride[map->row] == 0) return "the rows are all the same one";
  return NULL;
}

static const char *check_plan(const gos_map_plan_t *plan) {
  if (plan->address % ALIGNMENT_BYTES != 0) return "the view does not begin at 16 bytes";
  for (int i = 0; i < 2; i++)
    if (plan->stride_bytes[i] % ALIGNMENT_BYTES != 0 || plan->stride_bytes[i] >= MAX_STRIDE_BYTES)
      return "a stride is no multiple of 16 bytes below 2^40";
  return NULL;
}

const char *gos_cuda_plan_map(const gpuos_table_t *table, const gpuos_map_t *map, uint64_t address,
                              gos_map_plan_t *out_plan) {
  const char *wrong = check_request(table, map);
  if (wrong != NULL) return wrong;
  const gpuos_operand_t *x = GPUOS_SECTION(table, gpuos_operand_t, operands) + map->operand;
  uint64_t bytes = gpuos_dtype_bytes(x->dtype);
  uint64_t inner = at_least_one(x->extent[map->inner]), rows = at_least_one(x->extent[map->row]);
  // An operand that is the same for all of an outer dimension is one slab of it: the kernel asks for
  // number 0.
  bool slabs = map->outer != GPUOS_ALL && x->stride[map->outer] != 0;
  uint64_t outer = slabs ? at_least_one(x->extent[map->outer]) : 1;
  uint64_t row_bytes = stride_of(rows, x->stride[map->row] * bytes, inner * bytes);
  uint64_t outer_bytes =
      stride_of(outer, slabs ? x->stride[map->outer] * bytes : 0, rows * row_bytes);
  *out_plan = (gos_map_plan_t){.dtype = dtype_of(x->dtype),
                               .address = address + x->offset_bytes,
                               .extents = {inner, rows, outer},
                               .stride_bytes = {row_bytes, outer_bytes},
                               .box = {map->box_inner, map->box_rows, 1}};
  return check_plan(out_plan);
}

// ---- all of a program ---------------------------------------------------------------------------

static gpuos_status_t encode(gpuos_program_t *program, const gpuos_map_t *map,
                             CUtensorMap *out_map) {
  static const uint32_t element_strides[3] = {1, 1, 1};
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  const gos_cuda_program_t *state = program->state;
  const gpuos_operand_t *operands = GPUOS_SECTION(program->table, gpuos_operand_t, operands);
  bool known = map->operand < program->table->operands.count;
  uint64_t address = known ? state->buffers[operands[map->operand].buffer] : 0;
  gos_map_plan_t plan;
  const char *wrong = gos_cuda_plan_map(program->table, map, address, &plan);
  CUresult result = CUDA_SUCCESS;
  if (wrong == NULL)
    result = cu->cuTensorMapEncodeTiled(
        out_map, plan.dtype, 3, (void *)(uintptr_t)plan.address, plan.extents, plan.stride_bytes,
        plan.box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) wrong = "the driver refuses it";
  if (wrong == NULL) return GPUOS_OK;
  return gos_fail(error, GPUOS_BAD_ARTEFACT,
                  "the device code asks for a tensor map of operand %u "
                  "(dimensions %u, %u, %u; boxes of %u x %u): %s",
                  map->operand, map->inner, map->row, map->outer, map->box_inner, map->box_rows,
                  wrong);
}

static gpuos_status_t encode_all(gpuos_program_t *program, gpuos_map_t *maps,
                                 CUtensorMap *encoded) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  uint32_t count = state->launch.map_count, operands = program->table->operands.count;
  gpuos_status_t status = gos_cuda_read_global(program, "maps", maps, count * sizeof maps[0]);
  for (uint32_t i = 0; status == GPUOS_OK && i < count; i++) {
    uint32_t place = maps[i].operand < operands ? maps[i].operand : 0; // encode refuses others
    status = encode(program, &maps[i], &encoded[place]);
  }
  if (status == GPUOS_OK)
    status = gos_cuda_upload(program, "tensor maps", encoded, operands * sizeof encoded[0],
                             &state->args.maps);
  if (status != GPUOS_OK) return status;
  GOS_CU_TRY(cuStreamSynchronize(state->stream)); // `encoded` is about to go
  return GPUOS_OK;
}

gpuos_status_t gos_cuda_encode_maps(gpuos_program_t *program) {
  gos_error_t *error = &program->device->error;
  const gos_cuda_program_t *state = program->state;
  uint32_t count = state->launch.map_count, operands = program->table->operands.count;
  if (count == 0) return GPUOS_OK;
  if (count > operands)
    return gos_fail(error, GPUOS_BAD_ARTEFACT, "%u tensor maps for %u operands", count, operands);
  if (gos_cuda_of(program)->cu.cuTensorMapEncodeTiled == NULL)
    return gos_fail(error, GPUOS_NO_DRIVER,
                    "this program copies by tensor maps, which the CUDA driver lacks "
                    "(cuTensorMapEncodeTiled); update it to 12.0 or later");
  gpuos_map_t *maps = calloc(count, sizeof *maps);
  CUtensorMap *encoded = aligned_alloc(_Alignof(CUtensorMap), operands * sizeof *encoded);
  gpuos_status_t status = GPUOS_OUT_OF_MEMORY;
  if (maps == NULL || encoded == NULL)
    gos_fail(error, status, "no memory for %u tensor maps", count);
  else
    status = encode_all(program, maps, encoded);
  free(encoded);
  free(maps);
  return status;
}
