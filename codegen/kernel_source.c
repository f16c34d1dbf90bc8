// kernel_source.c: plans as a short CUDA C++ file over the headers in device/.
//
// Operators that need the same code share one instantiation: its text is what makes them the same.
// What the text says is what code generation depends on: formats, tile shapes, how operands lie,
// the expression. Extents, strides and addresses come from the schedule table at run time.
#include <string.h>

#include "codegen.h"
#include "instance.h"

enum { COLUMNS = 100 }; // of generated text

typedef struct instance {
  const char *kind, *text; // text: the struct's members
  uint32_t number;         // among those of its kind
  GOS_ARRAY(uint32_t) ops;
} instance_t;

typedef struct source {
  const gos_plan_t *plan;
  gos_arena_t *arena;
  GOS_ARRAY(instance_t) instances;
  bool failed;
} source_t;

// ---- instantiations -----------------------------------------------------------------------------

static bool has_tiles(const gos_op_t *op) {
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (op->op.extent[d] == 0) return false;
  return true;
}

static instance_t *find_instance(source_t *source, const char *kind, const char *text) {
  uint32_t number = 0;
  for (size_t i = 0; i < source->instances.count; i++) {
    instance_t *instance = &source->instances.at[i];
    if (strcmp(instance->kind, kind)) continue;
    if (!strcmp(instance->text, text)) return instance;
    number++;
  }
  instance_t *instance = gos_push(source->arena, &source->instances);
  *instance = (instance_t){.kind = kind, .text = text, .number = number};
  return instance;
}

static bool runs(source_t *source, const gos_op_t *op) {
  bool can = gos_device_can_run(source->plan, op);
  source->failed |= !can;
  return can;
}

static const gos_device_kind_t *find_kind(const gos_plan_t *plan, const gos_op_t *op) {
  if (op->streams) return &gos_device_stream;
  if (gos_op_wgmma_tiled(plan->target, op)) return &gos_device_wgmma;
  if (gos_op_rings(plan, op)) return &gos_device_attention_ring;
  return &gos_device_kinds[op->op.kind];
}

static void collect(source_t *source, uint32_t number) {
  const gos_op_t *op = &source->plan->ops.at[number];
  if (op->op.kind >= GPUOS_KIND_COUNT) GOS_BUG("operator kind %u", op->op.kind);
  if (!has_tiles(op) || !runs(source, op)) return;
  const gos_device_kind_t *kind = find_kind(source->plan, op);
  gos_text_t text = {.arena = source->arena};
  kind->add(&text, op);
  *gos_push(source->arena, &find_instance(source, kind->name, text.at)->ops) = number;
}

static bool is_wgmma(const instance_t *instance) {
  return !strcmp(instance->kind, gos_device_wgmma.name);
}
static bool is_stream(const instance_t *instance) {
  return !strcmp(instance->kind, gos_device_stream.name);
}
static bool has_ring(const instance_t *instance) {
  return is_stream(instance) || is_wgmma(instance);
}
// Attention whose keys stream waits and signals as other units do.
static bool is_loaded(const instance_t *instance) {
  return has_ring(instance) || !strcmp(instance->kind, gos_device_attention_ring.name);
}
static bool is_plain(const instance_t *instance) { return !has_ring(instance); }

static bool has(const source_t *source, bool (*is)(const instance_t *instance)) {
  for (size_t i = 0; i < source->instances.count; i++)
    if (is(&source->instances.at[i])) return true;
  return false;
}

// ---- the file -----------------------------------------------------------------------------------

// Of the workspace, each of whose elements may have a stamped word twice its size: device/stamp.cuh.
static uint64_t stamped_bytes(const gos_plan_t *plan) {
  return plan->stamps ? plan->workspace_bytes : 0;
}

static void add_includes(gos_text_t *text, const source_t *source) {
  gos_smem_t smem = gos_plan_smem(source->plan);
  gos_text_add(
      text,
      "enum {\n  GPUOS_ROLE = %d,\n  GPUOS_CTAS = %d, // of a cluster\n  GPUOS_STREAMS = %d,\n  "
      "GPUOS_SMEM_LIMIT = %u, // bytes of "
      "one CTA\n  GPUOS_STATIC_SMEM = %u,\n  "
      "GPUOS_PLAIN_SMEM = %u,\n  GPUOS_SLOTS = %u,\n  GPUOS_OPERANDS = %u,\n  GPUOS_OPS = "
      "%zu,\n  GPUOS_STAMPED_BYTES = %llu,\n};\n\n",
      source->plan->role, has(source, is_wgmma) ? 2 : 1, has(source, is_stream),
      source->plan->target->smem_bytes, smem.kernel_bytes, smem.plain_bytes, smem.slots,
      smem.operands, source->plan->ops.count, (unsigned long long)stamped_bytes(source->plan));
  for (size_t i = 0; i < source->instances.count; i++) // #pragma once takes care of repetitions
    if (source->instances.at[i].number == 0)
      gos_text_add(text, "#include \"%s.cuh\"\n", source->instances.at[i].kind);
  gos_text_add(text, "#include \"kernel.cuh\"\n");
}

static void add_instance(gos_text_t *text, const source_t *source, const instance_t *instance) {
  const gos_op_t *first = &source->plan->ops.at[instance->ops.at[0]];
  gos_text_add(text, "\n// %s", first->name ? first->name : instance->kind);
  if (instance->ops.count > 1) gos_text_add(text, " and %zu more", instance->ops.count - 1);
  gos_text_add(text, "\nstruct %s_%u {\n%s};\n", instance->kind, instance->number, instance->text);
}

static const char *unit_name(const source_t *source, const instance_t *instance) {
  return gos_format(source->arena, "gpuos_%s<%s_%u>", instance->kind, instance->kind,
                    instance->number);
}

// "FUNCTION<unit, unit...>()" of all instances.
static const char *over_units(const source_t *source, const char *function) {
  gos_text_t text = {.arena = source->arena};
  const char *comma = "";
  gos_text_add(&text, "%s<", function);
  for (size_t i = 0; i < source->instances.count; i++) {
    gos_text_add(&text, "%s\n      %s", comma, unit_name(source, &source->instances.at[i]));
    comma = ",";
  }
  gos_text_add(&text, ">()");
  return text.at;
}

// Results of a tile whose weights stream, at most: each has a partial sum of every warp.
static uint32_t most_results(const gos_plan_t *plan) {
  uint32_t most = 0;
  for (size_t i = 0; i < plan->ops.count; i++) {
    const gos_op_t *op = &plan->ops.at[i];
    uint32_t weights = gos_op_find(op, GPUOS_AS_W1) ? 2 : 1;
    uint32_t results = weights * op->op.tile[1] * op->op.tile[2];
    if (op->streams && results > most) most = results;
  }
  return most;
}

static void add_units(gos_text_t *text, const source_t *source) {
  gos_text_add(text, "  enum { UNIT_BYTES = %s };\n", over_units(source, "gpuos_most_smem"));
  gos_text_add(text, "  enum { SUM_BYTES = %u * GPUOS_WARPS * 4 };\n", most_results(source->plan));
  gos_text_add(text, "  enum { SMEM_BYTES = %s };\n",
               has(source, is_stream)          ? "gpuos_stream_smem(UNIT_BYTES, SUM_BYTES)"
               : source->plan->role == GOS_JOB ? "GPUOS_STATIC_SMEM + 1024 + UNIT_BYTES"
                                               : "UNIT_BYTES");
}

// Weights of the same shape, at the same places among the operands.
static bool load_alike(const gos_op_t *a, const gos_op_t *b) {
  static const gpuos_as_t roles[] = {GPUOS_AS_W0, GPUOS_AS_W1};
  if (a->op.extent[1] != b->op.extent[1] || a->op.extent[3] != b->op.extent[3]) return false;
  for (int i = 0; i < 2; i++) {
    const gpuos_operand_t *x = gos_op_find(a, roles[i]), *y = gos_op_find(b, roles[i]);
    if (!x != !y || (x && (x - a->operands != y - b->operands || x->dtype != y->dtype)))
      return false;
  }
  return true;
}
// The first unit whose weights the loader loads by the same code: one for all of a shape, since code that was not run for
// a layer has to come from the L2.
static uint32_t loaded_as(const source_t *source, uint32_t unit) {
  const instance_t *all = source->instances.at;
  const gos_op_t *ops = source->plan->ops.at;
  for (uint32_t i = 0; i < unit && is_stream(&all[unit]); i++)
    if (is_stream(&all[i]) && load_alike(&ops[all[i].ops.at[0]], &ops[all[unit].ops.at[0]]))
      return i;
  return unit;
}

static void add_load(gos_text_t *text, const source_t *source) {
  gos_text_add(text, "  GPUOS_DEVICE void load(gpuos_loader &loader, uint32_t unit) {\n"
                     "    switch (unit) {\n");
  for (uint32_t i = 0; i < source->instances.count; i++) {
    if (!is_loaded(&source->instances.at[i]) || loaded_as(source, i) != i) continue;
    for (uint32_t k = i; k < source->instances.count; k++)
      if (is_loaded(&source->instances.at[k]) && loaded_as(source, k) == i)
        gos_text_add(text, "    case %u:\n", k);
    gos_text_add(text, "      return %s::load(loader);\n",
                 unit_name(source, &source->instances.at[i]));
  }
  gos_text_add(text, "    default: return;\n    }\n  }\n");
}

// One member of the program: a switch over units, of those that `is` says; what comes before the unit's
// name, and after it.
static void add_switch(gos_text_t *text, const source_t *source, const char *head,
                       bool (*is)(const instance_t *instance), const char *before,
                       const char *after, const char *otherwise) {
  gos_text_add(text, "  %s {\n    switch (unit) {\n", head);
  for (uint32_t i = 0; i < source->instances.count; i++)
    if (is(&source->instances.at[i]))
      gos_text_add(text, "    case %u: return %s%s%s;\n", i, before,
                   unit_name(source, &source->instances.at[i]), after);
  gos_text_add(text, "    default: return %s;\n    }\n  }\n", otherwise);
}

// How the workers run a unit: one that loads by itself, or of two kinds with a ring.
static void add_run(gos_text_t *text, const source_t *source) {
  add_switch(text, source, "GPUOS_DEVICE gpuos_outcome run_plain(uint32_t turn, uint32_t unit)",
             is_plain, "gpuos_run<", ">(turn)", "GPUOS_DONE");
  if (has(source, is_wgmma))
    add_switch(text, source,
               "GPUOS_DEVICE gpuos_outcome run_wgmma(const gpuos_ctx &ctx, gpuos_worker &worker, "
               "uint32_t unit)",
               is_wgmma, "", "::run(ctx, worker)", "GPUOS_DONE");
  else
    add_switch(text, source, "GPUOS_DEVICE uint32_t run_stream(uint32_t turn, uint32_t unit)",
               is_stream, "", "::run(turn)", "turn + 1");
}

enum { MOST_CONSTANTS = 48 << 10, JOB_CONSTANTS = 8 << 10 }; // bytes, of 64 KiB that a kernel has

// As device/unit.cuh has them, but for what the plan says of an operator itself.
typedef struct numbers {
  uint32_t unit, next, crowd, crowd_end, from, count, wait_list, signal;
} numbers_t;
enum { NUMBERS_BYTES = sizeof(numbers_t) + (2 + GOS_STAMPED) * sizeof(uint32_t) };

// The tickets of the operator whose tiles begin at `from`, if they follow from each other: those whose
// weights stream are cut along dimension 2 only.
static void find_run(const gpuos_tile_t *tiles, uint32_t count, uint32_t from, numbers_t *numbers) {
  const gpuos_tile_t *first = &tiles[from];
  uint32_t length = 0;
  for (; from + length < count && tiles[from + length].op == first->op; length++) {
    const gpuos_tile_t *tile = first + length;
    if (tile->index != length || tile->wait_list != first->wait_list ||
        tile->signal != first->signal)
      return;
  }
  numbers->from = from, numbers->count = length;
  numbers->wait_list = first->wait_list, numbers->signal = first->signal;
}

// The operator after it whose records an SM will want soonest: of one that streams the next, of any other,
// whose tiles few SMs run, the next that streams.
static uint32_t find_next(const gos_plan_t *plan, uint32_t op) {
  uint32_t count = (uint32_t)plan->ops.count, next = op + 1;
  if (!plan->ops.at[op].streams)
    while (next < count && !plan->ops.at[next].streams) next++;
  return next < count ? next : op;
}

// The crowd of an operator that streams is the next one after it that does not.
static void find_numbers(const source_t *source, const gpuos_table_t *table, numbers_t *numbers) {
  const gpuos_tile_t *tiles = GPUOS_SECTION(table, gpuos_tile_t, tiles);
  for (uint32_t i = 0; i < source->instances.count; i++)
    for (size_t k = 0; k < source->instances.at[i].ops.count; k++)
      numbers[source->instances.at[i].ops.at[k]].unit = i;
  uint32_t crowd = UINT32_MAX, crowd_end = UINT32_MAX, last_op = UINT32_MAX;
  for (uint32_t t = table->tiles.count; t-- > 0;) {
    uint32_t op = tiles[t].op;
    bool streams = source->plan->ops.at[op].streams;
    if (!streams && op != last_op) crowd_end = t + 1;
    if (!streams) crowd = t;
    last_op = op;
    numbers[op].crowd = crowd, numbers[op].crowd_end = crowd_end;
    if (streams && (t == 0 || tiles[t - 1].op != op))
      find_run(tiles, table->tiles.count, t, &numbers[op]);
  }
}

static void add_op_numbers(gos_text_t *text, const source_t *source, const gpuos_table_t *table) {
  size_t count = source->plan->ops.count;
  size_t most = source->plan->role == GOS_JOB ? JOB_CONSTANTS : MOST_CONSTANTS;
  numbers_t *numbers = gos_alloc(source->arena, count * sizeof *numbers);
  find_numbers(source, table, numbers);
  gos_text_add(text, "\n%s const gpuos_op_numbers gpuos_numbers[] = {\n",
               count * NUMBERS_BYTES > most ? "__device__" : "__constant__");
  for (uint32_t i = 0, first = 0; i < count; i++) { // operands are numbered as table.c does
    const numbers_t *n = &numbers[i];
    const gos_op_t *op = &source->plan->ops.at[i];
    gos_text_add(text, "    {%u, %u, %u, %u, %uu, %uu, %u, %u, %u, %uu, {%uu, %uu, %uu, %uu}},\n",
                 n->unit, first, op->op.operand_count, find_next(source->plan, i), n->crowd,
                 n->crowd_end, n->from, n->count, n->wait_list, n->signal, op->from[0], op->from[1],
                 op->from[2], op->from[3]);
    first += op->op.operand_count;
  }
  gos_text_add(text, "};\n");
}

static void add_program(gos_text_t *text, const source_t *source, const gpuos_table_t *table) {
  add_op_numbers(text, source, table);
  gos_text_add(text, "\nstruct gpuos_program {\n");
  add_units(text, source);
  gos_text_add(text,
               "  GPUOS_DEVICE uint32_t unit(uint32_t op) { return gpuos_numbers[op].unit; }\n"
               "  GPUOS_DEVICE const gpuos_op_numbers &numbers(uint32_t op) { return "
               "gpuos_numbers[op]; }\n");
  add_run(text, source);
  add_load(text, source);
  add_switch(text, source,
             "GPUOS_DEVICE bool store(const gpuos_ctx &ctx, uint32_t turn, uint32_t unit)",
             is_stream, "", "::store(ctx, turn)", "false");
  add_switch(text, source, "GPUOS_DEVICE bool bulk(uint32_t unit)", has_ring, "", "::BULK",
             "false");
  gos_text_add(text, "};\n");
  if (source->plan->role != GOS_JOB)
    gos_text_add(text, "static_assert(gpuos_program::SMEM_BYTES + GPUOS_STATIC_SMEM <= "
                       "GPUOS_SMEM_LIMIT, \"shared memory\");\n");
}

// ---- what the kernel wants of its launch --------------------------------------------------------

static uint32_t add_map(gos_text_t *text, uint32_t first, const gos_op_t *op,
                        const gpuos_operand_t *x, uint32_t row_dim, uint32_t run_dim,
                        uint32_t rows) {
  if (!x) return 0;
  uint8_t outer = gos_view_dim(op, x, 0);
  bool moves = outer != GPUOS_ALL && gos_op_step(op, x, 0) != 0;
  gos_text_add(text, "    {%u, %u, %u, %u, 0, %u, %u, 0},\n", first + (uint32_t)(x - op->operands),
               gos_view_dim(op, x, run_dim), gos_view_dim(op, x, row_dim),
               moves ? outer : GPUOS_ALL, 128 / gpuos_dtype_bytes(x->dtype), rows);
  return 1;
}

// The operands that bulk copies move, numbered as table.c does: boxes as device/matmul_wgmma.cuh copies
// them.
static uint32_t add_maps(gos_text_t *text, const source_t *source) {
  uint32_t count = 0, first = 0;
  for (uint32_t i = 0; i < source->plan->ops.count; i++) {
    const gos_op_t *op = &source->plan->ops.at[i];
    uint32_t half = op->op.tile[2] / 2;
    if (has_tiles(op) && gos_op_wgmma_tiled(source->plan->target, op)) {
      count += add_map(text, first, op, gos_op_find(op, GPUOS_AS_X), 1, 3, op->op.tile[1]);
      count += add_map(text, first, op, gos_op_find(op, GPUOS_AS_W0), 2, 3, half);
      count += add_map(text, first, op, gos_op_find(op, GPUOS_AS_W1), 2, 3, half);
    }
    first += op->op.operand_count;
  }
  return count;
}

// What the runtime is to set aside of L2 for lines that device code asks to keep.
static uint32_t kept_bytes(const gos_plan_t *plan) {
  bool any = false;
  for (uint32_t i = 0; i < plan->ops.count; i++) any |= plan->ops.at[i].keeps_x;
  return any ? (uint32_t)plan->target->l2_keep_bytes : 0;
}

// Of a program; a job's have a name before theirs. `threads`, `smem`, `ctas`: the kernel's, of a CTA, and of a cluster.
static void add_symbols(gos_text_t *text, const source_t *source, const gpuos_table_t *table,
                        const char *threads, const char *smem, const char *ctas) {
  const char *job = source->plan->role == GOS_JOB ? "job_" : "";
  gos_text_t maps = {.arena = source->arena};
  uint32_t count = add_maps(&maps, source);
  gos_text_add(text,
               "__device__ __attribute__((used)) extern const unsigned long long "
               "gpuos_%stable_hash = 0x%016llxull;\n"
               "__device__ __attribute__((used)) extern const gpuos_launch_t gpuos_%slaunch = {\n"
               "    %s, %s, 1, %s, %u, %u, %llu};\n",
               job, (unsigned long long)table->hash, job, threads, smem, ctas, count,
               kept_bytes(source->plan), 5ull * stamped_bytes(source->plan));
  if (count)
    gos_text_add(text,
                 "// operand, its dimensions along and across a run, outer, box\n"
                 "__device__ __attribute__((used)) extern const gpuos_map_t gpuos_%smaps[] = {\n%s"
                 "};\n",
                 job, maps.at);
}

static bool begin_source(source_t *source, const gos_part_t *part) {
  *source = (source_t){.plan = &part->plan, .arena = part->plan.ir->arena};
  for (uint32_t i = 0; i < part->plan.ops.count; i++) collect(source, i);
  return !source->failed;
}

static void add_header(gos_text_t *text, const source_t *source) {
  gos_text_add(text, "// Written by gpuosc for %s (%s).\n\n", source->plan->target->name,
               source->plan->target->arch_name);
}

static void add_part(gos_text_t *text, const source_t *source, const gpuos_table_t *table) {
  add_includes(text, source);
  for (size_t i = 0; i < source->instances.count; i++)
    add_instance(text, source, &source->instances.at[i]);
  add_program(text, source, table);
}

static const char *source_alone(const gos_part_t *part) {
  source_t source;
  if (!begin_source(&source, part)) return NULL;
  gos_text_t text = {.arena = source.arena};
  add_header(&text, &source);
  add_part(&text, &source, part->table.at);
  gos_text_add(&text, "\nextern \"C\" {\n");
  add_symbols(&text, &source, part->table.at, "GPUOS_ROLE_THREADS", "gpuos_program::SMEM_BYTES",
              "GPUOS_CTAS");
  gos_text_add(&text, "\n__global__ void __launch_bounds__(GPUOS_ROLE_THREADS, 1)\n"
                      "    gpuos_kernel(const __grid_constant__ gpuos_kernel_args_t args) {\n"
                      "  gpuos_main<gpuos_program>(args.program[0], 0);\n"
                      "}\n}\n");
  return text.at;
}

// ---- two programs -------------------------------------------------------------------------------

static const char kernel_of_two[] =
    "enum {\n"
    "  LIVE_THREADS = gpuos_live::GPUOS_ROLE_THREADS,\n"
    "  JOB_THREADS = gpuos_job::GPUOS_ROLE_THREADS,\n"
    "  THREADS = (LIVE_THREADS > JOB_THREADS ? LIVE_THREADS : JOB_THREADS) + 32, // and the relay\n"
    "  SMEM = gpuos_live::gpuos_most<gpuos_live::gpuos_program::SMEM_BYTES,\n"
    "                                gpuos_job::gpuos_program::SMEM_BYTES>(),\n"
    "  CTAS = gpuos_live::gpuos_most<gpuos_live::GPUOS_CTAS, gpuos_job::GPUOS_CTAS>(),\n"
    "};\n"
    "static_assert(SMEM + gpuos_live::GPUOS_STATIC_SMEM <= gpuos_live::GPUOS_SMEM_LIMIT, \"shared "
    "memory\");\n";

static const char play_both[] =
    "\n__global__ void __launch_bounds__(THREADS, 1)\n"
    "    gpuos_kernel(const __grid_constant__ gpuos_kernel_args_t args) {\n"
    "  gpuos_play<CTAS == 2, LIVE_THREADS, JOB_THREADS>(\n"
    "      args.program,\n"
    "      [](const gpuos_launch_args_t &own, uint64_t other) {\n"
    "        gpuos_live::gpuos_main_apart<gpuos_live::gpuos_program>(own, other);\n"
    "      },\n"
    "      [](const gpuos_launch_args_t &own, uint64_t other) {\n"
    "        gpuos_job::gpuos_main<gpuos_job::gpuos_program>(own, other);\n"
    "      });\n"
    "}\n";

// The programs' constants differ, so each has the headers to itself, in a namespace; but for those that know no constants.
static const char common_headers[] = "#include \"roles.cuh\"\n#include \"dtype.cuh\"\n";

static const char *source_of_two(const gos_part_t *parts) {
  static const char *const names[] = {"gpuos_live", "gpuos_job"};
  source_t sources[2];
  for (int i = 0; i < 2; i++)
    if (!begin_source(&sources[i], &parts[i])) return NULL;
  gos_arena_t *arena = sources[0].arena;
  gos_text_t text = {.arena = arena};
  gos_seen_t common = {0};
  add_header(&text, &sources[0]);
  gos_text_add(&text, "%s", common_headers);
  gos_flatten(arena, common_headers, &common);
  for (int i = 0; i < 2; i++) {
    gos_text_t part = {.arena = arena};
    gos_seen_t seen = {0};
    for (size_t k = 0; k < common.names.count; k++)
      *gos_push(arena, &seen.names) = common.names.at[k];
    add_part(&part, &sources[i], parts[i].table.at);
    gos_text_add(&text, "\nnamespace %s {\n%s} // namespace\n", names[i],
                 gos_flatten(arena, part.at, &seen));
  }
  gos_text_add(&text, "\n%s\nextern \"C\" {\n", kernel_of_two);
  for (int i = 0; i < 2; i++)
    add_symbols(&text, &sources[i], parts[i].table.at, "THREADS", "SMEM", "CTAS");
  gos_text_add(&text, "%s}\n", play_both);
  return text.at;
}

const char *gos_kernel_source(const gos_part_t *parts, size_t count) {
  return count == 1 ? source_alone(parts) : source_of_two(parts);
}
