#pragma once
// Copies of contiguous bytes by the async proxy, sm_90 on. PTX ISA "cp.async.bulk"; whole 16 bytes,
// which count on the barrier when they are there.
__device__ inline void bulk_load(unsigned to, const void* from, unsigned bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Between what threads write or read in memory, shared or not, and copies by the async proxy of the
// same places. PTX ISA "membar.proxy".
__device__ inline void fence_for_bulk() { asm volatile("fence.proxy.async;" ::: "memory"); }
