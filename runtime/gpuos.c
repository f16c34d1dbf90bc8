// gpuos.c: the `gpuos` command line: picks a command.
#include <string.h>

#include "cli.h"

static const struct command {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *usage, *help;
} commands[] = {
    {"run", gos_cli_run, "run FILE [options]", "load an artefact and run steps"},
    {"check", gos_cli_check, "check FILE", "prove a schedule table safe, or say why it is not"},
    {"inspect", gos_cli_inspect, "inspect FILE [--ops] [--tiles]", "print what an artefact holds"},
    {"bench", gos_cli_bench, "bench FILE [options]", "run steps on random data and measure them"},
    {"share", gos_cli_share, "share FILE [options]",
     "run a live model and its job side by side and measure both"},
    {"trace", gos_cli_trace, "trace FILE -o F.json", "run steps and save what every SM did when"},
    {"devices", gos_cli_devices, "devices", "list the devices of this machine"},
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_usage(FILE *out) {
  fputs("usage: gpuos COMMAND ...\n\n", out);
  for (int i = 0; i < COMMAND_COUNT; i++)
    fprintf(out, "  gpuos %-32s %s\n", commands[i].usage, commands[i].help);
  fputs("\n`gpuos COMMAND --help` prints a command's options.\n", out);
}

static int unknown_command(const char *word) {
  const char *names[COMMAND_COUNT];
  for (int i = 0; i < COMMAND_COUNT; i++) names[i] = commands[i].name;
  const char *near = gos_suggest(word, names, COMMAND_COUNT);
  if (near != NULL)
    gos_say("no command '%s'; did you mean '%s'?", word, near);
  else
    gos_say("no command '%s'; there are run, check, inspect, bench, share, trace and devices",
            word);
  return GOS_EXIT_USAGE;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    print_usage(stderr);
    return GOS_EXIT_USAGE;
  }
  for (int i = 0; i < COMMAND_COUNT; i++)
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 2, argv + 2);
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
    print_usage(stdout);
    return GOS_EXIT_OK;
  }
  if (strcmp(argv[1], "--version") == 0) {
    printf("gpuos %d.%d, schedule tables of ABI version %d\n", GPUOS_VERSION_MAJOR,
           GPUOS_VERSION_MINOR, GPUOS_ABI_VERSION);
    return GOS_EXIT_OK;
  }
  return unknown_command(argv[1]);
}
