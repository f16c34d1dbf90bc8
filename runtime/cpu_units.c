// cpu_units.c: what the units share: operands as views, boxes, reductions, and the one switch.
#include "cpu_units.h"

#include <math.h>

const gpuos_operand_t *gos_find_operand(const gpuos_op_t *op, const gpuos_operand_t *operands,
                                        gpuos_as_t as, uint32_t nth) {
  for (uint32_t i = 0; i < op->operand_count; i++)
    if (operands[i].as == as && nth-- == 0) return &operands[i];
  return NULL;
}

gos_view_t gos_view_nth(const gos_unit_t *unit, gpuos_as_t as, uint32_t nth) {
  const gpuos_operand_t *x = gos_find_operand(unit->op, unit->operands, as, nth);
  gos_view_t view = {.x = x};
  if (x == NULL) return view;
  view.data = (uint8_t *)unit->buffers[x->buffer] + x->offset_bytes;
  view.dtype = x->dtype;
  view.bytes = gpuos_dtype_bytes(x->dtype);
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (x->follows[d] != GPUOS_ALL) view.step[x->follows[d]] += x->stride[d];
  return view;
}

bool gos_unit_fault(gos_unit_t *unit, gpuos_as_t as, int32_t index, uint32_t limit) {
  unit->fault[0] = as;
  unit->fault[1] = (uint32_t)index;
  unit->fault[2] = limit;
  return false;
}

bool gos_box_next(const gpuos_box_t *box, int dims, uint32_t at[GPUOS_DIMS]) {
  for (int d = dims - 1; d >= 0; d--) {
    if (++at[d] < box->lo[d] + box->n[d]) return true;
    at[d] = box->lo[d];
  }
  return false;
}

GOS_WIDE float gos_dot(const float *a, const float *b, uint32_t count) {
  float lanes[GOS_LANES] = {0};
  uint32_t whole = count & ~(GOS_LANES - 1u);
  for (uint32_t k = 0; k < whole; k += GOS_LANES)
    for (uint32_t l = 0; l < GOS_LANES; l++) lanes[l] += a[k + l] * b[k + l];
  for (uint32_t k = whole; k < count; k++) lanes[k - whole] += a[k] * b[k];
  for (uint32_t half = GOS_LANES / 2; half > 0; half /= 2)
    for (uint32_t l = 0; l < half; l++) lanes[l] += lanes[l + half];
  return lanes[0];
}

GOS_WIDE void gos_normalise(float *x, uint32_t count, float eps, uint32_t dtype,
                            const gos_view_t *norm) {
  float scale = 1.0f / sqrtf(gos_dot(x, x, count) / (float)count + eps);
  for (uint32_t k = 0; k < count; k++) x[k] *= scale;
  gos_round_f32(dtype, count, x);
  uint64_t stride = norm->x->stride[GPUOS_DIMS - 1];
  for (uint32_t k = 0; k < count; k += GOS_STRIP) {
    float weights[GOS_STRIP];
    uint32_t n = count - k < GOS_STRIP ? count - k : GOS_STRIP;
    gos_load_f32(norm->dtype, gos_element(norm, k * stride), stride, n, weights);
    for (uint32_t i = 0; i < n; i++) x[k + i] *= weights[i];
  }
}

gos_unit_t gos_unit_make(const gpuos_table_t *table, void *const *buffers, const gpuos_tile_t *tile,
                         uint32_t slice) {
  const gpuos_op_t *op = GPUOS_SECTION(table, gpuos_op_t, ops) + tile->op;
  gos_unit_t unit = {.op = op, .buffers = buffers, .box = gpuos_tile_box(op, tile->index)};
  unit.operands = GPUOS_SECTION(table, gpuos_operand_t, operands) + op->first_operand;
  unit.code = GPUOS_SECTION(table, gpuos_code_t, code) + op->first_code;
  uint32_t slices = gpuos_op_slices(op), *n = &unit.box.n[GPUOS_SLICED_DIM];
  unit.first = slice == 0;
  unit.last = slice + 1 == slices;
  if (slices > 1) {
    uint32_t from = slice * op->slice;
    *n = from >= *n ? 0 : *n - from < op->slice ? *n - from : op->slice;
    unit.box.lo[GPUOS_SLICED_DIM] += from;
  }
  return unit;
}

size_t gos_unit_acc_floats(const gpuos_op_t *op, const gpuos_operand_t *operands) {
  return op->kind == GPUOS_MATMUL ? gos_matmul_acc_floats(op, operands) : 0;
}

// Kinds that hold a row as floats take the longest extent that an operand reads whole.
static size_t row_floats(const gpuos_op_t *op, const gpuos_operand_t *operands) {
  const gpuos_operand_t *x = gos_find_operand(op, operands, GPUOS_AS_X, 0);
  return x == NULL ? GOS_STRIP : 2 * (size_t)x->extent[GPUOS_DIMS - 1] + GOS_STRIP;
}

size_t gos_unit_scratch_floats(const gpuos_op_t *op, const gpuos_operand_t *operands) {
  switch (op->kind) {
  case GPUOS_MATMUL: return gos_matmul_scratch_floats(op);
  case GPUOS_MAP: return gos_pointwise_floats(op);
  case GPUOS_KV_APPEND: return 2 * (size_t)op->params[1]; // a vector, its rotation
  case GPUOS_ATTENTION:
  case GPUOS_ATTENTION_COMBINE: return gos_attention_scratch_floats(op);
  default: return row_floats(op, operands);
  }
}

bool gos_unit_run(gos_unit_t *unit) {
  switch (unit->op->kind) {
  case GPUOS_MATMUL: return gos_unit_matmul(unit);
  case GPUOS_MAP: return gos_unit_map(unit);
  case GPUOS_RMSNORM: return gos_unit_rmsnorm(unit);
  case GPUOS_SOFTMAX: return gos_unit_softmax(unit);
  case GPUOS_EMBEDDING: return gos_unit_embedding(unit);
  case GPUOS_ROPE: return gos_unit_rope(unit);
  case GPUOS_KV_APPEND: return gos_unit_kv_append(unit);
  case GPUOS_ATTENTION: return gos_unit_attention(unit);
  case GPUOS_ATTENTION_COMBINE: return gos_unit_attention_combine(unit);
  case GPUOS_ARGMAX: return gos_unit_argmax(unit);
  default: return true; // check admits no other kind
  }
}
