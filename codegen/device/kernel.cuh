// kernel.cuh: the persistent loop. One CTA an SM takes tiles in ticket order until none is left.
//
// Why it ends for every set of SMs: tickets are handed out in table order and a tile waits only for
// lower ones, so the lowest unfinished tile never waits. A CTA gives a ticket back to nobody: what
// it has taken it runs.
#pragma once
#include "unit.cuh"

// ---- a tile is taken: warp 0 --------------------------------------------------------------------

// The ticket, or GPUOS_NONE: leave. Lane 0.
GPUOS_DEVICE uint32_t gpuos_ticket(gpuos_ctx &ctx) {
  gpuos_control_t *control = ctx.cta->control;
  uint32_t command = ld_relaxed_sys(&control->command);
  if (!gpuos_hold(ctx, command) || gpuos_stopped(ctx, command)) return GPUOS_NONE;
  uint32_t lent = ld_relaxed_sys(&control->sm_lent[blockIdx.x / 32]);
  if (!(lent >> blockIdx.x % 32 & 1)) return GPUOS_NONE;
  uint32_t ticket = atom_relaxed_gpu_add(&control->ticket, 1);
  return ticket < ctx.cta->tile_count ? ticket : GPUOS_NONE;
}

// Bytes are a multiple of 4. Lanes of one warp.
GPUOS_DEVICE void gpuos_copy_words(void *to, const void *from, uint32_t bytes) {
  for (uint32_t i = gpuos_thread() % 32; i < bytes / 4; i += 32)
    ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

// Elements that iteration dimension `dim` moves an operand by. K of a matmul moves it even where
// the view is read whole.
GPUOS_DEVICE uint32_t gpuos_step(const gpuos_op_t &op, const gpuos_operand_t &x, uint32_t dim) {
  uint32_t step = 0;
#pragma unroll
  for (int d = 0; d < GPUOS_DIMS; d++) {
    bool k = op.kind == GPUOS_MATMUL && d == GPUOS_SLICED_DIM && x.follows[d] == GPUOS_ALL;
    if (x.follows[d] == dim || (k && dim == GPUOS_SLICED_DIM)) step += x.stride[d];
  }
  return step;
}

// The operator's records, from the table into shared memory.
GPUOS_DEVICE void gpuos_fetch_op(gpuos_cta &cta, uint32_t number) {
  const uint32_t lane = gpuos_thread() % 32;
  gpuos_copy_words(&cta.op, cta.ops + number, sizeof cta.op);
  __syncwarp();
  const uint32_t count = cta.op.operand_count;
  gpuos_copy_words(cta.operands, cta.operand_records + cta.op.first_operand,
                   count * sizeof cta.operands[0]);
  __syncwarp();
  for (uint32_t i = lane; i < count * GPUOS_DIMS; i += 32) {
    const gpuos_operand_t &x = cta.operands[i / GPUOS_DIMS];
    gpuos_place &place = cta.places[i / GPUOS_DIMS];
    place.step[i % GPUOS_DIMS] = gpuos_step(cta.op, x, i % GPUOS_DIMS);
    if (i % GPUOS_DIMS == 0) place.address = cta.buffers[x.buffer] + x.offset_bytes;
  }
}

GPUOS_DEVICE void gpuos_report(const gpuos_ctx &ctx, gpuos_sm_phase_t phase, uint32_t tile) {
  gpuos_sm_t *record = ctx.cta->record;
  st_relaxed_sys(&record->tile, tile);
  st_relaxed_sys(&record->slice, 0);
  st_relaxed_sys(&record->phase, phase);
}

// One lane waits for one counter; several may report at once, any of them will do. Time in which
// the step is paused does not count against the limit.
GPUOS_DEVICE bool gpuos_wait_one(const gpuos_ctx &ctx, gpuos_wait_t wait) {
  const gpuos_cta &cta = *ctx.cta;
  const uint32_t *counter = cta.counters + wait.counter, expected = wait.threshold * cta.epoch;
  const uint64_t limit_ns = 1000ull * cta.wait_limit_us;
  uint64_t since_ns = 0;
  for (uint32_t polls = 0;; polls++) {
    uint32_t found = ld_acquire_gpu(counter);
    if ((int)(found - expected) >= 0) return true;
    if (polls == 0) {
      st_relaxed_sys(&cta.record->counter, wait.counter);
      st_relaxed_sys(&cta.record->expected, expected);
      st_relaxed_sys(&cta.record->found, found);
      gpuos_report(ctx, GPUOS_SM_WAITING, cta.number);
      since_ns = mov_globaltimer();
    }
    __nanosleep(40);
    if (polls % 16 != 15) continue;
    uint32_t command = ld_relaxed_sys(&cta.control->command);
    if (gpuos_stopped(ctx, command)) return false;
    uint64_t now_ns = mov_globaltimer();
    if (command == GPUOS_PAUSE) since_ns = now_ns;
    if (now_ns - since_ns < limit_ns) continue;
    gpuos_record_fault(ctx, GPUOS_FAULT_STALL, 0, wait.counter, expected, found);
    return false;
  }
}

GPUOS_DEVICE bool gpuos_wait_all(const gpuos_ctx &ctx, uint32_t number) {
  const gpuos_wait_list_t list = ctx.cta->wait_lists[number];
  bool met = true;
  for (uint32_t i = gpuos_thread() % 32; met && i < list.count; i += 32)
    met = gpuos_wait_one(ctx, ctx.cta->waits[list.first + i]);
  return __all_sync(0xffffffffu, met);
}

// The next tile, ready to run, described in ctx.cta. False: leave. `fetched` and `met` are the
// operator there and the wait list that was last over: counters only grow, so it still is.
GPUOS_DEVICE bool gpuos_take(gpuos_ctx &ctx, uint32_t &fetched, uint32_t &met) {
  gpuos_cta &cta = *ctx.cta;
  const bool leader = gpuos_thread() == 0;
  uint32_t ticket = __shfl_sync(0xffffffffu, leader ? gpuos_ticket(ctx) : 0, 0);
  if (ticket == GPUOS_NONE) return false;
  const uint4 words = *(const uint4 *)(cta.tiles + ticket);
  const gpuos_tile_t tile = {words.x, words.y, words.z, words.w};
  if (tile.op != fetched) gpuos_fetch_op(cta, tile.op);
  fetched = tile.op;
  __syncwarp();
  if (leader) {
    cta.number = ticket;
    cta.slice = 0;
    cta.tile = tile;
    cta.box = gpuos_tile_box(&cta.op, tile.index);
  }
  __syncwarp();
  if (tile.wait_list != met && !gpuos_wait_all(ctx, tile.wait_list)) return false;
  met = tile.wait_list;
  if (leader) gpuos_report(ctx, GPUOS_SM_RUNNING, ticket);
  return true;
}

// ---- a tile is done: thread 0 -------------------------------------------------------------------

// All threads' writes lie before the barrier that the caller has passed; the fence puts them before
// the counter for whoever acquires it.
GPUOS_DEVICE void gpuos_signal(gpuos_ctx &ctx) {
  gpuos_cta &cta = *ctx.cta;
  fence_acq_rel_gpu();
  if (cta.tile.signal != GPUOS_NONE) red_relaxed_gpu_add(cta.counters + cta.tile.signal, 1);
  red_relaxed_gpu_add(&cta.control->tiles_done, 1);
  st_relaxed_sys(&cta.record->units_run, ++cta.units_run);
}

// ---- the loop -----------------------------------------------------------------------------------

GPUOS_DEVICE void gpuos_open(gpuos_cta &cta, const gpuos_launch_args &args) {
  const gpuos_table_t *table = (const gpuos_table_t *)args.table;
  cta.control = (gpuos_control_t *)args.control;
  cta.record = (gpuos_sm_t *)args.sms + blockIdx.x;
  cta.counters = (uint32_t *)args.counters;
  cta.buffers = (const uint64_t *)args.buffers;
  cta.ops = GPUOS_SECTION(table, gpuos_op_t, ops);
  cta.operand_records = GPUOS_SECTION(table, gpuos_operand_t, operands);
  cta.tiles = GPUOS_SECTION(table, gpuos_tile_t, tiles);
  cta.wait_lists = GPUOS_SECTION(table, gpuos_wait_list_t, wait_lists);
  cta.waits = GPUOS_SECTION(table, gpuos_wait_t, waits);
  cta.tile_count = table->tiles.count;
  cta.units_run = 0;
  cta.epoch = cta.control->epoch;
  cta.wait_limit_us = cta.control->wait_limit_us;
}

// Dynamic shared memory: the most that any of the operators' units takes.
template <class... UNITS> constexpr uint32_t gpuos_most_smem() {
  const uint32_t all[] = {0, (uint32_t)UNITS::SMEM_BYTES...};
  uint32_t most = 0;
  for (uint32_t bytes : all) most = bytes > most ? bytes : most;
  return most;
}

// One operator's code, a function of its own: inlined together, all of them would keep what they
// derive from the thread's number in registers over the whole loop.
template <class UNIT> __device__ __noinline__ bool gpuos_run(gpuos_ctx ctx) {
  return UNIT::run(ctx);
}

// PROGRAM is the generated struct: run(ctx, op) runs a tile of operator number `op`; false, from
// any thread: it was given up.
template <class PROGRAM> GPUOS_DEVICE void gpuos_loop(const gpuos_launch_args &args) {
  extern __shared__ __align__(128) char smem[];
  __shared__ gpuos_cta cta;
  gpuos_ctx ctx = {&cta, smem, GPUOS_RUN};
  uint32_t fetched = GPUOS_NONE, met = 0; // wait list 0 is empty
  if (gpuos_thread() == 0) gpuos_open(cta, args);
  __syncthreads();
  for (;;) {
    bool take = true;
    if (gpuos_thread() < 32) take = gpuos_take(ctx, fetched, met);
    if (__syncthreads_or(!take)) break;
    bool done = PROGRAM::run(ctx, cta.tile.op);
    if (__syncthreads_or(!done)) break;
    if (gpuos_thread() == 0) gpuos_signal(ctx);
  }
  if (gpuos_thread() == 0) gpuos_report(ctx, GPUOS_SM_GONE, GPUOS_NONE);
}
