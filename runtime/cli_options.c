// cli_options.c: reads options, and says what was meant when one is misspelt.
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

void gos_say(const char *text, ...) {
  va_list list;
  va_start(list, text);
  fputs("gpuos: ", stderr);
  vfprintf(stderr, text, list);
  fputc('\n', stderr);
  va_end(list);
}

// ---- near misses --------------------------------------------------------------------------------

enum { WORD_MAX = 31 };

static int least(int a, int b, int c) {
  int ab = a < b ? a : b;
  return ab < c ? ab : c;
}

// Levenshtein distance; words beyond WORD_MAX are far from everything.
static int distance(const char *a, const char *b) {
  size_t n = strlen(a), m = strlen(b);
  if (n > WORD_MAX || m > WORD_MAX) return WORD_MAX;
  int row[WORD_MAX + 1];
  for (size_t j = 0; j <= m; j++) row[j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      int here = least(row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
      diagonal = row[j];
      row[j] = here;
    }
  }
  return row[m];
}

const char *gos_suggest(const char *word, const char *const *words, int count) {
  const char *best = NULL;
  int best_distance = (int)strlen(word) / 3 + 1; // a third of the letters may be wrong
  for (int i = 0; i < count; i++) {
    int d = distance(word, words[i]);
    if (d > best_distance) continue;
    best = words[i];
    best_distance = d - 1;
  }
  return best;
}

// ---- words --------------------------------------------------------------------------------------

static int unknown_option(const char *word, const gos_option_t *options, int count) {
  const char *names[64];
  int name_count = 0;
  for (; name_count < count && name_count < 64; name_count++)
    names[name_count] = options[name_count].name;
  char name[WORD_MAX + 2];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
  const char *near = gos_suggest(name, names, name_count);
  if (near != NULL)
    gos_say("no option '%s'; did you mean '%s'?", name, near);
  else
    gos_say("no option '%s'; --help lists them", name);
  return GOS_WORD_BAD;
}

static int find_option(const char *word, const gos_option_t *options, int count) {
  size_t length = strcspn(word, "=");
  for (int i = 0; i < count; i++)
    if (strlen(options[i].name) == length && strncmp(word, options[i].name, length) == 0) return i;
  return -1;
}

// The option's value: behind '=', or the next word.
static int take_value(gos_words_t *words, const gos_option_t *option, const char *word, int index,
                      const char **out_value) {
  const char *equals = strchr(word, '=');
  if (option->value == NULL && equals != NULL) {
    gos_say("%s takes no value", option->name);
    return GOS_WORD_BAD;
  }
  if (option->value == NULL) return index;
  if (equals == NULL && words->at == words->argc) {
    gos_say("%s needs a value: %s=%s", option->name, option->name, option->value);
    return GOS_WORD_BAD;
  }
  *out_value = equals != NULL ? equals + 1 : words->argv[words->at++];
  return index;
}

int gos_next_word(gos_words_t *words, const gos_option_t *options, int option_count,
                  const char **out_value) {
  *out_value = NULL;
  if (words->at == words->argc) return GOS_WORD_END;
  const char *word = words->argv[words->at++];
  if (word[0] != '-' || word[1] == '\0') {
    *out_value = word;
    return GOS_WORD_PLAIN;
  }
  int index = find_option(word, options, option_count);
  if (index < 0) return unknown_option(word, options, option_count);
  return take_value(words, &options[index], word, index, out_value);
}

bool gos_parse_words(gos_words_t *words, const gos_option_t *options, int option_count,
                     const char *command, bool (*take)(void *into, int option, const char *value),
                     void *into, const char **out_path) {
  const char *value;
  for (int word; (word = gos_next_word(words, options, option_count, &value)) != GOS_WORD_END;) {
    if (word == GOS_WORD_BAD || (word >= 0 && !take(into, word, value))) return false;
    if (word >= 0) continue;
    if (*out_path != NULL) {
      gos_say("%s takes one file; '%s' is one too many", command, value);
      return false;
    }
    *out_path = value;
  }
  return true;
}

void gos_print_options(FILE *out, const gos_option_t *options, int option_count) {
  for (int i = 0; i < option_count; i++) {
    char left[48];
    snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].value != NULL ? "=" : "",
             options[i].value != NULL ? options[i].value : "");
    fprintf(out, "  %-28s %s\n", left, options[i].help);
  }
}

bool gos_parse_count(const char *name, const char *text, uint64_t most, uint64_t *out_value) {
  uint64_t value = 0;
  const char *at = text;
  for (; *at >= '0' && *at <= '9'; at++) {
    uint64_t digit = (uint64_t)(*at - '0');
    if (value > (most - digit) / 10 || digit > most) break;
    value = value * 10 + digit;
  }
  if (at == text || *at != '\0') {
    gos_say("%s=%s: not a number from 0 to %llu", name, text, (unsigned long long)most);
    return false;
  }
  *out_value = value;
  return true;
}

bool gos_parse_device(const char *text, int *out_kind) {
  *out_kind = strcmp(text, "cpu") == 0    ? GPUOS_DEVICE_CPU
              : strcmp(text, "cuda") == 0 ? GPUOS_DEVICE_CUDA
                                          : -1;
  if (*out_kind < 0) gos_say("--device=%s: there are cpu and cuda", text);
  return *out_kind >= 0;
}

static int hex_digit(char c) {
  static const char digits[] = "0123456789abcdef";
  const char *at = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
  return at != NULL ? (int)(at - digits) : -1;
}

bool gos_parse_mask(const char *name, const char *text, uint32_t out_mask[GPUOS_MAX_SMS / 32]) {
  const char *digits = strncmp(text, "0x", 2) == 0 ? text + 2 : text;
  size_t count = strlen(digits);
  uint32_t any = 0;
  memset(out_mask, 0, GPUOS_MAX_SMS / 8);
  for (size_t i = 0; i < count && count <= GPUOS_MAX_SMS / 4; i++) {
    int digit = hex_digit(digits[count - 1 - i]);
    if (digit < 0) break;
    out_mask[i / 8] |= (uint32_t)digit << i % 8 * 4;
    any += i + 1 == count; // all digits were
  }
  if (any == 0)
    gos_say("%s=%s: up to %d hex digits are expected, SM 0 last", name, text, GPUOS_MAX_SMS / 4);
  return any != 0;
}
