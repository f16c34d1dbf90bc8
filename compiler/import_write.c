// import_write.c: model.yaml as a person would write it.
#include <string.h>

#include "import.h"

enum { COLUMNS = 100 };

// ---- lines --------------------------------------------------------------------------------------

// Length of the text up to and with the next ", " outside of quotes and [], or of all of it.
static size_t piece_length(const char *text) {
  bool quoted = false, listed = false;
  for (size_t i = 0; text[i]; i++) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '[' && !quoted) listed = true;
    if (text[i] == ']' && !quoted) listed = false;
    if (text[i] == ',' && text[i + 1] == ' ' && !quoted && !listed) return i + 2;
  }
  return strlen(text);
}

// "prefix{text}", broken between its entries to fit the page.
static void add_flow(gos_text_t *out, const char *prefix, const char *text) {
  size_t indent = strlen(prefix) + 1, column = indent;
  gos_text_add(out, "%s{", prefix);
  for (size_t length; *text; text += length) {
    length = piece_length(text);
    bool last = text[length] == 0;
    size_t width = last ? length + 1 : length - 1; // the brace; without the blank
    if (column > indent && column + width > COLUMNS) {
      while (out->at[out->count - 1] == ' ') out->at[--out->count] = 0;
      gos_text_add(out, "\n%*s", (int)indent, "");
      column = indent;
    }
    gos_text_add_bytes(out, text, length);
    column += length;
  }
  gos_text_add(out, "}\n");
}

__attribute__((format(printf, 4, 5))) static void add_op(gos_text_t *out, int indent,
                                                         const char *op, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = gos_vformat(out->arena, format, args);
  va_end(args);
  add_flow(out, gos_format(out->arena, "%*s- %s: ", indent, "", op), text);
}

static void add_dim(gos_text_t *out, const char *name, int64_t value, const char *what) {
  const char *text = gos_format(out->arena, "%s: %lld", name, (long long)value);
  gos_text_add(out, "  %-9s  # %s\n", text, what);
}

// `part` is a checkpoint's name, or what follows "model.layers.{i}." in it for a layer's tensor.
static void add_weight(gos_text_t *out, const gos_import_t *m, bool layer, const char *part,
                       const char *shape) {
  const char *key = layer ? gos_format(out->arena, "  \"model.layers.{i}.%s\":", part)
                          : gos_format(out->arena, "  %s:", part);
  const char *value = gos_format(out->arena, "{shape: [%s], dtype: %s, role: weight%s}", shape,
                                 m->dtype, layer ? ", repeat: L" : "");
  bool fits = strlen(key) + 1 + strlen(value) <= COLUMNS;
  gos_text_add(out, "%s%s%s\n", key, fits ? " " : "\n    ", value);
}

static void add_linear(gos_text_t *out, const gos_import_t *m, const char *part, const char *n,
                       const char *k, bool bias) {
  add_weight(out, m, true, gos_format(out->arena, "%s.weight", part),
             gos_format(out->arena, "%s, %s", n, k));
  if (bias) add_weight(out, m, true, gos_format(out->arena, "%s.bias", part), n);
}

// ---- sections -----------------------------------------------------------------------------------

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// A file's name in a comment: no line break or escape sequence of its own.
static const char *printable(gos_arena_t *arena, const char *text) {
  char *copy = gos_strndup(arena, text, strlen(text));
  for (char *c = copy; *c; c++)
    if (*c < ' ' || *c > '~') *c = '?';
  return copy;
}

static void add_head(gos_text_t *out, const gos_import_t *m) {
  gos_text_add(
      out,
      "# One step of a %s model: the next token of each of B sequences.\n"
      "# Written by: gpuosc import %s --batch=%lld --context=%lld --dtype=%s%s\n"
      "# Weights have the names of the checkpoint; its safetensors are bound at load time.\n"
      "gpuos: 1\nname: %s\nclass: live\n"
      "deadline_us: %lld  # of a step: set it to what its users need\n"
      "target: %s\n\n",
      m->model_type, printable(out->arena, base_name(m->config)), (long long)m->batch,
      (long long)m->context, m->dtype, m->logits ? " --logits" : "", m->name,
      (long long)m->deadline_us, m->target);
}

static void add_dims(gos_text_t *out, const gos_import_t *m) {
  gos_text_add(out, "dims:\n");
  add_dim(out, "B", m->batch, "rows of a step: one token of each sequence");
  add_dim(out, "D", m->hidden_size, "hidden_size");
  add_dim(out, "H", m->num_attention_heads, "num_attention_heads");
  add_dim(out, "KV", m->num_key_value_heads, "num_key_value_heads");
  add_dim(out, "HD", m->head_dim, "head_dim");
  add_dim(out, "F", m->intermediate_size, "intermediate_size");
  add_dim(out, "V", m->vocab_size, "vocab_size");
  add_dim(out, "L", m->num_hidden_layers, "num_hidden_layers");
  add_dim(out, "CTX", m->context,
          gos_format(out->arena, "tokens that a sequence may have; the model allows %lld",
                     (long long)m->max_position_embeddings));
}

static void add_layer_weights(gos_text_t *out, const gos_import_t *m) {
  add_weight(out, m, true, "input_layernorm.weight", "D");
  add_linear(out, m, "self_attn.q_proj", "H * HD", "D", m->qkv_bias);
  add_linear(out, m, "self_attn.k_proj", "KV * HD", "D", m->qkv_bias);
  add_linear(out, m, "self_attn.v_proj", "KV * HD", "D", m->qkv_bias);
  if (m->qk_norm) add_weight(out, m, true, "self_attn.q_norm.weight", "HD");
  if (m->qk_norm) add_weight(out, m, true, "self_attn.k_norm.weight", "HD");
  add_linear(out, m, "self_attn.o_proj", "D", "H * HD", m->o_bias);
  add_weight(out, m, true, "post_attention_layernorm.weight", "D");
  add_linear(out, m, "mlp.gate_proj", "F", "D", m->mlp_bias);
  add_linear(out, m, "mlp.up_proj", "F", "D", m->mlp_bias);
  add_linear(out, m, "mlp.down_proj", "D", "F", m->mlp_bias);
}

static void add_tensors(gos_text_t *out, const gos_import_t *m) {
  gos_text_add(out, "\ntensors:\n"
                    "  token:  {shape: [B], dtype: i32, role: input}\n"
                    "  pos:    {shape: [B], dtype: i32, role: input}  # the token's place; "
                    "negative: row unused\n"
                    "  next:   {shape: [B], dtype: i32, role: output}\n");
  if (m->logits) gos_text_add(out, "  logits: {shape: [B, V], dtype: f32, role: output}\n");
  add_flow(out, "  cache:  ",
           gos_format(out->arena,
                      "kind: paged_kv, layers: L, kv_heads: KV, head_dim: HD, context: CTX, "
                      "sequences: B, dtype: %s, role: state",
                      m->dtype));
  gos_text_add(out, "\n");
  add_weight(out, m, false, "model.embed_tokens.weight", "V, D");
  add_layer_weights(out, m);
  add_weight(out, m, false, "model.norm.weight", "D");
  if (!m->tie_word_embeddings) add_weight(out, m, false, "lm_head.weight", "V, D");
}

// ---- operators ----------------------------------------------------------------------------------

enum { LAYER = 6, TOP = 2 }; // columns of indent

// The residual stream x is kept in f32: rounded to bf16 after every layer, SmolLM2 leaves the fp32
// reference's greedy tokens where the two best logits are more than a tie apart. `dtype: ` of what
// is computed from it, "" for f32 models.
static const char *narrow(gos_text_t *out, const gos_import_t *m) {
  return strcmp(m->dtype, "f32") ? gos_format(out->arena, "dtype: %s, ", m->dtype) : "";
}

static void add_norm(gos_text_t *out, const gos_import_t *m, const char *x, const char *part,
                     const char *result) {
  add_op(out, LAYER, "rmsnorm", "x: %s, weight: \"model.layers.{i}.%s.weight\", eps: %s, %sout: %s",
         x, part, m->rms_norm_eps, strcmp(x, "x") ? "" : narrow(out, m), result);
}

static void add_matmul(gos_text_t *out, const char *x, const char *part, bool bias, const char *add,
                       const char *result) {
  const char *b = bias ? gos_format(out->arena, "bias: \"model.layers.{i}.%s.bias\", ", part) : "";
  const char *a = add ? gos_format(out->arena, "add: %s, dtype: f32, ", add) : "";
  add_op(out, LAYER, "matmul",
         "x: %s, w: \"model.layers.{i}.%s.weight\", transpose_w: true, %s%s"
         "out: %s",
         x, part, b, a, result);
}

// Normalises each head of q or k by itself.
static void add_head_norm(gos_text_t *out, const gos_import_t *m, const char *x, const char *heads,
                          const char *part) {
  add_op(out, LAYER, "reshape", "x: %s, shape: [B * %s, HD], out: %s", x, heads, x);
  add_norm(out, m, x, part, x);
  add_op(out, LAYER, "reshape", "x: %s, shape: [B, %s * HD], out: %s", x, heads, x);
}

static void add_rope(gos_text_t *out, const gos_import_t *m, const char *x) {
  const char *common = gos_format(out->arena, "x: %s, pos: pos, head_dim: HD, theta: %s, out: %s",
                                  x, m->rope_theta, x);
  if (!m->rope_scaling.type) {
    add_op(out, LAYER, "rope", "%s", common);
    return;
  }
  gos_text_add(out, "      - rope: {%s,\n               scaling: {type: %s, factor: %s", common,
               m->rope_scaling.type, m->rope_scaling.factor);
  if (m->rope_scaling.low_freq_factor)
    gos_text_add(out,
                 ", low_freq_factor: %s, high_freq_factor: %s,\n                         "
                 "original_max_position_embeddings: %lld",
                 m->rope_scaling.low_freq_factor, m->rope_scaling.high_freq_factor,
                 (long long)m->rope_scaling.original_max_position_embeddings);
  gos_text_add(out, "}}\n");
}

static void add_layer(gos_text_t *out, const gos_import_t *m) {
  add_norm(out, m, "x", "input_layernorm", "h");
  add_matmul(out, "h", "self_attn.q_proj", m->qkv_bias, NULL, "q");
  add_matmul(out, "h", "self_attn.k_proj", m->qkv_bias, NULL, "k");
  add_matmul(out, "h", "self_attn.v_proj", m->qkv_bias, NULL, "v");
  if (m->qk_norm) add_head_norm(out, m, "q", "H", "self_attn.q_norm");
  if (m->qk_norm) add_head_norm(out, m, "k", "KV", "self_attn.k_norm");
  add_rope(out, m, "q");
  add_rope(out, m, "k");
  add_op(out, LAYER, "attention",
         "q: q, k: k, v: v, cache: cache, layer: i, pos: pos, head_dim: HD, out: a");
  add_matmul(out, "a", "self_attn.o_proj", m->o_bias, "x", "x");
  add_norm(out, m, "x", "post_attention_layernorm", "h");
  add_matmul(out, "h", "mlp.gate_proj", m->mlp_bias, NULL, "g");
  add_matmul(out, "h", "mlp.up_proj", m->mlp_bias, NULL, "u");
  add_op(out, LAYER, "map", "expr: \"silu(g) * u\", g: g, u: u, out: f");
  add_matmul(out, "f", "mlp.down_proj", m->mlp_bias, "x", "x");
}

static void add_ops(gos_text_t *out, const gos_import_t *m) {
  gos_text_add(out, "\nops:\n");
  add_op(out, TOP, "embedding", "ids: token, table: model.embed_tokens.weight, dtype: f32, out: x");
  gos_text_add(out, "  - repeat: L\n    index: i\n    ops:\n");
  add_layer(out, m);
  add_op(out, TOP, "rmsnorm", "x: x, weight: model.norm.weight, eps: %s, %sout: h", m->rms_norm_eps,
         narrow(out, m));
  if (m->tie_word_embeddings) gos_text_add(out, "  # the embedding is the head too\n");
  add_op(out, TOP, "matmul", "x: h, w: %s, transpose_w: true, dtype: f32, out: logits",
         m->tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  add_op(out, TOP, "argmax", "x: logits, out: next");
}

void gos_import_write(const gos_import_t *import, gos_text_t *out) {
  add_head(out, import);
  add_dims(out, import);
  add_tensors(out, import);
  add_ops(out, import);
}
