// geometry.c: how an operator's operands lie in memory, and what that allows the device code to do.
//
// device/take.cuh has the same rule for steps.
#include <string.h>

#include "plan.h"

enum {
  BULK_BYTES = 16,  // alignment of addresses and strides: CUDA Driver API, cuTensorMapEncodeTiled
  PIECE_BYTES = 16, // the most a thread stores at once
  LEAST_ROWS = 64,  // below, most of a tile of 128 rows would be empty
  LEAST_COLS = 64,
  // device/matmul_stream.cuh: a fragment has 16 rows of x; half of shared memory is left for weights.
  STREAM_ROWS = 16,
  STREAM_X_BYTES = 112 << 10,
  STREAM_STAGE_BYTES = 32 << 10, // device/stream.cuh
  BULK_ARCH = 90,                // bulk copies (PTX ISA, cp.async.bulk)
  STREAM_SMEM_BYTES = 160 << 10, // what has less has no room for x, partial sums and a ring
  // device/attention_ring.cuh: a product has so many rows of queries, and a lane so many registers; and the
  // loader finds the pages of a stage one by one.
  RING_QUERIES = 8,
  RING_HEAD_DIM = 128,
  RING_HEAD_STEP = 64,
  RING_PAGE = 16,
};

uint64_t gos_op_step(const gos_op_t *op, const gpuos_operand_t *x, uint32_t dim) {
  uint64_t step = 0;
  for (int d = 0; d < GPUOS_DIMS; d++) {
    bool k = op->op.kind == GPUOS_MATMUL && d == GPUOS_SLICED_DIM && x->follows[d] == GPUOS_ALL;
    if (x->follows[d] == dim || (k && dim == GPUOS_SLICED_DIM)) step += x->stride[d];
  }
  return step;
}

bool gos_op_aligned(const gos_op_t *op, const gpuos_operand_t *x, uint32_t dim, uint32_t bytes) {
  uint32_t size = gpuos_dtype_bytes(x->dtype);
  if (x->offset_bytes % bytes) return false;
  for (uint32_t d = 0; d < GPUOS_DIMS; d++)
    if (d != dim && op->op.extent[d] > 1 && gos_op_step(op, x, d) * size % bytes) return false;
  return true;
}

uint32_t gos_run_bytes(const gpuos_operand_t *x) {
  uint32_t bytes = GOS_RUN * gpuos_dtype_bytes(x->dtype);
  return bytes < 16 ? bytes : 16;
}

bool gos_row_runs(const gpuos_operand_t *x, uint32_t width) {
  uint32_t size = gpuos_dtype_bytes(x->dtype), bytes = gos_run_bytes(x);
  if (x->stride[3] != 1 || width % GOS_RUN || x->offset_bytes % bytes) return false;
  for (int d = 0; d < GPUOS_DIMS - 1; d++)
    if (x->extent[d] > 1 && (uint64_t)x->stride[d] * size % bytes) return false;
  return true;
}

uint32_t gos_row_width(const gos_op_t *op) {
  const gpuos_operand_t *x = gos_op_find(op, GPUOS_AS_X);
  return (x ? x : gos_op_find(op, GPUOS_AS_OUT))->extent[3];
}

uint8_t gos_view_dim(const gos_op_t *op, const gpuos_operand_t *x, uint32_t dim) {
  uint8_t found = GPUOS_ALL;
  for (uint8_t d = 0; d < GPUOS_DIMS; d++) {
    bool k = op->op.kind == GPUOS_MATMUL && d == GPUOS_SLICED_DIM && x->follows[d] == GPUOS_ALL &&
             dim == GPUOS_SLICED_DIM;
    if (x->follows[d] == dim || k) found = d;
  }
  return found;
}

// Bulk copies can move it in boxes of `row_dim` by `run_dim`.
static bool copies_in_bulk(const gos_op_t *op, const gpuos_operand_t *x, uint32_t row_dim,
                           uint32_t run_dim) {
  uint8_t row = gos_view_dim(op, x, row_dim), run = gos_view_dim(op, x, run_dim);
  if (row == GPUOS_ALL || run == GPUOS_ALL || row == run) return false;
  return gos_op_step(op, x, run_dim) == 1 && gos_op_step(op, x, row_dim) == x->stride[row] &&
         gos_op_aligned(op, x, run_dim, BULK_BYTES);
}

static bool formats_fit(uint8_t x, uint8_t w) {
  if (gos_dtype_is_fp8(x)) return gos_dtype_is_fp8(w);
  return x == w && (x == GPUOS_BF16 || x == GPUOS_F16);
}

// wgmma and setmaxnreg are of sm_90a only; sm_90, the same chip, has neither (PTX ISA).
static bool has_wgmma(const gos_target_t *target) { return !strcmp(target->arch_name, "sm_90a"); }

bool gos_op_wgmma(const gos_target_t *target, const gos_op_t *op) {
  if (!has_wgmma(target) || op->op.kind != GPUOS_MATMUL) return false;
  if (gos_op_find(op, GPUOS_AS_NORM)) return false;
  if (op->op.extent[1] <= LEAST_ROWS || op->op.extent[2] < LEAST_COLS) return false;
  const gpuos_operand_t *x = gos_op_find(op, GPUOS_AS_X), *w0 = gos_op_find(op, GPUOS_AS_W0);
  const gpuos_operand_t *w1 = gos_op_find(op, GPUOS_AS_W1);
  if (!formats_fit(x->dtype, w0->dtype) || (w1 && w1->dtype != w0->dtype)) return false;
  return copies_in_bulk(op, x, 1, 3) && copies_in_bulk(op, w0, 2, 3) &&
         (!w1 || copies_in_bulk(op, w1, 2, 3));
}

bool gos_op_wgmma_tiled(const gos_target_t *target, const gos_op_t *op) {
  const uint32_t *tile = op->op.tile;
  bool two = gos_op_find(op, GPUOS_AS_W1) != NULL;
  return gos_op_wgmma(target, op) &&
         ((tile[1] == 128 && (tile[2] == 128 || (tile[2] == 256 && !two))) ||
          (tile[1] == 192 && tile[2] == 128 && !two));
}

// ---- weights that stream ------------------------------------------------------------------------

// As many as fit a stage whole, as long as x has but two fragments then; at most four for few: eight have but
// one segment each, and lie in each other's banks.
uint32_t gos_stream_rows(uint32_t x_rows, uint64_t k) {
  uint32_t rows = x_rows > 4 ? 8 : 4;
  while (rows > 2 && rows * k * 2 > STREAM_STAGE_BYTES && x_rows <= rows / 2) rows /= 2;
  return rows;
}

// Of x in shared memory.
static uint32_t stream_x_bytes(uint32_t x_rows, uint64_t k) {
  uint32_t segments = 8 / gos_stream_rows(x_rows, k), piece = segments * 64;
  uint64_t row = (k * 2 + piece - 1) / piece * piece + (segments == 1 ? 64 : 0),
           bytes = x_rows * row;
  return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

bool gos_streams_x(const gos_target_t *target, uint32_t x_rows, uint64_t k) {
  return target->arch >= BULK_ARCH && target->smem_bytes >= STREAM_SMEM_BYTES && x_rows > 0 &&
         x_rows <= STREAM_ROWS && k > 0 && k % GOS_RUN == 0 &&
         stream_x_bytes(x_rows, k) <= STREAM_X_BYTES;
}

// Nothing in the step writes it.
static bool is_given(const gos_plan_t *plan, const gpuos_operand_t *x) {
  uint8_t role = plan->buffers.at[x->buffer].role;
  return role == GPUOS_WEIGHT || role == GPUOS_INPUT;
}

static bool streams_w(const gos_plan_t *plan, const gos_op_t *op, const gpuos_operand_t *w,
                      uint8_t dtype) {
  // What the host writes between steps is not ordered before copies of a kernel that stays.
  return w->dtype == dtype && plan->buffers.at[w->buffer].role == GPUOS_WEIGHT &&
         gos_op_step(op, w, 3) == 1 && gos_op_step(op, w, 2) == op->op.extent[3] &&
         w->offset_bytes % BULK_BYTES == 0;
}

bool gos_op_streams(const gos_plan_t *plan, const gos_op_t *op) {
  if (op->op.kind != GPUOS_MATMUL || op->op.extent[0] != 1 || op->op.extent[2] == 0) return false;
  if (!gos_streams_x(plan->target, op->op.extent[1], op->op.extent[3])) return false;
  const gpuos_operand_t *x = gos_op_find(op, GPUOS_AS_X), *norm = gos_op_find(op, GPUOS_AS_NORM);
  const gpuos_operand_t *w0 = gos_op_find(op, GPUOS_AS_W0), *w1 = gos_op_find(op, GPUOS_AS_W1);
  if (w0->dtype != GPUOS_BF16 && w0->dtype != GPUOS_F16) return false;
  bool format = x->dtype == w0->dtype || (norm && x->dtype == GPUOS_F32);
  return format && streams_w(plan, op, w0, w0->dtype) &&
         (!w1 || streams_w(plan, op, w1, w0->dtype)) && gos_op_step(op, x, 3) == 1 &&
         gos_op_aligned(op, x, 3, gos_run_bytes(x)) &&
         (!norm || (norm->stride[3] == 1 && norm->offset_bytes % 16 == 0 && is_given(plan, norm)));
}

// ---- keys that stream ---------------------------------------------------------------------------

// What a row's own key is not taken from is written by earlier steps only, at places that the host named.
static bool keys_are_there(const gos_plan_t *plan, const gos_op_t *op) {
  const gpuos_operand_t *named[] = {gos_op_find(op, GPUOS_AS_POS), gos_op_find(op, GPUOS_AS_PAGES)};
  if (!gos_op_find(op, GPUOS_AS_CACHE) || !gos_op_find(op, GPUOS_AS_K)) return false;
  for (size_t i = 0; i < sizeof named / sizeof *named; i++)
    if (plan->buffers.at[named[i]->buffer].role != GPUOS_INPUT) return false;
  return true;
}

// Vectors of one 16-bit format and angles, in runs.
static bool vectors_fit(const gos_op_t *op, uint32_t head_dim) {
  static const gpuos_as_t roles[] = {GPUOS_AS_X, GPUOS_AS_K, GPUOS_AS_V, GPUOS_AS_CACHE};
  const gpuos_operand_t *rotation = gos_op_find(op, GPUOS_AS_ROTATION);
  uint8_t format = gos_op_find(op, GPUOS_AS_CACHE)->dtype;
  bool fit = format == GPUOS_BF16 || format == GPUOS_F16;
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
    const gpuos_operand_t *x = gos_op_find(op, roles[i]);
    fit = fit && x->dtype == format && gos_row_runs(x, head_dim);
  }
  return fit && (!rotation || gos_row_runs(rotation, head_dim));
}

bool gos_op_rings(const gos_plan_t *plan, const gos_op_t *op) {
  if (op->op.kind != GPUOS_ATTENTION || !plan->streams || !keys_are_there(plan, op)) return false;
  uint32_t page_size = op->op.params[1], head_dim = op->op.params[2], group = op->op.params[3];
  return group <= RING_QUERIES && page_size >= RING_PAGE && head_dim <= RING_HEAD_DIM &&
         head_dim % RING_HEAD_STEP == 0 && vectors_fit(op, head_dim);
}

// ---- panels -------------------------------------------------------------------------------------

static uint64_t panel_bytes(const gos_op_t *op) {
  const gpuos_operand_t *x = gos_op_find(op, GPUOS_AS_X);
  return (uint64_t)op->op.tile[1] * op->op.extent[3] * gpuos_dtype_bytes(x->dtype);
}

// Of what may be kept; the rest is for lines that only pass through.
static uint64_t panels_bytes(const gos_target_t *target) { return target->l2_keep_bytes / 6 * 5; }

uint32_t gos_op_panels(const gos_target_t *target, const gos_op_t *op) {
  uint64_t panel = panel_bytes(op), rows = gpuos_op_grid(&op->op, 1);
  uint64_t panels = panel ? panels_bytes(target) / panel : 1;
  if (panels >= rows) return (uint32_t)rows;        // w goes by once
  return panels < 2 ? 1 : (uint32_t)panels / 2 * 2; // two rows of tiles share copies of w
}

bool gos_op_keeps_panels(const gos_target_t *target, const gos_op_t *op) {
  return gos_op_wgmma_tiled(target, op) && gpuos_op_grid(&op->op, 2) > 1 &&
         panel_bytes(op) <= panels_bytes(target);
}

bool gos_op_stores_pieces(const gos_op_t *op) {
  const gpuos_operand_t *out = gos_op_find(op, GPUOS_AS_OUT);
  return gos_op_step(op, out, 2) == 1 && gos_op_aligned(op, out, 2, PIECE_BYTES) &&
         op->op.extent[2] * gpuos_dtype_bytes(out->dtype) % PIECE_BYTES == 0;
}
