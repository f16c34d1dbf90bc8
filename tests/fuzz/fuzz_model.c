// fuzz_model.c: any bytes through the YAML front end; libFuzzer.
//
//   clang-22 -fsanitize=fuzzer,address,undefined ... tests/fuzz/fuzz_model.c
//   fuzz_model -dict=tests/fuzz/model.dict -max_len=4096 corpus tests/fuzz/corpus/model
//
// An MLIR context takes a millisecond to make, so one serves many inputs, each with a fresh module,
// arenas and diagnostics. MLIR keeps every type, attribute and location for the life of its
// context, which is therefore made anew from time to time.
#include <stdlib.h>

#include "compiler.h"

enum { INPUTS_PER_CONTEXT = 2000 };

static gos_arena_t *context_arena, *scratch;
static gos_ir_t *ir;
static unsigned inputs;

static void renew_context(void) {
  gos_ir_destroy(ir);
  gos_arena_destroy(scratch);
  gos_arena_destroy(context_arena);
  context_arena = gos_arena_create();
  scratch = gos_arena_create();
  ir = gos_ir_create(context_arena, scratch, gos_diags_create(context_arena));
}

// Every path of the report, too: excerpts of hostile text are where offsets go wrong.
static void print(const gos_diags_t *diags) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  if (nowhere) gos_diags_print(diags, nowhere);
}

static bool is_empty(void) {
  return mlirOperationIsNull(mlirBlockGetFirstOperation(mlirModuleGetBody(ir->module)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  if (inputs++ % INPUTS_PER_CONTEXT == 0) renew_context();
  char *text = malloc(bytes ? bytes : 1); // exactly the input: a byte read past it is an error
  for (size_t i = 0; i < bytes; i++) text[i] = (char)data[i];
  gos_arena_t *kept = ir->arena;
  gos_diags_t *kept_diags = ir->diags;
  ir->arena = gos_arena_create();
  ir->diags = gos_diags_create(ir->arena);
  gos_arena_reset(ir->scratch);
  gos_dim_override_t override = {.name = "B", .value = 3};
  uint16_t file = gos_diags_add_file(ir->diags, "fuzz.yaml", text, bytes);
  bool good = gos_model_read(ir, file, &override, 1);
  if (good != (gos_diags_error_count(ir->diags) == 0)) GOS_BUG("a result without its errors");
  if (good == is_empty()) GOS_BUG("half a graph is left, or none was made");
  print(ir->diags);
  mlirModuleDestroy(ir->module);
  ir->module = mlirModuleCreateEmpty(mlirLocationUnknownGet(ir->mlir));
  gos_arena_destroy(ir->arena);
  ir->arena = kept;
  ir->diags = kept_diags;
  free(text);
  return 0;
}
