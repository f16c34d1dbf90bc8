// schedule: puts tiles into ticket order and finds out what each must wait for.
// needs:    memory
// provides: plan.tiles, wait_lists, waits, counters; op.order (raster), op.keeps_x, op.sms
// keeps:    a tile waits only for tiles with lower tickets, and for the fewest counters that imply
//           all it needs; whoever sees by stamps what it reads has only the others to wait for
// source:   README: counters per tile where a consumer needs a part, per operator where it needs
//           everything
#include <stdlib.h>
#include <string.h>

#include "edges.h"
#include "passes.h"

enum {
  MAX_GROUPS = 256
}; // counters of one operator; more cost more waits than finer dependences save

// ---- counters -----------------------------------------------------------------------------------

// Counter group of a cell: its coordinates along the keyed dimensions.
static uint32_t group_of(const gos_sync_t *sync, const gpuos_op_t *op, uint32_t index) {
  uint32_t coordinate[GPUOS_DIMS], group = 0;
  if (!sync->keys) return 0;
  for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
    uint32_t grid = gpuos_op_grid(op, d);
    coordinate[d] = index % grid, index /= grid;
  }
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (sync->keys >> d & 1) group = group * gpuos_op_grid(op, d) + coordinate[d];
  return group;
}

static uint32_t group_count(const gpuos_op_t *op, unsigned keys) {
  uint64_t count = 1;
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (keys >> d & 1) count *= gpuos_op_grid(op, d);
  return count > UINT32_MAX ? UINT32_MAX : (uint32_t)count;
}

static void make_counters(gos_plan_t *plan, gos_sync_t *syncs) {
  for (size_t i = 0; i < plan->ops.count; i++) {
    const gpuos_op_t *op = &plan->ops.at[i].op;
    if (!syncs[i].waited_for || gos_op_tiles(op) == 0) continue;
    // Tiles whose weights stream go round all SMs and are over within microseconds of each other.
    if (plan->ops.at[i].streams) syncs[i].keys = 0;
    // Too many: give up the innermost key first, rows of a batch last.
    for (int d = GPUOS_DIMS - 1; d >= 0 && group_count(op, syncs[i].keys) > MAX_GROUPS; d--)
      syncs[i].keys &= ~(1u << d);
    syncs[i].groups = group_count(op, syncs[i].keys);
    syncs[i].first_counter = (uint32_t)plan->counters.count;
    for (uint32_t g = 0; g < syncs[i].groups; g++) *gos_push(plan->ir->arena, &plan->counters) = 0;
    for (uint32_t cell = 0; cell < gos_op_tiles(op); cell++)
      plan->counters.at[syncs[i].first_counter + group_of(&syncs[i], op, cell)]++;
  }
}

// ---- raster -------------------------------------------------------------------------------------

// A group of rows, then all columns, each column's rows one after another: w is read once a group.
static void order_matmul(gos_plan_t *plan, gos_op_t *op) {
  uint32_t rows = gpuos_op_grid(&op->op, 1), cols = gpuos_op_grid(&op->op, 2),
           batch = gpuos_op_grid(&op->op, 0);
  if (rows <= 1 || cols <= 1 || gpuos_op_grid(&op->op, 3) != 1) return;
  uint32_t group = gos_op_panels(plan->target, op), at = 0;
  op->order = gos_alloc(plan->ir->arena, gos_op_tiles(&op->op) * sizeof *op->order);
  for (uint32_t b = 0; b < batch; b++)
    for (uint32_t first = 0; first < rows; first += group)
      for (uint32_t n = 0; n < cols; n++)
        for (uint32_t m = first; m < rows && m < first + group; m++)
          op->order[at++] = (b * rows + m) * cols + n;
}

// All first splits, then all second ones: those that have no keys yet are the last.
static void order_attention(gos_plan_t *plan, gos_op_t *op) {
  uint32_t splits = gpuos_op_grid(&op->op, 3), tiles = (uint32_t)gos_op_tiles(&op->op), at = 0;
  if (splits <= 1) return;
  op->order = gos_alloc(plan->ir->arena, tiles * sizeof *op->order);
  for (uint32_t s = 0; s < splits; s++)
    for (uint32_t t = s; t < tiles; t += splits) op->order[at++] = t;
}

static void order_tiles(gos_plan_t *plan, gos_op_t *op) {
  if (op->op.kind == GPUOS_MATMUL) order_matmul(plan, op);
  if (op->op.kind == GPUOS_ATTENTION) order_attention(plan, op);
}

// More SMs than that only take them from the jobs.
static uint32_t sms_needed(const gos_plan_t *plan, const gos_op_t *op) {
  uint64_t tiles = gos_op_tiles(&op->op);
  uint32_t few = gos_few_sms(plan->target);
  return tiles < few ? (uint32_t)tiles : few;
}

// ---- happens-before over counters ---------------------------------------------------------------

// before[c]: the counters complete once c is. Rows of bits.
typedef struct order {
  uint64_t *bits;
  size_t words;
} order_t;

static uint64_t *row(const order_t *order, uint32_t counter) {
  return order->bits + counter * order->words;
}
static bool test(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

// Leaves of `needs` those that no other one implies.
static size_t drop_implied(const order_t *order, uint32_t *needs, size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    bool implied = false;
    for (size_t j = 0; j < count && !implied; j++)
      implied = j != i && test(row(order, needs[j]), needs[i]);
    if (!implied) needs[kept++] = needs[i];
  }
  return kept;
}

static void record(const order_t *order, uint32_t signal, const uint32_t *waits, size_t count) {
  if (signal == GPUOS_NONE) return;
  uint64_t *to = row(order, signal);
  for (size_t i = 0; i < count; i++) {
    const uint64_t *from = row(order, waits[i]);
    for (size_t w = 0; w < order->words; w++) to[w] |= from[w];
    to[waits[i] / 64] |= 1ull << (waits[i] % 64);
  }
}

// ---- tiles --------------------------------------------------------------------------------------

typedef struct needs {
  uint32_t *counters; // those of the tile at hand; last those for what comes stamped alone
  size_t count, stamped;
  uint32_t *stamp, now; // by counter: already among them
} needs_t;

static void need(needs_t *needs, uint32_t counter) {
  if (needs->stamp[counter] == needs->now) return;
  needs->stamp[counter] = needs->now;
  needs->counters[needs->count++] = counter;
}

static void need_all(needs_t *needs, const gos_sync_t *sync) {
  for (uint32_t g = 0; g < sync->groups; g++) need(needs, sync->first_counter + g);
}

typedef struct counter_of {
  needs_t *needs;
  const gos_sync_t *sync;
  const gpuos_op_t *op;
} counter_of_t;

static void need_cell(uint32_t cell, void *user) {
  counter_of_t *to = user;
  need(to->needs, to->sync->first_counter + group_of(to->sync, to->op, cell));
}

static void collect_edges(gos_plan_t *plan, const gos_sync_t *syncs, gos_edges_t *edges,
                          uint32_t op, uint32_t cell, bool stamped, needs_t *needs) {
  gpuos_box_t tile = gpuos_tile_box(&plan->ops.at[op].op, cell);
  for (size_t e = edges->first[op]; e < edges->first[op + 1]; e++) {
    const gos_edge_t *edge = &edges->list.at[e];
    const gos_sync_t *sync = &syncs[edge->producer];
    if ((edge->exact && plan->ops.at[op].operands[edge->read].stamped) != stamped) continue;
    if (!edge->exact || sync->groups == 1) {
      need_all(needs, sync);
      continue;
    }
    counter_of_t to = {needs, sync, &plan->ops.at[edge->producer].op};
    gos_edges_cells(plan, edges, edge, &tile, need_cell, &to);
  }
}

static int by_number(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static void collect(gos_plan_t *plan, const gos_sync_t *syncs, gos_edges_t *edges, uint32_t op,
                    uint32_t cell, needs_t *needs) {
  needs->count = 0, needs->now++;
  collect_edges(plan, syncs, edges, op, cell, false, needs);
  size_t first = needs->count;
  collect_edges(plan, syncs, edges, op, cell, true, needs);
  needs->stamped = needs->count - first;
  qsort(needs->counters, first, sizeof *needs->counters, by_number);
  qsort(needs->counters + first, needs->stamped, sizeof *needs->counters, by_number);
}

// All tiles of the operator need the same.
static bool need_alike(const gos_sync_t *syncs, const gos_edges_t *edges, uint32_t op) {
  for (size_t e = edges->first[op]; e < edges->first[op + 1]; e++) {
    const gos_edge_t *edge = &edges->list.at[e];
    if (edge->exact && syncs[edge->producer].groups != 1) return false;
  }
  return true;
}

static bool is_list(const gos_plan_t *plan, gpuos_wait_list_t list, const uint32_t *counters,
                    size_t count, size_t stamped) {
  bool same = list.count == count && list.stamped == stamped;
  for (size_t i = 0; i < count && same; i++)
    same = plan->waits.at[list.first + i].counter == counters[i];
  return same;
}

// The last one again, if it is the same: operators one after another often need the same, and an SM need
// not look again, nor load what it has.
static uint32_t add_wait_list(gos_plan_t *plan, const uint32_t *counters, size_t count,
                              size_t stamped) {
  if (count == 0) return 0;
  uint32_t last = (uint32_t)plan->wait_lists.count - 1;
  if (is_list(plan, plan->wait_lists.at[last], counters, count, stamped)) return last;
  *gos_push(plan->ir->arena, &plan->wait_lists) =
      (gpuos_wait_list_t){(uint32_t)plan->waits.count, (uint32_t)count, (uint32_t)stamped};
  for (size_t i = 0; i < count; i++)
    *gos_push(plan->ir->arena, &plan->waits) =
        (gpuos_wait_t){counters[i], plan->counters.at[counters[i]]};
  return (uint32_t)plan->wait_lists.count - 1;
}

// Neighbouring tiles of an operator mostly need the same: their list is shared.
typedef struct last_list {
  uint32_t *counters;
  size_t count, stamped;
  uint32_t list;
  bool valid;
} last_list_t;

// Leaves of the needs those that imply the others; what is waited for because of stamps implies nothing, since
// who has seen them does not wait.
static void drop_needs(const order_t *order, needs_t *needs) {
  size_t first = needs->count - needs->stamped;
  size_t kept = drop_implied(order, needs->counters, first), all = kept;
  for (size_t i = first; i < needs->count; i++) {
    bool implied = false;
    for (size_t j = 0; j < kept && !implied; j++)
      implied = test(row(order, needs->counters[j]), needs->counters[i]);
    if (!implied) needs->counters[all++] = needs->counters[i];
  }
  needs->count = all, needs->stamped = all - kept;
}

// What the tile needs, in last->list.
static void find_list(gos_plan_t *plan, const gos_sync_t *syncs, gos_edges_t *edges,
                      const gpuos_tile_t *tile, const order_t *order, needs_t *needs,
                      last_list_t *last) {
  collect(plan, syncs, edges, tile->op, tile->index, needs);
  if (last->valid && last->count == needs->count && last->stamped == needs->stamped &&
      !memcmp(last->counters, needs->counters, needs->count * sizeof *needs->counters))
    return;
  memcpy(last->counters, needs->counters, needs->count * sizeof *needs->counters);
  last->count = needs->count, last->stamped = needs->stamped, last->valid = true;
  drop_needs(order, needs);
  last->list = add_wait_list(plan, needs->counters, needs->count, needs->stamped);
}

static void schedule_op(gos_plan_t *plan, const gos_sync_t *syncs, gos_edges_t *edges,
                        uint32_t number, const order_t *order, needs_t *needs, last_list_t *last) {
  gos_op_t *op = &plan->ops.at[number];
  const bool alike = need_alike(syncs, edges, number);
  uint32_t recorded = GPUOS_NONE; // the counter whose waits are known already
  last->valid = false;
  for (uint64_t i = 0; i < gos_op_tiles(&op->op); i++) {
    gpuos_tile_t tile = {
        .op = number, .index = op->order ? op->order[i] : (uint32_t)i, .signal = GPUOS_NONE};
    if (syncs[number].groups)
      tile.signal = syncs[number].first_counter + group_of(&syncs[number], &op->op, tile.index);
    if (!alike || i == 0) find_list(plan, syncs, edges, &tile, order, needs, last);
    tile.wait_list = last->list;
    *gos_push(plan->ir->arena, &plan->tiles) = tile;
    if (alike && tile.signal == recorded) continue;
    recorded = tile.signal;
    gpuos_wait_list_t list = plan->wait_lists.at[tile.wait_list];
    uint32_t *waits = needs->counters, count = list.count - list.stamped; // free to use again
    for (uint32_t w = 0; w < count; w++) waits[w] = plan->waits.at[list.first + w].counter;
    record(order, tile.signal, waits, count);
  }
}

bool gos_pass_schedule(gos_plan_t *plan) {
  gos_arena_t *arena = plan->ir->scratch;
  gos_sync_t *syncs = gos_alloc(arena, (plan->ops.count + 1) * sizeof *syncs);
  gos_edges_t edges = gos_edges_find(plan, syncs);
  make_counters(plan, syncs);
  size_t counters = plan->counters.count + 1;
  order_t order = {.words = (counters + 63) / 64};
  order.bits = gos_alloc(arena, counters * order.words * sizeof *order.bits);
  needs_t needs = {.counters = gos_alloc(arena, counters * sizeof(uint32_t)),
                   .stamp = gos_alloc(arena, counters * sizeof(uint32_t))};
  last_list_t last = {.counters = gos_alloc(arena, counters * sizeof(uint32_t))};
  *gos_push(plan->ir->arena, &plan->wait_lists) = (gpuos_wait_list_t){0, 0, 0};
  for (size_t g = 0; g < plan->graphs.count; g++) {
    gpuos_graph_t *graph = &plan->graphs.at[g].graph;
    graph->first_tile = (uint32_t)plan->tiles.count;
    for (uint32_t i = graph->first_op; i < graph->first_op + graph->op_count; i++) {
      gos_op_t *op = &plan->ops.at[i];
      order_tiles(plan, op);
      op->keeps_x = gos_op_keeps_panels(plan->target, op);
      op->sms = graph->live ? sms_needed(plan, op) : 0;
      schedule_op(plan, syncs, &edges, i, &order, &needs, &last);
    }
    graph->tile_count = (uint32_t)plan->tiles.count - graph->first_tile;
  }
  return true;
}
