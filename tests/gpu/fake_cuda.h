// fake_cuda.h: what fake_cuda.c, a CUDA driver on threads, leaves to a kernel: contract.h's in
// fake_contract.c, or generated device code in emulate/driver.c.
#ifndef GPUOS_FAKE_CUDA_H_
#define GPUOS_FAKE_CUDA_H_

#include <stdbool.h>

#include "cu.h"
#include "gpuos_abi.h"

uint32_t fake_sms(void); // of the only device

CUmodule fake_load(const void *image); // NULL: not one of its kind
void fake_unload(CUmodule module);
void *fake_global(CUmodule module, const char *name, size_t *out_bytes); // NULL: it has none

uint32_t fake_threads(uint32_t ctas); // that a launch of so many CTAs starts
void fake_run(CUmodule module, const gpuos_kernel_args_t *args, uint32_t thread);
bool fake_dead(void); // a kernel has failed, and with it the context

#endif // GPUOS_FAKE_CUDA_H_
