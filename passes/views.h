// views.h: a tensor as a strided view of a value, while lower works.
#ifndef GOS_PASSES_VIEWS_H_
#define GOS_PASSES_VIEWS_H_

#include "plan.h"

typedef struct gos_view {
  uint32_t value; // of plan.values
  gpuos_dtype_t dtype;
  uint64_t offset; // elements from the value's start
  int rank;
  int64_t extent[GPUOS_RANK + 1], stride[GPUOS_RANK + 1]; // elements
} gos_view_t;

gos_view_t gos_view_dense(uint32_t value, const gos_shape_t *shape); // row-major
bool gos_view_same(const gos_view_t *a, const gos_view_t *b);
void gos_view_swap(gos_view_t *view, int a, int b);
void gos_view_drop(gos_view_t *view, int dim); // index 0 of it
void gos_view_unsqueeze(gos_view_t *view);     // a leading dimension of 1
void gos_view_split(gos_view_t *view, int dim,
                    int64_t inner); // [.., n, ..] -> [.., n / inner, inner, ..]
// Merges dimensions first..last into one; false, and nothing changed, where strides do not allow
// it.
bool gos_view_can_merge(const gos_view_t *view, int first, int last);
bool gos_view_merge(gos_view_t *view, int first, int last);
// Gives `view` the rank of `to`; dimensions it lacks, or has with extent 1, repeat (extent 1).
void gos_view_broadcast(gos_view_t *view, const gos_view_t *to);
// Merges neighbouring dimensions wherever all views allow it. All have one rank; an extent of 1
// beside a larger one is a broadcast.
void gos_views_merge(gos_view_t **views, size_t count);
// The same for dimensions first..last of all views, into one; false, and nothing changed, where
// that cannot be.
bool gos_views_merge_range(gos_view_t **views, size_t count, int first, int last);

// Views of MLIR values.
typedef struct gos_binding {
  const void *key;
  gos_view_t view;
} gos_binding_t;
typedef struct gos_bindings {
  gos_binding_t *slots; // open addressing, a power of two
  size_t count, room;
} gos_bindings_t;
void gos_bindings_add(gos_arena_t *arena, gos_bindings_t *bindings, MlirValue value,
                      gos_view_t view);
gos_view_t *gos_bindings_find(const gos_bindings_t *bindings, MlirValue value); // NULL if none

#endif // GOS_PASSES_VIEWS_H_
