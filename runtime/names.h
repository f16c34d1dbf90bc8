// names.h: words for the enumerations of gpuos_abi.h, for people. Any number gives a word: "?" when
// out of range.
#ifndef GPUOS_NAMES_H_
#define GPUOS_NAMES_H_

#include <stdint.h>

const char *gos_dtype_name(uint32_t dtype); // "bf16"
const char *gos_role_name(uint32_t role);   // "weight"
const char *gos_kind_name(uint32_t kind);   // "matmul"
const char *gos_as_name(uint32_t as);       // "out"

#endif // GPUOS_NAMES_H_
