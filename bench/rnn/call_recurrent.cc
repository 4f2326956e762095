// Recurrent layers: cudnnRNNForward in both modes, cudnnRNNBackwardData_v8 and
// cudnnRNNBackwardWeights_v8.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/rnn/call.h"
#include "bench/rnn/list.h"

namespace kiln::bench {
namespace {

constexpr std::array<cudnnRNNAlgo_t, 4> kAlgorithms = {
    CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_ALGO_PERSIST_STATIC, CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
    CUDNN_RNN_ALGO_PERSIST_DYNAMIC};
enum Variant : size_t { kStandard, kStatic, kSmallH };

// The algorithm that PyTorch 2.11 asks for on a GPU of sm_80 or later with 98 multiprocessors or
// more: use_rnn_persist_small_h and use_persist_common_heuristics of
// aten/src/ATen/native/cudnn/RNN.cpp.
size_t PyTorchChoice(const RecurrentShape& s, bool is_forward) {
  if (s.projected != s.hidden) return kStandard;
  const bool is_gated = s.cell == CUDNN_LSTM || s.cell == CUDNN_GRU;
  const int most = is_forward ? (is_gated ? 192 : 384) : (is_gated ? 128 : 256);
  if (s.hidden <= most) return kSmallH;
  const bool may = s.type == CUDNN_DATA_HALF && s.layers == 1 && !s.bidirectional &&
                   s.hidden <= 1024 && s.hidden % 128 == 0 && s.input % 128 == 0 &&
                   s.cell != CUDNN_GRU && s.batch % 8 == 0 && s.batch <= 128;
  if (!may) return kStandard;
  return s.cell == CUDNN_LSTM || s.batch < 96 || s.hidden < 896 ? kStatic : kStandard;
}

// Tolerance for what both libraries round differently: TF32 and bfloat16 have few bits, and a state
// passes through many steps.
double ToleranceOf(const RecurrentShape& s) {
  if (s.type == CUDNN_DATA_BFLOAT16) return 10;
  if (s.type == CUDNN_DATA_HALF) return 2;
  return s.exact ? 1 : 20;
}

// Descriptors, memory and scratch of the calls.
struct Network {
  cudnnHandle_t handle;
  cudnnRNNDescriptor_t rnn;
  cudnnRNNDataDescriptor_t xd, yd;
  cudnnTensorDescriptor_t hd, cd;
  Shape x, y, h, c, w;
  size_t weight_bytes = 0, work_bytes = 0, reserve_bytes = 0;
  void *work, *reserve;

  Network(CallSetup& s, const RecurrentShape& n, cudnnRNNAlgo_t algorithm) : handle(s.handle()) {
    rnn = s.New<cudnnRNNDescriptor_t>("RNN");
    const cudnnMathType_t math = n.type != CUDNN_DATA_FLOAT ? CUDNN_TENSOR_OP_MATH
                                 : n.exact                  ? CUDNN_FMA_MATH
                                                            : CUDNN_DEFAULT_MATH;
    KILN_DO(s, cudnnSetRNNDescriptor_v8, rnn, algorithm, n.cell, CUDNN_RNN_DOUBLE_BIAS,
            n.bidirectional ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
            n.type, CUDNN_DATA_FLOAT, math, n.input, n.hidden, n.projected, n.layers, nullptr,
            CUDNN_RNN_PADDED_IO_ENABLED);
    const int out = n.projected * n.Directions(), pseudo_layers = n.layers * n.Directions();
    const std::vector<int> lengths(static_cast<size_t>(n.batch), n.steps);
    const auto data = [&](int width) {
      const auto desc = s.New<cudnnRNNDataDescriptor_t>("RNNData");
      KILN_DO(s, cudnnSetRNNDataDescriptor, desc, n.type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
              n.steps, n.batch, width, lengths.data(), nullptr);
      return desc;
    };
    xd = data(n.input);
    yd = data(out);
    x = {n.type, {n.steps, n.batch, n.input}};
    y = {n.type, {n.steps, n.batch, out}};
    h = {n.type, {pseudo_layers, n.batch, n.projected}};
    c = {n.type, {pseudo_layers, n.batch, n.hidden}};
    hd = s.Tensor(h);
    cd = s.Tensor(c);
    if (algorithm == CUDNN_RNN_ALGO_PERSIST_DYNAMIC)
      KILN_DO(s, cudnnBuildRNNDynamic, handle, rnn, n.batch);
    KILN_DO(s, cudnnGetRNNWeightSpaceSize, handle, rnn, &weight_bytes);
    w = {n.type, {static_cast<int64_t>(weight_bytes) / oracle::Row(ElementOf(n.type)).bytes}};
    size_t inference_bytes = 0;
    KILN_DO(s, cudnnGetRNNTempSpaceSizes, handle, rnn, CUDNN_FWD_MODE_INFERENCE, xd,
            &inference_bytes, nullptr);
    if (!n.inference_alone)
      KILN_DO(s, cudnnGetRNNTempSpaceSizes, handle, rnn, CUDNN_FWD_MODE_TRAINING, xd, &work_bytes,
              &reserve_bytes);
    work_bytes = std::max(work_bytes, inference_bytes);
    work = s.error().empty() ? s.Own(work_bytes) : nullptr;
    reserve = s.error().empty() ? s.Own(reserve_bytes) : nullptr;
  }
};

Launch Forward(CallSetup& s, const Network& n, const RecurrentShape& shape, bool trains) {
  const auto forward = KILN_FIND(s, cudnnRNNForward);
  const std::string what = trains ? "" : ", inference";
  const bool has_cells = shape.cell == CUDNN_LSTM;
  const double scale = 1 / std::sqrt(static_cast<double>(shape.hidden));
  return [=, mode = trains ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE, x = s.In("x", n.x),
          w = s.In("w", n.w, -scale, scale), hx = s.In("hx", n.h), y = s.Out("y" + what, n.y),
          hy = s.Out("hy" + what, n.h), cx = has_cells ? s.In("cx", n.c) : nullptr,
          cy = has_cells ? s.Out("cy" + what, n.c) : nullptr] {
    return forward(n.handle, n.rnn, mode, nullptr, n.xd, x, n.yd, y, n.hd, hx, hy,
                   has_cells ? n.cd : nullptr, cx, cy, n.weight_bytes, w, n.work_bytes, n.work,
                   trains ? n.reserve_bytes : 0, trains ? n.reserve : nullptr);
  };
}

Launch BackwardData(CallSetup& s, const Network& n, const RecurrentShape& shape) {
  const auto backward = KILN_FIND(s, cudnnRNNBackwardData_v8);
  const bool has_cells = shape.cell == CUDNN_LSTM;
  return [=, y = s.Out("y", n.y), dy = s.In("dy", n.y), dx = s.Out("dx", n.x), hx = s.In("hx", n.h),
          dhy = s.In("dhy", n.h), dhx = s.Out("dhx", n.h),
          cx = has_cells ? s.In("cx", n.c) : nullptr, dcy = has_cells ? s.In("dcy", n.c) : nullptr,
          dcx = has_cells ? s.Out("dcx", n.c) : nullptr, w = s.In("w", n.w)] {
    return backward(n.handle, n.rnn, nullptr, n.yd, y, dy, n.xd, dx, n.hd, hx, dhy, dhx,
                    has_cells ? n.cd : nullptr, cx, dcy, dcx, n.weight_bytes, w, n.work_bytes,
                    n.work, n.reserve_bytes, n.reserve);
  };
}

Launch BackwardWeights(CallSetup& s, const Network& n) {
  const auto backward = KILN_FIND(s, cudnnRNNBackwardWeights_v8);
  return
      [=, x = s.In("x", n.x), y = s.Out("y", n.y), hx = s.In("hx", n.h), dw = s.Both("dw", n.w)] {
        return backward(n.handle, n.rnn, CUDNN_WGRAD_MODE_ADD, nullptr, n.xd, x, n.hd, hx, n.yd, y,
                        n.weight_bytes, dw, n.work_bytes, n.work, n.reserve_bytes, n.reserve);
      };
}

}  // namespace

std::vector<NetworkCall> RecurrentCalls() {
  std::vector<NetworkCall> calls;
  for (const auto& [name, shape] : RecurrentShapes()) {
    NetworkCall call = {.name = name,
                        .phases = {"inference", "training", "data", "weights"},
                        .variants = {"standard", "static", "small_h", "dynamic"},
                        .tolerance = ToleranceOf(shape),
                        .steps = int64_t{shape.steps} * shape.layers};
    if (shape.inference_alone) call.phases.resize(1);
    for (size_t i = 0; i < call.phases.size(); ++i)
      call.chosen.push_back(PyTorchChoice(shape, i < 2));
    call.make = [shape](CallSetup& s, size_t variant) -> std::vector<Launch> {
      const Network n(s, shape, kAlgorithms[variant]);
      if (!s.error().empty()) return {};
      std::vector<Launch> launches = {Forward(s, n, shape, false)};
      if (shape.inference_alone) return launches;
      launches.push_back(Forward(s, n, shape, true));
      launches.push_back(BackwardData(s, n, shape));
      launches.push_back(BackwardWeights(s, n));
      return launches;
    };
    calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace kiln::bench
