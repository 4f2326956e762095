// The names of the text form, from the tables that define them.
#include <string_view>
#include <vector>

#include "ir/graph/text.h"

namespace kiln::graph {
namespace {

using Names = std::vector<std::string_view>;

// The names of an enumeration that has no list of its own: from 0 to the last enumerator.
template <class E>
Names UpTo(E last) {
  Names names;
  for (int i = 0; i <= static_cast<int>(last); ++i) names.emplace_back(Text(E(i)));
  return names;
}

}  // namespace

template <>
Names NamesOf<GraphOp>() {
  return {
#define GRAPH_OP(Name, mnemonic, ...) mnemonic,
#include "ir/graph/graph_ops.def"
#undef GRAPH_OP
  };
}

template <>
Names NamesOf<DType>() {
  return {
#define DTYPE(Name, text, ...) text,
#include "ir/dtype.def"
#undef DTYPE
  };
}

template <>
Names NamesOf<PointwiseMode>() {
  return {
#define POINTWISE_MODE(Name, text, ...) text,
#include "ir/graph/pointwise_modes.def"
#undef POINTWISE_MODE
  };
}

template <>
Names NamesOf<ScalarOp>() {
  return {
#define SCALAR_OP(Name, text, ...) text,
#include "ir/scalar_ops.def"
#undef SCALAR_OP
  };
}

template <>
Names NamesOf<ReductionMode>() {
  return UpTo(ReductionMode::kMulNoZeros);
}
template <>
Names NamesOf<ResampleMode>() {
  return UpTo(ResampleMode::kAvgExcludePadding);
}
template <>
Names NamesOf<PaddingMode>() {
  return UpTo(PaddingMode::kEdge);
}
template <>
Names NamesOf<NormMode>() {
  return UpTo(NormMode::kAdaLayer);
}
template <>
Names NamesOf<RngDistribution>() {
  return UpTo(RngDistribution::kNormal);
}
template <>
Names NamesOf<MoeMode>() {
  return UpTo(MoeMode::kScatter);
}
template <>
Names NamesOf<SegmentMode>() {
  return UpTo(SegmentMode::kMin);
}
template <>
Names NamesOf<Combine>() {
  return UpTo(Combine::kMax);
}
template <>
Names NamesOf<RnnCell>() {
  return UpTo(RnnCell::kGru);
}
template <>
Names NamesOf<RnnBias>() {
  return UpTo(RnnBias::kSingleRecurrent);
}

}  // namespace kiln::graph
