// Between two passes of the columns engine: the partial results of all splits become totals, in a
// fixed order, and these become what later passes want and what is a result of its own (a mean, a
// running mean). A block has some columns and up to 128 walkers over their partial results.
#include <algorithm>
#include <bit>
#include <functional>

#include "compiler/engines/columns/engine.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Block;
using tile::Expr;

constexpr int kMostWalkers = 128;
constexpr int kLeastColumns = 8;  // of a block: a sector of memory
constexpr int kThreads = 256;     // of a block, unless there are many walkers
constexpr int kUnroll = 4;        // partial results that a walker reads at a time
constexpr int64_t kMostHeld = 8;  // that it holds in registers

class Finish {
 public:
  Finish(const ColumnsPlan& plan, const Target& target, size_t stage, const ColumnsShape& shape,
         const ColumnsScratch& scratch)
      : plan_(plan),
        stage_(stage),
        order_(plan.InOrder(stage)),
        shape_(shape),
        scratch_(scratch),
        walkers_(static_cast<int>(
            std::min<uint64_t>(kMostWalkers, std::bit_ceil(static_cast<uint64_t>(shape.splits))))),
        columns_(std::max(kLeastColumns, kThreads / walkers_)),
        b_(plan.chain.row.group, target,
           fmt::format("columns, after pass {}: walkers={}, columns={}", stage, walkers_,
                       columns_)),
        args_(b_, plan, shape),
        t_(b_.index_type()) {
    for (const char* reserved : {"bx", "tx"}) b_.Name(reserved);
  }

  void Lower(Lowered& lowered) {
    const int threads = walkers_ * columns_;
    const int64_t grid = CeilDiv(plan_.columns(), int64_t{columns_});
    Block body;
    const Expr tx = tile::Var("tx", t_);
    lane_ = b_.Let(body, "lane", tx % b_.Idx(columns_));
    walker_ = b_.Let(body, "walker", tx / b_.Idx(columns_));
    count_ = args_.Arg("columns", plan_.columns());
    column_ = b_.Let(body, "column", tile::Var("bx", t_) * b_.Idx(columns_) + lane_);
    existing_ = b_.Let(body, "existing", tile::Op(ScalarOp::kMin, {column_, count_ - b_.Idx(1)}));
    HoldParts(body);
    const auto moments = std::ranges::find_if(order_, [&](size_t r) { return plan_.IsMoment(r); });
    Combine(body, {order_.begin(), moments});
    if (moments != order_.end()) Combine(body, {moments, order_.end()});
    Block results;
    StoreResults(results);
    const Expr stores =
        tile::And(tile::Op(ScalarOp::kEq, {walker_, b_.Idx(0)}), tile::Lt(column_, count_));
    body.push_back({tile::If{stores, std::move(results), {}}});
    b_.Finish(BlockAndThread(t_, args_.Arg("blocks", grid), threads, std::move(body)), {grid, 1, 1},
              threads, lowered);
  }

 private:
  const graph::Graph& g() const { return plan_.graph(); }
  DType TypeOf(size_t r) const { return AccumulatorType(plan_.reduce(r)); }
  Expr Sum(size_t r) const { return tile::Load(sums_.at(r), TypeOf(r), b_.Idx(0)); }

  // The totals of some reductions, in `shared` of the first walker.
  void Combine(Block& out, const std::vector<size_t>& reduces) {
    for (const size_t r : reduces) {
      sums_[r] = b_.Name("sum");
      shared_[r] = b_.Name("walkers");
      out.push_back({tile::Alloc{sums_[r], TypeOf(r), tile::Space::kReg, 1}});
      out.push_back({tile::Store{sums_[r], b_.Idx(0), IdentityOf(plan_.reduce(r))}});
      out.push_back(
          {tile::Alloc{shared_[r], TypeOf(r), tile::Space::kShared, int64_t{walkers_} * columns_}});
    }
    const auto add = [&](Block& body, const std::vector<Expr>& splits) {
      std::vector<Expr> parts;  // read all, then combine in order
      for (const Expr& split : splits)
        for (const size_t r : reduces) parts.push_back(Part(body, r, split));
      for (size_t i = 0; i < parts.size(); ++i) {
        const size_t r = reduces[i % reduces.size()];
        body.push_back(
            {tile::Store{sums_[r], b_.Idx(0), CombineTwo(plan_.reduce(r), Sum(r), parts[i])}});
      }
    };
    if (Holds())
      AddHeld(out, reduces);
    else
      UnrolledWalk(b_, out, b_.Idx(0), args_.Arg("splits", shape_.splits), walkers_, walker_,
                   kUnroll, add);
    const Expr slot = b_.Let(out, "slot", walker_ * b_.Idx(columns_) + lane_);
    for (const size_t r : reduces) out.push_back({tile::Store{shared_[r], slot, Sum(r)}});
    out.push_back({tile::Barrier{}});
    for (int half = walkers_ / 2; half > 0; half /= 2) {
      Block fold;
      for (const size_t r : reduces) {
        const Expr other =
            tile::Load(shared_[r], TypeOf(r), slot + b_.Idx(int64_t{half} * columns_));
        fold.push_back({tile::Store{
            shared_[r], slot,
            CombineTwo(plan_.reduce(r), tile::Load(shared_[r], TypeOf(r), slot), other)}});
      }
      out.push_back({tile::If{tile::Lt(walker_, b_.Idx(half)), std::move(fold), {}}});
      out.push_back({tile::Barrier{}});
    }
    for (const size_t r : reduces)
      totals_[r] = b_.Let(out, "total", tile::Load(shared_[r], TypeOf(r), lane_));
  }

  // Few partial results are read all at once, before the first is added.
  int64_t Turns() const { return CeilDiv(shape_.splits, int64_t{walkers_}); }
  bool Holds() const { return Turns() <= kMostHeld; }
  void HoldParts(Block& out) {
    if (!Holds()) return;
    for (const size_t r : order_) {
      held_[r] = b_.Name("held");
      out.push_back({tile::Alloc{held_[r], TypeOf(r), tile::Space::kReg, Turns()}});
    }
    EachTurn(out, [&](Block& body, const Expr& k, const Expr& split) {
      const Expr at = b_.Let(body, "at", split * count_ + existing_);
      for (const size_t r : order_)
        body.push_back({tile::Store{
            held_[r], k,
            tile::Load(args_.Scratch(scratch_.parts[r], TypeOf(r), true), TypeOf(r), at)}});
    });
  }
  void EachTurn(Block& out, const std::function<void(Block&, const Expr&, const Expr&)>& emit) {
    const std::string k = b_.Name("k");
    Block loop, inside;
    const Expr turn = tile::Var(k, t_);
    const Expr split = b_.Let(loop, "split", turn * b_.Idx(walkers_) + walker_);
    emit(inside, turn, split);
    loop.push_back(
        {tile::If{tile::Lt(split, args_.Arg("splits", shape_.splits)), std::move(inside), {}}});
    out.push_back({tile::For{k, t_, b_.Idx(Turns()), tile::Bind::kUnroll, std::move(loop)}});
  }
  void AddHeld(Block& out, const std::vector<size_t>& reduces) {
    EachTurn(out, [&](Block& body, const Expr& k, const Expr& split) {
      for (const size_t r : reduces) {
        Expr part = tile::Load(held_[r], TypeOf(r), k);
        if (plan_.IsMoment(r)) {
          const auto sum = static_cast<size_t>(plan_.sum_of[r]);
          part = Corrected(body, r, split, part, tile::Load(held_[sum], TypeOf(r), k));
        }
        body.push_back(
            {tile::Store{sums_[r], b_.Idx(0), CombineTwo(plan_.reduce(r), Sum(r), part)}});
      }
    });
  }

  // A split's partial result; of squared distances, those from the mean of all.
  Expr Part(Block& out, size_t r, const Expr& split) {
    const Expr at = b_.Let(out, "at", split * count_ + existing_);
    const Expr part = b_.Let(
        out, "part", tile::Load(args_.Scratch(scratch_.parts[r], TypeOf(r), true), TypeOf(r), at));
    if (!plan_.IsMoment(r)) return part;
    const DType type = TypeOf(r);
    const auto sum = static_cast<size_t>(plan_.sum_of[r]);
    return Corrected(out, r, split, part,
                     tile::Load(args_.Scratch(scratch_.parts[sum], type, true), type, at));
  }
  Expr Corrected(Block& out, size_t r, const Expr& split, const Expr& part, const Expr& sum) {
    const DType type = TypeOf(r);
    const Expr n = b_.Let(out, "n", tile::Cast(type, args_.ElementsOf(split)));
    const Expr own = sum / tile::Op(ScalarOp::kMax, {n, tile::Float(1, type)});
    const Expr all = totals_.at(static_cast<size_t>(plan_.sum_of[r])) /
                     tile::Cast(type, args_.Arg("length", plan_.chain.row.length));
    const Expr distance = b_.Let(out, "distance", own - all);
    return part + n * distance * distance;
  }

  // The total of the elements themselves.
  Expr OfElements(size_t r) {
    const auto shift = scratch_.shifts.find(r);
    if (shift == scratch_.shifts.end()) return totals_.at(r);
    const Expr by = tile::Load(args_.Scratch(shift->second, TypeOf(r), true), TypeOf(r), existing_);
    return Unshifted(totals_.at(r), by, args_.Arg("length", plan_.chain.row.length));
  }

  void StoreResults(Block& out) {
    ValueScope values(b_, out);
    const Index kept =
        UnravelDims(b_, out, plan_.chain.row, plan_.chain.row.kept, existing_, 1, "k");
    const auto bind = [&](size_t r, const Expr& total) {
      const TensorId result = plan_.reduce(r).outputs[0];
      values.Bind(result, BroadcastIndex(b_, g()[result], kept),
                  RoundThrough(g()[result].dtype, total));
    };
    const auto& stages = plan_.chain.stages;
    for (size_t s = 0; s < stage_; ++s)
      for (const size_t r : stages[s].reduces)
        bind(r,
             tile::Load(args_.Scratch(scratch_.totals[r], TypeOf(r), true), TypeOf(r), existing_));
    std::map<size_t, Expr> all;
    for (const size_t r : order_) all[r] = b_.Let(out, "all", OfElements(r));
    for (const size_t r : order_) bind(r, all.at(r));
    const bool is_last = stage_ + 2 == stages.size();
    if (!is_last)
      for (const size_t r : order_)
        out.push_back(
            {tile::Store{args_.Scratch(scratch_.totals[r], TypeOf(r), false), column_, all.at(r)}});
    // All that the next pass wants, operands too: they may be overwritten by the results.
    for (const TensorId id : stages[stage_ + 1].row_values) {
      const Expr value = values.Value(id, BroadcastIndex(b_, g()[id], kept));
      out.push_back(
          {tile::Store{args_.Scratch(scratch_.values.at(id), value->type, false), column_, value}});
    }
    if (!is_last) return;
    std::vector<Expr> results;
    for (const TensorId y : plan_.chain.row_outputs)
      results.push_back(
          tile::Cast(g()[y].dtype, values.Value(y, BroadcastIndex(b_, g()[y], kept))));
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorId y = plan_.chain.row_outputs[i];
      out.push_back(
          {tile::Store{b_.Pointer(y), b_.Offset(y, BroadcastIndex(b_, g()[y], kept)), results[i]}});
    }
  }

  const ColumnsPlan& plan_;
  const size_t stage_;
  const std::vector<size_t> order_;
  const ColumnsShape& shape_;
  const ColumnsScratch& scratch_;
  const int walkers_, columns_;
  KernelBuilder b_;
  ColumnsParameters args_;
  const DType t_;
  Expr lane_, walker_, count_, column_, existing_;
  std::map<size_t, std::string> sums_, shared_;  // registers and shared memory of reductions
  std::map<size_t, std::string> held_;           // registers of partial results
  std::map<size_t, Expr> totals_;
};

}  // namespace

void FinishColumns(const ColumnsPlan& plan, const Target& target, size_t stage,
                   const ColumnsShape& shape, const ColumnsScratch& scratch, Lowered& lowered) {
  Finish(plan, target, stage, shape, scratch).Lower(lowered);
}

}  // namespace kiln::compiler
