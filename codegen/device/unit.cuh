// unit.cuh: what an operator's code sees of the kernel: its tile, its operands, the yield point.
//
// A CTA has 256 workers, who run operators' code together, and agents, who serve them: see kernel.cuh.
// gpuos_cta is what all of them agree on, in shared memory; a gpuos_slot is one tile on its way through
// the CTA, and there are several, so that the next ones are fetched while one runs.
//
// Generated before it: GPUOS_ROLE, alone in its kernel or one of two programs (roles.cuh); GPUOS_CTAS, of a cluster, 2
// when there are wgmma units; GPUOS_STREAMS, whether the weights of some unit stream, which then has CTAs to itself;
// GPUOS_SMEM_LIMIT, bytes of one CTA;
// GPUOS_STATIC_SMEM, the most of them that gpuos_cta takes; GPUOS_PLAIN_SMEM, the most that a unit without a
// ring may; GPUOS_SLOTS; GPUOS_OPERANDS, the most of an operator; GPUOS_OPS, how many operators;
// GPUOS_STAMPED_BYTES, of the workspace with stamped words beside it, or 0.
#pragma once
#include "dtype.cuh"
#include "roles.cuh"

// Of the CTA. (A template with a member type x cannot compare threadIdx.x: "x <" would open a
// list.) A job's code stands in the loop over roles: whatever else follows from the number alone would be computed before
// it, and kept in registers.
GPUOS_DEVICE uint32_t gpuos_thread() {
  if constexpr (GPUOS_ROLE == GPUOS_JOB)
    return mov_tid();
  else
    return threadIdx.x;
}

enum {
  GPUOS_THREADS = 256, // workers: the CTA's first threads
  GPUOS_WARPS = GPUOS_THREADS / 32,
  // Warpgroups of the units with a ring. A job, whose threads have no more registers than a live program's, has one
  // more instead; it has no part in other units.
  GPUOS_GROUPS = GPUOS_CTAS == 2 && GPUOS_ROLE == GPUOS_JOB ? 3 : 2,
  GPUOS_WORKERS = 128 * GPUOS_GROUPS,
  GPUOS_STORES = GPUOS_STREAMS ? 2 : 0,                                      // warps for results
  GPUOS_AGENTS = (GPUOS_ROLE == GPUOS_ALONE ? 128 : 96) + 32 * GPUOS_STORES, // alone the relay too
  GPUOS_STAGES = 4, // of the ring of the wgmma units: ring.cuh
  // Of the one that weights stream through, at most: stream.cuh.
  GPUOS_MOST_STREAM_STAGES = GPUOS_STREAMS ? 6 : 1,
  GPUOS_FLOWS = GPUOS_CTAS == 1 ? GPUOS_WARPS : 1,
  GPUOS_STAMPED = 4, // operands that may come stamped: x or partial, k, v, rotation
  GPUOS_KNOWN = GPUOS_SLOTS > 2 ? 5 : 2, // operators whose records are there
};

// A CTA's tiles are its turns, one after the other, each in slot turn % GPUOS_SLOTS.
static_assert((GPUOS_SLOTS & (GPUOS_SLOTS - 1)) == 0, "turns wrap with 32 bits");
GPUOS_DEVICE uint32_t gpuos_parity(uint32_t turn) { return turn / GPUOS_SLOTS & 1; }

// What the leader of a cluster tells the other CTA: which tile that takes and, to find out whether they
// share copies, which one the leader takes itself; or, between slices, where a tile is put down.
struct __align__(16) gpuos_message {
  uint4 part[3];
};
// Tiles are drawn ahead, so what is said about the one that runs has a channel of its own.
enum { GPUOS_TAKE_CHANNEL, GPUOS_RUN_CHANNEL, GPUOS_CHANNELS };

// An operator's records, for the tiles of it that are on their way.
struct gpuos_known {
  gpuos_op_t op;
  uint32_t number;              // the operator's; GPUOS_NONE: none
  uint32_t unit;                // of the program, that runs it
  uint32_t from[GPUOS_STAMPED]; // the operators whose stamped results these are
  gpuos_place_t places[GPUOS_OPERANDS];
};

// One of them, by its place among the CTA's.
struct gpuos_known_at {
  uint32_t place;
  __device__ __forceinline__ const gpuos_known *operator->() const;
};

struct __align__(16) gpuos_slot {
  uint32_t number; // the tile's ticket; GPUOS_NONE: leave
  uint32_t step;   // that it belongs to
  uint32_t slice;  // its first one; above 0 its accumulators come from park slot `resume`
  uint32_t resume;
  gpuos_tile_t tile;
  gpuos_box_t box;
  uint32_t alike;   // of the same operator as the CTA's tile before, with the same waits
  uint32_t cleared; // what it waits for by counters is over
  uint16_t pair;    // CTAs of the cluster run this tile and its neighbour with shared copies
  uint16_t failed;  // the workers have given it up, which a store warp has to know
  uint32_t realign; // the ring starts anew at its first stage
  // The loader stopped before this slice: accumulators go to park slot `park`.
  uint32_t stop_slice, park;
  gpuos_known_at of; // its operator
};

// What code generation knows of an operator, for the scheduler.
struct gpuos_op_numbers {
  uint32_t unit;                         // that runs it
  uint32_t first_operand, operand_count; // as in its record, which is fetched with them
  uint32_t next;                         // the operator after it whose records are best had early
  // Tickets of the next operator that should not crowd an SM, to before the last.
  uint32_t crowd, crowd_end;
  // If its tiles are cut along dimension 2 only, follow each other and have the same waits and signal: their
  // tickets, otherwise none.
  uint32_t first, count;
  uint32_t wait_list, signal;
  uint32_t from[GPUOS_STAMPED];
};

// What is to be signalled for a tile.
struct gpuos_done {
  uint32_t counter, step;
};

// A time, and how long all pauses had lasted by then.
struct gpuos_moment {
  uint64_t ns, held_ns;
};

// A stage of the ring that weights stream through, and the parity of its mbarriers.
struct gpuos_stream_at {
  uint32_t stage, parity;
  __device__ __forceinline__ void next(uint32_t count) {
    const bool wraps = stage + 1 == count;
    stage = wraps ? 0 : stage + 1;
    parity ^= wraps;
  }
};

// How far a worker warp is, in a kernel whose scheduler runs ahead of what tiles wait for.
struct gpuos_flow {
  uint64_t met;           // the wait list that was last over, and its step
  uint32_t op;            // whose X lies in shared memory, GPUOS_NONE if it may not
  uint64_t x;             // address of the operand that lies in shared memory, 0 for none
  uint64_t x_norm;        // and of what it has been multiplied by
  uint64_t x_met;         // its wait list, or its stamp: what lies there may change in a step
  uint64_t x_form;        // how it lies there
  uint32_t x_step, x_eps; // elements from row to row; of the norm
  gpuos_stream_at stream;
};

// Where things lie in the dynamic shared memory of a kernel whose weights stream: stream.cuh.
struct gpuos_stream_layout {
  uint32_t sums, sum_bytes; // of slot 0; of each
  uint32_t stages, stage_count;
};

struct gpuos_cta {
  gpuos_launch_args_t args;
  const gpuos_control_t *other; // of the other program of the kernel, if there is one
  const gpuos_op_t *ops;
  const gpuos_tile_t *tiles;
  const gpuos_wait_list_t *wait_lists;
  const gpuos_wait_t *waits;
  uint64_t stamps, fours;          // stamp.cuh
  uint32_t tile_count, rank, ctas; // rank in a cluster of `ctas`
  // What the watch last read of the control block.
  uint32_t command, submitted, parked, lent, wait_limit_us;
  uint32_t lent_sms;                       // of all
  uint32_t usual;                          // run on: not paused, stopped or to leave, and lent
  uint32_t vacate;                         // the SM is the other program's, once it is empty
  uint32_t wanted;                         // turn that the loader will soon want, or has
  uint32_t hold;                           // paused: stop in place
  uint32_t stop;                           // aborted, or a fault: leave in any case
  uint32_t gone;                           // the scheduler has left, and nothing comes any more
  uint32_t loader_held, worker_held;       // stands still: the loader, worker 0
  uint32_t worker_loads;                   // the workers run a unit that loads by itself
  uint64_t loader_held_ns, worker_held_ns; // since when
  uint64_t held_total_ns;                  // in all pauses so far
  uint32_t units_run;
  gpuos_moment unit_start; // of the unit that runs, if worker 0 ends it
  // Of the ring: its stages are filled, and used up; of the slots likewise.
  uint64_t full[GPUOS_STAGES], empty[GPUOS_STAGES];
  uint64_t slot_full[GPUOS_SLOTS], slot_empty[GPUOS_SLOTS];
  uint64_t stream_full[GPUOS_MOST_STREAM_STAGES], stream_empty[GPUOS_MOST_STREAM_STAGES];
  uint64_t want;      // the loader will soon want the next tile
  uint32_t stored[2]; // warps that have written their results, of even and of odd tiles
  gpuos_done done[GPUOS_SLOTS * 2]; // what is signalled for them, in order
  uint32_t handed_over[GPUOS_CTAS == 2 ? GPUOS_WORKERS / 32 : 1]; // such tiles, by warp
  uint64_t sums_full[GPUOS_SLOTS]; // all warps are through with the tile
  gpuos_moment
      sums_over[GPUOS_SLOTS];      // since when, of a tile that streams, if anybody wants to know
  uint32_t sums_turn[GPUOS_SLOTS]; // and which turn's that is
  gpuos_flow flow[GPUOS_FLOWS];
  gpuos_stream_layout layout;
  // From the leader of the cluster to the other CTA, by channel, and back.
  uint64_t message_full[GPUOS_CHANNELS], message_free[GPUOS_CHANNELS], peer_ready;
  gpuos_message message[GPUOS_CHANNELS];
  gpuos_known known[GPUOS_KNOWN];
  gpuos_slot slots[GPUOS_SLOTS];
};
static_assert(sizeof(gpuos_cta) <= GPUOS_STATIC_SMEM, "static shared memory");

// By name, so that the compiler sees that they are shared memory, and at what address: what it knows by pointers alone it
// reads by generic loads, and keeps two registers for each.
static __shared__ gpuos_cta gpuos_static_cta;
extern __shared__ __align__(GPUOS_CTAS == 2 && !GPUOS_ROLE ? 1024 : 128) char gpuos_dynamic[];

// A job has it where a live program has other things: both of them would leave no room for the live one's ring.
GPUOS_DEVICE gpuos_cta &gpuos_own_cta() {
  if constexpr (GPUOS_ROLE == GPUOS_JOB)
    return *(gpuos_cta *)gpuos_dynamic;
  else
    return gpuos_static_cta;
}
GPUOS_DEVICE char *gpuos_own_smem() {
  if constexpr (GPUOS_ROLE != GPUOS_JOB) return gpuos_dynamic;
  const uint32_t from = shared_address(gpuos_dynamic);
  return gpuos_dynamic + ((from + GPUOS_STATIC_SMEM + 1023) / 1024 * 1024 - from);
}

__device__ __forceinline__ const gpuos_known *gpuos_known_at::operator->() const {
  return &gpuos_own_cta().known[place];
}

struct gpuos_ctx {
  gpuos_cta *cta;
  gpuos_slot *slot;
  char *smem; // dynamic, 1024-byte aligned in a cluster, 128 otherwise
};
// Of the tile of turn `turn`. Functions that are not inlined take the turn, for the same reason.
GPUOS_DEVICE gpuos_ctx gpuos_find_ctx(uint32_t turn) {
  return {&gpuos_own_cta(), &gpuos_own_cta().slots[turn % GPUOS_SLOTS], gpuos_own_smem()};
}

GPUOS_DEVICE float gpuos_minus_infinity() { return __uint_as_float(0xff800000u); }

GPUOS_DEVICE gpuos_control_t *gpuos_control_of(const gpuos_cta &cta) {
  return (gpuos_control_t *)cta.args.control;
}
GPUOS_DEVICE gpuos_sm_t *gpuos_record_of(const gpuos_cta &cta) {
  return (gpuos_sm_t *)cta.args.sms + blockIdx.x;
}
GPUOS_DEVICE gpuos_mailbox_t *gpuos_mailbox_of(const gpuos_cta &cta) {
  return (gpuos_mailbox_t *)cta.args.mailbox;
}

// ---- workers together ---------------------------------------------------------------------------

GPUOS_DEVICE void gpuos_barrier() {
  __syncwarp();
  barrier_sync<GPUOS_PLAIN_BARRIER>(GPUOS_THREADS);
}
GPUOS_DEVICE bool gpuos_barrier_or(bool value) {
  __syncwarp();
  return barrier_red_or<GPUOS_PLAIN_BARRIER>(GPUOS_THREADS, value);
}

// ---- reports ------------------------------------------------------------------------------------

// The first fault of a step is kept; every CTA leaves when it next looks.
GPUOS_DEVICE void gpuos_record_fault(const gpuos_cta &cta, const gpuos_slot &slot,
                                     gpuos_fault_t fault, uint32_t a, uint32_t b, uint32_t c) {
  gpuos_control_t *control = gpuos_control_of(cta);
  if (atom_relaxed_gpu_cas(&control->fault, GPUOS_FAULT_NONE, fault) != GPUOS_FAULT_NONE) return;
  st_relaxed_sys(&control->fault_sm, blockIdx.x);
  st_relaxed_sys(&control->fault_tile, slot.number);
  st_relaxed_sys(&control->fault_slice, slot.slice);
  st_relaxed_sys(&control->fault_a, a);
  st_relaxed_sys(&control->fault_b, b);
  st_relaxed_sys(&control->fault_c, c);
}

// An index read from data lies outside its table. Returns false, for the caller to pass on.
GPUOS_DEVICE bool gpuos_fault_index(const gpuos_ctx &ctx, gpuos_as_t as, int index,
                                    uint32_t limit) {
  gpuos_record_fault(*ctx.cta, *ctx.slot, GPUOS_FAULT_INDEX, as, (uint32_t)index, limit);
  return false;
}

// ---- units, measured: worker 0, or a store warp for those whose weights stream ------------------

GPUOS_DEVICE gpuos_moment gpuos_now(const gpuos_cta &cta) {
  return {mov_globaltimer(), cta.held_total_ns};
}
GPUOS_DEVICE void gpuos_begin_unit(gpuos_cta &cta) {
  if (cta.args.stats) cta.unit_start = gpuos_now(cta);
}

GPUOS_DEVICE void gpuos_add_stats(const gpuos_cta &cta, const gpuos_slot &slot, uint32_t run_ns,
                                  uint32_t paused_ns) {
  gpuos_unit_stats_t *stats = (gpuos_unit_stats_t *)cta.args.stats + slot.tile.op;
  const uint32_t bin = run_ns / GPUOS_UNIT_BIN_NS;
  red_relaxed_gpu_add_u64(&stats->units, 1);
  red_relaxed_gpu_add_u64(&stats->run_ns, run_ns);
  red_relaxed_gpu_max(&stats->longest_ns, run_ns);
  if (run_ns > slot.of->op.bound_ns) red_relaxed_gpu_add(&stats->over_bound, 1);
  if (paused_ns) red_relaxed_gpu_add(&stats->paused, 1);
  red_relaxed_gpu_add(&stats->bins[bin < GPUOS_UNIT_BINS ? bin : GPUOS_UNIT_BINS - 1], 1);
}

// The watchdog sees that the SM moves on. The number of the unit, from 1.
GPUOS_DEVICE uint32_t gpuos_count_unit(gpuos_cta &cta, uint32_t slice) {
  gpuos_sm_t *record = gpuos_record_of(cta);
  st_relaxed_sys(&record->slice, slice + 1);
  if constexpr (GPUOS_STREAMS) { // two of us may count at once
    const uint32_t number = atomicAdd(&cta.units_run, 1) + 1;
    red_relaxed_gpu_max(&record->units_run, number);
    return number;
  }
  st_relaxed_sys(&record->units_run, ++cta.units_run);
  return cta.units_run;
}

GPUOS_DEVICE void gpuos_record_unit(gpuos_cta &cta, const gpuos_slot &slot, uint32_t slice,
                                    uint32_t number, const gpuos_moment &start,
                                    const gpuos_moment &end) {
  const uint32_t paused_ns = (uint32_t)(end.held_ns - start.held_ns);
  const uint32_t run_ns = (uint32_t)(end.ns - start.ns) - paused_ns;
  gpuos_add_stats(cta, slot, run_ns, paused_ns);
  gpuos_trace_t *trace = (gpuos_trace_t *)cta.args.trace +
                         (uint64_t)blockIdx.x * cta.args.trace_count +
                         (number - 1) % cta.args.trace_count;
  *trace = {start.ns, run_ns, paused_ns, slot.number, slice, slot.step, 0};
  red_relaxed_gpu_max(&gpuos_record_of(cta)->traced, number);
}

// `slice` is the one that ended.
GPUOS_DEVICE void gpuos_end_unit(gpuos_cta &cta, const gpuos_slot &slot, uint32_t slice) {
  const uint32_t number = gpuos_count_unit(cta, slice);
  if (!cta.args.stats) return;
  gpuos_record_unit(cta, slot, slice, number, cta.unit_start, gpuos_now(cta));
  gpuos_begin_unit(cta);
}

// ---- the yield point ----------------------------------------------------------------------------

// Paused: stays here, accumulators in registers. Each warp for itself: of a warpgroup the first one to
// see the pause stops the others, whose matrix instructions wait for it.
GPUOS_DEVICE void gpuos_hold(gpuos_cta &cta) {
  if (!ld_relaxed_shared(&cta.hold)) return;
  const bool says = gpuos_thread() == 0;
  if (says) cta.worker_held_ns = mov_globaltimer();
  __threadfence_block();
  if (says) st_relaxed_shared(&cta.worker_held, 1);
  while (ld_relaxed_shared(&cta.hold) && !ld_relaxed_shared(&cta.stop)) __nanosleep(100);
  if (says) st_relaxed_shared(&cta.worker_held, 0);
}

// A barrier of the workers at which the tile can be held or given up; false: give it up.
GPUOS_DEVICE bool gpuos_yield(const gpuos_ctx &ctx) {
  bool leave = false;
  if (gpuos_thread() == 0) {
    gpuos_hold(*ctx.cta);
    leave = ld_relaxed_shared(&ctx.cta->stop) != 0;
  }
  return !gpuos_barrier_or(leave);
}

// Called between the slices of a tile.
GPUOS_DEVICE void gpuos_next_slice(const gpuos_ctx &ctx) {
  if (gpuos_thread() == 0) gpuos_end_unit(*ctx.cta, *ctx.slot, ctx.slot->slice++);
}

// ---- operands -----------------------------------------------------------------------------------

// An operand that the operator lacks.
struct gpuos_absent {
  enum { PRESENT = 0, DTYPE = GPUOS_F32, BYTES = 4 };
};

// Operand number PLACE_ of the operator; MOVES_: bit d, iteration dimension d moves it.
template <int PLACE_, int DTYPE_, int MOVES_> struct gpuos_view {
  enum { PRESENT = 1, PLACE = PLACE_, MOVES = MOVES_ };
  enum { DTYPE = DTYPE_, BYTES = gpuos_format<DTYPE_>::BYTES };

  GPUOS_DEVICE const gpuos_place_t &place(const gpuos_ctx &ctx) {
    return ctx.slot->of->places[PLACE];
  }
  GPUOS_DEVICE uint64_t base(const gpuos_ctx &ctx) { return place(ctx).address; }
  GPUOS_DEVICE uint32_t step(const gpuos_ctx &ctx, int dim) { return place(ctx).step[dim]; }
  // Of a dimension of the view, whatever it follows.
  GPUOS_DEVICE uint32_t stride(const gpuos_ctx &ctx, int dim) { return place(ctx).stride[dim]; }
  GPUOS_DEVICE uint32_t extent(const gpuos_ctx &ctx, int dim) { return place(ctx).extent[dim]; }

  // Address of an iteration point.
  GPUOS_DEVICE uint64_t at(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS]) {
    uint64_t element = 0;
#pragma unroll
    for (int d = 0; d < GPUOS_DIMS; d++)
      if (MOVES >> d & 1) element += (uint64_t)point[d] * step(ctx, d);
    return base(ctx) + element * BYTES;
  }

  // RUN elements along iteration dimension DIM, all the same one when the operand does not move.
  template <int RUN, int DIM>
  GPUOS_DEVICE void load(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                         float (&out)[RUN]) {
    if constexpr (RUN == 1 || (MOVES >> DIM & 1) != 0) {
      gpuos_load<DTYPE, RUN>(at(ctx, point), out);
    } else {
      float one[1];
      gpuos_load<DTYPE, 1>(at(ctx, point), one);
#pragma unroll
      for (int i = 0; i < RUN; i++) out[i] = one[0];
    }
  }

  template <int RUN>
  GPUOS_DEVICE void store(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                          const float (&in)[RUN]) {
    gpuos_store<DTYPE, RUN>(at(ctx, point), in);
  }

  // An integer operand's element.
  GPUOS_DEVICE int index(const gpuos_ctx &ctx, uint64_t element) {
    return (int)ld_global_u32((const void *)(base(ctx) + element * 4));
  }
};

// The inputs of a pointwise expression, in their order.
template <class... INPUTS> struct gpuos_inputs {
  enum { COUNT = sizeof...(INPUTS), ROOM = COUNT == 0 ? 1 : COUNT };

  template <int RUN, int DIM>
  GPUOS_DEVICE void load(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                         float (&out)[ROOM][RUN]) {
    int i = 0;
    (INPUTS::template load<RUN, DIM>(ctx, point, out[i++]), ...);
  }

  // The element at `point` of those inputs that, of the dimensions in MASK, exactly MOVES move.
  template <int MASK, int MOVES>
  GPUOS_DEVICE void load_moving(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                                float (&out)[ROOM]) {
    int i = 0;
    (load_one<INPUTS, (INPUTS::MOVES & MASK) == MOVES>(ctx, point, out[i++]), ...);
  }

  // Of three sets of values, each input's from the one it is in: those that nothing in MASK moves or
  // only its lower bit does, those that only the higher one does, those that both do.
  template <int MASK>
  GPUOS_DEVICE void choose(const float (&by_row)[ROOM], const float (&by_col)[ROOM],
                           const float (&by_both)[ROOM], float (&out)[ROOM]) {
    constexpr int HIGHER = MASK & (MASK - 1);
    constexpr int moves[ROOM] = {(INPUTS::MOVES & MASK)...};
#pragma unroll
    for (int i = 0; i < COUNT; i++)
      out[i] = moves[i] == MASK ? by_both[i] : moves[i] == HIGHER ? by_col[i] : by_row[i];
  }

private:
  template <class INPUT, bool WANTED>
  GPUOS_DEVICE void load_one(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                             float &out) {
    float one[1];
    if constexpr (WANTED) {
      gpuos_load<INPUT::DTYPE, 1>(INPUT::at(ctx, point), one);
      out = one[0];
    }
  }
};
