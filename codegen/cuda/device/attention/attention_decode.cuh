#pragma once
// attention_decode_split<Config>(memory, statistics, partial, shape, query, key_place, value_place,
// key, value, score, inside, factor, limits, weight, random, finish, rows, first, store) and
// attention_decode_combine<Config>(memory, statistics, partial, shape, finish, rows, first, store):
// the skeletons of softmax(q k) v for few queries and many keys, where nothing but reading k and v
// takes time. attention_sm80.cuh has the products, attention_rows.cuh what a thread does with its
// rows, and says what the functions from score to first are.
//
//   unit    the heads that share one head of k and v; its rows are their queries, head by head, so
//           that each key is read once for all of them
//   block   kRows = 16 * kRowTiles rows of a unit and one split of the keys that they see
//   warp    all rows of the block, every kWarps-th step of kKeys keys: it loads them into a ring of
//           its own by asynchronous copies, and waits for no other warp
//
//     lane      where one or two rows of k and v lie (a page table's entry), a step before they are
//               copied; the lanes of a row get the place by a shuffle
//     products  S = q k', m, l, O += P v of the warp's own keys
//
//   end     warps put m, l and O into shared memory, and the block adds them up: to the result, or
//           with kSplits to `statistics` and `partial`, of which the second kernel makes the result
//
// A split or a warp that sees no key has m = -inf and l = 0, and weighs nothing. A sink joins last.
// Keys outside of what the rows see are zeroes that nobody reads, so that what lies in memory there
// does not matter.
//
// Functions beside those of attention_rows.cuh and attention_sm80.cuh:
//   key_place(batch, row, result out), value_place(…)   the element where a row of the operand of
//                                head `batch` begins; negative: it is zeroes
//   key(to, place, column), value(…)   start an asynchronous copy of 8 neighbours

#include "codegen/cuda/device/attention/attention_rows.cuh"
#include "codegen/cuda/device/attention/attention_sm80.cuh"
#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/numbers/pairs.cuh"
#include "codegen/cuda/device/ptx/copy.cuh"
#include "codegen/cuda/device/ptx/copy_async.cuh"

struct attention_decode_shape {
#define NUMBER(name) int name;
#define FORWARD_NUMBER(name) int name;
#define DECODE_NUMBER(name) int name;
#include "codegen/cuda/device/attention/attention.def"
};

// A function of scores, by rows of a unit instead of a head's: `head` is the unit's first.
template <class Function>
struct attention_decode_rows {
  const Function& f;
  int queries;
  template <class Result>
  __device__ inline void operator()(float value, float beside, float, int head, int row, int column,
                                    Result& result) const {
    const int in_unit = row / queries, own = row - in_unit * queries;
    f(value, beside, float(column - own), head + in_unit, own, column, result);
  }
  template <class Result>
  __device__ inline void operator()(float value, int head, int row, int column, long long bits,
                                    Result& result) const {
    const int in_unit = row / queries;
    f(value, head + in_unit, row - in_unit * queries, column, bits, result);
  }
  template <class Result>
  __device__ inline void operator()(int head, int row, int column, Result& result) const {
    const int in_unit = row / queries;
    f(head + in_unit, row - in_unit * queries, column, result);
  }
};

template <bool is_wide>
struct attention_decode_place {
  using type = int;
};
template <>
struct attention_decode_place<true> {
  using type = long long;
};

// The maximum m, the sum l and some columns of O of a row; l and O lack the factor exp(-m).
template <int columns>
struct attention_decode_part {
  static constexpr float kLog2e = 1.44269504f;
  __align__(16) float values[columns];
  float max, sum;

  static __device__ inline float none() { return -__int_as_float(0x7f800000); }
  __device__ inline attention_decode_part() : max(none()), sum(0) {
#pragma unroll
    for (float& value : values) value = 0;
  }

  static __device__ inline float power(float difference) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(difference * kLog2e));
    return y;
  }
  static __device__ inline float finite(float max) { return max == none() ? 0.f : max; }
  // Adds another part of the row. A part that has seen no key need not have values.
  __device__ inline void add(float other_max, float other_sum, const float* other) {
    const bool is_none = other_max == none() && other_sum == 0.f;
    const float most = fmaxf(max, other_max);
    const float own = power(max - finite(most)), its = power(other_max - finite(most));
    max = most;
    sum = is_none ? sum : fmaf(other_sum, its, sum * own);
#pragma unroll
    for (int i = 0; i < columns; ++i)
      values[i] = is_none ? values[i] : fmaf(other[i], its, values[i] * own);
  }
};

// Finishes a row: eight columns of the result, and its statistics with the first of them.
template <class C, class T, class Finish, class Rows, class First, class Store>
__device__ inline void attention_decode_finish(attention_decode_part<8> part, int head, int query,
                                               int column, T*, const Finish& finish,
                                               const Rows& rows, const First& first,
                                               const Store& store) {
  if constexpr (C::kSink) {
    constexpr float kNothing[8] = {};
    float sink[2];
    first(head, query, sink);
    part.add(sink[0], sink[1], kNothing);
  }
  const float over = part.sum == 0.f ? 0.f : 1.f / part.sum;  // 0: no key was seen
  __align__(16) T values[8];
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    float pair[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      pair[j] = part.values[i + j] * over;
      if constexpr (C::kFinish) {
        float y[1];
        finish(pair[j], head, query, column + i + j, y);
        pair[j] = y[0];
      }
    }
    const unsigned packed = pack_pair<C::kPackBf16>(pair[0], pair[1]);
    copy<4>(values + i, reinterpret_cast<const T*>(&packed));
  }
  store(values, head, query, column);
  if (column == 0) rows(head, query, part.max, part.sum);
}

template <class C>
struct attention_decode {
  static constexpr int kThreads = 32 * C::kWarps;
  static constexpr int kRows = 16 * C::kRowTiles;
  using mma = attention_mma<C>;
  using key_panels = typename mma::key_panels;
  using value_panels = typename mma::value_panels;
  using query_panels = typename mma::query_panels;
  static constexpr int kQueryElements = kRows * C::kDepth;
  static constexpr int kRingElements = C::kStages * mma::kStageElements;  // of a warp
  static constexpr int kPlaces = (2 * C::kKeys + 31) / 32;                // of a lane
  static constexpr int kPitch = C::kWidth + 8;                            // of O in shared memory
  using index = typename attention_decode_place<C::kWide != 0>::type;

  // Lane l has rows l, l + 32, … of a step: its keys, then its values.
  struct places {
    index at[kPlaces];
  };
  // The keys that some row of the block sees, and the steps of this split.
  struct range {
    int first_key, end_key, first, end;
  };

  template <class Limits>
  static __device__ inline range range_of(const attention_decode_shape& s, const Limits& limits,
                                          int head, int first_row, int split) {
    const int row = first_row + threadIdx.x % 32;
    int first = s.keys, end = 0;
    if (threadIdx.x % 32 < kRows && row < s.sharing * s.queries) {
      const int in_unit = row / s.queries, query = row - in_unit * s.queries;
      int result[5];
      limits(head + in_unit, query, query, result);
      first = max(result[0], 0);
      end = min(result[1], s.keys);
    }
    if (first >= end) first = s.keys, end = 0;
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      first = min(first, __shfl_xor_sync(~0u, first, lanes));
      end = max(end, __shfl_xor_sync(~0u, end, lanes));
    }
    const int first_step = first / C::kKeys;
    const int steps = max((end + C::kKeys - 1) / C::kKeys - first_step, 0);
    // A split's steps are a multiple of the warps', but the last one's.
    const int rounds = (steps + C::kWarps - 1) / C::kWarps;
    const int from = int(rounds * (long long)split / s.splits) * C::kWarps;
    const int to = int(rounds * (long long)(split + 1) / s.splits) * C::kWarps;
    return {first, end, first_step + from, first_step + min(to, steps)};
  }

  template <class KeyPlace, class ValuePlace>
  static __device__ inline places places_of(const KeyPlace& key_place,
                                            const ValuePlace& value_place, const range& seen,
                                            int head, int step) {
    places p;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) {
      const int n = 32 * i + threadIdx.x % 32;
      const bool is_key = n < C::kKeys;
      const int row = step * C::kKeys + (is_key ? n : n - C::kKeys);
      index at[1] = {-1};
      if (step < seen.end && row >= seen.first_key && row < seen.end_key) {
        if (is_key)
          key_place(head, row, at);
        else
          value_place(head, row, at);
      }
      p.at[i] = at[0];
    }
    return p;
  }

  // Copies one operand of a step, whose first row is the places' `from`.
  template <class Panels, int from, class Load>
  static __device__ inline void copy_rows(int to, const places& p, const Load& load) {
    constexpr int kOfRow = Panels::kOfRow;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < C::kKeys * kOfRow / 32; ++i) {
      const int n = 32 * i + lane, row = n / kOfRow, chunk = n % kOfRow;
      const index place = __shfl_sync(~0u, p.at[(from + i / kOfRow * 32) / 32], (from + row) % 32);
      load(to + Panels::at(row, chunk), place, chunk * 8);
    }
  }

  // The place where a block's rows and keys begin.
  struct spot {
    int unit, split, head, row;  // of a unit's rows
    __device__ inline spot(const attention_decode_shape& s) {
      const int block = blockIdx.x, group = block / s.row_tiles;
      row = (block - group * s.row_tiles) * kRows;
      unit = group / s.splits;
      split = group - unit * s.splits;
      head = unit * s.sharing;
    }
  };

  template <class W, class F, class T>
  static __device__ inline void begin(W& w, const F& f, const attention_shape& rows, T* memory,
                                      unsigned start, int ring, const spot& at) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < C::kRowTiles; ++r) {
      auto& part = w.part[r];
      part.f = &f;
      part.s = &rows;
      part.thread = lane;
      part.batch = at.head;
      part.row = at.row + 16 * r + lane / 4;
      part.inside_first = part.inside_end = 0;
      part.factor = 1;
      part.max_low = part.max_high = -part.infinity();
      part.sum_low = part.sum_high = 0;
#pragma unroll
      for (float& result : part.result) result = 0;
    }
    w.query = start + query_panels::first(lane % 16, lane / 16);
    w.key = start + ring * 2 + key_panels::first(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    w.value = start + (ring + mma::kKeyElements) * 2 + value_panels::first(lane % 16, lane / 16);
  }

  // Puts m, l and O of a warp into shared memory, for the block.
  template <class W>
  static __device__ inline void put_down(W& w, float* statistics, float* results) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < C::kRowTiles; ++r) {
      auto& part = w.part[r];
      const float low = part.row_sum(part.sum_low), high = part.row_sum(part.sum_high);
      const int row = warp * kRows + 16 * r + lane / 4;
      if (lane % 4 == 0) {
        *reinterpret_cast<float2*>(statistics + 2 * row) = make_float2(part.max_low, low);
        *reinterpret_cast<float2*>(statistics + 2 * (row + 8)) = make_float2(part.max_high, high);
      }
#pragma unroll
      for (int e = 0; e < C::kWidth / 2; e += 2)
        *reinterpret_cast<float2*>(results + (row + (e & 2) * 4) * kPitch + 8 * (e / 4) +
                                   lane % 4 * 2) = make_float2(part.result[e], part.result[e + 1]);
    }
  }
};

template <class C, class T, class Query, class KeyPlace, class ValuePlace, class Key, class Value,
          class Score, class Inside, class Factor, class Limits, class Weight, class Random,
          class Finish, class Rows, class First, class Store>
__device__ inline void attention_decode_split(
    T* memory, float* statistics, float* partial, const attention_decode_shape& s,
    const Query& query, const KeyPlace& key_place, const ValuePlace& value_place, const Key& key,
    const Value& value, const Score& score, const Inside& inside, const Factor& factor,
    const Limits& limits, const Weight& weight, const Random& random, const Finish& finish,
    const Rows& rows, const First& first, const Store& store) {
  using decode = attention_decode<C>;
  using mma = typename decode::mma;
  using of_score = attention_decode_rows<Score>;
  using of_weight = attention_decode_rows<Weight>;
  using of_random = attention_decode_rows<Random>;
  using functions = attention_functions<of_score, Inside, Factor, Limits, of_weight, of_random,
                                        Finish, Rows, First>;
  const typename decode::spot at(s);
  const unsigned address = unsigned(__cvta_generic_to_shared(memory));
  const unsigned start = aligned_panels(address);
  const int from = (start - address) / 2, all_rows = s.sharing * s.queries;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int ring = decode::kQueryElements + warp * decode::kRingElements;
  load_panels<decode::kRows, C::kDepth, decode::kThreads, (C::kAsync & 1) != 0>(
      from, threadIdx.x,
      [&](int to, int head, int row, int column) {
        const bool is_row = row < all_rows;
        const int in_unit = is_row ? row / s.queries : 0;
        query(to, head + in_unit, is_row ? row - in_unit * s.queries : s.queries, column);
      },
      at.head, at.row);
  const typename decode::range seen = decode::range_of(s, limits, at.head, at.row, at.split);
  const auto load_step = [&](const typename decode::places& p, int stage) {
    const int to = from + ring + stage * mma::kStageElements;
    decode::template copy_rows<typename decode::key_panels, 0>(to, p, key);
    decode::template copy_rows<typename decode::value_panels, C::kKeys>(to + mma::kKeyElements, p,
                                                                        value);
  };
  const auto places_of = [&](int step) {
    return decode::places_of(key_place, value_place, seen, at.head, step);
  };

  constexpr int kAhead = C::kStages - 1;
  const int first_step = seen.first + warp;
  typename decode::places next[C::kStages];
#pragma unroll
  for (int i = 0; i < C::kStages; ++i) next[i] = places_of(first_step + i * C::kWarps);
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (first_step + i * C::kWarps < seen.end) load_step(next[i], i);
    commit_async();
  }
  wait_async<kAhead - 1>();  // for the queries, which came with the first step
  __syncthreads();

  const of_score score_of{score, s.queries};
  const of_weight weight_of{weight, s.queries};
  const of_random random_of{random, s.queries};
  const functions f{score_of, inside, factor, limits, weight_of, random_of, finish, rows, first};
  attention_shape unit;
  unit.queries = all_rows;
  unit.keys = s.keys;
  unit.columns = s.columns;
  typename mma::template warp<functions> w;
  decode::begin(w, f, unit, memory, start, ring, at);
  if constexpr (C::kHeld) w.hold_queries();

  int stage = 0;
#pragma unroll 1
  for (int step = first_step; step < seen.end; step += C::kWarps) {
    wait_async<kAhead - 1>();
    __syncwarp();
    const int last = stage == 0 ? kAhead : stage - 1;  // what was multiplied last
    if (step + kAhead * C::kWarps < seen.end) load_step(next[kAhead], last);
    commit_async();
    next[kAhead] = places_of(step + C::kStages * C::kWarps);
    w.take(step, stage);
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
  }
  wait_async<0>();
  __syncthreads();

  float* const own = reinterpret_cast<float*>(memory + from);
  float* const results = own + 2 * C::kWarps * decode::kRows;
  decode::put_down(w, own, results);
  __syncthreads();
  const int chunks = s.columns / 8;
#pragma unroll 1
  for (int n = threadIdx.x; n < decode::kRows * chunks; n += decode::kThreads) {
    const int in_tile = n / chunks, column = (n - in_tile * chunks) * 8, row = at.row + in_tile;
    if (row >= all_rows) break;
    attention_decode_part<8> part;
#pragma unroll
    for (int i = 0; i < C::kWarps; ++i) {
      const int its = i * decode::kRows + in_tile;
      __align__(16) float values[8];
      copy<16>(values, results + its * decode::kPitch + column);
      copy<16>(values + 4, results + its * decode::kPitch + column + 4);
      part.add(own[2 * its], own[2 * its + 1], values);
    }
    if constexpr (C::kSplits) {
      const long long place = ((long long)at.unit * all_rows + row) * s.splits + at.split;
      if (column == 0)
        *reinterpret_cast<float2*>(statistics + 2 * place) = make_float2(part.max, part.sum);
      copy<16>(partial + place * s.columns + column, part.values);
      copy<16>(partial + place * s.columns + column + 4, part.values + 4);
    } else {
      const int in_unit = row / s.queries;
      attention_decode_finish<C>(part, at.head + in_unit, row - in_unit * s.queries, column, memory,
                                 finish, rows, first, store);
    }
  }
}

// A block has a row of the result: kLanes threads have 8 columns each of every kWays-th split.
template <class C, class T, class Finish, class Rows, class First, class Store>
__device__ inline void attention_decode_combine(T* memory, float* statistics, float* partial,
                                                const attention_decode_shape& s,
                                                const Finish& finish, const Rows& rows,
                                                const First& first, const Store& store) {
  constexpr int kPitch = 12;  // floats of a thread's part, for wide copies
  using part_type = attention_decode_part<8>;
  const int way = threadIdx.x / C::kLanes, column = threadIdx.x % C::kLanes * 8;
  const bool is_column = column < s.columns;
  const long long row = blockIdx.x, splits_at = row * s.splits;
  part_type part;
  for (int split = way; split < s.splits; split += C::kInFlight * C::kWays) {
    float2 its[C::kInFlight];
    __align__(16) float values[C::kInFlight][8];
#pragma unroll
    for (int i = 0; i < C::kInFlight; ++i) {
      const int other = split + i * C::kWays;
      its[i] = make_float2(part_type::none(), 0.f);
      if (other >= s.splits || !is_column) continue;
      its[i] = *reinterpret_cast<const float2*>(statistics + 2 * (splits_at + other));
      copy<16>(values[i], partial + (splits_at + other) * s.columns + column);
      copy<16>(values[i] + 4, partial + (splits_at + other) * s.columns + column + 4);
    }
#pragma unroll
    for (int i = 0; i < C::kInFlight; ++i) part.add(its[i].x, its[i].y, values[i]);
  }
  float* const all = reinterpret_cast<float*>(memory);
  float* const own = all + threadIdx.x * kPitch;
  copy<16>(own, part.values);
  copy<16>(own + 4, part.values + 4);
  own[8] = part.max;
  own[9] = part.sum;
  __syncthreads();
  if (way > 0 || !is_column) return;
  for (int i = 1; i < C::kWays; ++i) {
    const float* const other = own + i * C::kLanes * kPitch;
    __align__(16) float values[8];
    copy<16>(values, other);
    copy<16>(values + 4, other + 4);
    part.add(other[8], other[9], values);
  }
  const int head = int(row / s.queries);
  attention_decode_finish<C>(part, head, int(row - (long long)head * s.queries), column, memory,
                             finish, rows, first, store);
}
