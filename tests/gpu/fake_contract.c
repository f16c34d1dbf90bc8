// fake_contract.c: a fake GPU whose kernel is contract.h whatever the module says: two threads a CTA at
// most. Module globals are looked for behind a marker in the image (contract_artefact.c makes one).
#include <elf.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda.h"

enum { SMS = 9 };

static uint32_t trapped;

// ---- the kernel's words -------------------------------------------------------------------------

#define CONTRACT static

CONTRACT uint32_t ld32(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
CONTRACT void st32(uint32_t *word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
CONTRACT uint32_t add32(uint32_t *word, uint32_t value) {
  return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
}
CONTRACT bool cas32(uint32_t *word, uint32_t from, uint32_t to) {
  return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
CONTRACT uint64_t ld64(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
CONTRACT void st64(uint64_t *word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
CONTRACT uint64_t add64(uint64_t *word, uint64_t value) {
  return __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
}
CONTRACT bool cas64(uint64_t *word, uint64_t from, uint64_t to) {
  return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
CONTRACT uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
CONTRACT void nap(void) { sched_yield(); }
CONTRACT void trap(void) { st32(&trapped, 1); }
CONTRACT bool dead(void) { return ld32(&trapped) != 0; }
CONTRACT uint32_t chip_sm(void) { return 7; }

#include "contract.h"

uint32_t fake_sms(void) { return SMS; }
bool fake_dead(void) { return dead(); }
uint32_t fake_threads(uint32_t ctas) { return ctas + 1; }
void fake_run(CUmodule module, const gpuos_kernel_args_t *args, uint32_t thread) {
  (void)module;
  if (thread == 0)
    relay(&args->program[0]);
  else
    work(&args->program[0], thread - 1);
}

// ---- modules ------------------------------------------------------------------------------------

// Behind the marker in the image: the hash, gpuos_launch.
struct CUmod_st {
  uint64_t hash;
  gpuos_launch_t launch;
};

CUmodule fake_load(const void *image) {
  static const char marker[16] = "fake globals";
  Elf64_Ehdr h;
  memcpy(&h, image, sizeof h);
  size_t bytes = h.e_shoff + h.e_shnum * sizeof(Elf64_Shdr);
  for (size_t i = 0; i + sizeof marker + sizeof(struct CUmod_st) <= bytes; i++) {
    if (memcmp((const char *)image + i, marker, sizeof marker) != 0) continue;
    CUmodule module = malloc(sizeof *module);
    memcpy(module, (const char *)image + i + sizeof marker, sizeof *module);
    return module;
  }
  return NULL;
}
void fake_unload(CUmodule module) { free(module); }

void *fake_global(CUmodule module, const char *name, size_t *out_bytes) {
  bool hash = strcmp(name, "gpuos_table_hash") == 0;
  if (!hash && strcmp(name, "gpuos_launch") != 0) return NULL;
  *out_bytes = hash ? sizeof module->hash : sizeof module->launch;
  return hash ? (void *)&module->hash : (void *)&module->launch;
}
