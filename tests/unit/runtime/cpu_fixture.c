#include "cpu_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "cpu_dtype.h"

fixture_t fixture_make(uint64_t seed) {
  fixture_t f = {.tables = gos_tables_create(), .random = seed * 0x9e3779b97f4a7c15u + 1};
  f.tables->header.park_bytes = 1 << 16;
  return f;
}

void fixture_free(fixture_t *f) {
  for (uint32_t b = 0; b < FIXTURE_BUFFERS; b++) free(f->buffers[b]);
  free(f->table);
  gos_tables_destroy(f->tables);
  *f = (fixture_t){0};
}

double fixture_random(fixture_t *f) {
  f->random ^= f->random << 13, f->random ^= f->random >> 7, f->random ^= f->random << 17;
  return (double)(f->random >> 11) * 0x1p-52 - 1;
}

static void *allocate(uint64_t bytes) {
  uint64_t rounded = (bytes + 127) / 64 * 64;
  void *memory = aligned_alloc(64, rounded);
  if (memory == NULL) abort();
  return memset(memory, 0, rounded);
}

uint32_t fixture_buffer(fixture_t *f, gpuos_role_t role, gpuos_dtype_t dtype, uint32_t elems) {
  static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l",
                                      "m", "n", "o", "p", "q", "r", "s", "t", "u", "v", "w", "x"};
  uint32_t number = f->tables->buffers.count;
  uint32_t b = gos_tables_add_buffer(f->tables, names[number], role, dtype, 1, &elems);
  uint32_t size = gpuos_dtype_bytes(dtype);
  uint8_t *data = f->buffers[b] = allocate((uint64_t)elems * size);
  for (uint32_t i = 0; i < elems && dtype != GPUOS_I32; i++) {
    float x = (float)fixture_random(f);
    gos_store_f32(dtype, data + (size_t)i * size, 1, 1, &x);
  }
  return b;
}

void fixture_workspace(fixture_t *f, uint32_t bytes) {
  f->buffers[gos_tables_add_workspace(f->tables, bytes)] = allocate(bytes);
}

void fixture_set_i32(fixture_t *f, uint32_t buffer, const int32_t *numbers, uint32_t count) {
  memcpy(f->buffers[buffer], numbers, count * sizeof *numbers);
}

gpuos_operand_t *fixture_operand(fixture_t *f, gpuos_as_t as, uint32_t buffer, shape_t extent,
                                 follows_t follows) {
  const gpuos_op_t *op = &f->tables->ops.at[f->tables->ops.count - 1];
  bool writes = as == GPUOS_AS_OUT || (as == GPUOS_AS_CACHE && op->kind == GPUOS_KV_APPEND) ||
                (as == GPUOS_AS_PARTIAL && op->kind == GPUOS_ATTENTION);
  uint32_t value = writes ? gos_tables_add_value(f->tables) : buffer;
  gpuos_dtype_t dtype = f->tables->buffers.at[buffer].dtype;
  return gos_tables_add_operand(
      f->tables, gos_tables_view(as, dtype, buffer, value, 0, extent.at, follows.at), writes);
}

void fixture_finish(fixture_t *f) {
  f->table = gos_tables_finish(f->tables);
  gpuos_check_report_t report;
  if (gpuos_check(f->table, f->table->bytes, &report)) return;
  fprintf(stderr, "the fixture's table: [%s] %s\n", report.slug, report.message);
  abort();
}

// ---- an independent decoder ---------------------------------------------------------------------

// sign, exponent and mantissa fields; `special`: the largest exponent holds infinity and NaN.
static double decode(uint32_t bits, int exponent_bits, int mantissa_bits, bool special) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
  double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
  if (special && exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * ldexp((1u << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double fixture_decode(gpuos_dtype_t dtype, uint32_t bits) {
  switch (dtype) {
  case GPUOS_F16: return decode(bits, 5, 10, true);
  case GPUOS_BF16: return decode(bits, 8, 7, true);
  case GPUOS_E4M3: return (bits & 0x7f) == 0x7f ? NAN : decode(bits, 4, 3, false);
  case GPUOS_E5M2: return decode(bits, 5, 2, true);
  case GPUOS_I32: return (int32_t)bits;
  default: return decode(bits, 8, 23, true);
  }
}

double fixture_get(const fixture_t *f, const gpuos_operand_t *v, uint32_t i0, uint32_t i1,
                   uint32_t i2, uint32_t i3) {
  uint32_t size = gpuos_dtype_bytes(v->dtype), bits = 0;
  uint64_t element = (uint64_t)i0 * v->stride[0] + (uint64_t)i1 * v->stride[1] +
                     (uint64_t)i2 * v->stride[2] + (uint64_t)i3 * v->stride[3];
  memcpy(&bits, (const uint8_t *)f->buffers[v->buffer] + v->offset_bytes + element * size, size);
  return fixture_decode(v->dtype, bits);
}

double fixture_tolerance(gpuos_dtype_t dtype) {
  static const double half_ulps[] = {2e-5, 0x1p-11, 0x1p-8, 0x1p-4, 0x1p-3, 0};
  return half_ulps[dtype] * 1.01;
}

bool fixture_is_near(double got, double want, double scale, gpuos_dtype_t dtype) {
  double subnormal = dtype == GPUOS_E4M3 ? 0x1p-10 : dtype == GPUOS_E5M2 ? 0x1p-17 : 0x1p-25;
  return fabs(got - want) <= fixture_tolerance(dtype) * fabs(want) + 4e-6 * scale + subnormal;
}

gpuos_status_t fixture_run(fixture_t *f, uint32_t sm_count, uint64_t seed, bool take_back) {
  gos_cpu_options_t options = {.sm_count = sm_count, .interleave_seed = seed};
  options.take_back = take_back;
  gos_cpu_t *cpu = gos_cpu_create(f->table, f->buffers, &options);
  if (cpu == NULL) abort();
  gos_cpu_submit(cpu, 1);
  gpuos_status_t status = gos_cpu_wait(cpu, UINT64_MAX);
  gos_cpu_destroy(cpu);
  return status;
}
