// import.h: a Llama-family model between its config.json and its model.yaml.
//
// import.c reads options and files, import_config.c fills this from config.json, import_write.c
// writes it as YAML. Texts live in the arena or in argv.
#ifndef GOS_COMPILER_IMPORT_H_
#define GOS_COMPILER_IMPORT_H_

#include "diag.h"

enum { GOS_IMPORT_PAGE = 64 }; // the page size of a paged_kv cache that gives none

typedef struct gos_import {
  // The command line; 0 and NULL: not given.
  const char *config, *out; // paths
  const char *name, *target, *dtype;
  int64_t batch, context, deadline_us;
  bool logits; // an output too

  // config.json, under Hugging Face's names
  const char *model_type;
  int64_t hidden_size, intermediate_size, num_hidden_layers, vocab_size;
  int64_t num_attention_heads, num_key_value_heads, head_dim, max_position_embeddings;
  const char *rms_norm_eps, *rope_theta; // numbers as YAML writes them
  bool tie_word_embeddings;
  bool qkv_bias, o_bias, mlp_bias;
  bool qk_norm; // each head of q and k is normalised before rope (Qwen3)
  struct {
    const char *type; // NULL: none; "linear", "llama3"
    const char *factor, *low_freq_factor, *high_freq_factor;
    int64_t original_max_position_embeddings;
  } rope_scaling;
} gos_import_t;

// Reads a registered config.json, and completes what the command line left open. Reports all of
// its errors ([json], [import-field], [import-missing]); false if there were any.
bool gos_import_config(gos_arena_t *arena, gos_diags_t *diags, uint16_t file, gos_import_t *import);

void gos_import_write(const gos_import_t *import, gos_text_t *out);

#endif // GOS_COMPILER_IMPORT_H_
