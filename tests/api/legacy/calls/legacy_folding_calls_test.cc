// cudnnGetFoldedConvBackwardDataDescriptors: what is refused, of either generation. What the
// descriptors do is tests/numerics/legacy_folding_cases.cc's.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

class LegacyFolding : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    for (auto& t : tensors_) ASSERT_EQ(cudnnCreateTensorDescriptor(&t), kOk);
    for (auto& w : filters_) ASSERT_EQ(cudnnCreateFilterDescriptor(&w), kOk);
    for (auto& c : convolutions_) ASSERT_EQ(cudnnCreateConvolutionDescriptor(&c), kOk);
    for (auto& t : transforms_) ASSERT_EQ(cudnnCreateTensorTransformDescriptor(&t), kOk);
    SetTensor(0, 8, 8);
    SetTensor(1, 4, 16);
    SetFilter(4);
    SetConvolution(1, CUDNN_CROSS_CORRELATION);
  }
  void TearDown() override {
    for (auto t : tensors_) EXPECT_EQ(cudnnDestroyTensorDescriptor(t), kOk);
    for (auto w : filters_) EXPECT_EQ(cudnnDestroyFilterDescriptor(w), kOk);
    for (auto c : convolutions_) EXPECT_EQ(cudnnDestroyConvolutionDescriptor(c), kOk);
    for (auto t : transforms_) EXPECT_EQ(cudnnDestroyTensorTransformDescriptor(t), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  void SetTensor(size_t i, int channels, int extent) {
    ASSERT_EQ(cudnnSetTensor4dDescriptor(tensors_[i], CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 2,
                                         channels, extent, extent),
              kOk);
  }
  void SetFilter(int inputs, int rows = 3, int columns = 3) {
    ASSERT_EQ(cudnnSetFilter4dDescriptor(filters_[0], CUDNN_DATA_HALF, CUDNN_TENSOR_NHWC, 8, inputs,
                                         rows, columns),
              kOk);
  }
  void SetConvolution(int dilation, cudnnConvolutionMode_t mode) {
    SetConvolution({dilation, dilation}, {dilation, dilation}, mode);
  }
  void SetConvolution(std::array<int, 2> padding, std::array<int, 2> dilation,
                      cudnnConvolutionMode_t mode) {
    ASSERT_EQ(cudnnSetConvolution2dDescriptor(convolutions_[0], padding[0], padding[1], 2, 2,
                                              dilation[0], dilation[1], mode, CUDNN_DATA_FLOAT),
              kOk);
  }
  cudnnStatus_t Fold(cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC) {
    return cudnnGetFoldedConvBackwardDataDescriptors(
        handle_, filters_[0], tensors_[0], convolutions_[0], tensors_[1], format, filters_[1],
        tensors_[2], convolutions_[1], tensors_[3], transforms_[0], transforms_[1], transforms_[2],
        transforms_[3]);
  }

  cudnnHandle_t handle_ = nullptr;
  std::array<cudnnTensorDescriptor_t, 4> tensors_ = {};  // dy, dx, and those folded
  std::array<cudnnFilterDescriptor_t, 2> filters_ = {};
  std::array<cudnnConvolutionDescriptor_t, 2> convolutions_ = {};
  std::array<cudnnTensorTransformDescriptor_t, 4> transforms_ = {};
};

TEST_F(LegacyFolding, AllMustBeThere) {
  EXPECT_EQ(Fold(), kOk);
  const auto without = [&](auto& object) {
    const auto kept = std::exchange(object, nullptr);
    EXPECT_TRUE(IsBadParam(Fold()));
    object = kept;
  };
  for (auto& t : tensors_) without(t);
  for (auto& w : filters_) without(w);
  for (auto& c : convolutions_) without(c);
  for (size_t i = 0; i < 3; ++i) without(transforms_[i]);
  EXPECT_EQ(Fold(), kOk);
  // As in 9.19: nothing is asked of the handle, and dx need not be unfolded.
  const cudnnHandle_t handle = std::exchange(handle_, nullptr);
  const cudnnTensorTransformDescriptor_t unfold = std::exchange(transforms_[3], nullptr);
  EXPECT_EQ(Fold(), kOk);
  handle_ = handle;
  transforms_[3] = unfold;
}

TEST_F(LegacyFolding, WhatFoldingWouldNotKeepIsRefused) {
  EXPECT_TRUE(IsNotSupported(Fold(CUDNN_TENSOR_NCHW_VECT_C)));
  EXPECT_TRUE(IsBadParam(Fold(static_cast<cudnnTensorFormat_t>(3))));
  SetTensor(0, 8, 9);
  EXPECT_TRUE(IsBadParam(Fold())) << "dy has other extents";
  SetTensor(0, 8, 8);
  SetConvolution(2, CUDNN_CROSS_CORRELATION);
  EXPECT_TRUE(IsNotSupported(Fold()));
  SetConvolution(1, CUDNN_CONVOLUTION);
  EXPECT_TRUE(IsNotSupported(Fold()));
  SetConvolution(1, CUDNN_CROSS_CORRELATION);
  SetFilter(2);
  ASSERT_EQ(cudnnSetConvolutionGroupCount(convolutions_[0], 2), kOk);
  EXPECT_TRUE(IsNotSupported(Fold()));
  ASSERT_EQ(cudnnSetConvolutionGroupCount(convolutions_[0], 1), kOk);
  SetFilter(4);
  const int dims[] = {2, 4, 16, 16, 1};
  ASSERT_EQ(cudnnSetTensorNdDescriptorEx(tensors_[1], CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 5, dims),
            kOk);
  EXPECT_TRUE(IsBadParam(Fold())) << "five dims";
}

// A filter of one place is the same in both modes, and an axis with one tap at any dilation.
TEST_F(LegacyFolding, SettingsThatCannotMatterAreNotRefused) {
  SetFilter(4, 1, 1);
  for (const auto mode : {CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION}) {
    for (const int dilation : {1, 3}) {
      SetConvolution({0, 0}, {dilation, dilation}, mode);
      EXPECT_EQ(Fold(), kOk) << mode << " " << dilation;
    }
  }
  SetFilter(4, 1, 3);
  SetConvolution({0, 1}, {2, 1}, CUDNN_CROSS_CORRELATION);
  EXPECT_EQ(Fold(), kOk) << "one row, whose dilation is between rows";
  SetConvolution({0, 2}, {1, 2}, CUDNN_CROSS_CORRELATION);
  EXPECT_TRUE(IsNotSupported(Fold())) << "three columns two apart";
  SetConvolution({0, 1}, {1, 1}, CUDNN_CONVOLUTION);
  EXPECT_TRUE(IsNotSupported(Fold())) << "three columns, mirrored";
}

}  // namespace
