// cli_session.c: one step of a run, with its time and its failures.
#include <stdlib.h>
#include <string.h>

#include "cli.h"

bool gos_session_failed(const gos_session_t *session, const char *about, gpuos_status_t status) {
  const char *why = gpuos_device_error(session->device);
  gos_say("error: %s: %s [%s]", about, why[0] != '\0' ? why : gpuos_status_text(status),
          gpuos_status_name(status));
  return false;
}

static void keep_time(gos_times_t *times, uint64_t ns) {
  if (times->count == times->capacity) {
    size_t capacity = times->capacity == 0 ? 256 : times->capacity * 2;
    uint64_t *grown = realloc(times->ns, capacity * sizeof *grown);
    if (grown == NULL) return; // the closing line then speaks of fewer steps
    times->ns = grown;
    times->capacity = capacity;
  }
  times->ns[times->count++] = ns;
}

bool gos_session_step(gos_session_t *session) {
  gpuos_status_t status = gpuos_submit(session->program);
  if (status == GPUOS_OK) status = gpuos_wait(session->program, session->timeout_ns);
  if (status != GPUOS_OK) {
    gos_session_failed(session, "step", status);
    if (status == GPUOS_TIMEOUT) gpuos_abort(session->program);
    return false;
  }
  keep_time(&session->times, gpuos_step_ns(session->program));
  return true;
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
