// cpu_units.h: one unit of each operator kind, in plain C.
//
// Called by cpu.c, for one unit at a time, from any number of threads at once: a unit reads and
// writes only its operands, its accumulators and its scratch. Semantics are those of gpuos_kind_t.
// Sums have one fixed order, so that a result does not depend on tiles, threads or parking.
#ifndef GPUOS_CPU_UNITS_H_
#define GPUOS_CPU_UNITS_H_

#include <stdbool.h>

#include "cpu_dtype.h"
#include "gpuos_abi.h"

enum {
  GOS_LANES = 16,  // partial sums of a reduction: element k goes to lane k % 16
  GOS_STRIP = 256, // elements an expression is evaluated over at once
};

typedef struct gos_unit {
  const gpuos_op_t *op;
  const gpuos_operand_t *operands; // op->operand_count of them
  const gpuos_code_t *code;        // op->code_count of them
  void *const *buffers;
  gpuos_box_t box;   // the tile's, with dimension 3 cut to this slice; may be empty there
  bool first, last;  // slice of its tile
  float *accs;       // MATMUL: f32 [j, tile m, tile n], kept from slice to slice
  float *scratch;    // gos_unit_scratch_floats of them, 64-byte aligned
  uint32_t fault[3]; // when the unit returns false: a, b, c of GPUOS_FAULT_INDEX
} gos_unit_t;

// Run one unit. False: an index read from data lies outside its table, and fault says which.
bool gos_unit_matmul(gos_unit_t *unit);
bool gos_unit_map(gos_unit_t *unit);
bool gos_unit_rmsnorm(gos_unit_t *unit);
bool gos_unit_softmax(gos_unit_t *unit);
bool gos_unit_embedding(gos_unit_t *unit);
bool gos_unit_rope(gos_unit_t *unit);
bool gos_unit_kv_append(gos_unit_t *unit);
bool gos_unit_attention(gos_unit_t *unit);
bool gos_unit_attention_combine(gos_unit_t *unit);
bool gos_unit_argmax(gos_unit_t *unit);

bool gos_unit_run(gos_unit_t *unit); // the one of unit->op->kind

// Slice `slice` of tile `index` of an operator: everything but accumulators and scratch.
gos_unit_t gos_unit_make(const gpuos_table_t *table, void *const *buffers, const gpuos_tile_t *tile,
                         uint32_t slice);

// Floats that any tile of an operator needs: accumulators (kept between units), and scratch.
size_t gos_unit_acc_floats(const gpuos_op_t *op, const gpuos_operand_t *operands);
size_t gos_unit_scratch_floats(const gpuos_op_t *op, const gpuos_operand_t *operands);
size_t gos_matmul_acc_floats(const gpuos_op_t *op, const gpuos_operand_t *operands);
// Turns the pairs of a head by `rotation`, its cosines and then its sines; neighbours: pair i is elements
// 2i and 2i + 1, not i and i + head_dim / 2.
void gos_rotate(float *row, uint32_t head_dim, bool neighbours, const float *rotation);

size_t gos_matmul_scratch_floats(const gpuos_op_t *op);
size_t gos_attention_scratch_floats(const gpuos_op_t *op);

// ---- operands -----------------------------------------------------------------------------------

// An operand, addressed by iteration point; dimensions read whole keep their operand's strides.
typedef struct gos_view {
  const gpuos_operand_t *x; // NULL: the operator lacks it
  uint8_t *data;
  uint32_t dtype, bytes;     // of one element
  uint64_t step[GPUOS_DIMS]; // elements an iteration dimension moves by
} gos_view_t;

// The nth operand of a role.
gos_view_t gos_view_nth(const gos_unit_t *unit, gpuos_as_t as, uint32_t nth);
static inline gos_view_t gos_view(const gos_unit_t *unit, gpuos_as_t as) {
  return gos_view_nth(unit, as, 0);
}

// Its operand record, or NULL.
const gpuos_operand_t *gos_find_operand(const gpuos_op_t *op, const gpuos_operand_t *operands,
                                        gpuos_as_t as, uint32_t nth);

static inline uint8_t *gos_element(const gos_view_t *view, uint64_t element) {
  return view->data + element * view->bytes;
}

static inline uint8_t *gos_at(const gos_view_t *view, const uint32_t at[GPUOS_DIMS]) {
  uint64_t element = 0;
  for (int d = 0; d < GPUOS_DIMS; d++) element += at[d] * view->step[d];
  return gos_element(view, element);
}

static inline int32_t gos_index(const gos_view_t *view, uint64_t element) {
  int32_t index;
  memcpy(&index, gos_element(view, element), sizeof index);
  return index;
}

// Records an index out of range and returns false.
bool gos_unit_fault(gos_unit_t *unit, gpuos_as_t as, int32_t index, uint32_t limit);

static inline float gos_param_f32(const gpuos_op_t *op, int number) {
  return gos_bits_float(op->params[number]);
}

// Steps `at` through dimensions 0..dims-1 of a box, the last one fastest; false after the last.
bool gos_box_next(const gpuos_box_t *box, int dims, uint32_t at[GPUOS_DIMS]);

// ---- reductions ---------------------------------------------------------------------------------

// Sum of a[i] * b[i] in the one fixed order: lane i % 16, then the lanes in a tree.
float gos_dot(const float *a, const float *b, uint32_t count);

// x = round(x / rms(x)) * norm; the product is left for the caller to round.
void gos_normalise(float *x, uint32_t count, float eps, uint32_t dtype, const gos_view_t *norm);

// ---- pointwise expressions ----------------------------------------------------------------------

typedef struct gos_pointwise {
  const gos_unit_t *unit;
  gos_view_t out, inputs[GPUOS_MAX_OPERANDS];
  uint32_t input_count;
  int dim;       // the iteration dimension that strips run along
  float *values; // one strip for each instruction
} gos_pointwise_t;

gos_pointwise_t gos_pointwise_make(const gos_unit_t *unit, int dim, float *scratch);
size_t gos_pointwise_floats(const gpuos_op_t *op);

// Computes `count` (at most GOS_STRIP) results from `at` on and stores them. accs: where the
// strip's accumulators lie, NULL where the operator has none.
void gos_pointwise_strip(const gos_pointwise_t *pointwise, const uint32_t at[GPUOS_DIMS],
                         uint32_t count, const float *const accs[2]);

#endif // GPUOS_CPU_UNITS_H_
