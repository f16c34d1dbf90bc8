// gpuos_abi.h: the schedule table and the control block, byte for byte.
//
// The one contract between the compiler (writes a table), check.c (proves it), the runtime (loads
// it), the CPU device (a thread plays an SM) and device code (a CTA plays an SM). Plain structs,
// little endian, fixed sizes. Nothing here allocates; a table is one contiguous block that can be
// mapped read-only.
//
//   graph      one compiled model: a run of tiles
//   operator   a computation over an iteration space of four dimensions
//   operand    a strided view of a buffer: each of its dimensions follows one iteration dimension,
//              or is read whole
//   tile       one cell of an operator's iteration grid; handed out by ticket, in table order
//   unit       one slice of a tile along dimension 3; the longest an SM works before it can be
//              taken back
//   counter    signalled once by each of its tiles, waited for at its full count
//
// Tickets run over all graphs of a table in one order, and the proof assumes that order. Reserved
// fields are 0.
//
// Because every operand says which iteration dimensions it follows, the bytes a tile touches are a
// function of the table alone: gpuos_tile_box and gpuos_operand_box below. Footprints, dependences
// and the safety proof all use it.
#ifndef GPUOS_ABI_H_
#define GPUOS_ABI_H_

#ifdef __CUDACC_RTC__ // NVRTC sees no include folder
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif

#if defined(__cplusplus)
#define GPUOS_STATIC_ASSERT(cond, why) static_assert(cond, why)
#else
#define GPUOS_STATIC_ASSERT(cond, why) _Static_assert(cond, why)
#endif
#if defined(__CUDACC__)
#define GPUOS_INLINE __host__ __device__ static inline
#else
#define GPUOS_INLINE static inline
#endif

enum {
  GPUOS_MAGIC = 0x534f5047, // "GPOS"
  GPUOS_ABI_VERSION = 9,
  GPUOS_DIMS = 4,
  GPUOS_RANK = 6,
  GPUOS_PARAMS = 8,
  GPUOS_SLICED_DIM = 3, // the iteration dimension a tile walks in slices
  GPUOS_ALL = 0xff,     // gpuos_operand_t.follows: this dimension is touched whole by every tile
  GPUOS_MAX_SMS = 256,
  GPUOS_MAX_CODE = 200, // instructions of one pointwise expression
  GPUOS_MAX_OPERANDS = 16,
  GPUOS_BUFFER_ALIGNMENT = 256, // bytes, of buffers' addresses on a GPU
};

#define GPUOS_NONE 0xffffffffu // no counter, no tile

// ---- names --------------------------------------------------------------------------------------

typedef enum gpuos_dtype {
  GPUOS_F32,
  GPUOS_F16,
  GPUOS_BF16,
  GPUOS_E4M3, // OCP 8-bit float, 4 exponent bits, no infinity, saturating conversion
  GPUOS_E5M2,
  GPUOS_I32,
  GPUOS_DTYPE_COUNT
} gpuos_dtype_t;

GPUOS_INLINE uint32_t gpuos_dtype_bytes(uint32_t dtype) {
  return dtype == GPUOS_F32 || dtype == GPUOS_I32    ? 4u
         : dtype == GPUOS_F16 || dtype == GPUOS_BF16 ? 2u
                                                     : 1u;
}

typedef enum gpuos_role {
  GPUOS_INPUT,     // written by the host before a step
  GPUOS_WEIGHT,    // bound by name at load, never written
  GPUOS_STATE,     // kept between steps (KV cache), zero at load
  GPUOS_OUTPUT,    // read by the host after a step
  GPUOS_WORKSPACE, // intermediates: exactly one such buffer, the last one
  GPUOS_ROLE_COUNT
} gpuos_role_t;

// What an operator computes. Iteration dimensions in brackets; "whole" operands follow none of
// them. Every kind accumulates in fp32 and rounds once, to the dtype of its OUT, nearest even, fp8
// saturating.
typedef enum gpuos_kind {
  // [batch, m, n, k] acc_j = sum_k X[b,m,k] W_j[b,n,k], j = 0 or 0..1; OUT[b,m,n] = code(acc,
  // EXTRA[b,m,n]...). With NORM[k]: X is first divided by its row's root mean square, rounded to
  // X's dtype, multiplied by NORM, rounded to W_0's; k is then not sliced. params: 0 = f32 eps.
  GPUOS_MATMUL,
  // [d0, d1, d2, d3] OUT[d] = code(EXTRA[d]...): pointwise, casts, copies, transposes, quantise,
  // dequantise.
  GPUOS_MAP,
  // [d0, d1, row, 1] OUT[..,row,:] = round(X / rms(X)) * NORM. params: 0 = f32 eps.
  GPUOS_RMSNORM,
  // [d0, d1, row, 1] OUT[..,row,:] = softmax(X[..,row,:]).
  GPUOS_SOFTMAX,
  // [1, 1, row, col] OUT[row,col] = TABLE[IDS[row],col]; an id outside the table is a fault.
  GPUOS_EMBEDDING,
  // [1, row, head, 1] rotates X[row,head,:] by POS[row]; a negative position leaves the row as it
  // is. params: 0 = f32 theta; 1 = u32 pairing (0: halves i, i + d/2; 1: neighbours 2i, 2i + 1); 2 =
  // u32 scaling (0 none, 1 linear, 2 llama3); 3 = f32 factor; 4 = f32 low_freq_factor; 5 = f32
  // high_freq_factor; 6 = f32 original context length. Frequencies as in Hugging Face's
  // modeling_rope_utils. Without X: OUT[row,0,:] f32 = the cosines of the pairs, then their sines.
  GPUOS_ROPE,
  // [1, 1, kv head, 1] writes K[row,head,:], V[row,head,:] of every row at position POS[row] of
  // sequence SEQ[row] (row's own number without SEQ) into CACHE [2, kv head, page, page_size *
  // head_dim] through PAGES [sequence, context / page_size]. A negative position writes nothing; a
  // page or a position outside is a fault. CACHE_IN is the same view before the write. With
  // ROTATION[row]: K is rotated first and rounded to its dtype. params: 0 = u32 page_size; 1 = u32
  // head_dim; 2 = u32 pairing, as of ROPE.
  GPUOS_KV_APPEND,
  // [batch, row, kv head, split] Q, OUT [b,row,kv head,group * head_dim]. With CACHE: keys
  // 0..POS[row] of sequence SEQ[row] (batch is 1), split s taking positions [s * n, (s+1) * n), n =
  // gpuos_split_keys; a negative POS gives zeros. With CACHE, K and V, but no SEQ: the key at POS[row] is
  // K[row], rounded to its own dtype and the cache's, which need not hold it yet; the value likewise.
  // With ROTATION[row]: Q, and K if it is there, are rotated first, and K rounded to its dtype. With K
  // and V [b,kv row,kv head,head_dim] and no CACHE: all keys, or with causal those up to the query's
  // own row (counted from the end when there are more keys than queries). With more than one split
  // the result is PARTIAL instead of OUT.
  // params: 0 = f32 scale; 1 = u32 page_size (0 without CACHE); 2 = u32 head_dim; 3 = u32 group; 4
  // = u32 split_len, the most keys of a split (0 without CACHE); 5 = u32 causal; 6 = u32 pairing, as of ROPE;
  // 7 = u32 shares: that many splits share the keys out, as long as they can hold them (0 without CACHE).
  GPUOS_ATTENTION,
  // [1, row, kv head, 1] merges PARTIAL [row, kv head, split, group * (head_dim + 2)] f32 in split
  // order. For each query of the group: head_dim weighted sums, their running maximum, the sum of
  // exponentials; an empty split has maximum minus infinity and sum 0. With POS: of the first
  // gpuos_used_splits(POS[row]) alone, and nobody need write the others. params: 2, 3 as above; 4 and 7 with POS.
  GPUOS_ATTENTION_COMBINE,
  // [d0, d1, row, 1] OUT [1, d0, d1, row] i32 = index of the largest X[..,row,:], the lowest one of
  // equals, NaN never.
  GPUOS_ARGMAX,
  GPUOS_KIND_COUNT
} gpuos_kind_t;

// What an operand is to its operator.
typedef enum gpuos_as {
  GPUOS_AS_OUT,
  GPUOS_AS_X, // also Q of attention
  GPUOS_AS_W0,
  GPUOS_AS_W1,
  GPUOS_AS_NORM,
  GPUOS_AS_EXTRA, // input of a pointwise expression, numbered in operand order
  GPUOS_AS_IDS,
  GPUOS_AS_TABLE,
  GPUOS_AS_POS,
  GPUOS_AS_SEQ,
  GPUOS_AS_PAGES,
  GPUOS_AS_K,
  GPUOS_AS_V,
  GPUOS_AS_CACHE_IN, // state before the write: a read
  GPUOS_AS_CACHE,    // written by KV_APPEND, read by ATTENTION
  GPUOS_AS_PARTIAL,  // written by ATTENTION, read by ATTENTION_COMBINE
  GPUOS_AS_ROTATION, // of a row's heads: what ROPE makes without X
  GPUOS_AS_COUNT
} gpuos_as_t;

// Pointwise expressions: straight-line code in which instruction i defines value i; the last value
// is the result. a and b number earlier instructions, except: ACC's a is the accumulator, INPUT's a
// the EXTRA operand's number.
typedef enum gpuos_code_op {
  GPUOS_CODE_ACC,
  GPUOS_CODE_INPUT,
  GPUOS_CODE_CONST, // imm
  GPUOS_CODE_ADD,
  GPUOS_CODE_SUB,
  GPUOS_CODE_MUL,
  GPUOS_CODE_DIV,
  GPUOS_CODE_MAX, // the other operand when one is NaN
  GPUOS_CODE_MIN,
  GPUOS_CODE_NEG,
  GPUOS_CODE_ABS,
  GPUOS_CODE_EXP,
  GPUOS_CODE_LOG,
  GPUOS_CODE_SQRT,
  GPUOS_CODE_RSQRT,
  GPUOS_CODE_TANH,
  GPUOS_CODE_ERF,
  GPUOS_CODE_ROUND, // a rounded to dtype b and back
  GPUOS_CODE_COUNT
} gpuos_code_op_t;

// ---- the table ----------------------------------------------------------------------------------

// A section: `count` records from byte `offset` of the table. Sections follow the header in the
// order of its fields, 16-byte aligned, without overlap.
typedef struct gpuos_span {
  uint32_t offset, count;
} gpuos_span_t;

typedef struct gpuos_table {
  uint32_t magic, version;
  uint64_t bytes; // of the whole table, header included
  uint64_t hash;  // gpuos_hash of the table with this field zero; the cubin carries the same number
  uint32_t arch;  // 90 for sm_90a ...; 0: no device code
  uint32_t budget_ns;   // no unit's bound is larger
  uint32_t park_bytes;  // of one parked accumulator, the largest over all operators
  uint32_t value_count; // values: the first buffers.count are the buffers' contents before the step
  gpuos_span_t graphs;  // gpuos_graph_t
  gpuos_span_t buffers; // gpuos_buffer_t, the workspace last
  gpuos_span_t ops;     // gpuos_op_t
  gpuos_span_t operands;   // gpuos_operand_t
  gpuos_span_t code;       // gpuos_code_t
  gpuos_span_t tiles;      // gpuos_tile_t, in ticket order
  gpuos_span_t wait_lists; // gpuos_wait_list_t; list 0 is empty
  gpuos_span_t waits;      // gpuos_wait_t
  gpuos_span_t counters;   // uint32_t: signals each counter receives in a step
  gpuos_span_t strings;    // chars, NUL-terminated names; offset 0 is ""
} gpuos_table_t;

typedef struct gpuos_graph {
  uint32_t name;        // string
  uint32_t live;        // 1: runs in steps with a deadline; 0: background
  uint32_t deadline_us; // 0: none
  uint32_t first_tile, tile_count;
  uint32_t first_op, op_count;
  uint32_t reserved;
} gpuos_graph_t;

typedef struct gpuos_buffer {
  uint32_t name; // string: the tensor's name in the graph, the weight's in the checkpoint
  uint8_t role, dtype, rank;
  uint8_t joined; // 1: a weight that begins where the buffer before it, such a weight as well, ends
  uint32_t shape[GPUOS_RANK]; // elements, row-major, contiguous
  uint64_t bytes;
} gpuos_buffer_t;

// Bytes from buffer `first` on that follow each other: its own, and those of buffers joined to it.
GPUOS_INLINE uint64_t gpuos_joined_bytes(const gpuos_buffer_t *buffers, uint32_t count,
                                         uint32_t first) {
  uint64_t bytes = buffers[first].bytes;
  for (uint32_t i = first + 1; i < count && buffers[i].joined; i++) bytes += buffers[i].bytes;
  return bytes;
}

// A view: element (i0..i3) lies at offset_bytes + sum(i * stride) * sizeof(dtype). Leading
// dimensions that a tensor lacks have extent 1, stride 0 and follow GPUOS_ALL. A tile may overwrite
// bytes that it reads only through one and the same view: an element, or what it is computed from
// in the same row, is read before it is written. Several operators may write parts of one value.
typedef struct gpuos_operand {
  uint8_t as;     // gpuos_as_t
  uint8_t dtype;  // gpuos_dtype_t
  uint8_t writes; // 1: written, 0: read
  // 1: read, and each element comes with a stamp by which the device code sees that it is there
  // (device/stamp.cuh)
  uint8_t stamped;
  uint32_t buffer; // or the first of several that are joined
  uint32_t value;  // the value that every byte read holds, or that every byte written takes
  uint32_t reserved2;
  uint64_t offset_bytes;
  uint32_t extent[GPUOS_DIMS]; // elements
  uint32_t stride[GPUOS_DIMS]; // elements
  uint8_t follows[GPUOS_DIMS]; // iteration dimension (then the extents agree), or GPUOS_ALL
  uint32_t reserved3;
} gpuos_operand_t;

// What one unit takes. Times on one SM with its fair share of the chip's bandwidth.
typedef struct gpuos_footprint {
  uint64_t flops; // tensor-core operations, a multiply-add is two
  uint32_t hbm_read_bytes;
  uint32_t hbm_write_bytes;
  uint32_t l2_read_bytes; // L2 to SM, HBM reads included
  uint32_t l2_kept_bytes; // share of the operator's working set that should stay in L2
  uint32_t smem_bytes;
  uint32_t energy_uj;
} gpuos_footprint_t;

typedef struct gpuos_op {
  uint16_t kind; // gpuos_kind_t
  uint16_t operand_count;
  uint32_t first_operand;
  uint32_t extent[GPUOS_DIMS]; // iteration space; 0 anywhere: no tiles
  // Of one tile; the grid is ceil(extent / tile), ragged at the edges. A matmul's tile covers all
  // of k.
  uint32_t tile[GPUOS_DIMS];
  // Dimension 3 of one unit: a tile has ceil(tile[3] / slice) units, at least 1. Only a matmul
  // without NORM is sliced, and its tile then has one batch.
  uint32_t slice;
  uint32_t park_bytes; // accumulators between two units of a tile: f32 [j, tile m, tile n]; 0 if
                       // never sliced
  uint32_t bound_ns;   // run time of one unit, paused time excluded
  uint32_t first_code,
      code_count; // expression; 0 instructions: the identity on accumulator or input 0
  uint32_t name;  // string
  uint32_t line;  // in the model file, 0 unknown
  uint32_t reserved;
  uint32_t params[GPUOS_PARAMS]; // by kind; f32 as its bits
  gpuos_footprint_t footprint;   // of one full unit
} gpuos_op_t;

typedef struct gpuos_code {
  uint8_t op; // gpuos_code_op_t
  uint8_t a, b, reserved;
  float imm;
} gpuos_code_t;

// 16 bytes: one load on the device.
typedef struct gpuos_tile {
  uint32_t op;
  uint32_t index; // row-major cell of the operator's grid
  // All of it before anything is read that others write in the step, but for what comes stamped; and before
  // anything is written, but for its waits for what comes stamped. Read-only operands need no wait.
  uint32_t wait_list;
  uint32_t signal; // counter, once, after the last unit's writes; GPUOS_NONE: nobody waits
} gpuos_tile_t;

typedef struct gpuos_wait_list {
  uint32_t first, count; // in waits
  // The last so many are for what comes stamped alone: who has seen the stamps need not wait for them.
  uint32_t stamped;
} gpuos_wait_list_t;

// Counters are monotonic over steps: in step e (from 1) a wait is over once counter - threshold * e
// >= 0, wrapping.
typedef struct gpuos_wait {
  uint32_t counter, threshold;
} gpuos_wait_t;

GPUOS_STATIC_ASSERT(sizeof(gpuos_span_t) == 8, "span");
GPUOS_STATIC_ASSERT(sizeof(gpuos_table_t) == 120, "table header");
GPUOS_STATIC_ASSERT(sizeof(gpuos_graph_t) == 32, "graph");
GPUOS_STATIC_ASSERT(sizeof(gpuos_buffer_t) == 40, "buffer");
GPUOS_STATIC_ASSERT(sizeof(gpuos_operand_t) == 64, "operand");
GPUOS_STATIC_ASSERT(sizeof(gpuos_footprint_t) == 32, "footprint");
GPUOS_STATIC_ASSERT(sizeof(gpuos_op_t) == 136, "op");
GPUOS_STATIC_ASSERT(sizeof(gpuos_code_t) == 8, "code");
GPUOS_STATIC_ASSERT(sizeof(gpuos_tile_t) == 16, "tile");
GPUOS_STATIC_ASSERT(sizeof(gpuos_wait_list_t) == 12, "wait list");
GPUOS_STATIC_ASSERT(sizeof(gpuos_wait_t) == 8, "wait");

#define GPUOS_SECTION(table, type, span)                                                           \
  ((const type *)(const void *)((const char *)(table) + (table)->span.offset))

// ---- the geometry of a tile ---------------------------------------------------------------------

// A half-open box of an iteration space or of a view.
typedef struct gpuos_box {
  uint32_t lo[GPUOS_DIMS], n[GPUOS_DIMS];
} gpuos_box_t;

GPUOS_INLINE uint32_t gpuos_op_grid(const gpuos_op_t *op, int dim) {
  return op->extent[dim] == 0 ? 0 : (op->extent[dim] - 1) / op->tile[dim] + 1;
}

// Units of each tile of op.
GPUOS_INLINE uint32_t gpuos_op_slices(const gpuos_op_t *op) {
  uint32_t k = op->tile[GPUOS_SLICED_DIM];
  return op->slice == 0 || op->slice >= k ? 1 : (k - 1) / op->slice + 1;
}

// Iteration box of the tile at grid cell `index`, clipped to the extents.
GPUOS_INLINE gpuos_box_t gpuos_tile_box(const gpuos_op_t *op, uint32_t index) {
  gpuos_box_t box;
  for (int d = GPUOS_DIMS - 1; d >= 0; d--) {
    uint32_t grid = gpuos_op_grid(op, d), cell = index % grid;
    index /= grid;
    box.lo[d] = cell * op->tile[d];
    box.n[d] = op->extent[d] - box.lo[d] < op->tile[d] ? op->extent[d] - box.lo[d] : op->tile[d];
  }
  return box;
}

// Part of operand `x` that a tile with iteration box `tile` touches: exactly this when it writes,
// at most this when it reads, except that a written CACHE may keep bytes of CACHE_IN.
GPUOS_INLINE gpuos_box_t gpuos_operand_box(const gpuos_operand_t *x, const gpuos_box_t *tile) {
  gpuos_box_t box;
  for (int d = 0; d < GPUOS_DIMS; d++) {
    int whole = x->follows[d] == GPUOS_ALL;
    box.lo[d] = whole ? 0 : tile->lo[x->follows[d]];
    box.n[d] = whole ? x->extent[d] : tile->n[x->follows[d]];
  }
  return box;
}

// Positions of each split of ATTENTION: the keys there are, shared out evenly in sixteens.
GPUOS_INLINE uint32_t gpuos_split_keys(uint32_t keys, uint32_t shares, uint32_t split_len) {
  uint32_t even = keys == 0 ? 0 : (keys - 1) / shares + 1, rounded = (even + 15) / 16 * 16;
  return rounded < split_len ? rounded : split_len;
}
// How many of `splits` have keys of a row at `position`; the first one counts in any case.
GPUOS_INLINE uint32_t gpuos_used_splits(int32_t position, uint32_t splits, uint32_t shares,
                                        uint32_t split_len) {
  if (position < 0) return 1;
  uint32_t used = (uint32_t)position / gpuos_split_keys((uint32_t)position + 1, shares, split_len);
  return used < splits ? used + 1 : splits;
}

// ---- the control block: the host and the SMs, while steps run ----------------------------------

typedef enum gpuos_command {
  GPUOS_RUN,
  GPUOS_PAUSE, // stop in place at the next yield point, keep the accumulators
  GPUOS_ABORT, // leave as soon as possible, results undefined
  GPUOS_LEAVE, // leave once no step is open
} gpuos_command_t;

typedef enum gpuos_fault {
  GPUOS_FAULT_NONE,
  GPUOS_FAULT_STALL, // a wait outlived its limit (the CPU device names the lowest such ticket, the
                     // cause): a = counter, b = expected, c = found
  GPUOS_FAULT_INDEX, // a unit met an index outside its table: a = operand's gpuos_as_t, b = index,
                     // c = limit
} gpuos_fault_t;

enum { GPUOS_TIMED_STEPS = 64 };

// One a program. The first 128 bytes are told to the SMs, which poll them; the others are the SMs'
// own, apart so that polls do not contend with tickets.
typedef struct gpuos_control {
  uint32_t command;   // gpuos_command_t
  uint32_t submitted; // steps asked for since load; steps are numbered from 1, wrapping
  uint32_t reserved[2];
  // Bit s: SM s may work; cleared: it leaves at the next unit boundary.
  uint32_t sm_lent[GPUOS_MAX_SMS / 32];
  uint32_t wait_limit_us; // a longer wait is a stall
  uint32_t reserved2[19];
  // Step << 32 | next tile of it. Step e is open until its tile passes the table's; then whoever
  // sees e finished and e + 1 submitted opens that at tile 0.
  uint64_t ticket;
  uint32_t tiles_done;   // of the open step; whoever does the last one clears it
  uint32_t steps_done;   // then this is raised
  uint32_t parked_count; // tiles in park slots
  uint32_t held_count;   // SMs that a pause has stopped
  uint32_t fault; // gpuos_fault_t; the first SM to compare-and-swap it from NONE fills the rest
  uint32_t fault_sm, fault_tile, fault_slice, fault_a, fault_b, fault_c;
  uint32_t reserved3[19];
  // By step number modulo their count: global timer when step was opened, and finished. The relay
  // copies them to the host: the SMs should not wait until something has crossed the bus.
  uint64_t step_start_ns[GPUOS_TIMED_STEPS], step_end_ns[GPUOS_TIMED_STEPS];
} gpuos_control_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_control_t) == 256 + 16 * GPUOS_TIMED_STEPS, "control");

// What SM s is doing, for the watchdog and the trace: written by the SM, read by anyone.
typedef enum gpuos_sm_phase {
  GPUOS_SM_IDLE,
  GPUOS_SM_WAITING,
  GPUOS_SM_RUNNING,
  GPUOS_SM_GONE
} gpuos_sm_phase_t;
typedef struct gpuos_sm {
  uint32_t phase, tile, slice, counter, expected, found, units_run;
  uint32_t traced;  // units recorded in its trace ring since the kernel started
  uint64_t held_ns; // global timer when the last pause had stopped it
  uint64_t away_ns; // global timer when it last had given up its SM after a take-back
  uint32_t smid;    // which SM of the chip it is
  uint32_t parks;   // tiles that it has put down
  uint32_t reserved[2];
} gpuos_sm_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_sm_t) == 64, "sm");

// A tile put down in the middle: its accumulators lie at slot * table.park_bytes of the park area.
// A slot belongs to whoever moved its state out of FREE or FULL by compare-and-swap. A program has
// two slots an SM: the tile it was running and the one whose wait it was helping out with.
typedef enum gpuos_park_state {
  GPUOS_PARK_FREE,
  GPUOS_PARK_BUSY,
  GPUOS_PARK_FULL
} gpuos_park_state_t;
typedef struct gpuos_park {
  uint32_t state, tile, slice,
      reserved; // slice: the next one to run; 0: not started, nothing in the area
} gpuos_park_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_park_t) == 16, "park");

// ---- the mailbox: the host and a resident kernel ------------------------------------------------

// In page-locked host memory. One warp of the kernel passes the host's part on to the control block
// and reports back; the other SMs never cross the bus.
typedef enum gpuos_residency {
  GPUOS_GONE,     // no kernel, or one that takes no more steps: launch one
  GPUOS_RESIDENT, // a kernel takes steps
  GPUOS_LEAVING,  // a kernel that is about to go looks once more whether there is work
} gpuos_residency_t;

enum { GPUOS_PAUSE_BINS = 128, GPUOS_PAUSE_BIN_NS = 100 };

typedef struct gpuos_mailbox {
  // Written by the host. The kernel reads these 16 bytes every two microseconds, by one load: four at
  // a time to the same page made half of the GPCs fetch from L2 at two thirds of their speed, by page
  // (measured on an H200). The others it reads when `changes` has changed.
  uint32_t command, submitted;
  uint32_t changes;   // raised after what follows linger_us has been written
  uint32_t linger_us; // a kernel without work leaves after so long
  uint32_t sm_lent[GPUOS_MAX_SMS / 32];
  uint32_t wait_limit_us;
  // A measurement: storm_count pauses of storm_pause_ns, storm_run_ns apart. 0: none.
  uint32_t storm_count, storm_run_ns, storm_pause_ns;
  uint32_t reserved[16];
  // Written by the kernel.
  uint32_t residency;  // gpuos_residency_t; the host writes RESIDENT before it launches
  uint32_t steps_done; // after it, the results of the step can be read
  uint32_t tiles_done; // of the open step, now and then
  uint32_t heartbeat;  // rises while the kernel is there
  uint32_t fault, fault_sm, fault_tile, fault_slice, fault_a, fault_b, fault_c;
  uint32_t storms_done; // pauses of the storm
  uint32_t storm_lost;  // pauses that some SM did not answer within a millisecond
  uint32_t storm_max_ns;
  uint64_t lent_ns;        // global timer just before the last of `changes` was passed on
  uint32_t changes_passed; // then this is set to what `changes` was
  uint32_t reserved2[15];
  // As in the control block.
  uint64_t step_start_ns[GPUOS_TIMED_STEPS], step_end_ns[GPUOS_TIMED_STEPS];
  // Pauses by nanoseconds from the command's store until the last SM had issued its last load; the last
  // bin holds all longer ones.
  uint32_t pause_bins[GPUOS_PAUSE_BINS];
} gpuos_mailbox_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_mailbox_t) == 256 + 16 * GPUOS_TIMED_STEPS + 4 * GPUOS_PAUSE_BINS,
                    "mailbox");

// Words of the mailbox; those below GPUOS_TOLD_WORDS have the same places in the control block.
enum {
  GPUOS_WORD_COMMAND,
  GPUOS_WORD_SUBMITTED,
  GPUOS_WORD_CHANGES,
  GPUOS_WORD_LINGER,
  GPUOS_WORD_SM_LENT,
  GPUOS_WORD_WAIT_LIMIT = GPUOS_WORD_SM_LENT + GPUOS_MAX_SMS / 32,
  GPUOS_TOLD_WORDS,
  GPUOS_WORD_STORM_COUNT = GPUOS_TOLD_WORDS,
  GPUOS_WORD_STORM_RUN,
  GPUOS_WORD_STORM_PAUSE,
  GPUOS_FAULT_WORDS = 7, // fault and what follows it, alike in both
};
#ifndef __CUDACC_RTC__ // NVRTC has no offsetof
#define GPUOS_SAME_PLACE(member, word)                                                             \
  GPUOS_STATIC_ASSERT(offsetof(gpuos_mailbox_t, member) == 4 * (word), #member);                   \
  GPUOS_STATIC_ASSERT(offsetof(gpuos_control_t, member) == 4 * (word), #member)
GPUOS_SAME_PLACE(command, GPUOS_WORD_COMMAND);
GPUOS_SAME_PLACE(submitted, GPUOS_WORD_SUBMITTED);
GPUOS_SAME_PLACE(wait_limit_us, GPUOS_WORD_WAIT_LIMIT);
GPUOS_SAME_PLACE(sm_lent, GPUOS_WORD_SM_LENT);
#undef GPUOS_SAME_PLACE
GPUOS_STATIC_ASSERT(offsetof(gpuos_mailbox_t, linger_us) == 4 * GPUOS_WORD_LINGER, "linger");
GPUOS_STATIC_ASSERT(offsetof(gpuos_mailbox_t, changes) == 4 * GPUOS_WORD_CHANGES, "changes");
GPUOS_STATIC_ASSERT(offsetof(gpuos_mailbox_t, storm_pause_ns) == 4 * GPUOS_WORD_STORM_PAUSE,
                    "storm");
#endif

// ---- measured units -----------------------------------------------------------------------------

// One unit as it ran; times of the global timer. Each SM has a ring of them.
typedef struct gpuos_trace {
  uint64_t start_ns;
  uint32_t run_ns;    // without the time it was paused
  uint32_t paused_ns; //
  uint32_t tile, slice, step, reserved;
} gpuos_trace_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_trace_t) == 32, "trace");

// All units of one operator since load, while tracing is on.
enum { GPUOS_UNIT_BINS = 64, GPUOS_UNIT_BIN_NS = 500 };
typedef struct gpuos_unit_stats {
  uint64_t units, run_ns;
  uint32_t longest_ns, over_bound; // units that ran longer than their declared bound
  uint32_t paused, reserved;       // units that a pause had stopped
  uint32_t bins[GPUOS_UNIT_BINS];  // by run time; the last holds all longer ones
} gpuos_unit_stats_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_unit_stats_t) == 32 + 4 * GPUOS_UNIT_BINS, "unit stats");

// ---- what a kernel wants of its launch ----------------------------------------------------------

// A tensor map (CUtensorMap) that the kernel's copies need: operand number `operand` of the table
// seen along three of its dimensions, in boxes of box_inner x box_rows x 1 elements, 128-byte
// swizzled. Each operand has room for one in the array that the kernel is given.
typedef struct gpuos_map_request {
  uint32_t operand;
  uint8_t inner, row, outer; // dimensions of the view; inner has stride 1; outer GPUOS_ALL: none
  uint8_t reserved;
  uint16_t box_inner, box_rows;
  uint32_t reserved2;
} gpuos_map_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_map_t) == 16, "map");

// The module global `gpuos_launch`.
typedef struct gpuos_launch {
  uint32_t threads;       // of a CTA
  uint32_t smem_bytes;    // dynamic shared memory of a CTA
  uint32_t ctas_per_sm;   // co-resident on each SM
  uint32_t cluster;       // CTAs of a cluster, 1 or 2; SMs are lent in such groups
  uint32_t map_count;     // of the module global `gpuos_maps`, which is not there when 0
  uint32_t l2_keep_bytes; // of L2, for lines that the kernel asks to keep; 0: none
  uint32_t stamp_bytes;   // of device memory for the kernel's own words, 0 before step 1; 0: none
  uint32_t reserved;
} gpuos_launch_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_launch_t) == 32, "launch");

// Where an operand lies: the element at iteration point p is at address + sum(p * step) * its bytes. The
// runtime resolves them once, so that an SM has all it needs of an operator by one way to the L2 and back.
typedef struct gpuos_place {
  uint64_t address;
  // Elements, by iteration dimension; K of a matmul moves also a view that is read whole.
  uint32_t step[GPUOS_DIMS];
  uint32_t stride[GPUOS_DIMS], extent[GPUOS_DIMS]; // of the view
} gpuos_place_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_place_t) == 56, "place");

// Of one program. Device addresses.
typedef struct gpuos_launch_args {
  uint64_t table;     // gpuos_table_t and its sections, as in the artefact
  uint64_t buffers;   // uint64_t[buffers.count]: each buffer's address
  uint64_t places;    // gpuos_place_t[operands.count]
  uint64_t counters;  // uint32_t[counters.count], 0 before step 1
  uint64_t control;   // gpuos_control_t
  uint64_t sms;       // gpuos_sm_t[sm_count]
  uint64_t parks;     // gpuos_park_t[2 * sm_count]
  uint64_t park_area; // 2 * sm_count slots of table.park_bytes; 0 when that is 0
  uint64_t maps;      // CUtensorMap[operands.count], 128 bytes each; 0 without maps
  uint64_t mailbox;   // gpuos_mailbox_t in host memory, or 0: one step, then leave
  uint64_t trace;     // gpuos_trace_t[sm_count][trace_count]; 0: no tracing
  uint64_t stats;     // gpuos_unit_stats_t[ops.count]; 0: no tracing
  uint64_t stamps;    // as many bytes as the launch names; 0 without
  uint32_t sm_count;  // CTAs of the grid; each plays one SM of the protocol, number blockIdx.x
  uint32_t trace_count;
} gpuos_launch_args_t;
GPUOS_STATIC_ASSERT(sizeof(gpuos_launch_args_t) == 112, "launch args");

// The only parameter of the global function `gpuos_kernel`, by value. A kernel of a live program and a job has a launch
// of its own for the job, whose symbols begin with gpuos_job_ (gpuos_job_launch, gpuos_job_maps, gpuos_job_table_hash).
enum { GPUOS_MOST_PROGRAMS = 2 };
typedef struct gpuos_kernel_args {
  gpuos_launch_args_t program[GPUOS_MOST_PROGRAMS]; // those that are there
} gpuos_kernel_args_t;

#define GPUOS_HASH_START 0xcbf29ce484222325u
// FNV-1a, 64 bits, from GPUOS_HASH_START: finds accidents; safety against hostile tables is
// check.c's work.
GPUOS_INLINE uint64_t gpuos_hash_add(uint64_t hash, const void *data, uint64_t bytes) {
  const unsigned char *p = (const unsigned char *)data;
  for (uint64_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

#endif // GPUOS_ABI_H_
