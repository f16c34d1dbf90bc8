// bulk.cuh: bulk copies and the mbarriers that count their bytes, for the programs that measure rings of them.
#pragma once
#include <cstdint>

#define DEVICE static __device__ __forceinline__

DEVICE uint32_t shared(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }
DEVICE void init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
DEVICE void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
DEVICE void wait(uint32_t barrier, uint32_t parity) {
  for (uint32_t over = 0; !over;)
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "
                 "selp.u32 %0, 1, 0, p;}"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
}
DEVICE void copy(uint32_t to, const uint8_t *from, uint32_t bytes, uint32_t barrier,
                 uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
               "[%0], [%1], %2, [%3], %4;" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
               : "memory");
}
