// Facts about samples that the ctc engine finds out before it walks their paths.
#include "compiler/engines/ctc/kernels.h"

namespace kiln::compiler {
namespace {

using tile::Block;
using tile::Expr;
using Cell = CtcKernel::Cell;

constexpr int kLinkThreads = 256;

Expr One(const Expr& condition) { return tile::Select(condition, tile::Int(1), tile::Int(0)); }
Expr Within(const Expr& value, const Expr& most) {
  return tile::And(tile::Ge(value, tile::Int(0)), tile::Op(ScalarOp::kLe, {value, most}));
}
Expr Equals(const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kEq, {a, b}); }
Expr Either(const Expr& a, const Expr& b) { return tile::Op(ScalarOp::kOr, {a, b}); }

// The labels before a sample's, and whether each of their lengths can be.
struct Before {
  Cell start, bad;
};

Before AddBefore(CtcKernel& k, const Expr& most) {
  Block& out = k.body();
  const CtcProblem& p = k.p();
  const Before before = {k.NewCell(out, "start", k.Idx(0)), k.NewCell(out, "bad", tile::Int(0))};
  k.Strided(out, "m", k.bx(), k.tx(), p.lanes(), [&](Block& inside, const Expr& m) {
    const Expr length = k.b().Let(inside, "length", k.Integer(inside, p.label_lengths, m));
    const Expr fits = k.b().Let(inside, "fits", Within(length, most));
    inside.push_back(before.start.Set(
        before.start.Get() + tile::Cast(p.index, tile::Select(fits, length, tile::Int(0)))));
    inside.push_back(before.bad.Set(
        tile::Op(ScalarOp::kMax, {before.bad.Get(), One(tile::Op(ScalarOp::kNot, {fits}))})));
  });
  k.CombineLanes(out, before.start, ScalarOp::kAdd);
  k.CombineLanes(out, before.bad, ScalarOp::kMax);
  return before;
}

}  // namespace

void LowerCtcSamples(const CtcProblem& p, Lowered& lowered) {
  CtcKernel k(p, "samples");
  KernelBuilder& b = k.b();
  Block& out = k.body();
  const Expr most = tile::Cast(DType::kI32, k.Label());
  const auto [start, bad] = AddBefore(k, most);
  const Expr length = b.Let(out, "length", k.Integer(out, p.label_lengths, k.bx())),
             input = b.Let(out, "input", k.Integer(out, p.input_lengths, k.bx()));
  const Expr total = b.Extent(p.labels, 0);
  Expr known = tile::And(tile::Op(ScalarOp::kEq, {bad.Get(), tile::Int(0)}), Within(length, most));
  known =
      tile::And(known, tile::Op(ScalarOp::kLe, {start.Get() + tile::Cast(p.index, length), total}));
  known = tile::And(known, Within(input, tile::Cast(DType::kI32, k.Frames())));
  known = b.Let(out, "known", known);
  const Cell outside = k.NewCell(out, "outside", tile::Int(0)),
             needed = k.NewCell(out, "needed", tile::Int(0));
  if (p.label > 0) {
    const Expr count =
        b.Let(out, "count", tile::Cast(p.index, tile::Select(known, length, tile::Int(0))));
    k.Strided(out, "i", count, k.tx(), p.lanes(), [&](Block& inside, const Expr& i) {
      const Expr mine = k.LabelAt(inside, start.Get(), i);
      const Expr before = tile::Op(ScalarOp::kMax, {i - k.Idx(1), k.Idx(0)});
      const Expr last = k.LabelAt(inside, start.Get(), before);
      const Expr inner = Within(mine, tile::Cast(DType::kI32, k.Symbols()) - tile::Int(1));
      inside.push_back(outside.Set(
          tile::Op(ScalarOp::kMax, {outside.Get(), One(tile::Op(ScalarOp::kNot, {inner}))})));
      const Expr waits = tile::And(tile::Op(ScalarOp::kGt, {i, k.Idx(0)}),
                                   Either(Equals(mine, tile::Int(0)), Equals(mine, last)));
      inside.push_back(needed.Set(needed.Get() + tile::Int(1) + One(waits)));
    });
    k.CombineLanes(out, outside, ScalarOp::kMax);
    k.CombineLanes(out, needed, ScalarOp::kAdd);
  }
  const Expr fits = tile::Op(ScalarOp::kLe, {needed.Get(), input});
  const Expr states = tile::Select(fits, length * tile::Int(2) + tile::Int(1), tile::Int(0));
  const Expr valid = tile::And(known, Equals(outside.Get(), tile::Int(0)));
  Block store;
  k.Write(store, kCtcStarts, k.bx(), start.Get());
  k.Write(store, kCtcStates, k.bx(), tile::Select(valid, states, tile::Int(-1)));
  out.push_back({tile::If{Equals(k.tx(), k.Idx(0)), std::move(store), {}}});
  k.Finish({p.samples, 1, 1}, p.lanes(), lowered);
}

void LowerCtcLinks(const CtcProblem& p, Lowered& lowered) {
  CtcKernel k(p, "links");
  KernelBuilder& b = k.b();
  const Expr n = k.bx();
  const Expr states = b.Let(k.body(), "states", k.Read(kCtcStates, n)),
             start = b.Let(k.body(), "start", k.Read(kCtcStarts, n));
  const Expr length =
      b.Let(k.body(), "length",
            tile::Cast(p.index, tile::Op(ScalarOp::kMax, {states, tile::Int(0)}) / tile::Int(2)));
  const auto link = [&](Block& out, const Expr& i) {
    const Expr mine = k.LabelAt(out, start, i);
    const Cell next = k.NewCell(out, "next", tile::Int(0)),
               count = k.NewCell(out, "count", tile::Int(0)),
               earlier = k.NewCell(out, "earlier", tile::Int(0));
    k.Loop(out, "j", length, [&](Block& inside, const Expr& j) {
      const Expr same = b.Let(inside, "same", Equals(mine, k.LabelAt(inside, start, j)));
      inside.push_back(count.Set(count.Get() + One(same)));
      inside.push_back(earlier.Set(
          tile::Op(ScalarOp::kMax, {earlier.Get(), One(tile::And(same, tile::Lt(j, i)))})));
      const Expr follows = tile::And(same, tile::Op(ScalarOp::kGt, {j, i}));
      const Expr first = tile::And(follows, Equals(next.Get(), tile::Int(0)));
      inside.push_back(next.Set(tile::Select(first, tile::Cast(DType::kI32, j), next.Get())));
    });
    const Expr at = b.Let(out, "link", (n * k.Label() + i) * k.Idx(2));
    const Expr other = Either(Equals(earlier.Get(), tile::Int(1)), Equals(mine, tile::Int(0)));
    k.Write(out, kCtcLinks, at, next.Get());
    k.Write(out, kCtcLinks, at + k.Idx(1), tile::Select(other, tile::Int(0), count.Get()));
  };
  if (!p.on_gpu()) {
    k.Loop(k.body(), "i", length, link);
    return k.Finish({p.samples, 1, 1}, 1, lowered);
  }
  const Expr i = b.Let(k.body(), "i", k.by() * k.Idx(kLinkThreads) + k.tx());
  Block inside;
  link(inside, i);
  k.body().push_back({tile::If{tile::Lt(i, length), std::move(inside), {}}});
  k.Finish({p.samples, CeilDiv(p.label, kLinkThreads), 1}, kLinkThreads, lowered);
}

}  // namespace kiln::compiler
