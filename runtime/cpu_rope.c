// cpu_rope.c: ROPE, rotary position embedding, frequencies as in Hugging Face's
// modeling_rope_utils: angle = position * inverse frequency, both floats.
#include "cpu_units.h"

#include <math.h>

enum { SCALE_NONE, SCALE_LINEAR, SCALE_LLAMA3 }; // params[2]

// Llama 3: long wavelengths are stretched by the factor, short ones stay, those between blend.
static double scale_llama3(const gpuos_op_t *op, double frequency) {
  double factor = gos_param_f32(op, 3), low = gos_param_f32(op, 4), high = gos_param_f32(op, 5);
  double context = gos_param_f32(op, 6), wavelength = 2 * 3.14159265358979323846 / frequency;
  if (wavelength < context / high) return frequency;
  if (wavelength > context / low) return frequency / factor;
  double smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

static float inverse_frequency(const gpuos_op_t *op, uint32_t pair, uint32_t head_dim) {
  double frequency = pow(gos_param_f32(op, 0), -2.0 * pair / head_dim);
  if (op->params[2] == SCALE_LINEAR) frequency /= gos_param_f32(op, 3);
  if (op->params[2] == SCALE_LLAMA3) frequency = scale_llama3(op, frequency);
  return (float)frequency;
}

typedef struct rotation {
  uint32_t pairs;
  bool neighbours;      // pair i is elements 2i and 2i + 1, not i and i + pairs
  float *cosine, *sine; // [pairs]
  float *row;           // [2 * pairs]
} rotation_t;

static rotation_t make_rotation(const gos_unit_t *unit, uint32_t head_dim) {
  rotation_t r = {.pairs = head_dim / 2, .neighbours = unit->op->params[1] == 1};
  r.cosine = unit->scratch;
  r.sine = r.cosine + r.pairs;
  r.row = r.sine + r.pairs;
  return r;
}

static void set_angle(const rotation_t *r, const gpuos_op_t *op, int32_t position) {
  for (uint32_t i = 0; i < r->pairs; i++) {
    float angle = (float)position * inverse_frequency(op, i, 2 * r->pairs);
    r->cosine[i] = cosf(angle);
    r->sine[i] = sinf(angle);
  }
}

void gos_rotate(float *row, uint32_t head_dim, bool neighbours, const float *rotation) {
  uint32_t pairs = head_dim / 2;
  for (uint32_t i = 0; i < pairs; i++) {
    float *a = row + (neighbours ? 2 * i : i), *b = a + (neighbours ? 1 : pairs);
    float x = *a, y = *b, cosine = rotation[i], sine = rotation[pairs + i];
    *a = x * cosine - y * sine;
    *b = y * cosine + x * sine;
  }
}

bool gos_unit_rope(gos_unit_t *unit) {
  gos_view_t x = gos_view(unit, GPUOS_AS_X), pos = gos_view(unit, GPUOS_AS_POS);
  gos_view_t out = gos_view(unit, GPUOS_AS_OUT);
  uint32_t head_dim = out.x->extent[3];
  rotation_t r = make_rotation(unit, head_dim);
  const gpuos_box_t *box = &unit->box;
  for (uint32_t row = box->lo[1]; row < box->lo[1] + box->n[1]; row++) {
    int32_t position = gos_index(&pos, row * pos.step[1]);
    set_angle(&r, unit->op, position < 0 ? 0 : position);
    for (uint32_t head = box->lo[2]; head < box->lo[2] + box->n[2]; head++) {
      const uint32_t at[GPUOS_DIMS] = {0, row, head, 0};
      const float *from = x.x == NULL ? r.cosine : r.row; // the sines follow
      if (x.x != NULL) gos_load_f32(x.dtype, gos_at(&x, at), x.x->stride[3], head_dim, r.row);
      if (x.x != NULL && position >= 0) gos_rotate(r.row, head_dim, r.neighbours, r.cosine);
      gos_store_f32(out.dtype, gos_at(&out, at), out.x->stride[3], head_dim, from);
    }
  }
  return true;
}
