// safetensors.h: a strict reader of the safetensors format, over a file that nobody vouches for.
//
// An 8-byte little-endian header length, a JSON header, then the tensors' bytes without holes
// (https://huggingface.co/docs/safetensors, "Format"). Called by gpuos_program_bind_safetensors and
// the tests. Anything the format does not allow is an error that says where; a dtype that we do not
// know is not, since tensors that the program lacks are ignored.
#ifndef GPUOS_SAFETENSORS_H_
#define GPUOS_SAFETENSORS_H_

#include "error.h"
#include "gpuos_abi.h"

enum {
  GOS_SAFETENSORS_RANK = 8,              // more dimensions are refused
  GOS_SAFETENSORS_HEADER_MAX = 100 << 20 // the reference implementation's limit
};

typedef struct gos_safetensor {
  const char *name;
  const char *dtype; // as the file spells it: "BF16"
  uint32_t rank;
  uint64_t shape[GOS_SAFETENSORS_RANK];
  const void *data; // inside the bytes given, any alignment
  uint64_t bytes;
} gos_safetensor_t;

typedef struct gos_safetensors {
  gos_safetensor_t *tensors; // sorted by name
  size_t count;
  char *strings; // names and dtypes
} gos_safetensors_t;

// Parses `bytes` of `data`, which must outlive the result. BAD_WEIGHTS, OUT_OF_MEMORY.
gpuos_status_t gos_safetensors_parse(const void *data, size_t bytes, gos_error_t *error,
                                     gos_safetensors_t *out_file);
void gos_safetensors_free(gos_safetensors_t *file); // a zeroed one is fine

#endif // GPUOS_SAFETENSORS_H_
