#include "compiler/engines/conv_first_layer/dgrad_panel.h"

#include <utility>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

// A tap's index in w from what its offset leaves of the output's place; `guard` becomes false where
// there is no such tap.
Expr TapOf(const DgradContext& x, Block& out, const Expr& phase, const Expr& i, int64_t axis,
           const FirstLayerDgradPlan::Axis& a, Expr& guard) {
  KernelBuilder& b = x.b;
  const ConvShape& shape = x.shape;
  const int64_t dilation = shape.dilation[axis];
  const Expr reach = b.Let(
      out, "reach", phase + b.Idx(shape.pad[axis] - a.first * a.stride) - i * b.Idx(a.stride));
  guard = tile::And(guard, tile::Ge(reach, b.Idx(0)));
  guard = tile::And(guard, tile::Lt(reach, b.Idx(shape.taps[axis] * dilation)));
  if (dilation != 1)
    guard = tile::And(guard, tile::Op(ScalarOp::kEq, {reach % b.Idx(dilation), b.Idx(0)}));
  const Expr tap = reach / b.Idx(dilation);
  return shape.flip ? b.Idx(shape.taps[axis] - 1) - tap : tap;
}

// The place of the 4 elements of a lane in w.
struct FilterPlace {
  Expr step;  // 16 filters, of those of all chunks
  Expr c;
  Index taps;
  Expr exists;
};

FilterPlace PlaceOf(const DgradContext& x, const DgradLane& lane, Block& out, const Expr& number,
                    const Expr& in_panel) {
  KernelBuilder& b = x.b;
  const FirstLayerDgradPlan& p = x.p;
  const int64_t channels = x.shape.channels;
  const Expr fragment = b.Let(out, "fragment", number / b.Idx(kWarpLanes));
  const Expr slot = b.Let(out, "slot", fragment % b.Idx(p.sets) * b.Idx(8) + lane.g);
  const Expr rest = b.Let(out, "rest", fragment / b.Idx(p.sets));
  const Expr i = b.Let(out, "i", rest % b.Idx(p.row.window));
  FilterPlace at;
  at.step = b.Let(out, "step_of", rest / b.Idx(p.row.window));
  const Expr j = b.Let(out, "j", at.step / b.Idx(p.chunks * x.chunk_steps()));
  const Expr phase = b.Let(out, "phase", slot / b.Idx(p.run_slots));
  const Expr element = b.Let(out, "element", slot % b.Idx(p.run_slots));
  at.c = b.Let(out, "c", element % b.Idx(channels));
  Expr guard = tile::And(
      in_panel, tile::And(tile::Lt(phase, b.Idx(p.row.stride)), tile::Lt(element, b.Idx(p.run))));
  if (!x.is_flat()) at.taps.push_back(TapOf(x, out, phase, i, 0, p.row, guard));
  at.taps.push_back(TapOf(x, out, element / b.Idx(channels), j, x.shape.spatial - 1, p.col, guard));
  at.exists = b.Let(out, "has_tap", guard);
  return at;
}

// regs[first ..] = the 4 elements of the panel's group `number`.
void ReadFilters(const DgradContext& x, const DgradLane& lane, Block& out, const Expr& number,
                 const Expr& in_panel, const std::string& regs, const Expr& first) {
  KernelBuilder& b = x.b;
  const FilterPlace at = PlaceOf(x, lane, out, number, in_panel);
  const int64_t steps = x.p.chunks * x.chunk_steps();
  for (int e = 0; e < 4; ++e) {
    const Expr k =
        b.Let(out, "k",
              at.step % b.Idx(steps) * b.Idx(16) + lane.t4 * b.Idx(2) + b.Idx(e / 2 * 8 + e % 2));
    const Expr to = first + b.Idx(e);
    out.push_back({tile::Store{regs, to, ZeroOf(x.type)}});
    Block inside;
    ValueScope values(b, inside);
    Index index = {k, at.c};
    index.insert(index.end(), at.taps.begin(), at.taps.end());
    inside.push_back({tile::Store{regs, to, tile::Cast(x.type, values.Value(x.shape.w, index))}});
    When(out, tile::And(at.exists, tile::Lt(k, b.Extent(x.shape.y, 1))), std::move(inside));
  }
}

}  // namespace

void FillDgradPanel(const DgradContext& x, const DgradLane& lane, Block& body,
                    const std::string& panel) {
  KernelBuilder& b = x.b;
  const int64_t groups = x.p.panel_elements() / 4;  // of a lane's 4 elements; whole warps
  constexpr int64_t kAtOnce = 4;                    // whose reads are under way together
  Loop(b, body, "f", b.Idx(CeilDiv(groups, kDgradThreads * kAtOnce)), Bind::kSerial,
       [&](Block& some, const Expr& f) {
         const std::string regs = Registers(b, some, "filter_regs", x.type, kAtOnce * 4);
         const auto number = [&](Block& one, const Expr& u) {
           return b.Let(one, "group",
                        (f * b.Idx(kAtOnce) + u) * b.Idx(kDgradThreads) + Var(b, "tx"));
         };
         Loop(b, some, "u", b.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
           const Expr in_panel = tile::Lt(number(one, u), b.Idx(groups));
           const Expr group = number(one, u);
           ReadFilters(x, lane, one, group, in_panel, regs, u * b.Idx(4));
         });
         Loop(b, some, "u", b.Idx(kAtOnce), Bind::kUnroll, [&](Block& one, const Expr& u) {
           const Expr group = number(one, u);
           Block store;
           WideCopy(store, x.type, panel, group * b.Idx(4), regs, u * b.Idx(4), 4);
           When(one, tile::Lt(group, b.Idx(groups)), std::move(store));
         });
       });
}

}  // namespace kiln::compiler
