// oracle.h: judges a schedule table the slow way, to judge check by.
//
// Shares no code with runtime/check*.c and works by other means: shadow arrays a byte each, an
// explicit relation between tiles closed by Warshall's algorithm, every element of every view
// visited one by one. For small tables. Aborts when out of memory.
#ifndef GOS_TEST_ORACLE_H_
#define GOS_TEST_ORACLE_H_

#include <stddef.h>

#include "gpuos_abi.h"

typedef enum gos_verdict {
  GOS_SAFE,
  GOS_UNSAFE,
  GOS_UNDECIDED, // too large to look at, or safe although check's rule on strides refuses it
} gos_verdict_t;

// *out_why says what was found.
gos_verdict_t gos_oracle(const void *table, size_t bytes, const char **out_why);

#endif // GOS_TEST_ORACLE_H_
