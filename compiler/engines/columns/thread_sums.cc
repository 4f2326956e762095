#include "compiler/engines/columns/thread_sums.h"

namespace kiln::compiler {

using graph::TensorId;
using tile::Block;
using tile::Expr;

void ThreadSums::Declare(Block& out) {
  KernelBuilder& b = f_.b;
  for (const size_t r : f_.order) {
    const DType type = f_.TypeOf(r);
    sums_[r] = b.Name("sum");
    out.push_back({tile::Alloc{sums_[r], type, tile::Space::kReg, f_.plan.lanes}});
    UnrolledLoop(b, out, "l", f_.plan.lanes, [&](Block& body, const Expr& lane) {
      body.push_back({tile::Store{sums_[r], lane, IdentityOf(f_.plan.reduce(r))}});
    });
    if (!f_.plan.HasMoment(r)) continue;
    counts_[r] = b.Name("count");
    out.push_back({tile::Alloc{counts_[r], type, tile::Space::kReg, 1}});
    out.push_back({tile::Store{counts_[r], b.Idx(0), tile::Float(0, type)}});
  }
  for (const size_t r : f_.order) {
    if (!f_.plan.IsShifted(f_.number, r)) continue;
    ReadShift(out, r);
    LeaveShift(out, r);
  }
}

// The first elements of the thread's columns, which all splits take.
void ThreadSums::ReadShift(Block& out, size_t r) {
  KernelBuilder& b = f_.b;
  const TensorId operand = f_.plan.reduce(r).inputs[0];
  const int count = f_.columns_of_thread();
  shifts_[r] = b.Name("shift");
  out.push_back({tile::Alloc{shifts_[r], f_.TypeOf(r), tile::Space::kReg, count}});
  UnrolledLoop(b, out, "l", count, [&](Block& body, const Expr& lane) {
    const Index at = IndexOfColumn(f_, columns_, lane);
    ValueScope values(b, body);
    const auto value_at = [&](const Index& index) {
      return tile::Cast(f_.TypeOf(r),
                        values.Value(operand, BroadcastIndex(b, f_.graph()[operand], index)));
    };
    const Expr first = value_at(at), other = value_at(OtherPlace(b, f_.row(), at));
    body.push_back({tile::Store{shifts_[r], lane, ShiftOf(b, body, first, other)}});
  });
}

// One split leaves the first elements for the kernel that wants sums of the elements themselves.
void ThreadSums::LeaveShift(Block& out, size_t r) const {
  KernelBuilder& b = f_.b;
  Block leave;
  UnrolledLoop(b, leave, "l", f_.columns_of_thread(), [&](Block& body, const Expr& lane) {
    body.push_back({tile::Store{f_.args.Scratch(f_.scratch.shifts.at(r), f_.TypeOf(r), false),
                                columns_.column + lane, Shift(r, lane)}});
  });
  Expr leaves = tile::And(tile::Op(ScalarOp::kEq, {f_.by(), b.Idx(0)}),
                          tile::Op(ScalarOp::kEq, {columns_.walker, b.Idx(0)}));
  if (f_.plan.across) leaves = tile::And(leaves, columns_.exists);
  out.push_back({tile::If{leaves, std::move(leave), {}}});
}

void ThreadSums::Add(Block& out, const Arrays& column_values,
                     const std::vector<LoadedPlace>& places) {
  std::map<size_t, Weights> weights;
  const auto more = static_cast<double>(places.size());
  for (const auto& [r, count] : counts_) {
    const DType type = f_.TypeOf(r);
    const Expr one = tile::Float(1, type), p = tile::Float(more, type);
    const Expr n = f_.b.Let(out, "n", Count(r));
    weights[r] = {f_.b.Let(out, "reciprocal", one / tile::Op(ScalarOp::kMax, {n, one})),
                  f_.b.Let(out, "weight", n * p / (n + p))};
  }
  EachLane(f_, column_values, out, places,
           [&](Block& body, LaneOfPlaces& at) { AddAtLane(body, at, weights); });
  for (const auto& [r, count] : counts_)
    out.push_back({tile::Store{count, f_.b.Idx(0), Count(r) + tile::Float(more, f_.TypeOf(r))}});
}

void ThreadSums::AddAtLane(Block& body, LaneOfPlaces& at,
                           const std::map<size_t, Weights>& weights) const {
  std::map<size_t, Expr> moments;  // what the places add to the moments of a sum
  for (const size_t r : f_.order) {
    Expr total = Sum(r, at.lane);
    if (f_.plan.IsMoment(r)) {
      total = total + moments.at(static_cast<size_t>(f_.plan.sum_of[r]));
    } else {
      const std::vector<Expr> values = ValuesOf(body, r, at);
      if (f_.plan.HasMoment(r)) {
        const Expr old = f_.b.Let(body, "old", total);
        const Growth growth = GrowthBy(body, r, values, old, weights.at(r));
        moments[r] = growth.moment;
        total = old + growth.sum;
      } else {
        for (const Expr& v : values) total = CombineTwo(f_.plan.reduce(r), total, v);
      }
    }
    body.push_back({tile::Store{sums_.at(r), at.lane, total}});
  }
}

// The values of a reduction's operand at all places.
std::vector<Expr> ThreadSums::ValuesOf(Block& body, size_t r, LaneOfPlaces& at) const {
  const TensorId operand = f_.plan.reduce(r).inputs[0];
  std::vector<Expr> values;
  for (size_t p = 0; p < at.scopes.size(); ++p) {
    const Index index = BroadcastIndex(f_.b, f_.graph()[operand], at.indices[p]);
    Expr value = tile::Cast(f_.TypeOf(r), at.scopes[p].Value(operand, index));
    if (shifts_.contains(r)) value = value - Shift(r, at.lane);
    values.push_back(f_.b.Let(body, "v", std::move(value)));
  }
  return values;
}

// A moment is of squared distances from the mean of all that the thread has seen. Values add their
// own, and those between the two means.
ThreadSums::Growth ThreadSums::GrowthBy(Block& out, size_t r, const std::vector<Expr>& values,
                                        const Expr& old, const Weights& weights) const {
  KernelBuilder& b = f_.b;
  Expr sum = values[0];
  for (size_t p = 1; p < values.size(); ++p) sum = sum + values[p];
  sum = b.Let(out, "of_places", sum);
  const auto count = static_cast<double>(values.size());
  const Expr mean = b.Let(out, "mean", sum * tile::Float(1 / count, f_.TypeOf(r)));
  const Expr between = b.Let(out, "between", mean - old * weights.reciprocal);
  Expr moment = between * weights.weight * between;
  if (values.size() > 1) {
    for (const Expr& v : values) {
      const Expr distance = b.Let(out, "distance", v - mean);
      moment = moment + distance * distance;
    }
  }
  return {sum, b.Let(out, "moment", moment)};
}

}  // namespace kiln::compiler
