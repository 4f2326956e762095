// RecurrencePlan: how the blocks of recurrence_sm80 divide a recurrent layer, where its matrix
// stays, and what a step is thought to take. All blocks have to be resident together, which is
// decided here: a block has a multiprocessor of its own, so that a grid of at most as many is. Two
// of half the size on each were not faster (docs/perf-log.md).
//
//   a block    `units` units of a direction (and their gates), `columns` sequences
//   a warp     a share of the rows (of one or two) and of the depth of the matrix, `chunks` times
//              64 bytes of each row: `held` in registers, `in_shared` in shared memory, and what
//              has room in neither is read again at each step, through a ring in shared memory
#pragma once

#include <algorithm>
#include <vector>

#include "compiler/engines/recurrence_loop.h"

namespace kiln::compiler {

// Legal values of a split; 0: what the model likes best.
inline constexpr int kRecurrenceUnits[] = {0,  2,  4,  6,  8,  10, 12, 14,
                                           16, 20, 24, 28, 32, 40, 48, 64};
inline constexpr int kRecurrenceColumns[] = {0, 8, 16, 32, 64};
// How blocks tell one another that states are there: a counter for each group that all of its
// blocks arrive at, or numbers beside the states; 0: as the model likes.
enum RecurrenceExchange : int { kCounted = 1, kNumbered = 2 };
inline constexpr int kRecurrenceExchanges[] = {0, kCounted, kNumbered};
struct RecurrenceSplit {
  int units = 0, columns = 0, exchange = 0;
};
// What multiplies: tensor cores, which round f32 to TF32, or FMA units.
enum class RecurrenceUnits : uint8_t { kTensorCores, kFma };

struct RecurrencePlan {
  RecurrenceShape shape = {};
  bool fma = false;     // RecurrenceUnits; of f32
  bool rounds = false;  // f32 operands to TF32
  int units = 0, columns = 0;
  int64_t depth = 0;                        // of the product
  int gates = 1;                            // rows of the matrix that a unit has
  int warps = 0, row_warps = 1;             // row_warps: shares of the rows
  int row_tiles = 0;                        // of 16, of a warp
  int chunks = 0, held = 0, in_shared = 0;  // chunks of a warp, those that stay on the chip
  int stages = 1;                           // chunks of a warp's ring
  bool numbered = false;                    // RecurrenceExchange
  int pass = 1, ahead = 1;  // column tiles that are multiplied together; loads ahead
  int64_t parts = 0, groups = 0, first_groups = 0;  // first_groups: groups that run at a time

  int threads() const { return 32 * warps; }
  int element_bytes() const { return rounds || fma ? 4 : 2; }
  int chunk() const { return 64 / element_bytes(); }  // elements
  int depth_warps() const { return warps / row_warps; }
  int rows() const { return 16 * row_tiles * row_warps; }
  int streamed() const { return chunks - held - in_shared; }
  int64_t pitch() const { return int64_t{depth_warps()} * chunks * chunk(); }
  int64_t blocks() const { return parts * first_groups * shape.directions; }
  int64_t sums() const { return int64_t{depth_warps()} * columns * (rows() + 4); }  // floats
  int64_t ring_chunk_bytes() const { return int64_t{warps} * (2 * row_tiles + pass) * 512; }
  // Sums lie where the ring was; with numbers there are those of two steps.
  int64_t work_bytes() const {
    return std::max(sums() * (numbered ? 8 : 4), streamed() > 0 ? stages * ring_chunk_bytes() : 0);
  }
  // A chunk of all warps.
  int64_t chunk_bytes() const { return int64_t{warps} * row_tiles * 1024; }
  // FMA units read states from there.
  int64_t shared_bytes() const {
    return work_bytes() + in_shared * chunk_bytes() + (fma ? columns * pitch() * 4 : 0);
  }
  // That all blocks read again at each step.
  int64_t streamed_bytes() const { return blocks() * streamed() * chunk_bytes(); }
  // Elements of the two copies of what blocks exchange; ints of counters.
  int64_t exchanged() const {
    return (numbered ? 4 : 2) * shape.directions * groups * columns * pitch();
  }
  int64_t counters() const { return shape.directions * groups * 32; }
};

// The plan for this split, or why there is none.
Result<RecurrencePlan> RecurrencePlanOf(const RecurrenceShape& shape, const Target& target,
                                        const RecurrenceSplit& split, RecurrenceUnits units);
// Splits that have a plan, the one that the model likes best first.
std::vector<RecurrenceSplit> RecurrenceSplits(const RecurrenceShape& shape, const Target& target,
                                              int exchange, RecurrenceUnits units);
// Modelled seconds of all steps.
double RecurrenceSeconds(const RecurrencePlan& plan, const Target& target);

}  // namespace kiln::compiler
