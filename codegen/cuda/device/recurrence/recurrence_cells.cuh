#pragma once
// recurrence_cell<Config>: what one unit of a recurrent layer does at one step with the sums of its
// gates' products, forward and backward. ir/graph/ops_recurrence.cc has the formulas; kCell is
// graph::RnnCell, or 4 of what an LSTM's units are projected to: its sum is its state.
//
//   kStates     that a unit carries from step to step: h, and c of an LSTM;
//               of a gradient what no matrix carries of dh, and dc of an LSTM
//   kValues     forward: xg, a value a gate; gradient: dy, what the forward step has kept, and c
//               and the c before of an LSTM, the h before of a GRU; they stay of the type that
//               memory has until they are used, since whoever converts waits for them
//   kFixed      forward: the gates' biases
//   kResults    forward: h, what is kept, c of an LSTM; gradient: those of the gates
//   kExchanged  what the units of the next step multiply
//
// States round to T at each step, and gradients of gates, too.

#include "codegen/cuda/device/recurrence/recurrence_shape.cuh"

template <class T>
__device__ inline float rounded_state(float value) {
  return float(T(value));
}

// Absolute errors of some 2^-23, relative ones where the result is small.
__device__ inline float fast_sigmoid(float x) { return __fdividef(1.f, 1.f + __expf(-x)); }
__device__ inline float fast_tanh(float x) {
  const float square = x * x;
  if (square < 0.0625f)
    return x + x * square * (-1.f / 3 + square * (2.f / 15 + square * (-17.f / 315)));
  return 1.f - __fdividef(2.f, 1.f + __expf(2.f * x));
}

template <class C>
struct recurrence_cell {
  static constexpr bool kIsLstm = C::kCell == 2, kIsGru = C::kCell == 3;
  static constexpr bool kIsProjection = C::kCell == 4;
  // True if the first product is of its states.
  static constexpr bool kBegins = !C::kGradient && (!C::kProjected || kIsProjection);
  static constexpr int kCellGates = kIsLstm ? 4 : kIsGru ? 3 : 1;
  static constexpr int kKept = kIsProjection ? 0 : kIsLstm || kIsGru ? 4 : 1;
  static constexpr int kStates = kIsLstm ? 2 : 1;
  static constexpr int kValues = C::kGradient ? 1 + kKept +
                                                    (kIsLstm  ? 2
                                                     : kIsGru ? 1
                                                              : 0)
                                              : kCellGates;
  static constexpr int kFixed = kCellGates;
  static constexpr int kResults =
      C::kGradient ? (kIsGru ? 4 : kCellGates) : 1 + kKept + (kIsLstm ? 1 : 0);
  static constexpr int kExchanged = C::kGradient ? kCellGates : 1;

  template <bool is_state, class T>
  struct value_of {
    using type = float;
  };
  template <class T>
  struct value_of<true, T> {
    using type = T;
  };
  template <class T>
  using value = typename value_of<C::kValuesAreStates != 0, T>::type;

  // A cell as an LSTM uses it, and how that moves with it.
  static __device__ inline float use(const recurrence_shape& s, float c) {
    if constexpr (C::kClips == 0) return c;
    const float clipped = fminf(fmaxf(c, s.clip_low), s.clip_high);
    return C::kClips == 2 && c != c ? c : clipped;
  }
  static __device__ inline float use_slope(const recurrence_shape& s, float c) {
    if constexpr (C::kClips == 0) return 1;
    return c >= s.clip_low && c <= s.clip_high ? 1 : 0;
  }

  template <class T>
  static __device__ inline void take(const recurrence_shape& s, bool is_inside, const float* sums,
                                     const value<T>* values, const float* fixed, float* states,
                                     float* results, float* exchanged) {
    if (!is_inside) {
#pragma unroll
      for (int i = 0; i < kResults; ++i) results[i] = 0;
#pragma unroll
      for (int i = 0; i < kExchanged; ++i) exchanged[i] = C::kGradient ? 0 : states[0];
      return;
    }
    float x[kValues + 1];
#pragma unroll
    for (int i = 0; i < kValues; ++i) x[i] = float(values[i]);
    if constexpr (C::kGradient) {
      gradient<T>(s, sums[0], x, states, results, exchanged);
    } else {
      // The bias of a GRU's new gate is no part of what is kept of xg.
#pragma unroll
      for (int i = 0; i < kCellGates; ++i)
        if (!kIsGru || i < 2) x[i] += fixed[i];
      if constexpr (kIsGru) x[3] = fixed[2];
      forward<T>(s, sums, x, states, results, exchanged);
    }
  }

  template <class T>
  static __device__ inline void forward(const recurrence_shape& s, const float* a, const float* x,
                                        float* states, float* results, float* exchanged) {
    float* const kept = results + 1;
    float h;
    if constexpr (kIsLstm) {
      kept[0] = fast_sigmoid(x[0] + a[0]);
      kept[1] = fast_sigmoid(x[1] + a[1]);
      kept[2] = fast_tanh(x[2] + a[2]);
      kept[3] = fast_sigmoid(x[3] + a[3]);
      states[1] = __fmaf_rn(kept[1], use(s, states[1]), __fmul_rn(kept[0], kept[2]));
      results[1 + kKept] = states[1];
      h = __fmul_rn(kept[3], fast_tanh(use(s, states[1])));
    } else if constexpr (kIsGru) {
      kept[0] = fast_sigmoid(x[0] + a[0]);
      kept[1] = fast_sigmoid(x[1] + a[1]);
      kept[3] = a[2] + x[3];
      kept[2] = fast_tanh(__fmaf_rn(kept[0], kept[3], x[2]));
      h = __fmaf_rn(kept[1], states[0], __fmul_rn(1.f - kept[1], kept[2]));
    } else if constexpr (kIsProjection) {
      h = a[0];
    } else {
      const float sum = x[0] + a[0];
      h = kept[0] = C::kCell == 1 ? fast_tanh(sum) : sum < 0 ? 0 : sum;
    }
    results[0] = states[0] = exchanged[0] = rounded_state<T>(h);
  }

  // `sum` is what the matrix carries of dh.
  template <class T>
  static __device__ inline void gradient(const recurrence_shape& s, float sum, const float* x,
                                         float* states, float* results, float* exchanged) {
    const float dh = x[0] + states[0] + sum;
    const float* const k = x + 1;
    states[0] = 0;
    if constexpr (kIsLstm) {
      const float c = x[5], before = x[6], t = fast_tanh(use(s, c));
      const float dc = states[1] + dh * k[3] * (1 - t * t) * use_slope(s, c);
      results[0] = dc * k[2] * k[0] * (1 - k[0]);
      results[1] = dc * use(s, before) * k[1] * (1 - k[1]);
      results[2] = dc * k[0] * (1 - k[2] * k[2]);
      results[3] = dh * t * k[3] * (1 - k[3]);
      states[1] = dc * k[1] * use_slope(s, before);
    } else if constexpr (kIsGru) {
      const float n = dh * (1 - k[1]) * (1 - k[2] * k[2]);
      results[0] = n * k[3] * k[0] * (1 - k[0]);
      results[1] = dh * (x[5] - k[2]) * k[1] * (1 - k[1]);
      results[2] = n;
      results[3] = n * k[0];
      states[0] = dh * k[1];
    } else if constexpr (kIsProjection) {
      results[0] = dh;
    } else {
      results[0] = C::kCell == 1 ? dh * (1 - k[0] * k[0]) : k[0] > 0 ? dh : 0;
    }
#pragma unroll
    for (int i = 0; i < kResults; ++i) results[i] = rounded_state<T>(results[i]);
#pragma unroll
    for (int i = 0; i < kExchanged; ++i) exchanged[i] = results[kIsGru && i == 2 ? 3 : i];
  }
  // dh of the initial state.
  static __device__ inline void finish(const float* sums, float* states) {
    if constexpr (C::kGradient) states[0] += sums[0];
  }
};
