// Misuse of calls whose results depend on neighbours: softmax, LRN, divisive normalization, the
// gradient of pooling, spatial transformers. As legacy_calls_test.cc; answers of the whole library
// are tests/numerics/legacy_misuse_cases.cc's.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

class LegacyNeighbours : public ::testing::Test {
 protected:
  void SetUp() override {
    kiln::api::SetFakeWorkspace(0);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateLRNDescriptor(&lrn_), kOk);
    ASSERT_EQ(cudnnCreateSpatialTransformerDescriptor(&transformer_), kOk);
    ASSERT_EQ(cudnnCreatePoolingDescriptor(&pooling_), kOk);
    ASSERT_EQ(cudnnSetPooling2dDescriptor(pooling_, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2,
                                          2, 0, 0, 2, 2),
              kOk);
    Transform({2, 3, 4, 6});
  }
  void TearDown() override {
    for (cudnnTensorDescriptor_t t : tensors_) EXPECT_EQ(cudnnDestroyTensorDescriptor(t), kOk);
    EXPECT_EQ(cudnnDestroyPoolingDescriptor(pooling_), kOk);
    EXPECT_EQ(cudnnDestroySpatialTransformerDescriptor(transformer_), kOk);
    EXPECT_EQ(cudnnDestroyLRNDescriptor(lrn_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  cudnnTensorDescriptor_t Tensor(const std::vector<int>& dims,
                                 cudnnDataType_t type = CUDNN_DATA_FLOAT,
                                 cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW) {
    tensors_.push_back(nullptr);
    EXPECT_EQ(cudnnCreateTensorDescriptor(&tensors_.back()), kOk);
    EXPECT_EQ(cudnnSetTensorNdDescriptorEx(tensors_.back(), format, type,
                                           static_cast<int>(dims.size()), dims.data()),
              kOk);
    return tensors_.back();
  }
  void Transform(const std::vector<int>& dims) {
    ASSERT_EQ(cudnnSetSpatialTransformerNdDescriptor(transformer_, CUDNN_SAMPLER_BILINEAR,
                                                     CUDNN_DATA_FLOAT,
                                                     static_cast<int>(dims.size()), dims.data()),
              kOk);
  }
  float* Memory(int i) { return &memory_[static_cast<size_t>(i) * 1024]; }

  cudnnStatus_t Softmax(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y, int algorithm = 1,
                        int mode = 1) {
    return cudnnSoftmaxForward(handle_, static_cast<cudnnSoftmaxAlgorithm_t>(algorithm),
                               static_cast<cudnnSoftmaxMode_t>(mode), &one_, x, Memory(0), &zero_,
                               y, Memory(1));
  }
  cudnnStatus_t SoftmaxGradient(cudnnTensorDescriptor_t y, cudnnTensorDescriptor_t dy,
                                cudnnTensorDescriptor_t dx) {
    return cudnnSoftmaxBackward(handle_, CUDNN_SOFTMAX_LOG, CUDNN_SOFTMAX_MODE_INSTANCE, &one_, y,
                                Memory(0), dy, Memory(1), &zero_, dx, Memory(2));
  }
  cudnnStatus_t PoolingGradient(cudnnTensorDescriptor_t y, cudnnTensorDescriptor_t dy,
                                cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dx) {
    return cudnnPoolingBackward(handle_, pooling_, &one_, y, Memory(0), dy, Memory(1), x, Memory(2),
                                &zero_, dx, Memory(3));
  }
  cudnnStatus_t Lrn(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y, float* to, int mode = 0) {
    return cudnnLRNCrossChannelForward(handle_, lrn_, static_cast<cudnnLRNMode_t>(mode), &one_, x,
                                       Memory(0), &zero_, y, to);
  }
  cudnnStatus_t LrnGradient(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dx, float* y) {
    return cudnnLRNCrossChannelBackward(handle_, lrn_, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one_, x, y, x,
                                        Memory(1), x, Memory(2), &zero_, dx, Memory(3));
  }
  cudnnStatus_t Divisive(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y, float* temp,
                         float* to) {
    return cudnnDivisiveNormalizationForward(handle_, lrn_, CUDNN_DIVNORM_PRECOMPUTED_MEANS, &one_,
                                             x, Memory(0), nullptr, temp, Memory(2), &zero_, y, to);
  }
  cudnnStatus_t DivisiveGradient(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dx,
                                 float* temp2) {
    return cudnnDivisiveNormalizationBackward(handle_, lrn_, CUDNN_DIVNORM_PRECOMPUTED_MEANS, &one_,
                                              x, Memory(0), nullptr, Memory(1), Memory(2), temp2,
                                              &zero_, dx, Memory(4), nullptr);
  }
  cudnnStatus_t Sample(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y, float* grid) {
    return cudnnSpatialTfSamplerForward(handle_, transformer_, &one_, x, Memory(0), grid, &zero_, y,
                                        Memory(2));
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnLRNDescriptor_t lrn_ = nullptr;
  cudnnSpatialTransformerDescriptor_t transformer_ = nullptr;
  cudnnPoolingDescriptor_t pooling_ = nullptr;
  const float one_ = 1, zero_ = 0;

 private:
  std::vector<cudnnTensorDescriptor_t> tensors_;
  std::vector<float> memory_ = std::vector<float>(8 * 1024, 1);
};

TEST_F(LegacyNeighbours, SoftmaxWantsTensorsOfOneKind) {
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), other = Tensor({2, 3, 4, 6}),
                          half = Tensor({2, 3, 4, 5}, CUDNN_DATA_HALF),
                          bytes = Tensor({2, 3, 4, 5}, CUDNN_DATA_INT8),
                          nhwc = Tensor({2, 3, 4, 5}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC);
  EXPECT_EQ(Softmax(t, t), kOk);
  EXPECT_EQ(Softmax(t, nhwc), kOk);
  EXPECT_TRUE(IsBadParam(Softmax(t, t, 3)));
  EXPECT_TRUE(IsBadParam(Softmax(t, t, 1, 2)));
  EXPECT_TRUE(IsBadParam(Softmax(t, other)));
  EXPECT_TRUE(IsBadParam(Softmax(t, half)));
  EXPECT_TRUE(IsNotSupported(Softmax(bytes, bytes)));
  EXPECT_EQ(SoftmaxGradient(t, t, nhwc), kOk);
  EXPECT_TRUE(IsBadParam(SoftmaxGradient(t, other, t)));
  EXPECT_TRUE(IsBadParam(SoftmaxGradient(t, t, other)));
  EXPECT_TRUE(IsBadParam(SoftmaxGradient(t, nhwc, t))) << "strides of y and dy differ";
  EXPECT_TRUE(IsBadParam(SoftmaxGradient(t, t, half)));
  kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
  cudnnTensorDescriptor_t larger = Tensor({2, 3, 4, 8});
  EXPECT_TRUE(IsNotSupported(Softmax(larger, larger))) << "there is no workspace";
}

TEST_F(LegacyNeighbours, GradientsOfPoolingWantTensorsInPairs) {
  cudnnTensorDescriptor_t x = Tensor({2, 3, 8, 8}), y = Tensor({2, 3, 4, 4}),
                          y_nhwc = Tensor({2, 3, 4, 4}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC),
                          x_nhwc = Tensor({2, 3, 8, 8}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC),
                          half = Tensor({2, 3, 4, 4}, CUDNN_DATA_HALF),
                          small = Tensor({2, 3, 2, 2}), x8 = Tensor({2, 3, 8, 8}, CUDNN_DATA_INT8),
                          y8 = Tensor({2, 3, 4, 4}, CUDNN_DATA_INT8);
  EXPECT_EQ(PoolingGradient(y, y, x, x), kOk);
  EXPECT_TRUE(IsBadParam(PoolingGradient(y, small, x, x)));
  EXPECT_TRUE(IsBadParam(PoolingGradient(y, y_nhwc, x, x)));
  EXPECT_TRUE(IsBadParam(PoolingGradient(y, half, x, x)));
  EXPECT_TRUE(IsBadParam(PoolingGradient(y, y, x, x_nhwc)));
  EXPECT_TRUE(IsBadParam(PoolingGradient(y, y, x, y)));
  EXPECT_TRUE(IsNotSupported(PoolingGradient(y8, y8, x8, x8)));
}

TEST_F(LegacyNeighbours, LrnKnowsItsTensors) {
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), other = Tensor({2, 3, 4, 6}),
                          half = Tensor({2, 3, 4, 5}, CUDNN_DATA_HALF),
                          volume = Tensor({2, 3, 2, 2, 5}),
                          volume_nhwc =
                              Tensor({2, 3, 2, 2, 5}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC),
                          six = Tensor({2, 3, 2, 2, 2, 2});
  EXPECT_EQ(Lrn(t, t, Memory(1)), kOk);
  EXPECT_EQ(Lrn(volume, volume, Memory(1)), kOk);
  EXPECT_TRUE(IsBadParam(Lrn(t, t, Memory(1), 1)));
  EXPECT_TRUE(IsBadParam(Lrn(t, t, nullptr)));
  EXPECT_TRUE(IsBadParam(Lrn(volume_nhwc, volume, Memory(1))));
  EXPECT_TRUE(IsBadParam(Lrn(volume, volume_nhwc, Memory(1))));
  EXPECT_TRUE(IsNotSupported(Lrn(t, half, Memory(1))));
  EXPECT_TRUE(IsNotSupported(Lrn(t, other, Memory(1))));
  EXPECT_TRUE(IsNotSupported(Lrn(six, six, Memory(1))));
  EXPECT_TRUE(IsNotSupported(Lrn(t, t, Memory(0)))) << "in place";
  EXPECT_EQ(LrnGradient(t, t, Memory(0)), kOk);
  EXPECT_EQ(LrnGradient(t, t, nullptr), kOk) << "nothing reads y";
  EXPECT_TRUE(IsNotSupported(LrnGradient(t, half, Memory(0))));
  EXPECT_TRUE(IsNotSupported(LrnGradient(t, other, Memory(0))));
}

TEST_F(LegacyNeighbours, DivisiveNormalizationKnowsItsTensors) {
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), other = Tensor({2, 3, 4, 6}),
                          flat = Tensor({2, 3, 4}), half = Tensor({2, 3, 4, 5}, CUDNN_DATA_HALF),
                          nhwc = Tensor({2, 3, 4, 5}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC);
  float *temp = Memory(3), *y = Memory(1);
  EXPECT_EQ(Divisive(t, t, temp, y), kOk);
  EXPECT_EQ(Divisive(t, t, temp, Memory(0)), kOk) << "in place";
  EXPECT_TRUE(IsBadParam(Divisive(t, nhwc, temp, Memory(0)))) << "in place with other strides";
  EXPECT_TRUE(IsBadParam(Divisive(t, t, nullptr, y)));
  EXPECT_TRUE(IsBadParam(Divisive(t, t, temp, nullptr)));
  EXPECT_TRUE(IsBadParam(Divisive(t, other, temp, y)));
  EXPECT_TRUE(IsBadParam(Divisive(flat, flat, temp, y)));
  EXPECT_TRUE(IsNotSupported(Divisive(t, nhwc, temp, y)));
  EXPECT_TRUE(IsNotSupported(Divisive(t, half, temp, y)));
  EXPECT_EQ(DivisiveGradient(t, t, temp), kOk);
  EXPECT_TRUE(IsBadParam(DivisiveGradient(t, t, nullptr)));
  EXPECT_TRUE(IsBadParam(DivisiveGradient(t, other, temp)));
  EXPECT_TRUE(IsNotSupported(DivisiveGradient(t, nhwc, temp)));
}

TEST_F(LegacyNeighbours, TransformersAreOfFourDims) {
  cudnnTensorDescriptor_t x = Tensor({2, 3, 5, 5}), y = Tensor({2, 3, 4, 6}),
                          wide = Tensor({2, 3, 4, 7}), channels = Tensor({2, 4, 5, 5}),
                          half = Tensor({2, 3, 4, 6}, CUDNN_DATA_HALF);
  float *theta = Memory(0), *grid = Memory(1);
  EXPECT_EQ(cudnnSpatialTfGridGeneratorForward(handle_, transformer_, theta, grid), kOk);
  EXPECT_TRUE(IsBadParam(cudnnSpatialTfGridGeneratorForward(handle_, transformer_, nullptr, grid)));
  EXPECT_TRUE(
      IsBadParam(cudnnSpatialTfGridGeneratorBackward(handle_, transformer_, grid, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnSpatialTfGridGeneratorForward(nullptr, transformer_, theta, grid)));
  EXPECT_EQ(Sample(x, y, grid), kOk);
  EXPECT_TRUE(IsBadParam(Sample(x, y, nullptr)));
  EXPECT_TRUE(IsBadParam(Sample(x, wide, grid)));
  EXPECT_TRUE(IsBadParam(Sample(channels, y, grid)));
  EXPECT_TRUE(IsBadParam(Sample(x, half, grid)));
  const auto gradient = [&](cudnnTensorDescriptor_t dx, cudnnTensorDescriptor_t dy, float* dgrid) {
    return cudnnSpatialTfSamplerBackward(handle_, transformer_, &one_, x, Memory(0), &zero_, dx,
                                         Memory(2), &one_, dy, Memory(3), grid, &zero_, dgrid);
  };
  EXPECT_EQ(gradient(x, y, Memory(4)), kOk);
  EXPECT_TRUE(IsBadParam(gradient(x, y, nullptr)));
  EXPECT_TRUE(IsBadParam(gradient(x, wide, Memory(4))));
  EXPECT_TRUE(IsBadParam(gradient(y, y, Memory(4))));
  Transform({2, 3, 2, 2, 3});
  EXPECT_TRUE(
      IsNotSupported(cudnnSpatialTfGridGeneratorForward(handle_, transformer_, theta, grid)));
  EXPECT_TRUE(IsNotSupported(Sample(x, y, grid)));
}

}  // namespace
