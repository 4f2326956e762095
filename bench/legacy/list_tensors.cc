// Operations on tensors, reductions, activations, dropout, transforms, gradients of bias.
#include <fmt/format.h>

#include "bench/legacy/call.h"

namespace kiln::bench {
namespace {

constexpr auto kF16 = CUDNN_DATA_HALF, kF32 = CUDNN_DATA_FLOAT;

const Shape kLarge = {kF32, {64, 256, 56, 56}}, kHalf = {kF16, {128, 256, 56, 56}, true};

// ---- on tensors

struct Op {
  const char* name;
  cudnnOpTensorOp_t op;
  Shape a, b;
};
const Op kOps[] = {
    {"add/f32", CUDNN_OP_TENSOR_ADD, kLarge, kLarge},
    {"add/f16/nhwc", CUDNN_OP_TENSOR_ADD, kHalf, kHalf},
    {"mul_channel/f16/nhwc", CUDNN_OP_TENSOR_MUL, kHalf, {kF16, {1, 256, 1, 1}, true}},
    {"mul_channel/f32", CUDNN_OP_TENSOR_MUL, kLarge, {kF32, {1, 256, 1, 1}}},
    {"add_image/f32", CUDNN_OP_TENSOR_ADD, kLarge, {kF32, {1, 256, 56, 56}}},
    {"min/f32", CUDNN_OP_TENSOR_MIN, kLarge, kLarge},
    {"max_number/f32", CUDNN_OP_TENSOR_MAX, kLarge, {kF32, {1, 1, 1, 1}}},
    {"sqrt/f32", CUDNN_OP_TENSOR_SQRT, kLarge, kLarge},
};
Launch MakeOp(CallSetup& s, const Op& op) {
  const auto desc = s.New<cudnnOpTensorDescriptor_t>("OpTensor");
  KILN_DO(s, cudnnSetOpTensorDescriptor, desc, op.op, kF32, CUDNN_PROPAGATE_NAN);
  const bool is_unary = op.op == CUDNN_OP_TENSOR_SQRT;
  const auto ad = s.Tensor(op.a), bd = s.Tensor(op.b);
  const auto function = KILN_FIND(s, cudnnOpTensor);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle(), a = s.In("a", op.a, 0.1, 1),
          b = is_unary ? s.Aside("b", op.b) : s.In("b", op.b), c = s.Out("c", op.a)] {
    return function(handle, desc, one, ad, a, one, bd, b, zero, ad, c);
  };
}

Launch MakeAdd(CallSetup& s, const Shape& shape) {
  const Shape bias = {shape.type, {1, shape.dims[1], 1, 1}, shape.channels_last};
  const auto ad = s.Tensor(bias), cd = s.Tensor(shape);
  const auto function = KILN_FIND(s, cudnnAddTensor);
  return [=, one = s.one(), handle = s.handle(), a = s.In("a", bias), c = s.Both("c", shape)] {
    return function(handle, one, ad, a, one, cd, c);
  };
}

Launch MakeScale(CallSetup& s) {
  static constexpr float kFactor = -1;
  const auto desc = s.Tensor(kLarge);
  const auto function = KILN_FIND(s, cudnnScaleTensor);
  return [=, handle = s.handle(), y = s.Both("y", kLarge)] {
    return function(handle, desc, y, &kFactor);
  };
}

Launch MakeSet(CallSetup& s) {
  static constexpr float kValue = 0.5;
  const auto desc = s.Tensor(kLarge);
  const auto function = KILN_FIND(s, cudnnSetTensor);
  return [=, handle = s.handle(), y = s.Out("y", kLarge)] {
    return function(handle, desc, y, &kValue);
  };
}

Launch MakeTransform(CallSetup& s, Shape x, bool to_last) {
  Shape y = x;
  x.channels_last = !to_last;
  y.channels_last = to_last;
  const auto xd = s.Tensor(x), yd = s.Tensor(y);
  const auto function = KILN_FIND(s, cudnnTransformTensor);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle(), from = s.In("x", x),
          to = s.Out("y", y)] { return function(handle, one, xd, from, zero, yd, to); };
}

// ---- reductions

struct Reduction {
  const char* name;
  cudnnReduceTensorOp_t op;
  Shape a;
  Dims c;
  bool finds = false;  // indices
};
const Reduction kReductions[] = {
    {"add_to_channel/f32", CUDNN_REDUCE_TENSOR_ADD, kLarge, {1, 256, 1, 1}},
    {"add_to_channel/f16/nhwc", CUDNN_REDUCE_TENSOR_ADD, kHalf, {1, 256, 1, 1}},
    {"avg_of_images/f32", CUDNN_REDUCE_TENSOR_AVG, kLarge, {64, 256, 1, 1}},
    {"add_over_batch/f32", CUDNN_REDUCE_TENSOR_ADD, kLarge, {1, 256, 56, 56}},
    {"norm2_of_all/f32", CUDNN_REDUCE_TENSOR_NORM2, kLarge, {1, 1, 1, 1}},
    {"amax_of_all/f16/nhwc", CUDNN_REDUCE_TENSOR_AMAX, kHalf, {1, 1, 1, 1}},
    {"max_found_in_rows/f32",
     CUDNN_REDUCE_TENSOR_MAX,
     {kF32, {16384, 4096, 1, 1}},
     {16384, 1, 1, 1},
     true},
    {"max_found_in_channels/f32", CUDNN_REDUCE_TENSOR_MAX, kLarge, {64, 1, 56, 56}, true},
};
Launch MakeReduction(CallSetup& s, const Reduction& r) {
  const auto desc = s.New<cudnnReduceTensorDescriptor_t>("ReduceTensor");
  KILN_DO(s, cudnnSetReduceTensorDescriptor, desc, r.op, kF32, CUDNN_PROPAGATE_NAN,
          r.finds ? CUDNN_REDUCE_TENSOR_FLATTENED_INDICES : CUDNN_REDUCE_TENSOR_NO_INDICES,
          CUDNN_32BIT_INDICES);
  const Shape c = {r.a.type, r.c, r.a.channels_last};
  const auto ad = s.Tensor(r.a), cd = s.Tensor(c);
  size_t index_bytes = 0, bytes = 0;
  KILN_DO(s, cudnnGetReductionIndicesSize, s.handle(), desc, ad, cd, &index_bytes);
  KILN_DO(s, cudnnGetReductionWorkspaceSize, s.handle(), desc, ad, cd, &bytes);
  const auto function = KILN_FIND(s, cudnnReduceTensor);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle(), indices = s.Own(index_bytes),
          workspace = s.Own(bytes), a = s.In("a", r.a), to = s.Out("c", c)] {
    return function(handle, desc, indices, index_bytes, workspace, bytes, one, ad, a, zero, cd, to);
  };
}

Launch MakeBiasGradient(CallSetup& s, const Shape& shape) {
  const Shape bias = {shape.type, {1, shape.dims[1], 1, 1}, shape.channels_last};
  const auto yd = s.Tensor(shape), bd = s.Tensor(bias);
  const auto function = KILN_FIND(s, cudnnConvolutionBackwardBias);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle(), dy = s.In("dy", shape),
          db = s.Out("db", bias)] { return function(handle, one, yd, dy, zero, bd, db); };
}

// ---- activations and dropout

struct Activation {
  const char* name;
  cudnnActivationMode_t mode;
  Shape shape;
};
const Activation kActivations[] = {
    {"relu/f32", CUDNN_ACTIVATION_RELU, kLarge},
    {"relu/f16/nhwc", CUDNN_ACTIVATION_RELU, kHalf},
    {"tanh/f32", CUDNN_ACTIVATION_TANH, kLarge},
    {"sigmoid/f16/nhwc", CUDNN_ACTIVATION_SIGMOID, kHalf},
    {"elu/f32", CUDNN_ACTIVATION_ELU, kLarge},
};
Launch MakeActivation(CallSetup& s, const Activation& a, bool back) {
  const auto activation = s.New<cudnnActivationDescriptor_t>("Activation");
  KILN_DO(s, cudnnSetActivationDescriptor, activation, a.mode, CUDNN_PROPAGATE_NAN, 1.0);
  const auto desc = s.Tensor(a.shape);
  void *const x = s.In("x", a.shape), *const y = back ? s.In("y", a.shape) : s.Out("y", a.shape);
  const auto forward = KILN_FIND(s, cudnnActivationForward);
  const auto backward = KILN_FIND(s, cudnnActivationBackward);
  if (!back)
    return [=, one = s.one(), zero = s.zero(), handle = s.handle()] {
      return forward(handle, activation, one, desc, x, zero, desc, y);
    };
  KILN_DO(s, cudnnActivationForward, s.handle(), activation, s.one(), desc, x, s.zero(), desc, y);
  return [=, one = s.one(), zero = s.zero(), handle = s.handle(), dy = s.In("dy", a.shape),
          dx = s.Out("dx", a.shape)] {
    return backward(handle, activation, one, desc, y, desc, dy, desc, x, zero, desc, dx);
  };
}

Launch MakeDropout(CallSetup& s, bool back) {
  const auto dropout = s.New<cudnnDropoutDescriptor_t>("Dropout");
  size_t state_bytes = 0, kept_bytes = 0;
  const auto desc = s.Tensor(kLarge);
  KILN_DO(s, cudnnDropoutGetStatesSize, s.handle(), &state_bytes);
  KILN_DO(s, cudnnDropoutGetReserveSpaceSize, desc, &kept_bytes);
  void *const states = s.Own(state_bytes), *const kept = s.Own(kept_bytes);
  KILN_DO(s, cudnnSetDropoutDescriptor, dropout, s.handle(), 0.4F, states, state_bytes, 42ULL);
  void* const x = back ? s.Aside("x", kLarge) : s.In("x", kLarge, 0.5, 1);
  void* const y = back ? s.Aside("y", kLarge) : s.Out("y", kLarge);
  const auto forward = KILN_FIND(s, cudnnDropoutForward);
  const auto backward = KILN_FIND(s, cudnnDropoutBackward);
  if (!back)
    return [=, handle = s.handle()] {
      return forward(handle, dropout, desc, x, desc, y, kept, kept_bytes);
    };
  KILN_DO(s, cudnnDropoutForward, s.handle(), dropout, desc, x, desc, y, kept, kept_bytes);
  return [=, handle = s.handle(), dy = s.In("dy", kLarge, 0.5, 1), dx = s.Out("dx", kLarge)] {
    return backward(handle, dropout, desc, dy, desc, dx, kept, kept_bytes);
  };
}

}  // namespace

std::vector<LegacyCall> TensorCalls() {
  std::vector<LegacyCall> calls;
  for (const Op& op : kOps)
    calls.push_back(
        {fmt::format("op_tensor/{}", op.name), [op](CallSetup& s) { return MakeOp(s, op); }});
  calls.push_back({"add_tensor/bias/f32", [](CallSetup& s) { return MakeAdd(s, kLarge); }});
  calls.push_back({"add_tensor/bias/f16/nhwc", [](CallSetup& s) { return MakeAdd(s, kHalf); }});
  calls.push_back({"scale_tensor/f32", MakeScale});
  calls.push_back({"set_tensor/f32", MakeSet});
  for (const Reduction& r : kReductions)
    calls.push_back(
        {fmt::format("reduce/{}", r.name), [r](CallSetup& s) { return MakeReduction(s, r); }});
  calls.push_back({"backward_bias/f32", [](CallSetup& s) { return MakeBiasGradient(s, kLarge); }});
  calls.push_back(
      {"backward_bias/f16/nhwc", [](CallSetup& s) { return MakeBiasGradient(s, kHalf); }});
  for (const Activation& a : kActivations)
    for (const bool back : {false, true})
      calls.push_back({fmt::format("activation/{}/{}", back ? "backward" : "forward", a.name),
                       [a, back](CallSetup& s) { return MakeActivation(s, a, back); }});
  for (const bool back : {false, true})
    calls.push_back({fmt::format("dropout/{}/f32", back ? "backward" : "forward"),
                     [back](CallSetup& s) { return MakeDropout(s, back); }, true});
  for (const auto& [name, shape] : {std::pair("f32", kLarge), {"f16", kHalf}})
    for (const bool to_last : {false, true})
      calls.push_back(
          {fmt::format("transform/{}/{}", to_last ? "nchw_to_nhwc" : "nhwc_to_nchw", name),
           [shape = shape, to_last](CallSetup& s) { return MakeTransform(s, shape, to_last); }});
  return calls;
}

}  // namespace kiln::bench
