#pragma once
// conv_halo_full_sm90<Config>(weights, pixels, out, full…, shape, rows, apply): conv_halo_sm90 by
// tensor map whose `apply` also takes kFull operands with an element for each of the result, 16-bit
// floats:
//
//   warp 1 + group of the producer's   TMA → the group's kFull boxes of a tile → consumers:
//                                      ldmatrix, transposed
//                                      global ← TMA ← the first box ← apply, stmatrix, transposed
//
// A consumer finds its operands where it leaves its results, so that nothing of a box is shared
// between warps. They are asked for as soon as the store of the group's tile before has read them,
// which is while the other group multiplies. Barriers of a group as of contract_full_sm90's slots.

#include "codegen/cuda/device/conv/conv_halo_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

using conv_halo_full_shape = conv_halo_shape;

template <class C, class Rows, class Apply>
struct conv_halo_full_output {
  using base = conv_halo<C>;
  const tensor_map& map;
  const tensor_map* full[C::kFull];
  const Rows& rows;
  const Apply& apply;
  unsigned phase = 0;  // of a consumer

  static constexpr int kOperands = C::kOperands > 0 ? C::kOperands : 1;
  static constexpr int kLoadBytes =
      C::kTileRows * (C::kStrips ? C::kTileWidth : base::kPitch) * 128;

  static __device__ inline void init(unsigned barriers) {
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      mbarrier_init(barriers + 16 * group, 1);
      mbarrier_init(barriers + 16 * group + 8, 4);
    }
  }

  // Loads and stores of a group, by one thread.
  __device__ inline void move(const conv_halo_shape& s, int tile, int tiles, int step,
                              int first_left, unsigned boxes, unsigned barrier) const {
    unsigned turn = 0;
#pragma unroll 1
    for (; tile < tiles; tile += step, turn ^= 1) {
      const typename base::place p = base::place_of(s, tile);
      mbarrier_expect(barrier, C::kFull * kLoadBytes);
#pragma unroll
      for (int f = 0; f < C::kFull; ++f)
        tma_load(boxes + f * C::kOutBytes, *full[f], barrier, first_left, p.w, p.h, p.image);
      mbarrier_wait(barrier + 8, turn);
      tma_store(map, boxes, first_left, p.w, p.h, p.image);
      tma_store_commit();
      tma_store_wait_read<0>();
    }
    tma_store_wait();
  }

  __device__ inline unsigned pair(const float* v, const float (&operands)[kOperands],
                                  const unsigned (&words)[C::kFull]) const {
    unsigned result[1];
    apply_pair<C>(apply, v[0], v[1], operands, words, result);
    return result[0];
  }

  __device__ inline void operator()(const typename base::accumulators& acc, const conv_halo_shape&,
                                    const typename base::place&, int first_left,
                                    unsigned char* memory, unsigned group, unsigned thread) {
    const unsigned lane = thread % 32, warp = thread / 32;
    const unsigned boxes = base::full_boxes(shared_address(memory), group);
    const unsigned barrier = base::full_barrier(shared_address(memory), group);
    float low[kOperands], high[kOperands];
    const int row = first_left + 16 * warp + lane / 4;
    rows(0, row, low);
    rows(0, row + 8, high);
    const unsigned chunk = warp * 2 + lane / 8 % 2;  // of 8 rows: 16 bytes
    const auto place = [&](unsigned column) {
      const unsigned pixel = base::pixel_of(column);
      return boxes + pixel * 128 + ((chunk ^ (pixel % 8)) << 4);
    };
    mbarrier_wait(barrier, phase);
    phase ^= 1;
    constexpr int kSteps = C::kColumns / 16, kAhead = 4;  // steps whose operands are read at once
#pragma unroll
    for (int first = 0; first < kSteps; first += kAhead) {
      unsigned at[kAhead], words[kAhead][4][C::kFull];
#pragma unroll
      for (int g = 0; g < kAhead && first + g < kSteps; ++g) {
        at[g] = place((first + g) * 16 + lane % 8 + lane / 16 * 8);
#pragma unroll
        for (int f = 0; f < C::kFull; ++f)
          load_transposed(at[g] + f * C::kOutBytes, words[g][0][f], words[g][1][f], words[g][2][f],
                          words[g][3][f]);
      }
#pragma unroll
      for (int g = 0; g < kAhead && first + g < kSteps; ++g) {
        const float* const v = acc + (first + g) * 8;
        store_transposed(at[g], pair(v, low, words[g][0]), pair(v + 2, high, words[g][1]),
                         pair(v + 4, low, words[g][2]), pair(v + 6, high, words[g][3]));
      }
    }
    if constexpr (C::kColumns % 16 != 0) {
      const float* const v = acc + C::kColumns / 2 - 4;
      const unsigned at = place(C::kColumns - 8 + lane % 8);
      unsigned words[2][C::kFull];
#pragma unroll
      for (int f = 0; f < C::kFull; ++f)
        load_transposed(at + f * C::kOutBytes, words[0][f], words[1][f]);
      store_transposed(at, pair(v, low, words[0]), pair(v + 2, high, words[1]));
    }
    fence_for_copies();
    __syncwarp();
    if (lane == 0) mbarrier_arrive(barrier + 8);
  }
  __device__ inline void finish(unsigned) const {}
};

template <class C, class Rows, class Apply>
__device__ inline void conv_halo_full_sm90(const tensor_map& weights, const tensor_map& pixels,
                                           const tensor_map& out, const tensor_map& full,
                                           const conv_halo_shape& shape, const Rows& rows,
                                           const Apply& apply) {
  conv_halo<C>::run(weights, pixels, shape,
                    conv_halo_full_output<C, Rows, Apply>{out, {&full}, rows, apply});
}

template <class C, class Rows, class Apply>
__device__ inline void conv_halo_full_sm90(const tensor_map& weights, const tensor_map& pixels,
                                           const tensor_map& out, const tensor_map& full,
                                           const tensor_map& second, const conv_halo_shape& shape,
                                           const Rows& rows, const Apply& apply) {
  conv_halo<C>::run(weights, pixels, shape,
                    conv_halo_full_output<C, Rows, Apply>{out, {&full, &second}, rows, apply});
}
