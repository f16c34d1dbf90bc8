// expr.c: pointwise expressions, by recursive descent, into straight-line code and then a body.
//
//   sum     = product {("+" | "-") product}
//   product = unary {("*" | "/") unary}
//   unary   = "-" unary | "(" sum ")" | number | name | function "(" sum {"," sum} ")"
//
// The code comes first because a body must not be begun unless it can be ended: instruction i
// defines value i, as in the schedule table, which also gives the limit on its length.
#include "compiler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_QUOTED = 60, MAX_SUGGESTING = 100, NO_VALUE = -1 };

// One instruction; `a` and `b` number earlier ones, INPUT's a the argument.
typedef struct code {
  gpuos_code_op_t op;
  int a, b;
  double value; // CONST
} code_t;

typedef struct parser {
  gos_ir_t *ir;
  gos_loc_t at;
  const char *text, *p;
  size_t name_count;
  const char *const *names;
  int *name_values; // instruction of each name, NO_VALUE until it is used
  code_t code[GPUOS_MAX_CODE];
  int count, depth;
  bool failed;
} parser_t;

static gos_loc_t place(const parser_t *s, const char *p) {
  return gos_diags_inside(s->ir->diags, s->at, s->text, (size_t)(p - s->text));
}

// The first error of an expression is the one that helps.
static int fail(parser_t *s, const char *p, const char *slug, const char *message) {
  const char *in =
      strlen(s->text) > MAX_QUOTED ? "" : gos_format(s->ir->scratch, " in '%s'", s->text);
  if (!s->failed) gos_error(s->ir->diags, place(s, p), slug, "%s%s", message, in);
  s->failed = true;
  return 0;
}

// ---- code ---------------------------------------------------------------------------------------

// One less than the table takes: an expression that ends in an earlier value needs one more.
static int emit(parser_t *s, gpuos_code_op_t op, int a, int b) {
  if (s->failed) return 0;
  if (s->count == GPUOS_MAX_CODE - 1)
    return fail(s, s->p, "expr-length", "more than 199 operations");
  s->code[s->count] = (code_t){.op = op, .a = a, .b = b};
  return s->count++;
}

static int constant(parser_t *s, double value) {
  int at = emit(s, GPUOS_CODE_CONST, 0, 0);
  if (!s->failed) s->code[at].value = value;
  return at;
}

static int input(parser_t *s, size_t name) {
  if (s->name_values[name] == NO_VALUE)
    s->name_values[name] = emit(s, GPUOS_CODE_INPUT, (int)name, 0);
  return s->name_values[name];
}

// ---- functions ----------------------------------------------------------------------------------

// 1 / (1 + exp(-x)), and x / (1 + exp(-x)), which is silu.
static int logistic(parser_t *s, int numerator, int x) {
  int e = emit(s, GPUOS_CODE_EXP, emit(s, GPUOS_CODE_NEG, x, 0), 0);
  int below = emit(s, GPUOS_CODE_ADD, constant(s, 1.0), e);
  return emit(s, GPUOS_CODE_DIV, numerator, below);
}

static int sigmoid(parser_t *s, int x, int y) {
  (void)y;
  return logistic(s, constant(s, 1.0), x);
}

static int silu(parser_t *s, int x, int y) {
  (void)y;
  return logistic(s, x, x);
}

// x / 2 * (1 + inner)
static int gelu_of(parser_t *s, int x, int inner) {
  int half = emit(s, GPUOS_CODE_MUL, constant(s, 0.5), x);
  return emit(s, GPUOS_CODE_MUL, half, emit(s, GPUOS_CODE_ADD, constant(s, 1.0), inner));
}

static int gelu(parser_t *s, int x, int y) {
  (void)y;
  int scaled = emit(s, GPUOS_CODE_MUL, x, constant(s, 0.70710678118654752)); // 1 / sqrt(2)
  return gelu_of(s, x, emit(s, GPUOS_CODE_ERF, scaled, 0));
}

// The tanh form of Hendrycks and Gimpel, arXiv 1606.08415.
static int gelu_tanh(parser_t *s, int x, int y) {
  (void)y;
  int cube = emit(s, GPUOS_CODE_MUL, emit(s, GPUOS_CODE_MUL, x, x), x);
  int bent = emit(s, GPUOS_CODE_ADD, x, emit(s, GPUOS_CODE_MUL, constant(s, 0.044715), cube));
  int scaled = emit(s, GPUOS_CODE_MUL, constant(s, 0.79788456080286536), bent); // sqrt(2 / pi)
  return gelu_of(s, x, emit(s, GPUOS_CODE_TANH, scaled, 0));
}

typedef struct function {
  const char *name;
  int args;
  gpuos_code_op_t op;                       // one instruction, or
  int (*expand)(parser_t *s, int x, int y); // several
  int dtype;                                // of ROUND
} function_t;

static const function_t functions[] = {
    {"exp", 1, GPUOS_CODE_EXP, NULL, 0},
    {"log", 1, GPUOS_CODE_LOG, NULL, 0},
    {"sqrt", 1, GPUOS_CODE_SQRT, NULL, 0},
    {"rsqrt", 1, GPUOS_CODE_RSQRT, NULL, 0},
    {"abs", 1, GPUOS_CODE_ABS, NULL, 0},
    {"max", 2, GPUOS_CODE_MAX, NULL, 0},
    {"min", 2, GPUOS_CODE_MIN, NULL, 0},
    {"tanh", 1, GPUOS_CODE_TANH, NULL, 0},
    {"erf", 1, GPUOS_CODE_ERF, NULL, 0},
    {"sigmoid", 1, GPUOS_CODE_DIV, sigmoid, 0},
    {"silu", 1, GPUOS_CODE_DIV, silu, 0},
    {"gelu", 1, GPUOS_CODE_MUL, gelu, 0},
    {"gelu_tanh", 1, GPUOS_CODE_MUL, gelu_tanh, 0},
    {"bf16", 1, GPUOS_CODE_ROUND, NULL, GPUOS_BF16},
    {"f16", 1, GPUOS_CODE_ROUND, NULL, GPUOS_F16},
    {"e4m3", 1, GPUOS_CODE_ROUND, NULL, GPUOS_E4M3},
    {"e5m2", 1, GPUOS_CODE_ROUND, NULL, GPUOS_E5M2},
};
enum { FUNCTION_COUNT = sizeof functions / sizeof *functions };

// ---- grammar ------------------------------------------------------------------------------------

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static void skip_spaces(parser_t *s) {
  while (*s->p == ' ' || *s->p == '\n') s->p++;
}

static bool take(parser_t *s, char c) {
  skip_spaces(s);
  if (*s->p != c) return false;
  s->p++;
  return true;
}

// Not strtod's own idea of a number, which includes 0x10, inf and nan.
static int number(parser_t *s) {
  const char *start = s->p;
  while (is_digit(*s->p) || *s->p == '.') s->p++;
  if (*s->p == 'e' || *s->p == 'E') {
    s->p++;
    if (*s->p == '+' || *s->p == '-') s->p++;
    while (is_digit(*s->p)) s->p++;
  }
  char *end;
  double value = strtod(start, &end);
  if (end != s->p || starts_name(*s->p)) return fail(s, start, "expr", "a malformed number");
  if (!isfinite(value) || fabs(value) > FLT_MAX)
    return fail(s, start, "expr", "a number beyond fp32");
  return constant(s, value);
}

static void suggest(parser_t *s, const char *word, size_t count, const char *const *names) {
  if (gos_diags_error_count(s->ir->diags) > MAX_SUGGESTING) return;
  const char *near = gos_near_miss(word, names, count);
  if (near) gos_note(s->ir->diags, (gos_loc_t){0}, "did you mean '%s'?", near);
}

static int unknown_function(parser_t *s, const char *start, const char *word) {
  const char *names[FUNCTION_COUNT];
  for (size_t i = 0; i < FUNCTION_COUNT; i++) names[i] = functions[i].name;
  gos_loc_t at = place(s, start);
  if (!s->failed && gos_error(s->ir->diags, at, "expr-name", "'%s' is no function", word))
    suggest(s, word, FUNCTION_COUNT, names);
  s->failed = true;
  return 0;
}

static int unknown_name(parser_t *s, const char *start, const char *word) {
  gos_loc_t at = place(s, start);
  if (!s->failed && gos_error(s->ir->diags, at, "expr-name", "'%s' names no input", word)) {
    gos_note(s->ir->diags, (gos_loc_t){0}, "give it beside expr, as in \"%s: tensor\"", word);
    suggest(s, word, s->name_count, s->names);
  }
  s->failed = true;
  return 0;
}

static int sum(parser_t *s);

static int call(parser_t *s, const char *start, const char *word) {
  const function_t *f = functions;
  while (f < functions + FUNCTION_COUNT && strcmp(f->name, word)) f++;
  if (f == functions + FUNCTION_COUNT) return unknown_function(s, start, word);
  int args[2] = {sum(s), 0};
  if (f->args == 2 && !take(s, ','))
    return fail(s, s->p, "expr", "expected ',' and a second value");
  if (f->args == 2) args[1] = sum(s);
  if (!take(s, ')')) return fail(s, s->p, "expr", "expected ')'");
  if (f->expand) return f->expand(s, args[0], args[1]);
  return emit(s, f->op, args[0], f->op == GPUOS_CODE_ROUND ? f->dtype : args[1]);
}

static int name(parser_t *s) {
  const char *start = s->p;
  while (starts_name(*s->p) || is_digit(*s->p)) s->p++;
  const char *word = gos_strndup(s->ir->scratch, start, (size_t)(s->p - start));
  if (take(s, '(')) return call(s, start, word);
  for (size_t i = 0; i < s->name_count; i++)
    if (!strcmp(s->names[i], word)) return input(s, i);
  return unknown_name(s, start, word);
}

static int unary(parser_t *s) {
  if (s->failed) return 0;
  if (s->depth == MAX_DEPTH) return fail(s, s->p, "expr", "more than 64 levels");
  s->depth++;
  int value;
  if (take(s, '-')) {
    value = emit(s, GPUOS_CODE_NEG, unary(s), 0);
  } else if (take(s, '(')) {
    value = sum(s);
    if (!take(s, ')')) fail(s, s->p, "expr", "expected ')'");
  } else if (is_digit(*s->p) || (*s->p == '.' && is_digit(s->p[1]))) {
    value = number(s);
  } else if (starts_name(*s->p)) {
    value = name(s);
  } else {
    value = fail(s, s->p, "expr", "expected a number, an input, a function or '('");
  }
  s->depth--;
  return value;
}

static int product(parser_t *s) {
  int value = unary(s);
  while (!s->failed && (take(s, '*') || take(s, '/'))) {
    gpuos_code_op_t op = s->p[-1] == '*' ? GPUOS_CODE_MUL : GPUOS_CODE_DIV;
    value = emit(s, op, value, unary(s));
  }
  return value;
}

static int sum(parser_t *s) {
  int value = product(s);
  while (!s->failed && (take(s, '+') || take(s, '-'))) {
    gpuos_code_op_t op = s->p[-1] == '+' ? GPUOS_CODE_ADD : GPUOS_CODE_SUB;
    value = emit(s, op, value, product(s));
  }
  return value;
}

// ---- body ---------------------------------------------------------------------------------------

static const char *build(parser_t *s, int result) {
  MlirLocation loc = gos_loc_make(s->ir, s->at, 0, NULL, NULL);
  gos_body_t body = gos_body_begin(s->ir, s->name_count, loc);
  MlirValue values[GPUOS_MAX_CODE];
  for (int i = 0; i < s->count; i++) {
    const code_t *code = &s->code[i];
    switch (code->op) {
    case GPUOS_CODE_INPUT: values[i] = gos_body_input(&body, (size_t)code->a); break;
    case GPUOS_CODE_CONST: values[i] = gos_body_const(&body, code->value); break;
    case GPUOS_CODE_ROUND:
      values[i] = gos_body_round(&body, (gpuos_dtype_t)code->b, values[code->a]);
      break;
    default: values[i] = gos_body_op(&body, code->op, values[code->a], values[code->b]);
    }
  }
  return gos_body_end(&body, values[result]);
}

static void check_all_used(parser_t *s) {
  for (size_t i = 0; i < s->name_count; i++) {
    if (s->name_values[i] != NO_VALUE) continue;
    gos_error(s->ir->diags, s->at, "expr-unused", "input '%s' is not used by '%s'", s->names[i],
              s->text);
    s->failed = true;
  }
}

const char *gos_expr_parse(gos_ir_t *ir, gos_loc_t at, const char *text, size_t count,
                           const char *const *names) {
  parser_t s = {.ir = ir, .at = at, .text = text, .p = text, .name_count = count, .names = names};
  s.name_values = gos_alloc(ir->scratch, (count + 1) * sizeof *s.name_values);
  for (size_t i = 0; i < count; i++) s.name_values[i] = NO_VALUE;
  int result = sum(&s);
  skip_spaces(&s);
  if (!s.failed && *s.p) fail(&s, s.p, "expr", "expected an operator or the end");
  if (!s.failed) check_all_used(&s);
  return s.failed ? NULL : build(&s, result);
}
