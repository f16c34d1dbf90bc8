// pipeline.c: the whole compiler, in order.
//
//   model.yaml --model--> dialect --legalize, fuse, stack, attend--> dialect --lower--> plan
//   plan --split, tile, footprint, bound, memory, stamp, schedule--> plan --table--> schedule table
//   schedule table --check--> proven table
//   plan --codegen--> CUDA C++ --NVRTC--> cubin --resources--> cubin, the table inside
//
// Live graphs and background graphs together have a plan and a table each, and one kernel.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "codegen.h"
#include "options.h"
#include "passes.h"

typedef struct compilation {
  gos_options_t *options;
  gos_ir_t *ir;
  const gos_target_t *target;
  gos_part_t parts[GPUOS_MOST_PROGRAMS]; // of the kernel: one, or a live one and a job
  size_t part_count;
  const char *source;
  gos_bytes_t code;              // PTX or cubin
  gos_resources_t resources;     // of a cubin
  GOS_ARRAY(const char *) files; // read, for -MD
} compilation_t;

// ---- the stages ---------------------------------------------------------------------------------

static bool read_models(compilation_t *c);
static bool find_target(compilation_t *c);
static void find_parts(compilation_t *c);

static bool of_plans(compilation_t *c, bool (*pass)(gos_plan_t *plan)) {
  for (size_t i = 0; i < c->part_count; i++)
    if (!pass(&c->parts[i].plan)) return false;
  return true;
}
static bool fuse(gos_plan_t *plan) { return gos_pass_fuse(plan->ir, plan); }
static bool lower(gos_plan_t *plan) { return gos_pass_lower(plan->ir, plan); }

static bool stage_model(compilation_t *c) {
  if (!read_models(c) || !find_target(c)) return false;
  find_parts(c);
  return true;
}
static bool stage_legalize(compilation_t *c) { return gos_pass_legalize(c->ir); }
static bool stage_fuse(compilation_t *c) { return of_plans(c, fuse); }
static bool stage_stack(compilation_t *c) { return gos_pass_stack(c->ir); }
static bool stage_attend(compilation_t *c) { return gos_pass_attend(c->ir); }
static bool stage_lower(compilation_t *c) { return of_plans(c, lower); }
static bool stage_split(compilation_t *c) { return of_plans(c, gos_pass_split); }
static bool stage_tile(compilation_t *c) { return of_plans(c, gos_pass_tile); }
static bool stage_footprint(compilation_t *c) { return of_plans(c, gos_pass_footprint); }
static bool stage_bound(compilation_t *c) { return of_plans(c, gos_pass_bound); }
static bool stage_memory(compilation_t *c) { return of_plans(c, gos_pass_memory); }
static bool stage_stamp(compilation_t *c) { return of_plans(c, gos_pass_stamp); }
static bool stage_schedule(compilation_t *c) { return of_plans(c, gos_pass_schedule); }

static bool wants_device_code(const compilation_t *c) {
  return c->options->emit == GOS_EMIT_CUBIN || c->options->emit == GOS_EMIT_CUDA ||
         c->options->emit == GOS_EMIT_PTX;
}

static bool stage_table(compilation_t *c) {
  for (size_t i = 0; i < c->part_count; i++)
    c->parts[i].table =
        gos_table_make(&c->parts[i].plan, wants_device_code(c) ? c->target->arch : 0);
  return true;
}

// What the compiler made is proven, not trusted: a rejection is a bug of ours, told to the user as
// one.
static bool stage_check(compilation_t *c) {
  for (size_t i = 0; i < c->part_count; i++) {
    gpuos_check_report_t report;
    if (gpuos_check(c->parts[i].table.at, c->parts[i].table.count, &report)) continue;
    gos_error(c->ir->diags, (gos_loc_t){0}, "check",
              "internal error: the schedule is not safe: %s (%s)", report.message, report.slug);
    return false;
  }
  return true;
}

static bool stage_codegen(compilation_t *c) {
  if (!wants_device_code(c)) return true;
  c->source = gos_kernel_source(c->parts, c->part_count);
  return c->source != NULL;
}

static bool stage_nvrtc(compilation_t *c) {
  if (!wants_device_code(c) || c->options->emit == GOS_EMIT_CUDA) return true;
  return gos_nvrtc_compile(&c->parts[0].plan, c->source, c->options->emit == GOS_EMIT_PTX,
                           c->options->cache_dir, &c->code);
}

static bool stage_resources(compilation_t *c) {
  return c->options->emit != GOS_EMIT_CUBIN ||
         gos_resources_check(c->parts, c->part_count, c->code, &c->resources);
}

typedef struct stage {
  const char *name;
  bool (*run)(compilation_t *c);
  enum { TEXT, DIALECT, PLAN } shows; // what there is to print after it
} stage_t;

static const stage_t stages[] = {
    {"model", stage_model, DIALECT},      {"legalize", stage_legalize, DIALECT},
    {"fuse", stage_fuse, DIALECT},        {"stack", stage_stack, DIALECT},
    {"attend", stage_attend, DIALECT},    {"lower", stage_lower, PLAN},
    {"split", stage_split, PLAN},         {"tile", stage_tile, PLAN},
    {"footprint", stage_footprint, PLAN}, {"bound", stage_bound, PLAN},
    {"memory", stage_memory, PLAN},       {"stamp", stage_stamp, PLAN},
    {"schedule", stage_schedule, PLAN},   {"table", stage_table, TEXT},
    {"check", stage_check, TEXT},         {"codegen", stage_codegen, TEXT},
    {"nvrtc", stage_nvrtc, TEXT},         {"resources", stage_resources, TEXT},
};
enum { STAGES = sizeof stages / sizeof *stages };

const char *const gos_stage_names[] = {"model",   "legalize", "fuse",      "stack",     "attend",
                                       "lower",   "split",    "tile",      "footprint", "bound",
                                       "memory",  "stamp",    "schedule",  "table",     "check",
                                       "codegen", "nvrtc",    "resources", NULL};

// ---- input --------------------------------------------------------------------------------------

static bool read_file(compilation_t *c, const char *path, uint16_t *out_file) {
  FILE *in = fopen(path, "rb");
  gos_text_t text = {.arena = c->ir->arena};
  char part[1 << 16];
  for (size_t n; in && (n = fread(part, 1, sizeof part, in)) > 0;)
    gos_text_add_bytes(&text, part, n);
  bool ok = in && !ferror(in);
  if (in) fclose(in);
  if (!ok) gos_error(c->ir->diags, (gos_loc_t){0}, "input", "%s: cannot be read", path);
  *out_file = gos_diags_add_file(c->ir->diags, path, text.at ? text.at : "", text.count);
  *gos_push(c->ir->arena, &c->files) = path;
  return ok;
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && !strcmp(text + length - tail, end);
}

static bool read_models(compilation_t *c) {
  bool ok = true;
  for (size_t i = 0; i < c->options->inputs.count; i++) {
    uint16_t file;
    const char *path = c->options->inputs.at[i];
    if (!read_file(c, path, &file)) return false;
    bool read = ends_with(path, ".mlir")
                    ? gos_ir_parse(c->ir, file) && gos_ir_validate(c->ir)
                    : gos_model_read(c->ir, file, c->options->dims.at, c->options->dims.count);
    ok = read && ok;
  }
  for (size_t i = 0; ok && i < c->options->dims.count; i++)
    if (!c->options->dims.at[i].used) {
      gos_error(c->ir->diags, (gos_loc_t){0}, "override", "-D %s: no graph has such a dimension",
                c->options->dims.at[i].name);
      ok = false;
    }
  return ok;
}

static void first_target(gos_ir_t *ir, MlirOperation func, void *user) {
  const char **name = user;
  if (!(*name)[0]) *name = gos_func_string(ir, func, "gpuos.target");
}

// The command line's target, else the first one that a graph names, else the H200.
static bool find_target(compilation_t *c) {
  const char *name = c->options->target ? c->options->target : "";
  if (c->options->target_file) {
    uint16_t file;
    if (!read_file(c, c->options->target_file, &file)) return false;
    c->target = gos_target_read(c->ir->arena, c->ir->diags, file);
  } else {
    gos_graphs(c->ir, first_target, &name);
    c->target =
        gos_target_find(c->ir->arena, c->ir->diags, (gos_loc_t){0}, name[0] ? name : "h200");
  }
  return c->target != NULL;
}

static void count_classes(gos_ir_t *ir, MlirOperation func, void *user) {
  bool *found = user;
  found[gos_func_live(ir, func) ? 0 : 1] = true;
}

// Graphs of one class are one program; live ones and background ones are two, that share a kernel.
static void find_parts(compilation_t *c) {
  bool found[2] = {false};
  gos_graphs(c->ir, count_classes, found);
  c->part_count = found[0] && found[1] ? 2 : 1;
  for (size_t i = 0; i < c->part_count; i++)
    c->parts[i].plan = (gos_plan_t){.ir = c->ir,
                                    .target = c->target,
                                    .budget_ns = c->options->budget_ns,
                                    .role = c->part_count == 1 ? GOS_ALONE
                                            : i == 0           ? GOS_LIVE
                                                               : GOS_JOB};
}

// ---- output -------------------------------------------------------------------------------------

static void show(compilation_t *c, int what, FILE *out) {
  if (what == DIALECT) gos_ir_print(c->ir, false, out);
  for (size_t i = 0; what != DIALECT && i < c->part_count; i++)
    (c->options->emit == GOS_EMIT_SCHEDULE ? gos_schedule_print : gos_plan_print)(&c->parts[i].plan,
                                                                                  out);
}

// Tables of all programs, one behind the other; each is a multiple of 16 bytes.
static gos_bytes_t tables(const compilation_t *c) {
  gos_text_t all = {.arena = c->ir->arena};
  if (c->part_count == 1) return c->parts[0].table;
  for (size_t i = 0; i < c->part_count; i++)
    gos_text_add_bytes(&all, c->parts[i].table.at, c->parts[i].table.count);
  return (gos_bytes_t){all.at, all.count};
}

static gos_bytes_t printed(compilation_t *c, int what) {
  char *text = NULL;
  size_t count = 0;
  FILE *out = open_memstream(&text, &count);
  show(c, what, out);
  fclose(out);
  gos_bytes_t bytes = {gos_strndup(c->ir->arena, text, count), count};
  free(text);
  return bytes;
}

static gos_bytes_t result(compilation_t *c, const stage_t *last) {
  switch (c->options->emit) {
  case GOS_EMIT_IR: return printed(c, DIALECT);
  case GOS_EMIT_PLAN: return printed(c, PLAN);
  case GOS_EMIT_SCHEDULE: return printed(c, PLAN);
  case GOS_EMIT_CUDA:
    return (gos_bytes_t){(void *)(uintptr_t)c->source, c->source ? strlen(c->source) : 0};
  case GOS_EMIT_TABLE: return tables(c);
  case GOS_EMIT_PTX: return c->code;
  case GOS_EMIT_CUBIN: break;
  }
  if (c->options->stop_after) return printed(c, last->shows == DIALECT ? DIALECT : PLAN);
  return gos_cubin_attach(c->ir->arena, c->code, tables(c));
}

// Spaces, # and $ mean something to make.
static void add_make_name(gos_text_t *text, const char *name) {
  for (const char *c = name; *c; c++)
    gos_text_add(text, *c == '$' ? "$$" : *c == ' ' || *c == '#' ? "\\%c" : "%c", *c);
}

static bool write_dependencies(compilation_t *c) {
  if (!c->options->dep_file) return true;
  gos_text_t text = {.arena = c->ir->arena};
  add_make_name(&text, c->options->output);
  gos_text_add(&text, ":");
  for (size_t i = 0; i < c->files.count; i++) {
    gos_text_add(&text, " ");
    add_make_name(&text, c->files.at[i]);
  }
  gos_text_add(&text, "\n");
  return gos_artefact_write(c->ir, c->options->dep_file, (gos_bytes_t){text.at, text.count});
}

static bool write_outputs(compilation_t *c, const stage_t *last) {
  const gos_options_t *o = c->options;
  if (!gos_artefact_write(c->ir, o->output, result(c, last))) return false;
  if (o->table_file && !gos_artefact_write(c->ir, o->table_file, tables(c))) return false;
  if (!write_dependencies(c)) return false;
  if (o->report && c->resources.registers)
    gos_report_kernel(&c->parts[0].plan, o->output, &c->resources, stderr);
  return true;
}

// ---- the pipeline -------------------------------------------------------------------------------

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool run_stage(compilation_t *c, const stage_t *stage) {
  double start = now_ms();
  bool ok = stage->run(c);
  if (c->options->time_passes) fprintf(stderr, "%10.2f ms  %s\n", now_ms() - start, stage->name);
  gos_arena_reset(c->ir->scratch);
  if (!ok) return false;
  // Before legalize results have no types yet, which MLIR's verifier would reject.
  bool typed = stage->run != stage_model;
  if (stage->shows == DIALECT && typed && !gos_ir_verify(c->ir)) return false;
  if (c->options->dump_after && !strcmp(c->options->dump_after, stage->name))
    show(c, stage->shows, stderr);
  return true;
}

static bool compile(compilation_t *c) {
  const stage_t *last = &stages[STAGES - 1];
  for (size_t i = 0; i < STAGES; i++) {
    if (!run_stage(c, &stages[i])) return false;
    if (!c->options->stop_after || strcmp(c->options->stop_after, stages[i].name)) continue;
    last = &stages[i];
    break;
  }
  for (size_t i = 0; c->options->report && last->shows == TEXT && i < c->part_count; i++)
    gos_report_print(&c->parts[i].plan, stderr);
  return write_outputs(c, last);
}

int gos_compile(gos_arena_t *arena, gos_options_t *options) {
  gos_arena_t *scratch = gos_arena_create();
  gos_diags_t *diags = gos_diags_create(arena);
  compilation_t c = {.options = options, .ir = gos_ir_create(arena, scratch, diags)};
  bool ok = compile(&c) && gos_diags_error_count(diags) == 0;
  gos_diags_print(diags, stderr);
  gos_ir_destroy(c.ir);
  gos_arena_destroy(scratch);
  return ok ? GOS_EXIT_OK : GOS_EXIT_FAILED;
}
