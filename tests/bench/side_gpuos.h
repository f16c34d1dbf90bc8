// side_gpuos.h: our side of a comparison: a GEMM of gpuosc, run by libgpuos.
//
// One thread. feed, done, idle, drain and stuck are what run_block (bench.h) asks of a side; run_s
// is the time of one run, which says how many steps make a queue of some milliseconds.
#ifndef SIDE_GPUOS_H_
#define SIDE_GPUOS_H_

#include "problem.cuh"

struct ours_t {
  gpuos_device_t *device = nullptr;
  gpuos_program_t *program = nullptr;
  double run_s = 1e-3;
  bool running = false; // steps were submitted and not waited for
};

inline bool said(const ours_t &o, const char *what, gpuos_status_t status) {
  if (status == GPUOS_OK) return true;
  printf("gpuos: %s: %s: %s\n", what, gpuos_status_name(status), gpuos_device_error(o.device));
  return false;
}

// ---- open and close -----------------------------------------------------------------------------

// 0 SMs: all. 0 us without work before the kernel leaves: 2 ms.
inline bool ours_open_device(ours_t *o, uint32_t sm_count, uint32_t linger_us) {
  gpuos_device_options_t options = {};
  options.kind = GPUOS_DEVICE_CUDA;
  options.sm_count = sm_count;
  options.linger_us = linger_us;
  options.wait_limit_us = 2000000; // a stall is to be told before STUCK_S
  return said(*o, "open", gpuos_device_open(&options, &o->device));
}

inline bool ours_load(ours_t *o, const char *path) {
  return said(*o, path, gpuos_program_load_file(o->device, path, &o->program));
}

// Both accept what was never made.
inline void ours_unload(ours_t *o) {
  gpuos_program_destroy(o->program);
  o->program = nullptr, o->running = false;
}
inline void ours_close(ours_t *o) {
  ours_unload(o);
  gpuos_device_close(o->device);
  o->device = nullptr;
}

// ---- data ---------------------------------------------------------------------------------------

inline bool ours_write(ours_t *o, const char *name, const void *data, size_t bytes) {
  return said(*o, name, gpuos_program_write(o->program, name, data, bytes));
}

inline bool ours_give(ours_t *o, const problem_t &p) {
  if (!ours_write(o, "a", p.host_a.data(), p.host_a.size())) return false;
  if (!ours_write(o, "b", p.host_b.data(), p.host_b.size())) return false;
  if (!p.scaled) return true;
  return ours_write(o, "a_scale", &p.a_scale, 4) && ours_write(o, "b_scale", &p.b_scale, 4);
}

// All bits set: NaN in bf16.
inline bool ours_poison(ours_t *o, const problem_t &p) {
  std::vector<uint16_t> poison(p.c_elems(), 0xffff);
  return ours_write(o, "c", poison.data(), poison.size() * 2);
}

inline bool ours_read(ours_t *o, const problem_t &p, std::vector<uint16_t> *out_c) {
  out_c->resize(p.c_elems());
  return said(*o, "read c", gpuos_program_read(o->program, "c", out_c->data(), p.c_elems() * 2));
}

// ---- runs ---------------------------------------------------------------------------------------

// Polls: gpuos_wait naps, and is late by up to a thirtieth of the time.
inline bool ours_wait(ours_t *o, double limit_s) {
  gpuos_status_t status;
  for (double start_s = now_s();;) {
    status = gpuos_wait(o->program, 0);
    if (status != GPUOS_TIMEOUT || now_s() - start_s > limit_s) break;
  }
  o->running = status == GPUOS_TIMEOUT;
  return said(*o, "wait", status);
}

// `count` steps in a row, and the time that they took together by the host's clock.
inline bool ours_run(ours_t *o, uint32_t count, double *out_wall_s) {
  double start_s = now_s();
  if (!said(*o, "submit", gpuos_submit_steps(o->program, count))) return false;
  o->running = true;
  bool ok = ours_wait(o, 10);
  *out_wall_s = now_s() - start_s;
  return ok;
}

// How long a run takes with the SMs that are lent; the first one launches.
inline bool ours_learn(ours_t *o) {
  double wall_s;
  if (!ours_run(o, 1, &wall_s) || !ours_run(o, 2, &wall_s)) return false;
  o->run_s = wall_s / 2;
  return true;
}

inline bool ours_quiesce(ours_t *o) {
  o->running = false;
  return said(*o, "quiesce", gpuos_quiesce(o->program, 10ull * 1000 * 1000 * 1000));
}

// Spread over the GPCs.
inline bool ours_lend(ours_t *o, uint32_t sms) {
  return said(*o, "lend", gpuos_lend_count(o->program, sms));
}

// ---- what run_block asks for --------------------------------------------------------------------

inline uint64_t done(ours_t &o) {
  gpuos_progress_t progress = {};
  gpuos_program_progress(o.program, &progress);
  return progress.steps_done;
}

// 40 to 60 ms of steps, or two, lie in the queue, about as much as on the other side.
inline bool feed(ours_t &o) {
  gpuos_progress_t progress = {};
  if (!said(o, "progress", gpuos_program_progress(o.program, &progress))) return false;
  uint64_t open = progress.steps_submitted - progress.steps_done;
  if (open >= 2 && open * o.run_s > 0.04) return true;
  uint32_t count = std::max(2u, (uint32_t)(0.02 / o.run_s));
  o.running = true;
  return said(o, "submit", gpuos_submit_steps(o.program, count));
}

inline bool idle(ours_t &o) {
  gpuos_progress_t progress = {};
  gpuos_program_progress(o.program, &progress);
  return progress.steps_done == progress.steps_submitted;
}

inline bool drain(ours_t &o) { return !o.running || ours_wait(&o, 10); }

inline void stuck(ours_t &o) {
  printf("gpuos: no step ended for %d s\n", STUCK_S);
  said(o, "why", gpuos_wait(o.program, 10ull * 1000 * 1000 * 1000));
}

#endif // SIDE_GPUOS_H_
