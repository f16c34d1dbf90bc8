// cli_bench_report.c: what `gpuos bench` prints: one line a fact.
#include <inttypes.h>

#include "cli_bench.h"

static bool fail(const gos_bench_run_t *run, const char *about, gpuos_status_t status) {
  return gos_session_failed(run->session, about, status);
}

// ---- steps --------------------------------------------------------------------------------------

double gos_step_flops(const gpuos_table_t *table) {
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
  printf("%-18s %.3f us\n", what, (double)ns * 1e-3);
}

static void print_steps(gos_bench_run_t *run) {
  gos_times_t *times = &run->session->times;
  double flops = gos_step_flops(run->session->program->table);
  gos_times_sort(times);
  uint64_t median_ns = gos_times_at(times, 0.5);
  printf("%-18s %" PRIu64 " in %.3f s\n", "steps", run->done,
         (double)(run->moved_ns - run->start_ns) * 1e-9);
  print_us("step median", median_ns);
  print_us("step P99", gos_times_at(times, 0.99));
  print_us("step longest", gos_times_at(times, 1));
  if (flops > 0 && median_ns != 0)
    printf("%-18s %.2f TFLOP/s\n", "matmul rate", flops / (double)median_ns * 1e-3);
}

// ---- pauses -------------------------------------------------------------------------------------

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
  printf("%-18s %s%.1f us\n", what, open ? "over " : "",
         open ? last_us - GPUOS_PAUSE_BIN_NS * 1e-3 : us);
}

static bool print_storm(const gos_bench_run_t *run) {
  gpuos_storm_t storm;
  if (run->bench->pauses == 0) return true;
  gpuos_status_t status = gpuos_pause_storm_read(run->session->program, &storm);
  if (status != GPUOS_OK) return fail(run, "--pause-storm", status);
  const struct {
    const char *what;
    double share;
  } rows[] = {{"pause P50", 0.5}, {"pause P99", 0.99}, {"pause P99.9", 0.999}};
  printf("%-18s %u\n", "pauses", storm.done);
  for (int i = 0; i < 3; i++)
    print_bin(rows[i].what,
              bin_us(storm.bins, GPUOS_PAUSE_BINS, GPUOS_PAUSE_BIN_NS, rows[i].share));
  print_us("pause longest", storm.longest_ns);
  printf("%-18s %u\n", "pauses lost", storm.lost);
  return true;
}

// ---- take-backs ---------------------------------------------------------------------------------

static void print_take_backs(gos_bench_run_t *run) {
  gos_take_backs_t *t = &run->take_backs;
  if (run->bench->take_backs == 0) return;
  gos_times_sort(&t->times);
  printf("%-18s %zu in %u rounds\n", "SMs taken back", t->times.count, t->done);
  print_us("take-back P50", gos_times_at(&t->times, 0.5));
  print_us("take-back P99", gos_times_at(&t->times, 0.99));
  print_us("take-back P99.9", gos_times_at(&t->times, 0.999));
  print_us("take-back longest", gos_times_at(&t->times, 1));
  printf("%-18s %" PRIu64 "\n", "take-backs parked", t->parked);
  printf("%-18s %" PRIu64 "\n", "take-backs lost", t->lost);
}

// ---- units --------------------------------------------------------------------------------------

static bool print_units(const gos_bench_run_t *run) {
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

bool gos_bench_report(gos_bench_run_t *run) {
  print_steps(run);
  print_take_backs(run);
  return print_storm(run) && print_units(run);
}
