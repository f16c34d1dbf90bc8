// cli_trace_ops.c: what each operator of a traced step took: when it began and was over, how far apart its SMs
// ended, its units' times, and what it read of memory meanwhile.
#include "cli_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

typedef struct unit {
  uint32_t op, sm;
  uint64_t from_ns, to_ns;
} unit_t;

static uint64_t took(const unit_t *unit) { return unit->to_ns - unit->from_ns; }

static int by_op_and_time(const void *a, const void *b) {
  const unit_t *x = a, *y = b;
  if (x->op != y->op) return x->op < y->op ? -1 : 1;
  return (took(x) > took(y)) - (took(x) < took(y));
}

static int by_begin(const void *a, const void *b) {
  const gos_traced_op_t *x = a, *y = b;
  if (x->from_ns != y->from_ns) return x->from_ns < y->from_ns ? -1 : 1;
  return (x->op > y->op) - (x->op < y->op);
}

static uint32_t last_step(const gos_records_t *records) {
  uint32_t step = 0;
  for (uint32_t sm = 0; sm < records->sm_count; sm++)
    for (uint32_t i = 0; i < records->counts[sm]; i++) {
      uint32_t of = records->at[(size_t)sm * records->capacity + i].step;
      if (of > step) step = of;
    }
  return step;
}

// The last step's units of operators below op_count, sorted.
static size_t collect(const gos_records_t *records, uint32_t op_count, unit_t *out) {
  uint32_t step = last_step(records);
  uint64_t begin_ns = UINT64_MAX;
  size_t count = 0;
  for (uint32_t sm = 0; sm < records->sm_count; sm++)
    for (uint32_t i = 0; i < records->counts[sm]; i++) {
      const gpuos_unit_record_t *r = &records->at[(size_t)sm * records->capacity + i];
      if (r->step != step || r->op >= op_count) continue;
      uint64_t ns = (uint64_t)r->run_ns + r->paused_ns;
      out[count++] = (unit_t){r->op, sm, r->start_ns, r->start_ns + ns};
      if (r->start_ns < begin_ns) begin_ns = r->start_ns;
    }
  for (size_t i = 0; i < count; i++) out[i].from_ns -= begin_ns, out[i].to_ns -= begin_ns;
  qsort(out, count, sizeof *out, by_op_and_time);
  return count;
}

// Of `count` units of one operator; over_ns: room for each SM.
static gos_traced_op_t sum_up(const unit_t *units, size_t count, uint64_t *over_ns,
                              uint32_t sm_count) {
  gos_traced_op_t op = {.op = units->op,
                        .units = (uint32_t)count,
                        .from_ns = UINT64_MAX,
                        .first_over_ns = UINT64_MAX,
                        .median_ns = took(&units[count / 2]),
                        .longest_ns = took(&units[count - 1])};
  for (uint32_t sm = 0; sm < sm_count; sm++) over_ns[sm] = 0;
  for (size_t i = 0; i < count; i++) {
    uint64_t *over = &over_ns[units[i].sm];
    if (units[i].to_ns > *over) *over = units[i].to_ns;
    if (units[i].from_ns < op.from_ns) op.from_ns = units[i].from_ns;
  }
  for (size_t i = 0; i < count; i++) {
    uint64_t over = over_ns[units[i].sm];
    if (over > op.to_ns) op.to_ns = over;
    if (over < op.first_over_ns) op.first_over_ns = over;
  }
  return op;
}

gos_traced_op_t *gos_trace_ops(const gos_records_t *records, uint32_t op_count,
                               uint32_t *out_count) {
  size_t all = 0, first = 0;
  for (uint32_t sm = 0; sm < records->sm_count; sm++) all += records->counts[sm];
  unit_t *units = malloc((all + 1) * sizeof *units);
  uint64_t *over_ns = malloc((records->sm_count + (size_t)1) * sizeof *over_ns);
  gos_traced_op_t *ops = malloc((op_count + (size_t)1) * sizeof *ops);
  *out_count = 0;
  if (units != NULL && over_ns != NULL && ops != NULL) {
    size_t count = collect(records, op_count, units);
    for (size_t i = 1; i <= count; i++) {
      if (i < count && units[i].op == units[first].op) continue;
      ops[(*out_count)++] = sum_up(&units[first], i - first, over_ns, records->sm_count);
      first = i;
    }
    qsort(ops, *out_count, sizeof *ops, by_begin);
  } else {
    free(ops);
    ops = NULL;
  }
  free(units);
  free(over_ns);
  return ops;
}

void gos_print_traced_ops(const gpuos_table_t *table, const gos_traced_op_t *ops, uint32_t count) {
  puts("   from us     to us  SMs apart  units  median  longest    read  operator");
  for (uint32_t i = 0; i < count; i++) {
    const gos_traced_op_t *at = &ops[i];
    const gpuos_op_t *op = GPUOS_SECTION(table, gpuos_op_t, ops) + at->op;
    double ns = (double)(at->to_ns - at->from_ns);
    double tbps = ns > 0 ? (double)op->footprint.hbm_read_bytes * at->units / ns * 1e-3 : 0;
    printf("%10.1f %9.1f %10.1f %6u %7.2f %8.2f %5.2f TB/s  %s\n", (double)at->from_ns * 1e-3,
           (double)at->to_ns * 1e-3, (double)(at->to_ns - at->first_over_ns) * 1e-3, at->units,
           (double)at->median_ns * 1e-3, (double)at->longest_ns * 1e-3, tbps,
           gos_table_string(table, op->name));
  }
}
