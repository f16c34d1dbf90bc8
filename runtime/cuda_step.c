// cuda_step.c: one step is one launch: control block in, kernel, control block out.
#include <string.h>
#include <time.h>

#include "device_cuda.h"

// ---- submit -------------------------------------------------------------------------------------

static void fill_control(const gpuos_program_t *program, gos_cuda_program_t *state) {
  gpuos_control_t *control = &state->host->sent;
  memset(control, 0, sizeof *control); // command RUN, ticket 0, no tiles done, no fault
  control->epoch = state->epoch + 1;
  control->wait_limit_us = program->device->options.wait_limit_us;
  for (uint32_t sm = 0; sm < state->args.sm_count; sm++)
    control->sm_lent[sm / 32] |= UINT32_C(1) << sm % 32;
}

gpuos_status_t gos_cuda_submit(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  gos_cuda_host_t *host = state->host;
  void *parameters[] = {&state->args};
  if (atomic_exchange(&state->aborted, false))
    GOS_CU_TRY(cuStreamWaitEvent(state->stream, state->abort_sent, 0));
  fill_control(program, state);
  GOS_CU_TRY(cuMemcpyHtoDAsync(state->args.control, &host->sent, sizeof host->sent, state->stream));
  GOS_CU_TRY(cuEventRecord(state->armed, state->stream));
  GOS_CU_TRY(cuEventRecord(state->started, state->stream));
  GOS_CU_TRY(cuLaunchKernel(state->kernel, state->args.sm_count, 1, 1, state->launch.threads, 1, 1,
                            state->launch.smem_bytes, state->stream, parameters, NULL));
  state->epoch++; // only now: counters move when the kernel runs, and not before
  GOS_CU_TRY(cuEventRecord(state->ended, state->stream));
  GOS_CU_TRY(
      cuMemcpyDtoHAsync(&host->found, state->args.control, sizeof host->found, state->stream));
  GOS_CU_TRY(cuEventRecord(state->done, state->stream));
  return GPUOS_OK;
}

// ---- abort --------------------------------------------------------------------------------------

void gos_cuda_abort(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_cuda_program_t *state = program->state;
  CUdeviceptr command = state->args.control + offsetof(gpuos_control_t, command);
  cu->cuStreamWaitEvent(state->side, state->armed, 0);
  cu->cuMemcpyHtoDAsync(command, &state->host->abort_command, sizeof(uint32_t), state->side);
  cu->cuEventRecord(state->abort_sent, state->side);
  atomic_store(&state->aborted, true); // whoever sees it waits for the copy above
}

// ---- wait ---------------------------------------------------------------------------------------

// Longer the longer it takes: a poll is late by a thirtieth of the wait, or a millisecond at most.
static void sleep_a_little(uint64_t waited_ns) {
  const uint64_t spin_ns = 50 * 1000, most_ns = 1000 * 1000;
  uint64_t sleep_ns = waited_ns / 32;
  if (waited_ns < spin_ns) return;
  struct timespec pause = {.tv_nsec = (long)(sleep_ns < most_ns ? sleep_ns : most_ns)};
  nanosleep(&pause, NULL);
}

// The driver's own synchronisation has no timeout, so the event is polled.
static gpuos_status_t poll(gpuos_program_t *program, uint64_t timeout_ns) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_cuda_program_t *state = program->state;
  for (uint64_t start_ns = gos_clock_ns();;) {
    CUresult result = cu->cuEventQuery(state->done);
    if (result != CUDA_ERROR_NOT_READY)
      return gos_cu_result(cu, &program->device->error, result, "the step", __FILE__, __LINE__);
    uint64_t waited_ns = gos_clock_ns() - start_ns;
    if (waited_ns >= timeout_ns) return GPUOS_TIMEOUT;
    sleep_a_little(waited_ns);
  }
}

// A step that ended early leaves counters behind that fit no epoch. Ordered before the next step by
// the stream.
static gpuos_status_t reset(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  size_t sms = state->args.sm_count, counters = program->table->counters.count;
  state->epoch = 0;
  if (counters != 0)
    GOS_CU_TRY(
        cuMemsetD8Async(state->args.counters, 0, counters * sizeof(uint32_t), state->stream));
  GOS_CU_TRY(cuMemsetD8Async(state->args.sms, 0, sms * sizeof(gpuos_sm_t), state->stream));
  GOS_CU_TRY(cuMemsetD8Async(state->args.parks, 0, 2 * sms * sizeof(gpuos_park_t), state->stream));
  return GPUOS_OK;
}

// Why the kernel left before the last tile.
static gpuos_status_t explain(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  const gpuos_control_t *found = &state->host->found;
  if (found->fault != GPUOS_FAULT_NONE) return gos_report_fault(program, found);
  if (atomic_load(&state->aborted)) return GPUOS_ABORTED;
  return gos_fail(&program->device->error, GPUOS_DRIVER,
                  "the kernel left after %u of %u tiles and recorded no fault", found->tiles_done,
                  program->table->tiles.count);
}

gpuos_status_t gos_cuda_wait(gpuos_program_t *program, uint64_t timeout_ns) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  gpuos_status_t status = poll(program, timeout_ns);
  if (status != GPUOS_OK) return status;
  const gpuos_control_t *found = &state->host->found;
  if (found->tiles_done != program->table->tiles.count || found->fault != GPUOS_FAULT_NONE) {
    status = explain(program);
    reset(program); // should it fail, the next submit will say so
    return status;
  }
  float ms = 0;
  GOS_CU_TRY(cuEventElapsedTime(&ms, state->started, state->ended));
  program->step_ns = (uint64_t)((double)ms * 1e6);
  return GPUOS_OK;
}
