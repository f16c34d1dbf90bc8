// yaml_tree.c: libyaml's events into a tree, everything we do not accept refused at its place.
#include "yaml_tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

enum { MAX_DEPTH = 32, MAX_NODES = 1 << 20, MAX_BYTES = 16 << 20, MAX_SCALAR = 4096 };

// A container whose end has not come yet.
typedef struct open_node {
  gos_yaml_t *node, *last;
  const char *key; // of the value that comes next, NULL: a key comes next (in a map)
  gos_loc_t key_at;
} open_node_t;

typedef struct reader {
  gos_arena_t *arena;
  gos_diags_t *diags;
  uint16_t file;
  yaml_parser_t parser;
  open_node_t open[MAX_DEPTH];
  int depth;
  size_t nodes, documents;
  gos_yaml_t *root;
  bool failed, duplicates;
} reader_t;

static gos_loc_t place(const reader_t *r, yaml_mark_t mark) {
  return (gos_loc_t){.line = (uint32_t)mark.line + 1, .col = (uint32_t)mark.column + 1, r->file};
}

static void fail(reader_t *r, gos_loc_t at, const char *message) {
  gos_error(r->diags, at, "yaml", "%s", message);
  r->failed = true;
}

// ---- events -------------------------------------------------------------------------------------

static bool wants_key(const reader_t *r) {
  const open_node_t *open = r->depth ? &r->open[r->depth - 1] : NULL;
  return open && open->node->kind == GOS_YAML_MAP && !open->key;
}

// Makes the node of an event and hangs it into the open container.
static gos_yaml_t *add_node(reader_t *r, gos_yaml_kind_t kind, gos_loc_t at) {
  if (++r->nodes > MAX_NODES) {
    fail(r, at, "too much YAML: more than 1048576 values");
    return NULL;
  }
  gos_yaml_t *node = gos_alloc(r->arena, sizeof *node);
  node->kind = kind;
  node->at = at;
  if (r->depth == 0) return r->root = node;
  open_node_t *open = &r->open[r->depth - 1];
  node->key = open->key;
  node->key_at = open->key_at;
  open->key = NULL;
  *(open->last ? &open->last->next : &open->node->first) = node;
  open->last = node;
  open->node->count++;
  return node;
}

static void on_start(reader_t *r, gos_yaml_kind_t kind, gos_loc_t at) {
  if (wants_key(r)) {
    fail(r, at, "a key must be a plain name, not a list or a mapping");
    gos_note(r->diags, (gos_loc_t){0}, "a text with braces or brackets goes in quotes: \"{i}\"");
  } else if (r->depth == MAX_DEPTH) {
    fail(r, at, "nested too deeply: at most 32 levels are allowed");
  } else {
    gos_yaml_t *node = add_node(r, kind, at);
    if (node) r->open[r->depth++] = (open_node_t){.node = node};
  }
}

static void on_scalar(reader_t *r, const yaml_event_t *event, gos_loc_t at) {
  const char *text = (const char *)event->data.scalar.value;
  size_t length = event->data.scalar.length;
  if (memchr(text, 0, length)) {
    fail(r, at, "a NUL character is not allowed");
    return;
  }
  if (length > MAX_SCALAR) {
    fail(r, at, "a text may have 4096 bytes at most");
    return;
  }
  const char *copy = gos_strndup(r->arena, text, length);
  if (wants_key(r)) {
    r->open[r->depth - 1].key = copy;
    r->open[r->depth - 1].key_at = at;
    return;
  }
  gos_yaml_t *node = add_node(r, GOS_YAML_SCALAR, at);
  if (!node) return;
  node->text = copy;
  node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

static int by_key(const void *a, const void *b) {
  const gos_yaml_t *x = *(gos_yaml_t *const *)a, *y = *(gos_yaml_t *const *)b;
  int order = strcmp(x->key, y->key);
  if (order) return order;
  if (x->key_at.line != y->key_at.line) return x->key_at.line < y->key_at.line ? -1 : 1;
  return x->key_at.col < y->key_at.col ? -1 : x->key_at.col > y->key_at.col;
}

// Sorting finds duplicates in a map of any size and content in n log n.
static void check_duplicates(reader_t *r, const gos_yaml_t *map) {
  if (map->count < 2) return;
  const gos_yaml_t **sorted = malloc(map->count * sizeof *sorted);
  if (!sorted) GOS_BUG("out of memory");
  size_t count = 0, first = 0;
  for (const gos_yaml_t *n = map->first; n; n = n->next) sorted[count++] = n;
  qsort(sorted, count, sizeof *sorted, by_key);
  for (size_t i = 1; i < count; i++) {
    if (strcmp(sorted[i]->key, sorted[first]->key)) {
      first = i;
      continue;
    }
    r->duplicates = true;
    gos_error(r->diags, sorted[i]->key_at, "yaml-duplicate", "'%s' is given twice", sorted[i]->key);
    gos_note(r->diags, sorted[first]->key_at, "first given here");
  }
  free(sorted);
}

static void on_end(reader_t *r) {
  const gos_yaml_t *node = r->open[--r->depth].node;
  if (node->kind == GOS_YAML_MAP) check_duplicates(r, node);
}

static bool has_anchor_or_tag(const yaml_event_t *event) {
  switch (event->type) {
  case YAML_SCALAR_EVENT: return event->data.scalar.anchor || event->data.scalar.tag;
  case YAML_SEQUENCE_START_EVENT:
    return event->data.sequence_start.anchor || event->data.sequence_start.tag;
  case YAML_MAPPING_START_EVENT:
    return event->data.mapping_start.anchor || event->data.mapping_start.tag;
  default: return false;
  }
}

static void on_event(reader_t *r, const yaml_event_t *event) {
  gos_loc_t at = place(r, event->start_mark);
  if (has_anchor_or_tag(event)) {
    fail(r, at, "anchors (&) and tags (!) are not allowed");
    return;
  }
  switch (event->type) {
  case YAML_DOCUMENT_START_EVENT:
    if (event->data.document_start.version_directive ||
        event->data.document_start.tag_directives.start !=
            event->data.document_start.tag_directives.end)
      fail(r, at, "directives (%) are not allowed");
    else if (++r->documents > 1)
      fail(r, at, "only one document is allowed");
    break;
  case YAML_ALIAS_EVENT: fail(r, at, "aliases (*) are not allowed"); break;
  case YAML_SEQUENCE_START_EVENT: on_start(r, GOS_YAML_LIST, at); break;
  case YAML_MAPPING_START_EVENT: on_start(r, GOS_YAML_MAP, at); break;
  case YAML_SEQUENCE_END_EVENT:
  case YAML_MAPPING_END_EVENT: on_end(r); break;
  case YAML_SCALAR_EVENT: on_scalar(r, event, at); break;
  default: break;
  }
}

// ---- the parser's own errors --------------------------------------------------------------------

static void on_parser_error(reader_t *r) {
  const yaml_parser_t *p = &r->parser;
  if (p->error == YAML_MEMORY_ERROR) GOS_BUG("out of memory");
  const char *problem = p->problem ? p->problem : "this is no YAML";
  r->failed = true;
  if (p->error == YAML_READER_ERROR) { // has an offset, no mark
    gos_loc_t at = gos_diags_place(r->diags, r->file, p->problem_offset);
    gos_error(r->diags, at, "yaml", "%s (byte 0x%02x)", problem, (unsigned)p->problem_value);
    return;
  }
  gos_error(r->diags, place(r, p->problem_mark), "yaml", "%s", problem);
  if (p->context) gos_note(r->diags, place(r, p->context_mark), "%s", p->context);
}

static void read_events(reader_t *r) {
  for (bool end = false; !end && !r->failed;) {
    yaml_event_t event;
    if (!yaml_parser_parse(&r->parser, &event)) {
      on_parser_error(r);
      return;
    }
    end = event.type == YAML_STREAM_END_EVENT;
    on_event(r, &event);
    yaml_event_delete(&event);
  }
}

gos_yaml_t *gos_yaml_parse(gos_arena_t *arena, gos_diags_t *diags, uint16_t file) {
  size_t bytes;
  const char *text = gos_diags_file_text(diags, file, &bytes);
  reader_t r = {.arena = arena, .diags = diags, .file = file};
  gos_loc_t top = {.line = 1, .col = 1, .file = file};
  if (bytes > MAX_BYTES) {
    fail(&r, top, "the file is larger than 16 MiB");
    return NULL;
  }
  if (!yaml_parser_initialize(&r.parser)) GOS_BUG("out of memory");
  // Said here because libyaml would else believe a UTF-16 byte order mark.
  yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
  read_events(&r);
  yaml_parser_delete(&r.parser);
  if (!r.failed && !r.root) fail(&r, top, "the file is empty");
  return r.failed || r.duplicates ? NULL : r.root;
}

gos_yaml_t *gos_yaml_get(const gos_yaml_t *map, const char *key) {
  if (!map || map->kind != GOS_YAML_MAP) return NULL;
  for (gos_yaml_t *node = map->first; node; node = node->next)
    if (!strcmp(node->key, key)) return node;
  return NULL;
}

// ---- scalars ------------------------------------------------------------------------------------

static bool is_plain(const gos_yaml_t *node) {
  return node && node->kind == GOS_YAML_SCALAR && !node->quoted;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool gos_yaml_int(const gos_yaml_t *node, int64_t *out_value) {
  *out_value = 0;
  if (!is_plain(node)) return false;
  const char *p = node->text;
  bool negative = *p == '-';
  int64_t value = 0; // negative all along: the range is larger there
  for (p += negative; *p; p++) {
    bool group = *p == '_' && p > node->text && is_digit(p[-1]) && is_digit(p[1]);
    if (group) continue;
    if (!is_digit(*p)) return false;
    if (__builtin_mul_overflow(value, (int64_t)10, &value) ||
        __builtin_sub_overflow(value, (int64_t)(*p - '0'), &value))
      return false;
  }
  if (p == node->text + negative || (!negative && value == INT64_MIN)) return false;
  *out_value = negative ? value : -value;
  return true;
}

// strtod alone would take hexadecimal, nan, inf and leading spaces.
bool gos_yaml_float(const gos_yaml_t *node, double *out_value) {
  *out_value = 0;
  if (!is_plain(node) || !*node->text) return false;
  const char *digits = node->text + (*node->text == '-');
  if (!is_digit(*digits) && !(*digits == '.' && is_digit(digits[1]))) return false;
  if (strspn(digits, "0123456789.eE+-") != strlen(digits)) return false;
  char *end;
  double value = strtod(node->text, &end);
  if (*end || !isfinite(value)) return false;
  *out_value = value;
  return true;
}

bool gos_yaml_bool(const gos_yaml_t *node, bool *out_value) {
  *out_value = is_plain(node) && !strcmp(node->text, "true");
  return *out_value || (is_plain(node) && !strcmp(node->text, "false"));
}
