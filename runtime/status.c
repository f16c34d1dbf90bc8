#include "gpuos.h"

const char *gpuos_status_name(gpuos_status_t status) {
  switch (status) {
#define NAME(name, text)                                                                           \
  case GPUOS_##name: return #name;
    GPUOS_STATUS_LIST(NAME)
#undef NAME
  }
  return "UNKNOWN";
}

const char *gpuos_status_text(gpuos_status_t status) {
  switch (status) {
#define TEXT(name, text)                                                                           \
  case GPUOS_##name: return text;
    GPUOS_STATUS_LIST(TEXT)
#undef TEXT
  }
  return "no such status";
}
