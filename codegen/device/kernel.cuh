// kernel.cuh: a resident program: one CTA an SM, its workers and four or six agent warps.
//
//   scheduler  takes tiles in ticket order (take.cuh, alone.cuh, schedule.cuh)
//   loader     fills the ring for the tiles that want it (ring.cuh, stream.cuh)
//   workers    run the tiles' units
//   watch      reads the host's and the SMs' commands every microsecond (watch.cuh)
//   relay      in the first CTA only: between the host's memory and the GPU's (relay.cuh)
//   store      two warps, where there are any: results of units whose weights stream (stream.cuh)
//
// Why so many: code that runs once a tile is not in the instruction cache, and a microsecond of it in
// the loader or in a worker is one in which nothing is loaded or multiplied.
//
// Where CTAs form clusters, the scheduler waits for what a tile waits for; where they do not, the workers
// do, so that weights are loaded meanwhile, and the store warps before they write.
//
// Nobody waits without looking whether to stop, so an abort or a fault ends the kernel.
#pragma once
#include "alone.cuh"
#include "ring.cuh"
#include "schedule.cuh"
#include "stream.cuh"
#include "watch.cuh"

enum {
  GPUOS_LOADER_WARP = GPUOS_WORKERS / 32,
  GPUOS_SCHEDULER_WARP,
  GPUOS_WATCH_WARP,
  GPUOS_STORE_WARP,
  GPUOS_RELAY_WARP = GPUOS_STORE_WARP + GPUOS_STORES, // that of two programs is roles.cuh's
  // Of 65,536 registers: the workers' accumulators need more than an even share.
  GPUOS_WORKER_REGISTERS = 216,
  GPUOS_AGENT_REGISTERS = 72,
};

// ---- the loader: one thread ---------------------------------------------------------------------

// The tile before had no ring and used its shared memory: wait until it is over. False: stop.
GPUOS_DEVICE bool gpuos_await_memory(gpuos_loader &loader, uint32_t turn) {
  const uint32_t before = turn - 1;
  uint64_t *empty = &loader.cta->slot_empty[before % GPUOS_SLOTS];
  const bool over = gpuos_wait_loader(*loader.cta, empty, before / GPUOS_SLOTS & 1);
  fence_proxy_async_shared();
  return over;
}

// The ring is filled for the tile in loader.slot. False: stop.
template <class PROGRAM> GPUOS_DEVICE bool gpuos_load_tile(gpuos_loader &loader, uint32_t turn) {
  gpuos_cta &cta = *loader.cta;
  if (loader.slot->realign && !gpuos_realign(loader)) return false;
  PROGRAM::load(loader, loader.slot->of->unit);
  if (ld_relaxed_shared(&cta.stop)) return false;
  if (ld_relaxed_shared(&loader.slot->stop_slice) == GPUOS_NONE) return true;
  // Put down: the next tile's copies would look to the workers like this one's.
  return gpuos_wait_loader(cta, &cta.slot_empty[turn % GPUOS_SLOTS], turn / GPUOS_SLOTS & 1);
}

// Of a cluster's CTA.
template <class PROGRAM> GPUOS_DEVICE void gpuos_fill_rings(gpuos_loader &loader) {
  bool ring_before = true; // the shared memory was the ring's in the tile before
  for (uint32_t turn = 0; gpuos_await_tile(*loader.cta, turn); turn++) {
    loader.slot = &loader.cta->slots[turn % GPUOS_SLOTS];
    loader.wanted = false;
    const bool bulk = PROGRAM::bulk(loader.slot->of->unit);
    if (bulk && !ring_before && !gpuos_await_memory(loader, turn)) break;
    if (bulk && !gpuos_load_tile<PROGRAM>(loader, turn)) break;
    ring_before = bulk;
    gpuos_want_next(loader);
  }
}

// Of any other: the ring has its own memory.
template <class PROGRAM> GPUOS_DEVICE void gpuos_stream_tiles(gpuos_loader &loader) {
  loader.stream = gpuos_find_stream(*loader.cta, loader.smem);
  while (gpuos_await_tile(*loader.cta, loader.turn)) {
    gpuos_begin_loading(loader);
    PROGRAM::load(loader, loader.slot->of->unit);
    gpuos_end_loading(loader);
  }
}

template <class PROGRAM> GPUOS_DEVICE void gpuos_loader_loop(gpuos_cta &cta, char *smem) {
  gpuos_loader loader = {};
  loader.cta = &cta, loader.smem = smem;
  if constexpr (GPUOS_CTAS == 2)
    gpuos_fill_rings<PROGRAM>(loader);
  else
    gpuos_stream_tiles<PROGRAM>(loader);
  while (!ld_relaxed_shared(&cta.gone)) gpuos_hold_loader(cta);
}

// ---- the workers --------------------------------------------------------------------------------

// A unit that has something to do before what it reads is there enters its tile by itself.
template <class UNIT>
GPUOS_DEVICE auto gpuos_enter_for(const gpuos_ctx &, int) -> decltype(UNIT::ENTERS, true) {
  return true;
}
template <class UNIT> GPUOS_DEVICE bool gpuos_enter_for(const gpuos_ctx &ctx, ...) {
  return gpuos_enter(ctx);
}

// One operator's code, a function of its own: inlined together, all of them would keep what they
// derive from the thread's number in registers over the whole loop. Not for wgmma, which ptxas would
// serialise.
template <class UNIT> __device__ __noinline__ bool gpuos_call(uint32_t turn) {
  gpuos_ctx ctx = gpuos_find_ctx(turn);
  return gpuos_enter_for<UNIT>(ctx, 0) && UNIT::run(ctx);
}
template <class UNIT> GPUOS_DEVICE gpuos_outcome gpuos_run(uint32_t turn) {
  const bool done = gpuos_call<UNIT>(turn);
  return gpuos_barrier_or(!done) ? GPUOS_GIVEN_UP : GPUOS_DONE;
}

// Worker 0, once all have run the tile. Others wait for it; a store warp tells them, if there is one.
GPUOS_DEVICE void gpuos_close_tile(gpuos_cta &cta, gpuos_slot &slot, gpuos_outcome outcome) {
  if (!GPUOS_STREAMS && outcome == GPUOS_DONE) gpuos_signal(cta, {slot.tile.signal, slot.step});
  if (GPUOS_STREAMS && outcome == GPUOS_GIVEN_UP) slot.failed = 1;
  if (outcome == GPUOS_DONE || outcome == GPUOS_HANDED_OVER)
    gpuos_end_unit(cta, slot, gpuos_op_slices(&slot.of->op) - 1);
  st_relaxed_shared(&cta.worker_loads, 0);
}

// The next tile; false: nothing comes any more.
GPUOS_DEVICE bool gpuos_next_tile(gpuos_cta &cta, uint32_t turn) {
  return gpuos_wait_worker(cta, &cta.slot_full[turn % GPUOS_SLOTS], turn / GPUOS_SLOTS & 1);
}

// Of a cluster's CTA.
template <class PROGRAM> GPUOS_DEVICE void gpuos_run_ready_tiles(gpuos_cta &cta, char *smem) {
  gpuos_worker worker = {};
  for (uint32_t turn = 0; gpuos_next_tile(cta, turn); turn++) {
    gpuos_slot &slot = cta.slots[turn % GPUOS_SLOTS];
    const gpuos_ctx ctx = {&cta, &slot, smem};
    const bool plain = !PROGRAM::bulk(slot.of->unit),
               idle = plain && gpuos_thread() >= GPUOS_THREADS;
    const bool enter = !plain || (!idle && gpuos_enter_plain(ctx));
    if (gpuos_thread() == 0) gpuos_begin_unit(cta);
    if (slot.realign) worker.ring.stage = 0;
    gpuos_outcome outcome = GPUOS_GIVEN_UP;
    if (enter && plain) outcome = PROGRAM::run_plain(turn, slot.of->unit);
    if (enter && !plain) outcome = PROGRAM::run_wgmma(ctx, worker, slot.of->unit);
    if (gpuos_thread() == 0) gpuos_close_tile(cta, slot, outcome);
    if (plain) fence_proxy_async_shared(); // the ring comes next
    mbarrier_arrive(
        &cta.slot_empty[mov_u32(turn) % GPUOS_SLOTS]); // not kept in a register for a tile
  }
}

// Of any other, whose units wait for what tiles read. Nothing but the turn stays in a register over the
// unit's call.
template <class PROGRAM> __device__ __noinline__ uint32_t gpuos_run_turn(uint32_t turn) {
  const uint32_t unit = gpuos_find_ctx(turn).slot->of->unit;
  if (PROGRAM::bulk(unit)) return PROGRAM::run_stream(turn, unit);
  const gpuos_outcome outcome = PROGRAM::run_plain(turn, unit);
  const gpuos_ctx ctx = gpuos_find_ctx(turn);
  if (gpuos_thread() == 0) gpuos_close_tile(*ctx.cta, *ctx.slot, outcome);
  gpuos_leave_tile(ctx, turn);
  return turn + 1;
}

template <class PROGRAM> GPUOS_DEVICE void gpuos_run_tiles() {
  for (uint32_t turn = 0; gpuos_next_tile(gpuos_own_cta(), turn);)
    turn = gpuos_run_turn<PROGRAM>(turn);
}

template <class PROGRAM> GPUOS_DEVICE void gpuos_worker_loop(gpuos_cta &cta, char *smem) {
  if constexpr (GPUOS_CTAS == 2)
    gpuos_run_ready_tiles<PROGRAM>(cta, smem);
  else
    gpuos_run_tiles<PROGRAM>();
}

// ---- the scheduler: a warp ----------------------------------------------------------------------

// Then tells everyone else in the CTA that nothing comes any more. After a stop, copies may still be
// under way into this CTA and its peer: they land within microseconds. Otherwise all steps are done.
template <class PROGRAM> GPUOS_DEVICE void gpuos_scheduler_loop(gpuos_cta &cta) {
  if constexpr (GPUOS_CTAS == 2)
    gpuos_schedule_cluster<PROGRAM>(cta);
  else
    gpuos_schedule_alone<PROGRAM>(cta);
  if (!gpuos_lane0()) return;
  if (ld_relaxed_shared(&cta.stop)) __nanosleep(100000);
  st_relaxed_shared(&cta.gone, 1);
  gpuos_report(cta, GPUOS_SM_GONE, GPUOS_NONE);
}

// ---- the kernel ---------------------------------------------------------------------------------

GPUOS_DEVICE void gpuos_open_barriers(gpuos_cta &cta) {
  for (int s = 0; s < GPUOS_STAGES; s++) {
    mbarrier_init(&cta.full[s], 1);
    mbarrier_init(&cta.empty[s], GPUOS_GROUPS * cta.ctas); // all warpgroups, of both CTAs
  }
  for (int s = 0; s < GPUOS_SLOTS; s++) {
    mbarrier_init(&cta.slot_full[s], 1);
    // By itself a CTA's loader says so, and its workers' warps, or for them a store warp.
    mbarrier_init(&cta.slot_empty[s], GPUOS_CTAS == 2 ? GPUOS_WORKERS
                                      : GPUOS_STREAMS ? 2
                                                      : GPUOS_WARPS + 1);
    mbarrier_init(&cta.sums_full[s], GPUOS_WARPS);
  }
  mbarrier_init(&cta.want, 1);
  mbarrier_init(&cta.peer_ready, 1);
  for (int s = 0; s < GPUOS_MOST_STREAM_STAGES; s++) {
    mbarrier_init(&cta.stream_full[s], 1);
    mbarrier_init(&cta.stream_empty[s], GPUOS_WARPS);
  }
  for (int c = 0; c < GPUOS_CHANNELS && GPUOS_CTAS == 2; c++) {
    mbarrier_init(&cta.message_full[c], 1);
    mbarrier_init(&cta.message_free[c], 1);
    mbarrier_arrive_expect_tx(shared_address(&cta.message_full[c]), sizeof cta.message[c]);
  }
  fence_mbarrier_init();
}

// Their memory is then anybody's.
GPUOS_DEVICE void gpuos_close_barriers(gpuos_cta &cta) {
  uint64_t *const all[] = {cta.full,        cta.empty,        cta.slot_full, cta.slot_empty,
                           cta.stream_full, cta.stream_empty, cta.sums_full};
  const int count[] = {GPUOS_STAGES,
                       GPUOS_STAGES,
                       GPUOS_SLOTS,
                       GPUOS_SLOTS,
                       GPUOS_MOST_STREAM_STAGES,
                       GPUOS_MOST_STREAM_STAGES,
                       GPUOS_SLOTS};
#pragma unroll
  for (int i = 0; i < 7; i++)
    for (int s = 0; s < count[i]; s++) mbarrier_inval(&all[i][s]);
  mbarrier_inval(&cta.want);
  mbarrier_inval(&cta.peer_ready);
  for (int c = 0; c < GPUOS_CHANNELS && GPUOS_CTAS == 2; c++) {
    mbarrier_inval(&cta.message_full[c]);
    mbarrier_inval(&cta.message_free[c]);
  }
}

GPUOS_DEVICE void gpuos_open(gpuos_cta &cta, const gpuos_launch_args_t &args, uint64_t other) {
  const gpuos_table_t *table = (const gpuos_table_t *)args.table;
  const gpuos_control_t *control = (const gpuos_control_t *)args.control;
  cta.args = args, cta.other = (const gpuos_control_t *)other;
  cta.ops = GPUOS_SECTION(table, gpuos_op_t, ops);
  cta.tiles = GPUOS_SECTION(table, gpuos_tile_t, tiles);
  cta.wait_lists = GPUOS_SECTION(table, gpuos_wait_list_t, wait_lists);
  cta.waits = GPUOS_SECTION(table, gpuos_wait_t, waits);
  cta.tile_count = table->tiles.count;
  const uint64_t workspace = ((const uint64_t *)args.buffers)[table->buffers.count - 1];
  cta.stamps = args.stamps - 2 * workspace;
  cta.fours = args.stamps + 4ull * GPUOS_STAMPED_BYTES - workspace;
  cta.ctas = GPUOS_CTAS;
  cta.rank = GPUOS_CTAS == 1 ? 0 : blockIdx.x % 2;
  cta.command = GPUOS_RUN; // until the watch has looked
  cta.submitted = cta.parked = cta.lent = cta.usual = cta.lent_sms = 0;
  cta.wanted = cta.vacate = 0;
  cta.wait_limit_us = control->wait_limit_us;
  cta.hold = cta.stop = cta.gone = cta.loader_held = 0;
  cta.worker_held = cta.worker_loads = 0;
  cta.held_total_ns = 0;
  cta.stored[0] = cta.stored[1] = 0;
  for (uint32_t &tiles : cta.handed_over) tiles = 0;
  // A role may be taken up again: its ring of records goes on.
  cta.units_run = GPUOS_ROLE ? ld_relaxed_sys(&gpuos_record_of(cta)->units_run) : 0;
  for (int k = 0; k < GPUOS_KNOWN; k++) cta.known[k].number = GPUOS_NONE;
  for (int s = 0; s < GPUOS_SLOTS; s++) {
    cta.slots[s].tile.op = GPUOS_NONE;
    cta.slots[s].of = {0};
  }
  for (int w = 0; w < GPUOS_FLOWS; w++) cta.flow[w] = {~0ull, GPUOS_NONE, 0, 0, 0, 0, 0, 0, {0, 0}};
  if (cta.units_run == 0) st_relaxed_sys(&gpuos_record_of(cta)->units_run, 0);
  if (cta.units_run == 0) st_relaxed_sys(&gpuos_record_of(cta)->traced, 0);
  st_relaxed_sys(&gpuos_record_of(cta)->smid, mov_smid());
}

// Functions of their own, where workers and agents have registers alike: inlined, each one's would be everybody's.
template <class PROGRAM> __device__ __noinline__ void gpuos_load_apart() {
  gpuos_loader_loop<PROGRAM>(gpuos_own_cta(), gpuos_own_smem());
}
template <class PROGRAM> __device__ __noinline__ void gpuos_schedule_apart() {
  gpuos_scheduler_loop<PROGRAM>(gpuos_own_cta());
}
template <class PROGRAM> __device__ __noinline__ void gpuos_store_apart(uint32_t turn) {
  gpuos_store_loop<PROGRAM>(gpuos_own_cta(), gpuos_own_smem(), turn);
}

template <class PROGRAM> GPUOS_DEVICE void gpuos_agent(gpuos_cta &cta, char *smem) {
  constexpr bool APART = GPUOS_CTAS == 1;
  const uint32_t warp = gpuos_thread() / 32;
  switch (warp) { // nothing outlives the call
  case GPUOS_LOADER_WARP:
    if (gpuos_lane0()) APART ? gpuos_load_apart<PROGRAM>() : gpuos_loader_loop<PROGRAM>(cta, smem);
    break;
  case GPUOS_SCHEDULER_WARP:
    APART ? gpuos_schedule_apart<PROGRAM>() : gpuos_scheduler_loop<PROGRAM>(cta);
    break;
  case GPUOS_WATCH_WARP: gpuos_watch(cta); break;
  case GPUOS_RELAY_WARP:
    if constexpr (GPUOS_ROLE == GPUOS_ALONE)
      if (blockIdx.x == 0 && gpuos_lane0() && cta.args.mailbox) gpuos_relay<1>(&cta.args);
    break;
  default:
    if constexpr (GPUOS_STREAMS) gpuos_store_apart<PROGRAM>(warp - GPUOS_STORE_WARP);
  }
  __syncwarp();
}

template <class... NUMBERS> constexpr uint32_t gpuos_largest(NUMBERS... numbers) {
  uint32_t largest = 0;
  const uint32_t all[] = {0, (uint32_t)numbers...};
  for (uint32_t number : all) largest = number > largest ? number : largest;
  return largest;
}
template <uint32_t... NUMBERS> constexpr uint32_t gpuos_most() { return gpuos_largest(NUMBERS...); }
// Dynamic shared memory: the most that any of the operators' units takes.
template <class... UNITS> constexpr uint32_t gpuos_most_smem() {
  return gpuos_largest(UNITS::SMEM_BYTES...);
}

// All threads of the role meet, and those of both CTAs of a cluster.
enum { GPUOS_ROLE_THREADS = GPUOS_WORKERS + GPUOS_AGENTS };
GPUOS_DEVICE void gpuos_meet() {
  if constexpr (GPUOS_CTAS == 1)
    barrier_sync<GPUOS_MAIN_BARRIER>(GPUOS_ROLE_THREADS);
  else if constexpr (GPUOS_ROLE == GPUOS_ALONE)
    barrier_cluster();
  else
    gpuos_meet_pair<GPUOS_MAIN_BARRIER>(GPUOS_ROLE_THREADS);
}

// PROGRAM is the generated struct: UNIT_BYTES, shared memory that a unit takes; SUM_BYTES, that of a
// slot's partial sums; unit(op), the number of the unit that runs operator `op`; of a unit
// run_plain or, where the loader fills a ring for it, run_wgmma or run_stream, and then load; store, of one
// whose weights stream; bulk(unit), whether it has a ring; numbers(op), for the scheduler.
// `other`: what gpuos_cta says of it. Returns when the kernel has nothing left to do for the program on this SM.
template <class PROGRAM>
GPUOS_DEVICE void gpuos_main(const gpuos_launch_args_t &args, uint64_t other) {
  gpuos_cta &cta = gpuos_own_cta();
  constexpr gpuos_stream_layout LAYOUT = gpuos_lay_out(PROGRAM::UNIT_BYTES, PROGRAM::SUM_BYTES);
  constexpr bool SHARES_OUT = GPUOS_CTAS == 2 && GPUOS_ROLE == GPUOS_ALONE; // registers
  static_assert(PROGRAM::SUM_BYTES == 0 || LAYOUT.stage_count >= 2,
                "no room for the stream's ring");
  if (gpuos_thread() == 0) {
    gpuos_open(cta, args, other);
    gpuos_open_barriers(cta);
    if constexpr (GPUOS_CTAS == 1) cta.layout = LAYOUT;
  }
  if constexpr (GPUOS_ROLE != GPUOS_ALONE)
    fence_proxy_async_shared(); // what another role left there
  barrier_sync<GPUOS_MAIN_BARRIER>(GPUOS_ROLE_THREADS);
  if constexpr (GPUOS_CTAS == 2) gpuos_meet();
  if (gpuos_thread() < GPUOS_WORKERS) {
    if constexpr (SHARES_OUT) setmaxnreg_inc<GPUOS_WORKER_REGISTERS>();
    gpuos_worker_loop<PROGRAM>(cta, gpuos_own_smem());
    __syncwarp();
  } else {
    if constexpr (SHARES_OUT) setmaxnreg_dec<GPUOS_AGENT_REGISTERS>();
    gpuos_agent<PROGRAM>(cta, gpuos_own_smem());
  }
  gpuos_meet(); // no CTA goes while its peer may still copy into it
  if constexpr (GPUOS_ROLE != GPUOS_ALONE)
    if (gpuos_thread() == 0) gpuos_close_barriers(cta);
}

// As a function: the registers of two programs in one kernel are not each other's.
template <class PROGRAM>
__device__ __noinline__ void gpuos_main_apart(const gpuos_launch_args_t &args, uint64_t other) {
  gpuos_main<PROGRAM>(args, other);
}
