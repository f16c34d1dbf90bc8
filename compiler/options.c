// options.c: gpuosc's command line.
#include "options.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: gpuosc [options] MODEL.yaml ... -o OUT.cubin\n"
    "       gpuosc import CONFIG.json -o MODEL.yaml\n"
    "\n"
    "Compiles model graphs into one persistent kernel and its schedule table. MODEL may also be a "
    ".mlir file.\n"
    "\n"
    "  -o FILE               where to write; - is standard output\n"
    "  --emit=KIND           cubin (default), table (no device code: the CPU device runs it), ir, "
    "plan,\n"
    "                        schedule, cuda, ptx; text kinds go to standard output without -o\n"
    "  -D NAME=VALUE         sets a dimension of the graph\n"
    "  --target=NAME         instead of the graph's: h200, h100, b200, rtx-pro-6000\n"
    "  --target-file=FILE    a target description of your own\n"
    "  --unit-budget-us=N    longest unit allowed, 1 to 1000; default 20\n"
    "  --report              predicted units, bounds, bytes and shares by operator, on standard "
    "error\n"
    "  --cache=DIR           keeps compiled kernels in DIR, and takes from there what is already "
    "compiled\n"
    "  --table-file=FILE     the schedule table in a file of its own as well\n"
    "  -MD FILE              dependencies of the output for make and ninja\n"
    "  --stop-after=STAGE    ends early; with --emit=ir or plan shows what there is then\n"
    "  --dump-after=STAGE    prints IR or plan after a stage to standard error\n"
    "  --time-passes         time of each stage, on standard error\n"
    "  --print-ops           reference of all operators, Markdown\n"
    "  --print-irdl          the gpuos dialect, IRDL\n"
    "  --version, --help\n"
    "\n"
    "exit: 0 written, 1 errors in the input or the system, 2 wrong usage\n";

void gos_options_print_usage(FILE *out) { fputs(usage, out); }

static const char *const emit_names[] = {"cubin",    "table", "ir",  "plan",
                                         "schedule", "cuda",  "ptx", NULL};

static size_t count_of(const char *const *names) {
  size_t count = 0;
  while (names[count]) count++;
  return count;
}

// Index of `text` in names; -1 after saying what there is.
static int one_of(const char *option, const char *text, const char *const *names) {
  for (int i = 0; names[i]; i++)
    if (!strcmp(names[i], text)) return i;
  const char *near = gos_near_miss(text, names, count_of(names));
  fprintf(stderr, "gpuosc: %s=%s: there is", option, text);
  for (int i = 0; names[i]; i++) fprintf(stderr, "%s %s", i ? "," : "", names[i]);
  fprintf(stderr, near ? "; did you mean %s?\n" : "\n", near);
  return -1;
}

static bool whole_number(const char *text, long low, long high, long *out) {
  char *end;
  *out = strtol(text, &end, 10);
  return *text && !*end && *out >= low && *out <= high;
}

static bool add_dim(gos_arena_t *arena, gos_options_t *to, const char *text) {
  const char *equal = strchr(text, '=');
  long value;
  if (!equal || equal == text || !whole_number(equal + 1, 1, 0x7fffffff, &value)) {
    fprintf(stderr, "gpuosc: -D %s: NAME=VALUE is needed, a positive integer\n", text);
    return false;
  }
  *gos_push(arena, &to->dims) = (gos_dim_override_t){
      .name = gos_strndup(arena, text, (size_t)(equal - text)), .value = value};
  return true;
}

static bool value_option(gos_options_t *to, const char *name, const char *value) {
  long number;
  int index;
  if (!strcmp(name, "--emit")) {
    if ((index = one_of(name, value, emit_names)) < 0) return false;
    to->emit = (gos_emit_t)index;
    to->emit_given = true;
  } else if (!strcmp(name, "--stop-after") || !strcmp(name, "--dump-after")) {
    if ((index = one_of(name, value, gos_stage_names)) < 0) return false;
    *(name[2] == 's' ? &to->stop_after : &to->dump_after) = gos_stage_names[index];
  } else if (!strcmp(name, "--target"))
    to->target = value;
  else if (!strcmp(name, "--target-file"))
    to->target_file = value;
  else if (!strcmp(name, "--cache"))
    to->cache_dir = value;
  else if (!strcmp(name, "--table-file"))
    to->table_file = value;
  else if (whole_number(value, 1, 1000, &number))
    to->budget_ns = (uint32_t)number * 1000; // --unit-budget-us
  else {
    fprintf(stderr, "gpuosc: %s=%s: a whole number from 1 to 1000 is needed\n", name, value);
    return false;
  }
  return true;
}

static bool unknown(const char *option) {
  static const char *const known[] = {"-o",
                                      "-D",
                                      "-MD",
                                      "--emit",
                                      "--target",
                                      "--target-file",
                                      "--unit-budget-us",
                                      "--report",
                                      "--cache",
                                      "--table-file",
                                      "--stop-after",
                                      "--dump-after",
                                      "--time-passes",
                                      "--print-ops",
                                      "--print-irdl",
                                      "--version",
                                      "--help",
                                      NULL};
  const char *near = gos_near_miss(option, known, count_of(known));
  fprintf(stderr, "gpuosc: unknown option %s", option);
  fprintf(stderr, near ? "; did you mean %s?\n" : "; see gpuosc --help\n", near);
  return false;
}

static bool long_option(gos_arena_t *arena, gos_options_t *to, const char *arg) {
  static const struct {
    const char *name;
    size_t at;
  } flags[] = {{"--report", offsetof(gos_options_t, report)},
               {"--time-passes", offsetof(gos_options_t, time_passes)},
               {"--help", offsetof(gos_options_t, help)},
               {"--version", offsetof(gos_options_t, version)},
               {"--print-ops", offsetof(gos_options_t, print_ops)},
               {"--print-irdl", offsetof(gos_options_t, print_irdl)}};
  static const char *const valued[] = {"--emit",   "--stop-after",  "--dump-after",
                                       "--target", "--target-file", "--unit-budget-us",
                                       "--cache",  "--table-file"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (!strcmp(arg, flags[i].name)) return *((bool *)to + flags[i].at) = true;
  const char *equal = strchr(arg, '=');
  const char *name = equal ? gos_strndup(arena, arg, (size_t)(equal - arg)) : arg;
  for (size_t i = 0; i < sizeof valued / sizeof *valued; i++) {
    if (strcmp(name, valued[i])) continue;
    if (equal && equal[1]) return value_option(to, name, equal + 1);
    fprintf(stderr, "gpuosc: %s needs a value, %s=...\n", name, name);
    return false;
  }
  return unknown(name);
}

// -o FILE, -D NAME=VALUE, -MD FILE; the value may follow directly after -D.
static bool short_option(gos_arena_t *arena, gos_options_t *to, int argc, char **argv, int *at) {
  const char *arg = argv[*at], *value = NULL;
  bool dim = !strncmp(arg, "-D", 2);
  if (!dim && strcmp(arg, "-o") && strcmp(arg, "-MD")) return unknown(arg);
  if (dim && arg[2])
    value = arg + 2;
  else if (*at + 1 < argc)
    value = argv[++*at];
  else {
    fprintf(stderr, "gpuosc: %s needs a value\n", arg);
    return false;
  }
  if (dim) return add_dim(arena, to, value);
  *(arg[1] == 'o' ? &to->output : &to->dep_file) = value;
  return true;
}

static bool says_something(const gos_options_t *o) {
  return o->help || o->version || o->print_ops || o->print_irdl;
}

bool gos_options_parse(gos_arena_t *arena, int argc, char **argv, gos_options_t *out_options) {
  *out_options = (gos_options_t){.budget_ns = 20000};
  for (int i = 1; i < argc; i++) {
    bool ok = true;
    if (!strncmp(argv[i], "--", 2))
      ok = long_option(arena, out_options, argv[i]);
    else if (argv[i][0] == '-' && argv[i][1])
      ok = short_option(arena, out_options, argc, argv, &i);
    else
      *gos_push(arena, &out_options->inputs) = argv[i];
    if (!ok) return false;
  }
  if (says_something(out_options)) return true;
  if (!out_options->inputs.count) {
    fprintf(stderr, "gpuosc: no input; see gpuosc --help\n");
    return false;
  }
  bool early = out_options->emit == GOS_EMIT_IR || out_options->emit == GOS_EMIT_PLAN;
  if (out_options->stop_after && out_options->emit_given && !early) {
    fprintf(stderr, "gpuosc: --stop-after goes with --emit=ir or --emit=plan\n");
    return false;
  }
  if (out_options->stop_after && out_options->table_file) {
    fprintf(stderr, "gpuosc: --table-file does not go with --stop-after\n");
    return false;
  }
  if (out_options->dep_file && (!out_options->output || !strcmp(out_options->output, "-"))) {
    fprintf(stderr, "gpuosc: -MD needs -o FILE\n");
    return false;
  }
  bool text = out_options->emit >= GOS_EMIT_IR;
  if (!out_options->output && (text || out_options->stop_after)) out_options->output = "-";
  if (out_options->output) return true;
  fprintf(stderr, "gpuosc: -o FILE is needed\n");
  return false;
}
