#include "compiler/kernel/group_checks.h"

#include "ir/graph/ops.h"

namespace kiln::compiler {

using graph::Graph;
using graph::Node;
using graph::TensorId;

Status CheckInMemory(const Graph& g, std::initializer_list<TensorId> operands) {
  const auto producers = graph::Producers(g);
  for (const TensorId id : operands)
    if (producers[id] >= 0 || g[id].by_value)
      return Status::Error(Code::kUnsupportedGraphPattern,
                           "operand {} is computed by a prologue; tensor maps read memory as it is",
                           g[id].name);
  return {};
}

Status CheckKeptAsF32(const Graph& g, std::initializer_list<TensorId> tensors) {
  for (const TensorId id : tensors)
    if (g[id].dtype != DType::kF32)
      return Status::Error(Code::kUnsupportedDataType, "{} is {}; it is kept as f32", g[id].name,
                           Info(g[id].dtype).text);
  return {};
}

Status CheckComputesInF32(const Graph& g) {
  for (const Node& node : g.nodes)
    if (Has(node, graph::kContraction) && ArithmeticType(node.compute) != DType::kF32)
      return Status::Error(Code::kUnsupportedDataType, "compute type {} is not f32",
                           Info(node.compute).text);
  return {};
}

}  // namespace kiln::compiler
