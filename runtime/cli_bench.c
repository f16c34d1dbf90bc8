// cli_bench.c: `gpuos bench FILE`: steps on random data, as fast as they go.
//
// Steps are queued AHEAD deep, so that the host is never what is measured; their times come from the
// device. One line a fact.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

enum option {
  DEVICE,
  SMS,
  SM_MASK,
  SECONDS,
  STEPS,
  POSITION,
  PAUSE_STORM,
  TRACE,
  ONE_SHOT,
  HELP,
  OPTION_COUNT
};

static const gos_option_t option_list[OPTION_COUNT] = {
    [DEVICE] = {"--device", "cpu|cuda", "default: cuda if FILE has device code and a GPU is here"},
    [SMS] = {"--sms", "N", "SMs to use; default all"},
    [SM_MASK] = {"--sms-mask", "HEX", "of these, the SMs that are lent; the last digit: 0 to 3"},
    [SECONDS] = {"--seconds", "S", "how long; default 2"},
    [STEPS] = {"--steps", "N", "so many steps instead"},
    [POSITION] = {"--position", "N", "what an input 'pos' holds; default 0"},
    [PAUSE_STORM] = {"--pause-storm", "N",
                     "pause N times meanwhile and measure how long that takes"},
    [TRACE] = {"--trace", NULL, "run times of every operator's units too"},
    [ONE_SHOT] = {"--one-shot", NULL, "a launch a step, for profilers"},
    [HELP] = {"--help", NULL, "print this"},
};

enum {
  AHEAD = 32,         // steps; the device keeps the times of the last 64
  TRACE_UNITS = 1024, // an SM; the ring itself is not looked at
  STORM_RUN_NS = 20000,
  STORM_PAUSE_NS = 5000,
  NAP_NS = 20000,
};

typedef struct bench {
  const char *path;
  int device;
  uint64_t sms, seconds, steps, position, pauses;
  uint32_t mask[GPUOS_MAX_SMS / 32];
  bool mask_given, trace, one_shot, help;
} bench_t;

// ---- options ------------------------------------------------------------------------------------

static bool parse_option(bench_t *bench, enum option option, const char *value) {
  switch (option) {
  case DEVICE: return gos_parse_device(value, &bench->device);
  case SMS: return gos_parse_count("--sms", value, GPUOS_MAX_SMS, &bench->sms);
  case SM_MASK: return bench->mask_given = gos_parse_mask("--sms-mask", value, bench->mask);
  case SECONDS: return gos_parse_count("--seconds", value, 3600, &bench->seconds);
  case STEPS: return gos_parse_count("--steps", value, INT32_MAX, &bench->steps);
  case POSITION: return gos_parse_count("--position", value, INT32_MAX, &bench->position);
  case PAUSE_STORM: return gos_parse_count("--pause-storm", value, 100000000, &bench->pauses);
  case TRACE: return bench->trace = true;
  case ONE_SHOT: return bench->one_shot = true;
  default: return bench->help = true;
  }
}

static bool consistent(const bench_t *bench) {
  if (bench->help) return true;
  if (bench->path == NULL) gos_say("bench what? usage: gpuos bench FILE [options]");
  if (bench->one_shot && bench->pauses != 0)
    gos_say("--one-shot kernels hear of no pauses; leave out --pause-storm");
  return bench->path != NULL && !(bench->one_shot && bench->pauses != 0);
}

static bool parse(bench_t *bench, int argc, char **argv) {
  gos_words_t words = {.argc = argc, .argv = argv};
  const char *value;
  for (int word;
       (word = gos_next_word(&words, option_list, OPTION_COUNT, &value)) != GOS_WORD_END;) {
    if (word == GOS_WORD_BAD) return false;
    if (word != GOS_WORD_PLAIN) {
      if (!parse_option(bench, (enum option)word, value)) return false;
      continue;
    }
    if (bench->path != NULL) {
      gos_say("bench takes one file; '%s' is one too many", value);
      return false;
    }
    bench->path = value;
  }
  return consistent(bench);
}

// ---- steps --------------------------------------------------------------------------------------

typedef struct run {
  const bench_t *bench;
  gos_session_t *session;
  uint64_t start_ns, moved_ns; // of all; when a step was last done
  uint64_t done;               // steps
} run_t;

static bool fail(const run_t *run, const char *about, gpuos_status_t status) {
  return gos_session_failed(run->session, about, status);
}

static void take_times(run_t *run, uint64_t done) {
  gpuos_program_t *program = run->session->program;
  for (uint64_t step = run->done + 1; step <= done; step++) {
    uint64_t ns = program->device->backend->step_ns(program, step);
    if (ns != 0) gos_times_keep(&run->session->times, ns);
  }
  if (done != run->done) run->moved_ns = gos_clock_ns();
  run->done = done;
}

static bool storm_over(const run_t *run) {
  gpuos_storm_t storm;
  if (run->bench->pauses == 0) return true;
  if (gpuos_pause_storm_read(run->session->program, &storm) != GPUOS_OK) return true;
  return storm.done >= run->bench->pauses;
}

static bool wants_more(const run_t *run, uint64_t submitted) {
  const bench_t *bench = run->bench;
  uint64_t passed_ns = gos_clock_ns() - run->start_ns;
  bool enough = bench->steps != 0 ? submitted >= bench->steps
                                  : passed_ns >= bench->seconds * UINT64_C(1000000000);
  return !enough || !storm_over(run);
}

static bool submit_more(run_t *run, const gpuos_progress_t *now) {
  const bench_t *bench = run->bench;
  uint64_t room = AHEAD - (now->steps_submitted - now->steps_done);
  if (bench->steps > now->steps_submitted && room > bench->steps - now->steps_submitted)
    room = bench->steps - now->steps_submitted;
  if (bench->one_shot && room > 1) room = now->steps_submitted == now->steps_done;
  if (room == 0) return true;
  gpuos_status_t status = gpuos_submit_steps(run->session->program, (uint32_t)room);
  return status == GPUOS_OK || fail(run, "step", status);
}

// Polls, without sleep on a GPU: steps of microseconds would outrun a sleeper's queue.
static bool poll(run_t *run, gpuos_progress_t *out_now) {
  gpuos_program_t *program = run->session->program;
  gpuos_status_t status = atomic_load(&program->running) ? gpuos_wait(program, 0) : GPUOS_OK;
  if (status != GPUOS_OK && status != GPUOS_TIMEOUT) return fail(run, "step", status);
  status = gpuos_program_progress(program, out_now);
  if (status != GPUOS_OK) return fail(run, "step", status);
  take_times(run, out_now->steps_done);
  if (program->device->options.kind == GPUOS_DEVICE_CPU)
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
  if (gos_clock_ns() - run->moved_ns < run->session->timeout_ns) return true;
  gpuos_abort(program);
  gos_say("error: no step was done for %.0f s", (double)run->session->timeout_ns * 1e-9);
  return false;
}

static bool start_storm(run_t *run) {
  if (run->bench->pauses == 0) return true;
  gpuos_status_t status = gpuos_pause_storm(run->session->program, (uint32_t)run->bench->pauses,
                                            STORM_RUN_NS, STORM_PAUSE_NS);
  return status == GPUOS_OK || fail(run, "--pause-storm", status);
}

static bool run_steps(run_t *run) {
  gpuos_progress_t now = {0};
  run->start_ns = run->moved_ns = gos_clock_ns();
  for (bool stormy = false;;) {
    bool more = wants_more(run, now.steps_submitted);
    if (!more && now.steps_done == now.steps_submitted) return true;
    if (more && !submit_more(run, &now)) return false;
    if (!stormy && !start_storm(run)) return false;
    stormy = true;
    if (!poll(run, &now)) return false;
  }
}

// ---- report -------------------------------------------------------------------------------------

// Tensor-core operations of one step: a multiply-add is two.
static double step_flops(const gpuos_table_t *table) {
  double flops = 0;
  const gpuos_op_t *op = GPUOS_SECTION(table, gpuos_op_t, ops);
  const gpuos_operand_t *operands = GPUOS_SECTION(table, gpuos_operand_t, operands);
  for (uint32_t i = 0; i < table->ops.count; i++, op++) {
    if (op->kind != GPUOS_MATMUL) continue;
    double product = 2;
    for (int d = 0; d < GPUOS_DIMS; d++) product *= op->extent[d];
    for (uint32_t x = 0; x < op->operand_count; x++) {
      uint32_t as = operands[op->first_operand + x].as;
      if (as == GPUOS_AS_W0 || as == GPUOS_AS_W1) flops += product;
    }
  }
  return flops;
}

static void print_us(const char *what, uint64_t ns) {
  printf("%-16s %.3f us\n", what, (double)ns * 1e-3);
}

static void print_steps(const run_t *run) {
  gos_times_t *times = &run->session->times;
  double flops = step_flops(run->session->program->table);
  gos_times_sort(times);
  uint64_t median_ns = gos_times_at(times, 0.5);
  printf("%-16s %" PRIu64 " in %.3f s\n", "steps", run->done,
         (double)(run->moved_ns - run->start_ns) * 1e-9);
  print_us("step median", median_ns);
  print_us("step P99", gos_times_at(times, 0.99));
  print_us("step longest", gos_times_at(times, 1));
  if (flops > 0 && median_ns != 0)
    printf("%-16s %.2f TFLOP/s\n", "matmul rate", flops / (double)median_ns * 1e-3);
}

// The upper edge of the bin that holds it.
static double bin_us(const uint32_t *bins, uint32_t count, double bin_ns, double share) {
  uint64_t total = 0, seen = 0;
  for (uint32_t i = 0; i < count; i++) total += bins[i];
  for (uint32_t i = 0; i < count; i++) {
    seen += bins[i];
    if (seen != 0 && (double)seen >= share * (double)total) return (i + 1) * bin_ns * 1e-3;
  }
  return 0;
}

// The last bin has no upper edge.
static void print_bin(const char *what, double us) {
  double last_us = GPUOS_PAUSE_BINS * GPUOS_PAUSE_BIN_NS * 1e-3;
  bool open = us >= last_us;
  printf("%-16s %s%.1f us\n", what, open ? "over " : "",
         open ? last_us - GPUOS_PAUSE_BIN_NS * 1e-3 : us);
}

static bool print_storm(const run_t *run) {
  gpuos_storm_t storm;
  if (run->bench->pauses == 0) return true;
  gpuos_status_t status = gpuos_pause_storm_read(run->session->program, &storm);
  if (status != GPUOS_OK) return fail(run, "--pause-storm", status);
  const struct {
    const char *what;
    double share;
  } rows[] = {{"pause P50", 0.5}, {"pause P99", 0.99}, {"pause P99.9", 0.999}};
  printf("%-16s %u\n", "pauses", storm.done);
  for (int i = 0; i < 3; i++)
    print_bin(rows[i].what,
              bin_us(storm.bins, GPUOS_PAUSE_BINS, GPUOS_PAUSE_BIN_NS, rows[i].share));
  print_us("pause longest", storm.longest_ns);
  printf("%-16s %u\n", "pauses lost", storm.lost);
  return true;
}

static bool print_units(const run_t *run) {
  gpuos_program_t *program = run->session->program;
  if (!run->bench->trace) return true;
  for (uint32_t op = 0; op < gpuos_program_op_count(program); op++) {
    gpuos_unit_times_t times;
    gpuos_status_t status = gpuos_program_unit_times(program, op, &times);
    if (status != GPUOS_OK) return fail(run, "--trace", status);
    if (times.units == 0) continue;
    printf("op %u %s (%s): %" PRIu64 " units, median %.1f us, longest %.1f of %.1f us, %u over, %u "
           "paused\n",
           op, times.name, times.kind, times.units,
           bin_us(times.bins, GPUOS_UNIT_BINS, GPUOS_UNIT_BIN_NS, 0.5), times.longest_ns * 1e-3,
           times.bound_ns * 1e-3, times.over_bound, times.paused);
  }
  return true;
}

// ---- entry --------------------------------------------------------------------------------------

static bool bench_session(const bench_t *bench, gos_session_t *session) {
  const gos_open_t open = {.path = bench->path,
                           .device = bench->device,
                           .options = {.sm_count = (uint32_t)bench->sms,
                                       .one_shot = bench->one_shot,
                                       .trace_units = bench->trace ? TRACE_UNITS : 0}};
  run_t run = {.bench = bench, .session = session};
  if (!gos_session_open(session, &open)) return false;
  if (!gos_fill_random(session, (uint32_t)bench->position)) return false;
  gpuos_status_t status = GPUOS_OK;
  if (bench->mask_given) status = gpuos_lend(session->program, bench->mask);
  if (status != GPUOS_OK) return fail(&run, "--sms-mask", status);
  if (!run_steps(&run)) return false;
  print_steps(&run);
  return print_storm(&run) && print_units(&run);
}

int gos_cli_bench(int argc, char **argv) {
  bench_t bench = {.device = -1, .seconds = 2};
  if (!parse(&bench, argc, argv)) return GOS_EXIT_USAGE;
  if (bench.help) {
    puts("usage: gpuos bench FILE [options]\n");
    gos_print_options(stdout, option_list, OPTION_COUNT);
    return GOS_EXIT_OK;
  }
  gos_session_t session = {.timeout_ns = UINT64_C(60000000000)};
  bool ok = bench_session(&bench, &session);
  gos_session_close(&session);
  return ok ? GOS_EXIT_OK : GOS_EXIT_FAILED;
}
