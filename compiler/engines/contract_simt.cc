// The contract_simt engine: a tiled implicit matrix product (contraction.h).
//
//   GPU   a block of 256 threads makes a TMxTN tile of C, 16 deep steps through shared memory, each
//         thread a (TM/16)x(TN/16) patch, strided by 16 so that shared memory reads are broadcast
//         or conflict-free
//   CPU   a task makes a TMxTN tile: packs 64-deep panels of A and B, then 4x16 patches in vector
//         registers
//
// Prologues run where an operand is read: out-of-range and padded positions are zero *after* the
// prologue. Epilogues run on the accumulators, rounded to the contraction's output type first.
#include "compiler/engines/contract_simt.h"

#include <algorithm>

#include "compiler/engines/contract_tiles.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/vectors.h"

namespace kiln::compiler {
namespace {

using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kTileDomain[] = {64, 32, 128};
constexpr KnobRow kKnobs[] = {
    {.name = "tile_m", .cudnn_type = kKnobTileM, .domain = kTileDomain},
    {.name = "tile_n", .cudnn_type = kKnobTileN, .domain = kTileDomain},
};
enum { kTileM, kTileN };

constexpr int kThreads = 256;
constexpr int kThreadGrid = 16;  // threads stand 16 x 16 over the tile
constexpr int kGpuDepth = 16;
constexpr int kCpuDepth = 64;
constexpr int kPatchM = 4, kPatchN = 16;  // CPU registers

class Schedule : private ContractTiles {
 public:
  Schedule(const Group& group, const Target& target, int tile_m, int tile_n)
      : ContractTiles(group, target, {tile_m, tile_n, target.is_cuda() ? kGpuDepth : kCpuDepth},
                      fmt::format("contract_simt: tile {}x{}x{}", tile_m, tile_n,
                                  target.is_cuda() ? kGpuDepth : kCpuDepth)),
        gpu_(target.is_cuda()),
        tile_m_(tile_m),
        tile_n_(tile_n),
        depth_(shape_.k) {}

  Lowered Lower() {
    Block body = Prepare();
    gpu_ ? MainLoopGpu(body) : MainLoopCpu(body);
    gpu_ ? EpilogueGpu(body) : EpilogueCpu(body);
    return Finish(std::move(body), gpu_ ? kThreads : 1);
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

  // ---- GPU: panels [k][row] in shared memory, pitch + 1 against conflicts of the transposing
  // store ------
  void MainLoopGpu(Block& body) {
    a_ = b_.Name("a_panel");
    bp_ = b_.Name("b_panel");
    acc_ = b_.Name("acc");
    const int per_m = tile_m_ / kThreadGrid, per_n = tile_n_ / kThreadGrid;
    body.push_back(
        {tile::Alloc{a_, c_.accumulator, tile::Space::kShared, int64_t{depth_} * (tile_m_ + 1)}});
    body.push_back(
        {tile::Alloc{bp_, c_.accumulator, tile::Space::kShared, int64_t{depth_} * (tile_n_ + 1)}});
    body.push_back({tile::Alloc{acc_, c_.accumulator, tile::Space::kReg, int64_t{per_m} * per_n}});
    Clear(body, acc_, int64_t{per_m} * per_n, Bind::kUnroll);
    thread_row_ = b_.Let(body, "thread_row", Var("tx") / b_.Idx(kThreadGrid));
    thread_col_ = b_.Let(body, "thread_col", Var("tx") % b_.Idx(kThreadGrid));

    Block loop;
    const Expr first_k = b_.Let(loop, "first_k", Var("step") * b_.Idx(depth_));
    StagePanelGpu(loop, true, first_k);
    StagePanelGpu(loop, false, first_k);
    loop.push_back({tile::Barrier{}});
    Loop(loop, "kk", b_.Idx(depth_), Bind::kUnroll, [&](Block& inner, const Expr& kk) {
      Loop(inner, "i", b_.Idx(per_m), Bind::kUnroll, [&](Block& rows, const Expr& i) {
        Loop(rows, "j", b_.Idx(per_n), Bind::kUnroll, [&](Block& cols, const Expr& j) {
          const Expr slot = i * b_.Idx(per_n) + j;
          const Expr av =
              Element(a_, kk * b_.Idx(tile_m_ + 1) + i * b_.Idx(kThreadGrid) + thread_row_);
          const Expr bv =
              Element(bp_, kk * b_.Idx(tile_n_ + 1) + j * b_.Idx(kThreadGrid) + thread_col_);
          cols.push_back({tile::Store{acc_, slot, MultiplyAdd(av, bv, Element(acc_, slot))}});
        });
      });
    });
    loop.push_back({tile::Barrier{}});
    body.push_back(
        {tile::For{"step", t(), CeilDivExpr(k_size_, depth_), Bind::kSerial, std::move(loop)}});
  }

  // Neighbouring threads read neighbours in memory: along k, or along the rows.
  void StagePanelGpu(Block& loop, bool is_a, const Expr& first_k) {
    const int rows = is_a ? tile_m_ : tile_n_;
    const bool along_k = is_a ? c_.a_walks_k : c_.b_walks_k;
    Loop(loop, "e", b_.Idx(int64_t{rows} * depth_ / kThreads), Bind::kUnroll,
         [&](Block& one, const Expr& e) {
           const Expr flat = b_.Let(one, "flat", e * b_.Idx(kThreads) + Var("tx"));
           const Expr row = along_k ? flat / b_.Idx(depth_) : flat % b_.Idx(rows);
           const Expr kk = along_k ? flat % b_.Idx(depth_) : flat / b_.Idx(rows);
           const Expr place = b_.Let(one, "place", kk * b_.Idx(rows + 1) + row);
           const Expr global_row =
               b_.Let(one, is_a ? "m" : "n", (is_a ? first_m_ : first_n_) + row);
           Stage(one, is_a, global_row, b_.Let(one, "k", first_k + kk), place);
         });
  }

  void EpilogueGpu(Block& body) {
    const int per_m = tile_m_ / kThreadGrid, per_n = tile_n_ / kThreadGrid;
    Loop(body, "i", b_.Idx(per_m), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(per_n), Bind::kUnroll, [&](Block& cols, const Expr& j) {
        const Expr m = b_.Let(cols, "m", first_m_ + i * b_.Idx(kThreadGrid) + thread_row_);
        const Expr n = b_.Let(cols, "n", first_n_ + j * b_.Idx(kThreadGrid) + thread_col_);
        StoreElement(cols, m, n, Element(acc_, i * b_.Idx(per_n) + j));
      });
    });
  }

  // ---- CPU: panels [k][row] in task-local arrays
  // ---------------------------------------------------------
  void MainLoopCpu(Block& body) {
    a_ = b_.Name("a_panel");
    bp_ = b_.Name("b_panel");
    acc_ = b_.Name("acc");
    body.push_back({tile::Alloc{a_, c_.accumulator, tile::Space::kReg, int64_t{depth_} * tile_m_}});
    body.push_back(
        {tile::Alloc{bp_, c_.accumulator, tile::Space::kReg, int64_t{depth_} * tile_n_}});
    body.push_back(
        {tile::Alloc{acc_, c_.accumulator, tile::Space::kReg, int64_t{tile_m_} * tile_n_}});
    Clear(body, acc_, int64_t{tile_m_} * tile_n_, Bind::kVector);
    Block loop;
    const Expr first_k = b_.Let(loop, "first_k", Var("step") * b_.Idx(depth_));
    StagePanelCpu(loop, true, first_k);
    StagePanelCpu(loop, false, first_k);
    Loop(loop, "pi", b_.Idx(tile_m_ / kPatchM), Bind::kSerial, [&](Block& rows, const Expr& pi) {
      Loop(rows, "pj", b_.Idx(tile_n_ / kPatchN), Bind::kSerial,
           [&](Block& cols, const Expr& pj) { Patch(cols, pi, pj); });
    });
    body.push_back(
        {tile::For{"step", t(), CeilDivExpr(k_size_, depth_), Bind::kSerial, std::move(loop)}});
  }

  void StagePanelCpu(Block& loop, bool is_a, const Expr& first_k) {
    const int rows = is_a ? tile_m_ : tile_n_;
    Loop(loop, "kk", b_.Idx(depth_), Bind::kSerial, [&](Block& ks, const Expr& kk) {
      Loop(ks, "row", b_.Idx(rows), Bind::kSerial, [&](Block& one, const Expr& row) {
        const Expr global_row = b_.Let(one, is_a ? "m" : "n", (is_a ? first_m_ : first_n_) + row);
        Stage(one, is_a, global_row, b_.Let(one, "k", first_k + kk), kk * b_.Idx(rows) + row);
      });
    });
  }

  // acc[pi*4 .. +4][pj*16 .. +16) += A panel x B panel, in registers over the depth of the panel.
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
      one.push_back({tile::Store{patch, slot(i, j), Element(acc_, place(i, j))}});
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
      one.push_back({tile::Store{acc_, place(i, j), Element(patch, slot(i, j))}});
    });
  }

  void EpilogueCpu(Block& body) {
    Loop(body, "i", b_.Idx(tile_m_), Bind::kSerial, [&](Block& rows, const Expr& i) {
      const Expr m = b_.Let(rows, "m", first_m_ + i);
      Loop(rows, "j", b_.Idx(tile_n_), Bind::kSerial, [&](Block& one, const Expr& j) {
        StoreElement(one, m, b_.Let(one, "n", first_n_ + j),
                     Element(acc_, i * b_.Idx(tile_n_) + j));
      });
    });
  }

  bool gpu_;
  int tile_m_, tile_n_, depth_;
  Expr thread_row_, thread_col_;
  std::string a_, bp_, acc_;
};

Status Supports(const Group& group, const Target&) {
  if (group.kind == GroupKind::kContract) return {};
  return Status::Error(Code::kUnsupportedGraphPattern,
                       "the group has no contraction as its anchor");
}

Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  return Schedule(group, target, knobs[kTileM], knobs[kTileN]).Lower();
}

double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  // Per SM on a 64x64 tile: an H200 showed 0.14 TFLOP/s on a matmul and less on convolutions;
  // patches of other sizes reuse registers more or less.
  constexpr double kFlops = 0.12e12, kBytesPerSecond = 3.5e12, kLaunchSeconds = 2e-6;
  const double reuse = 0.5 + 0.5 * std::min({knobs[kTileM], knobs[kTileN], 64}) / 64;
  return kLaunchSeconds +
         TiledSeconds(group, target, {knobs[kTileM], knobs[kTileN], kGpuDepth}, kFlops * reuse) +
         static_cast<double>(FloorBytes(group)) / kBytesPerSecond;
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};

}  // namespace

const Engine kContractSimtEngine = {.name = "contract_simt",
                                    .version = 1,
                                    .knobs = kKnobs,
                                    .notes = {.numerical = {}, .behavioral = kBehavior},
                                    .supports = Supports,
                                    .cost = Cost,
                                    .lower = Lower};

}  // namespace kiln::compiler
