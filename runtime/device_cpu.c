// device_cpu.c: the CPU as a device: buffers on the heap, steps by cpu.h.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cpu.h"
#include "internal.h"
#include "words.h"

enum { BUFFER_ALIGNMENT = 64 }; // of what is allocated

typedef struct cpu_program {
  gos_cpu_t *cpu;
  void *buffers[]; // by buffer of the table
} cpu_program_t;

static gpuos_status_t open_cpu(gpuos_device_t *device) {
  gpuos_device_options_t *options = &device->options;
  if (options->sm_count > GPUOS_MAX_SMS)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT,
                    "%u threads asked for, at most %d are possible", options->sm_count,
                    GPUOS_MAX_SMS);
  if (options->take_back && options->interleave_seed == 0)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT, "take_back needs an interleave_seed");
  if (options->sm_count == 0) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    options->sm_count = cores < 1 ? 1 : cores > GPUOS_MAX_SMS ? GPUOS_MAX_SMS : (uint32_t)cores;
  }
  return GPUOS_OK;
}

static void close_cpu(gpuos_device_t *device) { (void)device; }

static const gpuos_buffer_t *buffer_at(const gpuos_program_t *program, uint32_t buffer) {
  return GPUOS_SECTION(program->table, gpuos_buffer_t, buffers) + buffer;
}

// For it and those that are joined to it. Zeroed where a step or the host could read what nothing has written
// yet.
static void *allocate(const gpuos_program_t *program, uint32_t first) {
  const gpuos_buffer_t *buffer = buffer_at(program, first);
  uint64_t all = gpuos_joined_bytes(buffer_at(program, 0), program->table->buffers.count, first);
  if (all > SIZE_MAX - BUFFER_ALIGNMENT) return NULL;
  size_t bytes = ((size_t)all + BUFFER_ALIGNMENT) & ~(size_t)(BUFFER_ALIGNMENT - 1);
  void *memory = aligned_alloc(BUFFER_ALIGNMENT, bytes);
  bool zeroed = buffer->role == GPUOS_STATE || buffer->role == GPUOS_OUTPUT;
  if (memory != NULL && zeroed) memset(memory, 0, bytes);
  return memory;
}

static gpuos_status_t allocate_buffers(gpuos_program_t *program, cpu_program_t *state) {
  for (uint32_t i = 0; i < program->table->buffers.count; i++) {
    const gpuos_buffer_t *buffer = buffer_at(program, i);
    state->buffers[i] = buffer->joined
                            ? (char *)state->buffers[i - 1] + buffer_at(program, i - 1)->bytes
                            : allocate(program, i);
    if (state->buffers[i] == NULL)
      return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY,
                      "no memory for %s '%s' of %llu bytes", gos_role_name(buffer->role),
                      gos_table_string(program->table, buffer->name),
                      (unsigned long long)buffer->bytes);
  }
  return GPUOS_OK;
}

static gpuos_status_t create_cpu(gpuos_program_t *program, cpu_program_t *state) {
  const gpuos_device_options_t *options = &program->device->options;
  gos_cpu_options_t cpu_options = {.sm_count = options->sm_count,
                                   .interleave_seed = options->interleave_seed,
                                   .take_back = options->take_back,
                                   .wait_limit_us = options->wait_limit_us};
  state->cpu = gos_cpu_create(program->table, state->buffers, &cpu_options);
  if (state->cpu == NULL)
    return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY,
                    "no memory or threads for %u SMs of the CPU device", options->sm_count);
  return GPUOS_OK;
}

static gpuos_status_t load_cpu(gpuos_program_t *program, const gos_artefact_t *artefact) {
  (void)artefact; // device code is not for us
  cpu_program_t *state =
      calloc(1, sizeof *state + program->table->buffers.count * sizeof state->buffers[0]);
  if (state == NULL)
    return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY, "no memory for a program");
  program->state = state;
  program->sm_count = program->device->options.sm_count;
  program->sm_group = 1;
  gpuos_status_t status = allocate_buffers(program, state);
  return status == GPUOS_OK ? create_cpu(program, state) : status;
}

static void unload_cpu(gpuos_program_t *program) {
  cpu_program_t *state = program->state;
  if (state == NULL) return;
  gos_cpu_destroy(state->cpu);
  for (uint32_t i = 0; i < program->table->buffers.count; i++)
    if (!buffer_at(program, i)->joined) free(state->buffers[i]);
  free(state);
}

static gpuos_status_t write_cpu(gpuos_program_t *program, uint32_t buffer, const void *data) {
  const cpu_program_t *state = program->state;
  size_t bytes = (size_t)buffer_at(program, buffer)->bytes;
  if (bytes != 0) memcpy(state->buffers[buffer], data, bytes);
  return GPUOS_OK;
}

static gpuos_status_t read_cpu(gpuos_program_t *program, uint32_t buffer, void *out_data) {
  const cpu_program_t *state = program->state;
  size_t bytes = (size_t)buffer_at(program, buffer)->bytes;
  if (bytes != 0) memcpy(out_data, state->buffers[buffer], bytes);
  return GPUOS_OK;
}

// ---- steps and control --------------------------------------------------------------------------

static gos_cpu_t *cpu_of(const gpuos_program_t *program) {
  return ((cpu_program_t *)program->state)->cpu;
}

static gpuos_status_t submit_cpu(gpuos_program_t *program, uint32_t count) {
  gos_cpu_submit(cpu_of(program), count);
  return GPUOS_OK;
}

static gpuos_status_t wait_cpu(gpuos_program_t *program, uint64_t timeout_ns) {
  gos_cpu_t *cpu = cpu_of(program);
  gpuos_status_t status = gos_cpu_wait(cpu, timeout_ns);
  gpuos_progress_t progress;
  gos_cpu_progress(cpu, &progress);
  if (status == GPUOS_OK) program->step_ns = gos_cpu_step_ns(cpu, progress.steps_done);
  if (status != GPUOS_STALL && status != GPUOS_FAULT) return status;
  gos_fault_t fault;
  memcpy(&fault, &gos_cpu_control(cpu)->fault, sizeof fault);
  return gos_report_fault(program, &fault);
}

static void abort_cpu(gpuos_program_t *program) { gos_cpu_abort(cpu_of(program)); }

// Threads sleep between steps: there is nothing to leave.
static gpuos_status_t quiesce_cpu(gpuos_program_t *program, uint64_t timeout_ns) {
  (void)program, (void)timeout_ns;
  return GPUOS_OK;
}

static void progress_cpu(gpuos_program_t *program, gpuos_progress_t *out_progress) {
  gos_cpu_progress(cpu_of(program), out_progress);
}

static uint64_t step_ns_cpu(const gpuos_program_t *program, uint64_t step) {
  return gos_cpu_step_ns(cpu_of(program), step);
}

static void pause_cpu(gpuos_program_t *program, bool paused) {
  gos_cpu_pause(cpu_of(program), paused);
}

static void lend_cpu(gpuos_program_t *program, const uint32_t mask[GPUOS_MAX_SMS / 32]) {
  gos_cpu_lend(cpu_of(program), mask);
}

static gpuos_status_t sm_cpu(gpuos_program_t *program, uint32_t sm, gpuos_sm_t *out_sm) {
  const gpuos_sm_t *report = &gos_cpu_sms(cpu_of(program))[sm];
  *out_sm = (gpuos_sm_t){.phase = gos_load(&report->phase),
                         .tile = gos_load(&report->tile),
                         .slice = gos_load(&report->slice),
                         .units_run = gos_load(&report->units_run),
                         .parks = gos_load(&report->parks),
                         .smid = report->smid};
  return GPUOS_OK;
}

const gos_backend_t gos_backend_cpu = {
    .open = open_cpu,
    .close = close_cpu,
    .load = load_cpu,
    .unload = unload_cpu,
    .write = write_cpu,
    .read = read_cpu,
    .submit = submit_cpu,
    .wait = wait_cpu,
    .abort = abort_cpu,
    .quiesce = quiesce_cpu,
    .progress = progress_cpu,
    .step_ns = step_ns_cpu,
    .pause = pause_cpu,
    .lend = lend_cpu,
    .sm = sm_cpu,
};
