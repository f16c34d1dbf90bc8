// artefact.h: finds the schedule tables in what gpuosc wrote.
//
// An artefact is one table, or that of a live program and behind it that of a job: bare (for the CPU device), or in
// the ELF section ".gpuos.sched" of a cubin. Called by the loader and the command line on bytes that nobody vouches for: every
// offset is checked against the size. The table itself is left to gpuos_check.
#ifndef GPUOS_ARTEFACT_H_
#define GPUOS_ARTEFACT_H_

#include "error.h"
#include "gpuos_abi.h"

// Borrows from the artefact's bytes.
typedef struct gos_artefact {
  struct {
    const void *at; // any alignment
    size_t bytes;
  } tables[GPUOS_MOST_PROGRAMS];
  uint32_t table_count; // at least 1
  const void *cubin;    // NULL: a bare table, no device code
  size_t cubin_bytes;
  uint32_t arch; // 90: sm_90a ...; the ELF flags and the table agree on it
} gos_artefact_t;

// BAD_ARTEFACT, or BAD_VERSION when the table is of another ABI version.
gpuos_status_t gos_artefact_find(const void *data, size_t bytes, gos_error_t *error,
                                 gos_artefact_t *out_artefact);

// Copies table number `number` to aligned memory, which the caller frees, and proves it safe. BAD_ARTEFACT when
// it is damaged, UNSAFE_SCHEDULE when it is whole but not safe, OUT_OF_MEMORY.
gpuos_status_t gos_artefact_table(const gos_artefact_t *artefact, uint32_t number,
                                  gos_error_t *error, gpuos_table_t **out_table);

#endif // GPUOS_ARTEFACT_H_
