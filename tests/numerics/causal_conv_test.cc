// cudnnCausalConv1d{Forward,Backward} and their Nwh forms on either device, against plain loops:
//
//   a[n,c,l] = b[c] + sum over k of w[c,k] x[n, c, l - (K-1) + k],   y = a or a / (1 + e^-a)
//
// and the derivatives of that, those of w and b added to what was there.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <thread>

#include "tests/numerics/guarded_tensor.h"
#include "tests/support/legacy_run.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

enum class Order : uint8_t { kPlaces, kChannels };

struct Problem {
  int n = 1, c = 1, l = 1, k = 1;
  Order order = Order::kPlaces;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool silu = true, bias = true;

  cudnnDataType_t gradient_type() const {
    return type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  }
  cudnnCausalConv1dActivation_t activation() const {
    return silu ? CUDNN_CAUSAL_CONV1D_ACTIVATION_SILU : CUDNN_CAUSAL_CONV1D_ACTIVATION_IDENTITY;
  }
  Dims image() const { return {n, c, l}; }
  Dims image_strides() const {
    if (order == Order::kPlaces) return {int64_t{c} * l, l, 1};
    return {int64_t{c} * l, 1, c};
  }
  Dims filter() const { return {c, k}; }
  Dims filter_strides() const { return order == Order::kPlaces ? Dims{k, 1} : Dims{1, c}; }
  std::string Text() const {
    return fmt::format("x[{},{},{}] K {} type {}{}{}{}", n, c, l, k, static_cast<int>(type),
                       order == Order::kPlaces ? "" : " nwh", silu ? " silu" : "",
                       bias ? " bias" : "");
  }
};

struct Operands {
  Operands(Device& device, const Problem& p, uint64_t seed)
      : x(device, p.type, p.image(), p.image_strides(), seed),
        w(device, p.type, p.filter(), p.filter_strides(), seed + 1),
        b(device, p.type, {p.c}, {1}, seed + 2),
        dy(device, p.type, p.image(), p.image_strides(), seed + 3) {}
  std::string CheckUnchanged() const {
    return x.CheckUnchanged() + w.CheckUnchanged() + b.CheckUnchanged() + dy.CheckUnchanged();
  }

  GuardedTensor x, w, b, dy;
};

// ---- what must be there

oracle::Value& At(Dense& t, int64_t i, int64_t j, int64_t k) {
  return t.values[static_cast<size_t>((i * t.dims[1] + j) * t.dims[2] + k)];
}

class Oracle {
 public:
  Oracle(const Problem& p, const Operands& o)
      : p_(p),
        o_(o),
        u_(oracle::UnitRoundoff(p.type == CUDNN_DATA_DOUBLE ? oracle::DType::kF64
                                                            : oracle::DType::kF32)) {}

  Dense Forward() const {
    Dense y = Zeros(p_.image());
    EachPlace([&](int n, int c, int l) {
      const oracle::Value a = Before(n, c, l);
      At(y, n, c, l) = a;
      if (!p_.silu) return;
      const double v = a.v / (1 + std::exp(-a.v));
      // The slope is at most 1.1; the exponential's argument and value are rounded.
      At(y, n, c, l) = {v, 1.1 * a.e + 16 * u_ * (1 + std::fabs(a.v)) * std::fabs(v)};
    });
    return y;
  }

  // Gradient of the operand of SiLU.
  Dense Gradient() const {
    Dense g = Zeros(p_.image());
    const double of_type = oracle::UnitRoundoff(ElementOf(p_.type));
    EachPlace([&](int n, int c, int l) {
      const double dy = o_.dy({n, c, l});
      At(g, n, c, l) = {dy, 0};
      if (!p_.silu) return;
      const oracle::Value a = Before(n, c, l);
      const double s = 1 / (1 + std::exp(-a.v)), v = dy * (s + a.v * s * (1 - s));
      // The slope's slope is at most a half; the gradient may be kept in the type of dy.
      const double e = std::fabs(dy) * (0.5 * a.e + 16 * u_ * (1 + std::fabs(a.v)));
      At(g, n, c, l) = {v, e + of_type * std::fabs(v) + (of_type > u_ ? 0x1p-24 : 0)};
    });
    return g;
  }

  Dense Dx(Dense g) const {
    Dense dx = Zeros(p_.image());
    EachPlace([&](int n, int c, int l) {
      Sum sum;
      // Place l is the tap k of the result that is K-1-k places later.
      for (int k = 0; k < p_.k; ++k) {
        const int later = l + p_.k - 1 - k;
        if (later < p_.l) sum.Add(o_.w({c, k}), At(g, n, c, later));
      }
      At(dx, n, c, l) = sum.Get(u_);
    });
    return dx;
  }

  Dense Dw(Dense g, const GuardedTensor& before) const {
    Dense dw = Zeros(p_.filter());
    for (int c = 0; c < p_.c; ++c) {
      for (int k = 0; k < p_.k; ++k) {
        Sum sum;
        sum.Add(before({c, k}), {1, 0});
        for (int n = 0; n < p_.n; ++n)
          for (int l = 0; l < p_.l; ++l) {
            const int from = l - (p_.k - 1) + k;
            if (from >= 0) sum.Add(o_.x({n, c, from}), At(g, n, c, l));
          }
        dw.values[static_cast<size_t>(c * p_.k + k)] = sum.Get(u_);
      }
    }
    return dw;
  }

  Dense Db(Dense g, const GuardedTensor& before) const {
    Dense db = Zeros({p_.c});
    for (int c = 0; c < p_.c; ++c) {
      Sum sum;
      sum.Add(before({c}), {1, 0});
      for (int n = 0; n < p_.n; ++n)
        for (int l = 0; l < p_.l; ++l) sum.Add(1, At(g, n, c, l));
      db.values[static_cast<size_t>(c)] = sum.Get(u_);
    }
    return db;
  }

 private:
  // A sum of products with exact numbers, in any order.
  struct Sum {
    double v = 0, e = 0, magnitude = 0;
    int terms = 0;
    void Add(double exact, const oracle::Value& value) {
      v += exact * value.v;
      e += std::fabs(exact) * value.e;
      magnitude += std::fabs(exact * value.v);
      ++terms;
    }
    oracle::Value Get(double u) const { return {v, e + u * (terms + 2) * magnitude}; }
  };

  static Dense Zeros(const Dims& dims) {
    return Dense::Of(dims, std::vector<double>(static_cast<size_t>(oracle::Count(dims))));
  }
  template <class Body>
  void EachPlace(Body&& body) const {
    for (int n = 0; n < p_.n; ++n)
      for (int c = 0; c < p_.c; ++c)
        for (int l = 0; l < p_.l; ++l) body(n, c, l);
  }
  oracle::Value Before(int n, int c, int l) const {
    Sum sum;
    if (p_.bias) sum.Add(o_.b({c}), {1, 0});
    for (int k = 0; k < p_.k; ++k) {
      const int from = l - (p_.k - 1) + k;
      if (from >= 0) sum.Add(o_.w({c, k}), {o_.x({n, c, from}), 0});
    }
    return sum.Get(u_);
  }

  const Problem& p_;
  const Operands& o_;
  const double u_;
};

// ---- calls

class CausalConvTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    library_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  static void TearDownTestSuite() { device_.reset(); }

  static cudnnStatus_t Forward(const Device& device, const Problem& p, const void* x, const void* w,
                               const void* b, void* y) {
    LegacyClient client(library_);
    auto* const stream = static_cast<cudaStream_t>(device.stream());
    if (p.order == Order::kPlaces)
      return KILN_CALL(client, cudnnCausalConv1dForward, stream, x, w, b, y, p.n, p.c, p.l, p.k,
                       p.type, p.activation());
    return KILN_CALL(client, cudnnCausalConv1dNwhForward, stream, x, w, b, y, p.n, p.c, p.l, p.k,
                     p.type, p.activation());
  }
  struct Gradients {
    void *dx, *dw, *db;
  };
  static cudnnStatus_t Backward(const Device& device, const Problem& p, const void* x,
                                const void* w, const void* b, const void* dy,
                                const Gradients& out) {
    LegacyClient client(library_);
    auto* const stream = static_cast<cudaStream_t>(device.stream());
    if (p.order == Order::kPlaces)
      return KILN_CALL(client, cudnnCausalConv1dBackward, stream, x, w, b, dy, out.dx, out.dw,
                       out.db, p.n, p.c, p.l, p.k, p.type, p.gradient_type(), p.activation());
    return KILN_CALL(client, cudnnCausalConv1dNwhBackward, stream, x, w, b, dy, out.dx, out.dw,
                     out.db, p.n, p.c, p.l, p.k, p.type, p.gradient_type(), p.activation());
  }
  static std::string Words() {
    LegacyClient client(library_);
    char text[400] = "";
    client.LastError(text, sizeof text);
    return text;
  }

  static void TestForward(Device& device, const Problem& p) {
    const Operands o(device, p, 11);
    const GuardedTensor y(device, p.type, p.image(), p.image_strides(), {});
    ASSERT_EQ(Forward(device, p, o.x.data(), o.w.data(), p.bias ? o.b.data() : nullptr, y.data()),
              CUDNN_STATUS_SUCCESS)
        << p.Text() << ": " << Words();
    EXPECT_EQ(device.Synchronize(), "");
    EXPECT_EQ(y.Check(Oracle(p, o).Forward()), "") << "y of " << p.Text();
    EXPECT_EQ(o.CheckUnchanged(), "") << p.Text();
  }
  static void TestBackward(Device& device, const Problem& p) {
    const Operands o(device, p, 23);
    const GuardedTensor dx(device, p.type, p.image(), p.image_strides(), {});
    const GuardedTensor dw(device, p.gradient_type(), p.filter(), p.filter_strides(), 5);
    const GuardedTensor db(device, p.gradient_type(), {p.c}, {1}, 6);
    ASSERT_EQ(Backward(device, p, o.x.data(), o.w.data(), p.bias ? o.b.data() : nullptr,
                       o.dy.data(), {dx.data(), dw.data(), p.bias ? db.data() : nullptr}),
              CUDNN_STATUS_SUCCESS)
        << p.Text() << ": " << Words();
    EXPECT_EQ(device.Synchronize(), "");
    const Oracle oracle(p, o);
    const Dense gradient = oracle.Gradient();
    EXPECT_EQ(dx.Check(oracle.Dx(gradient)), "") << "dx of " << p.Text();
    EXPECT_EQ(dw.Check(oracle.Dw(gradient, dw)), "") << "dweight of " << p.Text();
    EXPECT_EQ(p.bias ? db.Check(oracle.Db(gradient, db)) : db.CheckUnchanged(), "")
        << "dbias of " << p.Text();
    EXPECT_EQ(o.CheckUnchanged(), "") << p.Text();
  }

  inline static std::unique_ptr<Device> device_;
  inline static void* library_ = nullptr;
};

// Each shape in both orders, with and without bias and SiLU; types take turns.
std::vector<Problem> Problems() {
  constexpr cudnnDataType_t kTypes[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF,
                                        CUDNN_DATA_DOUBLE};
  const Problem shapes[] = {
      {.n = 2, .c = 3, .l = 17, .k = 4},   {.n = 2, .c = 5, .l = 1, .k = 4},
      {.n = 3, .c = 3, .l = 7, .k = 1},    {.n = 1, .c = 2, .l = 3, .k = 9},
      {.n = 2, .c = 16, .l = 64, .k = 4},  {.n = 1, .c = 33, .l = 31, .k = 3},
      {.n = 1, .c = 2, .l = 70, .k = 130}, {.n = 1, .c = 1, .l = 1, .k = 1},
  };
  std::vector<Problem> problems;
  for (const Problem& shape : shapes) {
    for (size_t i = 0; i < 8; ++i) {
      Problem p = shape;
      p.order = i % 2 == 0 ? Order::kPlaces : Order::kChannels;
      p.silu = i / 2 % 2 == 0;
      p.bias = i / 4 == 0;
      p.type = kTypes[(i + i / 4 + problems.size() / 8) % 4];
      problems.push_back(p);
    }
  }
  return problems;
}

TEST_F(CausalConvTest, ForwardIsTheSumThatTheDefinitionSays) {
  for (const Problem& p : Problems()) TestForward(*device_, p);
}

TEST_F(CausalConvTest, BackwardIsTheDerivativeAndAddsToWeights) {
  for (const Problem& p : Problems()) TestBackward(*device_, p);
}

TEST_F(CausalConvTest, FewProblemsOfEachType) {
  for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
    for (const Order order : {Order::kPlaces, Order::kChannels}) {
      const Problem p = {.n = 1, .c = 8, .l = 40, .k = 4, .order = order, .type = type};
      TestForward(*device_, p);
      TestBackward(*device_, p);
    }
  }
}

// A later place changes no earlier result, and what is no number stays where it is read.
TEST_F(CausalConvTest, WhatIsNoNumberReachesLaterPlacesAlone) {
  const Problem p = {.n = 1, .c = 1, .l = 8, .k = 3, .silu = false, .bias = false};
  const std::vector<float> x = {1, 2, NAN, 4, 5, 6, 7, 8}, w = {1, 1, 1};
  const Buffer in(*device_, 32), filter(*device_, 12), out(*device_, 32);
  device_->CopyIn(in.data(), x.data(), 32);
  device_->CopyIn(filter.data(), w.data(), 12);
  ASSERT_EQ(Forward(*device_, p, in.data(), filter.data(), nullptr, out.data()),
            CUDNN_STATUS_SUCCESS)
      << Words();
  EXPECT_EQ(device_->Synchronize(), "");
  std::vector<float> y(8);
  device_->CopyOut(y.data(), out.data(), 32);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 3);
  for (size_t l = 2; l < 5; ++l) EXPECT_TRUE(std::isnan(y[l])) << l;
  EXPECT_EQ(y[5], 15);
  EXPECT_EQ(y[7], 21);
}

TEST_F(CausalConvTest, OfNothingIsNothing) {
  const GuardedTensor dw(*device_, CUDNN_DATA_FLOAT, {3, 4}, {4, 1}, 1);
  for (Problem p :
       {Problem{.n = 0, .c = 3, .l = 5, .k = 4}, Problem{.n = 2, .c = 0, .l = 5, .k = 4},
        Problem{.n = 2, .c = 3, .l = 0, .k = 4}}) {
    EXPECT_EQ(Forward(*device_, p, nullptr, nullptr, nullptr, nullptr), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(
        Backward(*device_, p, nullptr, nullptr, nullptr, nullptr, {nullptr, dw.data(), nullptr}),
        CUDNN_STATUS_SUCCESS);
  }
  EXPECT_EQ(dw.CheckUnchanged(), "");
}

TEST_F(CausalConvTest, MisuseIsRefusedInWords) {
  const Problem good = {.n = 2, .c = 3, .l = 5, .k = 4};
  const Operands o(*device_, good, 1);
  const GuardedTensor y(*device_, good.type, good.image(), good.image_strides(), {});
  struct Row {
    void (*spoil)(Problem&);
    cudnnStatus_t status;
    const char* words;
  };
  const Row rows[] = {
      {[](Problem& p) { p.n = -1; }, CUDNN_STATUS_BAD_PARAM, "batch is -1"},
      {[](Problem& p) { p.c = -7; }, CUDNN_STATUS_BAD_PARAM, "dim is -7"},
      {[](Problem& p) { p.l = -2; }, CUDNN_STATUS_BAD_PARAM, "seqLen is -2"},
      {[](Problem& p) { p.k = 0; }, CUDNN_STATUS_BAD_PARAM, "kernelSize is 0"},
      {[](Problem& p) { p.type = CUDNN_DATA_INT8; }, CUDNN_STATUS_NOT_SUPPORTED, "dataType is 3"},
      {[](Problem& p) { p.l = 1 << 30; }, CUDNN_STATUS_NOT_SUPPORTED, "3 channels of 1073741824"},
  };
  for (const Row& row : rows) {
    Problem p = good;
    row.spoil(p);
    EXPECT_EQ(Forward(*device_, p, o.x.data(), o.w.data(), o.b.data(), y.data()), row.status);
    EXPECT_NE(Words().find(row.words), std::string::npos) << row.words;
    EXPECT_EQ(Backward(*device_, p, o.x.data(), o.w.data(), o.b.data(), o.dy.data(),
                       {y.data(), y.data(), nullptr}),
              row.status);
    EXPECT_NE(Words().find(row.words), std::string::npos) << row.words;
  }
  EXPECT_EQ(Forward(*device_, good, o.x.data(), o.w.data(), nullptr, o.x.data()),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(Words().find("x and y are the same memory"), std::string::npos);
  LegacyClient client(library_);
  EXPECT_EQ(KILN_CALL(client, cudnnCausalConv1dForward, nullptr, o.x.data(), o.w.data(), nullptr,
                      y.data(), 2, 3, 5, 4, CUDNN_DATA_FLOAT,
                      static_cast<cudnnCausalConv1dActivation_t>(2)),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(Words().find("cudnnCausalConv1dActivation_t"), std::string::npos);
  EXPECT_EQ(y.CheckUnchanged(), "");
  EXPECT_EQ(o.CheckUnchanged(), "");
}

// No handle holds threads apart: each has a stream of its own, and plans are made and used at once.
TEST_F(CausalConvTest, ThreadsWithStreamsOfTheirOwn) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([] {
      std::string error;
      const std::unique_ptr<Device> device = OpenTestDevice(&error);
      ASSERT_NE(device, nullptr) << error;
      for (int round = 0; round < 3; ++round) {
        const Problem p = {.n = 1, .c = 4, .l = 20 + round, .k = 4};
        TestForward(*device, p);
        TestBackward(*device, p);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace kiln::testing
