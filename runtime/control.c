// control.c: pauses a program, lends it SMs, and tells what each of them does.
#include "internal.h"

static gpuos_status_t set_paused(gpuos_program_t *program, bool paused) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_begin(&program->device->error);
  program->device->backend->pause(program, paused);
  return GPUOS_OK;
}

gpuos_status_t gpuos_pause(gpuos_program_t *program) { return set_paused(program, true); }
gpuos_status_t gpuos_resume(gpuos_program_t *program) { return set_paused(program, false); }

// ---- lending ------------------------------------------------------------------------------------

static bool has(const uint32_t *mask, uint32_t sm) { return mask[sm / 32] >> sm % 32 & 1; }

static bool has_group(const uint32_t *mask, uint32_t first, uint32_t count) {
  bool all = true;
  for (uint32_t i = 0; i < count; i++) all = all && has(mask, first + i);
  return all;
}

// Of `mask` the whole groups among the program's SMs: what the device is told is what will work.
static void keep_groups(const gpuos_program_t *program, const uint32_t *mask, uint32_t *out_mask) {
  uint32_t group = program->sm_group;
  for (uint32_t sm = 0; sm + group <= program->sm_count; sm += group)
    for (uint32_t i = sm; i < sm + group && has_group(mask, sm, group); i++)
      out_mask[i / 32] |= UINT32_C(1) << i % 32;
}

gpuos_status_t gpuos_lend(gpuos_program_t *program, const uint32_t mask[8]) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_begin(&program->device->error);
  if (mask == NULL)
    return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT, "lending needs a mask");
  uint32_t whole[GPUOS_MAX_SMS / 32] = {0};
  keep_groups(program, mask, whole);
  program->device->backend->lend(program, whole);
  return GPUOS_OK;
}

uint32_t gpuos_program_sm_group(const gpuos_program_t *program) {
  return program != NULL ? program->sm_group : 0;
}

// ---- what an SM does ----------------------------------------------------------------------------

static const char *phase_name(uint32_t phase) {
  static const char *const names[] = {"idle", "waiting", "running", "gone"};
  return phase < sizeof names / sizeof names[0] ? names[phase] : "?";
}

gpuos_status_t gpuos_program_sm(gpuos_program_t *program, uint32_t sm, gpuos_sm_info_t *out_info) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_t *error = &program->device->error;
  gos_error_begin(error);
  if (out_info == NULL || sm >= program->sm_count)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "SM %u asked for, the program has %u", sm,
                    program->sm_count);
  gpuos_sm_t found = {0};
  gpuos_status_t status = program->device->backend->sm(program, sm, &found);
  if (status != GPUOS_OK) return status;
  bool busy = found.phase == GPUOS_SM_WAITING || found.phase == GPUOS_SM_RUNNING;
  *out_info = (gpuos_sm_info_t){
      .smid = found.smid,
      .units_run = found.units_run,
      .parks = found.parks,
      .phase = phase_name(found.phase),
      .operator_name = busy ? gos_tile_op_name(program->table, found.tile) : "",
      .tile = busy ? found.tile : GPUOS_NONE,
      .slice = busy ? found.slice : 0,
      .away_ns = found.away_ns,
  };
  return GPUOS_OK;
}

// ---- an even share of every GPC -----------------------------------------------------------------

// How many groups lie on lower SMs of the chip than group `first`.
static uint32_t rank_of(const uint32_t *smid, uint32_t groups, uint32_t first) {
  uint32_t rank = 0;
  for (uint32_t g = 0; g < groups; g++)
    rank += smid[g] < smid[first] || (smid[g] == smid[first] && g < first);
  return rank;
}

// The masks of the `count` SMs of the chip's lowest numbers, and of the others.
static gpuos_status_t divide(gpuos_program_t *program, uint32_t count,
                             uint32_t (*out_masks)[GPUOS_MAX_SMS / 32]) {
  uint32_t smid[GPUOS_MAX_SMS];
  uint32_t size = program->sm_group, groups = program->sm_count / size;
  for (uint32_t g = 0; g < groups; g++) {
    gpuos_sm_info_t info;
    gpuos_status_t status = gpuos_program_sm(program, g * size, &info);
    if (status != GPUOS_OK) return status;
    smid[g] = info.smid;
  }
  for (uint32_t g = 0; g < groups; g++)
    for (uint32_t i = g * size; i < (g + 1) * size; i++)
      out_masks[rank_of(smid, groups, g) >= count / size][i / 32] |= UINT32_C(1) << i % 32;
  return GPUOS_OK;
}

gpuos_status_t gpuos_lend_count(gpuos_program_t *program, uint32_t count) {
  uint32_t masks[2][GPUOS_MAX_SMS / 32] = {{0}};
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gpuos_status_t status = divide(program, count, masks);
  return status == GPUOS_OK ? gpuos_lend(program, masks[0]) : status;
}

gpuos_status_t gpuos_share(gpuos_program_t *program, uint32_t job_sms, bool rest) {
  uint32_t masks[2][GPUOS_MAX_SMS / 32] = {{0}};
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_begin(&program->device->error);
  if (program->job == NULL || job_sms > program->sm_count)
    return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT,
                    program->job == NULL ? "the program has no job to share SMs with"
                                         : "more SMs for the job than there are");
  // Of the live program's choice: it keeps what is left when a group is not whole.
  gpuos_status_t status = divide(program, program->sm_count - job_sms, masks);
  for (int i = 0; rest && i < GPUOS_MAX_SMS / 32; i++) masks[1][i] |= masks[0][i];
  if (status == GPUOS_OK) status = gpuos_lend(program, masks[0]);
  return status == GPUOS_OK ? gpuos_lend(program->job, masks[1]) : status;
}
