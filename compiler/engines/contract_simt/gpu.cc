// contract_simt on a GPU: FMA units at their roof where the operands can be fed.
//
//   block    makes a TMxTN tile of C in steps of TK along k; threads stand over it as SimtPatch
//            says
//   panels   a_panel[2][TK][TM], b_panel[2][TK][TN] in shared memory (panel.h). While one of the
//            two is multiplied, the next is read
//   result   in pieces of 16 bytes where it lies so (epilogue.h)
//
//   step s:   global(s+1) → registers      panels(s) → fma      registers → panels(s+1)     barrier
#include <algorithm>

#include "compiler/engines/contract_simt/epilogue.h"
#include "compiler/engines/contract_simt/panel.h"
#include "compiler/engines/contract_simt/schedules.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kMostPerThread = 64, kLeastPerThread = 16;
constexpr int kLeastSteps = 8;  // of a slice of k
// Elements of a tile that only small problems take, and the places of k whose products stand in its
// kernel's text.
constexpr int kSmallTile = 32 * 64, kWrittenOut = 4;
// The most threads whose registers a block should leave room for a second block beside it.
constexpr int kSecondBlockThreads = 256;

class SimtGpuKernel : private ContractTiles {
 public:
  SimtGpuKernel(const EpilogueReductions& group, const Target& target, const SimtKnobs& knobs)
      : ContractTiles(
            group.tile(), target, {knobs.tile_m, knobs.tile_n, knobs.tile_k},
            fmt::format("contract_simt: tile {}x{}x{}", knobs.tile_m, knobs.tile_n, knobs.tile_k)),
        target_(target),
        x_{b_, c_, shape_, PatchOf(knobs, c_.accumulator)},
        slices_(SimtSlices(SizesOf(group.group().graph, ContractionOf(group.group())),
                           CountReductions(group.group()), target, knobs)),
        reductions_(group) {}

  Lowered Lower() {
    PartialResults partial(reductions_, c_.batch.size(), {c_.m.size(), tiles_n_},
                           {c_.n.size(), tiles_m_}, true);
    TileReductions reductions(reductions_, partial, b_, x_.patch.threads);
    TileReductions* const reduces = reductions_.empty() ? nullptr : &reductions;
    Lowered scratch;
    partial.Allocate(scratch);
    Totals totals(b_, c_.accumulator, CeilDiv(c_.k.size(), slices_), shape_.k, kMostTerms);

    Block body = Prepare();
    const SimtBlock block{batch_,   batch_number_, tile_row_, first_m_,
                          first_n_, m_size_,       n_size_,   k_size_};
    SimtPanel a(x_, true), b(x_, false);
    for (SimtPanel* panel : {&a, &b}) panel->Allocate(body);
    const std::string acc = Accumulators(body, totals);
    const SimtThread thread = EnterThread(body);
    for (SimtPanel* panel : {&a, &b}) panel->Enter(body, block);
    const Slice slice = SliceOf(body);
    MainLoop(body, a, b, thread, acc, slice, totals);
    SimtEpilogue epilogue(x_, block, thread, acc, reduces);
    if (reduces) epilogue.DeclareReductions(body);
    slices_ > 1 ? epilogue.StoreSlices(body) : epilogue.Store(body);
    if (reduces) reductions.Finish(body, batch_number_);
    Lowered lowered = Finish(std::move(body), x_.patch.threads, slices_, MinBlocks(totals.exist()));
    lowered.scratch_bytes = std::move(scratch.scratch_bytes);
    partial.Finish(target_, lowered);
    if (slices_ > 1)
      ContractCombine(group_, target_, "contract_simt", slices_, epilogue.rows_innermost())
          .Lower(lowered);
    return lowered;
  }

 private:
  // Blocks of a multiprocessor that registers should have room for; 0 leaves that to the compiler.
  int MinBlocks(bool has_totals) const {
    const SimtPatch& patch = x_.patch;
    // Totals of as many accumulators as a thread has at most leave no room for a second block.
    if (has_totals && patch.per_m * patch.per_n == kMostPerThread) return 1;
    const bool crowded = patch.threads == kSecondBlockThreads && SizeOf(c_.accumulator) == 4;
    return crowded ? 2 : 0;
  }

  std::string Accumulators(Block& body, Totals& totals) {
    const int64_t size = int64_t{x_.patch.per_m} * x_.patch.per_n;
    const std::string acc = Registers(b_, body, "acc", c_.accumulator, size);
    Clear(b_, body, acc, c_.accumulator, size);
    totals.Declare(body, size, Bind::kUnroll);
    return acc;
  }

  SimtThread EnterThread(Block& body) {
    const SimtPatch& patch = x_.patch;
    const int warps_n = x_.warps_n(), lanes_m = kWarpLanes / patch.lanes_n;
    SimtThread at;
    at.lane = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarpLanes));
    at.warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarpLanes));
    const Expr m = at.warp / b_.Idx(warps_n) * b_.Idx(lanes_m) + at.lane / b_.Idx(patch.lanes_n);
    const Expr n =
        at.warp % b_.Idx(warps_n) * b_.Idx(patch.lanes_n) + at.lane % b_.Idx(patch.lanes_n);
    at.m = b_.Let(body, "thread_m", m * b_.Idx(patch.lane));
    at.n = b_.Let(body, "thread_n", n * b_.Idx(patch.lane));
    return at;
  }

  // The block's part of k.
  struct Slice {
    Expr first_k, steps;
  };
  Slice SliceOf(Block& body) {
    const Expr steps = b_.Let(body, "steps", CeilDivExpr(k_size_, shape_.k));
    if (slices_ == 1) return {b_.Let(body, "first_k", b_.Idx(0) * b_.Idx(shape_.k)), steps};
    const int64_t whole = CeilDiv(c_.k.size(), shape_.k);
    const Expr each = b_.Arg("slice_steps", StepsOfSlice(whole, slices_));
    const Expr first = b_.Let(body, "first_step", Var("bz") * each);
    const Expr mine = b_.Let(body, "mine", tile::Op(ScalarOp::kMin, {each, steps - first}));
    return {b_.Let(body, "first_k", first * b_.Idx(shape_.k)), mine};
  }

  // NVRTC spends most of its time on the text that reads panels and the products that are written
  // out. Small tiles are for small problems, which run as fast either way: there the text of
  // reading stands once, in turns that read the panels of their step and multiply those of the step
  // before, of which the first turn has none. Large ones take up to 1.5 times as long so.
  void MainLoop(Block& body, const SimtPanel& a, const SimtPanel& b, const SimtThread& thread,
                const std::string& acc, const Slice& slice, Totals& totals) {
    const bool in_turns = shape_.m * shape_.n <= kSmallTile;
    if (!in_turns) {
      for (const SimtPanel* panel : {&a, &b}) panel->Read(body, slice.first_k);
      for (const SimtPanel* panel : {&a, &b}) panel->Write(body, b_.Idx(0));
      body.push_back({tile::Barrier{}});
    }
    Block loop;
    const Expr turn = Var("step");
    const Expr ahead = in_turns ? turn : turn + b_.Idx(1);
    const Expr next = b_.Let(loop, "next_k", slice.first_k + ahead * b_.Idx(shape_.k));
    // Past the end everything is out of range (or of the next slice): read, but never multiplied.
    for (const SimtPanel* panel : {&a, &b}) panel->Read(loop, next);
    const Expr half = b_.Let(loop, "half", turn % b_.Idx(2));
    const Expr other = b_.Let(loop, "other", b_.Idx(1) - half);
    Block multiply;
    const Expr a_at = a.Corner(multiply, in_turns ? other : half, thread.m);
    const Expr b_at = b.Corner(multiply, in_turns ? other : half, thread.n);
    const auto product = [&](Block& one, const Expr& kk) {
      const std::string left = a.Fragment(one, kk, a_at, x_.patch.per_m, x_.stride_m());
      const std::string right = b.Fragment(one, kk, b_at, x_.patch.per_n, x_.stride_n());
      Multiply(one, left, right, acc);
    };
    EachDepth(multiply, in_turns ? kWrittenOut : shape_.k, product);
    if (in_turns) {
      totals.AfterStep(multiply, turn - b_.Idx(1), acc);
      When(loop, tile::Lt(b_.Idx(0), turn), std::move(multiply));
    } else {
      std::ranges::move(multiply, std::back_inserter(loop));
    }
    for (const SimtPanel* panel : {&a, &b}) panel->Write(loop, in_turns ? half : other);
    loop.push_back({tile::Barrier{}});
    if (!in_turns) totals.AfterStep(loop, turn, acc);
    const Expr turns = in_turns ? slice.steps + b_.Idx(1) : slice.steps;
    body.push_back({tile::For{"step", t(), turns, Bind::kSerial, std::move(loop)}});
    totals.Finish(body, acc);
  }

  // emit(block, kk) for each depth of the panels, `written_out` of them in the text.
  template <class F>
  void EachDepth(Block& out, int written_out, F&& emit) {
    const auto some = [&](Block& block, const Expr& first) {
      Loop(block, "kk", b_.Idx(written_out), Bind::kUnroll,
           [&](Block& inner, const Expr& kk) { emit(inner, first ? first + kk : kk); });
    };
    if (written_out == shape_.k) return some(out, {});
    Loop(out, "part", b_.Idx(shape_.k / written_out), Bind::kSerial,
         [&](Block& block, const Expr& part) { some(block, part * b_.Idx(written_out)); });
  }

  void Multiply(Block& out, const std::string& a, const std::string& b, const std::string& acc) {
    const DType type = c_.accumulator;
    Loop(out, "i", b_.Idx(x_.patch.per_m), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(x_.patch.per_n), Bind::kUnroll, [&](Block& one, const Expr& j) {
        const Expr slot = i * b_.Idx(x_.patch.per_n) + j;
        const Expr sum = tile::Op(ScalarOp::kFma, {tile::Load(a, type, i), tile::Load(b, type, j),
                                                   tile::Load(acc, type, slot)});
        one.push_back({tile::Store{acc, slot, sum}});
      });
    });
  }

  const Target& target_;
  SimtContext x_;
  int64_t slices_;
  const EpilogueReductions& reductions_;
};

}  // namespace

SimtPatch PatchOf(const SimtKnobs& knobs, DType accumulator) {
  const int places = knobs.tile_m * knobs.tile_n;
  SimtPatch patch{
      .threads = std::clamp(knobs.threads, std::max(places / kMostPerThread, kWarpLanes),
                            std::max(places / kLeastPerThread, kWarpLanes)),
      .lane = 16 / SizeOf(accumulator),
      .per_m = 4,
      .per_n = 4,
      .lanes_n = 8};
  const int each = places / patch.threads;
  if (each >= 32) patch.per_m = 8;
  if (each >= 64) patch.per_n = 8;
  patch.lanes_n = std::min(8, patch.across(knobs.tile_n));
  return patch;
}

int64_t SimtSharedBytes(const SimtKnobs& knobs, DType accumulator, int reductions) {
  const int64_t rows = int64_t{knobs.tile_m} + knobs.tile_n + 2 * kSimtPadding;
  const int64_t warps = PatchOf(knobs, accumulator).threads / kWarpLanes;
  const int64_t sums = warps * std::max(knobs.tile_m, knobs.tile_n) * 8;  // at most
  return 2 * rows * knobs.tile_k * SizeOf(accumulator) + reductions * sums;
}

int64_t SimtSlices(const ContractionSizes& size, int reductions, const Target& target,
                   const SimtKnobs& knobs) {
  if (reductions > 0) return 1;
  const int64_t blocks = CeilDiv(size.m, knobs.tile_m) * CeilDiv(size.n, knobs.tile_n) * size.batch;
  return ChooseSlices(target, size, blocks, CeilDiv(size.k, knobs.tile_k), kLeastSteps,
                      knobs.slices);
}

Lowered LowerSimtGpu(const EpilogueReductions& group, const Target& target,
                     const SimtKnobs& knobs) {
  return SimtGpuKernel(group, target, knobs).Lower();
}

}  // namespace kiln::compiler
