// data.c: random tensors in every format, to the device and back.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_test.h"

static const char *const dtype_names[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "i32"};

// ---- random -------------------------------------------------------------------------------------

static uint64_t random_state = 0x9e3779b97f4a7c15;

void random_seed(uint64_t seed) { random_state ^= seed * 0x9e3779b97f4a7c15; }

static uint64_t random_bits(void) { // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545f4914f6cdd1d;
}

double random_unit(void) { return (double)(int64_t)random_bits() / 9223372036854775808.0; }
uint32_t random_below(uint32_t limit) { return (uint32_t)((random_bits() >> 32) * limit >> 32); }

// ---- formats ------------------------------------------------------------------------------------

static int dtype_of(const gpuos_tensor_info_t *tensor) {
  for (int d = 0; d < DTYPES; d++)
    if (!strcmp(tensor->dtype, dtype_names[d])) return d;
  fprintf(stderr, "no dtype %s\n", tensor->dtype);
  exit(2);
}

static int bits_of(int dtype) { return dtype == F32 || dtype == I32 ? 32 : dtype <= BF16 ? 16 : 8; }
static int mantissa_of(int dtype) {
  return dtype == F16 ? 10 : dtype == BF16 ? 7 : dtype == E4M3 ? 3 : 2;
}

// Narrow formats have sign, exponent, mantissa; e4m3 has no infinity.
static double decode_narrow(uint32_t raw, int dtype) {
  int mantissa_bits = mantissa_of(dtype), bits = bits_of(dtype);
  int exponent_bits = bits - 1 - mantissa_bits, bias = (1 << (exponent_bits - 1)) - 1;
  uint32_t mantissa = raw & ((1u << mantissa_bits) - 1);
  int exponent = (int)(raw >> mantissa_bits & ((1u << exponent_bits) - 1));
  double sign = raw >> (bits - 1) & 1 ? -1 : 1;
  bool last = exponent == (1 << exponent_bits) - 1;
  if (last && (dtype != E4M3 || mantissa == 7))
    return mantissa || dtype == E4M3 ? (double)NAN : sign * (double)INFINITY;
  if (exponent == 0) return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * ldexp((1u << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double decode(const void *data, size_t i, int dtype) {
  if (dtype == F32) return ((const float *)data)[i];
  if (dtype == I32) return ((const int32_t *)data)[i];
  if (bits_of(dtype) == 16) return decode_narrow(((const uint16_t *)data)[i], dtype);
  return decode_narrow(((const uint8_t *)data)[i], dtype);
}

// The value of the format next to zero from `value`, which is finite and small: good enough for
// random data.
static uint32_t encode_narrow(double value, int dtype) {
  int mantissa_bits = mantissa_of(dtype), bits = bits_of(dtype), exponent;
  int bias = (1 << (bits - 2 - mantissa_bits)) - 1;
  uint32_t sign = value < 0 ? 1u << (bits - 1) : 0;
  double fraction = frexp(fabs(value), &exponent); // in [0.5, 1)
  exponent += bias - 1;
  if (value == 0 || exponent < 1)
    return sign | (uint32_t)ldexp(fabs(value), bias - 1 + mantissa_bits);
  uint32_t mantissa = (uint32_t)ldexp(fraction, mantissa_bits + 1) & ((1u << mantissa_bits) - 1);
  return sign | (uint32_t)exponent << mantissa_bits | mantissa;
}

static void encode(void *data, size_t i, int dtype, double value) {
  if (dtype == F32)
    ((float *)data)[i] = (float)value;
  else if (dtype == I32)
    ((int32_t *)data)[i] = (int32_t)value;
  else if (bits_of(dtype) == 16)
    ((uint16_t *)data)[i] = (uint16_t)encode_narrow(value, dtype);
  else
    ((uint8_t *)data)[i] = (uint8_t)encode_narrow(value, dtype);
}

// ---- tensors ------------------------------------------------------------------------------------

static bool is_role(const tensor_t *tensor, const char *role) {
  return !strcmp(tensor->info.role, role);
}
bool is_result(const tensor_t *tensor) {
  return is_role(tensor, "output") || is_role(tensor, "state");
}
static bool is_pages(const tensor_t *tensor) {
  size_t length = strlen(tensor->info.name);
  return length > 6 && !strcmp(tensor->info.name + length - 6, ".pages");
}

const tensor_t *find_tensor(const test_t *test, const char *name) {
  for (size_t i = 0; i < test->tensor_count; i++)
    if (!strcmp(test->tensors[i].info.name, name)) return &test->tensors[i];
  return NULL;
}

static double random_value(const tensor_t *tensor, size_t i) {
  uint32_t rank = tensor->info.rank;
  if (tensor->dtype == I32) {
    bool counts = strstr(tensor->info.name, "pos") || strstr(tensor->info.name, "seq");
    return counts ? (double)i : random_below(16);
  }
  if (!is_role(tensor, "weight")) return random_unit();
  if (rank < 2) return 1 + 0.1 * random_unit();
  return random_unit() * sqrt(3.0 / tensor->info.shape[rank - 1]);
}

// Large ones repeat SOME values in a random order: encoding each takes seconds.
enum { SOME = 1 << 16 };
static void fill(tensor_t *tensor) {
  size_t own = tensor->count < SOME || tensor->dtype == I32 ? tensor->count : SOME;
  size_t bytes = (size_t)bits_of(tensor->dtype) / 8;
  char *data = tensor->data;
  for (size_t i = 0; i < own; i++) encode(data, i, tensor->dtype, random_value(tensor, i));
  for (size_t i = own; i < tensor->count; i++)
    memcpy(data + i * bytes, data + random_below(SOME) * bytes, bytes);
}

static void *allocate(const tensor_t *tensor) {
  void *data = malloc(tensor->info.bytes + 16);
  if (!data) exit(2);
  return data;
}

void make_data(test_t *test) {
  test->tensor_count = gpuos_program_tensor_count(test->tested.program);
  if (test->tensor_count > MAX_TENSORS) exit(2);
  for (uint32_t i = 0; i < test->tensor_count; i++) {
    tensor_t *tensor = &test->tensors[i];
    *tensor = (tensor_t){.info = gpuos_program_tensor(test->tested.program, i)};
    tensor->dtype = dtype_of(&tensor->info);
    tensor->count = tensor->info.bytes * 8 / (size_t)bits_of(tensor->dtype);
    tensor->data = allocate(tensor);
    if (!is_result(tensor)) fill(tensor);
  }
}

void draw_inputs(test_t *test) {
  for (size_t i = 0; i < test->tensor_count; i++)
    if (is_role(&test->tensors[i], "input")) fill(&test->tensors[i]);
}

void free_data(test_t *test) {
  for (size_t i = 0; i < test->tensor_count; i++) free(test->tensors[i].data);
}

// ---- to the device and back ---------------------------------------------------------------------

static gpuos_status_t write_tensor(const program_t *program, const tensor_t *tensor) {
  if (is_pages(tensor)) return GPUOS_OK;
  if (!is_result(tensor))
    return gpuos_program_write(program->program, tensor->info.name, tensor->data,
                               tensor->info.bytes);
  void *data = allocate(tensor);
  memset(data, is_role(tensor, "output") ? 0xff : 0, tensor->info.bytes);
  gpuos_status_t status =
      gpuos_program_write(program->program, tensor->info.name, data, tensor->info.bytes);
  free(data);
  return status;
}

bool write_all(test_t *test, const program_t *program, const char *what) {
  gpuos_status_t status = GPUOS_OK;
  for (size_t i = 0; i < test->tensor_count && status == GPUOS_OK; i++)
    status = write_tensor(program, &test->tensors[i]);
  if (status != GPUOS_OK) fail(test, what, program, status);
  return status == GPUOS_OK;
}

void *read_tensor(test_t *test, const program_t *program, const tensor_t *tensor) {
  void *data = allocate(tensor);
  gpuos_status_t status =
      gpuos_program_read(program->program, tensor->info.name, data, tensor->info.bytes);
  if (status != GPUOS_OK) fail(test, tensor->info.name, program, status);
  return data;
}

static void compare_bits(test_t *test, const tensor_t *tensor, const char *what) {
  const char *first = tensor->data;
  char *now = read_tensor(test, &test->tested, tensor);
  size_t bytes = (size_t)bits_of(tensor->dtype) / 8, wrong = 0, at = 0;
  for (size_t i = tensor->count; i-- > 0;)
    if (memcmp(now + i * bytes, first + i * bytes, bytes)) wrong++, at = i;
  if (wrong)
    fail_with(test,
              "%s: %zu of %zu elements of '%s' differ from the first step's, first %zu: %g, was %g",
              what, wrong, tensor->count, tensor->info.name, at, decode(now, at, tensor->dtype),
              decode(first, at, tensor->dtype));
  free(now);
}

bool same_results(test_t *test, const char *what) {
  for (size_t i = 0; i < test->tensor_count; i++)
    if (is_result(&test->tensors[i])) compare_bits(test, &test->tensors[i], what);
  return !test->failed;
}

// ---- failure ------------------------------------------------------------------------------------

void fail_with(test_t *test, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (!test->failed) vsnprintf(test->note, sizeof test->note, format, args);
  va_end(args);
  test->failed = true;
}

void fail(test_t *test, const char *what, const program_t *program, gpuos_status_t status) {
  fail_with(test, "%s: %s: %s", what, gpuos_status_name(status),
            gpuos_device_error(program->device));
}
