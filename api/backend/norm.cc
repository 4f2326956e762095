#include "api/backend/norm.h"

namespace kiln::api {
namespace {

using Fwd = NormForwardDesc;
using Bwd = NormBackwardDesc;
using Weights = BnBwdWeightsDesc;
constexpr Use kOptional = Use::kOptional;

constexpr AttrRow kForwardRows[] = {
    Attr<&Fwd::mode>(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, kOptional),
    Attr<&Fwd::phase>(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, kOptional),
    Attr<&Fwd::x>(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, kOptional),
    Attr<&Fwd::mean>(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, kOptional),
    Attr<&Fwd::inv_variance>(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, kOptional),
    Attr<&Fwd::scale>(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, kOptional),
    Attr<&Fwd::bias>(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, kOptional),
    Attr<&Fwd::epsilon>(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, kOptional),
    Attr<&Fwd::exp_average_factor>(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, kOptional),
    Attr<&Fwd::running_mean>(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC, kOptional),
    Attr<&Fwd::running_var>(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC, kOptional),
    Attr<&Fwd::next_mean>(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC, kOptional),
    Attr<&Fwd::next_var>(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC, kOptional),
    Attr<&Fwd::y>(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, kOptional),
    Attr<&Fwd::peers>(CUDNN_ATTR_OPERATION_NORM_FWD_PEER_STAT_DESCS, kOptional),
};

constexpr AttrRow kBackwardRows[] = {
    Attr<&Bwd::mode>(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, kOptional),
    Attr<&Bwd::x>(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, kOptional),
    Attr<&Bwd::mean>(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, kOptional),
    Attr<&Bwd::inv_variance>(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, kOptional),
    Attr<&Bwd::dy>(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, kOptional),
    Attr<&Bwd::scale>(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, kOptional),
    Attr<&Bwd::epsilon>(CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC, kOptional),
    Attr<&Bwd::dscale>(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, kOptional),
    Attr<&Bwd::dbias>(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, kOptional),
    Attr<&Bwd::dx>(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, kOptional),
    Attr<&Bwd::peers>(CUDNN_ATTR_OPERATION_NORM_BWD_PEER_STAT_DESCS, kOptional),
};

constexpr AttrRow kWeightsRows[] = {
    Attr<&Weights::math_type>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, kOptional),
    Attr<&Weights::mean>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, kOptional),
    Attr<&Weights::inv_std>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, kOptional),
    Attr<&Weights::scale>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, kOptional),
    Attr<&Weights::x>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, kOptional),
    Attr<&Weights::dy>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, kOptional),
    Attr<&Weights::dscale>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, kOptional),
    Attr<&Weights::dbias>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC, kOptional),
    Attr<&Weights::eq_dy_scale>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC, kOptional),
    Attr<&Weights::eq_x_scale>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, kOptional),
    Attr<&Weights::eq_bias>(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS, kOptional),
};

struct NamedOperand {
  const char* name;
  const Ref<TensorDesc>& tensor;
};

std::string TextOf(const NamedOperand& operand) {
  return operand.tensor == nullptr ? std::string("absent") : operand.tensor->Text();
}

// Checks that `a` is set where `b` is.
Status Accompanies(NamedOperand b, NamedOperand a) {
  if (b.tensor == nullptr || a.tensor != nullptr) return {};
  return Status::Error(Code::kBadParam, "{} is set, but {} is not", b.name, a.name);
}

// Checks that two operands have equal extents; one that is absent has none.
Status CheckAlike(NamedOperand a, NamedOperand b) {
  if (a.tensor != nullptr && b.tensor != nullptr && a.tensor->dims == b.tensor->dims) return {};
  return Status::Error(Code::kShapeMismatch, "{} is {}, {} is {}; they must have equal extents",
                       a.name, TextOf(a), b.name, TextOf(b));
}

Status CheckAlikeIfSet(NamedOperand a, NamedOperand b) {
  return b.tensor == nullptr ? Status() : CheckAlike(a, b);
}

Status CheckEpsilon(const Ref<TensorDesc>& epsilon) {
  if (epsilon == nullptr || epsilon->by_value) return {};
  return Status::Error(Code::kBadParam, "epsilon is {}; it must be passed by value",
                       epsilon->Text());
}

graph::NormMode ModeOf(cudnnBackendNormMode_t mode) { return static_cast<graph::NormMode>(mode); }

Status BatchNormOnly(cudnnBackendNormMode_t mode, const char* what) {
  return Status::Error(Code::kBadParam, "a norm of mode {} has no {}; only batch norm has",
                       graph::Text(ModeOf(mode)), what);
}

Status Needs(cudnnBackendNormMode_t mode, const char* what) {
  return Status::Error(Code::kBadParam, "a norm of mode {} needs {}", graph::Text(ModeOf(mode)),
                       what);
}

// Norms have no compute type.
cudnnDataType_t ComputeOf(const Ref<TensorDesc>& x) {
  const bool is_double = x != nullptr && x->data_type == CUDNN_DATA_DOUBLE;
  return is_double ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

// The graph's verifier speaks of tensors, which x, y and dx must be for an operation to stand.
Status CheckSet(std::initializer_list<NamedOperand> operands) {
  for (const NamedOperand& operand : operands) {
    if (operand.tensor == nullptr)
      return Status::Error(Code::kBadParam, "{} is required and was not set", operand.name);
  }
  return {};
}

}  // namespace

std::span<const AttrRow> NormForwardDesc::Rows() { return kForwardRows; }
std::span<const AttrRow> NormBackwardDesc::Rows() { return kBackwardRows; }
std::span<const AttrRow> BnBwdWeightsDesc::Rows() { return kWeightsRows; }

Status NormForwardDesc::Finalize() {
  const bool inference = phase == CUDNN_NORM_FWD_INFERENCE;
  if (epsilon == nullptr && !inference) return Needs(mode, "epsilon in its training phase");
  RETURN_IF_ERROR(CheckEpsilon(epsilon));
  RETURN_IF_ERROR(Accompanies({"bias", bias}, {"scale", scale}));
  const bool runs = running_mean != nullptr || running_var != nullptr || next_mean != nullptr ||
                    next_var != nullptr || exp_average_factor != nullptr;
  if (mode != CUDNN_BATCH_NORM && (runs || !peers.empty()))
    return BatchNormOnly(mode, "running statistics and peers");
  if (inference && runs) {
    return Status::Text(Code::kBadParam,
                        "running statistics belong to the training phase; inference reads its "
                        "statistics as mean and inv_variance");
  }
  RETURN_IF_ERROR(Accompanies({"the running mean", running_mean}, {"mean", mean}));
  RETURN_IF_ERROR(CheckAlike({"x", x}, {"y", y}));
  if (mean != nullptr) RETURN_IF_ERROR(CheckAlike({"mean", mean}, {"inv_variance", inv_variance}));
  RETURN_IF_ERROR(CheckAlikeIfSet({"scale", scale}, {"bias", bias}));
  return CheckAlikeIfSet({"mean", mean}, {"the running mean", running_mean});
}

Status NormForwardDesc::Import(GraphImport& import) const {
  RETURN_IF_ERROR(CheckSet({{"x", x}, {"y", y}}));
  const bool inference = phase == CUDNN_NORM_FWD_INFERENCE;
  const TensorDesc* stats[] = {mean.get(), inv_variance.get()};
  const auto in = [&](int i) { return inference ? stats[i] : nullptr; };
  const auto out = [&](int i) { return inference ? nullptr : stats[i]; };
  std::vector<GraphImport::Operand> inputs = {x.get(),
                                              in(0),
                                              in(1),
                                              scale.get(),
                                              bias.get(),
                                              epsilon.get(),
                                              exp_average_factor.get(),
                                              running_mean.get(),
                                              running_var.get()};
  for (const Ref<TensorDesc>& peer : peers) inputs.push_back(peer.get());
  return import.Add(graph::GraphOp::kNormForward, std::move(inputs),
                    {y.get(), out(0), out(1), next_mean.get(), next_var.get()}, ComputeOf(x),
                    graph::NormForwardAttrs{.mode = ModeOf(mode), .inference = inference});
}

Status NormBackwardDesc::Finalize() {
  const bool is_rms = mode == CUDNN_RMS_NORM;
  if (!is_rms && mean == nullptr) return Needs(mode, "mean");
  if (is_rms && mean != nullptr) return Status::Text(Code::kBadParam, "an RMS norm has no mean");
  if (mode != CUDNN_BATCH_NORM && !peers.empty()) return BatchNormOnly(mode, "peers");
  RETURN_IF_ERROR(CheckEpsilon(epsilon));
  RETURN_IF_ERROR(Accompanies({"scale", scale}, {"dscale", dscale}));
  RETURN_IF_ERROR(Accompanies({"dscale", dscale}, {"scale", scale}));
  RETURN_IF_ERROR(Accompanies({"dbias", dbias}, {"dscale", dscale}));
  RETURN_IF_ERROR(CheckAlike({"x", x}, {"dx", dx}));
  RETURN_IF_ERROR(CheckAlike({"x", x}, {"dy", dy}));
  if (mean != nullptr) RETURN_IF_ERROR(CheckAlike({"mean", mean}, {"inv_variance", inv_variance}));
  RETURN_IF_ERROR(CheckAlikeIfSet({"scale", scale}, {"dscale", dscale}));
  return CheckAlikeIfSet({"scale", scale}, {"dbias", dbias});
}

Status NormBackwardDesc::Import(GraphImport& import) const {
  RETURN_IF_ERROR(CheckSet({{"x", x}, {"dy", dy}, {"dx", dx}}));
  std::vector<GraphImport::Operand> inputs = {
      x.get(), dy.get(), mean.get(), inv_variance.get(), scale.get(), epsilon.get()};
  for (const Ref<TensorDesc>& peer : peers) inputs.push_back(peer.get());
  return import.Add(graph::GraphOp::kNormBackward, std::move(inputs),
                    {dx.get(), dscale.get(), dbias.get()}, ComputeOf(x),
                    graph::NormBackwardAttrs{.mode = ModeOf(mode)});
}

Status BnBwdWeightsDesc::Import(GraphImport& import) const {
  RETURN_IF_ERROR(CheckSet({{"x", x}, {"dy", dy}, {"mean", mean}, {"inv_std", inv_std}}));
  return import.Add(graph::GraphOp::kBnBwdWeights,
                    {x.get(), dy.get(), mean.get(), inv_std.get(), scale.get()},
                    {dscale.get(), dbias.get(), eq_dy_scale.get(), eq_x_scale.get(), eq_bias.get()},
                    math_type, graph::BnBwdWeightsAttrs{});
}

}  // namespace kiln::api
