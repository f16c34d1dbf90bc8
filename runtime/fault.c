// fault.c: puts the fault that an ended step left in its control block into words.
#include "internal.h"

// The device wrote these numbers; a broken kernel may have written nonsense.
static const char *op_name(const gpuos_table_t *table, uint32_t tile) {
  if (tile >= table->tiles.count) return "?";
  uint32_t op = GPUOS_SECTION(table, gpuos_tile_t, tiles)[tile].op;
  return gos_table_string(table, GPUOS_SECTION(table, gpuos_op_t, ops)[op].name);
}

gpuos_status_t gos_report_fault(gpuos_program_t *program, const gpuos_control_t *c) {
  gos_error_t *error = &program->device->error;
  const char *op = op_name(program->table, c->fault_tile);
  if (c->fault == GPUOS_FAULT_STALL)
    return gos_fail(error, GPUOS_STALL,
                    "SM %u tile %u (op '%s' unit %u) waits for counter %u: expected %u, found %u",
                    c->fault_sm, c->fault_tile, op, c->fault_slice, c->fault_a, c->fault_b,
                    c->fault_c);
  if (c->fault == GPUOS_FAULT_INDEX)
    return gos_fail(error, GPUOS_FAULT,
                    "SM %u tile %u (op '%s' unit %u): '%s' holds index %d, the limit is %u",
                    c->fault_sm, c->fault_tile, op, c->fault_slice, gos_as_name(c->fault_a),
                    (int)c->fault_b, c->fault_c);
  return gos_fail(error, GPUOS_FAULT, "SM %u tile %u (op '%s' unit %u): unknown fault %u",
                  c->fault_sm, c->fault_tile, op, c->fault_slice, c->fault);
}
