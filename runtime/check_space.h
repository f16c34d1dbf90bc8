// check_space.h: the bytes of one written buffer, cut where any access begins or ends.
//
// All accesses of a step are known in advance, so no cell between two cuts is ever touched in part.
// Neighbouring cells in the same state share one record, at their head; heads are bits, so a whole
// panel in one state is passed over a word at a time. Used by check_memory.c only, in this order:
// open, add every access, close; then seek, split, fuse.
#ifndef GOS_CHECK_SPACE_H_
#define GOS_CHECK_SPACE_H_

#include <string.h>

#include "check_parts.h"

// An access: intervals of `run` bytes, the lowest at `lo`, and up to four dimensions of steps, the
// smallest first.
typedef struct gos_pieces {
  uint64_t lo, run;
  uint32_t dims;
  uint32_t n[GPUOS_DIMS];
  uint64_t step[GPUOS_DIMS];
} gos_pieces_t;

// What a tile with this iteration box touches of x.
gos_pieces_t gos_pieces_cut(const gpuos_operand_t *x, const gpuos_box_t *tile);
// Whether both are the same intervals, cut from the same operand.
bool gos_pieces_equal(const gos_pieces_t *a, const gos_pieces_t *b);
// End of the highest interval.
uint64_t gos_pieces_end(const gos_pieces_t *p);

// Steps `at` to the next piece and moves *lo there; false after the last.
static inline bool gos_pieces_step(const gos_pieces_t *p, uint32_t at[GPUOS_DIMS], uint64_t *lo) {
  for (uint32_t d = 0; d < p->dims; d++) {
    if (++at[d] < p->n[d]) {
      *lo += p->step[d];
      return true;
    }
    *lo -= (p->n[d] - (uint64_t)1) * p->step[d];
    at[d] = 0;
  }
  return false;
}

#define GOS_UNDEFINED GPUOS_NONE       // the value of bytes never written
#define GOS_INITIAL   (GPUOS_NONE - 1) // the writer of bytes as they were before the step

typedef struct gos_state {
  uint32_t value, writer, readers; // readers: a set, 0 is empty
} gos_state_t;

// Where the last search ended and how far it went: rows of a tile are mostly equally far apart.
typedef struct gos_hint {
  uint32_t last, stride;
} gos_hint_t;

typedef struct gos_space {
  uint64_t *points; // ascending; cell i is [points[i], points[i + 1]). NULL: not opened
  uint64_t point_count, capacity;
  gos_state_t *state; // of each head
  uint64_t *heads;    // bit i: cell i has its own record, which holds up to the next head
  uint64_t *marks;    // bit i: scratch
  gos_hint_t begin, end;
} gos_space_t;

bool gos_space_open(gos_check_t *check, gos_space_t *space, uint64_t bytes);
// Cuts at both ends of each piece.
bool gos_space_add(gos_check_t *check, gos_space_t *space, const gos_pieces_t *pieces);
// Everything in one state.
bool gos_space_close(gos_check_t *check, gos_space_t *space, gos_state_t state);
void gos_space_destroy(gos_space_t *space); // one never opened is fine

// The cell that begins at this byte, which is a cut.
static inline uint32_t gos_space_seek(const gos_space_t *s, gos_hint_t *hint, uint64_t byte) {
  uint32_t guess = hint->last + hint->stride;
  if (guess >= s->point_count || s->points[guess] != byte) {
    uint64_t lo = 0, hi = s->point_count - 1;
    while (lo < hi) {
      uint64_t mid = (lo + hi) / 2;
      if (s->points[mid] < byte)
        lo = mid + 1;
      else
        hi = mid;
    }
    guess = (uint32_t)lo;
  }
  hint->stride = guess - hint->last;
  hint->last = guess;
  return guess;
}

// The head whose record holds for cell i.
static inline uint32_t gos_space_head(const gos_space_t *s, uint32_t i) {
  uint32_t word = i / 64;
  uint64_t bits = s->heads[word] << (63 - i % 64) >> (63 - i % 64);
  while (bits == 0) bits = s->heads[--word]; // cell 0 is a head
  return word * 64 + 63 - (uint32_t)__builtin_clzll(bits);
}

// The next head after cell i, or `end` if it comes first.
static inline uint32_t gos_space_next(const gos_space_t *s, uint32_t i, uint32_t end) {
  uint32_t word = ++i / 64;
  if (i >= end) return end;
  uint64_t bits = s->heads[word] >> (i % 64) << (i % 64);
  while (bits == 0 && (word + 1) * 64 < end) bits = s->heads[++word];
  if (bits == 0) return end;
  uint32_t head = word * 64 + (uint32_t)__builtin_ctzll(bits);
  return head < end ? head : end;
}

// Gives cell i its own record; the end of the buffer needs none.
static inline void gos_space_split(gos_space_t *s, uint32_t i) {
  if (i + (uint64_t)1 >= s->point_count) return;
  uint32_t head = gos_space_head(s, i);
  if (head == i) return;
  s->state[i] = s->state[head];
  s->heads[i / 64] |= 1ull << (i % 64);
}

// Drops the head at i if its neighbour on the left is in the same state.
static inline void gos_space_fuse(gos_space_t *s, uint32_t i) {
  if (i == 0 || i + (uint64_t)1 >= s->point_count) return;
  if (!(s->heads[i / 64] >> (i % 64) & 1)) return;
  if (memcmp(&s->state[i], &s->state[gos_space_head(s, i - 1)], sizeof(gos_state_t)) == 0)
    s->heads[i / 64] &= ~(1ull << (i % 64));
}

// Bits [i, j) of a word that starts at bit `base`.
static inline uint64_t gos_space_mask(uint32_t base, uint32_t i, uint32_t j) {
  uint64_t bits = ~0ull;
  if (i > base) bits = bits << (i - base);
  if (j - base < 64) bits &= (1ull << (j - base)) - 1;
  return bits;
}

#endif // GOS_CHECK_SPACE_H_
