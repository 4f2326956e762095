// Tables behind the attributes: pointwise modes, reduction modes and combiners, with their texts
// and the numbers of cuDNN's enums. The printer, the parser, the importers and the API convert
// through here.
#include "ir/graph/attrs.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>

#include "ir/base/any_of_inl.h"

template class kiln::AnyOf<kiln::graph::AllAttrs>;

namespace kiln::graph {
namespace {

constexpr PointwiseModeInfo kPointwiseModes[] = {
#define POINTWISE_MODE(Name, text, cudnn_value, inputs, is_backward) \
  {text, cudnn_value, inputs, is_backward},
#include "ir/graph/pointwise_modes.def"
#undef POINTWISE_MODE
};

// In the order of cudnnReduceTensorOp_t.
constexpr const char* kReductionModes[] = {"add", "mul",   "min",   "max",         "amax",
                                           "avg", "norm1", "norm2", "mul_no_zeros"};

// In the orders of cudnnResampleMode_t and cudnnPaddingMode_t.
constexpr const char* kResampleModes[] = {"nearest", "bilinear", "avgpool_include_padding",
                                          "maxpool", "avgpool_exclude_padding"};
constexpr const char* kPaddingModes[] = {"zero_pad", "neg_inf_pad", "edge_val_pad"};

// In the order of cudnnBackendNormMode_t.
constexpr const char* kNormModes[] = {"layer", "instance", "batch", "group", "rms", "ada_layer"};
constexpr const char* kRngDistributions[] = {"bernoulli", "uniform", "normal"};

constexpr const char* kMoeModes[] = {"none", "gather", "scatter"};
constexpr const char* kSegmentModes[] = {"add", "mean", "max", "min"};

// In the orders of cudnnRNNMode_t and cudnnRNNBiasMode_t.
constexpr const char* kRnnCells[] = {"relu", "tanh", "lstm", "gru"};
constexpr const char* kRnnBiases[] = {"none", "single_input", "double", "single_recurrent"};

struct CombineInfo {
  const char* text;
  ScalarOp scalar;
  double identity;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr CombineInfo kCombines[] = {{"add", ScalarOp::kAdd, 0},
                                     {"mul", ScalarOp::kMul, 1},
                                     {"min", ScalarOp::kMin, kInfinity},
                                     {"max", ScalarOp::kMax, -kInfinity}};

// The enumerator whose row answers true, for tables whose rows are in the order of the enum.
template <class E, class Table, class Predicate>
std::optional<E> FindRow(const Table& table, Predicate matches) {
  const auto row = std::find_if(std::begin(table), std::end(table), matches);
  if (row == std::end(table)) return std::nullopt;
  return E(row - std::begin(table));
}

}  // namespace

const PointwiseModeInfo& Info(PointwiseMode mode) {
  return kPointwiseModes[static_cast<size_t>(mode)];
}

std::optional<PointwiseMode> PointwiseModeFromText(std::string_view text) {
  return FindRow<PointwiseMode>(kPointwiseModes, [&](const auto& row) { return row.text == text; });
}

std::optional<PointwiseMode> PointwiseModeFromCudnn(int value) {
  return FindRow<PointwiseMode>(kPointwiseModes,
                                [&](const auto& row) { return row.cudnn_value == value; });
}

const char* Text(ReductionMode mode) { return kReductionModes[static_cast<size_t>(mode)]; }

std::optional<ReductionMode> ReductionModeFromText(std::string_view text) {
  return FindRow<ReductionMode>(kReductionModes, [&](const char* row) { return row == text; });
}

const char* Text(ResampleMode mode) { return kResampleModes[static_cast<size_t>(mode)]; }

std::optional<ResampleMode> ResampleModeFromText(std::string_view text) {
  if (text == "avgpool") return ResampleMode::kAvgIncludePadding;  // the enumerator's older name
  return FindRow<ResampleMode>(kResampleModes, [&](const char* row) { return row == text; });
}

const char* Text(PaddingMode mode) { return kPaddingModes[static_cast<size_t>(mode)]; }

std::optional<PaddingMode> PaddingModeFromText(std::string_view text) {
  return FindRow<PaddingMode>(kPaddingModes, [&](const char* row) { return row == text; });
}

const char* Text(NormMode mode) { return kNormModes[static_cast<size_t>(mode)]; }

std::optional<NormMode> NormModeFromText(std::string_view text) {
  return FindRow<NormMode>(kNormModes, [&](const char* row) { return row == text; });
}

const char* Text(RngDistribution distribution) {
  return kRngDistributions[static_cast<size_t>(distribution)];
}

std::optional<RngDistribution> RngDistributionFromText(std::string_view text) {
  return FindRow<RngDistribution>(kRngDistributions, [&](const char* row) { return row == text; });
}

const char* Text(MoeMode mode) { return kMoeModes[static_cast<size_t>(mode)]; }

std::optional<MoeMode> MoeModeFromText(std::string_view text) {
  return FindRow<MoeMode>(kMoeModes, [&](const char* row) { return row == text; });
}

const char* Text(SegmentMode mode) { return kSegmentModes[static_cast<size_t>(mode)]; }

std::optional<SegmentMode> SegmentModeFromText(std::string_view text) {
  return FindRow<SegmentMode>(kSegmentModes, [&](const char* row) { return row == text; });
}

const char* Text(RnnCell cell) { return kRnnCells[static_cast<size_t>(cell)]; }

std::optional<RnnCell> RnnCellFromText(std::string_view text) {
  return FindRow<RnnCell>(kRnnCells, [&](const char* row) { return row == text; });
}

const char* Text(RnnBias bias) { return kRnnBiases[static_cast<size_t>(bias)]; }

std::optional<RnnBias> RnnBiasFromText(std::string_view text) {
  return FindRow<RnnBias>(kRnnBiases, [&](const char* row) { return row == text; });
}

const char* Text(Combine combine) { return kCombines[static_cast<size_t>(combine)].text; }

std::optional<Combine> CombineFromText(std::string_view text) {
  return FindRow<Combine>(kCombines, [&](const auto& row) { return row.text == text; });
}

ScalarOp ScalarOf(Combine combine) { return kCombines[static_cast<size_t>(combine)].scalar; }
double IdentityOf(Combine combine) { return kCombines[static_cast<size_t>(combine)].identity; }

}  // namespace kiln::graph
