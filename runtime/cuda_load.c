// cuda_load.c: a cubin and its table onto the GPU: architecture, module, launch, residency.
#include <stdio.h>
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

gpuos_status_t gos_cuda_read_global(gpuos_program_t *program, const char *what, void *out_value,
                                    size_t bytes) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  CUdeviceptr address;
  size_t found = 0;
  char name[32];
  snprintf(name, sizeof name, "gpuos_%s%s", state->is_job ? "job_" : "", what);
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
  gpuos_status_t status = gos_cuda_read_global(program, "table_hash", &hash, sizeof hash);
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
  if (!state->is_job) GOS_CU_TRY(cuModuleLoadData(&state->module, artefact->cubin));
  gpuos_status_t status = check_hash(program);
  if (status == GPUOS_OK)
    status = gos_cuda_read_global(program, "launch", &state->launch, sizeof state->launch);
  if (status != GPUOS_OK) return status;
  GOS_CU_TRY(cuModuleGetFunction(&state->kernel, state->module, "gpuos_kernel"));
  return GPUOS_OK;
}

// ---- launch geometry ----------------------------------------------------------------------------

static gpuos_status_t check_geometry(gpuos_program_t *program) {
  const gos_cuda_t *cuda = gos_cuda_of(program);
  gos_error_t *error = &program->device->error;
  const gpuos_launch_t *launch = &((gos_cuda_program_t *)program->state)->launch;
  if (launch->threads == 0 || launch->threads > 1024 || launch->threads % 32 != 0 ||
      launch->ctas_per_sm == 0 || launch->ctas_per_sm > 32 || launch->cluster > 2)
    return gos_fail(error, GPUOS_BAD_ARTEFACT,
                    "odd launch: %u threads a CTA, %u CTAs an SM, clusters of %u", launch->threads,
                    launch->ctas_per_sm, launch->cluster);
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

// The grid: whole clusters on the SMs that the device was opened with.
static gpuos_status_t choose_grid(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  uint32_t sms = program->device->options.sm_count * state->launch.ctas_per_sm;
  program->sm_group = state->launch.cluster > 1 ? state->launch.cluster : 1;
  program->sm_count = state->args.sm_count = sms / program->sm_group * program->sm_group;
  if (program->sm_count != 0) return GPUOS_OK;
  return gos_fail(&program->device->error, GPUOS_NOT_RESIDENT,
                  "SMs work in groups of %u here, and the device was opened with %u; open it with "
                  "more",
                  program->sm_group, sms);
}

// How many CTAs of the kernel the GPU holds at once: of the whole GPU with clusters, which need
// neighbouring SMs, of one SM otherwise.
static gpuos_status_t count_resident(gpuos_program_t *program, uint32_t *out_held,
                                     uint32_t *out_wanted) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  const gos_cuda_program_t *state = program->state;
  const gpuos_launch_t *launch = &state->launch;
  int held = 0;
  CUlaunchAttribute attribute;
  CUlaunchConfig config = gos_cuda_launch_config(state, &attribute);
  *out_wanted = launch->cluster > 1 ? state->args.sm_count : launch->ctas_per_sm;
  if (launch->cluster > 1)
    GOS_CU_TRY(cuOccupancyMaxActiveClusters(&held, state->kernel, &config));
  else
    GOS_CU_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &held, state->kernel, (int)launch->threads, launch->smem_bytes));
  *out_held = (uint32_t)held * program->sm_group;
  return GPUOS_OK;
}

// A CTA that is not resident never takes its tickets, and one that waits for it never leaves.
static gpuos_status_t check_resident(gpuos_program_t *program) {
  const gos_cuda_t *cuda = gos_cuda_of(program);
  const gos_cu_t *cu = &cuda->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  const gpuos_launch_t *launch = &state->launch;
  int registers = 0, static_smem_bytes = 0;
  uint32_t held, wanted;
  GOS_CU_TRY(cuFuncSetAttribute(state->kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                (int)launch->smem_bytes));
  GOS_CU_TRY(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, state->kernel));
  GOS_CU_TRY(
      cuFuncGetAttribute(&static_smem_bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, state->kernel));
  gpuos_status_t status = count_resident(program, &held, &wanted);
  if (status != GPUOS_OK || held >= wanted) return status;
  return gos_fail(
      error, GPUOS_NOT_RESIDENT,
      "%u CTAs%s of %u threads with %d registers and %u + %d bytes of shared memory, in "
      "clusters of %u: %s of %s holds %u",
      wanted, launch->cluster > 1 ? "" : " an SM", launch->threads, registers, launch->smem_bytes,
      static_smem_bytes, program->sm_group, launch->cluster > 1 ? "all" : "an SM", cuda->name,
      held);
}

// ---- lines that L2 keeps ------------------------------------------------------------------------

// Of the context, so never lowered: another program may need it. Only speed depends on it, and a
// part of a GPU (MIG) does not have it: errors are no reason to fail.
static void set_aside(const gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  const gos_cuda_program_t *state = program->state;
  size_t now = 0, wanted = state->launch.l2_keep_bytes;
  if (wanted == 0 || cu->cuCtxGetLimit(&now, CU_LIMIT_PERSISTING_L2_CACHE_SIZE) != CUDA_SUCCESS)
    return;
  if (now < wanted) cu->cuCtxSetLimit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, wanted);
}

// ---- load ---------------------------------------------------------------------------------------

// Loading and allocating may wait for every kernel of the context.
static gpuos_status_t clear_the_way(gpuos_program_t *program) {
  const gos_cuda_program_t *busy;
  if (gos_cuda_evict_all(gos_cuda_of(program), &busy)) return GPUOS_OK;
  gos_error_t *error = &program->device->error;
  if (busy->owner == NULL || busy->lost)
    return gos_fail(error, GPUOS_STALL,
                    "a unit that never ends holds the GPU; only the end of this process frees it");
  const gpuos_table_t *table = busy->owner->table;
  const gpuos_graph_t *graph = GPUOS_SECTION(table, gpuos_graph_t, graphs);
  return gos_fail(error, GPUOS_INVALID_ARGUMENT,
                  "a program is loaded while no steps run; wait for those of '%s'",
                  table->graphs.count != 0 ? gos_table_string(table, graph->name) : "?");
}

static gpuos_status_t create_state(gpuos_program_t *program) {
  gos_cuda_t *cuda = gos_cuda_of(program);
  gos_cuda_program_t *state = calloc(1, sizeof *state);
  if (state == NULL)
    return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY, "no memory for a program");
  program->state = state;
  state->owner = program;
  state->next = cuda->programs;
  cuda->programs = state;
  if (program->live == NULL) return GPUOS_OK;
  gos_cuda_program_t *live = program->live->state;
  state->is_job = true;
  state->module = live->module, state->stream = live->stream;
  state->partner = live, live->partner = state;
  return GPUOS_OK;
}

gpuos_status_t gos_cuda_load(gpuos_program_t *program, const gos_artefact_t *artefact) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gpuos_status_t status = check_arch(program, artefact);
  if (status == GPUOS_OK) status = clear_the_way(program);
  if (status == GPUOS_OK) status = create_state(program);
  if (status == GPUOS_OK) status = load_module(program, artefact);
  if (status == GPUOS_OK) status = check_geometry(program);
  if (status == GPUOS_OK) status = choose_grid(program);
  if (status == GPUOS_OK) status = check_resident(program);
  if (status == GPUOS_OK) status = gos_cuda_allocate(program);
  if (status != GPUOS_OK) return status;
  set_aside(program);
  gos_cuda_program_t *state = program->state;
  GOS_CU_TRY(cuStreamSynchronize(state->stream)); // the table's copy and the zeros
  status = gos_cuda_reset(program);
  if (status != GPUOS_OK) return status;
  GOS_CU_TRY(cuStreamSynchronize(state->stream));
  return GPUOS_OK;
}
