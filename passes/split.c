// split: cuts k of matmuls that have too few tiles for the chip (split-K).
// needs:    lower
// provides: in place of such a matmul, one over a batch of equal parts of k, whose results are f32
//           partials in the workspace, and a map that adds them and applies the expression
// keeps:    operators where the predicted gain is below a tenth; live graphs; matmuls with a batch,
//           a norm or two weights. The order of the sum: first part to last, on any number of SMs
// source:   CUTLASS, "Efficient GEMM in CUDA", split K across threadblocks; times as in bound.c, of
//           the operator alone
#include <math.h>
#include <string.h>

#include "passes.h"

enum { STEP_BYTES = 128 };       // of k, in the device code: parts end where its steps do
static const double WORTH = 0.9; // of the time without: predictions are not better than that

typedef struct split {
  gos_op_t matmul, sum;
  double ns; // predicted, both
} split_t;

static uint32_t k_of(const gos_op_t *op) { return op->op.extent[GPUOS_SLICED_DIM]; }

// ---- what can be split --------------------------------------------------------------------------

static bool can_split(const gos_op_t *op) {
  if (op->op.kind != GPUOS_MATMUL || op->op.extent[0] != 1) return false;
  bool empty = op->op.extent[1] == 0 || op->op.extent[2] == 0 || k_of(op) == 0;
  return !empty && !gos_op_find(op, GPUOS_AS_NORM) && !gos_op_find(op, GPUOS_AS_W1);
}

// Every part begins as aligned as k itself, and none ends in the middle of a step.
static bool ends_on_steps(const gos_op_t *op, gpuos_as_t as, uint32_t parts) {
  uint64_t bytes = (uint64_t)k_of(op) * gpuos_dtype_bytes(gos_op_find(op, as)->dtype);
  return k_of(op) % parts == 0 && bytes / parts % STEP_BYTES == 0;
}

static uint64_t partial_bytes(const gos_op_t *op, uint32_t parts) {
  return (uint64_t)parts * op->op.extent[1] * op->op.extent[2] * sizeof(float);
}

// The sum takes the parts as operands beside OUT and what the expression reads, and its code has an
// input and an addition for each. Partials are taken to stay in L2.
static bool parts_fit(const gos_plan_t *plan, const gos_op_t *op, uint32_t parts) {
  uint32_t operands = op->op.operand_count - 2 + parts, code = op->op.code_count + 2 * parts;
  return operands <= GPUOS_MAX_OPERANDS && code <= GPUOS_MAX_CODE &&
         partial_bytes(op, parts) <= plan->target->l2_keep_bytes &&
         ends_on_steps(op, GPUOS_AS_X, parts) && ends_on_steps(op, GPUOS_AS_W0, parts);
}

// ---- the two operators --------------------------------------------------------------------------

// [parts, m, n], the value that is added next.
static gpuos_operand_t partials_of(const gos_plan_t *plan, const gos_op_t *op, uint32_t parts) {
  uint32_t m = op->op.extent[1], n = op->op.extent[2];
  return (gpuos_operand_t){.as = GPUOS_AS_OUT,
                           .dtype = GPUOS_F32,
                           .writes = 1,
                           .buffer = plan->workspace,
                           .value = (uint32_t)plan->values.count,
                           .extent = {1, parts, m, n},
                           .stride = {0, m * n, n, 1},
                           .follows = {GPUOS_ALL, 0, 1, 2}};
}

// The parts of k become the batch of x.
static void cut(gpuos_operand_t *x, uint32_t parts) {
  x->extent[3] /= parts;
  x->extent[1] = parts, x->stride[1] = x->stride[3] * x->extent[3], x->follows[1] = 0;
}

static gos_op_t make_matmul(const gos_op_t *op, uint32_t parts, const gpuos_operand_t *partials) {
  gos_op_t made = *op;
  made.op.extent[0] = parts, made.op.extent[GPUOS_SLICED_DIM] /= parts;
  made.code = NULL, made.op.code_count = 0;
  made.op.operand_count = 3;
  made.operands[0] = *partials;
  made.operands[1] = *gos_op_find(op, GPUOS_AS_X);
  made.operands[2] = *gos_op_find(op, GPUOS_AS_W0);
  cut(&made.operands[1], parts), cut(&made.operands[2], parts);
  return made;
}

// A matmul's results follow dimensions 0..2, the last ones of a map 1..3.
static void add_operand(gos_op_t *map, const gpuos_operand_t *x) {
  gpuos_operand_t *added = &map->operands[map->op.operand_count++];
  *added = *x;
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (x->follows[d] != GPUOS_ALL) added->follows[d]++;
}

static void add_part(gos_op_t *map, const gpuos_operand_t *partials, uint32_t number) {
  gpuos_operand_t part = *partials;
  part.as = GPUOS_AS_EXTRA, part.writes = 0;
  part.offset_bytes = (uint64_t)number * partials->stride[1] * sizeof(float);
  part.extent[1] = 1, part.stride[1] = 0, part.follows[1] = GPUOS_ALL;
  add_operand(map, &part);
}

// Instruction `c` of a matmul in a map whose first inputs are the parts; moved[v] is the new number
// of value v.
static gpuos_code_t move(gpuos_code_t c, uint32_t parts, const uint8_t *moved) {
  if (c.op == GPUOS_CODE_INPUT) c.a = (uint8_t)(c.a + parts);
  if (c.op < GPUOS_CODE_ADD) return c;
  c.a = moved[c.a];
  if (c.op <= GPUOS_CODE_MIN) c.b = moved[c.b];
  return c;
}

// The sum of the parts, then the matmul's expression with the sum for its accumulator.
static void add_code(gos_op_t *map, const gos_op_t *op, uint32_t parts) {
  gpuos_code_t *code = map->code;
  uint8_t moved[GPUOS_MAX_CODE] = {0}, count = 0, sum = 0;
  for (uint8_t p = 0; p < parts; p++)
    code[count++] = (gpuos_code_t){.op = GPUOS_CODE_INPUT, .a = p};
  for (uint8_t p = 1; p < parts; p++) {
    code[count] = (gpuos_code_t){.op = GPUOS_CODE_ADD, .a = sum, .b = p};
    sum = count++;
  }
  for (uint32_t i = 0; i < op->op.code_count; i++) {
    moved[i] = op->code[i].op == GPUOS_CODE_ACC ? sum : count;
    if (op->code[i].op != GPUOS_CODE_ACC) code[count++] = move(op->code[i], parts, moved);
  }
  map->op.code_count = count;
}

static gos_op_t make_sum(const gos_plan_t *plan, const gos_op_t *op, uint32_t parts,
                         const gpuos_operand_t *partials) {
  gos_arena_t *arena = plan->ir->arena;
  gos_op_t made = {.name = gos_format(arena, "%s.sum", op->name), .at = op->at};
  made.op.kind = GPUOS_MAP, made.op.line = op->op.line;
  made.op.extent[0] = made.op.extent[1] = 1;
  made.op.extent[2] = op->op.extent[1], made.op.extent[3] = op->op.extent[2];
  add_operand(&made, gos_op_find(op, GPUOS_AS_OUT));
  for (uint32_t p = 0; p < parts; p++) add_part(&made, partials, p);
  for (int i = 0; i < op->op.operand_count; i++)
    if (op->operands[i].as == GPUOS_AS_EXTRA) add_operand(&made, &op->operands[i]);
  made.code = gos_alloc(arena, (op->op.code_count + 2 * parts) * sizeof *made.code);
  add_code(&made, op, parts);
  return made;
}

// ---- what it costs ------------------------------------------------------------------------------

// Predicted time of op alone on the chip, once it is tiled. Tiles are few, so waves count in full;
// slices of a tile follow each other in registers, so its overhead counts once. Infinite if its
// units do not keep the budget.
static double run_ns(const gos_plan_t *plan, gos_op_t op) {
  gos_tile_op(plan, &op);
  op.op.footprint = gos_footprint_of(plan, &op);
  if (gos_bound_of(plan, &op) > plan->budget_ns) return INFINITY;
  op.op.slice = 0;
  op.op.footprint = gos_footprint_of(plan, &op);
  uint64_t tiles = gos_op_tiles(&op.op), sms = plan->target->sm_count;
  if (sms > tiles) sms = tiles;
  double wave_ns = gos_run_ns_of(plan, &op, (double)sms) * (double)sms / (double)tiles;
  return wave_ns * (double)((tiles + sms - 1) / sms);
}

// Footprints leave out what is written to the workspace: here that is a price of the split, as if
// partials went to HBM while nothing else does. The sum sees the last of them a hop later.
static split_t make_split(const gos_plan_t *plan, const gos_op_t *op, uint32_t parts) {
  gpuos_operand_t partials = partials_of(plan, op, parts);
  split_t split = {make_matmul(op, parts, &partials), make_sum(plan, op, parts, &partials), 0};
  double written_ns = (double)partial_bytes(op, parts) / plan->target->write_tbps * 1e-3;
  split.ns =
      run_ns(plan, split.matmul) + written_ns + plan->target->hop_ns + run_ns(plan, split.sum);
  return split;
}

// The fastest split. More parts write more, so they must be worth it as the first ones must. False:
// none is.
static bool choose(const gos_plan_t *plan, const gos_op_t *op, split_t *out_split) {
  bool found = false;
  out_split->ns = run_ns(plan, *op);
  for (uint32_t parts = 2; parts < GPUOS_MAX_OPERANDS; parts++) {
    if (!parts_fit(plan, op, parts)) continue;
    split_t split = make_split(plan, op, parts);
    if (split.ns >= WORTH * out_split->ns) continue;
    *out_split = split, found = true;
  }
  return found;
}

// ---- the pass -----------------------------------------------------------------------------------

static void add_value(gos_plan_t *plan, uint64_t bytes) {
  *gos_push(plan->ir->arena, &plan->values) = (gos_value_t){.name = "matmul partials",
                                                            .buffer = plan->workspace,
                                                            .bytes = bytes,
                                                            .first_op = GPUOS_NONE,
                                                            .last_op = GPUOS_NONE};
}

static void split_op(gos_plan_t *plan, const gos_op_t *op) {
  split_t split;
  if (!can_split(op) || !choose(plan, op, &split)) {
    *gos_push(plan->ir->arena, &plan->ops) = *op;
    return;
  }
  add_value(plan, partial_bytes(op, split.matmul.op.extent[0]));
  *gos_push(plan->ir->arena, &plan->ops) = split.matmul;
  *gos_push(plan->ir->arena, &plan->ops) = split.sum;
}

static void split_graph(gos_plan_t *plan, gpuos_graph_t *graph, const gos_op_t *ops) {
  uint32_t first = (uint32_t)plan->ops.count;
  for (uint32_t i = 0; i < graph->op_count; i++) {
    const gos_op_t *op = &ops[graph->first_op + i];
    if (graph->live)
      *gos_push(plan->ir->arena, &plan->ops) = *op;
    else
      split_op(plan, op);
  }
  graph->first_op = first;
  graph->op_count = (uint32_t)plan->ops.count - first;
}

bool gos_pass_split(gos_plan_t *plan) {
  const gos_op_t *ops = plan->ops.at; // copied over, since one may become two
  memset(&plan->ops, 0, sizeof plan->ops);
  for (size_t g = 0; g < plan->graphs.count; g++) split_graph(plan, &plan->graphs.at[g].graph, ops);
  return true;
}
