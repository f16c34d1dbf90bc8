// fuzz_table.c: gpuos_check on arbitrary bytes (libFuzzer).
//
// The frame is mended first, or no input would get past it: magic, version, bytes and hash. What
// check accepts the oracle must not call unsafe.
#include "check.h"
#include "oracle.h"
#include "tables.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  gpuos_check_report_t report;
  const char *why;
  // Of exactly this size, so that the sanitizer sees the first byte read past it.
  void *bytes = NULL;
  if (posix_memalign(&bytes, 16, size) != 0) return 0;
  memcpy(bytes, data, size);
  gpuos_table_t *table = bytes;
  if (size >= sizeof(*table)) {
    table->magic = GPUOS_MAGIC;
    table->version = GPUOS_ABI_VERSION;
    table->bytes = size;
    gos_tables_seal(table);
  }
  bool safe = gpuos_check(table, size, &report);
  if (safe && gos_oracle(table, size, &why) == GOS_UNSAFE) abort();
  free(bytes);
  return 0;
}
