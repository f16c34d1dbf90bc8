// test_safetensors.c: reads what the format allows and nothing else; binds by name.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpuos.h"
#include "models.h"
#include "safetensors.h"

static gos_error_t error;

// A file's bytes in a block of exactly their size.
typedef struct block {
  char *data;
  size_t bytes;
} block_t;

static block_t make(const char *header, size_t data_bytes) {
  uint64_t length = strlen(header);
  block_t block = {.bytes = 8 + (size_t)length + data_bytes};
  block.data = calloc(1, block.bytes);
  for (int i = 0; i < 8; i++) block.data[i] = (char)(length >> 8 * i);
  memcpy(block.data + 8, header, (size_t)length);
  for (size_t i = 0; i < data_bytes; i++) block.data[8 + length + i] = (char)i;
  return block;
}

static gpuos_status_t parse(const block_t *block, gos_safetensors_t *out) {
  error = (gos_error_t){0};
  return gos_safetensors_parse(block->data, block->bytes, &error, out);
}

// ---- good files ---------------------------------------------------------------------------------

Test(safetensors, reads_names_dtypes_shapes_and_places) {
  block_t block = make("{\"__metadata__\":{\"format\":\"pt\"},\n"
                       " \"b\": {\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[4,12]},"
                       " \"a\": {\"shape\":[2],\"data_offsets\":[0,4],\"dtype\":\"BF16\"},"
                       " \"none\": {\"dtype\":\"F8_E4M3\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                       " \"one\": {\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[12,13]}}   ",
                       13);
  gos_safetensors_t file;
  cr_assert_eq(parse(&block, &file), GPUOS_OK, "%s", error.text);
  cr_assert_eq(file.count, 4);
  const gos_safetensor_t *a = &file.tensors[0], *b = &file.tensors[1];
  cr_expect_str_eq(a->name, "a");
  cr_expect_str_eq(a->dtype, "BF16");
  cr_expect_eq(a->rank, 1);
  cr_expect_eq(b->rank, 2);
  cr_expect_eq(b->shape[0], 2);
  cr_expect_eq(b->bytes, 8);
  cr_expect_eq(*(const char *)b->data, 4);
  cr_expect_eq(file.tensors[2].bytes, 0);
  gos_safetensors_free(&file);
  free(block.data);
}

Test(safetensors, decodes_escapes) {
  block_t block = make("{\"a\\\"\\\\\\/\\n\\u00e9\\u20ac\\ud83d\\ude00\":"
                       "{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                       1);
  gos_safetensors_t file;
  cr_assert_eq(parse(&block, &file), GPUOS_OK, "%s", error.text);
  cr_expect_str_eq(file.tensors[0].name, "a\"\\/\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  gos_safetensors_free(&file);
  free(block.data);
}

Test(safetensors, allows_an_empty_file_and_unknown_dtypes) {
  const char *headers[] = {"{}", "{\"x\":{\"dtype\":\"F6_E2M3\",\"shape\":[5],"
                                 "\"data_offsets\":[0,4]}}"};
  for (size_t i = 0; i < 2; i++) {
    block_t block = make(headers[i], i * 4);
    gos_safetensors_t file;
    cr_expect_eq(parse(&block, &file), GPUOS_OK, "%s", error.text);
    gos_safetensors_free(&file);
    free(block.data);
  }
}

// ---- hostile files ------------------------------------------------------------------------------

#define ENTRY(dtype, shape, offsets)                                                               \
  "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

Test(safetensors, refuses_what_the_format_does_not_allow) {
  const struct {
    const char *header, *says;
    size_t data_bytes;
  } cases[] = {
      {"", "'{' expected", 0},
      {" {}", "'{' expected", 0},
      {"{", "name expected", 0},
      {"{}x", "end of the header expected", 0},
      {"{\"a", "name expected", 0},
      {"{\"a\x01\":", "name expected", 0},
      {"{\"\\u0000\":", "name expected", 0},
      {"{\"\\ud800\":", "name expected", 0},
      {"{\"\\ud800\\u0041\":", "name expected", 0},
      {"{\"\\udc00\":", "name expected", 0},
      {"{\"\\x\":", "name expected", 0},
      {"{\"\\", "name expected", 0},
      {"{\"\\u12", "name expected", 0},
      {"{\"a\" 1}", "':' expected", 0},
      {"{\"a\":[[[[[[[[", "'{' expected", 0},
      {"{\"__metadata__\":{\"k\":{}}}", "metadata", 0},
      {"{\"a\":{}}", "a key expected", 0},
      {"{\"a\":{\"dtype\":\"I8\"}}", "lacks", 0},
      {"{\"a\":{\"dtype\":\"I8\",\"dtype\":\"I8\"}}", "second key 'dtype'", 0},
      {"{\"a\":{\"colour\":\"red\"}}", "unknown key 'colour'", 0},
      {ENTRY("I8", "[1,]", "[0,1]"), "a dimension expected", 1},
      {ENTRY("I8", "[-1]", "[0,1]"), "a dimension expected", 1},
      {ENTRY("I8", "[1.0]", "[0,1]"), "']' expected", 1},
      {ENTRY("I8", "[01]", "[0,1]"), "a dimension expected", 1},
      {ENTRY("I8", "[18446744073709551616]", "[0,1]"), "a dimension expected", 1},
      {ENTRY("I8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), "too many dimensions", 1},
      {ENTRY("F32", "[4611686018427387905]", "[0,4]"), "overflows", 4},
      {ENTRY("F32", "[4294967296,4294967296]", "[0,4]"), "overflows", 4},
      {ENTRY("I8", "[1]", "[0]"), "two data offsets expected", 1},
      {ENTRY("I8", "[1]", "[1,0]"), "outside the file", 1},
      {ENTRY("I8", "[2]", "[0,2]"), "outside the file", 1},
      {ENTRY("I8", "[1]", "[18446744073709551615,18446744073709551615]"), "outside the file", 1},
      {ENTRY("BF16", "[3]", "[0,4]"), "should have 6 bytes, its offsets give 4", 4},
      {ENTRY("I8", "[1]", "[1,2]"), "hole", 2},
      {ENTRY("I8", "[1]", "[0,1]"), "1 bytes after the last tensor", 2},
      {"{\"a\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[0,2]},"
       "\"b\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
       "overlaps", 3},
      {"{\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
       "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
       "twice", 2},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    block_t block = make(cases[i].header, cases[i].data_bytes);
    gos_safetensors_t file;
    cr_expect_eq(parse(&block, &file), GPUOS_BAD_WEIGHTS, "case %zu", i);
    cr_expect_not_null(strstr(error.text, cases[i].says), "case %zu says: %s", i, error.text);
    cr_expect_null(file.tensors);
    free(block.data);
  }
}

Test(safetensors, refuses_a_header_longer_than_the_file) {
  const char *lengths[] = {"", "\1", "\3\0\0\0\0\0\0\0{}", "\xff\xff\xff\xff\xff\xff\xff\xff{}"};
  const size_t sizes[] = {0, 1, 10, 10};
  for (size_t i = 0; i < 4; i++) {
    gos_safetensors_t file;
    error = (gos_error_t){0};
    cr_expect_eq(gos_safetensors_parse(lengths[i], sizes[i], &error, &file), GPUOS_BAD_WEIGHTS);
  }
}

Test(safetensors, survives_every_truncation) {
  block_t whole =
      make("{\"\\u00e9\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}", 8);
  for (size_t n = 0; n < whole.bytes; n++) {
    block_t cut = {.data = malloc(n + 1), .bytes = n};
    memcpy(cut.data, whole.data, n);
    gos_safetensors_t file;
    cr_expect_eq(parse(&cut, &file), GPUOS_BAD_WEIGHTS, "accepted %zu bytes", n);
    free(cut.data);
  }
  free(whole.data);
}

// ---- binding ------------------------------------------------------------------------------------

static gpuos_device_t *device;
static gpuos_program_t *program;
static char path[] = "/tmp/gpuos_test_XXXXXX";

static void open_scale(void) {
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CPU, .sm_count = 1};
  cr_assert_eq(gpuos_device_open(&options, &device), GPUOS_OK);
  gpuos_table_t *table = gos_model_scale(2);
  cr_assert_eq(gpuos_program_load(device, table, table->bytes, &program), GPUOS_OK, "%s",
               gpuos_device_error(device));
  free(table);
  int fd = mkstemp(path);
  cr_assert(fd >= 0);
  close(fd);
}

static void close_scale(void) {
  unlink(path);
  gpuos_program_destroy(program);
  gpuos_device_close(device);
}

TestSuite(binding, .init = open_scale, .fini = close_scale);

static gpuos_status_t bind(const char *header, size_t data_bytes) {
  block_t block = make(header, data_bytes);
  FILE *file = fopen(path, "wb");
  fwrite(block.data, 1, block.bytes, file);
  fclose(file);
  free(block.data);
  return gpuos_program_bind_safetensors(program, path);
}

Test(binding, fills_the_weight_of_that_name_and_ignores_others) {
  cr_assert_eq(bind("{\"v\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                    "\"w\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[8,12]},"
                    "\"x\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[12,13]}}",
                    13),
               GPUOS_OK, "%s", gpuos_device_error(device));
  unsigned char weight[4];
  cr_assert_eq(gpuos_program_read(program, "w", weight, sizeof weight), GPUOS_OK);
  cr_expect_eq(weight[0], 8);
  cr_expect_eq(weight[3], 11);
}

Test(binding, names_tensor_and_both_descriptions) {
  const struct {
    const char *header, *says;
    size_t data_bytes;
  } cases[] = {
      {"{\"w\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
       "tensor 'w' is F16 [2], the graph expects BF16 [2]", 4},
      {"{\"w\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}",
       "tensor 'w' is BF16 [1, 2], the graph expects BF16 [2]", 4},
      {"{\"w\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[0,6]}}",
       "tensor 'w' is BF16 [3], the graph expects BF16 [2]", 6},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    cr_expect_eq(bind(cases[i].header, cases[i].data_bytes), GPUOS_BAD_WEIGHTS);
    const char *says = gpuos_device_error(device);
    cr_expect_not_null(strstr(says, cases[i].says), "case %zu says: %s", i, says);
    cr_expect_not_null(strstr(says, path), "no path: %s", says);
  }
}

Test(binding, says_which_file_is_missing) {
  cr_expect_eq(gpuos_program_bind_safetensors(program, "/nowhere/w.safetensors"), GPUOS_IO);
  cr_expect_not_null(strstr(gpuos_device_error(device), "/nowhere/w.safetensors"));
}
