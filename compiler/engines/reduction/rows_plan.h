// RowsPlan: a group of kind kRows, seen as the needs of one row stage by stage.
//
//   stage 0   sum(x)                      reads x
//   stage 1   sum((x - mean)^2)           reads x, values of the row
//   stage 2   y = (x - mean) * inv * s    reads x, values of the row, s
//
// A wide tensor has extents along the rows, a value of the row has none. What a stage computes its
// wide tensors from are leaves: wide tensors in memory or behind a view, and values of the row.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "compiler/engines/reduction/moments.h"

namespace kiln::compiler {

struct RowsPlan {
  struct Stage {
    std::vector<size_t> reduces;              // of row.reduces; none in the last stage
    std::vector<graph::TensorId> leaves;      // wide
    std::vector<graph::TensorId> row_values;  // that wide tensors are computed from
    std::vector<graph::TensorId> keeps;       // operands of its reductions, for later stages
    // Quotients of wide tensors and values of the row that one reciprocal a row replaces: results
    // of 16 bits and less do not tell the difference.
    std::vector<graph::NodeId> quotients;
    // Set for a stage whose one reduction is squared distances from the mean of a sum of the stage
    // before, and which needs nothing else of the row: threads can take theirs from means of their
    // own, as soon as they have the sum, so that one round between threads finishes both.
    std::optional<Moment> moment;
  };

  ReducePlan row;
  std::vector<Stage> stages;          // the last one stores
  std::vector<graph::TensorId> held;  // leaves as large as the space: each is read from memory once
  std::vector<graph::TensorId> wide_outputs, row_outputs;
  int lanes = 1;        // elements of a vector
  int64_t vectors = 1;  // of a row
  bool costly = false;  // reduces what takes long to compute, so that it may be worth keeping

  std::vector<size_t> shifted;  // sums that may add distances from the first element of their row

  bool IsHeld(graph::TensorId leaf) const;
  bool IsShifted(size_t r) const { return std::ranges::find(shifted, r) != shifted.end(); }
  // The bytes of all that is held of a row.
  int64_t BytesOfRow() const;
  // The bytes of the smallest copy, where all that is held comes as copies of 4, 8 or 16; else 0.
  int64_t LeastChunk() const;
  // The reductions across rows (row.others), each of which wants a register for every element.
  int columns() const { return static_cast<int>(row.others.size()); }
  // The bytes of one of their results, unrounded: types of accumulators have shared memory of their
  // own.
  int64_t ColumnBytes() const;
  // The 32-bit registers that a thread needs to hold `count` vectors of each of `rows`.
  int64_t RegistersFor(int64_t count, int64_t rows = 1) const;
  // The registers of RegistersFor with those of the next rows, and the columns.
  int64_t RegistersToWalk(int64_t count, int64_t rows = 1) const;
};

// The elements of a vector along the innermost dim, be it reduced or not.
int LanesOf(const ReducePlan& row);

// Plans a group. `keeps`: whether results of costly functions that a stage has reduced may stay in
// registers for later stages, instead of being computed again.
RowsPlan PlanRows(const Group& group, bool keeps = false);

// The way in which threads share rows. A team of threads has a row, each thread of it `vectors` of
// that row, and `rows` rows are under way in it at a time.
struct RowsShape {
  int threads = 128;  // of a block
  int team = 32;      // a power of two that divides `threads`
  int vectors = 1;
  int rows = 1;
  bool streams = false;  // rows are longer than what a team holds: each stage reads them again
  // True if neighbouring threads have neighbouring rows: for rows that do not lie along the
  // innermost dim.
  bool side_by_side = false;
  // Blocks of a multiprocessor that walk all rows, and read the next one while they compute one; 0:
  // a block for each few rows.
  int resident = 0;
  // In blocks that walk: rows that have room in shared memory, where threads cannot hold one and
  // the next. 0: registers hold both. With 1, parts of the next row come as this one's are stored.
  int ring = 0;

  // The shared memory of a block; 0 where it always fits in 48 KB.
  int64_t SharedBytes(const RowsPlan& plan) const {
    constexpr int64_t kTotals = 4 << 10;  // of all warps
    return ring == 0 ? 0 : ring * plan.BytesOfRow() + kTotals;
  }
  // The sums across rows that a team has of each reduction.
  int64_t ColumnsOfTeam(const RowsPlan& plan) const { return int64_t{team} * vectors * plan.lanes; }
  // The number of teams that may leave theirs in shared memory at a time; 0: not one.
  int TeamsToPublish(const RowsPlan& plan) const;
  int64_t rows_of_block() const { return int64_t{threads} / team * rows; }
  // True if all threads have equally many elements of a row, of which they make parts by shuffles.
  bool IsEven(const RowsPlan& plan) const {
    return !streams && !side_by_side && int64_t{vectors} * team == plan.vectors;
  }
  // True if there are registers for a wide tensor in f32 beside what is held.
  bool CanKeep(int lanes) const {
    return !streams && vectors * rows * lanes <= (threads > 512 ? 32 : 64);
  }
};

struct RowsKnobs {
  int threads, vectors, rows;  // 0: what suits the row
};
RowsShape ShapeOf(const RowsPlan& plan, const Target& target, const RowsKnobs& knobs);

}  // namespace kiln::compiler
