// Pooling, LRN, divisive normalization, the spatial transformer.
#include <fmt/format.h>

#include "bench/legacy/call.h"

namespace kiln::bench {
namespace {

constexpr auto kF16 = CUDNN_DATA_HALF, kF32 = CUDNN_DATA_FLOAT;
constexpr auto kMax = CUDNN_POOLING_MAX, kMaxInOrder = CUDNN_POOLING_MAX_DETERMINISTIC;
constexpr auto kWithPadding = CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
               kWithoutPadding = CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING;

struct Pooling {
  const char* name;
  cudnnPoolingMode_t mode;
  int window, stride, padding;
  Shape x;
  enum : uint8_t { kForward, kBackward, kBothWays } way = kBothWays;

  Shape Y() const {
    Shape y = x;
    for (size_t d : {2, 3}) y.dims[d] = (x.dims[d] + 2 * padding - window) / stride + 1;
    return y;
  }
  bool is_max() const { return mode == kMax || mode == kMaxInOrder; }
};

// ResNet's, VGG's and Inception's.
const Pooling kPoolings[] = {
    {"max_3x3s2/f16/nhwc", kMax, 3, 2, 1, {kF16, {256, 64, 112, 112}, true}},
    {"max_3x3s2/f16/nchw", kMax, 3, 2, 1, {kF16, {256, 64, 112, 112}}},
    {"max_3x3s2/f32/nchw", kMax, 3, 2, 1, {kF32, {128, 64, 112, 112}}},
    {"max_2x2s2/f32/nchw", kMax, 2, 2, 0, {kF32, {64, 128, 112, 112}}},
    {"max_2x2s2/f16/nhwc", kMaxInOrder, 2, 2, 0, {kF16, {64, 128, 112, 112}, true}},
    {"max_3x3s2_ordered/f32/nchw",
     kMaxInOrder,
     3,
     2,
     1,
     {kF32, {128, 64, 112, 112}},
     Pooling::kBackward},
    {"avg_3x3s2_padding/f32/nchw", kWithPadding, 3, 2, 1, {kF32, {128, 64, 112, 112}}},
    {"avg_3x3s2/f16/nhwc", kWithoutPadding, 3, 2, 1, {kF16, {256, 64, 112, 112}, true}},
    {"avg_3x3s1/f32/nchw", kWithoutPadding, 3, 1, 1, {kF32, {32, 192, 35, 35}}},
    {"avg_7x7/f16/nhwc", kWithoutPadding, 7, 1, 0, {kF16, {256, 2048, 7, 7}, true}},
    {"avg_7x7/f32/nchw", kWithPadding, 7, 1, 0, {kF32, {256, 2048, 7, 7}}},
};

Launch MakePooling(CallSetup& s, const Pooling& p, bool back) {
  const auto pooling = s.New<cudnnPoolingDescriptor_t>("Pooling");
  KILN_DO(s, cudnnSetPooling2dDescriptor, pooling, p.mode, CUDNN_PROPAGATE_NAN, p.window, p.window,
          p.padding, p.padding, p.stride, p.stride);
  const Shape shape = p.Y();
  const auto xd = s.Tensor(p.x), yd = s.Tensor(shape);
  const auto forward = KILN_FIND(s, cudnnPoolingForward);
  if (!back) {
    return [=, one = s.one(), zero = s.zero(), handle = s.handle(), x = s.In("x", p.x),
            y = s.Out("y", shape)] { return forward(handle, pooling, one, xd, x, zero, yd, y); };
  }
  void* const x = p.is_max() ? s.In("x", p.x) : s.Aside("x", p.x);
  void *const y = s.Aside("y", shape), *const dy = s.In("dy", shape), *const dx = s.Out("dx", p.x);
  KILN_DO(s, cudnnPoolingForward, s.handle(), pooling, s.one(), xd, x, s.zero(), yd, y);
  const auto backward = KILN_FIND(s, cudnnPoolingBackward);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle()] {
    return backward(handle, pooling, one, yd, y, yd, dy, xd, x, zero, xd, dx);
  };
}

Launch MakeLrn(CallSetup& s, const Shape& shape, bool back) {
  const auto lrn = s.New<cudnnLRNDescriptor_t>("LRN");
  KILN_DO(s, cudnnSetLRNDescriptor, lrn, 5U, 1e-4, 0.75, 2.0);
  const auto desc = s.Tensor(shape);
  void *const x = s.In("x", shape), *const y = back ? s.Aside("y", shape) : s.Out("y", shape);
  const auto forward = KILN_FIND(s, cudnnLRNCrossChannelForward);
  const auto normalise = [=, one = s.one(), zero = s.zero(), handle = s.handle()] {
    return forward(handle, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, one, desc, x, zero, desc, y);
  };
  if (!back) return normalise;
  KILN_DO(s, cudnnLRNCrossChannelForward, s.handle(), lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, s.one(),
          desc, x, s.zero(), desc, y);
  void *const dy = s.In("dy", shape), *const dx = s.Out("dx", shape);
  const auto backward = KILN_FIND(s, cudnnLRNCrossChannelBackward);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle()] {
    return backward(handle, lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, one, desc, y, desc, dy, desc, x,
                    zero, desc, dx);
  };
}

Launch MakeDivisive(CallSetup& s, const Shape& shape, bool back) {
  const auto lrn = s.New<cudnnLRNDescriptor_t>("LRN");
  KILN_DO(s, cudnnSetLRNDescriptor, lrn, 5U, 1e-1, 0.75, 2.0);
  const auto desc = s.Tensor(shape);
  void *const x = s.In("x", shape), *const temp = s.Own(shape.Bytes()),
              *const temp2 = s.Own(shape.Bytes());
  const auto forward = KILN_FIND(s, cudnnDivisiveNormalizationForward);
  const auto backward = KILN_FIND(s, cudnnDivisiveNormalizationBackward);
  const auto mode = CUDNN_DIVNORM_PRECOMPUTED_MEANS;
  if (!back) {
    return [=, one = s.one(), zero = s.zero(), handle = s.handle(), y = s.Out("y", shape)] {
      return forward(handle, lrn, mode, one, desc, x, nullptr, temp, temp2, zero, desc, y);
    };
  }
  void *const dy = s.In("dy", shape), *const dx = s.Out("dx", shape);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle()] {
    return backward(handle, lrn, mode, one, desc, x, nullptr, dy, temp, temp2, zero, desc, dx,
                    nullptr);
  };
}

struct Transformer {
  cudnnSpatialTransformerDescriptor_t desc;
  Shape image, theta, grid;
};
Transformer MakeTransformer(CallSetup& s, const Dims& dims) {
  const auto desc = s.New<cudnnSpatialTransformerDescriptor_t>("SpatialTransformer");
  const std::vector<int> extents(dims.begin(), dims.end());
  KILN_DO(s, cudnnSetSpatialTransformerNdDescriptor, desc, CUDNN_SAMPLER_BILINEAR, kF32, 4,
          extents.data());
  return {.desc = desc,
          .image = {kF32, dims},
          .theta = {kF32, {dims[0], 2, 3}},
          .grid = {kF32, {dims[0], dims[2], dims[3], 2}}};
}

Launch MakeGrid(CallSetup& s, const Dims& dims, bool back) {
  const Transformer t = MakeTransformer(s, dims);
  const auto forward = KILN_FIND(s, cudnnSpatialTfGridGeneratorForward);
  const auto backward = KILN_FIND(s, cudnnSpatialTfGridGeneratorBackward);
  if (!back)
    return [=, handle = s.handle(), theta = s.In("theta", t.theta), grid = s.Out("grid", t.grid)] {
      return forward(handle, t.desc, theta, grid);
    };
  return [=, handle = s.handle(), dgrid = s.In("dgrid", t.grid),
          dtheta = s.Out("dtheta", t.theta)] { return backward(handle, t.desc, dgrid, dtheta); };
}

Launch MakeSampler(CallSetup& s, const Dims& dims, bool back) {
  const Transformer t = MakeTransformer(s, dims);
  const auto desc = s.Tensor(t.image);
  // A slight turn: neighbours are read by neighbours, as images are.
  void *const x = s.In("x", t.image), *const theta = s.Aside("theta", t.theta, 0.3, 0.9),
              *const grid = s.Aside("grid", t.grid);
  KILN_DO(s, cudnnSpatialTfGridGeneratorForward, s.handle(), t.desc, theta, grid);
  const auto forward = KILN_FIND(s, cudnnSpatialTfSamplerForward);
  const auto backward = KILN_FIND(s, cudnnSpatialTfSamplerBackward);
  if (!back)
    return [=, one = s.one(), zero = s.zero(), handle = s.handle(), y = s.Out("y", t.image)] {
      return forward(handle, t.desc, one, desc, x, grid, zero, desc, y);
    };
  void *const dy = s.In("dy", t.image), *const dx = s.Out("dx", t.image),
              *const dgrid = s.Out("dgrid", t.grid);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle()] {
    return backward(handle, t.desc, one, desc, x, zero, desc, dx, one, desc, dy, grid, zero, dgrid);
  };
}

const char* Way(bool back) { return back ? "backward" : "forward"; }

}  // namespace

std::vector<LegacyCall> WindowCalls() {
  std::vector<LegacyCall> calls;
  for (const Pooling& p : kPoolings) {
    for (const bool back : {false, true}) {
      if (p.way != Pooling::kBothWays && p.way != (back ? Pooling::kBackward : Pooling::kForward))
        continue;
      calls.push_back({fmt::format("pooling/{}/{}", Way(back), p.name),
                       [p, back](CallSetup& s) { return MakePooling(s, p, back); }});
    }
  }
  const std::pair<const char*, Shape> normalised[] = {
      {"128x96x55x55/f32", {kF32, {128, 96, 55, 55}}},
      {"128x256x27x27/f32", {kF32, {128, 256, 27, 27}}},
      {"128x256x28x28/f16", {kF16, {128, 256, 28, 28}}}};
  for (const auto& [name, shape] : normalised)
    for (const bool back : {false, true})
      calls.push_back({fmt::format("lrn/{}/{}", Way(back), name),
                       [shape = shape, back](CallSetup& s) { return MakeLrn(s, shape, back); }});
  for (const bool back : {false, true}) {
    calls.push_back({fmt::format("divisive/{}/32x64x55x55/f32", Way(back)), [back](CallSetup& s) {
                       return MakeDivisive(s, {kF32, {32, 64, 55, 55}}, back);
                     }});
  }
  return calls;
}

std::vector<LegacyCall> SpatialCalls() {
  std::vector<LegacyCall> calls;
  const Dims large = {64, 3, 224, 224}, small = {64, 1, 28, 28};
  for (const bool back : {false, true}) {
    calls.push_back({fmt::format("grid/{}/64x224x224/f32", Way(back)),
                     [=](CallSetup& s) { return MakeGrid(s, large, back); }});
    calls.push_back({fmt::format("sampler/{}/64x1x28x28/f32", Way(back)),
                     [=](CallSetup& s) { return MakeSampler(s, small, back); }});
    calls.push_back({fmt::format("sampler/{}/64x3x224x224/f32", Way(back)),
                     [=](CallSetup& s) { return MakeSampler(s, large, back); }});
  }
  return calls;
}

}  // namespace kiln::bench
