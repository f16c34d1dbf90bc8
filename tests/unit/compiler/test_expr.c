// Pointwise expressions, evaluated by interpreting the code of the body they become.
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <string.h>

#include "compiler.h"

static gos_arena_t *arena, *scratch;
static gos_diags_t *diags;
static gos_ir_t *ir;

static void begin(void) {
  arena = gos_arena_create();
  scratch = gos_arena_create();
  diags = gos_diags_create(arena);
  ir = gos_ir_create(arena, scratch, diags);
}

static void end(void) {
  gos_ir_destroy(ir);
  gos_arena_destroy(scratch);
  gos_arena_destroy(arena);
}

TestSuite(expr, .init = begin, .fini = end);

static const char *parse(const char *text, size_t count, const char *const *names) {
  uint16_t file = gos_diags_add_file(diags, "m.yaml", text, strlen(text));
  return gos_expr_parse(ir, (gos_loc_t){1, 1, file}, text, count, names);
}

static MlirOperation find(const char *symbol) {
  MlirOperation op = mlirBlockGetFirstOperation(mlirModuleGetBody(ir->module));
  for (; !mlirOperationIsNull(op); op = mlirOperationGetNextInBlock(op))
    if (!strcmp(gos_func_string(ir, op, "sym_name"), symbol)) return op;
  cr_fatal("no body %s", symbol);
}

static double run(const gpuos_code_t *code, size_t count, const double *in) {
  double v[GPUOS_MAX_CODE];
  for (size_t i = 0; i < count; i++) {
    double a = code[i].op <= GPUOS_CODE_CONST ? 0 : v[code[i].a];
    double b = code[i].op >= GPUOS_CODE_ADD && code[i].op <= GPUOS_CODE_MIN ? v[code[i].b] : 0;
    switch ((gpuos_code_op_t)code[i].op) {
    case GPUOS_CODE_INPUT: v[i] = in[code[i].a]; break;
    case GPUOS_CODE_CONST: v[i] = (double)code[i].imm; break;
    case GPUOS_CODE_ADD: v[i] = a + b; break;
    case GPUOS_CODE_SUB: v[i] = a - b; break;
    case GPUOS_CODE_MUL: v[i] = a * b; break;
    case GPUOS_CODE_DIV: v[i] = a / b; break;
    case GPUOS_CODE_MAX: v[i] = fmax(a, b); break;
    case GPUOS_CODE_MIN: v[i] = fmin(a, b); break;
    case GPUOS_CODE_NEG: v[i] = -a; break;
    case GPUOS_CODE_ABS: v[i] = fabs(a); break;
    case GPUOS_CODE_EXP: v[i] = exp(a); break;
    case GPUOS_CODE_LOG: v[i] = log(a); break;
    case GPUOS_CODE_SQRT: v[i] = sqrt(a); break;
    case GPUOS_CODE_RSQRT: v[i] = 1 / sqrt(a); break;
    case GPUOS_CODE_TANH: v[i] = tanh(a); break;
    case GPUOS_CODE_ERF: v[i] = erf(a); break;
    case GPUOS_CODE_ROUND: v[i] = a; break; // values below are exact in every dtype
    default: cr_fatal("code %d", code[i].op);
    }
  }
  return v[count - 1];
}

Test(expr, values) {
  static const char *const names[] = {"x", "y"};
  static const double in[] = {0.75, -2.5};
  static const struct {
    const char *text;
    double value;
  } cases[] = {
      {"x + y", -1.75},
      {"x - y - 1", 2.25},
      {"x * y + 2", 0.125},
      {"x + y * 2", -4.25},
      {"(x + y) * 2", -3.5},
      {"x / y / 2", -0.15},
      {"-x * -y", -1.875},
      {"x - -y", -1.75},
      {"max(x, y) + min(x, 0.5)*0*y", 0.75},
      {"abs(y) + x", 3.25},
      {"exp(x) * y", -5.292500041531687},
      {"log(x) + y", -2.787682072451781},
      {"sqrt(x) + 0*y", 0.8660254037844386},
      {"rsqrt(x) + 0*y", 1.1547005383792515},
      {"tanh(x)+0*y", 0.6351489523872873},
      {"erf(x)+0*y", 0.7111556336535151},
      {"sigmoid(y)+0*x", 0.07585818002124355},
      {"silu(y)+0*x", -0.18964545005310887},
      {"silu(x) * y", -1.27346006},
      {"gelu(y)+0*x", -0.015524163},
      {"gelu(x)+0*y", 0.5800295153},
      {"gelu_tanh(x)+0*y", 0.5799605552},
      {"bf16(x) + f16(y) + e4m3(x) + e5m2(x)", -0.25},
      {"1.5e1 * x + .5 + 1E-1*0*y", 11.75},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gpuos_code_t code[GPUOS_MAX_CODE];
    const char *symbol = parse(cases[i].text, 2, names);
    cr_assert(symbol != NULL, "%s", cases[i].text);
    size_t count = gos_body_encode(ir, find(symbol), 0, code);
    double value = run(code, count, in);
    cr_assert(fabs(value - cases[i].value) < 2e-6, "%s = %.9g", cases[i].text, value);
  }
  cr_assert(gos_ir_verify(ir));
}

Test(expr, inputs_are_arguments_in_the_order_of_the_names) {
  static const char *const names[] = {"u", "g"};
  gpuos_code_t code[GPUOS_MAX_CODE];
  size_t count = gos_body_encode(ir, find(parse("g - u", 2, names)), 0, code);
  cr_assert(eq(dbl, run(code, count, (const double[]){1, 10}), 9));
}

Test(expr, an_input_alone_is_a_copy) {
  static const char *const names[] = {"x"};
  gpuos_code_t code[GPUOS_MAX_CODE];
  size_t count = gos_body_encode(ir, find(parse("x", 1, names)), 0, code);
  cr_assert(eq(dbl, run(code, count, (const double[]){3}), 3));
}

Test(expr, an_input_may_have_the_name_of_a_function) {
  static const char *const names[] = {"exp"};
  cr_assert(ne(ptr, (void *)parse("exp(exp)", 1, names), NULL));
}

Test(expr, refusals_build_nothing) {
  static const char *const names[] = {"x"};
  static const char *const cases[] = {
      "",         "x +",     "x x",     "(x",        "x)",    "x ** 2",   "y + x",
      "foo(x)",   "max(x)",  "max(x,)", "exp(x, x)", "1",     "x + 1e99", "x + 1.2.3",
      "x + 0x10", "x + inf", "x + 1e",  "x % 2",     "exp x", "x, x",     "()"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t before = gos_diags_error_count(diags);
    cr_assert(eq(ptr, (void *)parse(cases[i], 1, names), NULL), "%s", cases[i]);
    cr_assert(eq(sz, gos_diags_error_count(diags), before + 1), "%s", cases[i]);
  }
  MlirOperation first = mlirBlockGetFirstOperation(mlirModuleGetBody(ir->module));
  cr_assert(mlirOperationIsNull(first));
}

static const char *chain(const char *part, size_t times) {
  gos_text_t text = {.arena = arena};
  gos_text_add(&text, "x");
  for (size_t i = 0; i < times; i++) gos_text_add(&text, "%s", part);
  return text.at;
}

// One input and 198 additions: 199 operations encode, one more does not fit.
Test(expr, length_ends_where_the_table_entry_does) {
  static const char *const names[] = {"x"};
  gpuos_code_t code[GPUOS_MAX_CODE];
  const char *symbol = parse(chain("+x", 198), 1, names);
  cr_assert(ne(ptr, (void *)symbol, NULL));
  cr_assert(eq(sz, gos_body_encode(ir, find(symbol), 0, code), 199));
  cr_assert(eq(ptr, (void *)parse(chain("+x", 199), 1, names), NULL));
}

Test(expr, nesting_ends_at_a_limit) {
  static const char *const names[] = {"x"};
  static const char openers[] = "(-";
  char text[4096];
  for (size_t i = 0; i < 2; i++) {
    memset(text, openers[i], sizeof text - 1);
    text[sizeof text - 1] = 0;
    cr_assert(eq(ptr, (void *)parse(text, 1, names), NULL));
  }
}
