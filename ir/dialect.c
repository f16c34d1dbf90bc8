// dialect.c: an MLIR context that knows the gpuos dialect, and the module in it.
#include "ir.h"

#include <mlir-c/Dialect/Arith.h>
#include <mlir-c/Dialect/Func.h>
#include <mlir-c/Dialect/IRDL.h>
#include <mlir-c/Dialect/Math.h>
#include <string.h>

#include "mlir_text.h"

static void collect(MlirStringRef part, void *text) {
  gos_text_add_bytes(text, part.data, part.length);
}

// The innermost file:line:col of a location; MLIR prints the same file name that we registered.
static gos_loc_t place_of(gos_ir_t *ir, MlirLocation loc) {
  gos_loc_t at = {0};
  if (mlirLocationIsAName(loc)) return place_of(ir, mlirLocationNameGetChildLoc(loc));
  if (mlirLocationIsAFused(loc) && mlirLocationFusedGetNumLocations(loc) > 0) {
    unsigned count = mlirLocationFusedGetNumLocations(loc);
    MlirLocation *parts = gos_alloc(ir->scratch, count * sizeof *parts);
    mlirLocationFusedGetLocations(loc, parts);
    return place_of(ir, parts[0]);
  }
  if (!mlirLocationIsAFileLineColRange(loc)) return at;
  MlirStringRef name = mlirIdentifierStr(mlirLocationFileLineColRangeGetFilename(loc));
  at.line = (uint32_t)mlirLocationFileLineColRangeGetStartLine(loc);
  at.col = (uint32_t)mlirLocationFileLineColRangeGetStartColumn(loc);
  for (uint16_t file = 0;; file++) {
    const char *known = gos_diags_file_name(ir->diags, file);
    if (!known) return (gos_loc_t){0};
    if (strlen(known) == name.length && !memcmp(known, name.data, name.length)) {
      at.file = file;
      return at;
    }
  }
}

static MlirLogicalResult forward(MlirDiagnostic diagnostic, void *user) {
  gos_ir_t *ir = user;
  gos_text_t text = {.arena = ir->arena};
  mlirDiagnosticPrint(diagnostic, collect, &text);
  gos_loc_t at = place_of(ir, mlirDiagnosticGetLocation(diagnostic));
  if (mlirDiagnosticGetSeverity(diagnostic) == MlirDiagnosticError)
    gos_error(ir->diags, at, "ir", "%s", text.at ? text.at : "");
  return mlirLogicalResultSuccess();
}

static void load_dialects(MlirContext mlir) {
  MlirDialectHandle handles[] = {mlirGetDialectHandle__func__(), mlirGetDialectHandle__arith__(),
                                 mlirGetDialectHandle__math__(), mlirGetDialectHandle__irdl__()};
  for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
    mlirDialectHandleLoadDialect(handles[i], mlir);
}

gos_ir_t *gos_ir_create(gos_arena_t *arena, gos_arena_t *scratch, gos_diags_t *diags) {
  gos_ir_t *ir = gos_alloc(arena, sizeof *ir);
  *ir = (gos_ir_t){.arena = arena, .scratch = scratch, .diags = diags};
  // Without threads: diagnostics keep their order, and a fork is safe.
  ir->mlir = mlirContextCreateWithThreading(false);
  mlirContextAttachDiagnosticHandler(ir->mlir, forward, ir, NULL);
  load_dialects(ir->mlir);
  MlirModule declaration = mlirModuleCreateParse(ir->mlir, gos_ref(gos_ops_irdl(scratch)));
  if (mlirModuleIsNull(declaration) ||
      mlirLogicalResultIsFailure(mlirLoadIRDLDialects(declaration)))
    GOS_BUG("the operator table makes no dialect");
  mlirModuleDestroy(declaration);
  ir->module = mlirModuleCreateEmpty(mlirLocationUnknownGet(ir->mlir));
  return ir;
}

void gos_ir_destroy(gos_ir_t *ir) {
  if (!ir) return;
  mlirModuleDestroy(ir->module);
  mlirContextDestroy(ir->mlir);
}

bool gos_ir_parse(gos_ir_t *ir, uint16_t file) {
  size_t bytes;
  const char *text = gos_diags_file_text(ir->diags, file, &bytes);
  // Parsed as an operation, since only that call takes a file name for the locations.
  MlirOperation op = mlirOperationCreateParse(ir->mlir, mlirStringRefCreate(text, bytes),
                                              gos_ref(gos_diags_file_name(ir->diags, file)));
  if (mlirOperationIsNull(op)) return false;
  MlirModule module = mlirModuleFromOperation(op);
  if (mlirModuleIsNull(module)) {
    gos_error(ir->diags, (gos_loc_t){1, 1, file}, "ir", "the file must hold one builtin.module");
    mlirOperationDestroy(op);
    return false;
  }
  mlirModuleDestroy(ir->module);
  ir->module = module;
  return true;
}

static void to_file(MlirStringRef part, void *out) { fwrite(part.data, 1, part.length, out); }

void gos_ir_print(gos_ir_t *ir, bool locations, FILE *out) {
  MlirOpPrintingFlags flags = mlirOpPrintingFlagsCreate();
  if (locations) mlirOpPrintingFlagsEnableDebugInfo(flags, true, false);
  mlirOperationPrintWithFlags(mlirModuleGetOperation(ir->module), flags, to_file, out);
  mlirOpPrintingFlagsDestroy(flags);
  fputc('\n', out);
}

static bool known_attribute(const gos_op_spec_t *spec, MlirStringRef name) {
  if (gos_ref_is(name, "operandSegmentSizes") || gos_ref_is(name, "resultSegmentSizes"))
    return true;
  for (const gos_param_t *p = spec->params; p->name; p++)
    if (gos_ref_is(name, p->name)) return true;
  return false;
}

// IRDL accepts attributes it does not declare; a misspelt one would be silently ignored.
static MlirWalkResult check_attributes(MlirOperation op, void *user) {
  gos_ir_t *ir = user;
  const gos_op_spec_t *spec = gos_op_get_spec(op);
  if (!spec) return MlirWalkResultAdvance;
  for (intptr_t i = 0; i < mlirOperationGetNumAttributes(op); i++) {
    MlirStringRef name = mlirIdentifierStr(mlirOperationGetAttribute(op, i).name);
    if (!known_attribute(spec, name))
      gos_error(ir->diags, gos_op_place(ir, op, NULL), "ir", "'%s' has no attribute '%.*s'",
                spec->name, (int)name.length, name.data);
  }
  return MlirWalkResultAdvance;
}

bool gos_ir_verify(gos_ir_t *ir) {
  size_t before = gos_diags_error_count(ir->diags);
  MlirOperation module = mlirModuleGetOperation(ir->module);
  if (!mlirOperationVerify(module)) return false;
  mlirOperationWalk(module, check_attributes, ir, MlirWalkPreOrder);
  return gos_diags_error_count(ir->diags) == before;
}

MlirLocation gos_loc_make(gos_ir_t *ir, gos_loc_t op, size_t count, const char *const *keys,
                          const gos_loc_t *at) {
  if (op.line == 0) return mlirLocationUnknownGet(ir->mlir);
  MlirLocation *parts = gos_alloc(ir->scratch, (count + 1) * sizeof *parts);
  MlirStringRef file = gos_ref(gos_diags_file_name(ir->diags, op.file));
  parts[0] = mlirLocationFileLineColGet(ir->mlir, file, op.line, op.col);
  for (size_t i = 0; i < count; i++)
    parts[i + 1] =
        mlirLocationNameGet(ir->mlir, gos_ref(keys[i]),
                            mlirLocationFileLineColGet(ir->mlir, file, at[i].line, at[i].col));
  if (count == 0) return parts[0];
  return mlirLocationFusedGet(ir->mlir, (intptr_t)count + 1, parts, (MlirAttribute){NULL});
}

gos_loc_t gos_op_place(gos_ir_t *ir, MlirOperation op, const char *key) {
  MlirLocation loc = mlirOperationGetLocation(op);
  if (key && mlirLocationIsAFused(loc)) {
    unsigned count = mlirLocationFusedGetNumLocations(loc);
    MlirLocation *parts = gos_alloc(ir->scratch, count * sizeof *parts);
    mlirLocationFusedGetLocations(loc, parts);
    for (unsigned i = 0; i < count; i++)
      if (mlirLocationIsAName(parts[i]) &&
          gos_ref_is(mlirIdentifierStr(mlirLocationNameGetName(parts[i])), key))
        return place_of(ir, parts[i]);
  }
  return place_of(ir, loc);
}

gos_loc_t gos_value_place(gos_ir_t *ir, MlirValue value) {
  if (mlirValueIsAOpResult(value)) return gos_op_place(ir, mlirOpResultGetOwner(value), "out");
  return place_of(ir, mlirValueGetLocation(value));
}
