// The generated CUDA C++: what is instantiated, with which constants, and what is refused.
#include <criterion/criterion.h>

#include "plans.h"

static size_t count_of(const char *text, const char *what) {
  size_t count = 0;
  for (; (text = strstr(text, what)); text++) count++;
  return count;
}

static void expect_text(const gos_plan_t *plan, const char *what) {
  const char *source = source_alone(plan);
  cr_assert_not_null(source);
  cr_expect_not_null(strstr(source, what), "no '%s' in\n%s", what, source);
}

// ---- instantiations -----------------------------------------------------------------------------

Test(kernel_source, instantiates_equal_operators_once) {
  gos_plan_t *plan = make_plan(&chips[0]);
  for (int i = 0; i < 40; i++) add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 1, 512, 512, 16, 64);
  const char *source = source_alone(plan);
  cr_expect_eq(count_of(source, "struct matmul_"), 1);
  cr_expect_eq(count_of(source, "{0, "), 40); // whose unit is number 0
  free_plan(plan);
}

Test(kernel_source, instantiates_again_for_other_tiles_formats_and_expressions) {
  gos_plan_t *plan = make_plan(&chips[0]);
  add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 1, 512, 512, 16, 64);
  add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 1, 512, 512, 16, 32);
  add_matmul(plan, GPUOS_BF16, GPUOS_F32, 1, 512, 512, 16, 64);
  add_residual(plan, add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 1, 512, 512, 16, 64), GPUOS_F32);
  cr_expect_eq(count_of(source_alone(plan), "struct matmul_"), 4);
  free_plan(plan);
}

Test(kernel_source, leaves_out_operators_without_tiles) {
  gos_plan_t *plan = make_plan(&chips[0]);
  add_cast(plan, GPUOS_BF16, GPUOS_F32, 16, 64);
  add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 0, 512, 512, 16, 64);
  cr_expect_null(strstr(source_alone(plan), "matmul"));
  free_plan(plan);
}

Test(kernel_source, keeps_lines_of_a_large_model_short) {
  gos_plan_t *plan = make_plan(&chips[0]);
  for (int i = 0; i < 500; i++) add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 1, 512, 512, 16, 64);
  const char *line = source_alone(plan);
  for (; *line; line += strcspn(line, "\n") + 1)
    cr_expect_leq(strcspn(line, "\n"), 150, "%.*s", (int)strcspn(line, "\n"), line);
  free_plan(plan);
}

Test(kernel_source, names_the_symbols_that_the_runtime_looks_for) {
  gos_plan_t *plan = make_plan(&chips[0]);
  add_cast(plan, GPUOS_BF16, GPUOS_F32, 16, 64);
  expect_text(plan, "gpuos_table_hash = 0x0123456789abcdefull");
  expect_text(plan, "gpuos_launch = {");
  expect_text(plan, "gpuos_kernel(const __grid_constant__ gpuos_kernel_args_t args)");
  free_plan(plan);
}

// ---- constants ----------------------------------------------------------------------------------

// Readers get it const; here it is ours to change.
static gpuos_operand_t *weight(gos_op_t *op) {
  return (gpuos_operand_t *)gos_op_find(op, GPUOS_AS_W0);
}

typedef struct layout {
  uint32_t m, n, k;
  uint32_t w_stride_n, w_stride_k; // 0: row-major
  uint64_t w_offset;
  const char *expected;
} layout_t;

Test(kernel_source, copies_asynchronously_only_what_lies_in_aligned_chunks) {
  static const layout_t layouts[] = {
      {64, 64, 128, 0, 0, 0, "W_COPY = GPUOS_COPY_ASYNC"},
      {64, 64, 128, 0, 0, 256, "W_COPY = GPUOS_COPY_ASYNC"},
      {64, 64, 128, 0, 0, 8, "W_COPY = GPUOS_COPY_K"},
      {64, 64, 100, 0, 0, 0, "W_COPY = GPUOS_COPY_K"},
      {64, 64, 128, 1, 64, 0, "W_COPY = GPUOS_COPY_ROW"},
      {64, 64, 128, 256, 2, 0, "W_COPY = GPUOS_COPY_K"},
  };
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    const layout_t *l = &layouts[i];
    gos_plan_t *plan = make_plan(&chips[0]);
    gos_op_t *op = add_matmul(plan, GPUOS_BF16, GPUOS_BF16, l->m, l->n, l->k, 64, 64);
    gpuos_operand_t *w = weight(op);
    if (l->w_stride_n) w->stride[2] = l->w_stride_n, w->stride[3] = l->w_stride_k;
    w->offset_bytes = l->w_offset;
    expect_text(plan, l->expected);
    free_plan(plan);
  }
}

typedef struct mix {
  gpuos_dtype_t x, w;
  const char *expected;
} mix_t;

Test(kernel_source, widens_mixed_formats_exactly) {
  static const mix_t mixes[] = {
      {GPUOS_BF16, GPUOS_BF16, "X_ELEM = GPUOS_BF16, W_ELEM = GPUOS_BF16"},
      {GPUOS_BF16, GPUOS_E4M3, "X_ELEM = GPUOS_BF16, W_ELEM = GPUOS_BF16"},
      {GPUOS_E5M2, GPUOS_F16, "X_ELEM = GPUOS_F16, W_ELEM = GPUOS_F16"},
      {GPUOS_BF16, GPUOS_F16, "X_ELEM = GPUOS_F32, W_ELEM = GPUOS_F32"},
      {GPUOS_E4M3, GPUOS_E5M2, "X_ELEM = GPUOS_E4M3, W_ELEM = GPUOS_E5M2"},
  };
  for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
    gos_plan_t *plan = make_plan(&chips[0]);
    gos_op_t *op = add_matmul(plan, mixes[i].x, GPUOS_BF16, 64, 64, 128, 64, 64);
    weight(op)->dtype = (uint8_t)mixes[i].w;
    expect_text(plan, mixes[i].expected);
    free_plan(plan);
  }
}

Test(kernel_source, moves_runs_only_where_every_operand_allows_them) {
  gos_plan_t *plan = make_plan(&chips[0]);
  add_cast(plan, GPUOS_BF16, GPUOS_F32, 16, 64);
  expect_text(plan, "RUN = 8");
  free_plan(plan);
  plan = make_plan(&chips[0]);
  add_cast(plan, GPUOS_BF16, GPUOS_F32, 16, 63);
  expect_text(plan, "RUN = 1");
  free_plan(plan);
}

// ---- expressions --------------------------------------------------------------------------------

Test(kernel_source, prints_an_expression_as_named_locals) {
  gos_plan_t *plan = make_plan(&chips[0]);
  gos_op_t *op = add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 1, 512, 512, 16, 64);
  add_view(op, GPUOS_AS_W1, GPUOS_BF16, DIMS(1, 1, 512, 512), DIMS(ALL, ALL, 2, 3));
  add_silu_product(plan, op);
  expect_text(plan, "    const float v1 = -acc[0];\n"
                    "    const float v2 = expf(v1);\n"
                    "    const float v4 = v2 + 1.0f;\n"
                    "    const float v5 = gpuos_divide(acc[0], v4);\n"
                    "    const float v7 = v5 * acc[1];\n"
                    "    return v7;\n");
  free_plan(plan);
}

Test(kernel_source, prints_constants_as_the_floats_they_are) {
  static const gpuos_code_t code[] = {
      {GPUOS_CODE_INPUT, 0, 0, 0, 0}, {GPUOS_CODE_CONST, 0, 0, 0, 0.1f},
      {GPUOS_CODE_MUL, 0, 1, 0, 0},   {GPUOS_CODE_CONST, 0, 0, 0, -3.0f},
      {GPUOS_CODE_MAX, 2, 3, 0, 0},   {GPUOS_CODE_CONST, 0, 0, 0, 1e30f},
      {GPUOS_CODE_MIN, 4, 5, 0, 0},   {GPUOS_CODE_CONST, 0, 0, 0, -1.0f / 0.0f},
      {GPUOS_CODE_MAX, 6, 7, 0, 0},   {GPUOS_CODE_ROUND, 8, GPUOS_E4M3, 0, 0},
  };
  gos_plan_t *plan = make_plan(&chips[0]);
  set_code(plan, add_cast(plan, GPUOS_F32, GPUOS_F32, 16, 64), code, sizeof code / sizeof *code);
  expect_text(plan, "in[0] * 0.100000001f");
  expect_text(plan, "fmaxf(v2, (-3.0f))");
  expect_text(plan, "fminf(v4, 1.00000002e+30f)");
  expect_text(plan, "__uint_as_float(0xff800000)");
  expect_text(plan, "gpuos_round<GPUOS_E4M3>(v8)");
  free_plan(plan);
}

// ---- refusals -----------------------------------------------------------------------------------

static void expect_refused(gos_plan_t *plan) {
  char text[4096] = {0};
  cr_expect_null(source_alone(plan));
  FILE *out = fmemopen(text, sizeof text - 1, "w");
  gos_diags_print(plan->ir->diags, out);
  fclose(out);
  cr_expect_not_null(strstr(text, "[device-op]"), "%s", text);
  free_plan(plan);
}

Test(kernel_source, refuses_fp8_before_sm_89) {
  gos_plan_t *plan = make_plan(&chips[1]);
  add_matmul(plan, GPUOS_E4M3, GPUOS_BF16, 64, 64, 128, 64, 64);
  expect_refused(plan);
}

Test(kernel_source, refuses_more_accumulators_than_registers) {
  gos_plan_t *plan = make_plan(&chips[0]);
  gos_op_t *op = add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 512, 512, 128, 128, 256);
  add_view(op, GPUOS_AS_W1, GPUOS_BF16, DIMS(1, 1, 512, 128), DIMS(ALL, ALL, 2, 3));
  expect_refused(plan);
}

Test(kernel_source, refuses_tiles_that_shared_memory_does_not_hold_twice) {
  gos_plan_t *plan = make_plan(&chips[2]);
  gos_op_t *op = add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 512, 512, 128, 128, 256);
  add_view(op, GPUOS_AS_NORM, GPUOS_F32, DIMS(1, 1, 1, 128), DIMS(ALL, ALL, ALL, ALL));
  expect_refused(plan);
}

Test(kernel_source, refuses_integer_matrices) {
  gos_plan_t *plan = make_plan(&chips[0]);
  add_matmul(plan, GPUOS_I32, GPUOS_F32, 64, 64, 128, 64, 64);
  expect_refused(plan);
}
