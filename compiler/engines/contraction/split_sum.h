// SplitSum: the second kernel of a split-K contraction. Adds up the slices in their order, so that
// the result is the same every time, and takes the sum through the epilogue.
//
//   slices [splits][batches][right][left_pitch], left contiguous
//   block  256 vectors of 4 neighbours; where there are few vectors and many slices, 32 vectors x 8
//          threads, each of which adds every eighth slice
#pragma once

#include "compiler/engines/contraction/epilogue.h"

namespace kiln::compiler {

struct SplitSlices {
  int64_t splits = 1, batches = 1;
  int64_t left_pitch = 0;  // of a row of slices, a multiple of 8
  DType accumulator = DType::kF32;
  EpilogueAxes axes = {};
};

// Appends the kernel, which reads scratch buffer 0, and its launch.
void SumSplits(const Group& group, const Target& target, const SplitSlices& slices,
               Lowered& lowered);

}  // namespace kiln::compiler
