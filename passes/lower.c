// lower: turns each graph into operators over iteration spaces and tensors into strided views.
// needs:    fuse
// provides: plan.buffers, values, ops with extents, operands, code and parameters; tile shapes
//           still 0
// fails:    [view] more than four dimensions that do not merge; [too-large] beyond 32-bit extents;
//           [tensor-duplicate] two graphs with one name
// source:   gpuos_abi.h says what each kind iterates over
#include "lower.h"

#include <string.h>

#include "passes.h"

static MlirBlock block_of(MlirOperation func) {
  return mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
}

// ---- buffers and values -------------------------------------------------------------------------

static void add_buffer(gos_plan_t *plan, const char *name, gpuos_role_t role, gos_shape_t shape,
                       gos_loc_t at) {
  *gos_push(plan->ir->arena, &plan->buffers) = (gos_buffer_t){
      .name = name, .role = role, .shape = shape, .bytes = gos_shape_bytes(&shape), .at = at};
}

static gpuos_role_t role_named(const char *name) {
  return !strcmp(name, "weight")  ? GPUOS_WEIGHT
         : !strcmp(name, "state") ? GPUOS_STATE
                                  : GPUOS_INPUT;
}

// The weight that a concat takes as part `part` and whose buffer another can follow, as an argument's number; -1:
// it is none.
static intptr_t weight_part(gos_ir_t *ir, MlirOperation func, MlirOperation concat, int part) {
  MlirValue value = gos_op_in(concat, gos_format(ir->scratch, "inputs%d", part));
  if (!mlirValueIsABlockArgument(value)) return -1;
  intptr_t arg = mlirBlockArgumentGetArgNumber(value);
  gos_shape_t shape = gos_shape_of(value);
  bool fits = role_named(gos_arg_string(ir, func, arg, "gpuos.role")) == GPUOS_WEIGHT &&
              gos_shape_bytes(&shape) % GPUOS_BUFFER_ALIGNMENT == 0;
  return fits ? arg : -1;
}

// Which argument's buffer follows which one's: those of weights that are concatenated by rows. An argument is in one
// such row at most; what else is made of it is copied.
typedef struct joints {
  intptr_t *next, *before; // by argument; -1: none
} joints_t;

static void join_parts(gos_ir_t *ir, MlirOperation func, MlirOperation concat, joints_t *joints) {
  gos_shape_t shape = gos_shape_of(mlirOperationGetResult(concat, 0));
  int count = gos_op_in_count(concat, "inputs");
  intptr_t parts[GOS_LIST_ROOM];
  if (gos_concat_axis(concat) != 0) return;
  if (gos_shape_bytes(&shape) / gpuos_dtype_bytes(shape.dtype) > UINT32_MAX) return;
  for (int i = 0; i < count; i++) {
    parts[i] = weight_part(ir, func, concat, i);
    if (parts[i] < 0 || joints->next[parts[i]] >= 0 || joints->before[parts[i]] >= 0) return;
    for (int j = 0; j < i; j++)
      if (parts[j] == parts[i]) return;
  }
  for (int i = 1; i < count; i++)
    joints->next[parts[i - 1]] = parts[i], joints->before[parts[i]] = parts[i - 1];
}

static joints_t find_joints(gos_ir_t *ir, MlirOperation func) {
  MlirBlock block = block_of(func);
  size_t args = (size_t)mlirBlockGetNumArguments(block);
  joints_t joints = {gos_alloc(ir->scratch, (args + 1) * sizeof(intptr_t)),
                     gos_alloc(ir->scratch, (args + 1) * sizeof(intptr_t))};
  for (size_t i = 0; i < args; i++) joints.next[i] = joints.before[i] = -1;
  for (MlirOperation op = mlirBlockGetFirstOperation(block); !mlirOperationIsNull(op);
       op = mlirOperationGetNextInBlock(op))
    if (gos_op_get_spec(op) && gos_op_is(op, "concat")) join_parts(ir, func, op, &joints);
  return joints;
}

typedef struct graphs {
  gos_plan_t *plan;
  uint32_t next_buffer;
  GOS_ARRAY(uint32_t) buffer_of; // the arguments of all graphs, one after another
  size_t next_argument;
  bool ok;
} graphs_t;

static void add_argument(gos_ir_t *ir, MlirOperation func, intptr_t i, graphs_t *all,
                         uint32_t *buffer_of, bool joined) {
  gos_plan_t *plan = all->plan;
  MlirValue arg = mlirBlockGetArgument(block_of(func), i);
  buffer_of[i] = (uint32_t)plan->buffers.count;
  add_buffer(plan, gos_arg_string(ir, func, i, "gpuos.name"),
             role_named(gos_arg_string(ir, func, i, "gpuos.role")), gos_shape_of(arg),
             gos_value_place(ir, arg));
  plan->buffers.at[buffer_of[i]].joined = joined;
}

// In the order in which they are declared, but for those that are joined to another one.
static void add_graph_buffers(gos_ir_t *ir, MlirOperation func, void *user) {
  graphs_t *all = user;
  gos_plan_t *plan = all->plan;
  intptr_t args = mlirBlockGetNumArguments(block_of(func));
  joints_t joints = find_joints(ir, func);
  size_t first = all->buffer_of.count;
  for (intptr_t i = 0; i < args; i++) *gos_push(ir->arena, &all->buffer_of) = GPUOS_NONE;
  for (intptr_t i = 0; i < args; i++)
    for (intptr_t at = i; joints.before[i] < 0 && at >= 0; at = joints.next[at])
      add_argument(ir, func, at, all, all->buffer_of.at + first, at != i);
  MlirOperation ret = mlirBlockGetTerminator(block_of(func));
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(ret); i++)
    if (gos_result_int(func, i, "gpuos.state", -1) < 0) {
      MlirValue value = mlirOperationGetOperand(ret, i);
      add_buffer(plan, gos_result_string(ir, func, i, "gpuos.name"), GPUOS_OUTPUT,
                 gos_shape_of(value), gos_value_place(ir, value));
    }
}

uint32_t gos_lower_value(gos_plan_t *plan, const char *name, uint32_t buffer, uint64_t bytes) {
  *gos_push(plan->ir->arena, &plan->values) = (gos_value_t){.name = name,
                                                            .buffer = buffer,
                                                            .bytes = bytes,
                                                            .first_op = GPUOS_NONE,
                                                            .last_op = GPUOS_NONE};
  return (uint32_t)plan->values.count - 1;
}

// ---- where tensors live -------------------------------------------------------------------------

gos_view_t gos_lower_view(gos_lower_t *at, MlirValue value) {
  gos_view_t *view = gos_bindings_find(&at->views, value);
  if (!view) GOS_BUG("a tensor is used before it is lowered");
  return *view;
}

void gos_lower_bind(gos_lower_t *at, MlirValue value, gos_view_t view) {
  gos_bindings_add(at->ir->arena, &at->views, value, view);
}

// A place for `value` to be written to: the one assigned beforehand, else a new intermediate. Binds
// it.
gos_view_t gos_lower_place(gos_lower_t *at, MlirValue value, const char *name) {
  gos_shape_t shape = gos_shape_of(value);
  gos_view_t *target = gos_bindings_find(&at->targets, value);
  gos_view_t view = target ? *target
                           : gos_view_dense(gos_lower_value(at->plan, name, at->plan->workspace,
                                                            gos_shape_bytes(&shape)),
                                            &shape);
  gos_lower_bind(at, value, view);
  return view;
}

// ---- where results must go, decided backwards before anything is lowered ------------------------

static bool computes(MlirValue value) {
  if (!mlirValueIsAOpResult(value)) return false;
  static const char *const views[] = {"reshape", "transpose", "slice", "kv_append"};
  MlirOperation op = mlirOpResultGetOwner(value);
  for (size_t i = 0; i < sizeof views / sizeof *views; i++)
    if (gos_op_is(op, views[i])) return false;
  return true;
}

// Whether the operator that makes `value` can write it through `view`: what it walks as one
// dimension, rows or a batch, must be one there.
static bool writes_through(MlirValue value, const gos_view_t *view) {
  MlirOperation op = mlirOpResultGetOwner(value);
  int last = gos_op_is(op, "argmax")                                ? view->rank - 1
             : gos_op_is(op, "rmsnorm") || gos_op_is(op, "softmax") ? view->rank - 2
             : gos_op_is(op, "matmul")                              ? view->rank - 3
                                                                    : 0;
  return last <= 0 || gos_view_can_merge(view, 0, last);
}

static void assign_outputs(gos_lower_t *at, MlirOperation ret, uint32_t first_output) {
  uint32_t buffer = first_output;
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(ret); i++) {
    if (gos_result_int(at->func, i, "gpuos.state", -1) >= 0) continue;
    MlirValue value = mlirOperationGetOperand(ret, i);
    gos_buffer_t *to = &at->plan->buffers.at[buffer];
    uint32_t written = gos_lower_value(at->plan, to->name, buffer++, to->bytes);
    gos_view_t view = gos_view_dense(written, &to->shape);
    if (computes(value) && !gos_bindings_find(&at->targets, value))
      gos_bindings_add(at->ir->arena, &at->targets, value, view);
  }
}

// Weights are in place. A concat that is returned has a place of its own.
static bool is_in_place(const gos_lower_t *at, MlirOperation concat) {
  return gos_concat_joined(at, concat) != GPUOS_NONE &&
         !gos_bindings_find(&at->targets, mlirOperationGetResult(concat, 0));
}

static void assign_concats(gos_lower_t *at) {
  GOS_ARRAY(MlirOperation) ops = {0};
  for (MlirOperation op = mlirBlockGetFirstOperation(block_of(at->func)); !mlirOperationIsNull(op);
       op = mlirOperationGetNextInBlock(op))
    if (gos_op_get_spec(op) && gos_op_is(op, "concat") && !is_in_place(at, op))
      *gos_push(at->ir->scratch, &ops) = op;
  for (size_t n = ops.count; n-- > 0;) {
    MlirValue out = mlirOperationGetResult(ops.at[n], 0);
    gos_shape_t shape = gos_shape_of(out);
    gos_view_t *target = gos_bindings_find(&at->targets, out), whole;
    if (target)
      whole = *target;
    else {
      whole = gos_view_dense(
          gos_lower_value(at->plan, "concat", at->plan->workspace, gos_shape_bytes(&shape)),
          &shape);
      gos_bindings_add(at->ir->arena, &at->targets, out, whole);
    }
    int axis = gos_concat_axis(ops.at[n]);
    int64_t start = 0;
    for (int i = 0; i < gos_op_in_count(ops.at[n], "inputs"); i++) {
      MlirValue value = gos_op_in(ops.at[n], gos_format(at->ir->scratch, "inputs%d", i));
      int64_t length = gos_shape_of(value).dim[axis];
      gos_view_t part = gos_concat_part(&whole, axis, start, length);
      start += length;
      if (computes(value) && !gos_bindings_find(&at->targets, value) &&
          writes_through(value, &part))
        gos_bindings_add(at->ir->arena, &at->targets, value, part);
    }
  }
}

// Outputs that nothing wrote in place: an argument, a view, a tensor returned twice.
static bool copy_outputs(gos_lower_t *at, MlirOperation ret, uint32_t first_value) {
  uint32_t written = first_value;
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(ret); i++) {
    if (gos_result_int(at->func, i, "gpuos.state", -1) >= 0) continue;
    gos_view_t x = gos_lower_view(at, mlirOperationGetOperand(ret, i));
    uint32_t value = written++;
    if (x.value == value) continue;
    gos_view_t out =
        gos_view_dense(value, &at->plan->buffers.at[at->plan->values.at[value].buffer].shape);
    // Named after an operator for its place in the file; a return has none of its own.
    MlirOperation from = mlirBlockGetFirstOperation(block_of(at->func));
    if (mlirOperationEqual(from, ret)) from = (MlirOperation){NULL};
    if (mlirOperationIsNull(from)) {
      gos_error(at->ir->diags, gos_value_place(at->ir, mlirOperationGetOperand(ret, i)),
                "graph-empty", "the graph computes nothing");
      return false;
    }
    if (!gos_lower_map_op(at, from, (MlirOperation){NULL}, out, 1, &x)) return false;
  }
  return true;
}

static void lower_graph(gos_ir_t *ir, MlirOperation func, void *user) {
  graphs_t *all = user;
  gos_plan_t *plan = all->plan;
  gos_lower_t at = {.ir = ir, .plan = plan, .func = func};
  MlirBlock block = block_of(func);
  MlirOperation ret = mlirBlockGetTerminator(block);
  intptr_t args = mlirBlockGetNumArguments(block);
  at.buffer_of = all->buffer_of.at + all->next_argument;
  all->next_argument += (size_t)args;
  for (intptr_t i = 0; i < args; i++) {
    uint32_t buffer = at.buffer_of[i];
    gos_lower_bind(&at, mlirBlockGetArgument(block, i),
                   gos_view_dense(buffer, &plan->buffers.at[buffer].shape));
  }
  uint32_t first_value = (uint32_t)plan->values.count, first_op = (uint32_t)plan->ops.count;
  assign_outputs(&at, ret, all->next_buffer + (uint32_t)args);
  uint32_t outputs = (uint32_t)plan->values.count - first_value;
  assign_concats(&at);
  for (MlirOperation op = mlirBlockGetFirstOperation(block); !mlirOperationEqual(op, ret);
       op = mlirOperationGetNextInBlock(op))
    all->ok = all->ok && gos_lower_op(&at, op);
  all->ok = all->ok && copy_outputs(&at, ret, first_value);
  all->next_buffer += (uint32_t)args + outputs;
  gos_graph_t *graph = gos_push(ir->arena, &plan->graphs);
  *graph = (gos_graph_t){.name = gos_func_string(ir, func, "sym_name"),
                         .at = gos_op_place(ir, func, NULL)};
  graph->graph.live = gos_func_live(ir, func);
  graph->graph.deadline_us = (uint32_t)gos_func_int(func, "gpuos.deadline_us");
  graph->graph.first_op = first_op;
  graph->graph.op_count = (uint32_t)plan->ops.count - first_op;
}

static void check_size(gos_plan_t *plan, const gos_buffer_t *buffer) {
  uint64_t elements = buffer->bytes / gpuos_dtype_bytes(buffer->shape.dtype);
  // One layer of a cache is what an operand covers.
  if (buffer->role == GPUOS_STATE && buffer->shape.rank > 0)
    elements /= (uint64_t)buffer->shape.dim[0];
  if (elements > UINT32_MAX)
    gos_error(plan->ir->diags, buffer->at, "too-large", "'%s' has 2^32 elements or more",
              buffer->name);
}

// The runtime binds tensors by name.
static void check_name(gos_plan_t *plan, size_t number) {
  const gos_buffer_t *buffer = &plan->buffers.at[number];
  for (size_t i = 0; i < number; i++) {
    if (strcmp(plan->buffers.at[i].name, buffer->name)) continue;
    gos_error(plan->ir->diags, buffer->at, "tensor-duplicate",
              "another graph has a tensor '%s' too", buffer->name);
    gos_note(plan->ir->diags, plan->buffers.at[i].at,
             "it is declared here; tensors of graphs that are compiled together need names of "
             "their own");
    return;
  }
}

static bool buffers_fit(gos_plan_t *plan) {
  size_t before = gos_diags_error_count(plan->ir->diags);
  for (size_t i = 0; i < plan->buffers.count; i++) check_size(plan, &plan->buffers.at[i]);
  for (size_t i = 0; i < plan->buffers.count; i++) check_name(plan, i);
  return gos_diags_error_count(plan->ir->diags) == before;
}

bool gos_pass_lower(gos_ir_t *ir, gos_plan_t *plan) {
  graphs_t all = {.plan = plan, .ok = true};
  gos_graphs_of(ir, plan->role, add_graph_buffers, &all);
  if (!buffers_fit(plan)) return false;
  gos_shape_t bytes = {.rank = 1, .dtype = GPUOS_E4M3};
  add_buffer(plan, "workspace", GPUOS_WORKSPACE, bytes, (gos_loc_t){0});
  plan->workspace = (uint32_t)plan->buffers.count - 1;
  for (uint32_t i = 0; i < plan->buffers.count; i++)
    gos_lower_value(plan, plan->buffers.at[i].name, i, plan->buffers.at[i].bytes);
  gos_graphs_of(ir, plan->role, lower_graph, &all);
  return all.ok;
}
