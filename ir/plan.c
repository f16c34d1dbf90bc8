// plan.c: names, sizes and the text form of a plan.
#include "plan.h"

#include <string.h>

const gpuos_operand_t *gos_op_find(const gos_op_t *op, gpuos_as_t as) {
  for (int i = 0; i < op->op.operand_count; i++)
    if (op->operands[i].as == as) return &op->operands[i];
  return NULL;
}

uint64_t gos_op_tiles(const gpuos_op_t *op) {
  uint64_t tiles = 1;
  for (int d = 0; d < GPUOS_DIMS; d++) tiles *= gpuos_op_grid(op, d);
  return tiles;
}

// Where weights stream, four slots are as many tiles as the ring holds and a few more, so that the
// scheduler is always ahead; the ring takes most of shared memory. Otherwise who is ahead by more than a
// tile only keeps it from others. Bytes as device/unit.cuh has them, which holds itself to them.
gos_smem_t gos_plan_smem(const gos_plan_t *plan) {
  enum {
    CLUSTER_BYTES = 3072,
    RING_BYTES = (4 * 48 + 32) << 10, // four stages of 48 KiB, and results
    JOB_RING_BYTES = (4 * 40 + 48) << 10,
    ROLES_BYTES = 16, // device/roles.cuh
    BYTES = 1228,
    SLOT_BYTES = 152,
    KNOWN_BYTES = 160,
    OPERAND_BYTES = 56
  };
  enum { BESIDE_STREAM_BYTES = 64 << 10 };
  bool cluster = false;
  uint32_t most = 1;
  for (size_t i = 0; i < plan->ops.count; i++) {
    cluster |= gos_op_wgmma_tiled(plan->target, &plan->ops.at[i]);
    uint32_t count = plan->ops.at[i].op.operand_count;
    if (count > most) most = count;
  }
  uint32_t slots = plan->streams && !cluster ? 4 : 2, known = slots > 2 ? 5 : 2;
  uint32_t bytes =
      BYTES + ROLES_BYTES + slots * SLOT_BYTES + known * (KNOWN_BYTES + most * OPERAND_BYTES);
  bytes = cluster ? CLUSTER_BYTES : (bytes + 127) / 128 * 128;
  uint32_t room = slots > 2               ? BESIDE_STREAM_BYTES
                  : plan->role == GOS_JOB ? JOB_RING_BYTES
                                          : plan->target->smem_bytes - bytes;
  return (gos_smem_t){slots, most, bytes, room,
                      plan->role == GOS_JOB ? JOB_RING_BYTES : RING_BYTES};
}

static void print_dims(const char *what, const uint32_t *dims, FILE *out) {
  fprintf(out, " %s=[%u, %u, %u, %u]", what, dims[0], dims[1], dims[2], dims[3]);
}

static void print_code(const gos_op_t *op, FILE *out) {
  static const char *const names[GPUOS_CODE_COUNT] = {
      "acc", "in",  "const", "add", "sub",  "mul",   "div",  "max", "min",
      "neg", "abs", "exp",   "log", "sqrt", "rsqrt", "tanh", "erf", "round"};
  for (uint32_t i = 0; i < op->op.code_count; i++) {
    const gpuos_code_t *c = &op->code[i];
    fprintf(out, "    v%u = %s ", i, names[c->op]);
    if (c->op == GPUOS_CODE_CONST)
      fprintf(out, "%.9g\n", (double)c->imm);
    else if (c->op <= GPUOS_CODE_INPUT)
      fprintf(out, "%u\n", c->a);
    else if (c->op == GPUOS_CODE_ROUND)
      fprintf(out, "v%u to %s\n", c->a, gos_dtype_name((gpuos_dtype_t)c->b));
    else if (c->op <= GPUOS_CODE_MIN)
      fprintf(out, "v%u v%u\n", c->a, c->b);
    else
      fprintf(out, "v%u\n", c->a);
  }
}

static void print_operand(const gos_plan_t *plan, const gpuos_operand_t *x, FILE *out) {
  fprintf(out, "    %s %s %s v%u+%llu", x->writes ? "write" : "read", gos_as_name(x->as),
          gos_dtype_name((gpuos_dtype_t)x->dtype), x->value, (unsigned long long)x->offset_bytes);
  print_dims("extent", x->extent, out);
  print_dims("stride", x->stride, out);
  fprintf(out, " follows=[");
  for (int d = 0; d < GPUOS_DIMS; d++) {
    if (x->follows[d] == GPUOS_ALL)
      fprintf(out, "%s-", d ? ", " : "");
    else
      fprintf(out, "%sd%u", d ? ", " : "", x->follows[d]);
  }
  fprintf(out, "] %s\n", plan->values.at[x->value].name);
}

static void print_op(const gos_plan_t *plan, size_t number, FILE *out) {
  gos_op_t *op = &plan->ops.at[number];
  fprintf(out, "op %zu %s \"%s\"", number, gos_kind_name(op->op.kind), op->name);
  print_dims("extent", op->op.extent, out);
  if (op->op.tile[0]) {
    print_dims("tile", op->op.tile, out);
    fprintf(out, " tiles=%llu units=%u", (unsigned long long)gos_op_tiles(&op->op),
            gpuos_op_slices(&op->op));
  }
  if (op->op.bound_ns) fprintf(out, " bound=%u ns", op->op.bound_ns);
  if (op->stamps) fprintf(out, " stamps");
  if (plan->stamps && op->from[0] != GPUOS_NONE) fprintf(out, " x-stamped-by=%u", op->from[0]);
  fputc('\n', out);
  for (int i = 0; i < op->op.operand_count; i++) print_operand(plan, &op->operands[i], out);
  print_code(op, out);
}

void gos_plan_print(const gos_plan_t *plan, FILE *out) {
  for (size_t i = 0; i < plan->graphs.count; i++)
    fprintf(out, "graph \"%s\" %s ops=%u\n", plan->graphs.at[i].name,
            plan->graphs.at[i].graph.live ? "live" : "background",
            plan->graphs.at[i].graph.op_count);
  for (size_t i = plan->buffers.count; i < plan->values.count; i++) {
    const gos_value_t *v = &plan->values.at[i];
    fprintf(out, "value v%zu \"%s\" buffer=\"%s\" offset=%llu bytes=%llu\n", i, v->name,
            plan->buffers.at[v->buffer].name, (unsigned long long)v->offset_bytes,
            (unsigned long long)v->bytes);
  }
  for (size_t i = 0; i < plan->ops.count; i++) print_op(plan, i, out);
}

// Lines for 10^5 tiles: printf, or a call of stdio a word, would take half of the compile.
typedef struct printer {
  FILE *out;
  size_t count;
  char text[1 << 14];
} printer_t;

static inline void put_bytes(printer_t *p, const char *text, size_t count) {
  if (p->count + count > sizeof p->text) {
    fwrite(p->text, 1, p->count, p->out);
    p->count = 0;
  }
  if (count > sizeof p->text)
    fwrite(text, 1, count, p->out);
  else
    memcpy(p->text + p->count, text, count), p->count += count;
}
static inline void put(printer_t *p, const char *text) { put_bytes(p, text, strlen(text)); }

static inline void put_number(printer_t *p, const char *before, uint64_t number) {
  char digits[24], *end = digits + sizeof digits, *at = end;
  do *--at = (char)('0' + number % 10);
  while (number /= 10);
  put(p, before);
  put_bytes(p, at, (size_t)(end - at));
}

static void print_tile(printer_t *p, const gos_plan_t *plan, size_t number) {
  const gpuos_tile_t *tile = &plan->tiles.at[number];
  const gos_op_t *op = &plan->ops.at[tile->op];
  gpuos_box_t box = gpuos_tile_box(&op->op, tile->index);
  put_number(p, "tile ", number);
  put(p, " ");
  put(p, op->name);
  for (int d = 0; d < GPUOS_DIMS; d++) {
    put_number(p, " ", box.lo[d]);
    put_number(p, "+", box.n[d]);
  }
  put_number(p, " units=", gpuos_op_slices(&op->op));
  put(p, " wait");
  gpuos_wait_list_t list = plan->wait_lists.at[tile->wait_list];
  for (uint32_t w = 0; w < list.count; w++) {
    put_number(p, " c", plan->waits.at[list.first + w].counter);
    put_number(p, ">=", plan->waits.at[list.first + w].threshold);
    if (w >= list.count - list.stamped) put(p, "?");
  }
  if (tile->signal == GPUOS_NONE)
    put(p, " signal -");
  else
    put_number(p, " signal c", tile->signal);
  put(p, "\n");
}

void gos_schedule_print(const gos_plan_t *plan, FILE *out) {
  printer_t p = {.out = out};
  fprintf(out, "schedule tiles=%zu counters=%zu workspace=%llu bytes\n", plan->tiles.count,
          plan->counters.count, (unsigned long long)plan->workspace_bytes);
  for (size_t i = 0; i < plan->tiles.count; i++) print_tile(&p, plan, i);
  fwrite(p.text, 1, p.count, out);
}
