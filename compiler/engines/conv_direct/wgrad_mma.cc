// Wgrad of convolutions with few channels a group on mma.m16n8k16, for f16 and bf16 with channels
// innermost: for each filter tap, rows are filters, columns the channels of x, and k runs over the
// outputs. Depthwise convolutions use an eighth of the products and are bound by memory still.
//
//   block    a slab of 32 channels of x and as many filters, which are whole groups; walks every
//            splits-th piece: a few output rows of one image, or a few small images
//   pieces   dy and x with its halo stand in shared memory pixel after pixel, by asynchronous
//            copies, the next piece while this one is multiplied (wgrad_mma_stages.h); ldmatrix
//            transposes both
//   warp     one half of the filters, and every second product of k: for each tap all columns whose
//            groups it meets; a tap is a shift of where x is read. With 32 channels a group and
//            small filters it is one filter row, all filters, half of the channels, and all of k:
//            then x is read once for both halves, and there is nothing to add up in the block
//   sums     scratch[split][tap][channel of the group][filter]; the second kernel adds the splits
//            in a fixed order
//
// Pixels past the end of a piece are zeros of dy; they read x where a pixel of the piece does.
#include <utility>

#include "compiler/engines/conv_direct/wgrad_mma_sums.h"
#include "compiler/kernel/ordered_sum.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

class WgradMmaKernel {
 public:
  WgradMmaKernel(const Group& group, const Target& target, const ConvShape& shape,
                 const DirectKnobs& knobs)
      : target_(target),
        shape_(shape),
        p_(WgradMmaPlanOf(group, target, shape, knobs)),
        b_(group, target,
           fmt::format(
               "conv_direct: wgrad on tensor cores, pieces of {}x{}x{}, first of two stages",
               p_.images, p_.rows, p_.columns)),
        x_{b_,
           group,
           shape_,
           p_,
           WgradAxisOf(shape, shape.spatial - 2),
           WgradAxisOf(shape, shape.spatial - 1)} {
    for (const char* reserved : {"bx", "tx", "step"}) b_.Name(reserved);
  }

  Lowered Lower() {
    Block body;
    WgradMmaThread thread = EnterBlock(body);
    WgradMmaStages stages(x_);
    EnterLane(body, thread);
    stages.Allocate(body);
    const WgradMmaSums sums(x_, thread, stages, body);
    stages.Start(body, thread, b_.Idx(0));
    Block loop;
    const Expr step = Var(b_, "step");
    stages.Start(loop, thread, b_.Let(loop, "ahead", step + b_.Idx(1)));
    const WgradMmaPiece piece = stages.Enter(loop, thread, step);
    WgradMmaSums::Slots slots;
    slots.x = b_.Let(loop, "x_slot", step % b_.Idx(2) * b_.Idx(x_.x_elements()));
    slots.dy = b_.Let(loop, "dy_slot", step % b_.Idx(2) * b_.Idx(x_.dy_elements()));
    loop.push_back({tile::WaitAsync{1}});
    loop.push_back({tile::Barrier{}});
    const Expr parts = b_.Idx(p_.parts());
    Loop(b_, loop, "kk", b_.Idx(p_.pixels / 16 / p_.parts()), Bind::kSerial,
         [&](Block& one, const Expr& kk) {
           const Expr first = b_.Let(one, "first", (kk * parts + thread.part) * b_.Idx(16));
           sums.Multiply(one, piece, slots, first);
         });
    loop.push_back({tile::Barrier{}});
    body.push_back(
        {tile::For{"step", b_.index_type(), stages.steps(), Bind::kSerial, std::move(loop)}});
    body.push_back({tile::WaitAsync{0}});
    sums.Write(body);
    return Finish(std::move(body));
  }

 private:
  WgradMmaThread EnterBlock(Block& body) {
    const auto slab = b_.Divide(body, Var(b_, "bx"), b_.Arg("slabs", p_.slabs), p_.slabs, "slab");
    const Expr tap_sets = b_.Idx(p_.tap_sets);
    WgradMmaThread at;
    at.first_channel = b_.Let(body, "first_channel", slab.remainder * b_.Idx(kWgradSlab));
    at.first_tap = b_.Let(body, "first_tap", slab.quotient % tap_sets * b_.Idx(p_.taps_of_set));
    at.split = b_.Let(body, "split", slab.quotient / tap_sets);
    return at;
  }

  void EnterLane(Block& body, WgradMmaThread& at) {
    const bool by_rows = x_.by_rows();
    at.lane = b_.Let(body, "lane", Var(b_, "tx") % b_.Idx(kWarpLanes));
    const Expr warp = b_.Let(body, "warp", Var(b_, "tx") / b_.Idx(kWarpLanes));
    at.half = by_rows ? b_.Idx(0) : b_.Let(body, "half", warp % b_.Idx(2));
    at.part = by_rows ? b_.Idx(0) : b_.Let(body, "part", warp / b_.Idx(2));
    at.channel_half = by_rows ? b_.Let(body, "channel_half", warp % b_.Idx(2)) : at.half;
    if (by_rows) {
      at.filter_row = b_.Let(body, "filter_row", warp / b_.Idx(2));
      at.first_tap = b_.Let(body, "first_tap", at.filter_row * b_.Idx(p_.taps_of_set));
    }
    at.g = b_.Let(body, "g", at.lane / b_.Idx(4));
    at.t4 = b_.Let(body, "t4", at.lane % b_.Idx(4));
  }

  // The launch, and the kernel that adds the splits.
  Lowered Finish(Block body) {
    Lowered lowered;
    lowered.scratch_bytes.push_back(p_.splits * x_.sum_rows() * x_.padded_filters() * 4);
    const int64_t blocks = p_.splits * p_.tap_sets * p_.slabs;
    body = BlockAndThread(b_.index_type(), b_.Arg("grid", blocks), x_.threads(), std::move(body));
    b_.Finish(std::move(body), {blocks, 1, 1}, x_.threads(), lowered,
              static_cast<int>(WgradResidentByRegisters(p_, shape_)));
    LowerOrderedSum(
        x_.group, target_, "conv_direct, wgrad on tensor cores: adds the splits",
        {.splits = p_.splits, .rows = x_.sum_rows(), .columns = x_.padded_filters()},
        [this](KernelBuilder& b, Block& out, const Expr& row, const Expr& filter, const Expr& first,
               const Expr& sum) { Store(b, out, row, filter, first, sum); },
        lowered);
    return lowered;
  }

  void Store(KernelBuilder& b, Block& out, const Expr& row, const Expr& filter, const Expr& first,
             const Expr& sum) {
    const Expr tap = b.Let(out, "tap", row / b.Idx(shape_.channels));
    Index index = {filter, b.Let(out, "c", row % b.Idx(shape_.channels))};
    const auto at = [&](const Expr& i, int64_t count) {
      return b.Let(out, "at", shape_.flip ? b.Idx(count - 1) - i : i);
    };
    if (!x_.is_flat()) index.push_back(at(tap / b.Idx(x_.col.taps), x_.row.taps));
    index.push_back(at(x_.is_flat() ? tap : tap % b.Idx(x_.col.taps), x_.col.taps));
    const Expr guard = tile::And(first, tile::Lt(filter, b.Extent(shape_.w, 0)));
    StoreTotal(b, out, x_.group.graph, shape_.w, index, guard, sum);
  }

  const Target& target_;
  ConvShape shape_;
  WgradMmaPlan p_;
  KernelBuilder b_;
  WgradMmaContext x_;
};

}  // namespace

Lowered LowerDirectWgradMma(const Group& group, const Target& target, const ConvShape& shape,
                            const DirectKnobs& knobs) {
  return WgradMmaKernel(group, target, shape, knobs).Lower();
}

}  // namespace kiln::compiler
