#include "error.h"

#include <stdarg.h>
#include <stdio.h>

void gos_error_begin(gos_error_t *error) { error->recorded = false; }

gpuos_status_t gos_fail(gos_error_t *error, gpuos_status_t status, const char *format, ...) {
  if (error->recorded) return status;
  error->recorded = true;
  va_list list;
  va_start(list, format);
  vsnprintf(error->text, sizeof error->text, format, list);
  va_end(list);
  return status;
}
