#pragma once
// recurrence_stack_sm80<Config>(memory, exchange, counters, up, shape, length, weight,
// before, fixed, read, store, after, below, below_fixed, scale): the loops of recurrent layers, one
// above the other, at the same time, and their gradients. Of a gradient the last layer is stage 0.
//
//   block      units of one stage, as in recurrence_sm80.cuh: a stage is what a direction is there
//   stage s    at its step n: sums of the stage's own states, cells, new states to the own blocks
//              and, scaled by dropout, to `up`; then, while those are on their way,
//              sums of what stage s - 1 has sent up at step n + 1, in place of what stage 0 reads
//
//   stage 0    0 1 2 3 4 5 …
//   stage 1        0 1 2 3 …
//   stage 2            0 1 …
//
// A stage asks for `ask_every` steps of the stage below at a time, since to ask is a way to the L2
// cache and back, and begins as many steps later.
// `up` has a copy for each step, so that a stage never waits for those above it: [steps][stages -
// 1][columns of all groups][pitch of below], zero from the depth on. Stages wait for those below
// alone, and blocks of a stage for one another; all blocks are resident together, by a cooperative
// launch. So some block can always go on: a stage 0 that waits for nobody but itself, then stage 1.
//
// A counter of a stage and group says what has been sent, as in recurrence_sm80.cuh; where that
// counts nothing (kNumbered, kClustered), blocks arrive a step later, when a barrier that they need
// in any case has seen all threads' stores. Clusters wait for others here, so that the launch is
// cooperative with them, too.
//
// Functions beside those of recurrence_sm80, where stage is that of the reader:
//   below(stage - 1, unit, gate, depth, values out)      16 bytes of a row of the matrix between
//   below_fixed(stage, unit, values out)                 its biases, forward
//   scale(stage, batch, unit, time, value out)           of dropout: what is sent up is multiplied
//                                                        by it, of a gradient what has come

#include "codegen/cuda/device/ptx/mma.cuh"
#include "codegen/cuda/device/recurrence/recurrence_cells.cuh"
#include "codegen/cuda/device/recurrence/recurrence_shape.cuh"
#include "codegen/cuda/device/recurrence/recurrence_sm80.cuh"

struct recurrence_stack_shape : recurrence_shape {
#define STACK_NUMBER(name) int name;
#include "codegen/cuda/device/recurrence/recurrence.def"
};

template <class C>
struct recurrence_below : C {
  static constexpr int kTurned = 0;  // its matrix comes by 16 bytes of a row
  static constexpr int kProjected = 0, kNumbered = 0, kClustered = 0;
  static constexpr int kUnits = C::kBelowUnits;
  static constexpr int kRowTiles = C::kBelowRowTiles;
  static constexpr int kRowWarps = C::kBelowRowWarps;
  static constexpr int kChunks = C::kBelowChunks;
  static constexpr int kHeld = C::kBelowHeld;
  static constexpr int kInShared = C::kBelowInShared;
  static constexpr int kStages = C::kBelowStages;
  static constexpr int kPass = C::kBelowPass;
  static constexpr int kAhead = C::kBelowAhead;
};

template <class C, class T, class Own, class Below, class BelowFixed, class Scale>
struct recurrence_stage {
  using block = recurrence_block<C>;
  using below_block = recurrence_block<recurrence_below<C>>;
  using cell = typename block::cell;
  using element = typename Own::own_element;
  static constexpr int kElements = block::kElements;
  // Numbers of a unit that a step sends up; in a gradient all gates, a GRU's as the input had them.
  static constexpr int kSent = C::kGradient ? cell::kCellGates : 1;
  // Few pieces from below are asked for a step ahead, and wait in registers.
  static constexpr bool kFetches = C::kFetches != 0;
  // True if the counters count what is sent up alone.
  static constexpr bool kArrivesLate = C::kNumbered || C::kClustered;

  const recurrence_stack_shape& s;
  Own& own;
  Below& below;  // its direction is the stage below
  T* const up;
  const BelowFixed& below_fixed;
  const Scale& scale;
  float scales[kElements];
  uint4 fetched[kFetches ? C::kColumnTiles : 1][kFetches ? C::kBelowChunks : 1];

  __device__ inline int stage() const { return own.d; }
  __device__ inline bool has_below() const { return own.d > 0; }
  __device__ inline bool has_above() const { return own.d + 1 < s.directions; }
  __device__ inline int* counter_of(int stage) const {
    return own.at.counters + (stage * s.groups + own.group) * 32;
  }
  // Arrivals of a part at the counter when step n of its stage has been sent up.
  static __device__ inline int arrivals_of(int n) { return kArrivesLate ? n + 1 : n + 2; }

  __device__ inline T* up_row(int step, int column) const {
    return up + (((long long)step * (s.directions - 1) + own.d) * s.groups * block::kColumns +
                 own.group * block::kColumns + column) *
                    s.below_pitch;
  }
  // Zeroes the end of a row, which no unit writes and products read.
  __device__ inline void clear_ends() const {
    const int width = s.below_pitch - s.below_depth;
    if (!has_above() || own.part != s.parts - 1 || width == 0) return;
    for (int n = threadIdx.x; n < s.steps * block::kColumns * width; n += block::kThreads) {
      const int row = n / width;
      up_row(row / block::kColumns, row % block::kColumns)[s.below_depth + n % width] = T(0.f);
    }
  }
  __device__ inline void send_up(int step) const {
    if (!has_above()) return;
#pragma unroll
    for (int q = 0; q < kElements; ++q) {
      const element& e = own.own[q];
      if (!e.exists) continue;
      T* const to = up_row(step, e.at / block::kPitch) + e.unit;
      const float factor = C::kGradient ? 1 : scales[q];
#pragma unroll
      for (int i = 0; i < kSent; ++i) {
        const float value = C::kScales && !C::kGradient ? e.results[i] * factor : e.results[i];
        if constexpr (C::kType == 2)
          to[i * s.units] = __uint_as_float(round_tf32(__float_as_uint(value)));
        else
          to[i * s.units] = T(value);
      }
    }
  }
  static __device__ inline void arrive(int* counter) {
    if (threadIdx.x == 0)
      asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
  }

  // Fetches what the stage below has sent up at its round, which is that of the step; behind the
  // last step nothing.
  __device__ inline void fetch(int step, int round) {
    if (round >= s.steps) return;
    if (round % s.ask_every == 0)
      block::wait(counter_of(own.d - 1),
                  arrivals_of(min(round + s.ask_every, s.steps) - 1) * s.parts);
    if constexpr (kFetches) {
      const int lane = threadIdx.x % 32, depth = Below::depth_warp() * C::kBelowChunks;
#pragma unroll
      for (int p = 0; p < C::kColumnTiles; ++p)
#pragma unroll
        for (int j = 0; j < C::kBelowChunks; ++j)
          fetched[p][j] = block::load_exchanged(below.row(step, 8 * p + lane / 4) +
                                                ((depth + j) * 4 + lane % 4) * block::kVector);
    }
  }
  __device__ inline void multiply_fetched() const {
#pragma unroll
    for (int pass = 0; pass < C::kColumnTiles / C::kBelowPass; ++pass) {
      float sums[C::kBelowRowTiles][C::kBelowPass][4];
#pragma unroll
      for (int i = 0; i < C::kBelowRowTiles; ++i) {
#pragma unroll
        for (int p = 0; p < C::kBelowPass; ++p) {
#pragma unroll
          for (float& sum : sums[i][p]) sum = 0;
        }
#pragma unroll
        for (int j = 0; j < C::kBelowChunks; ++j) {
          uint4 left[2];
#pragma unroll
          for (int half = 0; half < 2; ++half)
            left[half] = j < C::kBelowHeld ? below.held[j < C::kBelowHeld ? j : 0][i][half]
                                           : *below.in_shared(j - C::kBelowHeld, i, half);
#pragma unroll
          for (int p = 0; p < C::kBelowPass; ++p)
            block::multiply_chunk(sums[i][p], left[0], left[1],
                                  fetched[pass * C::kBelowPass + p][j]);
        }
      }
      below.keep(sums, pass);
    }
  }

  // Reads what the step's cells need beside their own sums: from memory, and from the stage below,
  // which is at the same round, or further.
  __device__ inline void prepare(int step, int round) {
    own.read(step);
    if constexpr (C::kScales) {
#pragma unroll
      for (int q = 0; q < kElements; ++q) {
        const element& e = own.own[q];
        float value[1] = {1};
        if (e.is_inside(step)) scale(own.d, e.batch, e.unit, e.time(step, 0), value);
        scales[q] = value[0];
      }
    }
    if (!has_below()) return;
    if constexpr (kFetches)
      multiply_fetched();
    else
      below.product(step);
    __syncthreads();
#pragma unroll
    for (int q = 0; q < kElements; ++q) {
      element& e = own.own[q];
      if (!e.is_inside(step)) continue;
      typename Below::own_element sent;
      sent.at = e.at / block::kPitch * below_block::kPitch + e.at % block::kPitch;
      float sums[C::kGates];
      below.add_up(sent, sums);
      take(e, sums, C::kScales ? scales[q] : 1);
    }
    fetch(step_of(round + 1), round + 1);
  }
  __device__ inline void take(element& e, const float* sums, float factor) const {
    using value = typename cell::template value<T>;
    if constexpr (C::kGradient) {
      e.values[0] = value(rounded_state<T>(C::kScales ? sums[0] * factor : sums[0]));
    } else {
      float fixed[C::kGates];
      below_fixed(own.d, e.unit, fixed);
#pragma unroll
      for (int gate = 0; gate < C::kGates; ++gate) e.values[gate] = value(sums[gate] + fixed[gate]);
    }
  }

  __device__ inline int step_of(int round) const {
    return C::kGradient ? s.steps - 1 - round : round;
  }
  __device__ inline void steps() {
    const int rounds = s.steps + (C::kGradient ? 1 : 0);
    if (has_below()) fetch(step_of(0), 0);
    if (s.steps > 0) prepare(step_of(0), 0);
#pragma unroll 1
    for (int n = 0; n < rounds; ++n) {
      const int step = step_of(n);
      const bool has_sums = !C::kGradient || n > 0;
      if constexpr (kArrivesLate) own.work = own.at.work + n % 2 * block::kSums;
      if (has_sums) own.multiply_sent(n % 2, n + 1, (n + 1) * s.parts);
      own.cells(step, next_copy(n), n + 2, has_sums, n + 1 == rounds);
      if (step >= 0) send_up(step);
      if constexpr (kArrivesLate) {
        if (n > 0 && has_sums) arrive(counter_of(own.d));  // of the round before
      } else {
        own.announce();
      }
      if (step >= 0) own.store(step);
      if (n + 1 < s.steps) prepare(step_of(n + 1), n + 1);
    }
    if constexpr (kArrivesLate && !C::kGradient) {
      __syncthreads();
      if (rounds > 0) arrive(counter_of(own.d));
    }
  }
  __device__ inline void begin() {
    clear_ends();
    own.begin();
    below.group = own.group;
    own.announce();
  }
  __device__ inline void all() {
    begin();
    own.hold();
    if (has_below()) below.hold();
    while (true) {
      steps();
      own.finish();
      if constexpr (C::kClustered) return;
      own.group += s.first_groups;
      if (own.group >= s.groups) return;
      __syncthreads();  // sums have been read
      begin();
    }
  }
};

template <class C, class T, class Length, class Weight, class Before, class Fixed, class Read,
          class Store, class After, class BelowWeight, class BelowFixed, class Scale>
__device__ inline void recurrence_stack_sm80(float* memory, T* exchange, int* counters, T* up,
                                             const recurrence_stack_shape& shape,
                                             const Length& length, const Weight& weight,
                                             const Before& before, const Fixed& fixed,
                                             const Read& read, const Store& store,
                                             const After& after, const BelowWeight& below_weight,
                                             const BelowFixed& below_fixed, const Scale& scale) {
  using block = recurrence_block<C>;
  using below_block = recurrence_block<recurrence_below<C>>;
  static_assert(block::kStreamed == 0 && below_block::kStreamed == 0);
  using functions = recurrence_functions<Length, Weight, Before, Fixed, Read, Store, After>;
  using below_functions =
      recurrence_functions<Length, BelowWeight, Before, Fixed, Read, Store, After>;
  const functions f{length, weight, before, fixed, read, store, after};
  const below_functions g{length, below_weight, before, fixed, read, store, after};
  recurrence_shape below_shape = shape;
  below_shape.depth = shape.below_depth;
  below_shape.pitch = shape.below_pitch;
  below_shape.directions = shape.directions - 1;
  float *const below_work = memory + block::kWork, *const matrix = below_work + below_block::kSums,
               *const below_matrix = matrix + block::kMatrix,
               *const states = below_matrix + below_block::kMatrix;
  typename block::template run<T, functions> own(
      shape, f, {memory, matrix, states, exchange, exchange, nullptr, counters}, shape.pitch);
  typename below_block::template run<T, below_functions> below(
      below_shape, g, {below_work, below_matrix, nullptr, up, up, nullptr, counters},
      shape.below_pitch);
  below.d = own.d - 1;
  recurrence_stage<C, T, decltype(own), decltype(below), BelowFixed, Scale> stage{
      shape, own, below, up, below_fixed, scale, {}, {}};
  stage.all();
}
