#pragma once
// Loads by tensor map, sm_90 on. PTX ISA "cp.async.bulk.tensor". Every box that is asked for counts
// with its full size on the barrier; what lies outside of the tensor arrives as zeros. `blocks` is
// a mask: the box goes to the same place in each of these blocks of the cluster.
struct alignas(64) tensor_map {
  unsigned long long words[16];
};
// Loads a box at {x, y, z, u}, innermost first.
__device__ inline void tma_load(unsigned to, const tensor_map& map, unsigned barrier, int x, int y,
                                int z, int u) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
__device__ inline void tma_load(unsigned to, const tensor_map& map, unsigned barrier, int x, int y,
                                int z, int u, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u), "h"(blocks)
      : "memory");
}
// Stores a box to {x, y, z, u}; what lies outside of the tensor is not written. The shared memory
// may be written again once the group of the store has been waited for.
__device__ inline void tma_store(const tensor_map& map, unsigned from, int x, int y, int z, int u) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int pending>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
__device__ inline void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
// Orders what threads have written to shared memory before a copy that reads it.
__device__ inline void fence_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Loads pixels from {w, h, d, n} on in the order of the map, each moved by the filter's offset; `c`
// is the first channel.
struct pixel_place {
  int w, h, d, n;
};
struct tap_offset {
  int w, h, d;
};
template <int spatial>
__device__ inline void tma_load_pixels(unsigned to, const tensor_map& map, unsigned barrier, int c,
                                       const pixel_place& at, const tap_offset& tap) {
  const unsigned short w = tap.w, h = tap.h, d = tap.d;
  if constexpr (spatial == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c), "r"(at.w), "r"(at.h), "r"(at.n), "h"(w), "h"(h)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10};" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c), "r"(at.w), "r"(at.h), "r"(at.d), "r"(at.n), "h"(w), "h"(h),
        "h"(d)
        : "memory");
  }
}
template <int spatial>
__device__ inline void tma_load_pixels(unsigned to, const tensor_map& map, unsigned barrier, int c,
                                       const pixel_place& at, const tap_offset& tap,
                                       unsigned short blocks) {
  const unsigned short w = tap.w, h = tap.h, d = tap.d;
  if constexpr (spatial == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c), "r"(at.w), "r"(at.h), "r"(at.n), "h"(w), "h"(h),
        "h"(blocks)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10}, %11;" ::"r"(to),
        "l"(&map), "r"(barrier), "r"(c), "r"(at.w), "r"(at.h), "r"(at.d), "r"(at.n), "h"(w), "h"(h),
        "h"(d), "h"(blocks)
        : "memory");
  }
}
// Stores a box of pixels from {w, h, d, n} on in the order of the map; those outside of the tensor
// are not written.
template <int spatial>
__device__ inline void tma_store_pixels(const tensor_map& map, unsigned from, int c,
                                        const pixel_place& at) {
  if constexpr (spatial == 2) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group "
        "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
        "r"(from), "r"(c), "r"(at.w), "r"(at.h), "r"(at.n)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.im2col_no_offs.bulk_group "
        "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
        "r"(from), "r"(c), "r"(at.w), "r"(at.h), "r"(at.d), "r"(at.n)
        : "memory");
  }
}
