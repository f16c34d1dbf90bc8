// cpu_cache.h: the paged KV cache as the units address it.
//
// Called by KV_APPEND and ATTENTION. Every number read from data is checked before it is used.
#ifndef GPUOS_CPU_CACHE_H_
#define GPUOS_CPU_CACHE_H_

#include "cpu_units.h"

typedef struct gos_cache {
  gos_view_t pages, pos, seq, store; // store.x is NULL where attention has K and V instead
  gos_view_t rotation;               // .x is NULL where nothing is rotated
  uint32_t page_size, head_dim;
  bool neighbours; // of the rotation
} gos_cache_t;

// Where one token of one head lies.
typedef struct gos_cache_slot {
  uint32_t sequence, position, head;
} gos_cache_slot_t;

gos_cache_t gos_cache_make(const gos_unit_t *unit, uint32_t page_size, uint32_t head_dim,
                           uint32_t pairing);

// The rotation of a row, read into scratch[head_dim]; NULL: none.
const float *gos_cache_rotation(const gos_cache_t *cache, uint32_t row, float *scratch);

// A vector of this step, of K or V, as it goes into the cache but for the cache's own format.
void gos_cache_load_own(const gos_cache_t *cache, const gos_view_t *from, uint32_t row,
                        uint32_t head, const float *rotation, float *out);

// Sequence and position of a row; *out_absent for a negative position. False: fault.
bool gos_cache_row(gos_unit_t *unit, const gos_cache_t *cache, uint32_t row,
                   gos_cache_slot_t *out_slot, bool *out_absent);

// First element of a vector: which is 0 for K, 1 for V. False: fault.
bool gos_cache_find(gos_unit_t *unit, const gos_cache_t *cache, const gos_cache_slot_t *slot,
                    uint32_t which, uint8_t **out_vector);

#endif // GPUOS_CPU_CACHE_H_
