// test_check.c: one defect at a time, and the slug check gives it.
#include "check.h"
#include "graphs.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { GEMM, CHAIN, DIAMOND, ATTENTION, SAMPLER, COLUMNS, PAIR, PIPELINE, STACK };

static gpuos_check_report_t judge(const gos_tables_t *tables) {
  gpuos_check_report_t report;
  gpuos_table_t *table = gos_tables_pack(tables);
  bool safe = gpuos_check(table, table->bytes, &report);
  cr_expect_eq(safe, report.slug == NULL);
  free(table);
  return report;
}

Test(check, accepts_every_safe_graph) {
  for (int i = 0; i < GOS_GRAPH_COUNT; i++) {
    gos_tables_t *t = gos_graphs[i].build();
    gpuos_check_report_t report = judge(t);
    cr_expect_null(report.slug, "%s: %s: %s", gos_graphs[i].name, report.slug, report.message);
    gos_tables_destroy(t);
  }
}

// The operand of an operator that is `as` to it.
static gpuos_operand_t *operand(gos_tables_t *t, uint32_t op, gpuos_as_t as) {
  gpuos_operand_t *x = &t->operands.at[t->ops.at[op].first_operand];
  while (x->as != as) x++;
  return x;
}

// DEFECT(graph, slug, name, statements that break t)
#define DEFECTS(DEFECT)                                                                            \
  DEFECT(GEMM, table, magic, t->header.magic++)                                                    \
  DEFECT(GEMM, table, version, t->header.version++)                                                \
  DEFECT(GEMM, table, open_string, t->strings.at[t->strings.count - 1] = 'x')                      \
  DEFECT(GEMM, record, zero_tile, t->ops.at[0].tile[1] = 0)                                        \
  DEFECT(GEMM, record, huge_grid, t->ops.at[0].extent[0] = ~0u)                                    \
  DEFECT(GEMM, record, kind, t->ops.at[0].kind = GPUOS_KIND_COUNT)                                 \
  DEFECT(GEMM, record, operands_past_end, t->ops.at[1].first_operand = ~0u)                        \
  DEFECT(GEMM, record, code_of_itself, t->code.at[2].a = 2)                                        \
  DEFECT(GEMM, record, code_of_third_sum, t->code.at[1].a = 2)                                     \
  DEFECT(GEMM, record, code_of_second_input, t->code.at[4].a = 1)                                  \
  DEFECT(GEMM, record, small_park, t->ops.at[0].park_bytes--)                                      \
  DEFECT(GEMM, record, park_over_table, t->header.park_bytes--)                                    \
  DEFECT(GEMM, record, buffer_bytes, t->buffers.at[0].bytes++)                                     \
  DEFECT(GEMM, record, two_workspaces, t->buffers.at[0].role = GPUOS_WORKSPACE)                    \
  DEFECT(GEMM, record, no_workspace, t->buffers.at[t->buffers.count - 1].role = GPUOS_STATE)       \
  DEFECT(GEMM, record, written_initial_value, operand(t, 0, GPUOS_AS_OUT)->value = 0)              \
  DEFECT(GEMM, record, wait_list_past_end, t->wait_lists.at[1].first = ~0u)                        \
  DEFECT(GEMM, record, first_list_not_empty, t->wait_lists.at[0].count = 1)                        \
  DEFECT(GEMM, record, more_stamped_than_waits, t->wait_lists.at[1].stamped = 9)                   \
  DEFECT(GEMM, record, stamped_result, operand(t, 0, GPUOS_AS_OUT)->stamped = 1)                   \
  DEFECT(GEMM, record, tile_index, t->tiles.at[0].index = 6)                                       \
  DEFECT(GEMM, record, signal, t->tiles.at[0].signal = 2)                                          \
  DEFECT(GEMM, operand, stamped_weight, operand(t, 0, GPUOS_AS_W0)->stamped = 1)                   \
  DEFECT(GEMM, operand, no_weight, operand(t, 0, GPUOS_AS_W0)->as = GPUOS_AS_EXTRA)                \
  DEFECT(GEMM, operand, reads_out, operand(t, 0, GPUOS_AS_OUT)->writes = 0)                        \
  DEFECT(GEMM, operand, dtype, operand(t, 0, GPUOS_AS_X)->dtype = GPUOS_I32)                       \
  DEFECT(GEMM, operand, writes_weight, operand(t, 0, GPUOS_AS_OUT)->buffer = 2)                    \
  DEFECT(GEMM, operand, k_split_over_tiles, t->ops.at[1].tile[3] = 6)                              \
  DEFECT(GEMM, operand, empty_slice, t->ops.at[0].tile[3] = 12)                                    \
  DEFECT(GEMM, operand, batch_in_slices, t->ops.at[0].tile[0] = t->ops.at[0].extent[0] = 2;        \
         operand(t, 0, GPUOS_AS_OUT)->extent[1] = 2; operand(t, 0, GPUOS_AS_OUT)->stride[1] = 96;  \
         t->buffers.at[6].bytes = t->buffers.at[6].shape[0] = 768)                                 \
  DEFECT(GEMM, operand, follows_other, operand(t, 0, GPUOS_AS_X)->follows[2] = 2)                  \
  DEFECT(GEMM, operand, half_an_element, operand(t, 0, GPUOS_AS_X)->offset_bytes = 2)              \
  DEFECT(CHAIN, operand, written_onto_itself, operand(t, 0, GPUOS_AS_OUT)->stride[2] = 7)          \
  DEFECT(CHAIN, operand, sliced_map, t->ops.at[1].slice = 4)                                       \
  DEFECT(SAMPLER, operand, extra_dimension, t->ops.at[1].extent[3] = 2)                            \
  DEFECT(SAMPLER, operand, sliced_norm, t->ops.at[2].slice = 2)                                    \
  DEFECT(SAMPLER, record, negative_eps, t->ops.at[1].params[0] = 0xbf800000)                       \
  DEFECT(ATTENTION, operand, splits_too_short, t->ops.at[3].params[4] = 1)                         \
  DEFECT(ATTENTION, record, no_shares, t->ops.at[3].params[7] = 0)                                 \
  DEFECT(ATTENTION, record, more_shares_than_splits, t->ops.at[3].params[7] = 3)                   \
  DEFECT(ATTENTION, record, splits_of_no_length_merged, t->ops.at[4].params[4] = 0)                \
  DEFECT(ATTENTION, record, no_shares_merged, t->ops.at[4].params[7] = 0)                          \
  DEFECT(ATTENTION, operand, partial_length, t->ops.at[4].params[2] = 3)                           \
  DEFECT(ATTENTION, operand, few_sequences, operand(t, 2, GPUOS_AS_PAGES)->extent[2] = 1)          \
  DEFECT(ATTENTION, operand, other_cache_in, operand(t, 2, GPUOS_AS_CACHE_IN)->stride[0] = 0)      \
  DEFECT(ATTENTION, operand, no_head, t->ops.at[2].params[1] = 0)                                  \
  DEFECT(ATTENTION, record, theta, t->ops.at[1].params[0] = 0)                                     \
  DEFECT(PAIR, operand, few_keys, operand(t, 0, GPUOS_AS_K)->extent[1] = 2;                        \
         operand(t, 0, GPUOS_AS_V)->extent[1] = 2)                                                 \
  DEFECT(GEMM, bounds, one_past, operand(t, 0, GPUOS_AS_X)->offset_bytes = 4)                      \
  DEFECT(GEMM, bounds, far_past, operand(t, 0, GPUOS_AS_X)->offset_bytes = ~3ull)                  \
  DEFECT(GEMM, bounds, long_stride, operand(t, 0, GPUOS_AS_X)->stride[2] = ~0u)                    \
  DEFECT(STACK, bounds, weights_apart, t->buffers.at[2].joined = 0)                                \
  DEFECT(STACK, bounds, past_all_joined, operand(t, 0, GPUOS_AS_W0)->offset_bytes = 4)             \
  DEFECT(STACK, record, joined_to_an_input, t->buffers.at[1].joined = 1)                           \
  DEFECT(STACK, record, joined_output, t->buffers.at[4].joined = 1)                                \
  DEFECT(STACK, record, joined_twice, t->buffers.at[2].joined = 2)                                 \
  DEFECT(STACK, record, joined_off_an_address, t->buffers.at[1].shape[0] = 7;                      \
         t->buffers.at[1].bytes = 224)                                                             \
  DEFECT(STACK, record, more_joined_than_an_address_reaches, t->buffers.at[1].shape[0] = 1 << 27;  \
         t->buffers.at[1].shape[1] = 1 << 19; t->buffers.at[1].bytes = 1ull << 48)                 \
  DEFECT(STACK, read_before_write, value_of_the_second, operand(t, 0, GPUOS_AS_W0)->value = 2)     \
  DEFECT(GEMM, coverage, tile_twice, t->tiles.at[1].index = 0)                                     \
  DEFECT(PAIR, coverage, tile_of_other_graph, t->tiles.at[0].op = 1)                               \
  DEFECT(GEMM, progress, waits_for_later, t->tiles.at[0].wait_list = 1)                            \
  DEFECT(GEMM, progress, waits_for_itself, t->tiles.at[2].wait_list = 1)                           \
  DEFECT(GEMM, threshold, one_less, t->waits.at[0].threshold--)                                    \
  DEFECT(GEMM, threshold, count, t->counters.at[0]++; t->waits.at[0].threshold++)                  \
  DEFECT(CHAIN, read_before_write, stale_value, operand(t, 2, GPUOS_AS_X)->value = 4)              \
  DEFECT(CHAIN, read_before_write, undefined, operand(t, 1, GPUOS_AS_EXTRA)->offset_bytes = 128)   \
  DEFECT(CHAIN, read_before_write, wrong_input, operand(t, 0, GPUOS_AS_X)->value = 1)              \
  DEFECT(CHAIN, race, no_wait, t->tiles.at[4].wait_list = 0)                                       \
  DEFECT(CHAIN, race, wait_for_stamps_of_what_has_none,                                            \
         t->wait_lists.at[t->tiles.at[4].wait_list].stamped = 1)                                   \
  DEFECT(CHAIN, race, silent_writer, t->tiles.at[3].signal = GPUOS_NONE; gos_tables_settle(t))     \
  DEFECT(DIAMOND, race, reader_not_waited_for,                                                     \
         t->waits.at[t->wait_lists.at[t->tiles.at[12].wait_list].first] = t->waits.at[0])          \
  DEFECT(SAMPLER, race, argmax_still_reads,                                                        \
         t->wait_lists.at[t->tiles.at[t->tiles.count - 5].wait_list].count = 1)                    \
  DEFECT(SAMPLER, race, shifted_in_place, operand(t, 4, GPUOS_AS_OUT)->offset_bytes += 4)          \
  DEFECT(DIAMOND, output, one_row_short,                                                           \
         t->ops.at[4].extent[2] = operand(t, 4, GPUOS_AS_OUT)->extent[2] =                         \
             operand(t, 4, GPUOS_AS_EXTRA)->extent[2] = 3;                                         \
         t->tiles.count--; t->graphs.at[0].tile_count--)                                           \
  DEFECT(GEMM, budget, over, t->ops.at[0].bound_ns = 20001)                                        \
  DEFECT(GEMM, budget, none, t->ops.at[1].bound_ns = 0)                                            \
  DEFECT(GEMM, budget, no_budget, t->header.budget_ns = 0)

#define DEFECT(graph, slug, name, ...)                                                             \
  static void break_##name(gos_tables_t *t) { __VA_ARGS__; }
DEFECTS(DEFECT)
#undef DEFECT

Test(check, names_every_defect) {
  static const struct {
    int graph;
    const char *slug, *name;
    void (*apply)(gos_tables_t *);
  } defects[] = {
#define DEFECT(graph, slug, name, ...) {graph, #slug, #name, break_##name},
      DEFECTS(DEFECT)
#undef DEFECT
  };
  for (size_t i = 0; i < sizeof(defects) / sizeof(*defects); i++) {
    gos_tables_t *t = gos_graphs[defects[i].graph].build();
    defects[i].apply(t);
    gpuos_check_report_t report = judge(t);
    cr_expect(report.slug != NULL && strcmp(report.slug, defects[i].slug) == 0,
              "%s of %s: expected [%s], got [%s] %s", defects[i].name,
              gos_graphs[defects[i].graph].name, defects[i].slug,
              report.slug ? report.slug : "safe", report.message);
    gos_tables_destroy(t);
  }
}

Test(check, accepts_waits_that_say_nothing_new) {
  gos_tables_t *t = gos_graphs[DIAMOND].build();
  gpuos_tile_t *last = &t->tiles.at[t->tiles.count - 1];
  last->wait_list = gos_tables_add_wait_list(t, (uint32_t[]){0, 15, 15, 1}, 4);
  gos_tables_settle(t);
  cr_expect_null(judge(t).slug);
  gos_tables_destroy(t);
}

Test(check, refuses_what_is_not_a_table) {
  gpuos_check_report_t report;
  gos_tables_t *t = gos_graphs[GEMM].build();
  gpuos_table_t *table = gos_tables_pack(t);
  cr_expect_not(gpuos_check(NULL, 0, &report));
  cr_expect_not(gpuos_check((char *)table + 8, table->bytes - 8, &report));
  for (size_t bytes = 0; bytes < table->bytes; bytes += 7)
    cr_expect_not(gpuos_check(table, bytes, &report));
  table->budget_ns++; // without sealing
  cr_expect_not(gpuos_check(table, table->bytes, &report));
  cr_expect_str_eq(report.slug, "table");
  free(table);
  gos_tables_destroy(t);
}

// A chain of 65536 tiles, a counter each: the relation between them would take half a gigabyte.
Test(check, bounds_its_own_work, .timeout = 60) {
  gos_tables_t *t = gos_tables_create();
  uint32_t n = 1 << 16;
  uint32_t x = gos_tables_add_buffer(t, "x", GPUOS_STATE, GPUOS_F32, 1, &n);
  gos_tables_add_workspace(t, 0);
  uint32_t value = gos_tables_add_value(t);
  gos_tables_add_op(t, "all", GPUOS_MAP, (uint32_t[]){1, 1, 1, n})->tile[3] = 1;
  gpuos_operand_t view =
      gos_tables_view(GPUOS_AS_EXTRA, GPUOS_F32, x, x, 0, (uint32_t[]){1, 1, 1, n},
                      (uint8_t[]){GPUOS_ALL, GPUOS_ALL, GPUOS_ALL, 3});
  gos_tables_add_operand(t, view, 0);
  view.as = GPUOS_AS_OUT;
  view.value = value;
  gos_tables_add_operand(t, view, 1);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t counter = gos_tables_add_counter(t), previous = counter - 1;
    uint32_t list = i == 0 ? 0 : gos_tables_add_wait_list(t, &previous, 1);
    gos_tables_add_tile(t, 0, i, list, counter);
  }
  gos_tables_settle(t);
  gpuos_check_report_t report = judge(t);
  cr_expect_str_eq(report.slug, "record", "%s", report.message);
  gos_tables_destroy(t);
}
