// stamp: finds the results that travel stamped: what one operator writes and a product whose weights stream
// reads as its x, what attention reads of its step, and its splits.
// needs:    memory
// provides: op.stamps, op.fours, op.from, op.from_fours, operand.stamped
// keeps:    everything but the last bits of what is normalised (fours): it is seen by stamps, words of which each
//           says in which step it was written, without a fence, a counter and the way there
// source:   NCCL's LL protocol, which has a flag beside each word as well
#include <string.h>

#include "passes.h"

enum {
  MOST_OPS = 32767,          // stamps of 16 bits: none of the last two steps' is another's
  MOST_ROWS = 2,             // of x, each of which the workers see on its own
  MOST_NORMED = 8192,        // elements of a row, as shared memory lasts
  MOST_WORKSPACE = 64 << 20, // bytes: five times as many hold stamped words
};

// Its elements follow each other, whatever its dimensions.
static bool dense(const gpuos_operand_t *x, uint64_t *out_elements) {
  uint64_t elements = 1;
  bool is = true;
  for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
    if (x->extent[d] > 1) is &= x->stride[d] == elements;
    elements *= x->extent[d];
  }
  *out_elements = elements;
  return is;
}

// What `out` writes has no gaps, and x lies in it.
static bool writes_all_of(const gpuos_operand_t *out, const gpuos_operand_t *x) {
  uint64_t written, size = gpuos_dtype_bytes(x->dtype), last = 0;
  if (out->value != x->value || out->dtype != x->dtype || !dense(out, &written)) return false;
  for (int d = 0; d < GPUOS_DIMS; d++) last += (uint64_t)(x->extent[d] - 1) * x->stride[d];
  return x->offset_bytes >= out->offset_bytes &&
         x->offset_bytes + (last + 1) * size <= out->offset_bytes + written * size;
}

// The operator that alone writes all of x, if its device code stamps what it writes.
static uint32_t find_writer(const gos_plan_t *plan, const gpuos_operand_t *x) {
  uint32_t writer = GPUOS_NONE, writers = 0;
  for (uint32_t i = 0; i < plan->ops.count; i++) {
    const gos_op_t *op = &plan->ops.at[i];
    for (int k = 0; k < op->op.operand_count; k++) {
      const gpuos_operand_t *out = &op->operands[k];
      if (!out->writes || out->value != x->value) continue;
      writers++;
      bool table = op->op.kind == GPUOS_ROPE && !gos_op_find(op, GPUOS_AS_X);
      bool stamps = op->streams || op->op.kind == GPUOS_ATTENTION_COMBINE || table;
      bool splits = gos_op_rings(plan, op) && out->as == GPUOS_AS_PARTIAL;
      if (((stamps && out->as == GPUOS_AS_OUT) || splits) && writes_all_of(out, x)) writer = i;
    }
  }
  return writers == 1 && x->buffer == plan->workspace ? writer : GPUOS_NONE;
}

// A product's x, as device/matmul_stream.cuh reads it: floats that it normalises, and keeps meanwhile, or what
// goes into the tensor cores as it is.
static void find_x(const gos_plan_t *plan, gos_op_t *op) {
  const gpuos_operand_t *x = gos_op_find(op, GPUOS_AS_X);
  bool fits = gos_op_find(op, GPUOS_AS_NORM)
                  ? x->dtype == GPUOS_F32 && op->op.extent[3] <= MOST_NORMED
                  : gpuos_dtype_bytes(x->dtype) == 2;
  if (fits && op->op.extent[1] <= MOST_ROWS) op->from[0] = find_writer(plan, x);
}

// What attention reads of this step, if its keys come through the ring: all of it or nothing.
static void find_own(const gos_plan_t *plan, gos_op_t *op) {
  static const gpuos_as_t roles[GOS_STAMPED] = {GPUOS_AS_X, GPUOS_AS_K, GPUOS_AS_V,
                                                GPUOS_AS_ROTATION};
  uint32_t from[GOS_STAMPED];
  for (int i = 0; i < GOS_STAMPED; i++) {
    const gpuos_operand_t *x = gos_op_find(op, roles[i]);
    from[i] = x ? find_writer(plan, x) : GPUOS_NONE;
    if (from[i] == GPUOS_NONE) return;
  }
  if (op->op.extent[1] <= MOST_ROWS) memcpy(op->from, from, sizeof from);
}

// What a tile that merges the splits of attention reads, if that has tensor cores.
static void find_splits(const gos_plan_t *plan, gos_op_t *op) {
  op->from[0] = find_writer(plan, gos_op_find(op, GPUOS_AS_PARTIAL));
}

// A row or two of floats whose tiles are whole fours.
static bool comes_in_fours(const gos_op_t *writer) {
  return writer->streams && gos_op_find(writer, GPUOS_AS_OUT)->dtype == GPUOS_F32 &&
         writer->op.extent[1] <= MOST_ROWS && writer->op.extent[2] % 4 == 0 &&
         writer->op.tile[2] % 4 == 0;
}

static void mark(gos_plan_t *plan, gos_op_t *op) {
  static const gpuos_as_t roles[GOS_STAMPED] = {GPUOS_AS_X, GPUOS_AS_K, GPUOS_AS_V,
                                                GPUOS_AS_ROTATION};
  for (int k = 0; k < GOS_STAMPED; k++) {
    if (op->from[k] == GPUOS_NONE) continue;
    gos_op_t *writer = &plan->ops.at[op->from[k]];
    writer->stamps = plan->stamps = true;
    writer->fours = comes_in_fours(writer);
    op->from_fours = k == 0 && writer->fours;
    gpuos_as_t as = op->op.kind == GPUOS_ATTENTION_COMBINE ? GPUOS_AS_PARTIAL : roles[k];
    for (int x = 0; x < op->op.operand_count; x++)
      if (op->operands[x].as == as) op->operands[x].stamped = 1;
  }
}

bool gos_pass_stamp(gos_plan_t *plan) {
  bool few = plan->ops.count <= MOST_OPS && plan->workspace_bytes <= MOST_WORKSPACE;
  for (uint32_t i = 0; i < plan->ops.count; i++) {
    gos_op_t *op = &plan->ops.at[i];
    for (int k = 0; k < GOS_STAMPED; k++) op->from[k] = GPUOS_NONE;
    if (few && op->streams) find_x(plan, op);
    if (few && gos_op_rings(plan, op)) find_own(plan, op);
    if (few && op->op.kind == GPUOS_ATTENTION_COMBINE) find_splits(plan, op);
    mark(plan, op);
  }
  return true;
}
