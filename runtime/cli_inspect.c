// cli_inspect.c: `gpuos inspect FILE`: a schedule table for people.
//
// Prints only tables that check has proven safe: every index below is therefore in range.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "file.h"

enum option { OPS, TILES, HELP, OPTION_COUNT };
static const gos_option_t option_list[OPTION_COUNT] = {
    [OPS] = {"--ops", NULL, "each operator's operands, parameters and expression too"},
    [TILES] = {"--tiles", NULL, "every tile, in ticket order, with its waits and its signal"},
    [HELP] = {"--help", NULL, "print this"},
};

typedef struct inspection {
  const char *path;
  bool ops, tiles, help;
} inspection_t;

static const char *string(const gpuos_table_t *t, uint32_t offset) {
  return gos_table_string(t, offset);
}

// ---- header, graphs, buffers --------------------------------------------------------------------

static void print_header(const char *path, const gos_artefact_t *artefact, const gpuos_table_t *t) {
  if (artefact->cubin != NULL)
    printf("%s: cubin for sm_%u%s, %s\n", path, t->arch, t->arch >= 90 ? "a" : "",
           gos_size(artefact->cubin_bytes).text);
  else
    printf("%s: schedule table without device code\n", path);
  printf("table: ABI version %u, %s, hash %016" PRIx64 ", unit budget %.1f us, parked accumulator "
         "%s\n",
         t->version, gos_size(t->bytes).text, t->hash, t->budget_ns * 1e-3,
         gos_size(t->park_bytes).text);
  printf("%u graphs, %u buffers, %u operators, %u tiles, %u counters, %u waits\n", t->graphs.count,
         t->buffers.count, t->ops.count, t->tiles.count, t->counters.count, t->waits.count);
}

static void print_graphs(const gpuos_table_t *t) {
  puts("\ngraph                            class       deadline        tiles    operators");
  const gpuos_graph_t *g = GPUOS_SECTION(t, gpuos_graph_t, graphs);
  for (uint32_t i = 0; i < t->graphs.count; i++) {
    char deadline[24] = "-";
    if (g[i].deadline_us != 0) snprintf(deadline, sizeof deadline, "%u us", g[i].deadline_us);
    printf("%-32s %-10s %9s %12u %12u\n", string(t, g[i].name), g[i].live ? "live" : "background",
           deadline, g[i].tile_count, g[i].op_count);
  }
}

static void print_buffers(const gpuos_table_t *t) {
  puts("\nbuffer role      dtype       size  shape                name");
  const gpuos_buffer_t *b = GPUOS_SECTION(t, gpuos_buffer_t, buffers);
  for (uint32_t i = 0; i < t->buffers.count; i++)
    printf("%6u %-9s %-5s %10s  %-20s %s\n", i, gos_role_name(b[i].role),
           gos_dtype_name(b[i].dtype), gos_size(b[i].bytes).text,
           gos_shape(b[i].shape, b[i].rank).text, string(t, b[i].name));
}

// ---- operators ----------------------------------------------------------------------------------

static void print_operand(const gpuos_table_t *t, const gpuos_operand_t *x) {
  const gpuos_buffer_t *buffer = GPUOS_SECTION(t, gpuos_buffer_t, buffers) + x->buffer;
  printf("         %s %-8s %-4s buffer %u %s + %" PRIu64 ", extent %s, stride %s, follows",
         x->writes ? "writes" : "reads ", gos_as_name(x->as), gos_dtype_name(x->dtype), x->buffer,
         string(t, buffer->name), x->offset_bytes, gos_shape(x->extent, GPUOS_DIMS).text,
         gos_shape(x->stride, GPUOS_DIMS).text);
  for (int d = 0; d < GPUOS_DIMS; d++)
    if (x->follows[d] == GPUOS_ALL)
      printf(" all");
    else
      printf(" %u", x->follows[d]);
  printf(", value %u\n", x->value);
}

static void print_code(const gpuos_code_t *code, uint32_t count) {
  static const char *const names[] = {"acc", "input", "const", "add",  "sub", "mul",
                                      "div", "max",   "min",   "neg",  "abs", "exp",
                                      "log", "sqrt",  "rsqrt", "tanh", "erf", "round"};
  GPUOS_STATIC_ASSERT(sizeof names / sizeof names[0] == GPUOS_CODE_COUNT, "a code has no name");
  for (uint32_t i = 0; i < count; i++) {
    const char *name = names[code[i].op];
    printf("         v%u = %s", i, name);
    if (code[i].op == GPUOS_CODE_CONST)
      printf(" %.9g\n", (double)code[i].imm);
    else if (code[i].op == GPUOS_CODE_ROUND)
      printf(" v%u to %s\n", code[i].a, gos_dtype_name(code[i].b));
    else if (code[i].op <= GPUOS_CODE_INPUT)
      printf(" %u\n", code[i].a);
    else if (code[i].op >= GPUOS_CODE_NEG)
      printf(" v%u\n", code[i].a);
    else
      printf(" v%u v%u\n", code[i].a, code[i].b);
  }
}

static void print_details(const gpuos_table_t *t, const gpuos_op_t *op) {
  const gpuos_footprint_t *f = &op->footprint;
  printf("         a unit: %.3g Mflop, HBM %s read %s written, L2 %s read", (double)f->flops * 1e-6,
         gos_size(f->hbm_read_bytes).text, gos_size(f->hbm_write_bytes).text,
         gos_size(f->l2_read_bytes).text);
  printf(" %s kept, %s shared, %u uJ\n         params", gos_size(f->l2_kept_bytes).text,
         gos_size(f->smem_bytes).text, f->energy_uj);
  for (int i = 0; i < GPUOS_PARAMS; i++) printf(" %08x", op->params[i]);
  putchar('\n');
  const gpuos_operand_t *x = GPUOS_SECTION(t, gpuos_operand_t, operands) + op->first_operand;
  for (uint32_t i = 0; i < op->operand_count; i++) print_operand(t, &x[i]);
  print_code(GPUOS_SECTION(t, gpuos_code_t, code) + op->first_code, op->code_count);
}

static uint64_t tile_count(const gpuos_op_t *op) {
  uint64_t tiles = 1;
  for (int d = 0; d < GPUOS_DIMS; d++) tiles *= gpuos_op_grid(op, d);
  return tiles;
}

static void print_ops(const gpuos_table_t *t, bool details) {
  puts("\n    op kind          extent               tile                   tiles x units    bound  "
       "HBM a unit  name");
  const gpuos_op_t *op = GPUOS_SECTION(t, gpuos_op_t, ops);
  for (uint32_t i = 0; i < t->ops.count; i++) {
    const gpuos_footprint_t *f = &op[i].footprint;
    printf("%6u %-13s %-20s %-20s %8" PRIu64 " x %-5u %6.1f us %10s  %s", i,
           gos_kind_name(op[i].kind), gos_shape(op[i].extent, GPUOS_DIMS).text,
           gos_shape(op[i].tile, GPUOS_DIMS).text, tile_count(&op[i]), gpuos_op_slices(&op[i]),
           op[i].bound_ns * 1e-3, gos_size((uint64_t)f->hbm_read_bytes + f->hbm_write_bytes).text,
           string(t, op[i].name));
    printf(op[i].line != 0 ? " (line %u)\n" : "\n", op[i].line);
    if (details) print_details(t, &op[i]);
  }
}

// ---- tiles --------------------------------------------------------------------------------------

static void print_tile(const gpuos_table_t *t, uint32_t ticket, const gpuos_tile_t *tile) {
  const gpuos_op_t *op = GPUOS_SECTION(t, gpuos_op_t, ops) + tile->op;
  const gpuos_wait_list_t *list = GPUOS_SECTION(t, gpuos_wait_list_t, wait_lists) + tile->wait_list;
  const gpuos_wait_t *wait = GPUOS_SECTION(t, gpuos_wait_t, waits) + list->first;
  gpuos_box_t box = gpuos_tile_box(op, tile->index);
  printf("%8u op %u %s from %s size %s", ticket, tile->op, string(t, op->name),
         gos_shape(box.lo, GPUOS_DIMS).text, gos_shape(box.n, GPUOS_DIMS).text);
  for (uint32_t i = 0; i < list->count; i++)
    printf("%s c%u >= %u%s", i == 0 ? ", waits" : " and", wait[i].counter, wait[i].threshold,
           i < list->count - list->stamped ? "" : " or stamps");
  if (tile->signal != GPUOS_NONE) printf(", signals c%u", tile->signal);
  putchar('\n');
}

static void print_tiles(const gpuos_table_t *t) {
  puts("\n  ticket tile");
  const gpuos_tile_t *tiles = GPUOS_SECTION(t, gpuos_tile_t, tiles);
  for (uint32_t i = 0; i < t->tiles.count; i++) print_tile(t, i, &tiles[i]);
}

// ---- entry --------------------------------------------------------------------------------------

static void print_all(const inspection_t *what, const gos_artefact_t *artefact,
                      const gpuos_table_t *table) {
  print_header(what->path, artefact, table);
  print_graphs(table);
  print_buffers(table);
  print_ops(table, what->ops);
  if (what->tiles) print_tiles(table);
}

static int inspect_file(const inspection_t *what) {
  gos_error_t error = {0};
  gos_file_t file;
  gos_artefact_t artefact;
  gpuos_status_t status = gos_file_map(what->path, &error, &file);
  if (status == GPUOS_OK) status = gos_artefact_find(file.data, file.bytes, &error, &artefact);
  for (uint32_t i = 0; status == GPUOS_OK && i < artefact.table_count; i++) {
    gpuos_table_t *table = NULL;
    status = gos_artefact_table(&artefact, i, &error, &table);
    if (status == GPUOS_OK) print_all(what, &artefact, table);
    free(table);
  }
  if (status != GPUOS_OK)
    gos_say("error: %s: %s [%s]", what->path, error.text, gpuos_status_name(status));
  gos_file_unmap(&file);
  return status == GPUOS_OK ? GOS_EXIT_OK : GOS_EXIT_FAILED;
}

static bool parse(inspection_t *what, int argc, char **argv) {
  gos_words_t words = {.argc = argc, .argv = argv};
  const char *value;
  for (int word; (word = gos_next_word(&words, option_list, OPTION_COUNT, &value)) != GOS_WORD_END;)
    switch (word) {
    case GOS_WORD_BAD: return false;
    case OPS: what->ops = true; break;
    case TILES: what->tiles = true; break;
    case HELP: what->help = true; break;
    default:
      if (what->path != NULL) {
        gos_say("inspect takes one file; '%s' is one too many", value);
        return false;
      }
      what->path = value;
    }
  if (what->path == NULL && !what->help) gos_say("inspect which file? usage: gpuos inspect FILE");
  return what->path != NULL || what->help;
}

int gos_cli_inspect(int argc, char **argv) {
  inspection_t what = {0};
  if (!parse(&what, argc, argv)) return GOS_EXIT_USAGE;
  if (!what.help) return inspect_file(&what);
  puts("usage: gpuos inspect FILE [options]\n");
  gos_print_options(stdout, option_list, OPTION_COUNT);
  return GOS_EXIT_OK;
}
