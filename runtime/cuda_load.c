// cuda_load.c: a cubin and its table onto the GPU: architecture, module, launch, memory.
#include <stdlib.h>

#include "device_cuda.h"

// ---- module -------------------------------------------------------------------------------------

// From sm_90a on code uses features of exactly one chip generation; before, code of one minor
// version runs on later ones of its major version (CUDA C++ Programming Guide, "Binary
// Compatibility").
static bool runs_on(uint32_t arch, const gos_cuda_t *cuda) {
  int major = (int)arch / 10, minor = (int)arch % 10;
  if (arch >= 90) return major == cuda->major && minor == cuda->minor;
  return major == cuda->major && minor <= cuda->minor;
}

static gpuos_status_t check_arch(gpuos_program_t *program, const gos_artefact_t *artefact) {
  const gos_cuda_t *cuda = gos_cuda_of(program);
  gos_error_t *error = &program->device->error;
  if (artefact->cubin == NULL)
    return gos_fail(error, GPUOS_WRONG_ARCH,
                    "a bare schedule table has no device code; compile for sm_%d%d or use the CPU "
                    "device",
                    cuda->major, cuda->minor);
  if (runs_on(artefact->arch, cuda)) return GPUOS_OK;
  return gos_fail(
      error, GPUOS_WRONG_ARCH, "the artefact is for sm_%u%s, %s is sm_%d%d; compile for this GPU",
      artefact->arch, artefact->arch >= 90 ? "a" : "", cuda->name, cuda->major, cuda->minor);
}

// Copies a module global of exactly `bytes`.
static gpuos_status_t read_global(gpuos_program_t *program, const char *name, void *out_value,
                                  size_t bytes) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  CUdeviceptr address;
  size_t found = 0;
  CUresult result = cu->cuModuleGetGlobal(&address, &found, state->module, name);
  if (result == CUDA_ERROR_NOT_FOUND || (result == CUDA_SUCCESS && found != bytes))
    return gos_fail(error, GPUOS_BAD_ARTEFACT, "the device code has no symbol '%s' of %zu bytes",
                    name, bytes);
  gpuos_status_t status = gos_cu_result(cu, error, result, "cuModuleGetGlobal", __FILE__, __LINE__);
  if (status != GPUOS_OK) return status;
  GOS_CU_TRY(cuMemcpyDtoH(out_value, address, bytes));
  return GPUOS_OK;
}

static gpuos_status_t check_hash(gpuos_program_t *program) {
  uint64_t hash;
  gpuos_status_t status = read_global(program, "gpuos_table_hash", &hash, sizeof hash);
  if (status != GPUOS_OK || hash == program->table->hash) return status;
  return gos_fail(&program->device->error, GPUOS_BAD_ARTEFACT,
                  "the schedule table (hash %016llx) is not the one the device code was built for "
                  "(%016llx)",
                  (unsigned long long)program->table->hash, (unsigned long long)hash);
}

static gpuos_status_t load_module(gpuos_program_t *program, const gos_artefact_t *artefact) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  GOS_CU_TRY(cuModuleLoadData(&state->module, artefact->cubin));
  gpuos_status_t status = check_hash(program);
  if (status == GPUOS_OK)
    status = read_global(program, "gpuos_launch", &state->launch, sizeof state->launch);
  if (status != GPUOS_OK) return status;
  GOS_CU_TRY(cuModuleGetFunction(&state->kernel, state->module, "gpuos_kernel"));
  return GPUOS_OK;
}

// ---- launch geometry ----------------------------------------------------------------------------

static gpuos_status_t check_geometry(gpuos_program_t *program) {
  const gos_cuda_t *cuda = gos_cuda_of(program);
  gos_error_t *error = &program->device->error;
  const gos_launch_t *launch = &((gos_cuda_program_t *)program->state)->launch;
  if (launch->threads == 0 || launch->threads > 1024 || launch->threads % 32 != 0 ||
      launch->ctas_per_sm == 0 || launch->ctas_per_sm > 32)
    return gos_fail(error, GPUOS_BAD_ARTEFACT, "odd launch: %u threads a CTA, %u CTAs an SM",
                    launch->threads, launch->ctas_per_sm);
  if (launch->smem_bytes > (uint32_t)cuda->smem_bytes)
    return gos_fail(error, GPUOS_NOT_RESIDENT,
                    "a CTA needs %u bytes of shared memory, %s gives at most %d",
                    launch->smem_bytes, cuda->name, cuda->smem_bytes);
  if (program->device->options.sm_count > GPUOS_MAX_SMS / launch->ctas_per_sm)
    return gos_fail(error, GPUOS_NOT_RESIDENT,
                    "%u SMs with %u CTAs each are more than the %d workers a program can have; "
                    "open the device with fewer SMs",
                    program->device->options.sm_count, launch->ctas_per_sm, GPUOS_MAX_SMS);
  return GPUOS_OK;
}

// A CTA that is not resident never takes its tickets, and one that waits for it never leaves.
static gpuos_status_t check_resident(gpuos_program_t *program) {
  const gos_cuda_t *cuda = gos_cuda_of(program);
  const gos_cu_t *cu = &cuda->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  const gos_launch_t *launch = &state->launch;
  int resident = 0, registers = 0, static_smem_bytes = 0;
  GOS_CU_TRY(cuFuncSetAttribute(state->kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                (int)launch->smem_bytes));
  GOS_CU_TRY(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, state->kernel));
  GOS_CU_TRY(
      cuFuncGetAttribute(&static_smem_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, state->kernel));
  GOS_CU_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, state->kernel,
                                                         (int)launch->threads, launch->smem_bytes));
  if (resident >= (int)launch->ctas_per_sm) return GPUOS_OK;
  return gos_fail(error, GPUOS_NOT_RESIDENT,
                  "%u CTAs an SM of %u threads with %d registers and %u + %d bytes of shared "
                  "memory: an SM of %s holds %d",
                  launch->ctas_per_sm, launch->threads, registers, launch->smem_bytes,
                  static_smem_bytes, cuda->name, resident);
}

// ---- memory -------------------------------------------------------------------------------------

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
  for (uint32_t i = 0; i < program->table->buffers.count; i++) {
    const char *name = gos_table_string(program->table, buffers[i].name);
    bool zeroed = buffers[i].role == GPUOS_STATE || buffers[i].role == GPUOS_OUTPUT;
    gpuos_status_t status = (zeroed ? allocate_zeroed : allocate)(
        program, gos_role_name(buffers[i].role), name, buffers[i].bytes, &state->buffers[i]);
    if (status != GPUOS_OK) return status;
  }
  return GPUOS_OK;
}

// Device memory of `bytes` with the contents of `data`; *out_address is one of the launch
// arguments.
static gpuos_status_t upload(gpuos_program_t *program, const char *what, const void *data,
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

static gpuos_status_t allocate_args(gpuos_program_t *program) {
  const gpuos_table_t *table = program->table;
  gos_cuda_program_t *state = program->state;
  gos_launch_args_t *args = &state->args;
  args->sm_count = program->device->options.sm_count * state->launch.ctas_per_sm;
  uint64_t sms = args->sm_count, parks = 2 * sms, park_area_bytes = parks * table->park_bytes;
  GPUOS_STATIC_ASSERT(sizeof(CUdeviceptr) == sizeof(uint64_t), "buffers is an array of both");
  gpuos_status_t status = upload(program, "the schedule table", table, table->bytes, &args->table);
  if (status == GPUOS_OK)
    status = upload(program, "buffer addresses", state->buffers,
                    table->buffers.count * sizeof(CUdeviceptr), &args->buffers);
  if (status == GPUOS_OK)
    status = clear(program, "counters", table->counters.count * sizeof(uint32_t), &args->counters);
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

// ---- load ---------------------------------------------------------------------------------------

static gpuos_status_t create_streams(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  void *host = NULL;
  GOS_CU_TRY(cuStreamCreate(&state->stream, CU_STREAM_NON_BLOCKING));
  GOS_CU_TRY(cuStreamCreate(&state->side, CU_STREAM_NON_BLOCKING));
  GOS_CU_TRY(cuEventCreate(&state->armed, CU_EVENT_DISABLE_TIMING));
  GOS_CU_TRY(cuEventCreate(&state->started, CU_EVENT_DEFAULT));
  GOS_CU_TRY(cuEventCreate(&state->ended, CU_EVENT_DEFAULT));
  GOS_CU_TRY(cuEventCreate(&state->done, CU_EVENT_DISABLE_TIMING));
  GOS_CU_TRY(cuEventCreate(&state->abort_sent, CU_EVENT_DISABLE_TIMING));
  GOS_CU_TRY(cuMemHostAlloc(&host, sizeof *state->host, 0));
  state->host = host;
  *state->host = (gos_cuda_host_t){.abort_command = GPUOS_ABORT};
  return GPUOS_OK;
}

gpuos_status_t gos_cuda_load(gpuos_program_t *program, const gos_artefact_t *artefact) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gpuos_status_t status = check_arch(program, artefact);
  if (status != GPUOS_OK) return status;
  gos_cuda_program_t *state = calloc(1, sizeof *state);
  if (state == NULL) return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory for a program");
  program->state = state;
  state->buffers = calloc(program->table->buffers.count, sizeof state->buffers[0]);
  if (state->buffers == NULL) return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory for buffers");
  status = load_module(program, artefact);
  if (status == GPUOS_OK) status = check_geometry(program);
  if (status == GPUOS_OK) status = check_resident(program);
  if (status == GPUOS_OK) status = create_streams(program);
  if (status == GPUOS_OK) status = allocate_buffers(program);
  if (status == GPUOS_OK) status = allocate_args(program);
  if (status != GPUOS_OK) return status;
  GOS_CU_TRY(cuStreamSynchronize(state->stream)); // the table's copy and the zeros
  return GPUOS_OK;
}

// ---- unload -------------------------------------------------------------------------------------

static void free_memory(const gpuos_program_t *program, const gos_cuda_program_t *state) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  const uint64_t owned[] = {state->args.table,    state->args.buffers, state->args.counters,
                            state->args.control,  state->args.sms,     state->args.parks,
                            state->args.park_area};
  for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
    if (owned[i] != 0) cu->cuMemFree(owned[i]);
  for (uint32_t i = 0; i < program->table->buffers.count; i++)
    if (state->buffers[i] != 0) cu->cuMemFree(state->buffers[i]);
  if (state->host != NULL) cu->cuMemFreeHost(state->host);
}

static void destroy_streams(const gos_cu_t *cu, const gos_cuda_program_t *state) {
  const CUevent events[] = {state->armed, state->started, state->ended, state->done,
                            state->abort_sent};
  for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
    if (events[i] != NULL) cu->cuEventDestroy(events[i]);
  if (state->stream != NULL) cu->cuStreamDestroy(state->stream);
  if (state->side != NULL) cu->cuStreamDestroy(state->side);
}

void gos_cuda_unload(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_cuda_program_t *state = program->state;
  // A kernel that ignored its abort still uses all this, and cuMemFree would wait for it: rather
  // lose the memory until the context goes than hang.
  if (atomic_load(&program->running)) return;
  if (state->buffers != NULL) free_memory(program, state);
  destroy_streams(cu, state);
  if (state->module != NULL) cu->cuModuleUnload(state->module);
  free(state->buffers);
  free(state);
}
