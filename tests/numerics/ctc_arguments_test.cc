// Arguments that do not fit one another, one at a time, in the four functions of the CTC loss: each
// answers with the status of its fault, and writes nothing. NVIDIA's 9.19 says NOT_SUPPORTED or
// BAD_PARAM to everything where no GPU is, so that it is not asked.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/device_memory.h"
#include "tests/support/legacy_client.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

// ---- a loss, and what may be changed of it: 2 samples of 5 frames of 4 symbols

struct Tensor {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> dims = {5, 2, 4};
  bool is_set = true;
};
struct Arguments {
  Tensor probs, gradients;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  int normalization = 1, gradient_mode = 0, max_label = 3, algorithm = 0;
  std::vector<int> label_lengths = {2, 1}, input_lengths = {5, 4};
  bool has_gradients = true, describes_gradients = true;
  int64_t work = 0;  // bytes more than enough
  size_t work_offset = 0;
};

enum Functions : unsigned { kSize = 1, kDeviceSize = 2, kCall = 4, kDeviceCall = 8 };
constexpr unsigned kOnHost = kSize | kCall, kOnDevice = kDeviceSize | kDeviceCall,
                   kAll = kOnHost | kOnDevice, kCalls = kCall | kDeviceCall;
constexpr std::pair<Functions, const char*> kNames[] = {
    {kSize, "cudnnGetCTCLossWorkspaceSize"},
    {kDeviceSize, "cudnnGetCTCLossWorkspaceSize_v8"},
    {kCall, "cudnnCTCLoss"},
    {kDeviceCall, "cudnnCTCLoss_v8"}};

constexpr int kBadParam = 2, kNotSupported = 3;  // thousands of a status

struct Row {
  const char* name;
  unsigned refused;  // by these functions; the others take it
  int thousand;      // of their statuses
  std::function<void(Arguments&)> change;
};

void SetTypes(Arguments& a, cudnnDataType_t type) { a.probs.type = a.gradients.type = type; }
void SetDims(Arguments& a, const std::vector<int>& dims) { a.probs.dims = a.gradients.dims = dims; }

const Row kRows[] = {
    {"probs that are not set", kAll, kBadParam, [](Arguments& a) { a.probs.is_set = false; }},
    {"gradients that are not set", kAll, kBadParam,
     [](Arguments& a) { a.gradients.is_set = false; }},
    {"probs of half", kAll, kNotSupported, [](Arguments& a) { SetTypes(a, CUDNN_DATA_HALF); }},
    {"probs of doubles", kAll, kNotSupported, [](Arguments& a) { SetTypes(a, CUDNN_DATA_DOUBLE); }},
    {"probs of integers", kAll, kNotSupported, [](Arguments& a) { SetTypes(a, CUDNN_DATA_INT32); }},
    {"gradients of half", kAll, kNotSupported,
     [](Arguments& a) { a.gradients.type = CUDNN_DATA_HALF; }},
    {"gradients of other frames", kAll, kBadParam, [](Arguments& a) { a.gradients.dims[0] = 4; }},
    {"gradients of other samples", kAll, kBadParam, [](Arguments& a) { a.gradients.dims[1] = 3; }},
    {"gradients of other symbols", kAll, kBadParam, [](Arguments& a) { a.gradients.dims[2] = 5; }},
    {"four dims", kAll, kBadParam, [](Arguments& a) { SetDims(a, {5, 2, 4, 1}); }},
    {"gradients of four dims", kAll, kBadParam,
     [](Arguments& a) { a.gradients.dims = {5, 2, 4, 1}; }},
    {"computing in double", kAll, kNotSupported,
     [](Arguments& a) { a.compute = CUDNN_DATA_DOUBLE; }},
    {"another normalization", kAll, kBadParam, [](Arguments& a) { a.normalization = 2; }},
    {"another mode of gradients", kAll, kBadParam, [](Arguments& a) { a.gradient_mode = 2; }},
    {"another algorithm", kAll, kBadParam, [](Arguments& a) { a.algorithm = 2; }},
    {"an algorithm below zero", kAll, kBadParam, [](Arguments& a) { a.algorithm = -1; }},
    {"the algorithm that need not repeat", 0, 0, [](Arguments& a) { a.algorithm = 1; }},
    {"labels below zero at most", kOnDevice, kBadParam, [](Arguments& a) { a.max_label = -1; }},
    {"labels longer than indices reach", kOnDevice, kNotSupported,
     [](Arguments& a) { a.max_label = 2000000000; }},
    {"longer labels than 255", 0, 0, [](Arguments& a) { a.max_label = 300; }},
    {"an input of more frames", kOnHost, kBadParam, [](Arguments& a) { a.input_lengths[1] = 6; }},
    {"an input below zero", kOnHost, kBadParam, [](Arguments& a) { a.input_lengths[0] = -1; }},
    {"an input without frames", 0, 0, [](Arguments& a) { a.input_lengths[0] = 0; }},
    {"a label below zero", kOnHost, kBadParam, [](Arguments& a) { a.label_lengths[0] = -2; }},
    {"a label that no path fits", 0, 0, [](Arguments& a) { a.label_lengths = {3, 3}; }},
    {"gradients without memory", kCalls, kBadParam, [](Arguments& a) { a.has_gradients = false; }},
    {"gradients without descriptor", kCalls, kBadParam,
     [](Arguments& a) { a.describes_gradients = false; }},
    {"no gradients", 0, 0, [](Arguments& a) { a.has_gradients = a.describes_gradients = false; }},
    {"no bytes of work space", kCalls, kBadParam, [](Arguments& a) { a.work = INT64_MIN; }},
    {"a work space of a byte less", kCalls, kBadParam, [](Arguments& a) { a.work = -1; }},
    {"a work space that words straddle", kCalls, kBadParam,
     [](Arguments& a) { a.work_offset = 4; }},
};

class CtcArguments : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    void* const library = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    client_ = std::make_unique<LegacyClient>(library);
    ASSERT_EQ(KILN_CALL(*client_, cudnnCreate, &handle_), CUDNN_STATUS_SUCCESS);
    KILN_CALL(*client_, cudnnSetStream, handle_, static_cast<cudaStream_t>(device_->stream()));
    memory_ = std::make_unique<Buffer>(*device_, kSlots * kSlot);
  }
  void TearDown() override {
    memory_.reset();
    if (handle_ != nullptr) KILN_CALL(*client_, cudnnDestroy, handle_);
  }

  cudnnStatus_t Run(Functions function, const Arguments& a) {
    auto loss = client_->New<cudnnCTCLossDescriptor_t>("CTCLoss");
    EXPECT_EQ(KILN_CALL(*client_, cudnnSetCTCLossDescriptor_v8, loss, a.compute,
                        static_cast<cudnnLossNormalizationMode_t>(a.normalization),
                        static_cast<cudnnNanPropagation_t>(a.gradient_mode), a.max_label),
              CUDNN_STATUS_SUCCESS);
    const cudnnTensorDescriptor_t probs = Describe(a.probs), gradients = a.describes_gradients
                                                                             ? Describe(a.gradients)
                                                                             : nullptr;
    const auto algorithm = static_cast<cudnnCTCLossAlgo_t>(a.algorithm);
    const int labels[] = {1, 2, 3, 1, 2, 3};
    const auto size = [&](bool on_device, size_t* bytes) {
      if (on_device)
        return KILN_CALL(*client_, cudnnGetCTCLossWorkspaceSize_v8, handle_, algorithm, loss, probs,
                         gradients, bytes);
      return KILN_CALL(*client_, cudnnGetCTCLossWorkspaceSize, handle_, probs, gradients,
                       static_cast<const int*>(labels), a.label_lengths.data(),
                       a.input_lengths.data(), algorithm, loss, bytes);
    };
    size_t bytes = 0;
    const cudnnStatus_t sized = size((function & kOnDevice) != 0, &bytes);
    if ((function & kCalls) == 0) return sized;
    if (a.work == INT64_MIN) bytes = 0;
    if (sized == CUDNN_STATUS_SUCCESS && a.work != INT64_MIN) bytes += static_cast<size_t>(a.work);
    Fill();
    void *const to = a.has_gradients ? At(kGradients) : nullptr, *const work =
                                                                     At(kWork) + a.work_offset;
    if (function == kCall)
      return KILN_CALL(*client_, cudnnCTCLoss, handle_, probs, Const(kProbs),
                       static_cast<const int*>(labels), a.label_lengths.data(),
                       a.input_lengths.data(), At(kCosts), gradients, to, algorithm, loss, work,
                       bytes);
    Put(kLabels, {labels, labels + 6});
    Put(kLabelLengths, a.label_lengths);
    Put(kInputLengths, a.input_lengths);
    const auto ints = [&](size_t slot) { return static_cast<const int*>(Const(slot)); };
    return KILN_CALL(*client_, cudnnCTCLoss_v8, handle_, algorithm, loss, probs, Const(kProbs),
                     ints(kLabels), ints(kLabelLengths), ints(kInputLengths), At(kCosts), gradients,
                     to, bytes, work);
  }

  // Costs and gradients are as before the call.
  bool IsUntouched() {
    EXPECT_EQ(device_->Synchronize(), "");
    std::vector<uint8_t> bytes(2 * kSlot);
    device_->CopyOut(bytes.data(), At(kCosts), bytes.size());
    return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == kPoison; });
  }

 private:
  static constexpr size_t kSlot = 1024, kSlots = 1024;
  enum Slot : size_t { kProbs, kLabels, kLabelLengths, kInputLengths, kCosts, kGradients, kWork };
  static constexpr uint8_t kPoison = 0x5a;

  char* At(size_t slot) { return reinterpret_cast<char*>(memory_->data()) + slot * kSlot; }
  const void* Const(size_t slot) { return At(slot); }
  void Fill() {
    const std::vector<uint8_t> zeros(kSlots * kSlot, 0), poison(2 * kSlot, kPoison);
    device_->CopyIn(At(0), zeros.data(), zeros.size());
    device_->CopyIn(At(kCosts), poison.data(), poison.size());
  }
  void Put(size_t slot, const std::vector<int>& values) {
    device_->CopyIn(At(slot), values.data(), values.size() * sizeof(int));
  }
  cudnnTensorDescriptor_t Describe(const Tensor& t) {
    auto desc = client_->New<cudnnTensorDescriptor_t>("Tensor");
    if (!t.is_set) return desc;
    std::vector<int> strides(t.dims.size(), 1);
    for (size_t d = strides.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * t.dims[d + 1];
    EXPECT_EQ(KILN_CALL(*client_, cudnnSetTensorNdDescriptor, desc, t.type,
                        static_cast<int>(t.dims.size()), t.dims.data(),
                        static_cast<const int*>(strides.data())),
              CUDNN_STATUS_SUCCESS);
    return desc;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<LegacyClient> client_;
  cudnnHandle_t handle_ = nullptr;
  std::unique_ptr<Buffer> memory_;
};

TEST_F(CtcArguments, ThatDoNotFitAreRefused) {
  for (const auto& [function, name] : kNames) {
    ASSERT_EQ(Run(function, {}), CUDNN_STATUS_SUCCESS) << name;
    for (const Row& row : kRows) {
      Arguments a;
      row.change(a);
      const bool is_refused = (row.refused & function) != 0;
      EXPECT_EQ(Run(function, a) / 1000, is_refused ? row.thousand : 0) << name << ", " << row.name;
      if (is_refused && (function & kCalls) != 0) {
        EXPECT_TRUE(IsUntouched()) << name << row.name;
      }
    }
  }
}

}  // namespace
}  // namespace kiln::testing
