// cu.h: the CUDA driver, loaded when it is there.
//
// libgpuos builds without CUDA's headers and runs without its driver, so the few types, constants
// and functions it needs are declared here under the names that the "CUDA Driver API" reference
// documents. Called by the CUDA device and `gpuos devices`. Any thread.
#ifndef GPUOS_CU_H_
#define GPUOS_CU_H_

#include "error.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

enum {
  CU_LIMIT_PERSISTING_L2_CACHE_SIZE = 6,
  CUDA_SUCCESS = 0,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,

  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,

  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DEFAULT = 0,
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTALLOC_DEVICEMAP = 2,

  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,

  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_INT32 = 3,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
  CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
  CU_TENSOR_MAP_SWIZZLE_128B = 3,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
};

typedef struct CUlaunchAttribute {
  int id;
  int pad;
  union {
    char pad[64];
    struct {
      unsigned x, y, z;
    } clusterDim;
  } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
} CUlaunchConfig;

typedef struct CUtensorMap {
  _Alignas(64) unsigned long long opaque[16];
} CUtensorMap;
_Static_assert(sizeof(CUlaunchAttribute) == 72, "launch attribute");
_Static_assert(sizeof(CUlaunchConfig) == 56, "launch configuration");
_Static_assert(sizeof(CUtensorMap) == 128, "tensor map");

// X(name, exported symbol, parameters)
#define GOS_CU_LIST(X)                                                                             \
  X(cuInit, "cuInit", (unsigned flags))                                                            \
  X(cuGetErrorName, "cuGetErrorName", (CUresult error, const char **name))                         \
  X(cuGetErrorString, "cuGetErrorString", (CUresult error, const char **text))                     \
  X(cuDriverGetVersion, "cuDriverGetVersion", (int *version))                                      \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int *count))                                            \
  X(cuDeviceGet, "cuDeviceGet", (CUdevice * device, int ordinal))                                  \
  X(cuDeviceGetName, "cuDeviceGetName", (char *name, int bytes, CUdevice device))                  \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))    \
  X(cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice device))                    \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))  \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                  \
  X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext context))                                  \
  X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext * context))                                  \
  X(cuCtxGetLimit, "cuCtxGetLimit", (size_t * value, int limit))                                   \
  X(cuCtxSetLimit, "cuCtxSetLimit", (int limit, size_t value))                                     \
  X(cuCtxResetPersistingL2Cache, "cuCtxResetPersistingL2Cache", (void))                            \
  X(cuModuleLoadData, "cuModuleLoadData", (CUmodule * module, const void *image))                  \
  X(cuModuleUnload, "cuModuleUnload", (CUmodule module))                                           \
  X(cuModuleGetFunction, "cuModuleGetFunction",                                                    \
    (CUfunction * function, CUmodule module, const char *name))                                    \
  X(cuModuleGetGlobal, "cuModuleGetGlobal_v2",                                                     \
    (CUdeviceptr * address, size_t * bytes, CUmodule module, const char *name))                    \
  X(cuFuncGetAttribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction function))    \
  X(cuFuncSetAttribute, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))     \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor",    \
    (int *count, CUfunction function, int threads, size_t smem_bytes))                             \
  X(cuMemAlloc, "cuMemAlloc_v2", (CUdeviceptr * address, size_t bytes))                            \
  X(cuMemFree, "cuMemFree_v2", (CUdeviceptr address))                                              \
  X(cuMemHostAlloc, "cuMemHostAlloc", (void **address, size_t bytes, unsigned flags))              \
  X(cuMemFreeHost, "cuMemFreeHost", (void *address))                                               \
  X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2",                                     \
    (CUdeviceptr * address, void *host, unsigned flags))                                           \
  X(cuMemcpyHtoD, "cuMemcpyHtoD_v2", (CUdeviceptr to, const void *from, size_t bytes))             \
  X(cuMemcpyDtoH, "cuMemcpyDtoH_v2", (void *to, CUdeviceptr from, size_t bytes))                   \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                                     \
    (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                             \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2",                                                     \
    (void *to, CUdeviceptr from, size_t bytes, CUstream stream))                                   \
  X(cuMemsetD8Async, "cuMemsetD8Async",                                                            \
    (CUdeviceptr address, unsigned char value, size_t bytes, CUstream stream))                     \
  X(cuStreamCreate, "cuStreamCreate", (CUstream * stream, unsigned flags))                         \
  X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream stream))                                      \
  X(cuStreamQuery, "cuStreamQuery", (CUstream stream))                                             \
  X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream stream))                                 \
  X(cuEventCreate, "cuEventCreate", (CUevent * event, unsigned flags))                             \
  X(cuEventDestroy, "cuEventDestroy_v2", (CUevent event))                                          \
  X(cuEventRecord, "cuEventRecord", (CUevent event, CUstream stream))                              \
  X(cuEventElapsedTime, "cuEventElapsedTime", (float *ms, CUevent start, CUevent end))             \
  X(cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters",                                  \
    (int *count, CUfunction function, const CUlaunchConfig *config))                               \
  X(cuLaunchKernelEx, "cuLaunchKernelEx",                                                          \
    (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))

// NULL where the driver is too old: only what needs them says so.
#define GOS_CU_OPTIONAL_LIST(X)                                                                    \
  X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled",                                              \
    (CUtensorMap * map, int dtype, uint32_t rank, void *address, const uint64_t *extents,          \
     const uint64_t *stride_bytes, const uint32_t *box, const uint32_t *element_strides,           \
     int interleave, int swizzle, int l2_promotion, int out_of_bounds))

typedef struct gos_cu {
  void *library;
#define GOS_CU_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
  GOS_CU_LIST(GOS_CU_MEMBER)
  GOS_CU_OPTIONAL_LIST(GOS_CU_MEMBER)
#undef GOS_CU_MEMBER
} gos_cu_t;

// Loads libcuda.so.1 and initialises it. NO_DRIVER with what is missing and what to do; DRIVER.
gpuos_status_t gos_cu_load(gos_error_t *error, gos_cu_t *out_cu);
void gos_cu_unload(gos_cu_t *cu); // a zeroed one is fine

// OK, OUT_OF_MEMORY or DRIVER; a failure is recorded with the call's text and place and the
// driver's name for it.
gpuos_status_t gos_cu_result(const gos_cu_t *cu, gos_error_t *error, CUresult result,
                             const char *call, const char *file, int line);

// GOS_CU(cu, error, cuInit(0)): the one way to call the driver.
#define GOS_CU(cu, error, call) gos_cu_result((cu), (error), (cu)->call, #call, __FILE__, __LINE__)

#endif // GPUOS_CU_H_
