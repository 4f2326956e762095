// cudnnBatchNormalizationForwardInference, cudnnBatchNormalizationForwardTraining,
// cudnnBatchNormalizationBackward, these two with Ex, and cudnnNormalization…, which are the same.
#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

constexpr double kEpsilon = 1e-3, kFactor = 0.3;

struct NormCase {
  cudnnBatchNormMode_t mode = CUDNN_BATCHNORM_SPATIAL;
  cudnnBatchNormOps_t ops = CUDNN_BATCHNORM_OPS_BN;
  Layout layout = {};
  Dims dims = {4, 3, 5, 7};
  Factors factors = {1, 0};
  bool running_mean = true, running_variance = true, saved = true;
  bool not_nvidia = false;
  enum Name : uint8_t {
    kEx,
    kNormalization,  // cudnnNormalization…
    kPlain,          // without a workspace
  } name = kEx;
};

cudnnNormMode_t NormModeOf(const NormCase& n) {
  return n.mode == CUDNN_BATCHNORM_PER_ACTIVATION ? CUDNN_NORM_PER_ACTIVATION
                                                  : CUDNN_NORM_PER_CHANNEL;
}
cudnnNormOps_t NormOpsOf(const NormCase& n) { return static_cast<cudnnNormOps_t>(n.ops); }
cudnnNormAlgo_t NormAlgoOf(const NormCase& n) {
  return n.mode == CUDNN_BATCHNORM_SPATIAL_PERSISTENT ? CUDNN_NORM_ALGO_PERSIST
                                                      : CUDNN_NORM_ALGO_STANDARD;
}

Dims ParameterDims(const NormCase& n) {
  Dims dims = n.dims;
  dims[0] = 1;
  if (n.mode != CUDNN_BATCHNORM_PER_ACTIVATION) std::fill(dims.begin() + 2, dims.end(), 1);
  return dims;
}

// Scale, bias and statistics have a type of their own.
Layout ParameterLayout(const NormCase& n) {
  return {n.layout.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT};
}

bool Adds(const NormCase& n) { return n.ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION; }
bool Activates(const NormCase& n) { return n.ops != CUDNN_BATCHNORM_OPS_BN; }

cudnnActivationDescriptor_t Relu(const LegacyContext& c) {
  auto activation = c.client.New<cudnnActivationDescriptor_t>("Activation");
  KILN_CALL(c.client, cudnnSetActivationDescriptor, activation, CUDNN_ACTIVATION_RELU,
            CUDNN_NOT_PROPAGATE_NAN, 0.0);
  return activation;
}

std::string RunInference(const NormCase& n, const LegacyContext& c) {
  const Layout parameter = ParameterLayout(n);
  const Dims dims = ParameterDims(n);
  const LegacyTensor x = c.Tensor(n.layout, n.dims, 1), y = c.Tensor(n.layout, n.dims, 2),
                     scale = c.Tensor(parameter, dims, 3), bias = c.Tensor(parameter, dims, 4),
                     mean = c.Tensor(parameter, dims, 5),
                     variance = c.Tensor(parameter, dims, 6, "pos");
  const Factor alpha(n.factors.alpha, n.layout.type), beta(n.factors.beta, n.layout.type);
  const cudnnStatus_t status =
      n.name == NormCase::kNormalization
          ? KILN_CALL(
                c.client, cudnnNormalizationForwardInference, c.handle, NormModeOf(n),
                CUDNN_NORM_OPS_NORM, NormAlgoOf(n), alpha.get(), beta.get(), x.desc(), x.data(),
                scale.desc(), scale.data(), bias.data(), mean.desc(), mean.data(), variance.data(),
                static_cast<cudnnTensorDescriptor_t>(nullptr), static_cast<void*>(nullptr),
                static_cast<cudnnActivationDescriptor_t>(nullptr), y.desc(), y.data(), kEpsilon, 1)
          : KILN_CALL(c.client, cudnnBatchNormalizationForwardInference, c.handle, n.mode,
                      alpha.get(), beta.get(), x.desc(), x.data(), y.desc(), y.data(), scale.desc(),
                      scale.data(), bias.data(), mean.data(), variance.data(), kEpsilon);
  const oracle::DType compute = FactorType(n.layout.type);
  const double u = oracle::UnitRoundoff(compute);
  Dense expected = x.Before();
  const Dense s = Broadcast(scale.Before(), n.dims), b = Broadcast(bias.Before(), n.dims),
              m = Broadcast(mean.Before(), n.dims), v = Broadcast(variance.Before(), n.dims);
  for (size_t i = 0; i < expected.values.size(); ++i) {
    const double apart = expected.values[i].v - m.values[i].v;
    const double factor = s.values[i].v / std::sqrt(kEpsilon + v.values[i].v);
    expected.values[i] = {
        b.values[i].v + factor * apart,
        8 * u *
            (std::fabs(b.values[i].v) +
             std::fabs(factor) * (std::fabs(expected.values[i].v) + std::fabs(m.values[i].v)))};
  }
  return FirstOf({c.Done(status),
                  y.Check(Blended(expected, n.factors.alpha, n.factors.beta, y.Before(), compute)),
                  x.CheckUnchanged(), mean.CheckUnchanged()});
}

std::string RunForward(const NormCase& n, const LegacyContext& c) {
  const Layout parameter = ParameterLayout(n);
  const Dims dims = ParameterDims(n);
  const LegacyTensor x = c.Tensor(n.layout, n.dims, 1), z = c.Tensor(n.layout, n.dims, 2),
                     y = c.Tensor(n.layout, n.dims, 3), scale = c.Tensor(parameter, dims, 4),
                     bias = c.Tensor(parameter, dims, 5), rm = c.Tensor(parameter, dims, 6),
                     rv = c.Tensor(parameter, dims, 7, "pos"), mean = c.Tensor(parameter, dims, 8),
                     inv = c.Tensor(parameter, dims, 9);
  const auto relu = Activates(n) ? Relu(c) : nullptr;
  const auto z_desc = Adds(n) ? z.desc() : nullptr;
  size_t bytes = 0, reserved = 0;
  KILN_CALL(c.client, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, c.handle, n.mode,
            n.ops, x.desc(), z_desc, y.desc(), scale.desc(), relu, &bytes);
  KILN_CALL(c.client, cudnnGetBatchNormalizationTrainingExReserveSpaceSize, c.handle, n.mode, n.ops,
            relu, x.desc(), &reserved);
  const Buffer workspace(c.device, bytes), reserve(c.device, reserved);
  const Factor alpha(n.factors.alpha, n.layout.type), beta(n.factors.beta, n.layout.type);
  const auto given = [](bool wanted, const LegacyTensor& t) {
    return wanted ? t.data() : static_cast<void*>(nullptr);
  };
  void *const scratch = workspace.data(), *const kept = reserve.data();
  const cudnnStatus_t status =
      n.name == NormCase::kPlain
          ? KILN_CALL(c.client, cudnnBatchNormalizationForwardTraining, c.handle, n.mode,
                      alpha.get(), beta.get(), x.desc(), x.data(), y.desc(), y.data(), scale.desc(),
                      scale.data(), bias.data(), kFactor, given(n.running_mean, rm),
                      given(n.running_variance, rv), kEpsilon, given(n.saved, mean),
                      given(n.saved, inv))
      : n.name == NormCase::kNormalization
          ? KILN_CALL(c.client, cudnnNormalizationForwardTraining, c.handle, NormModeOf(n),
                      NormOpsOf(n), NormAlgoOf(n), alpha.get(), beta.get(), x.desc(), x.data(),
                      scale.desc(), scale.data(), bias.data(), kFactor, mean.desc(),
                      given(n.running_mean, rm), given(n.running_variance, rv), kEpsilon,
                      given(n.saved, mean), given(n.saved, inv), relu, z_desc, given(Adds(n), z),
                      y.desc(), y.data(), scratch, bytes, kept, reserved, 1)
          : KILN_CALL(c.client, cudnnBatchNormalizationForwardTrainingEx, c.handle, n.mode, n.ops,
                      alpha.get(), beta.get(), x.desc(), x.data(), z_desc, given(Adds(n), z),
                      y.desc(), y.data(), scale.desc(), scale.data(), bias.data(), kFactor,
                      given(n.running_mean, rm), given(n.running_variance, rv), kEpsilon,
                      given(n.saved, mean), given(n.saved, inv), relu, scratch, bytes, kept,
                      reserved);
  const oracle::DType compute = FactorType(n.layout.type);
  const Dense xs = x.Before(), ss = scale.Before(), bs = bias.Before(), ms = rm.Before(),
              vs = rv.Before();
  oracle::NormForwardResult r = oracle::NormForward({.mode = oracle::Norm::kBatch,
                                                     .x = &xs,
                                                     .scale = &ss,
                                                     .bias = &bs,
                                                     .running_mean = &ms,
                                                     .running_var = &vs,
                                                     .stats = dims,
                                                     .epsilon = kEpsilon,
                                                     .factor = kFactor},
                                                    compute);
  if (Adds(n)) r.y = Blended(r.y, 1, 1, z.Before(), compute);
  if (Activates(n)) {
    for (oracle::Value& value : r.y.values) value.v = std::max(value.v, 0.0);
  }
  return FirstOf({c.Done(status),
                  y.Check(Blended(r.y, n.factors.alpha, n.factors.beta, y.Before(), compute)),
                  n.running_mean ? rm.Check(r.next_mean) : rm.CheckUnchanged(),
                  n.running_variance ? rv.Check(r.next_var) : rv.CheckUnchanged(),
                  n.saved ? mean.Check(r.mean) : mean.CheckUnchanged(),
                  n.saved ? inv.Check(r.inv_variance) : inv.CheckUnchanged(), x.CheckUnchanged()});
}

std::string RunBackward(const NormCase& n, const LegacyContext& c) {
  const Layout parameter = ParameterLayout(n);
  const Dims dims = ParameterDims(n);
  const LegacyTensor x = c.Tensor(n.layout, n.dims, 1), z = c.Tensor(n.layout, n.dims, 2),
                     y = c.Tensor(n.layout, n.dims, 3), dy = c.Tensor(n.layout, n.dims, 4),
                     dx = c.Tensor(n.layout, n.dims, 5), dz = c.Tensor(n.layout, n.dims, 6),
                     scale = c.Tensor(parameter, dims, 7), bias = c.Tensor(parameter, dims, 8),
                     mean = c.Tensor(parameter, dims, 9), inv = c.Tensor(parameter, dims, 10),
                     ds = c.Tensor(parameter, dims, 11), db = c.Tensor(parameter, dims, 12);
  const auto relu = Activates(n) ? Relu(c) : nullptr;
  const auto z_desc = Adds(n) ? z.desc() : nullptr;
  size_t bytes = 0, reserved = 0, backward = 0;
  KILN_CALL(c.client, cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, c.handle, n.mode,
            n.ops, x.desc(), z_desc, y.desc(), scale.desc(), relu, &bytes);
  KILN_CALL(c.client, cudnnGetBatchNormalizationTrainingExReserveSpaceSize, c.handle, n.mode, n.ops,
            relu, x.desc(), &reserved);
  KILN_CALL(c.client, cudnnGetBatchNormalizationBackwardExWorkspaceSize, c.handle, n.mode, n.ops,
            x.desc(), y.desc(), dy.desc(), z_desc, dx.desc(), scale.desc(), relu, &backward);
  bytes = std::max(bytes, backward);
  const Buffer workspace(c.device, bytes), reserve(c.device, reserved);
  void *const scratch = workspace.data(), *const kept = reserve.data();
  const Factor one(1, n.layout.type), zero(0, n.layout.type);
  KILN_CALL(c.client, cudnnBatchNormalizationForwardTrainingEx, c.handle, n.mode, n.ops, one.get(),
            zero.get(), x.desc(), x.data(), z_desc, Adds(n) ? z.data() : nullptr, y.desc(),
            y.data(), scale.desc(), scale.data(), bias.data(), kFactor, static_cast<void*>(nullptr),
            static_cast<void*>(nullptr), kEpsilon, mean.data(), inv.data(), relu, scratch, bytes,
            kept, reserved);
  const Factor alpha(n.factors.alpha, n.layout.type), beta(n.factors.beta, n.layout.type);
  void *const dz_data = Adds(n) ? dz.data() : nullptr, *const m = n.saved ? mean.data() : nullptr,
              *const v = n.saved ? inv.data() : nullptr;
  const cudnnStatus_t status =
      n.name == NormCase::kPlain
          ? KILN_CALL(c.client, cudnnBatchNormalizationBackward, c.handle, n.mode, alpha.get(),
                      beta.get(), alpha.get(), beta.get(), x.desc(), x.data(), dy.desc(), dy.data(),
                      dx.desc(), dx.data(), scale.desc(), scale.data(), ds.data(), db.data(),
                      kEpsilon, m, v)
      : n.name == NormCase::kNormalization
          ? KILN_CALL(c.client, cudnnNormalizationBackward, c.handle, NormModeOf(n), NormOpsOf(n),
                      NormAlgoOf(n), alpha.get(), beta.get(), alpha.get(), beta.get(), x.desc(),
                      x.data(), y.desc(), y.data(), dy.desc(), dy.data(), z_desc, dz_data,
                      dx.desc(), dx.data(), scale.desc(), scale.data(), bias.data(), ds.data(),
                      db.data(), kEpsilon, mean.desc(), m, v, relu, scratch, bytes, kept, reserved,
                      1)
          : KILN_CALL(c.client, cudnnBatchNormalizationBackwardEx, c.handle, n.mode, n.ops,
                      alpha.get(), beta.get(), alpha.get(), beta.get(), x.desc(), x.data(),
                      y.desc(), y.data(), dy.desc(), dy.data(), z_desc, dz_data, dx.desc(),
                      dx.data(), scale.desc(), scale.data(), bias.data(), ds.data(), db.data(),
                      kEpsilon, m, v, relu, scratch, bytes, kept, reserved);
  if (std::string error = c.Done(status); !error.empty()) return error;
  const oracle::DType compute = FactorType(n.layout.type);
  const Dense xs = x.Before(), ss = scale.Before();
  const Dense bs = bias.Before();
  const oracle::NormForwardResult forward = oracle::NormForward({.mode = oracle::Norm::kBatch,
                                                                 .x = &xs,
                                                                 .scale = &ss,
                                                                 .bias = &bs,
                                                                 .stats = dims,
                                                                 .epsilon = kEpsilon},
                                                                compute);
  // Either side of the step is right where y is about 0: such cases are not drawn.
  Dense gradient = dy.Before();
  if (Activates(n)) {
    Dense sum = forward.y;
    if (Adds(n)) sum = Blended(sum, 1, 1, z.Before(), compute);
    for (size_t i = 0; i < gradient.values.size(); ++i)
      if (!(sum.values[i].v > 0)) gradient.values[i].v = 0;
  }
  const oracle::NormBackwardResult r = oracle::NormBackward({.x = &xs,
                                                             .dy = &gradient,
                                                             .mean = &forward.mean,
                                                             .inv_variance = &forward.inv_variance,
                                                             .scale = &ss,
                                                             .weights = dims},
                                                            compute);
  const auto blended = [&](const Dense& result, const LegacyTensor& t) {
    return t.Check(Blended(result, n.factors.alpha, n.factors.beta, t.Before(), compute));
  };
  return FirstOf({blended(r.dx, dx), blended(r.dscale, ds), blended(r.dbias, db),
                  Adds(n) ? dz.Check(gradient) : "", x.CheckUnchanged(), dy.CheckUnchanged()});
}

std::string Name(const NormCase& n) {
  constexpr const char* kModes[] = {"per_activation", "spatial", "persistent"};
  constexpr const char* kOps[] = {"", "_relu", "_add_relu"};
  constexpr const char* kNames[] = {"", "_by_other_name", "_plain"};
  return std::string(kModes[n.mode]) + kOps[n.ops] + "_" + Text(n.layout) + "_" + Text(n.dims) +
         "_" + Text(n.factors) + (n.running_mean ? "" : "_no_running_mean") +
         (n.running_variance ? "" : "_no_running_variance") + (n.saved ? "" : "_not_saved") +
         kNames[n.name];
}

}  // namespace

std::vector<LegacyCase> NormCases() {
  std::vector<NormCase> all;
  const Layout h16 = {CUDNN_DATA_HALF, Layout::kNhwc}, f64 = {CUDNN_DATA_DOUBLE};
  for (const auto mode : {CUDNN_BATCHNORM_PER_ACTIVATION, CUDNN_BATCHNORM_SPATIAL,
                          CUDNN_BATCHNORM_SPATIAL_PERSISTENT}) {
    all.push_back({.mode = mode});
    all.push_back({.mode = mode, .layout = h16, .dims = {4, 8, 5, 7}});
    all.push_back({.mode = mode, .layout = f64, .dims = {3, 4, 2, 3, 5}, .factors = {-2, 0.25}});
  }
  all.push_back({.running_mean = false, .running_variance = false, .saved = false});
  // One without the other, which 9.19 updates by itself.
  all.push_back({.running_mean = false});
  all.push_back({.mode = CUDNN_BATCHNORM_PER_ACTIVATION, .running_variance = false});
  all.push_back({.mode = CUDNN_BATCHNORM_PER_ACTIVATION, .saved = false});
  all.push_back({.dims = {1, 3, 1, 1}});
  all.push_back({.dims = {3, 2, 40, 33}, .factors = {0.5, 1}});
  all.push_back({.layout = {CUDNN_DATA_HALF}, .factors = {0.5, 1}});
  for (const auto ops :
       {CUDNN_BATCHNORM_OPS_BN_ACTIVATION, CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION}) {
    all.push_back({.mode = CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
                   .ops = ops,
                   .layout = h16,
                   .dims = {4, 8, 5, 7}});
    all.push_back({.ops = ops, .not_nvidia = true});
  }
  for (size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back(all[i]);
    all.back().name = NormCase::kNormalization;
    if (all[i].ops != CUDNN_BATCHNORM_OPS_BN) continue;
    all.push_back(all[i]);
    all.back().name = NormCase::kPlain;
  }
  std::vector<LegacyCase> cases;
  for (const NormCase& n : all) {
    if (n.ops == CUDNN_BATCHNORM_OPS_BN && n.name != NormCase::kPlain)
      cases.push_back({"batch_norm_inference/" + Name(n),
                       [=](const LegacyContext& c) { return RunInference(n, c); }});
    cases.push_back({"batch_norm_forward/" + Name(n),
                     [=](const LegacyContext& c) { return RunForward(n, c); }, n.not_nvidia});
    cases.push_back({"batch_norm_backward/" + Name(n),
                     [=](const LegacyContext& c) { return RunBackward(n, c); }, n.not_nvidia});
  }
  return cases;
}

}  // namespace kiln::testing
