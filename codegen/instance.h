// instance.h: between kernel_source.c, instance.c and device_limits.c.
//
// An operator's instantiation is the struct that its device code in device/NAME.cuh is a template over.
#ifndef GOS_CODEGEN_INSTANCE_H_
#define GOS_CODEGEN_INSTANCE_H_

#include "plan.h"

// ---- instance.c: the members of that struct, by kind ---------------------------------------------

typedef struct gos_device_kind {
  const char *name; // of the header, and of the template after "gpuos_"
  void (*add)(gos_text_t *text, const gos_op_t *op);
} gos_device_kind_t;
extern const gos_device_kind_t gos_device_kinds[GPUOS_KIND_COUNT];
// Of matmuls that gos_op_wgmma_tiled is true of, of those whose weights stream, and of attention that
// gos_op_rings is true of.
extern const gos_device_kind_t gos_device_wgmma, gos_device_stream, gos_device_attention_ring;

// Formats of x and w in shared memory.
void gos_matmul_elems(const gos_op_t *op, uint32_t *out_x, uint32_t *out_w);
// The size that the device code has for a wanted one, at most `most`; 0: none.
uint32_t gos_matmul_tile_size(uint32_t wanted, uint32_t most);

// ---- device_limits.c: what the device code cannot run ----------------------------------------------

// False after the error [device-op].
bool gos_device_can_run(const gos_plan_t *plan, const gos_op_t *op);

#endif // GOS_CODEGEN_INSTANCE_H_
