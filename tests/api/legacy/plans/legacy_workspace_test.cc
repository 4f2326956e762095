// Workspaces that a client does not give: every compute function of the legacy API that has a
// parameter for one, of which each plan of the fake session needs some. A NULL pointer of the right
// size is refused, and so is a size that is one byte short, both with the size in the sentence.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

constexpr size_t kNeeded = static_cast<size_t>(kiln::api::kFakeWorkspace);

class LegacyWorkspace : public ::testing::Test {
 protected:
  void SetUp() override {
    kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    x_ = Tensor(2, 4, 8, 8), y_ = Tensor(2, 6, 8, 8), channels_ = Tensor(1, 4, 1, 1);
    bias_ = Tensor(1, 6, 1, 1);
    ASSERT_EQ(cudnnCreateFilterDescriptor(&w_), kOk);
    ASSERT_EQ(cudnnSetFilter4dDescriptor(w_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 6, 4, 3, 3), kOk);
    ASSERT_EQ(cudnnCreateConvolutionDescriptor(&conv_), kOk);
    ASSERT_EQ(cudnnSetConvolution2dDescriptor(conv_, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                              CUDNN_DATA_FLOAT),
              kOk);
    ASSERT_EQ(cudnnCreateActivationDescriptor(&relu_), kOk);
    ASSERT_EQ(
        cudnnSetActivationDescriptor(relu_, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0),
        kOk);
  }
  void TearDown() override {
    for (cudnnTensorDescriptor_t t : tensors_) EXPECT_EQ(cudnnDestroyTensorDescriptor(t), kOk);
    EXPECT_EQ(cudnnDestroyFilterDescriptor(w_), kOk);
    EXPECT_EQ(cudnnDestroyConvolutionDescriptor(conv_), kOk);
    EXPECT_EQ(cudnnDestroyActivationDescriptor(relu_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  cudnnTensorDescriptor_t Tensor(int n, int c, int h, int w) {
    cudnnTensorDescriptor_t t = nullptr;
    EXPECT_EQ(cudnnCreateTensorDescriptor(&t), kOk);
    EXPECT_EQ(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w), kOk);
    tensors_.push_back(t);
    return t;
  }
  float* Memory(int i) { return &memory_[static_cast<size_t>(i) * 1024]; }

  static std::string Sentence() {
#if CUDNN_MAJOR >= 9
    char text[512] = {};
    cudnnGetLastErrorString(text, sizeof text);
    return text;
#else
    return std::to_string(kNeeded);  // this generation has no sentences
#endif
  }

  // call(workspace, bytes)
  template <class Run>
  void ExpectChecked(Run&& call) {
    EXPECT_EQ(call(workspace_, kNeeded), kOk) << Sentence();
    EXPECT_TRUE(IsBadParam(call(nullptr, kNeeded))) << "NULL";
    EXPECT_NE(Sentence().find(std::to_string(kNeeded)), std::string::npos) << Sentence();
    const cudnnStatus_t less = call(workspace_, kNeeded - 1);
    EXPECT_TRUE(IsBadParam(less) || less == CUDNN_STATUS_INVALID_VALUE) << "a byte too few";
    EXPECT_NE(Sentence().find(std::to_string(kNeeded)), std::string::npos) << Sentence();
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr, channels_ = nullptr, bias_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
  cudnnActivationDescriptor_t relu_ = nullptr;
  const float one_ = 1, zero_ = 0;

 private:
  std::vector<cudnnTensorDescriptor_t> tensors_;
  std::vector<float> memory_ = std::vector<float>(12 * 1024, 1);
  alignas(256) char workspace_[kNeeded] = {};
};

TEST_F(LegacyWorkspace, OfConvolutionsIsChecked) {
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnConvolutionForward(handle_, &one_, x_, Memory(0), w_, Memory(1), conv_,
                                   CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace,
                                   bytes, &zero_, y_, Memory(2));
  });
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnConvolutionBackwardData(handle_, &one_, w_, Memory(1), y_, Memory(2), conv_,
                                        CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, workspace, bytes, &zero_,
                                        x_, Memory(0));
  });
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnConvolutionBackwardFilter(handle_, &one_, x_, Memory(0), y_, Memory(2), conv_,
                                          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, workspace, bytes,
                                          &zero_, w_, Memory(1));
  });
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnConvolutionBiasActivationForward(
        handle_, &one_, x_, Memory(0), w_, Memory(1), conv_,
        CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, workspace, bytes, &zero_, y_, Memory(2),
        bias_, Memory(3), relu_, y_, Memory(2));
  });
}

TEST_F(LegacyWorkspace, OfBatchNormIsChecked) {
  constexpr auto kMode = CUDNN_BATCHNORM_SPATIAL;
  constexpr auto kOps = CUDNN_BATCHNORM_OPS_BN;
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnBatchNormalizationForwardTrainingEx(
        handle_, kMode, kOps, &one_, &zero_, x_, Memory(0), nullptr, nullptr, x_, Memory(1),
        channels_, Memory(2), Memory(3), 0.1, Memory(4), Memory(5), 1e-5, Memory(6), Memory(7),
        nullptr, workspace, bytes, nullptr, 0);
  });
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnBatchNormalizationBackwardEx(
        handle_, kMode, kOps, &one_, &zero_, &one_, &zero_, x_, Memory(0), nullptr, nullptr, x_,
        Memory(1), nullptr, nullptr, x_, Memory(2), channels_, Memory(3), nullptr, Memory(4),
        Memory(5), 1e-5, Memory(6), Memory(7), nullptr, workspace, bytes, nullptr, 0);
  });
}

TEST_F(LegacyWorkspace, OfNormalizationIsChecked) {
  constexpr auto kMode = CUDNN_NORM_PER_CHANNEL;
  constexpr auto kOps = CUDNN_NORM_OPS_NORM;
  constexpr auto kAlgo = CUDNN_NORM_ALGO_STANDARD;
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnNormalizationForwardTraining(
        handle_, kMode, kOps, kAlgo, &one_, &zero_, x_, Memory(0), channels_, Memory(2), Memory(3),
        0.1, channels_, Memory(4), Memory(5), 1e-5, Memory(6), Memory(7), nullptr, nullptr, nullptr,
        x_, Memory(1), workspace, bytes, nullptr, 0, 1);
  });
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnNormalizationBackward(
        handle_, kMode, kOps, kAlgo, &one_, &zero_, &one_, &zero_, x_, Memory(0), nullptr, nullptr,
        x_, Memory(1), nullptr, nullptr, x_, Memory(2), channels_, Memory(3), nullptr, Memory(4),
        Memory(5), 1e-5, channels_, Memory(6), Memory(7), nullptr, workspace, bytes, nullptr, 0, 1);
  });
}

TEST_F(LegacyWorkspace, OfReductionsIsChecked) {
  cudnnReduceTensorDescriptor_t reduce = nullptr;
  ASSERT_EQ(cudnnCreateReduceTensorDescriptor(&reduce), kOk);
  ASSERT_EQ(cudnnSetReduceTensorDescriptor(reduce, CUDNN_REDUCE_TENSOR_ADD, CUDNN_DATA_FLOAT,
                                           CUDNN_NOT_PROPAGATE_NAN, CUDNN_REDUCE_TENSOR_NO_INDICES,
                                           CUDNN_32BIT_INDICES),
            kOk);
  ExpectChecked([&](void* workspace, size_t bytes) {
    return cudnnReduceTensor(handle_, reduce, nullptr, 0, workspace, bytes, &one_, x_, Memory(0),
                             &zero_, channels_, Memory(1));
  });
  EXPECT_EQ(cudnnDestroyReduceTensorDescriptor(reduce), kOk);
}

}  // namespace
