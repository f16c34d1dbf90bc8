// test_artefact.c: finds the tables in good artefacts and survives bad ones.
#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artefact.h"
#include "models.h"
#include "tables.h"

static gos_error_t error;

static gpuos_status_t find(const void *data, size_t bytes, gos_artefact_t *out) {
  error = (gos_error_t){0};
  return gos_artefact_find(data, bytes, &error, out);
}

// `count` tables of different sizes, one behind the other.
static char *make_tables(uint32_t arch, uint32_t count, size_t *out_bytes) {
  char *all = NULL;
  *out_bytes = 0;
  for (uint32_t i = 0; i < count; i++) {
    gpuos_table_t *table = gos_model_scale(10 + 20 * i);
    table->arch = arch;
    gos_tables_seal(table);
    all = realloc(all, *out_bytes + table->bytes);
    memcpy(all + *out_bytes, table, table->bytes);
    *out_bytes += table->bytes;
    free(table);
  }
  return all;
}

// ---- a cubin in miniature -----------------------------------------------------------------------

enum { SECTIONS = 3, NAME_AT = 1 };

// The smallest ELF file that passes for a cubin with tables: null section, names, tables.
typedef struct cubin {
  Elf64_Ehdr header;
  Elf64_Shdr sections[SECTIONS];
  char names[32];
  char table[]; // 16-byte aligned
} cubin_t;

static cubin_t *make_cubin(uint32_t arch, uint32_t tables, size_t *out_bytes) {
  size_t table_bytes;
  char *table = make_tables(arch, tables, &table_bytes);
  *out_bytes = sizeof(cubin_t) + table_bytes;
  cubin_t *c = calloc(1, *out_bytes);
  c->header = (Elf64_Ehdr){.e_machine = 190,
                           .e_flags = 0x06005a04, // as CUDA 13 writes for sm_90a
                           .e_shoff = offsetof(cubin_t, sections),
                           .e_shentsize = sizeof(Elf64_Shdr),
                           .e_shnum = SECTIONS,
                           .e_shstrndx = 1};
  memcpy(c->header.e_ident, ELFMAG, SELFMAG);
  c->header.e_ident[EI_CLASS] = ELFCLASS64;
  c->header.e_ident[EI_DATA] = ELFDATA2LSB;
  c->header.e_ident[EI_ABIVERSION] = 8;
  c->sections[1] = (Elf64_Shdr){
      .sh_type = SHT_STRTAB, .sh_offset = offsetof(cubin_t, names), .sh_size = sizeof c->names};
  c->sections[2] = (Elf64_Shdr){.sh_type = SHT_PROGBITS,
                                .sh_name = NAME_AT,
                                .sh_offset = offsetof(cubin_t, table),
                                .sh_size = table_bytes};
  strcpy(c->names + NAME_AT, ".gpuos.sched");
  memcpy(c->table, table, table_bytes);
  free(table);
  return c;
}

// ---- good ones ----------------------------------------------------------------------------------

Test(artefact, finds_a_bare_table) {
  gpuos_table_t *table = gos_model_scale(10);
  gos_artefact_t found;
  cr_assert_eq(find(table, table->bytes, &found), GPUOS_OK, "%s", error.text);
  cr_assert_eq(found.tables[0].at, (void *)table);
  cr_assert_eq(found.tables[0].bytes, table->bytes);
  cr_assert_eq(found.table_count, 1);
  cr_assert_null(found.cubin);
  free(table);
}

Test(artefact, finds_the_table_in_a_cubin) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, 1, &bytes);
  gos_artefact_t found;
  cr_assert_eq(find(cubin, bytes, &found), GPUOS_OK, "%s", error.text);
  cr_assert_eq(found.tables[0].at, (void *)cubin->table);
  cr_assert_eq(found.cubin_bytes, bytes);
  cr_assert_eq(found.arch, 90);
  free(cubin);
}

Test(artefact, reads_the_architecture_of_older_cubins) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, 1, &bytes);
  cubin->header.e_ident[EI_ABIVERSION] = 7;
  cubin->header.e_flags = 0x005a055a; // as CUDA 12 writes for sm_90
  gos_artefact_t found;
  cr_assert_eq(find(cubin, bytes, &found), GPUOS_OK, "%s", error.text);
  free(cubin);
}

Test(artefact, copies_and_proves_an_unaligned_table) {
  gpuos_table_t *table = gos_model_scale(10), *copy;
  char *shifted = malloc(table->bytes + 3);
  memcpy(shifted + 3, table, table->bytes);
  gos_artefact_t found;
  cr_assert_eq(find(shifted + 3, table->bytes, &found), GPUOS_OK);
  cr_assert_eq(gos_artefact_table(&found, 0, &error, &copy), GPUOS_OK, "%s", error.text);
  cr_assert_eq(memcmp(copy, table, table->bytes), 0);
  free(copy);
  free(shifted);
  free(table);
}

// ---- a live program and its job -----------------------------------------------------------------

// Both tables are where they lie, and can be loaded.
static void expect_both(const gos_artefact_t *found, const char *tables, size_t bytes) {
  size_t first = ((const gpuos_table_t *)(const void *)tables)->bytes;
  cr_assert_eq(found->table_count, 2);
  cr_expect_eq(found->tables[0].at, (const void *)tables);
  cr_expect_eq(found->tables[0].bytes, first);
  cr_expect_eq(found->tables[1].at, (const void *)(tables + first));
  cr_expect_eq(found->tables[1].bytes, bytes - first);
  for (uint32_t i = 0; i < 2; i++) {
    gpuos_table_t *copy;
    cr_assert_eq(gos_artefact_table(found, i, &error, &copy), GPUOS_OK, "%s", error.text);
    cr_expect_eq(copy->bytes, found->tables[i].bytes);
    cr_expect_eq(memcmp(copy, found->tables[i].at, copy->bytes), 0);
    free(copy);
  }
}

Test(artefact, finds_two_bare_tables) {
  size_t bytes;
  char *tables = make_tables(0, 2, &bytes);
  gos_artefact_t found;
  cr_assert_eq(find(tables, bytes, &found), GPUOS_OK, "%s", error.text);
  cr_assert_null(found.cubin);
  expect_both(&found, tables, bytes);
  free(tables);
}

Test(artefact, finds_two_tables_in_a_cubin) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, 2, &bytes);
  gos_artefact_t found;
  cr_assert_eq(find(cubin, bytes, &found), GPUOS_OK, "%s", error.text);
  cr_assert_eq(found.arch, 90);
  cr_assert_eq(found.cubin_bytes, bytes);
  expect_both(&found, cubin->table, bytes - sizeof *cubin);
  free(cubin);
}

// ---- bad ones -----------------------------------------------------------------------------------

Test(artefact, explains_what_is_no_artefact) {
  const struct {
    const char *data;
    size_t bytes;
    const char *says;
  } cases[] = {
      {"", 0, "neither"},
      {"GPO", 3, "neither"},
      {"hello, world", 12, "neither"},
      {"GPOS", 4, "cut short at 4 bytes"},
      {"\177ELF", 4, "shorter than an ELF header"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    gos_artefact_t found;
    cr_expect_eq(find(cases[i].data, cases[i].bytes, &found), GPUOS_BAD_ARTEFACT);
    cr_expect_not_null(strstr(error.text, cases[i].says), "case %zu says: %s", i, error.text);
  }
}

Test(artefact, tells_another_version_from_damage) {
  gpuos_table_t *table = gos_model_scale(10);
  gos_artefact_t found;
  char says[32];
  table->version = GPUOS_ABI_VERSION + 1;
  snprintf(says, sizeof says, "version %d", GPUOS_ABI_VERSION + 1);
  cr_assert_eq(find(table, table->bytes, &found), GPUOS_BAD_VERSION);
  cr_assert_not_null(strstr(error.text, says), "%s", error.text);
  free(table);
}

Test(artefact, rejects_every_truncation) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, 1, &bytes);
  for (size_t n = 0; n < bytes; n++) {
    char *cut = malloc(n + 1); // its own block, so that a sanitizer sees a read past the end
    memcpy(cut, cubin, n);
    cut = realloc(cut, n > 0 ? n : 1);
    gos_artefact_t found;
    cr_assert_eq(find(cut, n, &found), GPUOS_BAD_ARTEFACT, "accepted %zu of %zu bytes", n, bytes);
    free(cut);
  }
  free(cubin);
}

Test(artefact, rejects_a_second_table_cut_short) {
  size_t bytes;
  char *tables = make_tables(0, 2, &bytes);
  size_t first = ((gpuos_table_t *)(void *)tables)->bytes;
  for (size_t n = first + 1; n < bytes; n++) {
    char *cut = malloc(n); // its own block, as above
    memcpy(cut, tables, n);
    gos_artefact_t found;
    cr_assert_eq(find(cut, n, &found), GPUOS_BAD_ARTEFACT, "accepted %zu of %zu bytes", n, bytes);
    const char *says = n - first < sizeof(gpuos_table_t) ? "cut short at" : "there are";
    cr_assert_not_null(strstr(error.text, says), "%zu bytes: %s", n, error.text);
    free(cut);
  }
  free(tables);
}

Test(artefact, rejects_three_tables) {
  size_t bytes;
  gos_artefact_t found;
  char *tables = make_tables(0, 3, &bytes);
  cr_expect_eq(find(tables, bytes, &found), GPUOS_BAD_ARTEFACT);
  cr_expect_not_null(strstr(error.text, "there are"), "%s", error.text);
  free(tables);
  cubin_t *cubin = make_cubin(90, 3, &bytes);
  cr_expect_eq(find(cubin, bytes, &found), GPUOS_BAD_ARTEFACT);
  free(cubin);
}

Test(artefact, distrusts_the_second_table_as_the_first) {
  static const struct {
    const char *says;
    gpuos_status_t status;
    uint32_t magic, version, arch;
  } cases[] = {
      {"does not begin with GPOS", GPUOS_BAD_ARTEFACT, GPUOS_MAGIC + 1, GPUOS_ABI_VERSION, 90},
      {"has ABI version", GPUOS_BAD_VERSION, GPUOS_MAGIC, GPUOS_ABI_VERSION - 1, 90},
      {"for sm_80, the one before it for sm_90", GPUOS_BAD_ARTEFACT, GPUOS_MAGIC, GPUOS_ABI_VERSION,
       80},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    size_t bytes;
    cubin_t *cubin = make_cubin(90, 2, &bytes);
    gpuos_table_t *first = (gpuos_table_t *)(void *)cubin->table;
    gpuos_table_t *second = (gpuos_table_t *)(void *)(cubin->table + first->bytes);
    second->magic = cases[i].magic;
    second->version = cases[i].version;
    second->arch = cases[i].arch;
    gos_artefact_t found;
    cr_expect_eq(find(cubin, bytes, &found), cases[i].status, "case %zu", i);
    cr_expect_not_null(strstr(error.text, cases[i].says), "case %zu says: %s", i, error.text);
    free(cubin);
  }
}

// One field of the cubin, overwritten.
typedef struct edit {
  const char *says;
  size_t at, size;
  uint64_t value;
} edit_t;
#define EDIT(says, field, value)                                                                   \
  { says, offsetof(cubin_t, field), sizeof((cubin_t *)0)->field, value }

Test(artefact, distrusts_every_offset) {
  const edit_t edits[] = {
      EDIT("for machine 62", header.e_machine, EM_X86_64),
      EDIT("section header size", header.e_shentsize, 65),
      EDIT("section headers lie outside", header.e_shoff, UINT64_MAX),
      EDIT("section headers lie outside", header.e_shoff, UINT64_MAX - 190),
      EDIT("section headers lie outside", header.e_shnum, 0xffff),
      EDIT("no section names", header.e_shnum, 0),
      EDIT("no section names", header.e_shstrndx, SECTIONS),
      EDIT("section names lie outside", sections[1].sh_offset, UINT64_MAX - 8),
      EDIT("section names lie outside", sections[1].sh_size, UINT64_MAX),
      EDIT("section names lie outside", sections[1].sh_type, SHT_NOBITS),
      EDIT("without section", sections[1].sh_size, NAME_AT + 12), // the name lacks its NUL
      EDIT("without section", sections[2].sh_name, UINT32_MAX),
      EDIT("sched lies outside", sections[2].sh_offset, UINT64_MAX),
      EDIT("sched lies outside", sections[2].sh_size, UINT64_MAX),
      EDIT("sched lies outside", sections[2].sh_type, SHT_NOBITS),
      EDIT("cut short", sections[2].sh_size, 8),
      EDIT("does not begin with GPOS", sections[2].sh_offset, 0),
      EDIT("the code around it for sm_80", header.e_flags, 0x06005004),
  };
  for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
    size_t bytes;
    cubin_t *cubin = make_cubin(90, 1, &bytes);
    memcpy((char *)cubin + edits[i].at, &edits[i].value, edits[i].size);
    gos_artefact_t found;
    cr_expect_eq(find(cubin, bytes, &found), GPUOS_BAD_ARTEFACT, "edit %zu", i);
    cr_expect_not_null(strstr(error.text, edits[i].says), "edit %zu says: %s", i, error.text);
    free(cubin);
  }
}

// Each table lies inside the file, behind the one before.
static void expect_inside(const gos_artefact_t *found, const void *data, size_t bytes, size_t byte) {
  size_t from = 0;
  for (uint32_t i = 0; i < found->table_count; i++) {
    size_t at = (size_t)((const char *)found->tables[i].at - (const char *)data);
    cr_assert(at >= from && at <= bytes && found->tables[i].bytes <= bytes - at, "byte %zu", byte);
    from = at + found->tables[i].bytes;
  }
}

// Whatever one byte says, the tables found lie inside the file.
static void survive_altered_bytes(cubin_t *cubin, size_t bytes, size_t altered) {
  for (size_t i = 0; i < altered; i++)
    for (int value = 0; value < 256; value++) {
      char *at = (char *)cubin + i, old = *at;
      *at = (char)value;
      gos_artefact_t found;
      if (find(cubin, bytes, &found) == GPUOS_OK) expect_inside(&found, cubin, bytes, i);
      *at = old;
    }
  free(cubin);
}

Test(artefact, survives_every_altered_byte_of_a_cubin) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, 1, &bytes);
  survive_altered_bytes(cubin, bytes, offsetof(cubin_t, table));
}

Test(artefact, survives_every_altered_byte_of_a_cubin_and_its_two_tables) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, 2, &bytes);
  survive_altered_bytes(cubin, bytes, bytes);
}

// All tables of the artefact, as a loader takes them.
static gpuos_status_t load_all(const void *data, size_t bytes) {
  gos_artefact_t found;
  gpuos_status_t status = find(data, bytes, &found);
  for (uint32_t i = 0; status == GPUOS_OK && i < found.table_count; i++) {
    gpuos_table_t *copy = NULL;
    status = gos_artefact_table(&found, i, &error, &copy);
    cr_assert_eq(copy == NULL, status != GPUOS_OK);
    free(copy);
  }
  return status;
}

// An altered table is found, but not loaded.
static void reject_altered_bytes(uint32_t count) {
  size_t bytes;
  char *tables = make_tables(0, count, &bytes);
  cr_assert_eq(load_all(tables, bytes), GPUOS_OK, "%s", error.text);
  for (size_t i = 0; i < bytes; i++) {
    tables[i] ^= 0x20;
    cr_assert_neq(load_all(tables, bytes), GPUOS_OK, "byte %zu", i);
    tables[i] ^= 0x20;
  }
  free(tables);
}
Test(artefact, rejects_every_altered_byte_of_the_table) { reject_altered_bytes(1); }
Test(artefact, rejects_every_altered_byte_of_two_tables) { reject_altered_bytes(2); }

Test(artefact, tells_an_unsafe_schedule_from_damage) {
  gpuos_table_t *table = gos_model_scale(10), *copy;
  gpuos_tile_t *tiles = (gpuos_tile_t *)(uintptr_t)GPUOS_SECTION(table, gpuos_tile_t, tiles);
  tiles[3].wait_list = 0; // reads a product that nobody made sure of
  gos_tables_seal(table);
  gos_artefact_t found;
  cr_assert_eq(find(table, table->bytes, &found), GPUOS_OK);
  cr_assert_eq(gos_artefact_table(&found, 0, &error, &copy), GPUOS_UNSAFE_SCHEDULE, "%s", error.text);
  cr_assert_not_null(strchr(error.text, '['), "no slug: %s", error.text);
  free(table);
}
