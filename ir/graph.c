// graph.c: a graph is a func.func whose arguments and results carry names and roles.
#include "ir.h"

#include <string.h>

#include "mlir_text.h"

static MlirAttribute string_attr(gos_ir_t *ir, const char *text) {
  return mlirStringAttrGet(ir->mlir, gos_ref(text));
}

static MlirAttribute int_attr(gos_ir_t *ir, int64_t value) {
  return mlirIntegerAttrGet(mlirIntegerTypeGet(ir->mlir, 64), value);
}

static MlirLocation loc_of(gos_ir_t *ir, gos_loc_t at) {
  return gos_loc_make(ir, at, 0, NULL, NULL);
}

MlirBlock gos_graph_begin(gos_ir_t *ir, const char *name, gos_loc_t at,
                          const gos_tensor_decl_t *tensors, size_t count, MlirOperation *out_func) {
  MlirBlock block = mlirBlockCreate(0, NULL, NULL);
  MlirAttribute *dicts = gos_alloc(ir->scratch, (count + 1) * sizeof *dicts);
  intptr_t args = 0;
  for (size_t i = 0; i < count; i++) {
    if (tensors[i].role == GPUOS_OUTPUT) continue;
    mlirBlockAddArgument(block, gos_tensor_type(ir, &tensors[i].shape), loc_of(ir, tensors[i].at));
    MlirNamedAttribute attrs[] = {
        gos_named(ir->mlir, "gpuos.name", string_attr(ir, tensors[i].name)),
        gos_named(ir->mlir, "gpuos.role", string_attr(ir, gos_role_name(tensors[i].role)))};
    dicts[args++] = mlirDictionaryAttrGet(ir->mlir, 2, attrs);
  }
  MlirOperationState state = mlirOperationStateGet(gos_ref("func.func"), loc_of(ir, at));
  MlirRegion region = mlirRegionCreate();
  mlirRegionAppendOwnedBlock(region, block);
  mlirOperationStateAddOwnedRegions(&state, 1, &region);
  MlirNamedAttribute attrs[] = {
      gos_named(ir->mlir, "sym_name", string_attr(ir, name)),
      gos_named(ir->mlir, "arg_attrs", mlirArrayAttrGet(ir->mlir, args, dicts)),
      // Replaced by gos_graph_end, which knows the results.
      gos_named(ir->mlir, "function_type",
                mlirTypeAttrGet(mlirFunctionTypeGet(ir->mlir, 0, NULL, 0, NULL)))};
  mlirOperationStateAddAttributes(&state, args ? 3 : 1, attrs);
  if (!args) mlirOperationStateAddAttributes(&state, 1, &attrs[2]);
  *out_func = mlirOperationCreate(&state);
  mlirBlockAppendOwnedOperation(mlirModuleGetBody(ir->module), *out_func);
  return block;
}

// The argument that a written state is the new content of.
static int64_t state_argument(gos_ir_t *ir, MlirOperation func, const char *name) {
  MlirAttribute dicts = mlirOperationGetAttributeByName(func, gos_ref("arg_attrs"));
  for (intptr_t i = 0; i < mlirArrayAttrGetNumElements(dicts); i++) {
    MlirAttribute own = mlirDictionaryAttrGetElementByName(mlirArrayAttrGetElement(dicts, i),
                                                           gos_ref("gpuos.name"));
    if (gos_ref_is(mlirStringAttrGetValue(own), name)) return i;
  }
  GOS_BUG("state '%s' of graph '%s' is no argument", name, gos_func_string(ir, func, "sym_name"));
}

static void set_attr(MlirOperation op, const char *name, MlirAttribute value) {
  mlirOperationSetAttributeByName(op, gos_ref(name), value);
}

void gos_graph_end(gos_ir_t *ir, MlirOperation func, const char *graph_class, int64_t deadline_us,
                   const char *target, const gos_tensor_decl_t *decls, const MlirValue *results,
                   size_t count) {
  MlirBlock block = mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
  MlirOperationState state =
      mlirOperationStateGet(gos_ref("func.return"), mlirOperationGetLocation(func));
  mlirOperationStateAddOperands(&state, (intptr_t)count, results);
  mlirBlockAppendOwnedOperation(block, mlirOperationCreate(&state));
  intptr_t args = mlirBlockGetNumArguments(block);
  MlirType *types = gos_alloc(ir->scratch, ((size_t)args + count + 1) * sizeof *types);
  MlirAttribute *dicts = gos_alloc(ir->scratch, (count + 1) * sizeof *dicts);
  for (intptr_t i = 0; i < args; i++) types[i] = mlirValueGetType(mlirBlockGetArgument(block, i));
  for (size_t i = 0; i < count; i++) {
    types[(size_t)args + i] = gos_tensor_type(ir, &decls[i].shape);
    bool state = decls[i].role == GPUOS_STATE;
    MlirNamedAttribute attrs[2] = {
        gos_named(ir->mlir, "gpuos.name", string_attr(ir, decls[i].name))};
    if (state)
      attrs[1] =
          gos_named(ir->mlir, "gpuos.state", int_attr(ir, state_argument(ir, func, decls[i].name)));
    dicts[i] = mlirDictionaryAttrGet(ir->mlir, state ? 2 : 1, attrs);
  }
  set_attr(
      func, "function_type",
      mlirTypeAttrGet(mlirFunctionTypeGet(ir->mlir, args, types, (intptr_t)count, types + args)));
  if (count) set_attr(func, "res_attrs", mlirArrayAttrGet(ir->mlir, (intptr_t)count, dicts));
  set_attr(func, "gpuos.class", string_attr(ir, graph_class));
  set_attr(func, "gpuos.deadline_us", int_attr(ir, deadline_us));
  set_attr(func, "gpuos.target", string_attr(ir, target));
}

void gos_graphs_of(gos_ir_t *ir, gos_role_t role, gos_visit_t *visit, void *user) {
  MlirOperation func = mlirBlockGetFirstOperation(mlirModuleGetBody(ir->module));
  while (!mlirOperationIsNull(func)) {
    MlirOperation next = mlirOperationGetNextInBlock(func);
    if (!mlirAttributeIsNull(mlirOperationGetAttributeByName(func, gos_ref("gpuos.class"))) &&
        (role == GOS_ALONE || gos_func_live(ir, func) == (role == GOS_LIVE)))
      visit(ir, func, user);
    func = next;
  }
}

void gos_graphs(gos_ir_t *ir, gos_visit_t *visit, void *user) {
  gos_graphs_of(ir, GOS_ALONE, visit, user);
}

bool gos_func_live(gos_ir_t *ir, MlirOperation func) {
  return !strcmp(gos_func_string(ir, func, "gpuos.class"), "live");
}

const char *gos_func_string(gos_ir_t *ir, MlirOperation func, const char *attr) {
  MlirAttribute value = mlirOperationGetAttributeByName(func, gos_ref(attr));
  if (mlirAttributeIsNull(value) || !mlirAttributeIsAString(value)) return "";
  MlirStringRef text = mlirStringAttrGetValue(value);
  return gos_strndup(ir->arena, text.data, text.length);
}

int64_t gos_func_int(MlirOperation func, const char *attr) {
  MlirAttribute value = mlirOperationGetAttributeByName(func, gos_ref(attr));
  return mlirAttributeIsNull(value) || !mlirAttributeIsAInteger(value)
             ? 0
             : mlirIntegerAttrGetValueInt(value);
}

static MlirAttribute dict_entry(MlirOperation func, const char *dicts, intptr_t index,
                                const char *attr) {
  MlirAttribute list = mlirOperationGetAttributeByName(func, gos_ref(dicts));
  if (mlirAttributeIsNull(list) || index >= mlirArrayAttrGetNumElements(list)) return list;
  return mlirDictionaryAttrGetElementByName(mlirArrayAttrGetElement(list, index), gos_ref(attr));
}

static const char *entry_string(gos_ir_t *ir, MlirAttribute value) {
  if (mlirAttributeIsNull(value) || !mlirAttributeIsAString(value)) return "";
  MlirStringRef text = mlirStringAttrGetValue(value);
  return gos_strndup(ir->arena, text.data, text.length);
}

const char *gos_arg_string(gos_ir_t *ir, MlirOperation func, intptr_t arg, const char *attr) {
  return entry_string(ir, dict_entry(func, "arg_attrs", arg, attr));
}

const char *gos_result_string(gos_ir_t *ir, MlirOperation func, intptr_t result, const char *attr) {
  return entry_string(ir, dict_entry(func, "res_attrs", result, attr));
}

int64_t gos_result_int(MlirOperation func, intptr_t result, const char *attr, int64_t fallback) {
  MlirAttribute value = dict_entry(func, "res_attrs", result, attr);
  return mlirAttributeIsNull(value) || !mlirAttributeIsAInteger(value)
             ? fallback
             : mlirIntegerAttrGetValueInt(value);
}
