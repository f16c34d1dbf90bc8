// flatten.c: device headers in the places where they are included, so that the same ones can stand in two
// namespaces, with other constants before them.
#include <string.h>

#include "codegen.h"
#include "embed.h"

static const char once[] = "#pragma once", include[] = "#include \"";

static const char *find_header(const char *name) {
  for (const gos_embedded_t *header = gos_device_headers; header->name; header++)
    if (!strcmp(header->name, name)) return header->text;
  GOS_BUG("no device header '%s'", name);
}

static bool is_new(gos_arena_t *arena, gos_seen_t *seen, const char *name) {
  for (size_t i = 0; i < seen->names.count; i++)
    if (!strcmp(seen->names.at[i], name)) return false;
  *gos_push(arena, &seen->names) = name;
  return true;
}

static void add(gos_text_t *out, const char *text, gos_seen_t *seen) {
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n');
    const char *name = line + sizeof include - 1;
    if (!strncmp(line, include, sizeof include - 1)) {
      name = gos_strndup(out->arena, name, strcspn(name, "\""));
      if (strcmp(name, "gpuos_abi.h") && is_new(out->arena, seen, name))
        add(out, find_header(name), seen);
    } else if (strncmp(line, once, sizeof once - 1)) {
      gos_text_add_bytes(out, line, length);
    }
    line += length;
  }
}

const char *gos_flatten(gos_arena_t *arena, const char *text, gos_seen_t *seen) {
  gos_text_t out = {.arena = arena};
  add(&out, text, seen);
  return out.at ? out.at : "";
}
