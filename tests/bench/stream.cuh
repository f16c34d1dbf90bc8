// stream.cuh: a stream that saturates the chip's memory, as the decode of a large model does.
//
// One CTA an SM, 256 threads with 40 rolling 16-byte loads each, parts of 1.25 MiB handed out by an
// atomic ticket: the read ceiling from 56 SMs on (cta_shape.cu, results/2026-11-29-h200.md). One
// step reads all of the data once; steps follow each other without a gap. Used by guest.cu, one
// thread.
#ifndef STREAM_CUH_
#define STREAM_CUH_

#include "problem.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#error "build with -arch=sm_90a"
#endif

enum {
  STREAM_THREADS = 256,
  STREAM_LOADS = 40,
  STREAM_ROUNDS = 8, // of all threads' loads, a ticket
  TICKET_WORDS = STREAM_THREADS * STREAM_LOADS * STREAM_ROUNDS,
  STREAM_STEPS = 65536, // of one block, at most; each has a ticket counter of its own
  STREAM_AHEAD = 12,    // steps in the queue: the host may be away for 40 ms
  STREAM_EVENTS = 32,
  STREAM_MOST_CTAS = 256,
};

// ---- the kernel ---------------------------------------------------------------------------------

__device__ __forceinline__ uint4 load_first(const uint4 *p, uint64_t policy) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0,%1,%2,%3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p), "l"(policy));
  return v;
}

__device__ __forceinline__ uint32_t mixed(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

__device__ __forceinline__ uint32_t read_ticket(const uint4 *from, uint64_t policy) {
  uint4 v[STREAM_LOADS];
  uint32_t sum = 0;
  const uint4 *p = from + threadIdx.x;
#pragma unroll
  for (int i = 0; i < STREAM_LOADS; i++) v[i] = load_first(p + i * STREAM_THREADS, policy);
  for (int round = 1; round < STREAM_ROUNDS; round++) {
    p += STREAM_THREADS * STREAM_LOADS;
#pragma unroll
    for (int i = 0; i < STREAM_LOADS; i++) { // rolling: the word is used and its place refilled
      sum ^= mixed(v[i]);
      v[i] = load_first(p + i * STREAM_THREADS, policy);
    }
  }
#pragma unroll
  for (int i = 0; i < STREAM_LOADS; i++) sum ^= mixed(v[i]);
  return sum;
}

// Says where its CTAs are. `out` keeps the loads from being left out.
__global__ void __launch_bounds__(STREAM_THREADS, 1)
    stream_kernel(const uint4 *data, uint32_t tickets, uint32_t *ticket, uint32_t *smids,
                  uint32_t *out) {
  __shared__ uint32_t mine[2];
  uint64_t policy;
  uint32_t smid, sum = 0;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("mov.u32 %0, %%smid;" : "=r"(smid));
  if (threadIdx.x == 0) smids[blockIdx.x] = smid, mine[0] = atomicAdd(ticket, 1);
  __syncthreads();
  for (int turn = 0;; turn ^= 1) {
    uint32_t t = mine[turn];
    if (t >= tickets) break;
    if (threadIdx.x == 0) mine[turn ^ 1] = atomicAdd(ticket, 1); // while this one's words fly
    sum ^= read_ticket(data + (uint64_t)t * TICKET_WORDS, policy);
    __syncthreads();
  }
  if (sum == 0x12345678) out[blockIdx.x] = sum;
}

// ---- the stream ---------------------------------------------------------------------------------

struct stream_t {
  uint4 *data = nullptr;
  size_t bytes = 0;
  uint32_t tickets = 0;
  uint32_t *counters = nullptr, *smids = nullptr, *out = nullptr;
  cudaStream_t own = nullptr; // of the whole chip
  cudaStream_t on = nullptr;  // where steps go
  int ctas = 0;
  cudaEvent_t marks[STREAM_EVENTS] = {}; // before and after each step, in a ring
  uint64_t launched = 0, finished = 0;   // steps of this block
  uint64_t late = 0;                     // the last one that the host launched too late
};

// Lives as long as the process. A CTA must have an SM to itself by its registers alone: shared
// memory would be taken from the L1 cache, through which its loads come.
inline bool stream_open(stream_t *s, size_t gib) {
  int ctas_per_sm = 0;
  s->bytes = gib << 30, s->tickets = (uint32_t)(s->bytes / 16 / TICKET_WORDS);
  TRY(cudaMalloc(&s->data, s->bytes));
  TRY(cudaMalloc(&s->counters, STREAM_STEPS * sizeof(uint32_t)));
  TRY(cudaMalloc(&s->smids, STREAM_MOST_CTAS * sizeof(uint32_t)));
  TRY(cudaMalloc(&s->out, STREAM_MOST_CTAS * sizeof(uint32_t)));
  TRY(cudaStreamCreateWithFlags(&s->own, cudaStreamNonBlocking));
  for (cudaEvent_t &mark : s->marks) TRY(cudaEventCreate(&mark));
  fill_normals<<<2048, 256>>>((__nv_bfloat16 *)s->data, s->bytes / 2, 1, 0.02f); // as weights are
  TRY(cudaGetLastError());
  TRY(cudaDeviceSynchronize());
  TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&ctas_per_sm, stream_kernel, STREAM_THREADS,
                                                    0));
  if (ctas_per_sm != 1) printf("an SM holds %d CTAs of the stream, not one\n", ctas_per_sm);
  return ctas_per_sm == 1;
}

// A new block, of `ctas` CTAs on a stream of the whole chip or of a green context.
inline bool stream_begin(stream_t *s, cudaStream_t on, int ctas) {
  s->on = on, s->ctas = ctas, s->launched = s->finished = s->late = 0;
  TRY(cudaMemsetAsync(s->counters, 0, STREAM_STEPS * sizeof(uint32_t), on));
  TRY(cudaEventRecord(s->marks[0], on));
  return drained(on, 10);
}

// Tops up the queue. Times of finished steps go to `out_s`, if there is one.
inline bool stream_feed(stream_t *s, std::vector<double> *out_s) {
  float ms;
  while (s->finished < s->launched) {
    cudaEvent_t from = s->marks[s->finished % STREAM_EVENTS];
    cudaEvent_t to = s->marks[(s->finished + 1) % STREAM_EVENTS];
    cudaError_t status = ask(cudaEventQuery(to));
    if (status == cudaErrorNotReady) break;
    TRY(status);
    TRY(cudaEventElapsedTime(&ms, from, to));
    // A step that the GPU had to wait for would count the wait.
    if (out_s != nullptr && s->finished != s->late) out_s->push_back(ms * 1e-3);
    s->finished++;
  }
  if (s->finished == s->launched) s->late = s->launched;
  while (s->launched - s->finished < STREAM_AHEAD && s->launched < STREAM_STEPS) {
    stream_kernel<<<s->ctas, STREAM_THREADS, 0, s->on>>>(
        s->data, s->tickets, s->counters + s->launched, s->smids, s->out);
    TRY(cudaGetLastError());
    TRY(cudaEventRecord(s->marks[++s->launched % STREAM_EVENTS], s->on));
  }
  return true;
}

// Which SMs the last step ran on.
inline bool stream_sms(stream_t *s, std::vector<uint32_t> *out_smids) {
  out_smids->resize(s->ctas);
  TRY(cudaMemcpyAsync(out_smids->data(), s->smids, s->ctas * sizeof(uint32_t),
                      cudaMemcpyDeviceToHost, s->own));
  return drained(s->own, 10);
}

#endif // STREAM_CUH_
