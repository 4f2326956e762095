#include "api/spec/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace kiln::api {
namespace {

#include "api/spec/names.inc"

const EnumName* FindName(std::span<const EnumName> table, int value) {
  auto row = std::ranges::lower_bound(table, value, {}, &EnumName::value);
  return row != table.end() && row->value == value ? &*row : nullptr;
}

std::string Spell(std::span<const EnumName> table, int value, std::string_view type) {
  if (const EnumName* row = FindName(table, value)) return std::string(row->name);
  return fmt::format("{} {}", type, value);
}

bool InRange(int value, int first, int last) { return value >= first && value <= last; }

}  // namespace

std::string NameOf(cudnnBackendAttributeName_t v) { return Spell(kAttributeNames, v, "attribute"); }
std::string NameOf(cudnnBackendAttributeType_t v) {
  return Spell(kAttributeTypes, v, "attribute type");
}
std::string NameOf(cudnnBackendDescriptorType_t v) {
  return Spell(kDescriptorTypes, v, "descriptor type");
}
std::string NameOf(cudnnDataType_t v) { return Spell(kDataTypes, v, "data type"); }
std::string NameOf(cudnnPointwiseMode_t v) { return Spell(kPointwiseModes, v, "pointwise mode"); }
std::string NameOf(cudnnReduceTensorOp_t v) {
  return Spell(kReductionOperators, v, "reduction operator");
}
std::string NameOf(cudnnBackendKnobType_t v) { return Spell(kKnobTypes, v, "knob type"); }
std::string NameOf(cudnnBackendHeurMode_t v) { return Spell(kHeurModes, v, "heuristic mode"); }

std::string AttributeName(int value) { return Spell(kAttributeNames, value, "attribute"); }
std::string AttributeTypeName(int value) { return Spell(kAttributeTypes, value, "attribute type"); }
std::string DescriptorTypeName(int value) {
  return Spell(kDescriptorTypes, value, "descriptor type");
}

std::span<const EnumName> AllAttributeNames() { return kAttributeNames; }

template <>
bool IsLegal<cudnnDataType_t>(int value) {
  return FindName(kDataTypes, value) != nullptr;
}
template <>
bool IsLegal<cudnnPointwiseMode_t>(int value) {
  return FindName(kPointwiseModes, value) != nullptr;
}
template <>
bool IsLegal<cudnnReduceTensorOp_t>(int value) {
  return FindName(kReductionOperators, value) != nullptr;
}
template <>
bool IsLegal<cudnnBackendKnobType_t>(int v) {
  return InRange(v, 0, CUDNN_KNOB_TYPE_COUNTS - 1);
}
template <>
bool IsLegal<cudnnBackendHeurMode_t>(int v) {
  return InRange(v, 0, CUDNN_HEUR_MODES_COUNT - 1);
}
template <>
bool IsLegal<cudnnConvolutionMode_t>(int v) {
  return InRange(v, 0, CUDNN_CROSS_CORRELATION);
}
template <>
bool IsLegal<cudnnNanPropagation_t>(int v) {
  return InRange(v, 0, CUDNN_PROPAGATE_NAN);
}
template <>
bool IsLegal<cudnnGenStatsMode_t>(int v) {
  return v == CUDNN_GENSTATS_SUM_SQSUM;
}
template <>
bool IsLegal<cudnnBnFinalizeStatsMode_t>(int v) {
  return InRange(v, 0, CUDNN_BN_FINALIZE_STATISTICS_INFERENCE);
}
template <>
bool IsLegal<cudnnSignalMode_t>(int v) {
  return InRange(v, 0, CUDNN_SIGNAL_WAIT);
}
template <>
bool IsLegal<cudnnMoeGroupedMatmulMode_t>(int v) {
  return InRange(v, 0, CUDNN_MOE_GROUPED_MATMUL_MODE_SCATTER);
}
template <>
bool IsLegal<cudnnRngDistribution_t>(int v) {
  return InRange(v, 0, CUDNN_RNG_DISTRIBUTION_NORMAL);
}
template <>
bool IsLegal<cudnnResampleMode_t>(int v) {
  return InRange(v, 0, CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING);
}
template <>
bool IsLegal<cudnnPaddingMode_t>(int v) {
  return InRange(v, 0, CUDNN_EDGE_VAL_PAD);
}
template <>
bool IsLegal<cudnnBackendNormMode_t>(int v) {
  return InRange(v, 0, CUDNN_ADA_LAYER_NORM);
}
template <>
bool IsLegal<cudnnBackendNormFwdPhase_t>(int v) {
  return InRange(v, 0, CUDNN_NORM_FWD_TRAINING);
}
template <>
bool IsLegal<cudnnBackendTensorReordering_t>(int v) {
  return InRange(v, 0, CUDNN_TENSOR_REORDERING_F8_128x4);
}
template <>
bool IsLegal<cudnnBackendReshapeMode_t>(int v) {
  return InRange(v, 0, CUDNN_RESHAPE_LOGICAL);
}
template <>
bool IsLegal<cudnnBackendOperationGraphMode_t>(int v) {
  return FindName(kOperationGraphModes, v) != nullptr;
}
template <>
bool IsLegal<cudnnCudaGraphRetention_t>(int v) {
  return InRange(v, 0, CUDNN_CUDA_GRAPH_RETENTION_NONE);
}
template <>
bool IsLegal<cudnnBackendNumericalNote_t>(int v) {
  return InRange(v, 0, CUDNN_NUMERICAL_NOTE_TYPE_COUNT - 1);
}
template <>
bool IsLegal<cudnnBackendBehaviorNote_t>(int v) {
  return InRange(v, 0, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT - 1);
}
template <>
bool IsLegal<cudnnBackendLayoutType_t>(int v) {
  return InRange(v, 0, CUDNN_LAYOUT_TYPE_COUNT - 1);
}
template <>
bool IsLegal<cudnnBackendAttributeName_t>(int v) {
  return FindName(kAttributeNames, v) != nullptr;
}

}  // namespace kiln::api
