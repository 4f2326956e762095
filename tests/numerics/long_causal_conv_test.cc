// cudnnB2BCausalConv1d{Forward,Backward}, cudnnFFTCausalConv1d{Forward,Backward} and
// cudnnLongFFTCausalConv1d{Forward,Backward,GetBufferSizes} on either device, against plain loops.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tests/numerics/guarded_tensor.h"
#include "tests/support/legacy_run.h"
#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

using oracle::Dims;
using oracle::Value;

double UnitOf(cudnnDataType_t type) {
  return oracle::UnitRoundoff(type == CUDNN_DATA_DOUBLE ? oracle::DType::kF64
                                                        : oracle::DType::kF32);
}

cudnnDataType_t WideOf(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

Dense Zeros(const Dims& dims) {
  return Dense::Of(dims, std::vector<double>(static_cast<size_t>(oracle::Count(dims))));
}

// Row-major; `at` has an index for each dim.
Value& At(Dense& t, std::initializer_list<int64_t> at) {
  int64_t place = 0;
  size_t d = 0;
  for (const int64_t index : at) place = place * t.dims[d++] + index;
  return t.values[static_cast<size_t>(place)];
}

// Products of numbers that may be off already, rounded to `u`.
Value Times(const Value& a, const Value& b, double u) {
  const double v = a.v * b.v;
  return {v, std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e + u * std::fabs(v)};
}

// A sum of such products in any order.
struct Sum {
  double v = 0, e = 0, magnitude = 0;
  int terms = 0;
  void Add(const Value& a, const Value& b) {
    v += a.v * b.v;
    e += std::fabs(a.v) * b.e + std::fabs(b.v) * a.e + a.e * b.e;
    magnitude += std::fabs(a.v * b.v);
    ++terms;
  }
  Value Get(double u) const { return {v, e + u * (terms + 2) * magnitude}; }
};

class LongCausalConvTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_NE(device_, nullptr) << error;
    library_ = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  static void TearDownTestSuite() { device_.reset(); }
  static std::string Words() {
    LegacyClient client(library_);
    char text[400] = "";
    client.LastError(text, sizeof text);
    return text;
  }
  static cudaStream_t Stream() { return static_cast<cudaStream_t>(device_->stream()); }

  inline static std::unique_ptr<Device> device_;
  inline static void* library_ = nullptr;
};

// ---- back to back

struct B2B {
  int n = 1, c = 1, l = 1, kp = 2, km = 2;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Dims rows() const { return {n, c, l}; }
  Dims x() const { return {n, c, 3, l}; }
  Dims proj() const { return {c, 3, kp}; }
  Dims mixer() const { return {c, km}; }
  std::string Text() const {
    return fmt::format("b2b [{},{},{}] Kp {} Km {} type {}", n, c, l, kp, km,
                       static_cast<int>(type));
  }
};

struct B2BOperands {
  B2BOperands(Device& d, const B2B& p, uint64_t seed)
      : x(d, p.type, p.x(), Packed(p.x()), seed),
        proj(d, p.type, p.proj(), Packed(p.proj()), seed + 1),
        mixer(d, p.type, p.mixer(), Packed(p.mixer()), seed + 2),
        skip(d, p.type, {p.c}, {1}, seed + 3),
        y(d, p.type, p.rows(), Packed(p.rows()), seed + 4),
        dy(d, p.type, p.rows(), Packed(p.rows()), seed + 5) {}
  static Dims Packed(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    return strides;
  }
  std::string CheckUnchanged() const {
    return x.CheckUnchanged() + proj.CheckUnchanged() + mixer.CheckUnchanged() +
           skip.CheckUnchanged() + y.CheckUnchanged() + dy.CheckUnchanged();
  }
  GuardedTensor x, proj, mixer, skip, y, dy;
};

// From the header's words: p_i[t] = sum of proj[i][k] x_i[t - (Kp-1) + k], g = p_1 p_2,
// y[t] = skip g[t] + sum of mixer[k] g[t - (Km-1) + k], yGated = y p_0.
class B2BOracle {
 public:
  B2BOracle(const B2B& p, const B2BOperands& o)
      : p_(p), o_(o), u_(UnitOf(p.type)), parts_(Zeros(p.x())), g_(Zeros(p.rows())) {
    Each([&](int n, int c, int l) {
      for (int i = 0; i < 3; ++i) {
        Sum sum;
        for (int k = 0; k < p.kp; ++k)
          if (const int from = l - (p.kp - 1) + k; from >= 0)
            sum.Add({o.proj({c, i, k}), 0}, {o.x({n, c, i, from}), 0});
        At(parts_, {n, c, i, l}) = sum.Get(u_);
      }
      At(g_, {n, c, l}) = Times(At(parts_, {n, c, 1, l}), At(parts_, {n, c, 2, l}), u_);
    });
  }

  Dense Y() {
    Dense y = Zeros(p_.rows());
    Each([&](int n, int c, int l) {
      Sum sum;
      sum.Add({o_.skip({c}), 0}, At(g_, {n, c, l}));
      for (int k = 0; k < p_.km; ++k)
        if (const int from = l - (p_.km - 1) + k; from >= 0)
          sum.Add({o_.mixer({c, k}), 0}, At(g_, {n, c, from}));
      At(y, {n, c, l}) = sum.Get(u_);
    });
    return y;
  }
  Dense Gated(Dense y) {
    Each([&](int n, int c, int l) {
      At(y, {n, c, l}) = Times(At(y, {n, c, l}), At(parts_, {n, c, 0, l}), u_);
    });
    return y;
  }

  // Gradient of y.
  Dense Dy() {
    Dense d = Zeros(p_.rows());
    Each([&](int n, int c, int l) {
      At(d, {n, c, l}) = Times({o_.dy({n, c, l}), 0}, At(parts_, {n, c, 0, l}), u_);
    });
    return d;
  }
  // Gradients of the three projections.
  Dense Dparts(Dense dy) {
    Dense d = Zeros(p_.x());
    Each([&](int n, int c, int l) {
      Sum sum;
      sum.Add({o_.skip({c}), 0}, At(dy, {n, c, l}));
      for (int k = 0; k < p_.km; ++k)
        if (const int later = l + p_.km - 1 - k; later < p_.l)
          sum.Add({o_.mixer({c, k}), 0}, At(dy, {n, c, later}));
      const Value dg = sum.Get(u_);
      At(d, {n, c, 0, l}) = Times({o_.dy({n, c, l}), 0}, {o_.y({n, c, l}), 0}, u_);
      At(d, {n, c, 1, l}) = Times(dg, At(parts_, {n, c, 2, l}), u_);
      At(d, {n, c, 2, l}) = Times(dg, At(parts_, {n, c, 1, l}), u_);
    });
    return d;
  }
  Dense Dx(Dense dparts) {
    Dense dx = Zeros(p_.x());
    Each([&](int n, int c, int l) {
      for (int i = 0; i < 3; ++i) {
        Sum sum;
        for (int k = 0; k < p_.kp; ++k)
          if (const int later = l + p_.kp - 1 - k; later < p_.l)
            sum.Add({o_.proj({c, i, k}), 0}, At(dparts, {n, c, i, later}));
        At(dx, {n, c, i, l}) = sum.Get(u_);
      }
    });
    return dx;
  }
  Dense Dproj(Dense dparts, const GuardedTensor& before) {
    Dense dw = Zeros(p_.proj());
    for (int c = 0; c < p_.c; ++c)
      for (int i = 0; i < 3; ++i)
        for (int k = 0; k < p_.kp; ++k) {
          Sum sum;
          sum.Add({before({c, i, k}), 0}, {1, 0});
          for (int n = 0; n < p_.n; ++n)
            for (int l = p_.kp - 1 - k; l < p_.l; ++l)
              sum.Add({o_.x({n, c, i, l - (p_.kp - 1) + k}), 0}, At(dparts, {n, c, i, l}));
          At(dw, {c, i, k}) = sum.Get(u_);
        }
    return dw;
  }
  Dense Dmixer(Dense dy, const GuardedTensor& before) {
    Dense dw = Zeros(p_.mixer());
    for (int c = 0; c < p_.c; ++c)
      for (int k = 0; k < p_.km; ++k) {
        Sum sum;
        sum.Add({before({c, k}), 0}, {1, 0});
        for (int n = 0; n < p_.n; ++n)
          for (int l = p_.km - 1 - k; l < p_.l; ++l)
            sum.Add(At(g_, {n, c, l - (p_.km - 1) + k}), At(dy, {n, c, l}));
        At(dw, {c, k}) = sum.Get(u_);
      }
    return dw;
  }
  Dense Dskip(Dense dy, const GuardedTensor& before) {
    Dense d = Zeros({p_.c});
    for (int c = 0; c < p_.c; ++c) {
      Sum sum;
      sum.Add({before({c}), 0}, {1, 0});
      for (int n = 0; n < p_.n; ++n)
        for (int l = 0; l < p_.l; ++l)
          sum.Add(Times(At(g_, {n, c, l}), At(dy, {n, c, l}), u_), {1, 0});
      At(d, {c}) = sum.Get(u_);
    }
    return d;
  }

 private:
  template <class Body>
  void Each(Body&& body) const {
    for (int n = 0; n < p_.n; ++n)
      for (int c = 0; c < p_.c; ++c)
        for (int l = 0; l < p_.l; ++l) body(n, c, l);
  }
  const B2B& p_;
  const B2BOperands& o_;
  const double u_;
  Dense parts_, g_;
};

void TestB2B(Device& device, void* library, cudaStream_t stream, const B2B& p) {
  LegacyClient client(library);
  const auto words = [&] {
    char text[400] = "";
    client.LastError(text, sizeof text);
    return p.Text() + ": " + text;
  };
  const B2BOperands o(device, p, 40);
  const auto packed = B2BOperands::Packed;
  B2BOracle oracle(p, o);
  const GuardedTensor y(device, p.type, p.rows(), packed(p.rows()), {}),
      gated(device, p.type, p.rows(), packed(p.rows()), {});
  ASSERT_EQ(KILN_CALL(client, cudnnB2BCausalConv1dForward, stream, o.x.data(), o.proj.data(),
                      o.mixer.data(), o.skip.data(), y.data(), gated.data(), p.n, p.c, p.l, p.kp,
                      p.km, p.type),
            CUDNN_STATUS_SUCCESS)
      << words();
  EXPECT_EQ(device.Synchronize(), "");
  const Dense expected = oracle.Y();
  EXPECT_EQ(y.Check(expected), "") << "y of " << p.Text();
  EXPECT_EQ(gated.Check(oracle.Gated(expected)), "") << "yGated of " << p.Text();

  const cudnnDataType_t wide = WideOf(p.type);
  const GuardedTensor dx(device, p.type, p.x(), packed(p.x()), {}),
      dproj(device, wide, p.proj(), packed(p.proj()), 3),
      dmixer(device, wide, p.mixer(), packed(p.mixer()), 4), dskip(device, wide, {p.c}, {1}, 5);
  ASSERT_EQ(
      KILN_CALL(client, cudnnB2BCausalConv1dBackward, stream, o.x.data(), o.proj.data(),
                o.mixer.data(), o.skip.data(), o.y.data(), o.dy.data(), dx.data(), dproj.data(),
                dmixer.data(), dskip.data(), p.n, p.c, p.l, p.kp, p.km, p.type, wide),
      CUDNN_STATUS_SUCCESS)
      << words();
  EXPECT_EQ(device.Synchronize(), "");
  const Dense dy = oracle.Dy(), dparts = oracle.Dparts(dy);
  EXPECT_EQ(dx.Check(oracle.Dx(dparts)), "") << "dx of " << p.Text();
  EXPECT_EQ(dproj.Check(oracle.Dproj(dparts, dproj)), "") << "dweightsProj of " << p.Text();
  EXPECT_EQ(dmixer.Check(oracle.Dmixer(dy, dmixer)), "") << "dweightsMixer of " << p.Text();
  EXPECT_EQ(dskip.Check(oracle.Dskip(dy, dskip)), "") << "dskipBias of " << p.Text();
  EXPECT_EQ(o.CheckUnchanged(), "") << p.Text();
}

TEST_F(LongCausalConvTest, BackToBack) {
  const B2B problems[] = {
      {.n = 2, .c = 3, .l = 17, .kp = 3, .km = 4},
      {.n = 1, .c = 2, .l = 1, .kp = 2, .km = 2, .type = CUDNN_DATA_HALF},
      {.n = 2, .c = 5, .l = 40, .kp = 4, .km = 7, .type = CUDNN_DATA_BFLOAT16},
      {.n = 1, .c = 1, .l = 70, .kp = 32, .km = 256, .type = CUDNN_DATA_DOUBLE},
      {.n = 1, .c = 16, .l = 64, .kp = 3, .km = 128, .type = CUDNN_DATA_BFLOAT16},
      {.n = 3, .c = 8, .l = 129, .kp = 7, .km = 17, .type = CUDNN_DATA_HALF},
      {.n = 1, .c = 33, .l = 5, .kp = 8, .km = 9},
  };
  for (const B2B& p : problems) TestB2B(*device_, library_, Stream(), p);
}

// ---- long filters

struct Long {
  int n = 1, c = 1, l = 128, k = 128;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_long = false;  // the form with buffers
  Dims image() const { return {n, c, l}; }
  Dims strides() const { return {int64_t{c} * l, l, 1}; }
  std::string Text() const {
    return fmt::format("{} [{},{},{}] K {} type {}", is_long ? "long" : "medium", n, c, l, k,
                       static_cast<int>(type));
  }
};

// y[t] = sum of w[k] x[t - k]. A transform's errors are those of whole rows: what a place may be
// off by follows from the norms of both.
class LongOracle {
 public:
  explicit LongOracle(const Long& p) : p_(p) { u_ = UnitOf(p.type) * 8 * std::log2(2.0 * p.k); }

  Dense Y(const GuardedTensor& x, const GuardedTensor& w) const {
    Dense y = Zeros(p_.image());
    EachRow([&](int n, int c) {
      const auto row = Row(x, n, c), taps = Filter(w, c);
      const double e = u_ * Norm(row) * Norm(taps);
      for (int t = 0; t < p_.l; ++t) {
        double sum = 0;
        for (int k = 0; k < p_.k && k <= t; ++k)
          sum += taps[static_cast<size_t>(k)] * row[static_cast<size_t>(t - k)];
        At(y, {n, c, t}) = {sum, e};
      }
    });
    return y;
  }
  Dense Dx(const GuardedTensor& w, const GuardedTensor& dy) const {
    Dense dx = Zeros(p_.image());
    EachRow([&](int n, int c) {
      const auto row = Row(dy, n, c), taps = Filter(w, c);
      const double e = u_ * Norm(row) * Norm(taps);
      for (int t = 0; t < p_.l; ++t) {
        double sum = 0;
        for (int k = 0; k < p_.k && t + k < p_.l; ++k)
          sum += taps[static_cast<size_t>(k)] * row[static_cast<size_t>(t + k)];
        At(dx, {n, c, t}) = {sum, e};
      }
    });
    return dx;
  }
  Dense Dw(const GuardedTensor& x, const GuardedTensor& dy) const {
    Dense dw = Zeros({p_.c, p_.k});
    EachRow([&](int n, int c) {
      const auto row = Row(x, n, c), gradient = Row(dy, n, c);
      const double e = u_ * Norm(row) * Norm(gradient);
      for (int k = 0; k < p_.k; ++k) {
        double sum = 0;
        for (int t = k; t < p_.l; ++t)
          sum += row[static_cast<size_t>(t - k)] * gradient[static_cast<size_t>(t)];
        Value& value = At(dw, {c, k});
        value = {value.v + sum, value.e + e};
      }
    });
    return dw;
  }

 private:
  template <class Body>
  void EachRow(Body&& body) const {
    for (int n = 0; n < p_.n; ++n)
      for (int c = 0; c < p_.c; ++c) body(n, c);
  }
  std::vector<double> Row(const GuardedTensor& t, int n, int c) const {
    std::vector<double> row(static_cast<size_t>(p_.l));
    for (int i = 0; i < p_.l; ++i) row[static_cast<size_t>(i)] = t({n, c, i});
    return row;
  }
  std::vector<double> Filter(const GuardedTensor& t, int c) const {
    std::vector<double> row(static_cast<size_t>(p_.k));
    for (int i = 0; i < p_.k; ++i) row[static_cast<size_t>(i)] = t({c, i});
    return row;
  }
  static double Norm(const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum);
  }
  const Long& p_;
  double u_;
};

// Memory of the device that begins at a multiple of 256 bytes, as buffers of these calls must.
struct AlignedBuffer {
  AlignedBuffer(Device& device, size_t bytes) : buffer(device, bytes + 256) {}
  void* data() const {
    const auto address = reinterpret_cast<uintptr_t>(buffer.data());
    return buffer.data() + ((address + 255) / 256 * 256 - address);
  }
  Buffer buffer;
};

void TestLong(Device& device, void* library, cudaStream_t stream, const Long& p) {
  LegacyClient client(library);
  const auto words = [&] {
    char text[400] = "";
    client.LastError(text, sizeof text);
    return p.Text() + ": " + text;
  };
  const Dims filter = {p.c, p.k}, rows = {p.k, 1};
  const GuardedTensor x(device, p.type, p.image(), p.strides(), 1),
      w(device, p.type, filter, rows, 2), dy(device, p.type, p.image(), p.strides(), 3),
      y(device, p.type, p.image(), p.strides(), {}), dx(device, p.type, p.image(), p.strides(), {}),
      dw(device, p.type, filter, rows, {});
  size_t work = 0, reserve = 0;
  if (p.is_long) {
    ASSERT_EQ(KILN_CALL(client, cudnnLongFFTCausalConv1dGetBufferSizes, p.n, p.c, p.l, p.k, p.type,
                        &work, &reserve),
              CUDNN_STATUS_SUCCESS)
        << words();
  }
  const AlignedBuffer of_work(device, work), of_reserve(device, reserve);
  const auto forward = [&] {
    if (!p.is_long)
      return KILN_CALL(client, cudnnFFTCausalConv1dForward, stream, x.data(), w.data(), y.data(),
                       p.n, p.c, p.l, p.k, p.type);
    return KILN_CALL(client, cudnnLongFFTCausalConv1dForward, stream, x.data(), w.data(), y.data(),
                     p.n, p.c, p.l, p.k, p.type, of_work.data(), work, of_reserve.data(), reserve);
  };
  const auto backward = [&] {
    if (!p.is_long)
      return KILN_CALL(client, cudnnFFTCausalConv1dBackward, stream, x.data(), w.data(), dy.data(),
                       dx.data(), dw.data(), p.n, p.c, p.l, p.k, p.type);
    return KILN_CALL(client, cudnnLongFFTCausalConv1dBackward, stream, dy.data(), dx.data(),
                     dw.data(), p.n, p.c, p.l, p.k, p.type, of_work.data(), work, of_reserve.data(),
                     reserve);
  };
  ASSERT_EQ(forward(), CUDNN_STATUS_SUCCESS) << words();
  EXPECT_EQ(device.Synchronize(), "");
  const LongOracle oracle(p);
  EXPECT_EQ(y.Check(oracle.Y(x, w)), "") << "y of " << p.Text();
  ASSERT_EQ(backward(), CUDNN_STATUS_SUCCESS) << words();
  EXPECT_EQ(device.Synchronize(), "");
  EXPECT_EQ(dx.Check(oracle.Dx(w, dy)), "") << "dx of " << p.Text();
  EXPECT_EQ(dw.Check(oracle.Dw(x, dy)), "") << "dweight of " << p.Text();
  EXPECT_EQ(x.CheckUnchanged() + w.CheckUnchanged() + dy.CheckUnchanged(), "") << p.Text();
}

TEST_F(LongCausalConvTest, FiltersOfHundredsOfTaps) {
  const Long problems[] = {
      {.n = 2, .c = 2, .l = 128, .k = 128},
      {.n = 1, .c = 3, .l = 768, .k = 256, .type = CUDNN_DATA_BFLOAT16},
      {.n = 2, .c = 1, .l = 512, .k = 512, .type = CUDNN_DATA_HALF},
      {.n = 1, .c = 2, .l = 3072, .k = 1024},
      {.n = 2, .c = 3, .l = 1024, .k = 512, .type = CUDNN_DATA_DOUBLE},
      {.n = 2, .c = 2, .l = 4096, .k = 1024},
      {.n = 1, .c = 3, .l = 2048, .k = 1024, .type = CUDNN_DATA_DOUBLE},
      {.n = 1, .c = 1, .l = 6144, .k = 2048, .type = CUDNN_DATA_BFLOAT16},
  };
  for (const Long& p : problems) TestLong(*device_, library_, Stream(), p);
}

TEST_F(LongCausalConvTest, FiltersAsLongAsTheSequence) {
  const Long problems[] = {
      {.n = 2, .c = 1, .l = 4096, .k = 4096, .is_long = true},
      {.n = 1, .c = 2, .l = 4096, .k = 4096, .type = CUDNN_DATA_BFLOAT16, .is_long = true},
      {.n = 1, .c = 1, .l = 8192, .k = 8192, .type = CUDNN_DATA_HALF, .is_long = true},
      {.n = 1, .c = 1, .l = 4096, .k = 4096, .type = CUDNN_DATA_DOUBLE, .is_long = true},
  };
  for (const Long& p : problems) TestLong(*device_, library_, Stream(), p);
}

// So many places that channels are computed some at a time. x is impulses, each of which leaves the
// filter where it stands.
TEST_F(LongCausalConvTest, ChannelsInParts) {
  constexpr int kChannels = 5, kLength = 1 << 22, kTaps = 1024;
  constexpr size_t kCount = size_t{kChannels} * kLength;
  std::vector<float> x(kCount), w(size_t{kChannels} * kTaps), expected(kCount);
  for (int c = 0; c < kChannels; ++c) {
    for (int k = 0; k < kTaps; ++k)
      w[static_cast<size_t>(c * kTaps + k)] = static_cast<float>(c + 1) / static_cast<float>(k + 1);
    for (const int at : {0, 5000 + c, kLength / 2, kLength - 3}) {
      const size_t row = static_cast<size_t>(c) * kLength;
      x[row + static_cast<size_t>(at)] = 1;
      for (int k = 0; k < kTaps && at + k < kLength; ++k)
        expected[row + static_cast<size_t>(at + k)] = w[static_cast<size_t>(c * kTaps + k)];
    }
  }
  const AlignedBuffer of_x(*device_, 4 * kCount), of_w(*device_, 4 * w.size()),
      of_y(*device_, 4 * kCount);
  device_->CopyIn(of_x.data(), x.data(), 4 * kCount);
  device_->CopyIn(of_w.data(), w.data(), 4 * w.size());
  LegacyClient client(library_);
  ASSERT_EQ(KILN_CALL(client, cudnnFFTCausalConv1dForward, Stream(), of_x.data(), of_w.data(),
                      of_y.data(), 1, kChannels, kLength, kTaps, CUDNN_DATA_FLOAT),
            CUDNN_STATUS_SUCCESS)
      << Words();
  EXPECT_EQ(device_->Synchronize(), "");
  std::vector<float> y(kCount);
  device_->CopyOut(y.data(), of_y.data(), 4 * kCount);
  for (size_t i = 0; i < kCount; ++i) ASSERT_NEAR(y[i], expected[i], 1e-4) << i;
}

TEST_F(LongCausalConvTest, FewProblemsOfEachType) {
  for (const cudnnDataType_t type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
    TestB2B(*device_, library_, Stream(),
            {.n = 1, .c = 4, .l = 24, .kp = 3, .km = 5, .type = type});
    TestLong(*device_, library_, Stream(), {.n = 1, .c = 1, .l = 128, .k = 128, .type = type});
  }
  // The fewest taps that are transformed, over two blocks.
  TestLong(*device_, library_, Stream(), {.n = 1, .c = 2, .l = 1024, .k = 512});
}

// ---- what is refused

TEST_F(LongCausalConvTest, SizesOfBuffersAreNvidias) {
  LegacyClient client(library_);
  struct Row {
    int batch, dim, length;
    cudnnDataType_t type;
    size_t bytes;
  };
  // Sizes that 9.28.1 answered.
  const Row rows[] = {
      {2, 3, 4096, CUDNN_DATA_FLOAT, 299520},
      {2, 3, 4096, CUDNN_DATA_DOUBLE, 599040},
      {2, 3, 4096, CUDNN_DATA_HALF, 299520},
      {2, 3, 8192, CUDNN_DATA_BFLOAT16, 599040},
      {1, 1, 16384, CUDNN_DATA_FLOAT, 264192},
      {1, 1, 32768, CUDNN_DATA_FLOAT, 528384},
      {2, 3, 1 << 24, CUDNN_DATA_FLOAT, 1208254464},
      {2, 3, 1 << 23, CUDNN_DATA_DOUBLE, 1208549376},
      {70000, 3, 4096, CUDNN_DATA_FLOAT, 6988899840},
  };
  for (const Row& row : rows) {
    size_t work = 0, reserve = 0;
    EXPECT_EQ(KILN_CALL(client, cudnnLongFFTCausalConv1dGetBufferSizes, row.batch, row.dim,
                        row.length, row.length, row.type, &work, &reserve),
              CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(work, row.bytes) << row.length;
    EXPECT_EQ(reserve, row.bytes) << row.length;
  }
}

// Statuses are those of 9.28.1.
TEST_F(LongCausalConvTest, MisuseOfLongFiltersIsRefusedInWords) {
  LegacyClient client(library_);
  const Buffer memory(*device_, 1 << 16);
  const auto base = (reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256;
  const auto at = [&](int i) { return reinterpret_cast<void*>(base + static_cast<uintptr_t>(i)); };
  struct Row {
    Long p;
    cudnnStatus_t status;
    const char* words;
  };
  const Row rows[] = {
      {{.n = 0}, CUDNN_STATUS_BAD_PARAM, "batch is 0"},
      {{.n = -1}, CUDNN_STATUS_BAD_PARAM, "batch is -1"},
      {{.c = 0}, CUDNN_STATUS_BAD_PARAM, "dim is 0"},
      {{.l = 0}, CUDNN_STATUS_BAD_PARAM, "seqLen is 0"},
      {{.k = 0}, CUDNN_STATUS_BAD_PARAM, "kernelSize is 0"},
      {{.type = CUDNN_DATA_INT8}, CUDNN_STATUS_NOT_SUPPORTED, "dataType is 3"},
      {{.k = 64}, CUDNN_STATUS_NOT_SUPPORTED, "kernelSize is 64"},
      {{.l = 129, .k = 129}, CUDNN_STATUS_NOT_SUPPORTED, "kernelSize is 129"},
      {{.l = 32768, .k = 32768}, CUDNN_STATUS_NOT_SUPPORTED, "between 128 and 16384"},
      {{.l = 8192, .k = 8192, .type = CUDNN_DATA_DOUBLE},
       CUDNN_STATUS_NOT_SUPPORTED,
       "between 128 and 4096"},
      {{.l = 300}, CUDNN_STATUS_NOT_SUPPORTED, "seqLen 300 is no multiple of kernelSize 128"},
      {{.l = 128, .k = 256}, CUDNN_STATUS_NOT_SUPPORTED, "seqLen 128 is no multiple"},
      {{.l = 2048, .k = 2048, .is_long = true}, CUDNN_STATUS_NOT_SUPPORTED, "between 4096 and"},
      {{.l = 5000, .k = 5000, .is_long = true}, CUDNN_STATUS_NOT_SUPPORTED, "kernelSize is 5000"},
      {{.l = 8192, .k = 4096, .is_long = true}, CUDNN_STATUS_NOT_SUPPORTED, "seqLen 8192"},
      {{.l = 1 << 24, .k = 1 << 24, .type = CUDNN_DATA_DOUBLE, .is_long = true},
       CUDNN_STATUS_NOT_SUPPORTED,
       "between 4096 and 8388608"},
      {{.n = 0, .l = 4096, .k = 4096, .is_long = true}, CUDNN_STATUS_BAD_PARAM, "batch is 0"},
  };
  for (const Row& row : rows) {
    const Long& p = row.p;
    const auto check = [&](cudnnStatus_t status) {
      EXPECT_EQ(status, row.status) << p.Text();
      EXPECT_NE(Words().find(row.words), std::string::npos) << Words() << " has no " << row.words;
    };
    if (!p.is_long) {
      check(KILN_CALL(client, cudnnFFTCausalConv1dForward, Stream(), at(0), at(512), at(1024), p.n,
                      p.c, p.l, p.k, p.type));
      check(KILN_CALL(client, cudnnFFTCausalConv1dBackward, Stream(), at(0), at(512), at(1024),
                      at(2048), at(4096), p.n, p.c, p.l, p.k, p.type));
      continue;
    }
    size_t work = 1, reserve = 2;
    check(KILN_CALL(client, cudnnLongFFTCausalConv1dGetBufferSizes, p.n, p.c, p.l, p.k, p.type,
                    &work, &reserve));
    EXPECT_EQ(work, 1u);
    EXPECT_EQ(reserve, 2u);
    check(KILN_CALL(client, cudnnLongFFTCausalConv1dForward, Stream(), at(0), at(512), at(1024),
                    p.n, p.c, p.l, p.k, p.type, at(2048), 1 << 30, at(4096), 1 << 30));
    check(KILN_CALL(client, cudnnLongFFTCausalConv1dBackward, Stream(), at(0), at(512), at(1024),
                    p.n, p.c, p.l, p.k, p.type, at(2048), 1 << 30, at(4096), 1 << 30));
  }
  EXPECT_EQ(KILN_CALL(client, cudnnFFTCausalConv1dForward, Stream(), at(0), at(512), at(1028), 1, 1,
                      128, 128, CUDNN_DATA_FLOAT),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(Words().find("no multiple of 16 bytes"), std::string::npos) << Words();
  EXPECT_EQ(KILN_CALL(client, cudnnLongFFTCausalConv1dForward, Stream(), at(0), at(512), at(1024),
                      1, 1, 4096, 4096, CUDNN_DATA_FLOAT, at(2048), 16, at(4096), 1 << 20),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(Words().find("workspaceSizeInBytes is 16; the call needs"), std::string::npos);
}

TEST_F(LongCausalConvTest, MisuseOfBackToBackIsRefusedInWords) {
  LegacyClient client(library_);
  const B2B good = {.n = 2, .c = 3, .l = 5, .kp = 4, .km = 4};
  const B2BOperands o(*device_, good, 1);
  const auto forward = [&](const B2B& p, void* y) {
    return KILN_CALL(client, cudnnB2BCausalConv1dForward, Stream(), o.x.data(), o.proj.data(),
                     o.mixer.data(), o.skip.data(), y, o.dy.data(), p.n, p.c, p.l, p.kp, p.km,
                     p.type);
  };
  struct Row {
    B2B p;
    cudnnStatus_t status;
    const char* words;
  };
  const Row rows[] = {
      {{.n = 0}, CUDNN_STATUS_BAD_PARAM, "batch is 0"},
      {{.c = -1}, CUDNN_STATUS_BAD_PARAM, "dim is -1"},
      {{.l = 0}, CUDNN_STATUS_BAD_PARAM, "seqLen is 0"},
      {{.kp = 1}, CUDNN_STATUS_BAD_PARAM, "kernelSizeProj is 1; it is between 2 and 32"},
      {{.kp = 33}, CUDNN_STATUS_BAD_PARAM, "kernelSizeProj is 33"},
      {{.km = 257}, CUDNN_STATUS_BAD_PARAM, "kernelSizeMixer is 257; it is between 2 and 256"},
      {{.type = CUDNN_DATA_INT8}, CUDNN_STATUS_NOT_SUPPORTED, "dataType is 3"},
      {{.c = 3, .l = 1 << 30}, CUDNN_STATUS_NOT_SUPPORTED, "3 channels of 3221225472"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(forward(row.p, o.y.data()), row.status) << row.p.Text();
    EXPECT_NE(Words().find(row.words), std::string::npos) << Words() << " has no " << row.words;
  }
  EXPECT_EQ(forward(good, o.x.data()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_NE(Words().find("x and y are the same memory"), std::string::npos) << Words();
  for (const auto& [type, wide] : {std::pair{CUDNN_DATA_FLOAT, CUDNN_DATA_HALF},
                                   {CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT},
                                   {CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16}}) {
    EXPECT_EQ(KILN_CALL(client, cudnnB2BCausalConv1dBackward, Stream(), o.x.data(), o.proj.data(),
                        o.mixer.data(), o.skip.data(), o.y.data(), o.dy.data(), o.x.data(),
                        o.proj.data(), o.mixer.data(), o.skip.data(), 2, 3, 5, 4, 4, type, wide),
              CUDNN_STATUS_NOT_SUPPORTED);
    EXPECT_NE(Words().find("dwDataType is"), std::string::npos) << Words();
  }
  EXPECT_EQ(o.CheckUnchanged(), "");
}

}  // namespace
}  // namespace kiln::testing
