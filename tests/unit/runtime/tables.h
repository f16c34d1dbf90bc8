// tables.h: schedule tables written by hand, for the tests of the runtime.
//
// A gos_tables_t holds every section as a growable array. Add buffers, operators and tiles in
// order, then finish; the arrays are public so that a test can also break them and pack what is
// left. Out of memory aborts: these are tests. One thread.
#ifndef GOS_TEST_TABLES_H_
#define GOS_TEST_TABLES_H_

#include "gpuos_abi.h"

#define GOS_ARRAY(type)                                                                            \
  struct {                                                                                         \
    type *at;                                                                                      \
    uint32_t count, capacity;                                                                      \
  }

typedef struct gos_tables {
  gpuos_table_t header; // magic, version, arch, budget_ns, park_bytes; the rest is packed
  GOS_ARRAY(gpuos_graph_t) graphs;
  GOS_ARRAY(gpuos_buffer_t) buffers;
  GOS_ARRAY(gpuos_op_t) ops;
  GOS_ARRAY(gpuos_operand_t) operands;
  GOS_ARRAY(gpuos_code_t) code;
  GOS_ARRAY(gpuos_tile_t) tiles;
  GOS_ARRAY(gpuos_wait_list_t) wait_lists;
  GOS_ARRAY(gpuos_wait_t) waits;
  GOS_ARRAY(uint32_t) counters;
  GOS_ARRAY(char) strings;
} gos_tables_t;

// Empty but for wait list 0 and the string "": 20 us of budget, no device code.
gos_tables_t *gos_tables_create(void);
gos_tables_t *gos_tables_clone(const gos_tables_t *tables);
void gos_tables_destroy(gos_tables_t *tables);

// A graph takes all operators and tiles added until the next one; without a call all are one live
// graph "main".
void gos_tables_begin_graph(gos_tables_t *tables, const char *name, uint32_t live);

// Adds a buffer of `rank` dimensions, its bytes by its shape; a workspace is rank 1 and in bytes.
// Returns its index, which is also its initial value.
uint32_t gos_tables_add_buffer(gos_tables_t *tables, const char *name, gpuos_role_t role,
                               gpuos_dtype_t dtype, uint32_t rank, const uint32_t *shape);
uint32_t gos_tables_add_workspace(gos_tables_t *tables, uint32_t bytes);

// After the last buffer: a value no one has used yet.
uint32_t gos_tables_add_value(gos_tables_t *tables);

// A row-major contiguous view. extent and follows have four entries.
gpuos_operand_t gos_tables_view(gpuos_as_t as, gpuos_dtype_t dtype, uint32_t buffer, uint32_t value,
                                uint64_t offset_bytes, const uint32_t *extent,
                                const uint8_t *follows);

// Adds an operator without operands; the caller fills the returned record (not owned, valid until
// the next call), whose tile is 1 x 1 x 1 x extent[3], unsliced, and whose bound is 1 us.
gpuos_op_t *gos_tables_add_op(gos_tables_t *tables, const char *name, gpuos_kind_t kind,
                              const uint32_t *extent);
// Both append to the last operator. A written view's `writes` is 1.
gpuos_operand_t *gos_tables_add_operand(gos_tables_t *tables, gpuos_operand_t operand,
                                        uint32_t writes);
void gos_tables_add_code(gos_tables_t *tables, gpuos_code_op_t op, uint32_t a, uint32_t b,
                         float imm);

uint32_t gos_tables_add_counter(gos_tables_t *tables);
uint32_t gos_tables_add_wait_list(gos_tables_t *tables, const uint32_t *counters, uint32_t count);
void gos_tables_add_tile(gos_tables_t *tables, uint32_t op, uint32_t index, uint32_t wait_list,
                         uint32_t signal);
// Every tile of the operator in order, all with one wait list and one signal.
void gos_tables_add_tiles(gos_tables_t *tables, uint32_t op, uint32_t wait_list, uint32_t signal);

// Counts signals into counters and thresholds, closes the last graph.
void gos_tables_settle(gos_tables_t *tables);
// One block, aligned to 16, to be freed by the caller: the sections as they are, sealed.
gpuos_table_t *gos_tables_pack(const gos_tables_t *tables);
// Settles and packs.
gpuos_table_t *gos_tables_finish(gos_tables_t *tables);
// Writes the hash of a table that was changed in place.
void gos_tables_seal(gpuos_table_t *table);

#endif // GOS_TEST_TABLES_H_
