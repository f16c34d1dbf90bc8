// test_cuda_absent.c: a machine without NVIDIA's driver gets an explanation, not a crash.
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <string.h>

#include "gpuos.h"

static bool driver_here(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) dlclose(library);
  return library != NULL;
}

Test(cuda_absent, says_that_there_is_no_driver_and_what_to_do) {
  if (driver_here()) cr_skip_test("a driver is installed here");
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CUDA};
  gpuos_device_t *device;
  cr_assert_eq(gpuos_device_open(&options, &device), GPUOS_NO_DRIVER);
  cr_assert_not_null(device);
  const char *says = gpuos_device_error(device);
  cr_expect_not_null(strstr(says, "libcuda.so.1"), "%s", says);
  cr_expect_not_null(strstr(says, "CPU device"), "%s", says);
  gpuos_device_close(device);
}

Test(cuda_absent, refuses_options_of_the_cpu_device) {
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CUDA, .interleave_seed = 1};
  gpuos_device_t *device;
  cr_assert_eq(gpuos_device_open(&options, &device), GPUOS_INVALID_ARGUMENT);
  gpuos_device_close(device);
}
