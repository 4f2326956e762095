// Recurrent networks as programs written for cuDNN 6 and 7 have them: a network of properties, an
// array of tensor descriptors, weights behind a filter descriptor, searches for algorithms. Results
// are those of the calls of 8 on packed data, bit for bit. Part of rnn_calls_{cpu,gpu}_v8_test.
#include <gtest/gtest.h>

#include <memory>

#include "tests/numerics/rnn_old_network.h"

namespace kiln::testing {
namespace {

constexpr cudnnStatus_t kOk = CUDNN_STATUS_SUCCESS;

class RnnV6 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    ASSERT_EQ(RNN_CALL(cudnnCreate, &handle_), kOk);
    ASSERT_EQ(RNN_CALL(cudnnSetStream, handle_, static_cast<cudaStream_t>(device_->stream())), kOk);
  }
  static void TearDownTestSuite() {
    RNN_CALL(cudnnDestroy, handle_);
    device_.reset();
  }
  static inline std::unique_ptr<Device> device_;
  static inline cudnnHandle_t handle_ = nullptr;
};

RnnConfig Packed(cudnnRNNMode_t cell) {
  return {.cell = cell,
          .direction = CUDNN_BIDIRECTIONAL,
          .layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
          .steps = 4,
          .batch = 3,
          .lengths = {4, 2, 1},
          .layers = 2};
}

TEST_F(RnnV6, ArraysOfDescriptorsGiveTheBitsOfPackedData) {
  for (const cudnnRNNMode_t cell : {CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU}) {
    SCOPED_TRACE(static_cast<int>(cell));
    const RnnConfig config = Packed(cell);
    RnnNetworkRun now(*device_, handle_, config), then(*device_, handle_, config);
    const OldNetwork old(handle_, config);
    EXPECT_EQ(old.weight_bytes, now.weight_bytes);
    EXPECT_EQ(old.work_bytes, now.work_bytes);
    EXPECT_EQ(old.reserve_bytes, now.reserve_bytes);
    ASSERT_EQ(now.Forward(CUDNN_FWD_MODE_TRAINING), kOk);
    ASSERT_EQ(old.Inference(then), kOk);
    EXPECT_EQ(then.y.Bytes(), now.y.Bytes());
    ASSERT_EQ(old.Training(then), kOk);
    EXPECT_EQ(then.y.Bytes(), now.y.Bytes());
    EXPECT_EQ(then.hy.Bytes(), now.hy.Bytes());
    ASSERT_EQ(now.BackwardData(), kOk);
    ASSERT_EQ(old.Data(then), kOk);
    EXPECT_EQ(then.dx.Bytes(), now.dx.Bytes());
    EXPECT_EQ(then.dhx.Bytes(), now.dhx.Bytes());
    ASSERT_EQ(now.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk);
    ASSERT_EQ(old.WeightGradients(then), kOk);
    EXPECT_EQ(then.dw.Bytes(), now.dw.Bytes());
    EXPECT_EQ(then.CheckWeightGradients(1), "");
  }
}

TEST_F(RnnV6, TheExFormsGiveTheBitsOfTheOthers) {
  RnnConfig config = Packed(CUDNN_LSTM);
  config.layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED;
  config.lengths = {1, 4, 2};
  RnnNetworkRun now(*device_, handle_, config), then(*device_, handle_, config);
  const OldNetwork old(handle_, Packed(CUDNN_LSTM));
  ASSERT_EQ(now.Forward(CUDNN_FWD_MODE_TRAINING), kOk);
  ASSERT_EQ(old.TrainingEx(then), kOk);
  EXPECT_EQ(then.y.Bytes(), now.y.Bytes());
  EXPECT_EQ(then.cy.Bytes(), now.cy.Bytes());
  ASSERT_EQ(now.BackwardData(), kOk);
  ASSERT_EQ(old.DataEx(then), kOk);
  EXPECT_EQ(then.dx.Bytes(), now.dx.Bytes());
  ASSERT_EQ(now.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk);
  ASSERT_EQ(old.WeightGradientsEx(then), kOk);
  EXPECT_EQ(then.dw.Bytes(), now.dw.Bytes());
  ASSERT_EQ(old.InferenceEx(then), kOk);
  EXPECT_EQ(then.CheckForward(), "");
  EXPECT_EQ(
      RNN_CALL(cudnnRNNForwardInferenceEx, handle_, old.rnn, then.x_desc, then.x.data(), nullptr,
               nullptr, nullptr, nullptr, old.w, then.w.data(), then.y_desc, then.y.data(), nullptr,
               nullptr, nullptr, nullptr, nullptr, then.x.data(), nullptr, nullptr, nullptr,
               nullptr, nullptr, nullptr, then.work.data(), then.work_bytes),
      CUDNN_STATUS_NOT_SUPPORTED);
}

// The search, as NVIDIA's samples have it: results name algorithms that the network then takes.
TEST_F(RnnV6, ASearchListsAlgorithmsThatTheNetworkTakes) {
  const RnnConfig config = Packed(CUDNN_LSTM);
  RnnNetworkRun run(*device_, handle_, config);
  const OldNetwork old(handle_, config);
  int most = 0, found = 0;
  ASSERT_EQ(RNN_CALL(cudnnGetRNNForwardTrainingAlgorithmMaxCount, handle_, old.rnn, &most), kOk);
  ASSERT_GT(most, 0);
  std::vector<cudnnAlgorithmPerformance_t> results(static_cast<size_t>(most));
  ASSERT_EQ(RNN_CALL(cudnnCreateAlgorithmPerformance, results.data(), most), kOk);
  ASSERT_EQ(RNN_CALL(cudnnFindRNNForwardTrainingAlgorithmEx, handle_, old.rnn, config.steps,
                     old.x.data(), run.x.data(), run.h_desc, run.hx.data(), run.c_desc,
                     run.cx.data(), old.w, run.w.data(), old.y.data(), run.y.data(), run.h_desc,
                     run.hy.data(), run.c_desc, run.cy.data(), 1.0f, most, &found, results.data(),
                     run.work.data(), old.work_bytes, run.reserve.data(), old.reserve_bytes),
            kOk);
  EXPECT_EQ(run.CheckForward(), "");
  EXPECT_EQ(found, most);
  for (int i = 0; i < found; ++i) {
    cudnnAlgorithmDescriptor_t algorithm = nullptr;
    cudnnStatus_t status = CUDNN_STATUS_INTERNAL_ERROR;
    float time = -1;
    size_t memory = 0;
    ASSERT_EQ(RNN_CALL(cudnnGetAlgorithmPerformance, results[static_cast<size_t>(i)], &algorithm,
                       &status, &time, &memory),
              kOk);
    EXPECT_EQ(status, kOk);
    EXPECT_GE(time, 0);
    EXPECT_EQ(RNN_CALL(cudnnSetRNNAlgorithmDescriptor, handle_, old.rnn, algorithm), kOk);
    EXPECT_EQ(old.Training(run), kOk);
  }
  EXPECT_EQ(RNN_CALL(cudnnDestroyAlgorithmPerformance, results.data(), most), kOk);
}

// The other searches leave what their calls would; of weights, which are added to, what is found.
TEST_F(RnnV6, SearchesLeaveTheResultsOfTheirCalls) {
  const RnnConfig config = Packed(CUDNN_GRU);
  RnnNetworkRun run(*device_, handle_, config);
  const OldNetwork old(handle_, config);
  cudnnAlgorithmPerformance_t result = nullptr;
  int found = 0;
  ASSERT_EQ(RNN_CALL(cudnnCreateAlgorithmPerformance, &result, 1), kOk);
  ASSERT_EQ(
      RNN_CALL(cudnnFindRNNForwardInferenceAlgorithmEx, handle_, old.rnn, config.steps,
               old.x.data(), run.x.data(), run.h_desc, run.hx.data(), run.c_desc, nullptr, old.w,
               run.w.data(), old.y.data(), run.y.data(), run.h_desc, run.hy.data(), run.c_desc,
               nullptr, 1.0f, 1, &found, &result, run.work.data(), old.work_bytes),
      kOk);
  EXPECT_EQ(found, 1);
  EXPECT_EQ(run.CheckForward(), "");
  ASSERT_EQ(old.Training(run), kOk);
  ASSERT_EQ(RNN_CALL(cudnnFindRNNBackwardDataAlgorithmEx, handle_, old.rnn, config.steps,
                     old.y.data(), run.y.data(), old.y.data(), run.dy.data(), run.h_desc,
                     run.dhy.data(), run.c_desc, nullptr, old.w, run.w.data(), run.h_desc,
                     run.hx.data(), run.c_desc, nullptr, old.x.data(), run.dx.data(), run.h_desc,
                     run.dhx.data(), run.c_desc, nullptr, 1.0f, 1, &found, &result, run.work.data(),
                     old.work_bytes, run.reserve.data(), old.reserve_bytes),
            kOk);
  EXPECT_EQ(found, 1);
  EXPECT_EQ(run.CheckBackwardData(), "");
  found = 0;
  ASSERT_EQ(RNN_CALL(cudnnFindRNNBackwardWeightsAlgorithmEx, handle_, old.rnn, config.steps,
                     old.x.data(), run.x.data(), run.h_desc, run.hx.data(), old.y.data(),
                     run.y.data(), 1.0f, 1, &found, &result, run.work.data(), old.work_bytes, old.w,
                     run.dw.data(), run.reserve.data(), old.reserve_bytes),
            kOk);
  EXPECT_EQ(found, 1);
  EXPECT_EQ(RNN_CALL(cudnnDestroyAlgorithmPerformance, &result, 1), kOk);
}

TEST_F(RnnV6, ArraysThatAreNoPackedSequencesAreRefused) {
  const OldNetwork shorter(handle_, Packed(CUDNN_LSTM)), wider(handle_, {.steps = 4, .input = 4});
  size_t bytes = 0;
  const auto size = [&](std::vector<cudnnTensorDescriptor_t> x) {
    return RNN_CALL(cudnnGetRNNWorkspaceSize, handle_, shorter.rnn, static_cast<int>(x.size()),
                    x.data(), &bytes);
  };
  EXPECT_EQ(size(shorter.x), kOk);
  EXPECT_EQ(size({shorter.x[1], shorter.x[0]}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(size({shorter.x[0], wider.x[0]}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(size({shorter.x[0], nullptr}), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(size({}), CUDNN_STATUS_BAD_PARAM);
}

// ---- descriptors that do not fit, one at a time ----

enum OldCalls : unsigned {
  kInference = 1,
  kTraining = 2,
  kData = 4,
  kWeights = 8,
  kArrays = 15,
  kEx = kArrays << 4,  // the same calls in their Ex forms
};
constexpr unsigned kForward = 17 * (kInference | kTraining), kAnyData = 17 * kData,
                   kAll = kArrays | kEx;

struct MisfitRow {
  const char* name;
  unsigned refused;
  // `other` describes what the row is about.
  void (*change)(OldDescriptors& d, const OldDescriptors& other);
  RnnConfig other;
};

RnnConfig With(void (*change)(RnnConfig&)) {
  RnnConfig config = Packed(CUDNN_LSTM);
  change(config);
  return config;
}

const RnnConfig kHalf = With([](RnnConfig& c) { c.type = CUDNN_DATA_HALF; }),
                kDoubles = With([](RnnConfig& c) { c.type = CUDNN_DATA_DOUBLE; }),
                kWider = With([](RnnConfig& c) { c.hidden = c.projected = 6; }),
                kLonger = With([](RnnConfig& c) { c.lengths = {4, 4, 1}; }),
                kFewer = With([](RnnConfig& c) {
                  c.batch = 2;
                  c.lengths = {4, 2};
                }),
                kUnpacked =
                    With([](RnnConfig& c) { c.layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED; });

void OtherDy(OldDescriptors& d, const OldDescriptors& other) {
  d.dy = other.dy;
  d.dy_data = other.dy_data;
}
void OtherX(OldDescriptors& d, const OldDescriptors& other) {
  d.x = d.dx = other.x;
  d.x_data = d.dx_data = other.x_data;
}
void OtherY(OldDescriptors& d, const OldDescriptors& other) {
  d.y = d.dy = other.y;
  d.y_data = d.dy_data = other.y_data;
}
void OtherHx(OldDescriptors& d, const OldDescriptors& other) { d.hx = other.hx; }
void OtherHy(OldDescriptors& d, const OldDescriptors& other) { d.hy = other.hx; }
void OtherDhy(OldDescriptors& d, const OldDescriptors& other) { d.dhy = other.hx; }
void OtherDhx(OldDescriptors& d, const OldDescriptors& other) { d.dhx = other.hx; }
void OtherCx(OldDescriptors& d, const OldDescriptors& other) { d.cx = other.cx; }
void OtherCy(OldDescriptors& d, const OldDescriptors& other) { d.cy = other.cx; }
void OtherDcy(OldDescriptors& d, const OldDescriptors& other) { d.dcy = other.cx; }
void OtherDcx(OldDescriptors& d, const OldDescriptors& other) { d.dcx = other.cx; }
void OtherW(OldDescriptors& d, const OldDescriptors& other) { d.w = other.w; }
void NoWork(OldDescriptors& d, const OldDescriptors&) { d.work_bytes = 0; }
void ShortReserve(OldDescriptors& d, const OldDescriptors&) { --d.reserve_bytes; }

const MisfitRow kMisfits[] = {
    {"dy of half", kAnyData, OtherDy, kHalf},
    {"dy of doubles", kAnyData, OtherDy, kDoubles},
    {"a wider dy", kAnyData, OtherDy, kWider},
    {"a longer dy", kAnyData, OtherDy, kLonger},
    {"dy of fewer sequences", kAnyData, OtherDy, kFewer},
    {"dy in another layout", kEx& kAnyData, OtherDy, kUnpacked},
    {"x of half", kAll, OtherX, kHalf},
    {"a longer x", kAll, OtherX, kLonger},
    {"x of fewer sequences", kAll, OtherX, kFewer},
    {"y of half", kAll, OtherY, kHalf},
    {"a wider y", kAll, OtherY, kWider},
    {"a longer y", kAll, OtherY, kLonger},
    {"y in another layout", kEx, OtherY, kUnpacked},
    {"a wider hx", kAll, OtherHx, kWider},
    {"hx of fewer sequences", kAll, OtherHx, kFewer},
    {"a wider hy", kForward, OtherHy, kWider},
    {"a wider dhy", kAnyData, OtherDhy, kWider},
    {"dhx of fewer sequences", kAnyData, OtherDhx, kFewer},
    {"a wider cx", kForward | kAnyData, OtherCx, kWider},
    {"a wider cy", kForward, OtherCy, kWider},
    {"a wider dcy", kAnyData, OtherDcy, kWider},
    {"a wider dcx", kAnyData, OtherDcx, kWider},
    {"w of half", kAll, OtherW, kHalf},
    {"w of doubles, as many bytes and more", kAll, OtherW, kDoubles},
    {"no work space", kAll, NoWork, Packed(CUDNN_LSTM)},
    {"a reserve space of a byte less", kAll & ~(17u * kInference), ShortReserve,
     Packed(CUDNN_LSTM)},
};

TEST_F(RnnV6, DescriptorsThatDoNotFitAreRefused) {
  using Method = cudnnStatus_t (OldNetwork::*)(const RnnNetworkRun&, const OldDescriptors&) const;
  constexpr std::pair<const char*, Method> kCalls[] = {
      {"ForwardInference", &OldNetwork::Inference},
      {"ForwardTraining", &OldNetwork::Training},
      {"BackwardData", &OldNetwork::Data},
      {"BackwardWeights", &OldNetwork::WeightGradients},
      {"ForwardInferenceEx", &OldNetwork::InferenceEx},
      {"ForwardTrainingEx", &OldNetwork::TrainingEx},
      {"BackwardDataEx", &OldNetwork::DataEx},
      {"BackwardWeightsEx", &OldNetwork::WeightGradientsEx}};
  const RnnConfig config = Packed(CUDNN_LSTM);
  RnnNetworkRun run(*device_, handle_, config);
  const OldNetwork old(handle_, config);
  for (const auto& [name, call] : kCalls)
    ASSERT_EQ((old.*call)(run, old.Describe(run)), kOk) << name;
  for (const MisfitRow& row : kMisfits) {
    const RnnNetworkRun other_run(*device_, handle_, row.other);
    const OldNetwork other(handle_, row.other);
    OldDescriptors d = old.Describe(run);
    row.change(d, other.Describe(other_run));
    run.Poison();
    const std::vector<uint8_t> y = run.y.Bytes(), dx = run.dx.Bytes(), dw = run.dw.Bytes();
    for (unsigned i = 0; i < std::size(kCalls); ++i) {
      if (((row.refused >> i) & 1) == 0) continue;
      const auto& [name, call] = kCalls[i];
      EXPECT_EQ((old.*call)(run, d), CUDNN_STATUS_BAD_PARAM) << name << ", " << row.name;
    }
    EXPECT_TRUE(run.y.Bytes() == y && run.dx.Bytes() == dx && run.dw.Bytes() == dw) << row.name;
  }
}

TEST_F(RnnV6, PersistentPlansAreForTheDynamicAlgorithm) {
  const OldNetwork old(handle_, Packed(CUDNN_LSTM));
  cudnnPersistentRNNPlan_t plan = nullptr;
  EXPECT_EQ(RNN_CALL(cudnnCreatePersistentRNNPlan, old.rnn, 0, CUDNN_DATA_FLOAT, &plan),
            CUDNN_STATUS_BAD_PARAM);
  ASSERT_EQ(RNN_CALL(cudnnCreatePersistentRNNPlan, old.rnn, 3, CUDNN_DATA_FLOAT, &plan), kOk);
  EXPECT_EQ(RNN_CALL(cudnnSetPersistentRNNPlan, old.rnn, plan), CUDNN_STATUS_BAD_PARAM);
  ASSERT_EQ(
      RNN_CALL(cudnnSetRNNDescriptor_v6, handle_, old.rnn, 5, 2, nullptr, CUDNN_LINEAR_INPUT,
               CUDNN_BIDIRECTIONAL, CUDNN_LSTM, CUDNN_RNN_ALGO_PERSIST_DYNAMIC, CUDNN_DATA_FLOAT),
      kOk);
  EXPECT_EQ(RNN_CALL(cudnnSetPersistentRNNPlan, old.rnn, plan), kOk);
  EXPECT_EQ(RNN_CALL(cudnnDestroyPersistentRNNPlan, plan), kOk);
}

}  // namespace
}  // namespace kiln::testing
