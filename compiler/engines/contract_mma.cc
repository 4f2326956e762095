// The contract_mma engine: the tiled implicit matrix product of contraction.h on mma.m16n8k16.
//
//   block    256 threads make a TMxTN tile of C in steps of 32 along k; its 8 warps stand 2 x 4
//            over the tile
//   panels   a_panel[TM][32], b_panel[TN][32] in shared memory, k fastest, rows padded by 16 bytes:
//            the eight rows of a fragment start in different banks. Two of each: while one is
//            multiplied, the next is read
//   reading  16 bytes a thread along k where the operand lies so in memory and has no prologue (its
//            guard holds for all 8 elements, since they share row and filter tap); else element by
//            element, prologue included
//
//   step s:   global(s+1) → registers      panels(s) → fragments → mma      registers → panels(s+1)
//             barrier
#include "compiler/engines/contract_mma.h"

#include <algorithm>

#include "compiler/engines/contract_tiles.h"
#include "compiler/engines/knob_types.h"
#include "compiler/engines/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kTileDomain[] = {128, 64};
constexpr KnobRow kKnobs[] = {
    {.name = "tile_m", .cudnn_type = kKnobTileM, .domain = kTileDomain},
    {.name = "tile_n", .cudnn_type = kKnobTileN, .domain = kTileDomain},
};
enum { kTileM, kTileN };

constexpr int kThreads = 256, kWarp = 32;
constexpr int kWarpsM = 2, kWarpsN = 4;
constexpr int kDepth = 32;
constexpr int kChunk = 8;                // elements of one 16-byte read
constexpr int kPitch = kDepth + kChunk;  // of a panel's row
constexpr int kMmaM = 16, kMmaN = 8, kMmaK = 16;

class Schedule : private ContractTiles {
 public:
  Schedule(const Group& group, const Target& target, int tile_m, int tile_n)
      : ContractTiles(group, target, {tile_m, tile_n, kDepth},
                      fmt::format("contract_mma: tile {}x{}x{}", tile_m, tile_n, kDepth)),
        type_(group.graph[c_.a].dtype),
        a_{.is_a = true,
           .rows = tile_m,
           .along_k = c_.a_walks_k,
           .wide = IsWide(c_.a, c_.a_walks_k)},
        b_side_{.is_a = false,
                .rows = tile_n,
                .along_k = c_.b_walks_k,
                .wide = IsWide(c_.b, c_.b_walks_k)},
        tiles_per_warp_m_(tile_m / kWarpsM / kMmaM),
        tiles_per_warp_n_(tile_n / kWarpsN / kMmaN) {}

  Lowered Lower() {
    Block body = Prepare();
    Declare(body);
    ReadPanel(body, a_, b_.Idx(0));
    ReadPanel(body, b_side_, b_.Idx(0));
    WritePanel(body, a_, b_.Idx(0));
    WritePanel(body, b_side_, b_.Idx(0));
    body.push_back({tile::Barrier{}});
    MainLoop(body);
    Epilogue(body);
    return Finish(std::move(body), kThreads);
  }

 private:
  // One operand's way from memory to fragments.
  struct Side {
    bool is_a;
    int rows;
    bool along_k;  // neighbouring threads read along k, else along the rows
    bool wide;     // 16 bytes at a time
    std::string panel = {}, staged = {}, fragment = {};

    int chunks() const { return rows * kDepth / kChunk / kThreads; }  // of a thread
    int64_t panel_size() const { return int64_t{rows} * kPitch; }
  };

  // Whether 8 elements along k, from a multiple of 8 on, are 16 aligned bytes of memory.
  bool IsWide(TensorId id, bool walks_k) const {
    const Tensor& x = group_.graph[id];
    const int64_t innermost = c_.k.values.empty() ? 0 : c_.k.values.back();
    if (!walks_k || graph::Producers(group_.graph)[id] >= 0 || x.by_value || x.alignment < 16)
      return false;
    if (innermost % kChunk != 0) return false;
    int64_t contiguous = 0;
    for (int64_t d = 0; d < x.rank(); ++d) {
      if (x.dims[d] == 1) continue;
      if (x.strides[d] == 1)
        ++contiguous;
      else if (x.strides[d] % kChunk != 0)
        return false;
    }
    // The contiguous dim is k's innermost: an extent of 1 there would leave another dim with
    // stride 1.
    return contiguous == 1 && ContiguousIsDepth(x);
  }
  bool ContiguousIsDepth(const Tensor& x) const {
    const bool matmul = ContractionOf(group_).op == graph::GraphOp::kMatmul;
    // Channels are innermost along k where the activations have them so, whatever the filter's
    // layout is.
    if (!matmul && !c_.a_walks_k) return false;
    const bool is_b_matmul = matmul && &x == &group_.graph[c_.b];
    const int64_t depth_dim = !matmul ? 1 : is_b_matmul ? x.rank() - 2 : x.rank() - 1;
    return x.strides[depth_dim] == 1 && x.dims[depth_dim] != 1;
  }

  void Declare(Block& body) {
    for (Side* side : {&a_, &b_side_}) {
      const std::string name = side->is_a ? "a" : "b";
      side->panel = b_.Name(name + "_panel");
      side->staged = b_.Name(name + "_staged");
      side->fragment = b_.Name(name + "_fragment");
      body.push_back(
          {tile::Alloc{side->panel, type_, tile::Space::kShared, 2 * side->panel_size()}});
      body.push_back(
          {tile::Alloc{side->staged, type_, tile::Space::kReg, int64_t{side->chunks()} * kChunk}});
    }
    acc_ = b_.Name("acc");
    const int64_t accumulators = int64_t{tiles_per_warp_m_} * tiles_per_warp_n_ * 4;
    body.push_back({tile::Alloc{acc_, DType::kF32, tile::Space::kReg, accumulators}});
    Loop(body, "z", b_.Idx(accumulators), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(DType::kF32)}});
    });
    const Expr lane = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    const Expr warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    g_ = b_.Let(body, "g", lane / b_.Idx(4));
    t2_ = b_.Let(body, "t2", lane % b_.Idx(4) * b_.Idx(2));
    warp_m_ = b_.Let(body, "warp_m", warp / b_.Idx(kWarpsN) * b_.Idx(tiles_per_warp_m_ * kMmaM));
    warp_n_ = b_.Let(body, "warp_n", warp % b_.Idx(kWarpsN) * b_.Idx(tiles_per_warp_n_ * kMmaN));
  }

  // Row and depth within the panel of a thread's chunk.
  struct Place {
    Expr row, depth;
  };
  Place ChunkPlace(Block& out, const Side& side, const Expr& chunk) {
    const Expr flat = b_.Let(out, "flat", chunk * b_.Idx(kThreads) + Var("tx"));
    constexpr int kPerRow = kDepth / kChunk;
    const Expr row = side.along_k ? flat / b_.Idx(kPerRow) : flat % b_.Idx(side.rows);
    const Expr depth =
        (side.along_k ? flat % b_.Idx(kPerRow) : flat / b_.Idx(side.rows)) * b_.Idx(kChunk);
    return {b_.Let(out, "row", row), b_.Let(out, "depth", depth)};
  }

  // Global memory → registers, for the step that begins at first_k.
  void ReadPanel(Block& out, const Side& side, const Expr& first_k) {
    Loop(out, "c", b_.Idx(side.chunks()), Bind::kUnroll, [&](Block& one, const Expr& c) {
      const Place place = ChunkPlace(one, side, c);
      const Expr row =
          b_.Let(one, side.is_a ? "m" : "n", (side.is_a ? first_m_ : first_n_) + place.row);
      const Expr k = b_.Let(one, "k", first_k + place.depth);
      if (side.wide) return ReadChunk(one, side, row, k, c * b_.Idx(kChunk));
      Loop(one, "e", b_.Idx(kChunk), Bind::kUnroll, [&](Block& element, const Expr& e) {
        StageElement(element, side.is_a, row, b_.Let(element, "ke", k + e), type_, side.staged,
                     c * b_.Idx(kChunk) + e);
      });
    });
  }

  void ReadChunk(Block& out, const Side& side, const Expr& row, const Expr& k, const Expr& at) {
    Loop(out, "e", b_.Idx(kChunk), Bind::kUnroll, [&](Block& clear, const Expr& e) {
      clear.push_back({tile::Store{side.staged, at + e, Zero(type_)}});
    });
    Block read;
    const TensorId id = side.is_a ? c_.a : c_.b;
    const Operand operand = Locate(read, side.is_a, row, k);
    Block inside;
    Block& target = operand.guard ? inside : read;
    WideCopy(target, type_, side.staged, at, b_.Pointer(id),
             b_.Let(target, "from", b_.Offset(id, operand.index)), kChunk);
    if (operand.guard) read.push_back({tile::If{operand.guard, std::move(inside), {}}});
    out.push_back({tile::If{InRange(side.is_a, row, k), std::move(read), {}}});
  }

  // Registers → the panel of a step.
  void WritePanel(Block& out, const Side& side, const Expr& which) {
    Loop(out, "c", b_.Idx(side.chunks()), Bind::kUnroll, [&](Block& one, const Expr& c) {
      const Place place = ChunkPlace(one, side, c);
      const Expr to = which * b_.Idx(side.panel_size()) + place.row * b_.Idx(kPitch) + place.depth;
      WideCopy(one, type_, side.panel, to, side.staged, c * b_.Idx(kChunk), kChunk);
    });
  }

  void MainLoop(Block& body) {
    Block loop;
    const Expr step = Var("step");
    const Expr next = b_.Let(loop, "next_k", (step + b_.Idx(1)) * b_.Idx(kDepth));
    // Past the end everything is out of range: zeros, and no reads.
    ReadPanel(loop, a_, next);
    ReadPanel(loop, b_side_, next);
    const Expr current = b_.Let(loop, "current", step % b_.Idx(2));
    Loop(loop, "kk", b_.Idx(kDepth / kMmaK), Bind::kUnroll,
         [&](Block& inner, const Expr& kk) { Multiply(inner, current, kk); });
    const Expr other = b_.Let(loop, "other", b_.Idx(1) - current);
    WritePanel(loop, a_, other);
    WritePanel(loop, b_side_, other);
    loop.push_back({tile::Barrier{}});
    body.push_back(
        {tile::For{"step", t(), CeilDivExpr(k_size_, kDepth), Bind::kSerial, std::move(loop)}});
  }

  // Two neighbouring elements of a panel, for a fragment.
  void LoadPair(Block& out, const Side& side, const Expr& to, const Expr& which, const Expr& row,
                const Expr& depth) {
    const Expr from = which * b_.Idx(side.panel_size()) + row * b_.Idx(kPitch) + depth;
    WideCopy(out, type_, side.fragment, to, side.panel, from, 2);
  }

  void Multiply(Block& out, const Expr& current, const Expr& kk) {
    out.push_back(
        {tile::Alloc{a_.fragment, type_, tile::Space::kReg, int64_t{tiles_per_warp_m_} * 8}});
    out.push_back(
        {tile::Alloc{b_side_.fragment, type_, tile::Space::kReg, int64_t{tiles_per_warp_n_} * 4}});
    const Expr depth = b_.Let(out, "pair", kk * b_.Idx(kMmaK) + t2_);
    Loop(out, "i", b_.Idx(tiles_per_warp_m_), Bind::kUnroll, [&](Block& one, const Expr& i) {
      const Expr row = b_.Let(one, "a_row", warp_m_ + i * b_.Idx(kMmaM) + g_);
      for (int pair = 0; pair < 4; ++pair) {
        LoadPair(one, a_, i * b_.Idx(8) + b_.Idx(pair * 2), current, row + b_.Idx(pair % 2 * 8),
                 depth + b_.Idx(pair / 2 * 8));
      }
    });
    Loop(out, "j", b_.Idx(tiles_per_warp_n_), Bind::kUnroll, [&](Block& one, const Expr& j) {
      const Expr row = b_.Let(one, "b_row", warp_n_ + j * b_.Idx(kMmaN) + g_);
      for (int pair = 0; pair < 2; ++pair)
        LoadPair(one, b_side_, j * b_.Idx(4) + b_.Idx(pair * 2), current, row,
                 depth + b_.Idx(pair * 8));
    });
    Loop(out, "i", b_.Idx(tiles_per_warp_m_), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(tiles_per_warp_n_), Bind::kUnroll, [&](Block& one, const Expr& j) {
        one.push_back({tile::Mma{acc_, (i * b_.Idx(tiles_per_warp_n_) + j) * b_.Idx(4), a_.fragment,
                                 i * b_.Idx(8), b_side_.fragment, j * b_.Idx(4)}});
      });
    });
  }

  void Epilogue(Block& body) {
    Loop(body, "i", b_.Idx(tiles_per_warp_m_), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(tiles_per_warp_n_), Bind::kUnroll, [&](Block& cols, const Expr& j) {
        Loop(cols, "e", b_.Idx(4), Bind::kUnroll, [&](Block& one, const Expr& e) {
          const Expr m = first_m_ + warp_m_ + i * b_.Idx(kMmaM) + g_ + e / b_.Idx(2) * b_.Idx(8);
          const Expr n = first_n_ + warp_n_ + j * b_.Idx(kMmaN) + t2_ + e % b_.Idx(2);
          const Expr slot = (i * b_.Idx(tiles_per_warp_n_) + j) * b_.Idx(4) + e;
          StoreElement(one, b_.Let(one, "om", m), b_.Let(one, "on", n),
                       tile::Load(acc_, DType::kF32, slot));
        });
      });
    });
  }

  DType type_;
  Side a_, b_side_;
  int tiles_per_warp_m_, tiles_per_warp_n_;
  std::string acc_;
  Expr g_, t2_, warp_m_, warp_n_;
};

Status Supports(const Group& group, const Target& target) {
  if (group.kind != GroupKind::kContract)
    return Status::Error(Code::kUnsupportedGraphPattern,
                         "the group has no contraction as its anchor");
  if (!target.is_cuda() || target.sm_version < 80)
    return Status::Error(Code::kArchMismatch, "mma.m16n8k16 needs sm_80 or later, the target is {}",
                         target.arch);
  const graph::Node& anchor = ContractionOf(group);
  const Tensor &a = group.graph[anchor.inputs[0]], &b = group.graph[anchor.inputs[1]];
  const bool halves = a.dtype == b.dtype && (a.dtype == DType::kF16 || a.dtype == DType::kBF16);
  if (!halves) {
    return Status::Error(Code::kUnsupportedDataType,
                         "operands are {} and {}; both must be f16 or both bf16",
                         Info(a.dtype).text, Info(b.dtype).text);
  }
  if (ArithmeticType(anchor.compute) != DType::kF32)
    return Status::Error(Code::kUnsupportedDataType, "compute type {} is not f32",
                         Info(anchor.compute).text);
  return {};
}

Result<Lowered> Lower(const Group& group, const Target& target, std::span<const int> knobs) {
  return Schedule(group, target, knobs[kTileM], knobs[kTileN]).Lower();
}

double Cost(const Group& group, const Target& target, std::span<const int> knobs) {
  // Per SM on a 128x128 tile; a smaller one reads more of the operands for each product.
  constexpr double kFlops = 1.5e12, kBytesPerSecond = 3.5e12, kLaunchSeconds = 3e-6;
  const double reuse = 0.5 + 0.5 * std::min(knobs[kTileM], knobs[kTileN]) / 128;
  return kLaunchSeconds +
         TiledSeconds(group, target, {knobs[kTileM], knobs[kTileN], kDepth}, kFlops * reuse) +
         static_cast<double>(FloorBytes(group)) / kBytesPerSecond;
}

constexpr int kBehavior[] = {kNoteRuntimeCompilation};
constexpr int kNumerical[] = {kNoteTensorCore};

}  // namespace

const Engine kContractMmaEngine = {.name = "contract_mma",
                                   .version = 1,
                                   .knobs = kKnobs,
                                   .notes = {.numerical = kNumerical, .behavioral = kBehavior},
                                   .supports = Supports,
                                   .cost = Cost,
                                   .lower = Lower};

}  // namespace kiln::compiler
