// types.c: our dtypes and shapes as MLIR types, and back.
#include "ir.h"

#include <string.h>

bool gos_dtype_is_fp8(uint32_t dtype) { return dtype == GPUOS_E4M3 || dtype == GPUOS_E5M2; }

bool gos_dtype_parse(const char *name, gpuos_dtype_t *out_dtype) {
  for (int i = 0; i < GPUOS_DTYPE_COUNT; i++)
    if (!strcmp(gos_dtype_name((uint32_t)i), name)) {
      *out_dtype = (gpuos_dtype_t)i;
      return true;
    }
  return false;
}

MlirType gos_dtype_type(gos_ir_t *ir, gpuos_dtype_t dtype) {
  switch (dtype) {
  case GPUOS_F32: return mlirF32TypeGet(ir->mlir);
  case GPUOS_F16: return mlirF16TypeGet(ir->mlir);
  case GPUOS_BF16: return mlirBF16TypeGet(ir->mlir);
  case GPUOS_E4M3: return mlirFloat8E4M3FNTypeGet(ir->mlir);
  case GPUOS_E5M2: return mlirFloat8E5M2TypeGet(ir->mlir);
  case GPUOS_I32: return mlirIntegerTypeGet(ir->mlir, 32);
  case GPUOS_DTYPE_COUNT: break;
  }
  GOS_BUG("dtype %d", (int)dtype);
}

bool gos_type_dtype(MlirType scalar, gpuos_dtype_t *out_dtype) {
  *out_dtype = mlirTypeIsAF32(scalar)            ? GPUOS_F32
               : mlirTypeIsAF16(scalar)          ? GPUOS_F16
               : mlirTypeIsABF16(scalar)         ? GPUOS_BF16
               : mlirTypeIsAFloat8E4M3FN(scalar) ? GPUOS_E4M3
               : mlirTypeIsAFloat8E5M2(scalar)   ? GPUOS_E5M2
               : mlirTypeIsAInteger(scalar) && mlirIntegerTypeGetWidth(scalar) == 32
                   ? GPUOS_I32
                   : GPUOS_DTYPE_COUNT;
  return *out_dtype != GPUOS_DTYPE_COUNT;
}

MlirType gos_tensor_type(gos_ir_t *ir, const gos_shape_t *shape) {
  return mlirRankedTensorTypeGet(shape->rank, shape->dim, gos_dtype_type(ir, shape->dtype),
                                 (MlirAttribute){NULL});
}

MlirType gos_unknown_type(gos_ir_t *ir) {
  return mlirUnrankedTensorTypeGet(mlirF32TypeGet(ir->mlir));
}

gos_shape_t gos_shape_of(MlirValue value) {
  gos_shape_t shape = {.rank = -1};
  MlirType type = mlirValueGetType(value);
  if (!mlirTypeIsARankedTensor(type)) return shape;
  if (mlirShapedTypeGetRank(type) > GPUOS_RANK) return shape;
  if (!gos_type_dtype(mlirShapedTypeGetElementType(type), &shape.dtype)) return shape;
  shape.rank = (int)mlirShapedTypeGetRank(type);
  for (int d = 0; d < shape.rank; d++) shape.dim[d] = mlirShapedTypeGetDimSize(type, d);
  return shape;
}

uint64_t gos_shape_bytes(const gos_shape_t *shape) {
  uint64_t bytes = gpuos_dtype_bytes(shape->dtype);
  for (int d = 0; d < shape->rank; d++) bytes *= (uint64_t)shape->dim[d];
  return bytes;
}

const char *gos_shape_text(gos_ir_t *ir, const gos_shape_t *shape) {
  if (shape->rank < 0) return "unknown";
  gos_text_t text = {.arena = ir->scratch};
  gos_text_add(&text, "[");
  for (int d = 0; d < shape->rank; d++)
    gos_text_add(&text, "%s%lld", d ? ", " : "", (long long)shape->dim[d]);
  gos_text_add(&text, "] %s", gos_dtype_name(shape->dtype));
  return text.at;
}
