// model.c: model.yaml to a graph, from the top keys down. The schema's version is 1.
#include "model.h"

#include <string.h>

enum { SCHEMA_VERSION = 1 };

// ---- the head -----------------------------------------------------------------------------------

typedef struct head {
  const char *name, *graph_class, *target;
  gos_loc_t name_at;
  int64_t deadline_us;
} head_t;

// Another version may mean other keys, so that nothing else is worth reporting.
static bool read_version(gos_model_t *m, const gos_yaml_t *root) {
  const gos_yaml_t *node = gos_model_need(m, root, "a model", "gpuos");
  int64_t version;
  if (!node) {
    gos_note(m->ir->diags, (gos_loc_t){0}, "the first line of a model is gpuos: %d",
             SCHEMA_VERSION);
    return false;
  }
  if (gos_yaml_int(node, &version) && version == SCHEMA_VERSION) return true;
  gos_model_error(m, node->at, "version", "this compiler reads version %d of the schema",
                  SCHEMA_VERSION);
  return false;
}

typedef struct search {
  const char *name;
  bool found;
} search_t;

static void compare_name(gos_ir_t *ir, MlirOperation func, void *user) {
  search_t *search = user;
  search->found |= !strcmp(gos_func_string(ir, func, "sym_name"), search->name);
}

static bool is_graph_name(const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  size_t length = strlen(text);
  return length > 0 && length <= GOS_MAX_NAME && strspn(text, letters) == length;
}

static void read_name(gos_model_t *m, const gos_yaml_t *root, head_t *head) {
  const gos_yaml_t *node = gos_model_need(m, root, "a model", "name");
  const char *text = node ? gos_model_text(m, node) : NULL;
  head->name = "unnamed";
  if (!text) return;
  head->name = text;
  head->name_at = node->at;
  search_t search = {.name = text};
  gos_graphs(m->ir, compare_name, &search);
  if (!is_graph_name(text))
    gos_model_error(m, node->at, "graph-name", "a graph's name has letters, digits, . _ and -");
  else if (!strncmp(text, "pointwise_", strlen("pointwise_")))
    gos_model_error(m, node->at, "graph-name", "names that begin with pointwise_ are taken");
  else if (search.found)
    gos_model_error(m, node->at, "graph-name", "another graph is named '%s', too", text);
}

static void read_class(gos_model_t *m, const gos_yaml_t *root, head_t *head) {
  static const char *const classes[] = {"live", "background"};
  const gos_yaml_t *node = gos_model_need(m, root, "a model", "class");
  const gos_yaml_t *deadline = gos_yaml_get(root, "deadline_us");
  int index = 0;
  bool good = node && gos_model_choice(m, node, "live|background", &index);
  head->graph_class = classes[index];
  if (!deadline) return;
  if (good && index == 1) {
    gos_model_error(m, deadline->key_at, "key-unknown", "a background graph has no deadline_us");
    gos_note(m->ir->diags, node->key_at, "only live graphs run in steps with a deadline");
  } else if (gos_model_int(m, deadline, &head->deadline_us) &&
             (head->deadline_us < 1 || head->deadline_us > INT32_MAX)) {
    gos_model_error(m, deadline->at, "type", "deadline_us must be 1 to 2147483647");
  }
}

static void read_head(gos_model_t *m, const gos_yaml_t *root, head_t *head) {
  const gos_yaml_t *target = gos_yaml_get(root, "target");
  gos_model_keys(m, root, "a model", "gpuos|name|class|deadline_us|target|dims|tensors|ops");
  read_name(m, root, head);
  read_class(m, root, head);
  const char *text = target ? gos_model_text(m, target) : NULL;
  head->target = text ? text : "";
}

// ---- dims ---------------------------------------------------------------------------------------

static gos_dim_override_t *find_override(gos_model_t *m, const char *name) {
  for (size_t i = 0; i < m->override_count; i++)
    if (!strcmp(m->overrides[i].name, name)) return &m->overrides[i];
  return NULL;
}

static void read_dim(gos_model_t *m, const gos_yaml_t *node) {
  int64_t value = 1; // after an error
  if (!gos_model_is_name(node->key)) {
    gos_model_error(m, node->key_at, "type", "'%s' is no name for a dimension", node->key);
    gos_note(m->ir->diags, (gos_loc_t){0}, "a letter or _, then letters, digits and _");
    return;
  }
  if (!gos_model_int(m, node, &value)) value = 1;
  gos_dim_override_t *override = find_override(m, node->key);
  if (override) {
    value = override->value;
    override->used = true;
  }
  *gos_push(m->ir->arena, &m->dims) = (gos_dim_t){.name = node->key, .value = value};
}

static void read_dims(gos_model_t *m, const gos_yaml_t *dims) {
  if (!dims || !gos_model_is(m, dims, GOS_YAML_MAP)) return;
  if (dims->count > GOS_MAX_DIM_NAMES) {
    gos_model_error(m, dims->key_at, "type", "more than %d dimensions", GOS_MAX_DIM_NAMES);
    return;
  }
  for (const gos_yaml_t *node = dims->first; node; node = node->next) read_dim(m, node);
}

// ---- the graph ----------------------------------------------------------------------------------

static void begin(gos_model_t *m, const head_t *head, MlirOperation *out_func) {
  intptr_t arg = 0;
  m->block =
      gos_graph_begin(m->ir, head->name, head->name_at, m->decls.at, m->decls.count, out_func);
  for (size_t i = 0; i < m->decls.count; i++)
    if (m->decls.at[i].role != GPUOS_OUTPUT)
      gos_model_find(m, m->decls.at[i].name)->value = mlirBlockGetArgument(m->block, arg++);
}

// The operator that gives an output its last value takes the declared type.
static void set_output_dtype(gos_model_t *m, const gos_name_t *name) {
  if (name->role != GPUOS_OUTPUT || !mlirValueIsAOpResult(name->value)) return;
  MlirOperation op = mlirOpResultGetOwner(name->value);
  const char *declared = gos_dtype_name(m->decls.at[name->decl].shape.dtype);
  for (const gos_param_t *p = gos_op_get_spec(op)->params; p->name; p++)
    if (!strcmp(p->name, "dtype")) gos_op_set_string(m->ir, op, "dtype", declared);
}

static void end(gos_model_t *m, const head_t *head, MlirOperation func) {
  size_t room = m->decls.count + 1, count = 0;
  MlirValue *results = gos_alloc(m->ir->scratch, room * sizeof *results);
  gos_tensor_decl_t *decls = gos_alloc(m->ir->scratch, room * sizeof *decls);
  for (size_t i = 0; i < m->decls.count; i++) {
    const gos_name_t *name = gos_model_find(m, m->decls.at[i].name);
    if (name->role != GPUOS_OUTPUT && !name->written) continue;
    set_output_dtype(m, name);
    decls[count] = m->decls.at[i];
    results[count++] = name->value;
  }
  gos_graph_end(m->ir, func, head->graph_class, head->deadline_us, head->target, decls, results,
                count);
}

static void read_graph(gos_model_t *m, const gos_yaml_t *root) {
  head_t head = {0};
  MlirOperation func;
  if (!read_version(m, root)) return;
  size_t before = gos_diags_error_count(m->ir->diags);
  read_head(m, root, &head);
  read_dims(m, gos_yaml_get(root, "dims"));
  m->dim_count = m->dims.count;
  gos_yaml_t *tensors = gos_model_need(m, root, "a model", "tensors");
  gos_yaml_t *ops = gos_model_need(m, root, "a model", "ops");
  if (tensors) gos_model_tensors(m, tensors);
  begin(m, &head, &func);
  if (ops) gos_model_ops(m, ops);
  if (ops && tensors && !m->stopped) gos_model_check_names(m);
  if (gos_diags_error_count(m->ir->diags) == before) end(m, &head, func);
}

// What an erroneous file has put into the module so far is half a graph.
static void drop_after(gos_ir_t *ir, MlirOperation last) {
  MlirBlock body = mlirModuleGetBody(ir->module);
  MlirOperation op = mlirOperationIsNull(last) ? mlirBlockGetFirstOperation(body)
                                               : mlirOperationGetNextInBlock(last);
  while (!mlirOperationIsNull(op)) {
    MlirOperation next = mlirOperationGetNextInBlock(op);
    mlirOperationRemoveFromParent(op);
    mlirOperationDestroy(op);
    op = next;
  }
}

static MlirOperation last_op(gos_ir_t *ir) {
  MlirOperation last = {NULL}, op = mlirBlockGetFirstOperation(mlirModuleGetBody(ir->module));
  for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op)) last = op;
  return last;
}

bool gos_model_read(gos_ir_t *ir, uint16_t file, gos_dim_override_t *overrides,
                    size_t override_count) {
  gos_model_t m = {.ir = ir, .file = file, .overrides = overrides};
  m.override_count = override_count;
  size_t before = gos_diags_error_count(ir->diags);
  MlirOperation last = last_op(ir);
  gos_yaml_t *root = gos_yaml_parse(ir->arena, ir->diags, file);
  if (root && gos_model_is(&m, root, GOS_YAML_MAP)) read_graph(&m, root);
  if (gos_diags_error_count(ir->diags) == before) return true;
  drop_after(ir, last);
  return false;
}
