// artefact.c: writes the result, whole or not at all.
//
// A temporary file in the same folder (a rename is atomic only within a file system), synced before
// it takes its name: a crash leaves the old file or the new one.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen.h"

static bool fail(gos_ir_t *ir, const char *path, const char *what) {
  gos_error(ir->diags, (gos_loc_t){0}, "output", "cannot %s '%s': %s", what, path, strerror(errno));
  return false;
}

static bool write_all(int file, gos_bytes_t bytes) {
  const char *at = bytes.at;
  for (size_t left = bytes.count; left;) {
    ssize_t written = write(file, at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    at += written;
    left -= (size_t)written;
  }
  return true;
}

// What open would have given a new file; mkstemp's are private.
static mode_t usual_mode(void) {
  mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

// Pipes and devices have no whole to keep: they are written in place.
static bool is_special(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

static bool write_in_place(gos_ir_t *ir, const char *path, gos_bytes_t bytes) {
  int file = open(path, O_WRONLY);
  bool written = file >= 0 && write_all(file, bytes);
  if (!written) fail(ir, path, "write");
  if (file >= 0) close(file);
  return written;
}

static bool write_temporary(char *name, gos_bytes_t bytes) {
  int file = mkstemp(name);
  if (file < 0) return false;
  bool written = write_all(file, bytes) && fchmod(file, usual_mode()) == 0 && fsync(file) == 0;
  int cause = errno;
  if (close(file) && written) {
    written = false;
    cause = errno;
  }
  if (!written) unlink(name);
  errno = cause;
  return written;
}

bool gos_artefact_write(gos_ir_t *ir, const char *path, gos_bytes_t bytes) {
  if (!strcmp(path, "-")) return write_all(STDOUT_FILENO, bytes) || fail(ir, path, "write");
  if (is_special(path)) return write_in_place(ir, path, bytes);
  char *name = gos_format(ir->arena, "%s.XXXXXX", path);
  if (!write_temporary(name, bytes)) return fail(ir, path, "write");
  if (rename(name, path) == 0) return true;
  fail(ir, path, "write");
  unlink(name);
  return false;
}
