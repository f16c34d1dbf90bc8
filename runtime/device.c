// device.c: opens and closes devices and keeps their last error.
#include <stdlib.h>

#include "internal.h"

static gpuos_status_t open_kind(gpuos_device_t *device, const gpuos_device_options_t *options) {
  if (options == NULL)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT, "gpuos_device_open needs options");
  device->options = *options;
  if (options->wait_limit_us == 0) device->options.wait_limit_us = GOS_DEFAULT_WAIT_LIMIT_US;
  if (options->linger_us == 0) device->options.linger_us = GOS_DEFAULT_LINGER_US;
  if (options->kind == GPUOS_DEVICE_CPU) device->backend = &gos_backend_cpu;
  if (options->kind == GPUOS_DEVICE_CUDA) device->backend = &gos_backend_cuda;
  if (device->backend == NULL)
    return gos_fail(&device->error, GPUOS_INVALID_ARGUMENT, "no device kind %d",
                    (int)options->kind);
  return device->backend->open(device);
}

gpuos_status_t gpuos_device_open(const gpuos_device_options_t *options,
                                 gpuos_device_t **out_device) {
  if (out_device == NULL) return GPUOS_INVALID_ARGUMENT;
  *out_device = calloc(1, sizeof **out_device);
  if (*out_device == NULL) return GPUOS_OUT_OF_MEMORY;
  return open_kind(*out_device, options);
}

void gpuos_device_close(gpuos_device_t *device) {
  if (device == NULL) return;
  if (device->backend != NULL) device->backend->close(device);
  free(device);
}

const char *gpuos_device_error(const gpuos_device_t *device) {
  return device != NULL ? device->error.text : "there is no device";
}

uint32_t gpuos_device_sm_count(const gpuos_device_t *device) {
  return device != NULL ? device->options.sm_count : 0;
}
