#include "compiler/engines/contract_simt/panel.h"

#include <algorithm>
#include <utility>

#include "compiler/kernel/vectors.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Tensor;
using graph::TensorId;
using tile::Block;
using tile::Expr;

SimtPanel::SimtPanel(const SimtContext& context, bool is_a)
    : x_(context), is_a_(is_a), rows_(is_a ? context.shape.m : context.shape.n) {
  ChooseReading();
}

void SimtPanel::ChooseReading() {
  const Contraction& c = x_.c;
  const Tensor& x = x_.b.graph()[tensor()];
  const int lane = x_.patch.lane;
  const bool in_memory = graph::Producers(x_.b.graph())[tensor()] < 0 && !x.by_value;
  const bool fits = in_memory && lane * SizeOf(x.dtype) <= 16 && lane * SizeOf(x.dtype) >= 2;
  type_ = in_memory ? x.dtype : c.accumulator;
  reading_ = (is_a_ ? c.a_walks_k : c.b_walks_k) ? Reading::kDepth : Reading::kRows;
  if (fits && IsWideAlong(x, c.k, is_a_ ? c.walks.a_k : c.walks.b_k, lane))
    reading_ = Reading::kWideDepth;
  else if (fits && IsWideAlong(x, is_a_ ? c.m : c.n, is_a_ ? c.walks.a_m : c.walks.b_n, lane))
    reading_ = Reading::kWideRows;
  if (is_wide()) piece_ = lane;
}

int SimtPanel::slots() const { return std::max(1, pieces() / x_.patch.threads); }

void SimtPanel::Allocate(Block& body) {
  const std::string name = is_a_ ? "a" : "b";
  panel_ = x_.b.Name(name + "_panel");
  staged_ = x_.b.Name(name + "_staged");
  const int64_t size = 2 * int64_t{depth()} * pitch();
  body.push_back({tile::Alloc{panel_, x_.c.accumulator, tile::Space::kShared, size}});
  body.push_back({tile::Alloc{staged_, type_, tile::Space::kReg, slots() * piece_}});
}

// ---- which thread has which pieces

SimtPanel::Slot SimtPanel::SlotOf(int slot) const {
  return along_depth() ? SlotAlongDepth(slot) : SlotAlongRows(slot);
}

// Neighbouring threads along the rows.
SimtPanel::Slot SimtPanel::SlotAlongRows(int slot) const {
  KernelBuilder& b = x_.b;
  const Expr tx = Var(b, "tx");
  const int across = rows_ / piece_, threads = x_.patch.threads;
  if (threads <= across) {
    return {.row = tx * b.Idx(piece_),
            .depth = b.Idx(0),
            .row_offset = slot * threads % across * piece_,
            .depth_offset = slot * threads / across};
  }
  return {.row = tx % b.Idx(across) * b.Idx(piece_),
          .depth = tx / b.Idx(across),
          .row_offset = 0,
          .depth_offset = slot * (threads / across)};
}

// Neighbouring threads along k as far as one sector of memory or all banks go, then along the rows,
// then along k again.
SimtPanel::Slot SimtPanel::SlotAlongDepth(int slot) const {
  KernelBuilder& b = x_.b;
  const Expr tx = Var(b, "tx");
  const int across = std::min(is_wide() ? 2 : 8, depth() / piece_);
  const int high = x_.patch.threads / across;  // rows that all threads cover
  const Expr low = tx % b.Idx(across) * b.Idx(piece_), up = tx / b.Idx(across);
  if (high <= rows_) {
    return {.row = up,
            .depth = low,
            .row_offset = slot * high % rows_,
            .depth_offset = slot * high / rows_ * across * piece_};
  }
  return {.row = up % b.Idx(rows_),
          .depth = up / b.Idx(rows_) * b.Idx(across * piece_) + low,
          .row_offset = 0,
          .depth_offset = slot * (high / rows_) * across * piece_};
}

void SimtPanel::Enter(Block& body, const SimtBlock& block) {
  KernelBuilder& b = x_.b;
  const Axis& axis = is_a_ ? x_.c.m : x_.c.n;
  const std::string name = is_a_ ? "a" : "b", row_name = is_a_ ? "m" : "n";
  batch_ = block.batch;
  k_size_ = block.k_size;
  const Slot first = SlotOf(0);
  row_ = b.Let(body, name + "_row", first.row);
  at_depth_ = b.Let(body, name + "_depth", first.depth);
  for (int slot = 0; slot < slots(); ++slot) {
    const int offset = SlotOf(slot).row_offset;
    if (row_places_.contains(offset)) continue;
    const Expr row =
        b.Let(body, row_name, (is_a_ ? block.first_m : block.first_n) + row_ + b.Idx(offset));
    RowPlace place;
    place.dims = b.Unravel(body, row, axis.extents, axis.values, row_name);
    const Expr inside = tile::Lt(row, is_a_ ? block.m_size : block.n_size);
    place.inside = b.Let(body, name + "_inside", inside);
    row_places_.emplace(offset, std::move(place));
  }
}

// Panels of fewer pieces than the block has threads leave the others out.
template <class F>
void SimtPanel::ForPieces(Block& out, F&& fill) const {
  if (pieces() >= x_.patch.threads) return fill(out);
  Block some;
  fill(some);
  When(out, tile::Lt(Var(x_.b, "tx"), x_.b.Idx(pieces())), std::move(some));
}

// ---- memory to registers

void SimtPanel::Read(Block& out, const Expr& first_k) const {
  KernelBuilder& b = x_.b;
  ForPieces(out, [&](Block& all) {
    std::map<int, std::pair<Expr, Index>> depths;
    for (int i = 0; i < slots(); ++i) {
      const Slot slot = SlotOf(i);
      auto& [k, dims] = depths[slot.depth_offset];
      if (!k) {
        k = b.Let(all, "k", first_k + at_depth_ + b.Idx(slot.depth_offset));
        dims = b.Unravel(all, k, x_.c.k.extents, x_.c.k.values, "k");
      }
      ReadPiece(all, row_places_.at(slot.row_offset), k, dims, b.Idx(i * piece_));
    }
  });
}

void SimtPanel::ReadPiece(Block& out, const RowPlace& row, const Expr& k, const Index& k_dims,
                          const Expr& at) const {
  KernelBuilder& b = x_.b;
  for (int e = 0; e < piece_; ++e)
    out.push_back({tile::Store{staged_, at + b.Idx(e), ZeroOf(type_)}});
  const bool plain = graph::Producers(b.graph())[tensor()] < 0;
  const Expr in_range = tile::And(row.inside, tile::Lt(k, k_size_));
  // A tensor's place may be computed where it has none, so that one predicate guards the load; a
  // prologue is left out.
  Block read;
  Block& find = plain ? out : read;
  const Operand operand =
      is_a_ ? x_.c.at_a(find, batch_, row.dims, k_dims) : x_.c.at_b(find, batch_, k_dims, row.dims);
  Block inside;
  if (is_wide()) {
    const Expr from = b.Let(find, "from", b.Offset(tensor(), operand.index));
    WideCopy(inside, type_, staged_, at, b.Pointer(tensor()), from, piece_);
  } else {
    ValueScope values(b, inside);
    const Expr value = values.Value(tensor(), operand.index);
    inside.push_back({tile::Store{staged_, at, tile::Cast(type_, value)}});
  }
  if (plain) {
    const Expr there = operand.guard ? tile::And(in_range, operand.guard) : in_range;
    return When(out, there, std::move(inside));
  }
  if (operand.guard) {
    When(read, operand.guard, std::move(inside));
  } else {
    std::ranges::move(inside, std::back_inserter(read));
  }
  When(out, in_range, std::move(read));
}

// ---- registers to a panel

void SimtPanel::Write(Block& out, const Expr& which) const {
  KernelBuilder& b = x_.b;
  const int64_t size = int64_t{depth()} * pitch();
  ForPieces(out, [&](Block& all) {
    const Expr corner = b.Let(all, "to", which * b.Idx(size) + at_depth_ * b.Idx(pitch()) + row_);
    for (int i = 0; i < slots(); ++i) {
      const Slot slot = SlotOf(i);
      const Expr to = corner + b.Idx(slot.depth_offset * pitch() + slot.row_offset);
      WritePiece(all, to, i * piece_);
    }
  });
}

void SimtPanel::WritePiece(Block& out, const Expr& to, int at) const {
  KernelBuilder& b = x_.b;
  const DType panel_type = x_.c.accumulator;
  const auto value = [&](int e) {
    return tile::Cast(panel_type, tile::Load(staged_, type_, b.Idx(at + e)));
  };
  if (reading_ != Reading::kWideRows) {
    for (int e = 0; e < piece_; ++e)
      out.push_back({tile::Store{panel_, to + b.Idx(e * pitch()), value(e)}});
    return;
  }
  if (type_ == panel_type) return WideCopy(out, type_, panel_, to, staged_, b.Idx(at), piece_);
  const std::string converted = Registers(b, out, "converted", panel_type, piece_);
  for (int e = 0; e < piece_; ++e) out.push_back({tile::Store{converted, b.Idx(e), value(e)}});
  WideCopy(out, panel_type, panel_, to, converted, b.Idx(0), piece_);
}

// ---- a panel to fragments

Expr SimtPanel::Corner(Block& out, const Expr& which, const Expr& thread) const {
  const Expr first = which * x_.b.Idx(int64_t{depth()} * pitch());
  return x_.b.Let(out, is_a_ ? "a_at" : "b_at", first + thread);
}

std::string SimtPanel::Fragment(Block& out, const Expr& kk, const Expr& corner, int size,
                                int stride) const {
  KernelBuilder& b = x_.b;
  const int lane = x_.patch.lane;
  const std::string name =
      Registers(b, out, is_a_ ? "a_fragment" : "b_fragment", x_.c.accumulator, size);
  for (int i = 0; i < size / lane; ++i)
    WideCopy(out, x_.c.accumulator, name, b.Idx(i * lane), panel_,
             corner + kk * b.Idx(pitch()) + b.Idx(i * stride), lane);
  return name;
}

}  // namespace kiln::compiler
