// The calls of recurrent networks of libcudnn.so.8 and .9 against the oracle, and numbers of
// one-unit networks that were worked out by hand. Padding of inputs is NaN, and results are
// poisoned. rnn_calls_{cpu,gpu}_v{8,9}_test are this program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "tests/numerics/rnn_network.h"

namespace kiln::testing {
namespace {

constexpr cudnnStatus_t kOk = CUDNN_STATUS_SUCCESS;
constexpr cudnnForwardMode_t kTraining = CUDNN_FWD_MODE_TRAINING,
                             kInference = CUDNN_FWD_MODE_INFERENCE;
constexpr cudnnRNNMode_t kCells[] = {CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU};
constexpr cudnnRNNDataLayout_t kLayouts[] = {CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                                             CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                             CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED};

class RnnCalls : public ::testing::Test {
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
  // Forward, gradients of data, and gradients of weights.
  static void CheckAll(const RnnConfig& config) {
    SCOPED_TRACE(config.Text());
    RnnNetworkRun run(*device_, handle_, config);
    ASSERT_EQ(run.Forward(kInference), kOk) << LastError();
    EXPECT_EQ(run.CheckForward(), "") << "inference";
    run.Poison();
    ASSERT_EQ(run.Forward(kTraining), kOk) << LastError();
    EXPECT_EQ(run.CheckForward(), "") << "training";
    ASSERT_EQ(run.BackwardData(), kOk) << LastError();
    EXPECT_EQ(run.CheckBackwardData(), "");
    ASSERT_EQ(run.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk) << LastError();
    EXPECT_EQ(run.CheckWeightGradients(1), "");
    EXPECT_TRUE(run.work.GuardsHold() && run.reserve.GuardsHold());
  }
  static std::string LastError() {
#if CUDNN_MAJOR >= 9
    char text[512] = {};
    RNN_CALL(cudnnGetLastErrorString, text, sizeof text);
    return text;
#else
    return {};
#endif
  }
  static bool IsBadParam(cudnnStatus_t status) {
    return CUDNN_MAJOR == 8 ? status == CUDNN_STATUS_BAD_PARAM : status / 1000 == 2;
  }

  static inline std::unique_ptr<Device> device_;
  static inline cudnnHandle_t handle_ = nullptr;
};

// ---- by hand ----

RnnConfig OneUnit(cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias) {
  return {.cell = cell,
          .bias = bias,
          .type = CUDNN_DATA_DOUBLE,
          .steps = 2,
          .batch = 1,
          .input = 1,
          .hidden = 1,
          .projected = 1};
}

void ExpectValues(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-9) << i;
}

TEST_F(RnnCalls, OneLstmUnitIsAsWorkedOut) {
  RnnNetworkRun run(*device_, handle_, OneUnit(CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS));
  run.w.Put({.1, .2, .3, .4, .5, .6, .7, .8, .01, .02, .03, .04, .05, .06, .07, .08});
  run.hx.Put({.5});
  run.cx.Put({-.25});
  run.x.Put({1, -1});
  ASSERT_EQ(run.Forward(kInference), kOk) << LastError();
  ExpectValues(run.y.Get(), {0.155850664, 0.029067547});
  ExpectValues(run.cy.Get(), {0.063102970});
}

TEST_F(RnnCalls, AClippedLstmUnitKeepsItsCellAndClipsItWhereItIsUsed) {
  RnnConfig config = OneUnit(CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS);
  config.clips = true;
  RnnNetworkRun run(*device_, handle_, config);
  run.w.Put({.1, .2, .3, .4, .5, .6, .7, .8, .01, .02, .03, .04, .05, .06, .07, .08});
  run.hx.Put({.5});
  run.cx.Put({-.25});
  run.x.Put({1, -1});
  ASSERT_EQ(run.Forward(kInference), kOk) << LastError();
  // Bounds are floats.
  for (const auto& [got, expected] : {std::pair{run.y.Get()[0], 0.071266813},
                                      {run.y.Get()[1], -0.011671785},
                                      {run.cy.Get()[0], -0.026265264}})
    EXPECT_NEAR(got, expected, 1e-8);
}

TEST_F(RnnCalls, OneGruUnitIsAsWorkedOutInAllBiasModes) {
  const std::map<cudnnRNNBiasMode_t, std::pair<std::vector<double>, std::vector<double>>> rows = {
      {CUDNN_RNN_DOUBLE_BIAS, {{.01, .02, .03, .04, .05, .06}, {0.497719048, 0.227328610}}},
      {CUDNN_RNN_SINGLE_INP_BIAS, {{.01, .02, .03}, {0.486355607, 0.194712874}}},
      {CUDNN_RNN_SINGLE_REC_BIAS, {{.01, .02, .03}, {0.482504477, 0.185014645}}},
      {CUDNN_RNN_NO_BIAS, {{}, {0.476670363, 0.169637538}}}};
  for (const auto& [bias, row] : rows) {
    SCOPED_TRACE(static_cast<int>(bias));
    RnnNetworkRun run(*device_, handle_, OneUnit(CUDNN_GRU, bias));
    std::vector<double> weights = {.1, .2, .3, .4, .5, .6};
    weights.insert(weights.end(), row.first.begin(), row.first.end());
    run.w.Put(weights);
    run.hx.Put({.5});
    run.x.Put({1, -1});
    ASSERT_EQ(run.Forward(kInference), kOk) << LastError();
    ExpectValues(run.y.Get(), row.second);
  }
}

TEST_F(RnnCalls, EqualUnitsStayEqual) {
  const std::map<cudnnRNNMode_t, std::vector<double>> rows = {
      {CUDNN_RNN_RELU, {.2364, .274592, .28065232}},
      {CUDNN_RNN_TANH, {.231336783, .266048655, .271107411}},
      {CUDNN_LSTM, {.063298809, .103509442, .129001073}},
      {CUDNN_GRU, {.074518165, .121320576, .150907761}}};
  for (const auto& [cell, expected] : rows) {
    SCOPED_TRACE(static_cast<int>(cell));
    RnnNetworkRun run(*device_, handle_,
                      {.cell = cell,
                       .type = CUDNN_DATA_DOUBLE,
                       .steps = 3,
                       .batch = 1,
                       .input = 3,
                       .hidden = 7,
                       .projected = 7,
                       .layers = 2,
                       .has_hx = false,
                       .has_cx = false});
    const int gates = cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1;
    const auto biases = static_cast<size_t>(2 * 2 * gates * 7);
    std::vector<double> weights(static_cast<size_t>(run.w.elements()), .02);
    std::fill(weights.end() - static_cast<ptrdiff_t>(biases), weights.end(), .1);
    run.w.Put(weights);
    run.x.Put(std::vector<double>(9, 1));
    ASSERT_EQ(run.Forward(kInference), kOk) << LastError();
    const std::vector<double> y = run.y.Get();
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i / 7], 2e-9) << i;
  }
}

// ---- against the oracle ----

TEST_F(RnnCalls, CellsBiasesDirectionsAndInputsAreTheOracles) {
  uint64_t seed = 1;
  for (const cudnnRNNMode_t cell : kCells) {
    for (int bias = 0; bias < 4; ++bias) {
      for (const bool both : {false, true}) {
        const bool skips = bias % 2 == (both ? 1 : 0);
        CheckAll({.cell = cell,
                  .bias = static_cast<cudnnRNNBiasMode_t>(bias),
                  .direction = both ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                  .input_mode = skips ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT,
                  .type = CUDNN_DATA_DOUBLE,
                  .input = skips ? 5 : 3,
                  .layers = 2,
                  .seed = ++seed});
      }
    }
  }
}

TEST_F(RnnCalls, ProjectedStatesAreTheOracles) {
  for (const bool both : {false, true})
    CheckAll({.direction = both ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
              .type = CUDNN_DATA_DOUBLE,
              .lengths = {3, 2},
              .hidden = 6,
              .projected = 2,
              .layers = 2});
}

TEST_F(RnnCalls, SequencesEndEarlyInEveryLayout) {
  for (const cudnnRNNDataLayout_t layout : kLayouts) {
    for (const std::vector<int>& lengths :
         {std::vector<int>{4, 2, 1}, std::vector<int>{1, 2, 4}, std::vector<int>{2, 0, 3}}) {
      const bool is_packed = layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
      if (is_packed && lengths[0] != 4) continue;
      for (const bool is_filled : {false, true}) {
        CheckAll({.cell = is_filled ? CUDNN_LSTM : CUDNN_GRU,
                  .direction = CUDNN_BIDIRECTIONAL,
                  .type = CUDNN_DATA_DOUBLE,
                  .layout = layout,
                  .steps = 4,
                  .batch = 3,
                  .lengths = lengths,
                  .layers = 2,
                  .is_filled = is_filled});
      }
    }
  }
}

// More sequences than one launch brings lengths of to the device.
TEST_F(RnnCalls, ManySequencesHaveTheirLengths) {
  std::vector<int> lengths;
  for (int b = 0; b < 101; ++b) lengths.push_back(b * 7 % 4);
  CheckAll({.cell = CUDNN_RNN_TANH, .batch = 101, .lengths = lengths, .is_filled = true});
}

TEST_F(RnnCalls, TypesAreTheOraclesToTheirRounding) {
  for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    if (type == CUDNN_DATA_BFLOAT16 && CUDNN_MAJOR == 8) continue;
    for (const cudnnRNNMode_t cell : kCells)
      CheckAll(
          {.cell = cell, .type = type, .steps = 5, .hidden = 33, .projected = 33, .tf32 = true});
  }
}

TEST_F(RnnCalls, ExtentsOfOneAreTheOracles) {
  for (const cudnnRNNMode_t cell : kCells) {
    for (const int hidden : {1, 3})
      CheckAll({.cell = cell,
                .steps = 1,
                .batch = 1,
                .input = hidden + 1,
                .hidden = hidden,
                .projected = hidden,
                .layers = 3});
  }
}

TEST_F(RnnCalls, StatesMayBeAbsent) {
  for (const cudnnRNNMode_t cell : {CUDNN_LSTM, CUDNN_GRU}) {
    CheckAll({.cell = cell, .has_hx = false, .has_cx = false});
    CheckAll({.cell = cell, .has_hy = false, .has_cy = false, .state_rank = 5});
  }
  RnnNetworkRun run(*device_, handle_,
                    {.has_hx = false, .has_cx = false, .has_hy = false, .has_cy = false});
  EXPECT_EQ(
      RNN_CALL(cudnnRNNForward, handle_, run.rnn, kInference, nullptr, run.x_desc, run.x.data(),
               run.y_desc, run.y.data(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
               run.weight_bytes, run.w.data(), run.work_bytes, run.work.data(), 0, nullptr),
      kOk)
      << LastError();
  EXPECT_EQ(run.CheckForward(), "");
}

TEST_F(RnnCalls, ClippingIsTheOracles) {
  for (const bool keeps_nan : {false, true})
    CheckAll({.type = CUDNN_DATA_DOUBLE,
              .steps = 4,
              .lengths = {4, 3},
              .layers = 2,
              .clips = true,
              .clip_keeps_nan = keeps_nan});
  for (const bool keeps_nan : {false, true}) {
    RnnNetworkRun run(*device_, handle_, {.clips = true, .clip_keeps_nan = keeps_nan});
    run.cx.Put(std::vector<double>(10, std::numeric_limits<double>::quiet_NaN()));
    ASSERT_EQ(run.Forward(kInference), kOk) << LastError();
    EXPECT_EQ(std::isnan(run.cy.Get()[0]), keeps_nan);
  }
}

TEST_F(RnnCalls, WeightGradientsAreAddedOrSet) {
  RnnNetworkRun run(*device_, handle_, {.type = CUDNN_DATA_DOUBLE, .layers = 2});
  ASSERT_EQ(run.Forward(kTraining), kOk) << LastError();
  ASSERT_EQ(run.BackwardData(), kOk) << LastError();
  ASSERT_EQ(run.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk) << LastError();
  ASSERT_EQ(run.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk) << LastError();
  EXPECT_EQ(run.CheckWeightGradients(2), "");
  ASSERT_EQ(run.BackwardWeights(CUDNN_WGRAD_MODE_SET), kOk) << LastError();
  EXPECT_EQ(run.CheckWeightGradients(0), "");
}

// The plan that sets gradients is another than the one that adds to them, and wants more memory
// here.
TEST_F(RnnCalls, SizesHoldForWeightGradientsThatAreSet) {
  RnnNetworkRun run(*device_, handle_,
                    {.cell = CUDNN_RNN_TANH,
                     .input_mode = CUDNN_SKIP_INPUT,
                     .type = CUDNN_DATA_DOUBLE,
                     .layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
                     .steps = 5,
                     .batch = 3,
                     .lengths = {3, 4, 3},
                     .input = 2,
                     .hidden = 2,
                     .projected = 2,
                     .layers = 3});
  ASSERT_EQ(run.Forward(kTraining), kOk) << LastError();
  ASSERT_EQ(run.BackwardData(), kOk) << LastError();
  ASSERT_EQ(run.BackwardWeights(CUDNN_WGRAD_MODE_SET), kOk) << LastError();
  EXPECT_EQ(run.CheckWeightGradients(0), "");
}

// As PyTorch does it: forward and backward choose their algorithms on their own.
TEST_F(RnnCalls, TheReserveSpaceIsTheSameForAllAlgorithms) {
  RnnConfig config = {.cell = CUDNN_GRU, .algo = CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H};
  RnnNetworkRun run(*device_, handle_, config);
  ASSERT_EQ(run.Forward(kTraining), kOk) << LastError();
  config.algo = CUDNN_RNN_ALGO_STANDARD;
  const RnnNetworkRun other(*device_, handle_, config);
  EXPECT_EQ(other.reserve_bytes, run.reserve_bytes);
  std::swap(run.rnn, const_cast<RnnNetworkRun&>(other).rnn);
  ASSERT_EQ(run.BackwardData(), kOk) << LastError();
  EXPECT_EQ(run.CheckBackwardData(), "");
  ASSERT_EQ(run.BackwardWeights(CUDNN_WGRAD_MODE_ADD), kOk) << LastError();
  EXPECT_EQ(run.CheckWeightGradients(1), "");
  std::swap(run.rnn, const_cast<RnnNetworkRun&>(other).rnn);
}

// As JAX does it.
TEST_F(RnnCalls, SizesForWholeSequencesDoForShorterOnes) {
  for (const cudnnRNNDataLayout_t layout : kLayouts) {
    RnnConfig config = {.direction = CUDNN_BIDIRECTIONAL,
                        .layout = layout,
                        .steps = 9,
                        .batch = 5,
                        .hidden = 17,
                        .projected = 17,
                        .layers = 2};
    const RnnNetworkRun whole(*device_, handle_, config);
    config.lengths = {9, 7, 4, 4, 1};
    const RnnNetworkRun shorter(*device_, handle_, config);
    EXPECT_LE(shorter.work_bytes, whole.work_bytes);
    EXPECT_LE(shorter.reserve_bytes, whole.reserve_bytes);
  }
}

TEST_F(RnnCalls, PackedDataGivesTheSameBits) {
  RnnConfig config = {.layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                      .steps = 4,
                      .batch = 3,
                      .lengths = {4, 2, 1}};
  RnnNetworkRun packed(*device_, handle_, config);
  ASSERT_EQ(packed.Forward(kInference), kOk) << LastError();
  EXPECT_EQ(packed.CheckForward(), "");
  config.layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  RnnNetworkRun unpacked(*device_, handle_, config);
  ASSERT_EQ(unpacked.Forward(kInference), kOk) << LastError();
  EXPECT_EQ(packed.hy.Bytes(), unpacked.hy.Bytes());
  EXPECT_EQ(packed.cy.Bytes(), unpacked.cy.Bytes());
}

// 9.19 does not read them, and clients pass what they like.
TEST_F(RnnCalls, LengthsOnTheDeviceAreNotRead) {
  RnnNetworkRun run(*device_, handle_, {.lengths = {3, 1}});
  RnnMemory garbage(*device_, oracle::DType::kI32, 2);
  garbage.Put({-7, 1e6});
  ASSERT_EQ(RNN_CALL(cudnnRNNForward, handle_, run.rnn, kInference,
                     static_cast<const int32_t*>(garbage.data()), run.x_desc, run.x.data(),
                     run.y_desc, run.y.data(), run.h_desc, run.hx.data(), run.hy.data(), run.c_desc,
                     run.cx.data(), run.cy.data(), run.weight_bytes, run.w.data(), run.work_bytes,
                     run.work.data(), 0, nullptr),
            kOk)
      << LastError();
  EXPECT_EQ(run.CheckForward(), "");
}

// ---- dropout: three layers that pass their input on ----

struct Dropped {
  cudnnDropoutDescriptor_t desc = nullptr;
  RnnMemory states;
};

void Seed(const Dropped& d, cudnnHandle_t handle, float rate) {
  ASSERT_EQ(RNN_CALL(cudnnSetDropoutDescriptor, d.desc, handle, rate, d.states.data(),
                     static_cast<size_t>(d.states.elements()), 42ull),
            kOk);
}

TEST_F(RnnCalls, DropoutIsBetweenLayersAndRemembered) {
  Dropped d;
  size_t bytes = 0;
  RNN_CALL(cudnnCreateDropoutDescriptor, &d.desc);
  RNN_CALL(cudnnDropoutGetStatesSize, handle_, &bytes);
  d.states = RnnMemory(*device_, oracle::DType::kI8, static_cast<int64_t>(bytes));
  Seed(d, handle_, 0.25f);
  RnnConfig config = {.cell = CUDNN_RNN_RELU,
                      .bias = CUDNN_RNN_NO_BIAS,
                      .input_mode = CUDNN_SKIP_INPUT,
                      .steps = 8,
                      .batch = 8,
                      .input = 32,
                      .hidden = 32,
                      .projected = 32,
                      .layers = 3,
                      .has_hx = false,
                      .dropout = d.desc};
  const auto identity = [](RnnNetworkRun& run) {
    std::vector<double> weights(static_cast<size_t>(run.w.elements()), 0);  // R W R W R
    for (const size_t matrix : {1u, 3u})
      for (size_t i = 0; i < 32; ++i) weights[matrix * 1024 + i * 33] = 1;
    run.w.Put(weights);
    run.x.Put(std::vector<double>(static_cast<size_t>(run.x.elements()), 1));
    run.dy.Put(std::vector<double>(static_cast<size_t>(run.dy.elements()), 1));
    run.dhy.Put(std::vector<double>(static_cast<size_t>(run.dhy.elements()), 0));
  };
  RnnNetworkRun first(*device_, handle_, config), second(*device_, handle_, config);
  identity(first);
  identity(second);
  ASSERT_EQ(first.Forward(kTraining), kOk) << LastError();
  ASSERT_EQ(second.Forward(kTraining), kOk) << LastError();
  const std::vector<double> y = first.y.Get();
  const double kept = 1 / (0.75 * 0.75);
  int zeros = 0;
  for (const double value : y) {
    EXPECT_TRUE(value == 0 || std::abs(value - kept) < 1e-5) << value;
    zeros += value == 0;
  }
  const double share = 1 - 0.75 * 0.75, count = static_cast<double>(y.size());
  EXPECT_NEAR(zeros / count, share, 4 * std::sqrt(share * (1 - share) / count));
  EXPECT_NE(std::vector(y.begin(), y.begin() + 256), std::vector(y.begin() + 256, y.begin() + 512));
  EXPECT_NE(second.y.Get(), y);
  // In the other order: each has its own mask.
  ASSERT_EQ(second.BackwardData(), kOk) << LastError();
  ASSERT_EQ(first.BackwardData(), kOk) << LastError();
  EXPECT_EQ(first.dx.Get(), y);
  EXPECT_EQ(second.dx.Get(), second.y.Get());
  Seed(d, handle_, 0.25f);
  ASSERT_EQ(second.Forward(kTraining), kOk) << LastError();
  EXPECT_EQ(second.y.Get(), y);
  ASSERT_EQ(second.Forward(kInference), kOk) << LastError();
  EXPECT_EQ(second.y.Get(), std::vector<double>(y.size(), 1));
  RNN_CALL(cudnnDestroyDropoutDescriptor, d.desc);
}

// As JAX sets it; with a rate, states have to be there.
TEST_F(RnnCalls, DropoutOfNothingNeedsNoStates) {
  cudnnDropoutDescriptor_t dropout = nullptr;
  RNN_CALL(cudnnCreateDropoutDescriptor, &dropout);
  ASSERT_EQ(
      RNN_CALL(cudnnSetDropoutDescriptor, dropout, handle_, 0.0f, nullptr, size_t{4096}, 7ull),
      kOk);
  CheckAll({.layers = 2, .dropout = dropout});
  ASSERT_EQ(RNN_CALL(cudnnSetDropoutDescriptor, dropout, handle_, 0.5f, nullptr, size_t{0}, 7ull),
            kOk);
  RnnNetworkRun run(*device_, handle_, {.layers = 2, .dropout = dropout});
  EXPECT_TRUE(IsBadParam(run.Forward(kTraining)));
  EXPECT_EQ(run.Forward(kInference), kOk) << LastError();
  RNN_CALL(cudnnDestroyDropoutDescriptor, dropout);
}

// ---- misuse ----

TEST_F(RnnCalls, ArgumentsThatDoNotFitAreRefused) {
  const auto forward = [](RnnNetworkRun& r, cudnnForwardMode_t mode, size_t weight_bytes,
                          size_t work_bytes, size_t reserve_bytes) {
    return RNN_CALL(cudnnRNNForward, handle_, r.rnn, mode, nullptr, r.x_desc, r.x.data(), r.y_desc,
                    r.y.data(), r.h_desc, r.hx.data(), r.hy.data(), r.c_desc, r.cx.data(),
                    r.cy.data(), weight_bytes, r.w.data(), work_bytes, r.work.data(), reserve_bytes,
                    r.reserve.data());
  };
  RnnNetworkRun run(*device_, handle_, {});
  const size_t w = run.weight_bytes;
  size_t work = 0, reserve = 0;
  ASSERT_EQ(
      RNN_CALL(cudnnGetRNNTempSpaceSizes, handle_, run.rnn, kTraining, run.x_desc, &work, &reserve),
      kOk);
  EXPECT_EQ(forward(run, kTraining, w, work, reserve), kOk) << LastError();
  EXPECT_TRUE(IsBadParam(forward(run, kTraining, w - 1, work, reserve)));
  EXPECT_TRUE(IsBadParam(forward(run, kTraining, w, work - 1, reserve)));
  EXPECT_TRUE(IsBadParam(forward(run, kTraining, w, 0, reserve)));
  EXPECT_TRUE(IsBadParam(forward(run, kTraining, w, work, reserve - 1)));
  EXPECT_TRUE(IsBadParam(forward(run, static_cast<cudnnForwardMode_t>(2), w, work, reserve)));
  const auto with = [&](cudnnRNNDataDescriptor_t x, const void* data, cudnnRNNDataDescriptor_t y,
                        void* out, cudnnTensorDescriptor_t h, cudnnTensorDescriptor_t c) {
    return RNN_CALL(cudnnRNNForward, handle_, run.rnn, kTraining, nullptr, x, data, y, out, h,
                    run.hx.data(), run.hy.data(), c, run.cx.data(), run.cy.data(), w, run.w.data(),
                    work, run.work.data(), reserve, run.reserve.data());
  };
  EXPECT_TRUE(
      IsBadParam(with(run.x_desc, nullptr, run.y_desc, run.y.data(), run.h_desc, run.c_desc)));
  EXPECT_TRUE(
      IsBadParam(with(run.x_desc, run.x.data(), run.y_desc, nullptr, run.h_desc, run.c_desc)));
  EXPECT_TRUE(
      IsBadParam(with(run.x_desc, run.x.data(), run.y_desc, run.y.data(), nullptr, run.c_desc)));
  EXPECT_TRUE(
      IsBadParam(with(run.x_desc, run.x.data(), run.y_desc, run.y.data(), run.h_desc, nullptr)));
  for (const RnnConfig& other :
       {RnnConfig{.type = CUDNN_DATA_DOUBLE}, RnnConfig{.steps = 4}, RnnConfig{.batch = 3},
        RnnConfig{.lengths = {3, 2}}, RnnConfig{.input = 4, .hidden = 6, .projected = 6},
        RnnConfig{.layout = CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED}}) {
    SCOPED_TRACE(other.Text());
    const RnnNetworkRun wrong(*device_, handle_, other);
    EXPECT_TRUE(IsBadParam(
        with(wrong.x_desc, run.x.data(), run.y_desc, run.y.data(), run.h_desc, run.c_desc)));
    EXPECT_TRUE(IsBadParam(
        with(run.x_desc, run.x.data(), wrong.y_desc, run.y.data(), run.h_desc, run.c_desc)));
  }
  for (const RnnConfig& other :
       {RnnConfig{.hidden = 6, .projected = 6}, RnnConfig{.batch = 3}, RnnConfig{.layers = 2}}) {
    const RnnNetworkRun wrong(*device_, handle_, other);
    EXPECT_TRUE(IsBadParam(
        with(run.x_desc, run.x.data(), run.y_desc, run.y.data(), wrong.h_desc, run.c_desc)));
    EXPECT_TRUE(IsBadParam(
        with(run.x_desc, run.x.data(), run.y_desc, run.y.data(), run.h_desc, wrong.c_desc)));
  }
}

TEST_F(RnnCalls, PaddingHasToBeAllowed) {
  RnnNetworkRun run(*device_, handle_, {.lengths = {3, 2}});
  const auto set = [&](unsigned flags) {
    return RNN_CALL(cudnnSetRNNDescriptor_v8, run.rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM,
                    CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
                    CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 3, 5, 5, 1, nullptr,
                    flags);
  };
  ASSERT_EQ(set(0), kOk);
  EXPECT_TRUE(IsBadParam(run.Forward(kInference)));
  ASSERT_EQ(set(CUDNN_RNN_PADDED_IO_ENABLED), kOk);
  EXPECT_EQ(run.Forward(kInference), kOk) << LastError();
}

TEST_F(RnnCalls, SkippingNeedsAnInputOfHiddenWidth) {
  RnnNetworkRun run(*device_, handle_, {});
  ASSERT_EQ(
      RNN_CALL(cudnnSetRNNDescriptor_v8, run.rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM,
               CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_SKIP_INPUT, CUDNN_DATA_FLOAT,
               CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 3, 5, 5, 1, nullptr, 0u),
      kOk);
  EXPECT_TRUE(IsBadParam(run.Forward(kInference)));
}

}  // namespace
}  // namespace kiln::testing
