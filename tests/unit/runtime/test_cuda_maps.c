// test_cuda_maps.c: what the driver is told about an operand that the kernel copies in boxes.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "device_cuda.h"

// A table of one operand.
typedef struct one {
  gpuos_table_t table;
  gpuos_operand_t x;
} one_t;

static one_t make(uint8_t dtype, const uint32_t extent[4], const uint32_t stride[4]) {
  one_t one = {.table.operands = {offsetof(one_t, x), 1}, .x = {.dtype = dtype}};
  memcpy(one.x.extent, extent, sizeof one.x.extent);
  memcpy(one.x.stride, stride, sizeof one.x.stride);
  return one;
}
#define FOUR(...) ((const uint32_t[4]){__VA_ARGS__})

Test(cuda_maps, a_matrix_is_one_slab) {
  one_t one = make(GPUOS_E4M3, FOUR(1, 1, 4096, 8192), FOUR(0, 0, 8192, 1));
  one.x.offset_bytes = 256;
  gpuos_map_t map = {.inner = 3, .row = 2, .outer = GPUOS_ALL, .box_inner = 128, .box_rows = 64};
  gos_map_plan_t plan;
  cr_assert_null(gos_cuda_plan_map(&one.table, &map, 0x1000, &plan));
  cr_expect_eq(plan.dtype, CU_TENSOR_MAP_DATA_TYPE_UINT8);
  cr_expect_eq(plan.address, 0x1100);
  cr_expect_arr_eq(plan.extents, ((uint64_t[]){8192, 4096, 1}), sizeof plan.extents);
  cr_expect_arr_eq(plan.stride_bytes, ((uint64_t[]){8192, 8192 * 4096}), sizeof plan.stride_bytes);
  cr_expect_arr_eq(plan.box, ((uint32_t[]){128, 64, 1}), sizeof plan.box);
}

Test(cuda_maps, batches_keep_their_stride_and_broadcasts_have_one) {
  gpuos_map_t map = {.inner = 3, .row = 2, .outer = 0, .box_inner = 64, .box_rows = 128};
  gos_map_plan_t plan;
  one_t heads = make(GPUOS_BF16, FOUR(8, 1, 100, 64), FOUR(64, 0, 512, 1));
  cr_assert_null(gos_cuda_plan_map(&heads.table, &map, 0x1000, &plan));
  cr_expect_arr_eq(plan.extents, ((uint64_t[]){64, 100, 8}), sizeof plan.extents);
  cr_expect_arr_eq(plan.stride_bytes, ((uint64_t[]){1024, 128}), sizeof plan.stride_bytes);
  one_t same = make(GPUOS_BF16, FOUR(8, 1, 100, 64), FOUR(0, 0, 64, 1));
  cr_assert_null(gos_cuda_plan_map(&same.table, &map, 0x1000, &plan));
  cr_expect_arr_eq(plan.extents, ((uint64_t[]){64, 100, 1}), sizeof plan.extents);
  cr_expect_arr_eq(plan.stride_bytes, ((uint64_t[]){128, 12800}), sizeof plan.stride_bytes);
}

// One row of 20 bytes: its stride is never used, but must be one that the driver takes.
Test(cuda_maps, a_single_row_may_have_any_stride) {
  one_t one = make(GPUOS_F32, FOUR(1, 1, 1, 5), FOUR(0, 0, 5, 1));
  gpuos_map_t map = {.inner = 3, .row = 2, .outer = GPUOS_ALL, .box_inner = 32, .box_rows = 1};
  gos_map_plan_t plan;
  cr_assert_null(gos_cuda_plan_map(&one.table, &map, 0x1000, &plan));
  cr_expect_arr_eq(plan.stride_bytes, ((uint64_t[]){32, 32}), sizeof plan.stride_bytes);
}

Test(cuda_maps, explains_what_the_driver_cannot_copy) {
  const gpuos_map_t good = {
      .inner = 3, .row = 2, .outer = GPUOS_ALL, .box_inner = 64, .box_rows = 64};
  struct {
    gpuos_map_t map;
    uint32_t stride[4];
    uint64_t address;
    const char *says;
  } cases[] = {
      {good, {0, 0, 128, 1}, 0x1000, NULL},
      {good, {0, 0, 128, 2}, 0x1000, "not contiguous"},
      {good, {0, 0, 0, 1}, 0x1000, "the same one"},
      {good, {0, 0, 129, 1}, 0x1000, "no multiple of 16"},
      {good, {0, 0, 128, 1}, 0x1008, "does not begin at 16 bytes"},
      {good, {0, 0, 128, 1}, 0x1000, "no operand"},
      {good, {0, 0, 128, 1}, 0x1000, "no dimension"},
      {good, {0, 0, 128, 1}, 0x1000, "twice"},
      {good, {0, 0, 128, 1}, 0x1000, "1 to 256"},
      {good, {0, 0, 128, 1}, 0x1000, "at most 128 bytes"},
  };
  cases[5].map.operand = 1;
  cases[6].map.outer = 4;
  cases[7].map.outer = 2;
  cases[8].map.box_rows = 257;
  cases[9].map.box_inner = 72;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    one_t one = make(GPUOS_BF16, FOUR(1, 1, 64, 64), cases[i].stride);
    gos_map_plan_t plan;
    const char *wrong = gos_cuda_plan_map(&one.table, &cases[i].map, cases[i].address, &plan);
    cr_expect((wrong == NULL) == (cases[i].says == NULL), "case %zu", i);
    if (wrong != NULL && cases[i].says != NULL)
      cr_expect_not_null(strstr(wrong, cases[i].says), "case %zu says: %s", i, wrong);
  }
}
