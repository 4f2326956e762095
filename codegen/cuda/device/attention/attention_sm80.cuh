#pragma once
// attention_sm80<Config>(memory, shape, query, key, value, score, inside, factor, limits, weight,
// random, finish, rows, first, store): the skeleton of softmax(q k) v on mma.sync, without a
// matrix of scores in memory. attention_rows.cuh has what it shares with attention_sm90, and says
// what the functions from score to first are.
//
//   block      kRows = 16 * kRowTiles * kWarps queries of one head; blocks of kKeys keys, from the
//              last to the first, in a ring of kStages by asynchronous copies of all threads
//   warp       16 * kRowTiles of the rows, all keys:
//
//     S = q k'      mma.sync, q held in registers with kHeld, else read again for each block
//     P, m, l       by rows
//     O += P v      P from registers, v transposed as it is read
//
//   O / l → finish → rows of q in shared memory → store
//
// A fragment of k or v serves all row tiles of the warp: with one, reading shared memory is the
// limit of mma.sync. Copies of a block are under way while the one before is multiplied; a barrier
// a block says that they are there, and that nobody reads the place that comes next.
//
// Operands have 16 bits or are f32 (kF32; attention_products.cuh says what differs).
//
// Functions beside those of attention_rows.cuh, of the neighbours in 16 bytes, with `to` the place
// in `memory`:
//   query(to, batch, row, column), key(…), value(…)    elements from `column` on of a row of the
//                                   operand of head `batch` of the result, zeroes outside of it;
//                                   kAsync: bits for those that start asynchronous copies
//   store(values, batch, row, column)                  of the result
//
// Operands of 8 bits (kEight) come by way of `bytes`, as bytes of shared memory, and are widened to
// f16 in panels; the functions that load write there. Weights of 8 bits are rounded behind the
// division by the sum, so that blocks are taken two times: keys alone first, for maxima and sums,
// then keys and values. of_weights and of_results get the largest absolute values (kPeaks).

#include "codegen/cuda/device/attention/attention_products.cuh"
#include "codegen/cuda/device/attention/attention_rows.cuh"
#include "codegen/cuda/device/attention/byte_panels.cuh"
#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/numbers/add_largest.cuh"
#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/copy_async.cuh"
#include "codegen/cuda/device/ptx/load_matrix.cuh"

template <class C>
struct attention_mma {
  static constexpr int kThreads = 32 * C::kWarps;
  static constexpr int kWarpRows = 16 * C::kRowTiles;
  static constexpr int kRows = kWarpRows * C::kWarps;
  using tiles = attention_tiles<kRows, C::kKeys>;
  static constexpr int kQueryElements = kWarpRows * (C::kDepth > C::kWidth ? C::kDepth : C::kWidth);
  static constexpr int kKeyElements = C::kKeys * C::kDepth, kValueElements = C::kKeys * C::kWidth;
  static constexpr int kKeysAt = C::kWarps * kQueryElements;
  static constexpr int kStageElements = kKeyElements + kValueElements;

  using products = attention_products<C>;
  static constexpr int kBytes = products::kBytes, kOfChunk = products::kOfChunk;
  static constexpr int kDepthHalves = C::kDepth * products::kHalves;
  static constexpr int kWidthHalves = C::kWidth * products::kHalves;
  using query_panels = panels<kWarpRows, kDepthHalves>;
  using key_panels = panels<C::kKeys, kDepthHalves>;
  using value_panels = panels<C::kKeys, kWidthHalves>;
  using result_panels = panels<kWarpRows, kWidthHalves>;
  static constexpr int kDepthSteps = C::kDepth / products::kStep;
  static constexpr int kKeySteps = C::kKeys / products::kStep;
  using left = typename products::left;

  template <class F>
  struct warp {
    attention_rows<C, F> part[C::kRowTiles];
    int first, end;              // blocks that its rows see
    unsigned query, key, value;  // addresses of the rows that this lane names of matrices
    unsigned held[C::kHeld ? C::kRowTiles * kDepthSteps * 4 : 1];

    static __device__ inline unsigned query_at(unsigned from, int tile, int step) {
      return query_panels::further(from, 16 * tile, 2 * step);
    }
    __device__ inline void hold_queries() {
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r)
#pragma unroll
        for (int i = 0; i < kDepthSteps; ++i)
          matrices<4>::load(held + (r * kDepthSteps + i) * 4, query_at(query, r, i));
    }
    __device__ inline left query_of(unsigned queries, int tile, int step) const {
      if constexpr (C::kHeld)
        return products::template left_registers<false>(held + (tile * kDepthSteps + step) * 4);
      else
        return products::template left_rows<false>(query_at(queries, tile, step));
    }
    __device__ inline void multiply_keys(unsigned keys) {
      const unsigned queries = computed_again(query);
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r)
#pragma unroll
        for (float& score : part[r].score) score = 0;
      if constexpr (products::kChain != 0) return multiply_keys_in_chains(queries, keys);
#pragma unroll
      for (int i = 0; i < kDepthSteps; ++i) {
        left rows[C::kRowTiles];
#pragma unroll
        for (int r = 0; r < C::kRowTiles; ++r) rows[r] = query_of(queries, r, i);
#pragma unroll
        for (int n = 0; n < C::kKeys / 16; ++n) {
          const auto right = products::right_rows(key_panels::further(keys, 16 * n, 2 * i));
#pragma unroll
          for (int r = 0; r < C::kRowTiles; ++r)
            products::multiply(part[r].score + 8 * n, rows[r], right);
        }
      }
    }
    using sums_of_rows = float * [C::kRowTiles];
    // A sum of a few steps is for some columns; queries are read anew for others.
    __device__ inline void multiply_keys_in_chains(unsigned queries, unsigned keys) {
#pragma unroll
      for (int n = 0; n < C::kKeys / 16; ++n) {
        sums_of_rows to;
#pragma unroll
        for (int r = 0; r < C::kRowTiles; ++r) to[r] = part[r].score + 8 * n;
        products::template add_steps<kDepthSteps, C::kRowTiles, 8, C::kHeld == 0>(
            to, [&](int i, float* const(&sums)[C::kRowTiles]) {
              const auto right = products::right_rows(key_panels::further(keys, 16 * n, 2 * i));
#pragma unroll
              for (int r = 0; r < C::kRowTiles; ++r)
                products::multiply(sums[r], query_of(queries, r, i), right);
            });
      }
    }
    // Adds one step of P v for 16 columns.
    __device__ inline void multiply_value(unsigned values, int i, int n,
                                          float* const (&sums)[C::kRowTiles]) {
      const auto right = products::template right_across<false>(
          value_panels::further(values, products::kStep * i, products::kAcross * n));
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r)
        products::multiply(sums[r],
                           products::template left_registers<true>(part[r].weights + 4 * i), right);
    }
    __device__ inline void multiply_values(unsigned values) {
      sums_of_rows to[C::kWidth / 16];
#pragma unroll
      for (int n = 0; n < C::kWidth / 16; ++n)
#pragma unroll
        for (int r = 0; r < C::kRowTiles; ++r) to[n][r] = part[r].result + 8 * n;
      if constexpr (products::kChain != 0) {
#pragma unroll
        for (int n = 0; n < C::kWidth / 16; ++n)
          products::template add_steps<kKeySteps, C::kRowTiles, 8, false>(
              to[n], [&](int i, float* const(&sums)[C::kRowTiles]) {
                multiply_value(values, i, n, sums);
              });
      } else {
#pragma unroll
        for (int i = 0; i < kKeySteps; ++i)
#pragma unroll
          for (int n = 0; n < C::kWidth / 16; ++n) multiply_value(values, i, n, to[n]);
      }
    }
    __device__ inline void take(int block, int stage) {
      multiply_keys(key + stage * (kBytes * kStageElements));
      using exponent = typename attention_rows<C, F>::exponent;
      exponent of[C::kRowTiles];
      float times[C::kRowTiles], low[C::kRowTiles], high[C::kRowTiles];
      bool grows = false, large = false;
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r) {
        times[r] = part[r].take_scores(block);
        of[r] = part[r].template take_maxima<false>(times[r], low[r], high[r]);
        grows |= low[r] != 1.f || high[r] != 1.f;
        large |= part[r].is_large(of[r]);
      }
      // Maxima seldom grow after the first blocks. What follows is one piece, so that exponentials
      // are computed beside products.
      if (__any_sync(~0u, grows || large)) {
#pragma unroll
        for (int r = 0; r < C::kRowTiles; ++r) part[r].scale_result(low[r], high[r]);
        if (__any_sync(~0u, large))
#pragma unroll
          for (int r = 0; r < C::kRowTiles; ++r) part[r].subtract_maxima(times[r], of[r]);
      }
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r) {
        part[r].template take_exponentials<false>(of[r], low[r], high[r]);
        part[r].take_weights(block);
      }
      multiply_values(value + stage * (kBytes * kStageElements));
    }
    // Takes a block for maxima and sums alone, where blocks are taken two times.
    __device__ inline void look(int block, int stage) {
      multiply_keys(key + stage * (kBytes * kStageElements));
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r) {
        float low, high;
        part[r].template softmax<false>(part[r].take_scores(block), low, high);
      }
    }
    __device__ inline void take_again(int block, int stage) {
      multiply_keys(key + stage * (kBytes * kStageElements));
#pragma unroll
      for (int r = 0; r < C::kRowTiles; ++r) {
        part[r].softmax_again(part[r].take_scores(block));
        part[r].take_weights(block);
      }
      multiply_values(value + stage * (kBytes * kStageElements));
    }
  };

  // The places where a warp's rows and the block's shared memory begin.
  struct spot {
    typename tiles::place tile;
    int number, row, lane;
    unsigned start;  // address
    int from;        // element of `memory`
    int queries_at;
    template <class T>
    __device__ inline spot(const attention_shape& s, T* memory, int thread, int block) {
      tile = tiles::place_of(s, block);
      number = __shfl_sync(~0u, thread / 32, 0);
      lane = thread % 32;
      row = tile.row + number * kWarpRows;
      const unsigned address = unsigned(__cvta_generic_to_shared(memory));
      start = aligned_panels(address);
      from = (start - address) / kBytes;
      queries_at = from + number * kQueryElements;
    }
  };

  // A warp of a tile, with nothing seen yet.
  template <class F>
  static __device__ inline warp<F> warp_of(const F& f, const attention_shape& s, const spot& at) {
    const typename tiles::range own =
        tiles::range_of(s, f.limits, at.tile.batch, at.row, kWarpRows);
    warp<F> w;
    w.first = own.first;
    w.end = at.row < s.queries ? own.end : own.first;
#pragma unroll
    for (int r = 0; r < C::kRowTiles; ++r) {
      attention_rows<C, F>& part = w.part[r];
      part.f = &f;
      part.s = &s;
      part.thread = at.lane;
      part.batch = at.tile.batch;
      part.row = at.row + 16 * r + at.lane / 4;
      part.inside_first = (max(own.inside_first, 0) + C::kKeys - 1) / C::kKeys;
      part.inside_end = max(own.inside_end, 0) / C::kKeys;
      part.take_factor();
      part.begin_largest();
      part.begin_rows();
#pragma unroll
      for (float& result : part.result) result = 0;
    }
    const int lane = at.lane;
    w.query =
        at.start + at.number * kQueryElements * kBytes + query_panels::first(lane % 16, lane / 16);
    w.key = at.start + kKeysAt * kBytes + key_panels::first(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    w.value = at.start + (kKeysAt + kKeyElements) * kBytes +
              products::template first_across<value_panels>(lane);
    return w;
  }

  // Results of a warp over its queries in shared memory, and out.
  template <class T, class F, class Store>
  static __device__ inline void store_rows(T* memory, warp<F>& w, const attention_shape& s,
                                           const Store& store) {
    const spot at(s, memory, computed_again(threadIdx.x), computed_again(blockIdx.x));
    if (at.row >= s.queries) return;
    __syncwarp();  // the last queries have been read
#pragma unroll
    for (int r = 0; r < C::kRowTiles; ++r) {
      attention_rows<C, F>& part = w.part[r];
      part.thread = at.lane;
      part.batch = at.tile.batch;
      part.row = at.row + 16 * r + at.lane / 4;
      if constexpr (!C::kEight) {
        float low, high;
        part.finish_rows(low, high);
        part.scale_result(low, high);
      }
      stage_results(memory + at.queries_at, part, 16 * r, at.lane);
    }
    __syncwarp();
#pragma unroll 4
    for (int n = at.lane; n < kWarpRows * result_panels::kOfRow; n += 32) {
      const int row = n / result_panels::kOfRow, chunk = n % result_panels::kOfRow;
      if (at.row + row >= s.queries || chunk * kOfChunk >= s.columns) continue;
      __align__(16) T values[kOfChunk];
      copy<16>(values, memory + at.queries_at + result_panels::at(row, chunk) / products::kHalves);
      store(values, at.tile.batch, at.row + row, chunk * kOfChunk);
    }
  }
  // 16 rows from `first` on.
  template <class T, class Part>
  static __device__ inline void stage_results(T* to, Part& part, int first, int lane) {
    if constexpr (C::kF32) {
#pragma unroll
      for (int i = 0; i < C::kWidth / 8; ++i) {
        const int e = i / 2 * 8 + i % 2 * 2, row = first + lane / 4 + (e & 2) * 4;
        const int chunk = products::result_column(e, lane) / kOfChunk;
        *reinterpret_cast<float4*>(to + result_panels::at(row, chunk) / products::kHalves) =
            make_float4(part.finished(e), part.finished(e + 4), part.finished(e + 1),
                        part.finished(e + 5));
      }
    } else {
#pragma unroll
      for (int e = 0; e < C::kWidth / 2; e += 2) {
        const int row = first + lane / 4 + (e & 2) * 4;
        *reinterpret_cast<unsigned*>(to + result_panels::at(row, e / 4) + lane % 4 * 2) =
            part.finished_pair(e);
      }
    }
  }

  template <class T, class F, class Query, class Key, class Value, class Store>
  static __device__ inline void run(T* memory, const attention_shape& s, const F& f,
                                    const Query& query, const Key& key, const Value& value,
                                    const Store& store) {
    const spot at(s, memory, threadIdx.x, blockIdx.x);
    const int batch = at.tile.batch;
    const typename tiles::range whole = tiles::range_of(s, f.limits, batch, at.tile.row, kRows);
    const auto load_block = [&](int block, int stage) {
      const int to = at.from + kKeysAt + stage * kStageElements, first = block * C::kKeys;
      const unsigned thread = computed_again(threadIdx.x);
      load_panels<C::kKeys, kDepthHalves, kThreads, (C::kAsync & 2) != 0, kOfChunk>(to, thread, key,
                                                                                    batch, first);
      const auto seen_value = [&](int at, int b, int row, int column) {
        value(at, b, !C::kTails || row < whole.seen_end ? row : s.keys, column);
      };
      load_panels<C::kKeys, kWidthHalves, kThreads, (C::kAsync & 4) != 0, kOfChunk>(
          to + kKeyElements, thread, seen_value, batch, first);
    };
    load_panels<kWarpRows, kDepthHalves, 32, (C::kAsync & 1) != 0, kOfChunk>(at.queries_at, at.lane,
                                                                             query, batch, at.row);
    commit_async();
    constexpr int kAhead = C::kStages - 1;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (whole.end - 1 - i >= whole.first) load_block(whole.end - 1 - i, i);
      commit_async();
    }
    warp<F> w = warp_of(f, s, at);
    if constexpr (C::kHeld) {
      wait_async<kAhead>();
      __syncwarp();
      w.hold_queries();
    }
    int stage = 0;
#pragma unroll 1
    for (int block = whole.end - 1; block >= whole.first; --block) {
      if constexpr (kAhead == 0) {
        __syncthreads();
        load_block(block, 0);
        commit_async();
        wait_async<0>();
        __syncthreads();
      } else {
        wait_async<kAhead - 1>();
        __syncthreads();
        const int last = stage == 0 ? kAhead : stage - 1;  // what was multiplied last
        if (block - kAhead >= whole.first) load_block(block - kAhead, last);
        commit_async();
      }
      if (block >= w.first && block < w.end) w.take(block, stage);
      stage = stage + 1 == C::kStages ? 0 : stage + 1;
    }
    wait_async<0>();
    store_rows(memory, w, s, store);
  }

  // ---- operands of 8 bits

  // Blocks of keys, and of values where `values`, to bytes and from there to a stage.
  template <class T, class Bytes, class Key, class Value>
  struct byte_blocks {
    T* panels_at;
    const Bytes* bytes;
    const Key& key;
    const Value& value;
    int batch, seen_end, keys;

    __device__ inline void load(int block, bool values) const {
      const unsigned thread = computed_again(threadIdx.x);
      load_bytes<C::kKeys, C::kDepth, kThreads>(0, thread, key, batch, block * C::kKeys);
      const auto seen_value = [&](int at, int b, int row, int column) {
        value(at, b, !C::kTails || row < seen_end ? row : keys, column);
      };
      if (values)
        load_bytes<C::kKeys, C::kWidth, kThreads>(kKeyElements, thread, seen_value, batch,
                                                  block * C::kKeys);
      commit_async();
    }
    __device__ inline void widen(int stage, bool values) const {
      const unsigned thread = computed_again(threadIdx.x);
      T* const to = panels_at + kKeysAt + stage * kStageElements;
      wait_async<0>();
      widen_panels<C::kEight, C::kKeys, C::kDepth, kThreads>(to, bytes, thread);
      if (values)
        widen_panels<C::kEight, C::kKeys, C::kWidth, kThreads>(to + kKeyElements,
                                                               bytes + kKeyElements, thread);
    }
  };
  template <class T, class Bytes, class Query>
  static __device__ inline void load_byte_queries(T* memory, const Bytes* bytes, const spot& at,
                                                  const Query& query) {
    const int own = at.number * kWarpRows * C::kDepth;
    load_bytes<kWarpRows, C::kDepth, 32>(own, at.lane, query, at.tile.batch, at.row);
    commit_async();
    wait_async<0>();
    widen_panels<C::kEight, kWarpRows, C::kDepth, 32>(memory + at.queries_at, bytes + own, at.lane);
  }
  // All steps: blocks from the last to the first, two times.
  template <class F, class Blocks>
  static __device__ inline void take_twice(warp<F>& w, const typename tiles::range& whole,
                                           const Blocks& blocks) {
    const int count = whole.end - whole.first;
    const auto block_of = [&](int i) { return whole.end - 1 - (i < count ? i : i - count); };
    int stage = 0;
    // Moves on: the next block is widened when a step is done, and its successor's bytes set out.
    const auto advance = [&](int i) {
      if constexpr (C::kStages == 1) __syncthreads();
      stage = C::kStages == 1 ? 0 : stage ^ 1;
      if (i < 2 * count) blocks.widen(stage, i >= count);
      if (i + 1 < 2 * count) blocks.load(block_of(i + 1), i + 1 >= count);
      __syncthreads();
    };
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      const int block = block_of(i);
      if (block >= w.first && block < w.end) w.look(block, stage);
      advance(i + 1);
    }
#pragma unroll
    for (auto& part : w.part) part.finish_sums();
#pragma unroll 1
    for (int i = count; i < 2 * count; ++i) {
      const int block = block_of(i);
      if (block >= w.first && block < w.end) w.take_again(block, stage);
      advance(i + 1);
    }
  }

  template <class T, class Bytes, class OfWeights, class OfResults, class F, class Query, class Key,
            class Value, class Store>
  static __device__ inline void run_bytes(T* memory, const Bytes* bytes, OfWeights* of_weights,
                                          OfResults* of_results, const attention_shape& s,
                                          const F& f, const Query& query, const Key& key,
                                          const Value& value, const Store& store) {
    static_assert(C::kStages <= 2);
    const spot at(s, memory, threadIdx.x, blockIdx.x);
    const typename tiles::range whole =
        tiles::range_of(s, f.limits, at.tile.batch, at.tile.row, kRows);
    load_byte_queries(memory, bytes, at, query);
    __syncthreads();  // all warps' queries have left the bytes
    const byte_blocks<T, Bytes, Key, Value> blocks = {
        memory + at.from, bytes, key, value, at.tile.batch, whole.seen_end, s.keys};
    blocks.load(whole.end - 1, false);
    warp<F> w = warp_of(f, s, at);
    if constexpr (C::kHeld) w.hold_queries();
    blocks.widen(0, false);
    const bool is_one = whole.end - 1 == whole.first;
    blocks.load(is_one ? whole.first : whole.end - 2, is_one);
    __syncthreads();
    take_twice(w, whole, blocks);
    store_rows(memory, w, s, store);
#pragma unroll
    for (auto& part : w.part) {
      if constexpr (C::kPeaks & 1) add_largest(of_weights, part.largest_weight);
      if constexpr (C::kPeaks & 2) add_largest(of_results, part.largest_result);
    }
  }
};

template <class C, class T, class Query, class Key, class Value, class Score, class Inside,
          class Factor, class Limits, class Weight, class Random, class Finish, class Rows,
          class First, class Store>
__device__ inline void attention_sm80(T* memory, const attention_shape& shape, const Query& query,
                                      const Key& key, const Value& value, const Score& score,
                                      const Inside& inside, const Factor& factor,
                                      const Limits& limits, const Weight& weight,
                                      const Random& random, const Finish& finish, const Rows& rows,
                                      const First& first, const Store& store) {
  using functions =
      attention_functions<Score, Inside, Factor, Limits, Weight, Random, Finish, Rows, First>;
  attention_mma<C>::run(
      memory, shape, functions{score, inside, factor, limits, weight, random, finish, rows, first},
      query, key, value, store);
}

template <class C, class T, class Bytes, class OfWeights, class OfResults, class Query, class Key,
          class Value, class Score, class Inside, class Factor, class Limits, class Weight,
          class Random, class Finish, class Rows, class First, class Store>
__device__ inline void attention_sm80(T* memory, Bytes* bytes, OfWeights* of_weights,
                                      OfResults* of_results, const attention_shape& shape,
                                      const Query& query, const Key& key, const Value& value,
                                      const Score& score, const Inside& inside,
                                      const Factor& factor, const Limits& limits,
                                      const Weight& weight, const Random& random,
                                      const Finish& finish, const Rows& rows, const First& first,
                                      const Store& store) {
  using functions =
      attention_functions<Score, Inside, Factor, Limits, Weight, Random, Finish, Rows, First>;
  attention_mma<C>::run_bytes(
      memory, bytes, of_weights, of_results, shape,
      functions{score, inside, factor, limits, weight, random, finish, rows, first}, query, key,
      value, store);
}
