// target.h: what a chip can do and what its resources cost, read from a description file.
//
// ir/targets/NAME.yaml, embedded in the compiler, or a file given with --target-file. Every figure
// in a description names its source. Used by tile, footprint, bound, memory and schedule.
#ifndef GOS_IR_TARGET_H_
#define GOS_IR_TARGET_H_

#include "arena.h"
#include "diag.h"
#include "gpuos_abi.h"

enum { GOS_MAX_CURVE = 16 };

// Piecewise linear, constant beyond its ends.
typedef struct gos_curve {
  size_t count;
  double x[GOS_MAX_CURVE], y[GOS_MAX_CURVE];
} gos_curve_t;
double gos_curve_at(const gos_curve_t *curve, double x);

typedef struct gos_target {
  const char *name;      // "h200"
  const char *arch_name; // "sm_90a", as NVRTC takes it
  uint32_t arch;         // 90
  uint32_t sm_count;
  uint32_t clock_mhz;  // SM clock under sustained load
  uint32_t smem_bytes; // shared memory of one CTA
  uint32_t registers;  // 32-bit, of one SM
  uint64_t l2_bytes;
  uint64_t l2_keep_bytes; // of L2 that lines may be kept in at no cost to a stream
  uint64_t memory_bytes;
  uint32_t power_w;
  gos_curve_t read_tbps; // HBM read ceiling by SMs used; its last value is the chip's
  double write_tbps;
  double sm_read_gbps;                     // the most one SM reads
  double l2_tbps;                          // all SMs together
  double tensor_tflops[GPUOS_DTYPE_COUNT]; // dense, sustained, by operand dtype; 0: not in hardware
  double code_tflops[GPUOS_DTYPE_COUNT];   // what our matmul reaches; 0: it runs on vector_gflops
  double vector_gflops;                    // fp32 outside the tensor cores, all SMs
  double special_gops;                     // exp, rsqrt ..., all SMs
  double unit_overhead_ns;                 // ticket, waits and signal of one tile
  double hop_ns;                           // signal of one SM seen by another
  double margin;                           // bounds are this much longer than the model says
  double margin_wgmma;     // those of wgmma units; where the chip has none it does not matter
  double price_read;       // of one HBM byte read, the unit of all prices
  gos_curve_t price_write; // of one HBM byte written, by GB/s written
  double price_l2;         // of one byte kept in L2
  double pj_per_flop;      // energy of tensor work
  double pj_per_hbm_byte;
} gos_target_t;

// Reads a description (a registered file); NULL after errors ([target]).
const gos_target_t *gos_target_read(gos_arena_t *arena, gos_diags_t *diags, uint16_t file);
// The embedded one of that name; an error at `at` lists the names there are.
const gos_target_t *gos_target_find(gos_arena_t *arena, gos_diags_t *diags, gos_loc_t at,
                                    const char *name);

#endif // GOS_IR_TARGET_H_
