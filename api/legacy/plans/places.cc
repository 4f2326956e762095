#include "api/legacy/plans/places.h"

#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::PointwiseMode;
using graph::TensorId;

graph::ResultOptions MovedAs(CallGraph& g, TensorId x, Dims dims = {}) {
  const DType dtype = g.builder().graph()[x].dtype;
  graph::ResultOptions options{.dtype = dtype, .compute = kiln::MovingType(dtype)};
  if (!dims.empty()) options.strides = PackedStrides(dims);
  options.dims = std::move(dims);
  return options;
}

}  // namespace

TensorId PlacesAlong(CallGraph& g, const Dims& extents, const Dims& steps, int64_t offset,
                     int64_t axis, int64_t rank) {
  const auto lists = static_cast<int64_t>(extents.size());
  const auto constant = [&](int64_t value) {
    return g.Constant(static_cast<double>(value), lists, DType::kI64);
  };
  TensorId sum = constant(offset);
  int64_t count = 1;
  for (size_t d = 0; d < extents.size(); ++d) {
    const TensorId index =
        g.builder().Apply(GraphOp::kIota, {}, graph::IotaAttrs{.axis = static_cast<int64_t>(d)},
                          {.dtype = DType::kI64, .compute = DType::kI64, .dims = extents});
    const TensorId far = g.Pointwise(PointwiseMode::kMul, {index, constant(steps[d])}, DType::kI64);
    sum = g.Pointwise(PointwiseMode::kAdd, {far, sum}, DType::kI64);
    count *= extents[d];
  }
  Dims dims(static_cast<size_t>(rank), 1);
  dims[static_cast<size_t>(axis)] = count;
  return Reshaped(g, sum, dims);
}

TensorId AtPlaces(CallGraph& g, TensorId x, TensorId places, int64_t axis) {
  return g.builder().Apply(GraphOp::kGather, {x, places}, graph::GatherAttrs{.axis = axis},
                           MovedAs(g, x));
}

TensorId Reshaped(CallGraph& g, TensorId x, const Dims& dims) {
  // A reshape keeps the order of memory: in that of the dims it keeps both.
  const graph::Tensor& tensor = g.builder().graph()[x];
  if (tensor.strides != PackedStrides(tensor.dims))
    x = g.builder().Apply(GraphOp::kPointwise, {x},
                          graph::PointwiseAttrs{.mode = PointwiseMode::kIdentity},
                          MovedAs(g, x, tensor.dims));
  return g.builder().Apply(GraphOp::kReshape, {x}, graph::ReshapeAttrs{}, MovedAs(g, x, dims));
}

TensorId Transposed(CallGraph& g, TensorId x, const Dims& permutation) {
  Dims dims;
  for (const int64_t d : permutation) dims.push_back(g.DimsOf(x)[static_cast<size_t>(d)]);
  return g.builder().Apply(GraphOp::kTranspose, {x},
                           graph::TransposeAttrs{.permutation = permutation},
                           MovedAs(g, x, std::move(dims)));
}

}  // namespace kiln::api::legacy
