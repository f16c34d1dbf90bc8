// cpu_cache.c: addressing the paged KV cache, and KV_APPEND, which fills it.
#include "cpu_cache.h"

gos_cache_t gos_cache_make(const gos_unit_t *unit, uint32_t page_size, uint32_t head_dim,
                           uint32_t pairing) {
  gos_cache_t cache = {.page_size = page_size, .head_dim = head_dim, .neighbours = pairing == 1};
  cache.rotation = gos_view(unit, GPUOS_AS_ROTATION);
  cache.pages = gos_view(unit, GPUOS_AS_PAGES);
  cache.pos = gos_view(unit, GPUOS_AS_POS);
  cache.seq = gos_view(unit, GPUOS_AS_SEQ);
  cache.store = gos_view(unit, GPUOS_AS_CACHE);
  return cache;
}

bool gos_cache_row(gos_unit_t *unit, const gos_cache_t *c, uint32_t row, gos_cache_slot_t *out_slot,
                   bool *out_absent) {
  // POS and SEQ hold one number a row; KV_APPEND reads them whole, attention by its dimension 1.
  int32_t position = gos_index(&c->pos, (uint64_t)row * c->pos.x->stride[3]),
          sequence = (int32_t)row;
  *out_absent = position < 0;
  if (*out_absent) return true;
  uint32_t sequences = c->pages.x->extent[2];
  uint64_t context = (uint64_t)c->pages.x->extent[3] * c->page_size;
  if (c->seq.x != NULL) sequence = gos_index(&c->seq, (uint64_t)row * c->seq.x->stride[3]);
  if (sequence < 0 || (uint32_t)sequence >= sequences)
    return gos_unit_fault(unit, GPUOS_AS_SEQ, sequence, sequences);
  if ((uint32_t)position >= context)
    return gos_unit_fault(unit, GPUOS_AS_POS, position, (uint32_t)context);
  *out_slot = (gos_cache_slot_t){.sequence = (uint32_t)sequence, .position = (uint32_t)position};
  return true;
}

bool gos_cache_find(gos_unit_t *unit, const gos_cache_t *c, const gos_cache_slot_t *slot,
                    uint32_t which, uint8_t **out_vector) {
  const uint32_t *pages = c->pages.x->stride, *store = c->store.x->stride;
  uint64_t entry =
      (uint64_t)slot->sequence * pages[2] + (uint64_t)(slot->position / c->page_size) * pages[3];
  int32_t page = gos_index(&c->pages, entry);
  uint32_t limit = c->store.x->extent[2];
  if (page < 0 || (uint32_t)page >= limit) return gos_unit_fault(unit, GPUOS_AS_PAGES, page, limit);
  uint64_t inside = (uint64_t)(slot->position % c->page_size) * c->head_dim;
  *out_vector =
      gos_element(&c->store, (uint64_t)which * store[0] + (uint64_t)slot->head * store[1] +
                                 (uint64_t)page * store[2] + inside * store[3]);
  return true;
}

// ---- KV_APPEND ----------------------------------------------------------------------------------

void gos_cache_load_own(const gos_cache_t *c, const gos_view_t *from, uint32_t row, uint32_t head,
                        const float *rotation, float *out) {
  const gpuos_operand_t *x = from->x;
  uint64_t element = (uint64_t)row * x->stride[1] + (uint64_t)head * x->stride[2];
  gos_load_f32(from->dtype, gos_element(from, element), x->stride[3], c->head_dim, out);
  if (rotation == NULL) return;
  gos_rotate(out, c->head_dim, c->neighbours, rotation);
  gos_round_f32(from->dtype, c->head_dim, out);
}

const float *gos_cache_rotation(const gos_cache_t *c, uint32_t row, float *scratch) {
  const gpuos_operand_t *x = c->rotation.x;
  if (x == NULL || gos_index(&c->pos, (uint64_t)row * c->pos.x->stride[3]) < 0) return NULL;
  gos_load_f32(GPUOS_F32, gos_element(&c->rotation, (uint64_t)row * x->stride[2]), x->stride[3],
               c->head_dim, scratch);
  return scratch;
}

static bool append(gos_unit_t *unit, const gos_cache_t *c, const gos_view_t *kv, uint32_t row,
                   gos_cache_slot_t *slot) {
  const gpuos_box_t *box = &unit->box;
  float *vector = unit->scratch;
  const float *rotation = gos_cache_rotation(c, row, vector + c->head_dim);
  for (slot->head = box->lo[2]; slot->head < box->lo[2] + box->n[2]; slot->head++)
    for (uint32_t which = 0; which < 2; which++) {
      uint8_t *to = NULL;
      if (!gos_cache_find(unit, c, slot, which, &to)) return false;
      gos_cache_load_own(c, &kv[which], row, slot->head, which == 0 ? rotation : NULL, vector);
      gos_store_f32(c->store.dtype, to, c->store.x->stride[3], c->head_dim, vector);
    }
  return true;
}

bool gos_unit_kv_append(gos_unit_t *unit) {
  const uint32_t *params = unit->op->params;
  gos_cache_t cache = gos_cache_make(unit, params[0], params[1], params[2]);
  gos_view_t kv[2] = {gos_view(unit, GPUOS_AS_K), gos_view(unit, GPUOS_AS_V)};
  for (uint32_t row = 0; row < kv[0].x->extent[1]; row++) {
    gos_cache_slot_t slot;
    bool absent;
    if (!gos_cache_row(unit, &cache, row, &slot, &absent)) return false;
    if (!absent && !append(unit, &cache, kv, row, &slot)) return false;
  }
  return true;
}
