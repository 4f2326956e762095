// A call that was made before is a look-up and its launches: it allocates nothing. Over a driver
// that runs nothing (//tests/support/cuda_standin), since that is what costs a client's host beside
// the driver. Counted are the library's and this test's own operator new.
#include <cudnn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

#include "tests/api/legacy/legacy_status.h"

namespace {
std::atomic<int> allocations = 0;
void* Allocate(size_t bytes) {
  ++allocations;
  return std::malloc(bytes);
}
}  // namespace

void* operator new(size_t bytes) {
  void* const memory = Allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace kiln::api {
namespace {

class RepeatedCalls : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudnnCreate(&handle_), kOk); }
  void TearDown() override { EXPECT_EQ(cudnnDestroy(handle_), kOk); }

  static void AllocatesNothing(const char* name, const std::function<cudnnStatus_t()>& call) {
    for (int i = 0; i < 2; ++i) ASSERT_EQ(call(), kOk) << name;
    const int before = allocations;
    for (int i = 0; i < 8; ++i) ASSERT_EQ(call(), kOk) << name;
    EXPECT_EQ(allocations - before, 0) << name;
  }
  // No kernel runs: nothing is read or written.
  void* Memory(size_t mebibytes) { return memory_ + (mebibytes << 20); }
  cudnnDropoutDescriptor_t NoDropout() {
    cudnnDropoutDescriptor_t dropout = nullptr;
    size_t bytes = 0;
    EXPECT_EQ(cudnnCreateDropoutDescriptor(&dropout), kOk);
    EXPECT_EQ(cudnnDropoutGetStatesSize(handle_, &bytes), kOk);
    EXPECT_EQ(cudnnSetDropoutDescriptor(dropout, handle_, 0, Memory(0), bytes, 1), kOk);
    return dropout;
  }

  cudnnHandle_t handle_ = nullptr;
  std::vector<char> bytes_ = std::vector<char>((16 << 20) + 256);
  char* const memory_ =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes_.data()) + 255) & ~uintptr_t{255});
};

TEST_F(RepeatedCalls, AllocationsAreCounted) {
  const int before = allocations;
  const std::vector<int> some(100);
  EXPECT_GT(allocations, before);
}

TEST_F(RepeatedCalls, Activation) {
  cudnnTensorDescriptor_t x = nullptr;
  cudnnActivationDescriptor_t relu = nullptr;
  EXPECT_EQ(cudnnCreateTensorDescriptor(&x), kOk);
  EXPECT_EQ(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 4, 5), kOk);
  EXPECT_EQ(cudnnCreateActivationDescriptor(&relu), kOk);
  EXPECT_EQ(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0),
            kOk);
  const float one = 1, zero = 0;
  AllocatesNothing("forward", [&] {
    return cudnnActivationForward(handle_, relu, &one, x, Memory(1), &zero, x, Memory(2));
  });
  cudnnDestroyTensorDescriptor(x);
  cudnnDestroyActivationDescriptor(relu);
}

TEST_F(RepeatedCalls, RecurrentNetwork) {
  constexpr int kSteps = 5, kBatch = 4, kHidden = 32, kLayers = 2;
  const cudnnDropoutDescriptor_t dropout = NoDropout();
  cudnnRNNDescriptor_t rnn = nullptr;
  EXPECT_EQ(cudnnCreateRNNDescriptor(&rnn), kOk);
  EXPECT_EQ(cudnnSetRNNDescriptor_v8(
                rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS,
                CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT,
                CUDNN_TENSOR_OP_MATH, kHidden, kHidden, kHidden, kLayers, dropout, 0),
            kOk);
  const std::vector<int> lengths(kBatch, kSteps);
  float fill = 0;
  cudnnRNNDataDescriptor_t x = nullptr;
  EXPECT_EQ(cudnnCreateRNNDataDescriptor(&x), kOk);
  EXPECT_EQ(cudnnSetRNNDataDescriptor(x, CUDNN_DATA_HALF, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                                      kSteps, kBatch, kHidden, lengths.data(), &fill),
            kOk);
  cudnnTensorDescriptor_t h = nullptr;
  EXPECT_EQ(cudnnCreateTensorDescriptor(&h), kOk);
  const int dims[] = {kLayers, kBatch, kHidden}, strides[] = {kBatch * kHidden, kHidden, 1};
  EXPECT_EQ(cudnnSetTensorNdDescriptor(h, CUDNN_DATA_HALF, 3, dims, strides), kOk);
  size_t weights = 0, work = 0, reserve = 0;
  EXPECT_EQ(cudnnGetRNNWeightSpaceSize(handle_, rnn, &weights), kOk);
  EXPECT_EQ(cudnnGetRNNTempSpaceSizes(handle_, rnn, CUDNN_FWD_MODE_TRAINING, x, &work, &reserve),
            kOk);
  const auto* const device_lengths = static_cast<const int32_t*>(Memory(1));
  for (const cudnnForwardMode_t mode : {CUDNN_FWD_MODE_INFERENCE, CUDNN_FWD_MODE_TRAINING})
    AllocatesNothing("forward", [&] {
      return cudnnRNNForward(handle_, rnn, mode, device_lengths, x, Memory(2), x, Memory(3), h,
                             Memory(4), Memory(5), h, Memory(6), Memory(7), weights, Memory(8),
                             work, Memory(10), mode == CUDNN_FWD_MODE_TRAINING ? reserve : 0,
                             mode == CUDNN_FWD_MODE_TRAINING ? Memory(13) : nullptr);
    });
  AllocatesNothing("data", [&] {
    return cudnnRNNBackwardData_v8(handle_, rnn, device_lengths, x, Memory(2), Memory(3), x,
                                   Memory(4), h, Memory(5), Memory(6), Memory(7), h, Memory(5),
                                   Memory(6), Memory(7), weights, Memory(8), work, Memory(10),
                                   reserve, Memory(13));
  });
  AllocatesNothing("weights", [&] {
    return cudnnRNNBackwardWeights_v8(handle_, rnn, CUDNN_WGRAD_MODE_ADD, device_lengths, x,
                                      Memory(2), h, Memory(5), x, Memory(3), weights, Memory(8),
                                      work, Memory(10), reserve, Memory(13));
  });
  cudnnDestroyTensorDescriptor(h);
  cudnnDestroyRNNDataDescriptor(x);
  cudnnDestroyRNNDescriptor(rnn);
  cudnnDestroyDropoutDescriptor(dropout);
}

TEST_F(RepeatedCalls, MultiHeadAttention) {
  constexpr int kWidth = 32, kHeads = 2, kSteps = 8, kBatch = 2;
  const cudnnDropoutDescriptor_t dropout = NoDropout();
  cudnnAttnDescriptor_t attn = nullptr;
  EXPECT_EQ(cudnnCreateAttnDescriptor(&attn), kOk);
  EXPECT_EQ(
      cudnnSetAttnDescriptor(attn, CUDNN_ATTN_QUERYMAP_ALL_TO_ONE | CUDNN_ATTN_ENABLE_PROJ_BIASES,
                             kHeads, 0.25, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, CUDNN_TENSOR_OP_MATH,
                             dropout, dropout, kWidth, kWidth, kWidth, kWidth / kHeads,
                             kWidth / kHeads, kWidth / kHeads, kWidth, kSteps, kSteps, kBatch, 1),
      kOk);
  constexpr cudnnSeqDataAxis_t kAxes[] = {CUDNN_SEQDATA_BATCH_DIM, CUDNN_SEQDATA_BEAM_DIM,
                                          CUDNN_SEQDATA_TIME_DIM, CUDNN_SEQDATA_VECT_DIM};
  const int dims[] = {kSteps, kBatch, 1, kWidth};
  const std::vector<int> lengths(kBatch, kSteps), lo(kSteps, 0), hi(kSteps, kSteps);
  cudnnSeqDataDescriptor_t s = nullptr;
  EXPECT_EQ(cudnnCreateSeqDataDescriptor(&s), kOk);
  EXPECT_EQ(cudnnSetSeqDataDescriptor(s, CUDNN_DATA_HALF, 4, dims, kAxes, lengths.size(),
                                      lengths.data(), nullptr),
            kOk);
  size_t weights = 0, work = 0, reserve = 0;
  EXPECT_EQ(cudnnGetMultiHeadAttnBuffers(handle_, attn, &weights, &work, &reserve), kOk);
  const auto* const on_device = static_cast<const int*>(Memory(1));
  for (const bool trains : {false, true})
    AllocatesNothing("forward", [&] {
      return cudnnMultiHeadAttnForward(handle_, attn, -1, lo.data(), hi.data(), on_device,
                                       on_device, s, Memory(2), nullptr, s, Memory(3), s, Memory(4),
                                       s, Memory(5), weights, Memory(6), work, Memory(8),
                                       trains ? reserve : 0, trains ? Memory(12) : nullptr);
    });
  AllocatesNothing("data", [&] {
    return cudnnMultiHeadAttnBackwardData(handle_, attn, lo.data(), hi.data(), on_device, on_device,
                                          s, Memory(2), s, Memory(3), Memory(3), s, Memory(4),
                                          Memory(4), s, Memory(5), Memory(5), weights, Memory(6),
                                          work, Memory(8), reserve, Memory(12));
  });
  AllocatesNothing("weights", [&] {
    return cudnnMultiHeadAttnBackwardWeights(
        handle_, attn, CUDNN_WGRAD_MODE_SET, s, Memory(2), s, Memory(3), s, Memory(4), s, Memory(5),
        weights, Memory(6), Memory(7), work, Memory(8), reserve, Memory(12));
  });
  cudnnDestroySeqDataDescriptor(s);
  cudnnDestroyAttnDescriptor(attn);
  cudnnDestroyDropoutDescriptor(dropout);
}

}  // namespace
}  // namespace kiln::api
