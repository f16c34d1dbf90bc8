// dims.c: integer expressions over dimensions, by recursive descent.
//
//   sum     = product {("+" | "-") product}
//   product = unary {("*" | "/" | "%") unary}
//   unary   = "-" unary | "(" sum ")" | integer | name
//
// "/" and "%" round towards minus infinity, so that (T + 63) / 64 counts pages.
#include "compiler.h"

#include <string.h>

enum { MAX_DEPTH = 64, MAX_QUOTED = 60, MAX_SUGGESTING = 100 };

typedef struct parser {
  gos_ir_t *ir;
  const gos_dims_t *dims;
  gos_loc_t at;
  const char *text, *p;
  int depth;
  bool failed;
} parser_t;

static gos_loc_t place(const parser_t *s, const char *p) {
  return gos_diags_inside(s->ir->diags, s->at, s->text, (size_t)(p - s->text));
}

// The first error of an expression is the one that helps.
static int64_t fail(parser_t *s, const char *p, const char *slug, const char *message) {
  const char *in =
      strlen(s->text) > MAX_QUOTED ? "" : gos_format(s->ir->scratch, " in '%s'", s->text);
  if (!s->failed) gos_error(s->ir->diags, place(s, p), slug, "%s%s", message, in);
  s->failed = true;
  return 1;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void skip_spaces(parser_t *s) {
  while (*s->p == ' ') s->p++;
}

static bool take(parser_t *s, char c) {
  skip_spaces(s);
  if (*s->p != c) return false;
  s->p++;
  return true;
}

static int64_t integer(parser_t *s) {
  const char *start = s->p;
  int64_t value = 0;
  for (; is_digit(*s->p) || (*s->p == '_' && is_digit(s->p[1])); s->p++) {
    if (*s->p == '_') continue;
    if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
        __builtin_add_overflow(value, (int64_t)(*s->p - '0'), &value))
      return fail(s, start, "dim-overflow", "a number beyond 64 bits");
  }
  if (*s->p == '.' || starts_name(*s->p)) return fail(s, start, "dim-expr", "not a whole number");
  return value;
}

static void unknown_name(parser_t *s, const char *start, const char *name) {
  s->failed = true;
  gos_diags_t *diags = s->ir->diags;
  if (!gos_error(diags, place(s, start), "dim-unknown", "'%s' is no dimension", name)) return;
  if (gos_diags_error_count(diags) > MAX_SUGGESTING) return;
  const char **names = gos_alloc(s->ir->scratch, (s->dims->count + 1) * sizeof *names);
  for (size_t i = 0; i < s->dims->count; i++) names[i] = s->dims->at[i].name;
  const char *near = gos_near_miss(name, names, s->dims->count);
  if (near)
    gos_note(diags, (gos_loc_t){0}, "did you mean '%s'?", near);
  else
    gos_note(diags, (gos_loc_t){0}, "dims: declares dimensions; each may use those above it");
}

static int64_t name_value(parser_t *s) {
  const char *start = s->p;
  while (starts_name(*s->p) || is_digit(*s->p)) s->p++;
  size_t length = (size_t)(s->p - start);
  for (size_t i = s->dims->count; i-- > 0;) {
    const char *name = s->dims->at[i].name;
    if (!strncmp(name, start, length) && !name[length]) return s->dims->at[i].value;
  }
  if (!s->failed) unknown_name(s, start, gos_strndup(s->ir->scratch, start, length));
  return 1;
}

static int64_t sum(parser_t *s);

static int64_t unary(parser_t *s) {
  if (s->failed) return 1;
  if (s->depth == MAX_DEPTH) return fail(s, s->p, "dim-expr", "more than 64 levels");
  s->depth++;
  int64_t value;
  if (take(s, '-')) {
    const char *minus = s->p - 1;
    if (__builtin_sub_overflow((int64_t)0, unary(s), &value))
      value = fail(s, minus, "dim-overflow", "a value beyond 64 bits");
  } else if (take(s, '(')) {
    value = sum(s);
    if (!take(s, ')')) fail(s, s->p, "dim-expr", "expected ')'");
  } else if (is_digit(*s->p)) {
    value = integer(s);
  } else if (starts_name(*s->p)) {
    value = name_value(s);
  } else {
    value = fail(s, s->p, "dim-expr", "expected a number, a dimension or '('");
  }
  s->depth--;
  return value;
}

static int64_t divide(parser_t *s, const char *sign, int64_t a, int64_t b) {
  if (b == 0) return fail(s, sign, "dim-expr", "division by zero");
  if (a == INT64_MIN && b == -1) return fail(s, sign, "dim-overflow", "a value beyond 64 bits");
  int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0);
  return *sign == '/' ? a / b - down : rest + down * b;
}

static int64_t product(parser_t *s) {
  int64_t value = unary(s);
  while (!s->failed && (take(s, '*') || take(s, '/') || take(s, '%'))) {
    const char *sign = s->p - 1;
    int64_t right = unary(s);
    if (s->failed) break;
    if (*sign != '*')
      value = divide(s, sign, value, right);
    else if (__builtin_mul_overflow(value, right, &value))
      return fail(s, sign, "dim-overflow", "a value beyond 64 bits");
  }
  return value;
}

static int64_t sum(parser_t *s) {
  int64_t value = product(s);
  while (!s->failed && (take(s, '+') || take(s, '-'))) {
    const char *sign = s->p - 1;
    int64_t right = product(s);
    if (s->failed) break;
    if (*sign == '+' ? __builtin_add_overflow(value, right, &value)
                     : __builtin_sub_overflow(value, right, &value))
      return fail(s, sign, "dim-overflow", "a value beyond 64 bits");
  }
  return value;
}

bool gos_dim_eval(gos_ir_t *ir, const gos_dims_t *dims, gos_loc_t at, const char *text,
                  int64_t *out_value) {
  parser_t s = {.ir = ir, .dims = dims, .at = at, .text = text, .p = text};
  *out_value = 0;
  int64_t value = sum(&s);
  skip_spaces(&s);
  if (!s.failed && *s.p) fail(&s, s.p, "dim-expr", "expected an operator or the end");
  if (!s.failed) *out_value = value;
  return !s.failed;
}
