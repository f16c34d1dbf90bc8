// resources.c: what the kernel takes, read back from its cubin, against what there is and what was
// declared.
//
// The kernel is resident, one CTA an SM: one that does not fit would never run, and on the machine
// that loads it. Limits and granularity: CUDA C++ Programming Guide 13.0, compute capabilities.
#include "codegen.h"

enum {
  WARP = 32,
  REGISTER_STEP = 8,     // registers of a thread are allocated in eights,
  WARP_REGISTERS = 256,  // those of a warp in multiples of this
  DECLARED_SLACK = 4096, // bytes of shared memory
};

static uint32_t round_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

uint32_t gos_resources_registers(const gos_resources_t *r) {
  uint32_t of_warp = round_up(round_up(r->registers, REGISTER_STEP) * WARP, WARP_REGISTERS);
  return of_warp * (round_up(r->threads, WARP) / WARP);
}

static bool refuse(const gos_plan_t *plan, const char *why) {
  gos_error(plan->ir->diags, (gos_loc_t){0}, "resources", "the kernel cannot be resident: %s", why);
  return false;
}

static bool fits(const gos_plan_t *plan, const gos_resources_t *r) {
  const gos_target_t *target = plan->target;
  gos_arena_t *arena = plan->ir->arena;
  uint32_t registers = gos_resources_registers(r), smem = gos_resources_smem(r);
  bool ok = true;
  if (registers > target->registers)
    ok = refuse(plan,
                gos_format(arena, "%u threads of %u registers take %u, an SM of %s has %u",
                           r->threads, r->registers, registers, target->name, target->registers));
  if (smem > target->smem_bytes)
    ok = refuse(plan, gos_format(arena,
                                 "it takes %u bytes of shared memory (%u of them static), a CTA on "
                                 "%s can have %u",
                                 smem, r->static_smem_bytes, target->name, target->smem_bytes));
  return ok;
}

// Memory traffic that no footprint counts. No kernel of ours needs any.
static bool keeps_no_stack(const gos_plan_t *plan, const gos_resources_t *r) {
  if (!r->stack_bytes) return true;
  gos_error(plan->ir->diags, (gos_loc_t){0}, "resources",
            "the kernel keeps %u bytes a thread in local memory", r->stack_bytes);
  return false;
}

// The largest declared footprint of all programs is what the kernel was found to take. Attention's is only a limit: how it
// loads, and so what it keeps, is code generation's choice; and so is that of weights that stream, whose
// ring has whole stages.
static bool is_as_declared(const gos_part_t *parts, size_t count, const gos_resources_t *r) {
  uint32_t most = 0, smem = gos_resources_smem(r);
  bool limit = count > 1; // programs' own memory adds up
  for (size_t p = 0; p < count; p++)
    for (size_t i = 0; i < parts[p].plan.ops.count; i++) {
      const gos_op_t *op = &parts[p].plan.ops.at[i];
      if (op->op.footprint.smem_bytes <= most) continue;
      most = op->op.footprint.smem_bytes;
      limit |= op->op.kind == GPUOS_ATTENTION || op->streams;
    }
  if (!most || (smem <= most + DECLARED_SLACK * count && (limit || most <= smem + DECLARED_SLACK)))
    return true;
  gos_error(parts[0].plan.ir->diags, (gos_loc_t){0}, "resources",
            "internal error: footprints declare %u bytes of shared memory, the kernel takes %u",
            most, smem);
  return false;
}

bool gos_resources_check(const gos_part_t *parts, size_t count, gos_bytes_t cubin,
                         gos_resources_t *out_resources) {
  const gos_plan_t *plan = &parts[0].plan;
  if (!gos_cubin_resources(cubin, "gpuos_kernel", out_resources) || !out_resources->threads) {
    gos_error(plan->ir->diags, (gos_loc_t){0}, "resources",
              "internal error: the cubin does not say what gpuos_kernel takes");
    return false;
  }
  bool fit = fits(plan, out_resources), clean = keeps_no_stack(plan, out_resources);
  return is_as_declared(parts, count, out_resources) && fit && clean;
}
