// cpu_chain.h: a small graph of six operators that wait for each other, for the protocol tests.
//
//   A = X W0^T (8 units a tile)   B = tanh(A) A   C = silu(B W1^T) * (B W2^T) (3 units a tile)
//   D = rmsnorm(C)                PROBS = softmax(D)     BEST = argmax(D)
//
// Twelve rows in three blocks: a block of B waits for its block of A, C for all of B, D to BEST for
// their own block again; 39 tiles.
#ifndef GOS_TEST_CPU_CHAIN_H_
#define GOS_TEST_CPU_CHAIN_H_

#include "cpu_fixture.h"

typedef struct chain {
  fixture_t f;
  uint32_t probs, best; // output buffers
} chain_t;

chain_t chain_make(void);
void chain_free(chain_t *chain);

// Outputs, one after the other: CHAIN_BYTES of them.
enum { CHAIN_BYTES = 12 * 16 * 4 + 12 * 4 };
void chain_take(const chain_t *chain, uint8_t out[CHAIN_BYTES]);
void chain_clear(chain_t *chain); // outputs, so that a result is not one of an earlier step

#endif // GOS_TEST_CPU_CHAIN_H_
