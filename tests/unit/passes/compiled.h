// compiled.h: real schedule tables, from YAML text through the whole compiler.
#ifndef GOS_TEST_COMPILED_H_
#define GOS_TEST_COMPILED_H_

#include <stddef.h>

#include "gpuos_abi.h"

// Compiles `count` models with this budget a unit, in microseconds; one block, aligned to 16, to be
// freed by the caller. NULL after the compiler has said why on stderr. Aborts when out of memory or
// out of temporary files. One thread.
gpuos_table_t *gos_compiled(const char *const *models, size_t count, const char *budget_us);

#endif // GOS_TEST_COMPILED_H_
