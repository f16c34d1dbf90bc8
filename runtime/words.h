// words.h: words of the ABI that several sides access at once: host, SMs, a resident kernel.
//
// Plain fields of gpuos_control_t, gpuos_sm_t, gpuos_park_t and gpuos_mailbox_t; these are the only
// accesses to them while steps run. Any thread.
#ifndef GPUOS_WORDS_H_
#define GPUOS_WORDS_H_

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t gos_load(const uint32_t *word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void gos_store(uint32_t *word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline uint32_t gos_add(uint32_t *word, uint32_t value) {
  return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}
static inline bool gos_swap(uint32_t *word, uint32_t from, uint32_t to) {
  return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline uint64_t gos_load64(const uint64_t *word) {
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
static inline void gos_store64(uint64_t *word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline uint64_t gos_add64(uint64_t *word, uint64_t value) {
  return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}

#endif // GPUOS_WORDS_H_
