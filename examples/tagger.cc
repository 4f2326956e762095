// A tagger of words: a recurrent network that learns, on sentences of different lengths.
//
// The tag of a word (a number) says whether the word before it is greater, and whether the one
// behind it is. Two layers of LSTM read a sentence in both directions, so that each word sees
// both; a matrix on the host makes scores of four tags of what they say. Training computes forward,
// the gradients of the data, then those of the weights. The program ends with 0 if nearly all words
// of new sentences are tagged right.
//
// With cuDNN 8's headers it calls the interface of cuDNN 6, an array of descriptors of the steps
// over packed sentences, which 9 has no more; with 9's, that of cuDNN 8, one descriptor of the
// data.
#include <algorithm>
#include <memory>
#include <numeric>

#include "weights.h"

namespace {

using example::Array;
using example::Device;
using example::Weights;
using Floats = std::vector<float>;

constexpr int kWords = 10, kTags = 4, kBatch = 16, kMostWords = 8;
constexpr int kHidden = 24, kLayers = 2, kDirections = 2, kSaid = kDirections * kHidden;
constexpr size_t kRows = size_t{kBatch} * kMostWords;

using RnnDesc =
    example::Descriptor<cudnnRNNDescriptor_t, cudnnCreateRNNDescriptor, cudnnDestroyRNNDescriptor>;
using DropoutDesc = example::Descriptor<cudnnDropoutDescriptor_t, cudnnCreateDropoutDescriptor,
                                        cudnnDestroyDropoutDescriptor>;
using TensorDesc = example::Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor,
                                       cudnnDestroyTensorDescriptor>;

void SetTensor(cudnnTensorDescriptor_t desc, int a, int b, int c) {
  const int dims[3] = {a, b, c}, strides[3] = {b * c, c, 1};
  CHECK(cudnnSetTensorNdDescriptor(desc, CUDNN_DATA_FLOAT, 3, dims, strides));
}

// The layers with their weights and the memory that calls share. Lengths descend.
class Recurrent {
 public:
  Recurrent(const Device& device, std::mt19937& random);

  // The row of memory that has a sentence's word.
  size_t Row(int sentence, int step) const;
  void SetLengths(const std::vector<int>& lengths);
  void Forward(bool trains);
  // The weights' gradients, of `dy`.
  void Backward();
  void Step(int number) { weights_->Step(number); }

  Array<float> x, y, dx, dy;

 private:
  void Reserve(size_t work, size_t reserve);

  example::Handle handle_;
  DropoutDesc dropout_;
  RnnDesc rnn_;
  TensorDesc state_;  // no state is given, so that it is 0, and none is taken
  std::vector<int> lengths_;
  std::unique_ptr<Weights> weights_;
  example::Workspace work_, reserve_;
  size_t work_bytes_ = 0, reserve_bytes_ = 0;
#if CUDNN_MAJOR < 9
  std::vector<TensorDesc> x_steps_ = std::vector<TensorDesc>(kMostWords),
                          y_steps_ = std::vector<TensorDesc>(kMostWords);
  std::vector<cudnnTensorDescriptor_t> x_descs_, y_descs_;
  example::FilterDescriptor w_;
#else
  example::Descriptor<cudnnRNNDataDescriptor_t, cudnnCreateRNNDataDescriptor,
                      cudnnDestroyRNNDataDescriptor>
      x_desc_, y_desc_;
  Array<int> device_lengths_;
#endif
};

void Recurrent::Reserve(size_t work, size_t reserve) {
  work_.Grow(work_bytes_ = work);
  reserve_.Grow(reserve_bytes_ = reserve);
}

#if CUDNN_MAJOR < 9

Recurrent::Recurrent(const Device& device, std::mt19937& random)
    : x(device, kRows * kWords),
      y(device, kRows * kSaid),
      dx(device, kRows * kWords),
      dy(device, kRows * kSaid),
      work_(device),
      reserve_(device) {
  CHECK(cudnnSetDropoutDescriptor(dropout_, handle_, 0, nullptr, 0, 0));
  CHECK(cudnnSetRNNDescriptor_v6(handle_, rnn_, kHidden, kLayers, dropout_, CUDNN_LINEAR_INPUT,
                                 CUDNN_BIDIRECTIONAL, CUDNN_LSTM, CUDNN_RNN_ALGO_STANDARD,
                                 CUDNN_DATA_FLOAT));
  SetTensor(state_, kLayers * kDirections, kBatch, kHidden);
  SetTensor(x_steps_[0], kBatch, kWords, 1);
  size_t bytes = 0;
  CHECK(cudnnGetRNNParamsSize(handle_, rnn_, x_steps_[0], &bytes, CUDNN_DATA_FLOAT));
  weights_ = std::make_unique<Weights>(device, bytes / sizeof(float), random);
  const int dims[3] = {static_cast<int>(bytes / sizeof(float)), 1, 1};
  CHECK(cudnnSetFilterNdDescriptor(w_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 3, dims));
}

// Packed: the first words of all sentences, then the second words of those that have one.
size_t Recurrent::Row(int sentence, int step) const {
  size_t row = static_cast<size_t>(sentence);
  for (const int length : lengths_) row += static_cast<size_t>(std::min(length, step));
  return row;
}

void Recurrent::SetLengths(const std::vector<int>& lengths) {
  lengths_ = lengths;
  x_descs_.clear();
  y_descs_.clear();
  for (int t = 0; t < lengths[0]; ++t) {
    const auto rows = std::count_if(lengths.begin(), lengths.end(), [=](int n) { return n > t; });
    SetTensor(x_steps_[t], static_cast<int>(rows), kWords, 1);
    SetTensor(y_steps_[t], static_cast<int>(rows), kSaid, 1);
    x_descs_.push_back(x_steps_[t]);
    y_descs_.push_back(y_steps_[t]);
  }
  size_t work = 0, reserve = 0;
  CHECK(cudnnGetRNNWorkspaceSize(handle_, rnn_, lengths[0], x_descs_.data(), &work));
  CHECK(cudnnGetRNNTrainingReserveSize(handle_, rnn_, lengths[0], x_descs_.data(), &reserve));
  Reserve(work, reserve);
}

void Recurrent::Forward(bool trains) {
  const int steps = lengths_[0];
  if (trains) {
    CHECK(cudnnRNNForwardTraining(handle_, rnn_, steps, x_descs_.data(), x.data(), state_, nullptr,
                                  state_, nullptr, w_, weights_->values.data(), y_descs_.data(),
                                  y.data(), state_, nullptr, state_, nullptr, work_.data(),
                                  work_bytes_, reserve_.data(), reserve_bytes_));
    return;
  }
  CHECK(cudnnRNNForwardInference(handle_, rnn_, steps, x_descs_.data(), x.data(), state_, nullptr,
                                 state_, nullptr, w_, weights_->values.data(), y_descs_.data(),
                                 y.data(), state_, nullptr, state_, nullptr, work_.data(),
                                 work_bytes_));
}

void Recurrent::Backward() {
  const int steps = lengths_[0];
  CHECK(cudnnRNNBackwardData(handle_, rnn_, steps, y_descs_.data(), y.data(), y_descs_.data(),
                             dy.data(), state_, nullptr, state_, nullptr, w_,
                             weights_->values.data(), state_, nullptr, state_, nullptr,
                             x_descs_.data(), dx.data(), state_, nullptr, state_, nullptr,
                             work_.data(), work_bytes_, reserve_.data(), reserve_bytes_));
  weights_->gradients.Set(Floats(weights_->gradients.size(), 0));  // to which the call adds
  CHECK(cudnnRNNBackwardWeights(handle_, rnn_, steps, x_descs_.data(), x.data(), state_, nullptr,
                                y_descs_.data(), y.data(), work_.data(), work_bytes_, w_,
                                weights_->gradients.data(), reserve_.data(), reserve_bytes_));
}

#else

Recurrent::Recurrent(const Device& device, std::mt19937& random)
    : x(device, kRows * kWords),
      y(device, kRows * kSaid),
      dx(device, kRows * kWords),
      dy(device, kRows * kSaid),
      work_(device),
      reserve_(device),
      device_lengths_(device, kBatch) {
  CHECK(cudnnSetDropoutDescriptor(dropout_, handle_, 0, nullptr, 0, 0));
  CHECK(cudnnSetRNNDescriptor_v8(rnn_, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                                 CUDNN_BIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                                 CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, kWords, kHidden, kHidden,
                                 kLayers, dropout_, CUDNN_RNN_PADDED_IO_ENABLED));
  SetTensor(state_, kLayers * kDirections, kBatch, kHidden);
  size_t bytes = 0;
  CHECK(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &bytes));
  weights_ = std::make_unique<Weights>(device, bytes / sizeof(float), random);
}

// The first words of all sentences, then the second words, whether there are any or not.
size_t Recurrent::Row(int sentence, int step) const { return size_t(step) * kBatch + sentence; }

void Recurrent::SetLengths(const std::vector<int>& lengths) {
  lengths_ = lengths;
  float fill = 0;
  for (const auto& [desc, size] :
       {std::pair(cudnnRNNDataDescriptor_t(x_desc_), kWords), {y_desc_, kSaid}}) {
    CHECK(cudnnSetRNNDataDescriptor(desc, CUDNN_DATA_FLOAT,
                                    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, kMostWords, kBatch,
                                    size, lengths.data(), &fill));
  }
  device_lengths_.Set(lengths);
  size_t work = 0, reserve = 0;
  CHECK(
      cudnnGetRNNTempSpaceSizes(handle_, rnn_, CUDNN_FWD_MODE_TRAINING, x_desc_, &work, &reserve));
  Reserve(work, reserve);
}

void Recurrent::Forward(bool trains) {
  const auto* const lengths = static_cast<const int32_t*>(device_lengths_.data());
  CHECK(cudnnRNNForward(handle_, rnn_, trains ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE,
                        lengths, x_desc_, x.data(), y_desc_, y.data(), state_, nullptr, nullptr,
                        state_, nullptr, nullptr, weights_->bytes(), weights_->values.data(),
                        work_bytes_, work_.data(), trains ? reserve_bytes_ : 0,
                        trains ? reserve_.data() : nullptr));
}

void Recurrent::Backward() {
  const auto* const lengths = static_cast<const int32_t*>(device_lengths_.data());
  CHECK(cudnnRNNBackwardData_v8(handle_, rnn_, lengths, y_desc_, y.data(), dy.data(), x_desc_,
                                dx.data(), state_, nullptr, nullptr, nullptr, state_, nullptr,
                                nullptr, nullptr, weights_->bytes(), weights_->values.data(),
                                work_bytes_, work_.data(), reserve_bytes_, reserve_.data()));
  weights_->gradients.Set(Floats(weights_->gradients.size(), 0));  // to which the call adds
  CHECK(cudnnRNNBackwardWeights_v8(handle_, rnn_, CUDNN_WGRAD_MODE_ADD, lengths, x_desc_, x.data(),
                                   state_, nullptr, y_desc_, y.data(), weights_->bytes(),
                                   weights_->gradients.data(), work_bytes_, work_.data(),
                                   reserve_bytes_, reserve_.data()));
}

#endif

using Sentence = std::vector<int>;

// Random sentences, the longest first, as packed ones have to be.
std::vector<Sentence> SomeSentences(std::mt19937& random) {
  std::vector<Sentence> sentences(kBatch);
  for (Sentence& s : sentences) {
    s.resize(2 + random() % (kMostWords - 1));
    for (int& word : s) word = static_cast<int>(random() % kWords);
  }
  std::stable_sort(sentences.begin(), sentences.end(),
                   [](const Sentence& a, const Sentence& b) { return a.size() > b.size(); });
  return sentences;
}

int Tag(const Sentence& s, size_t i) {
  const bool falls = i > 0 && s[i - 1] > s[i], rises = i + 1 < s.size() && s[i + 1] > s[i];
  return 2 * falls + rises;
}

class Tagger {
 public:
  Tagger(const Device& device, std::mt19937& random)
      : layers_(device, random), head_(device, size_t{kSaid} * kTags, random) {}

  // The mean loss of a word, before the weights change.
  double Train(const std::vector<Sentence>& sentences, int number) {
    Read(sentences, true);
    const Floats& w = head_.host();
    Floats dw(w.size(), 0), dy(layers_.dy.size(), 0);
    double loss = 0, words = 0;
    for (const Sentence& s : sentences) words += static_cast<double>(s.size());
    ForEachWord(sentences, [&](const float* said, size_t row, int wanted, const double* scores) {
      double sum = 0;
      for (int tag = 0; tag < kTags; ++tag) sum += std::exp(scores[tag]);
      loss += (std::log(sum) - scores[wanted]) / words;
      for (int tag = 0; tag < kTags; ++tag) {
        const float slope =
            static_cast<float>((std::exp(scores[tag]) / sum - (tag == wanted)) / words);
        for (int i = 0; i < kSaid; ++i) {
          dw[static_cast<size_t>(i * kTags + tag)] += said[i] * slope;
          dy[row * kSaid + i] += w[static_cast<size_t>(i * kTags + tag)] * slope;
        }
      }
    });
    layers_.dy.Set(dy);
    layers_.Backward();
    head_.gradients.Set(dw);
    layers_.Step(number);
    head_.Step(number);
    return loss;
  }

  // The number of words whose tags are right, and the number of words.
  std::pair<int, int> Check(const std::vector<Sentence>& sentences) {
    Read(sentences, false);
    int right = 0, words = 0;
    ForEachWord(sentences, [&](const float*, size_t, int wanted, const double* scores) {
      right += std::max_element(scores, scores + kTags) - scores == wanted;
      ++words;
    });
    return {right, words};
  }

 private:
  void Read(const std::vector<Sentence>& sentences, bool trains) {
    std::vector<int> lengths;
    for (const Sentence& s : sentences) lengths.push_back(static_cast<int>(s.size()));
    layers_.SetLengths(lengths);
    Floats x(layers_.x.size(), 0);
    for (int b = 0; b < kBatch; ++b)
      for (int t = 0; t < lengths[b]; ++t) x[layers_.Row(b, t) * kWords + sentences[b][t]] = 1;
    layers_.x.Set(x);
    layers_.Forward(trains);
  }

  template <class F>
  void ForEachWord(const std::vector<Sentence>& sentences, const F& f) {
    const Floats y = layers_.y.Get();
    const Floats& w = head_.host();
    for (int b = 0; b < kBatch; ++b) {
      for (size_t t = 0; t < sentences[b].size(); ++t) {
        const size_t row = layers_.Row(b, static_cast<int>(t));
        const float* const said = &y[row * kSaid];
        double scores[kTags] = {};
        for (int i = 0; i < kSaid; ++i)
          for (int tag = 0; tag < kTags; ++tag) scores[tag] += said[i] * w[i * kTags + tag];
        f(said, row, Tag(sentences[b], t), scores);
      }
    }
  }

  Recurrent layers_;
  Weights head_;
};

}  // namespace

int main() {
  constexpr int kBatches = 200, kChecked = 8;
  const Device device;
  std::mt19937 random(1);
  Tagger tagger(device, random);
  for (int i = 1; i <= kBatches; ++i) {
    const double loss = tagger.Train(SomeSentences(random), i);
    if (i % 50 == 0 || i == 1) std::printf("batch %d: loss %.4f\n", i, loss);
  }
  int right = 0, words = 0;
  for (int i = 0; i < kChecked; ++i) {
    const auto [r, n] = tagger.Check(SomeSentences(random));
    right += r;
    words += n;
  }
  std::printf("%d of %d words right on %s\n", right, words, device.name().c_str());
  return right > 0.97 * words ? 0 : 1;
}
