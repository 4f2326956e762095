#pragma once
// conv_halo_sm90<Config>(weights, pixels, shape, store), or
// conv_halo_sm90<Config>(weights, pixels, out, shape, rows, apply): convolutions of stride 1 with
// up to 64 channels along k on sm_90a. Each pixel is loaded once a tile, not once a tap.
//
//   weights  all taps of 64 rows of the result, resident: [tap][64 rows][channels], or
//            [tap][channels][64 rows] where the rows are contiguous in memory (dgrad)
//   pixels   a tile's input with its halo, one box. Rows of a tile are kPitch pixels apart, halo
//            included, so that tap (r, s) of column i is pixel i + r * kPitch + s: a descriptor
//            that starts some pixels later. The swizzle follows absolute addresses, so it may start
//            at any of them, with a base offset of 0
//
//      input 6 x 10, filter 3 x 3, tile 4 x 8      columns of wgmma: 8 places, 2 without use,
//        . h h h h h h h h .                       8 places, …; the last 2 are left out
//        h p p p p p p p p h
//        …
//
//   producer warp  TMA → ring of kBuffers buffers → two groups, each a tile of its own, in turns:
//                  one stores, through the buffer that its input came in, while the other
//                  multiplies
//
// The grid is persistent. A block keeps its 64 rows of the result: block b makes rows b %
// left_tiles.

#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

struct conv_halo_shape {
#define INT(name, value) int name = value;
#define PLACES_INT(name, value) int name = value;
#include "codegen/cuda/device/conv/conv_halo.def"
};

template <class C>
struct conv_halo {
  static constexpr int kTaps = C::kFilterD * C::kFilterH * C::kFilterW;
  static constexpr int kHaloH = (C::kFilterH - 1) * C::kDilationH;
  static constexpr int kHaloW = (C::kFilterW - 1) * C::kDilationW;
  static constexpr int kPitch = C::kTileWidth + kHaloW;
  static constexpr int kTapBytes = 64 * C::kRowBytes;
  static constexpr int kBoxBytes = (C::kTileRows + kHaloH) * kPitch * C::kRowBytes;
  static constexpr int kRowOfTapsBytes = C::kFilterW * kTapBytes;
  static constexpr int kBuffersAt = C::kWeightRows * kRowOfTapsBytes;
  // Full operands have boxes of their own, and barriers behind the others (conv_halo_full_sm90).
  static constexpr int kFullAt = kBuffersAt + C::kBuffers * C::kBufferBytes;
  static constexpr int kBarriersAt = kFullAt + 2 * C::kFull * C::kOutBytes;
  static constexpr int kFullBarriersAt = kBarriersAt + 16 * C::kBuffers + 8 * C::kWeightBarriers;
  static_assert(C::kSharedBytes == kFullBarriersAt + (C::kFull > 0 ? 32 : 0));
  static __device__ inline unsigned full_boxes(unsigned memory, unsigned group) {
    return memory + kFullAt + group * C::kFull * C::kOutBytes;
  }
  static __device__ inline unsigned full_barrier(unsigned memory, unsigned group) {
    return memory + kFullBarriersAt + 16 * group;
  }
  using accumulators = float[C::kColumns / 2];

  struct place {
    int image, h, w;
  };
  static __device__ inline place place_of(const conv_halo_shape& s, int tile) {
    const int row = tile / s.strips_w, image = row / s.strips_h;
    return {image, (row - image * s.strips_h) * C::kTileRows,
            (tile - row * s.strips_w) * C::kTileWidth};
  }

  // The place inside the tile of a column of wgmma.
  struct column_place {
    int h, w;
  };
  static __device__ inline column_place place_in_tile(int column) {
    const int h = column / kPitch;
    return {h, column - h * kPitch};
  }

  // The pixel of the result's box that a column is.
  static __device__ inline unsigned pixel_of(unsigned column) {
    if constexpr (!C::kStrips) return column;
    const column_place at = place_in_tile(static_cast<int>(column));
    return at.w < C::kTileWidth
               ? at.h * C::kTileWidth + at.w
               : C::kTileRows * C::kTileWidth + at.h * kHaloW + at.w - C::kTileWidth;
  }

  // ---- producer

  static __device__ inline void load_weights(const tensor_map& weights, unsigned to, unsigned full,
                                             int row, int first, int taps) {
    mbarrier_expect(full, taps * kTapBytes);
#pragma unroll 1
    for (int tap = first; tap < first + taps; ++tap, to += kTapBytes) {
      const int filter = C::kMirrored ? kTaps - 1 - tap : tap;
      if constexpr (C::kLeftMajor == kMajorK)
        tma_load(to, weights, full, 0, row, filter, 0);
      else
        tma_load(to, weights, full, row, 0, filter, 0);
    }
  }

  // ---- consumers

  // The products of one row of the filter, `weights` and `pixels` being those of its first tap.
  static __device__ inline void multiply_row(accumulators& acc, unsigned long long weights,
                                             unsigned long long pixels, bool accumulate) {
    // Encoded steps along k: 32 bytes of a row, or 16 rows of 128 bytes.
    constexpr int kLeftStep = C::kLeftMajor == kMajorK ? 2 : 128;
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < C::kFilterW; ++s)
#pragma unroll
      for (int kk = 0; kk < C::kSteps; ++kk)
        C::multiply(acc, weights + s * (kTapBytes >> 4) + kk * kLeftStep,
                    pixels + (s * C::kDilationW * C::kRowBytes >> 4) + kk * 2,
                    accumulate || (s | kk) != 0);
    wgmma_commit();
  }
  static constexpr int kNextRow = C::kDilationH * kPitch * C::kRowBytes >> 4;

  static __device__ inline void multiply_tile(accumulators& acc, unsigned long long weights,
                                              unsigned long long pixels) {
    // A group of products in flight and one behind it: without a wait in the loop the compiler adds
    // fences of its own, and around few accumulators it would do so in a loop of any form.
    constexpr int kRowsAtOnce = C::kColumns <= 64 ? C::kFilterH : 1;
#pragma unroll kRowsAtOnce
    for (int r = 0; r < C::kFilterH; ++r) {
      multiply_row(acc, weights + r * (kRowOfTapsBytes >> 4), pixels + r * kNextRow, r != 0);
      wgmma_wait<1>();
    }
  }

  // Accumulators → staging → store, kChunk columns at a time. Element e of a thread is row
  // 16 * warp + lane / 4 + 8 * (e / 2 % 2), column 8 * (e / 4) + 2 * (lane % 4) + e % 2.
  template <class Store>
  struct staged_output {
    const Store& store;
    // The pitch puts a warp's stores in 32 banks.
    static constexpr int kStagingPitch = 68, kChunk = 32;
    static_assert(C::kBufferBytes >= kChunk * kStagingPitch * 4);

    __device__ inline void operator()(const accumulators& acc, const conv_halo_shape& s,
                                      const place& p, int first_left, unsigned char* buffer,
                                      unsigned group, unsigned thread) const {
      float* const staging = reinterpret_cast<float*>(buffer);
      const int lane = thread % 32, warp = thread / 32;
      float* const mine = staging + 2 * (lane % 4) * kStagingPitch + 16 * warp + lane / 4;
      const int image = p.image * s.places_h;
      int first_h = p.h;
#pragma unroll
      for (int chunk = 0; chunk < C::kColumns; chunk += kChunk) {
        // Keeps the compiler from computing the addresses of all chunks at once, for which there
        // are no registers.
        asm volatile("" : "+r"(first_h));
        named_barrier_sync(1 + group, 128);
#pragma unroll
        for (int e = 0; e < kChunk / 2; ++e)
          if (chunk + 2 * e < C::kColumns)
            mine[(8 * (e / 4) + e % 2) * kStagingPitch + 8 * (e / 2 % 2)] = acc[chunk / 2 + e];
        named_barrier_sync(1 + group, 128);
#pragma unroll
        for (int v = 0; v < kChunk / 16; ++v) {
          // Lanes 0..3 take the first halves of a column, 4..7 those of the next: no two in one
          // bank.
          const int left = (lane % 4 + lane / 8 % 2 * 4) * 8;
          const int column = lane / 4 % 2 + lane / 16 * 2 + warp * 4 + v * 16;
          const column_place in_tile = place_in_tile(chunk + column);
          const int h = first_h + in_tile.h, w = p.w + in_tile.w;
          if (chunk + column >= C::kColumns || in_tile.h >= C::kTileRows ||
              in_tile.w >= C::kTileWidth || h >= s.places_h || w >= s.places_w)
            continue;
          float values[8];
          const float4* from =
              reinterpret_cast<const float4*>(staging + column * kStagingPitch + left);
          *reinterpret_cast<float4*>(values) = from[0];
          *reinterpret_cast<float4*>(values + 4) = from[1];
          store(values, 0, 0, first_left + left, (image + h) * s.places_w + w);
        }
      }
      // The next load writes here, by way of another proxy.
      fence_for_copies();
      named_barrier_sync(1 + group, 128);
    }
    __device__ inline void finish(unsigned) const {}
  };

  // Accumulators → apply, pair by pair → the buffer as [pixel][64 rows], by transposing stores →
  // one box. The operands of `apply` belong to a row: rows(batch, left) reads them once for a tile.
  // The map clips what is outside of the result; waste columns lie outside where a tile is as wide
  // as the image, and are sorted to the end where it is not.
  template <class Rows, class Apply>
  struct direct_output {
    const tensor_map& map;
    const Rows& rows;
    const Apply& apply;
    static constexpr int kOperands = C::kOperands > 0 ? C::kOperands : 1;

    __device__ inline unsigned pair(float a, float b, const float (&operands)[kOperands]) const {
      float x[1], y[1];
      apply(a, operands, x);
      apply(b, operands, y);
      return pack_pair<C::kPackBf16>(x[0], y[0]);
    }

    __device__ inline void operator()(const accumulators& acc, const conv_halo_shape& s,
                                      const place& p, int first_left, unsigned char* buffer,
                                      unsigned group, unsigned thread) const {
      const unsigned lane = thread % 32, warp = thread / 32, to = shared_address(buffer);
      float low[kOperands], high[kOperands];
      const int row = first_left + 16 * warp + lane / 4;
      rows(0, row, low);
      rows(0, row + 8, high);
#pragma unroll
      for (int g = 0; g < C::kColumns / 16; ++g) {
        const float* const v = acc + g * 8;
        const unsigned pixel = pixel_of(g * 16 + lane % 8 + lane / 16 * 8);
        const unsigned chunk = warp * 2 + lane / 8 % 2;  // of 8 rows: 16 bytes
        store_transposed(to + pixel * 128 + ((chunk ^ (pixel % 8)) << 4), pair(v[0], v[1], low),
                         pair(v[2], v[3], high), pair(v[4], v[5], low), pair(v[6], v[7], high));
      }
      if constexpr (C::kColumns % 16 != 0) {
        const float* const v = acc + C::kColumns / 2 - 4;
        const unsigned pixel = pixel_of(C::kColumns - 8 + lane % 8);
        const unsigned chunk = warp * 2 + lane / 8 % 2;
        store_transposed(to + pixel * 128 + ((chunk ^ (pixel % 8)) << 4), pair(v[0], v[1], low),
                         pair(v[2], v[3], high));
      }
      fence_for_copies();
      named_barrier_sync(1 + group, 128);
      if (thread == 0) {
        tma_store(map, to, first_left, p.w, p.h, p.image);
        tma_store_commit();
        tma_store_wait_read<0>();
      }
    }
    __device__ inline void finish(unsigned thread) const {
      if (thread == 0) tma_store_wait();
    }
  };

  template <class Output>
  static __device__ inline void run(const tensor_map& weights, const tensor_map& pixels,
                                    const conv_halo_shape& s, Output output) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const unsigned base = shared_address(shared_memory);
    const unsigned barriers = base + kBarriersAt, weights_full = barriers + 16 * C::kBuffers;
    const unsigned group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;
    if (threadIdx.x == 0) {
      for (int i = 0; i < C::kBuffers; ++i) {
        mbarrier_init(barriers + 8 * i, 1);
        mbarrier_init(barriers + 8 * (C::kBuffers + i), 1);
      }
      mbarrier_init(weights_full, 1);
      if constexpr (C::kFull > 0) output.init(full_barrier(base, 0));
      mbarrier_init_done();
    }
    __syncthreads();
    const int tiles = s.images * s.strips_h * s.strips_w;
    const int first_left = static_cast<int>(blockIdx.x) % s.left_tiles * 64;
    const int first = blockIdx.x / s.left_tiles, step = gridDim.x / s.left_tiles;
    if (group == 2) {
      give_registers<C::kProducerRegisters>();
      if constexpr (C::kFull > 0) {
        const unsigned of = thread / 32 - 1;
        if (thread >= 32 && of < 2 && elect_one())
          output.move(s, first + static_cast<int>(of) * step, tiles, 2 * step, first_left,
                      full_boxes(base, of), full_barrier(base, of));
      }
      if (thread < 32 && elect_one()) {
        load_weights(weights, base, weights_full, first_left, 0, kTaps);
#pragma unroll 1
        for (int turn = 0, tile = first; tile < tiles; ++turn, tile += step) {
          const unsigned full = barriers + 8 * (turn % C::kBuffers);
          mbarrier_wait(full + 8 * C::kBuffers, (turn / C::kBuffers & 1) ^ 1);
          mbarrier_expect(full, kBoxBytes);
          const place p = place_of(s, tile);
          tma_load(base + kBuffersAt + turn % C::kBuffers * C::kBufferBytes, pixels, full, 0,
                   p.w + s.low_w, p.h + s.low_h, p.image);
        }
      }
      return;
    }
    take_registers<C::kConsumerRegisters>();
    const unsigned long long left =
        descriptor_layout(C::kLeftMajor == kMajorK ? C::kRowBytes : 128, kTapBytes) |
        descriptor_address(base);
    const unsigned long long right =
        descriptor_layout(C::kRowBytes, kTapBytes) | descriptor_address(base + kBuffersAt);
    mbarrier_wait(weights_full, 0);
    accumulators acc;
#pragma unroll 1
    for (int turn = group, tile = first + group * step; tile < tiles; turn += 2, tile += 2 * step) {
      const int buffer = turn % C::kBuffers;
      const unsigned full = barriers + 8 * buffer;
      mbarrier_wait(full, turn / C::kBuffers & 1);
      if (turn > 0) named_barrier_sync(3 + group, 256);  // my turn on the tensor cores
      multiply_tile(acc, left, right + buffer * (C::kBufferBytes >> 4));
      if (tile + step < tiles) named_barrier_arrive(3 + (group ^ 1), 256);
      wgmma_wait<0>();
      // No warp reads the input any more: its buffer takes the output.
      named_barrier_sync(1 + group, 128);
      if constexpr (C::kFull > 0) {
        if (thread == 0) mbarrier_arrive(full + 8 * C::kBuffers);
        output(acc, s, place_of(s, tile), first_left, shared_memory, group, thread);
        continue;
      }
      output(acc, s, place_of(s, tile), first_left,
             shared_memory + kBuffersAt + buffer * C::kBufferBytes, group, thread);
      if (thread == 0) mbarrier_arrive(full + 8 * C::kBuffers);
    }
    output.finish(thread);
  }
};

template <class C, class Store>
__device__ inline void conv_halo_sm90(const tensor_map& weights, const tensor_map& pixels,
                                      const conv_halo_shape& shape, const Store& store) {
  conv_halo<C>::run(weights, pixels, shape,
                    typename conv_halo<C>::template staged_output<Store>{store});
}

template <class C, class Rows, class Apply>
__device__ inline void conv_halo_sm90(const tensor_map& weights, const tensor_map& pixels,
                                      const tensor_map& out, const conv_halo_shape& shape,
                                      const Rows& rows, const Apply& apply) {
  conv_halo<C>::run(weights, pixels, shape,
                    typename conv_halo<C>::template direct_output<Rows, Apply>{out, rows, apply});
}
