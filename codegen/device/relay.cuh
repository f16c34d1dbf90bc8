// relay.cuh: between the host's memory and the GPU's: one thread of the first CTA passes the host's
// part of each program's mailbox on to its control block, and reports back.
//
// Only this thread crosses the bus, by one load of 16 bytes every 2 us or so. Its warp does nothing else. It needs
// of a program what the launch says, whatever its CTA does meanwhile.
#pragma once
#include "ptx.cuh"

enum {
  GPUOS_RELAY_NS = 200,           // between two looks, on top of the reads themselves
  GPUOS_REPORT_NS = 50000,        // between two reports of progress to the host
  GPUOS_STORM_LIMIT_NS = 1000000, // a pause that takes longer counts as lost
};

GPUOS_DEVICE gpuos_control_t *gpuos_relay_control(const gpuos_launch_args_t &args) {
  return (gpuos_control_t *)args.control;
}
GPUOS_DEVICE gpuos_mailbox_t *gpuos_relay_box(const gpuos_launch_args_t &args) {
  return (gpuos_mailbox_t *)args.mailbox;
}

// What the relay last read of the host's part.
struct gpuos_relay_state {
  uint32_t word[16];
  uint64_t reported_ns, idle_since_ns;
  uint32_t storms;     // pauses done of the storm
  uint32_t steps_done; // that the host has been told of
};

// ---- from the host ------------------------------------------------------------------------------

// Reads the words that change rarely, and passes them on. All have crossed the bus before the first
// is passed on: a microsecond each, and lent_ns would be many too late for the SMs of the first word.
GPUOS_DEVICE void gpuos_pass_on_changes(const gpuos_launch_args_t &args, gpuos_relay_state &relay,
                                        uint32_t changes) {
  gpuos_mailbox_t *mailbox = gpuos_relay_box(args);
  uint32_t *told = (uint32_t *)gpuos_relay_control(args);
#pragma unroll
  for (int i = GPUOS_WORD_SM_LENT; i < 16; i += 4)
    ld_relaxed_sys_v4((const uint32_t *)mailbox + i, relay.word + i);
  fence_acq_rel_sys();
  const uint64_t now_ns = mov_globaltimer();
#pragma unroll
  for (int i = GPUOS_WORD_SM_LENT; i < GPUOS_TOLD_WORDS; i++)
    st_relaxed_sys(told + i, relay.word[i]);
  st_relaxed_sys_u64(&mailbox->lent_ns, now_ns);
  fence_acq_rel_sys();
  st_relaxed_sys(&mailbox->changes_passed, changes);
}

// Reads the mailbox and passes on what has changed.
GPUOS_DEVICE void gpuos_pass_on(const gpuos_launch_args_t &args, gpuos_relay_state &relay) {
  gpuos_control_t *control = gpuos_relay_control(args);
  uint32_t now[4], changed = 0;
  ld_relaxed_sys_v4((const uint32_t *)gpuos_relay_box(args), now);
#pragma unroll
  for (int i = 0; i < 4; i++) changed |= now[i] ^ relay.word[i];
  if (!changed) return;
  fence_acq_rel_sys(); // what the host wrote before
  if (now[GPUOS_WORD_CHANGES] != relay.word[GPUOS_WORD_CHANGES])
    gpuos_pass_on_changes(args, relay, now[GPUOS_WORD_CHANGES]);
  st_relaxed_sys(&control->submitted, now[GPUOS_WORD_SUBMITTED]);
  // LEAVE is for gpuos_may_leave to say, when it has made sure that nothing is left to do.
  if (now[GPUOS_WORD_COMMAND] != relay.word[GPUOS_WORD_COMMAND] &&
      now[GPUOS_WORD_COMMAND] != GPUOS_LEAVE)
    st_relaxed_sys(&control->command, now[GPUOS_WORD_COMMAND]);
#pragma unroll
  for (int i = 0; i < 4; i++) relay.word[i] = now[i];
}

// ---- to the host --------------------------------------------------------------------------------

// Steps that are done; what they wrote, on whatever SM, lies before the host's notice of it.
GPUOS_DEVICE void gpuos_tell_steps(const gpuos_launch_args_t &args, gpuos_relay_state &relay) {
  const gpuos_control_t *control = gpuos_relay_control(args);
  gpuos_mailbox_t *mailbox = gpuos_relay_box(args);
  const uint32_t done = ld_acquire_gpu(&control->steps_done);
  if (done == relay.steps_done) return;
  if (done - relay.steps_done > GPUOS_TIMED_STEPS) relay.steps_done = done - GPUOS_TIMED_STEPS;
  while (relay.steps_done != done) {
    const uint32_t place = ++relay.steps_done % GPUOS_TIMED_STEPS;
    st_relaxed_sys_u64(&mailbox->step_start_ns[place],
                       ld_relaxed_gpu_u64(&control->step_start_ns[place]));
    st_relaxed_sys_u64(&mailbox->step_end_ns[place],
                       ld_relaxed_gpu_u64(&control->step_end_ns[place]));
  }
  fence_acq_rel_sys();
  st_relaxed_sys(&mailbox->steps_done, done);
}

GPUOS_DEVICE void gpuos_tell_host(const gpuos_launch_args_t &args, gpuos_relay_state &relay,
                                  uint64_t now_ns) {
  gpuos_mailbox_t *mailbox = gpuos_relay_box(args);
  if (now_ns - relay.reported_ns < GPUOS_REPORT_NS) return;
  relay.reported_ns = now_ns;
  st_relaxed_sys(&mailbox->tiles_done, ld_relaxed_sys(&gpuos_relay_control(args)->tiles_done));
  st_relaxed_sys(&mailbox->heartbeat, (uint32_t)(now_ns / GPUOS_REPORT_NS));
}

// The host stores `submitted` and then reads this; whoever says LEAVING reads `submitted` after it.
GPUOS_DEVICE void gpuos_say_residency(const gpuos_launch_args_t &args,
                                      gpuos_residency_t residency) {
  fence_acq_rel_sys();
  st_relaxed_sys(&gpuos_relay_box(args)->residency, residency);
  fence_sc_sys();
}

GPUOS_DEVICE void gpuos_tell_fault(const gpuos_launch_args_t &args) {
  const uint32_t *from = &gpuos_relay_control(args)->fault;
  uint32_t *to = &gpuos_relay_box(args)->fault;
  __nanosleep(20000); // the SM that met it is still writing where and why
  for (int i = 1; i < GPUOS_FAULT_WORDS; i++) st_relaxed_sys(to + i, ld_relaxed_sys(from + i));
  fence_acq_rel_sys();
  st_relaxed_sys(to, ld_relaxed_sys(from));
}

// Nothing to do for long enough, or told to leave.
GPUOS_DEVICE bool gpuos_has_time(gpuos_relay_state &relay, uint64_t now_ns) {
  if (relay.steps_done != relay.word[GPUOS_WORD_SUBMITTED]) relay.idle_since_ns = now_ns;
  const bool over = now_ns - relay.idle_since_ns > 1000ull * relay.word[GPUOS_WORD_LINGER];
  return relay.steps_done == relay.word[GPUOS_WORD_SUBMITTED] &&
         (over || relay.word[GPUOS_WORD_COMMAND] == GPUOS_LEAVE);
}

// All programs have time: true once the host knows that nothing is taken any more. Looks once more in between,
// because the host looks the other way round.
template <int PROGRAMS>
GPUOS_DEVICE bool gpuos_may_leave(const gpuos_launch_args_t *args, gpuos_relay_state *relay,
                                  uint64_t now_ns) {
  bool leave = true;
#pragma unroll
  for (int p = 0; p < PROGRAMS; p++) leave &= gpuos_has_time(relay[p], now_ns);
  if (!leave) return false;
#pragma unroll
  for (int p = 0; p < PROGRAMS; p++) gpuos_say_residency(args[p], GPUOS_LEAVING);
#pragma unroll
  for (int p = 0; p < PROGRAMS; p++)
    leave &=
        ld_relaxed_sys(&gpuos_relay_box(args[p])->submitted) == relay[p].word[GPUOS_WORD_SUBMITTED];
#pragma unroll
  for (int p = 0; p < PROGRAMS; p++) {
    if (leave) st_relaxed_sys(&gpuos_relay_control(args[p])->command, GPUOS_LEAVE);
    gpuos_say_residency(args[p], leave ? GPUOS_GONE : GPUOS_RESIDENT);
  }
  return leave;
}

// ---- a storm of pauses, measured ----------------------------------------------------------------

// When the last of the SMs had stopped.
GPUOS_DEVICE uint64_t gpuos_last_held(const gpuos_launch_args_t &args) {
  const gpuos_sm_t *records = (const gpuos_sm_t *)args.sms;
  uint64_t last_ns = 0;
#pragma unroll 8
  for (uint32_t s = 0; s < args.sm_count; s++) {
    const uint64_t ns = ld_relaxed_gpu_u64(&records[s].held_ns);
    last_ns = ns > last_ns ? ns : last_ns;
  }
  return last_ns;
}

// Waits until so many SMs are held; false: not within the limit.
GPUOS_DEVICE bool gpuos_await_held(const gpuos_launch_args_t &args, uint32_t count) {
  const uint64_t since_ns = mov_globaltimer();
  while (ld_relaxed_sys(&gpuos_relay_control(args)->held_count) != count)
    if (mov_globaltimer() - since_ns > GPUOS_STORM_LIMIT_NS) return false;
  fence_acq_rel_gpu();
  return true;
}

GPUOS_DEVICE void gpuos_sleep_until(uint64_t ns) {
  while (mov_globaltimer() < ns) __nanosleep(100);
}

GPUOS_DEVICE void gpuos_count_pause(const gpuos_launch_args_t &args, bool answered, uint32_t ns) {
  gpuos_mailbox_t *mailbox = gpuos_relay_box(args);
  const uint32_t bin = ns / GPUOS_PAUSE_BIN_NS;
  uint32_t *count = &mailbox->storm_lost;
  if (answered) count = &mailbox->pause_bins[bin < GPUOS_PAUSE_BINS ? bin : GPUOS_PAUSE_BINS - 1];
  st_relaxed_sys(count, ld_relaxed_sys(count) + 1);
  if (answered && ns > ld_relaxed_sys(&mailbox->storm_max_ns))
    st_relaxed_sys(&mailbox->storm_max_ns, ns);
}

// One pause of the storm that the host asked for, if it did: from the store of the command until the
// last SM had stopped.
GPUOS_DEVICE void gpuos_storm(const gpuos_launch_args_t &args, gpuos_relay_state &relay) {
  gpuos_control_t *control = gpuos_relay_control(args);
  const uint32_t count = relay.word[GPUOS_WORD_STORM_COUNT];
  if (count == 0) relay.storms = 0;
  if (relay.storms >= count || relay.word[GPUOS_WORD_COMMAND] != GPUOS_RUN) return;
  gpuos_sleep_until(mov_globaltimer() + relay.word[GPUOS_WORD_STORM_RUN]);
  const uint64_t since_ns = mov_globaltimer();
  st_relaxed_sys(&control->command, GPUOS_PAUSE);
  const bool answered = gpuos_await_held(args, args.sm_count);
  const uint32_t ns = answered ? (uint32_t)(gpuos_last_held(args) - since_ns) : 0;
  gpuos_sleep_until(since_ns + relay.word[GPUOS_WORD_STORM_PAUSE]);
  st_relaxed_sys(&control->command, GPUOS_RUN);
  gpuos_await_held(args, 0);
  gpuos_count_pause(args, answered, ns);
  st_relaxed_sys(&gpuos_relay_box(args)->storms_done, ++relay.storms);
}

// ---- the loop -----------------------------------------------------------------------------------

GPUOS_DEVICE void gpuos_begin_relay(const gpuos_launch_args_t &args, gpuos_relay_state &relay) {
  relay.reported_ns = relay.idle_since_ns = mov_globaltimer();
  relay.storms = ld_relaxed_sys(&gpuos_relay_box(args)->storms_done);
  relay.steps_done = ld_relaxed_sys(&gpuos_relay_box(args)->steps_done);
  // The host wrote the control block before the launch; what has changed since is passed on.
  relay.word[GPUOS_WORD_COMMAND] = ld_relaxed_sys(&gpuos_relay_control(args)->command);
  relay.word[GPUOS_WORD_CHANGES] = ld_relaxed_sys(&gpuos_relay_box(args)->changes) - 1;
}

// False: the program is to end, by an abort or a fault.
GPUOS_DEVICE bool gpuos_serve(const gpuos_launch_args_t &args, gpuos_relay_state &relay) {
  gpuos_pass_on(args, relay);
  gpuos_tell_steps(args, relay);
  gpuos_tell_host(args, relay, mov_globaltimer());
  gpuos_storm(args, relay);
  gpuos_tell_steps(args, relay);
  return relay.word[GPUOS_WORD_COMMAND] != GPUOS_ABORT &&
         ld_relaxed_sys(&gpuos_relay_control(args)->fault) == GPUOS_FAULT_NONE;
}

// The programs of a kernel end together: what one of them is told to, or meets, ends the others.
template <int PROGRAMS> GPUOS_DEVICE void gpuos_relay(const gpuos_launch_args_t *args) {
  gpuos_relay_state relay[PROGRAMS] = {};
#pragma unroll
  for (int p = 0; p < PROGRAMS; p++) gpuos_begin_relay(args[p], relay[p]);
  for (bool go = true; go; __nanosleep(GPUOS_RELAY_NS)) {
#pragma unroll
    for (int p = 0; p < PROGRAMS; p++) go &= gpuos_serve(args[p], relay[p]);
    if (go && gpuos_may_leave<PROGRAMS>(args, relay, mov_globaltimer())) return;
  }
  // Whoever hears that it is over finds all faults there: one of the others' is why its steps ended.
#pragma unroll
  for (int p = 0; p < PROGRAMS; p++)
    if (ld_relaxed_sys(&gpuos_relay_control(args[p])->fault) != GPUOS_FAULT_NONE)
      gpuos_tell_fault(args[p]);
#pragma unroll
  for (int p = 0; p < PROGRAMS; p++) gpuos_say_residency(args[p], GPUOS_GONE);
}
