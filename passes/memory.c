// memory: gives every intermediate a place in the workspace; places are used again once their
// tensor is dead, and has been for a while where weights stream.
// needs:    tile (it makes intermediates too)
// provides: value offsets, operand offsets from the start of their buffer, plan.workspace_bytes
// keeps:    graphs apart: they run at the same time. Order within a graph is kept by schedule's
//           write-after-read waits
// fails:    [too-large] a workspace beyond 32-bit offsets; [memory] more than the chip holds
// source:   best fit over live ranges in operator order
#include "passes.h"

enum {
  ALIGN = GPUOS_BUFFER_ALIGNMENT, // bulk copies and 128-byte lines start aligned
  // Operators that a place of a step whose weights stream is left alone for: who writes there waits for all who
  // read it, by counters, which takes longer than a result that comes stamped. About a layer's.
  REST = 10,
};

typedef struct hole {
  uint64_t offset, bytes;
  uint32_t from; // the first operator that may have it
} hole_t;
typedef GOS_ARRAY(hole_t) holes_t;

static void find_live_ranges(gos_plan_t *plan) {
  for (size_t i = 0; i < plan->ops.count; i++)
    for (int x = 0; x < plan->ops.at[i].op.operand_count; x++) {
      gos_value_t *value = &plan->values.at[plan->ops.at[i].operands[x].value];
      if (value->first_op == GPUOS_NONE) value->first_op = (uint32_t)i;
      value->last_op = (uint32_t)i;
    }
}

// The smallest hole that holds `bytes`; if none does, the space grows, from the last hole if that
// lies at the end.
static uint64_t take(gos_plan_t *plan, holes_t *holes, uint64_t bytes) {
  hole_t *best = NULL;
  for (size_t i = 0; i < holes->count; i++)
    if (holes->at[i].bytes >= bytes && (!best || holes->at[i].bytes < best->bytes))
      best = &holes->at[i];
  if (best) {
    uint64_t offset = best->offset;
    best->offset += bytes, best->bytes -= bytes;
    return offset;
  }
  uint64_t offset = plan->workspace_bytes;
  for (size_t i = 0; i < holes->count; i++)
    if (holes->at[i].bytes && holes->at[i].offset + holes->at[i].bytes == plan->workspace_bytes) {
      offset = holes->at[i].offset;
      holes->at[i].bytes = 0;
    }
  plan->workspace_bytes = offset + bytes;
  return offset;
}

static void give(gos_plan_t *plan, holes_t *holes, hole_t freed) {
  for (size_t i = 0; i < holes->count; i++) {
    hole_t *h = &holes->at[i];
    bool touches = h->bytes && (h->offset + h->bytes == freed.offset ||
                                freed.offset + freed.bytes == h->offset);
    if (!touches) continue;
    freed.offset = h->offset < freed.offset ? h->offset : freed.offset;
    freed.bytes += h->bytes;
    h->bytes = 0;
  }
  *gos_push(plan->ir->scratch, holes) = freed;
}

// Those whose rest is over.
static void give_rested(gos_plan_t *plan, holes_t *holes, holes_t *resting, uint32_t op) {
  size_t left = 0;
  for (size_t i = 0; i < resting->count; i++) {
    if (resting->at[i].from <= op)
      give(plan, holes, resting->at[i]);
    else
      resting->at[left++] = resting->at[i];
  }
  resting->count = left;
}

static uint64_t padded(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static void place_graph(gos_plan_t *plan, const gpuos_graph_t *graph) {
  holes_t holes = {0}, resting = {0};
  for (uint32_t op = graph->first_op; op < graph->first_op + graph->op_count; op++) {
    give_rested(plan, &holes, &resting, op);
    for (int x = 0; x < plan->ops.at[op].op.operand_count; x++) {
      gos_value_t *value = &plan->values.at[plan->ops.at[op].operands[x].value];
      if (value->buffer == plan->workspace && value->first_op == op &&
          value->offset_bytes == UINT64_MAX)
        value->offset_bytes = take(plan, &holes, padded(value->bytes));
    }
    // Freed only after the operator's own results have their places: it may not write what it still
    // reads.
    for (int x = 0; x < plan->ops.at[op].op.operand_count; x++) {
      gos_value_t *value = &plan->values.at[plan->ops.at[op].operands[x].value];
      bool seen = false;
      for (int y = 0; y < x; y++)
        seen = seen || plan->ops.at[op].operands[y].value == plan->ops.at[op].operands[x].value;
      if (value->buffer == plan->workspace && value->last_op == op && !seen)
        *gos_push(plan->ir->scratch, &resting) = (hole_t){
            value->offset_bytes, padded(value->bytes), op + 1 + (plan->streams ? REST : 0)};
    }
  }
}

static bool chip_holds(gos_plan_t *plan) {
  uint64_t bytes = 0, room = plan->target->memory_bytes;
  for (size_t i = 0; i < plan->buffers.count; i++) bytes += plan->buffers.at[i].bytes;
  if (bytes <= room) return true;
  gos_error(plan->ir->diags, (gos_loc_t){0}, "memory",
            "tensors and workspace take %.1f GB; %s has %.1f GB", (double)bytes * 1e-9,
            plan->target->name, (double)room * 1e-9);
  return false;
}

bool gos_pass_memory(gos_plan_t *plan) {
  find_live_ranges(plan);
  for (size_t i = plan->buffers.count; i < plan->values.count; i++)
    if (plan->values.at[i].buffer == plan->workspace) plan->values.at[i].offset_bytes = UINT64_MAX;
  for (size_t g = 0; g < plan->graphs.count; g++) place_graph(plan, &plan->graphs.at[g].graph);
  for (size_t i = 0; i < plan->ops.count; i++)
    for (int x = 0; x < plan->ops.at[i].op.operand_count; x++) {
      gpuos_operand_t *operand = &plan->ops.at[i].operands[x];
      operand->offset_bytes += plan->values.at[operand->value].offset_bytes;
    }
  if (plan->workspace_bytes > UINT32_MAX) {
    gos_error(plan->ir->diags, (gos_loc_t){0}, "too-large",
              "intermediates take %.1f GiB; they must stay below 4 GiB",
              (double)plan->workspace_bytes / (1 << 30));
    return false;
  }
  gos_buffer_t *workspace = &plan->buffers.at[plan->workspace];
  workspace->bytes = plan->workspace_bytes;
  workspace->shape.dim[0] = (int64_t)plan->workspace_bytes;
  return chip_holds(plan);
}
