#pragma once
// recurrence_step_cells<Config>(exchange, sums, states, shape, length, weight, before, fixed, read,
// store, after): the cells of one step of a recurrent layer, or of its gradient, between two
// launches that multiply. It is for layers whose products fill the GPU by themselves.
// recurrence_sm80.cuh says what the functions are, recurrence_cells.cuh what a unit does.
//
//   round -1      states before the first step → exchange, which the first product reads
//   round n       sums of the product → cells → exchange[(n + 1) % 2]
//
//   exchange   [2][directions][batch][depth], what a product multiplies
//   sums       [directions][batch][gates * units], what it has made
//   states     [kStates][directions][batch][units], in f32, from step to step
//
// A gradient's first round has no product before it, and its last one is of the initial state.

#include "codegen/cuda/device/recurrence/recurrence_cells.cuh"
#include "codegen/cuda/device/recurrence/recurrence_shape.cuh"

struct recurrence_step_shape : recurrence_shape {
#define STEP_NUMBER(name) int name;
#include "codegen/cuda/device/recurrence/recurrence.def"
};

template <class C, class T, class Length, class Weight, class Before, class Fixed, class Read,
          class Store, class After>
__device__ inline void recurrence_step_cells(T* exchange, float* sums, float* states,
                                             const recurrence_step_shape& s, const Length& length,
                                             const Weight&, const Before& before,
                                             const Fixed& fixed, const Read& read,
                                             const Store& store, const After& after) {
  using cell = recurrence_cell<C>;
  const int all = s.directions * s.batch * s.units;
  const int n = blockIdx.x * C::kThreads + threadIdx.x;
  if (n >= all) return;
  const int unit = n % s.units, row = n / s.units, batch = row % s.batch, d = row / s.batch;
  const auto send = [&](int copy, int k, float value) {
    exchange[((long long)copy * s.directions * s.batch + row) * s.depth + k] = T(value);
  };
  float carried[cell::kStates];
  int lengths[1];
  length(batch, lengths);
  if (s.round < 0) {
    before(d, batch, unit, carried);
#pragma unroll
    for (int i = 0; i < cell::kStates; ++i) states[(long long)i * all + n] = carried[i];
    if constexpr (!C::kGradient) send(0, unit, carried[0]);
    return;
  }
  const int step = C::kGradient ? s.steps - 1 - s.round : s.round;
#pragma unroll
  for (int i = 0; i < cell::kStates; ++i) carried[i] = states[(long long)i * all + n];
  float products[C::kGates] = {};
  if (!C::kGradient || s.round > 0) {
#pragma unroll
    for (int gate = 0; gate < C::kGates; ++gate)
      products[gate] = sums[((long long)row * C::kGates + gate) * s.units + unit];
  }
  bool is_last = step < 0;
  if (is_last) {
    cell::finish(products, carried);
  } else {
    const bool is_inside = step < lengths[0];
    const int time = d == 1 && is_inside ? lengths[0] - 1 - step : step;
    typename cell::template value<T> values[cell::kValues] = {};
    float constants[cell::kFixed] = {}, results[cell::kResults], exchanged[cell::kExchanged];
    if (is_inside) read(d, batch, unit, time, step, values);
    if constexpr (!C::kGradient) fixed(d, unit, constants);
    cell::template take<T>(s, is_inside, products, values, constants, carried, results, exchanged);
    store(d, batch, unit, time, results);
    is_last = !C::kGradient && step == s.steps - 1;
#pragma unroll
    for (int k = 0; k < cell::kExchanged; ++k)
      send(next_copy(s.round), k * s.units + unit, exchanged[k]);
#pragma unroll
    for (int i = 0; i < cell::kStates; ++i) states[(long long)i * all + n] = carried[i];
  }
  if (!is_last) return;
#pragma unroll
  for (int i = 0; i < cell::kStates; ++i) carried[i] = lengths[0] > 0 ? carried[i] : 0;
  after(d, batch, unit, carried);
}
