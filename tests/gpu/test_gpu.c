// test_gpu.c: are the numbers of an artefact right on a GPU?
//
//   test_gpu [--no-cpu] [--seed=N] ARTEFACT...
//
// Gives every artefact random data, fresh unless a seed is given, runs two steps on the CUDA device
// with poisoned outputs, and compares: the second step with the first (bit by bit: the order of
// every sum is fixed), all outputs and states with the CPU device, and, for artefacts of one
// product (a [m, k], b [n, k], scales a_scale and b_scale if there are any, c [m, n]), a sample
// with a product in double. One line an artefact. Exit status 1 when one fails.
//
// Random data: inputs in [-1, 1); matrices scaled so that products stay of that size; vectors of
// weights near 1; integers by their names: positions ("pos") and sequences ("seq") count from 0,
// all others are below 16. Page tables keep their default.
//
// Tolerances, RMS of the difference over RMS of the values: a result may be off by an ulp of its
// own format where sums of another order round apart, and every operator before it that rounds to
// 16 bits adds its half ulp, 2^-9, at random: 2^-9 sqrt(operators), counted by the graph's tensors,
// of which each operator of a decoder brings about one.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpuos.h"

enum { MAX_TENSORS = 4096, SAMPLED_ROWS = 64, SAMPLED_COLS = 256 };

static const char *const dtype_names[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "i32"};
enum { F32, F16, BF16, E4M3, E5M2, I32, DTYPES };

static const double tolerances[DTYPES] = {2e-3, 4e-3, 1e-2, 5e-2, 1e-1, 0};
// Without intermediates: half an ulp, and what fp32 sums of 2^13 terms lose.
static const double product_tolerances[DTYPES] = {2e-5, 5e-4, 3e-3, 4e-2, 8e-2, 0};

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

static double decode(const void *data, size_t i, int dtype) {
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

// ---- data ---------------------------------------------------------------------------------------

typedef struct tensor {
  gpuos_tensor_info_t info;
  int dtype;
  size_t count; // elements
  void *data;   // what was written, or read from the CUDA device
} tensor_t;

typedef struct program {
  gpuos_device_t *device;
  gpuos_program_t *program;
} program_t;

typedef struct test {
  const char *path;
  program_t cuda;
  size_t tensor_count;
  tensor_t tensors[MAX_TENSORS];
  char note[512]; // of the line, or why it failed
  bool failed;
} test_t;

static uint64_t random_state = 0x9e3779b97f4a7c15;
static double random_unit(void) { // in [-1, 1); xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (double)(int64_t)(random_state * 0x2545f4914f6cdd1d) / 9223372036854775808.0;
}

static bool is_role(const tensor_t *tensor, const char *role) {
  return !strcmp(tensor->info.role, role);
}
static bool is_result(const tensor_t *tensor) {
  return is_role(tensor, "output") || is_role(tensor, "state");
}
static bool is_pages(const tensor_t *tensor) {
  size_t length = strlen(tensor->info.name);
  return length > 6 && !strcmp(tensor->info.name + length - 6, ".pages");
}

static double random_value(const tensor_t *tensor, size_t i) {
  uint32_t rank = tensor->info.rank;
  if (tensor->dtype == I32) {
    bool counts = strstr(tensor->info.name, "pos") || strstr(tensor->info.name, "seq");
    return counts ? (double)i : floor((random_unit() + 1) * 8);
  }
  if (!is_role(tensor, "weight")) return random_unit();
  if (rank < 2) return 1 + 0.1 * random_unit();
  return random_unit() * sqrt(3.0 / tensor->info.shape[rank - 1]);
}

static void fill(tensor_t *tensor) {
  for (size_t i = 0; i < tensor->count; i++)
    encode(tensor->data, i, tensor->dtype, random_value(tensor, i));
}

static void fail(test_t *test, const char *what, const program_t *program, gpuos_status_t status) {
  snprintf(test->note, sizeof test->note, "%s: %s: %s", what, gpuos_status_name(status),
           gpuos_device_error(program->device));
  test->failed = true;
}

static bool open_program(test_t *test, gpuos_device_kind_t kind, program_t *out_program) {
  const gpuos_device_options_t options = {.kind = kind};
  const char *what = kind == GPUOS_DEVICE_CUDA ? "cuda" : "cpu";
  gpuos_status_t status = gpuos_device_open(&options, &out_program->device);
  if (status == GPUOS_OK)
    status = gpuos_program_load_file(out_program->device, test->path, &out_program->program);
  if (status != GPUOS_OK) fail(test, what, out_program, status);
  return status == GPUOS_OK;
}

static void close_program(program_t *program) {
  gpuos_program_destroy(program->program);
  gpuos_device_close(program->device);
  *program = (program_t){0};
}

static void make_data(test_t *test) {
  test->tensor_count = gpuos_program_tensor_count(test->cuda.program);
  if (test->tensor_count > MAX_TENSORS) exit(2);
  for (uint32_t i = 0; i < test->tensor_count; i++) {
    tensor_t *tensor = &test->tensors[i];
    *tensor = (tensor_t){.info = gpuos_program_tensor(test->cuda.program, i)};
    tensor->dtype = dtype_of(&tensor->info);
    tensor->count = tensor->info.bytes * 8 / (size_t)bits_of(tensor->dtype);
    tensor->data = malloc(tensor->info.bytes + 16);
    if (!tensor->data) exit(2);
    if (!is_result(tensor)) fill(tensor);
  }
}

static void free_data(test_t *test) {
  for (size_t i = 0; i < test->tensor_count; i++) free(test->tensors[i].data);
}

// Inputs and weights; outputs full of NaN, states full of zeros.
static gpuos_status_t write_tensor(const program_t *program, const tensor_t *tensor) {
  if (is_pages(tensor)) return GPUOS_OK;
  if (!is_result(tensor))
    return gpuos_program_write(program->program, tensor->info.name, tensor->data,
                               tensor->info.bytes);
  void *data = malloc(tensor->info.bytes + 16);
  if (!data) exit(2);
  memset(data, is_role(tensor, "output") ? 0xff : 0, tensor->info.bytes);
  gpuos_status_t status =
      gpuos_program_write(program->program, tensor->info.name, data, tensor->info.bytes);
  free(data);
  return status;
}

static bool run_step(test_t *test, const program_t *program, const char *what) {
  gpuos_status_t status = GPUOS_OK;
  for (size_t i = 0; i < test->tensor_count && status == GPUOS_OK; i++)
    status = write_tensor(program, &test->tensors[i]);
  if (status == GPUOS_OK) status = gpuos_submit(program->program);
  if (status == GPUOS_OK) status = gpuos_wait(program->program, 120 * 1000000000ull);
  if (status != GPUOS_OK) fail(test, what, program, status);
  return status == GPUOS_OK;
}

static void *read_tensor(test_t *test, const program_t *program, const tensor_t *tensor) {
  void *data = malloc(tensor->info.bytes + 16);
  if (!data) exit(2);
  gpuos_status_t status =
      gpuos_program_read(program->program, tensor->info.name, data, tensor->info.bytes);
  if (status != GPUOS_OK) fail(test, tensor->info.name, program, status);
  return data;
}

static const tensor_t *find_tensor(const test_t *test, const char *name) {
  for (size_t i = 0; i < test->tensor_count; i++)
    if (!strcmp(test->tensors[i].info.name, name)) return &test->tensors[i];
  return NULL;
}

// ---- comparing ----------------------------------------------------------------------------------

typedef struct difference {
  double square, square_of_value, worst;
  size_t worst_at, count;
} difference_t;

// Equal infinities and NaNs agree.
static void add_difference(difference_t *d, size_t at, double found, double expected) {
  double off = fabs(found - expected);
  d->count++;
  if (found == expected || (isnan(found) && isnan(expected))) off = 0;
  if (isnan(off)) off = INFINITY;
  d->square += off * off;
  if (isfinite(expected)) d->square_of_value += expected * expected;
  if (off > d->worst) d->worst = off, d->worst_at = at;
}

static double relative(const difference_t *d) {
  if (d->square == 0) return 0;
  return sqrt(d->square / (d->square_of_value + 1e-30));
}

static void judge(test_t *test, const tensor_t *tensor, const char *against, const difference_t *d,
                  double tolerance) {
  size_t used = strlen(test->note);
  double off = relative(d);
  bool bad = !(off <= tolerance);
  if (bad && !test->failed) used = 0; // the first failure is the one to tell
  if (bad || !test->failed)
    snprintf(test->note + used, sizeof test->note - used,
             "%s%s %.1e of %.0e (%s, worst %.3g at %zu)", used ? ", " : "", tensor->info.name, off,
             tolerance, against, d->worst, d->worst_at);
  test->failed |= bad;
}

// Half an ulp of a 16-bit intermediate from every operator, at random.
static double tolerance_of(const test_t *test, const tensor_t *tensor) {
  double own = tolerances[tensor->dtype], path = sqrt((double)test->tensor_count) / 512;
  return tensor->dtype != I32 && path > own ? path : own;
}

// The chosen index may be another one where the CPU device's logits are as near as the tolerance.
static void compare_choice(test_t *test, const program_t *cpu, const tensor_t *next,
                           const tensor_t *logits) {
  int32_t *expected = read_tensor(test, cpu, next);
  void *values = read_tensor(test, cpu, logits);
  size_t width = logits->info.shape[1];
  difference_t d = {0};
  for (size_t row = 0; row < next->count; row++) {
    size_t mine = (size_t)((const int32_t *)next->data)[row], theirs = (size_t)expected[row];
    double best = decode(values, row * width + theirs, logits->dtype);
    double chosen = mine < width ? decode(values, row * width + mine, logits->dtype) : -INFINITY;
    add_difference(&d, row, chosen, best);
  }
  judge(test, next, "cpu's logit of the choice", &d, tolerance_of(test, logits));
  free(values);
  free(expected);
}

static void compare_tensor(test_t *test, const program_t *cpu, const tensor_t *tensor) {
  const tensor_t *logits = find_tensor(test, "logits");
  if (tensor->dtype == I32 && logits && logits->info.shape[0] == tensor->count) {
    compare_choice(test, cpu, tensor, logits);
    return;
  }
  void *expected = read_tensor(test, cpu, tensor);
  difference_t d = {0};
  for (size_t i = 0; i < tensor->count; i++)
    add_difference(&d, i, decode(tensor->data, i, tensor->dtype),
                   decode(expected, i, tensor->dtype));
  judge(test, tensor, "cpu", &d, tolerance_of(test, tensor));
  free(expected);
}

static void compare_with_cpu(test_t *test) {
  program_t cpu = {0};
  if (open_program(test, GPUOS_DEVICE_CPU, &cpu) && run_step(test, &cpu, "cpu"))
    for (size_t i = 0; i < test->tensor_count; i++)
      if (is_result(&test->tensors[i])) compare_tensor(test, &cpu, &test->tensors[i]);
  close_program(&cpu);
}

// ---- a plain product ----------------------------------------------------------------------------

static double scale_of(const test_t *test, const char *name) {
  const tensor_t *scale = find_tensor(test, name);
  return scale ? decode(scale->data, 0, scale->dtype) : 1;
}

// `count` places from the first to the last of n, as even as they go.
static size_t sample(size_t i, size_t count, size_t n) {
  return i * (n - 1) / (count > 1 ? count - 1 : 1);
}
static size_t at_most(size_t limit, size_t n) { return n < limit ? n : limit; }

static bool compare_with_product(test_t *test) {
  const tensor_t *a = find_tensor(test, "a"), *b = find_tensor(test, "b"),
                 *c = find_tensor(test, "c");
  if (!a || !b || !c || a->info.rank != 2 || b->info.rank != 2 || c->info.rank != 2) return false;
  size_t m = a->info.shape[0], k = a->info.shape[1], n = b->info.shape[0];
  if (b->info.shape[1] != k || c->info.shape[0] != m || c->info.shape[1] != n) return false;
  difference_t d = {0};
  double scale = scale_of(test, "a_scale") * scale_of(test, "b_scale");
  size_t rows = at_most(SAMPLED_ROWS, m), cols = at_most(SAMPLED_COLS, n);
  for (size_t r = 0; r < rows; r++)
    for (size_t q = 0; q < cols; q++) {
      size_t row = sample(r, rows, m), col = sample(q, cols, n);
      double sum = 0;
      for (size_t i = 0; i < k; i++)
        sum += decode(a->data, row * k + i, a->dtype) * decode(b->data, col * k + i, b->dtype);
      add_difference(&d, row * n + col, decode(c->data, row * n + col, c->dtype), sum * scale);
    }
  judge(test, c, "float64", &d, product_tolerances[c->dtype]);
  return true;
}

// ---- an artefact --------------------------------------------------------------------------------

// The results of the second step, which must be those of the first, into tensors[].data.
static bool run_cuda(test_t *test) {
  if (!run_step(test, &test->cuda, "cuda")) return false;
  for (size_t i = 0; i < test->tensor_count; i++) {
    tensor_t *tensor = &test->tensors[i];
    if (!is_result(tensor)) continue;
    free(tensor->data);
    tensor->data = read_tensor(test, &test->cuda, tensor);
  }
  if (!run_step(test, &test->cuda, "cuda, again")) return false;
  for (size_t i = 0; i < test->tensor_count; i++) {
    const tensor_t *tensor = &test->tensors[i];
    if (!is_result(tensor)) continue;
    void *again = read_tensor(test, &test->cuda, tensor);
    if (memcmp(again, tensor->data, tensor->info.bytes)) {
      snprintf(test->note, sizeof test->note, "'%s' differs from step to step", tensor->info.name);
      test->failed = true;
    }
    free(again);
  }
  return !test->failed;
}

static bool test_artefact(const char *path, bool with_cpu) {
  static test_t test; // large
  test = (test_t){.path = path};
  double us = 0;
  if (open_program(&test, GPUOS_DEVICE_CUDA, &test.cuda)) {
    make_data(&test);
    if (run_cuda(&test)) {
      us = (double)gpuos_step_ns(test.cuda.program) / 1000;
      bool product = compare_with_product(&test);
      if (with_cpu) compare_with_cpu(&test);
      if (!product && !with_cpu) strcat(test.note, "ran, compared with nothing");
    }
  }
  printf("%s %s: %.1f us, %s\n", test.failed ? "FAIL" : "ok  ", path, us, test.note);
  fflush(stdout);
  free_data(&test);
  close_program(&test.cuda);
  return !test.failed;
}

int main(int argc, char **argv) {
  int passed = 0, failed = 0;
  bool with_cpu = true;
  uint64_t seed = (uint64_t)time(NULL);
  for (int i = 1; i < argc; i++)
    if (!strncmp(argv[i], "--seed=", 7)) seed = strtoull(argv[i] + 7, NULL, 10);
  printf("--seed=%llu\n", (unsigned long long)seed);
  random_state ^= seed * 0x9e3779b97f4a7c15;
  for (int i = 1; i < argc; i++) {
    if (!strncmp(argv[i], "--seed=", 7)) continue;
    if (!strcmp(argv[i], "--no-cpu")) {
      with_cpu = false;
      continue;
    }
    if (test_artefact(argv[i], with_cpu))
      passed++;
    else
      failed++;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed;
}
