// cli_session.c: a device, a program on it, its steps with their times and failures.
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "file.h"

bool gos_session_failed(const gos_session_t *session, const char *about, gpuos_status_t status) {
  const char *why = gpuos_device_error(session->device);
  gos_say("error: %s: %s [%s]", about, why[0] != '\0' ? why : gpuos_status_text(status),
          gpuos_status_name(status));
  return false;
}

// ---- open ---------------------------------------------------------------------------------------

static bool open_device(const gos_open_t *open, gos_session_t *session, gpuos_device_kind_t kind) {
  gpuos_device_options_t options = open->options;
  options.kind = kind;
  if (kind == GPUOS_DEVICE_CUDA) options.interleave_seed = 0, options.take_back = false;
  gpuos_status_t status = gpuos_device_open(&options, &session->device);
  if (status == GPUOS_OK) return true;
  bool choosing = open->device < 0 && kind == GPUOS_DEVICE_CUDA;
  if (!choosing) return gos_session_failed(session, "device", status);
  if (open->verbose) gos_say("no GPU: %s", gpuos_device_error(session->device));
  gpuos_device_close(session->device);
  session->device = NULL;
  return false;
}

static bool choose_device(const gos_open_t *open, gos_session_t *session, const gos_file_t *file) {
  if (open->device >= 0) return open_device(open, session, (gpuos_device_kind_t)open->device);
  gos_error_t error = {0};
  gos_artefact_t artefact;
  // A file that is no artefact is for gpuos_program_load to explain.
  bool has_code = gos_artefact_find(file->data, file->bytes, &error, &artefact) == GPUOS_OK &&
                  artefact.cubin != NULL;
  bool cuda = has_code && open->options.interleave_seed == 0 &&
              open_device(open, session, GPUOS_DEVICE_CUDA);
  bool ok = cuda || open_device(open, session, GPUOS_DEVICE_CPU);
  if (ok && open->verbose)
    gos_say("runs on the %s, %u %s%s", cuda ? "GPU" : "CPU", gpuos_device_sm_count(session->device),
            cuda ? "SMs" : "threads", has_code ? "" : "; the artefact has no device code");
  return ok;
}

bool gos_session_open(gos_session_t *session, const gos_open_t *open) {
  gos_error_t error = {0};
  gos_file_t file;
  if (gos_file_map(open->path, &error, &file) != GPUOS_OK) {
    gos_say("error: %s [IO]", error.text);
    return false;
  }
  bool ok = choose_device(open, session, &file);
  if (ok) {
    gpuos_status_t status =
        gpuos_program_load(session->device, file.data, file.bytes, &session->program);
    ok = status == GPUOS_OK || gos_session_failed(session, open->path, status);
  }
  gos_file_unmap(&file);
  return ok;
}

void gos_session_close(gos_session_t *session) {
  gpuos_program_destroy(session->program);
  gpuos_device_close(session->device);
  free(session->times.ns);
}

bool gos_session_find(const gos_session_t *session, const char *name,
                      gpuos_tensor_info_t *out_info) {
  uint32_t count = gpuos_program_tensor_count(session->program);
  for (uint32_t i = 0; i < count; i++) {
    *out_info = gpuos_program_tensor(session->program, i);
    if (strcmp(out_info->name, name) == 0) return true;
  }
  return false;
}

// ---- steps and times ----------------------------------------------------------------------------

void gos_times_keep(gos_times_t *times, uint64_t ns) {
  if (times->count == times->capacity) {
    size_t capacity = times->capacity == 0 ? 256 : times->capacity * 2;
    uint64_t *grown = realloc(times->ns, capacity * sizeof *grown);
    if (grown == NULL) return; // the closing line then speaks of fewer steps
    times->ns = grown;
    times->capacity = capacity;
  }
  times->ns[times->count++] = ns;
}

static int by_size(const void *left, const void *right) {
  uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
  return (a > b) - (a < b);
}

void gos_times_sort(gos_times_t *times) {
  if (times->count != 0) qsort(times->ns, times->count, sizeof *times->ns, by_size);
}

uint64_t gos_times_at(const gos_times_t *times, double share) {
  size_t at = (size_t)((double)times->count * share);
  if (times->count == 0) return 0;
  return times->ns[at < times->count ? at : times->count - 1];
}

bool gos_session_step(gos_session_t *session) {
  gpuos_status_t status = gpuos_submit(session->program);
  if (status == GPUOS_OK) status = gpuos_wait(session->program, session->timeout_ns);
  if (status != GPUOS_OK) {
    gos_session_failed(session, "step", status);
    if (status == GPUOS_TIMEOUT) gpuos_abort(session->program);
    return false;
  }
  gos_times_keep(&session->times, gpuos_step_ns(session->program));
  return true;
}
