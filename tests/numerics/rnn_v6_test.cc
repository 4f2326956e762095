// Recurrent networks as programs written for cuDNN 6 and 7 have them: a network of properties, an
// array of tensor descriptors, weights behind a filter descriptor, searches for algorithms. Results
// are those of the calls of 8 on packed data, bit for bit. Part of rnn_calls_{cpu,gpu}_v8_test.
#include <gtest/gtest.h>

#include <memory>

#include "tests/numerics/rnn_network.h"

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

// The descriptors of the old calls for a network of the new ones.
class OldNetwork {
 public:
  OldNetwork(cudnnHandle_t handle, const RnnConfig& c) : handle_(handle), config_(c) {
    RNN_CALL(cudnnCreateRNNDescriptor, &rnn);
    EXPECT_EQ(RNN_CALL(cudnnSetRNNDescriptor_v6, handle, rnn, c.hidden, c.layers, nullptr,
                       c.input_mode, c.direction, c.cell, c.algo, CUDNN_DATA_FLOAT),
              kOk);
    if (c.projected != c.hidden) {
      EXPECT_EQ(RNN_CALL(cudnnSetRNNProjectionLayers, handle, rnn, c.projected, 0), kOk);
    }
    EXPECT_EQ(RNN_CALL(cudnnSetRNNBiasMode, rnn, c.bias), kOk);
    EXPECT_EQ(RNN_CALL(cudnnSetRNNMatrixMathType, rnn, CUDNN_FMA_MATH), kOk);
    EXPECT_EQ(RNN_CALL(cudnnSetRNNPaddingMode, rnn, CUDNN_RNN_PADDED_IO_ENABLED), kOk);
    for (int t = 0; t < c.steps; ++t) {
      int rows = 0;
      for (int b = 0; b < c.batch; ++b) rows += t < c.Length(b);
      x.push_back(Step(rows, c.input));
      y.push_back(Step(rows, c.projected * c.Directions()));
    }
    size_t bytes = 0;
    EXPECT_EQ(RNN_CALL(cudnnGetRNNParamsSize, handle, rnn, x[0], &bytes, CUDNN_DATA_FLOAT), kOk);
    const int dims[3] = {static_cast<int>(bytes / 4), 1, 1};
    RNN_CALL(cudnnCreateFilterDescriptor, &w);
    EXPECT_EQ(RNN_CALL(cudnnSetFilterNdDescriptor, w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 3, dims),
              kOk);
    weight_bytes = bytes;
    EXPECT_EQ(RNN_CALL(cudnnGetRNNWorkspaceSize, handle, rnn, c.steps, x.data(), &work_bytes), kOk);
    EXPECT_EQ(
        RNN_CALL(cudnnGetRNNTrainingReserveSize, handle, rnn, c.steps, x.data(), &reserve_bytes),
        kOk);
  }
  ~OldNetwork() {
    for (cudnnTensorDescriptor_t t : x) RNN_CALL(cudnnDestroyTensorDescriptor, t);
    for (cudnnTensorDescriptor_t t : y) RNN_CALL(cudnnDestroyTensorDescriptor, t);
    RNN_CALL(cudnnDestroyFilterDescriptor, w);
    RNN_CALL(cudnnDestroyRNNDescriptor, rnn);
  }
  OldNetwork(const OldNetwork&) = delete;

  cudnnStatus_t Inference(const RnnNetworkRun& r) const {
    return RNN_CALL(cudnnRNNForwardInference, handle_, rnn, config_.steps, x.data(), r.x.data(),
                    r.h_desc, r.hx.data(), r.c_desc, r.cx.data(), w, r.w.data(), y.data(),
                    r.y.data(), r.h_desc, r.hy.data(), r.c_desc, r.cy.data(), r.work.data(),
                    work_bytes);
  }
  cudnnStatus_t Training(const RnnNetworkRun& r) const {
    return RNN_CALL(cudnnRNNForwardTraining, handle_, rnn, config_.steps, x.data(), r.x.data(),
                    r.h_desc, r.hx.data(), r.c_desc, r.cx.data(), w, r.w.data(), y.data(),
                    r.y.data(), r.h_desc, r.hy.data(), r.c_desc, r.cy.data(), r.work.data(),
                    work_bytes, r.reserve.data(), reserve_bytes);
  }
  cudnnStatus_t Data(const RnnNetworkRun& r) const {
    return RNN_CALL(cudnnRNNBackwardData, handle_, rnn, config_.steps, y.data(), r.y.data(),
                    y.data(), r.dy.data(), r.h_desc, r.dhy.data(), r.c_desc, r.dcy.data(), w,
                    r.w.data(), r.h_desc, r.hx.data(), r.c_desc, r.cx.data(), x.data(), r.dx.data(),
                    r.h_desc, r.dhx.data(), r.c_desc, r.dcx.data(), r.work.data(), work_bytes,
                    r.reserve.data(), reserve_bytes);
  }
  cudnnStatus_t Weights(const RnnNetworkRun& r) const {
    return RNN_CALL(cudnnRNNBackwardWeights, handle_, rnn, config_.steps, x.data(), r.x.data(),
                    r.h_desc, r.hx.data(), y.data(), r.y.data(), r.work.data(), work_bytes, w,
                    r.dw.data(), r.reserve.data(), reserve_bytes);
  }

  cudnnRNNDescriptor_t rnn = nullptr;
  std::vector<cudnnTensorDescriptor_t> x, y;
  cudnnFilterDescriptor_t w = nullptr;
  size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 0;

 private:
  static cudnnTensorDescriptor_t Step(int rows, int width) {
    cudnnTensorDescriptor_t t = nullptr;
    const int dims[3] = {rows, width, 1}, strides[3] = {width, 1, 1};
    RNN_CALL(cudnnCreateTensorDescriptor, &t);
    EXPECT_EQ(RNN_CALL(cudnnSetTensorNdDescriptor, t, CUDNN_DATA_FLOAT, 3, dims, strides), kOk);
    return t;
  }

  cudnnHandle_t handle_;
  const RnnConfig config_;
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
    ASSERT_EQ(old.Weights(then), kOk);
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
  ASSERT_EQ(
      RNN_CALL(cudnnRNNForwardTrainingEx, handle_, old.rnn, then.x_desc, then.x.data(), then.h_desc,
               then.hx.data(), then.c_desc, then.cx.data(), old.w, then.w.data(), then.y_desc,
               then.y.data(), then.h_desc, then.hy.data(), then.c_desc, then.cy.data(), nullptr,
               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, then.work.data(),
               then.work_bytes, then.reserve.data(), then.reserve_bytes),
      kOk);
  EXPECT_EQ(then.y.Bytes(), now.y.Bytes());
  EXPECT_EQ(then.cy.Bytes(), now.cy.Bytes());
  ASSERT_EQ(now.BackwardData(), kOk);
  ASSERT_EQ(RNN_CALL(cudnnRNNBackwardDataEx, handle_, old.rnn, then.y_desc, then.y.data(),
                     then.y_desc, then.dy.data(), nullptr, nullptr, then.h_desc, then.dhy.data(),
                     then.c_desc, then.dcy.data(), old.w, then.w.data(), then.h_desc,
                     then.hx.data(), then.c_desc, then.cx.data(), then.x_desc, then.dx.data(),
                     then.h_desc, then.dhx.data(), then.c_desc, then.dcx.data(), nullptr, nullptr,
                     then.work.data(), then.work_bytes, then.reserve.data(), then.reserve_bytes),
            kOk);
  EXPECT_EQ(then.dx.Bytes(), now.dx.Bytes());
  ASSERT_EQ(now.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk);
  ASSERT_EQ(
      RNN_CALL(cudnnRNNBackwardWeightsEx, handle_, old.rnn, then.x_desc, then.x.data(), then.h_desc,
               then.hx.data(), then.y_desc, then.y.data(), then.work.data(), then.work_bytes, old.w,
               then.dw.data(), then.reserve.data(), then.reserve_bytes),
      kOk);
  EXPECT_EQ(then.dw.Bytes(), now.dw.Bytes());
  ASSERT_EQ(RNN_CALL(cudnnRNNForwardInferenceEx, handle_, old.rnn, then.x_desc, then.x.data(),
                     then.h_desc, then.hx.data(), then.c_desc, then.cx.data(), old.w, then.w.data(),
                     then.y_desc, then.y.data(), nullptr, nullptr, nullptr, nullptr, nullptr,
                     nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                     then.work.data(), then.work_bytes),
            kOk);
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
