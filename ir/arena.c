// arena.c: a list of blocks, handed out from the front of the newest one.
#include "arena.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 256 * 1024, ALIGN = 16 };

typedef struct block {
  struct block *older;
  size_t used, room;
  _Alignas(ALIGN) char data[];
} block_t;

struct gos_arena {
  block_t *newest;
};

static noreturn void out_of_memory(void) {
  fputs("error: out of memory\n", stderr);
  exit(1);
}

// Zeroed memory straight from the system where it can be: a large block costs no memset.
static block_t *new_block(size_t room, block_t *older) {
  if (room > SIZE_MAX / 2) out_of_memory();
  block_t *block = calloc(1, sizeof *block + room);
  if (!block) out_of_memory();
  block->older = older;
  block->room = room;
  return block;
}

gos_arena_t *gos_arena_create(void) {
  gos_arena_t *arena = calloc(1, sizeof *arena);
  if (!arena) out_of_memory();
  return arena;
}

static void free_blocks(block_t *block) {
  while (block) {
    block_t *older = block->older;
    free(block);
    block = older;
  }
}

// Keeps one block of the usual size, as the next pass will want it.
void gos_arena_reset(gos_arena_t *arena) {
  block_t *kept = arena->newest;
  if (kept && kept->room == BLOCK_BYTES) {
    free_blocks(kept->older);
    memset(kept->data, 0, kept->used);
    kept->older = NULL;
    kept->used = 0;
    return;
  }
  free_blocks(kept);
  arena->newest = NULL;
}

void gos_arena_destroy(gos_arena_t *arena) {
  if (!arena) return;
  free_blocks(arena->newest);
  free(arena);
}

void *gos_alloc(gos_arena_t *arena, size_t bytes) {
  if (bytes > SIZE_MAX / 2) out_of_memory();
  size_t need = (bytes + ALIGN - 1) / ALIGN * ALIGN;
  block_t *block = arena->newest;
  if (!block || block->room - block->used < need) {
    size_t room = need > BLOCK_BYTES / 4 ? need : BLOCK_BYTES;
    bool behind = block && room != BLOCK_BYTES; // a large piece leaves the open block open
    block_t *fresh = new_block(room, behind ? block->older : block);
    if (behind)
      block->older = fresh;
    else
      arena->newest = fresh;
    block = fresh;
  }
  void *at = block->data + block->used;
  block->used += need;
  return at;
}

char *gos_strndup(gos_arena_t *arena, const char *text, size_t length) {
  char *copy = gos_alloc(arena, length + 1);
  if (length) memcpy(copy, text, length);
  return copy;
}

char *gos_vformat(gos_arena_t *arena, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length < 0) GOS_BUG("cannot format '%s'", format);
  char *text = gos_alloc(arena, (size_t)length + 1);
  vsnprintf(text, (size_t)length + 1, format, args);
  return text;
}

char *gos_format(gos_arena_t *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = gos_vformat(arena, format, args);
  va_end(args);
  return text;
}

void *gos_grow(gos_arena_t *arena, void *at, size_t size, size_t *room) {
  size_t larger = *room ? *room * 2 : 8;
  if (larger > SIZE_MAX / 2 / size) out_of_memory();
  void *moved = gos_alloc(arena, larger * size);
  if (*room) memcpy(moved, at, *room * size);
  *room = larger;
  return moved;
}

static void text_reserve(gos_text_t *text, size_t more) {
  if (more > SIZE_MAX / 4 || text->count > SIZE_MAX / 4) out_of_memory();
  size_t need = text->count + more + 1;
  if (need <= text->room) return;
  size_t room = text->room ? text->room : 64;
  while (room < need) room *= 2;
  char *moved = gos_alloc(text->arena, room);
  if (text->count) memcpy(moved, text->at, text->count);
  text->at = moved;
  text->room = room;
}

void gos_text_add_bytes(gos_text_t *text, const char *bytes, size_t count) {
  text_reserve(text, count);
  if (count) memcpy(text->at + text->count, bytes, count);
  text->count += count;
  text->at[text->count] = 0;
}

void gos_text_add(gos_text_t *text, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, again);
  va_end(again);
  if (length < 0) GOS_BUG("cannot format '%s'", format);
  text_reserve(text, (size_t)length);
  vsnprintf(text->at + text->count, (size_t)length + 1, format, args);
  text->count += (size_t)length;
  va_end(args);
}

noreturn void gos_bug(const char *file, int line, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s:%d: bug in the compiler: ", file, line);
  vfprintf(stderr, format, args);
  fputs("\n", stderr);
  va_end(args);
  abort();
}
