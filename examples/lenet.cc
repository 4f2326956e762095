// LeNet learns to read drawn digits: a whole training loop on cuDNN's calls, without a framework.
//
//   lenet [STEPS]        120 where left out; succeeds if the loss fell and 97 % of digits it never
//   saw are read right
//
// Every layer has Forward, which reads x and writes y, and Backward, which reads dy and writes dx
// and the gradients of its parameters. Fully connected layers are convolutions whose filter is as
// large as their input.
#include <memory>

#include "digits.h"
#include "example.h"

namespace {

using namespace example;

constexpr int kBatch = 64;
constexpr int kTestBatches = 16;
constexpr float kLearningRate = 0.02f, kMomentum = 0.9f;
constexpr float kLeastAccuracy = 0.97f, kMostLoss = 0.2f;

// Factors of cuDNN's calls: y = alpha * result + beta * y.
constexpr float kZero = 0, kOne = 1;

struct Context {
  const Device& device;
  cudnnHandle_t handle;
  Workspace& workspace;
  Random& random;
};

// Data between layers: values, and the gradient of the loss by them.
struct Blob {
  Blob(const Context& context, Shape shape)
      : value(context.device, shape), grad(context.device, shape) {}
  Tensor value, grad;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual void Forward() = 0;
  virtual void Backward() = 0;
  virtual void Learn() {}
  Blob& output() { return *output_; }

 protected:
  Layer(const Context& context, Blob& input) : context_(context), input_(input) {}
  Context context_;
  Blob& input_;
  std::unique_ptr<Blob> output_;
};

// y = conv(x, w) + b. The gradients of w and b are added up with momentum by beta: velocity =
// gradient + 0.9 velocity.
class Convolution : public Layer {
 public:
  Convolution(const Context& context, Blob& input, int channels, int side, int pad)
      : Layer(context, input),
        bias_(context.device, {1, channels, 1, 1}),
        bias_velocity_(context.device, {1, channels, 1, 1}),
        // As a tensor, which is how AddTensor sees the filter, and zeroed with it.
        filter_(context.device, {channels, input.value.shape().c, side, side}),
        filter_velocity_(context.device, filter_.shape()) {
    const Shape& w = filter_.shape();
    CHECK(cudnnSetFilter4dDescriptor(filter_desc_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, w.n, w.c,
                                     w.h, w.w));
    CHECK(cudnnSetConvolution2dDescriptor(conv_, pad, pad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT));
    Shape y;
    CHECK(cudnnGetConvolution2dForwardOutputDim(conv_, input.value.desc(), filter_desc_, &y.n, &y.c,
                                                &y.h, &y.w));
    output_ = std::make_unique<Blob>(context, y);
    ChooseAlgorithms();
    const float fan_in = float(w.c * w.h * w.w);
    filter_.Set(context.random.Normals(w.size(), std::sqrt(2 / fan_in)));
    for (Tensor* tensor : {&bias_, &bias_velocity_, &filter_velocity_})
      CHECK(cudnnSetTensor(context.handle, tensor->desc(), tensor->data(), &kZero));
  }

  void Forward() override {
    const Tensor &x = input_.value, &y = output_->value;
    CHECK(cudnnConvolutionForward(context_.handle, &kOne, x.desc(), x.data(), filter_desc_,
                                  filter_.data(), conv_, forward_, context_.workspace.data(),
                                  context_.workspace.bytes(), &kZero, y.desc(), y.data()));
    CHECK(cudnnAddTensor(context_.handle, &kOne, bias_.desc(), bias_.data(), &kOne, y.desc(),
                         y.data()));
  }

  void Backward() override {
    const Tensor &x = input_.value, &dx = input_.grad, &dy = output_->grad;
    CHECK(cudnnConvolutionBackwardFilter(context_.handle, &kOne, x.desc(), x.data(), dy.desc(),
                                         dy.data(), conv_, backward_filter_,
                                         context_.workspace.data(), context_.workspace.bytes(),
                                         &kMomentum, filter_desc_, filter_velocity_.data()));
    CHECK(cudnnConvolutionBackwardBias(context_.handle, &kOne, dy.desc(), dy.data(), &kMomentum,
                                       bias_velocity_.desc(), bias_velocity_.data()));
    CHECK(cudnnConvolutionBackwardData(context_.handle, &kOne, filter_desc_, filter_.data(),
                                       dy.desc(), dy.data(), conv_, backward_data_,
                                       context_.workspace.data(), context_.workspace.bytes(),
                                       &kZero, dx.desc(), dx.data()));
  }

  void Learn() override {
    const float step = -kLearningRate;
    CHECK(cudnnAddTensor(context_.handle, &step, filter_velocity_.desc(), filter_velocity_.data(),
                         &kOne, filter_.desc(), filter_.data()));
    CHECK(cudnnAddTensor(context_.handle, &step, bias_velocity_.desc(), bias_velocity_.data(),
                         &kOne, bias_.desc(), bias_.data()));
  }

 private:
  // The first that the library proposes for each direction, and room for what it needs.
  void ChooseAlgorithms() {
    cudnnHandle_t handle = context_.handle;
    const Blob &in = input_, &out = *output_;
    int found = 0;
    cudnnConvolutionFwdAlgoPerf_t forward;
    CHECK(cudnnGetConvolutionForwardAlgorithm_v7(handle, in.value.desc(), filter_desc_, conv_,
                                                 out.value.desc(), 1, &found, &forward));
    cudnnConvolutionBwdDataAlgoPerf_t data;
    CHECK(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, filter_desc_, out.grad.desc(), conv_,
                                                      in.grad.desc(), 1, &found, &data));
    cudnnConvolutionBwdFilterAlgoPerf_t filter;
    CHECK(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, in.value.desc(), out.grad.desc(),
                                                        conv_, filter_desc_, 1, &found, &filter));
    forward_ = forward.algo;
    backward_data_ = data.algo;
    backward_filter_ = filter.algo;
    for (const size_t bytes : {forward.memory, data.memory, filter.memory})
      context_.workspace.Grow(bytes);
  }

  FilterDescriptor filter_desc_;
  ConvolutionDescriptor conv_;
  Tensor bias_, bias_velocity_, filter_, filter_velocity_;
  cudnnConvolutionFwdAlgo_t forward_;
  cudnnConvolutionBwdDataAlgo_t backward_data_;
  cudnnConvolutionBwdFilterAlgo_t backward_filter_;
};

class Relu : public Layer {
 public:
  Relu(const Context& context, Blob& input) : Layer(context, input) {
    CHECK(cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
    output_ = std::make_unique<Blob>(context, input.value.shape());
  }
  void Forward() override {
    const Tensor &x = input_.value, &y = output_->value;
    CHECK(cudnnActivationForward(context_.handle, relu_, &kOne, x.desc(), x.data(), &kZero,
                                 y.desc(), y.data()));
  }
  void Backward() override {
    const Tensor &x = input_.value, &dx = input_.grad, &y = output_->value, &dy = output_->grad;
    CHECK(cudnnActivationBackward(context_.handle, relu_, &kOne, y.desc(), y.data(), dy.desc(),
                                  dy.data(), x.desc(), x.data(), &kZero, dx.desc(), dx.data()));
  }

 private:
  ActivationDescriptor relu_;
};

// The maximum of each 2x2 window.
class MaxPool : public Layer {
 public:
  MaxPool(const Context& context, Blob& input) : Layer(context, input) {
    CHECK(cudnnSetPooling2dDescriptor(pool_, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0,
                                      2, 2));
    Shape y;
    CHECK(cudnnGetPooling2dForwardOutputDim(pool_, input.value.desc(), &y.n, &y.c, &y.h, &y.w));
    output_ = std::make_unique<Blob>(context, y);
  }
  void Forward() override {
    const Tensor &x = input_.value, &y = output_->value;
    CHECK(cudnnPoolingForward(context_.handle, pool_, &kOne, x.desc(), x.data(), &kZero, y.desc(),
                              y.data()));
  }
  void Backward() override {
    const Tensor &x = input_.value, &dx = input_.grad, &y = output_->value, &dy = output_->grad;
    CHECK(cudnnPoolingBackward(context_.handle, pool_, &kOne, y.desc(), y.data(), dy.desc(),
                               dy.data(), x.desc(), x.data(), &kZero, dx.desc(), dx.data()));
  }

 private:
  PoolingDescriptor pool_;
};

// log(softmax(x)). The loss is the mean of -log p(label), so that its gradient by y is -1 / batch
// at the labels.
class LogSoftmax : public Layer {
 public:
  LogSoftmax(const Context& context, Blob& input) : Layer(context, input) {
    output_ = std::make_unique<Blob>(context, input.value.shape());
  }
  void Forward() override {
    const Tensor &x = input_.value, &y = output_->value;
    CHECK(cudnnSoftmaxForward(context_.handle, CUDNN_SOFTMAX_LOG, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne,
                              x.desc(), x.data(), &kZero, y.desc(), y.data()));
  }
  void Backward() override {
    const Tensor &dx = input_.grad, &y = output_->value, &dy = output_->grad;
    CHECK(cudnnSoftmaxBackward(context_.handle, CUDNN_SOFTMAX_LOG, CUDNN_SOFTMAX_MODE_CHANNEL,
                               &kOne, y.desc(), y.data(), dy.desc(), dy.data(), &kZero, dx.desc(),
                               dx.data()));
  }
};

class LeNet {
 public:
  explicit LeNet(const Context& context) : images_(context, {kBatch, 1, kSide, kSide}) {
    Add<Convolution>(context, 6, 5, 2);  // 6 x 28 x 28
    Add<Relu>(context);
    Add<MaxPool>(context);                // 6 x 14 x 14
    Add<Convolution>(context, 16, 5, 0);  // 16 x 10 x 10
    Add<Relu>(context);
    Add<MaxPool>(context);                 // 16 x 5 x 5
    Add<Convolution>(context, 120, 5, 0);  // 120 x 1 x 1: a fully connected layer
    Add<Relu>(context);
    Add<Convolution>(context, 84, 1, 0);
    Add<Relu>(context);
    Add<Convolution>(context, kDigits, 1, 0);
    Add<LogSoftmax>(context);
  }

  // log p of each digit, image by image.
  std::vector<float> Read(const Digits& digits) {
    images_.value.Set(digits.images);
    for (const auto& layer : layers_) layer->Forward();
    return layers_.back()->output().value.Get();
  }

  // A step on a batch; the mean loss before it.
  float Train(const Digits& digits) {
    const std::vector<float> log_p = Read(digits);
    std::vector<float> grad(log_p.size(), 0);
    float loss = 0;
    for (int i = 0; i < kBatch; ++i) {
      const int at = i * kDigits + digits.labels[i];
      loss -= log_p[at] / kBatch;
      grad[at] = -1.f / kBatch;
    }
    layers_.back()->output().grad.Set(grad);
    for (size_t i = layers_.size(); i-- > 0;) layers_[i]->Backward();
    for (const auto& layer : layers_) layer->Learn();
    return loss;
  }

 private:
  template <class L, class... Arguments>
  void Add(const Context& context, Arguments... arguments) {
    Blob& input = layers_.empty() ? images_ : layers_.back()->output();
    layers_.push_back(std::make_unique<L>(context, input, arguments...));
  }

  Blob images_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

int Right(const std::vector<float>& log_p, const std::vector<int>& labels) {
  int right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto first = log_p.begin() + i * kDigits;
    right += std::max_element(first, first + kDigits) - first == labels[i];
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 120;
  if (steps < 20) Fail("usage: lenet [STEPS], of which there are at least 20");
  const Device device;
  std::printf("LeNet on %s\n", device.name().c_str());
  const Clock making;
  const Handle handle;
  Workspace workspace(device);
  Random random(1);
  LeNet net({device, handle, workspace, random});
  const double made = making.Seconds();

  // The first step compiles the kernels that are not in the cache yet.
  const Clock learning;
  float first_loss = 0, loss = 0;  // running means of the first and the last ten steps
  for (int step = 0; step < steps; ++step) {
    const float now = net.Train(DrawDigits(kBatch, random));
    if (step == 0) std::printf("made in %.2f s, first step %.2f s\n", made, learning.Seconds());
    if (step < 10) first_loss += now / 10;
    if (step >= steps - 10) loss += now / 10;
    if (step % 50 == 0 || step == steps - 1) std::printf("step %3d: loss %.3f\n", step, now);
  }
  const double seconds = learning.Seconds();

  int right = 0;
  for (int i = 0; i < kTestBatches; ++i) {
    const Digits unseen = DrawDigits(kBatch, random);
    right += Right(net.Read(unseen), unseen.labels);
  }
  const float accuracy = float(right) / (kTestBatches * kBatch);
  std::printf(
      "%d steps in %.1f s: loss %.3f, was %.3f; %.1f %% of %d unseen digits are read right\n",
      steps, seconds, loss, first_loss, 100 * accuracy, kTestBatches * kBatch);
  const bool learned = loss < kMostLoss && loss < first_loss / 4 && accuracy >= kLeastAccuracy;
  if (!learned)
    std::printf(
        "that is too little: a loss below %.1f and below a quarter of the first, and %.0f %% are "
        "wanted\n",
        kMostLoss, 100 * kLeastAccuracy);
  return learned ? 0 : 1;
}
