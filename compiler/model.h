// model.h: the parts of the YAML front end, private to model*.c.
//
// model.c reads the top of a file, model_read.c checked values of any kind, model_names.c keeps
// what each tensor name stands for, model_tensors.c reads declarations, model_operand.c tensor
// operands and slices, model_args.c an operator's parameters, model_ops.c operators and repeats. An
// error never stops the reading: what depends on it becomes a null value, which is used without a
// further error.
#ifndef GOS_COMPILER_MODEL_H_
#define GOS_COMPILER_MODEL_H_

#include "compiler.h"
#include "yaml_tree.h"

#define GOS_NO_DECL SIZE_MAX

enum {
  GOS_MAX_PLACES = GOS_MAX_PARAMS + 2 * GOS_LIST_ROOM,
  GOS_MAX_DIM_NAMES = 256,
  GOS_MAX_REPEAT = 4096,
  GOS_MAX_OPS = 200000,    // unrolled
  GOS_MAX_STEPS = 1000000, // operators and repetitions
  GOS_MAX_TENSORS = 65536,
  GOS_MAX_NAME = 255, // bytes of a tensor's name
};

// What a tensor name stands for: its newest value, since operators may give a name again.
typedef struct gos_name {
  const char *text;
  gos_loc_t declared_at; // line 0: no declaration
  gos_loc_t first_at;    // where an operator gave it first
  gos_loc_t made_at;     // where the newest value comes from
  size_t decl;           // number of the declaration, GOS_NO_DECL
  gpuos_role_t role;     // WORKSPACE: no declaration
  bool paged;            // a paged_kv cache
  bool made;             // has a value, maybe a null one after an error
  bool used;             // that value has been
  bool written;          // a cache that an operator wrote
  MlirValue value;
} gos_name_t;

// A use of a name that has no value (yet); judged at the end, when all names are known.
typedef struct gos_pending {
  const char *name;
  gos_loc_t at;
} gos_pending_t;

typedef struct gos_model {
  gos_ir_t *ir;
  uint16_t file;
  gos_dim_override_t *overrides;
  size_t override_count;
  gos_dims_t dims;  // of dims:, then the indices of the repeats around the present operator
  size_t dim_count; // of dims: alone
  GOS_ARRAY(gos_tensor_decl_t) decls;
  GOS_ARRAY(gos_name_t *) names;
  uint32_t *slots; // hash table of names: number + 1, 0 is free
  size_t slot_room;
  GOS_ARRAY(gos_pending_t) pending;
  MlirBlock block;
  size_t op_count, steps; // against GOS_MAX_OPS and GOS_MAX_STEPS
  bool stopped;           // too many: what follows would only be consequences
  bool skipped;           // a part could not be read: what it uses and produces is not known
  bool op_bad;            // the present operator cannot be built
} gos_model_t;

// ---- model_read.c -------------------------------------------------------------------------------

// gos_error for model*.c; also marks the present operator as bad.
bool gos_model_error(gos_model_t *m, gos_loc_t at, const char *slug, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// After an error that was new: a note naming the near miss of `word`, if there is one.
const char *gos_model_suggest(gos_model_t *m, const char *word, const char *const *names,
                              size_t count);
// Where a key stands, or an element of a list.
gos_loc_t gos_model_key_place(const gos_yaml_t *node);
bool gos_model_is(gos_model_t *m, const gos_yaml_t *node, gos_yaml_kind_t kind);
const char *gos_model_text(gos_model_t *m, const gos_yaml_t *node); // NULL after an error
bool gos_model_int(gos_model_t *m, const gos_yaml_t *node, int64_t *out_value);
// One of "a|b|c": its number.
bool gos_model_choice(gos_model_t *m, const gos_yaml_t *node, const char *choices, int *out_index);
bool gos_model_dtype(gos_model_t *m, const gos_yaml_t *node, gpuos_dtype_t *out_dtype);
// Reports keys of map that are not in "a|b|c"; `what` names the map.
void gos_model_keys(gos_model_t *m, const gos_yaml_t *map, const char *what, const char *keys);
gos_yaml_t *gos_model_need(gos_model_t *m, const gos_yaml_t *map, const char *what,
                           const char *key);
bool gos_model_is_name(const char *text); // [A-Za-z_][A-Za-z0-9_]*
// Replaces "{i}" by the index i of a repeat; NULL after an error, also if that makes no good name.
const char *gos_model_expand(gos_model_t *m, gos_loc_t at, const char *text);

// ---- model_names.c ------------------------------------------------------------------------------

gos_name_t *gos_model_find(const gos_model_t *m, const char *text); // NULL if unknown
gos_name_t *gos_model_name(gos_model_t *m, const char *text);       // made if unknown
MlirValue gos_model_use(gos_model_t *m, const char *text, gos_loc_t at);
// The result `text` of an operator; a null value after an error in it.
void gos_model_assign(gos_model_t *m, const char *text, gos_loc_t at, MlirValue value);
// Reports what is unknown, unused or never produced.
void gos_model_check_names(gos_model_t *m);

// ---- model_tensors.c, model_operand.c, model_args.c, model_ops.c --------------------------------

void gos_model_tensors(gos_model_t *m, const gos_yaml_t *tensors);

// "[:, a:b]" as start, stop a dimension. False after an error.
bool gos_model_ranges(gos_model_t *m, gos_loc_t at, const char *text, int64_t *out_ranges,
                      size_t *out_count);
// A tensor, maybe with a slice suffix; null after an error.
MlirValue gos_model_operand(gos_model_t *m, const gos_yaml_t *node);

// A parameter and the value the file gives it.
typedef struct gos_model_arg {
  const gos_param_t *param;
  const gos_yaml_t *node;
} gos_model_arg_t;

typedef struct gos_model_op {
  const gos_op_spec_t *spec;
  const gos_yaml_t *node; // `matmul: {...}`
  gos_model_arg_t args[GOS_MAX_PARAMS];
  size_t arg_count;
  const gos_yaml_t *inputs[GOS_LIST_ROOM]; // map's free keys
  size_t input_count;
  gos_build_t build;
  const char *keys[GOS_MAX_PLACES]; // for the location
  gos_loc_t places[GOS_MAX_PLACES];
  size_t place_count;
  const char *out;   // NULL after an error
  gos_name_t *cache; // that attention writes, NULL without
} gos_model_op_t;

void gos_model_add_place(gos_model_op_t *op, const char *key, gos_loc_t at);
const gos_model_arg_t *gos_model_arg(const gos_model_op_t *op, const char *name); // NULL if absent
void gos_model_args(gos_model_t *m, gos_model_op_t *op);                          // reads them all
void gos_model_ops(gos_model_t *m, const gos_yaml_t *ops);

#endif // GOS_COMPILER_MODEL_H_
