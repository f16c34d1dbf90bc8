// stream.cuh: the ring that weights stream through, for units that read them once, and the workers' and
// the store warps' way from tile to tile where the scheduler and the loader run ahead of what tiles
// wait for.
//
// A step's weights are known before its activations are: the loader goes on with the next tile's, so
// that memory does not rest while a result travels from SM to SM. The ring hides as much time as it
// holds bytes: 192 KiB at an SM's share of 35 GB/s are 5.7 us.
//
// The workers' part ends with their partial sums in shared memory: what is slow, adding them, results,
// fences and signals, is the store warps', which take turns, while the workers multiply the next tiles.
//
// Dynamic shared memory: what a unit may use (also the X of the tiles that stream), then the workers'
// partial sums for each slot, then the stages.
#pragma once
#include "ring.cuh"

// Of a stage: what a warp does once a stage is half of its time even so; and copies of 8 KiB hold the memory's
// ceiling on 72 SMs, those of 32 KiB on 40 (tests/bench/ring.cu, on an H200).
enum { GPUOS_STREAM_BYTES = 32 * 1024 };

// Of stages asked for and not there yet. The memory serves 4.6 MB a microsecond in turn, and what more is asked for makes
// everybody wait longer for what he asks for last: an operator's last tile, attention's keys. Four stages of 132 SMs are best
// (two cost 0.7 % of a step, all six 3 %); fewer SMs need all they have.
enum { GPUOS_FEW_UNDER_WAY = 4, GPUOS_ENOUGH_UNDER_WAY = 16 << 20 };
GPUOS_DEVICE uint32_t gpuos_most_under_way(uint32_t sms, uint32_t stages) {
  const uint32_t few = sms * GPUOS_FEW_UNDER_WAY * GPUOS_STREAM_BYTES;
  return few < GPUOS_ENOUGH_UNDER_WAY ? stages : (uint32_t)GPUOS_FEW_UNDER_WAY;
}

constexpr gpuos_stream_layout gpuos_lay_out(uint32_t unit_bytes, uint32_t sum_bytes) {
  const uint32_t sums = (unit_bytes + 127) / 128 * 128;
  const uint32_t stages = (sums + GPUOS_SLOTS * sum_bytes + 127) / 128 * 128;
  const uint32_t most = GPUOS_SMEM_LIMIT - GPUOS_STATIC_SMEM;
  const uint32_t room = stages < most ? (most - stages) / GPUOS_STREAM_BYTES : 0;
  const uint32_t count =
      room < GPUOS_MOST_STREAM_STAGES ? room : (uint32_t)GPUOS_MOST_STREAM_STAGES;
  return {sums, sum_bytes, stages, count};
}
constexpr uint32_t gpuos_stream_smem(uint32_t unit_bytes, uint32_t sum_bytes) {
  const gpuos_stream_layout layout = gpuos_lay_out(unit_bytes, sum_bytes);
  return layout.stages + layout.stage_count * GPUOS_STREAM_BYTES;
}

// ---- the loader: one thread ---------------------------------------------------------------------

GPUOS_DEVICE gpuos_stream_ring gpuos_find_stream(gpuos_cta &cta, const char *smem) {
  return {mov_shared_address(cta.stream_full),
          mov_shared_address(cta.stream_empty),
          mov_shared_address(smem) + cta.layout.stages,
          mov_shared_address(&cta.usual),
          cta.layout.stage_count,
          cta.layout.stage_count,
          {0, 0}};
}

// The slot is full, and this the tile to load; false: nothing comes any more.
GPUOS_DEVICE bool gpuos_await_tile(gpuos_cta &cta, uint32_t turn) {
  while (!mbarrier_try_wait_parity(&cta.slot_full[turn % GPUOS_SLOTS], gpuos_parity(turn))) {
    if (ld_relaxed_shared(&cta.gone)) return false;
    gpuos_hold_loader(cta);
  }
  return true;
}

// Which turn the scheduler may draw a ticket for: the next one, when so many stages of this tile are still to be asked
// for; of short tiles, before the first. Its way to the L2 and back takes about as long as two stages of an SM of 132, of
// fewer SMs several, so these have it drawn earlier. While nothing moves on, an SM of 132 thus keeps no more tiles than
// another one.
enum { GPUOS_WANT_STAGES = 1 };
GPUOS_DEVICE void gpuos_want_after(gpuos_loader &loader) {
  st_relaxed_shared(&loader.cta->wanted, loader.turn + 1 + loader.few_sms);
}
GPUOS_DEVICE void gpuos_begin_loading(gpuos_loader &loader) {
  gpuos_cta &cta = *loader.cta;
  loader.slot = &cta.slots[loader.turn % GPUOS_SLOTS];
  loader.stream.most = gpuos_most_under_way(ld_relaxed_shared(&cta.lent_sms), loader.stream.count);
  loader.few_sms = loader.stream.most == loader.stream.count;
  if (loader.few_sms) gpuos_want_after(loader);
}

// It has been loaded, or needs not be.
GPUOS_DEVICE void gpuos_end_loading(gpuos_loader &loader) {
  gpuos_want_after(loader);
  mbarrier_arrive(&loader.cta->slot_empty[loader.turn % GPUOS_SLOTS]);
  loader.turn++;
}

// The tile after it is of the same operator: the way from tile to tile without leaving the unit's code.
// Then it is the loader's. Whoever is to leave the SM waits for this tile's slot: no waiting inside it then.
GPUOS_DEVICE bool gpuos_load_alike(gpuos_loader &loader) {
  gpuos_cta &cta = *loader.cta;
  const uint32_t next = loader.turn + 1;
  gpuos_want_after(loader);
  while (!mbarrier_try_wait_parity(&cta.slot_full[next % GPUOS_SLOTS], gpuos_parity(next)))
    if (ld_relaxed_shared(&cta.gone) || !ld_relaxed_shared(&cta.usual)) return false;
  if (!ld_relaxed_shared(&cta.slots[next % GPUOS_SLOTS].alike)) return false;
  gpuos_end_loading(loader);
  gpuos_begin_loading(loader);
  return true;
}

// The next stage is empty, its mbarrier told what is to come. False: stop.
GPUOS_DEVICE bool gpuos_enter_stream(gpuos_loader &loader, uint32_t bytes, uint32_t &out_full,
                                     uint32_t &out_to) {
  gpuos_cta &cta = *loader.cta;
  gpuos_stream_ring &r = loader.stream;
  const uint32_t stage = r.at.stage, skip = stage * (uint32_t)sizeof(uint64_t);
  if (!mbarrier_test_wait_parity(r.empty + skip, r.at.parity ^ 1) &&
      !gpuos_wait_loader(cta, r.empty + skip, r.at.parity ^ 1))
    return false;
  if (r.most < r.count) { // the copy so many before this one has landed
    const bool wraps = stage < r.most;
    const uint32_t landed = stage - r.most + (wraps ? r.count : 0);
    if (!gpuos_wait_loader(cta, r.full + landed * (uint32_t)sizeof(uint64_t), r.at.parity ^ wraps))
      return false;
  }
  if (!ld_relaxed_shared(r.usual)) { // as late as can be: nothing is issued after the look
    gpuos_hold_loader(cta);
    if (ld_relaxed_shared(&cta.stop)) return false;
  }
  out_full = r.full + skip;
  out_to = r.stages + stage * GPUOS_STREAM_BYTES;
  mbarrier_arrive_expect_tx(out_full, bytes);
  r.at.next(r.count);
  return true;
}

// ---- the workers --------------------------------------------------------------------------------

GPUOS_DEVICE uint32_t gpuos_warp() { return gpuos_thread() / 32; }

// What the tile reads is there. All warps come here with the same tiles in the same order, so they
// agree on when to wait. False: stop.
__device__ __noinline__ bool gpuos_await_inputs(gpuos_ctx ctx) {
  gpuos_cta &cta = *ctx.cta;
  gpuos_flow &flow = cta.flow[gpuos_warp()];
  const uint64_t mark = gpuos_wait_mark(*ctx.slot);
  if (flow.met == mark) return true;
  bool over = true;
  if (gpuos_warp() == 0) {
    uint64_t met = flow.met;
    over = gpuos_wait_all(cta, *ctx.slot, met);
  }
  over = !gpuos_barrier_or(!over);
  if (over && gpuos_lane0()) *(volatile uint64_t *)&flow.met = mark;
  __syncwarp();
  return over;
}

// A tile whose unit loads by itself: not in a pause. False: give it up.
GPUOS_DEVICE bool gpuos_enter_plain(const gpuos_ctx &ctx) {
  if (!gpuos_yield(ctx)) return false;
  if (gpuos_thread() == 0) st_relaxed_shared(&ctx.cta->worker_loads, 1);
  return true;
}

// What it reads is there.
GPUOS_DEVICE void gpuos_say_entered(const gpuos_ctx &ctx) {
  if (gpuos_thread() != 0) return;
  gpuos_report(*ctx.cta, GPUOS_SM_RUNNING, ctx.slot->number);
  gpuos_begin_unit(*ctx.cta);
}

// The shared memory in which X may lie is its own: all warps are here. False: give it up.
GPUOS_DEVICE bool gpuos_take_memory(const gpuos_ctx &ctx) {
  if (gpuos_lane0()) ctx.cta->flow[gpuos_warp()].op = GPUOS_NONE;
  return gpuos_yield(ctx);
}

// What it reads is there, and the shared memory. In a cluster the scheduler has seen to that. False: give it up.
GPUOS_DEVICE bool gpuos_enter(const gpuos_ctx &ctx) {
  if constexpr (GPUOS_CTAS == 1) {
    if (!gpuos_await_inputs(ctx)) return false;
    gpuos_say_entered(ctx);
    if (gpuos_thread() == 0) st_relaxed_shared(&ctx.slot->cleared, 1);
    if (gpuos_lane0()) ctx.cta->flow[gpuos_warp()].op = GPUOS_NONE;
    return gpuos_enter_plain(ctx);
  }
  return true;
}

// Of a tile that began by what is stamped: its waits are over, and it may write. False: stop.
GPUOS_DEVICE bool gpuos_await_clear(const gpuos_ctx &ctx) {
  while (!ld_relaxed_shared(&ctx.slot->cleared))
    if (ld_relaxed_shared(&ctx.cta->stop)) return false;
  __threadfence_block();
  return true;
}

// Where a warp is in the ring, by shared addresses: they stay in registers over all of its stages.
struct gpuos_reader {
  uint32_t full, empty, stages, count;
  gpuos_stream_at at;
};
GPUOS_DEVICE gpuos_reader gpuos_read_stream(const gpuos_ctx &ctx) {
  gpuos_cta &cta = *ctx.cta;
  return {mov_shared_address(cta.stream_full), mov_shared_address(cta.stream_empty),
          mov_shared_address(ctx.smem) + cta.layout.stages, cta.layout.stage_count,
          cta.flow[gpuos_warp()].stream};
}

// The stage is full, at `out`; false: stop.
GPUOS_DEVICE bool gpuos_await_stream(gpuos_cta &cta, const gpuos_reader &r, uint32_t &out) {
  const uint32_t all = 0xffffffffu, full = r.full + r.at.stage * (uint32_t)sizeof(uint64_t);
  out = r.stages + r.at.stage * GPUOS_STREAM_BYTES;
  while (!__all_sync(all, mbarrier_try_wait_parity(full, r.at.parity)))
    if (__all_sync(all, ld_relaxed_shared(&cta.gone) != 0)) return false;
  return true;
}

// This warp has read it.
GPUOS_DEVICE void gpuos_leave_stream(gpuos_reader &r) {
  __syncwarp();
  if (gpuos_lane0()) mbarrier_arrive(r.empty + r.at.stage * (uint32_t)sizeof(uint64_t));
  r.at.next(r.count);
}

// ---- partial sums: from the workers to the store warps ------------------------------------------

GPUOS_DEVICE uint32_t gpuos_sums(const gpuos_ctx &ctx, uint32_t turn) {
  const gpuos_stream_layout &layout = ctx.cta->layout;
  return mov_shared_address(ctx.smem) + layout.sums + turn % GPUOS_SLOTS * layout.sum_bytes;
}

// This warp is through with the tile, and needs nothing of its slot any more.
GPUOS_DEVICE void gpuos_leave_tile(const gpuos_ctx &ctx, uint32_t turn) {
  gpuos_cta &cta = *ctx.cta;
  const uint32_t at = turn % GPUOS_SLOTS;
  __syncwarp();
  if (gpuos_lane0()) mbarrier_arrive(GPUOS_STREAMS ? &cta.sums_full[at] : &cta.slot_empty[at]);
}

// The tile after it is of the same operator and waits for the same: the way from tile to tile without
// leaving the unit's code. Where `turn` is afterwards, and true: `ctx` is that tile's.
GPUOS_DEVICE bool gpuos_next_alike(gpuos_ctx &ctx, uint32_t &turn) {
  gpuos_cta &cta = *ctx.cta;
  gpuos_leave_tile(ctx, turn);
  turn++;
  const uint32_t at = turn % GPUOS_SLOTS;
  if (!gpuos_wait_worker(cta, &cta.slot_full[at], gpuos_parity(turn))) return false;
  ctx.slot = &cta.slots[at];
  return ld_relaxed_shared(&ctx.slot->alike) != 0;
}

GPUOS_DEVICE void gpuos_keep_place(const gpuos_ctx &ctx, const gpuos_reader &r) {
  if (gpuos_lane0()) ctx.cta->flow[gpuos_warp()].stream = r.at;
  __syncwarp();
}

// Everything is being given up: the turn after this one.
GPUOS_DEVICE uint32_t gpuos_give_up_stream(const gpuos_ctx &ctx, uint32_t turn) {
  gpuos_leave_tile(ctx, turn);
  return turn + 1;
}

// ---- the store warps ----------------------------------------------------------------------------

// How far one is. The slots are their turns in turn.
struct gpuos_storer {
  uint32_t turn;
  uint32_t unsaid; // lane 0: tiles stored whose counter has not been told
  uint64_t met;    // the wait list that was last over, and its step
};

// Workers that look for stamps do so without end. If that takes long, the counters are waited for as well, which
// tells after a while what is missing; and if they are full, what was counted has not come: said in half of the time, before
// those who wait for this tile say that it has not. False: stop.
enum { GPUOS_PATIENCE_NS = 1000000 };
__device__ __noinline__ bool gpuos_await_workers(uint32_t turn) {
  const gpuos_ctx ctx = gpuos_find_ctx(turn);
  gpuos_cta &cta = *ctx.cta;
  const uint32_t at = turn % GPUOS_SLOTS, all = 0xffffffffu;
  uint64_t since_ns = 0;
  bool late = false;
  while (!__all_sync(all, mbarrier_try_wait_parity(&cta.sums_full[at], gpuos_parity(turn)))) {
    if (__all_sync(all, ld_relaxed_shared(&cta.gone) != 0)) return false;
    const uint64_t now_ns = mov_globaltimer();
    if (since_ns == 0 || ld_relaxed_shared(&cta.hold)) since_ns = now_ns;
    const uint64_t limit_ns = late ? 500ull * cta.wait_limit_us : GPUOS_PATIENCE_NS;
    if (!__any_sync(all, now_ns - since_ns > limit_ns)) continue;
    if (!gpuos_wait_stamped(ctx, late)) return false;
    since_ns = 0, late = true;
  }
  return true;
}

// False: stop.
GPUOS_DEVICE bool gpuos_await_sums(const gpuos_ctx &ctx, uint32_t turn) {
  gpuos_cta &cta = *ctx.cta;
  const uint32_t at = turn % GPUOS_SLOTS;
  if (!gpuos_await_workers(turn)) return false;
  if (gpuos_lane0() && cta.args.stats) cta.sums_over[at] = gpuos_now(cta), cta.sums_turn[at] = turn;
  return true;
}

// Tells the watchdog which tile runs, unless the workers are through with it: they may have something else
// to tell by now.
GPUOS_DEVICE void gpuos_say_running(const gpuos_ctx &ctx, uint32_t turn) {
  gpuos_cta &cta = *ctx.cta;
  if (!mbarrier_test_wait_parity(&cta.sums_full[turn % GPUOS_SLOTS], gpuos_parity(turn)))
    gpuos_report(cta, GPUOS_SM_RUNNING, ctx.slot->number);
}

// A tile whose weights stream ran from the end of the one before it, or from when X was there, until its sums
// were.
GPUOS_DEVICE void gpuos_record_stream(gpuos_cta &cta, const gpuos_slot &slot, uint32_t turn,
                                      uint32_t number) {
  const uint32_t before = (turn + GPUOS_SLOTS - 1) % GPUOS_SLOTS;
  const gpuos_moment end = cta.sums_over[turn % GPUOS_SLOTS], entered = cta.unit_start;
  gpuos_moment start = cta.sums_over[before]; // the other warp's note, which may come late
  if (cta.sums_turn[before] != turn - 1 || start.ns > end.ns) start = end;
  if (entered.ns <= end.ns && (entered.ns > start.ns || start.ns == end.ns)) start = entered;
  gpuos_record_unit(cta, slot, 0, number, start, end);
}

// The workers may run ahead of what the tile waits for, as far as X is there: whatever else is read, and what
// is written, is so when all of that is over.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_store_stream(const gpuos_ctx &ctx, gpuos_storer &s) {
  gpuos_cta &cta = *ctx.cta;
  if (!gpuos_wait_all(cta, *ctx.slot, s.met)) return false;
  if (gpuos_lane0()) gpuos_say_running(ctx, s.turn);
  if (!PROGRAM::store(ctx, s.turn, ctx.slot->of->unit)) return false;
  if (!gpuos_lane0()) return true;
  const uint32_t number = gpuos_count_unit(cta, 0);
  s.unsaid++;
  if (cta.args.stats) gpuos_record_stream(cta, *ctx.slot, s.turn, number);
  return true;
}

// This warp's next tile has the same counter and is on its way here: whoever waits for one of them waits
// for both, and a fence of the GPU's memory takes as long as a tile.
GPUOS_DEVICE bool gpuos_another_follows(gpuos_cta &cta, const gpuos_slot &slot, uint32_t turn) {
  const uint32_t next = turn + GPUOS_STORES;
  const gpuos_slot &after = cta.slots[next % GPUOS_SLOTS];
  if (!mbarrier_test_wait_parity(&cta.slot_full[next % GPUOS_SLOTS], gpuos_parity(next)))
    return false;
  return after.tile.signal == slot.tile.signal && after.step == slot.step &&
         after.tile.op == slot.tile.op;
}

// A tile that the workers store: if it began by what is stamped, this warp sees to its waits. False: stop.
GPUOS_DEVICE bool gpuos_await_plain(const gpuos_ctx &ctx, gpuos_storer &s) {
  gpuos_cta &cta = *ctx.cta;
  if (ctx.slot->of->from[0] != GPUOS_NONE) {
    if (!gpuos_wait_all(cta, *ctx.slot, s.met)) return false;
    __threadfence_block();
    if (gpuos_lane0()) st_relaxed_shared(&ctx.slot->cleared, 1);
  }
  if (!gpuos_await_workers(s.turn)) return false;
  s.unsaid += !ctx.slot->failed;
  return true;
}

// One tile's results, all lanes. False: stop. The slot is free before others are told: a fence and the way to
// the L2 and back take longer than a tile, and with the next tiles here they are for several at once.
template <class PROGRAM>
GPUOS_DEVICE bool gpuos_store_tile(gpuos_cta &cta, char *smem, gpuos_storer &s) {
  const uint32_t at = s.turn % GPUOS_SLOTS;
  const gpuos_ctx ctx = {&cta, &cta.slots[at], smem};
  const gpuos_done done = {ctx.slot->tile.signal, ctx.slot->step};
  const bool streams = PROGRAM::bulk(ctx.slot->of->unit);
  if (!(streams ? gpuos_store_stream<PROGRAM>(ctx, s) : gpuos_await_plain(ctx, s))) return false;
  __syncwarp();
  if (gpuos_lane0()) {
    const bool wait = s.unsaid == 0 || gpuos_another_follows(cta, *ctx.slot, s.turn);
    mbarrier_arrive(&cta.slot_empty[at]);
    if (!wait) gpuos_signal(cta, done, s.unsaid);
    if (!wait) s.unsaid = 0;
  }
  __syncwarp();
  s.turn += GPUOS_STORES;
  return true;
}

// Of the warp with the first turn `turn`.
template <class PROGRAM>
GPUOS_DEVICE void gpuos_store_loop(gpuos_cta &cta, char *smem, uint32_t turn) {
  gpuos_storer s = {turn, 0, ~0ull};
  while (gpuos_wait_worker(cta, &cta.slot_full[s.turn % GPUOS_SLOTS], gpuos_parity(s.turn)) &&
         gpuos_store_tile<PROGRAM>(cta, smem, s)) {
  }
}
