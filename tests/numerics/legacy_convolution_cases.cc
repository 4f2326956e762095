// cudnnConvolutionForward, cudnnConvolutionBackwardData, cudnnConvolutionBackwardFilter,
// cudnnConvolutionBackwardBias and cudnnConvolutionBiasActivationForward, with what Get and Find
// say of their algorithms.
#include <algorithm>
#include <cmath>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

enum class Direction { kForward, kData, kFilter };
constexpr const char* kDirectionNames[] = {"forward", "backward_data", "backward_filter"};

struct ConvCase {
  Direction direction = Direction::kForward;
  Layout x = {}, w = {}, y = {};
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  Dims x_dims = {2, 8, 7, 9}, w_dims = {6, 8, 3, 3};
  Dims padding = {1, 1}, stride = {1, 1}, dilation = {1, 1};
  int groups = 1, algorithm = 1;
  Factors factors = {1, 0};
  bool finds = false;  // by the clock, on the call's memory
};

Dims OutputDims(const ConvCase& c) {
  return oracle::ConvOutputDims({.pre_padding = c.padding,
                                 .post_padding = c.padding,
                                 .stride = c.stride,
                                 .dilation = c.dilation},
                                c.x_dims, c.w_dims);
}

oracle::Precision PrecisionOf(const ConvCase& c) {
  if (c.compute == CUDNN_DATA_INT32) return {.compute = oracle::DType::kI32};
  if (c.compute == CUDNN_DATA_DOUBLE) return {.compute = oracle::DType::kF64};
  // f32 operands may be rounded to TF32 unless the client wants FMA.
  const bool rounds = c.x.type == CUDNN_DATA_FLOAT && c.math != CUDNN_FMA_MATH;
  return {.compute = oracle::DType::kF32, .operand_roundoff = rounds ? 0x1p-11 : 0};
}

// All that a call takes.
struct ConvObjects {
  cudnnConvolutionDescriptor_t conv;
  cudnnFilterDescriptor_t filter;
  LegacyTensor x, w, y;
};

ConvObjects MakeObjects(const ConvCase& v, const LegacyContext& c) {
  const std::string fill = v.compute == CUDNN_DATA_INT32 ? "int" : "uniform";
  ConvObjects o = {.conv = c.client.New<cudnnConvolutionDescriptor_t>("Convolution"),
                   .filter = c.client.New<cudnnFilterDescriptor_t>("Filter"),
                   .x = c.Tensor(v.x, v.x_dims, 1, fill),
                   .w = c.Tensor(v.w, v.w_dims, 2, fill),
                   .y = c.Tensor(v.y, OutputDims(v), 3, fill)};
  const std::vector<int> padding(v.padding.begin(), v.padding.end()),
      stride(v.stride.begin(), v.stride.end()), dilation(v.dilation.begin(), v.dilation.end()),
      w_dims(v.w_dims.begin(), v.w_dims.end());
  KILN_CALL(c.client, cudnnSetConvolutionNdDescriptor, o.conv, static_cast<int>(padding.size()),
            padding.data(), stride.data(), dilation.data(), v.mode, v.compute);
  KILN_CALL(c.client, cudnnSetConvolutionGroupCount, o.conv, v.groups);
  KILN_CALL(c.client, cudnnSetConvolutionMathType, o.conv, v.math);
  const cudnnTensorFormat_t format = v.w.order == Layout::kNhwc      ? CUDNN_TENSOR_NHWC
                                     : v.w.order == Layout::kVectors ? CUDNN_TENSOR_NCHW_VECT_C
                                                                     : CUDNN_TENSOR_NCHW;
  KILN_CALL(c.client, cudnnSetFilterNdDescriptor, o.filter, v.w.type, format,
            static_cast<int>(w_dims.size()), w_dims.data());
  return o;
}

// The three results structs are alike.
struct Perfs {
  std::array<cudnnConvolutionFwdAlgoPerf_t, 8> forward = {};
  std::array<cudnnConvolutionBwdDataAlgoPerf_t, 8> data = {};
  std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 8> filter = {};
};

cudnnStatus_t GetAlgorithms(const ConvCase& v, const ConvObjects& o, const LegacyContext& c,
                            int* count, Perfs& perfs) {
  switch (v.direction) {
    case Direction::kForward:
      return KILN_CALL(c.client, cudnnGetConvolutionForwardAlgorithm_v7, c.handle, o.x.desc(),
                       o.filter, o.conv, o.y.desc(), 8, count, perfs.forward.data());
    case Direction::kData:
      return KILN_CALL(c.client, cudnnGetConvolutionBackwardDataAlgorithm_v7, c.handle, o.filter,
                       o.y.desc(), o.conv, o.x.desc(), 8, count, perfs.data.data());
    default:
      return KILN_CALL(c.client, cudnnGetConvolutionBackwardFilterAlgorithm_v7, c.handle,
                       o.x.desc(), o.y.desc(), o.conv, o.filter, 8, count, perfs.filter.data());
  }
}

cudnnStatus_t FindAlgorithms(const ConvCase& v, const ConvObjects& o, const LegacyContext& c,
                             const Buffer& workspace, size_t bytes, int* count, Perfs& perfs) {
  void* const scratch = workspace.data();
  switch (v.direction) {
    case Direction::kForward:
      return KILN_CALL(c.client, cudnnFindConvolutionForwardAlgorithmEx, c.handle, o.x.desc(),
                       o.x.data(), o.filter, o.w.data(), o.conv, o.y.desc(), o.y.data(), 8, count,
                       perfs.forward.data(), scratch, bytes);
    case Direction::kData:
      return KILN_CALL(c.client, cudnnFindConvolutionBackwardDataAlgorithmEx, c.handle, o.filter,
                       o.w.data(), o.y.desc(), o.y.data(), o.conv, o.x.desc(), o.x.data(), 8, count,
                       perfs.data.data(), scratch, bytes);
    default:
      return KILN_CALL(c.client, cudnnFindConvolutionBackwardFilterAlgorithmEx, c.handle,
                       o.x.desc(), o.x.data(), o.y.desc(), o.y.data(), o.conv, o.filter, o.w.data(),
                       8, count, perfs.filter.data(), scratch, bytes);
  }
}

// Find on memory of the library's own.
cudnnStatus_t FindAlone(const ConvCase& v, const ConvObjects& o, const LegacyContext& c, int* count,
                        Perfs& perfs) {
  switch (v.direction) {
    case Direction::kForward:
      return KILN_CALL(c.client, cudnnFindConvolutionForwardAlgorithm, c.handle, o.x.desc(),
                       o.filter, o.conv, o.y.desc(), 8, count, perfs.forward.data());
    case Direction::kData:
      return KILN_CALL(c.client, cudnnFindConvolutionBackwardDataAlgorithm, c.handle, o.filter,
                       o.y.desc(), o.conv, o.x.desc(), 8, count, perfs.data.data());
    default:
      return KILN_CALL(c.client, cudnnFindConvolutionBackwardFilterAlgorithm, c.handle, o.x.desc(),
                       o.y.desc(), o.conv, o.filter, 8, count, perfs.filter.data());
  }
}

// A sentence where the answers do not hold together. NVIDIA's have other algorithms.
template <class P>
std::string CheckAlgorithms(std::span<const P> perfs, int count, bool measured) {
  if (count < 2) return "fewer than two algorithms";
  int good = 0;
  double last = 0;
  for (int i = 0; i < count; ++i) {
    const P& perf = perfs[static_cast<size_t>(i)];
    if (perf.status != CUDNN_STATUS_SUCCESS) continue;
    if (++good != i + 1) return "an algorithm that does not serve stands before one that does";
    if (measured && !(perf.time > 0 && perf.time >= last)) return "times are not in order";
    last = perf.time;
  }
  return good == 0 ? "no algorithm serves" : "";
}

std::string CheckAll(const ConvCase& v, const Perfs& perfs, int count, bool measured) {
  switch (v.direction) {
    case Direction::kForward:
      return CheckAlgorithms<cudnnConvolutionFwdAlgoPerf_t>(perfs.forward, count, measured);
    case Direction::kData:
      return CheckAlgorithms<cudnnConvolutionBwdDataAlgoPerf_t>(perfs.data, count, measured);
    default:
      return CheckAlgorithms<cudnnConvolutionBwdFilterAlgoPerf_t>(perfs.filter, count, measured);
  }
}

cudnnStatus_t WorkspaceOf(const ConvCase& v, const ConvObjects& o, const LegacyContext& c,
                          size_t* bytes) {
  switch (v.direction) {
    case Direction::kForward:
      return KILN_CALL(c.client, cudnnGetConvolutionForwardWorkspaceSize, c.handle, o.x.desc(),
                       o.filter, o.conv, o.y.desc(),
                       static_cast<cudnnConvolutionFwdAlgo_t>(v.algorithm), bytes);
    case Direction::kData:
      return KILN_CALL(c.client, cudnnGetConvolutionBackwardDataWorkspaceSize, c.handle, o.filter,
                       o.y.desc(), o.conv, o.x.desc(),
                       static_cast<cudnnConvolutionBwdDataAlgo_t>(v.algorithm), bytes);
    default:
      return KILN_CALL(c.client, cudnnGetConvolutionBackwardFilterWorkspaceSize, c.handle,
                       o.x.desc(), o.y.desc(), o.conv, o.filter,
                       static_cast<cudnnConvolutionBwdFilterAlgo_t>(v.algorithm), bytes);
  }
}

cudnnStatus_t Convolve(const ConvCase& v, const ConvObjects& o, const LegacyContext& c,
                       void* workspace, size_t bytes) {
  const Layout& result = v.direction == Direction::kForward ? v.y
                         : v.direction == Direction::kData  ? v.x
                                                            : v.w;
  const Factor alpha(v.factors.alpha, result.type), beta(v.factors.beta, result.type);
  switch (v.direction) {
    case Direction::kForward:
      return KILN_CALL(c.client, cudnnConvolutionForward, c.handle, alpha.get(), o.x.desc(),
                       o.x.data(), o.filter, o.w.data(), o.conv,
                       static_cast<cudnnConvolutionFwdAlgo_t>(v.algorithm), workspace, bytes,
                       beta.get(), o.y.desc(), o.y.data());
    case Direction::kData:
      return KILN_CALL(c.client, cudnnConvolutionBackwardData, c.handle, alpha.get(), o.filter,
                       o.w.data(), o.y.desc(), o.y.data(), o.conv,
                       static_cast<cudnnConvolutionBwdDataAlgo_t>(v.algorithm), workspace, bytes,
                       beta.get(), o.x.desc(), o.x.data());
    default:
      return KILN_CALL(c.client, cudnnConvolutionBackwardFilter, c.handle, alpha.get(), o.x.desc(),
                       o.x.data(), o.y.desc(), o.y.data(), o.conv,
                       static_cast<cudnnConvolutionBwdFilterAlgo_t>(v.algorithm), workspace, bytes,
                       beta.get(), o.filter, o.w.data());
  }
}

oracle::ConvGeometry GeometryOf(const ConvCase& v) {
  return {.pre_padding = v.padding,
          .post_padding = v.padding,
          .stride = v.stride,
          .dilation = v.dilation,
          .flip = v.mode == CUDNN_CONVOLUTION};
}

Dense Expected(const ConvCase& v, const ConvObjects& o) {
  const oracle::ConvGeometry geometry = GeometryOf(v);
  const oracle::Precision precision = PrecisionOf(v);
  switch (v.direction) {
    case Direction::kForward:
      return Blended(oracle::ConvFprop(geometry, o.x.Before(), o.w.Before(), {}, precision),
                     v.factors.alpha, v.factors.beta, o.y.Before(), FactorType(v.y.type));
    case Direction::kData:
      return Blended(
          oracle::ConvDgrad(geometry, o.y.Before(), o.w.Before(), v.x_dims, {}, precision),
          v.factors.alpha, v.factors.beta, o.x.Before(), FactorType(v.x.type));
    default:
      return Blended(
          oracle::ConvWgrad(geometry, o.x.Before(), o.y.Before(), v.w_dims, {}, precision),
          v.factors.alpha, v.factors.beta, o.w.Before(), FactorType(v.w.type));
  }
}

std::string RunConv(const ConvCase& v, const LegacyContext& c) {
  const ConvObjects o = MakeObjects(v, c);
  int count = 0;
  Perfs perfs;
  if (std::string error = c.Done(GetAlgorithms(v, o, c, &count, perfs)); !error.empty())
    return "Get: " + error;
  if (std::string error = CheckAll(v, perfs, count, false); !error.empty()) return "Get: " + error;
  size_t bytes = 0;
  if (std::string error = c.Done(WorkspaceOf(v, o, c, &bytes)); !error.empty())
    return "workspace: " + error;
  const Buffer workspace(c.device, bytes);
  void* const scratch = bytes == 0 ? nullptr : workspace.data();
  const LegacyTensor& result = v.direction == Direction::kForward ? o.y
                               : v.direction == Direction::kData  ? o.x
                                                                  : o.w;
  std::string error =
      FirstOf({c.Done(Convolve(v, o, c, scratch, bytes)), result.Check(Expected(v, o))});
  for (const LegacyTensor* t : {&o.x, &o.w, &o.y}) {
    if (error.empty() && t != &result) error = t->CheckUnchanged();
  }
  if (!v.finds) return error;
  std::string found = c.Done(FindAlgorithms(v, o, c, workspace, bytes, &count, perfs));
  if (found.empty()) found = CheckAll(v, perfs, count, true);
  if (std::string alone = c.Done(FindAlone(v, o, c, &count, perfs)); found.empty())
    found = alone.empty() ? CheckAll(v, perfs, count, true) : alone;
  return FirstOf({error, found.empty() ? found : "Find: " + found});
}

LegacyCase Conv(const ConvCase& v, bool not_nvidia = false) {
  std::string name = std::string("conv_") + kDirectionNames[static_cast<int>(v.direction)] + "/" +
                     Text(v.x) + "_" + Text(v.w) + "_" + Text(v.y) + "_" + Text(v.x_dims) + "_" +
                     Text(v.w_dims) + "_p" + Text(v.padding) + "_s" + Text(v.stride) + "_d" +
                     Text(v.dilation) + "_g" + std::to_string(v.groups) + "_algo" +
                     std::to_string(v.algorithm) + "_" + Text(v.factors);
  if (v.mode == CUDNN_CONVOLUTION) name += "_flip";
  if (v.math != CUDNN_DEFAULT_MATH) name += "_math" + std::to_string(v.math);
  return {name, [=](const LegacyContext& c) { return RunConv(v, c); }, not_nvidia};
}

// WINOGRAD_NONFUSED of a problem that its engines take, on a GPU.
LegacyCase Winograd(ConvCase v) {
  constexpr int kAlgorithms[] = {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
                                 CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
                                 CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED};
  v.algorithm = kAlgorithms[static_cast<int>(v.direction)];
  v.x_dims = {4, 32, 7, 9};
  v.w_dims = {24, 32, 3, 3};
  return Conv(v);
}

// ---- with bias and activation

struct BiasCase {
  ConvCase conv;
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_RELU;
  double alpha1 = 1, alpha2 = 0;
  bool z_is_y = false;
  bool reordered = false;  // filter and bias, before the call
};

std::string RunBias(const BiasCase& b, const LegacyContext& c) {
  const ConvCase& v = b.conv;
  const ConvObjects o = MakeObjects(v, c);
  const bool integers = v.compute == CUDNN_DATA_INT32;
  const Dims y_dims = OutputDims(v);
  Dims bias_dims(y_dims.size(), 1);
  bias_dims[1] = y_dims[1];
  const LegacyTensor own = c.Tensor(v.y, y_dims, 4, integers ? "int" : "uniform"),
                     bias = c.Tensor({integers ? CUDNN_DATA_FLOAT : v.y.type}, bias_dims, 5);
  const LegacyTensor& z = b.z_is_y ? o.y : own;
  auto activation = c.client.New<cudnnActivationDescriptor_t>("Activation");
  KILN_CALL(c.client, cudnnSetActivationDescriptor, activation, b.mode, CUDNN_NOT_PROPAGATE_NAN,
            0.0);
  size_t bytes = 0;
  WorkspaceOf(v, o, c, &bytes);
  bytes += size_t{1} << 20;
  const Buffer workspace(c.device, bytes);
  const Factor alpha1(b.alpha1, v.y.type), alpha2(b.alpha2, v.y.type);
  const Buffer fragments(c.device, static_cast<size_t>(oracle::Count(v.w_dims))),
      bias_fragments(c.device, static_cast<size_t>(4 * y_dims[1]));
  void *w_data = o.w.data(), *bias_data = bias.data();
  if (b.reordered) {
    KILN_CALL(c.client, cudnnSetConvolutionReorderType, o.conv, CUDNN_NO_REORDER);
    const cudnnStatus_t status =
        KILN_CALL(c.client, cudnnReorderFilterAndBias, c.handle, o.filter, CUDNN_DEFAULT_REORDER,
                  w_data, static_cast<void*>(fragments.data()), 1, bias_data,
                  static_cast<void*>(bias_fragments.data()));
    if (std::string error = c.Done(status); !error.empty()) return "reordering: " + error;
    w_data = fragments.data();
    bias_data = bias_fragments.data();
  }
  const cudnnStatus_t status = KILN_CALL(
      c.client, cudnnConvolutionBiasActivationForward, c.handle, alpha1.get(), o.x.desc(),
      o.x.data(), o.filter, w_data, o.conv, static_cast<cudnnConvolutionFwdAlgo_t>(v.algorithm),
      static_cast<void*>(workspace.data()), bytes, alpha2.get(), z.desc(), z.data(), bias.desc(),
      bias_data, activation, o.y.desc(), o.y.data());
  const oracle::DType factor = FactorType(v.y.type);
  Dense expected =
      Blended(oracle::ConvFprop(GeometryOf(v), o.x.Before(), o.w.Before(), {}, PrecisionOf(v)),
              b.alpha1, b.alpha2, z.Before(), factor);
  expected = Blended(expected, 1, 1, Broadcast(bias.Before(), y_dims), factor);
  if (b.mode == CUDNN_ACTIVATION_RELU) {
    for (oracle::Value& value : expected.values) value.v = std::max(value.v, 0.0);
  }
  return FirstOf({c.Done(status), o.y.Check(expected), o.x.CheckUnchanged(), o.w.CheckUnchanged(),
                  bias.CheckUnchanged()});
}

LegacyCase Bias(const BiasCase& b) {
  const LegacyCase conv = Conv(b.conv);
  return {"conv_bias_activation/" + conv.name + "_mode" + std::to_string(b.mode) + "_" +
              std::to_string(b.alpha1).substr(0, 4) + "_" + std::to_string(b.alpha2).substr(0, 4) +
              (b.z_is_y ? "_in_place" : "") + (b.reordered ? "_reordered" : ""),
          [=](const LegacyContext& c) { return RunBias(b, c); }};
}

LegacyCase BackwardBias(const Layout& layout, const Dims& dims, const Factors& f) {
  return {"conv_backward_bias/" + Text(layout) + "_" + Text(dims) + "_" + Text(f),
          [=](const LegacyContext& c) -> std::string {
            Dims bias(dims.size(), 1);
            bias[1] = dims[1];
            const LegacyTensor dy = c.Tensor(layout, dims, 1),
                               db = c.Tensor({layout.type}, bias, 2);
            const Factor alpha(f.alpha, layout.type), beta(f.beta, layout.type);
            const cudnnStatus_t status =
                KILN_CALL(c.client, cudnnConvolutionBackwardBias, c.handle, alpha.get(), dy.desc(),
                          dy.data(), beta.get(), db.desc(), db.data());
            const oracle::DType compute = FactorType(layout.type);
            const Dense sum = oracle::Reduction(oracle::Reduce::kAdd, dy.Before(), bias, compute);
            return FirstOf({c.Done(status),
                            db.Check(Blended(sum, f.alpha, f.beta, db.Before(), compute)),
                            dy.CheckUnchanged()});
          }};
}

void AddFloating(std::vector<LegacyCase>& cases, Direction direction) {
  const auto of = [&](ConvCase v) {
    v.direction = direction;
    cases.push_back(Conv(v));
  };
  const Layout f16 = {CUDNN_DATA_HALF}, f64 = {CUDNN_DATA_DOUBLE},
               bf16 = {CUDNN_DATA_BFLOAT16, Layout::kNhwc}, h16 = {CUDNN_DATA_HALF, Layout::kNhwc},
               nhwc = {CUDNN_DATA_FLOAT, Layout::kNhwc};
  for (const int algorithm : {0, 1}) of({.algorithm = algorithm, .finds = true});
  // Names of methods: GEMM (the filter's 3), FFT, FFT_TILING, WINOGRAD_NONFUSED.
  const std::vector<int> named =
      direction == Direction::kForward ? std::vector{2, 4, 5, 7} : std::vector{2, 3, 5};
  for (const int algorithm : named) of({.algorithm = algorithm});
  if (direction == Direction::kFilter)
    of({.x_dims = {2, 4, 1, 20}, .w_dims = {6, 4, 1, 3}, .padding = {0, 1}, .algorithm = 6});
  of({.math = CUDNN_FMA_MATH});
  for (const cudnnMathType_t math : {CUDNN_DEFAULT_MATH, CUDNN_FMA_MATH})
    cases.push_back(Winograd({.direction = direction, .math = math}));
  of({.stride = {2, 1}, .dilation = {1, 2}, .factors = {-2, 0.25}});
  of({.mode = CUDNN_CONVOLUTION, .padding = {0, 2}});
  of({.w_dims = {6, 4, 3, 3}, .groups = 2});
  of({.w_dims = {8, 1, 3, 3}, .stride = {2, 2}, .groups = 8, .algorithm = 0});
  of({.x = nhwc, .w = nhwc, .y = nhwc});
  of({.x = f16, .w = f16, .y = f16, .compute = CUDNN_DATA_HALF});
  of({.x = f16, .w = f16, .y = f16, .math = CUDNN_TENSOR_OP_MATH, .factors = {1, 1}});
  of({.x = h16,
      .w = h16,
      .y = h16,
      .math = CUDNN_TENSOR_OP_MATH,
      .x_dims = {2, 16, 7, 9},
      .w_dims = {24, 16, 3, 3}});
  of({.x = bf16,
      .w = bf16,
      .y = bf16,
      .x_dims = {2, 16, 7, 9},
      .w_dims = {24, 16, 1, 1},
      .padding = {0, 0},
      .algorithm = 0});
  of({.x = f64, .w = f64, .y = f64, .compute = CUDNN_DATA_DOUBLE, .factors = {0.5, 0}});
  of({.x_dims = {2, 4, 5, 6, 7},
      .w_dims = {6, 4, 3, 1, 3},
      .padding = {1, 0, 1},
      .stride = {1, 2, 1},
      .dilation = {1, 1, 1}});
}

void AddIntegers(std::vector<LegacyCase>& cases) {
  const Layout i8 = {CUDNN_DATA_INT8, Layout::kNhwc}, u8 = {CUDNN_DATA_UINT8, Layout::kNhwc},
               f32 = {CUDNN_DATA_FLOAT, Layout::kNhwc},
               i8x4 = {CUDNN_DATA_INT8x4, Layout::kVectors},
               i8x32 = {CUDNN_DATA_INT8x32, Layout::kVectors};
  const auto add = [&](const Layout& x, const Layout& w, const Layout& y, int64_t channels,
                       int64_t filters) {
    for (const int algorithm : {0, 1})
      cases.push_back(Conv({.x = x,
                            .w = w,
                            .y = y,
                            .compute = CUDNN_DATA_INT32,
                            .x_dims = {2, channels, 5, 6},
                            .w_dims = {filters, channels, 3, 3},
                            .algorithm = algorithm,
                            .factors = {0.125, 0}}));
  };
  add(i8, i8, i8, 8, 12);
  add(i8, i8, f32, 8, 6);
  add(u8, i8, i8, 8, 12);
  add(i8x4, i8x4, i8x4, 8, 12);
  add(i8x4, i8x4, {CUDNN_DATA_FLOAT}, 8, 12);
  add(i8x32, i8x32, i8x32, 64, 32);
}

}  // namespace

std::vector<LegacyCase> ConvolutionCases() {
  std::vector<LegacyCase> cases;
  for (const Direction direction : {Direction::kForward, Direction::kData, Direction::kFilter})
    AddFloating(cases, direction);
  AddIntegers(cases);
  const Layout h16 = {CUDNN_DATA_HALF, Layout::kNhwc}, i8 = {CUDNN_DATA_INT8, Layout::kNhwc};
  cases.push_back(Bias({}));
  cases.push_back(Bias({.mode = CUDNN_ACTIVATION_IDENTITY, .alpha1 = 0.5, .alpha2 = 2}));
  cases.push_back(Bias({.alpha2 = 1, .z_is_y = true}));
  cases.push_back(Bias(
      {.conv = {.algorithm = CUDNN_CONVOLUTION_FWD_ALGO_FFT}, .mode = CUDNN_ACTIVATION_IDENTITY}));
  cases.push_back(Bias(
      {.conv = {.x = h16, .w = h16, .y = h16, .x_dims = {2, 16, 7, 9}, .w_dims = {24, 16, 3, 3}},
       .alpha2 = 1}));
  cases.push_back(Bias(
      {.conv = {.x = i8, .w = i8, .y = i8, .compute = CUDNN_DATA_INT32, .w_dims = {12, 8, 3, 3}},
       .alpha1 = 0.125,
       .alpha2 = 0.5}));
  const Layout i8x32 = {CUDNN_DATA_INT8x32, Layout::kVectors};
  for (const bool reordered : {false, true}) {
    cases.push_back(Bias({.conv = {.x = i8x32,
                                   .w = i8x32,
                                   .y = i8x32,
                                   .compute = CUDNN_DATA_INT32,
                                   .x_dims = {2, 64, 5, 6},
                                   .w_dims = {96, 64, 3, 3}},
                          .alpha1 = 0.125,
                          .reordered = reordered}));
  }
  for (const Factors& f : kFactors) cases.push_back(BackwardBias({}, {2, 5, 7, 9}, f));
  cases.push_back(BackwardBias({CUDNN_DATA_HALF, Layout::kNhwc}, {2, 5, 7, 9}, {1, 0}));
  cases.push_back(BackwardBias({CUDNN_DATA_DOUBLE}, {2, 5, 3, 4, 5}, {1, 1}));
  return cases;
}

}  // namespace kiln::testing
