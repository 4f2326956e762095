// RecurrencePlan: how the blocks of recurrence_sm80 divide a recurrent layer, where its matrix
// stays, and what a step is thought to take. All blocks have to be resident together, which is
// decided here: a block has a multiprocessor of its own, so that a grid of at most as many is. Two
// of half the size on each were not faster (docs/perf-log.md).
//
//   a block    `units` units of a direction (and their gates), `columns` sequences
//   a warp     a share of the depth of the matrix, `chunks` times 64 bytes of each row
#pragma once

#include <vector>

#include "compiler/engines/recurrence_loop.h"

namespace kiln::compiler {

// Legal values of a split; 0: what the model likes best.
inline constexpr int kRecurrenceUnits[] = {0,  2,  4,  6,  8,  10, 12, 14,
                                           16, 20, 24, 28, 32, 40, 48, 64};
inline constexpr int kRecurrenceColumns[] = {0, 8, 16, 32, 64};
struct RecurrenceSplit {
  int units = 0, columns = 0;
};

struct RecurrencePlan {
  RecurrenceShape shape = {};
  bool rounds = false;  // f32 operands to TF32
  int units = 0, columns = 0;
  int64_t depth = 0;                    // of the product
  int gates = 1;                        // rows of the matrix that a unit has
  int row_tiles = 0;                    // of 16
  int warps = 0, chunks = 0, held = 0;  // chunks of a warp, those in registers
  int pass = 1, ahead = 1;              // column tiles that are multiplied together; loads ahead
  int64_t parts = 0, groups = 0, first_groups = 0;  // first_groups: groups that run at a time

  int threads() const { return 32 * warps; }
  int element_bytes() const { return rounds ? 4 : 2; }
  int chunk() const { return 64 / element_bytes(); }  // elements
  int64_t pitch() const { return int64_t{warps} * chunks * chunk(); }
  int64_t blocks() const { return parts * first_groups * shape.directions; }
  int64_t sums() const { return int64_t{warps} * columns * (16 * row_tiles + 4); }  // floats
  int64_t shared_bytes() const {
    return sums() * 4 + int64_t{warps} * (chunks - held) * row_tiles * 1024;
  }
  // Elements of the two copies of what blocks exchange; ints of counters.
  int64_t exchanged() const { return 2 * shape.directions * groups * columns * pitch(); }
  int64_t counters() const { return shape.directions * groups * 32; }
};

// The plan for this split, or why there is none.
Result<RecurrencePlan> RecurrencePlanOf(const RecurrenceShape& shape, const Target& target,
                                        const RecurrenceSplit& split);
// Splits that have a plan, the one that the model likes best first.
std::vector<RecurrenceSplit> RecurrenceSplits(const RecurrenceShape& shape, const Target& target);
// Modelled seconds of all steps.
double RecurrenceSeconds(const RecurrencePlan& plan, const Target& target);

}  // namespace kiln::compiler
