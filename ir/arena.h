// arena.h: memory that is freed all at once, and arrays that grow in it.
//
// The compiler owns two arenas: one lives for the compilation, one (scratch) is reset after each
// pass. Nothing else in the compiler allocates. Running out of memory ends the process with a
// message: a compiler cannot do better.
#ifndef GOS_IR_ARENA_H_
#define GOS_IR_ARENA_H_

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdnoreturn.h>

typedef struct gos_arena gos_arena_t;

gos_arena_t *gos_arena_create(void);
void gos_arena_reset(gos_arena_t *arena); // everything allocated so far is gone
void gos_arena_destroy(gos_arena_t *arena);

void *gos_alloc(gos_arena_t *arena, size_t bytes); // zeroed, 16-byte aligned
char *gos_strndup(gos_arena_t *arena, const char *text, size_t length);
char *gos_format(gos_arena_t *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *gos_vformat(gos_arena_t *arena, const char *format, va_list args);

// A growable array: GOS_ARRAY(uint32_t) ids = {0}; *gos_push(arena, &ids) = 7; ids.at[0],
// ids.count.
#define GOS_ARRAY(type)                                                                            \
  struct {                                                                                         \
    type *at;                                                                                      \
    size_t count, room;                                                                            \
  }
#define gos_push(arena, array)                                                                     \
  ((array)->count == (array)->room                                                                 \
       ? (void)((array)->at = gos_grow(arena, (array)->at, sizeof *(array)->at, &(array)->room))   \
       : (void)0,                                                                                  \
   &(array)->at[(array)->count++])
void *gos_grow(gos_arena_t *arena, void *at, size_t size, size_t *room); // doubles *room

// Text that grows, NUL-terminated at all times.
typedef struct gos_text {
  gos_arena_t *arena;
  char *at;
  size_t count, room;
} gos_text_t;
void gos_text_add(gos_text_t *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void gos_text_add_bytes(gos_text_t *text, const char *bytes, size_t count);

// A broken invariant of our own, never the user's fault: prints file and line and aborts.
#define GOS_BUG(...) gos_bug(__FILE__, __LINE__, __VA_ARGS__)
noreturn void gos_bug(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif // GOS_IR_ARENA_H_
