// check.h: proves a schedule table safe, for every set of SMs that may run it and every change of
// that set.
//
// Called by the compiler on what it wrote, by the runtime on what it loads, and by `gpuos check`.
// Works on the structs of gpuos_abi.h alone and trusts none of their fields. Thread-safe; allocates
// scratch memory and frees it.
#ifndef GPUOS_CHECK_H_
#define GPUOS_CHECK_H_

#include <stdbool.h>
#include <stddef.h>

#include "gpuos_abi.h"

// X(slug, what is proven)
#define GPUOS_CHECK_LIST(X)                                                                        \
  X(table, "magic, version, size, hash and section bounds are right")                              \
  X(record, "every index, enumeration, parameter and string of every record is in range")          \
  X(operand, "each kind has the operands it needs, with extents that follow its iteration space")  \
  X(bounds, "every access lies inside its buffer")                                                 \
  X(coverage, "every tile of every operator appears exactly once, inside its graph's range")       \
  X(progress, "a tile waits only for counters whose signals all come from lower tickets")          \
  X(threshold, "every threshold is exactly what its counter receives")                             \
  X(read_before_write, "every byte read holds the value the operand names, by ticket order")       \
  X(race, "of two conflicting accesses the earlier tile happens before the later one")             \
  X(output, "every byte of every output is written")                                               \
  X(budget, "every unit's bound is positive and within the budget")                                \
  X(memory, "the check itself ran out of memory")

typedef struct gpuos_check_report {
  const char *slug;  // of the first finding; NULL: the table is safe
  char message[256]; // names operator, tile and counter or buffer
  uint32_t tile;     // or GPUOS_NONE
} gpuos_check_report_t;

// True if the table at `table` (16-byte aligned, `bytes` readable bytes) is safe; *out_report says
// why not.
bool gpuos_check(const void *table, size_t bytes, gpuos_check_report_t *out_report);

#endif // GPUOS_CHECK_H_
