// The two schedules of the contract_simt engine, and what its cost model must know of them.
#pragma once

#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/tiles.h"

namespace kiln::compiler {

struct SimtKnobs {
  int tile_m, tile_n, tile_k, threads;
  int slices;  // of k; 0 for as many as fill the GPU
};

// The places of the threads of a block over its tile. A thread makes per_m x per_n places, in
// pieces of `lane` neighbours (16 bytes of the accumulator's type) along both axes; pieces of one
// thread are apart by what the whole block covers, so that neighbouring threads read neighbouring
// 16 bytes of a panel.
//
//   128x128, f32, 256 threads       warp: 4 x 8 threads
//     t0 t1 … t15 t0 t1 … t15        each ti is 4 columns; rows are dealt likewise
struct SimtPatch {
  int threads;
  int lane;
  int per_m, per_n;
  int lanes_n;  // threads of a warp along n

  int across(int tile_n) const { return tile_n / per_n; }  // threads along n
};
SimtPatch PatchOf(const SimtKnobs& knobs, DType accumulator);

// The shared memory of two panels of each operand, and of what warps have reduced.
int64_t SimtSharedBytes(const SimtKnobs& knobs, DType accumulator, int reductions);
// The number of slices of k; 1 where the result is reduced, which needs whole sums.
int64_t SimtSlices(const ContractionSizes& size, int reductions, const Target& target,
                   const SimtKnobs& knobs);

Lowered LowerSimtGpu(const EpilogueReductions& group, const Target& target, const SimtKnobs& knobs);
Lowered LowerSimtCpu(const EpilogueReductions& group, const Target& target, int tile_m, int tile_n);

}  // namespace kiln::compiler
