// cpu_attention.c: ATTENTION and ATTENTION_COMBINE.
//
// One query row and one KV head at a time: its keys are taken in blocks, in order, with a running
// maximum (Milakov and Gimelshein 2018); the queries of the group share every key that is read.
#include "cpu_cache.h"

#include <math.h>

enum { KEYS = 32 }; // of one block

typedef struct attention {
  gos_unit_t *unit;
  gos_view_t q, k, v, out, partial;
  gos_cache_t cache;
  float scale;
  uint32_t head_dim, group, split_len, shares;
  bool causal;
  float *queries; // [group][head_dim]
  float *vectors; // [KEYS][head_dim]
  float *scores;  // [group][KEYS]
  float *results; // [group][head_dim + 2]: weighted sums, running maximum, sum of exponentials
  float *angles;  // [head_dim]
} attention_t;

size_t gos_attention_scratch_floats(const gpuos_op_t *op) {
  size_t head_dim = op->params[2], group = op->params[3];
  return group * head_dim + KEYS * head_dim + group * KEYS + 2 * group * (head_dim + 2) + head_dim;
}

static attention_t make_attention(gos_unit_t *unit) {
  const uint32_t *params = unit->op->params;
  attention_t a = {.unit = unit, .scale = gos_param_f32(unit->op, 0), .head_dim = params[2]};
  a.group = params[3], a.split_len = params[4], a.shares = params[7], a.causal = params[5] != 0;
  a.q = gos_view(unit, GPUOS_AS_X);
  a.k = gos_view(unit, GPUOS_AS_K);
  a.v = gos_view(unit, GPUOS_AS_V);
  a.out = gos_view(unit, GPUOS_AS_OUT);
  a.partial = gos_view(unit, GPUOS_AS_PARTIAL);
  a.cache = gos_cache_make(unit, params[1], params[2], params[6]);
  a.queries = unit->scratch;
  a.vectors = a.queries + (size_t)a.group * a.head_dim;
  a.scores = a.vectors + (size_t)KEYS * a.head_dim;
  a.results = a.scores + (size_t)a.group * KEYS;
  a.angles = a.results + (size_t)a.group * (a.head_dim + 2);
  return a;
}

static float *result_of(const attention_t *a, uint32_t g) {
  return a->results + (size_t)g * (a->head_dim + 2);
}

// The keys that one query sees.
typedef struct range {
  uint32_t batch;
  gos_cache_slot_t slot; // sequence and head; position runs
  uint32_t from, to;     // in memory
  bool own;              // and the row's own, which is not there yet
  uint32_t row;
  const float *rotation;
} range_t;

// `count` keys (which 0) or values (1) from position `first` on, as floats.
static bool load_vectors(const attention_t *a, const range_t *r, uint32_t which, uint32_t first,
                         uint32_t count) {
  const gos_view_t *view = which == 0 ? &a->k : &a->v;
  for (uint32_t i = 0; i < count; i++) {
    float *out = a->vectors + (size_t)i * a->head_dim;
    if (a->cache.store.x != NULL) {
      gos_cache_slot_t slot = r->slot;
      uint8_t *vector = NULL;
      slot.position = first + i;
      if (!gos_cache_find(a->unit, &a->cache, &slot, which, &vector)) return false;
      gos_load_f32(a->cache.store.dtype, vector, a->cache.store.x->stride[3], a->head_dim, out);
    } else {
      uint64_t element = r->batch * view->step[0] + (uint64_t)(first + i) * view->x->stride[1] +
                         r->slot.head * view->step[2];
      gos_load_f32(view->dtype, gos_element(view, element), view->x->stride[3], a->head_dim, out);
    }
  }
  return true;
}

static void score(const attention_t *a, uint32_t count) {
  for (uint32_t g = 0; g < a->group; g++)
    for (uint32_t i = 0; i < count; i++)
      a->scores[g * KEYS + i] =
          a->scale * gos_dot(a->queries + (size_t)g * a->head_dim,
                             a->vectors + (size_t)i * a->head_dim, a->head_dim);
}

static void scale_by(float *x, float factor, uint32_t count) {
  for (uint32_t d = 0; d < count; d++) x[d] *= factor;
}

// Turns the scores of one query into weights against the new maximum.
static void weigh(const attention_t *a, uint32_t g, uint32_t count) {
  float *scores = a->scores + (size_t)g * KEYS, *result = result_of(a, g);
  float *largest = result + a->head_dim, *total = largest + 1, old = *largest;
  for (uint32_t i = 0; i < count; i++) *largest = scores[i] > *largest ? scores[i] : *largest;
  float factor = old == *largest ? 1.0f : expf(old - *largest);
  scale_by(result, factor, a->head_dim);
  *total *= factor;
  for (uint32_t i = 0; i < count; i++) {
    scores[i] = expf(scores[i] - *largest);
    *total += scores[i];
  }
}

static GOS_WIDE void add_weighted(float *sums, const float *vector, float weight, uint32_t count) {
  for (uint32_t d = 0; d < count; d++) sums[d] += weight * vector[d];
}

static void add_values(const attention_t *a, uint32_t count) {
  for (uint32_t g = 0; g < a->group; g++) {
    weigh(a, g, count);
    for (uint32_t i = 0; i < count; i++)
      add_weighted(result_of(a, g), a->vectors + (size_t)i * a->head_dim, a->scores[g * KEYS + i],
                   a->head_dim);
  }
}

// As the cache will hold it.
static void load_own(const attention_t *a, const range_t *r, const gos_view_t *from,
                     const float *rotation) {
  gos_cache_load_own(&a->cache, from, r->row, r->slot.head, rotation, a->vectors);
  gos_round_f32(a->cache.store.dtype, a->head_dim, a->vectors);
}

static bool attend(const attention_t *a, const range_t *r) {
  for (uint32_t first = r->from, count; first < r->to; first += count) {
    count = r->to - first < KEYS ? r->to - first : KEYS;
    if (!load_vectors(a, r, 0, first, count)) return false;
    score(a, count);
    if (!load_vectors(a, r, 1, first, count)) return false;
    add_values(a, count);
  }
  if (!r->own) return true;
  load_own(a, r, &a->k, r->rotation);
  score(a, 1);
  load_own(a, r, &a->v, NULL);
  add_values(a, 1);
  return true;
}

static void load_queries(const attention_t *a, const range_t *r, const uint32_t at[GPUOS_DIMS]) {
  gos_load_f32(a->q.dtype, gos_at(&a->q, at), a->q.x->stride[3], a->group * a->head_dim,
               a->queries);
  for (uint32_t g = 0; g < a->group && r->rotation != NULL; g++) {
    float *query = a->queries + (size_t)g * a->head_dim;
    gos_rotate(query, a->head_dim, a->cache.neighbours, r->rotation);
  }
  for (uint32_t g = 0; g < a->group; g++) {
    float *result = result_of(a, g);
    memset(result, 0, (a->head_dim + 2) * sizeof *result);
    result[a->head_dim] = -INFINITY;
  }
}

// A query that saw no key gives zeros.
static void store_out(const gos_view_t *out, const uint32_t at[GPUOS_DIMS], float *results,
                      uint32_t group, uint32_t head_dim) {
  for (uint32_t g = 0; g < group; g++) {
    float *result = results + (size_t)g * (head_dim + 2), total = result[head_dim + 1];
    for (uint32_t d = 0; d < head_dim && total != 0; d++) result[d] /= total;
    uint8_t *target = gos_at(out, at) + (uint64_t)g * head_dim * out->x->stride[3] * out->bytes;
    gos_store_f32(out->dtype, target, out->x->stride[3], head_dim, result);
  }
}

static void store_results(const attention_t *a, const uint32_t at[GPUOS_DIMS]) {
  if (a->partial.x == NULL) {
    store_out(&a->out, at, a->results, a->group, a->head_dim);
    return;
  }
  gos_store_f32(a->partial.dtype, gos_at(&a->partial, at), a->partial.x->stride[3],
                a->group * (a->head_dim + 2), a->results);
}

// Keys of a row in K and V: all, or those up to its own, counted from the end.
static void dense_range(const attention_t *a, uint32_t row, range_t *out) {
  uint32_t keys = a->k.x->extent[1], rows = a->unit->op->extent[1];
  uint64_t seen = (uint64_t)row + 1 + keys; // less rows: keys seen
  out->from = 0;
  out->to = !a->causal ? keys : seen > rows ? (uint32_t)(seen - rows) : 0;
  if (out->to > keys) out->to = keys;
}

static bool cached_range(const attention_t *a, uint32_t row, uint32_t split, range_t *out) {
  bool absent;
  if (!gos_cache_row(a->unit, &a->cache, row, &out->slot, &absent)) return false;
  out->from = out->to = 0;
  if (absent) return true;
  uint64_t keys = (uint64_t)out->slot.position + 1;
  uint32_t length = gpuos_split_keys((uint32_t)keys, a->shares, a->split_len);
  uint64_t from = (uint64_t)split * length, end = from + length;
  if (from >= keys) return true;
  out->from = (uint32_t)from;
  out->to = (uint32_t)(end < keys ? end : keys);
  out->own = a->k.x != NULL && end >= keys;
  if (out->own) out->to--;
  return true;
}

bool gos_unit_attention(gos_unit_t *unit) {
  attention_t a = make_attention(unit);
  uint32_t at[GPUOS_DIMS];
  if (unit->box.n[GPUOS_SLICED_DIM] == 0) return true;
  memcpy(at, unit->box.lo, sizeof at);
  do {
    range_t r = {.batch = at[0], .row = at[1]};
    if (a.cache.store.x == NULL)
      dense_range(&a, at[1], &r);
    else if (!cached_range(&a, at[1], at[3], &r))
      return false;
    r.slot.head = at[2];
    if (a.cache.store.x != NULL) r.rotation = gos_cache_rotation(&a.cache, at[1], a.angles);
    load_queries(&a, &r, at);
    if (!attend(&a, &r)) return false;
    store_results(&a, at);
  } while (gos_box_next(&unit->box, GPUOS_DIMS, at));
  return true;
}

// ---- ATTENTION_COMBINE --------------------------------------------------------------------------

// Adds one split's result to a sum of results, both brought to the larger maximum.
static void merge(float *sum, const float *part, uint32_t head_dim) {
  float a = sum[head_dim], b = part[head_dim], largest = a > b ? a : b;
  if (b == -INFINITY) return; // the split saw no key
  float scale_a = a == largest ? 1.0f : expf(a - largest), scale_b = expf(b - largest);
  for (uint32_t d = 0; d < head_dim; d++) sum[d] = sum[d] * scale_a + part[d] * scale_b;
  sum[head_dim] = largest;
  sum[head_dim + 1] = sum[head_dim + 1] * scale_a + part[head_dim + 1] * scale_b;
}

static uint32_t used_splits(const gpuos_op_t *op, const gos_view_t *pos, uint32_t row,
                            uint32_t splits) {
  if (pos->x == NULL) return splits;
  int32_t position = gos_index(pos, (uint64_t)row * pos->x->stride[3]);
  return gpuos_used_splits(position, splits, op->params[7], op->params[4]);
}

bool gos_unit_attention_combine(gos_unit_t *unit) {
  gos_view_t partial = gos_view(unit, GPUOS_AS_PARTIAL), out = gos_view(unit, GPUOS_AS_OUT);
  uint32_t head_dim = unit->op->params[2], group = unit->op->params[3];
  gos_view_t pos = gos_view(unit, GPUOS_AS_POS);
  uint32_t pitch = head_dim + 2, at[GPUOS_DIMS];
  float *sums = unit->scratch, *part = sums + (size_t)group * pitch;
  memcpy(at, unit->box.lo, sizeof at);
  do {
    uint32_t splits = used_splits(unit->op, &pos, at[1], partial.x->extent[2]);
    for (uint32_t s = 0; s < splits; s++) {
      float *into = s == 0 ? sums : part;
      uint64_t skip = (uint64_t)s * partial.x->stride[2] * partial.bytes;
      gos_load_f32(partial.dtype, gos_at(&partial, at) + skip, partial.x->stride[3], group * pitch,
                   into);
      for (uint32_t g = 0; s > 0 && g < group; g++)
        merge(sums + (size_t)g * pitch, part + (size_t)g * pitch, head_dim);
    }
    store_out(&out, at, sums, group, head_dim);
  } while (gos_box_next(&unit->box, GPUOS_DIMS, at));
  return true;
}
