// cpu_matmul.c: MATMUL, one slice of k of one tile.
//
// Decoding is this operator with one row of X: its speed is that of reading W from memory. So W is
// read row by row, in storage format, and widened in registers; X is widened once a unit.
//
// The order of every sum: k is cut at multiples of 256 and at the slice's ends; a piece is summed
// in 16 lanes and the lanes in a tree; pieces are added in order. Slices that are multiples of 256
// thus leave the result as it is.
#include "cpu_units.h"

enum {
  PIECE = 256,     // elements of k summed in lanes before they join the accumulator
  ROW_BLOCK = 32,  // rows of X held as floats, each read again for every row of W
  ROW_GROUP = 4,   // rows of X that share one pass over a piece of W
  PREFETCH = 2048, // bytes ahead; measured on an EPYC core: 8.7 GB/s at 512, 10.7 at 2048
};

typedef float lanes_t __attribute__((vector_size(32)));
typedef float packed_floats_t __attribute__((vector_size(32), aligned(1), may_alias));
typedef uint32_t packed_words_t __attribute__((vector_size(32), aligned(1), may_alias));

// Lanes as they lie in registers: of packed bf16 the even elements of a group of 16, then the odd
// ones, because it widens like that without a shuffle; of floats the lower eight, then the upper.
// Macros, because a function that returns a vector has another ABI in each clone.
#define FLOATS(x)       (*(const packed_floats_t *)(const void *)(x))
#define FLOATS_UPPER(x) FLOATS((x) + 8)
#define BF16_EVEN(w)    ((lanes_t)(*(const packed_words_t *)(const void *)(w) << 16))
#define BF16_ODD(w)     ((lanes_t)(*(const packed_words_t *)(const void *)(w)&0xffff0000u))

static inline float sum_lanes(const lanes_t *first, const lanes_t *second) {
  lanes_t s = *first + *second;
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// One row of X with one piece of a row of W; count is a multiple of 16.
#define DOT_1(name, type, first, second)                                                           \
  static GOS_WIDE float name(const float *x, const type *w, uint32_t count) {                      \
    lanes_t e = {0}, o = {0};                                                                      \
    for (uint32_t k = 0; k < count; k += GOS_LANES) {                                              \
      e += FLOATS(x + k) * first(w + k);                                                           \
      o += FLOATS(x + k + 8) * second(w + k);                                                      \
      if (k % 32 == 0) __builtin_prefetch((const char *)(w + k) + PREFETCH);                       \
    }                                                                                              \
    return sum_lanes(&e, &o);                                                                      \
  }

// Four rows of X, `pitch` floats apart: the same sums, for one pass over w.
#define DOT_4(name, type, first, second)                                                           \
  static GOS_WIDE void name(const float *x, size_t pitch, const type *w, uint32_t count,           \
                            float out[ROW_GROUP]) {                                                \
    lanes_t e0 = {0}, e1 = {0}, e2 = {0}, e3 = {0}, o0 = {0}, o1 = {0}, o2 = {0}, o3 = {0};        \
    for (uint32_t k = 0; k < count; k += GOS_LANES) {                                              \
      lanes_t we = first(w + k), wo = second(w + k);                                               \
      const float *xk = x + k;                                                                     \
      e0 += FLOATS(xk) * we, o0 += FLOATS(xk + 8) * wo;                                            \
      e1 += FLOATS(xk + pitch) * we, o1 += FLOATS(xk + pitch + 8) * wo;                            \
      e2 += FLOATS(xk + 2 * pitch) * we, o2 += FLOATS(xk + 2 * pitch + 8) * wo;                    \
      e3 += FLOATS(xk + 3 * pitch) * we, o3 += FLOATS(xk + 3 * pitch + 8) * wo;                    \
    }                                                                                              \
    out[0] = sum_lanes(&e0, &o0), out[1] = sum_lanes(&e1, &o1);                                    \
    out[2] = sum_lanes(&e2, &o2), out[3] = sum_lanes(&e3, &o3);                                    \
  }

DOT_1(dot_1_bf16, uint16_t, BF16_EVEN, BF16_ODD)
DOT_4(dot_4_bf16, uint16_t, BF16_EVEN, BF16_ODD)
DOT_1(dot_1_f32, float, FLOATS, FLOATS_UPPER)
DOT_4(dot_4_f32, float, FLOATS, FLOATS_UPPER)

// What a unit works with: the k of its slice, and X as floats for ROW_BLOCK rows at a time.
typedef struct slice {
  const gos_unit_t *unit;
  gos_view_t x, norm, w[2];
  uint32_t w_count;
  bool paired; // W is bf16: lanes of X are ordered as packed bf16 widens
  uint64_t x_step_k;
  uint32_t k, k_count;
  size_t pitch;   // floats of one row in rows
  float *rows;    // [ROW_BLOCK][pitch], zero beyond k_count
  float *weights; // [PIECE]: a piece of W that had to be copied to lie packed
  float *row;     // [pitch]
} slice_t;

static size_t row_pitch(uint32_t k_count) { return (k_count + GOS_LANES - 1u) & ~15u; }

static uint32_t slice_extent(const gpuos_op_t *op) {
  uint32_t k = op->slice != 0 && op->slice < op->tile[3] ? op->slice : op->tile[3];
  return k < op->extent[3] ? k : op->extent[3];
}

static uint32_t clipped(const gpuos_op_t *op, int dim) {
  return op->tile[dim] < op->extent[dim] ? op->tile[dim] : op->extent[dim];
}

static size_t rows_of_x(const gpuos_op_t *op) {
  uint32_t m = (clipped(op, 1) + ROW_GROUP - 1) / ROW_GROUP * ROW_GROUP;
  return m < ROW_BLOCK ? m : ROW_BLOCK;
}

size_t gos_matmul_acc_floats(const gpuos_op_t *op, const gpuos_operand_t *operands) {
  size_t j = gos_find_operand(op, operands, GPUOS_AS_W1, 0) == NULL ? 1 : 2;
  return j * clipped(op, 0) * clipped(op, 1) * clipped(op, 2);
}

size_t gos_matmul_scratch_floats(const gpuos_op_t *op) {
  return (rows_of_x(op) + 1) * row_pitch(slice_extent(op)) + PIECE + gos_pointwise_floats(op);
}

// Elements that move by k: the dimension that follows 3, or the last one when it is read whole.
static uint64_t step_k(const gos_view_t *view) {
  return view->x->follows[3] == GPUOS_ALL ? view->x->stride[3] : view->step[3];
}

static slice_t make_slice(const gos_unit_t *unit) {
  slice_t s = {.unit = unit, .k = unit->box.lo[3], .k_count = unit->box.n[3]};
  s.x = gos_view(unit, GPUOS_AS_X);
  s.norm = gos_view(unit, GPUOS_AS_NORM);
  s.w[0] = gos_view(unit, GPUOS_AS_W0);
  s.w[1] = gos_view(unit, GPUOS_AS_W1);
  s.w_count = s.w[1].x == NULL ? 1 : 2;
  s.paired = s.w[0].dtype == GPUOS_BF16 && (s.w_count == 1 || s.w[1].dtype == GPUOS_BF16);
  s.x_step_k = step_k(&s.x);
  s.pitch = row_pitch(s.k_count);
  s.weights = unit->scratch + gos_pointwise_floats(unit->op);
  s.row = s.weights + PIECE;
  s.rows = s.row + s.pitch;
  return s;
}

static GOS_WIDE void pair_lanes(const float *row, size_t count, float *out) {
  for (size_t k = 0; k < count; k += GOS_LANES)
    for (size_t l = 0; l < 8; l++) {
      out[k + l] = row[k + 2 * l];
      out[k + 8 + l] = row[k + 2 * l + 1];
    }
}

// Row m of X as floats in out, normalised if the operator says so.
static void load_row(const slice_t *s, uint32_t batch, uint32_t m, float *out) {
  const uint32_t at[GPUOS_DIMS] = {batch, m, 0, 0};
  const uint8_t *source = gos_at(&s->x, at) + s->k * s->x_step_k * s->x.bytes;
  float *row = s->paired ? s->row : out;
  gos_load_f32(s->x.dtype, source, s->x_step_k, s->k_count, row);
  if (s->norm.x != NULL) {
    gos_normalise(row, s->k_count, gos_param_f32(s->unit->op, 0), s->x.dtype, &s->norm);
    gos_round_f32(s->w[0].dtype, s->k_count, row);
  }
  for (size_t k = s->k_count; k < s->pitch; k++) row[k] = 0;
  if (s->paired) pair_lanes(row, s->pitch, out);
}

// A piece of W packed in s->weights: bf16 as it is, the others as floats; zeros fill the last group
// of 16.
static const void *copy_piece(const slice_t *s, const gos_view_t *w, const uint8_t *source,
                              uint64_t step, uint32_t count) {
  uint32_t padded = (uint32_t)row_pitch(count);
  if (s->paired) {
    uint16_t *out = (uint16_t *)(void *)s->weights;
    for (uint32_t k = 0; k < count; k++)
      memcpy(out + k, source + k * step * sizeof *out, sizeof *out);
    for (uint32_t k = count; k < padded; k++) out[k] = 0;
  } else {
    gos_load_f32(w->dtype, source, step, count, s->weights);
    for (uint32_t k = count; k < padded; k++) s->weights[k] = 0;
  }
  return s->weights;
}

// Adds one piece of one row of W to the accumulators of `m_count` rows, `acc_pitch` floats apart.
static void add_piece(const slice_t *s, const float *x, const void *w, uint32_t count,
                      uint32_t m_count, float *acc, size_t acc_pitch) {
  for (uint32_t m = 0; m < m_count; m += ROW_GROUP, x += ROW_GROUP * s->pitch) {
    float sums[ROW_GROUP];
    if (m_count == 1)
      sums[0] = s->paired ? dot_1_bf16(x, w, count) : dot_1_f32(x, w, count);
    else if (s->paired)
      dot_4_bf16(x, s->pitch, w, count, sums);
    else
      dot_4_f32(x, s->pitch, w, count, sums);
    for (uint32_t i = 0; i < ROW_GROUP && m + i < m_count; i++) acc[(m + i) * acc_pitch] += sums[i];
  }
}

// Pieces end at multiples of 256 of k; a slice that starts off the lanes counts from its own start.
static uint32_t piece_count(const slice_t *s, uint32_t k) {
  uint32_t from = s->k % GOS_LANES == 0 ? s->k + k : k;
  uint32_t count = PIECE - from % PIECE;
  return count < s->k_count - k ? count : s->k_count - k;
}

// One row of W against m_count rows of X.
static void add_row(const slice_t *s, const gos_view_t *w, const uint8_t *source, uint32_t m_count,
                    float *acc, size_t acc_pitch) {
  uint64_t step = step_k(w);
  bool ready = (s->paired || w->dtype == GPUOS_F32) && step == 1;
  for (uint32_t k = 0, count; k < s->k_count; k += count) {
    count = piece_count(s, k);
    const uint8_t *at = source + (s->k + k) * step * w->bytes;
    bool in_place = ready && count % GOS_LANES == 0;
    const void *piece = in_place ? at : copy_piece(s, w, at, step, count);
    add_piece(s, s->rows + k, piece, (uint32_t)row_pitch(count), m_count, acc, acc_pitch);
  }
}

// Where the accumulators of W_j for row m of a batch lie: [batch, j, m, n] of the unit's box.
static float *acc_at(const slice_t *s, uint32_t batch, uint32_t j, uint32_t m) {
  const gpuos_box_t *box = &s->unit->box;
  size_t row = ((size_t)(batch - box->lo[0]) * s->w_count + j) * box->n[1] + (m - box->lo[1]);
  return s->unit->accs + row * box->n[2];
}

static void add_rows(const slice_t *s, uint32_t batch, uint32_t m, uint32_t m_count) {
  const gpuos_box_t *box = &s->unit->box;
  for (uint32_t i = 0; i < m_count; i++) load_row(s, batch, m + i, s->rows + i * s->pitch);
  for (uint32_t j = 0; j < s->w_count; j++)
    for (uint32_t n = 0; n < box->n[2]; n++) {
      const uint32_t at[GPUOS_DIMS] = {batch, 0, box->lo[2] + n, 0};
      add_row(s, &s->w[j], gos_at(&s->w[j], at), m_count, acc_at(s, batch, j, m) + n, box->n[2]);
    }
}

static void finish(const slice_t *s) {
  const gpuos_box_t *box = &s->unit->box;
  gos_pointwise_t p = gos_pointwise_make(s->unit, 2, s->unit->scratch);
  gpuos_box_t rows = *box;
  uint32_t at[GPUOS_DIMS] = {box->lo[0], box->lo[1], 0, 0};
  do {
    for (uint32_t n = 0; n < box->n[2]; n += GOS_STRIP) {
      uint32_t count = box->n[2] - n < GOS_STRIP ? box->n[2] - n : GOS_STRIP;
      const float *accs[2] = {acc_at(s, at[0], 0, at[1]) + n, NULL};
      if (s->w_count == 2) accs[1] = acc_at(s, at[0], 1, at[1]) + n;
      at[2] = box->lo[2] + n;
      gos_pointwise_strip(&p, at, count, accs);
    }
  } while (gos_box_next(&rows, 2, at));
}

bool gos_unit_matmul(gos_unit_t *unit) {
  slice_t s = make_slice(unit);
  const gpuos_box_t *box = &unit->box;
  size_t accs = (size_t)box->n[0] * s.w_count * box->n[1] * box->n[2];
  if (unit->first) memset(unit->accs, 0, accs * sizeof *unit->accs);
  for (uint32_t b = box->lo[0]; b < box->lo[0] + box->n[0]; b++)
    for (uint32_t m = 0; m < box->n[1]; m += ROW_BLOCK) {
      uint32_t rest = box->n[1] - m;
      add_rows(&s, b, box->lo[1] + m, rest < ROW_BLOCK ? rest : ROW_BLOCK);
    }
  if (unit->last) finish(&s);
  return true;
}
