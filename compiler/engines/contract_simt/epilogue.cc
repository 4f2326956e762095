#include "compiler/engines/contract_simt/epilogue.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

SimtEpilogue::SimtEpilogue(const SimtContext& context, const SimtBlock& block,
                           const SimtThread& thread, std::string acc, TileReductions* reductions)
    : x_(context), block_(block), thread_(thread), acc_(std::move(acc)), reductions_(reductions) {
  FindVector();
}

// Finds out whether the first output can be written in pieces of `lane` along n, or along m.
void SimtEpilogue::FindVector() {
  const graph::Graph& g = x_.b.graph();
  if (graph::Outputs(g).empty()) return;
  const Tensor& y = g[graph::Outputs(g)[0]];
  const auto inner = [&](const Axis& axis, const Dims& walked) -> int64_t {
    for (size_t i = axis.values.size(); i-- > 0;) {
      if (axis.values[i] == 1) continue;
      const int64_t d = walked[i];
      return d >= 0 && axis.values[i] % x_.patch.lane == 0 && y.strides[d] == 1 ? d : -1;
    }
    return -1;
  };
  vector_dim_ = inner(x_.c.n, x_.c.walks.out_n);
  if (vector_dim_ < 0) {
    vector_dim_ = inner(x_.c.m, x_.c.walks.out_m);
    rows_innermost_ = vector_dim_ >= 0;
  }
}

// True if `x`, of the output's dims or broadcast to them, moves in pieces too.
bool SimtEpilogue::MovesWide(const Tensor& x) const {
  const int lane = x_.patch.lane;
  if (x.by_value || x.strides[vector_dim_] != 1 || x.dims[vector_dim_] == 1) return false;
  const int bytes = std::min(16, lane * SizeOf(x.dtype));
  if (x.alignment % bytes != 0 || bytes < 2) return false;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != vector_dim_ && x.dims[d] != 1 && x.strides[d] % lane != 0) return false;
  return true;
}

// Has the output's dims, or is broadcast to them. An operand of the contraction that looks so is
// read in vain, and pruned.
bool SimtEpilogue::IsOfOutput(const Tensor& x) const {
  const Tensor& y = x_.b.graph()[x_.c.out];
  for (int64_t d = 0; d < x.rank(); ++d)
    if (x.dims[d] != 1 && x.dims[d] != y.dims[d]) return false;
  return true;
}

// ---- reductions of the result

// Slot s of a side is element s % lane of the thread's piece s / lane.
void SimtEpilogue::DeclareReductions(Block& body) {
  KernelBuilder& b = x_.b;
  const SimtPatch& patch = x_.patch;
  const int lanes_n = patch.lanes_n, warps_n = x_.warps_n();
  const auto masks = [](int from, int to) {
    std::vector<int> bits;
    for (int mask = from; mask < to; mask *= 2) bits.push_back(mask);
    return bits;
  };
  const auto is_zero = [&](const Expr& e) { return tile::Op(ScalarOp::kEq, {e, b.Idx(0)}); };
  reductions_->Declare(
      body,
      {.extent = x_.shape.m,
       .slots = patch.per_m,
       .place = [this](const Expr& slot) { return thread_.m + x_.Spread(slot, x_.stride_m()); },
       .lane_masks = masks(1, lanes_n),
       .leads = is_zero(thread_.lane % b.Idx(lanes_n)),
       .warps = warps_n,
       .warp = thread_.warp % b.Idx(warps_n),
       .first = block_.first_m,
       .size = block_.m_size,
       .part = Var(b, "by")},
      {.extent = x_.shape.n,
       .slots = patch.per_n,
       .place = [this](const Expr& slot) { return thread_.n + x_.Spread(slot, x_.stride_n()); },
       .lane_masks = masks(lanes_n, kWarpLanes),
       .leads = is_zero(thread_.lane / b.Idx(lanes_n)),
       .warps = patch.threads / kWarpLanes / warps_n,
       .warp = thread_.warp / b.Idx(warps_n),
       .first = block_.first_n,
       .size = block_.n_size,
       .part = block_.tile_row});
}

// Takes in lane l of a piece.
void SimtEpilogue::Reduce(Block& out, ValueScope& values, const Index& at, const Piece& piece,
                          const Expr& l) const {
  if (!reductions_) return;
  reductions_->Add(out, values, at, rows_innermost_ ? piece.m_slot + l : piece.m_slot,
                   rows_innermost_ ? piece.n_slot : piece.n_slot + l);
}

// ---- pieces

// Calls store(block, piece) for each piece.
template <class F>
void SimtEpilogue::EachPiece(Block& body, F&& store) {
  KernelBuilder& b = x_.b;
  const int lane = x_.patch.lane, per_n = x_.patch.per_n;
  const bool by_rows = rows_innermost_;
  const int pieces = by_rows ? x_.patch.per_m / lane : x_.patch.per_m;
  const int across = by_rows ? per_n : per_n / lane;
  Loop(b, body, "i", b.Idx(pieces), Bind::kUnroll, [&](Block& rows, const Expr& i) {
    const Expr m_part = by_rows ? i * b.Idx(x_.stride_m()) : x_.Spread(i, x_.stride_m());
    const Expr m = b.Let(rows, "m", block_.first_m + thread_.m + m_part);
    const Index m_dims = b.Unravel(rows, m, x_.c.m.extents, x_.c.m.values, "om");
    Loop(b, rows, "j", b.Idx(across), Bind::kUnroll, [&](Block& one, const Expr& j) {
      const Expr n_part = by_rows ? x_.Spread(j, x_.stride_n()) : j * b.Idx(x_.stride_n());
      const Expr n = b.Let(one, "n", block_.first_n + thread_.n + n_part);
      const Expr slot = by_rows ? i * b.Idx(lane * per_n) + j : i * b.Idx(per_n) + j * b.Idx(lane);
      store(one,
            {m, n, m_dims, slot, by_rows ? i * b.Idx(lane) : i, by_rows ? j : j * b.Idx(lane)});
    });
  });
}

// store(block, n, lane) for each place of a piece along n that is inside.
template <class F>
void SimtEpilogue::EachLane(Block& out, const Piece& piece, F&& store) const {
  KernelBuilder& b = x_.b;
  Loop(b, out, "l", b.Idx(x_.patch.lane), Bind::kUnroll, [&](Block& one, const Expr& l) {
    const Expr n = b.Let(one, "nl", piece.n + l);
    Block inside;
    store(inside, n, l);
    When(one, Inside(piece.m, n), std::move(inside));
  });
}

Expr SimtEpilogue::Sum(const Piece& piece, const Expr& l) const {
  const Expr slot = piece.slot + (rows_innermost_ ? l * x_.b.Idx(x_.patch.per_n) : l);
  return tile::Load(acc_, x_.c.accumulator, slot);
}

Expr SimtEpilogue::Inside(const Expr& m, const Expr& n) const {
  return tile::And(tile::Lt(m, block_.m_size), tile::Lt(n, block_.n_size));
}

Index SimtEpilogue::ColumnDims(Block& out, const Expr& n) const {
  return x_.b.Unravel(out, n, x_.c.n.extents, x_.c.n.values, "on");
}

// ---- slices of k

void SimtEpilogue::StoreSlices(Block& body) {
  const std::string partial = x_.b.Scratch(0, x_.c.accumulator, false);
  EachPiece(body, [&](Block& out, const Piece& piece) { StoreSlice(out, partial, piece); });
}

void SimtEpilogue::StoreSlice(Block& out, const std::string& partial, const Piece& piece) const {
  KernelBuilder& b = x_.b;
  const DType type = x_.c.accumulator;
  const int lane = x_.patch.lane;
  const Expr batch = Var(b, "bz") * b.Arg("batches", x_.c.batch.size()) + block_.batch_number;
  const Expr row = (batch * block_.m_size + piece.m) * block_.n_size;
  if (vector_dim_ < 0) {
    return EachLane(out, piece, [&](Block& one, const Expr& n, const Expr& l) {
      one.push_back({tile::Store{partial, row + n, Sum(piece, l)}});
    });
  }
  Block inside;
  const std::string lanes = Registers(b, inside, "piece", type, lane);
  Loop(b, inside, "l", b.Idx(lane), Bind::kUnroll,
       [&](Block& one, const Expr& l) { one.push_back({tile::Store{lanes, l, Sum(piece, l)}}); });
  const Expr at =
      rows_innermost_ ? (batch * block_.n_size + piece.n) * block_.m_size + piece.m : row + piece.n;
  WideCopy(inside, type, partial, b.Let(inside, "to", at), lanes, b.Idx(0), lane);
  When(out, Inside(piece.m, piece.n), std::move(inside));
}

// ---- the group's maps

void SimtEpilogue::Store(Block& body) {
  EachPiece(body, [&](Block& out, const Piece& piece) {
    vector_dim_ >= 0 ? StoreVector(out, piece) : StoreElements(out, piece);
  });
}

void SimtEpilogue::StoreElements(Block& out, const Piece& piece) const {
  EachLane(out, piece, [&](Block& inside, const Expr& n, const Expr& l) {
    const Index at = x_.c.at_out(block_.batch, piece.m_dims, ColumnDims(inside, n));
    ValueScope values(x_.b, inside);
    StoreOutputs(x_.b, inside, values, x_.c.out, at, Sum(piece, l),
                 [&](Block& block, ValueScope& scope, const Index& place) {
                   Reduce(block, scope, place, piece, l);
                 });
  });
}

// Tensors that the epilogue reads beside the sums come in pieces where they lie so.
void SimtEpilogue::ReadBeside(Block& out, ValueScope& values, const Index& at, const Index& lane_at,
                              const Expr& l) const {
  KernelBuilder& b = x_.b;
  for (TensorId id : MemoryInputs(b.graph())) {
    const Tensor& x = b.graph()[id];
    if (x.rank() != static_cast<int64_t>(at.size()) || !IsOfOutput(x) || !MovesWide(x)) continue;
    const std::string read = LoadVector(b, out, id, BroadcastIndex(b, x, at), x_.patch.lane);
    values.Bind(id, BroadcastIndex(b, x, lane_at),
                tile::Cast(ArithmeticType(x.dtype), tile::Load(read, x.dtype, l)));
  }
}

// A piece that is inside as a whole or not at all: maps run lane by lane, and outputs go in pieces
// where they lie so.
void SimtEpilogue::StoreVector(Block& out, const Piece& piece) const {
  KernelBuilder& b = x_.b;
  const graph::Graph& g = b.graph();
  const int lanes = x_.patch.lane;
  Block inside;
  const Index at = x_.c.at_out(block_.batch, piece.m_dims, ColumnDims(inside, piece.n));
  const std::string l_name = b.Name("l");
  const Expr l = Var(b, l_name);
  Index lane_at = at;
  lane_at[vector_dim_] = at[vector_dim_] + l;

  Block lane_body;
  ValueScope values(b, lane_body);
  values.Bind(x_.c.out, lane_at, RoundThrough(g[x_.c.out].dtype, Sum(piece, l)));
  ReadBeside(inside, values, at, lane_at, l);
  Reduce(lane_body, values, lane_at, piece, l);
  std::vector<std::pair<TensorId, std::string>> written;
  for (TensorId y : graph::Outputs(g)) {
    const Expr value = tile::Cast(g[y].dtype, values.Value(y, lane_at));
    if (!MovesWide(g[y])) {
      lane_body.push_back({tile::Store{b.Pointer(y), b.Offset(y, lane_at), value}});
      continue;
    }
    written.emplace_back(y, Registers(b, inside, g[y].name + "_w", g[y].dtype, lanes));
    lane_body.push_back({tile::Store{written.back().second, l, value}});
  }
  inside.push_back(
      {tile::For{l_name, b.index_type(), b.Idx(lanes), Bind::kUnroll, std::move(lane_body)}});
  for (const auto& [y, registers] : written) {
    const Expr to = b.Let(inside, g[y].name + "_at", b.Offset(y, at));
    WideCopy(inside, g[y].dtype, b.Pointer(y), to, registers, b.Idx(0), lanes);
  }
  When(out, Inside(piece.m, piece.n), std::move(inside));
}

}  // namespace kiln::compiler
