// fuse: folds pointwise operators into the matmul or map before them, and rmsnorm into the matmuls
// after it.
// needs:    legalize
// provides: matmul with a longer epilogue, with a pair of weights (gate and up), with a norm folded
//           in; fewer tensors that travel through memory. No operator whose result nobody uses
// keeps:    a folded norm rounds as the separate one did; a folded epilogue rounds once less, but
//           never less to 8 bits
// source:   HazyResearch's Megakernels: each SM computing the norm again saves two hops a layer
#include <string.h>

#include "passes.h"

// A folded norm is computed again by every tile, so it pays for few rows only.
enum { MAX_NORM_ROWS = 16, LEAST_COLUMNS = 16 };

// A matmul with a norm cannot be cut along K: its smallest unit, the rows and 16 columns of weights
// over all of K, must stay well within the budget.
static bool norm_fits(const gos_plan_t *plan, int64_t rows, int64_t k, gpuos_dtype_t dtype) {
  const gos_target_t *t = plan->target;
  double share = gos_curve_at(&t->read_tbps, t->sm_count) / t->sm_count; // TB/s of one SM
  double bytes = (double)(rows + LEAST_COLUMNS) * (double)k * gpuos_dtype_bytes(dtype);
  return t->margin * (t->unit_overhead_ns + bytes / share * 1e-3) <= plan->budget_ns;
}

static MlirBlock block_of(MlirOperation func) {
  return mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
}

static bool same_shape(MlirValue a, MlirValue b) {
  gos_shape_t x = gos_shape_of(a), y = gos_shape_of(b);
  return x.rank == y.rank && !memcmp(x.dim, y.dim, sizeof x.dim);
}

// The operator of ours that makes `value` for one user only; null if there is none.
static MlirOperation sole_producer(MlirValue value) {
  if (!mlirValueIsAOpResult(value) || gos_value_uses(value) != 1) return (MlirOperation){NULL};
  MlirOperation op = mlirOpResultGetOwner(value);
  return gos_op_get_spec(op) ? op : (MlirOperation){NULL};
}

static MlirValue in_at(gos_ir_t *ir, MlirOperation op, const char *list, int index) {
  return gos_op_in(op, gos_format(ir->scratch, "%s%d", list, index));
}

// ---- inputs of the operator being built ---------------------------------------------------------

// Collects the extras of a fused operator, each tensor once, and the body values that stand for
// them.
typedef struct merged {
  gos_ir_t *ir;
  MlirValue extra[GOS_LIST_ROOM];
  size_t count;
} merged_t;

// Counts on beyond what there is room for, so that the caller sees that they are too many.
static size_t add_extra(merged_t *to, MlirValue value) {
  for (size_t i = 0; i < to->count && i < GOS_LIST_ROOM; i++)
    if (mlirValueEqual(to->extra[i], value)) return i;
  if (to->count < GOS_LIST_ROOM) to->extra[to->count] = value;
  return to->count++;
}

static void add_extras(merged_t *to, MlirOperation op, const char *list, int skip_a, int skip_b) {
  for (int i = 0; i < gos_op_in_count(op, list); i++)
    if (i != skip_a && i != skip_b) add_extra(to, in_at(to->ir, op, list, i));
}

// An 8-bit result was asked for as such: its rounding stays, though nothing is stored.
static MlirValue stored(gos_body_t *body, MlirOperation op, MlirValue value) {
  gpuos_dtype_t dtype = gos_shape_of(mlirOperationGetResult(op, 0)).dtype;
  return gpuos_dtype_bytes(dtype) == 1 ? gos_body_round(body, dtype, value) : value;
}

// Whether a body of `inputs` arguments that takes in these fits the schedule table, two roundings
// and the return included.
static bool code_fits(size_t inputs, MlirOperation a, MlirOperation b, MlirOperation c) {
  return inputs + gos_body_length(a) + gos_body_length(b) + gos_body_length(c) + 4 < GPUOS_MAX_CODE;
}

// Value of matmul `op` inside the new body: its accumulator through its own epilogue.
static MlirValue epilogue_value(merged_t *to, gos_body_t *body, size_t accs, size_t acc,
                                MlirOperation op) {
  MlirValue value = gos_body_input(body, acc);
  MlirOperation own = gos_op_body(to->ir, op, "body");
  if (mlirOperationIsNull(own)) return stored(body, op, value);
  MlirValue args[GOS_LIST_ROOM + 2] = {value};
  for (int i = 0; i < gos_op_in_count(op, "extra"); i++)
    args[i + 1] = gos_body_input(body, accs + add_extra(to, in_at(to->ir, op, "extra", i)));
  return stored(body, op, gos_body_inline(body, own, args));
}

// ---- map after matmul ---------------------------------------------------------------------------

static bool plain_matmul(MlirOperation op) {
  return !mlirOperationIsNull(op) && gos_op_is(op, "matmul") &&
         mlirValueIsNull(gos_op_in(op, "w1"));
}

// The two can share one pass over x: silu(x wg) * (x wu).
static bool pairs(MlirOperation a, MlirOperation b) {
  return plain_matmul(a) && plain_matmul(b) &&
         mlirValueEqual(gos_op_in(a, "x"), gos_op_in(b, "x")) &&
         mlirValueEqual(gos_op_in(a, "norm"), gos_op_in(b, "norm")) &&
         gos_op_float(a, "eps") == gos_op_float(b, "eps") &&
         mlirTypeEqual(mlirValueGetType(gos_op_in(a, "w")), mlirValueGetType(gos_op_in(b, "w"))) &&
         gos_op_bool(a, "transpose_x") == gos_op_bool(b, "transpose_x") &&
         gos_op_bool(a, "transpose_w") == gos_op_bool(b, "transpose_w");
}

typedef struct choice {
  int first, second; // inputs of the map that the new matmul computes; -1: none
  MlirOperation a, b;
} choice_t;

static choice_t choose(gos_ir_t *ir, MlirOperation map) {
  choice_t best = {-1, -1, {NULL}, {NULL}};
  MlirValue out = mlirOperationGetResult(map, 0);
  int count = gos_op_in_count(map, "in");
  for (int i = 0; i < count; i++) {
    MlirValue x = in_at(ir, map, "in", i);
    MlirOperation a = sole_producer(x);
    if (!plain_matmul(a) || !same_shape(x, out)) continue;
    if (best.first < 0) best = (choice_t){i, -1, a, {NULL}};
    for (int j = i + 1; j < count; j++) {
      MlirValue y = in_at(ir, map, "in", j);
      MlirOperation b = sole_producer(y);
      if (same_shape(y, out) && pairs(a, b)) return (choice_t){i, j, a, b};
    }
  }
  return best;
}

static const char *merged_body(merged_t *to, MlirOperation map, const choice_t *choice) {
  gos_ir_t *ir = to->ir;
  size_t accs = choice->second < 0 ? 1 : 2;
  gos_body_t body = gos_body_begin(ir, accs + to->count, mlirOperationGetLocation(map));
  MlirValue args[GOS_LIST_ROOM];
  for (int i = 0; i < gos_op_in_count(map, "in"); i++)
    args[i] = i == choice->first ? epilogue_value(to, &body, accs, 0, choice->a)
              : i == choice->second
                  ? epilogue_value(to, &body, accs, 1, choice->b)
                  : gos_body_input(&body, accs + add_extra(to, in_at(ir, map, "in", i)));
  return gos_body_end(&body, gos_body_inline(&body, gos_op_body(ir, map, "expr"), args));
}

static bool fold_epilogue(gos_ir_t *ir, MlirOperation map, MlirOperation *out_op) {
  choice_t choice = choose(ir, map);
  if (choice.first < 0) return false;
  merged_t to = {.ir = ir};
  add_extras(&to, choice.a, "extra", -1, -1);
  if (choice.second >= 0) add_extras(&to, choice.b, "extra", -1, -1);
  add_extras(&to, map, "in", choice.first, choice.second);
  if (to.count > GOS_LIST_ROOM) return false;
  MlirOperation other =
      choice.second < 0 ? (MlirOperation){NULL} : gos_op_body(ir, choice.b, "body");
  if (!code_fits(2 + to.count, gos_op_body(ir, choice.a, "body"), other,
                 gos_op_body(ir, map, "expr")))
    return false;
  gos_build_t build = gos_rebuild(choice.a);
  build.loc = mlirOperationGetLocation(map);
  build.result_count = 0;
  gos_build_result(&build, mlirValueGetType(mlirOperationGetResult(map, 0)));
  for (size_t i = 0; i < to.count; i++) gos_build_in(&build, "extra", (int)i, to.extra[i]);
  if (choice.second >= 0) gos_build_in(&build, "w1", 0, gos_op_in(choice.b, "w"));
  gos_build_string(ir, &build, "dtype", gos_op_string(ir, map, "dtype"));
  gos_build_symbol(ir, &build, "body", merged_body(&to, map, &choice));
  *out_op = gos_build_before(ir, &build, map);
  MlirValue out = mlirOperationGetResult(*out_op, 0);
  gos_op_replace(map, &out);
  return true;
}

// ---- map after map ------------------------------------------------------------------------------

static bool fold_map(gos_ir_t *ir, MlirOperation map, MlirOperation *out_op) {
  MlirValue out = mlirOperationGetResult(map, 0);
  for (int i = 0; i < gos_op_in_count(map, "in"); i++) {
    MlirValue x = in_at(ir, map, "in", i);
    MlirOperation before = sole_producer(x);
    if (mlirOperationIsNull(before) || !gos_op_is(before, "map") || !same_shape(x, out)) continue;
    merged_t to = {.ir = ir};
    add_extras(&to, before, "in", -1, -1);
    add_extras(&to, map, "in", i, -1);
    MlirOperation inside = gos_op_body(ir, before, "expr"), around = gos_op_body(ir, map, "expr");
    if (to.count > GOS_LIST_ROOM || !code_fits(to.count, inside, around, (MlirOperation){NULL}))
      continue;
    gos_body_t body = gos_body_begin(ir, to.count, mlirOperationGetLocation(map));
    MlirValue inner[GOS_LIST_ROOM], args[GOS_LIST_ROOM];
    for (int j = 0; j < gos_op_in_count(before, "in"); j++)
      inner[j] = gos_body_input(&body, add_extra(&to, in_at(ir, before, "in", j)));
    for (int j = 0; j < gos_op_in_count(map, "in"); j++)
      args[j] = j == i ? stored(&body, before, gos_body_inline(&body, inside, inner))
                       : gos_body_input(&body, add_extra(&to, in_at(ir, map, "in", j)));
    gos_build_t build = gos_rebuild(map);
    memset(build.in, 0, sizeof build.in);
    for (size_t j = 0; j < to.count; j++) gos_build_in(&build, "in", (int)j, to.extra[j]);
    gos_build_symbol(ir, &build, "expr", gos_body_end(&body, gos_body_inline(&body, around, args)));
    *out_op = gos_build_before(ir, &build, map);
    out = mlirOperationGetResult(*out_op, 0);
    gos_op_replace(map, &out);
    return true;
  }
  return false;
}

// ---- rmsnorm before matmul ----------------------------------------------------------------------

static bool reads_once(MlirOperation op, MlirValue value) {
  int count = 0;
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); i++)
    count += mlirValueEqual(mlirOperationGetOperand(op, i), value);
  return count == 1;
}

// Beside products of many rows, which tile may give to wgmma, no weights stream.
static void note_rows(gos_ir_t *ir, MlirOperation func, void *user) {
  (void)ir;
  for (MlirOperation op = mlirBlockGetFirstOperation(block_of(func)); !mlirOperationIsNull(op);
       op = mlirOperationGetNextInBlock(op)) {
    if (!gos_op_get_spec(op) || !gos_op_is(op, "matmul")) continue;
    gos_shape_t out = gos_shape_of(mlirOperationGetResult(op, 0));
    int64_t rows = 1, *most = user;
    for (int d = 0; d + 1 < out.rank; d++) rows *= out.dim[d];
    if (rows > *most) *most = rows;
  }
}

typedef struct fusion {
  const gos_plan_t *plan;
  int64_t most_rows; // of any product
} fusion_t;

// Where x is wider than w: without the units whose weights stream, all of the product would be in fp32.
static bool streams(const fusion_t *fusion, MlirOperation matmul, int64_t rows, int64_t k) {
  MlirValue w = gos_op_in(matmul, "w");
  gpuos_dtype_t dtype = gos_shape_of(w).dtype;
  bool stored = mlirValueIsABlockArgument(w) && gos_op_bool(matmul, "transpose_w");
  return stored && (dtype == GPUOS_BF16 || dtype == GPUOS_F16) &&
         fusion->most_rows <= MAX_NORM_ROWS &&
         gos_streams_x(fusion->plan->target, (uint32_t)rows, (uint64_t)k);
}

static bool norm_folds(const fusion_t *fusion, MlirOperation norm) {
  MlirValue out = mlirOperationGetResult(norm, 0), x = gos_op_in(norm, "x");
  gos_shape_t shape = gos_shape_of(out);
  int64_t rows = 1;
  for (int d = 0; d + 1 < shape.rank; d++) rows *= shape.dim[d];
  gpuos_dtype_t from = gos_shape_of(x).dtype;
  if (rows > MAX_NORM_ROWS || (from != shape.dtype && from != GPUOS_F32)) return false;
  // Where weights stream it is read before what the product waits for is over.
  if (!mlirValueIsABlockArgument(gos_op_in(norm, "weight"))) return false;
  if (!norm_fits(fusion->plan, rows, shape.dim[shape.rank - 1], shape.dtype)) return false;
  for (MlirOpOperand use = mlirValueGetFirstUse(out); !mlirOpOperandIsNull(use);
       use = mlirOpOperandGetNextUse(use)) {
    MlirOperation user = mlirOpOperandGetOwner(use);
    if (!gos_op_get_spec(user) || !gos_op_is(user, "matmul") || gos_op_bool(user, "transpose_x"))
      return false;
    if (!mlirValueEqual(gos_op_in(user, "x"), out) || !reads_once(user, out) ||
        !mlirValueIsNull(gos_op_in(user, "norm")))
      return false;
    // The device code multiplies x in w's format: it normalises to that.
    if (gos_shape_of(gos_op_in(user, "w")).dtype != shape.dtype) return false;
    if (from != shape.dtype && !streams(fusion, user, rows, shape.dim[shape.rank - 1]))
      return false;
  }
  return gos_value_uses(out) > 0;
}

static void fold_norm(gos_ir_t *ir, const fusion_t *fusion, MlirOperation norm) {
  if (!norm_folds(fusion, norm)) return;
  MlirValue out = mlirOperationGetResult(norm, 0);
  for (MlirOpOperand use = mlirValueGetFirstUse(out); !mlirOpOperandIsNull(use);
       use = mlirValueGetFirstUse(out)) {
    MlirOperation matmul = mlirOpOperandGetOwner(use);
    gos_build_t build = gos_rebuild(matmul);
    gos_build_in(&build, "x", 0, gos_op_in(norm, "x"));
    gos_build_in(&build, "norm", 0, gos_op_in(norm, "weight"));
    gos_build_float(ir, &build, "eps", gos_op_float(norm, "eps"));
    MlirValue folded = mlirOperationGetResult(gos_build_before(ir, &build, matmul), 0);
    gos_op_replace(matmul, &folded);
  }
}

// ---- the pass -----------------------------------------------------------------------------------

static void drop_unused(gos_ir_t *ir, MlirOperation func) {
  MlirOperation op = mlirBlockGetTerminator(block_of(func));
  MlirOperation first = mlirBlockGetFirstOperation(block_of(func));
  // Backwards, so that a chain of unused operators goes in one sweep.
  GOS_ARRAY(MlirOperation) ops = {0};
  for (MlirOperation at = first; !mlirOperationEqual(at, op); at = mlirOperationGetNextInBlock(at))
    *gos_push(ir->scratch, &ops) = at;
  for (size_t i = ops.count; i-- > 0;) {
    bool used = false;
    for (intptr_t r = 0; r < mlirOperationGetNumResults(ops.at[i]); r++)
      used = used || gos_value_uses(mlirOperationGetResult(ops.at[i], r)) > 0;
    if (used) continue;
    mlirOperationRemoveFromParent(ops.at[i]);
    mlirOperationDestroy(ops.at[i]);
  }
}

static void fuse(gos_ir_t *ir, MlirOperation func, void *user) {
  const fusion_t *fusion = user;
  MlirOperation op = mlirBlockGetFirstOperation(block_of(func));
  while (!mlirOperationIsNull(op)) {
    if (gos_op_get_spec(op) && gos_op_is(op, "rmsnorm")) fold_norm(ir, fusion, op);
    if (gos_op_get_spec(op) && gos_op_is(op, "map") &&
        (fold_epilogue(ir, op, &op) || fold_map(ir, op, &op)))
      continue; // the operator made in its place may take in more
    op = mlirOperationGetNextInBlock(op);
  }
  drop_unused(ir, func);
}

bool gos_pass_fuse(gos_ir_t *ir, const gos_plan_t *plan) {
  fusion_t fusion = {.plan = plan};
  gos_graphs_of(ir, plan->role, note_rows, &fusion.most_rows);
  gos_graphs_of(ir, plan->role, fuse, &fusion);
  return true;
}
