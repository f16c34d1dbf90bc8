// cli_bench.c: `gpuos bench FILE`: steps on random data, as fast as they go.
//
// Steps are queued AHEAD deep, so that the host is never what is measured; their times come from the
// device. One line a fact.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli_bench.h"

enum option {
  DEVICE,
  SMS,
  SM_MASK,
  SECONDS,
  STEPS,
  POSITION,
  PAUSE_STORM,
  TAKE_BACK,
  TRACE,
  JSON,
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
    [TAKE_BACK] = {"--take-back", "N",
                   "lend half of the SMs and take them back, N times, and measure how soon each is "
                   "free"},
    [TRACE] = {"--trace", NULL, "run times of every operator's units too"},
    [JSON] = {"--json", "F", "write all that was measured to F; tests/bench/plot.py draws it"},
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

// ---- options ------------------------------------------------------------------------------------

static bool parse_option(void *into, int option, const char *value) {
  gos_bench_t *bench = into;
  switch ((enum option)option) {
  case DEVICE: return gos_parse_device(value, &bench->device);
  case SMS: return gos_parse_count("--sms", value, GPUOS_MAX_SMS, &bench->sms);
  case SM_MASK: return bench->mask_given = gos_parse_mask("--sms-mask", value, bench->mask);
  case SECONDS: return gos_parse_count("--seconds", value, 3600, &bench->seconds);
  case STEPS: return gos_parse_count("--steps", value, INT32_MAX, &bench->steps);
  case POSITION: return gos_parse_count("--position", value, INT32_MAX, &bench->position);
  case PAUSE_STORM: return gos_parse_count("--pause-storm", value, 100000000, &bench->pauses);
  case TAKE_BACK: return gos_parse_count("--take-back", value, 1000000, &bench->take_backs);
  case TRACE: return bench->trace = true;
  case JSON: return (bench->json = value) != NULL;
  case ONE_SHOT: return bench->one_shot = true;
  default: return bench->help = true;
  }
}

// What cannot be had at once, or NULL.
static const char *find_clash(const gos_bench_t *bench) {
  if (bench->one_shot && bench->pauses != 0)
    return "--one-shot kernels hear of no pauses; leave out --pause-storm";
  if (bench->one_shot && bench->take_backs != 0)
    return "--one-shot kernels hear of no take-backs; leave out --take-back";
  if (bench->pauses != 0 && bench->take_backs != 0)
    return "an SM that is paused leaves late; give --pause-storm or --take-back";
  if (bench->mask_given && bench->take_backs != 0)
    return "--take-back lends SMs of its own choice; leave out --sms-mask";
  return NULL;
}

static bool consistent(const gos_bench_t *bench) {
  if (bench->help) return true;
  const char *clash = find_clash(bench);
  if (bench->path == NULL) gos_say("bench what? usage: gpuos bench FILE [options]");
  if (clash != NULL) gos_say("%s", clash);
  return bench->path != NULL && clash == NULL;
}

static bool parse(gos_bench_t *bench, int argc, char **argv) {
  gos_words_t words = {.argc = argc, .argv = argv};
  if (!gos_parse_words(&words, option_list, OPTION_COUNT, "bench", parse_option, bench,
                       &bench->path))
    return false;
  return consistent(bench);
}

// ---- steps --------------------------------------------------------------------------------------

static bool fail(const gos_bench_run_t *run, const char *about, gpuos_status_t status) {
  return gos_session_failed(run->session, about, status);
}

static void take_times(gos_bench_run_t *run, uint64_t done) {
  gpuos_program_t *program = run->session->program;
  for (uint64_t step = run->done + 1; step <= done; step++) {
    uint64_t ns = program->device->backend->step_ns(program, step);
    if (ns != 0) gos_times_keep(&run->session->times, ns);
  }
  if (done != run->done) run->moved_ns = gos_clock_ns();
  run->done = done;
}

static bool storm_over(const gos_bench_run_t *run) {
  gpuos_storm_t storm;
  if (run->bench->pauses == 0) return true;
  if (gpuos_pause_storm_read(run->session->program, &storm) != GPUOS_OK) return true;
  return storm.done >= run->bench->pauses;
}

static bool wants_more(const gos_bench_run_t *run, uint64_t submitted) {
  const gos_bench_t *bench = run->bench;
  uint64_t passed_ns = gos_clock_ns() - run->start_ns;
  bool enough = bench->steps != 0 ? submitted >= bench->steps
                                  : passed_ns >= bench->seconds * UINT64_C(1000000000);
  return !enough || !storm_over(run) || !gos_take_backs_over(&run->take_backs);
}

static bool submit_more(gos_bench_run_t *run, const gpuos_progress_t *now) {
  const gos_bench_t *bench = run->bench;
  uint64_t room = AHEAD - (now->steps_submitted - now->steps_done);
  if (bench->steps > now->steps_submitted && room > bench->steps - now->steps_submitted)
    room = bench->steps - now->steps_submitted;
  if (bench->one_shot && room > 1) room = now->steps_submitted == now->steps_done;
  if (room == 0) return true;
  gpuos_status_t status = gpuos_submit_steps(run->session->program, (uint32_t)room);
  return status == GPUOS_OK || fail(run, "step", status);
}

// Polls, without sleep on a GPU: steps of microseconds would outrun a sleeper's queue.
static bool poll(gos_bench_run_t *run, gpuos_progress_t *out_now) {
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

static bool start_storm(gos_bench_run_t *run) {
  if (run->bench->pauses == 0) return true;
  gpuos_status_t status = gpuos_pause_storm(run->session->program, (uint32_t)run->bench->pauses,
                                            STORM_RUN_NS, STORM_PAUSE_NS);
  return status == GPUOS_OK || fail(run, "--pause-storm", status);
}

static bool run_steps(gos_bench_run_t *run) {
  gpuos_progress_t now = {0};
  run->start_ns = run->moved_ns = gos_clock_ns();
  for (bool stormy = false;;) {
    bool more = wants_more(run, now.steps_submitted);
    if (!more && now.steps_done == now.steps_submitted) return true;
    if (more && !submit_more(run, &now)) return false;
    if (!stormy && !start_storm(run)) return false;
    stormy = true;
    if (!poll(run, &now) || !gos_take_backs_poll(&run->take_backs)) return false;
  }
}

// ---- entry --------------------------------------------------------------------------------------

static bool set_up(gos_bench_run_t *run) {
  const gos_bench_t *bench = run->bench;
  const gos_open_t open = {.path = bench->path,
                           .device = bench->device,
                           .options = {.sm_count = (uint32_t)bench->sms,
                                       .one_shot = bench->one_shot,
                                       .trace_units = bench->trace ? TRACE_UNITS : 0}};
  if (!gos_session_open(run->session, &open)) return false;
  if (!gos_fill_random(run->session, (uint32_t)bench->position)) return false;
  gpuos_status_t status = GPUOS_OK;
  if (bench->mask_given) status = gpuos_lend(run->session->program, bench->mask);
  if (status != GPUOS_OK) return fail(run, "--sms-mask", status);
  return gos_take_backs_begin(&run->take_backs, run->session, (uint32_t)bench->take_backs);
}

static bool bench_session(const gos_bench_t *bench, gos_session_t *session) {
  gos_bench_run_t run = {.bench = bench, .session = session};
  bool ok = set_up(&run) && run_steps(&run);
  bool written = !ok || bench->json == NULL || gos_bench_write(&run, bench->json);
  ok = ok && gos_bench_report(&run) && written;
  free(run.take_backs.times.ns);
  return ok;
}

int gos_cli_bench(int argc, char **argv) {
  gos_bench_t bench = {.device = -1, .seconds = 2};
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
