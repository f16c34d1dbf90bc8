// attend: lets attention begin as soon as this step's q, k and v are there. Their rotation and the cache
// leave the way to it: attention rotates q and k itself, by a table that all layers share, and takes the
// key and value of a row's own position from k and v; kv_append comes after what needs attention.
// needs:    stack
// provides: attention with `own` and, where rope made its q and k, `rotation`; kv_append after it
// keeps:    every rounding but that of the rotated q, which nobody stores. Only where a row is its own
//           sequence (no seq): rows of one sequence see each other's keys, which this step writes
// source:   two hops from SM to SM a layer, of 4 us each (tests/bench/results/2026-11-30c-h200.md)
#include <string.h>

#include "passes.h"

static MlirBlock block_of(MlirOperation func) {
  return mlirRegionGetFirstBlock(mlirOperationGetRegion(func, 0));
}

static MlirOperation producer(MlirValue value, const char *name) {
  if (mlirValueIsNull(value) || !mlirValueIsAOpResult(value)) return (MlirOperation){NULL};
  MlirOperation op = mlirOpResultGetOwner(value);
  return gos_op_get_spec(op) && gos_op_is(op, name) ? op : (MlirOperation){NULL};
}

static bool same_in(MlirOperation a, MlirOperation b, const char *param) {
  return mlirValueEqual(gos_op_in(a, param), gos_op_in(b, param));
}

// The first user of `value` but `but`; null if there is none.
static MlirOperation first_user(MlirValue value, MlirOperation but) {
  MlirOperation first = {NULL};
  for (MlirOpOperand use = mlirValueGetFirstUse(value); !mlirOpOperandIsNull(use);
       use = mlirOpOperandGetNextUse(use)) {
    MlirOperation user = mlirOpOperandGetOwner(use);
    if (mlirOperationEqual(user, but)) continue;
    if (mlirOperationIsNull(first) || mlirOperationIsBeforeInBlock(user, first)) first = user;
  }
  return first;
}

// What is appended is not looked at before `attention`.
static bool only_later_uses(MlirOperation append, MlirOperation attention) {
  MlirOperation user = first_user(mlirOperationGetResult(append, 0), attention);
  return mlirOperationIsNull(user) || !mlirOperationIsBeforeInBlock(user, attention);
}

// Where kv_append goes: few SMs run it, and for microseconds, so the next matmul's tiles begin before it, and
// those after that, which are many, share its SMs' work out. `before`: who looks at the cache, or null.
static MlirOperation place_append(MlirOperation attention, MlirOperation before) {
  MlirOperation user = first_user(mlirOperationGetResult(attention, 0), (MlirOperation){NULL});
  MlirOperation place = mlirOperationGetNextInBlock(attention);
  if (!mlirOperationIsNull(user) && gos_op_get_spec(user))
    place = mlirOperationGetNextInBlock(user);
  if (mlirOperationIsNull(before) || !mlirOperationIsBeforeInBlock(before, place)) return place;
  return before;
}

// The kv_append whose cache `attention` reads and whose k and v are its own; null if it has to wait.
static MlirOperation own_append(MlirOperation attention) {
  static const char *const shared[] = {"k", "v", "pos", "pages"};
  MlirOperation append = producer(gos_op_in(attention, "cache"), "kv_append");
  if (mlirOperationIsNull(append) || !mlirValueIsNull(gos_op_in(attention, "seq")))
    return (MlirOperation){NULL};
  bool same = mlirValueIsNull(gos_op_in(append, "rotation")) &&
              gos_op_int(append, "layer") == gos_op_int(attention, "layer");
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
    same = same && same_in(append, attention, shared[i]);
  return same && only_later_uses(append, attention) ? append : (MlirOperation){NULL};
}

// ---- rotation -----------------------------------------------------------------------------------

static const char *const scaling[] = {"theta", "scaling_factor", "scaling_low_freq_factor",
                                      "scaling_high_freq_factor"};
static const char last_int[] = "scaling_original_max_position_embeddings";

static bool same_angles(gos_ir_t *ir, MlirOperation a, MlirOperation b) {
  bool same = same_in(a, b, "pos") && gos_op_int(a, "head_dim") == gos_op_int(b, "head_dim") &&
              gos_op_int(a, last_int) == gos_op_int(b, last_int) &&
              !strcmp(gos_op_string(ir, a, "scaling_type"), gos_op_string(ir, b, "scaling_type"));
  for (size_t i = 0; i < sizeof scaling / sizeof *scaling; i++)
    same = same && gos_op_float(a, scaling[i]) == gos_op_float(b, scaling[i]);
  return same;
}

typedef struct pair {
  MlirOperation q, k; // rope; null: none that can be left to attention
} pair_t;

// Of k, attention and kv_append are the only users.
static pair_t find_ropes(gos_ir_t *ir, MlirOperation attention) {
  pair_t none = {{NULL}, {NULL}}, found = {producer(gos_op_in(attention, "q"), "rope"),
                                           producer(gos_op_in(attention, "k"), "rope")};
  if (mlirOperationIsNull(found.q) || mlirOperationIsNull(found.k)) return none;
  bool fits = gos_value_uses(mlirOperationGetResult(found.q, 0)) == 1 &&
              gos_value_uses(mlirOperationGetResult(found.k, 0)) == 2 &&
              same_in(found.q, attention, "pos") && same_angles(ir, found.q, found.k) &&
              gos_op_int(found.q, "head_dim") == gos_op_int(attention, "head_dim") &&
              !strcmp(gos_op_string(ir, found.q, "pairing"), gos_op_string(ir, found.k, "pairing"));
  return fits ? found : none;
}

// The table that turns as `rope` does: one that is there, or a new one before `at`.
static MlirValue find_table(gos_ir_t *ir, MlirOperation rope, MlirOperation first,
                            MlirOperation at) {
  for (MlirOperation op = first; !mlirOperationEqual(op, at); op = mlirOperationGetNextInBlock(op))
    if (gos_op_get_spec(op) && gos_op_is(op, "rotation") && same_angles(ir, op, rope))
      return mlirOperationGetResult(op, 0);
  gos_build_t build = gos_build(gos_op_spec("rotation"), mlirOperationGetLocation(rope));
  gos_build_in(&build, "pos", 0, gos_op_in(rope, "pos"));
  gos_build_int(ir, &build, "head_dim", gos_op_int(rope, "head_dim"));
  gos_build_int(ir, &build, last_int, gos_op_int(rope, last_int));
  gos_build_string(ir, &build, "scaling_type", gos_op_string(ir, rope, "scaling_type"));
  for (size_t i = 0; i < sizeof scaling / sizeof *scaling; i++)
    gos_build_float(ir, &build, scaling[i], gos_op_float(rope, scaling[i]));
  gos_shape_t pos = gos_shape_of(gos_op_in(rope, "pos"));
  gos_shape_t shape = {.rank = 2, .dtype = GPUOS_F32};
  shape.dim[0] = pos.dim[0], shape.dim[1] = gos_op_int(rope, "head_dim");
  gos_build_result(&build, gos_tensor_type(ir, &shape));
  return mlirOperationGetResult(gos_build_before(ir, &build, at), 0);
}

static void rotate_within(gos_ir_t *ir, gos_build_t *build, const pair_t *ropes, MlirValue table) {
  if (mlirOperationIsNull(ropes->q)) return;
  gos_build_in(build, "k", 0, gos_op_in(ropes->k, "x"));
  gos_build_in(build, "rotation", 0, table);
  gos_build_string(ir, build, "pairing", gos_op_string(ir, ropes->q, "pairing"));
}

// ---- the pass -----------------------------------------------------------------------------------

static void erase(MlirOperation op) {
  mlirOperationRemoveFromParent(op);
  mlirOperationDestroy(op);
}

// Where they are not one, q's matmul comes after k's and v's: its tiles are the largest, so the last of them is drawn
// longest before it ends, and attention's can be drawn, and their keys asked for, meanwhile.
static void delay_queries(MlirOperation attention) {
  MlirOperation matmul = producer(gos_op_in(attention, "q"), "matmul");
  if (mlirOperationIsNull(matmul) || gos_value_uses(mlirOperationGetResult(matmul, 0)) != 1) return;
  mlirOperationMoveBefore(matmul, attention);
}

static void advance_attention(gos_ir_t *ir, MlirOperation first, MlirOperation attention,
                              MlirOperation append) {
  pair_t ropes = find_ropes(ir, attention);
  bool rotates = !mlirOperationIsNull(ropes.q);
  MlirValue table = rotates ? find_table(ir, ropes.q, first, attention) : (MlirValue){NULL};
  gos_build_t attend = gos_rebuild(attention), later = gos_rebuild(append);
  gos_build_in(&attend, "cache", 0, gos_op_in(append, "cache"));
  gos_build_bool(ir, &attend, "own", true);
  if (rotates) gos_build_in(&attend, "q", 0, gos_op_in(ropes.q, "x"));
  rotate_within(ir, &attend, &ropes, table);
  rotate_within(ir, &later, &ropes, table);
  MlirOperation user = first_user(mlirOperationGetResult(append, 0), attention);
  MlirOperation place = place_append(attention, user);
  MlirOperation advanced = gos_build_before(ir, &attend, attention);
  MlirValue out = mlirOperationGetResult(advanced, 0);
  MlirValue cache = mlirOperationGetResult(gos_build_before(ir, &later, place), 0);
  gos_op_replace(attention, &out);
  gos_op_replace(append, &cache);
  if (rotates) erase(ropes.q);
  if (rotates) erase(ropes.k);
  delay_queries(advanced);
}

static void attend(gos_ir_t *ir, MlirOperation func, void *user) {
  (void)user;
  MlirOperation op = mlirBlockGetFirstOperation(block_of(func));
  while (!mlirOperationIsNull(op)) {
    MlirOperation next = mlirOperationGetNextInBlock(op), append = {NULL};
    if (gos_op_get_spec(op) && gos_op_is(op, "attention")) append = own_append(op);
    if (!mlirOperationIsNull(append))
      advance_attention(ir, mlirBlockGetFirstOperation(block_of(func)), op, append);
    op = next;
  }
}

bool gos_pass_attend(gos_ir_t *ir) {
  gos_graphs(ir, attend, NULL);
  return true;
}
