// Softmax and batch normalization.
#include <fmt/format.h>

#include <algorithm>

#include "bench/legacy/call.h"

namespace kiln::bench {
namespace {

constexpr auto kF16 = CUDNN_DATA_HALF, kF32 = CUDNN_DATA_FLOAT;
constexpr double kEpsilon = 1e-3, kFactor = 0.1;
constexpr double kSums = 20;  // of the tolerance

struct Softmax {
  const char* name;
  cudnnSoftmaxAlgorithm_t algorithm;
  cudnnSoftmaxMode_t mode;
  Shape shape;
};
const Softmax kSoftmaxes[] = {
    {"accurate/rows_16384x4096/f32",
     CUDNN_SOFTMAX_ACCURATE,
     CUDNN_SOFTMAX_MODE_INSTANCE,
     {kF32, {16384, 4096, 1, 1}}},
    {"fast/rows_65536x1024/f16",
     CUDNN_SOFTMAX_FAST,
     CUDNN_SOFTMAX_MODE_INSTANCE,
     {kF16, {65536, 1024, 1, 1}}},
    {"log/rows_4096x32000/f32",
     CUDNN_SOFTMAX_LOG,
     CUDNN_SOFTMAX_MODE_INSTANCE,
     {kF32, {4096, 32000, 1, 1}}},
    {"accurate/channels_16x64x256x256/f32",
     CUDNN_SOFTMAX_ACCURATE,
     CUDNN_SOFTMAX_MODE_CHANNEL,
     {kF32, {16, 64, 256, 256}}},
    {"log/channels_8x21x512x512/f16",
     CUDNN_SOFTMAX_LOG,
     CUDNN_SOFTMAX_MODE_CHANNEL,
     {kF16, {8, 21, 512, 512}}},
};

Launch MakeSoftmax(CallSetup& s, const Softmax& m, bool back) {
  const auto desc = s.Tensor(m.shape);
  const auto forward = KILN_FIND(s, cudnnSoftmaxForward);
  const auto backward = KILN_FIND(s, cudnnSoftmaxBackward);
  const auto algorithm = m.algorithm;
  const auto mode = m.mode;
  if (!back)
    return [=, one = s.one(), zero = s.zero(), handle = s.handle(), x = s.In("x", m.shape, -4, 4),
            y = s.Out("y", m.shape)] {
      return forward(handle, algorithm, mode, one, desc, x, zero, desc, y);
    };
  // As large as softmax makes them.
  const double usual = 2.0 / static_cast<double>(m.shape.dims[1]);
  const bool is_log = m.algorithm == CUDNN_SOFTMAX_LOG;
  void *const y = is_log ? s.In("y", m.shape, -9, -5) : s.In("y", m.shape, 0, usual),
              *const dy = s.In("dy", m.shape), *const dx = s.Out("dx", m.shape);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle()] {
    return backward(handle, algorithm, mode, one, desc, y, desc, dy, zero, desc, dx);
  };
}

struct Norm {
  const char* name;
  cudnnBatchNormMode_t mode;
  Shape x;
  enum : uint8_t { kPlain, kEx, kNormalization } kind = kPlain;
  cudnnBatchNormOps_t ops = CUDNN_BATCHNORM_OPS_BN;

  Shape Parameters() const {
    Shape shape = {kF32, x.dims};
    shape.dims[0] = 1;
    if (mode != CUDNN_BATCHNORM_PER_ACTIVATION)
      std::fill(shape.dims.begin() + 2, shape.dims.end(), 1);
    return shape;
  }
  bool adds() const { return ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION; }
};
constexpr auto kSpatial = CUDNN_BATCHNORM_SPATIAL, kPersistent = CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
               kPerActivation = CUDNN_BATCHNORM_PER_ACTIVATION;
const Norm kNorms[] = {
    {"spatial/64x256x56x56/f32/nchw", kSpatial, {kF32, {64, 256, 56, 56}}},
    {"spatial/128x1024x14x14/f32/nchw", kSpatial, {kF32, {128, 1024, 14, 14}}},
    {"spatial/256x64x112x112/f16/nhwc", kPersistent, {kF16, {256, 64, 112, 112}, true}},
    {"spatial/64x256x56x56/f32/nhwc", kSpatial, {kF32, {64, 256, 56, 56}, true}},
    {"per_activation/256x64x28x28/f32/nchw", kPerActivation, {kF32, {256, 64, 28, 28}}},
    {"relu/256x256x56x56/f16/nhwc",
     kPersistent,
     {kF16, {256, 256, 56, 56}, true},
     Norm::kEx,
     CUDNN_BATCHNORM_OPS_BN_ACTIVATION},
    {"add_relu/256x256x56x56/f16/nhwc",
     kPersistent,
     {kF16, {256, 256, 56, 56}, true},
     Norm::kEx,
     CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION},
    {"normalization/256x1024x14x14/f16/nhwc",
     kPersistent,
     {kF16, {256, 1024, 14, 14}, true},
     Norm::kNormalization},
};

// Descriptors, memory and scratch of one call.
struct NormSetup {
  Norm n;
  cudnnTensorDescriptor_t xd, zd, pd;
  cudnnActivationDescriptor_t relu = nullptr;
  void *x, *z = nullptr, *y, *scale, *bias, *mean, *inverse;
  void *scratch, *kept;
  size_t scratch_bytes = 0, kept_bytes = 0;
  const float *one, *zero;
  cudnnHandle_t handle;

  NormSetup(CallSetup& s, const Norm& norm, bool back) : n(norm) {
    const Shape parameters = n.Parameters();
    xd = s.Tensor(n.x);
    pd = s.Tensor(parameters);
    zd = n.adds() ? xd : nullptr;
    if (n.ops != CUDNN_BATCHNORM_OPS_BN) {
      relu = s.New<cudnnActivationDescriptor_t>("Activation");
      KILN_DO(s, cudnnSetActivationDescriptor, relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN,
              0.0);
    }
    x = s.In("x", n.x);
    if (n.adds()) z = back ? s.Aside("z", n.x) : s.In("z", n.x);
    y = back ? s.Aside("y", n.x) : s.Out("y", n.x);
    scale = s.In("scale", parameters, 0.5, 1.5);
    bias = s.In("bias", parameters);
    mean = back ? s.Aside("mean", parameters) : s.Out("mean", parameters);
    inverse = back ? s.Aside("inverse", parameters, 0.5, 1.5) : s.Out("inverse", parameters);
    size_t more = 0;
    KILN_DO(s, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, s.handle(), n.mode, n.ops,
            xd, zd, xd, pd, relu, &scratch_bytes);
    KILN_DO(s, cudnnGetBatchNormalizationTrainingExReserveSpaceSize, s.handle(), n.mode, n.ops,
            relu, xd, &kept_bytes);
    KILN_DO(s, cudnnGetBatchNormalizationBackwardExWorkspaceSize, s.handle(), n.mode, n.ops, xd, xd,
            xd, zd, xd, pd, relu, &more);
    scratch_bytes = std::max(scratch_bytes, more);
    scratch = s.Own(scratch_bytes);
    kept = s.Own(kept_bytes);
    one = s.one();
    zero = s.zero();
    handle = s.handle();
  }
  cudnnNormOps_t norm_ops() const { return static_cast<cudnnNormOps_t>(n.ops); }
};

Launch MakeNormForward(CallSetup& s, const Norm& norm) {
  const NormSetup b(s, norm, false);
  void *const rm = s.Both("running_mean", norm.Parameters()), *const rv = s.Both("running_variance",
                                                                                 norm.Parameters(),
                                                                                 0.5, 1.5);
  const auto plain = KILN_FIND(s, cudnnBatchNormalizationForwardTraining);
  const auto ex = KILN_FIND(s, cudnnBatchNormalizationForwardTrainingEx);
  const auto named = KILN_FIND(s, cudnnNormalizationForwardTraining);
  if (norm.kind == Norm::kPlain)
    return [=] {
      return plain(b.handle, b.n.mode, b.one, b.zero, b.xd, b.x, b.xd, b.y, b.pd, b.scale, b.bias,
                   kFactor, rm, rv, kEpsilon, b.mean, b.inverse);
    };
  if (norm.kind == Norm::kEx)
    return [=] {
      return ex(b.handle, b.n.mode, b.n.ops, b.one, b.zero, b.xd, b.x, b.zd, b.z, b.xd, b.y, b.pd,
                b.scale, b.bias, kFactor, rm, rv, kEpsilon, b.mean, b.inverse, b.relu, b.scratch,
                b.scratch_bytes, b.kept, b.kept_bytes);
    };
  return [=] {
    return named(b.handle, CUDNN_NORM_PER_CHANNEL, b.norm_ops(), CUDNN_NORM_ALGO_PERSIST, b.one,
                 b.zero, b.xd, b.x, b.pd, b.scale, b.bias, kFactor, b.pd, rm, rv, kEpsilon, b.mean,
                 b.inverse, b.relu, b.zd, b.z, b.xd, b.y, b.scratch, b.scratch_bytes, b.kept,
                 b.kept_bytes, 1);
  };
}

Launch MakeNormBackward(CallSetup& s, const Norm& norm) {
  const NormSetup b(s, norm, true);
  const Shape parameters = norm.Parameters();
  void* const none = nullptr;
  KILN_DO(s, cudnnBatchNormalizationForwardTrainingEx, b.handle, norm.mode, norm.ops, b.one, b.zero,
          b.xd, b.x, b.zd, b.z, b.xd, b.y, b.pd, b.scale, b.bias, kFactor, none, none, kEpsilon,
          b.mean, b.inverse, b.relu, b.scratch, b.scratch_bytes, b.kept, b.kept_bytes);
  void *const dy = s.In("dy", norm.x), *const dx = s.Out("dx", norm.x),
              *const dz = norm.adds() ? s.Out("dz", norm.x) : nullptr,
              *const ds = s.Out("dscale", parameters), *const db = s.Out("dbias", parameters);
  const auto plain = KILN_FIND(s, cudnnBatchNormalizationBackward);
  const auto ex = KILN_FIND(s, cudnnBatchNormalizationBackwardEx);
  const auto named = KILN_FIND(s, cudnnNormalizationBackward);
  if (norm.kind == Norm::kPlain)
    return [=] {
      return plain(b.handle, b.n.mode, b.one, b.zero, b.one, b.zero, b.xd, b.x, b.xd, dy, b.xd, dx,
                   b.pd, b.scale, ds, db, kEpsilon, b.mean, b.inverse);
    };
  if (norm.kind == Norm::kEx)
    return [=] {
      return ex(b.handle, b.n.mode, b.n.ops, b.one, b.zero, b.one, b.zero, b.xd, b.x, b.xd, b.y,
                b.xd, dy, b.zd, dz, b.xd, dx, b.pd, b.scale, b.bias, ds, db, kEpsilon, b.mean,
                b.inverse, b.relu, b.scratch, b.scratch_bytes, b.kept, b.kept_bytes);
    };
  return [=] {
    return named(b.handle, CUDNN_NORM_PER_CHANNEL, b.norm_ops(), CUDNN_NORM_ALGO_PERSIST, b.one,
                 b.zero, b.one, b.zero, b.xd, b.x, b.xd, b.y, b.xd, dy, b.zd, dz, b.xd, dx, b.pd,
                 b.scale, b.bias, ds, db, kEpsilon, b.pd, b.mean, b.inverse, b.relu, b.scratch,
                 b.scratch_bytes, b.kept, b.kept_bytes, 1);
  };
}

Launch MakeInference(CallSetup& s, const Shape& shape) {
  const Shape parameters = {kF32, {1, shape.dims[1], 1, 1}};
  const auto xd = s.Tensor(shape), pd = s.Tensor(parameters);
  const auto infer = KILN_FIND(s, cudnnBatchNormalizationForwardInference);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle(), x = s.In("x", shape),
          y = s.Out("y", shape), scale = s.In("scale", parameters), bias = s.In("bias", parameters),
          mean = s.In("mean", parameters), variance = s.In("variance", parameters, 0.5, 1.5)] {
    return infer(handle, kSpatial, one, zero, xd, x, xd, y, pd, scale, bias, mean, variance,
                 kEpsilon);
  };
}

}  // namespace

std::vector<LegacyCall> NormCalls() {
  std::vector<LegacyCall> calls;
  for (const Softmax& m : kSoftmaxes)
    for (const bool back : {false, true})
      calls.push_back({fmt::format("softmax/{}/{}", back ? "backward" : "forward", m.name),
                       [m, back](CallSetup& s) { return MakeSoftmax(s, m, back); }});
  for (const Norm& n : kNorms) {
    calls.push_back({fmt::format("batch_norm/forward/{}", n.name),
                     [n](CallSetup& s) { return MakeNormForward(s, n); }, false, kSums});
    calls.push_back({fmt::format("batch_norm/backward/{}", n.name),
                     [n](CallSetup& s) { return MakeNormBackward(s, n); }, false, kSums});
  }
  const std::pair<const char*, Shape> inferences[] = {
      {"256x64x112x112/f16/nhwc", {kF16, {256, 64, 112, 112}, true}},
      {"64x256x56x56/f32/nchw", {kF32, {64, 256, 56, 56}}}};
  for (const auto& [name, shape] : inferences)
    calls.push_back({fmt::format("batch_norm/inference/{}", name),
                     [shape = shape](CallSetup& s) { return MakeInference(s, shape); }});
  return calls;
}

}  // namespace kiln::bench
