// internal.h: what the files of libgpuos share: the two handles, the error recorder, the device
// functions, and the kernel's arguments.
//
// Read by the files of this folder and their tests, never installed. gpuos.h says who owns what and
// which threads may call; nothing here adds to it.
#ifndef GPUOS_INTERNAL_H_
#define GPUOS_INTERNAL_H_

#include <stdatomic.h>

#include "artefact.h"
#include "clock.h"
#include "error.h"
#include "gpuos.h"
#include "gpuos_abi.h"
#include "names.h"

// ---- devices ------------------------------------------------------------------------------------

// What a device does for device.c, program.c and step.c. device_cpu.c and device_cuda.c implement
// it. Failures are recorded in the device. Only abort may run beside another call.
typedef struct gos_backend {
  // Resolves options.sm_count and fills device->state. close follows in any case.
  gpuos_status_t (*open)(gpuos_device_t *device);
  void (*close)(gpuos_device_t *device);

  // The program's table is checked. Allocates all that steps need; unload follows in any case.
  gpuos_status_t (*load)(gpuos_program_t *program, const gos_artefact_t *artefact);
  void (*unload)(gpuos_program_t *program);

  // Copies a whole buffer while no step runs.
  gpuos_status_t (*write)(gpuos_program_t *program, uint32_t buffer, const void *data);
  gpuos_status_t (*read)(gpuos_program_t *program, uint32_t buffer, void *out_data);

  gpuos_status_t (*submit)(gpuos_program_t *program);
  gpuos_status_t (*wait)(gpuos_program_t *program, uint64_t timeout_ns); // sets step_ns when OK
  void (*abort)(gpuos_program_t *program);
} gos_backend_t;

extern const gos_backend_t gos_backend_cpu;
extern const gos_backend_t gos_backend_cuda;

struct gpuos_device {
  const gos_backend_t *backend;
  gpuos_device_options_t options; // sm_count and wait_limit_us: defaults resolved
  void *state;                    // the backend's
  gos_error_t error;
};

struct gpuos_program {
  gpuos_device_t *device;
  gpuos_table_t *table; // own copy, 16-byte aligned, passed gpuos_check
  bool *given;          // by buffer: written since load; always true of roles that need no host
  void *state;          // the backend's
  uint64_t step_ns;
  atomic_bool running; // gpuos_abort reads it from any thread
};

// ---- shared by several files --------------------------------------------------------------------

enum { GOS_DEFAULT_WAIT_LIMIT_US = 10 * 1000 * 1000 };

// The NUL-terminated string at `offset` of a checked table.
const char *gos_table_string(const gpuos_table_t *table, uint32_t offset);

// Index of the buffer named `name`, workspace excluded, or GPUOS_NONE.
uint32_t gos_program_find(const gpuos_program_t *program, const char *name);

// Writes the identity into every page table of the program and marks it given.
gpuos_status_t gos_program_default_pages(gpuos_program_t *program);

// Records the fault that an ended step left in `control`; STALL or FAULT.
gpuos_status_t gos_report_fault(gpuos_program_t *program, const gpuos_control_t *control);

// ---- the CUDA kernel's contract -----------------------------------------------------------------

// The only parameter of the global function `gpuos_kernel`, passed by value. Pointers are device
// addresses. codegen declares the same struct as gpuos_launch_args.
typedef struct gos_launch_args {
  uint64_t table;     // gpuos_table_t and its sections, as in the artefact
  uint64_t buffers;   // uint64_t[buffers.count]: each buffer's device address, 256-byte aligned
  uint64_t counters;  // uint32_t[counters.count], 0 before step 1
  uint64_t control;   // gpuos_control_t
  uint64_t sms;       // gpuos_sm_t[sm_count]
  uint64_t parks;     // gpuos_park_t[2 * sm_count], all FREE before a step
  uint64_t park_area; // 2 * sm_count slots of table.park_bytes; 0 when that is 0
  uint32_t sm_count;  // CTAs of the grid; each plays one SM of the protocol, number blockIdx.x
  uint32_t reserved;
} gos_launch_args_t;
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, table) == 0, "launch args");
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, buffers) == 8, "launch args");
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, counters) == 16, "launch args");
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, control) == 24, "launch args");
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, sms) == 32, "launch args");
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, parks) == 40, "launch args");
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, park_area) == 48, "launch args");
GPUOS_STATIC_ASSERT(offsetof(gos_launch_args_t, sm_count) == 56, "launch args");
GPUOS_STATIC_ASSERT(sizeof(gos_launch_args_t) == 64, "launch args");

// The module global `gpuos_launch`: how the kernel wants to be launched.
typedef struct gos_launch {
  uint32_t threads;     // of a CTA
  uint32_t smem_bytes;  // dynamic shared memory of a CTA
  uint32_t ctas_per_sm; // co-resident on each SM
  uint32_t reserved;
} gos_launch_t;
GPUOS_STATIC_ASSERT(sizeof(gos_launch_t) == 16, "launch");

#endif // GPUOS_INTERNAL_H_
