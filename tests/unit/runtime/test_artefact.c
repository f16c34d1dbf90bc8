// test_artefact.c: finds the table in good artefacts and survives bad ones.
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

// ---- a cubin in miniature -----------------------------------------------------------------------

enum { SECTIONS = 3, NAME_AT = 1 };

// The smallest ELF file that passes for a cubin with a table: null section, names, table.
typedef struct cubin {
  Elf64_Ehdr header;
  Elf64_Shdr sections[SECTIONS];
  char names[32];
  char table[]; // 16-byte aligned
} cubin_t;

static gpuos_table_t *table_for(uint32_t arch) {
  gpuos_table_t *table = gos_model_scale(10);
  table->arch = arch;
  gos_tables_seal(table);
  return table;
}

static cubin_t *make_cubin(uint32_t arch, size_t *out_bytes) {
  gpuos_table_t *table = table_for(arch);
  *out_bytes = sizeof(cubin_t) + table->bytes;
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
                                .sh_size = table->bytes};
  strcpy(c->names + NAME_AT, ".gpuos.sched");
  memcpy(c->table, table, table->bytes);
  free(table);
  return c;
}

// ---- good ones ----------------------------------------------------------------------------------

Test(artefact, finds_a_bare_table) {
  gpuos_table_t *table = gos_model_scale(10);
  gos_artefact_t found;
  cr_assert_eq(find(table, table->bytes, &found), GPUOS_OK, "%s", error.text);
  cr_assert_eq(found.table, (void *)table);
  cr_assert_eq(found.table_bytes, table->bytes);
  cr_assert_null(found.cubin);
  free(table);
}

Test(artefact, finds_the_table_in_a_cubin) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, &bytes);
  gos_artefact_t found;
  cr_assert_eq(find(cubin, bytes, &found), GPUOS_OK, "%s", error.text);
  cr_assert_eq(found.table, (void *)cubin->table);
  cr_assert_eq(found.cubin_bytes, bytes);
  cr_assert_eq(found.arch, 90);
  free(cubin);
}

Test(artefact, reads_the_architecture_of_older_cubins) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, &bytes);
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
  cr_assert_eq(gos_artefact_table(&found, &error, &copy), GPUOS_OK, "%s", error.text);
  cr_assert_eq(memcmp(copy, table, table->bytes), 0);
  free(copy);
  free(shifted);
  free(table);
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
  cubin_t *cubin = make_cubin(90, &bytes);
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
    cubin_t *cubin = make_cubin(90, &bytes);
    memcpy((char *)cubin + edits[i].at, &edits[i].value, edits[i].size);
    gos_artefact_t found;
    cr_expect_eq(find(cubin, bytes, &found), GPUOS_BAD_ARTEFACT, "edit %zu", i);
    cr_expect_not_null(strstr(error.text, edits[i].says), "edit %zu says: %s", i, error.text);
    free(cubin);
  }
}

// Whatever one byte of the headers says, the table found lies inside the file.
Test(artefact, survives_every_altered_byte_of_a_cubin) {
  size_t bytes;
  cubin_t *cubin = make_cubin(90, &bytes);
  for (size_t i = 0; i < offsetof(cubin_t, table); i++)
    for (int value = 0; value < 256; value++) {
      char *at = (char *)cubin + i, old = *at;
      *at = (char)value;
      gos_artefact_t found;
      if (find(cubin, bytes, &found) == GPUOS_OK) {
        size_t offset = (size_t)((const char *)found.table - (const char *)cubin);
        cr_assert(offset <= bytes && found.table_bytes <= bytes - offset, "byte %zu", i);
      }
      *at = old;
    }
  free(cubin);
}

// An altered table is found, but not loaded.
Test(artefact, rejects_every_altered_byte_of_the_table) {
  gpuos_table_t *table = gos_model_scale(10);
  for (size_t i = 0; i < table->bytes; i++) {
    char *bytes = (char *)table;
    size_t size = table->bytes;
    bytes[i] ^= 0x20;
    gos_artefact_t found;
    gpuos_table_t *copy = NULL;
    gpuos_status_t status = find(table, size, &found);
    if (status == GPUOS_OK) status = gos_artefact_table(&found, &error, &copy);
    cr_assert_neq(status, GPUOS_OK, "byte %zu", i);
    cr_assert_null(copy);
    bytes[i] ^= 0x20;
  }
  free(table);
}

Test(artefact, tells_an_unsafe_schedule_from_damage) {
  gpuos_table_t *table = gos_model_scale(10), *copy;
  gpuos_tile_t *tiles = (gpuos_tile_t *)(uintptr_t)GPUOS_SECTION(table, gpuos_tile_t, tiles);
  tiles[3].wait_list = 0; // reads a product that nobody made sure of
  gos_tables_seal(table);
  gos_artefact_t found;
  cr_assert_eq(find(table, table->bytes, &found), GPUOS_OK);
  cr_assert_eq(gos_artefact_table(&found, &error, &copy), GPUOS_UNSAFE_SCHEDULE, "%s", error.text);
  cr_assert_not_null(strchr(error.text, '['), "no slug: %s", error.text);
  free(table);
}
