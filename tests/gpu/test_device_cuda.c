// test_device_cuda.c: the CUDA device on a GPU, with a kernel that misbehaves on request.
//
//   nvcc -cubin -arch=sm_90a -Iruntime tests/gpu/contract.cu -o contract.cubin
//   test_device_cuda contract.cubin
//   test_device_cuda_fake fake            # the same on threads, see fake_cuda.c
// A plain program: prints one line a case, exits 1 when one fails.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli_bench.h"
#include "contract_artefact.h"
#include "device_cuda.h"
#include "models.h"

enum { COUNT = CONTRACT_COUNT };
static const uint64_t second_ns = 1000000000;
static int failures;
static gpuos_device_t *device;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (condition) break;                                                                          \
    failures++;                                                                                    \
    printf("  FAILED line %d: %s\n    %s\n", __LINE__, #condition, gpuos_device_error(device));    \
  } while (0)
#define SAYS(text) CHECK(strstr(gpuos_device_error(device), text) != NULL)

// ---- programs -----------------------------------------------------------------------------------

static const variant_t good = {64, 4096, 1, 1, 0, 0};

static gpuos_status_t load(const char *path, variant_t v, gpuos_program_t **out_program) {
  bytes_t artefact = make_artefact(path, v);
  gpuos_status_t status = gpuos_program_load(device, artefact.at, artefact.count, out_program);
  free(artefact.at);
  return status;
}

// ---- steps --------------------------------------------------------------------------------------

// As contract.h numbers them.
enum {
  BAD_INDEX = -1,
  NO_SIGNAL = -2,
  SPIN = -3,
  GO = -4,
  TRAP = -5,
  DEAF = -6,
  SLOW = -7,
  PARK = -8
};

static void nap_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void give(gpuos_program_t *program, float first) {
  float x[COUNT];
  uint16_t w[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = (float)i + 1, w[i] = 0x4040; // 3
  x[0] = first;
  CHECK(gpuos_program_write(program, "x", x, sizeof x) == GPUOS_OK);
  CHECK(gpuos_program_write(program, "w", w, sizeof w) == GPUOS_OK);
}

static void result_is_right(gpuos_program_t *program) {
  float y[COUNT];
  CHECK(gpuos_program_read(program, "y", y, sizeof y) == GPUOS_OK);
  int wrong = 0;
  for (int i = 0; i < COUNT; i++) wrong += y[i] != 4 * ((float)i + 1);
  CHECK(wrong == 0);
  memset(y, 0, sizeof y); // so that the next result is not this one
  CHECK(gpuos_program_write(program, "y", y, sizeof y) == GPUOS_OK);
}

static void step_is_right(gpuos_program_t *program) {
  give(program, 1);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_OK);
  result_is_right(program);
  CHECK(gpuos_step_ns(program) > 0 && gpuos_step_ns(program) < second_ns);
}

static gpuos_status_t run(gpuos_program_t *program, float first) {
  give(program, first);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  return gpuos_wait(program, 10 * second_ns);
}

static gpuos_progress_t progress(gpuos_program_t *program) {
  gpuos_progress_t p;
  CHECK(gpuos_program_progress(program, &p) == GPUOS_OK);
  return p;
}

static void steps(gpuos_program_t *program) {
  puts("computes again and again");
  for (int i = 0; i < 200; i++) step_is_right(program);
  printf("  last step %.1f us\n", (double)gpuos_step_ns(program) * 1e-3);

  puts("explains a bad index, then works");
  CHECK(run(program, BAD_INDEX) == GPUOS_FAULT);
  SAYS("'ids' holds index 70000, the limit is 32000");
  step_is_right(program);

  puts("explains a stall, then works");
  CHECK(run(program, NO_SIGNAL) == GPUOS_STALL);
  SAYS("(op 'add' unit 0) waits for counter 0: expected ");
  printf("  %s\n", gpuos_device_error(device));
  step_is_right(program);

  puts("explains a kernel that leaves, then works");
  CHECK(run(program, GO) == GPUOS_DRIVER);
  SAYS("recorded no fault");
  step_is_right(program);
}

// ---- residency ----------------------------------------------------------------------------------

static void comes_and_goes(gpuos_program_t *program) {
  puts("stays after a step, leaves without work, comes back");
  for (int i = 0; i < 20; i++) {
    CHECK(run(program, 1) == GPUOS_OK);
    CHECK(progress(program).resident);
    result_is_right(program);
    nap_ms(200);
    CHECK(!progress(program).resident);
  }
  puts("is told steps at the very moment it leaves");
  for (int i = 0; i < 200; i++) {
    step_is_right(program);
    uint64_t pause_ns = 19800000 + (uint64_t)i * 1000; // the linger time is 20 ms
    nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
  }
  puts("leaves when it is told to");
  step_is_right(program);
  CHECK(gpuos_quiesce(program, 10 * second_ns) == GPUOS_OK);
  CHECK(!progress(program).resident);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  CHECK(gpuos_quiesce(program, 10 * second_ns) == GPUOS_OK);
  CHECK(!progress(program).resident);
  result_is_right(program);
}

static void queues(gpuos_program_t *program) {
  puts("runs many steps in a row, and more behind them");
  uint64_t before = progress(program).steps_done;
  give(program, 1);
  for (int i = 0; i < 10; i++) CHECK(gpuos_submit_steps(program, 50) == GPUOS_OK);
  CHECK(gpuos_program_write(program, "y", &before, 8) == GPUOS_INVALID_ARGUMENT);
  CHECK(gpuos_wait(program, 30 * second_ns) == GPUOS_OK);
  CHECK(progress(program).steps_done == before + 500);
  CHECK(progress(program).steps_submitted - progress(program).steps_done <= 1000);
  result_is_right(program);

  puts("drops the steps behind a fault");
  before = progress(program).steps_done;
  give(program, BAD_INDEX);
  CHECK(gpuos_submit_steps(program, 5) == GPUOS_OK);
  nap_ms(20);
  CHECK(gpuos_submit_steps(program, 5) == GPUOS_OK);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_FAULT);
  CHECK(progress(program).steps_done == before);
  step_is_right(program);
  CHECK(progress(program).steps_done == before + 1);
}

static void makes_way(const char *path, gpuos_program_t *program) {
  puts("makes way for another program when idle, not when steps run");
  gpuos_program_t *other;
  step_is_right(program);
  CHECK(load(path, good, &other) == GPUOS_OK);
  step_is_right(other);
  step_is_right(program);
  step_is_right(other);
  CHECK(gpuos_pause(program) == GPUOS_OK);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  gpuos_program_t *third;
  CHECK(load(path, good, &third) == GPUOS_INVALID_ARGUMENT);
  SAYS("is loaded while no steps run");
  gpuos_program_destroy(other); // kept until the GPU is free
  CHECK(gpuos_resume(program) == GPUOS_OK);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_OK);
  CHECK(load(path, good, &third) == GPUOS_OK);
  step_is_right(third);
  gpuos_program_destroy(third);
  step_is_right(program);
}

// ---- control ------------------------------------------------------------------------------------

static bool same(gpuos_progress_t a, gpuos_progress_t b) {
  return a.steps_done == b.steps_done && a.tiles_done == b.tiles_done;
}

// Once nothing has moved for 50 ms: on threads an SM may be late to hear of a pause.
static gpuos_progress_t progress_at_rest(gpuos_program_t *program) {
  gpuos_progress_t now = progress(program), before;
  for (int i = 0; i < 100; i++) {
    before = now;
    nap_ms(50);
    now = progress(program);
    if (same(before, now)) break;
  }
  return now;
}

static void pauses(gpuos_program_t *program) {
  puts("pauses steps and lets them go on");
  int caught = 0; // in the middle
  give(program, SLOW);
  for (int i = 0; i < 10; i++) {
    CHECK(gpuos_submit_steps(program, 3) == GPUOS_OK);
    nap_ms(1);
    CHECK(gpuos_pause(program) == GPUOS_OK);
    gpuos_progress_t first = progress_at_rest(program);
    bool over = first.steps_done == first.steps_submitted;
    caught += !over;
    CHECK(gpuos_wait(program, second_ns / 100) == GPUOS_TIMEOUT || over);
    CHECK(same(first, progress(program)));
    CHECK(gpuos_resume(program) == GPUOS_OK);
    gpuos_status_t status = gpuos_wait(program, 30 * second_ns);
    CHECK(status == GPUOS_OK || status == GPUOS_INVALID_ARGUMENT); // had ended before the pause
    result_is_right(program);
  }
  CHECK(caught > 0);
  puts("stays paused beyond every limit, and can be aborted then");
  CHECK(gpuos_pause(program) == GPUOS_OK);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  CHECK(gpuos_wait(program, 2 * second_ns) == GPUOS_TIMEOUT); // 0.1 s, and a second of patience
  gpuos_abort(program);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_ABORTED);
  CHECK(gpuos_resume(program) == GPUOS_OK);
  step_is_right(program);
}

static void lends(gpuos_program_t *program) {
  const uint32_t none[8] = {0}, second[8] = {2};
  uint32_t all[8];
  gpuos_sm_info_t before, after, first;
  memset(all, 0xff, sizeof all);
  puts("waits with no SM lent, works with one, then with all");
  give(program, 1);
  // SMs of a kernel that is there may take some tiles before they see the mask.
  CHECK(gpuos_quiesce(program, 10 * second_ns) == GPUOS_OK);
  CHECK(gpuos_lend(program, none) == GPUOS_OK);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  CHECK(gpuos_wait(program, 2 * second_ns) == GPUOS_TIMEOUT);
  CHECK(gpuos_program_sm(program, 1, &before) == GPUOS_OK);
  CHECK(strcmp(before.phase, "gone") == 0);
  CHECK(gpuos_program_sm(program, 0, &first) == GPUOS_OK);
  CHECK(gpuos_lend(program, second) == GPUOS_OK);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_OK);
  CHECK(gpuos_program_sm(program, 1, &after) == GPUOS_OK);
  CHECK(after.units_run - before.units_run == 500);
  CHECK(gpuos_program_sm(program, 0, &after) == GPUOS_OK);
  CHECK(after.units_run == first.units_run);
  result_is_right(program);
  CHECK(gpuos_program_sm(program, 256, &after) == GPUOS_INVALID_ARGUMENT);
  CHECK(gpuos_lend(program, all) == GPUOS_OK);
  step_is_right(program);

  puts("computes the same while SMs come and go");
  give(program, SLOW);
  CHECK(gpuos_submit_steps(program, 20) == GPUOS_OK);
  for (uint32_t i = 0; i < 200; i++) {
    uint32_t some[8] = {i * 0x9e3779b9u, i * 0x85ebca6bu, i * 0xc2b2ae35u, i, i};
    CHECK(gpuos_lend(program, i % 10 == 0 ? none : some) == GPUOS_OK);
    nap_ms(1);
  }
  CHECK(gpuos_lend(program, all) == GPUOS_OK);
  CHECK(gpuos_wait(program, 30 * second_ns) == GPUOS_OK);
  result_is_right(program);
}

static void *abort_soon(void *program) {
  nap_ms(20);
  gpuos_abort(program);
  return NULL;
}

static void aborts(gpuos_program_t *program) {
  puts("times out, then aborts, then works");
  for (int i = 0; i < 20; i++) {
    give(program, SPIN);
    CHECK(gpuos_submit(program) == GPUOS_OK);
    CHECK(gpuos_wait(program, 0) == GPUOS_TIMEOUT);
    CHECK(gpuos_wait(program, 1000000) == GPUOS_TIMEOUT);
    gpuos_abort(program);
    CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_ABORTED);
    step_is_right(program);
  }
  puts("is aborted right after submit");
  for (int i = 0; i < 20; i++) {
    give(program, SPIN);
    CHECK(gpuos_submit(program) == GPUOS_OK);
    gpuos_abort(program);
    CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_ABORTED);
  }
  puts("is aborted by another thread during a wait");
  pthread_t thread;
  give(program, SPIN);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  pthread_create(&thread, NULL, abort_soon, program);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_ABORTED);
  pthread_join(thread, NULL);
  step_is_right(program);
  puts("ignores an abort that comes too late");
  for (int i = 0; i < 20; i++) {
    uint64_t before = progress(program).steps_done;
    give(program, 1);
    CHECK(gpuos_submit(program) == GPUOS_OK);
    for (int ms = 0; ms < 5000 && progress(program).steps_done == before; ms++) nap_ms(1);
    gpuos_abort(program);
    CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_OK);
    result_is_right(program);
    step_is_right(program);
  }
}

// ---- measuring ----------------------------------------------------------------------------------

static void storms(gpuos_program_t *program) {
  puts("pauses in storms, and counts them");
  for (uint32_t count = 20; count < 60; count += 20) {
    gpuos_storm_t storm = {0};
    give(program, SLOW);
    CHECK(gpuos_pause_storm(program, count, 1000, 1000) == GPUOS_OK);
    CHECK(gpuos_pause_storm(program, count, 1000, 1000) == GPUOS_INVALID_ARGUMENT);
    for (int i = 0; i < 1000 && storm.done < count; i++) {
      CHECK(gpuos_submit(program) == GPUOS_OK);
      CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_OK);
      CHECK(gpuos_pause_storm_read(program, &storm) == GPUOS_OK);
    }
    uint32_t binned = 0;
    for (int i = 0; i < 128; i++) binned += storm.bins[i];
    CHECK(storm.done == count && binned == count);
    nap_ms(20); // the next kernel does not begin it again
    step_is_right(program);
    CHECK(gpuos_pause_storm_read(program, &storm) == GPUOS_OK && storm.done == count);
  }
}

// ---- take-backs ---------------------------------------------------------------------------------

// When the SMs were told of a change; each is later than the one before.
static uint64_t lend_now(gpuos_program_t *program, uint32_t mask) {
  static uint64_t before_ns;
  uint64_t ns = 0;
  CHECK(gpuos_lend(program, (const uint32_t[8]){mask}) == GPUOS_OK);
  for (int ms = 0; ms < 10000 && ns == 0; ms++) {
    CHECK(gpuos_lent_ns(program, &ns) == GPUOS_OK);
    if (ns == 0) nap_ms(1);
  }
  CHECK(ns > before_ns);
  return before_ns = ns;
}

// Waits until the SM is gone, with a time no earlier than `since_ns`, or is not gone any more.
static gpuos_sm_info_t await(gpuos_program_t *program, uint32_t sm, bool gone, uint64_t since_ns) {
  gpuos_sm_info_t info = {0};
  for (int ms = 0; ms < 10000; ms++) {
    if (ms != 0) nap_ms(1);
    CHECK(gpuos_program_sm(program, sm, &info) == GPUOS_OK);
    if ((strcmp(info.phase, "gone") == 0) == gone && (!gone || info.away_ns >= since_ns)) break;
  }
  return info;
}

// SMs 0 and 2 come and go. How long the last of them took, or 0 if one did not say.
static uint64_t take_two_back(gpuos_program_t *program) {
  uint64_t longest_ns = 0;
  lend_now(program, 5);
  for (uint32_t sm = 0; sm < 3; sm += 2) await(program, sm, false, 0);
  uint64_t lent_ns = lend_now(program, 0);
  for (uint32_t sm = 0; sm < 3; sm += 2) {
    uint64_t away_ns = await(program, sm, true, lent_ns).away_ns;
    if (away_ns < lent_ns) return 0;
    if (away_ns - lent_ns > longest_ns) longest_ns = away_ns - lent_ns;
  }
  return longest_ns;
}

static void tells_when_free(gpuos_program_t *program) {
  puts("tells when an SM taken back was free, each time anew");
  uint64_t longest_ns = 0, ns = 1, first_ns = 0;
  gpuos_sm_info_t unlent = {0};
  CHECK(gpuos_quiesce(program, 10 * second_ns) == GPUOS_OK);
  CHECK(gpuos_lend(program, (const uint32_t[8]){0}) == GPUOS_OK);
  give(program, SLOW);
  CHECK(gpuos_submit_steps(program, 5) == GPUOS_OK);
  for (int i = 0; i < 50; i++) lend_now(program, 0); // the time of none is taken for another's
  for (int i = 0; i < 20 && ns != 0; i++) {
    ns = take_two_back(program);
    if (ns > longest_ns) longest_ns = ns;
    CHECK(gpuos_program_sm(program, 1, &unlent) == GPUOS_OK);
    if (i == 9) first_ns = unlent.away_ns; // its thread has started by now
  }
  printf("  longest %.1f us\n", (double)longest_ns * 1e-3);
  CHECK(ns != 0 && longest_ns > 5000 && longest_ns < 10 * second_ns); // some are met in a unit
  CHECK(unlent.away_ns == first_ns);
  uint32_t all[8];
  memset(all, 0xff, sizeof all);
  CHECK(gpuos_lend(program, all) == GPUOS_OK);
  CHECK(gpuos_wait(program, 30 * second_ns) == GPUOS_OK);
  result_is_right(program);
}

// Units of a launch are counted: of those that are slow each SM gets some.
static void all_are_lent(gpuos_program_t *program) {
  gpuos_sm_info_t info = {0};
  CHECK(gpuos_quiesce(program, 30 * second_ns) == GPUOS_OK);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  CHECK(gpuos_wait(program, 30 * second_ns) == GPUOS_OK);
  for (uint32_t sm = 0; sm < program->sm_count; sm++)
    CHECK(gpuos_program_sm(program, sm, &info) == GPUOS_OK && info.units_run > 0);
}

static bool play_rounds(gpuos_program_t *program, gos_take_backs_t *out_taken, uint32_t count) {
  gos_session_t session = {.device = device, .program = program};
  bool ok = gos_take_backs_begin(out_taken, &session, count);
  while (ok && !gos_take_backs_over(out_taken)) {
    gpuos_progress_t now = progress(program);
    if (now.steps_submitted - now.steps_done < 4) CHECK(gpuos_submit(program) == GPUOS_OK);
    ok = gos_take_backs_poll(out_taken);
  }
  gos_times_sort(&out_taken->times);
  return ok;
}

// Rounds as `gpuos bench` has them, of units that say that they are put down, or do not.
static void rounds(const char *path, variant_t variant, float first) {
  enum { ROUNDS = 20 };
  gpuos_program_t *program;
  gos_take_backs_t taken;
  CHECK(load(path, variant, &program) == GPUOS_OK);
  if (program == NULL) return;
  give(program, first);
  CHECK(play_rounds(program, &taken, ROUNDS));
  uint32_t half = program->sm_count / variant.cluster / 2 * variant.cluster;
  uint64_t longest_ns = gos_times_at(&taken.times, 1);
  CHECK(taken.done == ROUNDS && taken.lost == 0 && taken.times.count == ROUNDS * half);
  // Half of them are, within four deviations of a coin's.
  uint64_t all = ROUNDS * half, most = all / 4 * 3;
  CHECK(first == PARK ? taken.parked >= all - most && taken.parked <= most : taken.parked == 0);
  CHECK(longest_ns > 5000 && longest_ns < 2 * second_ns);
  for (uint32_t i = 0; i < taken.count; i += variant.cluster)
    CHECK(taken.sms[i + variant.cluster - 1] == (taken.sms[i] | (variant.cluster - 1)));
  printf("  %u parked, longest %.1f us\n", (uint32_t)taken.parked, (double)longest_ns * 1e-3);
  free(taken.times.ns);
  CHECK(gpuos_wait(program, 30 * second_ns) == GPUOS_OK);
  result_is_right(program);
  all_are_lent(program);
  gpuos_program_destroy(program);
}

static bool holds(const char *path, const char *text) {
  char *at = calloc(1, 1 << 20);
  FILE *file = fopen(path, "r");
  if (file == NULL || at == NULL) exit(2);
  bool found = fread(at, 1, (1 << 20) - 1, file) > 0 && strstr(at, text) != NULL;
  fclose(file);
  free(at);
  return found;
}

static void bench(const char *path) {
  char directory[] = "/tmp/gpuos_take_XXXXXX", file[64], json[80];
  if (mkdtemp(directory) == NULL) exit(2);
  snprintf(file, sizeof file, "%s/a.cubin", directory);
  snprintf(json, sizeof json, "--json=%s/out.json", directory);
  bytes_t artefact = make_artefact(path, good);
  FILE *out = fopen(file, "wb");
  if (out == NULL || fwrite(artefact.at, artefact.count, 1, out) != 1) exit(2);
  fclose(out);
  free(artefact.at);
  char *words[] = {file, "--device=cuda", "--steps=10", "--sms=6", "--take-back=20", "--trace",
                   json};
  CHECK(gos_cli_bench(sizeof words / sizeof *words, words) == GOS_EXIT_OK);
  const char *path_of_json = strchr(json, '=') + 1;
  CHECK(
      holds(path_of_json, "\"take_backs\":{\"rounds\":20,\"parked\":0,\"lost\":0,\"times_ns\":["));
  CHECK(holds(path_of_json, "{\"op\":1,\"name\":\"add\",\"kind\":\"map\",\"bound_ns\":"));
  unlink(file);
  unlink(path_of_json);
  rmdir(directory);
}

static void take_backs(const char *path, gpuos_program_t *program) {
  tells_when_free(program);
  puts("takes half of the SMs back in rounds, while steps are queued");
  rounds(path, good, SLOW);
  rounds(path, (variant_t){64, 4096, 1, 2, 0, 0}, PARK);
  puts("benches take-backs");
  bench(path);
}

static void traces(const char *path) {
  puts("keeps the last units of every SM, and times all of them");
  gpuos_device_t *plain = device;
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CUDA, .sm_count = 4, .trace_units = 30};
  CHECK(gpuos_device_open(&options, &device) == GPUOS_OK);
  gpuos_program_t *program;
  CHECK(load(path, good, &program) == GPUOS_OK);
  if (program == NULL) return;
  step_is_right(program);
  give(program, SLOW);
  CHECK(gpuos_submit_steps(program, 2) == GPUOS_OK);
  CHECK(gpuos_wait(program, 30 * second_ns) == GPUOS_OK);
  gpuos_unit_times_t times;
  CHECK(gpuos_program_op_count(program) == 2);
  CHECK(gpuos_program_unit_times(program, 1, &times) == GPUOS_OK);
  CHECK(times.units == 3 * 250 && times.longest_ns >= 200000 && strcmp(times.name, "add") == 0);
  CHECK(gpuos_program_unit_times(program, 2, &times) == GPUOS_INVALID_ARGUMENT);
  gpuos_unit_record_t records[64];
  uint32_t count = 0, all = 0;
  for (uint32_t sm = 0; sm < 4; sm++) {
    CHECK(gpuos_program_trace(program, sm, records, 64, &count) == GPUOS_OK);
    CHECK(count <= 32); // 30, rounded up
    all += count;
    for (uint32_t i = 0; i < count; i++) {
      CHECK(records[i].step >= 1 && records[i].step <= 3);
      CHECK(records[i].op == records[i].tile / 250);
      CHECK(i == 0 || records[i].start_ns >= records[i - 1].start_ns + records[i - 1].run_ns);
    }
  }
  CHECK(all >= 64);
  CHECK(gpuos_program_trace(program, 0, records, 5, &count) == GPUOS_OK && count <= 5);
  gpuos_program_destroy(program);
  gpuos_device_close(device);
  device = plain;
}

static void one_shots(const char *path) {
  puts("launches once a step when asked to");
  gpuos_device_t *plain = device;
  gpuos_device_options_t options = {
      .kind = GPUOS_DEVICE_CUDA, .one_shot = true, .wait_limit_us = 100000};
  CHECK(gpuos_device_open(&options, &device) == GPUOS_OK);
  gpuos_program_t *program;
  CHECK(load(path, good, &program) == GPUOS_OK);
  if (program == NULL) return;
  for (int i = 0; i < 20; i++) step_is_right(program);
  CHECK(!progress(program).resident);
  CHECK(gpuos_submit_steps(program, 2) == GPUOS_INVALID_ARGUMENT);
  CHECK(run(program, BAD_INDEX) == GPUOS_FAULT);
  step_is_right(program);
  CHECK(gpuos_pause_storm(program, 1, 1, 1) == GPUOS_INVALID_ARGUMENT);
  uint64_t lent_ns;
  CHECK(gpuos_lent_ns(program, &lent_ns) == GPUOS_INVALID_ARGUMENT);
  SAYS("hears of no take-backs");
  gpuos_program_destroy(program);
  gpuos_device_close(device);
  device = plain;
}

// ---- load ---------------------------------------------------------------------------------------

static void refusals(const char *path) {
  gpuos_program_t *program;
  puts("refuses another table's device code");
  CHECK(load(path, (variant_t){64, 4096, 1, 1, 1, 0}, &program) == GPUOS_BAD_ARTEFACT);
  SAYS("is not the one the device code was built for");
  puts("refuses what cannot be resident");
  CHECK(load(path, (variant_t){1024, 4096, 32, 1, 0, 0}, &program) == GPUOS_NOT_RESIDENT);
  SAYS("workers"); // 9 SMs x 32 are more than 256
  CHECK(load(path, (variant_t){1024, 300000, 1, 1, 0, 0}, &program) == GPUOS_NOT_RESIDENT);
  SAYS("300000 bytes of shared memory");
  puts("refuses an odd launch");
  CHECK(load(path, (variant_t){33, 0, 1, 1, 0, 0}, &program) == GPUOS_BAD_ARTEFACT);
  CHECK(load(path, (variant_t){64, 0, 1, 3, 0, 0}, &program) == GPUOS_BAD_ARTEFACT);
  SAYS("clusters of 3");
  puts("refuses a bare table");
  gpuos_table_t *table = gos_model_scale(COUNT);
  CHECK(gpuos_program_load(device, table, table->bytes, &program) == GPUOS_WRONG_ARCH);
  SAYS("no device code");
  free(table);
}

// Since the last launch. An SM clears its count when it comes, on threads maybe after the step.
static bool ran_nothing(gpuos_program_t *program, uint32_t sm) {
  gpuos_sm_info_t info = {.units_run = 1};
  for (int ms = 0; ms < 1000 && info.units_run != 0; ms++) {
    if (ms != 0) nap_ms(1);
    CHECK(gpuos_program_sm(program, sm, &info) == GPUOS_OK);
  }
  return info.units_run == 0;
}

static void few_sms(const char *path) {
  puts("refuses too many CTAs an SM, with numbers");
  gpuos_device_t *all = device;
  gpuos_device_options_t options = {
      .kind = GPUOS_DEVICE_CUDA, .sm_count = 5, .wait_limit_us = 100000};
  CHECK(gpuos_device_open(&options, &device) == GPUOS_OK);
  gpuos_program_t *program;
  CHECK(load(path, (variant_t){1024, 4096, 4, 1, 0, 0}, &program) == GPUOS_NOT_RESIDENT);
  SAYS("4 CTAs an SM of 1024 threads");
  printf("  %s\n", gpuos_device_error(device));
  puts("runs on five SMs, two CTAs each, beside another program");
  CHECK(load(path, (variant_t){64, 65536, 2, 1, 0, 0}, &program) == GPUOS_OK);
  if (program != NULL) steps(program);
  gpuos_program_destroy(program);
  puts("runs on four of five SMs in clusters of two, which are lent together");
  CHECK(load(path, (variant_t){64, 4096, 1, 2, 0, 0}, &program) == GPUOS_OK);
  if (program == NULL) return;
  gpuos_sm_info_t info;
  CHECK(gpuos_program_sm_group(program) == 2);
  CHECK(gpuos_program_sm(program, 3, &info) == GPUOS_OK);
  CHECK(gpuos_program_sm(program, 4, &info) == GPUOS_INVALID_ARGUMENT);
  step_is_right(program);
  CHECK(gpuos_lend(program, (const uint32_t[8]){0xd}) == GPUOS_OK); // 0, 2, 3: only 2 and 3 work
  CHECK(gpuos_quiesce(program, 10 * second_ns) == GPUOS_OK); // units are counted from a launch on
  step_is_right(program);
  CHECK(ran_nothing(program, 0) && ran_nothing(program, 1));
  gpuos_program_destroy(program);
  gpuos_device_close(device);
  device = all;
}

// ---- the end ------------------------------------------------------------------------------------

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * second_ns + (uint64_t)now.tv_nsec;
}

static void never_ends(const char *path) {
  gpuos_program_t *program, *other;
  puts("names a unit that never ends, and works again should it end");
  CHECK(load(path, good, &program) == GPUOS_OK);
  CHECK(run(program, DEAF) == GPUOS_STALL);
  SAYS("a unit that never ends");
  printf("  %s\n", gpuos_device_error(device));
  CHECK(gpuos_submit(program) == GPUOS_STALL);
  SAYS("still holds the GPU");
  CHECK(load(path, good, &other) == GPUOS_STALL);
  for (int ms = 0; ms < 30000 && gpuos_submit(program) == GPUOS_STALL; ms += 10) nap_ms(10);
  gpuos_wait(program, 10 * second_ns); // of DEAF again
  puts("is destroyed and closed in spite of it");
  uint64_t start_ns = clock_ns();
  gpuos_program_destroy(program);
  gpuos_device_close(device);
  CHECK(clock_ns() - start_ns < 5 * second_ns);
}

static void ends(const char *path) {
  puts("ends a running step when its program is destroyed");
  gpuos_program_t *program;
  CHECK(load(path, good, &program) == GPUOS_OK);
  give(program, SPIN);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  gpuos_program_destroy(program);
  puts("ends a paused one, too");
  CHECK(load(path, good, &program) == GPUOS_OK);
  give(program, 1);
  CHECK(gpuos_pause(program) == GPUOS_OK);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  gpuos_program_destroy(program);
}

static void traps(const char *path) {
  puts("reports a trap as the driver's error, and still closes");
  gpuos_program_t *program;
  CHECK(load(path, good, &program) == GPUOS_OK);
  CHECK(run(program, TRAP) == GPUOS_DRIVER);
  printf("  %s\n", gpuos_device_error(device));
  CHECK(gpuos_submit(program) == GPUOS_DRIVER);
  gpuos_program_destroy(program);
  gpuos_device_close(device);
}

static void open_device(void) {
  gpuos_device_options_t options = {
      .kind = GPUOS_DEVICE_CUDA, .wait_limit_us = 100000, .linger_us = 20000};
  if (gpuos_device_open(&options, &device) == GPUOS_OK) return;
  puts(gpuos_device_error(device));
  exit(2);
}

// Of L2, what the kernel asks for, and never less than there was.
static size_t set_aside_bytes(void) {
  const gos_cu_t *cu = &((gos_cuda_t *)device->state)->cu;
  size_t bytes = 0;
  CHECK(gos_cuda_enter(device) == GPUOS_OK);
  CHECK(cu->cuCtxGetLimit(&bytes, CU_LIMIT_PERSISTING_L2_CACHE_SIZE) == CUDA_SUCCESS);
  gos_cuda_leave(device);
  return bytes;
}

static void sets_aside(const char *path) {
  const uint32_t asked_bytes[] = {16 << 20, 1 << 20, 0};
  puts("sets part of L2 aside");
  CHECK(set_aside_bytes() < asked_bytes[0]);
  for (int i = 0; i < 3; i++) {
    variant_t variant = good;
    gpuos_program_t *program;
    variant.l2_keep_bytes = asked_bytes[i];
    CHECK(load(path, variant, &program) == GPUOS_OK);
    CHECK(set_aside_bytes() >= asked_bytes[0]);
    gpuos_program_destroy(program);
  }
}

// How often it was asked to; a real driver does not tell: 0.
static uint32_t resets(void) {
  void *count = dlsym(((gos_cuda_t *)device->state)->cu.library, "fake_l2_resets");
  return count == NULL ? 0 : gos_load(count);
}

static void lets_lines_go(const char *path) {
  puts("resets the lines that L2 keeps when its kernel was told to leave");
  for (uint32_t asked_bytes = 0; asked_bytes <= 1 << 20; asked_bytes += 1 << 20) {
    variant_t variant = good;
    gpuos_program_t *program;
    variant.l2_keep_bytes = asked_bytes;
    CHECK(load(path, variant, &program) == GPUOS_OK);
    step_is_right(program);
    uint32_t before = resets();
    CHECK(gpuos_quiesce(program, 10 * second_ns) == GPUOS_OK);
    bool some = resets() != before, wanted = asked_bytes != 0 && strcmp(path, "fake") == 0;
    CHECK(some == wanted);
    gpuos_program_destroy(program);
  }
}

static void all(const char *path) {
  gpuos_program_t *program;
  CHECK(load(path, good, &program) == GPUOS_OK);
  if (program == NULL) return;
  steps(program);
  comes_and_goes(program);
  queues(program);
  pauses(program);
  lends(program);
  aborts(program);
  storms(program);
  take_backs(path, program);
  makes_way(path, program);
  refusals(path);
  sets_aside(path);
  lets_lines_go(path);
  few_sms(path);
  traces(path);
  one_shots(path);
  gpuos_program_destroy(program);
  ends(path);
}

// A trap, or a unit that never ends, is the last that a process does with a GPU: "trap" and "never"
// behind the file run these alone.
int main(int argc, char **argv) {
  if (argc != 2 && argc != 3) return 2;
  const char *last = argc == 3 ? argv[2] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  open_device();
  if (strcmp(last, "trap") == 0)
    traps(argv[1]);
  else if (strcmp(last, "never") == 0)
    never_ends(argv[1]);
  else
    all(argv[1]), gpuos_device_close(device);
  printf("%d failures\n", failures);
  fflush(stdout);
  _Exit(failures != 0); // the driver might wait for the unit that never ends
}
