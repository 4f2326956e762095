// MmaSlices: split-K. Each slice of k leaves its accumulators in a scratch buffer,
// [slice][batch][m][n with a padded pitch], and a second kernel adds the slices in order and runs
// the epilogue; or all slices add theirs to one buffer atomically, which a kernel before them
// clears.
#pragma once

#include "compiler/engines/contract_mma/context.h"
#include "compiler/engines/contraction/epilogue.h"

namespace kiln::compiler {

// n-neighbours of one row that a lane stores at once.
constexpr int kMmaLine = 8;

class MmaSlices {
 public:
  MmaSlices(const Group& group, const Target& target, const MmaContext& context)
      : group_(group), target_(target), x_(context) {}

  bool exist() const { return x_.plan.splits > 1; }
  // Makes the scratch buffer, and clears it where slices add to it.
  void Prepare(Lowered& lowered) const;
  // Stores kMmaLine accumulators from (m, n) on.
  void Store(tile::Block& out, const MmaBlock& block, const tile::Expr& m, const tile::Expr& n,
             const std::string& line);
  // Appends the second kernel.
  void Sum(const EpilogueAxes& axes, Lowered& lowered) const;

 private:
  bool is_ordered() const { return x_.plan.form == SplitForm::kOrdered; }
  int64_t pitch() const;
  int64_t elements() const { return x_.c.batch.size() * x_.c.m.size() * pitch(); }
  void Clear(Lowered& lowered) const;

  const Group& group_;
  const Target& target_;
  MmaContext x_;
  std::string buffer_ = {};
  tile::Expr pitch_arg_ = {}, slice_size_ = {};
};

}  // namespace kiln::compiler
