// cuda_measure.c: what the kernel tells of itself: its SMs, pauses, run times and traces.
#include <string.h>

#include "device_cuda.h"

// A copy of device memory that needs nothing of the kernel. `to` is page-locked.
static gpuos_status_t fetch(gpuos_program_t *program, void *to, uint64_t from, size_t bytes) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  const gos_cuda_program_t *state = program->state;
  GOS_CU_TRY(cuMemcpyDtoHAsync(to, from, bytes, state->side));
  CUresult result = gos_cuda_idle(cu, state->side, GOS_CUDA_LEAVE_NS);
  return gos_cu_result(cu, error, result, "a copy", __FILE__, __LINE__);
}

gpuos_status_t gos_cuda_sms(gpuos_program_t *program, uint32_t first, uint32_t count) {
  gos_cuda_program_t *state = program->state;
  return fetch(program, &state->host->sms[first], state->args.sms + first * sizeof(gpuos_sm_t),
               count * sizeof(gpuos_sm_t));
}

// ---- pauses -------------------------------------------------------------------------------------

// Until a kernel that is there must have seen the mailbox as it is now: its heart has beaten twice.
static void let_kernel_look(const gos_cuda_program_t *state) {
  const uint64_t limit_ns = 10 * 1000 * 1000;
  const gpuos_mailbox_t *box = state->mailbox;
  uint32_t heartbeat = gos_load(&box->heartbeat);
  uint64_t start_ns = gos_clock_ns();
  while (gos_load(&box->residency) != GPUOS_GONE && gos_load(&box->heartbeat) - heartbeat < 2)
    if (gos_clock_ns() - start_ns > limit_ns) return;
}

gpuos_status_t gos_cuda_storm(gpuos_program_t *program, uint32_t count, uint32_t run_ns,
                              uint32_t pause_ns) {
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  gpuos_mailbox_t *box = state->mailbox;
  uint32_t done = gos_load(&box->storms_done), asked = gos_load(&box->storm_count);
  if (state->args.mailbox == 0)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "a one-shot kernel hears of no pauses");
  if (count != 0 && done < asked)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "a pause storm is under way: %u of %u", done,
                    asked);
  gos_store(&box->storm_count, 0);
  gos_cuda_announce(state);
  let_kernel_look(state);
  gos_store(&box->storms_done, 0);
  gos_store(&box->storm_lost, 0);
  gos_store(&box->storm_max_ns, 0);
  for (int i = 0; i < GPUOS_PAUSE_BINS; i++) gos_store(&box->pause_bins[i], 0);
  gos_store(&box->storm_run_ns, run_ns);
  gos_store(&box->storm_pause_ns, pause_ns);
  gos_store(&box->storm_count, count); // last: starts it
  gos_cuda_announce(state);
  return GPUOS_OK;
}

void gos_cuda_storm_read(gpuos_program_t *program, gpuos_storm_t *out_storm) {
  const gpuos_mailbox_t *box = ((gos_cuda_program_t *)program->state)->mailbox;
  GPUOS_STATIC_ASSERT(sizeof out_storm->bins == sizeof box->pause_bins, "bins of a storm");
  out_storm->done = gos_load(&box->storms_done);
  out_storm->lost = gos_load(&box->storm_lost);
  out_storm->longest_ns = gos_load(&box->storm_max_ns);
  for (int i = 0; i < GPUOS_PAUSE_BINS; i++) out_storm->bins[i] = gos_load(&box->pause_bins[i]);
}

// ---- take-backs ---------------------------------------------------------------------------------

gpuos_status_t gos_cuda_lent_ns(gpuos_program_t *program, uint64_t *out_ns) {
  const gos_cuda_program_t *state = program->state;
  const gpuos_mailbox_t *box = state->mailbox;
  if (state->args.mailbox == 0)
    return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT,
                    "a one-shot kernel hears of no take-backs");
  bool passed = gos_load(&box->changes_passed) == gos_load(&box->changes);
  *out_ns = passed ? gos_load64(&box->lent_ns) : 0;
  return GPUOS_OK;
}

// ---- units --------------------------------------------------------------------------------------

gpuos_status_t gos_cuda_unit_stats(gpuos_program_t *program, uint32_t op,
                                   gpuos_unit_stats_t *out_stats) {
  gos_cuda_program_t *state = program->state;
  gpuos_status_t status = fetch(program, &state->host->stats,
                                state->args.stats + op * sizeof *out_stats, sizeof *out_stats);
  if (status == GPUOS_OK) *out_stats = state->host->stats;
  return status;
}

gpuos_status_t gos_cuda_trace(gpuos_program_t *program, uint32_t sm, const gpuos_trace_t **out_ring,
                              uint32_t *out_written) {
  gos_cuda_program_t *state = program->state;
  size_t bytes = state->args.trace_count * sizeof(gpuos_trace_t);
  gpuos_status_t status = gos_cuda_sms(program, sm, 1);
  if (status == GPUOS_OK)
    status = fetch(program, state->ring, state->args.trace + sm * bytes, bytes);
  *out_ring = state->ring;
  *out_written = status == GPUOS_OK ? state->host->sms[sm].traced : 0;
  return status;
}
