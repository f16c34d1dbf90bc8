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
  uint32_t linger_us;     // CUDA: a resident kernel without work leaves after so long; 0: 2 ms
  // CUDA: units that each SM keeps in its trace ring, and times all of them; 0: no tracing. Costs
  // two clock reads and a 32-byte store a unit. Rounded up to a power of two.
  uint32_t trace_units;
  // CUDA: the kernel is launched for each step and leaves after it, so that a profiler sees kernels
  // that end. One step at a time; lending waits for the next launch, pauses and aborts do nothing.
  bool one_shot;
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

// An artefact of live and background graphs holds two programs: the live one, which loading gives, and its job, which
// has tensors, steps and SMs of its own and lives as long. On a GPU they share one kernel: a fault or an abort of
// either ends the steps of both. NULL: there is none.
gpuos_program_t *gpuos_program_job(gpuos_program_t *program);

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

// On a GPU the first step launches the program's kernel, which then stays: later steps are handed to
// it through memory, without the driver. It leaves after options.linger_us without work, and comes
// back with the next step. Calls of any CUDA program that wait for the whole context (cuMemFree,
// cuModuleLoad, cuCtxSynchronize) wait for it.

// Queues one step, or `count` in a row on the same data, behind those that are queued already.
// NOT_BOUND names the first weight or input that was never written.
gpuos_status_t gpuos_submit(gpuos_program_t *program);
gpuos_status_t gpuos_submit_steps(gpuos_program_t *program, uint32_t count);

// Waits for all steps submitted. TIMEOUT leaves them running; 0 polls. STALL and FAULT name SM,
// operator, tile and counter in gpuos_device_error; the program can be used again after either, steps
// not done by then are dropped.
gpuos_status_t gpuos_wait(gpuos_program_t *program, uint64_t timeout_ns);

// Asks the running steps to end; gpuos_wait then returns ABORTED, or OK if all was done by then.
// From any thread, but not at once with gpuos_submit or gpuos_program_destroy.
void gpuos_abort(gpuos_program_t *program);

// Waits for all steps submitted, then has the kernel leave the GPU. TIMEOUT leaves both.
gpuos_status_t gpuos_quiesce(gpuos_program_t *program, uint64_t timeout_ns);

typedef struct gpuos_progress {
  uint64_t steps_submitted, steps_done; // since load; what was dropped is never done
  uint32_t tiles_done, tiles;           // of the step that runs; some 50 us old
  bool resident;                        // a kernel is on the GPU
} gpuos_progress_t;
gpuos_status_t gpuos_program_progress(gpuos_program_t *program, gpuos_progress_t *out_progress);

// Run time of the last finished step, as the device saw it; 0 if none.
uint64_t gpuos_step_ns(const gpuos_program_t *program);

// ---- control ------------------------------------------------------------------------------------

// Stops all SMs in place at their next yield point, accumulators kept, and lets them go on. A pause
// outlasts steps; paused time counts towards no limit. Results do not depend on it.
gpuos_status_t gpuos_pause(gpuos_program_t *program);
gpuos_status_t gpuos_resume(gpuos_program_t *program);

// Sets which SMs may work, bit s of `mask` (8 words) for SM s; the others leave at the next unit's
// end. At once, while steps run. An SM pair that shares operands (gpuos_program_sm_group is 2) works
// only when both are lent. With none lent steps wait.
gpuos_status_t gpuos_lend(gpuos_program_t *program, const uint32_t mask[8]);
uint32_t gpuos_program_sm_group(const gpuos_program_t *program);

// Lends `count` SMs, whole groups, and takes back the others: those of the chip's lowest numbers,
// which go round the GPCs, so that each GPC gives its share (a crowded one costs a fifth, measured on
// an H200). Where the kernel has not run yet the numbers are unknown, and its own are taken.
gpuos_status_t gpuos_lend_count(gpuos_program_t *program, uint32_t count);

// Shares the SMs out between a live program and its job: `job_sms` of them, whole groups, an equal share of each GPC, are the
// job's alone, the others the program's. With `rest` the job also works on these while the program has no
// steps to do: it leaves within a unit when one is submitted.
gpuos_status_t gpuos_share(gpuos_program_t *program, uint32_t job_sms, bool rest);

typedef struct gpuos_sm_info {
  uint32_t smid;             // the chip's number of the SM
  uint32_t units_run;        // since its kernel started
  uint32_t parks;            // tiles put down in the middle
  const char *phase;         // "idle", "waiting", "running", "gone"
  const char *operator_name; // that it runs or waits for, "" if none
  uint32_t tile, slice;
  uint64_t away_ns; // of the GPU's timer, when it was last free after a take-back; 0: never
} gpuos_sm_info_t;
gpuos_status_t gpuos_program_sm(gpuos_program_t *program, uint32_t sm, gpuos_sm_info_t *out_info);

// ---- measuring ----------------------------------------------------------------------------------

// `count` pauses of pause_ns, run_ns apart, by the kernel itself while steps run: the time from the
// command's store until the last SM had issued its last load. (Matrix instructions end a step or two
// later, when what has been loaded is used up.) Starts them; `done` tells when they are over.
gpuos_status_t gpuos_pause_storm(gpuos_program_t *program, uint32_t count, uint32_t run_ns,
                                 uint32_t pause_ns);
typedef struct gpuos_storm {
  uint32_t done, lost; // lost: some SM did not answer within a millisecond
  uint32_t longest_ns;
  uint32_t bins[128]; // by 100 ns; the last holds all longer ones
} gpuos_storm_t;
gpuos_status_t gpuos_pause_storm_read(gpuos_program_t *program, gpuos_storm_t *out_storm);

// When the kernel told its SMs of the last gpuos_lend (or gpuos_pause_storm), by the GPU's timer; 0: not yet. An SM that was
// taken back is free once its phase is "gone" and its away_ns no earlier. Its neighbour of a pair may
// hand it a last tile just after it said so: ask until two answers agree.
gpuos_status_t gpuos_lent_ns(gpuos_program_t *program, uint64_t *out_ns);

// Run times of all units of one operator since load; needs options.trace_units.
typedef struct gpuos_unit_times {
  const char *name;
  const char *kind;
  uint32_t bound_ns; // declared
  uint64_t units, run_ns;
  uint32_t longest_ns, over_bound, paused;
  uint32_t bins[64]; // by 500 ns; the last holds all longer ones
} gpuos_unit_times_t;
uint32_t gpuos_program_op_count(const gpuos_program_t *program);
gpuos_status_t gpuos_program_unit_times(gpuos_program_t *program, uint32_t op,
                                        gpuos_unit_times_t *out_times);

// The units that SM `sm` ran last, oldest first, at most options.trace_units. Not while steps run.
typedef struct gpuos_unit_record {
  uint64_t start_ns; // of the GPU's timer
  uint32_t run_ns, paused_ns;
  uint32_t op, tile, slice, step;
} gpuos_unit_record_t;
gpuos_status_t gpuos_program_trace(gpuos_program_t *program, uint32_t sm,
                                   gpuos_unit_record_t *out_records, uint32_t capacity,
                                   uint32_t *out_count);

#ifdef __cplusplus
}
#endif
#endif // GPUOS_H_
