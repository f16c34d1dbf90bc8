// codegen.h: a scheduled plan becomes a schedule table, CUDA C++, a cubin and a file.
//
// Called by pipeline.c in this order. Everything made lives in the plan's arena. One thread.
#ifndef GOS_CODEGEN_CODEGEN_H_
#define GOS_CODEGEN_CODEGEN_H_

#include "plan.h"

typedef struct gos_bytes {
  void *at; // 16-byte aligned
  size_t count;
} gos_bytes_t;

// ---- table.c: plan -> gpuos_table_t -------------------------------------------------------------
gos_bytes_t gos_table_make(const gos_plan_t *plan, uint32_t arch);

// ---- kernel_source.c: plan -> one short CUDA C++ file over the headers in device/
// ----------------------- NULL after an error ([device-op]) naming an operator that the device code
// cannot run.
const char *gos_kernel_source(const gos_plan_t *plan, const gpuos_table_t *table);

// ---- nvrtc.c: CUDA C++ -> cubin
// --------------------------------------------------------------------------- Errors:
// [nvrtc-missing] no NVRTC library; [nvrtc] with its log; [spill] registers or stack spilt;
// [wgmma-serial]. PTX instead of a cubin when `ptx`.
bool gos_nvrtc_compile(const gos_plan_t *plan, const char *source, bool ptx, gos_bytes_t *out_code);

// ---- cubin.c: ELF work --------------------------------------------------------------------------
typedef struct gos_resources {
  uint32_t arch, registers, stack_bytes, static_smem_bytes;
} gos_resources_t;
bool gos_cubin_resources(gos_bytes_t cubin, const char *kernel, gos_resources_t *out_resources);
// The cubin with `table` as section .gpuos.sched; no existing byte moves.
gos_bytes_t gos_cubin_attach(gos_arena_t *arena, gos_bytes_t cubin, gos_bytes_t table);

// ---- artefact.c ---------------------------------------------------------------------------------
// Writes path whole or not at all (temporary name, then rename); "-" is standard output. [output]
bool gos_artefact_write(gos_ir_t *ir, const char *path, gos_bytes_t bytes);

#endif // GOS_CODEGEN_CODEGEN_H_
