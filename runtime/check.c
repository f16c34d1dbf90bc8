// check.c: the proof in order, and its first part: the table's frame and records.
//
// Each step relies only on what the steps before it proved; the first finding ends the proof.
#include "check_parts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- reports ------------------------------------------------------------------------------------

static const char *const slugs[] = {
#define SLUG(slug, what) #slug,
    GPUOS_CHECK_LIST(SLUG)
#undef SLUG
};

bool gos_check_fail(gos_check_t *check, gos_check_slug_t slug, uint32_t tile, const char *format,
                    ...) {
  gpuos_check_report_t *report = check->report;
  va_list args;
  va_start(args, format);
  vsnprintf(report->message, sizeof(report->message), format, args);
  va_end(args);
  report->slug = slugs[slug];
  report->tile = tile;
  return false;
}

bool gos_check_spend(gos_check_t *check, uint64_t steps) {
  if (steps <= GOS_CHECK_MAX_WORK - check->work) {
    check->work += steps;
    return true;
  }
  return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                        "the table is too large to be checked (limit %llu steps)",
                        GOS_CHECK_MAX_WORK);
}

gos_check_name_t gos_check_name(const gos_check_t *check, uint32_t string) {
  gos_check_name_t name = {{0}};
  const char *from = check->strings + string;
  for (size_t i = 0; i + 1 < sizeof(name.text) && from[i] != 0; i++)
    name.text[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
  return name;
}

// ---- the frame: header and sections -------------------------------------------------------------

static uint64_t hash_table(const gpuos_table_t *table) {
  static const uint64_t zero = 0;
  const char *bytes = (const char *)table;
  size_t at = offsetof(gpuos_table_t, hash), after = at + sizeof(zero);
  uint64_t hash = gpuos_hash_add(GPUOS_HASH_START, bytes, at);
  hash = gpuos_hash_add(hash, &zero, sizeof(zero));
  return gpuos_hash_add(hash, bytes + after, table->bytes - after);
}

static bool check_header(gos_check_t *check, const void *table, size_t bytes) {
  const gpuos_table_t *t = table;
  if (t == NULL || (uintptr_t)t % 16 != 0 || bytes < sizeof(*t))
    return gos_check_fail(check, GOS_CHECK_table, GPUOS_NONE,
                          "no table: %zu bytes, or not aligned to 16", bytes);
  if (t->magic != GPUOS_MAGIC)
    return gos_check_fail(check, GOS_CHECK_table, GPUOS_NONE, "magic is %08x", t->magic);
  if (t->version != GPUOS_ABI_VERSION)
    return gos_check_fail(check, GOS_CHECK_table, GPUOS_NONE, "version %u, this program reads %d",
                          t->version, GPUOS_ABI_VERSION);
  if (t->bytes < sizeof(*t) || t->bytes > bytes)
    return gos_check_fail(check, GOS_CHECK_table, GPUOS_NONE, "%llu bytes stated, %zu present",
                          (unsigned long long)t->bytes, bytes);
  if (t->hash != hash_table(t))
    return gos_check_fail(check, GOS_CHECK_table, GPUOS_NONE, "the hash does not match");
  check->table = t;
  return true;
}

// One section: where it must start at the earliest, moved on to its end.
static const void *locate(gos_check_t *check, const char *name, gpuos_span_t span, size_t size,
                          uint64_t *end) {
  uint64_t last = span.offset + span.count * (uint64_t)size;
  if (span.offset % 16 != 0 || span.offset < *end || last > check->table->bytes) {
    gos_check_fail(check, GOS_CHECK_table, GPUOS_NONE,
                   "section %s at %u with %u records is outside its place", name, span.offset,
                   span.count);
    return NULL;
  }
  *end = last;
  return (const char *)check->table + span.offset;
}

static bool check_sections(gos_check_t *check) {
  uint64_t end = sizeof(gpuos_table_t);
#define SECTION(span)                                                                              \
  ((check->span = locate(check, #span, check->table->span, sizeof(*check->span), &end)) != NULL)
  bool placed = SECTION(graphs) && SECTION(buffers) && SECTION(ops) && SECTION(operands) &&
                SECTION(code) && SECTION(tiles) && SECTION(wait_lists) && SECTION(waits) &&
                SECTION(counters) && SECTION(strings);
#undef SECTION
  if (!placed) return false;
  uint32_t chars = check->table->strings.count;
  if (chars == 0 || check->strings[0] != 0 || check->strings[chars - 1] != 0)
    return gos_check_fail(check, GOS_CHECK_table, GPUOS_NONE,
                          "the strings do not start with \"\" or do not end");
  return true;
}

// ---- records ------------------------------------------------------------------------------------

static bool in_range(uint32_t first, uint32_t count, uint32_t limit) {
  return first <= limit && count <= limit - first;
}

static bool check_graphs(gos_check_t *check) {
  const gpuos_table_t *t = check->table;
  uint32_t op = 0, tile = 0;
  for (uint32_t i = 0; i < t->graphs.count; i++) {
    const gpuos_graph_t *g = &check->graphs[i];
    if (g->name >= t->strings.count || g->live > 1 || g->first_op != op || g->first_tile != tile ||
        !in_range(op, g->op_count, t->ops.count) || !in_range(tile, g->tile_count, t->tiles.count))
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "graph %u: its name, live, or its run of operators or tiles", i);
    op += g->op_count;
    tile += g->tile_count;
  }
  if (op != t->ops.count || tile != t->tiles.count)
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                          "the graphs leave operators or tiles out");
  return true;
}

// Bytes of a buffer by its shape, or above the limit.
static uint64_t shape_bytes(const gpuos_buffer_t *b) {
  uint64_t bytes = b->role == GPUOS_WORKSPACE ? 1 : gpuos_dtype_bytes(b->dtype);
  for (int d = 0; d < b->rank; d++)
    if (b->shape[d] == 0) return 0;
  for (int d = 0; d < b->rank; d++) {
    if (b->shape[d] > GOS_CHECK_MAX_BYTES / bytes) return UINT64_MAX;
    bytes *= b->shape[d];
  }
  return bytes;
}

// Elements of both are those of one tensor, and each address is aligned.
static bool may_join(const gpuos_buffer_t *a, const gpuos_buffer_t *b) {
  return a->role == GPUOS_WEIGHT && b->role == GPUOS_WEIGHT && a->dtype == b->dtype &&
         a->bytes % GPUOS_BUFFER_ALIGNMENT == 0;
}

static bool check_buffers(gos_check_t *check) {
  const gpuos_table_t *t = check->table;
  if (t->buffers.count == 0 || t->value_count < t->buffers.count)
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE, "%u buffers, %u values",
                          t->buffers.count, t->value_count);
  uint64_t run_bytes = 0, run = 0; // of buffers joined so far
  for (uint32_t i = 0; i < t->buffers.count; i++) {
    const gpuos_buffer_t *b = &check->buffers[i];
    bool last = i + 1 == t->buffers.count;
    if (b->name >= t->strings.count || b->role >= GPUOS_ROLE_COUNT ||
        b->dtype >= GPUOS_DTYPE_COUNT || b->rank > GPUOS_RANK)
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "buffer %u: its name, role, dtype or rank", i);
    if ((b->role == GPUOS_WORKSPACE) != last)
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "buffer %u '%s': the last buffer, no other, is the workspace", i,
                            GOS_BUFFER_NAME(check, i));
    if (b->joined && (b->joined > 1 || i == 0 || !may_join(b - 1, b)))
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "buffer %u '%s' cannot be joined to the one before it", i,
                            GOS_BUFFER_NAME(check, i));
    if (b->bytes > GOS_CHECK_MAX_BYTES || b->bytes != shape_bytes(b))
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "buffer %u '%s': %llu bytes are not those of its shape", i,
                            GOS_BUFFER_NAME(check, i), (unsigned long long)b->bytes);
    run_bytes = b->joined ? run_bytes + b->bytes : b->bytes, run = b->joined ? run + 1 : 0;
    if (run_bytes > GOS_CHECK_MAX_BYTES || run >= GOS_CHECK_MAX_JOINED)
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "buffer %u '%s': too much is joined", i, GOS_BUFFER_NAME(check, i));
  }
  return true;
}

static bool check_operands(gos_check_t *check) {
  const gpuos_table_t *t = check->table;
  for (uint32_t i = 0; i < t->operands.count; i++) {
    const gpuos_operand_t *x = &check->operands[i];
    bool right = x->as < GPUOS_AS_COUNT && x->dtype < GPUOS_DTYPE_COUNT && x->writes <= 1 &&
                 x->buffer < t->buffers.count && x->value < t->value_count &&
                 (!x->writes || x->value >= t->buffers.count) && x->stamped + x->writes <= 1;
    for (int d = 0; d < GPUOS_DIMS; d++)
      right = right && (x->follows[d] < GPUOS_DIMS || x->follows[d] == GPUOS_ALL);
    if (!right)
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "operand %u: its as, dtype, writes, stamped, buffer, value or follows",
                            i);
  }
  return true;
}

// Cells of an operator's grid, or UINT64_MAX when they are more than a table may have.
static uint64_t count_cells(const gpuos_op_t *op) {
  uint64_t cells = 1;
  for (int d = 0; d < GPUOS_DIMS; d++) cells = op->extent[d] == 0 ? 0 : cells;
  for (int d = 0; d < GPUOS_DIMS && cells != 0; d++) {
    uint32_t grid = gpuos_op_grid(op, d);
    if (grid > GOS_CHECK_MAX_TILES / cells) return UINT64_MAX;
    cells *= grid;
  }
  return cells;
}

static bool check_op_record(gos_check_t *check, uint32_t i) {
  const gpuos_table_t *t = check->table;
  const gpuos_op_t *op = &check->ops[i];
  if (op->name >= t->strings.count || op->kind >= GPUOS_KIND_COUNT ||
      op->operand_count > GPUOS_MAX_OPERANDS || op->code_count > GPUOS_MAX_CODE ||
      !in_range(op->first_operand, op->operand_count, t->operands.count) ||
      !in_range(op->first_code, op->code_count, t->code.count))
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                          "operator %u: its name, kind, operands or code", i);
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (op->tile[d] == 0)
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "operator %u '%s': its tiles are empty in dimension %d", i,
                            GOS_OP_NAME(check, i), d);
  uint64_t cells = count_cells(op);
  if (cells > GOS_CHECK_MAX_TILES)
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE, "operator %u '%s': too many tiles",
                          i, GOS_OP_NAME(check, i));
  check->grids[i] = (uint32_t)cells;
  return true;
}

static bool check_ops(gos_check_t *check) {
  uint32_t count = check->table->ops.count;
  check->grids = calloc(count + (size_t)1, sizeof(*check->grids));
  if (check->grids == NULL)
    return gos_check_fail(check, GOS_CHECK_memory, GPUOS_NONE, "out of memory");
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (!check_op_record(check, i) || !gos_check_op(check, i)) return false;
    total += check->grids[i];
  }
  if (total > GOS_CHECK_MAX_TILES || check->table->tiles.count > GOS_CHECK_MAX_TILES)
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE, "more than %llu tiles",
                          GOS_CHECK_MAX_TILES);
  return true;
}

static bool check_waits(gos_check_t *check) {
  const gpuos_table_t *t = check->table;
  uint64_t total = 0;
  for (uint32_t i = 0; i < t->waits.count; i++)
    if (check->waits[i].counter >= t->counters.count)
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE, "wait %u: there is no counter %u",
                            i, check->waits[i].counter);
  for (uint32_t i = 0; i < t->wait_lists.count; i++) {
    const gpuos_wait_list_t *list = &check->wait_lists[i];
    if (!in_range(list->first, list->count, t->waits.count) || list->stamped > list->count ||
        (i == 0 && list->count != 0))
      return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE,
                            "wait list %u: outside the waits, or the first and not empty", i);
    total += list->count;
  }
  if (total > GOS_CHECK_MAX_WAITS)
    return gos_check_fail(check, GOS_CHECK_record, GPUOS_NONE, "more than %llu waits",
                          GOS_CHECK_MAX_WAITS);
  return true;
}

static bool check_tiles(gos_check_t *check) {
  const gpuos_table_t *t = check->table;
  for (uint32_t i = 0; i < t->tiles.count; i++) {
    const gpuos_tile_t *tile = &check->tiles[i];
    if (tile->op >= t->ops.count || tile->index >= check->grids[tile->op] ||
        tile->wait_list >= t->wait_lists.count ||
        (tile->signal != GPUOS_NONE && tile->signal >= t->counters.count))
      return gos_check_fail(check, GOS_CHECK_record, i,
                            "tile %u: its operator, index, wait list or signal", i);
  }
  return true;
}

// ---- coverage and budget ------------------------------------------------------------------------

// Marks every tile's cell; first[op] is the bit of the operator's cell 0.
static bool mark_cells(gos_check_t *check, const uint32_t *first, uint64_t *seen) {
  const gpuos_table_t *t = check->table;
  uint32_t i = 0;
  for (uint32_t g = 0; g < t->graphs.count; g++) {
    const gpuos_graph_t *graph = &check->graphs[g];
    for (; i < graph->first_tile + graph->tile_count; i++) {
      const gpuos_tile_t *tile = &check->tiles[i];
      if (tile->op < graph->first_op || tile->op - graph->first_op >= graph->op_count)
        return gos_check_fail(check, GOS_CHECK_coverage, i,
                              "tile %u: operator %u '%s' is not of graph %u", i, tile->op,
                              GOS_OP_NAME(check, tile->op), g);
      uint32_t bit = first[tile->op] + tile->index;
      if (seen[bit / 64] >> (bit % 64) & 1)
        return gos_check_fail(check, GOS_CHECK_coverage, i,
                              "tile %u: cell %u of operator %u '%s' a second time", i, tile->index,
                              tile->op, GOS_OP_NAME(check, tile->op));
      seen[bit / 64] |= 1ull << (bit % 64);
    }
  }
  return true;
}

static bool check_coverage(gos_check_t *check) {
  uint32_t ops = check->table->ops.count, total = 0;
  uint32_t *first = malloc((ops + (size_t)1) * sizeof(*first));
  for (uint32_t i = 0; first != NULL && i < ops; total += check->grids[i++]) first[i] = total;
  uint64_t *seen = calloc(total / 64 + (size_t)1, sizeof(*seen));
  bool covered = false;
  if (first == NULL || seen == NULL)
    gos_check_fail(check, GOS_CHECK_memory, GPUOS_NONE, "out of memory");
  else if (mark_cells(check, first, seen))
    covered = total == check->table->tiles.count ||
              gos_check_fail(check, GOS_CHECK_coverage, GPUOS_NONE,
                             "%u tiles for %u cells of the operators' grids",
                             check->table->tiles.count, total);
  free(first);
  free(seen);
  return covered;
}

static bool check_budget(gos_check_t *check) {
  const gpuos_table_t *t = check->table;
  if (t->budget_ns == 0)
    return gos_check_fail(check, GOS_CHECK_budget, GPUOS_NONE, "the budget is 0 ns");
  for (uint32_t i = 0; i < t->ops.count; i++)
    if (check->ops[i].bound_ns == 0 || check->ops[i].bound_ns > t->budget_ns)
      return gos_check_fail(check, GOS_CHECK_budget, GPUOS_NONE,
                            "operator %u '%s': a unit may take %u ns, the budget is %u ns", i,
                            GOS_OP_NAME(check, i), check->ops[i].bound_ns, t->budget_ns);
  return true;
}

bool gpuos_check(const void *table, size_t bytes, gpuos_check_report_t *out_report) {
  *out_report = (gpuos_check_report_t){.tile = GPUOS_NONE};
  gos_check_t check = {.report = out_report};
  bool safe = check_header(&check, table, bytes) && check_sections(&check) &&
              check_graphs(&check) && check_buffers(&check) && check_operands(&check) &&
              check_ops(&check) && check_waits(&check) && check_tiles(&check) &&
              check_coverage(&check) && check_budget(&check) && gos_check_progress(&check) &&
              gos_check_memory(&check);
  free(check.grids);
  return safe;
}
