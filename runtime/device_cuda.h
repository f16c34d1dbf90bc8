// device_cuda.h: what a CUDA device and a program on it hold.
//
// A program's kernel is launched by its first step and stays. Host and kernel then talk through the
// mailbox alone: submit is a store, wait a poll. The kernel leaves by itself when it has nothing to
// do; what waits for the whole context (allocating, loading) first makes all kernels of the device
// leave.
//
//   device_cuda.c    the device, its programs, the backend     cuda_step.c     submit, wait, abort
//   cuda_load.c      module, launch, residency                 cuda_watch.c    units that never end
//   cuda_memory.c    memory and copies                         cuda_measure.c  SMs, pauses, traces
//   cuda_maps.c      tensor maps
//   cuda_resident.c  a kernel comes, goes, starts afresh
//
// Functions that call the driver expect the device's context to be current; gos_cuda_enter makes it
// so without disturbing the context the caller works in. One thread, except for gos_cuda_abort.
#ifndef GPUOS_DEVICE_CUDA_H_
#define GPUOS_DEVICE_CUDA_H_

#include "cu.h"
#include "internal.h"
#include "words.h"

typedef struct gos_cuda {
  gos_cu_t cu;
  CUdevice device;
  CUcontext context; // the primary one, retained; NULL: not yet
  char name[96];
  int major, minor, sm_count;
  int smem_bytes;                    // the most dynamic shared memory a CTA can ask for
  struct gos_cuda_program *programs; // newest first; those without an owner wait to be freed
} gos_cuda_t;

// Page-locked, so that copies of it are asynchronous.
typedef struct gos_cuda_host {
  gpuos_control_t told;  // its first part, before a launch
  gpuos_control_t whole; // at load and after a fault
  gpuos_control_t found; // after a step of a one-shot kernel
  gpuos_sm_t sms[GPUOS_MAX_SMS];
  gpuos_unit_stats_t stats;
} gos_cuda_host_t;

// What the watchdog saw last.
typedef struct gos_cuda_watch {
  uint32_t steps_done, tiles_done;
  uint64_t since_ns;   // that it has not changed; 0: look afresh
  uint64_t queried_ns; // when the driver was last asked whether the kernel lives
  uint32_t heartbeat;  // at launch: no other value, and the kernel has not started
} gos_cuda_watch_t;

typedef struct gos_cuda_program {
  struct gos_cuda_program *next; // of the device
  gpuos_program_t *owner;        // NULL: destroyed
  // The other program of the kernel, if there is one; a job has module, kernel and stream of the live one.
  struct gos_cuda_program *partner;
  bool is_job;
  // Its steps were dropped as the partner's ended, which nobody has been told yet; why.
  enum { GOS_NOT_DROPPED, GOS_DROPPED, GOS_DROPPED_BY_FAULT, GOS_DROPPED_BY_ABORT } dropped_why;
  gos_fault_t fault; // then
  CUmodule module;
  CUfunction kernel;
  gpuos_launch_t launch;
  gpuos_launch_args_t args; // owns what its addresses point at
  CUdeviceptr *buffers;     // by buffer of the table
  CUdeviceptr *owned;       // those of them that are allocations; 0: joined to the one before
  uint32_t buffer_count;
  gpuos_mailbox_t *mailbox; // page-locked; the kernel's too, unless it is a one-shot
  gos_cuda_host_t *host;    // page-locked
  gpuos_trace_t *ring;      // page-locked: one SM's records; NULL without tracing
  CUstream stream;          // control block and kernel
  CUstream side;            // copies, while the kernel is there
  CUevent started, ended;   // around a one-shot kernel
  uint64_t submitted;       // steps since load; the mailbox counts from the last fault on
  uint64_t dropped;         // of these, not done when a fault or an abort ended them
  bool paused;
  bool lost; // its kernel did not leave when it was told to, and may hold the GPU for ever
  gos_cuda_watch_t watch;
} gos_cuda_program_t;

// The time that a kernel which was told to leave may take: units are shorter than its thousandth.
#define GOS_CUDA_LEAVE_NS UINT64_C(1000000000)

// ---- the device ---------------------------------------------------------------------------------

gpuos_status_t gos_cuda_enter(gpuos_device_t *device);
void gos_cuda_leave(gpuos_device_t *device);

// ---- load and memory ----------------------------------------------------------------------------

gpuos_status_t gos_cuda_load(gpuos_program_t *program, const gos_artefact_t *artefact);
// Copies the program's module global `what` ("launch") of exactly `bytes`; BAD_ARTEFACT when there is none.
gpuos_status_t gos_cuda_read_global(gpuos_program_t *program, const char *what, void *out_value,
                                    size_t bytes);

// Streams, page-locked memory, buffers and all that the launch arguments point at.
gpuos_status_t gos_cuda_allocate(gpuos_program_t *program);
// Device memory with the contents of `data`; *out_address is one of the launch arguments.
gpuos_status_t gos_cuda_upload(gpuos_program_t *program, const char *what, const void *data,
                               uint64_t bytes, uint64_t *out_address);
gpuos_status_t gos_cuda_write(gpuos_program_t *program, uint32_t buffer, const void *data);
gpuos_status_t gos_cuda_read(gpuos_program_t *program, uint32_t buffer, void *out_data);
void gos_cuda_free(const gos_cu_t *cu, gos_cuda_program_t *state); // no kernel may be there

// Where every operand lies, into args.places.
gpuos_status_t gos_cuda_upload_places(gpuos_program_t *program);

// The tensor maps that the module asks for, into args.maps.
gpuos_status_t gos_cuda_encode_maps(gpuos_program_t *program);

// A tensor map in the driver's terms: rank 3, innermost dimension first.
typedef struct gos_map_plan {
  int dtype;
  uint64_t address;
  uint64_t extents[3], stride_bytes[2];
  uint32_t box[3];
} gos_map_plan_t;
// NULL, or what is wrong with the request. `address` is the buffer's.
const char *gos_cuda_plan_map(const gpuos_table_t *table, const gpuos_map_t *map, uint64_t address,
                              gos_map_plan_t *out_plan);

// ---- residency ----------------------------------------------------------------------------------

// Between polls. Longer the longer it takes: a poll is late by a thirtieth of the wait, or a
// millisecond at most.
void gos_cuda_nap(uint64_t waited_ns);

// CUDA_SUCCESS once the stream has nothing left to do, CUDA_ERROR_NOT_READY after `limit_ns`.
CUresult gos_cuda_idle(const gos_cu_t *cu, CUstream stream, uint64_t limit_ns);

// The programs of a kernel, the live one first; how many.
static inline int gos_cuda_together(gos_cuda_program_t *state, gos_cuda_program_t *out_all[2]) {
  out_all[0] = state->is_job ? state->partner : state;
  out_all[1] = state->is_job ? state : state->partner;
  return state->partner != NULL ? 2 : 1;
}

// The fault that the kernel has told of the program.
static inline gos_fault_t gos_cuda_fault(const gos_cuda_program_t *state) {
  const gpuos_mailbox_t *box = state->mailbox;
  return (gos_fault_t){gos_load(&box->fault), box->fault_sm, box->fault_tile, box->fault_slice,
                       box->fault_a,          box->fault_b,  box->fault_c};
}

// Steps submitted and not done.
uint32_t gos_cuda_outstanding(const gos_cuda_program_t *state);
uint64_t gos_cuda_done(const gos_cuda_program_t *state); // since load

// After a change of the mailbox's words from sm_lent on.
void gos_cuda_announce(gos_cuda_program_t *state);
// Tells the kernel to work or to pause, as the owner last said, or to leave. An abort is never
// overwritten.
void gos_cuda_command(gos_cuda_program_t *state, gpuos_command_t command);
gpuos_command_t gos_cuda_usual_command(const gos_cuda_program_t *state);

gpuos_status_t gos_cuda_launch(gpuos_program_t *program);
// The launch as the driver wants it; `attribute` lives as long as the result.
CUlaunchConfig gos_cuda_launch_config(const gos_cuda_program_t *state,
                                      CUlaunchAttribute *attribute);

// The program's kernel has left the GPU because it was told to.
void gos_cuda_gone(const gos_cu_t *cu, gos_cuda_program_t *state);
// True once no kernel of the program is on the GPU; false after GOS_CUDA_LEAVE_NS. No step may be
// open.
bool gos_cuda_evict(const gos_cu_t *cu, gos_cuda_program_t *state);
// Tells all programs of the kernel to leave, or to do what they usually do.
void gos_cuda_tell_to_leave(gos_cuda_program_t *state, bool leave);
// The same for all programs of a device; false as well when one runs steps, which *out_busy names.
bool gos_cuda_evict_all(gos_cuda_t *cuda, const gos_cuda_program_t **out_busy);

// Counters, SM records, park slots, control block and mailbox as before step 1, of all programs of the kernel, once that
// has left; steps not done are dropped. Marks the program lost when the kernel does not leave.
gpuos_status_t gos_cuda_reset(gpuos_program_t *program);

// OK unless the program is lost, and still so; then STALL.
gpuos_status_t gos_cuda_find(gpuos_program_t *program);

// ---- steps --------------------------------------------------------------------------------------

gpuos_status_t gos_cuda_submit(gpuos_program_t *program, uint32_t count);
gpuos_status_t gos_cuda_wait(gpuos_program_t *program, uint64_t timeout_ns);
void gos_cuda_abort(gpuos_program_t *program);
gpuos_status_t gos_cuda_quiesce(gpuos_program_t *program, uint64_t timeout_ns);
uint64_t gos_cuda_step_ns(const gpuos_program_t *program, uint64_t step);

// TIMEOUT while steps go on; STALL once no tile has been finished for too long.
gpuos_status_t gos_cuda_watch(gpuos_program_t *program);

// ---- measuring ----------------------------------------------------------------------------------

gpuos_status_t gos_cuda_sms(gpuos_program_t *program, uint32_t first, uint32_t count);
gpuos_status_t gos_cuda_storm(gpuos_program_t *program, uint32_t count, uint32_t run_ns,
                              uint32_t pause_ns);
void gos_cuda_storm_read(gpuos_program_t *program, gpuos_storm_t *out_storm);
gpuos_status_t gos_cuda_lent_ns(gpuos_program_t *program, uint64_t *out_ns);
gpuos_status_t gos_cuda_unit_stats(gpuos_program_t *program, uint32_t op,
                                   gpuos_unit_stats_t *out_stats);
gpuos_status_t gos_cuda_trace(gpuos_program_t *program, uint32_t sm, const gpuos_trace_t **out_ring,
                              uint32_t *out_written);

static inline gos_cuda_t *gos_cuda_of(const gpuos_program_t *program) {
  return program->device->state;
}

// Leaves the function with the status of a failed driver call. Needs `cu` and `error` in scope.
#define GOS_CU_TRY(call)                                                                           \
  do {                                                                                             \
    gpuos_status_t try_status = GOS_CU(cu, error, call);                                           \
    if (try_status != GPUOS_OK) return try_status;                                                 \
  } while (0)

#endif // GPUOS_DEVICE_CUDA_H_
