// RecurrenceRingPlan: how the clusters of recurrence_sm90 divide a recurrent layer, where its
// matrix stays, and what a step is thought to take. As in recurrence/plan.h all blocks have to be
// resident together, each on a multiprocessor of its own; of clusters there are as many as every
// board has room for.
//
//   a cluster   `units` units of a direction (and their gates) and `columns` sequences; its `split`
//               blocks share the depth of the product, and then the sequences
//   a block     `chunks` times 128 bytes of each row of the matrix: `resident` of them stay in
//               shared memory, the others come again at each step, with the states, through a ring
//               of `stages` slots
#pragma once

#include <vector>

#include "compiler/engines/recurrence/loop.h"

namespace kiln::compiler {

// Legal values of a split; 0: what the model likes best.
inline constexpr int kRingUnits[] = {0,  8,  12, 16, 20, 24,  28,  32,  36,  40, 48,
                                     56, 64, 72, 80, 96, 112, 128, 144, 152, 160};
inline constexpr int kRingColumns[] = {0, 64, 128};
inline constexpr int kRingSplits[] = {0, 1, 2, 4};
struct RecurrenceRingSplit {
  int units = 0, columns = 0, split = 0;
};

struct RecurrenceRingPlan {
  RecurrenceShape shape = {};
  int element_bytes = 2;
  int units = 0, gates = 1, columns = 0, split = 1;
  int64_t depth = 0, parts = 0, groups = 0, first_groups = 0;  // groups: see RecurrencePlan
  int chunks = 0, resident = 0, stages = 0;
  bool keeps_values = false;  // what a cell reads is asked for before its sums are there

  static constexpr int kThreads = 256 + 128;
  static constexpr int kRowBytes = 128;
  int tiles() const { return columns / 64; }
  int rows() const { return (units * gates + 7) / 8 * 8; }
  int chunk() const { return kRowBytes / element_bytes; }  // elements
  int streamed() const { return chunks - resident; }
  int64_t pitch() const { return int64_t{split} * chunks * chunk(); }
  int64_t blocks() const { return parts * first_groups * shape.directions * split; }
  int64_t matrix_bytes() const { return int64_t{rows()} * kRowBytes; }  // of a chunk
  int64_t state_bytes() const { return int64_t{columns} * kRowBytes; }
  int64_t slot_bytes() const { return state_bytes() + (streamed() > 0 ? matrix_bytes() : 0); }
  // Rows of sums are padded so that halves of a warp meet no bank twice.
  int64_t sum_bytes() const {
    const int64_t padded = rows() % 16 == 0 ? rows() + 8 : rows();
    return 128 * padded * 4;  // of two warpgroups
  }
  int64_t ring_bytes() const;
  int64_t shared_bytes() const {
    return ring_bytes() + resident * matrix_bytes() + int64_t{16} * stages;
  }
  int64_t exchanged_bytes() const {
    return 2 * shape.directions * groups * split * chunks * state_bytes();
  }
  // The bytes of the streamed matrix, which all groups of sequences share.
  int64_t streamed_bytes() const {
    return shape.directions * parts * split * streamed() * matrix_bytes();
  }
  int64_t counters() const { return shape.directions * groups * 32; }
  // The units of sequences that a thread has.
  int64_t elements() const;
};

// The plan for this split, or why there is none.
Result<RecurrenceRingPlan> RecurrenceRingPlanOf(const RecurrenceShape& shape, const Target& target,
                                                const RecurrenceRingSplit& split);
// Splits that have a plan, the one that the model likes best first.
std::vector<RecurrenceRingSplit> RecurrenceRingSplits(const RecurrenceShape& shape,
                                                      const Target& target);
// Modelled seconds of all steps.
double RecurrenceRingSeconds(const RecurrenceRingPlan& plan, const Target& target);

}  // namespace kiln::compiler
