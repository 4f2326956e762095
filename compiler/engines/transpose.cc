#include "compiler/engines/transpose.h"

#include <algorithm>

#include "compiler/engines/kernel_builder.h"
#include "compiler/engines/vectors.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;
using tile::Bind;
using tile::Block;
using tile::Expr;

constexpr int kTile = 64;
constexpr int kThreads = 256;
constexpr int kRows = kThreads / kTile;    // rows of the tile that one pass of the block covers
constexpr int kPitch = kTile + 1;          // one element of padding: no bank conflict in either direction
constexpr int64_t kWorthIt = 16;
constexpr int64_t kSharedLimit = 48 << 10;

}  // namespace

std::optional<TransposeShape> FindTranspose(const Group& group) {
  const graph::Graph& g = group.graph;
  const Tensor& y = g[graph::Outputs(g)[0]];
  TransposeShape shape{.input_dim = -1, .output_dim = y.rank() - 1, .inputs = {}};
  if (y.dims[shape.output_dim] < kWorthIt) return std::nullopt;
  int64_t shared = 0;
  for (TensorId id : MemoryInputs(g)) {
    const Tensor& t = g[id];
    if (WalkOf(t, shape.output_dim) != Walk::kStrided) continue;
    int64_t contiguous = -1;
    for (int64_t d = 0; d < t.rank(); ++d)
      if (WalkOf(t, d) == Walk::kContiguous) contiguous = d;
    if (contiguous < 0 || y.dims[contiguous] < kWorthIt) continue;
    if (shape.input_dim >= 0 && shape.input_dim != contiguous) continue;  // read in place, uncoalesced
    shared += int64_t{kTile} * kPitch * SizeOf(t.dtype);
    if (shared > kSharedLimit) break;
    shape.input_dim = contiguous;
    shape.inputs.push_back(id);
  }
  if (shape.inputs.empty()) return std::nullopt;
  return shape;
}

Lowered LowerTranspose(const Group& group, const Target& target, const TransposeShape& shape) {
  Lowered lowered;
  KernelBuilder b(group, target, fmt::format("pointwise, {0}x{0} tiles transposed in shared memory", kTile));
  const std::vector<TensorId> outputs = graph::Outputs(group.graph);
  const TensorId lead = outputs[0];
  const Tensor& y = group.graph[lead];

  // Block bx: one tile of (input_dim, output_dim) at one place of the other dims.
  Block body;
  for (const char* reserved : {"bx", "tx", "s", "p"}) b.Name(reserved);
  Index extents;
  Dims values;
  int64_t blocks = 1;
  for (int64_t d = 0; d < y.rank(); ++d) {
    const bool tiled = d == shape.input_dim || d == shape.output_dim;
    values.push_back(tiled ? CeilDiv(y.dims[d], kTile) : y.dims[d]);
    extents.push_back(tiled ? b.Arg(fmt::format("tiles{}", d), values.back()) : b.Extent(lead, d));
    blocks *= values.back();
  }
  const Expr tx = tile::Var("tx", b.index_type());
  const Index place = b.Unravel(body, tile::Var("bx", b.index_type()), extents, values, "i");
  const Expr lane = b.Let(body, "lane", tx % b.Idx(kTile));
  const Expr row = b.Let(body, "row", tx / b.Idx(kTile));
  const Expr first_in = b.Let(body, "first_in", place[shape.input_dim] * b.Idx(kTile));
  const Expr first_out = b.Let(body, "first_out", place[shape.output_dim] * b.Idx(kTile));

  const auto inside = [&](const Index& at) {
    return tile::And(tile::Lt(at[shape.input_dim], b.Extent(lead, shape.input_dim)),
                     tile::Lt(at[shape.output_dim], b.Extent(lead, shape.output_dim)));
  };
  std::vector<std::string> shared;
  for (TensorId id : shape.inputs) {
    shared.push_back(b.Name(group.graph[id].name + "_tile"));
    body.push_back({tile::Alloc{shared.back(), group.graph[id].dtype, tile::Space::kShared, int64_t{kTile} * kPitch}});
  }

  {  // Lanes along input_dim.
    Index at = place;
    Block loop, load;
    const Expr r = b.Let(loop, "in_row", tile::Var("s", b.index_type()) * b.Idx(kRows) + row);
    at[shape.input_dim] = first_in + lane;
    at[shape.output_dim] = first_out + r;
    for (size_t k = 0; k < shape.inputs.size(); ++k) {
      const Tensor& t = group.graph[shape.inputs[k]];
      const Expr offset = b.Offset(shape.inputs[k], BroadcastIndex(b, t, at));
      load.push_back({tile::Store{shared[k], r * b.Idx(kPitch) + lane,
                                  tile::Load(b.Pointer(shape.inputs[k]), t.dtype, offset)}});
    }
    loop.push_back({tile::If{inside(at), std::move(load), {}}});
    body.push_back({tile::For{"s", b.index_type(), b.Idx(kTile / kRows), Bind::kUnroll, std::move(loop)}});
  }
  body.push_back({tile::Barrier{}});
  {  // Lanes along output_dim.
    Index at = place;
    Block loop, store;
    const Expr r = b.Let(loop, "out_row", tile::Var("p", b.index_type()) * b.Idx(kRows) + row);
    at[shape.input_dim] = b.Let(loop, "at_in", first_in + r);
    at[shape.output_dim] = b.Let(loop, "at_out", first_out + lane);
    ValueScope scope(b, store);
    for (size_t k = 0; k < shape.inputs.size(); ++k) {
      const Tensor& t = group.graph[shape.inputs[k]];
      const Expr value = b.Let(store, t.name + "_v", tile::Load(shared[k], t.dtype, lane * b.Idx(kPitch) + r));
      scope.Bind(shape.inputs[k], BroadcastIndex(b, t, at), tile::Cast(ArithmeticType(t.dtype), value));
    }
    for (TensorId id : outputs) {
      const Expr value = tile::Cast(group.graph[id].dtype, scope.Value(id, at));
      store.push_back({tile::Store{b.Pointer(id), b.Offset(id, at), value}});
    }
    loop.push_back({tile::If{inside(at), std::move(store), {}}});
    body.push_back({tile::For{"p", b.index_type(), b.Idx(kTile / kRows), Bind::kUnroll, std::move(loop)}});
  }
  const Expr grid = b.Arg("blocks", blocks);
  b.Finish(BlockAndThread(b.index_type(), grid, kThreads, std::move(body)), {blocks, 1, 1}, kThreads, lowered);
  return lowered;
}

}  // namespace kiln::compiler
