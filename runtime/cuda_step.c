// cuda_step.c: a step is a number in the mailbox; its end is another one.
#include "device_cuda.h"

static gpuos_residency_t residency_of(const gos_cuda_program_t *state) {
  // Sequentially consistent, as the store of `submitted` before it: either the kernel sees the new
  // step before it goes, or we see that it is going.
  return (gpuos_residency_t)__atomic_load_n(&state->mailbox->residency, __ATOMIC_SEQ_CST);
}

// ---- submit -------------------------------------------------------------------------------------

// An abort that came when all was done already: the kernel has taken it for the next steps'.
static gpuos_status_t absorb_abort(gpuos_program_t *program) {
  const gos_cuda_program_t *state = program->state;
  bool late = !atomic_load(&program->running) && gos_load(&state->mailbox->command) == GPUOS_ABORT;
  return late ? gos_cuda_reset(program) : GPUOS_OK;
}

// The other program of the kernel has ended the kernel, by a fault or an abort.
static bool partner_ended(const gos_cuda_program_t *state) {
  const gos_cuda_program_t *partner = state->partner;
  return partner != NULL && (gos_load(&partner->mailbox->fault) != GPUOS_FAULT_NONE ||
                             gos_load(&partner->mailbox->command) == GPUOS_ABORT);
}

// Whoever waits for the other program's steps is to hear first why they ended; if nobody does, that is over. Steps of
// this one that ended with them are for gpuos_wait to speak of.
static gpuos_status_t absorb_partners_end(gpuos_program_t *program) {
  const gos_cuda_program_t *state = program->state;
  if (!partner_ended(state) || gos_cuda_outstanding(state) != 0) return GPUOS_OK;
  if (!atomic_load(&state->partner->owner->running)) return gos_cuda_reset(program);
  return gos_fail(
      &program->device->error, GPUOS_ABORTED,
      "the other program of the kernel met a fault or was aborted; wait for its steps first");
}

static gpuos_status_t accept(gpuos_program_t *program, uint32_t count) {
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  gpuos_status_t status = gos_cuda_find(program);
  if (status == GPUOS_OK) status = absorb_abort(program);
  if (status == GPUOS_OK) status = absorb_partners_end(program);
  if (status != GPUOS_OK) return status;
  uint32_t open = gos_cuda_outstanding(state);
  if (count > INT32_MAX - open)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "%u steps on top of %u are too many", count,
                    open);
  if (program->device->options.one_shot && (count > 1 || atomic_load(&program->running)))
    return gos_fail(error, GPUOS_INVALID_ARGUMENT,
                    "a one-shot device runs one step at a time; wait for it");
  return GPUOS_OK;
}

// A kernel that is about to go decides within microseconds.
static gpuos_residency_t settle(const gos_cuda_program_t *state) {
  gpuos_residency_t residency;
  uint64_t start_ns = gos_clock_ns();
  while ((residency = residency_of(state)) == GPUOS_LEAVING)
    if (gos_clock_ns() - start_ns > GOS_CUDA_LEAVE_NS) break;
  return residency;
}

static const char INTERRUPTED[] =
    "the other program of the kernel met a fault or was aborted, which ended these steps as well";

static void withdraw(gos_cuda_program_t *state, uint32_t count) {
  gos_store(&state->mailbox->submitted, state->mailbox->submitted - count);
  state->submitted -= count;
}

// Steps were told to a kernel that, it turns out, has gone. With steps of before missing it went for
// a reason, which gpuos_wait will find.
static gpuos_status_t relaunch(gpuos_program_t *program, uint32_t before, uint32_t count) {
  gos_cuda_program_t *state = program->state;
  const gpuos_mailbox_t *box = state->mailbox;
  bool failed = gos_load(&box->steps_done) != before || gos_load(&box->fault) != GPUOS_FAULT_NONE ||
                gos_load(&box->command) == GPUOS_ABORT;
  if (failed) return GPUOS_OK;
  gpuos_status_t status = gos_cuda_launch(program);
  if (status != GPUOS_OK) withdraw(state, count);
  return status;
}

gpuos_status_t gos_cuda_submit(gpuos_program_t *program, uint32_t count) {
  gos_cuda_program_t *state = program->state;
  gpuos_status_t status = accept(program, count);
  if (status != GPUOS_OK) return status;
  uint32_t before = gos_load(&state->mailbox->submitted);
  if (gos_cuda_outstanding(state) == 0) {
    state->watch.since_ns = 0;
    gos_store(&state->mailbox->tiles_done, 0); // the last step's are told for a while yet
  }
  __atomic_store_n(&state->mailbox->submitted, before + count, __ATOMIC_SEQ_CST);
  state->submitted += count;
  switch (settle(state)) {
  case GPUOS_RESIDENT: return GPUOS_OK;
  case GPUOS_GONE: return relaunch(program, before, count);
  default:
    state->lost = true;
    return gos_fail(&program->device->error, GPUOS_DRIVER,
                    "the kernel has been about to leave for a second, and does not");
  }
}

void gos_cuda_abort(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  gos_store(&state->mailbox->command, GPUOS_ABORT);
}

// ---- wait ---------------------------------------------------------------------------------------

// The control block of a one-shot kernel, once that has left, as if it had had a mailbox.
static void take_found(gos_cuda_program_t *state) {
  const gpuos_control_t *found = &state->host->found;
  gpuos_mailbox_t *box = state->mailbox;
  box->fault_sm = found->fault_sm, box->fault_tile = found->fault_tile;
  box->fault_slice = found->fault_slice, box->fault_a = found->fault_a;
  box->fault_b = found->fault_b, box->fault_c = found->fault_c;
  box->tiles_done = found->tiles_done;
  gos_store(&box->steps_done, found->steps_done);
  gos_store(&box->fault, found->fault);
}

// Asks the driver, now and then, whether the kernel is still there: one that died says nothing.
static gpuos_status_t look_after_kernel(gpuos_program_t *program, bool *out_gone) {
  const uint64_t every_ns = 1000 * 1000;
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_cuda_program_t *state = program->state;
  uint64_t now_ns = gos_clock_ns();
  bool one_shot = state->args.mailbox == 0;
  *out_gone = residency_of(state) == GPUOS_GONE;
  if (*out_gone || (!one_shot && now_ns - state->watch.queried_ns < every_ns)) return GPUOS_OK;
  state->watch.queried_ns = now_ns;
  CUresult result = cu->cuStreamQuery(state->stream);
  if (result == CUDA_ERROR_NOT_READY) return GPUOS_OK;
  *out_gone = true;
  gos_cuda_program_t *all[2];
  for (int i = 0, count = gos_cuda_together(state, all); i < count; i++)
    gos_store(&all[i]->mailbox->residency, GPUOS_GONE);
  if (one_shot && result == CUDA_SUCCESS) take_found(state);
  return gos_cu_result(cu, &program->device->error, result, "the step", __FILE__, __LINE__);
}

static uint64_t one_shot_ns(const gpuos_program_t *program) {
  const gos_cuda_program_t *state = program->state;
  float ms = 0;
  gos_cuda_of(program)->cu.cuEventElapsedTime(&ms, state->started, state->ended);
  return (uint64_t)((double)ms * 1e6);
}

// The mailbox counts steps from the last fault on, and keeps the times of the latest.
uint64_t gos_cuda_step_ns(const gpuos_program_t *program, uint64_t step) {
  const gos_cuda_program_t *state = program->state;
  const gpuos_mailbox_t *box = state->mailbox;
  uint32_t counted = gos_load(&box->steps_done);
  uint64_t done = state->submitted - state->dropped - (box->submitted - counted);
  if (step == 0 || step > done || done - step >= GPUOS_TIMED_STEPS || done - step >= counted)
    return 0;
  if (state->args.mailbox == 0) return step == done ? program->step_ns : 0;
  uint32_t place = (counted - (uint32_t)(done - step)) % GPUOS_TIMED_STEPS;
  uint64_t start_ns = gos_load64(&box->step_start_ns[place]),
           end_ns = gos_load64(&box->step_end_ns[place]);
  return start_ns < end_ns ? end_ns - start_ns : 0; // an SM may write a start late: then unknown
}

// Why the kernel left before the last step's end.
static gpuos_status_t explain(gpuos_program_t *program) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  const gos_cuda_program_t *state = program->state;
  const gpuos_mailbox_t *box = state->mailbox;
  gos_fault_t fault = gos_cuda_fault(state);
  if (fault.fault != GPUOS_FAULT_NONE) return gos_report_fault(program, &fault);
  if (gos_load(&box->command) == GPUOS_ABORT) return GPUOS_ABORTED;
  if (partner_ended(state)) return gos_fail(error, GPUOS_ABORTED, INTERRUPTED);
  CUresult result = gos_cuda_idle(cu, state->stream, GOS_CUDA_LEAVE_NS);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
    return gos_cu_result(cu, error, result, "the step", __FILE__, __LINE__);
  return gos_fail(
      error, GPUOS_DRIVER, "the kernel left after %u of %u tiles of step %u and recorded no fault",
      gos_load(&box->tiles_done), program->table->tiles.count, gos_load(&box->steps_done) + 1);
}

static gpuos_status_t say_dropped(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  int why = state->dropped_why;
  state->dropped_why = GOS_NOT_DROPPED;
  if (why == GOS_DROPPED_BY_FAULT) return gos_report_fault(program, &state->fault);
  if (why == GOS_DROPPED_BY_ABORT) return GPUOS_ABORTED;
  return gos_fail(&program->device->error, GPUOS_ABORTED, INTERRUPTED);
}

// TIMEOUT: steps go on.
static gpuos_status_t look(gpuos_program_t *program) {
  gos_cuda_program_t *state = program->state;
  const gpuos_mailbox_t *box = state->mailbox;
  bool gone;
  if (state->dropped_why != GOS_NOT_DROPPED) return say_dropped(program);
  // Before the rest is read: what the kernel wrote before it went is then seen.
  gpuos_status_t status = look_after_kernel(program, &gone);
  if (status != GPUOS_OK) {
    gos_cuda_reset(program);
    return status;
  }
  bool faulted = gos_load(&box->fault) != GPUOS_FAULT_NONE;
  if (!faulted && gos_cuda_outstanding(state) == 0) {
    program->step_ns = state->args.mailbox == 0 ? one_shot_ns(program)
                                                : gos_cuda_step_ns(program, gos_cuda_done(state));
    return GPUOS_OK;
  }
  if (!gone) return gos_cuda_watch(program);
  status = explain(program);
  gos_cuda_reset(program); // should it fail, the next submit will say so
  return status;
}

gpuos_status_t gos_cuda_wait(gpuos_program_t *program, uint64_t timeout_ns) {
  const gos_cuda_program_t *state = program->state;
  for (uint64_t start_ns = gos_clock_ns();;) {
    gpuos_status_t status = look(program);
    uint64_t waited_ns = gos_clock_ns() - start_ns;
    if (status != GPUOS_TIMEOUT) return status;
    if (waited_ns >= timeout_ns) break;
    gos_cuda_nap(waited_ns);
  }
  bool started =
      state->args.mailbox == 0 || gos_load(&state->mailbox->heartbeat) != state->watch.heartbeat;
  if (timeout_ns != 0 && !started)
    gos_fail(&program->device->error, GPUOS_TIMEOUT,
             "the kernel has not started after %.3f s: other work holds the GPU",
             (double)timeout_ns * 1e-9);
  return GPUOS_TIMEOUT;
}

// ---- quiesce ------------------------------------------------------------------------------------

gpuos_status_t gos_cuda_quiesce(gpuos_program_t *program, uint64_t timeout_ns) {
  const gos_cu_t *cu = &gos_cuda_of(program)->cu;
  gos_error_t *error = &program->device->error;
  gos_cuda_program_t *state = program->state;
  gpuos_status_t status = gos_cuda_find(program);
  if (status != GPUOS_OK) return status;
  gos_cuda_tell_to_leave(state, true);
  CUresult result = gos_cuda_idle(cu, state->stream, timeout_ns);
  if (result == CUDA_SUCCESS) gos_cuda_gone(cu, state);
  gos_cuda_tell_to_leave(state, false);
  if (result == CUDA_ERROR_NOT_READY)
    return gos_fail(error, GPUOS_TIMEOUT, "the kernel is still there after %.3f s",
                    (double)timeout_ns * 1e-9);
  return gos_cu_result(cu, error, result, "the kernel", __FILE__, __LINE__);
}
