// infer.h: between legalize.c and infer.c.
#ifndef GOS_PASSES_INFER_H_
#define GOS_PASSES_INFER_H_

#include "ir.h"

// Sets the types of op's results from its operands, or reports why not.
void gos_infer(gos_ir_t *ir, MlirOperation op);

#endif // GOS_PASSES_INFER_H_
