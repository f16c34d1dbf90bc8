// passes.h: the compiler's passes, in the order in which pipeline.c calls them.
//
// The first four rewrite the dialect, lower turns it into a plan, the others complete the plan. Each
// returns false after reporting an error. A pass never reads YAML, writes CUDA or talks to a
// driver. One file, one pass.
#ifndef GOS_PASSES_PASSES_H_
#define GOS_PASSES_PASSES_H_

#include "plan.h"

bool gos_pass_legalize(gos_ir_t *ir);
bool gos_pass_fuse(gos_ir_t *ir, const gos_plan_t *plan); // for its role, target and budget
bool gos_pass_stack(gos_ir_t *ir);
bool gos_pass_attend(gos_ir_t *ir);
bool gos_pass_lower(gos_ir_t *ir, gos_plan_t *plan);
bool gos_pass_split(gos_plan_t *plan);
bool gos_pass_tile(gos_plan_t *plan);
bool gos_pass_footprint(gos_plan_t *plan);
bool gos_pass_bound(gos_plan_t *plan);
bool gos_pass_memory(gos_plan_t *plan);
bool gos_pass_stamp(gos_plan_t *plan);
bool gos_pass_schedule(gos_plan_t *plan);

// Functions of one operator and the target alone, for the choices of split and tile and for the
// passes of the same name.
void gos_tile_op(const gos_plan_t *plan, gos_op_t *op); // sets its shape: tile, slice, park_bytes
gpuos_footprint_t gos_footprint_of(const gos_plan_t *plan, const gos_op_t *op);
// The fewest SMs that hold the read ceiling.
uint32_t gos_few_sms(const gos_target_t *target);
uint32_t gos_bound_of(const gos_plan_t *plan, const gos_op_t *op); // ns, from op->op.footprint
double gos_run_ns_of(const gos_plan_t *plan, const gos_op_t *op,
                     double sms); // predicted, alone on sms SMs
double gos_priced_cost_of(const gos_plan_t *plan,
                          const gos_op_t *op); // of the whole operator, HBM-read bytes

#endif // GOS_PASSES_PASSES_H_
