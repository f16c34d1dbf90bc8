// What a user reads: places, excerpts, carets, order, repetitions, near misses.
#define _GNU_SOURCE // open_memstream
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "diag.h"

static gos_arena_t *arena;
static gos_diags_t *diags;

static void begin(void) {
  arena = gos_arena_create();
  diags = gos_diags_create(arena);
}

static void end(void) { gos_arena_destroy(arena); }

TestSuite(diag, .init = begin, .fini = end);

static gos_loc_t at(uint32_t line, uint32_t col) { return (gos_loc_t){line, col, 0}; }

static void add(const char *text) { gos_diags_add_file(diags, "m.yaml", text, strlen(text)); }

static const char *printed(void) {
  char *text;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  gos_diags_print(diags, out);
  fclose(out);
  const char *kept = gos_strndup(arena, text, bytes);
  free(text);
  return kept;
}

Test(diag, prints_nothing_without_a_diagnostic) {
  add("a: 1\n");
  cr_assert(eq(str, (char *)printed(), ""));
}

Test(diag, points_a_caret_at_the_place) {
  add("a: 1\nb: two\n");
  gos_error(diags, at(2, 4), "type", "'%s' is no number", "two");
  gos_note(diags, at(1, 1), "like this one");
  cr_assert(eq(str, (char *)printed(),
               "m.yaml:2:4: error: 'two' is no number [type]\n"
               "    2 | b: two\n"
               "      |    ^\n"
               "m.yaml:1:1: note: like this one\n"
               "    1 | a: 1\n"
               "      | ^\n"
               "1 error\n"));
}

Test(diag, keeps_tabs_and_counts_wide_characters_twice) {
  add("\ta\xc3\xa9\xe4\xb8\xad: x\n");
  gos_error(diags, at(1, 7), "type", "x");
  cr_assert(eq(str, (char *)printed(),
               "m.yaml:1:7: error: x [type]\n"
               "    1 | \ta\xc3\xa9\xe4\xb8\xad: x\n"
               "      | \t      ^\n"
               "1 error\n"));
}

Test(diag, shows_a_long_line_around_the_caret) {
  char line[301];
  memset(line, 'x', 300);
  line[300] = 0;
  line[199] = '!';
  add(line);
  gos_error(diags, at(1, 200), "type", "here");
  const char *text = printed();
  const char *excerpt = strstr(text, "| ...xxx"), *caret = strchr(text, '^');
  cr_assert(excerpt && caret);
  const char *mark = strchr(excerpt, '!'), *caret_line = strstr(text, "      | ");
  cr_assert(eq(sz, (size_t)(mark - excerpt), (size_t)(caret - (caret_line + 6))));
  cr_assert(ne(ptr, strstr(excerpt, "x...\n"), NULL));
}

Test(diag, never_sends_control_characters_to_the_terminal) {
  add("a: \x1b[31m\xff\n");
  gos_error(diags, at(1, 4), "type", "'\x1b[31m\xc2\x9b\xff'");
  cr_assert(eq(str, (char *)printed(),
               "m.yaml:1:4: error: '\\x1b[31m\\x9b?' [type]\n"
               "    1 | a: ?[31m?\n"
               "      |    ^\n"
               "1 error\n"));
}

Test(diag, sorts_by_place_and_counts_errors_only) {
  add("a\nb\nc\n");
  gos_error(diags, at(3, 1), "x", "third");
  gos_warning(diags, at(2, 1), "x", "second");
  gos_error(diags, at(1, 1), "x", "first");
  const char *text = printed();
  cr_assert(lt(ptr, strstr(text, "first"), strstr(text, "second")));
  cr_assert(lt(ptr, strstr(text, "second"), strstr(text, "third")));
  cr_assert(ne(ptr, strstr(text, "m.yaml:2:1: warning: second [x]"), NULL));
  cr_assert(ne(ptr, strstr(text, "\n2 errors\n"), NULL));
}

Test(diag, reports_an_error_of_unrolled_layers_once) {
  add("a\n");
  cr_assert(gos_error(diags, at(1, 1), "x", "no tensor 'w.%d'", 1));
  cr_assert(not(gos_error(diags, at(1, 1), "x", "no tensor 'w.%d'", 22)));
  gos_note(diags, at(1, 1), "dropped with its error");
  cr_assert(gos_error(diags, at(1, 1), "y", "no tensor 'w.1'"));
  cr_assert(gos_error(diags, at(1, 2), "x", "no tensor 'w.1'"));
  cr_assert(gos_error(diags, at(1, 1), "x", "no tensor 'v.1'"));
  cr_assert(eq(sz, gos_diags_error_count(diags), 4));
  cr_assert(eq(ptr, strstr(printed(), "dropped"), NULL));
}

Test(diag, shows_a_hundred_errors_and_the_number_of_the_rest) {
  add("a\n");
  for (uint32_t i = 0; i < 150; i++) gos_error(diags, at(1, i + 1), "x", "e");
  const char *text = printed();
  cr_assert(ne(ptr, strstr(text, "m.yaml:1:100: "), NULL));
  cr_assert(eq(ptr, strstr(text, "m.yaml:1:101: "), NULL));
  cr_assert(ne(ptr, strstr(text, "50 more errors not shown\n150 errors\n"), NULL));
}

Test(diag, cuts_a_huge_message) {
  char name[5001];
  memset(name, 'n', 5000);
  name[5000] = 0;
  gos_error(diags, (gos_loc_t){0}, "x", "%s", name);
  cr_assert(lt(sz, strlen(printed()), 700));
}

Test(diag, counts_lines_as_yaml_does) {
  add("a\r\nb\rc\xc2\x85"
      "d\xe2\x80\xa8"
      "e\n");
  static const struct {
    size_t offset;
    uint32_t line, col;
  } cases[] = {{0, 1, 1}, {3, 2, 1}, {5, 3, 1}, {8, 4, 1}, {12, 5, 1}, {99, 6, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    gos_loc_t place = gos_diags_place(diags, 0, cases[i].offset);
    cr_assert(eq(u32, place.line, cases[i].line), "offset %zu", cases[i].offset);
    cr_assert(eq(u32, place.col, cases[i].col), "offset %zu", cases[i].offset);
  }
}

Test(diag, finds_places_inside_plain_and_quoted_scalars_only) {
  add("a: x + y\nb: \"x + y\"\nc: \"x\\x20+ y\"\n");
  cr_assert(eq(u32, gos_diags_inside(diags, at(1, 4), "x + y", 4).col, 8));
  cr_assert(eq(u32, gos_diags_inside(diags, at(2, 4), "x + y", 4).col, 9));
  cr_assert(eq(u32, gos_diags_inside(diags, at(3, 4), "x + y", 4).col, 4));
}

Test(diag, a_byte_order_mark_is_no_column) {
  add("\xef\xbb\xbf"
      "a: 1\n");
  size_t bytes;
  cr_assert(eq(str, (char *)gos_diags_file_text(diags, 0, &bytes), "a: 1\n"));
  cr_assert(eq(sz, bytes, 5));
  cr_assert(eq(ptr, (void *)gos_diags_file_name(diags, 1), NULL));
}

Test(diag, near_misses) {
  static const char *const names[] = {"matmul", "rmsnorm", "x", "weight", "bf16", "transpose_w"};
  static const struct {
    const char *word, *near;
  } cases[] = {{"matmull", "matmul"},
               {"matmlu", "matmul"},
               {"wieght", "weight"},
               {"BF16", "bf16"},
               {"fp16", NULL},
               {"y", NULL},
               {"softmax", NULL},
               {"matmul", NULL},
               {"transpose_W", "transpose_w"},
               {"", NULL}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *near = gos_near_miss(cases[i].word, names, sizeof names / sizeof *names);
    bool same = near && cases[i].near ? !strcmp(near, cases[i].near) : near == cases[i].near;
    cr_assert(same, "%s: %s", cases[i].word, near ? near : "none");
  }
}
