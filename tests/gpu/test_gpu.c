// test_gpu.c: are the numbers of an artefact right on a GPU?
//
//   test_gpu [--no-cpu] [--storm] [--one-shot] [--seed=N] [--limit=S] [--device=cpu] ARTEFACT...
//
// Gives every artefact random data, fresh unless a seed is given, runs a step on other inputs and two steps
// on the CUDA device with poisoned outputs, and compares: the second step with the first (bit by bit: the order of
// every sum is fixed), all outputs and states with the CPU device, and, for artefacts of one
// product (a [m, k], b [n, k], scales a_scale and b_scale if there are any, c [m, n]), a sample
// with a product in double. --storm adds steps under pauses, on SMs that come and go and on few
// (storm.c). --one-shot launches the kernel for each step, as profilers want it. A step that takes
// longer than the limit, 10 s by default, has failed. One line a program: a live one and its job are
// each tested alone, then at once. Exit status 1 when one fails.
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

#include "gpu_test.h"

enum { SAMPLED_ROWS = 64, SAMPLED_COLS = 256 };

static const double tolerances[DTYPES] = {2e-3, 4e-3, 1e-2, 5e-2, 1e-1, 0};
// Without intermediates: half an ulp, and what fp32 sums of 2^13 terms lose.
static const double product_tolerances[DTYPES] = {2e-5, 5e-4, 3e-3, 4e-2, 8e-2, 0};

typedef struct options {
  bool with_cpu, storm, one_shot, on_cpu;
  uint64_t seed, limit_s;
} options_t;

// ---- a step -------------------------------------------------------------------------------------

static bool open_program(test_t *test, const gpuos_device_options_t *options,
                         program_t *out_program) {
  const char *what = options->kind == GPUOS_DEVICE_CUDA ? "cuda" : "cpu";
  gpuos_status_t status = gpuos_device_open(options, &out_program->device);
  if (status == GPUOS_OK)
    status = gpuos_program_load_file(out_program->device, test->path, &out_program->program);
  if (status != GPUOS_OK) fail(test, what, out_program, status);
  return status == GPUOS_OK;
}

// The program of the artefact that the test is about; it belongs to `opened`.
static program_t program_of(const test_t *test, const program_t *opened) {
  program_t program = *opened;
  if (test->is_job) program.program = gpuos_program_job(opened->program);
  return program;
}

static void close_program(program_t *program) {
  gpuos_program_destroy(program->program);
  gpuos_device_close(program->device);
  *program = (program_t){0};
}

static bool run_step(test_t *test, const program_t *program, const char *what, uint64_t limit_ns) {
  if (!write_all(test, program, what)) return false;
  gpuos_status_t status = gpuos_submit(program->program);
  if (status == GPUOS_OK) status = gpuos_wait(program->program, limit_ns);
  if (status != GPUOS_OK) fail(test, what, program, status);
  return status == GPUOS_OK;
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
  const uint64_t minutes_ns = 300 * 1000000000ull;
  const gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CPU};
  program_t opened = {0};
  bool ok = open_program(test, &options, &opened);
  program_t cpu = program_of(test, &opened);
  if (ok && run_step(test, &cpu, "cpu", minutes_ns))
    for (size_t i = 0; i < test->tensor_count; i++)
      if (is_result(&test->tensors[i])) compare_tensor(test, &cpu, &test->tensors[i]);
  close_program(&opened);
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

// The 8-bit matrix units of sm_90 drop all below 13 bits of a sum: 2e-3 of the result at k = 8192,
// growing as k^0.65 (tests/gpu/sweep_reference.py). Half more is allowed.
static double product_tolerance(const tensor_t *a, const tensor_t *c, size_t k) {
  double sums = a->dtype == E4M3 || a->dtype == E5M2 ? 2e-3 * pow((double)k / 4112, 0.65) : 0;
  return hypot(product_tolerances[c->dtype], sums);
}

// Rows of a tensor at `count` places, for free.
static double *decode_rows(const tensor_t *tensor, size_t count) {
  size_t rows = tensor->info.shape[0], k = tensor->info.shape[1];
  double *values = malloc(count * k * sizeof *values + 1);
  if (!values) exit(2);
  for (size_t r = 0; r < count; r++)
    for (size_t i = 0; i < k; i++)
      values[r * k + i] = decode(tensor->data, sample(r, count, rows) * k + i, tensor->dtype);
  return values;
}

static double dot(const double *x, const double *y, size_t k) {
  double sum = 0;
  for (size_t i = 0; i < k; i++) sum += x[i] * y[i];
  return sum;
}

static bool is_product(const tensor_t *a, const tensor_t *b, const tensor_t *c) {
  if (!a || !b || !c || a->info.rank != 2 || b->info.rank != 2 || c->info.rank != 2) return false;
  return b->info.shape[1] == a->info.shape[1] && c->info.shape[0] == a->info.shape[0] &&
         c->info.shape[1] == b->info.shape[0];
}

static bool compare_with_product(test_t *test) {
  const tensor_t *a = find_tensor(test, "a"), *b = find_tensor(test, "b"),
                 *c = find_tensor(test, "c");
  if (!is_product(a, b, c)) return false;
  size_t m = a->info.shape[0], k = a->info.shape[1], n = b->info.shape[0];
  size_t rows = at_most(SAMPLED_ROWS, m), cols = at_most(SAMPLED_COLS, n);
  double scale = scale_of(test, "a_scale") * scale_of(test, "b_scale");
  double *x = decode_rows(a, rows), *y = decode_rows(b, cols);
  difference_t d = {0};
  for (size_t r = 0; r < rows; r++)
    for (size_t q = 0; q < cols; q++) {
      size_t at = sample(r, rows, m) * n + sample(q, cols, n);
      add_difference(&d, at, decode(c->data, at, c->dtype), dot(x + r * k, y + q * k, k) * scale);
    }
  judge(test, c, "float64", &d, product_tolerance(a, c, k));
  free(x);
  free(y);
  return true;
}

// ---- an artefact --------------------------------------------------------------------------------

// A step on other inputs, whatever of which is taken for the next one's is wrong there. Then the results of the
// first step, into tensors[].data; the second one's must be the same.
static bool run_twice(test_t *test) {
  if (!run_step(test, &test->tested, "a step before", test->limit_ns)) return false;
  draw_inputs(test);
  if (!run_step(test, &test->tested, "the first step", test->limit_ns)) return false;
  for (size_t i = 0; i < test->tensor_count; i++) {
    tensor_t *tensor = &test->tensors[i];
    if (!is_result(tensor)) continue;
    free(tensor->data);
    tensor->data = read_tensor(test, &test->tested, tensor);
  }
  return !test->failed && run_step(test, &test->tested, "the second step", test->limit_ns) &&
         same_results(test, "the second step");
}

static void run_tests(test_t *test, const options_t *options, double *out_us) {
  make_data(test);
  if (!run_twice(test)) return;
  *out_us = (double)gpuos_step_ns(test->tested.program) / 1000;
  bool product = compare_with_product(test);
  if (options->with_cpu) compare_with_cpu(test);
  if (!product && !options->with_cpu) strcat(test->note, "ran, compared with nothing");
  if (options->storm && !test->failed) survives_storms(test);
}

static void print_verdict(const test_t *test, double us) {
  printf("%s %s%s: %.1f us, %s\n", test->failed ? "FAIL" : "ok  ", test->path,
         test->is_job ? ", its job" : "", us, test->note);
  fflush(stdout);
}

// The job of `live`, which has passed; then both at once.
static bool test_job(test_t *live, const options_t *options) {
  static test_t job; // large
  double us = 0;
  job = (test_t){.path = live->path, .on_cpu = live->on_cpu, .limit_ns = live->limit_ns};
  job.is_job = true;
  job.tested = program_of(&job, &live->tested);
  run_tests(&job, options, &us);
  // A one-shot kernel has a step of one of them.
  if (!job.failed && !options->one_shot) survive_each_other(live, &job, options->storm);
  print_verdict(&job, us);
  free_data(&job);
  return !job.failed;
}

static bool test_artefact(const char *path, const options_t *options) {
  static test_t test; // large
  test =
      (test_t){.path = path, .on_cpu = options->on_cpu, .limit_ns = options->limit_s * 1000000000};
  // A wait that is too long explains itself, so it should end before ours does.
  const gpuos_device_options_t device = {
      .kind = options->on_cpu ? GPUOS_DEVICE_CPU : GPUOS_DEVICE_CUDA,
      .wait_limit_us = (uint32_t)(options->limit_s * 1000000 / 2),
      .one_shot = options->one_shot};
  double us = 0;
  bool passed = true;
  if (open_program(&test, &device, &test.tested)) run_tests(&test, options, &us);
  if (!test.failed && gpuos_program_job(test.tested.program)) passed = test_job(&test, options);
  print_verdict(&test, us);
  free_data(&test);
  close_program(&test.tested);
  return passed && !test.failed;
}

static bool is_number(const char *word, const char *option, uint64_t *out_value) {
  size_t length = strlen(option);
  if (strncmp(word, option, length)) return false;
  *out_value = strtoull(word + length, NULL, 10);
  return true;
}

// False: `word` is no option.
static bool parse(const char *word, options_t *options) {
  bool known =
      is_number(word, "--seed=", &options->seed) || is_number(word, "--limit=", &options->limit_s);
  if (!strcmp(word, "--no-cpu")) return options->with_cpu = false, true;
  if (!strcmp(word, "--storm")) return options->storm = true;
  if (!strcmp(word, "--one-shot")) return options->one_shot = true;
  if (!strcmp(word, "--device=cpu")) return options->on_cpu = true;
  return known;
}

int main(int argc, char **argv) {
  int passed = 0, failed = 0;
  options_t options = {.with_cpu = true, .seed = (uint64_t)time(NULL), .limit_s = 10};
  for (int i = 1; i < argc; i++) {
    if (parse(argv[i], &options) || strncmp(argv[i], "--", 2)) continue;
    fprintf(stderr, "test_gpu: unknown option %s\n", argv[i]);
    return 2;
  }
  printf("--seed=%llu\n", (unsigned long long)options.seed);
  fflush(stdout);
  random_seed(options.seed);
  for (int i = 1; i < argc; i++) {
    if (!strncmp(argv[i], "--", 2)) continue;
    if (test_artefact(argv[i], &options))
      passed++;
    else
      failed++;
  }
  printf("%d passed, %d failed\n", passed, failed);
  return failed || !passed;
}
