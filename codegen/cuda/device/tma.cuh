#pragma once
// Loads by tensor map, sm_90 on. PTX ISA "cp.async.bulk.tensor". Every box that is asked for counts
// with its full size on the barrier; what lies outside of the tensor arrives as zeros. `blocks` is
// a mask: the box goes to the same place in each of these blocks of the cluster.
struct alignas(64) tensor_map {
  unsigned long long words[16];
};
// A box at {x, y, z, u}, innermost first.
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
// Pixels from {w, h, d, n} on in the order of the map, each moved by the filter's offset; `c` is
// the first channel.
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
