// Activation, softmax, pooling, LRN and batch normalisation of kiln/miopen.h, against the oracle or
// formulas in f64.
#include <algorithm>
#include <cmath>

#include "tests/miopen/client.h"

namespace kiln::testing {
namespace {

using oracle::Dims;
using oracle::DType;

constexpr double kUnit = 0x1p-24;  // of f32

class MiopenLayers : public MiopenTest {
 protected:
  Dense Apply(const char* mode, std::initializer_list<const Dense*> operands, const Dims& dims) {
    const std::vector<const Dense*> all(operands);
    return oracle::Pointwise(*oracle::FindPointwiseMode(mode), {}, all, dims, DType::kF32);
  }
};

// ---- activation

struct Parameters {
  double alpha, beta, power;
};
struct ActivationRow {
  miopenActivationMode_t mode;
  double (*value)(const Parameters&, double x);
  double (*slope)(const Parameters&, double x);
};
double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
constexpr ActivationRow kActivations[] = {
    {miopenActivationPASTHRU, [](const Parameters&, double x) { return x; },
     [](const Parameters&, double) { return 1.0; }},
    {miopenActivationLOGISTIC, [](const Parameters&, double x) { return Sigmoid(x); },
     [](const Parameters&, double x) { return Sigmoid(x) * Sigmoid(-x); }},
    {miopenActivationTANH,
     [](const Parameters& p, double x) { return p.beta * std::tanh(p.alpha * x); },
     [](const Parameters& p, double x) {
       return p.alpha * p.beta / std::pow(std::cosh(p.alpha * x), 2);
     }},
    {miopenActivationRELU, [](const Parameters&, double x) { return std::max(x, 0.0); },
     [](const Parameters&, double x) { return x > 0 ? 1.0 : 0.0; }},
    {miopenActivationSOFTRELU, [](const Parameters&, double x) { return std::log1p(std::exp(x)); },
     [](const Parameters&, double x) { return Sigmoid(x); }},
    {miopenActivationABS, [](const Parameters&, double x) { return std::fabs(x); },
     [](const Parameters&, double x) { return x > 0 ? 1.0 : -1.0; }},
    {miopenActivationPOWER,
     [](const Parameters& p, double x) {
       const double base = p.alpha + p.beta * x;
       return base > 0 ? std::pow(base, p.power) : 0;
     },
     [](const Parameters& p, double x) {
       const double base = p.alpha + p.beta * x;
       return base > 0 ? p.beta * p.power * std::pow(base, p.power - 1) : 0;
     }},
    {miopenActivationCLIPPEDRELU,
     [](const Parameters& p, double x) { return std::clamp(x, 0.0, p.alpha); },
     [](const Parameters& p, double x) { return x > 0 && x <= p.alpha ? 1.0 : 0.0; }},
    {miopenActivationLEAKYRELU,
     [](const Parameters& p, double x) { return x > 0 ? x : p.alpha * x; },
     [](const Parameters& p, double x) { return x > 0 ? 1.0 : p.alpha; }},
    {miopenActivationELU,
     [](const Parameters& p, double x) { return x > 0 ? x : p.alpha * std::expm1(x); },
     [](const Parameters& p, double x) { return x > 0 ? 1.0 : p.alpha * std::exp(x); }},
};

// Powers magnify the errors of a base that is near 0, which none of these is.
constexpr Parameters kParameters = {0.75, 0.25, 1.5};

TEST_F(MiopenLayers, Activations) {
  miopenActivationDescriptor_t activation = nullptr;
  ASSERT_EQ(MIOPEN(CreateActivationDescriptor, &activation), miopenStatusSuccess);
  for (const ActivationRow& row : kActivations) {
    ASSERT_EQ(MIOPEN(SetActivationDescriptor, activation, row.mode, kParameters.alpha,
                     kParameters.beta, kParameters.power),
              miopenStatusSuccess);
    for (const miopenDataType_t type : {miopenFloat, miopenHalf, miopenBFloat16}) {
      for (const MiopenFactors f : kMiopenFactors) {
        SCOPED_TRACE("mode " + std::to_string(row.mode) + " type " + std::to_string(type) +
                     " beta " + std::to_string(f.beta));
        const Dims dims = {2, 3, 5, 7};
        const auto x = Tensor(dims, "uniform", type), y = Tensor(dims, "uniform", type),
                   dy = Tensor(dims, "uniform", type), dx = Tensor(dims, "uniform", type);
        Dense value = x->Before(), gradient = dy->Before();
        for (size_t i = 0; i < value.values.size(); ++i) {
          const double at = value.values[i].v, from = gradient.values[i].v;
          const double v = row.value(kParameters, at), d = from * row.slope(kParameters, at);
          value.values[i] = {v, kUnit * (32 * std::fabs(v) + 8 * (1 + std::fabs(at)))};
          gradient.values[i] = {d, kUnit * (32 * std::fabs(d) + 8 * std::fabs(from))};
        }
        Expect({MIOPEN(ActivationForward, handle_, activation, &f.alpha, x->desc(), x->data(),
                       &f.beta, y->desc(), y->data()),
                {y->Check(Blended(value, f.alpha, f.beta, y->Before(), DType::kF32)),
                 x->CheckUnchanged()}});
        Expect(
            {MIOPEN(ActivationBackward, handle_, activation, &f.alpha, y->desc(), y->data(),
                    dy->desc(), dy->data(), x->desc(), x->data(), &f.beta, dx->desc(), dx->data()),
             {dx->Check(Blended(gradient, f.alpha, f.beta, dx->Before(), DType::kF32)),
              dy->CheckUnchanged()}});
      }
    }
  }
  EXPECT_EQ(MIOPEN(DestroyActivationDescriptor, activation), miopenStatusSuccess);
}

TEST_F(MiopenLayers, ActivationsInPlace) {
  miopenActivationDescriptor_t relu = nullptr;
  ASSERT_EQ(MIOPEN(CreateActivationDescriptor, &relu), miopenStatusSuccess);
  ASSERT_EQ(MIOPEN(SetActivationDescriptor, relu, miopenActivationRELU, 0, 0, 0),
            miopenStatusSuccess);
  const auto x = Tensor({2, 3, 5, 7});
  Dense expected = x->Before();
  for (oracle::Value& value : expected.values) value.v = std::max(value.v, 0.0);
  Expect({MIOPEN(ActivationForward, handle_, relu, &kOne, x->desc(), x->data(), &kZero, x->desc(),
                 x->data()),
          {x->Check(expected)}});
  EXPECT_EQ(MIOPEN(DestroyActivationDescriptor, relu), miopenStatusSuccess);
}

TEST_F(MiopenLayers, ActivationMisuse) {
  miopenActivationDescriptor_t activation = nullptr;
  EXPECT_EQ(MIOPEN(CreateActivationDescriptor, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyActivationDescriptor, nullptr), miopenStatusBadParm);
  ASSERT_EQ(MIOPEN(CreateActivationDescriptor, &activation), miopenStatusSuccess);
  EXPECT_EQ(
      MIOPEN(SetActivationDescriptor, activation, static_cast<miopenActivationMode_t>(10), 1, 1, 1),
      miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(SetActivationDescriptor, nullptr, miopenActivationABS, 1, 1, 1),
            miopenStatusBadParm);
  ASSERT_EQ(MIOPEN(SetActivationDescriptor, activation, miopenActivationPOWER, 1, 2, 3),
            miopenStatusSuccess);
  miopenActivationMode_t mode = miopenActivationABS;
  double alpha = 0, beta = 0, power = 0;
  ASSERT_EQ(MIOPEN(GetActivationDescriptor, activation, &mode, &alpha, &beta, &power),
            miopenStatusSuccess);
  EXPECT_EQ(mode, miopenActivationPOWER);
  EXPECT_EQ((std::vector<double>{alpha, beta, power}), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(MIOPEN(GetActivationDescriptor, activation, nullptr, &alpha, &beta, &power),
            miopenStatusBadParm);
  const auto x = Tensor({2, 3, 5, 7}), other = Tensor({2, 3, 7, 5});
  EXPECT_EQ(MIOPEN(ActivationForward, handle_, activation, &kOne, x->desc(), x->data(), &kZero,
                   other->desc(), other->data()),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(ActivationForward, handle_, activation, &kOne, x->desc(), nullptr, &kZero,
                   x->desc(), x->data()),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(ActivationForward, handle_, nullptr, &kOne, x->desc(), x->data(), &kZero,
                   x->desc(), x->data()),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(ActivationBackward, handle_, activation, &kOne, x->desc(), x->data(), x->desc(),
                   nullptr, x->desc(), x->data(), &kZero, x->desc(), x->data()),
            miopenStatusBadParm);
  EXPECT_EQ(
      MIOPEN(ActivationBackward, handle_, activation, &kOne, x->desc(), x->data(), other->desc(),
             other->data(), x->desc(), x->data(), &kZero, x->desc(), x->data()),
      miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyActivationDescriptor, activation), miopenStatusSuccess);
}

// ---- softmax over channels, in steps of the oracle

TEST_F(MiopenLayers, Softmax) {
  const Dims dims = {2, 5, 3, 7}, one = {2, 1, 3, 7};
  for (const MiopenFactors f : kMiopenFactors) {
    const auto x = Tensor(dims, "span4"), y = Tensor(dims), dy = Tensor(dims), dx = Tensor(dims);
    const Dense xs = x->Before();
    const Dense largest = oracle::Reduction(oracle::Reduce::kMax, xs, one, DType::kF32);
    const Dense apart = Apply("sub", {&xs, &largest}, dims);
    const Dense powers = Apply("exp", {&apart}, dims);
    const Dense sum = oracle::Reduction(oracle::Reduce::kAdd, powers, one, DType::kF32);
    Expect({MIOPEN(SoftmaxForward, handle_, &f.alpha, x->desc(), x->data(), &f.beta, y->desc(),
                   y->data()),
            {y->Check(Blended(Apply("div", {&powers, &sum}, dims), f.alpha, f.beta, y->Before(),
                              DType::kF32)),
             x->CheckUnchanged()}});
    const auto p = Tensor(dims);  // any numbers may stand for the result
    const Dense ps = p->Before(), gradient = dy->Before();
    const Dense products = Apply("mul", {&ps, &gradient}, dims);
    const Dense total = oracle::Reduction(oracle::Reduce::kAdd, products, one, DType::kF32);
    const Dense weighed = Apply("mul", {&ps, &total}, dims);
    Dense expected = Apply("sub", {&products, &weighed}, dims);
    // y * (dy - sum) in place of that rounds otherwise.
    for (size_t i = 0; i < expected.values.size(); ++i)
      expected.values[i].e +=
          4 * kUnit * (std::fabs(products.values[i].v) + std::fabs(weighed.values[i].v));
    Expect({MIOPEN(SoftmaxBackward, handle_, &f.alpha, p->desc(), p->data(), dy->desc(), dy->data(),
                   &f.beta, dx->desc(), dx->data()),
            {dx->Check(Blended(expected, f.alpha, f.beta, dx->Before(), DType::kF32))}});
  }
  const auto x = Tensor(dims), y = Tensor(one);
  EXPECT_NE(
      MIOPEN(SoftmaxForward, handle_, &kOne, x->desc(), x->data(), &kZero, y->desc(), y->data()),
      miopenStatusSuccess);
  EXPECT_EQ(
      MIOPEN(SoftmaxForward, nullptr, &kOne, x->desc(), x->data(), &kZero, x->desc(), x->data()),
      miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(SoftmaxBackward, handle_, &kOne, x->desc(), x->data(), nullptr, x->data(),
                   &kZero, x->desc(), x->data()),
            miopenStatusBadParm);
}

// ---- pooling

TEST_F(MiopenLayers, Pooling) {
  using Mode = oracle::Window::Mode;
  constexpr Mode kModes[] = {Mode::kMax, Mode::kAvgExclude, Mode::kAvg};
  miopenPoolingDescriptor_t pool = nullptr;
  ASSERT_EQ(MIOPEN(CreatePoolingDescriptor, &pool), miopenStatusSuccess);
  for (const auto mode : {miopenPoolingMax, miopenPoolingAverage, miopenPoolingAverageInclusive}) {
    SCOPED_TRACE(mode);
    ASSERT_EQ(MIOPEN(Set2dPoolingDescriptor, pool, mode, 3, 2, 1, 0, 2, 1), miopenStatusSuccess);
    const auto x = Tensor({2, 3, 9, 8});
    int n = 0, c = 0, h = 0, w = 0;
    ASSERT_EQ(MIOPEN(GetPoolingForwardOutputDim, pool, x->desc(), &n, &c, &h, &w),
              miopenStatusSuccess);
    const Dims dims = {n, c, h, w};
    EXPECT_EQ(dims, (Dims{2, 3, 5, 7}));
    const oracle::Window window = {.mode = kModes[mode],
                                   .padding = mode == miopenPoolingMax
                                                  ? oracle::Window::Padding::kNegInf
                                                  : oracle::Window::Padding::kZero,
                                   .propagate_nan = true,
                                   .window = {3, 2},
                                   .stride = {2, 1},
                                   .pre_padding = {1, 0},
                                   .unit = {1, 1}};
    const auto y = Tensor(dims), dy = Tensor(dims), dx = Tensor(x->dims());
    size_t bytes = 1;
    ASSERT_EQ(MIOPEN(PoolingGetWorkSpaceSize, y->desc(), &bytes), miopenStatusSuccess);
    EXPECT_EQ(bytes, 0u);
    const Dense xs = x->Before();
    Expect(
        {MIOPEN(PoolingForward, handle_, pool, &kOne, x->desc(), x->data(), &kZero, y->desc(),
                y->data(), true, nullptr, bytes),
         {y->Check(oracle::WindowForward(window, xs, dims, DType::kF32).y), x->CheckUnchanged()}});
    const Dense gradient =
        oracle::WindowBackward(window, dy->Before(), nullptr, &xs, x->dims(), DType::kF32);
    Expect({MIOPEN(PoolingBackward, handle_, pool, &kHalf, y->desc(), y->data(), dy->desc(),
                   dy->data(), x->desc(), x->data(), &kTwo, dx->desc(), dx->data(), nullptr),
            {dx->Check(Blended(gradient, kHalf, kTwo, dx->Before(), DType::kF32))}});
  }
  miopenPoolingMode_t mode = miopenPoolingMax;
  int v[6] = {};
  ASSERT_EQ(MIOPEN(Get2dPoolingDescriptor, pool, &mode, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]),
            miopenStatusSuccess);
  EXPECT_EQ(mode, miopenPoolingAverageInclusive);
  EXPECT_EQ((std::vector<int>(v, v + 6)), (std::vector<int>{3, 2, 1, 0, 2, 1}));
  EXPECT_EQ(
      MIOPEN(Set2dPoolingDescriptor, pool, static_cast<miopenPoolingMode_t>(3), 3, 2, 1, 0, 2, 1),
      miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(Set2dPoolingDescriptor, pool, miopenPoolingMax, 0, 2, 1, 0, 2, 1),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(Get2dPoolingDescriptor, pool, nullptr, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5]),
            miopenStatusBadParm);
  const auto x = Tensor({2, 3, 9, 8});
  EXPECT_EQ(MIOPEN(GetPoolingForwardOutputDim, pool, x->desc(), nullptr, v, v, v),
            miopenStatusBadParm);
  const auto other = Tensor({2, 4, 5, 7});
  EXPECT_NE(MIOPEN(PoolingForward, handle_, pool, &kOne, x->desc(), x->data(), &kZero,
                   other->desc(), other->data(), false, nullptr, 0),
            miopenStatusSuccess);
  EXPECT_EQ(MIOPEN(PoolingBackward, handle_, nullptr, &kOne, x->desc(), x->data(), x->desc(),
                   x->data(), x->desc(), x->data(), &kZero, x->desc(), x->data(), nullptr),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(PoolingGetWorkSpaceSize, x->desc(), nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyPoolingDescriptor, pool), miopenStatusSuccess);
  EXPECT_EQ(MIOPEN(DestroyPoolingDescriptor, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(CreatePoolingDescriptor, nullptr), miopenStatusBadParm);
}

// ---- LRN: s[i] = k + alpha / window * sum of x[j]^2 around i; y = x * s^-beta

constexpr unsigned kN = 3;  // odd, so that i is around j where j is around i
constexpr double kAlpha = 0.5, kBeta = 0.75, kK = 1.5;

// Calls visit(j) for each element around i.
template <class F>
void Around(miopenLRNMode_t mode, const Dims& dims, const Dims& i, F&& visit) {
  const bool across = mode == miopenLRNCrossChannel;
  const Dims reach = across ? Dims{1, kN, 1, 1} : Dims{1, 1, kN, kN};
  Dims step(4, 0);
  do {
    Dims j = i;
    bool inside = true;
    for (size_t d = 0; d < 4; ++d) {
      j[d] += step[d] - reach[d] / 2;
      inside = inside && j[d] >= 0 && j[d] < dims[d];
    }
    if (inside) visit(oracle::BroadcastIndex(dims, j));
  } while (oracle::Next(reach, step));
}

TEST_F(MiopenLayers, Lrn) {
  miopenLRNDescriptor_t lrn = nullptr;
  ASSERT_EQ(MIOPEN(CreateLRNDescriptor, &lrn), miopenStatusSuccess);
  const Dims dims = {2, 7, 5, 6};
  for (const miopenLRNMode_t mode : {miopenLRNWithinChannel, miopenLRNCrossChannel}) {
    SCOPED_TRACE(mode);
    ASSERT_EQ(MIOPEN(SetLRNDescriptor, lrn, mode, kN, kAlpha, kBeta, kK), miopenStatusSuccess);
    const double scale = kAlpha / (mode == miopenLRNCrossChannel ? kN : kN * kN);
    const auto x = Tensor(dims), y = Tensor(dims), dy = Tensor(dims), dx = Tensor(dims);
    Dense value = x->Before(), gradient = dy->Before();
    const Dense xs = x->Before(), dys = dy->Before();
    std::vector<double> s;
    Dims at(4, 0);
    do {
      double sum = 0;
      Around(mode, dims, at, [&](size_t j) { sum += xs.values[j].v * xs.values[j].v; });
      s.push_back(kK + scale * sum);
    } while (oracle::Next(dims, at));
    at.assign(4, 0);
    size_t k = 0;
    do {
      double sum = 0, size = 0;
      Around(mode, dims, at, [&](size_t i) {
        const double term = dys.values[i].v * xs.values[i].v * std::pow(s[i], -kBeta - 1);
        sum += term, size += std::fabs(term);
      });
      const double v = xs.values[k].v * std::pow(s[k], -kBeta);
      const double direct = dys.values[k].v * std::pow(s[k], -kBeta),
                   factor = 2 * scale * kBeta * xs.values[k].v;
      value.values[k] = {v, 48 * kUnit * std::fabs(v)};
      gradient.values[k] = {direct - factor * sum,
                            64 * kUnit * (std::fabs(direct) + std::fabs(factor) * size)};
      ++k;
    } while (oracle::Next(dims, at));
    size_t bytes = 0;
    ASSERT_EQ(MIOPEN(LRNGetWorkSpaceSize, y->desc(), &bytes), miopenStatusSuccess);
    const Buffer workspace(*device_, bytes);
    Expect(
        {MIOPEN(LRNForward, handle_, lrn, &kHalf, x->desc(), x->data(), &kTwo, y->desc(), y->data(),
                false, nullptr),
         {y->Check(Blended(value, kHalf, kTwo, y->Before(), DType::kF32)), x->CheckUnchanged()}});
    Expect({MIOPEN(LRNBackward, handle_, lrn, &kHalf, y->desc(), y->data(), dy->desc(), dy->data(),
                   x->desc(), x->data(), &kTwo, dx->desc(), dx->data(), workspace.data()),
            {dx->Check(Blended(gradient, kHalf, kTwo, dx->Before(), DType::kF32))}});
  }
  EXPECT_EQ(MIOPEN(DestroyLRNDescriptor, lrn), miopenStatusSuccess);
}

TEST_F(MiopenLayers, LrnMisuse) {
  miopenLRNDescriptor_t lrn = nullptr;
  ASSERT_EQ(MIOPEN(CreateLRNDescriptor, &lrn), miopenStatusSuccess);
  EXPECT_EQ(MIOPEN(CreateLRNDescriptor, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyLRNDescriptor, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(SetLRNDescriptor, lrn, static_cast<miopenLRNMode_t>(2), kN, 1, 1, 1),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(SetLRNDescriptor, lrn, miopenLRNCrossChannel, 0, 1, 1, 1), miopenStatusBadParm);
  ASSERT_EQ(MIOPEN(SetLRNDescriptor, lrn, miopenLRNWithinChannel, kN, kAlpha, kBeta, kK),
            miopenStatusSuccess);
  miopenLRNMode_t mode = miopenLRNCrossChannel;
  unsigned n = 0;
  double alpha = 0, beta = 0, k = 0;
  ASSERT_EQ(MIOPEN(GetLRNDescriptor, lrn, &mode, &n, &alpha, &beta, &k), miopenStatusSuccess);
  EXPECT_EQ(mode, miopenLRNWithinChannel);
  EXPECT_EQ(n, kN);
  EXPECT_EQ((std::vector<double>{alpha, beta, k}), (std::vector<double>{kAlpha, kBeta, kK}));
  EXPECT_EQ(MIOPEN(GetLRNDescriptor, lrn, &mode, nullptr, &alpha, &beta, &k), miopenStatusBadParm);
  const auto x = Tensor({2, 3, 5, 7});
  EXPECT_EQ(MIOPEN(LRNForward, handle_, lrn, &kOne, x->desc(), x->data(), &kZero, x->desc(),
                   x->data(), false, nullptr),
            miopenStatusUnsupportedOp);  // in place
  EXPECT_EQ(MIOPEN(LRNBackward, handle_, lrn, &kOne, x->desc(), x->data(), x->desc(), x->data(),
                   x->desc(), x->data(), &kZero, x->desc(), x->data(), nullptr),
            miopenStatusBadParm);  // without its workspace
  EXPECT_EQ(MIOPEN(LRNGetWorkSpaceSize, nullptr, nullptr), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DestroyLRNDescriptor, lrn), miopenStatusSuccess);
}

// ---- batch normalisation

constexpr double kEpsilon = 1e-3, kFactor = 0.3;

TEST_F(MiopenLayers, BatchNormalization) {
  for (const miopenBatchNormMode_t mode : {miopenBNPerActivation, miopenBNSpatial}) {
    SCOPED_TRACE(mode);
    const auto x = Tensor({4, 3, 5, 7}), y = Tensor(x->dims()), dy = Tensor(x->dims()),
               dx = Tensor(x->dims());
    const Dims dims = mode == miopenBNSpatial ? Dims{1, 3, 1, 1} : Dims{1, 3, 5, 7};
    const auto scale = Tensor(dims), bias = Tensor(dims), rm = Tensor(dims),
               rv = Tensor(dims, "pos"), mean = Tensor(dims), inverse = Tensor(dims),
               ds = Tensor(dims), db = Tensor(dims);
    miopenTensorDescriptor_t derived = nullptr;
    ASSERT_EQ(MIOPEN(CreateTensorDescriptor, &derived), miopenStatusSuccess);
    ASSERT_EQ(MIOPEN(DeriveBNTensorDescriptor, derived, x->desc(), mode), miopenStatusSuccess);
    miopenDataType_t type = miopenHalf;
    int v[8] = {};
    ASSERT_EQ(MIOPEN(Get4dTensorDescriptor, derived, &type, &v[0], &v[1], &v[2], &v[3], &v[4],
                     &v[5], &v[6], &v[7]),
              miopenStatusSuccess);
    EXPECT_EQ(Dims(v, v + 4), dims);
    EXPECT_EQ(type, miopenFloat);

    const Dense xs = x->Before(), ss = scale->Before(), bs = bias->Before(), ms = rm->Before(),
                vs = rv->Before(), dys = dy->Before();
    const oracle::NormForwardResult r = oracle::NormForward({.mode = oracle::Norm::kBatch,
                                                             .x = &xs,
                                                             .scale = &ss,
                                                             .bias = &bs,
                                                             .running_mean = &ms,
                                                             .running_var = &vs,
                                                             .stats = dims,
                                                             .epsilon = kEpsilon,
                                                             .factor = kFactor},
                                                            DType::kF32);
    float one = 1, zero = 0;
    // Inference first, by the statistics from before.
    Dense expected = xs;
    const Dense s = Broadcast(ss, x->dims()), b = Broadcast(bs, x->dims()),
                m = Broadcast(ms, x->dims()), q = Broadcast(vs, x->dims());
    for (size_t i = 0; i < expected.values.size(); ++i) {
      const double factor = s.values[i].v / std::sqrt(kEpsilon + q.values[i].v),
                   at = xs.values[i].v, centre = m.values[i].v;
      expected.values[i] = {
          b.values[i].v + factor * (at - centre),
          8 * kUnit *
              (std::fabs(b.values[i].v) + std::fabs(factor) * (std::fabs(at) + std::fabs(centre)))};
    }
    Expect({MIOPEN(BatchNormalizationForwardInference, handle_, mode, &one, &zero, x->desc(),
                   x->data(), y->desc(), y->data(), derived, scale->data(), bias->data(),
                   rm->data(), rv->data(), kEpsilon),
            {y->Check(expected), rm->CheckUnchanged(), rv->CheckUnchanged()}});
    Expect({MIOPEN(BatchNormalizationForwardTraining, handle_, mode, &one, &zero, x->desc(),
                   x->data(), y->desc(), y->data(), derived, scale->data(), bias->data(), kFactor,
                   rm->data(), rv->data(), kEpsilon, mean->data(), inverse->data()),
            {y->Check(r.y), rm->Check(r.next_mean), rv->Check(r.next_var), mean->Check(r.mean),
             inverse->Check(r.inv_variance)}});
    const oracle::NormBackwardResult g = oracle::NormBackward({.x = &xs,
                                                               .dy = &dys,
                                                               .mean = &r.mean,
                                                               .inv_variance = &r.inv_variance,
                                                               .scale = &ss,
                                                               .weights = dims},
                                                              DType::kF32);
    Expect({MIOPEN(BatchNormalizationBackward, handle_, mode, &one, &zero, &kHalf, &kTwo, x->desc(),
                   x->data(), dy->desc(), dy->data(), dx->desc(), dx->data(), derived,
                   scale->data(), ds->data(), db->data(), kEpsilon, mean->data(), inverse->data()),
            {dx->Check(g.dx), ds->Check(Blended(g.dscale, kHalf, kTwo, ds->Before(), DType::kF32)),
             db->Check(Blended(g.dbias, kHalf, kTwo, db->Before(), DType::kF32))}});
    EXPECT_EQ(MIOPEN(DestroyTensorDescriptor, derived), miopenStatusSuccess);
  }
}

TEST_F(MiopenLayers, BatchNormalizationMisuse) {
  const auto x = Tensor({4, 3, 5, 7}), p = Tensor({1, 3, 1, 1});
  float one = 1, zero = 0;
  constexpr auto kNoMode = static_cast<miopenBatchNormMode_t>(2);
  EXPECT_EQ(MIOPEN(DeriveBNTensorDescriptor, p->desc(), x->desc(), kNoMode), miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(DeriveBNTensorDescriptor, nullptr, x->desc(), miopenBNSpatial),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(BatchNormalizationForwardInference, handle_, kNoMode, &one, &zero, x->desc(),
                   x->data(), x->desc(), x->data(), p->desc(), p->data(), p->data(), p->data(),
                   p->data(), kEpsilon),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(BatchNormalizationForwardTraining, handle_, kNoMode, &one, &zero, x->desc(),
                   x->data(), x->desc(), x->data(), p->desc(), p->data(), p->data(), kFactor,
                   nullptr, nullptr, kEpsilon, nullptr, nullptr),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(BatchNormalizationBackward, handle_, kNoMode, &one, &zero, &one, &zero,
                   x->desc(), x->data(), x->desc(), x->data(), x->desc(), x->data(), p->desc(),
                   p->data(), p->data(), p->data(), kEpsilon, nullptr, nullptr),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(BatchNormalizationForwardTraining, handle_, miopenBNSpatial, &one, &zero,
                   nullptr, x->data(), x->desc(), x->data(), p->desc(), p->data(), p->data(),
                   kFactor, nullptr, nullptr, kEpsilon, nullptr, nullptr),
            miopenStatusBadParm);
  EXPECT_EQ(MIOPEN(BatchNormalizationForwardInference, handle_, miopenBNSpatial, &one, &zero,
                   x->desc(), nullptr, x->desc(), x->data(), p->desc(), p->data(), p->data(),
                   p->data(), p->data(), kEpsilon),
            miopenStatusBadParm);
}

}  // namespace
}  // namespace kiln::testing
