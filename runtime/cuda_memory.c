// cuda_memory.c: what a program holds on the GPU and in page-locked memory, and copies of tensors.
#include <stdlib.h>
#include <string.h>

#include "device_cuda.h"

// ---- device memory ------------------------------------------------------------------------------

// At least 16 bytes, so that every buffer has an address of its own.
static gpuos_status_t allocate(gpuos_program_t *program, const char *what, const char *name,
                               uint64_t bytes, CUdeviceptr *out_address) {
  const gos_cuda_t *cuda = gos_cuda_of(program);
  gos_error_t *error = &program->device->error;
  CUresult result = cuda->cu.cuMemAlloc(out_address, bytes < 16 ? 16 : (size_t)bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory left on %s for %s%s%s%s of %llu bytes",
                    cuda->name, what, name[0] != '\0' ? " '" : "", name, name[0] != '\0' ? "'" : "",
                    (unsigned long long)bytes);
  return gos_cu_result(&cuda->cu, error, result, "cuMemAlloc", __FILE__, __LINE__);
}

static gpuos_status_t allocate_zeroed(gpuos_program_t *program, const char *what, const char *name,
                                      uint64_t bytes, CUdeviceptr *out_address) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  gpuos_status_t status = allocate(program, what, name, bytes, out_address);
  if (status != GPUOS_OK || bytes == 0) return status;
  GOS_CU_TRY(cuMemsetD8Async(*out_address, 0, (size_t)bytes, state->stream));
  return GPUOS_OK;
}

static gpuos_status_t allocate_buffers(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  const gpuos_buffer_t *buffers = GPUOS_SECTION(program->table, gpuos_buffer_t, buffers);
  state->buffers = calloc(program->table->buffers.count, sizeof state->buffers[0]);
  state->owned = calloc(program->table->buffers.count, sizeof state->owned[0]);
  if (state->buffers == NULL || state->owned == NULL)
    return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY, "no memory for buffers");
  state->buffer_count = program->table->buffers.count;
  for (uint32_t i = 0; i < state->buffer_count; i++) {
    const char *name = gos_table_string(program->table, buffers[i].name);
    if (buffers[i].joined) {
      state->buffers[i] = state->buffers[i - 1] + buffers[i - 1].bytes;
      continue;
    }
    bool zeroed = buffers[i].role == GPUOS_STATE || buffers[i].role == GPUOS_OUTPUT;
    uint64_t bytes = gpuos_joined_bytes(buffers, state->buffer_count, i);
    gpuos_status_t status = (zeroed ? allocate_zeroed : allocate)(
        program, gos_role_name(buffers[i].role), name, bytes, &state->owned[i]);
    if (status != GPUOS_OK) return status;
    state->buffers[i] = state->owned[i];
  }
  return GPUOS_OK;
}

gpuos_status_t gos_cuda_upload(gpuos_program_t *program, const char *what, const void *data,
                               uint64_t bytes, uint64_t *out_address) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  CUdeviceptr address = 0;
  gpuos_status_t status = allocate(program, what, "", bytes, &address);
  *out_address = address;
  if (status != GPUOS_OK) return status;
  GOS_CU_TRY(cuMemcpyHtoDAsync(address, data, (size_t)bytes, state->stream));
  return GPUOS_OK;
}

static gpuos_status_t clear(gpuos_program_t *program, const char *what, uint64_t bytes,
                            uint64_t *out_address) {
  CUdeviceptr address = 0;
  gpuos_status_t status = allocate_zeroed(program, what, "", bytes, &address);
  *out_address = address;
  return status;
}

// ---- the launch arguments -----------------------------------------------------------------------

static gpuos_status_t allocate_protocol(gpuos_program_t *program) {
  const gpuos_table_t *table = program->table;
  gos_cuda_program_t *state = program->state;
  gpuos_launch_args_t *args = &state->args;
  uint64_t sms = args->sm_count, parks = 2 * sms, park_area_bytes = parks * table->park_bytes;
  GPUOS_STATIC_ASSERT(sizeof(CUdeviceptr) == sizeof(uint64_t), "buffers is an array of both");
  gpuos_status_t status =
      gos_cuda_upload(program, "the schedule table", table, table->bytes, &args->table);
  if (status == GPUOS_OK)
    status = gos_cuda_upload(program, "buffer addresses", state->buffers,
                             table->buffers.count * sizeof(CUdeviceptr), &args->buffers);
  if (status == GPUOS_OK) status = gos_cuda_upload_places(program);
  if (status == GPUOS_OK)
    status = clear(program, "counters", table->counters.count * sizeof(uint32_t), &args->counters);
  if (status == GPUOS_OK && state->launch.stamp_bytes != 0)
    status = clear(program, "stamped results", state->launch.stamp_bytes, &args->stamps);
  if (status == GPUOS_OK)
    status = clear(program, "the control block", sizeof(gpuos_control_t), &args->control);
  if (status == GPUOS_OK)
    status = clear(program, "SM records", sms * sizeof(gpuos_sm_t), &args->sms);
  if (status == GPUOS_OK)
    status = clear(program, "park slots", parks * sizeof(gpuos_park_t), &args->parks);
  if (status == GPUOS_OK && park_area_bytes != 0)
    status = clear(program, "parked accumulators", park_area_bytes, &args->park_area);
  return status;
}

// Page-locked memory that the kernel may reach, zeroed.
static gpuos_status_t allocate_host(gpuos_program_t *program, size_t bytes, void **out_memory) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  GOS_CU_TRY(
      cuMemHostAlloc(out_memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  memset(*out_memory, 0, bytes);
  return GPUOS_OK;
}

static gpuos_status_t allocate_tracing(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  gpuos_launch_args_t *args = &state->args;
  uint64_t units = program->device->options.trace_units; // at most GOS_MAX_TRACE_UNITS
  void *ring = NULL;
  if (units == 0) return GPUOS_OK;
  args->trace_count = (uint32_t)units;
  gpuos_status_t status =
      clear(program, "traces", args->sm_count * units * sizeof(gpuos_trace_t), &args->trace);
  if (status == GPUOS_OK)
    status = clear(program, "unit times", program->table->ops.count * sizeof(gpuos_unit_stats_t),
                   &args->stats);
  if (status == GPUOS_OK)
    status = allocate_host(program, (size_t)units * sizeof(gpuos_trace_t), &ring);
  state->ring = ring;
  return status;
}

// The mailbox is the host's book-keeping even when the kernel is not told of it.
static gpuos_status_t allocate_mailbox(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  const gpuos_device_options_t *options = &program->device->options;
  void *mailbox = NULL, *host = NULL;
  CUdeviceptr address = 0;
  gpuos_status_t status = allocate_host(program, sizeof(gpuos_mailbox_t), &mailbox);
  state->mailbox = mailbox;
  if (status == GPUOS_OK) status = allocate_host(program, sizeof(gos_cuda_host_t), &host);
  state->host = host;
  if (status != GPUOS_OK) return status;
  state->mailbox->wait_limit_us = options->wait_limit_us;
  state->mailbox->linger_us = options->linger_us;
  for (uint32_t sm = 0; sm < state->args.sm_count; sm++)
    state->mailbox->sm_lent[sm / 32] |= UINT32_C(1) << sm % 32;
  if (options->one_shot) return GPUOS_OK;
  GOS_CU_TRY(cuMemHostGetDevicePointer(&address, mailbox, 0));
  state->args.mailbox = address;
  return GPUOS_OK;
}

static gpuos_status_t create_streams(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  if (!state->is_job) GOS_CU_TRY(cuStreamCreate(&state->stream, CU_STREAM_NON_BLOCKING));
  GOS_CU_TRY(cuStreamCreate(&state->side, CU_STREAM_NON_BLOCKING));
  GOS_CU_TRY(cuEventCreate(&state->started, CU_EVENT_DEFAULT));
  GOS_CU_TRY(cuEventCreate(&state->ended, CU_EVENT_DEFAULT));
  return GPUOS_OK;
}

gpuos_status_t gos_cuda_allocate(gpuos_program_t *program) {
  gpuos_status_t status = create_streams(program);
  if (status == GPUOS_OK) status = allocate_buffers(program);
  if (status == GPUOS_OK) status = allocate_protocol(program);
  if (status == GPUOS_OK) status = allocate_mailbox(program);
  if (status == GPUOS_OK) status = allocate_tracing(program);
  if (status == GPUOS_OK) status = gos_cuda_encode_maps(program);
  return status;
}

// ---- free ---------------------------------------------------------------------------------------

static void free_device_memory(const gos_cu_t *cu, const gos_cuda_program_t *state) {
  const uint64_t owned[] = {state->args.table,    state->args.buffers,   state->args.places,
                            state->args.counters, state->args.control,   state->args.sms,
                            state->args.parks,    state->args.park_area, state->args.maps,
                            state->args.trace,    state->args.stats,     state->args.stamps};
  for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
    if (owned[i] != 0) cu->cuMemFree(owned[i]);
  for (uint32_t i = 0; i < state->buffer_count; i++)
    if (state->owned[i] != 0) cu->cuMemFree(state->owned[i]);
}

void gos_cuda_free(const gos_cu_t *cu, gos_cuda_program_t *state) {
  void *const locked[] = {state->mailbox, state->host, state->ring};
  free_device_memory(cu, state);
  for (size_t i = 0; i < sizeof locked / sizeof locked[0]; i++)
    if (locked[i] != NULL) cu->cuMemFreeHost(locked[i]);
  if (state->started != NULL) cu->cuEventDestroy(state->started);
  if (state->ended != NULL) cu->cuEventDestroy(state->ended);
  if (state->partner != NULL) state->partner->partner = NULL;
  if (state->stream != NULL && !state->is_job) cu->cuStreamDestroy(state->stream);
  if (state->side != NULL) cu->cuStreamDestroy(state->side);
  if (state->module != NULL && !state->is_job) cu->cuModuleUnload(state->module);
  free(state->buffers);
  free(state->owned);
  free(state);
}

// ---- copies of tensors --------------------------------------------------------------------------

// On the side stream: the kernel, idle, sits in the other one. It waits for no other stream, and a
// copy of pageable memory may return before its last bytes have arrived (CUDA Driver API, "API
// synchronization behavior"), hence the wait.
static gpuos_status_t end_copy(gpuos_program_t *program, uint64_t bytes) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  const gos_cuda_program_t *state = program->state;
  const uint64_t limit_ns = UINT64_C(10000000000) + bytes * 10; // 100 MB/s: something is broken
  CUresult result = gos_cuda_idle(cu, state->side, limit_ns);
  return gos_cu_result(cu, &program->device->error, result, "a copy", __FILE__, __LINE__);
}

static uint64_t bytes_of(const gpuos_program_t *program, uint32_t buffer) {
  return GPUOS_SECTION(program->table, gpuos_buffer_t, buffers)[buffer].bytes;
}

gpuos_status_t gos_cuda_write(gpuos_program_t *program, uint32_t buffer, const void *data) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  uint64_t bytes = bytes_of(program, buffer);
  if (bytes == 0) return GPUOS_OK;
  GOS_CU_TRY(cuMemcpyHtoDAsync(state->buffers[buffer], data, (size_t)bytes, state->side));
  return end_copy(program, bytes);
}

gpuos_status_t gos_cuda_read(gpuos_program_t *program, uint32_t buffer, void *out_data) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  uint64_t bytes = bytes_of(program, buffer);
  if (bytes == 0) return GPUOS_OK;
  GOS_CU_TRY(cuMemcpyDtoHAsync(out_data, state->buffers[buffer], (size_t)bytes, state->side));
  return end_copy(program, bytes);
}
