// One function a family; attributes by the API reference, chapter 9, and the headers of 9.28.
#include "tests/support/client_ops.h"

#include <algorithm>
#include <array>
#include <cfloat>

#include "tests/support/evaluate.h"
#include "tests/support/oracle/oracle.h"

namespace kiln::testing {
namespace {

int CudnnType(DType type) { return oracle::Row(type).cudnn; }

Descriptor MakeTensor(const Cudnn& cudnn, const CaseTensor& tensor) {
  Descriptor d(cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  d.SetEnum(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CudnnType(tensor.dtype));
  d.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, tensor.dims).Set(CUDNN_ATTR_TENSOR_STRIDES, tensor.strides);
  d.SetInt(CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor.uid).SetInt(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
  if (tensor.is_virtual) d.SetBool(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (tensor.by_value) d.SetBool(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  d.Finalize();
  return d;
}

class Maker {
 public:
  Maker(const Cudnn& cudnn, const Case& c) : cudnn_(cudnn) {
    for (const CaseTensor& tensor : c.tensors) tensors_.push_back(MakeTensor(cudnn, tensor));
    for (const CaseTensor& tensor : c.tensors) ranks_.push_back(tensor.dims.size());
  }

  Descriptor Make(const CaseOp& op) const {
    if (const auto* mode = oracle::FindPointwiseMode(op.name)) return Pointwise(op, *mode);
    if (op.name.starts_with("conv_")) return Conv(op);
    if (op.name.starts_with("reduce_")) return Reduction(op);
    if (op.name == "matmul") return Matmul(op);
    if (op.name == "gen_stats") return GenStats(op);
    if (op.name == "bn_finalize") return BnFinalize(op);
    if (IsWindow(op)) return Resample(op);
    if (const auto* row = FindTensorOp(op.name)) return OfTensors(op, *row);
    if (op.name == "bn_bwd_weights") return BnBwdWeights(op);
    if (op.name == "norm_forward") return NormForward(op);
    if (op.name == "norm_backward") return NormBackward(op);
    if (op.name == "block_scale_dequantize") return Dequantize(op);
    if (op.name == "block_scale_quantize") return Quantize(op);
    if (op.name == "rng") return Rng(op);
    if (op.name == "expand_band") return ExpandBand(op);
    if (op.name == "contract_band") return ContractBand(op);
    if (op.name == "moe") return Moe(op);
    if (op.name == "moe_bwd") return MoeBackward(op);
    if (op.name.starts_with("rope")) return Rope(op);
    if (op.name == "softmax") return Softmax(op);
    if (op.name == "band_mask") return BandMask(op);
    if (op.name == "transpose") return Transpose(op);
    if (op.name == "slice") return Slice(op);
    return op.name == "reshape" ? Reshape(op) : Concat(op);
  }

 private:
  using Name = cudnnBackendAttributeName_t;

  void Use(Descriptor& d, Name name, const std::vector<int>& list, size_t i) const {
    if (i < list.size() && list[i] >= 0) d.Set(name, tensors_[static_cast<size_t>(list[i])]);
  }

  // Operations whose attributes are all tensors, by the case's order of operands and results.
  struct TensorOp {
    const char* name;
    cudnnBackendDescriptorType_t type;
    std::array<Name, 12> inputs;
    std::array<Name, 3> outputs;
  };
  static const TensorOp* FindTensorOp(std::string_view name) {
    static constexpr std::array<TensorOp, 3> kRows = {{
        {"sdpa_fwd",
         CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC,
          CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
          CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC,
          CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
          CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC,
          CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC,
          CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_KDESC,
          CUDNN_ATTR_OPERATION_SDPA_FWD_PAGE_TABLE_VDESC,
          {},
          {},
          {},
          CUDNN_ATTR_OPERATION_SDPA_FWD_BLOCK_MASK_DESC},
         {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC}},
        {"sdpa_bwd",
         CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC,
          CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC,
          CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC,
          CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_QDESC,
          CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_KVDESC},
         {CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC,
          CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC}},
        {"paged_cache_load",
         CUDNN_BACKEND_OPERATION_PAGED_CACHE_LOAD_DESCRIPTOR,
         {CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_CONTAINER_DESC,
          CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_PAGE_TABLE_DESC,
          CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_SEQUENCE_DESC},
         {CUDNN_ATTR_OPERATION_PAGED_CACHE_LOAD_YDESC}},
    }};
    const auto* row = std::ranges::find(kRows, name, &TensorOp::name);
    return row == kRows.end() ? nullptr : row;
  }

  Descriptor OfTensors(const CaseOp& op, const TensorOp& row) const {
    Descriptor d(cudnn_, row.type);
    for (size_t i = 0; i < op.inputs.size(); ++i) Use(d, row.inputs[i], op.inputs, i);
    for (size_t i = 0; i < op.outputs.size(); ++i) Use(d, row.outputs[i], op.outputs, i);
    return d;
  }

  Descriptor Pointwise(const CaseOp& op, const oracle::PointwiseMode& mode) const {
    Descriptor math(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    math.SetEnum(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode.cudnn);
    math.SetEnum(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CudnnType(op.Compute()));
    if (op.name.starts_with("relu")) {
      const bool propagate = op.Word("nan", "propagate") == "propagate";
      math.SetEnum(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
                   propagate ? CUDNN_PROPAGATE_NAN : CUDNN_NOT_PROPAGATE_NAN);
      math.SetDouble(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, op.Number("lower", 0));
      math.SetDouble(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, op.Number("upper", DBL_MAX));
      math.SetDouble(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, op.Number("slope", 0));
    }
    if (op.Has("elu_alpha"))
      math.SetDouble(CUDNN_ATTR_POINTWISE_ELU_ALPHA, op.Number("elu_alpha", 1));
    if (op.Has("softplus_beta"))
      math.SetDouble(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, op.Number("softplus_beta", 1));
    if (op.Has("swish_beta"))
      math.SetDouble(CUDNN_ATTR_POINTWISE_SWISH_BETA, op.Number("swish_beta", 1));
    if (op.name == "gen_index")
      math.SetInt(CUDNN_ATTR_POINTWISE_AXIS, static_cast<int64_t>(op.Number("axis", 0)));
    math.Finalize();

    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    d.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, math);
    if (mode.backward) {
      Use(d, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, op.inputs, 0);
      Use(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op.inputs, 1);
      Use(d, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, op.outputs, 0);
    } else {
      Use(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op.inputs, 0);
      Use(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, op.inputs, 1);
      Use(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, op.inputs, 2);
      Use(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op.outputs, 0);
      d.SetFloat(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, static_cast<float>(op.Number("alpha1", 1)));
      if (mode.operands > 1)
        d.SetFloat(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2,
                   static_cast<float>(op.Number("alpha2", 1)));
    }
    return d;
  }

  // Attribute names of the three directions: settings, alpha, beta, two operands, result.
  struct ConvRow {
    const char* name;
    cudnnBackendDescriptorType_t type;
    Name settings, alpha, beta, first, second, result;
  };
  static constexpr std::array<ConvRow, 3> kConvRows = {{
      {"conv_fprop", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
      {"conv_dgrad", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX},
      {"conv_wgrad", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW},
  }};

  Descriptor Conv(const CaseOp& op) const {
    const size_t spatial = ranks_[static_cast<size_t>(op.inputs[0])] - 2;
    const Dims ones(spatial, 1), zeros(spatial, 0), pad = op.List("pad", zeros);
    Descriptor settings(cudnn_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    settings.SetInt(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(spatial));
    settings.SetEnum(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                     CudnnType(op.Compute()));
    settings.SetEnum(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                     op.Number("flip", 0) != 0 ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION);
    settings.Set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pad);
    settings.Set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, op.List("post", pad));
    settings.Set(CUDNN_ATTR_CONVOLUTION_DILATIONS, op.List("dilation", ones));
    settings.Set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, op.List("stride", ones));
    settings.Finalize();

    const auto& row = *std::ranges::find(kConvRows, op.name, &ConvRow::name);
    Descriptor d(cudnn_, row.type);
    d.Set(row.settings, settings);
    Use(d, row.first, op.inputs, 0);
    Use(d, row.second, op.inputs, 1);
    Use(d, row.result, op.outputs, 0);
    const double alpha = op.Number("alpha", 1), beta = op.Number("beta", 0);
    if (op.Compute() == DType::kF64)
      return d.SetDouble(row.alpha, alpha).SetDouble(row.beta, beta), std::move(d);
    d.SetFloat(row.alpha, static_cast<float>(alpha)).SetFloat(row.beta, static_cast<float>(beta));
    return d;
  }

  Descriptor Matmul(const CaseOp& op) const {
    Descriptor settings(cudnn_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    settings.SetEnum(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CudnnType(op.Compute()));
    if (op.Has("padding_value"))
      settings.SetDouble(CUDNN_ATTR_MATMUL_PADDING_VALUE, op.Number("padding_value", 0));
    settings.Finalize();
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    d.Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, settings);
    Use(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, op.inputs, 1);
    Use(d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, op.inputs, 2);
    Use(d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, op.inputs, 3);
    Use(d, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, op.inputs, 4);
    Use(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, op.outputs, 0);
    return d;
  }

  Descriptor Reduction(const CaseOp& op) const {
    constexpr std::array<std::string_view, 9> kModes = {
        "add", "mul", "min", "max", "amax", "avg", "norm1", "norm2", "mul_no_zeros"};
    const auto mode =
        std::ranges::find(kModes, std::string_view(op.name).substr(7)) - kModes.begin();
    Descriptor settings(cudnn_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    settings.SetEnum(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
                     static_cast<int>(mode));
    settings.SetEnum(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CudnnType(op.Compute()));
    if (op.Has("deterministic")) settings.SetBool(CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, true);
    settings.Finalize();
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    d.Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, settings);
    Use(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, op.outputs, 0);
    return d;
  }

  Descriptor GenStats(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    d.SetEnum(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
              CUDNN_GENSTATS_SUM_SQSUM);
    d.SetEnum(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
              CudnnType(op.Compute()));
    Use(d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, op.outputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, op.outputs, 1);
    return d;
  }

  Descriptor BnFinalize(const CaseOp& op) const {
    constexpr Name kInputs[] = {CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SUM_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_Y_SQ_SUM_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_SCALE_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_BIAS_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_MEAN_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_PREV_RUNNING_VAR_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_EPSILON_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_EXP_AVERATE_FACTOR_DESC,
                                CUDNN_ATTR_OPERATION_BN_FINALIZE_ACCUM_COUNT_DESC};
    constexpr Name kOutputs[] = {CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_MEAN_DESC,
                                 CUDNN_ATTR_OPERATION_BN_FINALIZE_UPDATED_RUNNING_VAR_DESC,
                                 CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_MEAN_DESC,
                                 CUDNN_ATTR_OPERATION_BN_FINALIZE_SAVED_INV_STD_DESC,
                                 CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_SCALE_DESC,
                                 CUDNN_ATTR_OPERATION_BN_FINALIZE_EQ_BIAS_DESC};
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR);
    d.SetEnum(CUDNN_ATTR_OPERATION_BN_FINALIZE_STATS_MODE, CUDNN_TYPE_BN_FINALIZE_STATS_MODE,
              op.Number("inference", 0) != 0 ? CUDNN_BN_FINALIZE_STATISTICS_INFERENCE
                                             : CUDNN_BN_FINALIZE_STATISTICS_TRAINING);
    d.SetEnum(CUDNN_ATTR_OPERATION_BN_FINALIZE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
              CudnnType(op.Compute()));
    for (size_t i = 0; i < std::size(kInputs); ++i) Use(d, kInputs[i], op.inputs, i);
    for (size_t i = 0; i < std::size(kOutputs); ++i) Use(d, kOutputs[i], op.outputs, i);
    return d;
  }

  // Whole lengths as integers, as the frontend's graphs have them; others as fractions.
  static void SetLengths(Descriptor& d, Name name, const Dims& lengths, const Dims& units) {
    if (std::ranges::all_of(units, [](int64_t unit) { return unit == 1; })) {
      d.Set(name, lengths);
      return;
    }
    std::vector<cudnnFraction_t> fractions;
    for (size_t s = 0; s < lengths.size(); ++s)
      fractions.push_back({.numerator = lengths[s], .denominator = units[s]});
    d.Set(name, CUDNN_TYPE_FRACTION, static_cast<int64_t>(fractions.size()), fractions.data());
  }

  Descriptor Resample(const CaseOp& op) const {
    constexpr int kModes[] = {CUDNN_RESAMPLE_NEAREST, CUDNN_RESAMPLE_BILINEAR,
                              CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, CUDNN_RESAMPLE_MAXPOOL,
                              CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING};
    const size_t spatial = ranks_[static_cast<size_t>(op.inputs[0])] - 2;
    const oracle::Window w = WindowOf(op, spatial);
    Descriptor settings(cudnn_, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    settings.SetEnum(CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE,
                     kModes[static_cast<size_t>(w.mode)]);
    settings.SetEnum(CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CudnnType(op.Compute()));
    settings.SetInt(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, static_cast<int64_t>(spatial));
    settings.SetEnum(CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
                     w.propagate_nan ? CUDNN_PROPAGATE_NAN : CUDNN_NOT_PROPAGATE_NAN);
    settings.SetEnum(CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE,
                     static_cast<int>(w.padding));
    SetLengths(settings, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, w.window, w.unit);
    SetLengths(settings, CUDNN_ATTR_RESAMPLE_STRIDES, w.stride, w.unit);
    SetLengths(settings, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, w.pre_padding, w.unit);
    SetLengths(settings, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, op.List("post", w.pre_padding), w.unit);
    settings.Finalize();

    if (op.name.ends_with("_bwd")) {
      Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR);
      d.Set(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, settings);
      Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, op.inputs, 0);
      Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, op.inputs, 1);
      Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC, op.inputs, 2);
      Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC, op.inputs, 3);
      Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, op.outputs, 0);
      return d;
    }
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR);
    d.Set(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, settings);
    Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, op.outputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, op.outputs, 1);
    return d;
  }

  Descriptor BnBwdWeights(const CaseOp& op) const {
    constexpr Name kInputs[] = {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC,
                                CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC,
                                CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
                                CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
                                CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC};
    constexpr Name kOutputs[] = {CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
                                 CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
                                 CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
                                 CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
                                 CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS};
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    d.SetEnum(CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
              CudnnType(op.Compute()));
    for (size_t i = 0; i < std::size(kInputs); ++i) Use(d, kInputs[i], op.inputs, i);
    for (size_t i = 0; i < std::size(kOutputs); ++i) Use(d, kOutputs[i], op.outputs, i);
    return d;
  }

  // Operands from `first` on are one list.
  void UsePeers(Descriptor& d, Name name, const std::vector<int>& list, size_t first) const {
    std::vector<cudnnBackendDescriptor_t> peers;
    for (size_t i = first; i < list.size(); ++i)
      peers.push_back(tensors_[static_cast<size_t>(list[i])].get());
    if (peers.empty()) return;
    d.Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(peers.size()), peers.data());
  }

  Descriptor NormForward(const CaseOp& op) const {
    constexpr Name kMean = CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC,
                   kInvVariance = CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC;
    constexpr Name kInputs[] = {CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
                                kMean,
                                kInvVariance,
                                CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC,
                                CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC,
                                CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
                                CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC,
                                CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
                                CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC};
    constexpr Name kOutputs[] = {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, kMean, kInvVariance,
                                 CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
                                 CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC};
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    d.SetEnum(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, NormModeNumber(op));
    d.SetEnum(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE,
              op.Number("inference", 0) != 0 ? CUDNN_NORM_FWD_INFERENCE : CUDNN_NORM_FWD_TRAINING);
    for (size_t i = 0; i < std::size(kInputs); ++i) Use(d, kInputs[i], op.inputs, i);
    for (size_t i = 0; i < std::size(kOutputs); ++i) Use(d, kOutputs[i], op.outputs, i);
    UsePeers(d, CUDNN_ATTR_OPERATION_NORM_FWD_PEER_STAT_DESCS, op.inputs, std::size(kInputs));
    return d;
  }

  Descriptor NormBackward(const CaseOp& op) const {
    constexpr Name kInputs[] = {
        CUDNN_ATTR_OPERATION_NORM_BWD_XDESC,      CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC,
        CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC,  CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC,
        CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, CUDNN_ATTR_OPERATION_NORM_BWD_EPSILON_DESC};
    constexpr Name kOutputs[] = {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC,
                                 CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC,
                                 CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC};
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    d.SetEnum(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, NormModeNumber(op));
    for (size_t i = 0; i < std::size(kInputs); ++i) Use(d, kInputs[i], op.inputs, i);
    for (size_t i = 0; i < std::size(kOutputs); ++i) Use(d, kOutputs[i], op.outputs, i);
    UsePeers(d, CUDNN_ATTR_OPERATION_NORM_BWD_PEER_STAT_DESCS, op.inputs, std::size(kInputs));
    return d;
  }

  Descriptor ExpandBand(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_EXPAND_BAND_MATRIX_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_YDESC, op.outputs, 0);
    d.SetInt(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_LOWER_BANDWIDTH, Integer(op, "lower", 0));
    d.SetInt(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_UPPER_BANDWIDTH, Integer(op, "upper", 0));
    d.SetInt(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_AXIS, Integer(op, "axis", 0));
    d.SetFloat(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_PAD_VALUE,
               static_cast<float>(op.Number("pad_value", 0)));
    return d;
  }

  Descriptor ContractBand(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_CONTRACT_BAND_MATRIX_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_YDESC, op.outputs, 0);
    d.SetInt(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_LOWER_BANDWIDTH, Integer(op, "lower", 0));
    d.SetInt(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_UPPER_BANDWIDTH, Integer(op, "upper", 0));
    d.SetInt(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_AXIS, Integer(op, "axis", 0));
    d.SetFloat(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_PAD_VALUE,
               static_cast<float>(op.Number("pad_value", 0)));
    return d;
  }

  Descriptor Moe(const CaseOp& op) const {
    const std::string mode = op.Word("mode", "none");
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_DESCRIPTOR);
    d.SetEnum(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MODE, CUDNN_TYPE_MOE_GROUPED_MATMUL_MODE,
              mode == "gather"    ? CUDNN_MOE_GROUPED_MATMUL_MODE_GATHER
              : mode == "scatter" ? CUDNN_MOE_GROUPED_MATMUL_MODE_SCATTER
                                  : CUDNN_MOE_GROUPED_MATMUL_MODE_NONE);
    d.SetEnum(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
              CudnnType(op.Compute()));
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC, op.inputs, 1);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC, op.inputs, 2);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC, op.inputs, 3);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC, op.inputs, 4);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC, op.outputs, 0);
    const auto top_k = static_cast<int32_t>(op.Number("top_k", 1));
    d.Set(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOP_K, CUDNN_TYPE_INT32, 1, &top_k);
    return d;
  }

  Descriptor MoeBackward(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR);
    d.SetEnum(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
              CudnnType(op.Compute()));
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC, op.inputs, 1);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC, op.inputs, 2);
    Use(d, CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC, op.outputs, 0);
    return d;
  }

  Descriptor Rope(const CaseOp& op) const {
    struct Names {
      cudnnBackendDescriptorType_t kind;
      Name x, y, freqs, scale, rope_dim;
    };
    static constexpr Names kForward = {
        CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR, CUDNN_ATTR_OPERATION_ROPE_FWD_XDESC,
        CUDNN_ATTR_OPERATION_ROPE_FWD_YDESC,         CUDNN_ATTR_OPERATION_ROPE_FWD_FREQSDESC,
        CUDNN_ATTR_OPERATION_ROPE_FWD_OUTPUT_SCALE,  CUDNN_ATTR_OPERATION_ROPE_FWD_ROPE_DIM};
    static constexpr Names kBackward = {
        CUDNN_BACKEND_OPERATION_ROPE_BWD_DESCRIPTOR, CUDNN_ATTR_OPERATION_ROPE_BWD_DYDESC,
        CUDNN_ATTR_OPERATION_ROPE_BWD_DXDESC,        CUDNN_ATTR_OPERATION_ROPE_BWD_FREQSDESC,
        CUDNN_ATTR_OPERATION_ROPE_BWD_OUTPUT_SCALE,  CUDNN_ATTR_OPERATION_ROPE_BWD_ROPE_DIM};
    const Names& names = op.name == "rope" ? kForward : kBackward;
    Descriptor d(cudnn_, names.kind);
    Use(d, names.x, op.inputs, 0);
    Use(d, names.freqs, op.inputs, 1);
    Use(d, names.y, op.outputs, 0);
    if (op.Has("scale")) d.SetFloat(names.scale, static_cast<float>(op.Number("scale", 1)));
    if (op.Has("rope_dim")) d.SetInt(names.rope_dim, Integer(op, "rope_dim", 0));
    return d;
  }

  static int64_t Integer(const CaseOp& op, const char* key, int64_t otherwise) {
    return static_cast<int64_t>(op.Number(key, static_cast<double>(otherwise)));
  }

  Descriptor Rng(const CaseOp& op) const {
    Descriptor rng(cudnn_, CUDNN_BACKEND_RNG_DESCRIPTOR);
    const std::string distribution = op.Word("distribution", "bernoulli");
    const auto number = [&](Name name, const char* key, double otherwise) {
      rng.SetDouble(name, op.Number(key, otherwise));
    };
    cudnnRngDistribution_t type = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
    if (distribution == "uniform") {
      type = CUDNN_RNG_DISTRIBUTION_UNIFORM;
      number(CUDNN_ATTR_RNG_UNIFORM_DIST_MINIMUM, "from", 0);
      number(CUDNN_ATTR_RNG_UNIFORM_DIST_MAXIMUM, "to", 1);
    } else if (distribution == "normal") {
      type = CUDNN_RNG_DISTRIBUTION_NORMAL;
      number(CUDNN_ATTR_RNG_NORMAL_DIST_MEAN, "mean", 0);
      number(CUDNN_ATTR_RNG_NORMAL_DIST_STANDARD_DEVIATION, "deviation", 1);
    } else {
      number(CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, "probability", 1);
    }
    rng.SetEnum(CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION, type);
    rng.Finalize();
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
    d.Set(CUDNN_ATTR_OPERATION_RNG_DESC, rng);
    Use(d, CUDNN_ATTR_OPERATION_RNG_YDESC, op.outputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_RNG_SEED, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC, op.inputs, 1);
    if (op.Has("seed"))
      d.SetInt(CUDNN_ATTR_OPERATION_RNG_SEED, static_cast<int64_t>(op.Number("seed", 0)));
    return d;
  }

  void SetBlockSize(Descriptor& d, Name name, const CaseOp& op) const {
    std::vector<int32_t> sizes;
    for (const int64_t size : op.List("block", Dims{1}))
      sizes.push_back(static_cast<int32_t>(size));
    d.Set(name, CUDNN_TYPE_INT32, static_cast<int64_t>(sizes.size()), sizes.data());
  }

  Descriptor Dequantize(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC, op.inputs, 1);
    Use(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC, op.outputs, 0);
    d.SetEnum(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
              CudnnType(op.Compute()));
    SetBlockSize(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE, op);
    return d;
  }

  Descriptor Quantize(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_YDESC, op.outputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC, op.outputs, 1);
    d.SetEnum(CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
              CudnnType(op.Compute()));
    SetBlockSize(d, CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE, op);
    return d;
  }

  Descriptor Reshape(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, op.outputs, 0);
    if (op.Has("mode"))
      d.SetEnum(CUDNN_ATTR_OPERATION_RESHAPE_MODE, CUDNN_TYPE_RESHAPE_MODE,
                op.Word("mode", "") == "logical" ? CUDNN_RESHAPE_LOGICAL : CUDNN_RESHAPE_VIEW_ONLY);
    return d;
  }

  Descriptor Transpose(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_TRANSPOSE_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_TRANSPOSE_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_TRANSPOSE_YDESC, op.outputs, 0);
    d.Set(CUDNN_ATTR_OPERATION_TRANSPOSE_PERMUTATION, op.List("permutation", {}));
    return d;
  }

  Descriptor Slice(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_SLICE_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_SLICE_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_SLICE_YDESC, op.outputs, 0);
    d.Set(CUDNN_ATTR_OPERATION_SLICE_START_INDICES, op.List("start", {}));
    d.Set(CUDNN_ATTR_OPERATION_SLICE_LIMIT_INDICES, op.List("limit", {}));
    d.Set(CUDNN_ATTR_OPERATION_SLICE_STRIDES,
          op.List("step", Dims(ranks_[static_cast<size_t>(op.inputs[0])], 1)));
    return d;
  }

  Descriptor Softmax(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_SOFTMAX_DESCRIPTOR);
    Use(d, CUDNN_ATTR_OPERATION_SOFTMAX_XDESC, op.inputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_SOFTMAX_SINK_DESC, op.inputs, 1);
    Use(d, CUDNN_ATTR_OPERATION_SOFTMAX_YDESC, op.outputs, 0);
    Use(d, CUDNN_ATTR_OPERATION_SOFTMAX_STATS_DESC, op.outputs, 1);
    Use(d, CUDNN_ATTR_OPERATION_SOFTMAX_MAX_DESC, op.outputs, 2);
    Use(d, CUDNN_ATTR_OPERATION_SOFTMAX_SUM_EXP_DESC, op.outputs, 3);
    if (op.Has("log2"))
      d.SetBool(CUDNN_ATTR_OPERATION_SOFTMAX_STATS_LOG2, op.Number("log2", 0) != 0);
    return d;
  }

  Descriptor BandMask(const CaseOp& op) const {
    static constexpr std::array<Name, 8> kOperands = {
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_QDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_KVDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_LEFT_BOUND_DESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_CU_SEQ_LEN_QDESC,
        CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_CU_SEQ_LEN_KVDESC};
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_DIAGONAL_BAND_MASK_DESCRIPTOR);
    for (size_t i = 0; i < kOperands.size(); ++i) Use(d, kOperands[i], op.inputs, i);
    Use(d, CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, op.outputs, 0);
    const auto* mode = oracle::FindPointwiseMode("cmp_" + op.Word("compare", "ge"));
    d.SetEnum(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE, CUDNN_TYPE_POINTWISE_MODE,
              mode == nullptr ? -1 : mode->cudnn);
    return d;
  }

  Descriptor Concat(const CaseOp& op) const {
    Descriptor d(cudnn_, CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR);
    std::vector<cudnnBackendDescriptor_t> inputs;
    for (const int input : op.inputs) inputs.push_back(tensors_[static_cast<size_t>(input)].get());
    d.SetInt(CUDNN_ATTR_OPERATION_CONCAT_AXIS, static_cast<int64_t>(op.Number("axis", 0)));
    d.Set(CUDNN_ATTR_OPERATION_CONCAT_INPUT_DESCS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
          static_cast<int64_t>(inputs.size()), inputs.data());
    Use(d, CUDNN_ATTR_OPERATION_CONCAT_OUTPUT_DESC, op.outputs, 0);
    return d;
  }

  const Cudnn& cudnn_;
  std::vector<Descriptor> tensors_;
  std::vector<size_t> ranks_;
};

}  // namespace

std::vector<Descriptor> MakeOperations(const Cudnn& cudnn, const Case& c, ClientError* error) {
  const Maker maker(cudnn, c);
  std::vector<Descriptor> ops;
  for (const CaseOp& op : c.ops) {
    ops.push_back(maker.Make(op));
    *error = ops.back().Finalize();
    if (!error->ok()) break;
  }
  return ops;
}

}  // namespace kiln::testing
