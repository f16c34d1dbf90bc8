// infer.c: shapes and dtypes of every operator's results, part of legalize.
//
// One function an operator, looked up by name. Each reports what does not fit, naming the key, the
// dimension and what to change, and leaves the result unknown; an operator with an unknown operand
// is passed over, so one mistake gives one error.
#include "infer.h"

#include <string.h>

typedef struct infer {
  gos_ir_t *ir;
  MlirOperation op;
  gos_shape_t out, out2;
} infer_t;

#define SHAPE(in) gos_shape_text(at->ir, in)

static gos_shape_t in(const infer_t *at, const char *param) {
  MlirValue value = gos_op_in(at->op, param);
  return mlirValueIsNull(value) ? (gos_shape_t){.rank = -1} : gos_shape_of(value);
}

static bool has(const infer_t *at, const char *param) {
  return !mlirValueIsNull(gos_op_in(at->op, param));
}

static void note_declared(const infer_t *at, const char *param) {
  MlirValue value = gos_op_in(at->op, param);
  gos_shape_t shape = gos_shape_of(value);
  gos_loc_t place = gos_value_place(at->ir, value);
  if (place.line) gos_note(at->ir->diags, place, "'%s' is made here: %s", param, SHAPE(&shape));
}

// An error at parameter `param`, with a note where its tensor comes from.
__attribute__((format(printf, 4, 5))) static bool fail(const infer_t *at, const char *param,
                                                       const char *slug, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = gos_vformat(at->ir->arena, format, args);
  va_end(args);
  gos_error(at->ir->diags, gos_op_place(at->ir, at->op, param), slug, "%s", text);
  const gos_op_spec_t *spec = gos_op_get_spec(at->op);
  for (const gos_param_t *p = spec->params; p->name; p++)
    if (p->kind == GOS_IN && !strcmp(p->name, param) && has(at, param)) note_declared(at, param);
  return false;
}

static bool is_float(gpuos_dtype_t dtype) { return dtype != GPUOS_I32; }

static bool want_float(const infer_t *at, const char *param) {
  gos_shape_t x = in(at, param);
  if (is_float(x.dtype)) return true;
  return fail(at, param, "dtype", "'%s' is %s; a floating-point type is needed", param, SHAPE(&x));
}

static bool want_rank(const infer_t *at, const char *param, int low, int high) {
  gos_shape_t x = in(at, param);
  if (x.rank >= low && x.rank <= high) return true;
  if (low == high)
    return fail(at, param, "rank", "'%s' is %s; %d dimension%s needed", param, SHAPE(&x), low,
                low == 1 ? " is" : "s are");
  return fail(at, param, "rank", "'%s' is %s; %d to %d dimensions are needed", param, SHAPE(&x),
              low, high);
}

// `param` must be [count] i32, one for each row.
static bool want_index(const infer_t *at, const char *param, int64_t count) {
  gos_shape_t x = in(at, param);
  if (x.rank == 1 && x.dtype == GPUOS_I32 && x.dim[0] == count) return true;
  return fail(at, param, "index-shape", "'%s' is %s; [%lld] i32 is needed, one for each row", param,
              SHAPE(&x), (long long)count);
}

static bool want_scalar(const infer_t *at, const char *param) {
  gos_shape_t x = in(at, param);
  bool one = x.dtype == GPUOS_F32;
  for (int d = 0; d < x.rank; d++) one = one && x.dim[d] == 1;
  return one || fail(at, param, "scale-shape", "'%s' is %s; a scale is [] f32", param, SHAPE(&x));
}

static bool want_vector(const infer_t *at, const char *param, int64_t count, const char *of) {
  gos_shape_t x = in(at, param);
  if (x.rank == 1 && x.dim[0] == count && is_float(x.dtype)) return true;
  return fail(at, param, "vector-shape", "'%s' is %s; [%lld] is needed, one for each %s", param,
              SHAPE(&x), (long long)count, of);
}

static int64_t last(const gos_shape_t *x) { return x->dim[x->rank - 1]; }

// The result's dtype: the attribute if given, else `fallback`.
static bool set_dtype(infer_t *at, gpuos_dtype_t fallback) {
  const char *name = gos_op_string(at->ir, at->op, "dtype");
  at->out.dtype = fallback;
  if (name[0] && !gos_dtype_parse(name, &at->out.dtype)) GOS_BUG("dtype '%s'", name);
  return is_float(at->out.dtype) ||
         fail(at, "dtype", "dtype", "the result cannot be i32; a floating-point type is needed");
}

// ---- one function an operator -------------------------------------------------------------------

static bool embedding(infer_t *at) {
  gos_shape_t ids = in(at, "ids"), table = in(at, "table");
  if (!want_rank(at, "ids", 1, 1) || !want_rank(at, "table", 2, 2) || !want_float(at, "table"))
    return false;
  if (ids.dtype != GPUOS_I32)
    return fail(at, "ids", "dtype", "'ids' is %s; i32 is needed", SHAPE(&ids));
  at->out = (gos_shape_t){.rank = 2, .dim = {ids.dim[0], table.dim[1]}};
  return set_dtype(at, table.dtype);
}

static bool rmsnorm(infer_t *at) {
  gos_shape_t x = in(at, "x");
  if (!want_rank(at, "x", 1, 4) || !want_float(at, "x")) return false;
  if (!want_vector(at, "weight", last(&x), "column of 'x'")) return false;
  at->out = x;
  return set_dtype(at, x.dtype);
}

static bool matmul_types(infer_t *at, const gos_shape_t *x, const gos_shape_t *w) {
  if (!want_float(at, "x") || !want_float(at, "w")) return false;
  if (x->dtype == w->dtype || (gos_dtype_is_fp8(x->dtype) && gos_dtype_is_fp8(w->dtype)))
    return true;
  fail(at, "w", "matmul-types", "'x' is %s and 'w' is %s; both must be of one type, or both 8-bit",
       gos_dtype_name(x->dtype), gos_dtype_name(w->dtype));
  gos_note(at->ir->diags, (gos_loc_t){0},
           "cast one of them with map, quantize or dequantize first");
  return false;
}

static bool matmul_batch(infer_t *at, const gos_shape_t *x, const gos_shape_t *w) {
  if (w->rank == 2) return true;
  bool same = x->rank == w->rank;
  for (int d = 0; same && d < x->rank - 2; d++) same = x->dim[d] == w->dim[d];
  return same || fail(at, "w", "matmul-batch", "'w' is %s, but the batch of 'x' is that of %s",
                      SHAPE(w), SHAPE(x));
}

static bool matmul_inner(infer_t *at, const gos_shape_t *x, const gos_shape_t *w, bool tx,
                         bool tw) {
  int64_t xk = x->dim[x->rank - (tx ? 2 : 1)], wk = w->dim[w->rank - (tw ? 1 : 2)];
  if (xk == wk) return true;
  fail(at, "w", "matmul-inner", "'x'%s is %s but 'w'%s is %s: inner dimensions differ (%lld, %lld)",
       tx ? " transposed" : "", SHAPE(x), tw ? " transposed" : "", SHAPE(w), (long long)xk,
       (long long)wk);
  if (w->dim[w->rank - (tw ? 2 : 1)] == xk)
    gos_note(at->ir->diags, (gos_loc_t){0}, "did you mean transpose_w: %s?", tw ? "false" : "true");
  return false;
}

static bool broadcasts_to(const gos_shape_t *x, const gos_shape_t *out) {
  if (x->rank > out->rank) return false;
  for (int d = 1; d <= x->rank; d++) {
    int64_t n = x->dim[x->rank - d];
    if (n != 1 && n != out->dim[out->rank - d]) return false;
  }
  return true;
}

static bool matmul(infer_t *at) {
  gos_shape_t x = in(at, "x"), w = in(at, "w");
  bool tx = gos_op_bool(at->op, "transpose_x"), tw = gos_op_bool(at->op, "transpose_w");
  if (!want_rank(at, "x", 2, 4) || !want_rank(at, "w", 2, 4) || !matmul_types(at, &x, &w))
    return false;
  if (!matmul_batch(at, &x, &w) || !matmul_inner(at, &x, &w, tx, tw)) return false;
  at->out = x;
  at->out.dim[x.rank - 2] = x.dim[x.rank - (tx ? 1 : 2)];
  at->out.dim[x.rank - 1] = w.dim[w.rank - (tw ? 2 : 1)];
  if (!set_dtype(at, gos_dtype_is_fp8(x.dtype) ? GPUOS_BF16 : x.dtype)) return false;
  if (has(at, "x_scale") && !want_scalar(at, "x_scale")) return false;
  if (has(at, "w_scale") && !want_scalar(at, "w_scale")) return false;
  if (has(at, "bias") && !want_vector(at, "bias", last(&at->out), "column of the result"))
    return false;
  gos_shape_t add = in(at, "add");
  if (has(at, "add") && (!is_float(add.dtype) || !broadcasts_to(&add, &at->out)))
    return fail(at, "add", "add-shape", "'add' is %s; the result is %s", SHAPE(&add),
                SHAPE(&at->out));
  return true;
}

static bool map(infer_t *at) {
  int count = gos_op_in_count(at->op, "in");
  gos_shape_t out = {0};
  for (int i = 0; i < count; i++) {
    const char *name = gos_format(at->ir->scratch, "in%d", i);
    gos_shape_t x = in(at, name);
    if (x.rank > out.rank) {
      for (int d = out.rank; d > 0; d--) out.dim[d - 1 + x.rank - out.rank] = out.dim[d - 1];
      for (int d = 0; d < x.rank - out.rank; d++) out.dim[d] = 1;
      out.rank = x.rank;
    }
    for (int d = 1; d <= x.rank; d++) {
      int64_t n = x.dim[x.rank - d], *to = &out.dim[out.rank - d];
      if (n != 1 && *to != 1 && *to != n)
        return fail(at, name, "broadcast",
                    "input %d of the expression is %s; the inputs before it give %s", i + 1,
                    SHAPE(&x), SHAPE(&out));
      if (n != 1) *to = n;
    }
  }
  at->out = out;
  gpuos_dtype_t first = in(at, "in0").dtype;
  return set_dtype(at, first == GPUOS_I32 ? GPUOS_F32 : first);
}

static bool want_heads(infer_t *at, const char *param, int64_t head_dim) {
  gos_shape_t x = in(at, param);
  if (head_dim > 0 && last(&x) % head_dim == 0) return true;
  return fail(at, param, "head-dim",
              "'%s' is %s: its last dimension is no multiple of head_dim %lld", param, SHAPE(&x),
              (long long)head_dim);
}

static bool rope(infer_t *at) {
  gos_shape_t x = in(at, "x");
  int64_t head_dim = gos_op_int(at->op, "head_dim");
  if (!want_rank(at, "x", 2, 2) || !want_float(at, "x") || !want_index(at, "pos", x.dim[0]))
    return false;
  if (head_dim % 2 || head_dim <= 0)
    return fail(at, "head_dim", "head-dim", "head_dim is %lld; it must be even and positive",
                (long long)head_dim);
  if (!want_heads(at, "x", head_dim)) return false;
  if (!(gos_op_float(at->op, "theta") > 0) || !(gos_op_float(at->op, "scaling_factor") > 0))
    return fail(at, "theta", "rope", "theta and the scaling factor must be positive");
  at->out = x;
  return true;
}

// [layers, 2, kv_heads, pages, page_size, head_dim], the page table beside it.
static bool attention_cache(infer_t *at, const gos_shape_t *q, int64_t kv_heads, int64_t head_dim) {
  gos_shape_t cache = in(at, "cache"), k = in(at, "k");
  int64_t layer = gos_op_int(at->op, "layer");
  if (!want_rank(at, "cache", 6, 6) || !want_rank(at, "q", 2, 2)) return false;
  if (!want_index(at, "pos", q->dim[0]) || (has(at, "seq") && !want_index(at, "seq", q->dim[0])))
    return false;
  if (cache.dim[2] != kv_heads || cache.dim[5] != head_dim || cache.dtype != k.dtype)
    return fail(at, "cache", "cache-shape",
                "'cache' has %lld kv heads of %lld in %s; 'k' has %lld of %lld in %s",
                (long long)cache.dim[2], (long long)cache.dim[5], gos_dtype_name(cache.dtype),
                (long long)kv_heads, (long long)head_dim, gos_dtype_name(k.dtype));
  if (layer < 0 || layer >= cache.dim[0])
    return fail(at, "layer", "cache-layer", "layer %lld; the cache has %lld layers",
                (long long)layer, (long long)cache.dim[0]);
  gos_shape_t pages = in(at, "pages");
  if (!has(at, "seq") && pages.dim[0] < q->dim[0])
    return fail(at, "cache", "cache-sequences",
                "%lld rows, each its own sequence, but the cache holds %lld sequences; give 'seq' "
                "or more sequences",
                (long long)q->dim[0], (long long)pages.dim[0]);
  at->out2 = cache;
  return true;
}

static bool attention(infer_t *at) {
  gos_shape_t q = in(at, "q"), k = in(at, "k"), v = in(at, "v");
  int64_t head_dim = gos_op_int(at->op, "head_dim");
  if (!want_rank(at, "q", 2, 3) || !want_rank(at, "k", q.rank, q.rank) ||
      !want_rank(at, "v", q.rank, q.rank))
    return false;
  if (!want_heads(at, "q", head_dim) || !want_heads(at, "k", head_dim)) return false;
  int64_t heads = last(&q) / head_dim, kv_heads = last(&k) / head_dim;
  if (memcmp(k.dim, v.dim, sizeof k.dim) || k.dtype != v.dtype || k.dtype != q.dtype ||
      !is_float(q.dtype))
    return fail(at, "v", "attention-shape",
                "'q', 'k' and 'v' are %s, %s and %s; 'k' and 'v' must agree, and the types",
                SHAPE(&q), SHAPE(&k), SHAPE(&v));
  if (heads % kv_heads)
    return fail(at, "k", "attention-heads", "%lld query heads are no multiple of %lld kv heads",
                (long long)heads, (long long)kv_heads);
  at->out = q;
  if (has(at, "cache")) {
    if (k.dim[0] != q.dim[0])
      return fail(at, "k", "attention-shape", "'q' has %lld rows and 'k' %lld", (long long)q.dim[0],
                  (long long)k.dim[0]);
    return attention_cache(at, &q, kv_heads, head_dim);
  }
  if (q.rank == 3 && q.dim[0] != k.dim[0])
    return fail(at, "k", "attention-shape", "'q' is %s and 'k' %s: batches differ", SHAPE(&q),
                SHAPE(&k));
  if (gos_op_bool(at->op, "causal") && k.dim[k.rank - 2] < q.dim[q.rank - 2])
    return fail(at, "k", "attention-shape",
                "causal attention of %lld rows over %lld: the first rows would see nothing",
                (long long)q.dim[q.rank - 2], (long long)k.dim[k.rank - 2]);
  return true;
}

static bool softmax(infer_t *at) {
  if (!want_rank(at, "x", 1, 4) || !want_float(at, "x")) return false;
  at->out = in(at, "x");
  return set_dtype(at, at->out.dtype);
}

static bool quantize(infer_t *at) {
  at->out = in(at, "x");
  return want_float(at, "x") && want_scalar(at, "scale") && set_dtype(at, GPUOS_E4M3) &&
         (gos_dtype_is_fp8(at->out.dtype) ||
          fail(at, "dtype", "dtype", "quantize gives e4m3 or e5m2"));
}

static bool dequantize(infer_t *at) {
  at->out = in(at, "x");
  if (!gos_dtype_is_fp8(at->out.dtype))
    return fail(at, "x", "dtype", "'x' is %s; dequantize takes 8-bit types", SHAPE(&at->out));
  return want_scalar(at, "scale") && set_dtype(at, GPUOS_BF16);
}

static bool argmax(infer_t *at) {
  if (!want_rank(at, "x", 1, 4) || !want_float(at, "x")) return false;
  at->out = in(at, "x");
  at->out.rank--;
  at->out.dim[at->out.rank] = 0;
  at->out.dtype = GPUOS_I32;
  return true;
}

static bool transpose(infer_t *at) {
  gos_shape_t x = in(at, "x");
  int64_t perm[GPUOS_RANK];
  size_t count = gos_op_ints(at->op, "perm", perm, GPUOS_RANK);
  unsigned seen = 0;
  for (size_t i = 0; i < count && i < GPUOS_RANK; i++)
    if (perm[i] >= 0 && perm[i] < x.rank) seen |= 1u << perm[i];
  if ((int)count != x.rank || seen != (1u << x.rank) - 1)
    return fail(at, "perm", "perm", "'x' is %s; perm must name each of its %d dimensions once",
                SHAPE(&x), x.rank);
  at->out = x;
  for (int d = 0; d < x.rank; d++) at->out.dim[d] = x.dim[perm[d]];
  return true;
}

static int64_t elements(const gos_shape_t *x) {
  int64_t count = 1;
  for (int d = 0; d < x->rank; d++) count *= x->dim[d];
  return count;
}

static bool reshape(infer_t *at) {
  gos_shape_t x = in(at, "x"), out = {.dtype = x.dtype};
  size_t count = gos_op_ints(at->op, "shape", out.dim, GPUOS_RANK);
  if (count > GPUOS_RANK)
    return fail(at, "shape", "rank", "a tensor has at most %d dimensions", GPUOS_RANK);
  out.rank = (int)count;
  int64_t limit = elements(&x), product = 1;
  for (int d = 0; d < out.rank; d++) {
    if (out.dim[d] < 1 || out.dim[d] > limit) product = -1;
    if (product > 0 && (product *= out.dim[d]) > limit) product = -1;
  }
  if (product != limit)
    return fail(at, "shape", "reshape",
                "'x' is %s, %lld elements; the new shape %s has another number", SHAPE(&x),
                (long long)limit, SHAPE(&out));
  at->out = out;
  return true;
}

static bool concat(infer_t *at) {
  gos_shape_t out = in(at, "inputs0");
  int64_t axis = gos_op_int(at->op, "axis");
  if (axis < 0) axis += out.rank;
  if (axis < 0 || axis >= out.rank)
    return fail(at, "axis", "axis", "axis %lld of %s", (long long)gos_op_int(at->op, "axis"),
                SHAPE(&out));
  for (int i = 1; i < gos_op_in_count(at->op, "inputs"); i++) {
    gos_shape_t x = in(at, gos_format(at->ir->scratch, "inputs%d", i));
    bool same = x.rank == out.rank && x.dtype == out.dtype;
    for (int d = 0; same && d < x.rank; d++) same = d == axis || x.dim[d] == out.dim[d];
    if (!same)
      return fail(at, "inputs", "concat", "input %d is %s; the others are %s but along axis %lld",
                  i + 1, SHAPE(&x), SHAPE(&out), (long long)axis);
    out.dim[axis] += x.dim[axis];
  }
  at->out = out;
  return true;
}

static bool slice(infer_t *at) {
  gos_shape_t x = in(at, "x");
  int64_t range[2 * GPUOS_RANK];
  size_t count = gos_op_ints(at->op, "ranges", range, 2 * GPUOS_RANK) / 2;
  if ((int)count != x.rank)
    return fail(at, "ranges", "slice", "'x' is %s; %zu ranges were given", SHAPE(&x), count);
  at->out = x;
  for (int d = 0; d < x.rank; d++) {
    int64_t start = range[2 * d], stop = range[2 * d + 1] < 0 ? x.dim[d] : range[2 * d + 1];
    if (start < 0 || start >= stop || stop > x.dim[d])
      return fail(at, "ranges", "slice", "range %lld:%lld of dimension %d, which is %lld",
                  (long long)start, (long long)stop, d, (long long)x.dim[d]);
    at->out.dim[d] = stop - start;
  }
  return true;
}

static const struct {
  const char *name;
  bool (*infer)(infer_t *at);
} rules[] = {
    {"embedding", embedding}, {"rmsnorm", rmsnorm},
    {"matmul", matmul},       {"map", map},
    {"rope", rope},           {"attention", attention},
    {"softmax", softmax},     {"quantize", quantize},
    {"argmax", argmax},       {"dequantize", dequantize},
    {"transpose", transpose}, {"reshape", reshape},
    {"concat", concat},       {"slice", slice},
};

static bool operands_known(MlirOperation op) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(op); i++)
    if (gos_shape_of(mlirOperationGetOperand(op, i)).rank < 0) return false;
  return true;
}

// Operands, results and intermediates are addressed by 32-bit element numbers.
static bool small_enough(const infer_t *at, const gos_shape_t *out) {
  uint64_t count = 1;
  for (int d = 0; d < out->rank; d++) {
    count *= (uint64_t)out->dim[d];
    if (count > UINT32_MAX)
      return fail(at, "out", "too-large", "the result %s has 2^32 elements or more", SHAPE(out));
  }
  return true;
}

// A cache that an attention has written holds a version of its own for each layer.
static bool caches_kept_apart(const infer_t *at) {
  for (intptr_t i = 0; i < mlirOperationGetNumOperands(at->op); i++) {
    MlirValue value = mlirOperationGetOperand(at->op, i);
    if (!mlirValueIsAOpResult(value) || mlirOpResultGetResultNumber(value) != 1) continue;
    if (gos_op_is(at->op, "attention")) continue;
    gos_error(at->ir->diags, gos_op_place(at->ir, at->op, NULL), "cache-use",
              "'%s' reads a cache that an attention has written; only attention can",
              gos_op_get_spec(at->op)->name);
    return false;
  }
  return true;
}

void gos_infer(gos_ir_t *ir, MlirOperation op) {
  const gos_op_spec_t *spec = gos_op_get_spec(op);
  if (!operands_known(op)) return;
  infer_t at = {.ir = ir, .op = op};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    if (strcmp(rules[i].name, spec->name)) continue;
    if (!caches_kept_apart(&at) || !rules[i].infer(&at) || !small_enough(&at, &at.out)) return;
    mlirValueSetType(mlirOperationGetResult(op, 0), gos_tensor_type(ir, &at.out));
    if (mlirOperationGetNumResults(op) > 1)
      mlirValueSetType(mlirOperationGetResult(op, 1), gos_tensor_type(ir, &at.out2));
    return;
  }
  GOS_BUG("no shape rule for %s", spec->name);
}
