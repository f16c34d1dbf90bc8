// cpu.c: the CPU device: memory of a program, its threads or its interleaver, steps from submit to
// wait. What an SM does is in cpu_sm.c, what a unit computes in cpu_units.h.
#include "cpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu_sm.h"
#include "cpu_units.h"

enum {
  DEFAULT_WAIT_LIMIT_US = 10000000,
  SPINS = 64,   // polls before a waiting thread offers its core
  YIELDS = 512, // offers before it sleeps between polls
  NAP_NS = 50000,
  TIMED_STEPS = 64,
};

typedef struct player {
  gos_cpu_t *cpu;
  gos_sm_t sm;
  float *memory; // accumulators, then scratch
  pthread_t thread;
} player_t;

struct gos_cpu {
  gos_protocol_t shared;
  gpuos_control_t control;
  uint32_t sm_count;
  player_t *players;
  uint32_t threads_started;

  bool interleaved, take_back;
  uint64_t random; // xorshift state of the interleaver

  pthread_mutex_t mutex; // guards all below
  pthread_cond_t start, done;
  bool synced; // mutex and conditions exist
  bool quit, running, paused;
  uint32_t steps_started, players_active;
  uint32_t allowed[GPUOS_MAX_SMS / 32];      // the interleaver takes back and lends no others
  uint64_t queued;                           // steps behind the one that runs
  uint64_t submitted, finished;              // steps since creation; those that ended well
  gpuos_status_t status;                     // of the last step
  uint64_t started_ns, step_ns[TIMED_STEPS]; // by number of those that ended well
};

// ---- one step -----------------------------------------------------------------------------------

static gpuos_status_t step_status(const gos_cpu_t *cpu) {
  switch (gos_load(&cpu->control.fault)) {
  case GPUOS_FAULT_STALL: return GPUOS_STALL;
  case GPUOS_FAULT_INDEX: return GPUOS_FAULT;
  default: break;
  }
  bool whole = gos_load(&cpu->control.tiles_done) == cpu->shared.table->tiles.count;
  return whole ? GPUOS_OK : GPUOS_ABORTED;
}

static uint32_t step_number(const gpuos_control_t *c) {
  return (uint32_t)(gos_load64(&c->ticket) >> 32);
}

static void begin_step(gos_cpu_t *cpu) {
  gpuos_control_t *c = &cpu->control;
  gos_store(&c->fault, GPUOS_FAULT_NONE);
  gos_store(&c->tiles_done, 0);
  gos_store64(&c->ticket, (uint64_t)(step_number(c) + 1) << 32);
  gos_store(&c->command, cpu->paused ? GPUOS_PAUSE : GPUOS_RUN);
  for (uint32_t s = 0; s < cpu->sm_count; s++) gos_sm_reset(&cpu->players[s].sm);
  cpu->started_ns = gos_clock_ns();
  cpu->running = true;
  cpu->steps_started++;
  cpu->players_active = cpu->sm_count;
  pthread_cond_broadcast(&cpu->start);
}

// Leaves counters and slots as a step that finished would, whatever happened to this one.
static void clean_up(gos_cpu_t *cpu) {
  gos_protocol_t *p = &cpu->shared;
  const uint32_t *signals = GPUOS_SECTION(p->table, uint32_t, counters);
  for (uint32_t i = 0; i < p->table->counters.count; i++)
    gos_store(&p->counters[i], signals[i] * step_number(&cpu->control));
  for (uint32_t i = 0; i < p->park_count; i++) gos_store(&p->parks[i].state, GPUOS_PARK_FREE);
  gos_store(&cpu->control.parked_count, 0);
  gos_store(&cpu->control.steps_done, step_number(&cpu->control));
}

// The last SM has left the step: the next one begins, or the host is told.
static void end_step(gos_cpu_t *cpu) {
  clean_up(cpu);
  cpu->status = step_status(cpu);
  if (cpu->status == GPUOS_OK)
    cpu->step_ns[++cpu->finished % TIMED_STEPS] = gos_clock_ns() - cpu->started_ns;
  if (cpu->queued > 0 && gos_load(&cpu->control.command) == GPUOS_ABORT)
    cpu->status = cpu->status == GPUOS_OK ? GPUOS_ABORTED : cpu->status;
  cpu->running = false;
  if (cpu->status != GPUOS_OK) cpu->queued = 0;
  if (cpu->queued == 0) {
    gos_store(&cpu->control.tiles_done, 0);
    return;
  }
  cpu->queued--;
  begin_step(cpu);
}

// ---- threads ------------------------------------------------------------------------------------

static void relax(uint32_t polls) {
  if (polls < SPINS) return;
  if (polls < SPINS + YIELDS)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static void play_step(gos_sm_t *sm) {
  gos_sm_result_t result;
  for (uint32_t polls = 0; (result = gos_sm_step(sm)) != GOS_SM_OVER;)
    if (result == GOS_SM_MOVED)
      polls = 0;
    else
      relax(polls < UINT32_MAX ? polls++ : polls);
}

static void *play(void *argument) {
  player_t *player = argument;
  gos_cpu_t *cpu = player->cpu;
  pthread_mutex_lock(&cpu->mutex);
  for (uint32_t steps_seen = 0;; steps_seen++) {
    while (!cpu->quit && cpu->steps_started == steps_seen)
      pthread_cond_wait(&cpu->start, &cpu->mutex);
    if (cpu->quit) break;
    pthread_mutex_unlock(&cpu->mutex);
    play_step(&player->sm);
    pthread_mutex_lock(&cpu->mutex);
    if (--cpu->players_active > 0) continue;
    end_step(cpu);
    if (!cpu->running) pthread_cond_broadcast(&cpu->done);
  }
  pthread_mutex_unlock(&cpu->mutex);
  return NULL;
}

static struct timespec to_timespec(uint64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                           .tv_nsec = (long)(ns % 1000000000u)};
}

// ---- the interleaver ----------------------------------------------------------------------------

static uint32_t draw(gos_cpu_t *cpu, uint32_t below) {
  uint64_t x = cpu->random; // xorshift64 (Marsaglia 2003)
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  cpu->random = x;
  return (uint32_t)((x >> 32) % below);
}

static uint32_t lent_count(const gos_cpu_t *cpu) {
  uint32_t count = 0;
  for (uint32_t s = 0; s < cpu->sm_count; s++)
    count += gos_load(&cpu->control.sm_lent[s / 32]) >> s % 32 & 1;
  return count;
}

// Takes back or lends one SM, but never takes the last one.
static void shuffle_lent(gos_cpu_t *cpu) {
  uint32_t s = draw(cpu, cpu->sm_count);
  if (!(cpu->allowed[s / 32] >> s % 32 & 1)) return;
  bool lent = gos_load(&cpu->control.sm_lent[s / 32]) >> s % 32 & 1;
  if (!lent || lent_count(cpu) > 1) gos_cpu_set_lent(cpu, s, !lent);
}

static gpuos_status_t interleave(gos_cpu_t *cpu, uint64_t deadline_ns) {
  for (;;) {
    if (cpu->take_back && draw(cpu, 4) == 0) shuffle_lent(cpu);
    if (gos_sm_step(&cpu->players[draw(cpu, cpu->sm_count)].sm) == GOS_SM_OVER) {
      pthread_mutex_lock(&cpu->mutex); // gos_cpu_abort looks at running
      end_step(cpu);
      pthread_mutex_unlock(&cpu->mutex);
      if (!cpu->running) return cpu->status;
    }
    if (gos_clock_ns() >= deadline_ns) return GPUOS_TIMEOUT;
  }
}

// ---- create and destroy -------------------------------------------------------------------------

static void *allocate(size_t bytes) {
  size_t rounded = bytes < 64 ? 64 : (bytes + 63) & ~(size_t)63;
  void *memory = rounded < bytes ? NULL : aligned_alloc(64, rounded);
  if (memory != NULL) memset(memory, 0, rounded);
  return memory;
}

// Of the neediest operator: accumulators, scratch, and what of the former is ever parked.
typedef struct needs {
  size_t acc_floats, scratch_floats, parked_floats;
} needs_t;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static needs_t find_needs(const gpuos_table_t *table) {
  needs_t needs = {0};
  const gpuos_op_t *op = GPUOS_SECTION(table, gpuos_op_t, ops);
  const gpuos_operand_t *operands = GPUOS_SECTION(table, gpuos_operand_t, operands);
  for (uint32_t i = 0; i < table->ops.count; i++, op++) {
    size_t accs = gos_unit_acc_floats(op, operands + op->first_operand);
    size_t scratch = gos_unit_scratch_floats(op, operands + op->first_operand);
    needs.acc_floats = larger(needs.acc_floats, accs);
    needs.scratch_floats = larger(needs.scratch_floats, scratch);
    if (gpuos_op_slices(op) > 1) needs.parked_floats = larger(needs.parked_floats, accs);
  }
  needs.acc_floats = (needs.acc_floats + 15) & ~(size_t)15; // scratch begins a cache line
  return needs;
}

static bool allocate_shared(gos_cpu_t *cpu, size_t parked_floats) {
  gos_protocol_t *p = &cpu->shared;
  p->control = &cpu->control;
  p->park_count = 2 * cpu->sm_count;
  p->park_bytes = parked_floats * sizeof(float);
  p->counters = allocate(p->table->counters.count * sizeof *p->counters);
  p->reports = allocate(cpu->sm_count * sizeof *p->reports);
  p->parks = allocate(p->park_count * sizeof *p->parks);
  p->park_area = allocate(p->park_count * p->park_bytes);
  cpu->players = allocate(cpu->sm_count * sizeof *cpu->players);
  return p->counters && p->reports && p->parks && p->park_area && cpu->players;
}

static bool make_players(gos_cpu_t *cpu, const needs_t *needs) {
  for (uint32_t s = 0; s < cpu->sm_count; s++) {
    player_t *player = &cpu->players[s];
    player->cpu = cpu;
    player->memory = allocate((needs->acc_floats + needs->scratch_floats) * sizeof(float));
    if (player->memory == NULL) return false;
    player->sm = (gos_sm_t){.shared = &cpu->shared, .number = s, .accs = player->memory};
    player->sm.scratch = player->memory + needs->acc_floats;
    gos_sm_reset(&player->sm);
    gos_cpu_set_lent(cpu, s, true);
    cpu->allowed[s / 32] |= 1u << s % 32;
    cpu->shared.reports[s].smid = s;
  }
  return true;
}

static bool make_sync(gos_cpu_t *cpu) {
  pthread_condattr_t monotonic;
  if (pthread_condattr_init(&monotonic) != 0) return false;
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&cpu->mutex, NULL);
  pthread_cond_init(&cpu->start, NULL);
  pthread_cond_init(&cpu->done, &monotonic);
  pthread_condattr_destroy(&monotonic);
  cpu->synced = true;
  return true;
}

static bool start_threads(gos_cpu_t *cpu) {
  for (uint32_t s = 0; s < cpu->sm_count; s++) {
    if (pthread_create(&cpu->players[s].thread, NULL, play, &cpu->players[s]) != 0) return false;
    cpu->threads_started++;
  }
  return true;
}

gos_cpu_t *gos_cpu_create(const gpuos_table_t *table, void *const *buffers,
                          const gos_cpu_options_t *options) {
  if (options->sm_count < 1 || options->sm_count > GPUOS_MAX_SMS) return NULL;
  gos_cpu_t *cpu = allocate(sizeof *cpu);
  if (cpu == NULL) return NULL;
  needs_t needs = find_needs(table);
  cpu->shared.table = table;
  cpu->shared.buffers = buffers;
  cpu->sm_count = options->sm_count;
  cpu->interleaved = options->interleave_seed != 0;
  cpu->random = options->interleave_seed;
  cpu->take_back = options->take_back;
  cpu->control.wait_limit_us =
      options->wait_limit_us ? options->wait_limit_us : DEFAULT_WAIT_LIMIT_US;
  if (make_sync(cpu) && allocate_shared(cpu, needs.parked_floats) && make_players(cpu, &needs) &&
      (cpu->interleaved || start_threads(cpu)))
    return cpu;
  gos_cpu_destroy(cpu);
  return NULL;
}

static void stop_threads(gos_cpu_t *cpu) {
  gos_cpu_abort(cpu);
  pthread_mutex_lock(&cpu->mutex);
  cpu->quit = true;
  pthread_cond_broadcast(&cpu->start);
  pthread_mutex_unlock(&cpu->mutex);
  for (uint32_t s = 0; s < cpu->threads_started; s++) pthread_join(cpu->players[s].thread, NULL);
}

void gos_cpu_destroy(gos_cpu_t *cpu) {
  if (cpu == NULL) return;
  if (cpu->synced) {
    stop_threads(cpu);
    pthread_cond_destroy(&cpu->done);
    pthread_cond_destroy(&cpu->start);
    pthread_mutex_destroy(&cpu->mutex);
  }
  for (uint32_t s = 0; cpu->players != NULL && s < cpu->sm_count; s++) free(cpu->players[s].memory);
  free(cpu->players);
  free(cpu->shared.park_area);
  free(cpu->shared.parks);
  free(cpu->shared.reports);
  free(cpu->shared.counters);
  free(cpu);
}

// ---- steps --------------------------------------------------------------------------------------

void gos_cpu_submit(gos_cpu_t *cpu, uint32_t count) {
  pthread_mutex_lock(&cpu->mutex);
  cpu->submitted += count;
  cpu->queued += count;
  if (!cpu->running) {
    cpu->queued--;
    begin_step(cpu);
  }
  gos_store(&cpu->control.submitted, step_number(&cpu->control) + (uint32_t)cpu->queued);
  pthread_mutex_unlock(&cpu->mutex);
}

gpuos_status_t gos_cpu_wait(gos_cpu_t *cpu, uint64_t timeout_ns) {
  uint64_t now_ns = gos_clock_ns();
  uint64_t deadline_ns = timeout_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + timeout_ns;
  pthread_mutex_lock(&cpu->mutex);
  struct timespec deadline = to_timespec(deadline_ns);
  bool expired = false;
  while (cpu->running && !cpu->interleaved && !expired)
    expired = pthread_cond_timedwait(&cpu->done, &cpu->mutex, &deadline) != 0;
  bool running = cpu->running;
  gpuos_status_t status = cpu->status;
  pthread_mutex_unlock(&cpu->mutex);
  if (!running) return status;
  return cpu->interleaved ? interleave(cpu, deadline_ns) : GPUOS_TIMEOUT;
}

void gos_cpu_abort(gos_cpu_t *cpu) {
  pthread_mutex_lock(&cpu->mutex);
  if (cpu->running) gos_store(&cpu->control.command, GPUOS_ABORT);
  pthread_mutex_unlock(&cpu->mutex);
}

// A pause outlasts steps; one that runs and was asked to end does so first.
void gos_cpu_pause(gos_cpu_t *cpu, bool paused) {
  pthread_mutex_lock(&cpu->mutex);
  cpu->paused = paused;
  if (gos_load(&cpu->control.command) != GPUOS_ABORT)
    gos_store(&cpu->control.command, paused ? GPUOS_PAUSE : GPUOS_RUN);
  pthread_mutex_unlock(&cpu->mutex);
}

void gos_cpu_lend(gos_cpu_t *cpu, const uint32_t mask[GPUOS_MAX_SMS / 32]) {
  memcpy(cpu->allowed, mask, sizeof cpu->allowed);
  for (uint32_t s = 0; s < cpu->sm_count; s++) gos_cpu_set_lent(cpu, s, mask[s / 32] >> s % 32 & 1);
}

void gos_cpu_set_lent(gos_cpu_t *cpu, uint32_t sm, bool lent) {
  uint32_t *word = &cpu->control.sm_lent[sm / 32], bit = 1u << sm % 32;
  if (lent)
    __atomic_fetch_or(word, bit, __ATOMIC_ACQ_REL);
  else
    __atomic_fetch_and(word, ~bit, __ATOMIC_ACQ_REL);
}

// ---- what is seen of them -----------------------------------------------------------------------

void gos_cpu_progress(gos_cpu_t *cpu, gpuos_progress_t *out_progress) {
  pthread_mutex_lock(&cpu->mutex);
  out_progress->steps_submitted = cpu->submitted;
  out_progress->steps_done = cpu->finished;
  out_progress->tiles_done = gos_load(&cpu->control.tiles_done);
  pthread_mutex_unlock(&cpu->mutex);
}

uint64_t gos_cpu_step_ns(gos_cpu_t *cpu, uint64_t step) {
  pthread_mutex_lock(&cpu->mutex);
  bool known = step != 0 && step <= cpu->finished && cpu->finished - step < TIMED_STEPS;
  uint64_t ns = known ? cpu->step_ns[step % TIMED_STEPS] : 0;
  pthread_mutex_unlock(&cpu->mutex);
  return ns;
}

const gpuos_control_t *gos_cpu_control(const gos_cpu_t *cpu) { return &cpu->control; }
const gpuos_sm_t *gos_cpu_sms(const gos_cpu_t *cpu) { return cpu->shared.reports; }
