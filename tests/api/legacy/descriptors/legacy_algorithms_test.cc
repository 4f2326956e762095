// Algorithm and performance objects, which generation 8 has: what is set is read back, and what was
// saved is restored, or refused for the reason that the reference names.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/api/legacy/legacy_status.h"

namespace {

cudnnAlgorithm_t Filter(cudnnConvolutionBwdFilterAlgo_t value) {
  cudnnAlgorithm_t algorithm = {};
  algorithm.algo.convBwdFilterAlgo = value;
  return algorithm;
}

class LegacyAlgorithms : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateAlgorithmDescriptor(&first_), kOk);
    ASSERT_EQ(cudnnCreateAlgorithmDescriptor(&second_), kOk);
    ASSERT_EQ(
        cudnnSetAlgorithmDescriptor(first_, Filter(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING)),
        kOk);
  }
  void TearDown() override {
    EXPECT_EQ(cudnnDestroyAlgorithmDescriptor(first_), kOk);
    EXPECT_EQ(cudnnDestroyAlgorithmDescriptor(second_), kOk);
    EXPECT_EQ(cudnnDestroy(handle_), kOk);
  }
  cudnnConvolutionBwdFilterAlgo_t In(cudnnAlgorithmDescriptor_t descriptor) {
    cudnnAlgorithm_t algorithm = {};
    EXPECT_EQ(cudnnGetAlgorithmDescriptor(descriptor, &algorithm), kOk);
    return algorithm.algo.convBwdFilterAlgo;
  }
  std::vector<char> Saved() {
    size_t bytes = 0;
    EXPECT_EQ(cudnnGetAlgorithmSpaceSize(handle_, first_, &bytes), kOk);
    std::vector<char> space(bytes + 1);
    EXPECT_EQ(cudnnSaveAlgorithm(handle_, first_, space.data(), bytes), kOk);
    return space;
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnAlgorithmDescriptor_t first_ = nullptr, second_ = nullptr;
};

TEST_F(LegacyAlgorithms, AreWhatWasSet) {
  EXPECT_EQ(In(first_), CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING);
  EXPECT_EQ(In(second_), CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0);
  EXPECT_EQ(cudnnCopyAlgorithmDescriptor(first_, second_), kOk);
  EXPECT_EQ(In(second_), CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING);
}

TEST_F(LegacyAlgorithms, MustBeThere) {
  cudnnAlgorithm_t algorithm = {};
  EXPECT_TRUE(IsBadParam(cudnnCreateAlgorithmDescriptor(nullptr)));
  EXPECT_EQ(cudnnDestroyAlgorithmDescriptor(nullptr), kOk);
  EXPECT_TRUE(IsBadParam(cudnnSetAlgorithmDescriptor(nullptr, algorithm)));
  EXPECT_TRUE(IsBadParam(cudnnGetAlgorithmDescriptor(nullptr, &algorithm)));
  EXPECT_TRUE(IsBadParam(cudnnGetAlgorithmDescriptor(first_, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnCopyAlgorithmDescriptor(nullptr, second_)));
  EXPECT_TRUE(IsBadParam(cudnnCopyAlgorithmDescriptor(first_, nullptr)));
}

TEST_F(LegacyAlgorithms, PerformanceIsWhatWasSet) {
  std::array<cudnnAlgorithmPerformance_t, 3> performance = {};
  ASSERT_EQ(cudnnCreateAlgorithmPerformance(performance.data(), 3), kOk);
  EXPECT_NE(performance[0], performance[2]);
  ASSERT_EQ(cudnnSetAlgorithmPerformance(performance[1], first_, CUDNN_STATUS_ALLOC_FAILED, 1.5f,
                                         size_t{1} << 40),
            kOk);
  cudnnAlgorithmDescriptor_t algorithm = nullptr;
  cudnnStatus_t status = kOk;
  float time = 0;
  size_t memory = 0;
  ASSERT_EQ(cudnnGetAlgorithmPerformance(performance[1], &algorithm, &status, &time, &memory), kOk);
  EXPECT_EQ(algorithm, first_);
  EXPECT_EQ(status, CUDNN_STATUS_ALLOC_FAILED);
  EXPECT_EQ(time, 1.5f);
  EXPECT_EQ(memory, size_t{1} << 40);
  EXPECT_TRUE(IsBadParam(cudnnSetAlgorithmPerformance(nullptr, first_, kOk, 0, 0)));
  EXPECT_TRUE(IsBadParam(cudnnSetAlgorithmPerformance(performance[0], nullptr, kOk, 0, 0)));
  EXPECT_TRUE(
      IsBadParam(cudnnGetAlgorithmPerformance(nullptr, &algorithm, &status, &time, &memory)));
  EXPECT_TRUE(IsBadParam(cudnnCreateAlgorithmPerformance(nullptr, 1)));
  EXPECT_TRUE(IsBadParam(cudnnCreateAlgorithmPerformance(performance.data(), -1)));
  EXPECT_TRUE(IsBadParam(cudnnDestroyAlgorithmPerformance(nullptr, 1)));
  EXPECT_EQ(cudnnDestroyAlgorithmPerformance(performance.data(), 3), kOk);
  EXPECT_TRUE(IsBadParam(cudnnDestroyAlgorithmPerformance(performance.data(), 3)));
}

TEST_F(LegacyAlgorithms, SavedAlgorithmsAreRestored) {
  std::vector<char> space = Saved();
  const size_t bytes = space.size() - 1;
  ASSERT_EQ(cudnnRestoreAlgorithm(handle_, space.data(), bytes, second_), kOk);
  EXPECT_EQ(In(second_), CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING);
  EXPECT_EQ(space.back(), 0) << "no more is written than was said";
}

TEST_F(LegacyAlgorithms, WhatIsNoSavedAlgorithmIsRefused) {
  std::vector<char> space = Saved();
  const size_t bytes = space.size() - 1;
  size_t size = 0;
  EXPECT_TRUE(IsBadParam(cudnnGetAlgorithmSpaceSize(nullptr, first_, &size)));
  EXPECT_TRUE(IsBadParam(cudnnGetAlgorithmSpaceSize(handle_, nullptr, &size)));
  EXPECT_TRUE(IsBadParam(cudnnGetAlgorithmSpaceSize(handle_, first_, nullptr)));
  EXPECT_TRUE(IsBadParam(cudnnSaveAlgorithm(nullptr, first_, space.data(), bytes)));
  EXPECT_TRUE(IsBadParam(cudnnSaveAlgorithm(handle_, nullptr, space.data(), bytes)));
  EXPECT_TRUE(IsBadParam(cudnnSaveAlgorithm(handle_, first_, nullptr, bytes)));
  EXPECT_TRUE(IsBadParam(cudnnSaveAlgorithm(handle_, first_, space.data(), bytes - 1)));
  EXPECT_TRUE(IsBadParam(cudnnRestoreAlgorithm(nullptr, space.data(), bytes, second_)));
  EXPECT_TRUE(IsBadParam(cudnnRestoreAlgorithm(handle_, nullptr, bytes, second_)));
  EXPECT_TRUE(IsBadParam(cudnnRestoreAlgorithm(handle_, space.data(), bytes - 1, second_)));
  EXPECT_TRUE(IsBadParam(cudnnRestoreAlgorithm(handle_, space.data(), bytes, nullptr)));
  for (size_t i = 0; i < bytes; ++i) {
    std::vector<char> damaged = space;
    damaged[i] ^= 4;
    EXPECT_TRUE(IsBadParam(cudnnRestoreAlgorithm(handle_, damaged.data(), bytes, second_))) << i;
  }
  EXPECT_EQ(In(second_), CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0) << "it is as it was";
}

// Saved bytes as another version's would be: its number and the check over them changed.
TEST_F(LegacyAlgorithms, OtherVersionsAreNotSupported) {
  std::vector<char> space = Saved();
  std::array<uint32_t, 4> words;
  ASSERT_EQ(space.size() - 1, sizeof words);
  std::memcpy(words.data(), space.data(), sizeof words);
  words[3] ^= (words[1] * 0x9e3779b9u) ^ ((words[1] + 1) * 0x9e3779b9u);
  words[1] += 1;
  EXPECT_TRUE(IsNotSupported(cudnnRestoreAlgorithm(handle_, words.data(), sizeof words, second_)));
}

}  // namespace
