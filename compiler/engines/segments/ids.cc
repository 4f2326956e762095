// segment_ids as kernels.
#include <bit>

#include "compiler/engines/segments/kernels.h"
#include "compiler/kernel/vectors.h"

namespace kiln::compiler {
namespace {

using graph::Node;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr size_t kOffsets = 0, kRows = 1, kMovedFrom = 2, kMoved = 1;

// The number of offsets that are at most `place`, less one. Halving: `found` of them are known to
// be.
//   for step in 2^k, … 2, 1 { if found + step <= N+1 and offsets[found + step - 1] <= place {…} }
Expr SegmentOf(KernelBuilder& b, Block& out, TensorId offsets, const Expr& place) {
  const DType t = b.index_type();
  const int64_t count = b.graph()[offsets].dims[0];
  const auto steps = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(count)));
  const std::string found = b.Name("found"), step = b.Name("step"), turn = b.Name("turn");
  const auto get = [&](const std::string& name) { return tile::Load(name, t, b.Idx(0)); };
  for (const std::string& name : {found, step})
    out.push_back({tile::Alloc{name, t, tile::Space::kReg, 1}});
  out.push_back({tile::Store{found, b.Idx(0), b.Idx(0)}});
  out.push_back({tile::Store{step, b.Idx(0),
                             b.Arg("first_step", int64_t{1} << std::max<int64_t>(steps - 1, 0))}});
  Block loop, inside, here;
  const Expr next = b.Let(loop, "next", get(found) + get(step));
  const Expr offset = ListElement(b, inside, offsets, next - b.Idx(1));
  here.push_back({tile::Store{found, b.Idx(0), next}});
  inside.push_back({tile::If{
      tile::Op(ScalarOp::kLe, {offset, tile::Cast(offset->type, place)}), std::move(here), {}}});
  loop.push_back(
      {tile::If{tile::Op(ScalarOp::kLe, {next, b.Extent(offsets, 0)}), std::move(inside), {}}});
  loop.push_back({tile::Store{step, b.Idx(0), get(step) / b.Idx(2)}});
  out.push_back({tile::For{turn, t, b.Arg("turns", steps), Bind::kSerial, std::move(loop)}});
  return b.Let(out, "segment", get(found) - b.Idx(1));
}

tile::Stmt StoreAt(KernelBuilder& b, TensorId list, const Expr& i, const Expr& value) {
  Index index(b.graph()[list].dims.size(), b.Idx(0));
  index[0] = i;
  return {tile::Store{b.Pointer(list), b.Offset(list, BroadcastIndex(b, b.graph()[list], index)),
                      tile::Cast(b.graph()[list].dtype, value)}};
}

using EmitPlace = std::function<void(KernelBuilder&, Block&, const Expr&)>;

void LowerPlaces(const Group& group, const Target& target, int threads, const char* what,
                 const EmitPlace& emit, Lowered& lowered) {
  KernelBuilder b(group, target, fmt::format("segments, {}", what));
  const TensorId y = group.graph.nodes.back().outputs[0];
  if (target.is_cuda()) {
    b.Name("i");
    Block body;
    emit(b, body, tile::Var("i", b.index_type()));
    return Append(lowered, LaunchItems(b, std::move(body), group.graph[y].dims[0], threads));
  }
  Append(lowered, LowerByChunks(b, y, {0}, Bind::kSerial,
                                [&](Block& out, const Index& index) { emit(b, out, index[0]); }));
}

}  // namespace

Result<Lowered> LowerSegmentIds(const Group& group, const Target& target, int threads) {
  const Node& node = group.graph.nodes.back();
  const TensorId y = node.outputs[0], rows = OperandOf(node, kRows),
                 x = OperandOf(node, kMovedFrom);
  const TensorId moved = node.outputs.size() > kMoved ? node.outputs[kMoved] : graph::kAbsent;
  Lowered lowered;
  if (rows != graph::kAbsent) {
    LowerPlaces(
        group, target, threads, "rows that no place has",
        [&](KernelBuilder& b, Block& out, const Expr& i) {
          out.push_back(StoreAt(b, y, i, tile::Int(-1)));
          if (moved != graph::kAbsent) out.push_back(StoreAt(b, moved, i, tile::Int(-1)));
        },
        lowered);
  }
  LowerPlaces(
      group, target, threads, "the segment of each place",
      [&](KernelBuilder& b, Block& out, const Expr& i) {
        const Expr place = b.Let(out, "p", i);
        const Expr segment = SegmentOf(b, out, node.inputs[kOffsets], place);
        if (rows == graph::kAbsent) return out.push_back(StoreAt(b, y, place, segment));
        const Expr row = b.Let(out, "row", ListElement(b, out, rows, place));
        const Expr extent = tile::Cast(row->type, b.Extent(y, 0));
        Block inside;
        const Expr at = b.Let(inside, "at_row", tile::Cast(b.index_type(), row));
        inside.push_back(StoreAt(b, y, at, segment));
        if (moved != graph::kAbsent)
          inside.push_back(StoreAt(b, moved, at, ListElement(b, inside, x, place)));
        const Expr is_row = tile::Op(
            ScalarOp::kAnd, {tile::Ge(row, tile::Int(0, row->type)), tile::Lt(row, extent)});
        out.push_back({tile::If{is_row, std::move(inside), {}}});
      },
      lowered);
  return lowered;
}

}  // namespace kiln::compiler
