// contract_artefact.h: artefacts of the kernel in contract.h, for test_device_cuda.c.
#ifndef GOS_TEST_CONTRACT_ARTEFACT_H_
#define GOS_TEST_CONTRACT_ARTEFACT_H_

#include <stddef.h>
#include <stdint.h>

enum { CONTRACT_COUNT = 1000 }; // elements of its tensors

typedef struct bytes {
  char *at;
  size_t count;
} bytes_t;

// What its launch record says; hash_xor other than 0: of another table.
typedef struct variant {
  uint32_t threads, smem_bytes, ctas_per_sm, cluster;
  uint64_t hash_xor;
  uint32_t l2_keep_bytes;
} variant_t;

// `path`: contract.cubin, or "fake". The caller frees it; ends the process when it cannot be made.
bytes_t make_artefact(const char *path, variant_t v);

#endif // GOS_TEST_CONTRACT_ARTEFACT_H_
