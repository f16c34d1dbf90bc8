// near.c: which known word a misspelt one probably meant.
#include "diag.h"

#include <string.h>

enum { NEAR_BYTES = 64, FAR = 4 }; // a distance of FAR is never near

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static unsigned min3(unsigned a, unsigned b, unsigned c) {
  unsigned m = a < b ? a : b;
  return m < c ? m : c;
}

// Edit distance with swaps of neighbours (optimal string alignment), case ignored; stops at FAR.
static unsigned distance(const char *a, size_t a_length, const char *b, size_t b_length) {
  unsigned rows[3][NEAR_BYTES + 1], *older = rows[0], *old = rows[1], *now = rows[2];
  for (size_t j = 0; j <= b_length; j++) old[j] = (unsigned)j;
  for (size_t i = 1; i <= a_length; i++) {
    unsigned least = now[0] = (unsigned)i;
    for (size_t j = 1; j <= b_length; j++) {
      char x = lower(a[i - 1]), y = lower(b[j - 1]);
      now[j] = min3(old[j] + 1, now[j - 1] + 1, old[j - 1] + (x != y));
      bool swapped = i > 1 && j > 1 && x == lower(b[j - 2]) && y == lower(a[i - 2]);
      if (swapped && older[j - 2] + 1 < now[j]) now[j] = older[j - 2] + 1;
      if (now[j] < least) least = now[j];
    }
    if (least >= FAR) return FAR;
    unsigned *free_row = older;
    older = old, old = now, now = free_row;
  }
  return old[b_length];
}

// A third of the letters may differ; of two letters none, or 'x' would be near 'w'.
const char *gos_near_miss(const char *word, const char *const *names, size_t count) {
  size_t length = strlen(word);
  const char *best = NULL;
  unsigned best_distance = FAR;
  if (length > NEAR_BYTES) return NULL;
  for (size_t i = 0; i < count; i++) {
    size_t other = strlen(names[i]), longer = other > length ? other : length;
    size_t apart = longer - (other > length ? length : other), most = longer / 3;
    if (other > NEAR_BYTES || apart >= best_distance || apart > most) continue;
    unsigned d = distance(word, length, names[i], other);
    if (d > most || d >= best_distance || !strcmp(word, names[i])) continue;
    best = names[i];
    best_distance = d;
  }
  return best;
}
