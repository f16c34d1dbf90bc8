// kernel_source.c: the plan as a short CUDA C++ file over the headers in device/.
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

static void collect(source_t *source, uint32_t number) {
  const gos_op_t *op = &source->plan->ops.at[number];
  if (op->op.kind >= GPUOS_KIND_COUNT) GOS_BUG("operator kind %u", op->op.kind);
  if (!has_tiles(op) || !runs(source, op)) return;
  const gos_device_kind_t *kind = &gos_device_kinds[op->op.kind];
  gos_text_t text = {.arena = source->arena};
  kind->add(&text, op);
  *gos_push(source->arena, &find_instance(source, kind->name, text.at)->ops) = number;
}

// ---- the file -----------------------------------------------------------------------------------

static void add_includes(gos_text_t *text, const source_t *source) {
  gos_text_add(text, "// Written by gpuosc for %s (%s).\n\n", source->plan->target->name,
               source->plan->target->arch_name);
  gos_text_add(text, "enum { GPUOS_SMEM_LIMIT = %u }; // bytes of one CTA\n\n",
               source->plan->target->smem_bytes);
  for (int kind = 0; kind < GPUOS_KIND_COUNT; kind++)
    for (size_t i = 0; i < source->instances.count; i++)
      if (!strcmp(source->instances.at[i].kind, gos_device_kinds[kind].name)) {
        gos_text_add(text, "#include \"%s.cuh\"\n", gos_device_kinds[kind].name);
        break;
      }
  gos_text_add(text, "#include \"kernel.cuh\"\n");
}

static void add_instance(gos_text_t *text, const source_t *source, const instance_t *instance) {
  const gos_op_t *first = &source->plan->ops.at[instance->ops.at[0]];
  gos_text_add(text, "\n// %s", first->name ? first->name : instance->kind);
  if (instance->ops.count > 1) gos_text_add(text, " and %zu more", instance->ops.count - 1);
  gos_text_add(text, "\nstruct %s_%u {\n%s};\n", instance->kind, instance->number, instance->text);
}

// "case 0: case 4: ...", wrapped.
static void add_labels(gos_text_t *text, const instance_t *instance) {
  size_t line = text->count;
  gos_text_add(text, "   ");
  for (size_t i = 0; i < instance->ops.count; i++) {
    if (text->count - line > COLUMNS - 12) {
      gos_text_add(text, "\n   ");
      line = text->count - 3;
    }
    gos_text_add(text, " case %u:", instance->ops.at[i]);
  }
}

static void add_units(gos_text_t *text, const source_t *source) {
  gos_text_add(text, "  enum { SMEM_BYTES = gpuos_most_smem<");
  for (size_t i = 0; i < source->instances.count; i++) {
    const instance_t *instance = &source->instances.at[i];
    gos_text_add(text, "%s\n      gpuos_%s<%s_%u>", i ? "," : "", instance->kind, instance->kind,
                 instance->number);
  }
  gos_text_add(text, ">() };\n");
}

static void add_program(gos_text_t *text, const source_t *source) {
  gos_text_add(text, "\nstruct gpuos_program {\n");
  add_units(text, source);
  gos_text_add(text, "  GPUOS_DEVICE bool run(const gpuos_ctx &ctx, uint32_t op) {\n"
                     "    switch (op) {\n");
  for (size_t i = 0; i < source->instances.count; i++) {
    const instance_t *instance = &source->instances.at[i];
    add_labels(text, instance);
    gos_text_add(text, " return gpuos_run<gpuos_%s<%s_%u>>(ctx);\n", instance->kind, instance->kind,
                 instance->number);
  }
  gos_text_add(text, "    default: return true;\n    }\n  }\n};\n"
                     "static_assert(gpuos_program::SMEM_BYTES + GPUOS_STATIC_SMEM <= "
                     "GPUOS_SMEM_LIMIT, \"shared memory\");\n");
}

static void add_symbols(gos_text_t *text, const gpuos_table_t *table) {
  gos_text_add(text,
               "\nextern \"C\" {\n"
               "__device__ __attribute__((used)) extern const unsigned long long "
               "gpuos_table_hash = 0x%016llxull;\n"
               "__device__ __attribute__((used)) extern const gpuos_launch_t gpuos_launch = {\n"
               "    GPUOS_THREADS, gpuos_program::SMEM_BYTES, 1, 0};\n\n"
               "__global__ void __launch_bounds__(GPUOS_THREADS, 1)\n"
               "    gpuos_kernel(const __grid_constant__ gpuos_launch_args args) {\n"
               "  gpuos_loop<gpuos_program>(args);\n"
               "}\n}\n",
               (unsigned long long)table->hash);
}

const char *gos_kernel_source(const gos_plan_t *plan, const gpuos_table_t *table) {
  source_t source = {.plan = plan, .arena = plan->ir->arena};
  for (uint32_t i = 0; i < plan->ops.count; i++) collect(&source, i);
  if (source.failed) return NULL;
  gos_text_t text = {.arena = source.arena};
  add_includes(&text, &source);
  for (size_t i = 0; i < source.instances.count; i++)
    add_instance(&text, &source, &source.instances.at[i]);
  add_program(&text, &source);
  add_symbols(&text, table);
  return text.at;
}
