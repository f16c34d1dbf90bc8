// cli_check.c: `gpuos check FILE`.
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "file.h"

static const gos_option_t options[] = {{"--help", NULL, "print this"}};

static void print_verdict(const char *path, const gpuos_table_t *table) {
  const struct {
    uint32_t count;
    const char *what;
  } facts[] = {{table->tiles.count, "tile"},
               {table->ops.count, "operator"},
               {table->buffers.count, "buffer"},
               {table->counters.count, "counter"}};
  printf("%s: safe:", path);
  for (int i = 0; i < 4; i++)
    printf("%s %u %s%s", i == 0 ? "" : ",", facts[i].count, facts[i].what,
           facts[i].count == 1 ? "" : "s");
  putchar('\n');
}

static bool check_file(const char *path) {
  gos_error_t error = {0};
  gos_file_t file;
  gos_artefact_t artefact;
  gpuos_status_t status = gos_file_map(path, &error, &file);
  if (status == GPUOS_OK) status = gos_artefact_find(file.data, file.bytes, &error, &artefact);
  for (uint32_t i = 0; status == GPUOS_OK && i < artefact.table_count; i++) {
    gpuos_table_t *table = NULL;
    status = gos_artefact_table(&artefact, i, &error, &table);
    if (status == GPUOS_OK) print_verdict(path, table);
    free(table);
  }
  if (status != GPUOS_OK) printf("%s: error: %s\n", path, error.text);
  gos_file_unmap(&file);
  return status == GPUOS_OK;
}

int gos_cli_check(int argc, char **argv) {
  gos_words_t words = {.argc = argc, .argv = argv};
  const char *path = NULL, *value;
  for (int word; (word = gos_next_word(&words, options, 1, &value)) != GOS_WORD_END;) {
    if (word == GOS_WORD_BAD) return GOS_EXIT_USAGE;
    if (word == 0) {
      puts("usage: gpuos check FILE");
      return GOS_EXIT_OK;
    }
    if (path != NULL) {
      gos_say("check takes one file; '%s' is one too many", value);
      return GOS_EXIT_USAGE;
    }
    path = value;
  }
  if (path == NULL) {
    gos_say("check which file? usage: gpuos check FILE");
    return GOS_EXIT_USAGE;
  }
  return check_file(path) ? GOS_EXIT_OK : GOS_EXIT_FAILED;
}
