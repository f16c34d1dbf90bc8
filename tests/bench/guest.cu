// guest.cu: what a guest GEMM costs a stream that saturates the memory.
//
//   nvcc -O2 -std=c++17 -arch=sm_90a -Iruntime tests/bench/guest.cu build-gpu/libgpuos.a -o guest
//        -lcublasLt -lcuda -ldl -lpthread
//   ./guest [--seconds S] [--rounds R] [--sms 8,16,24,32,48,64] [--stream 0,64] [--gib 15]
//           FILE.cubin...
//
// For every artefact and number n of SMs, taking turns, R times:
//
//   the stream alone on 132 - n SMs, 64 SMs and all        its best is what slowdowns refer to
//   our GEMM on n SMs, resident, first alone               libgpuos with sm_count n, on an equal
//                                                          share of every GPC
//   the stream beside it, on 132 - n SMs and on 64         the same SMs hold the GEMM throughout
//   cuBLASLt in a green context of n SMs, alone, and the
//   stream beside it, in a green context of the others
//
// --stream: CTAs of the stream beside the GEMM, 0 being all SMs that are left. Share is the GEMM's
// rate as a part of cuBLASLt's on the whole chip, sustained. The results end as a markdown table.
#include "place.cuh"
#include "side_cublaslt.h"
#include "side_gpuos.h"
#include "stream.cuh"

struct options_t {
  double seconds = 0.6;
  int rounds = 2, gib = 15;
  std::vector<int> sms = {8, 16, 24, 32, 48, 64}, stream = {0, 64};
  std::vector<const char *> files;
};

// What blocks of one kind found, over all rounds.
struct cell_t {
  int ctas = 0; // of the stream; 0: the GEMM alone
  std::vector<double> step_s, tflops, watts, mhz;
  bool shares_sms = false; // stream and GEMM were on the same SM: the figures mean nothing
};

struct side_t {
  const char *name = "";
  bool ok = false;
  cell_t alone;
  std::vector<cell_t> beside;
};

struct row_t {
  std::string gemm;
  int sms = 0;
  double whole_tflops = 0;
  std::vector<cell_t> stream_alone;
  side_t ours, theirs;
};

struct bench_t {
  options_t options;
  meter_t *meter = nullptr;
  stream_t stream;
  place_t place;
  theirs_t theirs;
  problem_t problem;
  int chip_sms = 0;
};

// ---- one block ----------------------------------------------------------------------------------

template <class JOB>
static bool both_move(const stream_t *stream, const rate_t &steps, JOB *job, const rate_t &runs) {
  double now = now_s();
  bool stream_moves = stream == nullptr || now - steps.moved_s <= STUCK_S;
  bool job_moves = job == nullptr || now - runs.moved_s <= STUCK_S;
  if (!stream_moves) printf("the stream: no step ended for %d s\n", STUCK_S);
  if (!job_moves) stuck(*job);
  return stream_moves && job_moves;
}

// The stream (or nullptr) and the job (or nullptr) at the same time, both kept busy from here. The
// first quarter is not counted. The job goes on afterwards, the stream does not.
template <class JOB>
static bool run_together(bench_t *b, stream_t *stream, JOB *job, cell_t *cell) {
  rate_t steps, runs;
  double start_s = now_s(), end_s = start_s + b->options.seconds;
  double from_s = start_s + b->options.seconds / 4;
  alive("the stream and a GEMM");
  steps.begin(start_s, from_s, 0);
  if (job != nullptr) runs.begin(start_s, from_s, done(*job));
  for (double now = start_s; now < end_s; now = now_s()) {
    if (stream != nullptr && !stream_feed(stream, now < from_s ? nullptr : &cell->step_s))
      return false;
    if (stream != nullptr) steps.see(now_s(), stream->finished);
    if (job != nullptr && !feed(*job)) return false;
    if (job != nullptr) runs.see(now_s(), done(*job));
    if (!both_move(stream, steps, job, runs)) return false;
    nap(30e-6);
  }
  if (stream != nullptr && !drained(stream->on, 10)) return false;
  if (job != nullptr) cell->tflops.push_back(runs.per_second() * b->problem.flops() * 1e-12);
  cell->watts.push_back(b->meter->watts(from_s, end_s));
  cell->mhz.push_back(b->meter->mhz(from_s, end_s));
  return true;
}

static bool run_stream_alone(bench_t *b, row_t *row) {
  for (cell_t &cell : row->stream_alone)
    if (!stream_begin(&b->stream, b->stream.own, cell.ctas) ||
        !run_together(b, &b->stream, (ours_t *)nullptr, &cell))
      return false;
  return true;
}

// ---- beside ours --------------------------------------------------------------------------------

// Until a step has ended: the kernel is there, and its SM records say where.
static bool settle(ours_t *o) {
  uint64_t before = done(*o);
  if (!feed(*o)) return false;
  for (double start_s = now_s(); done(*o) == before; nap(1e-4)) {
    if (now_s() - start_s <= STUCK_S) continue;
    stuck(*o);
    return false;
  }
  return true;
}

static bool find_sms(ours_t *o, int count, std::vector<uint32_t> *out_smids) {
  out_smids->clear();
  for (int i = 0; i < count; i++) {
    gpuos_sm_info_t info;
    if (!said(*o, "an SM", gpuos_program_sm(o->program, (uint32_t)i, &info))) return false;
    out_smids->push_back(info.smid);
  }
  return true;
}

static void print_sms(std::vector<uint32_t> smids) {
  std::sort(smids.begin(), smids.end());
  printf("  our GEMM is on SMs");
  for (size_t i = 0; i < smids.size();) {
    size_t end = i + 1;
    while (end < smids.size() && smids[end] == smids[end - 1] + 1) end++;
    if (end - i == 1)
      printf(" %u", smids[i]);
    else
      printf(" %u-%u", smids[i], smids[end - 1]);
    i = end;
  }
  printf("\n");
}

// Every CTA, of whichever kernel, has an SM of its own.
static bool all_differ(std::vector<uint32_t> smids, const std::vector<uint32_t> &more) {
  smids.insert(smids.end(), more.begin(), more.end());
  std::sort(smids.begin(), smids.end());
  return std::adjacent_find(smids.begin(), smids.end()) == smids.end();
}

static bool run_beside_ours(bench_t *b, ours_t *o, row_t *row, bool first) {
  std::vector<uint32_t> mine, others;
  alive("starting our GEMM");
  // The kernel stays until it is quiesced, and so keeps the SMs that it starts on.
  if (!place_begin(&b->place, b->chip_sms, row->sms) || !settle(o) || !place_end(&b->place))
    return false;
  if (!run_together(b, (stream_t *)nullptr, o, &row->ours.alone)) return false;
  if (!find_sms(o, row->sms, &mine)) return false;
  if (first) print_sms(mine);
  for (cell_t &cell : row->ours.beside) {
    if (!stream_begin(&b->stream, b->stream.own, cell.ctas)) return false;
    if (!run_together(b, &b->stream, o, &cell) || !stream_sms(&b->stream, &others)) return false;
    cell.shares_sms = cell.shares_sms || !all_differ(mine, others);
  }
  return drain(*o) && ours_quiesce(o);
}

static bool right_result(bench_t *b, ours_t *o) {
  std::vector<uint16_t> c;
  if (!ours_read(o, b->problem, &c)) return false;
  double error = error_against_double(b->problem, c);
  if (error < most_error(b->problem)) return true;
  printf("  WRONG: error %.2e against float64\n", error);
  return false;
}

// ---- beside cuBLASLt ----------------------------------------------------------------------------

static bool run_beside_theirs(bench_t *b, const green_t &green, row_t *row) {
  theirs_t *t = &b->theirs;
  if (!run_together(b, (stream_t *)nullptr, t, &row->theirs.alone)) return false;
  for (cell_t &cell : row->theirs.beside)
    if (!stream_begin(&b->stream, green.rest_stream, cell.ctas) ||
        !run_together(b, &b->stream, t, &cell))
      return false;
  return drain(*t);
}

static bool make_green(bench_t *b, int sms, green_t *green) {
  alive("making green contexts");
  bool ok = green_create(green, sms) && green->job_sms == sms && theirs_move(&b->theirs, green);
  if (!ok)
    printf("  no cuBLASLt in a green context of %d SMs here (the driver gives %d); going on\n", sms,
           green->job_sms);
  return ok;
}

// ---- one row ------------------------------------------------------------------------------------

static void plan_row(const bench_t &b, int sms, row_t *row) {
  std::vector<int> ctas;
  int rest = b.chip_sms - sms;
  row->sms = sms;
  row->gemm = std::string(b.problem.dtype()) + " " + b.problem.shape();
  for (int wanted : b.options.stream) {
    int count = wanted == 0 ? rest : wanted;
    bool fresh = std::find(ctas.begin(), ctas.end(), count) == ctas.end();
    if (count <= rest && fresh) ctas.push_back(count);
  }
  row->ours.name = "ours", row->theirs.name = "cuBLASLt, green";
  for (int count : ctas) {
    cell_t cell;
    cell.ctas = count;
    row->stream_alone.push_back(cell);
    row->ours.beside.push_back(cell), row->theirs.beside.push_back(cell);
  }
  row->stream_alone.emplace_back();
  row->stream_alone.back().ctas = b.chip_sms;
}

static bool run_rounds(bench_t *b, ours_t *o, const green_t &green, row_t *row) {
  for (int round = 0; round < b->options.rounds; round++) {
    if (!run_stream_alone(b, row) || !run_beside_ours(b, o, row, round == 0)) return false;
    row->ours.ok = true;
    if (row->theirs.ok && !run_beside_theirs(b, green, row)) return false;
  }
  return right_result(b, o);
}

static bool measure_row(bench_t *b, const char *file, int sms, row_t *row) {
  ours_t ours;
  green_t green;
  plan_row(*b, sms, row);
  row->theirs.ok = make_green(b, sms, &green);
  alive("loading an artefact");
  // Between two blocks the kernel stays, and so keeps its SMs.
  bool ok = ours_open_device(&ours, (uint32_t)sms, 100 * 1000) && ours_load(&ours, file) &&
            ours_give(&ours, b->problem) && ours_poison(&ours, b->problem) && ours_learn(&ours) &&
            ours_quiesce(&ours) && run_rounds(b, &ours, green, row);
  alive("freeing");
  ours_close(&ours);
  drain(b->theirs);
  b->theirs.stream = b->theirs.whole;
  green_destroy(&green);
  return ok;
}

// ---- output -------------------------------------------------------------------------------------

static double best_alone_s(const row_t &row) {
  double best = 1e9;
  for (const cell_t &cell : row.stream_alone)
    if (!cell.step_s.empty()) best = std::min(best, median(cell.step_s));
  return best;
}

static void print_alone(const bench_t &b, const row_t &row) {
  printf("  the stream alone:");
  for (const cell_t &c : row.stream_alone) {
    double step_s = median(c.step_s);
    printf(" %d SMs %.3f ms (%.2f TB/s, P99 %.3f, %.0f W, %.0f MHz)", c.ctas, step_s * 1e3,
           step_s > 0 ? (double)b.stream.tickets * TICKET_WORDS * 16 / step_s * 1e-12 : 0,
           quantile(c.step_s, 0.99) * 1e3, median(c.watts), median(c.mhz));
  }
  printf("\n");
}

static void print_cells(const row_t &row, const side_t &side) {
  double base_s = best_alone_s(row), alone = median(side.alone.tflops);
  for (const cell_t &c : side.beside) {
    double step_s = median(c.step_s), beside = median(c.tflops);
    if (!side.ok || c.step_s.empty()) continue;
    printf("| %s | %s | %d | %d | %.3f | %.3f | %+.1f %% | %+.1f %% | %.1f | %.1f | %.3f | %.0f | "
           "%.0f |%s\n",
           row.gemm.c_str(), side.name, row.sms, c.ctas, base_s * 1e3, step_s * 1e3,
           100 * (step_s / base_s - 1), 100 * (quantile(c.step_s, 0.99) / base_s - 1), alone,
           beside, row.whole_tflops > 0 ? beside / row.whole_tflops : 0, median(c.watts),
           median(c.mhz), c.shares_sms ? " INVALID: stream and GEMM shared an SM" : "");
  }
}

static void print_row(const row_t &row) {
  print_cells(row, row.ours), print_cells(row, row.theirs);
}

static void print_head() {
  printf("| GEMM | side | its SMs | stream's SMs | best alone, ms | beside, ms | slowdown | P99 "
         "slowdown | GEMM alone, TFLOP/s | beside | share | W | MHz |\n"
         "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
}

// ---- one artefact -------------------------------------------------------------------------------

// The problem comes from the artefact, so that is loaded once to be asked.
static bool set_up(bench_t *b, const char *file) {
  ours_t ours;
  alive("setting up");
  bool ok = ours_open_device(&ours, 0, 0) && ours_load(&ours, file) &&
            problem_describe(ours.program, &b->problem);
  ours_close(&ours);
  if (ok) problem_fill(&b->problem);
  return ok && theirs_open(&b->theirs, &b->problem);
}

static bool measure_file(bench_t *b, const char *file, std::vector<row_t> *rows) {
  bool ok = true;
  printf("%s\n", file);
  if (!set_up(b, file)) return false;
  block_t whole = run_block(b->theirs, 1.5, b->problem.flops(), *b->meter);
  printf("  cuBLASLt on the whole chip: %.0f TFLOP/s sustained (%.0f W, %.0f MHz)\n", whole.tflops,
         whole.watts, whole.mhz);
  for (int sms : b->options.sms) {
    row_t row;
    row.whole_tflops = whole.tflops;
    ok = measure_row(b, file, sms, &row) && ok;
    print_alone(*b, row);
    print_row(row);
    rows->push_back(row);
  }
  return ok;
}

static void tidy(bench_t *b) {
  alive("freeing");
  theirs_close(&b->theirs);
  problem_free(&b->problem);
}

// ---- main ---------------------------------------------------------------------------------------

static bool parse(int argc, char **argv, options_t *out) {
  for (int i = 1; i < argc; i++) {
    std::string word = argv[i];
    bool more = i + 1 < argc;
    if (word == "--seconds" && more)
      out->seconds = atof(argv[++i]);
    else if (word == "--rounds" && more)
      out->rounds = atoi(argv[++i]);
    else if (word == "--sms" && more)
      out->sms = parse_list(argv[++i]);
    else if (word == "--stream" && more)
      out->stream = parse_list(argv[++i]);
    else if (word == "--gib" && more)
      out->gib = atoi(argv[++i]);
    else if (word[0] == '-')
      return false;
    else
      out->files.push_back(argv[i]);
  }
  bool sane = out->seconds > 0 && out->seconds <= 10 && out->rounds > 0 && out->gib > 0;
  for (int sms : out->sms) sane = sane && sms >= 2 && sms < STREAM_MOST_CTAS;
  for (int ctas : out->stream) sane = sane && ctas >= 0 && ctas <= STREAM_MOST_CTAS;
  return sane && !out->files.empty() && !out->sms.empty() && !out->stream.empty();
}

int main(int argc, char **argv) {
  bench_t &b = *new bench_t;
  std::vector<row_t> rows;
  if (!parse(argc, argv, &b.options)) {
    fprintf(stderr, "usage: guest [--seconds S] [--rounds R] [--sms 8,16,24,32,48,64] "
                    "[--stream 0,64] [--gib 15] FILE.cubin...\n");
    return 2;
  }
  begin_bench();
  CHECK(cudaFree(nullptr));
  CHECK(cudaDeviceGetAttribute(&b.chip_sms, cudaDevAttrMultiProcessorCount, 0));
  b.meter = new meter_t; // its thread outlives main
  if (!b.meter->start()) printf("no NVML here: power and clock stay 0\n");
  print_machine(*b.meter, argc, argv);
  alive("filling the stream's data");
  bool ok = stream_open(&b.stream, b.options.gib);
  std::vector<const char *> files = ok ? b.options.files : std::vector<const char *>();
  print_head();
  for (const char *file : files) {
    ok = measure_file(&b, file, &rows) && ok;
    tidy(&b);
  }
  printf("\nShare: of cuBLASLt on the whole chip, sustained. W and MHz: beside the stream.\n\n");
  print_head();
  for (const row_t &row : rows) print_row(row);
  print_machine(*b.meter, argc, argv);
  fflush(stdout);
  _exit(ok ? 0 : 1);
}
