// cudnnCTCLoss and cudnnCTCLoss_v8 on either device, against the definition of the loss.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>

#include "tests/support/device_memory.h"
#include "tests/support/legacy_client.h"
#include "tests/support/oracle/ctc.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

using oracle::CtcBatch;
using oracle::CtcLoss;

constexpr float kPoison = -12345.5f;
constexpr size_t kGuard = 64;  // floats around results

enum class Arrays : uint8_t { kHost, kDevice };

// One way to ask for a loss.
struct Ask {
  Arrays arrays = Arrays::kHost;
  cudnnCTCLossAlgo_t algorithm = CUDNN_CTC_LOSS_ALGO_DETERMINISTIC;
  bool gradients = true;
};
const Ask kAsks[] = {
    {},
    {.algorithm = CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC},
    {.arrays = Arrays::kDevice},
    {.arrays = Arrays::kDevice, .algorithm = CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC},
    {.gradients = false},
    {.arrays = Arrays::kDevice, .gradients = false}};

// Floats of the device with guards around them.
class Floats {
 public:
  Floats(Device& device, const std::vector<float>& values)
      : device_(device), count_(values.size()), buffer_(device, (values.size() + 2 * kGuard) * 4) {
    std::vector<float> all(values.size() + 2 * kGuard, kPoison);
    std::ranges::copy(values, all.begin() + kGuard);
    device_.CopyIn(buffer_.data(), all.data(), all.size() * 4);
  }
  void* data() const { return buffer_.data() + kGuard * 4; }
  // Fails the test where a guard was written.
  std::vector<float> Get() const {
    std::vector<float> all(count_ + 2 * kGuard);
    device_.CopyOut(all.data(), buffer_.data(), all.size() * 4);
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(all[i], kPoison) << "written before the tensor";
      EXPECT_EQ(all[kGuard + count_ + i], kPoison) << "written behind the tensor";
    }
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  Device& device_;
  size_t count_;
  Buffer buffer_;
};

// Integers of the device. On the host a page that nobody may touch is behind the last one; an
// emulated GPU knows where they end, too.
class Ints {
 public:
  Ints(Device& device, const std::vector<int>& values) {
    const size_t bytes = values.size() * sizeof(int);
    if (device.is_gpu()) {
      buffer_.emplace(device, bytes);
      data_ = buffer_->data();
      device.CopyIn(data_, values.data(), bytes);
      return;
    }
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (bytes + page - 1) / page * page;
    mapped_ = room + page;
    memory_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    auto* const end = static_cast<uint8_t*>(memory_) + room;
    EXPECT_EQ(mprotect(end, page, PROT_NONE), 0);
    data_ = end - bytes;
    std::memcpy(data_, values.data(), bytes);
  }
  Ints(const Ints&) = delete;
  ~Ints() {
    if (mapped_ > 0) munmap(memory_, mapped_);
  }
  const int* data() const { return reinterpret_cast<const int*>(data_); }

 private:
  std::optional<Buffer> buffer_;
  void* memory_ = nullptr;
  size_t mapped_ = 0;
  uint8_t* data_ = nullptr;
};

struct Answer {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  std::vector<float> costs, gradients;
};

class CtcCallsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    library_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  static void TearDownTestSuite() { device_.reset(); }

  void SetUp() override {
    client_ = std::make_unique<LegacyClient>(library_);
    KILN_CALL(*client_, cudnnCreate, &handle_);
    KILN_CALL(*client_, cudnnSetStream, handle_, static_cast<cudaStream_t>(device_->stream()));
    loss_ = client_->New<cudnnCTCLossDescriptor_t>("CTCLoss");
    tensor_ = client_->New<cudnnTensorDescriptor_t>("Tensor");
  }
  void TearDown() override {
    KILN_CALL(*client_, cudnnDestroy, handle_);
    client_.reset();
  }

  void Describe(const CtcBatch& b) {
    const int dims[] = {static_cast<int>(b.frames), static_cast<int>(b.samples),
                        static_cast<int>(b.symbols)};
    const int strides[] = {dims[1] * dims[2], dims[2], 1};
    EXPECT_EQ(KILN_CALL(*client_, cudnnSetTensorNdDescriptor, tensor_, CUDNN_DATA_FLOAT, 3,
                        static_cast<const int*>(dims), static_cast<const int*>(strides)),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        KILN_CALL(*client_, cudnnSetCTCLossDescriptor_v9, loss_, CUDNN_DATA_FLOAT,
                  b.softmax ? CUDNN_LOSS_NORMALIZATION_SOFTMAX : CUDNN_LOSS_NORMALIZATION_NONE,
                  b.skip_infeasible ? CUDNN_CTC_SKIP_OOB_GRADIENTS : CUDNN_CTC_ZERO_OOB_GRADIENTS,
                  static_cast<int>(b.max_label)),
        CUDNN_STATUS_SUCCESS);
  }

  // The loss with a work space of exactly the size that was told; the host's arrays are gone when
  // the device computes.
  Answer Compute(const CtcBatch& b, const Ask& ask) {
    Describe(b);
    const std::vector<float> probs(b.probs.begin(), b.probs.end());
    std::vector<float> before(probs.size());
    for (size_t i = 0; i < before.size(); ++i) before[i] = Before(i);
    const Floats x(*device_, probs), costs(*device_, std::vector<float>(b.input_lengths.size())),
        gradients(*device_, before);
    const cudnnTensorDescriptor_t described = ask.gradients ? tensor_ : nullptr;
    void* const to = ask.gradients ? gradients.data() : nullptr;
    auto labels = std::make_unique<std::vector<int>>(b.labels),
         label_lengths = std::make_unique<std::vector<int>>(b.label_lengths),
         input_lengths = std::make_unique<std::vector<int>>(b.input_lengths);
    size_t bytes = 0;
    Answer answer;
    if (ask.arrays == Arrays::kHost) {
      answer.status = KILN_CALL(*client_, cudnnGetCTCLossWorkspaceSize, handle_, tensor_, described,
                                labels->data(), label_lengths->data(), input_lengths->data(),
                                ask.algorithm, loss_, &bytes);
      if (answer.status != CUDNN_STATUS_SUCCESS) return answer;
      const Buffer workspace = Workspace(bytes);
      answer.status =
          KILN_CALL(*client_, cudnnCTCLoss, handle_, tensor_, x.data(), labels->data(),
                    label_lengths->data(), input_lengths->data(), costs.data(), described, to,
                    ask.algorithm, loss_, static_cast<void*>(workspace.data()), bytes);
      for (auto* array : {&labels, &label_lengths, &input_lengths}) {
        std::ranges::fill(**array, -1);
        array->reset();
      }
      Finish(answer, workspace, bytes, costs, gradients);
      return answer;
    }
    const Ints l(*device_, *labels), n(*device_, *label_lengths), t(*device_, *input_lengths);
    answer.status = KILN_CALL(*client_, cudnnGetCTCLossWorkspaceSize_v8, handle_, ask.algorithm,
                              loss_, tensor_, described, &bytes);
    if (answer.status != CUDNN_STATUS_SUCCESS) return answer;
    const Buffer workspace = Workspace(bytes);
    answer.status = KILN_CALL(*client_, cudnnCTCLoss_v8, handle_, ask.algorithm, loss_, tensor_,
                              x.data(), l.data(), n.data(), t.data(), costs.data(), described, to,
                              bytes, static_cast<void*>(workspace.data()));
    Finish(answer, workspace, bytes, costs, gradients);
    return answer;
  }

  static float Before(size_t i) { return static_cast<float>(i % 7) + 100; }

  // NaN, and bytes behind the end that nobody may write.
  Buffer Workspace(size_t bytes) {
    Buffer buffer(*device_, bytes + kGuard);
    const std::vector<uint8_t> poison(bytes + kGuard, 0xff);
    device_->CopyIn(buffer.data(), poison.data(), poison.size());
    return buffer;
  }
  void Finish(Answer& answer, const Buffer& workspace, size_t bytes, const Floats& costs,
              const Floats& gradients) {
    EXPECT_EQ(device_->Synchronize(), "");
    std::vector<uint8_t> end(kGuard);
    device_->CopyOut(end.data(), workspace.data() + bytes, kGuard);
    EXPECT_TRUE(std::ranges::all_of(end, [](uint8_t byte) { return byte == 0xff; }))
        << "written behind the work space";
    answer.costs = costs.Get();
    answer.gradients = gradients.Get();
  }

  // A sentence where the answer is not the loss.
  static std::string Check(const CtcBatch& b, const Ask& ask, const Answer& answer) {
    if (answer.status != CUDNN_STATUS_SUCCESS) return fmt::format("status {}", answer.status + 0);
    std::vector<double> before(b.probs.size());
    for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<double>(Before(i));
    CtcLoss want = oracle::Ctc(b, before);
    if (!ask.gradients) want.gradients = before;
    // Sums of logarithms as large as the costs, rounded in each frame.
    double largest = 1;
    for (const double cost : want.costs)
      if (std::isfinite(cost)) largest = std::max(largest, std::abs(cost));
    const double tolerance =
        2 * (4 + 2 * std::sqrt(static_cast<double>(b.frames))) * 0x1p-24 * largest;
    std::string error = Compare("cost", answer.costs, want.costs, tolerance);
    return error.empty() ? Compare("gradient", answer.gradients, want.gradients, tolerance) : error;
  }

  static std::string Compare(const char* name, const std::vector<float>& got,
                             const std::vector<double>& want, double tolerance) {
    for (size_t i = 0; i < want.size(); ++i) {
      const auto mine = static_cast<double>(got[i]);
      const bool same = std::isnan(want[i])
                            ? std::isnan(mine)
                            : mine == want[i] || std::abs(mine - want[i]) <=
                                                     tolerance * std::max(1.0, std::abs(want[i]));
      if (!same) return fmt::format("{} {} is {}, not {}", name, i, mine, want[i]);
    }
    return "";
  }

  static inline std::unique_ptr<Device> device_;
  static inline void* library_ = nullptr;
  std::unique_ptr<LegacyClient> client_;
  cudnnHandle_t handle_ = nullptr;
  cudnnCTCLossDescriptor_t loss_ = nullptr;
  cudnnTensorDescriptor_t tensor_ = nullptr;
};

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  int Below(int64_t n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  double Number() {
    return static_cast<double>(static_cast<float>(static_cast<double>(random_() >> 11) * 0x1p-53));
  }

 private:
  std::mt19937_64 random_;
};

void FillProbs(CtcBatch& b, Random& random) {
  for (int64_t i = 0; i < b.frames * b.samples * b.symbols; ++i) {
    const double number = random.Number();
    b.probs.push_back(b.softmax ? static_cast<double>(static_cast<float>(6 * number - 3)) : number);
  }
}

// Empty labels, repeated symbols, short inputs, and labels that no path fits. Those of the device
// may be anything.
CtcBatch RandomBatch(uint64_t seed, bool may_be_wrong) {
  Random random(seed);
  CtcBatch b = {.frames = 1 + random.Below(24),
                .samples = 1 + random.Below(9),
                .symbols = 2 + random.Below(30),
                .max_label = 1 + random.Below(9)};
  b.softmax = random.Below(3) != 0;
  b.skip_infeasible = random.Below(2) != 0;
  for (int64_t n = 0; n < b.samples; ++n) {
    const int length = random.Below(b.max_label + 1);
    for (int i = 0; i < length; ++i) {
      int symbol =
          random.Below(4) == 0 && i > 0 ? b.labels.back() : 1 + random.Below(b.symbols - 1);
      if (may_be_wrong && random.Below(40) == 0) symbol = 0;
      if (may_be_wrong && random.Below(80) == 0)
        symbol = random.Below(2) == 0 ? -7 : static_cast<int>(b.symbols) + random.Below(1000000000);
      b.labels.push_back(symbol);
    }
    b.label_lengths.push_back(length);
    b.input_lengths.push_back(random.Below(3) == 0 ? random.Below(b.frames + 1)
                                                   : static_cast<int>(b.frames));
  }
  if (b.labels.empty()) b.labels.push_back(1);
  const auto any = [&](std::vector<int>& of) -> int& {
    return of[static_cast<size_t>(random.Below(b.samples))];
  };
  if (may_be_wrong && random.Below(8) == 0)
    any(b.input_lengths) = random.Below(2) == 0 ? -1 : static_cast<int>(b.frames) + 1;
  if (may_be_wrong && random.Below(8) == 0)
    any(b.label_lengths) = random.Below(2) == 0 ? -1000 : std::numeric_limits<int>::max();
  FillProbs(b, random);
  return b;
}

TEST_F(CtcCallsTest, RandomBatchesAreRight) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Ask& ask = kAsks[seed % std::size(kAsks)];
    const CtcBatch b = RandomBatch(seed, ask.arrays == Arrays::kDevice);
    ASSERT_EQ(Check(b, ask, Compute(b, ask)), "") << "seed " << seed;
  }
}

struct Uniform {
  int64_t frames, symbols;
  std::vector<int> label;
  float cost;
};

TEST_F(CtcCallsTest, UniformProbabilitiesCountPaths) {
  const Uniform rows[] = {{5, 4, {1, 2}, 3.376123744f},
                          {5, 4, {1, 1}, 4.223421604f},
                          {6, 3, {1, 2, 2, 1}, 4.394449155f},
                          {3, 5, {1, 2, 3}, 4.828313737f},
                          {4, 5, {}, 6.437751650f}};
  for (const Uniform& u : rows) {
    CtcBatch b = {.frames = u.frames, .symbols = u.symbols, .max_label = 4};
    b.probs.assign(static_cast<size_t>(u.frames * u.symbols), 3.0);
    b.labels = u.label;
    b.label_lengths = {static_cast<int>(u.label.size())};
    b.input_lengths = {static_cast<int>(u.frames)};
    if (b.labels.empty()) b.labels = {1};
    for (const Ask& ask : kAsks) {
      const Answer answer = Compute(b, ask);
      ASSERT_EQ(answer.status, CUDNN_STATUS_SUCCESS);
      EXPECT_NEAR(answer.costs[0], u.cost, 4e-6f);
      for (int64_t t = 0; ask.gradients && t < u.frames; ++t) {
        float sum = 0;
        for (int64_t k = 0; k < u.symbols; ++k)
          sum += answer.gradients[static_cast<size_t>(t * u.symbols + k)];
        EXPECT_NEAR(sum, 0, 1e-6f);
      }
    }
  }
}

// DETERMINISTIC ends at 255 labels in NVIDIA's; here it does not.
TEST_F(CtcCallsTest, LabelsMayBeLong) {
  for (const int label : {255, 256, 1000}) {
    for (const Ask& ask : kAsks) {
      Random random(static_cast<uint64_t>(label));
      CtcBatch b = {.frames = label + 3, .samples = 2, .symbols = 7, .max_label = label};
      for (int i = 0; i < label; ++i) b.labels.push_back(1 + i % 6);
      b.labels.push_back(5);
      b.label_lengths = {label, 1};
      b.input_lengths = {label + 3, label};
      FillProbs(b, random);
      ASSERT_EQ(Check(b, ask, Compute(b, ask)), "") << label;
    }
  }
}

// More symbols than leave room in the L2 for the frames of all warps: several warps have one, whose
// symbols the paths come through at both ends, twice, and as blanks.
TEST_F(CtcCallsTest, FramesMayHaveManySymbols) {
  for (const int64_t symbols : {9001, 17003, 33331}) {
    const int last = static_cast<int>(symbols) - 1;
    Random random(static_cast<uint64_t>(symbols));
    CtcBatch b = {.frames = 4, .samples = 2, .symbols = symbols, .max_label = 4};
    b.labels = {last, 1, last, 0, last / 2};
    b.label_lengths = {3, 2};
    b.input_lengths = {4, 3};
    FillProbs(b, random);
    for (const Ask& ask : kAsks) ASSERT_EQ(Check(b, ask, Compute(b, ask)), "") << symbols;
  }
}

// Numbers that are not finite stay with their sample.
TEST_F(CtcCallsTest, ExtremesStayWithTheirSample) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double extreme : {-1e30, kInf, -kInf, std::nan("")}) {
    CtcBatch b = {.frames = 6, .samples = 3, .symbols = 5, .max_label = 2};
    Random random(3);
    FillProbs(b, random);
    b.labels = {1, 2, 3, 3, 4};
    b.label_lengths = {2, 2, 1};
    b.input_lengths = {6, 6, 6};
    const CtcBatch plain = b;
    b.probs[(2 * 3 + 1) * 5 + 1] = extreme;  // a symbol that is not in the label
    const Answer with = Compute(b, {}), without = Compute(plain, {});
    ASSERT_EQ(with.status, CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(std::isfinite(with.costs[1]), extreme < 0) << extreme;
    for (const size_t n : {0u, 2u}) {
      EXPECT_EQ(with.costs[n], without.costs[n]);
      for (size_t t = 0; t < 6; ++t)
        for (size_t k = 0; k < 5; ++k)
          EXPECT_EQ(with.gradients[(t * 3 + n) * 5 + k], without.gradients[(t * 3 + n) * 5 + k]);
    }
  }
}

TEST_F(CtcCallsTest, AnswersAreTheSameEachTime) {
  const CtcBatch b = RandomBatch(11, false);
  const Answer first = Compute(b, {});
  for (int i = 0; i < 5; ++i) {
    for (const Ask& ask : kAsks) {
      const Answer again = Compute(b, ask);
      EXPECT_EQ(std::memcmp(again.costs.data(), first.costs.data(), 4 * first.costs.size()), 0);
      if (!ask.gradients) continue;
      EXPECT_EQ(
          std::memcmp(again.gradients.data(), first.gradients.data(), 4 * first.gradients.size()),
          0);
    }
  }
}

// A step down the gradient makes the costs less by its square.
TEST_F(CtcCallsTest, GradientIsThatOfTheCost) {
  CtcBatch b = RandomBatch(4, false);
  b.softmax = true;
  const Answer at = Compute(b, {});
  ASSERT_EQ(at.status, CUDNN_STATUS_SUCCESS);
  constexpr double kStep = 1e-2;
  double squares = 0, change = 0;
  CtcBatch moved = b;
  for (size_t i = 0; i < b.probs.size(); ++i) {
    const auto g = static_cast<double>(at.gradients[i]);
    if (b.skip_infeasible && g == static_cast<double>(Before(i))) continue;  // it was left alone
    squares += g * g;
    moved.probs[i] -= kStep * g;
  }
  const Answer after = Compute(moved, {});
  for (size_t n = 0; n < at.costs.size(); ++n)
    change += static_cast<double>(at.costs[n]) - static_cast<double>(after.costs[n]);
  EXPECT_GT(squares, 0.1);
  EXPECT_NEAR(change / (kStep * squares), 1, 0.02);
}

// ---- descriptors and statuses, as 9.19 has them

TEST_F(CtcCallsTest, DescriptorsReadBack) {
  struct Values {
    cudnnDataType_t type;
    cudnnLossNormalizationMode_t normalization;
    cudnnNanPropagation_t gradient;
    int max_label;
    bool operator==(const Values&) const = default;
  };
  const auto read = [&] {
    Values v = {};
    EXPECT_EQ(KILN_CALL(*client_, cudnnGetCTCLossDescriptor_v8, loss_, &v.type, &v.normalization,
                        &v.gradient, &v.max_label),
              CUDNN_STATUS_SUCCESS);
    cudnnCTCGradMode_t gradient = {};
    int max_label = 0;
    EXPECT_EQ(KILN_CALL(*client_, cudnnGetCTCLossDescriptor_v9, loss_, nullptr, nullptr, &gradient,
                        &max_label),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(static_cast<int>(gradient), static_cast<int>(v.gradient));
    EXPECT_EQ(max_label, v.max_label);
    return v;
  };
  const auto none = CUDNN_LOSS_NORMALIZATION_NONE;
  const auto softmax = CUDNN_LOSS_NORMALIZATION_SOFTMAX;
  EXPECT_EQ(read(), (Values{CUDNN_DATA_FLOAT, none, CUDNN_NOT_PROPAGATE_NAN, 0}));
  KILN_CALL(*client_, cudnnSetCTCLossDescriptor_v8, loss_, CUDNN_DATA_DOUBLE, softmax,
            CUDNN_PROPAGATE_NAN, 99);
  EXPECT_EQ(read(), (Values{CUDNN_DATA_DOUBLE, softmax, CUDNN_PROPAGATE_NAN, 99}));
  // Refused, and left as it was.
  EXPECT_EQ(KILN_CALL(*client_, cudnnSetCTCLossDescriptor, loss_, CUDNN_DATA_HALF) / 1000, 3);
  EXPECT_EQ(read(), (Values{CUDNN_DATA_DOUBLE, softmax, CUDNN_PROPAGATE_NAN, 99}));
  // Others set the rest to what it is at first.
  KILN_CALL(*client_, cudnnSetCTCLossDescriptorEx, loss_, CUDNN_DATA_FLOAT, softmax,
            CUDNN_PROPAGATE_NAN);
  EXPECT_EQ(read(), (Values{CUDNN_DATA_FLOAT, softmax, CUDNN_PROPAGATE_NAN, 0}));
  KILN_CALL(*client_, cudnnSetCTCLossDescriptor, loss_, CUDNN_DATA_FLOAT);
  EXPECT_EQ(read(), (Values{CUDNN_DATA_FLOAT, none, CUDNN_NOT_PROPAGATE_NAN, 0}));
  // No other number is looked at.
  EXPECT_EQ(KILN_CALL(*client_, cudnnSetCTCLossDescriptor_v8, loss_, CUDNN_DATA_FLOAT,
                      static_cast<cudnnLossNormalizationMode_t>(2),
                      static_cast<cudnnNanPropagation_t>(-1), -5),
            CUDNN_STATUS_SUCCESS);
}

TEST_F(CtcCallsTest, WhatCannotBeIsRefused) {
  const CtcBatch b = {.frames = 5,
                      .samples = 2,
                      .symbols = 4,
                      .probs = std::vector<double>(40, 0.5),
                      .labels = {1, 2, 3},
                      .label_lengths = {2, 1},
                      .input_lengths = {5, 5},
                      .max_label = 3};
  const auto thousand = [&](const CtcBatch& batch, const Ask& ask) {
    return Compute(batch, ask).status / 1000;
  };
  EXPECT_EQ(thousand(b, {}), 0);
  CtcBatch wrong = b;
  wrong.input_lengths[1] = 6;
  EXPECT_EQ(thousand(wrong, {}), 2);
  wrong.input_lengths[1] = -1;
  EXPECT_EQ(thousand(wrong, {}), 2);
  wrong = b;
  wrong.label_lengths[0] = -2;
  EXPECT_EQ(thousand(wrong, {}), 2);
  wrong = b;
  wrong.max_label = -1;
  EXPECT_EQ(thousand(wrong, {.arrays = Arrays::kDevice}), 2);
  EXPECT_EQ(thousand(b, {.algorithm = static_cast<cudnnCTCLossAlgo_t>(2)}), 2);
}

TEST_F(CtcCallsTest, AWorkSpaceThatIsTooSmallIsRefused) {
  CtcBatch b = RandomBatch(4, false);
  Describe(b);
  const Floats x(*device_, std::vector<float>(b.probs.begin(), b.probs.end())),
      costs(*device_, std::vector<float>(static_cast<size_t>(b.samples), 7)),
      gradients(*device_, std::vector<float>(b.probs.size(), 7));
  size_t bytes = 0;
  const auto algorithm = CUDNN_CTC_LOSS_ALGO_DETERMINISTIC;
  KILN_CALL(*client_, cudnnGetCTCLossWorkspaceSize, handle_, tensor_, tensor_,
            static_cast<const int*>(b.labels.data()),
            static_cast<const int*>(b.label_lengths.data()),
            static_cast<const int*>(b.input_lengths.data()), algorithm, loss_, &bytes);
  const Buffer workspace = Workspace(bytes);
  const auto compute = [&](size_t offset, size_t size) {
    return KILN_CALL(*client_, cudnnCTCLoss, handle_, tensor_, x.data(),
                     static_cast<const int*>(b.labels.data()),
                     static_cast<const int*>(b.label_lengths.data()),
                     static_cast<const int*>(b.input_lengths.data()), costs.data(), tensor_,
                     gradients.data(), algorithm, loss_,
                     static_cast<void*>(workspace.data() + offset), size) /
           1000;
  };
  for (const size_t less : {size_t{0}, size_t{8}, bytes - 1}) EXPECT_EQ(compute(0, less), 2);
  EXPECT_EQ(compute(4, bytes), 2) << "kernels read wider than that";
  EXPECT_EQ(device_->Synchronize(), "");
  EXPECT_EQ(costs.Get()[0], 7);
}

}  // namespace
}  // namespace kiln::testing
