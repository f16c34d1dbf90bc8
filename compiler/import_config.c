// import_config.c: what a config.json of Hugging Face says of a Llama-family model.
//
// Fields that change the arithmetic in a way the importer does not write are refused; fields that
// do not matter for inference are ignored; unknown ones are warned of. Source of names and
// defaults: configuration_{llama,mistral,qwen2,qwen3}.py of transformers 4.57.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "import.h"
#include "json_tree.h"

// Far above real models, low enough that no product of three overflows 64 bits.
enum { MAX_EXTENT = 1 << 20, MAX_LAYERS = 1000 };
enum { DEFAULT_CONTEXT = 8192 };

typedef struct family {
  const char *model_type;
  bool qkv_bias;       // always there
  bool attention_bias; // "attention_bias" adds biases to q, k, v and o
  bool qk_norm;
  int64_t head_dim;       // when missing; 0: hidden_size / num_attention_heads
  int64_t sliding_window; // when missing; 0: none
} family_t;

static const family_t families[] = {
    {"llama", false, true, false, 0, 0},
    {"mistral", false, false, false, 0, 4096},
    {"qwen2", true, false, false, 0, 0},
    {"qwen3", false, true, true, 128, 0},
};

// Refused unless null, false, 0 or, if so marked, 1.
static const struct refusal {
  const char *key;
  bool one_is_neutral;
  const char *why;
} refusals[] = {
    {"quantization_config", false, "quantised checkpoints are not supported; import the original"},
    {"num_local_experts", false, "mixtures of experts are not supported"},
    {"num_experts", false, "mixtures of experts are not supported"},
    {"n_routed_experts", false, "mixtures of experts are not supported"},
    {"kv_lora_rank", false, "latent attention is not supported"},
    {"text_config", false, "only text models are supported"},
    {"vision_config", false, "only text models are supported"},
    {"is_encoder_decoder", false, "only decoders are supported"},
    {"attn_logit_softcapping", false, "soft-capped scores are not supported"},
    {"final_logit_softcapping", false, "soft-capped logits are not supported"},
    {"attention_multiplier", false,
     "a scale of the scores other than 1/sqrt(head_dim) is not supported"},
    {"query_pre_attn_scalar", false,
     "a scale of the scores other than 1/sqrt(head_dim) is not supported"},
    {"embedding_multiplier", true, "scaled embeddings are not supported"},
    {"residual_multiplier", true, "scaled residuals are not supported"},
    {"logits_scaling", true, "scaled logits are not supported"},
    {"logit_scale", true, "scaled logits are not supported"},
    {"partial_rotary_factor", true, "rope over a part of each head is not supported"},
    {"rope_interleaved", false, "only rope over the halves of each head is supported"},
    {"no_rope_layers", false, "layers without rope are not supported"},
    {"cross_attention_layers", false, "cross-attention is not supported"},
};

// Read below, or of no matter for inference.
// clang-format off
static const char *const known[] = {
    "_name_or_path", "architectures", "attention_bias", "attention_dropout", "auto_map",
    "bos_token_id", "dtype", "eos_token_id", "head_dim", "hidden_act", "hidden_size",
    "id2label", "initializer_range", "intermediate_size", "is_llama_config", "label2id",
    "layer_types", "max_position_embeddings", "max_window_layers", "mlp_bias", "model_type",
    "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "pad_token_id",
    "pretraining_tp", "return_dict", "rms_norm_eps", "rope_parameters", "rope_scaling",
    "rope_theta", "sliding_window", "tie_word_embeddings", "torch_dtype",
    "transformers.js_config", "transformers_version", "use_cache", "use_sliding_window",
    "vocab_size"};
// clang-format on

typedef struct reader {
  gos_arena_t *arena;
  gos_diags_t *diags;
  uint16_t file;
  const gos_json_value_t *root;
  const family_t *family;
  gos_import_t *import;
} reader_t;

// ---- fields -------------------------------------------------------------------------------------

static gos_loc_t place(const reader_t *r, size_t offset) {
  return gos_diags_place(r->diags, r->file, offset);
}

// What a message shows of a value: `4096`, `"yarn"`, `an object`.
static const char *shown(const reader_t *r, const gos_json_value_t *value) {
  if (value->kind == GOS_JSON_STRING) return gos_format(r->arena, "\"%s\"", value->text);
  return value->text ? value->text : gos_json_kind_name(value->kind);
}

// `"key" is 4096; why`: every refusal of a value reads like this.
static void refuse(const reader_t *r, const gos_json_value_t *value, const char *why) {
  gos_error(r->diags, place(r, value->key_at), "import-field", "\"%s\" is %s; %s", value->key,
            shown(r, value), why);
}

// A member that is there and not null.
static const gos_json_value_t *given(const gos_json_value_t *object, const char *key) {
  const gos_json_value_t *value = gos_json_get(object, key);
  return value && value->kind != GOS_JSON_NULL ? value : NULL;
}

static const gos_json_value_t *required(const reader_t *r, const gos_json_value_t *object,
                                        const char *key) {
  const gos_json_value_t *value = given(object, key);
  if (!value) gos_error(r->diags, place(r, object->at), "import-missing", "\"%s\" is missing", key);
  return value;
}

// A positive integer; `fallback` if it is missing, where 0 makes it required.
static int64_t read_count(const reader_t *r, const gos_json_value_t *object, const char *key,
                          int64_t fallback, int64_t most) {
  int64_t count;
  const gos_json_value_t *value = fallback ? given(object, key) : required(r, object, key);
  if (!value) return fallback;
  if (gos_json_integer(value, &count) && count >= 1 && count <= most) return count;
  refuse(r, value, gos_format(r->arena, "an integer from 1 to %lld is needed", (long long)most));
  return 0;
}

static bool read_flag(const reader_t *r, const char *key, bool fallback) {
  const gos_json_value_t *value = given(r->root, key);
  if (!value) return fallback;
  if (value->kind != GOS_JSON_BOOL) refuse(r, value, "true or false is needed");
  return value->number != 0;
}

static const char *read_text(const reader_t *r, const gos_json_value_t *object, const char *key) {
  const gos_json_value_t *value = given(object, key);
  if (!value || value->kind == GOS_JSON_STRING) return value ? value->text : NULL;
  refuse(r, value, "a string is needed");
  return NULL;
}

// The shortest decimal that is the same double; "1.0e-5" since YAML 1.1 wants the point.
static const char *yaml_number(gos_arena_t *arena, double number) {
  char text[40];
  if (number == floor(number) && number < 1e15) return gos_format(arena, "%.0f", number);
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, number);
    if (strtod(text, NULL) == number) break;
  }
  char *e = strchr(text, 'e');
  if (!e) return gos_format(arena, "%s", text);
  *e = 0;
  return gos_format(arena, "%s%se%ld", text, strchr(text, '.') ? "" : ".0",
                    strtol(e + 1, NULL, 10));
}

// A number above 0 as YAML writes it; NULL fallback: required.
static const char *read_number(const reader_t *r, const gos_json_value_t *object, const char *key,
                               const char *fallback) {
  const gos_json_value_t *value = fallback ? given(object, key) : required(r, object, key);
  if (!value) return fallback;
  if (value->kind == GOS_JSON_NUMBER && value->number > 0)
    return yaml_number(r->arena, value->number);
  refuse(r, value, "a number above 0 is needed");
  return fallback;
}

static bool is_neutral(const gos_json_value_t *value, bool one_is_neutral) {
  if (value->kind == GOS_JSON_NUMBER)
    return value->number == 0 || (one_is_neutral && value->number == 1);
  return value->kind == GOS_JSON_NULL || (value->kind == GOS_JSON_BOOL && value->number == 0);
}

static const struct refusal *refusal_of(const char *key) {
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
    if (!strcmp(refusals[i].key, key)) return &refusals[i];
  return NULL;
}

// ---- parts of the model -------------------------------------------------------------------------

static void read_family(reader_t *r) {
  const gos_json_value_t *type = required(r, r->root, "model_type");
  for (size_t i = 0; type && i < sizeof families / sizeof *families; i++)
    if (type->kind == GOS_JSON_STRING && !strcmp(type->text, families[i].model_type))
      r->family = &families[i];
  if (type && !r->family) refuse(r, type, "supported are llama, mistral, qwen2 and qwen3");
  r->import->model_type = r->family ? r->family->model_type : NULL;
  const gos_json_value_t *classes = given(r->root, "architectures");
  const gos_json_value_t *first = classes ? classes->first : NULL;
  if (first && (first->kind != GOS_JSON_STRING || !strstr(first->text, "ForCausalLM")))
    gos_error(r->diags, place(r, first->at), "import-field",
              "the architecture is %s; only ...ForCausalLM is supported", shown(r, first));
}

static void read_shape(reader_t *r) {
  gos_import_t *m = r->import;
  m->hidden_size = read_count(r, r->root, "hidden_size", 0, MAX_EXTENT);
  m->intermediate_size = read_count(r, r->root, "intermediate_size", 0, MAX_EXTENT);
  m->num_hidden_layers = read_count(r, r->root, "num_hidden_layers", 0, MAX_LAYERS);
  m->vocab_size = read_count(r, r->root, "vocab_size", 0, MAX_EXTENT * 16);
  m->num_attention_heads = read_count(r, r->root, "num_attention_heads", 0, MAX_EXTENT);
  int64_t heads = m->num_attention_heads ? m->num_attention_heads : 1; // an error, already told
  m->num_key_value_heads = read_count(r, r->root, "num_key_value_heads", heads, MAX_EXTENT);
  const gos_json_value_t *kv = given(r->root, "num_key_value_heads");
  if (kv && m->num_key_value_heads && m->num_attention_heads &&
      m->num_attention_heads % m->num_key_value_heads)
    refuse(r, kv, "it must divide num_attention_heads");
}

static void read_head_dim(reader_t *r) {
  gos_import_t *m = r->import;
  if (!m->hidden_size || !m->num_attention_heads) return;
  bool derived = !given(r->root, "head_dim") && !r->family->head_dim;
  if (derived && m->hidden_size % m->num_attention_heads) {
    refuse(r, gos_json_get(r->root, "num_attention_heads"),
           "without head_dim it must divide hidden_size");
    return;
  }
  int64_t fallback = derived ? m->hidden_size / m->num_attention_heads : r->family->head_dim;
  m->head_dim = read_count(r, r->root, "head_dim", fallback ? fallback : 1, MAX_EXTENT);
  const gos_json_value_t *at = gos_json_get(r->root, derived ? "num_attention_heads" : "head_dim");
  if (m->head_dim % 2 && at) refuse(r, at, "rope needs an even number of elements in a head");
}

static void read_context(reader_t *r) {
  gos_import_t *m = r->import;
  int64_t most = read_count(r, r->root, "max_position_embeddings", 0, (int64_t)1 << 30);
  const gos_json_value_t *value = given(r->root, "max_position_embeddings");
  m->max_position_embeddings = most;
  if (!most) return;
  if (most < GOS_IMPORT_PAGE) refuse(r, value, "a page of the cache alone holds 64 tokens");
  if (m->context > most)
    refuse(r, value, gos_format(r->arena, "--context=%lld is more", (long long)m->context));
  if (m->context) return;
  m->context = most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
  m->context -= m->context % GOS_IMPORT_PAGE;
}

// A window as wide as the context is no window.
static void refuse_window(const reader_t *r) {
  const gos_json_value_t *value = gos_json_get(r->root, "sliding_window");
  bool qwen = !strncmp(r->import->model_type, "qwen", 4);
  if (qwen && !read_flag(r, "use_sliding_window", false)) return;
  if (!value && r->family->sliding_window)
    gos_error(r->diags, place(r, r->root->at), "import-missing",
              "\"sliding_window\" is missing, which means %lld; write null for full attention",
              (long long)r->family->sliding_window);
  if (!value || value->kind == GOS_JSON_NULL) return;
  int64_t window = read_count(r, r->root, "sliding_window", 1, (int64_t)1 << 40);
  if (!window || window >= r->import->context) return;
  refuse(r, value, "only full attention is supported");
  if (window >= GOS_IMPORT_PAGE)
    gos_note(r->diags, (gos_loc_t){0}, "with --context=%lld or less it has no effect",
             (long long)(window - window % GOS_IMPORT_PAGE));
}

static void refuse_layer_types(const reader_t *r) {
  const gos_json_value_t *types = given(r->root, "layer_types");
  for (const gos_json_value_t *type = types ? types->first : NULL; type; type = type->next) {
    if (type->kind == GOS_JSON_STRING && !strcmp(type->text, "full_attention")) continue;
    gos_error(r->diags, place(r, type->at), "import-field",
              "a layer is %s; only full_attention is supported", shown(r, type));
    return;
  }
}

static void read_blocks(reader_t *r) {
  gos_import_t *m = r->import;
  bool bias = r->family->attention_bias && read_flag(r, "attention_bias", false);
  m->qkv_bias = bias || r->family->qkv_bias;
  m->o_bias = bias;
  m->mlp_bias = !strcmp(m->model_type, "llama") && read_flag(r, "mlp_bias", false);
  m->qk_norm = r->family->qk_norm;
  refuse_window(r);
  refuse_layer_types(r);
}

static void check_activation(const reader_t *r) {
  const gos_json_value_t *act = given(r->root, "hidden_act");
  bool silu = !act || (act->kind == GOS_JSON_STRING &&
                       (!strcmp(act->text, "silu") || !strcmp(act->text, "swish")));
  if (!silu) refuse(r, act, "only silu is supported");
}

// The object that tells of rope: "rope_parameters" since transformers 5, "rope_scaling" before.
static const gos_json_value_t *rope_object(const reader_t *r) {
  const gos_json_value_t *value = given(r->root, "rope_parameters");
  if (!value) value = given(r->root, "rope_scaling");
  if (!value || value->kind == GOS_JSON_OBJECT) return value;
  refuse(r, value, "an object or null is needed");
  return NULL;
}

static void read_llama3(reader_t *r, const gos_json_value_t *rope) {
  gos_import_t *m = r->import;
  m->rope_scaling.low_freq_factor = read_number(r, rope, "low_freq_factor", NULL);
  m->rope_scaling.high_freq_factor = read_number(r, rope, "high_freq_factor", NULL);
  m->rope_scaling.original_max_position_embeddings =
      read_count(r, rope, "original_max_position_embeddings", 0, (int64_t)1 << 30);
}

static void read_rope(reader_t *r) {
  gos_import_t *m = r->import;
  const gos_json_value_t *rope = rope_object(r);
  m->rope_theta = read_number(r, r->root, "rope_theta", "10000");
  if (!rope) return;
  const gos_json_value_t *part = given(rope, "partial_rotary_factor"); // since transformers 5
  if (part && !is_neutral(part, true)) refuse(r, part, refusal_of(part->key)->why);
  m->rope_theta = read_number(r, rope, "rope_theta", m->rope_theta);
  const gos_json_value_t *type = given(rope, "rope_type");
  if (!type) type = given(rope, "type"); // its name before transformers 4.43
  const char *name = !type ? "default" : type->kind == GOS_JSON_STRING ? type->text : "";
  if (!strcmp(name, "default")) return;
  if (strcmp(name, "linear") && strcmp(name, "llama3")) {
    refuse(r, type, "supported are default, linear and llama3");
    return;
  }
  m->rope_scaling.type = name;
  m->rope_scaling.factor = read_number(r, rope, "factor", NULL);
  if (!strcmp(name, "llama3")) read_llama3(r, rope);
}

static void read_dtype(reader_t *r) {
  static const char *const names[][2] = {
      {"bfloat16", "bf16"}, {"float16", "f16"}, {"float32", "f32"}};
  const char *key = given(r->root, "torch_dtype") ? "torch_dtype" : "dtype";
  const char *name = r->import->dtype ? NULL : read_text(r, r->root, key);
  if (!r->import->dtype) r->import->dtype = "bf16";
  for (size_t i = 0; name && i < 3; i++)
    if (!strcmp(name, names[i][0])) {
      r->import->dtype = names[i][1];
      return;
    }
  if (name)
    refuse(r, given(r->root, key), "supported are bfloat16, float16 and float32; or give --dtype");
}

// ---- fields that are not read -------------------------------------------------------------------

static bool is_known(const char *key) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(known[i], key)) return true;
  return false;
}

static void check_others(const reader_t *r) {
  for (const gos_json_value_t *field = r->root->first; field; field = field->next) {
    const struct refusal *refusal = refusal_of(field->key);
    if (refusal && !is_neutral(field, refusal->one_is_neutral)) refuse(r, field, refusal->why);
    if (!r->family || refusal || is_known(field->key) || is_neutral(field, false)) continue;
    gos_warning(r->diags, place(r, field->key_at), "import-unknown",
                "\"%s\" is not known and was ignored", field->key);
  }
}

bool gos_import_config(gos_arena_t *arena, gos_diags_t *diags, uint16_t file,
                       gos_import_t *import) {
  reader_t r = {.arena = arena, .diags = diags, .file = file, .import = import};
  r.root = gos_json_read(arena, diags, file);
  if (r.root && r.root->kind != GOS_JSON_OBJECT)
    gos_error(diags, place(&r, r.root->at), "import-field", "a config is an object, this is %s",
              gos_json_kind_name(r.root->kind));
  if (gos_diags_error_count(diags)) return false;
  read_family(&r);
  check_others(&r);
  check_activation(&r);
  if (!r.family) return false; // the rest would only be errors that follow from this one
  read_shape(&r);
  read_head_dim(&r);
  read_context(&r);
  read_blocks(&r);
  read_rope(&r);
  read_dtype(&r);
  import->rms_norm_eps = read_number(&r, r.root, "rms_norm_eps", NULL);
  import->tie_word_embeddings = read_flag(&r, "tie_word_embeddings", false);
  return gos_diags_error_count(diags) == 0;
}
