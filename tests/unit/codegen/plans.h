// plans.h: small plans made by hand, for the tests of codegen.
//
// A plan has one buffer an operand and no schedule: what kernel_source needs.
#ifndef TESTS_UNIT_CODEGEN_PLANS_H_
#define TESTS_UNIT_CODEGEN_PLANS_H_

#include <string.h>

#include "codegen.h"

typedef struct chip {
  const char *name, *arch_name;
  uint32_t arch, smem_bytes;
} chip_t;

// Shared memory of a CTA: CUDA C++ Programming Guide, technical specifications by compute
// capability.
static const chip_t chips[] = {
    {"h200", "sm_90a", 90, 232448},  {"a100", "sm_80", 80, 166912},
    {"l40s", "sm_89", 89, 101376},   {"b200", "sm_100a", 100, 232448},
    {"rtx", "sm_120a", 120, 101376},
};
enum { CHIPS = sizeof chips / sizeof *chips };

static inline gos_plan_t *make_plan(const chip_t *chip) {
  gos_arena_t *arena = gos_arena_create();
  gos_ir_t *ir = gos_alloc(arena, sizeof *ir);
  gos_target_t *target = gos_alloc(arena, sizeof *target);
  gos_plan_t *plan = gos_alloc(arena, sizeof *plan);
  *target = (gos_target_t){.name = chip->name, .arch_name = chip->arch_name, .arch = chip->arch};
  target->smem_bytes = chip->smem_bytes;
  ir->arena = ir->scratch = arena;
  ir->diags = gos_diags_create(arena);
  plan->ir = ir;
  plan->target = target;
  return plan;
}

static inline void free_plan(gos_plan_t *plan) { gos_arena_destroy(plan->ir->arena); }

// The plan as a program of a kernel, with a table of which there is only the hash.
static inline gos_part_t part_of(const gos_plan_t *plan) {
  gpuos_table_t *table = gos_alloc(plan->ir->arena, sizeof *table);
  table->hash = 0x0123456789abcdef;
  return (gos_part_t){*plan, {table, sizeof *table}};
}

static inline const char *source_alone(const gos_plan_t *plan) {
  gos_part_t part = part_of(plan);
  return gos_kernel_source(&part, 1);
}

typedef struct dims {
  uint32_t d[GPUOS_DIMS];
} dims_t;
#define DIMS(...) ((dims_t){{__VA_ARGS__}})

static inline gos_op_t *add_op(gos_plan_t *plan, gpuos_kind_t kind, dims_t extent, dims_t tile) {
  gos_op_t *op = gos_push(plan->ir->arena, &plan->ops);
  *op = (gos_op_t){.name = "unit"};
  op->op.kind = (uint16_t)kind;
  memcpy(op->op.extent, extent.d, sizeof extent.d);
  memcpy(op->op.tile, tile.d, sizeof tile.d);
  return op;
}

// A row-major view; follows are iteration dimensions or GPUOS_ALL.
static inline gpuos_operand_t *add_view(gos_op_t *op, gpuos_as_t as, gpuos_dtype_t dtype,
                                        dims_t extent, dims_t follows) {
  gpuos_operand_t *x = &op->operands[op->op.operand_count];
  *x = (gpuos_operand_t){.as = (uint8_t)as, .dtype = (uint8_t)dtype};
  x->buffer = op->op.operand_count++;
  x->writes = as == GPUOS_AS_OUT || as == GPUOS_AS_PARTIAL ||
              (as == GPUOS_AS_CACHE && op->op.kind == GPUOS_KV_APPEND);
  uint32_t stride = 1;
  for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
    x->extent[d] = extent.d[d];
    x->stride[d] = extent.d[d] == 1 ? 0 : stride;
    x->follows[d] = (uint8_t)follows.d[d];
    stride *= extent.d[d];
  }
  return x;
}

enum { ALL = GPUOS_ALL };

// OUT[m, n] = X[m, k] W[n, k].
static inline gos_op_t *add_matmul(gos_plan_t *plan, gpuos_dtype_t dtype, gpuos_dtype_t out,
                                   uint32_t m, uint32_t n, uint32_t k, uint32_t tile_m,
                                   uint32_t tile_n) {
  gos_op_t *op = add_op(plan, GPUOS_MATMUL, DIMS(1, m, n, k), DIMS(1, tile_m, tile_n, k));
  op->op.slice = 1024;
  add_view(op, GPUOS_AS_OUT, out, DIMS(1, 1, m, n), DIMS(ALL, ALL, 1, 2));
  add_view(op, GPUOS_AS_X, dtype, DIMS(1, 1, m, k), DIMS(ALL, ALL, 1, 3));
  add_view(op, GPUOS_AS_W0, dtype, DIMS(1, 1, n, k), DIMS(ALL, ALL, 2, 3));
  return op;
}

static inline void set_code(gos_plan_t *plan, gos_op_t *op, const gpuos_code_t *code,
                            uint32_t count) {
  op->code = gos_alloc(plan->ir->arena, count * sizeof *code);
  memcpy(op->code, code, count * sizeof *code);
  op->op.code_count = count;
}

static inline void add_silu_product(gos_plan_t *plan, gos_op_t *op) {
  static const gpuos_code_t code[] = {
      {GPUOS_CODE_ACC, 0, 0, 0, 0},   {GPUOS_CODE_NEG, 0, 0, 0, 0}, {GPUOS_CODE_EXP, 1, 0, 0, 0},
      {GPUOS_CODE_CONST, 0, 0, 0, 1}, {GPUOS_CODE_ADD, 2, 3, 0, 0}, {GPUOS_CODE_DIV, 0, 4, 0, 0},
      {GPUOS_CODE_ACC, 1, 0, 0, 0},   {GPUOS_CODE_MUL, 5, 6, 0, 0},
  };
  set_code(plan, op, code, sizeof code / sizeof *code);
}

// ACC 0 + INPUT 0.
static inline void add_residual(gos_plan_t *plan, gos_op_t *op, gpuos_dtype_t dtype) {
  static const gpuos_code_t code[] = {
      {GPUOS_CODE_ACC, 0, 0, 0, 0}, {GPUOS_CODE_INPUT, 0, 0, 0, 0}, {GPUOS_CODE_ADD, 0, 1, 0, 0}};
  uint32_t m = op->op.extent[1], n = op->op.extent[2];
  add_view(op, GPUOS_AS_EXTRA, dtype, DIMS(1, 1, m, n), DIMS(ALL, ALL, 1, 2));
  set_code(plan, op, code, 3);
}

// One decode step's operators beside matmul: rows tokens, 8 query heads on 2 KV heads of 64.
enum { HEADS = 8, KV_HEADS = 2, HEAD_DIM = 64, PAGE = 16, POOL = 64, CONTEXT_PAGES = 16 };

static inline void add_cache_views(gos_op_t *op, uint32_t rows, uint32_t row_dim) {
  add_view(op, GPUOS_AS_CACHE, GPUOS_BF16, DIMS(2, KV_HEADS, POOL, PAGE * HEAD_DIM),
           DIMS(ALL, 2, ALL, ALL));
  add_view(op, GPUOS_AS_POS, GPUOS_I32, DIMS(1, 1, 1, rows), DIMS(ALL, ALL, ALL, row_dim));
  add_view(op, GPUOS_AS_PAGES, GPUOS_I32, DIMS(1, 1, rows, CONTEXT_PAGES),
           DIMS(ALL, ALL, ALL, ALL));
}

static inline void add_kv_append(gos_plan_t *plan, uint32_t rows) {
  gos_op_t *op = add_op(plan, GPUOS_KV_APPEND, DIMS(1, 1, KV_HEADS, 1), DIMS(1, 1, 1, 1));
  op->op.params[0] = PAGE, op->op.params[1] = HEAD_DIM;
  add_view(op, GPUOS_AS_K, GPUOS_BF16, DIMS(1, rows, KV_HEADS, HEAD_DIM), DIMS(ALL, ALL, 2, ALL));
  add_view(op, GPUOS_AS_V, GPUOS_BF16, DIMS(1, rows, KV_HEADS, HEAD_DIM), DIMS(ALL, ALL, 2, ALL));
  add_cache_views(op, rows, ALL);
}

static inline void set_attention(gos_op_t *op, uint32_t page_size, uint32_t split_len) {
  const float scale = 0.125f;
  memcpy(&op->op.params[0], &scale, sizeof scale);
  op->op.params[1] = page_size, op->op.params[2] = HEAD_DIM, op->op.params[3] = HEADS / KV_HEADS;
  op->op.params[4] = split_len, op->op.params[5] = page_size == 0,
  op->op.params[7] = page_size != 0;
}

// Paged, in two splits, and their merge.
static inline void add_paged_attention(gos_plan_t *plan, uint32_t rows) {
  const uint32_t group = HEADS / KV_HEADS, splits = 2;
  gos_op_t *op = add_op(plan, GPUOS_ATTENTION, DIMS(1, rows, KV_HEADS, splits), DIMS(1, 1, 1, 1));
  set_attention(op, PAGE, CONTEXT_PAGES * PAGE / splits);
  add_view(op, GPUOS_AS_PARTIAL, GPUOS_F32, DIMS(rows, KV_HEADS, splits, group * (HEAD_DIM + 2)),
           DIMS(1, 2, 3, ALL));
  add_view(op, GPUOS_AS_X, GPUOS_BF16, DIMS(1, rows, KV_HEADS, group * HEAD_DIM),
           DIMS(0, 1, 2, ALL));
  add_cache_views(op, rows, 1);
  op = add_op(plan, GPUOS_ATTENTION_COMBINE, DIMS(1, rows, KV_HEADS, 1), DIMS(1, 1, 1, 1));
  op->op.params[2] = HEAD_DIM, op->op.params[3] = group;
  add_view(op, GPUOS_AS_OUT, GPUOS_BF16, DIMS(1, rows, KV_HEADS, group * HEAD_DIM),
           DIMS(ALL, 1, 2, ALL));
  add_view(op, GPUOS_AS_PARTIAL, GPUOS_F32, DIMS(rows, KV_HEADS, splits, group * (HEAD_DIM + 2)),
           DIMS(1, 2, ALL, ALL))
      ->writes = 0;
}

static inline void add_dense_attention(gos_plan_t *plan, uint32_t rows, uint32_t keys) {
  const uint32_t group = HEADS / KV_HEADS;
  gos_op_t *op = add_op(plan, GPUOS_ATTENTION, DIMS(1, rows, KV_HEADS, 1), DIMS(1, 4, 1, 1));
  set_attention(op, 0, 0);
  add_view(op, GPUOS_AS_OUT, GPUOS_BF16, DIMS(1, rows, KV_HEADS, group * HEAD_DIM),
           DIMS(0, 1, 2, ALL));
  add_view(op, GPUOS_AS_X, GPUOS_BF16, DIMS(1, rows, KV_HEADS, group * HEAD_DIM),
           DIMS(0, 1, 2, ALL));
  add_view(op, GPUOS_AS_K, GPUOS_BF16, DIMS(1, keys, KV_HEADS, HEAD_DIM), DIMS(0, ALL, 2, ALL));
  add_view(op, GPUOS_AS_V, GPUOS_BF16, DIMS(1, keys, KV_HEADS, HEAD_DIM), DIMS(0, ALL, 2, ALL));
}

static inline void add_rope(gos_plan_t *plan, uint32_t rows, uint32_t scaling) {
  gos_op_t *op = add_op(plan, GPUOS_ROPE, DIMS(1, rows, HEADS, 1), DIMS(1, 1, HEADS, 1));
  op->op.params[2] = scaling;
  add_view(op, GPUOS_AS_OUT, GPUOS_BF16, DIMS(1, rows, HEADS, HEAD_DIM), DIMS(ALL, 1, 2, ALL));
  add_view(op, GPUOS_AS_X, GPUOS_BF16, DIMS(1, rows, HEADS, HEAD_DIM), DIMS(ALL, 1, 2, ALL));
  add_view(op, GPUOS_AS_POS, GPUOS_I32, DIMS(1, 1, 1, rows), DIMS(ALL, ALL, ALL, 1));
}

static inline void add_rows(gos_plan_t *plan, gpuos_kind_t kind, gpuos_dtype_t dtype, uint32_t rows,
                            uint32_t width) {
  gos_op_t *op = add_op(plan, kind, DIMS(1, 1, rows, 1), DIMS(1, 1, 1, 1));
  if (kind == GPUOS_ARGMAX)
    add_view(op, GPUOS_AS_OUT, GPUOS_I32, DIMS(1, 1, 1, rows), DIMS(ALL, 0, 1, 2));
  else
    add_view(op, GPUOS_AS_OUT, dtype, DIMS(1, 1, rows, width), DIMS(0, 1, 2, ALL));
  add_view(op, GPUOS_AS_X, dtype, DIMS(1, 1, rows, width), DIMS(0, 1, 2, ALL));
  if (kind == GPUOS_RMSNORM)
    add_view(op, GPUOS_AS_NORM, dtype, DIMS(1, 1, 1, width), DIMS(ALL, ALL, ALL, ALL));
}

static inline void add_embedding(gos_plan_t *plan, uint32_t rows, uint32_t vocab, uint32_t width) {
  gos_op_t *op = add_op(plan, GPUOS_EMBEDDING, DIMS(1, 1, rows, width), DIMS(1, 1, 1, width));
  add_view(op, GPUOS_AS_OUT, GPUOS_BF16, DIMS(1, 1, rows, width), DIMS(ALL, ALL, 2, 3));
  add_view(op, GPUOS_AS_TABLE, GPUOS_BF16, DIMS(1, 1, vocab, width), DIMS(ALL, ALL, ALL, 3));
  add_view(op, GPUOS_AS_IDS, GPUOS_I32, DIMS(1, 1, 1, rows), DIMS(ALL, ALL, ALL, 2));
}

// OUT = IN, cast.
static inline gos_op_t *add_cast(gos_plan_t *plan, gpuos_dtype_t from, gpuos_dtype_t to,
                                 uint32_t rows, uint32_t width) {
  gos_op_t *op = add_op(plan, GPUOS_MAP, DIMS(1, 1, rows, width), DIMS(1, 1, 16, width));
  add_view(op, GPUOS_AS_OUT, to, DIMS(1, 1, rows, width), DIMS(0, 1, 2, 3));
  add_view(op, GPUOS_AS_EXTRA, from, DIMS(1, 1, rows, width), DIMS(0, 1, 2, 3));
  return op;
}

// A step of a Llama-like model, all kinds.
static inline void add_model(gos_plan_t *plan, uint32_t rows) {
  const uint32_t width = HEADS * HEAD_DIM;
  add_embedding(plan, rows, 1000, width);
  add_rows(plan, GPUOS_RMSNORM, GPUOS_BF16, rows, width);
  add_matmul(plan, GPUOS_BF16, GPUOS_BF16, rows, width, width, 16, 64);
  add_rope(plan, rows, 2);
  add_kv_append(plan, rows);
  add_paged_attention(plan, rows);
  add_dense_attention(plan, 64, 128);
  gos_op_t *gate = add_matmul(plan, GPUOS_BF16, GPUOS_BF16, rows, 4 * width, width, 16, 32);
  add_view(gate, GPUOS_AS_W1, GPUOS_BF16, DIMS(1, 1, 4 * width, width), DIMS(ALL, ALL, 2, 3));
  add_view(gate, GPUOS_AS_NORM, GPUOS_BF16, DIMS(1, 1, 1, width), DIMS(ALL, ALL, ALL, ALL));
  add_silu_product(plan, gate);
  gos_op_t *down = add_matmul(plan, GPUOS_BF16, GPUOS_BF16, rows, width, 4 * width, 16, 16);
  add_residual(plan, down, GPUOS_BF16);
  add_rows(plan, GPUOS_SOFTMAX, GPUOS_F32, rows, 1000);
  add_rows(plan, GPUOS_ARGMAX, GPUOS_F32, rows, 1000);
  add_cast(plan, GPUOS_BF16, GPUOS_F32, 64, 512);
}

#endif // TESTS_UNIT_CODEGEN_PLANS_H_
