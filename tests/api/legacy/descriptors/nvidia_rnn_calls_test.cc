// Arguments that do not fit one another, one at a time, in the calls of recurrent networks: each is
// BAD_PARAM here, on memory of the host, and in NVIDIA's 9.19, which looks at descriptors and sizes
// before it looks for a GPU. NVIDIA's is not given what it takes: that would reach for the device.
// Its half is skipped where 9.19 is not installed.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/support/legacy_client.h"
#include "tests/support/nvidia_library.h"

namespace {

using kiln::testing::LegacyClient;

// ---- a call, and what may be changed of it: an LSTM of 2 sequences of 4 steps, 3 -> 5 elements

struct Data {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int steps = 4, batch = 2, width = 3;
  std::vector<int> lengths = {4, 4, 4};
  bool is_set = true;
};
struct State {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int> dims = {1, 2, 5};
  int gap = 0;  // elements between sequences
  bool is_set = true, is_null = false;
};
struct Arguments {
  Data x, y = {.width = 5};
  State h, c;
  int cell = CUDNN_LSTM, input_mode = CUDNN_LINEAR_INPUT, hidden = 5,
      mode = CUDNN_FWD_MODE_TRAINING, wgrad = CUDNN_WGRAD_MODE_ADD;
  unsigned flags = CUDNN_RNN_PADDED_IO_ENABLED;
  bool has_network = true;
  int64_t weights = 0, work = 0, reserve = 0;  // bytes more than enough
  size_t work_offset = 0;
};

enum Calls : unsigned { kForward = 1, kData = 2, kWeights = 4, kSizes = 8 };
constexpr unsigned kCompute = kForward | kData | kWeights, kAll = kCompute | kSizes;
constexpr std::pair<Calls, const char*> kNames[] = {{kForward, "cudnnRNNForward"},
                                                    {kData, "cudnnRNNBackwardData_v8"},
                                                    {kWeights, "cudnnRNNBackwardWeights_v8"},
                                                    {kSizes, "cudnnGetRNNTempSpaceSizes"}};

struct Row {
  const char* name;
  unsigned refused;    // by these calls; the others take it
  unsigned by_nvidia;  // by these of them in 9.19
  std::function<void(Arguments&)> change;
};

constexpr unsigned kNvidiaToo = kAll, kKilnAlone = 0;

const Row kRows[] = {
    {"x of doubles", kAll, kNvidiaToo, [](Arguments& a) { a.x.type = CUDNN_DATA_DOUBLE; }},
    {"x of half", kAll, kNvidiaToo, [](Arguments& a) { a.x.type = CUDNN_DATA_HALF; }},
    {"x and y of half", kAll, kNvidiaToo,
     [](Arguments& a) { a.x.type = a.y.type = CUDNN_DATA_HALF; }},
    {"a wider x", kAll, kNvidiaToo, [](Arguments& a) { a.x.width = 4; }},
    {"an x that is not set", kAll, kNvidiaToo, [](Arguments& a) { a.x.is_set = false; }},
    {"x by batch", kCompute, kNvidiaToo,
     [](Arguments& a) { a.x.layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED; }},
    {"a packed x", kCompute, kNvidiaToo,
     [](Arguments& a) { a.x.layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED; }},
    {"x of more steps", kCompute, kNvidiaToo, [](Arguments& a) { a.x.steps = 5; }},
    {"x of more sequences", kCompute, kNvidiaToo, [](Arguments& a) { a.x.batch = 3; }},
    {"x of other lengths", kCompute, kNvidiaToo, [](Arguments& a) { a.x.lengths = {4, 3}; }},
    {"y of doubles", kCompute, kNvidiaToo, [](Arguments& a) { a.y.type = CUDNN_DATA_DOUBLE; }},
    {"a wider y", kCompute, kNvidiaToo, [](Arguments& a) { a.y.width = 10; }},
    {"a y that is not set", kCompute, kNvidiaToo, [](Arguments& a) { a.y.is_set = false; }},
    {"y by batch", kCompute, kNvidiaToo,
     [](Arguments& a) { a.y.layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED; }},
    {"y of more steps", kCompute, kNvidiaToo, [](Arguments& a) { a.y.steps = 5; }},
    {"y of more sequences", kCompute, kNvidiaToo, [](Arguments& a) { a.y.batch = 3; }},
    {"y of other lengths", kCompute, kNvidiaToo, [](Arguments& a) { a.y.lengths = {4, 3}; }},
    {"padding that is not allowed", kCompute, kNvidiaToo,
     [](Arguments& a) {
       a.flags = 0;
       a.x.lengths = a.y.lengths = {4, 3};
     }},
    {"whole sequences by batch, padding not allowed", kCompute, kNvidiaToo,
     [](Arguments& a) {
       a.flags = 0;
       a.x.layout = a.y.layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;
     }},
    {"states of two layers", kCompute, kNvidiaToo, [](Arguments& a) { a.h.dims[0] = 2; }},
    {"states of three sequences", kCompute, kNvidiaToo, [](Arguments& a) { a.h.dims[1] = 3; }},
    {"wider states", kCompute, kNvidiaToo, [](Arguments& a) { a.h.dims[2] = 6; }},
    {"states with gaps", kCompute, kNvidiaToo, [](Arguments& a) { a.h.gap = 3; }},
    {"states that are not set", kCompute, kNvidiaToo, [](Arguments& a) { a.h.is_set = false; }},
    {"states without descriptor", kCompute, kNvidiaToo, [](Arguments& a) { a.h.is_null = true; }},
    {"states of half", 0, kKilnAlone, [](Arguments& a) { a.h.type = CUDNN_DATA_HALF; }},
    {"states of doubles", 0, kKilnAlone, [](Arguments& a) { a.h.type = CUDNN_DATA_DOUBLE; }},
    {"states of bytes", 0, kKilnAlone, [](Arguments& a) { a.h.type = CUDNN_DATA_INT8; }},
    {"states with a fourth dim", kCompute, kKilnAlone,
     [](Arguments& a) { a.h.dims = {1, 2, 5, 2}; }},
    {"cells of two layers", kForward | kData, kNvidiaToo, [](Arguments& a) { a.c.dims[0] = 2; }},
    {"cells of three sequences", kForward | kData, kNvidiaToo,
     [](Arguments& a) { a.c.dims[1] = 3; }},
    {"wider cells", kForward | kData, kNvidiaToo, [](Arguments& a) { a.c.dims[2] = 6; }},
    {"cells with gaps", kForward | kData, kNvidiaToo, [](Arguments& a) { a.c.gap = 3; }},
    {"cells that are not set", kForward | kData, kNvidiaToo,
     [](Arguments& a) { a.c.is_set = false; }},
    {"cells without descriptor", kForward | kData, kNvidiaToo,
     [](Arguments& a) { a.c.is_null = true; }},
    {"cells of half", 0, kKilnAlone, [](Arguments& a) { a.c.type = CUDNN_DATA_HALF; }},
    {"cells of integers", 0, kKilnAlone, [](Arguments& a) { a.c.type = CUDNN_DATA_INT32; }},
    {"a GRU does not look at cells", 0, kKilnAlone,
     [](Arguments& a) {
       a.cell = CUDNN_GRU;
       a.c.dims = {7, 7, 7};
       a.c.type = CUDNN_DATA_HALF;
     }},
    {"an input to skip that is narrower", kAll, kKilnAlone,
     [](Arguments& a) { a.input_mode = CUDNN_SKIP_INPUT; }},
    {"weights of a byte less", kCompute, kNvidiaToo, [](Arguments& a) { a.weights = -1; }},
    {"no bytes of weights", kCompute, kNvidiaToo, [](Arguments& a) { a.weights = INT64_MIN; }},
    {"more weights", 0, kKilnAlone, [](Arguments& a) { a.weights = 400; }},
    {"a work space of a byte less", kCompute, kNvidiaToo, [](Arguments& a) { a.work = -1; }},
    {"no bytes of work space", kCompute, kNvidiaToo, [](Arguments& a) { a.work = INT64_MIN; }},
    {"a work space that words straddle", kCompute, kKilnAlone,
     [](Arguments& a) { a.work_offset = 2; }},
    {"a reserve space of a byte less", kCompute, kNvidiaToo, [](Arguments& a) { a.reserve = -1; }},
    {"no bytes of reserve space", kCompute, kNvidiaToo,
     [](Arguments& a) { a.reserve = INT64_MIN; }},
    {"another mode", kForward | kSizes, kSizes, [](Arguments& a) { a.mode = 2; }},
    {"another mode of weights", kWeights, kNvidiaToo, [](Arguments& a) { a.wgrad = 2; }},
};

// ---- making it

class Caller {
 public:
  Caller(void* library, cudnnHandle_t handle) : client(library), handle_(handle) {}

  cudnnStatus_t Run(Calls call, const Arguments& a) {
    auto rnn = client.New<cudnnRNNDescriptor_t>("RNN");
    EXPECT_EQ(Set(rnn, a), CUDNN_STATUS_SUCCESS);
    const cudnnRNNDataDescriptor_t x = Describe(a.x), y = Describe(a.y);
    if (call == kSizes) {
      size_t bytes[2];
      return KILN_CALL(client, cudnnGetRNNTempSpaceSizes, handle_, rnn,
                       static_cast<cudnnForwardMode_t>(a.mode), x, &bytes[0], &bytes[1]);
    }
    const cudnnTensorDescriptor_t h = Describe(a.h), c = Describe(a.c);
    const size_t weights = Bytes(weights_, a.weights), work = Bytes(work_, a.work),
                 reserve = Bytes(reserve_, a.reserve);
    char* const scratch = Place(kScratch) + a.work_offset;
    if (call == kForward)
      return KILN_CALL(client, cudnnRNNForward, handle_, rnn,
                       static_cast<cudnnForwardMode_t>(a.mode), nullptr, x, Const(0), y, Place(1),
                       h, Const(2), Place(3), c, Const(4), Place(5), weights, Const(6), work,
                       scratch, reserve, Place(kReserve));
    if (call == kData)
      return KILN_CALL(client, cudnnRNNBackwardData_v8, handle_, rnn, nullptr, y, Const(1),
                       Const(7), x, Place(8), h, Const(2), Const(9), Place(10), c, Const(4),
                       Const(11), Place(12), weights, Const(6), work, scratch, reserve,
                       Place(kReserve));
    return KILN_CALL(client, cudnnRNNBackwardWeights_v8, handle_, rnn,
                     static_cast<cudnnWgradMode_t>(a.wgrad), nullptr, x, Const(0), h, Const(2), y,
                     Const(1), weights, Place(13), work, scratch, reserve, Place(kReserve));
  }

  // Bytes that the calls of right arguments need. NVIDIA's tells without a GPU, and then fails.
  void Measure() {
    auto rnn = client.New<cudnnRNNDescriptor_t>("RNN");
    const Arguments a;
    ASSERT_EQ(Set(rnn, a), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(KILN_CALL(client, cudnnGetRNNWeightSpaceSize, handle_, rnn, &weights_),
              CUDNN_STATUS_SUCCESS);
    KILN_CALL(client, cudnnGetRNNTempSpaceSizes, handle_, rnn, CUDNN_FWD_MODE_TRAINING,
              Describe(a.x), &work_, &reserve_);
    ASSERT_GT(work_, 0u);
    ASSERT_GT(reserve_, 0u);
    memory_.assign(kReserve * kSlot + work_ + reserve_ + 2 * kSlot, 0);
  }

  std::string Sentence() {
    char text[512] = {};
    client.LastError(text, sizeof text);
    return text;
  }

  LegacyClient client;

 private:
  // Operands have a slot each; the spaces are behind them.
  static constexpr size_t kSlot = 4096, kScratch = 14, kReserve = 15;

  char* Place(size_t slot) {
    const size_t aligned = 64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64;
    const size_t before = slot == kReserve ? (work_ + kSlot) / kSlot * kSlot : 0;
    return memory_.data() + aligned + slot * kSlot + before;
  }
  const char* Const(size_t slot) { return Place(slot); }
  static size_t Bytes(size_t enough, int64_t more) {
    if (more == INT64_MIN) return 0;
    return enough + static_cast<size_t>(more);
  }
  cudnnStatus_t Set(cudnnRNNDescriptor_t rnn, const Arguments& a) {
    return KILN_CALL(client, cudnnSetRNNDescriptor_v8, rnn, CUDNN_RNN_ALGO_STANDARD,
                     static_cast<cudnnRNNMode_t>(a.cell), CUDNN_RNN_DOUBLE_BIAS,
                     CUDNN_UNIDIRECTIONAL, static_cast<cudnnRNNInputMode_t>(a.input_mode),
                     CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 3, a.hidden, a.hidden,
                     1, static_cast<cudnnDropoutDescriptor_t>(nullptr), a.flags);
  }
  cudnnRNNDataDescriptor_t Describe(const Data& d) {
    auto desc = client.New<cudnnRNNDataDescriptor_t>("RNNData");
    std::vector<int> lengths = d.lengths;
    lengths.resize(static_cast<size_t>(d.batch), d.steps);
    if (d.is_set && d.steps > 4) lengths.assign(lengths.size(), d.steps);
    if (d.is_set) {
      EXPECT_EQ(KILN_CALL(client, cudnnSetRNNDataDescriptor, desc, d.type, d.layout, d.steps,
                          d.batch, d.width, static_cast<const int*>(lengths.data()), nullptr),
                CUDNN_STATUS_SUCCESS);
    }
    return desc;
  }
  cudnnTensorDescriptor_t Describe(const State& s) {
    if (s.is_null) return nullptr;
    auto desc = client.New<cudnnTensorDescriptor_t>("Tensor");
    if (!s.is_set) return desc;
    std::vector<int> strides(s.dims.size(), 1);
    for (size_t d = s.dims.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * s.dims[d + 1];
    strides[1] += s.gap;
    strides[0] = strides[1] * s.dims[1];
    EXPECT_EQ(
        KILN_CALL(client, cudnnSetTensorNdDescriptor, desc, s.type, static_cast<int>(s.dims.size()),
                  static_cast<const int*>(s.dims.data()), static_cast<const int*>(strides.data())),
        CUDNN_STATUS_SUCCESS);
    return desc;
  }

  cudnnHandle_t handle_;
  size_t weights_ = 0, work_ = 0, reserve_ = 0;
  std::vector<char> memory_;
};

bool IsBadParam(cudnnStatus_t status) { return status / 1000 == 2; }

TEST(RnnCallArguments, ThatDoNotFitAreRefused) {
  void* const ours = dlopen("api/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(ours, nullptr) << dlerror();
  cudnnHandle_t handle = nullptr;
  {
    LegacyClient client(ours);
    ASSERT_EQ(KILN_CALL(client, cudnnCreate, &handle), CUDNN_STATUS_SUCCESS);
  }
  for (const auto& [call, name] : kNames) {
    Caller caller(ours, handle);
    caller.Measure();
    ASSERT_EQ(caller.Run(kForward, {}), CUDNN_STATUS_SUCCESS) << caller.Sentence();
    ASSERT_EQ(caller.Run(call, {}), CUDNN_STATUS_SUCCESS) << caller.Sentence();
    for (const Row& row : kRows) {
      Arguments a;
      row.change(a);
      const cudnnStatus_t status = caller.Run(call, a);
      if ((row.refused & call) != 0)
        EXPECT_TRUE(IsBadParam(status)) << name << ", " << row.name << ": " << status;
      else
        EXPECT_EQ(status, CUDNN_STATUS_SUCCESS) << name << ", " << row.name << caller.Sentence();
    }
  }
  LegacyClient client(ours);
  KILN_CALL(client, cudnnDestroy, handle);
}

TEST(RnnCallArguments, ThatNvidiasRefusesAreThose) {
  const std::string path = kiln::testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  void* const theirs = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (theirs == nullptr) GTEST_SKIP() << path << " does not load: " << dlerror();
  if (kiln::testing::ProbeVersion(path) / 100 != 919) GTEST_SKIP() << path << " is not 9.19";
  std::vector<char> zeros(1 << 20);
  for (const auto& [call, name] : kNames) {
    Caller caller(theirs, reinterpret_cast<cudnnHandle_t>(zeros.data()));
    caller.Measure();
    for (const Row& row : kRows) {
      if ((row.refused & row.by_nvidia & call) == 0) continue;
      Arguments a;
      row.change(a);
      EXPECT_TRUE(IsBadParam(caller.Run(call, a))) << name << ", " << row.name;
    }
  }
}

}  // namespace
