// NVRTC: generated sources compile for every architecture, and what we do not ship is refused.
// Skipped where there is no NVRTC.
#include <criterion/criterion.h>

#include "plans.h"

static const char *messages(gos_plan_t *plan) {
  static char text[16384];
  memset(text, 0, sizeof text);
  FILE *out = fmemopen(text, sizeof text - 1, "w");
  gos_diags_print(plan->ir->diags, out);
  fclose(out);
  return text;
}

static bool compile(gos_plan_t *plan, const char *source, bool ptx, gos_bytes_t *out_code) {
  bool compiled = gos_nvrtc_compile(plan, source, ptx, NULL, out_code);
  if (strstr(messages(plan), "[nvrtc-missing]")) cr_skip_test("no NVRTC here");
  return compiled;
}

static gos_resources_t compile_plan(gos_plan_t *plan) {
  const char *source = source_alone(plan);
  cr_assert_not_null(source, "%s", messages(plan));
  gos_bytes_t cubin;
  gos_resources_t resources;
  cr_assert(compile(plan, source, false, &cubin), "%s", messages(plan));
  cr_assert(gos_cubin_resources(cubin, "gpuos_kernel", &resources));
  return resources;
}

// ---- every architecture -------------------------------------------------------------------------

static void check_chip(const chip_t *chip) {
  gos_plan_t *plan = make_plan(chip);
  add_residual(plan, add_matmul(plan, GPUOS_BF16, GPUOS_BF16, 512, 512, 512, 128, 128), GPUOS_BF16);
  add_cast(plan, GPUOS_BF16, GPUOS_F32, 64, 512);
  if (chip->arch >= 89) add_matmul(plan, GPUOS_E4M3, GPUOS_BF16, 512, 512, 512, 64, 64);
  gos_resources_t resources = compile_plan(plan);
  cr_expect_eq(resources.arch, chip->arch);
  cr_expect_eq(resources.stack_bytes, 0);
  free_plan(plan);
}
Test(nvrtc, compiles_matmul_and_map_for_sm_90a, .timeout = 120) { check_chip(&chips[0]); }
Test(nvrtc, compiles_matmul_and_map_for_sm_80, .timeout = 120) { check_chip(&chips[1]); }
Test(nvrtc, compiles_matmul_and_map_for_sm_89, .timeout = 120) { check_chip(&chips[2]); }
Test(nvrtc, compiles_matmul_and_map_for_sm_100a, .timeout = 120) { check_chip(&chips[3]); }
Test(nvrtc, compiles_matmul_and_map_for_sm_120a, .timeout = 120) { check_chip(&chips[4]); }

Test(nvrtc, compiles_every_kind_without_spills, .timeout = 300) {
  gos_plan_t *plan = make_plan(&chips[0]);
  add_model(plan, 4);
  cr_expect_eq(compile_plan(plan).stack_bytes, 0);
  free_plan(plan);
}

typedef struct tile {
  gpuos_dtype_t dtype;
  uint32_t m, n;
} tile_t;

// The largest ones, where registers are short.
Test(nvrtc, compiles_the_largest_matmul_tiles_without_spills, .timeout = 300) {
  static const tile_t tiles[] = {
      {GPUOS_BF16, 128, 256}, {GPUOS_E4M3, 128, 256}, {GPUOS_F32, 128, 128}, {GPUOS_BF16, 64, 256}};
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    gos_plan_t *plan = make_plan(&chips[0]);
    add_matmul(plan, tiles[i].dtype, GPUOS_BF16, 512, 512, 1024, tiles[i].m, tiles[i].n);
    cr_expect_eq(compile_plan(plan).stack_bytes, 0);
    free_plan(plan);
  }
}

// ---- what it gives ------------------------------------------------------------------------------

static const char small_kernel[] =
    "extern \"C\" __global__ void gpuos_kernel(float *x) { x[threadIdx.x] *= 2.0f; }\n";

Test(nvrtc, gives_the_same_bytes_twice, .timeout = 60) {
  gos_plan_t *plan = make_plan(&chips[0]);
  gos_bytes_t a, b;
  cr_assert(compile(plan, small_kernel, false, &a));
  cr_assert(compile(plan, small_kernel, false, &b));
  cr_assert_eq(a.count, b.count);
  cr_expect_arr_eq((char *)a.at, (char *)b.at, a.count);
  free_plan(plan);
}

Test(nvrtc, gives_ptx_when_asked, .timeout = 60) {
  gos_plan_t *plan = make_plan(&chips[0]);
  gos_bytes_t ptx;
  cr_assert(compile(plan, small_kernel, true, &ptx));
  cr_expect_not_null(strstr(ptx.at, ".target sm_90a"));
  free_plan(plan);
}

// ---- what it refuses ----------------------------------------------------------------------------

static void check_refused(const char *source, const char *slug) {
  gos_plan_t *plan = make_plan(&chips[0]);
  gos_bytes_t code;
  cr_expect_not(compile(plan, source, false, &code));
  cr_expect_null(code.at);
  cr_expect_not_null(strstr(messages(plan), slug), "%s", messages(plan));
  free_plan(plan);
}

Test(nvrtc, refuses_a_syntax_error, .timeout = 60) { check_refused("void f( {", "[nvrtc]"); }

// 64 registers a thread and 128 values that live across a barrier.
Test(nvrtc, refuses_spills, .timeout = 60) {
  check_refused("extern \"C\" __global__ void __launch_bounds__(1024, 1) k(float *x) {\n"
                "  float v[128];\n"
                "#pragma unroll\n"
                "  for (int i = 0; i < 128; i++) v[i] = x[i * 1024 + threadIdx.x];\n"
                "  __syncthreads();\n"
                "#pragma unroll\n"
                "  for (int i = 0; i < 128; i++) x[(127 - i) * 1024 + threadIdx.x] = v[i] * v[i];\n"
                "}\n",
                "[spill]");
}

// A wgmma whose accumulators cross a function boundary.
Test(nvrtc, refuses_serialised_wgmma, .timeout = 60) {
  check_refused(
      "static __device__ __noinline__ void mma(float (&c)[4], unsigned long long a) {\n"
      "  asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 \"\n"
      "      \"{%0,%1,%2,%3}, %4, %4, 1,1,1,0,0;\"\n"
      "      : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"l\"(a));\n"
      "}\n"
      "extern \"C\" __global__ void k(float *x, unsigned long long a) {\n"
      "  float c[4] = {};\n"
      "  asm volatile(\"wgmma.fence.sync.aligned;\");\n"
      "  for (int i = 0; i < 4; i++) mma(c, a + i);\n"
      "  asm volatile(\"wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\");\n"
      "  for (int i = 0; i < 4; i++) x[i] = c[i];\n"
      "}\n",
      "[wgmma-serial]");
}
