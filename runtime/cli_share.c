// cli_share.c: `gpuos share FILE`: a live model's steps with its job beside them, by SMs that the job has to itself.
//
// First each alone, then together, one line a division of the SMs. Live steps follow each other without a gap, or come
// one each deadline, and the job has what they leave. Results of both have to be what they were alone, bit by bit.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

enum option { DEVICE, SMS, JOB_SMS, SECONDS, POSITION, DEADLINE, HELP, OPTION_COUNT };

static const gos_option_t option_list[OPTION_COUNT] = {
    [DEVICE] = {"--device", "cpu|cuda", "default: cuda if FILE has device code and a GPU is here"},
    [SMS] = {"--sms", "N", "SMs to use; default all"},
    [JOB_SMS] = {"--job-sms", "LIST", "SMs of the job alone, one line each; default 8,16,24,32,40"},
    [SECONDS] = {"--seconds", "S", "how long each; default 2"},
    [POSITION] = {"--position", "N", "what an input 'pos' holds; default 0"},
    [DEADLINE] = {"--deadline", "US",
                  "a live step each so many microseconds; the job has all SMs until it comes"},
    [HELP] = {"--help", NULL, "print this"},
};

enum {
  MOST_LINES = 32,
  AHEAD = 8,     // live steps; the device keeps the times of the last 64
  JOB_AHEAD = 4, // steps of the job
  SETTLE_NS = 20000000,
};

typedef struct share {
  const char *path;
  int device;
  uint64_t sms, seconds, position, deadline_us;
  uint64_t job_sms[MOST_LINES];
  int lines;
  bool help;
  gos_session_t live, job;    // one device
  double alone_ms, job_alone; // live median; steps of the job a second
  uint64_t live_hash, job_hash;
} share_t;

// ---- options ------------------------------------------------------------------------------------

static bool parse_list(share_t *share, const char *text) {
  char word[24];
  share->lines = 0;
  for (const char *at = text;; at++) {
    size_t length = strcspn(at, ",");
    if (share->lines == MOST_LINES || length >= sizeof word) {
      gos_say("--job-sms: at most %d numbers of SMs", MOST_LINES);
      return false;
    }
    memcpy(word, at, length);
    word[length] = '\0';
    if (!gos_parse_count("--job-sms", word, GPUOS_MAX_SMS, &share->job_sms[share->lines++]))
      return false;
    at += length;
    if (*at == '\0') return true;
  }
}

static bool parse_option(void *into, int option, const char *value) {
  share_t *share = into;
  switch ((enum option)option) {
  case DEVICE: return gos_parse_device(value, &share->device);
  case SMS: return gos_parse_count("--sms", value, GPUOS_MAX_SMS, &share->sms);
  case JOB_SMS: return parse_list(share, value);
  case SECONDS: return gos_parse_count("--seconds", value, 3600, &share->seconds);
  case POSITION: return gos_parse_count("--position", value, INT32_MAX, &share->position);
  case DEADLINE: return gos_parse_count("--deadline", value, 60000000, &share->deadline_us);
  default: return share->help = true;
  }
}

static bool parse(share_t *share, int argc, char **argv) {
  gos_words_t words = {.argc = argc, .argv = argv};
  if (!gos_parse_words(&words, option_list, OPTION_COUNT, "share", parse_option, share,
                       &share->path))
    return false;
  if (share->path == NULL && !share->help) gos_say("share what? usage: gpuos share FILE [options]");
  return share->path != NULL || share->help;
}

// ---- steps --------------------------------------------------------------------------------------

static gpuos_progress_t progress_of(const gos_session_t *session) {
  gpuos_progress_t now = {0};
  gpuos_program_progress(session->program, &now);
  return now;
}

// Steps done, and the part of the one under way.
static double steps_of(const gos_session_t *session) {
  gpuos_progress_t now = progress_of(session);
  return (double)now.steps_done + (double)now.tiles_done / (now.tiles != 0 ? now.tiles : 1);
}

// Polls. False after saying why its steps ended.
static bool alive(gos_session_t *session, const char *what) {
  if (!atomic_load(&session->program->running)) return true;
  gpuos_status_t status = gpuos_wait(session->program, 0);
  return status == GPUOS_OK || status == GPUOS_TIMEOUT || gos_session_failed(session, what, status);
}

static bool submit(gos_session_t *session, const char *what, uint32_t ahead) {
  gpuos_progress_t now = progress_of(session);
  uint64_t open = now.steps_submitted - now.steps_done;
  if (open >= ahead) return true;
  gpuos_status_t status = gpuos_submit_steps(session->program, ahead - (uint32_t)open);
  return status == GPUOS_OK || gos_session_failed(session, what, status);
}

static bool finish(gos_session_t *session, const char *what) {
  if (!atomic_load(&session->program->running)) return true;
  gpuos_status_t status = gpuos_wait(session->program, session->timeout_ns);
  return status == GPUOS_OK || gos_session_failed(session, what, status);
}

static bool leaves_some(const share_t *share) {
  uint32_t sms = share->live.program->sm_count;
  for (int i = 0; i < share->lines; i++)
    if (share->job_sms[i] >= sms) {
      gos_say("error: --job-sms: %" PRIu64 " of %u SMs leave the live model none",
              share->job_sms[i], sms);
      return false;
    }
  return true;
}

static bool divide(share_t *share, uint64_t job_sms, bool rest) {
  gpuos_status_t status = gpuos_share(share->live.program, (uint32_t)job_sms, rest);
  return status == GPUOS_OK || gos_session_failed(&share->live, "--job-sms", status);
}

// ---- results ------------------------------------------------------------------------------------

// Of all outputs.
static bool hash_outputs(gos_session_t *session, uint64_t *out_hash) {
  *out_hash = GPUOS_HASH_START;
  for (uint32_t i = 0; i < gpuos_program_tensor_count(session->program); i++) {
    gpuos_tensor_info_t info = gpuos_program_tensor(session->program, i);
    if (strcmp(info.role, "output") != 0) continue;
    void *data = malloc(info.bytes);
    gpuos_status_t status = data != NULL
                                ? gpuos_program_read(session->program, info.name, data, info.bytes)
                                : GPUOS_OUT_OF_MEMORY;
    if (status == GPUOS_OK) *out_hash = gpuos_hash_add(*out_hash, data, info.bytes);
    free(data);
    if (status != GPUOS_OK) return gos_session_failed(session, info.name, status);
  }
  return true;
}

static bool still_the_same(gos_session_t *session, const char *what, uint64_t expected) {
  uint64_t hash;
  if (!hash_outputs(session, &hash)) return false;
  if (hash == expected) return true;
  gos_say("error: the outputs of the %s are not those of its run alone", what);
  return false;
}

// ---- one line -----------------------------------------------------------------------------------

typedef struct line {
  double job_steps, seconds;
  uint64_t live_steps, missed;
} line_t;

static void take_times(share_t *share, uint64_t from, uint64_t to) {
  gpuos_program_t *program = share->live.program;
  for (uint64_t step = from + 1; step <= to; step++) {
    uint64_t ns = program->device->backend->step_ns(program, step);
    if (ns != 0) gos_times_keep(&share->live.times, ns);
  }
}

// Live steps one after the other until `end_ns`; their times are the device's.
static bool run_closed(share_t *share, uint64_t end_ns, bool with_job, line_t *line) {
  uint64_t done = progress_of(&share->live).steps_done, before = done;
  while (gos_clock_ns() < end_ns) {
    if (!submit(&share->live, "live step", AHEAD)) return false;
    if (with_job && !submit(&share->job, "job", JOB_AHEAD)) return false;
    if (!alive(&share->live, "live step") || !alive(&share->job, "job")) return false;
    uint64_t now = progress_of(&share->live).steps_done;
    take_times(share, done, now);
    done = now;
  }
  line->live_steps = done - before;
  return true;
}

// One live step each deadline; its time is the host's, from its submission until it is known to be done.
static bool run_paced(share_t *share, uint64_t end_ns, bool with_job, line_t *line) {
  uint64_t period_ns = share->deadline_us * 1000, due_ns = gos_clock_ns();
  while (due_ns < end_ns) {
    while (gos_clock_ns() < due_ns)
      if (with_job && !submit(&share->job, "job", JOB_AHEAD)) return false;
    uint64_t start_ns = gos_clock_ns();
    if (!submit(&share->live, "live step", 1) || !finish(&share->live, "live step")) return false;
    uint64_t took_ns = gos_clock_ns() - start_ns;
    gos_times_keep(&share->live.times, took_ns);
    line->live_steps++, line->missed += took_ns > period_ns;
    due_ns += period_ns;
    if (due_ns < gos_clock_ns()) due_ns = gos_clock_ns();
    if (!alive(&share->job, "job")) return false;
  }
  return true;
}

static bool run_line(share_t *share, bool with_job, line_t *line) {
  *line = (line_t){0};
  share->live.times.count = 0;
  if (with_job && !submit(&share->job, "job", JOB_AHEAD)) return false;
  line_t settling = {0};
  uint64_t settled_ns = gos_clock_ns() + SETTLE_NS;
  bool (*run)(share_t *, uint64_t, bool, line_t *) = share->deadline_us ? run_paced : run_closed;
  if (!run(share, settled_ns, with_job, &settling)) return false;
  share->live.times.count = 0;
  uint64_t start_ns = gos_clock_ns();
  double from = steps_of(&share->job);
  if (!run(share, start_ns + share->seconds * UINT64_C(1000000000), with_job, line)) return false;
  line->seconds = (double)(gos_clock_ns() - start_ns) * 1e-9;
  line->job_steps = steps_of(&share->job) - from;
  return finish(&share->live, "live step");
}

// `idle_ms`: the live median on the same SMs while the job has nothing to do.
static void print_line(const share_t *share, uint64_t job_sms, double idle_ms, const line_t *line) {
  const gos_times_t *times = &share->live.times;
  double median_ms = (double)gos_times_at(times, 0.5) * 1e-6;
  double rate = line->job_steps / line->seconds;
  printf("%7" PRIu64 "  %9.3f ms  %9.3f ms  %9.3f ms  %+6.2f %%  %10.1f TFLOP/s  %5.3f", job_sms,
         idle_ms, median_ms, (double)gos_times_at(times, 0.99) * 1e-6,
         100 * (median_ms / share->alone_ms - 1),
         rate * gos_step_flops(share->job.program->table) * 1e-12,
         share->job_alone > 0 ? rate / share->job_alone : 0.0);
  if (share->deadline_us)
    printf("  %" PRIu64 " of %" PRIu64 " missed", line->missed, line->live_steps);
  putchar('\n');
  fflush(stdout);
}

// What the job still has to do, with all SMs.
static bool idle_job(share_t *share) {
  return divide(share, 0, true) && finish(&share->job, "job");
}

static bool measure_line(share_t *share, uint64_t job_sms) {
  line_t line;
  bool with_job = job_sms != 0 || share->deadline_us != 0;
  if (!idle_job(share) || !divide(share, job_sms, false)) return false;
  if (!run_line(share, false, &line)) return false;
  gos_times_sort(&share->live.times);
  double idle_ms = (double)gos_times_at(&share->live.times, 0.5) * 1e-6;
  if (!divide(share, job_sms, share->deadline_us != 0)) return false;
  if (!run_line(share, with_job, &line)) return false;
  gos_times_sort(&share->live.times);
  print_line(share, job_sms, idle_ms, &line);
  return still_the_same(&share->live, "live model", share->live_hash);
}

// ---- all of it ----------------------------------------------------------------------------------

static bool measure_live_alone(share_t *share) {
  line_t line;
  uint64_t deadline_us = share->deadline_us;
  share->deadline_us = 0;
  bool ok = divide(share, 0, false) && run_line(share, false, &line) &&
            hash_outputs(&share->live, &share->live_hash);
  share->deadline_us = deadline_us;
  if (!ok) return false;
  gos_times_sort(&share->live.times);
  share->alone_ms = (double)gos_times_at(&share->live.times, 0.5) * 1e-6;
  printf("live alone   %.3f ms a step, P99 %.3f ms, %" PRIu64 " steps\n", share->alone_ms,
         (double)gos_times_at(&share->live.times, 0.99) * 1e-6, line.live_steps);
  return true;
}

static bool measure_job_alone(share_t *share) {
  if (!divide(share, 0, true) || !submit(&share->job, "job", JOB_AHEAD)) return false;
  uint64_t start_ns = gos_clock_ns(), end_ns = start_ns + share->seconds * UINT64_C(1000000000);
  double from = steps_of(&share->job);
  while (gos_clock_ns() < end_ns)
    if (!submit(&share->job, "job", JOB_AHEAD) || !alive(&share->job, "job")) return false;
  share->job_alone = (steps_of(&share->job) - from) / ((double)(gos_clock_ns() - start_ns) * 1e-9);
  if (!finish(&share->job, "job") || !hash_outputs(&share->job, &share->job_hash)) return false;
  printf("job alone    %.1f TFLOP/s, %.2f steps a second\n",
         share->job_alone * gos_step_flops(share->job.program->table) * 1e-12, share->job_alone);
  fflush(stdout);
  return true;
}

static bool measure(share_t *share) {
  if (!measure_live_alone(share) || !measure_job_alone(share)) return false;
  puts("job SMs     live, idle   with the job          P99  slowdown           job rate  share");
  for (int i = 0; i < share->lines; i++)
    if (!measure_line(share, share->job_sms[i])) return false;
  return idle_job(share) && still_the_same(&share->job, "job", share->job_hash);
}

static bool run(share_t *share) {
  const gos_open_t open = {
      .path = share->path, .device = share->device, .options = {.sm_count = (uint32_t)share->sms}};
  if (!gos_session_open(&share->live, &open)) return false;
  share->job.device = share->live.device;
  share->job.timeout_ns = share->live.timeout_ns;
  share->job.program = gpuos_program_job(share->live.program);
  if (share->job.program == NULL) {
    gos_say("error: '%s' has no job; compile a live and a background graph together", share->path);
    return false;
  }
  return leaves_some(share) && gos_fill_random(&share->live, (uint32_t)share->position) &&
         gos_fill_random(&share->job, 0) && measure(share);
}

int gos_cli_share(int argc, char **argv) {
  share_t share = {.device = -1,
                   .seconds = 2,
                   .job_sms = {8, 16, 24, 32, 40},
                   .lines = 5,
                   .live.timeout_ns = UINT64_C(60000000000)};
  if (!parse(&share, argc, argv)) return GOS_EXIT_USAGE;
  if (share.help) {
    puts("usage: gpuos share FILE [options]\n");
    gos_print_options(stdout, option_list, OPTION_COUNT);
    return GOS_EXIT_OK;
  }
  bool ok = run(&share);
  free(share.job.times.ns);
  gos_session_close(&share.live);
  return ok ? GOS_EXIT_OK : GOS_EXIT_FAILED;
}
