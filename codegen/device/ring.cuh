// ring.cuh: the ring of stages between the loader's bulk copies and the workers, and the way of the
// workers' results into memory.
//
// Dynamic shared memory: GPUOS_STAGES stages, then two boxes of results for each warp. The ring
// runs on from tile to tile, whatever their operators, so that the loader is always ahead. Each side
// keeps the stage it is at and, for each stage, the parity it waits for.
#pragma once
#include "take.cuh"

enum {
  // 128 rows of X and 256 of W, 128 bytes of k; of a job 192 and 128.
  GPUOS_STAGE_BYTES = (GPUOS_GROUPS == 3 ? 40 : 48) * 1024,
  GPUOS_BOX_BYTES = 16 * 128, // of results
  GPUOS_RING_SMEM = GPUOS_STAGES * GPUOS_STAGE_BYTES + 2 * GPUOS_WORKERS / 32 * GPUOS_BOX_BYTES,
};

struct gpuos_ring {
  uint32_t stage, phases;
  __device__ __forceinline__ uint32_t parity() const { return phases >> stage & 1; }
  __device__ __forceinline__ uint32_t before() const {
    return (stage + GPUOS_STAGES - 1) % GPUOS_STAGES;
  }
  __device__ __forceinline__ void next() {
    phases ^= 1u << stage;
    stage = (stage + 1) % GPUOS_STAGES;
  }
};

GPUOS_DEVICE uint32_t gpuos_stage(const char *smem, uint32_t stage) {
  return shared_address(smem) + stage * GPUOS_STAGE_BYTES;
}
// This warp's for box number `box` of its results: two, so that lanes need wait for each other but once
// a box.
GPUOS_DEVICE uint32_t gpuos_result_box(const char *smem, uint32_t box) {
  return gpuos_stage(smem, GPUOS_STAGES) + (gpuos_thread() / 32 * 2 + box % 2) * GPUOS_BOX_BYTES;
}

// Address of the tensor map of operand number `place` of the slot's operator.
GPUOS_DEVICE uint64_t gpuos_map_at(const gpuos_cta &cta, const gpuos_slot &slot, uint32_t place) {
  return cta.args.maps + (uint64_t)(slot.of->op.first_operand + place) * 128;
}

// ---- the loader: one thread ---------------------------------------------------------------------

// The ring that weights stream through (stream.cuh), by shared addresses: they stay in registers, since a
// stage of an SM of 24 takes a quarter of a microsecond.
struct gpuos_stream_ring {
  uint32_t full, empty, stages, usual; // of stage 0; of the watch's word
  uint32_t count, most;                // stages; those asked for and not there yet
  gpuos_stream_at at;
};

struct gpuos_loader {
  gpuos_cta *cta;
  gpuos_slot *slot;
  char *smem;
  uint32_t turn; // the slot's
  gpuos_ring ring;
  gpuos_stream_ring stream;
  gpuos_channels channels;
  bool wanted;           // the tile after this one has been asked for
  bool few_sms;          // so few are lent that all of the stream's ring may be under way
  uint32_t peer_readies; // seen
};

// A wait in which a pause is answered. False: stop.
GPUOS_DEVICE bool gpuos_wait_loader(gpuos_cta &cta, uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
    gpuos_hold_loader(cta);
    if (ld_relaxed_shared(&cta.stop)) return false;
  }
  return true;
}
GPUOS_DEVICE bool gpuos_wait_loader(gpuos_cta &cta, uint64_t *barrier, uint32_t parity) {
  return gpuos_wait_loader(cta, shared_address(barrier), parity);
}

// The scheduler takes the next tile while the last steps of this one are loaded: late, so that no SM
// holds tiles that others could run, but not so late that the ring runs dry.
enum { GPUOS_WANT_STEPS = 16 };
GPUOS_DEVICE void gpuos_want_next(gpuos_loader &loader) {
  if (!loader.wanted) mbarrier_arrive(&loader.cta->want);
  loader.wanted = true;
}

template <class OPERAND> GPUOS_DEVICE uint64_t gpuos_map_of(const gpuos_loader &loader) {
  return gpuos_map_at(*loader.cta, *loader.slot, OPERAND::PLACE);
}

// The ring's addresses, in registers.
struct gpuos_ring_at {
  uint32_t full, empty, stages; // of stage 0
};
GPUOS_DEVICE gpuos_ring_at gpuos_find_ring(const gpuos_loader &loader) {
  return {mov_shared_address(loader.cta->full), mov_shared_address(loader.cta->empty),
          mov_shared_address(loader.smem)};
}

// The next stage, empty, its mbarrier told what is to come. False: stop.
GPUOS_DEVICE bool gpuos_enter_stage(gpuos_loader &loader, const gpuos_ring_at &at, uint32_t bytes,
                                    uint32_t &out_full, uint32_t &out_stage) {
  const uint32_t stage = loader.ring.stage, skip = stage * (uint32_t)sizeof(uint64_t);
  while (!mbarrier_try_wait_parity<100>(at.empty + skip, loader.ring.parity() ^ 1)) {
    gpuos_hold_loader(*loader.cta);
    if (ld_relaxed_shared(&loader.cta->stop)) return false;
  }
  gpuos_hold_loader(*loader.cta); // as late as can be: nothing is issued after the look
  out_full = at.full + skip;
  out_stage = at.stages + stage * GPUOS_STAGE_BYTES;
  mbarrier_arrive_expect_tx(out_full, bytes);
  return true;
}

// A park slot if the SM is wanted, else GPUOS_NONE.
GPUOS_DEVICE uint32_t gpuos_wanted_slot(gpuos_cta &cta) {
  if (ld_relaxed_shared(&cta.lent)) return GPUOS_NONE;
  return gpuos_claim_slot(cta, GPUOS_PARK_FREE);
}

// The leader's decision for both tiles of a pair.
GPUOS_DEVICE bool gpuos_decide_pair(gpuos_loader &loader, uint32_t &out_park) {
  gpuos_cta &cta = *loader.cta;
  gpuos_message verdict = {};
  auto hold = [&] { gpuos_hold_loader(cta); };
  if (cta.rank != 0) {
    const bool told = gpuos_receive<GPUOS_RUN_CHANNEL>(cta, loader.channels, verdict, hold);
    out_park = verdict.part[0].x;
    return told;
  }
  uint32_t mine = gpuos_wanted_slot(cta), peers = GPUOS_NONE;
  if (mine != GPUOS_NONE) peers = gpuos_wanted_slot(cta);
  if (mine != GPUOS_NONE && peers == GPUOS_NONE) {
    gpuos_free_slot(cta, mine);
    mine = GPUOS_NONE;
  }
  out_park = mine;
  verdict.part[0].x = peers;
  return gpuos_send<GPUOS_RUN_CHANNEL>(cta, loader.channels, verdict, hold);
}

// Between two slices: true when the loader is to stop before `slice`.
GPUOS_DEVICE bool gpuos_stop_before(gpuos_loader &loader, uint32_t slice) {
  gpuos_cta &cta = *loader.cta;
  gpuos_slot &slot = *loader.slot;
  if (!gpuos_may_park(cta, slot.tile)) return false;
  uint32_t park = GPUOS_NONE;
  if (slot.pair) {
    if (!gpuos_decide_pair(loader, park)) return true;
  } else {
    park = gpuos_wanted_slot(cta);
  }
  if (park == GPUOS_NONE) return false;
  slot.park = park;
  __threadfence_block();
  st_relaxed_shared(&slot.stop_slice, slice);
  return true;
}

// Before the first tile that a pair shares: both rings empty, both start at their first stage.
GPUOS_DEVICE bool gpuos_realign(gpuos_loader &loader) {
  gpuos_cta &cta = *loader.cta;
  gpuos_message go = {};
  auto hold = [&] { gpuos_hold_loader(cta); };
  for (uint32_t s = 0; s < GPUOS_STAGES; s++)
    if (!gpuos_wait_loader(cta, &cta.empty[s], (loader.ring.phases >> s & 1) ^ 1)) return false;
  loader.ring.stage = 0;
  if (cta.rank != 0) {
    mbarrier_arrive_cluster(mapa_shared_cluster(&cta.peer_ready, 0));
    return gpuos_receive<GPUOS_RUN_CHANNEL>(cta, loader.channels, go, hold);
  }
  if (!gpuos_wait_loader(cta, &cta.peer_ready, loader.peer_readies++ & 1)) return false;
  return gpuos_send<GPUOS_RUN_CHANNEL>(cta, loader.channels, go, hold);
}

// ---- the workers --------------------------------------------------------------------------------

// All of a unit with a ring.
GPUOS_DEVICE void gpuos_barrier_all() {
  __syncwarp();
  barrier_sync<GPUOS_RING_BARRIER>(GPUOS_WORKERS);
}

enum gpuos_outcome {
  GPUOS_GIVEN_UP,    // aborted, or a fault
  GPUOS_DONE,        // all written
  GPUOS_HANDED_OVER, // this warp has written its part
  GPUOS_PARKED,
};

struct gpuos_worker {
  gpuos_ring ring;
};

GPUOS_DEVICE uint32_t gpuos_group() { return gpuos_thread() / 128; }

// False: nothing comes any more. A pause is no reason to stay: a warp that did would keep the others
// from a tile that they have already begun.
GPUOS_DEVICE bool gpuos_wait_worker(gpuos_cta &cta, uint64_t *barrier, uint32_t parity) {
  const uint32_t all = 0xffffffffu; // nothing says that all lanes find the same
  for (;;) {
    const bool gone =
        ld_relaxed_shared(&cta.gone) != 0; // before: what came until then all warps take
    if (__all_sync(all, mbarrier_try_wait_parity(barrier, parity))) return true;
    if (__all_sync(all, gone)) return false;
  }
}

// The ring's stage is full; false: the loader stopped before `slice`, or for good. `hold`: what the
// watch said when the step before this one was issued, so that nobody waits for the answer.
GPUOS_DEVICE bool gpuos_await_stage(const gpuos_ctx &ctx, const gpuos_worker &worker,
                                    uint32_t slice, uint32_t hold) {
  gpuos_cta &cta = *ctx.cta;
  if (hold) gpuos_hold(cta);
  while (!mbarrier_try_wait_parity(&cta.full[worker.ring.stage], worker.ring.parity())) {
    if (ld_relaxed_shared(&ctx.slot->stop_slice) == slice) return false;
    if (ld_relaxed_shared(&cta.gone)) return false;
    gpuos_hold(cta);
  }
  return true;
}

// Says that stages may be filled again: thread 0 of a warpgroup to its own CTA, thread 1 to the other
// one when the pair shares copies, else to its own as well, which counts on as many.
struct gpuos_leaver {
  bool says;
  uint32_t empty; // the mbarrier of stage 0
  __device__ __forceinline__ void leave(uint32_t stage) const {
    if (says) mbarrier_arrive_cluster(empty + stage * (uint32_t)sizeof(uint64_t));
  }
};
GPUOS_DEVICE gpuos_leaver gpuos_make_leaver(const gpuos_ctx &ctx) {
  const uint32_t thread = gpuos_thread() % 128;
  const bool says = thread < ctx.cta->ctas;
  return {says,
          mapa_shared_cluster(ctx.cta->empty, ctx.slot->pair && says ? thread : ctx.cta->rank)};
}

// ---- results: a warp ----------------------------------------------------------------------------

// Its results are written. Once all warps have said so, the scheduler signals the tile: the fence that
// this takes is a microsecond in which the workers multiply.
GPUOS_DEVICE void gpuos_hand_over(const gpuos_ctx &ctx) {
  const gpuos_slot &slot = *ctx.slot;
  __syncwarp();
  if (gpuos_thread() % 32 != 0) return;
  const uint32_t tile = ctx.cta->handed_over[gpuos_thread() / 32]++;
  if (gpuos_thread() == 0) ctx.cta->done[tile % (2 * GPUOS_SLOTS)] = {slot.tile.signal, slot.step};
  __threadfence_block();
  atomicAdd(&ctx.cta->stored[tile % 2], 1);
}
