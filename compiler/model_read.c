// model_read.c: values of the YAML tree, checked, with an error that says what was expected.
#include "model.h"

#include <string.h>

enum { MAX_SUGGESTING = 100, MAX_CHOICES = 32 };

bool gos_model_error(gos_model_t *m, gos_loc_t at, const char *slug, const char *format, ...) {
  char text[1024]; // longer ones are cut when printed anyway
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  m->op_bad = true;
  return gos_error(m->ir->diags, at, slug, "%s", text);
}

// Only the errors that will be printed are worth the search.
const char *gos_model_suggest(gos_model_t *m, const char *word, const char *const *names,
                              size_t count) {
  if (gos_diags_error_count(m->ir->diags) > MAX_SUGGESTING) return NULL;
  const char *near = gos_near_miss(word, names, count);
  if (near) gos_note(m->ir->diags, (gos_loc_t){0}, "did you mean '%s'?", near);
  return near;
}

gos_loc_t gos_model_key_place(const gos_yaml_t *node) {
  return node->key ? node->key_at : node->at;
}

static const char *named(gos_model_t *m, const gos_yaml_t *node) {
  return node->key ? gos_format(m->ir->scratch, "'%s'", node->key) : "this";
}

bool gos_model_is(gos_model_t *m, const gos_yaml_t *node, gos_yaml_kind_t kind) {
  static const char *const kinds[] = {"a single value", "a list", "a mapping"};
  if (node->kind == kind) return true;
  gos_model_error(m, node->at, "type", "%s must be %s, not %s", named(m, node), kinds[kind],
                  kinds[node->kind]);
  return false;
}

const char *gos_model_text(gos_model_t *m, const gos_yaml_t *node) {
  if (!gos_model_is(m, node, GOS_YAML_SCALAR)) return NULL;
  if (*node->text) return node->text;
  gos_model_error(m, gos_model_key_place(node), "type", "%s is empty", named(m, node));
  return NULL;
}

bool gos_model_int(gos_model_t *m, const gos_yaml_t *node, int64_t *out_value) {
  *out_value = 0;
  const char *text = gos_model_text(m, node);
  if (!text) return false;
  bool good = gos_dim_eval(m->ir, &m->dims, node->at, text, out_value);
  if (!good) m->op_bad = true;
  return good;
}

// ---- one of several words -----------------------------------------------------------------------

static size_t split(gos_model_t *m, const char *words, const char **out_words) {
  size_t count = 0;
  while (*words && count < MAX_CHOICES) {
    size_t length = strcspn(words, "|");
    out_words[count++] = gos_strndup(m->ir->scratch, words, length);
    words += length + (words[length] == '|');
  }
  return count;
}

static const char *listed(gos_model_t *m, const char *const *words, size_t count) {
  gos_text_t text = {.arena = m->ir->scratch};
  for (size_t i = 0; i < count; i++) gos_text_add(&text, "%s%s", i ? ", " : "", words[i]);
  return text.at;
}

bool gos_model_choice(gos_model_t *m, const gos_yaml_t *node, const char *choices, int *out_index) {
  const char *words[MAX_CHOICES], *text = gos_model_text(m, node);
  *out_index = 0;
  if (!text) return false;
  size_t count = split(m, choices, words);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(words[i], text)) continue;
    *out_index = (int)i;
    return true;
  }
  if (gos_model_error(m, node->at, "type", "'%s' is none of %s", text, listed(m, words, count)))
    gos_model_suggest(m, text, words, count);
  return false;
}

bool gos_model_dtype(gos_model_t *m, const gos_yaml_t *node, gpuos_dtype_t *out_dtype) {
  gos_text_t all = {.arena = m->ir->scratch};
  for (int i = 0; i < GPUOS_DTYPE_COUNT; i++)
    gos_text_add(&all, "%s%s", i ? "|" : "", gos_dtype_name((gpuos_dtype_t)i));
  int index;
  bool good = gos_model_choice(m, node, all.at, &index);
  *out_dtype = (gpuos_dtype_t)index;
  return good;
}

// ---- keys ---------------------------------------------------------------------------------------

void gos_model_keys(gos_model_t *m, const gos_yaml_t *map, const char *what, const char *keys) {
  const char *words[MAX_CHOICES];
  size_t count = split(m, keys, words);
  for (const gos_yaml_t *node = map->first; node; node = node->next) {
    size_t i = 0;
    while (i < count && strcmp(words[i], node->key)) i++;
    if (i < count) continue;
    if (!gos_model_error(m, node->key_at, "key-unknown", "%s has no key '%s'", what, node->key))
      continue;
    if (!gos_model_suggest(m, node->key, words, count))
      gos_note(m->ir->diags, (gos_loc_t){0}, "its keys are %s", listed(m, words, count));
  }
}

gos_yaml_t *gos_model_need(gos_model_t *m, const gos_yaml_t *map, const char *what,
                           const char *key) {
  gos_yaml_t *node = gos_yaml_get(map, key);
  if (!node)
    gos_model_error(m, gos_model_key_place(map), "key-missing", "%s needs '%s'", what, key);
  return node;
}

// ---- names --------------------------------------------------------------------------------------

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool gos_model_is_name(const char *text) {
  if (!is_letter(*text)) return false;
  for (; *text; text++)
    if (!is_letter(*text) && !(*text >= '0' && *text <= '9')) return false;
  return true;
}

// Only the indices of repeats may be used in names, a width or a batch would be a mistake.
static const gos_dim_t *find_index(const gos_model_t *m, const char *text, size_t length) {
  for (size_t i = m->dims.count; i-- > m->dim_count;) {
    const char *name = m->dims.at[i].name;
    if (!strncmp(name, text, length) && !name[length]) return &m->dims.at[i];
  }
  return NULL;
}

static bool check_name(gos_model_t *m, gos_loc_t at, const char *text) {
  size_t length = strlen(text);
  if (length == 0 || length > GOS_MAX_NAME) {
    gos_model_error(m, at, "tensor-name", "a tensor's name has 1 to %d bytes", GOS_MAX_NAME);
    return false;
  }
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c > ' ' && c != 0x7f && !strchr("[]{}(),\"'", c)) continue;
    gos_model_error(m, at, "tensor-name", "'%s' is no name for a tensor", text);
    gos_note(m->ir->diags, (gos_loc_t){0}, "spaces, quotes, commas and brackets are not allowed");
    return false;
  }
  return true;
}

static const char *expand(gos_model_t *m, gos_loc_t at, const char *text) {
  gos_text_t name = {.arena = m->ir->arena};
  for (const char *p = text; *p;) {
    size_t plain = strcspn(p, "{");
    gos_text_add_bytes(&name, p, plain);
    p += plain;
    if (!*p) break;
    size_t length = strcspn(++p, "}");
    const gos_dim_t *index = find_index(m, p, length);
    if (!index || !p[length]) {
      gos_loc_t brace = gos_diags_inside(m->ir->diags, at, text, (size_t)(p - 1 - text));
      gos_model_error(m, brace, "repeat", "'{%.*s}' is no index of a repeat around this",
                      (int)(length < 64 ? length : 64), p);
      return NULL;
    }
    gos_text_add(&name, "%lld", (long long)index->value);
    p += length + 1;
  }
  const char *made = name.at ? name.at : "";
  return check_name(m, at, made) ? made : NULL;
}

const char *gos_model_expand(gos_model_t *m, gos_loc_t at, const char *text) {
  const char *name = expand(m, at, text);
  if (!name) m->skipped = true;
  return name;
}
