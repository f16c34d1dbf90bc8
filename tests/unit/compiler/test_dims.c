// Dimension expressions: values, rounding, and every refusal at its column.
#define _GNU_SOURCE // open_memstream
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"

static gos_arena_t *arena, *scratch;
static gos_diags_t *diags;
static gos_ir_t ir; // only its arenas and diagnostics are needed here
static gos_dims_t dims;

static void begin(void) {
  arena = gos_arena_create();
  scratch = gos_arena_create();
  diags = gos_diags_create(arena);
  ir = (gos_ir_t){.arena = arena, .scratch = scratch, .diags = diags};
  dims = (gos_dims_t){0};
  *gos_push(arena, &dims) = (gos_dim_t){"H", 32};
  *gos_push(arena, &dims) = (gos_dim_t){"KV", 8};
  *gos_push(arena, &dims) = (gos_dim_t){"HD", 128};
  *gos_push(arena, &dims) = (gos_dim_t){"BIG", INT64_MAX};
}

static void end(void) {
  gos_arena_destroy(scratch);
  gos_arena_destroy(arena);
}

TestSuite(dims, .init = begin, .fini = end);

static bool eval(const char *text, int64_t *out_value) {
  uint16_t file = gos_diags_add_file(diags, "m.yaml", text, strlen(text));
  return gos_dim_eval(&ir, &dims, (gos_loc_t){1, 1, file}, text, out_value);
}

Test(dims, values) {
  static const struct {
    const char *text;
    int64_t value;
  } cases[] = {{"7", 7},
               {"8_192", 8192},
               {"(H + 2 * KV) * HD", 6144},
               {"H", 32},
               {" H/KV ", 4},
               {"2 + 3 * 4", 14},
               {"10 - 3 - 2", 5},
               {"7 / 2", 3},
               {"-7 / 2", -4},
               {"-7 % 2", 1},
               {"7 % -2", -1},
               {"(H + 63) / 64", 1},
               {"--3", 3},
               {"-(H)", -32},
               {"2 * -3", -6},
               {"100 / 7 % 5", 4},
               {"BIG - 1 + 1", INT64_MAX}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t value;
    cr_assert(eval(cases[i].text, &value), "%s", cases[i].text);
    cr_assert(eq(i64, value, cases[i].value), "%s", cases[i].text);
  }
}

Test(dims, the_newest_of_two_names_counts) {
  int64_t value;
  *gos_push(arena, &dims) = (gos_dim_t){"H", 5};
  cr_assert(eval("H", &value));
  cr_assert(eq(i64, value, 5));
}

Test(dims, refusals) {
  static const struct {
    const char *text, *place, *slug;
  } cases[] = {{"", "1:1:", "[dim-expr]"},
               {"H +", "1:4:", "[dim-expr]"},
               {"H H", "1:3:", "[dim-expr]"},
               {"(H", "1:3:", "[dim-expr]"},
               {"H)", "1:2:", "[dim-expr]"},
               {"1.5", "1:1:", "[dim-expr]"},
               {"2H", "1:1:", "[dim-expr]"},
               {"+1", "1:1:", "[dim-expr]"},
               {"H ** 2", "1:4:", "[dim-expr]"},
               {"H / 0", "1:3:", "[dim-expr]"},
               {"H % (KV - 8)", "1:3:", "[dim-expr]"},
               {"H\xc3\xa9", "1:2:", "[dim-expr]"},
               {"2 * W", "1:5:", "[dim-unknown]"},
               {"BIG + 1", "1:5:", "[dim-overflow]"},
               {"-BIG - 2", "1:6:", "[dim-overflow]"},
               {"BIG * 2", "1:5:", "[dim-overflow]"},
               {"-(-BIG - 1)", "1:1:", "[dim-overflow]"},
               {"(-BIG - 1) / -1", "1:12:", "[dim-overflow]"},
               {"99999999999999999999", "1:1:", "[dim-overflow]"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t value;
    end();
    begin();
    cr_assert(not(eval(cases[i].text, &value)), "%s", cases[i].text);
    cr_assert(eq(sz, gos_diags_error_count(diags), 1), "%s", cases[i].text);
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    gos_diags_print(diags, out);
    fclose(out);
    cr_assert(strstr(text, cases[i].place) && strstr(text, cases[i].slug), "%s: %s", cases[i].text,
              text);
    free(text);
  }
}

Test(dims, nesting_ends_at_a_limit) {
  char text[4096];
  static const char openers[] = "(-";
  for (size_t i = 0; i < 2; i++) {
    int64_t value;
    memset(text, openers[i], sizeof text - 1);
    text[sizeof text - 1] = 0;
    cr_assert(not(eval(text, &value)));
  }
}
