// fuzz_safetensors.c: no file makes the safetensors reader misbehave, and what it accepts is sound.
//
//   clang -fsanitize=fuzzer,address,undefined -Iruntime tests/fuzz/fuzz_safetensors.c
//   runtime/{safetensors,json,error}.c
#include <stdlib.h>

#include "safetensors.h"

// Every byte that an accepted tensor claims can be read.
static unsigned read_all(const gos_safetensors_t *file) {
  unsigned sum = 0;
  for (size_t i = 0; i < file->count; i++)
    for (uint64_t at = 0; at < file->tensors[i].bytes; at++)
      sum += ((const unsigned char *)file->tensors[i].data)[at];
  return sum;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t bytes) {
  gos_error_t error = {0};
  gos_safetensors_t file;
  if (gos_safetensors_parse(data, bytes, &error, &file) != GPUOS_OK) {
    if (error.text[0] == '\0' || file.tensors != NULL) abort();
    return 0;
  }
  volatile unsigned sum = read_all(&file);
  (void)sum;
  gos_safetensors_free(&file);
  return 0;
}
