// kiln/cudnn7.h: what cuDNN 7 called to choose an algorithm, over what 8 and 9 have.
#include <cudnn.h>
#include <gtest/gtest.h>
#include <kiln/cudnn7.h>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

class Cudnn7 : public ::testing::Test {
 protected:
  void SetUp() override {
    kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&x_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&y_), kOk);
    ASSERT_EQ(cudnnCreateFilterDescriptor(&w_), kOk);
    ASSERT_EQ(cudnnCreateConvolutionDescriptor(&conv_), kOk);
    ASSERT_EQ(cudnnSetTensor4dDescriptor(x_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 9, 9), kOk);
    ASSERT_EQ(cudnnSetTensor4dDescriptor(y_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 6, 9, 9), kOk);
    ASSERT_EQ(cudnnSetFilter4dDescriptor(w_, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 6, 4, 3, 3), kOk);
    ASSERT_EQ(cudnnSetConvolution2dDescriptor(conv_, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                              CUDNN_DATA_FLOAT),
              kOk);
  }
  void TearDown() override {
    EXPECT_EQ(cudnnDestroyTensorDescriptor(x_), kOk);
    EXPECT_EQ(cudnnDestroyTensorDescriptor(y_), kOk);
    EXPECT_EQ(cudnnDestroyFilterDescriptor(w_), kOk);
    EXPECT_EQ(cudnnDestroyConvolutionDescriptor(conv_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  cudnnStatus_t Forward(int preference, size_t limit, cudnnConvolutionFwdAlgo_t* algorithm) {
    return cudnnGetConvolutionForwardAlgorithm(
        handle_, x_, w_, conv_, y_, static_cast<cudnnConvolutionFwdPreference_t>(preference), limit,
        algorithm);
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
};

// Every plan of the fake session wants a workspace, so that none does within less.
TEST_F(Cudnn7, TheWorkspaceIsAsPreferred) {
  cudnnConvolutionFwdAlgo_t algorithm{};
  ASSERT_EQ(Forward(CUDNN_CONVOLUTION_FWD_PREFER_FASTEST, 0, &algorithm), kOk);
  EXPECT_EQ(algorithm, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
  EXPECT_EQ(
      Forward(CUDNN_CONVOLUTION_FWD_SPECIFY_WORKSPACE_LIMIT, kiln::api::kFakeWorkspace, &algorithm),
      kOk);
  EXPECT_EQ(Forward(CUDNN_CONVOLUTION_FWD_SPECIFY_WORKSPACE_LIMIT, kiln::api::kFakeWorkspace - 1,
                    &algorithm),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(Forward(CUDNN_CONVOLUTION_FWD_NO_WORKSPACE, SIZE_MAX, &algorithm),
            CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(IsBadParam(Forward(3, 0, &algorithm)));
  EXPECT_TRUE(IsBadParam(Forward(CUDNN_CONVOLUTION_FWD_PREFER_FASTEST, 0, nullptr)));
}

TEST_F(Cudnn7, GradientsHaveAlgorithmsToo) {
  cudnnConvolutionBwdDataAlgo_t data{};
  cudnnConvolutionBwdFilterAlgo_t filter{};
  EXPECT_EQ(cudnnGetConvolutionBackwardDataAlgorithm(
                handle_, w_, y_, conv_, x_, CUDNN_CONVOLUTION_BWD_DATA_PREFER_FASTEST, 0, &data),
            kOk);
  EXPECT_EQ(data, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
  EXPECT_EQ(
      cudnnGetConvolutionBackwardFilterAlgorithm(
          handle_, x_, y_, conv_, w_, CUDNN_CONVOLUTION_BWD_FILTER_PREFER_FASTEST, 0, &filter),
      kOk);
  EXPECT_EQ(filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
  EXPECT_TRUE(IsBadParam(cudnnGetConvolutionBackwardDataAlgorithm(
      nullptr, w_, y_, conv_, x_, CUDNN_CONVOLUTION_BWD_DATA_PREFER_FASTEST, 0, &data)));
}

}  // namespace
