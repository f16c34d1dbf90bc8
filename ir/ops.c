// ops.c: the table of operators. Schema checks, the dialect, --print-ops and the reference page all
// come from it.
#include <string.h>

#include "ir.h"

#define IN(name, flags, doc)                                                                       \
  { name, GOS_IN, flags, NULL, NULL, doc }
#define OUT(doc)                                                                                   \
  { "out", GOS_OUT, GOS_REQUIRED, NULL, NULL, doc }
#define DTYPE(doc)                                                                                 \
  { "dtype", GOS_DTYPE, 0, "", NULL, doc }
#define BODY(flags, doc)                                                                           \
  { "body", GOS_EXPR, flags, "", NULL, doc }

#define SCALING                                                                                    \
  {"scaling_type", GOS_ENUM, 0, "none", "none|linear|llama3", "of the frequencies"},               \
      {"scaling_factor", GOS_FLOAT, 0, "1.0", NULL, "linear, llama3"},                             \
      {"scaling_low_freq_factor", GOS_FLOAT, 0, "1.0", NULL, "llama3"},                            \
      {"scaling_high_freq_factor", GOS_FLOAT, 0, "4.0", NULL, "llama3"}, {                         \
    "scaling_original_max_position_embeddings", GOS_INT, 0, "8192", NULL, "llama3"                 \
  }

const gos_op_spec_t gos_op_specs[] = {
    {"embedding",
     false,
     "Rows of a table: out[i, :] = table[ids[i], :].",
     {IN("ids", GOS_REQUIRED, "[B] i32, each below the table's rows"),
      IN("table", GOS_REQUIRED, "[V, D]"), OUT("[B, D]"), DTYPE("of out; default the table's")}},
    {"rmsnorm",
     false,
     "out = x / sqrt(mean(x^2) + eps) * weight over the last dimension.",
     {IN("x", GOS_REQUIRED, "[..., D]"),
      IN("weight", GOS_REQUIRED, "[D]"),
      {"eps", GOS_FLOAT, 0, "1.0e-5", NULL, "added under the root"},
      OUT("as x"),
      DTYPE("of out; default x's")}},
    {"matmul",
     false,
     "out = x w (+ bias) (+ add), accumulated in fp32. Types: f32, f16, bf16, e4m3, e5m2; x and w "
     "both 8-bit or "
     "both of one other type.",
     {IN("x", GOS_REQUIRED, "[..., M, K]; [..., K, M] with transpose_x"),
      IN("w", GOS_REQUIRED, "[K, N] or batched [..., K, N]; the last two swapped with transpose_w"),
      IN("bias", 0, "[N]"),
      IN("add", 0, "as out; added in fp32 before rounding"),
      IN("x_scale", 0, "[] f32; x is multiplied by it (fp8)"),
      IN("w_scale", 0, "[] f32; w is multiplied by it (fp8)"),
      {"transpose_x", GOS_BOOL, 0, "false", NULL, "x is stored [K, M]"},
      {"transpose_w", GOS_BOOL, 0, "false", NULL, "w is stored [N, K], as checkpoints do"},
      OUT("[..., M, N]"),
      DTYPE("of out; default x's, bf16 for 8-bit x"),
      IN("w1", GOS_INTERNAL, "second weight of a fused pair, as w"),
      IN("norm", GOS_INTERNAL, "[K]; x is normalised first, rounded to w's type"),
      {"extra", GOS_IN_LIST, GOS_INTERNAL, NULL, NULL, "inputs of the epilogue, broadcast to out"},
      {"eps", GOS_FLOAT, GOS_INTERNAL, "0.0", NULL, "of the folded rmsnorm"},
      BODY(GOS_INTERNAL, "epilogue: accumulators, then extras, to out")}},
    {"map",
     false,
     "Pointwise: out = expr over the named inputs, computed in fp32 and rounded once. Operators + "
     "- * /, numbers, "
     "exp log sqrt rsqrt abs max min tanh erf sigmoid silu gelu gelu_tanh, casts bf16() f16() "
     "e4m3() e5m2().",
     {{"expr", GOS_EXPR, GOS_REQUIRED, NULL, NULL, "e.g. \"silu(g) * u\""},
      {"in", GOS_IN_LIST, GOS_REQUIRED, NULL, NULL,
       "every other key names an input of the expression; shapes broadcast from the right"},
      OUT("the broadcast shape"),
      DTYPE("of out; default the first input's")}},
    {"rope",
     false,
     "Rotary position embedding of each head_dim-wide head of x.",
     {IN("x", GOS_REQUIRED, "[B, H * head_dim]"),
      IN("pos", GOS_REQUIRED, "[B] i32; negative: row unused"),
      {"head_dim", GOS_INT, GOS_REQUIRED, NULL, NULL, "elements, even"},
      {"theta", GOS_FLOAT, 0, "10000.0", NULL, "base of the frequencies"},
      {"pairing", GOS_ENUM, 0, "half", "half|interleaved",
       "half: elements i, i + head_dim/2 (Hugging Face); interleaved: 2i, 2i + 1"},
      SCALING,
      OUT("as x")}},
    {"attention",
     false,
     "softmax(scale q k^T) v, grouped-query. With a cache: k and v of this step are written at "
     "their rows' positions "
     "first, then row b attends positions 0..pos[b] of its sequence (decode and chunked prefill "
     "alike). Without: over "
     "the rows given.",
     {IN("q", GOS_REQUIRED, "[B, H * head_dim]; without a cache also [N, B, H * head_dim]"),
      IN("k", GOS_REQUIRED, "[B, KV * head_dim]"),
      IN("v", GOS_REQUIRED, "[B, KV * head_dim]"),
      IN("cache", 0, "a paged_kv tensor"),
      IN("pages", GOS_INTERNAL, "its page table, [sequences, pages] i32"),
      IN("pos", 0, "[B] i32, needed with a cache; negative: row unused, out is 0"),
      IN("seq", 0, "[B] i32, sequence of each row; default the row's number"),
      {"layer", GOS_INT, 0, "0", NULL, "of the cache"},
      {"head_dim", GOS_INT, GOS_REQUIRED, NULL, NULL, "elements"},
      {"scale", GOS_FLOAT, 0, "0.0", NULL, "of the scores; 0: 1 / sqrt(head_dim)"},
      {"causal", GOS_BOOL, 0, "true", NULL, "without a cache: row b sees rows up to b"},
      {"own", GOS_BOOL, GOS_INTERNAL, "false", NULL, "the cache lacks k and v of this step"},
      IN("rotation", GOS_INTERNAL, "[B, head_dim] f32; q, and k if own, are rotated first"),
      {"pairing", GOS_ENUM, GOS_INTERNAL, "half", "half|interleaved", "of the rotation"},
      OUT("as q")}},
    {"softmax",
     false,
     "Softmax over the last dimension.",
     {IN("x", GOS_REQUIRED, "[..., D]"), OUT("as x"), DTYPE("of out; default x's")}},
    {"quantize",
     false,
     "out = x / scale, rounded to nearest even, saturating.",
     {IN("x", GOS_REQUIRED, "any shape"),
      IN("scale", GOS_REQUIRED, "[] f32"),
      OUT("as x"),
      {"dtype", GOS_DTYPE, 0, "e4m3", NULL, "e4m3 or e5m2"}}},
    {"dequantize",
     false,
     "out = x * scale.",
     {IN("x", GOS_REQUIRED, "any shape, e4m3 or e5m2"),
      IN("scale", GOS_REQUIRED, "[] f32"),
      OUT("as x"),
      {"dtype", GOS_DTYPE, 0, "bf16", NULL, "f32, f16 or bf16"}}},
    {"argmax",
     false,
     "Index of the largest element of each row, the lowest of equals.",
     {IN("x", GOS_REQUIRED, "[..., D]"), OUT("[...] i32")}},
    {"transpose",
     false,
     "out[i...] = x[i[perm]...]: dimension d of out is dimension perm[d] of x.",
     {IN("x", GOS_REQUIRED, "any shape"),
      {"perm", GOS_INTS, GOS_REQUIRED, NULL, NULL, "a permutation"},
      OUT("permuted")}},
    {"reshape",
     false,
     "The same elements in another shape, row-major.",
     {IN("x", GOS_REQUIRED, "any shape"),
      {"shape", GOS_INTS, GOS_REQUIRED, NULL, NULL, "as many elements"},
      OUT("as shape says")}},
    {"concat",
     false,
     "Tensors one after the other along an axis.",
     {{"inputs", GOS_IN_LIST, GOS_REQUIRED, NULL, NULL, "equal but along the axis"},
      {"axis", GOS_INT, 0, "-1", NULL, "negative: from the end"},
      OUT("joined")}},
    {"slice",
     false,
     "A box of x; a suffix on any tensor name, as in \"x[:, :D]\", means the same.",
     {IN("x", GOS_REQUIRED, "any shape"),
      {"ranges", GOS_RANGES, GOS_REQUIRED, NULL, NULL, "\"[start:stop, ...]\""},
      OUT("the box")}},
    {"kv_append",
     true,
     "Writes k and v of this step into one layer of a paged cache; attention is split into this "
     "and the rest.",
     {IN("k", GOS_REQUIRED, "[B, KV * head_dim]"),
      IN("v", GOS_REQUIRED, "[B, KV * head_dim]"),
      IN("cache", GOS_REQUIRED, "before"),
      IN("pages", GOS_REQUIRED, "page table"),
      IN("pos", GOS_REQUIRED, "[B] i32"),
      IN("seq", 0, "[B] i32"),
      {"layer", GOS_INT, GOS_REQUIRED, NULL, NULL, "of the cache"},
      {"head_dim", GOS_INT, GOS_REQUIRED, NULL, NULL, "elements"},
      IN("rotation", 0, "[B, head_dim] f32; k is rotated first"),
      {"pairing", GOS_ENUM, 0, "half", "half|interleaved", "of the rotation"},
      OUT("the cache after")}},
    {"rotation",
     true,
     "Cosines, then sines, of a head's pairs of elements at each row's position: rope without x.",
     {IN("pos", GOS_REQUIRED, "[B] i32; negative: row unused"),
      {"head_dim", GOS_INT, GOS_REQUIRED, NULL, NULL, "elements, even"},
      {"theta", GOS_FLOAT, 0, "10000.0", NULL, "base of the frequencies"},
      SCALING,
      OUT("[B, head_dim] f32")}},
    {NULL, false, NULL, {{NULL, GOS_IN, 0, NULL, NULL, NULL}}},
};

const gos_op_spec_t *gos_op_spec(const char *name) {
  for (const gos_op_spec_t *spec = gos_op_specs; spec->name; spec++)
    if (!strcmp(spec->name, name)) return spec;
  return NULL;
}

static const char *kind_text(const gos_param_t *p) {
  switch (p->kind) {
  case GOS_IN: return "tensor";
  case GOS_IN_LIST: return "tensors";
  case GOS_OUT: return "name";
  case GOS_INT: return "integer";
  case GOS_FLOAT: return "number";
  case GOS_BOOL: return "true or false";
  case GOS_DTYPE: return "dtype";
  case GOS_ENUM: return p->choices;
  case GOS_INTS: return "integers";
  case GOS_RANGES: return "ranges";
  case GOS_EXPR: return "expression";
  }
  GOS_BUG("parameter kind %d", (int)p->kind);
}

// "scaling_type" stands under "scaling:" in YAML.
static void print_param(const gos_param_t *p, FILE *out) {
  fprintf(out, "| `%s` | ", p->name);
  for (const char *c = kind_text(p); *c; c++) fprintf(out, *c == '|' ? " or " : "%c", *c);
  fprintf(out, " | %s | %s |\n",
          p->flags & GOS_REQUIRED              ? "required"
          : p->fallback && p->fallback[0] != 0 ? p->fallback
                                               : "optional",
          p->doc);
}

void gos_ops_print(FILE *out) {
  for (const gos_op_spec_t *spec = gos_op_specs; spec->name; spec++) {
    if (spec->internal) continue;
    fprintf(out, "## %s\n\n%s\n\n| key | takes | default | |\n|---|---|---|---|\n", spec->name,
            spec->doc);
    for (const gos_param_t *p = spec->params; p->name; p++)
      if (!(p->flags & GOS_INTERNAL)) print_param(p, out);
    fputc('\n', out);
  }
}

// A tensor, its shape known or not. IRDL constraint values are variables: each operand, result and
// attribute has its own, or they would all have to be equal.
static void irdl_tensor(gos_text_t *text, const char *name) {
  gos_text_add(text, "    %%%s_known = irdl.base \"!builtin.tensor\"\n", name);
  gos_text_add(text, "    %%%s_unknown = irdl.base \"!builtin.unranked_tensor\"\n", name);
  gos_text_add(text, "    %%%s = irdl.any_of(%%%s_known, %%%s_unknown)\n", name, name, name);
}

static void irdl_operand(const gos_param_t *p, gos_text_t *text, gos_text_t *operands) {
  for (int i = 0; i < (p->kind == GOS_IN_LIST ? GOS_LIST_ROOM : 1); i++) {
    const char *name =
        p->kind == GOS_IN_LIST ? gos_format(text->arena, "%s%d", p->name, i) : p->name;
    bool required = p->kind == GOS_IN && p->flags & GOS_REQUIRED;
    irdl_tensor(text, name);
    gos_text_add(operands, "%s%s: %s%%%s", operands->count ? ", " : "", name,
                 required ? "" : "optional ", name);
  }
}

static void irdl_attribute(const gos_param_t *p, gos_text_t *text, gos_text_t *attributes) {
  static const char *const bases[] = {
      [GOS_INT] = "integer",  [GOS_FLOAT] = "float",      [GOS_DTYPE] = "string",
      [GOS_ENUM] = "string",  [GOS_INTS] = "dense_array", [GOS_RANGES] = "dense_array",
      [GOS_BOOL] = "integer", [GOS_EXPR] = NULL};
  if (bases[p->kind])
    gos_text_add(text, "    %%of_%s = irdl.base \"#builtin.%s\"\n", p->name, bases[p->kind]);
  else
    gos_text_add(text, "    %%of_%s = irdl.any\n", p->name); // a symbol, or "" for none
  gos_text_add(attributes, "%s\"%s\" = %%of_%s", attributes->count ? ", " : "", p->name, p->name);
}

static void irdl_op(const gos_op_spec_t *spec, gos_text_t *text) {
  gos_text_t operands = {.arena = text->arena}, attributes = {.arena = text->arena};
  gos_text_add(text, "  irdl.operation @%s {\n", spec->name);
  for (const gos_param_t *p = spec->params; p->name; p++) {
    if (p->kind == GOS_IN || p->kind == GOS_IN_LIST)
      irdl_operand(p, text, &operands);
    else if (p->kind != GOS_OUT)
      irdl_attribute(p, text, &attributes);
  }
  bool cache = !strcmp(spec->name, "attention"); // may also give the cache after the write
  irdl_tensor(text, "out");
  if (cache) irdl_tensor(text, "cache_out");
  gos_text_add(text, "    irdl.operands(%s)\n    irdl.results(out: %%out%s)\n", operands.at,
               cache ? ", cache_out: optional %cache_out" : "");
  if (attributes.count) gos_text_add(text, "    irdl.attributes { %s }\n", attributes.at);
  gos_text_add(text, "  }\n");
}

char *gos_ops_irdl(gos_arena_t *arena) {
  gos_text_t text = {.arena = arena};
  gos_text_add(&text, "irdl.dialect @gpuos {\n");
  for (const gos_op_spec_t *spec = gos_op_specs; spec->name; spec++) irdl_op(spec, &text);
  gos_text_add(&text, "}\n");
  return text.at;
}
