// bound: holds the run time of every unit to the budget.
// needs:    footprint
// provides: op.bound_ns
// fails:    [budget] a unit that cannot be made short enough, naming operator and reason
// source:   the target's rates; one SM gets its equal share of the chip's bandwidth, since all
//           others may be streaming
#include "passes.h"

static const double HELD = 0.985; // of the read ceiling counts as all of it

typedef struct terms {
  double hbm_ns, l2_ns, tensor_ns, vector_ns;
} terms_t;

static uint64_t unit_elements(const gpuos_op_t *op) {
  uint64_t count = 1;
  for (int d = 0; d < GPUOS_DIMS; d++) {
    uint32_t n = op->tile[d] < op->extent[d] ? op->tile[d] : op->extent[d];
    // A matmul's epilogue runs once for an element of the result.
    count *= d == GPUOS_SLICED_DIM && op->kind == GPUOS_MATMUL ? 1 : n;
  }
  return count;
}

// Plain operations and special functions of one unit outside the tensor cores.
static void vector_work(const gos_op_t *op, double *plain, double *special) {
  double elements = (double)unit_elements(&op->op);
  switch (op->op.kind) {
  case GPUOS_RMSNORM: *plain = 6 * elements * gos_row_width(op); return;
  case GPUOS_SOFTMAX:
    *plain = 6 * elements * gos_row_width(op), *special = elements * gos_row_width(op);
    return;
  case GPUOS_ARGMAX: *plain = 3 * elements * gos_row_width(op); return;
  case GPUOS_ROPE:
    *plain = 12 * elements * gos_row_width(op), *special = 4 * elements * gos_row_width(op);
    return;
  case GPUOS_ATTENTION: // scores and sums on plain lanes, one exponential a score
    *plain = (double)op->op.footprint.flops;
    *special = (double)op->op.footprint.flops / (4.0 * op->op.params[2] + 1);
    return;
  case GPUOS_ATTENTION_COMBINE: *plain = 4 * (double)op->op.footprint.l2_read_bytes; return;
  default: break;
  }
  for (uint32_t i = 0; i < op->op.code_count; i++) {
    bool slow = op->code[i].op == GPUOS_CODE_DIV ||
                (op->code[i].op >= GPUOS_CODE_EXP && op->code[i].op <= GPUOS_CODE_ERF);
    *(slow ? special : plain) += elements * (slow ? 2 : 1);
  }
  *plain += 4 * elements; // addresses, conversion, store
}

static gpuos_dtype_t operand_dtype(const gos_op_t *op) {
  return (gpuos_dtype_t)gos_op_find(op, GPUOS_AS_W0)->dtype;
}

static double least(double a, double b) { return a < b ? a : b; }

// One unit while `sms` SMs run such units: they share bandwidth, and one SM takes no more than it
// can.
static terms_t terms_of(const gos_plan_t *plan, const gos_op_t *op, double sms) {
  const gos_target_t *t = plan->target;
  const gpuos_footprint_t *f = &op->op.footprint;
  double plain = 0, special = 0, most = t->sm_read_gbps * 1e-3;
  vector_work(op, &plain, &special);
  double tensor = op->op.kind != GPUOS_MATMUL ? 0
                  : gos_op_wgmma_tiled(t, op) ? t->tensor_tflops[operand_dtype(op)]
                                              : t->code_tflops[operand_dtype(op)];
  if (op->op.kind == GPUOS_MATMUL && tensor == 0)
    tensor = t->vector_gflops * 1e-3 * 0.3; // fp32 FMA
  // Rates are TB/s = bytes a picosecond, so bytes / rate is ps; 1e-3 makes ns.
  return (terms_t){
      .hbm_ns = (f->hbm_read_bytes / least(gos_curve_at(&t->read_tbps, sms) / sms, most) +
                 f->hbm_write_bytes / least(t->write_tbps / sms, most)) *
                1e-3,
      .l2_ns = f->l2_read_bytes / least(t->l2_tbps / sms, most) * 1e-3,
      .tensor_ns = tensor > 0 ? (double)f->flops / (tensor / t->sm_count) * 1e-3 : 0,
      .vector_ns = (plain / t->vector_gflops + special / t->special_gops) * t->sm_count,
  };
}

uint32_t gos_few_sms(const gos_target_t *target) {
  uint32_t few = target->sm_count;
  double ceiling = gos_curve_at(&target->read_tbps, few);
  while (few > 1 && gos_curve_at(&target->read_tbps, few - 1) >= HELD * ceiling) few--;
  return few;
}

static double longest(const terms_t *t) {
  double memory = t->hbm_ns > t->l2_ns ? t->hbm_ns : t->l2_ns;
  double most = memory > t->tensor_ns ? memory : t->tensor_ns;
  return most > t->vector_ns ? most : t->vector_ns;
}

uint32_t gos_bound_of(const gos_plan_t *plan, const gos_op_t *op) {
  terms_t t = terms_of(plan, op, plan->target->sm_count);
  bool wgmma = gos_op_wgmma_tiled(plan->target, op) && plan->target->margin_wgmma > 0;
  double margin = wgmma ? plan->target->margin_wgmma : plan->target->margin;
  double ns = margin * (plan->target->unit_overhead_ns + longest(&t));
  return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns + 1;
}

double gos_run_ns_of(const gos_plan_t *plan, const gos_op_t *op, double sms) {
  terms_t t = terms_of(plan, op, sms);
  double units = (double)gos_op_tiles(&op->op) * gpuos_op_slices(&op->op),
         unit = plan->target->unit_overhead_ns + longest(&t);
  // Units are handed out one by one: the last wave need not be full, but no operator is shorter
  // than a tile.
  double tile = unit * gpuos_op_slices(&op->op), all = units * unit / sms;
  // Where weights stream, everything but the bytes goes on beside them: once the first are there.
  if (op->streams) all = units * longest(&t) / sms + plan->target->unit_overhead_ns;
  return units == 0 ? 0 : all > tile ? all : tile;
}

double gos_priced_cost_of(const gos_plan_t *plan, const gos_op_t *op) {
  const gos_target_t *t = plan->target;
  const gpuos_footprint_t *f = &op->op.footprint;
  double units = (double)gos_op_tiles(&op->op) * gpuos_op_slices(&op->op);
  // Written bytes are priced at the rate the whole chip would write them at, spread over the
  // operator's run time.
  double seconds = gos_run_ns_of(plan, op, t->sm_count) * 1e-9;
  double write_gbps = seconds > 0 ? units * f->hbm_write_bytes / seconds * 1e-9 : 0;
  return units * (f->hbm_read_bytes * t->price_read +
                  f->hbm_write_bytes * gos_curve_at(&t->price_write, write_gbps) +
                  (f->l2_read_bytes - (double)f->hbm_read_bytes) * t->price_l2);
}

static void refuse(gos_plan_t *plan, const gos_op_t *op) {
  terms_t t = terms_of(plan, op, plan->target->sm_count);
  const char *reason = longest(&t) == t.hbm_ns      ? "HBM bytes"
                       : longest(&t) == t.l2_ns     ? "L2 bytes"
                       : longest(&t) == t.tensor_ns ? "tensor-core work"
                                                    : "arithmetic";
  gos_error(plan->ir->diags, op->at, "budget",
            "the smallest unit of %s '%s' takes %.1f us, the budget is %.1f us: %s",
            gos_kind_name(op->op.kind), op->name, op->op.bound_ns * 1e-3, plan->budget_ns * 1e-3,
            reason);
  gos_note(plan->ir->diags, (gos_loc_t){0},
           "a smaller dimension, or a larger --unit-budget-us, makes it fit");
}

bool gos_pass_bound(gos_plan_t *plan) {
  bool ok = true;
  for (size_t i = 0; i < plan->ops.count; i++) {
    gos_op_t *op = &plan->ops.at[i];
    op->op.bound_ns = gos_bound_of(plan, op);
    if (op->op.bound_ns <= plan->budget_ns) continue;
    refuse(plan, op);
    ok = false;
  }
  return ok;
}
