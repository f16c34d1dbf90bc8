// fake_cuda.c: as much of a CUDA driver as libgpuos calls, on threads, so that its side of the
// mailbox is tested where there is no GPU.
//
// Built as libcuda.so.1 and found through the RPATH of a test, or LD_LIBRARY_PATH. Device memory is
// host memory; what a module and its kernel are, fake_cuda.h's other side says. Copies are done at
// once: a stream first waits for its kernel.
#include "fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FAILED = 719 }; // CUDA_ERROR_LAUNCH_FAILED

// ---- streams and launches -----------------------------------------------------------------------

typedef struct cta {
  struct CUstream_st *stream;
  uint32_t number;
  pthread_t thread;
} cta_t;

struct CUstream_st {
  CUmodule module;
  gpuos_kernel_args_t args;
  cta_t ctas[GPUOS_MAX_SMS + 1];
  uint32_t started, live;
};

static uint32_t ld32(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
static void st32(uint32_t *word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
static void add32(uint32_t *word, uint32_t value) {
  __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
}

static void *play(void *argument) {
  cta_t *cta = argument;
  fake_run(cta->stream->module, &cta->stream->args, cta->number);
  add32(&cta->stream->live, 0xffffffffu);
  return NULL;
}

static void join(CUstream stream) {
  for (uint32_t i = 0; i < stream->started; i++) pthread_join(stream->ctas[i].thread, NULL);
  stream->started = 0;
}

static CUresult state(void) { return fake_dead() ? FAILED : CUDA_SUCCESS; }

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  (void)flags;
  *stream = calloc(1, sizeof **stream);
  return state();
}
CUresult cuStreamDestroy_v2(CUstream stream) {
  join(stream);
  free(stream);
  return state();
}
CUresult cuStreamQuery(CUstream stream) {
  if (ld32(&stream->live) != 0 && !fake_dead()) return CUDA_ERROR_NOT_READY;
  join(stream);
  return state();
}
CUresult cuStreamSynchronize(CUstream stream) {
  join(stream);
  return state();
}

static void start(CUstream stream, uint32_t number) {
  cta_t *cta = &stream->ctas[stream->started];
  *cta = (cta_t){.stream = stream, .number = number};
  if (pthread_create(&cta->thread, NULL, play, cta) != 0) abort();
  stream->started++;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
  (void)extra;
  CUstream stream = config->hStream;
  join(stream);
  stream->module = (CUmodule)(void *)function;
  memcpy(&stream->args, parameters[0], sizeof stream->args);
  stream->live = fake_threads(config->gridDimX);
  CUresult result = state(); // a kernel that fails does so later
  for (uint32_t i = 0, count = stream->live; i < count; i++) start(stream, i);
  return result;
}

// ---- memory -------------------------------------------------------------------------------------

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
  *address = (CUdeviceptr)(uintptr_t)memory;
  return memory == NULL ? CUDA_ERROR_OUT_OF_MEMORY : state();
}
CUresult cuMemFree_v2(CUdeviceptr address) {
  free((void *)(uintptr_t)address);
  return state();
}
CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  (void)flags;
  *address = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *address == NULL ? CUDA_ERROR_OUT_OF_MEMORY : state();
}
CUresult cuMemFreeHost(void *address) {
  free(address);
  return state();
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *host, unsigned flags) {
  (void)flags;
  *address = (CUdeviceptr)(uintptr_t)host;
  return state();
}

// By words: an SM may write the same ones.
static void copy(void *to, const void *from, size_t bytes) {
  size_t words = ((uintptr_t)to | (uintptr_t)from) % 4 == 0 ? bytes / 4 : 0;
  for (size_t i = 0; i < words; i++) st32((uint32_t *)to + i, ld32((const uint32_t *)from + i));
  memcpy((char *)to + words * 4, (const char *)from + words * 4, bytes - words * 4);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  join(stream);
  copy((void *)(uintptr_t)to, from, bytes);
  return state();
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  join(stream);
  copy(to, (const void *)(uintptr_t)from, bytes);
  return state();
}
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  memcpy((void *)(uintptr_t)to, from, bytes);
  return state();
}
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  memcpy(to, (const void *)(uintptr_t)from, bytes);
  return state();
}
CUresult cuMemsetD8Async(CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream) {
  join(stream);
  memset((void *)(uintptr_t)address, value, bytes);
  return state();
}

// ---- modules ------------------------------------------------------------------------------------

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = fake_load(image);
  return *module == NULL ? CUDA_ERROR_NOT_FOUND : state();
}
CUresult cuModuleUnload(CUmodule module) {
  fake_unload(module);
  return state();
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  (void)name;
  *function = (CUfunction)(void *)module;
  return state();
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name) {
  void *global = fake_global(module, name, bytes);
  *address = (uintptr_t)global;
  return global == NULL ? CUDA_ERROR_NOT_FOUND : state();
}
static size_t kept_bytes = 1 << 20;
CUresult cuCtxGetLimit(size_t *value, int limit) {
  *value = limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE ? kept_bytes : 0;
  return state();
}
CUresult cuCtxSetLimit(int limit, size_t value) {
  if (limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE) kept_bytes = value;
  return state();
}
uint32_t fake_l2_resets; // test_device_cuda.c looks
CUresult cuCtxResetPersistingL2Cache(void) {
  add32(&fake_l2_resets, 1);
  return state();
}

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function) {
  (void)attribute, (void)function;
  *value = 32;
  return state();
}
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  (void)function, (void)attribute, (void)value;
  return state();
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction function, int threads,
                                                     size_t smem_bytes) {
  (void)function, (void)smem_bytes;
  *count = 2048 / threads;
  return state();
}
CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function,
                                      const CUlaunchConfig *config) {
  (void)function;
  *count = (int)fake_sms() / (int)config->attrs[0].value.clusterDim.x;
  return state();
}

// ---- the device ---------------------------------------------------------------------------------

CUresult cuInit(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : FAILED; }
CUresult cuGetErrorName(CUresult error, const char **name) {
  *name = error == FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = error == FAILED ? "unspecified launch failure" : "some error";
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
  (void)device;
  strncpy(name, "Fake GPU", (size_t)bytes);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
  (void)device;
  switch (attribute) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = (int)fake_sms(); break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
  default: *value = 232448; break; // shared memory of a block on an H200
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  (void)device;
  *bytes = (size_t)1 << 30;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  (void)device;
  *context = (CUcontext)(void *)&fake_l2_resets;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return (void)device, CUDA_SUCCESS; }
CUresult cuCtxPushCurrent_v2(CUcontext context) { return (void)context, CUDA_SUCCESS; }
CUresult cuCtxPopCurrent_v2(CUcontext *context) { return *context = NULL, CUDA_SUCCESS; }

// A launch has ended when anybody asks for its time.
struct CUevent_st {
  uint64_t ns;
};
CUresult cuEventCreate(CUevent *event, unsigned flags) {
  (void)flags;
  *event = calloc(1, sizeof **event);
  return state();
}
CUresult cuEventDestroy_v2(CUevent event) {
  free(event);
  return state();
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  join(stream);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
  return state();
}
CUresult cuEventElapsedTime(float *ms, CUevent start_event, CUevent end_event) {
  *ms = (float)(end_event->ns - start_event->ns) * 1e-6f;
  return state();
}
