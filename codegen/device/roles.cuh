// roles.cuh: a kernel of two programs, a live one and a job. Each SM plays one of them at a time: the live one while it
// has steps to do and may use the SM, else the job. A program leaves an SM between tiles, or between slices of a tile that
// it puts down, when its watch says so (watch.cuh).
//
// CTAs of a cluster play the job together: the first one, the leader, decides, and the other one is bound by an offer
// that it can take back as long as it has not been accepted.
#pragma once
#include "relay.cuh"

// What a program is to its kernel, and an SM to both.
enum { GPUOS_ALONE, GPUOS_LIVE, GPUOS_JOB, GPUOS_GO_AWAY };
enum { GPUOS_NO_OFFER, GPUOS_OFFERED, GPUOS_ACCEPTED };
// Named barriers: of the workers of units without a ring and with one; of a program's threads; of the kernel's.
enum { GPUOS_PLAIN_BARRIER = 1, GPUOS_RING_BARRIER, GPUOS_MAIN_BARRIER, GPUOS_ROLES_BARRIER };

struct gpuos_roles {
  uint32_t role;
  uint32_t offer;     // in the leader: the other CTA's
  uint32_t met, peer; // times that the CTA has met its peer, and has been met
};
static __shared__ gpuos_roles gpuos_own_roles;

GPUOS_DEVICE uint32_t gpuos_rank() { return blockIdx.x % 2; }

// All of `threads` threads, and those of the other CTA of the cluster. Unlike barrier.cluster this leaves out the relay.
template <int BARRIER> GPUOS_DEVICE void gpuos_meet_pair(uint32_t threads) {
  gpuos_roles &r = gpuos_own_roles;
  barrier_sync<BARRIER>(threads);
  if (threadIdx.x == 0) {
    const uint32_t met = ++r.met;
    st_release_cluster(mapa_shared_cluster(&r.peer, gpuos_rank() ^ 1), met);
    while ((int)(ld_acquire_cluster(mapa_shared_cluster(&r.peer, gpuos_rank())) - met) < 0)
      __nanosleep(20);
  }
  barrier_sync<BARRIER>(threads);
}

// ---- which role: one thread ---------------------------------------------------------------------

// What a program wants of this SM. A cluster's SMs are lent together.
struct gpuos_wish {
  bool wants, ends;
};
GPUOS_DEVICE gpuos_wish gpuos_ask(const gpuos_control_t *control) {
  const uint32_t command = ld_relaxed_sys(&control->command);
  const uint32_t submitted = ld_relaxed_sys(&control->submitted);
  const uint32_t lent = ld_relaxed_sys(&control->sm_lent[blockIdx.x / 32]);
  const uint32_t done = ld_relaxed_sys(&control->steps_done);
  const uint32_t fault = ld_relaxed_sys(&control->fault);
  const bool works = command == GPUOS_RUN && submitted != done;
  return {works && (lent >> blockIdx.x % 32 & 1) != 0,
          command == GPUOS_ABORT || command == GPUOS_LEAVE || fault != 0};
}

// Whether the CTA plays the job now; `wants`: it would. Whoever has offered is bound once that is accepted.
template <bool PAIRS> GPUOS_DEVICE bool gpuos_plays_job(uint32_t offer, bool wants) {
  if constexpr (!PAIRS) return wants;
  if (gpuos_rank() == 0)
    return wants && atom_acq_rel_cluster_cas(offer, GPUOS_OFFERED, GPUOS_ACCEPTED) == GPUOS_OFFERED;
  const uint32_t from = wants ? GPUOS_NO_OFFER : GPUOS_OFFERED;
  const uint32_t to = wants ? GPUOS_OFFERED : GPUOS_NO_OFFER;
  if (atom_acq_rel_cluster_cas(offer, from, to) != GPUOS_ACCEPTED) return false;
  st_release_cluster(offer, GPUOS_NO_OFFER);
  return true;
}

template <bool PAIRS> GPUOS_DEVICE uint32_t gpuos_choose_role(const gpuos_launch_args_t *args) {
  const gpuos_control_t *live = (const gpuos_control_t *)args[0].control;
  const gpuos_control_t *job = (const gpuos_control_t *)args[1].control;
  const uint32_t offer = PAIRS ? mapa_shared_cluster(&gpuos_own_roles.offer, 0) : 0;
  for (;; __nanosleep(200)) {
    const gpuos_wish of_live = gpuos_ask(live), of_job = gpuos_ask(job);
    const bool ends = of_live.ends || of_job.ends;
    if (gpuos_plays_job<PAIRS>(offer, of_job.wants && !of_live.wants && !ends)) return GPUOS_JOB;
    if (ends) return GPUOS_GO_AWAY;
    if (of_live.wants) return GPUOS_LIVE;
  }
}

// Functions of their own, lest their registers be everybody's.
template <int PROGRAMS>
__device__ __noinline__ void gpuos_relay_apart(const gpuos_launch_args_t *args) {
  gpuos_relay<PROGRAMS>(args);
}
template <bool PAIRS>
__device__ __noinline__ uint32_t gpuos_choose_apart(const gpuos_launch_args_t *args) {
  return gpuos_choose_role<PAIRS>(args);
}

// ---- the kernel ---------------------------------------------------------------------------------

// `live` and `job` run the two programs until they leave the SM, by their first LIVE and JOB threads. The relay has one warp
// more.
template <bool PAIRS, uint32_t LIVE, uint32_t JOB, class PLAY_LIVE, class PLAY_JOB>
GPUOS_DEVICE void gpuos_play(const gpuos_launch_args_t *args, PLAY_LIVE live, PLAY_JOB job) {
  constexpr uint32_t THREADS = LIVE > JOB ? LIVE : JOB;
  gpuos_roles &r = gpuos_own_roles;
  if (threadIdx.x == 0) r = {GPUOS_GO_AWAY, GPUOS_NO_OFFER, 0, 0};
  if constexpr (PAIRS)
    barrier_cluster();
  else
    __syncthreads();
  if (threadIdx.x >= THREADS) {
    if (blockIdx.x == 0 && threadIdx.x == THREADS && args[0].mailbox) gpuos_relay_apart<2>(args);
    return;
  }
  for (;;) {
    if (threadIdx.x == 0) r.role = gpuos_choose_apart<PAIRS>(args);
    barrier_sync<GPUOS_ROLES_BARRIER>(THREADS);
    const uint32_t role = ld_relaxed_shared(&r.role);
    if (role == GPUOS_GO_AWAY) break;
    if (role == GPUOS_LIVE && threadIdx.x < LIVE) live(args[0], args[1].control);
    if (role == GPUOS_JOB && threadIdx.x < JOB) job(args[1], args[0].control);
    barrier_sync<GPUOS_ROLES_BARRIER>(THREADS);
  }
  if constexpr (PAIRS) gpuos_meet_pair<GPUOS_ROLES_BARRIER>(THREADS);
}
