// random_table.c: operators one after the other; a read names the value that its bytes hold if they
// all hold one when the operators run in order.
#include "random_table.h"

#include <stdbool.h>
#include <string.h>

enum { X, STATE, Y, WORK, BUFFERS, BYTES = 96, A = GPUOS_ALL, OPS = 8 };
static const uint32_t sizes[BUFFERS] = {64, 64, 32, BYTES};

typedef struct maker {
  gos_tables_t *t;
  uint32_t (*draw)(uint32_t);
  uint32_t value[BUFFERS][BYTES]; // GPUOS_NONE: undefined
  uint32_t counters[OPS][4], counter_count[OPS];
  uint32_t care; // of 8: how often an operator waits for an earlier one
} maker_t;

// A view of [rows, columns] that may be strided, transposed, broadcast or overlap itself.
static gpuos_operand_t draw_view(maker_t *m, uint32_t buffer, uint32_t rows, uint32_t columns,
                                 bool writes) {
  gpuos_dtype_t dtype = buffer != WORK || m->draw(4) ? GPUOS_F32 : GPUOS_BF16;
  uint32_t size = gpuos_dtype_bytes(dtype), inner = 1 + (m->draw(4) == 0);
  bool spread = !writes && m->draw(5) == 0, turned = m->draw(4) == 0;
  gpuos_operand_t x = gos_tables_view(writes ? GPUOS_AS_OUT : GPUOS_AS_EXTRA, dtype, buffer, 0,
                                      m->draw(sizes[buffer] / size) * size,
                                      (uint32_t[]){1, 1, spread ? 1 : rows, columns},
                                      (uint8_t[]){0, 1, (uint8_t)(spread ? A : 2), 3});
  uint32_t outer = inner * (turned ? rows : columns) + m->draw(3);
  x.stride[2] = turned ? inner : outer;
  x.stride[3] = turned ? outer : inner;
  if (m->draw(writes ? 24 : 6) == 0) x.stride[2 + m->draw(2)] = m->draw(3);
  return x;
}

// Whether the view lies inside its buffer; then *value is what all its bytes hold, or NONE.
static bool survey(const maker_t *m, const gpuos_operand_t *x, uint32_t *value) {
  uint32_t size = gpuos_dtype_bytes(x->dtype);
  bool same = true, first = true;
  for (uint32_t r = 0; r < x->extent[2]; r++)
    for (uint32_t c = 0; c < x->extent[3]; c++)
      for (uint32_t k = 0; k < size; k++) {
        uint64_t byte = x->offset_bytes + (r * x->stride[2] + c * x->stride[3]) * size + k;
        if (byte >= sizes[x->buffer]) return false;
        if (first) *value = m->value[x->buffer][byte];
        same = same && m->value[x->buffer][byte] == *value;
        first = false;
      }
  if (!same) *value = GPUOS_NONE;
  return true;
}

static void fill(maker_t *m, const gpuos_operand_t *x) {
  uint32_t size = gpuos_dtype_bytes(x->dtype);
  for (uint32_t r = 0; r < x->extent[2]; r++)
    for (uint32_t c = 0; c < x->extent[3]; c++)
      for (uint32_t k = 0; k < size; k++)
        m->value[x->buffer][x->offset_bytes + (r * x->stride[2] + c * x->stride[3]) * size + k] =
            x->value;
}

static bool add_write(maker_t *m, uint32_t rows, uint32_t columns, uint32_t buffer) {
  for (int tries = 0; tries < 30; tries++) {
    uint32_t was;
    gpuos_operand_t x = draw_view(m, buffer, rows, columns, true);
    if (!survey(m, &x, &was)) continue;
    bool again = m->draw(4) == 0 && m->t->header.value_count > BUFFERS;
    x.value = again ? m->t->header.value_count - 1 : gos_tables_add_value(m->t);
    gos_tables_add_operand(m->t, x, 1);
    return true;
  }
  return false;
}

static bool add_read(maker_t *m, uint32_t rows, uint32_t columns) {
  for (int tries = 0; tries < 60; tries++) {
    gpuos_operand_t x = draw_view(m, tries > 40 ? X : m->draw(BUFFERS), rows, columns, false);
    if (!survey(m, &x, &x.value) || x.value == GPUOS_NONE) continue;
    gos_tables_add_operand(m->t, x, 0);
    return true;
  }
  return false;
}

static uint32_t draw_waits(maker_t *m, uint32_t op) {
  uint32_t waits[4 * OPS], count = 0;
  for (uint32_t i = 0; i < op; i++) {
    if (m->draw(8) >= m->care) continue;
    for (uint32_t k = 0; k < m->counter_count[i]; k++)
      if (m->draw(32) != 0) waits[count++] = m->counters[i][k];
  }
  return count == 0 ? 0 : gos_tables_add_wait_list(m->t, waits, count);
}

static void add_tiles(maker_t *m, uint32_t op) {
  uint32_t cells = 1, list = draw_waits(m, op), many = m->draw(3) == 0 ? 4 : 1;
  for (int d = 0; d < 4; d++) cells *= gpuos_op_grid(&m->t->ops.at[op], d);
  m->counter_count[op] = many < cells ? many : cells;
  for (uint32_t k = 0; k < m->counter_count[op]; k++)
    m->counters[op][k] = gos_tables_add_counter(m->t);
  bool own_lists = m->draw(4) == 0;
  for (uint32_t i = 0; i < cells; i++) {
    if (own_lists && m->draw(2)) list = draw_waits(m, op);
    bool silent = m->draw(64) == 0;
    gos_tables_add_tile(m->t, op, i, list,
                        silent ? GPUOS_NONE : m->counters[op][i % m->counter_count[op]]);
  }
}

static bool add_op(maker_t *m, uint32_t number, bool last) {
  uint32_t rows = last ? 2 : 1 + m->draw(3), columns = last ? 4 : 1 + m->draw(4);
  gpuos_op_t *op = gos_tables_add_op(m->t, "op", GPUOS_MAP, (uint32_t[]){1, 1, rows, columns});
  op->tile[2] = 1 + m->draw(3);
  op->tile[3] = 1 + m->draw(4);
  uint32_t reads = 1 + m->draw(2), written;
  for (uint32_t i = 0; i < reads; i++)
    if (!add_read(m, rows, columns)) return false;
  if (last) {
    gpuos_operand_t y = gos_tables_view(GPUOS_AS_OUT, GPUOS_F32, Y, gos_tables_add_value(m->t), 0,
                                        (uint32_t[]){1, 1, 2, 4}, (uint8_t[]){0, 1, 2, 3});
    gos_tables_add_operand(m->t, y, 1);
  } else if (!add_write(m, rows, columns, m->draw(5) ? WORK : STATE)) {
    return false;
  }
  written = m->t->operands.count - 1;
  // In place now and then, all in the view of the write.
  if (m->draw(8) == 0) {
    gpuos_operand_t x = m->t->operands.at[written];
    x.as = GPUOS_AS_EXTRA;
    if (survey(m, &x, &x.value) && x.value != GPUOS_NONE) gos_tables_add_operand(m->t, x, 0);
  }
  add_tiles(m, number);
  fill(m, &m->t->operands.at[written]);
  return true;
}

gos_tables_t *gos_random_table(uint32_t (*draw)(uint32_t)) {
  maker_t m = {.t = gos_tables_create(), .draw = draw, .care = 5 + draw(4)};
  gos_tables_add_buffer(m.t, "x", GPUOS_INPUT, GPUOS_F32, 1, (uint32_t[]){16});
  gos_tables_add_buffer(m.t, "state", GPUOS_STATE, GPUOS_F32, 1, (uint32_t[]){16});
  gos_tables_add_buffer(m.t, "y", GPUOS_OUTPUT, GPUOS_F32, 1, (uint32_t[]){8});
  gos_tables_add_workspace(m.t, BYTES);
  for (uint32_t b = 0; b < BUFFERS; b++)
    for (uint32_t i = 0; i < BYTES; i++) m.value[b][i] = b == X || b == STATE ? b : GPUOS_NONE;
  uint32_t count = 3 + draw(OPS - 2);
  for (uint32_t i = 0; i < count; i++)
    if (!add_op(&m, i, i + 1 == count)) break;
  gos_tables_settle(m.t);
  return m.t;
}
