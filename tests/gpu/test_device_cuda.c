// test_device_cuda.c: the CUDA device on a GPU, with a kernel that misbehaves on request.
//
//   nvcc -cubin -arch=sm_90a -Iruntime tests/gpu/contract.cu -o contract.cubin
//   test_device_cuda contract.cubin
// A plain program: prints one line a case, exits 1 when one fails.
#include <elf.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpuos.h"
#include "models.h"
#include "tables.h"

enum { COUNT = 1000 };
static const uint64_t second_ns = 1000000000;
static int failures;
static gpuos_device_t *device;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (condition) break;                                                                          \
    failures++;                                                                                    \
    printf("  FAILED line %d: %s\n    %s\n", __LINE__, #condition, gpuos_device_error(device));    \
  } while (0)
#define SAYS(text) CHECK(strstr(gpuos_device_error(device), text) != NULL)

// ---- the artefact -------------------------------------------------------------------------------

typedef struct bytes {
  char *at;
  size_t count;
} bytes_t;

static bytes_t read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  bytes_t bytes = {.at = malloc(1 << 20)};
  if (file == NULL || bytes.at == NULL) exit(2);
  bytes.count = fread(bytes.at, 1, 1 << 20, file);
  fclose(file);
  return bytes;
}

// Overwrites the only place that holds `old`.
static void patch(bytes_t bytes, const void *old, const void *new, size_t size) {
  for (size_t i = 0; i + size <= bytes.count; i++)
    if (memcmp(bytes.at + i, old, size) == 0) {
      memcpy(bytes.at + i, new, size);
      return;
    }
  puts("contract.cubin lacks a value to patch");
  exit(2);
}

// Appends section names, the table and a section header table of one more section.
static bytes_t attach(bytes_t cubin, const gpuos_table_t *table) {
  static const char name[16] = ".gpuos.sched";
  Elf64_Ehdr h;
  memcpy(&h, cubin.at, sizeof h);
  Elf64_Shdr sections[64] = {{0}};
  memcpy(sections, cubin.at + h.e_shoff, h.e_shnum * sizeof sections[0]);
  Elf64_Shdr *names = &sections[h.e_shstrndx], *added = &sections[h.e_shnum];
  size_t at = (cubin.count + 15) & ~(size_t)15, names_bytes = names->sh_size;
  bytes_t out = {.at = calloc(1, at + names_bytes + 64 + table->bytes + sizeof sections)};
  memcpy(out.at, cubin.at, cubin.count);
  memcpy(out.at + at, cubin.at + names->sh_offset, names_bytes);
  memcpy(out.at + at + names_bytes, name, sizeof name);
  *added = (Elf64_Shdr){.sh_name = (Elf64_Word)names_bytes, .sh_type = SHT_PROGBITS};
  *names = (Elf64_Shdr){.sh_name = names->sh_name,
                        .sh_type = SHT_STRTAB,
                        .sh_offset = at,
                        .sh_size = names_bytes + sizeof name,
                        .sh_addralign = 1};
  added->sh_offset = at = (at + names_bytes + sizeof name + 15) & ~(size_t)15;
  added->sh_size = table->bytes;
  added->sh_addralign = 16;
  memcpy(out.at + at, table, table->bytes);
  h.e_shnum++;
  h.e_shoff = at + table->bytes;
  memcpy(out.at + h.e_shoff, sections, h.e_shnum * sizeof sections[0]);
  memcpy(out.at, &h, sizeof h);
  out.count = h.e_shoff + h.e_shnum * sizeof sections[0];
  return out;
}

typedef struct variant {
  uint32_t threads, smem_bytes, ctas_per_sm;
  uint64_t hash_xor;
} variant_t;
static const variant_t good = {32, 4096, 1, 0};

static bytes_t make_artefact(const char *path, variant_t v) {
  const uint64_t old_hash = 0x7ab1e7ab1e7ab1e7;
  const uint32_t old_launch[] = {32, 4096, 1, 0x1a0c4000};
  const uint32_t launch[] = {v.threads, v.smem_bytes, v.ctas_per_sm, 0};
  bytes_t cubin = read_file(path);
  gpuos_table_t *table = gos_model_scale(COUNT);
  table->arch = 90;
  gos_tables_seal(table);
  uint64_t hash = table->hash ^ v.hash_xor;
  patch(cubin, &old_hash, &hash, sizeof hash);
  patch(cubin, old_launch, launch, sizeof launch);
  bytes_t artefact = attach(cubin, table);
  free(cubin.at);
  free(table);
  return artefact;
}

static gpuos_status_t load(const char *path, variant_t v, gpuos_program_t **out_program) {
  bytes_t artefact = make_artefact(path, v);
  gpuos_status_t status = gpuos_program_load(device, artefact.at, artefact.count, out_program);
  free(artefact.at);
  return status;
}

// ---- steps --------------------------------------------------------------------------------------

static void give(gpuos_program_t *program, float first) {
  float x[COUNT];
  uint16_t w[COUNT];
  for (int i = 0; i < COUNT; i++) x[i] = (float)i + 1, w[i] = 0x4040; // 3
  x[0] = first;
  CHECK(gpuos_program_write(program, "x", x, sizeof x) == GPUOS_OK);
  CHECK(gpuos_program_write(program, "w", w, sizeof w) == GPUOS_OK);
}

static void step_is_right(gpuos_program_t *program) {
  float y[COUNT];
  give(program, 1);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_OK);
  CHECK(gpuos_program_read(program, "y", y, sizeof y) == GPUOS_OK);
  int wrong = 0;
  for (int i = 0; i < COUNT; i++) wrong += y[i] != 4 * ((float)i + 1);
  CHECK(wrong == 0);
  CHECK(gpuos_step_ns(program) > 0 && gpuos_step_ns(program) < second_ns);
}

static gpuos_status_t run(gpuos_program_t *program, float first) {
  give(program, first);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  return gpuos_wait(program, 10 * second_ns);
}

static void *abort_soon(void *program) {
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  gpuos_abort(program);
  return NULL;
}

static void steps(gpuos_program_t *program) {
  puts("computes again and again");
  for (int i = 0; i < 200; i++) step_is_right(program);
  printf("  last step %.1f us\n", (double)gpuos_step_ns(program) * 1e-3);

  puts("explains a bad index, then works");
  CHECK(run(program, -1) == GPUOS_FAULT);
  SAYS("'ids' holds index 70000, the limit is 32000");
  step_is_right(program);

  puts("explains a stall, then works");
  CHECK(run(program, -2) == GPUOS_STALL);
  SAYS("(op 'add' unit 0) waits for counter 0: expected 500, found 250");
  printf("  %s\n", gpuos_device_error(device));
  step_is_right(program);

  puts("explains a kernel that leaves, then works");
  CHECK(run(program, -4) == GPUOS_DRIVER);
  SAYS("recorded no fault");
  step_is_right(program);
}

static void aborts(gpuos_program_t *program) {
  puts("times out, then aborts, then works");
  for (int i = 0; i < 20; i++) {
    give(program, -3);
    CHECK(gpuos_submit(program) == GPUOS_OK);
    CHECK(gpuos_wait(program, 0) == GPUOS_TIMEOUT);
    CHECK(gpuos_wait(program, 1000000) == GPUOS_TIMEOUT);
    gpuos_abort(program);
    CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_ABORTED);
    step_is_right(program);
  }
  puts("is aborted right after submit");
  for (int i = 0; i < 20; i++) {
    give(program, -3);
    CHECK(gpuos_submit(program) == GPUOS_OK);
    gpuos_abort(program);
    CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_ABORTED);
  }
  puts("is aborted by another thread during a wait");
  pthread_t thread;
  give(program, -3);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  pthread_create(&thread, NULL, abort_soon, program);
  CHECK(gpuos_wait(program, 10 * second_ns) == GPUOS_ABORTED);
  pthread_join(thread, NULL);
  step_is_right(program);
}

// ---- load ---------------------------------------------------------------------------------------

static void refusals(const char *path) {
  gpuos_program_t *program;
  puts("refuses another table's device code");
  CHECK(load(path, (variant_t){32, 4096, 1, 1}, &program) == GPUOS_BAD_ARTEFACT);
  SAYS("is not the one the device code was built for");
  puts("refuses what cannot be resident");
  CHECK(load(path, (variant_t){1024, 4096, 4, 0}, &program) == GPUOS_NOT_RESIDENT);
  SAYS("workers"); // 132 SMs x 4 are more than 256
  CHECK(load(path, (variant_t){1024, 300000, 1, 0}, &program) == GPUOS_NOT_RESIDENT);
  SAYS("300000 bytes of shared memory");
  puts("refuses an odd launch");
  CHECK(load(path, (variant_t){33, 0, 1, 0}, &program) == GPUOS_BAD_ARTEFACT);
  puts("refuses a bare table");
  gpuos_table_t *table = gos_model_scale(COUNT);
  CHECK(gpuos_program_load(device, table, table->bytes, &program) == GPUOS_WRONG_ARCH);
  SAYS("no device code");
  free(table);
}

static void few_sms(const char *path) {
  puts("refuses too many CTAs an SM, with numbers");
  gpuos_device_t *all = device;
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CUDA, .sm_count = 5};
  CHECK(gpuos_device_open(&options, &device) == GPUOS_OK);
  gpuos_program_t *program;
  CHECK(load(path, (variant_t){1024, 4096, 4, 0}, &program) == GPUOS_NOT_RESIDENT);
  SAYS("4 CTAs an SM of 1024 threads");
  printf("  %s\n", gpuos_device_error(device));
  puts("runs on five SMs, two CTAs each, beside another program");
  CHECK(load(path, (variant_t){64, 65536, 2, 0}, &program) == GPUOS_OK);
  if (program != NULL) steps(program);
  gpuos_program_destroy(program);
  gpuos_device_close(device);
  device = all;
}

static void ends(const char *path) {
  puts("ends a running step when its program is destroyed");
  gpuos_program_t *program;
  CHECK(load(path, good, &program) == GPUOS_OK);
  give(program, -3);
  CHECK(gpuos_submit(program) == GPUOS_OK);
  gpuos_program_destroy(program);
  puts("reports a trap as the driver's error, and still closes");
  CHECK(load(path, good, &program) == GPUOS_OK);
  CHECK(run(program, -5) == GPUOS_DRIVER);
  printf("  %s\n", gpuos_device_error(device));
  gpuos_program_destroy(program);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  gpuos_device_options_t options = {.kind = GPUOS_DEVICE_CUDA, .wait_limit_us = 100000};
  if (gpuos_device_open(&options, &device) != GPUOS_OK) {
    puts(gpuos_device_error(device));
    return 2;
  }
  gpuos_program_t *program;
  CHECK(load(argv[1], good, &program) == GPUOS_OK);
  if (program == NULL) return 1;
  steps(program);
  aborts(program);
  refusals(argv[1]);
  few_sms(argv[1]);
  gpuos_program_destroy(program);
  ends(argv[1]);
  gpuos_device_close(device);
  printf("%d failures\n", failures);
  return failures != 0;
}
