// seed_tables.c: writes the corpus for fuzz_table: seed_tables FOLDER.
#include "graphs.h"

#include <stdio.h>
#include <stdlib.h>

static int write_table(const char *folder, const gos_graph_t *graph) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", folder, graph->name);
  gos_tables_t *tables = graph->build();
  gpuos_table_t *table = gos_tables_pack(tables);
  FILE *file = fopen(path, "wb");
  size_t written = file == NULL ? 0 : fwrite(table, 1, table->bytes, file);
  int right = written == table->bytes && fclose(file) == 0;
  free(table);
  gos_tables_destroy(tables);
  return right;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  for (int i = 0; i < GOS_GRAPH_COUNT; i++)
    if (!write_table(argv[1], &gos_graphs[i])) return 1;
  return 0;
}
