// table.c: writes a plan as the one contiguous block of gpuos_abi.h.
#include <string.h>

#include "codegen.h"

enum { ALIGN = 16 };

static uint64_t padded(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

typedef struct writer {
  char *at; // NULL while only sizes are counted
  uint64_t used;
} writer_t;

static gpuos_span_t section(writer_t *to, const void *records, size_t size, size_t count) {
  gpuos_span_t span = {(uint32_t)to->used, (uint32_t)count};
  if (to->at && count) memcpy(to->at + to->used, records, size * count);
  to->used = padded(to->used + size * count);
  return span;
}

static uint32_t intern(gos_text_t *strings, const char *text) {
  uint32_t offset = (uint32_t)strings->count;
  gos_text_add_bytes(strings, text, strlen(text) + 1);
  return offset;
}

typedef struct records {
  gpuos_graph_t *graphs;
  gpuos_buffer_t *buffers;
  gpuos_op_t *ops;
  GOS_ARRAY(gpuos_operand_t) operands;
  GOS_ARRAY(gpuos_code_t) code;
  gos_text_t strings;
  uint32_t park_bytes;
} records_t;

static void add_buffers(const gos_plan_t *plan, records_t *to) {
  to->buffers = gos_alloc(plan->ir->arena, plan->buffers.count * sizeof *to->buffers);
  for (size_t i = 0; i < plan->buffers.count; i++) {
    const gos_buffer_t *from = &plan->buffers.at[i];
    gpuos_buffer_t *buffer = &to->buffers[i];
    *buffer = (gpuos_buffer_t){.name = intern(&to->strings, from->name),
                               .role = (uint8_t)from->role,
                               .dtype = (uint8_t)from->shape.dtype,
                               .rank = (uint8_t)from->shape.rank,
                               .joined = from->joined,
                               .bytes = from->bytes};
    for (int d = 0; d < from->shape.rank; d++) buffer->shape[d] = (uint32_t)from->shape.dim[d];
  }
}

static void add_ops(const gos_plan_t *plan, records_t *to) {
  gos_arena_t *arena = plan->ir->arena;
  to->ops = gos_alloc(arena, (plan->ops.count + 1) * sizeof *to->ops);
  for (size_t i = 0; i < plan->ops.count; i++) {
    const gos_op_t *from = &plan->ops.at[i];
    gpuos_op_t *op = &to->ops[i];
    *op = from->op;
    op->name = intern(&to->strings, from->name);
    op->first_operand = (uint32_t)to->operands.count;
    op->first_code = (uint32_t)to->code.count;
    for (int x = 0; x < op->operand_count; x++) *gos_push(arena, &to->operands) = from->operands[x];
    for (uint32_t c = 0; c < op->code_count; c++) *gos_push(arena, &to->code) = from->code[c];
    if (op->park_bytes > to->park_bytes) to->park_bytes = op->park_bytes;
  }
}

static void add_graphs(const gos_plan_t *plan, records_t *to) {
  to->graphs = gos_alloc(plan->ir->arena, plan->graphs.count * sizeof *to->graphs);
  for (size_t i = 0; i < plan->graphs.count; i++) {
    to->graphs[i] = plan->graphs.at[i].graph;
    to->graphs[i].name = intern(&to->strings, plan->graphs.at[i].name);
  }
}

static void write_all(const gos_plan_t *plan, const records_t *from, gpuos_table_t *table,
                      writer_t *to) {
  to->used = padded(sizeof *table);
  table->graphs = section(to, from->graphs, sizeof *from->graphs, plan->graphs.count);
  table->buffers = section(to, from->buffers, sizeof *from->buffers, plan->buffers.count);
  table->ops = section(to, from->ops, sizeof *from->ops, plan->ops.count);
  table->operands = section(to, from->operands.at, sizeof *from->operands.at, from->operands.count);
  table->code = section(to, from->code.at, sizeof *from->code.at, from->code.count);
  table->tiles = section(to, plan->tiles.at, sizeof *plan->tiles.at, plan->tiles.count);
  table->wait_lists =
      section(to, plan->wait_lists.at, sizeof *plan->wait_lists.at, plan->wait_lists.count);
  table->waits = section(to, plan->waits.at, sizeof *plan->waits.at, plan->waits.count);
  table->counters = section(to, plan->counters.at, sizeof *plan->counters.at, plan->counters.count);
  table->strings = section(to, from->strings.at, 1, from->strings.count);
  table->bytes = to->used;
}

gos_bytes_t gos_table_make(const gos_plan_t *plan, uint32_t arch) {
  records_t records = {.strings = {.arena = plan->ir->arena}};
  intern(&records.strings, ""); // offset 0
  add_graphs(plan, &records);
  add_buffers(plan, &records);
  add_ops(plan, &records);
  gpuos_table_t table = {.magic = GPUOS_MAGIC,
                         .version = GPUOS_ABI_VERSION,
                         .arch = arch,
                         .budget_ns = plan->budget_ns,
                         .park_bytes = records.park_bytes,
                         .value_count = (uint32_t)plan->values.count};
  writer_t writer = {0};
  write_all(plan, &records, &table, &writer);
  gos_bytes_t bytes = {gos_alloc(plan->ir->arena, writer.used), writer.used};
  writer.at = bytes.at;
  write_all(plan, &records, &table, &writer);
  memcpy(bytes.at, &table, sizeof table);
  table.hash = gpuos_hash_add(GPUOS_HASH_START, bytes.at, bytes.count);
  memcpy(bytes.at, &table, sizeof table);
  return bytes;
}
