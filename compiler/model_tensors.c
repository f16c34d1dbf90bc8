// model_tensors.c: tensors:, declarations of what comes from outside and what leaves.
#include "model.h"

#include <string.h>

enum { PAGE_SIZE = 64 };                // positions of a page, when the model does not say
#define MAX_ELEMENTS ((int64_t)1 << 40) // offsets and byte counts stay far from 64 bits

static bool check_shape(gos_model_t *m, gos_loc_t at, const gos_shape_t *shape) {
  int64_t elements = 1;
  for (int d = 0; d < shape->rank; d++) {
    if (shape->dim[d] < 1 || shape->dim[d] > INT32_MAX) {
      gos_model_error(m, at, "shape", "dimension %d is %lld: it must be 1 to 2147483647", d,
                      (long long)shape->dim[d]);
      return false;
    }
    elements =
        shape->dim[d] > MAX_ELEMENTS / elements ? MAX_ELEMENTS + 1 : elements * shape->dim[d];
    if (elements > MAX_ELEMENTS) {
      gos_model_error(m, at, "shape", "the tensor has more than 2^40 elements");
      return false;
    }
  }
  return true;
}

// Declares one tensor. Without a shape, after an error in it, only its name: no further complaints.
static void declare(gos_model_t *m, gos_loc_t at, const char *text, gpuos_role_t role,
                    const gos_shape_t *shape) {
  gos_name_t *name = gos_model_find(m, text);
  if (name) {
    if (gos_model_error(m, at, "tensor-duplicate", "tensor '%s' is declared twice", text))
      gos_note(m->ir->diags, name->declared_at, "first declared here");
    return;
  }
  name = gos_model_name(m, text);
  name->declared_at = at;
  name->made_at = at;
  name->role = role;
  name->made = role != GPUOS_OUTPUT;
  name->used = !shape;
  if (!shape) return;
  name->decl = m->decls.count;
  *gos_push(m->ir->arena, &m->decls) =
      (gos_tensor_decl_t){.name = text, .role = role, .at = at, .shape = *shape};
}

static void declare_bad(gos_model_t *m, const gos_yaml_t *node) {
  const char *name = gos_model_expand(m, node->key_at, node->key);
  if (name) declare(m, node->key_at, name, GPUOS_WORKSPACE, NULL);
}

static bool too_many(gos_model_t *m, gos_loc_t at) {
  if (m->decls.count < GOS_MAX_TENSORS) return false;
  if (!m->stopped) gos_model_error(m, at, "repeat", "more than %d tensors", GOS_MAX_TENSORS);
  return m->stopped = true;
}

static bool read_role(gos_model_t *m, const gos_yaml_t *node, gpuos_role_t *out_role) {
  static const gpuos_role_t roles[] = {GPUOS_INPUT, GPUOS_WEIGHT, GPUOS_STATE, GPUOS_OUTPUT};
  int index = 0;
  bool good = node && gos_model_choice(m, node, "input|weight|state|output", &index);
  *out_role = good ? roles[index] : GPUOS_WORKSPACE;
  return good;
}

// ---- plain tensors ------------------------------------------------------------------------------

static bool read_shape(gos_model_t *m, const gos_yaml_t *node, gos_shape_t *shape) {
  if (!node || !gos_model_is(m, node, GOS_YAML_LIST)) return false;
  if (node->count > GPUOS_RANK) {
    gos_model_error(m, node->at, "shape", "%zu dimensions: at most %d are allowed", node->count,
                    GPUOS_RANK);
    return false;
  }
  bool good = true;
  shape->rank = 0;
  for (const gos_yaml_t *dim = node->first; dim; dim = dim->next)
    good &= gos_model_int(m, dim, &shape->dim[shape->rank++]);
  return good && check_shape(m, node->at, shape);
}

// How many tensors the declaration makes, -1 after an error.
static int64_t read_repeat(gos_model_t *m, const gos_yaml_t *node, const gos_yaml_t *repeat) {
  int64_t count = 1;
  if (!repeat) return 1;
  if (!gos_model_int(m, repeat, &count)) return -1;
  if (count < 0 || count > GOS_MAX_REPEAT) {
    gos_model_error(m, repeat->at, "repeat", "%lld times: 0 to %d are allowed", (long long)count,
                    GOS_MAX_REPEAT);
    return -1;
  }
  if (strstr(node->key, "{i}")) return count;
  gos_model_error(m, node->key_at, "repeat", "the name '%s' needs a \"{i}\" for its repeat",
                  node->key);
  return -1;
}

static void declare_repeated(gos_model_t *m, const gos_yaml_t *node, int64_t count,
                             gpuos_role_t role, const gos_shape_t *shape) {
  for (int64_t i = 0; i < count && !too_many(m, node->key_at); i++) {
    *gos_push(m->ir->arena, &m->dims) = (gos_dim_t){"i", i};
    const char *name = gos_model_expand(m, node->key_at, node->key);
    m->dims.count--;
    if (!name) return;
    declare(m, node->key_at, name, role, shape);
  }
}

static void read_plain(gos_model_t *m, const gos_yaml_t *node) {
  gos_model_keys(m, node, "a tensor", "shape|dtype|role|repeat");
  const gos_yaml_t *dims = gos_model_need(m, node, "a tensor", "shape");
  const gos_yaml_t *dtype = gos_model_need(m, node, "a tensor", "dtype");
  const gos_yaml_t *role_node = gos_model_need(m, node, "a tensor", "role");
  const gos_yaml_t *repeat = gos_yaml_get(node, "repeat");
  gos_shape_t shape = {0};
  gpuos_role_t role;
  bool good = read_shape(m, dims, &shape);
  good &= dtype && gos_model_dtype(m, dtype, &shape.dtype);
  good &= read_role(m, role_node, &role);
  int64_t count = read_repeat(m, node, repeat);
  const char *name = repeat ? NULL : gos_model_expand(m, node->key_at, node->key);
  if (repeat)
    declare_repeated(m, node, count, role, good ? &shape : NULL);
  else if (name && !too_many(m, node->key_at))
    declare(m, node->key_at, name, role, good ? &shape : NULL);
}

// ---- paged caches -------------------------------------------------------------------------------

typedef struct cache {
  int64_t layers, kv_heads, head_dim, context, sequences, page_size, pages;
} cache_t;

static bool read_size(gos_model_t *m, const gos_yaml_t *map, const char *key, int64_t fallback,
                      int64_t *out_value) {
  const gos_yaml_t *node =
      fallback ? gos_yaml_get(map, key) : gos_model_need(m, map, "a paged_kv cache", key);
  *out_value = fallback;
  if (!node) return fallback != 0;
  if (!gos_model_int(m, node, out_value)) return false;
  if (*out_value >= 1 && *out_value <= INT32_MAX) return true;
  gos_model_error(m, node->at, "shape", "'%s' is %lld: it must be 1 to 2147483647", key,
                  (long long)*out_value);
  return false;
}

static bool read_sizes(gos_model_t *m, const gos_yaml_t *node, cache_t *cache) {
  bool good = read_size(m, node, "layers", 0, &cache->layers);
  good &= read_size(m, node, "kv_heads", 0, &cache->kv_heads);
  good &= read_size(m, node, "head_dim", 0, &cache->head_dim);
  good &= read_size(m, node, "context", 0, &cache->context);
  good &= read_size(m, node, "sequences", 1, &cache->sequences);
  good &= read_size(m, node, "page_size", PAGE_SIZE, &cache->page_size);
  if (!good) return false;
  if (cache->context % cache->page_size) {
    gos_model_error(m, gos_yaml_get(node, "context")->at, "shape",
                    "context %lld is no multiple of page_size %lld", (long long)cache->context,
                    (long long)cache->page_size);
    return false;
  }
  int64_t all = cache->sequences * (cache->context / cache->page_size); // each below 2^31
  return read_size(m, node, "pages", all, &cache->pages);
}

// The tensor and its page table.
static bool read_cache_shapes(gos_model_t *m, const gos_yaml_t *node, gos_shape_t *cache,
                              gos_shape_t *pages) {
  cache_t c;
  *cache = (gos_shape_t){.rank = 6, .dtype = cache->dtype};
  if (!read_sizes(m, node, &c)) return false;
  const int64_t dims[] = {c.layers, 2, c.kv_heads, c.pages, c.page_size, c.head_dim};
  memcpy(cache->dim, dims, sizeof dims);
  *pages = (gos_shape_t){2, {c.sequences, c.context / c.page_size}, GPUOS_I32};
  return check_shape(m, node->key_at, cache) && check_shape(m, node->key_at, pages);
}

static void declare_cache(gos_model_t *m, const gos_yaml_t *node, const gos_shape_t *cache,
                          const gos_shape_t *pages) {
  const char *name = gos_model_expand(m, node->key_at, node->key);
  if (!name || too_many(m, node->key_at)) return;
  if (strlen(name) > GOS_MAX_NAME - sizeof ".pages") {
    gos_model_error(m, node->key_at, "tensor-name", "the name of a cache is too long");
    return;
  }
  const char *pages_name = gos_format(m->ir->arena, "%s.pages", name);
  declare(m, node->key_at, name, GPUOS_STATE, cache);
  declare(m, node->key_at, pages_name, GPUOS_INPUT, pages);
  gos_model_find(m, name)->paged = true;
  gos_model_find(m, pages_name)->used = true; // attention does, when it names the cache
}

static void read_cache(gos_model_t *m, const gos_yaml_t *node) {
  gos_model_keys(m, node, "a paged_kv cache",
                 "kind|layers|kv_heads|head_dim|context|sequences|page_size|pages|dtype|role");
  const gos_yaml_t *dtype = gos_model_need(m, node, "a paged_kv cache", "dtype");
  const gos_yaml_t *role = gos_model_need(m, node, "a paged_kv cache", "role");
  gos_shape_t cache = {0}, pages = {0};
  int index;
  bool good = dtype && gos_model_dtype(m, dtype, &cache.dtype);
  good &= role && gos_model_choice(m, role, "state", &index);
  good &= read_cache_shapes(m, node, &cache, &pages);
  declare_cache(m, node, good ? &cache : NULL, good ? &pages : NULL);
}

void gos_model_tensors(gos_model_t *m, const gos_yaml_t *tensors) {
  if (!gos_model_is(m, tensors, GOS_YAML_MAP)) return;
  for (const gos_yaml_t *node = tensors->first; node && !m->stopped; node = node->next) {
    const gos_yaml_t *kind = gos_yaml_get(node, "kind");
    int index;
    bool good = gos_model_is(m, node, GOS_YAML_MAP);
    if (!good || (kind && !gos_model_choice(m, kind, "paged_kv", &index)))
      declare_bad(m, node);
    else if (kind)
      read_cache(m, node);
    else
      read_plain(m, node);
  }
}
