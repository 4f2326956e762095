// cudnnReduceTensor with indices, cudnnActivation* and cudnnPooling*.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

struct ReduceCase {
  cudnnReduceTensorOp_t op = CUDNN_REDUCE_TENSOR_ADD;
  Layout a = {}, c = {};
  Dims from = {3, 4, 5, 6}, to = {1, 4, 1, 1};
  Factors factors = {1, 0};
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  bool indices = false;
  std::string fill = "uniform";
};

bool Reduces(const Dims& from, const Dims& to, const Dims& index, const Dims& at) {
  for (size_t d = 0; d < from.size(); ++d) {
    if (to[d] == from[d] && index[d] != at[d]) return false;
  }
  return true;
}

// Values of min, max and amax with NaN as asked for, and the first place of each.
void Extremes(const ReduceCase& r, const Dense& x, Dense& y, std::vector<int32_t>& places) {
  Dims at(r.to.size(), 0);
  size_t i = 0;
  do {
    double best = r.op == CUDNN_REDUCE_TENSOR_MIN ? INFINITY : -INFINITY;
    int32_t place = 0, number = 0;
    bool found = false, nan = false;
    Dims index(r.from.size(), 0);
    size_t j = 0;
    do {
      const double v = x.values[j++].v;
      if (!Reduces(r.from, r.to, index, at)) continue;
      const double value = r.op == CUDNN_REDUCE_TENSOR_AMAX ? std::fabs(v) : v;
      const bool better = r.op == CUDNN_REDUCE_TENSOR_MIN ? value < best : value > best;
      const bool takes_nan = std::isnan(value) && r.nan == CUDNN_PROPAGATE_NAN && !nan;
      if (!nan && (takes_nan || better || (!found && value == best))) {
        best = value;
        place = number;
        found = true;
        nan = takes_nan;
      }
      ++number;
    } while (oracle::Next(r.from, index));
    y.values[i] = {best, 0};
    places[i++] = place;
  } while (oracle::Next(r.to, at));
}

std::string RunReduce(const ReduceCase& r, const LegacyContext& c) {
  auto reduce = c.client.New<cudnnReduceTensorDescriptor_t>("ReduceTensor");
  const bool doubles = r.a.type == CUDNN_DATA_DOUBLE;
  KILN_CALL(c.client, cudnnSetReduceTensorDescriptor, reduce, r.op,
            doubles ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT, r.nan,
            r.indices ? CUDNN_REDUCE_TENSOR_FLATTENED_INDICES : CUDNN_REDUCE_TENSOR_NO_INDICES,
            CUDNN_32BIT_INDICES);
  const LegacyTensor a = c.Tensor(r.a, r.from, 1, r.fill), y = c.Tensor(r.c, r.to, 2);
  size_t index_bytes = 0, workspace_bytes = 0;
  KILN_CALL(c.client, cudnnGetReductionIndicesSize, c.handle, reduce, a.desc(), y.desc(),
            &index_bytes);
  KILN_CALL(c.client, cudnnGetReductionWorkspaceSize, c.handle, reduce, a.desc(), y.desc(),
            &workspace_bytes);
  const auto count = static_cast<size_t>(oracle::Count(r.to));
  if (index_bytes < (r.indices ? 4 * count : 0)) return "too small a size of the indices";
  Buffer indices(c.device, index_bytes), workspace(c.device, workspace_bytes);
  const Factor alpha(r.factors.alpha, r.c.type), beta(r.factors.beta, r.c.type);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnReduceTensor, c.handle, reduce, static_cast<void*>(indices.data()),
                index_bytes, static_cast<void*>(workspace.data()), workspace_bytes, alpha.get(),
                a.desc(), a.data(), beta.get(), y.desc(), y.data());
  if (std::string error = c.Done(status); !error.empty()) return error;
  const oracle::DType compute = doubles ? oracle::DType::kF64 : oracle::DType::kF32;
  Dense expected = oracle::Reduction(static_cast<oracle::Reduce>(r.op), a.Before(), r.to, compute);
  std::vector<int32_t> places(count), got(count);
  const bool is_extreme = r.op == CUDNN_REDUCE_TENSOR_MIN || r.op == CUDNN_REDUCE_TENSOR_MAX ||
                          r.op == CUDNN_REDUCE_TENSOR_AMAX;
  if (is_extreme) Extremes(r, a.Before(), expected, places);
  if (r.indices) {
    c.device.CopyOut(got.data(), indices.data(), 4 * count);
    for (size_t i = 0; i < count; ++i) {
      if (got[i] != places[i])
        return "index " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
               std::to_string(places[i]);
    }
  }
  return FirstOf({y.Check(Blended(expected, r.factors.alpha, r.factors.beta, y.Before(), compute)),
                  a.CheckUnchanged()});
}

LegacyCase Reduce(const ReduceCase& r) {
  constexpr const char* kNames[] = {"add", "mul",   "min",   "max",         "amax",
                                    "avg", "norm1", "norm2", "mul_no_zeros"};
  return {std::string("reduce/") + kNames[r.op] + "_" + Text(r.a) + "_" + Text(r.c) + "_" +
              Text(r.from) + "_to_" + Text(r.to) + "_" + Text(r.factors) + "_" + r.fill +
              (r.indices ? "_indices" : "") + (r.nan == CUDNN_PROPAGATE_NAN ? "_nan" : ""),
          [=](const LegacyContext& c) { return RunReduce(r, c); }};
}

// ---- activation

struct ActivationCase {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_RELU;
  Layout layout = {};
  Factors factors = {1, 0};
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  std::string fill = "uniform";
  bool in_place = false;
};

constexpr double kCoefficient = 0.75, kSwishBeta = 1.5;

oracle::PointwiseParams ParamsOf(const ActivationCase& a) {
  oracle::PointwiseParams params;
  params.propagate_nan = a.nan == CUDNN_PROPAGATE_NAN;
  if (a.mode == CUDNN_ACTIVATION_CLIPPED_RELU) params.relu_upper = kCoefficient;
  if (a.mode == CUDNN_ACTIVATION_ELU) params.elu_alpha = kCoefficient;
  if (a.mode == CUDNN_ACTIVATION_SWISH) params.swish_beta = kSwishBeta;
  return params;
}

Dense Activated(const ActivationCase& a, bool forward, std::vector<const Dense*> operands) {
  constexpr const char* kForward[] = {"sigmoid_fwd", "relu_fwd", "tanh_fwd", "relu_fwd",
                                      "elu_fwd",     "identity", "swish_fwd"};
  constexpr const char* kBackward[] = {"sigmoid_bwd", "relu_bwd", "tanh_bwd", "relu_bwd",
                                       "elu_bwd",     "identity", "swish_bwd"};
  const auto* mode = oracle::FindPointwiseMode((forward ? kForward : kBackward)[a.mode]);
  return oracle::Pointwise(*mode, ParamsOf(a), operands, operands[0]->dims,
                           FactorType(a.layout.type));
}

cudnnActivationDescriptor_t MakeActivation(const ActivationCase& a, const LegacyContext& c) {
  auto activation = c.client.New<cudnnActivationDescriptor_t>("Activation");
  KILN_CALL(c.client, cudnnSetActivationDescriptor, activation, a.mode, a.nan, kCoefficient);
  KILN_CALL(c.client, cudnnSetActivationDescriptorSwishBeta, activation, kSwishBeta);
  return activation;
}

const Dims kActivationDims = {2, 3, 5, 7};

std::string RunForward(const ActivationCase& a, const LegacyContext& c) {
  const LegacyTensor x = c.Tensor(a.layout, kActivationDims, 1, a.fill),
                     other = c.Tensor(a.layout, kActivationDims, 2);
  const LegacyTensor& y = a.in_place ? x : other;
  const Factor alpha(a.factors.alpha, a.layout.type), beta(a.factors.beta, a.layout.type);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnActivationForward, c.handle, MakeActivation(a, c), alpha.get(),
                x.desc(), x.data(), beta.get(), y.desc(), y.data());
  const Dense before = x.Before();
  const Dense expected = Blended(Activated(a, true, {&before}), a.factors.alpha, a.factors.beta,
                                 y.Before(), FactorType(a.layout.type));
  return FirstOf({c.Done(status), y.Check(expected, 1), a.in_place ? "" : x.CheckUnchanged()});
}

std::string RunBackward(const ActivationCase& a, const LegacyContext& c) {
  const LegacyTensor x = c.Tensor(a.layout, kActivationDims, 1, a.fill),
                     dy = c.Tensor(a.layout, kActivationDims, 2),
                     other = c.Tensor(a.layout, kActivationDims, 3);
  const LegacyTensor& dx = a.in_place ? dy : other;
  // y as the forward direction leaves it, rounded.
  const LegacyTensor y = c.Tensor(a.layout, kActivationDims, 4);
  const Factor one(1, a.layout.type), zero(0, a.layout.type);
  const auto activation = MakeActivation(a, c);
  KILN_CALL(c.client, cudnnActivationForward, c.handle, activation, one.get(), x.desc(), x.data(),
            zero.get(), y.desc(), y.data());
  const Factor alpha(a.factors.alpha, a.layout.type), beta(a.factors.beta, a.layout.type);
  const cudnnStatus_t status = KILN_CALL(c.client, cudnnActivationBackward, c.handle, activation,
                                         alpha.get(), y.desc(), y.data(), dy.desc(), dy.data(),
                                         x.desc(), x.data(), beta.get(), dx.desc(), dx.data());
  const Dense value = x.Before(), gradient = dy.Before();
  Dense result = Activated(a, false, {&gradient, &value});
  // Gradients of sigmoid, tanh and ELU are made of the rounded y.
  const double u = oracle::UnitRoundoff(ElementOf(a.layout.type));
  for (size_t i = 0; i < result.values.size(); ++i)
    result.values[i].e += 4 * u * std::fabs(gradient.values[i].v);
  return FirstOf({c.Done(status),
                  dx.Check(Blended(result, a.factors.alpha, a.factors.beta, dx.Before(),
                                   FactorType(a.layout.type)),
                           1),
                  x.CheckUnchanged()});
}

void AddActivation(std::vector<LegacyCase>& cases, const ActivationCase& a) {
  constexpr const char* kNames[] = {"sigmoid", "relu",     "tanh", "clipped_relu",
                                    "elu",     "identity", "swish"};
  const std::string name = std::string(kNames[a.mode]) + "_" + Text(a.layout) + "_" +
                           Text(a.factors) + "_" + a.fill + (a.in_place ? "_in_place" : "") +
                           (a.nan == CUDNN_PROPAGATE_NAN ? "_nan" : "");
  cases.push_back(
      {"activation_forward/" + name, [=](const LegacyContext& c) { return RunForward(a, c); }});
  if (a.fill == "uniform")
    cases.push_back(
        {"activation_backward/" + name, [=](const LegacyContext& c) { return RunBackward(a, c); }});
}

// ---- pooling

struct PoolCase {
  cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
  Layout layout = {};
  Dims x = {2, 3, 7, 9}, y = {};  // empty: as advised
  Dims window = {3, 2}, padding = {1, 0}, stride = {2, 1};
  Factors factors = {1, 0};
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  std::string fill = "uniform";
  bool not_nvidia = false;
};

Dims AdvisedDims(const PoolCase& p) {
  if (!p.y.empty()) return p.y;
  Dims y = p.x;
  for (size_t s = 0; s < p.window.size(); ++s)
    y[s + 2] = (p.x[s + 2] + 2 * p.padding[s] - p.window[s]) / p.stride[s] + 1;
  return y;
}

oracle::Window WindowOf(const PoolCase& p) {
  using Mode = oracle::Window::Mode;
  oracle::Window w;
  w.mode = p.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING   ? Mode::kAvg
           : p.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING ? Mode::kAvgExclude
                                                                   : Mode::kMax;
  w.padding =
      w.mode == Mode::kMax ? oracle::Window::Padding::kNegInf : oracle::Window::Padding::kZero;
  w.propagate_nan = p.nan == CUDNN_PROPAGATE_NAN;
  w.window = p.window;
  w.stride = p.stride;
  w.pre_padding = p.padding;
  w.unit = Dims(p.window.size(), 1);
  return w;
}

cudnnPoolingDescriptor_t MakePooling(const PoolCase& p, const LegacyContext& c) {
  auto pooling = c.client.New<cudnnPoolingDescriptor_t>("Pooling");
  const std::vector<int> window(p.window.begin(), p.window.end()),
      padding(p.padding.begin(), p.padding.end()), stride(p.stride.begin(), p.stride.end());
  KILN_CALL(c.client, cudnnSetPoolingNdDescriptor, pooling, p.mode, p.nan,
            static_cast<int>(window.size()), window.data(), padding.data(), stride.data());
  return pooling;
}

std::string RunPooling(const PoolCase& p, const LegacyContext& c) {
  const Dims y_dims = AdvisedDims(p);
  const LegacyTensor x = c.Tensor(p.layout, p.x, 1, p.fill), y = c.Tensor(p.layout, y_dims, 2);
  const Factor alpha(p.factors.alpha, p.layout.type), beta(p.factors.beta, p.layout.type);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnPoolingForward, c.handle, MakePooling(p, c), alpha.get(), x.desc(),
                x.data(), beta.get(), y.desc(), y.data());
  const oracle::DType compute = FactorType(p.layout.type);
  const Dense result = oracle::WindowForward(WindowOf(p), x.Before(), y_dims, compute).y;
  return FirstOf({c.Done(status),
                  y.Check(Blended(result, p.factors.alpha, p.factors.beta, y.Before(), compute)),
                  x.CheckUnchanged()});
}

std::string RunPoolingBackward(const PoolCase& p, const LegacyContext& c) {
  const Dims y_dims = AdvisedDims(p);
  const LegacyTensor x = c.Tensor(p.layout, p.x, 1, p.fill), y = c.Tensor(p.layout, y_dims, 2),
                     dy = c.Tensor(p.layout, y_dims, 3), dx = c.Tensor(p.layout, p.x, 4);
  const auto pooling = MakePooling(p, c);
  const Factor one(1, p.layout.type), zero(0, p.layout.type);
  KILN_CALL(c.client, cudnnPoolingForward, c.handle, pooling, one.get(), x.desc(), x.data(),
            zero.get(), y.desc(), y.data());
  const Factor alpha(p.factors.alpha, p.layout.type), beta(p.factors.beta, p.layout.type);
  const cudnnStatus_t status =
      KILN_CALL(c.client, cudnnPoolingBackward, c.handle, pooling, alpha.get(), y.desc(), y.data(),
                dy.desc(), dy.data(), x.desc(), x.data(), beta.get(), dx.desc(), dx.data());
  const oracle::DType compute = FactorType(p.layout.type);
  const Dense gradient = dy.Before(), value = x.Before();
  const Dense result = oracle::WindowBackward(WindowOf(p), gradient, nullptr, &value, p.x, compute);
  return FirstOf({c.Done(status),
                  dx.Check(Blended(result, p.factors.alpha, p.factors.beta, dx.Before(), compute)),
                  x.CheckUnchanged(), dy.CheckUnchanged()});
}

void AddPool(std::vector<LegacyCase>& cases, const PoolCase& p, bool backward = true) {
  constexpr const char* kNames[] = {"max", "avg_include", "avg_exclude", "max_deterministic"};
  const std::string name = std::string(kNames[p.mode]) + "_" + Text(p.layout) + "_" + Text(p.x) +
                           "_to_" + Text(AdvisedDims(p)) + "_" + Text(p.window) + "_p" +
                           Text(p.padding) + "_s" + Text(p.stride) + "_" + Text(p.factors) + "_" +
                           p.fill + (p.nan == CUDNN_PROPAGATE_NAN ? "_nan" : "");
  cases.push_back({"pooling_forward/" + name,
                   [=](const LegacyContext& c) { return RunPooling(p, c); }, p.not_nvidia});
  if (backward)
    cases.push_back({"pooling_backward/" + name,
                     [=](const LegacyContext& c) { return RunPoolingBackward(p, c); },
                     p.not_nvidia});
}

}  // namespace

std::vector<LegacyCase> ReductionCases() {
  std::vector<LegacyCase> cases;
  for (int op = CUDNN_REDUCE_TENSOR_ADD; op <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS; ++op) {
    const auto mode = static_cast<cudnnReduceTensorOp_t>(op);
    cases.push_back(Reduce({.op = mode}));
    cases.push_back(Reduce({.op = mode, .to = {3, 1, 5, 1}, .factors = {-2, 0.25}}));
  }
  const Layout f16 = {CUDNN_DATA_HALF}, f64 = {CUDNN_DATA_DOUBLE}, i8 = {CUDNN_DATA_INT8};
  cases.push_back(Reduce({.a = f16, .c = f16, .to = {1, 1, 1, 1}}));
  cases.push_back(Reduce({.a = f16, .to = {1, 4, 1, 1}, .factors = {1, 1}}));
  cases.push_back(Reduce({.a = f64, .c = f64, .to = {1, 4, 1, 1}}));
  cases.push_back(Reduce({.op = CUDNN_REDUCE_TENSOR_MAX, .a = i8, .to = {1, 4, 1, 1}}));
  cases.push_back(Reduce({.a = {CUDNN_DATA_FLOAT, Layout::kNhwc}, .to = {1, 4, 1, 1}}));
  cases.push_back(Reduce({.from = {3, 2, 4, 5, 6}, .to = {3, 1, 4, 1, 1}}));
  for (const auto op :
       {CUDNN_REDUCE_TENSOR_MIN, CUDNN_REDUCE_TENSOR_MAX, CUDNN_REDUCE_TENSOR_AMAX}) {
    cases.push_back(Reduce({.op = op, .indices = true}));
    cases.push_back(Reduce({.op = op, .to = {3, 1, 5, 1}, .indices = true, .fill = "int"}));
    for (const auto nan : {CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN})
      cases.push_back(
          Reduce({.op = op, .to = {3, 1, 5, 1}, .nan = nan, .indices = true, .fill = "special"}));
  }
  return cases;
}

std::vector<LegacyCase> ActivationCases() {
  std::vector<LegacyCase> cases;
  for (const auto mode :
       {CUDNN_ACTIVATION_SIGMOID, CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_TANH,
        CUDNN_ACTIVATION_CLIPPED_RELU, CUDNN_ACTIVATION_ELU, CUDNN_ACTIVATION_SWISH}) {
    AddActivation(cases, {.mode = mode});
    AddActivation(
        cases, {.mode = mode, .layout = {CUDNN_DATA_HALF, Layout::kNhwc}, .factors = {-2, 0.25}});
    AddActivation(cases, {.mode = mode, .in_place = true});
  }
  AddActivation(cases, {.layout = {CUDNN_DATA_DOUBLE}, .factors = {0.5, 0}});
  AddActivation(cases, {.layout = {CUDNN_DATA_BFLOAT16, Layout::kNchw, 1}, .factors = {1, 1}});
  AddActivation(cases, {.fill = "special"});
  AddActivation(cases, {.nan = CUDNN_PROPAGATE_NAN, .fill = "special"});
  return cases;
}

std::vector<LegacyCase> PoolingCases() {
  std::vector<LegacyCase> cases;
  for (const auto mode :
       {CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
        CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, CUDNN_POOLING_MAX_DETERMINISTIC}) {
    AddPool(cases, {.mode = mode});
    AddPool(cases,
            {.mode = mode, .layout = {CUDNN_DATA_HALF, Layout::kNhwc}, .factors = {-2, 0.25}});
    AddPool(cases, {.mode = mode, .layout = {CUDNN_DATA_INT8}}, false);
    AddPool(cases, {.mode = mode,
                    .layout = {CUDNN_DATA_DOUBLE},
                    .x = {2, 3, 5, 6, 7},
                    .window = {2, 2, 3},
                    .padding = {0, 1, 1},
                    .stride = {1, 2, 2}});
    // Fewer windows than fit, and more.
    AddPool(cases, {.mode = mode, .y = {2, 3, 2, 5}, .not_nvidia = true});
    AddPool(cases, {.mode = mode, .y = {2, 3, 4, 9}, .not_nvidia = true});
    AddPool(cases, {.mode = mode, .padding = {-1, -2}, .not_nvidia = true});
    AddPool(cases, {.mode = mode, .x = {2, 16, 8, 9}, .window = {3, 3}, .stride = {2, 2}});
    AddPool(cases, {.mode = mode, .layout = {CUDNN_DATA_BFLOAT16, Layout::kGaps}});
  }
  for (const auto nan : {CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN})
    AddPool(cases, {.nan = nan, .fill = "special"});
  AddPool(cases, {.fill = "int"});
  return cases;
}

}  // namespace kiln::testing
