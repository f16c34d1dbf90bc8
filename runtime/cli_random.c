// cli_random.c: random data for a graph, so that it can be measured without its checkpoint.
//
// Power, and with it the clock, depends on the bits: zeros would flatter. A tensor is a block of
// PERIOD values over and over: a prime, so that rows differ, and small enough that gigabytes are
// filled as fast as memory copies.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cpu_dtype.h"

enum { PERIOD = 262147 };

// ---- numbers ------------------------------------------------------------------------------------

static uint64_t draw(uint64_t *random) { // xorshift64* (Vigna 2016)
  *random ^= *random >> 12, *random ^= *random << 25, *random ^= *random >> 27;
  return *random * UINT64_C(0x2545f4914f6cdd1d);
}

static double unit(uint64_t *random) { return ((double)(draw(random) >> 11) + 0.5) * 0x1p-53; }

// Box and Muller 1958.
static float normal(uint64_t *random) {
  double radius = sqrt(-2 * log(unit(random)));
  return (float)(radius * cos(6.283185307179586 * unit(random)));
}

// Neither NaN nor infinity.
static uint8_t finite_fp8(uint32_t dtype, uint64_t *random) {
  uint8_t bits = (uint8_t)(draw(random) >> 56);
  if (dtype == GPUOS_E4M3) return (bits & 0x7f) == 0x7f ? bits & 0x80 : bits;
  return (bits & 0x7c) == 0x7c ? bits & 0x83 : bits;
}

// Inputs are normal; matrices of weights normal of a sixteenth, gains near 1; a lone number is a
// scale.
static float number(const gpuos_tensor_info_t *info, uint64_t *random) {
  bool weight = strcmp(info->role, "weight") == 0;
  if (info->rank == 0) return 0x1p-4f;
  if (!weight) return normal(random);
  return info->rank == 1 ? 1 + 0x1p-4f * normal(random) : 0x1p-4f * normal(random);
}

// ---- tensors ------------------------------------------------------------------------------------

static uint32_t dtype_named(const char *name) {
  uint32_t dtype = 0;
  while (dtype < GPUOS_DTYPE_COUNT && strcmp(gos_dtype_name(dtype), name) != 0) dtype++;
  return dtype;
}

static void fill_block(const gpuos_tensor_info_t *info, uint32_t dtype, uint8_t *data, size_t count,
                       uint64_t *random) {
  uint32_t bytes = gpuos_dtype_bytes(dtype);
  for (size_t i = 0; i < count; i++) {
    float value = bytes == 1 ? 0 : number(info, random);
    if (bytes == 1)
      data[i] = finite_fp8(dtype, random);
    else
      gos_store_f32(dtype, data + i * bytes, 1, 1, &value);
  }
}

static void fill_floats(const gpuos_tensor_info_t *info, uint32_t dtype, uint8_t *data,
                        uint64_t *random) {
  size_t bytes = (size_t)info->bytes, block = (size_t)PERIOD * gpuos_dtype_bytes(dtype);
  if (block > bytes) block = bytes;
  fill_block(info, dtype, data, block / gpuos_dtype_bytes(dtype), random);
  for (size_t done = block; done < bytes; done += block)
    memcpy(data + done, data, bytes - done < block ? bytes - done : block);
}

// The fewest sequences that a page table of the graph has; 0: there is none.
static uint32_t sequence_count(const gos_session_t *session) {
  uint32_t least = 0, count = gpuos_program_tensor_count(session->program);
  for (uint32_t i = 0; i < count; i++) {
    gpuos_tensor_info_t info = gpuos_program_tensor(session->program, i);
    size_t length = strlen(info.name);
    bool pages = length > 6 && strcmp(info.name + length - 6, ".pages") == 0 && info.rank > 0;
    if (pages && (least == 0 || info.shape[0] < least)) least = info.shape[0];
  }
  return least;
}

// Rows are one token each of as many sequences, or, where there are fewer, all of one sequence.
static void fill_numbers(const gos_session_t *session, const gpuos_tensor_info_t *info,
                         int32_t *data, uint32_t position) {
  gpuos_tensor_info_t seq;
  size_t count = (size_t)info->bytes / sizeof *data;
  bool chunk = gos_session_find(session, "seq", &seq) && sequence_count(session) < count;
  bool seqs = strcmp(info->name, "seq") == 0, positions = strcmp(info->name, "pos") == 0;
  for (size_t i = 0; i < count; i++) {
    if (seqs) data[i] = chunk ? 0 : (int32_t)i;
    if (positions) data[i] = (int32_t)(position + (chunk ? i : 0));
    if (!seqs && !positions) data[i] = 0;
  }
}

static bool fill(gos_session_t *session, const gpuos_tensor_info_t *info, uint32_t position,
                 uint64_t *random) {
  uint32_t dtype = dtype_named(info->dtype);
  void *data = malloc((size_t)info->bytes + 1);
  if (data == NULL) {
    gos_say("error: no memory for '%s' of %s", info->name, gos_size(info->bytes).text);
    return false;
  }
  if (dtype == GPUOS_I32)
    fill_numbers(session, info, data, position);
  else
    fill_floats(info, dtype, data, random);
  gpuos_status_t status =
      gpuos_program_write(session->program, info->name, data, (size_t)info->bytes);
  free(data);
  return status == GPUOS_OK || gos_session_failed(session, info->name, status);
}

bool gos_fill_random(gos_session_t *session, uint32_t position) {
  uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
  uint32_t count = gpuos_program_tensor_count(session->program);
  for (uint32_t i = 0; i < count; i++) {
    gpuos_tensor_info_t info = gpuos_program_tensor(session->program, i);
    bool given = session->program->given[i]; // page tables, and what only steps write
    if (!given && !fill(session, &info, position, &random)) return false;
  }
  return true;
}
