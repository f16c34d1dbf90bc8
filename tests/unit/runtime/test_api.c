// test_api.c: gpuos.h as a serving process uses it, on the CPU device.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "gpuos.h"
#include "models.h"
#include "tables.h"

enum { COUNT = 10 };
static const uint64_t second_ns = 1000000000;

static gpuos_device_t *open_cpu(uint64_t seed) {
  gpuos_device_options_t options = {
      .kind = GPUOS_DEVICE_CPU, .sm_count = 3, .interleave_seed = seed, .take_back = seed != 0};
  gpuos_device_t *device;
  cr_assert_eq(gpuos_device_open(&options, &device), GPUOS_OK);
  return device;
}

static gpuos_program_t *load(gpuos_device_t *device, gpuos_table_t *table) {
  gpuos_program_t *program;
  cr_assert_eq(gpuos_program_load(device, table, table->bytes, &program), GPUOS_OK, "%s",
               gpuos_device_error(device));
  free(table);
  return program;
}

// The scale model with x = 2 and w = 3: y = 8.
static void give_all(gpuos_program_t *program) {
  float x[COUNT];
  uint16_t w[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = 2, w[i] = 0x4040;
  cr_assert_eq(gpuos_program_write(program, "x", x, sizeof x), GPUOS_OK);
  cr_assert_eq(gpuos_program_write(program, "w", w, sizeof w), GPUOS_OK);
}

static void expect_result(gpuos_program_t *program) {
  float y[COUNT];
  cr_assert_eq(gpuos_program_read(program, "y", y, sizeof y), GPUOS_OK);
  for (int i = 0; i < COUNT; i++) cr_expect_float_eq(y[i], 8, 0);
}

static void close_all(gpuos_program_t *program, gpuos_device_t *device) {
  gpuos_program_destroy(program);
  gpuos_device_close(device);
}

// ---- status -------------------------------------------------------------------------------------

Test(status, has_a_name_and_a_text_for_every_value) {
  cr_expect_str_eq(gpuos_status_name(GPUOS_TIMEOUT), "TIMEOUT");
  cr_expect_not_null(strstr(gpuos_status_text(GPUOS_TIMEOUT), "wait again"));
  for (int s = GPUOS_OK; s <= GPUOS_ABORTED; s++) {
    cr_expect_str_neq(gpuos_status_name((gpuos_status_t)s), "UNKNOWN");
    cr_expect_not_null(gpuos_status_text((gpuos_status_t)s));
  }
  cr_expect_str_eq(gpuos_status_name((gpuos_status_t)1000), "UNKNOWN");
  cr_expect_not_null(gpuos_status_text((gpuos_status_t)-1));
}

// ---- device -------------------------------------------------------------------------------------

Test(device, explains_bad_options) {
  const struct {
    gpuos_device_options_t options;
    const char *says;
  } cases[] = {
      {{.kind = GPUOS_DEVICE_CPU, .sm_count = 257}, "at most 256"},
      {{.kind = GPUOS_DEVICE_CPU, .take_back = true}, "interleave_seed"},
      {{.kind = (gpuos_device_kind_t)7}, "no device kind 7"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    gpuos_device_t *device = NULL;
    cr_expect_eq(gpuos_device_open(&cases[i].options, &device), GPUOS_INVALID_ARGUMENT);
    cr_assert_not_null(device);
    cr_expect_not_null(strstr(gpuos_device_error(device), cases[i].says), "says: %s",
                       gpuos_device_error(device));
    gpuos_program_t *program;
    cr_expect_neq(gpuos_program_load(device, "GPOS", 4, &program), GPUOS_OK);
    gpuos_device_close(device);
  }
}

Test(device, uses_every_core_by_default) {
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CPU};
  gpuos_device_t *device;
  cr_assert_eq(gpuos_device_open(&options, &device), GPUOS_OK);
  cr_expect_gt(gpuos_device_sm_count(device), 0);
  cr_expect_str_eq(gpuos_device_error(device), "");
  gpuos_device_close(device);
}

Test(device, tolerates_null) {
  gpuos_device_close(NULL);
  gpuos_program_destroy(NULL);
  gpuos_abort(NULL);
  cr_expect_eq(gpuos_device_open(NULL, NULL), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_submit(NULL), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_wait(NULL, 0), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_step_ns(NULL), 0);
}

// ---- load ---------------------------------------------------------------------------------------

Test(program, describes_its_tensors_without_the_workspace) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  cr_assert_eq(gpuos_program_tensor_count(program), 3);
  gpuos_tensor_info_t w = gpuos_program_tensor(program, 1);
  cr_expect_str_eq(w.name, "w");
  cr_expect_str_eq(w.role, "weight");
  cr_expect_str_eq(w.dtype, "bf16");
  cr_expect_eq(w.rank, 1);
  cr_expect_eq(w.shape[0], COUNT);
  cr_expect_eq(w.bytes, 2 * COUNT);
  cr_expect_str_eq(gpuos_program_tensor(program, 3).name, "");
  close_all(program, device);
}

Test(program, refuses_a_damaged_artefact) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_table_t *table = gos_model_scale(COUNT);
  table->hash ^= 1;
  gpuos_program_t *program = (gpuos_program_t *)device;
  cr_expect_eq(gpuos_program_load(device, table, table->bytes, &program), GPUOS_BAD_ARTEFACT);
  cr_expect_null(program);
  cr_expect_eq(gpuos_program_load_file(device, "/nowhere/a.cubin", &program), GPUOS_IO);
  cr_expect_not_null(strstr(gpuos_device_error(device), "/nowhere/a.cubin"));
  free(table);
  gpuos_device_close(device);
}

// ---- tensors ------------------------------------------------------------------------------------

Test(program, explains_wrong_copies) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  char bytes[4 * COUNT];
  cr_expect_eq(gpuos_program_write(program, "q", bytes, 4), GPUOS_NOT_FOUND);
  cr_expect_not_null(strstr(gpuos_device_error(device), "'q'"));
  cr_expect_eq(gpuos_program_write(program, "x", bytes, 4), GPUOS_INVALID_ARGUMENT);
  cr_expect_str_eq(gpuos_device_error(device), "'x' has 40 bytes, the call gives 4");
  cr_expect_eq(gpuos_program_read(program, "workspace", bytes, 40), GPUOS_NOT_FOUND);
  cr_expect_eq(gpuos_program_read(program, "y", NULL, 40), GPUOS_INVALID_ARGUMENT);
  close_all(program, device);
}

Test(program, starts_page_tables_as_the_identity_as_far_as_pages_go) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_cache(3, 2, 4, 6));
  int32_t pages[8];
  cr_assert_eq(gpuos_program_read(program, "cache.pages", pages, sizeof pages), GPUOS_OK);
  for (int i = 0; i < 8; i++) cr_expect_eq(pages[i], i < 6 ? i : -1);
  close_all(program, device);
}

Test(program, starts_state_as_zeros_and_keeps_it) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_cache(1, 1, 2, 2));
  uint16_t cache[2][2][8], kv[2] = {0x3f80, 0x4000};
  int32_t pos = 5, seq = 0;
  cr_assert_eq(gpuos_program_read(program, "cache", cache, sizeof cache), GPUOS_OK);
  cr_expect_eq(cache[1][1][7], 0);
  gpuos_program_write(program, "k", kv, sizeof kv);
  gpuos_program_write(program, "v", kv, sizeof kv);
  gpuos_program_write(program, "pos", &pos, sizeof pos);
  gpuos_program_write(program, "seq", &seq, sizeof seq);
  cr_assert_eq(gpuos_submit(program), GPUOS_OK, "%s", gpuos_device_error(device));
  cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
  cr_assert_eq(gpuos_program_read(program, "cache", cache, sizeof cache), GPUOS_OK);
  cr_expect_eq(cache[0][1][2], 0x3f80); // position 5: page 1, second place
  cr_expect_eq(cache[1][1][3], 0x4000);
  close_all(program, device);
}

// ---- steps --------------------------------------------------------------------------------------

Test(step, computes_again_and_again) {
  for (uint64_t seed = 0; seed < 20; seed++) {
    gpuos_device_t *device = open_cpu(seed);
    gpuos_program_t *program = load(device, gos_model_scale(COUNT));
    give_all(program);
    cr_expect_eq(gpuos_step_ns(program), 0);
    for (int i = 0; i < 3; i++) {
      cr_assert_eq(gpuos_submit(program), GPUOS_OK);
      cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK, "%s", gpuos_device_error(device));
      expect_result(program);
    }
    cr_expect_gt(gpuos_step_ns(program), 0);
    close_all(program, device);
  }
}

Test(step, names_the_first_tensor_never_given) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  float x[COUNT] = {0};
  cr_expect_eq(gpuos_submit(program), GPUOS_NOT_BOUND);
  cr_expect_not_null(strstr(gpuos_device_error(device), "input 'x'"));
  gpuos_program_write(program, "x", x, sizeof x);
  cr_expect_eq(gpuos_submit(program), GPUOS_NOT_BOUND);
  cr_expect_not_null(strstr(gpuos_device_error(device), "weight 'w'"));
  close_all(program, device);
}

static gpuos_progress_t progress(gpuos_program_t *program) {
  gpuos_progress_t p;
  cr_assert_eq(gpuos_program_progress(program, &p), GPUOS_OK);
  return p;
}

Test(step, queues_behind_the_one_that_runs) {
  for (uint64_t seed = 0; seed < 5; seed++) {
    gpuos_device_t *device = open_cpu(seed);
    gpuos_program_t *program = load(device, gos_model_scale(COUNT));
    give_all(program);
    cr_expect_eq(gpuos_submit_steps(program, 0), GPUOS_INVALID_ARGUMENT);
    for (uint32_t count = 1; count < 20; count++)
      cr_assert_eq(gpuos_submit_steps(program, count), GPUOS_OK);
    cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK, "%s", gpuos_device_error(device));
    cr_expect_eq(progress(program).steps_submitted, 190);
    cr_expect_eq(progress(program).steps_done, 190);
    cr_expect_eq(progress(program).tiles_done, 0);
    cr_expect_eq(progress(program).tiles, 6);
    cr_expect_eq(gpuos_quiesce(program, 0), GPUOS_OK);
    expect_result(program);
    close_all(program, device);
  }
}

// An aborted step takes those behind it along; a new one is whole.
Test(step, drops_what_is_queued_behind_an_abort) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  give_all(program);
  gpuos_pause(program);
  cr_assert_eq(gpuos_submit_steps(program, 7), GPUOS_OK);
  gpuos_abort(program);
  cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_ABORTED);
  cr_expect_eq(progress(program).steps_submitted, 7);
  cr_expect_eq(progress(program).steps_done, 0);
  gpuos_resume(program);
  cr_assert_eq(gpuos_submit(program), GPUOS_OK);
  cr_assert_eq(gpuos_quiesce(program, 10 * second_ns), GPUOS_OK);
  cr_expect_eq(progress(program).steps_done, 1);
  expect_result(program);
  close_all(program, device);
}

Test(step, refuses_copies_while_it_runs) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  give_all(program);
  cr_expect_eq(gpuos_wait(program, 0), GPUOS_INVALID_ARGUMENT);
  cr_assert_eq(gpuos_submit(program), GPUOS_OK);
  float y[COUNT];
  cr_expect_eq(gpuos_program_read(program, "y", y, sizeof y), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_program_bind_safetensors(program, "w"), GPUOS_INVALID_ARGUMENT);
  cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
  expect_result(program);
  close_all(program, device);
}

// With a seed the step runs inside gpuos_wait, so no time at all is certainly too little.
Test(step, runs_on_after_a_timeout) {
  gpuos_device_t *device = open_cpu(7);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  give_all(program);
  cr_assert_eq(gpuos_submit(program), GPUOS_OK);
  cr_assert_eq(gpuos_wait(program, 0), GPUOS_TIMEOUT);
  cr_assert_eq(gpuos_wait(program, 1), GPUOS_TIMEOUT);
  cr_expect_not_null(strstr(gpuos_device_error(device), "still runs"));
  cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
  expect_result(program);
  close_all(program, device);
}

Test(step, can_be_aborted_and_the_next_one_is_whole) {
  gpuos_device_t *device = open_cpu(7);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  give_all(program);
  for (int i = 0; i < 5; i++) {
    cr_assert_eq(gpuos_submit(program), GPUOS_OK);
    cr_assert_eq(gpuos_wait(program, 0), GPUOS_TIMEOUT);
    gpuos_abort(program);
    cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_ABORTED);
    cr_assert_eq(gpuos_submit(program), GPUOS_OK);
    cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK, "%s", gpuos_device_error(device));
    expect_result(program);
  }
  close_all(program, device);
}

Test(step, ends_when_its_program_is_destroyed) {
  for (uint64_t seed = 0; seed < 2; seed++) {
    gpuos_device_t *device = open_cpu(seed);
    gpuos_program_t *program = load(device, gos_model_scale(COUNT));
    give_all(program);
    cr_assert_eq(gpuos_submit(program), GPUOS_OK);
    close_all(program, device);
  }
}

// ---- control ------------------------------------------------------------------------------------

static const uint32_t none[8] = {0}, second[8] = {2},
                      every[8] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u};

Test(control, a_pause_holds_a_step_and_outlasts_it) {
  for (uint64_t seed = 0; seed < 4; seed++) {
    gpuos_device_t *device = open_cpu(seed);
    gpuos_program_t *program = load(device, gos_model_scale(COUNT));
    give_all(program);
    for (int i = 0; i < 3; i++) {
      cr_assert_eq(gpuos_pause(program), GPUOS_OK);
      cr_assert_eq(gpuos_submit(program), GPUOS_OK);
      cr_expect_eq(gpuos_wait(program, second_ns / 100), GPUOS_TIMEOUT);
      cr_expect_eq(progress(program).tiles_done, 0);
      cr_assert_eq(gpuos_resume(program), GPUOS_OK);
      cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
      expect_result(program);
    }
    close_all(program, device);
  }
}

Test(control, steps_wait_until_an_sm_is_lent) {
  for (uint64_t seed = 0; seed < 4; seed++) {
    gpuos_device_t *device = open_cpu(seed);
    gpuos_program_t *program = load(device, gos_model_scale(COUNT));
    gpuos_sm_info_t info;
    give_all(program);
    cr_assert_eq(gpuos_lend(program, none), GPUOS_OK);
    cr_assert_eq(gpuos_submit_steps(program, 2), GPUOS_OK);
    cr_expect_eq(gpuos_wait(program, second_ns / 100), GPUOS_TIMEOUT);
    cr_assert_eq(gpuos_lend(program, second), GPUOS_OK);
    cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
    expect_result(program);
    for (uint32_t sm = 0; sm < 3; sm++) {
      cr_assert_eq(gpuos_program_sm(program, sm, &info), GPUOS_OK);
      cr_expect_eq(info.units_run, sm == 1 ? 12 : 0);
      cr_expect_eq(info.smid, sm);
    }
    cr_assert_eq(gpuos_lend(program, every), GPUOS_OK);
    cr_assert_eq(gpuos_submit(program), GPUOS_OK);
    cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
    expect_result(program);
    close_all(program, device);
  }
}

Test(control, explains_wrong_arguments) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  gpuos_sm_info_t info;
  cr_expect_eq(gpuos_program_sm_group(program), 1);
  cr_expect_eq(gpuos_program_sm(program, 3, &info), GPUOS_INVALID_ARGUMENT);
  cr_expect_str_eq(gpuos_device_error(device), "SM 3 asked for, the program has 3");
  cr_expect_eq(gpuos_lend(program, NULL), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_program_progress(program, NULL), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_pause(NULL), GPUOS_INVALID_ARGUMENT);
  close_all(program, device);
}

Test(control, measures_nothing_on_the_cpu) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  gpuos_storm_t storm;
  gpuos_unit_times_t times;
  gpuos_unit_record_t record;
  uint64_t lent_ns;
  uint32_t count;
  cr_expect_eq(gpuos_pause_storm(program, 1, 1, 1), GPUOS_INVALID_ARGUMENT);
  cr_expect_str_eq(gpuos_device_error(device), "pause storms are for the CUDA device");
  cr_expect_eq(gpuos_pause_storm_read(program, &storm), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_lent_ns(program, &lent_ns), GPUOS_INVALID_ARGUMENT);
  cr_expect_str_eq(gpuos_device_error(device), "take-back times are for the CUDA device");
  cr_expect_eq(gpuos_lent_ns(program, NULL), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_program_unit_times(program, 0, &times), GPUOS_INVALID_ARGUMENT);
  cr_expect_str_eq(gpuos_device_error(device), "unit times are for the CUDA device");
  cr_expect_eq(gpuos_program_trace(program, 0, &record, 1, &count), GPUOS_INVALID_ARGUMENT);
  cr_expect_eq(gpuos_program_op_count(program), 2);
  close_all(program, device);
}

// ---- faults -------------------------------------------------------------------------------------

Test(step, names_operator_and_index_of_a_fault_and_recovers) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_lookup(1, 3, 0));
  const float lm[3][3] = {{0, 1, 0}, {0, 0, 1}, {1, 0, 0}};
  int32_t outside = 3, token = 1, pos = 0, next = -1;
  gpuos_program_write(program, "lm", lm, sizeof lm);
  gpuos_program_write(program, "pos", &pos, sizeof pos);
  gpuos_program_write(program, "token", &outside, sizeof outside);
  cr_assert_eq(gpuos_submit(program), GPUOS_OK);
  cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_FAULT);
  const char *says = gpuos_device_error(device);
  cr_expect_not_null(strstr(says, "op 'embed'"), "%s", says);
  cr_expect_not_null(strstr(says, "holds index 3, the limit is 3"), "%s", says);
  gpuos_program_write(program, "token", &token, sizeof token);
  cr_assert_eq(gpuos_submit(program), GPUOS_OK);
  cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
  gpuos_program_read(program, "next", &next, sizeof next);
  cr_expect_eq(next, 2);
  close_all(program, device);
}

// ---- a live program and its job -----------------------------------------------------------------

// Two scale models, one behind the other.
static gpuos_program_t *load_both(gpuos_device_t *device, gpuos_status_t expected) {
  gpuos_table_t *live = gos_model_scale(COUNT), *job = gos_model_scale(COUNT);
  if (expected != GPUOS_OK) { // a tile of the job reads a product that nobody made sure of
    ((gpuos_tile_t *)(uintptr_t)GPUOS_SECTION(job, gpuos_tile_t, tiles))[3].wait_list = 0;
    gos_tables_seal(job);
  }
  size_t bytes = live->bytes + job->bytes;
  char *both = malloc(bytes);
  memcpy(both, live, live->bytes);
  memcpy(both + live->bytes, job, job->bytes);
  gpuos_program_t *program;
  cr_assert_eq(gpuos_program_load(device, both, bytes, &program), expected, "%s",
               gpuos_device_error(device));
  free(both);
  free(live);
  free(job);
  return program;
}

Test(job, has_tensors_and_steps_of_its_own) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load_both(device, GPUOS_OK), *job = gpuos_program_job(program);
  cr_assert_not_null(job);
  cr_expect_null(gpuos_program_job(job));
  cr_expect_eq(gpuos_program_tensor_count(job), 3);
  give_all(program);
  cr_expect_eq(gpuos_submit(job), GPUOS_NOT_BOUND);
  give_all(job);
  cr_assert_eq(gpuos_submit_steps(job, 2), GPUOS_OK);
  cr_assert_eq(gpuos_submit(program), GPUOS_OK);
  cr_assert_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
  cr_assert_eq(gpuos_wait(job, 10 * second_ns), GPUOS_OK);
  expect_result(program);
  expect_result(job);
  close_all(program, device);
}

Test(job, lives_as_long_as_its_program) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load_both(device, GPUOS_OK), *job = gpuos_program_job(program);
  gpuos_program_destroy(job); // is the program's to do
  give_all(job);
  cr_assert_eq(gpuos_pause(job), GPUOS_OK);
  cr_assert_eq(gpuos_submit(job), GPUOS_OK); // will never be done
  close_all(program, device);
}

Test(job, works_on_the_sms_it_is_given) {
  for (uint32_t own = 0; own <= 3; own++) {
    gpuos_device_t *device = open_cpu(1);
    gpuos_program_t *program = load_both(device, GPUOS_OK), *job = gpuos_program_job(program);
    gpuos_sm_info_t of_live, of_job;
    give_all(program);
    give_all(job);
    cr_assert_eq(gpuos_share(program, own, false), GPUOS_OK, "%s", gpuos_device_error(device));
    cr_assert_eq(gpuos_submit_steps(program, 20), GPUOS_OK);
    cr_assert_eq(gpuos_submit_steps(job, 20), GPUOS_OK);
    if (own < 3) cr_expect_eq(gpuos_wait(program, 10 * second_ns), GPUOS_OK);
    if (own > 0) cr_expect_eq(gpuos_wait(job, 10 * second_ns), GPUOS_OK);
    if (own == 3) cr_expect_eq(gpuos_wait(program, second_ns / 100), GPUOS_TIMEOUT);
    if (own == 0) cr_expect_eq(gpuos_wait(job, second_ns / 100), GPUOS_TIMEOUT);
    for (uint32_t sm = 0; sm < 3; sm++) {
      cr_assert_eq(gpuos_program_sm(program, sm, &of_live), GPUOS_OK);
      cr_assert_eq(gpuos_program_sm(job, sm, &of_job), GPUOS_OK);
      cr_expect(of_live.units_run == 0 || of_job.units_run == 0, "SM %u, the job has %u", sm, own);
    }
    close_all(program, device);
  }
}

Test(job, is_proven_like_its_program) {
  gpuos_device_t *device = open_cpu(0);
  cr_expect_null(load_both(device, GPUOS_UNSAFE_SCHEDULE));
  gpuos_device_close(device);
}

Test(job, can_be_shared_with_only_if_there_is_one) {
  gpuos_device_t *device = open_cpu(0);
  gpuos_program_t *program = load(device, gos_model_scale(COUNT));
  cr_expect_null(gpuos_program_job(program));
  cr_expect_null(gpuos_program_job(NULL));
  cr_expect_eq(gpuos_share(program, 1, false), GPUOS_INVALID_ARGUMENT);
  cr_expect_str_eq(gpuos_device_error(device), "the program has no job to share SMs with");
  gpuos_program_destroy(program);
  program = load_both(device, GPUOS_OK);
  cr_expect_eq(gpuos_share(program, 4, false), GPUOS_INVALID_ARGUMENT);
  cr_expect_str_eq(gpuos_device_error(device), "more SMs for the job than there are");
  cr_expect_eq(gpuos_share(NULL, 1, false), GPUOS_INVALID_ARGUMENT);
  close_all(program, device);
}
