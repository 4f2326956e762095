// Descriptors of recurrent networks, compiled and linked once for each generation: what 8.9 and
// 9.19 refuse and with which status, and the setters and getters that 8 alone has. Values that 9.19
// gives back are nvidia_rnn_test's.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/api/legacy/legacy_status.h"

namespace {

constexpr bool kIs8 = CUDNN_MAJOR == 8;

class RnnDescriptors : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateRNNDescriptor(&rnn_), kOk);
    ASSERT_EQ(cudnnCreateTensorDescriptor(&tensor_), kOk);
  }
  void TearDown() override {
    cudnnDestroyTensorDescriptor(tensor_);
    cudnnDestroyRNNDescriptor(rnn_);
    cudnnDestroy(handle_);
  }
  struct Network {
    int algo = 0, cell = CUDNN_LSTM, bias = CUDNN_RNN_DOUBLE_BIAS, direction = 0, input_mode = 0,
        type = CUDNN_DATA_FLOAT, precision = CUDNN_DATA_FLOAT, math = 0, input = 3, hidden = 5,
        projected = 5, layers = 1;
    unsigned flags = 0;
  };
  cudnnStatus_t Set(const Network& n) {
    return cudnnSetRNNDescriptor_v8(
        rnn_, static_cast<cudnnRNNAlgo_t>(n.algo), static_cast<cudnnRNNMode_t>(n.cell),
        static_cast<cudnnRNNBiasMode_t>(n.bias), static_cast<cudnnDirectionMode_t>(n.direction),
        static_cast<cudnnRNNInputMode_t>(n.input_mode), static_cast<cudnnDataType_t>(n.type),
        static_cast<cudnnDataType_t>(n.precision), static_cast<cudnnMathType_t>(n.math), n.input,
        n.hidden, n.projected, n.layers, nullptr, n.flags);
  }

  cudnnHandle_t handle_ = nullptr;
  cudnnRNNDescriptor_t rnn_ = nullptr;
  cudnnTensorDescriptor_t tensor_ = nullptr;
};

TEST_F(RnnDescriptors, WhatNoNetworkHasIsBadParam) {
  for (const Network& n : {Network{.algo = 4},
                           {.algo = -1},
                           {.cell = 4},
                           {.cell = -1},
                           {.bias = 4},
                           {.bias = -1},
                           {.direction = 2},
                           {.input_mode = 2},
                           {.math = 4},
                           {.input = 0},
                           {.input = -1},
                           {.hidden = 0},
                           {.projected = 0},
                           {.projected = -1},
                           {.layers = 0},
                           {.flags = 2},
                           {.flags = 3}})
    EXPECT_TRUE(IsBadParam(Set(n)));
}

TEST_F(RnnDescriptors, WhatSomeNetworksHaveIsNotSupported) {
  for (const Network& n : {Network{.projected = 6},
                           {.cell = CUDNN_GRU, .projected = 3},
                           {.cell = CUDNN_RNN_TANH, .projected = 3},
                           {.algo = 1, .projected = 3},
                           {.algo = 2, .projected = 3},
                           {.algo = 3, .projected = 3},
                           {.algo = 1, .bias = CUDNN_RNN_NO_BIAS},
                           {.algo = 3, .bias = CUDNN_RNN_SINGLE_INP_BIAS},
                           {.type = CUDNN_DATA_INT8},
                           {.type = CUDNN_DATA_FLOAT, .precision = CUDNN_DATA_HALF},
                           {.type = CUDNN_DATA_FLOAT, .precision = CUDNN_DATA_DOUBLE},
                           {.type = CUDNN_DATA_DOUBLE, .precision = CUDNN_DATA_FLOAT},
                           {.type = CUDNN_DATA_BFLOAT16, .precision = CUDNN_DATA_BFLOAT16},
                           {.algo = 1, .type = CUDNN_DATA_DOUBLE, .precision = CUDNN_DATA_DOUBLE},
                           {.algo = 3, .type = CUDNN_DATA_DOUBLE, .precision = CUDNN_DATA_DOUBLE}})
    EXPECT_EQ(Set(n), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(Set({.type = CUDNN_DATA_BFLOAT16}), kIs8 ? CUDNN_STATUS_NOT_SUPPORTED : kOk);
}

TEST_F(RnnDescriptors, WhatIsAllowedIsTaken) {
  for (const Network& n :
       {Network{},
        {.projected = 3},
        {.bias = CUDNN_RNN_NO_BIAS},
        {.input_mode = CUDNN_SKIP_INPUT},
        {.type = CUDNN_DATA_HALF},
        {.type = CUDNN_DATA_HALF, .precision = CUDNN_DATA_HALF},
        {.algo = 2, .type = CUDNN_DATA_DOUBLE, .precision = CUDNN_DATA_DOUBLE},
        {.type = CUDNN_DATA_DOUBLE, .precision = CUDNN_DATA_DOUBLE, .math = CUDNN_TENSOR_OP_MATH},
        {.algo = 1, .hidden = 2048, .projected = 2048},
        {.algo = 3, .direction = 1},
        {.flags = 1}})
    EXPECT_EQ(Set(n), kOk);
}

TEST_F(RnnDescriptors, AFailedSetLeavesItAsItWas) {
  ASSERT_EQ(Set({.hidden = 7, .projected = 7}), kOk);
  EXPECT_NE(Set({.hidden = 9, .projected = 10}), kOk);
  int32_t hidden = 0, projected = 0;
  EXPECT_EQ(
      cudnnGetRNNDescriptor_v8(rnn_, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                               nullptr, nullptr, &hidden, &projected, nullptr, nullptr, nullptr),
      kOk);
  EXPECT_EQ(hidden, 7);
  EXPECT_EQ(projected, 7);
}

TEST_F(RnnDescriptors, ANetworkThatWasNotSetHasNoWeights) {
  size_t bytes = 7;
  EXPECT_EQ(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &bytes), kOk);
  EXPECT_EQ(bytes, 0u);
  cudnnRNNMode_t cell{};
  EXPECT_EQ(
      cudnnGetRNNDescriptor_v8(rnn_, nullptr, &cell, nullptr, nullptr, nullptr, nullptr, nullptr,
                               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
      CUDNN_STATUS_NOT_INITIALIZED);
  void* at = nullptr;
  EXPECT_TRUE(IsBadParam(
      cudnnGetRNNWeightParams(handle_, rnn_, 0, 100, nullptr, 0, tensor_, &at, nullptr, nullptr)));
}

// Layout of adv.md's examples: an LSTM of 3 and 5, both directions, two layers.
TEST_F(RnnDescriptors, WeightsLieWhereTheLayoutHasThem) {
  ASSERT_EQ(Set({.direction = 1, .layers = 2}), kOk);
  size_t bytes = 0;
  ASSERT_EQ(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &bytes), kOk);
  EXPECT_EQ(bytes, 1080u * 4);
  const auto offsets = [&](int layer, int id) {
    void *matrix = nullptr, *bias = nullptr;
    EXPECT_EQ(cudnnGetRNNWeightParams(handle_, rnn_, layer, bytes, nullptr, id, tensor_, &matrix,
                                      tensor_, &bias),
              kOk);
    return std::array{reinterpret_cast<intptr_t>(matrix) / 4, reinterpret_cast<intptr_t>(bias) / 4};
  };
  EXPECT_EQ(offsets(0, 1), (std::array<intptr_t, 2>{15, 925}));
  EXPECT_EQ(offsets(0, 4), (std::array<intptr_t, 2>{60, 940}));
  EXPECT_EQ(offsets(1, 0), (std::array<intptr_t, 2>{160, 960}));
  EXPECT_EQ(offsets(2, 0), (std::array<intptr_t, 2>{320, 1000}));
  EXPECT_EQ(offsets(3, 7), (std::array<intptr_t, 2>{895, 1075}));
  EXPECT_EQ(offsets(3, 8), (std::array<intptr_t, 2>{0, 0}));
}

// PyTorch demands of the weights that matrices and biases of one kind are one behind the other.
TEST_F(RnnDescriptors, GatesOfAKindFollowOneAnother) {
  for (const int cell : {CUDNN_RNN_RELU, CUDNN_RNN_TANH, CUDNN_LSTM, CUDNN_GRU}) {
    ASSERT_EQ(Set({.cell = cell, .direction = 1, .layers = 2}), kOk);
    size_t bytes = 0;
    ASSERT_EQ(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &bytes), kOk);
    EXPECT_EQ(bytes % sizeof(float), 0u);
    std::vector<float> weights(bytes / sizeof(float));
    const int gates = cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1;
    for (const bool is_matrix : {true, false}) {
      for (int layer = 0; layer < 4; ++layer) {
        void* expected = nullptr;
        for (int id = 0; id < 2 * gates; ++id) {
          void* at = nullptr;
          ASSERT_EQ(
              cudnnGetRNNWeightParams(handle_, rnn_, layer, bytes, weights.data(), id,
                                      is_matrix ? tensor_ : nullptr, is_matrix ? &at : nullptr,
                                      is_matrix ? nullptr : tensor_, is_matrix ? nullptr : &at),
              kOk);
          if (id % gates != 0) {
            EXPECT_EQ(at, expected) << cell << " " << layer << " " << id;
          }
          size_t size = 0;
          ASSERT_EQ(cudnnGetTensorSizeInBytes(tensor_, &size), kOk);
          expected = static_cast<char*>(at) + size;
        }
      }
    }
  }
}

TEST_F(RnnDescriptors, WeightsOutsideTheBufferHaveTheStatusOfTheGeneration) {
  ASSERT_EQ(Set({}), kOk);
  void* at = nullptr;
  EXPECT_EQ(
      cudnnGetRNNWeightParams(handle_, rnn_, 0, 59, nullptr, 0, tensor_, &at, nullptr, nullptr),
      kIs8 ? CUDNN_STATUS_INVALID_VALUE : CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(
      cudnnGetRNNWeightParams(handle_, rnn_, 0, 60, nullptr, 0, tensor_, &at, nullptr, nullptr),
      kOk);
}

// Numbers whose products no machine has memory for.
TEST_F(RnnDescriptors, HugeNetworksHaveNoSizes) {
  constexpr int kHuge = 1 << 30;
  ASSERT_EQ(Set({.input = kHuge, .hidden = kHuge, .projected = kHuge, .layers = kHuge}), kOk);
  size_t bytes = 0;
  EXPECT_EQ(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &bytes), CUDNN_STATUS_NOT_SUPPORTED);
}

#if CUDNN_MAJOR == 8

cudnnStatus_t SetV6(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int hidden, int layers,
                    int cell = CUDNN_LSTM, int algo = 0, int precision = CUDNN_DATA_FLOAT) {
  return cudnnSetRNNDescriptor_v6(handle, rnn, hidden, layers, nullptr, CUDNN_LINEAR_INPUT,
                                  CUDNN_UNIDIRECTIONAL, static_cast<cudnnRNNMode_t>(cell),
                                  static_cast<cudnnRNNAlgo_t>(algo),
                                  static_cast<cudnnDataType_t>(precision));
}

TEST_F(RnnDescriptors, NetworksByPropertiesAreCheckedToo) {
  EXPECT_EQ(SetV6(handle_, rnn_, 0, 1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(SetV6(handle_, rnn_, 5, -1), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(SetV6(handle_, rnn_, 5, 1, 4), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(SetV6(handle_, rnn_, 5, 1, 2, 4), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(SetV6(handle_, rnn_, 5, 1, 2, 0, CUDNN_DATA_INT8), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(SetV6(nullptr, rnn_, 5, 1), CUDNN_STATUS_BAD_PARAM);
  ASSERT_EQ(SetV6(handle_, rnn_, 5, 2), kOk);
  int hidden = 0, layers = 0;
  cudnnDropoutDescriptor_t dropout = nullptr;
  cudnnRNNInputMode_t input{};
  cudnnDirectionMode_t direction{};
  cudnnRNNMode_t cell{};
  cudnnRNNAlgo_t algo{};
  cudnnDataType_t precision{};
  EXPECT_EQ(cudnnGetRNNDescriptor_v6(handle_, rnn_, &hidden, &layers, &dropout, &input, &direction,
                                     &cell, &algo, &precision),
            kOk);
  EXPECT_EQ(hidden, 5);
  EXPECT_EQ(layers, 2);
  EXPECT_EQ(cell, CUDNN_LSTM);
  EXPECT_EQ(cudnnGetRNNDescriptor_v6(handle_, rnn_, nullptr, &layers, &dropout, &input, &direction,
                                     &cell, &algo, &precision),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(RnnDescriptors, PropertiesHaveDefaultsAndRules) {
  cudnnRNNBiasMode_t bias{};
  cudnnRNNPaddingMode_t padding = 9;
  cudnnMathType_t math{};
  EXPECT_EQ(cudnnGetRNNBiasMode(rnn_, &bias), kOk);
  EXPECT_EQ(bias, CUDNN_RNN_DOUBLE_BIAS);
  EXPECT_EQ(cudnnGetRNNPaddingMode(rnn_, &padding), kOk);
  EXPECT_EQ(padding, 0u);
  EXPECT_EQ(cudnnGetRNNMatrixMathType(rnn_, &math), kOk);
  EXPECT_EQ(math, CUDNN_DEFAULT_MATH);
  EXPECT_EQ(cudnnGetRNNBiasMode(rnn_, nullptr), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetRNNPaddingMode(rnn_, 2), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetRNNPaddingMode(rnn_, 1), kOk);
  EXPECT_EQ(cudnnSetRNNMatrixMathType(rnn_, static_cast<cudnnMathType_t>(4)),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetRNNBiasMode(rnn_, static_cast<cudnnRNNBiasMode_t>(4)), CUDNN_STATUS_BAD_PARAM);
  ASSERT_EQ(SetV6(handle_, rnn_, 5, 1, CUDNN_LSTM, CUDNN_RNN_ALGO_PERSIST_STATIC), kOk);
  EXPECT_EQ(cudnnSetRNNBiasMode(rnn_, CUDNN_RNN_NO_BIAS), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnnSetRNNProjectionLayers(handle_, rnn_, 3, 0), CUDNN_STATUS_NOT_SUPPORTED);
  ASSERT_EQ(SetV6(handle_, rnn_, 5, 1), kOk);
  int recurrent = -1, output = -1;
  EXPECT_EQ(cudnnGetRNNProjectionLayers(handle_, rnn_, &recurrent, &output), kOk);
  EXPECT_EQ(recurrent, 5);
  EXPECT_EQ(output, 0);
  EXPECT_EQ(cudnnSetRNNProjectionLayers(handle_, rnn_, 6, 0), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnnSetRNNProjectionLayers(handle_, rnn_, -1, 0), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetRNNProjectionLayers(handle_, rnn_, 5, 0), kOk);
  EXPECT_EQ(cudnnSetRNNProjectionLayers(handle_, rnn_, 2, 0), kOk);
}

TEST_F(RnnDescriptors, TheCallsOf8KnowNetworksOf6NotAndThoseOf6KnowBoth) {
  size_t bytes = 0;
  const std::array<int, 3> dims = {2, 3, 1}, strides = {3, 1, 1};
  ASSERT_EQ(cudnnSetTensorNdDescriptor(tensor_, CUDNN_DATA_FLOAT, 3, dims.data(), strides.data()),
            kOk);
  ASSERT_EQ(SetV6(handle_, rnn_, 5, 1), kOk);
  EXPECT_EQ(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &bytes), CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(
      cudnnGetRNNDescriptor_v8(rnn_, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
      CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(cudnnGetRNNParamsSize(handle_, rnn_, tensor_, &bytes, CUDNN_DATA_FLOAT), kOk);
  EXPECT_EQ(bytes, 800u);
  ASSERT_EQ(Set({}), kOk);
  EXPECT_EQ(cudnnGetRNNParamsSize(handle_, rnn_, tensor_, &bytes, CUDNN_DATA_HALF), kOk);
  EXPECT_EQ(bytes, 400u);
}

TEST_F(RnnDescriptors, WeightsByFilterDescriptorsLieWhereThoseOf8Do) {
  const std::array<int, 3> dims = {2, 3, 1}, strides = {3, 1, 1}, whole = {200, 1, 1};
  ASSERT_EQ(cudnnSetTensorNdDescriptor(tensor_, CUDNN_DATA_FLOAT, 3, dims.data(), strides.data()),
            kOk);
  cudnnFilterDescriptor_t w = nullptr, part = nullptr;
  cudnnCreateFilterDescriptor(&w);
  cudnnCreateFilterDescriptor(&part);
  ASSERT_EQ(cudnnSetFilterNdDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 3, whole.data()),
            kOk);
  ASSERT_EQ(SetV6(handle_, rnn_, 5, 1), kOk);
  std::vector<float> weights(200);
  const auto ask = [&](bool is_matrix, int layer, int id) {
    void* at = nullptr;
    const auto function =
        is_matrix ? &cudnnGetRNNLinLayerMatrixParams : &cudnnGetRNNLinLayerBiasParams;
    EXPECT_EQ(function(handle_, rnn_, layer, tensor_, w, weights.data(), id, part, &at), kOk);
    return at == nullptr ? -1 : static_cast<float*>(at) - weights.data();
  };
  const auto extents = [&] {
    cudnnDataType_t type{};
    cudnnTensorFormat_t format{};
    int rank = 0;
    std::array<int, 3> got = {};
    EXPECT_EQ(cudnnGetFilterNdDescriptor(part, 3, &type, &format, &rank, got.data()), kOk);
    EXPECT_EQ(rank, 3);
    EXPECT_EQ(format, CUDNN_TENSOR_NCHW);
    return got;
  };
  EXPECT_EQ(ask(true, 0, 1), 15);
  EXPECT_EQ(extents(), (std::array{1, 5, 3}));
  EXPECT_EQ(ask(true, 0, 5), 85);
  EXPECT_EQ(extents(), (std::array{1, 5, 5}));
  EXPECT_EQ(ask(false, 0, 7), 195);
  EXPECT_EQ(extents(), (std::array{1, 5, 1}));
  EXPECT_EQ(ask(true, 0, 8), -1);
  void* at = nullptr;
  EXPECT_EQ(
      cudnnGetRNNLinLayerBiasParams(handle_, rnn_, 0, tensor_, w, weights.data(), 8, part, &at),
      CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(
      cudnnGetRNNLinLayerMatrixParams(handle_, rnn_, 1, tensor_, w, weights.data(), 0, part, &at),
      CUDNN_STATUS_BAD_PARAM);
  cudnnDestroyFilterDescriptor(w);
  cudnnDestroyFilterDescriptor(part);
}

TEST_F(RnnDescriptors, AlgorithmObjectsNameAlgorithms) {
  cudnnAlgorithmDescriptor_t algorithm = nullptr;
  ASSERT_EQ(cudnnCreateAlgorithmDescriptor(&algorithm), kOk);
  ASSERT_EQ(Set({}), kOk);
  cudnnAlgorithm_t value = {};
  value.algo.RNNAlgo = CUDNN_RNN_ALGO_PERSIST_STATIC;
  ASSERT_EQ(cudnnSetAlgorithmDescriptor(algorithm, value), kOk);
  EXPECT_EQ(cudnnSetRNNAlgorithmDescriptor(handle_, rnn_, algorithm), kOk);
  cudnnRNNAlgo_t now{};
  EXPECT_EQ(
      cudnnGetRNNDescriptor_v8(rnn_, &now, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                               nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
      kOk);
  EXPECT_EQ(now, CUDNN_RNN_ALGO_PERSIST_STATIC);
  ASSERT_EQ(Set({.projected = 3}), kOk);
  EXPECT_EQ(cudnnSetRNNAlgorithmDescriptor(handle_, rnn_, algorithm), CUDNN_STATUS_NOT_SUPPORTED);
  value.algo.RNNAlgo = CUDNN_RNN_ALGO_COUNT;
  ASSERT_EQ(cudnnSetAlgorithmDescriptor(algorithm, value), kOk);
  EXPECT_EQ(cudnnSetRNNAlgorithmDescriptor(handle_, rnn_, algorithm), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnDestroyAlgorithmDescriptor(algorithm), kOk);
}

#endif

}  // namespace
