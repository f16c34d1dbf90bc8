// bind.c: gives a program the weights that a safetensors file holds, by name.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "file.h"
#include "internal.h"
#include "safetensors.h"

static const char *file_dtype(uint32_t dtype) {
  static const char *const names[GPUOS_DTYPE_COUNT] = {
      [GPUOS_F32] = "F32",      [GPUOS_F16] = "F16",      [GPUOS_BF16] = "BF16",
      [GPUOS_E4M3] = "F8_E4M3", [GPUOS_E5M2] = "F8_E5M2", [GPUOS_I32] = "I32"};
  return dtype < GPUOS_DTYPE_COUNT ? names[dtype] : "?";
}

// "BF16 [4096, 1024]"
typedef struct description {
  char text[160];
} description_t;

static description_t describe(const char *dtype, const uint64_t *shape, uint32_t rank) {
  description_t d;
  size_t at = (size_t)snprintf(d.text, sizeof d.text, "%.12s [", dtype);
  for (uint32_t i = 0; i < rank && at < sizeof d.text; i++)
    at += (size_t)snprintf(d.text + at, sizeof d.text - at, "%s%" PRIu64, i == 0 ? "" : ", ",
                           shape[i]);
  if (at < sizeof d.text) snprintf(d.text + at, sizeof d.text - at, "]");
  return d;
}

static description_t describe_buffer(const gpuos_buffer_t *buffer) {
  uint64_t shape[GPUOS_RANK];
  for (int i = 0; i < GPUOS_RANK; i++) shape[i] = buffer->shape[i];
  return describe(file_dtype(buffer->dtype), shape, buffer->rank);
}

static bool agrees(const gpuos_buffer_t *buffer, const gos_safetensor_t *t) {
  if (strcmp(file_dtype(buffer->dtype), t->dtype) != 0 || buffer->rank != t->rank) return false;
  for (uint32_t i = 0; i < t->rank; i++)
    if (buffer->shape[i] != t->shape[i]) return false;
  return buffer->bytes == t->bytes;
}

// The weight that `t` is for, or GPUOS_NONE.
static uint32_t find_weight(const gpuos_program_t *program, const gos_safetensor_t *t) {
  uint32_t index = gos_program_find(program, t->name);
  const gpuos_buffer_t *buffers = GPUOS_SECTION(program->table, gpuos_buffer_t, buffers);
  return index != GPUOS_NONE && buffers[index].role == GPUOS_WEIGHT ? index : GPUOS_NONE;
}

// All tensors are compared before the first is copied: a wrong file changes nothing.
static gpuos_status_t compare_all(gpuos_program_t *program, const char *path,
                                  const gos_safetensors_t *file) {
  const gpuos_buffer_t *buffers = GPUOS_SECTION(program->table, gpuos_buffer_t, buffers);
  for (size_t i = 0; i < file->count; i++) {
    const gos_safetensor_t *t = &file->tensors[i];
    uint32_t index = find_weight(program, t);
    if (index == GPUOS_NONE || agrees(&buffers[index], t)) continue;
    return gos_fail(&program->device->error, GPUOS_BAD_WEIGHTS,
                    "'%s': tensor '%s' is %s, the graph expects %s", path, t->name,
                    describe(t->dtype, t->shape, t->rank).text,
                    describe_buffer(&buffers[index]).text);
  }
  return GPUOS_OK;
}

static gpuos_status_t copy_all(gpuos_program_t *program, const gos_safetensors_t *file) {
  for (size_t i = 0; i < file->count; i++) {
    uint32_t index = find_weight(program, &file->tensors[i]);
    if (index == GPUOS_NONE) continue;
    gpuos_status_t status = program->device->backend->write(program, index, file->tensors[i].data);
    if (status != GPUOS_OK) return status;
    program->given[index] = true;
  }
  return GPUOS_OK;
}

static gpuos_status_t bind_file(gpuos_program_t *program, const char *path,
                                const gos_file_t *mapped) {
  gos_error_t *error = &program->device->error;
  gos_safetensors_t file;
  gos_error_t parse_error = {0};
  gpuos_status_t status = gos_safetensors_parse(mapped->data, mapped->bytes, &parse_error, &file);
  if (status != GPUOS_OK) return gos_fail(error, status, "'%s': %s", path, parse_error.text);
  status = compare_all(program, path, &file);
  if (status == GPUOS_OK) status = copy_all(program, &file);
  gos_safetensors_free(&file);
  return status;
}

gpuos_status_t gpuos_program_bind_safetensors(gpuos_program_t *program, const char *path) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_t *error = &program->device->error;
  gos_error_begin(error);
  if (path == NULL) return gos_fail(error, GPUOS_INVALID_ARGUMENT, "a binding needs a path");
  if (atomic_load(&program->running))
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "weights cannot be bound while a step runs");
  gos_file_t mapped;
  gpuos_status_t status = gos_file_map(path, error, &mapped);
  if (status != GPUOS_OK) return status;
  status = bind_file(program, path, &mapped);
  gos_file_unmap(&mapped);
  return status;
}
