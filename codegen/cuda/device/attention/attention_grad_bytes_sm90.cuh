#pragma once
// attention_grad_bytes_sm90<Config>(q, k, v, dy, of_slopes, of_keys, of_values, sums, turns,
// part_sums, shape, …, store_keys, store_values, finish_keys, finish_values): attention_grad_sm90
// of operands and results of 8 bits. The maps have the operands as f16, which another kernel has
// made of them: products sum over keys, queries and columns, and wgmma takes operands of 8 bits
// along one of these alone. Weights and slopes are rounded to 8 bits on their way.
//
// finish_keys(value, head, row, column, result out) and finish_values: what is rounded, and with
// kPeaks 2 and 4 what of_keys and of_values become the largest absolute values of, as of_slopes
// with kPeaks 1 of slopes.

#include "codegen/cuda/device/attention/attention_grad_layout_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_producers_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_rows.cuh"
#include "codegen/cuda/device/attention/attention_grad_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"
#include "codegen/cuda/device/attention/staged_rows.cuh"
#include "codegen/cuda/device/numbers/add_largest.cuh"
#include "codegen/cuda/device/numbers/eight_bits.cuh"
#include "codegen/cuda/device/numbers/half.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"

using attention_grad_bytes_shape = attention_grad_shape;

// Stores dk and dv from the staging.
template <class C, class OfSlopes, class OfKeys, class OfValues, class StoreKeys, class StoreValues,
          class FinishKeys, class FinishValues>
struct attention_grad_to_bytes {
  static constexpr bool kFinishes = true;
  using place = typename attention_grad_layout<C>::place;
  const attention_grad_shape& s;
  OfSlopes* of_slopes;
  OfKeys* of_keys;
  OfValues* of_values;
  const StoreKeys& store_keys;
  const StoreValues& store_values;
  const FinishKeys& finish_keys;
  const FinishValues& finish_values;

  __device__ inline void add_slopes(float largest) const {
    if constexpr ((C::kPeaks & 1) != 0) add_largest(of_slopes, largest);
  }
  template <bool are_values, class Group>
  __device__ inline void finish(Group& g, float (&sums)[C::kDepth / 2], const place& p) const {
    if constexpr (are_values)
      finish_rows<C::kEightValues, (C::kPeaks & 4) != 0>(g, sums, p, finish_values, store_values,
                                                         of_values);
    else
      finish_rows<C::kEightKeys, (C::kPeaks & 2) != 0>(g, sums, p, finish_keys, store_keys,
                                                       of_keys);
  }

 private:
  template <int kind, bool has_peak, class Group, class Finish, class Store, class Largest>
  __device__ inline void finish_rows(Group& g, float (&sums)[C::kDepth / 2], const place& p,
                                     const Finish& finish, const Store& store,
                                     Largest* largest) const {
    float most = -attention_grad_layout<C>::rows::infinity();
    const int first = p.key + g.own_group() * 64;
    each_staged_row(
        g.staging, g.thread, sums, [&] { g.group_sync(); },
        [&](int row, int column, const float(&x)[8]) {
          if (first + row >= s.keys) return;
          __align__(16) unsigned pairs[4];
          float finished[8];
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            float y[has_peak ? 2 : 1];
            finish(x[i], p.head, first + row, column + i, y);
            if constexpr (has_peak) most = fmaxf(most, fabsf(y[1]));
            finished[i] = y[0];
          }
#pragma unroll
          for (int i = 0; i < 8; i += 2)
            if constexpr (kind != 0)
              pairs[i / 2] = round_pair_8<kind>(finished[i], finished[i + 1]);
            else
              pairs[i / 2] = pack_pair<false>(finished[i], finished[i + 1]);
          store(reinterpret_cast<const half_t(&)[8]>(pairs), p.head, first + row, column);
        });
    if constexpr (has_peak) add_largest(largest, most);
  }
};

template <class C, class OfSlopes, class OfKeys, class OfValues, class Score, class Inside,
          class Factor, class Limits, class Visible, class Random, class Kept, class Weight,
          class Slope, class AddBias, class Scale, class Rows, class StoreKeys, class StoreValues,
          class FinishKeys, class FinishValues>
__device__ inline void attention_grad_bytes_sm90(
    const tensor_map& q, const tensor_map& k, const tensor_map& v, const tensor_map& dy,
    OfSlopes* of_slopes, OfKeys* of_keys, OfValues* of_values, float* sums, int* turns,
    float* part_sums, const attention_grad_shape& shape, const Score& score, const Inside& inside,
    const Factor& factor, const Limits& limits, const Visible& visible, const Random& random,
    const Kept& kept, const Weight& weight, const Slope& slope, const AddBias& add_bias,
    const Scale& scale, const Rows& rows, const StoreKeys& store_keys,
    const StoreValues& store_values, const FinishKeys& finish_keys,
    const FinishValues& finish_values) {
  using functions = attention_grad_functions<Score, Inside, Factor, Limits, Visible, Random, Kept,
                                             Weight, Slope, AddBias, Scale, Rows>;
  using skeleton = attention_grad<C>;
  using results = attention_grad_to_bytes<C, OfSlopes, OfKeys, OfValues, StoreKeys, StoreValues,
                                          FinishKeys, FinishValues>;
  static_assert(C::kSharedBytes == skeleton::kBytes);
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  skeleton::run(shared_address(shared_memory), attention_grad_by_maps<C>{q, k, v, dy},
                results{shape, of_slopes, of_keys, of_values, store_keys, store_values, finish_keys,
                        finish_values},
                q, sums, turns, part_sums, sums, shape,
                functions{score, inside, factor, limits, visible, random, kept, weight, slope,
                          add_bias, scale, rows});
}
