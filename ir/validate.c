// validate.c: what a .mlir file must hold beyond what MLIR's verifier and IRDL see. The front end
// writes such IR; a file may hold anything.
#include "ir.h"

#include <string.h>

#include "mlir_text.h"

typedef struct state {
  gos_ir_t *ir;
  bool ok;
} state_t;

__attribute__((format(printf, 3, 4))) static void refuse(state_t *at, MlirOperation op,
                                                         const char *format, ...) {
  va_list args;
  va_start(args, format);
  gos_error(at->ir->diags, gos_op_place(at->ir, op, NULL), "ir", "%s",
            gos_vformat(at->ir->arena, format, args));
  va_end(args);
  at->ok = false;
}

// ---- tensors ------------------------------------------------------------------------------------

static bool tensor_fits(MlirType type) {
  gpuos_dtype_t dtype;
  if (!mlirTypeIsARankedTensor(type) || !mlirShapedTypeHasStaticShape(type)) return false;
  if (!gos_type_dtype(mlirShapedTypeGetElementType(type), &dtype)) return false;
  if (mlirShapedTypeGetRank(type) > GPUOS_RANK) return false;
  for (intptr_t d = 0; d < mlirShapedTypeGetRank(type); d++)
    if (mlirShapedTypeGetDimSize(type, d) < 1 || mlirShapedTypeGetDimSize(type, d) > INT32_MAX)
      return false;
  return true;
}

static void check_argument(state_t *at, MlirOperation func, intptr_t number, MlirType type) {
  static const char *const roles[] = {"input", "weight", "state"};
  const char *role = gos_arg_string(at->ir, func, number, "gpuos.role");
  bool known = false;
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    known = known || !strcmp(role, roles[i]);
  if (!tensor_fits(type))
    refuse(at, func, "argument %d is no tensor of at most %d fixed dimensions", (int)number,
           GPUOS_RANK);
  if (!known || !gos_arg_string(at->ir, func, number, "gpuos.name")[0])
    refuse(at, func, "argument %d needs gpuos.name, and gpuos.role input, weight or state",
           (int)number);
}

// A result with gpuos.state is what kv_append, or the attention before it is split, makes of that
// argument.
static void check_result(state_t *at, MlirOperation func, intptr_t number, MlirValue value,
                         intptr_t args) {
  int64_t state = gos_result_int(func, number, "gpuos.state", -1);
  if (!gos_result_string(at->ir, func, number, "gpuos.name")[0])
    refuse(at, func, "result %d needs gpuos.name", (int)number);
  if (!tensor_fits(mlirValueGetType(value)))
    refuse(at, func, "result %d is no tensor of at most %d fixed dimensions", (int)number,
           GPUOS_RANK);
  if (state < 0) return;
  bool made = mlirValueIsAOpResult(value) && (mlirOpResultGetResultNumber(value) == 1 ||
                                              gos_op_is(mlirOpResultGetOwner(value), "kv_append"));
  if (state >= args || !made || strcmp(gos_arg_string(at->ir, func, state, "gpuos.role"), "state"))
    refuse(at, func, "result %d with gpuos.state must be what an operator made of that state",
           (int)number);
}

// ---- operators ----------------------------------------------------------------------------------

static bool is_choice(const char *choices, const char *text) {
  size_t length = strlen(text);
  for (const char *c = choices; c; c = strchr(c, '|') ? strchr(c, '|') + 1 : NULL)
    if (!strncmp(c, text, length) && (c[length] == '|' || !c[length])) return true;
  return false;
}

static void check_body(state_t *at, MlirOperation op, const gos_param_t *p) {
  MlirAttribute attr = mlirOperationGetAttributeByName(op, gos_ref(p->name));
  bool none = mlirAttributeIsAString(attr) && mlirStringAttrGetValue(attr).length == 0;
  if (none && !(p->flags & GOS_REQUIRED)) return;
  MlirOperation body = gos_op_body(at->ir, op, p->name);
  bool map = gos_op_is(op, "map");
  int inputs = map ? gos_op_in_count(op, "in")
                   : gos_op_in_count(op, "extra") + (mlirValueIsNull(gos_op_in(op, "w1")) ? 1 : 2);
  if (mlirOperationIsNull(body) || !gos_body_is(body, (size_t)inputs))
    refuse(at, op, "'%s' must name a function of %d f32 values to one, of arith and math", p->name,
           inputs);
}

static void check_param(state_t *at, MlirOperation op, const gos_param_t *p) {
  gpuos_dtype_t dtype;
  if (p->kind == GOS_EXPR) check_body(at, op, p);
  if (p->kind != GOS_DTYPE && p->kind != GOS_ENUM) return;
  const char *text = gos_op_string(at->ir, op, p->name);
  if (p->kind == GOS_DTYPE && text[0] && !gos_dtype_parse(text, &dtype))
    refuse(at, op, "no dtype '%s'", text);
  if (p->kind == GOS_ENUM && !is_choice(p->choices, text))
    refuse(at, op, "'%s' is '%s'; there is %s", p->name, text, p->choices);
}

static void check_graph(gos_ir_t *ir, MlirOperation func, void *user) {
  state_t *at = user;
  MlirBlock block = mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
  const char *graph_class = gos_func_string(ir, func, "gpuos.class");
  if (mlirBlockIsNull(block) ||
      (strcmp(graph_class, "live") && strcmp(graph_class, "background"))) {
    refuse(at, func, "a graph needs a body, and gpuos.class live or background");
    return;
  }
  intptr_t args = mlirBlockGetNumArguments(block);
  for (intptr_t i = 0; i < args; i++)
    check_argument(at, func, i, mlirValueGetType(mlirBlockGetArgument(block, i)));
  MlirOperation ret = mlirBlockGetTerminator(block);
  for (MlirOperation op = mlirBlockGetFirstOperation(block); !mlirOperationEqual(op, ret);
       op = mlirOperationGetNextInBlock(op)) {
    const gos_op_spec_t *spec = gos_op_get_spec(op);
    if (!spec) refuse(at, op, "a graph holds gpuos operators only");
    for (const gos_param_t *p = spec ? spec->params : NULL; p && p->name; p++)
      check_param(at, op, p);
  }
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(ret); i++)
    check_result(at, func, i, mlirOperationGetOperand(ret, i), args);
}

bool gos_ir_validate(gos_ir_t *ir) {
  state_t at = {ir, true};
  if (!gos_ir_verify(ir)) return false;
  gos_graphs(ir, check_graph, &at);
  return at.ok;
}
