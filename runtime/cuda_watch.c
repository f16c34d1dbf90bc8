// cuda_watch.c: notices units that never end, and says where.
//
// A wait that is too long the SMs notice themselves. A unit that never ends they cannot: nobody may
// be waiting for it, and the SM that runs it polls nothing. From here it shows as tiles that are no
// longer finished while SMs are lent and not paused.
#include <stdio.h>

#include "device_cuda.h"

// On top of the limit of waits, so that an SM which can explain itself does so first.
#define PATIENCE_NS UINT64_C(1000000000)

// ---- the report ---------------------------------------------------------------------------------

// The SM of that phase with the lowest tile, the one that the others wait for; GPUOS_NONE: none.
static uint32_t lowest(const gpuos_program_t *program, gpuos_sm_phase_t phase) {
  const gpuos_sm_t *sms = ((const gos_cuda_program_t *)program->state)->host->sms;
  uint32_t found = GPUOS_NONE;
  for (uint32_t s = 0; s < program->sm_count; s++)
    if (sms[s].phase == phase && (found == GPUOS_NONE || sms[s].tile < sms[found].tile)) found = s;
  return found;
}

static void describe_running(const gpuos_program_t *program, char *out_text, size_t bytes) {
  const gpuos_sm_t *sms = ((const gos_cuda_program_t *)program->state)->host->sms;
  uint32_t s = lowest(program, GPUOS_SM_RUNNING);
  if (s == GPUOS_NONE)
    snprintf(out_text, bytes, "no SM runs a unit");
  else
    snprintf(out_text, bytes,
             "SM %u (%u of the chip) runs tile %u (op '%s' unit %u), a unit that "
             "never ends",
             s, sms[s].smid, sms[s].tile, gos_tile_op_name(program->table, sms[s].tile),
             sms[s].slice);
}

static void describe_waiting(const gpuos_program_t *program, char *out_text, size_t bytes) {
  const gpuos_sm_t *sms = ((const gos_cuda_program_t *)program->state)->host->sms;
  uint32_t s = lowest(program, GPUOS_SM_WAITING);
  out_text[0] = '\0';
  if (s != GPUOS_NONE)
    snprintf(out_text, bytes,
             "; SM %u tile %u (op '%s') waits for counter %u: expected %u, found "
             "%u",
             s, sms[s].tile, gos_tile_op_name(program->table, sms[s].tile), sms[s].counter,
             sms[s].expected, sms[s].found);
}

static void describe(gpuos_program_t *program, uint64_t still_ns) {
  gos_error_t unread = {0}, *error = &program->device->error;
  const gos_cuda_program_t *state = program->state;
  char running[256], waiting[256];
  double still_s = (double)still_ns * 1e-9;
  unread = *error; // why the records cannot be read is not what went wrong
  if (gos_cuda_sms(program, 0, program->sm_count) != GPUOS_OK) {
    *error = unread;
    gos_fail(error, GPUOS_STALL, "no tile was finished for %.1f s; the SMs cannot be asked why",
             still_s);
    return;
  }
  describe_running(program, running, sizeof running);
  describe_waiting(program, waiting, sizeof waiting);
  gos_fail(error, GPUOS_STALL, "no tile was finished for %.1f s, %u of step %u were: %s%s", still_s,
           gos_load(&state->mailbox->tiles_done), gos_load(&state->mailbox->steps_done) + 1,
           running, waiting);
}

// A fault was recorded, but some SM goes on: the fault is the better explanation.
static gpuos_status_t report(gpuos_program_t *program, uint64_t still_ns) {
  gos_fault_t fault = gos_cuda_fault(program->state);
  if (fault.fault != GPUOS_FAULT_NONE) return gos_report_fault(program, &fault);
  describe(program, still_ns);
  return GPUOS_STALL;
}

// ---- the watch ----------------------------------------------------------------------------------

static bool some_lent(const gpuos_mailbox_t *box) {
  uint32_t any = 0;
  for (int i = 0; i < GPUOS_MAX_SMS / 32; i++) any |= gos_load(&box->sm_lent[i]);
  return any != 0;
}

// A live program with steps to do may have all of a job's SMs.
static bool gives_way(const gos_cuda_program_t *state) {
  return state->is_job && state->partner != NULL && gos_cuda_outstanding(state->partner) != 0;
}

// Whether it is all right that nothing moves. Nothing excuses a kernel that should leave.
static bool excused(const gos_cuda_program_t *state) {
  const gpuos_mailbox_t *box = state->mailbox;
  bool storm = gos_load(&box->storms_done) < gos_load(&box->storm_count);
  bool leaves = gos_load(&box->command) == GPUOS_ABORT || gos_load(&box->fault) != GPUOS_FAULT_NONE;
  bool started = gos_load(&box->heartbeat) != state->watch.heartbeat;
  return !started || (!leaves && (state->paused || storm || !some_lent(box) || gives_way(state)));
}

gpuos_status_t gos_cuda_watch(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  gpuos_mailbox_t *box = state->mailbox;
  gos_cuda_watch_t *watch = &state->watch;
  uint64_t now_ns = gos_clock_ns();
  uint64_t limit_ns = program->device->options.wait_limit_us * UINT64_C(1000) + PATIENCE_NS;
  uint32_t steps_done = gos_load(&box->steps_done), tiles_done = gos_load(&box->tiles_done);
  bool moved = steps_done != watch->steps_done || tiles_done != watch->tiles_done;
  if (moved || watch->since_ns == 0 || excused(state)) watch->since_ns = now_ns;
  watch->steps_done = steps_done;
  watch->tiles_done = tiles_done;
  if (now_ns - watch->since_ns < limit_ns) return GPUOS_TIMEOUT;
  gpuos_status_t status = report(program, now_ns - watch->since_ns);
  gos_store(&box->command, GPUOS_ABORT);
  gos_cuda_reset(program); // or the program is lost
  return status;
}
