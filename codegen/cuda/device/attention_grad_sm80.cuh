#pragma once
// attention_grad_sm80<Config>(memory, statistics, next, sums, turns, shape, query, grad, key,
// value, score, inside, factor, limits, weight, scale, rows, store_keys, store_values): the
// skeleton of attention's gradients on mma.sync, all three in one kernel, without a matrix of
// scores in memory. attention_grad_rows.cuh has what it shares with attention_grad_sm90, and says
// what the functions from score to rows are, where sums of dq lie, and whose turn it is to add to
// them.
//
//   block      a tile of kKeys = 16 * kWarps keys of one head of k and v, in shared memory; blocks
//   of
//              kQueries queries and of their dy in a ring of kStages by asynchronous copies
//   warp       16 of the keys, all queries:
//
//     S' = k q', D' = v dy'         P' = weight(S'), dS' = (D' - mean of the row) * P'
//     dv += P' dy, dk += dS' q      P', dS' from registers, dy and q transposed as they are read
//
//   all warps  dq = dS k            dS' from shared memory, transposed as it is read; a warp makes
//   16
//                                   rows of half of the columns, or of all, and adds them to `sums`
//
//   dk, dv → rows of k and v in shared memory → store_keys, store_values
//
// Two barriers a step: behind the first a block is there, and nobody reads the place that comes
// next; behind the second slopes are there. kOrdered has two more, around what is added.
//
// Functions beside those, of 8 neighbours, with `to` the place in `memory`:
//   query(to, batch, row, column), grad(…), key(to, head, row, column), value(…)    elements from
//                       `column` on of a row of q, dy, k or v, zeroes outside; kAsync: bits for
//                       those that start asynchronous copies
//   store_keys(values, head, row, column), store_values(…)
template <class C>
struct attention_grad_mma {
  static constexpr int kThreads = 32 * C::kWarps, kKeys = 16 * C::kWarps;
  using tiles = attention_grad_tiles<kKeys, C::kQueries, C::kOrdered != 0, false>;
  using rows = attention_grad_rows<C>;
  using turn = attention_grad_turns;
  using key_panels = panels<kKeys, C::kDepth>;
  using query_panels = panels<C::kQueries, C::kDepth>;
  using slope_panels = panels<kKeys, C::kQueries>;
  static constexpr int kKeyElements = kKeys * C::kDepth, kQueryElements = C::kQueries * C::kDepth;
  static constexpr int kValuesAt = kKeyElements, kStagesAt = 2 * kKeyElements;
  static constexpr int kStageElements = 2 * kQueryElements;  // q, and dy behind it
  static constexpr int kSlopesAt = kStagesAt + C::kStages * kStageElements;
  static constexpr int kGrads = C::kDepth / 2;  // registers
  static constexpr int kHalf = C::kDepth / 2;   // columns of a part of `sums`
  static constexpr int kRowWarps = C::kQueries / 16;
  static constexpr int kHalves = 2 * kRowWarps / C::kWarps;  // of a row that a warp makes
  static_assert(C::kQueries == 64 && 2 * kRowWarps % C::kWarps == 0 && C::kWarps >= kRowWarps);

  static __device__ inline void multiply(float* sums, const unsigned* left, const unsigned* right) {
    multiply_16<C::kPackBf16>(sums, left, right);
  }

  // to += left right', both as rows of the depth: 16 rows by kQueries.
  static __device__ inline void multiply_rows(float (&to)[C::kQueries / 2], unsigned left,
                                              unsigned right) {
#pragma unroll
    for (float& x : to) x = 0;
#pragma unroll
    for (int i = 0; i < C::kDepth / 16; ++i) {
      unsigned a[4];
      matrices<4>::load(a, key_panels::further(left, 0, 2 * i));
#pragma unroll
      for (int n = 0; n < C::kQueries / 16; ++n) {
        unsigned b[4];
        matrices<4>::load(b, query_panels::further(right, 16 * n, 2 * i));
        multiply(to + 8 * n, a, b);
        multiply(to + 8 * n + 4, a, b + 2);
      }
    }
  }
  // to += left right: of kQueries columns from registers.
  static __device__ inline void multiply_pairs(float (&to)[kGrads], const unsigned* left,
                                               unsigned right) {
#pragma unroll
    for (int i = 0; i < C::kQueries / 16; ++i)
#pragma unroll
      for (int n = 0; n < C::kDepth / 16; ++n) {
        unsigned b[4];
        matrices<4>::load_transposed(b, query_panels::further(right, 16 * i, 2 * n));
        multiply(to + 8 * n, left + 4 * i, b);
        multiply(to + 8 * n + 4, left + 4 * i, b + 2);
      }
  }

  struct step_info {
    int row, batch;
    int before;  // tiles that add before this one
    bool inside;
  };
  // Where a thread's part of a step begins.
  struct place_in_step {
    const attention_grad_shape& s;
    const step_info& step;
    int first_key, number, lane;
    unsigned rows;  // address of the stage's statistics
    __device__ inline int key() const { return first_key + number * 16 + lane / 4; }
    __device__ inline int query() const { return step.row + 2 * (lane % 4); }
    __device__ inline int batch() const { return step.batch; }
    __device__ inline bool ends() const {
      return step.row + C::kQueries > s.queries || first_key + kKeys > s.keys;
    }
    __device__ inline unsigned statistics() const { return rows + lane % 4 * 8; }
  };

  // Pairs of a warp's rows to their place in panels.
  template <class Panels, class T, int count, class Pair>
  static __device__ inline void store_pairs(T* to, int row, int lane, const Pair& pair) {
#pragma unroll
    for (int e = 0; e < count; e += 2)
      *reinterpret_cast<unsigned*>(to + Panels::at(row + lane / 4 + (e & 2) * 4, e / 4) +
                                   lane % 4 * 2) = pair(e);
  }

  // dq of a step, to where it is summed.
  static __device__ inline void add_queries(unsigned slopes, unsigned keys, int number, int lane,
                                            float* sums, long long block) {
    const int row = number % kRowWarps;
    const unsigned left =
        slopes + slope_panels::first(lane % 8 + lane / 16 * 8, 2 * row + lane / 8 % 2);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int half = kHalves == 2 ? h : number / kRowWarps;
      const unsigned right = key_panels::further(keys, 0, half * (kHalf / 8));
      float dq[kHalf / 2];
#pragma unroll
      for (float& x : dq) x = 0;
#pragma unroll
      for (int i = 0; i < kKeys / 16; ++i) {
        unsigned a[4];
        matrices<4>::load_transposed(a, slope_panels::further(left, 16 * i, 0));
#pragma unroll
        for (int n = 0; n < kHalf / 16; ++n) {
          unsigned b[4];
          matrices<4>::load_transposed(b, key_panels::further(right, 16 * i, 2 * n));
          multiply(dq + 8 * n, a, b);
          multiply(dq + 8 * n + 4, a, b + 2);
        }
      }
      float* to = sums + (block * 2 + half) * (C::kQueries * kHalf) + row * 128 + lane * 4;
#pragma unroll
      for (int i = 0; i < kHalf / 8; ++i) turn::add_quad(to + i * (kRowWarps * 128), dq + 4 * i);
    }
  }

  // A warp's rows of dk or dv, over those of k or v in shared memory, and out.
  template <class T, class Store>
  static __device__ inline void store_rows(T* panel, int row, int lane, const float (&from)[kGrads],
                                           float times, const typename tiles::place& p,
                                           const attention_grad_shape& s, const Store& store) {
    store_pairs<key_panels, T, kGrads>(panel, row, lane, [&](int e) {
      return pack_pair<C::kPackBf16>(from[e] * times, from[e + 1] * times);
    });
    __syncwarp();
#pragma unroll 4
    for (int n = lane; n < 16 * key_panels::kOfRow; n += 32) {
      const int in_tile = row + n / key_panels::kOfRow, chunk = n % key_panels::kOfRow;
      if (p.key + in_tile >= s.keys) continue;
      __align__(16) T values[8];
      copy<16>(values, panel + key_panels::at(in_tile, chunk));
      store(values, p.head, p.key + in_tile, chunk * 8);
    }
  }

  template <class T, class F, class Query, class Grad, class Key, class Value, class StoreKeys,
            class StoreValues>
  static __device__ inline void run(T* memory, float* statistics, int* next, float* sums,
                                    int* turns, const attention_grad_shape& s, const F& f,
                                    const Query& query, const Grad& grad, const Key& key,
                                    const Value& value, const StoreKeys& store_keys,
                                    const StoreValues& store_values) {
    const unsigned address = unsigned(__cvta_generic_to_shared(memory));
    const unsigned start = aligned_panels(address);
    const int from = (start - address) / 2;
    if (threadIdx.x == 0) *next = atomicAdd(turns, 1);
    __syncthreads();
    const typename tiles::place p = tiles::place_of(s, *next);
    const int number = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    load_panels<kKeys, C::kDepth, kThreads, (C::kAsync & 4) != 0>(from, threadIdx.x, key, p.head,
                                                                  p.key);
    load_panels<kKeys, C::kDepth, kThreads, (C::kAsync & 8) != 0>(from + kValuesAt, threadIdx.x,
                                                                  value, p.head, p.key);
    typename tiles::template steps<decltype(f.limits)> step(s, f.limits, p);
    const auto load_step = [&](int stage) {
      const int to = from + kStagesAt + stage * kStageElements;
      const unsigned thread = computed_again(threadIdx.x);
      load_panels<C::kQueries, C::kDepth, kThreads, (C::kAsync & 1) != 0>(to, thread, query,
                                                                          step.batch, step.row);
      load_panels<C::kQueries, C::kDepth, kThreads, (C::kAsync & 2) != 0>(
          to + kQueryElements, thread, grad, step.batch, step.row);
    };
    // Statistics and means of a step's rows, a row a thread.
    float of_row[2];
    const auto read_rows = [&] {
      if (threadIdx.x >= C::kQueries) return;
      const int row = step.row + threadIdx.x;
      f.rows(step.batch, min(row, s.queries - 1), of_row);
      of_row[0] = row < s.queries ? of_row[0] * rows::kLog2e : rows::infinity();
      of_row[1] = row < s.queries ? of_row[1] : 0.f;
    };
    const auto store_rows_of = [&](int stage) {
      if (threadIdx.x >= C::kQueries) return;
      statistics[stage * (2 * C::kQueries) + threadIdx.x] = of_row[0];
      statistics[stage * (2 * C::kQueries) + C::kQueries + threadIdx.x] = of_row[1];
    };
    bool more = step.next();
    if (more && C::kStages > 1) {
      load_step(0);
      read_rows();
      store_rows_of(0);
    }
    commit_async();
    rows part;
    float dk[kGrads], dv[kGrads];
#pragma unroll
    for (int e = 0; e < kGrads; ++e) dk[e] = dv[e] = 0;
    const unsigned across = lane % 16, chunk = lane / 16;  // rows of matrices that a lane names
    const unsigned own_keys = start + key_panels::first(number * 16 + across, chunk);
    const unsigned all_keys = start + key_panels::first(across, chunk);
    const unsigned queries = start + kStagesAt * 2;
    const unsigned as_rows = query_panels::first(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    const unsigned as_columns = query_panels::first(across, chunk);
    int stage = 0;
#pragma unroll 1
    while (more) {
      const step_info now = {step.row, step.batch, step.last_tile - p.index, step.inside};
      if constexpr (C::kStages == 1) {
        __syncthreads();
        load_step(0);
        commit_async();
        read_rows();
        store_rows_of(0);
      }
      wait_async<0>();
      __syncthreads();
      more = step.next();
      if constexpr (C::kStages > 1) {
        if (more) load_step(stage ^ 1);
        commit_async();
        if (more) read_rows();
      }
      const unsigned block = queries + stage * (kStageElements * 2);
      const unsigned of_stage =
          unsigned(__cvta_generic_to_shared(statistics + stage * (2 * C::kQueries)));
      const place_in_step here = {s, now, p.key, number, lane, of_stage};
      multiply_rows(part.score, own_keys, block + as_rows);
      multiply_rows(part.grad, own_keys + kValuesAt * 2, block + kQueryElements * 2 + as_rows);
      part.take_weights(f, s, here, now.inside);
      multiply_pairs(dv, part.weights, block + kQueryElements * 2 + as_columns);
      part.take_slopes(here.statistics() + C::kQueries * 4);
      store_pairs<slope_panels, T, C::kQueries / 2>(memory + from + kSlopesAt, number * 16, lane,
                                                    [&](int e) { return part.slopes[e / 2]; });
      multiply_pairs(dk, part.slopes, block + as_columns);
      __syncthreads();
      const int number_of_block = now.batch * s.query_tiles + now.row / C::kQueries;
      if constexpr (C::kOrdered) {
        if (threadIdx.x == 0) turn::wait_turn(turns + 1 + number_of_block, now.before);
        __syncthreads();
      }
      add_queries(start + kSlopesAt * 2, all_keys, number, lane, sums, number_of_block);
      if constexpr (C::kOrdered) {
        __syncthreads();
        if (threadIdx.x == 0) turn::pass_turn(turns + 1 + number_of_block);
      }
      if constexpr (C::kStages > 1) {
        if (more) store_rows_of(stage ^ 1);
        stage ^= 1;
      }
    }
    wait_async<0>();
    __syncthreads();
    float scale[1] = {1.f};
    f.scale(p.head * s.group, scale);
    store_rows(memory + from, number * 16, lane, dk, scale[0], p, s, store_keys);
    store_rows(memory + from + kValuesAt, number * 16, lane, dv, 1.f, p, s, store_values);
  }
};

template <class C, class T, class Query, class Grad, class Key, class Value, class Score,
          class Inside, class Factor, class Limits, class Weight, class Scale, class Rows,
          class StoreKeys, class StoreValues>
__device__ inline void attention_grad_sm80(
    T* memory, float* statistics, int* next, float* sums, int* turns,
    const attention_grad_shape& shape, const Query& query, const Grad& grad, const Key& key,
    const Value& value, const Score& score, const Inside& inside, const Factor& factor,
    const Limits& limits, const Weight& weight, const Scale& scale, const Rows& rows,
    const StoreKeys& store_keys, const StoreValues& store_values) {
  using functions = attention_grad_functions<Score, Inside, Factor, Limits, Weight, Scale, Rows>;
  attention_grad_mma<C>::run(memory, statistics, next, sums, turns, shape,
                             functions{score, inside, factor, limits, weight, scale, rows}, query,
                             grad, key, value, store_keys, store_values);
}
