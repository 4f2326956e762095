#include "compiler/engines/conv_first_layer/fprop_panel.h"

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

Expr FpropPanel::At(const Expr& product, const Expr& set, const Expr& half) const {
  KernelBuilder& b = x_.b;
  return ((product * b.Idx(x_.p.sets) + set) * b.Idx(2) + half) * b.Idx(64);
}

void FpropPanel::Fill(Block& body) {
  KernelBuilder& b = x_.b;
  panel_ = SharedArray(b, body, "w_panel", x_.type(), x_.p.panel_elements());
  // Reads of several chunks are under way together; more of them are slow to compile.
  constexpr int64_t at_once = FirstLayerPlan::kChunksAtOnce;
  const int64_t sets = x_.p.sets / kFirstLayerWarps;  // of a thread, 2 elements each
  Loop(b, body, "f", b.Idx(CeilDiv(x_.p.products * 2, at_once)), Bind::kSerial,
       [&](Block& some, const Expr& f) {
         const std::string regs = Registers(b, some, "filter_regs", x_.type(), at_once * sets * 2);
         Loop(b, some, "u", b.Idx(at_once), Bind::kUnroll, [&](Block& one, const Expr& u) {
           ReadChunk(one, f * b.Idx(at_once) + u, regs, u * b.Idx(sets * 2));
         });
         Loop(b, some, "u", b.Idx(at_once), Bind::kUnroll, [&](Block& one, const Expr& u) {
           const Expr chunk = b.Let(one, "f", f * b.Idx(at_once) + u);
           for (int64_t s = 0; s < sets; ++s) {
             const Expr set = lane_.warp + b.Idx(s * kFirstLayerWarps);
             const Expr at = At(chunk / b.Idx(2), set, chunk % b.Idx(2)) + lane_.g * b.Idx(8) +
                             lane_.t4 * b.Idx(2);
             WideCopy(one, x_.type(), panel_, b.Let(one, "at", at), regs,
                      (u * b.Idx(sets) + b.Idx(s)) * b.Idx(2), 2);
           }
         });
       });
}

// regs[first ..] = a thread's elements of chunk `f` of the filter rows.
void FpropPanel::ReadChunk(Block& out, const Expr& f, const std::string& regs,
                           const Expr& first) const {
  KernelBuilder& b = x_.b;
  const Expr chunk = f % b.Idx(x_.p.chunks);
  const Expr r = b.Let(out, "r", f / b.Idx(x_.p.chunks));
  for (int64_t s = 0; s < x_.p.sets / kFirstLayerWarps; ++s) {
    const Expr filter =
        b.Let(out, "filter",
              first_filter_ + b.Idx(s * kFirstLayerSlab) + lane_.g / b.Idx(2) * b.Idx(8) +
                  lane_.warp * b.Idx(2) + lane_.g % b.Idx(2));
    for (int e = 0; e < 2; ++e) {
      const Expr slot =
          b.Let(out, "slot", chunk * b.Idx(kFirstLayerChunk) + lane_.t4 * b.Idx(2) + b.Idx(e));
      const Expr to = first + b.Idx(s * 2 + e);
      out.push_back({tile::Store{regs, to, ZeroOf(x_.type())}});
      ReadElement(out, filter, r, slot, regs, to);
    }
  }
}

void FpropPanel::ReadElement(Block& out, const Expr& filter, const Expr& r, const Expr& slot,
                             const std::string& regs, const Expr& to) const {
  KernelBuilder& b = x_.b;
  const FirstLayerPlan& p = x_.p;
  const ConvShape& shape = x_.shape;
  const Expr in_run = p.shift == 0 ? slot : slot - b.Idx(p.shift);
  const Expr s = in_run / b.Idx(p.pixel), c = in_run % b.Idx(p.pixel);
  Expr guard = tile::And(tile::Lt(r, b.Idx(p.row_taps)), tile::Lt(slot, b.Idx(p.end_slot())));
  if (p.shift != 0) guard = tile::And(guard, tile::Ge(slot, b.Idx(p.shift)));
  guard = tile::And(guard, tile::Lt(filter, b.Extent(shape.y, 1)));
  if (p.pixel != shape.channels) guard = tile::And(guard, tile::Lt(c, b.Idx(shape.channels)));
  Index index = {filter, c};
  if (shape.spatial == 2) index.push_back(x_.FilterTap(b, r, p.row_taps));
  index.push_back(x_.FilterTap(b, s, p.taps));
  Block inside;
  ValueScope values(b, inside);
  inside.push_back({tile::Store{regs, to, tile::Cast(x_.type(), values.Value(shape.w, index))}});
  When(out, guard, std::move(inside));
}

std::string FpropPanel::Fragments(Block& body, int64_t product) const {
  KernelBuilder& b = x_.b;
  const std::string fragment = Registers(b, body, "w_fragment", x_.type(), x_.p.sets * 4);
  Loop(b, body, "n", b.Idx(x_.p.sets / 2), Bind::kUnroll, [&](Block& one, const Expr& n) {
    const Expr from = At(b.Idx(product), n * b.Idx(2), b.Idx(0)) + lane_.lane * b.Idx(8);
    one.push_back({tile::LoadMatrix{fragment, n * b.Idx(8), panel_, from, 4, false}});
  });
  return fragment;
}

}  // namespace kiln::compiler
