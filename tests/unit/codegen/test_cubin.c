// The ELF work on cubins, on a small one made by hand.
#include <criterion/criterion.h>
#include <elf.h>

#include "codegen.h"

// ---- a cubin ------------------------------------------------------------------------------------

enum { NAMES = 1, STRINGS, SYMBOLS, INFO, SHARED, GLOBALS, SECTIONS };

typedef struct cubin {
  Elf64_Ehdr header;
  char names[80], strings[24];
  Elf64_Sym symbols[4];
  gpuos_launch_t globals[2];
  uint8_t info[3 * 12 + 4];
  _Alignas(8) Elf64_Shdr sections[SECTIONS];
} cubin_t;

static uint32_t name_at(cubin_t *cubin, const char *name) {
  uint32_t at = 1;
  while (cubin->names[at]) at += (uint32_t)strlen(cubin->names + at) + 1;
  cr_assert(at + strlen(name) < sizeof cubin->names);
  strcpy(cubin->names + at, name);
  return at;
}

static void set_section(cubin_t *cubin, int number, const char *name, uint32_t type, void *data,
                        size_t bytes) {
  cubin->sections[number] = (Elf64_Shdr){.sh_name = name_at(cubin, name),
                                         .sh_type = type,
                                         .sh_offset = (size_t)((char *)data - (char *)cubin),
                                         .sh_size = bytes};
}

static void set_info(uint8_t *at, uint8_t attribute, uint32_t symbol, uint32_t value) {
  const uint8_t head[4] = {4, attribute, 8, 0};
  memcpy(at, head, 4);
  memcpy(at + 4, &symbol, 4);
  memcpy(at + 8, &value, 4);
}

// Kernel "k" with 168 registers, 16 bytes of stack and 512 of shared memory; "j" has 40 registers.
// The second of two globals is gpuos_launch.
static cubin_t make_cubin(void) {
  cubin_t c = {.strings = "\0k\0j\0gpuos_launch"};
  c.header = (Elf64_Ehdr){.e_machine = 190, .e_flags = 0x06005a04, .e_shnum = SECTIONS};
  memcpy(c.header.e_ident, ELFMAG, SELFMAG);
  c.header.e_ident[EI_CLASS] = ELFCLASS64;
  c.header.e_shoff = offsetof(cubin_t, sections);
  c.header.e_shentsize = sizeof(Elf64_Shdr);
  c.header.e_shstrndx = NAMES;
  c.symbols[1].st_name = 1, c.symbols[2].st_name = 3;
  c.symbols[3] = (Elf64_Sym){.st_name = 5, .st_shndx = GLOBALS, .st_value = sizeof(gpuos_launch_t)};
  c.globals[1] = (gpuos_launch_t){.threads = 384, .smem_bytes = 200000};
  set_info(c.info, 0x2f, 2, 40);
  set_info(c.info + 12, 0x2f, 1, 168);
  c.info[24] = 3; // a record without payload
  set_info(c.info + 28, 0x11, 1, 16);
  set_section(&c, NAMES, ".shstrtab", SHT_STRTAB, c.names, sizeof c.names);
  set_section(&c, STRINGS, ".strtab", SHT_STRTAB, c.strings, sizeof c.strings);
  set_section(&c, SYMBOLS, ".symtab", SHT_SYMTAB, c.symbols, sizeof c.symbols);
  set_section(&c, INFO, ".nv.info", SHT_PROGBITS, c.info, sizeof c.info);
  set_section(&c, SHARED, ".nv.shared.k", SHT_NOBITS, c.names, 512 + 1024);
  set_section(&c, GLOBALS, ".nv.global.init", SHT_PROGBITS, c.globals, sizeof c.globals);
  c.sections[SYMBOLS].sh_link = STRINGS;
  return c;
}

static gos_bytes_t bytes_of(cubin_t *cubin) { return (gos_bytes_t){cubin, sizeof *cubin}; }

// ---- resources ----------------------------------------------------------------------------------

Test(cubin, tells_registers_stack_and_shared_memory_of_the_kernel_asked_for) {
  cubin_t cubin = make_cubin();
  gos_resources_t r;
  cr_assert(gos_cubin_resources(bytes_of(&cubin), "k", &r));
  cr_expect_eq(r.arch, 90);
  cr_expect_eq(r.registers, 168);
  cr_expect_eq(r.stack_bytes, 16);
  cr_expect_eq(r.static_smem_bytes, 512, "without what the system reserves on sm_90");
  cr_assert(gos_cubin_resources(bytes_of(&cubin), "j", &r));
  cr_expect_eq(r.registers, 40);
  cr_expect_eq(r.static_smem_bytes, 0);
}

Test(cubin, tells_the_launch_that_the_module_asks_for) {
  cubin_t cubin = make_cubin();
  gos_resources_t r;
  cr_assert(gos_cubin_resources(bytes_of(&cubin), "k", &r));
  cr_expect_eq(r.threads, 384);
  cr_expect_eq(r.dynamic_smem_bytes, 200000);
  cubin.symbols[3].st_value++; // reaches beyond its section
  cr_assert(gos_cubin_resources(bytes_of(&cubin), "k", &r));
  cr_expect_eq(r.threads, 0);
}

Test(cubin, has_no_kernel_of_another_name) {
  cubin_t cubin = make_cubin();
  gos_resources_t r;
  cr_expect_not(gos_cubin_resources(bytes_of(&cubin), "l", &r));
}

Test(cubin, refuses_every_truncation) {
  cubin_t cubin = make_cubin();
  gos_resources_t r;
  for (size_t bytes = 0; bytes < sizeof cubin; bytes++)
    cr_expect_not(gos_cubin_resources((gos_bytes_t){&cubin, bytes}, "k", &r), "%zu bytes", bytes);
}

// No offset of a damaged file may lead outside: run under the address sanitizer.
Test(cubin, survives_every_damaged_byte) {
  cubin_t whole = make_cubin();
  gos_resources_t r;
  for (size_t i = 0; i < sizeof whole; i++) {
    cubin_t cubin = whole;
    ((uint8_t *)&cubin)[i] ^= 0xff;
    gos_cubin_resources(bytes_of(&cubin), "k", &r);
  }
}

// ---- attaching ----------------------------------------------------------------------------------

static const Elf64_Shdr *find_section(const uint8_t *elf, const char *name) {
  Elf64_Ehdr h;
  memcpy(&h, elf, sizeof h);
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(elf + h.e_shoff);
  const char *names = (const char *)elf + sections[h.e_shstrndx].sh_offset;
  for (int i = 0; i < h.e_shnum; i++)
    if (!strcmp(names + sections[i].sh_name, name)) return &sections[i];
  return NULL;
}

Test(cubin, carries_the_table_and_moves_no_byte) {
  gos_arena_t *arena = gos_arena_create();
  cubin_t cubin = make_cubin();
  char table[] = "a schedule table";
  gos_bytes_t out = gos_cubin_attach(arena, bytes_of(&cubin), (gos_bytes_t){table, sizeof table});
  const size_t head = sizeof(Elf64_Ehdr);
  cr_expect_arr_eq((char *)out.at + head, (char *)&cubin + head, sizeof cubin - head);
  const Elf64_Shdr *section = find_section(out.at, ".gpuos.sched");
  cr_assert_not_null(section);
  cr_expect_eq(section->sh_size, sizeof table);
  cr_expect_eq(section->sh_offset % 16, 0);
  cr_expect_arr_eq((char *)out.at + section->sh_offset, table, sizeof table);
  gos_arena_destroy(arena);
}

Test(cubin, keeps_its_sections_when_a_table_is_attached) {
  gos_arena_t *arena = gos_arena_create();
  cubin_t cubin = make_cubin();
  gos_resources_t r;
  gos_bytes_t out = gos_cubin_attach(arena, bytes_of(&cubin), (gos_bytes_t){"x", 1});
  cr_expect_not_null(find_section(out.at, ".nv.info"));
  cr_assert(gos_cubin_resources(out, "k", &r));
  cr_expect_eq(r.registers, 168);
  gos_arena_destroy(arena);
}
