#pragma once
// recurrence_projected_sm80<Config>(memory, exchange, streamed, counters, shape, length, weight,
// before, fixed, read, store, after, project, project_before, project_read, project_store,
// project_after): the loop of an LSTM whose states are projected, and its gradient. A block has
// units of the layer and of the projection, with a run (recurrence_sm80.cuh) and a matrix each:
//
//   for step … {                              gradient:
//     units: r of the step before → h           projection: gradients of gates → dr
//     projection: h → r                         units: dr → gradients of gates
//   }
//
// What is between has a width of its own, and rounds as it does in memory: a step is two exchanges.
// One would do with the product of both matrices, which is as large as without a projection and may
// be too small or too large for f16, or with sums of all blocks' shares, in an order that no two
// runs have in common.
//
// What the units read lies in front in `exchange`, then what the projection reads, a copy of each:
// who writes one has seen what all blocks have made of what was there before. A block whose units
// are all behind the last one of the projection multiplies nothing there, and with numbers does not
// wait for it.
//
// Functions are those of recurrence_sm80; project is the projection's weight(d, unit, gate, depth,
// values out).

#include "codegen/cuda/device/recurrence/recurrence_shape.cuh"
#include "codegen/cuda/device/recurrence/recurrence_sm80.cuh"

template <class C>
struct recurrence_projection : C {
  static constexpr int kTurned = 0;  // its matrix comes by 16 bytes of a row
  static constexpr int kCell = 4, kGates = 1;
  static constexpr int kUnits = C::kProjectedUnits;
  static constexpr int kRowTiles = C::kProjectedRowTiles;
  static constexpr int kRowWarps = C::kProjectedRowWarps;
  static constexpr int kChunks = C::kProjectedChunks;
  static constexpr int kHeld = C::kProjectedHeld;
  static constexpr int kInShared = C::kProjectedInShared;
  static constexpr int kStages = C::kProjectedStages;
  static constexpr int kPass = C::kProjectedPass;
  static constexpr int kAhead = C::kProjectedAhead;
};

// A projection has no bias.
struct recurrence_no_bias {
  __device__ inline void operator()(int, int, float (&values)[1]) const { values[0] = 0; }
};

// The runs of a step, one behind the other.
template <class C, class First, class Second>
__device__ inline void recurrence_run_pair(First& first, Second& second) {
  const recurrence_shape& s = first.s;
  const auto begin = [&] {
    first.begin();
    second.begin();
    first.announce();
  };
  begin();
  first.hold();
  second.hold();
  const int rounds = s.steps + (C::kGradient ? 1 : 0);
  while (true) {
    if (s.steps > 0) {
      first.read(C::kGradient ? s.steps - 1 : 0);
      second.read(C::kGradient ? s.steps - 1 : 0);
    }
    if (!C::kGradient && rounds > 0) first.begin_stream();
#pragma unroll 1
    for (int n = 0; n < rounds; ++n) {
      const int step = C::kGradient ? s.steps - 1 - n : n;
      const int following = C::kGradient ? step - 1 : step + 1;
      const bool has_sums = !C::kGradient || n > 0;
      if (has_sums) first.multiply_sent(0, n + 1, (2 * n + 1) * s.parts);
      first.cells(step, 0, n + 1, has_sums);
      if (step < 0) break;  // a gradient's last round
      first.announce();
      second.begin_stream();
      first.between(step, following);
      second.multiply_sent(0, n + 1, (2 * n + 2) * s.parts);
      second.cells(step, 0, n + 2, true);
      if (n + 1 < rounds) {
        second.announce();
        first.begin_stream();
      }
      second.between(step, following);
    }
    first.finish();
    second.finish();
    first.group += s.first_groups;
    second.group += s.first_groups;
    if (first.group >= s.groups) return;
    __syncthreads();  // sums have been read
    begin();
  }
}

template <class C, class T, class Length, class Weight, class Before, class Fixed, class Read,
          class Store, class After, class Project, class ProjectBefore, class ProjectRead,
          class ProjectStore, class ProjectAfter>
__device__ inline void recurrence_projected_sm80(
    float* memory, T* exchange, T* streamed, int* counters, const recurrence_projected_shape& shape,
    const Length& length, const Weight& weight, const Before& before, const Fixed& fixed,
    const Read& read, const Store& store, const After& after, const Project& project,
    const ProjectBefore& project_before, const ProjectRead& project_read,
    const ProjectStore& project_store, const ProjectAfter& project_after) {
  using P = recurrence_projection<C>;
  using units = recurrence_block<C>;
  using projection = recurrence_block<P>;
  using unit_functions = recurrence_functions<Length, Weight, Before, Fixed, Read, Store, After>;
  using projection_functions =
      recurrence_functions<Length, Project, ProjectBefore, recurrence_no_bias, ProjectRead,
                           ProjectStore, ProjectAfter>;
  recurrence_shape projected = shape;
  projected.units = shape.projected_units;
  projected.depth = shape.projected_depth;
  projected.pitch = shape.projected_pitch;
  const recurrence_no_bias no_bias;
  const unit_functions f{length, weight, before, fixed, read, store, after};
  const projection_functions g{length,       project,       project_before, no_bias,
                               project_read, project_store, project_after};
  // Sums of both lie in one place, if a barrier is between them.
  constexpr int kFirstWork = C::kNumbered ? units::kSums : 0;
  constexpr int kWork =
      C::kNumbered ? units::kSums + projection::kSums
                   : (units::kCountedWork > projection::kCountedWork ? units::kCountedWork
                                                                     : projection::kCountedWork);
  float *const matrix = memory + kWork, *const project_matrix = matrix + units::kMatrix,
               *const states = project_matrix + projection::kMatrix;
  uint4* const fragments = reinterpret_cast<uint4*>(streamed);
  T* const between = exchange + (long long)shape.directions * shape.groups * units::kColumns *
                                    shape.pitch * (C::kNumbered ? 2 : 1);
  typename units::template run<T, unit_functions> of_units(
      shape, f, {memory, matrix, states, exchange, between, fragments, counters},
      shape.projected_pitch);
  typename projection::template run<T, projection_functions> of_projection(
      projected, g,
      {memory + kFirstWork, project_matrix, states, between, exchange,
       fragments + gridDim.x * units::kStreamedPieces, counters},
      shape.pitch);
  if constexpr (C::kGradient)
    recurrence_run_pair<C>(of_projection, of_units);
  else
    recurrence_run_pair<C>(of_units, of_projection);
}
