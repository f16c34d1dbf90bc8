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

static gpuos_status_t open_cuda(gpuos_device_t *device) {
  gos_error_t *error = &device->error;
  if (device->options.interleave_seed != 0 || device->options.take_back)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT,
                    "interleave_seed and take_back are for the CPU device");
  gos_cuda_t *cuda = calloc(1, sizeof *cuda);
  if (cuda == NULL) return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory for a device");
  device->state = cuda;
  gpuos_status_t status = gos_cu_load(error, &cuda->cu);
  if (status == GPUOS_OK) status = find_device(device, cuda);
  if (status == GPUOS_OK) status = choose_sms(device, cuda);
  if (status != GPUOS_OK) return status;
  return GOS_CU(&cuda->cu, error, cuDevicePrimaryCtxRetain(&cuda->context, cuda->device));
}

static void close_cuda(gpuos_device_t *device) {
  gos_cuda_t *cuda = device->state;
  if (cuda == NULL) return;
  if (cuda->context != NULL) cuda->cu.cuDevicePrimaryCtxRelease(cuda->device);
  gos_cu_unload(&cuda->cu);
  free(cuda);
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

// ---- copies -------------------------------------------------------------------------------------

// On the program's own stream: the stream does not wait for the legacy one, and a synchronous copy
// of pageable memory may return before its last bytes have arrived (CUDA Driver API, "API
// synchronization behavior"). No step runs, so the synchronisation waits for the copy alone.
static gpuos_status_t copy_in(gpuos_program_t *program, uint32_t buffer, const void *data) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  size_t bytes = (size_t)GPUOS_SECTION(program->table, gpuos_buffer_t, buffers)[buffer].bytes;
  if (bytes == 0) return GPUOS_OK;
  GOS_CU_TRY(cuMemcpyHtoDAsync(state->buffers[buffer], data, bytes, state->stream));
  GOS_CU_TRY(cuStreamSynchronize(state->stream));
  return GPUOS_OK;
}

static gpuos_status_t copy_out(gpuos_program_t *program, uint32_t buffer, void *out_data) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  size_t bytes = (size_t)GPUOS_SECTION(program->table, gpuos_buffer_t, buffers)[buffer].bytes;
  if (bytes == 0) return GPUOS_OK;
  GOS_CU_TRY(cuMemcpyDtoHAsync(out_data, state->buffers[buffer], bytes, state->stream));
  GOS_CU_TRY(cuStreamSynchronize(state->stream));
  return GPUOS_OK;
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
  if (gos_cuda_enter(program->device) != GPUOS_OK) return;
  gos_cuda_unload(program);
  gos_cuda_leave(program->device);
}

static gpuos_status_t write_cuda(gpuos_program_t *program, uint32_t buffer, const void *data) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = copy_in(program, buffer, data);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t read_cuda(gpuos_program_t *program, uint32_t buffer, void *out_data) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = copy_out(program, buffer, out_data);
  gos_cuda_leave(program->device);
  return status;
}

static gpuos_status_t submit_cuda(gpuos_program_t *program) {
  gpuos_status_t status = gos_cuda_enter(program->device);
  if (status != GPUOS_OK) return status;
  status = gos_cuda_submit(program);
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

// From any thread, so nothing is recorded: an abort that fails shows as a step that goes on.
static void abort_cuda(gpuos_program_t *program) {
  gos_cuda_t *cuda = gos_cuda_of(program);
  if (cuda->cu.cuCtxPushCurrent(cuda->context) != CUDA_SUCCESS) return;
  gos_cuda_abort(program);
  gos_cuda_leave(program->device);
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
    .abort = abort_cuda,
};
