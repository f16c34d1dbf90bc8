// check_space.c: from accesses to cuts.
#include "check_space.h"

#include <stdlib.h>

// ---- the bytes of an access ---------------------------------------------------------------------

static void add_dim(gos_pieces_t *p, uint64_t step, uint32_t n) {
  uint32_t at = p->dims++;
  for (; at > 0 && p->step[at - 1] > step; at--) {
    p->step[at] = p->step[at - 1];
    p->n[at] = p->n[at - 1];
  }
  p->step[at] = step;
  p->n[at] = n;
}

// Dimensions that leave no gap become part of the run.
static void merge(gos_pieces_t *p) {
  uint32_t merged = 0;
  for (; merged < p->dims && p->step[merged] <= p->run; merged++)
    p->run += (p->n[merged] - (uint64_t)1) * p->step[merged];
  p->dims -= merged;
  memmove(p->step, p->step + merged, p->dims * sizeof(*p->step));
  memmove(p->n, p->n + merged, p->dims * sizeof(*p->n));
}

gos_pieces_t gos_pieces_cut(const gpuos_operand_t *x, const gpuos_box_t *tile) {
  gpuos_box_t box = gpuos_operand_box(x, tile);
  uint64_t size = gpuos_dtype_bytes(x->dtype);
  gos_pieces_t p = {.lo = x->offset_bytes, .run = size};
  for (int d = 0; d < GPUOS_DIMS; d++) {
    p.lo += box.lo[d] * (uint64_t)x->stride[d] * size;
    if (box.n[d] > 1) add_dim(&p, x->stride[d] * size, box.n[d]);
  }
  merge(&p);
  return p;
}

uint64_t gos_pieces_end(const gos_pieces_t *p) {
  uint64_t end = p->lo + p->run;
  for (uint32_t d = 0; d < p->dims; d++) end += (p->n[d] - (uint64_t)1) * p->step[d];
  return end;
}

bool gos_pieces_equal(const gos_pieces_t *a, const gos_pieces_t *b) {
  bool equal = a->lo == b->lo && a->run == b->run && a->dims == b->dims;
  for (uint32_t d = 0; equal && d < a->dims; d++)
    equal = a->n[d] == b->n[d] && a->step[d] == b->step[d];
  return equal;
}

static bool no_memory(gos_check_t *check) {
  return gos_check_fail(check, GOS_CHECK_memory, GPUOS_NONE, "out of memory");
}

// ---- where to cut -------------------------------------------------------------------------------

// Sorts by digits of 8 bits, least first; digits in which no two numbers differ cost nothing.
static uint64_t *sort(uint64_t *a, uint64_t *spare, uint64_t count) {
  uint64_t differ = 0;
  for (uint64_t i = 1; i < count; i++) differ |= a[i] ^ a[0];
  for (int shift = 0; shift < 64; shift += 8) {
    if ((differ >> shift & 0xff) == 0) continue;
    uint64_t at[257] = {0};
    for (uint64_t i = 0; i < count; i++) at[(a[i] >> shift & 0xff) + 1]++;
    for (int d = 1; d < 256; d++) at[d] += at[d - 1];
    for (uint64_t i = 0; i < count; i++) spare[at[a[i] >> shift & 0xff]++] = a[i];
    uint64_t *swap = a;
    a = spare;
    spare = swap;
  }
  return a;
}

// Sorts the points and drops repeated ones.
static bool settle(gos_check_t *check, gos_space_t *s) {
  uint64_t *spare = malloc(s->capacity * sizeof(*spare));
  if (spare == NULL) return no_memory(check);
  uint64_t *sorted = sort(s->points, spare, s->point_count), kept = 1;
  for (uint64_t i = 1; i < s->point_count; i++)
    if (sorted[i] != sorted[kept - 1]) sorted[kept++] = sorted[i];
  free(sorted == spare ? s->points : spare);
  s->points = sorted;
  s->point_count = kept;
  return gos_check_spend(check, 4 * s->capacity); // passes of the sort
}

// Makes room for two more points: repeated ones go first, then the array doubles.
static bool make_room(gos_check_t *check, gos_space_t *s) {
  if (s->point_count + 2 <= s->capacity) return true;
  if (!settle(check, s)) return false;
  if (s->point_count <= s->capacity / 2) return true;
  if (s->point_count > GOS_CHECK_MAX_CELLS)
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                          "accesses cut the buffers into more than %llu pieces",
                          GOS_CHECK_MAX_CELLS);
  uint64_t *more = realloc(s->points, 2 * s->capacity * sizeof(*more));
  if (more == NULL) return no_memory(check);
  s->points = more;
  s->capacity *= 2;
  return true;
}

bool gos_space_add(gos_check_t *check, gos_space_t *s, const gos_pieces_t *p) {
  uint32_t at[GPUOS_DIMS] = {0};
  uint64_t lo = p->lo;
  do {
    if (!make_room(check, s) || !gos_check_spend(check, 1)) return false;
    s->points[s->point_count++] = lo;
    s->points[s->point_count++] = lo + p->run;
  } while (gos_pieces_step(p, at, &lo));
  return true;
}

bool gos_space_open(gos_check_t *check, gos_space_t *s, uint64_t bytes) {
  s->capacity = 64;
  s->points = malloc(s->capacity * sizeof(*s->points));
  if (s->points == NULL) return no_memory(check);
  s->points[s->point_count++] = 0;
  s->points[s->point_count++] = bytes;
  return true;
}

bool gos_space_close(gos_check_t *check, gos_space_t *s, gos_state_t state) {
  if (!settle(check, s)) return false;
  s->state = malloc(s->point_count * sizeof(*s->state));
  s->heads = calloc(s->point_count / 64 + 1, sizeof(*s->heads));
  s->marks = calloc(s->point_count / 64 + 1, sizeof(*s->marks));
  if (s->state == NULL || s->heads == NULL || s->marks == NULL) return no_memory(check);
  s->state[0] = state;
  s->heads[0] = 1;
  return true;
}

void gos_space_destroy(gos_space_t *s) {
  free(s->points);
  free(s->state);
  free(s->heads);
  free(s->marks);
}
