// The kernels of the ctc engine that walk all symbols of a frame.
#include <cmath>

#include "compiler/engines/ctc/kernels.h"

namespace kiln::compiler {
namespace {

using tile::Block;
using tile::Expr;
using Cell = CtcKernel::Cell;

constexpr int64_t kWarp = 32;

Expr Equals(const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kEq, {a, b}); }
Expr Exp(const Expr& x) { return tile::Op(ScalarOp::kExp, {x}); }

class GradientKernel {
 public:
  explicit GradientKernel(const CtcProblem& p) : p_(p), k_(p, "gradient"), b_(k_.b()) {}

  void Lower(Lowered& lowered) {
    LowerCtcFrames(
        k_, WarpsOfFrame(), [&](Block& out, const CtcFrame& at) { Emit(out, at); }, lowered);
  }

 private:
  // Symbols of the path are read and written again, which is cheap as long as the frames that are
  // on their way fit into the L2: the fewer frames, the more symbols may each have.
  int WarpsOfFrame() const {
    constexpr int64_t kRegisters = 40;  // of a thread
    const Target& target = p_.target;
    const int64_t threads =
        target.multiprocessors * (target.registers_per_multiprocessor / kRegisters);
    int warps = 1;
    while (warps < kCtcBlockWarps &&
           threads / (kWarp * warps) * 2 * p_.symbols * SizeOf(p_.type) > target.l2_bytes / 2)
      warps *= 2;
    return warps;
  }

  void Emit(Block& out, const CtcFrame& at) {
    Begin(out, at);
    StoreAll(out, at);
    // Symbols of the path are written again, by other lanes.
    if (p_.on_gpu()) out.push_back({tile::Barrier{.team = static_cast<int>(at.lanes)}});
    StoreBlank(out, at);
    if (p_.label > 0) StoreSymbols(out, at);
  }

  void Begin(Block& out, const CtcFrame& at) {
    states_ = b_.Let(out, "path", k_.Read(kCtcStates, at.n));
    const Expr input = tile::Cast(p_.index, k_.Integer(out, p_.input_lengths, at.n));
    active_ =
        b_.Let(out, "active",
               tile::And(tile::Op(ScalarOp::kGt, {states_, tile::Int(0)}), tile::Lt(at.t, input)));
    row_ = b_.Let(out, "row", at.t * k_.Samples() + at.n);
    const auto when_active = [&](const char* name, const Expr& value) {
      return b_.Let(out, name, tile::Select(active_, value, k_.Number(0)));
    };
    const Expr total = at.n * b_.Idx(2);
    total_ = when_active("total", k_.Read(kCtcTotals, total));
    const Expr backward = k_.Frames() * k_.Samples();
    shift_ =
        when_active("shift", k_.Read(kCtcOffsets, row_) + k_.Read(kCtcOffsets, backward + row_) -
                                 k_.Read(kCtcTotals, total + b_.Idx(1)));
    if (p_.attrs.softmax) {
      largest_ = when_active("largest", k_.Read(kCtcSoftmax, row_ * b_.Idx(2)));
      log_sum_ = when_active("log_sum", k_.Read(kCtcSoftmax, row_ * b_.Idx(2) + b_.Idx(1)));
    }
    // P is neither 0 nor NaN.
    exists_ = b_.Let(out, "is_real", tile::Op(ScalarOp::kGt, {total_, k_.NegInf()}));
  }

  Expr Probability(const Expr& x) const {
    const Expr value = tile::Cast(p_.type, x);
    return p_.attrs.softmax ? Exp(value - largest_ - log_sum_) : value;
  }
  Expr OrNan(const Expr& value) const {
    return tile::Select(exists_, value, k_.Number(std::nan("")));
  }

  tile::Stmt Store(const CtcFrame& at, const Expr& k, const Expr& value) {
    return {tile::Store{b_.Pointer(p_.gradients), b_.Offset(p_.gradients, {at.t, at.n, k}),
                        tile::Cast(p_.group.graph[p_.gradients].dtype, value)}};
  }

  // As if no path came through any symbol; frames without a path have what they are to have.
  void StoreAll(Block& out, const CtcFrame& at) {
    const Expr kept = Equals(states_, tile::Int(0));
    const auto value_at = [&](Block& inside, const Expr& k) {
      const Expr y = Probability(k_.Prob(inside, at.t, at.n, k));
      Expr fill = k_.Number(0);
      if (p_.before != graph::kAbsent) {
        ValueScope values(b_, inside);
        const Expr old =
            values.Value(p_.before, BroadcastIndex(b_, p_.group.graph[p_.before], {at.t, at.n, k}));
        fill = tile::Select(kept, tile::Cast(p_.type, old), fill);
      }
      return b_.Let(inside, "value", tile::Select(active_, OrNan(y), fill));
    };
    k_.Batches(out, "k", k_.Symbols(), at.lane, at.lanes, k_.SymbolsAtATime(at.lanes), value_at,
               [&](Block& inside, const std::vector<CtcKernel::Item>& items) {
                 for (const CtcKernel::Item& item : items) {
                   Block store;
                   store.push_back(Store(at, item.at, item.value));
                   const Expr writes = tile::And(at.exists, item.inside);
                   inside.push_back({tile::If{writes, std::move(store), {}}});
                 }
               });
  }

  // The share of the paths that are in state s.
  Expr Share(const Expr& s) {
    const Expr at = row_ * k_.States() + s, backward = k_.Frames() * k_.Samples() * k_.States();
    const Expr both = k_.Read(kCtcPaths, at) + k_.Read(kCtcPaths, backward + at);
    return Exp(both - total_ + shift_);
  }

  // At a symbol that the paths come through.
  void StoreThrough(Block& out, const CtcFrame& at, const Expr& k, const Expr& share) {
    const Expr x = b_.Let(out, "logit", k_.Prob(out, at.t, at.n, k));
    const Expr y = b_.Let(out, "y", Probability(x));
    const Expr none = Equals(share, k_.Number(0));
    const Expr of_probability =
        tile::Select(none, k_.Number(0), tile::Op(ScalarOp::kNeg, {share}) / y);
    out.push_back(Store(at, k, OrNan(p_.attrs.softmax ? y - share : of_probability)));
  }

  Expr LabelsOfPath(Block& out) {
    const Expr states = tile::Select(active_, states_, tile::Int(0));
    return b_.Let(out, "labels", tile::Cast(p_.index, states) / b_.Idx(2));
  }
  Expr StartOf(Block& out, const CtcFrame& at) {
    return b_.Let(out, "start", k_.Read(kCtcStarts, at.n));
  }

  // States of even number, and labels that are the blank.
  void StoreBlank(Block& out, const CtcFrame& at) {
    const Expr labels = LabelsOfPath(out);
    const Expr start = StartOf(out, at);
    const Cell sum = k_.NewCell(out, "blank", k_.Number(0));
    const Expr count =
        b_.Let(out, "blanks",
               tile::Select(tile::And(active_, at.first_warp), labels + b_.Idx(1), b_.Idx(0)));
    k_.Strided(out, "j", count, at.lane, p_.lanes(), [&](Block& inside, const Expr& j) {
      inside.push_back(sum.Set(sum.Get() + Share(j * b_.Idx(2))));
      if (p_.label == 0) return;
      const Expr is_label = b_.Let(inside, "is_label", tile::Lt(j, labels));
      const Expr symbol = k_.LabelIf(inside, is_label, start, j);
      const Expr is_blank = tile::And(is_label, Equals(symbol, tile::Int(0)));
      Block odd;
      odd.push_back(sum.Set(sum.Get() + Share(j * b_.Idx(2) + b_.Idx(1))));
      inside.push_back({tile::If{is_blank, std::move(odd), {}}});
    });
    k_.CombineLanes(out, sum, ScalarOp::kAdd);
    Block store;
    StoreThrough(store, at, b_.Idx(0), sum.Get());
    const Expr writes = tile::And(tile::And(at.exists, active_), Equals(at.lane, b_.Idx(0)));
    out.push_back({tile::If{writes, std::move(store), {}}});
  }

  // Each other symbol by the lane of its first label, in the order of its labels.
  void StoreSymbols(Block& out, const CtcFrame& at) {
    const Expr labels = LabelsOfPath(out);
    const Expr start = StartOf(out, at);
    const auto link = [&](const Expr& i) { return (at.n * k_.Label() + i) * b_.Idx(2); };
    k_.Strided(out, "i", labels, at.lane, at.lanes, [&](Block& inside, const Expr& i) {
      const Expr count = b_.Let(inside, "count", k_.Read(kCtcLinks, link(i) + b_.Idx(1)));
      Block first;
      const Cell sum = k_.NewCell(first, "sum", k_.Number(0)),
                 label = k_.NewCell(first, "label_at", tile::Cast(DType::kI32, i));
      k_.Loop(first, "q", tile::Cast(p_.index, count), [&](Block& each, const Expr&) {
        const Expr j = b_.Let(each, "of", tile::Cast(p_.index, label.Get()));
        each.push_back(sum.Set(sum.Get() + Share(j * b_.Idx(2) + b_.Idx(1))));
        each.push_back(label.Set(k_.Read(kCtcLinks, link(j))));
      });
      const Expr symbol = tile::Cast(p_.index, k_.LabelAt(first, start, i));
      StoreThrough(first, at, b_.Let(first, "symbol", symbol), sum.Get());
      const Expr writes = tile::And(at.exists, tile::Op(ScalarOp::kGt, {count, tile::Int(0)}));
      inside.push_back({tile::If{writes, std::move(first), {}}});
    });
  }

  const CtcProblem& p_;
  CtcKernel k_;
  KernelBuilder& b_;
  Expr states_, active_, row_, total_, shift_, largest_, log_sum_, exists_;
};

// The largest logit of a frame and the sum of exponentials of the distances from it, in one pass:
// what was summed before a larger one came is scaled.
class SoftmaxKernel {
 public:
  explicit SoftmaxKernel(const CtcProblem& p) : p_(p), k_(p, "softmax"), b_(k_.b()) {}

  void Lower(Lowered& lowered) {
    LowerCtcFrames(k_, 1, [&](Block& out, const CtcFrame& at) { Emit(out, at); }, lowered);
  }

 private:
  void Emit(Block& out, const CtcFrame& at) {
    const Cell largest = k_.NewCell(out, "largest", k_.NegInf()),
               sum = k_.NewCell(out, "sum", k_.Number(0));
    const auto read = [&](Block& inside, const Expr& symbol) {
      return b_.Let(inside, "x", tile::Cast(p_.type, k_.Prob(inside, at.t, at.n, symbol)));
    };
    k_.Batches(out, "k", k_.Symbols(), at.lane, at.lanes, k_.SymbolsAtATime(at.lanes), read,
               [&](Block& inside, const std::vector<CtcKernel::Item>& items) {
                 AddAll(inside, items, largest, sum);
               });
    const Expr mine = b_.Let(out, "largest_of_lane", largest.Get());
    k_.CombineLanes(out, largest, ScalarOp::kMaxNan);
    const Expr from = Finite(out, largest.Get());
    out.push_back(sum.Set(sum.Get() * Exp(mine - from)));
    k_.CombineLanes(out, sum, ScalarOp::kAdd);
    Block store;
    const Expr place = b_.Let(store, "place", (at.t * k_.Samples() + at.n) * k_.Idx(2));
    k_.Write(store, kCtcSoftmax, place, largest.Get());
    k_.Write(store, kCtcSoftmax, place + k_.Idx(1), tile::Op(ScalarOp::kLog, {sum.Get()}));
    const Expr writes = tile::And(at.exists, Equals(at.lane, k_.Idx(0)));
    out.push_back({tile::If{writes, std::move(store), {}}});
  }

  void AddAll(Block& out, const std::vector<CtcKernel::Item>& items, const Cell& largest,
              const Cell& sum) {
    Expr most = largest.Get();
    std::vector<Expr> values;
    for (const CtcKernel::Item& item : items) {
      values.push_back(b_.Let(out, "logit", tile::Select(item.inside, item.value, k_.NegInf())));
      most = tile::Op(ScalarOp::kMaxNan, {most, values.back()});
    }
    most = b_.Let(out, "most", most);
    const Expr from = Finite(out, most);
    Expr all = sum.Get() * Exp(largest.Get() - from);
    for (const Expr& value : values) all = all + Exp(value - from);
    out.push_back(sum.Set(all));
    out.push_back(largest.Set(most));
  }

  // Distances are taken from 0 as long as all logits are -inf, and are -inf then.
  Expr Finite(Block& out, const Expr& most) {
    return b_.Let(out, "from", tile::Select(Equals(most, k_.NegInf()), k_.Number(0), most));
  }

  const CtcProblem& p_;
  CtcKernel k_;
  KernelBuilder& b_;
};

}  // namespace

void LowerCtcSoftmax(const CtcProblem& p, Lowered& lowered) { SoftmaxKernel(p).Lower(lowered); }

void LowerCtcGradient(const CtcProblem& p, Lowered& lowered) { GradientKernel(p).Lower(lowered); }

}  // namespace kiln::compiler
