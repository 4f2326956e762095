// One convolution of the legacy API, whose three directions are called alike. Functions are those
// that the test is linked with.
#pragma once

#include <cudnn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/api/legacy/legacy_status.h"

namespace kiln::api {

enum class Direction : uint8_t { kForward, kData, kFilter };
inline constexpr Direction kDirections[] = {Direction::kForward, Direction::kData,
                                            Direction::kFilter};

struct Geometry {
  Direction direction = Direction::kForward;
  cudnnDataType_t type = CUDNN_DATA_FLOAT, y_type = type, compute = CUDNN_DATA_FLOAT;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  std::vector<int> x, w;  // N C H W; K C R S
  int padding = 0, stride = 1, dilation = 1, groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

// A row of the results, whose `algo` differs in type between directions.
struct Perf {
  int algorithm;
  cudnnStatus_t status;
  float time;
  size_t memory;
  cudnnDeterminism_t determinism;
  cudnnMathType_t math;
};

class Convolution {
 public:
  static constexpr int kMost = 16;

  explicit Convolution(const Geometry& g) : geometry(g) {
    EXPECT_EQ(cudnnCreateTensorDescriptor(&x_), kOk);
    EXPECT_EQ(cudnnCreateTensorDescriptor(&y_), kOk);
    EXPECT_EQ(cudnnCreateFilterDescriptor(&w_), kOk);
    EXPECT_EQ(cudnnCreateConvolutionDescriptor(&conv_), kOk);
    const int dims = static_cast<int>(g.x.size());
    const std::vector<int> padding(g.x.size() - 2, g.padding), stride(g.x.size() - 2, g.stride),
        dilation(g.x.size() - 2, g.dilation);
    EXPECT_EQ(cudnnSetConvolutionNdDescriptor(conv_, dims - 2, padding.data(), stride.data(),
                                              dilation.data(), CUDNN_CROSS_CORRELATION, g.compute),
              kOk);
    EXPECT_EQ(cudnnSetConvolutionGroupCount(conv_, g.groups), kOk);
    EXPECT_EQ(cudnnSetConvolutionMathType(conv_, g.math), kOk);
    EXPECT_EQ(cudnnSetTensorNdDescriptorEx(x_, g.format, g.type, dims, g.x.data()), kOk);
    EXPECT_EQ(cudnnSetFilterNdDescriptor(w_, g.type, g.format, dims, g.w.data()), kOk);
    y_dims.resize(g.x.size());
    EXPECT_EQ(cudnnGetConvolutionNdForwardOutputDim(conv_, x_, w_, dims, y_dims.data()), kOk);
    EXPECT_EQ(cudnnSetTensorNdDescriptorEx(y_, g.format, g.y_type, dims, y_dims.data()), kOk);
  }
  ~Convolution() {
    cudnnDestroyTensorDescriptor(x_);
    cudnnDestroyTensorDescriptor(y_);
    cudnnDestroyFilterDescriptor(w_);
    cudnnDestroyConvolutionDescriptor(conv_);
  }
  Convolution(const Convolution&) = delete;

  std::vector<Perf> Get(cudnnHandle_t handle) const {
    return Ask([&](int* count, auto* f, auto* d, auto* w) {
      switch (geometry.direction) {
        case Direction::kForward:
          return cudnnGetConvolutionForwardAlgorithm_v7(handle, x_, w_, conv_, y_, kMost, count, f);
        case Direction::kData:
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w_, y_, conv_, x_, kMost,
                                                             count, d);
        default:
          return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x_, y_, conv_, w_, kMost,
                                                               count, w);
      }
    });
  }
  std::vector<Perf> Find(cudnnHandle_t handle) const {
    return Ask([&](int* count, auto* f, auto* d, auto* w) {
      switch (geometry.direction) {
        case Direction::kForward:
          return cudnnFindConvolutionForwardAlgorithm(handle, x_, w_, conv_, y_, kMost, count, f);
        case Direction::kData:
          return cudnnFindConvolutionBackwardDataAlgorithm(handle, w_, y_, conv_, x_, kMost, count,
                                                           d);
        default:
          return cudnnFindConvolutionBackwardFilterAlgorithm(handle, x_, y_, conv_, w_, kMost,
                                                             count, w);
      }
    });
  }
  std::vector<Perf> FindOn(cudnnHandle_t handle, void* x, void* w, void* y, void* workspace,
                           size_t bytes) const {
    return Ask([&](int* count, auto* f, auto* d, auto* b) {
      switch (geometry.direction) {
        case Direction::kForward:
          return cudnnFindConvolutionForwardAlgorithmEx(handle, x_, x, w_, w, conv_, y_, y, kMost,
                                                        count, f, workspace, bytes);
        case Direction::kData:
          return cudnnFindConvolutionBackwardDataAlgorithmEx(handle, w_, w, y_, y, conv_, x_, x,
                                                             kMost, count, d, workspace, bytes);
        default:
          return cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, x_, x, y_, y, conv_, w_, w,
                                                               kMost, count, b, workspace, bytes);
      }
    });
  }
  cudnnStatus_t WorkspaceSize(cudnnHandle_t handle, int algorithm, size_t* bytes) const {
    switch (geometry.direction) {
      case Direction::kForward:
        return cudnnGetConvolutionForwardWorkspaceSize(
            handle, x_, w_, conv_, y_, static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), bytes);
      case Direction::kData:
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            handle, w_, y_, conv_, x_, static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm),
            bytes);
      default:
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            handle, x_, y_, conv_, w_, static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
            bytes);
    }
  }
  cudnnStatus_t Run(cudnnHandle_t handle, int algorithm, void* x, void* w, void* y, void* workspace,
                    size_t bytes, float beta = 0) const {
    const double alpha_f64 = 1, beta_f64 = beta;
    const float alpha_f32 = 1, beta_f32 = beta;
    const bool doubles = geometry.type == CUDNN_DATA_DOUBLE;
    const void *a = doubles ? static_cast<const void*>(&alpha_f64) : &alpha_f32,
               *b = doubles ? static_cast<const void*>(&beta_f64) : &beta_f32;
    switch (geometry.direction) {
      case Direction::kForward:
        return cudnnConvolutionForward(handle, a, x_, x, w_, w, conv_,
                                       static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), workspace,
                                       bytes, b, y_, y);
      case Direction::kData:
        return cudnnConvolutionBackwardData(handle, a, w_, w, y_, y, conv_,
                                            static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm),
                                            workspace, bytes, b, x_, x);
      default:
        return cudnnConvolutionBackwardFilter(
            handle, a, x_, x, y_, y, conv_, static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
            workspace, bytes, b, w_, w);
    }
  }

  const Geometry geometry;
  std::vector<int> y_dims;

 private:
  template <class Call>
  static std::vector<Perf> Ask(Call&& call) {
    std::array<cudnnConvolutionFwdAlgoPerf_t, kMost> forward = {};
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, kMost> data = {};
    std::array<cudnnConvolutionBwdFilterAlgoPerf_t, kMost> filter = {};
    int count = 0;
    EXPECT_EQ(call(&count, forward.data(), data.data(), filter.data()), kOk);
    std::vector<Perf> perfs;
    const auto add = [&](const auto& p) {
      if (perfs.size() < static_cast<size_t>(count) && (p.time != 0 || p.status != kOk))
        perfs.push_back(
            {static_cast<int>(p.algo), p.status, p.time, p.memory, p.determinism, p.mathType});
    };
    for (const auto& p : forward) add(p);
    for (const auto& p : data) add(p);
    for (const auto& p : filter) add(p);
    EXPECT_EQ(perfs.size(), static_cast<size_t>(count));
    return perfs;
  }

  cudnnTensorDescriptor_t x_ = nullptr, y_ = nullptr;
  cudnnFilterDescriptor_t w_ = nullptr;
  cudnnConvolutionDescriptor_t conv_ = nullptr;
};

}  // namespace kiln::api
