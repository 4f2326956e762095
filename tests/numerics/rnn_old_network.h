// A recurrent network as programs written for cuDNN 6 and 7 describe it, with the numbers of an
// RnnNetworkRun: properties one by one, an array of tensor descriptors, weights behind a filter
// descriptor, and each call in both of its forms. For tests of libcudnn.so.8.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/numerics/rnn_network.h"

namespace kiln::testing {

// The descriptor of each argument of a call; `x` to `dx` are of the arrays, `x_data` to `dx_data`
// of the Ex forms.
struct OldDescriptors {
  std::vector<cudnnTensorDescriptor_t> x, y, dy, dx;
  cudnnTensorDescriptor_t hx, hy, dhy, dhx, cx, cy, dcy, dcx;
  cudnnRNNDataDescriptor_t x_data, y_data, dy_data, dx_data;
  cudnnFilterDescriptor_t w;
  size_t work_bytes, reserve_bytes;
};

class OldNetwork {
 public:
  OldNetwork(cudnnHandle_t handle, const RnnConfig& c) : handle_(handle), config_(c) {
    RNN_CALL(cudnnCreateRNNDescriptor, &rnn);
    const cudnnDataType_t math = c.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    EXPECT_EQ(RNN_CALL(cudnnSetRNNDescriptor_v6, handle, rnn, c.hidden, c.layers, c.dropout,
                       c.input_mode, c.direction, c.cell, c.algo, math),
              CUDNN_STATUS_SUCCESS);
    SetProperties();
    for (int t = 0; t < c.steps; ++t) {
      int rows = 0;
      for (int b = 0; b < c.batch; ++b) rows += t < c.Length(b);
      if (rows == 0) break;
      x.push_back(Step(rows, c.input));
      y.push_back(Step(rows, c.projected * c.Directions()));
    }
    w = Weights(c.type);
    EXPECT_EQ(RNN_CALL(cudnnGetRNNWorkspaceSize, handle, rnn, Steps(), x.data(), &work_bytes),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        RNN_CALL(cudnnGetRNNTrainingReserveSize, handle, rnn, Steps(), x.data(), &reserve_bytes),
        CUDNN_STATUS_SUCCESS);
  }
  ~OldNetwork() {
    for (cudnnTensorDescriptor_t t : x) RNN_CALL(cudnnDestroyTensorDescriptor, t);
    for (cudnnTensorDescriptor_t t : y) RNN_CALL(cudnnDestroyTensorDescriptor, t);
    RNN_CALL(cudnnDestroyFilterDescriptor, w);
    RNN_CALL(cudnnDestroyRNNDescriptor, rnn);
  }
  OldNetwork(const OldNetwork&) = delete;

  // ---- arrays of descriptors; data are packed ----

  cudnnStatus_t Inference(const RnnNetworkRun& r, const OldDescriptors& d) const {
    const RnnPointers p(r);
    return RNN_CALL(cudnnRNNForwardInference, handle_, rnn, Steps(), d.x.data(), r.x.data(), d.hx,
                    p.hx, d.cx, p.cx, d.w, r.w.data(), d.y.data(), r.y.data(), d.hy, p.hy, d.cy,
                    p.cy, r.work.data(), d.work_bytes);
  }
  cudnnStatus_t Training(const RnnNetworkRun& r, const OldDescriptors& d) const {
    const RnnPointers p(r);
    return RNN_CALL(cudnnRNNForwardTraining, handle_, rnn, Steps(), d.x.data(), r.x.data(), d.hx,
                    p.hx, d.cx, p.cx, d.w, r.w.data(), d.y.data(), r.y.data(), d.hy, p.hy, d.cy,
                    p.cy, r.work.data(), d.work_bytes, r.reserve.data(), d.reserve_bytes);
  }
  cudnnStatus_t Data(const RnnNetworkRun& r, const OldDescriptors& d) const {
    const RnnPointers p(r);
    return RNN_CALL(cudnnRNNBackwardData, handle_, rnn, Steps(), d.y.data(), r.y.data(),
                    d.dy.data(), r.dy.data(), d.dhy, p.dhy, d.dcy, p.dcy, d.w, r.w.data(), d.hx,
                    p.hx, d.cx, p.cx, d.dx.data(), r.dx.data(), d.dhx, p.dhx, d.dcx, p.dcx,
                    r.work.data(), d.work_bytes, r.reserve.data(), d.reserve_bytes);
  }
  cudnnStatus_t WeightGradients(const RnnNetworkRun& r, const OldDescriptors& d) const {
    return RNN_CALL(cudnnRNNBackwardWeights, handle_, rnn, Steps(), d.x.data(), r.x.data(), d.hx,
                    RnnPointers(r).hx, d.y.data(), r.y.data(), r.work.data(), d.work_bytes, d.w,
                    r.dw.data(), r.reserve.data(), d.reserve_bytes);
  }

  // ---- descriptors of data, in any layout ----

  cudnnStatus_t InferenceEx(const RnnNetworkRun& r, const OldDescriptors& d) const {
    const RnnPointers p(r);
    return RNN_CALL(cudnnRNNForwardInferenceEx, handle_, rnn, d.x_data, r.x.data(), d.hx, p.hx,
                    d.cx, p.cx, d.w, r.w.data(), d.y_data, r.y.data(), d.hy, p.hy, d.cy, p.cy,
                    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                    r.work.data(), d.work_bytes);
  }
  cudnnStatus_t TrainingEx(const RnnNetworkRun& r, const OldDescriptors& d) const {
    const RnnPointers p(r);
    return RNN_CALL(cudnnRNNForwardTrainingEx, handle_, rnn, d.x_data, r.x.data(), d.hx, p.hx, d.cx,
                    p.cx, d.w, r.w.data(), d.y_data, r.y.data(), d.hy, p.hy, d.cy, p.cy, nullptr,
                    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, r.work.data(),
                    d.work_bytes, r.reserve.data(), d.reserve_bytes);
  }
  cudnnStatus_t DataEx(const RnnNetworkRun& r, const OldDescriptors& d) const {
    const RnnPointers p(r);
    return RNN_CALL(cudnnRNNBackwardDataEx, handle_, rnn, d.y_data, r.y.data(), d.dy_data,
                    r.dy.data(), nullptr, nullptr, d.dhy, p.dhy, d.dcy, p.dcy, d.w, r.w.data(),
                    d.hx, p.hx, d.cx, p.cx, d.dx_data, r.dx.data(), d.dhx, p.dhx, d.dcx, p.dcx,
                    nullptr, nullptr, r.work.data(), d.work_bytes, r.reserve.data(),
                    d.reserve_bytes);
  }
  cudnnStatus_t WeightGradientsEx(const RnnNetworkRun& r, const OldDescriptors& d) const {
    return RNN_CALL(cudnnRNNBackwardWeightsEx, handle_, rnn, d.x_data, r.x.data(), d.hx,
                    RnnPointers(r).hx, d.y_data, r.y.data(), r.work.data(), d.work_bytes, d.w,
                    r.dw.data(), r.reserve.data(), d.reserve_bytes);
  }

  // ---- the same with the descriptors of the run ----

  OldDescriptors Describe(const RnnNetworkRun& r) const {
    return {.x = x,
            .y = y,
            .dy = y,
            .dx = x,
            .hx = r.h_desc,
            .hy = r.h_desc,
            .dhy = r.h_desc,
            .dhx = r.h_desc,
            .cx = r.c_desc,
            .cy = r.c_desc,
            .dcy = r.c_desc,
            .dcx = r.c_desc,
            .x_data = r.x_desc,
            .y_data = r.y_desc,
            .dy_data = r.y_desc,
            .dx_data = r.x_desc,
            .w = w,
            .work_bytes = std::max(work_bytes, r.work_bytes),
            .reserve_bytes = std::max(reserve_bytes, r.reserve_bytes)};
  }
  cudnnStatus_t Inference(const RnnNetworkRun& r) const { return Inference(r, Describe(r)); }
  cudnnStatus_t Training(const RnnNetworkRun& r) const { return Training(r, Describe(r)); }
  cudnnStatus_t Data(const RnnNetworkRun& r) const { return Data(r, Describe(r)); }
  cudnnStatus_t WeightGradients(const RnnNetworkRun& r) const {
    return WeightGradients(r, Describe(r));
  }
  cudnnStatus_t InferenceEx(const RnnNetworkRun& r) const { return InferenceEx(r, Describe(r)); }
  cudnnStatus_t TrainingEx(const RnnNetworkRun& r) const { return TrainingEx(r, Describe(r)); }
  cudnnStatus_t DataEx(const RnnNetworkRun& r) const { return DataEx(r, Describe(r)); }
  cudnnStatus_t WeightGradientsEx(const RnnNetworkRun& r) const {
    return WeightGradientsEx(r, Describe(r));
  }

  int Steps() const { return static_cast<int>(x.size()); }

  cudnnRNNDescriptor_t rnn = nullptr;
  std::vector<cudnnTensorDescriptor_t> x, y;
  cudnnFilterDescriptor_t w = nullptr;
  size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 0;

 private:
  void SetProperties() {
    const RnnConfig& c = config_;
    if (c.projected != c.hidden) {
      EXPECT_EQ(RNN_CALL(cudnnSetRNNProjectionLayers, handle_, rnn, c.projected, 0),
                CUDNN_STATUS_SUCCESS);
    }
    EXPECT_EQ(RNN_CALL(cudnnSetRNNBiasMode, rnn, c.bias), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        RNN_CALL(cudnnSetRNNMatrixMathType, rnn, c.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH),
        CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(RNN_CALL(cudnnSetRNNPaddingMode, rnn, CUDNN_RNN_PADDED_IO_ENABLED),
              CUDNN_STATUS_SUCCESS);
    if (!c.clips) return;
    EXPECT_EQ(RNN_CALL(cudnnRNNSetClip, handle_, rnn, CUDNN_RNN_CLIP_MINMAX,
                       c.clip_keeps_nan ? CUDNN_PROPAGATE_NAN : CUDNN_NOT_PROPAGATE_NAN, c.clip_low,
                       c.clip_high),
              CUDNN_STATUS_SUCCESS);
  }
  cudnnFilterDescriptor_t Weights(cudnnDataType_t type) {
    EXPECT_EQ(RNN_CALL(cudnnGetRNNParamsSize, handle_, rnn, x[0], &weight_bytes, type),
              CUDNN_STATUS_SUCCESS);
    const int element = type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_HALF ? 2 : 4;
    const int dims[3] = {static_cast<int>(weight_bytes) / element, 1, 1};
    cudnnFilterDescriptor_t desc = nullptr;
    RNN_CALL(cudnnCreateFilterDescriptor, &desc);
    EXPECT_EQ(RNN_CALL(cudnnSetFilterNdDescriptor, desc, type, CUDNN_TENSOR_NCHW, 3, dims),
              CUDNN_STATUS_SUCCESS);
    return desc;
  }
  cudnnTensorDescriptor_t Step(int rows, int width) const {
    cudnnTensorDescriptor_t t = nullptr;
    const int dims[3] = {rows, width, 1}, strides[3] = {width, 1, 1};
    RNN_CALL(cudnnCreateTensorDescriptor, &t);
    EXPECT_EQ(RNN_CALL(cudnnSetTensorNdDescriptor, t, config_.type, 3, dims, strides),
              CUDNN_STATUS_SUCCESS);
    return t;
  }

  cudnnHandle_t handle_;
  const RnnConfig config_;
};

}  // namespace kiln::testing
