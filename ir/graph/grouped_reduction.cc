#include "ir/graph/grouped_reduction.h"

#include <limits>

#include "ir/graph/speller.h"

namespace kiln::graph {
namespace {

using M = PointwiseMode;
using R = ReductionMode;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The value that stands for a row outside a group: the reduction's result does not change by it.
double Neutral(R mode) {
  switch (mode) {
    case R::kMul:
    case R::kMulNoZeros:
      return 1;
    case R::kMin:
      return kInfinity;
    case R::kMax:
      return -kInfinity;
    case R::kAdd:
    case R::kAmax:
    case R::kAvg:
    case R::kNorm1:
    case R::kNorm2:
      return 0;
  }
  return 0;
}

Dims OnesBut(size_t rank, size_t dim, int64_t extent) {
  Dims dims(rank, 1);
  dims[dim] = extent;
  return dims;
}

// The number of elements of x that an element of a mean counts for each row: all reduced dims but
// rows.
int64_t ElementsOfRow(const Tensor& x, const Tensor& y) {
  int64_t count = 1;
  for (size_t d = 2; d < x.dims.size(); ++d)
    if (y.dims[d] == 1) count *= x.dims[d];
  return count;
}

}  // namespace

Status SpellGroupedReduction(Graph& graph, const GroupedReduction& parts) {
  const Tensor x = graph[parts.x], y = graph[parts.y], offsets = graph[parts.offsets];
  const size_t rank = x.dims.size();
  const int64_t rows = x.dims[1], groups = y.dims[0];
  const bool is_bound = parts.attrs.mode == R::kMin || parts.attrs.mode == R::kMax;
  if (is_bound && !(IsFloat(x.dtype) && IsFloat(parts.compute)))
    return Status::Error(Code::kNotSupported,
                         "%{} is {}, reduced in {}: a group without rows has a maximum or a "
                         "minimum of floats alone",
                         x.name, Info(x.dtype).text, Info(parts.compute).text);
  Speller places(graph, DType::kI32), counts(graph, DType::kF32), values(graph, parts.compute);
  const auto index = [&](size_t axis, Dims dims) {
    const TensorId to = places.Temporary({.dtype = DType::kI32, .dims = dims});
    places.Node(GraphOp::kIota, {}, to, DType::kI32, IotaAttrs{.axis = static_cast<int64_t>(axis)});
    return to;
  };
  // Offsets of 64 bits are compared as they are.
  Dims each = OnesBut(rank, 1, rows);
  const TensorId row = index(1, each);
  each[0] = offsets.dims[0];
  const TensorId begins =
      Speller(graph, offsets.dtype)
          .Pointwise(M::kCmpLe, {parts.offsets, row}, {.dtype = DType::kBool, .dims = each});
  const Speller::Form of_offsets{.dtype = DType::kF32, .dims = each};
  const TensorId ones = counts.Pointwise(
      M::kBinarySelect, {counts.Number(1, of_offsets), counts.Number(0, of_offsets), begins},
      of_offsets);
  each[0] = 1;
  const TensorId begun = counts.Temporary({.dtype = DType::kF32, .dims = each});
  counts.ReductionTo(begun, R::kAdd, ones);
  const Speller::Form of_rows{.dtype = DType::kF32, .dims = each};
  const TensorId before = counts.Pointwise(M::kSub, {begun, counts.Number(1, of_rows)}, of_rows);
  each[0] = groups;
  const TensorId inside = counts.Pointwise(M::kCmpEq, {index(0, OnesBut(rank, 0, groups)), before},
                                           {.dtype = DType::kBool, .dims = each});

  const DType held = SizeOf(x.dtype) < 4 && IsFloat(x.dtype) ? DType::kF32 : x.dtype;
  Speller::Form all{.dtype = IsFloat(parts.compute) ? held : parts.compute, .dims = x.dims};
  all.dims[0] = groups;
  const TensorId picked = values.Pointwise(
      M::kBinarySelect, {parts.x, values.Number(Neutral(parts.attrs.mode), all), inside}, all);
  ReductionAttrs attrs = parts.attrs;
  const bool is_mean = attrs.mode == R::kAvg;
  if (is_mean) attrs.mode = R::kAdd;
  const Speller::Form result{.dtype = parts.compute, .dims = y.dims};
  const TensorId sum = is_mean ? values.Temporary(result) : parts.y;
  values.Node(GraphOp::kReduction, {picked}, sum, parts.compute, attrs);
  if (!is_mean) return {};
  const Speller::Form of_places{.dtype = DType::kF32, .dims = each};
  const auto elements = static_cast<double>(ElementsOfRow(x, y));
  const TensorId members = counts.Pointwise(
      M::kBinarySelect, {counts.Number(elements, of_places), counts.Number(0, of_places), inside},
      of_places);
  const TensorId count = counts.Temporary({.dtype = DType::kF32, .dims = OnesBut(rank, 0, groups)});
  counts.ReductionTo(count, R::kAdd, members);
  values.PointwiseTo(parts.y, M::kDiv, {sum, count});
  return {};
}

}  // namespace kiln::graph
