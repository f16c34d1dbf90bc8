// body.c: pointwise expressions as func.func's of arith and math on f32, and their straight-line
// code.
#include "ir.h"

#include <string.h>

#include "mlir_text.h"

// MLIR's name of each code operation; ACC, INPUT, CONST and ROUND are written differently.
static const char *const mlir_names[GPUOS_CODE_COUNT] = {
    [GPUOS_CODE_ADD] = "arith.addf",    [GPUOS_CODE_SUB] = "arith.subf",
    [GPUOS_CODE_MUL] = "arith.mulf",    [GPUOS_CODE_DIV] = "arith.divf",
    [GPUOS_CODE_MAX] = "arith.maxnumf", [GPUOS_CODE_MIN] = "arith.minnumf",
    [GPUOS_CODE_NEG] = "arith.negf",    [GPUOS_CODE_ABS] = "math.absf",
    [GPUOS_CODE_EXP] = "math.exp",      [GPUOS_CODE_LOG] = "math.log",
    [GPUOS_CODE_SQRT] = "math.sqrt",    [GPUOS_CODE_RSQRT] = "math.rsqrt",
    [GPUOS_CODE_TANH] = "math.tanh",    [GPUOS_CODE_ERF] = "math.erf",
};

static bool takes_two(gpuos_code_op_t op) { return op >= GPUOS_CODE_ADD && op <= GPUOS_CODE_MIN; }

gos_body_t gos_body_begin(gos_ir_t *ir, size_t inputs, MlirLocation loc) {
  MlirType f32 = mlirF32TypeGet(ir->mlir);
  MlirType *types = gos_alloc(ir->scratch, (inputs + 1) * sizeof *types);
  MlirLocation *locs = gos_alloc(ir->scratch, (inputs + 1) * sizeof *locs);
  for (size_t i = 0; i < inputs; i++) types[i] = f32, locs[i] = loc;
  gos_body_t body = {.ir = ir, .loc = loc, .block = mlirBlockCreate((intptr_t)inputs, types, locs)};
  MlirOperationState state = mlirOperationStateGet(gos_ref("func.func"), loc);
  MlirRegion region = mlirRegionCreate();
  mlirRegionAppendOwnedBlock(region, body.block);
  mlirOperationStateAddOwnedRegions(&state, 1, &region);
  MlirType type = mlirFunctionTypeGet(ir->mlir, (intptr_t)inputs, types, 1, &f32);
  MlirNamedAttribute attrs[] = {
      gos_named(ir->mlir, "sym_name", mlirStringAttrGet(ir->mlir, gos_ref("body"))),
      gos_named(ir->mlir, "function_type", mlirTypeAttrGet(type)),
      gos_named(ir->mlir, "sym_visibility", mlirStringAttrGet(ir->mlir, gos_ref("private")))};
  mlirOperationStateAddAttributes(&state, 3, attrs);
  body.func = mlirOperationCreate(&state);
  return body;
}

MlirValue gos_body_input(gos_body_t *body, size_t index) {
  return mlirBlockGetArgument(body->block, (intptr_t)index);
}

static MlirValue append(gos_body_t *body, const char *name, size_t count, const MlirValue *in,
                        MlirType type, const MlirNamedAttribute *attr) {
  MlirOperationState state = mlirOperationStateGet(gos_ref(name), body->loc);
  mlirOperationStateAddOperands(&state, (intptr_t)count, in);
  mlirOperationStateAddResults(&state, 1, &type);
  if (attr) mlirOperationStateAddAttributes(&state, 1, attr);
  MlirOperation op = mlirOperationCreate(&state);
  mlirBlockAppendOwnedOperation(body->block, op);
  return mlirOperationGetResult(op, 0);
}

MlirValue gos_body_const(gos_body_t *body, double value) {
  MlirContext mlir = body->ir->mlir;
  MlirType f32 = mlirF32TypeGet(mlir);
  MlirNamedAttribute attr = gos_named(mlir, "value", mlirFloatAttrDoubleGet(mlir, f32, value));
  return append(body, "arith.constant", 0, NULL, f32, &attr);
}

MlirValue gos_body_op(gos_body_t *body, gpuos_code_op_t op, MlirValue a, MlirValue b) {
  if (!mlir_names[op]) GOS_BUG("code operation %d has no body form", (int)op);
  MlirValue in[2] = {a, b};
  return append(body, mlir_names[op], takes_two(op) ? 2 : 1, in, mlirF32TypeGet(body->ir->mlir),
                NULL);
}

MlirValue gos_body_round(gos_body_t *body, gpuos_dtype_t dtype, MlirValue a) {
  if (dtype == GPUOS_F32) return a;
  MlirValue narrow = append(body, "arith.truncf", 1, &a, gos_dtype_type(body->ir, dtype), NULL);
  return append(body, "arith.extf", 1, &narrow, mlirF32TypeGet(body->ir->mlir), NULL);
}

// ---- walking a body in order, values numbered ---------------------------------------------------

static MlirBlock block_of(MlirOperation func) {
  return mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
}

static bool named(MlirOperation op, const char *name) {
  return gos_ref_is(mlirIdentifierStr(mlirOperationGetName(op)), name);
}

// Maps values of one body to something of another, by linear search: bodies have a dozen
// operations.
typedef struct binding {
  MlirValue from, to;
  uint8_t code;
} binding_t;
typedef GOS_ARRAY(binding_t) bindings_t;

static binding_t *lookup(bindings_t *bindings, MlirValue from) {
  for (size_t i = bindings->count; i-- > 0;)
    if (mlirValueEqual(bindings->at[i].from, from)) return &bindings->at[i];
  GOS_BUG("a pointwise body uses a value from outside");
}

MlirValue gos_body_inline(gos_body_t *body, MlirOperation from, const MlirValue *args) {
  gos_arena_t *arena = body->ir->scratch;
  MlirBlock block = block_of(from);
  bindings_t bindings = {0};
  for (intptr_t i = 0; i < mlirBlockGetNumArguments(block); i++)
    *gos_push(arena, &bindings) =
        (binding_t){.from = mlirBlockGetArgument(block, i), .to = args[i]};
  for (MlirOperation op = mlirBlockGetFirstOperation(block);;
       op = mlirOperationGetNextInBlock(op)) {
    if (named(op, "func.return")) return lookup(&bindings, mlirOperationGetOperand(op, 0))->to;
    MlirOperation copy = mlirOperationClone(op);
    for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); i++)
      mlirOperationSetOperand(copy, i, lookup(&bindings, mlirOperationGetOperand(op, i))->to);
    mlirBlockAppendOwnedOperation(body->block, copy);
    *gos_push(arena, &bindings) =
        (binding_t){.from = mlirOperationGetResult(op, 0), .to = mlirOperationGetResult(copy, 0)};
  }
}

size_t gos_body_length(MlirOperation func) {
  size_t count = 0;
  if (mlirOperationIsNull(func)) return 0;
  for (MlirOperation op = mlirBlockGetFirstOperation(block_of(func)); !mlirOperationIsNull(op);
       op = mlirOperationGetNextInBlock(op))
    count++; // the return may take one, too
  return count;
}

const char *gos_body_end(gos_body_t *body, MlirValue result) {
  gos_ir_t *ir = body->ir;
  MlirOperationState state = mlirOperationStateGet(gos_ref("func.return"), body->loc);
  mlirOperationStateAddOperands(&state, 1, &result);
  mlirBlockAppendOwnedOperation(body->block, mlirOperationCreate(&state));
  const char *name = gos_format(ir->arena, "pointwise_%u", ir->body_count++);
  mlirOperationSetAttributeByName(body->func, gos_ref("sym_name"),
                                  mlirStringAttrGet(ir->mlir, gos_ref(name)));
  mlirBlockAppendOwnedOperation(mlirModuleGetBody(ir->module), body->func);
  return name;
}

static gpuos_code_t encode_op(MlirOperation op, bindings_t *bindings) {
  gpuos_code_t code = {0};
  if (named(op, "arith.constant")) {
    MlirAttribute value = mlirOperationGetAttributeByName(op, gos_ref("value"));
    return (gpuos_code_t){.op = GPUOS_CODE_CONST, .imm = (float)mlirFloatAttrGetValueDouble(value)};
  }
  code.a = lookup(bindings, mlirOperationGetOperand(op, 0))->code;
  if (named(op, "arith.truncf")) { // its extf adds nothing
    gpuos_dtype_t dtype;
    if (!gos_type_dtype(mlirValueGetType(mlirOperationGetResult(op, 0)), &dtype))
      GOS_BUG("cast type");
    code.op = GPUOS_CODE_ROUND;
    code.b = (uint8_t)dtype;
    return code;
  }
  for (int i = GPUOS_CODE_ADD; i < GPUOS_CODE_COUNT; i++)
    if (mlir_names[i] && named(op, mlir_names[i])) {
      code.op = (uint8_t)i;
      if (takes_two((gpuos_code_op_t)i))
        code.b = lookup(bindings, mlirOperationGetOperand(op, 1))->code;
      return code;
    }
  GOS_BUG("a pointwise body holds an operation outside arith and math");
}

static bool is_f32(MlirValue value) { return mlirTypeIsAF32(mlirValueGetType(value)); }

static bool op_is_ours(MlirOperation op) {
  if (named(op, "func.return")) return mlirOperationGetNumOperands(op) == 1;
  gpuos_dtype_t dtype;
  if (named(op, "arith.truncf")) // only to be widened again
    return is_f32(mlirOperationGetOperand(op, 0)) &&
           gos_type_dtype(mlirValueGetType(mlirOperationGetResult(op, 0)), &dtype);
  if (mlirOperationGetNumResults(op) != 1 || !is_f32(mlirOperationGetResult(op, 0))) return false;
  if (named(op, "arith.constant")) return true;
  if (named(op, "arith.extf")) {
    MlirValue narrow = mlirOperationGetOperand(op, 0);
    return mlirValueIsAOpResult(narrow) && named(mlirOpResultGetOwner(narrow), "arith.truncf");
  }
  for (int i = GPUOS_CODE_ADD; i < GPUOS_CODE_COUNT; i++)
    if (mlir_names[i] && named(op, mlir_names[i])) return true;
  return false;
}

bool gos_body_is(MlirOperation func, size_t inputs) {
  if (!named(func, "func.func") || mlirOperationGetNumRegions(func) != 1) return false;
  MlirBlock block = block_of(func);
  if (mlirBlockIsNull(block) || (size_t)mlirBlockGetNumArguments(block) != inputs) return false;
  for (size_t i = 0; i < inputs; i++)
    if (!is_f32(mlirBlockGetArgument(block, (intptr_t)i))) return false;
  size_t count = inputs;
  MlirOperation op = mlirBlockGetFirstOperation(block);
  for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op), count++)
    if (!op_is_ours(op)) return false;
  return count < GPUOS_MAX_CODE;
}

size_t gos_body_encode(gos_ir_t *ir, MlirOperation func, size_t accs, gpuos_code_t *out_code) {
  MlirBlock block = block_of(func);
  bindings_t bindings = {0};
  size_t count = 0;
  for (intptr_t i = 0; i < mlirBlockGetNumArguments(block); i++) {
    bool acc = (size_t)i < accs;
    *gos_push(ir->scratch, &bindings) =
        (binding_t){.from = mlirBlockGetArgument(block, i), .code = (uint8_t)count};
    out_code[count++] = (gpuos_code_t){.op = acc ? GPUOS_CODE_ACC : GPUOS_CODE_INPUT,
                                       .a = (uint8_t)(acc ? (size_t)i : (size_t)i - accs)};
  }
  for (MlirOperation op = mlirBlockGetFirstOperation(block);;
       op = mlirOperationGetNextInBlock(op)) {
    if (named(op, "func.return")) {
      // The last value is the result; a body that returns an earlier one gets it again, unchanged.
      uint8_t result = lookup(&bindings, mlirOperationGetOperand(op, 0))->code;
      if (result + 1u != count)
        out_code[count++] = (gpuos_code_t){.op = GPUOS_CODE_MAX, .a = result, .b = result};
      return count;
    }
    binding_t made = {.from = mlirOperationGetResult(op, 0), .code = (uint8_t)count};
    if (named(op, "arith.extf"))
      made.code = lookup(&bindings, mlirOperationGetOperand(op, 0))->code;
    else {
      if (count >= GPUOS_MAX_CODE - 1) GOS_BUG("a pointwise body is too long");
      out_code[count++] = encode_op(op, &bindings);
    }
    *gos_push(ir->scratch, &bindings) = made;
  }
}
