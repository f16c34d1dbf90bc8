// What operators took, from hand-made records of two SMs.
#include <criterion/criterion.h>
#include <stdlib.h>

#include "cli_trace.h"

enum { CAPACITY = 4 };

static gpuos_unit_record_t unit(uint32_t step, uint32_t op, uint64_t start_ns, uint32_t run_ns,
                                uint32_t paused_ns) {
  return (gpuos_unit_record_t){
      .start_ns = start_ns, .run_ns = run_ns, .paused_ns = paused_ns, .op = op, .step = step};
}

Test(trace_ops, tells_what_each_took_in_the_last_step) {
  gpuos_unit_record_t at[2 * CAPACITY] = {
      unit(1, 0, 100, 900, 0), unit(2, 3, 1000, 50, 0), unit(2, 3, 1050, 70, 10),
      unit(2, 1, 1200, 40, 0), // the second SM's:
      unit(2, 3, 1010, 30, 0), unit(2, 1, 1100, 20, 0), unit(2, 9, 1150, 5, 0),
  };
  uint32_t counts[2] = {4, 3}, count;
  gos_records_t records = {.at = at, .counts = counts, .capacity = CAPACITY, .sm_count = 2};
  gos_traced_op_t *ops = gos_trace_ops(&records, 9, &count); // there is no operator 9
  cr_assert_not_null(ops);
  cr_assert_eq(count, 2);
  cr_expect_eq(ops[0].op, 3);
  cr_expect_eq(ops[0].units, 3);
  cr_expect_eq(ops[0].from_ns, 0);
  cr_expect_eq(ops[0].to_ns, 130);
  cr_expect_eq(ops[0].first_over_ns, 40);
  cr_expect_eq(ops[0].median_ns, 50);
  cr_expect_eq(ops[0].longest_ns, 80);
  cr_expect_eq(ops[1].op, 1);
  cr_expect_eq(ops[1].from_ns, 100);
  cr_expect_eq(ops[1].to_ns, 240);
  cr_expect_eq(ops[1].first_over_ns, 120);
  cr_expect_eq(ops[1].longest_ns, 40);
  free(ops);
}

Test(trace_ops, of_nothing_is_nothing) {
  uint32_t counts[1] = {0}, count = 1;
  gos_records_t records = {.counts = counts, .sm_count = 1};
  gos_traced_op_t *ops = gos_trace_ops(&records, 2, &count);
  cr_assert_not_null(ops);
  cr_expect_eq(count, 0);
  free(ops);
}
