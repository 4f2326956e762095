// contract_simt on the CPU: a task makes a TMxTN tile. It packs 64-deep panels [k][row] of A and B
// into task-local arrays, then runs 4x16 patches over them in vector registers.
#include "compiler/engines/contract_simt/schedules.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kDepth = 64;
constexpr int kPatchM = 4, kPatchN = 16;  // in registers

class SimtCpuKernel : private ContractTiles {
 public:
  SimtCpuKernel(const EpilogueReductions& group, const Target& target, int tile_m, int tile_n)
      : ContractTiles(group.tile(), target, {tile_m, tile_n, kDepth},
                      fmt::format("contract_simt: tile {}x{}x{}", tile_m, tile_n, kDepth)),
        tile_m_(tile_m),
        tile_n_(tile_n),
        depth_(kDepth),
        target_(target),
        totals_(b_, c_.accumulator, c_.k.size(), kDepth, kMostTerms),
        partial_(group, c_.batch.size(), {c_.m.size(), tiles_n_}, {c_.n.size(), tiles_m_}, true),
        reductions_(group, partial_, b_, 1),
        reduces_(!group.empty()) {}

  Lowered Lower() {
    Lowered scratch;
    partial_.Allocate(scratch);
    Block body = Prepare();
    MainLoop(body);
    if (reduces_) {
      const auto slot_itself = [](const Expr& slot) { return slot; };
      reductions_.Declare(body,
                          {.extent = tile_m_,
                           .slots = tile_m_,
                           .place = slot_itself,
                           .first = first_m_,
                           .size = m_size_,
                           .part = Var("by")},
                          {.extent = tile_n_,
                           .slots = tile_n_,
                           .place = slot_itself,
                           .first = first_n_,
                           .size = n_size_,
                           .part = tile_row_});
    }
    Epilogue(body);
    if (reduces_) reductions_.Finish(body, batch_number_);
    Lowered lowered = Finish(std::move(body), 1);
    lowered.scratch_bytes = std::move(scratch.scratch_bytes);
    partial_.Finish(target_, lowered);
    return lowered;
  }

 private:
  void Stage(Block& out, bool is_a, const Expr& row, const Expr& k, const Expr& place) {
    StageElement(out, is_a, row, k, c_.accumulator, is_a ? a_ : bp_, place);
  }
  Expr MultiplyAdd(Expr a, Expr b, Expr acc) const {
    return tile::Op(ScalarOp::kFma, {std::move(a), std::move(b), std::move(acc)});
  }
  Expr Element(const std::string& array, Expr index) const {
    return tile::Load(array, c_.accumulator, std::move(index));
  }

  void Clear(Block& out, const std::string& array, int64_t size, Bind bind) {
    Loop(out, "z", b_.Idx(size), bind, [&](Block& body, const Expr& z) {
      body.push_back({tile::Store{array, z, Zero(c_.accumulator)}});
    });
  }

  void MainLoop(Block& body) {
    a_ = b_.Name("a_panel");
    bp_ = b_.Name("b_panel");
    acc_ = b_.Name("acc");
    body.push_back({tile::Alloc{a_, c_.accumulator, tile::Space::kReg, int64_t{depth_} * tile_m_}});
    body.push_back(
        {tile::Alloc{bp_, c_.accumulator, tile::Space::kReg, int64_t{depth_} * tile_n_}});
    body.push_back(
        {tile::Alloc{acc_, c_.accumulator, tile::Space::kReg, int64_t{tile_m_} * tile_n_}});
    Clear(body, acc_, int64_t{tile_m_} * tile_n_, Bind::kVector);
    totals_.Declare(body, int64_t{tile_m_} * tile_n_, Bind::kVector);
    Block loop;
    const Expr first_k = b_.Let(loop, "first_k", Var("step") * b_.Idx(depth_));
    StagePanel(loop, true, first_k);
    StagePanel(loop, false, first_k);
    Loop(loop, "pi", b_.Idx(tile_m_ / kPatchM), Bind::kSerial, [&](Block& rows, const Expr& pi) {
      Loop(rows, "pj", b_.Idx(tile_n_ / kPatchN), Bind::kSerial,
           [&](Block& cols, const Expr& pj) { Patch(cols, pi, pj); });
    });
    totals_.AfterStep(loop, Var("step"), acc_);
    body.push_back(
        {tile::For{"step", t(), CeilDivExpr(k_size_, depth_), Bind::kSerial, std::move(loop)}});
    totals_.Finish(body, acc_);
  }

  void StagePanel(Block& loop, bool is_a, const Expr& first_k) {
    const int rows = is_a ? tile_m_ : tile_n_;
    Loop(loop, "kk", b_.Idx(depth_), Bind::kSerial, [&](Block& ks, const Expr& kk) {
      Loop(ks, "row", b_.Idx(rows), Bind::kSerial, [&](Block& one, const Expr& row) {
        const Expr global_row = b_.Let(one, is_a ? "m" : "n", (is_a ? first_m_ : first_n_) + row);
        Stage(one, is_a, global_row, b_.Let(one, "k", first_k + kk), kk * b_.Idx(rows) + row);
      });
    });
  }

  // acc[pi*4 .. +4][pj*16 .. +16) += A panel x B panel, in registers over the depth of the panel: a
  // sum of its own, which keeps chains short.
  void Patch(Block& out, const Expr& pi, const Expr& pj) {
    const std::string patch = b_.Name("patch");
    out.push_back({tile::Alloc{patch, c_.accumulator, tile::Space::kReg, kPatchM * kPatchN}});
    const auto each = [&](Block& block, auto&& fill) {
      Loop(block, "i", b_.Idx(kPatchM), Bind::kUnroll, [&](Block& rows, const Expr& i) {
        Loop(rows, "j", b_.Idx(kPatchN), Bind::kVector,
             [&](Block& one, const Expr& j) { fill(one, i, j); });
      });
    };
    const auto slot = [&](const Expr& i, const Expr& j) { return i * b_.Idx(kPatchN) + j; };
    const auto place = [&](const Expr& i, const Expr& j) {
      return (pi * b_.Idx(kPatchM) + i) * b_.Idx(tile_n_) + pj * b_.Idx(kPatchN) + j;
    };
    each(out, [&](Block& one, const Expr& i, const Expr& j) {
      one.push_back({tile::Store{patch, slot(i, j), Zero(c_.accumulator)}});
    });
    Loop(out, "kk", b_.Idx(depth_), Bind::kSerial, [&](Block& ks, const Expr& kk) {
      each(ks, [&](Block& one, const Expr& i, const Expr& j) {
        const Expr av = Element(a_, kk * b_.Idx(tile_m_) + pi * b_.Idx(kPatchM) + i);
        const Expr bv = Element(bp_, kk * b_.Idx(tile_n_) + pj * b_.Idx(kPatchN) + j);
        one.push_back(
            {tile::Store{patch, slot(i, j), MultiplyAdd(av, bv, Element(patch, slot(i, j)))}});
      });
    });
    each(out, [&](Block& one, const Expr& i, const Expr& j) {
      const Expr sum = Element(acc_, place(i, j)) + Element(patch, slot(i, j));
      one.push_back({tile::Store{acc_, place(i, j), sum}});
    });
  }

  void Epilogue(Block& body) {
    Loop(body, "i", b_.Idx(tile_m_), Bind::kSerial, [&](Block& rows, const Expr& i) {
      const Expr m = b_.Let(rows, "m", first_m_ + i);
      Loop(rows, "j", b_.Idx(tile_n_), Bind::kSerial, [&](Block& one, const Expr& j) {
        Taken taken;
        if (reduces_)
          taken = [&](Block& out, ValueScope& values, const Index& at) {
            reductions_.Add(out, values, at, i, j);
          };
        StoreElement(one, m, b_.Let(one, "n", first_n_ + j), Element(acc_, i * b_.Idx(tile_n_) + j),
                     taken);
      });
    });
  }

  int tile_m_, tile_n_, depth_;
  const Target& target_;
  Totals totals_;
  PartialResults partial_;
  TileReductions reductions_;
  bool reduces_;
  std::string a_, bp_, acc_;
};

}  // namespace

Lowered LowerSimtCpu(const EpilogueReductions& group, const Target& target, int tile_m,
                     int tile_n) {
  return SimtCpuKernel(group, target, tile_m, tile_n).Lower();
}

}  // namespace kiln::compiler
