#pragma once
// wgrad_halo_sm90<Config>(dy, x, shape, store): weight gradients of stride 1 on sm_90a,
// slice[split][filter][tap][channel] = sum over the split's pixels i of dy[i] * x[i + tap]. Each
// pixel is loaded once a tile, not once a tap.
//
//   dy, x    tiles of pixels in rows of 64 channels, both kPitch pixels a row: x has the halo, dy
//            zeros in its place. Tap (r, s) of pixel i is pixel i + r * kPitch + s of x: the
//            product along pixels starts some pixels later there
//   group r  of the block owns row r of the filter. Its taps are panels of one wgmma that lie one
//            pixel apart, so that they overlap (leading dimension of one pixel); a filter of more
//            than 4 columns takes a wgmma for each tap
//
// A block sums one run of tiles for 64 filters, 64 channels and kGroups rows of one plane of the
// filter: block b makes part b % (left_tiles * panels * sets), split b / that. Images lie behind
// each other along depth; only those planes of dy count whose plane of x lies inside.

#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

struct wgrad_halo_shape {
#define INT(name, value) int name = value;
#define DEPTH_INT(name, value) int name = value;
#define WGRAD_INT(name, value) int name = value;
#include "codegen/cuda/device/conv/conv_halo.def"
};

template <class C>
struct wgrad_halo {
  static constexpr int kHaloH = (C::kGroups - 1) * C::kDilationH;
  // Strips load dy row by row, each in whole units of the swizzle.
  static constexpr int kWidth = C::kTileWidth + (C::kFilterW - 1) * C::kDilationW;
  static constexpr int kPitch = C::kStrips ? (kWidth + 7) / 8 * 8 : kWidth;
  static constexpr int kPixels = C::kTileRows * kPitch;
  static constexpr int kSteps = (kPixels + 15) / 16;
  static constexpr int kDyBoxBytes = (C::kStrips ? C::kTileWidth : kPitch) * 128;  // of a row
  static constexpr int kDyLoadBytes = C::kTileRows * kDyBoxBytes;
  static constexpr int kXLoadBytes = (C::kTileRows + kHaloH) * kPitch * 128;
  static constexpr int kDyBytes = kSteps * 2048;
  static constexpr int kXBytes =
      ((kHaloH * kPitch + (C::kFilterW - 1) * C::kDilationW + kSteps * 16 + 7) / 8) * 1024;
  static constexpr int kXAt = C::kStages * kDyBytes, kBarriersAt = kXAt + C::kStages * kXBytes;
  static_assert(C::kSharedBytes == kBarriersAt + 16 * C::kStages);
  static_assert(kXLoadBytes <= kXBytes);
  static constexpr int kThreads = 128 * (C::kGroups + 1);
  static constexpr int kParts = C::kFilterW / C::kTapsOfWgmma;
  static constexpr int kSetsOfPlane = (C::kFilterH + C::kGroups - 1) / C::kGroups;
  using accumulators = float[kParts][C::kColumns / 2];

  // Planes of dy for one of the filter.
  struct planes {
    int first, count, to_x;
    __device__ inline planes(const wgrad_halo_shape& s, int z) : to_x(s.low_d + z * C::kDilationD) {
      first = to_x < 0 ? -to_x : 0;
      count = (s.depth < s.in_depth - to_x ? s.depth : s.in_depth - to_x) - first;
    }
  };

  // Clears the memory that no load writes and the products read: the ends of the buffers, and the
  // gaps of dy in strips. It holds zeros, as 0 * NaN is NaN.
  static __device__ inline void clear(unsigned char* shared) {
    constexpr int kFirst = C::kStrips ? 0 : kDyLoadBytes;
#pragma unroll 1
    for (int stage = 0; stage < C::kStages; ++stage) {
      for (int i = kFirst + threadIdx.x * 4; i < kDyBytes; i += kThreads * 4)
        *reinterpret_cast<unsigned*>(shared + stage * kDyBytes + i) = 0;
      for (int i = kXLoadBytes + threadIdx.x * 4; i < kXBytes; i += kThreads * 4)
        *reinterpret_cast<unsigned*>(shared + kXAt + stage * kXBytes + i) = 0;
    }
    fence_for_copies();
  }

  struct ring {
    int stage = 0;
    unsigned phase = 0;
    __device__ inline void advance() {
      if (++stage == C::kStages) {
        stage = 0;
        phase ^= 1;
      }
    }
  };

  static __device__ inline void load_tile(const tensor_map& dy, const tensor_map& x,
                                          const wgrad_halo_shape& s, const planes& p, int tile,
                                          int filter, int channel, int tap_row, unsigned base,
                                          unsigned full, int stage) {
    const int row = tile / s.strips_w, plane = row / s.strips_h, image = plane / p.count;
    const int d = plane - image * p.count + p.first;
    const int h = (row - plane * s.strips_h) * C::kTileRows;
    const int w = (tile - row * s.strips_w) * C::kTileWidth;
    const unsigned to_dy = base + stage * kDyBytes;
    mbarrier_expect(full, kDyLoadBytes + kXLoadBytes);
    if constexpr (C::kStrips) {
#pragma unroll 1
      for (int r = 0; r < C::kTileRows; ++r)
        tma_load(to_dy + r * kPitch * 128, dy, full, filter, w, h + r, image * s.depth + d);
    } else {
      tma_load(to_dy, dy, full, filter, w, h, image * s.depth + d);
    }
    tma_load(base + kXAt + stage * kXBytes, x, full, channel, w + s.low_w,
             h + s.low_h + tap_row * C::kDilationH, image * s.in_depth + d + p.to_x);
  }

  static __device__ inline void multiply_tile(accumulators& acc, unsigned long long dy,
                                              unsigned long long x, bool accumulate) {
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < kSteps; ++kk)
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        C::multiply(acc[part], dy + kk * 128,
                    x + kk * 128 + part * C::kTapsOfWgmma * C::kDilationW * 8,
                    accumulate || kk != 0);
    wgmma_commit();
  }

  template <class Store>
  static __device__ inline void run(const tensor_map& dy, const tensor_map& x,
                                    const wgrad_halo_shape& s, const Store& store) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned base = shared_address(shared_memory), barriers = base + kBarriersAt;
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
      for (int i = 0; i < C::kStages; ++i) {
        mbarrier_init(barriers + 8 * i, 1);
        mbarrier_init(barriers + 8 * (C::kStages + i), C::kGroups);
      }
      mbarrier_init_done();
    }
    clear(shared_memory);
    __syncthreads();
    const int parts = s.left_tiles * s.panels * s.sets;
    const int split = blockIdx.x / parts, splits = gridDim.x / parts;
    const int mine = static_cast<int>(blockIdx.x) - split * parts;
    const int set = mine / (s.left_tiles * s.panels), pair = mine - set * s.left_tiles * s.panels;
    const int panel = pair / s.left_tiles, filter = (pair - panel * s.left_tiles) * 64;
    const int z = set / kSetsOfPlane, tap_row = (set - z * kSetsOfPlane) * C::kGroups;
    const planes p(s, z);
    const long long tiles = static_cast<long long>(s.images) * p.count * s.strips_h * s.strips_w;
    const int first = static_cast<int>(tiles * split / splits);
    const int last = static_cast<int>(tiles * (split + 1) / splits);
    ring r;
    if (group == C::kGroups) {
      if constexpr (C::kProducerRegisters > 0) give_registers<C::kProducerRegisters>();
      if (thread < 32 && elect_one()) {
#pragma unroll 1
        for (int tile = first; tile < last; ++tile) {
          const unsigned full = barriers + 8 * r.stage;
          mbarrier_wait(full + 8 * C::kStages, r.phase ^ 1);
          load_tile(dy, x, s, p, tile, filter, panel * 64, tap_row, base, full, r.stage);
          r.advance();
        }
      }
      return;
    }
    if constexpr (C::kConsumerRegisters > 0) take_registers<C::kConsumerRegisters>();
    const unsigned long long left = descriptor_layout(128, 128) | descriptor_address(base);
    const unsigned long long right =
        descriptor_layout(128, C::kDilationW * 128) |
        descriptor_address(base + kXAt + group * C::kDilationH * kPitch * 128);
    accumulators acc;
    int previous = 0;
#pragma unroll 1
    for (int tile = first; tile < last; ++tile) {
      mbarrier_wait(barriers + 8 * r.stage, r.phase);
      multiply_tile(acc, left + r.stage * (kDyBytes >> 4), right + r.stage * (kXBytes >> 4),
                    tile != first);
      wgmma_wait<1>();  // the products of the tile before are done: its stage may be filled again
      if (tile != first && thread == 0) mbarrier_arrive(barriers + 8 * (C::kStages + previous));
      previous = r.stage;
      r.advance();
    }
    wgmma_wait<0>();
    // Element e of a thread is filter 16 * warp + lane / 4 + 8 * (e / 2 % 2), column
    // 8 * (e / 4) + 2 * (lane % 4) + e % 2 of [taps of a wgmma][64 channels].
    const int filter_row = tap_row + static_cast<int>(group);
    if (filter_row >= C::kFilterH) return;
    const int lane = thread % 32, warp = thread / 32;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
#pragma unroll
      for (int e = 0; e < C::kColumns / 2; e += 2) {
        const float values[2] = {acc[part][e], acc[part][e + 1]};
        const int tap = (z * C::kFilterH + filter_row) * C::kFilterW + part * C::kTapsOfWgmma +
                        8 * (e / 4) / 64;
        const int channel = 8 * (e / 4) % 64 + 2 * (lane % 4);
        store(values, split, (tap * s.panels + panel) * 64 + channel,
              filter + 16 * warp + lane / 4 + 8 * (e / 2 % 2));
      }
  }
};

template <class C, class Store>
__device__ inline void wgrad_halo_sm90(const tensor_map& dy, const tensor_map& x,
                                       const wgrad_halo_shape& shape, const Store& store) {
  wgrad_halo<C>::run(dy, x, shape, store);
}
