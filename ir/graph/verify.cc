// Verify and InferShapes: what holds for every tensor and node, around the op table's own
// functions. The API runs both on what a client built, the pass runner runs Verify after each pass,
// the importers and the tool on every file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <map>
#include <set>

#include "ir/graph/eval.h"
#include "ir/graph/graph.h"
#include "ir/graph/ops.h"
#include "ir/graph/verify_util.h"

namespace kiln::graph {
namespace {

bool IsIdentifier(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
  return std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string Where(const Graph& graph, const Node& node) {
  std::string outputs;
  for (const TensorId id : node.outputs) {
    if (id != kAbsent) outputs += fmt::format("{}%{}", outputs.empty() ? "" : ", ", graph[id].name);
  }
  return node.name.empty()
             ? fmt::format("{} = {}", outputs, Info(node.op).mnemonic)
             : fmt::format("\"{}\" ({} = {})", node.name, outputs, Info(node.op).mnemonic);
}

Status VerifyTensor(const Tensor& tensor) {
  if (tensor.dims.empty())
    return Status::Error(Code::kBadParam, "has no extents, and no node gives it any");
  RETURN_IF_ERROR(CheckExtents(tensor.dims, {}));
  if (IsComplex(tensor.dtype)) {
    return Status::Error(Code::kUnsupportedDataType, "is {}: complex tensors are split first",
                         Info(tensor.dtype).text);
  }
  if (tensor.strides.size() != tensor.dims.size()) {
    return Status::Error(Code::kBadParam, "has {} dims and {} strides", tensor.dims.size(),
                         tensor.strides.size());
  }
  RETURN_IF_ERROR(CheckExtents(tensor.dims, tensor.strides));
  if (tensor.alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(tensor.alignment))) {
    return Status::Error(Code::kBadParam, "alignment {} is no power of two", tensor.alignment);
  }
  if (tensor.by_value && (tensor.is_virtual || NumElements(tensor.dims) != 1)) {
    return Status::Error(
        Code::kBadParam,
        "is passed by value, so it must have one element (it is {}) and not be virtual",
        DimsText(tensor.dims));
  }
  if (tensor.value && !tensor.by_value)
    return Status::Error(Code::kBadParam, "has a value, but is not by_value");
  return {};
}

// Types of 4 bits and of 1: what is written fills bytes of its own.
Status VerifyPacked(const Tensor& tensor, bool written) {
  if (tensor.is_virtual || !IsPacked(tensor.dtype)) return {};
  constexpr int64_t kMostDims =
      6;  // bytes and the elements of each become dims, and tensors have 8
  if (tensor.rank() > kMostDims) {
    return Status::Error(Code::kUnsupportedShape, "is {} of {} dims, must have {} at most",
                         Info(tensor.dtype).text, tensor.rank(), kMostDims);
  }
  const int per_byte = PerByte(tensor.dtype);
  if (!written || PackedRunOf(tensor.dims, tensor.strides, per_byte)) return {};
  return Status::Error(Code::kUnsupportedLayout,
                       "is {}, {} in a byte, and strides [{}] of {} leave part of a byte between "
                       "elements: the innermost dims must be dense, and the other strides "
                       "multiples of {}",
                       Info(tensor.dtype).text, per_byte, fmt::join(tensor.strides, ","),
                       DimsText(tensor.dims), per_byte);
}

Status VerifyRoles(const Tensor& tensor, bool written) {
  RETURN_IF_ERROR(VerifyPacked(tensor, written));
  if (tensor.is_virtual && !written) {
    return Status::Error(Code::kBadParam, "is virtual, but no node before its reader writes it");
  }
  if (!written) return {};
  if (tensor.by_value)
    return Status::Error(Code::kBadParam, "is passed by value and cannot be written");
  if (!tensor.is_virtual && !IsInjective(tensor)) {
    return Status::Error(Code::kBadParam,
                         "is written, but strides [{}] put several elements of {} at one place",
                         fmt::join(tensor.strides, ","), DimsText(tensor.dims));
  }
  return {};
}

Status VerifyUids(const Graph& graph, const std::vector<NodeId>& producers) {
  std::map<int64_t, std::array<TensorId, 2>>
      versions;  // uid -> the tensor that is read, the one that is written
  for (size_t t = 0; t < graph.tensors.size(); ++t) {
    const Tensor& tensor = graph.tensors[t];
    if (tensor.uid < 0) continue;
    auto& slots = versions.try_emplace(tensor.uid, std::array{kAbsent, kAbsent}).first->second;
    TensorId& slot = slots[producers[t] >= 0 ? 1 : 0];
    if (slot != kAbsent) {
      return Status::Error(Code::kBadParam, "%{} and %{} both have uid {}", graph[slot].name,
                           tensor.name, tensor.uid);
    }
    slot = static_cast<TensorId>(t);
  }
  return {};
}

Status CheckCount(const char* what, size_t count, int minimum, int maximum) {
  if (count >= static_cast<size_t>(minimum) && count <= static_cast<size_t>(maximum)) return {};
  return Status::Error(Code::kBadParam, "has {} {}, must have {}..{}", count, what, minimum,
                       maximum);
}

bool AttrsMatch(const Node& node) { return node.attrs.index() == DefaultAttrs(node.op).index(); }

// Arity, operand ids and the kind of the attributes: what Infer and Verify of an op rely on.
Status CheckForm(const Graph& graph, const Node& node) {
  const GraphOpInfo& info = Info(node.op);
  RETURN_IF_ERROR(CheckCount("inputs", node.inputs.size(), info.min_inputs, info.max_inputs));
  RETURN_IF_ERROR(CheckCount("outputs", node.outputs.size(), info.min_outputs, info.max_outputs));
  if (!AttrsMatch(node))
    return Status::Error(Code::kBadParam, "attributes are those of another operation");
  const auto count = static_cast<TensorId>(graph.tensors.size());
  for (const auto* ids : {&node.inputs, &node.outputs}) {
    for (const TensorId id : *ids) {
      if (id < kAbsent || id >= count)
        return Status::Error(Code::kBadParam, "operand {} is no tensor", id);
    }
  }
  // These may lack their first results, and bn_finalize its first operands.
  const bool any_input = node.op == GraphOp::kBnFinalize;
  const bool any_output = any_input || node.op == GraphOp::kBnBwdWeights;
  if (!any_input && info.min_inputs > 0 && node.inputs[0] == kAbsent) {
    return Status::Error(Code::kBadParam, "its first operand is absent");
  }
  if (!any_output && node.outputs[0] == kAbsent)
    return Status::Error(Code::kBadParam, "its result is absent");
  return {};
}

bool SecondOperandMissing(const Node& node) {
  return Has(node, kContraction) && (node.inputs.size() < 2 || node.inputs[1] == kAbsent);
}

}  // namespace

Status Verify(const Graph& graph) {
  std::set<std::string_view> names;
  for (const Tensor& tensor : graph.tensors) {
    if (!IsIdentifier(tensor.name))
      return Status::Error(Code::kBadParam, "tensor name \"{}\" is no identifier", tensor.name);
    if (!names.insert(tensor.name).second)
      return Status::Error(Code::kBadParam, "two tensors are named %{}", tensor.name);
    RETURN_IF_ERROR(VerifyTensor(tensor).Within(fmt::format("%{}", tensor.name)));
  }
  for (const Node& node : graph.nodes)
    RETURN_IF_ERROR(CheckForm(graph, node).Within(Info(node.op).mnemonic));
  const std::vector<NodeId> producers = Producers(graph);
  std::vector<bool> written(graph.tensors.size(), false);
  for (const Node& node : graph.nodes) {
    for (const TensorId id : node.inputs) {
      if (id == kAbsent || written[static_cast<size_t>(id)]) continue;
      if (producers[static_cast<size_t>(id)] >= 0) {
        return Status::Error(Code::kBadParam, "{}: reads %{} before it is written",
                             Where(graph, node), graph[id].name);
      }
      RETURN_IF_ERROR(VerifyRoles(graph[id], false).Within(fmt::format("%{}", graph[id].name)));
    }
    RETURN_IF_ERROR(Info(node.op).verify(graph, node).Within(Where(graph, node)));
    for (const TensorId id : node.outputs) {
      if (id == kAbsent) continue;
      if (written[static_cast<size_t>(id)]) {
        return Status::Error(Code::kBadParam, "{}: %{} is written a second time",
                             Where(graph, node), graph[id].name);
      }
      written[static_cast<size_t>(id)] = true;
      RETURN_IF_ERROR(VerifyRoles(graph[id], true).Within(fmt::format("%{}", graph[id].name)));
    }
  }
  return VerifyUids(graph, producers);
}

Status InferShapes(Graph& graph) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.dims.empty()) continue;
    RETURN_IF_ERROR(CheckExtents(tensor.dims, {}).Within(fmt::format("%{}", tensor.name)));
  }
  for (const Node& node : graph.nodes) {
    RETURN_IF_ERROR(CheckForm(graph, node).Within(Info(node.op).mnemonic));
    for (const TensorId id : node.inputs) {
      if (id == kAbsent) continue;
      Tensor& tensor = graph[id];
      if (tensor.dims.empty()) {
        return Status::Error(Code::kBadParam,
                             "{}: operand %{} has no extents, and no node before gives it any",
                             Where(graph, node), tensor.name);
      }
      SetDims(tensor, {}, nullptr);
    }
    if (SecondOperandMissing(node)) {
      return Status::Error(Code::kBadParam, "{}: its second operand is absent", Where(graph, node));
    }
    RETURN_IF_ERROR(Info(node.op).infer(graph, node).Within(Where(graph, node)));
    for (const TensorId id : node.outputs) {
      if (id == kAbsent || graph[id].dims.empty()) continue;
      RETURN_IF_ERROR(CheckExtents(graph[id].dims, {}).Within(fmt::format("%{}", graph[id].name)));
      SetDims(graph[id], {}, nullptr);
    }
  }
  return {};
}

}  // namespace kiln::graph
