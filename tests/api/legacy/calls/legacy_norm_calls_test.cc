// Misuse of batch normalization of the legacy API: as legacy_calls_test.cc.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

// Arguments of a call; each test changes one thing.
struct NormCall {
  cudnnBatchNormMode_t mode = CUDNN_BATCHNORM_SPATIAL;
  cudnnBatchNormOps_t ops = CUDNN_BATCHNORM_OPS_BN;
  cudnnTensorDescriptor_t x = nullptr, z = nullptr, y = nullptr, parameters = nullptr;
  cudnnActivationDescriptor_t activation = nullptr;
  double epsilon = 1e-5;
  float *running_mean = nullptr, *running_variance = nullptr, *mean = nullptr, *inverse = nullptr;
};

class LegacyNorms : public ::testing::Test {
 protected:
  void SetUp() override {
    kiln::api::SetFakeWorkspace(0);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateActivationDescriptor(&relu_), kOk);
    ASSERT_EQ(
        cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0),
        kOk);
    x_ = Tensor(4, 3, 5, 7);
    parameters_ = Tensor(1, 3, 1, 1);
    good_ = {.x = x_,
             .z = x_,
             .y = x_,
             .parameters = parameters_,
             .activation = relu_,
             .running_mean = Memory(4),
             .running_variance = Memory(5),
             .mean = Memory(6),
             .inverse = Memory(7)};
  }
  void TearDown() override {
    for (cudnnTensorDescriptor_t t : tensors_) EXPECT_EQ(cudnnDestroyTensorDescriptor(t), kOk);
    EXPECT_EQ(cudnnDestroyActivationDescriptor(relu_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  cudnnTensorDescriptor_t Tensor(int n, int c, int h, int w,
                                 cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    cudnnTensorDescriptor_t t = nullptr;
    EXPECT_EQ(cudnnCreateTensorDescriptor(&t), kOk);
    EXPECT_EQ(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, type, n, c, h, w), kOk);
    tensors_.push_back(t);
    return t;
  }
  float* Memory(int i) { return &memory_[static_cast<size_t>(i) * 512]; }

  cudnnStatus_t Forward(const NormCall& c) {
    return cudnnBatchNormalizationForwardTrainingEx(
        handle_, c.mode, c.ops, &one_, &zero_, c.x, Memory(0), c.z, Memory(1), c.y, Memory(2),
        c.parameters, Memory(3), Memory(3), 0.1, c.running_mean, c.running_variance, c.epsilon,
        c.mean, c.inverse, c.activation, nullptr, 0, nullptr, 0);
  }
  cudnnStatus_t Backward(const NormCall& c) {
    return cudnnBatchNormalizationBackwardEx(
        handle_, c.mode, c.ops, &one_, &zero_, &one_, &zero_, c.x, Memory(0), c.y, Memory(2), c.y,
        Memory(8), c.z, Memory(1), c.x, Memory(9), c.parameters, Memory(3), Memory(3), Memory(4),
        Memory(5), c.epsilon, c.mean, c.inverse, c.activation, nullptr, 0, nullptr, 0);
  }
  cudnnStatus_t Inference(const NormCall& c) {
    return cudnnBatchNormalizationForwardInference(handle_, c.mode, &one_, &zero_, c.x, Memory(0),
                                                   c.y, Memory(2), c.parameters, Memory(3),
                                                   Memory(4), Memory(5), Memory(6), c.epsilon);
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnActivationDescriptor_t relu_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr, parameters_ = nullptr;
  NormCall good_;
  const float one_ = 1, zero_ = 0;

 private:
  std::vector<cudnnTensorDescriptor_t> tensors_;
  std::vector<float> memory_ = std::vector<float>(10 * 512, 1);
};

TEST_F(LegacyNorms, GoodCallsSucceed) {
  for (const auto ops : {CUDNN_BATCHNORM_OPS_BN, CUDNN_BATCHNORM_OPS_BN_ACTIVATION,
                         CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION}) {
    good_.ops = ops;
    EXPECT_EQ(Forward(good_), kOk) << ops;
    EXPECT_EQ(Backward(good_), kOk) << ops;
  }
  EXPECT_EQ(Inference(good_), kOk);
  // Arguments that plain normalization does not use may be missing.
  good_.ops = CUDNN_BATCHNORM_OPS_BN;
  good_.z = nullptr;
  good_.activation = nullptr;
  EXPECT_EQ(Forward(good_), kOk);
  EXPECT_EQ(Backward(good_), kOk);
  size_t bytes = 1;
  EXPECT_EQ(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
                handle_, CUDNN_BATCHNORM_SPATIAL, CUDNN_BATCHNORM_OPS_BN, nullptr, x_, &bytes),
            kOk);
  EXPECT_EQ(bytes, 0u);
}

// As in 9.19: a running statistic may go without the other, a saved one may not.
TEST_F(LegacyNorms, OneStatisticIsNoneOfBoth) {
  NormCall half_running = good_, half_saved = good_;
  half_running.running_mean = nullptr;
  half_saved.inverse = nullptr;
  EXPECT_EQ(Forward(half_running), kOk);
  EXPECT_TRUE(IsBadParam(Forward(half_saved)));
  EXPECT_TRUE(IsBadParam(Backward(half_saved)));
  NormCall none = good_;
  none.running_mean = none.running_variance = none.mean = none.inverse = nullptr;
  EXPECT_EQ(Forward(none), kOk);
  EXPECT_EQ(Backward(none), kOk);
}

TEST_F(LegacyNorms, EpsilonHasALeast) {
  good_.epsilon = -1e-5;
  EXPECT_TRUE(IsBadParam(Forward(good_)));
  EXPECT_TRUE(IsBadParam(Backward(good_)));
  EXPECT_TRUE(IsBadParam(Inference(good_)));
}

TEST_F(LegacyNorms, TensorsMustFit) {
  NormCall other = good_;
  other.y = Tensor(4, 3, 5, 6);
  EXPECT_TRUE(IsBadParam(Forward(other)));
  EXPECT_TRUE(IsBadParam(Backward(other)));
  EXPECT_TRUE(IsBadParam(Inference(other)));
  other.y = Tensor(4, 3, 5, 7, CUDNN_DATA_HALF);
  EXPECT_TRUE(IsBadParam(Forward(other)));
  other = good_;
  other.parameters = Tensor(1, 3, 5, 7);
  EXPECT_TRUE(IsBadParam(Forward(other))) << "those of another mode";
  other.mode = CUDNN_BATCHNORM_PER_ACTIVATION;
  EXPECT_EQ(Forward(other), kOk);
  other.parameters = parameters_;
  EXPECT_TRUE(IsBadParam(Forward(other)));
  other = good_;
  other.parameters = Tensor(1, 3, 1, 1, CUDNN_DATA_DOUBLE);
  EXPECT_TRUE(IsBadParam(Forward(other)));
  other = good_;
  other.mode = static_cast<cudnnBatchNormMode_t>(3);
  EXPECT_TRUE(IsBadParam(Forward(other)));
}

TEST_F(LegacyNorms, OnlyReluActivates) {
  good_.ops = CUDNN_BATCHNORM_OPS_BN_ACTIVATION;
  ASSERT_EQ(cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_TANH, CUDNN_NOT_PROPAGATE_NAN, 0),
            kOk);
  EXPECT_TRUE(IsNotSupported(Forward(good_)));
  EXPECT_TRUE(IsNotSupported(Backward(good_)));
  good_.activation = nullptr;
  EXPECT_TRUE(IsBadParam(Forward(good_)));
}

TEST_F(LegacyNorms, TheWorkspaceIsWhatWasAskedFor) {
  kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
  NormCall wide = good_;
  wide.x = wide.y = Tensor(2, 3, 5, 7);
  size_t bytes = 0;
  ASSERT_EQ(
      cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
          handle_, wide.mode, wide.ops, wide.x, nullptr, wide.y, wide.parameters, nullptr, &bytes),
      kOk);
  EXPECT_EQ(bytes, static_cast<size_t>(kiln::api::kFakeWorkspace));
  EXPECT_TRUE(IsBadParam(Forward(wide))) << "without it";
}

// cudnnNormalization… are the same calls under other names, with modes of their own.
TEST_F(LegacyNorms, NormalizationKnowsOneGroup) {
  cudnnTensorDescriptor_t wrong = Tensor(1, 4, 1, 1);
  const auto run = [&](cudnnNormMode_t mode, cudnnNormOps_t ops, cudnnNormAlgo_t algorithm,
                       cudnnTensorDescriptor_t statistics, int groups) {
    return cudnnNormalizationForwardInference(handle_, mode, ops, algorithm, &one_, &zero_, x_,
                                              Memory(0), parameters_, Memory(3), Memory(4),
                                              statistics, Memory(5), Memory(6), x_, Memory(1),
                                              relu_, x_, Memory(2), 1e-5, groups);
  };
  const auto channel = CUDNN_NORM_PER_CHANNEL;
  const auto all = CUDNN_NORM_OPS_NORM_ADD_ACTIVATION;
  const auto standard = CUDNN_NORM_ALGO_STANDARD;
  EXPECT_EQ(run(channel, all, standard, parameters_, 1), kOk);
  EXPECT_TRUE(IsNotSupported(run(channel, all, standard, parameters_, 2)));
  EXPECT_TRUE(IsBadParam(run(channel, all, standard, wrong, 1)));
  EXPECT_TRUE(IsBadParam(run(static_cast<cudnnNormMode_t>(2), all, standard, parameters_, 1)));
  EXPECT_TRUE(IsBadParam(run(channel, static_cast<cudnnNormOps_t>(3), standard, parameters_, 1)));
  EXPECT_TRUE(IsBadParam(run(channel, all, static_cast<cudnnNormAlgo_t>(2), parameters_, 1)));
  size_t bytes = 1;
  EXPECT_EQ(cudnnGetNormalizationTrainingReserveSpaceSize(handle_, channel, all, standard, relu_,
                                                          x_, &bytes, 1),
            kOk);
  EXPECT_EQ(bytes, 0u);
  EXPECT_EQ(
      cudnnGetNormalizationForwardTrainingWorkspaceSize(handle_, channel, all, standard, x_, x_, x_,
                                                        parameters_, relu_, parameters_, &bytes, 1),
      kOk);
  EXPECT_EQ(
      cudnnGetNormalizationBackwardWorkspaceSize(handle_, channel, all, standard, x_, x_, x_, x_,
                                                 x_, parameters_, relu_, parameters_, &bytes, 1),
      kOk);
}

}  // namespace
