// cli.h: the commands of `gpuos` and what they share: options, numbers, messages.
//
// Read by gpuos.c and the cli_*.c files only; libgpuos does not contain them. Results go to stdout,
// everything else to stderr. One thread.
#ifndef GPUOS_CLI_H_
#define GPUOS_CLI_H_

#include <stdio.h>

#include "internal.h"

enum { GOS_EXIT_OK = 0, GOS_EXIT_FAILED = 1, GOS_EXIT_USAGE = 2 };

// A command gets the words after its own name; it returns an exit code.
int gos_cli_run(int argc, char **argv);
int gos_cli_check(int argc, char **argv);
int gos_cli_inspect(int argc, char **argv);
int gos_cli_devices(int argc, char **argv);
int gos_cli_bench(int argc, char **argv);
int gos_cli_trace(int argc, char **argv);
int gos_cli_share(int argc, char **argv);

// ---- options ------------------------------------------------------------------------------------

typedef struct gos_option {
  const char *name;  // "--steps"
  const char *value; // what help calls its value; NULL: a flag
  const char *help;
} gos_option_t;

typedef struct gos_words {
  int argc;
  char **argv;
  int at; // next word
} gos_words_t;

enum { GOS_WORD_END = -1, GOS_WORD_PLAIN = -2, GOS_WORD_BAD = -3 };

// Reads the next word: the index of an option (value in *out_value, from "--a=v" or "--a v"),
// GOS_WORD_PLAIN (the word in *out_value), or GOS_WORD_BAD after saying what is wrong.
int gos_next_word(gos_words_t *words, const gos_option_t *options, int option_count,
                  const char **out_value);

// Reads the words of a command that takes options and one file, `*out_path`: `take` gets each option's index and value, and
// `into`. False after saying what is wrong.
bool gos_parse_words(gos_words_t *words, const gos_option_t *options, int option_count,
                     const char *command, bool (*take)(void *into, int option, const char *value),
                     void *into, const char **out_path);

void gos_print_options(FILE *out, const gos_option_t *options, int option_count);

// A decimal number of at most `most`; says what is wrong with option `name` otherwise.
bool gos_parse_count(const char *name, const char *text, uint64_t most, uint64_t *out_value);

// "cpu" or "cuda"; and SMs as hex digits, the last one for SMs 0 to 3.
bool gos_parse_device(const char *text, int *out_kind);
bool gos_parse_mask(const char *name, const char *text, uint32_t out_mask[GPUOS_MAX_SMS / 32]);

// The word of `words` most like `word`, or NULL when none is near.
const char *gos_suggest(const char *word, const char *const *words, int count);

// ---- messages -----------------------------------------------------------------------------------

// "gpuos: text", to stderr.
void gos_say(const char *text, ...) GOS_PRINTF(1, 2);

// A size for people: "512 B", "50.3 MB". Decimal, as datasheets count.
typedef struct gos_size {
  char text[24];
} gos_size_t;
gos_size_t gos_size(uint64_t bytes);

// "[8, 128]"
typedef struct gos_shape {
  char text[80];
} gos_shape_t;
gos_shape_t gos_shape(const uint32_t *shape, uint32_t rank);

// With quotes and escapes, as JSON has strings.
void gos_write_string(FILE *out, const char *text);

// ---- a run --------------------------------------------------------------------------------------

// Times of steps.
typedef struct gos_times {
  uint64_t *ns;
  size_t count, capacity;
} gos_times_t;

void gos_times_keep(gos_times_t *times, uint64_t ns);
void gos_times_sort(gos_times_t *times);
// Of sorted times the one that `share` of them, 0 to 1, do not exceed; 0 when there are none.
uint64_t gos_times_at(const gos_times_t *times, double share);

// Tensor-core operations of one step: a multiply-add is two.
double gos_step_flops(const gpuos_table_t *table);

// What a command has open. The options that language models add are cli_generate.c's.
typedef struct gos_session {
  gpuos_device_t *device;
  gpuos_program_t *program;
  uint64_t timeout_ns; // of one step
  gos_times_t times;
} gos_session_t;

typedef struct gos_open {
  const char *path;
  int device; // gpuos_device_kind_t, or -1: the GPU if there is one and the artefact has code for it
  gpuos_device_options_t options; // kind and what is for the other kind aside
  bool verbose;                   // say which device it is, and why
} gos_open_t;

// Opens a device and loads the artefact. False after saying why not; close in any case.
bool gos_session_open(gos_session_t *session, const gos_open_t *open);
void gos_session_close(gos_session_t *session);

// Says why the last call on the session failed; returns false.
bool gos_session_failed(const gos_session_t *session, const char *about, gpuos_status_t status);

// One step, start to end. A step over its time is aborted. False after saying why it failed.
bool gos_session_step(gos_session_t *session);

// Description of the tensor called `name`; false when the program has none.
bool gos_session_find(const gos_session_t *session, const char *name,
                      gpuos_tensor_info_t *out_info);

// Gives every input and weight random data, the same in every run: normal numbers, finite fp8
// values, scales of 1/16, ids of 0. An input 'pos' is `position` in every row, or, where 'seq' has
// fewer sequences than rows, counts from there. False after saying what went wrong.
bool gos_fill_random(gos_session_t *session, uint32_t position);

typedef struct gos_generate {
  const char *prompt;      // token ids, "1,2,3"
  uint64_t count;          // tokens to generate
  int64_t stop;            // end after this token; -1: none
  const char *logits_path; // f32 logits of each generated token; NULL: not wanted
} gos_generate_t;

// Feeds the prompt and prints the generated token ids, comma separated, on one line.
bool gos_generate(gos_session_t *session, const gos_generate_t *options);

#endif // GPUOS_CLI_H_
