// MATMUL on the CPU device against a plain reference in double precision, and what must hold bit by
// bit.
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "cpu_dtype.h"
#include "cpu_fixture.h"

typedef struct gemm {
  uint32_t batch, m, n, k, tile_m, tile_n, slice;
  gpuos_dtype_t x, w, out;
  int with; // of the enum below
} gemm_t;

enum { PLAIN = 0, GATED = 1, NORM = 2, W_TRANSPOSED = 4, X_TRANSPOSED = 8, W_SHARED = 16 };

enum { GEMM_X, GEMM_W0, GEMM_W1, GEMM_NORM, GEMM_BIAS, GEMM_RESIDUAL, GEMM_OUT, GEMM_BUFFERS };

// Swaps the last two dimensions' places in memory.
static void transpose(gpuos_operand_t *view) {
  view->stride[3] = view->extent[2];
  view->stride[2] = 1;
}

// silu(acc0) * acc1, or acc0 + bias + residual.
static void add_epilogue(gos_tables_t *t, bool gated) {
  gos_tables_add_code(t, GPUOS_CODE_ACC, 0, 0, 0);
  if (gated) {
    gos_tables_add_code(t, GPUOS_CODE_ACC, 1, 0, 0);
    gos_tables_add_code(t, GPUOS_CODE_NEG, 0, 0, 0);
    gos_tables_add_code(t, GPUOS_CODE_EXP, 2, 0, 0);
    gos_tables_add_code(t, GPUOS_CODE_CONST, 0, 0, 1);
    gos_tables_add_code(t, GPUOS_CODE_ADD, 3, 4, 0);
    gos_tables_add_code(t, GPUOS_CODE_DIV, 0, 5, 0);
    gos_tables_add_code(t, GPUOS_CODE_MUL, 6, 1, 0);
  } else {
    gos_tables_add_code(t, GPUOS_CODE_INPUT, 0, 0, 0);
    gos_tables_add_code(t, GPUOS_CODE_ADD, 0, 1, 0);
    gos_tables_add_code(t, GPUOS_CODE_INPUT, 1, 0, 0);
    gos_tables_add_code(t, GPUOS_CODE_ADD, 2, 3, 0);
  }
}

static void add_gemm_op(fixture_t *f, const gemm_t *g) {
  gpuos_op_t *op =
      gos_tables_add_op(f->tables, "gemm", GPUOS_MATMUL, SHAPE(g->batch, g->m, g->n, g->k).at);
  op->tile[1] = g->tile_m, op->tile[2] = g->tile_n, op->slice = g->slice;
  op->park_bytes = ((g->with & GATED) ? 8 : 4) * g->tile_m * g->tile_n;
  op->params[0] = gos_float_bits(1e-5f);
}

// Random operands in every layout; returns the fixture with operands X, W0, W1, NORM, bias,
// residual, OUT as far as the case has them.
static fixture_t make_gemm(const gemm_t *g) {
  fixture_t f = fixture_make(g->m * 131u + g->k);
  uint32_t w_batch = (g->with & W_SHARED) ? 1 : g->batch;
  fixture_buffer(&f, GPUOS_INPUT, g->x, g->batch * g->m * g->k);
  for (int j = 0; j < 2; j++) fixture_buffer(&f, GPUOS_WEIGHT, g->w, w_batch * g->n * g->k);
  fixture_buffer(&f, GPUOS_WEIGHT, GPUOS_BF16, g->k);
  fixture_buffer(&f, GPUOS_WEIGHT, GPUOS_F32, g->n);
  fixture_buffer(&f, GPUOS_INPUT, GPUOS_F16, g->batch * g->m * g->n);
  fixture_buffer(&f, GPUOS_OUTPUT, g->out, g->batch * g->m * g->n);
  fixture_workspace(&f, 64);
  add_gemm_op(&f, g);
  gpuos_operand_t *x = fixture_operand(&f, GPUOS_AS_X, GEMM_X, SHAPE(1, g->batch, g->m, g->k),
                                       FOLLOWS(ALL, 0, 1, 3));
  if (g->with & X_TRANSPOSED) transpose(x);
  for (uint32_t j = 0; j < ((g->with & GATED) ? 2 : 1); j++) {
    gpuos_operand_t *w =
        fixture_operand(&f, GPUOS_AS_W0 + j, GEMM_W0 + j, SHAPE(1, w_batch, g->n, g->k),
                        FOLLOWS(ALL, (g->with & W_SHARED) ? ALL : 0, 2, 3));
    if (g->with & W_TRANSPOSED) transpose(w);
  }
  if (g->with & NORM)
    fixture_operand(&f, GPUOS_AS_NORM, GEMM_NORM, SHAPE(1, 1, 1, g->k), FOLLOWS(ALL, ALL, ALL, 3));
  if (!(g->with & GATED)) {
    fixture_operand(&f, GPUOS_AS_EXTRA, GEMM_BIAS, SHAPE(1, 1, 1, g->n), FOLLOWS(ALL, ALL, ALL, 2));
    fixture_operand(&f, GPUOS_AS_EXTRA, GEMM_RESIDUAL, SHAPE(1, g->batch, g->m, g->n),
                    FOLLOWS(ALL, 0, 1, 2));
  }
  fixture_operand(&f, GPUOS_AS_OUT, GEMM_OUT, SHAPE(1, g->batch, g->m, g->n),
                  FOLLOWS(ALL, 0, 1, 2));
  add_epilogue(f.tables, g->with & GATED);
  gos_tables_add_tiles(f.tables, 0, 0, GPUOS_NONE);
  fixture_finish(&f);
  return f;
}

static double rounded(gpuos_dtype_t dtype, double x) {
  float y = (float)x;
  gos_round_f32(dtype, 1, &y);
  return y;
}

static const gpuos_operand_t *operand_as(const fixture_t *f, gpuos_as_t as, uint32_t nth) {
  for (uint32_t i = 0; i < f->tables->operands.count; i++)
    if (f->tables->operands.at[i].as == as && nth-- == 0) return &f->tables->operands.at[i];
  return NULL;
}

// Row m of X as the products see it.
static void reference_row(const fixture_t *f, const gemm_t *g, uint32_t b, uint32_t m,
                          double *row) {
  const gpuos_operand_t *x = operand_as(f, GPUOS_AS_X, 0), *norm = operand_as(f, GPUOS_AS_NORM, 0);
  double squares = 0;
  for (uint32_t k = 0; k < g->k; k++) {
    row[k] = fixture_get(f, x, 0, b, m, k);
    squares += row[k] * row[k];
  }
  double rms = sqrt(squares / g->k + 1e-5f);
  for (uint32_t k = 0; norm != NULL && k < g->k; k++)
    row[k] = rounded(g->x, rounded(g->x, row[k] / rms) * fixture_get(f, norm, 0, 0, 0, k));
}

static double reference_dot(const fixture_t *f, const gemm_t *g, const double *row, uint32_t j,
                            uint32_t b, uint32_t n, double *scale) {
  const gpuos_operand_t *w = operand_as(f, GPUOS_AS_W0 + j, 0);
  double sum = 0;
  for (uint32_t k = 0; k < g->k; k++) {
    double term = row[k] * fixture_get(f, w, 0, (g->with & W_SHARED) ? 0 : b, n, k);
    sum += term;
    *scale += fabs(term);
  }
  return sum;
}

static void expect_gemm_row(const fixture_t *f, const gemm_t *g, uint32_t b, uint32_t m,
                            const double *row, const char *what) {
  const gpuos_operand_t *out = operand_as(f, GPUOS_AS_OUT, 0);
  for (uint32_t n = 0; n < g->n; n++) {
    double scale = 0, want = reference_dot(f, g, row, 0, b, n, &scale);
    if (g->with & GATED) {
      double up = reference_dot(f, g, row, 1, b, n, &scale);
      want = want / (1 + exp(-want)) * up;
      scale *= 1 + fabs(up);
    } else {
      want += fixture_get(f, operand_as(f, GPUOS_AS_EXTRA, 0), 0, 0, 0, n);
      want += fixture_get(f, operand_as(f, GPUOS_AS_EXTRA, 1), 0, b, m, n);
    }
    // one element of a normalised row may round the other way
    if (g->with & NORM) scale *= 1 + 1e6 * fixture_tolerance(g->x) / g->k;
    double got = fixture_get(f, out, 0, b, m, n);
    cr_expect(fixture_is_near(got, want, scale, g->out), "%s: %g instead of %g", what, got, want);
  }
}

static void expect_gemm(const fixture_t *f, const gemm_t *g, const char *what) {
  double *row = malloc(g->k * sizeof *row);
  for (uint32_t b = 0; b < g->batch; b++)
    for (uint32_t m = 0; m < g->m; m++) {
      reference_row(f, g, b, m, row);
      expect_gemm_row(f, g, b, m, row, what);
    }
  free(row);
}

static void try_gemm(const gemm_t *g, const char *what) {
  fixture_t f = make_gemm(g);
  cr_assert_eq(fixture_run(&f, 2, 0, false), GPUOS_OK);
  expect_gemm(&f, g, what);
  fixture_free(&f);
}

#define BF GPUOS_BF16
static const struct {
  const char *what;
  gemm_t gemm;
} gemms[] = {
    {"one row, k of 2.25 pieces", {1, 1, 48, 576, 1, 16, 0, BF, BF, BF, PLAIN}},
    {"one element", {1, 1, 1, 1, 1, 1, 0, BF, BF, GPUOS_F32, PLAIN}},
    {"ragged everywhere", {1, 7, 13, 301, 4, 5, 0, BF, BF, BF, PLAIN}},
    {"sliced", {1, 5, 9, 700, 4, 4, 256, BF, BF, GPUOS_F32, PLAIN}},
    {"slices off the lanes", {1, 5, 9, 303, 4, 4, 100, BF, BF, GPUOS_F32, PLAIN}},
    {"more rows than a block", {1, 70, 6, 130, 70, 6, 64, BF, BF, GPUOS_F32, PLAIN}},
    {"batched", {3, 4, 8, 64, 4, 8, 0, BF, BF, BF, PLAIN}},
    {"one W for all batches", {3, 4, 8, 64, 4, 8, 0, BF, BF, BF, W_SHARED}},
    {"gated", {1, 3, 20, 512, 2, 8, 256, BF, BF, BF, GATED}},
    {"normalised", {1, 3, 20, 576, 2, 8, 0, BF, BF, BF, NORM}},
    {"normalised and gated", {1, 1, 20, 96, 1, 8, 0, BF, BF, BF, NORM | GATED}},
    {"W [k, n]", {1, 3, 20, 300, 2, 8, 64, BF, BF, BF, W_TRANSPOSED}},
    {"X [k, m]", {1, 6, 20, 300, 4, 8, 0, BF, BF, BF, X_TRANSPOSED}},
    {"f32", {1, 5, 17, 530, 3, 4, 256, GPUOS_F32, GPUOS_F32, GPUOS_F32, PLAIN}},
    {"f32 [k, n]", {1, 1, 17, 53, 3, 4, 0, GPUOS_F32, GPUOS_F32, BF, W_TRANSPOSED}},
    {"f16", {1, 5, 17, 530, 3, 4, 256, GPUOS_F16, GPUOS_F16, GPUOS_F16, PLAIN}},
    {"e4m3", {1, 5, 17, 530, 3, 4, 256, GPUOS_E4M3, GPUOS_E4M3, GPUOS_E4M3, PLAIN}},
    {"e5m2", {1, 5, 17, 530, 3, 4, 256, GPUOS_E5M2, GPUOS_E5M2, GPUOS_E5M2, PLAIN}},
    {"bf16 by e4m3", {1, 1, 17, 530, 1, 4, 0, BF, GPUOS_E4M3, BF, PLAIN}},
};

Test(cpu_matmul, agrees_with_double_precision) {
  for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++) try_gemm(&gemms[i].gemm, gemms[i].what);
}

static void expect_same_bits(const gemm_t *a, const gemm_t *b) {
  fixture_t fa = make_gemm(a), fb = make_gemm(b);
  cr_assert_eq(fixture_run(&fa, 2, 0, false), GPUOS_OK);
  cr_assert_eq(fixture_run(&fb, 3, 0, false), GPUOS_OK);
  size_t bytes = a->batch * a->m * a->n * gpuos_dtype_bytes(a->out);
  cr_expect_arr_eq(fa.buffers[GEMM_OUT], fb.buffers[GEMM_OUT], bytes);
  fixture_free(&fa);
  fixture_free(&fb);
}

Test(cpu_matmul, tile_shape_leaves_the_bits_alone) {
  const gemm_t a = {1, 37, 29, 600, 1, 29, 0, BF, BF, GPUOS_F32, PLAIN};
  for (uint32_t m = 2; m < 40; m += 7) {
    gemm_t b = a;
    b.tile_m = m, b.tile_n = m / 2 + 1;
    expect_same_bits(&a, &b);
  }
}

Test(cpu_matmul, slices_of_whole_pieces_leave_the_bits_alone) {
  const gemm_t a = {1, 3, 5, 1100, 2, 4, 0, BF, BF, GPUOS_F32, PLAIN};
  for (uint32_t slice = 256; slice <= 1024; slice += 256) {
    gemm_t b = a;
    b.slice = slice;
    expect_same_bits(&a, &b);
  }
}

Test(cpu_matmul, no_rows_no_tiles) {
  fixture_t f = make_gemm(&(gemm_t){1, 0, 4, 8, 1, 1, 0, BF, BF, BF, PLAIN});
  cr_assert_eq(fixture_run(&f, 2, 0, false), GPUOS_OK);
  fixture_free(&f);
}
