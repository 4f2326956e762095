#pragma once
// attention_grad_sm80<Config>(memory, statistics, next, sums, turns, shape, query, grad, key,
// value, score, inside, factor, limits, visible, random, kept, weight, slope, add_bias, scale,
// rows, store_keys, store_values): the skeleton of attention's gradients on mma.sync, all three in
// one kernel, without a matrix of scores in memory. attention_grad_rows.cuh has what it shares with
// attention_grad_sm90, and says what the functions from score to rows are, where sums of dq lie,
// and whose turn it is to add to them.
//
//   block      a tile of kKeys keys of one head of k and v, in shared memory; blocks of kQueries
//              queries and of their dy in a ring of kStages by asynchronous copies. Rows of q and k
//              have kDepth columns, those of dy and v kWidth. kShare warps, 1, 2 or 4, share 32
//              keys:
//   warp       32 of the keys, a half or quarter of the queries:
//
//     S' = k q', D' = v dy'         P' = weight(S'), dS' = (D' - mean of the row) * P'
//
//   warp       32 of the keys, a half or quarter of the columns:
//
//     dv += P' dy, dk += dS' q      P', dS' of its own queries from registers, those of the other
//                                   half from shared memory; dy and q transposed as they are read
//
//   warp       32 of the queries, some columns:
//
//     dq = dS k                     both from shared memory, transposed as they are read; added to
//                                   `sums`
//
//   dk, dv → rows of k and v in shared memory → store_keys, store_values
//
// So a fragment of either operand that is read serves 32 rows of the other: with 16, reading shared
// memory is the limit of mma.sync.
//
// A barrier a step: behind it a block is there, and so are the slopes of the step before, of which
// dq is made then; nobody reads the places that come next. Warps that share keys have one of
// their own, behind their weights and slopes. kOrdered has two more, around what is added.
//
// Functions beside those, of 8 neighbours, with `to` the place in `memory`:
//   query(to, batch, row, column), grad(…), key(to, head, row, column), value(…)    elements from
//                       `column` on of a row of q, dy, k or v, zeroes outside; kAsync: bits for
//                       those that start asynchronous copies
//   store_keys(values, head, row, column), store_values(…)
//
// Operands of 8 bits (kEight) come by way of `bytes`, as bytes of shared memory, and are widened to
// f16 in panels; the functions that load write there. Of them dk and dv go through
//   finish_keys(value, head, row, column, result out), finish_values(…)
// whose second results, with kPeaks 2 and 4, are what of_keys and of_values become the largest
// absolute values of, as of_slopes of slopes; kEightKeys, kEightValues: what they are rounded to.

#include "codegen/cuda/device/attention/attention_grad_products.cuh"
#include "codegen/cuda/device/attention/attention_grad_rows.cuh"
#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"
#include "codegen/cuda/device/attention/byte_panels.cuh"
#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/numbers/add_largest.cuh"
#include "codegen/cuda/device/numbers/eight_bits.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/copy_async.cuh"
#include "codegen/cuda/device/ptx/mma.cuh"

template <class C>
struct attention_grad_mma : attention_grad_products<C> {
  using base = attention_grad_products<C>;
  using base::kBytes;
  using base::kDepthHalves;
  using base::kHalf;
  using base::kHalfChunks;
  using base::kHalves;
  using base::kKeyColumns;
  using base::kKeyElements;
  using base::kKeys;
  using base::kOfChunk;
  using base::kOfWarp;
  using base::kPiece;
  using base::kQueryElements;
  using base::kRowGroups;
  using base::kRowTiles;
  using base::kSlopeElements;
  using base::kSlopesAt;
  using base::kStageElements;
  using base::kStagesAt;
  using base::kThreads;
  using base::kValueColumns;
  using base::kValuesAt;
  using base::kWarpKeys;
  using base::kWarpQueries;
  using base::kWeightsAt;
  using base::kWidthHalves;
  using typename base::dq_piece;
  using typename base::grad_panels;
  using typename base::key_panels;
  using typename base::products;
  using typename base::query_panels;
  using typename base::slope_panels;
  using typename base::value_panels;
  template <int columns>
  using grads = typename base::template grads<columns>;
  struct part_of_warp : C {
    static constexpr int kQueries = kWarpQueries;
    static constexpr int kOfVote = kWarpQueries < 32 ? kWarpQueries : 32;  // rows of one flag
    static constexpr bool kOneLoop = false, kKeptAhead = false;
  };
  // Numbers of a stage: statistics of the rows, their means, and flags for each kOfVote rows.
  static constexpr int kLarge = 1, kDead = 2;  // some see no key
  static constexpr int kOfStage = 2 * C::kQueries + 4;
  using tiles = attention_grad_tiles<kKeys, C::kQueries, C::kOrdered != 0, false, false, false,
                                     C::kAlone != 0>;
  using rows = attention_grad_rows<part_of_warp>;  // of 16 keys
  using turn = attention_grad_turns;
  // Waits for the other warps of these keys.
  static __device__ inline void wait_pair(int pair) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + pair), "n"(32 * C::kShare) : "memory");
  }

  struct step_info {
    int row, batch;
    int before;  // tiles that add before this one
    bool inside;
    int bias_before;  // steps that add to the same part of the bias's gradient
  };
  // A bias's sums are added in turns, since more than two would depend on their order.
  static constexpr bool kBiasInOrder =
      C::kBias && C::kOrdered && (C::kBiasHeads || C::kBiasBatches);
  // The number of other heads' steps at the block that add before, those with lower numbers.
  template <class Step>
  static __device__ inline int bias_before(const attention_grad_shape& s, const Step& step) {
    if constexpr (!kBiasInOrder) return 0;
    const int heads = s.inner * s.group;
    if constexpr (C::kBiasHeads && C::kBiasBatches) return step.count_before(step.batch, 1);
    if constexpr (C::kBiasHeads) return step.count_before(step.batch % heads, 1);
    return step.count_before(step.batch / heads, heads);
  }
  // The turn of a step at the bias's gradient, behind the turns of blocks of dq.
  static __device__ inline int* bias_turn_of(const attention_grad_shape& s, int* turns,
                                             const step_info& step, int key_tile) {
    const int heads = s.inner * s.group;
    const int part = C::kBiasHeads && C::kBiasBatches ? 0
                     : C::kBiasHeads                  ? step.batch / heads
                                                      : step.batch % heads;
    return turns + 1 + s.batches * s.group * s.query_tiles +
           (part * s.query_tiles + step.row / C::kQueries) * s.key_tiles + key_tile;
  }
  // The place where a thread's part of a step begins.
  struct place_in_step {
    const attention_grad_shape& s;
    const step_info& step;
    int first_key;         // of the block
    int in_keys, in_rows;  // where the 16 keys begin among its keys, and the warp's queries
    int lane;
    unsigned rows;  // address of the stage's statistics
    const int* flags;
    __device__ inline int key() const { return first_key + in_keys + lane / 4; }
    __device__ inline int query() const { return step.row + in_rows + 2 * (lane % 4); }
    __device__ inline int batch() const { return step.batch; }
    __device__ inline bool ends() const {
      return step.row + C::kQueries > s.queries || first_key + kKeys > s.keys;
    }
    __device__ inline unsigned statistics() const { return rows + in_rows * 4 + lane % 4 * 8; }
    __device__ inline bool is_large(int i) const {
      return (flags[(in_rows + i * part_of_warp::kOfVote) / 32] & kLarge) != 0;
    }
  };

  // Words of 16 rows of weights or slopes to their place in panels, from the row and chunk on.
  // Those of f32 stand in the order of the left operand: even columns of 8, then odd ones.
  template <int count, class T>
  static __device__ inline void store_words(T* to, int row, int chunk, int lane,
                                            const unsigned* words) {
    const unsigned first = slope_panels::further(slope_panels::first(lane / 4, 0), row, chunk);
#pragma unroll
    for (int e = 0; e < count; e += kHalves == 1 ? 2 : 1) {
      const int in_chunk = C::kF32 ? e / 4 * 2 + e % 2 : e / 4;
      const unsigned at = slope_panels::further(first, (e & 2) * 4, in_chunk) / kBytes;
      *reinterpret_cast<unsigned*>(to + at + lane % 4 * (4 / kBytes)) =
          words[products::left_order(e)];
    }
  }
  // Results of 16 rows, pair(e) those of e and e + 1, the same.
  template <class Panels, int count, class T, class Pair>
  static __device__ inline void store_pairs(T* to, int row, int chunk, int lane, const Pair& pair) {
    const unsigned first = Panels::further(Panels::first(lane / 4, 0), row, chunk);
#pragma unroll
    for (int e = 0; e < count; e += 2) {
      const unsigned at = Panels::further(first, (e & 2) * 4, e / 4) / 2;
      *reinterpret_cast<unsigned*>(to + at + lane % 4 * 2) = pair(e);
    }
  }
  // Stores results of f32, four at a time.
  template <class Panels, int count, class T>
  static __device__ inline void store_quads(T* to, int row, int chunk, int lane, const float* from,
                                            float times) {
#pragma unroll
    for (int i = 0; i < count / 4; ++i) {
      const int e = i / 2 * 8 + i % 2 * 2, in_row = e / 8 * products::kAcross + lane % 4;
      *reinterpret_cast<float4*>(to + Panels::at(row + lane / 4 + (e & 2) * 4, chunk + in_row) /
                                          kHalves) = quad(from + e, times);
    }
  }
  static __device__ inline float4 quad(const float* from, float times) {
    return make_float4(from[0] * times, from[4] * times, from[1] * times, from[5] * times);
  }

  // Adds dq of a step to its sums: f32 as rows, else in the order of fragments.
  template <class Scale>
  static __device__ inline void add_queries(const attention_grad_shape& s, const Scale& scale,
                                            unsigned slopes, unsigned keys, int number, int lane,
                                            float* sums, const step_info& step) {
    const int row = number % kRowGroups * kRowTiles, column = number / kRowGroups * kOfWarp;
    float times[1] = {1.f};
    if constexpr (C::kF32) scale(step.batch, times);
#pragma unroll
    for (int from = 0; from < kOfWarp; from += kPiece) {
      const int first = (column + from) / kOfChunk;
      dq_piece dq;
      base::multiply_queries(dq, slopes, keys, row, first, lane);
      if constexpr (C::kF32) {
        const int of_lane = step.row + 16 * row + lane / 8 * 8 + lane / 4 % 2;
        const long long head = static_cast<long long>(step.batch) * s.sum_rows;
#pragma unroll
        for (int n = 0; n < kPiece / 16; ++n)
#pragma unroll
          for (int w = 0; w < 2 * kRowTiles; ++w) {
            const int at = of_lane + 2 * w, to_column = (first + 4 * n + lane % 4) * 4;
            if (at >= s.queries || to_column >= s.sum_columns) continue;
            add_rows(sums + (head + at) * s.sum_columns + to_column,
                     quad(dq[w / 2] + 8 * n + w % 2 * 2, times[0]));
          }
      } else {
        // Parts are halves of 64 rows, or 64 rows.
        const long long block = step.batch * s.query_tiles + step.row / C::kQueries;
        const int part = C::kQueries == 64 ? first / kHalfChunks : row / 4;
        const int in_part = C::kQueries == 64 ? first % kHalfChunks : first;
        float* to = sums + (block * 2 + part) * (C::kQueries * kHalf) + in_part * 512 +
                    row % 4 * 128 + lane * 4;
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
          for (int i = 0; i < kPiece / 8; ++i)
            turn::add_quad(to + i * 512 + r * 128, dq[r] + 4 * i);
      }
    }
  }
  static __device__ inline void add_rows(float* to, const float4& x) {
    if constexpr (C::kAlone) {
      *reinterpret_cast<float4*>(to) = x;
    } else {
      const float of[] = {x.x, x.y, x.z, x.w};
      turn::add_quad(to, of);
    }
  }

  // Zeroes the rows of a matrix for which `where` holds.
  template <class Panels, int count, int columns, class T, class Where>
  static __device__ inline void zero_where(T* rows_at, const Where& where) {
    constexpr int kChunks = columns / kOfChunk;
#pragma unroll 1
    for (int i = threadIdx.x; i < count * kChunks; i += kThreads)
      if (where(i / kChunks))
        *reinterpret_cast<uint4*>(rows_at + Panels::at(i / kChunks, i % kChunks) / kHalves) =
            make_uint4(0, 0, 0, 0);
  }

  // Rounds k and v of a tile, which all of its steps multiply, to TF32.
  template <class T>
  static __device__ inline void round_keys(T* panel) {
    static_assert(kStagesAt % (4 * kThreads) == 0);
#pragma unroll 4
    for (int i = threadIdx.x * 4; i < kStagesAt; i += 4 * kThreads) {
      uint4* const at = reinterpret_cast<uint4*>(panel + i);
      const uint4 x = *at;
      *at = make_uint4(round_tf32(x.x), round_tf32(x.y), round_tf32(x.z), round_tf32(x.w));
    }
  }

  // Pairs of dk and dv as results: times a number, or below by a function of the graph.
  struct scaled_pairs {
    float times;
    __device__ inline unsigned operator()(float low, float high, int, int) const {
      return pack_pair<C::kPackBf16>(low * times, high * times);
    }
  };
  template <int kind, bool has_peak, class Finish>
  struct finished_pairs {
    const Finish& finish;
    const attention_grad_shape& s;
    int head;
    float& largest;
    __device__ inline float finished(float value, int row, int column) const {
      float y[has_peak ? 2 : 1];
      finish(value, head, min(row, s.keys - 1), column, y);
      if constexpr (has_peak)
        if (row < s.keys) largest = fmaxf(largest, fabsf(y[1]));
      return y[0];
    }
    __device__ inline unsigned operator()(float low, float high, int row, int column) const {
      const float x = finished(low, row, column), y = finished(high, row, column + 1);
      if constexpr (kind != 0)
        return round_pair_8<kind>(x, y);
      else
        return pack_pair<false>(x, y);
    }
  };
  // Writes a warp's part of dk or dv over that of k or v in shared memory, and stores it.
  template <class Panels, class T, int registers, class Pairs, class Store>
  static __device__ inline void store_rows(T* panel, int number, int lane,
                                           const float (&from)[kRowTiles][registers],
                                           const Pairs& pairs, const typename tiles::place& p,
                                           const attention_grad_shape& s, const Store& store) {
    constexpr int kChunks = 2 * registers / kOfChunk;  // of 16 bytes
    const int row = number / C::kShare * kWarpKeys, first = number % C::kShare * kChunks;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
      if constexpr (C::kF32)
        store_quads<Panels, registers>(panel, row + 16 * r, first, lane, from[r], pairs.times);
      else
        store_pairs<Panels, registers>(panel, row + 16 * r, first, lane, [&](int e) {
          return pairs(from[r][e], from[r][e + 1], p.key + row + 16 * r + lane / 4 + (e & 2) * 4,
                       first * 8 + e / 4 * 8 + lane % 4 * 2);
        });
    __syncwarp();
#pragma unroll 4
    for (int n = lane; n < kWarpKeys * kChunks; n += 32) {
      const int in_tile = row + n / kChunks, chunk = first + n % kChunks;
      if (p.key + in_tile >= s.keys) continue;
      __align__(16) T values[kOfChunk];
      copy<16>(values, panel + Panels::at(in_tile, chunk) / kHalves);
      store(values, p.head, p.key + in_tile, chunk * kOfChunk);
    }
  }

  // The end of dk and dv: times a number, or below by a function of the graph.
  template <class T, class Scale, class StoreKeys, class StoreValues>
  struct scaled_results {
    const attention_grad_shape& s;
    const Scale& scale;
    const StoreKeys& store_keys;
    const StoreValues& store_values;
    __device__ inline void operator()(const grads<kKeyColumns>& dk, const grads<kValueColumns>& dv,
                                      float, const typename tiles::place& p, T* panel, int number,
                                      int lane) const {
      float times[1] = {1.f};
      scale(p.head * s.group, times);
      const scaled_pairs of_keys = {times[0]}, of_values = {1.f};
      store_rows<key_panels>(panel, number, lane, dk, of_keys, p, s, store_keys);
      store_rows<value_panels>(panel + kValuesAt, number, lane, dv, of_values, p, s, store_values);
    }
  };
  template <class T, class OfSlopes, class OfKeys, class OfValues, class FinishKeys,
            class FinishValues, class StoreKeys, class StoreValues>
  struct finished_results {
    const attention_grad_shape& s;
    OfSlopes* of_slopes;
    OfKeys* of_keys;
    OfValues* of_values;
    const FinishKeys& finish_keys;
    const FinishValues& finish_values;
    const StoreKeys& store_keys;
    const StoreValues& store_values;
    __device__ inline void operator()(const grads<kKeyColumns>& dk, const grads<kValueColumns>& dv,
                                      float largest, const typename tiles::place& p, T* panel,
                                      int number, int lane) const {
      constexpr bool kOfKeys = (C::kPeaks & 2) != 0, kOfValues = (C::kPeaks & 4) != 0;
      float largest_key = -rows::infinity(), largest_value = -rows::infinity();
      const finished_pairs<C::kEightKeys, kOfKeys, FinishKeys> keys = {finish_keys, s, p.head,
                                                                       largest_key};
      const finished_pairs<C::kEightValues, kOfValues, FinishValues> values = {
          finish_values, s, p.head, largest_value};
      store_rows<key_panels>(panel, number, lane, dk, keys, p, s, store_keys);
      store_rows<value_panels>(panel + kValuesAt, number, lane, dv, values, p, s, store_values);
      if constexpr (C::kPeaks & 1) add_largest(of_slopes, largest);
      if constexpr (kOfKeys) add_largest(of_keys, largest_key);
      if constexpr (kOfValues) add_largest(of_values, largest_value);
    }
  };

  // Loads k or v of a tile, by way of bytes.
  template <int columns, class T, class Bytes, class Load>
  static __device__ inline void load_wide(T* to, const Bytes* bytes, const Load& load,
                                          const typename tiles::place& p) {
    load_bytes<kKeys, columns, kThreads>(0, threadIdx.x, load, p.head, p.key);
    commit_async();
    wait_async<0>();
    widen_panels<C::kEight, kKeys, columns, kThreads>(to, bytes, threadIdx.x);
    __syncthreads();  // each thread's bytes may be another one's next
  }

  // Makes a tile; finish(dk, dv, slopes, place) stores the sums.
  template <class T, class Bytes, class F, class Query, class Grad, class Key, class Value,
            class Finish>
  static __device__ inline void run(T* memory, const Bytes* bytes, float* statistics, int* next,
                                    float* sums, int* turns, const attention_grad_shape& s,
                                    const F& f, const Query& query, const Grad& grad,
                                    const Key& key, const Value& value, const Finish& finish) {
    const unsigned address = unsigned(__cvta_generic_to_shared(memory));
    const unsigned start = aligned_panels(address);
    const int from = (start - address) / kBytes;
    if constexpr (C::kAlone == 0) {
      if (threadIdx.x == 0) *next = atomicAdd(turns, 1);
      __syncthreads();
      // A launch that no zeroes come before has no tiles left.
      if (*next >= s.batches * s.key_tiles) return;
    }
    const typename tiles::place p = tiles::place_of(s, C::kAlone ? blockIdx.x : *next);
    const int number = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if constexpr (C::kEight) {
      load_wide<C::kDepth>(memory + from, bytes, key, p);
      load_wide<C::kWidth>(memory + from + kValuesAt, bytes, value, p);
    } else {
      load_panels<kKeys, kDepthHalves, kThreads, (C::kAsync & 4) != 0, kOfChunk>(
          from, threadIdx.x, key, p.head, p.key);
      load_panels<kKeys, kWidthHalves, kThreads, (C::kAsync & 8) != 0, kOfChunk>(
          from + kValuesAt, threadIdx.x, value, p.head, p.key);
    }
    typename tiles::template steps<decltype(f.limits)> step(s, f.limits, p);
    const auto load_step = [&](int stage) {
      const int to = from + kStagesAt + stage * kStageElements;
      const unsigned thread = computed_again(threadIdx.x);
      if constexpr (C::kEight) {
        load_bytes<C::kQueries, C::kDepth, kThreads>(0, thread, query, step.batch, step.row);
        load_bytes<C::kQueries, C::kWidth, kThreads>(kQueryElements, thread, grad, step.batch,
                                                     step.row);
      } else {
        load_panels<C::kQueries, kDepthHalves, kThreads, (C::kAsync & 1) != 0, kOfChunk>(
            to, thread, query, step.batch, step.row);
        load_panels<C::kQueries, kWidthHalves, kThreads, (C::kAsync & 2) != 0, kOfChunk>(
            to + kQueryElements, thread, grad, step.batch, step.row);
      }
    };
    // Waits until everything that this thread has loaded of a step is there.
    const auto settle = [&](int stage) {
      wait_async<0>();
      if constexpr (C::kEight) {
        T* const to = memory + from + kStagesAt + stage * kStageElements;
        const unsigned thread = computed_again(threadIdx.x);
        widen_panels<C::kEight, C::kQueries, C::kDepth, kThreads>(to, bytes, thread);
        widen_panels<C::kEight, C::kQueries, C::kWidth, kThreads>(to + kQueryElements,
                                                                  bytes + kQueryElements, thread);
      }
    };
    // Bytes are a stage of their own, which is free when a step begins.
    constexpr bool kLoadsAhead = C::kStages > 1 || C::kEight;
    // Statistics and means of a step's rows, a row a thread.
    float of_row[2];
    int flags = 0;
    const auto read_rows = [&] {
      if (threadIdx.x >= C::kQueries) return;
      const int row = step.row + threadIdx.x;
      rows::read_row(f, s, step.batch, row, of_row);
      flags = rows::any_large(of_row[0]) ? kLarge : 0;
      if (flags == 0) of_row[0] *= rows::kLog2e;
      const bool is_dead = row < s.queries && of_row[0] == rows::infinity();
      if (__any_sync(~0u, is_dead)) flags |= kDead;
    };
    const auto store_rows_of = [&](int stage) {
      if (threadIdx.x >= C::kQueries) return;
      float* const to = statistics + stage * kOfStage;
      to[threadIdx.x] = of_row[0];
      to[C::kQueries + threadIdx.x] = of_row[1];
      if (lane == 0) to[2 * C::kQueries + threadIdx.x / 32] = __int_as_float(flags);
    };
    // Rows of q and dy that see no key, and keys that no row sees.
    const auto zero_rows = [&](int stage) {
      const float* const of = statistics + stage * kOfStage;
      int any = 0;
#pragma unroll
      for (int i = 0; i < C::kQueries / 32; ++i) any |= __float_as_int(of[2 * C::kQueries + i]);
      if ((any & kDead) == 0) return;
      T* const at = memory + from + kStagesAt + stage * kStageElements;
      const auto is_dead = [&](int row) { return of[row] == rows::infinity(); };
      zero_where<query_panels, C::kQueries, C::kDepth>(at, is_dead);
      zero_where<grad_panels, C::kQueries, C::kWidth>(at + kQueryElements, is_dead);
      __syncthreads();
    };
    const attention_grad_keys seen = attention_grad_seen(s, f.limits, p.head);
    const auto zero_keys = [&] {
      if (seen.first <= p.key && seen.end >= min(p.key + kKeys, s.keys)) return;
      T* const at = memory + from;
      const auto is_unseen = [&](int key) {
        return p.key + key < seen.first || p.key + key >= seen.end;
      };
      zero_where<key_panels, kKeys, C::kDepth>(at, is_unseen);
      zero_where<value_panels, kKeys, C::kWidth>(at + kValuesAt, is_unseen);
      __syncthreads();
    };
    bool more = step.next();
    if (more && kLoadsAhead) load_step(0);
    if (more && C::kStages > 1) {
      read_rows();
      store_rows_of(0);
    }
    commit_async();
    rows part[kRowTiles];
    grads<kKeyColumns> dk;
    grads<kValueColumns> dv;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      part[r].largest = -rows::infinity();
#pragma unroll
      for (float& x : dk[r]) x = 0;
#pragma unroll
      for (float& x : dv[r]) x = 0;
    }
    const int pair = number / C::kShare, half = number % C::kShare;
    const unsigned across = lane % 16, chunk = lane / 16;  // rows of matrices that a lane names
    const unsigned own_keys = start + key_panels::first(pair * kWarpKeys + across, chunk);
    const unsigned own_values =
        start + kValuesAt * kBytes + value_panels::first(pair * kWarpKeys + across, chunk);
    const unsigned all_keys = start + products::template first_across<key_panels>(lane);
    const unsigned queries = start + kStagesAt * kBytes;
    const int in_rows = half * kWarpQueries + lane % 8 + lane / 16 * 8, in_chunk = lane / 8 % 2;
    const unsigned as_rows = query_panels::first(in_rows, in_chunk);
    const unsigned grads_as_rows = grad_panels::first(in_rows, in_chunk);
    const unsigned as_columns = query_panels::further(
        products::template first_across<query_panels>(lane), 0, half * (kKeyColumns / kOfChunk));
    const unsigned grads_as_columns = grad_panels::further(
        products::template first_across<grad_panels>(lane), 0, half * (kValueColumns / kOfChunk));
    const int own = half * kWarpQueries;  // queries
    const unsigned of_pair = slope_panels::first(pair * kWarpKeys + across, chunk);
    // dq of the step before, from the slopes that it left.
    step_info before = {};
    bool any = false;
    int stage = 0, slopes = 0;
    const auto add_before = [&] {
      [[maybe_unused]] const int block = before.batch * s.query_tiles + before.row / C::kQueries;
      if constexpr (C::kOrdered && !C::kAlone) {
        if (threadIdx.x == 0) turn::wait_turn(turns + 1 + block, before.before);
        __syncthreads();
      }
      add_queries(s, f.scale, start + (kSlopesAt + (slopes ^ 1) * kSlopeElements) * kBytes,
                  all_keys, number, lane, sums, before);
      if constexpr (C::kOrdered && !C::kAlone) {
        __syncthreads();
        if (threadIdx.x == 0) turn::pass_turn(turns + 1 + block);
      }
    };
#pragma unroll 1
    while (more) {
      const step_info now = {step.row, step.batch, step.last_tile - p.index, step.inside,
                             bias_before(s, step)};
      if constexpr (C::kStages == 1) {
        __syncthreads();
        if constexpr (!kLoadsAhead) {
          load_step(0);
          commit_async();
        }
        read_rows();
        store_rows_of(0);
      }
      settle(stage);
      __syncthreads();
      if (!any) {
        zero_keys();
        if constexpr (C::kF32 == 1) {
          round_keys(memory + from);
          __syncthreads();
        }
      }
      zero_rows(stage);
      more = step.next();
      if constexpr (kLoadsAhead) {
        if (more) load_step(stage ^ 1);
        commit_async();
      }
      if constexpr (C::kStages > 1)
        if (more) read_rows();
      if (any) add_before();
      const unsigned block = queries + stage * (kStageElements * kBytes);
      const float* const rows_of = statistics + stage * kOfStage;
      const unsigned of_stage = unsigned(__cvta_generic_to_shared(rows_of));
      float* const scores[kRowTiles] = {part[0].score, part[1].score};
      float* const inner[kRowTiles] = {part[0].grad, part[1].grad};
      base::template multiply_rows<key_panels, query_panels, C::kDepth>(scores, own_keys,
                                                                        block + as_rows);
      base::template multiply_rows<value_panels, grad_panels, C::kWidth>(
          inner, own_values, block + kQueryElements * kBytes + grads_as_rows);
      const int slopes_at = kSlopesAt + slopes * kSlopeElements;
      int* const bias_turn = bias_turn_of(s, turns, now, p.index);
      if constexpr (kBiasInOrder) {
        if (threadIdx.x == 0) turn::wait_turn(bias_turn, now.bias_before);
        __syncthreads();
      }
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const int row = pair * kWarpKeys + 16 * r;
        const place_in_step here = {
            s,   now,  p.key,    row,
            own, lane, of_stage, reinterpret_cast<const int*>(rows_of + 2 * C::kQueries)};
        const auto store = [&](int to, const unsigned* words) {
          store_words<kWarpQueries / 2>(memory + from + to, row, own / kOfChunk, lane, words);
        };
        const unsigned means = here.statistics() + C::kQueries * 4;
        part[r].take_kept(f, s, here);
        if constexpr (rows::kTogether) {
          part[r].take_both(f, s, here, now.inside, means);
          if constexpr (C::kShare > 1) store(kWeightsAt, part[r].weights);
        } else {
          part[r].take_weights(f, s, here, now.inside);
          if constexpr (C::kShare > 1) store(kWeightsAt, part[r].weights);
          part[r].take_slopes(f, s, here, means);
        }
        store(slopes_at, part[r].slopes);
      }
      if constexpr (kBiasInOrder) {
        __syncthreads();
        if (threadIdx.x == 0) turn::pass_turn(bias_turn);
      }
      const unsigned grad_rows = block + kQueryElements * kBytes + grads_as_columns;
      const unsigned query_rows = block + as_columns;
      base::template multiply_own<grad_panels>(
          dv, [&](int r) { return part[r].weights; }, grad_panels::further(grad_rows, own, 0));
      base::template multiply_own<query_panels>(
          dk, [&](int r) { return part[r].slopes; }, query_panels::further(query_rows, own, 0));
      if constexpr (C::kShare > 1) wait_pair(pair);
#pragma unroll
      for (int i = 1; i < C::kShare; ++i) {
        const int other = (half + i) % C::kShare * kWarpQueries;
        const unsigned of_other = slope_panels::further(of_pair, 0, other / kOfChunk);
        base::template multiply_other<grad_panels>(dv, start + kWeightsAt * kBytes + of_other,
                                                   grad_panels::further(grad_rows, other, 0));
        base::template multiply_other<query_panels>(dk, start + slopes_at * kBytes + of_other,
                                                    query_panels::further(query_rows, other, 0));
      }
      if constexpr (C::kStages > 1) {
        if (more) store_rows_of(stage ^ 1);
        stage ^= 1;
      }
      slopes ^= 1;
      before = now;
      any = true;
    }
    wait_async<0>();
    __syncthreads();
    if (any) add_before();
    __syncthreads();  // the last keys have been read
    float largest = -rows::infinity();
#pragma unroll
    for (const rows& of : part) largest = fmaxf(largest, of.largest);
    finish(dk, dv, largest, p, memory + from, number, lane);
  }
};

template <class C, class T, class Query, class Grad, class Key, class Value, class Score,
          class Inside, class Factor, class Limits, class Visible, class Random, class Kept,
          class Weight, class Slope, class AddBias, class Scale, class Rows, class StoreKeys,
          class StoreValues>
__device__ inline void attention_grad_sm80(
    T* memory, float* statistics, int* next, float* sums, int* turns,
    const attention_grad_shape& shape, const Query& query, const Grad& grad, const Key& key,
    const Value& value, const Score& score, const Inside& inside, const Factor& factor,
    const Limits& limits, const Visible& visible, const Random& random, const Kept& kept,
    const Weight& weight, const Slope& slope, const AddBias& add_bias, const Scale& scale,
    const Rows& rows, const StoreKeys& store_keys, const StoreValues& store_values) {
  using functions = attention_grad_functions<Score, Inside, Factor, Limits, Visible, Random, Kept,
                                             Weight, Slope, AddBias, Scale, Rows>;
  using skeleton = attention_grad_mma<C>;
  const typename skeleton::template scaled_results<T, Scale, StoreKeys, StoreValues> finish = {
      shape, scale, store_keys, store_values};
  skeleton::run(memory, memory, statistics, next, sums, turns, shape,
                functions{score, inside, factor, limits, visible, random, kept, weight, slope,
                          add_bias, scale, rows},
                query, grad, key, value, finish);
}

// The skeleton for operands of 8 bits.
template <class C, class T, class Bytes, class OfSlopes, class OfKeys, class OfValues, class Query,
          class Grad, class Key, class Value, class Score, class Inside, class Factor, class Limits,
          class Visible, class Random, class Kept, class Weight, class Slope, class AddBias,
          class Scale, class Rows, class StoreKeys, class StoreValues, class FinishKeys,
          class FinishValues>
__device__ inline void attention_grad_sm80(
    T* memory, Bytes* bytes, OfSlopes* of_slopes, OfKeys* of_keys, OfValues* of_values,
    float* statistics, int* next, float* sums, int* turns, const attention_grad_shape& shape,
    const Query& query, const Grad& grad, const Key& key, const Value& value, const Score& score,
    const Inside& inside, const Factor& factor, const Limits& limits, const Visible& visible,
    const Random& random, const Kept& kept, const Weight& weight, const Slope& slope,
    const AddBias& add_bias, const Scale& scale, const Rows& rows, const StoreKeys& store_keys,
    const StoreValues& store_values, const FinishKeys& finish_keys,
    const FinishValues& finish_values) {
  using functions = attention_grad_functions<Score, Inside, Factor, Limits, Visible, Random, Kept,
                                             Weight, Slope, AddBias, Scale, Rows>;
  using skeleton = attention_grad_mma<C>;
  const typename skeleton::template finished_results<T, OfSlopes, OfKeys, OfValues, FinishKeys,
                                                     FinishValues, StoreKeys, StoreValues>
      finish = {shape,       of_slopes,     of_keys,    of_values,
                finish_keys, finish_values, store_keys, store_values};
  skeleton::run(memory, bytes, statistics, next, sums, turns, shape,
                functions{score, inside, factor, limits, visible, random, kept, weight, slope,
                          add_bias, scale, rows},
                query, grad, key, value, finish);
}
