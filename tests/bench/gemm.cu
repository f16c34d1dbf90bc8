// gemm.cu: how fast is an ordinary GEMM, recompiled by gpuosc into shareable form, beside the
// vendor's library?
//
//   nvcc -O2 -std=c++17 -Iruntime tests/bench/gemm.cu build-gpu/libgpuos.a -o gemm
//        -lcublasLt -lcuda -lcublas -ldl -lpthread
//   ./gemm [--seconds S] [--rounds R] [--sms 16,32,64] [--burst] FILE.cubin...
//
// Each artefact is c [M,N] = a [M,K] b [N,K]^T, e4m3 or bf16 (examples/fp8_gemm.yaml,
// bf16_gemm.yaml). Both sides work on the same data in one process, taking turns: numerics, bursts
// after a rest, sustained blocks, and on a part of the SMs, lent here and a green context there.
// The results end as markdown tables. Exit code 1: a side failed or a result is wrong.
#include "side_cublaslt.h"
#include "side_gpuos.h"

enum { BURST_RUNS = 12 };
const double REST_S = 0.3; // for the clock to recover

struct options_t {
  double seconds = 2;
  int rounds = 2;
  bool burst_only = false;
  std::vector<int> sms = {16, 32, 64};
  std::vector<const char *> files;
};

// One side's figures. Burst: single runs by the GPU's clock, and runs in a row by the host's.
struct figures_t {
  std::vector<double> single_s, row_s; // seconds a run
  std::vector<double> tflops, watts, mhz;
};

struct subset_t {
  int sms, green_sms; // green_sms 0: no green context
  block_t ours, theirs;
};

struct row_t {
  std::string shape, dtype;
  double flops = 0, double_error = 0, other_error = 0;
  bool identical = false;
  figures_t ours, theirs;
  std::vector<subset_t> subsets;
};

// ---- numerics -----------------------------------------------------------------------------------

// A step on poisoned memory.
static bool run_fresh(ours_t *o, const problem_t &p, std::vector<uint16_t> *out_c) {
  double wall_s;
  return ours_poison(o, p) && ours_run(o, 1, &wall_s) && ours_read(o, p, out_c);
}

static bool run_theirs(theirs_t *t, std::vector<uint16_t> *out_c) {
  const problem_t &p = *t->p;
  out_c->resize(p.c_elems());
  TRY(cudaMemsetAsync(p.c, 0xff, p.c_elems() * 2, t->stream));
  TRY(launch(*t, &t->algorithm));
  if (!drained(t->stream, 10)) return false;
  TRY(cudaMemcpy(out_c->data(), p.c, p.c_elems() * 2, cudaMemcpyDeviceToHost));
  return true;
}

static bool check_numerics(ours_t *o, theirs_t *t, row_t *row, std::vector<uint16_t> *out_c) {
  const problem_t &p = *t->p;
  std::vector<uint16_t> again, theirs;
  alive("numerics");
  if (!run_fresh(o, p, out_c) || !run_fresh(o, p, &again)) return false;
  if (!ours_quiesce(o) || !run_theirs(t, &theirs)) return false;
  row->identical = memcmp(out_c->data(), again.data(), again.size() * 2) == 0;
  row->double_error = error_against_double(p, *out_c);
  row->other_error = error_against(*out_c, theirs);
  double most = most_error(p);
  bool right = row->identical && row->double_error < most && row->other_error < most;
  printf("  numerics: %.2e against float64 (8 x 64 samples; cuBLASLt %.2e), %.2e against all of "
         "cuBLASLt's c, two runs %s%s\n",
         row->double_error, error_against_double(p, theirs), row->other_error,
         row->identical ? "bit-identical" : "DIFFER", right ? "" : "  WRONG");
  return right;
}

// ---- bursts -------------------------------------------------------------------------------------

static bool burst_ours(ours_t *o, figures_t *f) {
  double wall_s;
  nap(REST_S);
  for (int i = 0; i < BURST_RUNS; i++) {
    if (!ours_run(o, 1, &wall_s)) return false;
    f->single_s.push_back(gpuos_step_ns(o->program) * 1e-9);
  }
  nap(REST_S);
  if (!ours_run(o, BURST_RUNS, &wall_s)) return false;
  f->row_s.push_back(wall_s / BURST_RUNS);
  return ours_quiesce(o);
}

// Runs follow each other with an event between: of a run that is waited for before the next one is
// launched, an event would also time the launch.
static bool time_singles(theirs_t *t, figures_t *f) {
  cudaEvent_t events[BURST_RUNS + 1];
  float ms;
  for (cudaEvent_t &event : events) TRY(cudaEventCreate(&event));
  TRY(cudaEventRecord(events[0], t->stream));
  for (int i = 0; i < BURST_RUNS; i++) {
    TRY(launch(*t, &t->algorithm));
    TRY(cudaEventRecord(events[i + 1], t->stream));
  }
  if (!drained(t->stream, 10, true)) return false;
  for (int i = 0; i < BURST_RUNS; i++) {
    TRY(cudaEventElapsedTime(&ms, events[i], events[i + 1]));
    f->single_s.push_back(ms * 1e-3);
  }
  for (cudaEvent_t event : events) TRY(cudaEventDestroy(event));
  return true;
}

static bool burst_theirs(theirs_t *t, figures_t *f) {
  nap(REST_S);
  if (!time_singles(t, f)) return false;
  nap(REST_S);
  double start_s = now_s();
  for (int i = 0; i < BURST_RUNS; i++) TRY(launch(*t, &t->algorithm));
  if (!drained(t->stream, 10, true)) return false;
  f->row_s.push_back((now_s() - start_s) / BURST_RUNS);
  return true;
}

static double tflops(const row_t &row, const std::vector<double> &seconds) {
  double middle = median(seconds);
  return middle > 0 ? row.flops / middle * 1e-12 : 0;
}

static bool measure_bursts(ours_t *o, theirs_t *t, int rounds, row_t *row) {
  for (int round = 0; round < rounds; round++) {
    figures_t theirs, ours;
    alive("bursts");
    if (!burst_theirs(t, &theirs) || !burst_ours(o, &ours)) return false;
    printf("  burst %d: cuBLASLt %.0f TFLOP/s (%.0f in a row), ours %.0f (%.0f in a row), "
           "ratio %.3f (%.3f)\n",
           round + 1, tflops(*row, theirs.single_s), tflops(*row, theirs.row_s),
           tflops(*row, ours.single_s), tflops(*row, ours.row_s),
           median(theirs.single_s) / median(ours.single_s),
           median(theirs.row_s) / median(ours.row_s));
    for (auto [to, from] : {std::pair{&row->theirs, &theirs}, std::pair{&row->ours, &ours}}) {
      to->single_s.insert(to->single_s.end(), from->single_s.begin(), from->single_s.end());
      to->row_s.insert(to->row_s.end(), from->row_s.begin(), from->row_s.end());
    }
  }
  return true;
}

// ---- sustained ----------------------------------------------------------------------------------

static void keep(const block_t &block, figures_t *f) {
  f->tflops.push_back(block.tflops);
  f->watts.push_back(block.watts);
  f->mhz.push_back(block.mhz);
}

static bool measure_sustained(ours_t *o, theirs_t *t, const options_t &options,
                              const meter_t &meter, row_t *row) {
  for (int round = 0; round < options.rounds; round++) {
    alive("a sustained block of cuBLASLt");
    block_t theirs = run_block(*t, options.seconds, row->flops, meter);
    if (!theirs.ok || !ours_learn(o)) return false;
    alive("a sustained block of ours");
    block_t ours = run_block(*o, options.seconds, row->flops, meter);
    // Off the chip: an idle kernel of ours would still hold all of its shared memory.
    if (!ours.ok || !ours_quiesce(o)) return false;
    printf("  sustained %d: cuBLASLt %.0f TFLOP/s (%.0f W, %.0f MHz), ours %.0f (%.0f W, %.0f MHz; "
           "%.0f in the last step by its own clock), ratio %.3f\n",
           round + 1, theirs.tflops, theirs.watts, theirs.mhz, ours.tflops, ours.watts, ours.mhz,
           tflops(*row, {gpuos_step_ns(o->program) * 1e-9}), ours.tflops / theirs.tflops);
    keep(theirs, &row->theirs), keep(ours, &row->ours);
  }
  return true;
}

// ---- a part of the SMs --------------------------------------------------------------------------

static bool subset_theirs(theirs_t *t, double seconds, const meter_t &meter, subset_t *s) {
  green_t green;
  alive("cuBLASLt in a green context");
  bool ok = green_create(&green, s->sms) && theirs_move(t, &green);
  if (ok) s->theirs = run_block(*t, seconds, t->p->flops(), meter);
  if (ok) s->green_sms = green.job_sms;
  t->stream = t->whole;
  green_destroy(&green);
  if (!s->theirs.ok) s->green_sms = 0;
  if (!s->theirs.ok) printf("  %d SMs: no cuBLASLt in a green context here; going on\n", s->sms);
  return s->theirs.ok;
}

// `expected`: which SMs work must not show in the result.
static bool subset_ours(ours_t *o, const problem_t &p, double seconds, const meter_t &meter,
                        const std::vector<uint16_t> &expected, subset_t *s) {
  std::vector<uint16_t> c;
  alive("ours on a part of the SMs");
  if (!ours_poison(o, p) || !ours_lend(o, s->sms) || !ours_learn(o)) return false;
  s->ours = run_block(*o, seconds, p.flops(), meter);
  bool ok = s->ours.ok && ours_read(o, p, &c) && ours_quiesce(o) &&
            ours_lend(o, gpuos_device_sm_count(o->device));
  bool same = ok && memcmp(c.data(), expected.data(), c.size() * 2) == 0;
  if (ok && !same) printf("  %d SMs: the result DIFFERS from that of all SMs\n", s->sms);
  return same;
}

static bool measure_subsets(ours_t *o, theirs_t *t, const options_t &options, const meter_t &meter,
                            const std::vector<uint16_t> &expected, row_t *row) {
  for (int sms : options.sms) {
    subset_t s = {};
    s.sms = sms;
    subset_theirs(t, options.seconds / 2, meter, &s);
    if (!subset_ours(o, *t->p, options.seconds / 2, meter, expected, &s)) return false;
    printf("  %d SMs: ours %.0f TFLOP/s (%.0f W, %.0f MHz)", sms, s.ours.tflops, s.ours.watts,
           s.ours.mhz);
    if (s.theirs.ok)
      printf(", cuBLASLt in a green context of %d %.0f (%.0f W, %.0f MHz), ratio %.3f", s.green_sms,
             s.theirs.tflops, s.theirs.watts, s.theirs.mhz, s.ours.tflops / s.theirs.tflops);
    printf("\n");
    row->subsets.push_back(s);
  }
  return true;
}

// ---- one artefact -------------------------------------------------------------------------------

static bool measure(ours_t *o, theirs_t *t, problem_t *p, const options_t &options,
                    const meter_t &meter, row_t *row) {
  std::vector<uint16_t> c;
  alive("setting up");
  if (!problem_describe(o->program, p)) return false;
  problem_fill(p);
  row->shape = p->shape(), row->dtype = p->dtype(), row->flops = p->flops();
  printf("%s %s:\n", row->dtype.c_str(), row->shape.c_str());
  if (!ours_give(o, *p) || !theirs_open(t, p)) return false;
  printf("  cuBLASLt: the best of %d algorithms takes %.1f us\n", t->algorithms, t->run_s * 1e6);
  // Wrong results do not keep their speed from being told.
  bool right = check_numerics(o, t, row, &c);
  if (c.size() != p->c_elems() || !measure_bursts(o, t, options.rounds, row)) return false;
  if (options.burst_only) return right;
  return measure_sustained(o, t, options, meter, row) &&
         measure_subsets(o, t, options, meter, c, row) && right;
}

static bool measure_file(ours_t *o, const char *file, const options_t &options,
                         const meter_t &meter, row_t *row) {
  theirs_t theirs;
  problem_t problem;
  printf("%s\n", file);
  alive("loading an artefact");
  bool ok = ours_load(o, file) && measure(o, &theirs, &problem, options, meter, row);
  alive("freeing");
  ours_unload(o); // before what waits for every kernel
  theirs_close(&theirs);
  problem_free(&problem);
  return ok;
}

// ---- tables -------------------------------------------------------------------------------------

static double mean(const std::vector<double> &v) {
  double sum = 0;
  for (double x : v) sum += x;
  return v.empty() ? 0 : sum / v.size();
}

static double ratio(double ours, double theirs) { return theirs > 0 ? ours / theirs : 0; }

static void print_whole(const std::vector<row_t> &rows) {
  printf("\nTFLOP/s. Burst: median of single runs by the GPU's clock (in brackets: %d in a row by "
         "the host's, median). Sustained: mean of the blocks.\n\n",
         BURST_RUNS);
  printf("| GEMM | burst ours | burst cuBLASLt | ratio | sustained ours | sustained cuBLASLt "
         "| ratio | W ours, theirs | MHz ours, theirs | error float64, cuBLASLt | runs |\n");
  printf("|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const row_t &r : rows) {
    const figures_t &o = r.ours, &t = r.theirs;
    printf("| %s %s | %.0f (%.0f) | %.0f (%.0f) | %.3f (%.3f) ", r.dtype.c_str(), r.shape.c_str(),
           tflops(r, o.single_s), tflops(r, o.row_s), tflops(r, t.single_s), tflops(r, t.row_s),
           ratio(tflops(r, o.single_s), tflops(r, t.single_s)),
           ratio(tflops(r, o.row_s), tflops(r, t.row_s)));
    printf("| %.0f | %.0f | %.3f | %.0f, %.0f | %.0f, %.0f ", mean(o.tflops), mean(t.tflops),
           ratio(mean(o.tflops), mean(t.tflops)), mean(o.watts), mean(t.watts), mean(o.mhz),
           mean(t.mhz));
    printf("| %.1e, %.1e | %s |\n", r.double_error, r.other_error,
           r.identical ? "identical" : "differ");
  }
}

static void print_subsets(const std::vector<row_t> &rows) {
  printf("\nSustained on a part of the SMs: lent to ours, a green context for cuBLASLt.\n\n");
  printf("| GEMM | SMs (green) | ours | cuBLASLt | ratio | W ours, theirs | MHz ours, theirs |\n");
  printf("|---|---|---|---|---|---|---|\n");
  for (const row_t &r : rows)
    for (const subset_t &s : r.subsets)
      printf("| %s %s | %d (%d) | %.0f | %.0f | %.3f | %.0f, %.0f | %.0f, %.0f |\n",
             r.dtype.c_str(), r.shape.c_str(), s.sms, s.green_sms, s.ours.tflops, s.theirs.tflops,
             ratio(s.ours.tflops, s.theirs.tflops), s.ours.watts, s.theirs.watts, s.ours.mhz,
             s.theirs.mhz);
}

// ---- main ---------------------------------------------------------------------------------------

static bool parse(int argc, char **argv, options_t *out) {
  for (int i = 1; i < argc; i++) {
    std::string word = argv[i];
    bool more = i + 1 < argc;
    if (word == "--burst")
      out->burst_only = true;
    else if (word == "--seconds" && more)
      out->seconds = atof(argv[++i]);
    else if (word == "--rounds" && more)
      out->rounds = atoi(argv[++i]);
    else if (word == "--sms" && more)
      out->sms = parse_list(argv[++i]);
    else if (word[0] == '-')
      return false;
    else
      out->files.push_back(argv[i]);
  }
  // A block must be over before the watchdog bites.
  return !out->files.empty() && out->seconds > 0 && out->seconds <= 20 && out->rounds > 0;
}

int main(int argc, char **argv) {
  options_t options;
  ours_t ours;
  meter_t &meter = *new meter_t; // its thread outlives main
  std::vector<row_t> rows;
  if (!parse(argc, argv, &options)) {
    fprintf(stderr, "usage: gemm [--seconds S] [--rounds R] [--sms 16,32,64] [--burst] "
                    "FILE.cubin...\n");
    return 2;
  }
  begin_bench();
  CHECK(cudaFree(nullptr));
  if (!meter.start()) printf("no NVML here: power and clock stay 0\n");
  print_machine(meter, argc, argv);
  bool ok = ours_open_device(&ours, 0, 0);
  for (size_t i = 0; ok && i < options.files.size(); i++) rows.emplace_back();
  for (size_t i = 0; i < rows.size(); i++)
    ok = measure_file(&ours, options.files[i], options, meter, &rows[i]) && ok;
  alive("closing");
  ours_close(&ours);
  print_whole(rows);
  if (!options.burst_only) print_subsets(rows);
  print_machine(meter, argc, argv);
  fflush(stdout);
  _exit(ok ? 0 : 1);
}
