// fault.c: puts the fault that ended a step into words.
#include "internal.h"

const char *gos_tile_op_name(const gpuos_table_t *table, uint32_t tile) {
  if (tile >= table->tiles.count) return "?";
  uint32_t op = GPUOS_SECTION(table, gpuos_tile_t, tiles)[tile].op;
  return gos_table_string(table, GPUOS_SECTION(table, gpuos_op_t, ops)[op].name);
}

gpuos_status_t gos_report_fault(gpuos_program_t *program, const gos_fault_t *f) {
  gos_error_t *error = &program->device->error;
  const char *op = gos_tile_op_name(program->table, f->tile);
  if (f->fault == GPUOS_FAULT_STALL)
    return gos_fail(error, GPUOS_STALL,
                    "SM %u tile %u (op '%s' unit %u) waits for counter %u: expected %u, found %u",
                    f->sm, f->tile, op, f->slice, f->a, f->b, f->c);
  if (f->fault == GPUOS_FAULT_INDEX)
    return gos_fail(error, GPUOS_FAULT,
                    "SM %u tile %u (op '%s' unit %u): '%s' holds index %d, the limit is %u", f->sm,
                    f->tile, op, f->slice, gos_as_name(f->a), (int)f->b, f->c);
  return gos_fail(error, GPUOS_FAULT, "SM %u tile %u (op '%s' unit %u): unknown fault %u", f->sm,
                  f->tile, op, f->slice, f->fault);
}
