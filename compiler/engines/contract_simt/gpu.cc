// contract_simt on a GPU: FMA units at their roof where the operands can be fed.
//
//   block    makes a TMxTN tile of C in steps of TK along k; threads stand over it as SimtPatch
//   says panels   a_panel[2][TK][TM], b_panel[2][TK][TN] in shared memory, rows fastest, each k
//   padded by
//            4 elements: the transposing store of 2 x 16 (or 8 x 4) places of k and rows then meets
//            each bank once. While one of the two is multiplied, the next is read
//   reading  a 16-byte piece a thread where memory allows, along k or along the rows; else element
//            by element, prologue included, neighbouring threads along the axis that is contiguous.
//            Places along the rows are the same in every step, and are split before the loop
//
//   step s:   global(s+1) → registers      panels(s) → fma      registers → panels(s+1)     barrier
#include <algorithm>
#include <map>

#include "compiler/engines/contract_simt/schedules.h"
#include "compiler/kernel/accumulation.h"
#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kWarp = 32;
constexpr int kPadding = 4;  // of a panel's row, in elements
constexpr int kMostPerThread = 64, kLeastPerThread = 16;
constexpr int kLeastSteps = 8;  // of a slice of k
// Elements of a tile that only small problems take, and the places of k whose products stand in its
// kernel's text.
constexpr int kSmallTile = 32 * 64, kWrittenOut = 4;
// The most threads whose registers a block should leave room for a second block beside it.
constexpr int kSecondBlockThreads = 256;

enum class Reading : uint8_t { kWideDepth, kWideRows, kDepth, kRows };

// One operand's way from memory to a panel. A thread moves `slots` pieces of `piece` elements.
struct Side {
  bool is_a;
  int rows;
  DType type;  // as staged: the tensor's where it lies in memory, else the accumulator's
  Reading reading;
  int piece;
  std::string panel = {}, staged = {};

  bool along_depth() const { return reading == Reading::kWideDepth || reading == Reading::kDepth; }
  bool wide() const { return reading == Reading::kWideDepth || reading == Reading::kWideRows; }
  int pitch() const { return rows + kPadding; }
};

// The place of a slot within the panel: the thread's part and the slot's. A row, or a depth, that
// several slots share has one number.
struct Slot {
  Expr row, depth;  // of the thread
  int row_offset, depth_offset;
};

class GpuSchedule : private ContractTiles {
 public:
  GpuSchedule(const EpilogueReductions& group, const Target& target, const SimtKnobs& knobs)
      : ContractTiles(
            group.tile(), target, {knobs.tile_m, knobs.tile_n, knobs.tile_k},
            fmt::format("contract_simt: tile {}x{}x{}", knobs.tile_m, knobs.tile_n, knobs.tile_k)),
        target_(target),
        depth_(knobs.tile_k),
        patch_(PatchOf(knobs, c_.accumulator)),
        slices_(SimtSlices(group.group(), target, knobs)),
        totals_(b_, c_.accumulator, CeilDiv(c_.k.size(), slices_), knobs.tile_k, kMostTerms),
        a_(SideOf(true, knobs.tile_m)),
        b_side_(SideOf(false, knobs.tile_n)),
        partial_(group, c_.batch.size(), {c_.m.size(), tiles_n_}, {c_.n.size(), tiles_m_}, true),
        reductions_(group, partial_, b_, patch_.threads),
        reduces_(!group.empty()) {
    FindVector();
  }

  Lowered Lower() {
    Lowered scratch;
    partial_.Allocate(scratch);
    Block body = Prepare();
    Declare(body);
    Rows(body, a_);
    Rows(body, b_side_);
    const Expr steps = b_.Let(body, "steps", CeilDivExpr(k_size_, depth_));
    Expr first_step = b_.Idx(0), mine = steps;
    if (slices_ > 1) {
      const int64_t whole = CeilDiv(c_.k.size(), depth_);
      const Expr each = b_.Arg("slice_steps", StepsOfSlice(whole, slices_));
      first_step = b_.Let(body, "first_step", Var("bz") * each);
      mine = b_.Let(body, "mine", tile::Op(ScalarOp::kMin, {each, steps - first_step}));
    }
    const Expr first_k = b_.Let(body, "first_k", first_step * b_.Idx(depth_));
    MainLoop(body, first_k, mine);
    if (reduces_) DeclareReductions(body);
    if (slices_ > 1) {
      const std::string partial = b_.Scratch(0, c_.accumulator, false);
      Epilogue(body, [&](Block& out, const Piece& piece) { StorePartial(out, partial, piece); });
    } else {
      Epilogue(body, [&](Block& out, const Piece& piece) { StorePiece(out, piece); });
    }
    if (reduces_) reductions_.Finish(body, batch_number_);
    const bool crowded = patch_.threads == kSecondBlockThreads && SizeOf(c_.accumulator) == 4;
    // Totals of as many accumulators as a thread has at most leave no room for a second block.
    const bool alone = totals_.exist() && patch_.per_m * patch_.per_n == kMostPerThread;
    Lowered lowered = Finish(std::move(body), patch_.threads, slices_, alone ? 1 : crowded ? 2 : 0);
    lowered.scratch_bytes = std::move(scratch.scratch_bytes);
    partial_.Finish(target_, lowered);
    if (slices_ > 1)
      ContractCombine(group_, target_, "contract_simt", slices_, rows_innermost_).Lower(lowered);
    return lowered;
  }

 private:
  // ---- reading

  Side SideOf(bool is_a, int rows) const {
    const TensorId id = is_a ? c_.a : c_.b;
    const Tensor& x = group_.graph[id];
    const int lane = patch_.lane;
    const bool in_memory = graph::Producers(group_.graph)[id] < 0 && !x.by_value;
    const bool fits = in_memory && lane * SizeOf(x.dtype) <= 16 && lane * SizeOf(x.dtype) >= 2;
    Side side{.is_a = is_a,
              .rows = rows,
              .type = in_memory ? x.dtype : c_.accumulator,
              .reading = (is_a ? c_.a_walks_k : c_.b_walks_k) ? Reading::kDepth : Reading::kRows,
              .piece = 1};
    if (fits && IsWideAlong(x, c_.k, is_a ? c_.walks.a_k : c_.walks.b_k, lane))
      side.reading = Reading::kWideDepth;
    else if (fits && IsWideAlong(x, is_a ? c_.m : c_.n, is_a ? c_.walks.a_m : c_.walks.b_n, lane))
      side.reading = Reading::kWideRows;
    if (side.wide()) side.piece = lane;
    return side;
  }

  int Pieces(const Side& side) const { return side.rows * depth_ / side.piece; }
  int Slots(const Side& side) const { return std::max(1, Pieces(side) / patch_.threads); }

  Slot SlotOf(const Side& side, int slot) const {
    const Expr tx = Var("tx");
    const auto idx = [&](int value) { return b_.Idx(value); };
    if (!side.along_depth()) {
      // Neighbouring threads along the rows.
      const int across = side.rows / side.piece, threads = patch_.threads;
      if (threads <= across) {
        return {.row = tx * idx(side.piece),
                .depth = idx(0),
                .row_offset = slot * threads % across * side.piece,
                .depth_offset = slot * threads / across};
      }
      return {.row = tx % idx(across) * idx(side.piece),
              .depth = tx / idx(across),
              .row_offset = 0,
              .depth_offset = slot * (threads / across)};
    }
    // Neighbouring threads along k as far as one sector of memory or all banks go, then along the
    // rows, then along k again.
    const int across = std::min(side.wide() ? 2 : 8, depth_ / side.piece);
    const int high = patch_.threads / across;  // rows that all threads cover
    const Expr low = tx % idx(across) * idx(side.piece), up = tx / idx(across);
    if (high <= side.rows) {
      return {.row = up,
              .depth = low,
              .row_offset = slot * high % side.rows,
              .depth_offset = slot * high / side.rows * across * side.piece};
    }
    return {.row = up % idx(side.rows),
            .depth = up / idx(side.rows) * idx(across * side.piece) + low,
            .row_offset = 0,
            .depth_offset = slot * (high / side.rows) * across * side.piece};
  }

  // What a thread reads has the same rows in each step.
  struct RowPlace {
    Index index;
    Expr inside;
  };
  void Rows(Block& body, const Side& side) {
    const Slot first = SlotOf(side, 0);
    const char* name = side.is_a ? "a" : "b";
    row_[side.is_a] = b_.Let(body, fmt::format("{}_row", name), first.row);
    at_depth_[side.is_a] = b_.Let(body, fmt::format("{}_depth", name), first.depth);
    for (int slot = 0; slot < Slots(side); ++slot) {
      const int offset = SlotOf(side, slot).row_offset;
      if (places_[side.is_a].contains(offset)) continue;
      const Expr row = b_.Let(body, side.is_a ? "m" : "n",
                              (side.is_a ? first_m_ : first_n_) + row_[side.is_a] + b_.Idx(offset));
      RowPlace place{.index = UnravelRow(body, side.is_a, row),
                     .inside = tile::Lt(row, side.is_a ? m_size_ : n_size_)};
      place.inside = b_.Let(body, fmt::format("{}_inside", name), place.inside);
      places_[side.is_a].emplace(offset, std::move(place));
    }
  }

  // Panels of fewer pieces than the block has threads leave the others out.
  template <class F>
  void ForPieces(Block& out, const Side& side, F&& fill) {
    if (Pieces(side) >= patch_.threads) return fill(out);
    Block some;
    fill(some);
    out.push_back({tile::If{tile::Lt(Var("tx"), b_.Idx(Pieces(side))), std::move(some), {}}});
  }

  // Global memory → registers, for the step that begins at first_k.
  void ReadPanel(Block& out, const Side& side, const Expr& first_k) {
    ForPieces(out, side, [&](Block& all) {
      std::map<int, std::pair<Expr, Index>> depths;
      for (int i = 0; i < Slots(side); ++i) {
        const Slot slot = SlotOf(side, i);
        auto& [k, index] = depths[slot.depth_offset];
        if (!k) {
          k = b_.Let(all, "k", first_k + at_depth_[side.is_a] + b_.Idx(slot.depth_offset));
          index = UnravelDepth(all, k);
        }
        ReadPiece(all, side, places_[side.is_a].at(slot.row_offset), k, index,
                  b_.Idx(i * side.piece));
      }
    });
  }

  void ReadPiece(Block& out, const Side& side, const RowPlace& row, const Expr& k,
                 const Index& k_index, const Expr& at) {
    for (int e = 0; e < side.piece; ++e)
      out.push_back({tile::Store{side.staged, at + b_.Idx(e), Zero(side.type)}});
    const TensorId id = side.is_a ? c_.a : c_.b;
    const bool plain = graph::Producers(group_.graph)[id] < 0;
    const Expr in_range = tile::And(row.inside, tile::Lt(k, k_size_));
    // A tensor's place may be computed where it has none, so that one predicate guards the load; a
    // prologue is left out.
    Block read;
    Block& find = plain ? out : read;
    const Operand operand = LocateAt(find, side.is_a, row.index, k_index);
    Block inside;
    if (side.wide()) {
      const Expr from = b_.Let(find, "from", b_.Offset(id, operand.index));
      WideCopy(inside, side.type, side.staged, at, b_.Pointer(id), from, side.piece);
    } else {
      ValueScope values(b_, inside);
      const Expr value = values.Value(id, operand.index);
      inside.push_back({tile::Store{side.staged, at, tile::Cast(side.type, value)}});
    }
    if (plain) {
      const Expr there = operand.guard ? tile::And(in_range, operand.guard) : in_range;
      out.push_back({tile::If{there, std::move(inside), {}}});
      return;
    }
    if (operand.guard) {
      read.push_back({tile::If{operand.guard, std::move(inside), {}}});
    } else {
      std::ranges::move(inside, std::back_inserter(read));
    }
    out.push_back({tile::If{in_range, std::move(read), {}}});
  }

  // Registers → the panel of a step.
  void WritePanel(Block& out, const Side& side, const Expr& which) {
    const int64_t size = int64_t{depth_} * side.pitch();
    ForPieces(out, side, [&](Block& all) {
      const Expr corner = b_.Let(
          all, "to",
          which * b_.Idx(size) + at_depth_[side.is_a] * b_.Idx(side.pitch()) + row_[side.is_a]);
      for (int i = 0; i < Slots(side); ++i) {
        const Slot slot = SlotOf(side, i);
        const Expr to = corner + b_.Idx(slot.depth_offset * side.pitch() + slot.row_offset);
        WritePiece(all, side, to, i * side.piece);
      }
    });
  }

  void WritePiece(Block& out, const Side& side, const Expr& to, int at) {
    const auto value = [&](int e) {
      return tile::Cast(c_.accumulator, tile::Load(side.staged, side.type, b_.Idx(at + e)));
    };
    if (side.reading != Reading::kWideRows) {
      for (int e = 0; e < side.piece; ++e)
        out.push_back({tile::Store{side.panel, to + b_.Idx(e * side.pitch()), value(e)}});
      return;
    }
    if (side.type == c_.accumulator)
      return WideCopy(out, side.type, side.panel, to, side.staged, b_.Idx(at), side.piece);
    const std::string converted = b_.Name("converted");
    out.push_back({tile::Alloc{converted, c_.accumulator, tile::Space::kReg, side.piece}});
    for (int e = 0; e < side.piece; ++e)
      out.push_back({tile::Store{converted, b_.Idx(e), value(e)}});
    WideCopy(out, c_.accumulator, side.panel, to, converted, b_.Idx(0), side.piece);
  }

  // ---- multiplying

  void Declare(Block& body) {
    for (Side* side : {&a_, &b_side_}) {
      const std::string name = side->is_a ? "a" : "b";
      side->panel = b_.Name(name + "_panel");
      side->staged = b_.Name(name + "_staged");
      const int64_t size = 2 * int64_t{depth_} * side->pitch();
      body.push_back({tile::Alloc{side->panel, c_.accumulator, tile::Space::kShared, size}});
      body.push_back(
          {tile::Alloc{side->staged, side->type, tile::Space::kReg, Slots(*side) * side->piece}});
    }
    acc_ = b_.Name("acc");
    const int64_t size = int64_t{patch_.per_m} * patch_.per_n;
    body.push_back({tile::Alloc{acc_, c_.accumulator, tile::Space::kReg, size}});
    Loop(body, "z", b_.Idx(size), Bind::kUnroll, [&](Block& clear, const Expr& z) {
      clear.push_back({tile::Store{acc_, z, Zero(c_.accumulator)}});
    });
    totals_.Declare(body, size, Bind::kUnroll);
    const int warps_n = patch_.across(shape_.n) / patch_.lanes_n;
    const int lanes_m = kWarp / patch_.lanes_n;
    const Expr lane = b_.Let(body, "lane", Var("tx") % b_.Idx(kWarp));
    const Expr warp = b_.Let(body, "warp", Var("tx") / b_.Idx(kWarp));
    lane_ = lane;
    warp_ = warp;
    const Expr thread_m = warp / b_.Idx(warps_n) * b_.Idx(lanes_m) + lane / b_.Idx(patch_.lanes_n);
    const Expr thread_n =
        warp % b_.Idx(warps_n) * b_.Idx(patch_.lanes_n) + lane % b_.Idx(patch_.lanes_n);
    thread_m_ = b_.Let(body, "thread_m", thread_m * b_.Idx(patch_.lane));
    thread_n_ = b_.Let(body, "thread_n", thread_n * b_.Idx(patch_.lane));
  }

  // Distance of a thread's pieces.
  int StrideM() const { return shape_.m / (patch_.per_m / patch_.lane); }
  int StrideN() const { return shape_.n / (patch_.per_n / patch_.lane); }

  // Slot s of a side is element s % lane of the thread's piece s / lane.
  void DeclareReductions(Block& body) {
    const int lanes_n = patch_.lanes_n, warps_n = patch_.across(shape_.n) / lanes_n;
    const int warps_m = patch_.threads / kWarp / warps_n;
    const auto masks = [](int from, int to) {
      std::vector<int> bits;
      for (int mask = from; mask < to; mask *= 2) bits.push_back(mask);
      return bits;
    };
    const auto is_zero = [&](const Expr& e) { return tile::Op(ScalarOp::kEq, {e, b_.Idx(0)}); };
    reductions_.Declare(
        body,
        {.extent = shape_.m,
         .slots = patch_.per_m,
         .place = [&](const Expr& slot) { return thread_m_ + Spread(slot, StrideM()); },
         .lane_masks = masks(1, lanes_n),
         .leads = is_zero(lane_ % b_.Idx(lanes_n)),
         .warps = warps_n,
         .warp = warp_ % b_.Idx(warps_n),
         .first = first_m_,
         .size = m_size_,
         .part = Var("by")},
        {.extent = shape_.n,
         .slots = patch_.per_n,
         .place = [&](const Expr& slot) { return thread_n_ + Spread(slot, StrideN()); },
         .lane_masks = masks(lanes_n, kWarp),
         .leads = is_zero(lane_ / b_.Idx(lanes_n)),
         .warps = warps_m,
         .warp = warp_ / b_.Idx(warps_n),
         .first = first_n_,
         .size = n_size_,
         .part = tile_row_});
  }

  // What takes NVRTC most of its time is the text that reads panels and the products that are
  // written out. Small tiles are for small problems, which run as fast either way: there the text
  // of reading stands once, in turns that read the panels of their step and multiply those of the
  // step before, of which the first turn has none. Large ones take up to 1.5 times as long so.
  void MainLoop(Block& body, const Expr& first_k, const Expr& steps) {
    const bool in_turns = shape_.m * shape_.n <= kSmallTile;
    if (!in_turns) {
      for (Side* side : {&a_, &b_side_}) ReadPanel(body, *side, first_k);
      for (Side* side : {&a_, &b_side_}) WritePanel(body, *side, b_.Idx(0));
      body.push_back({tile::Barrier{}});
    }
    Block loop;
    const Expr turn = Var("step");
    const Expr ahead = in_turns ? turn : turn + b_.Idx(1);
    const Expr next = b_.Let(loop, "next_k", first_k + ahead * b_.Idx(depth_));
    // Past the end everything is out of range (or of the next slice): read, but never multiplied.
    for (Side* side : {&a_, &b_side_}) ReadPanel(loop, *side, next);
    const Expr half = b_.Let(loop, "half", turn % b_.Idx(2));
    const Expr other = b_.Let(loop, "other", b_.Idx(1) - half);
    Block multiply;
    MultiplyPanels(multiply, in_turns ? other : half, in_turns ? kWrittenOut : depth_);
    if (in_turns) {
      totals_.AfterStep(multiply, turn - b_.Idx(1), acc_);
      loop.push_back({tile::If{tile::Lt(b_.Idx(0), turn), std::move(multiply), {}}});
    } else {
      std::ranges::move(multiply, std::back_inserter(loop));
    }
    for (Side* side : {&a_, &b_side_}) WritePanel(loop, *side, in_turns ? half : other);
    loop.push_back({tile::Barrier{}});
    if (!in_turns) totals_.AfterStep(loop, turn, acc_);
    const Expr turns = in_turns ? steps + b_.Idx(1) : steps;
    body.push_back({tile::For{"step", t(), turns, Bind::kSerial, std::move(loop)}});
    totals_.Finish(body, acc_);
  }

  void MultiplyPanels(Block& out, const Expr& current, int written_out) {
    const auto corner = [&](const Side& side, const Expr& thread) {
      return b_.Let(out, side.is_a ? "a_at" : "b_at",
                    current * b_.Idx(int64_t{depth_} * side.pitch()) + thread);
    };
    const Expr a_at = corner(a_, thread_m_), b_at = corner(b_side_, thread_n_);
    const auto some = [&](Block& block, const Expr& first) {
      Loop(block, "kk", b_.Idx(written_out), Bind::kUnroll, [&](Block& inner, const Expr& kk) {
        Multiply(inner, first ? first + kk : kk, a_at, b_at);
      });
    };
    if (written_out == depth_) return some(out, {});
    Loop(out, "part", b_.Idx(depth_ / written_out), Bind::kSerial,
         [&](Block& block, const Expr& part) { some(block, part * b_.Idx(written_out)); });
  }

  std::string Fragment(Block& out, const Side& side, const Expr& kk, const Expr& corner, int size,
                       int stride) {
    const std::string name = b_.Name(side.is_a ? "a_fragment" : "b_fragment");
    out.push_back({tile::Alloc{name, c_.accumulator, tile::Space::kReg, size}});
    for (int i = 0; i < size / patch_.lane; ++i)
      WideCopy(out, c_.accumulator, name, b_.Idx(i * patch_.lane), side.panel,
               corner + kk * b_.Idx(side.pitch()) + b_.Idx(i * stride), patch_.lane);
    return name;
  }

  void Multiply(Block& out, const Expr& kk, const Expr& a_at, const Expr& b_at) {
    const std::string a = Fragment(out, a_, kk, a_at, patch_.per_m, StrideM());
    const std::string b = Fragment(out, b_side_, kk, b_at, patch_.per_n, StrideN());
    Loop(out, "i", b_.Idx(patch_.per_m), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      Loop(rows, "j", b_.Idx(patch_.per_n), Bind::kUnroll, [&](Block& one, const Expr& j) {
        const Expr slot = i * b_.Idx(patch_.per_n) + j;
        one.push_back({tile::Store{
            acc_, slot,
            tile::Op(ScalarOp::kFma, {tile::Load(a, c_.accumulator, i),
                                      tile::Load(b, c_.accumulator, j), Accumulator(slot)})}});
      });
    });
  }

  Expr Accumulator(const Expr& slot) const { return tile::Load(acc_, c_.accumulator, slot); }

  // ---- epilogue

  // Whether the first output can be written in pieces of `lane` along n, or along m.
  void FindVector() {
    if (graph::Outputs(group_.graph).empty()) return;
    const Tensor& y = group_.graph[graph::Outputs(group_.graph)[0]];
    const auto inner = [&](const Axis& axis, const Dims& walked) -> int64_t {
      for (size_t i = axis.values.size(); i-- > 0;) {
        if (axis.values[i] == 1) continue;
        const int64_t d = walked[i];
        return d >= 0 && axis.values[i] % patch_.lane == 0 && y.strides[d] == 1 ? d : -1;
      }
      return -1;
    };
    vector_dim_ = inner(c_.n, c_.walks.out_n);
    if (vector_dim_ < 0) {
      vector_dim_ = inner(c_.m, c_.walks.out_m);
      rows_innermost_ = vector_dim_ >= 0;
    }
  }

  // Whether `x`, of the output's dims or broadcast to them, moves in pieces too.
  bool MovesWide(const Tensor& x) const {
    if (x.by_value || x.strides[vector_dim_] != 1 || x.dims[vector_dim_] == 1) return false;
    const int bytes = std::min(16, patch_.lane * SizeOf(x.dtype));
    if (x.alignment % bytes != 0 || bytes < 2) return false;
    for (int64_t d = 0; d < x.rank(); ++d)
      if (d != vector_dim_ && x.dims[d] != 1 && x.strides[d] % patch_.lane != 0) return false;
    return true;
  }

  // `lane` neighbours of a thread's patch, along n, or along m where the output lies so; their
  // slots are then per_n apart.
  struct Piece {
    Expr m, n;
    Index m_index;
    Expr slot;
    Expr m_slot, n_slot;  // of its first element along each axis
  };

  // Takes in lane l of a piece.
  void Reduce(Block& out, ValueScope& values, const Index& at, const Piece& piece, const Expr& l) {
    if (!reduces_) return;
    reductions_.Add(out, values, at, rows_innermost_ ? piece.m_slot + l : piece.m_slot,
                    rows_innermost_ ? piece.n_slot : piece.n_slot + l);
  }

  // Calls store(block, piece) for each piece.
  template <class F>
  void Epilogue(Block& body, F&& store) {
    const int lane = patch_.lane;
    const bool by_rows = rows_innermost_;
    const int pieces = by_rows ? patch_.per_m / lane : patch_.per_m;
    const int across = by_rows ? patch_.per_n : patch_.per_n / lane;
    Loop(body, "i", b_.Idx(pieces), Bind::kUnroll, [&](Block& rows, const Expr& i) {
      const Expr m_part = by_rows ? i * b_.Idx(StrideM()) : Spread(i, StrideM());
      const Expr m = b_.Let(rows, "m", first_m_ + thread_m_ + m_part);
      const Index m_index = b_.Unravel(rows, m, c_.m.extents, c_.m.values, "om");
      Loop(rows, "j", b_.Idx(across), Bind::kUnroll, [&](Block& one, const Expr& j) {
        const Expr n_part = by_rows ? Spread(j, StrideN()) : j * b_.Idx(StrideN());
        const Expr n = b_.Let(one, "n", first_n_ + thread_n_ + n_part);
        const Expr slot = by_rows ? i * b_.Idx(lane * patch_.per_n) + j
                                  : i * b_.Idx(patch_.per_n) + j * b_.Idx(lane);
        store(one, {m, n, m_index, slot, by_rows ? i * b_.Idx(lane) : i,
                    by_rows ? j : j * b_.Idx(lane)});
      });
    });
  }

  Expr Spread(const Expr& at, int stride) const {
    return at / b_.Idx(patch_.lane) * b_.Idx(stride) + at % b_.Idx(patch_.lane);
  }

  Expr SlotLane(const Expr& slot, const Expr& l) const {
    return slot + (rows_innermost_ ? l * b_.Idx(patch_.per_n) : l);
  }

  Expr Inside(const Expr& m, const Expr& n) const {
    return tile::And(tile::Lt(m, m_size_), tile::Lt(n, n_size_));
  }

  // Slices keep their accumulators as [m][n], or as [n][m] where pieces lie along m.
  void StorePartial(Block& out, const std::string& partial, const Piece& piece) {
    const auto& [m, n, m_index, slot, m_slot, n_slot] = piece;
    const Expr batch = Var("bz") * b_.Arg("batches", c_.batch.size()) + batch_number_;
    if (vector_dim_ < 0) {
      return EachLane(out, piece, [&](Block& one, const Expr& nl, const Expr&, const Expr& value) {
        one.push_back({tile::Store{partial, (batch * m_size_ + m) * n_size_ + nl, value}});
      });
    }
    Block inside;
    const std::string lanes = b_.Name("piece");
    inside.push_back({tile::Alloc{lanes, c_.accumulator, tile::Space::kReg, patch_.lane}});
    Loop(inside, "l", b_.Idx(patch_.lane), Bind::kUnroll, [&](Block& one, const Expr& l) {
      one.push_back({tile::Store{lanes, l, Accumulator(SlotLane(slot, l))}});
    });
    const Expr at =
        rows_innermost_ ? (batch * n_size_ + n) * m_size_ + m : (batch * m_size_ + m) * n_size_ + n;
    WideCopy(inside, c_.accumulator, partial, b_.Let(inside, "to", at), lanes, b_.Idx(0),
             patch_.lane);
    out.push_back({tile::If{Inside(m, n), std::move(inside), {}}});
  }

  // store(block, n, lane, accumulator) for each place of a piece along n that is inside.
  template <class F>
  void EachLane(Block& out, const Piece& piece, F&& store) {
    Loop(out, "l", b_.Idx(patch_.lane), Bind::kUnroll, [&](Block& one, const Expr& l) {
      const Expr n = b_.Let(one, "nl", piece.n + l);
      Block inside;
      store(inside, n, l, Accumulator(SlotLane(piece.slot, l)));
      one.push_back({tile::If{Inside(piece.m, n), std::move(inside), {}}});
    });
  }

  void StorePiece(Block& out, const Piece& piece) {
    if (vector_dim_ >= 0) return StoreVector(out, piece);
    EachLane(out, piece, [&](Block& inside, const Expr& n, const Expr& l, const Expr& value) {
      const Index n_index = b_.Unravel(inside, n, c_.n.extents, c_.n.values, "on");
      ValueScope values(b_, inside);
      StoreOutputs(inside, values, c_.at_out(batch_, piece.m_index, n_index), value,
                   [&](Block& block, ValueScope& scope, const Index& at) {
                     Reduce(block, scope, at, piece, l);
                   });
    });
  }

  // A piece that is inside as a whole or not at all: what the epilogue reads beside it comes in
  // pieces where it lies so, its maps run lane by lane, and outputs go in pieces where they lie so.
  void StoreVector(Block& out, const Piece& piece) {
    const graph::Graph& g = group_.graph;
    const int lanes = patch_.lane;
    Block inside;
    const Index n_index = b_.Unravel(inside, piece.n, c_.n.extents, c_.n.values, "on");
    const Index at = c_.at_out(batch_, piece.m_index, n_index);
    const std::string l_name = b_.Name("l");
    const Expr l = Var(l_name);
    Index lane_at = at;
    lane_at[vector_dim_] = at[vector_dim_] + l;

    Block lane_body;
    ValueScope values(b_, lane_body);
    values.Bind(c_.out, lane_at,
                RoundThrough(g[c_.out].dtype, Accumulator(SlotLane(piece.slot, l))));
    for (TensorId id : MemoryInputs(g)) {
      const Tensor& x = g[id];
      if (x.rank() != static_cast<int64_t>(at.size()) || !IsOfOutput(x) || !MovesWide(x)) continue;
      const std::string read = LoadVector(b_, inside, id, BroadcastIndex(b_, x, at), lanes);
      values.Bind(id, BroadcastIndex(b_, x, lane_at),
                  tile::Cast(ArithmeticType(x.dtype), tile::Load(read, x.dtype, l)));
    }
    Reduce(lane_body, values, lane_at, piece, l);
    std::vector<std::pair<TensorId, std::string>> written;
    for (TensorId y : graph::Outputs(g)) {
      const Expr value = tile::Cast(g[y].dtype, values.Value(y, lane_at));
      if (!MovesWide(g[y])) {
        lane_body.push_back({tile::Store{b_.Pointer(y), b_.Offset(y, lane_at), value}});
        continue;
      }
      written.emplace_back(y, b_.Name(g[y].name + "_w"));
      inside.push_back({tile::Alloc{written.back().second, g[y].dtype, tile::Space::kReg, lanes}});
      lane_body.push_back({tile::Store{written.back().second, l, value}});
    }
    inside.push_back({tile::For{l_name, t(), b_.Idx(lanes), Bind::kUnroll, std::move(lane_body)}});
    for (const auto& [y, registers] : written)
      WideCopy(inside, g[y].dtype, b_.Pointer(y),
               b_.Let(inside, g[y].name + "_at", b_.Offset(y, at)), registers, b_.Idx(0), lanes);
    out.push_back({tile::If{Inside(piece.m, piece.n), std::move(inside), {}}});
  }

  // Has the output's dims, or is broadcast to them. An operand of the contraction that looks so is
  // read in vain, and pruned.
  bool IsOfOutput(const Tensor& x) const {
    const Tensor& y = group_.graph[c_.out];
    for (int64_t d = 0; d < x.rank(); ++d)
      if (x.dims[d] != 1 && x.dims[d] != y.dims[d]) return false;
    return true;
  }

  const Target& target_;
  int depth_;
  SimtPatch patch_;
  int64_t slices_;
  Totals totals_;
  Side a_, b_side_;
  PartialResults partial_;
  TileReductions reductions_;
  bool reduces_;
  int64_t vector_dim_ = -1;      // of the output, along which pieces are written; -1 for elements
  bool rows_innermost_ = false;  // that dim is of m, not of n
  std::string acc_;
  Expr lane_, warp_, thread_m_, thread_n_;
  // Of b and a, by is_a.
  Expr row_[2], at_depth_[2];
  std::map<int, RowPlace> places_[2];
};

}  // namespace

SimtPatch PatchOf(const SimtKnobs& knobs, DType accumulator) {
  const int places = knobs.tile_m * knobs.tile_n;
  SimtPatch patch{.threads = std::clamp(knobs.threads, std::max(places / kMostPerThread, kWarp),
                                        std::max(places / kLeastPerThread, kWarp)),
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
  const int64_t rows = int64_t{knobs.tile_m} + knobs.tile_n + 2 * kPadding;
  const int64_t warps = PatchOf(knobs, accumulator).threads / kWarp;
  const int64_t sums = warps * std::max(knobs.tile_m, knobs.tile_n) * 8;  // at most
  return 2 * rows * knobs.tile_k * SizeOf(accumulator) + reductions * sums;
}

int64_t SimtSlices(const Group& group, const Target& target, const SimtKnobs& knobs) {
  if (CountReductions(group) > 0) return 1;
  const ContractionSizes size = SizesOf(group.graph, ContractionOf(group));
  const int64_t blocks = CeilDiv(size.m, knobs.tile_m) * CeilDiv(size.n, knobs.tile_n) * size.batch;
  return ChooseSlices(target, size, blocks, CeilDiv(size.k, knobs.tile_k), kLeastSteps,
                      knobs.slices);
}

Lowered LowerSimtGpu(const EpilogueReductions& group, const Target& target,
                     const SimtKnobs& knobs) {
  return GpuSchedule(group, target, knobs).Lower();
}

}  // namespace kiln::compiler
