// device_cuda.h: what a CUDA device and a program on it hold.
//
// Shared by device_cuda.c (the device), cuda_load.c (artefact to GPU) and cuda_step.c (a step).
// Every function expects the device's context to be current; gos_cuda_enter makes it so without
// disturbing the context the caller works in.
#ifndef GPUOS_DEVICE_CUDA_H_
#define GPUOS_DEVICE_CUDA_H_

#include "cu.h"
#include "internal.h"

typedef struct gos_cuda {
  gos_cu_t cu;
  CUdevice device;
  CUcontext context; // the primary one, retained; NULL: not yet
  char name[96];
  int major, minor, sm_count;
  int smem_bytes; // the most dynamic shared memory a CTA can ask for
} gos_cuda_t;

// Page-locked, so that copies of it are asynchronous.
typedef struct gos_cuda_host {
  gpuos_control_t sent;  // before a step
  gpuos_control_t found; // after it
  uint32_t abort_command;
} gos_cuda_host_t;

typedef struct gos_cuda_program {
  CUmodule module;
  CUfunction kernel;
  gos_launch_t launch;
  gos_launch_args_t args; // owns what its addresses point at
  CUdeviceptr *buffers;   // owned, by buffer of the table
  gos_cuda_host_t *host;
  CUstream stream;    // control block, kernel, results: in this order
  CUstream side;      // the abort command, while the kernel runs
  CUevent armed;      // the control block has arrived, so an abort will not be overwritten
  CUevent started;    // around the kernel: step_ns
  CUevent ended;      //
  CUevent done;       // `found` has arrived
  CUevent abort_sent; // orders a late abort before the next step's control block
  uint32_t epoch;     // steps since counters were last zero
  atomic_bool aborted;
} gos_cuda_program_t;

gpuos_status_t gos_cuda_enter(gpuos_device_t *device);
void gos_cuda_leave(gpuos_device_t *device);

gpuos_status_t gos_cuda_load(gpuos_program_t *program, const gos_artefact_t *artefact);
void gos_cuda_unload(gpuos_program_t *program);

gpuos_status_t gos_cuda_submit(gpuos_program_t *program);
gpuos_status_t gos_cuda_wait(gpuos_program_t *program, uint64_t timeout_ns);
void gos_cuda_abort(gpuos_program_t *program);

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
