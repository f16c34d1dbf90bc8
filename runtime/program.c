// program.c: artefact -> table -> check -> buffers, and the host's way to tensors.
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "internal.h"

static const gpuos_buffer_t *buffer_at(const gpuos_program_t *program, uint32_t index) {
  return GPUOS_SECTION(program->table, gpuos_buffer_t, buffers) + index;
}

// ---- load ---------------------------------------------------------------------------------------

static gpuos_status_t allocate_given(gpuos_program_t *program) {
  uint32_t count = program->table->buffers.count;
  program->given = calloc(count, sizeof program->given[0]);
  if (program->given == NULL)
    return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY, "no memory for a program");
  for (uint32_t i = 0; i < count; i++) {
    const gpuos_buffer_t *buffer = buffer_at(program, i);
    bool host_gives = buffer->role == GPUOS_INPUT || buffer->role == GPUOS_WEIGHT;
    program->given[i] = !host_gives || buffer->bytes == 0;
  }
  return GPUOS_OK;
}

static gpuos_status_t load_table(gpuos_program_t *program, const gos_artefact_t *artefact,
                                 uint32_t number) {
  gpuos_device_t *device = program->device;
  gpuos_status_t status = gos_artefact_table(artefact, number, &device->error, &program->table);
  if (status == GPUOS_OK) status = allocate_given(program);
  if (status == GPUOS_OK) status = device->backend->load(program, artefact);
  if (status == GPUOS_OK) status = gos_program_default_pages(program);
  return status;
}

static gpuos_status_t load_job(gpuos_program_t *program, const gos_artefact_t *artefact) {
  gpuos_program_t *job = calloc(1, sizeof *job);
  if (job == NULL)
    return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY, "no memory for a program");
  job->device = program->device;
  job->live = program;
  program->job = job;
  return load_table(job, artefact, 1);
}

static gpuos_status_t load(gpuos_program_t *program, const void *data, size_t bytes) {
  gos_artefact_t artefact;
  gpuos_status_t status = gos_artefact_find(data, bytes, &program->device->error, &artefact);
  if (status == GPUOS_OK) status = load_table(program, &artefact, 0);
  if (status == GPUOS_OK && artefact.table_count > 1) status = load_job(program, &artefact);
  return status;
}

gpuos_status_t gpuos_program_load(gpuos_device_t *device, const void *artefact, size_t bytes,
                                  gpuos_program_t **out_program) {
  if (out_program != NULL) *out_program = NULL;
  if (device == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_begin(&device->error);
  if (out_program == NULL || artefact == NULL || device->backend == NULL)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT,
                    "gpuos_program_load needs an open device, an artefact and out_program");
  gpuos_program_t *program = calloc(1, sizeof *program);
  if (program == NULL)
    return gos_fail(&device->error, GPUOS_OUT_OF_MEMORY, "no memory for a program");
  program->device = device;
  gpuos_status_t status = load(program, artefact, bytes);
  if (status == GPUOS_OK)
    *out_program = program;
  else
    gpuos_program_destroy(program);
  return status;
}

gpuos_status_t gpuos_program_load_file(gpuos_device_t *device, const char *path,
                                       gpuos_program_t **out_program) {
  if (out_program != NULL) *out_program = NULL;
  if (device == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_begin(&device->error);
  if (path == NULL)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT, "gpuos_program_load_file needs a path");
  gos_file_t file;
  gpuos_status_t status = gos_file_map(path, &device->error, &file);
  if (status != GPUOS_OK) return status;
  status = gpuos_program_load(device, file.data, file.bytes, out_program);
  gos_file_unmap(&file);
  return status;
}

// A step still running is asked to end, and given the time after which a stall is one.
static void end_step(gpuos_program_t *program) {
  if (!atomic_load(&program->running)) return;
  const uint64_t grace_ns = 1000000000;
  gpuos_abort(program);
  gpuos_wait(program, program->device->options.wait_limit_us * UINT64_C(1000) + grace_ns);
}

static void release(gpuos_program_t *program) {
  if (program->state != NULL) program->device->backend->unload(program);
  free(program->given);
  free(program->table);
  free(program);
}

void gpuos_program_destroy(gpuos_program_t *program) {
  if (program == NULL || program->live != NULL) return;
  end_step(program);
  if (program->job != NULL) end_step(program->job);
  if (program->job != NULL) release(program->job);
  release(program);
}

gpuos_program_t *gpuos_program_job(gpuos_program_t *program) {
  return program != NULL ? program->job : NULL;
}

// ---- tensors ------------------------------------------------------------------------------------

uint32_t gpuos_program_tensor_count(const gpuos_program_t *program) {
  // check proves that there is a workspace and that it is the last buffer
  return program != NULL ? program->table->buffers.count - 1 : 0;
}

gpuos_tensor_info_t gpuos_program_tensor(const gpuos_program_t *program, uint32_t index) {
  if (index >= gpuos_program_tensor_count(program))
    return (gpuos_tensor_info_t){.name = "", .role = "", .dtype = ""};
  const gpuos_buffer_t *buffer = buffer_at(program, index);
  gpuos_tensor_info_t info = {.name = gos_table_string(program->table, buffer->name),
                              .role = gos_role_name(buffer->role),
                              .dtype = gos_dtype_name(buffer->dtype),
                              .rank = buffer->rank,
                              .bytes = buffer->bytes};
  memcpy(info.shape, buffer->shape, sizeof info.shape);
  return info;
}

uint32_t gos_program_find(const gpuos_program_t *program, const char *name) {
  uint32_t count = gpuos_program_tensor_count(program);
  for (uint32_t i = 0; i < count; i++)
    if (strcmp(gos_table_string(program->table, buffer_at(program, i)->name), name) == 0) return i;
  return GPUOS_NONE;
}

// The buffer that a copy of `bytes` from or to `name` concerns.
static gpuos_status_t find_for_copy(gpuos_program_t *program, const char *name, const void *data,
                                    size_t bytes, uint32_t *out_buffer) {
  gos_error_t *error = &program->device->error;
  gos_error_begin(error);
  if (name == NULL || (data == NULL && bytes != 0))
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "a copy needs a name and data");
  if (atomic_load(&program->running))
    return gos_fail(error, GPUOS_INVALID_ARGUMENT,
                    "'%s' cannot be copied while a step runs; wait for it first", name);
  *out_buffer = gos_program_find(program, name);
  if (*out_buffer == GPUOS_NONE) return gos_fail(error, GPUOS_NOT_FOUND, "no tensor '%s'", name);
  if (buffer_at(program, *out_buffer)->bytes != bytes)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "'%s' has %llu bytes, the call gives %zu", name,
                    (unsigned long long)buffer_at(program, *out_buffer)->bytes, bytes);
  return GPUOS_OK;
}

gpuos_status_t gpuos_program_write(gpuos_program_t *program, const char *name, const void *data,
                                   size_t bytes) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  uint32_t buffer;
  gpuos_status_t status = find_for_copy(program, name, data, bytes, &buffer);
  if (status == GPUOS_OK) status = program->device->backend->write(program, buffer, data);
  if (status == GPUOS_OK) program->given[buffer] = true;
  return status;
}

gpuos_status_t gpuos_program_read(gpuos_program_t *program, const char *name, void *out_data,
                                  size_t bytes) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  uint32_t buffer;
  gpuos_status_t status = find_for_copy(program, name, out_data, bytes, &buffer);
  return status == GPUOS_OK ? program->device->backend->read(program, buffer, out_data) : status;
}

const char *gos_table_string(const gpuos_table_t *table, uint32_t offset) {
  return GPUOS_SECTION(table, char, strings) + offset;
}
