// file.h: a whole file, mapped read-only.
//
// The caller owns the mapping. A file that another process cuts short while it is mapped cannot be
// guarded against (the kernel sends SIGBUS); what must outlive the call is copied.
#ifndef GPUOS_FILE_H_
#define GPUOS_FILE_H_

#include "error.h"

typedef struct gos_file {
  const void *data; // never NULL after a successful map, page-aligned unless the file is empty
  size_t bytes;
} gos_file_t;

gpuos_status_t gos_file_map(const char *path, gos_error_t *error, gos_file_t *out_file); // IO
void gos_file_unmap(gos_file_t *file); // a zeroed one is fine

#endif // GPUOS_FILE_H_
