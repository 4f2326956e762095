#include "api/backend/statistics.h"

#include "ir/shape.h"

namespace kiln::api {
namespace {

constexpr AttrRow kGenStatsRows[] = {
    Attr<&GenStatsDesc::mode>(CUDNN_ATTR_OPERATION_GENSTATS_MODE),
    Attr<&GenStatsDesc::math_type>(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC),
    Attr<&GenStatsDesc::x>(CUDNN_ATTR_OPERATION_GENSTATS_XDESC),
    Attr<&GenStatsDesc::sum>(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC),
    Attr<&GenStatsDesc::square_sum>(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC),
};

using Bn = BnFinalizeDesc;

constexpr AttrRow kBnFinalizeRows[] = {
    Attr<&Bn::mode>(CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE),
    Attr<&Bn::math_type>(CUDNN_ATTR_OPERATION_BN_FINALIZE_MATH_PREC),
    Attr<&Bn::sum>(CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC, Use::kOptional),
    Attr<&Bn::square_sum>(CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC, Use::kOptional),
    Attr<&Bn::scale>(CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC, Use::kOptional),
    Attr<&Bn::bias>(CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC, Use::kOptional),
    Attr<&Bn::previous_mean>(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC,
                             Use::kOptional),
    Attr<&Bn::previous_var>(CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC, Use::kOptional),
    Attr<&Bn::updated_mean>(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC,
                            Use::kOptional),
    Attr<&Bn::updated_var>(CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC,
                           Use::kOptional),
    Attr<&Bn::saved_mean>(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC, Use::kOptional),
    Attr<&Bn::saved_inv_std>(CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC, Use::kOptional),
    Attr<&Bn::eq_scale>(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC, Use::kOptional),
    Attr<&Bn::eq_bias>(CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC, Use::kOptional),
    Attr<&Bn::accumulation_count>(CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC,
                                  Use::kOptional),
    Attr<&Bn::epsilon>(CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC, Use::kOptional),
    Attr<&Bn::exp_average_factor>(CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC,
                                  Use::kOptional),
};

struct NamedOperand {
  const char* name;
  const Ref<TensorDesc>& tensor;
};

Status CheckPerChannel(NamedOperand operand, const TensorDesc& like) {
  if (operand.tensor == nullptr || operand.tensor->dims == like.dims) return {};
  return Status::Error(Code::kBadParam, "{} is {}, unlike {}", operand.name, operand.tensor->Text(),
                       like.Text());
}

Status CheckScalar(NamedOperand operand) {
  if (operand.tensor == nullptr || operand.tensor->by_value ||
      NumElements(operand.tensor->dims) == 1)
    return {};
  return Status::Error(Code::kBadParam, "{} is {}; one number is wanted", operand.name,
                       operand.tensor->Text());
}

}  // namespace

std::span<const AttrRow> GenStatsDesc::Rows() { return kGenStatsRows; }
std::span<const AttrRow> BnFinalizeDesc::Rows() { return kBnFinalizeRows; }

Status GenStatsDesc::Finalize() {
  if (x->dims.size() >= 2) return {};
  return Status::Error(Code::kBadParam, "x, {}, has no dimension of channels", x->Text());
}

Status GenStatsDesc::Import(GraphImport& import) const {
  // NOTE: cudnn-frontend (1.23, node/genstats.h) stores its own enum of x's type in the attribute:
  // half arrives as INT8, bf16 as INT64, float as DOUBLE. cuDNN sums in float all the same.
  const cudnnDataType_t compute =
      x->data_type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  return import.Add(graph::GraphOp::kGenStats, {x.get()}, {sum.get(), square_sum.get()}, compute,
                    graph::GenStatsAttrs{});
}

Status BnFinalizeDesc::Finalize() {
  const NamedOperand inputs[] = {
      {"sum", sum}, {"square sum", square_sum}, {"scale", scale}, {"bias", bias}};
  bool training = mode == CUDNN_BN_FINALIZE_STATISTICS_TRAINING;
  if (training && (sum == nullptr || square_sum == nullptr)) {
    return Status::Text(Code::kBadParam, "training statistics need the sum and the square sum");
  }
  if (!training && (previous_mean == nullptr || previous_var == nullptr)) {
    return Status::Text(Code::kBadParam, "inference statistics need the running mean and variance");
  }
  const TensorDesc& like = training ? *sum : *previous_mean;
  for (const NamedOperand& in : inputs) RETURN_IF_ERROR(CheckPerChannel(in, like));
  for (const NamedOperand& operand :
       {NamedOperand{"previous running mean", previous_mean},
        NamedOperand{"previous running variance", previous_var},
        NamedOperand{"updated running mean", updated_mean},
        NamedOperand{"updated running variance", updated_var},
        NamedOperand{"saved mean", saved_mean},
        NamedOperand{"saved inverse deviation", saved_inv_std},
        NamedOperand{"equivalent scale", eq_scale}, NamedOperand{"equivalent bias", eq_bias}}) {
    RETURN_IF_ERROR(CheckPerChannel(operand, like));
  }
  RETURN_IF_ERROR(CheckScalar({"accumulation count", accumulation_count}));
  RETURN_IF_ERROR(CheckScalar({"epsilon", epsilon}));
  return CheckScalar({"averaging factor", exp_average_factor});
}

Status BnFinalizeDesc::Import(GraphImport& import) const {
  return import.Add(
      graph::GraphOp::kBnFinalize,
      {sum.get(), square_sum.get(), scale.get(), bias.get(), previous_mean.get(),
       previous_var.get(), epsilon.get(), exp_average_factor.get(), accumulation_count.get()},
      {updated_mean.get(), updated_var.get(), saved_mean.get(), saved_inv_std.get(), eq_scale.get(),
       eq_bias.get()},
      math_type,
      graph::BnFinalizeAttrs{.inference = mode == CUDNN_BN_FINALIZE_STATISTICS_INFERENCE});
}

}  // namespace kiln::api
