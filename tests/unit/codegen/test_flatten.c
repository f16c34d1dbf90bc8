// Device headers in the places where they are included: each once, those that it includes before it.
#include <criterion/criterion.h>

#include "plans.h"

static size_t count_of(const char *text, const char *what) {
  size_t count = 0;
  for (; (text = strstr(text, what)); text++) count++;
  return count;
}

Test(flatten, puts_each_header_in_its_place_once) {
  gos_arena_t *arena = gos_arena_create();
  gos_seen_t seen = {0};
  const char *text = "int before;\n#include \"watch.cuh\"\nint after;\n#include \"take.cuh\"\n";
  const char *flat = gos_flatten(arena, text, &seen);
  const char *take = strstr(flat, "gpuos_take_parked("), *watch = strstr(flat, "void gpuos_watch(");
  cr_assert_not_null(take); // which watch.cuh includes
  cr_assert_not_null(watch);
  cr_expect_lt(take, watch);
  cr_expect_eq(strncmp(flat, "int before;\n", 12), 0);
  cr_expect_gt(strstr(flat, "int after;\n"), watch);
  cr_expect_eq(count_of(flat, "// watch.cuh: "), 1);
  cr_expect_eq(count_of(flat, "// take.cuh: "), 1);
  cr_expect_null(strstr(flat, "#include \""));
  cr_expect_null(strstr(flat, "#pragma once"));
  gos_arena_destroy(arena);
}

Test(flatten, leaves_out_what_has_been_seen) {
  gos_arena_t *arena = gos_arena_create();
  gos_seen_t seen = {0};
  const char *include = "#include \"dtype.cuh\"\n";
  cr_expect_neq(strlen(gos_flatten(arena, include, &seen)), 0);
  cr_expect_str_eq(gos_flatten(arena, include, &seen), "");
  seen = (gos_seen_t){0};
  cr_expect_neq(strlen(gos_flatten(arena, include, &seen)), 0);
  gos_arena_destroy(arena);
}
