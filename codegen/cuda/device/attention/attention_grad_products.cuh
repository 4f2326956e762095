#pragma once
// attention_grad_products<C>: sizes, panels and the five products of a warp in attention_grad_sm80,
// of operands of 16 bits or f32 (attention_products.cuh); attention_grad_sm80.cuh says what they
// are for.

#include "codegen/cuda/device/attention/attention_products.cuh"
#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/ptx/load_matrix.cuh"

template <class C>
struct attention_grad_products {
  static constexpr int kThreads = 32 * C::kWarps, kWarpKeys = 32;
  static constexpr int kKeys = kWarpKeys * C::kWarps / C::kShare;
  static constexpr int kWarpQueries = C::kQueries / C::kShare, kRowTiles = kWarpKeys / 16;
  using products = attention_products<C>;
  static constexpr int kBytes = products::kBytes, kHalves = products::kHalves;
  static constexpr int kOfChunk = products::kOfChunk, kStep = products::kStep;
  static constexpr int kDepthHalves = C::kDepth * kHalves, kWidthHalves = C::kWidth * kHalves;
  using key_panels = panels<kKeys, kDepthHalves>;
  using query_panels = panels<C::kQueries, kDepthHalves>;
  using value_panels = panels<kKeys, kWidthHalves>;
  using grad_panels = panels<C::kQueries, kWidthHalves>;
  using slope_panels = panels<kKeys, C::kQueries * kHalves>;
  static constexpr int kKeyElements = kKeys * C::kDepth, kQueryElements = C::kQueries * C::kDepth;
  static constexpr int kValuesAt = kKeyElements, kStagesAt = kKeys * (C::kDepth + C::kWidth);
  static constexpr int kStageElements = C::kQueries * (C::kDepth + C::kWidth);  // q, and dy behind
  static constexpr int kWeightsAt = kStagesAt + C::kStages * kStageElements;
  static constexpr int kSlopeElements = kKeys * C::kQueries;  // weights have as many
  // Slopes of two steps, behind the weights. Where no warps share keys there are no weights: nobody
  // reads another one's.
  static constexpr int kSlopesAt = kWeightsAt + (C::kShare > 1 ? kSlopeElements : 0);
  static constexpr int kHalf = C::kDepth / 2;                  // columns of a part of the sums
  static constexpr int kHalfChunks = kHalf / 8;                // of 8 elements
  static constexpr int kKeyColumns = C::kDepth / C::kShare;    // of a warp's dk
  static constexpr int kValueColumns = C::kWidth / C::kShare;  // and dv
  static constexpr int kRowGroups = C::kQueries / 32;
  static constexpr int kOfWarp = C::kDepth * kRowGroups / C::kWarps;  // columns of dq
  static constexpr int kPiece = kOfWarp % 32 == 0 ? 32 : 16;          // of them, at a time
  static_assert((C::kQueries == 64 || C::kQueries == 128 || (C::kF32 && C::kQueries == 32)) &&
                C::kWarps % kRowGroups == 0 && kOfWarp % kPiece == 0 && kPiece % 16 == 0 &&
                kWarpQueries % 16 == 0);
  using left = typename products::left;

  template <int columns>
  using grads = float[kRowTiles][columns / 2];

  using sums_of_rows = float* const (&)[kRowTiles];
  // count steps of `right`'s columns by 16: left_at(rows, i), right_at(n, i); sums of both row
  // tiles.
  template <int count, int columns, bool rolls, class LeftAt, class RightAt>
  static __device__ inline void multiply_all(sums_of_rows sums, const LeftAt& left_at,
                                             const RightAt& right_at) {
    if constexpr (products::kChain != 0) {
#pragma unroll
      for (int n = 0; n < columns / 16; ++n) {
        float* to[kRowTiles];
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) to[r] = sums[r] + 8 * n;
        products::template add_steps<count, kRowTiles, 8, rolls>(to, [&](int i, sums_of_rows some) {
          left rows[kRowTiles];
          left_at(rows, i);
          const auto right = right_at(n, i);
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) products::multiply(some[r], rows[r], right);
        });
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        left rows[kRowTiles];
        left_at(rows, i);
#pragma unroll
        for (int n = 0; n < columns / 16; ++n) {
          const auto right = right_at(n, i);
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r) products::multiply(sums[r] + 8 * n, rows[r], right);
        }
      }
    }
  }
  // sums = left right', both as rows of the depth: of 32 rows by kWarpQueries.
  template <class Left, class Right, int depth>
  static __device__ inline void multiply_rows(sums_of_rows sums, unsigned from, unsigned across) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (int e = 0; e < kWarpQueries / 2; ++e) sums[r][e] = 0;
    multiply_all<depth / kStep, kWarpQueries, true>(
        sums,
        [&](left(&rows)[kRowTiles], int i) {
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r)
            rows[r] = products::template left_rows<true>(Left::further(from, 16 * r, 2 * i));
        },
        [&](int n, int i) { return products::right_rows(Right::further(across, 16 * n, 2 * i)); });
  }
  // to += left right: of the queries of a warp.
  template <class Panels, bool rolls, int registers, class LeftAt>
  static __device__ inline void multiply_steps(float (&to)[kRowTiles][registers],
                                               const LeftAt& left_at, unsigned right) {
    float* const sums[kRowTiles] = {to[0], to[1]};
    multiply_all<kWarpQueries / kStep, 2 * registers, rolls>(sums, left_at, [&](int n, int i) {
      return products::template right_across<false>(
          Panels::further(right, kStep * i, products::kAcross * n));
    });
  }
  // Multiplies the warp's own queries, from registers.
  template <class Panels, int registers, class Pairs>
  static __device__ inline void multiply_own(float (&to)[kRowTiles][registers], const Pairs& words,
                                             unsigned right) {
    multiply_steps<Panels, false>(
        to,
        [&](left(&rows)[kRowTiles], int i) {
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r)
            rows[r] = products::template left_registers<true>(words(r) + 4 * i);
        },
        right);
  }
  // Multiplies the queries of its neighbours, from shared memory.
  template <class Panels, int registers>
  static __device__ inline void multiply_other(float (&to)[kRowTiles][registers], unsigned from,
                                               unsigned right) {
    multiply_steps<Panels, true>(
        to,
        [&](left(&rows)[kRowTiles], int i) {
#pragma unroll
          for (int r = 0; r < kRowTiles; ++r)
            rows[r] =
                products::template left_rows<true>(slope_panels::further(from, 16 * r, 2 * i));
        },
        right);
  }

  // Multiplies a piece of dq of a step: 32 queries and kPiece columns from `first` chunks on.
  using dq_piece = float[kRowTiles][kPiece / 2];
  static __device__ inline void multiply_queries(dq_piece& dq, unsigned slopes, unsigned keys,
                                                 int row, int first, int lane) {
    const unsigned right = key_panels::further(keys, 0, first);
    const unsigned from =
        C::kF32 ? slope_panels::further(slope_panels::first(lane % 4 * 2, lane / 4), 0, 4 * row)
                : slope_panels::further(slope_panels::first(lane % 8 + lane / 16 * 8, lane / 8 % 2),
                                        0, 2 * row);
    const auto left_at = [&](left(&rows)[kRowTiles], int i) {
      if constexpr (C::kF32) {
        // The quads are rows 2t and 2t + 1 of keys, 8 columns each, which are queries 8 (g / 2) +
        // 2w + g % 2: word w is row g of the first tile, g + 8 of it, and the same of the second.
        unsigned even[4], odd[4];
        const unsigned at = slope_panels::further(slopes + from, kStep * i, 0);
        products::load_quad(even, at);
        products::load_quad(odd, products::row_behind(at));
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
          rows[r] = products::template left_of<true>(
              {even[2 * r], even[2 * r + 1], odd[2 * r], odd[2 * r + 1]});
      } else {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
          matrices<4>::load_transposed(rows[r].words,
                                       slope_panels::further(slopes + from, kStep * i, 2 * r));
      }
    };
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
      for (float& x : dq[r]) x = 0;
    float* const sums[kRowTiles] = {dq[0], dq[1]};
    multiply_all<kKeys / kStep, kPiece, true>(sums, left_at, [&](int n, int i) {
      return products::template right_across<true>(
          key_panels::further(right, kStep * i, products::kAcross * n));
    });
  }
};
