// diag.c: collects errors, then prints them like a compiler should: place, sentence, source, caret.
#include "diag.h"

#include <stdlib.h>
#include <string.h>

enum {
  SHOWN_ERRORS = 100,
  SHOWN_CHARS = 88,       // of a source line: with the gutter it fits 100 columns
  LEAD_CHARS = 60,        // kept to the left of the caret when the line does not fit
  MESSAGE_BYTES = 600,    // a hostile name must not fill the screen
  MAX_INSIDE_COL = 4096,  // likewise: beyond it places are coarser
  MAX_EXCERPT_COL = 65536 // a line without line breaks is no help, and slow to walk
};

typedef struct note {
  gos_loc_t at;
  const char *text;
  struct note *next;
} note_t;

typedef struct diag {
  gos_loc_t at;
  bool warning;
  const char *slug, *text;
  note_t *notes, **notes_end;
  size_t order;
} diag_t;

typedef struct source {
  const char *name, *text;
  size_t bytes;
  GOS_ARRAY(size_t) lines; // byte offset of each
} source_t;

struct gos_diags {
  gos_arena_t *arena;
  GOS_ARRAY(source_t) files;
  GOS_ARRAY(diag_t *) all;
  diag_t *newest; // NULL: the newest one was a repetition, and so are its notes
  size_t error_count;
  uint64_t *seen; // hashes, open addressing, 0 is free
  size_t seen_count, seen_room;
};

gos_diags_t *gos_diags_create(gos_arena_t *arena) {
  gos_diags_t *diags = gos_alloc(arena, sizeof *diags);
  diags->arena = arena;
  return diags;
}

// ---- source texts -------------------------------------------------------------------------------

// Bytes of the line break at text[i], 0 if there is none. YAML's breaks, as libyaml counts them:
// LF, CR, CR LF, U+0085, U+2028, U+2029.
static size_t break_bytes(const char *text, size_t bytes, size_t i) {
  const unsigned char *p = (const unsigned char *)text + i;
  size_t left = bytes - i;
  if (*p == '\n') return 1;
  if (*p == '\r') return left > 1 && p[1] == '\n' ? 2 : 1;
  if (*p == 0xc2 && left > 1 && p[1] == 0x85) return 2;
  if (*p == 0xe2 && left > 2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9)) return 3;
  return 0;
}

uint16_t gos_diags_add_file(gos_diags_t *diags, const char *name, const char *text, size_t bytes) {
  if (diags->files.count > UINT16_MAX) GOS_BUG("too many files");
  bool marked = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3); // no column for a byte order mark
  source_t file = {.name = name, .text = marked ? text + 3 : text};
  file.bytes = marked ? bytes - 3 : bytes;
  *gos_push(diags->arena, &file.lines) = 0;
  for (size_t i = 0; i < file.bytes;) {
    size_t n = break_bytes(file.text, file.bytes, i);
    i += n ? n : 1;
    if (n) *gos_push(diags->arena, &file.lines) = i;
  }
  *gos_push(diags->arena, &diags->files) = file;
  return (uint16_t)(diags->files.count - 1);
}

static const source_t *source_of(const gos_diags_t *diags, uint16_t file) {
  if (file >= diags->files.count) GOS_BUG("no file %u", file);
  return &diags->files.at[file];
}

const char *gos_diags_file_name(const gos_diags_t *diags, uint16_t file) {
  return file < diags->files.count ? diags->files.at[file].name : NULL;
}

const char *gos_diags_file_text(const gos_diags_t *diags, uint16_t file, size_t *out_bytes) {
  const source_t *source = source_of(diags, file);
  *out_bytes = source->bytes;
  return source->text;
}

// Decodes the character at text (left > 0 bytes); an ill-formed byte is U+FFFD, one byte long.
static uint32_t decode(const char *text, size_t left, size_t *out_bytes) {
  const unsigned char *p = (const unsigned char *)text;
  size_t n = *p < 0x80                  ? 1u
             : *p >= 0xc2 && *p <= 0xdf ? 2u
             : (*p & 0xf0) == 0xe0      ? 3u
             : *p >= 0xf0 && *p <= 0xf4 ? 4u
                                        : 0u;
  *out_bytes = 1;
  if (n == 1) return *p;
  if (n == 0 || n > left) return 0xfffd;
  uint32_t c = *p & (0x7fu >> n);
  for (size_t i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0xfffd;
    c = c << 6 | (p[i] & 0x3fu);
  }
  *out_bytes = n;
  return c;
}

// The source line of a place, without its break; NULL if there is none.
static const char *line_of(const gos_diags_t *diags, gos_loc_t at, size_t *out_bytes) {
  *out_bytes = 0;
  if (at.line == 0 || at.file >= diags->files.count) return NULL;
  const source_t *source = source_of(diags, at.file);
  if (at.line > source->lines.count) return NULL;
  size_t start = source->lines.at[at.line - 1], end = source->bytes;
  if (at.line < source->lines.count) end = source->lines.at[at.line];
  size_t n = end - start < 3 ? end - start : 3; // of the line break
  while (n && break_bytes(source->text, end, end - n) != n) n--;
  end -= n;
  *out_bytes = end - start;
  return source->text + start;
}

gos_loc_t gos_diags_place(const gos_diags_t *diags, uint16_t file, size_t offset) {
  const source_t *source = source_of(diags, file);
  size_t lo = 0, hi = source->lines.count; // the line that starts at or before offset
  while (hi - lo > 1) {
    size_t middle = lo + (hi - lo) / 2;
    if (source->lines.at[middle] <= offset)
      lo = middle;
    else
      hi = middle;
  }
  gos_loc_t at = {.line = (uint32_t)lo + 1, .col = 1, .file = file};
  for (size_t i = source->lines.at[lo], n; i < offset && i < source->bytes; i += n, at.col++)
    decode(source->text + i, source->bytes - i, &n);
  return at;
}

gos_loc_t gos_diags_inside(const gos_diags_t *diags, gos_loc_t at, const char *text,
                           size_t offset) {
  size_t bytes, i = 0, n, length = strlen(text);
  const char *line = line_of(diags, at, &bytes);
  if (!line || at.col > MAX_INSIDE_COL) return at;
  for (uint32_t col = 1; col < at.col && i < bytes; i += n, col++) decode(line + i, bytes - i, &n);
  gos_loc_t inside = at;
  if (i < bytes && (line[i] == '"' || line[i] == '\'') && text[0] != line[i]) i++, inside.col++;
  if (bytes - i < length || memcmp(line + i, text, length)) return at;
  for (size_t j = 0; j < offset && j < length; j += n, inside.col++)
    decode(text + j, length - j, &n);
  return inside;
}

// ---- collecting ---------------------------------------------------------------------------------

static bool seen_insert(gos_diags_t *diags, uint64_t hash) {
  size_t i = hash & (diags->seen_room - 1);
  while (diags->seen[i] && diags->seen[i] != hash) i = (i + 1) & (diags->seen_room - 1);
  bool fresh = !diags->seen[i];
  diags->seen[i] = hash;
  diags->seen_count += fresh;
  return fresh;
}

static void seen_grow(gos_diags_t *diags) {
  if (diags->seen_count * 2 < diags->seen_room) return;
  uint64_t *old = diags->seen;
  size_t old_room = diags->seen_room;
  diags->seen_room = old_room ? old_room * 2 : 64;
  diags->seen = gos_alloc(diags->arena, diags->seen_room * sizeof *diags->seen);
  diags->seen_count = 0;
  for (size_t i = 0; i < old_room; i++)
    if (old[i]) seen_insert(diags, old[i]);
}

static uint64_t hash_text(uint64_t hash, const char *text, bool digits) {
  for (; *text; text++)
    if (digits || *text < '0' || *text > '9')
      hash = (hash ^ (unsigned char)*text) * 0x100000001b3u; // FNV-1a
  return hash;
}

// Unrolled layers repeat an error at one place with other numbers in it: only the first counts.
static bool is_repetition(gos_diags_t *diags, gos_loc_t at, const char *slug, const char *text) {
  if (at.line == 0) return false;
  uint64_t place = (uint64_t)at.line << 32 ^ (uint64_t)at.file << 24 ^ at.col;
  uint64_t hash = (0xcbf29ce484222325u ^ place) * 0x9e3779b97f4a7c15u;
  hash = hash_text(hash_text(hash, slug, true), text, false);
  hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u; // the line is in the upper half
  hash ^= hash >> 32;
  seen_grow(diags);
  return !seen_insert(diags, hash ? hash : 1);
}

static bool collect(gos_diags_t *diags, gos_loc_t at, bool warning, const char *slug,
                    const char *format, va_list args) {
  char text[MESSAGE_BYTES + 8]; // longer ones are cut when printed; repetitions cost no memory
  vsnprintf(text, sizeof text, format, args);
  diags->newest = NULL;
  if (is_repetition(diags, at, slug, text)) return false;
  diag_t *diag = gos_alloc(diags->arena, sizeof *diag);
  *diag = (diag_t){.at = at, .warning = warning, .slug = slug};
  diag->text = gos_strndup(diags->arena, text, strlen(text));
  diag->order = diags->all.count;
  diag->notes_end = &diag->notes;
  *gos_push(diags->arena, &diags->all) = diag;
  diags->newest = diag;
  diags->error_count += !warning;
  return true;
}

bool gos_error(gos_diags_t *diags, gos_loc_t at, const char *slug, const char *format, ...) {
  va_list args;
  va_start(args, format);
  bool fresh = collect(diags, at, false, slug, format, args);
  va_end(args);
  return fresh;
}

void gos_warning(gos_diags_t *diags, gos_loc_t at, const char *slug, const char *format, ...) {
  va_list args;
  va_start(args, format);
  collect(diags, at, true, slug, format, args);
  va_end(args);
}

void gos_note(gos_diags_t *diags, gos_loc_t at, const char *format, ...) {
  if (!diags->newest) return;
  note_t *note = gos_alloc(diags->arena, sizeof *note);
  note->at = at;
  va_list args;
  va_start(args, format);
  note->text = gos_vformat(diags->arena, format, args);
  va_end(args);
  *diags->newest->notes_end = note;
  diags->newest->notes_end = &note->next;
}

size_t gos_diags_error_count(const gos_diags_t *diags) { return diags->error_count; }

// ---- printing -----------------------------------------------------------------------------------

// Columns of a terminal that a character takes: 2 for East Asian wide, 0 for combining marks.
static int char_width(uint32_t c) {
  if ((c >= 0x300 && c <= 0x36f) || (c >= 0x200b && c <= 0x200f) || c == 0xfeff) return 0;
  if ((c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) ||
      (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
      (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
      (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) || c >= 0x20000)
    return 2;
  return 1;
}

// Control characters of a hostile file must not reach a terminal.
static bool is_control(uint32_t c) { return c < 0x20 || (c >= 0x7f && c <= 0x9f); }

static void print_message(const char *text, FILE *out) {
  size_t left = strlen(text), shown = 0, n;
  for (; left && shown < MESSAGE_BYTES; text += n, left -= n, shown += n) {
    uint32_t c = decode(text, left, &n);
    if (is_control(c))
      fprintf(out, "\\x%02x", (unsigned)c);
    else if (c == 0xfffd && n == 1)
      fputc('?', out);
    else
      fwrite(text, 1, n, out);
  }
  if (left) fputs("...", out);
}

static void print_char(uint32_t c, const char *text, size_t n, FILE *out) {
  if (c == '\t' || !is_control(c))
    c == 0xfffd && n == 1 ? (void)fputc('?', out) : (void)fwrite(text, 1, n, out);
  else
    fputc('?', out);
}

static size_t count_chars(const char *line, size_t bytes, size_t limit) {
  size_t count = 0;
  for (size_t i = 0, n; i < bytes && count < limit; i += n, count++)
    decode(line + i, bytes - i, &n);
  return count;
}

// The line and a caret under column `at.col`; a line that is too long is shown around the caret.
static void print_excerpt(const gos_diags_t *diags, gos_loc_t at, FILE *out) {
  size_t bytes;
  const char *line = line_of(diags, at, &bytes);
  if (!line || at.col > MAX_EXCERPT_COL) return;
  size_t caret = at.col ? at.col - 1 : 0, first = 0;
  size_t chars = count_chars(line, bytes, caret + SHOWN_CHARS + 1);
  if (chars > SHOWN_CHARS && caret > LEAD_CHARS) first = caret - LEAD_CHARS;
  bool cut = chars > first + SHOWN_CHARS;
  gos_text_t pad = {.arena = diags->arena};
  gos_text_add(&pad, "%s", first ? "   " : "");
  fprintf(out, "%5u | %s", at.line, first ? "..." : "");
  size_t index = 0;
  for (size_t i = 0, n; i < bytes && index < first + SHOWN_CHARS; i += n, index++) {
    uint32_t c = decode(line + i, bytes - i, &n);
    if (index < first) continue;
    print_char(c, line + i, n, out);
    if (index >= caret) continue;
    gos_text_add_bytes(&pad, c == '\t' ? "\t" : "  ", (size_t)(c == '\t' ? 1 : char_width(c)));
  }
  for (; index < caret && index < first + SHOWN_CHARS; index++) gos_text_add(&pad, " ");
  fprintf(out, "%s\n      | %s^\n", cut ? "..." : "", pad.at);
}

static void print_place(const gos_diags_t *diags, gos_loc_t at, FILE *out) {
  if (at.line && at.file < diags->files.count)
    fprintf(out, "%s:%u:%u: ", diags->files.at[at.file].name, at.line, at.col);
}

static void print_one(const gos_diags_t *diags, const diag_t *diag, FILE *out) {
  print_place(diags, diag->at, out);
  fputs(diag->warning ? "warning: " : "error: ", out);
  print_message(diag->text, out);
  fprintf(out, " [%s]\n", diag->slug);
  print_excerpt(diags, diag->at, out);
  for (const note_t *note = diag->notes; note; note = note->next) {
    print_place(diags, note->at, out);
    fputs("note: ", out);
    print_message(note->text, out);
    fputc('\n', out);
    bool same = note->at.file == diag->at.file && note->at.line == diag->at.line &&
                note->at.col == diag->at.col;
    if (!same) print_excerpt(diags, note->at, out);
  }
}

static int by_place(const void *a, const void *b) {
  const diag_t *x = *(const diag_t *const *)a, *y = *(const diag_t *const *)b;
  if (x->at.file != y->at.file) return x->at.file < y->at.file ? -1 : 1;
  if (x->at.line != y->at.line) return x->at.line < y->at.line ? -1 : 1;
  if (x->at.col != y->at.col) return x->at.col < y->at.col ? -1 : 1;
  return x->order < y->order ? -1 : x->order > y->order;
}

void gos_diags_print(const gos_diags_t *diags, FILE *out) {
  size_t count = diags->all.count, errors = diags->error_count, shown = 0;
  if (count == 0) return;
  diag_t **sorted = gos_alloc(diags->arena, count * sizeof *sorted);
  memcpy(sorted, diags->all.at, count * sizeof *sorted);
  qsort(sorted, count, sizeof *sorted, by_place);
  for (size_t i = 0; i < count && shown < SHOWN_ERRORS; i++) {
    print_one(diags, sorted[i], out);
    shown += !sorted[i]->warning;
  }
  if (errors > shown) fprintf(out, "%zu more errors not shown\n", errors - shown);
  if (errors) fprintf(out, "%zu error%s\n", errors, errors == 1 ? "" : "s");
}
