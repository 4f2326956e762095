// DecodePlan: attention of few queries over many keys, as attention_decode runs it: which heads are
// rows of one tile, where rows of k and v lie in memory, how many splits the keys have, and what
// all that is thought to take.
#pragma once

#include <span>

#include "compiler/engines/attention/moves.h"
#include "compiler/engines/attention/problem.h"
#include "ir/target.h"

namespace kiln::compiler {

// The tensor in memory that rows of an operand are parts of.
struct RowMemory {
  graph::TensorId tensor = -1;
  bool is_gathered = false;  // where rows lie is read from memory
};

struct DecodeTile {
  int row_tiles = 1;  // of 16 rows, that each warp has
  int keys = 16;      // of a step of a warp
  int stages = 3, warps = 4;
  int rows() const { return 16 * row_tiles; }
};

struct DecodePlan {
  AttentionProblem problem = {};
  int depth = 0, width = 0;  // of q and k, of v, in whole panels
  int64_t sharing = 1;       // heads that are rows of one tile
  RowMemory key = {}, value = {};
  DType index = DType::kI32;  // what elements are counted in
  DecodeTile tile = {};
  int64_t splits = 1;

  int64_t rows() const { return sharing * problem.queries; }
  int64_t units() const { return problem.heads() / sharing; }
  int64_t row_tiles() const { return CeilDiv(rows(), tile.rows()); }
  int64_t blocks() const { return units() * row_tiles() * splits; }

  // The kernel that adds up splits has threads of eight columns each; combine_lanes() of them share
  // a row's columns. Several splits are on their way to a thread at a time.
  static constexpr int kCombineInFlight = 4;
  int combine_lanes() const;
  int combine_threads() const;
};

// The knobs, in the order of the engine's rows; 0: what follows from depth and device.
struct DecodeKnobs {
  int rows = 0, keys = 0, stages = 0, warps = 0, splits = 0;
};

Result<DecodePlan> DecodePlanOf(const Group& group);
Status TakeDecodeTile(DecodePlan& plan, const Target& target, const DecodeKnobs& knobs);
// The elements of a block's shared memory: queries and rings, then what warps have of the result.
int64_t DecodeSharedElements(const DecodePlan& plan);
double DecodeSeconds(const DecodePlan& plan, const Target& target);

// Writes the kernels.
void LowerDecode(const Group& group, const Target& target, DecodePlan plan, Lowered& lowered);

}  // namespace kiln::compiler
