// compiled.c: models and their table go through temporary files, as they do for a user.
#include "compiled.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

enum { MOST_MODELS = 4, NAME_ROOM = 64 };

static void must(bool condition) {
  if (!condition) abort();
}

// A name that ends in what makes the compiler read YAML.
static void write_model(const char *text, char name[NAME_ROOM]) {
  char unique[] = "/tmp/gpuos-test-XXXXXX";
  int file = mkstemp(unique);
  must(file >= 0 && close(file) == 0 && unlink(unique) == 0);
  snprintf(name, NAME_ROOM, "%s.yaml", unique);
  FILE *out = fopen(name, "wb");
  must(out != NULL && fputs(text, out) >= 0 && fclose(out) == 0);
}

static gpuos_table_t *read_table(const char *name) {
  FILE *in = fopen(name, "rb");
  must(in != NULL && fseek(in, 0, SEEK_END) == 0);
  size_t bytes = (size_t)ftell(in);
  gpuos_table_t *table = aligned_alloc(16, (bytes + 15) / 16 * 16);
  must(table != NULL && fseek(in, 0, SEEK_SET) == 0 && fread(table, 1, bytes, in) == bytes);
  fclose(in);
  return table;
}

gpuos_table_t *gos_compiled(const char *const *models, size_t count, const char *budget_us) {
  char names[MOST_MODELS][NAME_ROOM], output[NAME_ROOM], budget[NAME_ROOM];
  char *argv[MOST_MODELS + 5] = {"gpuosc", "--emit=table", budget, "-o", output};
  int argc = 5;
  must(count > 0 && count <= MOST_MODELS);
  for (size_t i = 0; i < count; i++) {
    write_model(models[i], names[i]);
    argv[argc++] = names[i];
  }
  snprintf(output, sizeof output, "%.*s.tab", NAME_ROOM - 5, names[0]);
  snprintf(budget, sizeof budget, "--unit-budget-us=%s", budget_us);
  gos_arena_t *arena = gos_arena_create();
  gos_options_t options;
  must(gos_options_parse(arena, argc, argv, &options));
  gpuos_table_t *table = gos_compile(arena, &options) == GOS_EXIT_OK ? read_table(output) : NULL;
  for (size_t i = 0; i < count; i++) unlink(names[i]);
  unlink(output);
  gos_arena_destroy(arena);
  return table;
}
