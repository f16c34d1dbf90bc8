// unit.cuh: what an operator's code sees of the kernel: its tile, its operands, the yield point.
//
// All threads of the CTA run an operator's code together. gpuos_cta is what they agree on, in
// shared memory; gpuos_ctx is what each thread carries.
#pragma once
#include "args.cuh"
#include "dtype.cuh"

enum {
  GPUOS_THREADS = 256, // of the CTA
  GPUOS_WARPS = GPUOS_THREADS / 32,
  GPUOS_STATIC_SMEM = 2048, // at most: gpuos_cta
};

// Where an operand lies: the element at iteration point p is at address + sum(p * step) * bytes.
struct gpuos_place {
  uint64_t address;
  uint32_t step[GPUOS_DIMS]; // elements
};

struct gpuos_cta {
  // Of the launch.
  gpuos_control_t *control;
  gpuos_sm_t *record;
  uint32_t *counters;
  const uint64_t *buffers;
  const gpuos_op_t *ops;
  const gpuos_operand_t *operand_records;
  const gpuos_tile_t *tiles;
  const gpuos_wait_list_t *wait_lists;
  const gpuos_wait_t *waits;
  uint32_t tile_count, epoch, wait_limit_us;
  // Of the tile.
  uint32_t number;    // its ticket
  uint32_t slice;     // that runs
  uint32_t units_run; // in this launch
  gpuos_tile_t tile;
  gpuos_box_t box;
  gpuos_op_t op;
  gpuos_operand_t operands[GPUOS_MAX_OPERANDS];
  gpuos_place places[GPUOS_MAX_OPERANDS];
};
static_assert(sizeof(gpuos_cta) <= GPUOS_STATIC_SMEM, "static shared memory");

struct gpuos_ctx {
  gpuos_cta *cta;
  char *smem;       // dynamic, 128-byte aligned
  uint32_t command; // thread 0: what the control block said at the last yield point
};

GPUOS_DEVICE float gpuos_minus_infinity() { return __uint_as_float(0xff800000u); }

// ---- reports ------------------------------------------------------------------------------------

// The first fault of a step is kept; every CTA leaves when it next looks.
GPUOS_DEVICE void gpuos_record_fault(const gpuos_ctx &ctx, gpuos_fault_t fault, uint32_t slice,
                                     uint32_t a, uint32_t b, uint32_t c) {
  gpuos_control_t *control = ctx.cta->control;
  if (atom_relaxed_gpu_cas(&control->fault, GPUOS_FAULT_NONE, fault) != GPUOS_FAULT_NONE) return;
  st_relaxed_sys(&control->fault_sm, blockIdx.x);
  st_relaxed_sys(&control->fault_tile, ctx.cta->number);
  st_relaxed_sys(&control->fault_slice, slice);
  st_relaxed_sys(&control->fault_a, a);
  st_relaxed_sys(&control->fault_b, b);
  st_relaxed_sys(&control->fault_c, c);
}

// An index read from data lies outside its table. Returns false, for the caller to pass on.
GPUOS_DEVICE bool gpuos_fault_index(const gpuos_ctx &ctx, gpuos_as_t as, int index,
                                    uint32_t limit) {
  gpuos_record_fault(ctx, GPUOS_FAULT_INDEX, 0, as, (uint32_t)index, limit);
  return false;
}

GPUOS_DEVICE bool gpuos_stopped(const gpuos_ctx &ctx, uint32_t command) {
  return command == GPUOS_ABORT || ld_relaxed_sys(&ctx.cta->control->fault) != GPUOS_FAULT_NONE;
}

// ---- the yield point ----------------------------------------------------------------------------

// Thread 0, paused: stays here, the accumulators of all threads in their registers. False: leave.
GPUOS_DEVICE bool gpuos_hold(const gpuos_ctx &ctx, uint32_t command) {
  while (command == GPUOS_PAUSE) {
    __nanosleep(200);
    command = ld_relaxed_sys(&ctx.cta->control->command);
  }
  return command != GPUOS_ABORT;
}

// A barrier of the CTA at which the tile can be held or given up; false: give it up. The command is
// asked for here and looked at in the next yield point, so that nobody waits for the answer.
GPUOS_DEVICE bool gpuos_yield(gpuos_ctx &ctx) {
  bool leave = false;
  if (gpuos_thread() == 0) {
    if (ctx.command != GPUOS_RUN) leave = !gpuos_hold(ctx, ctx.command);
    ctx.command = ld_relaxed_sys(&ctx.cta->control->command);
  }
  return !__syncthreads_or(leave);
}

// Called between the slices of a tile: the watchdog sees that the SM moves on.
GPUOS_DEVICE void gpuos_next_slice(gpuos_ctx &ctx) {
  if (gpuos_thread() != 0) return;
  st_relaxed_sys(&ctx.cta->record->slice, ++ctx.cta->slice);
  st_relaxed_sys(&ctx.cta->record->units_run, ++ctx.cta->units_run);
}

// ---- operands -----------------------------------------------------------------------------------

// An operand that the operator lacks.
struct gpuos_absent {
  enum { PRESENT = 0, DTYPE = GPUOS_F32, BYTES = 4 };
};

// Operand number PLACE of the operator.
template <int PLACE, int DTYPE_> struct gpuos_view {
  enum { PRESENT = 1, DTYPE = DTYPE_, BYTES = gpuos_format<DTYPE_>::BYTES };

  GPUOS_DEVICE const gpuos_operand_t &record(const gpuos_ctx &ctx) {
    return ctx.cta->operands[PLACE];
  }
  GPUOS_DEVICE uint64_t base(const gpuos_ctx &ctx) { return ctx.cta->places[PLACE].address; }
  GPUOS_DEVICE uint32_t step(const gpuos_ctx &ctx, int dim) {
    return ctx.cta->places[PLACE].step[dim];
  }
  // Of a dimension of the view, whatever it follows.
  GPUOS_DEVICE uint32_t stride(const gpuos_ctx &ctx, int dim) { return record(ctx).stride[dim]; }
  GPUOS_DEVICE uint32_t extent(const gpuos_ctx &ctx, int dim) { return record(ctx).extent[dim]; }

  // Address of an iteration point.
  GPUOS_DEVICE uint64_t at(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS]) {
    uint64_t element = 0;
#pragma unroll
    for (int d = 0; d < GPUOS_DIMS; d++) element += (uint64_t)point[d] * step(ctx, d);
    return base(ctx) + element * BYTES;
  }

  // RUN elements along iteration dimension DIM, all the same one when the operand does not move.
  template <int RUN, int DIM>
  GPUOS_DEVICE void load(const gpuos_ctx &ctx, const uint32_t (&point)[GPUOS_DIMS],
                         float (&out)[RUN]) {
    if (RUN == 1 || step(ctx, DIM) != 0) {
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
};
