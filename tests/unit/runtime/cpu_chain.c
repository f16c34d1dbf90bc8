#include "cpu_chain.h"

#include <string.h>

#include "cpu_dtype.h"

enum { ROWS = 12, BLOCK = 4, BLOCKS = 3, K = 1024, N = 24, M = 16 };
enum { X, W0, W1, W2, GAIN, PROBS, BEST, WORK };
enum { AT_A = 0, AT_B = 1536, AT_C = 3072, AT_D = 4096, WORK_BYTES = 5120 };

// f32 rows in the workspace.
static gpuos_operand_t *work(fixture_t *f, gpuos_as_t as, uint32_t value, uint32_t offset,
                             uint32_t cols, follows_t follows) {
  gpuos_operand_t *x = fixture_operand(f, as, WORK, SHAPE(1, 1, ROWS, cols), follows);
  x->dtype = GPUOS_F32;
  x->offset_bytes = offset;
  if (!x->writes) x->value = value;
  return x;
}

// Tiles of the last operator in the order of its blocks of rows. Block i waits for list waits[i]
// and signals signals[i].
static void add_blocks(fixture_t *f, uint32_t tiles_a_block, const uint32_t waits[BLOCKS],
                       const uint32_t *signals) {
  uint32_t op = f->tables->ops.count - 1;
  for (uint32_t i = 0; i < BLOCKS * tiles_a_block; i++)
    gos_tables_add_tile(f->tables, op, i, waits[i / tiles_a_block],
                        signals == NULL ? GPUOS_NONE : signals[i / tiles_a_block]);
}

// Three counters, and a wait list for each of them.
static void add_counters(fixture_t *f, uint32_t counters[BLOCKS], uint32_t lists[BLOCKS]) {
  for (int i = 0; i < BLOCKS; i++) {
    counters[i] = gos_tables_add_counter(f->tables);
    lists[i] = gos_tables_add_wait_list(f->tables, &counters[i], 1);
  }
}

static gpuos_op_t *add_op(fixture_t *f, gpuos_kind_t kind, shape_t extent, uint32_t tile[2]) {
  gpuos_op_t *op = gos_tables_add_op(f->tables, "op", kind, extent.at);
  op->tile[1] = tile[0], op->tile[2] = tile[1];
  return op;
}

static uint32_t add_first_matmul(fixture_t *f) {
  gpuos_op_t *op = add_op(f, GPUOS_MATMUL, SHAPE(1, ROWS, N, K), (uint32_t[]){BLOCK, 5});
  op->slice = 128, op->park_bytes = 4 * BLOCK * 5;
  fixture_operand(f, GPUOS_AS_X, X, SHAPE(1, 1, ROWS, K), FOLLOWS(ALL, ALL, 1, 3));
  fixture_operand(f, GPUOS_AS_W0, W0, SHAPE(1, 1, N, K), FOLLOWS(ALL, ALL, 2, 3));
  return work(f, GPUOS_AS_OUT, 0, AT_A, N, FOLLOWS(ALL, ALL, 1, 2))->value;
}

static uint32_t add_map(fixture_t *f, uint32_t a) {
  add_op(f, GPUOS_MAP, SHAPE(1, 1, ROWS, N), (uint32_t[]){1, BLOCK});
  work(f, GPUOS_AS_EXTRA, a, AT_A, N, FOLLOWS(ALL, ALL, 2, 3));
  uint32_t b = work(f, GPUOS_AS_OUT, 0, AT_B, N, FOLLOWS(ALL, ALL, 2, 3))->value;
  gos_tables_add_code(f->tables, GPUOS_CODE_INPUT, 0, 0, 0);
  gos_tables_add_code(f->tables, GPUOS_CODE_TANH, 0, 0, 0);
  gos_tables_add_code(f->tables, GPUOS_CODE_MUL, 0, 1, 0);
  return b;
}

static void add_silu_mul(gos_tables_t *t) {
  gos_tables_add_code(t, GPUOS_CODE_ACC, 0, 0, 0);
  gos_tables_add_code(t, GPUOS_CODE_NEG, 0, 0, 0);
  gos_tables_add_code(t, GPUOS_CODE_EXP, 1, 0, 0);
  gos_tables_add_code(t, GPUOS_CODE_CONST, 0, 0, 1);
  gos_tables_add_code(t, GPUOS_CODE_ADD, 2, 3, 0);
  gos_tables_add_code(t, GPUOS_CODE_DIV, 0, 4, 0);
  gos_tables_add_code(t, GPUOS_CODE_ACC, 1, 0, 0);
  gos_tables_add_code(t, GPUOS_CODE_MUL, 5, 6, 0);
}

static uint32_t add_second_matmul(fixture_t *f, uint32_t b) {
  gpuos_op_t *op = add_op(f, GPUOS_MATMUL, SHAPE(1, ROWS, M, N), (uint32_t[]){BLOCK, 6});
  op->slice = 8, op->park_bytes = 2 * 4 * BLOCK * 6;
  work(f, GPUOS_AS_X, b, AT_B, N, FOLLOWS(ALL, ALL, 1, 3));
  fixture_operand(f, GPUOS_AS_W0, W1, SHAPE(1, 1, M, N), FOLLOWS(ALL, ALL, 2, 3));
  fixture_operand(f, GPUOS_AS_W1, W2, SHAPE(1, 1, M, N), FOLLOWS(ALL, ALL, 2, 3));
  uint32_t c = work(f, GPUOS_AS_OUT, 0, AT_C, M, FOLLOWS(ALL, ALL, 1, 2))->value;
  add_silu_mul(f->tables);
  return c;
}

static uint32_t add_norm(fixture_t *f, uint32_t c) {
  gpuos_op_t *op = add_op(f, GPUOS_RMSNORM, SHAPE(1, 1, ROWS, 1), (uint32_t[]){1, BLOCK});
  op->params[0] = gos_float_bits(1e-5f);
  work(f, GPUOS_AS_X, c, AT_C, M, FOLLOWS(ALL, ALL, 2, ALL));
  fixture_operand(f, GPUOS_AS_NORM, GAIN, SHAPE(1, 1, 1, M), FOLLOWS(ALL, ALL, ALL, ALL));
  return work(f, GPUOS_AS_OUT, 0, AT_D, M, FOLLOWS(ALL, ALL, 2, ALL))->value;
}

static void add_softmax(fixture_t *f, uint32_t d) {
  add_op(f, GPUOS_SOFTMAX, SHAPE(1, 1, ROWS, 1), (uint32_t[]){1, 2});
  work(f, GPUOS_AS_X, d, AT_D, M, FOLLOWS(ALL, ALL, 2, ALL));
  fixture_operand(f, GPUOS_AS_OUT, PROBS, SHAPE(1, 1, ROWS, M), FOLLOWS(ALL, ALL, 2, ALL));
}

static void add_argmax(fixture_t *f, uint32_t d) {
  add_op(f, GPUOS_ARGMAX, SHAPE(1, 1, ROWS, 1), (uint32_t[]){1, BLOCK});
  work(f, GPUOS_AS_X, d, AT_D, M, FOLLOWS(ALL, ALL, 2, ALL));
  fixture_operand(f, GPUOS_AS_OUT, BEST, SHAPE(1, 1, 1, ROWS), FOLLOWS(ALL, ALL, ALL, 2));
}

static void add_buffers(fixture_t *f) {
  fixture_buffer(f, GPUOS_INPUT, GPUOS_BF16, ROWS * K);
  fixture_buffer(f, GPUOS_WEIGHT, GPUOS_BF16, N * K);
  fixture_buffer(f, GPUOS_WEIGHT, GPUOS_F16, M * N);
  fixture_buffer(f, GPUOS_WEIGHT, GPUOS_F16, M * N);
  fixture_buffer(f, GPUOS_WEIGHT, GPUOS_F32, M);
  fixture_buffer(f, GPUOS_OUTPUT, GPUOS_F32, ROWS * M);
  fixture_buffer(f, GPUOS_OUTPUT, GPUOS_I32, ROWS);
  fixture_workspace(f, WORK_BYTES);
}

chain_t chain_make(void) {
  chain_t chain = {.f = fixture_make(7), .probs = PROBS, .best = BEST};
  fixture_t *f = &chain.f;
  const uint32_t none[BLOCKS] = {0, 0, 0};
  uint32_t a_done[BLOCKS], a_list[BLOCKS], c_done[BLOCKS], c_list[BLOCKS];
  uint32_t d_done[BLOCKS], d_list[BLOCKS];
  add_buffers(f);
  uint32_t a = add_first_matmul(f);
  add_counters(f, a_done, a_list);
  add_blocks(f, 5, none, a_done);
  uint32_t b = add_map(f, a), b_done = gos_tables_add_counter(f->tables);
  add_blocks(f, 1, a_list, (uint32_t[]){b_done, b_done, b_done});
  uint32_t b_list = gos_tables_add_wait_list(f->tables, &b_done, 1);
  uint32_t c = add_second_matmul(f, b);
  add_counters(f, c_done, c_list);
  add_blocks(f, 3, (uint32_t[]){b_list, b_list, b_list}, c_done);
  uint32_t d = add_norm(f, c);
  add_counters(f, d_done, d_list);
  add_blocks(f, 1, c_list, d_done);
  add_softmax(f, d);
  add_blocks(f, 2, d_list, NULL);
  add_argmax(f, d);
  add_blocks(f, 1, d_list, NULL);
  fixture_finish(f);
  return chain;
}

void chain_free(chain_t *chain) { fixture_free(&chain->f); }

void chain_take(const chain_t *chain, uint8_t out[CHAIN_BYTES]) {
  memcpy(out, chain->f.buffers[chain->probs], ROWS * M * 4);
  memcpy(out + ROWS * M * 4, chain->f.buffers[chain->best], ROWS * 4);
}

void chain_clear(chain_t *chain) {
  memset(chain->f.buffers[chain->probs], 0xff, ROWS * M * 4);
  memset(chain->f.buffers[chain->best], 0xff, ROWS * 4);
}
