// cpu_pointwise.c: the expression interpreter, alone (MAP) and as the epilogue of a matmul.
//
// One instruction at a time over a whole strip: the cost of decoding is paid once in 256 elements
// and each loop vectorises.
#include "cpu_units.h"

#include <math.h>

size_t gos_pointwise_floats(const gpuos_op_t *op) {
  return (op->code_count ? op->code_count : 1u) * (size_t)GOS_STRIP;
}

gos_pointwise_t gos_pointwise_make(const gos_unit_t *unit, int dim, float *scratch) {
  gos_pointwise_t p = {.unit = unit, .dim = dim, .values = scratch};
  p.out = gos_view(unit, GPUOS_AS_OUT);
  for (uint32_t i = 0; i < GPUOS_MAX_OPERANDS; i++) {
    p.inputs[i] = gos_view_nth(unit, GPUOS_AS_EXTRA, i);
    if (p.inputs[i].x == NULL) break;
    p.input_count++;
  }
  return p;
}

static void load_input(const gos_pointwise_t *p, uint32_t number, const uint32_t at[GPUOS_DIMS],
                       uint32_t count, float *out) {
  const gos_view_t *input = &p->inputs[number];
  gos_load_f32(input->dtype, gos_at(input, at), input->step[p->dim], count, out);
}

#define EACH(expression)                                                                           \
  for (uint32_t i = 0; i < count; i++) out[i] = (expression);                                      \
  break

// An instruction leaves alone what it does not read: a or b may be NULL then.
static GOS_WIDE void compute(const gpuos_code_t *code, uint32_t count, const float *a,
                             const float *b, float *out) {
  switch (code->op) {
  case GPUOS_CODE_CONST: EACH(code->imm);
  case GPUOS_CODE_ADD: EACH(a[i] + b[i]);
  case GPUOS_CODE_SUB: EACH(a[i] - b[i]);
  case GPUOS_CODE_MUL: EACH(a[i] * b[i]);
  case GPUOS_CODE_DIV: EACH(a[i] / b[i]);
  case GPUOS_CODE_MAX: EACH(a[i] > b[i] || b[i] != b[i] ? a[i] : b[i]);
  case GPUOS_CODE_MIN: EACH(a[i] < b[i] || b[i] != b[i] ? a[i] : b[i]);
  case GPUOS_CODE_NEG: EACH(-a[i]);
  case GPUOS_CODE_ABS: EACH(fabsf(a[i]));
  case GPUOS_CODE_EXP: EACH(expf(a[i]));
  case GPUOS_CODE_LOG: EACH(logf(a[i]));
  case GPUOS_CODE_SQRT: EACH(sqrtf(a[i]));
  case GPUOS_CODE_RSQRT: EACH(1.0f / sqrtf(a[i]));
  case GPUOS_CODE_TANH: EACH(tanhf(a[i]));
  case GPUOS_CODE_ERF: EACH(erff(a[i]));
  default: break;
  }
}

static void round_to(uint32_t dtype, uint32_t count, const float *a, float *out) {
  memcpy(out, a, count * sizeof *out);
  gos_round_f32(dtype, count, out);
}

static bool reads_a(const gpuos_code_t *code) { return code->op != GPUOS_CODE_CONST; }

static bool reads_b(const gpuos_code_t *code) {
  return code->op >= GPUOS_CODE_ADD && code->op <= GPUOS_CODE_MIN;
}

// The last value of the expression over the strip.
static const float *evaluate(const gos_pointwise_t *p, const uint32_t at[GPUOS_DIMS],
                             uint32_t count, const float *const accs[2]) {
  const float *values[GPUOS_MAX_CODE];
  uint32_t code_count = p->unit->op->code_count;
  for (uint32_t v = 0; v < code_count; v++) {
    const gpuos_code_t *code = &p->unit->code[v];
    float *out = p->values + (size_t)v * GOS_STRIP;
    values[v] = out;
    if (code->op == GPUOS_CODE_ACC)
      values[v] = accs[code->a];
    else if (code->op == GPUOS_CODE_INPUT)
      load_input(p, code->a, at, count, out);
    else if (code->op == GPUOS_CODE_ROUND)
      round_to(code->b, count, values[code->a], out);
    else
      compute(code, count, reads_a(code) ? values[code->a] : NULL,
              reads_b(code) ? values[code->b] : NULL, out);
  }
  return values[code_count - 1];
}

// Without an expression a MAP moves elements; between equal dtypes bit by bit.
static const float *identity(const gos_pointwise_t *p, const uint32_t at[GPUOS_DIMS],
                             uint32_t count, const float *const accs[2]) {
  if (accs[0] != NULL) return accs[0];
  load_input(p, 0, at, count, p->values);
  return p->values;
}

static void move_i32(const gos_pointwise_t *p, const uint32_t at[GPUOS_DIMS], uint32_t count) {
  const int32_t *in = (const int32_t *)(void *)gos_at(&p->inputs[0], at);
  int32_t *out = (int32_t *)(void *)gos_at(&p->out, at);
  for (uint32_t i = 0; i < count; i++)
    out[i * p->out.step[p->dim]] = in[i * p->inputs[0].step[p->dim]];
}

void gos_pointwise_strip(const gos_pointwise_t *p, const uint32_t at[GPUOS_DIMS], uint32_t count,
                         const float *const accs[2]) {
  bool bare = p->unit->op->code_count == 0;
  // floats hold integers only up to 2^24
  if (bare && accs[0] == NULL && p->out.dtype == GPUOS_I32 && p->inputs[0].dtype == GPUOS_I32) {
    move_i32(p, at, count);
    return;
  }
  const float *result = bare ? identity(p, at, count, accs) : evaluate(p, at, count, accs);
  gos_store_f32(p->out.dtype, gos_at(&p->out, at), p->out.step[p->dim], count, result);
}

// Strips run along the last dimension unless it is too short to pay for them.
static int strip_dim(const gpuos_box_t *box) {
  int widest = GPUOS_DIMS - 1;
  if (box->n[widest] >= GOS_LANES) return widest;
  for (int d = GPUOS_DIMS - 1; d >= 0; d--)
    if (box->n[d] > box->n[widest]) widest = d;
  return widest;
}

bool gos_unit_map(gos_unit_t *unit) {
  int dim = strip_dim(&unit->box);
  gos_pointwise_t p = gos_pointwise_make(unit, dim, unit->scratch);
  const float *const no_accs[2] = {NULL, NULL};
  gpuos_box_t rows = unit->box;
  uint32_t end = rows.lo[dim] + rows.n[dim];
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (rows.n[d] == 0) return true;
  rows.n[dim] = 1;
  uint32_t at[GPUOS_DIMS];
  memcpy(at, rows.lo, sizeof at);
  do {
    for (at[dim] = rows.lo[dim]; at[dim] < end; at[dim] += GOS_STRIP) {
      uint32_t rest = end - at[dim];
      gos_pointwise_strip(&p, at, rest < GOS_STRIP ? rest : GOS_STRIP, no_accs);
    }
    at[dim] = rows.lo[dim];
  } while (gos_box_next(&rows, GPUOS_DIMS, at));
  return true;
}
