// cli_format.c: sizes and shapes as people want them, strings as JSON does.
#include "cli.h"

gos_size_t gos_size(uint64_t bytes) {
  static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  gos_size_t size;
  double value = (double)bytes;
  int unit = 0;
  for (; value >= 999.5 && unit < 6; unit++) value /= 1000;
  snprintf(size.text, sizeof size.text, unit == 0 ? "%.0f %s" : "%.3g %s", value, units[unit]);
  return size;
}

gos_shape_t gos_shape(const uint32_t *shape, uint32_t rank) {
  gos_shape_t s = {"["};
  size_t at = 1;
  for (uint32_t i = 0; i < rank && i < GPUOS_RANK; i++)
    at += (size_t)snprintf(s.text + at, sizeof s.text - at, i == 0 ? "%u" : ", %u", shape[i]);
  snprintf(s.text + at, sizeof s.text - at, "]");
  return s;
}

void gos_write_string(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text != '\0'; text++)
    if (*text == '"' || *text == '\\')
      fprintf(out, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      fprintf(out, "\\u%04x", (unsigned)*text);
    else
      fputc(*text, out);
  fputc('"', out);
}
