#pragma once
// contract_full_sm90<Config>(left, right, out…, full…, shape, rows, apply): contract_sm90 by tensor
// map whose `apply` makes kResults results, and also takes kFull operands with an element for each
// of theirs, 16-bit floats, which maps like the results' read:
//
//   warp 1 + group of the producer's   TMA → slots of kSlot boxes → consumers: ldmatrix, transposed
//                                      global ← TMA ← the first boxes ← apply, stmatrix, transposed
//
// A consumer finds its operands where it leaves its results, so that nothing of a box is shared
// between warps. Slots are loaded as far ahead as there are any, also those of the next tiles,
// while this one is multiplied. A slot has two barriers:
//
//   full   its boxes are there (bytes of the loads)
//   done   the results are in the first boxes (an arrival for each warp of the group)
//
// and is loaded again once the store has read it, by the thread that has waited for that.

#include "codegen/cuda/device/contract/contract_shape_sm90.cuh"
#include "codegen/cuda/device/contract/contract_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

using contract_full_shape = contract_shape;

template <class C, class Rows, class Apply>
struct full_output {
  using base = contract<C>;
  const tensor_map* maps[C::kResults + C::kFull];  // of results, then of operands
  const Rows& rows;
  const Apply& apply;
  typename base::template ring_of<C::kBuffers / C::kSlot> at = {};  // of a consumer

  static constexpr int kSlots = C::kBuffers / C::kSlot, kSlotBytes = C::kSlot * base::kBoxBytes;
  static constexpr int kColumnsOfBox = base::kColumnsOfBox;
  static constexpr int kBoxes = base::kColumns / kColumnsOfBox;
  static constexpr int kBoxesOfTile = base::kBlocks * kBoxes;
  static constexpr int kSteps = kColumnsOfBox / 16;  // transposed loads of a box
  static constexpr int kOperands = C::kOperands > 0 ? C::kOperands : 1;
  static constexpr int kFull = C::kFull > 0 ? C::kFull : 1;  // of arrays
  static_assert(C::kBuffers % C::kSlot == 0 && kSlots >= 2);
  static_assert(C::kSlot >= C::kFull && C::kSlot >= C::kResults);

  // Barriers of a group: `full` of all slots, then `done`.
  static constexpr int kBarrierBytes = 16 * kSlots;
  static __device__ inline void init(unsigned barriers) {
#pragma unroll 1
    for (int i = 0; i < base::kGroups * kSlots; ++i) {
      const unsigned full = barriers + i / kSlots * kBarrierBytes + i % kSlots * 8;
      mbarrier_init(full, 1);
      mbarrier_init(full + 8 * kSlots, 4);
    }
  }

  // ---- loads and stores, by one thread for a group

  // The boxes of a group's tiles, one after the other.
  struct cursor {
    int tile, box = 0, left = 0, right = 0, inner = 0, outer = 0;
    __device__ inline void enter(const contract_shape& s, int tiles, unsigned group,
                                 unsigned rank) {
      if (tile >= tiles) return;
      const typename base::place p = base::place_of(s, tile, rank);
      const typename base::batch_place batch = base::batch_of(s, p);
      const int group_left = C::kPingPong ? 0 : group / base::kGroupsRight;
      const int group_right = C::kPingPong ? 0 : group % base::kGroupsRight;
      left = p.left + group_left * base::kBlocks * 64;
      right = p.right + group_right * base::kColumns;
      inner = batch.inner;
      outer = batch.outer;
    }
    __device__ inline int box_left() const { return left + box / kBoxes * 64; }
    __device__ inline int box_right() const { return right + box % kBoxes * kColumnsOfBox; }
    // True if a tile has ended.
    __device__ inline bool advance(int step) {
      if (++box < kBoxesOfTile) return false;
      box = 0;
      tile += step;
      return true;
    }
  };

  __device__ inline void move(const contract_shape& s, int first, int tiles, int step,
                              unsigned group, unsigned rank, unsigned slots,
                              unsigned barriers) const {
    if constexpr (C::kPingPong) {
      first += static_cast<int>(group) * step;
      step *= 2;
    }
    cursor ahead = {first}, behind = {first};
    ahead.enter(s, tiles, group, rank);
    behind.enter(s, tiles, group, rank);
    typename base::template ring_of<kSlots> to, from;
    int free = kSlots;  // slots that may be loaded
#pragma unroll 1
    while (behind.tile < tiles) {
#pragma unroll 1
      for (; free > 0 && ahead.tile < tiles; --free) {
        const unsigned barrier = barriers + 8 * to.stage;
        mbarrier_expect(barrier, C::kFull * kColumnsOfBox * 128);
#pragma unroll
        for (int f = 0; f < C::kFull; ++f)
          tma_load(slots + to.stage * kSlotBytes + f * base::kBoxBytes, *maps[C::kResults + f],
                   barrier, C::kVectorLeft ? ahead.box_left() : ahead.box_right(),
                   C::kVectorLeft ? ahead.box_right() : ahead.box_left(), ahead.inner, ahead.outer);
        to.advance();
        if (ahead.advance(step)) ahead.enter(s, tiles, group, rank);
      }
      mbarrier_wait(barriers + 8 * (kSlots + from.stage), from.phase);
#pragma unroll
      for (int r = 0; r < C::kResults; ++r)
        base::store_box(*maps[r], slots + from.stage * kSlotBytes + r * base::kBoxBytes,
                        behind.box_left(), behind.box_right(), {behind.outer, behind.inner});
      tma_store_commit();
      from.advance();
      // One store may be under way while the group works on; at the end of a tile it does not.
      const bool is_first = behind.box == 0;
      if (behind.advance(step)) {
        tma_store_wait_read<0>();
        free += is_first ? 1 : 2;
        behind.enter(s, tiles, group, rank);
      } else {
        tma_store_wait_read<1>();
        free += is_first ? 0 : 1;
      }
    }
    tma_store_wait();
  }

  // ---- consumers

  __device__ inline void pair(float a, float b, const float (&operands)[kOperands],
                              const unsigned (&words)[kFull], unsigned (&to)[C::kResults]) const {
    apply_pair<C>(apply, a, b, operands, words, to);
  }

  __device__ inline void operator()(const typename base::accumulators& acc, const contract_shape&,
                                    const typename base::place& p, int group_left, int,
                                    unsigned char*, unsigned char* staging, unsigned group,
                                    unsigned thread, unsigned) {
    const int first_left = p.left + group_left * base::kBlocks * 64;
    const unsigned lane = thread % 32, warp = thread / 32;
    const unsigned slots = shared_address(staging);
    const unsigned barriers = base::output_barriers(slots, group) + group * kBarrierBytes;
#pragma unroll
    for (int i = 0; i < base::kBlocks; ++i) {
      float low[kOperands], high[kOperands];
      const int row = first_left + i * 64 + 16 * warp + lane / 4;
      rows(p.batch, row, low);
      rows(p.batch, row + 8, high);
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const unsigned mine = slots + at.stage * kSlotBytes;
        mbarrier_wait(barriers + 8 * at.stage, at.phase);
        unsigned words[kSteps][4][kFull];
#pragma unroll
        for (int g = 0; g < kSteps; ++g)
#pragma unroll
          for (int f = 0; f < C::kFull; ++f)
            base::load_columns(mine + f * base::kBoxBytes, g * 16, lane, warp, words[g][0][f],
                               words[g][1][f], words[g][2][f], words[g][3][f]);
#pragma unroll
        for (int g = 0; g < kSteps; ++g) {
          const int e = box * kColumnsOfBox / 2 + g * 8;
          unsigned to[4][C::kResults];
          pair(acc[i][e], acc[i][e + 1], low, words[g][0], to[0]);
          pair(acc[i][e + 2], acc[i][e + 3], high, words[g][1], to[1]);
          pair(acc[i][e + 4], acc[i][e + 5], low, words[g][2], to[2]);
          pair(acc[i][e + 6], acc[i][e + 7], high, words[g][3], to[3]);
#pragma unroll
          for (int r = 0; r < C::kResults; ++r)
            base::store_columns(mine + r * base::kBoxBytes, g * 16, lane, warp, to[0][r], to[1][r],
                                to[2][r], to[3][r]);
        }
        fence_for_copies();
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barriers + 8 * (kSlots + at.stage));
        at.advance();
      }
    }
  }
  __device__ inline void finish(unsigned) const {}
};

template <class C, class Rows, class Apply>
__device__ inline void contract_full_sm90(const tensor_map& left, const tensor_map& right,
                                          const tensor_map& a, const tensor_map& b,
                                          const contract_shape& shape, const Rows& rows,
                                          const Apply& apply) {
  contract<C>::run(left, right, shape, full_output<C, Rows, Apply>{{&a, &b}, rows, apply});
}

template <class C, class Rows, class Apply>
__device__ inline void contract_full_sm90(const tensor_map& left, const tensor_map& right,
                                          const tensor_map& a, const tensor_map& b,
                                          const tensor_map& c, const contract_shape& shape,
                                          const Rows& rows, const Apply& apply) {
  contract<C>::run(left, right, shape, full_output<C, Rows, Apply>{{&a, &b, &c}, rows, apply});
}

template <class C, class Rows, class Apply>
__device__ inline void contract_full_sm90(const tensor_map& left, const tensor_map& right,
                                          const tensor_map& a, const tensor_map& b,
                                          const tensor_map& c, const tensor_map& d,
                                          const contract_shape& shape, const Rows& rows,
                                          const Apply& apply) {
  contract<C>::run(left, right, shape, full_output<C, Rows, Apply>{{&a, &b, &c, &d}, rows, apply});
}
