// The spelling of attribute values, and the names that the printer and the parser both know.
// Attributes follow from their field rows.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::graph {

inline constexpr std::string_view kAbsentText = "_";

// The shortest text that reads back as the same double; inf, -inf, nan.
std::string DoubleText(double value);
std::optional<double> DoubleFromText(std::string_view text);  // decimal or 0x… hex
std::optional<int64_t> IntFromText(std::string_view text);

// The value that a list has for each spatial dim where a text leaves the attribute out: the
// attribute of an operation over spatial dims. None for other attributes, and for one that must be
// named.
std::optional<int64_t> DefaultOfSpatialDim(GraphOp op, std::string_view attribute);
bool HasSpatialDims(GraphOp op);

// The enums that occur as attributes; ReductionMode and the others have Text() in attrs.h.
inline const char* Text(PointwiseMode mode) { return Info(mode).text; }
inline const char* Text(ScalarOp op) { return kiln::Info(op).text; }

inline bool FromText(std::string_view text, PointwiseMode& out) {
  const auto mode = PointwiseModeFromText(text);
  if (mode) out = *mode;
  return mode.has_value();
}
inline bool FromText(std::string_view text, ReductionMode& out) {
  const auto mode = ReductionModeFromText(text);
  if (mode) out = *mode;
  return mode.has_value();
}
inline bool FromText(std::string_view text, ResampleMode& out) {
  const auto mode = ResampleModeFromText(text);
  if (mode) out = *mode;
  return mode.has_value();
}
inline bool FromText(std::string_view text, PaddingMode& out) {
  const auto mode = PaddingModeFromText(text);
  if (mode) out = *mode;
  return mode.has_value();
}
inline bool FromText(std::string_view text, NormMode& out) {
  const auto mode = NormModeFromText(text);
  if (mode) out = *mode;
  return mode.has_value();
}
inline bool FromText(std::string_view text, RngDistribution& out) {
  const auto distribution = RngDistributionFromText(text);
  if (distribution) out = *distribution;
  return distribution.has_value();
}
inline bool FromText(std::string_view text, MoeMode& out) {
  const auto mode = MoeModeFromText(text);
  if (mode) out = *mode;
  return mode.has_value();
}
inline bool FromText(std::string_view text, RnnCell& out) {
  const auto cell = RnnCellFromText(text);
  if (cell) out = *cell;
  return cell.has_value();
}
inline bool FromText(std::string_view text, RnnBias& out) {
  const auto bias = RnnBiasFromText(text);
  if (bias) out = *bias;
  return bias.has_value();
}
inline bool FromText(std::string_view text, SegmentMode& out) {
  const auto mode = SegmentModeFromText(text);
  if (mode) out = *mode;
  return mode.has_value();
}
inline bool FromText(std::string_view text, Combine& out) {
  const auto combine = CombineFromText(text);
  if (combine) out = *combine;
  return combine.has_value();
}
inline bool FromText(std::string_view text, ScalarOp& out) {
  const auto op = ScalarOpFromText(text);
  if (op) out = *op;
  return op.has_value();
}
inline bool FromText(std::string_view text, double& out) {
  const auto value = DoubleFromText(text);
  if (value) out = *value;
  return value.has_value();
}
inline bool FromText(std::string_view text, int64_t& out) {
  const auto value = IntFromText(text);
  if (value) out = *value;
  return value.has_value();
}
inline bool FromText(std::string_view text, bool& out) {
  out = text == "true";
  return out || text == "false";
}

// All names of a kind, for sentences about names that do not exist and for the reference page.
// In the order of the enumerators. E is GraphOp, DType or the type of an attribute.
template <class E>
std::vector<std::string_view> NamesOf();

template <>
std::vector<std::string_view> NamesOf<GraphOp>();
template <>
std::vector<std::string_view> NamesOf<DType>();
template <>
std::vector<std::string_view> NamesOf<PointwiseMode>();
template <>
std::vector<std::string_view> NamesOf<ScalarOp>();
template <>
std::vector<std::string_view> NamesOf<ReductionMode>();
template <>
std::vector<std::string_view> NamesOf<ResampleMode>();
template <>
std::vector<std::string_view> NamesOf<PaddingMode>();
template <>
std::vector<std::string_view> NamesOf<NormMode>();
template <>
std::vector<std::string_view> NamesOf<RngDistribution>();
template <>
std::vector<std::string_view> NamesOf<MoeMode>();
template <>
std::vector<std::string_view> NamesOf<SegmentMode>();
template <>
std::vector<std::string_view> NamesOf<Combine>();
template <>
std::vector<std::string_view> NamesOf<RnnCell>();
template <>
std::vector<std::string_view> NamesOf<RnnBias>();

}  // namespace kiln::graph
