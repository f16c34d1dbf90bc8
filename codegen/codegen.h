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

// ---- kernel_source.c: plan -> one short CUDA C++ file over the headers in device/ ---------------
// A program of a kernel.
typedef struct gos_part {
  gos_plan_t plan;
  gos_bytes_t table;
} gos_part_t;
// Of one program, or of a live one and a job. NULL after an error ([device-op]) naming an operator that the
// device code cannot run.
const char *gos_kernel_source(const gos_part_t *parts, size_t count);

// ---- flatten.c: headers in their places ---------------------------------------------------------
// `text` with the device headers that it includes, each once, unless `seen` has it: it then has all of them. What
// includes gpuos_abi.h is not asked for it again.
typedef struct gos_seen {
  GOS_ARRAY(const char *) names;
} gos_seen_t;
const char *gos_flatten(gos_arena_t *arena, const char *text, gos_seen_t *seen);

// ---- nvrtc.c: CUDA C++ -> cubin -----------------------------------------------------------------
// PTX instead of a cubin when `ptx`. With a folder `cache_dir` (NULL: none) what has been compiled
// before is taken from there. Errors: [nvrtc-missing] no NVRTC library; [nvrtc] with its log; [spill]
// registers or stack spilt; [wgmma-serial]; [cache], [output] the folder cannot be made, written.
bool gos_nvrtc_compile(const gos_plan_t *plan, const char *source, bool ptx, const char *cache_dir,
                       gos_bytes_t *out_code);

// ---- cache.c: compiled code by the hash of what it was made from --------------------------------
typedef struct gos_hash {
  uint64_t high, low;
} gos_hash_t;
typedef struct gos_cache {
  const char *dir, *kind; // kind: ending of the entry's name
  gos_hash_t key;
} gos_cache_t;
extern const gos_hash_t gos_hash_start;
gos_hash_t gos_hash_bytes(gos_hash_t after, const void *data, size_t bytes); // goes on from `after`
// Adds a text with its end, so that "a", "bc" is not "ab", "c".
void gos_hash_add(gos_hash_t *hash, const char *text);
bool gos_cache_open(gos_ir_t *ir, const gos_cache_t *cache); // makes the folder. [cache]
// False when there is no such entry, or none that can be trusted.
bool gos_cache_find(gos_ir_t *ir, const gos_cache_t *cache, gos_bytes_t *out_code);
bool gos_cache_add(gos_ir_t *ir, const gos_cache_t *cache, gos_bytes_t code); // [output]

// ---- cubin.c: ELF work --------------------------------------------------------------------------
typedef struct gos_resources {
  uint32_t arch, registers, stack_bytes, static_smem_bytes;
  uint32_t threads, dynamic_smem_bytes; // as the global gpuos_launch says; 0 without one
} gos_resources_t;
bool gos_cubin_resources(gos_bytes_t cubin, const char *kernel, gos_resources_t *out_resources);
// The cubin with `table` as section .gpuos.sched; no existing byte moves.
gos_bytes_t gos_cubin_attach(gos_arena_t *arena, gos_bytes_t cubin, gos_bytes_t table);

// ---- resources.c: what the kernel takes, against the target and the declared footprints ---------
// [resources]
bool gos_resources_check(const gos_part_t *parts, size_t count, gos_bytes_t cubin,
                         gos_resources_t *out_resources);
uint32_t gos_resources_registers(const gos_resources_t *r); // of a CTA, as they are allocated
static inline uint32_t gos_resources_smem(const gos_resources_t *r) {
  return r->static_smem_bytes + r->dynamic_smem_bytes;
}

// ---- artefact.c ---------------------------------------------------------------------------------
// Writes path whole or not at all (temporary name, then rename); "-" is standard output. [output]
bool gos_artefact_write(gos_ir_t *ir, const char *path, gos_bytes_t bytes);

#endif // GOS_CODEGEN_CODEGEN_H_
