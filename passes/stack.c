// stack: products of the same few rows become one product of all their weights, one after another, and what they
// made are slices of its result: a layer's q, k and v.
// needs:    fuse
// provides: matmul of a concat of weights, which lower joins in memory
// keeps:    every sum. Not where a result would need a copy, since rows of a slice do not follow each other
// source:   an operator begins with a ticket, records and code that no cache holds: on an H200 2 us and more on
//           every SM, of the 12 that a layer's q, k and v take (tests/bench/results/2026-12-01-h200.md)
#include <string.h>

#include "passes.h"

enum {
  MAX_ROWS = 16, // of more, an operator's beginning is little
  ALIGNED = 8,   // columns: the slices after them begin at 16 bytes, as device code likes them
};

typedef struct stacked {
  MlirOperation ops[GOS_LIST_ROOM];
  size_t count;
} stacked_t;

static MlirBlock block_of(MlirOperation func) {
  return mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
}

static int64_t rows_of(const gos_shape_t *shape) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < shape->rank; d++) rows *= shape->dim[d];
  return rows;
}

// ---- which products -----------------------------------------------------------------------------

// A weight [n, k] that nobody else reads, and whose buffer another can follow.
static bool has_own_weight(gos_ir_t *ir, MlirOperation func, MlirOperation op) {
  MlirValue w = gos_op_in(op, "w");
  gos_shape_t shape = gos_shape_of(w);
  if (!mlirValueIsABlockArgument(w) || shape.rank != 2 || gos_value_uses(w) != 1) return false;
  intptr_t arg = mlirBlockArgumentGetArgNumber(w);
  return gos_op_bool(op, "transpose_w") && shape.dim[0] % ALIGNED == 0 &&
         gos_shape_bytes(&shape) % GPUOS_BUFFER_ALIGNMENT == 0 &&
         !strcmp(gos_arg_string(ir, func, arg, "gpuos.role"), "weight");
}

// Those who read the result take rows that lie apart; and none wants it written to a place of its own.
static bool users_take_slices(MlirOperation op, int64_t rows) {
  static const char *const takers[] = {"rope", "attention", "kv_append"};
  for (MlirOpOperand use = mlirValueGetFirstUse(mlirOperationGetResult(op, 0));
       !mlirOpOperandIsNull(use); use = mlirOpOperandGetNextUse(use)) {
    MlirOperation user = mlirOpOperandGetOwner(use);
    bool takes = false;
    if (!gos_op_get_spec(user) || gos_op_is(user, "concat")) return false;
    for (size_t i = 0; i < sizeof takers / sizeof *takers; i++)
      takes = takes || gos_op_is(user, takers[i]);
    if (!takes && rows > 1) return false;
  }
  return true;
}

static bool stacks(gos_ir_t *ir, MlirOperation func, MlirOperation op) {
  if (!gos_op_get_spec(op) || !gos_op_is(op, "matmul")) return false;
  gos_shape_t out = gos_shape_of(mlirOperationGetResult(op, 0));
  return rows_of(&out) <= MAX_ROWS && has_own_weight(ir, func, op) &&
         mlirValueIsNull(gos_op_in(op, "w1")) && mlirOperationIsNull(gos_op_body(ir, op, "body")) &&
         gos_op_in_count(op, "extra") == 0 && users_take_slices(op, rows_of(&out));
}

static bool alike(MlirOperation a, MlirOperation b) {
  gos_shape_t w = gos_shape_of(gos_op_in(a, "w")), v = gos_shape_of(gos_op_in(b, "w"));
  gos_shape_t y = gos_shape_of(mlirOperationGetResult(a, 0)),
              z = gos_shape_of(mlirOperationGetResult(b, 0));
  return mlirValueEqual(gos_op_in(a, "x"), gos_op_in(b, "x")) &&
         mlirValueEqual(gos_op_in(a, "norm"), gos_op_in(b, "norm")) &&
         gos_op_float(a, "eps") == gos_op_float(b, "eps") &&
         gos_op_bool(a, "transpose_x") == gos_op_bool(b, "transpose_x") && w.dtype == v.dtype &&
         y.dtype == z.dtype && y.rank == z.rank;
}

static uint64_t weights_of(MlirOperation op) {
  gos_shape_t shape = gos_shape_of(gos_op_in(op, "w"));
  return (uint64_t)shape.dim[0] * (uint64_t)shape.dim[1];
}

// Of `first` and those after it that are like it, in their order: as many as an operand may have elements.
static stacked_t find(gos_ir_t *ir, MlirOperation func, MlirOperation first) {
  stacked_t found = {.count = 0};
  if (!stacks(ir, func, first)) return found;
  uint64_t weights = weights_of(first);
  found.ops[found.count++] = first;
  for (MlirOpOperand use = mlirValueGetFirstUse(gos_op_in(first, "x"));
       !mlirOpOperandIsNull(use) && found.count < GOS_LIST_ROOM;
       use = mlirOpOperandGetNextUse(use)) {
    MlirOperation op = mlirOpOperandGetOwner(use);
    if (!stacks(ir, func, op) || !mlirOperationIsBeforeInBlock(first, op) || !alike(first, op))
      continue;
    if (weights + weights_of(op) > UINT32_MAX) continue;
    weights += weights_of(op);
    size_t at = found.count++;
    for (; mlirOperationIsBeforeInBlock(op, found.ops[at - 1]); at--)
      found.ops[at] = found.ops[at - 1];
    found.ops[at] = op;
  }
  return found;
}

// ---- one in their place -------------------------------------------------------------------------

static int64_t columns_of(MlirOperation op) { return gos_shape_of(gos_op_in(op, "w")).dim[0]; }

static MlirValue join_weights(gos_ir_t *ir, const stacked_t *stack, MlirOperation before) {
  gos_build_t build = gos_build(gos_op_spec("concat"), mlirOperationGetLocation(before));
  gos_shape_t shape = gos_shape_of(gos_op_in(stack->ops[0], "w"));
  shape.dim[0] = 0;
  for (size_t i = 0; i < stack->count; i++) {
    gos_build_in(&build, "inputs", (int)i, gos_op_in(stack->ops[i], "w"));
    shape.dim[0] += columns_of(stack->ops[i]);
  }
  gos_build_int(ir, &build, "axis", 0);
  gos_build_result(&build, gos_tensor_type(ir, &shape));
  return mlirOperationGetResult(gos_build_before(ir, &build, before), 0);
}

static MlirValue multiply(gos_ir_t *ir, const stacked_t *stack, MlirOperation before) {
  MlirValue weights = join_weights(ir, stack, before);
  gos_build_t build = gos_rebuild(stack->ops[0]);
  gos_shape_t shape = gos_shape_of(mlirOperationGetResult(stack->ops[0], 0));
  shape.dim[shape.rank - 1] = gos_shape_of(weights).dim[0];
  gos_build_in(&build, "w", 0, weights);
  build.result_count = 0;
  gos_build_result(&build, gos_tensor_type(ir, &shape));
  return mlirOperationGetResult(gos_build_before(ir, &build, before), 0);
}

// Columns `from` on of `all`, in place of what `op` makes.
static void replace_by_slice(gos_ir_t *ir, MlirOperation op, MlirValue all, int64_t from) {
  gos_shape_t shape = gos_shape_of(mlirOperationGetResult(op, 0));
  int64_t ranges[2 * GPUOS_RANK] = {0};
  for (int d = 0; d < shape.rank; d++) ranges[2 * d + 1] = shape.dim[d];
  ranges[2 * shape.rank - 2] = from;
  ranges[2 * shape.rank - 1] += from;
  gos_build_t build = gos_build(gos_op_spec("slice"), mlirOperationGetLocation(op));
  gos_build_in(&build, "x", 0, all);
  gos_build_ints(ir, &build, "ranges", 2 * (size_t)shape.rank, ranges);
  gos_build_result(&build, gos_tensor_type(ir, &shape));
  MlirValue slice = mlirOperationGetResult(gos_build_before(ir, &build, op), 0);
  gos_op_replace(op, &slice);
}

// Returns the operator that multiplies them all.
static MlirOperation stack_up(gos_ir_t *ir, const stacked_t *stack) {
  MlirValue all = multiply(ir, stack, stack->ops[0]);
  int64_t from = 0;
  for (size_t i = 0; i < stack->count; i++) {
    int64_t columns = columns_of(stack->ops[i]);
    replace_by_slice(ir, stack->ops[i], all, from);
    from += columns;
  }
  return mlirOpResultGetOwner(all);
}

// ---- the pass -----------------------------------------------------------------------------------

static void stack(gos_ir_t *ir, MlirOperation func, void *user) {
  (void)user;
  MlirOperation op = mlirBlockGetFirstOperation(block_of(func));
  while (!mlirOperationIsNull(op)) {
    stacked_t found = find(ir, func, op);
    if (found.count > 1) op = stack_up(ir, &found);
    op = mlirOperationGetNextInBlock(op);
  }
}

bool gos_pass_stack(gos_ir_t *ir) {
  gos_graphs(ir, stack, NULL);
  return true;
}
