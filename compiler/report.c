// report.c: --report, what the compiler predicts, operator by operator.
#include <string.h>

#include "options.h"
#include "passes.h"

// Operators that differ in numbers only, such as a layer's, share a line.
typedef struct line {
  char *name; // numbers replaced by *
  uint32_t ops, bound_ns, sms;
  uint64_t tiles, units;
  double read, write, kept, ns; // bytes, predicted run time of all
  uint32_t smem;
} line_t;
typedef GOS_ARRAY(line_t) lines_t;

static char *pattern(gos_arena_t *arena, const char *name) {
  gos_text_t text = {.arena = arena};
  for (const char *c = name; *c; c++) {
    bool digit = *c >= '0' && *c <= '9', alone = c == name || c[-1] == '.';
    if (!digit || !alone) {
      gos_text_add_bytes(&text, c, 1);
      continue;
    }
    gos_text_add_bytes(&text, "*", 1);
    while (c[1] >= '0' && c[1] <= '9') c++;
  }
  return text.at ? text.at : gos_strndup(arena, "", 0);
}

static line_t *line_of(gos_arena_t *arena, lines_t *lines, const char *name) {
  char *key = pattern(arena, name);
  for (size_t i = 0; i < lines->count; i++)
    if (!strcmp(lines->at[i].name, key)) return &lines->at[i];
  line_t *line = gos_push(arena, lines);
  *line = (line_t){.name = key};
  return line;
}

static void add(const gos_plan_t *plan, line_t *line, const gos_op_t *op) {
  const gpuos_footprint_t *f = &op->op.footprint;
  uint64_t units = gos_op_tiles(&op->op) * gpuos_op_slices(&op->op);
  line->ops++, line->tiles += gos_op_tiles(&op->op), line->units += units;
  line->read += (double)units * f->hbm_read_bytes,
      line->write += (double)units * f->hbm_write_bytes;
  line->kept += (double)units * f->l2_kept_bytes,
      line->ns += gos_run_ns_of(plan, op, op->sms ? op->sms : plan->target->sm_count);
  if (op->op.bound_ns > line->bound_ns) line->bound_ns = op->op.bound_ns;
  if (op->sms > line->sms) line->sms = op->sms;
  if (f->smem_bytes > line->smem) line->smem = f->smem_bytes;
}

static const char *amount(gos_arena_t *arena, double bytes) {
  return bytes >= 1e9   ? gos_format(arena, "%.2f GB", bytes * 1e-9)
         : bytes >= 1e6 ? gos_format(arena, "%.1f MB", bytes * 1e-6)
                        : gos_format(arena, "%.1f kB", bytes * 1e-3);
}

static void print_line(const gos_plan_t *plan, gos_arena_t *arena, const line_t *line, FILE *out) {
  const char *name =
      line->ops > 1 ? gos_format(arena, "%s x%u", line->name, line->ops) : line->name;
  double tbps = line->ns > 0 ? line->read / line->ns * 1e-3 : 0;
  double ceiling = gos_curve_at(&plan->target->read_tbps, plan->target->sm_count);
  fprintf(out, "%-44s %8llu %7.1f us %5u %10s %10s %10s %4u KiB %5.2f TB/s %4.0f %% %9.1f us\n",
          name, (unsigned long long)line->units, line->bound_ns * 1e-3,
          line->sms ? line->sms : plan->target->sm_count, amount(arena, line->read),
          amount(arena, line->write), amount(arena, line->kept / (line->ops ? line->ops : 1)),
          line->smem / 1024, tbps, 100 * tbps / ceiling, line->ns * 1e-3);
}

void gos_report_kernel(const gos_plan_t *plan, const char *path, const gos_resources_t *resources,
                       FILE *out) {
  fprintf(out, "%s: %s, %u registers, no spills, %u KiB shared, 1 CTA an SM\n", path,
          plan->target->arch_name, resources->registers,
          (gos_resources_smem(resources) + 1023) / 1024);
}

void gos_report_print(const gos_plan_t *plan, FILE *out) {
  gos_arena_t *arena = plan->ir->scratch;
  lines_t lines = {0};
  line_t total = {.name = "all, predicted"};
  double priced = 0;
  for (size_t i = 0; i < plan->ops.count; i++) {
    const gos_op_t *op = &plan->ops.at[i];
    add(plan, line_of(arena, &lines, op->name), op);
    add(plan, &total, op);
    priced += gos_priced_cost_of(plan, op);
  }
  fprintf(out, "%-44s %8s %10s %5s %10s %10s %10s %8s %10s %6s %12s\n", "operator", "units",
          "longest", "SMs", "HBM read", "write", "L2 kept", "shared", "rate", "of max",
          "predicted");
  for (size_t i = 0; i < lines.count; i++) print_line(plan, arena, &lines.at[i], out);
  total.ops = 1;
  print_line(plan, arena, &total, out);
  fprintf(out,
          "%s: %zu tiles, %zu counters, workspace %s; beside a saturated stream it costs what %s "
          "read from HBM do\n",
          plan->target->name, plan->tiles.count, plan->counters.count,
          amount(arena, (double)plan->workspace_bytes), amount(arena, priced));
}
