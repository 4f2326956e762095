// One block makes a TMxTN tile of C; its warps stand warps_m x warps_n over it.
//
//   ring       `stages` panels of A and B in shared memory. Operands that lie 16 aligned bytes at a
//              time along k or along their rows come by asynchronous copies; others element by
//              element through registers, prologue included
//   fragments  load_matrix, one k step of the tensor cores ahead of the products
//   tiles      in groups of kRaster rows, so that neighbours share operands in the L2
//
//   step s:   start filling slot s + stages - 1          (last read in step s - 1)
//             each k step but the last: fragments of the next | part of an element panel | products
//             wait for slot s + 1, barrier, its first fragments | products of the last k step
//
// What lies beyond the end of k is zeros. Epilogue: the four lanes that share a row of fragments
// exchange columns, so that each has 8 neighbours of one row, and stores them at once.
#include "compiler/engines/contract_mma/kernel.h"

#include <algorithm>
#include <optional>

#include "compiler/engines/contraction/epilogue.h"
#include "compiler/engines/contraction/epilogue_reductions.h"
#include "compiler/engines/contraction/split_sum.h"
#include "compiler/engines/contraction/tiles.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32, kMmaM = 16, kMmaN = 8;
constexpr int kRaster = 8;
constexpr int kLine = 8;  // columns that one lane has after the exchange
constexpr int kQuad = 4;  // n-tiles that take part in one

class Schedule : private ContractTiles {
 public:
  Schedule(const EpilogueReductions& group, const Target& target, const MmaPlan& plan)
      : ContractTiles(group.tile(), target, {plan.tile_m, plan.tile_n, plan.depth}, Describe(plan),
                      plan.swapped),
        target_(target),
        plan_(plan),
        a_(MakeSide(true)),
        bs_(MakeSide(false)),
        tiles_m_of_warp_(plan.tile_m / plan.warps_m / kMmaM),
        tiles_n_of_warp_(plan.tile_n / plan.warps_n / kMmaN),
        k_steps_(plan.depth / plan.mma_depth()),
        totals_(b_, c_.accumulator, CeilDiv(c_.k.size(), int64_t{plan.splits}), plan.depth,
                MostProducts(plan.type)),
        partial_(group, c_.batch.size(), plan.swapped ? AlongN() : AlongM(),
                 plan.swapped ? AlongM() : AlongN(), !plan.swapped),
        reductions_(group, partial_, b_, plan.threads()),
        reduces_(!group.empty()) {
    b_.Name("bz");
    plain_ = plan.swapped ? Swapped(c_) : c_;
  }

  Lowered Lower() {
    Lowered lowered;
    if (plan_.splits > 1) {
      const int64_t slices = plan_.form == SplitForm::kOrdered ? plan_.splits : 1;
      lowered.scratch_bytes = {slices * SliceElements() * SizeOf(c_.accumulator)};
      if (plan_.form == SplitForm::kAtomic) Clear(lowered);
    }
    partial_.Allocate(lowered);
    Block body = Place();
    Declare(body);
    Fill(body);
    MainLoop(body);
    Epilogue(body);
    if (reduces_) reductions_.Finish(body, batch_number_);
    Finish(std::move(body), lowered);
    if (plan_.splits > 1) Sum(lowered);
    partial_.Finish(target_, lowered);
    return lowered;
  }

 private:
  // One operand's way from memory to fragments.
  struct Side {
    bool is_a;
    OperandPath path;
    int rows, pitch, chunks;  // chunks of a panel that one thread brings
    int64_t size;             // of a panel
    std::string panel = {}, fragments = {}, places = {};
    Expr row_in = {}, k_in = {};  // where in a panel this thread's first asynchronous chunk stands
    Index row_index = {};         // kRows: the same for all of a thread's chunks
    Expr lane_at = {};            // where in a panel this lane's first matrix row stands
    bool async() const { return path != OperandPath::kElements; }
    bool along_k = true;  // kElements: neighbouring threads read along k
  };

  Side MakeSide(bool is_a) const {
    const int rows = is_a ? plan_.tile_m : plan_.tile_n;
    const OperandPath path = is_a ? plan_.a : plan_.b;
    return {.is_a = is_a,
            .path = path,
            .rows = rows,
            .pitch = plan_.Pitch(path, rows),
            .chunks = rows * plan_.depth / plan_.chunk() / plan_.threads(),
            .size = plan_.PanelElements(path, rows),
            .along_k = is_a ? c_.a_walks_k : c_.b_walks_k};
  }

  static std::string Describe(const MmaPlan& p) {
    static constexpr const char* kPaths[] = {"along k", "along rows", "by elements"};
    return fmt::format("contract_mma: tile {}x{}x{}, {} stages, {}x{} warps, A {}, B {}{}{}",
                       p.tile_m, p.tile_n, p.depth, p.stages, p.warps_m, p.warps_n,
                       kPaths[static_cast<int>(p.a)], kPaths[static_cast<int>(p.b)],
                       p.swapped ? ", transposed" : "",
                       p.splits == 1                   ? ""
                       : p.form == SplitForm::kOrdered ? ", k in slices"
                                                       : ", k in slices that are added atomically");
  }

  // ---- reductions of the result
  PartialAxis AlongM() const { return {c_.m.size(), tiles_n_}; }
  PartialAxis AlongN() const { return {c_.n.size(), tiles_m_}; }

  // Slots along n: 8 of each exchanged line; along m: one of each row of fragments.
  void DeclareReductions(Block& body, const Expr& t, const Expr& g) {
    const Expr warp = Var("tx") / b_.Idx(kWarp);
    TileSide rows{.extent = plan_.tile_m,
                  .slots = tiles_m_of_warp_ * 2,
                  .place = [=, this](const Expr& slot) { return warp_m_ + slot * b_.Idx(8) + g; },
                  .lane_masks = {1, 2},
                  .leads = Equals(t, 0),
                  .warps = plan_.warps_n,
                  .warp = warp % b_.Idx(plan_.warps_n),
                  .first = first_m_,
                  .size = m_size_,
                  .part = column_};
    TileSide columns{.extent = plan_.tile_n,
                     .slots = tiles_n_of_warp_ / kQuad * kLine,
                     .place =
                         [=, this](const Expr& slot) {
                           const Expr line = slot / b_.Idx(kLine) * b_.Idx(kQuad) + t;
                           return warp_n_ + line * b_.Idx(kLine) + slot % b_.Idx(kLine);
                         },
                     .lane_masks = {4, 8, 16},
                     .leads = Equals(g, 0),
                     .warps = plan_.warps_m,
                     .warp = warp / b_.Idx(plan_.warps_n),
                     .first = first_n_,
                     .size = n_size_,
                     .part = row_};
    // Reductions speak of the contraction's own axes.
    if (plan_.swapped) std::swap(rows, columns);
    reductions_.Declare(body, std::move(rows), std::move(columns));
  }

  // ---- split-K
  int64_t LinePitch() const { return AlignUp(std::max<int64_t>(c_.n.size(), 1), kLine); }
  int64_t SliceElements() const { return c_.batch.size() * c_.m.size() * LinePitch(); }

  EpilogueAxes Axes() const {
    return {.left_is_a = plan_.swapped, .left_size = c_.n.size(), .right_size = c_.m.size()};
  }

  void Sum(Lowered& lowered) {
    SumSplits(group_, target_,
              {.splits = plan_.form == SplitForm::kOrdered ? plan_.splits : 1,
               .batches = c_.batch.size(),
               .left_pitch = LinePitch(),
               .accumulator = c_.accumulator,
               .axes = Axes()},
              lowered);
  }

  // Zeros for the atomic sums.
  void Clear(Lowered& lowered) {
    constexpr int kThreads = 256, kVector = 4;
    KernelBuilder b(group_, target_, "contract_mma: clears the sums");
    for (const char* reserved : {"bx", "tx"}) b.Name(reserved);
    const int64_t vectors = SliceElements() / kVector, blocks = CeilDiv(vectors, kThreads);
    const std::string slice = b.Scratch(0, c_.accumulator, false), zeros = b.Name("zeros");
    Block body, inside;
    const Expr i = b.Let(body, "i", ThreadLinear(t(), kThreads));
    inside.push_back({tile::Alloc{zeros, c_.accumulator, tile::Space::kReg, kVector}});
    for (int e = 0; e < kVector; ++e)
      inside.push_back({tile::Store{zeros, b.Idx(e), Zero(c_.accumulator)}});
    WideCopy(inside, c_.accumulator, slice, i * b.Idx(kVector), zeros, b.Idx(0), kVector);
    body.push_back({tile::If{tile::Lt(i, b.Arg("vectors", vectors)), std::move(inside), {}}});
    b.Finish(BlockAndThread(t(), b.Arg("blocks", blocks), kThreads, std::move(body)),
             {blocks, 1, 1}, kThreads, lowered);
  }

  // ---- which tile, and which part of k
  Block Place() {
    Block body;
    m_size_ = b_.Arg("m_size", c_.m.size());
    n_size_ = b_.Arg("n_size", c_.n.size());
    k_size_ = b_.Arg("k_size", c_.k.size());
    const int64_t tiles = tiles_m_ * tiles_n_, group = kRaster * tiles_n_;
    const auto where =
        b_.Divide(body, Var("bx"), b_.Arg("tiles", tiles), std::max<int64_t>(tiles, 1), "tile");
    batch_number_ = where.quotient;
    batch_ = b_.Unravel(body, where.quotient, c_.batch.extents, c_.batch.values, "batch");
    const auto in = b_.Divide(body, where.remainder, b_.Arg("group_tiles", group),
                              std::max<int64_t>(group, 1), "in_group");
    const Expr first = b_.Let(body, "group_row", in.quotient * b_.Idx(kRaster));
    const Expr rows =
        b_.Let(body, "group_rows",
               tile::Op(ScalarOp::kMin, {b_.Arg("tiles_m", tiles_m_) - first, b_.Idx(kRaster)}));
    const Expr column = b_.Let(body, "tile_n", in.remainder / rows);
    Expr row = first + in.remainder - column * rows;
    if (reduces_) row = b_.Let(body, "tile_m", row);
    column_ = column;
    row_ = row;
    first_m_ = b_.Let(body, "first_m", row * b_.Idx(plan_.tile_m));
    first_n_ = b_.Let(body, "first_n", column * b_.Idx(plan_.tile_n));
    steps_ = CeilDivExpr(k_size_, plan_.depth);
    first_k_ = b_.Idx(0);
    if (plan_.splits > 1) {
      const int64_t steps = CeilDiv(CeilDiv(c_.k.size(), plan_.depth), plan_.splits);
      steps_ = b_.Arg("steps", steps);
      const Expr slice = b_.Arg("slice_k", steps * plan_.depth);
      first_k_ = b_.Let(body, "first_k", Var("bz") * slice);
      k_size_ = b_.Let(body, "end_k", tile::Op(ScalarOp::kMin, {k_size_, first_k_ + slice}));
    }
    return body;
  }

  void Finish(Block body, Lowered& lowered) {
    const auto wrap = [&](const char* var, Expr extent, Bind bind) {
      Block out;
      out.push_back({tile::For{var, t(), std::move(extent), bind, std::move(body)}});
      body = std::move(out);
    };
    wrap("tx", b_.Idx(plan_.threads()), Bind::kThreadX);
    const int64_t blocks = tiles_m_ * tiles_n_ * c_.batch.size();
    if (plan_.splits > 1) wrap("bz", b_.Arg("splits", plan_.splits), Bind::kBlockZ);
    wrap("bx", b_.Arg("blocks", blocks), Bind::kBlockX);
    // Without the hint ptxas keeps registers for a second block, at the price of spills.
    const bool alone =
        2 * SharedBytesOf(group_, plan_) > target_.shared_bytes_per_block || totals_.exist();
    b_.Finish(std::move(body), {blocks, 1, plan_.splits}, plan_.threads(), lowered, alone ? 1 : 0);
  }

  void Declare(Block& body) {
    for (Side* side : {&a_, &bs_}) {
      const std::string name = side->is_a ? "a" : "b";
      side->panel = b_.Name(name + "_panel");
      side->fragments = b_.Name(name + "_fragments");
      body.push_back(
          {tile::Alloc{side->panel, plan_.type, tile::Space::kShared, plan_.stages * side->size}});
    }
    lane_ = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    const Expr warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    warp_m_ =
        b_.Let(body, "warp_m", warp / b_.Idx(plan_.warps_n) * b_.Idx(tiles_m_of_warp_ * kMmaM));
    warp_n_ =
        b_.Let(body, "warp_n", warp % b_.Idx(plan_.warps_n) * b_.Idx(tiles_n_of_warp_ * kMmaN));
    bool barrier = false;
    for (Side* side : {&a_, &bs_}) {
      DeclareWay(body, *side);
      barrier = WritePlaces(body, *side) || barrier;
    }
    if (barrier) body.push_back({tile::Barrier{}});
    acc_ = b_.Name("acc");
    const int64_t accumulators = int64_t{tiles_m_of_warp_} * tiles_n_of_warp_ * 4;
    body.push_back({tile::Alloc{acc_, c_.accumulator, tile::Space::kReg, accumulators}});
    Loop(body, "z", b_.Idx(accumulators), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(c_.accumulator)}});
    });
    totals_.Declare(body, accumulators, Bind::kUnroll);
    for (const Side* side : {&a_, &bs_})
      body.push_back({tile::Alloc{side->fragments, plan_.type, tile::Space::kReg,
                                  2 * FragmentElements(*side)}});
  }

  int64_t FragmentElements(const Side& side) const {
    const int words = side.is_a ? tiles_m_of_warp_ * 4 : tiles_n_of_warp_ * 2;
    return int64_t{words} * 4 / SizeOf(plan_.type);
  }

  // What stays the same over all steps for one thread.
  void DeclareWay(Block& body, Side& side) {
    const int chunk = plan_.chunk();
    const bool rows = side.path == OperandPath::kRows;
    const std::string name = side.is_a ? "a" : "b";
    if (side.async()) {
      const int along = (rows ? side.rows : plan_.depth) / chunk;
      const Expr inner = b_.Let(body, name + "_inner", Var("tx") % b_.Idx(along) * b_.Idx(chunk));
      const Expr outer = b_.Let(body, name + "_outer", Var("tx") / b_.Idx(along));
      side.row_in = rows ? inner : outer;
      side.k_in = rows ? outer : inner;
      if (rows)
        side.row_index =
            Unravel(body, side, b_.Let(body, side.is_a ? "m" : "n", First(side) + side.row_in));
    }
    // Rows of the four matrices of a load: A's go (rows, k) = (0, 0), (8, 0), (0, 8), (8, 8) in
    // units of elements or half depths, B's (0, 0), (0, 8), (8, 0), (8, 8).
    const Expr low = b_.Let(body, name + "_low", lane_ % b_.Idx(8));
    const Expr second = b_.Let(body, name + "_second", lane_ / b_.Idx(8) % b_.Idx(2));
    const Expr third = b_.Let(body, name + "_third", lane_ / b_.Idx(16));
    const Expr row_half = side.is_a ? second : third, k_half = side.is_a ? third : second;
    const Expr warp_row = side.is_a ? warp_m_ : warp_n_;
    const Expr pitch = b_.Idx(side.pitch);
    side.lane_at =
        b_.Let(body, name + "_lane",
               rows ? (k_half * b_.Idx(8) + low) * pitch + warp_row + row_half * b_.Idx(8)
                    : (warp_row + row_half * b_.Idx(8) + low) * pitch + k_half * b_.Idx(chunk));
  }

  const Expr& First(const Side& side) const { return side.is_a ? first_m_ : first_n_; }
  const Expr& Size(const Side& side) const { return side.is_a ? m_size_ : n_size_; }
  const Axis& RowAxis(const Side& side) const { return side.is_a ? c_.m : c_.n; }
  Index Unravel(Block& out, const Side& side, const Expr& row) {
    return b_.Unravel(out, row, RowAxis(side).extents, RowAxis(side).values, side.is_a ? "m" : "n");
  }
  Operand At(Block& out, const Side& side, const Index& row, const Index& k) {
    return side.is_a ? c_.at_a(out, batch_, row, k) : c_.at_b(out, batch_, k, row);
  }

  // Where splitting a row into its dims takes divisions, the block does it once: places[dim][row].
  bool WritePlaces(Block& body, Side& side) {
    const Index& extents = RowAxis(side).extents;
    const auto several = std::ranges::count_if(
        extents, [](const Expr& extent) { return !tile::IsConst(extent, 1); });
    if (several < 2 || side.path == OperandPath::kRows) return false;
    side.places = b_.Name(side.is_a ? "a_places" : "b_places");
    body.push_back({tile::Alloc{side.places, t(), tile::Space::kShared,
                                static_cast<int64_t>(extents.size()) * side.rows}});
    const int turns = static_cast<int>(CeilDiv(side.rows, plan_.threads()));
    Loop(body, "turn", b_.Idx(turns), Bind::kUnroll, [&](Block& one, const Expr& turn) {
      const Expr row = b_.Let(one, "row", turn * b_.Idx(plan_.threads()) + Var("tx"));
      Block inside;
      const Index index = Unravel(inside, side, b_.Let(inside, "place", First(side) + row));
      for (size_t d = 0; d < index.size(); ++d)
        if (!tile::IsConst(extents[d], 1))
          inside.push_back({tile::Store{side.places, PlaceAt(side, d, row), index[d]}});
      one.push_back({tile::If{tile::Lt(row, b_.Idx(side.rows)), std::move(inside), {}}});
    });
    return true;
  }
  Expr PlaceAt(const Side& side, size_t dim, const Expr& row) {
    return b_.Idx(static_cast<int64_t>(dim) * side.rows) + row;
  }

  // The dims of a row of the panel.
  Index RowIndex(Block& out, const Side& side, const Expr& row, const Expr& global) {
    if (side.places.empty()) return Unravel(out, side, global);
    Index index;
    const Index& extents = RowAxis(side).extents;
    for (size_t d = 0; d < extents.size(); ++d)
      index.push_back(
          tile::IsConst(extents[d], 1)
              ? b_.Idx(0)
              : b_.Let(out, "place", tile::Load(side.places, t(), PlaceAt(side, d, row))));
    return index;
  }
  Index DepthIndex(Block& out, const Expr& k) {
    return b_.Unravel(out, k, c_.k.extents, c_.k.values, "k");
  }

  // ---- memory → panel
  // Starts the copies of a whole panel, whose k begins at first_k, into a slot.
  void Start(Block& out, const Side& side, const Expr& first_k, const Expr& slot) {
    const bool rows = side.path == OperandPath::kRows;
    const int step = plan_.threads() * plan_.chunk() / (rows ? side.rows : plan_.depth);
    const Expr k = b_.Let(out, "k", first_k + side.k_in);
    const Index k_index = rows ? Index{} : DepthIndex(out, k);
    const Expr to =
        b_.Let(out, "to",
               slot * b_.Idx(side.size) + (rows ? side.k_in : side.row_in) * b_.Idx(side.pitch) +
                   (rows ? side.row_in : side.k_in));
    Loop(out, "c", b_.Idx(side.chunks), Bind::kUnroll, [&](Block& one, const Expr& c) {
      const Expr offset = c * b_.Idx(step);
      Expr row, here;
      Operand operand;
      if (rows) {
        row = First(side) + side.row_in;
        here = b_.Let(one, "k", k + offset);
        operand = At(one, side, side.row_index, DepthIndex(one, here));
      } else {
        const Expr local = b_.Let(one, "row", side.row_in + offset);
        row = b_.Let(one, side.is_a ? "m" : "n", First(side) + local);
        here = k;
        operand = At(one, side, RowIndex(one, side, local, row), k_index);
      }
      Expr valid = tile::And(tile::Lt(row, Size(side)), tile::Lt(here, k_size_));
      if (operand.guard) valid = tile::And(valid, operand.guard);
      const TensorId id = side.is_a ? c_.a : c_.b;
      one.push_back(
          {tile::CopyAsync{side.panel, to + c * b_.Idx(int64_t{step} * side.pitch), b_.Pointer(id),
                           b_.Offset(id, operand.index), plan_.chunk(), valid}});
    });
  }

  struct Chunk {
    Expr row, depth;
  };
  Chunk ElementChunk(Block& out, const Side& side, const Expr& number) {
    const Expr flat = b_.Let(out, "flat", number * b_.Idx(plan_.threads()) + Var("tx"));
    const int per_row = plan_.depth / plan_.chunk();
    const Expr row = side.along_k ? flat / b_.Idx(per_row) : flat % b_.Idx(side.rows);
    const Expr depth = side.along_k ? flat % b_.Idx(per_row) : flat / b_.Idx(side.rows);
    return {b_.Let(out, "row", row), b_.Let(out, "depth", depth * b_.Idx(plan_.chunk()))};
  }

  // Elements of one chunk → registers, zeros where there are none.
  void ReadChunk(Block& out, const Side& side, const Expr& number, const Expr& first_k,
                 const std::string& staged, const Expr& at) {
    const Chunk chunk = ElementChunk(out, side, number);
    const Expr row = b_.Let(out, side.is_a ? "m" : "n", First(side) + chunk.row);
    const Index row_index = RowIndex(out, side, chunk.row, row);
    Loop(out, "e", b_.Idx(plan_.chunk()), Bind::kUnroll, [&](Block& one, const Expr& e) {
      const Expr k = b_.Let(one, "ke", first_k + chunk.depth + e);
      one.push_back({tile::Store{staged, at + e, Zero(plan_.type)}});
      Block read, inside;
      const Operand operand = At(read, side, row_index, DepthIndex(read, k));
      Block& target = operand.guard ? inside : read;
      ValueScope values(b_, target);
      const Expr value = values.Value(side.is_a ? c_.a : c_.b, operand.index);
      target.push_back({tile::Store{staged, at + e, tile::Cast(plan_.type, value)}});
      if (operand.guard) read.push_back({tile::If{operand.guard, std::move(inside), {}}});
      one.push_back({tile::If{
          tile::And(tile::Lt(row, Size(side)), tile::Lt(k, k_size_)), std::move(read), {}}});
    });
  }

  void WriteChunk(Block& out, const Side& side, const Expr& number, const Expr& slot,
                  const std::string& staged, const Expr& at) {
    const Chunk chunk = ElementChunk(out, side, number);
    const Expr to = slot * b_.Idx(side.size) + chunk.row * b_.Idx(side.pitch) + chunk.depth;
    WideCopy(out, plan_.type, side.panel, b_.Let(out, "to", to), staged, at, plan_.chunk());
  }

  // The first stages - 1 slots.
  void Fill(Block& body) {
    Loop(body, "stage", b_.Idx(plan_.stages - 1), Bind::kSerial,
         [&](Block& one, const Expr& stage) {
           const Expr k = b_.Let(one, "fill_k", first_k_ + stage * b_.Idx(plan_.depth));
           for (const Side* side : {&a_, &bs_}) {
             if (side->async()) {
               Start(one, *side, k, stage);
               continue;
             }
             Loop(one, "c", b_.Idx(side->chunks), Bind::kSerial, [&](Block& chunk, const Expr& c) {
               const std::string staged = b_.Name("staged");
               chunk.push_back({tile::Alloc{staged, plan_.type, tile::Space::kReg, plan_.chunk()}});
               ReadChunk(chunk, *side, c, k, staged, b_.Idx(0));
               WriteChunk(chunk, *side, c, stage, staged, b_.Idx(0));
             });
           }
           if (AnyAsync()) one.push_back({tile::CommitAsync{}});
         });
    Await(body, plan_.stages - 2);
    LoadFragments(body, b_.Idx(0), b_.Idx(0), b_.Idx(0));
  }
  bool AnyAsync() const { return a_.async() || bs_.async(); }
  void Await(Block& out, int groups) {
    if (AnyAsync()) out.push_back({tile::WaitAsync{groups}});
    out.push_back({tile::Barrier{}});
  }

  void MainLoop(Block& body) {
    Block loop;
    const Expr step = Var("step"), stages = b_.Idx(plan_.stages);
    const Expr slot = b_.Let(loop, "slot", step % stages);
    const Expr next = b_.Let(loop, "next", (step + b_.Idx(1)) % stages);
    const Expr ahead = b_.Let(loop, "ahead", step + b_.Idx(plan_.stages - 1));
    const Expr fill = b_.Let(loop, "fill", ahead % stages);
    const Expr fill_k = b_.Let(loop, "fill_k", first_k_ + ahead * b_.Idx(plan_.depth));
    for (const Side* side : {&a_, &bs_})
      if (side->async()) Start(loop, *side, fill_k, fill);
    if (AnyAsync()) loop.push_back({tile::CommitAsync{}});
    Loop(loop, "kk", b_.Idx(k_steps_ - 1), Bind::kUnroll, [&](Block& inner, const Expr& kk) {
      LoadFragments(inner, (kk + b_.Idx(1)) % b_.Idx(2), slot, kk + b_.Idx(1));
      std::string staged[2];
      for (const Side* side : {&a_, &bs_})
        if (!side->async()) staged[side->is_a] = ReadPart(inner, *side, kk, fill_k);
      Multiply(inner, kk % b_.Idx(2));
      for (const Side* side : {&a_, &bs_})
        if (!side->async()) WritePart(inner, *side, kk, fill, staged[side->is_a]);
    });
    Await(loop, plan_.stages - 2);
    LoadFragments(loop, b_.Idx(0), next, b_.Idx(0));
    Multiply(loop, b_.Idx((k_steps_ - 1) % 2));
    totals_.AfterStep(loop, step, acc_);
    body.push_back({tile::For{"step", t(), steps_, Bind::kSerial, std::move(loop)}});
    if (AnyAsync()) body.push_back({tile::WaitAsync{0}});
    totals_.Finish(body, acc_);
  }

  // An element panel goes in as many parts as there are k steps but the last.
  int ChunksOfPart(const Side& side) const {
    return static_cast<int>(CeilDiv(side.chunks, k_steps_ - 1));
  }
  template <class F>
  void EachOfPart(Block& out, const Side& side, const Expr& part, F&& emit) {
    const int count = ChunksOfPart(side);
    Loop(out, "c", b_.Idx(count), Bind::kUnroll, [&](Block& one, const Expr& c) {
      const Expr number = part * b_.Idx(count) + c;
      if (count * (k_steps_ - 1) == side.chunks) return emit(one, number, c);
      Block inside;
      emit(inside, number, c);
      one.push_back({tile::If{tile::Lt(number, b_.Idx(side.chunks)), std::move(inside), {}}});
    });
  }
  std::string ReadPart(Block& out, const Side& side, const Expr& part, const Expr& first_k) {
    const std::string staged = b_.Name("staged");
    out.push_back({tile::Alloc{staged, plan_.type, tile::Space::kReg,
                               int64_t{ChunksOfPart(side)} * plan_.chunk()}});
    EachOfPart(out, side, part, [&](Block& one, const Expr& number, const Expr& c) {
      ReadChunk(one, side, number, first_k, staged, c * b_.Idx(plan_.chunk()));
    });
    return staged;
  }
  void WritePart(Block& out, const Side& side, const Expr& part, const Expr& slot,
                 const std::string& staged) {
    EachOfPart(out, side, part, [&](Block& one, const Expr& number, const Expr& c) {
      WriteChunk(one, side, number, slot, staged, c * b_.Idx(plan_.chunk()));
    });
  }

  // ---- panel → fragments → products
  void LoadFragments(Block& out, const Expr& half, const Expr& slot, const Expr& kk) {
    for (const Side* side : {&a_, &bs_}) {
      const bool rows = side->path == OperandPath::kRows;
      const Expr from =
          b_.Let(out, "from",
                 slot * b_.Idx(side->size) + side->lane_at +
                     kk * b_.Idx(int64_t{plan_.mma_depth()} * (rows ? side->pitch : 1)));
      const int loads = side->is_a ? tiles_m_of_warp_ : tiles_n_of_warp_ / 2;
      Loop(out, "f", b_.Idx(loads), Bind::kUnroll, [&](Block& one, const Expr& f) {
        one.push_back({tile::LoadMatrix{
            side->fragments, half * b_.Idx(FragmentElements(*side)) + f * b_.Idx(plan_.chunk()),
            side->panel, from + f * b_.Idx(int64_t{16} * (rows ? 1 : side->pitch)), 4, rows}});
      });
    }
  }

  void Multiply(Block& out, const Expr& half) {
    const int chunk = plan_.chunk();
    Loop(out, "i", b_.Idx(tiles_m_of_warp_), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(tiles_n_of_warp_), Bind::kUnroll, [&](Block& one, const Expr& j) {
        one.push_back(
            {tile::Mma{acc_, (i * b_.Idx(tiles_n_of_warp_) + j) * b_.Idx(4), a_.fragments,
                       half * b_.Idx(FragmentElements(a_)) + i * b_.Idx(chunk), bs_.fragments,
                       half * b_.Idx(FragmentElements(bs_)) + j * b_.Idx(chunk / 2)}});
      });
    });
  }

  // ---- accumulators → outputs
  void Epilogue(Block& body) {
    ContractionEpilogue epilogue(group_, b_, plain_, Axes());
    const Expr t = b_.Let(body, "t", lane_ % b_.Idx(4));
    const Expr g = b_.Let(body, "g", lane_ / b_.Idx(4));
    const Expr odd = b_.Let(body, "odd", Equals(t % b_.Idx(2), 1));
    const Expr upper = b_.Let(body, "upper", tile::Ge(t, b_.Idx(2)));
    if (reduces_) DeclareReductions(body, t, g);
    Loop(body, "i", b_.Idx(tiles_m_of_warp_), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      Loop(rows, "half", b_.Idx(2), Bind::kUnroll, [&](Block& halves, const Expr& half) {
        const Expr m =
            b_.Let(halves, "om", first_m_ + warp_m_ + i * b_.Idx(kMmaM) + half * b_.Idx(8) + g);
        Loop(halves, "q", b_.Idx(tiles_n_of_warp_ / kQuad), Bind::kUnroll,
             [&](Block& one, const Expr& q) {
               const std::string line = b_.Name("line");
               one.push_back({tile::Alloc{line, c_.accumulator, tile::Space::kReg, kLine}});
               Exchange(one, line, i, half, q, odd, upper);
               const Expr n =
                   b_.Let(one, "on", first_n_ + warp_n_ + (q * b_.Idx(kQuad) + t) * b_.Idx(kLine));
               StoreLine(one, epilogue, m, n, line, i * b_.Idx(2) + half, q * b_.Idx(kLine));
             });
      });
    });
  }
  Expr Equals(const Expr& a, int64_t b) const { return tile::Op(ScalarOp::kEq, {a, b_.Idx(b)}); }

  // Lane t of four has columns 2t and 2t + 1 of four n-tiles, and gets all of tile t: a
  // transposition of 4 x 4 pairs, by lanes one apart and then two apart.
  void Exchange(Block& out, const std::string& line, const Expr& i, const Expr& half, const Expr& q,
                const Expr& odd, const Expr& upper) {
    for (int pair = 0; pair < 2; ++pair) {
      Expr v[kQuad];
      for (int j = 0; j < kQuad; ++j) {
        const Expr tile = i * b_.Idx(tiles_n_of_warp_) + q * b_.Idx(kQuad) + b_.Idx(j);
        v[j] = tile::Load(acc_, c_.accumulator, tile * b_.Idx(4) + half * b_.Idx(2) + b_.Idx(pair));
      }
      for (const int distance : {1, 2}) {
        const Expr& keeps_second = distance == 1 ? odd : upper;
        for (int j = 0; j < kQuad; ++j) {
          if ((j & distance) != 0) continue;
          Expr &first = v[j], &second = v[j + distance];
          const Expr sent = tile::Select(keeps_second, first, second);
          const Expr got = b_.Let(out, "got", tile::ShuffleXor(sent, distance));
          const Expr kept_first = b_.Let(out, "v", tile::Select(keeps_second, got, first));
          second = b_.Let(out, "v", tile::Select(keeps_second, second, got));
          first = kept_first;
        }
      }
      for (int j = 0; j < kQuad; ++j)
        out.push_back({tile::Store{line, b_.Idx(j * 2 + pair), v[j]}});
    }
  }

  void StoreLine(Block& out, ContractionEpilogue& epilogue, const Expr& m, const Expr& n,
                 const std::string& line, const Expr& row_slot, const Expr& column_slot) {
    if (plan_.splits > 1) return StoreSlice(out, m, n, line);
    const int lanes = epilogue.lanes();
    for (int first = 0; first < kLine; first += lanes) {
      ContractionEpilogue::Taken taken;
      if (reduces_)
        taken = [&](Block& one, ValueScope& values, const Index& at, const Expr& lane) {
          const Expr slot = column_slot + b_.Idx(first) + lane;
          reductions_.Add(one, values, at, plan_.swapped ? slot : row_slot,
                          plan_.swapped ? row_slot : slot);
        };
      epilogue.Store(
          out, batch_number_, first == 0 ? n : b_.Let(out, "on", n + b_.Idx(first)), m, lanes,
          [&](const Expr& lane) { return tile::Load(line, c_.accumulator, b_.Idx(first) + lane); },
          nullptr, taken);
    }
  }

  void StoreSlice(Block& out, const Expr& m, const Expr& n, const std::string& line) {
    if (slices_.empty()) {
      slices_ = b_.Scratch(0, c_.accumulator, false);
      line_pitch_ = b_.Arg("line_pitch", LinePitch());
      slice_size_ = b_.Arg("slice_size", SliceElements());
    }
    Block inside;
    Expr row = batch_number_ * m_size_ + m;
    Expr at = row * line_pitch_ + n;
    if (plan_.form == SplitForm::kOrdered) at = at + Var("bz") * slice_size_;
    at = b_.Let(inside, "at", at);
    if (plan_.form == SplitForm::kOrdered) {
      WideCopy(inside, c_.accumulator, slices_, at, line, b_.Idx(0), kLine);
    } else {
      Loop(inside, "l", b_.Idx(kLine), Bind::kUnroll, [&](Block& one, const Expr& l) {
        one.push_back({tile::AtomicAdd{slices_, at + l, tile::Load(line, c_.accumulator, l)}});
      });
    }
    out.push_back({tile::If{
        tile::And(tile::Lt(m, m_size_), tile::Lt(n, line_pitch_)), std::move(inside), {}}});
  }

  const Target& target_;
  const MmaPlan plan_;
  Contraction plain_;  // not transposed
  Side a_, bs_;
  int tiles_m_of_warp_, tiles_n_of_warp_, k_steps_;
  Totals totals_;
  PartialResults partial_;
  TileReductions reductions_;
  bool reduces_;
  std::string acc_, slices_;
  Expr row_, column_;  // numbers of the tile
  Expr lane_, warp_m_, warp_n_, first_k_, steps_, line_pitch_, slice_size_;
};

}  // namespace

Lowered LowerMma(const Group& group, const Target& target, const MmaPlan& plan) {
  const EpilogueReductions reductions(group);
  return Schedule(reductions, target, plan).Lower();
}

}  // namespace kiln::compiler
