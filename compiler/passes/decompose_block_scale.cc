// The block-scale operations as primitives. A dim of b-element blocks is seen as two, [blocks, b],
// so that a scale broadcasts over its block:
//
//   x[M, K] * scale[M, K/b]   =   reshape(reshape(x)[M, K/b, b] * reshape(scale)[M, K/b, 1])
//
// Where the last block is short, the whole blocks and the short one go apart and are concatenated.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/base/check.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Combine;
using graph::Graph;
using graph::GraphOp;
using graph::Node;
using graph::Tensor;
using graph::TensorId;

// Sees tensors by blocks: reshapes, slices and concatenations around what a block computes.
class Blocks {
 public:
  Blocks(PrimitiveWriter& writer, Dims sizes) : w_(writer), sizes_(std::move(sizes)) {}

  // `x` and the scales of its elements (or x twice), both cut at short last blocks, both split;
  // returns f's result for all blocks: of x's dims, or one element a block where `reduces`.
  using Compute = std::function<TensorId(TensorId x, TensorId scale)>;
  TensorId Apply(TensorId x, TensorId scale, bool reduces, const Compute& f, size_t dim = 0) {
    const size_t rank = sizes_.size();
    while (dim < rank && Dim(x, dim) % sizes_[dim] == 0) ++dim;
    if (dim == rank) return Whole(x, scale, reduces, f);
    const int64_t extent = Dim(x, dim), whole = extent / sizes_[dim] * sizes_[dim];
    if (whole == 0) {  // one block, and short
      const int64_t size = std::exchange(sizes_[dim], extent);
      const TensorId result = Apply(x, scale, reduces, f, dim);
      sizes_[dim] = size;
      return result;
    }
    const bool has_scales = scale != x;
    const auto part = [&](int64_t from, int64_t to) {
      const TensorId piece = Slice(x, dim, from, to);
      const int64_t size = sizes_[dim];
      return Apply(piece,
                   has_scales ? Slice(scale, dim, from / size, (to + size - 1) / size) : piece,
                   reduces, f, dim);
    };
    const TensorId first = part(0, whole);
    return Concat(first, part(whole, extent), dim);
  }

 private:
  int64_t Dim(TensorId id, size_t dim) { return w_.graph()[id].dims[dim]; }

  TensorId Like(TensorId id, Dims dims, Dims strides) {
    Tensor t = w_.graph()[id];
    t.dims = std::move(dims);
    t.strides = std::move(strides);
    t.uid = -1;
    t.is_virtual = true;
    t.by_value = false;
    t.value = std::nullopt;
    return w_.graph().AddTensor(std::move(t));
  }

  void Node(GraphOp op, std::vector<TensorId> inputs, TensorId output, graph::Attrs attrs) {
    const DType type = w_.graph()[output].dtype;
    w_.graph().AddNode({.op = op,
                        .inputs = std::move(inputs),
                        .outputs = {output},
                        .compute = type == DType::kF64 ? type : DType::kF32,
                        .attrs = std::move(attrs),
                        .name = ""});
  }

  TensorId Slice(TensorId x, size_t dim, int64_t from, int64_t to) {
    Dims dims = w_.graph()[x].dims, start(dims.size(), 0);
    const Dims step(dims.size(), 1);
    if (from == 0 && to == dims[dim]) return x;
    dims[dim] = to - from;
    start[dim] = from;
    const TensorId y = Like(x, dims, w_.graph()[x].strides);
    Node(GraphOp::kSlice, {x}, y, graph::SliceAttrs{.start = start, .step = step});
    return y;
  }

  TensorId Concat(TensorId a, TensorId b, size_t dim) {
    Dims dims = w_.graph()[a].dims;
    dims[dim] += Dim(b, dim);
    Dims strides = PackedStrides(dims);
    const TensorId y = Like(a, std::move(dims), std::move(strides));
    Node(GraphOp::kConcat, {a, b}, y, graph::ConcatAttrs{.axis = static_cast<int64_t>(dim)});
    return y;
  }

  // Each blocked dim of x as two, of count / size and size elements; its strides stay what they
  // are in memory, so that a view of the memory and one in row-major order are the same.
  TensorId Split(TensorId x, bool has_blocks) {
    const Tensor t = w_.graph()[x];
    Dims dims, strides;
    for (size_t d = 0; d < sizes_.size(); ++d) {
      const int64_t size = has_blocks ? sizes_[d] : 1;
      dims.push_back(t.dims[d] / size);
      strides.push_back(t.strides[d] * size);
      if (sizes_[d] == 1) continue;
      dims.push_back(size);
      strides.push_back(t.strides[d]);
    }
    if (dims == t.dims) return x;
    const TensorId y = Like(x, std::move(dims), std::move(strides));
    Node(GraphOp::kReshape, {x}, y, graph::ReshapeAttrs{});
    return y;
  }

  TensorId Whole(TensorId x, TensorId scale, bool reduces, const Compute& f) {
    Dims dims = w_.graph()[x].dims;
    const TensorId split = Split(x, true);
    // Padding of the scales lies beyond the last block.
    for (size_t d = 0; scale != x && d < dims.size(); ++d)
      scale = Slice(scale, d, 0, dims[d] / sizes_[d]);
    TensorId result = f(split, scale == x ? split : Split(scale, false));
    if (reduces) {
      Dims reduced;
      for (size_t d = 0; d < sizes_.size(); ++d) {
        dims[d] /= sizes_[d];
        reduced.push_back(dims[d]);
        if (sizes_[d] != 1) reduced.push_back(1);
      }
      if (reduced != w_.graph()[result].dims)
        result = w_.Reduce(Combine::kMax, result, std::move(reduced));
    }
    if (w_.graph()[result].dims == dims) return result;
    Dims strides = PackedStrides(dims);
    const TensorId y = Like(result, std::move(dims), std::move(strides));
    Node(GraphOp::kReshape, {result}, y, graph::ReshapeAttrs{});
    return y;
  }

  PrimitiveWriter& w_;
  Dims sizes_;
};

DType Arithmetic(const graph::Node& node) {
  return node.compute == DType::kF64 ? DType::kF64 : DType::kF32;
}

Dims SizesOf(const Graph& g, const Node& node, TensorId x, TensorId scale) {
  const auto& block_size = node.As<graph::BlockScaleAttrs>().block_size;
  auto sizes = graph::BlockSizes(block_size, g[x], g[scale]);
  CHECK(sizes.ok(), "{}", sizes.status().message());
  return *std::move(sizes);
}

// `value`, a quotient of non-negative numbers, rounded up to the dtype of the scales.
void WriteRoundedUp(PrimitiveWriter& w, TensorId value, TensorId scale) {
  Graph& g = w.graph();
  // The conversion to e8m0 rounds up; wide types hold the quotient as it is.
  constexpr DType kAsConverted[] = {DType::kE8M0, DType::kF32, DType::kF64};
  if (std::ranges::find(kAsConverted, g[scale].dtype) != std::end(kAsConverted))
    return w.Write(value, scale);
  // To the nearest, and three quarters of a unit in the last place on where that went down.
  Tensor t = g[scale];
  t.uid = -1;
  t.is_virtual = true;
  t.strides = PackedStrides(t.dims);
  const TensorId near = g.AddTensor(std::move(t));
  g.AddNode({.op = GraphOp::kMap,
             .inputs = {value},
             .outputs = {near},
             .compute = w.compute(),
             .attrs = graph::MapAttrs{.identity = true},
             .name = ""});
  const double smallest = RoundTo(g[scale].dtype, std::ldexp(1.0, -9));
  const TensorId step =
      w.Map(ScalarOp::kMax, {w.Mul(near, w.Number(0.09375)), w.Number(0.75 * smallest)});
  const TensorId went_down = w.Map(ScalarOp::kLt, {near, value});
  w.Write(w.Select(went_down, w.Add(near, step), near), scale);
}

}  // namespace

void DecomposeBlockScaleDequantize(Graph& g, const Node& node) {
  const TensorId x = node.inputs[0], scale = node.inputs[1], y = node.outputs[0];
  PrimitiveWriter w(g, Arithmetic(node), g[y].name);
  Blocks blocks(w, SizesOf(g, node, x, scale));
  w.Write(blocks.Apply(x, scale, false, [&](TensorId a, TensorId b) { return w.Mul(a, b); }), y);
}

void DecomposeBlockScaleQuantize(Graph& g, const Node& node) {
  const TensorId x = node.inputs[0], y = node.outputs[0], scale = node.outputs[1];
  PrimitiveWriter w(g, Arithmetic(node), g[y].name);
  Blocks blocks(w, SizesOf(g, node, x, scale));
  const TensorId amax =
      blocks.Apply(x, x, true, [&](TensorId a, TensorId) { return w.Map(ScalarOp::kAbs, {a}); });
  const double largest = RoundTo(g[y].dtype, std::numeric_limits<double>::max());
  WriteRoundedUp(w, w.Div(amax, w.Number(largest)), scale);
  const TensorId result = blocks.Apply(x, scale, false, [&](TensorId a, TensorId b) {
    const TensorId is_zero = w.Map(ScalarOp::kEq, {b, w.Number(0)});
    return w.Select(is_zero, w.Number(0), w.Div(a, b));
  });
  w.Write(result, y);
}

}  // namespace kiln::compiler
