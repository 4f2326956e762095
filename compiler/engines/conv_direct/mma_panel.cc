#include "compiler/engines/conv_direct/mma_panel.h"

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

namespace {

constexpr int64_t kFragmentElements = kDirectSets * kWarpLanes * 4;

}  // namespace

Expr DirectChannel(const KernelBuilder& b, int run, const Expr& t, const Expr& j, const Expr& e) {
  const int sets = run / 2;  // of one access
  return j / b.Idx(sets) * b.Idx(4 * run) + t * b.Idx(run) + j % b.Idx(sets) * b.Idx(2) + e;
}

Expr DirectMmaPanel::SourceSet(const Expr& j, int k) const {
  if (plan_.sets == 1) return j;
  if (plan_.sets == 2) return j / b_.Idx(2) * b_.Idx(2) + b_.Idx(k);
  return b_.Idx(k);
}

Expr DirectMmaPanel::At(int64_t fragment, const Expr& pair, const Expr& lane) const {
  return b_.Idx(fragment * kFragmentElements) + (pair * b_.Idx(kWarpLanes) + lane) * b_.Idx(8);
}

// A thread fills its lane's share of the set of its warp's number in each fragment.
void DirectMmaPanel::Fill(Block& body) {
  const Expr& j = lane_.warp;
  const auto fragments = static_cast<int64_t>(plan_.fragments.size());
  panel_ = SharedArray(b_, body, "b_panel", type_, fragments * kFragmentElements);
  const Expr made =
      b_.Let(body, "made",
             first_channel_ + DirectChannel(b_, run_, lane_.g / b_.Idx(2), j, lane_.g % b_.Idx(2)));
  const Expr base =
      b_.Let(body, "panel_at", At(0, j / b_.Idx(2), lane_.lane) + j % b_.Idx(2) * b_.Idx(4));
  for (int64_t f = 0; f < fragments; ++f) {
    const DirectMmaFragment& fragment = plan_.fragments[f];
    for (int half = 0; half < 2; ++half) {
      const DirectMmaSource& source = fragment.source[half];
      Loop(b_, body, "e", b_.Idx(2), Bind::kUnroll, [&](Block& one, const Expr& e) {
        const Expr at = base + b_.Idx(f * kFragmentElements + half * 2) + e;
        one.push_back({tile::Store{panel_, at, ZeroOf(type_)}});
        if (source.set >= 0) FillElement(one, fragment, source, made, e, at);
      });
    }
  }
  body.push_back({tile::Barrier{}});
}

void DirectMmaPanel::FillElement(Block& out, const DirectMmaFragment& f,
                                 const DirectMmaSource& source, const Expr& made, const Expr& e,
                                 const Expr& at) const {
  const Expr set = SourceSet(lane_.warp, source.set);
  const Expr read = b_.Let(out, "read", first_channel_ + DirectChannel(b_, run_, lane_.t4, set, e));
  const Expr per_group = b_.Idx(shape_.channels);
  const Expr count = b_.Extent(shape_.out, 1);
  Expr guard = tile::And(tile::Lt(read, count), tile::Lt(made, count));
  guard = tile::And(guard, tile::Op(ScalarOp::kEq, {read / per_group, made / per_group}));
  const Expr filter = shape_.is_dgrad() ? read : made;
  const Expr channel = (shape_.is_dgrad() ? made : read) % per_group;
  Block inside;
  ValueScope values(b_, inside);
  const Index index = DirectFilterIndex(b_, shape_, filter, channel, f.kd, f.r, source.s);
  inside.push_back({tile::Store{panel_, at, tile::Cast(type_, values.Value(shape_.w, index))}});
  When(out, guard, std::move(inside));
}

std::string DirectMmaPanel::Fragment(Block& body, int64_t f) const {
  const std::string fragment = Registers(b_, body, "b_fragment", type_, kDirectSets * 4);
  Loop(b_, body, "p", b_.Idx(2), Bind::kUnroll, [&](Block& one, const Expr& p) {
    WideCopy(one, type_, fragment, p * b_.Idx(8), panel_, At(f, p, lane_.lane), 8);
  });
  return fragment;
}

}  // namespace kiln::compiler
