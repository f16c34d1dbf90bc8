// The cache: its hash, and that an entry is found by its key only, and only as it was written.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "plans.h"

// ---- the hash -----------------------------------------------------------------------------------

// Published values of FNV-1a, 128 bits (draft-eastlake-fnv).
Test(cache, hashes_as_published) {
  gos_hash_t none = gos_hash_bytes(gos_hash_start, "", 0),
             a = gos_hash_bytes(gos_hash_start, "a", 1),
             foobar = gos_hash_bytes(gos_hash_start, "foobar", 6);
  cr_expect(none.high == 0x6c62272e07bb0142 && none.low == 0x62b821756295c58d);
  cr_expect(a.high == 0xd228cb696f1a8caf && a.low == 0x78912b704e4a8964);
  cr_expect(foobar.high == 0x343e1662793c64bf && foobar.low == 0x6f0d3597ba446f18);
}

Test(cache, tells_texts_apart_by_where_they_end) {
  gos_hash_t one = gos_hash_start, other = gos_hash_start;
  gos_hash_add(&one, "a"), gos_hash_add(&one, "bc");
  gos_hash_add(&other, "ab"), gos_hash_add(&other, "c");
  cr_expect(one.high != other.high && one.low != other.low);
}

// ---- entries ------------------------------------------------------------------------------------

static gos_cache_t make_cache(char *folder) {
  cr_assert_not_null(mkdtemp(folder));
  return (gos_cache_t){.dir = folder, .kind = "cubin", .key = {1, 2}};
}

static void expect_none(gos_plan_t *plan, const gos_cache_t *cache, const char *when) {
  gos_bytes_t found;
  cr_expect_not(gos_cache_find(plan->ir, cache, &found), "%s", when);
  cr_expect_null(found.at);
}

static void write_file(const char *path, const char *bytes, size_t count) {
  FILE *out = fopen(path, "wb");
  cr_assert(out && fwrite(bytes, 1, count, out) == count && fclose(out) == 0);
}

Test(cache, finds_what_was_added_unless_a_byte_is_other_or_missing) {
  char folder[] = "/tmp/gpuos-cache-XXXXXX", text[] = "a cubin", entry[64];
  gos_plan_t *plan = make_plan(&chips[0]);
  gos_cache_t cache = make_cache(folder), moved = cache;
  gos_bytes_t found;
  expect_none(plan, &cache, "empty");
  cr_assert(gos_cache_add(plan->ir, &cache, (gos_bytes_t){text, sizeof text}));
  cr_assert(gos_cache_find(plan->ir, &cache, &found));
  cr_assert_eq(found.count, sizeof text);
  cr_expect_arr_eq((char *)found.at, text, sizeof text);

  const char *path = gos_format(plan->ir->arena, "%s/%016x%016x.cubin", folder, 1u, 2u);
  FILE *in = fopen(path, "rb");
  cr_assert_not_null(in);
  size_t count = fread(entry, 1, sizeof entry, in);
  fclose(in);
  for (size_t i = 0; i < count; i++) {
    entry[i] ^= 1;
    write_file(path, entry, count);
    expect_none(plan, &cache, "a byte is other");
    entry[i] ^= 1;
    write_file(path, entry, i);
    expect_none(plan, &cache, "cut short");
  }
  moved.key.low = 3;
  write_file(gos_format(plan->ir->arena, "%s/%016x%016x.cubin", folder, 1u, 3u), entry, count);
  expect_none(plan, &moved, "another key's");
  unlink(path);
  unlink(gos_format(plan->ir->arena, "%s/%016x%016x.cubin", folder, 1u, 3u));
  rmdir(folder);
  free_plan(plan);
}
