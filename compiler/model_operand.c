// model_operand.c: a tensor operand, "gu" or "gu[:, :F]".
#include "model.h"

#include <string.h>

// ---- ranges -------------------------------------------------------------------------------------

typedef struct range_text {
  gos_loc_t at;
  const char *text; // of the whole suffix
} range_text_t;

// One end of a range, text[from..to); `fallback` when it is empty.
static bool read_end(gos_model_t *m, const range_text_t *r, size_t from, size_t to,
                     int64_t fallback, int64_t *out_value) {
  while (from < to && r->text[from] == ' ') from++;
  while (from < to && r->text[to - 1] == ' ') to--;
  *out_value = fallback;
  if (from == to) return true;
  gos_loc_t at = gos_diags_inside(m->ir->diags, r->at, r->text, from);
  const char *part = gos_strndup(m->ir->scratch, r->text + from, to - from);
  if (!gos_dim_eval(m->ir, &m->dims, at, part, out_value)) {
    m->op_bad = true;
    return false;
  }
  if (*out_value >= 0) return true;
  gos_model_error(m, at, "shape", "a range counts from the front: '%s' is %lld", part,
                  (long long)*out_value);
  return false;
}

// "start:stop" of text[from..to).
static bool read_range(gos_model_t *m, const range_text_t *r, size_t from, size_t to,
                       int64_t *out_range) {
  gos_loc_t at = gos_diags_inside(m->ir->diags, r->at, r->text, from);
  const char *colon = memchr(r->text + from, ':', to - from);
  if (!colon) {
    gos_model_error(m, at, "shape", "'%.*s' is no range", (int)(to - from), r->text + from);
    gos_note(m->ir->diags, (gos_loc_t){0}, "a range is start:stop, or : for all");
    return false;
  }
  size_t middle = (size_t)(colon - r->text);
  bool good = read_end(m, r, from, middle, 0, &out_range[0]);
  good &= read_end(m, r, middle + 1, to, -1, &out_range[1]);
  if (!good || out_range[1] == -1 || out_range[0] < out_range[1]) return good;
  gos_model_error(m, at, "shape", "the range %lld:%lld is empty", (long long)out_range[0],
                  (long long)out_range[1]);
  return false;
}

bool gos_model_ranges(gos_model_t *m, gos_loc_t at, const char *text, int64_t *out_ranges,
                      size_t *out_count) {
  range_text_t r = {.at = at, .text = text};
  size_t length = strlen(text), from = 1;
  *out_count = 0;
  if (length < 3 || text[0] != '[' || text[length - 1] != ']') {
    gos_model_error(m, at, "shape", "'%s' is no list of ranges", text);
    gos_note(m->ir->diags, (gos_loc_t){0}, "ranges look like \"[:, 2:N]\", one a dimension");
    return false;
  }
  bool good = true;
  while (from < length && *out_count < GPUOS_RANK) {
    size_t to = from + strcspn(text + from, ",]");
    good &= read_range(m, &r, from, to, &out_ranges[2 * (*out_count)++]);
    from = to + 1;
  }
  if (from < length) {
    gos_model_error(m, at, "shape", "'%s' has more than %d dimensions", text, GPUOS_RANK);
    return false;
  }
  return good;
}

// ---- operands -----------------------------------------------------------------------------------

static MlirValue slice(gos_model_t *m, MlirValue x, gos_loc_t at, const int64_t *ranges,
                       size_t count) {
  static const char *const keys[] = {"x", "ranges"};
  const gos_loc_t places[] = {at, at};
  gos_build_t build = gos_build(gos_op_spec("slice"), gos_loc_make(m->ir, at, 2, keys, places));
  gos_build_in(&build, "x", 0, x);
  gos_build_ints(m->ir, &build, "ranges", 2 * count, ranges);
  gos_build_result(&build, gos_unknown_type(m->ir));
  MlirOperation op = gos_build_op(m->ir, &build);
  mlirBlockAppendOwnedOperation(m->block, op);
  return mlirOperationGetResult(op, 0);
}

MlirValue gos_model_operand(gos_model_t *m, const gos_yaml_t *node) {
  const char *text = gos_model_text(m, node);
  if (!text) return (MlirValue){NULL};
  size_t length = strcspn(text, "["), name_length = length;
  while (name_length && text[name_length - 1] == ' ') name_length--;
  const char *spelt = gos_strndup(m->ir->scratch, text, name_length);
  const char *name = gos_model_expand(m, node->at, spelt);
  if (!name) return (MlirValue){NULL};
  MlirValue value = gos_model_use(m, name, node->at);
  if (!text[length]) return value;
  int64_t ranges[2 * GPUOS_RANK];
  size_t count;
  gos_loc_t at = gos_diags_inside(m->ir->diags, node->at, text, length);
  if (!gos_model_ranges(m, at, text + length, ranges, &count)) return (MlirValue){NULL};
  return mlirValueIsNull(value) ? value : slice(m, value, node->at, ranges, count);
}
