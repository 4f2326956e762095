// columns: chains of reductions, as rows has them, along places that do not lie together
// (statistics of channels: batch norm and its gradients) or that are too many for a block: one pass
// over memory a stage by all blocks, and a small kernel between two passes. GPUs only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/engines/columns/plan.h"
#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kColumnsEngine;

// Numbers of the group's scratch buffers.
struct ColumnsScratch {
  std::vector<int> parts, totals;         // of a reduction: [split][column], [column]
  std::map<size_t, int> shifts;           // of a sum that adds distances from it: [column]
  std::map<graph::TensorId, int> values;  // that a pass wants of its columns: [column]
};

// Parameters of one kernel, each made once.
class ColumnsParameters {
 public:
  ColumnsParameters(KernelBuilder& b, const ColumnsPlan& plan, const ColumnsShape& shape)
      : b_(b), plan_(plan), shape_(shape) {}

  tile::Expr Arg(const std::string& name, int64_t value);
  const std::string& Scratch(int number, DType type, bool is_const);
  // Whole tiles that every split has; the split that has the rest, those before it a tile more; and
  // how many of a column's elements a split has.
  tile::Expr Turns() { return Arg("turns", shape_.turns()); }
  tile::Expr Owner() { return Arg("owner", shape_.owner()); }
  tile::Expr ElementsOf(const tile::Expr& split);

 private:
  KernelBuilder& b_;
  const ColumnsPlan& plan_;
  const ColumnsShape& shape_;
  std::map<std::string, tile::Expr> args_;
  std::map<int, std::string> scratch_;
};

// One pass (columns/column_pass.cc).
void LowerColumnsPass(const ColumnsPlan& plan, const Target& target, size_t stage,
                      const ColumnsShape& shape, const ColumnsScratch& scratch, Lowered& lowered);
// Kernels that follow the partial results of a pass of that shape (columns/finish.cc).
void FinishColumns(const ColumnsPlan& plan, const Target& target, size_t stage,
                   const ColumnsShape& shape, const ColumnsScratch& scratch, Lowered& lowered);

}  // namespace kiln::compiler
