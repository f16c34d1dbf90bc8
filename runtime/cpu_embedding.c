// cpu_embedding.c: EMBEDDING, rows of a table by number.
#include "cpu_units.h"

typedef struct strip {
  const uint8_t *source;
  uint8_t *target;
  uint64_t source_step, target_step;
  uint32_t count;
} strip_t;

static void copy_strip(const gos_view_t *table, const gos_view_t *out, const strip_t *s) {
  if (table->dtype == out->dtype && s->source_step == 1 && s->target_step == 1) {
    memcpy(s->target, s->source, (size_t)s->count * out->bytes);
    return;
  }
  for (uint32_t done = 0; done < s->count; done += GOS_STRIP) {
    float floats[GOS_STRIP];
    uint32_t n = s->count - done < GOS_STRIP ? s->count - done : GOS_STRIP;
    gos_load_f32(table->dtype, s->source + done * s->source_step * table->bytes, s->source_step, n,
                 floats);
    gos_store_f32(out->dtype, s->target + done * s->target_step * out->bytes, s->target_step, n,
                  floats);
  }
}

bool gos_unit_embedding(gos_unit_t *unit) {
  gos_view_t ids = gos_view(unit, GPUOS_AS_IDS), table = gos_view(unit, GPUOS_AS_TABLE);
  gos_view_t out = gos_view(unit, GPUOS_AS_OUT);
  const gpuos_box_t *box = &unit->box;
  uint32_t rows = table.x->extent[2];
  for (uint32_t r = box->lo[2]; r < box->lo[2] + box->n[2]; r++) {
    const uint32_t at[GPUOS_DIMS] = {0, 0, r, box->lo[3]};
    int32_t id = gos_index(&ids, r * ids.step[2]);
    if (id < 0 || (uint32_t)id >= rows) return gos_unit_fault(unit, GPUOS_AS_IDS, id, rows);
    uint64_t element = (uint64_t)id * table.x->stride[2] + box->lo[3] * table.step[3];
    copy_strip(&table, &out,
               &(strip_t){gos_element(&table, element), gos_at(&out, at), table.step[3],
                          out.step[3], box->n[3]});
  }
  return true;
}
