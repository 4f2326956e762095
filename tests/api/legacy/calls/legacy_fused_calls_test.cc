// Fused operations: what packs hold, and the statuses that the reference names for plans and
// executions, of either generation.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

// Statistics of four channels, finalized: the operation with the smallest packs.
class LegacyFused : public ::testing::Test {
 protected:
  static constexpr cudnnFusedOps_t kOp = CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING;

  void SetUp() override {
    kiln::api::SetFakeWorkspace(0);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&channels_), kOk);
    ASSERT_EQ(
        cudnnSetTensor4dDescriptor(channels_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 4, 1, 1),
        kOk);
    ASSERT_EQ(cudnnCreateFusedOpsConstParamPack(&constants_, kOp), kOk);
    ASSERT_EQ(cudnnCreateFusedOpsVariantParamPack(&variants_, kOp), kOk);
    ASSERT_EQ(cudnnCreateFusedOpsPlan(&plan_, kOp), kOk);
    Number(CUDNN_PARAM_BN_MODE, CUDNN_BATCHNORM_SPATIAL);
    for (const auto label : {CUDNN_PARAM_YSTATS_DESC, CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC})
      ASSERT_EQ(cudnnSetFusedOpsConstParamPackAttribute(constants_, label, channels_), kOk);
    Pointer(CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PTR_YSUM, 0);
    Pointer(CUDNN_PARAM_YSQSUM_PLACEHOLDER, CUDNN_PTR_YSQSUM, 1);
    Pointer(CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER, CUDNN_PTR_BN_SAVED_MEAN, 2);
    double epsilon = 1e-3;
    int64_t count = 10;
    Scalar(CUDNN_SCALAR_DOUBLE_BN_EPSILON, &epsilon);
    Scalar(CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, &count);
  }
  void TearDown() override {
    EXPECT_EQ(cudnnDestroyFusedOpsConstParamPack(constants_), kOk);
    EXPECT_EQ(cudnnDestroyFusedOpsVariantParamPack(variants_), kOk);
    EXPECT_EQ(cudnnDestroyFusedOpsPlan(plan_), kOk);
    EXPECT_EQ(cudnnDestroyTensorDescriptor(channels_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  void Number(cudnnFusedOpsConstParamLabel_t label, int value) {
    EXPECT_EQ(cudnnSetFusedOpsConstParamPackAttribute(constants_, label, &value), kOk);
  }
  void Scalar(cudnnFusedOpsVariantParamLabel_t label, void* value) {
    EXPECT_EQ(cudnnSetFusedOpsVariantParamPackAttribute(variants_, label, value), kOk);
  }
  void Pointer(cudnnFusedOpsConstParamLabel_t placeholder, cudnnFusedOpsVariantParamLabel_t label,
               int i) {
    Number(placeholder, CUDNN_PTR_16B_ALIGNED);
    Scalar(label, Memory(i));
  }
  float* Memory(int i) { return &memory_[i][0]; }
  cudnnStatus_t Make() { return cudnnMakeFusedOpsPlan(handle_, plan_, constants_, &bytes_); }
  cudnnStatus_t Execute() { return cudnnFusedOpsExecute(handle_, plan_, variants_); }

  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t channels_ = nullptr;
  cudnnFusedOpsConstParamPack_t constants_ = nullptr;
  cudnnFusedOpsVariantParamPack_t variants_ = nullptr;
  cudnnFusedOpsPlan_t plan_ = nullptr;
  size_t bytes_ = 99;

 private:
  alignas(16) float memory_[8][8] = {};
};

TEST_F(LegacyFused, OperationsAreSeven) {
  for (int op = -1; op < 9; ++op) {
    const auto which = static_cast<cudnnFusedOps_t>(op);
    cudnnFusedOpsConstParamPack_t constants = nullptr;
    cudnnFusedOpsVariantParamPack_t variants = nullptr;
    cudnnFusedOpsPlan_t plan = nullptr;
    const cudnnStatus_t statuses[] = {cudnnCreateFusedOpsConstParamPack(&constants, which),
                                      cudnnCreateFusedOpsVariantParamPack(&variants, which),
                                      cudnnCreateFusedOpsPlan(&plan, which)};
    for (const cudnnStatus_t status : statuses)
      EXPECT_TRUE(op >= 0 && op < 7 ? status == kOk : IsBadParam(status)) << op;
    EXPECT_EQ(cudnnDestroyFusedOpsConstParamPack(constants), kOk);
    EXPECT_EQ(cudnnDestroyFusedOpsVariantParamPack(variants), kOk);
    EXPECT_EQ(cudnnDestroyFusedOpsPlan(plan), kOk);
  }
  EXPECT_TRUE(IsBadParam(cudnnCreateFusedOpsConstParamPack(nullptr, kOp)));
  EXPECT_TRUE(IsBadParam(cudnnCreateFusedOpsVariantParamPack(nullptr, kOp)));
  EXPECT_TRUE(IsBadParam(cudnnCreateFusedOpsPlan(nullptr, kOp)));
}

TEST_F(LegacyFused, ConstantPacksKeepCopies) {
  cudnnTensorDescriptor_t copy = nullptr;
  ASSERT_EQ(cudnnCreateTensorDescriptor(&copy), kOk);
  int is_null = -1, mode = -1;
  const auto get = [&](cudnnFusedOpsConstParamLabel_t label, void* value) {
    return cudnnGetFusedOpsConstParamPackAttribute(constants_, label, value, &is_null);
  };
  // The pack's is what the descriptor was when it was set.
  ASSERT_EQ(cudnnSetTensor4dDescriptor(channels_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 9, 1, 1),
            kOk);
  ASSERT_EQ(get(CUDNN_PARAM_YSTATS_DESC, copy), kOk);
  EXPECT_EQ(is_null, 0);
  cudnnDataType_t type{};
  int n = 0, c = 0, h = 0, w = 0, strides[4];
  ASSERT_EQ(cudnnGetTensor4dDescriptor(copy, &type, &n, &c, &h, &w, &strides[0], &strides[1],
                                       &strides[2], &strides[3]),
            kOk);
  EXPECT_EQ(c, 4);
  ASSERT_EQ(get(CUDNN_PARAM_BN_MODE, &mode), kOk);
  EXPECT_EQ(mode, CUDNN_BATCHNORM_SPATIAL);
  ASSERT_EQ(get(CUDNN_PARAM_BN_EQSCALEBIAS_DESC, copy), kOk);
  EXPECT_NE(is_null, 0);
  ASSERT_EQ(cudnnSetFusedOpsConstParamPackAttribute(constants_, CUDNN_PARAM_YSTATS_DESC, nullptr),
            kOk);
  ASSERT_EQ(get(CUDNN_PARAM_YSTATS_DESC, copy), kOk);
  EXPECT_NE(is_null, 0);
  EXPECT_TRUE(IsBadParam(get(CUDNN_PARAM_XDESC, copy))) << "not of this operation";
  EXPECT_TRUE(IsBadParam(get(CUDNN_PARAM_BN_MODE, nullptr)));
  EXPECT_TRUE(IsBadParam(
      cudnnGetFusedOpsConstParamPackAttribute(constants_, CUDNN_PARAM_BN_MODE, &mode, nullptr)));
  EXPECT_TRUE(IsBadParam(
      cudnnGetFusedOpsConstParamPackAttribute(nullptr, CUDNN_PARAM_BN_MODE, &mode, &is_null)));
  for (const int label : {int{CUDNN_PARAM_XDESC}, -1, 39}) {
    EXPECT_TRUE(IsBadParam(cudnnSetFusedOpsConstParamPackAttribute(
        constants_, static_cast<cudnnFusedOpsConstParamLabel_t>(label), channels_)))
        << label;
  }
  EXPECT_TRUE(IsBadParam(
      cudnnSetFusedOpsConstParamPackAttribute(nullptr, CUDNN_PARAM_YSTATS_DESC, channels_)));
  EXPECT_EQ(cudnnDestroyTensorDescriptor(copy), kOk);
}

TEST_F(LegacyFused, VariantPacksKeepPointersAndNumbers) {
  void* pointer = nullptr;
  int64_t count = 0;
  const auto get = [&](int label, void* value) {
    return cudnnGetFusedOpsVariantParamPackAttribute(
        variants_, static_cast<cudnnFusedOpsVariantParamLabel_t>(label), value);
  };
  EXPECT_EQ(get(CUDNN_PTR_YSQSUM, &pointer), kOk);
  EXPECT_EQ(pointer, Memory(1));
  EXPECT_EQ(get(CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, &count), kOk);
  EXPECT_EQ(count, 10);
  Scalar(CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, nullptr);
  EXPECT_EQ(get(CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT, &count), kOk);
  EXPECT_EQ(count, 0);
  for (const int label : {int{CUDNN_PTR_XDATA}, -1, 24, 99, 104})
    EXPECT_TRUE(IsBadParam(get(label, &pointer))) << label;
  EXPECT_TRUE(IsBadParam(get(CUDNN_PTR_YSUM, nullptr)));
  EXPECT_TRUE(
      IsBadParam(cudnnGetFusedOpsVariantParamPackAttribute(nullptr, CUDNN_PTR_YSUM, &pointer)));
  EXPECT_TRUE(
      IsBadParam(cudnnSetFusedOpsVariantParamPackAttribute(nullptr, CUDNN_PTR_YSUM, Memory(0))));
  EXPECT_TRUE(
      IsBadParam(cudnnSetFusedOpsVariantParamPackAttribute(variants_, CUDNN_PTR_XDATA, Memory(0))));
}

TEST_F(LegacyFused, PlansNeedWhatTheOperationReads) {
  ASSERT_EQ(Make(), kOk);
  EXPECT_EQ(bytes_, 0u);
  EXPECT_EQ(Execute(), kOk);
  EXPECT_TRUE(IsBadParam(cudnnMakeFusedOpsPlan(nullptr, plan_, constants_, &bytes_)));
  EXPECT_TRUE(IsBadParam(cudnnMakeFusedOpsPlan(handle_, nullptr, constants_, &bytes_)));
  EXPECT_TRUE(IsBadParam(cudnnMakeFusedOpsPlan(handle_, plan_, nullptr, &bytes_)));
  EXPECT_TRUE(IsBadParam(cudnnMakeFusedOpsPlan(handle_, plan_, constants_, nullptr)));
  Number(CUDNN_PARAM_BN_MODE, CUDNN_BATCHNORM_PER_ACTIVATION);
  EXPECT_TRUE(IsNotSupported(Make()));
  Number(CUDNN_PARAM_BN_MODE, 7);
  EXPECT_TRUE(IsBadParam(Make()));
  Number(CUDNN_PARAM_BN_MODE, CUDNN_BATCHNORM_SPATIAL_PERSISTENT);
  EXPECT_EQ(Make(), kOk);
  Number(CUDNN_PARAM_YSUM_PLACEHOLDER, 3);
  EXPECT_TRUE(IsBadParam(Make()));
  Number(CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PTR_NULL);
  EXPECT_TRUE(IsBadParam(Make()));
  Number(CUDNN_PARAM_YSUM_PLACEHOLDER, CUDNN_PTR_ELEM_ALIGNED);
  EXPECT_EQ(Make(), kOk);
  ASSERT_EQ(cudnnSetFusedOpsConstParamPackAttribute(constants_, CUDNN_PARAM_YSTATS_DESC, nullptr),
            kOk);
  EXPECT_TRUE(IsBadParam(Make()));
  cudnnFusedOpsPlan_t other = nullptr;
  ASSERT_EQ(cudnnCreateFusedOpsPlan(&other, CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD), kOk);
  EXPECT_TRUE(IsBadParam(cudnnMakeFusedOpsPlan(handle_, other, constants_, &bytes_)));
  EXPECT_TRUE(IsBadParam(cudnnFusedOpsExecute(handle_, other, variants_)));
  EXPECT_EQ(cudnnDestroyFusedOpsPlan(other), kOk);
}

TEST_F(LegacyFused, ExecutionsKeepWhatWasPromised) {
  EXPECT_TRUE(IsBadParam(Execute())) << "the plan was not made";
  ASSERT_EQ(Make(), kOk);
  ASSERT_EQ(Execute(), kOk);
  EXPECT_TRUE(IsBadParam(cudnnFusedOpsExecute(nullptr, plan_, variants_)));
  EXPECT_TRUE(IsBadParam(cudnnFusedOpsExecute(handle_, nullptr, variants_)));
  EXPECT_TRUE(IsBadParam(cudnnFusedOpsExecute(handle_, plan_, nullptr)));
  Scalar(CUDNN_PTR_YSUM, Memory(0) + 1);
  EXPECT_TRUE(IsBadParam(Execute())) << "16 bytes were promised";
  Scalar(CUDNN_PTR_YSUM, nullptr);
  EXPECT_TRUE(IsBadParam(Execute())) << "a pointer was promised";
  Scalar(CUDNN_PTR_YSUM, Memory(0));
  Scalar(CUDNN_PTR_BN_RUNNING_MEAN, Memory(3));
  EXPECT_TRUE(IsBadParam(Execute())) << "no pointer was promised";
  Scalar(CUDNN_PTR_BN_RUNNING_MEAN, nullptr);
  double epsilon = -1;
  Scalar(CUDNN_SCALAR_DOUBLE_BN_EPSILON, &epsilon);
  EXPECT_TRUE(IsBadParam(Execute()));
}

TEST_F(LegacyFused, TheWorkspaceMustBeWhatThePlanWants) {
  kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
  // Another alignment, so that it is no plan of another test.
  Number(CUDNN_PARAM_YSQSUM_PLACEHOLDER, CUDNN_PTR_ELEM_ALIGNED);
  Number(CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER, CUDNN_PTR_ELEM_ALIGNED);
  ASSERT_EQ(Make(), kOk);
  ASSERT_EQ(bytes_, static_cast<size_t>(kiln::api::kFakeWorkspace));
  alignas(256) char workspace[kiln::api::kFakeWorkspace];
  EXPECT_TRUE(IsBadParam(Execute()));
  Scalar(CUDNN_PTR_WORKSPACE, workspace);
  size_t less = bytes_ - 1;
  Scalar(CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES, &less);
  EXPECT_TRUE(IsBadParam(Execute()));
  Scalar(CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES, &bytes_);
  EXPECT_EQ(Execute(), kOk);
}

}  // namespace
