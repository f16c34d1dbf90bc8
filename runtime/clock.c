// clock.c: the one clock of the runtime.
#include "clock.h"

#include <time.h>

uint64_t gos_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
