// RowsColumns: reductions across the rows that the rows engine's kernel passes. Blocks walk many
// rows, a thread has the same columns of all of them, and leaves what it has accumulated in
// scratch memory, a row of partial results a block; a second kernel combines these, in a fixed
// order.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/engines/reduction/rows_plan.h"

namespace kiln::compiler {

class RowsColumns {
 public:
  // `vectors`: of a row, a parameter of the kernel.
  RowsColumns(const RowsPlan& plan, const RowsShape& shape, KernelBuilder& b, tile::Expr vectors)
      : plan_(plan), shape_(shape), b_(b), vectors_(std::move(vectors)) {}

  // Declares registers, set to the identities.
  void Declare(tile::Block& out);
  // Takes in the operands at `index`; `slot` counts the elements of a row that the thread has.
  void Add(tile::Block& out, ValueScope& values, const Index& index, const tile::Expr& slot);
  // Stores the block's partial results after the last row.
  void Publish(tile::Block& out, const tile::Expr& lane, int64_t blocks, Lowered& lowered);

 private:
  DType TypeOf(size_t c) const;
  const graph::Node& node(size_t c) const;
  tile::Expr Combined(size_t c, tile::Expr a, tile::Expr b) const;
  void PublishTeam(tile::Block& out, size_t c, const tile::Expr& lane);
  void PublishBlock(tile::Block& out, size_t c, const tile::Expr& lane);
  struct TeamRows;
  TeamRows ShareRows(tile::Block& out, size_t c, const tile::Expr& lane, int teams);
  // `emit` says what is done with each vector of a thread: at its place in the row of team `from`,
  // and at its slot of registers.
  void EachVector(
      tile::Block& to, const TeamRows& rows, const tile::Expr& from,
      const std::function<void(tile::Block&, const tile::Expr&, const tile::Expr&)>& emit);
  void LeaveSums(tile::Block& to, const TeamRows& rows, size_t c, const tile::Expr& from);
  void TakeSums(tile::Block& to, const TeamRows& rows, size_t c, const tile::Expr& from);
  void StoreTotals(tile::Block& out, const TeamRows& rows, size_t c, int teams);

  const RowsPlan& plan_;
  const RowsShape& shape_;
  KernelBuilder& b_;
  const tile::Expr vectors_;
  tile::Expr length_;  // of a row
  std::vector<std::string> sums_, scratch_;
  std::map<DType, std::string> shared_;  // one row of each team, where there are several
};

// Appends the second kernel, for partial results of so many blocks.
void CombineColumns(const RowsPlan& plan, const Target& target, int64_t blocks, Lowered& lowered);

}  // namespace kiln::compiler
