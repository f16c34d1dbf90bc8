// edges.c: dependences between operators, from the bytes their operands cover.
#include "edges.h"

#include <stdlib.h>
#include <string.h>

// ---- byte ranges --------------------------------------------------------------------------------

typedef struct range {
  uint64_t lo, hi;
} range_t;

// From the first byte of a view to past its last.
static range_t hull(const gpuos_operand_t *x) {
  uint64_t last = 0;
  for (int d = 0; d < GPUOS_DIMS; d++) {
    if (x->extent[d] == 0) return (range_t){0, 0};
    last += (uint64_t)(x->extent[d] - 1) * x->stride[d];
  }
  uint64_t size = gpuos_dtype_bytes(x->dtype);
  return (range_t){x->offset_bytes, x->offset_bytes + (last + 1) * size};
}

static bool overlap(range_t a, range_t b) { return a.lo < b.hi && b.lo < a.hi; }

// Calls visit for each contiguous run of a box of a view. Dimensions that continue each other make
// one run.
static void each_run(const gpuos_operand_t *x, gpuos_box_t box,
                     void (*visit)(range_t run, void *user), void *user) {
  uint64_t size = gpuos_dtype_bytes(x->dtype), run = 1, base = x->offset_bytes;
  uint32_t outer[GPUOS_DIMS], count[GPUOS_DIMS], dims = 0;
  for (int d = 0; d < GPUOS_DIMS; d++) {
    if (box.n[d] == 0) return;
    base += (uint64_t)box.lo[d] * x->stride[d] * size;
  }
  for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
    if (box.n[d] == 1) continue;
    if (dims == 0 && x->stride[d] == run)
      run *= box.n[d];
    else
      outer[dims] = (uint32_t)d, count[dims] = 0, dims++;
  }
  for (;;) {
    uint64_t at = base;
    for (uint32_t i = 0; i < dims; i++) at += (uint64_t)count[i] * x->stride[outer[i]] * size;
    visit((range_t){at, at + run * size}, user);
    uint32_t i = 0;
    while (i < dims && ++count[i] == box.n[outer[i]]) count[i++] = 0;
    if (i == dims) return;
  }
}

// ---- which of a producer's dimensions a consumer tells apart ------------------------------------

// Dimension d of a view as digits of the address: steps of `lo` up to below `hi`.
static range_t digits(const gpuos_operand_t *x, int d) {
  uint64_t size = gpuos_dtype_bytes(x->dtype);
  return (range_t){x->stride[d] * size, (uint64_t)x->stride[d] * x->extent[d] * size};
}

static bool partial(const gpuos_op_t *op, const gpuos_operand_t *x, int d) {
  return x->follows[d] != GPUOS_ALL && x->follows[d] != GPUOS_SLICED_DIM &&
         op->tile[x->follows[d]] < op->extent[x->follows[d]];
}

static unsigned keys_of(const gos_op_t *consumer, const gpuos_operand_t *read,
                        const gos_op_t *producer, const gpuos_operand_t *written) {
  unsigned keys = 0;
  for (int c = 0; c < GPUOS_DIMS; c++) {
    bool tells =
        partial(&consumer->op, read, c) || (read->follows[c] == GPUOS_SLICED_DIM &&
                                            gpuos_op_grid(&consumer->op, GPUOS_SLICED_DIM) > 1);
    // A view of a part of the tensor tells parts apart as well.
    for (int p = 0; p < GPUOS_DIMS; p++) {
      if (written->follows[p] == GPUOS_ALL ||
          gpuos_op_grid(&producer->op, written->follows[p]) <= 1)
        continue;
      if (tells && overlap(digits(read, c), digits(written, p))) keys |= 1u << written->follows[p];
    }
  }
  return keys;
}

// ---- edges --------------------------------------------------------------------------------------

typedef struct touch {
  uint32_t op, value;
  uint8_t operand;
  bool writes;
  range_t bytes;
  // The value later written over all these bytes: its writers wait for this touch, so whoever comes
  // after them need not. GPUOS_NONE: none yet.
  uint32_t buried_by;
} touch_t;
typedef GOS_ARRAY(touch_t) touches_t;

// What the consumer's reads say about how the producer's tiles should be counted.
static void note_reader(gos_plan_t *plan, gos_sync_t *syncs, const gos_edge_t *edge) {
  gos_op_t *producer = &plan->ops.at[edge->producer], *consumer = &plan->ops.at[edge->consumer];
  unsigned keys = keys_of(consumer, &consumer->operands[edge->read], producer,
                          &producer->operands[edge->written]);
  syncs[edge->producer].keys |= keys;
  syncs[edge->producer].read_whole |= keys == 0;
}

static void add_edge(gos_plan_t *plan, gos_edges_t *edges, gos_sync_t *syncs, const touch_t *from,
                     const touch_t *to) {
  gos_edge_t edge = {
      .consumer = to->op, .producer = from->op, .read = to->operand, .written = from->operand};
  edge.exact = from->writes && !to->writes;
  syncs[from->op].waited_for = true;
  if (edge.exact) note_reader(plan, syncs, &edge);
  for (size_t e = edges->first[to->op]; e < edges->list.count; e++) {
    gos_edge_t *old = &edges->list.at[e];
    if (old->producer != edge.producer || (old->exact && edge.exact)) continue;
    old->exact = false; // one edge that needs everything stands for all between the two
    return;
  }
  *gos_push(plan->ir->scratch, &edges->list) = edge;
}

// A reader waits for the writers of its tensor: those waited for whatever the bytes held before. A
// writer waits for all that touch the bytes as part of other tensors.
static bool conflict(const touch_t *before, const touch_t *now) {
  if (before->op == now->op || !overlap(before->bytes, now->bytes)) return false;
  if (!now->writes) return before->writes && before->value == now->value;
  bool buried = before->buried_by != GPUOS_NONE && before->buried_by != now->value;
  return before->value != now->value && !buried;
}

static bool covers(range_t a, range_t b) { return a.lo <= b.lo && b.hi <= a.hi; }

static touch_t touch_of(const gos_plan_t *plan, uint32_t op, int operand) {
  const gpuos_operand_t *x = &plan->ops.at[op].operands[operand];
  return (touch_t){op, x->value, (uint8_t)operand, x->writes, hull(x), GPUOS_NONE};
}

static void find_op_edges(gos_plan_t *plan, gos_edges_t *edges, gos_sync_t *syncs, uint32_t op,
                          touches_t *touches) {
  const gos_op_t *at = &plan->ops.at[op];
  for (int x = 0; x < at->op.operand_count; x++) {
    touch_t touch = touch_of(plan, op, x);
    touches_t *others = &touches[at->operands[x].buffer];
    for (size_t t = 0; t < others->count; t++) {
      touch_t *before = &others->at[t];
      if (!conflict(before, &touch)) continue;
      add_edge(plan, edges, syncs, before, &touch);
      if (touch.writes && covers(touch.bytes, before->bytes)) before->buried_by = touch.value;
    }
  }
}

gos_edges_t gos_edges_find(gos_plan_t *plan, gos_sync_t *syncs) {
  gos_arena_t *arena = plan->ir->scratch;
  gos_edges_t edges = {.first = gos_alloc(arena, (plan->ops.count + 1) * sizeof *edges.first),
                       .pieces = gos_alloc(arena, (plan->ops.count + 1) * sizeof *edges.pieces)};
  // Only buffers that somebody writes can conflict: weights and inputs are left out.
  bool *written = gos_alloc(arena, plan->buffers.count * sizeof *written);
  touches_t *touches = gos_alloc(arena, plan->buffers.count * sizeof *touches);
  for (size_t i = 0; i < plan->ops.count; i++)
    for (int x = 0; x < plan->ops.at[i].op.operand_count; x++)
      if (plan->ops.at[i].operands[x].writes) written[plan->ops.at[i].operands[x].buffer] = true;
  for (uint32_t i = 0; i < plan->ops.count; i++) {
    edges.first[i] = edges.list.count;
    find_op_edges(plan, &edges, syncs, i, touches);
    for (int x = 0; x < plan->ops.at[i].op.operand_count; x++) {
      uint32_t buffer = plan->ops.at[i].operands[x].buffer;
      if (written[buffer]) *gos_push(arena, &touches[buffer]) = touch_of(plan, i, x);
    }
  }
  // Who needs everything would wait for every counter; telling tiles apart then costs more than it
  // saves.
  for (size_t i = 0; i < plan->ops.count; i++)
    if (syncs[i].read_whole) syncs[i].keys = 0;
  edges.first[plan->ops.count] = edges.list.count;
  return edges;
}

// ---- cells that wrote given bytes ---------------------------------------------------------------

typedef struct piece {
  range_t bytes;
  uint32_t cell;
} piece_t;

struct gos_pieces {
  GOS_ARRAY(piece_t) list; // sorted, disjoint
  gos_arena_t *arena;
  uint32_t cell;
};

static void add_piece(range_t run, void *user) {
  gos_pieces_t *pieces = user;
  *gos_push(pieces->arena, &pieces->list) = (piece_t){run, pieces->cell};
}

static int by_start(const void *a, const void *b) {
  uint64_t x = ((const piece_t *)a)->bytes.lo, y = ((const piece_t *)b)->bytes.lo;
  return (x > y) - (x < y);
}

static gos_pieces_t *pieces_of(gos_plan_t *plan, gos_edges_t *edges, const gos_edge_t *edge) {
  gos_pieces_t *pieces = edges->pieces[edge->producer];
  if (pieces) return pieces;
  pieces = gos_alloc(plan->ir->scratch, sizeof *pieces);
  pieces->arena = plan->ir->scratch;
  const gos_op_t *op = &plan->ops.at[edge->producer];
  for (uint32_t cell = 0; cell < gos_op_tiles(&op->op); cell++) {
    gpuos_box_t tile = gpuos_tile_box(&op->op, cell);
    pieces->cell = cell;
    each_run(&op->operands[edge->written], gpuos_operand_box(&op->operands[edge->written], &tile),
             add_piece, pieces);
  }
  qsort(pieces->list.at, pieces->list.count, sizeof *pieces->list.at, by_start);
  return edges->pieces[edge->producer] = pieces;
}

typedef struct lookup {
  const gos_pieces_t *pieces;
  void (*visit)(uint32_t cell, void *user);
  void *user;
} lookup_t;

static void find_cells(range_t run, void *user) {
  lookup_t *at = user;
  size_t low = 0, high = at->pieces->list.count;
  while (low < high) { // first piece that ends after the run's start
    size_t mid = (low + high) / 2;
    if (at->pieces->list.at[mid].bytes.hi <= run.lo)
      low = mid + 1;
    else
      high = mid;
  }
  for (; low < at->pieces->list.count && at->pieces->list.at[low].bytes.lo < run.hi; low++)
    at->visit(at->pieces->list.at[low].cell, at->user);
}

void gos_edges_cells(gos_plan_t *plan, gos_edges_t *edges, const gos_edge_t *edge,
                     const gpuos_box_t *tile, void (*visit)(uint32_t cell, void *user),
                     void *user) {
  const gpuos_operand_t *read = &plan->ops.at[edge->consumer].operands[edge->read];
  lookup_t at = {pieces_of(plan, edges, edge), visit, user};
  each_run(read, gpuos_operand_box(read, tile), find_cells, &at);
}
