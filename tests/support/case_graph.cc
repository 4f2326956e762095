#include "tests/support/case_graph.h"

#include "ir/graph/attention_parts.h"
#include "ir/graph/builder.h"
#include "ir/graph/moe_backward.h"
#include "ir/graph/rope.h"
#include "tests/support/evaluate.h"
#include "tests/support/oracle/dtype.h"

namespace kiln::testing {
namespace {

kiln::DType TypeOf(DType type) { return *DTypeFromText(oracle::Row(type).name); }
// A bool in memory is one bit, as it is behind the C interface.
kiln::DType TypeOf(const CaseTensor& t) {
  const bool in_memory = !t.is_virtual && !t.by_value.has_value();
  return t.dtype == DType::kBool && in_memory ? kiln::DType::kB1 : TypeOf(t.dtype);
}

graph::Tensor TensorOf(const CaseTensor& t) {
  return {.name = t.is_virtual ? t.name.substr(1) : t.name,
          .uid = t.uid,
          .dtype = TypeOf(t),
          .dims = t.dims,
          .strides = t.strides,
          .is_virtual = t.is_virtual,
          .by_value = t.by_value.has_value()};
}

graph::ConvAttrs ConvAttrsOf(const CaseOp& op, size_t spatial) {
  const Dims ones(spatial, 1), pad = op.List("pad", Dims(spatial, 0));
  return {.pre_padding = pad,
          .post_padding = op.List("post", pad),
          .stride = op.List("stride", ones),
          .dilation = op.List("dilation", ones),
          .flip = op.Number("flip", 0) != 0,
          .alpha = op.Number("alpha", 1)};
}

graph::PointwiseAttrs PointwiseAttrsOf(const CaseOp& op, graph::PointwiseMode mode) {
  const graph::PointwiseAttrs defaults;
  return {.mode = mode,
          .alpha1 = op.Number("alpha1", 1),
          .alpha2 = op.Number("alpha2", 1),
          .relu_lower = op.Number("lower", 0),
          .relu_upper = op.Number("upper", defaults.relu_upper),
          .relu_slope = op.Number("slope", 0),
          .elu_alpha = op.Number("elu_alpha", 1),
          .softplus_beta = op.Number("softplus_beta", 1),
          .swish_beta = op.Number("swish_beta", 1),
          .propagate_nan = op.Word("nan", "propagate") == "propagate",
          .axis = static_cast<int64_t>(op.Number("axis", -1))};
}

// True if it is one: mode and phase are all the attributes that they have.
bool SetNorm(const CaseOp& op, graph::Node& node) {
  const auto mode = static_cast<graph::NormMode>(NormModeNumber(op));
  if (op.name == "norm_forward") {
    node.op = graph::GraphOp::kNormForward;
    node.attrs = graph::NormForwardAttrs{.mode = mode, .inference = op.Number("inference", 0) != 0};
    return true;
  }
  if (op.name == "norm_backward") {
    node.op = graph::GraphOp::kNormBackward;
    node.attrs = graph::NormBackwardAttrs{.mode = mode};
    return true;
  }
  if (op.name != "bn_bwd_weights") return false;
  node.op = graph::GraphOp::kBnBwdWeights;
  node.attrs = graph::BnBwdWeightsAttrs{};
  return true;
}

// True if it is attention or a load through a page table.
bool SetSdpa(const CaseOp& op, graph::Node& node) {
  const graph::SdpaAttrs attrs{.left = static_cast<int64_t>(op.Number("left", -1)),
                               .right = static_cast<int64_t>(op.Number("right", -1)),
                               .bottom_right = op.Number("bottom_right", 0) != 0};
  node.attrs = attrs;
  if (op.name == "sdpa_fwd") return node.op = graph::GraphOp::kSdpaFwd, true;
  if (op.name == "sdpa_bwd") return node.op = graph::GraphOp::kSdpaBwd, true;
  node.op = graph::GraphOp::kPagedCacheLoad;
  node.attrs = graph::PagedCacheLoadAttrs{};
  return op.name == "paged_cache_load";
}

graph::TensorId IdOr(const std::vector<int>& list, size_t i) {
  return i < list.size() && list[i] >= 0 ? list[i] : graph::kAbsent;
}

// True if it is an operation of the API that becomes several nodes.
bool SpellParts(const CaseOp& op, graph::Graph& g) {
  if (op.name == "softmax") {
    graph::SpellSoftmax(g, {.x = IdOr(op.inputs, 0),
                            .sink = IdOr(op.inputs, 1),
                            .y = IdOr(op.outputs, 0),
                            .stats = IdOr(op.outputs, 1),
                            .max = IdOr(op.outputs, 2),
                            .sum = IdOr(op.outputs, 3),
                            .log2 = op.Number("log2", 0) != 0});
    return true;
  }
  if (op.name == "reshape" && op.Word("mode", "view") == "logical") {
    graph::SpellLogicalReshape(g, op.inputs[0], op.outputs[0]);
    return true;
  }
  if (op.name.starts_with("rope")) {
    const int64_t depth = g[op.inputs[0]].dims.back();
    const auto asked = static_cast<int64_t>(op.Number("rope_dim", 0));
    graph::SpellRope(g, {.x = op.inputs[0],
                         .freqs = op.inputs[1],
                         .y = op.outputs[0],
                         .scale = static_cast<float>(op.Number("scale", 1)),
                         .rope_dim = asked == 0 ? depth : asked,
                         .is_backward = op.name == "rope_bwd"});
    return true;
  }
  if (op.name == "moe_bwd") {
    graph::SpellMoeBackward(g, {.token = op.inputs[0],
                                .doutput = op.inputs[1],
                                .first_token_offset = op.inputs[2],
                                .dweight = op.outputs[0],
                                .compute = TypeOf(op.Compute())});
    return true;
  }
  if (op.name != "band_mask") return false;
  const auto lengths = [&](size_t plain, size_t cumulative) {
    const graph::TensorId all = IdOr(op.inputs, cumulative);
    return all == graph::kAbsent ? IdOr(op.inputs, plain) : graph::SpellLengths(g, all);
  };
  const graph::TensorId len_q = lengths(2, 6), len_kv = lengths(3, 7);
  graph::SpellBandMask(
      g, {.x = IdOr(op.inputs, 0),
          .fill = IdOr(op.inputs, 1),
          .len_q = len_q,
          .len_kv = len_kv,
          .left = IdOr(op.inputs, 4),
          .shift = IdOr(op.inputs, 5),
          .y = IdOr(op.outputs, 0),
          .comparison = graph::PointwiseModeFromText("cmp_" + op.Word("compare", "ge"))
                            .value_or(graph::PointwiseMode::kCmpGe)});
  return true;
}

Status SetOperation(const Case& c, const CaseOp& op, graph::Node& node) {
  if (SetNorm(op, node) || SetSdpa(op, node)) return {};
  if (const auto mode = graph::PointwiseModeFromText(op.name)) {
    node.op = graph::GraphOp::kPointwise;
    node.attrs = PointwiseAttrsOf(op, *mode);
    return {};
  }
  if (op.name.starts_with("conv_") && op.Number("beta", 0) == 0) {
    node.op = op.name == "conv_fprop"   ? graph::GraphOp::kConvFprop
              : op.name == "conv_dgrad" ? graph::GraphOp::kConvDgrad
                                        : graph::GraphOp::kConvWgrad;
    node.attrs = ConvAttrsOf(op, c.tensors[static_cast<size_t>(op.inputs[0])].dims.size() - 2);
    return {};
  }
  if (IsWindow(op)) {
    const size_t spatial = c.tensors[static_cast<size_t>(op.inputs[0])].dims.size() - 2;
    const oracle::Window w = WindowOf(op, spatial);
    constexpr graph::ResampleMode kModes[] = {
        graph::ResampleMode::kNearest, graph::ResampleMode::kBilinear,
        graph::ResampleMode::kAvgIncludePadding, graph::ResampleMode::kMax,
        graph::ResampleMode::kAvgExcludePadding};
    node.op =
        op.name.ends_with("_bwd") ? graph::GraphOp::kResampleBwd : graph::GraphOp::kResampleFwd;
    node.attrs = graph::ResampleAttrs{.mode = kModes[static_cast<size_t>(w.mode)],
                                      .padding = static_cast<graph::PaddingMode>(w.padding),
                                      .propagate_nan = w.propagate_nan,
                                      .window = w.window,
                                      .stride = w.stride,
                                      .pre_padding = w.pre_padding,
                                      .post_padding = op.List("post", w.pre_padding),
                                      .unit = w.unit};
    return {};
  }
  if (op.name == "matmul") {
    node.op = graph::GraphOp::kMatmul;
    node.attrs = graph::MatmulAttrs{.padding_value = op.Number("padding_value", 0)};
    return {};
  }
  if (op.name == "concat") {
    node.op = graph::GraphOp::kConcat;
    node.attrs = graph::ConcatAttrs{.axis = static_cast<int64_t>(op.Number("axis", 0))};
    return {};
  }
  if (op.name == "reshape") {
    node.op = graph::GraphOp::kReshape;
    node.attrs = graph::ReshapeAttrs{};
    return {};
  }
  if (op.name == "transpose") {
    node.op = graph::GraphOp::kTranspose;
    node.attrs = graph::TransposeAttrs{.permutation = op.List("permutation", {})};
    return {};
  }
  if (op.name == "slice") {
    const Dims ones(c.tensors[static_cast<size_t>(op.inputs[0])].dims.size(), 1);
    node.op = graph::GraphOp::kSlice;
    node.attrs = graph::SliceAttrs{.start = op.List("start", {}), .step = op.List("step", ones)};
    return {};
  }
  if (op.name.starts_with("block_scale_")) {
    node.op = op.name == "block_scale_quantize" ? graph::GraphOp::kBlockScaleQuantize
                                                : graph::GraphOp::kBlockScaleDequantize;
    node.attrs = graph::BlockScaleAttrs{.block_size = op.List("block", Dims{1})};
    return {};
  }
  if (op.name == "expand_band" || op.name == "contract_band") {
    node.op = op.name == "expand_band" ? graph::GraphOp::kExpandBandMatrix
                                       : graph::GraphOp::kContractBandMatrix;
    node.attrs = graph::BandAttrs{.lower = static_cast<int64_t>(op.Number("lower", 0)),
                                  .upper = static_cast<int64_t>(op.Number("upper", 0)),
                                  .axis = static_cast<int64_t>(op.Number("axis", 0)),
                                  .pad_value = op.Number("pad_value", 0)};
    return {};
  }
  if (op.name == "moe") {
    node.op = graph::GraphOp::kMoeGroupedMatmul;
    node.attrs = graph::MoeGroupedMatmulAttrs{
        .mode = graph::MoeModeFromText(op.Word("mode", "none")).value_or(graph::MoeMode::kNone),
        .top_k = static_cast<int64_t>(op.Number("top_k", 1))};
    return {};
  }
  if (op.name == "rng") {
    node.op = graph::GraphOp::kRng;
    node.attrs = graph::RngAttrs{
        .distribution = *graph::RngDistributionFromText(op.Word("distribution", "bernoulli")),
        .seed = static_cast<int64_t>(op.Number("seed", 0)),
        .probability = op.Number("probability", 1),
        .minimum = op.Number("from", 0),
        .maximum = op.Number("to", 1),
        .mean = op.Number("mean", 0),
        .deviation = op.Number("deviation", 1)};
    return {};
  }
  if (op.name.starts_with("reduce_")) {
    if (const auto mode = graph::ReductionModeFromText(op.name.substr(7))) {
      node.op = graph::GraphOp::kReduction;
      node.attrs = graph::ReductionAttrs{.mode = *mode};
      return {};
    }
  }
  if (op.name == "gen_stats") {
    node.op = graph::GraphOp::kGenStats;
    node.attrs = graph::GenStatsAttrs{};
    return {};
  }
  return Status::Error(Code::kNotSupported, "{}: {} has no graph here", c.Label(), op.name);
}

}  // namespace

Result<graph::Graph> ToGraph(const Case& c) {
  graph::Graph g{.name = c.name};
  for (const CaseTensor& tensor : c.tensors) g.AddTensor(TensorOf(tensor));
  for (const CaseOp& op : c.ops) {
    if (SpellParts(op, g)) continue;
    graph::Node node{.inputs = {op.inputs.begin(), op.inputs.end()},
                     .outputs = {op.outputs.begin(), op.outputs.end()},
                     .compute = TypeOf(op.Compute())};
    RETURN_IF_ERROR(SetOperation(c, op, node));
    g.AddNode(std::move(node));
  }
  RETURN_IF_ERROR(graph::Legalize(g));
  return g;
}

}  // namespace kiln::testing
