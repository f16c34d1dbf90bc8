// pages.c: page tables start as the identity: sequence s owns pages s * n .. s * n + n - 1.
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static bool is_page_table(const gpuos_table_t *table, const gpuos_buffer_t *buffer) {
  static const char suffix[] = ".pages";
  const char *name = gos_table_string(table, buffer->name);
  size_t length = strlen(name);
  return buffer->role == GPUOS_INPUT && buffer->dtype == GPUOS_I32 && length >= strlen(suffix) &&
         strcmp(name + length - strlen(suffix), suffix) == 0;
}

// Pages of the cache that `op` reaches through page table `buffer`; GPUOS_NONE: it does not.
static uint32_t pages_of_op(const gpuos_table_t *table, const gpuos_op_t *op, uint32_t buffer) {
  const gpuos_operand_t *x = GPUOS_SECTION(table, gpuos_operand_t, operands) + op->first_operand;
  bool reached = false;
  uint32_t pages = GPUOS_NONE;
  for (uint32_t i = 0; i < op->operand_count; i++) {
    if (x[i].as == GPUOS_AS_PAGES && x[i].buffer == buffer) reached = true;
    if (x[i].as == GPUOS_AS_CACHE) pages = x[i].extent[2];
  }
  return reached ? pages : GPUOS_NONE;
}

static uint32_t page_count(const gpuos_table_t *table, uint32_t buffer) {
  const gpuos_op_t *ops = GPUOS_SECTION(table, gpuos_op_t, ops);
  uint32_t least = GPUOS_NONE;
  for (uint32_t i = 0; i < table->ops.count; i++) {
    uint32_t pages = pages_of_op(table, &ops[i], buffer);
    if (pages < least) least = pages;
  }
  return least;
}

// Entries past the last page are -1: using one is a fault, never somebody else's page.
static gpuos_status_t write_identity(gpuos_program_t *program, uint32_t index) {
  const gpuos_buffer_t *buffer = GPUOS_SECTION(program->table, gpuos_buffer_t, buffers) + index;
  uint32_t pages = page_count(program->table, index);
  size_t count = (size_t)(buffer->bytes / sizeof(int32_t));
  int32_t *values = malloc(count * sizeof *values + 1);
  if (values == NULL)
    return gos_fail(&program->device->error, GPUOS_OUT_OF_MEMORY, "no memory for '%s'",
                    gos_table_string(program->table, buffer->name));
  for (size_t i = 0; i < count; i++) values[i] = i < pages && i <= INT32_MAX ? (int32_t)i : -1;
  gpuos_status_t status = program->device->backend->write(program, index, values);
  free(values);
  if (status == GPUOS_OK) program->given[index] = true;
  return status;
}

gpuos_status_t gos_program_default_pages(gpuos_program_t *program) {
  const gpuos_buffer_t *buffers = GPUOS_SECTION(program->table, gpuos_buffer_t, buffers);
  for (uint32_t i = 0; i < gpuos_program_tensor_count(program); i++) {
    if (!is_page_table(program->table, &buffers[i])) continue;
    gpuos_status_t status = write_identity(program, i);
    if (status != GPUOS_OK) return status;
  }
  return GPUOS_OK;
}
