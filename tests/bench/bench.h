// bench.h: what the benchmarks of this folder share: checked calls, a clock, a watchdog, statistics
// and blocks of sustained work.
//
// Included by the .cu files here. A benchmark runs on a machine that costs by the minute, so no
// wait is unbounded, every status is looked at, and each line leaves at once.
#ifndef BENCH_H_
#define BENCH_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "meter.h"

// ---- calls --------------------------------------------------------------------------------------

inline bool succeeded(const char *file, int line, const char *call, int status) {
  if (status == 0) return true;
  printf("%s:%d: %s gives %d\n", file, line, call, status);
  fflush(stdout);
  return false;
}

// Of set-up, without which there is nothing to go on with. Not exit: its handlers may wait for a
// kernel that never ends.
#define CHECK(call)                                                                                \
  do {                                                                                             \
    if (!succeeded(__FILE__, __LINE__, #call, (int)(call))) _exit(1);                              \
  } while (0)

// Of what may be missing on a machine: says so, and the function is false.
#define TRY(call)                                                                                  \
  do {                                                                                             \
    if (!succeeded(__FILE__, __LINE__, #call, (int)(call))) return false;                          \
  } while (0)

// ---- time ---------------------------------------------------------------------------------------

inline void nap(double seconds) { usleep((useconds_t)(seconds * 1e6)); }

// Of a stream or event query. "Not ready" stays behind as the last error, where the next look for a
// failed launch would find it.
inline cudaError_t ask(cudaError_t status) {
  if (status == cudaErrorNotReady) cudaGetLastError();
  return status;
}

// Whether the stream has nothing left to do within the time.
inline bool drained(cudaStream_t stream, double limit_s, bool spin = false) {
  double start_s = now_s();
  for (;;) {
    cudaError_t status = ask(cudaStreamQuery(stream));
    if (status == cudaSuccess) return true;
    if (status != cudaErrorNotReady) TRY(status);
    if (now_s() - start_s > limit_s) {
      printf("a stream is not done after %.1f s\n", limit_s);
      return false;
    }
    if (!spin) nap(50e-6);
  }
}

// ---- the watchdog -------------------------------------------------------------------------------

// Driver calls have no timeout: the process ends when nobody has said for so long what it is at.
enum { WATCHDOG_S = 60 };

inline std::atomic<double> &last_beat_s() {
  static std::atomic<double> beat{now_s()};
  return beat;
}
inline std::atomic<const char *> &last_work() {
  static std::atomic<const char *> work{"the start"};
  return work;
}

inline void alive(const char *work) { last_work() = work, last_beat_s() = now_s(); }

inline void start_watchdog() {
  alive("the start");
  std::thread([] {
    while (now_s() - last_beat_s() < WATCHDOG_S) nap(0.2);
    printf("HUNG: nothing was heard for %d s; the last work was: %s\n", WATCHDOG_S,
           last_work().load());
    fflush(stdout);
    _exit(3);
  }).detach();
}

// What every benchmark does before its first CUDA call.
inline void begin_bench() {
  setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  // With the default of 8 hardware queues the stream of a resident kernel may share one with
  // another stream, whose work would then wait until that kernel leaves.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  start_watchdog();
}

// ---- statistics and options ---------------------------------------------------------------------

// 0 <= part <= 1; 0 of nothing.
inline double quantile(std::vector<double> v, double part) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, (size_t)(part * v.size()))];
}
inline double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return (v[v.size() / 2] + v[(v.size() - 1) / 2]) / 2;
}

inline std::vector<int> parse_list(const char *text) {
  std::vector<int> list;
  for (const char *at = text; *at != '\0';) {
    char *end;
    long value = strtol(at, &end, 10);
    if (end == at) break;
    list.push_back((int)value);
    at = *end == ',' ? end + 1 : end;
  }
  return list;
}

// ---- a block of sustained work ------------------------------------------------------------------

// Counts what is done from a moment on, between two completions, so that neither the run under way
// at its start nor the one at its end matters.
struct rate_t {
  double from_s = 0;
  uint64_t last = 0, first_count = 0, last_count = 0;
  double moved_s = 0, first_s = 0, last_s = 0;

  void begin(double now, double from, uint64_t count) {
    *this = rate_t();
    last = count, moved_s = now, from_s = from;
  }
  void see(double now, uint64_t count) {
    if (count == last) return;
    last = count, moved_s = now;
    if (now < from_s) return;
    if (first_s == 0) first_s = now, first_count = count;
    last_s = now, last_count = count;
  }
  uint64_t runs() const { return last_count - first_count; }
  double seconds() const { return last_s - first_s; }
  double per_second() const { return seconds() > 0 ? runs() / seconds() : 0; }
};

enum { STUCK_S = 4 };

struct block_t {
  bool ok = false;
  double tflops = 0, watts = 0, mhz = 0;
};

// Keeps one side busy: feed(side) tops up its queue, done(side) counts finished runs, idle(side) is
// whether none is left, drain(side) waits for all, stuck(side) says why nothing moves. Measures the
// last two thirds: the first one brings chip and clock to where the work holds them. Both sides by
// the host's clock, alike.
template <class SIDE>
block_t run_block(SIDE &side, double seconds, double flops, const meter_t &meter) {
  block_t block;
  rate_t rate;
  double start_s = now_s(), from_s = start_s + seconds / 3, end_s = start_s + seconds;
  int late = 0;
  rate.begin(start_s, from_s, done(side));
  for (double now = start_s; now < end_s; now = now_s()) {
    rate.see(now_s(), done(side));
    late += now > start_s && idle(side);
    if (!feed(side)) return block;
    if (now - rate.moved_s > STUCK_S) {
      stuck(side);
      return block;
    }
    nap(50e-6);
  }
  if (!drain(side)) return block;
  block.tflops = rate.per_second() * flops * 1e-12;
  block.watts = meter.watts(from_s, end_s), block.mhz = meter.mhz(from_s, end_s);
  block.ok = rate.runs() > 0;
  if (late > 0) printf("the host was late %d times; the next figure is too low\n", late);
  if (!block.ok) printf("too few runs in %.1f s to measure a rate\n", seconds);
  return block;
}

#endif // BENCH_H_
