// fake_cuda.c: as much of a CUDA driver as libgpuos calls, on threads, so that its side of the
// mailbox is tested where there is no GPU.
//
// Built as libcuda.so.1 and found through the RPATH of a test. Device memory is host memory, a CTA
// two threads at most, a kernel contract.h whatever the module says; module globals are looked for
// behind a marker in the image (test_device_cuda.c makes one). Copies are done at once: a stream
// first waits for its kernel.
#include <elf.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cu.h"
#include "gpuos_abi.h"

enum { SMS = 9, FAILED = 719 }; // CUDA_ERROR_LAUNCH_FAILED

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

// ---- streams and launches -----------------------------------------------------------------------

typedef struct cta {
  struct CUstream_st *stream;
  uint32_t number;
  bool relays;
  pthread_t thread;
} cta_t;

struct CUstream_st {
  gpuos_launch_args_t args;
  cta_t ctas[GPUOS_MAX_SMS + 1];
  uint32_t started, live;
};

static void *play(void *argument) {
  cta_t *cta = argument;
  if (cta->relays)
    relay(&cta->stream->args);
  else
    work(&cta->stream->args, cta->number);
  add32(&cta->stream->live, 0xffffffffu);
  return NULL;
}

static void join(CUstream stream) {
  for (uint32_t i = 0; i < stream->started; i++) pthread_join(stream->ctas[i].thread, NULL);
  stream->started = 0;
}

static CUresult state(void) { return dead() ? FAILED : CUDA_SUCCESS; }

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
  if (ld32(&stream->live) != 0 && !dead()) return CUDA_ERROR_NOT_READY;
  join(stream);
  return state();
}
CUresult cuStreamSynchronize(CUstream stream) {
  join(stream);
  return state();
}

static void start(CUstream stream, uint32_t number, bool relays) {
  cta_t *cta = &stream->ctas[stream->started];
  *cta = (cta_t){.stream = stream, .number = number, .relays = relays};
  if (pthread_create(&cta->thread, NULL, play, cta) != 0) abort();
  stream->started++;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters,
                          void **extra) {
  (void)function, (void)extra;
  CUstream stream = config->hStream;
  join(stream);
  memcpy(&stream->args, parameters[0], sizeof stream->args);
  stream->live = config->gridDimX + 1;
  CUresult result = state(); // a kernel that fails does so later
  start(stream, 0, true);
  for (uint32_t i = 0; i < config->gridDimX; i++) start(stream, i, false);
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

// Behind the marker in the image: the hash, gpuos_launch.
struct CUmod_st {
  uint64_t hash;
  gpuos_launch_t launch;
};

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  static const char marker[16] = "fake globals";
  Elf64_Ehdr h;
  memcpy(&h, image, sizeof h);
  size_t bytes = h.e_shoff + h.e_shnum * sizeof(Elf64_Shdr);
  for (size_t i = 0; i + sizeof marker + sizeof **module <= bytes; i++) {
    if (memcmp((const char *)image + i, marker, sizeof marker) != 0) continue;
    *module = malloc(sizeof **module);
    memcpy(*module, (const char *)image + i + sizeof marker, sizeof **module);
    return state();
  }
  return CUDA_ERROR_NOT_FOUND;
}
CUresult cuModuleUnload(CUmodule module) {
  free(module);
  return state();
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  (void)name;
  *function = (CUfunction)(void *)module;
  return state();
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module,
                              const char *name) {
  bool hash = strcmp(name, "gpuos_table_hash") == 0;
  if (!hash && strcmp(name, "gpuos_launch") != 0) return CUDA_ERROR_NOT_FOUND;
  *address = hash ? (uintptr_t)&module->hash : (uintptr_t)&module->launch;
  *bytes = hash ? sizeof module->hash : sizeof module->launch;
  return state();
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
  *count = SMS / (int)config->attrs[0].value.clusterDim.x;
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
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = SMS; break;
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
  *context = (CUcontext)(void *)&trapped;
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
  event->ns = now_ns();
  return state();
}
CUresult cuEventElapsedTime(float *ms, CUevent start_event, CUevent end_event) {
  *ms = (float)(end_event->ns - start_event->ns) * 1e-6f;
  return state();
}
