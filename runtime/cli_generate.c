// cli_generate.c: a language model's steps: feeds a prompt, prints what follows.
//
// Knows the graph by its tensors' names: inputs token [B], pos [B] and, if there is one, seq [B];
// outputs next [B] and, if there is one, logits [B, V]. A row beyond those in use has position -1,
// which every operator leaves alone. With seq, up to B prompt tokens of sequence 0 go into one
// step; without, row 0 is sequence 0 and takes them one by one.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cpu_dtype.h"

typedef struct model {
  gos_session_t *session;
  uint32_t rows;
  bool has_seq;
  int32_t *token, *pos, *seq, *next; // [rows]
  uint32_t logits_dtype, vocabulary;
  void *raw_logits; // [rows, vocabulary]
  float *logits;    // [vocabulary]
  FILE *logits_file;
} model_t;

// ---- the graph ----------------------------------------------------------------------------------

static bool is_row_vector(const model_t *m, const char *name, const char *role) {
  gpuos_tensor_info_t info;
  if (!gos_session_find(m->session, name, &info) || strcmp(info.role, role) != 0 ||
      strcmp(info.dtype, "i32") != 0 || info.rank != 1 || info.shape[0] == 0) {
    gos_say("error: --prompt needs a language model: the graph has no %s '%s' of i32 [B]", role,
            name);
    return false;
  }
  if (m->rows == 0 || info.shape[0] == m->rows) return true;
  gos_say("error: '%s' has %u rows, 'token' has %u", name, info.shape[0], m->rows);
  return false;
}

static bool find_rows(model_t *m) {
  gpuos_tensor_info_t info;
  if (!is_row_vector(m, "token", "input")) return false;
  gos_session_find(m->session, "token", &info);
  m->rows = info.shape[0];
  m->has_seq = gos_session_find(m->session, "seq", &info) && strcmp(info.role, "input") == 0;
  return is_row_vector(m, "pos", "input") && is_row_vector(m, "next", "output") &&
         (!m->has_seq || is_row_vector(m, "seq", "input"));
}

static uint32_t dtype_named(const char *name) {
  uint32_t dtype = 0;
  while (dtype < GPUOS_DTYPE_COUNT && strcmp(gos_dtype_name(dtype), name) != 0) dtype++;
  return dtype;
}

static bool find_logits(model_t *m, const char *path) {
  gpuos_tensor_info_t info;
  if (path == NULL) return true;
  if (!gos_session_find(m->session, "logits", &info) || strcmp(info.role, "output") != 0 ||
      info.rank != 2 || info.shape[0] != m->rows || strcmp(info.dtype, "i32") == 0) {
    gos_say("error: --logits: the graph has no output 'logits' of [%u, V] floats", m->rows);
    return false;
  }
  m->logits_dtype = dtype_named(info.dtype);
  m->vocabulary = info.shape[1];
  m->raw_logits = malloc((size_t)info.bytes + 1);
  m->logits = calloc((size_t)m->vocabulary + 1, sizeof(float));
  m->logits_file = fopen(path, "wb");
  if (m->raw_logits == NULL || m->logits == NULL || m->logits_file == NULL) {
    gos_say("error: --logits=%s: %s", path, strerror(errno));
    return false;
  }
  return true;
}

static bool open_model(model_t *m, const char *logits_path) {
  if (!find_rows(m)) return false;
  m->token = calloc(m->rows, sizeof(int32_t));
  m->pos = calloc(m->rows, sizeof(int32_t));
  m->seq = calloc(m->rows, sizeof(int32_t));
  m->next = calloc(m->rows, sizeof(int32_t));
  if (m->token == NULL || m->pos == NULL || m->seq == NULL || m->next == NULL) {
    gos_say("error: no memory for %u rows", m->rows);
    return false;
  }
  return find_logits(m, logits_path);
}

static bool close_model(model_t *m) {
  free(m->token);
  free(m->pos);
  free(m->seq);
  free(m->next);
  free(m->raw_logits);
  free(m->logits);
  if (m->logits_file == NULL || fclose(m->logits_file) == 0) return true;
  gos_say("error: --logits: %s", strerror(errno));
  return false;
}

// ---- steps --------------------------------------------------------------------------------------

static bool write_rows(model_t *m, const char *name, const int32_t *values) {
  gpuos_status_t status =
      gpuos_program_write(m->session->program, name, values, m->rows * sizeof *values);
  return status == GPUOS_OK || gos_session_failed(m->session, name, status);
}

// One step over `count` tokens of sequence 0, the first at `position`.
static bool step(model_t *m, const int32_t *tokens, uint32_t count, uint64_t position) {
  for (uint32_t row = 0; row < m->rows; row++) {
    bool used = row < count;
    m->token[row] = used ? tokens[row] : 0;
    m->pos[row] = used ? (int32_t)(position + row) : -1;
  }
  return write_rows(m, "token", m->token) && write_rows(m, "pos", m->pos) &&
         (!m->has_seq || write_rows(m, "seq", m->seq)) && gos_session_step(m->session);
}

static bool save_logits(model_t *m, uint32_t row) {
  if (m->logits_file == NULL) return true;
  size_t row_bytes = (size_t)m->vocabulary * gpuos_dtype_bytes(m->logits_dtype);
  gpuos_status_t status =
      gpuos_program_read(m->session->program, "logits", m->raw_logits, m->rows * row_bytes);
  if (status != GPUOS_OK) return gos_session_failed(m->session, "logits", status);
  const char *used = (const char *)m->raw_logits + row * row_bytes;
  gos_load_f32(m->logits_dtype, used, 1, m->vocabulary, m->logits);
  if (fwrite(m->logits, sizeof(float), m->vocabulary, m->logits_file) == m->vocabulary) return true;
  gos_say("error: --logits: %s", strerror(errno));
  return false;
}

// The token that the last step chose in `row`.
static bool take_next(model_t *m, uint32_t row, int32_t *out_token) {
  gpuos_status_t status =
      gpuos_program_read(m->session->program, "next", m->next, m->rows * sizeof *m->next);
  if (status != GPUOS_OK) return gos_session_failed(m->session, "next", status);
  *out_token = m->next[row];
  return save_logits(m, row);
}

// The whole prompt; *out_row is the row that holds its last token.
static bool feed_prompt(model_t *m, const int32_t *tokens, size_t count, uint32_t *out_row) {
  uint32_t most = m->has_seq ? m->rows : 1;
  for (size_t at = 0; at < count;) {
    uint32_t now = count - at < most ? (uint32_t)(count - at) : most;
    if (!step(m, tokens + at, now, at)) return false;
    at += now;
    *out_row = now - 1;
  }
  return true;
}

static bool generate(model_t *m, const gos_generate_t *options, const int32_t *prompt,
                     size_t prompt_count) {
  uint32_t row = 0;
  int32_t token = 0;
  if (!feed_prompt(m, prompt, prompt_count, &row)) return false;
  for (uint64_t i = 0; i < options->count; i++) {
    if (i > 0 && !step(m, &token, 1, prompt_count + i - 1)) return false;
    if (!take_next(m, row, &token)) return false;
    printf(i == 0 ? "%d" : ",%d", token);
    fflush(stdout);
    if (token == options->stop) break;
    row = 0;
  }
  return true;
}

// ---- entry --------------------------------------------------------------------------------------

static bool parse_prompt(const char *text, int32_t *out_tokens, size_t *out_count) {
  *out_count = 0;
  for (const char *at = text;; at++) {
    char *end;
    errno = 0;
    long value = strtol(at, &end, 10);
    if (end == at || errno != 0 || value < 0 || value > INT32_MAX || (*end != ',' && *end != 0)) {
      gos_say("--prompt=%s: token ids, comma separated, are expected at '%s'", text, at);
      return false;
    }
    out_tokens[(*out_count)++] = (int32_t)value;
    at = end;
    if (*end == '\0') return true;
  }
}

bool gos_generate(gos_session_t *session, const gos_generate_t *options) {
  int32_t *prompt = calloc(strlen(options->prompt) + 1, sizeof *prompt);
  if (prompt == NULL) {
    gos_say("error: no memory for the prompt");
    return false;
  }
  model_t model = {.session = session};
  size_t count;
  bool ok = parse_prompt(options->prompt, prompt, &count) &&
            open_model(&model, options->logits_path) && generate(&model, options, prompt, count);
  if (session->times.count != 0) putchar('\n');
  free(prompt);
  return close_model(&model) && ok;
}
