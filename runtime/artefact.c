#include "artefact.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { EM_CUDA_MACHINE = 190 };
static const char section_name[] = ".gpuos.sched";

// The cubin's bytes. Structs are copied out: nothing says that they are aligned.
typedef struct elf {
  const unsigned char *data;
  size_t bytes;
  Elf64_Ehdr header;
  Elf64_Shdr names; // section header string table
} elf_t;

static bool inside(const elf_t *elf, uint64_t offset, uint64_t bytes) {
  return offset <= elf->bytes && bytes <= elf->bytes - offset;
}

static Elf64_Shdr section(const elf_t *elf, unsigned index) {
  Elf64_Shdr header;
  memcpy(&header, elf->data + elf->header.e_shoff + (size_t)index * sizeof header, sizeof header);
  return header;
}

static bool has_name(const elf_t *elf, const Elf64_Shdr *header) {
  uint64_t at = header->sh_name, size = elf->names.sh_size;
  if (at > size || sizeof section_name > size - at) return false;
  return memcmp(elf->data + elf->names.sh_offset + at, section_name, sizeof section_name) == 0;
}

static gpuos_status_t damaged(gos_error_t *error, const char *what) {
  return gos_fail(error, GPUOS_BAD_ARTEFACT, "damaged cubin: %s", what);
}

static gpuos_status_t read_header(elf_t *elf, gos_error_t *error) {
  Elf64_Ehdr *h = &elf->header;
  if (elf->bytes < sizeof *h) return damaged(error, "shorter than an ELF header");
  memcpy(h, elf->data, sizeof *h);
  if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
      h->e_machine != EM_CUDA_MACHINE)
    return gos_fail(error, GPUOS_BAD_ARTEFACT, "an ELF file for machine %u, not a cubin (%d)",
                    h->e_machine, EM_CUDA_MACHINE);
  if (h->e_shentsize != sizeof(Elf64_Shdr)) return damaged(error, "odd section header size");
  if (!inside(elf, h->e_shoff, (uint64_t)h->e_shnum * sizeof(Elf64_Shdr)))
    return damaged(error, "section headers lie outside the file");
  if (h->e_shstrndx >= h->e_shnum) return damaged(error, "no section names");
  elf->names = section(elf, h->e_shstrndx);
  if (elf->names.sh_type == SHT_NOBITS || !inside(elf, elf->names.sh_offset, elf->names.sh_size))
    return damaged(error, "section names lie outside the file");
  return GPUOS_OK;
}

// The architecture sits in byte 1 of e_flags since ELF ABI version 8 (CUDA 13), before in byte 0.
static uint32_t elf_arch(const Elf64_Ehdr *h) {
  return (h->e_ident[EI_ABIVERSION] >= 8 ? h->e_flags >> 8 : h->e_flags) & 0xff;
}

static gpuos_status_t find_section(const elf_t *elf, gos_error_t *error, gos_artefact_t *out) {
  for (unsigned i = 0; i < elf->header.e_shnum; i++) {
    Elf64_Shdr header = section(elf, i);
    if (!has_name(elf, &header)) continue;
    if (header.sh_type == SHT_NOBITS || !inside(elf, header.sh_offset, header.sh_size))
      return damaged(error, "section .gpuos.sched lies outside the file");
    out->tables[0].at = elf->data + header.sh_offset;
    out->tables[0].bytes = (size_t)header.sh_size;
    return GPUOS_OK;
  }
  return gos_fail(error, GPUOS_BAD_ARTEFACT,
                  "a cubin without section .gpuos.sched: gpuosc did not write it");
}

static gpuos_status_t find_in_elf(const void *data, size_t bytes, gos_error_t *error,
                                  gos_artefact_t *out) {
  elf_t elf = {.data = data, .bytes = bytes};
  gpuos_status_t status = read_header(&elf, error);
  if (status == GPUOS_OK) status = find_section(&elf, error, out);
  if (status != GPUOS_OK) return status;
  out->cubin = data;
  out->cubin_bytes = bytes;
  out->arch = elf_arch(&elf.header);
  return GPUOS_OK;
}

// Magic, version and size only, so that a stale or truncated file gets its own explanation. What follows the table is
// the next one's.
static gpuos_status_t read_table_header(gos_artefact_t *artefact, uint32_t number,
                                        gos_error_t *error) {
  gpuos_table_t header;
  const char *at = artefact->tables[number].at;
  size_t bytes = artefact->tables[number].bytes;
  if (bytes < sizeof header)
    return gos_fail(error, GPUOS_BAD_ARTEFACT, "the schedule table is cut short at %zu bytes",
                    bytes);
  memcpy(&header, at, sizeof header);
  if (header.magic != GPUOS_MAGIC)
    return gos_fail(error, GPUOS_BAD_ARTEFACT, "the schedule table does not begin with GPOS");
  if (header.version != GPUOS_ABI_VERSION)
    return gos_fail(error, GPUOS_BAD_VERSION,
                    "the schedule table has ABI version %u, this libgpuos reads %d", header.version,
                    GPUOS_ABI_VERSION);
  bool more = header.bytes < bytes && header.bytes >= sizeof header;
  if (header.bytes > bytes ||
      (header.bytes != bytes && (!more || number + 1 == GPUOS_MOST_PROGRAMS)))
    return gos_fail(error, GPUOS_BAD_ARTEFACT,
                    "the schedule table says it has %llu bytes, there are %zu",
                    (unsigned long long)header.bytes, bytes);
  if ((artefact->cubin != NULL || number > 0) && header.arch != artefact->arch)
    return gos_fail(error, GPUOS_BAD_ARTEFACT, "the schedule table is for sm_%u, %s for sm_%u",
                    header.arch, number > 0 ? "the one before it" : "the code around it",
                    artefact->arch);
  artefact->arch = header.arch;
  artefact->tables[number].bytes = (size_t)header.bytes;
  artefact->table_count = number + 1;
  if (!more) return GPUOS_OK;
  artefact->tables[number + 1].at = at + header.bytes;
  artefact->tables[number + 1].bytes = bytes - (size_t)header.bytes;
  return read_table_header(artefact, number + 1, error);
}

gpuos_status_t gos_artefact_find(const void *data, size_t bytes, gos_error_t *error,
                                 gos_artefact_t *out_artefact) {
  *out_artefact = (gos_artefact_t){0};
  gos_artefact_t found = {.tables[0] = {data, bytes}};
  gpuos_status_t status = GPUOS_OK;
  if (bytes >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0)
    status = find_in_elf(data, bytes, error, &found);
  else if (bytes < 4 || memcmp(data, "GPOS", 4) != 0)
    status =
        gos_fail(error, GPUOS_BAD_ARTEFACT, "neither a schedule table (GPOS) nor a cubin (ELF)");
  if (status == GPUOS_OK) status = read_table_header(&found, 0, error);
  if (status == GPUOS_OK) *out_artefact = found;
  return status;
}

static gpuos_status_t unsafe(gos_error_t *error, const gpuos_check_report_t *report) {
  gpuos_status_t status = strcmp(report->slug, "memory") == 0  ? GPUOS_OUT_OF_MEMORY
                          : strcmp(report->slug, "table") == 0 ? GPUOS_BAD_ARTEFACT
                                                               : GPUOS_UNSAFE_SCHEDULE;
  return gos_fail(error, status, "%s [%s]", report->message, report->slug);
}

gpuos_status_t gos_artefact_table(const gos_artefact_t *artefact, uint32_t number,
                                  gos_error_t *error, gpuos_table_t **out_table) {
  *out_table = NULL;
  size_t bytes = artefact->tables[number].bytes;
  gpuos_table_t *table = aligned_alloc(16, (bytes + 15) & ~(size_t)15);
  if (table == NULL)
    return gos_fail(error, GPUOS_OUT_OF_MEMORY, "no memory for a schedule table of %zu bytes",
                    bytes);
  memcpy(table, artefact->tables[number].at, bytes);
  gpuos_check_report_t report = {0};
  if (!gpuos_check(table, bytes, &report)) {
    free(table);
    return unsafe(error, &report);
  }
  *out_table = table;
  return GPUOS_OK;
}
