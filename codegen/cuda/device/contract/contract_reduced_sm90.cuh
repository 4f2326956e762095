#pragma once
// contract_reduced_sm90<Config>: contract_sm90 whose result is reduced over right, too, by kReduced
// combinations at once. What a tile has reduced for each place of left goes to `flush`, one call a
// place and a consumer group:
//
//   start(sums)              the identities
//   combine(sums, others)    sums = sums + others, each by its own combination
//   flush(batch, part, left, sums)    `part` counts the groups of tiles that share a place of left
//
// Where all tiles of a block have the same places of left (kKeepsSums), what they reduce is kept
// and flushed once, at the end, `part` counting the consumer groups of all blocks.
//
// Two forms, as of contract_sm90. By tensor map, apply(value, operands, result) has the values to
// be combined behind the one to be stored; four lanes share a row of fragments and no other warp
// does. By store(…, sums), which adds the values of the 8 neighbours to their 8 * kReduced sums.

#include "codegen/cuda/device/contract/contract_shape_sm90.cuh"
#include "codegen/cuda/device/contract/contract_sm90.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"

using contract_reduced_shape = contract_shape;

template <class C, class Rows, class Apply, class Right, class Start, class Combine, class Flush>
struct reduced_direct_output {
  using base = contract<C>;
  const tensor_map& map;
  const Rows& rows;
  const Apply& apply;
  const Right& right_end;
  const Start& start;
  const Combine& combine;
  const Flush& flush;
  static constexpr int kColumnsOfBox = base::kColumnsOfBox;
  static constexpr int kBoxes = base::kColumns / kColumnsOfBox;
  static constexpr int kPending = base::kBlocks * kBoxes % 2 == 0 ? 1 : 0;
  static constexpr int kOperands = C::kOperands > 0 ? C::kOperands : 1;
  float kept[base::kBlocks][2][C::kReduced];  // rows r and r + 8 of a thread
  bool has_kept = false;

  __device__ inline void keep() {
    if (has_kept) return;
    has_kept = true;
#pragma unroll
    for (int i = 0; i < base::kBlocks; ++i) {
      start(kept[i][0]);
      start(kept[i][1]);
    }
  }

  __device__ inline float one(float a, const float (&operands)[kOperands], bool inside,
                              float (&sums)[C::kReduced]) const {
    float x[1 + C::kReduced], values[C::kReduced];
    apply(a, operands, x);
#pragma unroll
    for (int r = 0; r < C::kReduced; ++r) values[r] = x[1 + r];
    if (inside) combine(sums, values);
    return x[0];
  }
  __device__ inline void combine_lanes(float (&sums)[C::kReduced]) const {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      float others[C::kReduced];
#pragma unroll
      for (int r = 0; r < C::kReduced; ++r) others[r] = __shfl_xor_sync(~0u, sums[r], mask);
      combine(sums, others);
    }
  }

  __device__ inline void flush_rows(int batch, int part, int row, float (&low)[C::kReduced],
                                    float (&high)[C::kReduced]) const {
    combine_lanes(low);
    combine_lanes(high);
    if (threadIdx.x % 4 != 0) return;
    flush(batch, part, row, low);
    flush(batch, part, row + 8, high);
  }

  __device__ inline void operator()(const typename base::accumulators& acc, const contract_shape& s,
                                    const typename base::place& p, int group_left, int group_right,
                                    unsigned char*, unsigned char* staging, unsigned group,
                                    unsigned thread, unsigned) {
    if constexpr (C::kKeepsSums) keep();
    const int first_left = p.left + group_left * base::kBlocks * 64;
    const int first_right = p.right + group_right * base::kColumns;
    const unsigned lane = thread % 32, warp = thread / 32;
    const typename base::batch_place batch = base::batch_of(s, p);
    int end[1];
    right_end(end);
    const int columns = end[0] - first_right - 2 * static_cast<int>(lane % 4);
    const int part = p.right / C::kTileRight * base::kGroupsRight + group_right;
#pragma unroll
    for (int i = 0; i < base::kBlocks; ++i) {
      float low[kOperands], high[kOperands], of_tile[2][C::kReduced];
      const int row = first_left + i * 64 + 16 * warp + lane / 4;
      rows(p.batch, row, low);
      rows(p.batch, row + 8, high);
      if constexpr (!C::kKeepsSums) {
        start(of_tile[0]);
        start(of_tile[1]);
      }
      auto& sums = C::kKeepsSums ? kept[i] : of_tile;
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const unsigned buffer = shared_address(staging) + (i * kBoxes + box) % 2 * base::kBoxBytes;
        if (thread == 0) tma_store_wait_read<kPending>();
        named_barrier_sync(1 + group, 128);
#pragma unroll
        for (int g = 0; g < kColumnsOfBox / 16; ++g) {
          unsigned pairs[4];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int first = box * kColumnsOfBox + g * 16 + half * 8, e = first / 2;
            const bool even = first < columns, odd = first + 1 < columns;
            const float a = one(acc[i][e], low, even, sums[0]);
            const float b = one(acc[i][e + 1], low, odd, sums[0]);
            const float c = one(acc[i][e + 2], high, even, sums[1]);
            const float d = one(acc[i][e + 3], high, odd, sums[1]);
            pairs[2 * half] = pack_pair<C::kPackBf16>(a, b);
            pairs[2 * half + 1] = pack_pair<C::kPackBf16>(c, d);
          }
          base::store_columns(buffer, g * 16, lane, warp, pairs[0], pairs[1], pairs[2], pairs[3]);
        }
        fence_for_copies();
        named_barrier_sync(1 + group, 128);
        if (thread == 0) {
          base::store_box(map, buffer, first_left + i * 64, first_right + box * kColumnsOfBox,
                          batch);
          tma_store_commit();
        }
      }
      if constexpr (!C::kKeepsSums) flush_rows(p.batch, part, row, sums[0], sums[1]);
    }
  }
  __device__ inline void finish(unsigned thread) {
    if constexpr (C::kKeepsSums) {
      keep();
      const int group = threadIdx.x / 128, worker = blockIdx.x / C::kCluster;
      const int group_left = C::kPingPong ? 0 : group / base::kGroupsRight;
      const int sharers = C::kPingPong ? 2 : base::kGroupsRight;
      const int part = worker * sharers + group % sharers;
      const int first_left =
          blockIdx.x % C::kCluster * C::kTileLeft + group_left * base::kBlocks * 64;
#pragma unroll
      for (int i = 0; i < base::kBlocks; ++i)
        flush_rows(0, part, first_left + i * 64 + 16 * (thread / 32) + thread % 32 / 4, kept[i][0],
                   kept[i][1]);
    }
    if (thread == 0) tma_store_wait();
  }
};

template <class C, class Store, class Start, class Combine, class Flush>
struct reduced_staged_output {
  using base = contract<C>;
  const Store& store;
  const Start& start;
  const Combine& combine;
  const Flush& flush;
  static_assert(base::kBlocks == 1);
  static_assert(4 * 64 * C::kReduced * 4 <= base::kStagingBytes);

  __device__ inline void operator()(const typename base::accumulators& acc, const contract_shape& s,
                                    const typename base::place& p, int group_left, int group_right,
                                    unsigned char*, unsigned char* staging, unsigned group,
                                    unsigned thread, unsigned) const {
    const int first_left = p.left + group_left * 64;
    const int first_right = p.right + group_right * base::kColumns;
    float sums[8 * C::kReduced];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float one[C::kReduced];
      start(one);
#pragma unroll
      for (int r = 0; r < C::kReduced; ++r) sums[e * C::kReduced + r] = one[r];
    }
    const auto take = [&](const typename C::accumulator(&values)[8], int batch, int split, int left,
                          int right) { store(values, batch, split, left, right, sums); };
    base::store_tile(acc, p, first_left, first_right,
                     reinterpret_cast<typename C::accumulator*>(staging), group, thread, take);
    // A thread has the same 8 places of left in every chunk; lanes that differ in bits 2 and 4, and
    // warps, share them (store_tile).
    const unsigned lane = thread % 32, warp = thread / 32;
    float* const shared = reinterpret_cast<float*>(staging);
    named_barrier_sync(1 + group, 128);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      float mine[C::kReduced];
#pragma unroll
      for (int r = 0; r < C::kReduced; ++r) mine[r] = sums[e * C::kReduced + r];
#pragma unroll
      for (int mask = 4; mask <= 16; mask *= 4) {
        float others[C::kReduced];
#pragma unroll
        for (int r = 0; r < C::kReduced; ++r) others[r] = __shfl_xor_sync(~0u, mine[r], mask);
        combine(mine, others);
      }
      if (lane / 4 % 2 == 0 && lane < 16) {
        const int left = (lane % 4 + lane / 8 * 4) * 8 + e;
#pragma unroll
        for (int r = 0; r < C::kReduced; ++r) shared[(r * 4 + warp) * 64 + left] = mine[r];
      }
    }
    named_barrier_sync(1 + group, 128);
    if (thread < 64) {
      float whole[C::kReduced];
      start(whole);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        float part[C::kReduced];
#pragma unroll
        for (int r = 0; r < C::kReduced; ++r) part[r] = shared[(r * 4 + w) * 64 + thread];
        combine(whole, part);
      }
      const int part =
          (p.split * s.right_tiles + p.right / C::kTileRight) * base::kGroupsRight + group_right;
      flush(p.batch, part, first_left + thread, whole);
    }
  }
  __device__ inline void finish(unsigned) const {}
};

template <class C, class Store, class Start, class Combine, class Flush>
__device__ inline void contract_reduced_sm90(const tensor_map& left, const tensor_map& right,
                                             const contract_shape& shape, const Store& store,
                                             const Start& start, const Combine& combine,
                                             const Flush& flush) {
  contract<C>::run(
      left, right, shape,
      reduced_staged_output<C, Store, Start, Combine, Flush>{store, start, combine, flush});
}

template <class C, class Rows, class Apply, class Right, class Start, class Combine, class Flush>
__device__ inline void contract_reduced_sm90(const tensor_map& left, const tensor_map& right,
                                             const tensor_map& out, const contract_shape& shape,
                                             const Rows& rows, const Apply& apply,
                                             const Right& right_end, const Start& start,
                                             const Combine& combine, const Flush& flush) {
  contract<C>::run(left, right, shape,
                   reduced_direct_output<C, Rows, Apply, Right, Start, Combine, Flush>{
                       out, rows, apply, right_end, start, combine, flush});
}
