// json_tree.h: a JSON text as a tree of values that know their place.
//
// For import.c, which reads config.json. Strict RFC 8259: well-formed UTF-8, no duplicate keys, no
// comments, no trailing commas. The text is trusted in nothing: depth, count and size are limited,
// and the first thing that is wrong is an error with its place ([json]). Values live in the arena
// and do not point into the text. One thread.
#ifndef GOS_COMPILER_JSON_TREE_H_
#define GOS_COMPILER_JSON_TREE_H_

#include "diag.h"

typedef enum gos_json_kind {
  GOS_JSON_NULL,
  GOS_JSON_BOOL,
  GOS_JSON_NUMBER,
  GOS_JSON_STRING,
  GOS_JSON_ARRAY,
  GOS_JSON_OBJECT,
} gos_json_kind_t;

typedef struct gos_json_value {
  gos_json_kind_t kind;
  size_t at;       // byte in the text, for gos_diags_place
  const char *key; // of a member of an object, otherwise NULL
  size_t key_at;
  const char *text;             // a string, decoded; a number, true, false and null as written
  double number;                // finite
  struct gos_json_value *first; // of an array or an object, in the order of the text
  struct gos_json_value *next;  // in the same array or object
} gos_json_value_t;

// The value of a registered file; NULL after an error.
gos_json_value_t *gos_json_read(gos_arena_t *arena, gos_diags_t *diags, uint16_t file);

// The member of an object, NULL if it has none of that name.
const gos_json_value_t *gos_json_get(const gos_json_value_t *object, const char *key);

// True if a number is written as an integer and fits; "8.0" and "1e3" are no integers.
bool gos_json_integer(const gos_json_value_t *value, int64_t *out_integer);

// "a string", "an object": for messages.
const char *gos_json_kind_name(gos_json_kind_t kind);

#endif // GOS_COMPILER_JSON_TREE_H_
