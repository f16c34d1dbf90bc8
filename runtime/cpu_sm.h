// cpu_sm.h: the unit protocol as one SM sees it, cut into steps that never block.
//
// Called by cpu.c: by N threads, one an SM, or by one thread that plays them all. What the SMs
// share is accessed atomically, by any of them at any time; an SM itself belongs to one thread.
#ifndef GPUOS_CPU_SM_H_
#define GPUOS_CPU_SM_H_

#include <stdbool.h>

#include "clock.h"
#include "gpuos_abi.h"
#include "words.h"

// What all SMs of a program share. The owner of the program allocates it.
typedef struct gos_protocol {
  const gpuos_table_t *table;
  void *const *buffers;
  gpuos_control_t *control;
  uint32_t *counters;  // table->counters.count
  gpuos_sm_t *reports; // one an SM
  gpuos_park_t *parks; // park_count
  uint32_t park_count; // two an SM
  uint8_t *park_area;
  size_t park_bytes; // of one slot
} gos_protocol_t;

// What one SM holds. A tile that it waits for has no accumulators yet, so that there is room for a
// second tile: one that it helps out with meanwhile.
typedef struct gos_sm {
  gos_protocol_t *shared;
  uint32_t number;
  uint32_t waiting;        // tile, or GPUOS_NONE
  uint32_t running, slice; // tile, or GPUOS_NONE; its next unit
  uint64_t waited_ns;      // since a tile last finished anywhere
  uint64_t polled_ns;      // last poll of the wait it is in; 0: not in one
  uint32_t tiles_seen;     // tiles done at that poll
  float *accs, *scratch;
} gos_sm_t;

typedef enum gos_sm_result {
  GOS_SM_MOVED, // did something
  GOS_SM_STILL, // nothing to do now: waiting, paused, or no tile left
  GOS_SM_AWAY,  // not lent, and holds nothing
  GOS_SM_OVER,  // the step is over: finished, aborted or faulted
} gos_sm_result_t;

void gos_sm_reset(gos_sm_t *sm);           // before a step
gos_sm_result_t gos_sm_step(gos_sm_t *sm); // at most one unit

#endif // GPUOS_CPU_SM_H_
