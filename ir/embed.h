// embed.h: text files that the build puts into the compiler.
#ifndef GOS_IR_EMBED_H_
#define GOS_IR_EMBED_H_

typedef struct gos_embedded {
  const char *name; // "matmul.cuh", "h200.yaml": without folders
  const char *text; // NUL-terminated
} gos_embedded_t;

extern const gos_embedded_t gos_target_files[];   // ir/targets/*.yaml; ends with name NULL
extern const gos_embedded_t gos_device_headers[]; // codegen/device/*.cuh and gpuos_abi.h; likewise

#endif // GOS_IR_EMBED_H_
