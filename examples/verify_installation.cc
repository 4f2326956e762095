// A LeNet that answers in f32 and in f16, convolved by every algorithm that the library names: the
// calls by which cuDNN's users verify an installation.
//
//   verify_installation      succeeds if each algorithm that is listed computes what plain loops do
//
// Each convolution asks how many algorithms there are, what the heuristics and a measurement say of
// them, and then runs each one with the workspace that was announced for it.
#include <algorithm>
#include <memory>

#include "example.h"

namespace {

using namespace example;

constexpr int kSide = 28;
constexpr float kZero = 0, kOne = 1;  // y = alpha * result + beta * y
constexpr unsigned kLrnWidth = 5;
constexpr double kLrnAlpha = 0.0001, kLrnBeta = 0.75, kLrnK = 1;

// An f32 number as the nearest f16, ties to even.
uint16_t HalfOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) return uint16_t(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
  if (magnitude < 0x38800000)  // a multiple of 2^-24
    return uint16_t(sign | uint32_t(std::nearbyint(std::fabs(value) * 0x1p24f)));
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | (rounded - 0x38000000) >> 13);
}

float FloatOf(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const float mantissa = float(half & 0x3ff);
  const float magnitude = exponent == 0    ? mantissa * 0x1p-24f
                          : exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                           : std::ldexp(1024 + mantissa, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

// The element type of the network, with the tolerance of its results: a step of the type, and what
// transforms of tiles (Winograd, FFT) lose.
struct Type {
  cudnnDataType_t id;
  const char* name;
  size_t bytes;
  double tolerance;
};
constexpr Type kFloat = {CUDNN_DATA_FLOAT, "f32", 4, 1e-4};
constexpr Type kHalf = {CUDNN_DATA_HALF, "f16", 2, 4e-3};

// A dense NCHW tensor of either type; its values are f32 numbers on the host.
class Blob {
 public:
  Blob(const Device& device, const Type& type, Shape shape)
      : type_(type), shape_(shape), bytes_(device, shape.size() * type.bytes) {
    CHECK(cudnnSetTensor4dDescriptor(desc_, CUDNN_TENSOR_NCHW, type.id, shape.n, shape.c, shape.h,
                                     shape.w));
  }
  cudnnTensorDescriptor_t desc() const { return desc_; }
  void* data() const { return bytes_.data(); }
  const Shape& shape() const { return shape_; }

  void Set(const std::vector<float>& values) {
    std::vector<uint8_t> raw(bytes_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t half = HalfOf(values[i]);
      const void* from = type_.bytes == 2 ? static_cast<const void*>(&half) : &values[i];
      std::memcpy(&raw[i * type_.bytes], from, type_.bytes);
    }
    bytes_.Set(raw);
  }
  std::vector<float> Get() const {
    const std::vector<uint8_t> raw = bytes_.Get();
    std::vector<float> values(shape_.size());
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, &raw[i * type_.bytes], sizeof(half));
      if (type_.bytes == 2) {
        values[i] = FloatOf(half);
      } else {
        std::memcpy(&values[i], &raw[i * type_.bytes], sizeof(float));
      }
    }
    return values;
  }
  // A pattern that no result is: a call that writes nothing is found.
  void Poison() { bytes_.Set(std::vector<uint8_t>(bytes_.size(), 0xff)); }

 private:
  Type type_;
  Shape shape_;
  Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>
      desc_;
  Array<uint8_t> bytes_;
};

// A value of plain loops, with the sum of the magnitudes in it, by which rounding is judged.
struct Expected {
  double value = 0, magnitude = 0;
};

void Compare(const std::string& step, const Type& type, const Blob& y,
             const std::vector<Expected>& expected) {
  const std::vector<float> actual = y.Get();
  for (size_t i = 0; i < actual.size(); ++i) {
    const double allowed = type.tolerance * std::max(expected[i].magnitude, 1e-3);
    if (!(std::abs(actual[i] - expected[i].value) <= allowed))
      Fail(step + " is wrong at element " + std::to_string(i) + ": " + std::to_string(actual[i]) +
           " in place of " + std::to_string(expected[i].value));
  }
}

class Network {
 public:
  Network(const Device& device, cudnnHandle_t handle, const Type& type)
      : device_(device), handle_(handle), type_(type), workspace_(device) {}

  // The class of an image of noise; every step on the way is compared with plain loops.
  int Answer(uint64_t seed) {
    Random random(seed);
    Blob image(device_, type_, {1, 1, kSide, kSide});
    image.Set(random.Normals(image.shape().size(), 1));
    auto x = Convolve(image, 20, 5, random);
    x = Pool(*x);
    x = Convolve(*x, 50, 5, random);
    x = Pool(*x);
    x = Convolve(*x, 500, x->shape().h, random);  // fully connected
    x = Activate(*x);
    x = Normalize(*x);
    x = Convolve(*x, 10, 1, random);
    x = Softmax(*x);
    const std::vector<float> p = x->Get();
    return int(std::max_element(p.begin(), p.end()) - p.begin());
  }

 private:
  using Layer = std::unique_ptr<Blob>;

  // y = conv(x, w) + b, by all algorithms in turn.
  Layer Convolve(const Blob& x, int channels, int side, Random& random) {
    const Shape filter = {channels, x.shape().c, side, side};
    Blob w(device_, type_, filter), b(device_, type_, {1, channels, 1, 1});
    w.Set(random.Normals(filter.size(), 1 / std::sqrt(float(filter.c * side * side))));
    b.Set(random.Normals(channels, 0.1f));
    FilterDescriptor filter_desc;
    ConvolutionDescriptor conv;
    CHECK(cudnnSetFilter4dDescriptor(filter_desc, type_.id, CUDNN_TENSOR_NCHW, channels, filter.c,
                                     side, side));
    CHECK(cudnnSetConvolution2dDescriptor(conv, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    // No tensor cores for f32 operands: they would round to TF32.
    CHECK(cudnnSetConvolutionMathType(
        conv, type_.id == CUDNN_DATA_HALF ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH));
    Shape shape;
    CHECK(cudnnGetConvolution2dForwardOutputDim(conv, x.desc(), filter_desc, &shape.n, &shape.c,
                                                &shape.h, &shape.w));
    auto y = std::make_unique<Blob>(device_, type_, shape);
    const std::vector<Expected> expected = Product(x, w, shape);
    for (const cudnnConvolutionFwdAlgo_t algorithm : Algorithms(x, filter_desc, conv, *y)) {
      size_t bytes = 0;
      CHECK(cudnnGetConvolutionForwardWorkspaceSize(handle_, x.desc(), filter_desc, conv, y->desc(),
                                                    algorithm, &bytes));
      workspace_.Grow(bytes);
      y->Poison();
      CHECK(cudnnConvolutionForward(handle_, &kOne, x.desc(), x.data(), filter_desc, w.data(), conv,
                                    algorithm, workspace_.data(), bytes, &kZero, y->desc(),
                                    y->data()));
      Compare("convolution by algorithm " + std::to_string(algorithm), type_, *y, expected);
    }
    CHECK(cudnnAddTensor(handle_, &kOne, b.desc(), b.data(), &kOne, y->desc(), y->data()));
    return y;
  }

  // The algorithms that either list names with success; the answers are printed on the way.
  std::vector<cudnnConvolutionFwdAlgo_t> Algorithms(const Blob& x, cudnnFilterDescriptor_t filter,
                                                    cudnnConvolutionDescriptor_t conv,
                                                    const Blob& y) {
    int most = 0, told = 0, found = 0;
    CHECK(cudnnGetConvolutionForwardAlgorithmMaxCount(handle_, &most));
    std::vector<cudnnConvolutionFwdAlgoPerf_t> list(most), timed(most);
    CHECK(cudnnGetConvolutionForwardAlgorithm_v7(handle_, x.desc(), filter, conv, y.desc(), most,
                                                 &told, list.data()));
    CHECK(cudnnFindConvolutionForwardAlgorithm(handle_, x.desc(), filter, conv, y.desc(), most,
                                               &found, timed.data()));
    std::printf("  %d x %d x %d to %d x %d x %d:", x.shape().c, x.shape().h, x.shape().w,
                y.shape().c, y.shape().h, y.shape().w);
    std::vector<cudnnConvolutionFwdAlgo_t> algorithms;
    for (const auto& one : timed) {
      if (one.status != CUDNN_STATUS_SUCCESS) continue;
      std::printf(" %d %.4f ms %zu bytes;", one.algo, double(one.time), one.memory);
      algorithms.push_back(one.algo);
    }
    for (int i = 0; i < told; ++i) {
      if (list[i].status == CUDNN_STATUS_SUCCESS &&
          std::find(algorithms.begin(), algorithms.end(), list[i].algo) == algorithms.end())
        algorithms.push_back(list[i].algo);
    }
    std::printf(" %zu algorithms\n", algorithms.size());
    if (algorithms.empty()) Fail("no algorithm computes this convolution");
    return algorithms;
  }

  static std::vector<Expected> Product(const Blob& x, const Blob& w, const Shape& y) {
    const std::vector<float> xs = x.Get(), ws = w.Get();
    const Shape &in = x.shape(), &filter = w.shape();
    std::vector<Expected> sums(y.size());
    for (int k = 0; k < y.c; ++k) {
      for (int p = 0; p < y.h; ++p) {
        for (int q = 0; q < y.w; ++q) {
          Expected& sum = sums[(size_t(k) * y.h + p) * y.w + q];
          for (int i = 0; i < filter.c * filter.h * filter.w; ++i) {
            const int c = i / (filter.h * filter.w), r = i / filter.w % filter.h, s = i % filter.w;
            const double term = double(xs[(size_t(c) * in.h + p + r) * in.w + q + s]) *
                                ws[size_t(k) * filter.c * filter.h * filter.w + i];
            sum.value += term;
            sum.magnitude += std::abs(term);
          }
        }
      }
    }
    return sums;
  }

  Layer Pool(const Blob& x) {
    const Shape in = x.shape(), out = {1, in.c, in.h / 2, in.w / 2};
    auto y = std::make_unique<Blob>(device_, type_, out);
    PoolingDescriptor pool;
    CHECK(cudnnSetPooling2dDescriptor(pool, CUDNN_POOLING_MAX, CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2,
                                      2));
    y->Poison();
    CHECK(cudnnPoolingForward(handle_, pool, &kOne, x.desc(), x.data(), &kZero, y->desc(),
                              y->data()));
    const std::vector<float> xs = x.Get();
    std::vector<Expected> largest(out.size());
    for (size_t i = 0; i < largest.size(); ++i) {
      const size_t q = i % out.w, p = i / out.w % out.h, c = i / out.w / out.h;
      const float* corner = &xs[(c * in.h + 2 * p) * in.w + 2 * q];
      largest[i].value = std::max({corner[0], corner[1], corner[in.w], corner[in.w + 1]});
    }
    Compare("pooling", type_, *y, largest);
    return y;
  }

  Layer Activate(const Blob& x) {
    auto y = std::make_unique<Blob>(device_, type_, x.shape());
    ActivationDescriptor relu;
    CHECK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    y->Poison();
    CHECK(cudnnActivationForward(handle_, relu, &kOne, x.desc(), x.data(), &kZero, y->desc(),
                                 y->data()));
    std::vector<Expected> expected;
    for (const float value : x.Get()) expected.push_back({std::max(value, 0.f), 0});
    Compare("activation", type_, *y, expected);
    return y;
  }

  Layer Normalize(const Blob& x) {
    auto y = std::make_unique<Blob>(device_, type_, x.shape());
    Descriptor<cudnnLRNDescriptor_t, cudnnCreateLRNDescriptor, cudnnDestroyLRNDescriptor> lrn;
    CHECK(cudnnSetLRNDescriptor(lrn, kLrnWidth, kLrnAlpha, kLrnBeta, kLrnK));
    y->Poison();
    CHECK(cudnnLRNCrossChannelForward(handle_, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &kOne, x.desc(),
                                      x.data(), &kZero, y->desc(), y->data()));
    const std::vector<float> xs = x.Get();  // one place: an element a channel
    std::vector<Expected> expected(xs.size());
    for (int c = 0; c < int(xs.size()); ++c) {
      double squares = 0;
      for (int i = std::max(c - 2, 0); i <= std::min(c + 2, int(xs.size()) - 1); ++i)
        squares += double(xs[i]) * xs[i];
      expected[c].value = xs[c] * std::pow(kLrnK + kLrnAlpha / kLrnWidth * squares, -kLrnBeta);
      expected[c].magnitude = std::abs(expected[c].value);
    }
    Compare("normalisation", type_, *y, expected);
    return y;
  }

  Layer Softmax(const Blob& x) {
    auto y = std::make_unique<Blob>(device_, type_, x.shape());
    y->Poison();
    CHECK(cudnnSoftmaxForward(handle_, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne,
                              x.desc(), x.data(), &kZero, y->desc(), y->data()));
    const std::vector<float> xs = x.Get();
    double sum = 0;
    for (const float value : xs) sum += std::exp(double(value));
    std::vector<Expected> expected;
    for (const float value : xs)
      expected.push_back({std::exp(double(value)) / sum, std::exp(double(value)) / sum});
    Compare("softmax", type_, *y, expected);
    return y;
  }

  const Device& device_;
  cudnnHandle_t handle_;
  Type type_;
  Workspace workspace_;
};

}  // namespace

int main() {
  const Device device;
  const Handle handle;
  std::printf("cuDNN %zu on %s\n", cudnnGetVersion(), device.name().c_str());
  int classes[2] = {};
  for (const Type& type : {kFloat, kHalf}) {
    std::printf("%s\n", type.name);
    Network network(device, handle, type);
    classes[type.id == CUDNN_DATA_HALF] = network.Answer(28);
  }
  if (classes[0] != classes[1]) Fail("f16 and f32 answer with different classes");
  std::printf("both types say class %d: test passed\n", classes[0]);
  return 0;
}
