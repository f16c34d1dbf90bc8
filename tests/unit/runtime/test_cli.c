// test_cli.c: what the commands of `gpuos` print and return.
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "json.h"
#include "models.h"
#include "tables.h"

static char directory[] = "/tmp/gpuos_cli_XXXXXX";
static char artefact[64], weights[64], output[64];

static void write_file(const char *path, const void *data, size_t bytes) {
  FILE *file = fopen(path, "wb");
  fwrite(data, 1, bytes, file);
  fclose(file);
}

enum { WORDS = 10 };

// "lm": after token n comes n + 1.
static void write_weights(void) {
  static const char header[] =
      "{\"lm\":{\"dtype\":\"F32\",\"shape\":[10,10],\"data_offsets\":[0,400]}}";
  char file[8 + sizeof header - 1 + 400] = {(char)(sizeof header - 1)};
  float lm[WORDS][WORDS] = {{0}};
  for (int i = 0; i < WORDS; i++) lm[i][(i + 1) % WORDS] = 1;
  memcpy(file + 8, header, sizeof header - 1);
  memcpy(file + 8 + sizeof header - 1, lm, sizeof lm);
  write_file(weights, file, sizeof file);
}

static void write_model(uint32_t rows, int has_seq) {
  gpuos_table_t *table = gos_model_lookup(rows, WORDS, has_seq);
  write_file(artefact, table, (size_t)table->bytes);
  free(table);
}

static void setup(void) {
  cr_redirect_stdout();
  cr_redirect_stderr();
  cr_assert_not_null(mkdtemp(directory));
  snprintf(artefact, sizeof artefact, "%s/a.gpos", directory);
  snprintf(weights, sizeof weights, "%s/w.safetensors", directory);
  snprintf(output, sizeof output, "%s/out", directory);
  write_model(4, 1);
  write_weights();
}

static void teardown(void) {
  unlink(artefact);
  unlink(weights);
  unlink(output);
  rmdir(directory);
}

TestSuite(cli, .init = setup, .fini = teardown);

#define RUN(...)                                                                                   \
  gos_cli_run((int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__})

static void expect_stderr(const char *says) {
  fflush(stderr);
  cr_assert_stderr_eq_str(says);
}

static void expect_stdout(const char *says) {
  fflush(stdout);
  cr_assert_stdout_eq_str(says);
}

// ---- options ------------------------------------------------------------------------------------

Test(cli, suggests_the_option_that_was_meant) {
  cr_expect_eq(RUN(artefact, "--step=3"), GOS_EXIT_USAGE);
  expect_stderr("gpuos: no option '--step'; did you mean '--steps'?\n");
}

Test(cli, refuses_options_that_do_not_fit_together) {
  cr_expect_eq(RUN("--steps=3"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, artefact), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--steps"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--steps=3x"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--steps=99999999999"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--quiet=1"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--device=tpu"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--take-back"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--generate=3"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--prompt=1", "--steps=3"), GOS_EXIT_USAGE);
  cr_expect_eq(RUN(artefact, "--set", "token"), GOS_EXIT_USAGE);
}

Test(cli, suggests_only_near_words) {
  const char *const words[] = {"run", "check", "inspect"};
  cr_expect_str_eq(gos_suggest("chek", words, 3), "check");
  cr_expect_str_eq(gos_suggest("inspcet", words, 3), "inspect");
  cr_expect_null(gos_suggest("weights", words, 3));
  cr_expect_null(gos_suggest("a-word-longer-than-any-option-could-be", words, 3));
}

// ---- commands -----------------------------------------------------------------------------------

Test(cli, generates_from_a_prompt_in_chunks) {
  cr_expect_eq(
      RUN(artefact, "--weights", weights, "--prompt=1,2,3,4,5,6", "--generate=5", "--quiet"),
      GOS_EXIT_OK);
  expect_stdout("7,8,9,0,1\n");
}

Test(cli, generates_token_by_token_without_seq) {
  write_model(2, 0);
  cr_expect_eq(RUN(artefact, weights, "--prompt=1,2,3", "--generate", "5", "--stop=6", "--quiet",
                   "--seed=5", "--take-back", "--threads=3"),
               GOS_EXIT_OK);
  expect_stdout("4,5,6\n");
}

Test(cli, saves_the_logits_of_each_generated_token) {
  char option[80];
  snprintf(option, sizeof option, "--logits=%s", output);
  cr_expect_eq(RUN(artefact, weights, "--prompt=1,2,3,4,5", "--generate=2", option, "--quiet"),
               GOS_EXIT_OK);
  float logits[3 * WORDS] = {0};
  FILE *file = fopen(output, "rb");
  cr_assert_eq(fread(logits, sizeof(float), 3 * WORDS, file), 2 * WORDS);
  fclose(file);
  cr_expect_float_eq(logits[6], 1, 0);
  cr_expect_float_eq(logits[WORDS + 7], 1, 0);
}

Test(cli, says_what_was_never_given) {
  cr_expect_eq(RUN(artefact, weights), GOS_EXIT_FAILED);
  expect_stderr("gpuos: error: step: input 'token' was never given; write it first [NOT_BOUND]\n");
}

Test(cli, parses_masks_from_the_last_digit) {
  uint32_t mask[8];
  cr_assert(gos_parse_mask("--sms-mask", "0x1F", mask));
  cr_expect_eq(mask[0], 0x1f);
  cr_assert(gos_parse_mask("--sms-mask", "a00000003", mask));
  cr_expect_eq(mask[0], 3);
  cr_expect_eq(mask[1], 10);
  cr_expect_not(gos_parse_mask("--sms-mask", "", mask));
  cr_expect_not(gos_parse_mask("--sms-mask", "12g", mask));
}

// On random data; ids of 0 are in every table.
Test(cli, benches_without_weights) {
  char *arguments[] = {artefact, "--steps=100", "--device=cpu"};
  cr_expect_eq(gos_cli_bench(3, arguments), GOS_EXIT_OK);
  char *storm[] = {artefact, "--pause-storm=3", "--one-shot"};
  cr_expect_eq(gos_cli_bench(3, storm), GOS_EXIT_USAGE);
  cr_expect_eq(gos_cli_bench(0, arguments), GOS_EXIT_USAGE);
}

#define BENCH(...)                                                                                 \
  gos_cli_bench((int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__})

Test(cli, benches_take_backs_by_themselves) {
  cr_expect_eq(BENCH(artefact, "--take-back"), GOS_EXIT_USAGE);
  cr_expect_eq(BENCH(artefact, "--take-back=x"), GOS_EXIT_USAGE);
  cr_expect_eq(BENCH(artefact, "--take-back=3", "--one-shot"), GOS_EXIT_USAGE);
  cr_expect_eq(BENCH(artefact, "--take-back=3", "--sms-mask=f"), GOS_EXIT_USAGE);
  cr_expect_eq(BENCH(artefact, "--take-back=3", "--pause-storm=3"), GOS_EXIT_USAGE);
  cr_expect_eq(BENCH(artefact, "--take-back=0", "--steps=1", "--sms-mask=f"), GOS_EXIT_OK);
}

Test(cli, says_that_the_cpu_device_tells_no_take_backs) {
  cr_expect_eq(BENCH(artefact, "--take-back=3", "--device=cpu"), GOS_EXIT_FAILED);
  expect_stderr("gpuos: error: --take-back: take-back times are for the CUDA device "
                "[INVALID_ARGUMENT]\n");
}

// Skips a value; counts the numbers in it.
static bool skip_value(gos_json_t *json, uint32_t *numbers) {
  const char *text;
  uint64_t number;
  bool object = gos_json_maybe(json, '{');
  if (!object && !gos_json_maybe(json, '[')) {
    bool is_number = gos_json_uint(json, &number);
    *numbers += is_number;
    return is_number || gos_json_string(json, &text);
  }
  char end = object ? '}' : ']';
  if (gos_json_maybe(json, end)) return true;
  do {
    if (object && !(gos_json_string(json, &text) && gos_json_take(json, ':'))) return false;
    if (!skip_value(json, numbers)) return false;
  } while (gos_json_maybe(json, ','));
  return gos_json_take(json, end);
}

Test(cli, benches_into_json) {
  char text[4096], strings[4096];
  uint32_t numbers = 0;
  cr_expect_eq(BENCH(artefact, "--steps=30", "--device=cpu", "--json", output), GOS_EXIT_OK);
  FILE *file = fopen(output, "rb");
  size_t bytes = fread(text, 1, sizeof text, file);
  fclose(file);
  gos_json_t json = {.at = text, .end = text + bytes, .strings = strings};
  cr_expect(skip_value(&json, &numbers) && gos_json_end(&json));
  cr_expect_eq(numbers, 4 + 30); // SMs, of a group, steps done, their time, and each of them
  cr_expect_eq(BENCH(artefact, "--steps=1", "--device=cpu", "--json", directory), GOS_EXIT_FAILED);
}

Test(cli, traces_need_a_file_to_write) {
  char *arguments[] = {artefact};
  cr_expect_eq(gos_cli_trace(1, arguments), GOS_EXIT_USAGE);
}

Test(cli, checks) {
  char *good[] = {artefact}, *bad[] = {weights};
  cr_expect_eq(gos_cli_check(1, good), GOS_EXIT_OK);
  cr_expect_eq(gos_cli_check(1, bad), GOS_EXIT_FAILED);
  cr_expect_eq(gos_cli_check(0, good), GOS_EXIT_USAGE);
  char says[256];
  snprintf(says, sizeof says,
           "%s: safe: 8 tiles, 2 operators, 7 buffers, 1 counter\n"
           "%s: error: neither a schedule table (GPOS) nor a cubin (ELF)\n",
           artefact, weights);
  expect_stdout(says);
}

Test(cli, inspects) {
  char *arguments[] = {artefact, "--ops", "--tiles"}, *bad[] = {weights};
  cr_expect_eq(gos_cli_inspect(3, arguments), GOS_EXIT_OK);
  cr_expect_eq(gos_cli_inspect(1, bad), GOS_EXIT_FAILED);
}

Test(cli, prints_sizes_in_decimal_units) {
  const struct {
    uint64_t bytes;
    const char *text;
  } cases[] = {
      {0, "0 B"}, {999, "999 B"}, {1000, "1 kB"}, {50300000, "50.3 MB"}, {UINT64_MAX, "18.4 EB"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    gos_size_t size = gos_size(cases[i].bytes);
    cr_expect_str_eq(size.text, cases[i].text);
  }
}
