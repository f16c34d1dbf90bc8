// cpu.h: executes a schedule table on the host with the protocol of the GPU.
//
// Called by the runtime's CPU device and by tests. N threads play N SMs, or one thread plays them
// all in an order drawn from a seed. The table must have passed gpuos_check. The caller owns table
// and buffers and keeps them alive.
#ifndef GPUOS_CPU_H_
#define GPUOS_CPU_H_

#include "gpuos.h"
#include "gpuos_abi.h"

typedef struct gos_cpu gos_cpu_t;

typedef struct gos_cpu_options {
  uint32_t sm_count; // 1..GPUOS_MAX_SMS
  // Not 0: single thread, seeded order; a step then runs inside gos_cpu_wait.
  uint64_t interleave_seed;
  bool take_back; // with a seed: SMs are taken back and lent again at random
  uint32_t wait_limit_us;
} gos_cpu_options_t;

// Allocates all that steps need; threads are started here and sleep between steps. NULL when out of
// memory. buffers[i] is buffer i of the table, table->buffers.count of them, each at least its
// bytes, 64-byte aligned.
gos_cpu_t *gos_cpu_create(const gpuos_table_t *table, void *const *buffers,
                          const gos_cpu_options_t *options);
void gos_cpu_destroy(gos_cpu_t *cpu); // NULL is fine; ends a running step

void gos_cpu_submit(gos_cpu_t *cpu); // starts a step; no step may be running
// OK, TIMEOUT, STALL, FAULT or ABORTED.
gpuos_status_t gos_cpu_wait(gos_cpu_t *cpu, uint64_t timeout_ns);
void gos_cpu_abort(gos_cpu_t *cpu); // from any thread
void gos_cpu_set_lent(gos_cpu_t *cpu, uint32_t sm,
                      bool lent); // from any thread, while a step runs too

uint64_t
gos_cpu_step_ns(const gos_cpu_t *cpu); // from submit to the last SM, of a step that is over
const gpuos_control_t *gos_cpu_control(const gos_cpu_t *cpu); // for the watchdog's report
const gpuos_sm_t *gos_cpu_sms(const gos_cpu_t *cpu);

#endif // GPUOS_CPU_H_
