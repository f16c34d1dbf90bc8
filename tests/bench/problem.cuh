// problem.cuh: the GEMM of an artefact, c [M,N] = a [M,K] b [N,K]^T, with random data for both
// sides and the checks of a result.
//
// Included by gemm.cu and guest.cu. problem_t owns what it holds on GPU and host.
#ifndef PROBLEM_CUH_
#define PROBLEM_CUH_

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cmath>

#include "bench.h"
#include "gpuos.h"

struct problem_t {
  int m = 0, n = 0, k = 0;
  bool fp8 = false; // e4m3, otherwise bf16; c is bf16
  bool scaled = false;
  float a_scale = 1, b_scale = 1;
  void *a = nullptr, *b = nullptr; // device: cuBLASLt's copies
  uint16_t *c = nullptr;           // device: cuBLASLt's result
  float *scales = nullptr;         // device: of a, and 16 bytes further of b (cuBLASLt wants them aligned)
  std::vector<uint8_t> host_a, host_b;

  double flops() const { return 2.0 * m * n * k; }
  size_t elem_bytes() const { return fp8 ? 1 : 2; }
  size_t a_bytes() const { return (size_t)m * k * elem_bytes(); }
  size_t b_bytes() const { return (size_t)n * k * elem_bytes(); }
  size_t c_elems() const { return (size_t)m * n; }
  const char *dtype() const { return fp8 ? "fp8 e4m3" : "bf16"; }
  std::string shape() const {
    return std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k);
  }
};

// ---- from the artefact --------------------------------------------------------------------------

inline bool find_tensor(const gpuos_program_t *program, const char *name,
                        gpuos_tensor_info_t *out_info) {
  for (uint32_t i = 0; i < gpuos_program_tensor_count(program); i++) {
    *out_info = gpuos_program_tensor(program, i);
    if (strcmp(out_info->name, name) == 0) return true;
  }
  return false;
}

inline bool problem_describe(const gpuos_program_t *program, problem_t *p) {
  gpuos_tensor_info_t a, b, c, scale;
  bool found = find_tensor(program, "a", &a) && find_tensor(program, "b", &b) &&
               find_tensor(program, "c", &c) && a.rank == 2 && b.rank == 2 && c.rank == 2;
  if (!found || a.shape[1] != b.shape[1] || c.shape[0] != a.shape[0] || c.shape[1] != b.shape[0]) {
    printf("no GEMM: wanted a [M,K], b [N,K] and c [M,N]\n");
    return false;
  }
  p->m = (int)a.shape[0], p->n = (int)b.shape[0], p->k = (int)a.shape[1];
  p->fp8 = strcmp(a.dtype, "e4m3") == 0;
  p->scaled = find_tensor(program, "a_scale", &scale) && find_tensor(program, "b_scale", &scale);
  bool known = p->fp8 || strcmp(a.dtype, "bf16") == 0;
  if (known && strcmp(a.dtype, b.dtype) == 0 && strcmp(c.dtype, "bf16") == 0) return true;
  printf("not measured: a is %s, b is %s, c is %s; wanted two of e4m3 or bf16, and a bf16 result\n",
         a.dtype, b.dtype, c.dtype);
  return false;
}

// ---- data ---------------------------------------------------------------------------------------

// Normals of standard deviation `spread`, rounded to T: what operands look like, which power and so
// the clock depend on (zeros multiply 10 % faster; HARDWARE.md).
template <class T> __global__ void fill_normals(T *to, size_t count, uint32_t seed, float spread) {
  size_t stride = (size_t)gridDim.x * blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += stride) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1342543de82ef95ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    float u = ((uint32_t)x | 1) * 2.3283064e-10f, v = (uint32_t)(x >> 32) * 2.3283064e-10f;
    to[i] = T(spread * sqrtf(-2 * logf(u)) * cospif(2 * v));
  }
}

inline void fill_operand(const problem_t &p, void *to, size_t bytes, uint32_t seed, float spread) {
  if (p.fp8)
    fill_normals<<<2048, 256>>>((__nv_fp8_e4m3 *)to, bytes, seed, spread);
  else
    fill_normals<<<2048, 256>>>((__nv_bfloat16 *)to, bytes / 2, seed, spread);
  CHECK(cudaGetLastError());
}

// Draws the data. No kernel may be resident: allocating waits for it.
inline void problem_fill(problem_t *p) {
  // Scales that are no powers of two: multiplying by them rounds.
  if (p->scaled) p->a_scale = 0.37f, p->b_scale = 0.011f;
  float scales[8] = {p->a_scale, 0, 0, 0, p->b_scale};
  CHECK(cudaMalloc(&p->a, p->a_bytes()));
  CHECK(cudaMalloc(&p->b, p->b_bytes()));
  CHECK(cudaMalloc(&p->c, p->c_elems() * 2));
  CHECK(cudaMalloc(&p->scales, sizeof scales));
  CHECK(cudaMemcpy(p->scales, scales, sizeof scales, cudaMemcpyHostToDevice));
  fill_operand(*p, p->a, p->a_bytes(), 3, p->fp8 ? 0.5f : 1.0f);
  fill_operand(*p, p->b, p->b_bytes(), 4, p->fp8 ? 0.5f : 0.02f);
  p->host_a.resize(p->a_bytes()), p->host_b.resize(p->b_bytes());
  CHECK(cudaMemcpy(p->host_a.data(), p->a, p->a_bytes(), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(p->host_b.data(), p->b, p->b_bytes(), cudaMemcpyDeviceToHost));
}

inline void problem_free(problem_t *p) {
  CHECK(cudaFree(p->a));
  CHECK(cudaFree(p->b));
  CHECK(cudaFree(p->c));
  CHECK(cudaFree(p->scales));
  *p = problem_t();
}

// ---- checks -------------------------------------------------------------------------------------

// Relative RMS. bf16 rounding alone is 1.7e-3; an FP8 GEMM by wgmma has 2.6e-3 at K = 8192
// (results/2026-11-29-h200.md), and between two roundings of one sum it is sqrt(2) times as much.
inline double most_error(const problem_t &p) { return p.fp8 ? 8e-3 : 4e-3; }

inline float from_bf16(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

inline double operand(const problem_t &p, const std::vector<uint8_t> &data, size_t i) {
  if (p.fp8) {
    __nv_fp8_e4m3 value;
    value.__x = data[i];
    return (double)(float)value;
  }
  uint16_t bits;
  memcpy(&bits, &data[2 * i], sizeof bits);
  return from_bf16(bits);
}

// The i-th of `count` places below `size`: both ends, and others without a pattern.
inline size_t sample_place(int i, int count, int size) {
  if (i == 0) return 0;
  return i == count - 1 ? size - 1 : (uint32_t)i * 2654435761u % (uint32_t)size;
}

inline double error_against_double(const problem_t &p, const std::vector<uint16_t> &c) {
  const int rows = 8, columns = 64;
  double wrong = 0, all = 0;
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      size_t m = sample_place(i, rows, p.m), n = sample_place(j, columns, p.n);
      double sum = 0;
      for (int k = 0; k < p.k; k++)
        sum += operand(p, p.host_a, m * p.k + k) * operand(p, p.host_b, n * p.k + k);
      sum *= (double)p.a_scale * p.b_scale;
      double d = from_bf16(c[m * p.n + n]) - sum;
      wrong += d * d, all += sum * sum;
    }
  return sqrt(wrong / all);
}

// Of all elements; NaN, the poison, if one is left in either.
inline double error_against(const std::vector<uint16_t> &c, const std::vector<uint16_t> &other) {
  double wrong = 0, all = 0;
  for (size_t i = 0; i < c.size(); i++) {
    double y = from_bf16(other[i]), d = from_bf16(c[i]) - y;
    wrong += d * d, all += y * y;
  }
  return sqrt(wrong / all);
}

#endif // PROBLEM_CUH_
