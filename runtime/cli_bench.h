// cli_bench.h: what the files of `gpuos bench` share: what was asked for, and what a run measured.
//
//   cli_bench.c         options, steps        cli_bench_report.c  for people, a line a fact
//   cli_take_back.c     SMs lent and taken    cli_bench_json.c    for programs
#ifndef GPUOS_CLI_BENCH_H_
#define GPUOS_CLI_BENCH_H_

#include "cli.h"

typedef struct gos_bench {
  const char *path;
  const char *json; // where to, or NULL
  int device;
  uint64_t sms, seconds, steps, position, pauses, take_backs;
  uint32_t mask[GPUOS_MAX_SMS / 32];
  bool mask_given, trace, one_shot, help;
} gos_bench_t;

// ---- take-backs ---------------------------------------------------------------------------------

typedef enum gos_take_back_phase {
  GOS_TAKE_BACK_AWAY,    // none is lent; each is asked whether it knows
  GOS_TAKE_BACK_COMING,  // some are; they are asked, one a poll, whether they have noticed
  GOS_TAKE_BACK_LENT,    // they work until until_ns
  GOS_TAKE_BACK_LEAVING, // none is again; they are asked whether they are free
  GOS_TAKE_BACK_OVER,    // all are lent again
} gos_take_back_phase_t;

typedef struct gos_taken_sm {
  uint64_t away_ns;             // when it was free, of the GPU's timer; 0: not yet
  uint32_t parks, parks_before; // tiles that it has put down; at the end of its last round
} gos_taken_sm_t;

// A round lends half of the SM groups, drawn anew, and takes them back.
typedef struct gos_take_backs {
  gos_times_t times;     // of SMs, from when they were told until they were free
  uint64_t parked, lost; // SMs that put a tile down, or did not say in time that they are free
  uint32_t rounds, done;
  // Of the round:
  gos_session_t *session;
  gos_take_back_phase_t phase;
  uint64_t random;
  uint64_t changed_ns, until_ns; // the host's clock: of the change, then of its being told
  uint64_t told_ns;              // the GPU's timer; 0: the SMs have not been told yet
  uint32_t sms[GPUOS_MAX_SMS], count, asked;
  bool unsettled;                      // some answer of this pass was not the last pass's
  gos_taken_sm_t taken[GPUOS_MAX_SMS]; // by SM
} gos_take_backs_t;

// Before the first step: none is lent, so that what is put down later is of a round.
bool gos_take_backs_begin(gos_take_backs_t *take_backs, gos_session_t *session, uint32_t rounds);
// Goes on a little and never waits; steps are queued meanwhile. False after saying what went wrong.
bool gos_take_backs_poll(gos_take_backs_t *take_backs);
bool gos_take_backs_over(const gos_take_backs_t *take_backs);

// ---- a run --------------------------------------------------------------------------------------

typedef struct gos_bench_run {
  const gos_bench_t *bench;
  gos_session_t *session;
  uint64_t start_ns, moved_ns; // of all; when a step was last done
  uint64_t done;               // steps
  gos_take_backs_t take_backs;
} gos_bench_run_t;

// Both return false after saying what went wrong. The report sorts the times.
bool gos_bench_write(const gos_bench_run_t *run, const char *path);
bool gos_bench_report(gos_bench_run_t *run);

#endif // GPUOS_CLI_BENCH_H_
