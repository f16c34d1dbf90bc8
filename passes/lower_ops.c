// lower_ops.c: each operator of the dialect as operators of the plan, or as a view, part of lower.
#include "lower.h"

#include <string.h>

// ---- operators ----------------------------------------------------------------------------------

// "model.layers.3.mlp.up_proj" after the argument "model.layers.3.mlp.up_proj.weight", else NULL.
static const char *layer_name(gos_lower_t *at, MlirValue weight) {
  if (!mlirValueIsABlockArgument(weight)) return NULL;
  const char *name =
      gos_arg_string(at->ir, at->func, mlirBlockArgumentGetArgNumber(weight), "gpuos.name");
  size_t length = strlen(name);
  if (length <= 7 || strcmp(name + length - 7, ".weight")) return NULL;
  return gos_strndup(at->ir->arena, name, length - 7);
}

// "model.layers.3.self_attn.q_proj,k_proj,v_proj": of the others, what follows the last dot.
static const char *layer_names(gos_lower_t *at, MlirValue weight) {
  MlirOperation concat = {NULL};
  if (mlirValueIsAOpResult(weight)) concat = mlirOpResultGetOwner(weight);
  if (mlirOperationIsNull(concat) || !gos_op_get_spec(concat) || !gos_op_is(concat, "concat"))
    return layer_name(at, weight);
  const char *names = layer_name(at, gos_op_in(concat, "inputs0"));
  for (int i = 1; names && i < gos_op_in_count(concat, "inputs"); i++) {
    const char *name =
        layer_name(at, gos_op_in(concat, gos_format(at->ir->scratch, "inputs%d", i)));
    if (!name) return NULL;
    const char *dot = strrchr(name, '.');
    names = gos_format(at->ir->arena, "%s,%s", names, dot ? dot + 1 : name);
  }
  return names;
}

// After its weights, else "map.12".
static const char *op_name(gos_lower_t *at, MlirOperation op, gpuos_kind_t kind) {
  uint32_t number = at->kind_count[kind]++;
  static const char *const weights[] = {"w", "weight", "table"};
  const gos_op_spec_t *spec = gos_op_get_spec(op);
  for (size_t i = 0; i < 3; i++)
    for (const gos_param_t *p = spec->params; p->name; p++) {
      const char *name =
          strcmp(p->name, weights[i]) ? NULL : layer_names(at, gos_op_in(op, p->name));
      if (name) return name;
    }
  return gos_format(at->ir->arena, "%s.%u", gos_kind_name(kind), number);
}

static gos_op_t *add_op(gos_lower_t *at, MlirOperation from, gpuos_kind_t kind) {
  gos_op_t *op = gos_push(at->ir->arena, &at->plan->ops);
  *op = (gos_op_t){.name = op_name(at, from, kind), .at = gos_op_place(at->ir, from, NULL)};
  op->op.kind = (uint16_t)kind;
  op->op.line = op->at.line;
  for (int d = 0; d < GPUOS_DIMS; d++) op->op.extent[d] = 1;
  return op;
}

static void extents(gos_op_t *op, int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
  int64_t dims[GPUOS_DIMS] = {d0, d1, d2, d3};
  for (int d = 0; d < GPUOS_DIMS; d++) op->op.extent[d] = (uint32_t)dims[d];
}

enum { W = GPUOS_ALL }; // a whole dimension, in the follows lists below

// Adds an operand whose last dimensions are `view`'s, at most four, following iteration dimensions
// f0..f3.
static void operand(gos_lower_t *at, gos_op_t *op, gpuos_as_t as, const gos_view_t *view, int f0,
                    int f1, int f2, int f3) {
  int follows[GPUOS_DIMS] = {f0, f1, f2, f3};
  if (op->op.operand_count == GPUOS_MAX_OPERANDS || view->rank > GPUOS_DIMS)
    GOS_BUG("operands of %s", op->name);
  gpuos_operand_t *x = &op->operands[op->op.operand_count++];
  *x = (gpuos_operand_t){.as = (uint8_t)as, .dtype = (uint8_t)view->dtype, .value = view->value};
  x->writes = as == GPUOS_AS_OUT;
  x->buffer = at->plan->values.at[view->value].buffer;
  x->offset_bytes = view->offset * gpuos_dtype_bytes(view->dtype);
  int pad = GPUOS_DIMS - view->rank;
  for (int d = 0; d < GPUOS_DIMS; d++) {
    x->extent[d] = d < pad ? 1 : (uint32_t)view->extent[d - pad];
    x->stride[d] = d < pad ? 0 : (uint32_t)view->stride[d - pad];
    bool broadcast = x->extent[d] == 1 && follows[d] != W && op->op.extent[follows[d]] != 1;
    x->follows[d] = d < pad || broadcast ? GPUOS_ALL : (uint8_t)follows[d];
  }
}

static void set_float(gos_op_t *op, int param, double value) {
  float narrow = (float)value;
  memcpy(&op->op.params[param], &narrow, sizeof narrow);
}

static void set_body(gos_lower_t *at, gos_op_t *op, MlirOperation body, size_t accs) {
  if (mlirOperationIsNull(body)) return;
  op->code = gos_alloc(at->ir->arena, GPUOS_MAX_CODE * sizeof *op->code);
  op->op.code_count = (uint32_t)gos_body_encode(at->ir, body, accs, op->code);
}

// ---- map, and the copies other operators need ---------------------------------------------------

bool gos_lower_map_op(gos_lower_t *at, MlirOperation from, MlirOperation body, gos_view_t out,
                      size_t count, gos_view_t *in) {
  gos_view_t *all[GOS_LIST_ROOM + 1] = {&out};
  for (size_t i = 0; i < count; i++) {
    gos_view_broadcast(&in[i], &out);
    all[i + 1] = &in[i];
  }
  gos_views_merge(all, count + 1);
  if (out.rank > GPUOS_DIMS) {
    gos_error(at->ir->diags, gos_op_place(at->ir, from, NULL), "view",
              "after merging, this takes %d dimensions; at most %d are possible", out.rank,
              GPUOS_DIMS);
    return false;
  }
  gos_op_t *op = add_op(at, from, GPUOS_MAP);
  int pad = GPUOS_DIMS - out.rank;
  for (int d = 0; d < out.rank; d++) op->op.extent[pad + d] = (uint32_t)out.extent[d];
  set_body(at, op, body, 0);
  operand(at, op, GPUOS_AS_OUT, &out, 0, 1, 2, 3);
  for (size_t i = 0; i < count; i++) operand(at, op, GPUOS_AS_EXTRA, &in[i], 0, 1, 2, 3);
  return true;
}

// A dense copy in place of `view`, whose first `batch` dimensions become as long as those of `to`.
static bool copy_view(gos_lower_t *at, MlirOperation from, gos_view_t *view, int batch,
                      const gos_view_t *to) {
  gos_shape_t shape = {.rank = view->rank, .dtype = view->dtype};
  memcpy(shape.dim, view->extent, sizeof shape.dim);
  for (int d = 0; d < batch; d++) shape.dim[d] = to->extent[d];
  gos_view_t dense = gos_view_dense(
      gos_lower_value(at->plan, "copy", at->plan->workspace, gos_shape_bytes(&shape)), &shape);
  if (!gos_lower_map_op(at, from, (MlirOperation){NULL}, dense, 1, view)) return false;
  *view = dense;
  return true;
}

// `view` with dimensions first..last as one, by a copy if strides do not allow it.
static bool as_rows(gos_lower_t *at, MlirOperation from, gos_view_t *view, int first, int last) {
  if (gos_view_merge(view, first, last)) return true;
  return copy_view(at, from, view, 0, NULL) && gos_view_merge(view, first, last);
}

static bool lower_map(gos_lower_t *at, MlirOperation from) {
  gos_view_t in[GOS_LIST_ROOM];
  int count = gos_op_in_count(from, "in");
  for (int i = 0; i < count; i++)
    in[i] = gos_lower_view(at, gos_op_in(from, gos_format(at->ir->scratch, "in%d", i)));
  gos_view_t out = gos_lower_place(at, mlirOperationGetResult(from, 0), "map");
  return gos_lower_map_op(at, from, gos_op_body(at->ir, from, "expr"), out, (size_t)count, in);
}

// ---- the other kinds ----------------------------------------------------------------------------

// Whether the batch dimensions of `view` become one in step with those of `out`.
static bool batch_merges(const gos_view_t *out, const gos_view_t *view) {
  gos_view_t copies[2] = {*out, *view}, *both[2] = {&copies[0], &copies[1]};
  return gos_views_merge_range(both, 2, 0, out->rank - 3);
}

// Everything a matmul touches as [batch, rows, cols]: with one weight for all, the batch joins the
// rows. What its strides keep from merging is copied.
static bool batch_matmul(gos_lower_t *at, MlirOperation from, gos_view_t **views, size_t count,
                         gos_view_t **w, size_t w_count) {
  int rank = views[0]->rank;
  if (rank <= 2 || (w[0]->rank == 2 && gos_views_merge_range(views, count, 0, rank - 2)))
    return true;
  for (size_t i = 1; i < count && rank > 3; i++)
    if (!batch_merges(views[0], views[i]) && !copy_view(at, from, views[i], rank - 2, views[0]))
      return false;
  if (rank > 3 && !gos_views_merge_range(views, count, 0, rank - 3))
    GOS_BUG("the batch of a strided result");
  for (size_t i = 0; i < w_count; i++)
    if (w[i]->rank > 3 && !as_rows(at, from, w[i], 0, w[i]->rank - 3)) return false;
  return true;
}

static void matmul_operands(gos_lower_t *at, gos_op_t *op, MlirOperation from, const gos_view_t *x,
                            const gos_view_t *w, size_t w_count) {
  MlirValue norm = gos_op_in(from, "norm");
  operand(at, op, GPUOS_AS_X, x, W, 0, 1, mlirValueIsNull(norm) ? 3 : W);
  for (size_t i = 0; i < w_count; i++)
    operand(at, op, i ? GPUOS_AS_W1 : GPUOS_AS_W0, &w[i], W, 0, 2, 3);
  if (mlirValueIsNull(norm)) return;
  gos_view_t weight = gos_lower_view(at, norm);
  operand(at, op, GPUOS_AS_NORM, &weight, W, W, W, W);
  set_float(op, 0, gos_op_float(from, "eps"));
}

static bool lower_matmul(gos_lower_t *at, MlirOperation from) {
  gos_view_t x = gos_lower_view(at, gos_op_in(from, "x")), w[2], extra[GOS_LIST_ROOM];
  size_t w_count = mlirValueIsNull(gos_op_in(from, "w1")) ? 1 : 2;
  gos_view_t out = gos_lower_place(at, mlirOperationGetResult(from, 0), "matmul");
  if (gos_op_bool(from, "transpose_x")) gos_view_swap(&x, x.rank - 2, x.rank - 1);
  gos_view_t *rows[GOS_LIST_ROOM + 2] = {&out, &x}, *weights[2] = {&w[0], &w[1]};
  for (size_t i = 0; i < w_count; i++) {
    w[i] = gos_lower_view(at, gos_op_in(from, i ? "w1" : "w"));
    if (!gos_op_bool(from, "transpose_w"))
      gos_view_swap(&w[i], w[i].rank - 2, w[i].rank - 1); // to [n, k]
  }
  int extras = gos_op_in_count(from, "extra");
  for (int i = 0; i < extras; i++) {
    extra[i] = gos_lower_view(at, gos_op_in(from, gos_format(at->ir->scratch, "extra%d", i)));
    gos_view_broadcast(&extra[i], &out);
    rows[2 + i] = &extra[i];
  }
  if (!batch_matmul(at, from, rows, 2 + (size_t)extras, weights, w_count)) return false;
  gos_op_t *op = add_op(at, from, GPUOS_MATMUL);
  extents(op, out.rank > 2 ? out.extent[0] : 1, out.extent[out.rank - 2], out.extent[out.rank - 1],
          x.extent[x.rank - 1]);
  operand(at, op, GPUOS_AS_OUT, &out, W, 0, 1, 2);
  matmul_operands(at, op, from, &x, w, w_count);
  for (int i = 0; i < extras; i++) operand(at, op, GPUOS_AS_EXTRA, &extra[i], W, 0, 1, 2);
  set_body(at, op, gos_op_body(at->ir, from, "body"), w_count);
  return true;
}

// rmsnorm, softmax, argmax: one row after another.
static bool lower_rows(gos_lower_t *at, MlirOperation from, gpuos_kind_t kind) {
  gos_view_t x = gos_lower_view(at, gos_op_in(from, "x"));
  gos_view_t out = gos_lower_place(at, mlirOperationGetResult(from, 0), gos_kind_name(kind));
  bool index = kind == GPUOS_ARGMAX;
  if (x.rank == 1) gos_view_unsqueeze(&x), gos_view_unsqueeze(&out);
  if (!as_rows(at, from, &x, 0, x.rank - 2)) return false;
  if (!gos_view_merge(&out, 0, out.rank - (index ? 1 : 2))) GOS_BUG("rows of a strided result");
  gos_op_t *op = add_op(at, from, kind);
  extents(op, 1, 1, x.extent[0], 1);
  if (index)
    operand(at, op, GPUOS_AS_OUT, &out, W, W, W, 2);
  else
    operand(at, op, GPUOS_AS_OUT, &out, W, W, 2, W);
  operand(at, op, GPUOS_AS_X, &x, W, W, 2, W);
  if (kind == GPUOS_RMSNORM) {
    gos_view_t weight = gos_lower_view(at, gos_op_in(from, "weight"));
    operand(at, op, GPUOS_AS_NORM, &weight, W, W, W, W);
    set_float(op, 0, gos_op_float(from, "eps"));
  }
  return true;
}

static bool lower_embedding(gos_lower_t *at, MlirOperation from) {
  gos_view_t ids = gos_lower_view(at, gos_op_in(from, "ids")),
             table = gos_lower_view(at, gos_op_in(from, "table"));
  gos_view_t out = gos_lower_place(at, mlirOperationGetResult(from, 0), "embedding");
  gos_op_t *op = add_op(at, from, GPUOS_EMBEDDING);
  extents(op, 1, 1, out.extent[0], out.extent[1]);
  operand(at, op, GPUOS_AS_OUT, &out, W, W, 2, 3);
  operand(at, op, GPUOS_AS_IDS, &ids, W, W, W, 2);
  operand(at, op, GPUOS_AS_TABLE, &table, W, W, W, 3);
  return true;
}

static uint32_t pairing_of(gos_lower_t *at, MlirOperation from) {
  return !strcmp(gos_op_string(at->ir, from, "pairing"), "interleaved");
}

// rope; rotation, which has no x.
static bool lower_rope(gos_lower_t *at, MlirOperation from) {
  bool table = gos_op_is(from, "rotation");
  gos_view_t pos = gos_lower_view(at, gos_op_in(from, "pos"));
  gos_view_t out = gos_lower_place(at, mlirOperationGetResult(from, 0), "rope");
  int64_t head_dim = gos_op_int(from, "head_dim");
  gos_view_split(&out, 1, head_dim);
  gos_op_t *op = add_op(at, from, GPUOS_ROPE);
  extents(op, 1, out.extent[0], out.extent[1], 1);
  operand(at, op, GPUOS_AS_OUT, &out, W, 1, 2, W);
  if (!table) {
    gos_view_t x = gos_lower_view(at, gos_op_in(from, "x"));
    gos_view_split(&x, 1, head_dim);
    operand(at, op, GPUOS_AS_X, &x, W, 1, 2, W);
  }
  operand(at, op, GPUOS_AS_POS, &pos, W, W, W, 1);
  const char *type = gos_op_string(at->ir, from, "scaling_type");
  set_float(op, 0, gos_op_float(from, "theta"));
  op->op.params[1] = table ? 0 : pairing_of(at, from);
  op->op.params[2] = !strcmp(type, "linear") ? 1 : !strcmp(type, "llama3") ? 2 : 0;
  set_float(op, 3, gos_op_float(from, "scaling_factor"));
  set_float(op, 4, gos_op_float(from, "scaling_low_freq_factor"));
  set_float(op, 5, gos_op_float(from, "scaling_high_freq_factor"));
  set_float(op, 6, (double)gos_op_int(from, "scaling_original_max_position_embeddings"));
  return true;
}

// One layer of [layers, 2, kv_heads, pages, page_size, head_dim] as [2, kv_heads, pages, page_size
// * head_dim]. Layers have versions of their own, so that they do not wait for each other.
static gos_view_t layer_view(gos_lower_t *at, MlirValue cache, int64_t layer) {
  gos_view_t view = gos_lower_view(at, cache);
  view.offset += (uint64_t)(layer * view.stride[0]);
  gos_view_drop(&view, 0);
  if (!gos_view_merge(&view, 3, 4)) GOS_BUG("a strided cache");
  uint32_t buffer = at->plan->values.at[view.value].buffer;
  for (size_t i = at->appended.count; i-- > 0;) {
    const gos_view_t *newest = &at->appended.at[i];
    if (at->plan->values.at[newest->value].buffer == buffer && newest->offset == view.offset)
      return *newest;
  }
  return view;
}

static void rows_and_pages(gos_lower_t *at, gos_op_t *op, MlirOperation from, int row_dim) {
  gos_view_t pos = gos_lower_view(at, gos_op_in(from, "pos")),
             pages = gos_lower_view(at, gos_op_in(from, "pages"));
  operand(at, op, GPUOS_AS_POS, &pos, W, W, W, row_dim);
  if (!mlirValueIsNull(gos_op_in(from, "seq"))) {
    gos_view_t seq = gos_lower_view(at, gos_op_in(from, "seq"));
    operand(at, op, GPUOS_AS_SEQ, &seq, W, W, W, row_dim);
  }
  operand(at, op, GPUOS_AS_PAGES, &pages, W, W, W, W);
}

static void add_rotation(gos_lower_t *at, gos_op_t *op, MlirOperation from, int row_dim) {
  if (mlirValueIsNull(gos_op_in(from, "rotation"))) return;
  gos_view_t rotation = gos_lower_view(at, gos_op_in(from, "rotation"));
  operand(at, op, GPUOS_AS_ROTATION, &rotation, W, W, row_dim, W);
}

static bool lower_kv_append(gos_lower_t *at, MlirOperation from) {
  MlirValue cache = gos_op_in(from, "cache");
  gos_view_t before = layer_view(at, cache, gos_op_int(from, "layer")), after = before;
  gos_view_t k = gos_lower_view(at, gos_op_in(from, "k")),
             v = gos_lower_view(at, gos_op_in(from, "v"));
  int64_t head_dim = gos_op_int(from, "head_dim");
  gos_view_split(&k, 1, head_dim);
  gos_view_split(&v, 1, head_dim);
  gos_shape_t shape = gos_shape_of(cache);
  gos_value_t whole = at->plan->values.at[before.value];
  after.value = gos_lower_value(at->plan, whole.name, whole.buffer, whole.bytes);
  gos_op_t *op = add_op(at, from, GPUOS_KV_APPEND);
  extents(op, 1, 1, k.extent[1], 1);
  operand(at, op, GPUOS_AS_CACHE, &after, W, 2, W, W);
  op->operands[op->op.operand_count - 1].writes = 1;
  operand(at, op, GPUOS_AS_CACHE_IN, &before, W, 2, W, W);
  operand(at, op, GPUOS_AS_K, &k, W, W, 2, W);
  operand(at, op, GPUOS_AS_V, &v, W, W, 2, W);
  rows_and_pages(at, op, from, W);
  add_rotation(at, op, from, W);
  op->op.params[0] = (uint32_t)shape.dim[4];
  op->op.params[1] = (uint32_t)head_dim;
  op->op.params[2] = pairing_of(at, from);
  gos_lower_bind(at, mlirOperationGetResult(from, 0), gos_lower_view(at, cache));
  *gos_push(at->ir->arena, &at->appended) = after;
  return true;
}

static void attention_params(gos_op_t *op, MlirOperation from, int64_t head_dim, int64_t group) {
  double scale = gos_op_float(from, "scale"), d = (double)head_dim, root = d;
  for (int i = 0; i < 64; i++)
    root = 0.5 * (root + d / root); // Newton, so that no math library decides a bit
  set_float(op, 0, scale != 0 ? scale : 1.0 / root);
  op->op.params[2] = (uint32_t)head_dim;
  op->op.params[3] = (uint32_t)group;
}

static bool lower_attention(gos_lower_t *at, MlirOperation from) {
  MlirValue cache = gos_op_in(from, "cache");
  int64_t head_dim = gos_op_int(from, "head_dim");
  gos_view_t q = gos_lower_view(at, gos_op_in(from, "q")),
             k = gos_lower_view(at, gos_op_in(from, "k")),
             v = gos_lower_view(at, gos_op_in(from, "v"));
  gos_view_t out = gos_lower_place(at, mlirOperationGetResult(from, 0), "attention");
  int64_t group = q.extent[q.rank - 1] / k.extent[k.rank - 1],
          kv_heads = k.extent[k.rank - 1] / head_dim;
  gos_view_split(&q, q.rank - 1, group * head_dim);
  gos_view_split(&out, out.rank - 1, group * head_dim);
  gos_op_t *op = add_op(at, from, GPUOS_ATTENTION);
  extents(op, q.rank == 4 ? q.extent[0] : 1, q.extent[q.rank - 3], kv_heads, 1);
  operand(at, op, GPUOS_AS_OUT, &out, 0, 1, 2, W);
  operand(at, op, GPUOS_AS_X, &q, 0, 1, 2, W);
  attention_params(op, from, head_dim, group);
  if (mlirValueIsNull(cache) || gos_op_bool(from, "own")) {
    gos_view_split(&k, k.rank - 1, head_dim);
    gos_view_split(&v, v.rank - 1, head_dim);
    operand(at, op, GPUOS_AS_K, &k, 0, W, 2, W);
    operand(at, op, GPUOS_AS_V, &v, 0, W, 2, W);
  }
  if (mlirValueIsNull(cache)) {
    op->op.params[5] = gos_op_bool(from, "causal");
    return true;
  }
  gos_shape_t shape = gos_shape_of(cache);
  gos_view_t layer = layer_view(at, cache, gos_op_int(from, "layer"));
  operand(at, op, GPUOS_AS_CACHE, &layer, W, 2, W, W);
  rows_and_pages(at, op, from, 1);
  add_rotation(at, op, from, 1);
  op->op.params[1] = (uint32_t)shape.dim[4];
  op->op.params[6] = pairing_of(at, from);
  op->op.params[4] = (uint32_t)(gos_shape_of(gos_op_in(from, "pages")).dim[1] * shape.dim[4]);
  op->op.params[5] = op->op.params[7] = 1;
  return true;
}

// ---- views: no work, another look at the same bytes ---------------------------------------------

static bool lower_reshape(gos_lower_t *at, MlirOperation from) {
  gos_view_t x = gos_lower_view(at, gos_op_in(from, "x"));
  gos_shape_t shape = gos_shape_of(mlirOperationGetResult(from, 0));
  if (x.rank > 0 && !as_rows(at, from, &x, 0, x.rank - 1)) return false;
  gos_view_t dense = gos_view_dense(x.value, &shape);
  dense.offset = x.offset;
  for (int d = 0; d < dense.rank && x.rank > 0; d++)
    dense.stride[d] *= x.stride[0]; // of a column, the elements lie a row apart
  gos_lower_bind(at, mlirOperationGetResult(from, 0), dense);
  return true;
}

static bool lower_transpose(gos_lower_t *at, MlirOperation from) {
  gos_view_t x = gos_lower_view(at, gos_op_in(from, "x")), out = x;
  int64_t perm[GPUOS_RANK];
  gos_op_ints(from, "perm", perm, GPUOS_RANK);
  for (int d = 0; d < x.rank; d++)
    out.extent[d] = x.extent[perm[d]], out.stride[d] = x.stride[perm[d]];
  gos_lower_bind(at, mlirOperationGetResult(from, 0), out);
  return true;
}

static bool lower_slice(gos_lower_t *at, MlirOperation from) {
  gos_view_t x = gos_lower_view(at, gos_op_in(from, "x"));
  int64_t range[2 * GPUOS_RANK];
  gos_op_ints(from, "ranges", range, 2 * GPUOS_RANK);
  gos_shape_t shape = gos_shape_of(mlirOperationGetResult(from, 0));
  for (int d = 0; d < x.rank; d++) {
    x.offset += (uint64_t)(range[2 * d] * x.stride[d]);
    x.extent[d] = shape.dim[d];
  }
  gos_lower_bind(at, mlirOperationGetResult(from, 0), x);
  return true;
}

gos_view_t gos_concat_part(const gos_view_t *whole, int axis, int64_t start, int64_t length) {
  gos_view_t part = *whole;
  part.offset += (uint64_t)(start * part.stride[axis]);
  part.extent[axis] = length;
  return part;
}

int gos_concat_axis(MlirOperation from) {
  int64_t axis = gos_op_int(from, "axis");
  return (int)(axis < 0 ? axis + gos_shape_of(mlirOperationGetResult(from, 0)).rank : axis);
}

uint32_t gos_concat_joined(const gos_lower_t *at, MlirOperation from) {
  uint32_t first = GPUOS_NONE;
  if (gos_concat_axis(from) != 0) return GPUOS_NONE;
  for (int i = 0; i < gos_op_in_count(from, "inputs"); i++) {
    MlirValue value = gos_op_in(from, gos_format(at->ir->scratch, "inputs%d", i));
    if (!mlirValueIsABlockArgument(value)) return GPUOS_NONE;
    uint32_t buffer = at->buffer_of[mlirBlockArgumentGetArgNumber(value)];
    if (i == 0) first = buffer;
    const gos_buffer_t *part = &at->plan->buffers.at[buffer];
    if (part->role != GPUOS_WEIGHT || buffer != first + (uint32_t)i || (i > 0 && !part->joined))
      return GPUOS_NONE;
  }
  return first;
}

// Parts that were not written in their place are copied there.
static bool lower_concat(gos_lower_t *at, MlirOperation from) {
  MlirValue out = mlirOperationGetResult(from, 0);
  uint32_t joined = gos_concat_joined(at, from);
  if (joined != GPUOS_NONE && !gos_bindings_find(&at->targets, out)) {
    gos_shape_t shape = gos_shape_of(out);
    gos_lower_bind(at, out, gos_view_dense(joined, &shape));
    return true;
  }
  gos_view_t whole = gos_lower_place(at, out, "concat");
  int axis = gos_concat_axis(from);
  int64_t start = 0;
  for (int i = 0; i < gos_op_in_count(from, "inputs"); i++) {
    MlirValue value = gos_op_in(from, gos_format(at->ir->scratch, "inputs%d", i));
    gos_view_t x = gos_lower_view(at, value),
               part = gos_concat_part(&whole, axis, start, x.extent[axis]);
    start += x.extent[axis];
    if (gos_view_same(&x, &part)) continue;
    if (!gos_lower_map_op(at, from, (MlirOperation){NULL}, part, 1, &x)) return false;
  }
  return true;
}

// ---- by name ------------------------------------------------------------------------------------

bool gos_lower_op(gos_lower_t *at, MlirOperation op) {
  static const struct {
    const char *name;
    bool (*lower)(gos_lower_t *at, MlirOperation op);
  } rules[] = {
      {"matmul", lower_matmul},       {"map", lower_map},         {"embedding", lower_embedding},
      {"rope", lower_rope},           {"rotation", lower_rope},   {"kv_append", lower_kv_append},
      {"attention", lower_attention}, {"reshape", lower_reshape}, {"transpose", lower_transpose},
      {"slice", lower_slice},         {"concat", lower_concat}};
  if (gos_op_is(op, "rmsnorm")) return lower_rows(at, op, GPUOS_RMSNORM);
  if (gos_op_is(op, "softmax")) return lower_rows(at, op, GPUOS_SOFTMAX);
  if (gos_op_is(op, "argmax")) return lower_rows(at, op, GPUOS_ARGMAX);
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (gos_op_is(op, rules[i].name)) return rules[i].lower(at, op);
  GOS_BUG("no lowering of %s", gos_op_get_spec(op)->name);
}
