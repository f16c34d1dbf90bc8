// lower.h: between lower.c, which lowers graphs, and lower_ops.c, which lowers their operators.
#ifndef GOS_PASSES_LOWER_H_
#define GOS_PASSES_LOWER_H_

#include "views.h"

typedef struct gos_lower {
  gos_ir_t *ir;
  gos_plan_t *plan;
  MlirOperation func;
  const uint32_t *buffer_of;      // an argument of this graph, by its number
  gos_bindings_t views;           // of tensors that exist
  gos_bindings_t targets;         // where a tensor must be written: an output, a part of a concat
  GOS_ARRAY(gos_view_t) appended; // newest content of each cache layer that was written
  uint32_t kind_count[GPUOS_KIND_COUNT];
} gos_lower_t;

// ---- lower.c: where tensors live ----------------------------------------------------------------

// A new value of `bytes` bytes in a buffer; its number.
uint32_t gos_lower_value(gos_plan_t *plan, const char *name, uint32_t buffer, uint64_t bytes);
gos_view_t gos_lower_view(gos_lower_t *at, MlirValue value);
void gos_lower_bind(gos_lower_t *at, MlirValue value, gos_view_t view);
// A place for `value` to be written to: the one assigned beforehand, else a new intermediate. Binds it.
gos_view_t gos_lower_place(gos_lower_t *at, MlirValue value, const char *name);

// ---- lower_ops.c --------------------------------------------------------------------------------

bool gos_lower_op(gos_lower_t *at, MlirOperation op);
// A map of `count` inputs to `out`; without a body a copy. False after an error.
bool gos_lower_map_op(gos_lower_t *at, MlirOperation from, MlirOperation body, gos_view_t out,
                      size_t count, gos_view_t *in);
// The buffer that the first part lies in, if the others are joined to it and nothing needs be copied; else
// GPUOS_NONE.
uint32_t gos_concat_joined(const gos_lower_t *at, MlirOperation from);
int gos_concat_axis(MlirOperation from);
gos_view_t gos_concat_part(const gos_view_t *whole, int axis, int64_t start, int64_t length);

#endif // GOS_PASSES_LOWER_H_
