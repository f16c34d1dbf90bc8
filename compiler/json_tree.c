// json_tree.c: a recursive descent over the text, at most MAX_DEPTH deep.
#include "json_tree.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Real configs are 3 deep, have some hundred values and no object of more than 60 members.
enum { MAX_DEPTH = 32, MAX_VALUES = 100000, MAX_MEMBERS = 1000, MAX_NUMBER_CHARS = 64 };

typedef struct reader {
  gos_arena_t *arena;
  gos_diags_t *diags;
  uint16_t file;
  const char *text;
  size_t bytes, i, values;
} reader_t;

static gos_loc_t place(const reader_t *r, size_t offset) {
  return gos_diags_place(r->diags, r->file, offset);
}

// What a message says of the byte at the cursor; the reader prints control characters harmlessly.
static const char *found(const reader_t *r) {
  if (r->i >= r->bytes) return "the end of the file";
  if (!r->text[r->i]) return "a zero byte";
  return gos_format(r->arena, "'%c'", r->text[r->i]);
}

static bool expected(const reader_t *r, const char *what) {
  gos_error(r->diags, place(r, r->i), "json", "expected %s, found %s", what, found(r));
  return false;
}

static void skip_space(reader_t *r) {
  while (r->i < r->bytes && strchr(" \t\r\n", r->text[r->i]) && r->text[r->i]) r->i++;
}

static bool next_is(reader_t *r, char c) {
  skip_space(r);
  return r->i < r->bytes && r->text[r->i] == c;
}

static bool maybe(reader_t *r, char c) {
  bool there = next_is(r, c);
  r->i += there;
  return there;
}

// ---- strings ------------------------------------------------------------------------------------

// Bytes of the well-formed UTF-8 character at p, 0 if it is none: no overlong forms, no surrogates.
static size_t utf8_bytes(const unsigned char *p, size_t left) {
  if (*p < 0x80) return 1;
  size_t n = *p >= 0xc2 && *p <= 0xdf ? 2 : *p >> 4 == 0xe ? 3 : *p >= 0xf0 && *p <= 0xf4 ? 4 : 0;
  if (n == 0 || n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if (p[i] >> 6 != 2) return 0;
  if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f)) return 0;
  if ((*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f)) return 0;
  return n;
}

static void add_utf8(gos_text_t *out, uint32_t c) {
  char p[4];
  size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  static const unsigned lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = n; i-- > 1; c >>= 6) p[i] = (char)(0x80 | (c & 0x3f));
  p[0] = (char)(lead[n] | c);
  gos_text_add_bytes(out, p, n);
}

static bool hex4(reader_t *r, uint32_t *out_code) {
  *out_code = 0;
  for (int digit = 0; digit < 4; digit++, r->i++) {
    const char *hex = "0123456789abcdef0123456789ABCDEF";
    const char *at = r->i < r->bytes && r->text[r->i] ? strchr(hex, r->text[r->i]) : NULL;
    if (!at) return expected(r, "four hexadecimal digits");
    *out_code = *out_code << 4 | ((uint32_t)(at - hex) & 15);
  }
  return true;
}

// After "\u". Keys and values are C strings here, so an encoded NUL is refused.
static bool read_code(reader_t *r, gos_text_t *out) {
  uint32_t c, low;
  size_t start = r->i;
  if (!hex4(r, &c)) return false;
  if (c >= 0xd800 && c < 0xdc00 && r->bytes - r->i >= 2 && !memcmp(r->text + r->i, "\\u", 2)) {
    r->i += 2;
    if (!hex4(r, &low)) return false;
    if (low >= 0xdc00 && low < 0xe000) c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
  }
  if (c == 0 || (c >= 0xd800 && c < 0xe000)) {
    gos_error(r->diags, place(r, start), "json", "\\u%04x is not a character", c);
    return false;
  }
  add_utf8(out, c);
  return true;
}

static bool read_escape(reader_t *r, gos_text_t *out) {
  static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
  if (r->i < r->bytes && r->text[r->i] == 'u') return r->i++, read_code(r, out);
  const char *at = r->i < r->bytes && r->text[r->i] ? strchr(names, r->text[r->i]) : NULL;
  if (!at) return expected(r, "one of \" \\ / b f n r t u after '\\'");
  gos_text_add_bytes(out, &meanings[at - names], 1);
  r->i++;
  return true;
}

static bool read_char(reader_t *r, gos_text_t *out) {
  const unsigned char *p = (const unsigned char *)r->text + r->i;
  if (*p == '\\') return r->i++, read_escape(r, out);
  size_t n = *p < 0x20 ? 0 : utf8_bytes(p, r->bytes - r->i);
  if (n == 0) {
    gos_error(r->diags, place(r, r->i), "json", "%s",
              *p < 0x20 ? "a string holds a control character; write it as an escape"
                        : "a string holds bytes that are not UTF-8");
    return false;
  }
  gos_text_add_bytes(out, r->text + r->i, n);
  r->i += n;
  return true;
}

static const char *read_string(reader_t *r) {
  gos_text_t out = {.arena = r->arena};
  gos_text_add(&out, "%s", "");
  size_t start = r->i++;
  while (r->i < r->bytes && r->text[r->i] != '"')
    if (!read_char(r, &out)) return NULL;
  if (r->i++ < r->bytes) return out.at;
  gos_error(r->diags, place(r, start), "json", "the string that begins here does not end");
  return NULL;
}

// ---- numbers and words --------------------------------------------------------------------------

static size_t digits(const reader_t *r, size_t i) {
  size_t start = i;
  while (i < r->bytes && r->text[i] >= '0' && r->text[i] <= '9') i++;
  return i - start;
}

static bool is_one_of(const reader_t *r, size_t i, const char *set) {
  return i < r->bytes && r->text[i] && strchr(set, r->text[i]);
}

// Bytes of the number at the cursor by JSON's grammar, 0 if there is none.
static size_t number_bytes(const reader_t *r) {
  size_t i = r->i + is_one_of(r, r->i, "-"), n = digits(r, i);
  if (n == 0 || (n > 1 && r->text[i] == '0')) return 0;
  i += n;
  if (is_one_of(r, i, ".")) {
    if ((n = digits(r, i + 1)) == 0) return 0;
    i += 1 + n;
  }
  if (is_one_of(r, i, "eE")) {
    i += 1 + is_one_of(r, i + 1, "+-");
    if ((n = digits(r, i)) == 0) return 0;
    i += n;
  }
  return i - r->i;
}

static bool read_number(reader_t *r, gos_json_value_t *value) {
  size_t n = number_bytes(r);
  if (n == 0) return expected(r, "a value");
  value->kind = GOS_JSON_NUMBER;
  if (n <= MAX_NUMBER_CHARS) {
    value->text = gos_strndup(r->arena, r->text + r->i, n);
    value->number = strtod(value->text, NULL);
  }
  if (n > MAX_NUMBER_CHARS || !isfinite(value->number)) {
    gos_error(r->diags, place(r, value->at), "json", "the number is too long or too large");
    return false;
  }
  r->i += n;
  return true;
}

static bool read_word(reader_t *r, gos_json_value_t *value) {
  static const char *const words[] = {"null", "true", "false"};
  for (size_t w = 0; w < 3; w++) {
    size_t n = strlen(words[w]);
    if (r->bytes - r->i < n || memcmp(r->text + r->i, words[w], n)) continue;
    value->kind = w ? GOS_JSON_BOOL : GOS_JSON_NULL;
    value->text = words[w];
    value->number = w == 1;
    r->i += n;
    return true;
  }
  return read_number(r, value);
}

// ---- values -------------------------------------------------------------------------------------

static gos_json_value_t *read_value(reader_t *r, unsigned depth);

static bool read_elements(reader_t *r, gos_json_value_t *array, unsigned depth) {
  gos_json_value_t **end = &array->first;
  if (maybe(r, ']')) return true;
  do {
    if (!(*end = read_value(r, depth + 1))) return false;
    end = &(*end)->next;
  } while (maybe(r, ','));
  return maybe(r, ']') || expected(r, "',' or ']'");
}

static gos_json_value_t *read_member(reader_t *r, const gos_json_value_t *object, unsigned depth) {
  if (!next_is(r, '"')) return expected(r, "a key in quotes"), NULL;
  size_t at = r->i;
  const char *key = read_string(r);
  if (!key) return NULL;
  const gos_json_value_t *other = gos_json_get(object, key);
  if (other) {
    gos_error(r->diags, place(r, at), "json", "\"%s\" is given twice", key);
    gos_note(r->diags, place(r, other->key_at), "first here");
    return NULL;
  }
  if (!maybe(r, ':')) return expected(r, "':'"), NULL;
  gos_json_value_t *value = read_value(r, depth + 1);
  if (value) value->key = key, value->key_at = at;
  return value;
}

static bool read_members(reader_t *r, gos_json_value_t *object, unsigned depth) {
  gos_json_value_t **end = &object->first;
  size_t count = 0;
  if (maybe(r, '}')) return true;
  do {
    if (++count > MAX_MEMBERS) {
      gos_error(r->diags, place(r, object->at), "json", "an object of more than %d members",
                MAX_MEMBERS);
      return false;
    }
    gos_json_value_t *member = read_member(r, object, depth);
    if (!member) return false;
    *end = member;
    end = &member->next;
  } while (maybe(r, ','));
  return maybe(r, '}') || expected(r, "',' or '}'");
}

static bool read_body(reader_t *r, gos_json_value_t *value, unsigned depth) {
  if (maybe(r, '{')) return value->kind = GOS_JSON_OBJECT, read_members(r, value, depth);
  if (maybe(r, '[')) return value->kind = GOS_JSON_ARRAY, read_elements(r, value, depth);
  if (!next_is(r, '"')) return read_word(r, value);
  value->kind = GOS_JSON_STRING;
  return (value->text = read_string(r)) != NULL;
}

static gos_json_value_t *read_value(reader_t *r, unsigned depth) {
  skip_space(r);
  if (depth > MAX_DEPTH || ++r->values > MAX_VALUES) {
    gos_error(r->diags, place(r, r->i), "json", "more than %d %s",
              depth > MAX_DEPTH ? MAX_DEPTH : MAX_VALUES,
              depth > MAX_DEPTH ? "arrays and objects inside each other" : "values");
    return NULL;
  }
  gos_json_value_t *value = gos_alloc(r->arena, sizeof *value);
  value->at = r->i;
  return read_body(r, value, depth) ? value : NULL;
}

gos_json_value_t *gos_json_read(gos_arena_t *arena, gos_diags_t *diags, uint16_t file) {
  reader_t r = {.arena = arena, .diags = diags, .file = file};
  r.text = gos_diags_file_text(diags, file, &r.bytes);
  gos_json_value_t *value = read_value(&r, 0);
  if (!value) return NULL;
  skip_space(&r);
  return r.i == r.bytes || expected(&r, "the end of the file") ? value : NULL;
}

const gos_json_value_t *gos_json_get(const gos_json_value_t *object, const char *key) {
  for (const gos_json_value_t *member = object->first; member; member = member->next)
    if (member->key && !strcmp(member->key, key)) return member;
  return NULL;
}

bool gos_json_integer(const gos_json_value_t *value, int64_t *out_integer) {
  *out_integer = 0;
  if (value->kind != GOS_JSON_NUMBER || strpbrk(value->text, ".eE")) return false;
  errno = 0;
  long long integer = strtoll(value->text, NULL, 10);
  if (errno) return false;
  *out_integer = integer;
  return true;
}

const char *gos_json_kind_name(gos_json_kind_t kind) {
  static const char *const names[] = {"null",     "true or false", "a number",
                                      "a string", "an array",      "an object"};
  return names[kind];
}
