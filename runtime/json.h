// json.h: the part of JSON that a safetensors header uses, read token by token.
//
// No tree is built: the caller asks for what must come next, so depth is bounded by the caller's
// code. Strings are decoded into memory that the caller gives. Every function returns false at the
// first thing that is not as asked for and leaves the cursor there.
#ifndef GPUOS_JSON_H_
#define GPUOS_JSON_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gos_json {
  const char *at, *end; // not NUL-terminated
  char *strings;        // next free byte; a decoded string is never longer than its source
} gos_json_t;

// Skips white space and one byte `c`.
bool gos_json_take(gos_json_t *json, char c);

// True and skipped if `c` comes next; otherwise false, and only white space is skipped.
bool gos_json_maybe(gos_json_t *json, char c);

// A string with escapes, NUL-terminated in json->strings. An encoded NUL is refused: names are C
// strings here.
bool gos_json_string(gos_json_t *json, const char **out_string);

// A number without sign, fraction or exponent that fits in 64 bits.
bool gos_json_uint(gos_json_t *json, uint64_t *out_value);

// True if only white space is left.
bool gos_json_end(gos_json_t *json);

#endif // GPUOS_JSON_H_
