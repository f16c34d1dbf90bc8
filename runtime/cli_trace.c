// cli_trace.c: `gpuos trace FILE -o F.json`: what every SM did when, for Perfetto or chrome://tracing.
//
// The "Trace Event Format": one track (tid) an SM, one complete event ("X") a unit; microseconds.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_trace.h"

enum option { OUT, OPS, SMS, STEPS, UNITS, POSITION, HELP, OPTION_COUNT };

static const gos_option_t option_list[OPTION_COUNT] = {
    [OUT] = {"-o", "F.json", "where to"},
    [OPS] = {"--ops", NULL, "print what each operator of the last step took"},
    [SMS] = {"--sms", "N", "SMs to use; default all"},
    [STEPS] = {"--steps", "N", "steps to run; default 3"},
    [UNITS] = {"--units", "N", "the last units of each SM that are kept; default 16384"},
    [POSITION] = {"--position", "N", "what an input 'pos' holds; default 0"},
    [HELP] = {"--help", NULL, "print this"},
};

typedef struct trace {
  const char *path, *out;
  uint64_t sms, steps, units, position;
  bool ops, help;
} trace_t;

// ---- options ------------------------------------------------------------------------------------

static bool parse_option(void *into, int option, const char *value) {
  trace_t *trace = into;
  switch ((enum option)option) {
  case OUT: trace->out = value; return true;
  case OPS: return trace->ops = true;
  case SMS: return gos_parse_count("--sms", value, GPUOS_MAX_SMS, &trace->sms);
  case STEPS: return gos_parse_count("--steps", value, INT32_MAX, &trace->steps);
  case UNITS: return gos_parse_count("--units", value, GOS_MAX_TRACE_UNITS, &trace->units);
  case POSITION: return gos_parse_count("--position", value, INT32_MAX, &trace->position);
  default: return trace->help = true;
  }
}

static bool consistent(const trace_t *trace) {
  if (trace->help) return true;
  bool ok = trace->path != NULL && trace->out != NULL && trace->steps != 0 && trace->units != 0;
  if (!ok) gos_say("usage: gpuos trace FILE -o F.json [--steps=N], N > 0");
  return ok;
}

static bool parse(trace_t *trace, int argc, char **argv) {
  gos_words_t words = {.argc = argc, .argv = argv};
  if (!gos_parse_words(&words, option_list, OPTION_COUNT, "trace", parse_option, trace,
                       &trace->path))
    return false;
  return consistent(trace);
}

// ---- records ------------------------------------------------------------------------------------

static bool read_sm(gos_session_t *session, gos_records_t *records, uint32_t sm) {
  gpuos_unit_record_t *at = records->at + (size_t)sm * records->capacity;
  gpuos_status_t status =
      gpuos_program_trace(session->program, sm, at, records->capacity, &records->counts[sm]);
  if (status != GPUOS_OK) return gos_session_failed(session, "trace", status);
  if (records->counts[sm] != 0 && at[0].start_ns < records->start_ns)
    records->start_ns = at[0].start_ns;
  return true;
}

static bool read_all(gos_session_t *session, gos_records_t *records) {
  records->sm_count = session->program->sm_count;
  records->capacity = session->device->options.trace_units;
  records->start_ns = UINT64_MAX;
  records->at = calloc((size_t)records->sm_count * records->capacity, sizeof *records->at);
  records->counts = calloc(records->sm_count, sizeof *records->counts);
  if (records->at == NULL || records->counts == NULL) {
    gos_say("error: no memory for the records of %u SMs", records->sm_count);
    return false;
  }
  for (uint32_t sm = 0; sm < records->sm_count; sm++)
    if (!read_sm(session, records, sm)) return false;
  return true;
}

// ---- JSON ---------------------------------------------------------------------------------------

static const char *op_name(const gpuos_table_t *table, uint32_t op) {
  if (op >= table->ops.count) return "?";
  return gos_table_string(table, GPUOS_SECTION(table, gpuos_op_t, ops)[op].name);
}

static void write_track(FILE *out, uint32_t sm, const gpuos_sm_info_t *info) {
  fprintf(
      out,
      "%s{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%u,\"args\":{\"name\":\"SM %u "
      "(smid %u)\"}}",
      sm == 0 ? "" : ",\n", sm, sm, info->smid);
}

static void write_unit(FILE *out, const gpuos_table_t *table, uint32_t sm, uint64_t start_ns,
                       const gpuos_unit_record_t *unit) {
  fputs(",\n{\"ph\":\"X\",\"name\":", out);
  gos_write_string(out, op_name(table, unit->op));
  fprintf(out,
          ",\"pid\":1,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"tile\":%u,\"slice\":%u,"
          "\"step\":%u,\"paused_us\":%.3f}}",
          sm, (double)(unit->start_ns - start_ns) * 1e-3,
          ((double)unit->run_ns + unit->paused_ns) * 1e-3, unit->tile, unit->slice, unit->step,
          unit->paused_ns * 1e-3);
}

static bool write_tracks(gos_session_t *session, FILE *out, const gos_records_t *records) {
  for (uint32_t sm = 0; sm < records->sm_count; sm++) {
    gpuos_sm_info_t info;
    gpuos_status_t status = gpuos_program_sm(session->program, sm, &info);
    if (status != GPUOS_OK) return gos_session_failed(session, "trace", status);
    write_track(out, sm, &info);
  }
  return true;
}

static uint64_t write_units(const gos_session_t *session, FILE *out, const gos_records_t *records) {
  uint64_t units = 0;
  for (uint32_t sm = 0; sm < records->sm_count; sm++) {
    const gpuos_unit_record_t *at = records->at + (size_t)sm * records->capacity;
    for (uint32_t i = 0; i < records->counts[sm]; i++, units++)
      write_unit(out, session->program->table, sm, records->start_ns, &at[i]);
  }
  return units;
}

static bool write_json(gos_session_t *session, const char *path, const gos_records_t *records) {
  FILE *out = fopen(path, "w");
  if (out == NULL) {
    gos_say("error: '%s': %s", path, strerror(errno));
    return false;
  }
  fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", out);
  bool ok = write_tracks(session, out, records);
  uint64_t units = write_units(session, out, records);
  fputs("\n]}\n", out);
  bool whole = ferror(out) == 0;
  if (fclose(out) != 0 || !whole) {
    gos_say("error: '%s': %s", path, strerror(errno));
    return false;
  }
  if (ok) gos_say("%" PRIu64 " units of %u SMs in '%s'", units, records->sm_count, path);
  return ok;
}

// ---- entry --------------------------------------------------------------------------------------

static bool run_steps(const trace_t *trace, gos_session_t *session) {
  gpuos_status_t status = gpuos_submit_steps(session->program, (uint32_t)trace->steps);
  if (status == GPUOS_OK) status = gpuos_wait(session->program, session->timeout_ns * trace->steps);
  return status == GPUOS_OK || gos_session_failed(session, "step", status);
}

static bool print_ops(const gos_session_t *session, const gos_records_t *records) {
  const gpuos_table_t *table = session->program->table;
  uint32_t count;
  gos_traced_op_t *ops = gos_trace_ops(records, table->ops.count, &count);
  if (ops == NULL) {
    gos_say("error: no memory for the units of %u SMs", records->sm_count);
    return false;
  }
  gos_print_traced_ops(table, ops, count);
  free(ops);
  return true;
}

static bool trace_session(const trace_t *trace, gos_session_t *session, gos_records_t *records) {
  const gos_open_t open = {
      .path = trace->path,
      .device = GPUOS_DEVICE_CUDA,
      .options = {.sm_count = (uint32_t)trace->sms, .trace_units = (uint32_t)trace->units}};
  return gos_session_open(session, &open) && gos_fill_random(session, (uint32_t)trace->position) &&
         run_steps(trace, session) && read_all(session, records) &&
         write_json(session, trace->out, records) && (!trace->ops || print_ops(session, records));
}

int gos_cli_trace(int argc, char **argv) {
  trace_t trace = {.steps = 3, .units = 16384};
  if (!parse(&trace, argc, argv)) return GOS_EXIT_USAGE;
  if (trace.help) {
    puts("usage: gpuos trace FILE -o F.json [options]\n");
    gos_print_options(stdout, option_list, OPTION_COUNT);
    return GOS_EXIT_OK;
  }
  gos_session_t session = {.timeout_ns = UINT64_C(60000000000)};
  gos_records_t records = {0};
  bool ok = trace_session(&trace, &session, &records);
  gos_session_close(&session);
  free(records.at);
  free(records.counts);
  return ok ? GOS_EXIT_OK : GOS_EXIT_FAILED;
}
