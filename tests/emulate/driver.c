// driver.c: a fake GPU whose kernel is the device code that gpuosc generated, compiled for the CPU.
//
// GPUOS_EMULATED names that shared object (build.sh makes it). A CTA is a thread: language.h.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

enum { SMS = 4 };

struct CUmod_st {
  void *object;
  void (*run_cta)(const gpuos_kernel_args_t *args, uint32_t number);
};

uint32_t fake_sms(void) { return SMS; }
bool fake_dead(void) { return false; }
uint32_t fake_threads(uint32_t ctas) { return ctas; }

CUmodule fake_load(const void *image) {
  (void)image;
  const char *path = getenv("GPUOS_EMULATED");
  void *object = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *run = object ? dlsym(object, "gpuos_emulate_cta") : NULL;
  if (run == NULL) return NULL;
  CUmodule module = malloc(sizeof *module);
  module->object = object;
  memcpy(&module->run_cta, &run, sizeof run);
  return module;
}
void fake_unload(CUmodule module) {
  dlclose(module->object);
  free(module);
}

void *fake_global(CUmodule module, const char *name, size_t *out_bytes) {
  bool hash = strstr(name, "table_hash") != NULL; // of the program, or of its job
  if (!hash && strstr(name, "launch") == NULL) return NULL;
  *out_bytes = hash ? sizeof(uint64_t) : sizeof(gpuos_launch_t);
  return dlsym(module->object, name);
}

void fake_run(CUmodule module, const gpuos_kernel_args_t *args, uint32_t thread) {
  module->run_cta(args, thread);
}
