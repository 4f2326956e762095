// Misuse of compute calls of the legacy API: the statuses that the reference names, of either
// generation. What the calls compute is tests/numerics/legacy_test.cc's.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

// Descriptors and memory of a test; every tensor fits into the memory.
class LegacyCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    kiln::api::SetFakeWorkspace(0);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
  }
  void TearDown() override {
    for (cudnnTensorDescriptor_t t : tensors_) cudnnDestroyTensorDescriptor(t);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  cudnnTensorDescriptor_t Tensor(std::vector<int> dims, cudnnDataType_t type = CUDNN_DATA_FLOAT,
                                 cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW) {
    cudnnTensorDescriptor_t t = nullptr;
    EXPECT_EQ(cudnnCreateTensorDescriptor(&t), kOk);
    EXPECT_EQ(
        cudnnSetTensorNdDescriptorEx(t, format, type, static_cast<int>(dims.size()), dims.data()),
        kOk);
    tensors_.push_back(t);
    return t;
  }
  float* Memory(int i) { return &memory_[static_cast<size_t>(i) * 1024]; }

  cudnnHandle_t handle_ = nullptr;
  const float one_ = 1, zero_ = 0;

 private:
  std::vector<cudnnTensorDescriptor_t> tensors_;
  std::vector<float> memory_ = std::vector<float>(8 * 1024, 1);
};

TEST_F(LegacyCalls, HandlesAndScalarsMustBeThere) {
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), unset = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&unset), kOk);
  float *x = Memory(0), *y = Memory(1);
  EXPECT_EQ(cudnnTransformTensor(handle_, &one_, t, x, &zero_, t, y), kOk);
  EXPECT_TRUE(IsBadParam(cudnnTransformTensor(nullptr, &one_, t, x, &zero_, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensor(handle_, nullptr, t, x, &zero_, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensor(handle_, &one_, t, x, nullptr, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensor(handle_, &one_, nullptr, x, &zero_, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensor(handle_, &one_, unset, x, &zero_, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnScaleTensor(handle_, t, y, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnSetTensor(handle_, t, y, nullptr)));
  EXPECT_EQ(cudnnDestroyTensorDescriptor(unset), kOk);
}

TEST_F(LegacyCalls, WithoutAWorkspaceNoPlanMayWantOne) {
  kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 7});
  EXPECT_TRUE(IsNotSupported(cudnnScaleTensor(handle_, t, Memory(0), &one_)));
}

TEST_F(LegacyCalls, TensorsMustFit) {
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), other = Tensor({2, 3, 4, 6}),
                          half = Tensor({2, 3, 4, 5}, CUDNN_DATA_HALF), bias = Tensor({1, 3, 1, 1}),
                          wrong = Tensor({1, 2, 1, 1}), six = Tensor({2, 3, 4, 5, 1, 1}),
                          six_bias = Tensor({1, 3, 1, 1, 1, 1});
  float *x = Memory(0), *y = Memory(1);
  EXPECT_TRUE(IsBadParam(cudnnTransformTensor(handle_, &one_, t, x, &zero_, other, y)));
  EXPECT_TRUE(IsBadParam(cudnnTransformTensor(handle_, &one_, t, x, &zero_, half, y)));
  EXPECT_EQ(cudnnAddTensor(handle_, &one_, bias, x, &one_, t, y), kOk);
  EXPECT_TRUE(IsBadParam(cudnnAddTensor(handle_, &one_, wrong, x, &one_, t, y)));
  EXPECT_TRUE(IsBadParam(cudnnAddTensor(handle_, &one_, half, x, &one_, t, y)));
  EXPECT_TRUE(IsNotSupported(cudnnAddTensor(handle_, &one_, six_bias, x, &one_, six, y)));
}

TEST_F(LegacyCalls, OpTensorKnowsItsTable) {
  cudnnOpTensorDescriptor_t op = nullptr;
  ASSERT_EQ(cudnnCreateOpTensorDescriptor(&op), kOk);
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), i32 = Tensor({2, 3, 4, 5}, CUDNN_DATA_INT32),
                          wrong = Tensor({2, 3, 2, 5});
  float *a = Memory(0), *b = Memory(1), *c = Memory(2);
  const auto run = [&](cudnnTensorDescriptor_t left, cudnnTensorDescriptor_t right) {
    return cudnnOpTensor(handle_, op, &one_, left, a, &one_, right, b, &zero_, t, c);
  };
  ASSERT_EQ(cudnnSetOpTensorDescriptor(op, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT,
                                       CUDNN_NOT_PROPAGATE_NAN),
            kOk);
  EXPECT_EQ(run(t, t), kOk);
  EXPECT_TRUE(IsBadParam(run(t, i32)));
  EXPECT_TRUE(IsBadParam(run(t, wrong)));
  EXPECT_TRUE(IsBadParam(run(wrong, t)));
  EXPECT_TRUE(IsBadParam(run(t, nullptr)));
  ASSERT_EQ(
      cudnnSetOpTensorDescriptor(op, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_HALF, CUDNN_NOT_PROPAGATE_NAN),
      kOk);
  EXPECT_TRUE(IsNotSupported(run(t, t)));
  // The square root takes A alone.
  ASSERT_EQ(cudnnSetOpTensorDescriptor(op, CUDNN_OP_TENSOR_SQRT, CUDNN_DATA_FLOAT,
                                       CUDNN_NOT_PROPAGATE_NAN),
            kOk);
  EXPECT_EQ(run(t, nullptr), kOk);
  EXPECT_EQ(cudnnDestroyOpTensorDescriptor(op), kOk);
}

TEST_F(LegacyCalls, ReductionsNeedRoom) {
  kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
  cudnnReduceTensorDescriptor_t reduce = nullptr;
  ASSERT_EQ(cudnnCreateReduceTensorDescriptor(&reduce), kOk);
  const auto set = [&](cudnnReduceTensorOp_t op, cudnnReduceTensorIndices_t indices,
                       cudnnIndicesType_t type) {
    ASSERT_EQ(cudnnSetReduceTensorDescriptor(reduce, op, CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN,
                                             indices, type),
              kOk);
  };
  cudnnTensorDescriptor_t a = Tensor({2, 3, 4, 5}), c = Tensor({1, 3, 1, 1}),
                          wrong = Tensor({1, 2, 1, 1}),
                          f64 = Tensor({1, 3, 1, 1}, CUDNN_DATA_DOUBLE);
  float *x = Memory(0), *y = Memory(1), *indices = Memory(2), *workspace = Memory(3);
  const auto run = [&](cudnnTensorDescriptor_t to, size_t index_bytes, size_t workspace_bytes) {
    return cudnnReduceTensor(handle_, reduce, indices, index_bytes, workspace, workspace_bytes,
                             &one_, a, x, &zero_, to, y);
  };
  set(CUDNN_REDUCE_TENSOR_MAX, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, CUDNN_32BIT_INDICES);
  size_t index_bytes = 0, workspace_bytes = 0;
  ASSERT_EQ(cudnnGetReductionIndicesSize(handle_, reduce, a, c, &index_bytes), kOk);
  ASSERT_EQ(cudnnGetReductionWorkspaceSize(handle_, reduce, a, c, &workspace_bytes), kOk);
  EXPECT_EQ(index_bytes, 12u);
  EXPECT_EQ(workspace_bytes, static_cast<size_t>(kiln::api::kFakeWorkspace));
  EXPECT_EQ(run(c, index_bytes, workspace_bytes), kOk);
  EXPECT_EQ(run(c, index_bytes - 1, workspace_bytes), CUDNN_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(c, index_bytes, workspace_bytes - 1), CUDNN_STATUS_INVALID_VALUE);
  EXPECT_TRUE(IsBadParam(run(wrong, index_bytes, workspace_bytes)));
  EXPECT_TRUE(IsBadParam(run(a, 1024, workspace_bytes))) << "nothing is reduced";
  EXPECT_TRUE(IsBadParam(run(f64, index_bytes, workspace_bytes)));
  set(CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, CUDNN_32BIT_INDICES);
  EXPECT_TRUE(IsBadParam(run(c, index_bytes, workspace_bytes)));
  set(CUDNN_REDUCE_TENSOR_MAX, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, CUDNN_64BIT_INDICES);
  EXPECT_TRUE(IsNotSupported(run(c, 1024, workspace_bytes)));
  EXPECT_EQ(cudnnDestroyReduceTensorDescriptor(reduce), kOk);
}

TEST_F(LegacyCalls, ActivationsWantTensorsOfOneKind) {
  cudnnActivationDescriptor_t relu = nullptr;
  ASSERT_EQ(cudnnCreateActivationDescriptor(&relu), kOk);
  const auto set = [&](cudnnActivationMode_t mode) {
    ASSERT_EQ(cudnnSetActivationDescriptor(relu, mode, CUDNN_NOT_PROPAGATE_NAN, 0), kOk);
  };
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), other = Tensor({2, 3, 4, 6}),
                          half = Tensor({2, 3, 4, 5}, CUDNN_DATA_HALF),
                          nhwc = Tensor({2, 3, 4, 5}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC);
  float *x = Memory(0), *y = Memory(1), *dy = Memory(2), *dx = Memory(3);
  const auto forward = [&](cudnnTensorDescriptor_t from, cudnnTensorDescriptor_t to, float* out) {
    return cudnnActivationForward(handle_, relu, &one_, from, x, &zero_, to, out);
  };
  set(CUDNN_ACTIVATION_RELU);
  EXPECT_EQ(forward(t, t, y), kOk);
  EXPECT_EQ(forward(t, nhwc, y), kOk);
  EXPECT_EQ(forward(t, t, x), kOk) << "in place";
  EXPECT_TRUE(IsBadParam(forward(t, nhwc, x))) << "in place with other strides";
  EXPECT_TRUE(IsBadParam(forward(t, other, y)));
  EXPECT_TRUE(IsBadParam(forward(t, half, y)));
  const auto backward = [&](cudnnTensorDescriptor_t gradient, cudnnTensorDescriptor_t to,
                            float* out) {
    return cudnnActivationBackward(handle_, relu, &one_, t, y, gradient, dy, t, x, &zero_, to, out);
  };
  EXPECT_EQ(backward(t, t, dx), kOk);
  EXPECT_EQ(backward(t, t, dy), kOk) << "in place";
  EXPECT_TRUE(IsBadParam(backward(t, nhwc, dy))) << "in place with other strides";
  EXPECT_TRUE(IsNotSupported(backward(nhwc, t, dx)));
  EXPECT_TRUE(IsNotSupported(backward(other, t, dx)));
  EXPECT_TRUE(IsNotSupported(backward(half, t, dx)));
  set(CUDNN_ACTIVATION_IDENTITY);
  EXPECT_TRUE(IsBadParam(forward(t, t, y)));
  EXPECT_TRUE(IsBadParam(backward(t, t, dx)));
  EXPECT_EQ(cudnnDestroyActivationDescriptor(relu), kOk);
}

TEST_F(LegacyCalls, PoolingKeepsImagesAndChannels) {
  cudnnPoolingDescriptor_t pooling = nullptr;
  ASSERT_EQ(cudnnCreatePoolingDescriptor(&pooling), kOk);
  cudnnTensorDescriptor_t x = Tensor({2, 3, 8, 8}), y = Tensor({2, 3, 4, 4}),
                          channels = Tensor({2, 4, 4, 4}), images = Tensor({1, 3, 4, 4}),
                          half = Tensor({2, 3, 4, 4}, CUDNN_DATA_HALF),
                          volume = Tensor({2, 3, 4, 4, 4});
  const auto run = [&](cudnnTensorDescriptor_t from, cudnnTensorDescriptor_t to) {
    return cudnnPoolingForward(handle_, pooling, &one_, from, Memory(0), &zero_, to, Memory(1));
  };
  EXPECT_TRUE(IsBadParam(run(x, y))) << "the descriptor was not set";
  ASSERT_EQ(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2,
                                        0, 0, 2, 2),
            kOk);
  EXPECT_EQ(run(x, y), kOk);
  EXPECT_TRUE(IsBadParam(run(x, channels)));
  EXPECT_TRUE(IsBadParam(run(x, images)));
  EXPECT_TRUE(IsBadParam(run(x, half)));
  EXPECT_TRUE(IsBadParam(run(volume, volume)));
  EXPECT_EQ(cudnnDestroyPoolingDescriptor(pooling), kOk);
}

TEST_F(LegacyCalls, DropoutNeedsStatesAndRoom) {
  cudnnDropoutDescriptor_t dropout = nullptr;
  ASSERT_EQ(cudnnCreateDropoutDescriptor(&dropout), kOk);
  size_t state_bytes = 0, reserve_bytes = 0;
  ASSERT_EQ(cudnnDropoutGetStatesSize(handle_, &state_bytes), kOk);
  EXPECT_TRUE(IsBadParam(cudnnDropoutGetStatesSize(nullptr, &state_bytes)));
  cudnnTensorDescriptor_t t = Tensor({2, 3, 4, 5}), other = Tensor({2, 3, 4, 6}),
                          half = Tensor({2, 3, 4, 5}, CUDNN_DATA_HALF),
                          nhwc = Tensor({2, 3, 4, 5}, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC);
  ASSERT_EQ(cudnnDropoutGetReserveSpaceSize(t, &reserve_bytes), kOk);
  float *x = Memory(0), *y = Memory(1);
  const auto forward = [&](cudnnTensorDescriptor_t to, float* out, size_t bytes) {
    return cudnnDropoutForward(handle_, dropout, t, x, to, out, Memory(2), bytes);
  };
  // Without states the fraction alone is set.
  ASSERT_EQ(cudnnSetDropoutDescriptor(dropout, handle_, 0.5f, nullptr, 0, 1), kOk);
  EXPECT_TRUE(IsBadParam(forward(t, y, reserve_bytes)));
  EXPECT_EQ(cudnnSetDropoutDescriptor(dropout, handle_, 0.5f, Memory(3), state_bytes - 1, 1),
            CUDNN_STATUS_INVALID_VALUE);
  EXPECT_EQ(cudnnRestoreDropoutDescriptor(dropout, handle_, 0.5f, Memory(3), state_bytes - 1, 1),
            CUDNN_STATUS_INVALID_VALUE);
  EXPECT_TRUE(
      IsBadParam(cudnnSetDropoutDescriptor(dropout, handle_, 1.5f, Memory(3), state_bytes, 1)));
  ASSERT_EQ(cudnnSetDropoutDescriptor(dropout, handle_, 0.25f, Memory(3), state_bytes, 7), kOk);
  float fraction = 0;
  void* states = nullptr;
  unsigned long long seed = 0;
  ASSERT_EQ(cudnnGetDropoutDescriptor(dropout, handle_, &fraction, &states, &seed), kOk);
  EXPECT_EQ(fraction, 0.25f);
  EXPECT_EQ(states, Memory(3));
  EXPECT_EQ(seed, 7u);
  EXPECT_EQ(forward(t, y, reserve_bytes), kOk);
  EXPECT_EQ(forward(t, x, reserve_bytes), kOk) << "in place";
  EXPECT_TRUE(IsBadParam(forward(nhwc, x, reserve_bytes))) << "in place with other strides";
  EXPECT_TRUE(IsBadParam(forward(t, y, reserve_bytes - 1)));
  EXPECT_TRUE(IsBadParam(forward(other, y, reserve_bytes)));
  EXPECT_TRUE(IsBadParam(forward(half, y, reserve_bytes)));
  EXPECT_TRUE(
      IsBadParam(cudnnDropoutBackward(handle_, dropout, t, x, t, y, Memory(2), reserve_bytes - 1)));
  EXPECT_EQ(cudnnDestroyDropoutDescriptor(dropout), kOk);
}

}  // namespace
