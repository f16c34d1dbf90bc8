// watch.cuh: the watch of a CTA reads the control block and makes it known to the others.
//
// A warp that does nothing else, since a pause is as fast as it: one 128-byte read in about a
// microsecond, most of which is the read's latency.
#pragma once
#include "take.cuh"

enum {
  GPUOS_WATCH_NS = 100, // between two looks, on top of the read itself
  GPUOS_LENT_LANE = 8,  // this one and those after it read which SMs are lent
  GPUOS_LENT_WORDS = GPUOS_MAX_SMS / 32,
  GPUOS_OTHER_LANE = 16,
  // Live steps that follow each other at once leave no gap that pays for another role, which takes some microseconds.
  GPUOS_REST_NS = 20000,
};
static_assert(GPUOS_LENT_WORDS == 8, "lanes whose numbers differ in three bits");

// Which word lane l reads; those from GPUOS_OTHER_LANE on of the other program, if there is one.
GPUOS_DEVICE const uint32_t *gpuos_watched(const gpuos_control_t *control,
                                           const gpuos_control_t *other, uint32_t lane) {
  if (other && lane >= GPUOS_OTHER_LANE) control = other, lane -= GPUOS_OTHER_LANE;
  switch (lane) {
  case 0: return &control->command;
  case 1: return &control->submitted;
  case 2: return &control->sm_lent[blockIdx.x / 32];
  case 3: return &control->parked_count;
  case 4: return &control->fault;
  case 5: return &control->steps_done;
  default: break;
  }
  const bool lent = lane >= GPUOS_LENT_LANE && lane < GPUOS_LENT_LANE + GPUOS_LENT_WORDS;
  return lent ? &control->sm_lent[lane - GPUOS_LENT_LANE] : &control->wait_limit_us;
}

// How many SMs are lent; all lanes, with what they have read.
GPUOS_DEVICE uint32_t gpuos_count_lent(uint32_t value) {
  uint32_t count = __popc(value);
#pragma unroll
  for (int lanes = GPUOS_LENT_WORDS / 2; lanes > 0; lanes /= 2)
    count += __shfl_xor_sync(0xffffffffu, count, lanes);
  return __shfl_sync(0xffffffffu, count, GPUOS_LENT_LANE);
}

// Nothing is loaded any more: the SM is held, and says once a pause since when.
GPUOS_DEVICE void gpuos_say_held(gpuos_cta &cta, bool &said) {
  if (said || !ld_relaxed_shared(&cta.loader_held)) return;
  const bool loads = ld_relaxed_shared(&cta.worker_loads) != 0;
  if (loads && !ld_relaxed_shared(&cta.worker_held)) return;
  uint64_t held_ns = cta.loader_held_ns;
  if (loads && cta.worker_held_ns > held_ns) held_ns = cta.worker_held_ns;
  st_relaxed_sys_u64(&gpuos_record_of(cta)->held_ns, held_ns);
  fence_acq_rel_gpu();
  red_relaxed_gpu_add(&gpuos_control_of(cta)->held_count, 1);
  said = true;
}

GPUOS_DEVICE void gpuos_obey(gpuos_cta &cta, uint32_t command, uint32_t fault, uint64_t &since_ns,
                             bool &said) {
  st_relaxed_shared(&cta.command, command);
  if (command == GPUOS_ABORT || fault != GPUOS_FAULT_NONE) st_relaxed_shared(&cta.stop, 1);
  if (command == GPUOS_PAUSE) {
    st_relaxed_shared(&cta.hold, 1);
    if (since_ns == 0) since_ns = mov_globaltimer();
    gpuos_say_held(cta, said);
    return;
  }
  if (since_ns != 0) cta.held_total_ns += mov_globaltimer() - since_ns;
  since_ns = 0;
  st_relaxed_shared(&cta.hold, 0);
  if (said) red_relaxed_gpu_add(&gpuos_control_of(cta)->held_count, 0xffffffffu);
  said = false;
}

// What both programs of the kernel want of this SM.
struct gpuos_wanted {
  bool pending;      // this one has steps to do
  bool other_wants;  // the other one has, and may use the SM
  bool other_ends;   // the other one was aborted, or met a fault
  uint64_t since_ns; // that this one has had nothing to do
};
GPUOS_DEVICE void gpuos_compare(gpuos_wanted &w, uint32_t value, uint32_t mine) {
  uint32_t own[6], other[6];
#pragma unroll
  for (int i = 0; i < 6; i++) {
    own[i] = __shfl_sync(0xffffffffu, value, i);
    other[i] = __shfl_sync(0xffffffffu, value, GPUOS_OTHER_LANE + i);
  }
  w.pending = own[1] != own[5];
  w.other_wants = other[0] == GPUOS_RUN && (other[2] & mine) == mine && other[1] != other[5];
  w.other_ends = other[0] == GPUOS_ABORT || other[4] != GPUOS_FAULT_NONE;
}
// A job makes room for a step at once, its tile parked; a live program when it has rested, or lacks the SM.
GPUOS_DEVICE bool gpuos_makes_room(gpuos_wanted &w, bool lent) {
  if (GPUOS_ROLE == GPUOS_JOB || !w.other_wants) return w.other_wants;
  if (lent && w.pending) w.since_ns = mov_globaltimer();
  return !lent || mov_globaltimer() - w.since_ns > GPUOS_REST_NS;
}

GPUOS_DEVICE void gpuos_watch(gpuos_cta &cta) {
  const uint32_t *word = gpuos_watched(gpuos_control_of(cta), cta.other, gpuos_lane());
  // An SM that shares copies with its neighbour works only when both are lent.
  const uint32_t mine = cta.ctas == 2 ? 3u << (blockIdx.x & 30u) : 1u << blockIdx.x % 32;
  uint64_t since_ns = 0;
  bool said = false;
  gpuos_wanted wanted = {};
  // Nothing says that all lanes find the same: they agree.
  while (!__all_sync(0xffffffffu, ld_relaxed_shared(&cta.gone) != 0)) {
    const uint32_t value = ld_relaxed_sys(word);
    const uint32_t command = __shfl_sync(0xffffffffu, value, 0);
    const uint32_t submitted = __shfl_sync(0xffffffffu, value, 1);
    const uint32_t lent = __shfl_sync(0xffffffffu, value, 2);
    const uint32_t parked = __shfl_sync(0xffffffffu, value, 3);
    const uint32_t fault = __shfl_sync(0xffffffffu, value, 4);
    if constexpr (GPUOS_ROLE != GPUOS_ALONE) gpuos_compare(wanted, value, mine);
    const uint32_t lent_sms = GPUOS_STREAMS ? gpuos_count_lent(value) : 0;
    if (gpuos_lane0()) {
      st_relaxed_shared(&cta.lent_sms, lent_sms);
      st_relaxed_shared(&cta.submitted, submitted);
      bool is_lent = (lent & mine) == mine;
      if constexpr (GPUOS_ROLE != GPUOS_ALONE) {
        const bool vacate = gpuos_makes_room(wanted, is_lent);
        st_relaxed_shared(&cta.vacate, vacate);
        if (vacate) is_lent = false;
        if (wanted.other_ends) st_relaxed_shared(&cta.stop, 1);
      }
      st_relaxed_shared(&cta.lent, is_lent);
      st_relaxed_shared(&cta.parked, parked);
      gpuos_obey(cta, command, fault, since_ns, said);
      const bool runs = command == GPUOS_RUN && fault == GPUOS_FAULT_NONE && !wanted.other_ends;
      st_relaxed_shared(&cta.usual, runs && is_lent);
    }
    __syncwarp();
    if (command != GPUOS_PAUSE) __nanosleep(GPUOS_WATCH_NS);
  }
}
