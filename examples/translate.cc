// Translation with multi-head attention, learned and then decoded word by word.
//
// The toy language: a sentence is translated by reading it backwards and replacing each word by
// another. A decoder of two layers learns it from examples: attention of the words written so far
// over each other, by windows that end at each word, with a residual, and attention over the
// source's words, whose lengths differ. Training computes all steps at once, with gradients of
// inputs and of weights. Decoding computes one step a call (currIdx), over keys and values that
// stay where earlier steps put them. The program ends with 0 if new sentences are translated right,
// and if the steps gave what one call over all of them gives.
#include <algorithm>
#include <climits>
#include <memory>
#include <random>

#include "weights.h"

namespace {

using example::Array;
using example::Device;
using example::Weights;

constexpr int kWords = 8, kBegin = kWords, kEnd = kWords + 1, kVocabulary = kWords + 2;
constexpr int kMostWords = 5, kSteps = kMostWords + 1;  // with the end
constexpr int kSize = kVocabulary + kSteps;             // a word and a place, one of each
constexpr int kBatch = 16, kHeads = 2, kDepth = 8;

using Layer = example::Descriptor<cudnnAttnDescriptor_t, cudnnCreateAttnDescriptor,
                                  cudnnDestroyAttnDescriptor>;
using SequenceDesc = example::Descriptor<cudnnSeqDataDescriptor_t, cudnnCreateSeqDataDescriptor,
                                         cudnnDestroySeqDataDescriptor>;
using Floats = std::vector<float>;

// A batch of sequences, each vector of a sequence behind the one before it.
struct Sequences {
  Sequences(const Device& device, int width)
      : values(device, size_t{kBatch} * kSteps * width), lengths(device, kBatch), width(width) {
    values.Set(Floats(values.size(), 0));
    SetLengths(std::vector<int>(kBatch, kSteps));
  }
  void SetLengths(const std::vector<int>& of) {
    const int dims[CUDNN_SEQDATA_DIM_COUNT] = {kSteps, kBatch, 1, width};
    const cudnnSeqDataAxis_t axes[CUDNN_SEQDATA_DIM_COUNT] = {
        CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_BEAM_DIM, CUDNN_SEQDATA_TIME_DIM,
        CUDNN_SEQDATA_VECT_DIM};
    CHECK(cudnnSetSeqDataDescriptor(desc, CUDNN_DATA_FLOAT, CUDNN_SEQDATA_DIM_COUNT, dims, axes,
                                    of.size(), of.data(), nullptr));
    lengths.Set(of);
  }
  const int* device_lengths() const { return static_cast<const int*>(lengths.data()); }

  SequenceDesc desc;
  Array<float> values;
  Array<int> lengths;
  int width;
};

// A layer of attention, its weights and buffers.
class Attention {
 public:
  Attention(const Device& device, cudnnHandle_t handle, int output, std::mt19937& random)
      : handle_(handle) {
    CHECK(cudnnSetAttnDescriptor(layer_, CUDNN_ATTN_ENABLE_PROJ_BIASES, kHeads,
                                 1 / std::sqrt(float{kDepth}), CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                                 CUDNN_DEFAULT_MATH, nullptr, nullptr, kSize, kSize, kSize, kDepth,
                                 kDepth, kDepth, output, kSteps, kSteps, kBatch, 1));
    size_t weights = 0, work = 0, reserve = 0;
    CHECK(cudnnGetMultiHeadAttnBuffers(handle, layer_, &weights, &work, &reserve));
    weights_ = std::make_unique<Weights>(device, weights / sizeof(float), random);
    work_ = std::make_unique<Array<char>>(device, work);
    reserve_ = std::make_unique<Array<char>>(device, reserve);
  }

  // Windows of the steps are [0, last[step]). `step` < 0: all of them, and what gradients need.
  void Forward(int step, const std::vector<int>& last, const Sequences& q, const Sequences& kv,
               bool has_residual, const Sequences& out) {
    const bool trains = step < 0;
    CHECK(cudnnMultiHeadAttnForward(
        handle_, layer_, step, first_.data(), last.data(), q.device_lengths(), kv.device_lengths(),
        q.desc, q.values.data(), has_residual ? q.values.data() : nullptr, kv.desc,
        kv.values.data(), kv.desc, kv.values.data(), out.desc, out.values.data(), weights_->bytes(),
        weights_->values.data(), work_->size(), work_->data(), trains ? reserve_->size() : 0,
        trains ? reserve_->data() : nullptr));
  }
  // dq, dk and dv of what the last Forward over all steps read, and the weights' gradients.
  void Backward(const std::vector<int>& last, const Sequences& q, const Sequences& kv,
                const Sequences& dout, const Sequences& dq, const Sequences& dk,
                const Sequences& dv) {
    CHECK(cudnnMultiHeadAttnBackwardData(
        handle_, layer_, first_.data(), last.data(), q.device_lengths(), kv.device_lengths(),
        dout.desc, dout.values.data(), q.desc, dq.values.data(), q.values.data(), kv.desc,
        dk.values.data(), kv.values.data(), kv.desc, dv.values.data(), kv.values.data(),
        weights_->bytes(), weights_->values.data(), work_->size(), work_->data(), reserve_->size(),
        reserve_->data()));
    CHECK(cudnnMultiHeadAttnBackwardWeights(
        handle_, layer_, CUDNN_WGRAD_MODE_SET, q.desc, q.values.data(), kv.desc, kv.values.data(),
        kv.desc, kv.values.data(), dout.desc, dout.values.data(), weights_->bytes(),
        weights_->values.data(), weights_->gradients.data(), work_->size(), work_->data(),
        reserve_->size(), reserve_->data()));
  }
  void Step(int number) { weights_->Step(number); }

 private:
  cudnnHandle_t handle_;
  Layer layer_;
  const std::vector<int> first_ = std::vector<int>(kSteps, 0);
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Array<char>> work_, reserve_;
};

using Sentence = std::vector<int>;

std::vector<Sentence> SomeSentences(std::mt19937& random) {
  std::vector<Sentence> sentences(kBatch);
  for (Sentence& s : sentences) {
    s.resize(1 + random() % kMostWords);
    for (int& word : s) word = static_cast<int>(random() % kWords);
  }
  return sentences;
}

Sentence Translated(Sentence s) {
  std::reverse(s.begin(), s.end());
  for (int& word : s) word = (3 * word + 5) % kWords;
  return s;
}

void Embed(Floats& values, int sentence, int step, int word, int place) {
  float* const vector = &values[static_cast<size_t>(sentence * kSteps + step) * kSize];
  std::fill(vector, vector + kSize, 0.0f);
  vector[word] = vector[kVocabulary + place] = 1;
}

class Translator {
 public:
  explicit Translator(const Device& device)
      : source_(device, kSize),
        target_(device, kSize),
        read_(device, kSize),
        logits_(device, kVocabulary),
        dlogits_(device, kVocabulary),
        dread_(device, kSize),
        dtarget_(device, kSize),
        unused_(device, kSize) {
    CHECK(cudnnCreate(&handle_));
    std::mt19937 random(1);
    self_ = std::make_unique<Attention>(device, handle_, kSize, random);
    cross_ = std::make_unique<Attention>(device, handle_, kVocabulary, random);
    for (int t = 0; t < kSteps; ++t) so_far_.push_back(t + 1);
  }
  ~Translator() { cudnnDestroy(handle_); }

  // The mean loss of a word, before the weights change.
  double Train(const std::vector<Sentence>& sentences, int number) {
    Read(sentences);
    Floats inputs(target_.values.size(), 0);
    std::vector<int> lengths;
    for (int b = 0; b < kBatch; ++b) {
      const Sentence s = Translated(sentences[b]);
      lengths.push_back(static_cast<int>(s.size()) + 1);
      for (int t = 0; t < lengths[b]; ++t) Embed(inputs, b, t, t == 0 ? kBegin : s[t - 1], t);
    }
    target_.values.Set(inputs);
    for (Sequences* s : {&target_, &read_, &logits_, &dlogits_, &dread_}) s->SetLengths(lengths);
    Forward(-1);
    const double loss = SetSlopes(sentences, lengths);
    cross_->Backward(all_, read_, source_, dlogits_, dread_, unused_, unused_);
    self_->Backward(so_far_, target_, target_, dread_, dtarget_, unused_, unused_);
    cross_->Step(number);
    self_->Step(number);
    return loss;
  }

  // One word a call, until all sentences have ended.
  std::vector<Sentence> Translate(const std::vector<Sentence>& sentences) {
    Read(sentences);
    for (Sequences* s : {&target_, &read_, &logits_})
      s->SetLengths(std::vector<int>(kBatch, kSteps));
    std::vector<Sentence> result(kBatch);
    std::vector<int> word(kBatch, kBegin);
    Floats inputs(target_.values.size(), 0);
    for (int t = 0; t < kSteps; ++t) {
      for (int b = 0; b < kBatch; ++b) Embed(inputs, b, t, word[b], t);
      target_.values.Set(inputs);
      Forward(t);
      const Floats logits = logits_.values.Get();
      for (int b = 0; b < kBatch; ++b) {
        const float* const of = &logits[static_cast<size_t>(b * kSteps + t) * kVocabulary];
        const bool has_ended = word[b] == kEnd;
        word[b] = has_ended ? kEnd : static_cast<int>(std::max_element(of, of + kVocabulary) - of);
        if (word[b] != kEnd) result[b].push_back(word[b]);
      }
    }
    return result;
  }

  // The difference between the last Translate's steps and one call over all of them.
  double LargestDifference() {
    const Floats by_steps = logits_.values.Get();
    Forward(-1);
    const Floats at_once = logits_.values.Get();
    double largest = 0;
    for (size_t i = 0; i < at_once.size(); ++i)
      largest = std::max(largest, std::abs(double{at_once[i]} - by_steps[i]));
    return largest;
  }

 private:
  // A word's place is counted from the sentence's end, which has the place behind the last.
  void Read(const std::vector<Sentence>& sentences) {
    Floats values(source_.values.size(), 0);
    std::vector<int> lengths;
    for (int b = 0; b < kBatch; ++b) {
      const int n = static_cast<int>(sentences[b].size());
      lengths.push_back(n + 1);
      for (int i = 0; i < n; ++i) Embed(values, b, i, sentences[b][i], n - 1 - i);
      Embed(values, b, n, kEnd, n);
    }
    source_.values.Set(values);
    source_.SetLengths(lengths);
  }

  void Forward(int step) {
    self_->Forward(step, so_far_, target_, target_, true, read_);
    cross_->Forward(step, all_, read_, source_, false, logits_);
  }

  // Cross entropy of the logits' softmax, and its slopes.
  double SetSlopes(const std::vector<Sentence>& sentences, const std::vector<int>& lengths) {
    const Floats logits = logits_.values.Get();
    Floats slopes(logits.size(), 0);
    double loss = 0;
    int words = 0;
    for (const int length : lengths) words += length;
    for (int b = 0; b < kBatch; ++b) {
      const Sentence s = Translated(sentences[b]);
      for (int t = 0; t < lengths[b]; ++t) {
        const int wanted = t + 1 < lengths[b] ? s[t] : kEnd;
        const size_t at = static_cast<size_t>(b * kSteps + t) * kVocabulary;
        const float most = *std::max_element(&logits[at], &logits[at] + kVocabulary);
        double sum = 0;
        for (int w = 0; w < kVocabulary; ++w) sum += std::exp(double{logits[at + w]} - most);
        for (int w = 0; w < kVocabulary; ++w) {
          const double share = std::exp(double{logits[at + w]} - most) / sum;
          if (w == wanted) loss -= std::log(share) / words;
          slopes[at + w] = static_cast<float>((share - (w == wanted)) / words);
        }
      }
    }
    dlogits_.values.Set(slopes);
    return loss;
  }

  cudnnHandle_t handle_ = nullptr;
  std::unique_ptr<Attention> self_, cross_;
  Sequences source_, target_, read_, logits_, dlogits_, dread_, dtarget_, unused_;
  std::vector<int> so_far_;
  const std::vector<int> all_ = std::vector<int>(kSteps, INT_MAX);
};

void Print(const Sentence& s) {
  for (const int word : s) std::printf(" %c", 'a' + word);
}

}  // namespace

int main() {
  constexpr int kBatches = 200;
  const Device device;
  Translator translator(device);
  std::mt19937 random(7);
  for (int i = 1; i <= kBatches; ++i) {
    const double loss = translator.Train(SomeSentences(random), i);
    if (i % 100 == 0 || i == 1) std::printf("batch %d: loss %.4f\n", i, loss);
  }
  const std::vector<Sentence> sentences = SomeSentences(random),
                              translations = translator.Translate(sentences);
  int right = 0;
  for (int b = 0; b < kBatch; ++b) {
    right += translations[b] == Translated(sentences[b]);
    if (b > 3) continue;
    Print(sentences[b]);
    std::printf("  ->");
    Print(translations[b]);
    std::printf("\n");
  }
  const double difference = translator.LargestDifference();
  std::printf("%d of %d sentences right on %s; steps and one call differ by %.1e\n", right, kBatch,
              device.name().c_str(), difference);
  return right == kBatch && difference < 1e-2 ? 0 : 1;
}
