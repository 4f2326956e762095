// Descriptors of the legacy API, compiled and linked once for each generation: what clients of
// either may rely on beyond what nvidia_legacy_test compares with 9.19.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "tests/api/legacy/legacy_status.h"

namespace {

TEST(LegacyDescriptors, NoPlaceForADescriptorIsBadParam) {
  EXPECT_TRUE(IsBadParam(cudnnCreateTensorDescriptor(nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnCreateFilterDescriptor(nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnCreateConvolutionDescriptor(nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnCreatePoolingDescriptor(nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnCreateActivationDescriptor(nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnCreateTensorTransformDescriptor(nullptr)));
}

TEST(LegacyDescriptors, DestroyingNothingIsNoMistake) {
  EXPECT_EQ(cudnnDestroyTensorDescriptor(nullptr), kOk);
  EXPECT_EQ(cudnnDestroyFilterDescriptor(nullptr), kOk);
  EXPECT_EQ(cudnnDestroyLRNDescriptor(nullptr), kOk);
  EXPECT_EQ(cudnnDestroyOpTensorDescriptor(nullptr), kOk);
  EXPECT_EQ(cudnnDestroyReduceTensorDescriptor(nullptr), kOk);
  EXPECT_EQ(cudnnDestroySpatialTransformerDescriptor(nullptr), kOk);
}

TEST(LegacyDescriptors, WhatIsNoneIsFoundOut) {
  cudnnTensorDescriptor_t tensor = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&tensor), kOk);
  // Another kind, an integer, and one that was destroyed.
  int n = -1;
  auto* filter = reinterpret_cast<cudnnFilterDescriptor_t>(tensor);
  EXPECT_TRUE(IsBadParam(
      cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 1, 1, 1, 1)));
  EXPECT_TRUE(IsBadParam(cudnnDestroyFilterDescriptor(filter)));
  auto* number = reinterpret_cast<cudnnTensorDescriptor_t>(uintptr_t{12345});
  size_t bytes = 0;
  EXPECT_TRUE(IsBadParam(cudnnGetTensorSizeInBytes(number, &bytes)));
  EXPECT_EQ(cudnnDestroyTensorDescriptor(tensor), kOk);
  EXPECT_TRUE(IsBadParam(cudnnDestroyTensorDescriptor(tensor)));
  EXPECT_TRUE(IsBadParam(cudnnGetTensorNdDescriptor(tensor, 4, nullptr, &n, nullptr, nullptr)));
  EXPECT_EQ(n, -1);
}

TEST(LegacyDescriptors, MissingArraysAndPlacesAreFoundOut) {
  cudnnTensorDescriptor_t tensor = nullptr;
  cudnnPoolingDescriptor_t pooling = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&tensor), kOk);
  ASSERT_EQ(cudnnCreatePoolingDescriptor(&pooling), kOk);
  const int four[] = {1, 2, 3, 4};
  EXPECT_TRUE(IsBadParam(cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_FLOAT, 4, nullptr, four)));
  EXPECT_TRUE(IsBadParam(cudnnSetTensorNdDescriptor(tensor, CUDNN_DATA_FLOAT, 4, four, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnGetTensorSizeInBytes(tensor, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnSetPoolingNdDescriptor(
      pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, nullptr, four, four)));
  // All places of one getter are needed, as in 9.19; of another, those that are wanted.
  ASSERT_EQ(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_HALF, 2, 3, 4, 5),
            kOk);
  int c = 0;
  EXPECT_TRUE(IsBadParam(cudnnGetTensor4dDescriptor(tensor, nullptr, nullptr, &c, nullptr, nullptr,
                                                    nullptr, nullptr, nullptr, nullptr)));
  EXPECT_EQ(c, 0);
  EXPECT_EQ(cudnnDestroyPoolingDescriptor(pooling), kOk);
  EXPECT_EQ(cudnnDestroyTensorDescriptor(tensor), kOk);
}

TEST(LegacyDescriptors, AFailureLeavesTheDescriptorAsItWas) {
  cudnnTensorDescriptor_t tensor = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&tensor), kOk);
  size_t bytes = 1;
  EXPECT_EQ(cudnnGetTensorSizeInBytes(tensor, &bytes), kOk);
  EXPECT_EQ(bytes, 0u) << "a descriptor that was not set describes nothing";
  ASSERT_EQ(cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 2, 3, 4, 5),
            kOk);
  EXPECT_EQ(
      cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 65536, 65536, 1, 1),
      CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(IsBadParam(
      cudnnSetTensor4dDescriptorEx(tensor, CUDNN_DATA_FLOAT, 2, 3, 4, 5, -60, 20, 5, 1)));
  EXPECT_EQ(cudnnGetTensorSizeInBytes(tensor, &bytes), kOk);
  EXPECT_EQ(bytes, 240u);
#if CUDNN_MAJOR == 9
  EXPECT_TRUE(IsBadParam(
      cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 0, 4, 5)));
  char text[256] = "";
  cudnnGetLastErrorString(text, sizeof text);
  EXPECT_STREQ(text,
               "cudnnSetTensor4dDescriptor: the extents of a tensor [2,0,4,5] are not all "
               "positive");
#endif
  EXPECT_EQ(cudnnDestroyTensorDescriptor(tensor), kOk);
}

TEST(LegacyDescriptors, NaNIsNotBelowALimit) {
  cudnnLRNDescriptor_t lrn = nullptr;
  ASSERT_EQ(cudnnCreateLRNDescriptor(&lrn), kOk);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(cudnnSetLRNDescriptor(lrn, 5, 1, nan, nan), kOk);
  double k = 0;
  EXPECT_EQ(cudnnGetLRNDescriptor(lrn, nullptr, nullptr, nullptr, &k), kOk);
  EXPECT_TRUE(std::isnan(k));
  EXPECT_EQ(cudnnDestroyLRNDescriptor(lrn), kOk);
}

TEST(LegacyDescriptors, ThreadsMakeTheirOwn) {
  std::vector<std::thread> threads;
  for (int id = 1; id <= 4; ++id) {
    threads.emplace_back([id] {
      for (int i = 1; i < 500; ++i) {
        cudnnTensorDescriptor_t tensor = nullptr;
        ASSERT_EQ(cudnnCreateTensorDescriptor(&tensor), kOk);
        ASSERT_EQ(
            cudnnSetTensor4dDescriptor(tensor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, id, i, 1, 1),
            kOk);
        size_t bytes = 0;
        ASSERT_EQ(cudnnGetTensorSizeInBytes(tensor, &bytes), kOk);
        ASSERT_EQ(bytes, static_cast<size_t>(4 * id * i));
        ASSERT_EQ(cudnnDestroyTensorDescriptor(tensor), kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
