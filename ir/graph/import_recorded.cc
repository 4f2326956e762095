// Recorded backend graphs → tensor graph: one row of kOperations an operation descriptor.
// Operations come in any order; a uid that one operation both reads and writes becomes two tensors
// (Tensor::uid).
#include "ir/graph/import_recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <span>

#include "ir/graph/attention_parts.h"
#include "ir/graph/builder.h"
#include "ir/graph/import_json.h"
#include "ir/graph/memory_layout.h"
#include "ir/graph/moe_backward.h"
#include "ir/graph/norm.h"
#include "ir/graph/ops.h"
#include "ir/graph/rope.h"
#include "ir/graph/sdpa.h"
#include "ir/graph/text.h"
#include "ir/graph/uids.h"

namespace kiln::graph {
namespace {

constexpr size_t kMaxOperations = size_t{1} << 17;
constexpr std::string_view kOperation = "OPERATION_", kDescriptor = "_DESCRIPTOR";

// "f0.5" and "d-inf": a float or a double attribute. Null gives `otherwise`.
Result<double> ReadReal(const JsonRef& json, double otherwise) {
  if (json.is_null()) return otherwise;
  if (json.value().is_number()) return json.value().get<double>();
  ASSIGN_OR_RETURN(const std::string text, json.Text());
  const bool marked = text.starts_with('f') || text.starts_with('d');
  const auto value = DoubleFromText(std::string_view(text).substr(marked ? 1 : 0));
  RETURN_IF_ERROR(json.Expect(marked && value.has_value(), "a number after f or d"));
  return *value;
}

// The enumerator behind `prefix`, in lower case.
Result<std::string> ReadName(const JsonRef& json, std::string_view prefix) {
  ASSIGN_OR_RETURN(std::string name, json.Text());
  RETURN_IF_ERROR(
      json.Expect(name.starts_with(prefix), fmt::format("a name that starts with {}", prefix)));
  name.erase(0, prefix.size());
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

using ReadAttrs = Status (*)(const JsonRef& operation, Node& node);

template <class T, class Find>
Status ReadMode(const JsonRef& json, std::string_view prefix, Find find, T& mode) {
  ASSIGN_OR_RETURN(const std::string name, ReadName(json, prefix));
  const auto found = find(name);
  RETURN_IF_ERROR(json.Expect(found.has_value(), KnownModeText(name, NamesOf<T>())));
  mode = *found;
  return {};
}

Status ReadPointwise(const JsonRef& operation, Node& node) {
  auto& a = std::get<PointwiseAttrs>(node.attrs);
  const JsonRef d = operation["OPERATION_POINTWISE_PW_DESCRIPTOR"];
  RETURN_IF_ERROR(ReadMode(d["POINTWISE_MODE"], "POINTWISE_", PointwiseModeFromText, a.mode));
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(d["POINTWISE_MATH_PREC"], "DATA_"));
  if (d.Has("POINTWISE_AXIS")) {
    ASSIGN_OR_RETURN(a.axis, d["POINTWISE_AXIS"].Int());
  }
  a.propagate_nan = d["POINTWISE_NAN_PROPAGATION"].value() == "PROPAGATE_NAN";
  ASSIGN_OR_RETURN(a.relu_lower, ReadReal(d["POINTWISE_RELU_LOWER_CLIP"], a.relu_lower));
  ASSIGN_OR_RETURN(a.relu_upper, ReadReal(d["POINTWISE_RELU_UPPER_CLIP"], a.relu_upper));
  ASSIGN_OR_RETURN(a.relu_slope, ReadReal(d["POINTWISE_RELU_LOWER_CLIP_SLOPE"], a.relu_slope));
  ASSIGN_OR_RETURN(a.elu_alpha, ReadReal(d["POINTWISE_ELU_ALPHA"], a.elu_alpha));
  ASSIGN_OR_RETURN(a.softplus_beta, ReadReal(d["POINTWISE_SOFTPLUS_BETA"], a.softplus_beta));
  ASSIGN_OR_RETURN(a.swish_beta, ReadReal(d["POINTWISE_SWISH_BETA"], a.swish_beta));
  ASSIGN_OR_RETURN(a.alpha1, ReadReal(operation["OPERATION_POINTWISE_ALPHA1"], 1));
  ASSIGN_OR_RETURN(a.alpha2, ReadReal(operation["OPERATION_POINTWISE_ALPHA2"], 1));
  return {};
}

// The three convolutions name their attributes alike but for the prefix.
Status ReadConv(const JsonRef& operation, Node& node, std::string_view prefix) {
  auto& a = std::get<ConvAttrs>(node.attrs);
  const auto attribute = [&](std::string_view name) {
    return operation[fmt::format("{}_{}", prefix, name)];
  };
  const JsonRef d = attribute("CONV_DESC");
  ASSIGN_OR_RETURN(a.pre_padding, d["CONVOLUTION_PRE_PADDINGS"].List());
  ASSIGN_OR_RETURN(a.post_padding, d["CONVOLUTION_POST_PADDINGS"].List());
  ASSIGN_OR_RETURN(a.stride, d["CONVOLUTION_FILTER_STRIDES"].List());
  ASSIGN_OR_RETURN(a.dilation, d["CONVOLUTION_DILATIONS"].List());
  ASSIGN_OR_RETURN(const std::string mode, ReadName(d["CONVOLUTION_CONV_MODE"], ""));
  a.flip = mode == "convolution";
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(d["CONVOLUTION_COMP_TYPE"], "DATA_"));
  ASSIGN_OR_RETURN(a.alpha, ReadReal(attribute("ALPHA"), 1));
  ASSIGN_OR_RETURN(a.beta, ReadReal(attribute("BETA"), 0));
  return {};
}

Status ReadMatmul(const JsonRef& operation, Node& node) {
  const JsonRef d = operation["OPERATION_MATMUL_DESC"];
  ASSIGN_OR_RETURN(std::get<MatmulAttrs>(node.attrs).padding_value,
                   ReadReal(d["MATMUL_PADDING_VALUE"], 0));
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(d["MATMUL_COMP_TYPE"], "DATA_"));
  return {};
}

Status ReadReduction(const JsonRef& operation, Node& node) {
  auto& a = std::get<ReductionAttrs>(node.attrs);
  const JsonRef d = operation["OPERATION_REDUCTION_DESC"];
  RETURN_IF_ERROR(
      ReadMode(d["REDUCTION_OPERATOR"], "REDUCE_TENSOR_", ReductionModeFromText, a.mode));
  ASSIGN_OR_RETURN(a.deterministic, d["REDUCTION_IS_DETERMINISTIC"].Bool(false));
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(d["REDUCTION_COMP_TYPE"], "DATA_"));
  return {};
}

Status ReadGenStats(const JsonRef& operation, Node& node) {
  // Clients have set INT8 here, on half tensors, and cuDNN computed in float all the same.
  ASSIGN_OR_RETURN(const DType math,
                   DTypeNamed(operation["OPERATION_GENSTATS_MATH_PREC"], "DATA_"));
  node.compute = IsFloat(math) && SizeOf(math) >= 4 ? math : DType::kF32;
  return {};
}

Status ReadBnFinalize(const JsonRef& operation, Node& node) {
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(operation["OPERATION_BN_FINALIZE_MATH_PREC"], "DATA_"));
  ASSIGN_OR_RETURN(const std::string mode, ReadName(operation["OPERATION_BN_FINALIZE_STATS_MODE"],
                                                    "BN_FINALIZE_STATISTICS_"));
  std::get<BnFinalizeAttrs>(node.attrs).inference = mode == "inference";
  return {};
}

// The two directions name their attributes alike but for the prefix. Lengths are numerators over 1.
Status ReadResample(const JsonRef& operation, Node& node, std::string_view prefix) {
  auto& a = std::get<ResampleAttrs>(node.attrs);
  const auto attribute = [&](std::string_view name) {
    return operation[fmt::format("{}_{}", prefix, name)];
  };
  const JsonRef d = attribute("DESC");
  RETURN_IF_ERROR(ReadMode(d["RESAMPLE_MODE"], "RESAMPLE_", ResampleModeFromText, a.mode));
  RETURN_IF_ERROR(ReadMode(d["RESAMPLE_PADDING_MODE"], "", PaddingModeFromText, a.padding));
  a.propagate_nan = d["RESAMPLE_NAN_PROPAGATION"].value() == "PROPAGATE_NAN";
  ASSIGN_OR_RETURN(a.window, d["RESAMPLE_WINDOW_DIMS"].List());
  ASSIGN_OR_RETURN(a.stride, d["RESAMPLE_STRIDES"].List());
  ASSIGN_OR_RETURN(a.pre_padding, d["RESAMPLE_PRE_PADDINGS"].List());
  ASSIGN_OR_RETURN(a.post_padding, d["RESAMPLE_POST_PADDINGS"].List());
  a.unit.assign(a.window.size(), 1);
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(d["RESAMPLE_COMP_TYPE"], "DATA_"));
  ASSIGN_OR_RETURN(a.alpha, ReadReal(attribute("ALPHA"), 1));
  ASSIGN_OR_RETURN(a.beta, ReadReal(attribute("BETA"), 0));
  return {};
}

Status ReadBnBwdWeights(const JsonRef& operation, Node& node) {
  ASSIGN_OR_RETURN(node.compute,
                   DTypeNamed(operation["OPERATION_BN_BWD_WEIGHTS_MATH_PREC"], "DATA_"));
  return {};
}

// LAYER_NORM, … RMS_NORM, ADA_LAYER_NORM. Norms have no compute type; Importer::FinishNorm has it.
Status ReadNormMode(const JsonRef& json, NormMode& mode) {
  const auto find = [](std::string_view name) {
    constexpr std::string_view kEnd = "_norm";
    return NormModeFromText(name.substr(0, name.ends_with(kEnd) ? name.size() - kEnd.size() : 0));
  };
  return ReadMode(json, "", find, mode);
}

Status ReadNormForward(const JsonRef& operation, Node& node) {
  auto& a = std::get<NormForwardAttrs>(node.attrs);
  RETURN_IF_ERROR(ReadNormMode(operation["OPERATION_NORM_FWD_MODE"], a.mode));
  ASSIGN_OR_RETURN(const std::string phase,
                   ReadName(operation["OPERATION_NORM_FWD_PHASE"], "NORM_FWD_"));
  a.inference = phase == "inference";
  return operation["OPERATION_NORM_FWD_PHASE"].Expect(a.inference || phase == "training",
                                                      "a known phase");
}

Status ReadNormBackward(const JsonRef& operation, Node& node) {
  return ReadNormMode(operation["OPERATION_NORM_BWD_MODE"],
                      std::get<NormBackwardAttrs>(node.attrs).mode);
}

Status ReadBlockScale(const JsonRef& operation, Node& node, std::string_view prefix) {
  const auto attribute = [&](std::string_view name) {
    return operation[fmt::format("{}_{}", prefix, name)];
  };
  ASSIGN_OR_RETURN(const bool negative, attribute("NEG_SCALE").Bool(false));
  RETURN_IF_ERROR(attribute("NEG_SCALE").Expect(!negative, "false: negative scales are not known"));
  ASSIGN_OR_RETURN(std::get<BlockScaleAttrs>(node.attrs).block_size,
                   attribute("BLOCK_SIZE").List());
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(attribute("MATH_PREC"), "DATA_"));
  return {};
}

Status ReadRng(const JsonRef& operation, Node& node) {
  auto& a = std::get<RngAttrs>(node.attrs);
  const JsonRef d = operation["OPERATION_RNG_DESC"];
  RETURN_IF_ERROR(ReadMode(d["RNG_DISTRIBUTION"], "RNG_DISTRIBUTION_", RngDistributionFromText,
                           a.distribution));
  node.compute = DType::kF32;
  // Clients leave the numbers of other distributions at values that mean nothing.
  switch (a.distribution) {
    case RngDistribution::kBernoulli: {
      ASSIGN_OR_RETURN(a.probability, ReadReal(d["RNG_BERNOULLI_DIST_PROBABILITY"], 1));
      break;
    }
    case RngDistribution::kUniform: {
      ASSIGN_OR_RETURN(a.minimum, ReadReal(d["RNG_UNIFORM_DIST_MINIMUM"], 0));
      ASSIGN_OR_RETURN(a.maximum, ReadReal(d["RNG_UNIFORM_DIST_MAXIMUM"], 1));
      break;
    }
    case RngDistribution::kNormal: {
      ASSIGN_OR_RETURN(a.mean, ReadReal(d["RNG_NORMAL_DIST_MEAN"], 0));
      ASSIGN_OR_RETURN(a.deviation, ReadReal(d["RNG_NORMAL_DIST_STANDARD_DEVIATION"], 1));
      break;
    }
  }
  return {};
}

Status ReadConcat(const JsonRef& operation, Node& node) {
  ASSIGN_OR_RETURN(std::get<ConcatAttrs>(node.attrs).axis,
                   operation["OPERATION_CONCAT_AXIS"].Int());
  return {};
}

// Attention declares no compute type: cuDNN computes it in float.
Status ReadSdpa(const JsonRef&, Node&) { return {}; }

Status ReadBand(const JsonRef& operation, Node& node, std::string_view prefix) {
  auto& a = std::get<BandAttrs>(node.attrs);
  const auto attribute = [&](std::string_view name) {
    return operation[fmt::format("{}_{}", prefix, name)];
  };
  ASSIGN_OR_RETURN(a.lower, attribute("LOWER_BANDWIDTH").Int());
  ASSIGN_OR_RETURN(a.upper, attribute("UPPER_BANDWIDTH").Int());
  ASSIGN_OR_RETURN(a.axis, attribute("AXIS").Int());
  ASSIGN_OR_RETURN(a.pad_value, ReadReal(attribute("PAD_VALUE"), 0));
  node.compute = DType::kF32;
  return {};
}

Status ReadMoe(const JsonRef& operation, Node& node) {
  auto& a = std::get<MoeGroupedMatmulAttrs>(node.attrs);
  const auto attribute = [&](std::string_view name) {
    return operation[fmt::format("OPERATION_MOE_GROUPED_MATMUL_{}", name)];
  };
  RETURN_IF_ERROR(ReadMode(attribute("MODE"), "MOE_GROUPED_MATMUL_MODE_", MoeModeFromText, a.mode));
  if (operation.Has("OPERATION_MOE_GROUPED_MATMUL_TOP_K")) {
    ASSIGN_OR_RETURN(a.top_k, attribute("TOP_K").Int());
  }
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(attribute("MATH_PREC"), "DATA_"));
  return {};
}

Status ReadMoeGradient(const JsonRef& operation, Node& node) {
  const JsonRef precision = operation["OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC"];
  node.compute = DType::kF32;
  if (precision.is_null()) return {};
  ASSIGN_OR_RETURN(node.compute, DTypeNamed(precision, "DATA_"));
  return {};
}

// Writes what an operation means, where that is no node of ours. False: it is one.
using Spell = Result<bool> (*)(const JsonRef& operation, const Node& node, Graph& graph);

template <bool is_backward>
Result<bool> SpellRopeOperation(const JsonRef& operation, const Node& node, Graph& graph) {
  const auto attribute = [&](std::string_view name) {
    return operation[fmt::format("OPERATION_ROPE_{}_{}", is_backward ? "BWD" : "FWD", name)];
  };
  RopeParts parts{.x = OperandOr(node.inputs, 0),
                  .freqs = OperandOr(node.inputs, 1),
                  .y = OperandOr(node.outputs, 0),
                  .is_backward = is_backward};
  ASSIGN_OR_RETURN(parts.scale, ReadReal(attribute("OUTPUT_SCALE"), 1));
  if (const JsonRef asked = attribute("ROPE_DIM"); !asked.is_null()) {
    ASSIGN_OR_RETURN(parts.rope_dim, asked.Int());
  }
  if (parts.rope_dim == 0 && parts.x != kAbsent && !graph[parts.x].dims.empty())
    parts.rope_dim = graph[parts.x].dims.back();
  RETURN_IF_ERROR(CheckRope(graph, parts));
  SpellRope(graph, parts);
  return true;
}

// A reshape keeps memory as it lies, or else the order of elements.
Result<bool> SpellReshape(const JsonRef& operation, const Node& node, Graph& graph) {
  const JsonRef mode = operation["OPERATION_RESHAPE_MODE"];
  if (mode.is_null() || mode.value() == "RESHAPE_VIEW_ONLY") return false;
  RETURN_IF_ERROR(
      mode.Expect(mode.value() == "RESHAPE_LOGICAL", "RESHAPE_VIEW_ONLY or RESHAPE_LOGICAL"));
  const TensorId x = OperandOr(node.inputs, 0), y = OperandOr(node.outputs, 0);
  RETURN_IF_ERROR(CheckLogicalReshape(graph, x, y));
  SpellLogicalReshape(graph, x, y);
  return true;
}

Result<bool> SpellMoeGradient(const JsonRef&, const Node& node, Graph& graph) {
  const MoeBackwardParts parts{.token = OperandOr(node.inputs, 0),
                               .doutput = OperandOr(node.inputs, 1),
                               .first_token_offset = OperandOr(node.inputs, 2),
                               .dweight = OperandOr(node.outputs, 0),
                               .compute = node.compute};
  RETURN_IF_ERROR(CheckMoeBackward(graph, parts));
  SpellMoeBackward(graph, parts);
  return true;
}

// Attribute names behind `prefix`, in the order of our operands. A pointwise operation has the row
// of its direction.
struct Operation {
  std::string_view kind;  // OPERATION_<kind>_DESCRIPTOR
  GraphOp op;             // where the operation is spelled out, the one that makes its result
  std::string_view prefix;
  std::vector<std::string_view> inputs, outputs;
  ReadAttrs read;
  Spell spell = nullptr;
};

std::span<const Operation> Operations() {
  static const std::array kOperations = {
      Operation{"POINTWISE",
                GraphOp::kPointwise,
                "OPERATION_POINTWISE_",
                {"XDESC", "BDESC", "TDESC"},
                {"YDESC"},
                ReadPointwise},
      Operation{"POINTWISE",
                GraphOp::kPointwise,
                "OPERATION_POINTWISE_",
                {"DYDESC", "XDESC"},
                {"DXDESC"},
                ReadPointwise},
      Operation{"CONVOLUTION_FORWARD",
                GraphOp::kConvFprop,
                "OPERATION_CONVOLUTION_FORWARD_",
                {"X", "W"},
                {"Y"},
                [](const JsonRef& o, Node& n) {
                  return ReadConv(o, n, "OPERATION_CONVOLUTION_FORWARD");
                }},
      Operation{"CONVOLUTION_BACKWARD_DATA",
                GraphOp::kConvDgrad,
                "OPERATION_CONVOLUTION_BWD_DATA_",
                {"DY", "W"},
                {"DX"},
                [](const JsonRef& o, Node& n) {
                  return ReadConv(o, n, "OPERATION_CONVOLUTION_BWD_DATA");
                }},
      Operation{"CONVOLUTION_BACKWARD_FILTER",
                GraphOp::kConvWgrad,
                "OPERATION_CONVOLUTION_BWD_FILTER_",
                {"X", "DY"},
                {"DW"},
                [](const JsonRef& o, Node& n) {
                  return ReadConv(o, n, "OPERATION_CONVOLUTION_BWD_FILTER");
                }},
      Operation{"MATMUL",
                GraphOp::kMatmul,
                "OPERATION_MATMUL_",
                {"ADESC", "BDESC", "GEMM_M_OVERRIDE_DESC", "GEMM_N_OVERRIDE_DESC",
                 "GEMM_K_OVERRIDE_DESC"},
                {"CDESC"},
                ReadMatmul},
      Operation{"REDUCTION",
                GraphOp::kReduction,
                "OPERATION_REDUCTION_",
                {"XDESC"},
                {"YDESC"},
                ReadReduction},
      Operation{"RESHAPE",
                GraphOp::kReshape,
                "OPERATION_RESHAPE_",
                {"XDESC"},
                {"YDESC"},
                [](const JsonRef&, Node&) { return Status(); },
                SpellReshape},
      Operation{"GEN_STATS",
                GraphOp::kGenStats,
                "OPERATION_GENSTATS_",
                {"XDESC"},
                {"SUMDESC", "SQSUMDESC"},
                ReadGenStats},
      Operation{
          "BN_FINALIZE_STATISTICS",
          GraphOp::kBnFinalize,
          "OPERATION_BN_FINALIZE_",
          {"Y_SUM_DESC", "Y_SQ_SUM_DESC", "SCALE_DESC", "BIAS_DESC", "PREV_RUNNING_MEAN_DESC",
           "PREV_RUNNING_VAR_DESC", "EPSILON_DESC", "EXP_AVERATE_FACTOR_DESC", "ACCUM_COUNT_DESC"},
          {"UPDATED_RUNNING_MEAN_DESC", "UPDATED_RUNNING_VAR_DESC", "SAVED_MEAN_DESC",
           "SAVED_INV_STD_DESC", "EQ_SCALE_DESC", "EQ_BIAS_DESC"},
          ReadBnFinalize},
      Operation{
          "BN_BWD_WEIGHTS",
          GraphOp::kBnBwdWeights,
          "OPERATION_BN_BWD_WEIGHTS_",
          {"X_DESC", "DY_DESC", "MEAN_DESC", "INVSTD_DESC", "BN_SCALE_DESC"},
          {"DBN_SCALE_DESC", "DBN_BIAS_DESC", "EQ_DY_SCALE_DESC", "EQ_X_SCALE_DESC", "EQ_BIAS"},
          ReadBnBwdWeights},
      // In inference MoveStatistics makes the statistics operands.
      Operation{"NORM_FORWARD",
                GraphOp::kNormForward,
                "OPERATION_NORM_FWD_",
                {"XDESC", "", "", "SCALE_DESC", "BIAS_DESC", "EPSILON_DESC", "EXP_AVG_FACTOR_DESC",
                 "INPUT_RUNNING_MEAN_DESC", "INPUT_RUNNING_VAR_DESC", "PEER_STAT_DESCS"},
                {"YDESC", "MEAN_DESC", "INV_VARIANCE_DESC", "OUTPUT_RUNNING_MEAN_DESC",
                 "OUTPUT_RUNNING_VAR_DESC"},
                ReadNormForward},
      Operation{"NORM_BACKWARD",
                GraphOp::kNormBackward,
                "OPERATION_NORM_BWD_",
                {"XDESC", "DYDESC", "MEAN_DESC", "INV_VARIANCE_DESC", "SCALE_DESC", "EPSILON_DESC",
                 "PEER_STAT_DESCS"},
                {"DXDESC", "DSCALE_DESC", "DBIAS_DESC"},
                ReadNormBackward},
      Operation{"BLOCK_SCALE_DEQUANTIZE",
                GraphOp::kBlockScaleDequantize,
                "OPERATION_BLOCK_SCALE_DEQUANTIZE_",
                {"XDESC", "SCALE_DESC"},
                {"YDESC"},
                [](const JsonRef& o, Node& n) {
                  return ReadBlockScale(o, n, "OPERATION_BLOCK_SCALE_DEQUANTIZE");
                }},
      Operation{"BLOCK_SCALE_QUANTIZE",
                GraphOp::kBlockScaleQuantize,
                "OPERATION_BLOCK_SCALE_QUANTIZE_",
                {"XDESC"},
                {"YDESC", "SCALE_DESC"},
                [](const JsonRef& o, Node& n) {
                  return ReadBlockScale(o, n, "OPERATION_BLOCK_SCALE_QUANTIZE");
                }},
      Operation{"CONCAT",
                GraphOp::kConcat,
                "OPERATION_CONCAT_",
                {"INPUT_DESCS"},
                {"OUTPUT_DESC"},
                ReadConcat},
      Operation{
          "EXPAND_BAND_MATRIX",
          GraphOp::kExpandBandMatrix,
          "OPERATION_EXPAND_BAND_MATRIX_",
          {"XDESC"},
          {"YDESC"},
          [](const JsonRef& o, Node& n) { return ReadBand(o, n, "OPERATION_EXPAND_BAND_MATRIX"); }},
      Operation{"CONTRACT_BAND_MATRIX",
                GraphOp::kContractBandMatrix,
                "OPERATION_CONTRACT_BAND_MATRIX_",
                {"XDESC"},
                {"YDESC"},
                [](const JsonRef& o, Node& n) {
                  return ReadBand(o, n, "OPERATION_CONTRACT_BAND_MATRIX");
                }},
      Operation{"MOE_GROUPED_MATMUL",
                GraphOp::kMoeGroupedMatmul,
                "OPERATION_MOE_GROUPED_MATMUL_",
                {"TOKEN_DESC", "WEIGHT_DESC", "FIRST_TOKEN_OFFSET_DESC", "TOKEN_INDEX_DESC",
                 "TOKEN_KS_DESC"},
                {"OUTPUT_DESC"},
                ReadMoe},
      Operation{"MOE_GROUPED_MATMUL_BWD",
                GraphOp::kMatmul,
                "OPERATION_MOE_GROUPED_MATMUL_BWD_",
                {"TOKEN_DESC", "DOUTPUT_DESC", "FIRST_TOKEN_OFFSET_DESC"},
                {"DWEIGHT_DESC"},
                ReadMoeGradient,
                SpellMoeGradient},
      Operation{"ROPE_FWD",
                GraphOp::kConcat,
                "OPERATION_ROPE_FWD_",
                {"XDESC", "FREQSDESC"},
                {"YDESC"},
                [](const JsonRef&, Node&) { return Status(); },
                SpellRopeOperation<false>},
      Operation{"ROPE_BWD",
                GraphOp::kConcat,
                "OPERATION_ROPE_BWD_",
                {"DYDESC", "FREQSDESC"},
                {"DXDESC"},
                [](const JsonRef&, Node&) { return Status(); },
                SpellRopeOperation<true>},
      Operation{
          "RNG", GraphOp::kRng, "OPERATION_RNG_", {"SEED", "OFFSET_DESC"}, {"YDESC"}, ReadRng},
      Operation{
          "RESAMPLE_FWD",
          GraphOp::kResampleFwd,
          "OPERATION_RESAMPLE_FWD_",
          {"XDESC"},
          {"YDESC", "IDXDESC"},
          [](const JsonRef& o, Node& n) { return ReadResample(o, n, "OPERATION_RESAMPLE_FWD"); }},
      Operation{
          "RESAMPLE_BWD",
          GraphOp::kResampleBwd,
          "OPERATION_RESAMPLE_BWD_",
          {"DYDESC", "IDXDESC", "XDESC", "YDESC"},
          {"DXDESC"},
          [](const JsonRef& o, Node& n) { return ReadResample(o, n, "OPERATION_RESAMPLE_BWD"); }},
      Operation{"SDPA_FWD",
                GraphOp::kSdpaFwd,
                "OPERATION_SDPA_FWD_",
                {"QDESC", "KDESC", "VDESC", "SCALEDESC", "SEQ_LEN_QDESC", "SEQ_LEN_KVDESC",
                 "PAGE_TABLE_KDESC", "PAGE_TABLE_VDESC", "", "", "", "BLOCK_MASK_DESC"},
                {"ODESC", "STATSDESC"},
                ReadSdpa},
      Operation{"SDPA_BWD",
                GraphOp::kSdpaBwd,
                "OPERATION_SDPA_BWD_",
                {"QDESC", "KDESC", "VDESC", "ODESC", "DODDESC", "STATSDESC", "SCALEDESC",
                 "SEQ_LEN_QDESC", "SEQ_LEN_KVDESC"},
                {"DQDESC", "DKDESC", "DVDESC"},
                ReadSdpa},
      Operation{"PAGED_CACHE_LOAD",
                GraphOp::kPagedCacheLoad,
                "OPERATION_PAGED_CACHE_LOAD_",
                {"CONTAINER_DESC", "PAGE_TABLE_DESC", "SEQUENCE_DESC"},
                {"YDESC"},
                [](const JsonRef&, Node&) { return Status(); }},
  };
  return kOperations;
}

// The operation's kind, "RNG" of OPERATION_RNG_DESCRIPTOR.
Result<std::string> KindOf(const JsonRef& operation) {
  ASSIGN_OR_RETURN(std::string kind, operation["_"].Text());
  const bool whole = kind.starts_with(kOperation) && kind.ends_with(kDescriptor) &&
                     kind.size() > kOperation.size() + kDescriptor.size();
  RETURN_IF_ERROR(operation["_"].Expect(whole, "OPERATION_…_DESCRIPTOR"));
  return kind.substr(kOperation.size(), kind.size() - kOperation.size() - kDescriptor.size());
}

const Operation* RowOf(const JsonRef& operation, std::string_view kind) {
  const Operation* found = nullptr;
  for (const Operation& row : Operations()) {
    if (row.kind != kind) continue;
    found =
        &row;  // the last row whose first result is there, so that a backward pointwise has its own
    if (operation.Has(fmt::format("{}{}", row.prefix, row.outputs[0]))) return found;
  }
  return found;
}

class Importer {
 public:
  explicit Importer(const nlohmann::json& document) : root_(document, "") {}
  Result<Graph> Run();

 private:
  Status CheckSupported(const JsonRef& operations);
  Status ReadTensor(const JsonRef& json, const std::string& key);
  Result<LayoutSpec> ReadLayout(const JsonRef& json, const Tensor& tensor);
  Status ReadOperation(const JsonRef& operation);
  Status ReadOperands(const JsonRef& operation, const Operation& row,
                      const std::vector<std::string_view>& names, std::vector<TensorId>& ids);
  void FinishNorm(Node& node);
  void SplitInPlace(Node& node);

  JsonRef root_;
  Graph graph_;
  std::map<int64_t, TensorId> ids_;
  LaidOutTensors layouts_;
  struct Ragged {
    int64_t offsets = -1;  // their uid
    int64_t unit = 1;      // elements that an offset counts
  };
  std::map<TensorId, Ragged> ragged_;
};

// Names everything that is missing, not only the first.
Status Importer::CheckSupported(const JsonRef& operations) {
  std::set<std::string> missing;
  for (size_t i = 0; i < operations.value().size(); ++i) {
    ASSIGN_OR_RETURN(const std::string kind, KindOf(operations.At(i)));
    if (RowOf(operations.At(i), kind) == nullptr) missing.insert(kind);
  }
  if (missing.empty()) return {};
  return Status::Error(Code::kNotSupported, "{}: not supported yet", fmt::join(missing, ", "));
}

Status Importer::ReadTensor(const JsonRef& json, const std::string& key) {
  const auto uid = IntFromText(key);
  RETURN_IF_ERROR(
      json.Expect(json.value().is_object() && uid.has_value(), "a tensor with a uid for its key"));
  Tensor tensor;
  tensor.name = fmt::format("t{}", key);
  tensor.uid = *uid;
  ASSIGN_OR_RETURN(tensor.dims, json["DIMENSIONS"].List());
  ASSIGN_OR_RETURN(tensor.strides, json["STRIDES"].List());
  ASSIGN_OR_RETURN(tensor.is_virtual, json["IS_VIRTUAL"].Bool(false));
  ASSIGN_OR_RETURN(tensor.by_value, json["IS_BY_VALUE"].Bool(false));
  const bool in_memory = !tensor.is_virtual && !tensor.by_value;
  ASSIGN_OR_RETURN(tensor.dtype, in_memory ? MemoryTypeNamed(json["DATA_TYPE"], "DATA_")
                                           : DTypeNamed(json["DATA_TYPE"], "DATA_"));
  if (json.Has("BYTE_ALIGNMENT")) {
    ASSIGN_OR_RETURN(tensor.alignment, json["BYTE_ALIGNMENT"].Int());
  }
  ASSIGN_OR_RETURN(const LayoutSpec spec, ReadLayout(json, tensor));
  Result<TensorId> id = layouts_.Add(graph_, std::move(tensor), spec);
  if (!id.ok()) return std::move(id).status().Within(json.path());
  ids_[*uid] = *id;
  if (json.Has("RAGGED_OFFSET_DESC")) {
    Ragged& ragged = ragged_[ids_[*uid]];
    ASSIGN_OR_RETURN(ragged.offsets, json["RAGGED_OFFSET_DESC"].Int());
    if (const JsonRef unit = json["RAGGED_OFFSET_MULTIPLIER"]; !unit.is_null()) {
      ASSIGN_OR_RETURN(ragged.unit, unit.Int());
      RETURN_IF_ERROR(unit.Expect(ragged.unit >= 1 && ragged.unit <= INT32_MAX,
                                  "a positive number of elements"));
    }
  }
  return {};
}

Result<LayoutSpec> Importer::ReadLayout(const JsonRef& json, const Tensor& tensor) {
  constexpr int64_t kMostVectors = 1 << 20;
  LayoutSpec spec;
  ASSIGN_OR_RETURN(spec.reordering, ReorderingNamed(json["REORDERING_MODE"], "TENSOR_REORDERING_"));
  const JsonRef count = json["VECTOR_COUNT"], dim = json["VECTORIZED_DIMENSION"];
  if (count.is_null()) return spec;
  ASSIGN_OR_RETURN(spec.vector_count, count.Int());
  RETURN_IF_ERROR(count.Expect(spec.vector_count >= 1 && spec.vector_count <= kMostVectors,
                               fmt::format("1 to {}", kMostVectors)));
  if (spec.vector_count == 1) return spec;
  ASSIGN_OR_RETURN(spec.vector_dim, dim.Int());
  const auto rank = static_cast<int64_t>(tensor.dims.size());
  RETURN_IF_ERROR(dim.Expect(
      spec.vector_dim >= 0 && spec.vector_dim < rank && tensor.strides.size() == tensor.dims.size(),
      fmt::format("one of the {} dimensions", rank)));
  return spec;
}

Status Importer::ReadOperands(const JsonRef& operation, const Operation& row,
                              const std::vector<std::string_view>& names,
                              std::vector<TensorId>& ids) {
  for (const std::string_view name : names) {
    const JsonRef reference = operation[fmt::format("{}{}", row.prefix, name)];
    if (name.empty() || reference.is_null()) {
      ids.push_back(kAbsent);
      continue;
    }
    ASSIGN_OR_RETURN(const Dims uids, reference.List());
    for (const int64_t uid : uids) {
      const auto found = ids_.find(uid);
      if (found == ids_.end() && row.op == GraphOp::kRng && name == "SEED") {
        ids.push_back(kAbsent);  // a number, not a tensor
        continue;
      }
      if (found == ids_.end()) return reference.Fail(fmt::format("no tensor {} in tensors", uid));
      ids.push_back(found->second);
    }
  }
  while (!ids.empty() && ids.back() == kAbsent) ids.pop_back();
  return {};
}

// Norms compute in f64 where x is f64, else in f32; in inference their statistics, which are
// results in training, are operands.
void Importer::FinishNorm(Node& node) {
  if (node.inputs.empty() || node.inputs[0] == kAbsent) return;
  node.compute = graph_[node.inputs[0]].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  if (node.op != GraphOp::kNormForward || !node.As<NormForwardAttrs>().inference) return;
  MoveStatisticsToInputs(node);
}

// An operand that the node also writes is the version before, a tensor of its own.
void Importer::SplitInPlace(Node& node) {
  for (TensorId& id : node.inputs) {
    if (id == kAbsent || std::ranges::find(node.outputs, id) == node.outputs.end()) continue;
    if (const TensorId again = layouts_.AddAgain(graph_, id, "_before"); again != kAbsent) {
      id = again;
      continue;
    }
    Tensor before = graph_[id];
    before.name += "_before";
    id = graph_.AddTensor(std::move(before));
  }
}

Status Importer::ReadOperation(const JsonRef& operation) {
  ASSIGN_OR_RETURN(const std::string kind, KindOf(operation));
  const Operation& row = *RowOf(operation, kind);
  Node node;
  node.op = row.op;
  node.attrs = DefaultAttrs(row.op);
  RETURN_IF_ERROR(row.read(operation, node));
  RETURN_IF_ERROR(ReadOperands(operation, row, row.inputs, node.inputs));
  RETURN_IF_ERROR(ReadOperands(operation, row, row.outputs, node.outputs));
  if (row.op == GraphOp::kNormForward || row.op == GraphOp::kNormBackward) FinishNorm(node);
  const auto* conv = std::get_if<ConvAttrs>(&node.attrs);
  if (conv != nullptr && conv->beta != 0 && node.inputs.size() == 2 && !node.outputs.empty()) {
    node.inputs.push_back(node.outputs[0]);
  }
  const auto* resample = std::get_if<ResampleAttrs>(&node.attrs);
  if (resample != nullptr && resample->beta != 0 && !node.outputs.empty()) {
    node.inputs.resize(node.op == GraphOp::kResampleFwd ? 1 : 4, kAbsent);
    node.inputs.push_back(node.outputs[0]);
  }
  if (node.op == GraphOp::kRng && (node.inputs.empty() || node.inputs[0] == kAbsent) &&
      operation.Has("OPERATION_RNG_SEED")) {
    ASSIGN_OR_RETURN(std::get<RngAttrs>(node.attrs).seed, operation["OPERATION_RNG_SEED"].Int());
  }
  SplitInPlace(node);
  if (row.spell != nullptr) {
    Result<bool> spelled = row.spell(operation, node, graph_);
    if (!spelled.ok()) return std::move(spelled).status().Within(operation.path());
    if (*spelled) return {};
  }
  graph_.AddNode(std::move(node));
  return {};
}

Result<Graph> Importer::Run() {
  const JsonRef operations = root_["ops"], tensors = root_["tensors"];
  RETURN_IF_ERROR(operations.Expect(
      operations.value().is_array() && operations.value().size() <= kMaxOperations,
      "a list of operations"));
  RETURN_IF_ERROR(
      tensors.Expect(tensors.value().is_object() && tensors.value().size() <= 4 * kMaxOperations,
                     "an object of tensors"));
  RETURN_IF_ERROR(CheckSupported(operations));
  if (root_.Has("test")) {
    ASSIGN_OR_RETURN(graph_.name, root_["test"].Text());
  }
  for (const auto& [key, value] : tensors.value().items())
    RETURN_IF_ERROR(ReadTensor(tensors[key], key));
  for (size_t i = 0; i < operations.value().size(); ++i)
    RETURN_IF_ERROR(ReadOperation(operations.At(i)));
  std::map<TensorId, TensorId> offsets;
  for (const auto& [id, ragged] : ragged_) {
    const auto [uid, unit] = ragged;
    if (!ids_.contains(uid)) return root_.Fail(fmt::format("no tensor {} in tensors", uid));
    offsets[id] = unit == 1 ? ids_[uid] : SpellMultiple(graph_, ids_[uid], unit);
  }
  GiveUids(graph_);
  RETURN_IF_ERROR(MakeRagged(graph_, offsets));
  layouts_.Connect(graph_);
  RETURN_IF_ERROR(Legalize(graph_));
  return std::move(graph_);
}

}  // namespace

Result<Graph> ImportRecorded(std::string_view line) {
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(line));
  return Importer(document).Run();
}

}  // namespace kiln::graph
