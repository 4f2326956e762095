// A convolution and its two gradients in every layout that the legacy interface has: NCHW, NHWC,
// int8 in vectors of four channels, and a strided gradient folded into one of stride 1.
//
//   convolutions [CHANNELS SIDE FILTERS TAPS PADDING STRIDE]    16 9 8 3 1 2 where left out
//
// Every result is compared with plain loops, each computed on top of poisoned memory and, by beta,
// on top of values.
#include <algorithm>
#include <memory>

#include "example.h"

namespace {

using namespace example;

constexpr int kImages = 2;
constexpr double kTolerance = 1e-5;  // of the sum of magnitudes that make up an f32 value
constexpr float kOne = 1, kZero = 0;

struct Problem {
  int channels = 16, side = 9, filters = 8, taps = 3, padding = 1, stride = 2;
  Shape x() const { return {kImages, channels, side, side}; }
  Shape w() const { return {filters, channels, taps, taps}; }
  Shape y() const {
    const int out = (side + 2 * padding - taps) / stride + 1;
    return {kImages, filters, out, out};
  }
};

using TensorDescriptor =
    Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using TransformDescriptor =
    Descriptor<cudnnTensorTransformDescriptor_t, cudnnCreateTensorTransformDescriptor,
               cudnnDestroyTensorTransformDescriptor>;

// The place of an element in a dense tensor.
size_t Place(cudnnTensorFormat_t format, const Shape& t, int n, int c, int h, int w) {
  if (format == CUDNN_TENSOR_NHWC) return ((size_t(n) * t.h + h) * t.w + w) * t.c + c;
  if (format == CUDNN_TENSOR_NCHW) return ((size_t(n) * t.c + c) * t.h + h) * t.w + w;
  return (((size_t(n) * (t.c / 4) + c / 4) * t.h + h) * t.w + w) * 4 + c % 4;  // NCHW_VECT_C
}

// A value of plain loops, and the sum of the magnitudes in it.
struct Expected {
  double value = 0, magnitude = 0;
};

// Calls visit(x's place, w's place, y's place) for each product of the convolution.
template <class Visit>
void ForEachProduct(const Problem& p, cudnnTensorFormat_t format, const Visit& visit) {
  const Shape x = p.x(), w = p.w(), y = p.y();
  for (int n = 0; n < y.n; ++n) {
    for (int k = 0; k < y.c; ++k) {
      for (int out = 0; out < y.h * y.w; ++out) {
        for (int i = 0; i < w.c * w.h * w.w; ++i) {
          const int c = i / (w.h * w.w), r = i / w.w % w.h, s = i % w.w;
          const int h = out / y.w * p.stride - p.padding + r,
                    column = out % y.w * p.stride - p.padding + s;
          if (h < 0 || h >= x.h || column < 0 || column >= x.w) continue;
          visit(Place(format, x, n, c, h, column), Place(format, w, k, c, r, s),
                Place(format, y, n, k, out / y.w, out % y.w));
        }
      }
    }
  }
}

template <class T>
void Compare(const std::string& what, const std::vector<T>& actual,
             const std::vector<Expected>& expected, double tolerance) {
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!(std::abs(double(actual[i]) - expected[i].value) <= tolerance * expected[i].magnitude))
      Fail(what + " is wrong at place " + std::to_string(i) + ": " + std::to_string(actual[i]) +
           " in place of " + std::to_string(expected[i].value));
  }
  std::printf("  %-36s right at %zu places\n", what.c_str(), actual.size());
}

// The three operands in one layout, with descriptors, and their f32 values.
class Convolution {
 public:
  Convolution(const Device& device, cudnnHandle_t handle, const Problem& problem,
              cudnnTensorFormat_t format, Random& random)
      : handle_(handle),
        problem_(problem),
        format_(format),
        x_values_(random.Normals(problem.x().size(), 1)),
        w_values_(random.Normals(problem.w().size(), 1)),
        y_values_(random.Normals(problem.y().size(), 1)),
        x_(device, x_values_),
        w_(device, w_values_),
        y_(device, y_values_),
        device_(device),
        workspace_(device) {
    const Shape x = problem.x(), w = problem.w(), y = problem.y();
    CHECK(cudnnSetTensor4dDescriptor(x_desc_, format, CUDNN_DATA_FLOAT, x.n, x.c, x.h, x.w));
    CHECK(cudnnSetTensor4dDescriptor(y_desc_, format, CUDNN_DATA_FLOAT, y.n, y.c, y.h, y.w));
    CHECK(cudnnSetFilter4dDescriptor(w_desc_, CUDNN_DATA_FLOAT, format, w.n, w.c, w.h, w.w));
    CHECK(cudnnSetConvolution2dDescriptor(conv_, problem.padding, problem.padding, problem.stride,
                                          problem.stride, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    CHECK(cudnnSetConvolutionMathType(conv_, CUDNN_FMA_MATH));
  }

  // y = conv(x, w) + y
  void Forward() {
    std::vector<Expected> sums = Start(y_values_);
    ForEachProduct(problem_, format_, [&](size_t x, size_t w, size_t y) {
      Add(sums[y], double(x_values_[x]) * w_values_[w]);
    });
    cudnnConvolutionFwdAlgoPerf_t best;
    int found = 0;
    CHECK(cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_desc_, w_desc_, conv_, y_desc_, 1,
                                                 &found, &best));
    workspace_.Grow(best.memory);
    Array<float> y(device_, y_values_);
    CHECK(cudnnConvolutionForward(handle_, &kOne, x_desc_, x_.data(), w_desc_, w_.data(), conv_,
                                  best.algo, workspace_.data(), best.memory, &kOne, y_desc_,
                                  y.data()));
    Compare("forward", y.Get(), sums, kTolerance);
  }

  // dw, written over NaN
  void BackwardFilter() {
    std::vector<Expected> sums(w_values_.size());
    ForEachProduct(problem_, format_, [&](size_t x, size_t w, size_t y) {
      Add(sums[w], double(x_values_[x]) * y_values_[y]);
    });
    cudnnConvolutionBwdFilterAlgoPerf_t best;
    int found = 0;
    CHECK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle_, x_desc_, y_desc_, conv_, w_desc_,
                                                        1, &found, &best));
    workspace_.Grow(best.memory);
    Array<float> dw(device_, std::vector<float>(w_values_.size(), NAN));
    CHECK(cudnnConvolutionBackwardFilter(handle_, &kOne, x_desc_, x_.data(), y_desc_, y_.data(),
                                         conv_, best.algo, workspace_.data(), best.memory, &kZero,
                                         w_desc_, dw.data()));
    Compare("gradient by the filter", dw.Get(), sums, kTolerance);
  }

  // dx, written over NaN
  void BackwardData() {
    Array<float> dx(device_, std::vector<float>(x_values_.size(), NAN));
    BackwardData(w_desc_, w_.data(), y_desc_, y_.data(), conv_, x_desc_, dx.data());
    Compare("gradient by the data", dx.Get(), GradientByData(), kTolerance);
  }

  // dx of a strided convolution as that of one of stride 1 with stride x stride times the channels.
  void FoldedBackwardData() {
    FilterDescriptor folded_w;
    TensorDescriptor padded_dy, folded_dx;
    ConvolutionDescriptor folded_conv;
    TransformDescriptor fold_w, pad_dy, fold_dx, unfold_dx;
    CHECK(cudnnGetFoldedConvBackwardDataDescriptors(
        handle_, w_desc_, y_desc_, conv_, x_desc_, CUDNN_TENSOR_NHWC, folded_w, padded_dy,
        folded_conv, folded_dx, fold_w, pad_dy, fold_dx, unfold_dx));
    size_t w_bytes = 0, dy_bytes = 0, dx_bytes = 0;
    CHECK(cudnnGetFilterSizeInBytes(folded_w, &w_bytes));
    CHECK(cudnnGetTensorSizeInBytes(padded_dy, &dy_bytes));
    CHECK(cudnnGetTensorSizeInBytes(folded_dx, &dx_bytes));
    const Array<uint8_t> w(device_, w_bytes), dy(device_, dy_bytes), dx(device_, dx_bytes);
    CHECK(cudnnTransformFilter(handle_, fold_w, &kOne, w_desc_, w_.data(), &kZero, folded_w,
                               w.data()));
    CHECK(cudnnTransformTensorEx(handle_, pad_dy, &kOne, y_desc_, y_.data(), &kZero, padded_dy,
                                 dy.data()));
    BackwardData(folded_w, w.data(), padded_dy, dy.data(), folded_conv, folded_dx, dx.data());
    Array<float> unfolded(device_, std::vector<float>(x_values_.size(), NAN));
    CHECK(cudnnTransformTensorEx(handle_, unfold_dx, &kOne, folded_dx, dx.data(), &kZero, x_desc_,
                                 unfolded.data()));
    Compare("gradient by the data, folded", unfolded.Get(), GradientByData(), kTolerance);
  }

 private:
  static void Add(Expected& sum, double term) {
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  static std::vector<Expected> Start(const std::vector<float>& values) {
    std::vector<Expected> sums;
    for (const float value : values) sums.push_back({value, std::abs(value)});
    return sums;
  }
  std::vector<Expected> GradientByData() const {
    std::vector<Expected> sums(x_values_.size());
    ForEachProduct(problem_, format_, [&](size_t x, size_t w, size_t y) {
      Add(sums[x], double(w_values_[w]) * y_values_[y]);
    });
    return sums;
  }
  void BackwardData(cudnnFilterDescriptor_t w_desc, const void* w, cudnnTensorDescriptor_t dy_desc,
                    const void* dy, cudnnConvolutionDescriptor_t conv,
                    cudnnTensorDescriptor_t dx_desc, void* dx) {
    cudnnConvolutionBwdDataAlgoPerf_t best;
    int found = 0;
    CHECK(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle_, w_desc, dy_desc, conv, dx_desc, 1,
                                                      &found, &best));
    workspace_.Grow(best.memory);
    CHECK(cudnnConvolutionBackwardData(handle_, &kOne, w_desc, w, dy_desc, dy, conv, best.algo,
                                       workspace_.data(), best.memory, &kZero, dx_desc, dx));
  }

  cudnnHandle_t handle_;
  Problem problem_;
  cudnnTensorFormat_t format_;
  std::vector<float> x_values_, w_values_, y_values_;
  Array<float> x_, w_, y_;
  const Device& device_;
  Workspace workspace_;
  TensorDescriptor x_desc_, y_desc_;
  FilterDescriptor w_desc_;
  ConvolutionDescriptor conv_;
};

// y = x * w in whole numbers, four channels of int8 beside each other; sums saturate to int8.
void Int8x4(const Device& device, cudnnHandle_t handle, const Problem& p, Random& random) {
  constexpr cudnnTensorFormat_t kFormat = CUDNN_TENSOR_NCHW_VECT_C;
  const Shape x = p.x(), w = p.w(), y = p.y();
  std::vector<int8_t> xs(x.size()), ws(w.size());
  for (auto* values : {&xs, &ws}) {
    for (int8_t& value : *values) value = int8_t(random.Below(7) - 3);
  }
  std::vector<Expected> sums(y.size());
  ForEachProduct(p, kFormat,
                 [&](size_t xi, size_t wi, size_t yi) { sums[yi].value += xs[xi] * ws[wi]; });
  for (Expected& sum : sums) sum.value = std::clamp(sum.value, -128.0, 127.0);

  TensorDescriptor x_desc, y_desc;
  FilterDescriptor w_desc;
  ConvolutionDescriptor conv;
  CHECK(cudnnSetTensor4dDescriptor(x_desc, kFormat, CUDNN_DATA_INT8x4, x.n, x.c, x.h, x.w));
  CHECK(cudnnSetTensor4dDescriptor(y_desc, kFormat, CUDNN_DATA_INT8x4, y.n, y.c, y.h, y.w));
  CHECK(cudnnSetFilter4dDescriptor(w_desc, CUDNN_DATA_INT8x4, kFormat, w.n, w.c, w.h, w.w));
  CHECK(cudnnSetConvolution2dDescriptor(conv, p.padding, p.padding, p.stride, p.stride, 1, 1,
                                        CUDNN_CROSS_CORRELATION, CUDNN_DATA_INT32));
  const Array<int8_t> x_data(device, xs), w_data(device, ws),
      y_data(device, std::vector<int8_t>(y.size(), 99));
  size_t bytes = 0;
  CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, conv, y_desc,
                                                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                                &bytes));
  Workspace workspace(device);
  workspace.Grow(bytes);
  CHECK(cudnnConvolutionForward(handle, &kOne, x_desc, x_data.data(), w_desc, w_data.data(), conv,
                                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace.data(),
                                bytes, &kZero, y_desc, y_data.data()));
  Compare("forward", y_data.Get(), sums, 0);
}

}  // namespace

int main(int argc, char** argv) {
  Problem problem;
  int* const numbers[] = {&problem.channels, &problem.side,    &problem.filters,
                          &problem.taps,     &problem.padding, &problem.stride};
  for (int i = 1; i < argc && i <= int(std::size(numbers)); ++i)
    *numbers[i - 1] = std::atoi(argv[i]);
  if (problem.channels < 1 || problem.filters < 1 || problem.taps < 1 || problem.padding < 0 ||
      problem.stride < 1 || problem.side + 2 * problem.padding < problem.taps)
    Fail(
        "usage: convolutions [CHANNELS SIDE FILTERS TAPS PADDING STRIDE]; the filter fits into the "
        "padded image");
  const Device device;
  const Handle handle;
  std::printf("%d channels of %d x %d, %d filters of %d x %d, padding %d, stride %d, on %s\n",
              problem.channels, problem.side, problem.side, problem.filters, problem.taps,
              problem.taps, problem.padding, problem.stride, device.name().c_str());
  Random random(3);
  for (const cudnnTensorFormat_t format : {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC}) {
    std::printf("%s, f32\n", format == CUDNN_TENSOR_NCHW ? "NCHW" : "NHWC");
    Convolution convolution(device, handle, problem, format, random);
    convolution.Forward();
    convolution.BackwardFilter();
    convolution.BackwardData();
    if (problem.stride > 1) convolution.FoldedBackwardData();
  }
  if (problem.channels % 4 == 0 && problem.filters % 4 == 0) {
    std::printf("NCHW_VECT_C, int8 in fours\n");
    Int8x4(device, handle, problem, random);
  }
  std::printf("test passed\n");
  return 0;
}
