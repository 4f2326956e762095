// Misuse of convolutions of the legacy API, and what Get and Find say: as legacy_calls_test.cc.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/api/fake_session.h"
#include "tests/api/legacy/legacy_status.h"

namespace {

// A 3x3 convolution of small images.
class LegacyConvolutions : public ::testing::Test {
 protected:
  void SetUp() override {
    kiln::api::SetFakeWorkspace(0);
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&x_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&y_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&bias_), kOk);
    ASSERT_EQ(cudnnCreateFilterDescriptor(&w_), kOk);
    ASSERT_EQ(cudnnCreateConvolutionDescriptor(&conv_), kOk);
    SetX(2, 4, 8, 8);
    SetW(6, 4, 3, 3);
    SetY(2, 6, 8, 8);
    SetConvolution(CUDNN_DATA_FLOAT);
    ASSERT_EQ(cudnnSetTensor4dDescriptor(bias_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 6, 1, 1),
              kOk);
  }
  void TearDown() override {
    for (cudnnTensorDescriptor_t t : {x_, y_, bias_})
      EXPECT_EQ(cudnnDestroyTensorDescriptor(t), kOk);
    EXPECT_EQ(cudnnDestroyFilterDescriptor(w_), kOk);
    EXPECT_EQ(cudnnDestroyConvolutionDescriptor(conv_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }

  void SetX(int n, int c, int h, int w, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    ASSERT_EQ(cudnnSetTensor4dDescriptor(x_, CUDNN_TENSOR_NCHW, type, n, c, h, w), kOk);
  }
  void SetY(int n, int c, int h, int w, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    ASSERT_EQ(cudnnSetTensor4dDescriptor(y_, CUDNN_TENSOR_NCHW, type, n, c, h, w), kOk);
  }
  void SetW(int k, int c, int r, int s, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    ASSERT_EQ(cudnnSetFilter4dDescriptor(w_, type, CUDNN_TENSOR_NCHW, k, c, r, s), kOk);
  }
  void SetConvolution(cudnnDataType_t compute) {
    ASSERT_EQ(
        cudnnSetConvolution2dDescriptor(conv_, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, compute),
        kOk);
  }
  float* Memory(int i) { return &memory_[static_cast<size_t>(i) * 4096]; }

  cudnnStatus_t Forward(cudnnConvolutionFwdAlgo_t algorithm, size_t workspace_bytes = 0) {
    return cudnnConvolutionForward(handle_, &one_, x_, Memory(0), w_, Memory(1), conv_, algorithm,
                                   workspace_bytes == 0 ? nullptr : Memory(3), workspace_bytes,
                                   &zero_, y_, Memory(2));
  }
  cudnnStatus_t Data() {
    return cudnnConvolutionBackwardData(handle_, &one_, w_, Memory(1), y_, Memory(2), conv_,
                                        CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, nullptr, 0, &zero_, x_,
                                        Memory(0));
  }
  cudnnStatus_t Filter() {
    return cudnnConvolutionBackwardFilter(handle_, &one_, x_, Memory(0), y_, Memory(2), conv_,
                                          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, nullptr, 0, &zero_,
                                          w_, Memory(1));
  }

  static constexpr auto kPrecomp = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr, bias_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
  const float one_ = 1, zero_ = 0;

 private:
  std::vector<float> memory_ = std::vector<float>(4 * 4096, 1);
};

TEST_F(LegacyConvolutions, AlgorithmsAreCounted) {
  int forward = 0, data = 0, filter = 0;
  EXPECT_EQ(cudnnGetConvolutionForwardAlgorithmMaxCount(handle_, &forward), kOk);
  EXPECT_EQ(cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle_, &data), kOk);
  EXPECT_EQ(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle_, &filter), kOk);
  // 9.19's, which lists two algorithms of each direction for two math types.
  EXPECT_EQ(forward, 10);
  EXPECT_EQ(data, 8);
  EXPECT_EQ(filter, 9);
  EXPECT_TRUE(IsBadParam(cudnnGetConvolutionBackwardDataAlgorithmMaxCount(nullptr, &data)));
  EXPECT_TRUE(IsBadParam(cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle_, nullptr)));
}

TEST_F(LegacyConvolutions, TensorsMustFit) {
  EXPECT_EQ(Forward(kPrecomp), kOk);
  EXPECT_EQ(Data(), kOk);
  EXPECT_EQ(Filter(), kOk);
  SetY(2, 6, 7, 8);
  EXPECT_TRUE(IsNotSupported(Forward(kPrecomp))) << "another size in space";
  EXPECT_TRUE(IsBadParam(Data()));
  EXPECT_TRUE(IsBadParam(Filter()));
  SetY(2, 5, 8, 8);
  EXPECT_TRUE(IsBadParam(Forward(kPrecomp)));
  SetY(2, 6, 8, 8);
  SetW(6, 3, 3, 3);
  EXPECT_TRUE(IsBadParam(Forward(kPrecomp)));
  EXPECT_TRUE(IsBadParam(Data()));
  EXPECT_TRUE(IsBadParam(Filter()));
  SetW(6, 4, 11, 3);
  EXPECT_TRUE(IsBadParam(Forward(kPrecomp))) << "the window does not fit";
}

TEST_F(LegacyConvolutions, GroupsMustDivide) {
  ASSERT_EQ(cudnnSetConvolutionGroupCount(conv_, 4), kOk);
  SetW(6, 1, 3, 3);
  EXPECT_TRUE(IsBadParam(Forward(kPrecomp))) << "6 filters in 4 groups";
  ASSERT_EQ(cudnnSetConvolutionGroupCount(conv_, 2), kOk);
  SetW(6, 2, 3, 3);
  EXPECT_EQ(Forward(kPrecomp), kOk);
}

TEST_F(LegacyConvolutions, TypesAreTheTables) {
  SetConvolution(CUDNN_DATA_HALF);
  EXPECT_TRUE(IsNotSupported(Forward(kPrecomp)));
  SetConvolution(CUDNN_DATA_FLOAT);
  SetY(2, 6, 8, 8, CUDNN_DATA_HALF);
  EXPECT_TRUE(IsBadParam(Forward(kPrecomp)));
  SetX(2, 4, 8, 8, CUDNN_DATA_INT8);
  SetW(6, 4, 3, 3, CUDNN_DATA_INT8);
  SetY(2, 6, 8, 8, CUDNN_DATA_INT8);
  SetConvolution(CUDNN_DATA_INT32);
  EXPECT_EQ(Forward(kPrecomp), kOk);
  EXPECT_TRUE(IsNotSupported(Data())) << "gradients have no integers";
}

TEST_F(LegacyConvolutions, NamedAlgorithmsCompute) {
  for (const int number : {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 100}) {
    const bool is_none = number < 0 || number > 7 || number == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT ||
                         number == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD;
    const auto algorithm = static_cast<cudnnConvolutionFwdAlgo_t>(number);
    size_t bytes = 0;
    const cudnnStatus_t asked =
        cudnnGetConvolutionForwardWorkspaceSize(handle_, x_, w_, conv_, y_, algorithm, &bytes);
    EXPECT_TRUE(is_none ? IsNotSupported(asked) : asked == kOk) << number;
    const cudnnStatus_t ran = Forward(algorithm, bytes);
    EXPECT_TRUE(is_none ? IsNotSupported(ran) : ran == kOk) << number;
  }
}

TEST_F(LegacyConvolutions, TheWorkspaceIsWhatWasAskedFor) {
  kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
  SetX(1, 4, 8, 8);
  SetY(1, 6, 8, 8);
  size_t bytes = 0;
  ASSERT_EQ(cudnnGetConvolutionForwardWorkspaceSize(handle_, x_, w_, conv_, y_, kPrecomp, &bytes),
            kOk);
  EXPECT_EQ(bytes, static_cast<size_t>(kiln::api::kFakeWorkspace));
  EXPECT_EQ(Forward(kPrecomp, bytes), kOk);
  EXPECT_TRUE(IsBadParam(Forward(kPrecomp, bytes - 1)));
  // The algorithm that needs the least has no plan here that needs less.
  constexpr auto kLeast = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  ASSERT_EQ(cudnnGetConvolutionForwardWorkspaceSize(handle_, x_, w_, conv_, y_, kLeast, &bytes),
            kOk);
  EXPECT_EQ(bytes, static_cast<size_t>(kiln::api::kFakeWorkspace));
  EXPECT_EQ(Forward(kLeast, bytes), kOk);
  EXPECT_TRUE(IsBadParam(Forward(kLeast, bytes - 1)));
}

// Compilers run for what runs.
TEST_F(LegacyConvolutions, OnlyACallBuildsAPlan) {
  kiln::api::SetFakeWorkspace(kiln::api::kFakeWorkspace);
  SetX(5, 4, 8, 8);
  SetY(5, 6, 8, 8);
  const int before = kiln::api::FakeBuilds();
  int count = 0;
  std::array<cudnnConvolutionFwdAlgoPerf_t, 8> perfs = {};
  ASSERT_EQ(
      cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, 8, &count, perfs.data()),
      kOk);
  EXPECT_EQ(perfs[0].algo, kPrecomp);
  EXPECT_EQ(kiln::api::FakeBuilds(), before);
  for (int call = 0; call < 3; ++call) EXPECT_EQ(Forward(kPrecomp, perfs[0].memory), kOk);
  EXPECT_EQ(kiln::api::FakeBuilds(), before + 1);
}

// Plans from before give way to what Find discovers; who was told less may go on with less.
TEST_F(LegacyConvolutions, FindReplacesPlans) {
  const auto told = [&] {
    size_t bytes = 0;
    EXPECT_EQ(cudnnGetConvolutionForwardWorkspaceSize(handle_, x_, w_, conv_, y_, kPrecomp, &bytes),
              kOk);
    return bytes;
  };
  SetX(3, 4, 8, 8);
  SetY(3, 6, 8, 8);
  kiln::api::SetFakeWorkspace(128);
  EXPECT_EQ(told(), 128u);
  kiln::api::SetFakeDiscovery(192);
  int count = 0;
  std::array<cudnnConvolutionFwdAlgoPerf_t, 8> perfs = {};
  ASSERT_EQ(
      cudnnFindConvolutionForwardAlgorithmEx(handle_, x_, Memory(0), w_, Memory(1), conv_, y_,
                                             Memory(2), 8, &count, perfs.data(), Memory(3), 192),
      kOk);
  const auto* const best = std::ranges::find(perfs, kPrecomp, &cudnnConvolutionFwdAlgoPerf_t::algo);
  ASSERT_NE(best, perfs.end());
  EXPECT_EQ(best->memory, 192u);
  EXPECT_EQ(told(), 192u);
  EXPECT_EQ(Forward(kPrecomp, 192), kOk);
  EXPECT_TRUE(IsBadParam(Forward(kPrecomp, 127))) << "nobody was told less than 128";
  kiln::api::SetFakeWorkspace(128);  // a smaller plan is there
  EXPECT_EQ(Forward(kPrecomp, 128), kOk);
  // Find says that a workspace is too small.
  ASSERT_EQ(
      cudnnFindConvolutionForwardAlgorithmEx(handle_, x_, Memory(0), w_, Memory(1), conv_, y_,
                                             Memory(2), 8, &count, perfs.data(), Memory(3), 191),
      kOk);
  const auto second = std::ranges::find(perfs, kPrecomp, &cudnnConvolutionFwdAlgoPerf_t::algo);
  ASSERT_NE(second, perfs.end());
  EXPECT_EQ(static_cast<int>(second->status), CUDNN_MAJOR == 8 ? 2 : 4004) << "allocation failed";
}

TEST_F(LegacyConvolutions, GetAndFindNameWhatThereIs) {
  int most = 0, count = 0;
  ASSERT_EQ(cudnnGetConvolutionForwardAlgorithmMaxCount(handle_, &most), kOk);
  EXPECT_EQ(most, 10);
  std::array<cudnnConvolutionFwdAlgoPerf_t, 8> perfs = {};
  const auto check = [&](bool measured) {
    ASSERT_EQ(count, 8);
    std::array<size_t, 8> places = {};
    for (size_t i = 0; i < 8; ++i) {
      const int algorithm = perfs[i].algo;
      places[static_cast<size_t>(algorithm)] = i;
      if (algorithm == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT ||
          algorithm == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD) {
        EXPECT_TRUE(IsNotSupported(perfs[i].status)) << algorithm;
        EXPECT_GE(i, 6u) << algorithm;
        continue;
      }
      EXPECT_EQ(perfs[i].status, kOk) << algorithm;
      EXPECT_EQ(perfs[i].determinism, CUDNN_DETERMINISTIC) << algorithm;
      EXPECT_EQ(perfs[i].mathType, CUDNN_TENSOR_OP_MATH) << algorithm;
      EXPECT_EQ(perfs[i].time > 0, measured) << algorithm;
    }
    for (const int shared : {2, 4, 5, 7}) {
      const auto& own = perfs[places[1]];
      const auto& other = perfs[places[static_cast<size_t>(shared)]];
      EXPECT_GT(places[static_cast<size_t>(shared)], places[1]) << shared;
      EXPECT_EQ(other.memory, own.memory) << shared;
      EXPECT_EQ(other.time, own.time) << shared;
    }
  };
  ASSERT_EQ(cudnnSetConvolutionMathType(conv_, CUDNN_TENSOR_OP_MATH), kOk);
  ASSERT_EQ(
      cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, 8, &count, perfs.data()),
      kOk);
  EXPECT_EQ(perfs[0].algo, kPrecomp) << "the best comes first";
  check(false);
  ASSERT_EQ(
      cudnnFindConvolutionForwardAlgorithm(handle_, x_, w_, conv_, y_, 8, &count, perfs.data()),
      kOk);
  check(true);
  ASSERT_EQ(cudnnFindConvolutionForwardAlgorithmEx(handle_, x_, Memory(0), w_, Memory(1), conv_, y_,
                                                   Memory(2), 8, &count, perfs.data(), nullptr, 0),
            kOk);
  check(true);
  // Fewer than there are.
  ASSERT_EQ(
      cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, 1, &count, perfs.data()),
      kOk);
  EXPECT_EQ(count, 1);
  // None, and a count that nobody wants.
  ASSERT_EQ(
      cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, 0, &count, perfs.data()),
      kOk);
  EXPECT_EQ(count, 0);
  EXPECT_TRUE(IsBadParam(cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, -1,
                                                                &count, perfs.data())));
  perfs = {};
  EXPECT_EQ(
      cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, 8, nullptr, perfs.data()),
      kOk);
  EXPECT_EQ(perfs[0].algo, kPrecomp);
  EXPECT_TRUE(IsBadParam(
      cudnnGetConvolutionForwardAlgorithm_v7(handle_, x_, w_, conv_, y_, 8, &count, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnFindConvolutionForwardAlgorithmEx(handle_, x_, nullptr, w_, Memory(1),
                                                                conv_, y_, Memory(2), 8, &count,
                                                                perfs.data(), nullptr, 0)));
}

TEST_F(LegacyConvolutions, BiasesAndActivationsAreChecked) {
  cudnnActivationDescriptor_t act = nullptr;
  ASSERT_EQ(cudnnCreateActivationDescriptor(&act), kOk);
  const auto set = [&](cudnnActivationMode_t mode, cudnnNanPropagation_t nan) {
    ASSERT_EQ(cudnnSetActivationDescriptor(act, mode, nan, 0), kOk);
  };
  const auto run = [&](cudnnConvolutionFwdAlgo_t algorithm, cudnnTensorDescriptor_t z,
                       cudnnTensorDescriptor_t bias) {
    return cudnnConvolutionBiasActivationForward(handle_, &one_, x_, Memory(0), w_, Memory(1),
                                                 conv_, algorithm, nullptr, 0, &one_, z, Memory(2),
                                                 bias, Memory(3), act, y_, Memory(2));
  };
  constexpr auto kImplicit = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  set(CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN);
  EXPECT_EQ(run(kImplicit, y_, bias_), kOk);
  EXPECT_TRUE(IsBadParam(run(kImplicit, nullptr, bias_)));
  EXPECT_TRUE(IsNotSupported(run(kImplicit, x_, bias_))) << "z is not as y";
  EXPECT_TRUE(IsNotSupported(run(kImplicit, y_, y_))) << "no bias";
  set(CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN);
  // Any algorithm, whether or not the convolution by itself may have it.
  for (const auto algorithm :
       {kPrecomp, kImplicit, CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD})
    EXPECT_EQ(run(algorithm, y_, bias_), kOk) << algorithm;
  EXPECT_TRUE(IsNotSupported(run(CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, y_, bias_)));
  set(CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN);
  EXPECT_TRUE(IsNotSupported(run(kImplicit, y_, bias_)));
  set(CUDNN_ACTIVATION_TANH, CUDNN_NOT_PROPAGATE_NAN);
  EXPECT_TRUE(IsNotSupported(run(kImplicit, y_, bias_)));
  EXPECT_EQ(cudnnDestroyActivationDescriptor(act), kOk);
}

TEST_F(LegacyConvolutions, ABiasHasOneNumberAChannel) {
  const auto run = [&](cudnnTensorDescriptor_t db) {
    return cudnnConvolutionBackwardBias(handle_, &one_, y_, Memory(0), &zero_, db, Memory(1));
  };
  EXPECT_EQ(run(bias_), kOk);
  EXPECT_TRUE(IsBadParam(run(x_)));
  ASSERT_EQ(cudnnSetTensor4dDescriptor(bias_, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 6, 1, 2),
            kOk);
  EXPECT_TRUE(IsBadParam(run(bias_)));
  ASSERT_EQ(cudnnSetTensor4dDescriptor(bias_, CUDNN_TENSOR_NCHW, CUDNN_DATA_HALF, 1, 6, 1, 1), kOk);
  EXPECT_TRUE(IsBadParam(run(bias_)));
}

}  // namespace
