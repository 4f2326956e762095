// RowsTotals: how a team's partial results of its rows become the rows' results, which each of its
// threads then has in registers.
//
//   a lane's partial results → a thread's → a warp's, by shuffles → the team's, by shared memory
//
// Teams of which neighbouring threads have rows side by side go by shared memory alone.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/engines/rows/frame.h"

namespace kiln::compiler {

class RowsTotals {
 public:
  // A sum, and the squared distances from its mean.
  struct Joint {
    size_t sum, moment;
  };
  using Parts = std::map<size_t, std::string>;  // registers of reductions, by their places

  // `shared_allocs` is where shared memory is declared.
  RowsTotals(const RowsFrame& f, tile::Block& shared_allocs)
      : f_(f), plan_(f.plan), shape_(f.shape), b_(f.b), shared_allocs_(shared_allocs) {}

  DType TypeOf(size_t r) const { return AccumulatorType(f_.reduce(r)); }
  tile::Expr Combined(size_t r, tile::Expr a, tile::Expr b) const {
    return CombineTwo(f_.reduce(r), std::move(a), std::move(b));
  }

  // Declares partial results a lane, for each row, set to the identity.
  void DeclareParts(tile::Block& out, size_t r, Parts& parts);
  // Folds what the thread's lanes have.
  void FoldLanes(tile::Block& body, const RowsPlan::Stage& stage, const Parts& parts);
  // Combines what the team has. `turn`: in a block that walks, the number of tiles before.
  void Combine(tile::Block& body, const RowsPlan::Stage& stage, const std::optional<Joint>& joint,
               const tile::Expr& turn);

  // The total of the row in slot `u`, as far as it has been combined.
  tile::Expr Of(size_t r, const tile::Expr& u) const;
  // The sum of the row's elements from that of their distances from `shift`.
  void Unshift(tile::Block& out, size_t r, const tile::Expr& u, const tile::Expr& shift) const;
  const Parts& registers() const { return totals_; }

 private:
  void Set(tile::Block& out, size_t r, const tile::Expr& u, tile::Expr value) const;
  void SetJoint(tile::Block& out, const Joint& joint, const tile::Expr& u,
                const MomentPart& part) const;
  void FoldWarp(tile::Block& out, size_t r, const tile::Expr& u) const;
  void JoinLanes(tile::Block& out, const Joint& joint, const tile::Expr& u, int lanes,
                 double elements) const;
  void CombineSideBySide(tile::Block& body, const RowsPlan::Stage& stage);
  void LeaveWarps(tile::Block& body, size_t r, const tile::Expr& turn);
  void ShareTotals(tile::Block& body, const std::vector<size_t>& alone,
                   const std::optional<Joint>& joint, const tile::Expr& turn) const;
  void ShareJoint(tile::Block& out, const Joint& joint, const tile::Expr& u,
                  const std::function<tile::Expr(size_t, const tile::Expr&)>& of_warp) const;
  int64_t WarpSlots() const;
  tile::Expr FirstWarpSlot(const tile::Expr& turn) const;
  int BarrierTeam() const;

  const RowsFrame& f_;
  const RowsPlan& plan_;
  const RowsShape& shape_;
  KernelBuilder& b_;
  tile::Block& shared_allocs_;
  Parts totals_;  // the result for each row of the team
  Parts shared_;  // the same of each warp, in shared memory
};

}  // namespace kiln::compiler
