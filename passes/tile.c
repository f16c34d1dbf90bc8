// tile: chooses the shape of every operator's units.
// needs:    split
// provides: op.tile, op.slice, op.park_bytes; attention over a long context split, with
//           attention_combine after it
// keeps:    what is computed. Fails never: a unit that stays too long is bound's to report
// source:   cost model of footprint.c and bound.c; candidates are the shapes the device code is
//           written for
#include <string.h>

#include "passes.h"

enum {
  STEP_BYTES = 128,         // of k; slices end on the device code's steps
  MAX_ACCUMULATORS = 16384, // f32 of one CTA: 64 registers for each of 256 threads
  // Where weights stream, or two programs share a kernel, a CTA has more warps, and each thread a quarter fewer registers.
  STREAM_ACCUMULATORS = 8192,
  // Of a tile, device/matmul_wgmma.cuh. A job has three warpgroups of fewer registers each.
  WGMMA_ROWS = 128,
  WGMMA_ACCUMULATORS = 32768,
  JOB_ROWS = 192,
  JOB_ACCUMULATORS = 24576,
  MIN_SPLIT = 64, // positions, of the longest context; below, a combine costs more than it brings
  // Of weights that stream: enough for a ticket's way to be hidden, but the last tile of an operator
  // keeps all SMs waiting for it: each should have some of them.
  STREAM_BYTES = 128 << 10,
  STREAM_FEW_BYTES = 64 << 10, // of each of few tiles
  STREAM_LEAST_BYTES = 32 << 10,
  STREAM_RESULTS = 128, // each has a partial sum of every warp in shared memory
};

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t round_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

// Footprint and bound of op as it is tiled now.
static uint32_t measure(const gos_plan_t *plan, gos_op_t *op) {
  op->op.footprint = gos_footprint_of(plan, op);
  return gos_bound_of(plan, op);
}

// ---- matmul -------------------------------------------------------------------------------------

// The longest slice of K within the budget: K itself, or an even part of it.
static uint32_t fit_slice(const gos_plan_t *plan, gos_op_t *op) {
  uint32_t k = op->op.extent[3];
  uint32_t step = STEP_BYTES / gpuos_dtype_bytes(gos_op_find(op, GPUOS_AS_X)->dtype);
  for (uint32_t parts = 1;; parts++) {
    op->op.slice = parts == 1 ? k : round_up((k + parts - 1) / parts, step);
    uint32_t bound = measure(plan, op);
    if (bound <= plan->budget_ns || op->op.slice <= step || gos_op_find(op, GPUOS_AS_NORM))
      return bound;
  }
}

// Time of the operator alone on the chip, plus what its bytes cost a stream beside it.
static double cost_of(const gos_plan_t *plan, const gos_op_t *op) {
  double sms = plan->target->sm_count;
  return gos_run_ns_of(plan, op, sms) +
         gos_priced_cost_of(plan, op) / gos_curve_at(&plan->target->read_tbps, sms) * 1e-3;
}

// The cheapest of the shapes that wgmma has, or of those that mma.sync has. False: none keeps the
// budget.
static bool shape_matmul(const gos_plan_t *plan, gos_op_t *op, bool wgmma) {
  static const uint32_t rows[] = {16, 32, 64, 128, JOB_ROWS}, cols[] = {16, 32, 64, 128, 256};
  uint32_t wgmma_rows = plan->role == GOS_JOB ? JOB_ROWS : WGMMA_ROWS;
  uint32_t weights = gos_op_find(op, GPUOS_AS_W1) ? 2 : 1;
  bool few_registers = plan->streams || plan->role != GOS_ALONE;
  uint32_t most = wgmma ? (plan->role == GOS_JOB ? JOB_ACCUMULATORS : WGMMA_ACCUMULATORS)
                        : (few_registers ? STREAM_ACCUMULATORS : MAX_ACCUMULATORS);
  gpuos_op_t best = {0};
  double best_cost = 0;
  bool best_fits = false;
  op->op.tile[0] = 1, op->op.tile[3] = op->op.extent[3];
  for (size_t m = 0; m < sizeof rows / sizeof *rows; m++)
    for (size_t n = 0; n < sizeof cols / sizeof *cols; n++) {
      bool too_many = rows[m] * cols[n] * weights > most;
      bool mostly_empty = !wgmma && m > 0 && rows[m - 1] >= op->op.extent[1];
      bool not_there = wgmma ? rows[m] != wgmma_rows || cols[n] < 128 : rows[m] == JOB_ROWS;
      if (too_many || mostly_empty || not_there) continue;
      op->op.tile[1] = rows[m], op->op.tile[2] = cols[n];
      bool fits = fit_slice(plan, op) <= plan->budget_ns;
      double cost = cost_of(plan, op);
      bool better = fits != best_fits ? fits : cost < best_cost;
      if (best.tile[0] && !better) continue;
      best = op->op, best_cost = cost, best_fits = fits;
    }
  if (best.tile[0]) op->op = best; // else there is no such shape
  return best.tile[0] && best_fits;
}

// Twice as many rows a tile would still leave enough tiles.
static bool enough_tiles(const gos_plan_t *plan, uint64_t tile_bytes, uint64_t tiles) {
  uint32_t nearly_all = plan->target->sm_count - plan->target->sm_count / 16;
  if (tile_bytes <= STREAM_LEAST_BYTES) return true;
  return tiles >= (tile_bytes <= STREAM_FEW_BYTES ? 1 : 2) * nearly_all;
}

// Rows of weights of a tile: a power of two.
static uint32_t stream_rows(const gos_plan_t *plan, const gos_op_t *op) {
  uint32_t weights = gos_op_find(op, GPUOS_AS_W1) ? 2 : 1;
  uint32_t rows = gos_stream_rows(op->op.extent[1], op->op.extent[3]);
  uint64_t row_bytes = 2ull * weights * op->op.extent[3];
  uint64_t all = op->op.extent[2], results = (uint64_t)weights * op->op.extent[1];
  while (2 * rows * row_bytes <= STREAM_BYTES && 2 * rows * results <= STREAM_RESULTS &&
         rows < all && enough_tiles(plan, 2 * rows * row_bytes, all / (2 * rows)))
    rows *= 2;
  return rows;
}

static void tile_stream(const gos_plan_t *plan, gos_op_t *op) {
  op->op.tile[0] = 1, op->op.tile[1] = op->op.extent[1];
  op->op.tile[2] = stream_rows(plan, op);
  op->op.tile[3] = op->op.slice = op->op.extent[3];
  op->op.park_bytes = 0;
}

static void tile_matmul(const gos_plan_t *plan, gos_op_t *op) {
  if (op->streams) {
    tile_stream(plan, op);
    return;
  }
  if (!gos_op_wgmma(plan->target, op) || !shape_matmul(plan, op, true))
    shape_matmul(plan, op, false); // smaller ones
  uint32_t weights = gos_op_find(op, GPUOS_AS_W1) ? 2 : 1;
  op->op.park_bytes =
      gpuos_op_slices(&op->op) > 1 ? weights * op->op.tile[1] * op->op.tile[2] * 4 : 0;
}

// ---- everything else: enough tiles for every SM, none over the budget ---------------------------

// Halves the largest dimension named by `dims` until the unit fits and there are tiles for all SMs,
// or units get small.
static void shrink(const gos_plan_t *plan, gos_op_t *op, unsigned dims, uint64_t small) {
  for (;;) {
    int widest = -1;
    uint64_t work = 1;
    for (int d = 0; d < GPUOS_DIMS; d++) {
      work *= op->op.tile[d];
      bool wider = widest < 0 || op->op.tile[d] > op->op.tile[widest];
      if (dims >> d & 1 && op->op.tile[d] > 1 && wider) widest = d;
    }
    bool enough = gos_op_tiles(&op->op) >= plan->target->sm_count || work <= small;
    if (widest < 0 || (enough && measure(plan, op) <= plan->budget_ns)) return;
    op->op.tile[widest] = (op->op.tile[widest] + 1) / 2;
  }
}

static void whole(gos_op_t *op) {
  for (int d = 0; d < GPUOS_DIMS; d++) op->op.tile[d] = op->op.extent[d] ? op->op.extent[d] : 1;
}

// Rows of a pointwise tile stay as long as possible: outer dimensions are halved first.
static void tile_map(const gos_plan_t *plan, gos_op_t *op) {
  whole(op);
  for (int d = 0; d < GPUOS_DIMS; d++) shrink(plan, op, 1u << d, 4096);
}

// ---- attention ----------------------------------------------------------------------------------

static void tile_attention(const gos_plan_t *plan, gos_op_t *op) {
  op->op.tile[0] = op->op.tile[2] = op->op.tile[3] = 1;
  // Rows of a cache may belong to different sequences; without one they share keys.
  op->op.tile[1] =
      gos_op_find(op, GPUOS_AS_CACHE) ? 1 : min_u32(op->op.extent[1] ? op->op.extent[1] : 1, 16);
  while (op->op.tile[1] > 1 && measure(plan, op) > plan->budget_ns)
    op->op.tile[1] = (op->op.tile[1] + 1) / 2;
}

// Splits that share the keys out. Who merges them waits for all, and on few SMs one tile comes after another:
// so no more than read at full speed.
static uint32_t choose_shares(const gos_plan_t *plan, const gos_op_t *op) {
  uint32_t few = gos_few_sms(plan->target);
  uint64_t tiles = gos_op_tiles(&op->op);
  return tiles ? (uint32_t)((few + tiles - 1) / tiles) : 1;
}

// Positions of one split, at most: as many as the budget allows, whole pages; of a short context at least
// MIN_SPLIT.
static uint32_t choose_split(const gos_plan_t *plan, gos_op_t *op) {
  uint32_t context = op->op.params[4], page = op->op.params[1], shares = choose_shares(plan, op);
  uint32_t split = round_up((context + shares - 1) / shares, page);
  if (split < MIN_SPLIT) split = min_u32(round_up(MIN_SPLIT, page), context);
  for (;; split -= page) {
    op->op.params[4] = split;
    uint32_t bound = measure(plan, op);
    op->op.params[4] = context;
    if (bound <= plan->budget_ns || split <= page) return split;
  }
}

static void add_operand(gos_op_t *op, const gpuos_operand_t *x) {
  op->operands[op->op.operand_count++] = *x;
}

// OUT of `op` becomes PARTIAL, and `combine` makes OUT from it.
static void split_attention(gos_plan_t *plan, gos_op_t *op, uint32_t split, gos_op_t *combine) {
  uint32_t context = op->op.params[4], splits = (context + split - 1) / split;
  uint32_t shares = min_u32(splits, choose_shares(plan, op));
  uint32_t width = op->op.params[3] * (op->op.params[2] + 2);
  gpuos_operand_t out = op->operands[0], partial = out;
  uint32_t extent[GPUOS_DIMS] = {op->op.extent[1], op->op.extent[2], splits, width};
  uint64_t bytes = 4;
  for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
    partial.extent[d] = extent[d];
    partial.stride[d] = (uint32_t)(bytes / 4);
    bytes *= extent[d];
  }
  *gos_push(plan->ir->arena, &plan->values) = (gos_value_t){.name = "attention partials",
                                                            .buffer = plan->workspace,
                                                            .bytes = bytes,
                                                            .first_op = GPUOS_NONE,
                                                            .last_op = GPUOS_NONE};
  partial.as = GPUOS_AS_PARTIAL, partial.dtype = GPUOS_F32, partial.offset_bytes = 0;
  partial.buffer = plan->workspace, partial.value = (uint32_t)plan->values.count - 1;
  memcpy(partial.follows, (uint8_t[]){1, 2, 3, GPUOS_ALL}, GPUOS_DIMS);
  *combine = (gos_op_t){
      .name = gos_format(plan->ir->arena, "%s.combine", op->name), .at = op->at, .op = op->op};
  combine->op.kind = GPUOS_ATTENTION_COMBINE;
  combine->op.operand_count = 0;
  op->operands[0] = partial;
  op->op.extent[3] = splits;
  op->op.params[4] = split, op->op.params[7] = shares;
  for (int p = 0; p < GPUOS_PARAMS; p++)
    combine->op.params[p] = p == 2 || p == 3 || p == 4 || p == 7 ? op->op.params[p] : 0;
  add_operand(combine, &out);
  partial.writes = 0, partial.follows[2] = GPUOS_ALL;
  add_operand(combine, &partial);
  add_operand(combine, gos_op_find(op, GPUOS_AS_POS));
}

// ---- the pass -----------------------------------------------------------------------------------

void gos_tile_op(const gos_plan_t *plan, gos_op_t *op) {
  switch ((gpuos_kind_t)op->op.kind) {
  case GPUOS_MATMUL: tile_matmul(plan, op); break;
  case GPUOS_MAP: tile_map(plan, op); break;
  case GPUOS_ATTENTION: tile_attention(plan, op); break;
  case GPUOS_EMBEDDING: whole(op), shrink(plan, op, 0xc, 4096); break;
  case GPUOS_KV_APPEND: whole(op), op->op.tile[2] = 1; break;
  case GPUOS_ATTENTION_COMBINE: whole(op), op->op.tile[1] = op->op.tile[2] = 1; break;
  case GPUOS_ROPE: whole(op), shrink(plan, op, 0x6, 1 + 4096 / (gos_row_width(op) + 1)); break;
  case GPUOS_RMSNORM:
  case GPUOS_SOFTMAX:
  case GPUOS_ARGMAX: whole(op), shrink(plan, op, 0x4, 1 + 4096 / (gos_row_width(op) + 1)); break;
  case GPUOS_KIND_COUNT: GOS_BUG("operator kind");
  }
  if (op->op.kind != GPUOS_MATMUL) op->op.slice = 0;
}

// Units of wgmma share their copies with another SM and take all shared memory; beside them nothing
// streams.
static void choose_streams(gos_plan_t *plan) {
  bool wgmma = false;
  for (size_t i = 0; i < plan->ops.count; i++)
    wgmma |= gos_op_wgmma(plan->target, &plan->ops.at[i]);
  for (size_t i = 0; i < plan->ops.count; i++) {
    plan->ops.at[i].streams = !wgmma && gos_op_streams(plan, &plan->ops.at[i]);
    plan->streams |= plan->ops.at[i].streams;
  }
}

bool gos_pass_tile(gos_plan_t *plan) {
  choose_streams(plan);
  gos_plan_t old = *plan; // operators are copied over, since attention may become two
  memset(&plan->ops, 0, sizeof plan->ops);
  for (size_t g = 0; g < plan->graphs.count; g++) {
    gpuos_graph_t *graph = &plan->graphs.at[g].graph;
    uint32_t first = (uint32_t)plan->ops.count, end = graph->first_op + graph->op_count;
    for (uint32_t i = graph->first_op; i < end; i++) {
      gos_op_t op = old.ops.at[i], combine;
      gos_tile_op(plan, &op);
      uint32_t split = op.op.kind == GPUOS_ATTENTION && gos_op_find(&op, GPUOS_AS_CACHE)
                           ? choose_split(plan, &op)
                           : 0;
      bool two = split && split < op.op.params[4];
      if (two) split_attention(plan, &op, split, &combine);
      *gos_push(plan->ir->arena, &plan->ops) = op;
      if (!two) continue;
      gos_tile_op(plan, &combine);
      *gos_push(plan->ir->arena, &plan->ops) = combine;
    }
    graph->first_op = first;
    graph->op_count = (uint32_t)plan->ops.count - first;
  }
  return true;
}
