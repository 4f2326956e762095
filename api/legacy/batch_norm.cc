// Batch normalization with a workspace, and in inference, which needs none. Reference 3.2.3, 4.1.3,
// 4.1.5 and 4.1.8 to 4.1.10.
//
// Per activation, x is taken for [N, C*H*W, 1, 1], whose statistics are those of a channel. What is
// reserved from forward to backward is nothing: the gradient of the activation comes from y.
#include "api/legacy/batch_norm.h"

#include <algorithm>
#include <optional>

#include "api/legacy/call.h"
#include "api/legacy/functions.h"
#include "api/legacy/modes.h"
#include "ir/graph/norm.h"
#include "ir/graph/ops.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::kAbsent;
using graph::PointwiseMode;
using graph::TensorId;

constexpr const char* kForward = "cudnnBatchNormalizationForwardTrainingEx";
constexpr const char* kBackward = "cudnnBatchNormalizationBackwardEx";

constexpr int64_t kPartBytes = 256;  // what a part of the workspace is aligned to

struct Modes {
  int32_t mode, ops;
};

bool Adds(const Modes& m) { return m.ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION; }
bool Activates(const Modes& m) { return m.ops != CUDNN_BATCHNORM_OPS_BN; }

Status CheckModes(const Modes& m) {
  RETURN_IF_ERROR(CheckEnum(m.mode, CUDNN_BATCHNORM_SPATIAL_PERSISTENT, "cudnnBatchNormMode_t"));
  return CheckEnum(m.ops, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, "cudnnBatchNormOps_t");
}

Status CheckActivation(const Modes& m, void* desc) {
  if (!Activates(m)) return {};
  ASSIGN_OR_RETURN(const ActivationDesc* activation, Get<ActivationDesc>(desc));
  if (activation->mode == CUDNN_ACTIVATION_RELU) return {};
  return Status::Error(Code::kNotSupported, "activation {}; RELU is possible", activation->mode);
}

Status CheckEpsilon(double epsilon) {
  if (epsilon >= CUDNN_BN_MIN_EPSILON) return {};
  return Status::Error(Code::kBadParam, "epsilon is {}; the least is {}", epsilon,
                       CUDNN_BN_MIN_EPSILON);
}

Status CheckPair(const void* one, const void* other, std::string_view what) {
  if ((one == nullptr) == (other == nullptr)) return {};
  return Status::Error(Code::kBadParam, "one of {} is NULL, the other is not", what);
}

// x, and the tensors of its extents that the call has.
Status CheckData(const TensorDesc& x, std::initializer_list<const TensorDesc*> others) {
  RETURN_IF_ERROR(CheckSet(x, "xDesc"));
  if (x.rank != 4 && x.rank != 5)
    return Status::Error(Code::kBadParam, "{} dims; 4 and 5 are possible", x.rank);
  for (const TensorDesc* other : others) {
    if (other == nullptr) continue;
    RETURN_IF_ERROR(CheckSameDims(x, *other));
    RETURN_IF_ERROR(CheckSameType(x, *other));
  }
  return {};
}

// Scale, bias and statistics: one number a channel, or an activation.
Status CheckParameters(const Modes& m, const TensorDesc& x, const TensorDesc& parameters) {
  Lengths dims = x.dims;
  dims[0] = 1;
  if (m.mode != CUDNN_BATCHNORM_PER_ACTIVATION)
    std::fill(dims.begin() + 2, dims.begin() + x.rank, 1);
  if (parameters.rank != x.rank || parameters.dims != dims)
    return Status::Error(Code::kBadParam, "parameters {} for {}", Text(parameters), Text(x));
  const int wanted = x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  if (parameters.type != wanted)
    return Status::Error(Code::kBadParam, "parameters {} for {}", Text(parameters), Text(x));
  return {};
}

// How a call's tensors are seen while they are normalised.
class Shapes {
 public:
  Shapes(CallGraph& g, const Modes& m, const TensorDesc& x)
      : g_(g), compute_(ComputeType(x)), dims_(x.dims.begin(), x.dims.begin() + x.rank) {
    seen_ = dims_;
    if (m.mode == CUDNN_BATCHNORM_PER_ACTIVATION) {
      seen_.assign(dims_.size(), 1);
      seen_[0] = dims_[0];
      seen_[1] = NumElements(dims_) / dims_[0];
    }
    statistics_.assign(dims_.size(), 1);
    statistics_[1] = seen_[1];
  }
  DType compute() const { return compute_; }
  const Dims& seen() const { return seen_; }
  const Dims& statistics() const { return statistics_; }
  double count() const { return static_cast<double>(NumElements(seen_) / seen_[1]); }

  Result<TensorId> Read(const Operand& operand, const Dims& as) {
    ASSIGN_OR_RETURN(const TensorId id, g_.Read(operand));
    return View(id, as);
  }
  Status Write(TensorId value, const Operand& operand, const Blend& blend = {}) {
    const Lengths& dims = operand.desc->dims;
    return g_.Write(View(value, Dims(dims.begin(), dims.begin() + operand.desc->rank)), operand,
                    blend);
  }
  // A result of a norm, of the compute type.
  TensorId Virtual(const char* name, const Dims& dims) { return g_.Virtual(name, dims, compute_); }

 private:
  // In row-major order: a reshape by itself keeps what lies where in memory.
  TensorId View(TensorId id, const Dims& dims) {
    if (g_.DimsOf(id) == dims) return id;
    const graph::Tensor& tensor = g_.builder().graph()[id];
    const DType dtype = tensor.dtype, moving = kiln::MovingType(dtype);
    if (tensor.strides != PackedStrides(tensor.dims))
      id = g_.builder().Apply(
          GraphOp::kPointwise, {id}, graph::PointwiseAttrs{.mode = PointwiseMode::kIdentity},
          {.dtype = dtype, .compute = moving, .strides = PackedStrides(tensor.dims)});
    return g_.builder().Apply(
        GraphOp::kReshape, {id}, graph::ReshapeAttrs{},
        {.dtype = dtype, .compute = moving, .dims = dims, .strides = PackedStrides(dims)});
  }

  CallGraph& g_;
  const DType compute_;
  Dims dims_, seen_, statistics_;
};

// ---- forward
// -------------------------------------------------------------------------------------

// Operands without a slot are not there.
struct ForwardOperands {
  Operand x, z, y, scale, bias, running_mean, running_variance, next_mean, next_variance, mean,
      inv_variance;
  Scalar epsilon, factor;
  Blend blend;
};

Status MakeForward(CallGraph& g, const Modes& m, const ForwardOperands& o) {
  RETURN_IF_ERROR(CheckData(*o.x.desc, {o.z.desc, o.y.desc}));
  RETURN_IF_ERROR(CheckParameters(m, *o.x.desc, *o.scale.desc));
  Shapes shapes(g, m, *o.x.desc);
  const auto rank = static_cast<int64_t>(shapes.seen().size());
  ASSIGN_OR_RETURN(const TensorId x, shapes.Read(o.x, shapes.seen()));
  ASSIGN_OR_RETURN(const TensorId scale, shapes.Read(o.scale, shapes.statistics()));
  ASSIGN_OR_RETURN(const TensorId bias, shapes.Read(o.bias, shapes.statistics()));
  const bool runs = o.running_mean.slot >= 0, saves = o.mean.slot >= 0;
  TensorId running_mean = kAbsent, running_variance = kAbsent;
  if (runs) {
    ASSIGN_OR_RETURN(running_mean, shapes.Read(o.running_mean, shapes.statistics()));
    ASSIGN_OR_RETURN(running_variance, shapes.Read(o.running_variance, shapes.statistics()));
  }
  const TensorId y = shapes.Virtual("bn", shapes.seen());
  const TensorId mean = shapes.Virtual("mean", shapes.statistics()),
                 inv_variance = shapes.Virtual("inv_variance", shapes.statistics());
  graph::Node norm = {.op = GraphOp::kNormForward,
                      .inputs = {x, kAbsent, kAbsent, scale, bias, g.Read(o.epsilon, rank)},
                      .outputs = {y, mean, inv_variance},
                      .compute = shapes.compute(),
                      .attrs = graph::NormForwardAttrs{.mode = graph::NormMode::kBatch}};
  TensorId next_mean = kAbsent, next_variance = kAbsent;
  if (runs) {
    next_mean = shapes.Virtual("next_mean", shapes.statistics());
    next_variance = shapes.Virtual("next_variance", shapes.statistics());
    norm.inputs.insert(norm.inputs.end(), {g.Read(o.factor, rank), running_mean, running_variance});
    norm.outputs.insert(norm.outputs.end(), {next_mean, next_variance});
  }
  g.builder().graph().AddNode(std::move(norm));
  if (runs) {
    RETURN_IF_ERROR(shapes.Write(next_mean, o.next_mean));
    RETURN_IF_ERROR(shapes.Write(next_variance, o.next_variance));
  }
  if (saves) {
    RETURN_IF_ERROR(shapes.Write(mean, o.mean));
    RETURN_IF_ERROR(shapes.Write(inv_variance, o.inv_variance));
  }
  TensorId result = y;
  if (Adds(m)) {
    ASSIGN_OR_RETURN(const TensorId z, shapes.Read(o.z, shapes.seen()));
    result = g.Pointwise(PointwiseMode::kAdd, {result, z}, shapes.compute());
  }
  if (Activates(m)) result = g.Pointwise(PointwiseMode::kReluFwd, {result}, shapes.compute());
  return shapes.Write(result, o.y, o.blend);
}

// ---- backward
// ------------------------------------------------------------------------------------

struct BackwardOperands {
  Operand x, y, dy, dz, dx, scale, dscale, dbias, mean, inv_variance;
  Scalar epsilon;
  Blend data, scale_blend, bias_blend;
};

// 1 / sqrt(variance + epsilon) of x, and its mean, where the forward direction did not save them.
void Statistics(CallGraph& g, const Shapes& shapes, TensorId x, TensorId epsilon, TensorId& mean,
                TensorId& inv_variance) {
  const graph::ResultOptions options = {.dtype = shapes.compute(), .compute = shapes.compute()};
  mean = g.builder().Reduction(graph::ReductionMode::kAvg, x, shapes.statistics(), options);
  const TensorId apart = g.Pointwise(PointwiseMode::kSub, {x, mean}, shapes.compute());
  const TensorId square = g.Pointwise(PointwiseMode::kMul, {apart, apart}, shapes.compute());
  const TensorId variance =
      g.builder().Reduction(graph::ReductionMode::kAvg, square, shapes.statistics(), options);
  inv_variance = g.Pointwise(
      PointwiseMode::kRsqrt,
      {g.Pointwise(PointwiseMode::kAdd, {variance, epsilon}, shapes.compute())}, shapes.compute());
}

Status MakeBackward(CallGraph& g, const Modes& m, const BackwardOperands& o) {
  RETURN_IF_ERROR(CheckData(*o.x.desc, {o.y.desc, o.dy.desc, o.dz.desc, o.dx.desc}));
  RETURN_IF_ERROR(CheckParameters(m, *o.x.desc, *o.scale.desc));
  Shapes shapes(g, m, *o.x.desc);
  const auto rank = static_cast<int64_t>(shapes.seen().size());
  ASSIGN_OR_RETURN(const TensorId x, shapes.Read(o.x, shapes.seen()));
  ASSIGN_OR_RETURN(TensorId dy, shapes.Read(o.dy, shapes.seen()));
  ASSIGN_OR_RETURN(const TensorId scale, shapes.Read(o.scale, shapes.statistics()));
  if (Activates(m)) {
    ASSIGN_OR_RETURN(const TensorId y, shapes.Read(o.y, shapes.seen()));
    dy = g.Pointwise(PointwiseMode::kReluBwd, {dy, y}, shapes.compute());
  }
  if (Adds(m)) RETURN_IF_ERROR(shapes.Write(dy, o.dz));
  TensorId mean = kAbsent, inv_variance = kAbsent;
  if (o.mean.slot >= 0) {
    ASSIGN_OR_RETURN(mean, shapes.Read(o.mean, shapes.statistics()));
    ASSIGN_OR_RETURN(inv_variance, shapes.Read(o.inv_variance, shapes.statistics()));
  } else {
    Statistics(g, shapes, x, g.Read(o.epsilon, rank), mean, inv_variance);
  }
  const TensorId dx = shapes.Virtual("dbn", shapes.seen()),
                 dscale = shapes.Virtual("dscale", shapes.statistics()),
                 dbias = shapes.Virtual("dbias", shapes.statistics());
  g.builder().graph().AddNode({.op = GraphOp::kNormBackward,
                               .inputs = {x, dy, mean, inv_variance, scale},
                               .outputs = {dx, dscale, dbias},
                               .compute = shapes.compute(),
                               .attrs = graph::NormBackwardAttrs{.mode = graph::NormMode::kBatch}});
  RETURN_IF_ERROR(shapes.Write(dscale, o.dscale, o.scale_blend));
  RETURN_IF_ERROR(shapes.Write(dbias, o.dbias, o.bias_blend));
  return shapes.Write(dx, o.dx, o.data);
}

// A descriptor that only some operations have.
Result<const TensorDesc*> Optional(void* desc, bool wanted) {
  if (!wanted) return static_cast<const TensorDesc*>(nullptr);
  ASSIGN_OR_RETURN(const TensorDesc* tensor, Get<TensorDesc>(desc));
  return tensor;
}

// The descriptors of a call, those of operations that it lacks null.
struct ForwardDescs {
  Modes modes;
  const TensorDesc *x, *z, *y, *parameters;
};
Result<ForwardDescs> ForwardDescsOf(const Modes& modes, void* activation, void* x, void* z, void* y,
                                    void* parameters) {
  RETURN_IF_ERROR(CheckModes(modes));
  RETURN_IF_ERROR(CheckActivation(modes, activation));
  ForwardDescs d = {.modes = modes};
  ASSIGN_OR_RETURN(d.x, Get<TensorDesc>(x));
  ASSIGN_OR_RETURN(d.z, Optional(z, Adds(modes)));
  ASSIGN_OR_RETURN(d.y, Get<TensorDesc>(y));
  ASSIGN_OR_RETURN(d.parameters, Get<TensorDesc>(parameters));
  return d;
}

struct BackwardDescs {
  Modes modes;
  const TensorDesc *x, *y, *dy, *dz, *dx, *parameters;
};
Result<BackwardDescs> BackwardDescsOf(const Modes& modes, void* activation, void* x, void* y,
                                      void* dy, void* dz, void* dx, void* parameters) {
  RETURN_IF_ERROR(CheckModes(modes));
  RETURN_IF_ERROR(CheckActivation(modes, activation));
  BackwardDescs d = {.modes = modes};
  ASSIGN_OR_RETURN(d.x, Get<TensorDesc>(x));
  ASSIGN_OR_RETURN(d.y, Optional(y, Activates(modes)));
  ASSIGN_OR_RETURN(d.dy, Get<TensorDesc>(dy));
  ASSIGN_OR_RETURN(d.dz, Optional(dz, Adds(modes)));
  ASSIGN_OR_RETURN(d.dx, Get<TensorDesc>(dx));
  ASSIGN_OR_RETURN(d.parameters, Get<TensorDesc>(parameters));
  return d;
}

const void* OneOf(const TensorDesc& type_of, bool one) {
  static constexpr double kDoubles[] = {0, 1};
  static constexpr float kFloats[] = {0, 1};
  return ComputeType(type_of) == DType::kF64 ? static_cast<const void*>(&kDoubles[one])
                                             : &kFloats[one];
}

}  // namespace

Status RunInference(void* handle, const NormInference& c) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ForwardDescs d,
                   ForwardDescsOf({.mode = c.mode, .ops = c.ops}, c.activation_desc, c.x_desc,
                                  c.z_desc, c.y_desc, c.parameter_desc));
  RETURN_IF_ERROR(CheckEpsilon(c.epsilon));
  Call call(*h, c.function);
  call.Add(d.modes);
  const Operand x = call.Memory(*d.x, c.x), y = call.Memory(*d.y, c.y);
  const Operand scale = call.Memory(*d.parameters, c.scale),
                bias = call.Memory(*d.parameters, c.bias);
  const Operand mean = call.Memory(*d.parameters, c.mean),
                variance = call.Memory(*d.parameters, c.variance);
  const Operand z = d.z == nullptr ? Operand() : call.Memory(*d.z, c.z);
  const Scalar epsilon = call.Double(&c.epsilon);
  ASSIGN_OR_RETURN(const Blend blend, call.Scaling(c.alpha, c.beta, y));
  return call.Run({}, [&](CallGraph& g) -> Status {
    RETURN_IF_ERROR(CheckData(*d.x, {d.z, d.y}));
    RETURN_IF_ERROR(CheckParameters(d.modes, *d.x, *d.parameters));
    const DType compute = ComputeType(*d.x);
    // value op operand, all in the compute type.
    const auto apply = [&](PointwiseMode op, TensorId value,
                           const Operand& operand) -> Result<TensorId> {
      ASSIGN_OR_RETURN(const TensorId other, g.Read(operand));
      return g.Pointwise(op, {value, other}, compute);
    };
    ASSIGN_OR_RETURN(TensorId value, g.Read(x));
    ASSIGN_OR_RETURN(value, apply(PointwiseMode::kSub, value, mean));
    ASSIGN_OR_RETURN(const TensorId spread,
                     apply(PointwiseMode::kAdd, g.Read(epsilon, d.x->rank), variance));
    const TensorId inverse = g.Pointwise(PointwiseMode::kRsqrt, {spread}, compute);
    value = g.Pointwise(PointwiseMode::kMul, {value, inverse}, compute);
    ASSIGN_OR_RETURN(value, apply(PointwiseMode::kMul, value, scale));
    ASSIGN_OR_RETURN(value, apply(PointwiseMode::kAdd, value, bias));
    if (Adds(d.modes)) {
      ASSIGN_OR_RETURN(value, apply(PointwiseMode::kAdd, value, z));
    }
    if (Activates(d.modes)) value = g.Pointwise(PointwiseMode::kReluFwd, {value}, compute);
    return g.Write(value, y, blend);
  });
}

Status BatchNormalizationForwardInference(void* handle, int mode, const void* alpha,
                                          const void* beta, void* x_desc, const void* x,
                                          void* y_desc, void* y, void* parameter_desc,
                                          const void* scale, const void* bias, const void* mean,
                                          const void* variance, double epsilon) {
  return RunInference(handle, {.function = "cudnnBatchNormalizationForwardInference",
                               .mode = mode,
                               .ops = CUDNN_BATCHNORM_OPS_BN,
                               .alpha = alpha,
                               .beta = beta,
                               .x_desc = x_desc,
                               .x = x,
                               .y_desc = y_desc,
                               .y = y,
                               .parameter_desc = parameter_desc,
                               .scale = scale,
                               .bias = bias,
                               .mean = mean,
                               .variance = variance,
                               .epsilon = epsilon});
}

Status GetBatchNormalizationForwardTrainingExWorkspaceSize(void* handle, int mode, int ops,
                                                           void* x_desc, void* z_desc, void* y_desc,
                                                           void* parameter_desc,
                                                           void* activation_desc, size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  ASSIGN_OR_RETURN(const ForwardDescs d, ForwardDescsOf({.mode = mode, .ops = ops}, activation_desc,
                                                        x_desc, z_desc, y_desc, parameter_desc));
  RETURN_IF_ERROR(CheckData(*d.x, {d.z, d.y}));
  Call call(*h, kForward);
  call.Add(d.modes);
  call.Add(true);
  call.Add(true);
  ForwardOperands o = {.x = call.Memory(*d.x), .y = call.Memory(*d.y)};
  if (d.z != nullptr) o.z = call.Memory(*d.z);
  for (Operand* p : {&o.scale, &o.bias, &o.running_mean, &o.running_variance, &o.next_mean,
                     &o.next_variance, &o.mean, &o.inv_variance})
    *p = call.Memory(*d.parameters);
  o.epsilon = call.Double(nullptr);
  o.factor = call.Double(nullptr);
  ASSIGN_OR_RETURN(o.blend, call.Scaling(OneOf(*d.x, true), OneOf(*d.x, false), o.y));
  ASSIGN_OR_RETURN(const int64_t wanted,
                   call.WorkspaceBytes([&](CallGraph& g) { return MakeForward(g, d.modes, o); }));
  *bytes = static_cast<size_t>(wanted);
  return {};
}

Status BatchNormalizationForwardTrainingEx(void* handle, int mode, int ops, const void* alpha,
                                           const void* beta, void* x_desc, const void* x,
                                           void* z_desc, const void* z, void* y_desc, void* y,
                                           void* parameter_desc, const void* scale,
                                           const void* bias, double factor, void* running_mean,
                                           void* running_variance, double epsilon, void* mean,
                                           void* inv_variance, void* activation_desc,
                                           void* workspace, size_t workspace_bytes, void*, size_t) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ForwardDescs d, ForwardDescsOf({.mode = mode, .ops = ops}, activation_desc,
                                                        x_desc, z_desc, y_desc, parameter_desc));
  RETURN_IF_ERROR(CheckEpsilon(epsilon));
  RETURN_IF_ERROR(CheckPair(running_mean, running_variance, "the running statistics"));
  RETURN_IF_ERROR(CheckPair(mean, inv_variance, "the saved statistics"));
  const bool runs = running_mean != nullptr, saves = mean != nullptr;
  Call call(*h, kForward);
  call.Add(d.modes);
  call.Add(runs);
  call.Add(saves);
  ForwardOperands o = {.x = call.Memory(*d.x, x), .y = call.Memory(*d.y, y)};
  if (d.z != nullptr) o.z = call.Memory(*d.z, z);
  o.scale = call.Memory(*d.parameters, scale);
  o.bias = call.Memory(*d.parameters, bias);
  if (runs) {
    o.running_mean = call.Memory(*d.parameters, running_mean);
    o.running_variance = call.Memory(*d.parameters, running_variance);
    o.next_mean = call.Memory(*d.parameters, running_mean);
    o.next_variance = call.Memory(*d.parameters, running_variance);
  }
  if (saves) {
    o.mean = call.Memory(*d.parameters, mean);
    o.inv_variance = call.Memory(*d.parameters, inv_variance);
  }
  o.epsilon = call.Double(&epsilon);
  o.factor = call.Double(&factor);
  ASSIGN_OR_RETURN(o.blend, call.Scaling(alpha, beta, o.y));
  return call.Run(
      {.data = workspace, .bytes = static_cast<int64_t>(workspace_bytes), .is_parameter = true},
      [&](CallGraph& g) { return MakeForward(g, d.modes, o); });
}

Status GetBatchNormalizationBackwardExWorkspaceSize(void* handle, int mode, int ops, void* x_desc,
                                                    void* y_desc, void* dy_desc, void* dz_desc,
                                                    void* dx_desc, void* parameter_desc,
                                                    void* activation_desc, size_t* bytes) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  ASSIGN_OR_RETURN(const BackwardDescs d,
                   BackwardDescsOf({.mode = mode, .ops = ops}, activation_desc, x_desc, y_desc,
                                   dy_desc, dz_desc, dx_desc, parameter_desc));
  RETURN_IF_ERROR(CheckData(*d.x, {d.y, d.dy, d.dz, d.dx}));
  Call call(*h, kBackward);
  call.Add(d.modes);
  call.Add(true);
  BackwardOperands o = {.x = call.Memory(*d.x)};
  if (d.y != nullptr) o.y = call.Memory(*d.y);
  o.dy = call.Memory(*d.dy);
  if (d.dz != nullptr) o.dz = call.Memory(*d.dz);
  o.dx = call.Memory(*d.dx);
  for (Operand* p : {&o.scale, &o.dscale, &o.dbias, &o.mean, &o.inv_variance})
    *p = call.Memory(*d.parameters);
  o.epsilon = call.Double(nullptr);
  ASSIGN_OR_RETURN(o.data, call.Scaling(OneOf(*d.x, true), OneOf(*d.x, false), o.dx));
  ASSIGN_OR_RETURN(o.scale_blend, call.Scaling(OneOf(*d.x, true), OneOf(*d.x, false), o.dscale));
  ASSIGN_OR_RETURN(o.bias_blend, call.Scaling(OneOf(*d.x, true), OneOf(*d.x, false), o.dbias));
  ASSIGN_OR_RETURN(const int64_t wanted,
                   call.WorkspaceBytes([&](CallGraph& g) { return MakeBackward(g, d.modes, o); }));
  // A call without saved statistics has to keep them, and what they are made of.
  *bytes = static_cast<size_t>(
      wanted + 4 * (Span(*d.parameters) * ElementBytes(d.parameters->type) + kPartBytes));
  return {};
}

Status BatchNormalizationBackwardEx(void* handle, int mode, int ops, const void* alpha_data,
                                    const void* beta_data, const void* alpha_parameters,
                                    const void* beta_parameters, void* x_desc, const void* x,
                                    void* y_desc, const void* y, void* dy_desc, const void* dy,
                                    void* dz_desc, void* dz, void* dx_desc, void* dx,
                                    void* parameter_desc, const void* scale, const void*,
                                    void* dscale, void* dbias, double epsilon, const void* mean,
                                    const void* inv_variance, void* activation_desc,
                                    void* workspace, size_t workspace_bytes, void*, size_t) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const BackwardDescs d,
                   BackwardDescsOf({.mode = mode, .ops = ops}, activation_desc, x_desc, y_desc,
                                   dy_desc, dz_desc, dx_desc, parameter_desc));
  RETURN_IF_ERROR(CheckEpsilon(epsilon));
  RETURN_IF_ERROR(CheckPair(mean, inv_variance, "the saved statistics"));
  const bool saved = mean != nullptr;
  Call call(*h, kBackward);
  call.Add(d.modes);
  call.Add(saved);
  BackwardOperands o = {.x = call.Memory(*d.x, x)};
  if (d.y != nullptr) o.y = call.Memory(*d.y, y);
  o.dy = call.Memory(*d.dy, dy);
  if (d.dz != nullptr) o.dz = call.Memory(*d.dz, dz);
  o.dx = call.Memory(*d.dx, dx);
  o.scale = call.Memory(*d.parameters, scale);
  o.dscale = call.Memory(*d.parameters, dscale);
  o.dbias = call.Memory(*d.parameters, dbias);
  if (saved) {
    o.mean = call.Memory(*d.parameters, mean);
    o.inv_variance = call.Memory(*d.parameters, inv_variance);
  }
  o.epsilon = call.Double(&epsilon);
  ASSIGN_OR_RETURN(o.data, call.Scaling(alpha_data, beta_data, o.dx));
  ASSIGN_OR_RETURN(o.scale_blend, call.Scaling(alpha_parameters, beta_parameters, o.dscale));
  ASSIGN_OR_RETURN(o.bias_blend, call.Scaling(alpha_parameters, beta_parameters, o.dbias));
  return call.Run(
      {.data = workspace, .bytes = static_cast<int64_t>(workspace_bytes), .is_parameter = true},
      [&](CallGraph& g) { return MakeBackward(g, d.modes, o); });
}

Status GetBatchNormalizationTrainingExReserveSpaceSize(void* handle, int mode, int ops,
                                                       void* activation_desc, void* x_desc,
                                                       size_t* bytes) {
  RETURN_IF_ERROR(HandleFrom(handle).status());
  RETURN_IF_ERROR(NotNull(bytes, "the place for the size"));
  const Modes modes = {.mode = mode, .ops = ops};
  RETURN_IF_ERROR(CheckModes(modes));
  RETURN_IF_ERROR(CheckActivation(modes, activation_desc));
  ASSIGN_OR_RETURN(const TensorDesc* x, Get<TensorDesc>(x_desc));
  RETURN_IF_ERROR(CheckData(*x, {}));
  *bytes = 0;
  return {};
}

}  // namespace kiln::api::legacy
