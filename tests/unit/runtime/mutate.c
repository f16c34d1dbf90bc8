// mutate.c: breaks safe tables in every way we could think of and compares check with the oracle.
//
// A plain program: mutate [rounds [seed]]. Prints how many mutants of each sort were safe and
// unsafe; exits with 1 on the first false accept or false reject, after saying how to make it
// again. Deterministic in the seed.
#include "check.h"
#include "graphs.h"
#include "oracle.h"
#include "random_table.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

static uint32_t draw(uint32_t limit) { // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return limit == 0 ? (uint32_t)z : (uint32_t)(z % limit);
}
#define PICK(array) (&(array).at[draw((array).count)])

// A number near x, or one that tends to break arithmetic.
static uint32_t disturb(uint32_t x) {
  static const uint32_t nasty[] = {0,          1,          2,          3,
                                   255,        65536,      0x7fffffff, 0x80000000,
                                   0xfffffffe, 0xffffffff, 0x55555556, 0x40000000};
  switch (draw(5)) {
  case 0: return x + 1;
  case 1: return x - 1;
  case 2: return draw(2) ? x * 2 : x / 2;
  case 3: return draw(16);
  default: return nasty[draw(sizeof(nasty) / sizeof(*nasty))];
  }
}

// ---- waits and signals --------------------------------------------------------------------------

// Gives a tile its own copy of its wait list, with room for one more wait. The list may already be
// broken.
static gpuos_wait_list_t *own_list(gos_tables_t *t, gpuos_tile_t *tile) {
  uint32_t waits[64], n = t->wait_lists.at[tile->wait_list].count,
                      first = t->wait_lists.at[tile->wait_list].first;
  if (n >= 64 || first > t->waits.count || n > t->waits.count - first) n = 0;
  for (uint32_t i = 0; i < n; i++) waits[i] = t->waits.at[first + i].counter;
  waits[n] = n == 0 ? draw(t->counters.count) : waits[0];
  tile->wait_list = gos_tables_add_wait_list(t, waits, n + 1);
  gos_tables_settle(t);
  t->wait_lists.at[tile->wait_list].count = n;
  return &t->wait_lists.at[tile->wait_list];
}

static void drop_wait(gos_tables_t *t) {
  gpuos_wait_list_t *list = own_list(t, PICK(t->tiles));
  if (list->count == 0) return;
  t->waits.at[list->first + draw(list->count)] = t->waits.at[list->first + list->count - 1];
  list->count--;
}

static void drop_wait_of_all(gos_tables_t *t) {
  gpuos_wait_list_t *list = PICK(t->wait_lists);
  if (list->count != 0) list->count--;
}

static void double_wait(gos_tables_t *t) {
  gpuos_wait_list_t *list = own_list(t, PICK(t->tiles));
  if (list->count == 0) return;
  t->waits.at[list->first + list->count] = t->waits.at[list->first + draw(list->count)];
  list->count++;
}

static void add_wait(gos_tables_t *t) {
  gpuos_wait_list_t *list = own_list(t, PICK(t->tiles));
  gpuos_wait_t *wait = &t->waits.at[list->first + list->count++];
  wait->counter = draw(t->counters.count);
  gos_tables_settle(t);
}

static void shift_threshold(gos_tables_t *t) { PICK(t->waits)->threshold += draw(2) ? 1 : ~0u; }

static void shift_counter(gos_tables_t *t) {
  uint32_t number = draw(t->counters.count), *counter = &t->counters.at[number];
  *counter = disturb(*counter);
  if (draw(2) == 0) return;
  for (uint32_t i = 0; i < t->waits.count; i++)
    if (t->waits.at[i].counter == number) t->waits.at[i].threshold = *counter;
}

static void change_wait(gos_tables_t *t) {
  PICK(t->waits)->counter = draw(t->counters.count + draw(2));
  if (draw(4)) gos_tables_settle(t);
}

static void change_signal(gos_tables_t *t) {
  PICK(t->tiles)->signal = draw(4) ? draw(t->counters.count) : GPUOS_NONE;
  if (draw(4)) gos_tables_settle(t);
}

static void swap_signals(gos_tables_t *t) {
  gpuos_tile_t *a = PICK(t->tiles), *b = PICK(t->tiles);
  uint32_t signal = a->signal;
  a->signal = b->signal;
  b->signal = signal;
  gos_tables_settle(t);
}

static void split_counter(gos_tables_t *t) {
  gpuos_tile_t *tile = PICK(t->tiles);
  uint32_t old = tile->signal;
  tile->signal = gos_tables_add_counter(t);
  gpuos_tile_t *waiter = PICK(t->tiles); // one of those who wait for the old one may follow
  gpuos_wait_list_t *list = own_list(t, waiter);
  for (uint32_t i = 0; i < list->count; i++)
    if (t->waits.at[list->first + i].counter == old && draw(2))
      t->waits.at[list->first + list->count].counter = tile->signal;
  if (list->count != 0) list->count++;
  gos_tables_settle(t);
}

static void swap_wait_lists(gos_tables_t *t) {
  PICK(t->tiles)->wait_list = draw(t->wait_lists.count);
}

// Whoever reads some operand sees stamps, and some waits are for those alone.
static void stamp(gos_tables_t *t) {
  gpuos_wait_list_t *list = PICK(t->wait_lists);
  gpuos_operand_t *x = PICK(t->operands);
  if (list->count < 64) list->stamped = draw(list->count + 1);
  if (!x->writes) x->stamped = 1;
}

// ---- tiles --------------------------------------------------------------------------------------

static void swap_tiles(gos_tables_t *t) {
  uint32_t a = draw(t->tiles.count), b = draw(2) ? draw(t->tiles.count) : (a + 1) % t->tiles.count;
  gpuos_tile_t tile = t->tiles.at[a];
  t->tiles.at[a] = t->tiles.at[b];
  t->tiles.at[b] = tile;
}

static void move_tile(gos_tables_t *t) {
  uint32_t a = draw(t->tiles.count), b = draw(t->tiles.count);
  gpuos_tile_t tile = t->tiles.at[a];
  for (; a < b; a++) t->tiles.at[a] = t->tiles.at[a + 1];
  for (; a > b; a--) t->tiles.at[a] = t->tiles.at[a - 1];
  t->tiles.at[b] = tile;
}

static void swap_cells(gos_tables_t *t) {
  gpuos_tile_t *a = PICK(t->tiles), *b = PICK(t->tiles);
  if (a->op != b->op) return;
  uint32_t index = a->index;
  a->index = b->index;
  b->index = index;
}

static void change_tile(gos_tables_t *t) {
  gpuos_tile_t *tile = PICK(t->tiles);
  if (draw(2))
    tile->index = disturb(tile->index);
  else
    tile->op = disturb(tile->op);
}

static void cut_tiles(gos_tables_t *t) {
  gpuos_op_t *op = PICK(t->ops);
  op->tile[draw(4)] = draw(4) ? 1 + draw(8) : disturb(4);
}

// ---- operands -----------------------------------------------------------------------------------

static void shift_offset(gos_tables_t *t) {
  gpuos_operand_t *x = PICK(t->operands);
  uint32_t by = (1 + draw(12)) * (draw(8) ? gpuos_dtype_bytes(x->dtype) : 1);
  if (draw(2))
    x->offset_bytes += by;
  else
    x->offset_bytes -= by;
  if (draw(20) == 0) x->offset_bytes = ~0ull - draw(64);
}

static void alias_operand(gos_tables_t *t) {
  gpuos_operand_t *x = PICK(t->operands), *y = PICK(t->operands);
  x->offset_bytes = y->offset_bytes;
  if (draw(2)) x->buffer = y->buffer;
  if (draw(2) && !x->writes) x->value = y->value;
}

// Moves all views of one place of the workspace, as a planner's mistake would.
static void move_tensor(gos_tables_t *t) {
  gpuos_operand_t *x = PICK(t->operands);
  uint64_t from = x->offset_bytes, to = 4 * draw(64);
  uint32_t buffer = x->buffer, value = x->value;
  for (uint32_t i = 0; i < t->operands.count; i++)
    if (t->operands.at[i].buffer == buffer && t->operands.at[i].value == value &&
        t->operands.at[i].offset_bytes == from)
      t->operands.at[i].offset_bytes = to;
}

static void change_stride(gos_tables_t *t) {
  uint32_t *stride = &PICK(t->operands)->stride[draw(4)];
  *stride = draw(2) ? *stride + draw(9) - 4 : disturb(*stride);
}

static void change_extent(gos_tables_t *t) {
  gpuos_op_t *op = PICK(t->ops);
  uint32_t d = draw(4), now = disturb(op->extent[d]);
  if (draw(2)) op->extent[d] = now;
  for (uint32_t i = op->first_operand, n = 0; n < op->operand_count && i < t->operands.count;
       i++, n++) {
    gpuos_operand_t *x = &t->operands.at[i];
    for (int k = 0; k < 4; k++)
      if (x->follows[k] == d && op->extent[d] == now) x->extent[k] = now;
  }
  if (op->extent[d] != now) PICK(t->operands)->extent[draw(4)] = now;
}

static void change_value(gos_tables_t *t) {
  gpuos_operand_t *x = PICK(t->operands);
  x->value = draw(2) ? draw(t->header.value_count) : disturb(x->value);
}

static void rename_value(gos_tables_t *t) {
  uint32_t from = PICK(t->operands)->value, to = draw(t->header.value_count);
  for (uint32_t i = 0; i < t->operands.count; i++)
    if (t->operands.at[i].value == from) t->operands.at[i].value = to;
}

static void change_operand(gos_tables_t *t) {
  gpuos_operand_t *x = PICK(t->operands);
  switch (draw(5)) {
  case 0: x->as = (uint8_t)draw(GPUOS_AS_COUNT + 1); break;
  case 1: x->dtype = (uint8_t)draw(GPUOS_DTYPE_COUNT + 1); break;
  case 2: x->writes ^= (uint8_t)(1 + draw(2)); break;
  case 3: x->buffer = draw(t->buffers.count + 1); break;
  default: x->follows[draw(4)] = (uint8_t)(draw(3) ? draw(5) : GPUOS_ALL); break;
  }
}

static void swap_operands(gos_tables_t *t) {
  gpuos_operand_t *a = PICK(t->operands), *b = PICK(t->operands), x = *a;
  *a = *b;
  *b = x;
}

// ---- records ------------------------------------------------------------------------------------

static void change_bound(gos_tables_t *t) {
  if (draw(4) == 0)
    t->header.budget_ns = disturb(draw(2) ? 0 : 999);
  else
    PICK(t->ops)->bound_ns = draw(2) ? t->header.budget_ns + draw(3) : disturb(0);
}

static void change_count(gos_tables_t *t) {
  gpuos_op_t *op = PICK(t->ops);
  gpuos_graph_t *graph = PICK(t->graphs);
  switch (draw(10)) {
  case 0: op->operand_count = (uint16_t)disturb(op->operand_count); break;
  case 1: op->code_count = disturb(op->code_count); break;
  case 2: op->first_operand = disturb(op->first_operand); break;
  case 3: op->first_code = disturb(op->first_code); break;
  case 4: graph->tile_count = disturb(graph->tile_count); break;
  case 5: graph->op_count = disturb(graph->op_count); break;
  case 6: PICK(t->wait_lists)->count = disturb(1); break;
  case 7: PICK(t->wait_lists)->first = disturb(0); break;
  case 8: PICK(t->wait_lists)->stamped = disturb(1); break;
  default: t->header.value_count = disturb(t->buffers.count); break;
  }
}

static void change_op(gos_tables_t *t) {
  gpuos_op_t *op = PICK(t->ops);
  switch (draw(6)) {
  case 0: op->kind = (uint16_t)draw(GPUOS_KIND_COUNT + 1); break;
  case 1: op->slice = disturb(op->slice); break;
  case 2: op->park_bytes = disturb(op->park_bytes); break;
  case 3: t->header.park_bytes = disturb(op->park_bytes); break;
  case 4: op->name = disturb(op->name); break;
  default: op->params[draw(GPUOS_PARAMS)] = disturb(2); break;
  }
}

static void change_code(gos_tables_t *t) {
  if (t->code.count == 0) return;
  gpuos_code_t *code = PICK(t->code);
  switch (draw(3)) {
  case 0: code->op = (uint8_t)draw(GPUOS_CODE_COUNT + 1); break;
  case 1: code->a = (uint8_t)draw(6); break;
  default: code->b = (uint8_t)draw(8); break;
  }
}

static void change_buffer(gos_tables_t *t) {
  gpuos_buffer_t *b = PICK(t->buffers);
  switch (draw(6)) {
  case 0: b->role = (uint8_t)draw(GPUOS_ROLE_COUNT + 1); break;
  case 1: b->bytes = draw(2) ? b->bytes - 4 : (uint64_t)draw(0) << draw(33); break;
  case 2: b->rank = (uint8_t)draw(8); break;
  case 3: b->dtype = (uint8_t)draw(GPUOS_DTYPE_COUNT + 1); break;
  case 4: b->joined ^= draw(8) ? 1 : 2; break;
  default: b->bytes -= b->rank && b->shape[0] ? b->bytes / b->shape[0] : 0; b->shape[0]--;
  }
}

// Breaks nothing before the table is packed.
static void flip_bytes(gos_tables_t *t) { (void)t; }
static void flip_words(gos_tables_t *t) { (void)t; }

typedef struct sort {
  const char *name;
  void (*apply)(gos_tables_t *tables);
  uint32_t safe, unsafe, undecided;
} sort_t;

static sort_t sorts[] = {
#define SORT(name)                                                                                 \
  { #name, name, 0, 0, 0 }
    SORT(drop_wait),       SORT(drop_wait_of_all), SORT(double_wait),     SORT(add_wait),
    SORT(shift_threshold), SORT(shift_counter),    SORT(change_wait),     SORT(change_signal),
    SORT(swap_signals),    SORT(split_counter),    SORT(swap_wait_lists), SORT(swap_tiles),
    SORT(move_tile),       SORT(swap_cells),       SORT(change_tile),     SORT(cut_tiles),
    SORT(shift_offset),    SORT(alias_operand),    SORT(move_tensor),     SORT(change_stride),
    SORT(change_extent),   SORT(change_value),     SORT(rename_value),    SORT(change_operand),
    SORT(swap_operands),   SORT(change_bound),     SORT(change_count),    SORT(change_op),
    SORT(change_code),     SORT(change_buffer),    SORT(flip_bytes),      SORT(flip_words),
    SORT(stamp),           {NULL, NULL, 0, 0, 0},
#undef SORT
};
enum { SORTS = sizeof(sorts) / sizeof(*sorts) - 1 }; // the last is that of random tables

// Breaks the packed table where it lies; the hash is right again afterwards.
static void flip(gpuos_table_t *table, bool words) {
  uint64_t bytes = table->bytes;
  for (uint32_t i = 0, n = 1 + draw(3); i < n; i++) {
    uint64_t at = draw((uint32_t)bytes);
    if (words)
      ((uint32_t *)(void *)table)[at / 4] = disturb(((uint32_t *)(void *)table)[at / 4]);
    else
      ((uint8_t *)table)[at] ^= (uint8_t)(1 << draw(8));
  }
  if (table->bytes == bytes) gos_tables_seal(table);
}

// False on a false accept or a false reject.
static bool compare(const char *graph, sort_t *sort, gpuos_table_t *table, size_t bytes) {
  gpuos_check_report_t report;
  const char *why;
  bool accepted = gpuos_check(table, bytes, &report);
  gos_verdict_t verdict = gos_oracle(table, bytes, &why);
  sort->safe += verdict == GOS_SAFE;
  sort->unsafe += verdict == GOS_UNSAFE;
  sort->undecided += verdict == GOS_UNDECIDED;
  if (verdict == GOS_UNDECIDED || accepted == (verdict == GOS_SAFE)) return true;
  printf("FALSE %s: %s of %s: check says '%s: %s', the oracle '%s'\n",
         accepted ? "ACCEPT" : "REJECT", sort->name, graph, report.slug ? report.slug : "safe",
         report.message, why);
  return false;
}

static bool try_mutant(const gos_graph_t *graph, gos_tables_t *safe, sort_t *sort) {
  gos_tables_t *mutant = gos_tables_clone(safe);
  sort->apply(mutant);
  // Every fourth has a second defect, which the first may hide or mend.
  if (draw(4) == 0) sorts[draw(SORTS)].apply(mutant);
  gpuos_table_t *table = gos_tables_pack(mutant);
  size_t bytes = table->bytes;
  if (sort->apply == flip_bytes || sort->apply == flip_words)
    flip(table, sort->apply == flip_words);
  bool right = compare(graph->name, sort, table, bytes);
  free(table);
  gos_tables_destroy(mutant);
  return right;
}

static bool run_rounds(const gos_graph_t *graph, uint32_t graph_number, uint32_t rounds,
                       uint64_t seed) {
  gos_tables_t *safe = graph->build();
  bool right = true;
  for (uint32_t s = 0; s < SORTS && right; s++)
    for (uint32_t r = 0; r < rounds && right; r++) {
      state = seed + ((uint64_t)graph_number << 48) + ((uint64_t)s << 40) + ((uint64_t)r << 8);
      right = try_mutant(graph, safe, &sorts[s]);
      if (!right) printf("  graph %u, sort %u, round %u\n", graph_number, s, r);
    }
  gos_tables_destroy(safe);
  return right;
}

// Random tables, every second with a defect of its own.
static bool run_random(uint32_t rounds, uint64_t seed) {
  static sort_t random_table = {"random_table", NULL, 0, 0, 0};
  bool right = true;
  for (uint32_t r = 0; r < rounds && right; r++) {
    state = seed + (1ull << 60) + ((uint64_t)r << 8);
    gos_tables_t *t = gos_random_table(draw);
    if (draw(2) && t->waits.count != 0) sorts[draw(SORTS)].apply(t);
    gpuos_table_t *table = gos_tables_pack(t);
    right = compare("random", &random_table, table, table->bytes);
    if (!right) printf("  random, round %u\n", r);
    free(table);
    gos_tables_destroy(t);
  }
  sorts[SORTS] = random_table;
  return right;
}

int main(int argc, char **argv) {
  uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  bool right = true;
  for (uint32_t g = 0; g < GOS_GRAPH_COUNT; g++)
    right = run_rounds(&gos_graphs[g], g, rounds, seed) && right;
  right = run_random(rounds * 100, seed) && right;
  uint32_t safe = 0, unsafe = 0, undecided = 0;
  printf("%-18s %8s %8s %10s\n", "mutation", "safe", "unsafe", "undecided");
  for (uint32_t s = 0; s <= SORTS; s++) {
    printf("%-18s %8u %8u %10u\n", sorts[s].name, sorts[s].safe, sorts[s].unsafe,
           sorts[s].undecided);
    safe += sorts[s].safe, unsafe += sorts[s].unsafe, undecided += sorts[s].undecided;
  }
  printf("%-18s %8u %8u %10u\n", "all", safe, unsafe, undecided);
  return right ? 0 : 1;
}
