// oracle.c: what the words of gpuos_abi.h and check.h say, one after the other, as plainly as
// possible.
#include "oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide_t; // no sum or product below overflows it

enum { MOST_BYTES = 1 << 16, MOST_TILES = 1 << 11, MOST_ELEMENTS = 1 << 14, MOST_WORK = 1 << 22 };

typedef struct oracle {
  const gpuos_table_t *t;
  const char **why;
  gos_verdict_t verdict;
  bool doubtful;
  jmp_buf out;
  uint64_t work;
  uint64_t *before; // [tile][words]: bit a of row b: tile a happens before tile b
  uint64_t *seen;   // the same, before it reads what comes stamped
  size_t words;
  uint32_t *value[256];   // [buffer][byte]
  uint64_t *readers[256]; // [buffer][byte][words]
  uint64_t *writers[256];
  uint8_t *touched; // [byte]: scratch for a view's aliasing
} oracle_t;

static void leave(oracle_t *o, gos_verdict_t verdict, const char *why) {
  o->verdict = verdict;
  *o->why = why;
  longjmp(o->out, 1);
}
#define MUST(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) leave(o, GOS_UNSAFE, #condition);                                            \
  } while (0)
#define DARE(condition)                                                                            \
  do {                                                                                             \
    if (!(condition)) leave(o, GOS_UNDECIDED, #condition);                                         \
  } while (0)

static void *zeros(size_t count, size_t size) {
  void *memory = calloc(count + 1, size);
  if (memory == NULL) abort();
  return memory;
}

#define AT(section, type, i) (GPUOS_SECTION(o->t, type, section)[i])
#define OP(i)                AT(ops, gpuos_op_t, i)
#define TILE(i)              AT(tiles, gpuos_tile_t, i)
#define BUFFER(i)            AT(buffers, gpuos_buffer_t, i)
#define OPERAND(op, i)       AT(operands, gpuos_operand_t, OP(op).first_operand + (i))

// ---- the frame ----------------------------------------------------------------------------------

static wide_t section(oracle_t *o, gpuos_span_t span, size_t size, wide_t from) {
  MUST(span.offset % 16 == 0);
  MUST(span.offset >= from);
  wide_t to = span.offset + (wide_t)span.count * size;
  MUST(to <= o->t->bytes);
  return to;
}

static void judge_frame(oracle_t *o, size_t bytes) {
  const gpuos_table_t *t = o->t;
  MUST(bytes >= sizeof(*t));
  MUST(t->magic == GPUOS_MAGIC && t->version == GPUOS_ABI_VERSION);
  MUST(t->bytes >= sizeof(*t) && t->bytes <= bytes);
  unsigned char *copy = zeros(t->bytes, 1);
  memcpy(copy, t, t->bytes);
  memset(copy + offsetof(gpuos_table_t, hash), 0, 8);
  uint64_t hash = gpuos_hash_add(GPUOS_HASH_START, copy, t->bytes);
  free(copy);
  MUST(hash == t->hash);
  wide_t end = sizeof(*t);
  end = section(o, t->graphs, sizeof(gpuos_graph_t), end);
  end = section(o, t->buffers, sizeof(gpuos_buffer_t), end);
  end = section(o, t->ops, sizeof(gpuos_op_t), end);
  end = section(o, t->operands, sizeof(gpuos_operand_t), end);
  end = section(o, t->code, sizeof(gpuos_code_t), end);
  end = section(o, t->tiles, sizeof(gpuos_tile_t), end);
  end = section(o, t->wait_lists, sizeof(gpuos_wait_list_t), end);
  end = section(o, t->waits, sizeof(gpuos_wait_t), end);
  end = section(o, t->counters, sizeof(uint32_t), end);
  end = section(o, t->strings, 1, end);
  MUST(t->strings.count > 0);
  MUST(AT(strings, char, 0) == 0 && AT(strings, char, t->strings.count - 1) == 0);
}

static void judge_buffers(oracle_t *o) {
  MUST(o->t->buffers.count > 0);
  MUST(o->t->value_count >= o->t->buffers.count);
  DARE(o->t->buffers.count <= 256);
  wide_t run = 0;
  for (uint32_t i = 0; i < o->t->buffers.count; i++) {
    const gpuos_buffer_t *b = &BUFFER(i);
    MUST(b->name < o->t->strings.count);
    MUST(b->role <= GPUOS_WORKSPACE && b->dtype <= GPUOS_I32 && b->rank <= 6);
    MUST((b->role == GPUOS_WORKSPACE) == (i == o->t->buffers.count - 1));
    if (b->joined) {
      MUST(b->joined == 1 && i > 0);
      MUST(b->role == GPUOS_WEIGHT && b[-1].role == GPUOS_WEIGHT && b[-1].dtype == b->dtype);
      MUST(b[-1].bytes % GPUOS_BUFFER_ALIGNMENT == 0);
    }
    bool zero = false;
    wide_t product = b->role == GPUOS_WORKSPACE ? 1 : gpuos_dtype_bytes(b->dtype);
    for (int d = 0; d < b->rank; d++) zero |= b->shape[d] == 0;
    for (int d = 0; d < b->rank && !zero; d++) {
      product *= b->shape[d];
      MUST(product <= (wide_t)1 << 48);
    }
    MUST(b->bytes == (zero ? 0 : product));
    run = b->joined ? run + b->bytes : b->bytes;
    MUST(run <= (wide_t)1 << 48);
  }
}

// ---- operators ----------------------------------------------------------------------------------

static const gpuos_operand_t *only(oracle_t *o, uint32_t op, gpuos_as_t as) {
  const gpuos_operand_t *found = NULL;
  for (uint32_t i = 0; i < OP(op).operand_count; i++) {
    if (OPERAND(op, i).as != as) continue;
    MUST(found == NULL);
    found = &OPERAND(op, i);
  }
  return found;
}

static uint32_t count(oracle_t *o, uint32_t op, gpuos_as_t as) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < OP(op).operand_count; i++) n += OPERAND(op, i).as == as;
  return n;
}

// Only the operands listed, in bits of gpuos_as_t, occur.
static void allow(oracle_t *o, uint32_t op, uint32_t set) {
  for (uint32_t i = 0; i < OP(op).operand_count; i++) MUST(set >> OPERAND(op, i).as & 1);
}
#define S(as) (1u << GPUOS_AS_##as)

// A letter a view dimension: '1' lacking; 'a'..'d' iteration dimension 0..3 in full; 'A'..'D' the
// same or broadcast; 'w' whole with the size given; '?' whole with any size.
static void look(oracle_t *o, uint32_t op, const gpuos_operand_t *x, const char *form, wide_t size,
                 wide_t size2) {
  for (int d = 0; d < 4; d++) {
    uint32_t e = x->extent[d], f = x->follows[d];
    bool lone = e == 1 && f == GPUOS_ALL;
    if (form[d] == '1') {
      MUST(lone);
    } else if (form[d] == 'w' || form[d] == 'W') {
      MUST(f == GPUOS_ALL);
      MUST(e == (form[d] == 'w' ? size : size2));
    } else if (form[d] == '?') {
      MUST(f == GPUOS_ALL);
    } else {
      bool spread = form[d] < 'a';
      uint32_t i = (uint32_t)(form[d] - (spread ? 'A' : 'a'));
      if (lone && (spread || OP(op).extent[i] == 1)) continue;
      MUST(f == i && e == OP(op).extent[i]);
    }
  }
}

static void is_float(oracle_t *o, const gpuos_operand_t *x) {
  MUST(x->dtype == GPUOS_F32 || x->dtype == GPUOS_F16 || x->dtype == GPUOS_BF16 ||
       x->dtype == GPUOS_E4M3 || x->dtype == GPUOS_E5M2);
}
static void is_int(oracle_t *o, const gpuos_operand_t *x) { MUST(x->dtype == GPUOS_I32); }
static void is_read(oracle_t *o, const gpuos_operand_t *x) { MUST(x->writes == 0); }
static void is_written(oracle_t *o, const gpuos_operand_t *x) { MUST(x->writes == 1); }

static const gpuos_operand_t *input(oracle_t *o, uint32_t op, gpuos_as_t as, const char *form,
                                    wide_t size, wide_t size2, bool optional) {
  const gpuos_operand_t *x = only(o, op, as);
  if (x == NULL) MUST(optional);
  if (x == NULL) return NULL;
  is_read(o, x);
  if (as == GPUOS_AS_IDS || as == GPUOS_AS_POS || as == GPUOS_AS_SEQ || as == GPUOS_AS_PAGES)
    is_int(o, x);
  else
    is_float(o, x);
  look(o, op, x, form, size, size2);
  return x;
}

static const gpuos_operand_t *output(oracle_t *o, uint32_t op, gpuos_as_t as, const char *form,
                                     wide_t size, wide_t size2) {
  const gpuos_operand_t *x = only(o, op, as);
  MUST(x != NULL);
  is_written(o, x);
  look(o, op, x, form, size, size2);
  return x;
}

static void extras(oracle_t *o, uint32_t op, const char *form) {
  for (uint32_t i = 0; i < OP(op).operand_count; i++) {
    if (OPERAND(op, i).as != GPUOS_AS_EXTRA) continue;
    is_read(o, &OPERAND(op, i));
    look(o, op, &OPERAND(op, i), form, 0, 0);
  }
}

static float number(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
static bool positive(uint32_t bits) { return isfinite(number(bits)) && number(bits) > 0; }
static bool natural(uint32_t bits) { return isfinite(number(bits)) && number(bits) >= 0; }

static void lacks(oracle_t *o, uint32_t op, const char *dims) {
  for (; *dims != 0; dims++) MUST(OP(op).extent[*dims - '0'] == 1);
}

static void judge_matmul(oracle_t *o, uint32_t op) {
  const gpuos_op_t *p = &OP(op);
  allow(o, op, S(OUT) | S(X) | S(W0) | S(W1) | S(NORM) | S(EXTRA));
  bool norm = only(o, op, GPUOS_AS_NORM) != NULL;
  is_float(o, output(o, op, GPUOS_AS_OUT, "1abc", 0, 0));
  const gpuos_operand_t *x = only(o, op, GPUOS_AS_X);
  bool whole = norm && x != NULL && x->follows[3] == GPUOS_ALL;
  input(o, op, GPUOS_AS_X, whole ? "1Abw" : "1Abd", p->extent[3], 0, false);
  input(o, op, GPUOS_AS_W0, "1Acd", 0, 0, false);
  input(o, op, GPUOS_AS_W1, "1Acd", 0, 0, true);
  const gpuos_operand_t *n = only(o, op, GPUOS_AS_NORM);
  if (norm)
    input(o, op, GPUOS_AS_NORM, n->follows[3] == GPUOS_ALL ? "111w" : "111d", p->extent[3], 0,
          false);
  if (norm) MUST(natural(p->params[0]));
  extras(o, op, "1ABC");
  MUST(p->tile[3] >= p->extent[3]);
  uint32_t units = gpuos_op_slices(p);
  if (units == 1) return;
  MUST(!norm);
  for (uint32_t u = 0; u < units && p->extent[3] != 0; u++)
    MUST((wide_t)u * p->slice < p->extent[3]);
  MUST(p->tile[0] == 1 || p->extent[0] <= 1);
  wide_t sums = only(o, op, GPUOS_AS_W1) ? 2 : 1;
  MUST(sums * p->tile[1] * p->tile[2] * 4 <= p->park_bytes);
}

static void judge_rows(oracle_t *o, uint32_t op, bool norm) {
  allow(o, op, S(OUT) | S(X) | (norm ? S(NORM) : 0));
  const gpuos_operand_t *x = input(o, op, GPUOS_AS_X, "abc?", 0, 0, false);
  is_float(o, output(o, op, GPUOS_AS_OUT, "abcw", x->extent[3], 0));
  if (norm) input(o, op, GPUOS_AS_NORM, "111w", x->extent[3], 0, false);
  if (norm) MUST(natural(OP(op).params[0]));
  lacks(o, op, "3");
}

static void judge_rope(oracle_t *o, uint32_t op) {
  const uint32_t *p = OP(op).params;
  allow(o, op, S(OUT) | S(X) | S(POS));
  const gpuos_operand_t *out = output(o, op, GPUOS_AS_OUT, "1bc?", 0, 0);
  is_float(o, out);
  bool table = input(o, op, GPUOS_AS_X, "1bcw", out->extent[3], 0, true) == NULL;
  if (table) MUST(out->dtype == GPUOS_F32 && OP(op).extent[2] == 1);
  input(o, op, GPUOS_AS_POS, "111b", 0, 0, false);
  lacks(o, op, "03");
  MUST(out->extent[3] % 2 == 0);
  MUST(positive(p[0]) && p[1] < 2 && p[2] < 3);
  if (p[2] != 0) MUST(positive(p[3]));
  if (p[2] == 2) MUST(positive(p[4]) && positive(p[5]) && positive(p[6]));
  if (p[2] == 2) MUST(number(p[4]) < number(p[5]));
}

static void judge_rotation(oracle_t *o, uint32_t op, const char *form, wide_t head, wide_t rows,
                           uint32_t pairing) {
  MUST(pairing < 2);
  const gpuos_operand_t *x = input(o, op, GPUOS_AS_ROTATION, form, head, rows, true);
  if (x != NULL) MUST(x->dtype == GPUOS_F32 && head % 2 == 0);
}

static void judge_append(oracle_t *o, uint32_t op) {
  wide_t page = OP(op).params[0], head = OP(op).params[1];
  allow(o, op, S(CACHE) | S(CACHE_IN) | S(K) | S(V) | S(POS) | S(SEQ) | S(PAGES) | S(ROTATION));
  MUST(page > 0 && head > 0);
  const gpuos_operand_t *k = input(o, op, GPUOS_AS_K, "1?cw", head, 0, false);
  wide_t rows = k->extent[1];
  input(o, op, GPUOS_AS_V, "1Wcw", head, rows, false);
  input(o, op, GPUOS_AS_POS, "111w", rows, 0, false);
  judge_rotation(o, op, "11Ww", head, rows, OP(op).params[2]);
  bool seq = input(o, op, GPUOS_AS_SEQ, "111w", rows, 0, true) != NULL;
  const gpuos_operand_t *pages = input(o, op, GPUOS_AS_PAGES, "11??", 0, 0, false);
  const gpuos_operand_t *in = input(o, op, GPUOS_AS_CACHE_IN, "wc?W", 2, page * head, false);
  const gpuos_operand_t *to = output(o, op, GPUOS_AS_CACHE, "wc?W", 2, page * head);
  is_float(o, to);
  lacks(o, op, "013");
  if (!seq) MUST(rows <= pages->extent[2]);
  MUST(in->buffer == to->buffer && in->dtype == to->dtype && in->offset_bytes == to->offset_bytes);
  for (int d = 0; d < 4; d++) MUST(in->extent[d] == to->extent[d]);
  for (int d = 0; d < 4; d++)
    if (in->extent[d] != 1)
      MUST(in->stride[d] == to->stride[d] && in->follows[d] == to->follows[d]);
}

static void judge_attention(oracle_t *o, uint32_t op) {
  const gpuos_op_t *p = &OP(op);
  wide_t page = p->params[1], head = p->params[2], group = p->params[3], len = p->params[4];
  MUST(isfinite(number(p->params[0])) && head > 0 && group > 0 && p->params[5] < 2);
  uint32_t result = p->extent[3] > 1 ? S(PARTIAL) : S(OUT);
  input(o, op, GPUOS_AS_X, "abcw", group * head, 0, false);
  if (p->extent[3] > 1)
    MUST(output(o, op, GPUOS_AS_PARTIAL, "bcdw", group * (head + 2), 0)->dtype == GPUOS_F32);
  else
    is_float(o, output(o, op, GPUOS_AS_OUT, "abcw", group * head, 0));
  if (only(o, op, GPUOS_AS_CACHE) != NULL) {
    allow(o, op, result | S(X) | S(CACHE) | S(POS) | S(SEQ) | S(PAGES) | S(K) | S(V) | S(ROTATION));
    bool own = input(o, op, GPUOS_AS_K, "aWcw", head, p->extent[1], true) != NULL;
    MUST((input(o, op, GPUOS_AS_V, "aWcw", head, p->extent[1], true) != NULL) == own);
    judge_rotation(o, op, "11bw", head, 0, p->params[6]);
    input(o, op, GPUOS_AS_CACHE, "wc?W", 2, page * head, false);
    input(o, op, GPUOS_AS_POS, "111b", 0, 0, false);
    bool seq = input(o, op, GPUOS_AS_SEQ, "111b", 0, 0, true) != NULL;
    const gpuos_operand_t *pages = input(o, op, GPUOS_AS_PAGES, "11??", 0, 0, false);
    MUST(page > 0 && len > 0 && p->extent[0] <= 1);
    MUST(p->params[7] > 0 && p->params[7] <= p->extent[3]);
    MUST(len * p->extent[3] >= page * pages->extent[3]);
    if (!seq) MUST(p->extent[1] <= pages->extent[2]);
    if (own) MUST(!seq);
  } else {
    allow(o, op, result | S(X) | S(K) | S(V));
    const gpuos_operand_t *k = input(o, op, GPUOS_AS_K, "a?cw", head, 0, false);
    input(o, op, GPUOS_AS_V, "aWcw", head, k->extent[1], false);
    MUST(page == 0 && len == 0 && p->params[7] == 0 && p->extent[3] <= 1);
    if (p->params[5] == 1) MUST(k->extent[1] >= p->extent[1]);
  }
}

static void judge_combine(oracle_t *o, uint32_t op) {
  wide_t head = OP(op).params[2], group = OP(op).params[3];
  allow(o, op, S(PARTIAL) | S(OUT) | S(POS));
  MUST(head > 0 && group > 0);
  if (input(o, op, GPUOS_AS_POS, "111b", 0, 0, true) != NULL)
    MUST(OP(op).params[4] > 0 && OP(op).params[7] > 0);
  MUST(input(o, op, GPUOS_AS_PARTIAL, "bc?w", group * (head + 2), 0, false)->dtype == GPUOS_F32);
  is_float(o, output(o, op, GPUOS_AS_OUT, "1bcw", group * head, 0));
  lacks(o, op, "03");
}

static void judge_kind(oracle_t *o, uint32_t op) {
  switch (OP(op).kind) {
  case GPUOS_MATMUL: judge_matmul(o, op); return;
  case GPUOS_MAP:
    allow(o, op, S(OUT) | S(EXTRA));
    output(o, op, GPUOS_AS_OUT, "abcd", 0, 0);
    extras(o, op, "ABCD");
    MUST(count(o, op, GPUOS_AS_EXTRA) > 0 || OP(op).code_count > 0);
    break;
  case GPUOS_RMSNORM: judge_rows(o, op, true); break;
  case GPUOS_SOFTMAX: judge_rows(o, op, false); break;
  case GPUOS_EMBEDDING:
    allow(o, op, S(OUT) | S(TABLE) | S(IDS));
    is_float(o, output(o, op, GPUOS_AS_OUT, "11cd", 0, 0));
    input(o, op, GPUOS_AS_TABLE, "11?d", 0, 0, false);
    input(o, op, GPUOS_AS_IDS, "111c", 0, 0, false);
    lacks(o, op, "01");
    break;
  case GPUOS_ROPE: judge_rope(o, op); break;
  case GPUOS_KV_APPEND: judge_append(o, op); break;
  case GPUOS_ATTENTION: judge_attention(o, op); break;
  case GPUOS_ATTENTION_COMBINE: judge_combine(o, op); break;
  case GPUOS_ARGMAX:
    allow(o, op, S(OUT) | S(X));
    is_int(o, output(o, op, GPUOS_AS_OUT, "1abc", 0, 0));
    input(o, op, GPUOS_AS_X, "abc?", 0, 0, false);
    lacks(o, op, "3");
    break;
  default: MUST(!"a kind");
  }
  MUST(OP(op).slice == 0 || OP(op).slice >= OP(op).tile[3]);
}

static void judge_code(oracle_t *o, uint32_t op) {
  const gpuos_op_t *p = &OP(op);
  MUST(p->code_count <= GPUOS_MAX_CODE);
  MUST((wide_t)p->first_code + p->code_count <= o->t->code.count);
  if (p->code_count > 0) MUST(p->kind == GPUOS_MATMUL || p->kind == GPUOS_MAP);
  for (uint32_t i = 0; i < p->code_count; i++) {
    gpuos_code_t c = AT(code, gpuos_code_t, p->first_code + i);
    MUST(c.op <= GPUOS_CODE_ROUND);
    if (c.op == GPUOS_CODE_ACC)
      MUST(p->kind == GPUOS_MATMUL && c.a < count(o, op, GPUOS_AS_W0) + count(o, op, GPUOS_AS_W1));
    else if (c.op == GPUOS_CODE_INPUT)
      MUST(c.a < count(o, op, GPUOS_AS_EXTRA));
    else if (c.op != GPUOS_CODE_CONST)
      MUST(c.a < i);
    if (c.op >= GPUOS_CODE_ADD && c.op <= GPUOS_CODE_MIN) MUST(c.b < i);
    if (c.op == GPUOS_CODE_ROUND) MUST(c.b < GPUOS_DTYPE_COUNT);
  }
}

static bool nothing(const uint32_t *extent) {
  for (int d = 0; d < 4; d++)
    if (extent[d] == 0) return true;
  return false;
}

// Where element `index` of a view begins.
static wide_t address(const gpuos_operand_t *x, const uint32_t *index) {
  wide_t element = 0;
  for (int d = 0; d < 4; d++) element += (wide_t)index[d] * x->stride[d];
  return x->offset_bytes + element * gpuos_dtype_bytes(x->dtype);
}

// Next index of a box in row-major order. Elements at stride 0 are one element.
static bool advance(const gpuos_operand_t *x, const uint32_t *lo, const uint32_t *hi, uint32_t *i) {
  for (int d = 3; d >= 0; d--) {
    if (i[d] + 1 < hi[d] && (x->stride[d] != 0 || x->writes)) {
      i[d]++;
      return true;
    }
    i[d] = lo[d];
  }
  return false;
}

static void judge_alias(oracle_t *o, const gpuos_operand_t *x) {
  uint32_t lo[4] = {0}, i[4] = {0}, size = gpuos_dtype_bytes(x->dtype);
  wide_t elements = 1;
  for (int d = 0; d < 4; d++) {
    elements *= x->extent[d];
    if (x->extent[d] > 1) MUST(x->stride[d] > 0);
  }
  DARE(elements <= MOST_ELEMENTS && BUFFER(x->buffer).bytes <= MOST_BYTES);
  memset(o->touched, 0, MOST_BYTES);
  do {
    uint8_t *byte = &o->touched[address(x, i)];
    MUST(*byte == 0);
    memset(byte, 1, size);
  } while (advance(x, lo, x->extent, i));
  // Disjoint, but by luck: no order of the dimensions nests.
  for (int d = 0; d < 4; d++)
    for (int e = 0; e < 4; e++)
      if (d != e && x->extent[d] > 1 && x->extent[e] > 1 && x->stride[d] <= x->stride[e] &&
          (wide_t)x->stride[d] * x->extent[d] > x->stride[e])
        o->doubtful = true;
}

// Bytes of a buffer and of those that are joined to it.
static uint64_t room_from(const oracle_t *o, uint32_t buffer) {
  uint64_t bytes = BUFFER(buffer).bytes;
  while (++buffer < o->t->buffers.count && BUFFER(buffer).joined) bytes += BUFFER(buffer).bytes;
  return bytes;
}

static void judge_view(oracle_t *o, uint32_t op, const gpuos_operand_t *x) {
  const gpuos_buffer_t *b = &BUFFER(x->buffer);
  if (x->writes) MUST(b->role != GPUOS_INPUT && b->role != GPUOS_WEIGHT);
  if (b->role != GPUOS_WORKSPACE) MUST(b->dtype == x->dtype);
  MUST(x->offset_bytes % gpuos_dtype_bytes(x->dtype) == 0);
  if (nothing(x->extent)) {
    MUST(nothing(OP(op).extent));
    return;
  }
  uint32_t last[4];
  for (int d = 0; d < 4; d++) last[d] = x->extent[d] - 1;
  MUST(address(x, last) + gpuos_dtype_bytes(x->dtype) <= room_from(o, x->buffer));
  if (x->writes) judge_alias(o, x);
}

static void judge_operands(oracle_t *o) {
  for (uint32_t i = 0; i < o->t->operands.count; i++) {
    const gpuos_operand_t *x = &AT(operands, gpuos_operand_t, i);
    MUST(x->as <= GPUOS_AS_PARTIAL && x->dtype <= GPUOS_I32 && x->writes < 2);
    MUST(x->stamped + x->writes < 2);
    MUST(x->buffer < o->t->buffers.count && x->value < o->t->value_count);
    if (x->writes) MUST(x->value >= o->t->buffers.count);
    for (int d = 0; d < 4; d++) MUST(x->follows[d] < 4 || x->follows[d] == 255);
  }
}

// Only some operands can be seen by stamps.
static void judge_stamps(oracle_t *o, uint32_t op, const gpuos_operand_t *x) {
  bool x_of_matmul = OP(op).kind == GPUOS_MATMUL && x->as == GPUOS_AS_X;
  bool own = x->as == GPUOS_AS_X || x->as == GPUOS_AS_K || x->as == GPUOS_AS_V ||
             x->as == GPUOS_AS_ROTATION;
  bool splits = OP(op).kind == GPUOS_ATTENTION_COMBINE && x->as == GPUOS_AS_PARTIAL;
  MUST(!x->stamped || x_of_matmul || splits || (own && OP(op).kind == GPUOS_ATTENTION));
}

static void judge_ops(oracle_t *o) {
  judge_operands(o);
  MUST(o->t->budget_ns > 0);
  wide_t tiles = 0;
  for (uint32_t i = 0; i < o->t->ops.count; i++) {
    const gpuos_op_t *p = &OP(i);
    MUST(p->name < o->t->strings.count && p->operand_count <= 16);
    MUST((wide_t)p->first_operand + p->operand_count <= o->t->operands.count);
    MUST(p->bound_ns > 0 && p->bound_ns <= o->t->budget_ns && p->park_bytes <= o->t->park_bytes);
    wide_t cells = 1;
    for (int d = 0; d < 4; d++) MUST(p->tile[d] > 0);
    for (int d = 0; d < 4; d++) cells *= ((wide_t)p->extent[d] + p->tile[d] - 1) / p->tile[d];
    tiles += cells;
    judge_kind(o, i);
    judge_code(o, i);
    for (uint32_t k = 0; k < p->operand_count; k++) judge_stamps(o, i, &OPERAND(i, k));
    for (uint32_t k = 0; k < p->operand_count; k++) judge_view(o, i, &OPERAND(i, k));
  }
  MUST(tiles == o->t->tiles.count);
  DARE(tiles <= MOST_TILES);
}

// ---- the schedule -------------------------------------------------------------------------------

static void judge_graphs(oracle_t *o) {
  wide_t op = 0, tile = 0;
  for (uint32_t g = 0; g < o->t->graphs.count; g++) {
    const gpuos_graph_t *graph = &AT(graphs, gpuos_graph_t, g);
    MUST(graph->name < o->t->strings.count && graph->live < 2);
    MUST(graph->first_op == op && graph->first_tile == tile);
    op += graph->op_count;
    tile += graph->tile_count;
    MUST(op <= o->t->ops.count && tile <= o->t->tiles.count);
    for (uint32_t i = graph->first_tile; i < tile; i++)
      MUST(TILE(i).op >= graph->first_op && TILE(i).op < op);
  }
  MUST(op == o->t->ops.count && tile == o->t->tiles.count);
}

static void judge_tiles(oracle_t *o) {
  uint32_t n = o->t->tiles.count;
  for (uint32_t i = 0; i < n; i++) {
    MUST(TILE(i).op < o->t->ops.count && TILE(i).wait_list < o->t->wait_lists.count);
    MUST(TILE(i).signal == GPUOS_NONE || TILE(i).signal < o->t->counters.count);
    wide_t cells = 1;
    for (int d = 0; d < 4; d++) cells *= gpuos_op_grid(&OP(TILE(i).op), d);
    MUST(TILE(i).index < cells);
    for (uint32_t k = 0; k < i; k++)
      MUST(TILE(i).op != TILE(k).op || TILE(i).index != TILE(k).index);
  }
}

static void judge_wait_lists(oracle_t *o) {
  for (uint32_t i = 0; i < o->t->wait_lists.count; i++) {
    gpuos_wait_list_t list = AT(wait_lists, gpuos_wait_list_t, i);
    MUST((wide_t)list.first + list.count <= o->t->waits.count && list.stamped <= list.count);
    if (i == 0) MUST(list.count == 0);
  }
  for (uint32_t i = 0; i < o->t->waits.count; i++)
    MUST(AT(waits, gpuos_wait_t, i).counter < o->t->counters.count);
}

// One SM runs the tiles in ticket order: it must never have to wait.
static void judge_progress(oracle_t *o) {
  uint32_t *now = zeros(o->t->counters.count, sizeof(*now));
  bool stuck = false;
  for (uint32_t i = 0; i < o->t->tiles.count; i++) {
    gpuos_wait_list_t list = AT(wait_lists, gpuos_wait_list_t, TILE(i).wait_list);
    for (uint32_t w = list.first; w < list.first + list.count; w++)
      stuck |= now[AT(waits, gpuos_wait_t, w).counter] < AT(waits, gpuos_wait_t, w).threshold;
    if (TILE(i).signal != GPUOS_NONE) now[TILE(i).signal]++;
  }
  bool wrong = false;
  for (uint32_t i = 0; i < o->t->counters.count; i++) wrong |= now[i] != AT(counters, uint32_t, i);
  for (uint32_t i = 0; i < o->t->wait_lists.count; i++) {
    gpuos_wait_list_t list = AT(wait_lists, gpuos_wait_list_t, i);
    for (uint32_t w = list.first; w < list.first + list.count; w++) {
      gpuos_wait_t wait = AT(waits, gpuos_wait_t, w);
      wrong |= wait.threshold != now[wait.counter] || now[wait.counter] == 0;
    }
  }
  free(now);
  MUST(!stuck);
  MUST(!wrong);
}

static bool related(const uint64_t *sets, size_t words, uint32_t a, uint32_t b) {
  return sets[b * words + a / 64] >> (a % 64) & 1;
}

// Those that signal what tile b waits for; what comes stamped aside, or not.
static void relate_signals(oracle_t *o, uint64_t *sets, bool stamped) {
  for (uint32_t b = 0; b < o->t->tiles.count; b++) {
    gpuos_wait_list_t list = AT(wait_lists, gpuos_wait_list_t, TILE(b).wait_list);
    uint32_t end = list.first + list.count - (stamped ? 0 : list.stamped);
    for (uint32_t w = list.first; w < end; w++)
      for (uint32_t a = 0; a < o->t->tiles.count; a++)
        if (TILE(a).signal == AT(waits, gpuos_wait_t, w).counter)
          sets[b * o->words + a / 64] |= 1ull << (a % 64);
  }
}

static void relate_tiles(oracle_t *o) {
  uint32_t n = o->t->tiles.count;
  o->words = n / 64 + 1;
  o->before = zeros(n * o->words, sizeof(uint64_t));
  o->seen = zeros(n * o->words, sizeof(uint64_t));
  relate_signals(o, o->before, false);
  relate_signals(o, o->seen, true);
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t b = 0; b < n; b++)
      if (related(o->before, o->words, k, b))
        for (size_t w = 0; w < o->words; w++)
          o->before[b * o->words + w] |= o->before[k * o->words + w];
  for (uint32_t k = 0; k < n; k++)
    for (uint32_t b = 0; b < n; b++)
      if (related(o->seen, o->words, k, b))
        for (size_t w = 0; w < o->words; w++)
          o->seen[b * o->words + w] |= o->before[k * o->words + w];
}

// ---- bytes --------------------------------------------------------------------------------------

static void shadow_buffers(oracle_t *o) {
  wide_t total = 0;
  for (uint32_t i = 0; i < o->t->buffers.count; i++) total += BUFFER(i).bytes;
  DARE(total <= MOST_BYTES);
  for (uint32_t i = 0; i < o->t->buffers.count; i++) {
    uint64_t bytes = room_from(o, i); // of what is joined a part is there twice: nobody writes it
    o->value[i] = zeros(bytes, sizeof(uint32_t));
    o->readers[i] = zeros(bytes * o->words, sizeof(uint64_t));
    o->writers[i] = zeros(bytes * o->words, sizeof(uint64_t));
    bool defined = BUFFER(i).role <= GPUOS_STATE;
    for (uint64_t k = 0; k < bytes; k++) o->value[i][k] = defined ? i : GPUOS_NONE;
  }
}

// Everyone in `set` happens before tile b, by these sets, but for b itself.
static bool all_before(const oracle_t *o, const uint64_t *before, const uint64_t *set, uint32_t b) {
  for (size_t w = 0; w < o->words; w++) {
    uint64_t late = set[w] & ~before[b * o->words + w];
    if (b / 64 == w) late &= ~(1ull << (b % 64));
    if (late != 0) return false;
  }
  return true;
}

static bool has(const uint64_t *set, uint32_t tile) { return set[tile / 64] >> (tile % 64) & 1; }

// A read in place is not remembered: the tile's own write covers it, and whoever conflicts with the
// one conflicts with the other.
static void touch(oracle_t *o, uint32_t tile, const gpuos_operand_t *x, uint64_t byte,
                  bool in_place) {
  uint64_t *readers = &o->readers[x->buffer][byte * o->words];
  uint64_t *writers = &o->writers[x->buffer][byte * o->words];
  MUST(all_before(o, x->stamped ? o->seen : o->before, writers, tile));
  if (x->writes) {
    MUST(all_before(o, o->before, readers, tile));
    MUST(!has(readers, tile));
    o->value[x->buffer][byte] = x->value;
    writers[tile / 64] |= 1ull << (tile % 64);
  } else {
    MUST(o->value[x->buffer][byte] == x->value);
    if (!in_place) readers[tile / 64] |= 1ull << (tile % 64);
  }
}

static void touch_all(oracle_t *o, uint32_t tile, const gpuos_operand_t *x, bool in_place) {
  const gpuos_op_t *p = &OP(TILE(tile).op);
  uint32_t cell[4], lo[4], hi[4], i[4], left = TILE(tile).index;
  for (int d = 3; d >= 0; d--) {
    uint32_t cells = (uint32_t)(((wide_t)p->extent[d] + p->tile[d] - 1) / p->tile[d]);
    cell[d] = left % cells;
    left /= cells;
  }
  for (int d = 0; d < 4; d++) {
    lo[d] = 0, hi[d] = x->extent[d];
    if (x->follows[d] != GPUOS_ALL) {
      uint32_t f = x->follows[d];
      wide_t end = ((wide_t)cell[f] + 1) * p->tile[f];
      lo[d] = cell[f] * p->tile[f];
      hi[d] = end < p->extent[f] ? (uint32_t)end : p->extent[f];
    }
    i[d] = lo[d];
  }
  do {
    DARE(o->work++ < MOST_WORK);
    for (uint32_t k = 0; k < gpuos_dtype_bytes(x->dtype); k++)
      touch(o, tile, x, (uint64_t)address(x, i) + k, in_place);
  } while (advance(x, lo, hi, i));
}

// An operand that may share bytes with the one written: element by element the same.
static bool coincide(const gpuos_operand_t *r, const gpuos_operand_t *w) {
  if (r->buffer != w->buffer || r->offset_bytes != w->offset_bytes || r->dtype != w->dtype)
    return false;
  for (int d = 0; d < 4; d++) {
    if (r->extent[d] != w->extent[d]) return false;
    if (r->extent[d] == 1) continue;
    if (r->stride[d] != w->stride[d] || r->follows[d] != w->follows[d]) return false;
  }
  return true;
}

static void run_tile(oracle_t *o, uint32_t tile) {
  uint32_t op = TILE(tile).op, n = OP(op).operand_count, w = 0;
  while (w < n && !OPERAND(op, w).writes) w++;
  MUST(w < n);
  for (uint32_t i = 0; i < n; i++)
    if (!OPERAND(op, i).writes)
      touch_all(o, tile, &OPERAND(op, i), coincide(&OPERAND(op, i), &OPERAND(op, w)));
  touch_all(o, tile, &OPERAND(op, w), false);
}

static void judge_bytes(oracle_t *o) {
  shadow_buffers(o);
  for (uint32_t i = 0; i < o->t->tiles.count; i++) run_tile(o, i);
  for (uint32_t b = 0; b < o->t->buffers.count; b++)
    for (uint64_t k = 0; k < BUFFER(b).bytes && BUFFER(b).role == GPUOS_OUTPUT; k++)
      MUST(o->value[b][k] != GPUOS_NONE);
}

// Not inlined: nothing of it may live in gos_oracle's frame when MUST leaves.
__attribute__((noinline)) static void judge(oracle_t *o, size_t bytes) {
  judge_frame(o, bytes);
  judge_buffers(o);
  judge_ops(o);
  judge_graphs(o);
  judge_wait_lists(o);
  judge_tiles(o);
  judge_progress(o);
  relate_tiles(o);
  judge_bytes(o);
  o->verdict = o->doubtful ? GOS_UNDECIDED : GOS_SAFE;
}

gos_verdict_t gos_oracle(const void *table, size_t bytes, const char **out_why) {
  oracle_t *o = zeros(1, sizeof(*o));
  o->t = table;
  o->why = out_why;
  o->touched = zeros(MOST_BYTES + 8, 1);
  *out_why = "";
  if (setjmp(o->out) == 0) judge(o, bytes);
  gos_verdict_t verdict = o->verdict;
  for (int i = 0; i < 256; i++) free(o->value[i]), free(o->readers[i]), free(o->writers[i]);
  free(o->touched);
  free(o->before);
  free(o->seen);
  free(o);
  return verdict;
}
