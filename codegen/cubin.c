// cubin.c: reads what a kernel takes from its cubin, and puts the schedule table into it.
//
// A cubin is ELF with undocumented sections. Program headers and relocations refer to file offsets,
// so nothing that is there may move: what is added goes to the end, with a new table of section
// headers after it.
#include <elf.h>
#include <string.h>

#include "codegen.h"

// Attributes of .nv.info (undocumented, stable since CUDA 7): u8 format, u8 attribute, u16; with
// format 4 that is the size of a payload, here { u32 symbol, u32 value }.
enum {
  INFO_SIZED = 4,
  INFO_FRAME_SIZE = 0x11, // of one function
  INFO_STACK_SIZE = 0x12, // of a kernel and what it calls
  INFO_REGCOUNT = 0x2f,
  EM_CUDA_MACHINE = 190,
  SYSTEM_SMEM_ARCH = 90, // from here on .nv.shared includes what the system reserves
  SYSTEM_SMEM_BYTES = 1024,
};

static const char section_name[] = ".gpuos.sched";

// ---- reading ------------------------------------------------------------------------------------

typedef struct elf {
  const unsigned char *at;
  size_t bytes;
  Elf64_Ehdr header;
  const Elf64_Shdr *sections; // e_shoff is 8-byte aligned in every cubin; checked
} elf_t;

static bool inside(const elf_t *elf, uint64_t offset, uint64_t bytes) {
  return offset <= elf->bytes && bytes <= elf->bytes - offset;
}

static bool open_elf(gos_bytes_t cubin, elf_t *out_elf) {
  elf_t elf = {.at = cubin.at, .bytes = cubin.count};
  if (cubin.count < sizeof elf.header) return false;
  memcpy(&elf.header, elf.at, sizeof elf.header);
  const Elf64_Ehdr *h = &elf.header;
  uint64_t table_bytes = (uint64_t)h->e_shnum * sizeof(Elf64_Shdr);
  if (memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 ||
      h->e_machine != EM_CUDA_MACHINE || h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff % 8 ||
      !inside(&elf, h->e_shoff, table_bytes) || h->e_shstrndx >= h->e_shnum)
    return false;
  elf.sections = (const Elf64_Shdr *)(const void *)(elf.at + h->e_shoff);
  for (uint32_t i = 0; i < h->e_shnum; i++)
    if (elf.sections[i].sh_type != SHT_NOBITS &&
        !inside(&elf, elf.sections[i].sh_offset, elf.sections[i].sh_size))
      return false;
  *out_elf = elf;
  return true;
}

// The string at `offset` of a string table; "" when it is not terminated there.
static const char *string_at(const elf_t *elf, const Elf64_Shdr *table, uint64_t offset) {
  if (offset >= table->sh_size) return "";
  const char *text = (const char *)elf->at + table->sh_offset + offset;
  return memchr(text, 0, table->sh_size - offset) ? text : "";
}

static const Elf64_Shdr *find_section(const elf_t *elf, const char *name) {
  const Elf64_Shdr *names = &elf->sections[elf->header.e_shstrndx];
  for (uint32_t i = 0; i < elf->header.e_shnum; i++)
    if (!strcmp(string_at(elf, names, elf->sections[i].sh_name), name)) return &elf->sections[i];
  return NULL;
}

static bool is_symbol(const elf_t *elf, uint32_t number, const char *name) {
  const Elf64_Shdr *table = find_section(elf, ".symtab");
  if (!table || table->sh_link >= elf->header.e_shnum) return false;
  if ((number + 1ull) * sizeof(Elf64_Sym) > table->sh_size) return false;
  Elf64_Sym symbol;
  memcpy(&symbol, elf->at + table->sh_offset + number * sizeof symbol, sizeof symbol);
  return !strcmp(string_at(elf, &elf->sections[table->sh_link], symbol.st_name), name);
}

// ---- resources ----------------------------------------------------------------------------------

static void read_attribute(const elf_t *elf, const unsigned char *at, const char *kernel,
                           gos_resources_t *out) {
  uint32_t symbol, value;
  memcpy(&symbol, at + 4, sizeof symbol);
  memcpy(&value, at + 8, sizeof value);
  if (!is_symbol(elf, symbol, kernel)) return;
  if (at[1] == INFO_REGCOUNT) out->registers = value;
  bool stack = at[1] == INFO_FRAME_SIZE || at[1] == INFO_STACK_SIZE;
  if (stack && value > out->stack_bytes) out->stack_bytes = value;
}

static void read_info(const elf_t *elf, const char *kernel, gos_resources_t *out) {
  const Elf64_Shdr *info = find_section(elf, ".nv.info");
  if (!info) return;
  const unsigned char *at = elf->at + info->sh_offset, *end = at + info->sh_size;
  while (end - at >= 4) {
    uint32_t payload = at[0] == INFO_SIZED ? at[2] | (uint32_t)at[3] << 8 : 0;
    if ((size_t)(end - at) < 4 + payload) return;
    if (at[0] == INFO_SIZED && payload == 8) read_attribute(elf, at, kernel, out);
    at += 4 + payload;
  }
}

static uint32_t static_smem(const elf_t *elf, const char *kernel, uint32_t arch) {
  const char prefix[] = ".nv.shared.";
  const Elf64_Shdr *names = &elf->sections[elf->header.e_shstrndx];
  uint32_t reserved = arch >= SYSTEM_SMEM_ARCH ? SYSTEM_SMEM_BYTES : 0;
  for (uint32_t i = 0; i < elf->header.e_shnum; i++) {
    const char *name = string_at(elf, names, elf->sections[i].sh_name);
    if (strncmp(name, prefix, sizeof prefix - 1) || strcmp(name + sizeof prefix - 1, kernel))
      continue;
    uint64_t bytes = elf->sections[i].sh_size;
    return bytes > reserved ? (uint32_t)(bytes - reserved) : 0;
  }
  return 0;
}

// The first `bytes` bytes of the initialised global `name`; symbols' values count from their section.
static bool read_global(const elf_t *elf, const char *name, void *out, size_t bytes) {
  const Elf64_Shdr *table = find_section(elf, ".symtab");
  uint32_t number = 0, count = table ? (uint32_t)(table->sh_size / sizeof(Elf64_Sym)) : 0;
  while (number < count && !is_symbol(elf, number, name)) number++;
  if (number == count) return false;
  Elf64_Sym symbol;
  memcpy(&symbol, elf->at + table->sh_offset + number * sizeof symbol, sizeof symbol);
  if (symbol.st_shndx >= elf->header.e_shnum) return false;
  const Elf64_Shdr *section = &elf->sections[symbol.st_shndx];
  if (section->sh_type == SHT_NOBITS || symbol.st_value > section->sh_size ||
      bytes > section->sh_size - symbol.st_value)
    return false;
  memcpy(out, elf->at + section->sh_offset + symbol.st_value, bytes);
  return true;
}

bool gos_cubin_resources(gos_bytes_t cubin, const char *kernel, gos_resources_t *out_resources) {
  elf_t elf;
  *out_resources = (gos_resources_t){0};
  if (!open_elf(cubin, &elf)) return false;
  out_resources->arch = elf.header.e_flags >> 8 & 0xff;
  read_info(&elf, kernel, out_resources);
  out_resources->static_smem_bytes = static_smem(&elf, kernel, out_resources->arch);
  gpuos_launch_t launch = {0};
  read_global(&elf, "gpuos_launch", &launch, sizeof launch);
  out_resources->threads = launch.threads;
  out_resources->dynamic_smem_bytes = launch.smem_bytes;
  return out_resources->registers != 0;
}

// ---- attaching ----------------------------------------------------------------------------------

static size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

// Where the three things that are added go.
typedef struct layout {
  size_t names, names_bytes, table, headers, total;
} layout_t;

static layout_t lay_out(const elf_t *elf, size_t table_bytes) {
  layout_t l = {.names = round_up(elf->bytes, 8)};
  l.names_bytes = elf->sections[elf->header.e_shstrndx].sh_size + sizeof section_name;
  l.table = round_up(l.names + l.names_bytes, 16);
  l.headers = round_up(l.table + table_bytes, 8);
  l.total = l.headers + (elf->header.e_shnum + 1u) * sizeof(Elf64_Shdr);
  return l;
}

static void write_names(const elf_t *elf, const layout_t *l, unsigned char *out) {
  const Elf64_Shdr *names = &elf->sections[elf->header.e_shstrndx];
  memcpy(out + l->names, elf->at + names->sh_offset, names->sh_size);
  memcpy(out + l->names + names->sh_size, section_name, sizeof section_name);
}

static void write_headers(const elf_t *elf, const layout_t *l, size_t table_bytes,
                          unsigned char *out) {
  uint32_t count = elf->header.e_shnum;
  Elf64_Shdr names = elf->sections[elf->header.e_shstrndx];
  Elf64_Shdr added = {.sh_name = (Elf64_Word)names.sh_size,
                      .sh_type = SHT_PROGBITS,
                      .sh_offset = l->table,
                      .sh_size = table_bytes,
                      .sh_addralign = 16};
  names.sh_offset = l->names;
  names.sh_size = l->names_bytes;
  unsigned char *headers = out + l->headers;
  memcpy(headers, elf->sections, count * sizeof added);
  memcpy(headers + elf->header.e_shstrndx * sizeof names, &names, sizeof names);
  memcpy(headers + count * sizeof added, &added, sizeof added);
}

gos_bytes_t gos_cubin_attach(gos_arena_t *arena, gos_bytes_t cubin, gos_bytes_t table) {
  elf_t elf;
  if (!open_elf(cubin, &elf)) GOS_BUG("not a cubin: %zu bytes", cubin.count);
  layout_t l = lay_out(&elf, table.count);
  unsigned char *out = gos_alloc(arena, l.total);
  memcpy(out, elf.at, elf.bytes);
  write_names(&elf, &l, out);
  memcpy(out + l.table, table.at, table.count);
  write_headers(&elf, &l, table.count, out);
  elf.header.e_shnum++;
  elf.header.e_shoff = l.headers;
  memcpy(out, &elf.header, sizeof elf.header);
  return (gos_bytes_t){out, l.total};
}
