// cli_devices.c: `gpuos devices`.
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "device_cuda.h"

static void print_cpu(void) { printf("cpu     %ld threads\n", sysconf(_SC_NPROCESSORS_ONLN)); }

// False when there is no GPU of that number; the first one's absence is explained.
static bool print_gpu(uint32_t ordinal) {
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CUDA, .ordinal = ordinal};
  gpuos_device_t *device = NULL;
  gpuos_status_t status = gpuos_device_open(&options, &device);
  if (status == GPUOS_OK) {
    const gos_cuda_t *cuda = device->state;
    size_t bytes = 0;
    cuda->cu.cuDeviceTotalMem(&bytes, cuda->device);
    printf("cuda:%-2u %s, sm_%d%d, %d SMs, %s\n", ordinal, cuda->name, cuda->major, cuda->minor,
           cuda->sm_count, gos_size(bytes).text);
  } else if (ordinal == 0 || status != GPUOS_INVALID_ARGUMENT) {
    printf("cuda    none: %s\n", gpuos_device_error(device));
  }
  gpuos_device_close(device);
  return status == GPUOS_OK;
}

int gos_cli_devices(int argc, char **argv) {
  if (argc > 0 && strcmp(argv[0], "--help") == 0) {
    puts("usage: gpuos devices");
    return GOS_EXIT_OK;
  }
  if (argc > 0) {
    gos_say("devices takes no '%s'", argv[0]);
    return GOS_EXIT_USAGE;
  }
  print_cpu();
  for (uint32_t ordinal = 0; print_gpu(ordinal);) ordinal++;
  return GOS_EXIT_OK;
}
