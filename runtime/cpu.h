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

// Queues steps, which run one after the other; one that does not end well drops those behind it.
void gos_cpu_submit(gos_cpu_t *cpu, uint32_t count);
// OK, TIMEOUT, STALL, FAULT or ABORTED.
gpuos_status_t gos_cpu_wait(gos_cpu_t *cpu, uint64_t timeout_ns);

// From any thread, while a step runs too.
void gos_cpu_abort(gos_cpu_t *cpu);
void gos_cpu_pause(gos_cpu_t *cpu, bool paused);
void gos_cpu_set_lent(gos_cpu_t *cpu, uint32_t sm, bool lent);
// The interleaver then takes back and lends only these. With a seed, from the thread that waits.
void gos_cpu_lend(gos_cpu_t *cpu, const uint32_t mask[GPUOS_MAX_SMS / 32]);

void gos_cpu_progress(gos_cpu_t *cpu, gpuos_progress_t *out_progress);
// From its start to the last SM, of step number `step` of those that ended well; 0 when not known,
// or no longer.
uint64_t gos_cpu_step_ns(gos_cpu_t *cpu, uint64_t step);
const gpuos_control_t *gos_cpu_control(const gos_cpu_t *cpu); // for the watchdog's report
const gpuos_sm_t *gos_cpu_sms(const gos_cpu_t *cpu);

#endif // GPUOS_CPU_H_
