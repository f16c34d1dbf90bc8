// device_cuda.c: a CUDA GPU as a device.
#include "device_cuda.h"

#include <stdlib.h>

// ---- open and close -----------------------------------------------------------------------------

static gpuos_status_t find_device(gpuos_device_t *device, gos_cuda_t *cuda) {
  const gos_cu_t *cu = &cuda->cu;
  gos_error_t *error = &device->error;
  int count = 0;
  GOS_CU_TRY(cuDeviceGetCount(&count));
  if (device->options.ordinal >= (uint32_t)count)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "GPU %u asked for, the driver finds %d",
                    device->options.ordinal, count);
  GOS_CU_TRY(cuDeviceGet(&cuda->device, (int)device->options.ordinal));
  GOS_CU_TRY(cuDeviceGetName(cuda->name, sizeof cuda->name, cuda->device));
  GOS_CU_TRY(cuDeviceGetAttribute(&cuda->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                  cuda->device));
  GOS_CU_TRY(cuDeviceGetAttribute(&cuda->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                  cuda->device));
  GOS_CU_TRY(cuDeviceGetAttribute(&cuda->sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                  cuda->device));
  GOS_CU_TRY(cuDeviceGetAttribute(
      &cuda->smem_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, cuda->device));
  return GPUOS_OK;
}

static gpuos_status_t choose_sms(gpuos_device_t *device, const gos_cuda_t *cuda) {
  uint32_t most =
      (uint32_t)cuda->sm_count < GPUOS_MAX_SMS ? (uint32_t)cuda->sm_count : (uint32_t)GPUOS_MAX_SMS;
  if (device->options.sm_count > most)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT, "%u SMs asked for, %s has %u usable",
                    device->options.sm_count, cuda->name, most);
  if (device->options.sm_count == 0) device->options.sm_count = most;
  return GPUOS_OK;
}

// The kernel finds a place in the ring by the low bits of the record's number.
static gpuos_status_t choose_tracing(gpuos_device_t *device) {
  uint32_t units = 1;
  if (device->options.trace_units > GOS_MAX_TRACE_UNITS)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT,
                    "traces of %u units an SM asked for, at most %d are possible",
                    device->options.trace_units, GOS_MAX_TRACE_UNITS);
  while (units < device->options.trace_units) units *= 2;
  if (device->options.trace_units != 0) device->options.trace_units = units;
  return GPUOS_OK;
}

static gpuos_status_t open_cuda(gpuos_device_t *device) {
  gos_error_t *error = &device->error;
  if (device->options.interleave_seed != 0 || device->options.take_back)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT,
                    "interleave_seed and take_back are for the CPU device");
  gos_cuda_t *cuda = calloc(1, sizeof *cuda);
  if (cuda == NULL) return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory for a device");
  device->state = cuda;
  gpuos_status_t status = choose_tracing(device);
  if (status == GPUOS_OK) status = gos_cu_load(error, &cuda->cu);
  if (status == GPUOS_OK) status = find_device(device, cuda);
  if (status == GPUOS_OK) status = choose_sms(device, cuda);
  if (status != GPUOS_OK) return status;
  return GOS_CU(&cuda->cu, error, cuDevicePrimaryCtxRetain(&cuda->context, cuda->device));
}

// ---- the context --------------------------------------------------------------------------------

gpuos_status_t gos_cuda_enter(gpuos_device_t *device) {
  gos_cuda_t *cuda = device->state;
  return GOS_CU(&cuda->cu, &device->error, cuCtxPushCurrent(cuda->context));
}

void gos_cuda_leave(gpuos_device_t *device) {
  gos_cuda_t *cuda = device->state;
  CUcontext popped;
  cuda->cu.cuCtxPopCurrent(&popped);
}

// ---- programs -----------------------------------------------------------------------------------

// Frees what destroyed programs still hold, unless some kernel that the driver would wait for runs:
// then it stays, rather than hang, until a later call finds the GPU free.
static void collect(gos_cuda_t *cuda) {
  const gos_cuda_program_t *busy;
  bool any = false;
  for (const gos_cuda_program_t *p = cuda->programs; p != NULL; p = p->next)
    any = any || p->owner == NULL;
  if (!any || !gos_cuda_evict_all(cuda, &busy)) return;
  for (gos_cuda_program_t **at = &cuda->programs; *at != NULL;) {
    gos_cuda_program_t *program = *at;
    if (program->owner != NULL) {
      at = &program->next;
      continue;
    }
    *at = program->next;
    gos_cuda_free(&cuda->cu, program);
  }
}

// The context of a kernel that never ends cannot be given up either.
static void close_cuda(gpuos_device_t *device) {
  gos_cuda_t *cuda = device->state;
  if (cuda == NULL) return;
  if (cuda->programs != NULL && gos_cuda_enter(device) == GPUOS_OK) {
    collect(cuda);
    gos_cuda_leave(device);
  }
  if (cuda->programs != NULL) return;
  if (cuda->context != NULL) cuda->cu.cuDevicePrimaryCtxRelease(cuda->device);
  gos_cu_unload(&cuda->cu);
  free(cuda);
}

// ---- the backend: each call inside the device's context -----------------------------------------

static gpuos_status_t load_cuda(gpuos_program_t *program, const gos_artefact_t *artefact) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_load(program, artefact);
  gos_cuda_leave(program->device);
  return status;
}

static void unload_cuda(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  state->owner = NULL;
  if (gos_cuda_enter(program->device) != GPUOS_OK) return;
  collect(gos_cuda_of(program));
  gos_cuda_leave(program->device);
}

static gpuos_status_t write_cuda(gpuos_program_t *program, uint32_t buffer, const void *data) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_find(program);
  if (status == GPUOS_OK) status = gos_cuda_write(program, buffer, data);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t read_cuda(gpuos_program_t *program, uint32_t buffer, void *out_data) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_find(program);
  if (status == GPUOS_OK) status = gos_cuda_read(program, buffer, out_data);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t submit_cuda(gpuos_program_t *program, uint32_t count) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_submit(program, count);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t wait_cuda(gpuos_program_t *program, uint64_t timeout_ns) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_wait(program, timeout_ns);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t quiesce_cuda(gpuos_program_t *program, uint64_t timeout_ns) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_quiesce(program, timeout_ns);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t sm_cuda(gpuos_program_t *program, uint32_t sm, gpuos_sm_t *out_sm) {
  const gos_cuda_program_t *state = program->state;
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_sms(program, sm, 1);
  if (status == GPUOS_OK) *out_sm = state->host->sms[sm];
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t unit_stats_cuda(gpuos_program_t *program, uint32_t op,
                                      gpuos_unit_stats_t *out_stats) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_unit_stats(program, op, out_stats);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t trace_cuda(gpuos_program_t *program, uint32_t sm,
                                 const gpuos_trace_t **out_ring, uint32_t *out_written) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_trace(program, sm, out_ring, out_written);
  gos_cuda_leave(program->device);
  return status;
}

// ---- the backend: calls that need only the mailbox ----------------------------------------------

static void pause_cuda(gpuos_program_t *program, bool paused) {
  gos_cuda_program_t *state = program->state;
  state->paused = paused;
  state->watch.since_ns = 0;
  gos_cuda_command(state, gos_cuda_usual_command(state));
}

static void lend_cuda(gpuos_program_t *program, const uint32_t mask[GPUOS_MAX_SMS / 32]) {
  gos_cuda_program_t *state = program->state;
  state->watch.since_ns = 0;
  for (int i = 0; i < GPUOS_MAX_SMS / 32; i++) gos_store(&state->mailbox->sm_lent[i], mask[i]);
  gos_cuda_announce(state);
}

static void progress_cuda(gpuos_program_t *program, gpuos_progress_t *out_progress) {
  const gos_cuda_program_t *state = program->state;
  uint32_t open = gos_cuda_outstanding(state);
  out_progress->steps_submitted = state->submitted;
  out_progress->steps_done = state->submitted - state->dropped - open; // of the same look
  out_progress->tiles_done = open != 0 ? gos_load(&state->mailbox->tiles_done) : 0;
  out_progress->resident = gos_load(&state->mailbox->residency) != GPUOS_GONE;
}

const gos_backend_t gos_backend_cuda = {
    .open = open_cuda,
    .close = close_cuda,
    .load = load_cuda,
    .unload = unload_cuda,
    .write = write_cuda,
    .read = read_cuda,
    .submit = submit_cuda,
    .wait = wait_cuda,
    .abort = gos_cuda_abort,
    .quiesce = quiesce_cuda,
    .progress = progress_cuda,
    .step_ns = gos_cuda_step_ns,
    .pause = pause_cuda,
    .lend = lend_cuda,
    .sm = sm_cuda,
    .storm = gos_cuda_storm,
    .storm_read = gos_cuda_storm_read,
    .lent_ns = gos_cuda_lent_ns,
    .unit_stats = unit_stats_cuda,
    .trace = trace_cuda,
};
