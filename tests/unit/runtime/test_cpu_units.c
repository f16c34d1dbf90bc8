// The operator kinds of the CPU device but MATMUL and attention, each against a plain reference in
// double precision on random data, through a whole step.
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "cpu_dtype.h"
#include "cpu_fixture.h"

#define GET                  fixture_get
#define ROUNDED_TO(dtype, x) fixture_decode(dtype, narrow(dtype, x))

static uint32_t narrow(gpuos_dtype_t dtype, double x) {
  uint32_t bits = 0;
  float single = (float)x;
  gos_store_f32(dtype, &bits, 1, 1, &single);
  return bits;
}

static void expect(double got, double want, double scale, gpuos_dtype_t dtype, const char *what) {
  cr_expect(fixture_is_near(got, want, scale, dtype), "%s: %g instead of %g", what, got, want);
}

static void run(fixture_t *f) {
  gos_tables_add_tiles(f->tables, f->tables->ops.count - 1, 0, GPUOS_NONE);
  fixture_finish(f);
  cr_assert_eq(fixture_run(f, 2, 0, false), GPUOS_OK);
}

static const gpuos_operand_t *operand(const fixture_t *f, uint32_t number) {
  return &f->tables->operands.at[number];
}

static gpuos_op_t *add_op(fixture_t *f, gpuos_kind_t kind, shape_t extent, shape_t tile) {
  gpuos_op_t *op = gos_tables_add_op(f->tables, "op", kind, extent.at);
  memcpy(op->tile, tile.at, sizeof op->tile);
  return op;
}

#define D0_D3 FOLLOWS(0, 1, 2, 3)
#define ROWS  FOLLOWS(0, 1, 2, ALL)

// Calls the body for every point of an extent.
#define EACH_POINT(e)                                                                              \
  for (uint32_t i0 = 0; i0 < (e).at[0]; i0++)                                                      \
    for (uint32_t i1 = 0; i1 < (e).at[1]; i1++)                                                    \
      for (uint32_t i2 = 0; i2 < (e).at[2]; i2++)                                                  \
        for (uint32_t i3 = 0; i3 < (e).at[3]; i3++)

// ---- MAP ----------------------------------------------------------------------------------------

// Every instruction that takes one value, on an input in [0.25, 1.25].
static const struct {
  gpuos_code_op_t op;
  double (*reference)(double);
} unary[] = {{GPUOS_CODE_ABS, fabs},  {GPUOS_CODE_EXP, exp},   {GPUOS_CODE_LOG, log},
             {GPUOS_CODE_SQRT, sqrt}, {GPUOS_CODE_TANH, tanh}, {GPUOS_CODE_ERF, erf}};

static fixture_t make_map(gpuos_dtype_t in, gpuos_dtype_t out, shape_t extent, shape_t tile) {
  uint32_t elems = extent.at[0] * extent.at[1] * extent.at[2] * extent.at[3];
  fixture_t f = fixture_make(elems);
  fixture_buffer(&f, GPUOS_INPUT, in, elems);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_F32, elems);
  fixture_buffer(&f, GPUOS_OUTPUT, out, elems);
  fixture_workspace(&f, 64);
  add_op(&f, GPUOS_MAP, extent, tile);
  fixture_operand(&f, GPUOS_AS_EXTRA, 0, extent, D0_D3);
  fixture_operand(&f, GPUOS_AS_EXTRA, 1, extent, D0_D3);
  fixture_operand(&f, GPUOS_AS_OUT, 2, extent, D0_D3);
  return f;
}

Test(cpu_map, unary_instructions) {
  const shape_t extent = SHAPE(1, 1, 3, 301);
  for (size_t u = 0; u < sizeof unary / sizeof *unary; u++) {
    fixture_t f = make_map(GPUOS_F32, GPUOS_F32, extent, SHAPE(1, 1, 2, 300));
    gos_tables_add_code(f.tables, GPUOS_CODE_INPUT, 0, 0, 0);
    gos_tables_add_code(f.tables, GPUOS_CODE_CONST, 0, 0, 0.75f);
    gos_tables_add_code(f.tables, GPUOS_CODE_MUL, 0, 0, 0); // in [0, 1]
    gos_tables_add_code(f.tables, GPUOS_CODE_ADD, 2, 1, 0);
    gos_tables_add_code(f.tables, unary[u].op, 3, 255, 0); // what is not read may be anything
    run(&f);
    EACH_POINT(extent) {
      double x = GET(&f, operand(&f, 0), i0, i1, i2, i3);
      expect(GET(&f, operand(&f, 2), i0, i1, i2, i3), unary[u].reference(x * x + 0.75), 1,
             GPUOS_F32, "unary");
    }
    fixture_free(&f);
  }
}

// round_e4m3(max(a, b) - min(a, b)) / rsqrt(4) * -a
Test(cpu_map, binary_instructions_and_rounding) {
  const shape_t extent = SHAPE(2, 3, 5, 7);
  fixture_t f = make_map(GPUOS_F16, GPUOS_F32, extent, SHAPE(1, 2, 2, 4));
  static const gpuos_code_t code[] = {
      {GPUOS_CODE_INPUT, 0, 0, 0, 0}, {GPUOS_CODE_INPUT, 1, 0, 0, 0},
      {GPUOS_CODE_MAX, 0, 1, 0, 0},   {GPUOS_CODE_MIN, 0, 1, 0, 0},
      {GPUOS_CODE_SUB, 2, 3, 0, 0},   {GPUOS_CODE_ROUND, 4, GPUOS_E4M3, 0, 0},
      {GPUOS_CODE_CONST, 0, 0, 0, 4}, {GPUOS_CODE_RSQRT, 6, 0, 0, 0},
      {GPUOS_CODE_DIV, 5, 7, 0, 0},   {GPUOS_CODE_NEG, 0, 0, 0, 0},
      {GPUOS_CODE_MUL, 8, 9, 0, 0}};
  for (size_t i = 0; i < sizeof code / sizeof *code; i++)
    gos_tables_add_code(f.tables, code[i].op, code[i].a, code[i].b, code[i].imm);
  run(&f);
  EACH_POINT(extent) {
    double a = GET(&f, operand(&f, 0), i0, i1, i2, i3), b = GET(&f, operand(&f, 1), i0, i1, i2, i3);
    double want = ROUNDED_TO(GPUOS_E4M3, fabs(a - b)) * 2 * -a;
    expect(GET(&f, operand(&f, 2), i0, i1, i2, i3), want, 0, GPUOS_F32, "binary");
  }
  fixture_free(&f);
}

Test(cpu_map, max_and_min_pass_over_nan) {
  fixture_t f = make_map(GPUOS_F32, GPUOS_F32, SHAPE(1, 1, 1, 2), SHAPE(1, 1, 1, 2));
  memcpy(f.buffers[0], (float[]){NAN, 1}, 8);
  memcpy(f.buffers[1], (float[]){2, NAN}, 8);
  gos_tables_add_code(f.tables, GPUOS_CODE_INPUT, 0, 0, 0);
  gos_tables_add_code(f.tables, GPUOS_CODE_INPUT, 1, 0, 0);
  gos_tables_add_code(f.tables, GPUOS_CODE_MAX, 0, 1, 0);
  gos_tables_add_code(f.tables, GPUOS_CODE_MIN, 1, 0, 0);
  gos_tables_add_code(f.tables, GPUOS_CODE_ADD, 2, 3, 0);
  run(&f);
  cr_expect_arr_eq(f.buffers[2], ((float[]){4, 2}), 8);
  fixture_free(&f);
}

// A transposed and a broadcast view; the widest dimension is not the last one.
Test(cpu_map, strided_and_broadcast_inputs) {
  const shape_t extent = SHAPE(2, 1, 70, 3);
  fixture_t f = make_map(GPUOS_BF16, GPUOS_BF16, extent, SHAPE(1, 1, 64, 3));
  gpuos_operand_t *x = &f.tables->operands.at[0], *row = &f.tables->operands.at[1];
  x->stride[2] = 1, x->stride[3] = 70; // [2, 3, 70] in memory
  row->extent[0] = row->extent[2] = 1, row->follows[0] = row->follows[2] = ALL;
  gos_tables_add_code(f.tables, GPUOS_CODE_INPUT, 0, 0, 0);
  gos_tables_add_code(f.tables, GPUOS_CODE_INPUT, 1, 0, 0);
  gos_tables_add_code(f.tables, GPUOS_CODE_ADD, 0, 1, 0);
  run(&f);
  EACH_POINT(extent) {
    double want = GET(&f, operand(&f, 0), i0, i1, i2, i3) + GET(&f, operand(&f, 1), 0, 0, 0, i3);
    expect(GET(&f, operand(&f, 2), i0, i1, i2, i3), want, 1, GPUOS_BF16, "views");
  }
  fixture_free(&f);
}

Test(cpu_map, casts_between_all_formats) {
  const shape_t extent = SHAPE(1, 1, 1, 517);
  for (gpuos_dtype_t in = GPUOS_F32; in < GPUOS_I32; in++)
    for (gpuos_dtype_t out = GPUOS_F32; out < GPUOS_I32; out++) {
      fixture_t f = make_map(in, out, extent, SHAPE(1, 1, 1, 100));
      run(&f); // no instruction: the identity
      EACH_POINT(extent) {
        double want = ROUNDED_TO(out, GET(&f, operand(&f, 0), i0, i1, i2, i3));
        cr_expect_eq(GET(&f, operand(&f, 2), i0, i1, i2, i3), want);
      }
      fixture_free(&f);
    }
}

Test(cpu_map, moves_large_integers_whole) {
  const int32_t numbers[4] = {0x7fffffff, -0x7fffffff, 16777217, -1};
  fixture_t f = make_map(GPUOS_I32, GPUOS_I32, SHAPE(1, 1, 2, 2), SHAPE(1, 1, 1, 2));
  fixture_set_i32(&f, 0, numbers, 4);
  run(&f);
  cr_expect_arr_eq(f.buffers[2], numbers, sizeof numbers);
  fixture_free(&f);
}

Test(cpu_map, nothing_to_do) {
  fixture_t f = make_map(GPUOS_F32, GPUOS_F32, SHAPE(1, 0, 4, 4), SHAPE(1, 1, 1, 4));
  run(&f);
  fixture_free(&f);
}

// ---- rows: RMSNORM, SOFTMAX, ARGMAX -------------------------------------------------------------

static const gpuos_dtype_t row_dtypes[] = {GPUOS_F32, GPUOS_F16, GPUOS_BF16, GPUOS_E4M3,
                                           GPUOS_E5M2};
static const uint32_t row_lengths[] = {1, 15, 16, 77, 273};
#define EACH_ROW_CASE                                                                              \
  for (size_t t = 0; t < 5; t++)                                                                   \
    for (size_t l = 0; l < 5; l++)

// X is buffer 0, [2, 3, 5, length]; a gain is buffer 1; OUT buffer 2.
static fixture_t make_rows(gpuos_dtype_t in, gpuos_dtype_t out, uint32_t length) {
  fixture_t f = fixture_make(length);
  fixture_buffer(&f, GPUOS_INPUT, in, 30 * length);
  fixture_buffer(&f, GPUOS_WEIGHT, GPUOS_F32, length);
  fixture_buffer(&f, GPUOS_OUTPUT, out, out == GPUOS_I32 ? 30 : 30 * length);
  fixture_workspace(&f, 64);
  return f;
}

static double row_sum(const fixture_t *f, uint32_t i0, uint32_t i1, uint32_t i2,
                      double (*term)(double)) {
  double sum = 0;
  for (uint32_t k = 0; k < operand(f, 0)->extent[3]; k++)
    sum += term(GET(f, operand(f, 0), i0, i1, i2, k));
  return sum;
}

static double square(double x) { return x * x; }

Test(cpu_rmsnorm, agrees_with_double_precision) {
  EACH_ROW_CASE {
    gpuos_dtype_t dtype = row_dtypes[t];
    const shape_t extent = SHAPE(2, 3, 5, row_lengths[l]);
    fixture_t f = make_rows(dtype, GPUOS_F32, row_lengths[l]);
    gpuos_op_t *op = add_op(&f, GPUOS_RMSNORM, SHAPE(2, 3, 5, 1), SHAPE(1, 2, 3, 1));
    op->params[0] = gos_float_bits(1e-3f);
    fixture_operand(&f, GPUOS_AS_X, 0, extent, ROWS);
    fixture_operand(&f, GPUOS_AS_NORM, 1, SHAPE(1, 1, 1, row_lengths[l]),
                    FOLLOWS(ALL, ALL, ALL, ALL));
    fixture_operand(&f, GPUOS_AS_OUT, 2, extent, ROWS);
    run(&f);
    EACH_POINT(extent) {
      double rms = sqrt(row_sum(&f, i0, i1, i2, square) / row_lengths[l] + 1e-3f);
      double gain = GET(&f, operand(&f, 1), 0, 0, 0, i3);
      double want = GET(&f, operand(&f, 0), i0, i1, i2, i3) / rms * gain;
      expect(GET(&f, operand(&f, 2), i0, i1, i2, i3), want, fabs(want), dtype, "rmsnorm");
      if (dtype != GPUOS_F32) // it is the quotient that was rounded, not the product
        expect(GET(&f, operand(&f, 2), i0, i1, i2, i3),
               ROUNDED_TO(dtype, GET(&f, operand(&f, 2), i0, i1, i2, i3) / gain) * gain, fabs(want),
               GPUOS_F32, "rounding");
    }
    fixture_free(&f);
  }
}

Test(cpu_softmax, agrees_with_double_precision) {
  EACH_ROW_CASE {
    const shape_t extent = SHAPE(2, 3, 5, row_lengths[l]);
    fixture_t f = make_rows(row_dtypes[t], row_dtypes[t], row_lengths[l]);
    add_op(&f, GPUOS_SOFTMAX, SHAPE(2, 3, 5, 1), SHAPE(2, 1, 4, 1));
    fixture_operand(&f, GPUOS_AS_X, 0, extent, ROWS);
    fixture_operand(&f, GPUOS_AS_OUT, 2, extent, ROWS);
    run(&f);
    EACH_POINT(extent) {
      double total = row_sum(&f, i0, i1, i2, exp);
      double want = exp(GET(&f, operand(&f, 0), i0, i1, i2, i3)) / total;
      expect(GET(&f, operand(&f, 1), i0, i1, i2, i3), want, want, row_dtypes[t], "softmax");
    }
    fixture_free(&f);
  }
}

static fixture_t make_argmax(const float *row, uint32_t length) {
  fixture_t f = make_rows(GPUOS_F32, GPUOS_I32, length);
  for (int i = 0; i < 30; i++)
    memcpy((float *)f.buffers[0] + (uint32_t)i * length, row, length * sizeof *row);
  add_op(&f, GPUOS_ARGMAX, SHAPE(2, 3, 5, 1), SHAPE(1, 1, 4, 1));
  fixture_operand(&f, GPUOS_AS_X, 0, SHAPE(2, 3, 5, length), ROWS);
  fixture_operand(&f, GPUOS_AS_OUT, 2, SHAPE(1, 2, 3, 5), FOLLOWS(ALL, 0, 1, 2));
  return f;
}

Test(cpu_argmax, largest_lowest_and_never_nan) {
  static const struct {
    float row[5];
    int32_t want;
  } cases[] = {{{1, 2, 3, 2, 1}, 2},
               {{1, 3, 3, 2, 3}, 1},
               {{NAN, -5, NAN, -4, NAN}, 3},
               {{NAN, NAN, NAN, NAN, NAN}, 0},
               {{NAN, -INFINITY, NAN, NAN, NAN}, 1},
               {{-INFINITY, -1, 0, INFINITY, NAN}, 3}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    fixture_t f = make_argmax(cases[c].row, 5);
    run(&f);
    for (int i = 0; i < 30; i++) cr_expect_eq(((int32_t *)f.buffers[2])[i], cases[c].want);
    fixture_free(&f);
  }
}

// ---- EMBEDDING ----------------------------------------------------------------------------------

enum { VOCABULARY = 11, COLS = 37, IDS = 5 };

static fixture_t make_embedding(gpuos_dtype_t table, gpuos_dtype_t out, const int32_t ids[IDS]) {
  fixture_t f = fixture_make(3);
  fixture_buffer(&f, GPUOS_WEIGHT, table, VOCABULARY * COLS);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, IDS);
  fixture_buffer(&f, GPUOS_OUTPUT, out, IDS * COLS);
  fixture_workspace(&f, 64);
  fixture_set_i32(&f, 1, ids, IDS);
  add_op(&f, GPUOS_EMBEDDING, SHAPE(1, 1, IDS, COLS), SHAPE(1, 1, 2, 16));
  fixture_operand(&f, GPUOS_AS_TABLE, 0, SHAPE(1, 1, VOCABULARY, COLS), FOLLOWS(ALL, ALL, ALL, 3));
  fixture_operand(&f, GPUOS_AS_IDS, 1, SHAPE(1, 1, 1, IDS), FOLLOWS(ALL, ALL, ALL, 2));
  fixture_operand(&f, GPUOS_AS_OUT, 2, SHAPE(1, 1, IDS, COLS), FOLLOWS(ALL, ALL, 2, 3));
  return f;
}

Test(cpu_embedding, copies_the_rows_named) {
  const int32_t ids[IDS] = {10, 0, 3, 3, 7};
  for (int same = 0; same < 2; same++) {
    gpuos_dtype_t out = same ? GPUOS_BF16 : GPUOS_F32;
    fixture_t f = make_embedding(GPUOS_BF16, out, ids);
    run(&f);
    EACH_POINT(SHAPE(1, 1, IDS, COLS))
    cr_expect_eq(GET(&f, operand(&f, 2), i0, i1, i2, i3),
                 GET(&f, operand(&f, 0), 0, 0, (uint32_t)ids[i2], i3));
    fixture_free(&f);
  }
}

// A fault ends the step, is named, and leaves the device usable.
Test(cpu_embedding, id_outside_the_table_is_a_fault) {
  static const int32_t bad[] = {VOCABULARY, -1, INT32_MAX, INT32_MIN};
  for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
    int32_t ids[IDS] = {1, 2, 3, bad[b], 4};
    fixture_t f = make_embedding(GPUOS_BF16, GPUOS_BF16, ids);
    gos_tables_add_tiles(f.tables, 0, 0, GPUOS_NONE);
    fixture_finish(&f);
    gos_cpu_t *cpu = gos_cpu_create(f.table, f.buffers, &(gos_cpu_options_t){.sm_count = 3});
    gos_cpu_submit(cpu, 1);
    cr_expect_eq(gos_cpu_wait(cpu, UINT64_MAX), GPUOS_FAULT);
    const gpuos_control_t *c = gos_cpu_control(cpu);
    cr_expect_eq(c->fault, GPUOS_FAULT_INDEX);
    cr_expect_eq(c->fault_a, GPUOS_AS_IDS);
    cr_expect_eq((int32_t)c->fault_b, bad[b]);
    cr_expect_eq(c->fault_c, VOCABULARY);
    cr_expect_eq(c->fault_tile / 3, 1); // the second block of rows
    ids[3] = 5;
    fixture_set_i32(&f, 1, ids, IDS);
    gos_cpu_submit(cpu, 1);
    cr_expect_eq(gos_cpu_wait(cpu, UINT64_MAX), GPUOS_OK);
    gos_cpu_destroy(cpu);
    fixture_free(&f);
  }
}

// ---- ROPE ---------------------------------------------------------------------------------------

enum { ROPE_ROWS = 5, HEADS = 3, HEAD_DIM = 16 };

typedef struct rope {
  float theta;
  uint32_t neighbours, scaling;
  float factor, low, high, context;
} rope_t;

// After "Effective long-context scaling", as Hugging Face computes it for Llama 3.
static double rope_frequency(const rope_t *r, uint32_t i) {
  double frequency = 1 / pow(r->theta, 2.0 * i / HEAD_DIM), wave = 2 * acos(-1) / frequency;
  if (r->scaling == 1) return frequency / r->factor;
  if (r->scaling == 0 || wave < r->context / r->high) return frequency;
  if (wave > r->context / r->low) return frequency / r->factor;
  double smooth = (r->context / wave - r->low) / (r->high - r->low);
  return frequency * (smooth + (1 - smooth) / r->factor);
}

static fixture_t make_rope(const rope_t *r, const int32_t positions[ROPE_ROWS]) {
  fixture_t f = fixture_make(9);
  const shape_t extent = SHAPE(1, ROPE_ROWS, HEADS, HEAD_DIM);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_F32, ROPE_ROWS * HEADS * HEAD_DIM);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_I32, ROPE_ROWS);
  fixture_buffer(&f, GPUOS_OUTPUT, GPUOS_F32, ROPE_ROWS * HEADS * HEAD_DIM);
  fixture_workspace(&f, 64);
  fixture_set_i32(&f, 1, positions, ROPE_ROWS);
  gpuos_op_t *op = add_op(&f, GPUOS_ROPE, SHAPE(1, ROPE_ROWS, HEADS, 1), SHAPE(1, 2, 2, 1));
  const float params[] = {r->theta, 0, 0, r->factor, r->low, r->high, r->context};
  for (int p = 0; p < 7; p++) op->params[p] = gos_float_bits(params[p]);
  op->params[1] = r->neighbours, op->params[2] = r->scaling;
  fixture_operand(&f, GPUOS_AS_X, 0, extent, FOLLOWS(ALL, 1, 2, ALL));
  fixture_operand(&f, GPUOS_AS_POS, 1, SHAPE(1, 1, 1, ROPE_ROWS), FOLLOWS(ALL, ALL, ALL, 1));
  fixture_operand(&f, GPUOS_AS_OUT, 2, extent, FOLLOWS(ALL, 1, 2, ALL));
  return f;
}

static void expect_rotated(const fixture_t *f, const rope_t *r, int32_t position, uint32_t row,
                           uint32_t head) {
  for (uint32_t i = 0; i < HEAD_DIM / 2; i++) {
    uint32_t a = r->neighbours ? 2 * i : i, b = r->neighbours ? 2 * i + 1 : i + HEAD_DIM / 2;
    double angle = position < 0 ? 0 : position * rope_frequency(r, i);
    double x = GET(f, operand(f, 0), 0, row, head, a), y = GET(f, operand(f, 0), 0, row, head, b);
    double want_a = x * cos(angle) - y * sin(angle), want_b = y * cos(angle) + x * sin(angle);
    double scale = 2 + position * 0.1; // the angle itself is a float
    expect(GET(f, operand(f, 2), 0, row, head, a), want_a, scale, GPUOS_F32, "rope");
    expect(GET(f, operand(f, 2), 0, row, head, b), want_b, scale, GPUOS_F32, "rope");
  }
}

Test(cpu_rope, agrees_with_double_precision) {
  static const rope_t ropes[] = {{1e4f, 0, 0, 0, 0, 0, 0},
                                 {1e4f, 1, 0, 0, 0, 0, 0},
                                 {5e5f, 0, 1, 4, 0, 0, 0},
                                 {1e2f, 0, 2, 8, 1, 4, 64}};
  const int32_t positions[ROPE_ROWS] = {0, 1, -1, 77, 500};
  for (size_t r = 0; r < sizeof ropes / sizeof *ropes; r++) {
    fixture_t f = make_rope(&ropes[r], positions);
    run(&f);
    for (uint32_t row = 0; row < ROPE_ROWS; row++)
      for (uint32_t head = 0; head < HEADS; head++)
        expect_rotated(&f, &ropes[r], positions[row], row, head);
    fixture_free(&f);
  }
}
