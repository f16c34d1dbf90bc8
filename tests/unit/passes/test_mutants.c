// Tables that the compiler made, broken as a wrong compiler would break them; check and the oracle
// must agree on every one.
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "compiled.h"
#include "oracle.h"
#include "tables.h"

enum { ROUNDS = 72 }; // mutants of each kind and graph: more than 10,000 in all

// ---- drawing ------------------------------------------------------------------------------------

static uint64_t state;

static uint32_t draw(uint32_t limit) { // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((z ^ (z >> 31)) % (limit ? limit : 1));
}
#define PICK(section) (&(section).at[draw((section).count)])

static uint32_t nudge(uint32_t x) { return draw(2) ? x + 1 : x - 1; }

// ---- a compiled table as growable arrays --------------------------------------------------------

#define UNPACK(to, table, type, section)                                                           \
  do {                                                                                             \
    (to)->section.count = (table)->section.count;                                                  \
    (to)->section.capacity = (table)->section.count + 1;                                           \
    (to)->section.at = malloc((to)->section.capacity * sizeof(type));                              \
    cr_assert_not_null((to)->section.at);                                                          \
    memcpy((to)->section.at, GPUOS_SECTION(table, type, section),                                  \
           (to)->section.count * sizeof(type));                                                    \
  } while (0)

static gos_tables_t *unpack(const gpuos_table_t *table) {
  gos_tables_t *t = calloc(1, sizeof *t);
  cr_assert_not_null(t);
  t->header = *table;
  UNPACK(t, table, gpuos_graph_t, graphs);
  UNPACK(t, table, gpuos_buffer_t, buffers);
  UNPACK(t, table, gpuos_op_t, ops);
  UNPACK(t, table, gpuos_operand_t, operands);
  UNPACK(t, table, gpuos_code_t, code);
  UNPACK(t, table, gpuos_tile_t, tiles);
  UNPACK(t, table, gpuos_wait_list_t, wait_lists);
  UNPACK(t, table, gpuos_wait_t, waits);
  UNPACK(t, table, uint32_t, counters);
  UNPACK(t, table, char, strings);
  return t;
}

// ---- waits and signals --------------------------------------------------------------------------

// A tile that waits; any, if none does.
static gpuos_tile_t *waiting_tile(gos_tables_t *t) {
  for (int i = 0; i < 64; i++) {
    gpuos_tile_t *tile = PICK(t->tiles);
    if (t->wait_lists.at[tile->wait_list].count != 0) return tile;
  }
  return PICK(t->tiles);
}

// Gives a tile a list of its own: the old one without wait `left_out`, then `extra` counters.
static void new_list(gos_tables_t *t, gpuos_tile_t *tile, uint32_t left_out, uint32_t extra,
                     uint32_t counter) {
  gpuos_wait_list_t old = t->wait_lists.at[tile->wait_list];
  uint32_t *counters = malloc((old.count + extra + 1) * sizeof *counters), n = 0;
  cr_assert_not_null(counters);
  for (uint32_t i = 0; i < old.count; i++)
    if (i != left_out) counters[n++] = t->waits.at[old.first + i].counter;
  for (uint32_t i = 0; i < extra; i++) counters[n++] = counter;
  tile->wait_list = gos_tables_add_wait_list(t, counters, n);
  gos_tables_settle(t);
  free(counters);
}

static void drop_wait(gos_tables_t *t) {
  gpuos_tile_t *tile = waiting_tile(t);
  new_list(t, tile, draw(t->wait_lists.at[tile->wait_list].count), 0, 0);
}

static void repeat_wait(gos_tables_t *t) {
  gpuos_tile_t *tile = waiting_tile(t);
  gpuos_wait_list_t list = t->wait_lists.at[tile->wait_list];
  if (list.count != 0) new_list(t, tile, GPUOS_NONE, 1, t->waits.at[list.first].counter);
}

static void more_waits(gos_tables_t *t) {
  if (t->counters.count == 0) return;
  new_list(t, PICK(t->tiles), GPUOS_NONE, 1, draw(t->counters.count));
}

static void other_wait(gos_tables_t *t) {
  if (t->counters.count == 0) return;
  gpuos_tile_t *tile = waiting_tile(t);
  new_list(t, tile, draw(t->wait_lists.at[tile->wait_list].count), 1, draw(t->counters.count));
}

static void wrong_threshold(gos_tables_t *t) {
  if (t->waits.count == 0) return;
  gpuos_wait_t *wait = PICK(t->waits);
  wait->threshold = nudge(wait->threshold);
}

// With its waits, so that they look right.
static void wrong_counter_total(gos_tables_t *t) {
  if (t->counters.count == 0) return;
  uint32_t number = draw(t->counters.count), total = nudge(t->counters.at[number]);
  t->counters.at[number] = total;
  for (uint32_t i = 0; i < t->waits.count && draw(4); i++)
    if (t->waits.at[i].counter == number) t->waits.at[i].threshold = total;
}

static void lost_signal(gos_tables_t *t) {
  PICK(t->tiles)->signal = GPUOS_NONE;
  if (draw(4)) gos_tables_settle(t);
}

static void swapped_signals(gos_tables_t *t) {
  gpuos_tile_t *a = PICK(t->tiles), *b = PICK(t->tiles);
  uint32_t signal = a->signal;
  a->signal = b->signal, b->signal = signal;
  gos_tables_settle(t);
}

static void wrong_wait_list(gos_tables_t *t) {
  PICK(t->tiles)->wait_list = draw(t->wait_lists.count);
}

// ---- tiles --------------------------------------------------------------------------------------

static void swapped_tiles(gos_tables_t *t) {
  uint32_t a = draw(t->tiles.count), b = draw(2) ? draw(t->tiles.count) : (a + 1) % t->tiles.count;
  gpuos_tile_t tile = t->tiles.at[a];
  t->tiles.at[a] = t->tiles.at[b], t->tiles.at[b] = tile;
}

static void moved_tile(gos_tables_t *t) {
  uint32_t a = draw(t->tiles.count), b = draw(t->tiles.count);
  gpuos_tile_t tile = t->tiles.at[a];
  for (; a < b; a++) t->tiles.at[a] = t->tiles.at[a + 1];
  for (; a > b; a--) t->tiles.at[a] = t->tiles.at[a - 1];
  t->tiles.at[b] = tile;
}

static void repeated_tile(gos_tables_t *t) {
  uint32_t a = draw(t->tiles.count);
  t->tiles.at[a] = t->tiles.at[(a + 1) % t->tiles.count];
  if (draw(2)) gos_tables_settle(t);
}

static void wrong_cell(gos_tables_t *t) {
  gpuos_tile_t *tile = PICK(t->tiles);
  tile->index = draw(2) ? nudge(tile->index) : draw(16);
}

// ---- places and values --------------------------------------------------------------------------

static void shifted_operand(gos_tables_t *t) {
  gpuos_operand_t *x = PICK(t->operands);
  uint64_t by = (uint64_t)gpuos_dtype_bytes(x->dtype) << draw(10);
  x->offset_bytes += draw(2) ? by : -by;
}

// A planner's mistake: a whole tensor of the workspace lies where another one does.
static void aliased_tensor(gos_tables_t *t) {
  uint32_t workspace = t->buffers.count - 1;
  gpuos_operand_t *x = NULL, *y = NULL;
  for (int i = 0; i < 64 && (!x || x->buffer != workspace); i++) x = PICK(t->operands);
  for (int i = 0; i < 64 && (!y || y->buffer != workspace || y->value == x->value); i++)
    y = PICK(t->operands);
  uint64_t by = y->offset_bytes - x->offset_bytes;
  uint32_t value = x->value;
  for (uint32_t i = 0; i < t->operands.count; i++)
    if (t->operands.at[i].buffer == workspace && t->operands.at[i].value == value)
      t->operands.at[i].offset_bytes += by;
}

static void wrong_buffer(gos_tables_t *t) { PICK(t->operands)->buffer = draw(t->buffers.count); }

static void wrong_value(gos_tables_t *t) {
  PICK(t->operands)->value = draw(t->header.value_count + draw(2));
}

static void merged_values(gos_tables_t *t) {
  uint32_t from = PICK(t->operands)->value, to = PICK(t->operands)->value;
  for (uint32_t i = 0; i < t->operands.count; i++)
    if (t->operands.at[i].value == from) t->operands.at[i].value = to;
}

static void wrong_stride(gos_tables_t *t) {
  uint32_t *stride = &PICK(t->operands)->stride[draw(GPUOS_DIMS)];
  *stride = draw(2) ? nudge(*stride) : *stride * 2;
}

static void wrong_follows(gos_tables_t *t) {
  PICK(t->operands)->follows[draw(GPUOS_DIMS)] = (uint8_t)(draw(3) ? draw(4) : GPUOS_ALL);
}

static void short_buffer(gos_tables_t *t) {
  gpuos_buffer_t *buffer = PICK(t->buffers);
  if (buffer->rank == 0 || buffer->shape[0] < 2) return;
  buffer->bytes -= buffer->bytes / buffer->shape[0];
  buffer->shape[0]--;
}

static void wrong_role(gos_tables_t *t) {
  PICK(t->buffers)->role = (uint8_t)draw(GPUOS_ROLE_COUNT);
}

// ---- operators ----------------------------------------------------------------------------------

static void wrong_tile_shape(gos_tables_t *t) {
  uint32_t *tile = &PICK(t->ops)->tile[draw(GPUOS_DIMS)];
  *tile = draw(2) ? nudge(*tile) : *tile * 2;
}

static void wrong_slice(gos_tables_t *t) {
  gpuos_op_t *op = PICK(t->ops);
  op->slice = draw(2) ? op->slice / 2 : draw(2) ? op->slice + 64 : 64;
}

static void wrong_extent(gos_tables_t *t) {
  gpuos_op_t *op = PICK(t->ops);
  uint32_t d = draw(GPUOS_DIMS), now = nudge(op->extent[d]);
  for (uint32_t i = 0; i < op->operand_count; i++)
    for (int k = 0; k < GPUOS_DIMS; k++) {
      gpuos_operand_t *x = &t->operands.at[op->first_operand + i];
      if (x->follows[k] == d && draw(8)) x->extent[k] = now;
    }
  if (draw(8)) op->extent[d] = now;
}

static void over_budget(gos_tables_t *t) {
  if (draw(4) == 0)
    t->header.budget_ns -= 1 + draw(20000);
  else
    PICK(t->ops)->bound_ns = t->header.budget_ns + draw(3);
}

static void wrong_park(gos_tables_t *t) {
  uint32_t *bytes = draw(2) ? &PICK(t->ops)->park_bytes : &t->header.park_bytes;
  *bytes = draw(2) ? *bytes / 2 : *bytes + 4;
}

static void wrong_param(gos_tables_t *t) {
  uint32_t *param = &PICK(t->ops)->params[draw(GPUOS_PARAMS)];
  *param = draw(2) ? nudge(*param) : draw(64);
}

static void wrong_count(gos_tables_t *t) {
  gpuos_op_t *op = PICK(t->ops);
  gpuos_graph_t *graph = PICK(t->graphs);
  switch (draw(7)) {
  case 0: op->operand_count = (uint16_t)nudge(op->operand_count); break;
  case 1: op->code_count = nudge(op->code_count); break;
  case 2: op->first_operand = nudge(op->first_operand); break;
  case 3: op->first_code = nudge(op->first_code); break;
  case 4: graph->tile_count = nudge(graph->tile_count); break;
  case 5: graph->first_op = nudge(graph->first_op); break;
  default: t->header.value_count = draw(t->header.value_count); break;
  }
}

typedef struct kind {
  const char *name;
  void (*apply)(gos_tables_t *tables);
  uint32_t safe, unsafe, undecided;
} kind_t;

static kind_t kinds[] = {
#define KIND(name)                                                                                 \
  { #name, name, 0, 0, 0 }
    KIND(drop_wait),       KIND(repeat_wait),         KIND(more_waits),       KIND(other_wait),
    KIND(wrong_threshold), KIND(wrong_counter_total), KIND(lost_signal),      KIND(swapped_signals),
    KIND(wrong_wait_list), KIND(swapped_tiles),       KIND(moved_tile),       KIND(repeated_tile),
    KIND(wrong_cell),      KIND(shifted_operand),     KIND(aliased_tensor),   KIND(wrong_buffer),
    KIND(wrong_value),     KIND(merged_values),       KIND(wrong_stride),     KIND(wrong_follows),
    KIND(short_buffer),    KIND(wrong_role),          KIND(wrong_tile_shape), KIND(wrong_slice),
    KIND(wrong_extent),    KIND(over_budget),         KIND(wrong_park),       KIND(wrong_param),
    KIND(wrong_count),
#undef KIND
};
enum { KINDS = sizeof kinds / sizeof *kinds };

// ---- judging ------------------------------------------------------------------------------------

static void judge(kind_t *kind, const gpuos_table_t *table, uint32_t round) {
  gpuos_check_report_t report;
  const char *why;
  bool accepted = gpuos_check(table, table->bytes, &report);
  gos_verdict_t verdict = gos_oracle(table, table->bytes, &why);
  kind->safe += verdict == GOS_SAFE;
  kind->unsafe += verdict == GOS_UNSAFE;
  kind->undecided += verdict == GOS_UNDECIDED;
  if (verdict == GOS_UNDECIDED) return;
  cr_expect(accepted == (verdict == GOS_SAFE),
            "false %s of %s, round %u: check '%s: %s', oracle '%s'", accepted ? "accept" : "reject",
            kind->name, round, report.slug ? report.slug : "safe", report.message, why);
}

static void mutate(gos_tables_t *safe) {
  for (uint32_t k = 0; k < KINDS; k++)
    for (uint32_t r = 0; r < ROUNDS; r++) {
      state = ((uint64_t)k << 32) + ((uint64_t)r << 8);
      gos_tables_t *mutant = gos_tables_clone(safe);
      kinds[k].apply(mutant);
      if (r % 4 == 3) kinds[draw(KINDS)].apply(mutant); // two defects may hide or mend each other
      gpuos_table_t *table = gos_tables_pack(mutant);
      judge(&kinds[k], table, r);
      free(table);
      gos_tables_destroy(mutant);
    }
}

static void print_counts(const char *name, const gos_tables_t *t) {
  printf("%s: %u operators, %u tiles, %u counters, %u waits\n", name, t->ops.count, t->tiles.count,
         t->counters.count, t->waits.count);
  kind_t all = {"all", NULL, 0, 0, 0};
  for (uint32_t k = 0; k < KINDS; k++) {
    printf("  %-20s %4u safe %4u unsafe %4u undecided\n", kinds[k].name, kinds[k].safe,
           kinds[k].unsafe, kinds[k].undecided);
    all.safe += kinds[k].safe, all.unsafe += kinds[k].unsafe, all.undecided += kinds[k].undecided;
  }
  printf("  %-20s %4u safe %4u unsafe %4u undecided\n", all.name, all.safe, all.unsafe,
         all.undecided);
  fflush(stdout);
  cr_expect(all.unsafe > all.safe, "most mutants break something");
  cr_expect(all.undecided * 10 < all.safe + all.unsafe, "the oracle judges nine of ten");
}

static void try_models(const char *name, const char *const *models, size_t count,
                       const char *budget_us) {
  gpuos_table_t *table = gos_compiled(models, count, budget_us);
  cr_assert_not_null(table);
  const char *why = "";
  cr_assert(gos_oracle(table, table->bytes, &why) == GOS_SAFE, "%s as compiled: %s", name, why);
  gos_tables_t *safe = unpack(table);
  free(table);
  // Whole again, it is the same table: what the mutants break is what the compiler wrote.
  gpuos_table_t *same = gos_tables_pack(safe);
  gpuos_check_report_t report;
  cr_assert(gpuos_check(same, same->bytes, &report), "%s: %s", name, report.message);
  free(same);
  mutate(safe);
  print_counts(name, safe);
  gos_tables_destroy(safe);
}

// ---- the graphs ---------------------------------------------------------------------------------

#define HEAD(name) "gpuos: 1\nname: " name "\nclass: background\n"

static const char gemm[] =
    HEAD("gemm") "tensors:\n"
                 "  x: {shape: [32, 200], dtype: f32, role: input}\n"
                 "  w: {shape: [32, 200], dtype: f32, role: weight}\n"
                 "  b: {shape: [32], dtype: f32, role: weight}\n"
                 "  r: {shape: [32, 32], dtype: f32, role: input}\n"
                 "  y: {shape: [32, 32], dtype: bf16, role: output}\n"
                 "ops:\n"
                 "  - matmul: {x: x, w: w, transpose_w: true, bias: b, out: h}\n"
                 "  - map: {expr: \"gelu(h) * r\", h: h, r: r, out: g}\n"
                 "  - matmul: {x: g, w: r, dtype: bf16, out: y}\n";

static const char decoder[] =
    HEAD("decoder") "tensors:\n"
                    "  token: {shape: [2], dtype: i32, role: input}\n"
                    "  pos: {shape: [2], dtype: i32, role: input}\n"
                    "  next: {shape: [2], dtype: i32, role: output}\n"
                    "  cache: {kind: paged_kv, layers: 2, kv_heads: 1, head_dim: 4, context: 512, "
                    "sequences: 2,\n"
                    "          page_size: 64, dtype: bf16, role: state}\n"
                    "  e: {shape: [20, 8], dtype: bf16, role: weight}\n"
                    "  \"n.{i}\": {shape: [8], dtype: bf16, role: weight, repeat: 4}\n"
                    "  \"q.{i}\": {shape: [8, 8], dtype: bf16, role: weight, repeat: 2}\n"
                    "  \"k.{i}\": {shape: [4, 8], dtype: bf16, role: weight, repeat: 2}\n"
                    "  \"o.{i}\": {shape: [8, 8], dtype: bf16, role: weight, repeat: 2}\n"
                    "  \"g.{i}\": {shape: [12, 8], dtype: bf16, role: weight, repeat: 2}\n"
                    "  \"u.{i}\": {shape: [12, 8], dtype: bf16, role: weight, repeat: 2}\n"
                    "  \"d.{i}\": {shape: [8, 12], dtype: bf16, role: weight, repeat: 2}\n"
                    "ops:\n"
                    "  - embedding: {ids: token, table: e, out: x}\n"
                    "  - repeat: 2\n"
                    "    index: i\n"
                    "    ops:\n"
                    "      - rmsnorm: {x: x, weight: \"n.{i}\", out: h}\n"
                    "      - matmul: {x: h, w: \"q.{i}\", transpose_w: true, out: q}\n"
                    "      - matmul: {x: h, w: \"k.{i}\", transpose_w: true, out: k}\n"
                    "      - rope: {x: q, pos: pos, head_dim: 4, out: q}\n"
                    "      - attention: {q: q, k: k, v: k, cache: cache, layer: i, pos: pos, "
                    "head_dim: 4, out: a}\n"
                    "      - matmul: {x: a, w: \"o.{i}\", transpose_w: true, add: x, out: x}\n"
                    "      - rmsnorm: {x: x, weight: n.2, out: h}\n"
                    "      - matmul: {x: h, w: \"g.{i}\", transpose_w: true, out: g}\n"
                    "      - matmul: {x: h, w: \"u.{i}\", transpose_w: true, out: u}\n"
                    "      - map: {expr: \"silu(g) * u\", g: g, u: u, out: f}\n"
                    "      - matmul: {x: f, w: \"d.{i}\", transpose_w: true, add: x, out: x}\n"
                    "  - rmsnorm: {x: x, weight: n.3, out: h}\n"
                    "  - matmul: {x: h, w: e, transpose_w: true, dtype: f32, out: l}\n"
                    "  - argmax: {x: l, out: next}\n";

static const char parts[] =
    HEAD("parts") "tensors:\n"
                  "  x: {shape: [20, 24], dtype: f32, role: input}\n"
                  "  w: {shape: [48, 20], dtype: f32, role: weight}\n"
                  "  y: {shape: [20, 20], dtype: f32, role: output}\n"
                  "  z: {shape: [24, 20], dtype: f32, role: output}\n"
                  "ops:\n"
                  "  - softmax: {x: x, out: a}\n"
                  "  - map: {expr: \"a * 2 - x\", a: a, x: x, out: b}\n"
                  "  - concat: {inputs: [a, b], axis: 1, out: c}\n"
                  "  - matmul: {x: c, w: w, out: y}\n"
                  "  - transpose: {x: \"c[:, 12:36]\", perm: [1, 0], out: t}\n"
                  "  - reshape: {x: t, shape: [20, 24], out: r}\n"
                  "  - map: {expr: \"r + b\", r: r, b: b, out: s}\n"
                  "  - transpose: {x: s, perm: [1, 0], out: z}\n";

static const char prefill[] =
    HEAD("prefill") "tensors:\n"
                    "  x: {shape: [40, 16], dtype: bf16, role: input}\n"
                    "  pos: {shape: [40], dtype: i32, role: input}\n"
                    "  n: {shape: [16], dtype: bf16, role: weight}\n"
                    "  q: {shape: [16, 16], dtype: bf16, role: weight}\n"
                    "  k: {shape: [8, 16], dtype: bf16, role: weight}\n"
                    "  o: {shape: [16, 16], dtype: bf16, role: weight}\n"
                    "  g: {shape: [24, 16], dtype: bf16, role: weight}\n"
                    "  u: {shape: [24, 16], dtype: bf16, role: weight}\n"
                    "  d: {shape: [16, 24], dtype: bf16, role: weight}\n"
                    "  y: {shape: [40, 16], dtype: bf16, role: output}\n"
                    "ops:\n"
                    "  - rmsnorm: {x: x, weight: n, out: h}\n"
                    "  - matmul: {x: h, w: q, transpose_w: true, out: a}\n"
                    "  - matmul: {x: h, w: k, transpose_w: true, out: b}\n"
                    "  - rope: {x: a, pos: pos, head_dim: 8, out: a}\n"
                    "  - rope: {x: b, pos: pos, head_dim: 8, out: b}\n"
                    "  - attention: {q: a, k: b, v: b, head_dim: 8, out: c}\n"
                    "  - matmul: {x: c, w: o, transpose_w: true, add: x, out: e}\n"
                    "  - rmsnorm: {x: e, weight: n, out: h}\n"
                    "  - matmul: {x: h, w: g, transpose_w: true, out: i}\n"
                    "  - matmul: {x: h, w: u, transpose_w: true, out: j}\n"
                    "  - map: {expr: \"silu(i) * j\", i: i, j: j, out: f}\n"
                    "  - matmul: {x: f, w: d, transpose_w: true, add: e, out: y}\n";

static const char rows[] = HEAD("rows") "tensors:\n"
                                        "  in: {shape: [24, 200], dtype: bf16, role: input}\n"
                                        "  gain: {shape: [200], dtype: bf16, role: weight}\n"
                                        "  best: {shape: [24], dtype: i32, role: output}\n"
                                        "  second: {shape: [24], dtype: i32, role: output}\n"
                                        "ops:\n"
                                        "  - rmsnorm: {x: in, weight: gain, out: h}\n"
                                        "  - softmax: {x: h, out: p}\n"
                                        "  - argmax: {x: p, out: best}\n"
                                        "  - softmax: {x: p, out: r}\n"
                                        "  - argmax: {x: r, out: second}\n";

// x is also w: the oracle takes small buffers only.
static const char long_k[] =
    HEAD("long-k") "tensors:\n"
                   "  x: {shape: [16, 768], dtype: f32, role: input}\n"
                   "  s: {shape: [], dtype: f32, role: input}\n"
                   "  y: {shape: [16, 16], dtype: bf16, role: output}\n"
                   "ops:\n"
                   "  - matmul: {x: x, w: x, transpose_w: true, x_scale: s, dtype: bf16, out: y}\n";

Test(mutants, sliced_gemm, .timeout = 120) {
  try_models("sliced gemm", (const char *const[]){gemm}, 1, "3");
}
Test(mutants, decoder_with_cache, .timeout = 120) {
  try_models("decoder", (const char *const[]){decoder}, 1, "20");
}
Test(mutants, concat_and_slice, .timeout = 120) {
  try_models("parts", (const char *const[]){parts}, 1, "20");
}
Test(mutants, prefill_block, .timeout = 120) {
  try_models("prefill", (const char *const[]){prefill}, 1, "20");
}
Test(mutants, split_gemm, .timeout = 120) {
  try_models("split gemm", (const char *const[]){long_k}, 1, "20");
}
Test(mutants, rows, .timeout = 120) { try_models("rows", (const char *const[]){rows}, 1, "20"); }
Test(mutants, two_graphs, .timeout = 120) {
  try_models("two graphs", (const char *const[]){parts, rows}, 2, "20");
}
