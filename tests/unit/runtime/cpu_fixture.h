// cpu_fixture.h: a table with buffers behind it, for the tests of the CPU device.
//
// Buffers are rank 1; views give them shape. Values are read back as doubles by a decoder of its
// own, so that the device's conversions are not tested against themselves. Out of memory aborts.
#ifndef GOS_TEST_CPU_FIXTURE_H_
#define GOS_TEST_CPU_FIXTURE_H_

#include "cpu.h"
#include "tables.h"

enum { FIXTURE_BUFFERS = 32 };

typedef struct fixture {
  gos_tables_t *tables;
  gpuos_table_t *table; // after fixture_finish
  void *buffers[FIXTURE_BUFFERS];
  uint64_t random;
} fixture_t;

typedef struct shape {
  uint32_t at[GPUOS_DIMS];
} shape_t;
typedef struct follows {
  uint8_t at[GPUOS_DIMS];
} follows_t;
#define SHAPE(...)                                                                                 \
  (shape_t) {                                                                                      \
    { __VA_ARGS__ }                                                                                \
  }
#define FOLLOWS(...)                                                                               \
  (follows_t) {                                                                                    \
    { __VA_ARGS__ }                                                                                \
  }
#define ALL GPUOS_ALL

fixture_t fixture_make(uint64_t seed);
void fixture_free(fixture_t *fixture);

// All buffers before the first operator. Filled with random numbers in [-1, 1], i32 with zeros.
uint32_t fixture_buffer(fixture_t *fixture, gpuos_role_t role, gpuos_dtype_t dtype, uint32_t elems);
void fixture_workspace(fixture_t *fixture, uint32_t bytes);
void fixture_set_i32(fixture_t *fixture, uint32_t buffer, const int32_t *numbers, uint32_t count);
double fixture_random(fixture_t *fixture); // in [-1, 1]

// Adds an operand to the last operator: contiguous, its value the buffer's initial one, or a new
// one if it is written. The record may be changed until the next call.
gpuos_operand_t *fixture_operand(fixture_t *fixture, gpuos_as_t as, uint32_t buffer, shape_t extent,
                                 follows_t follows);

// Fails the test if check rejects the table.
void fixture_finish(fixture_t *fixture);

double fixture_get(const fixture_t *fixture, const gpuos_operand_t *view, uint32_t i0, uint32_t i1,
                   uint32_t i2, uint32_t i3);
double fixture_decode(gpuos_dtype_t dtype, uint32_t bits);

// Whether a result of a dtype is as near as its rounding allows. `scale`: the size of what was
// added up to get there, whose float sums may be off by 4e-6 of it.
bool fixture_is_near(double got, double want, double scale, gpuos_dtype_t dtype);
double fixture_tolerance(gpuos_dtype_t dtype); // half a unit in the last place, relative

// One step; an interleave_seed of 0 means threads.
gpuos_status_t fixture_run(fixture_t *fixture, uint32_t sm_count, uint64_t seed, bool take_back);

#endif // GOS_TEST_CPU_FIXTURE_H_
