// gpu_test.h: an artefact under test, its tensors and its steps. test_gpu.c judges numbers, storm.c
// what pauses and lending do to them; data.c fills, writes and reads tensors for both.
//
// One thread. A test owns its tensors' data; what fails first is noted, and ends the test.
#ifndef GPU_TEST_H_
#define GPU_TEST_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuos.h"

enum { F32, F16, BF16, E4M3, E5M2, I32, DTYPES };

typedef struct tensor {
  gpuos_tensor_info_t info;
  int dtype;
  size_t count; // elements
  void *data;   // what was written, or what the first step gave
} tensor_t;

typedef struct program {
  gpuos_device_t *device;
  gpuos_program_t *program;
} program_t;

enum { MAX_TENSORS = 4096 };
typedef struct test {
  const char *path;
  bool on_cpu;       // the device under test is the CPU: to test the test
  bool is_job;       // of the artefact's programs the job
  uint64_t limit_ns; // of every wait
  program_t tested;
  size_t tensor_count;
  tensor_t tensors[MAX_TENSORS];
  char note[512]; // of the line, or why it failed
  bool failed;
} test_t;

// ---- data.c -------------------------------------------------------------------------------------

void random_seed(uint64_t seed);
double random_unit(void); // in [-1, 1)
uint32_t random_below(uint32_t limit);

double decode(const void *data, size_t i, int dtype);

// Lists the program's tensors and draws data for all that are given. Inputs are in [-1, 1),
// matrices of weights scaled so that products stay of that size, vectors of weights near 1;
// integers go by their names: positions ("pos") and sequences ("seq") count from 0, all others are
// below 16.
void make_data(test_t *test);
void draw_inputs(test_t *test); // anew; weights stay
void free_data(test_t *test);

const tensor_t *find_tensor(const test_t *test, const char *name); // NULL: none
bool is_result(const tensor_t *tensor);                            // output or state

// Writes what was drawn; outputs full of NaN, states full of zeros. False: noted.
bool write_all(test_t *test, const program_t *program, const char *what);
// The tensor's bytes as they are now, for free.
void *read_tensor(test_t *test, const program_t *program, const tensor_t *tensor);
// Notes and fails unless every result is, bit by bit, what the first step gave.
bool same_results(test_t *test, const char *what);

// The test has failed: `what`, the status and the device's explanation.
void fail(test_t *test, const char *what, const program_t *program, gpuos_status_t status);
// The same in words of one's own; the first failure is kept.
void fail_with(test_t *test, const char *format, ...) __attribute__((format(printf, 2, 3)));

// ---- storm.c ------------------------------------------------------------------------------------

// The same step under a storm of pauses, while SMs are lent and taken at random, and on few SMs:
// results must be those of the first step. Prints what it did.
bool survives_storms(test_t *test);
// A live program and its job at once, in several divisions of the SMs, with `storm` in ever new ones: results of both
// must be those of their first steps. Prints what it did.
bool survive_each_other(test_t *live, test_t *job, bool storm);

#endif // GPU_TEST_H_
