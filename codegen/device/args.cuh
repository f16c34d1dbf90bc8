// args.cuh: what the host tells the kernel at launch, and the kernel the host before it.
//
// runtime/internal.h declares both again as gos_launch_args_t and gos_launch_t.
#pragma once
#include "gpuos_abi.h"

// The kernel's only parameter, by value. All but the last two are device addresses.
struct gpuos_launch_args {
  uint64_t table;     // gpuos_table_t and its sections
  uint64_t buffers;   // uint64_t: device address of each buffer
  uint64_t counters;  // uint32_t: of each counter
  uint64_t control;   // gpuos_control_t
  uint64_t sms;       // gpuos_sm_t: of each CTA
  uint64_t parks;     // gpuos_park_t: two of each CTA
  uint64_t park_area; // table.park_bytes of each park slot
  uint32_t sm_count;  // CTAs of the grid; a CTA is SM number blockIdx.x
  uint32_t reserved;
};
static_assert(sizeof(gpuos_launch_args) == 64, "launch args");

// The module global `gpuos_launch`.
struct gpuos_launch_t {
  uint32_t threads, smem_bytes, ctas_per_sm, reserved;
};
static_assert(sizeof(gpuos_launch_t) == 16, "launch");
