// compiler.h: gpuosc, in the order in which it runs.
//
// main.c reads options, model.c turns YAML into the dialect, pipeline.c runs every pass, import.c
// writes model.yaml from a Hugging Face config. One thread, one compilation a process.
#ifndef GOS_COMPILER_COMPILER_H_
#define GOS_COMPILER_COMPILER_H_

#include "ir.h"

// ---- options.c ----------------------------------------------------------------------------------

typedef struct gos_dim_override {
  const char *name;
  int64_t value;
  bool used; // set by the front end; one that no graph names is an error of the command line
} gos_dim_override_t;

// ---- model.c: model.yaml -> a graph in ir->module -----------------------------------------------

// Reads one registered YAML file and appends its graph to the module. Overrides replace values of
// `dims:`. Reports all errors of the file; false if there were any.
bool gos_model_read(gos_ir_t *ir, uint16_t file, gos_dim_override_t *overrides,
                    size_t override_count);

// ---- dims.c: "(H + 2 * KV) * HD" ----------------------------------------------------------------

typedef struct gos_dim {
  const char *name;
  int64_t value;
} gos_dim_t;
typedef GOS_ARRAY(gos_dim_t) gos_dims_t;
// Evaluates + - * / % ( ) over names and integers; an error at `at` (slug [dim-expr],
// [dim-unknown], [dim-overflow]).
bool gos_dim_eval(gos_ir_t *ir, const gos_dims_t *dims, gos_loc_t at, const char *text,
                  int64_t *out_value);

// ---- expr.c: "silu(g) * u" -> a pointwise body --------------------------------------------------

// Parses a pointwise expression whose free names are `names`, in that order the body's arguments;
// every name must be used. Returns the body's symbol, NULL after an error ([expr], [expr-name],
// [expr-unused], [expr-length]).
const char *gos_expr_parse(gos_ir_t *ir, gos_loc_t at, const char *text, size_t count,
                           const char *const *names);

// ---- import.c -----------------------------------------------------------------------------------

int gos_import(int argc, char **argv); // `gpuosc import ...`; the process's exit code

#endif // GOS_COMPILER_COMPILER_H_
