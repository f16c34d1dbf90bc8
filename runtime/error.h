// error.h: explains a failure in words; the first explanation of a call wins.
//
// A recorder lives in its owner (a device, a command) and needs no memory. One thread at a time.
#ifndef GPUOS_ERROR_H_
#define GPUOS_ERROR_H_

#include "gpuos.h"

typedef struct gos_error {
  bool recorded; // in this call
  char text[640];
} gos_error_t;

#ifdef __GNUC__
#define GOS_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define GOS_PRINTF(text, first)
#endif

// A new call begins: its first failure will replace the text.
void gos_error_begin(gos_error_t *error);

// Records the text unless this call has one already. Returns `status`, so that a failing function
// can end in it.
gpuos_status_t gos_fail(gos_error_t *error, gpuos_status_t status, const char *format, ...)
    GOS_PRINTF(3, 4);

#endif // GPUOS_ERROR_H_
