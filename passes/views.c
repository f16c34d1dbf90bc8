// views.c: arithmetic of strided views.
#include "views.h"

#include <string.h>

gos_view_t gos_view_dense(uint32_t value, const gos_shape_t *shape) {
  gos_view_t view = {.value = value, .dtype = shape->dtype, .rank = shape->rank};
  int64_t stride = 1;
  for (int d = shape->rank - 1; d >= 0; d--) {
    view.extent[d] = shape->dim[d];
    view.stride[d] = stride;
    stride *= shape->dim[d];
  }
  return view;
}

bool gos_view_same(const gos_view_t *a, const gos_view_t *b) {
  if (a->value != b->value || a->dtype != b->dtype || a->offset != b->offset || a->rank != b->rank)
    return false;
  for (int d = 0; d < a->rank; d++)
    if (a->extent[d] != b->extent[d] || (a->extent[d] > 1 && a->stride[d] != b->stride[d]))
      return false;
  return true;
}

void gos_view_swap(gos_view_t *view, int a, int b) {
  int64_t extent = view->extent[a], stride = view->stride[a];
  view->extent[a] = view->extent[b], view->stride[a] = view->stride[b];
  view->extent[b] = extent, view->stride[b] = stride;
}

static void remove_dim(gos_view_t *view, int dim) {
  view->rank--;
  for (int d = dim; d < view->rank; d++)
    view->extent[d] = view->extent[d + 1], view->stride[d] = view->stride[d + 1];
}

static void insert_dim(gos_view_t *view, int dim, int64_t extent, int64_t stride) {
  for (int d = view->rank; d > dim; d--)
    view->extent[d] = view->extent[d - 1], view->stride[d] = view->stride[d - 1];
  view->rank++;
  view->extent[dim] = extent, view->stride[dim] = stride;
}

void gos_view_drop(gos_view_t *view, int dim) { remove_dim(view, dim); }
void gos_view_unsqueeze(gos_view_t *view) { insert_dim(view, 0, 1, 0); }

void gos_view_split(gos_view_t *view, int dim, int64_t inner) {
  insert_dim(view, dim, view->extent[dim] / inner, view->stride[dim] * inner);
  view->extent[dim + 1] = inner;
}

// Dimension d and the one after it are one run of equal steps.
static bool neighbours(const gos_view_t *view, int d) {
  return view->extent[d] == 1 || view->extent[d + 1] == 1 ||
         view->stride[d] == view->stride[d + 1] * view->extent[d + 1];
}

static void merge_pair(gos_view_t *view, int d) {
  int64_t stride = view->extent[d + 1] == 1 ? view->stride[d] : view->stride[d + 1];
  view->extent[d] *= view->extent[d + 1];
  view->stride[d] = stride;
  remove_dim(view, d + 1);
}

bool gos_view_merge(gos_view_t *view, int first, int last) {
  gos_view_t merged = *view;
  for (int d = last - 1; d >= first; d--) {
    if (!neighbours(&merged, d)) return false;
    merge_pair(&merged, d);
  }
  *view = merged;
  return true;
}

bool gos_view_can_merge(const gos_view_t *view, int first, int last) {
  gos_view_t copy = *view;
  return gos_view_merge(&copy, first, last);
}

void gos_view_broadcast(gos_view_t *view, const gos_view_t *to) {
  while (view->rank < to->rank) gos_view_unsqueeze(view);
  while (view->rank > to->rank) remove_dim(view, 0); // a scale may have ones to spare
}

// Two neighbours merge in one view if they are a run there, or if both repeat, or neither varies.
static bool all_merge(gos_view_t **views, size_t count, int d) {
  for (size_t i = 0; i < count; i++) {
    const gos_view_t *v = views[i], *out = views[0];
    bool repeats[2] = {v->extent[d] < out->extent[d], v->extent[d + 1] < out->extent[d + 1]};
    if (repeats[0] && repeats[1]) continue;
    // A repeated dimension next to one that varies cannot be one step, unless the other is a single
    // index.
    if (repeats[0] && out->extent[d + 1] != 1) return false;
    if (repeats[1] && out->extent[d] != 1) return false;
    if (!repeats[0] && !repeats[1] && !neighbours(v, d)) return false;
  }
  return true;
}

void gos_views_merge(gos_view_t **views, size_t count) {
  for (int d = views[0]->rank - 2; d >= 0; d--)
    if (all_merge(views, count, d))
      for (size_t i = 0; i < count; i++) merge_pair(views[i], d);
}

bool gos_views_merge_range(gos_view_t **views, size_t count, int first, int last) {
  for (int pass = 0; pass < 2; pass++) { // first on copies, to see whether it can be
    gos_view_t copies[GPUOS_MAX_OPERANDS], *at[GPUOS_MAX_OPERANDS];
    for (size_t i = 0; i < count; i++) copies[i] = *views[i], at[i] = pass ? views[i] : &copies[i];
    for (int d = last - 1; d >= first; d--) {
      if (!all_merge(at, count, d)) return false;
      for (size_t i = 0; i < count; i++) merge_pair(at[i], d);
    }
  }
  return true;
}

// ---- bindings -----------------------------------------------------------------------------------

static gos_binding_t *slot_of(const gos_bindings_t *bindings, const void *key) {
  size_t at = ((uintptr_t)key >> 4) * 0x9e3779b97f4a7c15u >> 20 & (bindings->room - 1);
  while (bindings->slots[at].key && bindings->slots[at].key != key)
    at = (at + 1) & (bindings->room - 1);
  return &bindings->slots[at];
}

static void put(gos_bindings_t *bindings, const void *key, gos_view_t view) {
  gos_binding_t *slot = slot_of(bindings, key);
  bindings->count += slot->key == NULL;
  *slot = (gos_binding_t){key, view};
}

void gos_bindings_add(gos_arena_t *arena, gos_bindings_t *bindings, MlirValue value,
                      gos_view_t view) {
  if (2 * (bindings->count + 1) > bindings->room) {
    gos_bindings_t larger = {.room = bindings->room ? 2 * bindings->room : 64};
    larger.slots = gos_alloc(arena, larger.room * sizeof *larger.slots);
    for (size_t i = 0; i < bindings->room; i++)
      if (bindings->slots[i].key) put(&larger, bindings->slots[i].key, bindings->slots[i].view);
    *bindings = larger;
  }
  put(bindings, value.ptr, view);
}

gos_view_t *gos_bindings_find(const gos_bindings_t *bindings, MlirValue value) {
  if (!bindings->room) return NULL;
  gos_binding_t *slot = slot_of(bindings, value.ptr);
  return slot->key ? &slot->view : NULL;
}
