// names.c: words for the enumerations of gpuos_abi.h, for people.
#include "names.h"

#include "gpuos_abi.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

const char *gos_dtype_name(uint32_t dtype) {
  static const char *const names[] = {"f32", "f16", "bf16", "e4m3", "e5m2", "i32"};
  GPUOS_STATIC_ASSERT(COUNT(names) == GPUOS_DTYPE_COUNT, "a dtype has no name");
  return dtype < COUNT(names) ? names[dtype] : "?";
}

const char *gos_role_name(uint32_t role) {
  static const char *const names[] = {"input", "weight", "state", "output", "workspace"};
  GPUOS_STATIC_ASSERT(COUNT(names) == GPUOS_ROLE_COUNT, "a role has no name");
  return role < COUNT(names) ? names[role] : "?";
}

const char *gos_kind_name(uint32_t kind) {
  static const char *const names[] = {
      "matmul", "map",       "rmsnorm",   "softmax",           "embedding",
      "rope",   "kv_append", "attention", "attention_combine", "argmax"};
  GPUOS_STATIC_ASSERT(COUNT(names) == GPUOS_KIND_COUNT, "a kind has no name");
  return kind < COUNT(names) ? names[kind] : "?";
}

const char *gos_as_name(uint32_t as) {
  static const char *const names[] = {"out", "x",        "w0",    "w1",      "norm",    "extra",
                                      "ids", "table",    "pos",   "seq",     "pages",   "k",
                                      "v",   "cache_in", "cache", "partial", "rotation"};
  GPUOS_STATIC_ASSERT(COUNT(names) == GPUOS_AS_COUNT, "an operand has no name");
  return as < COUNT(names) ? names[as] : "?";
}
