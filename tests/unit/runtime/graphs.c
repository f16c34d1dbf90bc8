// graphs.c: the tables, by hand. Letters: A follows nothing, N is no signal.
#include "graphs.h"

#include <stdbool.h>

enum { A = GPUOS_ALL };
#define N       GPUOS_NONE
#define U4(...) ((const uint32_t[4]){__VA_ARGS__})
#define F4(...) ((const uint8_t[4]){__VA_ARGS__})
#define SHAPE(...)                                                                                 \
  sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (const uint32_t[]) { __VA_ARGS__ }
#define BUFFER(name, role, dtype, ...)                                                             \
  gos_tables_add_buffer(t, name, GPUOS_##role, GPUOS_##dtype, SHAPE(__VA_ARGS__))
#define VIEW(as, dtype, ...) gos_tables_view(GPUOS_AS_##as, GPUOS_##dtype, __VA_ARGS__)
#define READ(...)            gos_tables_add_operand(t, VIEW(__VA_ARGS__), 0)
#define WRITE(...)           gos_tables_add_operand(t, VIEW(__VA_ARGS__), 1)
#define CODE(op, a, b)       gos_tables_add_code(t, GPUOS_CODE_##op, a, b, 0)
#define OP(name, kind, ...)  gos_tables_add_op(t, name, GPUOS_##kind, U4(__VA_ARGS__))

static void set_tile(gpuos_op_t *op, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
  op->tile[0] = t0, op->tile[1] = t1, op->tile[2] = t2, op->tile[3] = t3;
}

static uint32_t bits(float value) {
  union {
    float value;
    uint32_t bits;
  } both = {.value = value};
  return both.bits;
}

static uint32_t wait1(gos_tables_t *t, uint32_t a) { return gos_tables_add_wait_list(t, &a, 1); }
static uint32_t wait2(gos_tables_t *t, uint32_t a, uint32_t b) {
  return gos_tables_add_wait_list(t, (uint32_t[]){a, b}, 2);
}

static void last_op_tiles(gos_tables_t *t, uint32_t list, uint32_t signal) {
  gos_tables_add_tiles(t, t->ops.count - 1, list, signal);
}

// A gated pair of sliced GEMMs with bias, then a GEMM that waits for row panels.
static gos_tables_t *build_gemm(void) {
  gos_tables_t *t = gos_tables_create();
  uint32_t x = BUFFER("x", INPUT, F32, 8, 8), w0 = BUFFER("gate", WEIGHT, F32, 12, 8),
           w1 = BUFFER("up", WEIGHT, F32, 12, 8), w2 = BUFFER("down", WEIGHT, F32, 8, 12),
           bias = BUFFER("bias", WEIGHT, F32, 12), y = BUFFER("y", OUTPUT, F32, 8, 8),
           ws = gos_tables_add_workspace(t, 8 * 12 * 4), h = gos_tables_add_value(t),
           out = gos_tables_add_value(t);
  gpuos_op_t *op = OP("gate_up", MATMUL, 1, 8, 12, 8);
  set_tile(op, 1, 4, 5, 8); // ragged in n
  op->slice = 3;
  op->park_bytes = t->header.park_bytes = 2 * 4 * 5 * 4;
  WRITE(OUT, F32, ws, h, 0, U4(1, 1, 8, 12), F4(A, 0, 1, 2));
  READ(X, F32, x, x, 0, U4(1, 1, 8, 8), F4(A, A, 1, 3));
  READ(W0, F32, w0, w0, 0, U4(1, 1, 12, 8), F4(A, A, 2, 3));
  READ(W1, F32, w1, w1, 0, U4(1, 1, 12, 8), F4(A, A, 2, 3));
  READ(EXTRA, F32, bias, bias, 0, U4(1, 1, 1, 12), F4(A, A, A, 2));
  CODE(ACC, 0, 0), CODE(ACC, 1, 0), CODE(TANH, 0, 0), CODE(MUL, 1, 2), CODE(INPUT, 0, 0),
      CODE(ADD, 3, 4);
  uint32_t panel[2] = {gos_tables_add_counter(t), gos_tables_add_counter(t)};
  for (uint32_t i = 0; i < 6; i++) gos_tables_add_tile(t, 0, i, 0, panel[i / 3]);
  op = OP("down", MATMUL, 1, 8, 8, 12);
  set_tile(op, 1, 2, 4, 12);
  WRITE(OUT, F32, y, out, 0, U4(1, 1, 8, 8), F4(A, 0, 1, 2));
  READ(X, F32, ws, h, 0, U4(1, 1, 8, 12), F4(A, 0, 1, 3));
  READ(W0, F32, w2, w2, 0, U4(1, 1, 8, 12), F4(A, 0, 2, 3));
  uint32_t list[2] = {wait1(t, panel[0]), wait1(t, panel[1])};
  for (uint32_t i = 0; i < 8; i++) gos_tables_add_tile(t, 1, i, list[i / 4], N);
  gos_tables_settle(t);
  return t;
}

// Two workspace slots in turn: that a slot's last reader is done follows through the chain alone.
static gos_tables_t *build_chain(void) {
  gos_tables_t *t = gos_tables_create();
  uint32_t x = BUFFER("x", INPUT, F32, 4, 8), w = BUFFER("w", WEIGHT, F32, 8, 8),
           y = BUFFER("y", OUTPUT, F32, 4, 8), ws = gos_tables_add_workspace(t, 2 * 128);
  uint32_t from = x, at = x, offset = 0, list = 0;
  for (uint32_t i = 0; i < 6; i++) {
    bool matmul = i % 2 == 0, last = i == 5;
    uint32_t to = last ? y : ws, goal = last ? 0 : i % 2 * 128, value = gos_tables_add_value(t),
             counter = last ? N : gos_tables_add_counter(t);
    gpuos_op_t *op = matmul ? OP("matmul", MATMUL, 1, 4, 8, 8) : OP("map", MAP, 1, 1, 4, 8);
    if (matmul) set_tile(op, 1, 2, 4, 8);
    WRITE(OUT, F32, to, value, goal, U4(1, 1, 4, 8), matmul ? F4(A, 0, 1, 2) : F4(0, 1, 2, 3));
    if (matmul) READ(W0, F32, w, w, 0, U4(1, 1, 8, 8), F4(A, 0, 2, 3));
    if (matmul)
      READ(X, F32, from, at, offset, U4(1, 1, 4, 8), F4(A, 0, 1, 3));
    else
      READ(EXTRA, F32, from, at, offset, U4(1, 1, 4, 8), F4(0, 1, 2, 3));
    if (!matmul) CODE(INPUT, 0, 0), CODE(EXP, 0, 0);
    last_op_tiles(t, list, counter);
    list = last ? 0 : wait1(t, counter);
    from = to, at = value, offset = goal;
  }
  gos_tables_settle(t);
  return t;
}

// Row by row: a; b and c from a; d from both, over a, with one wait too many.
static gos_tables_t *build_diamond(void) {
  gos_tables_t *t = gos_tables_create();
  uint32_t x = BUFFER("x", INPUT, F32, 4, 6), y = BUFFER("y", OUTPUT, F32, 4, 6),
           ws = gos_tables_add_workspace(t, 3 * 96), v[4], counter[4][4];
  for (int i = 0; i < 4; i++) v[i] = gos_tables_add_value(t);
  for (uint32_t i = 0; i < 16; i++) counter[i / 4][i % 4] = gos_tables_add_counter(t);
  const uint32_t offset[4] = {0, 96, 192, 0};
#define ROWS U4(1, 1, 4, 6), F4(0, 1, 2, 3)
  for (int i = 0; i < 4; i++) {
    OP("node", MAP, 1, 1, 4, 6);
    WRITE(OUT, F32, ws, v[i], offset[i], ROWS);
    if (i == 0) READ(EXTRA, F32, x, x, 0, ROWS);
    if (i == 1 || i == 2) READ(EXTRA, F32, ws, v[0], 0, ROWS);
    if (i == 3) READ(EXTRA, F32, ws, v[1], 96, ROWS);
    if (i == 3) READ(EXTRA, F32, ws, v[2], 192, ROWS);
    if (i == 3) CODE(INPUT, 0, 0), CODE(INPUT, 1, 0), CODE(ADD, 0, 1);
    for (uint32_t row = 0; row < 4; row++) {
      uint32_t waits[3] = {counter[1][row], counter[2][row], counter[0][row]};
      uint32_t list = i == 0   ? 0
                      : i == 3 ? gos_tables_add_wait_list(t, waits, 3)
                               : wait1(t, counter[0][row]);
      gos_tables_add_tile(t, (uint32_t)i, row, list, counter[i][row]);
    }
  }
  OP("copy", MAP, 1, 1, 4, 6);
  READ(EXTRA, F32, ws, v[3], 0, ROWS);
  WRITE(OUT, F32, y, gos_tables_add_value(t), 0, ROWS);
#undef ROWS
  for (uint32_t row = 0; row < 4; row++)
    gos_tables_add_tile(t, 4, row, wait1(t, counter[3][row]), N);
  gos_tables_settle(t);
  return t;
}

// Rotate in place, append to a paged cache, attend in splits, combine.
static gos_tables_t *build_attention(void) {
  enum { ROWS = 2, HEADS = 2, DIM = 4, KV = ROWS * HEADS * DIM * 4 };
  gos_tables_t *t = gos_tables_create();
  uint32_t q = BUFFER("q", INPUT, F32, ROWS, HEADS, 2 * DIM),
           k = BUFFER("k", INPUT, F32, ROWS, HEADS, DIM),
           v = BUFFER("v", INPUT, F32, ROWS, HEADS, DIM), pos = BUFFER("pos", INPUT, I32, ROWS),
           seq = BUFFER("seq", INPUT, I32, ROWS), pages = BUFFER("pages", INPUT, I32, 3, 2),
           cache = BUFFER("cache", STATE, F32, 2, HEADS, 4, 2 * DIM),
           y = BUFFER("y", OUTPUT, F32, ROWS, HEADS, 2 * DIM),
           ws = gos_tables_add_workspace(t, 512), kr = gos_tables_add_value(t),
           kr2 = gos_tables_add_value(t), now = gos_tables_add_value(t),
           partial = gos_tables_add_value(t), out = gos_tables_add_value(t),
           done[4] = {gos_tables_add_counter(t), gos_tables_add_counter(t),
                      gos_tables_add_counter(t), gos_tables_add_counter(t)};
#define KEYS      U4(1, ROWS, HEADS, DIM), F4(A, 1, 2, A)
#define HEAD_KEYS U4(1, ROWS, HEADS, DIM), F4(A, A, 2, A)
#define POOL      U4(2, HEADS, 4, 2 * DIM), F4(A, 2, A, A)
  OP("copy", MAP, 1, ROWS, HEADS, DIM);
  READ(EXTRA, F32, k, k, 0, U4(1, ROWS, HEADS, DIM), F4(0, 1, 2, 3));
  WRITE(OUT, F32, ws, kr, 0, U4(1, ROWS, HEADS, DIM), F4(0, 1, 2, 3));
  last_op_tiles(t, 0, done[0]);
  gpuos_op_t *op = OP("rope", ROPE, 1, ROWS, HEADS, 1);
  op->params[0] = bits(10000);
  WRITE(OUT, F32, ws, kr2, 0, KEYS);
  READ(X, F32, ws, kr, 0, KEYS);
  READ(POS, I32, pos, pos, 0, U4(1, 1, 1, ROWS), F4(A, A, A, 1));
  last_op_tiles(t, wait1(t, done[0]), done[1]);
  op = OP("append", KV_APPEND, 1, 1, HEADS, 1);
  op->params[0] = 2, op->params[1] = DIM;
  READ(CACHE_IN, F32, cache, cache, 0, POOL);
  WRITE(CACHE, F32, cache, now, 0, POOL);
  READ(K, F32, ws, kr2, 0, HEAD_KEYS);
  READ(V, F32, v, v, 0, HEAD_KEYS);
  READ(POS, I32, pos, pos, 0, U4(1, 1, 1, ROWS), F4(A, A, A, A));
  READ(PAGES, I32, pages, pages, 0, U4(1, 1, 3, 2), F4(A, A, A, A));
  last_op_tiles(t, wait1(t, done[1]), done[2]);
  op = OP("attend", ATTENTION, 1, ROWS, HEADS, 2);
  set_tile(op, 1, 1, 1, 1);
  op->params[0] = bits(0.5f), op->params[1] = 2, op->params[2] = DIM, op->params[3] = 2,
  op->params[4] = 2, op->params[7] = 2;
  READ(X, F32, q, q, 0, U4(1, ROWS, HEADS, 2 * DIM), F4(0, 1, 2, A));
  READ(CACHE, F32, cache, now, 0, POOL);
  READ(POS, I32, pos, pos, 0, U4(1, 1, 1, ROWS), F4(A, A, A, 1));
  READ(SEQ, I32, seq, seq, 0, U4(1, 1, 1, ROWS), F4(A, A, A, 1));
  READ(PAGES, I32, pages, pages, 0, U4(1, 1, 3, 2), F4(A, A, A, A));
  WRITE(PARTIAL, F32, ws, partial, KV, U4(ROWS, HEADS, 2, 2 * (DIM + 2)), F4(1, 2, 3, A));
  last_op_tiles(t, wait1(t, done[2]), done[3]);
  op = OP("combine", ATTENTION_COMBINE, 1, ROWS, HEADS, 1);
  op->params[2] = DIM, op->params[3] = 2, op->params[4] = 2, op->params[7] = 2;
  READ(PARTIAL, F32, ws, partial, KV, U4(ROWS, HEADS, 2, 2 * (DIM + 2)), F4(1, 2, A, A));
  READ(POS, I32, pos, pos, 0, U4(1, 1, 1, ROWS), F4(A, A, A, 1));
  WRITE(OUT, F32, y, out, 0, U4(1, ROWS, HEADS, 2 * DIM), F4(A, 1, 2, A));
  last_op_tiles(t, wait1(t, done[3]), N);
#undef KEYS
#undef HEAD_KEYS
#undef POOL
  gos_tables_settle(t);
  return t;
}

// Embedding, norm, a GEMM with its norm inside, softmax in place, argmax; two outputs.
static gos_tables_t *build_sampler(void) {
  enum { ROWS = 3, D = 4, VOCAB = 6 };
  gos_tables_t *t = gos_tables_create();
  uint32_t ids = BUFFER("ids", INPUT, I32, ROWS), e = BUFFER("embed", WEIGHT, F32, VOCAB, D),
           g = BUFFER("norm", WEIGHT, F32, D), best = BUFFER("best", OUTPUT, I32, ROWS),
           p = BUFFER("p", OUTPUT, F32, ROWS, VOCAB), ws = gos_tables_add_workspace(t, 192), v[6];
  for (int i = 0; i < 6; i++) v[i] = gos_tables_add_value(t);
  uint32_t c[5];
  for (int i = 0; i < 5; i++) c[i] = gos_tables_add_counter(t);
  gpuos_op_t *op = OP("embed", EMBEDDING, 1, 1, ROWS, D);
  set_tile(op, 1, 1, 2, 2);
  READ(IDS, I32, ids, ids, 0, U4(1, 1, 1, ROWS), F4(A, A, A, 2));
  READ(TABLE, F32, e, e, 0, U4(1, 1, VOCAB, D), F4(A, A, A, 3));
  WRITE(OUT, F32, ws, v[0], 0, U4(1, 1, ROWS, D), F4(A, A, 2, 3));
  last_op_tiles(t, 0, c[0]);
  op = OP("norm", RMSNORM, 1, 1, ROWS, 1);
  op->params[0] = bits(1e-5f);
  READ(X, F32, ws, v[0], 0, U4(1, 1, ROWS, D), F4(0, 1, 2, A));
  READ(NORM, F32, g, g, 0, U4(1, 1, 1, D), F4(A, A, A, A));
  WRITE(OUT, F32, ws, v[1], 0, U4(1, 1, ROWS, D), F4(0, 1, 2, A));
  last_op_tiles(t, wait1(t, c[0]), c[1]);
  op = OP("head", MATMUL, 1, ROWS, VOCAB, D);
  set_tile(op, 1, 2, 3, D);
  READ(X, F32, ws, v[1], 0, U4(1, 1, ROWS, D), F4(A, 0, 1, A));
  READ(NORM, F32, g, g, 0, U4(1, 1, 1, D), F4(A, A, A, 3));
  READ(W0, F32, e, e, 0, U4(1, 1, VOCAB, D), F4(A, 0, 2, 3));
  WRITE(OUT, F32, ws, v[2], 64, U4(1, 1, ROWS, VOCAB), F4(A, 0, 1, 2));
  last_op_tiles(t, wait1(t, c[1]), c[2]);
  OP("argmax", ARGMAX, 1, 1, ROWS, 1);
  READ(X, F32, ws, v[2], 64, U4(1, 1, ROWS, VOCAB), F4(0, 1, 2, A));
  WRITE(OUT, I32, best, v[3], 0, U4(1, 1, 1, ROWS), F4(A, 0, 1, 2));
  last_op_tiles(t, wait1(t, c[2]), c[3]);
  OP("softmax", SOFTMAX, 1, 1, ROWS, 1);
  READ(X, F32, ws, v[2], 64, U4(1, 1, ROWS, VOCAB), F4(0, 1, 2, A));
  WRITE(OUT, F32, ws, v[4], 64, U4(1, 1, ROWS, VOCAB), F4(0, 1, 2, A));
  last_op_tiles(t, wait2(t, c[2], c[3]), c[4]);
  OP("copy", MAP, 1, 1, ROWS, VOCAB);
  READ(EXTRA, F32, ws, v[4], 64, U4(1, 1, ROWS, VOCAB), F4(0, 1, 2, 3));
  WRITE(OUT, F32, p, v[5], 0, U4(1, 1, ROWS, VOCAB), F4(0, 1, 2, 3));
  last_op_tiles(t, wait1(t, c[4]), N);
  gos_tables_settle(t);
  return t;
}

// Two writers of interleaved columns that need not wait for each other, then a transpose.
static gos_tables_t *build_columns(void) {
  gos_tables_t *t = gos_tables_create();
  uint32_t x = BUFFER("x", INPUT, BF16, 6, 4), y = BUFFER("y", OUTPUT, BF16, 8, 6),
           ws = gos_tables_add_workspace(t, 6 * 8 * 2), whole = gos_tables_add_value(t),
           out = gos_tables_add_value(t), c = gos_tables_add_counter(t);
  for (uint32_t i = 0; i < 2; i++) {
    gpuos_op_t *op = OP("half", MAP, 1, 1, 6, 4);
    set_tile(op, 1, 1, 3, 2);
    READ(EXTRA, BF16, x, x, 0, U4(1, 1, 6, 4), F4(0, 1, 2, 3));
    gpuos_operand_t *w = WRITE(OUT, BF16, ws, whole, i * 2, U4(1, 1, 6, 4), F4(0, 1, 2, 3));
    w->stride[2] = 8, w->stride[3] = 2;
    last_op_tiles(t, 0, c);
  }
  gpuos_op_t *op = OP("transpose", MAP, 1, 1, 8, 6);
  set_tile(op, 1, 1, 4, 4);
  gpuos_operand_t *r = READ(EXTRA, BF16, ws, whole, 0, U4(1, 1, 8, 6), F4(0, 1, 2, 3));
  r->stride[2] = 1, r->stride[3] = 8;
  WRITE(OUT, BF16, y, out, 0, U4(1, 1, 8, 6), F4(0, 1, 2, 3));
  last_op_tiles(t, wait1(t, c), N);
  gos_tables_settle(t);
  return t;
}

// A live graph and a background one: attention over contiguous keys, batched, beside a GEMM whose
// result replaces a state that was read before.
static gos_tables_t *build_pair(void) {
  gos_tables_t *t = gos_tables_create();
  uint32_t q = BUFFER("q", INPUT, F32, 2, 3, 1, 4), k = BUFFER("k", INPUT, F32, 2, 4, 1, 2),
           v = BUFFER("v", INPUT, F32, 2, 4, 1, 2), y = BUFFER("y", OUTPUT, F32, 2, 3, 1, 4),
           s = BUFFER("s", STATE, F32, 4, 4), w = BUFFER("w", WEIGHT, F32, 4, 4),
           ws = gos_tables_add_workspace(t, 64), out = gos_tables_add_value(t),
           h = gos_tables_add_value(t), s2 = gos_tables_add_value(t);
  gos_tables_begin_graph(t, "live", 1);
  gpuos_op_t *op = OP("attend", ATTENTION, 2, 3, 1, 1);
  op->params[0] = bits(1), op->params[2] = 2, op->params[3] = 2, op->params[5] = 1;
  READ(X, F32, q, q, 0, U4(2, 3, 1, 4), F4(0, 1, 2, A));
  READ(K, F32, k, k, 0, U4(2, 4, 1, 2), F4(0, A, 2, A));
  READ(V, F32, v, v, 0, U4(2, 4, 1, 2), F4(0, A, 2, A));
  WRITE(OUT, F32, y, out, 0, U4(2, 3, 1, 4), F4(0, 1, 2, A));
  last_op_tiles(t, 0, N);
  gos_tables_begin_graph(t, "job", 0);
  op = OP("step", MATMUL, 1, 4, 4, 4);
  set_tile(op, 1, 2, 2, 4);
  op->slice = 2;
  op->park_bytes = t->header.park_bytes = 16;
  uint32_t c = gos_tables_add_counter(t);
  READ(X, F32, s, s, 0, U4(1, 1, 4, 4), F4(A, A, 1, 3));
  READ(W0, F32, w, w, 0, U4(1, 1, 4, 4), F4(A, A, 2, 3));
  READ(EXTRA, F32, s, s, 0, U4(1, 1, 4, 4), F4(A, A, 1, 2));
  WRITE(OUT, F32, ws, h, 0, U4(1, 1, 4, 4), F4(A, A, 1, 2));
  CODE(ACC, 0, 0), CODE(INPUT, 0, 0), CODE(SUB, 1, 0), CODE(ROUND, 2, GPUOS_BF16);
  last_op_tiles(t, 0, c);
  op = OP("keep", MAP, 1, 1, 4, 4);
  set_tile(op, 1, 1, 3, 3);
  READ(EXTRA, F32, ws, h, 0, U4(1, 1, 4, 4), F4(0, 1, 2, 3));
  WRITE(OUT, F32, s, s2, 0, U4(1, 1, 4, 4), F4(0, 1, 2, 3));
  last_op_tiles(t, wait1(t, c), N);
  gos_tables_settle(t);
  return t;
}

// Tiles of two operators in turn, a counter for each tile, tile by tile through three slots that
// rotate: the wait for the slot's last reader is direct in places and transitive in others.
static gos_tables_t *build_pipeline(void) {
  enum { STAGES = 4, ROWS = 5 };
  gos_tables_t *t = gos_tables_create();
  uint32_t x = BUFFER("x", INPUT, F32, ROWS, 4), y = BUFFER("y", OUTPUT, F32, ROWS, 4),
           ws = gos_tables_add_workspace(t, 2 * ROWS * 16), v[STAGES], c[STAGES][ROWS];
  for (uint32_t s = 0; s < STAGES; s++) v[s] = gos_tables_add_value(t);
  for (uint32_t i = 0; i < STAGES * ROWS; i++) c[i / ROWS][i % ROWS] = gos_tables_add_counter(t);
#define ROW U4(1, 1, ROWS, 4), F4(0, 1, 2, 3)
  for (uint32_t s = 0; s < STAGES; s++) {
    OP("stage", MAP, 1, 1, ROWS, 4);
    if (s == 0)
      READ(EXTRA, F32, x, x, 0, ROW);
    else
      READ(EXTRA, F32, ws, v[s - 1], (s - 1) % 2 * ROWS * 16, ROW);
    if (s + 1 < STAGES)
      WRITE(OUT, F32, ws, v[s], s % 2 * ROWS * 16, ROW);
    else
      WRITE(OUT, F32, y, v[s], 0, ROW);
  }
#undef ROW
  // Anti-diagonals: row r of stage s runs in wave r + s.
  for (uint32_t wave = 0; wave < STAGES + ROWS - 1; wave++)
    for (uint32_t s = 0; s < STAGES; s++) {
      uint32_t row = wave - s;
      if (wave < s || row >= ROWS) continue;
      uint32_t list = s == 0              ? 0
                      : s >= 2 && row % 2 ? wait2(t, c[s - 1][row], c[s - 2][row])
                                          : wait1(t, c[s - 1][row]);
      gos_tables_add_tile(t, s, row, list, c[s][row]);
    }
  gos_tables_settle(t);
  return t;
}

// A product of two weights, the second joined to the first, and of the second alone another one, which reads a part of it.
static gos_tables_t *build_stack(void) {
  gos_tables_t *t = gos_tables_create();
  uint32_t x = BUFFER("x", INPUT, F32, 2, 8), w0 = BUFFER("q", WEIGHT, F32, 8, 8),
           w1 = BUFFER("k", WEIGHT, F32, 4, 8), y = BUFFER("y", OUTPUT, F32, 2, 12),
           z = BUFFER("z", OUTPUT, F32, 2, 4);
  t->buffers.at[w1].joined = 1;
  gos_tables_add_workspace(t, 0);
  uint32_t all = gos_tables_add_value(t), part = gos_tables_add_value(t);
  uint32_t made = gos_tables_add_counter(t);
  set_tile(OP("q,k", MATMUL, 1, 2, 12, 8), 1, 2, 5, 8);
  WRITE(OUT, F32, y, all, 0, U4(1, 1, 2, 12), F4(A, 0, 1, 2));
  READ(X, F32, x, x, 0, U4(1, 1, 2, 8), F4(A, A, 1, 3));
  READ(W0, F32, w0, w0, 0, U4(1, 1, 12, 8), F4(A, A, 2, 3));
  last_op_tiles(t, 0, made);
  set_tile(OP("k", MATMUL, 1, 2, 4, 8), 1, 2, 2, 8);
  WRITE(OUT, F32, z, part, 0, U4(1, 1, 2, 4), F4(A, 0, 1, 2));
  gpuos_operand_t q = VIEW(X, F32, y, all, 0, U4(1, 1, 2, 8), F4(A, A, 1, 3));
  q.stride[2] = 12;
  gos_tables_add_operand(t, q, 0);
  READ(W0, F32, w1, w1, 0, U4(1, 1, 4, 8), F4(A, A, 2, 3));
  last_op_tiles(t, wait1(t, made), N);
  gos_tables_settle(t);
  return t;
}

const gos_graph_t gos_graphs[GOS_GRAPH_COUNT] = {
    {"gemm", build_gemm},           {"chain", build_chain},       {"diamond", build_diamond},
    {"attention", build_attention}, {"sampler", build_sampler},   {"columns", build_columns},
    {"pair", build_pair},           {"pipeline", build_pipeline}, {"stack", build_stack},
};
