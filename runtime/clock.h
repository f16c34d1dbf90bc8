// clock.h: the one clock of the runtime.
#ifndef GPUOS_CLOCK_H_
#define GPUOS_CLOCK_H_

#include <stdint.h>

uint64_t gos_clock_ns(void); // monotonic

#endif // GPUOS_CLOCK_H_
