#pragma once
// attention_runs_sm90<Config>(q, k, v, out, beside, memory, shape, query, query_run, key, key_run,
// value, value_run, score, inside, factor, limits, weight, random, finish, rows, first, store,
// store_run): attention_sm90 for rows that tensor maps read and write though no map has the
// tensor: one sequence behind another, from numbers in memory on, or in pages.
//
// attention_boxes_sm90.cuh says what a map of a run is, and name_run.
//
// One warp has the queries and keys, another one the values; a lane finds the place of a box, for
// the block that comes next, and asks for it. k and v have boxes of kKeyBox and kValueBox rows.

#include "codegen/cuda/device/attention/attention_boxes_sm90.cuh"
#include "codegen/cuda/device/attention/attention_rows.cuh"
#include "codegen/cuda/device/attention/attention_sm90.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"

using attention_runs_shape = attention_shape;

// A producer warp's shared memory and its waits for room.
struct attention_run_warp {
  unsigned start;  // address of the shared memory
  int from;        // and its element of `memory`
  __device__ inline bool leads() const { return threadIdx.x % 32 == 0; }
  // Waits as a whole warp: lanes that came first would ask again and again, and the leader would
  // have no turn.
  __device__ inline void wait(unsigned barrier, unsigned parity) {
    __syncwarp();
    mbarrier_wait(barrier, parity);
  }
  __device__ inline void end(unsigned full) {
    if (leads()) mbarrier_arrive(full);
  }
  __device__ inline void settle() {}
  __device__ inline int element(unsigned to) const { return from + int(to - start) / 2; }
};

template <class C, class Query, class Key>
struct attention_key_runs : attention_run_warp {
  using place = typename attention<C>::place;
  using range = typename attention<C>::range;
  static constexpr bool kHasKeys = true, kHasValues = false;
  const Query& query;
  const Key& key;
  const attention_shape& s;
  attention_boxes<C::kKeys, C::kDepth / 64, C::kKeyBox, (C::kApart & 2) != 0> next = {};

  __device__ inline attention_key_runs(const attention_run_warp& warp, const Query& query,
                                       const Key& key, const attention_shape& s)
      : attention_run_warp(warp), query(query), key(key), s(s) {}
  __device__ inline void begin(const place& p, const range& r) {
    next.find(key, p.batch, (r.end - 1) * C::kKeys, s.keys);
  }
  __device__ inline void keys(unsigned to, unsigned full, const place& p, int row) {
    next.load(key, to, element(to), full, p.batch, row, s.keys, s.keys);
    next.find(key, p.batch, max(row - C::kKeys, 0), s.keys);
  }
  __device__ inline void queries(unsigned to, unsigned full, const place& p, int row) {
    attention_boxes<64, C::kDepth / 64, 64, (C::kApart & 1) != 0> box;
    box.find(query, p.batch, row, s.queries);
    box.load(query, to, element(to), full, p.batch, row, s.queries, s.queries);
  }
};

template <class C, class Value>
struct attention_value_runs : attention_run_warp {
  using place = typename attention<C>::place;
  using range = typename attention<C>::range;
  static constexpr bool kHasKeys = false, kHasValues = true;
  const Value& value;
  const attention_shape& s;
  int seen_end = 0;  // of the tile
  attention_boxes<C::kKeys, C::kWidth / 64, C::kValueBox, (C::kApart & 4) != 0> next = {};

  __device__ inline attention_value_runs(const attention_run_warp& warp, const Value& value,
                                         const attention_shape& s)
      : attention_run_warp(warp), value(value), s(s) {}
  __device__ inline void begin(const place& p, const range& r) {
    seen_end = C::kTails ? r.seen_end : s.keys;
    next.find(value, p.batch, (r.end - 1) * C::kKeys, seen_end);
  }
  __device__ inline void values(unsigned to, unsigned full, const place& p, int row) {
    next.load(value, to, element(to), full, p.batch, row, seen_end, s.keys);
    next.find(value, p.batch, max(row - C::kKeys, 0), seen_end);
  }
};

template <class C, class Query, class Key, class Value>
struct attention_by_runs {
  static constexpr int kKeyThreads = 1, kValueThreads = 1, kQueryThreads = 1;
  static constexpr bool kHidesTails = true;
  const Query& query;
  const Key& key;
  const Value& value;
  attention_run_warp warp;
  const attention_shape& s;

  template <class Run>
  __device__ __forceinline__ void produce(unsigned thread, const Run& run) const {
    if (thread < 32)
      run(attention_key_runs<C, Query, Key>(warp, query, key, s));
    else if (thread < 64)
      run(attention_value_runs<C, Value>(warp, value, s));
  }
};

template <class C, class T, class Query, class QueryRun, class Key, class KeyRun, class Value,
          class ValueRun, class Score, class Inside, class Factor, class Limits, class Weight,
          class Random, class Finish, class Rows, class First, class Store, class StoreRun>
__device__ inline void attention_runs_sm90(
    const tensor_map& q, const tensor_map& k, const tensor_map& v, const tensor_map& out,
    const tensor_map& beside, T* memory, const attention_shape& shape, const Query& query,
    const QueryRun& query_run, const Key& key, const KeyRun& key_run, const Value& value,
    const ValueRun& value_run, const Score& score, const Inside& inside, const Factor& factor,
    const Limits& limits, const Weight& weight, const Random& random, const Finish& finish,
    const Rows& rows, const First& first, const Store& store, const StoreRun& store_run) {
  using functions =
      attention_functions<Score, Inside, Factor, Limits, Weight, Random, Finish, Rows, First>;
  using skeleton = attention<C>;
  using queries = attention_run_moves<QueryRun, Query>;
  using keys = attention_run_moves<KeyRun, Key>;
  using values = attention_run_moves<ValueRun, Value>;
  using results = attention_run_moves<StoreRun, Store>;
  static_assert(C::kBytes == skeleton::kBytes + 1024);
  const unsigned address = shared_address(memory), start = (address + 1023) & ~1023u;
  const int from = int(start - address) / 2;
  const queries of_q = {q, query_run, query};
  const keys of_k = {k, key_run, key};
  const values of_v = {v, value_run, value};
  const results of_result = {out, store_run, store};
  skeleton::run(
      start, attention_by_runs<C, queries, keys, values>{of_q, of_k, of_v, {start, from}, shape},
      attention_to_runs < (C::kApart & 8) != 0, T,
      results > {memory, of_result, start, from, shape.queries, shape.columns}, &beside, shape,
      functions{score, inside, factor, limits, weight, random, finish, rows, first});
}
