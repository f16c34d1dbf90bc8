// device_limits.c: what the device code cannot run, and what to change.
#include "instance.h"

enum {
  MAX_ACCS = 16384, // accumulators of a matmul tile: 64 registers of each of 256 threads
  FP8_ARCH = 89,    // PTX ISA: fp8 conversions and mma
  LEAST_ARCH = 80,  // cp.async, bf16 mma
  ROW_BYTES = 128,  // device/matmul_warp.cuh: of k in a block
  WARPS = 8,        // device/unit.cuh
};

static bool refuse(const gos_plan_t *plan, const gos_op_t *op, const char *why,
                   const char *change) {
  gos_diags_t *diags = plan->ir->diags;
  gos_error(diags, op->at, "device-op", "'%s' cannot run on %s: %s", op->name, plan->target->name,
            why);
  gos_note(diags, (gos_loc_t){0}, "%s", change);
  return false;
}

static bool has_fp8(const gos_op_t *op) {
  for (uint32_t i = 0; i < op->op.operand_count; i++)
    if (gos_dtype_is_fp8(op->operands[i].dtype)) return true;
  for (uint32_t i = 0; i < op->op.code_count; i++)
    if (op->code[i].op == GPUOS_CODE_ROUND && gos_dtype_is_fp8(op->code[i].b)) return true;
  return false;
}

static bool runs_here(const gos_plan_t *plan, const gos_op_t *op) {
  uint32_t arch = plan->target->arch;
  if (arch < LEAST_ARCH)
    return refuse(plan, op, "the chip lacks cp.async and bf16 matrix instructions",
                  "use a target of compute capability 8.0 or later");
  if (arch < FP8_ARCH && has_fp8(op))
    return refuse(plan, op, "the chip has no 8-bit floats",
                  "use bf16, or a target of compute capability 8.9 or later");
  return true;
}

// Shared memory of the fewest stages that overlap, as device/matmul.cuh lays them out.
static uint32_t matmul_smem(const gos_op_t *op, uint32_t m, uint32_t n, uint32_t count) {
  uint32_t x, w, rows = m + count * n, blocks = rows <= 48 ? 4 : rows <= 128 ? 2 : 1;
  const gpuos_operand_t *norm = gos_op_find(op, GPUOS_AS_NORM);
  gos_matmul_elems(op, &x, &w);
  uint32_t stage = rows * ROW_BYTES * blocks;
  if (!norm) return 2 * stage;
  uint32_t weights = ROW_BYTES * blocks / gpuos_dtype_bytes(x) * gpuos_dtype_bytes(norm->dtype);
  return 2 * (stage + weights) + m * (WARPS + 1) * (uint32_t)sizeof(float);
}

static bool matmul_fits(const gos_plan_t *plan, const gos_op_t *op) {
  const gpuos_op_t *o = &op->op;
  uint32_t m = gos_matmul_tile_size(o->tile[1], 128), n = gos_matmul_tile_size(o->tile[2], 256);
  uint32_t count = gos_op_find(op, GPUOS_AS_W1) ? 2 : 1;
  if (gos_op_find(op, GPUOS_AS_X)->dtype == GPUOS_I32 ||
      gos_op_find(op, GPUOS_AS_W0)->dtype == GPUOS_I32)
    return refuse(plan, op, "integer matrices are not multiplied", "cast them to a float first");
  if (op->streams || gos_op_wgmma_tiled(plan->target, op)) return true; // tile knows their shapes
  if (m == 0 || n == 0 || count * m * n > MAX_ACCS)
    return refuse(plan, op,
                  gos_format(plan->ir->arena, "a tile of %u x %u x %u has too many accumulators",
                             count, o->tile[1], o->tile[2]),
                  "at most 128 x 256, and 16384 in all");
  uint32_t smem = matmul_smem(op, m, n, count), room = gos_plan_smem(plan).plain_bytes;
  if (smem > room)
    return refuse(plan, op,
                  gos_format(plan->ir->arena, "a tile of %u x %u takes %u bytes of shared memory",
                             m, count * n, smem),
                  gos_format(plan->ir->arena, "there are %u; choose a smaller tile", room));
  return true;
}

static bool heads_fit(const gos_plan_t *plan, const gos_op_t *op, uint32_t head_dim) {
  if (head_dim == 0 || head_dim > 1024 || head_dim % 2)
    return refuse(plan, op, gos_format(plan->ir->arena, "heads of %u elements", head_dim),
                  "head_dim is even, from 2 to 1024");
  return true;
}

bool gos_device_can_run(const gos_plan_t *plan, const gos_op_t *op) {
  if (!runs_here(plan, op)) return false;
  switch (op->op.kind) {
  case GPUOS_MATMUL: return matmul_fits(plan, op);
  case GPUOS_ROPE: return heads_fit(plan, op, gos_row_width(op));
  case GPUOS_ATTENTION: return heads_fit(plan, op, op->op.params[2]);
  default: return true;
  }
}
