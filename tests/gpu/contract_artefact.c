// contract_artefact.c: an artefact out of contract.cubin, or out of what fake_cuda.c takes for one.
#include "contract_artefact.h"

#include <elf.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models.h"
#include "tables.h"

// What contract.cu has in place of what make_artefact writes.
static const uint64_t old_hash = 0x7ab1e7ab1e7ab1e7;
static const uint32_t old_launch[8] = {64, 4096, 1, 1, 0, 0, 0, 0x1a0c4000};

// What fake_cuda.c takes for a cubin: an ELF header, its module's globals, section names.
static bytes_t make_fake(void) {
  typedef struct fake {
    Elf64_Ehdr header;
    char marker[16];
    uint64_t hash;
    uint32_t launch[8];
    char names[16];
    Elf64_Shdr sections[2];
  } fake_t;
  fake_t *f = calloc(1, sizeof *f);
  f->header = (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0, 8},
                           .e_machine = 190,
                           .e_flags = 0x06005a04, // as CUDA 13 writes for sm_90a
                           .e_shoff = offsetof(fake_t, sections),
                           .e_shentsize = sizeof(Elf64_Shdr),
                           .e_shnum = 2,
                           .e_shstrndx = 1};
  strcpy(f->marker, "fake globals");
  f->hash = old_hash;
  memcpy(f->launch, old_launch, sizeof f->launch);
  f->sections[1] = (Elf64_Shdr){
      .sh_type = SHT_STRTAB, .sh_offset = offsetof(fake_t, names), .sh_size = sizeof f->names};
  return (bytes_t){.at = (char *)f, .count = sizeof *f};
}

static bytes_t read_file(const char *path) {
  if (strcmp(path, "fake") == 0) return make_fake();
  FILE *file = fopen(path, "rb");
  bytes_t bytes = {.at = malloc(1 << 20)};
  if (file == NULL || bytes.at == NULL) exit(2);
  bytes.count = fread(bytes.at, 1, 1 << 20, file);
  fclose(file);
  return bytes;
}

// Overwrites the only place that holds `old`.
static void patch(bytes_t bytes, const void *old, const void *new, size_t size) {
  for (size_t i = 0; i + size <= bytes.count; i++)
    if (memcmp(bytes.at + i, old, size) == 0) {
      memcpy(bytes.at + i, new, size);
      return;
    }
  puts("contract.cubin lacks a value to patch");
  exit(2);
}

// Appends section names, the table and a section header table of one more section.
static bytes_t attach(bytes_t cubin, const gpuos_table_t *table) {
  static const char name[16] = ".gpuos.sched";
  Elf64_Ehdr h;
  memcpy(&h, cubin.at, sizeof h);
  Elf64_Shdr sections[64] = {{0}};
  memcpy(sections, cubin.at + h.e_shoff, h.e_shnum * sizeof sections[0]);
  Elf64_Shdr *names = &sections[h.e_shstrndx], *added = &sections[h.e_shnum];
  size_t at = (cubin.count + 15) & ~(size_t)15, names_bytes = names->sh_size;
  bytes_t out = {.at = calloc(1, at + names_bytes + 64 + table->bytes + sizeof sections)};
  memcpy(out.at, cubin.at, cubin.count);
  memcpy(out.at + at, cubin.at + names->sh_offset, names_bytes);
  memcpy(out.at + at + names_bytes, name, sizeof name);
  *added = (Elf64_Shdr){.sh_name = (Elf64_Word)names_bytes, .sh_type = SHT_PROGBITS};
  *names = (Elf64_Shdr){.sh_name = names->sh_name,
                        .sh_type = SHT_STRTAB,
                        .sh_offset = at,
                        .sh_size = names_bytes + sizeof name,
                        .sh_addralign = 1};
  added->sh_offset = at = (at + names_bytes + sizeof name + 15) & ~(size_t)15;
  added->sh_size = table->bytes;
  added->sh_addralign = 16;
  memcpy(out.at + at, table, table->bytes);
  h.e_shnum++;
  h.e_shoff = at + table->bytes;
  memcpy(out.at + h.e_shoff, sections, h.e_shnum * sizeof sections[0]);
  memcpy(out.at, &h, sizeof h);
  out.count = h.e_shoff + h.e_shnum * sizeof sections[0];
  return out;
}

bytes_t make_artefact(const char *path, variant_t v) {
  const uint32_t launch[8] = {v.threads, v.smem_bytes,   v.ctas_per_sm, v.cluster,
                              0,         v.l2_keep_bytes};
  bytes_t cubin = read_file(path);
  gpuos_table_t *table = gos_model_scale(CONTRACT_COUNT);
  table->arch = 90;
  gos_tables_seal(table);
  uint64_t hash = table->hash ^ v.hash_xor;
  patch(cubin, &old_hash, &hash, sizeof hash);
  patch(cubin, old_launch, launch, sizeof launch);
  bytes_t artefact = attach(cubin, table);
  free(cubin.at);
  free(table);
  return artefact;
}
