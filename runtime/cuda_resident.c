// cuda_resident.c: a program's kernel comes, is told to go, and starts afresh after a fault.
#include <string.h>
#include <time.h>

#include "device_cuda.h"

// ---- waiting ------------------------------------------------------------------------------------

void gos_cuda_nap(uint64_t waited_ns) {
  const uint64_t spin_ns = 50 * 1000, most_ns = 1000 * 1000;
  uint64_t sleep_ns = waited_ns / 32;
  if (waited_ns < spin_ns) return;
  struct timespec pause = {.tv_nsec = (long)(sleep_ns < most_ns ? sleep_ns : most_ns)};
  nanosleep(&pause, NULL);
}

// The driver's own synchronisation has no timeout, so the stream is polled.
CUresult gos_cuda_idle(const gos_cu_t *cu, CUstream stream, uint64_t limit_ns) {
  for (uint64_t start_ns = gos_clock_ns();;) {
    CUresult result = cu->cuStreamQuery(stream);
    uint64_t waited_ns = gos_clock_ns() - start_ns;
    if (result != CUDA_ERROR_NOT_READY || waited_ns >= limit_ns) return result;
    gos_cuda_nap(waited_ns);
  }
}

uint32_t gos_cuda_outstanding(const gos_cuda_program_t *state) {
  return gos_load(&state->mailbox->submitted) - gos_load(&state->mailbox->steps_done);
}

uint64_t gos_cuda_done(const gos_cuda_program_t *state) {
  return state->submitted - state->dropped - gos_cuda_outstanding(state);
}

// ---- commands -----------------------------------------------------------------------------------

void gos_cuda_announce(gos_cuda_program_t *state) { gos_add(&state->mailbox->changes, 1); }

// gpuos_abort stores ABORT from any thread at any time.
void gos_cuda_command(gos_cuda_program_t *state, gpuos_command_t command) {
  uint32_t *word = &state->mailbox->command;
  for (uint32_t now = gos_load(word); now != GPUOS_ABORT; now = gos_load(word))
    if (gos_swap(word, now, command)) return;
}

// A one-shot kernel hears nothing once it runs: a pause would never end.
gpuos_command_t gos_cuda_usual_command(const gos_cuda_program_t *state) {
  return state->paused && state->args.mailbox != 0 ? GPUOS_PAUSE : GPUOS_RUN;
}

// ---- launch -------------------------------------------------------------------------------------

CUlaunchConfig gos_cuda_launch_config(const gos_cuda_program_t *state,
                                      CUlaunchAttribute *attribute) {
  const gpuos_launch_t *launch = &state->launch;
  *attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {launch->cluster, 1, 1}};
  return (CUlaunchConfig){.gridDimX = state->args.sm_count,
                          .gridDimY = 1,
                          .gridDimZ = 1,
                          .blockDimX = launch->threads,
                          .blockDimY = 1,
                          .blockDimZ = 1,
                          .sharedMemBytes = launch->smem_bytes,
                          .hStream = state->stream,
                          .attrs = attribute,
                          .numAttrs = launch->cluster > 1};
}

// The SMs poll the control block from their first moment on: it must agree with the mailbox before
// the kernel's relay has read that once.
static void fill_told(gos_cuda_program_t *state) {
  gpuos_control_t *told = &state->host->told;
  gpuos_mailbox_t *box = state->mailbox;
  told->command = state->args.mailbox != 0 ? gos_load(&box->command) : GPUOS_RUN;
  told->submitted = gos_load(&box->submitted);
  told->wait_limit_us = gos_load(&box->wait_limit_us);
  for (int i = 0; i < GPUOS_MAX_SMS / 32; i++) told->sm_lent[i] = gos_load(&box->sm_lent[i]);
}

static gpuos_status_t launch_kernel(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state, *all[2];
  int count = gos_cuda_together(state, all);
  gpuos_kernel_args_t args = {.program[0] = all[0]->args};
  if (count > 1) args.program[1] = all[1]->args;
  void *parameters[] = {&args};
  CUlaunchAttribute attribute;
  CUlaunchConfig config = gos_cuda_launch_config(state, &attribute);
  bool one_shot = state->args.mailbox == 0;
  for (int i = 0; i < count; i++)
    GOS_CU_TRY(cuMemcpyHtoDAsync(all[i]->args.control, &all[i]->host->told,
                                 offsetof(gpuos_control_t, ticket), state->stream));
  if (one_shot) GOS_CU_TRY(cuEventRecord(state->started, state->stream));
  GOS_CU_TRY(cuLaunchKernelEx(&config, state->kernel, parameters, NULL));
  if (!one_shot) return GPUOS_OK;
  GOS_CU_TRY(cuEventRecord(state->ended, state->stream));
  GOS_CU_TRY(cuMemcpyDtoHAsync(&state->host->found, state->args.control, sizeof state->host->found,
                               state->stream));
  return GPUOS_OK;
}

static void prepare(gos_cuda_program_t *state) {
  gpuos_mailbox_t *box = state->mailbox;
  fill_told(state);
  state->watch =
      (gos_cuda_watch_t){.queried_ns = gos_clock_ns(), .heartbeat = gos_load(&box->heartbeat)};
  // A new kernel does not know that the last storm is over.
  if (gos_load(&box->storms_done) >= gos_load(&box->storm_count)) gos_store(&box->storm_count, 0);
  gos_store(&box->residency, GPUOS_RESIDENT);
}

gpuos_status_t gos_cuda_launch(gpuos_program_t *program) {
  gos_cuda_program_t *all[2];
  int count = gos_cuda_together(program->state, all);
  for (int i = 0; i < count; i++) prepare(all[i]);
  gpuos_status_t status = launch_kernel(program);
  for (int i = 0; i < count && status != GPUOS_OK; i++)
    gos_store(&all[i]->mailbox->residency, GPUOS_GONE);
  return status;
}

// ---- leaving ------------------------------------------------------------------------------------

// Lines that it asked L2 to keep would outlive it.
void gos_cuda_gone(const gos_cu_t *cu, gos_cuda_program_t *state) {
  gos_cuda_program_t *all[2];
  bool keeps = false;
  for (int i = 0, count = gos_cuda_together(state, all); i < count; i++) {
    gos_store(&all[i]->mailbox->residency, GPUOS_GONE);
    keeps |= all[i]->launch.l2_keep_bytes != 0;
  }
  if (keeps) cu->cuCtxResetPersistingL2Cache();
}

void gos_cuda_tell_to_leave(gos_cuda_program_t *state, bool leave) {
  gos_cuda_program_t *all[2];
  for (int i = 0, count = gos_cuda_together(state, all); i < count; i++)
    gos_cuda_command(all[i], leave ? GPUOS_LEAVE : gos_cuda_usual_command(all[i]));
}

static bool half_built(gos_cuda_program_t *state) {
  gos_cuda_program_t *all[2];
  bool half = false;
  for (int i = 0, count = gos_cuda_together(state, all); i < count; i++)
    half |= all[i]->stream == NULL || all[i]->mailbox == NULL;
  return half;
}

bool gos_cuda_evict(const gos_cu_t *cu, gos_cuda_program_t *state) {
  if (half_built(state)) return true;
  gos_cuda_tell_to_leave(state, true);
  // Of a context that has failed nothing runs any more, so an error is as good.
  bool gone = gos_cuda_idle(cu, state->stream, GOS_CUDA_LEAVE_NS) != CUDA_ERROR_NOT_READY;
  if (gone) gos_cuda_gone(cu, state);
  gos_cuda_tell_to_leave(state, false);
  return gone;
}

// Of all programs of the kernel.
static bool has_steps(gos_cuda_program_t *state) {
  gos_cuda_program_t *all[2];
  bool any = false;
  for (int i = 0, count = gos_cuda_together(state, all); i < count; i++)
    any |= all[i]->mailbox != NULL && gos_cuda_outstanding(all[i]) != 0;
  return any;
}

bool gos_cuda_evict_all(gos_cuda_t *cuda, const gos_cuda_program_t **out_busy) {
  *out_busy = NULL;
  for (gos_cuda_program_t *p = cuda->programs; p != NULL; p = p->next) {
    bool busy = has_steps(p);
    // What is lost gets no second of its own each time.
    if (busy || p->lost) busy = cuda->cu.cuStreamQuery(p->stream) == CUDA_ERROR_NOT_READY;
    if (!busy && !p->lost) busy = !gos_cuda_evict(&cuda->cu, p);
    if (busy) *out_busy = p;
    if (busy) return false;
  }
  return true;
}

// ---- afresh -------------------------------------------------------------------------------------

static void clear_mailbox(gos_cuda_program_t *state) {
  gpuos_mailbox_t *box = state->mailbox;
  state->dropped += gos_cuda_outstanding(state);
  gos_store(&box->storm_count, 0);
  gos_store(&box->submitted, 0);
  gos_store(&box->steps_done, 0);
  gos_store(&box->tiles_done, 0);
  memset(box->step_start_ns, 0, sizeof box->step_start_ns);
  memset(box->step_end_ns, 0, sizeof box->step_end_ns);
  gos_store(&box->fault, GPUOS_FAULT_NONE);
  gos_store(&box->residency, GPUOS_GONE);
  gos_store(&box->command, gos_cuda_usual_command(state)); // the abort has been obeyed
}

// Ordered before the next launch by the stream.
static gpuos_status_t clear_device(gpuos_device_t *device, gos_cuda_program_t *state) {
  const gos_cu_t *cu = &((gos_cuda_t *)device->state)->cu;
  gos_error_t *error = &device->error;
  const gpuos_table_t *table = state->owner->table;
  const gpuos_launch_args_t *args = &state->args;
  size_t sms = args->sm_count, counters = table->counters.count;
  state->host->whole = (gpuos_control_t){.ticket = table->tiles.count}; // step 0 is over
  GOS_CU_TRY(cuMemcpyHtoDAsync(args->control, &state->host->whole, sizeof state->host->whole,
                               state->stream));
  if (counters != 0)
    GOS_CU_TRY(cuMemsetD8Async(args->counters, 0, counters * sizeof(uint32_t), state->stream));
  if (args->stamps != 0)
    GOS_CU_TRY(cuMemsetD8Async(args->stamps, 0, state->launch.stamp_bytes, state->stream));
  GOS_CU_TRY(cuMemsetD8Async(args->sms, 0, sms * sizeof(gpuos_sm_t), state->stream));
  GOS_CU_TRY(cuMemsetD8Async(args->parks, 0, 2 * sms * sizeof(gpuos_park_t), state->stream));
  return GPUOS_OK;
}

// For whoever waits for the steps of a program that ends with its partner.
static void note_dropped(gos_cuda_program_t *state) {
  if (gos_cuda_outstanding(state) == 0) return;
  state->fault = gos_cuda_fault(state);
  state->dropped_why = state->fault.fault != GPUOS_FAULT_NONE              ? GOS_DROPPED_BY_FAULT
                       : gos_load(&state->mailbox->command) == GPUOS_ABORT ? GOS_DROPPED_BY_ABORT
                                                                           : GOS_DROPPED;
}

gpuos_status_t gos_cuda_reset(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_cuda_program_t *state = program->state;
  gos_cuda_program_t *all[2];
  int count = gos_cuda_together(state, all);
  bool lost = gos_cuda_idle(cu, state->stream, GOS_CUDA_LEAVE_NS) == CUDA_ERROR_NOT_READY;
  for (int i = 0; i < count; i++) all[i]->lost = lost;
  if (lost)
    return gos_fail(&program->device->error, GPUOS_STALL,
                    "the kernel has not left: a unit that never ends");
  gpuos_status_t status = GPUOS_OK;
  for (int i = 0; i < count && status == GPUOS_OK; i++) {
    if (all[i]->owner == NULL) continue; // it will only be freed
    if (all[i] != state) note_dropped(all[i]);
    clear_mailbox(all[i]);
    status = clear_device(program->device, all[i]);
  }
  return status;
}

gpuos_status_t gos_cuda_find(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_cuda_program_t *state = program->state;
  if (!state->lost) return GPUOS_OK;
  if (cu->cuStreamQuery(state->stream) == CUDA_ERROR_NOT_READY)
    return gos_fail(&program->device->error, GPUOS_STALL,
                    "a unit that never ends still holds the GPU; only the end of this process "
                    "frees it");
  return gos_cuda_reset(program);
}
