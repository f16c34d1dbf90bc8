// measure.c: what a program measured of itself: pauses, run times of units, traces.
#include <string.h>

#include "internal.h"

static gpuos_status_t refuse(gpuos_program_t *program, const char *what) {
  return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT, "%s are for the CUDA device",
                  what);
}

// ---- pauses -------------------------------------------------------------------------------------

gpuos_status_t gpuos_pause_storm(gpuos_program_t *program, uint32_t count, uint32_t run_ns,
                                 uint32_t pause_ns) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  const gos_backend_t *backend = program->device->backend;
  gos_error_begin(&program->device->error);
  if (backend->storm == NULL) return refuse(program, "pause storms");
  return backend->storm(program, count, run_ns, pause_ns);
}

gpuos_status_t gpuos_pause_storm_read(gpuos_program_t *program, gpuos_storm_t *out_storm) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  const gos_backend_t *backend = program->device->backend;
  gos_error_begin(&program->device->error);
  if (out_storm == NULL)
    return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT, "a storm needs a place");
  *out_storm = (gpuos_storm_t){0};
  if (backend->storm_read == NULL) return refuse(program, "pause storms");
  backend->storm_read(program, out_storm);
  return GPUOS_OK;
}

// ---- take-backs ---------------------------------------------------------------------------------

gpuos_status_t gpuos_lent_ns(gpuos_program_t *program, uint64_t *out_ns) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  const gos_backend_t *backend = program->device->backend;
  gos_error_begin(&program->device->error);
  if (out_ns == NULL)
    return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT, "a time needs a place");
  *out_ns = 0;
  if (backend->lent_ns == NULL) return refuse(program, "take-back times");
  return backend->lent_ns(program, out_ns);
}

// ---- units --------------------------------------------------------------------------------------

uint32_t gpuos_program_op_count(const gpuos_program_t *program) {
  return program != NULL ? program->table->ops.count : 0;
}

static gpuos_status_t traced(gpuos_program_t *program, const char *what) {
  const gpuos_device_t *device = program->device;
  if (device->backend->unit_stats == NULL) return refuse(program, what);
  if (device->options.trace_units != 0) return GPUOS_OK;
  return gos_fail(&program->device->error, GPUOS_INVALID_ARGUMENT,
                  "%s need a device opened with trace_units", what);
}

gpuos_status_t gpuos_program_unit_times(gpuos_program_t *program, uint32_t op,
                                        gpuos_unit_times_t *out_times) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_t *error = &program->device->error;
  gos_error_begin(error);
  if (out_times == NULL || op >= program->table->ops.count)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "operator %u asked for, the program has %u", op,
                    program->table->ops.count);
  gpuos_unit_stats_t stats = {0};
  gpuos_status_t status = traced(program, "unit times");
  if (status == GPUOS_OK) status = program->device->backend->unit_stats(program, op, &stats);
  if (status != GPUOS_OK) return status;
  const gpuos_op_t *record = GPUOS_SECTION(program->table, gpuos_op_t, ops) + op;
  *out_times = (gpuos_unit_times_t){.name = gos_table_string(program->table, record->name),
                                    .kind = gos_kind_name(record->kind),
                                    .bound_ns = record->bound_ns,
                                    .units = stats.units,
                                    .run_ns = stats.run_ns,
                                    .longest_ns = stats.longest_ns,
                                    .over_bound = stats.over_bound,
                                    .paused = stats.paused};
  GPUOS_STATIC_ASSERT(sizeof out_times->bins == sizeof stats.bins, "bins of unit times");
  memcpy(out_times->bins, stats.bins, sizeof stats.bins);
  return GPUOS_OK;
}

// ---- traces -------------------------------------------------------------------------------------

static gpuos_unit_record_t to_record(const gpuos_table_t *table, const gpuos_trace_t *t) {
  bool known = t->tile < table->tiles.count;
  return (gpuos_unit_record_t){.start_ns = t->start_ns,
                               .run_ns = t->run_ns,
                               .paused_ns = t->paused_ns,
                               .op = known ? GPUOS_SECTION(table, gpuos_tile_t, tiles)[t->tile].op
                                           : GPUOS_NONE,
                               .tile = t->tile,
                               .slice = t->slice,
                               .step = t->step};
}

gpuos_status_t gpuos_program_trace(gpuos_program_t *program, uint32_t sm,
                                   gpuos_unit_record_t *out_records, uint32_t capacity,
                                   uint32_t *out_count) {
  if (program == NULL) return GPUOS_INVALID_ARGUMENT;
  gos_error_t *error = &program->device->error;
  gos_error_begin(error);
  if (out_count != NULL) *out_count = 0;
  if (out_count == NULL || (out_records == NULL && capacity != 0) || sm >= program->sm_count)
    return gos_fail(error, GPUOS_INVALID_ARGUMENT,
                    "a trace needs places for records and their count, and one of %u SMs",
                    program->sm_count);
  gpuos_status_t status = traced(program, "traces");
  if (status == GPUOS_OK && atomic_load(&program->running))
    return gos_fail(error, GPUOS_INVALID_ARGUMENT, "a trace is read when no step runs");
  const gpuos_trace_t *ring;
  uint32_t written = 0, size = program->device->options.trace_units;
  if (status == GPUOS_OK) status = program->device->backend->trace(program, sm, &ring, &written);
  if (status != GPUOS_OK) return status;
  uint32_t kept = written < size ? written : size;
  if (kept > capacity) kept = capacity; // the latest
  for (uint32_t i = 0; i < kept; i++)
    out_records[i] = to_record(program->table, &ring[(written - kept + i) % size]);
  *out_count = kept;
  return GPUOS_OK;
}
