// The protocol under ThreadSanitizer: eight threads play SMs while one thread takes SMs back, lends
// them again and pauses them, and another aborts steps and looks on like a watchdog. Finished steps,
// two in a row, must have the bits of one thread working in table order; a report of the sanitizer
// fails the program.
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu_chain.h"
#include "cpu_sm.h"

enum { SMS = 8, STEPS = 400 };

typedef struct storm {
  gos_cpu_t *cpu;
  uint32_t over, aborts; // aborts: whether this round aborts steps
  uint64_t random;
} storm_t;

static uint32_t draw(uint64_t *random, uint32_t below) {
  *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
  return (uint32_t)((*random >> 32) % below);
}

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

// Any set of SMs, for moments none at all.
static void *lend_and_take_back(void *argument) {
  storm_t *storm = argument;
  uint64_t random = storm->random;
  while (!gos_load(&storm->over)) {
    uint32_t lent = draw(&random, 1 << SMS);
    for (uint32_t s = 0; s < SMS; s++) gos_cpu_set_lent(storm->cpu, s, lent >> s & 1);
    gos_cpu_pause(storm->cpu, draw(&random, 4) == 0);
    nap(20000 + draw(&random, 200000));
  }
  gos_cpu_pause(storm->cpu, false);
  for (uint32_t s = 0; s < SMS; s++) gos_cpu_set_lent(storm->cpu, s, true);
  return NULL;
}

static void *abort_and_watch(void *argument) {
  storm_t *storm = argument;
  uint64_t random = storm->random + 1;
  while (!gos_load(&storm->over)) {
    for (uint32_t s = 0; s < SMS; s++) (void)gos_load(&gos_cpu_sms(storm->cpu)[s].phase);
    gpuos_progress_t progress;
    gos_cpu_progress(storm->cpu, &progress);
    (void)gos_cpu_step_ns(storm->cpu, progress.steps_done);
    if (gos_load(&storm->aborts) && draw(&random, 4) == 0) gos_cpu_abort(storm->cpu);
    nap(100000 + draw(&random, 1000000));
  }
  return NULL;
}

static bool run_step(chain_t *chain, gos_cpu_t *cpu, const uint8_t want[CHAIN_BYTES],
                     uint32_t counts[2]) {
  uint8_t got[CHAIN_BYTES];
  chain_clear(chain);
  gos_cpu_submit(cpu, 2);
  gpuos_status_t status = GPUOS_TIMEOUT;
  for (int waits = 0; status == GPUOS_TIMEOUT && waits < 200; waits++)
    status = gos_cpu_wait(cpu, 100000000);
  if (status == GPUOS_ABORTED) return counts[1]++, true;
  if (status != GPUOS_OK) return printf("status %d\n", (int)status), false;
  chain_take(chain, got);
  if (memcmp(got, want, CHAIN_BYTES) != 0) return printf("other bits\n"), false;
  return counts[0]++, true;
}

static bool run_storm(chain_t *chain, gos_cpu_t *cpu, const uint8_t want[CHAIN_BYTES]) {
  storm_t storm = {.cpu = cpu, .random = 88172645463325252u};
  pthread_t threads[2];
  uint32_t counts[2] = {0, 0}; // steps finished, aborted
  bool right = true;
  if (pthread_create(&threads[0], NULL, lend_and_take_back, &storm) != 0) return false;
  if (pthread_create(&threads[1], NULL, abort_and_watch, &storm) != 0) abort();
  for (int i = 0; right && i < STEPS; i++) {
    gos_store(&storm.aborts, i % 4 == 3);
    right = run_step(chain, cpu, want, counts);
  }
  gos_store(&storm.over, 1);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  printf("%u steps finished, %u aborted\n", counts[0], counts[1]);
  return right && counts[0] >= STEPS / 2;
}

int main(void) {
  chain_t chain = chain_make();
  uint8_t want[CHAIN_BYTES];
  if (fixture_run(&chain.f, 1, 0, false) != GPUOS_OK) return 1;
  chain_take(&chain, want);
  gos_cpu_options_t options = {.sm_count = SMS};
  gos_cpu_t *cpu = gos_cpu_create(chain.f.table, chain.f.buffers, &options);
  if (cpu == NULL) return 1;
  bool right = run_storm(&chain, cpu, want);
  gos_cpu_submit(cpu, 1); // destroyed while it runs
  gos_cpu_destroy(cpu);
  chain_free(&chain);
  return right ? 0 : 1;
}
