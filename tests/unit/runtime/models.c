#include "models.h"

#include "tables.h"

enum { FREE_DIM = GPUOS_ALL };
#define EXTENT(...)  ((const uint32_t[GPUOS_DIMS]){__VA_ARGS__})
#define FOLLOWS(...) ((const uint8_t[GPUOS_DIMS]){__VA_ARGS__})

static void add(gos_tables_t *t, int writes, gpuos_as_t as, gpuos_dtype_t dtype, uint32_t buffer,
                uint32_t value, const uint32_t *extent, const uint8_t *follows) {
  gos_tables_add_operand(t, gos_tables_view(as, dtype, buffer, value, 0, extent, follows), writes);
}

static gpuos_table_t *finish(gos_tables_t *t) {
  gpuos_table_t *table = gos_tables_finish(t);
  gos_tables_destroy(t);
  return table;
}

// ---- scale --------------------------------------------------------------------------------------

// OUT = a op b, elementwise over [count].
static void add_map(gos_tables_t *t, const char *name, gpuos_code_op_t code, uint32_t count) {
  gpuos_op_t *op = gos_tables_add_op(t, name, GPUOS_MAP, EXTENT(1, 1, 1, count));
  op->tile[3] = count < 4 ? count : 4;
  gos_tables_add_code(t, GPUOS_CODE_INPUT, 0, 0, 0);
  gos_tables_add_code(t, GPUOS_CODE_INPUT, 1, 0, 0);
  gos_tables_add_code(t, code, 0, 1, 0);
}

gpuos_table_t *gos_model_scale(uint32_t count) {
  gos_tables_t *t = gos_tables_create();
  const uint32_t *extent = EXTENT(1, 1, 1, count);
  const uint8_t *follows = FOLLOWS(0, 1, 2, 3);
  uint32_t x = gos_tables_add_buffer(t, "x", GPUOS_INPUT, GPUOS_F32, 1, &count);
  uint32_t w = gos_tables_add_buffer(t, "w", GPUOS_WEIGHT, GPUOS_BF16, 1, &count);
  uint32_t y = gos_tables_add_buffer(t, "y", GPUOS_OUTPUT, GPUOS_F32, 1, &count);
  uint32_t space = gos_tables_add_workspace(t, count * (uint32_t)sizeof(float));
  uint32_t product = gos_tables_add_value(t), sum = gos_tables_add_value(t);

  add_map(t, "multiply", GPUOS_CODE_MUL, count);
  add(t, 1, GPUOS_AS_OUT, GPUOS_F32, space, product, extent, follows);
  add(t, 0, GPUOS_AS_EXTRA, GPUOS_F32, x, x, extent, follows);
  add(t, 0, GPUOS_AS_EXTRA, GPUOS_BF16, w, w, extent, follows);
  add_map(t, "add", GPUOS_CODE_ADD, count);
  add(t, 1, GPUOS_AS_OUT, GPUOS_F32, y, sum, extent, follows);
  add(t, 0, GPUOS_AS_EXTRA, GPUOS_F32, space, product, extent, follows);
  add(t, 0, GPUOS_AS_EXTRA, GPUOS_F32, x, x, extent, follows);

  uint32_t multiplied = gos_tables_add_counter(t);
  gos_tables_add_tiles(t, 0, 0, multiplied);
  gos_tables_add_tiles(t, 1, gos_tables_add_wait_list(t, &multiplied, 1), GPUOS_NONE);
  return finish(t);
}

// ---- lookup -------------------------------------------------------------------------------------

gpuos_table_t *gos_model_lookup(uint32_t rows, uint32_t vocabulary, int has_seq) {
  gos_tables_t *t = gos_tables_create();
  const uint32_t square[] = {vocabulary, vocabulary}, wide[] = {rows, vocabulary};
  uint32_t token = gos_tables_add_buffer(t, "token", GPUOS_INPUT, GPUOS_I32, 1, &rows);
  gos_tables_add_buffer(t, "pos", GPUOS_INPUT, GPUOS_I32, 1, &rows);
  if (has_seq) gos_tables_add_buffer(t, "seq", GPUOS_INPUT, GPUOS_I32, 1, &rows);
  uint32_t lm = gos_tables_add_buffer(t, "lm", GPUOS_WEIGHT, GPUOS_F32, 2, square);
  uint32_t logits = gos_tables_add_buffer(t, "logits", GPUOS_OUTPUT, GPUOS_F32, 2, wide);
  uint32_t next = gos_tables_add_buffer(t, "next", GPUOS_OUTPUT, GPUOS_I32, 1, &rows);
  gos_tables_add_workspace(t, 0);
  uint32_t scored = gos_tables_add_value(t), chosen = gos_tables_add_value(t);

  gos_tables_add_op(t, "embed", GPUOS_EMBEDDING, EXTENT(1, 1, rows, vocabulary));
  add(t, 1, GPUOS_AS_OUT, GPUOS_F32, logits, scored, EXTENT(1, 1, rows, vocabulary),
      FOLLOWS(FREE_DIM, FREE_DIM, 2, 3));
  add(t, 0, GPUOS_AS_TABLE, GPUOS_F32, lm, lm, EXTENT(1, 1, vocabulary, vocabulary),
      FOLLOWS(FREE_DIM, FREE_DIM, FREE_DIM, 3));
  add(t, 0, GPUOS_AS_IDS, GPUOS_I32, token, token, EXTENT(1, 1, 1, rows),
      FOLLOWS(FREE_DIM, FREE_DIM, FREE_DIM, 2));
  gos_tables_add_op(t, "choose", GPUOS_ARGMAX, EXTENT(1, 1, rows, 1));
  add(t, 1, GPUOS_AS_OUT, GPUOS_I32, next, chosen, EXTENT(1, 1, 1, rows),
      FOLLOWS(FREE_DIM, 0, 1, 2));
  add(t, 0, GPUOS_AS_X, GPUOS_F32, logits, scored, EXTENT(1, 1, rows, vocabulary),
      FOLLOWS(0, 1, 2, FREE_DIM));

  uint32_t embedded = gos_tables_add_counter(t);
  gos_tables_add_tiles(t, 0, 0, embedded);
  gos_tables_add_tiles(t, 1, gos_tables_add_wait_list(t, &embedded, 1), GPUOS_NONE);
  return finish(t);
}

// ---- cache --------------------------------------------------------------------------------------

enum { PAGE_SIZE = 4, HEAD_DIM = 2 };

gpuos_table_t *gos_model_cache(uint32_t rows, uint32_t sequences, uint32_t pages, uint32_t pool) {
  gos_tables_t *t = gos_tables_create();
  const uint32_t paged[] = {2, 1, pool, PAGE_SIZE * HEAD_DIM}, row[] = {rows, HEAD_DIM};
  const uint32_t table[] = {sequences, pages};
  const uint8_t *none = FOLLOWS(FREE_DIM, FREE_DIM, FREE_DIM, FREE_DIM);
  uint32_t pos = gos_tables_add_buffer(t, "pos", GPUOS_INPUT, GPUOS_I32, 1, &rows);
  uint32_t seq = gos_tables_add_buffer(t, "seq", GPUOS_INPUT, GPUOS_I32, 1, &rows);
  uint32_t k = gos_tables_add_buffer(t, "k", GPUOS_INPUT, GPUOS_BF16, 2, row);
  uint32_t v = gos_tables_add_buffer(t, "v", GPUOS_INPUT, GPUOS_BF16, 2, row);
  uint32_t page = gos_tables_add_buffer(t, "cache.pages", GPUOS_INPUT, GPUOS_I32, 2, table);
  uint32_t cache = gos_tables_add_buffer(t, "cache", GPUOS_STATE, GPUOS_BF16, 4, paged);
  gos_tables_add_workspace(t, 0);
  uint32_t appended = gos_tables_add_value(t);

  gpuos_op_t *op = gos_tables_add_op(t, "append", GPUOS_KV_APPEND, EXTENT(1, 1, 1, 1));
  op->params[0] = PAGE_SIZE;
  op->params[1] = HEAD_DIM;
  const uint8_t *by_head = FOLLOWS(FREE_DIM, 2, FREE_DIM, FREE_DIM);
  add(t, 1, GPUOS_AS_CACHE, GPUOS_BF16, cache, appended, paged, by_head);
  add(t, 0, GPUOS_AS_CACHE_IN, GPUOS_BF16, cache, cache, paged, by_head);
  const uint8_t *kv = FOLLOWS(FREE_DIM, FREE_DIM, 2, FREE_DIM);
  add(t, 0, GPUOS_AS_K, GPUOS_BF16, k, k, EXTENT(1, rows, 1, HEAD_DIM), kv);
  add(t, 0, GPUOS_AS_V, GPUOS_BF16, v, v, EXTENT(1, rows, 1, HEAD_DIM), kv);
  add(t, 0, GPUOS_AS_POS, GPUOS_I32, pos, pos, EXTENT(1, 1, 1, rows), none);
  add(t, 0, GPUOS_AS_SEQ, GPUOS_I32, seq, seq, EXTENT(1, 1, 1, rows), none);
  add(t, 0, GPUOS_AS_PAGES, GPUOS_I32, page, page, EXTENT(1, 1, sequences, pages), none);
  gos_tables_add_tiles(t, 0, 0, GPUOS_NONE);
  return finish(t);
}
