// Misuse of cudnnTransformTensorEx, cudnnTransformFilter, cudnnIm2Col and
// cudnnReorderFilterAndBias: the statuses that the reference names, of either generation.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

constexpr int kFloat = CUDNN_DATA_FLOAT;

class LegacyTransforms : public ::testing::Test {
 protected:
  void SetUp() override {
    kiln::api::SetFakeWorkspace(0);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateTensorTransformDescriptor(&transform_), kOk);
    ASSERT_EQ(cudnnCreateConvolutionDescriptor(&conv_), kOk);
    SetConvolution(CUDNN_DATA_FLOAT);
  }
  void TearDown() override {
    for (cudnnTensorDescriptor_t t : tensors_) cudnnDestroyTensorDescriptor(t);
    for (cudnnFilterDescriptor_t f : filters_) cudnnDestroyFilterDescriptor(f);
    EXPECT_EQ(cudnnDestroyTensorTransformDescriptor(transform_), kOk);
    EXPECT_EQ(cudnnDestroyConvolutionDescriptor(conv_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  cudnnTensorDescriptor_t Tensor(std::vector<int> dims, int type = kFloat) {
    cudnnTensorDescriptor_t t = nullptr;
    EXPECT_EQ(cudnnCreateTensorDescriptor(&t), kOk);
    EXPECT_EQ(cudnnSetTensorNdDescriptorEx(t, CUDNN_TENSOR_NCHW, static_cast<cudnnDataType_t>(type),
                                           static_cast<int>(dims.size()), dims.data()),
              kOk);
    tensors_.push_back(t);
    return t;
  }
  cudnnFilterDescriptor_t Filter(std::vector<int> dims, int type = kFloat) {
    cudnnFilterDescriptor_t f = nullptr;
    EXPECT_EQ(cudnnCreateFilterDescriptor(&f), kOk);
    const auto format = type == CUDNN_DATA_INT8x32 ? CUDNN_TENSOR_NCHW_VECT_C : CUDNN_TENSOR_NCHW;
    EXPECT_EQ(cudnnSetFilterNdDescriptor(f, static_cast<cudnnDataType_t>(type), format,
                                         static_cast<int>(dims.size()), dims.data()),
              kOk);
    filters_.push_back(f);
    return f;
  }
  void SetTransform(std::vector<int32_t> before, std::vector<uint32_t> fold,
                    cudnnFoldingDirection_t direction = CUDNN_TRANSFORM_FOLD) {
    EXPECT_EQ(cudnnSetTensorTransformDescriptor(transform_, 4, CUDNN_TENSOR_NHWC, before.data(),
                                                nullptr, fold.data(), direction),
              kOk);
  }
  void SetConvolution(cudnnDataType_t compute) {
    ASSERT_EQ(
        cudnnSetConvolution2dDescriptor(conv_, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, compute),
        kOk);
  }
  cudnnStatus_t Run(cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y) {
    return cudnnTransformTensorEx(handle_, transform_, &alpha_, x, Memory(0), &beta_, y, Memory(1));
  }
  cudnnStatus_t Run(cudnnFilterDescriptor_t x, cudnnFilterDescriptor_t y) {
    return cudnnTransformFilter(handle_, transform_, &alpha_, x, Memory(0), &beta_, y, Memory(1));
  }
  cudnnStatus_t Columns(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w) {
    return cudnnIm2Col(handle_, x, Memory(0), w, conv_, Memory(1));
  }
  float* Memory(int i) { return &memory_[static_cast<size_t>(i) * 2048]; }

  cudnnHandle_t handle_ = nullptr;
  cudnnTensorTransformDescriptor_t transform_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
  float alpha_ = 1, beta_ = 0;

 private:
  std::vector<cudnnTensorDescriptor_t> tensors_;
  std::vector<cudnnFilterDescriptor_t> filters_;
  std::vector<float> memory_ = std::vector<float>(4 * 2048, 1);
};

TEST_F(LegacyTransforms, AllMustBeThere) {
  auto t = Tensor({2, 4, 4, 4}), unset = static_cast<cudnnTensorDescriptor_t>(nullptr);
  float *x = Memory(0), *y = Memory(1);
  EXPECT_TRUE(IsBadParam(Run(t, t))) << "the transform was not set";
  SetTransform({0, 0, 0, 0}, {1, 1});
  EXPECT_EQ(Run(t, t), kOk);
  ASSERT_EQ(cudnnCreateTensorDescriptor(&unset), kOk);
  EXPECT_TRUE(IsBadParam(Run(unset, t)));
  EXPECT_TRUE(IsBadParam(Run(t, unset)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensorEx(nullptr, transform_, &alpha_, t, x, &beta_, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensorEx(handle_, nullptr, &alpha_, t, x, &beta_, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensorEx(handle_, transform_, nullptr, t, x, &beta_, t, y)));
  EXPECT_TRUE(
      IsBadParam(cudnnTransformTensorEx(handle_, transform_, &alpha_, t, x, nullptr, t, y)));
  EXPECT_EQ(cudnnDestroyTensorDescriptor(unset), kOk);
}

TEST_F(LegacyTransforms, ExtentsMustBeThoseOfTheTransform) {
  SetTransform({0, 0, 0, 0}, {2, 2});
  EXPECT_EQ(Run(Tensor({2, 3, 4, 4}), Tensor({2, 12, 2, 2})), kOk);
  EXPECT_EQ(Run(Filter({2, 3, 4, 4}), Filter({2, 12, 2, 2})), kOk);
  EXPECT_TRUE(IsBadParam(Run(Tensor({2, 3, 4, 4}), Tensor({2, 12, 2, 3}))));
  EXPECT_TRUE(IsBadParam(Run(Filter({2, 3, 4, 4}), Filter({2, 3, 4, 4}))));
  EXPECT_TRUE(IsBadParam(Run(Tensor({2, 3, 4, 4, 1}), Tensor({2, 12, 2, 2}))));
  EXPECT_TRUE(IsBadParam(Run(Tensor({2, 3, 4, 4}), Tensor({2, 12, 2, 2, 1}))));
  SetTransform({0, 0, 0, 0}, {2, 2}, CUDNN_TRANSFORM_UNFOLD);
  EXPECT_EQ(Run(Tensor({2, 12, 2, 2}), Tensor({2, 3, 4, 4})), kOk);
  EXPECT_TRUE(IsBadParam(Run(Tensor({2, 10, 2, 2}), Tensor({2, 3, 4, 4}))));
}

TEST_F(LegacyTransforms, FoldingAndPaddingTakeNoFactors) {
  auto x = Tensor({2, 4, 4, 4}), folded = Tensor({2, 16, 2, 2}), padded = Tensor({2, 4, 5, 4}),
       unfolded = Tensor({2, 1, 8, 8});
  for (const auto& [alpha, beta] : {std::pair{2.f, 0.f}, {1.f, 1.f}}) {
    alpha_ = alpha;
    beta_ = beta;
    SetTransform({0, 0, 0, 0}, {2, 2});
    EXPECT_TRUE(IsNotSupported(Run(x, folded)));
    SetTransform({0, 0, 1, 0}, {1, 1});
    EXPECT_TRUE(IsNotSupported(Run(x, padded)));
    SetTransform({0, 0, 0, 0}, {2, 2}, CUDNN_TRANSFORM_UNFOLD);
    EXPECT_EQ(Run(x, unfolded), kOk);
    SetTransform({0, 0, 0, 0}, {1, 1});
    EXPECT_EQ(Run(x, x), kOk);
  }
}

TEST_F(LegacyTransforms, ColumnsAreOfFloatsInOneGroup) {
  auto x = Tensor({2, 4, 5, 5}), i8 = Tensor({2, 4, 5, 5}, CUDNN_DATA_INT8);
  auto w = Filter({6, 4, 3, 3}), w8 = Filter({6, 4, 3, 3}, CUDNN_DATA_INT8),
       other = Filter({6, 3, 3, 3}), large = Filter({6, 4, 7, 7});
  EXPECT_EQ(Columns(x, w), kOk);
  EXPECT_TRUE(IsBadParam(Columns(x, other)));
  EXPECT_TRUE(IsBadParam(Columns(x, large)));
  EXPECT_TRUE(IsNotSupported(Columns(i8, w)));
  EXPECT_TRUE(IsNotSupported(Columns(x, w8)));
  EXPECT_TRUE(IsBadParam(cudnnIm2Col(handle_, x, nullptr, w, conv_, Memory(1))));
  EXPECT_TRUE(IsBadParam(cudnnIm2Col(handle_, x, Memory(0), w, conv_, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnIm2Col(nullptr, x, Memory(0), w, conv_, Memory(1))));
  EXPECT_TRUE(IsBadParam(cudnnIm2Col(handle_, nullptr, Memory(0), w, conv_, Memory(1))));
  EXPECT_TRUE(IsBadParam(cudnnIm2Col(handle_, x, Memory(0), nullptr, conv_, Memory(1))));
  EXPECT_TRUE(IsBadParam(cudnnIm2Col(handle_, x, Memory(0), w, nullptr, Memory(1))));
  SetConvolution(CUDNN_DATA_INT32);
  EXPECT_TRUE(IsNotSupported(Columns(x, w)));
  SetConvolution(CUDNN_DATA_FLOAT);
  ASSERT_EQ(cudnnSetConvolutionGroupCount(conv_, 2), kOk);
  EXPECT_TRUE(IsNotSupported(Columns(x, Filter({6, 2, 3, 3}))));
}

TEST_F(LegacyTransforms, FiltersOfVectorsAreReordered) {
  auto w = Filter({32, 32, 1, 1}, CUDNN_DATA_INT8x32), f32 = Filter({32, 32, 1, 1}),
       odd = Filter({33, 32, 1, 1}, CUDNN_DATA_INT8x32);
  float *from = Memory(0), *to = Memory(1), *bias = Memory(2), *bias_to = Memory(3);
  const auto run = [&](cudnnFilterDescriptor_t f, int order, const void* x, void* y, const void* b,
                       void* b_to, int with_bias) {
    return cudnnReorderFilterAndBias(handle_, f, static_cast<cudnnReorderType_t>(order), x, y,
                                     with_bias, b, b_to);
  };
  EXPECT_EQ(run(w, 0, from, to, bias, bias_to, 1), kOk);
  EXPECT_EQ(run(w, 0, from, to, nullptr, nullptr, 0), kOk);
  EXPECT_EQ(run(w, 0, from, to, nullptr, nullptr, -1), kOk);
  EXPECT_EQ(run(w, 1, from, to, bias, bias_to, 1), kOk);
  EXPECT_TRUE(IsBadParam(run(w, 2, from, to, bias, bias_to, 1)));
  EXPECT_TRUE(IsBadParam(run(w, 0, nullptr, to, bias, bias_to, 1)));
  EXPECT_TRUE(IsBadParam(run(w, 0, from, nullptr, bias, bias_to, 1)));
  EXPECT_TRUE(IsBadParam(run(w, 0, from, to, nullptr, bias_to, 1)));
  EXPECT_TRUE(IsBadParam(run(w, 0, from, to, bias, nullptr, 1)));
  EXPECT_TRUE(IsBadParam(run(nullptr, 0, from, to, bias, bias_to, 1)));
  EXPECT_TRUE(IsNotSupported(run(f32, 0, from, to, bias, bias_to, 1)));
  EXPECT_TRUE(IsNotSupported(run(odd, 0, from, to, bias, bias_to, 1)));
}

}  // namespace
