#include "tests/support/graph_case.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <variant>

#include "ir/graph/ops.h"
#include "ir/graph/text.h"
#include "tests/support/oracle/dtype.h"

namespace kiln::testing {
namespace {

using graph::GraphOp;

// A field's name in a case; the others have the same in both. Empty: not in the case's language,
// and so an error where it is not the default.
struct Renamed {
  const char *of, *to;
};
constexpr Renamed kRenamed[] = {{"pre_padding", "pad"},
                                {"post_padding", "post"},
                                {"relu_lower", "lower"},
                                {"relu_upper", "upper"},
                                {"relu_slope", "slope"},
                                {"minimum", "from"},
                                {"maximum", "to"},
                                {"block_size", "block"},
                                {"propagate_nan", ""},
                                {"beta", ""},
                                {"scale", ""}};

std::string_view NameOf(std::string_view field) {
  for (const Renamed& row : kRenamed)
    if (field == row.of) return row.to;
  return field;
}

std::string ValueText(const Dims& value) { return fmt::format("{}", fmt::join(value, ",")); }
std::string ValueText(double value) { return fmt::format("{}", value); }
std::string ValueText(int64_t value) { return fmt::format("{}", value); }
std::string ValueText(bool value) { return value ? "1" : "0"; }
template <class E>
  requires std::is_enum_v<E>
std::string ValueText(E value) {
  return graph::Text(value);
}

template <class T>
Status SetField(std::string_view field, const T& value, const T& otherwise, CaseOp& op) {
  if (value == otherwise && !std::is_enum_v<T>) return {};
  const std::string_view name = NameOf(field);
  if (name.empty()) return Status::Error(Code::kNotSupported, "a case has no {}", field);
  op.attributes[std::string(name)] = ValueText(value);
  return {};
}

// Every field that is not the default, and every enumeration.
template <class A>
Status SetAttributes(const A& attrs, CaseOp& op) {
  Status status;
  std::apply(
      [&](auto... row) {
        ((status =
              status.ok() ? SetField(row.name, attrs.*row.member, A().*row.member, op) : status),
         ...);
      },
      A::Fields());
  return status;
}

// Modes of a resampling are names of operations.
Status NameResample(const graph::Node& node, CaseOp& op) {
  constexpr const char* kNames[] = {"nearest", "bilinear", "avgpool", "maxpool", "avgpool_exclude"};
  const auto& a = node.As<graph::ResampleAttrs>();
  if (a.alpha != 1) return Status::Error(Code::kNotSupported, "a case's resampling has no alpha");
  op.name = kNames[static_cast<size_t>(a.mode)];
  if (node.op == GraphOp::kResampleBwd) op.name += "_bwd";
  op.attributes.erase("mode");
  op.attributes["padding"] = a.padding == graph::PaddingMode::kEdge     ? "edge"
                             : a.padding == graph::PaddingMode::kNegInf ? "neg_inf"
                                                                        : "zero";
  op.attributes["nan"] = a.propagate_nan ? "propagate" : "drop";
  return {};
}

Status SetOperation(const graph::Node& node, CaseOp& op) {
  op.name = graph::Info(node.op).mnemonic;
  op.attributes["compute"] = Info(node.compute).text;
  if (node.op == GraphOp::kPointwise) {
    auto attrs = node.As<graph::PointwiseAttrs>();
    op.name = graph::Info(attrs.mode).text;
    op.attributes["nan"] = attrs.propagate_nan ? "propagate" : "drop";
    attrs.propagate_nan = false;
    RETURN_IF_ERROR(SetAttributes(attrs, op));
    op.attributes.erase("mode");
    return {};
  }
  if (node.op == GraphOp::kResampleFwd || node.op == GraphOp::kResampleBwd) {
    auto attrs = node.As<graph::ResampleAttrs>();
    attrs.propagate_nan = false;
    RETURN_IF_ERROR(SetAttributes(attrs, op));
    return NameResample(node, op);
  }
  RETURN_IF_ERROR(
      std::visit([&](const auto& attrs) { return SetAttributes(attrs, op); }, node.attrs));
  switch (node.op) {
    case GraphOp::kReduction:
      op.name = fmt::format("reduce_{}", Text(node.As<graph::ReductionAttrs>().mode));
      op.attributes.erase("mode");
      return {};
    case GraphOp::kExpandBandMatrix:
      op.name = "expand_band";
      return {};
    case GraphOp::kContractBandMatrix:
      op.name = "contract_band";
      return {};
    case GraphOp::kMoeGroupedMatmul:
      op.name = "moe";
      return {};
    case GraphOp::kMap:
    case GraphOp::kIota:
    case GraphOp::kReduce:
    case GraphOp::kTranspose:
    case GraphOp::kSlice:
    case GraphOp::kScatter:
    case GraphOp::kScatterAdd:
    case GraphOp::kSegmentReduce:
    case GraphOp::kSegmentIds:
    case GraphOp::kPeerReduce:
    case GraphOp::kSignalSet:
    case GraphOp::kSignalWait:
    case GraphOp::kGather:
    case GraphOp::kRaggedLoad:
    case GraphOp::kRaggedStore:
      return Status::Error(Code::kNotSupported, "the cases have no {}", op.name);
    default:
      return {};
  }
}

}  // namespace

namespace {

oracle::DType TypeOf(kiln::DType type) {
  return *oracle::ParseDType(Info(IsBool(type) ? kiln::DType::kBool : type).text);
}

}  // namespace

Result<Case> ToCase(const graph::Graph& graph) {
  Case c{.name = graph.name};
  int64_t uid = 0;
  for (const graph::Tensor& tensor : graph.tensors) uid = std::max(uid, tensor.uid);
  for (const graph::Tensor& tensor : graph.tensors) {
    c.tensors.push_back({.name = tensor.name,
                         .dtype = TypeOf(tensor.dtype),
                         .dims = tensor.dims,
                         .strides = tensor.strides,
                         .is_virtual = tensor.is_virtual,
                         .uid = tensor.uid < 0 || tensor.is_constant() ? ++uid : tensor.uid});
    if (tensor.is_virtual) c.tensors.back().name.insert(0, "%");
    if (tensor.by_value) c.tensors.back().by_value = tensor.value.value_or(0.5);
  }
  for (const graph::Node& node : graph.nodes) {
    CaseOp op{.inputs = {node.inputs.begin(), node.inputs.end()},
              .outputs = {node.outputs.begin(), node.outputs.end()}};
    for (std::vector<int>* list : {&op.inputs, &op.outputs})
      while (list->size() > 1 && list->back() < 0) list->pop_back();
    RETURN_IF_ERROR(SetOperation(node, op));
    c.ops.push_back(std::move(op));
  }
  return c;
}

}  // namespace kiln::testing
