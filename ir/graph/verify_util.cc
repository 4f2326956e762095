// Shared checks of the op families: see the header.
#include "ir/graph/verify_util.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/graph/loops.h"
#include "ir/graph/ops.h"

namespace kiln::graph {
namespace {

const Tensor* OperandAt(const Graph& graph, const std::vector<TensorId>& ids, size_t index) {
  return index < ids.size() && ids[index] != kAbsent ? &graph[ids[index]] : nullptr;
}

}  // namespace

const Tensor* InputOf(const Graph& graph, const Node& node, size_t index) {
  return OperandAt(graph, node.inputs, index);
}

const Tensor* OutputOf(const Graph& graph, const Node& node, size_t index) {
  return OperandAt(graph, node.outputs, index);
}

std::string Shape(const Tensor& tensor) {
  return fmt::format("%{} {}", tensor.name, DimsText(tensor.dims));
}

Dims BroadcastSteps(std::span<const int64_t> dims, std::span<const int64_t> out_dims) {
  Dims steps(out_dims.size(), 0);
  int64_t step = 1;
  for (size_t i = 1; i <= dims.size() && i <= out_dims.size(); ++i) {
    const int64_t extent = dims[dims.size() - i];
    if (extent != 1) steps[out_dims.size() - i] = step;
    step *= extent;
  }
  return steps;
}

std::optional<Dims> BroadcastDims(const std::vector<const Tensor*>& operands) {
  size_t rank = 0;
  for (const Tensor* t : operands) rank = std::max(rank, t->dims.size());
  Dims out(rank, 1);
  for (const Tensor* t : operands) {
    for (size_t i = 1; i <= t->dims.size(); ++i) {
      int64_t& extent = out[rank - i];
      const int64_t own = t->dims[t->dims.size() - i];
      if (own == 1 || own == extent) continue;
      if (extent != 1) return std::nullopt;
      extent = own;
    }
  }
  return out;
}

Status ExpectDims(const Tensor& tensor, const Dims& dims, std::string_view because) {
  if (tensor.dims == dims) return {};
  return Status::Error(Code::kShapeMismatch, "%{} is {}, but {} makes it {}", tensor.name,
                       DimsText(tensor.dims), because, DimsText(dims));
}

Status RejectBool(const Graph& graph, const Node& node, OnBoolInputs inputs) {
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    if (ids == &node.inputs && inputs == OnBoolInputs::kAccept) continue;
    for (const TensorId id : *ids) {
      if (id == kAbsent || !IsBool(graph[id].dtype)) continue;
      return Status::Error(
          Code::kUnsupportedDataType,
          "%{} is bool, and only comparisons, logical modes, selections, identity and views take "
          "bool",
          graph[id].name);
    }
  }
  return {};
}

Status CheckCompute(const Node& node, bool allow_bool) {
  constexpr DType kNumbers[] = {DType::kF64,  DType::kF32, DType::kF16,
                                DType::kBF16, DType::kI64, DType::kI32};
  if (std::ranges::find(kNumbers, node.compute) != std::end(kNumbers)) return {};
  if (allow_bool && node.compute == DType::kBool) return {};
  return Status::Error(Code::kUnsupportedDataType,
                       "compute type {} is none of f64, f32, f16, bf16, i64, i32{}",
                       Info(node.compute).text, allow_bool ? ", bool" : "");
}

Status CheckExtents(const Dims& dims, const Dims& strides) {
  if (dims.empty() || dims.size() > kMaxRank) {
    return Status::Error(Code::kUnsupportedShape, "has {} dims, must have 1 to {}", dims.size(),
                         kMaxRank);
  }
  int64_t elements = 1, span = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 0) {
      return Status::Error(Code::kBadParam, "extent {} of [{}] is negative", dims[d],
                           fmt::join(dims, ","));
    }
    if (dims[d] > kMaxExtent) {
      return Status::Error(Code::kUnsupportedShape, "extent {} of [{}] is more than {}", dims[d],
                           fmt::join(dims, ","), kMaxExtent);
    }
    if (__builtin_mul_overflow(elements, std::max<int64_t>(dims[d], 1), &elements) ||
        elements > kMaxElements) {
      return Status::Error(Code::kUnsupportedShape, "[{}] has more than {} elements",
                           fmt::join(dims, ","), kMaxElements);
    }
    if (strides.empty()) continue;
    int64_t reach = 0;
    if (strides[d] < 0) {
      return Status::Error(Code::kBadParam, "stride {} of [{}] is negative", strides[d],
                           fmt::join(strides, ","));
    }
    if (__builtin_mul_overflow(std::max<int64_t>(dims[d] - 1, 0), strides[d], &reach) ||
        reach > kMaxElements - span) {
      return Status::Error(Code::kUnsupportedShape, "strides [{}] span more than {} elements",
                           fmt::join(strides, ","), kMaxElements);
    }
    span += reach;
  }
  return {};
}

void SetDims(Tensor& tensor, const Dims& dims, const Tensor* like) {
  if (tensor.dims.empty()) tensor.dims = dims;
  if (!tensor.strides.empty() || !CheckExtents(tensor.dims, {}).ok()) return;
  tensor.strides = like != nullptr && like->strides.size() == tensor.dims.size()
                       ? PackedStridesLike(tensor.dims, like->strides)
                       : PackedStrides(tensor.dims);
}

int64_t ToComputeInt(DType compute, double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (std::isnan(value)) return 0;
  if (value >= kLimit) return WrapToCompute(compute, INT64_MAX);
  if (value < -kLimit) return WrapToCompute(compute, INT64_MIN);
  return WrapToCompute(compute, static_cast<int64_t>(std::nearbyint(value)));
}

int64_t WrapToCompute(DType compute, int64_t value) {
  return compute == DType::kI32
             ? static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(value)))
             : value;
}

}  // namespace kiln::graph
