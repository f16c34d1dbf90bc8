// target.c: reads target descriptions. A description is a list of figures, each a value and where
// it comes from.
#include "target.h"

#include <stddef.h>
#include <string.h>

#include "embed.h"
#include "yaml_tree.h"

double gos_curve_at(const gos_curve_t *curve, double x) {
  if (curve->count == 0) return 0;
  if (x <= curve->x[0]) return curve->y[0];
  for (size_t i = 1; i < curve->count; i++)
    if (x <= curve->x[i]) {
      double t = (x - curve->x[i - 1]) / (curve->x[i] - curve->x[i - 1]);
      return curve->y[i - 1] + t * (curve->y[i] - curve->y[i - 1]);
    }
  return curve->y[curve->count - 1];
}

typedef enum kind { U32, U64, REAL, CURVE } kind_t;
typedef struct figure {
  const char *name;
  kind_t kind;
  size_t at;
  bool required;
} figure_t;

#define FIGURE(name, kind, required)                                                               \
  { #name, kind, offsetof(gos_target_t, name), required }
#define BY_DTYPE(field, suffix, dtype, required)                                                   \
  { #field "_" suffix, REAL, offsetof(gos_target_t, field) + sizeof(double) * (dtype), required }
static const figure_t figures[] = {
    FIGURE(sm_count, U32, true),
    FIGURE(clock_mhz, U32, true),
    FIGURE(smem_bytes, U32, true),
    FIGURE(registers, U32, true),
    FIGURE(l2_bytes, U64, true),
    FIGURE(l2_keep_bytes, U64, true),
    FIGURE(memory_bytes, U64, true),
    FIGURE(power_w, U32, true),
    FIGURE(read_tbps, CURVE, true),
    FIGURE(write_tbps, REAL, true),
    FIGURE(sm_read_gbps, REAL, true),
    FIGURE(l2_tbps, REAL, true),

    FIGURE(vector_gflops, REAL, true),
    FIGURE(special_gops, REAL, true),
    FIGURE(unit_overhead_ns, REAL, true),
    FIGURE(hop_ns, REAL, true),
    FIGURE(margin, REAL, true),
    FIGURE(margin_wgmma, REAL, false),
    FIGURE(price_read, REAL, true),
    FIGURE(price_write, CURVE, true),
    FIGURE(price_l2, REAL, true),
    FIGURE(pj_per_flop, REAL, true),
    FIGURE(pj_per_hbm_byte, REAL, true),
    BY_DTYPE(tensor_tflops, "f32", GPUOS_F32, false),
    BY_DTYPE(code_tflops, "f32", GPUOS_F32, false),
    BY_DTYPE(tensor_tflops, "f16", GPUOS_F16, false),
    BY_DTYPE(code_tflops, "f16", GPUOS_F16, false),
    BY_DTYPE(tensor_tflops, "bf16", GPUOS_BF16, false),
    BY_DTYPE(code_tflops, "bf16", GPUOS_BF16, false),
    BY_DTYPE(tensor_tflops, "e4m3", GPUOS_E4M3, false),
    BY_DTYPE(code_tflops, "e4m3", GPUOS_E4M3, false),
    BY_DTYPE(tensor_tflops, "e5m2", GPUOS_E5M2, false),
    BY_DTYPE(code_tflops, "e5m2", GPUOS_E5M2, false),
};
enum { FIGURES = sizeof figures / sizeof *figures };

static bool number(gos_diags_t *diags, const gos_yaml_t *node, double *out) {
  if (node && gos_yaml_float(node, out) && *out >= 0) return true;
  if (node) gos_error(diags, node->at, "target", "a number that is not negative is needed");
  return false;
}

static bool read_list(gos_diags_t *diags, const gos_yaml_t *list, double *out, size_t *out_count) {
  *out_count = 0;
  for (const gos_yaml_t *n = list ? list->first : NULL; n; n = n->next) {
    if (*out_count == GOS_MAX_CURVE) return false;
    if (!number(diags, n, &out[(*out_count)++])) return false;
  }
  return *out_count > 0;
}

static void read_curve(gos_diags_t *diags, const gos_yaml_t *node, gos_curve_t *out) {
  size_t y_count = 0;
  bool ok = read_list(diags, gos_yaml_get(node, "x"), out->x, &out->count) &&
            read_list(diags, gos_yaml_get(node, "y"), out->y, &y_count) && y_count == out->count;
  for (size_t i = 1; ok && i < out->count; i++) ok = out->x[i] > out->x[i - 1];
  if (!ok)
    gos_error(diags, node->at, "target",
              "a curve needs lists x (rising) and y of equal length, at most %d long",
              GOS_MAX_CURVE);
}

static void read_figure(gos_diags_t *diags, const gos_yaml_t *node, const figure_t *figure,
                        gos_target_t *target) {
  const gos_yaml_t *source = node->kind == GOS_YAML_MAP ? gos_yaml_get(node, "source") : NULL;
  if (!source || source->kind != GOS_YAML_SCALAR) {
    gos_error(diags, node->at, "target", "'%s' needs a value and its source", figure->name);
    return;
  }
  char *field = (char *)target + figure->at;
  double value = 0;
  if (figure->kind == CURVE)
    read_curve(diags, node, (gos_curve_t *)(void *)field);
  else if (!gos_yaml_get(node, "value"))
    gos_error(diags, node->at, "target", "'%s' needs a value", figure->name);
  else if (number(diags, gos_yaml_get(node, "value"), &value)) {
    if (figure->kind == U32) *(uint32_t *)(void *)field = (uint32_t)value;
    if (figure->kind == U64) *(uint64_t *)(void *)field = (uint64_t)value;
    if (figure->kind == REAL) *(double *)(void *)field = value;
  }
}

static const char *text_of(gos_diags_t *diags, const gos_yaml_t *root, const char *key) {
  const gos_yaml_t *node = gos_yaml_get(root, key);
  if (node && node->kind == GOS_YAML_SCALAR) return node->text;
  gos_error(diags, root->at, "target", "'%s' is missing", key);
  return "";
}

// "sm_90a" -> 90
static uint32_t arch_number(const char *name) {
  uint32_t number = 0;
  if (strncmp(name, "sm_", 3)) return 0;
  for (const char *c = name + 3; *c >= '0' && *c <= '9' && number < 1000; c++)
    number = number * 10 + (uint32_t)(*c - '0');
  return number;
}

static void read_figures(gos_diags_t *diags, const gos_yaml_t *root, gos_target_t *target) {
  const gos_yaml_t *list = gos_yaml_get(root, "figures");
  const char *names[FIGURES];
  for (size_t i = 0; i < FIGURES; i++) names[i] = figures[i].name;
  for (const gos_yaml_t *n = list ? list->first : NULL; n; n = n->next) {
    size_t i = 0;
    while (i < FIGURES && (!n->key || strcmp(n->key, names[i]))) i++;
    if (i < FIGURES)
      read_figure(diags, n, &figures[i], target);
    else {
      gos_error(diags, n->key_at, "target", "unknown figure '%s'", n->key ? n->key : "");
      const char *near = n->key ? gos_near_miss(n->key, names, FIGURES) : NULL;
      if (near) gos_note(diags, (gos_loc_t){0}, "did you mean '%s'?", near);
    }
  }
  for (size_t i = 0; i < FIGURES; i++)
    if (figures[i].required && !(list && gos_yaml_get(list, names[i])))
      gos_error(diags, root->at, "target", "figure '%s' is missing", names[i]);
}

const gos_target_t *gos_target_read(gos_arena_t *arena, gos_diags_t *diags, uint16_t file) {
  size_t before = gos_diags_error_count(diags);
  gos_yaml_t *root = gos_yaml_parse(arena, diags, file);
  if (!root) return NULL;
  gos_target_t *target = gos_alloc(arena, sizeof *target);
  int64_t version = 0;
  const gos_yaml_t *schema = gos_yaml_get(root, "gpuos_target");
  if (!schema || !gos_yaml_int(schema, &version) || version != 1)
    gos_error(diags, root->at, "target", "a target description starts with gpuos_target: 1");
  target->name = text_of(diags, root, "name");
  target->arch_name = text_of(diags, root, "arch");
  target->arch = arch_number(target->arch_name);
  read_figures(diags, root, target);
  bool sane = target->arch >= 70 && target->sm_count > 0 && target->sm_count <= GPUOS_MAX_SMS &&
              target->l2_tbps > 0 && target->margin >= 1 && target->clock_mhz > 0 &&
              target->vector_gflops > 0 && target->special_gops > 0 &&
              gos_curve_at(&target->read_tbps, 1e9) > 0;
  if (gos_diags_error_count(diags) == before && !sane)
    gos_error(diags, root->at, "target",
              "arch, sm_count (1..%d), rates and margin (at least 1) must be positive",
              GPUOS_MAX_SMS);
  return gos_diags_error_count(diags) == before ? target : NULL;
}

const gos_target_t *gos_target_find(gos_arena_t *arena, gos_diags_t *diags, gos_loc_t at,
                                    const char *name) {
  const char *file = gos_format(arena, "%s.yaml", name);
  gos_text_t known = {.arena = arena};
  for (const gos_embedded_t *e = gos_target_files; e->name; e++) {
    if (!strcmp(e->name, file)) {
      const char *shown = gos_format(arena, "<target>/%s", e->name);
      return gos_target_read(arena, diags,
                             gos_diags_add_file(diags, shown, e->text, strlen(e->text)));
    }
    gos_text_add(&known, "%s%.*s", known.count ? ", " : "", (int)(strlen(e->name) - 5), e->name);
  }
  gos_error(diags, at, "target-unknown", "no target '%s'; there are %s", name,
            known.at ? known.at : "none");
  gos_note(diags, (gos_loc_t){0}, "a description of your own is given with --target-file=FILE");
  return NULL;
}
