// cudnnMakeFusedOpsPlan and cudnnFusedOpsExecute: each of the seven operations against the oracle,
// with what its packs may leave out.
#include <algorithm>
#include <cmath>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

constexpr double kEpsilon = 1e-3, kFactor = 0.3;
const oracle::Precision kF32 = {.compute = oracle::DType::kF32};
const double kRoundoff = oracle::UnitRoundoff(oracle::DType::kF32);

// The packs and the plan of one operation, with the tensors that were given to them.
class Fused {
 public:
  Fused(const LegacyContext& c, cudnnFusedOps_t op) : c_(c), client_(c.client) {
    KILN_CALL(client_, cudnnCreateFusedOpsConstParamPack, &constants_, op);
    KILN_CALL(client_, cudnnCreateFusedOpsVariantParamPack, &variants_, op);
    KILN_CALL(client_, cudnnCreateFusedOpsPlan, &plan_, op);
  }
  ~Fused() {
    KILN_CALL(client_, cudnnDestroyFusedOpsConstParamPack, constants_);
    KILN_CALL(client_, cudnnDestroyFusedOpsVariantParamPack, variants_);
    KILN_CALL(client_, cudnnDestroyFusedOpsPlan, plan_);
  }
  void Descriptor(cudnnFusedOpsConstParamLabel_t label, const void* descriptor) {
    Note(
        KILN_CALL(client_, cudnnSetFusedOpsConstParamPackAttribute, constants_, label, descriptor));
  }
  void Number(cudnnFusedOpsConstParamLabel_t label, int value) {
    Note(KILN_CALL(client_, cudnnSetFusedOpsConstParamPackAttribute, constants_, label,
                   static_cast<const void*>(&value)));
  }
  template <class T>
  void Scalar(cudnnFusedOpsVariantParamLabel_t label, T value) {
    Note(KILN_CALL(client_, cudnnSetFusedOpsVariantParamPackAttribute, variants_, label,
                   static_cast<void*>(&value)));
  }
  void Pointer(cudnnFusedOpsConstParamLabel_t placeholder, cudnnFusedOpsVariantParamLabel_t pointer,
               const LegacyTensor& tensor) {
    const bool aligned = reinterpret_cast<uintptr_t>(tensor.data()) % 16 == 0;
    Number(placeholder, aligned ? CUDNN_PTR_16B_ALIGNED : CUDNN_PTR_ELEM_ALIGNED);
    Note(KILN_CALL(client_, cudnnSetFusedOpsVariantParamPackAttribute, variants_, pointer,
                   tensor.data()));
  }
  // A relu, which the operation may have.
  void Relu() {
    auto relu = client_.New<cudnnActivationDescriptor_t>("Activation");
    KILN_CALL(client_, cudnnSetActivationDescriptor, relu, CUDNN_ACTIVATION_RELU,
              CUDNN_NOT_PROPAGATE_NAN, 0.0);
    Descriptor(CUDNN_PARAM_ACTIVATION_DESC, relu);
  }
  void Filter(cudnnFusedOpsConstParamLabel_t label, const Layout& layout, const Dims& dims) {
    auto filter = client_.New<cudnnFilterDescriptor_t>("Filter");
    const auto format = layout.order == Layout::kNhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    const std::vector<int> lengths(dims.begin(), dims.end());
    KILN_CALL(client_, cudnnSetFilterNdDescriptor, filter, layout.type, format,
              static_cast<int>(lengths.size()), lengths.data());
    Descriptor(label, filter);
  }
  // A convolution of stride 1, whose results have the extents of what is read.
  void Convolution(const Dims& w_dims) {
    auto conv = client_.New<cudnnConvolutionDescriptor_t>("Convolution");
    KILN_CALL(client_, cudnnSetConvolution2dDescriptor, conv, static_cast<int>(w_dims[2] / 2),
              static_cast<int>(w_dims[3] / 2), 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
              CUDNN_DATA_FLOAT);
    KILN_CALL(client_, cudnnSetConvolutionMathType, conv, CUDNN_TENSOR_OP_MATH);
    Descriptor(CUDNN_PARAM_CONV_DESC, conv);
  }
  // The plan made and run twice, the second time as a repeated call.
  std::string Run(int times = 2) {
    if (!error_.empty()) return error_;
    size_t bytes = 0;
    std::string error =
        c_.Done(KILN_CALL(client_, cudnnMakeFusedOpsPlan, c_.handle, plan_, constants_, &bytes));
    if (!error.empty()) return "the plan: " + error;
    const Buffer workspace(c_.device, bytes + 16);
    Note(KILN_CALL(client_, cudnnSetFusedOpsVariantParamPackAttribute, variants_,
                   CUDNN_PTR_WORKSPACE, static_cast<void*>(workspace.data())));
    Scalar(CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES, bytes);
    for (int i = 0; i < times && error.empty(); ++i)
      error = c_.Done(KILN_CALL(client_, cudnnFusedOpsExecute, c_.handle, plan_, variants_));
    return error;
  }

 private:
  void Note(cudnnStatus_t status) {
    if (error_.empty() && status != CUDNN_STATUS_SUCCESS) error_ = c_.Done(status);
  }

  const LegacyContext& c_;
  LegacyClient& client_;
  cudnnFusedOpsConstParamPack_t constants_ = nullptr;
  cudnnFusedOpsVariantParamPack_t variants_ = nullptr;
  cudnnFusedOpsPlan_t plan_ = nullptr;
  std::string error_;
};

struct FusedCase {
  cudnnDataType_t type = CUDNN_DATA_HALF;
  Layout::Order order = Layout::kNhwc;
  cudnnDataType_t parameters = CUDNN_DATA_HALF;  // of scales and shifts
  Dims x_dims = {2, 16, 5, 4};
  Dims w_dims = {32, 16, 3, 3};
  bool scales = true, shifts = true, activates = true;
  bool more = true;  // what else an operation may have: statistics, a mask, z
  int misaligned = 0;
  cudnnDataType_t mask = CUDNN_DATA_INT32;

  Layout Tensor() const { return {type, order, misaligned}; }
};

Dims Channels(int64_t channels) { return {1, channels, 1, 1}; }

void Mode(Fused& fused) { fused.Number(CUDNN_PARAM_BN_MODE, CUDNN_BATCHNORM_SPATIAL); }

// x * scale + shift, with the error of a few roundings in f32.
Dense ScaleAndShift(const Dense& x, const Dense* scale, const Dense* shift) {
  Dense y = x;
  const Dense s = scale ? Broadcast(*scale, x.dims) : Dense(),
              b = shift ? Broadcast(*shift, x.dims) : Dense();
  for (size_t i = 0; i < y.values.size(); ++i) {
    oracle::Value& value = y.values[i];
    const double by = scale ? s.values[i].v : 1, more = shift ? b.values[i].v : 0;
    value.e = std::fabs(by) * value.e + 3 * kRoundoff * (std::fabs(by * value.v) + std::fabs(more));
    value.v = by * value.v + more;
  }
  return y;
}

Dense Relu(Dense x) {
  for (oracle::Value& value : x.values) value.v = std::max(value.v, 0.0);
  return x;
}

// Numbers within a value's error may be rounded either way.
Dense RoundedTo(Dense x, cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return x;
  const double u = oracle::UnitRoundoff(ElementOf(type));
  for (oracle::Value& value : x.values) {
    value.e += u * std::fabs(value.v) + 1e-7;
  }
  return x;
}

oracle::ConvGeometry Geometry(const Dims& w) {
  return {.pre_padding = {w[2] / 2, w[3] / 2},
          .post_padding = {w[2] / 2, w[3] / 2},
          .stride = {1, 1},
          .dilation = {1, 1}};
}

// The sum over `dims` of what is off by e: as far as all can be off together.
Dense SumOf(const Dense& x, const Dims& dims) {
  return oracle::Reduction(oracle::Reduce::kAdd, x, dims, oracle::DType::kF32);
}

Dense Squares(Dense x) {
  for (oracle::Value& value : x.values) {
    value.e = 2 * std::fabs(value.v) * value.e + value.e * value.e;
    value.v *= value.v;
  }
  return x;
}

// x, scaled, shifted and activated, is what a convolution reads.
struct Normalised {
  LegacyTensor x, scale, shift;

  Normalised(const FusedCase& v, const LegacyContext& c)
      : x(c.Tensor(v.Tensor(), v.x_dims, 1)),
        scale(c.Tensor({v.parameters}, Channels(v.x_dims[1]), 4)),
        shift(c.Tensor({v.parameters}, Channels(v.x_dims[1]), 5)) {}
  void AddTo(Fused& fused, const FusedCase& v) const {
    Mode(fused);
    fused.Descriptor(CUDNN_PARAM_XDESC, x.desc());
    fused.Descriptor(CUDNN_PARAM_BN_EQSCALEBIAS_DESC, scale.desc());
    fused.Pointer(CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PTR_XDATA, x);
    if (v.scales) fused.Pointer(CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER, CUDNN_PTR_BN_EQSCALE, scale);
    if (v.shifts) fused.Pointer(CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER, CUDNN_PTR_BN_EQBIAS, shift);
    if (v.activates) fused.Relu();
    fused.Convolution(v.w_dims);
  }
  Dense Expected(const FusedCase& v) const {
    const Dense s = scale.Before(), b = shift.Before();
    Dense value = ScaleAndShift(x.Before(), v.scales ? &s : nullptr, v.shifts ? &b : nullptr);
    if (v.activates) value = Relu(value);
    return v.scales || v.shifts ? RoundedTo(value, v.type) : value;
  }
};

oracle::Precision PrecisionOf(const FusedCase& v) {
  oracle::Precision precision = kF32;
  if (v.type == CUDNN_DATA_FLOAT) precision.operand_roundoff = 0x1p-11;
  return precision;
}

std::string RunConvolution(const FusedCase& v, const LegacyContext& c) {
  const Dims y_dims = {v.x_dims[0], v.w_dims[0], v.x_dims[2], v.x_dims[3]},
             channels = Channels(v.w_dims[0]);
  const Normalised from(v, c);
  const LegacyTensor w = c.Tensor(v.Tensor(), v.w_dims, 2), y = c.Tensor(v.Tensor(), y_dims, 3),
                     sum = c.Tensor({}, channels, 6), squares = c.Tensor({}, channels, 7);
  Fused fused(c, CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS);
  from.AddTo(fused, v);
  fused.Filter(CUDNN_PARAM_WDESC, v.Tensor(), v.w_dims);
  fused.Descriptor(CUDNN_PARAM_YDESC, y.desc());
  fused.Descriptor(CUDNN_PARAM_YSTATS_DESC, sum.desc());
  fused.Pointer(CUDNN_PARAM_WDATA_PLACEHOLDER, CUDNN_PTR_WDATA, w);
  fused.Pointer(CUDNN_PARAM_YDATA_PLACEHOLDER, CUDNN_PTR_YDATA, y);
  if (v.more) {
    fused.Pointer(CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PTR_YSUM, sum);
    fused.Pointer(CUDNN_PARAM_YSQSUM_PLACEHOLDER, CUDNN_PTR_YSQSUM, squares);
  }
  const std::string error = fused.Run();
  const Dense expected = oracle::ConvFprop(Geometry(v.w_dims), from.Expected(v), w.Before(), {},
                                           PrecisionOf(v)),
              stored = RoundedTo(expected, v.type);
  return FirstOf(
      {error, y.Check(expected), v.more ? sum.Check(SumOf(stored, channels)) : sum.CheckUnchanged(),
       v.more ? squares.Check(SumOf(Squares(stored), channels)) : squares.CheckUnchanged(),
       from.x.CheckUnchanged(), w.CheckUnchanged()});
}

std::string RunWgrad(const FusedCase& v, const LegacyContext& c) {
  const Dims y_dims = {v.x_dims[0], v.w_dims[0], v.x_dims[2], v.x_dims[3]};
  const Normalised from(v, c);
  const LegacyTensor dw = c.Tensor(v.Tensor(), v.w_dims, 2), dy = c.Tensor(v.Tensor(), y_dims, 3);
  Fused fused(c, CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD);
  from.AddTo(fused, v);
  fused.Filter(CUDNN_PARAM_DWDESC, v.Tensor(), v.w_dims);
  fused.Descriptor(CUDNN_PARAM_DYDESC, dy.desc());
  fused.Pointer(CUDNN_PARAM_DWDATA_PLACEHOLDER, CUDNN_PTR_DWDATA, dw);
  fused.Pointer(CUDNN_PARAM_DYDATA_PLACEHOLDER, CUDNN_PTR_DYDATA, dy);
  const std::string error = fused.Run();
  const Dense expected = oracle::ConvWgrad(Geometry(v.w_dims), from.Expected(v), dy.Before(),
                                           v.w_dims, {}, PrecisionOf(v));
  return FirstOf({error, dw.Check(expected), from.x.CheckUnchanged(), dy.CheckUnchanged()});
}

std::string RunFinalize(const FusedCase& v, const LegacyContext& c, bool inference) {
  const Dims dims = Channels(v.x_dims[1]);
  constexpr int64_t kCount = 48;
  const Layout f32 = {CUDNN_DATA_FLOAT, Layout::kNchw, v.misaligned};
  const LegacyTensor sum = c.Tensor(f32, dims, 1), squares = c.Tensor(f32, dims, 2, "pos"),
                     scale = c.Tensor(f32, dims, 3), bias = c.Tensor(f32, dims, 4),
                     mean = c.Tensor(f32, dims, 5), inv_std = c.Tensor(f32, dims, 6),
                     running_mean = c.Tensor(f32, dims, 7),
                     running_var = c.Tensor(f32, dims, 8, "pos"),
                     eq_scale = c.Tensor({v.parameters}, dims, 9),
                     eq_bias = c.Tensor({v.parameters}, dims, 10);
  Fused fused(c, inference ? CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE
                           : CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING);
  Mode(fused);
  fused.Descriptor(CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, scale.desc());
  fused.Descriptor(CUDNN_PARAM_BN_EQSCALEBIAS_DESC, eq_scale.desc());
  fused.Pointer(CUDNN_PARAM_BN_SCALE_PLACEHOLDER, CUDNN_PTR_BN_SCALE, scale);
  fused.Pointer(CUDNN_PARAM_BN_BIAS_PLACEHOLDER, CUDNN_PTR_BN_BIAS, bias);
  const bool runs = inference || v.more, has_equals = inference || v.scales;
  if (runs) {
    fused.Pointer(CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER, CUDNN_PTR_BN_RUNNING_MEAN, running_mean);
    fused.Pointer(CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER, CUDNN_PTR_BN_RUNNING_VAR, running_var);
  }
  if (has_equals) {
    fused.Pointer(CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER, CUDNN_PTR_BN_EQSCALE, eq_scale);
    fused.Pointer(CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER, CUDNN_PTR_BN_EQBIAS, eq_bias);
  }
  fused.Scalar(CUDNN_SCALAR_DOUBLE_BN_EPSILON, kEpsilon);
  if (!inference) {
    fused.Descriptor(CUDNN_PARAM_YSTATS_DESC, sum.desc());
    fused.Pointer(CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PTR_YSUM, sum);
    fused.Pointer(CUDNN_PARAM_YSQSUM_PLACEHOLDER, CUDNN_PTR_YSQSUM, squares);
    fused.Pointer(CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER, CUDNN_PTR_BN_SAVED_MEAN, mean);
    fused.Pointer(CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER, CUDNN_PTR_BN_SAVED_INVSTD, inv_std);
    fused.Scalar(CUDNN_SCALAR_DOUBLE_BN_EXP_AVG_FACTOR, kFactor);
    fused.Scalar(CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, kCount);
  }
  std::string error = fused.Run(1);
  const Dense s = sum.Before(), q = squares.Before(), sc = scale.Before(), b = bias.Before(),
              rm = running_mean.Before(), rv = running_var.Before();
  const oracle::BnFinalizeResult r = oracle::BnFinalize({.sum = &s,
                                                         .sq_sum = &q,
                                                         .scale = &sc,
                                                         .bias = &b,
                                                         .prev_mean = &rm,
                                                         .prev_var = &rv,
                                                         .epsilon = kEpsilon,
                                                         .factor = kFactor,
                                                         .count = double{kCount},
                                                         .inference = inference},
                                                        oracle::DType::kF32);
  const auto check = [](const LegacyTensor& t, const Dense& expected, bool written) {
    return written ? t.Check(expected, 1) : t.CheckUnchanged();
  };
  return FirstOf({error, check(eq_scale, r.eq_scale, has_equals),
                  check(eq_bias, r.eq_bias, has_equals), check(mean, r.saved_mean, !inference),
                  check(inv_std, r.saved_inv_std, !inference),
                  check(running_mean, r.updated_mean, !inference && runs),
                  check(running_var, r.updated_var, !inference && runs), scale.CheckUnchanged(),
                  sum.CheckUnchanged()});
}

std::string RunConvolutionAdd(const FusedCase& v, const LegacyContext& c) {
  const Dims y_dims = {v.x_dims[0], v.w_dims[0], v.x_dims[2], v.x_dims[3]};
  const Dims per_channel = Channels(v.w_dims[0]);
  const LegacyTensor x = c.Tensor(v.Tensor(), v.x_dims, 1), w = c.Tensor(v.Tensor(), v.w_dims, 2),
                     y = c.Tensor(v.Tensor(), y_dims, 3), z = c.Tensor(v.Tensor(), y_dims, 4),
                     scale = c.Tensor({v.parameters}, per_channel, 5),
                     z_scale = c.Tensor({v.parameters}, per_channel, 6),
                     bias = c.Tensor({v.parameters}, per_channel, 7);
  Fused fused(c, CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION);
  fused.Descriptor(CUDNN_PARAM_XDESC, x.desc());
  fused.Filter(CUDNN_PARAM_WDESC, v.Tensor(), v.w_dims);
  fused.Descriptor(CUDNN_PARAM_YDESC, y.desc());
  fused.Descriptor(CUDNN_PARAM_ZDESC, z.desc());
  fused.Convolution(v.w_dims);
  fused.Descriptor(CUDNN_PARAM_BN_EQSCALEBIAS_DESC, scale.desc());
  fused.Descriptor(CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC, z_scale.desc());
  fused.Pointer(CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PTR_XDATA, x);
  fused.Pointer(CUDNN_PARAM_WDATA_PLACEHOLDER, CUDNN_PTR_WDATA, w);
  fused.Pointer(CUDNN_PARAM_YDATA_PLACEHOLDER, CUDNN_PTR_YDATA, y);
  if (v.scales) {
    fused.Pointer(CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER, CUDNN_PTR_BN_EQSCALE, scale);
    fused.Pointer(CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER, CUDNN_PTR_BN_Z_EQSCALE, z_scale);
  }
  if (v.shifts) fused.Pointer(CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER, CUDNN_PTR_BN_Z_EQBIAS, bias);
  if (v.more) fused.Pointer(CUDNN_PARAM_ZDATA_PLACEHOLDER, CUDNN_PTR_ZDATA, z);
  if (v.activates) fused.Relu();
  std::string error = fused.Run();
  const Dense s = scale.Before(), zs = z_scale.Before(), b = bias.Before();
  Dense expected = ScaleAndShift(
      oracle::ConvFprop(Geometry(v.w_dims), x.Before(), w.Before(), {}, PrecisionOf(v)),
      v.scales ? &s : nullptr, v.shifts ? &b : nullptr);
  if (v.more)
    expected = Blended(expected, 1, 1, ScaleAndShift(z.Before(), v.scales ? &zs : nullptr, nullptr),
                       oracle::DType::kF32);
  if (v.activates) expected = Relu(expected);
  return FirstOf({error, y.Check(expected), x.CheckUnchanged(), z.CheckUnchanged()});
}

// The place of an element among those of a packed tensor of the order.
int64_t PlaceOf(const FusedCase& v, const Dims& dims, int64_t row_major) {
  if (v.order != Layout::kNhwc) return row_major;
  const int64_t places = dims[2] * dims[3], n = row_major / (dims[1] * places),
                channel = row_major / places % dims[1], at = row_major % places;
  return (n * places + at) * dims[1] + channel;
}

Dims MaskDims(const FusedCase& v) {
  const int64_t bits = v.mask == CUDNN_DATA_INT32 ? 32 : 8;
  return {oracle::Count(v.x_dims) / bits, 1, 1, 1};
}

std::string RunAdd(const FusedCase& v, const LegacyContext& c) {
  const Dims per_channel = Channels(v.x_dims[1]);
  const LegacyTensor x = c.Tensor(v.Tensor(), v.x_dims, 1), y = c.Tensor(v.Tensor(), v.x_dims, 2),
                     z = c.Tensor(v.Tensor(), v.x_dims, 3),
                     scale = c.Tensor({v.parameters}, per_channel, 4),
                     shift = c.Tensor({v.parameters}, per_channel, 5),
                     z_scale = c.Tensor({v.parameters}, per_channel, 6),
                     z_shift = c.Tensor({v.parameters}, per_channel, 7),
                     mask = c.Tensor({v.mask}, MaskDims(v), 8, "int");
  Fused fused(c, CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK);
  Mode(fused);
  fused.Descriptor(CUDNN_PARAM_XDESC, x.desc());
  fused.Descriptor(CUDNN_PARAM_YDESC, y.desc());
  fused.Descriptor(CUDNN_PARAM_ZDESC, z.desc());
  fused.Descriptor(CUDNN_PARAM_BN_EQSCALEBIAS_DESC, scale.desc());
  fused.Descriptor(CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC, z_scale.desc());
  fused.Descriptor(CUDNN_PARAM_ACTIVATION_BITMASK_DESC, mask.desc());
  fused.Pointer(CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PTR_XDATA, x);
  fused.Pointer(CUDNN_PARAM_YDATA_PLACEHOLDER, CUDNN_PTR_YDATA, y);
  if (v.scales) {
    fused.Pointer(CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER, CUDNN_PTR_BN_EQSCALE, scale);
    fused.Pointer(CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER, CUDNN_PTR_BN_Z_EQSCALE, z_scale);
  }
  if (v.shifts) {
    fused.Pointer(CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER, CUDNN_PTR_BN_EQBIAS, shift);
    fused.Pointer(CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER, CUDNN_PTR_BN_Z_EQBIAS, z_shift);
  }
  if (v.more) {
    fused.Pointer(CUDNN_PARAM_ZDATA_PLACEHOLDER, CUDNN_PTR_ZDATA, z);
    fused.Pointer(CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER, CUDNN_PTR_ACTIVATION_BITMASK, mask);
  }
  if (v.activates) fused.Relu();
  std::string error = fused.Run();
  const Dense s = scale.Before(), b = shift.Before(), zs = z_scale.Before(), zb = z_shift.Before();
  Dense expected = ScaleAndShift(x.Before(), v.scales ? &s : nullptr, v.shifts ? &b : nullptr);
  if (v.more)
    expected =
        Blended(expected, 1, 1,
                ScaleAndShift(z.Before(), v.scales ? &zs : nullptr, v.shifts ? &zb : nullptr),
                oracle::DType::kF32);
  Dense words = mask.Before();
  if (v.more) {
    const int64_t bits = v.mask == CUDNN_DATA_INT32 ? 32 : 8;
    std::vector<uint32_t> packed(words.values.size(), 0);
    for (int64_t i = 0; i < oracle::Count(v.x_dims); ++i) {
      const int64_t at = PlaceOf(v, v.x_dims, i);
      if (expected.values[static_cast<size_t>(i)].v > 0)
        packed[static_cast<size_t>(at / bits)] |= uint32_t{1} << (at % bits);
    }
    for (size_t i = 0; i < packed.size(); ++i)
      words.values[i] = {bits == 32 ? static_cast<double>(static_cast<int32_t>(packed[i]))
                                    : static_cast<double>(packed[i])};
  }
  if (v.activates) expected = Relu(expected);
  return FirstOf(
      {error, y.Check(expected), mask.Check(words), x.CheckUnchanged(), z.CheckUnchanged()});
}

std::string RunBackward(const FusedCase& v, const LegacyContext& c) {
  const Dims dims = Channels(v.x_dims[1]);
  const LegacyTensor x = c.Tensor(v.Tensor(), v.x_dims, 1), dy = c.Tensor(v.Tensor(), v.x_dims, 2),
                     dx = c.Tensor(v.Tensor(), v.x_dims, 3), dz = c.Tensor(v.Tensor(), v.x_dims, 4),
                     scale = c.Tensor({}, dims, 5), bias = c.Tensor({}, dims, 6),
                     mean = c.Tensor({}, dims, 7), inv_std = c.Tensor({}, dims, 8, "pos"),
                     dscale = c.Tensor({}, dims, 9), dbias = c.Tensor({}, dims, 10),
                     mask = c.Tensor({v.mask}, MaskDims(v), 11, "int");
  Fused fused(c, CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM);
  Mode(fused);
  fused.Descriptor(CUDNN_PARAM_XDESC, x.desc());
  fused.Descriptor(CUDNN_PARAM_DYDESC, dy.desc());
  fused.Descriptor(CUDNN_PARAM_DXDESC, dx.desc());
  fused.Descriptor(CUDNN_PARAM_DZDESC, dz.desc());
  fused.Descriptor(CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC, scale.desc());
  fused.Descriptor(CUDNN_PARAM_ACTIVATION_BITMASK_DESC, mask.desc());
  fused.Pointer(CUDNN_PARAM_XDATA_PLACEHOLDER, CUDNN_PTR_XDATA, x);
  fused.Pointer(CUDNN_PARAM_DYDATA_PLACEHOLDER, CUDNN_PTR_DYDATA, dy);
  fused.Pointer(CUDNN_PARAM_DXDATA_PLACEHOLDER, CUDNN_PTR_DXDATA, dx);
  fused.Pointer(CUDNN_PARAM_DZDATA_PLACEHOLDER, CUDNN_PTR_DZDATA, dz);
  fused.Pointer(CUDNN_PARAM_BN_SCALE_PLACEHOLDER, CUDNN_PTR_BN_SCALE, scale);
  fused.Pointer(CUDNN_PARAM_BN_BIAS_PLACEHOLDER, CUDNN_PTR_BN_BIAS, bias);
  fused.Pointer(CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER, CUDNN_PTR_BN_SAVED_MEAN, mean);
  fused.Pointer(CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER, CUDNN_PTR_BN_SAVED_INVSTD, inv_std);
  fused.Pointer(CUDNN_PARAM_BN_DSCALE_PLACEHOLDER, CUDNN_PTR_BN_DSCALE, dscale);
  fused.Pointer(CUDNN_PARAM_BN_DBIAS_PLACEHOLDER, CUDNN_PTR_BN_DBIAS, dbias);
  if (v.more)
    fused.Pointer(CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER, CUDNN_PTR_ACTIVATION_BITMASK, mask);
  if (v.activates) fused.Relu();
  fused.Scalar(CUDNN_SCALAR_DOUBLE_BN_EPSILON, kEpsilon);
  std::string error = fused.Run();
  const Dense xs = x.Before(), m = mean.Before(), inv = inv_std.Before(), s = scale.Before(),
              b = Broadcast(bias.Before(), v.x_dims), words = mask.Before();
  const Dense ms = Broadcast(m, v.x_dims), is = Broadcast(inv, v.x_dims),
              ss = Broadcast(s, v.x_dims);
  Dense passed = dy.Before();
  const int64_t bits = v.mask == CUDNN_DATA_INT32 ? 32 : 8;
  for (size_t i = 0; i < passed.values.size(); ++i) {
    const int64_t at = PlaceOf(v, v.x_dims, static_cast<int64_t>(i));
    const auto word = static_cast<int64_t>(words.values[static_cast<size_t>(at / bits)].v);
    const double y =
        (xs.values[i].v - ms.values[i].v) * is.values[i].v * ss.values[i].v + b.values[i].v;
    const bool passes = v.more ? (word >> (at % bits) & 1) != 0 : !v.activates || y > 0;
    if (!passes) passed.values[i] = {};
  }
  const oracle::NormBackwardResult r = oracle::NormBackward(
      {.x = &xs, .dy = &passed, .mean = &m, .inv_variance = &inv, .scale = &s, .weights = dims},
      oracle::DType::kF32);
  return FirstOf({error, dz.Check(passed), dx.Check(r.dx), dscale.Check(r.dscale),
                  dbias.Check(r.dbias), x.CheckUnchanged(), dy.CheckUnchanged()});
}

using Runner = std::string (*)(const FusedCase&, const LegacyContext&);

struct Operation {
  const char* name;
  Runner run;
  bool not_nvidia = true;  // 9.19 on an H200 has plans for three of the seven
};
constexpr Operation kOperations[] = {
    {"scale_bias_activation_conv_bnstats", RunConvolution},
    {"scale_bias_activation_wgrad", RunWgrad, false},
    {"bn_finalize_training",
     [](const FusedCase& v, const LegacyContext& c) { return RunFinalize(v, c, false); }, false},
    {"bn_finalize_inference",
     [](const FusedCase& v, const LegacyContext& c) { return RunFinalize(v, c, true); }, false},
    {"conv_scale_bias_add_activation", RunConvolutionAdd},
    {"scale_bias_add_activation_gen_bitmask", RunAdd},
    {"dactivation_fork_dbatchnorm", RunBackward},
};

}  // namespace

std::vector<LegacyCase> FusedCases() {
  const FusedCase variants[] = {
      {},
      {.more = false},
      {.activates = false},
      {.scales = false},
      {.shifts = false, .activates = false, .more = false},
      {.type = CUDNN_DATA_FLOAT, .order = Layout::kNchw, .parameters = CUDNN_DATA_FLOAT},
      {.type = CUDNN_DATA_BFLOAT16, .parameters = CUDNN_DATA_FLOAT},
      {.order = Layout::kNchw, .x_dims = {2, 24, 4, 5}, .w_dims = {64, 24, 1, 1}},
      {.x_dims = {1, 8, 3, 4}, .w_dims = {8, 8, 3, 3}, .misaligned = 1, .mask = CUDNN_DATA_UINT8},
      {.order = Layout::kNchw, .activates = false, .mask = CUDNN_DATA_UINT8},
  };
  std::vector<LegacyCase> cases;
  for (const Operation& operation : kOperations) {
    int number = 0;
    for (const FusedCase& v : variants) {
      const Runner run = operation.run;
      cases.push_back({std::string("fused/") + operation.name + "_" + Text(v.Tensor()) + "_" +
                           Text(v.x_dims) + "_" + std::to_string(number++),
                       [=](const LegacyContext& c) { return run(v, c); }, operation.not_nvidia});
    }
  }
  return cases;
}

}  // namespace kiln::testing
