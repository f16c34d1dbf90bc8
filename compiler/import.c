// import.c: `gpuosc import`, from a config.json of Hugging Face to a model.yaml.
#include "import.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler.h"

enum { USAGE_ERROR = 2, MAX_CONFIG_BYTES = 1 << 20, MAX_NAME_CHARS = 64 };

static const char usage[] =
    "usage: gpuosc import CONFIG.json -o MODEL.yaml [options]\n"
    "Writes the model graph of a Llama, Mistral, Qwen2 or Qwen3 checkpoint's config.json.\n"
    "  -o FILE           where to write it\n"
    "  --batch N         rows of a step, one token of each sequence (1)\n"
    "  --context N       tokens that a sequence may have, a multiple of 64 (8192, or what the\n"
    "                    model allows)\n"
    "  --dtype T         bf16, f16 or f32: of weights, activations and cache (the checkpoint's)\n"
    "  --name NAME       of the graph (FILE's)\n"
    "  --target NAME     the chip (h200)\n"
    "  --deadline-us N   of a step, in microseconds (10000)\n"
    "  --logits          make the logits an output too\n";

// Prints an error about the command line or a file; false, so that callers can return it.
__attribute__((format(printf, 2, 3))) static bool complain(const char *slug, const char *format,
                                                           ...) {
  va_list args;
  va_start(args, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, args);
  fprintf(stderr, " [%s]\n", slug);
  va_end(args);
  return false;
}

// ---- options ------------------------------------------------------------------------------------

static bool parse_count(const char *option, const char *text, long long most, int64_t *out_count) {
  char *end;
  errno = 0;
  long long count = strtoll(text, &end, 10);
  *out_count = count;
  if (!errno && end != text && !*end && count >= 1 && count <= most) return true;
  return complain("import-option", "%s: '%.40s' is no integer from 1 to %lld", option, text, most);
}

static bool is_name(const char *text) {
  size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
  return length && !text[length] && length <= MAX_NAME_CHARS;
}

static bool parse_name(const char *option, const char *text, const char **out_name) {
  *out_name = text;
  if (is_name(text)) return true;
  return complain("import-option", "%s: a name has letters, digits, '.', '_' and '-', at most %d",
                  option, MAX_NAME_CHARS);
}

static bool parse_dtype(const char *text, const char **out_dtype) {
  *out_dtype = text;
  if (!strcmp(text, "bf16") || !strcmp(text, "f16") || !strcmp(text, "f32")) return true;
  return complain("import-option", "--dtype: '%.40s' is not bf16, f16 or f32", text);
}

static bool parse_context(const char *text, int64_t *out_context) {
  if (!parse_count("--context", text, 1 << 30, out_context)) return false;
  if (*out_context % GOS_IMPORT_PAGE == 0) return true;
  return complain("import-option", "--context: %s is no multiple of %d, the tokens of a page", text,
                  GOS_IMPORT_PAGE);
}

static bool parse_option(gos_import_t *m, const char *option, const char *value) {
  if (!strcmp(option, "-o")) return m->out = value, true;
  if (!strcmp(option, "--batch")) return parse_count(option, value, 65536, &m->batch);
  if (!strcmp(option, "--context")) return parse_context(value, &m->context);
  if (!strcmp(option, "--dtype")) return parse_dtype(value, &m->dtype);
  if (!strcmp(option, "--name")) return parse_name(option, value, &m->name);
  if (!strcmp(option, "--target")) return parse_name(option, value, &m->target);
  if (!strcmp(option, "--deadline-us"))
    return parse_count(option, value, 1000000000, &m->deadline_us);
  GOS_BUG("option %s", option);
}

static const char *const option_names[] = {"-o",     "--batch",  "--context",     "--dtype",
                                           "--name", "--target", "--deadline-us", "--logits"};
enum { OPTION_COUNT = sizeof option_names / sizeof *option_names, VALUED = OPTION_COUNT - 1 };

// The option that `arg` is, as in "--batch" or "--batch=4"; *out_value is what follows '='.
static const char *find_option(const char *arg, const char **out_value) {
  size_t length = strcspn(arg, "=");
  *out_value = arg[length] ? arg + length + 1 : NULL;
  for (size_t i = 0; i < OPTION_COUNT; i++)
    if (strlen(option_names[i]) == length && !strncmp(option_names[i], arg, length))
      return option_names[i];
  return NULL;
}

static bool unknown_option(const char *arg) {
  const char *near = gos_near_miss(arg, option_names, OPTION_COUNT);
  return complain("import-option", "unknown option '%.40s'%s%s", arg, near ? "; did you mean " : "",
                  near ? near : "");
}

static bool parse_arg(gos_import_t *m, char **argv, int *i) {
  const char *arg = argv[*i], *value;
  if (arg[0] != '-') {
    if (m->config) return complain("import-option", "two configs: '%s', '%s'", m->config, arg);
    return m->config = arg, true;
  }
  const char *option = find_option(arg, &value);
  if (!option) return unknown_option(arg);
  if (option == option_names[VALUED]) {
    m->logits = true;
    return !value || complain("import-option", "%s takes no value", option);
  }
  if (!value) value = argv[*i + 1] ? argv[++*i] : NULL; // argv ends with NULL
  if (!value) return complain("import-option", "%s needs a value", option);
  return parse_option(m, option, value);
}

static bool parse_args(gos_import_t *m, int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    if (!parse_arg(m, argv, &i)) return false;
  if (!m->config) return complain("import-option", "no config.json given; try --help");
  if (!m->out) return complain("import-option", "no -o FILE given: where to write the graph");
  if (!m->batch) m->batch = 1;
  if (!m->deadline_us) m->deadline_us = 10000;
  if (!m->target) m->target = "h200";
  return true;
}

// The output's name without folders and ".yaml", if it is one.
static const char *default_name(gos_arena_t *arena, const char *out) {
  const char *slash = strrchr(out, '/'), *base = slash ? slash + 1 : out;
  const char *dot = strrchr(base, '.');
  const char *name = gos_strndup(arena, base, dot ? (size_t)(dot - base) : strlen(base));
  return is_name(name) ? name : "model";
}

// ---- files --------------------------------------------------------------------------------------

static bool read_file(gos_arena_t *arena, const char *path, char **out_text, size_t *out_bytes) {
  FILE *file = fopen(path, "rb");
  if (!file) return complain("import-file", "cannot open '%s': %s", path, strerror(errno));
  *out_text = gos_alloc(arena, MAX_CONFIG_BYTES + 1);
  *out_bytes = fread(*out_text, 1, MAX_CONFIG_BYTES + 1, file);
  int error = ferror(file) ? errno : 0;
  fclose(file);
  if (error) return complain("import-file", "cannot read '%s': %s", path, strerror(error));
  if (*out_bytes <= MAX_CONFIG_BYTES) return true;
  return complain("import-file", "'%s' is larger than 1 MiB: no config.json", path);
}

static bool write_all(int fd, const gos_text_t *text) {
  mode_t mask = umask(0); // mkstemp makes a private file; a result has the usual permissions
  umask(mask);
  if (fchmod(fd, 0666 & ~mask)) return false;
  for (size_t done = 0; done < text->count;) {
    ssize_t n = write(fd, text->at + done, text->count - done);
    if (n < 0 && errno != EINTR) return false;
    done += n > 0 ? (size_t)n : 0;
  }
  return fsync(fd) == 0;
}

// The file appears under its name whole, or an older one stays.
static bool write_file(const char *path, const gos_text_t *text) {
  struct stat old;
  if (lstat(path, &old) == 0 && !S_ISREG(old.st_mode)) // nor a link: it would be replaced
    return complain("import-file", "'%s' is there and is no regular file", path);
  char *temporary = gos_format(text->arena, "%s.XXXXXX", path);
  int fd = mkstemp(temporary);
  if (fd < 0) return complain("import-file", "cannot write '%s': %s", path, strerror(errno));
  bool good = write_all(fd, text);
  int error = good ? 0 : errno;
  if (close(fd) && good) good = false, error = errno;
  if (good && rename(temporary, path)) good = false, error = errno;
  if (good) return true;
  unlink(temporary);
  return complain("import-file", "cannot write '%s': %s", path, strerror(error));
}

// ---- the command --------------------------------------------------------------------------------

static bool import_file(gos_arena_t *arena, gos_import_t *m) {
  char *text = NULL;
  size_t bytes = 0;
  if (!read_file(arena, m->config, &text, &bytes)) return false;
  gos_diags_t *diags = gos_diags_create(arena);
  uint16_t file = gos_diags_add_file(diags, m->config, text, bytes);
  bool good = gos_import_config(arena, diags, file, m);
  gos_diags_print(diags, stderr);
  if (!good) return false;
  if (!m->name) m->name = default_name(arena, m->out);
  gos_text_t yaml = {.arena = arena};
  gos_import_write(m, &yaml);
  return write_file(m->out, &yaml);
}

// argv[0] is "import".
int gos_import(int argc, char **argv) {
  if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")))
    return fputs(usage, stdout) < 0;
  gos_import_t import = {0};
  if (!parse_args(&import, argc, argv)) return USAGE_ERROR;
  gos_arena_t *arena = gos_arena_create();
  bool good = import_file(arena, &import);
  gos_arena_destroy(arena);
  return good ? 0 : 1;
}
