// check_parts.h: what the files of check share; the order of the declarations is the order of the
// proof.
//
// Called by check.c only. Every step may rely on what the steps before it proved. A step returns
// false after its first finding, which is then in the report.
#ifndef GOS_CHECK_PARTS_H_
#define GOS_CHECK_PARTS_H_

#include "check.h"

// Limits that keep a hostile table from costing minutes or all of memory. A table over one of them
// is refused as [record]. The largest schedules planned so far stay a factor of ten below.
#define GOS_CHECK_MAX_BYTES      (1ull << 48) // of one buffer, or of those that are joined
#define GOS_CHECK_MAX_JOINED     64           // buffers, one after another
#define GOS_CHECK_MAX_TILES      (1ull << 24) // of a table
#define GOS_CHECK_MAX_WAITS      (1ull << 26) // summed over all wait lists, which may overlap
#define GOS_CHECK_MAX_CELLS      (1ull << 24) // pieces that accesses cut the written buffers into
#define GOS_CHECK_MAX_SETS       (1ull << 22) // different sets of readers
#define GOS_CHECK_MAX_ORDER_BITS (1ull << 31) // of the happens-before relation: 256 MiB
#define GOS_CHECK_MAX_WORK       (1ull << 30) // elementary steps: at most some twenty seconds

typedef enum gos_check_slug {
#define SLUG(slug, what) GOS_CHECK_##slug,
  GPUOS_CHECK_LIST(SLUG)
#undef SLUG
} gos_check_slug_t;

typedef struct gos_check {
  const gpuos_table_t *table;
  const gpuos_graph_t *graphs;
  const gpuos_buffer_t *buffers;
  const gpuos_op_t *ops;
  const gpuos_operand_t *operands;
  const gpuos_code_t *code;
  const gpuos_tile_t *tiles;
  const gpuos_wait_list_t *wait_lists;
  const gpuos_wait_t *waits;
  const uint32_t *counters;
  const char *strings;
  uint32_t *grids; // cells of each operator's grid, their sum is tiles.count; set by records
  uint64_t work;   // spent so far
  gpuos_check_report_t *report;
} gos_check_t;

// Fills the report and returns false. `tile` may be GPUOS_NONE.
__attribute__((format(printf, 4, 5))) bool gos_check_fail(gos_check_t *check, gos_check_slug_t slug,
                                                          uint32_t tile, const char *format, ...);
// False, with a report, once the table has cost more than GOS_CHECK_MAX_WORK.
bool gos_check_spend(gos_check_t *check, uint64_t steps);

// A name made fit for a message: at most 40 printable characters.
typedef struct gos_check_name {
  char text[41];
} gos_check_name_t;
gos_check_name_t gos_check_name(const gos_check_t *check, uint32_t string);
#define GOS_OP_NAME(check, op)         (gos_check_name((check), (check)->ops[op].name).text)
#define GOS_BUFFER_NAME(check, buffer) (gos_check_name((check), (check)->buffers[buffer].name).text)

// [operand], [bounds], and [record] of parameters: one operator whose record is already in range.
bool gos_check_op(gos_check_t *check, uint32_t op);

// True if index by index both operands touch the same element in the same tile.
bool gos_check_same_view(const gpuos_operand_t *a, const gpuos_operand_t *b);

// Which tiles happen before which, at the grain of counters: tile a happens before tile b if and
// only if the counter a signals is in the set of b's wait list.
typedef struct gos_order {
  uint64_t words;          // of one set
  uint64_t *of_counter;    // [counter][words]: it and all that happened before its last signal
  uint64_t *of_long_lists; // [..][words]: of lists with more than one wait
  uint64_t long_used;
  // Of each wait list, without the waits for what comes stamped, and with them; NULL: not yet asked for.
  const uint64_t **of_list, **of_stamped;
  uint32_t *joined;     // the last wait list that flowed into each counter
  const uint64_t *none; // the empty set
} gos_order_t;

// [progress] and [threshold].
bool gos_check_progress(gos_check_t *check);

// Reserves the relation; gos_order_destroy also accepts a half-built one.
bool gos_order_create(gos_check_t *check, gos_order_t *out_order);
void gos_order_destroy(gos_order_t *order);
// What happens before a tile with this wait list; the tiles before it must have been signalled.
const uint64_t *gos_order_before(gos_check_t *check, gos_order_t *order, uint32_t wait_list);
// And before it reads what comes stamped.
const uint64_t *gos_order_before_stamped(gos_check_t *check, gos_order_t *order,
                                         uint32_t wait_list);
// Tile `tile` ends. To be called in ticket order.
bool gos_order_signal(gos_check_t *check, gos_order_t *order, const gpuos_tile_t *tile);

static inline bool gos_order_has(const uint64_t *before, uint32_t counter) {
  return before[counter / 64] >> (counter % 64) & 1;
}

// [read_before_write], [race] and [output].
bool gos_check_memory(gos_check_t *check);

#endif // GOS_CHECK_PARTS_H_
