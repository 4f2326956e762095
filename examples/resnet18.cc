// ResNet-18 answers for a few images: convolution, bias, shortcut and ReLU are one call each.
//
//   resnet18 [SIDE [IMAGES]]      224 x 224 and 1 where left out; succeeds if every layer is right
//
// The weights are made up, as if batch normalisation had been folded into filters and biases, and
// the same in every run. Each layer's output is compared at random places with plain loops over
// what the layer read.
#include <algorithm>
#include <functional>
#include <memory>

#include "example.h"

namespace {

using namespace example;

constexpr int kClasses = 1000;
constexpr int kPlaces = 64;           // of each layer that are computed again
constexpr double kTolerance = 1e-5;   // of the sum of magnitudes that make up a value
constexpr float kZero = 0, kOne = 1;  // y = alpha * result + beta * y

// A value as plain loops have it, and the sum of the magnitudes in it, by which rounding is judged.
struct Expected {
  double value = 0, magnitude = 0;
  void Add(double term) {
    value += term;
    magnitude += std::abs(term);
  }
};

// A tensor's values on the host.
struct Values {
  explicit Values(const Tensor& tensor) : shape(tensor.shape()), data(tensor.Get()) {}
  float At(int n, int c, int h, int w) const {
    return data[((size_t(n) * shape.c + c) * shape.h + h) * shape.w + w];
  }
  Shape shape;
  std::vector<float> data;
};

using Formula = std::function<Expected(int n, int c, int h, int w)>;

// The parts that all layers share: where they run, and whether they were right.
struct Context {
  const Device& device;
  cudnnHandle_t handle;
  Workspace& workspace;
  Random& random;
  double worst = 0;  // error by tolerance, of all places

  void Compare(const char* layer, const Tensor& y, const Formula& formula) {
    const Values actual(y);
    const Shape& shape = y.shape();
    for (int i = 0; i < kPlaces; ++i) {
      const int n = random.Below(shape.n), c = random.Below(shape.c), h = random.Below(shape.h),
                w = random.Below(shape.w);
      const Expected expected = formula(n, c, h, w);
      const double error = std::abs(actual.At(n, c, h, w) - expected.value);
      const double allowed = kTolerance * std::max(expected.magnitude, 1e-3);
      if (!(error <= allowed))
        Fail(std::string(layer) + " is wrong at " + std::to_string(n) + ", " + std::to_string(c) +
             ", " + std::to_string(h) + ", " + std::to_string(w) + ": " +
             std::to_string(actual.At(n, c, h, w)) + " in place of " +
             std::to_string(expected.value));
      worst = std::max(worst, error / allowed);
    }
  }
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual void Run() = 0;
  virtual void Verify() = 0;  // after Run
  Tensor& y() { return *y_; }

 protected:
  Layer(Context& context, Tensor& x) : context_(context), x_(x) {}
  Context& context_;
  Tensor& x_;
  std::unique_ptr<Tensor> y_;
};

// y = act(conv(x, w) + z + b); z is the block's shortcut, where there is one.
struct ConvolutionShape {
  int channels, side, stride;
  bool relu = true;
};
class Convolution : public Layer {
 public:
  Convolution(Context& context, Tensor& x, ConvolutionShape shape, Tensor* z = nullptr)
      : Layer(context, x),
        shape_(shape),
        pad_(shape.side / 2),
        z_(z),
        w_(context.device, {shape.channels, x.shape().c, shape.side, shape.side}),
        b_(context.device, {1, shape.channels, 1, 1}) {
    const Shape& w = w_.shape();
    CHECK(cudnnSetFilter4dDescriptor(filter_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, w.n, w.c, w.h,
                                     w.w));
    CHECK(cudnnSetConvolution2dDescriptor(conv_, pad_, pad_, shape.stride, shape.stride, 1, 1,
                                          CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    // No tensor cores: they would round to TF32, and the check be as coarse as that.
    CHECK(cudnnSetConvolutionMathType(conv_, CUDNN_FMA_MATH));
    CHECK(cudnnSetActivationDescriptor(
        activation_, shape.relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
        CUDNN_NOT_PROPAGATE_NAN, 0));
    Shape y;
    CHECK(cudnnGetConvolution2dForwardOutputDim(conv_, x.desc(), filter_, &y.n, &y.c, &y.h, &y.w));
    y_ = std::make_unique<Tensor>(context.device, y);
    w_.Set(context.random.Normals(w.size(), std::sqrt(1.f / float(w.c * w.h * w.w))));
    b_.Set(context.random.Normals(b_.shape().size(), 0.1f));
    ChooseAlgorithm();
  }

  void Run() override {
    // Without a shortcut its factor is 0, and y stands for it.
    const Tensor& z = z_ != nullptr ? *z_ : *y_;
    CHECK(cudnnConvolutionBiasActivationForward(
        context_.handle, &kOne, x_.desc(), x_.data(), filter_, w_.data(), conv_, algorithm_,
        context_.workspace.data(), context_.workspace.bytes(), z_ != nullptr ? &kOne : &kZero,
        z.desc(), z.data(), b_.desc(), b_.data(), activation_, y_->desc(), y_->data()));
  }

  void Verify() override {
    const Values x(x_), w(w_), b(b_), z(z_ != nullptr ? *z_ : b_);
    context_.Compare("a convolution", *y_, [&](int n, int k, int p, int q) {
      Expected sum;
      sum.Add(b.At(0, k, 0, 0));
      if (z_ != nullptr) sum.Add(z.At(n, k, p, q));
      for (int c = 0; c < x.shape.c; ++c) {
        for (int r = 0; r < shape_.side; ++r) {
          for (int s = 0; s < shape_.side; ++s) {
            const int h = p * shape_.stride - pad_ + r, column = q * shape_.stride - pad_ + s;
            if (h < 0 || h >= x.shape.h || column < 0 || column >= x.shape.w) continue;
            sum.Add(double(x.At(n, c, h, column)) * w.At(k, c, r, s));
          }
        }
      }
      if (shape_.relu) sum.value = std::max(sum.value, 0.0);
      return sum;
    });
  }

 private:
  // The first that the library proposes, and room for it. Without ReLU the call has one algorithm
  // alone.
  void ChooseAlgorithm() {
    cudnnConvolutionFwdAlgoPerf_t best;
    int found = 0;
    CHECK(cudnnGetConvolutionForwardAlgorithm_v7(context_.handle, x_.desc(), filter_, conv_,
                                                 y_->desc(), 1, &found, &best));
    algorithm_ = shape_.relu ? best.algo : CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
    size_t bytes = 0;
    CHECK(cudnnGetConvolutionForwardWorkspaceSize(context_.handle, x_.desc(), filter_, conv_,
                                                  y_->desc(), algorithm_, &bytes));
    context_.workspace.Grow(bytes);
  }

  ConvolutionShape shape_;
  int pad_;
  Tensor* z_;
  Tensor w_, b_;
  FilterDescriptor filter_;
  ConvolutionDescriptor conv_;
  ActivationDescriptor activation_;
  cudnnConvolutionFwdAlgo_t algorithm_;
};

class Pool : public Layer {
 public:
  Pool(Context& context, Tensor& x, cudnnPoolingMode_t mode, int side, int stride, int pad)
      : Layer(context, x), mode_(mode), side_(side), stride_(stride), pad_(pad) {
    CHECK(cudnnSetPooling2dDescriptor(pool_, mode, CUDNN_NOT_PROPAGATE_NAN, side, side, pad, pad,
                                      stride, stride));
    Shape y;
    CHECK(cudnnGetPooling2dForwardOutputDim(pool_, x.desc(), &y.n, &y.c, &y.h, &y.w));
    y_ = std::make_unique<Tensor>(context.device, y);
  }
  void Run() override {
    CHECK(cudnnPoolingForward(context_.handle, pool_, &kOne, x_.desc(), x_.data(), &kZero,
                              y_->desc(), y_->data()));
  }
  void Verify() override {
    const Values x(x_);
    context_.Compare("a pooling", *y_, [&](int n, int c, int p, int q) {
      Expected sum;
      double largest = -INFINITY;
      for (int r = 0; r < side_; ++r) {
        for (int s = 0; s < side_; ++s) {
          const int h = p * stride_ - pad_ + r, w = q * stride_ - pad_ + s;
          if (h < 0 || h >= x.shape.h || w < 0 || w >= x.shape.w) continue;
          sum.Add(double(x.At(n, c, h, w)) / (side_ * side_));
          largest = std::max(largest, double(x.At(n, c, h, w)));
        }
      }
      if (mode_ == CUDNN_POOLING_MAX) sum.value = largest;
      return sum;
    });
  }

 private:
  cudnnPoolingMode_t mode_;
  int side_, stride_, pad_;
  PoolingDescriptor pool_;
};

class Softmax : public Layer {
 public:
  Softmax(Context& context, Tensor& x) : Layer(context, x) {
    y_ = std::make_unique<Tensor>(context.device, x.shape());
  }
  void Run() override {
    CHECK(cudnnSoftmaxForward(context_.handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL,
                              &kOne, x_.desc(), x_.data(), &kZero, y_->desc(), y_->data()));
  }
  void Verify() override {
    const Values x(x_);
    context_.Compare("softmax", *y_, [&](int n, int c, int, int) {
      double sum = 0;
      for (int i = 0; i < x.shape.c; ++i) sum += std::exp(double(x.At(n, i, 0, 0)));
      Expected p;
      p.Add(std::exp(double(x.At(n, c, 0, 0))) / sum);
      return p;
    });
  }
};

class ResNet18 {
 public:
  ResNet18(Context& context, Shape images) : context_(context), images_(context.device, images) {
    images_.Set(context.random.Normals(images.size(), 1));
    Add<Convolution>(images_, ConvolutionShape{64, 7, 2});
    Add<Pool>(last(), CUDNN_POOLING_MAX, 3, 2, 1);
    for (const int channels : {64, 128, 256, 512}) {
      Block(channels, channels == 64 ? 1 : 2);
      Block(channels, 1);
    }
    const int side = last().shape().h;
    Add<Pool>(last(), CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, side, 1, 0);
    Add<Convolution>(last(), ConvolutionShape{kClasses, 1, 1, false});  // fully connected
    Add<Softmax>(last());
  }

  void Run() {
    for (const auto& layer : layers_) layer->Run();
  }
  void Verify() {
    for (const auto& layer : layers_) layer->Verify();
  }
  size_t layers() const { return layers_.size(); }
  std::vector<float> Answer() { return last().Get(); }

 private:
  template <class L, class... Arguments>
  Tensor& Add(Tensor& x, Arguments... arguments) {
    layers_.push_back(std::make_unique<L>(context_, x, arguments...));
    return layers_.back()->y();
  }
  // Two convolutions and a shortcut around them, which is a convolution too where the shape
  // changes.
  void Block(int channels, int stride) {
    Tensor& x = last();
    Tensor& shortcut =
        stride == 1 ? x : Add<Convolution>(x, ConvolutionShape{channels, 1, stride, false});
    Tensor& middle = Add<Convolution>(x, ConvolutionShape{channels, 3, stride});
    Add<Convolution>(middle, ConvolutionShape{channels, 3, 1}, &shortcut);
  }
  Tensor& last() { return layers_.back()->y(); }

  Context& context_;
  Tensor images_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace

int main(int argc, char** argv) {
  const int side = argc > 1 ? std::atoi(argv[1]) : 224, images = argc > 2 ? std::atoi(argv[2]) : 1;
  if (side < 32 || images < 1) Fail("usage: resnet18 [SIDE [IMAGES]], of at least 32 and 1");
  const Device device;
  std::printf("ResNet-18 on %s, %d x 3 x %d x %d\n", device.name().c_str(), images, side, side);
  const Clock making;
  const Handle handle;
  Workspace workspace(device);
  Random random(18);
  Context context{device, handle, workspace, random};
  ResNet18 net(context, {images, 3, side, side});
  const double made = making.Seconds();

  // The first run compiles the kernels that are not in the cache yet, the others show what is left
  // then.
  constexpr int kRuns = 10;
  std::vector<double> seconds;
  for (int run = 0; run <= kRuns; ++run) {
    const Clock running;
    net.Run();
    device.Synchronize();
    seconds.push_back(running.Seconds());
  }
  net.Verify();
  std::printf("made in %.2f s, first run %.1f ms, fastest of %d more %.2f ms\n", made,
              1e3 * seconds[0], kRuns, 1e3 * *std::min_element(seconds.begin() + 1, seconds.end()));
  const std::vector<float> p = net.Answer();
  const auto best = std::max_element(p.begin(), p.begin() + kClasses);
  std::printf("the first image is of class %d with p = %.4f\n", int(best - p.begin()), *best);
  std::printf(
      "%zu layers are right at %d places each; the worst error is %.0f %% of what is allowed\n",
      net.layers(), kPlaces, 100 * context.worst);
  return 0;
}
