// main.c: gpuosc.
#include <stdio.h>
#include <string.h>

#include "gpuos.h"
#include "options.h"

static int run(gos_arena_t *arena, int argc, char **argv) {
  gos_options_t options;
  if (!gos_options_parse(arena, argc, argv, &options)) return GOS_EXIT_USAGE;
  if (options.help)
    gos_options_print_usage(stdout);
  else if (options.version)
    printf("gpuosc %d.%d, schedule table version %d\n", GPUOS_VERSION_MAJOR, GPUOS_VERSION_MINOR,
           GPUOS_ABI_VERSION);
  else if (options.print_ops)
    gos_ops_print(stdout);
  else if (options.print_irdl)
    fputs(gos_ops_irdl(arena), stdout);
  else
    return gos_compile(arena, &options);
  return GOS_EXIT_OK;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "import")) return gos_import(argc - 1, argv + 1);
  gos_arena_t *arena = gos_arena_create();
  int code = run(arena, argc, argv);
  gos_arena_destroy(arena);
  return code;
}
