// options.h: gpuosc's command line.
#ifndef GOS_COMPILER_OPTIONS_H_
#define GOS_COMPILER_OPTIONS_H_

#include "codegen.h"
#include "compiler.h"
#include "plan.h"

typedef enum gos_emit {
  GOS_EMIT_CUBIN,
  GOS_EMIT_TABLE,
  GOS_EMIT_IR,
  GOS_EMIT_PLAN,
  GOS_EMIT_SCHEDULE,
  GOS_EMIT_CUDA,
  GOS_EMIT_PTX
} gos_emit_t;

typedef struct gos_options {
  GOS_ARRAY(const char *) inputs;
  const char *output; // "-": standard output
  gos_emit_t emit;
  bool emit_given;
  const char *stop_after; // a stage's name; NULL: run all
  const char *dump_after;
  const char *dep_file;             // -MD; NULL: none
  const char *target, *target_file; // override the graph's
  const char *cache_dir;            // of compiled kernels; NULL: none
  const char *table_file;           // the schedule table once more; NULL: not
  uint32_t budget_ns;
  bool report, time_passes;
  bool help, version, print_ops, print_irdl; // say something and end
  GOS_ARRAY(gos_dim_override_t) dims;
} gos_options_t;

// Exit codes of the process, for build systems.
enum { GOS_EXIT_OK = 0, GOS_EXIT_FAILED = 1, GOS_EXIT_USAGE = 2 };

// False after printing what is wrong to stderr.
bool gos_options_parse(gos_arena_t *arena, int argc, char **argv, gos_options_t *out_options);
void gos_options_print_usage(FILE *out);

// ---- pipeline.c ---------------------------------------------------------------------------------
int gos_compile(gos_arena_t *arena, gos_options_t *options); // an exit code
extern const char *const gos_stage_names[];                  // ends with NULL

// ---- report.c: --report -------------------------------------------------------------------------
void gos_report_print(const gos_plan_t *plan, FILE *out);
// One line, of a cubin written to `path`.
void gos_report_kernel(const gos_plan_t *plan, const char *path, const gos_resources_t *resources,
                       FILE *out);

#endif // GOS_COMPILER_OPTIONS_H_
