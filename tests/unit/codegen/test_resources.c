// Whether one CTA an SM can be resident, as registers and shared memory are given out, and whether
// the kernel takes what was declared.
#include <criterion/criterion.h>

#include "plans.h"

// ---- registers ----------------------------------------------------------------------------------

typedef struct allocation {
  uint32_t registers, threads, all;
} allocation_t;

Test(resources, rounds_registers_up_as_the_chip_does) {
  static const allocation_t cases[] = {{168, 384, 64512}, {161, 384, 64512}, {169, 384, 67584},
                                       {32, 256, 8192},   {1, 1, 256},       {255, 33, 16384}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gos_resources_t r = {.registers = cases[i].registers, .threads = cases[i].threads};
    cr_expect_eq(gos_resources_registers(&r), cases[i].all, "case %zu", i);
  }
}

// ---- a cubin that says what it takes -------------------------------------------------------------

static char kernel[] = "struct launch { unsigned threads, smem, rest[6]; };\n"
                       "extern \"C\" {\n"
                       "__device__ __attribute__((used)) extern const launch gpuos_launch = "
                       "{%u, %u};\n"
                       "__global__ void gpuos_kernel(float *x) {\n"
                       "  __shared__ float y[%u];\n"
                       "  y[threadIdx.x] = x[threadIdx.x];\n"
                       "  __syncthreads();\n"
                       "  x[threadIdx.x] = y[threadIdx.x ^ 1];\n"
                       "}\n}\n";

typedef struct kernel {
  uint32_t threads, smem, floats, declared;
  gpuos_kind_t kind;
  const char *says; // NULL: accepted
} kernel_t;

static void check_kernel(const kernel_t *k) {
  static char text[4096];
  gos_plan_t *plan = make_plan(&chips[0]);
  gos_resources_t r;
  gos_bytes_t cubin;
  ((gos_target_t *)(uintptr_t)plan->target)->registers = 65536;
  add_op(plan, k->kind, DIMS(1, 1, 1, 1), DIMS(1, 1, 1, 1))->op.footprint.smem_bytes = k->declared;
  const char *source = gos_format(plan->ir->arena, kernel, k->threads, k->smem, k->floats);
  bool compiled = gos_nvrtc_compile(plan, source, false, NULL, &cubin);
  gos_part_t part = part_of(plan);
  bool accepted = compiled && gos_resources_check(&part, 1, cubin, &r);
  FILE *out = fmemopen(text, sizeof text - 1, "w");
  gos_diags_print(plan->ir->diags, out);
  fclose(out);
  if (strstr(text, "[nvrtc-missing]")) cr_skip_test("no NVRTC here");
  cr_assert(compiled, "%s", text);
  cr_expect_eq(accepted, k->says == NULL, "%s", text);
  cr_expect(!k->says || strstr(text, k->says), "not '%s': %s", k->says, text);
  cr_expect_eq(r.threads, k->threads);
  cr_expect_eq(r.dynamic_smem_bytes, k->smem);
  cr_expect_eq(r.static_smem_bytes, 4 * k->floats);
  free_plan(plan);
}

Test(resources, accepts_what_fits_and_names_the_figure_of_what_does_not, .timeout = 120) {
  static const kernel_t kernels[] = {
      {384, 200000, 512, 204000, GPUOS_MATMUL, NULL},
      {384, 232448, 512, 234496, GPUOS_MATMUL,
       "234496 bytes of shared memory (2048 of them static), a CTA on h200 can have 232448"},
      {16384, 0, 512, 2048, GPUOS_MAP, "registers take"},
      {384, 8192, 512, 0, GPUOS_MAP, NULL}, // no operator with tiles
      {384, 8192, 512, 6000, GPUOS_MATMUL,
       "declare 6000 bytes of shared memory, the kernel takes 10240"},
      {384, 8192, 512, 20000, GPUOS_MATMUL, "declare 20000 bytes"},
      {384, 8192, 512, 20000, GPUOS_ATTENTION, NULL},
  };
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) check_kernel(&kernels[i]);
}
