// Descriptors and memory that fit together, for valid_calls.h: tensors of 2x8x16x16 floats, a
// filter of 16x8x3x3, and whatever else a function of the legacy API may want with them.
#pragma once

#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/legacy_client.h"

namespace kiln::testing {

// Memory is the host's: with the CPU device, or for a library that gets no handle and computes
// nothing.
class ValidArguments {
 public:
  static constexpr size_t kBytes = size_t{1} << 20;
  // An activation of each mode, by number, and a pooling of each mode.
  std::array<cudnnActivationDescriptor_t, 7> activations = {};
  std::array<cudnnPoolingDescriptor_t, 4> poolings = {};

  explicit ValidArguments(LegacyClient& c) : client(c), memory_(16 * kBytes), places_(16 * 4096) {
    SetTensors();
    SetFilters();
    SetModes();
    SetTransforms();
    SetFused();
    SetRnn();
    SetCtc();
    SetAttention();
  }
  ~ValidArguments() {
    if (handle_ != nullptr) KILN_CALL(client, cudnnDestroy, handle_);
  }
  ValidArguments(const ValidArguments&) = delete;

  cudnnHandle_t NewHandle() {
    cudnnHandle_t made = nullptr;
    KILN_CALL(client, cudnnCreate, &made);
    return made;
  }
  cudnnHandle_t handle() {
    if (handle_ == nullptr) {
      handle_ = NewHandle();
      KILN_CALL(client, cudnnSetDropoutDescriptor, dropout, handle_, 0.5f, Device(15), states_bytes,
                1ull);
    }
    return handle_;
  }
  // Region `i` of memory for data, and of places for results on the host.
  void* Device(size_t i) { return memory_.data() + i * kBytes; }
  template <class T>
  T* Place(size_t i) {
    return reinterpret_cast<T*>(places_.data() + i * 4096);
  }
  // An object for the call to destroy.
  template <class T>
  T NewUnowned(const std::string& kind) {
    T object = nullptr;
    client.Call<cudnnStatus_t(T*)>(("cudnnCreate" + kind).c_str(), &object);
    return object;
  }
  template <class T>
  T NewFused(const std::string& kind) {
    T object = nullptr;
    client.Call<cudnnStatus_t(T*, cudnnFusedOps_t)>(("cudnnCreate" + kind).c_str(), &object, ops);
    return object;
  }

  LegacyClient& client;
  float one = 1, zero = 0;
  std::array<int, 8> one_each = {1, 1, 1, 1, 1, 1, 1, 1}, two_each = {2, 2, 2, 2, 2, 2, 2, 2},
                     zero_each = {};
  std::array<int, 4> dims = {2, 8, 16, 16}, steps = {2048, 256, 16, 1}, filter_dims = {16, 8, 3, 3};
  std::array<int, 2> steps_of_each = {4, 4};
  int* rnn_lengths = steps_of_each.data();
  std::array<unsigned, 2> fold_each = {2, 2};
  int *ones = one_each.data(), *twos = two_each.data(), *zeros = zero_each.data(),
      *x_dims = dims.data(), *x_strides = steps.data(), *w_dims = filter_dims.data();
  unsigned* folds = fold_each.data();
  cudnnFusedOps_t ops = CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS;
  size_t states_bytes = kBytes, reserve_bytes = kBytes;
  cudnnTensorDescriptor_t x, y, bias, channels, pooled, summed, folded, half, other, another,
      logits;  // 5 frames, 2 samples, 4 symbols
  cudnnFilterDescriptor_t w, w32, folded_w, other_w;
  cudnnConvolutionDescriptor_t conv, other_conv;
  cudnnPoolingDescriptor_t other_pool;
  cudnnActivationDescriptor_t other_activation;
  cudnnLRNDescriptor_t lrn, other_lrn;
  cudnnOpTensorDescriptor_t add, other_add;
  cudnnReduceTensorDescriptor_t sum, max, other_sum;
  cudnnDropoutDescriptor_t dropout, other_dropout;
  cudnnSpatialTransformerDescriptor_t grid, other_grid;
  cudnnTensorTransformDescriptor_t transform, transform_w;
  std::array<cudnnTensorTransformDescriptor_t, 4> transforms;
  cudnnRNNDescriptor_t rnn, other_rnn;
  cudnnRNNDataDescriptor_t rnn_x, rnn_y, other_rnn_data;
  cudnnTensorDescriptor_t rnn_states;
  cudnnFusedOpsConstParamPack_t const_pack;
  cudnnFusedOpsVariantParamPack_t variant_pack;
  cudnnFusedOpsPlan_t plan;
  cudnnCTCLossDescriptor_t ctc, other_ctc;
  // Two sequences of four steps, queries and keys as values; a head, and biases.
  cudnnAttnDescriptor_t attention, other_attention;
  cudnnSeqDataDescriptor_t sequences, other_sequences;
  std::array<int, 4> sequence_dims = {4, 2, 1, 8};
  std::array<cudnnSeqDataAxis_t, 4> sequence_axes = {CUDNN_SEQDATA_BATCH_DIM,
                                                     CUDNN_SEQDATA_BEAM_DIM, CUDNN_SEQDATA_TIME_DIM,
                                                     CUDNN_SEQDATA_VECT_DIM};
  std::array<int, 2> sequence_lengths = {4, 4};

  int* Lengths(size_t i) {
    std::copy(sequence_lengths.begin(), sequence_lengths.end(), static_cast<int*>(Device(i)));
    return static_cast<int*>(Device(i));
  }

 private:
  cudnnTensorDescriptor_t Tensor(int n, int c, int h, int wide) {
    auto t = client.New<cudnnTensorDescriptor_t>("Tensor");
    KILN_CALL(client, cudnnSetTensor4dDescriptor, t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h,
              wide);
    return t;
  }
  cudnnFilterDescriptor_t Filter(cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c,
                                 int taps) {
    auto f = client.New<cudnnFilterDescriptor_t>("Filter");
    KILN_CALL(client, cudnnSetFilter4dDescriptor, f, type, format, k, c, taps, taps);
    return f;
  }
  void SetTensors() {
    x = Tensor(2, 8, 16, 16);
    y = Tensor(2, 16, 16, 16);
    bias = Tensor(1, 16, 1, 1);
    channels = Tensor(1, 8, 1, 1);
    pooled = Tensor(2, 8, 8, 8);
    summed = Tensor(1, 8, 1, 1);
    folded = Tensor(2, 32, 8, 8);
    other = Tensor(2, 8, 16, 16);
    another = Tensor(2, 8, 16, 16);
    half = client.New<cudnnTensorDescriptor_t>("Tensor");
    KILN_CALL(client, cudnnSetTensor4dDescriptor, half, CUDNN_TENSOR_NHWC, CUDNN_DATA_HALF, 2, 8,
              16, 16);
  }
  void SetCtc() {
    constexpr std::array<int, 3> kDims = {5, 2, 4}, kStrides = {8, 4, 1};
    logits = client.New<cudnnTensorDescriptor_t>("Tensor");
    KILN_CALL(client, cudnnSetTensorNdDescriptor, logits, CUDNN_DATA_FLOAT, 3, kDims.data(),
              kStrides.data());
    for (auto* c : {&ctc, &other_ctc}) {
      *c = client.New<cudnnCTCLossDescriptor_t>("CTCLoss");
      KILN_CALL(client, cudnnSetCTCLossDescriptor_v8, *c, CUDNN_DATA_FLOAT,
                CUDNN_LOSS_NORMALIZATION_SOFTMAX, CUDNN_PROPAGATE_NAN, 2);
    }
  }
  void SetFilters() {
    w = Filter(CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 16, 8, 3);
    other_w = Filter(CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 16, 8, 3);
    folded_w = Filter(CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 16, 32, 2);
    w32 = Filter(CUDNN_DATA_INT8x32, CUDNN_TENSOR_NCHW_VECT_C, 32, 32, 3);
    for (auto* c : {&conv, &other_conv}) {
      *c = client.New<cudnnConvolutionDescriptor_t>("Convolution");
      KILN_CALL(client, cudnnSetConvolution2dDescriptor, *c, 1, 1, 1, 1, 1, 1,
                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    }
  }
  void SetModes() {
    for (size_t mode = 0; mode < activations.size(); ++mode)
      activations[mode] = Activation(static_cast<cudnnActivationMode_t>(mode));
    other_activation = Activation(CUDNN_ACTIVATION_RELU);
    for (size_t mode = 0; mode < poolings.size(); ++mode)
      poolings[mode] = Pooling(static_cast<cudnnPoolingMode_t>(mode));
    other_pool = Pooling(CUDNN_POOLING_MAX);
    for (auto* c : {&lrn, &other_lrn}) {
      *c = client.New<cudnnLRNDescriptor_t>("LRN");
      KILN_CALL(client, cudnnSetLRNDescriptor, *c, 5u, 1e-4, 0.75, 2.0);
    }
    for (auto* c : {&add, &other_add}) {
      *c = client.New<cudnnOpTensorDescriptor_t>("OpTensor");
      KILN_CALL(client, cudnnSetOpTensorDescriptor, *c, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT,
                CUDNN_NOT_PROPAGATE_NAN);
    }
    sum = Reduction(CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_NO_INDICES);
    other_sum = Reduction(CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_NO_INDICES);
    max = Reduction(CUDNN_REDUCE_TENSOR_MAX, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES);
    for (auto* c : {&dropout, &other_dropout}) *c = client.New<cudnnDropoutDescriptor_t>("Dropout");
  }
  cudnnActivationDescriptor_t Activation(cudnnActivationMode_t mode) {
    auto a = client.New<cudnnActivationDescriptor_t>("Activation");
    KILN_CALL(client, cudnnSetActivationDescriptor, a, mode, CUDNN_NOT_PROPAGATE_NAN, 1.0);
    return a;
  }
  cudnnPoolingDescriptor_t Pooling(cudnnPoolingMode_t mode) {
    auto p = client.New<cudnnPoolingDescriptor_t>("Pooling");
    KILN_CALL(client, cudnnSetPooling2dDescriptor, p, mode, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2,
              2);
    return p;
  }
  cudnnReduceTensorDescriptor_t Reduction(cudnnReduceTensorOp_t op,
                                          cudnnReduceTensorIndices_t indices) {
    auto r = client.New<cudnnReduceTensorDescriptor_t>("ReduceTensor");
    KILN_CALL(client, cudnnSetReduceTensorDescriptor, r, op, CUDNN_DATA_FLOAT,
              CUDNN_NOT_PROPAGATE_NAN, indices, CUDNN_32BIT_INDICES);
    return r;
  }
  void SetTransforms() {
    for (auto* c : {&grid, &other_grid}) {
      *c = client.New<cudnnSpatialTransformerDescriptor_t>("SpatialTransformer");
      KILN_CALL(client, cudnnSetSpatialTransformerNdDescriptor, *c, CUDNN_SAMPLER_BILINEAR,
                CUDNN_DATA_FLOAT, 4, x_dims);
    }
    const std::array<int32_t, 4> after = {0, 0, 1, 1};
    for (auto* t : {&transform, &transform_w, &transforms[0], &transforms[1], &transforms[2],
                    &transforms[3]}) {
      *t = client.New<cudnnTensorTransformDescriptor_t>("TensorTransform");
      KILN_CALL(client, cudnnSetTensorTransformDescriptor, *t, 4u, CUDNN_TENSOR_NCHW, zeros,
                t == &transform_w ? after.data() : zeros, folds, CUDNN_TRANSFORM_FOLD);
    }
  }
  // An LSTM of 8 units on 4 steps of 2 sequences, 8 wide.
  void SetRnn() {
    for (auto* r : {&rnn, &other_rnn}) {
      *r = client.New<cudnnRNNDescriptor_t>("RNN");
      KILN_CALL(client, cudnnSetRNNDescriptor_v8, *r, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM,
                CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 8, 8, 8, 1,
                static_cast<cudnnDropoutDescriptor_t>(nullptr), 0u);
    }
    for (auto* d : {&rnn_x, &rnn_y, &other_rnn_data}) {
      *d = client.New<cudnnRNNDataDescriptor_t>("RNNData");
      KILN_CALL(client, cudnnSetRNNDataDescriptor, *d, CUDNN_DATA_FLOAT,
                CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, 4, 2, 8, steps_of_each.data(),
                static_cast<void*>(nullptr));
    }
    const std::array<int, 3> state_dims = {1, 2, 8}, state_steps = {16, 8, 1};
    rnn_states = client.New<cudnnTensorDescriptor_t>("Tensor");
    KILN_CALL(client, cudnnSetTensorNdDescriptor, rnn_states, CUDNN_DATA_FLOAT, 3,
              state_dims.data(), state_steps.data());
  }
  void SetFused() {
    const_pack = NewFused<cudnnFusedOpsConstParamPack_t>("FusedOpsConstParamPack");
    variant_pack = NewFused<cudnnFusedOpsVariantParamPack_t>("FusedOpsVariantParamPack");
    plan = NewFused<cudnnFusedOpsPlan_t>("FusedOpsPlan");
    KILN_CALL(client, cudnnSetFusedOpsConstParamPackAttribute, const_pack, CUDNN_PARAM_XDESC, x);
    KILN_CALL(client, cudnnSetFusedOpsVariantParamPackAttribute, variant_pack, CUDNN_PTR_XDATA,
              Device(9));
  }

  void SetAttention() {
    for (auto* d : {&attention, &other_attention}) {
      *d = client.New<cudnnAttnDescriptor_t>("Attn");
      KILN_CALL(client, cudnnSetAttnDescriptor, *d, CUDNN_ATTN_ENABLE_PROJ_BIASES, 2, 1.0,
                CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH,
                static_cast<cudnnDropoutDescriptor_t>(nullptr),
                static_cast<cudnnDropoutDescriptor_t>(nullptr), 8, 8, 8, 4, 4, 4, 8, 4, 4, 2, 1);
    }
    for (auto* d : {&sequences, &other_sequences}) {
      *d = client.New<cudnnSeqDataDescriptor_t>("SeqData");
      KILN_CALL(client, cudnnSetSeqDataDescriptor, *d, CUDNN_DATA_FLOAT, 4, sequence_dims.data(),
                sequence_axes.data(), sequence_lengths.size(), sequence_lengths.data(),
                static_cast<void*>(nullptr));
    }
  }

  cudnnHandle_t handle_ = nullptr;
  std::vector<char> memory_, places_;
};

}  // namespace kiln::testing
