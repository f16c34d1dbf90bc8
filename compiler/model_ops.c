// model_ops.c: ops:, each operator by its entry in the table, repeats unrolled.
#include "model.h"

#include <string.h>

enum { MAX_KEYS = 48 };

// ---- which parameter a key means ----------------------------------------------------------------

static bool is_map(const gos_op_spec_t *spec) { return !strcmp(spec->name, "map"); }

// map's list of inputs is every other key, not a key of its own.
static bool is_key(const gos_op_spec_t *spec, const gos_param_t *p) {
  return !(p->flags & GOS_INTERNAL) && !(is_map(spec) && p->kind == GOS_IN_LIST);
}

static const gos_param_t *find_param(const gos_op_spec_t *spec, const char *key) {
  for (const gos_param_t *p = spec->params; p->name; p++)
    if (is_key(spec, p) && !strcmp(p->name, key)) return p;
  return NULL;
}

static void unknown_key(gos_model_t *m, const gos_model_op_t *op, const gos_yaml_t *node,
                        const char *key) {
  const char *names[GOS_MAX_PARAMS];
  size_t count = 0;
  for (const gos_param_t *p = op->spec->params; p->name; p++)
    if (is_key(op->spec, p)) names[count++] = p->name;
  const char *name = op->spec->name;
  if (!gos_model_error(m, node->key_at, "key-unknown", "'%s' has no key '%s'", name, key)) return;
  if (gos_model_suggest(m, key, names, count)) return;
  gos_text_t text = {.arena = m->ir->scratch};
  for (size_t i = 0; i < count; i++) gos_text_add(&text, "%s%s", i ? ", " : "", names[i]);
  gos_note(m->ir->diags, (gos_loc_t){0}, "its keys are %s", text.at);
}

static void add_arg(gos_model_t *m, gos_model_op_t *op, const gos_param_t *param,
                    const gos_yaml_t *node) {
  for (size_t i = 0; i < op->arg_count; i++) {
    if (op->args[i].param != param) continue; // "a_b: 1" beside "a: {b: 1}"
    if (gos_model_error(m, node->key_at, "yaml-duplicate", "'%s' is given twice", param->name))
      gos_note(m->ir->diags, op->args[i].node->key_at, "first given here");
    return;
  }
  op->args[op->arg_count++] = (gos_model_arg_t){.param = param, .node = node};
}

// scaling: {type: llama3} gives scaling_type.
static void add_group(gos_model_t *m, gos_model_op_t *op, const gos_yaml_t *group) {
  for (const gos_yaml_t *node = group->first; node; node = node->next) {
    const char *key = gos_format(m->ir->scratch, "%s_%s", group->key, node->key);
    const gos_param_t *param = find_param(op->spec, key);
    if (param)
      add_arg(m, op, param, node);
    else
      unknown_key(m, op, node, key);
  }
}

static void add_input(gos_model_t *m, gos_model_op_t *op, const gos_yaml_t *node) {
  if (op->input_count == GOS_LIST_ROOM) {
    gos_model_error(m, node->key_at, "type", "'map' takes at most %d inputs", GOS_LIST_ROOM);
    return;
  }
  op->inputs[op->input_count++] = node;
}

// The group's own name must begin some parameter's, or the key is simply unknown.
static bool is_group(const gos_op_spec_t *spec, const gos_yaml_t *node) {
  size_t length = strlen(node->key);
  if (node->kind != GOS_YAML_MAP) return false;
  for (const gos_param_t *p = spec->params; p->name; p++)
    if (is_key(spec, p) && !strncmp(p->name, node->key, length) && p->name[length] == '_')
      return true;
  return false;
}

static void sort_keys(gos_model_t *m, gos_model_op_t *op) {
  for (const gos_yaml_t *node = op->node->first; node; node = node->next) {
    const gos_param_t *param = find_param(op->spec, node->key);
    if (param)
      add_arg(m, op, param, node);
    else if (is_group(op->spec, node))
      add_group(m, op, node);
    else if (is_map(op->spec))
      add_input(m, op, node);
    else
      unknown_key(m, op, node, node->key);
  }
}

static void check_required(gos_model_t *m, const gos_model_op_t *op) {
  for (const gos_param_t *p = op->spec->params; p->name; p++) {
    if (!(p->flags & GOS_REQUIRED) || p->flags & GOS_INTERNAL || gos_model_arg(op, p->name))
      continue;
    if (!is_key(op->spec, p)) {
      if (op->input_count == 0)
        gos_model_error(m, op->node->key_at, "key-missing", "'map' needs an input");
    } else if (gos_model_error(m, op->node->key_at, "key-missing", "'%s' needs '%s'",
                               op->spec->name, p->name)) {
      gos_note(m->ir->diags, (gos_loc_t){0}, "%s: %s", p->name, p->doc);
    }
  }
}

// ---- one operator -------------------------------------------------------------------------------

// A declared output decides the type of the operator that produces it last (model.c sets it at the end);
// a type given here must be that one.
static void check_output_dtype(gos_model_t *m, gos_model_op_t *op) {
  const gos_name_t *name = op->out ? gos_model_find(m, op->out) : NULL;
  const gos_param_t *param = find_param(op->spec, "dtype");
  if (!name || name->role != GPUOS_OUTPUT || !param || name->decl == GOS_NO_DECL) return;
  const char *declared = gos_dtype_name(m->decls.at[name->decl].shape.dtype);
  const gos_model_arg_t *given = gos_model_arg(op, "dtype");
  if (!given) {
    gos_model_add_place(op, "dtype", gos_model_arg(op, "out")->node->key_at);
  } else if (given->node->kind == GOS_YAML_SCALAR && strcmp(given->node->text, declared) &&
             gos_model_error(m, given->node->at, "type", "dtype %s, but output '%s' is %s",
                             given->node->text, op->out, declared)) {
    gos_note(m->ir->diags, name->declared_at, "declared here");
  }
}

static MlirOperation build(gos_model_t *m, gos_model_op_t *op) {
  op->build.loc = gos_loc_make(m->ir, op->node->key_at, op->place_count, op->keys, op->places);
  gos_build_result(&op->build, gos_unknown_type(m->ir));
  if (op->cache) gos_build_result(&op->build, gos_unknown_type(m->ir)); // the cache afterwards
  MlirOperation made = gos_build_op(m->ir, &op->build);
  mlirBlockAppendOwnedOperation(m->block, made);
  return made;
}

static void finish(gos_model_t *m, gos_model_op_t *op) {
  MlirValue result = {NULL};
  if (!m->op_bad) {
    MlirOperation made = build(m, op);
    result = mlirOperationGetResult(made, 0);
    if (op->cache) {
      op->cache->value = mlirOperationGetResult(made, 1);
      op->cache->written = true;
    }
  }
  if (op->out) gos_model_assign(m, op->out, gos_model_arg(op, "out")->node->at, result);
}

static void read_op(gos_model_t *m, const gos_op_spec_t *spec, const gos_yaml_t *node) {
  gos_model_op_t op = {.spec = spec, .node = node};
  op.build = gos_build(spec, mlirLocationUnknownGet(m->ir->mlir)); // its own is known at the end
  m->op_bad = false;
  sort_keys(m, &op);
  check_required(m, &op);
  gos_model_args(m, &op);
  check_output_dtype(m, &op);
  finish(m, &op);
}

// What an operator produces that we cannot read is known by name all the same, and what it uses we
// cannot tell.
static void forgive(gos_model_t *m, const gos_yaml_t *node) {
  const gos_yaml_t *out = gos_yaml_get(node, "out");
  m->skipped = true;
  if (!out || out->kind != GOS_YAML_SCALAR) return;
  const char *name = gos_model_expand(m, out->at, out->text);
  if (name) gos_model_assign(m, name, out->at, (MlirValue){NULL});
}

static void unknown_op(gos_model_t *m, const gos_yaml_t *node) {
  const char *names[64];
  size_t count = 0;
  for (const gos_op_spec_t *spec = gos_op_specs; spec->name && count < 64; spec++)
    if (!spec->internal) names[count++] = spec->name;
  if (gos_model_error(m, node->key_at, "op-unknown", "no operator '%s'", node->key) &&
      !gos_model_suggest(m, node->key, names, count))
    gos_note(m->ir->diags, (gos_loc_t){0}, "gpuosc --print-ops lists the operators");
  forgive(m, node);
}

// ---- the list, repeats --------------------------------------------------------------------------

// False once there are too many: nested repeats must not take for ever.
static bool step(gos_model_t *m, gos_loc_t at) {
  if (m->stopped) return false;
  if (m->op_count < GOS_MAX_OPS && ++m->steps < GOS_MAX_STEPS) return true;
  bool ops = m->op_count == GOS_MAX_OPS;
  gos_model_error(m, at, "repeat", "more than %d %s, repeats unrolled",
                  ops ? GOS_MAX_OPS : GOS_MAX_STEPS, ops ? "operators" : "repetitions");
  m->stopped = true;
  return false;
}

static void read_items(gos_model_t *m, const gos_yaml_t *list);

static const char *read_index(gos_model_t *m, const gos_yaml_t *map) {
  const gos_yaml_t *node = gos_yaml_get(map, "index");
  const char *name = node ? gos_model_text(m, node) : "i";
  gos_loc_t at = gos_model_key_place(node ? node : map->first);
  if (!name) return "i";
  if (!gos_model_is_name(name)) gos_model_error(m, at, "repeat", "index '%s' is no name", name);
  for (size_t i = 0; i < m->dims.count; i++) {
    if (strcmp(m->dims.at[i].name, name)) continue;
    gos_model_error(m, at, "repeat", "index '%s' is already %s", name,
                    i < m->dim_count ? "a dimension" : "the index of a repeat around this");
  }
  return name;
}

// With a wrong count the operators are read once, for the errors in them.
static int64_t read_count(gos_model_t *m, const gos_yaml_t *node) {
  int64_t count;
  if (!gos_model_int(m, node, &count)) return 1;
  if (count >= 0 && count <= GOS_MAX_REPEAT) return count;
  gos_model_error(m, node->at, "repeat", "%lld times: 0 to %d are allowed", (long long)count,
                  GOS_MAX_REPEAT);
  return 1;
}

static void read_repeat(gos_model_t *m, const gos_yaml_t *map) {
  gos_model_keys(m, map, "a repeat", "repeat|index|ops");
  const gos_yaml_t *ops = gos_model_need(m, map, "a repeat", "ops");
  const gos_yaml_t *count_node = gos_yaml_get(map, "repeat");
  int64_t count = read_count(m, count_node);
  const char *index = read_index(m, map);
  if (!ops) m->skipped = true;
  if (!ops) return;
  *gos_push(m->ir->arena, &m->dims) = (gos_dim_t){.name = index};
  size_t dim = m->dims.count - 1;
  for (int64_t i = 0; i < count && step(m, count_node->at); i++) {
    m->dims.at[dim].value = i;
    read_items(m, ops);
  }
  m->dims.count--;
}

static void read_one(gos_model_t *m, const gos_yaml_t *node) {
  m->op_count++;
  const gos_op_spec_t *spec = gos_op_spec(node->key);
  if (!spec || spec->internal) {
    unknown_op(m, node);
  } else if (!gos_model_is(m, node, GOS_YAML_MAP)) {
    m->skipped = true;
  } else if (node->count > MAX_KEYS) {
    gos_model_error(m, node->key_at, "type", "more than %d keys", MAX_KEYS);
    forgive(m, node);
  } else {
    read_op(m, spec, node);
  }
}

static void read_item(gos_model_t *m, const gos_yaml_t *item) {
  if (!gos_model_is(m, item, GOS_YAML_MAP)) {
    m->skipped = true;
  } else if (gos_yaml_get(item, "repeat")) {
    read_repeat(m, item);
  } else if (item->count == 1) {
    read_one(m, item->first);
  } else {
    gos_model_error(m, item->at, "type", "an operator is one key with its parameters, not %zu",
                    item->count);
    gos_note(m->ir->diags, (gos_loc_t){0}, "as in: - matmul: {x: a, w: b, out: c}");
    forgive(m, item);
  }
}

static void read_items(gos_model_t *m, const gos_yaml_t *list) {
  if (!gos_model_is(m, list, GOS_YAML_LIST)) return;
  if (list->count == 0) gos_model_error(m, gos_model_key_place(list), "type", "no operators");
  for (const gos_yaml_t *item = list->first; item && step(m, item->at); item = item->next)
    read_item(m, item);
}

void gos_model_ops(gos_model_t *m, const gos_yaml_t *ops) { read_items(m, ops); }
