#pragma once
// attention_bytes_sm90<Config>(q, k, v, memory, of_weights, of_results, shape, score, inside,
// factor, limits, weight, random, finish, rows, first, store): attention_sm90 for operands and
// results of 8 bits. store is that of attention_sm80 (attention_sm80.cuh).
//
//   warp 0              TMA by one thread → q and k as bytes; kDepth counts pairs of them
//   warp 1              TMA by one thread → ring of blocks of v as they lie, keys apart
//   warps 2, 3          v turned around → ring of blocks with keys side by side, which is the one
//                       way that wgmma takes operands of 8 bits. What no row of a tile sees becomes
//                       zeroes
//   consumer group g    blocks two times (attention_rows.cuh says why): S of all, for maxima and
//                       sums; then O += P v as before, with weights that are final
//
// The thread that has columns c, c + 1 and c + 8, c + 9 of an accumulator has to have four columns
// in a row of an operand of 8 bits. So rows of v come in that order, and weights stay where they
// are: 16 keys of a block are 0, 1, 8, 9, 2, 3, 10, 11 …, as two matrices that ldmatrix has turned
// around give two registers.
//
// Results leave registers as f32 and are finished where they are stored (staged_rows.cuh).

#include "codegen/cuda/device/attention/attention_rows.cuh"
#include "codegen/cuda/device/attention/attention_sm90.cuh"
#include "codegen/cuda/device/attention/staged_rows.cuh"
#include "codegen/cuda/device/numbers/add_largest.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"
#include "codegen/cuda/device/ptx/tma.cuh"
#include "codegen/cuda/device/ptx/wgmma.cuh"

using attention_bytes_shape = attention_shape;

template <class C>
struct attention_bytes {
  using skeleton = attention<C>;
  using tiles = typename skeleton::tiles;
  using place = typename skeleton::place;
  using range = typename skeleton::range;
  using ring = typename skeleton::ring;
  static constexpr int kLyingPanels = (C::kWidth + 127) / 128;
  static constexpr int kLyingBytes = kLyingPanels * skeleton::kPanelBytes;
  static constexpr int kLyingAt = (skeleton::kBytes + 1023) & ~1023;
  static constexpr int kBarriersAt = kLyingAt + C::kStages * kLyingBytes;
  static constexpr int kBytes = kBarriersAt + 16 * C::kStages;
  static constexpr int kTurningThreads = 64;

  struct barriers {
    unsigned base;
    __device__ inline unsigned full(int i) const { return base + 8 * i; }
    __device__ inline unsigned empty(int i) const { return base + 8 * (C::kStages + i); }
  };
  static __device__ inline void begin(unsigned memory) {
    const barriers b = {memory + kBarriersAt};
    for (int i = 0; i < C::kStages; ++i) {
      mbarrier_init(b.full(i), 1);
      mbarrier_init(b.empty(i), kTurningThreads);
    }
  }

  // ---- producer

  // each(place, block, seen_end) of the blocks of all tiles.
  template <class Limits, class Each>
  static __device__ inline void each_block(const attention_shape& s, const Limits& limits,
                                           const Each& each) {
    const int count = s.batches * s.query_tiles;
#pragma unroll 1
    for (int round = 0, at = skeleton::tile_of(0); at < count; at = skeleton::tile_of(++round)) {
      const place p = tiles::place_of(s, at);
      const range r = tiles::range_of(s, limits, p.batch, p.row, skeleton::kRows);
      if (skeleton::kSkips && !r.any) continue;
#pragma unroll 1
      for (int block = r.end - 1; block >= r.first; --block) each(p, block, r.seen_end);
    }
  }

  template <class Limits>
  static __device__ inline void load_values(const tensor_map& v, const attention_shape& s,
                                            unsigned memory, const Limits& limits) {
    const barriers b = {memory + kBarriersAt};
    ring at;
    each_block(s, limits, [&](const place& p, int block, int) {
      mbarrier_wait(b.empty(at.stage), at.phase ^ 1);
      skeleton::by_maps::template load<kLyingPanels>(
          memory + kLyingAt + at.stage * kLyingBytes, v, b.full(at.stage), skeleton::kPanelBytes,
          block * C::kKeys, p.inner / s.v_inner, p.outer / s.v_outer);
      at.advance();
    });
  }

  // Byte `key` of a row of v that was turned around, with the swizzle of kKeys bytes.
  static __device__ inline unsigned turned(int column, int key) {
    const unsigned at = column * C::kKeys + key;
    return at ^ (at >> 3 & (C::kKeys - 16) & 0x70);
  }
  // A mask of those of two neighbouring keys from `key` on that lie before `end`.
  static __device__ inline unsigned before(int key, int end) {
    return (key < end ? 0xffffu : 0u) | (key + 1 < end ? 0xffff0000u : 0u);
  }
  // 32 keys by 16 columns, for each of which a warp has one turn.
  template <bool ends>
  static __device__ inline void turn_block(unsigned from, unsigned to, unsigned warp, unsigned lane,
                                           int end) {
    constexpr int kParts = C::kKeys / 32 * (C::kWidth / 16);
#pragma unroll 4
    for (int i = warp; i < kParts; i += kTurningThreads / 32) {
      const int key = i % (C::kKeys / 32) * 32, column = i / (C::kKeys / 32) * 16;
      unsigned a, b, c, d;
      load_transposed(from + column / 128 * skeleton::kPanelBytes + (key + lane) * 128 +
                          ((column / 16 % 8 ^ lane % 8) << 4),
                      a, b, c, d);
      if constexpr (ends) {
        const int first = key + lane % 4 * 2;
        a &= before(first, end);
        b &= before(first + 8, end);
        c &= before(first + 16, end);
        d &= before(first + 24, end);
      }
      store_fragments(to + turned(column + lane % 8 * 2 + lane / 8 % 2, key + lane / 16 * 16),
                      __byte_perm(a, b, 0x6420), __byte_perm(a, b, 0x7531),
                      __byte_perm(c, d, 0x6420), __byte_perm(c, d, 0x7531));
    }
  }
  template <class Limits>
  static __device__ inline void turn_values(const attention_shape& s, unsigned memory,
                                            const typename skeleton::barriers& turned,
                                            unsigned thread, const Limits& limits) {
    const barriers b = {memory + kBarriersAt};
    ring at;
    each_block(s, limits, [&](const place&, int block, int seen_end) {
      mbarrier_wait(b.full(at.stage), at.phase);
      mbarrier_wait(turned.value_empty(at.stage), at.phase ^ 1);
      const unsigned from = memory + kLyingAt + at.stage * kLyingBytes;
      const unsigned to = memory + skeleton::kValuesAt + at.stage * skeleton::kValueBytes;
      const int end = seen_end - block * C::kKeys;
      if (C::kTails && end < C::kKeys)
        turn_block<true>(from, to, thread / 32, thread % 32, end);
      else
        turn_block<false>(from, to, thread / 32, thread % 32, end);
      fence_for_copies();
      mbarrier_arrive(turned.value_full(at.stage));
      mbarrier_arrive(b.empty(at.stage));
      at.advance();
    });
  }

  struct keys_by_map : skeleton::by_maps {
    static constexpr bool kHasValues = false;
  };
  struct by_maps {
    static constexpr int kKeyThreads = 1, kValueThreads = kTurningThreads, kQueryThreads = 1;
    static constexpr bool kHidesTails = true;
    const tensor_map &q, &k, &v;
    const attention_shape& s;

    template <class Run>
    __device__ __forceinline__ void produce(unsigned thread, const Run& run) const {
      const unsigned warp = __shfl_sync(~0u, thread / 32, 0);
      if (warp == 0) {
        if (elect_one()) run(keys_by_map{{q, k, v, s}});
      } else if (warp == 1) {
        if (elect_one()) load_values(v, s, run.memory, run.f.limits);
      } else {
        turn_values(s, run.memory, run.b, thread % kTurningThreads, run.f.limits);
      }
    }
  };

  // ---- consumers

  struct consumer {
    template <class Group>
    static __device__ inline void multiply_values(Group& g) {
      constexpr unsigned long long kHigh = descriptor_layout(C::kKeys, 0) >> 32 << 32;
      const unsigned low = g.value_tile + g.value.stage * (skeleton::kValueBytes >> 4);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < C::kKeys / 32; ++i)
        C::multiply_registers(g.part.result, g.part.weights + 4 * i, kHigh | (low + i * 2), 1);
      wgmma_commit();
    }
    template <class Group>
    static __device__ inline void multiply_keys(Group& g) {
      mbarrier_wait(g.b.key_full(g.key.stage), g.key.phase);
      g.take_turn();
      g.multiply_keys();
    }
    template <int pending, class Group>
    static __device__ inline void take_product(Group& g) {
      g.pass_turn();
      wgmma_wait<pending>();
      skeleton::pin(g.part.score);
      g.release_keys();
    }
    // Blocks that none of the group's rows sees.
    template <bool has_values, class Group>
    static __device__ inline void skip(Group& g, int& block, int end) {
#pragma unroll 1
      for (; block >= end; --block) {
        g.take_turn();
        g.pass_turn();
        mbarrier_wait(g.b.key_full(g.key.stage), g.key.phase);
        if constexpr (has_values) mbarrier_wait(g.b.value_full(g.value.stage), g.value.phase);
        g.group_sync();  // as in attention_sm90
        g.release_keys();
        if constexpr (has_values) g.release_values();
      }
    }
    template <class Group>
    static __device__ inline void take_sums(Group& g, int block, int end, int first) {
      g.part.begin_rows();
      skip<false>(g, block, end);
#pragma unroll 1
      for (; block >= first; --block) {
        multiply_keys(g);
        take_product<0>(g);
        float low, high;
        g.part.template softmax<false>(g.part.take_scores(block), low, high);
      }
      g.part.finish_sums();
    }

    template <class Group>
    static __device__ inline void run(Group& g) {
      if constexpr (C::kPeaks != 0) g.part.begin_largest();
      while (tile(g)) {
      }
      g.out.add(g.part);
    }
    // A tile whose rows see no key, of which nothing but queries' barrier was said.
    template <class Group>
    static __device__ inline void take_nothing(Group& g) {
      mbarrier_arrive(g.b.query_empty(g.group));
      g.part.begin_rows();
      g.part.finish_sums();
#pragma unroll
      for (float& result : g.part.result) result = 0;
    }
    template <class Group>
    static __device__ inline void take_tile(Group& g, int block, int end, int first) {
      auto& part = g.part;
      take_sums(g, block, end, first);
      skip<true>(g, block, end);
      multiply_keys(g);
      take_product<0>(g);
      part.softmax_again(part.take_scores(block));
      part.take_byte_weights(block);
#pragma unroll
      for (float& result : part.result) result = 0;
#pragma unroll 1
      for (--block; block >= first; --block) {
        multiply_keys(g);
        mbarrier_wait(g.b.value_full(g.value.stage), g.value.phase);
        multiply_values(g);
        take_product<1>(g);
        part.softmax_again(part.take_scores(block));
        wgmma_wait<0>();
        skeleton::pin(part.result);
        g.release_values();
        part.take_byte_weights(block);
      }
      mbarrier_arrive(g.b.query_empty(g.group));
      mbarrier_wait(g.b.value_full(g.value.stage), g.value.phase);
      multiply_values(g);
      wgmma_wait<0>();
      skeleton::pin(part.result);
      g.release_values();
    }
    template <class Group>
    static __device__ inline bool tile(Group& g) {
      auto& part = g.part;
      mbarrier_wait(g.b.query_full(g.group), g.query_phase);
      g.query_phase ^= 1;
      part.batch = g.of_slot(1);
      if (part.batch < 0) return false;
      const int first_row = g.of_slot(0), first = g.of_slot(4), end = g.of_slot(6);
      part.row = first_row + g.thread / 32 * 16 + g.thread % 32 / 4;
      part.inside_first = g.of_slot(7);
      part.inside_end = g.of_slot(8);
      part.take_factor();
      if (skeleton::kSkips && g.of_slot(10) == 0)
        take_nothing(g);
      else
        take_tile(g, g.of_slot(5) - 1, end, first);
      g.out.store(g, first_row);
      return true;
    }
  };
};

// Stores results from the staging: threads finish and store 8.
template <class C, class T, class Store, class OfWeights, class OfResults>
struct attention_to_bytes {
  const attention_shape& s;
  const Store& put;
  OfWeights* of_weights;
  OfResults* of_results;

  template <class Group>
  __device__ inline void store(Group& g, int first_row) const {
    each_staged_row(
        g.staging, g.thread, g.part.result, [&] { g.group_sync(); },
        [&](int row, int column, const float(&x)[8]) {
          if (first_row + row >= s.queries || column >= s.columns) return;
          __align__(16) T values[8];
          g.part.finish_8(x, first_row + row, column, reinterpret_cast<unsigned*>(values));
          put(values, g.part.batch, first_row + row, column);
        });
  }
  template <class Part>
  __device__ inline void add(const Part& part) const {
    if constexpr ((C::kPeaks & 1) != 0) add_largest(of_weights, part.largest_weight);
    if constexpr ((C::kPeaks & 2) != 0) add_largest(of_results, part.largest_result);
  }
  __device__ inline void end(bool) const {}
};

template <class C, class T, class OfWeights, class OfResults, class Score, class Inside,
          class Factor, class Limits, class Weight, class Random, class Finish, class Rows,
          class First, class Store>
__device__ inline void attention_bytes_sm90(
    const tensor_map& q, const tensor_map& k, const tensor_map& v, T* memory, OfWeights* of_weights,
    OfResults* of_results, const attention_shape& shape, const Score& score, const Inside& inside,
    const Factor& factor, const Limits& limits, const Weight& weight, const Random& random,
    const Finish& finish, const Rows& rows, const First& first, const Store& store) {
  using functions =
      attention_functions<Score, Inside, Factor, Limits, Weight, Random, Finish, Rows, First>;
  using bytes = attention_bytes<C>;
  static_assert(C::kBytes == bytes::kBytes + 1024);
  const unsigned start = (shared_address(memory) + 1023) & ~1023u;
  if (threadIdx.x == 0) bytes::begin(start);
  bytes::skeleton::template run<typename bytes::consumer>(
      start, typename bytes::by_maps{q, k, v, shape},
      attention_to_bytes<C, T, Store, OfWeights, OfResults>{shape, store, of_weights, of_results},
      nullptr, shape,
      functions{score, inside, factor, limits, weight, random, finish, rows, first});
}
