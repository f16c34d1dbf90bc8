// ops_build.c: builds and reads gpuos operators through the table. Operand order and attribute
// names occur only here.
#include "ir.h"

#include <stdlib.h>
#include <string.h>

#include "mlir_text.h"

// ---- the table's operands, as positions ---------------------------------------------------------

// Number of operand places before parameter `name`, lists counting GOS_LIST_ROOM; -1 if it takes no
// operand.
static int in_position(const gos_op_spec_t *spec, const char *name) {
  int position = 0;
  for (const gos_param_t *p = spec->params; p->name; p++) {
    bool in = p->kind == GOS_IN || p->kind == GOS_IN_LIST;
    if (!strcmp(p->name, name)) return in ? position : -1;
    if (in) position += p->kind == GOS_IN_LIST ? GOS_LIST_ROOM : 1;
  }
  return -1;
}

static int in_total(const gos_op_spec_t *spec) {
  int total = 0;
  for (const gos_param_t *p = spec->params; p->name; p++)
    total += p->kind == GOS_IN_LIST ? GOS_LIST_ROOM : p->kind == GOS_IN;
  return total;
}

// "extra3" is place 3 of list "extra"; "w1" is a parameter of its own.
static int place_of_name(const gos_op_spec_t *spec, const char *name) {
  int position = in_position(spec, name);
  if (position >= 0) return position;
  size_t length = strlen(name);
  if (length < 2 || name[length - 1] < '0' || name[length - 1] >= '0' + GOS_LIST_ROOM) return -1;
  char list[64] = "";
  if (length - 1 >= sizeof list) return -1;
  memcpy(list, name, length - 1);
  position = in_position(spec, list);
  return position < 0 ? -1 : position + (name[length - 1] - '0');
}

// IRDL wants segment sizes as soon as two operands are optional.
static int optional_count(const gos_op_spec_t *spec) {
  int count = 0;
  for (const gos_param_t *p = spec->params; p->name; p++) {
    if (p->kind == GOS_IN_LIST) count += GOS_LIST_ROOM;
    if (p->kind == GOS_IN && !(p->flags & GOS_REQUIRED)) count++;
  }
  return count;
}

// ---- building -----------------------------------------------------------------------------------

gos_build_t gos_build(const gos_op_spec_t *spec, MlirLocation loc) {
  gos_build_t build = {.spec = spec, .loc = loc};
  return build;
}

void gos_build_in(gos_build_t *build, const char *param, int list_index, MlirValue value) {
  int position = in_position(build->spec, param);
  if (position < 0 || position + list_index >= GOS_MAX_INS)
    GOS_BUG("%s has no operand %s[%d]", build->spec->name, param, list_index);
  build->in[position + list_index] = value;
}

static void add_attr(gos_ir_t *ir, gos_build_t *build, const char *param, MlirAttribute value) {
  MlirNamedAttribute attr = gos_named(ir->mlir, param, value);
  for (size_t i = 0; i < build->attr_count; i++)
    if (mlirIdentifierEqual(build->attrs[i].name, attr.name)) {
      build->attrs[i] = attr;
      return;
    }
  if (build->attr_count == GOS_MAX_PARAMS) GOS_BUG("too many attributes");
  build->attrs[build->attr_count++] = attr;
}

void gos_build_int(gos_ir_t *ir, gos_build_t *build, const char *param, int64_t value) {
  add_attr(ir, build, param, mlirIntegerAttrGet(mlirIntegerTypeGet(ir->mlir, 64), value));
}

void gos_build_float(gos_ir_t *ir, gos_build_t *build, const char *param, double value) {
  add_attr(ir, build, param, mlirFloatAttrDoubleGet(ir->mlir, mlirF64TypeGet(ir->mlir), value));
}

void gos_build_bool(gos_ir_t *ir, gos_build_t *build, const char *param, bool value) {
  add_attr(ir, build, param, mlirBoolAttrGet(ir->mlir, value));
}

void gos_build_string(gos_ir_t *ir, gos_build_t *build, const char *param, const char *value) {
  add_attr(ir, build, param, mlirStringAttrGet(ir->mlir, gos_ref(value)));
}

void gos_build_ints(gos_ir_t *ir, gos_build_t *build, const char *param, size_t count,
                    const int64_t *values) {
  add_attr(ir, build, param, mlirDenseI64ArrayGet(ir->mlir, (intptr_t)count, values));
}

void gos_build_symbol(gos_ir_t *ir, gos_build_t *build, const char *param, const char *name) {
  add_attr(ir, build, param, mlirFlatSymbolRefAttrGet(ir->mlir, gos_ref(name)));
}

void gos_build_result(gos_build_t *build, MlirType type) {
  build->results[build->result_count++] = type;
}

static bool has_attr(const gos_build_t *build, const char *name) {
  for (size_t i = 0; i < build->attr_count; i++)
    if (gos_ref_is(mlirIdentifierStr(build->attrs[i].name), name)) return true;
  return false;
}

static void add_fallback(gos_ir_t *ir, gos_build_t *build, const gos_param_t *p) {
  const char *text = p->fallback ? p->fallback : "";
  switch (p->kind) {
  case GOS_IN:
  case GOS_IN_LIST:
  case GOS_OUT: return;
  case GOS_INT: gos_build_int(ir, build, p->name, strtoll(text, NULL, 10)); return;
  case GOS_FLOAT: gos_build_float(ir, build, p->name, strtod(text, NULL)); return;
  case GOS_BOOL: gos_build_bool(ir, build, p->name, !strcmp(text, "true")); return;
  case GOS_DTYPE:
  case GOS_ENUM:
  case GOS_EXPR: gos_build_string(ir, build, p->name, text); return;
  case GOS_INTS:
  case GOS_RANGES: gos_build_ints(ir, build, p->name, 0, NULL); return;
  }
  GOS_BUG("parameter kind %d", (int)p->kind);
}

MlirOperation gos_build_op(gos_ir_t *ir, gos_build_t *build) {
  const gos_op_spec_t *spec = build->spec;
  for (const gos_param_t *p = spec->params; p->name; p++)
    if (!has_attr(build, p->name)) add_fallback(ir, build, p);
  int32_t segments[GOS_MAX_INS];
  MlirValue operands[GOS_MAX_INS];
  intptr_t count = 0, total = in_total(spec);
  for (intptr_t i = 0; i < total; i++) {
    segments[i] = mlirValueIsNull(build->in[i]) ? 0 : 1;
    if (segments[i]) operands[count++] = build->in[i];
  }
  char name[64];
  snprintf(name, sizeof name, "gpuos.%s", spec->name);
  MlirOperationState state = mlirOperationStateGet(gos_ref(name), build->loc);
  mlirOperationStateAddOperands(&state, count, operands);
  mlirOperationStateAddResults(&state, (intptr_t)build->result_count, build->results);
  mlirOperationStateAddAttributes(&state, (intptr_t)build->attr_count, build->attrs);
  MlirNamedAttribute sizes =
      gos_named(ir->mlir, "operandSegmentSizes", mlirDenseI32ArrayGet(ir->mlir, total, segments));
  if (optional_count(spec) > 1) mlirOperationStateAddAttributes(&state, 1, &sizes);
  return mlirOperationCreate(&state);
}

// ---- reading ------------------------------------------------------------------------------------

const gos_op_spec_t *gos_op_get_spec(MlirOperation op) {
  MlirStringRef name = mlirIdentifierStr(mlirOperationGetName(op));
  char text[64];
  if (name.length < 7 || name.length >= sizeof text || memcmp(name.data, "gpuos.", 6)) return NULL;
  memcpy(text, name.data + 6, name.length - 6);
  text[name.length - 6] = 0;
  return gos_op_spec(text);
}

bool gos_op_is(MlirOperation op, const char *name) {
  const gos_op_spec_t *spec = gos_op_get_spec(op);
  return spec && !strcmp(spec->name, name);
}

static MlirAttribute attr_of(MlirOperation op, const char *name) {
  return mlirOperationGetAttributeByName(op, gos_ref(name));
}

static bool in_present(MlirOperation op, const gos_op_spec_t *spec, int place) {
  MlirAttribute sizes = attr_of(op, "operandSegmentSizes");
  if (!mlirAttributeIsNull(sizes)) return mlirDenseI32ArrayGetElement(sizes, place) != 0;
  // At most one optional operand: it is there when there are as many operands as places.
  if (mlirOperationGetNumOperands(op) == in_total(spec)) return true;
  int position = 0;
  for (const gos_param_t *p = spec->params; p->name; p++) {
    if (p->kind != GOS_IN) continue;
    if (position++ == place) return p->flags & GOS_REQUIRED;
  }
  return false;
}

MlirValue gos_op_in(MlirOperation op, const char *param) {
  const gos_op_spec_t *spec = gos_op_get_spec(op);
  int place = place_of_name(spec, param);
  if (place < 0) GOS_BUG("%s has no operand %s", spec->name, param);
  if (!in_present(op, spec, place)) return (MlirValue){NULL};
  intptr_t index = 0;
  for (int i = 0; i < place; i++) index += in_present(op, spec, i);
  return mlirOperationGetOperand(op, index);
}

int gos_op_in_count(MlirOperation op, const char *list_param) {
  const gos_op_spec_t *spec = gos_op_get_spec(op);
  int first = in_position(spec, list_param), count = 0;
  while (count < GOS_LIST_ROOM && in_present(op, spec, first + count)) count++;
  return count;
}

int64_t gos_op_int(MlirOperation op, const char *param) {
  return mlirIntegerAttrGetValueInt(attr_of(op, param));
}

double gos_op_float(MlirOperation op, const char *param) {
  return mlirFloatAttrGetValueDouble(attr_of(op, param));
}

bool gos_op_bool(MlirOperation op, const char *param) {
  return mlirBoolAttrGetValue(attr_of(op, param));
}

const char *gos_op_string(gos_ir_t *ir, MlirOperation op, const char *param) {
  MlirStringRef text = mlirStringAttrGetValue(attr_of(op, param));
  return gos_strndup(ir->arena, text.data, text.length);
}

void gos_op_set_string(gos_ir_t *ir, MlirOperation op, const char *param, const char *value) {
  mlirOperationSetAttributeByName(op, gos_ref(param), mlirStringAttrGet(ir->mlir, gos_ref(value)));
}

size_t gos_op_ints(MlirOperation op, const char *param, int64_t *out_values, size_t room) {
  MlirAttribute list = attr_of(op, param);
  size_t count = (size_t)mlirDenseArrayGetNumElements(list);
  for (size_t i = 0; i < count && i < room; i++)
    out_values[i] = mlirDenseI64ArrayGetElement(list, (intptr_t)i);
  return count;
}

MlirOperation gos_op_body(gos_ir_t *ir, MlirOperation op, const char *param) {
  MlirAttribute symbol = attr_of(op, param);
  if (mlirAttributeIsNull(symbol) || !mlirAttributeIsAFlatSymbolRef(symbol))
    return (MlirOperation){NULL};
  MlirStringRef name = mlirFlatSymbolRefAttrGetValue(symbol);
  MlirBlock block = mlirModuleGetBody(ir->module);
  for (MlirOperation func = mlirBlockGetFirstOperation(block); !mlirOperationIsNull(func);
       func = mlirOperationGetNextInBlock(func)) {
    MlirAttribute own = attr_of(func, "sym_name");
    if (!mlirAttributeIsNull(own) && mlirStringRefEqual(mlirStringAttrGetValue(own), name))
      return func;
  }
  return (MlirOperation){NULL};
}

// ---- rewriting ----------------------------------------------------------------------------------

gos_build_t gos_rebuild(MlirOperation op) {
  const gos_op_spec_t *spec = gos_op_get_spec(op);
  gos_build_t build = gos_build(spec, mlirOperationGetLocation(op));
  intptr_t operand = 0;
  for (int place = 0; place < in_total(spec); place++)
    if (in_present(op, spec, place)) build.in[place] = mlirOperationGetOperand(op, operand++);
  for (intptr_t i = 0; i < mlirOperationGetNumAttributes(op); i++) {
    MlirNamedAttribute attr = mlirOperationGetAttribute(op, i);
    if (!gos_ref_is(mlirIdentifierStr(attr.name), "operandSegmentSizes"))
      build.attrs[build.attr_count++] = attr;
  }
  for (intptr_t i = 0; i < mlirOperationGetNumResults(op); i++)
    gos_build_result(&build, mlirValueGetType(mlirOperationGetResult(op, i)));
  return build;
}

MlirOperation gos_build_before(gos_ir_t *ir, gos_build_t *build, MlirOperation before) {
  MlirOperation op = gos_build_op(ir, build);
  mlirBlockInsertOwnedOperationBefore(mlirOperationGetBlock(before), before, op);
  return op;
}

void gos_op_replace(MlirOperation op, const MlirValue *values) {
  for (intptr_t i = 0; i < mlirOperationGetNumResults(op); i++)
    mlirValueReplaceAllUsesOfWith(mlirOperationGetResult(op, i), values[i]);
  mlirOperationRemoveFromParent(op);
  mlirOperationDestroy(op);
}

intptr_t gos_value_uses(MlirValue value) {
  intptr_t count = 0;
  for (MlirOpOperand use = mlirValueGetFirstUse(value); !mlirOpOperandIsNull(use);
       use = mlirOpOperandGetNextUse(use))
    count++;
  return count;
}
