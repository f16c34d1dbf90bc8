// footprint: declares what one unit of each operator takes. Pure analysis.
// needs:    tile
// provides: op.footprint: tensor operations, HBM and L2 bytes, kept lines, shared memory, energy
// source:   bytes follow from the operand boxes of gpuos_abi.h
#include "passes.h"

// The first tile is a full one; its first slice is a full unit.
static gpuos_box_t unit_box(const gpuos_op_t *op) {
  gpuos_box_t box = gpuos_tile_box(op, 0);
  if (gpuos_op_slices(op) > 1) box.n[GPUOS_SLICED_DIM] = op->slice;
  return box;
}

static uint64_t box_elements(const gpuos_box_t *box) {
  uint64_t count = 1;
  for (int d = 0; d < GPUOS_DIMS; d++) count *= box->n[d];
  return count;
}

static uint64_t whole_bytes(const gpuos_operand_t *x) {
  uint64_t bytes = gpuos_dtype_bytes(x->dtype);
  for (int d = 0; d < GPUOS_DIMS; d++) bytes *= x->extent[d];
  return bytes;
}

// Bytes of operand x that one unit moves. Where data decides which rows are touched, the box is
// only an upper bound.
static uint64_t unit_bytes(const gos_op_t *op, const gpuos_operand_t *x, const gpuos_box_t *unit) {
  gpuos_box_t box = gpuos_operand_box(x, unit);
  uint64_t bytes = box_elements(&box) * gpuos_dtype_bytes(x->dtype);
  switch (op->op.kind) {
  case GPUOS_EMBEDDING: // the rows named, not the table
    return x->as == GPUOS_AS_TABLE ? (uint64_t)unit->n[2] * unit->n[3] * gpuos_dtype_bytes(x->dtype)
                                   : bytes;
  case GPUOS_KV_APPEND: // the rows of this step, not the cache
    if (x->as == GPUOS_AS_CACHE_IN) return 0;
    if (x->as != GPUOS_AS_CACHE) return bytes;
    const gpuos_operand_t *k = gos_op_find(op, GPUOS_AS_K);
    box = gpuos_operand_box(k, unit);
    return 2 * box_elements(&box) * gpuos_dtype_bytes(k->dtype);
  case GPUOS_ATTENTION: // one split of one sequence's keys and values, for each row
    if (x->as != GPUOS_AS_CACHE) return bytes;
    return 2ull * unit->n[1] * unit->n[2] * op->op.params[4] * op->op.params[2] *
           gpuos_dtype_bytes(x->dtype);
  default: return bytes;
  }
}

// How often the chip reads all of x from HBM: once while it, or the panel it is used with, stays in
// L2.
static double passes_over(const gos_plan_t *plan, const gos_op_t *op, const gpuos_operand_t *x) {
  if (op->op.kind != GPUOS_MATMUL || x->as == GPUOS_AS_X ||
      whole_bytes(x) <= plan->target->l2_keep_bytes)
    return 1;
  uint32_t rows = gpuos_op_grid(&op->op, 1), panels = gos_op_panels(plan->target, op);
  return (rows + panels - 1) / panels;
}

static uint64_t tensor_flops(const gpuos_op_t *op, const gos_op_t *full, const gpuos_box_t *unit) {
  if (op->kind == GPUOS_MATMUL)
    return 2 * box_elements(unit) * (gos_op_find(full, GPUOS_AS_W1) ? 2 : 1);
  if (op->kind != GPUOS_ATTENTION) return 0;
  bool paged = gos_op_find(full, GPUOS_AS_CACHE) != NULL;
  uint64_t keys = paged ? op->params[4] : gos_op_find(full, GPUOS_AS_K)->extent[1];
  return 4ull * unit->n[0] * unit->n[1] * unit->n[2] * op->params[3] * op->params[2] * keys;
}

static uint32_t clamp(double bytes) { return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes; }

// ---- shared memory: as codegen/device lays it out; codegen/resources.c reads it back ------------

enum {
  REDUCE_BYTES = 64, // device/reduce.cuh
  THREADS = 256,
};

// The format that a matmul's operands have in shared memory: the widest; codegen/instance.c.
static uint32_t elem_bytes(const gos_op_t *op) {
  const gpuos_operand_t *w0 = gos_op_find(op, GPUOS_AS_W0), *w1 = gos_op_find(op, GPUOS_AS_W1);
  uint8_t wide = gos_op_find(op, GPUOS_AS_X)->dtype,
          others[] = {w0->dtype, w1 ? w1->dtype : w0->dtype};
  for (int i = 0; i < 2; i++)
    if (others[i] != wide && !gos_dtype_is_fp8(others[i]))
      wide = gos_dtype_is_fp8(wide) ? others[i] : GPUOS_F32;
  return gpuos_dtype_bytes(wide);
}

// device/matmul.cuh: 128-byte rows in up to eight stages, as many as there is room for, and with a
// norm its weights in each and sums of rows by warp.
static uint32_t ring_bytes(const gos_plan_t *plan, const gos_op_t *op) {
  const gpuos_operand_t *norm = gos_op_find(op, GPUOS_AS_NORM);
  uint32_t rows = op->op.tile[1] + (gos_op_find(op, GPUOS_AS_W1) ? 2 : 1) * op->op.tile[2];
  uint32_t k_bytes = 128 * (rows <= 48 ? 4 : rows <= 128 ? 2 : 1), stage = rows * k_bytes;
  if (norm) stage += k_bytes / elem_bytes(op) * gpuos_dtype_bytes(norm->dtype);
  uint32_t sums = norm ? op->op.tile[1] * (THREADS / 32 + 1) * 4 : 0;
  uint32_t stages = (gos_plan_smem(plan).plain_bytes - sums) / stage;
  return sums + stage * (stages < 8 ? stages : 8);
}

// device/attention.cuh: the larger of what it takes with and without vector loads.
static uint32_t attention_bytes(uint32_t head_dim, uint32_t group) {
  uint32_t most = 0;
  for (uint32_t run = 1; run <= 8; run += 7) {
    uint32_t runs = head_dim / run, lanes = 1;
    while (lanes < runs && lanes < 32) lanes *= 2;
    uint32_t elements = (runs + lanes - 1) / lanes * run;
    uint32_t fit = elements >= 32 ? 1 : elements <= 4 ? 8 : 32 / elements;
    uint32_t bytes = THREADS / lanes * (group < fit ? group : fit) * (head_dim + 2) * 4;
    if (head_dim % run == 0 && bytes > most) most = bytes;
  }
  return most;
}

static uint32_t shared_bytes(const gos_plan_t *plan, const gos_op_t *op) {
  const uint32_t own = gos_plan_smem(plan).kernel_bytes;
  if (op->streams) return plan->target->smem_bytes; // the ring takes what is left
  switch (op->op.kind) {
  case GPUOS_MATMUL:
    return own + (gos_op_wgmma_tiled(plan->target, op) ? gos_plan_smem(plan).ring_bytes
                                                       : ring_bytes(plan, op));
  case GPUOS_ATTENTION: return own + attention_bytes(op->op.params[2], op->op.params[3]);
  case GPUOS_ROPE: return own + 6 * gos_row_width(op);
  case GPUOS_SOFTMAX:
  case GPUOS_RMSNORM:
  case GPUOS_ARGMAX: return own + REDUCE_BYTES;
  default: return own;
  }
}

gpuos_footprint_t gos_footprint_of(const gos_plan_t *plan, const gos_op_t *op) {
  gpuos_footprint_t print = {0};
  uint64_t tiles = gos_op_tiles(&op->op), units = tiles * gpuos_op_slices(&op->op);
  if (!units) return print;
  gpuos_box_t unit = unit_box(&op->op);
  double hbm_read = 0, hbm_write = 0, l2_read = 0, kept = 0;
  for (int i = 0; i < op->op.operand_count; i++) {
    const gpuos_operand_t *x = &op->operands[i];
    double moved = (double)unit_bytes(op, x, &unit), whole = (double)whole_bytes(x);
    bool outside = x->buffer != plan->workspace;
    if (x->writes) {
      hbm_write +=
          outside ? moved / (gpuos_op_slices(&op->op) > 1 ? gpuos_op_slices(&op->op) : 1) : 0;
      kept += outside ? 0 : moved;
      continue;
    }
    l2_read += moved;
    double once = whole * passes_over(plan, op, x) / (double)units;
    hbm_read += outside ? (once < moved ? once : moved) : 0;
    if (once < moved && whole <= (double)plan->target->l2_keep_bytes) kept += whole / (double)units;
  }
  print.flops = tensor_flops(&op->op, op, &unit);
  print.hbm_read_bytes = clamp(hbm_read);
  print.hbm_write_bytes = clamp(hbm_write);
  print.l2_read_bytes = clamp(l2_read);
  print.l2_kept_bytes = clamp(kept);
  print.smem_bytes = shared_bytes(plan, op);
  print.energy_uj = clamp(((double)print.flops * plan->target->pj_per_flop +
                           (hbm_read + hbm_write) * plan->target->pj_per_hbm_byte) *
                          1e-6);
  return print;
}

bool gos_pass_footprint(gos_plan_t *plan) {
  for (size_t i = 0; i < plan->ops.count; i++)
    plan->ops.at[i].op.footprint = gos_footprint_of(plan, &plan->ops.at[i]);
  return true;
}
