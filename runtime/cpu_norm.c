// cpu_norm.c: the operators that reduce one whole row: RMSNORM, SOFTMAX, ARGMAX.
#include "cpu_units.h"

#include <math.h>

// Row `at` of X as floats in scratch.
static float *load_row(const gos_unit_t *unit, const gos_view_t *x, const uint32_t at[GPUOS_DIMS]) {
  const gpuos_operand_t *o = x->x;
  gos_load_f32(x->dtype, gos_at(x, at), o->stride[3], o->extent[3], unit->scratch);
  return unit->scratch;
}

static void store_row(const gos_view_t *out, const uint32_t at[GPUOS_DIMS], const float *row) {
  const gpuos_operand_t *o = out->x;
  gos_store_f32(out->dtype, gos_at(out, at), o->stride[3], o->extent[3], row);
}

bool gos_unit_rmsnorm(gos_unit_t *unit) {
  gos_view_t x = gos_view(unit, GPUOS_AS_X), norm = gos_view(unit, GPUOS_AS_NORM);
  gos_view_t out = gos_view(unit, GPUOS_AS_OUT);
  float eps = gos_param_f32(unit->op, 0);
  uint32_t at[GPUOS_DIMS];
  memcpy(at, unit->box.lo, sizeof at);
  do {
    float *row = load_row(unit, &x, at);
    gos_normalise(row, x.x->extent[3], eps, x.dtype, &norm);
    store_row(&out, at, row);
  } while (gos_box_next(&unit->box, GPUOS_DIMS, at));
  return true;
}

// Sum of x in the one fixed order.
static float sum(const float *x, uint32_t count) {
  float lanes[GOS_LANES] = {0};
  for (uint32_t k = 0; k < count; k++) lanes[k % GOS_LANES] += x[k];
  for (uint32_t half = GOS_LANES / 2; half > 0; half /= 2)
    for (uint32_t l = 0; l < half; l++) lanes[l] += lanes[l + half];
  return lanes[0];
}

static void softmax(float *x, uint32_t count) {
  float largest = -INFINITY;
  for (uint32_t k = 0; k < count; k++) largest = x[k] > largest ? x[k] : largest;
  for (uint32_t k = 0; k < count; k++) x[k] = expf(x[k] - largest);
  float total = sum(x, count);
  for (uint32_t k = 0; k < count; k++) x[k] /= total;
}

bool gos_unit_softmax(gos_unit_t *unit) {
  gos_view_t x = gos_view(unit, GPUOS_AS_X), out = gos_view(unit, GPUOS_AS_OUT);
  uint32_t at[GPUOS_DIMS];
  memcpy(at, unit->box.lo, sizeof at);
  do {
    float *row = load_row(unit, &x, at);
    softmax(row, x.x->extent[3]);
    store_row(&out, at, row);
  } while (gos_box_next(&unit->box, GPUOS_DIMS, at));
  return true;
}

// A row of nothing but NaN gives 0.
static int32_t largest_index(const float *x, uint32_t count) {
  uint32_t best = 0;
  while (best < count && isnan(x[best])) best++;
  if (best == count) return 0;
  for (uint32_t k = best + 1; k < count; k++)
    if (x[k] > x[best]) best = k;
  return (int32_t)best;
}

bool gos_unit_argmax(gos_unit_t *unit) {
  gos_view_t x = gos_view(unit, GPUOS_AS_X), out = gos_view(unit, GPUOS_AS_OUT);
  uint32_t at[GPUOS_DIMS];
  memcpy(at, unit->box.lo, sizeof at);
  do {
    int32_t best = largest_index(load_row(unit, &x, at), x.x->extent[3]);
    memcpy(gos_at(&out, at), &best, sizeof best);
  } while (gos_box_next(&unit->box, GPUOS_DIMS, at));
  return true;
}
