#include "compiler/engines/contract_mma/panel.h"

#include <algorithm>

#include "compiler/kernel/vectors.h"

namespace kiln::compiler {

using tile::Bind;
using tile::Block;
using tile::Expr;

// ---- rows

MmaRows::MmaRows(const MmaContext& context, const MmaBlock& block, bool is_a)
    : x_(context),
      batch_(block.batch),
      is_a_(is_a),
      path_(is_a ? context.plan.a : context.plan.b),
      count_(is_a ? context.plan.tile_m : context.plan.tile_n),
      first_(is_a ? block.first_m : block.first_n),
      size_(is_a ? block.m_size : block.n_size) {}

bool MmaRows::WritePlaces(Block& body) {
  KernelBuilder& b = x_.b;
  const Index& extents = axis().extents;
  const auto several =
      std::ranges::count_if(extents, [](const Expr& extent) { return !tile::IsConst(extent, 1); });
  if (several < 2 || path_ == OperandPath::kRows) return false;
  places_ = SharedArray(b, body, is_a_ ? "a_places" : "b_places", b.index_type(),
                        static_cast<int64_t>(extents.size()) * count_);
  const int threads = x_.plan.threads();
  Loop(b, body, "turn", b.Idx(CeilDiv(count_, threads)), Bind::kUnroll,
       [&](Block& one, const Expr& turn) {
         const Expr local = b.Let(one, "row", turn * b.Idx(threads) + Var(b, "tx"));
         Block inside;
         const Index index = Unravel(inside, b.Let(inside, "place", At(local)));
         for (size_t d = 0; d < index.size(); ++d)
           if (!tile::IsConst(extents[d], 1))
             inside.push_back({tile::Store{places_, PlaceAt(d, local), index[d]}});
         When(one, tile::Lt(local, b.Idx(count_)), std::move(inside));
       });
  return true;
}

Expr MmaRows::PlaceAt(size_t dim, const Expr& local) const {
  return x_.b.Idx(static_cast<int64_t>(dim) * count_) + local;
}

Index MmaRows::Dims(Block& out, const Expr& local, const Expr& row) const {
  if (places_.empty()) return Unravel(out, row);
  KernelBuilder& b = x_.b;
  Index index;
  const Index& extents = axis().extents;
  for (size_t d = 0; d < extents.size(); ++d) {
    if (tile::IsConst(extents[d], 1)) {
      index.push_back(b.Idx(0));
    } else {
      const Expr place = tile::Load(places_, b.index_type(), PlaceAt(d, local));
      index.push_back(b.Let(out, "place", place));
    }
  }
  return index;
}

Index MmaRows::Unravel(Block& out, const Expr& row) const {
  return x_.b.Unravel(out, row, axis().extents, axis().values, name());
}

Operand MmaRows::Element(Block& out, const Index& row, const Index& k) const {
  return is_a_ ? x_.c.at_a(out, batch_, row, k) : x_.c.at_b(out, batch_, k, row);
}

// ---- the ring

OperandPanel::OperandPanel(const MmaContext& context, const MmaBlock& block, bool is_a)
    : x_(context),
      is_a_(is_a),
      path_(is_a ? context.plan.a : context.plan.b),
      count_(is_a ? context.plan.tile_m : context.plan.tile_n),
      pitch_(context.plan.Pitch(path_, count_)),
      chunks_(count_ * context.plan.depth / context.plan.chunk() / context.plan.threads()),
      size_(context.plan.PanelElements(path_, count_)),
      along_k_(is_a ? context.c.a_walks_k : context.c.b_walks_k),
      rows_(context, block, is_a),
      end_k_(block.end_k) {}

void OperandPanel::Allocate(Block& body) {
  const std::string name = is_a_ ? "a" : "b";
  panel_ = x_.b.Name(name + "_panel");
  fragments_ = x_.b.Name(name + "_fragments");
  body.push_back({tile::Alloc{panel_, x_.plan.type, tile::Space::kShared, x_.plan.stages * size_}});
}

int64_t OperandPanel::fragment_elements() const {
  const int words = is_a_ ? x_.warp_tiles_m() * 4 : x_.warp_tiles_n() * 2;
  return int64_t{words} * 4 / SizeOf(x_.plan.type);
}

void OperandPanel::AllocateFragments(Block& body) const {
  body.push_back(
      {tile::Alloc{fragments_, x_.plan.type, tile::Space::kReg, 2 * fragment_elements()}});
}

bool OperandPanel::Enter(Block& body, const MmaLane& lane) {
  KernelBuilder& b = x_.b;
  const int chunk = x_.plan.chunk();
  const bool rows = path_ == OperandPath::kRows;
  const std::string name = is_a_ ? "a" : "b";
  if (is_async()) {
    const int along = (rows ? count_ : x_.plan.depth) / chunk;
    const Expr inner = b.Let(body, name + "_inner", Var(b, "tx") % b.Idx(along) * b.Idx(chunk));
    const Expr outer = b.Let(body, name + "_outer", Var(b, "tx") / b.Idx(along));
    row_in_ = rows ? inner : outer;
    k_in_ = rows ? outer : inner;
    if (rows) row_dims_ = rows_.Unravel(body, b.Let(body, rows_.name(), rows_.At(row_in_)));
  }
  // Rows of the four matrices of a load: A's go (rows, k) = (0, 0), (8, 0), (0, 8), (8, 8) in
  // units of elements or half depths, B's (0, 0), (0, 8), (8, 0), (8, 8).
  const Expr low = b.Let(body, name + "_low", lane.lane % b.Idx(8));
  const Expr second = b.Let(body, name + "_second", lane.lane / b.Idx(8) % b.Idx(2));
  const Expr third = b.Let(body, name + "_third", lane.lane / b.Idx(16));
  const Expr row_half = is_a_ ? second : third, k_half = is_a_ ? third : second;
  const Expr warp_row = is_a_ ? lane.warp_m : lane.warp_n;
  const Expr pitch = b.Idx(pitch_);
  lane_at_ = b.Let(body, name + "_lane",
                   rows ? (k_half * b.Idx(8) + low) * pitch + warp_row + row_half * b.Idx(8)
                        : (warp_row + row_half * b.Idx(8) + low) * pitch + k_half * b.Idx(chunk));
  return rows_.WritePlaces(body);
}

Index OperandPanel::DepthDims(Block& out, const Expr& k) const {
  return x_.b.Unravel(out, k, x_.c.k.extents, x_.c.k.values, "k");
}

// ---- memory to a panel

void OperandPanel::Start(Block& out, const Expr& first_k, const Expr& slot) const {
  KernelBuilder& b = x_.b;
  const bool rows = path_ == OperandPath::kRows;
  const int step = x_.plan.threads() * x_.plan.chunk() / (rows ? count_ : x_.plan.depth);
  const Expr k = b.Let(out, "k", first_k + k_in_);
  const Index k_dims = rows ? Index{} : DepthDims(out, k);
  const Expr to = b.Let(
      out, "to",
      slot * b.Idx(size_) + (rows ? k_in_ : row_in_) * b.Idx(pitch_) + (rows ? row_in_ : k_in_));
  Loop(b, out, "c", b.Idx(chunks_), Bind::kUnroll, [&](Block& one, const Expr& c) {
    const Expr offset = c * b.Idx(step);
    Expr row, here;
    Operand operand;
    if (rows) {
      row = rows_.At(row_in_);
      here = b.Let(one, "k", k + offset);
      operand = rows_.Element(one, row_dims_, DepthDims(one, here));
    } else {
      const Expr local = b.Let(one, "row", row_in_ + offset);
      row = b.Let(one, rows_.name(), rows_.At(local));
      here = k;
      operand = rows_.Element(one, rows_.Dims(one, local, row), k_dims);
    }
    Expr valid = tile::And(rows_.Exists(row), tile::Lt(here, end_k_));
    if (operand.guard) valid = tile::And(valid, operand.guard);
    const graph::TensorId id = rows_.tensor();
    one.push_back({tile::CopyAsync{panel_, to + c * b.Idx(int64_t{step} * pitch_), b.Pointer(id),
                                   b.Offset(id, operand.index), x_.plan.chunk(), valid}});
  });
}

void OperandPanel::CopyElements(Block& out, const Expr& first_k, const Expr& slot) const {
  KernelBuilder& b = x_.b;
  Loop(b, out, "c", b.Idx(chunks_), Bind::kSerial, [&](Block& chunk, const Expr& c) {
    const std::string staged = Registers(b, chunk, "staged", x_.plan.type, x_.plan.chunk());
    ReadChunk(chunk, c, first_k, staged, b.Idx(0));
    WriteChunk(chunk, c, slot, staged, b.Idx(0));
  });
}

OperandPanel::Chunk OperandPanel::ElementChunk(Block& out, const Expr& number) const {
  KernelBuilder& b = x_.b;
  const Expr flat = b.Let(out, "flat", number * b.Idx(x_.plan.threads()) + Var(b, "tx"));
  const int per_row = x_.plan.depth / x_.plan.chunk();
  const Expr row = along_k_ ? flat / b.Idx(per_row) : flat % b.Idx(count_);
  const Expr depth = along_k_ ? flat % b.Idx(per_row) : flat / b.Idx(count_);
  return {b.Let(out, "row", row), b.Let(out, "depth", depth * b.Idx(x_.plan.chunk()))};
}

// staged[at ..] = the elements of one chunk, zeros where there are none.
void OperandPanel::ReadChunk(Block& out, const Expr& number, const Expr& first_k,
                             const std::string& staged, const Expr& at) const {
  KernelBuilder& b = x_.b;
  const DType type = x_.plan.type;
  const Chunk chunk = ElementChunk(out, number);
  const Expr row = b.Let(out, rows_.name(), rows_.At(chunk.row));
  const Index row_dims = rows_.Dims(out, chunk.row, row);
  Loop(b, out, "e", b.Idx(x_.plan.chunk()), Bind::kUnroll, [&](Block& one, const Expr& e) {
    const Expr k = b.Let(one, "ke", first_k + chunk.depth + e);
    one.push_back({tile::Store{staged, at + e, ZeroOf(type)}});
    Block read, inside;
    const Operand operand = rows_.Element(read, row_dims, DepthDims(read, k));
    Block& target = operand.guard ? inside : read;
    ValueScope values(b, target);
    const Expr value = values.Value(rows_.tensor(), operand.index);
    target.push_back({tile::Store{staged, at + e, tile::Cast(type, value)}});
    if (operand.guard) When(read, operand.guard, std::move(inside));
    When(one, tile::And(rows_.Exists(row), tile::Lt(k, end_k_)), std::move(read));
  });
}

void OperandPanel::WriteChunk(Block& out, const Expr& number, const Expr& slot,
                              const std::string& staged, const Expr& at) const {
  KernelBuilder& b = x_.b;
  const Chunk chunk = ElementChunk(out, number);
  const Expr to = slot * b.Idx(size_) + chunk.row * b.Idx(pitch_) + chunk.depth;
  WideCopy(out, x_.plan.type, panel_, b.Let(out, "to", to), staged, at, x_.plan.chunk());
}

int OperandPanel::ChunksOfPart() const {
  return static_cast<int>(CeilDiv(chunks_, x_.k_steps() - 1));
}

template <class F>
void OperandPanel::EachOfPart(Block& out, const Expr& part, F&& emit) const {
  KernelBuilder& b = x_.b;
  const int count = ChunksOfPart();
  Loop(b, out, "c", b.Idx(count), Bind::kUnroll, [&](Block& one, const Expr& c) {
    const Expr number = part * b.Idx(count) + c;
    if (count * (x_.k_steps() - 1) == chunks_) return emit(one, number, c);
    Block inside;
    emit(inside, number, c);
    When(one, tile::Lt(number, b.Idx(chunks_)), std::move(inside));
  });
}

std::string OperandPanel::ReadPart(Block& out, const Expr& part, const Expr& first_k) const {
  const int chunk = x_.plan.chunk();
  const std::string staged =
      Registers(x_.b, out, "staged", x_.plan.type, int64_t{ChunksOfPart()} * chunk);
  EachOfPart(out, part, [&](Block& one, const Expr& number, const Expr& c) {
    ReadChunk(one, number, first_k, staged, c * x_.b.Idx(chunk));
  });
  return staged;
}

void OperandPanel::WritePart(Block& out, const Expr& part, const Expr& slot,
                             const std::string& staged) const {
  EachOfPart(out, part, [&](Block& one, const Expr& number, const Expr& c) {
    WriteChunk(one, number, slot, staged, c * x_.b.Idx(x_.plan.chunk()));
  });
}

// ---- a panel to fragments

void OperandPanel::LoadFragments(Block& out, const Expr& half, const Expr& slot,
                                 const Expr& kk) const {
  KernelBuilder& b = x_.b;
  const bool rows = path_ == OperandPath::kRows;
  const Expr from = b.Let(out, "from",
                          slot * b.Idx(size_) + lane_at_ +
                              kk * b.Idx(int64_t{x_.plan.mma_depth()} * (rows ? pitch_ : 1)));
  const int loads = is_a_ ? x_.warp_tiles_m() : x_.warp_tiles_n() / 2;
  Loop(b, out, "f", b.Idx(loads), Bind::kUnroll, [&](Block& one, const Expr& f) {
    one.push_back({tile::LoadMatrix{
        fragments_, half * b.Idx(fragment_elements()) + f * b.Idx(x_.plan.chunk()), panel_,
        from + f * b.Idx(int64_t{16} * (rows ? 1 : pitch_)), 4, rows}});
  });
}

}  // namespace kiln::compiler
