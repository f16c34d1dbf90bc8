// contract.cu: the smallest kernel that keeps the runtime's contract, for test_device_cuda.c.
//
// Runs the scale model of tests/unit/runtime/models.h, one thread a CTA. A negative x[0] makes it
// misbehave in a way that a test wants to see explained.
#include "gpuos_abi.h"

struct gpuos_launch_args {
  uint64_t table, buffers, counters, control, sms, parks, park_area;
  uint32_t sm_count, reserved;
};

// The test overwrites both values in the cubin's bytes; these are what it looks for.
extern "C" __device__ const uint64_t gpuos_table_hash = 0x7ab1e7ab1e7ab1e7;
extern "C" __device__ const uint32_t gpuos_launch[4] = {32, 4096, 1, 0x1a0c4000};

enum misbehaviour { BAD_INDEX = -1, NO_SIGNAL = -2, SPIN = -3, LEAVE = -4, TRAP = -5 };

__device__ void fault(volatile gpuos_control_t *c, uint32_t kind, uint32_t tile, uint32_t a,
                      uint32_t b, uint32_t found) {
  if (atomicCAS((uint32_t *)&c->fault, GPUOS_FAULT_NONE, kind) != GPUOS_FAULT_NONE) return;
  c->fault_sm = blockIdx.x;
  c->fault_tile = tile;
  c->fault_slice = 0;
  c->fault_a = a;
  c->fault_b = b;
  c->fault_c = found;
}

__device__ bool stopped(volatile gpuos_control_t *c) {
  return c->command == GPUOS_ABORT || c->fault != GPUOS_FAULT_NONE;
}

__device__ bool wait(const gpuos_launch_args &args, volatile gpuos_control_t *c, gpuos_wait_t w,
                     uint32_t tile) {
  volatile uint32_t *counter = (volatile uint32_t *)args.counters + w.counter;
  uint32_t expected = w.threshold * c->epoch;
  long long start = clock64();
  while ((int)(*counter - expected) < 0) {
    if (stopped(c)) return false;
    if ((clock64() - start) / 1000 < c->wait_limit_us) continue; // about 1 GHz is enough here
    fault(c, GPUOS_FAULT_STALL, tile, w.counter, expected, *counter);
    return false;
  }
  __threadfence();
  return true;
}

// False: leave.
__device__ bool misbehave(volatile gpuos_control_t *c, int how, uint32_t tile) {
  if (how == BAD_INDEX) fault(c, GPUOS_FAULT_INDEX, tile, GPUOS_AS_IDS, 70000, 32000);
  if (how == SPIN)
    while (!stopped(c)) {
    }
  if (how == TRAP) asm volatile("trap;");
  return how != BAD_INDEX && how != SPIN && how != LEAVE;
}

extern "C" __global__ void gpuos_kernel(const __grid_constant__ gpuos_launch_args args) {
  extern __shared__ float product[];
  if (threadIdx.x != 0) return;
  const gpuos_table_t *t = (const gpuos_table_t *)args.table;
  volatile gpuos_control_t *c = (volatile gpuos_control_t *)args.control;
  float **buffers = (float **)args.buffers; // x, w, y, workspace
  for (uint32_t ticket; (ticket = atomicAdd((uint32_t *)&c->ticket, 1)) < t->tiles.count;) {
    gpuos_tile_t tile = GPUOS_SECTION(t, gpuos_tile_t, tiles)[ticket];
    const gpuos_op_t *op = GPUOS_SECTION(t, gpuos_op_t, ops) + tile.op;
    gpuos_wait_list_t list = GPUOS_SECTION(t, gpuos_wait_list_t, wait_lists)[tile.wait_list];
    for (uint32_t i = 0; i < list.count; i++)
      if (!wait(args, c, GPUOS_SECTION(t, gpuos_wait_t, waits)[list.first + i], ticket)) return;
    int how = (int)*(volatile float *)buffers[0];
    if (!misbehave(c, how, ticket)) return;
    gpuos_box_t box = gpuos_tile_box(op, tile.index);
    for (uint32_t i = box.lo[3]; i < box.lo[3] + box.n[3]; i++) {
      float w = __uint_as_float((uint32_t)((uint16_t *)buffers[1])[i] << 16);
      product[0] = buffers[0][i] * w;
      if (tile.op == 0) buffers[3][i] = product[0];
      if (tile.op == 1) buffers[2][i] = *(volatile float *)&buffers[3][i] + buffers[0][i];
    }
    __threadfence();
    if (tile.signal != GPUOS_NONE && how != NO_SIGNAL)
      atomicAdd((uint32_t *)args.counters + tile.signal, 1);
    atomicAdd((uint32_t *)&c->tiles_done, 1);
  }
}
