// cli_trace.h: what `gpuos trace` keeps of a run, and what its operators took.
#ifndef GPUOS_CLI_TRACE_H_
#define GPUOS_CLI_TRACE_H_

#include "gpuos.h"
#include "gpuos_abi.h"

// Units of all SMs, one SM after the other, each SM's as they ran.
typedef struct gos_records {
  gpuos_unit_record_t *at;
  uint32_t *counts; // by SM
  uint32_t capacity, sm_count;
  uint64_t start_ns; // the earliest
} gos_records_t;

// One operator in the last step; nanoseconds since its first unit, and of units, pauses included.
typedef struct gos_traced_op {
  uint32_t op, units;
  uint64_t from_ns, to_ns;
  uint64_t first_over_ns; // when the first SM that ran some of it was through with that
  uint64_t median_ns, longest_ns;
} gos_traced_op_t;

// In the order in which they began, *out_count of them; NULL: no memory. The caller frees.
gos_traced_op_t *gos_trace_ops(const gos_records_t *records, uint32_t op_count,
                               uint32_t *out_count);
void gos_print_traced_ops(const gpuos_table_t *table, const gos_traced_op_t *ops, uint32_t count);

#endif // GPUOS_CLI_TRACE_H_
