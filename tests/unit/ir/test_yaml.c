// The strict YAML tree: places, kinds, numbers, and what is refused.
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "yaml_tree.h"

static gos_arena_t *arena;
static gos_diags_t *diags;

static void begin(void) {
  arena = gos_arena_create();
  diags = gos_diags_create(arena);
}

static void end(void) { gos_arena_destroy(arena); }

TestSuite(yaml, .init = begin, .fini = end);

static gos_yaml_t *parse_bytes(const char *text, size_t bytes) {
  return gos_yaml_parse(arena, diags, gos_diags_add_file(diags, "m.yaml", text, bytes));
}

static gos_yaml_t *parse(const char *text) { return parse_bytes(text, strlen(text)); }

Test(yaml, every_node_knows_its_place) {
  gos_yaml_t *root = parse("a: 1\nb:\n  - {c: \"x\", d: [1, 2]}\n");
  cr_assert(root && root->kind == GOS_YAML_MAP && root->count == 2);
  gos_yaml_t *item = gos_yaml_get(root, "b")->first, *c = gos_yaml_get(item, "c");
  cr_assert(eq(u32, item->at.line, 3));
  cr_assert(eq(u32, item->at.col, 5));
  cr_assert(eq(u32, c->key_at.col, 6));
  cr_assert(eq(u32, c->at.col, 9));
  cr_assert(c->quoted && !gos_yaml_get(root, "a")->quoted);
  cr_assert(eq(sz, gos_yaml_get(item, "d")->count, 2));
  cr_assert(eq(ptr, gos_yaml_get(root, "z"), NULL));
  cr_assert(eq(ptr, gos_yaml_get(c, "z"), NULL));
}

Test(yaml, reads_numbers_and_nothing_else_as_numbers) {
  static const struct {
    const char *text;
    bool good;
    int64_t value;
  } cases[] = {{"0", true, 0},
               {"-17", true, -17},
               {"8_192", true, 8192},
               {"9223372036854775807", true, INT64_MAX},
               {"-9223372036854775808", true, INT64_MIN},
               {"9223372036854775808", false, 0},
               {"-9223372036854775809", false, 0},
               {"+1", false, 0},
               {"0x10", false, 0},
               {"1.0", false, 0},
               {"1_", false, 0},
               {"_1", false, 0},
               {"", false, 0},
               {"\"1\"", false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gos_yaml_t *root = parse(gos_format(arena, "a: %s", cases[i].text));
    int64_t value;
    cr_assert(root && gos_yaml_int(root->first, &value) == cases[i].good, "%s", cases[i].text);
    cr_assert(eq(i64, value, cases[i].value), "%s", cases[i].text);
  }
}

Test(yaml, reads_floats_without_the_c_library_extras) {
  static const struct {
    const char *text;
    bool good;
    double value;
  } cases[] = {{"1.0e-5", true, 1.0e-5}, {"500000", true, 500000}, {"-.5", true, -0.5},
               {"inf", false, 0},        {".nan", false, 0},       {"0x1p3", false, 0},
               {"1e999", false, 0},      {"1.5x", false, 0},       {"1..2", false, 0},
               {"e5", false, 0},         {"'1.0'", false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gos_yaml_t *root = parse(gos_format(arena, "a: %s", cases[i].text));
    double value;
    cr_assert(root && gos_yaml_float(root->first, &value) == cases[i].good, "%s", cases[i].text);
    cr_assert(value == cases[i].value, "%s", cases[i].text);
  }
}

Test(yaml, reads_only_true_and_false_as_booleans) {
  gos_yaml_t *root = parse("[true, false, yes, True, \"true\", 1]");
  static const bool good[] = {true, true, false, false, false, false};
  size_t i = 0;
  for (gos_yaml_t *node = root->first; node; node = node->next, i++) {
    bool value;
    cr_assert(gos_yaml_bool(node, &value) == good[i], "%s", node->text);
    cr_assert(value == (i == 0), "%s", node->text);
  }
}

Test(yaml, refuses_what_is_not_plain_data) {
  static const char *const cases[] = {"",
                                      "# only a comment\n",
                                      "a: &x 1",
                                      "a: *x",
                                      "a: !!int 1",
                                      "a: 1\n---\nb: 2",
                                      "[a]: 1",
                                      "{a: 1}: 2",
                                      "%YAML 1.2\n---\na: 1",
                                      "a: \"\\0\"",
                                      "a: [1, 2",
                                      "\ta: 1",
                                      "a: 'x",
                                      "a: 1\n b: 2",
                                      "? [x]\n: y",
                                      ("\xff\xfe"
                                       "a"),
                                      "a: \xc3",
                                      "a: \x01",
                                      "a: b: c"};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t before = gos_diags_error_count(diags);
    cr_assert(eq(ptr, parse(cases[i]), NULL), "case %zu", i);
    cr_assert(eq(sz, gos_diags_error_count(diags), before + 1), "case %zu", i);
  }
}

Test(yaml, reports_every_duplicate) {
  cr_assert(eq(ptr, parse("a: 1\nb: {c: 1, c: 2, c: 3}\na: 2\n"), NULL));
  cr_assert(eq(sz, gos_diags_error_count(diags), 3));
}

Test(yaml, finds_duplicates_in_a_large_map_quickly, .timeout = 20) {
  gos_text_t text = {.arena = arena};
  for (int i = 0; i < 200000; i++) gos_text_add(&text, "k%d: 1\n", i);
  gos_text_add(&text, "k7: 1\n");
  cr_assert(eq(ptr, parse_bytes(text.at, text.count), NULL));
  cr_assert(eq(sz, gos_diags_error_count(diags), 1));
}

Test(yaml, stops_at_its_limits_at_once, .timeout = 20) {
  size_t bytes = 1 << 20;
  char *text = malloc(bytes);
  static const char *const patterns[] = {"[", "{a: ", "- ", "? ", "[{a: "};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    size_t length = strlen(patterns[i]), before = gos_diags_error_count(diags);
    for (size_t j = 0; j < bytes; j++) text[j] = patterns[i][j % length];
    cr_assert(eq(ptr, parse_bytes(text, bytes), NULL), "%s", patterns[i]);
    cr_assert(eq(sz, gos_diags_error_count(diags), before + 1), "%s", patterns[i]);
  }
  free(text);
}

Test(yaml, allows_32_levels_and_no_more) {
  char text[80] = "";
  memset(text, '[', 32);
  memset(text + 32, ']', 32);
  cr_assert(ne(ptr, parse(text), NULL));
  memset(text, '[', 33);
  memset(text + 33, ']', 33);
  cr_assert(eq(ptr, parse(text), NULL));
}
