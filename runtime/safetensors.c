#include "safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

enum { LENGTH_BYTES = 8 };

typedef struct parser {
  gos_json_t json;
  const char *header; // for places in messages
  const char *data;   // after the header
  uint64_t data_bytes;
  size_t capacity;
  gos_safetensors_t *out;
  gos_error_t *error;
} parser_t;

static gpuos_status_t malformed(parser_t *p, const char *wanted) {
  return gos_fail(p->error, GPUOS_BAD_WEIGHTS, "safetensors header, byte %td: %s expected",
                  p->json.at - p->header + LENGTH_BYTES, wanted);
}

static gpuos_status_t bad_tensor(parser_t *p, const gos_safetensor_t *t, const char *what) {
  return gos_fail(p->error, GPUOS_BAD_WEIGHTS, "safetensors header: tensor '%s' %s", t->name, what);
}

// ---- one tensor ---------------------------------------------------------------------------------

// "shape": [2, 3]
static gpuos_status_t parse_shape(parser_t *p, gos_safetensor_t *t) {
  if (!gos_json_take(&p->json, '[')) return malformed(p, "'['");
  if (gos_json_maybe(&p->json, ']')) return GPUOS_OK;
  do {
    if (t->rank == GOS_SAFETENSORS_RANK) return bad_tensor(p, t, "has too many dimensions");
    if (!gos_json_uint(&p->json, &t->shape[t->rank++])) return malformed(p, "a dimension");
  } while (gos_json_maybe(&p->json, ','));
  return gos_json_take(&p->json, ']') ? GPUOS_OK : malformed(p, "']'");
}

// "data_offsets": [begin, end], from the end of the header.
static gpuos_status_t parse_offsets(parser_t *p, gos_safetensor_t *t) {
  uint64_t begin, end;
  if (!gos_json_take(&p->json, '[') || !gos_json_uint(&p->json, &begin) ||
      !gos_json_take(&p->json, ',') || !gos_json_uint(&p->json, &end) ||
      !gos_json_take(&p->json, ']'))
    return malformed(p, "two data offsets");
  if (begin > end || end > p->data_bytes) return bad_tensor(p, t, "lies outside the file");
  t->data = p->data + begin;
  t->bytes = end - begin;
  return GPUOS_OK;
}

enum field { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_OFFSETS = 4, FIELD_ALL = 7 };

static enum field field_of(const char *key) {
  if (strcmp(key, "dtype") == 0) return FIELD_DTYPE;
  if (strcmp(key, "shape") == 0) return FIELD_SHAPE;
  if (strcmp(key, "data_offsets") == 0) return FIELD_OFFSETS;
  return 0;
}

static gpuos_status_t parse_field(parser_t *p, gos_safetensor_t *t, unsigned *seen) {
  const char *key;
  if (!gos_json_string(&p->json, &key)) return malformed(p, "a key");
  if (!gos_json_take(&p->json, ':')) return malformed(p, "':'");
  enum field field = field_of(key);
  if (field == 0 || (*seen & field) != 0)
    return gos_fail(p->error, GPUOS_BAD_WEIGHTS, "safetensors header: tensor '%s': %s key '%s'",
                    t->name, field == 0 ? "unknown" : "second", key);
  *seen |= field;
  if (field == FIELD_SHAPE) return parse_shape(p, t);
  if (field == FIELD_OFFSETS) return parse_offsets(p, t);
  return gos_json_string(&p->json, &t->dtype) ? GPUOS_OK : malformed(p, "a dtype");
}

// Bits of one element; 0: a dtype we have never heard of.
static uint64_t dtype_bits(const char *dtype) {
  static const struct {
    const char *name;
    uint64_t bits;
  } known[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
               {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
               {"I32", 32},    {"U32", 32}, {"F32", 32}, {"F64", 64},    {"I64", 64},
               {"U64", 64},    {"C64", 64}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(known[i].name, dtype) == 0) return known[i].bits;
  return 0;
}

// The bytes that dtype and shape ask for; false when they overflow 64 bits.
static bool needed_bytes(const gos_safetensor_t *t, uint64_t *out_bytes) {
  uint64_t total = dtype_bits(t->dtype) / 8;
  for (uint32_t i = 0; i < t->rank; i++) {
    if (t->shape[i] != 0 && total > UINT64_MAX / t->shape[i]) return false;
    total *= t->shape[i];
  }
  *out_bytes = total;
  return true;
}

static gpuos_status_t parse_tensor(parser_t *p, gos_safetensor_t *t) {
  unsigned seen = 0;
  if (!gos_json_take(&p->json, '{')) return malformed(p, "'{'");
  do {
    gpuos_status_t status = parse_field(p, t, &seen);
    if (status != GPUOS_OK) return status;
  } while (gos_json_maybe(&p->json, ','));
  if (!gos_json_take(&p->json, '}')) return malformed(p, "'}'");
  if (seen != FIELD_ALL) return bad_tensor(p, t, "lacks dtype, shape or data_offsets");
  uint64_t bytes;
  if (!needed_bytes(t, &bytes)) return bad_tensor(p, t, "has a shape that overflows");
  if (dtype_bits(t->dtype) != 0 && bytes != t->bytes)
    return gos_fail(p->error, GPUOS_BAD_WEIGHTS,
                    "safetensors header: tensor '%s' of %s should have %" PRIu64
                    " bytes, its offsets give %" PRIu64,
                    t->name, t->dtype, bytes, t->bytes);
  return GPUOS_OK;
}

// ---- the header ---------------------------------------------------------------------------------

// "__metadata__": strings by string, of no use here.
static gpuos_status_t skip_metadata(parser_t *p) {
  const char *text;
  if (!gos_json_take(&p->json, '{')) return malformed(p, "'{'");
  if (gos_json_maybe(&p->json, '}')) return GPUOS_OK;
  do {
    if (!gos_json_string(&p->json, &text) || !gos_json_take(&p->json, ':') ||
        !gos_json_string(&p->json, &text))
      return malformed(p, "metadata as \"key\": \"text\"");
  } while (gos_json_maybe(&p->json, ','));
  return gos_json_take(&p->json, '}') ? GPUOS_OK : malformed(p, "'}'");
}

static gos_safetensor_t *append(parser_t *p) {
  gos_safetensors_t *out = p->out;
  if (out->count == p->capacity) {
    size_t capacity = p->capacity == 0 ? 64 : p->capacity * 2;
    gos_safetensor_t *grown = realloc(out->tensors, capacity * sizeof *grown);
    if (grown == NULL) return NULL;
    out->tensors = grown;
    p->capacity = capacity;
  }
  gos_safetensor_t *t = &out->tensors[out->count++];
  *t = (gos_safetensor_t){0};
  return t;
}

static gpuos_status_t parse_entry(parser_t *p) {
  const char *name;
  if (!gos_json_string(&p->json, &name)) return malformed(p, "a tensor's name");
  if (!gos_json_take(&p->json, ':')) return malformed(p, "':'");
  if (strcmp(name, "__metadata__") == 0) return skip_metadata(p);
  gos_safetensor_t *t = append(p);
  if (t == NULL) return gos_fail(p->error, GPUOS_OUT_OF_MEMORY, "no memory for tensor names");
  t->name = name;
  return parse_tensor(p, t);
}

static gpuos_status_t parse_header(parser_t *p) {
  // The format asks for '{' as the very first byte.
  if (p->json.at == p->json.end || *p->json.at != '{') return malformed(p, "'{'");
  p->json.at++;
  if (!gos_json_maybe(&p->json, '}')) {
    do {
      gpuos_status_t status = parse_entry(p);
      if (status != GPUOS_OK) return status;
    } while (gos_json_maybe(&p->json, ','));
    if (!gos_json_take(&p->json, '}')) return malformed(p, "'}'");
  }
  return gos_json_end(&p->json) ? GPUOS_OK : malformed(p, "the end of the header");
}

// ---- all tensors together -----------------------------------------------------------------------

static int by_place(const void *left, const void *right) {
  const gos_safetensor_t *a = left, *b = right;
  if (a->data != b->data) return (const char *)a->data < (const char *)b->data ? -1 : 1;
  return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int by_name(const void *left, const void *right) {
  const gos_safetensor_t *a = left, *b = right;
  return strcmp(a->name, b->name);
}

// The format allows neither overlaps nor holes nor bytes after the last tensor.
static gpuos_status_t check_places(parser_t *p) {
  const char *next = p->data;
  for (size_t i = 0; i < p->out->count; i++) {
    const gos_safetensor_t *t = &p->out->tensors[i];
    if ((const char *)t->data < next) return bad_tensor(p, t, "overlaps another one");
    if ((const char *)t->data > next) return bad_tensor(p, t, "leaves a hole before it");
    next += t->bytes;
  }
  if (next == p->data + p->data_bytes) return GPUOS_OK;
  return gos_fail(p->error, GPUOS_BAD_WEIGHTS, "safetensors: %td bytes after the last tensor",
                  p->data + p->data_bytes - next);
}

static gpuos_status_t check_names(parser_t *p) {
  for (size_t i = 1; i < p->out->count; i++)
    if (strcmp(p->out->tensors[i - 1].name, p->out->tensors[i].name) == 0)
      return bad_tensor(p, &p->out->tensors[i], "appears twice");
  return GPUOS_OK;
}

static gpuos_status_t check_all(parser_t *p) {
  gos_safetensors_t *out = p->out;
  if (out->count != 0) qsort(out->tensors, out->count, sizeof *out->tensors, by_place);
  gpuos_status_t status = check_places(p);
  if (status != GPUOS_OK) return status;
  if (out->count != 0) qsort(out->tensors, out->count, sizeof *out->tensors, by_name);
  return check_names(p);
}

// ---- entry --------------------------------------------------------------------------------------

static gpuos_status_t header_length(const unsigned char *data, size_t bytes, gos_error_t *error,
                                    size_t *out_length) {
  uint64_t length = 0;
  if (bytes < LENGTH_BYTES)
    return gos_fail(error, GPUOS_BAD_WEIGHTS, "no safetensors file: only %zu bytes", bytes);
  for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)data[i] << 8 * i;
  if (length > bytes - LENGTH_BYTES || length > GOS_SAFETENSORS_HEADER_MAX)
    return gos_fail(error, GPUOS_BAD_WEIGHTS,
                    "no safetensors file, or cut short: a header of %" PRIu64
                    " bytes in a file of %zu",
                    length, bytes);
  *out_length = (size_t)length;
  return GPUOS_OK;
}

gpuos_status_t gos_safetensors_parse(const void *data, size_t bytes, gos_error_t *error,
                                     gos_safetensors_t *out_file) {
  *out_file = (gos_safetensors_t){0};
  size_t length = 0;
  gpuos_status_t status = header_length(data, bytes, error, &length);
  if (status != GPUOS_OK) return status;
  out_file->strings = malloc(length + 1);
  if (out_file->strings == NULL)
    return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory for a header of %zu bytes", length);
  const char *header = (const char *)data + LENGTH_BYTES;
  parser_t p = {.json = {.at = header, .end = header + length, .strings = out_file->strings},
                .header = header,
                .data = header + length,
                .data_bytes = bytes - LENGTH_BYTES - length,
                .out = out_file,
                .error = error};
  status = parse_header(&p);
  if (status == GPUOS_OK) status = check_all(&p);
  if (status != GPUOS_OK) gos_safetensors_free(out_file);
  return status;
}

void gos_safetensors_free(gos_safetensors_t *file) {
  free(file->tensors);
  free(file->strings);
  *file = (gos_safetensors_t){0};
}
