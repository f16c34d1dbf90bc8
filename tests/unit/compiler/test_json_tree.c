// What compiler/json_tree.c takes, and where it says that the rest is wrong.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../../../compiler/json_tree.h" // by path: no other header could be meant

typedef struct doc {
  gos_arena_t *arena;
  gos_diags_t *diags;
  gos_json_value_t *value;
} doc_t;

static doc_t read_bytes(const char *text, size_t bytes) {
  doc_t doc = {.arena = gos_arena_create()};
  doc.diags = gos_diags_create(doc.arena);
  uint16_t file = gos_diags_add_file(doc.diags, "t.json", text, bytes);
  doc.value = gos_json_read(doc.arena, doc.diags, file);
  return doc;
}

// What the reader says, without excerpts: the first line of its report.
static char *report_of(const doc_t *doc) {
  char *report = NULL;
  size_t bytes;
  FILE *out = open_memstream(&report, &bytes);
  gos_diags_print(doc->diags, out);
  fclose(out);
  report[strcspn(report, "\n")] = 0;
  return report;
}

static void expect_report(const char *text, size_t bytes, const char *report) {
  char *copy = malloc(bytes ? bytes : 1); // exactly the text: a byte read past it is an error
  memcpy(copy, text, bytes);
  doc_t doc = read_bytes(copy, bytes);
  char *said = report_of(&doc);
  cr_expect_null(doc.value, "took %s", text);
  cr_expect_str_eq(said, report, "of %s:\n%s\n%s", text, said, report);
  free(said);
  gos_arena_destroy(doc.arena);
  free(copy);
}

// A text of `count` times `unit`.
static char *repeated(const char *unit, size_t count) {
  size_t length = strlen(unit);
  char *text = malloc(length * count + 1);
  for (size_t i = 0; i < count; i++) memcpy(text + i * length, unit, length);
  text[length * count] = 0;
  return text;
}

Test(json_tree, reads_every_kind_of_value) {
  const char *text = " {\"n\": null, \"t\":true,\"f\":false, \"i\": -12, \"x\": 1.5e-3,\n"
                     "\t\"s\": \"a\", \"l\": [1, [], {}], \"o\": {\"p\": 1}}\r\n";
  doc_t doc = read_bytes(text, strlen(text));
  const char *keys[] = {"n", "t", "f", "i", "x", "s", "l", "o"};
  const gos_json_kind_t kinds[] = {GOS_JSON_NULL,   GOS_JSON_BOOL,   GOS_JSON_BOOL,
                                   GOS_JSON_NUMBER, GOS_JSON_NUMBER, GOS_JSON_STRING,
                                   GOS_JSON_ARRAY,  GOS_JSON_OBJECT};
  cr_assert_not_null(doc.value);
  for (size_t i = 0; i < 8; i++) {
    const gos_json_value_t *value = gos_json_get(doc.value, keys[i]);
    cr_assert_not_null(value, "%s", keys[i]);
    cr_expect_eq(value->kind, kinds[i], "%s", keys[i]);
  }
  cr_expect_eq(gos_json_get(doc.value, "t")->number, 1);
  cr_expect_eq(gos_json_get(doc.value, "x")->number, 1.5e-3);
  cr_expect_str_eq(gos_json_get(doc.value, "x")->text, "1.5e-3");
  cr_expect_null(gos_json_get(doc.value, "missing"));
  gos_arena_destroy(doc.arena);
}

Test(json_tree, values_know_their_place) {
  const char *text = "{\n  \"key\": 7\n}";
  doc_t doc = read_bytes(text, strlen(text));
  cr_assert_not_null(doc.value);
  const gos_json_value_t *value = gos_json_get(doc.value, "key");
  gos_loc_t key = gos_diags_place(doc.diags, 0, value->key_at);
  gos_loc_t at = gos_diags_place(doc.diags, 0, value->at);
  cr_expect(key.line == 2 && key.col == 3);
  cr_expect(at.line == 2 && at.col == 10);
  gos_arena_destroy(doc.arena);
}

Test(json_tree, decodes_escapes) {
  static const char *const cases[][2] = {
      {"\"\"", ""},
      {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
      {"\"\\u0041\\u00e9\\u20AC\"", "A\xc3\xa9\xe2\x82\xac"},
      {"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
      {"\"\xf0\x9f\x98\x80 \xc3\xa9\"", "\xf0\x9f\x98\x80 \xc3\xa9"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    doc_t doc = read_bytes(cases[i][0], strlen(cases[i][0]));
    cr_assert_not_null(doc.value, "%s", cases[i][0]);
    cr_expect_str_eq(doc.value->text, cases[i][1]);
    gos_arena_destroy(doc.arena);
  }
}

Test(json_tree, tells_integers_from_other_numbers) {
  static const struct {
    const char *text;
    bool integer;
    int64_t value;
  } cases[] = {{"0", true, 0},
               {"-0", true, 0},
               {"9223372036854775807", true, INT64_MAX},
               {"-9223372036854775808", true, INT64_MIN},
               {"9223372036854775808", false, 0},
               {"8.0", false, 0},
               {"1e3", false, 0},
               {"\"8\"", false, 0},
               {"true", false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t value;
    doc_t doc = read_bytes(cases[i].text, strlen(cases[i].text));
    cr_assert_not_null(doc.value, "%s", cases[i].text);
    cr_expect_eq(gos_json_integer(doc.value, &value), cases[i].integer, "%s", cases[i].text);
    cr_expect_eq(value, cases[i].value, "%s", cases[i].text);
    gos_arena_destroy(doc.arena);
  }
}

Test(json_tree, refuses_with_a_place) {
  static const char *const cases[][2] = {
      {"", "t.json:1:1: error: expected a value, found the end of the file [json]"},
      {"{", "t.json:1:2: error: expected a key in quotes, found the end of the file [json]"},
      {"{\"a\"", "t.json:1:5: error: expected ':', found the end of the file [json]"},
      {"{\"a\" 1}", "t.json:1:6: error: expected ':', found '1' [json]"},
      {"{\"a\": 1,}", "t.json:1:9: error: expected a key in quotes, found '}' [json]"},
      {"{\"a\": 1 \"b\": 2}", "t.json:1:9: error: expected ',' or '}', found '\"' [json]"},
      {"{a: 1}", "t.json:1:2: error: expected a key in quotes, found 'a' [json]"},
      {"{\"a\": 1, \"a\": 2}", "t.json:1:10: error: \"a\" is given twice [json]"},
      {"{\"a\": 1, \"\\u0061\": 2}", "t.json:1:10: error: \"a\" is given twice [json]"},
      {"[1, ]", "t.json:1:5: error: expected a value, found ']' [json]"},
      {"[1 2]", "t.json:1:4: error: expected ',' or ']', found '2' [json]"},
      {"[1", "t.json:1:3: error: expected ',' or ']', found the end of the file [json]"},
      {"1 2", "t.json:1:3: error: expected the end of the file, found '2' [json]"},
      {"nul", "t.json:1:1: error: expected a value, found 'n' [json]"},
      {"nullx", "t.json:1:5: error: expected the end of the file, found 'x' [json]"},
      {"NaN", "t.json:1:1: error: expected a value, found 'N' [json]"},
      {"01", "t.json:1:1: error: expected a value, found '0' [json]"},
      {"+1", "t.json:1:1: error: expected a value, found '+' [json]"},
      {"-", "t.json:1:1: error: expected a value, found '-' [json]"},
      {"1.", "t.json:1:1: error: expected a value, found '1' [json]"},
      {".5", "t.json:1:1: error: expected a value, found '.' [json]"},
      {"1e", "t.json:1:1: error: expected a value, found '1' [json]"},
      {"1e999", "t.json:1:1: error: the number is too long or too large [json]"},
      {"// c\n1", "t.json:1:1: error: expected a value, found '/' [json]"},
      {"\"a", "t.json:1:1: error: the string that begins here does not end [json]"},
      {"\"a\\",
       "t.json:1:4: error: expected one of \" \\ / b f n r t u after '\\', found the end of "
       "the file [json]"},
      {"\"\\x\"",
       "t.json:1:3: error: expected one of \" \\ / b f n r t u after '\\', found 'x' [json]"},
      {"\"\\u12\"", "t.json:1:6: error: expected four hexadecimal digits, found '\"' [json]"},
      {"\"\\u0000\"", "t.json:1:4: error: \\u0000 is not a character [json]"},
      {"\"\\ud83d\"", "t.json:1:4: error: \\ud83d is not a character [json]"},
      {"\"\\ud83d\\u0041\"", "t.json:1:4: error: \\ud83d is not a character [json]"},
      {"\"\\ude00\"", "t.json:1:4: error: \\ude00 is not a character [json]"},
      {"\"a\nb\"",
       "t.json:1:3: error: a string holds a control character; write it as an escape [json]"},
      {"\"\xc0\xaf\"", "t.json:1:2: error: a string holds bytes that are not UTF-8 [json]"},
      {"\"\xed\xa0\x80\"", "t.json:1:2: error: a string holds bytes that are not UTF-8 [json]"},
      {"\"\xf4\x90\x80\x80\"", "t.json:1:2: error: a string holds bytes that are not UTF-8 [json]"},
      {"\"\xe2\x82", "t.json:1:2: error: a string holds bytes that are not UTF-8 [json]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect_report(cases[i][0], strlen(cases[i][0]), cases[i][1]);
  expect_report("[1,\0 2]", 7, "t.json:1:4: error: expected a value, found a zero byte [json]");
}

Test(json_tree, bounds_depth_members_and_length_of_numbers) {
  char *deep = repeated("[", 100000), *digits = repeated("9", 1000);
  expect_report(deep, 100000,
                "t.json:1:34: error: more than 32 arrays and objects inside each other [json]");
  expect_report(digits, 1000, "t.json:1:1: error: the number is too long or too large [json]");
  free(deep);
  free(digits);
  char *wide = malloc(32 * 1002);
  size_t bytes = 0;
  for (int i = 0; i <= 1000; i++)
    bytes += (size_t)sprintf(wide + bytes, "%c\"k%d\":%d", i ? ',' : '{', i, i);
  expect_report(wide, bytes, "t.json:1:1: error: an object of more than 1000 members [json]");
  free(wide);
}

Test(json_tree, bounds_the_number_of_values) {
  char *text = repeated(",0", 100001);
  text[0] = '[';
  doc_t doc = read_bytes(text, strlen(text));
  char *said = report_of(&doc);
  cr_expect_null(doc.value);
  cr_expect_not_null(strstr(said, "more than 100000 values [json]"), "%s", said);
  free(said);
  gos_arena_destroy(doc.arena);
  free(text);
}
