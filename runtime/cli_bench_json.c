// cli_bench_json.c: what `gpuos bench` measured, as JSON: times in nanoseconds, in the order in which
// they were taken, and counts by bins of equal width, the last of which holds all longer ones.
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "cli_bench.h"

// ---- numbers ------------------------------------------------------------------------------------

static void write_times(FILE *out, const gos_times_t *times) {
  fputs("\"times_ns\":[", out);
  for (size_t i = 0; i < times->count; i++)
    fprintf(out, i == 0 ? "%" PRIu64 : ",%" PRIu64, times->ns[i]);
  fputs("]", out);
}

static void write_bins(FILE *out, const uint32_t *bins, uint32_t count, uint32_t bin_ns) {
  fprintf(out, "\"bin_ns\":%u,\"bins\":[", bin_ns);
  for (uint32_t i = 0; i < count; i++) fprintf(out, i == 0 ? "%u" : ",%u", bins[i]);
  fputs("]", out);
}

// ---- measurements -------------------------------------------------------------------------------

static void write_head(const gos_bench_run_t *run, FILE *out) {
  fputs("\"file\":", out);
  gos_write_string(out, run->bench->path);
  fprintf(out, ",\n\"sms\":%u,\"sm_group\":%u,\n", run->session->program->sm_count,
          gpuos_program_sm_group(run->session->program));
  fprintf(out, "\"steps\":{\"done\":%" PRIu64 ",\"wall_ns\":%" PRIu64 ",", run->done,
          run->moved_ns - run->start_ns);
  write_times(out, &run->session->times);
  fputs("}", out);
}

static bool write_pauses(const gos_bench_run_t *run, FILE *out) {
  gpuos_storm_t storm;
  if (run->bench->pauses == 0) return true;
  gpuos_status_t status = gpuos_pause_storm_read(run->session->program, &storm);
  if (status != GPUOS_OK) return gos_session_failed(run->session, "--pause-storm", status);
  fprintf(out, ",\n\"pauses\":{\"done\":%u,\"lost\":%u,\"longest_ns\":%u,", storm.done, storm.lost,
          storm.longest_ns);
  write_bins(out, storm.bins, GPUOS_PAUSE_BINS, GPUOS_PAUSE_BIN_NS);
  fputs("}", out);
  return true;
}

static void write_take_backs(const gos_bench_run_t *run, FILE *out) {
  const gos_take_backs_t *t = &run->take_backs;
  if (run->bench->take_backs == 0) return;
  fprintf(out, ",\n\"take_backs\":{\"rounds\":%u,\"parked\":%" PRIu64 ",\"lost\":%" PRIu64 ",",
          t->done, t->parked, t->lost);
  write_times(out, &t->times);
  fputs("}", out);
}

static void write_op(FILE *out, uint32_t op, const gpuos_unit_times_t *times) {
  fprintf(out, "%s{\"op\":%u,\"name\":", op == 0 ? "" : ",\n", op);
  gos_write_string(out, times->name);
  fputs(",\"kind\":", out);
  gos_write_string(out, times->kind);
  fprintf(out,
          ",\"bound_ns\":%u,\"units\":%" PRIu64 ",\"run_ns\":%" PRIu64 ",\"longest_ns\":%u,"
          "\"over_bound\":%u,\"paused\":%u,",
          times->bound_ns, times->units, times->run_ns, times->longest_ns, times->over_bound,
          times->paused);
  write_bins(out, times->bins, GPUOS_UNIT_BINS, GPUOS_UNIT_BIN_NS);
  fputs("}", out);
}

static bool write_units(const gos_bench_run_t *run, FILE *out) {
  gpuos_program_t *program = run->session->program;
  if (!run->bench->trace) return true;
  fputs(",\n\"units\":[", out);
  for (uint32_t op = 0; op < gpuos_program_op_count(program); op++) {
    gpuos_unit_times_t times;
    gpuos_status_t status = gpuos_program_unit_times(program, op, &times);
    if (status != GPUOS_OK) return gos_session_failed(run->session, "--trace", status);
    write_op(out, op, &times);
  }
  fputs("]", out);
  return true;
}

// ---- the file -----------------------------------------------------------------------------------

bool gos_bench_write(const gos_bench_run_t *run, const char *path) {
  FILE *out = fopen(path, "w");
  if (out == NULL) {
    gos_say("error: '%s': %s", path, strerror(errno));
    return false;
  }
  fputs("{", out);
  write_head(run, out);
  write_take_backs(run, out);
  bool ok = write_pauses(run, out) && write_units(run, out);
  fputs("\n}\n", out);
  bool whole = ferror(out) == 0;
  if (fclose(out) != 0 || !whole) {
    gos_say("error: '%s': %s", path, strerror(errno));
    return false;
  }
  return ok;
}
