#include "cu.h"

#include <dlfcn.h>
#include <string.h>

static gpuos_status_t resolve(gos_cu_t *cu, gos_error_t *error) {
  const struct {
    void *slot; // ISO C has no conversion from dlsym's result to a function pointer: copy its bytes
    const char *symbol;
    bool optional;
  } wanted[] = {
#define WANTED(name, symbol, parameters)   {&cu->name, symbol, false},
#define OPTIONAL(name, symbol, parameters) {&cu->name, symbol, true},
      GOS_CU_LIST(WANTED) GOS_CU_OPTIONAL_LIST(OPTIONAL)
#undef WANTED
#undef OPTIONAL
  };
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *found = dlsym(cu->library, wanted[i].symbol);
    if (found == NULL && !wanted[i].optional)
      return gos_fail(error, GPUOS_NO_DRIVER,
                      "the CUDA driver is too old: libcuda.so.1 has no %s; update it or use the "
                      "CPU device",
                      wanted[i].symbol);
    memcpy(wanted[i].slot, &found, sizeof found);
  }
  return GPUOS_OK;
}

static gpuos_status_t initialise(gos_cu_t *cu, gos_error_t *error) {
  CUresult result = cu->cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE)
    return gos_fail(error, GPUOS_NO_DRIVER,
                    "the CUDA driver finds no GPU (CUDA_ERROR_NO_DEVICE); is one visible to this "
                    "process? The CPU device needs none");
  if (result == CUDA_ERROR_STUB_LIBRARY)
    return gos_fail(error, GPUOS_NO_DRIVER,
                    "libcuda.so.1 is the toolkit's stub (CUDA_ERROR_STUB_LIBRARY); take it off the "
                    "library path");
  return gos_cu_result(cu, error, result, "cuInit(0)", __FILE__, __LINE__);
}

gpuos_status_t gos_cu_load(gos_error_t *error, gos_cu_t *out_cu) {
  // The driver starts threads of its own, so its code stays once it is in.
  const int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  *out_cu = (gos_cu_t){.library = dlopen("libcuda.so.1", flags)};
  if (out_cu->library == NULL)
    return gos_fail(error, GPUOS_NO_DRIVER,
                    "no CUDA driver: %s; install NVIDIA's driver or use the CPU device", dlerror());
  gpuos_status_t status = resolve(out_cu, error);
  if (status == GPUOS_OK) status = initialise(out_cu, error);
  if (status != GPUOS_OK) gos_cu_unload(out_cu);
  return status;
}

void gos_cu_unload(gos_cu_t *cu) {
  if (cu->library != NULL) dlclose(cu->library);
  *cu = (gos_cu_t){0};
}

gpuos_status_t gos_cu_result(const gos_cu_t *cu, gos_error_t *error, CUresult result,
                             const char *call, const char *file, int line) {
  if (result == CUDA_SUCCESS) return GPUOS_OK;
  const char *name = NULL, *text = NULL, *slash = strrchr(file, '/');
  cu->cuGetErrorName(result, &name);
  cu->cuGetErrorString(result, &text);
  gpuos_status_t status = result == CUDA_ERROR_OUT_OF_MEMORY ? GPUOS_OUT_OF_MEMORY : GPUOS_DRIVER;
  return gos_fail(error, status, "%s: %s (%d, %s) at %s:%d", call, name != NULL ? name : "?",
                  result, text != NULL ? text : "?", slash != NULL ? slash + 1 : file, line);
}
