// plan.h: the graph as the schedule table will say it, in arrays that passes fill in.
//
// lower makes it from the dialect; tile, footprint, bound, memory and schedule complete it; codegen
// reads it. Records are those of gpuos_abi.h, so nothing is translated twice. Operators number
// about a thousand, tiles a hundred thousand: plain arrays in the arena.
#ifndef GOS_IR_PLAN_H_
#define GOS_IR_PLAN_H_

#include "ir.h"
#include "target.h"

// A value: the bytes that an operator writes and others read. Values 0..buffers.count - 1 are the
// buffers' contents before the step, in buffer order; the workspace's stands for nothing.
typedef struct gos_value {
  const char *name; // of the tensor in the graph
  uint32_t buffer;  // the workspace's number for an intermediate
  uint64_t bytes;
  uint64_t offset_bytes;      // in the buffer; memory decides it for intermediates
  uint32_t first_op, last_op; // that touch it; GPUOS_NONE: nobody
} gos_value_t;

typedef struct gos_buffer {
  const char *name;
  gpuos_role_t role;
  gos_shape_t shape;
  uint64_t bytes;
  bool joined; // lies right after the buffer before it, as a concat of weights asks
  gos_loc_t at;
} gos_buffer_t;

enum { GOS_STAMPED = 4 }; // operands of an operator that may come stamped

typedef struct gos_op {
  gpuos_op_t op; // first_operand, first_code and name are numbered by the table writer
  // offset_bytes counts from the start of the operand's value until memory has run, from its
  // buffer's after.
  gpuos_operand_t operands[GPUOS_MAX_OPERANDS];
  gpuos_code_t *code;
  const char *name; // "q_proj", for messages and reports
  gos_loc_t at;
  bool streams; // a matmul whose weights stream through the CTA: gos_op_streams. tile decides it
  bool stamps;  // what it writes travels stamped as well. stamp decides it
  bool fours;   // and that four floats at a time: device/stamp.cuh
  // The operators whose stamped results it reads, GPUOS_NONE for none: as x or partial; of attention also as
  // k, v and rotation. stamp decides it
  uint32_t from[GOS_STAMPED];
  bool from_fours; // its x comes four at a time
  bool keeps_x;    // device code asks L2 to keep x while columns go by. schedule decides it
  uint32_t sms;    // SMs this operator's phase needs; 0: all. schedule decides it
  // Ticket order of the grid's cells; NULL: row-major. schedule decides it
  uint32_t *order;
} gos_op_t;

typedef struct gos_graph {
  const char *name;
  gos_loc_t at;
  gpuos_graph_t graph;
} gos_graph_t;

typedef struct gos_plan {
  gos_ir_t *ir;
  const gos_target_t *target;
  gos_role_t role;
  uint32_t budget_ns;
  bool streams;       // the weights of some operator do. tile decides it
  bool stamps;        // some results travel stamped. stamp decides it
  uint32_t workspace; // buffer number: the last one
  uint64_t workspace_bytes;
  GOS_ARRAY(gos_graph_t) graphs;
  GOS_ARRAY(gos_buffer_t) buffers;
  GOS_ARRAY(gos_value_t) values;
  GOS_ARRAY(gos_op_t) ops;
  GOS_ARRAY(gpuos_tile_t) tiles;
  GOS_ARRAY(gpuos_wait_list_t) wait_lists;
  GOS_ARRAY(gpuos_wait_t) waits;
  GOS_ARRAY(uint32_t) counters;
} gos_plan_t;

const gpuos_operand_t *gos_op_find(const gos_op_t *op, gpuos_as_t as); // first such, NULL if none
uint64_t gos_op_tiles(const gpuos_op_t *op);                           // cells of its grid

enum { GOS_RUN = 8 }; // elements of a vector access, device/dtype.cuh

// What shared memory a kernel for this plan has: device/unit.cuh.
typedef struct gos_smem {
  uint32_t slots;        // tiles on their way through a CTA
  uint32_t operands;     // of an operator, at most
  uint32_t kernel_bytes; // the kernel's own, at most
  uint32_t plain_bytes;  // that a unit without a ring of its own may take
  uint32_t ring_bytes;   // of the ring of wgmma units
} gos_smem_t;
gos_smem_t gos_plan_smem(const gos_plan_t *plan);

// ---- geometry.c: how operands lie ---------------------------------------------------------------

// Elements that iteration dimension `dim` moves x by.
uint64_t gos_op_step(const gos_op_t *op, const gpuos_operand_t *x, uint32_t dim);
// Elements of a row of operators that work on rows: of X, or of OUT where X is left out.
uint32_t gos_row_width(const gos_op_t *op);
// The dimension of the view that iteration dimension `dim` moves; GPUOS_ALL: none.
uint8_t gos_view_dim(const gos_op_t *op, const gpuos_operand_t *x, uint32_t dim);
// Every address of x that differs only outside `dim` is a multiple of `bytes`.
bool gos_op_aligned(const gos_op_t *op, const gpuos_operand_t *x, uint32_t dim, uint32_t bytes);
// What an aligned run of x is aligned to; and whether the last dimension of the view, whatever it follows,
// comes in such runs of a multiple of `width`.
uint32_t gos_run_bytes(const gpuos_operand_t *x);
bool gos_row_runs(const gpuos_operand_t *x, uint32_t width);
// A matmul whose operands bulk copies and wgmma can take as they lie.
bool gos_op_wgmma(const gos_target_t *target, const gos_op_t *op);
// The same, once it is tiled: in a shape that device/matmul_wgmma.cuh is written for.
bool gos_op_wgmma_tiled(const gos_target_t *target, const gos_op_t *op);
// A matmul of few rows whose weights, which nothing writes, lie in memory one row after another, so that
// device/matmul_stream.cuh can take them as they come; and what that code does with it: rows of w that
// are multiplied together.
bool gos_op_streams(const gos_plan_t *plan, const gos_op_t *op);
uint32_t gos_stream_rows(uint32_t x_rows, uint64_t k);
// x of so many rows, 16-bit, can stay in shared memory while weights stream by, on such a chip.
bool gos_streams_x(const gos_target_t *target, uint32_t x_rows, uint64_t k);
// Attention of few queries a KV head whose keys in memory are there before the step, in a kernel whose weights
// stream: its keys come through the same ring, as device/attention_ring.cuh takes them.
bool gos_op_rings(const gos_plan_t *plan, const gos_op_t *op);
// Of a matmul: rows of tiles that are run together, column by column, so that their panels of x are
// read once while those of w go by; and whether it pays to ask L2 to keep the panels.
uint32_t gos_op_panels(const gos_target_t *target, const gos_op_t *op);
bool gos_op_keeps_panels(const gos_target_t *target, const gos_op_t *op);
// Its OUT is written in pieces of 16 bytes, and so in whole lines.
bool gos_op_stores_pieces(const gos_op_t *op);

// ---- plan.c: text -------------------------------------------------------------------------------

void gos_plan_print(const gos_plan_t *plan, FILE *out);     // operators: --emit=plan
void gos_schedule_print(const gos_plan_t *plan, FILE *out); // tiles: --emit=schedule

#endif // GOS_IR_PLAN_H_
