// gpuos.h: load an artefact of gpuosc, give it data, run steps.
//
// Called by a serving process. The caller owns what it creates: a program dies before its device. A
// device and its programs belong to one thread at a time; gpuos_abort alone may be called from any
// thread. Nothing allocates or locks between submit and completion. No call exits, aborts the
// process or prints. Tables and tensors are little endian.
#ifndef GPUOS_H_
#define GPUOS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUOS_VERSION_MAJOR 0
#define GPUOS_VERSION_MINOR 1

// X(name, text): the text says what to do when there is something to do.
#define GPUOS_STATUS_LIST(X)                                                                       \
  X(OK, "ok")                                                                                      \
  X(TIMEOUT, "not finished within the time given; wait again or abort")                            \
  X(INVALID_ARGUMENT, "a call's arguments are wrong")                                              \
  X(NOT_FOUND, "no tensor of that name")                                                           \
  X(IO, "a file cannot be read")                                                                   \
  X(BAD_ARTEFACT, "the file is no artefact of gpuosc, or damaged; compile it again")               \
  X(BAD_VERSION, "the artefact has another ABI version; compile with this version")                \
  X(UNSAFE_SCHEDULE, "check rejects the schedule table")                                           \
  X(BAD_WEIGHTS, "the checkpoint does not fit the graph")                                          \
  X(NOT_BOUND, "a weight or an input was never given")                                             \
  X(NO_DRIVER, "no CUDA driver here; install one or use the CPU device")                           \
  X(WRONG_ARCH, "the artefact is for another GPU architecture; compile for this one")              \
  X(NOT_RESIDENT, "the kernel does not fit on the GPU all at once")                                \
  X(OUT_OF_MEMORY, "not enough memory")                                                            \
  X(DRIVER, "the CUDA driver reports an error")                                                    \
  X(STALL, "a unit waited longer than the limit")                                                  \
  X(FAULT, "a unit met an index outside its table")                                                \
  X(ABORTED, "the step was aborted; results are undefined")

typedef enum gpuos_status {
#define GPUOS_STATUS_ENUM(name, text) GPUOS_##name,
  GPUOS_STATUS_LIST(GPUOS_STATUS_ENUM)
#undef GPUOS_STATUS_ENUM
} gpuos_status_t;

// "TIMEOUT" and the text above, never NULL.
const char *gpuos_status_name(gpuos_status_t status);
const char *gpuos_status_text(gpuos_status_t status);

typedef struct gpuos_device gpuos_device_t;
typedef struct gpuos_program gpuos_program_t;

// ---- device -------------------------------------------------------------------------------------

typedef enum gpuos_device_kind { GPUOS_DEVICE_CPU, GPUOS_DEVICE_CUDA } gpuos_device_kind_t;

typedef struct gpuos_device_options {
  gpuos_device_kind_t kind;
  uint32_t ordinal;  // CUDA: which GPU
  uint32_t sm_count; // CPU: threads, at most 256; 0: one a core. CUDA: SMs used; 0: all
  // CPU: not 0: one thread plays all SMs, in an order drawn from this seed.
  uint64_t interleave_seed;
  bool take_back;         // CPU, with a seed: SMs are also taken back and lent again at random
  uint32_t wait_limit_us; // a longer wait inside a step is a stall; 0: 10 s
} gpuos_device_options_t;

// Opens a device. Like sqlite3_open, *out_device is set even on failure (unless memory ran out), so
// that gpuos_device_error can be read; close it in any case.
gpuos_status_t gpuos_device_open(const gpuos_device_options_t *options,
                                 gpuos_device_t **out_device);
void gpuos_device_close(gpuos_device_t *device); // NULL is fine

// Explanation of the last failed call on the device or one of its programs; "" if none. Valid until
// the next call.
const char *gpuos_device_error(const gpuos_device_t *device);
uint32_t gpuos_device_sm_count(const gpuos_device_t *device);

// ---- program ------------------------------------------------------------------------------------

// Loads an artefact (a cubin with a .gpuos.sched section, or a bare schedule table) and runs check
// on it. `bytes` of `artefact` are copied. Allocates all that a step needs. State buffers start as
// zeros.
gpuos_status_t gpuos_program_load(gpuos_device_t *device, const void *artefact, size_t bytes,
                                  gpuos_program_t **out_program);
gpuos_status_t gpuos_program_load_file(gpuos_device_t *device, const char *path,
                                       gpuos_program_t **out_program);
void gpuos_program_destroy(gpuos_program_t *program); // aborts a running step; NULL is fine

typedef struct gpuos_tensor_info {
  const char *name;  // lives as long as the program
  const char *role;  // "input", "weight", "state", "output"
  const char *dtype; // "f32", "f16", "bf16", "e4m3", "e5m2", "i32"
  uint32_t rank, shape[6];
  uint64_t bytes;
} gpuos_tensor_info_t;

uint32_t gpuos_program_tensor_count(const gpuos_program_t *program);
gpuos_tensor_info_t gpuos_program_tensor(const gpuos_program_t *program, uint32_t index);

// Binds every weight of the program that the file holds, by name; dtype and shape must agree. A
// tensor of the file that the program lacks is ignored. Call once for each shard.
gpuos_status_t gpuos_program_bind_safetensors(gpuos_program_t *program, const char *path);

// Copies the whole of one tensor in or out. Not while a step runs. Page tables (tensors named
// CACHE.pages) start as the identity, as far as pages go: sequence s owns pages s * n .. s * n + n
// - 1.
gpuos_status_t gpuos_program_write(gpuos_program_t *program, const char *name, const void *data,
                                   size_t bytes);
gpuos_status_t gpuos_program_read(gpuos_program_t *program, const char *name, void *out_data,
                                  size_t bytes);

// ---- steps --------------------------------------------------------------------------------------

// Starts one step; one at a time. NOT_BOUND names the first weight or input that was never written.
gpuos_status_t gpuos_submit(gpuos_program_t *program);

// Waits for the running step. TIMEOUT leaves it running; 0 polls. STALL and FAULT name SM,
// operator, tile and counter in gpuos_device_error; the program can be used again after either.
gpuos_status_t gpuos_wait(gpuos_program_t *program, uint64_t timeout_ns);

// Asks the running step to end; gpuos_wait then returns ABORTED, or OK if all was done by then.
// From any thread, but not at once with gpuos_submit or gpuos_program_destroy.
void gpuos_abort(gpuos_program_t *program);

// Run time of the last finished step, as the device saw it; 0 if none.
uint64_t gpuos_step_ns(const gpuos_program_t *program);

#ifdef __cplusplus
}
#endif
#endif // GPUOS_H_
