// mlir_text.h: C strings to and from MLIR's, private to ir/.
#ifndef GOS_IR_MLIR_TEXT_H_
#define GOS_IR_MLIR_TEXT_H_

#include <string.h>

#include "ir.h"

static inline MlirStringRef gos_ref(const char *text) {
  return mlirStringRefCreateFromCString(text);
}

static inline bool gos_ref_is(MlirStringRef ref, const char *text) {
  return ref.length == strlen(text) && !memcmp(ref.data, text, ref.length);
}

static inline MlirNamedAttribute gos_named(MlirContext mlir, const char *name,
                                           MlirAttribute value) {
  return mlirNamedAttributeGet(mlirIdentifierGet(mlir, gos_ref(name)), value);
}

#endif // GOS_IR_MLIR_TEXT_H_
