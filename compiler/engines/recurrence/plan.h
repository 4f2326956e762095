// RecurrencePlan: how the blocks of recurrence_sm80 divide a recurrent layer, where its matrix
// stays, and what a step is thought to take. All blocks have to be resident together, which is
// decided here: a block has a multiprocessor of its own, so that a grid of at most as many is. Two
// of half the size on each were not faster (docs/log).
//
//   a block    `units` units of a direction (and their gates), `columns` sequences
//   a warp     a share of the rows (of one or two) and of the depth of the matrix, `chunks` times
//              64 bytes of each row: `held` in registers, `in_shared` in shared memory, and what
//              has room in neither is read again at each step, through a ring in shared memory
//
// An LSTM with a projection has two such matrices, and a block its share of the units of both. So
// has a stage of a stack of layers: that of its own states, and that of what comes from below.
#pragma once

#include <algorithm>
#include <vector>

#include "compiler/engines/recurrence/loop.h"

namespace kiln::compiler {

// Legal values of a split; 0: what the model likes best.
inline constexpr int kRecurrenceUnits[] = {0,  2,  4,  6,  8,  10, 12, 14,
                                           16, 20, 24, 28, 32, 40, 48, 64};
inline constexpr int kRecurrenceColumns[] = {0, 8, 16, 32, 64};
// The way in which blocks tell one another that states are there: a counter for each group that all
// of its blocks arrive at, numbers beside the states, or, where they are a cluster, barriers of
// each; 0: as the model likes.
enum RecurrenceExchange : int { kCounted = 1, kNumbered = 2, kClustered = 3 };
inline constexpr int kRecurrenceExchanges[] = {0, kCounted, kNumbered, kClustered};
struct RecurrenceSplit {
  int units = 0, columns = 0, exchange = 0;
};
// Units that multiply: tensor cores, which round f32 to TF32, or FMA units.
enum class RecurrenceUnits : uint8_t { kTensorCores, kFma };

// One matrix of a loop, and who multiplies it: the matrix of a layer's units, or of what they are
// projected to.
struct RecurrenceProduct {
  int element_bytes = 2, columns = 0, warps = 0;  // those of the loop
  int64_t outputs = 0, depth = 0;                 // units of the layer; of the product
  int units = 0, gates = 1;                       // of a block; rows of the matrix that a unit has
  int row_warps = 1, row_tiles = 0;               // shares of the rows; of 16, of a warp
  int chunks = 0, held = 0, in_shared = 0;        // chunks of a warp, those that stay on the chip
  int stages = 1;                                 // chunks of a warp's ring
  int pass = 1, ahead = 1;  // column tiles that are multiplied together; loads ahead
  bool is_below = false;    // of a stack: of what the stage below has sent

  int chunk() const { return 64 / element_bytes; }  // elements
  int depth_warps() const { return warps / row_warps; }
  int rows() const { return 16 * row_tiles * row_warps; }
  int streamed() const { return chunks - held - in_shared; }
  // The registers of a stack in which what comes from below waits, if that is little.
  int fetched_registers() const {
    constexpr int kMostPieces = 8;
    const int pieces = columns / 8 * chunks;
    return is_below && pieces <= kMostPieces ? 4 * pieces : 0;
  }
  int held_registers() const { return held * row_tiles * 8; }
  int64_t pitch() const { return int64_t{depth_warps()} * chunks * chunk(); }
  int64_t sums() const { return int64_t{depth_warps()} * columns * (rows() + 4); }  // floats
  int64_t ring_chunk_bytes() const { return int64_t{warps} * (2 * row_tiles + pass) * 512; }
  // The bytes in which a product works: sums lie where the ring was.
  int64_t work_bytes() const {
    return std::max(sums() * 4, streamed() > 0 ? stages * ring_chunk_bytes() : 0);
  }
  // A chunk of all warps.
  int64_t chunk_bytes() const { return int64_t{warps} * row_tiles * 1024; }
};

struct RecurrencePlan {
  RecurrenceShape shape = {};
  bool fma = false;     // RecurrenceUnits; of f32
  bool rounds = false;  // f32 operands to TF32
  int columns = 0, warps = 0;
  bool numbered = false, clustered = false;         // RecurrenceExchange
  int64_t parts = 0, groups = 0, first_groups = 0;  // first_groups: groups that run at a time
  // The products of the layer's units, then of the projection. One behind the other in each step.
  std::vector<RecurrenceProduct> products;

  const RecurrenceProduct& of_units() const { return products.front(); }
  int threads() const { return 32 * warps; }
  int element_bytes() const { return rounds || fma ? 4 : 2; }
  int64_t blocks() const { return parts * first_groups * shape.directions; }
  // The bytes in which all products work: in one place, but with numbers there are the sums of two
  // products, one behind the other.
  int64_t work_bytes() const {
    int64_t most = 0, both = 0;
    for (const RecurrenceProduct& p : products) {
      most = std::max(most, p.work_bytes());
      both += p.sums() * 4;
    }
    if (shape.stages > 1) return both + (numbered || clustered ? of_units().sums() * 4 : 0);
    if (!numbered && !clustered) return most;
    return products.size() == 1 ? 2 * both : both;
  }
  // The pitch of a row of the exchange in memory; in shared memory neighbouring rows begin at other
  // banks.
  int64_t exchange_pitch() const {
    const int64_t pitch = of_units().pitch();
    return clustered && pitch * element_bytes() % 128 == 0 ? pitch + of_units().chunk() : pitch;
  }
  // Two copies of the exchange of a cluster, and their barriers.
  int64_t clustered_bytes() const {
    return clustered ? 2 * columns * exchange_pitch() * element_bytes() + 16 : 0;
  }
  // The shared memory of a block, from which FMA units read states.
  int64_t shared_bytes() const {
    int64_t matrices = 0, pitch = 0;
    for (const RecurrenceProduct& p : products) {
      matrices += p.in_shared * p.chunk_bytes();
      pitch = std::max(pitch, p.pitch());
    }
    return work_bytes() + matrices + (fma ? columns * pitch * 4 : 0) + clustered_bytes();
  }
  // The bytes that all blocks read again at each step.
  int64_t streamed_bytes() const {
    int64_t bytes = 0;
    for (const RecurrenceProduct& p : products) bytes += blocks() * p.streamed() * p.chunk_bytes();
    return bytes;
  }
  // The elements of what blocks exchange: of two copies, or one of what each product reads; ints of
  // counters.
  int64_t exchanged() const {
    int64_t pitch = 0;
    for (const RecurrenceProduct& p : products) pitch += p.is_below ? 0 : p.pitch();
    if (!shape.is_projected) pitch *= 2;
    if (clustered) return 16;  // none
    return (numbered ? 2 : 1) * shape.directions * groups * columns * pitch;
  }
  // The elements of what stages send up, a copy for each step.
  int64_t sent_up() const {
    if (shape.stages == 1) return 0;
    return shape.steps * (shape.stages - 1) * groups * columns * products[1].pitch();
  }
  // The steps that a stage waits for at a time: few where there are few.
  int64_t ask_every() const {
    constexpr int64_t kMost = 4, kBegins = 16;
    return std::clamp<int64_t>(shape.steps / (kBegins * std::max<int64_t>(shape.stages - 1, 1)), 1,
                               kMost);
  }
  int64_t counters() const { return shape.directions * groups * 32; }
};

// The plan for this split, or why there is none.
Result<RecurrencePlan> RecurrencePlanOf(const RecurrenceShape& shape, const Target& target,
                                        const RecurrenceSplit& split, RecurrenceUnits units);
// Splits that have a plan, the one that the model likes best first.
std::vector<RecurrenceSplit> RecurrenceSplits(const RecurrenceShape& shape, const Target& target,
                                              int exchange, RecurrenceUnits units);
// The plan of the split that the model likes best among those with what `wished` names; 0 names
// nothing.
Result<RecurrencePlan> BestRecurrencePlan(const RecurrenceShape& shape, const Target& target,
                                          const RecurrenceSplit& wished, RecurrenceUnits units);
// Modelled seconds of all steps.
double RecurrenceSeconds(const RecurrencePlan& plan, const Target& target);

}  // namespace kiln::compiler
