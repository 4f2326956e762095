// Evaluate runs the nodes in order through the op table and rounds every result to its tensor's
// dtype; Pack and Unpack convert between values in row-major order and a tensor's memory.
#include "ir/graph/eval.h"

#include <algorithm>
#include <array>

#include "ir/base/check.h"
#include "ir/graph/loops.h"
#include "ir/graph/ops.h"

namespace kiln::graph {
namespace {

constexpr int64_t kMaxEvaluated = int64_t{1} << 32;  // elements of one tensor, as f64 32 GiB

Status CheckSize(const Tensor& tensor) {
  if (NumElements(tensor.dims) <= kMaxEvaluated) return {};
  return Status::Error(Code::kNotSupported, "%{} {} is too large for the interpreter", tensor.name,
                       DimsText(tensor.dims));
}

// Finds the values of an operand that no node of the graph writes.
Status ProvideInput(const Graph& graph, TensorId id, TensorValues& values) {
  const Tensor& tensor = graph[id];
  const auto found = values.find(id);
  const auto elements = static_cast<size_t>(NumElements(tensor.dims));
  if (found != values.end()) {
    if (found->second.size() == elements) return {};
    return Status::Error(Code::kBadParam, "%{} has {} elements, {} values were given", tensor.name,
                         elements, found->second.size());
  }
  if (!tensor.is_constant())
    return Status::Error(Code::kBadParam, "no values were given for %{}", tensor.name);
  values[id].assign(elements, RoundTo(tensor.dtype, *tensor.value));
  return {};
}

Status EvaluateNode(const Graph& graph, const Node& node, TensorValues& values) {
  bool known = true;
  for (const TensorId id : node.outputs) known = known && (id == kAbsent || values.contains(id));
  if (known) return {};
  std::vector<const std::vector<double>*> inputs;
  for (const TensorId id : node.inputs) {
    if (id != kAbsent) RETURN_IF_ERROR(ProvideInput(graph, id, values));
    inputs.push_back(id == kAbsent ? nullptr : &values.at(id));
  }
  std::vector<std::vector<double>> results(node.outputs.size());
  std::vector<std::vector<double>*> outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorId id = node.outputs[i];
    if (id != kAbsent) {
      RETURN_IF_ERROR(CheckSize(graph[id]));
      results[i].resize(static_cast<size_t>(NumElements(graph[id].dims)));
    }
    outputs.push_back(id == kAbsent ? nullptr : &results[i]);
  }
  Info(node.op).eval({.graph = graph, .node = node, .inputs = inputs, .outputs = outputs});
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorId id = node.outputs[i];
    if (id == kAbsent || values.contains(id)) continue;
    const DType dtype = graph[id].dtype;
    if (dtype != DType::kF64) {
      for (double& value : results[i]) value = RoundTo(dtype, value);
    }
    values[id] = std::move(results[i]);
  }
  return {};
}

// Calls visit(row-major index, offset in elements) for each element.
template <class F>
void ForEachOffset(const Tensor& tensor, F&& visit) {
  CHECK(tensor.strides.size() == tensor.dims.size(), "%{}: {} strides", tensor.name,
        tensor.strides.size());
  size_t index = 0;
  ForEachRow<1>(
      tensor.dims, {tensor.strides},
      [&](const std::array<int64_t, 1>& at, int64_t count, const std::array<int64_t, 1>& step) {
        for (int64_t i = 0; i < count; ++i) visit(index++, at[0] + i * step[0]);
      });
}

}  // namespace

Status Evaluate(const Graph& graph, TensorValues& values,
                const std::function<void(const Node&)>& observer) {
  for (const Node& node : graph.nodes) {
    if (observer) observer(node);
    RETURN_IF_ERROR(EvaluateNode(graph, node, values));
  }
  return {};
}

void Pack(const Tensor& tensor, const std::vector<double>& values, std::vector<std::byte>& memory) {
  const int64_t bytes = MemoryBytes(tensor);
  if (memory.size() < static_cast<size_t>(bytes)) memory.resize(static_cast<size_t>(bytes));
  if (IsPacked(tensor.dtype))
    ForEachOffset(tensor,
                  [&](size_t, int64_t at) { memory[at / PerByte(tensor.dtype)] = std::byte{0}; });
  ForEachOffset(tensor, [&](size_t i, int64_t at) {
    StoreElement(tensor.dtype, values[i], memory.data(), at);
  });
}

std::vector<double> Unpack(const Tensor& tensor, const std::byte* memory) {
  std::vector<double> values(static_cast<size_t>(NumElements(tensor.dims)));
  ForEachOffset(tensor,
                [&](size_t i, int64_t at) { values[i] = LoadElement(tensor.dtype, memory, at); });
  return values;
}

// Sorted by stride, each dim usually steps over all that the smaller ones reach; where one does
// not, the places are counted out, up to a size where that is quick.
bool IsInjective(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, extent
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    if (tensor.dims[d] == 0) return true;
    if (tensor.dims[d] != 1) dims.emplace_back(tensor.strides[d], tensor.dims[d]);
  }
  std::ranges::sort(dims);
  int64_t reach = 0;
  bool nested = true;
  for (const auto& [stride, extent] : dims) {
    nested = nested && stride > reach;
    reach += stride * (extent - 1);
  }
  if (nested) return true;
  constexpr int64_t kCountable = int64_t{1} << 20;
  const int64_t elements = NumElements(tensor.dims);
  if (elements > reach + 1 || reach > kCountable) return false;
  std::vector<bool> taken(static_cast<size_t>(reach) + 1, false);
  for (int64_t i = 0; i < elements; ++i) {
    int64_t rest = i, at = 0;
    for (const auto& [stride, extent] : dims) {
      at += rest % extent * stride;
      rest /= extent;
    }
    if (taken[static_cast<size_t>(at)]) return false;
    taken[static_cast<size_t>(at)] = true;
  }
  return true;
}

}  // namespace kiln::graph
