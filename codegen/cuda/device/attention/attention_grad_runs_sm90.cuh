#pragma once
// attention_grad_runs_sm90<Config>(q, k, v, dy, dk, dv, beside, memory, sums, turns, part_sums,
// bias_sums, shape, query, query_run, grad, grad_run, key, key_run, value, value_run, score,
// inside, factor, limits, visible, random, kept, weight, slope, add_bias, scale, rows, store_keys,
// store_keys_run, store_values, store_values_run): attention_grad_sm90 for sequences one behind
// another (attention_boxes_sm90.cuh). query, grad, key, value and what they have in stores are
// those of attention_grad_sm80; heads are numbered among all of their tensor.

#include "codegen/cuda/device/attention/attention_boxes_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_layout_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_rows.cuh"
#include "codegen/cuda/device/attention/attention_grad_sm90.cuh"
#include "codegen/cuda/device/attention/attention_grad_tiles.cuh"
#include "codegen/cuda/device/attention/panels.cuh"
#include "codegen/cuda/device/ptx/mbarrier.cuh"

using attention_grad_runs_shape = attention_grad_shape;

template <class C, class Query, class Grad, class Key, class Value>
struct attention_grad_by_runs {
  using of = attention_grad_layout<C>;
  using place = typename of::place;
  template <int rows, int panels, int bit>
  using boxes = attention_boxes<rows, panels, rows, (C::kApart & bit) != 0>;
  const Query& query;
  const Grad& grad;
  const Key& key;
  const Value& value;
  unsigned start;  // address of the shared memory
  int from;        // and its element of `memory`
  boxes<C::kQueries, of::kRowPanels, 1> of_query = {};
  boxes<C::kQueries, of::kWidthPanels, 2> of_grad = {};
  boxes<of::kKeys, of::kRowPanels, 4> of_key = {};
  boxes<of::kKeys, of::kWidthPanels, 8> of_value = {};

  __device__ inline int element(unsigned to) const { return from + int(to - start) / 2; }
  static __device__ inline int head(const attention_grad_shape& s, const place& p) {
    return p.outer * s.inner + p.inner;
  }
  __device__ inline void find(const attention_grad_shape& s, const place& p) {
    of_key.find(key, head(s, p) / s.key_pairs, p.key, s.keys);
    of_value.find(value, head(s, p) / s.value_pairs, p.key, s.keys);
  }
  __device__ inline void find_step(const attention_grad_shape& s, int batch, int row) {
    of_query.find(query, batch, row, s.queries);
    of_grad.find(grad, batch, row, s.queries);
  }
  __device__ inline void keys(unsigned to, unsigned full, const attention_grad_shape& s,
                              const place& p) const {
    of_key.load(key, to, element(to), full, head(s, p) / s.key_pairs, p.key, s.keys, s.keys);
  }
  __device__ inline void values(unsigned to, unsigned full, const attention_grad_shape& s,
                                const place& p) const {
    of_value.load(value, to, element(to), full, head(s, p) / s.value_pairs, p.key, s.keys, s.keys);
  }
  __device__ inline void queries(unsigned to, unsigned full, int more,
                                 const attention_grad_shape& s, int row, int, int,
                                 int batch) const {
    of_query.load(query, to, element(to), full, batch, row, s.queries, s.queries, more);
  }
  __device__ inline void grads(unsigned to, unsigned full, const attention_grad_shape& s, int row,
                               int, int, int batch) const {
    of_grad.load(grad, to, element(to), full, batch, row, s.queries, s.queries);
  }
};

template <class C, class T, class Keys, class Values>
struct attention_grad_to_runs {
  static constexpr bool kFinishes = false;
  using place = typename attention_grad_layout<C>::place;
  using keys_out = attention_to_runs<(C::kApart & 16) != 0, T, Keys>;
  using values_out = attention_to_runs<(C::kApart & 32) != 0, T, Values>;
  using places = typename keys_out::places;
  const keys_out keys;
  const values_out values;

  static __device__ inline int head(const attention_grad_shape& s, const place& p) {
    return p.outer * s.inner + p.inner;
  }
  template <bool are_values>
  __device__ inline places find(const attention_grad_shape& s, const place& p, int row) const {
    if constexpr (are_values) {
      const auto at = values.find(head(s, p), row);
      return {at.at, at.move_by};
    } else {
      return keys.find(head(s, p), row);
    }
  }
  template <bool are_values>
  __device__ inline void store(bool leads, unsigned staging, int column, int row,
                               const attention_grad_shape& s, const place& p,
                               const places& at) const {
    if constexpr (are_values)
      values.store(leads, staging, column, row, head(s, p), 0, 0, {at.at, at.move_by});
    else
      keys.store(leads, staging, column, row, head(s, p), 0, 0, at);
  }
};

template <class C, class T, class Query, class QueryRun, class Grad, class GradRun, class Key,
          class KeyRun, class Value, class ValueRun, class Score, class Inside, class Factor,
          class Limits, class Visible, class Random, class Kept, class Weight, class Slope,
          class AddBias, class Scale, class Rows, class StoreKeys, class StoreKeysRun,
          class StoreValues, class StoreValuesRun>
__device__ inline void attention_grad_runs_sm90(
    const tensor_map& q, const tensor_map& k, const tensor_map& v, const tensor_map& dy,
    const tensor_map& dk, const tensor_map& dv, const tensor_map& beside, T* memory, float* sums,
    int* turns, float* part_sums, float* bias_sums, const attention_grad_shape& shape,
    const Query& query, const QueryRun& query_run, const Grad& grad, const GradRun& grad_run,
    const Key& key, const KeyRun& key_run, const Value& value, const ValueRun& value_run,
    const Score& score, const Inside& inside, const Factor& factor, const Limits& limits,
    const Visible& visible, const Random& random, const Kept& kept, const Weight& weight,
    const Slope& slope, const AddBias& add_bias, const Scale& scale, const Rows& rows,
    const StoreKeys& store_keys, const StoreKeysRun& store_keys_run,
    const StoreValues& store_values, const StoreValuesRun& store_values_run) {
  using functions = attention_grad_functions<Score, Inside, Factor, Limits, Visible, Random, Kept,
                                             Weight, Slope, AddBias, Scale, Rows>;
  using skeleton = attention_grad<C>;
  using queries = attention_run_moves<QueryRun, Query>;
  using grads = attention_run_moves<GradRun, Grad>;
  using keys = attention_run_moves<KeyRun, Key>;
  using values = attention_run_moves<ValueRun, Value>;
  using of_keys = attention_run_moves<StoreKeysRun, StoreKeys>;
  using of_values = attention_run_moves<StoreValuesRun, StoreValues>;
  static_assert(C::kBytes == skeleton::kBytes + 1024);
  const unsigned address = shared_address(memory), start = (address + 1023) & ~1023u;
  const int from = int(start - address) / 2;
  const queries of_q = {q, query_run, query};
  const grads of_dy = {dy, grad_run, grad};
  const keys of_k = {k, key_run, key};
  const values of_v = {v, value_run, value};
  const of_keys to_dk = {dk, store_keys_run, store_keys};
  const of_values to_dv = {dv, store_values_run, store_values};
  skeleton::run(
      start,
      attention_grad_by_runs<C, queries, grads, keys, values>{of_q, of_dy, of_k, of_v, start, from},
      attention_grad_to_runs<C, T, of_keys, of_values>{
          {memory, to_dk, start, from, shape.keys, C::kRows},
          {memory, to_dv, start, from, shape.keys, C::kWidth}},
      beside, sums, turns, part_sums, bias_sums, shape,
      functions{score, inside, factor, limits, visible, random, kept, weight, slope, add_bias,
                scale, rows});
}
