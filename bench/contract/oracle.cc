// One function an operation; sums go through Sum, which keeps the bound.
#include "bench/contract/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln::bench {
namespace {

using oracle::Dims;
using oracle::DType;
using oracle::Value;
using testing::CaseOp;
using testing::CaseTensor;

// A sum of products with its error bound. `narrow` is the relative error with which the hardware
// takes a product; such errors have random signs.
class Sum {
 public:
  void Add(const Value& a, const Value& b) {
    const double term = a.v * b.v;
    sum_ += term;
    magnitude_ += std::fabs(term);
    error_ += std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e;
    terms_ += 1;
  }
  Value Result(DType compute, double narrow) const {
    const double growth = std::min(terms_, 4 + 2 * std::sqrt(terms_));
    double error = error_ + oracle::UnitRoundoff(compute) * growth * magnitude_;
    if (terms_ > 0) error += narrow * growth / terms_ * magnitude_;
    return oracle::Finish(sum_, error, compute);
  }

 private:
  double sum_ = 0, magnitude_ = 0, error_ = 0, terms_ = 0;
};

double NarrowOf(DType type, bool keeps_f32) {
  switch (type) {
    case DType::kF32:
      return keeps_f32 ? 0 : 0x1p-10;  // both operands rounded to 11 bits
    case DType::kE4M3:
    case DType::kE5M2:
      return 0x1p-10;  // sums of tensor cores keep 14 bits
    default:
      return 0;
  }
}

int64_t OffsetOf(const CaseTensor& tensor, const Dims& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * tensor.strides[i];
  return offset;
}

struct Geometry {
  Dims pad, stride, dilation;
  explicit Geometry(const CaseOp& op, size_t spatial)
      : pad(op.List("pad", Dims(spatial, 0))),
        stride(op.List("stride", Dims(spatial, 1))),
        dilation(op.List("dilation", Dims(spatial, 1))) {}
};

}  // namespace

SampleOracle::SampleOracle(const Problem& problem, const ProblemData& data)
    : case_(problem.graph), data_(data), keeps_f32_(problem.keeps_f32) {}

const CaseOp* SampleOracle::ProducerOf(int tensor) const {
  for (const CaseOp& op : case_.ops) {
    if (std::ranges::count(op.outputs, tensor) > 0) return &op;
  }
  return nullptr;
}

double SampleOracle::CostOf(int tensor) const {
  constexpr double kNoRule = std::numeric_limits<double>::infinity();
  const CaseOp* op = ProducerOf(tensor);
  if (op == nullptr) return 1;
  for (const char* attribute : {"flip", "alpha", "beta", "post"}) {
    if (op->Has(attribute)) return kNoRule;
  }
  double terms = 1;
  if (IsContraction(*op)) {
    if (op->inputs.size() > 2) return kNoRule;
    terms = TermsOf(case_, *op);
  } else if (op->name == "gen_stats") {
    const CaseTensor& x = Tensor(op->inputs[0]);
    terms = static_cast<double>(oracle::Count(x.dims) / x.dims[1]);
  } else if (oracle::FindPointwiseMode(op->name) == nullptr || op->name == "gen_index") {
    return kNoRule;
  }
  double cost = 0;
  for (const int input : op->inputs) cost += CostOf(input);
  return terms * cost;
}

Value SampleOracle::Read(int tensor, const Dims& index) const {
  const CaseTensor& row = Tensor(tensor);
  if (row.by_value) return {.v = oracle::Round(row.dtype, *row.by_value)};
  if (!case_.Produces(tensor)) return {.v = data_.At(tensor, OffsetOf(row, index))};
  const oracle::Dense raw{.dims = {1}, .values = {At(tensor, index)}};
  return oracle::RoundTo(row.dtype, raw).values[0];
}

Value SampleOracle::At(int tensor, const Dims& index) const {
  const CaseOp& op = *ProducerOf(tensor);
  if (op.name == "matmul") return Matmul(op, index);
  if (op.name == "conv_fprop") return Fprop(op, index);
  if (op.name == "conv_dgrad") return Dgrad(op, index);
  if (op.name == "conv_wgrad") return Wgrad(op, index);
  if (op.name == "gen_stats") return GenStats(op, tensor, index);
  return Pointwise(op, index);
}

Value SampleOracle::Pointwise(const CaseOp& op, const Dims& index) const {
  std::vector<oracle::Dense> operands;
  for (const int input : op.inputs) {
    const Dims& dims = Tensor(input).dims;
    Dims at(index.end() - static_cast<int64_t>(dims.size()), index.end());
    for (size_t i = 0; i < at.size(); ++i) at[i] = dims[i] == 1 ? 0 : at[i];
    operands.push_back({.dims = {1}, .values = {Read(input, at)}});
  }
  std::vector<const oracle::Dense*> pointers;
  for (const auto& operand : operands) pointers.push_back(&operand);
  const oracle::PointwiseParams params{.alpha1 = op.Number("alpha1", 1),
                                       .alpha2 = op.Number("alpha2", 1),
                                       .relu_lower = op.Number("lower", 0),
                                       .relu_upper = op.Number("upper", 1e300),
                                       .relu_slope = op.Number("slope", 0),
                                       .elu_alpha = op.Number("elu_alpha", 1),
                                       .softplus_beta = op.Number("softplus_beta", 1),
                                       .swish_beta = op.Number("swish_beta", 1)};
  return oracle::Pointwise(*oracle::FindPointwiseMode(op.name), params, pointers, {1}, op.Compute())
      .values[0];
}

Value SampleOracle::Matmul(const CaseOp& op, const Dims& index) const {
  const Dims &a_dims = Tensor(op.inputs[0]).dims, &b_dims = Tensor(op.inputs[1]).dims;
  const Dims& c_dims = Tensor(op.outputs[0]).dims;
  const size_t rank = index.size();
  Dims a = index, b = index;
  for (size_t i = 0; i + 2 < rank; ++i) {
    a[i] = index[i] * a_dims[i] / c_dims[i];
    b[i] = index[i] * b_dims[i] / c_dims[i];
  }
  Sum sum;
  for (int64_t k = 0; k < a_dims[rank - 1]; ++k) {
    a[rank - 1] = b[rank - 2] = k;
    sum.Add(Read(op.inputs[0], a), Read(op.inputs[1], b));
  }
  return sum.Result(op.Compute(), NarrowOf(Tensor(op.inputs[0]).dtype, keeps_f32_));
}

// y[n,k,p…] = Σ x[n,c,p·stride − pad + r·dilation] w[k,c,r…]
Value SampleOracle::Fprop(const CaseOp& op, const Dims& y) const {
  const Dims &x_dims = Tensor(op.inputs[0]).dims, &w_dims = Tensor(op.inputs[1]).dims;
  const size_t rank = y.size();
  const Geometry g(op, rank - 2);
  const int64_t groups = x_dims[1] / w_dims[1], filters = w_dims[0] / groups;
  Dims x = y, w(rank, 0);
  w[0] = y[1];
  const Dims taps(w_dims.begin() + 1, w_dims.end());  // c, r…
  Dims tap(taps.size(), 0);
  Sum sum;
  do {
    bool inside = true;
    for (size_t i = 2; i < rank; ++i) {
      x[i] = y[i] * g.stride[i - 2] - g.pad[i - 2] + tap[i - 1] * g.dilation[i - 2];
      inside &= x[i] >= 0 && x[i] < x_dims[i];
    }
    if (!inside) continue;
    x[1] = y[1] / filters * w_dims[1] + tap[0];
    std::copy(tap.begin(), tap.end(), w.begin() + 1);
    sum.Add(Read(op.inputs[0], x), Read(op.inputs[1], w));
  } while (oracle::Next(taps, tap));
  return sum.Result(op.Compute(), NarrowOf(Tensor(op.inputs[0]).dtype, keeps_f32_));
}

// dx[n,c,h…] = Σ dy[n,k,p…] w[k,c,r…] over k of c's group and p·stride − pad + r·dilation = h
Value SampleOracle::Dgrad(const CaseOp& op, const Dims& dx) const {
  const Dims &dy_dims = Tensor(op.inputs[0]).dims, &w_dims = Tensor(op.inputs[1]).dims;
  const size_t rank = dx.size();
  const Geometry g(op, rank - 2);
  const int64_t groups = Tensor(op.outputs[0]).dims[1] / w_dims[1], filters = w_dims[0] / groups;
  Dims dy = dx, w(rank, 0);
  w[1] = dx[1] % w_dims[1];
  Dims taps(w_dims.begin() + 1, w_dims.end());
  taps[0] = filters;  // k, r…
  Dims tap(taps.size(), 0);
  Sum sum;
  do {
    bool inside = true;
    for (size_t i = 2; i < rank; ++i) {
      const int64_t at = dx[i] + g.pad[i - 2] - tap[i - 1] * g.dilation[i - 2];
      inside &= at >= 0 && at % g.stride[i - 2] == 0 && at / g.stride[i - 2] < dy_dims[i];
      dy[i] = at / g.stride[i - 2];
      w[i] = tap[i - 1];
    }
    if (!inside) continue;
    dy[1] = w[0] = dx[1] / w_dims[1] * filters + tap[0];
    sum.Add(Read(op.inputs[0], dy), Read(op.inputs[1], w));
  } while (oracle::Next(taps, tap));
  return sum.Result(op.Compute(), NarrowOf(Tensor(op.inputs[0]).dtype, keeps_f32_));
}

// dw[k,c,r…] = Σ x[n,c,p·stride − pad + r·dilation] dy[n,k,p…] over n and p
Value SampleOracle::Wgrad(const CaseOp& op, const Dims& dw) const {
  const Dims &x_dims = Tensor(op.inputs[0]).dims, &dy_dims = Tensor(op.inputs[1]).dims;
  const Dims& dw_dims = Tensor(op.outputs[0]).dims;
  const size_t rank = dw.size();
  const Geometry g(op, rank - 2);
  const int64_t groups = x_dims[1] / dw_dims[1], filters = dw_dims[0] / groups;
  Dims pixels = dy_dims;
  pixels[1] = 1;  // n, p…
  Dims dy(rank, 0), x(rank, 0), at(rank, 0);
  Sum sum;
  do {
    bool inside = true;
    for (size_t i = 2; i < rank; ++i) {
      x[i] = dy[i] * g.stride[i - 2] - g.pad[i - 2] + dw[i] * g.dilation[i - 2];
      inside &= x[i] >= 0 && x[i] < x_dims[i];
    }
    if (!inside) continue;
    x[0] = dy[0];
    x[1] = dw[0] / filters * dw_dims[1] + dw[1];
    at = dy;
    at[1] = dw[0];
    sum.Add(Read(op.inputs[0], x), Read(op.inputs[1], at));
  } while (oracle::Next(pixels, dy));
  return sum.Result(op.Compute(), NarrowOf(Tensor(op.inputs[0]).dtype, keeps_f32_));
}

Value SampleOracle::GenStats(const CaseOp& op, int tensor, const Dims& index) const {
  Dims pixels = Tensor(op.inputs[0]).dims;
  pixels[1] = 1;
  Dims pixel(pixels.size(), 0), at(pixels.size(), 0);
  const bool squares = op.outputs[1] == tensor;
  Sum sum;
  do {
    at = pixel;
    at[1] = index[1];
    const Value x = Read(op.inputs[0], at);
    sum.Add(x, squares ? x : Value{.v = 1});
  } while (oracle::Next(pixels, pixel));
  return sum.Result(op.Compute(), 0);
}

}  // namespace kiln::bench
