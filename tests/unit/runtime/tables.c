// tables.c: growing arrays in, one packed block out.
#include "tables.h"

#include <stdlib.h>
#include <string.h>

// X(section)
#define SECTIONS(X)                                                                                \
  X(graphs)                                                                                        \
  X(buffers)                                                                                       \
  X(ops) X(operands) X(code) X(tiles) X(wait_lists) X(waits) X(counters) X(strings)

static void *need(void *memory) {
  if (memory == NULL) abort();
  return memory;
}

// The array with room for one more, which is zeroed and counted.
static void *grow(void *at, uint32_t *count, uint32_t *capacity, size_t size) {
  if (*count == *capacity) {
    *capacity = *capacity == 0 ? 8 : 2 * *capacity;
    at = need(realloc(at, *capacity * size));
  }
  memset((char *)at + (*count)++ * size, 0, size);
  return at;
}
#define PUSH(array)                                                                                \
  ((array).at = grow((array).at, &(array).count, &(array).capacity, sizeof(*(array).at)),          \
   &(array).at[(array).count - 1])

static uint32_t add_string(gos_tables_t *t, const char *text) {
  uint32_t at = t->strings.count;
  do *PUSH(t->strings) = *text;
  while (*text++ != 0);
  return at;
}

gos_tables_t *gos_tables_create(void) {
  gos_tables_t *t = need(calloc(1, sizeof(*t)));
  t->header.magic = GPUOS_MAGIC;
  t->header.version = GPUOS_ABI_VERSION;
  t->header.budget_ns = 20000;
  add_string(t, "");
  (void)PUSH(t->wait_lists);
  return t;
}

gos_tables_t *gos_tables_clone(const gos_tables_t *tables) {
  gos_tables_t *t = need(malloc(sizeof(*t)));
  *t = *tables;
#define CLONE(section)                                                                             \
  t->section.capacity = t->section.count + 1;                                                      \
  t->section.at = need(malloc(t->section.capacity * sizeof(*t->section.at)));                      \
  if (t->section.count != 0)                                                                       \
    memcpy(t->section.at, tables->section.at, t->section.count * sizeof(*t->section.at));
  SECTIONS(CLONE)
#undef CLONE
  return t;
}

void gos_tables_destroy(gos_tables_t *tables) {
  if (tables == NULL) return;
#define RELEASE(section) free(tables->section.at);
  SECTIONS(RELEASE)
#undef RELEASE
  free(tables);
}

static void end_graph(gos_tables_t *t) {
  if (t->graphs.count == 0) return;
  gpuos_graph_t *last = &t->graphs.at[t->graphs.count - 1];
  last->op_count = t->ops.count - last->first_op;
  last->tile_count = t->tiles.count - last->first_tile;
}

void gos_tables_begin_graph(gos_tables_t *tables, const char *name, uint32_t live) {
  end_graph(tables);
  gpuos_graph_t *graph = PUSH(tables->graphs);
  graph->name = add_string(tables, name);
  graph->live = live;
  graph->first_op = tables->ops.count;
  graph->first_tile = tables->tiles.count;
}

uint32_t gos_tables_add_buffer(gos_tables_t *tables, const char *name, gpuos_role_t role,
                               gpuos_dtype_t dtype, uint32_t rank, const uint32_t *shape) {
  gpuos_buffer_t *buffer = PUSH(tables->buffers);
  buffer->name = add_string(tables, name);
  buffer->role = (uint8_t)role;
  buffer->dtype = (uint8_t)dtype;
  buffer->rank = (uint8_t)rank;
  buffer->bytes = role == GPUOS_WORKSPACE ? 1 : gpuos_dtype_bytes(dtype);
  for (uint32_t d = 0; d < rank; d++) buffer->bytes *= buffer->shape[d] = shape[d];
  tables->header.value_count = tables->buffers.count;
  return tables->buffers.count - 1;
}

uint32_t gos_tables_add_workspace(gos_tables_t *tables, uint32_t bytes) {
  return gos_tables_add_buffer(tables, "workspace", GPUOS_WORKSPACE, GPUOS_E4M3, 1, &bytes);
}

uint32_t gos_tables_add_value(gos_tables_t *tables) { return tables->header.value_count++; }

gpuos_operand_t gos_tables_view(gpuos_as_t as, gpuos_dtype_t dtype, uint32_t buffer, uint32_t value,
                                uint64_t offset_bytes, const uint32_t *extent,
                                const uint8_t *follows) {
  gpuos_operand_t view = {.as = (uint8_t)as,
                          .dtype = (uint8_t)dtype,
                          .buffer = buffer,
                          .value = value,
                          .offset_bytes = offset_bytes};
  uint32_t stride = 1;
  for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
    view.extent[d] = extent[d];
    view.follows[d] = follows[d];
    view.stride[d] = extent[d] == 1 ? 0 : stride;
    stride *= extent[d];
  }
  return view;
}

gpuos_op_t *gos_tables_add_op(gos_tables_t *tables, const char *name, gpuos_kind_t kind,
                              const uint32_t *extent) {
  if (tables->graphs.count == 0) gos_tables_begin_graph(tables, "main", 1);
  gpuos_op_t *op = PUSH(tables->ops);
  op->kind = (uint16_t)kind;
  op->first_operand = tables->operands.count;
  op->first_code = tables->code.count;
  op->bound_ns = 1000;
  op->name = add_string(tables, name);
  for (int d = 0; d < GPUOS_DIMS; d++) {
    op->extent[d] = extent[d];
    op->tile[d] = d == GPUOS_DIMS - 1 && extent[d] != 0 ? extent[d] : 1;
  }
  return op;
}

gpuos_operand_t *gos_tables_add_operand(gos_tables_t *tables, gpuos_operand_t operand,
                                        uint32_t writes) {
  gpuos_operand_t *slot = PUSH(tables->operands);
  *slot = operand;
  slot->writes = (uint8_t)writes;
  tables->ops.at[tables->ops.count - 1].operand_count++;
  return slot;
}

void gos_tables_add_code(gos_tables_t *tables, gpuos_code_op_t op, uint32_t a, uint32_t b,
                         float imm) {
  *PUSH(tables->code) =
      (gpuos_code_t){.op = (uint8_t)op, .a = (uint8_t)a, .b = (uint8_t)b, .imm = imm};
  tables->ops.at[tables->ops.count - 1].code_count++;
}

uint32_t gos_tables_add_counter(gos_tables_t *tables) {
  (void)PUSH(tables->counters);
  return tables->counters.count - 1;
}

uint32_t gos_tables_add_wait_list(gos_tables_t *tables, const uint32_t *counters, uint32_t count) {
  gpuos_wait_list_t *list = PUSH(tables->wait_lists);
  *list = (gpuos_wait_list_t){.first = tables->waits.count, .count = count};
  for (uint32_t i = 0; i < count; i++) PUSH(tables->waits)->counter = counters[i];
  return tables->wait_lists.count - 1;
}

void gos_tables_add_tile(gos_tables_t *tables, uint32_t op, uint32_t index, uint32_t wait_list,
                         uint32_t signal) {
  *PUSH(tables->tiles) =
      (gpuos_tile_t){.op = op, .index = index, .wait_list = wait_list, .signal = signal};
}

void gos_tables_add_tiles(gos_tables_t *tables, uint32_t op, uint32_t wait_list, uint32_t signal) {
  uint32_t cells = 1;
  for (int d = 0; d < GPUOS_DIMS; d++) cells *= gpuos_op_grid(&tables->ops.at[op], d);
  for (uint32_t i = 0; i < cells; i++) gos_tables_add_tile(tables, op, i, wait_list, signal);
}

void gos_tables_settle(gos_tables_t *tables) {
  end_graph(tables);
  for (uint32_t i = 0; i < tables->counters.count; i++) tables->counters.at[i] = 0;
  for (uint32_t i = 0; i < tables->tiles.count; i++) {
    uint32_t signal = tables->tiles.at[i].signal;
    if (signal < tables->counters.count) tables->counters.at[signal]++;
  }
  for (uint32_t i = 0; i < tables->waits.count; i++) {
    gpuos_wait_t *wait = &tables->waits.at[i];
    if (wait->counter < tables->counters.count)
      wait->threshold = tables->counters.at[wait->counter];
  }
}

void gos_tables_seal(gpuos_table_t *table) {
  table->hash = 0;
  table->hash = gpuos_hash_add(GPUOS_HASH_START, table, table->bytes);
}

static uint64_t align(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

gpuos_table_t *gos_tables_pack(const gos_tables_t *tables) {
  uint64_t bytes = align(sizeof(gpuos_table_t));
#define ADD_SIZE(section) bytes += align(tables->section.count * sizeof(*tables->section.at));
  SECTIONS(ADD_SIZE)
#undef ADD_SIZE
  gpuos_table_t *table = need(aligned_alloc(16, bytes));
  memset(table, 0, bytes);
  *table = tables->header;
  table->bytes = bytes;
  uint64_t at = align(sizeof(gpuos_table_t));
#define COPY(section)                                                                              \
  table->section = (gpuos_span_t){.offset = (uint32_t)at, .count = tables->section.count};         \
  if (tables->section.count != 0)                                                                  \
    memcpy((char *)table + at, tables->section.at,                                                 \
           tables->section.count * sizeof(*tables->section.at));                                   \
  at += align(tables->section.count * sizeof(*tables->section.at));
  SECTIONS(COPY)
#undef COPY
  gos_tables_seal(table);
  return table;
}

gpuos_table_t *gos_tables_finish(gos_tables_t *tables) {
  gos_tables_settle(tables);
  return gos_tables_pack(tables);
}
