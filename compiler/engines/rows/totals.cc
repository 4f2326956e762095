#include "compiler/engines/rows/totals.h"

#include <algorithm>

namespace kiln::compiler {
namespace {

using tile::Block;
using tile::Expr;

constexpr int kWarp = 32;
// More warps than these are combined by shuffles, fewer one after the other.
constexpr int kFewWarps = 4;

}  // namespace

Expr RowsTotals::Of(size_t r, const Expr& u) const {
  return tile::Load(totals_.at(r), TypeOf(r), u);
}

void RowsTotals::Set(Block& out, size_t r, const Expr& u, Expr value) const {
  out.push_back({tile::Store{totals_.at(r), u, std::move(value)}});
}

void RowsTotals::Unshift(Block& out, size_t r, const Expr& u, const Expr& shift) const {
  Set(out, r, u, Unshifted(Of(r, u), shift, b_.Arg("length", plan_.row.length)));
}

void RowsTotals::SetJoint(Block& out, const Joint& joint, const Expr& u,
                          const MomentPart& part) const {
  Set(out, joint.sum, u, part.sum);
  Set(out, joint.moment, u, part.moment);
}

void RowsTotals::DeclareParts(Block& out, size_t r, Parts& parts) {
  parts[r] = b_.Name("part");
  const int size = shape_.rows * plan_.lanes;
  out.push_back({tile::Alloc{parts[r], TypeOf(r), tile::Space::kReg, size}});
  const Expr identity = IdentityOf(f_.reduce(r));
  UnrolledLoop(b_, out, "i", size, [&](Block& body, const Expr& i) {
    body.push_back({tile::Store{parts[r], i, identity}});
  });
}

void RowsTotals::FoldLanes(Block& body, const RowsPlan::Stage& stage, const Parts& parts) {
  for (const size_t r : stage.reduces) {
    totals_[r] = b_.Name("total");
    body.push_back({tile::Alloc{totals_[r], TypeOf(r), tile::Space::kReg, shape_.rows}});
  }
  UnrolledLoop(b_, body, "u", shape_.rows, [&](Block& out, const Expr& u) {
    for (const size_t r : stage.reduces) {
      const Expr first = u * b_.Idx(plan_.lanes);
      Set(out, r, u, tile::Load(parts.at(r), TypeOf(r), first));
      if (plan_.lanes == 1) continue;
      UnrolledLoop(b_, out, "l", plan_.lanes - 1, [&](Block& of_lane, const Expr& l) {
        const Expr next = tile::Load(parts.at(r), TypeOf(r), first + l + b_.Idx(1));
        Set(of_lane, r, u, Combined(r, Of(r, u), next));
      });
    }
  });
}

void RowsTotals::Combine(Block& body, const RowsPlan::Stage& stage,
                         const std::optional<Joint>& joint, const Expr& turn) {
  if (shape_.side_by_side) return CombineSideBySide(body, stage);
  std::vector<size_t> alone = stage.reduces;
  if (joint) std::erase(alone, joint->sum);
  UnrolledLoop(b_, body, "u", shape_.rows, [&](Block& out, const Expr& u) {
    for (const size_t r : alone) FoldWarp(out, r, u);
    if (joint)
      JoinLanes(out, *joint, u, std::min(shape_.team, kWarp),
                static_cast<double>(shape_.vectors) * plan_.lanes);
  });
  if (shape_.team <= kWarp) return;
  for (const size_t r : stage.reduces) LeaveWarps(body, r, turn);
  if (joint) LeaveWarps(body, joint->moment, turn);
  body.push_back({tile::Barrier{BarrierTeam()}});
  ShareTotals(body, alone, joint, turn);
}

void RowsTotals::FoldWarp(Block& out, size_t r, const Expr& u) const {
  for (int mask = std::min(shape_.team, kWarp) / 2; mask > 0; mask /= 2)
    Set(out, r, u, Combined(r, Of(r, u), tile::ShuffleXor(Of(r, u), mask)));
}

// So many neighbouring lanes, with so many elements each.
void RowsTotals::JoinLanes(Block& out, const Joint& joint, const Expr& u, int lanes,
                           double elements) const {
  const MomentPart part = {Of(joint.sum, u), Of(joint.moment, u)};
  SetJoint(out, joint, u, JoinedLanes(b_, out, part, lanes, elements));
}

// Half of each team adds what the other half has, and so on; a slot a thread.
void RowsTotals::CombineSideBySide(Block& body, const RowsPlan::Stage& stage) {
  if (shape_.team == 1) return;
  for (const size_t r : stage.reduces) {
    shared_[r] = b_.Name("team");
    shared_allocs_.push_back(
        {tile::Alloc{shared_[r], TypeOf(r), tile::Space::kShared, shape_.threads}});
    body.push_back({tile::Store{shared_[r], f_.tx(), Of(r, b_.Idx(0))}});
  }
  for (int half = shape_.team / 2; half > 0; half /= 2) {
    body.push_back({tile::Barrier{}});
    Block sums;
    for (const size_t r : stage.reduces) {
      const auto of_thread = [&](const Expr& thread) {
        return tile::Load(shared_[r], TypeOf(r), thread);
      };
      const Expr other = of_thread(f_.tx() + b_.Idx(half * f_.teams()));
      sums.push_back({tile::Store{shared_[r], f_.tx(), Combined(r, of_thread(f_.tx()), other)}});
    }
    body.push_back({tile::If{tile::Lt(f_.lane, b_.Idx(half)), std::move(sums), {}}});
  }
  body.push_back({tile::Barrier{}});
  for (const size_t r : stage.reduces)
    Set(body, r, b_.Idx(0), tile::Load(shared_[r], TypeOf(r), f_.TeamOfThread()));
}

// The first lane of each warp leaves its rows' totals in shared memory.
void RowsTotals::LeaveWarps(Block& body, size_t r, const Expr& turn) {
  shared_[r] = b_.Name("warps");
  shared_allocs_.push_back({tile::Alloc{shared_[r], TypeOf(r), tile::Space::kShared,
                                        WarpSlots() * (f_.walks() ? 2 : 1)}});
  Block lead;
  UnrolledLoop(b_, lead, "u", shape_.rows, [&](Block& out, const Expr& u) {
    const Expr slot = FirstWarpSlot(turn) + f_.tx() / b_.Idx(kWarp) * b_.Idx(shape_.rows) + u;
    out.push_back({tile::Store{shared_[r], slot, Of(r, u)}});
  });
  const Expr is_first = tile::Op(ScalarOp::kEq, {f_.tx() % b_.Idx(kWarp), b_.Idx(0)});
  body.push_back({tile::If{is_first, std::move(lead), {}}});
}

int64_t RowsTotals::WarpSlots() const { return int64_t{shape_.threads} / kWarp * shape_.rows; }

// Blocks that walk use two halves in turn: a warp may be a tile ahead of those that still read.
Expr RowsTotals::FirstWarpSlot(const Expr& turn) const {
  return f_.walks() ? turn % b_.Idx(2) * b_.Idx(WarpSlots()) : b_.Idx(0);
}

// Teams that walk wait for themselves alone. They take all barriers that a block can have, so
// that other blocks, of which many are resident, have the one.
int RowsTotals::BarrierTeam() const {
  const bool own = f_.walks() && f_.teams() > 1 && f_.teams() <= tile::Barrier::kMostTeams;
  return own ? shape_.team : 0;
}

// All threads of a team get its totals.
void RowsTotals::ShareTotals(Block& body, const std::vector<size_t>& alone,
                             const std::optional<Joint>& joint, const Expr& turn) const {
  const int warps = shape_.team / kWarp;
  const bool few = warps <= kFewWarps;
  const Expr team = f_.tx() / b_.Idx(shape_.team) * b_.Idx(warps);
  UnrolledLoop(b_, body, "u", shape_.rows, [&](Block& out, const Expr& u) {
    const auto of_warp = [&](size_t r, const Expr& warp) {
      const Expr slot = FirstWarpSlot(turn) + (team + warp) * b_.Idx(shape_.rows) + u;
      return tile::Load(shared_.at(r), TypeOf(r), slot);
    };
    const Expr first = few ? b_.Idx(0) : f_.tx() % b_.Idx(warps);
    for (const size_t r : alone) {
      Set(out, r, u, of_warp(r, first));
      for (int w = 1; few && w < warps; ++w)
        Set(out, r, u, Combined(r, Of(r, u), of_warp(r, b_.Idx(w))));
      for (int mask = few ? 0 : warps / 2; mask > 0; mask /= 2)
        Set(out, r, u, Combined(r, Of(r, u), tile::ShuffleXor(Of(r, u), mask)));
    }
    if (joint) ShareJoint(out, *joint, u, of_warp);
  });
}

void RowsTotals::ShareJoint(Block& out, const Joint& joint, const Expr& u,
                            const std::function<Expr(size_t, const Expr&)>& of_warp) const {
  const int warps = shape_.team / kWarp;
  const double elements = static_cast<double>(shape_.vectors) * plan_.lanes * kWarp;
  const auto part = [&](const Expr& warp) {
    return MomentPart{b_.Let(out, "of_warp", of_warp(joint.sum, warp)),
                      b_.Let(out, "of_warp", of_warp(joint.moment, warp))};
  };
  if (warps > kFewWarps) {
    SetJoint(out, joint, u, part(f_.tx() % b_.Idx(warps)));
    return JoinLanes(out, joint, u, warps, elements);
  }
  std::vector<MomentPart> all;
  for (int w = 0; w < warps; ++w) all.push_back(part(b_.Idx(w)));
  SetJoint(out, joint, u, Joined(b_, out, std::move(all), elements));
}

}  // namespace kiln::compiler
