// One block makes a TMxTN tile of C; its warps stand warps_m x warps_n over it.
//
//   ring       `stages` panels of A and B in shared memory (panel.h), filled while earlier ones are
//              multiplied (main_loop.h)
//   fragments  load_matrix, one k step of the tensor cores ahead of the products
//   tiles      in groups of kRaster rows, so that neighbours share operands in the L2
//   result     lanes exchange columns and store 8 neighbours at once (epilogue.h); with k in slices
//              a second kernel adds them up (slices.h)
#include "compiler/engines/contract_mma/kernel.h"

#include <algorithm>

#include "compiler/engines/contract_mma/epilogue.h"
#include "compiler/engines/contract_mma/main_loop.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kRaster = 8;

std::string Describe(const MmaPlan& p) {
  static constexpr const char* kPaths[] = {"along k", "along rows", "by elements"};
  return fmt::format("contract_mma: tile {}x{}x{}, {} stages, {}x{} warps, A {}, B {}{}{}",
                     p.tile_m, p.tile_n, p.depth, p.stages, p.warps_m, p.warps_n,
                     kPaths[static_cast<int>(p.a)], kPaths[static_cast<int>(p.b)],
                     p.swapped ? ", transposed" : "",
                     p.splits == 1                   ? ""
                     : p.form == SplitForm::kOrdered ? ", k in slices"
                                                     : ", k in slices that are added atomically");
}

class MmaKernel {
 public:
  MmaKernel(const EpilogueReductions& group, const Target& target, const MmaPlan& plan)
      : group_(group.tile()),
        target_(target),
        plan_(plan),
        b_(group.tile(), target, Describe(plan)),
        reductions_(group) {
    for (const char* reserved : {"bx", "by", "bz", "tx", "step"}) b_.Name(reserved);
    plain_ = DescribeContraction(b_, ContractionOf(group_));
    made_ = plan.swapped ? Swapped(plain_) : plain_;
    tiles_m_ = CeilDiv(made_.m.size(), plan.tile_m);
    tiles_n_ = CeilDiv(made_.n.size(), plan.tile_n);
  }

  Lowered Lower() {
    Lowered lowered;
    const MmaContext x{b_, made_, plan_};
    MmaSlices slices(group_, target_, x);
    if (slices.exist()) slices.Prepare(lowered);
    PartialResults partial = Partial();
    partial.Allocate(lowered);
    TileReductions reductions(reductions_, partial, b_, plan_.threads());
    Totals totals(b_, made_.accumulator, CeilDiv(made_.k.size(), int64_t{plan_.splits}),
                  plan_.depth, MostProducts(plan_.type));

    Block body;
    const MmaBlock block = Place(body);
    OperandPanel a(x, block, true), b(x, block, false);
    for (OperandPanel* panel : {&a, &b}) panel->Allocate(body);
    const MmaLane lane = EnterWarp(body, x);
    bool barrier = false;
    for (OperandPanel* panel : {&a, &b}) barrier = panel->Enter(body, lane) || barrier;
    if (barrier) body.push_back({tile::Barrier{}});
    const std::string acc = Registers(b_, body, "acc", made_.accumulator, x.accumulators());
    Clear(b_, body, acc, made_.accumulator, x.accumulators());
    totals.Declare(body, x.accumulators(), Bind::kUnroll);
    for (const OperandPanel* panel : {&a, &b}) panel->AllocateFragments(body);
    MmaMainLoop(x, a, b, acc).Emit(body, block, totals);
    TileReductions* const reduces = reductions_.empty() ? nullptr : &reductions;
    MmaEpilogue(group_, x, block, lane, plain_, acc, slices, reduces).Emit(body);
    if (reduces) reductions.Finish(body, block.batch_number);
    Finish(std::move(body), totals.exist(), lowered);
    if (slices.exist()) slices.Sum(MmaAxes(x), lowered);
    partial.Finish(target_, lowered);
    return lowered;
  }

 private:
  PartialResults Partial() const {
    const PartialAxis m{made_.m.size(), tiles_n_}, n{made_.n.size(), tiles_m_};
    const bool swapped = plan_.swapped;
    return {reductions_, made_.batch.size(), swapped ? n : m, swapped ? m : n, !swapped};
  }

  // Finds which tile, and which part of k, the block makes.
  MmaBlock Place(Block& body) {
    MmaBlock at;
    at.m_size = b_.Arg("m_size", made_.m.size());
    at.n_size = b_.Arg("n_size", made_.n.size());
    at.end_k = b_.Arg("k_size", made_.k.size());
    const int64_t tiles = tiles_m_ * tiles_n_, group = kRaster * tiles_n_;
    const auto where =
        b_.Divide(body, Var(b_, "bx"), b_.Arg("tiles", tiles), std::max<int64_t>(tiles, 1), "tile");
    at.batch_number = where.quotient;
    at.batch = b_.Unravel(body, where.quotient, made_.batch.extents, made_.batch.values, "batch");
    const auto in = b_.Divide(body, where.remainder, b_.Arg("group_tiles", group),
                              std::max<int64_t>(group, 1), "in_group");
    const Expr first = b_.Let(body, "group_row", in.quotient * b_.Idx(kRaster));
    const Expr rows =
        b_.Let(body, "group_rows",
               tile::Op(ScalarOp::kMin, {b_.Arg("tiles_m", tiles_m_) - first, b_.Idx(kRaster)}));
    at.column = b_.Let(body, "tile_n", in.remainder / rows);
    at.row = first + in.remainder - at.column * rows;
    if (!reductions_.empty()) at.row = b_.Let(body, "tile_m", at.row);
    at.first_m = b_.Let(body, "first_m", at.row * b_.Idx(plan_.tile_m));
    at.first_n = b_.Let(body, "first_n", at.column * b_.Idx(plan_.tile_n));
    at.steps = CeilDivExpr(at.end_k, plan_.depth);
    at.first_k = b_.Idx(0);
    if (plan_.splits == 1) return at;
    const int64_t steps = CeilDiv(CeilDiv(made_.k.size(), plan_.depth), plan_.splits);
    at.steps = b_.Arg("steps", steps);
    const Expr slice = b_.Arg("slice_k", steps * plan_.depth);
    at.first_k = b_.Let(body, "first_k", Var(b_, "bz") * slice);
    at.end_k = b_.Let(body, "end_k", tile::Op(ScalarOp::kMin, {at.end_k, at.first_k + slice}));
    return at;
  }

  MmaLane EnterWarp(Block& body, const MmaContext& x) {
    MmaLane at;
    at.lane = b_.Let(body, "lane", Var(b_, "tx") % b_.Idx(kWarpLanes));
    const Expr warp = b_.Let(body, "warp", Var(b_, "tx") / b_.Idx(kWarpLanes));
    const Expr across = b_.Idx(plan_.warps_n);
    at.warp_m = b_.Let(body, "warp_m", warp / across * b_.Idx(x.warp_tiles_m() * kMmaM));
    at.warp_n = b_.Let(body, "warp_n", warp % across * b_.Idx(x.warp_tiles_n() * kMmaN));
    return at;
  }

  void Finish(Block body, bool has_totals, Lowered& lowered) {
    const auto wrap = [&](const char* var, Expr extent, Bind bind) {
      Block out;
      out.push_back({tile::For{var, b_.index_type(), std::move(extent), bind, std::move(body)}});
      body = std::move(out);
    };
    wrap("tx", b_.Idx(plan_.threads()), Bind::kThreadX);
    const int64_t blocks = tiles_m_ * tiles_n_ * made_.batch.size();
    if (plan_.splits > 1) wrap("bz", b_.Arg("splits", plan_.splits), Bind::kBlockZ);
    wrap("bx", b_.Arg("blocks", blocks), Bind::kBlockX);
    // Without the hint ptxas keeps registers for a second block, at the price of spills.
    const bool alone = 2 * plan_.SharedBytes() > target_.shared_bytes_per_block || has_totals;
    b_.Finish(std::move(body), {blocks, 1, plan_.splits}, plan_.threads(), lowered, alone ? 1 : 0);
  }

  const Group& group_;  // without its reductions
  const Target& target_;
  const MmaPlan plan_;
  KernelBuilder b_;
  const EpilogueReductions& reductions_;
  Contraction plain_, made_;  // as the graph has it; as it is made, transposed or not
  int64_t tiles_m_ = 0, tiles_n_ = 0;
};

}  // namespace

Lowered LowerMma(const Group& group, const Target& target, const MmaPlan& plan) {
  const EpilogueReductions reductions(group);
  return MmaKernel(reductions, target, plan).Lower();
}

}  // namespace kiln::compiler
