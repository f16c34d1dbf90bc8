// check_kind.c: what each kind of operator must look like.
//
// Devices index a view with the coordinates their kind prescribes and never look back: whatever
// they rely on so as to stay inside a view is proven here. One table says which operands a kind has
// and what each dimension of each view must be; a few functions say what a table cannot.
#include "check_parts.h"
#include "names.h"

#include <math.h>
#include <string.h>

// ---- the rules ----------------------------------------------------------------------------------

// What a dimension of a view must be. Sizes are whole dimensions (they follow GPUOS_ALL); those
// that no parameter fixes are whatever the first operand says, and the same for the others.
typedef enum dim {
  FOLLOW_0, // this iteration dimension, in full
  FOLLOW_1,
  FOLLOW_2,
  FOLLOW_3,
  SPREAD_0, // the same, or one element for all
  SPREAD_1,
  SPREAD_2,
  SPREAD_3,
  ONE, // a dimension the tensor lacks
  K,   // iteration dimension 3; with a NORM operand also as a whole
  TWO,
  HEAD,    // head_dim
  GROUP,   // group * head_dim
  PARTIAL, // group * (head_dim + 2)
  PAGE,    // page_size * head_dim
  ROW,     // length of a normalised row
  IDS,     // rows of an embedding table
  KEYS,    // rows of K and V
  SEQUENCES,
  PAGES, // of one sequence
  POOL,  // pages of a cache
  SPLITS,
  DIM_COUNT
} dim_t;

#define FREE UINT64_MAX // a size nobody has fixed yet

typedef enum type { FLOAT, INT, ONLY_F32, ANY } type_t;

typedef struct rule {
  uint8_t kind, as, least, most, writes, type;
  uint8_t dims[GPUOS_DIMS];
} rule_t;

static const rule_t rules[] = {
#define MANY GPUOS_MAX_OPERANDS
#define RULE(kind, as, least, most, writes, type, ...)                                             \
  {                                                                                                \
    GPUOS_##kind, GPUOS_AS_##as, least, most, writes, type, { __VA_ARGS__ }                        \
  }
    RULE(MATMUL, OUT, 1, 1, 1, FLOAT, ONE, FOLLOW_0, FOLLOW_1, FOLLOW_2),
    RULE(MATMUL, X, 1, 1, 0, FLOAT, ONE, SPREAD_0, FOLLOW_1, K),
    RULE(MATMUL, W0, 1, 1, 0, FLOAT, ONE, SPREAD_0, FOLLOW_2, FOLLOW_3),
    RULE(MATMUL, W1, 0, 1, 0, FLOAT, ONE, SPREAD_0, FOLLOW_2, FOLLOW_3),
    RULE(MATMUL, NORM, 0, 1, 0, FLOAT, ONE, ONE, ONE, K),
    RULE(MATMUL, EXTRA, 0, MANY, 0, ANY, ONE, SPREAD_0, SPREAD_1, SPREAD_2),

    RULE(MAP, OUT, 1, 1, 1, ANY, FOLLOW_0, FOLLOW_1, FOLLOW_2, FOLLOW_3),
    RULE(MAP, EXTRA, 0, MANY, 0, ANY, SPREAD_0, SPREAD_1, SPREAD_2, SPREAD_3),

    RULE(RMSNORM, OUT, 1, 1, 1, FLOAT, FOLLOW_0, FOLLOW_1, FOLLOW_2, ROW),
    RULE(RMSNORM, X, 1, 1, 0, FLOAT, FOLLOW_0, FOLLOW_1, FOLLOW_2, ROW),
    RULE(RMSNORM, NORM, 1, 1, 0, FLOAT, ONE, ONE, ONE, ROW),

    RULE(SOFTMAX, OUT, 1, 1, 1, FLOAT, FOLLOW_0, FOLLOW_1, FOLLOW_2, ROW),
    RULE(SOFTMAX, X, 1, 1, 0, FLOAT, FOLLOW_0, FOLLOW_1, FOLLOW_2, ROW),

    RULE(EMBEDDING, OUT, 1, 1, 1, FLOAT, ONE, ONE, FOLLOW_2, FOLLOW_3),
    RULE(EMBEDDING, TABLE, 1, 1, 0, FLOAT, ONE, ONE, IDS, FOLLOW_3),
    RULE(EMBEDDING, IDS, 1, 1, 0, INT, ONE, ONE, ONE, FOLLOW_2),

    RULE(ROPE, OUT, 1, 1, 1, FLOAT, ONE, FOLLOW_1, FOLLOW_2, ROW),
    RULE(ROPE, X, 0, 1, 0, FLOAT, ONE, FOLLOW_1, FOLLOW_2, ROW),
    RULE(ROPE, POS, 1, 1, 0, INT, ONE, ONE, ONE, FOLLOW_1),

    RULE(KV_APPEND, CACHE, 1, 1, 1, FLOAT, TWO, FOLLOW_2, POOL, PAGE),
    RULE(KV_APPEND, CACHE_IN, 1, 1, 0, FLOAT, TWO, FOLLOW_2, POOL, PAGE),
    RULE(KV_APPEND, K, 1, 1, 0, FLOAT, ONE, KEYS, FOLLOW_2, HEAD),
    RULE(KV_APPEND, V, 1, 1, 0, FLOAT, ONE, KEYS, FOLLOW_2, HEAD),
    RULE(KV_APPEND, POS, 1, 1, 0, INT, ONE, ONE, ONE, KEYS),
    RULE(KV_APPEND, SEQ, 0, 1, 0, INT, ONE, ONE, ONE, KEYS),
    RULE(KV_APPEND, PAGES, 1, 1, 0, INT, ONE, ONE, SEQUENCES, PAGES),
    RULE(KV_APPEND, ROTATION, 0, 1, 0, ONLY_F32, ONE, ONE, KEYS, HEAD),

    RULE(ATTENTION, OUT, 0, 1, 1, FLOAT, FOLLOW_0, FOLLOW_1, FOLLOW_2, GROUP),
    RULE(ATTENTION, PARTIAL, 0, 1, 1, ONLY_F32, FOLLOW_1, FOLLOW_2, FOLLOW_3, PARTIAL),
    RULE(ATTENTION, X, 1, 1, 0, FLOAT, FOLLOW_0, FOLLOW_1, FOLLOW_2, GROUP),
    RULE(ATTENTION, K, 0, 1, 0, FLOAT, FOLLOW_0, KEYS, FOLLOW_2, HEAD),
    RULE(ATTENTION, V, 0, 1, 0, FLOAT, FOLLOW_0, KEYS, FOLLOW_2, HEAD),
    RULE(ATTENTION, CACHE, 0, 1, 0, FLOAT, TWO, FOLLOW_2, POOL, PAGE),
    RULE(ATTENTION, POS, 0, 1, 0, INT, ONE, ONE, ONE, FOLLOW_1),
    RULE(ATTENTION, SEQ, 0, 1, 0, INT, ONE, ONE, ONE, FOLLOW_1),
    RULE(ATTENTION, PAGES, 0, 1, 0, INT, ONE, ONE, SEQUENCES, PAGES),
    RULE(ATTENTION, ROTATION, 0, 1, 0, ONLY_F32, ONE, ONE, FOLLOW_1, HEAD),

    RULE(ATTENTION_COMBINE, OUT, 1, 1, 1, FLOAT, ONE, FOLLOW_1, FOLLOW_2, GROUP),
    RULE(ATTENTION_COMBINE, PARTIAL, 1, 1, 0, ONLY_F32, FOLLOW_1, FOLLOW_2, SPLITS, PARTIAL),
    RULE(ATTENTION_COMBINE, POS, 0, 1, 0, INT, ONE, ONE, ONE, FOLLOW_1),

    RULE(ARGMAX, OUT, 1, 1, 1, INT, ONE, FOLLOW_0, FOLLOW_1, FOLLOW_2),
    RULE(ARGMAX, X, 1, 1, 0, FLOAT, FOLLOW_0, FOLLOW_1, FOLLOW_2, ROW),
#undef RULE
#undef MANY
};

// Iteration dimensions that a kind does not have: their extent is 1.
static const uint8_t lacking[GPUOS_KIND_COUNT] = {
    [GPUOS_RMSNORM] = 1 << 3,
    [GPUOS_SOFTMAX] = 1 << 3,
    [GPUOS_EMBEDDING] = 1 << 0 | 1 << 1,
    [GPUOS_ROPE] = 1 << 0 | 1 << 3,
    [GPUOS_KV_APPEND] = 1 << 0 | 1 << 1 | 1 << 3,
    [GPUOS_ATTENTION_COMBINE] = 1 << 0 | 1 << 3,
    [GPUOS_ARGMAX] = 1 << 3,
};

// One operator on its way through the proof.
typedef struct subject {
  gos_check_t *check;
  uint32_t number;
  const gpuos_op_t *op;
  const gpuos_operand_t *operands;
  const gpuos_operand_t *one[GPUOS_AS_COUNT]; // the last operand of each sort, or NULL
  uint32_t count[GPUOS_AS_COUNT];
  uint64_t size[DIM_COUNT];
} subject_t;

// Says what is wrong with the whole operator.
static bool reject(const subject_t *s, gos_check_slug_t slug, const char *why) {
  return gos_check_fail(s->check, slug, GPUOS_NONE, "operator %u '%s' (%s): %s", s->number,
                        GOS_OP_NAME(s->check, s->number), gos_kind_name(s->op->kind), why);
}

// Says what is wrong with one of its operands.
static bool refuse(const subject_t *s, gos_check_slug_t slug, const gpuos_operand_t *x,
                   const char *why) {
  return gos_check_fail(
      s->check, slug, GPUOS_NONE, "operator %u '%s' (%s): operand %u, %s in buffer '%s', %s",
      s->number, GOS_OP_NAME(s->check, s->number), gos_kind_name(s->op->kind),
      (unsigned)(x - s->operands), gos_as_name(x->as), GOS_BUFFER_NAME(s->check, x->buffer), why);
}

// ---- views --------------------------------------------------------------------------------------

static bool is_empty(const uint32_t extent[GPUOS_DIMS]) {
  return extent[0] == 0 || extent[1] == 0 || extent[2] == 0 || extent[3] == 0;
}

static bool dim_fits(subject_t *s, const gpuos_operand_t *x, int d, dim_t want) {
  uint32_t extent = x->extent[d], follows = x->follows[d];
  bool single = follows == GPUOS_ALL && extent == 1;
  if (want == ONE) return single;
  if (want == K && s->count[GPUOS_AS_NORM] != 0 && follows == GPUOS_ALL)
    return extent == s->op->extent[3];
  if (want == K) want = FOLLOW_3;
  if (want <= SPREAD_3) {
    uint32_t dim = want % GPUOS_DIMS;
    if (single && (want >= SPREAD_0 || s->op->extent[dim] == 1)) return true;
    return follows == dim && extent == s->op->extent[dim];
  }
  if (s->size[want] == FREE) s->size[want] = extent;
  return follows == GPUOS_ALL && extent == s->size[want];
}

static bool type_fits(const gpuos_operand_t *x, type_t type) {
  if (type == FLOAT) return x->dtype != GPUOS_I32;
  if (type == INT) return x->dtype == GPUOS_I32;
  return type == ANY || x->dtype == GPUOS_F32;
}

static const char *const wrong_dims[GPUOS_DIMS] = {
    "does not fit the kind in dimension 0", "does not fit the kind in dimension 1",
    "does not fit the kind in dimension 2", "does not fit the kind in dimension 3"};

static bool check_rule(subject_t *s, const gpuos_operand_t *x) {
  const rule_t *rule = rules, *end = rules + sizeof(rules) / sizeof(*rules);
  while (rule < end && (rule->kind != s->op->kind || rule->as != x->as)) rule++;
  if (rule == end) return refuse(s, GOS_CHECK_operand, x, "is none of this kind's");
  if (x->writes != rule->writes)
    return refuse(s, GOS_CHECK_operand, x, "is read but should be written, or the reverse");
  if (!type_fits(x, rule->type)) return refuse(s, GOS_CHECK_operand, x, "has another dtype");
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (!dim_fits(s, x, d, rule->dims[d])) return refuse(s, GOS_CHECK_operand, x, wrong_dims[d]);
  return true;
}

// What device code can see by stamps (device/stamp.cuh): all of it that comes so is awaited there.
static bool check_stamped(subject_t *s, const gpuos_operand_t *x) {
  bool seen = false;
  switch (s->op->kind) {
  case GPUOS_MATMUL: seen = x->as == GPUOS_AS_X; break;
  case GPUOS_ATTENTION:
    seen = x->as == GPUOS_AS_X || x->as == GPUOS_AS_K || x->as == GPUOS_AS_V ||
           x->as == GPUOS_AS_ROTATION;
    break;
  case GPUOS_ATTENTION_COMBINE: seen = x->as == GPUOS_AS_PARTIAL; break;
  default: break;
  }
  if (x->stamped && !seen) return refuse(s, GOS_CHECK_operand, x, "cannot be seen by stamps");
  return true;
}

// Devices use aligned loads of whole elements, and the host fills buffers by their dtype.
static bool check_storage(subject_t *s, const gpuos_operand_t *x) {
  const gpuos_buffer_t *b = &s->check->buffers[x->buffer];
  if (b->role != GPUOS_WORKSPACE && b->dtype != x->dtype)
    return refuse(s, GOS_CHECK_operand, x, "has another dtype than its buffer");
  if (x->writes && (b->role == GPUOS_INPUT || b->role == GPUOS_WEIGHT))
    return refuse(s, GOS_CHECK_operand, x, "writes what is only read");
  if (x->offset_bytes % gpuos_dtype_bytes(x->dtype) != 0)
    return refuse(s, GOS_CHECK_operand, x, "starts inside an element");
  return true;
}

// The products fit in 64 bits; the sums do because no term passes GOS_CHECK_MAX_BYTES.
static bool check_bounds(subject_t *s, const gpuos_operand_t *x) {
  const gos_check_t *check = s->check;
  uint64_t bytes = gpuos_joined_bytes(check->buffers, check->table->buffers.count, x->buffer);
  uint64_t last = 0;
  for (int d = 0; d < GPUOS_DIMS; d++) {
    uint64_t reach = (x->extent[d] - (uint64_t)1) * x->stride[d];
    if (reach > bytes) return refuse(s, GOS_CHECK_bounds, x, "reaches past its buffer");
    last += reach;
  }
  if (x->offset_bytes > bytes || (last + 1) * gpuos_dtype_bytes(x->dtype) > bytes - x->offset_bytes)
    return refuse(s, GOS_CHECK_bounds, x, "reaches past its buffer");
  return true;
}

// Two indices of a written view must never name one element: taken from the smallest stride up,
// each stride steps over all that the dimensions before it span.
static bool check_alias(subject_t *s, const gpuos_operand_t *x) {
  uint64_t span = 1;
  bool done[GPUOS_DIMS] = {false};
  for (int round = 0; round < GPUOS_DIMS; round++) {
    int least = -1;
    for (int d = 0; d < GPUOS_DIMS; d++)
      if (!done[d] && (least < 0 || x->stride[d] < x->stride[least])) least = d;
    done[least] = true;
    if (x->extent[least] == 1) continue;
    if (x->stride[least] < span)
      return refuse(s, GOS_CHECK_operand, x, "is written and overlaps itself");
    span = x->stride[least] * (uint64_t)x->extent[least];
  }
  return true;
}

static bool check_operand(subject_t *s, const gpuos_operand_t *x) {
  if (!check_rule(s, x) || !check_stamped(s, x) || !check_storage(s, x)) return false;
  if (is_empty(x->extent))
    return is_empty(s->op->extent) || refuse(s, GOS_CHECK_operand, x, "is empty");
  return check_bounds(s, x) && (!x->writes || check_alias(s, x));
}

bool gos_check_same_view(const gpuos_operand_t *a, const gpuos_operand_t *b) {
  bool same = a->buffer == b->buffer && a->dtype == b->dtype && a->offset_bytes == b->offset_bytes;
  for (int d = 0; d < GPUOS_DIMS; d++)
    same = same && a->extent[d] == b->extent[d] &&
           (a->extent[d] == 1 || (a->stride[d] == b->stride[d] && a->follows[d] == b->follows[d]));
  return same;
}

// ---- parameters ---------------------------------------------------------------------------------

static float as_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

static bool is_positive(uint32_t bits) { return as_float(bits) > 0 && isfinite(as_float(bits)); }

static bool check_eps(const subject_t *s) {
  if (is_positive(s->op->params[0]) || as_float(s->op->params[0]) == 0) return true;
  return reject(s, GOS_CHECK_record, "eps is negative or not finite");
}

static bool check_rope(const subject_t *s) {
  const uint32_t *p = s->op->params;
  bool right = is_positive(p[0]) && p[1] <= 1 && p[2] <= 2;
  if (p[2] >= 1) right = right && is_positive(p[3]);
  if (p[2] == 2)
    right = right && is_positive(p[4]) && is_positive(p[5]) && is_positive(p[6]) &&
            as_float(p[4]) < as_float(p[5]);
  if (!right) return reject(s, GOS_CHECK_record, "theta, pairing or scaling is out of range");
  bool table = s->one[GPUOS_AS_X] == NULL;
  if (table && (s->op->extent[2] != 1 || s->one[GPUOS_AS_OUT]->dtype != GPUOS_F32))
    return reject(s, GOS_CHECK_operand, "without X makes f32 for one head");
  return s->size[ROW] % 2 == 0 || reject(s, GOS_CHECK_operand, "rotates pairs of an odd number");
}

// Pairs are rotated.
static bool check_rotation(const subject_t *s, uint32_t pairing) {
  if (pairing > 1) return reject(s, GOS_CHECK_record, "pairing is out of range");
  if (s->one[GPUOS_AS_ROTATION] == NULL || s->size[HEAD] % 2 == 0) return true;
  return reject(s, GOS_CHECK_operand, "rotates pairs of an odd number");
}

// Without SEQ a row is its own sequence.
static bool check_sequences(const subject_t *s, uint64_t rows) {
  if (s->one[GPUOS_AS_SEQ] != NULL || rows <= s->size[SEQUENCES]) return true;
  return reject(s, GOS_CHECK_operand, "PAGES has fewer sequences than there are rows");
}

static bool check_append(const subject_t *s) {
  if (s->op->params[0] == 0 || s->op->params[1] == 0)
    return reject(s, GOS_CHECK_record, "page_size or head_dim is 0");
  if (!gos_check_same_view(s->one[GPUOS_AS_CACHE], s->one[GPUOS_AS_CACHE_IN]))
    return reject(s, GOS_CHECK_operand, "CACHE_IN is not the view that CACHE writes");
  return check_rotation(s, s->op->params[2]) && check_sequences(s, s->size[KEYS]);
}

static bool check_paged(const subject_t *s) {
  const gpuos_op_t *op = s->op;
  uint32_t page_size = op->params[1], split_len = op->params[4];
  if (page_size == 0 || split_len == 0)
    return reject(s, GOS_CHECK_record, "page_size or split_len is 0");
  if (op->params[7] == 0 || op->params[7] > op->extent[3])
    return reject(s, GOS_CHECK_record, "shares is 0, or more than there are splits");
  if (!s->one[GPUOS_AS_POS] || !s->one[GPUOS_AS_PAGES])
    return reject(s, GOS_CHECK_operand, "CACHE needs POS and PAGES");
  bool own = s->one[GPUOS_AS_K] != NULL;
  if (own != (s->one[GPUOS_AS_V] != NULL) || (own && s->one[GPUOS_AS_SEQ] != NULL))
    return reject(s, GOS_CHECK_operand, "K and V come together, and exclude SEQ beside a CACHE");
  if (own && s->size[KEYS] != op->extent[1])
    return reject(s, GOS_CHECK_operand, "K and V have a row for each query beside a CACHE");
  if (op->extent[0] > 1) return reject(s, GOS_CHECK_operand, "CACHE has no batch");
  if (op->extent[3] * (uint64_t)split_len < s->size[PAGES] * page_size)
    return reject(s, GOS_CHECK_operand, "the splits do not cover a sequence's pages");
  return check_rotation(s, op->params[6]) && check_sequences(s, op->extent[1]);
}

static bool check_contiguous(const subject_t *s) {
  const gpuos_op_t *op = s->op;
  if (op->params[1] != 0 || op->params[4] != 0 || op->params[7] != 0)
    return reject(s, GOS_CHECK_record, "page_size, split_len or shares without a CACHE");
  if (!s->one[GPUOS_AS_K] || !s->one[GPUOS_AS_V] || s->one[GPUOS_AS_POS] || s->one[GPUOS_AS_SEQ] ||
      s->one[GPUOS_AS_PAGES] || s->one[GPUOS_AS_ROTATION])
    return reject(s, GOS_CHECK_operand, "needs CACHE, POS and PAGES, or else K and V alone");
  if (op->extent[3] > 1) return reject(s, GOS_CHECK_operand, "splits without a CACHE");
  // A row sees the keys up to its own: there must be as many.
  if (op->params[5] && s->size[KEYS] < op->extent[1])
    return reject(s, GOS_CHECK_operand, "is causal with fewer keys than rows");
  return true;
}

static bool check_attention(const subject_t *s) {
  const gpuos_op_t *op = s->op;
  if (!isfinite(as_float(op->params[0])) || op->params[2] == 0 || op->params[3] == 0 ||
      op->params[5] > 1)
    return reject(s, GOS_CHECK_record, "scale, head_dim, group or causal is out of range");
  bool split = op->extent[3] > 1;
  if ((s->one[GPUOS_AS_PARTIAL] != NULL) != split || (s->one[GPUOS_AS_OUT] == NULL) != split)
    return reject(s, GOS_CHECK_operand, "has one result: PARTIAL with splits, or else OUT");
  return s->one[GPUOS_AS_CACHE] != NULL ? check_paged(s) : check_contiguous(s);
}

static bool check_combine(const subject_t *s) {
  if (s->op->params[2] == 0 || s->op->params[3] == 0)
    return reject(s, GOS_CHECK_record, "head_dim or group is 0");
  if (s->one[GPUOS_AS_POS] != NULL && (s->op->params[4] == 0 || s->op->params[7] == 0))
    return reject(s, GOS_CHECK_record, "split_len or shares is 0");
  return true;
}

static bool check_params(const subject_t *s) {
  switch ((gpuos_kind_t)s->op->kind) {
  case GPUOS_MATMUL: return s->one[GPUOS_AS_NORM] == NULL || check_eps(s);
  case GPUOS_RMSNORM: return check_eps(s);
  case GPUOS_ROPE: return check_rope(s);
  case GPUOS_KV_APPEND: return check_append(s);
  case GPUOS_ATTENTION: return check_attention(s);
  case GPUOS_ATTENTION_COMBINE: return check_combine(s);
  default: return true;
  }
}

// ---- expressions and slices ---------------------------------------------------------------------

static bool check_instruction(const subject_t *s, uint32_t i) {
  const gpuos_code_t *code = &s->check->code[s->op->first_code + i];
  uint32_t sums = s->op->kind == GPUOS_MATMUL ? 1 + s->count[GPUOS_AS_W1] : 0;
  if (code->op >= GPUOS_CODE_COUNT) return false;
  switch ((gpuos_code_op_t)code->op) {
  case GPUOS_CODE_ACC: return code->a < sums;
  case GPUOS_CODE_INPUT: return code->a < s->count[GPUOS_AS_EXTRA];
  case GPUOS_CODE_CONST: return true;
  case GPUOS_CODE_ADD:
  case GPUOS_CODE_SUB:
  case GPUOS_CODE_MUL:
  case GPUOS_CODE_DIV:
  case GPUOS_CODE_MAX:
  case GPUOS_CODE_MIN: return code->a < i && code->b < i;
  case GPUOS_CODE_ROUND: return code->a < i && code->b < GPUOS_DTYPE_COUNT;
  default: return code->a < i;
  }
}

static bool check_code(const subject_t *s) {
  uint32_t kind = s->op->kind, count = s->op->code_count;
  if (kind != GPUOS_MATMUL && kind != GPUOS_MAP && count != 0)
    return reject(s, GOS_CHECK_record, "this kind has no expression");
  if (kind == GPUOS_MAP && count == 0 && s->count[GPUOS_AS_EXTRA] == 0)
    return reject(s, GOS_CHECK_operand, "has neither an input nor an expression");
  for (uint32_t i = 0; i < count; i++)
    if (!check_instruction(s, i))
      return reject(s, GOS_CHECK_record, "its expression uses what it has not");
  return true;
}

// A sliced tile keeps f32 [j, tile m, tile n] from unit to unit, and no unit of it is empty.
static bool check_slices(const subject_t *s) {
  const gpuos_op_t *op = s->op;
  uint64_t slices = gpuos_op_slices(op), need;
  if (op->park_bytes > s->check->table->park_bytes)
    return reject(s, GOS_CHECK_record, "park_bytes exceed the table's");
  if (op->kind == GPUOS_MATMUL && op->tile[3] < op->extent[3])
    return reject(s, GOS_CHECK_operand, "one tile must walk all of k");
  if (slices == 1) return true;
  if (op->kind != GPUOS_MATMUL || s->count[GPUOS_AS_NORM] != 0)
    return reject(s, GOS_CHECK_operand, "cannot be sliced");
  if ((slices - 1) * op->slice >= op->extent[3] && op->extent[3] != 0)
    return reject(s, GOS_CHECK_operand, "has slices with nothing in them");
  if (op->tile[0] > 1 && op->extent[0] > 1)
    return reject(s, GOS_CHECK_operand, "is sliced with several batches in a tile");
  need = op->tile[1] * (uint64_t)op->tile[2];
  if (need > op->park_bytes / 4 / (1 + s->count[GPUOS_AS_W1]))
    return reject(s, GOS_CHECK_record, "park_bytes do not hold its accumulators");
  return true;
}

// ---- an operator --------------------------------------------------------------------------------

static bool check_counts(const subject_t *s) {
  for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
    uint32_t count = s->count[rules[i].as];
    if (rules[i].kind == s->op->kind && (count < rules[i].least || count > rules[i].most))
      return gos_check_fail(s->check, GOS_CHECK_operand, GPUOS_NONE,
                            "operator %u '%s' (%s): %u operands %s", s->number,
                            GOS_OP_NAME(s->check, s->number), gos_kind_name(s->op->kind), count,
                            gos_as_name(rules[i].as));
  }
  return true;
}

static bool check_lacking(const subject_t *s) {
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (lacking[s->op->kind] >> d & 1 && s->op->extent[d] != 1)
      return reject(s, GOS_CHECK_operand, "iterates over a dimension that this kind lacks");
  return true;
}

// No extent is as large as 2^32, so products beyond it need not be told apart.
static uint64_t fixed(uint64_t size) { return size > UINT32_MAX ? 1ull << 32 : size; }

static void size_dims(subject_t *s) {
  const uint32_t *p = s->op->params;
  bool append = s->op->kind == GPUOS_KV_APPEND;
  uint64_t head = append ? p[1] : p[2], group = p[3], page = append ? p[0] : p[1];
  for (int d = 0; d < DIM_COUNT; d++) s->size[d] = FREE;
  s->size[TWO] = 2;
  s->size[HEAD] = head;
  s->size[PAGE] = fixed(page * head);
  s->size[GROUP] = fixed(group * head);
  s->size[PARTIAL] = fixed(group * (head + 2));
}

bool gos_check_op(gos_check_t *check, uint32_t op) {
  subject_t s = {.check = check, .number = op, .op = &check->ops[op]};
  s.operands = check->operands + s.op->first_operand;
  for (uint32_t i = 0; i < s.op->operand_count; i++) {
    s.count[s.operands[i].as]++;
    s.one[s.operands[i].as] = &s.operands[i];
  }
  size_dims(&s);
  if (!check_counts(&s) || !check_lacking(&s)) return false;
  for (uint32_t i = 0; i < s.op->operand_count; i++)
    if (!check_operand(&s, &s.operands[i])) return false;
  return check_params(&s) && check_code(&s) && check_slices(&s);
}
