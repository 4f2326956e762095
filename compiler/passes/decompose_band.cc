// Band matrices as primitives: each element is gathered from its place (ir/graph/ops_band.cc), and
// is the pad value where that lies outside.
//   %place = iota(axis) -+ iota(other dim) +- shift
//   %y = select(0 <= %place and %place < extent, gather(%x, %place), pad)
#include "compiler/passes/decompose_parts.h"
#include "compiler/passes/primitive_writer.h"
#include "ir/graph/ops.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::Node;
using graph::TensorId;

void Shear(Graph& g, const Node& node, bool expands) {
  const auto& attrs = node.As<graph::BandAttrs>();
  const TensorId x = node.inputs[0], y = node.outputs[0];
  const Dims dims = g[y].dims;
  const int64_t rank = g[y].rank(), axis = attrs.axis, other = 2 * rank - 3 - axis;
  const int64_t extent = g[x].dims[static_cast<size_t>(axis)];
  const int64_t shift = graph::BandShift(attrs, rank);
  PrimitiveWriter at(g, DType::kI64, g[y].name), w(g, ArithmeticType(node.compute), g[y].name);
  const auto along = [&](int64_t d) {
    Dims one(dims.size(), 1);
    one[static_cast<size_t>(d)] = dims[static_cast<size_t>(d)];
    return at.Cast(at.Iota(d, std::move(one)), DType::kI64);
  };
  const auto number = [&](int64_t v) {
    return at.Number(static_cast<double>(v), kLaunchNumberUid);
  };
  const TensorId j = along(axis), i = along(other);
  const TensorId place =
      expands ? at.Add(at.Sub(j, i), number(shift)) : at.Sub(at.Add(j, i), number(shift));
  const TensorId inside = at.Map(ScalarOp::kAnd, {at.Map(ScalarOp::kGe, {place, at.Number(0)}),
                                                  at.Map(ScalarOp::kLt, {place, number(extent)})});
  const TensorId taken = w.Gather(x, place, axis, dims);
  w.Write(w.Select(inside, taken, w.Number(attrs.pad_value)), y);
}

}  // namespace

void DecomposeExpandBandMatrix(Graph& g, const Node& node) { Shear(g, node, true); }
void DecomposeContractBandMatrix(Graph& g, const Node& node) { Shear(g, node, false); }

}  // namespace kiln::compiler
