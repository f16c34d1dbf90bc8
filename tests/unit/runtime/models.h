// models.h: two small graphs as safe schedule tables, for tests of the loader and its users.
//
// Built with tables.h. Each result is one block that the caller frees. Out of memory aborts.
#ifndef GOS_TEST_MODELS_H_
#define GOS_TEST_MODELS_H_

#include "gpuos_abi.h"

// y = x * w + x over f32 input "x", bf16 weight "w" and f32 output "y", each [count]; two
// operators, tiles of four elements, x * w in the workspace.
gpuos_table_t *gos_model_scale(uint32_t count);

// A language model that looks its next token up: logits[b] = lm[token[b]], next[b] = argmax. i32
// inputs "token", "pos" and, with has_seq, "seq", each [rows]; f32 weight "lm" [vocabulary,
// vocabulary]; outputs "logits" and "next". An identity shifted by one in "lm" counts upwards.
gpuos_table_t *gos_model_lookup(uint32_t rows, uint32_t vocabulary, int has_seq);

// The lookup model with page table "cache.pages" [sequences, pages of one] over a "cache" state of
// `pool` pages of four positions, one head of two elements; each step appends "k" and "v", both
// bf16 [rows, 2], at position "pos" of sequence "seq".
gpuos_table_t *gos_model_cache(uint32_t rows, uint32_t sequences, uint32_t pages, uint32_t pool);

#endif // GOS_TEST_MODELS_H_
