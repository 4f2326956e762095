// cudnnTransformTensor, cudnnAddTensor, cudnnOpTensor, cudnnScaleTensor, cudnnSetTensor.
#include <algorithm>
#include <cmath>

#include "tests/numerics/legacy_cases.h"

namespace kiln::testing {

std::string LegacyContext::Done(cudnnStatus_t status) const {
  if (status != CUDNN_STATUS_SUCCESS) {
    char text[512] = "";
    client.LastError(text, sizeof text);
    return "status " + std::to_string(status) + " " + text;
  }
  return device.Synchronize();
}

std::string Text(const Layout& layout) {
  constexpr const char* kOrders[] = {"nchw", "nhwc", "gaps", "vectors"};
  constexpr const char* kTypes[] = {"f32",  "f64", "f16",  "i8",    "i32",
                                    "i8x4", "u8",  "u8x4", "i8x32", "bf16"};
  return std::string(kTypes[layout.type]) + "_" + kOrders[layout.order] +
         (layout.misaligned > 0 ? "_misaligned" : "");
}

std::string Text(const oracle::Dims& dims) {
  std::string text;
  for (const int64_t n : dims) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text;
}

std::string Text(const Factors& f) {
  return "a" + std::to_string(f.alpha).substr(0, 4) + "_b" + std::to_string(f.beta).substr(0, 4);
}

std::string FirstOf(std::initializer_list<std::string> errors) {
  for (const std::string& error : errors) {
    if (!error.empty()) return error;
  }
  return "";
}

namespace {

using oracle::Dims;

LegacyCase Transform(const Layout& from, const Layout& to, const Dims& dims, const Factors& f) {
  return {"transform/" + Text(from) + "_to_" + Text(to) + "_" + Text(dims) + "_" + Text(f),
          [=](const LegacyContext& c) -> std::string {
            const LegacyTensor x = c.Tensor(from, dims, 1), y = c.Tensor(to, dims, 2);
            const Factor alpha(f.alpha, to.type), beta(f.beta, to.type);
            const cudnnStatus_t status =
                KILN_CALL(c.client, cudnnTransformTensor, c.handle, alpha.get(), x.desc(), x.data(),
                          beta.get(), y.desc(), y.data());
            const Dense expected =
                Blended(x.Before(), f.alpha, f.beta, y.Before(), FactorType(to.type));
            return FirstOf({c.Done(status), y.Check(expected), x.CheckUnchanged()});
          }};
}

LegacyCase Add(const Layout& layout, const Dims& a, const Dims& c_dims, const Factors& f) {
  return {"add/" + Text(layout) + "_" + Text(a) + "_to_" + Text(c_dims) + "_" + Text(f),
          [=](const LegacyContext& c) -> std::string {
            const LegacyTensor x = c.Tensor({.type = layout.type}, a, 1),
                               y = c.Tensor(layout, c_dims, 2);
            const Factor alpha(f.alpha, layout.type), beta(f.beta, layout.type);
            const cudnnStatus_t status =
                KILN_CALL(c.client, cudnnAddTensor, c.handle, alpha.get(), x.desc(), x.data(),
                          beta.get(), y.desc(), y.data());
            const Dense expected = Blended(Broadcast(x.Before(), c_dims), f.alpha, f.beta,
                                           y.Before(), FactorType(layout.type));
            return FirstOf({c.Done(status), y.Check(expected), x.CheckUnchanged()});
          }};
}

struct OpTensorCase {
  cudnnOpTensorOp_t op = CUDNN_OP_TENSOR_ADD;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  Layout a = {}, b = {}, c = {};
  Dims b_dims = {2, 3, 5, 7};
  double alpha1 = 1, alpha2 = 1, beta = 0;
  std::string fill = "uniform";
};

double Compute(const OpTensorCase& o, double a, double b) {
  const bool drops = o.nan == CUDNN_NOT_PROPAGATE_NAN;
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (o.op) {
    case CUDNN_OP_TENSOR_ADD:
      return a + b;
    case CUDNN_OP_TENSOR_MUL:
      return a * b;
    case CUDNN_OP_TENSOR_MIN:
      return nan && !drops ? NAN : std::fmin(a, b);
    case CUDNN_OP_TENSOR_MAX:
      return nan && !drops ? NAN : std::fmax(a, b);
    case CUDNN_OP_TENSOR_SQRT:
      return std::sqrt(a);
    default:
      return 1 - a;
  }
}

Dense Expected(const OpTensorCase& o, const Dense& a, const Dense& b, const Dense& prior) {
  const oracle::DType compute = FactorType(o.c.type);
  const double u = oracle::UnitRoundoff(compute);
  Dense y = a;
  for (size_t i = 0; i < y.values.size(); ++i) {
    const double left = o.alpha1 * a.values[i].v, right = o.alpha2 * b.values[i].v;
    y.values[i].v = Compute(o, left, right);
    // Each operand is rounded once, and the result.
    y.values[i].e = u * (std::fabs(left) + std::fabs(right) + 2 * std::fabs(left * right) +
                         2 * std::fabs(y.values[i].v) + 1);
    if (o.alpha1 == 1 && o.alpha2 == 1 &&
        (o.op == CUDNN_OP_TENSOR_MIN || o.op == CUDNN_OP_TENSOR_MAX))
      y.values[i].e = 0;
    if (!std::isfinite(y.values[i].v)) y.values[i].e = 0;
  }
  return Blended(y, 1, o.beta, prior, compute);
}

LegacyCase Op(const OpTensorCase& o) {
  constexpr const char* kNames[] = {"add", "mul", "min", "max", "sqrt", "not"};
  const Dims dims = {2, 3, 5, 7};
  std::string name = std::string("op/") + kNames[o.op] + "_" + Text(o.a) + "_" + Text(o.b) + "_" +
                     Text(o.c) + "_" + Text(o.b_dims) + "_" + o.fill;
  for (const double v : {o.alpha1, o.alpha2, o.beta}) name += "_" + std::to_string(v).substr(0, 4);
  if (o.nan == CUDNN_PROPAGATE_NAN) name += "_nan";
  return {name, [=](const LegacyContext& c) -> std::string {
            auto op = c.client.New<cudnnOpTensorDescriptor_t>("OpTensor");
            KILN_CALL(c.client, cudnnSetOpTensorDescriptor, op, o.op, o.compute, o.nan);
            const std::string fill = o.op == CUDNN_OP_TENSOR_SQRT ? "pos" : o.fill;
            const LegacyTensor a = c.Tensor(o.a, dims, 1, fill), b = c.Tensor(o.b, o.b_dims, 2),
                               y = c.Tensor(o.c, dims, 3);
            const Factor alpha1(o.alpha1, o.c.type), alpha2(o.alpha2, o.c.type),
                beta(o.beta, o.c.type);
            const cudnnStatus_t status =
                KILN_CALL(c.client, cudnnOpTensor, c.handle, op, alpha1.get(), a.desc(), a.data(),
                          alpha2.get(), b.desc(), b.data(), beta.get(), y.desc(), y.data());
            const Dense expected = Expected(o, a.Before(), Broadcast(b.Before(), dims), y.Before());
            return FirstOf(
                {c.Done(status), y.Check(expected, 1), a.CheckUnchanged(), b.CheckUnchanged()});
          }};
}

LegacyCase Scale(const Layout& layout, const Dims& dims, double factor) {
  return {"scale/" + Text(layout) + "_" + Text(dims) + "_" + std::to_string(factor),
          [=](const LegacyContext& c) -> std::string {
            const LegacyTensor y = c.Tensor(layout, dims, 1);
            const Factor alpha(factor, layout.type);
            const cudnnStatus_t status =
                KILN_CALL(c.client, cudnnScaleTensor, c.handle, y.desc(), y.data(), alpha.get());
            const Dense expected =
                Blended(y.Before(), factor, 0, y.Before(), FactorType(layout.type));
            return FirstOf({c.Done(status), y.Check(expected)});
          }};
}

LegacyCase Set(const Layout& layout, const Dims& dims, double value) {
  return {"set/" + Text(layout) + "_" + Text(dims) + "_" + std::to_string(value),
          [=](const LegacyContext& c) -> std::string {
            const LegacyTensor y = c.Tensor(layout, dims, 1);
            uint8_t bytes[8] = {};
            const bool whole = layout.type == CUDNN_DATA_INT32;
            oracle::Encode(whole ? oracle::DType::kI32 : FactorType(layout.type), value, bytes);
            const cudnnStatus_t status = KILN_CALL(c.client, cudnnSetTensor, c.handle, y.desc(),
                                                   y.data(), static_cast<const void*>(bytes));
            const Dense expected = Dense::Of(
                dims, std::vector<double>(static_cast<size_t>(oracle::Count(dims)), value));
            return FirstOf({c.Done(status), y.Check(expected)});
          }};
}

void AddTransforms(std::vector<LegacyCase>& cases) {
  const Dims dims = {2, 5, 3, 7}, wide = {2, 64, 3, 5};
  for (const auto type : {CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_DOUBLE}) {
    for (const auto from : {Layout::kNchw, Layout::kNhwc}) {
      for (const Factors& f : kFactors) {
        const auto to = from == Layout::kNchw ? Layout::kNhwc : Layout::kGaps;
        cases.push_back(Transform({type, from}, {type, to}, dims, f));
      }
    }
  }
  cases.push_back(
      Transform({CUDNN_DATA_BFLOAT16, Layout::kNchw}, {CUDNN_DATA_BFLOAT16}, dims, {-2, 0.25}));
  cases.push_back(Transform({CUDNN_DATA_INT32, Layout::kNchw}, {CUDNN_DATA_INT32, Layout::kNhwc},
                            dims, {1, 0}));
  cases.push_back(Transform({CUDNN_DATA_FLOAT, Layout::kNchw, 1},
                            {CUDNN_DATA_FLOAT, Layout::kNchw, 3}, dims, {1, 0}));
  cases.push_back(
      Transform({CUDNN_DATA_FLOAT}, {CUDNN_DATA_FLOAT, Layout::kNhwc}, {2, 5, 3, 4, 6}, {1, 0}));
  for (const auto type : {CUDNN_DATA_INT8x4, CUDNN_DATA_INT8x32}) {
    cases.push_back(Transform({CUDNN_DATA_INT8}, {type, Layout::kVectors}, wide, {1, 0}));
    cases.push_back(
        Transform({type, Layout::kVectors}, {CUDNN_DATA_INT8, Layout::kNhwc}, wide, {1, 0}));
    cases.push_back(Transform({type, Layout::kVectors}, {CUDNN_DATA_INT8}, wide, {0.5, 1}));
  }
}

void AddOps(std::vector<LegacyCase>& cases) {
  const Layout f32 = {}, f16 = {CUDNN_DATA_HALF}, bf16 = {CUDNN_DATA_BFLOAT16},
               f64 = {CUDNN_DATA_DOUBLE}, i8 = {CUDNN_DATA_INT8};
  for (const auto op : {CUDNN_OP_TENSOR_ADD, CUDNN_OP_TENSOR_MUL, CUDNN_OP_TENSOR_MIN,
                        CUDNN_OP_TENSOR_MAX, CUDNN_OP_TENSOR_SQRT, CUDNN_OP_TENSOR_NOT}) {
    cases.push_back(Op({.op = op}));
    cases.push_back(
        Op({.op = op, .b_dims = {1, 3, 1, 1}, .alpha1 = 0.5, .alpha2 = 2, .beta = 0.25}));
  }
  const std::vector<std::array<Layout, 3>> types = {
      {i8, i8, f32}, {f16, f16, f32}, {bf16, bf16, f32}, {f32, f32, f16},   {f16, f16, f16},
      {i8, i8, i8},  {f32, f32, i8},  {f32, f32, bf16},  {bf16, bf16, bf16}};
  for (const auto& [a, b, c] : types) cases.push_back(Op({.a = a, .b = b, .c = c, .alpha2 = 3}));
  cases.push_back(
      Op({.compute = CUDNN_DATA_DOUBLE, .a = f64, .b = f64, .c = f64, .alpha1 = 0.1, .beta = 0.3}));
  for (const auto nan : {CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN}) {
    for (const auto op : {CUDNN_OP_TENSOR_MIN, CUDNN_OP_TENSOR_MAX})
      cases.push_back(Op({.op = op, .nan = nan, .fill = "special"}));
  }
  cases.push_back(
      Op({.a = {CUDNN_DATA_FLOAT, Layout::kNhwc}, .c = {CUDNN_DATA_FLOAT, Layout::kGaps}}));
}

}  // namespace

std::vector<LegacyCase> TensorOpCases() {
  std::vector<LegacyCase> cases;
  AddTransforms(cases);
  AddOps(cases);
  for (const Factors& f : kFactors) {
    cases.push_back(Add({}, {1, 5, 1, 1}, {2, 5, 3, 7}, f));
    cases.push_back(Add({CUDNN_DATA_HALF, Layout::kNhwc}, {1, 5, 1, 1}, {2, 5, 3, 7}, f));
  }
  cases.push_back(Add({}, {2, 5, 3, 7}, {2, 5, 3, 7}, {1, 1}));
  cases.push_back(Add({}, {1, 1, 3, 7}, {2, 5, 3, 7}, {1, 1}));
  cases.push_back(Add({}, {1, 1, 1, 1}, {2, 5, 3, 7}, {2, 0}));
  cases.push_back(Add({CUDNN_DATA_DOUBLE}, {1, 5, 1, 1, 1}, {2, 5, 3, 2, 4}, {1, 1}));
  for (const auto type :
       {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16}) {
    cases.push_back(Scale({type}, {2, 5, 3, 7}, 0.75));
    cases.push_back(Set({type}, {2, 5, 3, 7}, -1.5));
  }
  cases.push_back(Scale({CUDNN_DATA_FLOAT, Layout::kGaps, 1}, {2, 5, 3, 7}, 0));
  cases.push_back(Scale({CUDNN_DATA_FLOAT}, {2, 5, 3, 7}, 1));
  cases.push_back(Set({CUDNN_DATA_FLOAT, Layout::kGaps, 1}, {2, 5, 3, 7}, 0));
  cases.push_back(Set({CUDNN_DATA_INT8}, {2, 5, 3, 7}, -7));
  cases.push_back(Set({CUDNN_DATA_INT32, Layout::kNhwc}, {2, 5, 3, 7}, 1 << 30));
  return cases;
}

}  // namespace kiln::testing
