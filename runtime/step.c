// step.c: starts, awaits, watches and aborts a program's steps.
#include "internal.h"

static gpuos_status_t all_given(gpuos_program_t *program) {
  const gpuos_buffer_t *buffers = GPUOS_SECTION(program->table, gpuos_buffer_t, buffers);
  for (uint32_t i = 0; i < program->table->buffers.count; i++) {
    if (program->given[i]) continue;
    const char *name = gos_table_string(program->table, buffers[i].name);
    bool weight = buffers[i].role == GPUOS_WEIGHT;
    return gos_fail(&program->device->error, GPUOS_NOT_BOUND,
                    "%s '%s' was never given; %s it first", gos_role_name(buffers[i].role), name,
                    weight ? "bind a safetensors file that holds" : "write");
  }
  return GPUOS_OK;
}

gpuos_status_t gpuos_submit_steps(gpuos_program_t *program, uint32_t count) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_t *error = &program->device->error;
  gos_error_begin(error);
  if (count == 0 || count > INT32_MAX)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "%u steps cannot be submitted", count);
  gpuos_status_t status = all_given(program);
  if (status == GPUOS_OK) status = program->device->backend->submit(program, count);
  if (status == GPUOS_OK) atomic_store(&program->running, true);
  return status;
}

gpuos_status_t gpuos_submit(gpuos_program_t *program) { return gpuos_submit_steps(program, 1); }

gpuos_status_t gpuos_wait(gpuos_program_t *program, uint64_t timeout_ns) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_t *error = &program->device->error;
  gos_error_begin(error);
  if (!atomic_load(&program->running))
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "no step is running; submit one first");
  gpuos_status_t status = program->device->backend->wait(program, timeout_ns);
  if (status != GPUOS_TIMEOUT) atomic_store(&program->running, false);
  if (status == GPUOS_TIMEOUT && timeout_ns != 0)
    gos_fail(error, status, "the step still runs after %.3f s", (double)timeout_ns * 1e-9);
  if (status == GPUOS_ABORTED) gos_fail(error, status, "the step was aborted");
  return status;
}

gpuos_status_t gpuos_quiesce(gpuos_program_t *program, uint64_t timeout_ns) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  uint64_t start_ns = gos_clock_ns();
  gos_error_begin(&program->device->error);
  if (atomic_load(&program->running)) {
    gpuos_status_t status = gpuos_wait(program, timeout_ns);
    if (status != GPUOS_OK) return status;
  }
  uint64_t waited_ns = gos_clock_ns() - start_ns;
  return program->device->backend->quiesce(program,
                                           waited_ns < timeout_ns ? timeout_ns - waited_ns : 0);
}

gpuos_status_t gpuos_program_progress(gpuos_program_t *program, gpuos_progress_t *out_progress) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_begin(&program->device->error);
  if (out_progress == NULL)
    return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT, "progress needs a place");
  *out_progress = (gpuos_progress_t){.tiles = program->table->tiles.count};
  program->device->backend->progress(program, out_progress);
  return GPUOS_OK;
}

void gpuos_abort(gpuos_program_t *program) {
  if (program != NULL && atomic_load(&program->running)) program->device->backend->abort(program);
}

uint64_t gpuos_step_ns(const gpuos_program_t *program) {
  return program != NULL ? program->step_ns : 0;
}
