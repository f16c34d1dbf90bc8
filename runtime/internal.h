// internal.h: what the files of libgpuos share: the two handles, the error recorder, the device
// functions.
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

// What a device does for the files that implement gpuos.h. device_cpu.c and device_cuda.c fill it
// in. Failures are recorded in the device. Only abort may run beside another call. A measurement
// that a device does not make is NULL.
typedef struct gos_backend {
  // Resolves options and fills device->state. close follows in any case.
  gpuos_status_t (*open)(gpuos_device_t *device);
  void (*close)(gpuos_device_t *device);

  // The program's table is checked. Allocates all that steps need, sets sm_count and sm_group;
  // unload follows in any case.
  gpuos_status_t (*load)(gpuos_program_t *program, const gos_artefact_t *artefact);
  void (*unload)(gpuos_program_t *program);

  // Copies a whole buffer while no step runs.
  gpuos_status_t (*write)(gpuos_program_t *program, uint32_t buffer, const void *data);
  gpuos_status_t (*read)(gpuos_program_t *program, uint32_t buffer, void *out_data);

  gpuos_status_t (*submit)(gpuos_program_t *program, uint32_t count);
  gpuos_status_t (*wait)(gpuos_program_t *program, uint64_t timeout_ns); // sets step_ns when OK
  void (*abort)(gpuos_program_t *program);
  gpuos_status_t (*quiesce)(gpuos_program_t *program, uint64_t timeout_ns); // no step is open
  void (*progress)(gpuos_program_t *program, gpuos_progress_t *out_progress);
  // Run time of step number `step`, as progress counts those done; 0 when not known, or no longer.
  uint64_t (*step_ns)(const gpuos_program_t *program, uint64_t step);

  void (*pause)(gpuos_program_t *program, bool paused);
  void (*lend)(gpuos_program_t *program, const uint32_t mask[GPUOS_MAX_SMS / 32]);
  gpuos_status_t (*sm)(gpuos_program_t *program, uint32_t sm, gpuos_sm_t *out_sm);

  gpuos_status_t (*storm)(gpuos_program_t *program, uint32_t count, uint32_t run_ns,
                          uint32_t pause_ns);
  void (*storm_read)(gpuos_program_t *program, gpuos_storm_t *out_storm);
  gpuos_status_t (*lent_ns)(gpuos_program_t *program, uint64_t *out_ns);
  gpuos_status_t (*unit_stats)(gpuos_program_t *program, uint32_t op,
                               gpuos_unit_stats_t *out_stats);
  // The ring of one SM: *out_ring, borrowed until the next call, holds record i of all ever written
  // at i modulo the ring's size; *out_written of them were.
  gpuos_status_t (*trace)(gpuos_program_t *program, uint32_t sm, const gpuos_trace_t **out_ring,
                          uint32_t *out_written);
} gos_backend_t;

extern const gos_backend_t gos_backend_cpu;
extern const gos_backend_t gos_backend_cuda;

struct gpuos_device {
  const gos_backend_t *backend;
  gpuos_device_options_t options; // defaults resolved
  void *state;                    // the backend's
  gos_error_t error;
};

struct gpuos_program {
  gpuos_device_t *device;
  gpuos_program_t *job;  // owned: the other program of a live one's kernel, NULL without
  gpuos_program_t *live; // of a job: whose it is
  gpuos_table_t *table;  // own copy, 16-byte aligned, passed gpuos_check
  bool *given;           // by buffer: written since load; always true of roles that need no host
  void *state;           // the backend's
  uint32_t sm_count;     // SMs of the protocol
  uint32_t sm_group;     // neighbours that work only together
  uint64_t step_ns;
  atomic_bool running; // gpuos_abort reads it from any thread
};

// ---- shared by several files --------------------------------------------------------------------

enum {
  GOS_DEFAULT_WAIT_LIMIT_US = 10 * 1000 * 1000,
  GOS_DEFAULT_LINGER_US = 2000,
  GOS_MAX_TRACE_UNITS = 1 << 22,
};

// The NUL-terminated string at `offset` of a checked table.
const char *gos_table_string(const gpuos_table_t *table, uint32_t offset);

// Index of the buffer named `name`, workspace excluded, or GPUOS_NONE.
uint32_t gos_program_find(const gpuos_program_t *program, const char *name);

// Writes the identity into every page table of the program and marks it given.
gpuos_status_t gos_program_default_pages(gpuos_program_t *program);

// A fault as an SM recorded it: the fields of gpuos_control_t and gpuos_mailbox_t, in their order.
typedef struct gos_fault {
  uint32_t fault, sm, tile, slice, a, b, c;
} gos_fault_t;
GPUOS_STATIC_ASSERT(offsetof(gpuos_control_t, fault_c) - offsetof(gpuos_control_t, fault) ==
                        offsetof(gos_fault_t, c),
                    "fault of the control block");
GPUOS_STATIC_ASSERT(offsetof(gpuos_mailbox_t, fault_c) - offsetof(gpuos_mailbox_t, fault) ==
                        offsetof(gos_fault_t, c),
                    "fault of the mailbox");

// Records the fault that ended a step; STALL or FAULT.
gpuos_status_t gos_report_fault(gpuos_program_t *program, const gos_fault_t *fault);

// Name of the operator that tile `tile` belongs to. The device wrote the number, so any will do:
// "?" when there is no such tile.
const char *gos_tile_op_name(const gpuos_table_t *table, uint32_t tile);

#endif // GPUOS_INTERNAL_H_
