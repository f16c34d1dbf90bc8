// yaml_tree.h: a strict YAML tree in which every node knows its place.
//
// Used by the model front end and by target descriptions. Stricter than YAML: one document, scalar
// unique keys, no anchors, aliases, tags or NUL bytes; limits on depth (32), nodes (1 Mi), bytes
// (16 MiB) and bytes of a scalar (4096). libyaml's event interface, so hostile nesting stops at the
// limit. Nodes live in the arena.
#ifndef GOS_IR_YAML_TREE_H_
#define GOS_IR_YAML_TREE_H_

#include "diag.h"

typedef enum gos_yaml_kind { GOS_YAML_SCALAR, GOS_YAML_LIST, GOS_YAML_MAP } gos_yaml_kind_t;

typedef struct gos_yaml {
  gos_yaml_kind_t kind;
  bool quoted;            // a scalar in quotes is never a number
  gos_loc_t at, key_at;   // of the value; of its key when it stands in a map
  const char *text;       // scalar
  const char *key;        // in a map
  struct gos_yaml *first; // children, in order
  struct gos_yaml *next;
  size_t count;
} gos_yaml_t;

// Parses a registered file. NULL after an error (one error for a text that is no YAML, all
// duplicates otherwise).
gos_yaml_t *gos_yaml_parse(gos_arena_t *arena, gos_diags_t *diags, uint16_t file);
gos_yaml_t *gos_yaml_get(const gos_yaml_t *map, const char *key); // NULL if absent

// Reads a plain scalar; false (no diagnostic) if it is not one. Integers: decimal, no leading +,
// optional _ groups.
bool gos_yaml_int(const gos_yaml_t *node, int64_t *out_value);
bool gos_yaml_float(const gos_yaml_t *node, double *out_value);
bool gos_yaml_bool(const gos_yaml_t *node, bool *out_value); // true, false

#endif // GOS_IR_YAML_TREE_H_
