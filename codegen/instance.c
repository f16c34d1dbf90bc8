// instance.c: what an operator's device code is instantiated with: formats, tile shape, how operands
// lie, the expression. What is equal here shares one instantiation.
#include "instance.h"

#include <math.h>
#include <string.h>

enum {
  SHORT_RUN = 4,   // of a map with many inputs: it has a run of each in registers at once
  MANY_INPUTS = 8, // above it: runs of 8 of twelve inputs spill
};

static const char *const dtype_names[GPUOS_DTYPE_COUNT] = {
    [GPUOS_F32] = "GPUOS_F32",   [GPUOS_F16] = "GPUOS_F16",   [GPUOS_BF16] = "GPUOS_BF16",
    [GPUOS_E4M3] = "GPUOS_E4M3", [GPUOS_E5M2] = "GPUOS_E5M2", [GPUOS_I32] = "GPUOS_I32",
};

// ---- operands -----------------------------------------------------------------------------------

// Elements along iteration dimension `dim` come in aligned runs, or are all the same one.
static bool runs_along(const gos_op_t *op, const gpuos_operand_t *x, uint32_t dim) {
  uint64_t step = gos_op_step(op, x, dim);
  if (step == 0) return !x->writes;
  return step == 1 && gos_op_aligned(op, x, dim, gos_run_bytes(x));
}

static bool tiles_in_runs(const gos_op_t *op, uint32_t dim) {
  const gpuos_op_t *o = &op->op;
  bool sliced = dim == GPUOS_SLICED_DIM && o->slice;
  return o->extent[dim] % GOS_RUN == 0 &&
         (o->tile[dim] % GOS_RUN == 0 || o->tile[dim] >= o->extent[dim]) &&
         (!sliced || o->slice % GOS_RUN == 0);
}

// OUT and EXTRA move in runs along `dim`.
static bool pointwise_runs(const gos_op_t *op, uint32_t dim) {
  for (uint32_t i = 0; i < op->op.operand_count; i++) {
    const gpuos_operand_t *x = &op->operands[i];
    bool pointwise = x->as == GPUOS_AS_OUT || x->as == GPUOS_AS_EXTRA;
    if (pointwise && !runs_along(op, x, dim)) return false;
  }
  return tiles_in_runs(op, dim);
}

// All operands of these roles that the operator has do.
static bool all_row_runs(const gos_op_t *op, uint32_t width, size_t count,
                         const gpuos_as_t *roles) {
  for (size_t i = 0; i < count; i++) {
    const gpuos_operand_t *x = gos_op_find(op, roles[i]);
    if (x && !gos_row_runs(x, width)) return false;
  }
  return true;
}
#define ALL_ROW_RUNS(op, width, ...)                                                               \
  all_row_runs(op, width, sizeof((gpuos_as_t[]){__VA_ARGS__}) / sizeof(gpuos_as_t),                \
               (gpuos_as_t[]){__VA_ARGS__})

// ---- members of an instantiation ----------------------------------------------------------------

// Which operand, its format, and bit by bit which iteration dimensions move it.
static const char *view(gos_arena_t *arena, const gos_op_t *op, const gpuos_operand_t *x) {
  unsigned moves = 0;
  for (uint32_t d = 0; d < GPUOS_DIMS; d++)
    if (gos_op_step(op, x, d) != 0) moves |= 1u << d;
  return gos_format(arena, "gpuos_view<%td, %s, 0x%x>", x - op->operands, dtype_names[x->dtype],
                    moves);
}

static void add_operand(gos_text_t *text, const gos_op_t *op, gpuos_as_t as, const char *member) {
  const gpuos_operand_t *x = gos_op_find(op, as);
  if (!x)
    gos_text_add(text, "  using %s = gpuos_absent;\n", member);
  else
    gos_text_add(text, "  using %s = %s;\n", member, view(text->arena, op, x));
}

// One line of named constants. Enumerators, because a static constexpr member would take space in
// the cubin.
static void add_constants(gos_text_t *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_constants(gos_text_t *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  gos_text_add(text, "  enum { %s };\n", gos_vformat(text->arena, format, args));
  va_end(args);
}

static void add_run(gos_text_t *text, bool in_runs) {
  add_constants(text, "RUN = %d", in_runs ? GOS_RUN : 1);
}

static void add_inputs(gos_text_t *text, const gos_op_t *op) {
  const char *comma = "";
  gos_text_add(text, "  using inputs = gpuos_inputs<");
  for (uint32_t i = 0; i < op->op.operand_count; i++) {
    const gpuos_operand_t *x = &op->operands[i];
    if (x->as != GPUOS_AS_EXTRA) continue;
    gos_text_add(text, "%s%s", comma, view(text->arena, op, x));
    comma = ", ";
  }
  gos_text_add(text, ">;\n");
}

// ---- expressions --------------------------------------------------------------------------------

static const char *float_text(gos_arena_t *arena, float value) {
  if (!isfinite(value)) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return gos_format(arena, "__uint_as_float(0x%08x)", bits);
  }
  char *text = gos_format(arena, "%.9g", (double)value);
  return gos_format(arena, "%s%sf", text, strpbrk(text, ".e") ? "" : ".0");
}

static const char *unary_call(uint8_t op) {
  switch (op) {
  case GPUOS_CODE_ABS: return "fabsf";
  case GPUOS_CODE_EXP: return "expf";
  case GPUOS_CODE_LOG: return "logf";
  case GPUOS_CODE_SQRT: return "sqrtf";
  case GPUOS_CODE_RSQRT: return "1.0f / sqrtf"; // rsqrtf is 2 ulp off, this what the CPU computes
  case GPUOS_CODE_TANH: return "tanhf";
  case GPUOS_CODE_ERF: return "erff";
  default: return NULL;
  }
}

static const char *binary_sign(uint8_t op) {
  switch (op) {
  case GPUOS_CODE_ADD: return "+";
  case GPUOS_CODE_SUB: return "-";
  case GPUOS_CODE_MUL: return "*";
  default: return NULL;
  }
}

// Right-hand side of an instruction whose operands are called a and b.
static const char *instruction(gos_arena_t *arena, const gpuos_code_t *code, const char *a,
                               const char *b) {
  const char *unary = unary_call(code->op), *sign = binary_sign(code->op);
  if (unary) return gos_format(arena, "%s(%s)", unary, a);
  if (code->op == GPUOS_CODE_NEG) return gos_format(arena, "-%s", a);
  if (sign) return gos_format(arena, "%s %s %s", a, sign, b);
  if (code->op == GPUOS_CODE_DIV) return gos_format(arena, "gpuos_divide(%s, %s)", a, b);
  if (code->op == GPUOS_CODE_MAX) return gos_format(arena, "fmaxf(%s, %s)", a, b);
  if (code->op == GPUOS_CODE_MIN) return gos_format(arena, "fminf(%s, %s)", a, b);
  if (code->op == GPUOS_CODE_ROUND)
    return gos_format(arena, "gpuos_round<%s>(%s)", dtype_names[code->b], a);
  GOS_BUG("no instruction %u", code->op);
}

// Values are called by what they are, or v<number>.
static const char *value_name(gos_arena_t *arena, const gpuos_code_t *code, uint32_t number) {
  if (code->op == GPUOS_CODE_ACC) return gos_format(arena, "acc[%u]", code->a);
  if (code->op == GPUOS_CODE_INPUT) return gos_format(arena, "in[%u]", code->a);
  if (code->op == GPUOS_CODE_CONST) {
    const char *text = float_text(arena, code->imm);
    return *text == '-' ? gos_format(arena, "(%s)", text) : text;
  }
  return gos_format(arena, "v%u", number);
}

static void add_code(gos_text_t *text, const gos_op_t *op) {
  gos_arena_t *arena = text->arena;
  const char *names[GPUOS_MAX_CODE + 1] = {"acc[0]"};
  const gpuos_code_t *code = op->code;
  for (uint32_t i = 0; i < op->op.code_count; i++) {
    names[i] = value_name(arena, &code[i], i);
    if (code[i].op == GPUOS_CODE_ACC || code[i].op == GPUOS_CODE_INPUT ||
        code[i].op == GPUOS_CODE_CONST)
      continue;
    bool binary =
        code[i].op != GPUOS_CODE_ROUND && code[i].op != GPUOS_CODE_NEG && !unary_call(code[i].op);
    gos_text_add(text, "    const float %s = %s;\n", names[i],
                 instruction(arena, &code[i], names[code[i].a], binary ? names[code[i].b] : ""));
  }
  const char *result = op->op.code_count ? names[op->op.code_count - 1] : NULL;
  if (!result) result = op->op.kind == GPUOS_MAP ? "in[0]" : "acc[0]";
  gos_text_add(text, "    return %s;\n", result);
}

static void add_expression(gos_text_t *text, const gos_op_t *op) {
  gos_text_add(text, "  GPUOS_DEVICE float of(const float *acc, const float *in) {\n");
  add_code(text, op);
  gos_text_add(text, "  }\n");
}

// ---- matmul -------------------------------------------------------------------------------------

// The format that both operands have in shared memory. Mixed ones widen, exactly, to the wider;
// 16-bit formats that differ have only fp32 in common. The two fp8 formats mix in mma.
void gos_matmul_elems(const gos_op_t *op, uint32_t *out_x, uint32_t *out_w) {
  const gpuos_operand_t *w1 = gos_op_find(op, GPUOS_AS_W1);
  uint32_t x = gos_op_find(op, GPUOS_AS_X)->dtype, w = gos_op_find(op, GPUOS_AS_W0)->dtype;
  uint32_t other = w1 ? w1->dtype : w;
  *out_x = x, *out_w = w;
  if (gos_dtype_is_fp8(x) && gos_dtype_is_fp8(w) && other == w) return;
  uint32_t wider = GPUOS_DTYPE_COUNT; // none yet
  const uint32_t all[] = {x, w, other};
  for (size_t i = 0; i < 3; i++)
    if (!gos_dtype_is_fp8(all[i]))
      wider = wider == GPUOS_DTYPE_COUNT || wider == all[i] ? all[i] : GPUOS_F32;
  *out_x = *out_w = wider == GPUOS_DTYPE_COUNT ? GPUOS_F16 : wider; // three fp8, not all alike
}

// How an operand comes into shared memory as `elem`; row_dim is the iteration dimension of its
// rows.
static const char *copy_of(const gos_op_t *op, gpuos_as_t as, uint32_t elem, uint32_t row_dim) {
  const gpuos_operand_t *x = gos_op_find(op, as);
  bool packed = gos_op_step(op, x, GPUOS_SLICED_DIM) == 1;
  if (packed && x->dtype == elem && gos_op_aligned(op, x, GPUOS_SLICED_DIM, 16))
    return "GPUOS_COPY_ASYNC";
  return !packed && gos_op_step(op, x, row_dim) == 1 ? "GPUOS_COPY_ROW" : "GPUOS_COPY_K";
}

// The next tile size that the device code has; 0: none.
uint32_t gos_matmul_tile_size(uint32_t wanted, uint32_t most) {
  uint32_t size = 16;
  while (size < wanted && size < most) size *= 2;
  return size < wanted ? 0 : size;
}

static void add_matmul_wgmma(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_X, "x");
  add_operand(text, op, GPUOS_AS_W0, "w0");
  add_operand(text, op, GPUOS_AS_W1, "w1");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_inputs(text, op);
  add_constants(text, "TILE_N = %u", op->op.tile[2]);
  add_constants(text, "X_ELEM = %s, W_ELEM = %s", dtype_names[gos_op_find(op, GPUOS_AS_X)->dtype],
                dtype_names[gos_op_find(op, GPUOS_AS_W0)->dtype]);
  add_constants(text, "KEEP_X = %d, PIECES = %d", op->keeps_x, gos_op_stores_pieces(op));
  add_expression(text, op);
}

static void add_product_operands(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_X, "x");
  add_operand(text, op, GPUOS_AS_W0, "w0");
  add_operand(text, op, GPUOS_AS_W1, "w1");
  add_operand(text, op, GPUOS_AS_NORM, "norm");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_inputs(text, op);
}

static const char *travels(bool stamped, bool fours) {
  return fours ? "GPUOS_BY_FOURS" : stamped ? "GPUOS_BY_WORDS" : "GPUOS_BY_COUNTERS";
}

static void add_matmul_stream(gos_text_t *text, const gos_op_t *op) {
  add_product_operands(text, op);
  add_constants(text, "M = %u, K = %u", op->op.extent[1], op->op.extent[3]);
  add_constants(text, "X_STAMPED = %s, OUT_STAMPED = %s",
                travels(op->from[0] != GPUOS_NONE, op->from_fours), travels(op->stamps, op->fours));
  add_constants(text, "ROWS = %u, ELEM = %s", gos_stream_rows(op->op.extent[1], op->op.extent[3]),
                dtype_names[gos_op_find(op, GPUOS_AS_W0)->dtype]);
  add_expression(text, op);
}

static void add_matmul(gos_text_t *text, const gos_op_t *op) {
  uint32_t x, w;
  gos_matmul_elems(op, &x, &w);
  add_product_operands(text, op);
  add_constants(text, "TILE_M = %u, TILE_N = %u", gos_matmul_tile_size(op->op.tile[1], 128),
                gos_matmul_tile_size(op->op.tile[2], 256));
  add_constants(text, "X_ELEM = %s, W_ELEM = %s", dtype_names[x], dtype_names[w]);
  const char *w_copy = copy_of(op, GPUOS_AS_W0, w, 2);
  if (gos_op_find(op, GPUOS_AS_W1) && strcmp(w_copy, copy_of(op, GPUOS_AS_W1, w, 2)))
    w_copy = "GPUOS_COPY_K";
  add_constants(text, "X_COPY = %s, W_COPY = %s", copy_of(op, GPUOS_AS_X, x, 1), w_copy);
  const gpuos_operand_t *norm = gos_op_find(op, GPUOS_AS_NORM);
  if (norm)
    add_constants(text, "NORM_COPY = %s, NORMED = %s", copy_of(op, GPUOS_AS_NORM, norm->dtype, 1),
                  dtype_names[gos_op_find(op, GPUOS_AS_W0)->dtype]);
  add_constants(text, "STREAM = %d", gpuos_op_grid(&op->op, 1) == 1);
  add_run(text, pointwise_runs(op, 2));
  add_expression(text, op);
}

// ---- the other kinds ------------------------------------------------------------------------------

// Floats hold integers up to 2^24 only: moved as they are, they are words like any other.
static void add_map(gos_text_t *text, const gos_op_t *op) {
  gos_op_t moved = *op;
  const gpuos_operand_t *in = gos_op_find(op, GPUOS_AS_EXTRA), *out = gos_op_find(op, GPUOS_AS_OUT);
  if (op->op.code_count == 0 && in && in->dtype == GPUOS_I32 && out->dtype == GPUOS_I32)
    for (uint32_t i = 0; i < op->op.operand_count; i++) moved.operands[i].dtype = GPUOS_F32;
  add_operand(text, &moved, GPUOS_AS_OUT, "out");
  add_inputs(text, &moved);
  uint32_t inputs = op->op.operand_count - 1u;
  int run = inputs > MANY_INPUTS ? SHORT_RUN : GOS_RUN;
  add_constants(text, "RUN = %d", pointwise_runs(op, GPUOS_SLICED_DIM) ? run : 1);
  add_expression(text, &moved);
}

static void add_rmsnorm(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_X, "x");
  add_operand(text, op, GPUOS_AS_NORM, "norm");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_run(text, ALL_ROW_RUNS(op, gos_row_width(op), GPUOS_AS_X, GPUOS_AS_NORM, GPUOS_AS_OUT));
}

static void add_softmax(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_X, "x");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_run(text, ALL_ROW_RUNS(op, gos_row_width(op), GPUOS_AS_X, GPUOS_AS_OUT));
}

static void add_argmax(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_X, "x");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_run(text, ALL_ROW_RUNS(op, gos_row_width(op), GPUOS_AS_X));
}

static void add_embedding(gos_text_t *text, const gos_op_t *op) {
  const gpuos_operand_t *table = gos_op_find(op, GPUOS_AS_TABLE);
  add_operand(text, op, GPUOS_AS_TABLE, "table");
  add_operand(text, op, GPUOS_AS_IDS, "ids");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_run(text, gos_row_runs(table, table->extent[3]) && pointwise_runs(op, GPUOS_SLICED_DIM));
}

static void add_rope(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_X, "x");
  add_operand(text, op, GPUOS_AS_POS, "pos");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_constants(text, "HEAD_DIM = %u, NEIGHBOURS = %u, SCALING = %u", gos_row_width(op),
                op->op.params[1], op->op.params[2]);
  add_constants(text, "OUT_STAMPED = %d", op->stamps);
}

static void add_cache(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_K, "k");
  add_operand(text, op, GPUOS_AS_V, "v");
  add_operand(text, op, GPUOS_AS_CACHE, "cache");
  add_operand(text, op, GPUOS_AS_PAGES, "pages");
  add_operand(text, op, GPUOS_AS_POS, "pos");
  add_operand(text, op, GPUOS_AS_SEQ, "seq");
  add_operand(text, op, GPUOS_AS_ROTATION, "rotation");
}

// Runs of a vector of head_dim elements; a rotated one's other half comes in the same runs.
static void add_head_run(gos_text_t *text, const gos_op_t *op, uint32_t head_dim, bool in_runs) {
  const gpuos_operand_t *rotation = gos_op_find(op, GPUOS_AS_ROTATION);
  bool fits = !rotation || (head_dim / 2 % GOS_RUN == 0 && gos_row_runs(rotation, head_dim));
  add_run(text, in_runs && fits);
}

static void add_kv_append(gos_text_t *text, const gos_op_t *op) {
  uint32_t head_dim = op->op.params[1];
  add_cache(text, op);
  add_constants(text, "PAGE_SIZE = %u, HEAD_DIM = %u, NEIGHBOURS = %u", op->op.params[0], head_dim,
                op->op.params[2]);
  add_head_run(text, op, head_dim,
               ALL_ROW_RUNS(op, head_dim, GPUOS_AS_K, GPUOS_AS_V, GPUOS_AS_CACHE));
}

static void add_attention_operands(gos_text_t *text, const gos_op_t *op) {
  uint32_t page_size = op->op.params[1], head_dim = op->op.params[2];
  add_operand(text, op, GPUOS_AS_X, "x");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_operand(text, op, GPUOS_AS_PARTIAL, "partial");
  add_cache(text, op);
  add_constants(text, "PAGE_SIZE = %u, HEAD_DIM = %u, GROUP = %u, NEIGHBOURS = %u",
                page_size ? page_size : 1, head_dim, op->op.params[3], op->op.params[6]);
}

static void add_attention(gos_text_t *text, const gos_op_t *op) {
  uint32_t head_dim = op->op.params[2];
  add_attention_operands(text, op);
  add_head_run(text, op, head_dim,
               ALL_ROW_RUNS(op, head_dim, GPUOS_AS_X, GPUOS_AS_K, GPUOS_AS_V, GPUOS_AS_CACHE));
}

static void add_attention_ring(gos_text_t *text, const gos_op_t *op) {
  add_attention_operands(text, op);
  add_constants(text, "STAMPED = %d, OUT_STAMPED = %d", op->from[0] != GPUOS_NONE, op->stamps);
}

static void add_attention_combine(gos_text_t *text, const gos_op_t *op) {
  add_operand(text, op, GPUOS_AS_PARTIAL, "partial");
  add_operand(text, op, GPUOS_AS_OUT, "out");
  add_operand(text, op, GPUOS_AS_POS, "pos");
  add_constants(text, "HEAD_DIM = %u, GROUP = %u", op->op.params[2], op->op.params[3]);
  add_constants(text, "STAMPED = %d, OUT_STAMPED = %d", op->from[0] != GPUOS_NONE, op->stamps);
}

const gos_device_kind_t gos_device_wgmma = {"matmul_wgmma", add_matmul_wgmma};
const gos_device_kind_t gos_device_stream = {"matmul_stream", add_matmul_stream};
const gos_device_kind_t gos_device_attention_ring = {"attention_ring", add_attention_ring};
const gos_device_kind_t gos_device_kinds[GPUOS_KIND_COUNT] = {
    [GPUOS_MATMUL] = {"matmul", add_matmul},
    [GPUOS_MAP] = {"map", add_map},
    [GPUOS_RMSNORM] = {"rmsnorm", add_rmsnorm},
    [GPUOS_SOFTMAX] = {"softmax", add_softmax},
    [GPUOS_EMBEDDING] = {"embedding", add_embedding},
    [GPUOS_ROPE] = {"rope", add_rope},
    [GPUOS_KV_APPEND] = {"kv_append", add_kv_append},
    [GPUOS_ATTENTION] = {"attention", add_attention},
    [GPUOS_ATTENTION_COMBINE] = {"attention_combine", add_attention_combine},
    [GPUOS_ARGMAX] = {"argmax", add_argmax},
};
