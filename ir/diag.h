// diag.h: what the user is told, and where.
//
// Errors are collected, never abort, and are printed at the end, sorted by place:
//   model.yaml:9:14: error: 'x' is [8192, 8192] but ... [matmul-inner]
//       9 |   - matmul: {x: a, w: b, out: c}
//         |              ^
//   note: 'b' is declared at model.yaml:6:3 ...
// A slug is stable: scripts and tests match it, not the prose. One thread.
#ifndef GOS_IR_DIAG_H_
#define GOS_IR_DIAG_H_

#include <stdbool.h>
#include <stdio.h>

#include "arena.h"

typedef struct gos_loc {
  uint32_t line, col; // from 1, columns in characters; line 0: no place
  uint16_t file;      // of gos_diags_add_file
} gos_loc_t;

typedef struct gos_diags gos_diags_t;

gos_diags_t *gos_diags_create(gos_arena_t *arena); // messages live in the arena
// Registers a source text (kept by reference) and returns its number. A leading byte order mark is
// no part of the text.
uint16_t gos_diags_add_file(gos_diags_t *diags, const char *name, const char *text, size_t bytes);
const char *gos_diags_file_name(const gos_diags_t *diags, uint16_t file); // NULL if there is none
const char *gos_diags_file_text(const gos_diags_t *diags, uint16_t file, size_t *out_bytes);
// The place of the byte `offset` of a file's text.
gos_loc_t gos_diags_place(const gos_diags_t *diags, uint16_t file, size_t offset);
// The place of text[offset], where `text` stands at `at`, in quotes or not; `at` itself if the
// source spells it otherwise.
gos_loc_t gos_diags_inside(const gos_diags_t *diags, gos_loc_t at, const char *text, size_t offset);

// An error that differs from an earlier one at its place in numbers only is dropped with its notes
// (unrolled layers would repeat it): then false.
bool gos_error(gos_diags_t *diags, gos_loc_t at, const char *slug, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void gos_warning(gos_diags_t *diags, gos_loc_t at, const char *slug, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
// Adds a note to the newest error or warning; `at` may be no place.
void gos_note(gos_diags_t *diags, gos_loc_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

size_t gos_diags_error_count(const gos_diags_t *diags);
// Prints all of them (at most 100 errors, then how many more) and a last line "N errors".
void gos_diags_print(const gos_diags_t *diags, FILE *out);

// The entry of names[0..count) nearest to `word` by edit distance, NULL when none is near.
const char *gos_near_miss(const char *word, const char *const *names, size_t count);

#endif // GOS_IR_DIAG_H_
