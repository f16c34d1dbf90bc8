// model_args.c: the values of an operator's parameters, by kind.
#include "model.h"

#include <string.h>

void gos_model_add_place(gos_model_op_t *op, const char *key, gos_loc_t at) {
  if (op->place_count == GOS_MAX_PLACES) GOS_BUG("too many places");
  op->keys[op->place_count] = key;
  op->places[op->place_count++] = at;
}

const gos_model_arg_t *gos_model_arg(const gos_model_op_t *op, const char *name) {
  for (size_t i = 0; i < op->arg_count; i++)
    if (!strcmp(op->args[i].param->name, name)) return &op->args[i];
  return NULL;
}

static void read_float(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  double value;
  if (gos_yaml_float(arg->node, &value))
    gos_build_float(m->ir, &op->build, arg->param->name, value);
  else if (gos_model_text(m, arg->node))
    gos_model_error(m, arg->node->at, "type", "'%s' must be a number, such as 1.0e-5",
                    arg->node->key);
}

static void read_bool(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  bool value;
  if (gos_yaml_bool(arg->node, &value))
    gos_build_bool(m->ir, &op->build, arg->param->name, value);
  else if (gos_model_text(m, arg->node))
    gos_model_error(m, arg->node->at, "type", "'%s' must be true or false", arg->node->key);
}

static void read_enum(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  int index;
  if (gos_model_choice(m, arg->node, arg->param->choices, &index))
    gos_build_string(m->ir, &op->build, arg->param->name, arg->node->text);
}

static void read_dtype(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  gpuos_dtype_t dtype;
  if (gos_model_dtype(m, arg->node, &dtype))
    gos_build_string(m->ir, &op->build, arg->param->name, gos_dtype_name(dtype));
}

static void read_ints(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  int64_t values[GPUOS_RANK];
  size_t count = 0;
  if (!gos_model_is(m, arg->node, GOS_YAML_LIST)) return;
  if (arg->node->count > GPUOS_RANK) {
    gos_model_error(m, arg->node->at, "shape", "%zu dimensions: at most %d are allowed",
                    arg->node->count, GPUOS_RANK);
    return;
  }
  for (const gos_yaml_t *node = arg->node->first; node; node = node->next)
    gos_model_int(m, node, &values[count++]);
  gos_build_ints(m->ir, &op->build, arg->param->name, count, values);
}

static void read_ranges(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  int64_t ranges[2 * GPUOS_RANK];
  size_t count;
  const char *text = gos_model_text(m, arg->node);
  if (text && gos_model_ranges(m, arg->node->at, text, ranges, &count))
    gos_build_ints(m->ir, &op->build, arg->param->name, 2 * count, ranges);
}

static void read_list(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  if (!gos_model_is(m, arg->node, GOS_YAML_LIST)) return;
  if (arg->node->count == 0 || arg->node->count > GOS_LIST_ROOM) {
    gos_model_error(m, arg->node->at, "type", "'%s' takes 1 to %d tensors", arg->node->key,
                    GOS_LIST_ROOM);
    return;
  }
  int index = 0;
  for (const gos_yaml_t *node = arg->node->first; node; node = node->next, index++) {
    gos_model_add_place(op, gos_format(m->ir->scratch, "%s%d", arg->param->name, index), node->at);
    gos_build_in(&op->build, arg->param->name, index, gos_model_operand(m, node));
  }
}

static void read_expr(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  const char *names[GOS_LIST_ROOM];
  for (size_t i = 0; i < op->input_count; i++) names[i] = op->inputs[i]->key;
  const char *text = gos_model_text(m, arg->node);
  if (!text) return;
  const char *body = gos_expr_parse(m->ir, arg->node->at, text, op->input_count, names);
  if (body)
    gos_build_symbol(m->ir, &op->build, arg->param->name, body);
  else
    m->op_bad = true;
}

static void read_out(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  const char *text = gos_model_text(m, arg->node);
  if (text) op->out = gos_model_expand(m, arg->node->at, text);
}

// A cache whose declaration is in error is not judged further.
static bool is_paged(gos_model_t *m, const gos_name_t *name, gos_loc_t at) {
  bool declared = name->declared_at.line != 0;
  if (name->paged || (declared && name->role == GPUOS_WORKSPACE)) return true;
  if (gos_model_error(m, at, "type", "'%s' is no paged_kv cache", name->text))
    gos_note(m->ir->diags, declared ? name->declared_at : name->first_at, "it comes from here");
  return false;
}

// The file's name of the cache stands for the cache and, hidden, for its page table.
static void read_cache(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  gos_loc_t at = arg->node->at;
  const char *text = gos_model_text(m, arg->node);
  const char *name = text ? gos_model_expand(m, at, text) : NULL;
  if (!name) return;
  gos_build_in(&op->build, "cache", 0, gos_model_use(m, name, at));
  op->cache = gos_model_find(m, name);
  if (op->cache && !is_paged(m, op->cache, at)) return;
  gos_name_t *pages = gos_model_find(m, gos_format(m->ir->scratch, "%s.pages", name));
  if (pages) gos_build_in(&op->build, "pages", 0, pages->value);
  if (!gos_model_arg(op, "pos") &&
      gos_model_error(m, op->node->key_at, "key-missing", "'attention' with a cache needs 'pos'"))
    gos_note(m->ir->diags, arg->node->key_at, "because of this cache");
}

static bool is_cache(const gos_model_arg_t *arg) { return !strcmp(arg->param->name, "cache"); }

static void read_arg(gos_model_t *m, gos_model_op_t *op, const gos_model_arg_t *arg) {
  const char *name = arg->param->name;
  int64_t value;
  gos_model_add_place(op, name, arg->node->key_at);
  switch (arg->param->kind) {
  case GOS_IN:
    if (is_cache(arg))
      read_cache(m, op, arg);
    else
      gos_build_in(&op->build, name, 0, gos_model_operand(m, arg->node));
    return;
  case GOS_INT:
    if (gos_model_int(m, arg->node, &value)) gos_build_int(m->ir, &op->build, name, value);
    return;
  case GOS_IN_LIST: read_list(m, op, arg); return;
  case GOS_OUT: read_out(m, op, arg); return;
  case GOS_FLOAT: read_float(m, op, arg); return;
  case GOS_BOOL: read_bool(m, op, arg); return;
  case GOS_DTYPE: read_dtype(m, op, arg); return;
  case GOS_ENUM: read_enum(m, op, arg); return;
  case GOS_INTS: read_ints(m, op, arg); return;
  case GOS_RANGES: read_ranges(m, op, arg); return;
  case GOS_EXPR: read_expr(m, op, arg); return;
  }
  GOS_BUG("parameter kind %d", (int)arg->param->kind);
}

static void read_inputs(gos_model_t *m, gos_model_op_t *op) {
  for (size_t i = 0; i < op->input_count; i++) {
    const gos_yaml_t *node = op->inputs[i];
    gos_model_add_place(op, gos_format(m->ir->scratch, "in%zu", i), node->key_at);
    gos_build_in(&op->build, "in", (int)i, gos_model_operand(m, node));
  }
}

void gos_model_args(gos_model_t *m, gos_model_op_t *op) {
  for (size_t i = 0; i < op->arg_count; i++) read_arg(m, op, &op->args[i]);
  read_inputs(m, op);
}
