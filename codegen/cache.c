// cache.c: what NVRTC made, kept in a folder under the hash of all that it was made from.
//
// An entry is the code and the hash of key and code: what is damaged, cut short or named wrongly is
// no entry, and is written again. Many processes may share a folder: entries appear whole.
//
// The hash is FNV-1a of 128 bits (Fowler, Noll, Vo, draft-eastlake-fnv): it finds accidents; who can
// write into the folder is trusted.
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen.h"

__extension__ typedef unsigned __int128 wide_t;

const gos_hash_t gos_hash_start = {0x6c62272e07bb0142, 0x62b821756295c58d};

gos_hash_t gos_hash_bytes(gos_hash_t after, const void *data, size_t bytes) {
  const wide_t prime = (wide_t)1 << 88 | 0x13b;
  const unsigned char *p = data;
  wide_t hash = (wide_t)after.high << 64 | after.low;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * prime;
  return (gos_hash_t){(uint64_t)(hash >> 64), (uint64_t)hash};
}

void gos_hash_add(gos_hash_t *hash, const char *text) {
  *hash = gos_hash_bytes(*hash, text, strlen(text) + 1);
}

static const char *path_of(gos_arena_t *arena, const gos_cache_t *cache) {
  return gos_format(arena, "%s/%016llx%016llx.%s", cache->dir, (unsigned long long)cache->key.high,
                    (unsigned long long)cache->key.low, cache->kind);
}

bool gos_cache_open(gos_ir_t *ir, const gos_cache_t *cache) {
  struct stat status;
  bool there = mkdir(cache->dir, 0777) == 0 || errno == EEXIST;
  if (there && stat(cache->dir, &status) == 0) {
    if (S_ISDIR(status.st_mode)) return true;
    errno = ENOTDIR;
  }
  gos_error(ir->diags, (gos_loc_t){0}, "cache", "cannot make the folder '%s': %s", cache->dir,
            strerror(errno));
  return false;
}

static bool read_entry(gos_arena_t *arena, FILE *in, gos_bytes_t *out_bytes) {
  struct stat status;
  if (fstat(fileno(in), &status) || !S_ISREG(status.st_mode)) return false;
  size_t bytes = (size_t)status.st_size;
  if (bytes <= sizeof(gos_hash_t)) return false;
  *out_bytes = (gos_bytes_t){gos_alloc(arena, bytes), bytes};
  return fread(out_bytes->at, 1, bytes, in) == bytes;
}

bool gos_cache_find(gos_ir_t *ir, const gos_cache_t *cache, gos_bytes_t *out_code) {
  gos_bytes_t entry = {0};
  *out_code = (gos_bytes_t){0};
  FILE *in = fopen(path_of(ir->arena, cache), "rb");
  bool read = in && read_entry(ir->arena, in, &entry);
  if (in) fclose(in);
  if (!read) return false;
  entry.count -= sizeof(gos_hash_t);
  gos_hash_t hash = gos_hash_bytes(cache->key, entry.at, entry.count);
  if (memcmp((char *)entry.at + entry.count, &hash, sizeof hash)) return false;
  *out_code = entry;
  return true;
}

bool gos_cache_add(gos_ir_t *ir, const gos_cache_t *cache, gos_bytes_t code) {
  gos_hash_t hash = gos_hash_bytes(cache->key, code.at, code.count);
  gos_bytes_t entry = {gos_alloc(ir->arena, code.count + sizeof hash), code.count + sizeof hash};
  memcpy(entry.at, code.at, code.count);
  memcpy((char *)entry.at + code.count, &hash, sizeof hash);
  return gos_artefact_write(ir, path_of(ir->arena, cache), entry);
}
