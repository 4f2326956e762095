#include "compiler/engines/columns/block_sums.h"

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

constexpr int kWarp = 32;

}  // namespace

using tile::Block;
using tile::Expr;

void BlockSums::Publish(Block& out, size_t r) {
  if (f_.plan.IsMoment(r)) Correct(out, r, static_cast<size_t>(f_.plan.sum_of[r]));
  const Expr total = f_.plan.across ? FoldWalkers(out, r) : FoldBlock(out, r);
  const auto parts = [&] { return f_.args.Scratch(f_.scratch.parts[r], f_.TypeOf(r), false); };
  const Expr row = f_.by() * f_.args.Arg("columns", f_.plan.columns());
  Block store;
  Expr stores;
  if (f_.plan.across) {
    const Expr column = columns_.first + f_.tx();
    store.push_back({tile::Store{parts(), row + column, total}});
    stores = tile::And(tile::Lt(f_.tx(), f_.b.Idx(int64_t{f_.shape.width} * f_.plan.lanes)),
                       tile::Lt(column, columns_.end));
  } else {
    store.push_back({tile::Store{parts(), row + columns_.column, total}});
    stores = tile::Op(ScalarOp::kEq, {f_.tx(), f_.b.Idx(0)});
  }
  out.push_back({tile::If{stores, std::move(store), {}}});
  if (f_.plan.HasMoment(r)) ShareMean(out, r, total);
}

void BlockSums::ShareMean(Block& out, size_t r, const Expr& total) {
  const DType type = f_.TypeOf(r);
  const Expr n = tile::Op(ScalarOp::kMax,
                          {tile::Cast(type, f_.args.ElementsOf(f_.by())), tile::Float(1, type)});
  const Expr mean = f_.b.Let(out, "block_mean", total / n);
  means_[r] = f_.b.Name("means");
  const int64_t pitch = f_.plan.across ? int64_t{f_.shape.width} * f_.plan.lanes : 1;
  if (!f_.plan.across) {
    out.push_back({tile::Alloc{means_[r], type, tile::Space::kReg, 1}});
    out.push_back({tile::Store{means_[r], f_.b.Idx(0), mean}});
    return;
  }
  out.push_back({tile::Alloc{means_[r], type, tile::Space::kShared, pitch}});
  Block store;
  store.push_back({tile::Store{means_[r], f_.tx(), mean}});
  out.push_back({tile::If{tile::Lt(f_.tx(), f_.b.Idx(pitch)), std::move(store), {}}});
  out.push_back({tile::Barrier{}});
}

// Squared distances from the thread's means become those from the block's.
void BlockSums::Correct(Block& out, size_t moment, size_t sum) const {
  const DType type = f_.TypeOf(moment);
  const Expr n = f_.b.Let(out, "n", sums_.Count(sum));
  const Expr one = tile::Float(1, type);
  const Expr reciprocal = f_.b.Let(out, "reciprocal", one / tile::Op(ScalarOp::kMax, {n, one}));
  UnrolledLoop(f_.b, out, "l", f_.plan.lanes, [&](Block& body, const Expr& lane) {
    const Expr slot = f_.plan.across ? columns_.lane * f_.b.Idx(f_.plan.lanes) + lane : f_.b.Idx(0);
    const Expr distance =
        f_.b.Let(body, "distance",
                 sums_.Sum(sum, lane) * reciprocal - tile::Load(means_.at(sum), type, slot));
    body.push_back({tile::Store{sums_.registers(moment), lane,
                                sums_.Sum(moment, lane) + n * distance * distance}});
  });
}

// A shared array that other threads may still read.
const std::string& BlockSums::Shared(Block& out, DType type, int64_t size) {
  if (shared_.contains(type)) {
    out.push_back({tile::Barrier{}});
  } else {
    shared_[type] = f_.b.Name("walkers");
    out.push_back({tile::Alloc{shared_[type], type, tile::Space::kShared, size}});
  }
  return shared_[type];
}

Expr BlockSums::Fold(Block& out, size_t r, const std::string& from, const Expr& first, int count,
                     int pitch) const {
  const std::string total = f_.b.Name("total");
  const DType type = f_.TypeOf(r);
  out.push_back({tile::Alloc{total, type, tile::Space::kReg, 1}});
  out.push_back({tile::Store{total, f_.b.Idx(0), tile::Load(from, type, first)}});
  const Expr now = tile::Load(total, type, f_.b.Idx(0));
  if (count > 1) {
    UnrolledLoop(f_.b, out, "w", count - 1, [&](Block& body, const Expr& w) {
      const Expr next = tile::Load(from, type, first + (w + f_.b.Idx(1)) * f_.b.Idx(pitch));
      body.push_back({tile::Store{total, f_.b.Idx(0), CombineTwo(f_.plan.reduce(r), now, next)}});
    });
  }
  return now;
}

// The total of column `tx` of the block's.
Expr BlockSums::FoldWalkers(Block& out, size_t r) {
  const int pitch = f_.shape.width * f_.plan.lanes;
  const std::string& shared = Shared(out, f_.TypeOf(r), int64_t{f_.shape.walkers} * pitch);
  WideCopy(out, f_.TypeOf(r), shared,
           f_.b.Let(out, "slot",
                    columns_.walker * f_.b.Idx(pitch) + columns_.lane * f_.b.Idx(f_.plan.lanes)),
           sums_.registers(r), f_.b.Idx(0), f_.plan.lanes);
  out.push_back({tile::Barrier{}});
  const Expr column = tile::Op(ScalarOp::kMin, {f_.tx(), f_.b.Idx(pitch - 1)});
  return Fold(out, r, shared, f_.b.Let(out, "column_of_block", column), f_.shape.walkers, pitch);
}

// The total of the block's one column, for all threads.
Expr BlockSums::FoldBlock(Block& out, size_t r) {
  const Expr mine = Fold(out, r, sums_.registers(r), f_.b.Idx(0), f_.plan.lanes, 1);
  const std::string& regs = mine->name;
  for (int mask = kWarp / 2; mask > 0; mask /= 2)
    out.push_back({tile::Store{regs, f_.b.Idx(0),
                               CombineTwo(f_.plan.reduce(r), mine, tile::ShuffleXor(mine, mask))}});
  const int warps = f_.shape.threads / kWarp;
  const std::string& shared = Shared(out, f_.TypeOf(r), warps);
  Block lead;
  lead.push_back({tile::Store{shared, f_.tx() / f_.b.Idx(kWarp), mine}});
  out.push_back({tile::If{
      tile::Op(ScalarOp::kEq, {f_.tx() % f_.b.Idx(kWarp), f_.b.Idx(0)}), std::move(lead), {}}});
  out.push_back({tile::Barrier{}});
  return Fold(out, r, shared, f_.b.Idx(0), warps, 1);
}

}  // namespace kiln::compiler
