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
};
static_assert(GPUOS_LENT_WORDS == 8, "lanes whose numbers differ in three bits");

// Which word lane l reads.
GPUOS_DEVICE const uint32_t *gpuos_watched(const gpuos_control_t *control, uint32_t lane) {
  switch (lane) {
  case 0: return &control->command;
  case 1: return &control->submitted;
  case 2: return &control->sm_lent[blockIdx.x / 32];
  case 3: return &control->parked_count;
  case 4: return &control->fault;
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

GPUOS_DEVICE void gpuos_watch(gpuos_cta &cta) {
  const uint32_t *word = gpuos_watched(gpuos_control_of(cta), gpuos_lane());
  // An SM that shares copies with its neighbour works only when both are lent.
  const uint32_t mine = cta.ctas == 2 ? 3u << (blockIdx.x & 30u) : 1u << blockIdx.x % 32;
  uint64_t since_ns = 0;
  bool said = false;
  // Nothing says that all lanes find the same: they agree.
  while (!__all_sync(0xffffffffu, ld_relaxed_shared(&cta.gone) != 0)) {
    const uint32_t value = ld_relaxed_sys(word);
    const uint32_t command = __shfl_sync(0xffffffffu, value, 0);
    const uint32_t submitted = __shfl_sync(0xffffffffu, value, 1);
    const uint32_t lent = __shfl_sync(0xffffffffu, value, 2);
    const uint32_t parked = __shfl_sync(0xffffffffu, value, 3);
    const uint32_t fault = __shfl_sync(0xffffffffu, value, 4);
    const uint32_t lent_sms = GPUOS_STREAMS ? gpuos_count_lent(value) : 0;
    if (gpuos_lane0()) {
      st_relaxed_shared(&cta.lent_sms, lent_sms);
      st_relaxed_shared(&cta.submitted, submitted);
      st_relaxed_shared(&cta.lent, (lent & mine) == mine);
      st_relaxed_shared(&cta.parked, parked);
      gpuos_obey(cta, command, fault, since_ns, said);
      const bool runs = command == GPUOS_RUN && fault == GPUOS_FAULT_NONE;
      st_relaxed_shared(&cta.usual, runs && (lent & mine) == mine);
    }
    __syncwarp();
    if (command != GPUOS_PAUSE) __nanosleep(GPUOS_WATCH_NS);
  }
}
