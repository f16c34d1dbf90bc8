// nvrtc.c: CUDA C++ to a cubin with NVRTC, which is opened at run time: gpuosc builds, and writes
// schedule tables, on machines without CUDA.
//
// Options are fixed, because NVRTC records them in the cubin: the same source gives the same bytes.
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>

#include "codegen.h"
#include "embed.h"

enum { LOG_LINES = 40 }; // shown

#ifndef GOS_NVRTC_DIR
#define GOS_NVRTC_DIR "" // where the build found it: CMakeLists.txt
#endif

// ---- the library --------------------------------------------------------------------------------

// Prototypes as documented in "NVRTC", CUDA 13.0; a result of 0 is success.
typedef struct nvrtc_program *program_t;
typedef struct nvrtc {
  int (*version)(int *out_major, int *out_minor);
  int (*create)(program_t *out_program, const char *source, const char *name, int header_count,
                const char *const *headers, const char *const *include_names);
  int (*compile)(program_t program, int option_count, const char *const *options);
  int (*log_size)(program_t program, size_t *out_bytes);
  int (*log)(program_t program, char *out_text);
  int (*cubin_size)(program_t program, size_t *out_bytes);
  int (*cubin)(program_t program, char *out_cubin);
  int (*ptx_size)(program_t program, size_t *out_bytes);
  int (*ptx)(program_t program, char *out_text);
  int (*destroy)(program_t *program);
  const char *(*error_text)(int result);
} nvrtc_t;

static bool resolve(void *library, nvrtc_t *out_nvrtc) {
  const struct {
    const char *name;
    void *slot;
  } symbols[] = {
      {"nvrtcVersion", &out_nvrtc->version},
      {"nvrtcCreateProgram", &out_nvrtc->create},
      {"nvrtcCompileProgram", &out_nvrtc->compile},
      {"nvrtcGetProgramLogSize", &out_nvrtc->log_size},
      {"nvrtcGetProgramLog", &out_nvrtc->log},
      {"nvrtcGetCUBINSize", &out_nvrtc->cubin_size},
      {"nvrtcGetCUBIN", &out_nvrtc->cubin},
      {"nvrtcGetPTXSize", &out_nvrtc->ptx_size},
      {"nvrtcGetPTX", &out_nvrtc->ptx},
      {"nvrtcDestroyProgram", &out_nvrtc->destroy},
      {"nvrtcGetErrorString", &out_nvrtc->error_text},
  };
  for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
    void *symbol = dlsym(library, symbols[i].name);
    if (!symbol) return false;
    memcpy(symbols[i].slot, &symbol, sizeof symbol); // ISO C has no cast to a function pointer
  }
  return true;
}

// Never closed again: NVRTC keeps threads and statics of its own.
static bool open_library(gos_diags_t *diags, nvrtc_t *out_nvrtc) {
  static const char *const paths[] = {"libnvrtc.so.13", "libnvrtc.so",
                                      GOS_NVRTC_DIR "/libnvrtc.so.13",
                                      GOS_NVRTC_DIR "/libnvrtc.so"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    void *library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    if (library && resolve(library, out_nvrtc)) return true;
    if (library) dlclose(library);
  }
  gos_error(diags, (gos_loc_t){0}, "nvrtc-missing",
            "no NVRTC library (libnvrtc.so.13), which compiles CUDA C++");
  gos_note(diags, (gos_loc_t){0},
           "install CUDA 13's NVRTC (package cuda-nvrtc-13-0, or 'pip install nvidia-cuda-nvrtc') "
           "and put its folder into the loader's path; --emit=schedule needs none");
  return false;
}

// ---- the log ------------------------------------------------------------------------------------

// The line of the log around `at`.
static const char *line_around(gos_arena_t *arena, const char *log, const char *at) {
  const char *start = at;
  while (start > log && start[-1] != '\n') start--;
  return gos_strndup(arena, start, strcspn(start, "\n"));
}

// A line "..., N bytes spill stores, ..." with N not 0; NULL if there is none.
static const char *find_spill(const char *log) {
  static const char marker[] = " bytes spill stores";
  for (const char *at = strstr(log, marker); at; at = strstr(at + 1, marker)) {
    const char *digit = at;
    while (digit > log && digit[-1] >= '0' && digit[-1] <= '9') digit--;
    if (at - digit != 1 || *digit != '0') return digit;
  }
  return NULL;
}

// What ptxas only warns about but we do not ship.
static bool log_is_clean(const gos_plan_t *plan, const char *log) {
  gos_arena_t *arena = plan->ir->arena;
  gos_diags_t *diags = plan->ir->diags;
  const char *spill = find_spill(log),
             *serial = strstr(log, "instructions are serialized"); // C7509 to C7515
  const char *dropped = strstr(log, "C7512");
  if (spill)
    gos_error(diags, (gos_loc_t){0}, "spill", "the kernel spills registers: %s",
              line_around(arena, log, spill));
  if (serial)
    gos_error(diags, (gos_loc_t){0}, "wgmma-serial", "matrix instructions are serialised: %s",
              line_around(arena, log, serial));
  if (dropped)
    gos_error(diags, (gos_loc_t){0}, "setmaxnreg", "registers are not shared out as wanted: %s",
              line_around(arena, log, dropped));
  return !spill && !serial && !dropped;
}

// The log as notes, a line each.
static void note_log(const gos_plan_t *plan, const char *log) {
  for (int lines = 0; *log && lines < LOG_LINES; lines++) {
    size_t length = strcspn(log, "\n");
    if (length) gos_note(plan->ir->diags, (gos_loc_t){0}, "%.*s", (int)length, log);
    log += length + (log[length] == '\n');
  }
}

// ---- compiling ----------------------------------------------------------------------------------

static program_t create(const nvrtc_t *nvrtc, gos_arena_t *arena, const char *source) {
  GOS_ARRAY(const char *) texts = {0};
  GOS_ARRAY(const char *) names = {0};
  for (const gos_embedded_t *header = gos_device_headers; header->name; header++) {
    *gos_push(arena, &texts) = header->text;
    *gos_push(arena, &names) = header->name;
  }
  program_t program = NULL;
  nvrtc->create(&program, source, "gpuos.cu", (int)texts.count, texts.at, names.at);
  return program;
}

static const char *read_log(const nvrtc_t *nvrtc, gos_arena_t *arena, program_t program) {
  size_t bytes = 0;
  nvrtc->log_size(program, &bytes);
  char *log = gos_alloc(arena, bytes + 1);
  nvrtc->log(program, log);
  return log;
}

static bool read_code(const nvrtc_t *nvrtc, gos_arena_t *arena, program_t program, bool ptx,
                      gos_bytes_t *out_code) {
  int (*get_size)(program_t, size_t *) = ptx ? nvrtc->ptx_size : nvrtc->cubin_size;
  int (*get)(program_t, char *) = ptx ? nvrtc->ptx : nvrtc->cubin;
  size_t bytes = 0;
  if (get_size(program, &bytes) || bytes == 0) return false;
  *out_code = (gos_bytes_t){gos_alloc(arena, bytes), bytes};
  return get(program, out_code->at) == 0;
}

// --fmad=false: a product and a sum round as they are written, as on the CPU device; the kernels
// that want a fused one say fmaf.
enum { OPTIONS = 6 };
static void make_options(const gos_plan_t *plan, const char *out_options[OPTIONS]) {
  out_options[0] = gos_format(plan->ir->arena, "--gpu-architecture=%s", plan->target->arch_name);
  out_options[1] = "--std=c++17";
  out_options[2] = "-default-device";
  out_options[3] = "--fmad=false";
  out_options[4] = "--ptxas-options=-v";
  out_options[5] = "--ptxas-options=--warn-on-spills";
}

static bool compile(const gos_plan_t *plan, const nvrtc_t *nvrtc, program_t program, bool ptx,
                    gos_bytes_t *out_code) {
  gos_arena_t *arena = plan->ir->arena;
  const char *options[OPTIONS];
  make_options(plan, options);
  int result = nvrtc->compile(program, OPTIONS, options);
  const char *log = read_log(nvrtc, arena, program);
  if (result == 0 && !log_is_clean(plan, log)) return false;
  if (result == 0 && read_code(nvrtc, arena, program, ptx, out_code)) return true;
  gos_error(plan->ir->diags, (gos_loc_t){0}, "nvrtc", "NVRTC does not compile the kernel: %s",
            nvrtc->error_text(result));
  note_log(plan, log);
  gos_note(plan->ir->diags, (gos_loc_t){0},
           "this is a fault of gpuosc or of a target's architecture name ('%s'); "
           "--emit=cuda shows the source",
           plan->target->arch_name);
  return false;
}

static bool make(const gos_plan_t *plan, const nvrtc_t *nvrtc, const char *source, bool ptx,
                 gos_bytes_t *out_code) {
  program_t program = create(nvrtc, plan->ir->arena, source);
  if (!program) {
    gos_error(plan->ir->diags, (gos_loc_t){0}, "nvrtc", "NVRTC makes no program");
    return false;
  }
  bool compiled = compile(plan, nvrtc, program, ptx, out_code);
  nvrtc->destroy(&program);
  if (!compiled) *out_code = (gos_bytes_t){0};
  return compiled;
}

// ---- what has been compiled before --------------------------------------------------------------

// Updates within a version keep its number: the library's size tells them apart.
static const char *name_library(const nvrtc_t *nvrtc, gos_arena_t *arena) {
  int major = 0, minor = 0;
  void *symbol;
  Dl_info info;
  struct stat status = {0};
  memcpy(&symbol, &nvrtc->version, sizeof symbol);
  if (dladdr(symbol, &info)) stat(info.dli_fname, &status);
  nvrtc->version(&major, &minor);
  return gos_format(arena, "NVRTC %d.%d, %lld bytes", major, minor, (long long)status.st_size);
}

// Of everything that the result depends on; the first text is for log_is_clean, whose verdict is
// kept with it.
static gos_hash_t make_key(const gos_plan_t *plan, const nvrtc_t *nvrtc, const char *source,
                           const char *kind) {
  gos_hash_t key = gos_hash_start;
  const char *options[OPTIONS];
  make_options(plan, options);
  gos_hash_add(&key, "gpuosc cache 1");
  gos_hash_add(&key, name_library(nvrtc, plan->ir->arena));
  gos_hash_add(&key, kind);
  for (int i = 0; i < OPTIONS; i++) gos_hash_add(&key, options[i]);
  for (const gos_embedded_t *header = gos_device_headers; header->name; header++) {
    gos_hash_add(&key, header->name);
    gos_hash_add(&key, header->text);
  }
  gos_hash_add(&key, source);
  return key;
}

bool gos_nvrtc_compile(const gos_plan_t *plan, const char *source, bool ptx, const char *cache_dir,
                       gos_bytes_t *out_code) {
  nvrtc_t nvrtc;
  *out_code = (gos_bytes_t){0};
  if (!open_library(plan->ir->diags, &nvrtc)) return false;
  if (!cache_dir) return make(plan, &nvrtc, source, ptx, out_code);
  gos_cache_t cache = {.dir = cache_dir, .kind = ptx ? "ptx" : "cubin"};
  cache.key = make_key(plan, &nvrtc, source, cache.kind);
  if (!gos_cache_open(plan->ir, &cache)) return false;
  return gos_cache_find(plan->ir, &cache, out_code) ||
         (make(plan, &nvrtc, source, ptx, out_code) && gos_cache_add(plan->ir, &cache, *out_code));
}
