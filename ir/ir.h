// ir.h: the gpuos dialect. One table of operators (ops.c) is the schema of model.yaml, the
// dialect's IRDL declaration, --print-ops and the reference page; this header builds and reads
// operators through it.
//
// Called by the front end, the passes and codegen; nothing else touches MLIR attribute names. A
// graph is a func.func in a module: arguments are the tensors that come from outside, the return
// gives outputs and states. Pointwise expressions are func.func's of arith and math on f32 scalars,
// named by a `body` symbol. One thread.
#ifndef GOS_IR_IR_H_
#define GOS_IR_IR_H_

#include <mlir-c/BuiltinAttributes.h>
#include <mlir-c/BuiltinTypes.h>
#include <mlir-c/Diagnostics.h>
#include <mlir-c/IR.h>

#include "arena.h"
#include "diag.h"
#include "gpuos_abi.h"
#include "names.h"

// ---- the operator table (ops.c) -----------------------------------------------------------------

enum { GOS_MAX_PARAMS = 24, GOS_MAX_INS = 24, GOS_MAX_RESULTS = 2, GOS_LIST_ROOM = 8 };

typedef enum gos_param_kind {
  GOS_IN,      // tensor operand: a name, optionally with a slice suffix
  GOS_IN_LIST, // up to GOS_LIST_ROOM operands name0, name1 ...: a YAML list; for map, every free
               // key
  GOS_OUT,     // name of a result
  GOS_INT,     // integer or dimension expression; i64 attribute
  GOS_FLOAT,   // f64 attribute
  GOS_BOOL,    // bool attribute
  GOS_DTYPE,   // string attribute "bf16"; "" = default
  GOS_ENUM,    // string attribute, one of `choices`
  GOS_INTS,    // list of integers or dimension expressions; dense i64 array attribute
  GOS_RANGES,  // "[:, a:b]"; dense i64 array of start, stop a dimension; stop -1 = to the end
  GOS_EXPR,    // pointwise expression; flat symbol attribute of its body function, name `body`
} gos_param_kind_t;

enum { GOS_REQUIRED = 1, GOS_INTERNAL = 2 }; // internal: made by passes, refused in YAML

typedef struct gos_param {
  const char
      *name; // attribute and operand name; "scaling_type" is written scaling: {type: ...} in YAML
  gos_param_kind_t kind;
  unsigned flags;
  const char *fallback; // default value as YAML text; NULL for operands
  const char *choices;  // GOS_ENUM: "half|interleaved"
  const char *doc;      // one line: shape, unit, meaning
} gos_param_t;

typedef struct gos_op_spec {
  const char *name; // without the dialect: "matmul"
  bool internal;
  const char *doc;                    // what it computes, shapes included
  gos_param_t params[GOS_MAX_PARAMS]; // ends with name NULL
} gos_op_spec_t;

extern const gos_op_spec_t gos_op_specs[];          // ends with name NULL
const gos_op_spec_t *gos_op_spec(const char *name); // NULL if none
void gos_ops_print(FILE *out);                      // the reference page, Markdown
char *gos_ops_irdl(gos_arena_t *arena);             // the dialect, IRDL text

// ---- a compilation's IR (dialect.c) -------------------------------------------------------------

typedef struct gos_ir {
  gos_arena_t *arena, *scratch;
  gos_diags_t *diags;
  MlirContext mlir;
  MlirModule module;   // owned
  uint32_t body_count; // of pointwise bodies made, for their names
} gos_ir_t;

// Makes a context with the dialects loaded and an empty module. MLIR's own diagnostics become ours,
// slug [ir].
gos_ir_t *gos_ir_create(gos_arena_t *arena, gos_arena_t *scratch, gos_diags_t *diags);
void gos_ir_destroy(gos_ir_t *ir);

// Replaces the module by a parsed .mlir text; false after an error.
bool gos_ir_parse(gos_ir_t *ir, uint16_t file);
void gos_ir_print(gos_ir_t *ir, bool locations, FILE *out);
// MLIR's verifier plus: every attribute of a gpuos operator is in the table. A failure after a pass
// is a bug.
bool gos_ir_verify(gos_ir_t *ir);
// That and more, of a file: names, roles, fixed shapes, enumerations, pointwise bodies. ([ir])
bool gos_ir_validate(gos_ir_t *ir);

// ---- places -------------------------------------------------------------------------------------

// Location of an operator; keys[i] with at[i] places its parameters.
MlirLocation gos_loc_make(gos_ir_t *ir, gos_loc_t op, size_t count, const char *const *keys,
                          const gos_loc_t *at);
// Place of a parameter of op, of the operator itself if that is not known (or key is NULL).
gos_loc_t gos_op_place(gos_ir_t *ir, MlirOperation op, const char *key);
gos_loc_t gos_value_place(gos_ir_t *ir,
                          MlirValue value); // where an argument is declared or a result's op stands

// ---- types --------------------------------------------------------------------------------------

MlirType gos_dtype_type(gos_ir_t *ir, gpuos_dtype_t dtype);
bool gos_type_dtype(MlirType scalar, gpuos_dtype_t *out_dtype); // false: no dtype of ours
bool gos_dtype_is_fp8(uint32_t dtype);
bool gos_dtype_parse(const char *name, gpuos_dtype_t *out_dtype);

// A tensor's shape. rank -1: not inferred yet (the builder's placeholder, legalize fills it in).
typedef struct gos_shape {
  int rank;
  int64_t dim[GPUOS_RANK];
  gpuos_dtype_t dtype;
} gos_shape_t;
MlirType gos_tensor_type(gos_ir_t *ir, const gos_shape_t *shape);
MlirType gos_unknown_type(gos_ir_t *ir); // tensor<*xf32>
gos_shape_t gos_shape_of(MlirValue value);
uint64_t gos_shape_bytes(const gos_shape_t *shape);
const char *gos_shape_text(gos_ir_t *ir,
                           const gos_shape_t *shape); // "[8192, 4096] bf16", in scratch

// ---- operators (ops_build.c) --------------------------------------------------------------------

// One operator to build: in[] by position among the table's operands (lists take GOS_LIST_ROOM
// places), null where absent; attributes not given take the table's default.
typedef struct gos_build {
  const gos_op_spec_t *spec;
  MlirLocation loc;
  MlirValue in[GOS_MAX_INS];
  MlirNamedAttribute attrs[GOS_MAX_PARAMS];
  size_t attr_count;
  MlirType results[GOS_MAX_RESULTS];
  size_t result_count;
} gos_build_t;

gos_build_t gos_build(const gos_op_spec_t *spec, MlirLocation loc);
// The same operator again, to be changed and built anew: operands, attributes, result types.
gos_build_t gos_rebuild(MlirOperation op);
void gos_build_in(gos_build_t *build, const char *param, int list_index, MlirValue value);
void gos_build_int(gos_ir_t *ir, gos_build_t *build, const char *param, int64_t value);
void gos_build_float(gos_ir_t *ir, gos_build_t *build, const char *param, double value);
void gos_build_bool(gos_ir_t *ir, gos_build_t *build, const char *param, bool value);
void gos_build_string(gos_ir_t *ir, gos_build_t *build, const char *param,
                      const char *value); // DTYPE, ENUM
void gos_build_ints(gos_ir_t *ir, gos_build_t *build, const char *param, size_t count,
                    const int64_t *values);
void gos_build_symbol(gos_ir_t *ir, gos_build_t *build, const char *param,
                      const char *name); // EXPR
void gos_build_result(gos_build_t *build, MlirType type);
// Detached; insert it with mlirBlockAppendOwnedOperation or mlirBlockInsertOwnedOperationBefore.
MlirOperation gos_build_op(gos_ir_t *ir, gos_build_t *build);
// Builds it in front of `before`.
MlirOperation gos_build_before(gos_ir_t *ir, gos_build_t *build, MlirOperation before);
// `op`'s result i becomes values[i]; op is gone.
void gos_op_replace(MlirOperation op, const MlirValue *values);
intptr_t gos_value_uses(MlirValue value);

const gos_op_spec_t *gos_op_get_spec(MlirOperation op);   // NULL: not an operator of ours
bool gos_op_is(MlirOperation op, const char *name);       // "matmul"
MlirValue gos_op_in(MlirOperation op, const char *param); // lists: "in0"; null value if absent
int gos_op_in_count(MlirOperation op, const char *list_param);
int64_t gos_op_int(MlirOperation op, const char *param);
double gos_op_float(MlirOperation op, const char *param);
bool gos_op_bool(MlirOperation op, const char *param);
const char *gos_op_string(gos_ir_t *ir, MlirOperation op, const char *param); // in the arena
void gos_op_set_string(gos_ir_t *ir, MlirOperation op, const char *param, const char *value);
size_t gos_op_ints(MlirOperation op, const char *param, int64_t *out_values, size_t room);
MlirOperation gos_op_body(gos_ir_t *ir, MlirOperation op,
                          const char *param); // func.func, null op if ""

// ---- graphs -------------------------------------------------------------------------------------

// Attributes of a graph's func.func: "gpuos.class" ("live" | "background"), "gpuos.deadline_us" i64
// (0: none), "gpuos.target" string. Of each argument: "gpuos.name", "gpuos.role" ("input" |
// "weight" | "state"). Of each result: "gpuos.name", and for the new content of a state
// "gpuos.state" i64, the argument's number.
typedef struct gos_tensor_decl {
  const char *name;
  gpuos_role_t role; // OUTPUT: a result; STATE: an argument and, if an operator writes it, a result
  gos_shape_t shape;
  gos_loc_t at;
} gos_tensor_decl_t;

// Appends a graph whose arguments are the non-output tensors, in order, and returns its entry
// block.
MlirBlock gos_graph_begin(gos_ir_t *ir, const char *name, gos_loc_t at,
                          const gos_tensor_decl_t *tensors, size_t count, MlirOperation *out_func);
// Ends it: results[i] is the value of declared output or written state decls[i].
void gos_graph_end(gos_ir_t *ir, MlirOperation func, const char *graph_class, int64_t deadline_us,
                   const char *target, const gos_tensor_decl_t *decls, const MlirValue *results,
                   size_t count);
// Calls visit for every graph of the module, in order.
typedef void gos_visit_t(gos_ir_t *ir, MlirOperation func, void *user);
void gos_graphs(gos_ir_t *ir, gos_visit_t *visit, void *user);
// A kernel is one program's alone, or that of a live program and a job (device/roles.cuh): the graphs of a module are all
// one program's, or those of each class. As gos_graphs, for those of one program.
typedef enum gos_role { GOS_ALONE, GOS_LIVE, GOS_JOB } gos_role_t;
void gos_graphs_of(gos_ir_t *ir, gos_role_t role, gos_visit_t *visit, void *user);
bool gos_func_live(gos_ir_t *ir, MlirOperation func);
const char *gos_func_string(gos_ir_t *ir, MlirOperation func, const char *attr); // "" if absent
int64_t gos_func_int(MlirOperation func, const char *attr);                      // 0 if absent
const char *gos_arg_string(gos_ir_t *ir, MlirOperation func, intptr_t arg, const char *attr);
const char *gos_result_string(gos_ir_t *ir, MlirOperation func, intptr_t result, const char *attr);
int64_t gos_result_int(MlirOperation func, intptr_t result, const char *attr, int64_t fallback);

// ---- pointwise bodies (body.c) ------------------------------------------------------------------

// A body under construction: a func.func of `inputs` f32 arguments and one f32 result.
typedef struct gos_body {
  gos_ir_t *ir;
  MlirOperation func;
  MlirBlock block;
  MlirLocation loc;
} gos_body_t;
gos_body_t gos_body_begin(gos_ir_t *ir, size_t inputs, MlirLocation loc);
MlirValue gos_body_input(gos_body_t *body, size_t index);
MlirValue gos_body_const(gos_body_t *body, double value);
// `op` is any gpuos_code_op_t from ADD on but ROUND; b is ignored for one-operand ones.
MlirValue gos_body_op(gos_body_t *body, gpuos_code_op_t op, MlirValue a, MlirValue b);
MlirValue gos_body_round(gos_body_t *body, gpuos_dtype_t dtype, MlirValue a);
// Copies the operations of `from` with its arguments replaced by args; returns its result's copy.
MlirValue gos_body_inline(gos_body_t *body, MlirOperation from, const MlirValue *args);
// At most so many instructions come from the operations of `func`; a null one has none.
size_t gos_body_length(MlirOperation func);
// Ends the function, gives it a fresh symbol name and returns that name (in the arena).
const char *gos_body_end(gos_body_t *body, MlirValue result);
// Whether a function is a body of `inputs` arguments whose code fits.
bool gos_body_is(MlirOperation func, size_t inputs);
// Straight-line code of a body: its first `accs` arguments become ACC, the others INPUT. At most
// GPUOS_MAX_CODE.
size_t gos_body_encode(gos_ir_t *ir, MlirOperation func, size_t accs, gpuos_code_t *out_code);

#endif // GOS_IR_IR_H_
