// cli_run.c: `gpuos run FILE`: options, device, weights, steps, results.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "file.h"

enum option {
  DEVICE,
  SMS,
  THREADS,
  WEIGHTS,
  SET,
  OUT,
  STEPS,
  SEED,
  TAKE_BACK,
  TIMEOUT,
  PROMPT,
  GENERATE,
  STOP,
  LOGITS,
  JOB,
  JOB_OUT,
  JOB_STEPS,
  JOB_SMS,
  QUIET,
  VERBOSE,
  HELP,
  OPTION_COUNT
};

static const gos_option_t option_list[OPTION_COUNT] = {
    [DEVICE] = {"--device", "cpu|cuda", "default: cuda if FILE has device code and a GPU is here"},
    [SMS] = {"--sms", "N", "SMs to use; on the CPU threads; default all"},
    [THREADS] = {"--threads", "N", "the same, for the CPU"},
    [WEIGHTS] = {"--weights", "F.safetensors", "weights, by name; again for each shard"},
    [SET] = {"--set", "NAME=F.bin", "an input from a file of raw bytes; may be repeated"},
    [OUT] = {"--out", "NAME=F.bin", "a tensor to a file after the last step; may be repeated"},
    [STEPS] = {"--steps", "N", "steps to run; default 1"},
    [SEED] = {"--seed", "N", "CPU: one thread plays all SMs in an order drawn from N"},
    [TAKE_BACK] = {"--take-back", NULL, "CPU, with --seed: SMs are taken back at random"},
    [TIMEOUT] = {"--timeout", "S", "seconds that one step may take; default 60"},
    [PROMPT] = {"--prompt", "1,2,3", "language model: token ids to start from"},
    [GENERATE] = {"--generate", "N", "tokens to generate; default 16"},
    [STOP] = {"--stop", "ID", "end after generating this token, which is still printed"},
    [LOGITS] = {"--logits", "F.f32", "f32 logits of every generated token, one row after another"},
    [JOB] = {"--job", "NAME=F.bin", "an input of the job beside a live model; may be repeated"},
    [JOB_OUT] = {"--job-out", "NAME=F.bin", "a tensor of the job, after its last step"},
    [JOB_STEPS] = {"--job-steps", "N",
                   "steps of the job, while the live model's run and after; default 0"},
    [JOB_SMS] = {"--job-sms", "N", "SMs that the job has to itself; else it has what is idle"},
    [QUIET] = {"--quiet", NULL, "no times"},
    [VERBOSE] = {"--verbose", NULL, "say which device runs, and why"},
    [HELP] = {"--help", NULL, "print this"},
};

// Repeated options, in order.
typedef struct list {
  const char **items;
  int count;
} list_t;

typedef struct run {
  const char *path;
  int device; // gpuos_device_kind_t, or -1: choose
  uint64_t sms, seed, steps, timeout_s, job_steps, job_sms;
  list_t weights, sets, outs, job_sets, job_outs;
  gos_generate_t generate;
  bool steps_given, generate_given, take_back, quiet, verbose, help;
} run_t;

// ---- options ------------------------------------------------------------------------------------

static bool usage_error(const char *text) {
  gos_say("%s", text);
  return false;
}

static bool add_pair(list_t *list, const char *name, const char *value) {
  if (strchr(value, '=') == NULL) {
    gos_say("%s %s: NAME=FILE is expected", name, value);
    return false;
  }
  list->items[list->count++] = value;
  return true;
}

static bool parse_generation(run_t *run, enum option option, const char *value) {
  uint64_t number = 0;
  switch (option) {
  case PROMPT: run->generate.prompt = value; return true;
  case LOGITS: run->generate.logits_path = value; return true;
  case GENERATE:
    run->generate_given = true;
    return gos_parse_count("--generate", value, INT32_MAX, &run->generate.count);
  default:
    if (!gos_parse_count("--stop", value, INT32_MAX, &number)) return false;
    run->generate.stop = (int64_t)number;
    return true;
  }
}

static bool parse_option(run_t *run, enum option option, const char *value) {
  switch (option) {
  case DEVICE: return gos_parse_device(value, &run->device);
  case SMS: return gos_parse_count("--sms", value, GPUOS_MAX_SMS, &run->sms);
  case THREADS: return gos_parse_count("--threads", value, GPUOS_MAX_SMS, &run->sms);
  case WEIGHTS: run->weights.items[run->weights.count++] = value; return true;
  case SET: return add_pair(&run->sets, "--set", value);
  case OUT: return add_pair(&run->outs, "--out", value);
  case STEPS:
    run->steps_given = true;
    return gos_parse_count("--steps", value, UINT32_MAX, &run->steps);
  case JOB: return add_pair(&run->job_sets, "--job", value);
  case JOB_OUT: return add_pair(&run->job_outs, "--job-out", value);
  case JOB_STEPS: return gos_parse_count("--job-steps", value, INT32_MAX, &run->job_steps);
  case JOB_SMS: return gos_parse_count("--job-sms", value, GPUOS_MAX_SMS, &run->job_sms);
  case SEED: return gos_parse_count("--seed", value, UINT64_MAX, &run->seed);
  case TIMEOUT: return gos_parse_count("--timeout", value, 1000000, &run->timeout_s);
  case TAKE_BACK: return run->take_back = true;
  case QUIET: return run->quiet = true;
  case VERBOSE: return run->verbose = true;
  case HELP: return run->help = true;
  default: return parse_generation(run, option, value);
  }
}

// FILE; further words are shards, so that --weights model-*.safetensors means what it looks like.
static bool parse_plain(run_t *run, const char *word) {
  size_t length = strlen(word);
  if (length > 12 && strcmp(word + length - 12, ".safetensors") == 0) {
    run->weights.items[run->weights.count++] = word;
    return true;
  }
  if (run->path != NULL) {
    gos_say("one artefact is run; '%s' is one too many", word);
    return false;
  }
  run->path = word;
  return true;
}

static bool consistent(const run_t *run) {
  bool generates = run->generate.prompt != NULL;
  if (run->help) return true;
  if (run->path == NULL) return usage_error("run what? usage: gpuos run FILE [options]");
  if (run->take_back && run->seed == 0) return usage_error("--take-back needs --seed=N, N > 0");
  if (run->seed != 0 && run->device == GPUOS_DEVICE_CUDA)
    return usage_error("--seed is for the CPU device");
  if (generates && run->steps_given)
    return usage_error("--prompt decides the number of steps; leave out --steps");
  if (!generates &&
      (run->generate_given || run->generate.stop >= 0 || run->generate.logits_path != NULL))
    return usage_error("--generate, --stop and --logits need --prompt=1,2,3");
  return true;
}

static bool parse(run_t *run, int argc, char **argv) {
  gos_words_t words = {.argc = argc, .argv = argv};
  const char *value;
  for (;;) {
    int word = gos_next_word(&words, option_list, OPTION_COUNT, &value);
    if (word == GOS_WORD_END) return consistent(run);
    if (word == GOS_WORD_BAD) return false;
    bool ok = word == GOS_WORD_PLAIN ? parse_plain(run, value)
                                     : parse_option(run, (enum option)word, value);
    if (!ok) return false;
  }
}

// ---- tensors ------------------------------------------------------------------------------------

static bool bind_weights(const run_t *run, gos_session_t *session) {
  for (int i = 0; i < run->weights.count; i++) {
    gpuos_status_t status = gpuos_program_bind_safetensors(session->program, run->weights.items[i]);
    if (status != GPUOS_OK) return gos_session_failed(session, "weights", status);
  }
  return true;
}

// Splits NAME=FILE; the name is copied to `out_name`.
static const char *split_pair(const char *pair, char out_name[256]) {
  const char *equals = strchr(pair, '=');
  snprintf(out_name, 256, "%.*s", (int)(equals - pair), pair);
  return equals + 1;
}

static bool set_input(gos_session_t *session, const char *pair) {
  char name[256];
  const char *path = split_pair(pair, name);
  gos_error_t error = {0};
  gos_file_t file;
  if (gos_file_map(path, &error, &file) != GPUOS_OK) {
    gos_say("error: input %s: %s [IO]", name, error.text);
    return false;
  }
  gpuos_status_t status = gpuos_program_write(session->program, name, file.data, file.bytes);
  bool ok = status == GPUOS_OK || gos_session_failed(session, name, status);
  gos_file_unmap(&file);
  return ok;
}

static bool write_file(const char *path, const void *data, size_t bytes) {
  FILE *out = fopen(path, "wb");
  bool ok = out != NULL && fwrite(data, 1, bytes, out) == bytes;
  if (out != NULL && fclose(out) != 0) ok = false;
  if (!ok) gos_say("error: '%s': %s", path, strerror(errno));
  return ok;
}

static bool save_output(gos_session_t *session, const char *pair) {
  char name[256];
  const char *path = split_pair(pair, name);
  gpuos_tensor_info_t info;
  size_t bytes = gos_session_find(session, name, &info) ? (size_t)info.bytes : 0;
  void *data = malloc(bytes + 1);
  if (data == NULL) {
    gos_say("error: --out %s: no memory for %s", name, gos_size(bytes).text);
    return false;
  }
  gpuos_status_t status = gpuos_program_read(session->program, name, data, bytes);
  bool ok = status == GPUOS_OK ? write_file(path, data, bytes)
                               : gos_session_failed(session, "--out", status);
  free(data);
  return ok;
}

static bool for_each(gos_session_t *session, const list_t *list,
                     bool (*action)(gos_session_t *, const char *)) {
  for (int i = 0; i < list->count; i++)
    if (!action(session, list->items[i])) return false;
  return true;
}

// ---- steps --------------------------------------------------------------------------------------

static bool run_steps(const run_t *run, gos_session_t *session) {
  const uint64_t second_ns = 1000000000;
  bool shows = isatty(STDERR_FILENO) && !run->quiet;
  uint64_t shown_ns = gos_clock_ns();
  for (uint64_t i = 0; i < run->steps; i++) {
    if (!gos_session_step(session)) return false;
    if (!shows || gos_clock_ns() - shown_ns < second_ns) continue;
    fprintf(stderr, "\rgpuos: step %llu of %llu ", (unsigned long long)i + 1,
            (unsigned long long)run->steps);
    shown_ns = gos_clock_ns();
  }
  return true;
}

static void report_times(gos_times_t *times) {
  if (times->count == 0) return;
  gos_times_sort(times);
  double median_ms = (double)gos_times_at(times, 0.5) * 1e-6;
  if (times->count == 1)
    gos_say("1 step, %.3f ms", median_ms);
  else
    gos_say("%zu steps, median %.3f ms, longest %.3f ms", times->count, median_ms,
            (double)gos_times_at(times, 1) * 1e-6);
}

// ---- the job beside them ------------------------------------------------------------------------

typedef struct job {
  gos_session_t session; // of the live model's device
  uint64_t start_ns;
} job_t;

static bool wants_job(const run_t *run) {
  return run->job_steps != 0 || run->job_sms != 0 || run->job_sets.count != 0 ||
         run->job_outs.count != 0;
}

// Its steps run from here on.
static bool begin_job(const run_t *run, gos_session_t *live, job_t *job) {
  gos_session_t *session = &job->session;
  *session = (gos_session_t){.device = live->device, .timeout_ns = live->timeout_ns};
  session->program = gpuos_program_job(live->program);
  if (!wants_job(run)) return true;
  if (session->program == NULL) {
    gos_say("error: '%s' has no job; compile a live and a background graph together", run->path);
    return false;
  }
  if (!bind_weights(run, session) || !for_each(session, &run->job_sets, set_input)) return false;
  gpuos_status_t status = gpuos_share(live->program, (uint32_t)run->job_sms, true);
  job->start_ns = gos_clock_ns();
  if (status == GPUOS_OK && run->job_steps != 0)
    status = gpuos_submit_steps(session->program, (uint32_t)run->job_steps);
  return status == GPUOS_OK || gos_session_failed(session, "job", status);
}

// As long as a step of it ends within its time.
static bool await_job(const run_t *run, job_t *job) {
  gpuos_progress_t before = {0}, now = {0};
  for (;;) {
    gpuos_status_t status = gpuos_wait(job->session.program, job->session.timeout_ns);
    gpuos_program_progress(job->session.program, &now);
    if (status == GPUOS_OK) break;
    if (status != GPUOS_TIMEOUT || now.steps_done == before.steps_done)
      return gos_session_failed(&job->session, "job", status);
    before = now;
  }
  double seconds = (double)(gos_clock_ns() - job->start_ns) * 1e-9;
  double flops = gos_step_flops(job->session.program->table) * (double)run->job_steps;
  if (!run->quiet)
    gos_say("job: %llu steps in %.3f s, %.2f TFLOP/s", (unsigned long long)run->job_steps, seconds,
            flops / seconds * 1e-12);
  return true;
}

static bool end_job(const run_t *run, job_t *job) {
  return (run->job_steps == 0 || await_job(run, job)) &&
         for_each(&job->session, &run->job_outs, save_output);
}

// Live steps that failed may have ended with the job's, which then knows why.
static bool ask_job(const job_t *job) {
  gpuos_program_t *program = job->session.program;
  if (program == NULL || !atomic_load(&program->running)) return false;
  gpuos_status_t status = gpuos_wait(program, 0);
  if (status != GPUOS_OK && status != GPUOS_TIMEOUT)
    gos_session_failed(&job->session, "job", status);
  return false;
}

// ---- all of it ----------------------------------------------------------------------------------

static bool run_all(const run_t *run, gos_session_t *session) {
  const gos_open_t open = {.path = run->path,
                           .device = run->device,
                           .options = {.sm_count = (uint32_t)run->sms,
                                       .interleave_seed = run->seed,
                                       .take_back = run->take_back},
                           .verbose = run->verbose};
  job_t job;
  bool ok = gos_session_open(session, &open) && bind_weights(run, session) &&
            for_each(session, &run->sets, set_input) && begin_job(run, session, &job);
  if (ok && run->generate.prompt != NULL)
    ok = gos_generate(session, &run->generate) || ask_job(&job);
  else if (ok)
    ok = run_steps(run, session) || ask_job(&job);
  if (ok && !run->quiet) report_times(&session->times);
  return ok && for_each(session, &run->outs, save_output) && end_job(run, &job);
}

static bool run_session(const run_t *run) {
  gos_session_t session = {.timeout_ns = run->timeout_s * 1000000000};
  bool ok = run_all(run, &session);
  gos_session_close(&session);
  return ok;
}

static int run_parsed(run_t *run, int argc, char **argv) {
  if (!parse(run, argc, argv)) return GOS_EXIT_USAGE;
  if (run->help) {
    puts("usage: gpuos run FILE [options]\n");
    gos_print_options(stdout, option_list, OPTION_COUNT);
    return GOS_EXIT_OK;
  }
  return run_session(run) ? GOS_EXIT_OK : GOS_EXIT_FAILED;
}

int gos_cli_run(int argc, char **argv) {
  size_t most = (size_t)argc + 1; // of each repeated option
  const char **items = calloc(5 * most, sizeof *items);
  if (items == NULL) return GOS_EXIT_FAILED;
  run_t run = {.device = -1,
               .steps = 1,
               .timeout_s = 60,
               .weights = {.items = items},
               .sets = {.items = items + most},
               .outs = {.items = items + 2 * most},
               .job_sets = {.items = items + 3 * most},
               .job_outs = {.items = items + 4 * most},
               .generate = {.count = 16, .stop = -1}};
  int code = run_parsed(&run, argc, argv);
  free(items);
  return code;
}
