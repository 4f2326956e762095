// Batch normalization. Reference 3.2.3, 4.1.2 to 4.1.5 and 4.1.8 to 4.1.10.
//
// Functions without a workspace have one block compute a channel, where others spread it.
// Per activation it is a layer norm along the images. What is
// reserved from forward to backward is nothing: the gradient of the activation comes from y.
#include "api/legacy/calls/batch_norm.h"

#include <algorithm>
#include <optional>

#include "api/legacy/descriptors/modes.h"
#include "api/legacy/functions.h"
#include "api/legacy/plans/call.h"
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

// Shapes says what is normalised together, and describes tensors of it.
class Shapes {
 public:
  Shapes(CallGraph& g, const Modes& m, const TensorDesc& x)
      : g_(g), compute_(ComputeType(x)), dims_(x.dims.begin(), x.dims.begin() + x.rank) {
    statistics_ = dims_;
    statistics_[0] = 1;
    is_layer_ = m.mode == CUDNN_BATCHNORM_PER_ACTIVATION;
    if (!is_layer_) std::fill(statistics_.begin() + 2, statistics_.end(), 1);
  }
  DType compute() const { return compute_; }
  const Dims& dims() const { return dims_; }
  const Dims& statistics() const { return statistics_; }
  // True if the graph's batch norm, whose statistics are those of channels, does not serve.
  bool is_layer() const { return is_layer_; }
  graph::NormMode mode() const {
    return is_layer_ ? graph::NormMode::kLayer : graph::NormMode::kBatch;
  }
  double count() const {
    return static_cast<double>(NumElements(dims_) / NumElements(statistics_));
  }

  // A result of a norm, of the compute type.
  TensorId Virtual(const char* name, const Dims& dims) { return g_.Virtual(name, dims, compute_); }
  TensorId Apply(PointwiseMode mode, TensorId a, TensorId b) const {
    return g_.Pointwise(mode, {a, b}, compute_);
  }
  TensorId Average(TensorId x) const {
    if (dims_ == statistics_) return g_.Pointwise(PointwiseMode::kIdentity, {x}, compute_);
    return g_.builder().Reduction(graph::ReductionMode::kAvg, x, statistics_,
                                  {.dtype = compute_, .compute = compute_});
  }
  TensorId Variance(TensorId x, TensorId mean) const {
    const TensorId apart = Apply(PointwiseMode::kSub, x, mean);
    return Average(Apply(PointwiseMode::kMul, apart, apart));
  }
  // (1 - factor) * before + factor * now
  TensorId Running(TensorId before, TensorId now, TensorId factor) const {
    const auto rank = static_cast<int64_t>(dims_.size());
    const TensorId rest = Apply(PointwiseMode::kSub, g_.Constant(1, rank, compute_), factor);
    return Apply(PointwiseMode::kAdd, Apply(PointwiseMode::kMul, rest, before),
                 Apply(PointwiseMode::kMul, factor, now));
  }

 private:
  CallGraph& g_;
  const DType compute_;
  bool is_layer_ = false;
  Dims dims_, statistics_;
};

// ---- forward

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
  const auto rank = static_cast<int64_t>(shapes.dims().size());
  ASSIGN_OR_RETURN(const TensorId x, g.Read(o.x));
  ASSIGN_OR_RETURN(const TensorId scale, g.Read(o.scale));
  ASSIGN_OR_RETURN(const TensorId bias, g.Read(o.bias));
  const bool has_mean = o.running_mean.slot >= 0, has_variance = o.running_variance.slot >= 0,
             runs = has_mean || has_variance, saves = o.mean.slot >= 0;
  TensorId running_mean = kAbsent, running_variance = kAbsent;
  // The operation takes both. In the place of one that the client does not keep stands the other,
  // and what follows from it is not stored.
  if (runs) {
    ASSIGN_OR_RETURN(running_mean, g.Read(has_mean ? o.running_mean : o.running_variance));
    ASSIGN_OR_RETURN(running_variance, g.Read(has_variance ? o.running_variance : o.running_mean));
  }
  const TensorId y = shapes.Virtual("bn", shapes.dims());
  const TensorId mean = shapes.Virtual("mean", shapes.statistics()),
                 inv_variance = shapes.Virtual("inv_variance", shapes.statistics());
  graph::Node norm = {.op = GraphOp::kNormForward,
                      .inputs = {x, kAbsent, kAbsent, scale, bias, g.Read(o.epsilon, rank)},
                      .outputs = {y, mean, inv_variance},
                      .compute = shapes.compute(),
                      .attrs = graph::NormForwardAttrs{.mode = shapes.mode()}};
  TensorId next_mean = kAbsent, next_variance = kAbsent;
  if (runs && !shapes.is_layer()) {
    next_mean = shapes.Virtual("next_mean", shapes.statistics());
    next_variance = shapes.Virtual("next_variance", shapes.statistics());
    norm.inputs.insert(norm.inputs.end(), {g.Read(o.factor, rank), running_mean, running_variance});
    norm.outputs.insert(norm.outputs.end(), {next_mean, next_variance});
  }
  g.builder().graph().AddNode(std::move(norm));
  if (runs && shapes.is_layer()) {
    const TensorId factor = g.Read(o.factor, rank);
    if (has_mean) next_mean = shapes.Running(running_mean, mean, factor);
    if (has_variance) {
      const double unbiased = shapes.count() / std::max(1.0, shapes.count() - 1);
      const TensorId variance = shapes.Apply(PointwiseMode::kMul, shapes.Variance(x, mean),
                                             g.Constant(unbiased, rank, shapes.compute()));
      next_variance = shapes.Running(running_variance, variance, factor);
    }
  }
  if (has_mean) RETURN_IF_ERROR(g.Write(next_mean, o.next_mean));
  if (has_variance) RETURN_IF_ERROR(g.Write(next_variance, o.next_variance));
  if (saves) {
    RETURN_IF_ERROR(g.Write(mean, o.mean));
    RETURN_IF_ERROR(g.Write(inv_variance, o.inv_variance));
  }
  TensorId result = y;
  if (Adds(m)) {
    ASSIGN_OR_RETURN(const TensorId z, g.Read(o.z));
    result = g.Pointwise(PointwiseMode::kAdd, {result, z}, shapes.compute());
  }
  if (Activates(m)) result = g.Pointwise(PointwiseMode::kReluFwd, {result}, shapes.compute());
  return g.Write(result, o.y, o.blend);
}

// ---- backward

struct BackwardOperands {
  Operand x, y, dy, dz, dx, scale, bias, dscale, dbias, mean, inv_variance;
  Scalar epsilon;
  Blend data, scale_blend, bias_blend;
};

// The value that the activation saw: y, or the same made of x again, which is read anyway.
Result<TensorId> Activated(CallGraph& g, const Modes& m, const BackwardOperands& o, DType compute) {
  if (Adds(m) || o.bias.slot < 0 || o.mean.slot < 0) return g.Read(o.y);
  ASSIGN_OR_RETURN(TensorId value, g.Read(o.x));
  const std::pair<PointwiseMode, const Operand*> steps[] = {{PointwiseMode::kSub, &o.mean},
                                                            {PointwiseMode::kMul, &o.inv_variance},
                                                            {PointwiseMode::kMul, &o.scale},
                                                            {PointwiseMode::kAdd, &o.bias}};
  for (const auto& [mode, operand] : steps) {
    ASSIGN_OR_RETURN(const TensorId other, g.Read(*operand));
    value = g.Pointwise(mode, {value, other}, compute);
  }
  return value;
}

Status MakeBackward(CallGraph& g, const Modes& m, const BackwardOperands& o) {
  RETURN_IF_ERROR(CheckData(*o.x.desc, {o.y.desc, o.dy.desc, o.dz.desc, o.dx.desc}));
  RETURN_IF_ERROR(CheckParameters(m, *o.x.desc, *o.scale.desc));
  Shapes shapes(g, m, *o.x.desc);
  const auto rank = static_cast<int64_t>(shapes.dims().size());
  ASSIGN_OR_RETURN(const TensorId x, g.Read(o.x));
  ASSIGN_OR_RETURN(TensorId dy, g.Read(o.dy));
  ASSIGN_OR_RETURN(const TensorId scale, g.Read(o.scale));
  if (Activates(m)) {
    ASSIGN_OR_RETURN(const TensorId activated, Activated(g, m, o, shapes.compute()));
    dy = g.Pointwise(PointwiseMode::kReluBwd, {dy, activated}, shapes.compute());
  }
  if (Adds(m)) {
    RETURN_IF_ERROR(g.Write(dy, o.dz));
    dy = g.Written();  // which is as exact, and may be read in place of dy and y
  }
  TensorId mean = kAbsent, inv_variance = kAbsent;
  if (o.mean.slot >= 0) {
    ASSIGN_OR_RETURN(mean, g.Read(o.mean));
    ASSIGN_OR_RETURN(inv_variance, g.Read(o.inv_variance));
  } else {
    // The forward direction did not save them.
    mean = shapes.Average(x);
    const TensorId variance = shapes.Variance(x, mean);
    inv_variance = g.Pointwise(
        PointwiseMode::kRsqrt,
        {shapes.Apply(PointwiseMode::kAdd, variance, g.Read(o.epsilon, rank))}, shapes.compute());
  }
  const TensorId dx = shapes.Virtual("dbn", shapes.dims()),
                 dscale = shapes.Virtual("dscale", shapes.statistics()),
                 dbias = shapes.Virtual("dbias", shapes.statistics());
  g.builder().graph().AddNode({.op = GraphOp::kNormBackward,
                               .inputs = {x, dy, mean, inv_variance, scale},
                               .outputs = {dx, dscale, dbias},
                               .compute = shapes.compute(),
                               .attrs = graph::NormBackwardAttrs{.mode = shapes.mode()}});
  RETURN_IF_ERROR(g.Write(dscale, o.dscale, o.scale_blend));
  RETURN_IF_ERROR(g.Write(dbias, o.dbias, o.bias_blend));
  return g.Write(dx, o.dx, o.data);
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

// ---- calls

Status CheckPointers(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers)
    RETURN_IF_ERROR(NotNull(pointer, "a tensor that the function needs"));
  return {};
}

// A call as the client made it, beside descriptors.
struct ForwardCall {
  const char* function;
  const void *alpha, *beta;
  const void *x, *z = nullptr;
  void* y;
  const void *scale, *bias;
  double factor;
  void *running_mean, *running_variance;
  double epsilon;
  void *mean, *inv_variance;
  Workspace workspace = {};
};

Status RunForward(Handle& handle, const ForwardDescs& d, const ForwardCall& c) {
  RETURN_IF_ERROR(CheckEpsilon(c.epsilon));
  RETURN_IF_ERROR(CheckPointers({c.x, c.y, c.scale, c.bias}));
  if (Adds(d.modes)) RETURN_IF_ERROR(NotNull(c.z, "zData"));
  RETURN_IF_ERROR(CheckPair(c.mean, c.inv_variance, "the saved statistics"));
  const bool has_mean = c.running_mean != nullptr, has_variance = c.running_variance != nullptr,
             saves = c.mean != nullptr;
  Call call(handle, c.function);
  call.Add(d.modes);
  call.Add(has_mean);
  call.Add(has_variance);
  call.Add(saves);
  ForwardOperands o = {.x = call.Memory(*d.x, c.x), .y = call.Memory(*d.y, c.y)};
  if (d.z != nullptr) o.z = call.Memory(*d.z, c.z);
  const TensorDesc& parameters = *d.parameters;
  o.scale = call.Memory(parameters, c.scale);
  o.bias = call.Memory(parameters, c.bias);
  if (has_mean) o.running_mean = call.Memory(parameters, c.running_mean);
  if (has_variance) o.running_variance = call.Memory(parameters, c.running_variance);
  if (has_mean) o.next_mean = call.Memory(parameters, c.running_mean);
  if (has_variance) o.next_variance = call.Memory(parameters, c.running_variance);
  if (saves) {
    o.mean = call.Memory(parameters, c.mean);
    o.inv_variance = call.Memory(parameters, c.inv_variance);
  }
  o.epsilon = call.Double(&c.epsilon);
  o.factor = call.Double(&c.factor);
  ASSIGN_OR_RETURN(o.blend, call.Scaling(c.alpha, c.beta, o.y));
  return call.Run(c.workspace, [&](CallGraph& g) { return MakeForward(g, d.modes, o); });
}

struct BackwardCall {
  const char* function;
  const void *alpha_data, *beta_data, *alpha_parameters, *beta_parameters;
  const void *x, *y = nullptr, *dy;
  void *dz = nullptr, *dx;
  const void *scale, *bias = nullptr;
  void *dscale, *dbias;
  double epsilon;
  const void *mean, *inv_variance;
  Workspace workspace = {};
};

Status RunBackward(Handle& handle, const BackwardDescs& d, const BackwardCall& c) {
  RETURN_IF_ERROR(CheckEpsilon(c.epsilon));
  RETURN_IF_ERROR(CheckPointers({c.x, c.dy, c.dx, c.scale, c.dscale, c.dbias}));
  if (Adds(d.modes)) RETURN_IF_ERROR(NotNull(c.dz, "dzData"));
  RETURN_IF_ERROR(CheckPair(c.mean, c.inv_variance, "the saved statistics"));
  const bool saved = c.mean != nullptr, has_bias = Activates(d.modes) && c.bias != nullptr;
  Call call(handle, c.function);
  call.Add(d.modes);
  call.Add(saved);
  call.Add(has_bias);
  BackwardOperands o = {.x = call.Memory(*d.x, c.x)};
  if (d.y != nullptr) o.y = call.Memory(*d.y, c.y);
  o.dy = call.Memory(*d.dy, c.dy);
  if (d.dz != nullptr) o.dz = call.Memory(*d.dz, c.dz);
  o.dx = call.Memory(*d.dx, c.dx);
  const TensorDesc& parameters = *d.parameters;
  o.scale = call.Memory(parameters, c.scale);
  if (has_bias) o.bias = call.Memory(parameters, c.bias);
  o.dscale = call.Memory(parameters, c.dscale);
  o.dbias = call.Memory(parameters, c.dbias);
  if (saved) {
    o.mean = call.Memory(parameters, c.mean);
    o.inv_variance = call.Memory(parameters, c.inv_variance);
  }
  o.epsilon = call.Double(&c.epsilon);
  ASSIGN_OR_RETURN(o.data, call.Scaling(c.alpha_data, c.beta_data, o.dx));
  ASSIGN_OR_RETURN(o.scale_blend, call.Scaling(c.alpha_parameters, c.beta_parameters, o.dscale));
  ASSIGN_OR_RETURN(o.bias_blend, call.Scaling(c.alpha_parameters, c.beta_parameters, o.dbias));
  return call.Run(c.workspace, [&](CallGraph& g) { return MakeBackward(g, d.modes, o); });
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
  for (int is_there = 0; is_there < 3; ++is_there) call.Add(true);
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
  return RunForward(*h, d,
                    {.function = kForward,
                     .alpha = alpha,
                     .beta = beta,
                     .x = x,
                     .z = z,
                     .y = y,
                     .scale = scale,
                     .bias = bias,
                     .factor = factor,
                     .running_mean = running_mean,
                     .running_variance = running_variance,
                     .epsilon = epsilon,
                     .mean = mean,
                     .inv_variance = inv_variance,
                     .workspace = {.data = workspace,
                                   .bytes = static_cast<int64_t>(workspace_bytes),
                                   .is_parameter = true}});
}

Status BatchNormalizationForwardTraining(void* handle, int mode, const void* alpha,
                                         const void* beta, void* x_desc, const void* x,
                                         void* y_desc, void* y, void* parameter_desc,
                                         const void* scale, const void* bias, double factor,
                                         void* running_mean, void* running_variance, double epsilon,
                                         void* mean, void* inv_variance) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const ForwardDescs d,
                   ForwardDescsOf({.mode = mode, .ops = CUDNN_BATCHNORM_OPS_BN}, nullptr, x_desc,
                                  nullptr, y_desc, parameter_desc));
  return RunForward(*h, d,
                    {.function = "cudnnBatchNormalizationForwardTraining",
                     .alpha = alpha,
                     .beta = beta,
                     .x = x,
                     .y = y,
                     .scale = scale,
                     .bias = bias,
                     .factor = factor,
                     .running_mean = running_mean,
                     .running_variance = running_variance,
                     .epsilon = epsilon,
                     .mean = mean,
                     .inv_variance = inv_variance});
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
  call.Add(Activates(d.modes));
  BackwardOperands o = {.x = call.Memory(*d.x)};
  if (d.y != nullptr) o.y = call.Memory(*d.y);
  o.dy = call.Memory(*d.dy);
  if (d.dz != nullptr) o.dz = call.Memory(*d.dz);
  o.dx = call.Memory(*d.dx);
  o.scale = call.Memory(*d.parameters);
  if (Activates(d.modes)) o.bias = call.Memory(*d.parameters);
  for (Operand* p : {&o.dscale, &o.dbias, &o.mean, &o.inv_variance})
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
                                    void* parameter_desc, const void* scale, const void* bias,
                                    void* dscale, void* dbias, double epsilon, const void* mean,
                                    const void* inv_variance, void* activation_desc,
                                    void* workspace, size_t workspace_bytes, void*, size_t) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const BackwardDescs d,
                   BackwardDescsOf({.mode = mode, .ops = ops}, activation_desc, x_desc, y_desc,
                                   dy_desc, dz_desc, dx_desc, parameter_desc));
  return RunBackward(*h, d,
                     {.function = kBackward,
                      .alpha_data = alpha_data,
                      .beta_data = beta_data,
                      .alpha_parameters = alpha_parameters,
                      .beta_parameters = beta_parameters,
                      .x = x,
                      .y = y,
                      .dy = dy,
                      .dz = dz,
                      .dx = dx,
                      .scale = scale,
                      .bias = bias,
                      .dscale = dscale,
                      .dbias = dbias,
                      .epsilon = epsilon,
                      .mean = mean,
                      .inv_variance = inv_variance,
                      .workspace = {.data = workspace,
                                    .bytes = static_cast<int64_t>(workspace_bytes),
                                    .is_parameter = true}});
}

Status BatchNormalizationBackward(void* handle, int mode, const void* alpha_data,
                                  const void* beta_data, const void* alpha_parameters,
                                  const void* beta_parameters, void* x_desc, const void* x,
                                  void* dy_desc, const void* dy, void* dx_desc, void* dx,
                                  void* parameter_desc, const void* scale, void* dscale,
                                  void* dbias, double epsilon, const void* mean,
                                  const void* inv_variance) {
  ASSIGN_OR_RETURN(Handle * h, HandleFrom(handle));
  ASSIGN_OR_RETURN(const BackwardDescs d,
                   BackwardDescsOf({.mode = mode, .ops = CUDNN_BATCHNORM_OPS_BN}, nullptr, x_desc,
                                   nullptr, dy_desc, nullptr, dx_desc, parameter_desc));
  return RunBackward(*h, d,
                     {.function = "cudnnBatchNormalizationBackward",
                      .alpha_data = alpha_data,
                      .beta_data = beta_data,
                      .alpha_parameters = alpha_parameters,
                      .beta_parameters = beta_parameters,
                      .x = x,
                      .dy = dy,
                      .dx = dx,
                      .scale = scale,
                      .dscale = dscale,
                      .dbias = dbias,
                      .epsilon = epsilon,
                      .mean = mean,
                      .inv_variance = inv_variance});
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
