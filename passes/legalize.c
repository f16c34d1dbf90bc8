// legalize: gives every tensor its shape and dtype, and writes operators in their basic form.
// needs:    a graph from the front end or from text
// provides: ranked types everywhere; matmul with an epilogue body instead of scales, bias and add;
//           map instead of quantize and dequantize; kv_append before attention instead of attention
//           that writes its cache
// fails:    [matmul-inner] [rank] [dtype] ... (infer.c), [output-shape]
#include <string.h>

#include "infer.h"
#include "passes.h"

static MlirBlock block_of(MlirOperation func) {
  return mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
}

// ---- basic forms --------------------------------------------------------------------------------

// acc * x_scale * w_scale + bias + add, whichever are there, becomes the epilogue.
static void lower_matmul(gos_ir_t *ir, MlirOperation op) {
  static const struct {
    const char *param;
    gpuos_code_op_t op;
  } terms[] = {{"x_scale", GPUOS_CODE_MUL},
               {"w_scale", GPUOS_CODE_MUL},
               {"bias", GPUOS_CODE_ADD},
               {"add", GPUOS_CODE_ADD}};
  enum { TERMS = sizeof terms / sizeof *terms };
  gos_build_t build = gos_rebuild(op);
  size_t count = 0;
  gpuos_code_op_t with[TERMS];
  for (size_t i = 0; i < TERMS; i++) {
    MlirValue extra = gos_op_in(op, terms[i].param);
    if (mlirValueIsNull(extra)) continue;
    with[count] = terms[i].op;
    gos_build_in(&build, "extra", (int)count++, extra);
    gos_build_in(&build, terms[i].param, 0, (MlirValue){NULL});
  }
  if (!count) return;
  gos_body_t body = gos_body_begin(ir, count + 1, build.loc);
  MlirValue value = gos_body_input(&body, 0);
  for (size_t i = 0; i < count; i++)
    value = gos_body_op(&body, with[i], value, gos_body_input(&body, i + 1));
  gos_build_symbol(ir, &build, "body", gos_body_end(&body, value));
  MlirValue out = mlirOperationGetResult(gos_build_before(ir, &build, op), 0);
  gos_op_replace(op, &out);
}

// quantize: x / scale; dequantize: x * scale.
static void lower_scaling(gos_ir_t *ir, MlirOperation op, gpuos_code_op_t with) {
  MlirLocation loc = mlirOperationGetLocation(op);
  gos_body_t body = gos_body_begin(ir, 2, loc);
  MlirValue value = gos_body_op(&body, with, gos_body_input(&body, 0), gos_body_input(&body, 1));
  gos_build_t build = gos_build(gos_op_spec("map"), loc);
  gos_build_symbol(ir, &build, "expr", gos_body_end(&body, value));
  gos_build_in(&build, "in", 0, gos_op_in(op, "x"));
  gos_build_in(&build, "in", 1, gos_op_in(op, "scale"));
  gos_build_string(ir, &build, "dtype", gos_op_string(ir, op, "dtype"));
  gos_build_result(&build, mlirValueGetType(mlirOperationGetResult(op, 0)));
  MlirValue out = mlirOperationGetResult(gos_build_before(ir, &build, op), 0);
  gos_op_replace(op, &out);
}

static void lower_attention(gos_ir_t *ir, MlirOperation op) {
  if (mlirValueIsNull(gos_op_in(op, "cache"))) return;
  static const char *const shared[] = {"k", "v", "cache", "pages", "pos", "seq"};
  gos_build_t append = gos_build(gos_op_spec("kv_append"), mlirOperationGetLocation(op));
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
    gos_build_in(&append, shared[i], 0, gos_op_in(op, shared[i]));
  gos_build_int(ir, &append, "layer", gos_op_int(op, "layer"));
  gos_build_int(ir, &append, "head_dim", gos_op_int(op, "head_dim"));
  gos_build_result(&append, mlirValueGetType(gos_op_in(op, "cache")));
  MlirValue cache = mlirOperationGetResult(gos_build_before(ir, &append, op), 0);
  gos_build_t attend = gos_rebuild(op);
  gos_build_in(&attend, "cache", 0, cache);
  attend.result_count = 1;
  MlirValue out[2] = {mlirOperationGetResult(gos_build_before(ir, &attend, op), 0), cache};
  gos_op_replace(op, out);
}

static void lower_op(gos_ir_t *ir, MlirOperation op) {
  if (gos_op_is(op, "matmul"))
    lower_matmul(ir, op);
  else if (gos_op_is(op, "quantize"))
    lower_scaling(ir, op, GPUOS_CODE_DIV);
  else if (gos_op_is(op, "dequantize"))
    lower_scaling(ir, op, GPUOS_CODE_MUL);
  else if (gos_op_is(op, "attention"))
    lower_attention(ir, op);
}

// ---- the graph's results ------------------------------------------------------------------------

static void check_results(gos_ir_t *ir, MlirOperation func, MlirOperation ret) {
  MlirType type = mlirTypeAttrGetValue(
      mlirOperationGetAttributeByName(func, mlirStringRefCreateFromCString("function_type")));
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(ret); i++) {
    MlirValue value = mlirOperationGetOperand(ret, i);
    gos_shape_t found = gos_shape_of(value);
    if (found.rank < 0 ||
        mlirTypeEqual(mlirValueGetType(value), mlirFunctionTypeGetResult(type, i)))
      continue;
    MlirType want = mlirFunctionTypeGetResult(type, i);
    gos_shape_t declared = {.rank = (int)mlirShapedTypeGetRank(want)};
    gos_type_dtype(mlirShapedTypeGetElementType(want), &declared.dtype);
    for (int d = 0; d < declared.rank; d++) declared.dim[d] = mlirShapedTypeGetDimSize(want, d);
    gos_error(ir->diags, gos_value_place(ir, value), "output-shape",
              "output '%s' is declared %s, but this is %s",
              gos_result_string(ir, func, i, "gpuos.name"), gos_shape_text(ir, &declared),
              gos_shape_text(ir, &found));
  }
}

static void legalize(gos_ir_t *ir, MlirOperation func, void *user) {
  (void)user;
  size_t before = gos_diags_error_count(ir->diags);
  MlirOperation op = mlirBlockGetFirstOperation(block_of(func)), ret = {NULL};
  for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) {
    if (gos_op_get_spec(op))
      gos_infer(ir, op);
    else
      ret = op;
  }
  if (!mlirOperationIsNull(ret)) check_results(ir, func, ret);
  if (gos_diags_error_count(ir->diags) > before) return;
  for (op = mlirBlockGetFirstOperation(block_of(func)); !mlirOperationIsNull(op);) {
    MlirOperation next = mlirOperationGetNextInBlock(op);
    lower_op(ir, op);
    op = next;
  }
}

bool gos_pass_legalize(gos_ir_t *ir) {
  size_t before = gos_diags_error_count(ir->diags);
  gos_graphs(ir, legalize, NULL);
  return gos_diags_error_count(ir->diags) == before;
}
