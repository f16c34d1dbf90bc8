// side_cublaslt.h: the other side of a comparison: cuBLASLt, on the whole chip or in a green
// context.
//
// One thread. Algorithms are chosen by measured time among what the heuristics offer, afresh for
// each green context. Setting up loads modules, which waits for every kernel of the process: none
// of ours may be resident then.
#ifndef SIDE_CUBLASLT_H_
#define SIDE_CUBLASLT_H_

#include <cublasLt.h>
#include <cuda.h>

#include "problem.cuh"

enum { WORK_BYTES = 64 << 20, MARKS = 64, MOST_ALGORITHMS = 16 };

// Two green contexts that share the chip, with a stream in each.
struct green_t {
  CUgreenCtx job = nullptr, rest = nullptr;
  CUstream job_stream = nullptr, rest_stream = nullptr;
  int job_sms = 0, rest_sms = 0;
};

struct theirs_t {
  const problem_t *p = nullptr;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm = {};
  void *work = nullptr;
  cudaStream_t whole = nullptr;  // of the whole chip
  cudaStream_t stream = nullptr; // where runs go: `whole`, or a green context's
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEvent_t marks[MARKS] = {};       // after each batch, in a ring
  uint64_t launched = 0, finished = 0; // batches since the last drain
  int batch = 1;                       // runs between two marks
  int algorithms = 0;                  // that ran
  double run_s = 1e-3;
};

// ---- green contexts -----------------------------------------------------------------------------

inline void green_destroy(green_t *g) {
  if (g->job_stream != nullptr) CHECK(cuStreamDestroy(g->job_stream));
  if (g->rest_stream != nullptr) CHECK(cuStreamDestroy(g->rest_stream));
  if (g->job != nullptr) CHECK(cuGreenCtxDestroy(g->job));
  if (g->rest != nullptr) CHECK(cuGreenCtxDestroy(g->rest));
  *g = green_t();
}

// `sms` SMs, rounded up by the driver, and the rest. Half-made: green_destroy frees it.
inline bool green_create(green_t *g, int sms) {
  CUdevice device;
  CUdevResource all, part, rest;
  CUdevResourceDesc part_desc, rest_desc;
  unsigned groups = 1, flags = CU_GREEN_CTX_DEFAULT_STREAM;
  TRY(cuDeviceGet(&device, 0));
  TRY(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
  TRY(cuDevSmResourceSplitByCount(&part, &groups, &all, &rest, 0, (unsigned)sms));
  TRY(groups != 1);
  TRY(cuDevResourceGenerateDesc(&part_desc, &part, 1));
  TRY(cuDevResourceGenerateDesc(&rest_desc, &rest, 1));
  TRY(cuGreenCtxCreate(&g->job, part_desc, device, flags));
  TRY(cuGreenCtxCreate(&g->rest, rest_desc, device, flags));
  TRY(cuGreenCtxStreamCreate(&g->job_stream, g->job, CU_STREAM_NON_BLOCKING, 0));
  TRY(cuGreenCtxStreamCreate(&g->rest_stream, g->rest, CU_STREAM_NON_BLOCKING, 0));
  g->job_sms = (int)part.sm.smCount, g->rest_sms = (int)rest.sm.smCount;
  return true;
}

// ---- one run ------------------------------------------------------------------------------------

inline int launch(theirs_t &t, const cublasLtMatmulAlgo_t *algorithm) {
  const problem_t &p = *t.p;
  float alpha = p.fp8 ? 1 : p.a_scale * p.b_scale, beta = 0;
  return cublasLtMatmul(t.handle, t.desc, &alpha, p.b, t.a, p.a, t.b, &beta, p.c, t.c, p.c, t.c,
                        algorithm, t.work, WORK_BYTES, t.stream);
}

// One run by the GPU's clock; false: the algorithm does not run, or this stream cannot be timed.
inline bool time_run(theirs_t &t, const cublasLtMatmulAlgo_t *algorithm, double *out_s) {
  float ms = 0;
  TRY(cudaEventRecord(t.begin, t.stream));
  if (launch(t, algorithm) != CUBLAS_STATUS_SUCCESS) return false;
  TRY(cudaEventRecord(t.end, t.stream));
  if (!drained(t.stream, 10, true)) return false;
  TRY(cudaEventElapsedTime(&ms, t.begin, t.end));
  *out_s = ms * 1e-3;
  return true;
}

// ---- set-up -------------------------------------------------------------------------------------

// Column-major C^T [N,M] = B [N,K] A^T [K,M]: their A is our b. FP8 takes exactly this layout.
inline bool describe_matmul(theirs_t *t) {
  const problem_t &p = *t->p;
  cudaDataType_t type = p.fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  cublasOperation_t transposed = CUBLAS_OP_T;
  int8_t fast = 1;
  const float *b_scale = p.scales + 4, *a_scale = p.scales;
  size_t work_bytes = WORK_BYTES;
  TRY(cublasLtMatmulDescCreate(&t->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  auto set = [&](cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes) {
    return (int)cublasLtMatmulDescSetAttribute(t->desc, what, value, bytes);
  };
  TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  if (p.fp8) {
    TRY(set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast));
    TRY(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b_scale, sizeof b_scale));
    TRY(set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a_scale, sizeof a_scale));
  }
  TRY(cublasLtMatrixLayoutCreate(&t->a, type, p.k, p.n, p.k));
  TRY(cublasLtMatrixLayoutCreate(&t->b, type, p.k, p.m, p.k));
  TRY(cublasLtMatrixLayoutCreate(&t->c, CUDA_R_16BF, p.n, p.m, p.n));
  TRY(cublasLtMatmulPreferenceCreate(&t->preference));
  TRY(cublasLtMatmulPreferenceSetAttribute(t->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &work_bytes, sizeof work_bytes));
  return true;
}

// The fastest algorithm on `stream`, of up to 16. `sms`: how many to plan for; 0: all.
inline bool choose_algorithm(theirs_t *t, int sms) {
  cublasLtMatmulHeuristicResult_t offered[MOST_ALGORITHMS] = {};
  int count = 0;
  int32_t target = sms;
  if (sms != 0)
    TRY(cublasLtMatmulDescSetAttribute(t->desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &target,
                                       sizeof target));
  TRY(cublasLtMatmulAlgoGetHeuristic(t->handle, t->desc, t->a, t->b, t->c, t->c, t->preference,
                                     MOST_ALGORITHMS, offered, &count));
  t->algorithms = 0, t->run_s = 1e9;
  for (int i = 0; i < count; i++) {
    double seconds;
    bool runs = offered[i].state == CUBLAS_STATUS_SUCCESS &&
                time_run(*t, &offered[i].algo, &seconds); // the first time loads it
    t->algorithms += runs;
    for (int round = 0; runs && round < 3; round++)
      if (time_run(*t, &offered[i].algo, &seconds) && seconds < t->run_s)
        t->run_s = seconds, t->algorithm = offered[i].algo;
    alive("choosing an algorithm of cuBLASLt");
  }
  t->batch = std::max(1, (int)(0.001 / t->run_s)); // a millisecond between marks
  if (t->algorithms == 0)
    printf("cuBLASLt has no algorithm for this: of %d offered none runs\n", count);
  return t->algorithms > 0;
}

inline bool theirs_open(theirs_t *t, const problem_t *p) {
  t->p = p;
  TRY(cublasLtCreate(&t->handle));
  TRY(cudaMalloc(&t->work, WORK_BYTES));
  TRY(cudaStreamCreateWithFlags(&t->whole, cudaStreamNonBlocking));
  TRY(cudaEventCreate(&t->begin));
  TRY(cudaEventCreate(&t->end));
  for (cudaEvent_t &mark : t->marks) TRY(cudaEventCreateWithFlags(&mark, cudaEventDisableTiming));
  t->stream = t->whole;
  return describe_matmul(t) && choose_algorithm(t, 0);
}

// To a green context's stream, or with nullptr back to the whole chip.
inline bool theirs_move(theirs_t *t, const green_t *green) {
  t->stream = green != nullptr ? green->job_stream : t->whole;
  return choose_algorithm(t, green != nullptr ? green->job_sms : 0);
}

inline void theirs_close(theirs_t *t) { // half-made is fine
  if (t->preference != nullptr) CHECK(cublasLtMatmulPreferenceDestroy(t->preference));
  for (cublasLtMatrixLayout_t layout : {t->a, t->b, t->c})
    if (layout != nullptr) CHECK(cublasLtMatrixLayoutDestroy(layout));
  if (t->desc != nullptr) CHECK(cublasLtMatmulDescDestroy(t->desc));
  for (cudaEvent_t mark : t->marks)
    if (mark != nullptr) CHECK(cudaEventDestroy(mark));
  if (t->begin != nullptr) CHECK(cudaEventDestroy(t->begin));
  if (t->end != nullptr) CHECK(cudaEventDestroy(t->end));
  if (t->whole != nullptr) CHECK(cudaStreamDestroy(t->whole));
  CHECK(cudaFree(t->work));
  if (t->handle != nullptr) CHECK(cublasLtDestroy(t->handle));
  *t = theirs_t();
}

// ---- what run_block asks for --------------------------------------------------------------------

inline uint64_t done(theirs_t &t) {
  while (t.finished < t.launched && ask(cudaEventQuery(t.marks[t.finished % MARKS])) == cudaSuccess)
    t.finished++;
  return t.finished * t.batch;
}

// At most 40 ms of launches, or two batches, lie in the queue: they cannot be recalled.
inline bool feed(theirs_t &t) {
  done(t);
  for (uint64_t open = t.launched - t.finished;
       open < 2 || (open < MARKS && open * t.batch * t.run_s < 0.04);
       open = t.launched - t.finished) {
    for (int i = 0; i < t.batch; i++) TRY(launch(t, &t.algorithm));
    TRY(cudaEventRecord(t.marks[t.launched++ % MARKS], t.stream));
  }
  return true;
}

inline bool idle(theirs_t &t) { return t.finished == t.launched; }

inline bool drain(theirs_t &t) {
  bool ok = drained(t.stream, 10);
  t.launched = t.finished = 0;
  return ok;
}

inline void stuck(theirs_t &) { printf("cuBLASLt: no run ended for %d s\n", STUCK_S); }

#endif // SIDE_CUBLASLT_H_
