#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static gpuos_status_t map_open(int fd, const char *path, gos_error_t *error, gos_file_t *out_file) {
  struct stat info;
  if (fstat(fd, &info) != 0) return gos_fail(error, GPUOS_IO, "'%s': %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode)) return gos_fail(error, GPUOS_IO, "'%s' is not a regular file", path);
  *out_file = (gos_file_t){.data = "", .bytes = (size_t)info.st_size};
  if (info.st_size == 0) return GPUOS_OK; // nothing that mmap would map
  void *data = mmap(NULL, out_file->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) {
    *out_file = (gos_file_t){0};
    return gos_fail(error, GPUOS_IO, "'%s' cannot be mapped: %s", path, strerror(errno));
  }
  out_file->data = data;
  return GPUOS_OK;
}

gpuos_status_t gos_file_map(const char *path, gos_error_t *error, gos_file_t *out_file) {
  *out_file = (gos_file_t){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return gos_fail(error, GPUOS_IO, "'%s': %s", path, strerror(errno));
  gpuos_status_t status = map_open(fd, path, error, out_file);
  close(fd);
  return status;
}

void gos_file_unmap(gos_file_t *file) {
  if (file->bytes != 0) munmap((void *)(uintptr_t)file->data, file->bytes);
  *file = (gos_file_t){0};
}
