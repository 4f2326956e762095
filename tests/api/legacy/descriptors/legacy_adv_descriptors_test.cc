// The getters of descriptors of recurrent networks, their data, attention and CTC losses give back
// what was set, in both generations. Values that 9.19 gives back of others are those of
// nvidia_rnn_test and nvidia_attention_test.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "tests/api/legacy/legacy_status.h"

namespace {

TEST(AdvDescriptors, RnnDataReadsAsItWasSet) {
  cudnnRNNDataDescriptor_t data = nullptr;
  ASSERT_EQ(cudnnCreateRNNDataDescriptor(&data), kOk);
  const std::array<int, 3> lengths = {4, 2, 1};
  float fill = 7.5f;
  ASSERT_EQ(
      cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
                                5, 3, 6, lengths.data(), &fill),
      kOk);
  cudnnDataType_t type = CUDNN_DATA_HALF;
  cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
  int steps = 0, batch = 0, width = 0;
  std::array<int, 3> read = {-1, -1, -1};
  float padding = 0;
  ASSERT_EQ(cudnnGetRNNDataDescriptor(data, &type, &layout, &steps, &batch, &width, 2, read.data(),
                                      &padding),
            kOk);
  EXPECT_EQ(type, CUDNN_DATA_FLOAT);
  EXPECT_EQ(layout, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED);
  EXPECT_EQ((std::array{steps, batch, width}), (std::array{5, 3, 6}));
  EXPECT_EQ(read, (std::array{4, 2, -1})) << "two were asked for";
  EXPECT_EQ(padding, 7.5f);
  cudnnDestroyRNNDataDescriptor(data);
}

TEST(AdvDescriptors, SequencesReadAsTheyWereSet) {
  cudnnSeqDataDescriptor_t data = nullptr;
  ASSERT_EQ(cudnnCreateSeqDataDescriptor(&data), kOk);
  const std::array<int, CUDNN_SEQDATA_DIM_COUNT> dims = {4, 2, 1, 6};  // time, batch, beam, vector
  const std::array<cudnnSeqDataAxis_t, CUDNN_SEQDATA_DIM_COUNT> axes = {
      CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_BEAM_DIM, CUDNN_SEQDATA_TIME_DIM,
      CUDNN_SEQDATA_VECT_DIM};
  const std::array<int, 2> lengths = {3, 4};
  ASSERT_EQ(cudnnSetSeqDataDescriptor(data, CUDNN_DATA_FLOAT, CUDNN_SEQDATA_DIM_COUNT, dims.data(),
                                      axes.data(), lengths.size(), lengths.data(), nullptr),
            kOk);
  cudnnDataType_t type = CUDNN_DATA_HALF;
  int rank = 0;
  std::array<int, CUDNN_SEQDATA_DIM_COUNT> dims_read = {};
  std::array<cudnnSeqDataAxis_t, CUDNN_SEQDATA_DIM_COUNT> axes_read = {};
  size_t count = 0;
  std::array<int, 2> lengths_read = {};
  ASSERT_EQ(cudnnGetSeqDataDescriptor(data, &type, &rank, CUDNN_SEQDATA_DIM_COUNT, dims_read.data(),
                                      axes_read.data(), &count, lengths_read.size(),
                                      lengths_read.data(), nullptr),
            kOk);
  EXPECT_EQ(type, CUDNN_DATA_FLOAT);
  EXPECT_EQ(rank, CUDNN_SEQDATA_DIM_COUNT);
  EXPECT_EQ(dims_read, dims);
  EXPECT_EQ(axes_read, axes);
  EXPECT_EQ(count, lengths.size());
  EXPECT_EQ(lengths_read, lengths);
  cudnnDestroySeqDataDescriptor(data);
}

TEST(AdvDescriptors, AttentionReadsAsItWasSet) {
  cudnnAttnDescriptor_t attn = nullptr;
  ASSERT_EQ(cudnnCreateAttnDescriptor(&attn), kOk);
  ASSERT_EQ(cudnnSetAttnDescriptor(attn, CUDNN_ATTN_ENABLE_PROJ_BIASES, 3, 0.25, CUDNN_DATA_HALF,
                                   CUDNN_DATA_FLOAT, CUDNN_TENSOR_OP_MATH, nullptr, nullptr, 11, 12,
                                   13, 14, 14, 15, 16, 17, 18, 19, 2),
            kOk);
  unsigned mode = 0;
  double scale = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT, precision = CUDNN_DATA_HALF;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnDropoutDescriptor_t dropouts[2] = {};
  std::array<int, 12> n = {};
  ASSERT_EQ(cudnnGetAttnDescriptor(attn, &mode, &n[0], &scale, &type, &precision, &math,
                                   &dropouts[0], &dropouts[1], &n[1], &n[2], &n[3], &n[4], &n[5],
                                   &n[6], &n[7], &n[8], &n[9], &n[10], &n[11]),
            kOk);
  EXPECT_EQ(mode, CUDNN_ATTN_ENABLE_PROJ_BIASES);
  EXPECT_EQ(scale, 0.25);
  EXPECT_EQ(type, CUDNN_DATA_HALF);
  EXPECT_EQ(precision, CUDNN_DATA_FLOAT);
  EXPECT_EQ(math, CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(n, (std::array{3, 11, 12, 13, 14, 14, 15, 16, 17, 18, 19, 2}));
  cudnnDestroyAttnDescriptor(attn);
}

TEST(AdvDescriptors, CtcLossesReadAsTheyWereSet) {
  cudnnCTCLossDescriptor_t loss = nullptr;
  ASSERT_EQ(cudnnCreateCTCLossDescriptor(&loss), kOk);
  ASSERT_EQ(cudnnSetCTCLossDescriptorEx(loss, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX,
                                        CUDNN_PROPAGATE_NAN),
            kOk);
  cudnnDataType_t type = CUDNN_DATA_HALF;
  ASSERT_EQ(cudnnGetCTCLossDescriptor(loss, &type), kOk);
  EXPECT_EQ(type, CUDNN_DATA_FLOAT);
  type = CUDNN_DATA_HALF;
  cudnnLossNormalizationMode_t normalization = CUDNN_LOSS_NORMALIZATION_NONE;
  cudnnNanPropagation_t gradient = CUDNN_NOT_PROPAGATE_NAN;
  ASSERT_EQ(cudnnGetCTCLossDescriptorEx(loss, &type, &normalization, &gradient), kOk);
  EXPECT_EQ(type, CUDNN_DATA_FLOAT);
  EXPECT_EQ(normalization, CUDNN_LOSS_NORMALIZATION_SOFTMAX);
  EXPECT_EQ(gradient, CUDNN_PROPAGATE_NAN);
  cudnnDestroyCTCLossDescriptor(loss);
}

void Listen(cudnnSeverity_t, void*, const cudnnDebug_t*, const char*) {}

TEST(AdvDescriptors, CallbacksReadAsTheyWereSet) {
  int client = 0;
  ASSERT_EQ(cudnnSetCallback(CUDNN_SEV_ERROR_EN, &client, Listen), kOk);
  unsigned mask = 0;
  void* data = nullptr;
  cudnnCallback_t callback = nullptr;
  ASSERT_EQ(cudnnGetCallback(&mask, &data, &callback), kOk);
  EXPECT_EQ(mask, static_cast<unsigned>(CUDNN_SEV_ERROR_EN));
  EXPECT_EQ(data, &client);
  EXPECT_EQ(callback, &Listen);
  EXPECT_EQ(cudnnSetCallback(0, nullptr, nullptr), kOk);
}

class AdvNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    ASSERT_EQ(cudnnCreateRNNDescriptor(&rnn_), kOk);
    ASSERT_EQ(cudnnSetRNNDescriptor_v8(
                  rnn_, CUDNN_RNN_ALGO_PERSIST_DYNAMIC, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                  CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                  CUDNN_DEFAULT_MATH, 6, 8, 8, 1, nullptr, CUDNN_RNN_PADDED_IO_ENABLED),
              kOk);
  }
  void TearDown() override {
    cudnnDestroyRNNDescriptor(rnn_);
    cudnnDestroy(handle_);
  }
  cudnnHandle_t handle_ = nullptr;
  cudnnRNNDescriptor_t rnn_ = nullptr;
};

TEST_F(AdvNetwork, IsBuiltForABatch) {
  EXPECT_EQ(cudnnBuildRNNDynamic(handle_, rnn_, 3), kOk);
  EXPECT_NE(cudnnBuildRNNDynamic(handle_, rnn_, 0), kOk);
}

TEST_F(AdvNetwork, ClippingReadsAsItWasSet) {
  cudnnRNNClipMode_t mode = CUDNN_RNN_CLIP_NONE;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  double low = 0, high = 0;
  ASSERT_EQ(cudnnRNNSetClip_v8(rnn_, CUDNN_RNN_CLIP_MINMAX, CUDNN_PROPAGATE_NAN, -0.5, 0.25), kOk);
  ASSERT_EQ(cudnnRNNGetClip_v8(rnn_, &mode, &nan, &low, &high), kOk);
  EXPECT_EQ(mode, CUDNN_RNN_CLIP_MINMAX);
  EXPECT_EQ(nan, CUDNN_PROPAGATE_NAN);
  EXPECT_EQ(low, -0.5);
  EXPECT_EQ(high, 0.25);
#if CUDNN_MAJOR >= 9
  ASSERT_EQ(cudnnRNNSetClip_v9(rnn_, CUDNN_RNN_CLIP_MINMAX, -0.75, 0.5), kOk);
  ASSERT_EQ(cudnnRNNGetClip_v9(rnn_, &mode, &low, &high), kOk);
#else
  ASSERT_EQ(cudnnRNNSetClip(handle_, rnn_, CUDNN_RNN_CLIP_MINMAX, CUDNN_PROPAGATE_NAN, -0.75, 0.5),
            kOk);
  ASSERT_EQ(cudnnRNNGetClip(handle_, rnn_, &mode, &nan, &low, &high), kOk);
#endif
  EXPECT_EQ(mode, CUDNN_RNN_CLIP_MINMAX);
  EXPECT_EQ(low, -0.75);
  EXPECT_EQ(high, 0.5);
}

#if CUDNN_MAJOR < 9
TEST_F(AdvNetwork, SearchesFindAtLeastOneAlgorithm) {
  int counts[3] = {};
  ASSERT_EQ(cudnnGetRNNForwardInferenceAlgorithmMaxCount(handle_, rnn_, &counts[0]), kOk);
  ASSERT_EQ(cudnnGetRNNBackwardDataAlgorithmMaxCount(handle_, rnn_, &counts[1]), kOk);
  ASSERT_EQ(cudnnGetRNNBackwardWeightsAlgorithmMaxCount(handle_, rnn_, &counts[2]), kOk);
  for (const int count : counts) EXPECT_GE(count, 1);
}
#endif

}  // namespace
