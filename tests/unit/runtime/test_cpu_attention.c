// KV_APPEND, ATTENTION and ATTENTION_COMBINE on the CPU device against plain references in double
// precision; numbers out of range are faults.
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "cpu_dtype.h"
#include "cpu_fixture.h"
#include "cpu_units.h"

#define GET fixture_get
enum { HEADS = 2, GROUP = 3, HEAD_DIM = 20, WIDTH = GROUP * HEAD_DIM };
enum { PAGE_SIZE = 4, PAGES = 5, SEQUENCES = 3, POOL = 16, CONTEXT = PAGE_SIZE * PAGES };

static const gpuos_operand_t *operand_as(const fixture_t *f, gpuos_as_t as) {
  for (uint32_t i = 0; i < f->tables->operands.count; i++)
    if (f->tables->operands.at[i].as == as) return &f->tables->operands.at[i];
  return NULL;
}

static gpuos_op_t *add_op(fixture_t *f, gpuos_kind_t kind, shape_t extent, shape_t tile) {
  gpuos_op_t *op = gos_tables_add_op(f->tables, "op", kind, extent.at);
  memcpy(op->tile, tile.at, sizeof op->tile);
  return op;
}

static void add_tiles(fixture_t *f, uint32_t wait_list, uint32_t signal) {
  gos_tables_add_tiles(f->tables, f->tables->ops.count - 1, wait_list, signal);
}

// Keys and values of the reference, by where they lie.
typedef double (*vector_t)(const fixture_t *f, uint32_t which, uint32_t batch, uint32_t key,
                           uint32_t head, uint32_t d);

// Softmax over `keys` keys for one query, element d of the weighted sum.
static double reference(const fixture_t *f, vector_t vector, uint32_t batch, uint32_t row,
                        uint32_t head, uint32_t g, uint32_t keys, uint32_t d) {
  double total = 0, sum = 0;
  for (uint32_t key = 0; key < keys; key++) {
    double dot = 0;
    for (uint32_t e = 0; e < HEAD_DIM; e++)
      dot += GET(f, operand_as(f, GPUOS_AS_X), batch, row, head, g * HEAD_DIM + e) *
             vector(f, 0, batch, key, head, e);
    total += exp(0.25 * dot);
    sum += exp(0.25 * dot) * vector(f, 1, batch, key, head, d);
  }
  return keys == 0 ? 0 : sum / total;
}

static void expect_row(const fixture_t *f, vector_t vector, uint32_t batch, uint32_t row,
                       uint32_t keys, const char *what) {
  const gpuos_operand_t *out = operand_as(f, GPUOS_AS_OUT);
  for (uint32_t head = 0; head < HEADS; head++)
    for (uint32_t i = 0; i < WIDTH; i++) {
      double got = GET(f, out, batch, row, head, i);
      double want = reference(f, vector, batch, row, head, i / HEAD_DIM, keys, i % HEAD_DIM);
      cr_expect(fixture_is_near(got, want, 1, out->dtype), "%s, row %u head %u: %g instead of %g",
                what, row, head, got, want);
    }
}

static void set_params(gpuos_op_t *op, uint32_t page_size, uint32_t split_len, uint32_t causal) {
  const uint32_t params[] = {gos_float_bits(0.25f), page_size, HEAD_DIM, GROUP, split_len, causal};
  memcpy(op->params, params, sizeof params);
}

// ---- with K and V -------------------------------------------------------------------------------

static double dense_vector(const fixture_t *f, uint32_t which, uint32_t batch, uint32_t key,
                           uint32_t head, uint32_t d) {
  return GET(f, operand_as(f, which == 0 ? GPUOS_AS_K : GPUOS_AS_V), batch, key, head, d);
}

static void try_dense(gpuos_dtype_t dtype, uint32_t rows, uint32_t keys, bool causal) {
  enum { BATCH = 2 };
  fixture_t f = fixture_make(rows + 100 * keys);
  fixture_buffer(&f, GPUOS_INPUT, dtype, BATCH * rows * HEADS * WIDTH);
  for (int i = 0; i < 2; i++)
    fixture_buffer(&f, GPUOS_INPUT, dtype, BATCH * keys * HEADS * HEAD_DIM);
  fixture_buffer(&f, GPUOS_OUTPUT, dtype, BATCH * rows * HEADS * WIDTH);
  fixture_workspace(&f, 64);
  gpuos_op_t *op = add_op(&f, GPUOS_ATTENTION, SHAPE(BATCH, rows, HEADS, 1), SHAPE(2, 3, 1, 1));
  set_params(op, 0, 0, causal);
  const shape_t q = SHAPE(BATCH, rows, HEADS, WIDTH), kv = SHAPE(BATCH, keys, HEADS, HEAD_DIM);
  fixture_operand(&f, GPUOS_AS_X, 0, q, FOLLOWS(0, 1, 2, ALL));
  fixture_operand(&f, GPUOS_AS_K, 1, kv, FOLLOWS(0, ALL, 2, ALL));
  fixture_operand(&f, GPUOS_AS_V, 2, kv, FOLLOWS(0, ALL, 2, ALL));
  fixture_operand(&f, GPUOS_AS_OUT, 3, q, FOLLOWS(0, 1, 2, ALL));
  add_tiles(&f, 0, GPUOS_NONE);
  fixture_finish(&f);
  cr_assert_eq(fixture_run(&f, 2, 0, false), GPUOS_OK);
  for (uint32_t b = 0; b < BATCH; b++)
    for (uint32_t row = 0; row < rows; row++)
      expect_row(&f, dense_vector, b, row, causal ? keys - rows + row + 1 : keys, "dense");
  fixture_free(&f);
}

Test(cpu_attention, dense_agrees_with_double_precision) {
  static const gpuos_dtype_t dtypes[] = {GPUOS_F32, GPUOS_F16, GPUOS_BF16, GPUOS_E4M3};
  for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
    try_dense(dtypes[t], 7, 7, true);
    try_dense(dtypes[t], 2, 70, true); // more keys than two blocks
    try_dense(dtypes[t], 4, 33, false);
  }
  try_dense(GPUOS_BF16, 1, 1, true);
}

// ---- with a cache -------------------------------------------------------------------------------

enum { ROWS = 4 };
enum { BUF_Q, BUF_CACHE, BUF_PAGES, BUF_POS, BUF_SEQ, BUF_OUT, BUF_WORK };
typedef struct paged {
  int32_t pages[SEQUENCES * PAGES], positions[ROWS], sequences[ROWS];
} paged_t;

static const paged_t usual = {
    {3, 1, 15, 0, 7, 2, 9, 4, 14, 5, 6, 8, 13, 10, 11}, {CONTEXT - 1, -1, 9, 0}, {2, 0, 1, 2}};

static double paged_vector(const fixture_t *f, uint32_t which, uint32_t sequence, uint32_t key,
                           uint32_t head, uint32_t d) {
  int32_t page = ((int32_t *)f->buffers[BUF_PAGES])[sequence * PAGES + key / PAGE_SIZE];
  return GET(f, operand_as(f, GPUOS_AS_CACHE), which, head, (uint32_t)page,
             key % PAGE_SIZE * HEAD_DIM + d);
}

static void add_cache_operands(fixture_t *f, uint8_t rows_follow, uint32_t rows) {
  fixture_operand(f, GPUOS_AS_PAGES, BUF_PAGES, SHAPE(1, 1, SEQUENCES, PAGES),
                  FOLLOWS(ALL, ALL, ALL, ALL));
  fixture_operand(f, GPUOS_AS_POS, BUF_POS, SHAPE(1, 1, 1, rows),
                  FOLLOWS(ALL, ALL, ALL, rows_follow));
  fixture_operand(f, GPUOS_AS_SEQ, BUF_SEQ, SHAPE(1, 1, 1, rows),
                  FOLLOWS(ALL, ALL, ALL, rows_follow));
}

static gpuos_operand_t *add_partial(fixture_t *f, uint32_t value, uint32_t splits,
                                    follows_t follows) {
  gpuos_operand_t *x = fixture_operand(f, GPUOS_AS_PARTIAL, BUF_WORK,
                                       SHAPE(ROWS, HEADS, splits, GROUP * (HEAD_DIM + 2)), follows);
  x->dtype = GPUOS_F32;
  if (!x->writes) x->value = value;
  return x;
}

static void add_combine(fixture_t *f, uint32_t partial, uint32_t splits, uint32_t wait_list) {
  gpuos_op_t *op = add_op(f, GPUOS_ATTENTION_COMBINE, SHAPE(1, ROWS, HEADS, 1), SHAPE(1, 3, 1, 1));
  set_params(op, 0, (CONTEXT + splits - 1) / splits, 0);
  op->params[7] = splits;
  fixture_operand(f, GPUOS_AS_POS, BUF_POS, SHAPE(1, 1, 1, ROWS), FOLLOWS(ALL, ALL, ALL, 1));
  add_partial(f, partial, splits, FOLLOWS(1, 2, ALL, ALL));
  fixture_operand(f, GPUOS_AS_OUT, BUF_OUT, SHAPE(1, ROWS, HEADS, WIDTH), FOLLOWS(ALL, 1, 2, ALL));
  add_tiles(f, wait_list, GPUOS_NONE);
}

static fixture_t make_paged(gpuos_dtype_t dtype, uint32_t splits, const paged_t *data) {
  fixture_t f = fixture_make(splits);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_BF16, ROWS * HEADS * WIDTH);
  fixture_buffer(&f, GPUOS_STATE, dtype, 2 * HEADS * POOL * PAGE_SIZE * HEAD_DIM);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, SEQUENCES * PAGES);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, ROWS);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, ROWS);
  fixture_buffer(&f, GPUOS_OUTPUT, GPUOS_F32, ROWS * HEADS * WIDTH);
  fixture_workspace(&f, ROWS * HEADS * splits * GROUP * (HEAD_DIM + 2) * 4);
  fixture_set_i32(&f, BUF_PAGES, data->pages, SEQUENCES * PAGES);
  fixture_set_i32(&f, BUF_POS, data->positions, ROWS);
  fixture_set_i32(&f, BUF_SEQ, data->sequences, ROWS);
  gpuos_op_t *op = add_op(&f, GPUOS_ATTENTION, SHAPE(1, ROWS, HEADS, splits), SHAPE(1, 3, 2, 1));
  set_params(op, PAGE_SIZE, (CONTEXT + splits - 1) / splits, 0);
  op->params[7] = splits;
  fixture_operand(&f, GPUOS_AS_X, BUF_Q, SHAPE(1, ROWS, HEADS, WIDTH), FOLLOWS(ALL, 1, 2, ALL));
  fixture_operand(&f, GPUOS_AS_CACHE, BUF_CACHE, SHAPE(2, HEADS, POOL, PAGE_SIZE * HEAD_DIM),
                  FOLLOWS(ALL, 2, ALL, ALL));
  add_cache_operands(&f, 1, ROWS);
  if (splits == 1) {
    fixture_operand(&f, GPUOS_AS_OUT, BUF_OUT, SHAPE(1, ROWS, HEADS, WIDTH),
                    FOLLOWS(ALL, 1, 2, ALL));
    add_tiles(&f, 0, GPUOS_NONE);
  } else {
    uint32_t value = add_partial(&f, 0, splits, FOLLOWS(1, 2, 3, ALL))->value;
    uint32_t counter = gos_tables_add_counter(f.tables);
    add_tiles(&f, 0, counter);
    add_combine(&f, value, splits, gos_tables_add_wait_list(f.tables, &counter, 1));
  }
  fixture_finish(&f);
  return f;
}

// The reference takes the sequence for the batch, which a cache has not; X is read at batch 0.
static double sequence_of_row_2(const fixture_t *f, uint32_t which, uint32_t batch, uint32_t key,
                                uint32_t head, uint32_t d) {
  return paged_vector(f, which, (uint32_t)usual.sequences[2] + batch, key, head, d);
}
static double sequence_of_rows_0_3(const fixture_t *f, uint32_t which, uint32_t batch, uint32_t key,
                                   uint32_t head, uint32_t d) {
  return paged_vector(f, which, (uint32_t)usual.sequences[0] + batch, key, head, d);
}

Test(cpu_attention, paged_and_split_agrees_with_double_precision) {
  static const gpuos_dtype_t dtypes[] = {GPUOS_F32, GPUOS_BF16, GPUOS_E5M2};
  for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++)
    for (uint32_t splits = 1; splits <= 7; splits += 2) {
      fixture_t f = make_paged(dtypes[t], splits, &usual);
      cr_assert_eq(fixture_run(&f, 2, 0, false), GPUOS_OK);
      for (uint32_t row = 0; row < ROWS; row++)
        expect_row(&f, row == 2 ? sequence_of_row_2 : sequence_of_rows_0_3, 0, row,
                   (uint32_t)(usual.positions[row] + 1), "paged");
      fixture_free(&f);
    }
}

static void expect_fault(fixture_t *f, gpuos_as_t as, int32_t index, uint32_t limit) {
  gos_cpu_t *cpu = gos_cpu_create(f->table, f->buffers, &(gos_cpu_options_t){.sm_count = 2});
  gos_cpu_submit(cpu, 1);
  cr_expect_eq(gos_cpu_wait(cpu, UINT64_MAX), GPUOS_FAULT);
  const gpuos_control_t *c = gos_cpu_control(cpu);
  cr_expect_eq(c->fault, GPUOS_FAULT_INDEX);
  cr_expect_eq(c->fault_a, as);
  cr_expect_eq((int32_t)c->fault_b, index);
  cr_expect_eq(c->fault_c, limit);
  gos_cpu_destroy(cpu);
  fixture_free(f);
}

static const struct {
  gpuos_as_t as;
  uint32_t at;
  int32_t index;
  uint32_t limit;
} bad[] = {{GPUOS_AS_POS, 2, CONTEXT, CONTEXT},     {GPUOS_AS_POS, 2, INT32_MAX, CONTEXT},
           {GPUOS_AS_SEQ, 3, SEQUENCES, SEQUENCES}, {GPUOS_AS_SEQ, 3, -1, SEQUENCES},
           {GPUOS_AS_PAGES, 6, POOL, POOL},         {GPUOS_AS_PAGES, 6, -1, POOL},
           {GPUOS_AS_PAGES, 6, INT32_MIN, POOL}};
enum { BAD = sizeof bad / sizeof *bad };

static paged_t spoilt(size_t number) {
  paged_t data = usual;
  int32_t *numbers = bad[number].as == GPUOS_AS_POS   ? data.positions
                     : bad[number].as == GPUOS_AS_SEQ ? data.sequences
                                                      : data.pages;
  numbers[bad[number].at] = bad[number].index;
  return data;
}

Test(cpu_attention, numbers_out_of_range_are_faults) {
  for (size_t b = 0; b < BAD; b++) {
    paged_t data = spoilt(b);
    fixture_t f = make_paged(GPUOS_BF16, 1, &data);
    expect_fault(&f, bad[b].as, bad[b].index, bad[b].limit);
  }
}

// ---- KV_APPEND ----------------------------------------------------------------------------------

enum { BUF_K = BUF_OUT, BUF_V = BUF_OUT + 1 };

// K and V bf16 rows, written into an f16 cache.
static fixture_t make_append(const paged_t *data) {
  fixture_t f = fixture_make(17);
  const shape_t cache = SHAPE(2, HEADS, POOL, PAGE_SIZE * HEAD_DIM);
  const shape_t kv = SHAPE(1, ROWS, HEADS, HEAD_DIM);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_BF16, 1);
  fixture_buffer(&f, GPUOS_STATE, GPUOS_F16, 2 * HEADS * POOL * PAGE_SIZE * HEAD_DIM);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, SEQUENCES * PAGES);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, ROWS);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, ROWS);
  for (int i = 0; i < 2; i++) fixture_buffer(&f, GPUOS_INPUT, GPUOS_BF16, ROWS * HEADS * HEAD_DIM);
  fixture_workspace(&f, 64);
  fixture_set_i32(&f, BUF_PAGES, data->pages, SEQUENCES * PAGES);
  fixture_set_i32(&f, BUF_POS, data->positions, ROWS);
  fixture_set_i32(&f, BUF_SEQ, data->sequences, ROWS);
  gpuos_op_t *op = add_op(&f, GPUOS_KV_APPEND, SHAPE(1, 1, HEADS, 1), SHAPE(1, 1, 1, 1));
  op->params[0] = PAGE_SIZE, op->params[1] = HEAD_DIM;
  fixture_operand(&f, GPUOS_AS_K, BUF_K, kv, FOLLOWS(ALL, ALL, 2, ALL));
  fixture_operand(&f, GPUOS_AS_V, BUF_V, kv, FOLLOWS(ALL, ALL, 2, ALL));
  fixture_operand(&f, GPUOS_AS_CACHE_IN, BUF_CACHE, cache, FOLLOWS(ALL, 2, ALL, ALL));
  fixture_operand(&f, GPUOS_AS_CACHE, BUF_CACHE, cache, FOLLOWS(ALL, 2, ALL, ALL));
  add_cache_operands(&f, ALL, ROWS);
  add_tiles(&f, 0, GPUOS_NONE);
  fixture_finish(&f);
  return f;
}

// The row that wrote a place of the pool, or -1.
static int writer(uint32_t page, uint32_t inside) {
  for (int row = 0; row < ROWS; row++) {
    int32_t position = usual.positions[row];
    if (position < 0) continue;
    int32_t at = usual.pages[usual.sequences[row] * PAGES + position / PAGE_SIZE];
    if ((uint32_t)at == page && (uint32_t)position % PAGE_SIZE == inside) return row;
  }
  return -1;
}

Test(cpu_kv_append, writes_rows_and_keeps_the_rest) {
  fixture_t f = make_append(&usual), before = make_append(&usual);
  cr_assert_eq(fixture_run(&f, 2, 0, false), GPUOS_OK);
  const gpuos_operand_t *cache = operand_as(&f, GPUOS_AS_CACHE);
  for (uint32_t which = 0; which < 2; which++)
    for (uint32_t head = 0; head < HEADS; head++)
      for (uint32_t page = 0; page < POOL; page++)
        for (uint32_t i = 0; i < PAGE_SIZE * HEAD_DIM; i++) {
          int row = writer(page, i / HEAD_DIM);
          double want = GET(&before, cache, which, head, page, i);
          if (row >= 0)
            want = GET(&f, operand_as(&f, which == 0 ? GPUOS_AS_K : GPUOS_AS_V), 0, (uint32_t)row,
                       head, i % HEAD_DIM);
          double got = GET(&f, cache, which, head, page, i);
          cr_expect(fixture_is_near(got, want, 0, GPUOS_F16), "%g instead of %g", got, want);
        }
  fixture_free(&f);
  fixture_free(&before);
}

Test(cpu_kv_append, numbers_out_of_range_are_faults) {
  for (size_t b = 0; b < BAD; b++) {
    paged_t data = spoilt(b);
    if (bad[b].as == GPUOS_AS_PAGES) data.pages[7] = bad[b].index; // the page of row 2
    fixture_t f = make_append(&data);
    expect_fault(&f, bad[b].as, bad[b].index, bad[b].limit);
  }
}

// Found by reading: a vector passes through scratch, and heads of more than 256 did not fit.
Test(cpu_kv_append, scratch_holds_a_long_head) {
  const gpuos_op_t op = {.kind = GPUOS_KV_APPEND, .params = {16, 300}};
  cr_expect_geq(gos_unit_scratch_floats(&op, NULL), 300);
}
