// storm.c: does it matter to results when a step is paused, which SMs it runs on, and what runs beside it?
//
// Every wait is bounded. When one is not over in time, the SMs say what they are at, the step is
// aborted, and the test has failed.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gpu_test.h"

#ifndef FEWER // so many times, and rarer: for an emulated GPU
#define FEWER 1
#endif
enum {
  PAUSES = 2000 / FEWER,
  PAUSE_NS = 5000,
  BETWEEN_PAUSES_NS = 20000,
  CHANGES = 400 / FEWER, // of the lent set
  LEAST_CHANGE_NS = 100000 * FEWER,
  MOST_CHANGE_NS = 300000 * FEWER,
  BATCH_NS = 20000000, // of steps submitted at once
  ROUNDS = 3,          // of live steps that a job's meet
  ROUND_NS = 1000000 / FEWER,
  SHOWN_SMS = 24,
};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// ---- SMs ----------------------------------------------------------------------------------------

static uint32_t group_count(const test_t *test) {
  uint32_t sms = gpuos_device_sm_count(test->tested.device);
  return sms / gpuos_program_sm_group(test->tested.program);
}

// Of all SMs since load; what cannot be read counts nothing.
static uint32_t count_parks(const test_t *test) {
  uint32_t sms = group_count(test) * gpuos_program_sm_group(test->tested.program), parks = 0;
  gpuos_sm_info_t info;
  for (uint32_t s = 0; s < sms; s++)
    if (gpuos_program_sm(test->tested.program, s, &info) == GPUOS_OK) parks += info.parks;
  return parks;
}

static void print_sms(const test_t *test) {
  uint32_t sms = group_count(test) * gpuos_program_sm_group(test->tested.program), shown = 0;
  for (uint32_t s = 0; s < sms; s++) {
    gpuos_sm_info_t info;
    gpuos_status_t status = gpuos_program_sm(test->tested.program, s, &info);
    if (status != GPUOS_OK) {
      printf("  SM %u: %s\n", s, gpuos_device_error(test->tested.device));
      break;
    }
    bool busy = strcmp(info.phase, "idle") && strcmp(info.phase, "gone");
    if (!busy || shown++ >= SHOWN_SMS) continue;
    printf("  SM %u (%u of the chip) %s '%s' tile %u slice %u, %u units, %u parks\n", s, info.smid,
           info.phase, info.operator_name, info.tile, info.slice, info.units_run, info.parks);
  }
  printf("  %u SMs wait or run, the other %u are idle or gone\n", shown, sms - shown);
  fflush(stdout);
}

// `groups` of them at random.
static bool lend_some(test_t *test, uint32_t groups) {
  uint32_t size = gpuos_program_sm_group(test->tested.program), left = group_count(test);
  uint32_t mask[8] = {0};
  for (uint32_t g = 0; left > 0; g++, left--) {
    if (random_below(left) >= groups) continue;
    groups--;
    for (uint32_t s = g * size; s < (g + 1) * size; s++) mask[s / 32] |= UINT32_C(1) << s % 32;
  }
  gpuos_status_t status = gpuos_lend(test->tested.program, mask);
  if (status != GPUOS_OK) fail(test, "lend", &test->tested, status);
  return status == GPUOS_OK;
}

static bool lend_all(test_t *test) { return lend_some(test, group_count(test)); }

// ---- steps --------------------------------------------------------------------------------------

static bool is_over(test_t *test, const char *what, gpuos_status_t status) {
  if (status == GPUOS_OK) return true;
  fail(test, what, &test->tested, status);
  if (status != GPUOS_TIMEOUT && status != GPUOS_STALL) return false;
  print_sms(test);
  gpuos_abort(test->tested.program);
  gpuos_wait(test->tested.program, 2000000000);
  return false;
}

static bool finish(test_t *test, const char *what) {
  return is_over(test, what, gpuos_wait(test->tested.program, test->limit_ns));
}

static bool submit(test_t *test, const char *what, uint32_t steps) {
  gpuos_status_t status = gpuos_submit_steps(test->tested.program, steps);
  if (status != GPUOS_OK) fail(test, what, &test->tested, status);
  return status == GPUOS_OK;
}

static uint32_t steps_in(const test_t *test, uint64_t ns) {
  uint64_t step_ns = gpuos_step_ns(test->tested.program);
  uint64_t steps = ns / (step_ns ? step_ns : 1000) + 1;
  return steps < 4000 ? (uint32_t)steps : 4000;
}

static uint32_t batch_of(const test_t *test) { return steps_in(test, BATCH_NS); }

// ---- pauses -------------------------------------------------------------------------------------

static bool start_pauses(test_t *test) {
  gpuos_status_t status =
      gpuos_pause_storm(test->tested.program, PAUSES, BETWEEN_PAUSES_NS, PAUSE_NS);
  if (status != GPUOS_OK) fail(test, "pauses", &test->tested, status);
  return status == GPUOS_OK;
}

static void print_pauses(const gpuos_storm_t *storm, uint32_t steps, uint32_t parks) {
  uint32_t all = 0, bin = 0;
  for (uint32_t b = 0; b < 128; b++) all += storm->bins[b];
  for (uint32_t seen = 0; bin < 127 && seen + storm->bins[bin] < all - all / 100; bin++)
    seen += storm->bins[bin];
  printf("  %u pauses over %u steps: 99 %% within %.1f us, longest %.1f us, %u lost; %u parks\n",
         storm->done, steps, (bin + 1) * 0.1, storm->longest_ns * 1e-3, storm->lost, parks);
  fflush(stdout);
}

// Steps until the storm is over.
static bool ride_out(test_t *test, const char *what, uint32_t batch, uint32_t *out_steps) {
  gpuos_storm_t storm = {0};
  *out_steps = batch;
  for (uint64_t end_ns = now_ns() + test->limit_ns; finish(test, what); *out_steps += batch) {
    if (gpuos_pause_storm_read(test->tested.program, &storm) != GPUOS_OK || storm.done >= PAUSES)
      return true;
    if (now_ns() > end_ns) {
      fail_with(test, "%s: %u of %u after %.0f s", what, storm.done, PAUSES,
                (double)test->limit_ns * 1e-9);
      return false;
    }
    if (!submit(test, what, batch)) return false;
  }
  return false;
}

static bool survives_pauses(test_t *test) {
  const char *what = "under pauses";
  gpuos_storm_t storm = {0};
  uint32_t steps, batch = batch_of(test), parks = count_parks(test);
  bool ok = write_all(test, &test->tested, what) && submit(test, what, batch) &&
            start_pauses(test) && ride_out(test, what, batch, &steps);
  if (!ok) return false;
  gpuos_pause_storm_read(test->tested.program, &storm);
  print_pauses(&storm, steps, count_parks(test) - parks);
  if (storm.lost) fail_with(test, "%u of %u pauses were not answered", storm.lost, storm.done);
  return same_results(test, what);
}

// ---- lending ------------------------------------------------------------------------------------

// Half of the time few: then most tiles are taken over by somebody else.
static uint32_t some_groups(const test_t *test) {
  uint32_t all = group_count(test), few = all < 8 ? all : 8;
  return 1 + random_below(random_below(2) ? few : all);
}

// Until the next change is due, or the steps are over.
static bool poll(test_t *test, const char *what, bool *out_over) {
  uint64_t end_ns = now_ns() + LEAST_CHANGE_NS + random_below(MOST_CHANGE_NS - LEAST_CHANGE_NS);
  gpuos_status_t status = GPUOS_TIMEOUT;
  while (status == GPUOS_TIMEOUT && now_ns() < end_ns) status = gpuos_wait(test->tested.program, 0);
  *out_over = status == GPUOS_OK;
  return status == GPUOS_TIMEOUT || is_over(test, what, status);
}

static bool change_all_the_time(test_t *test, const char *what, uint32_t batch,
                                uint32_t *out_steps) {
  *out_steps = 0;
  bool over = true;
  for (int change = 0; change < CHANGES; change++) {
    if (over && !submit(test, what, batch)) return false;
    if (over) *out_steps += batch;
    if (!lend_some(test, some_groups(test)) || !poll(test, what, &over)) return false;
  }
  return lend_all(test) && (over || finish(test, what));
}

static bool survives_lending(test_t *test) {
  const char *what = "while SMs come and go";
  uint32_t steps, parks = count_parks(test);
  bool ok = write_all(test, &test->tested, what) &&
            change_all_the_time(test, what, batch_of(test), &steps);
  if (!ok) return false;
  printf("  %d changes of the lent SMs over %u steps; %u parks\n", CHANGES, steps,
         count_parks(test) - parks);
  fflush(stdout);
  return same_results(test, what);
}

// ---- few SMs ------------------------------------------------------------------------------------

static bool runs_on(test_t *test, uint32_t groups) {
  char what[64];
  uint32_t sms = groups * gpuos_program_sm_group(test->tested.program);
  snprintf(what, sizeof what, "on %u SMs", sms);
  bool ok = lend_some(test, groups) && write_all(test, &test->tested, what) &&
            submit(test, what, 1) && finish(test, what);
  if (!ok) return false;
  printf("  on %u SMs: %.1f us\n", sms, (double)gpuos_step_ns(test->tested.program) * 1e-3);
  fflush(stdout);
  return same_results(test, what);
}

static bool runs_on_few(test_t *test) {
  static const uint32_t counts[] = {1, 2, 5, 33};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    if (counts[i] <= group_count(test) && !runs_on(test, counts[i])) return false;
  return lend_all(test);
}

bool survives_storms(test_t *test) {
  bool ok = test->on_cpu || survives_pauses(test);
  return ok && survives_lending(test) && runs_on_few(test);
}

// ---- a live program and its job -----------------------------------------------------------------

static bool share(test_t *live, uint32_t job_sms, bool rest) {
  gpuos_status_t status = gpuos_share(live->tested.program, job_sms, rest);
  if (status != GPUOS_OK) fail(live, "share", &live->tested, status);
  return status == GPUOS_OK;
}

static bool write_both(test_t *live, test_t *job, const char *what) {
  return write_all(live, &live->tested, what) && write_all(job, &job->tested, what);
}
static bool same_results_of_both(test_t *live, test_t *job, const char *what) {
  return same_results(live, what) && same_results(job, what);
}

static gpuos_progress_t progress_of(const test_t *test) {
  gpuos_progress_t now = {.tiles = 1};
  gpuos_program_progress(test->tested.program, &now);
  return now;
}
static bool has_steps(const test_t *test) {
  gpuos_progress_t now = progress_of(test);
  return now.steps_done != now.steps_submitted;
}
// Steps done since load, and a part of one. All tiles are those of the step before.
static double work_of(const test_t *test) {
  gpuos_progress_t now = progress_of(test);
  return (double)now.steps_done + (double)(now.tiles_done % now.tiles) / now.tiles;
}

// Until the program has done more than `than`, or all.
static bool await_work(test_t *test, const char *what, double than) {
  uint64_t end_ns = now_ns() + test->limit_ns;
  while (has_steps(test) && work_of(test) <= than)
    if (now_ns() > end_ns) return is_over(test, what, GPUOS_TIMEOUT);
  return true;
}

// Live steps come while the job is at work, ROUNDS times. *out_beside: of its steps, done while those ran.
static bool run_rounds(test_t *live, test_t *job, const char *what, double *out_beside) {
  uint32_t steps = steps_in(live, ROUND_NS);
  double work = work_of(job);
  *out_beside = 0;
  for (int round = 0; round < ROUNDS; round++) {
    if (!await_work(job, what, work)) return false;
    double before = work_of(job);
    if (!submit(live, what, steps) || !finish(live, what)) return false;
    *out_beside += (work = work_of(job)) - before;
  }
  return true;
}

static bool runs_beside(test_t *live, test_t *job, uint32_t job_sms, bool rest) {
  char what[64];
  double beside;
  snprintf(what, sizeof what, "with %u SMs for the job%s", job_sms, rest ? " and the rest" : "");
  bool ok = write_both(live, job, what) && share(live, job_sms, rest) &&
            submit(job, what, steps_in(job, 2 * ROUNDS * ROUND_NS)) &&
            run_rounds(live, job, what, &beside);
  if (!ok) return false;
  printf("  %s: %.2f of its steps beside live ones\n", what, beside);
  fflush(stdout);
  if (job_sms != 0 && !(beside > 0) && has_steps(job))
    fail_with(job, "%s: it does nothing while live steps run", what);
  return finish(job, what) && same_results_of_both(live, job, what);
}

// Has the program go on when its steps are over.
static bool keep_going(test_t *test, const char *what) {
  gpuos_status_t status = gpuos_wait(test->tested.program, 0);
  if (status == GPUOS_TIMEOUT) return true;
  return is_over(test, what, status) && submit(test, what, steps_in(test, ROUND_NS));
}

static bool share_all_the_time(test_t *live, test_t *job, const char *what) {
  uint32_t sms = group_count(live) * gpuos_program_sm_group(live->tested.program);
  bool over = true;
  if (!submit(job, what, 1)) return false;
  for (int change = 0; change < CHANGES; change++) {
    if (over && !submit(live, what, steps_in(live, ROUND_NS))) return false;
    bool changed = share(live, random_below(sms + 1), random_below(2));
    if (!changed || !poll(live, what, &over) || !keep_going(job, what)) return false;
  }
  return share(live, sms / 2, true) && (over || finish(live, what)) && finish(job, what);
}

static bool survive_sharing(test_t *live, test_t *job) {
  const char *what = "while SMs go to and fro";
  uint32_t parks = count_parks(live) + count_parks(job);
  bool ok = write_both(live, job, what) && share_all_the_time(live, job, what);
  if (!ok) return false;
  printf("  %d changes of the job's SMs; %u parks\n", CHANGES,
         count_parks(live) + count_parks(job) - parks);
  fflush(stdout);
  return same_results_of_both(live, job, what);
}

static bool is_ended(test_t *test, const char *what) {
  gpuos_status_t status = gpuos_wait(test->tested.program, test->limit_ns);
  bool ended = status == GPUOS_ABORTED || status == GPUOS_OK; // it may have been quicker
  if (!ended) fail(test, what, &test->tested, status);
  return ended;
}

// An abort of one of them ends the steps of both; then both can be had again.
static bool survive_abort(test_t *live, test_t *job, const test_t *aborted) {
  const char *what = aborted == live ? "after the live steps' abort" : "after the job's abort";
  bool ok = write_both(live, job, what) && submit(job, what, steps_in(job, ROUNDS * ROUND_NS)) &&
            submit(live, what, steps_in(live, ROUND_NS));
  if (!ok) return false;
  gpuos_abort(aborted->tested.program);
  ok = is_ended(live, what) && is_ended(job, what) && write_both(live, job, what);
  return ok && submit(live, what, 1) && submit(job, what, 1) && finish(live, what) &&
         finish(job, what) && same_results_of_both(live, job, what);
}

bool survive_each_other(test_t *live, test_t *job, bool storm) {
  uint32_t half = group_count(live) / 2 * gpuos_program_sm_group(live->tested.program);
  bool ok = runs_beside(live, job, 0, true) && runs_beside(live, job, half, false) &&
            runs_beside(live, job, half, true) && survive_abort(live, job, live) &&
            survive_abort(live, job, job);
  return ok && (!storm || survive_sharing(live, job));
}
