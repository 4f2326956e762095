// The oracle against values worked out by hand, and against identities that hold whatever the code
// says.
#include "tests/support/oracle/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/oracle/compare.h"

namespace kiln::oracle {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> Values(const Dense& dense) {
  std::vector<double> values;
  for (const Value value : dense.values) values.push_back(value.v);
  return values;
}

// Small integers, different for each seed: products and sums are exact.
Dense Numbers(Dims dims, int seed) {
  std::vector<double> values(static_cast<size_t>(Count(dims)));
  uint32_t state = 12345u + static_cast<uint32_t>(seed) * 7919u;
  for (double& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<double>(state >> 28) - 7;
  }
  return Dense::Of(std::move(dims), values);
}

double Dot(const Dense& a, const Dense& b) {
  double sum = 0;
  for (size_t i = 0; i < a.values.size(); ++i) sum += a.values[i].v * b.values[i].v;
  return sum;
}

TEST(DType, SmallFormatsDecodeByTheirDefinition) {
  const auto decode = [](DType type, uint16_t bits) {
    return Decode(type, reinterpret_cast<const uint8_t*>(&bits));
  };
  EXPECT_EQ(decode(DType::kF16, 0x3c00), 1.0);
  EXPECT_EQ(decode(DType::kF16, 0x0001), 0x1p-24);
  EXPECT_EQ(decode(DType::kF16, 0xfbff), -65504.0);
  EXPECT_EQ(decode(DType::kF16, 0x7c00), kInf);
  EXPECT_TRUE(std::isnan(decode(DType::kF16, 0x7c01)));
  EXPECT_EQ(decode(DType::kBF16, 0x3fc0), 1.5);
  EXPECT_EQ(decode(DType::kBF16, 0xff80), -kInf);
  EXPECT_EQ(decode(DType::kE4M3, 0x38), 1.0);
  EXPECT_EQ(decode(DType::kE4M3, 0x7e), 448.0);
  EXPECT_EQ(decode(DType::kE4M3, 0x01), 0x1p-9);
  EXPECT_TRUE(std::isnan(decode(DType::kE4M3, 0x7f)));
  EXPECT_EQ(decode(DType::kE5M2, 0x7b), 57344.0);
  EXPECT_EQ(decode(DType::kE5M2, 0x7c), kInf);
  EXPECT_EQ(decode(DType::kE5M2, 0x01), 0x1p-16);
}

TEST(DType, EveryBitPatternOfTheSmallFormatsSurvivesARoundTrip) {
  for (const DType type : {DType::kF16, DType::kBF16, DType::kE4M3, DType::kE5M2, DType::kI8,
                           DType::kU8, DType::kE2M1, DType::kI4, DType::kU4, DType::kBool}) {
    const int bytes = Row(type).bytes;
    for (uint32_t bits = 0; bits < 1u << (Row(type).packed != 0 ? Row(type).packed : 8 * bytes);
         ++bits) {
      uint8_t in[2] = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)}, out[2] = {};
      const double value = Decode(type, in);
      if (std::isnan(value) || (std::isinf(value) && Row(type).saturates)) continue;
      Encode(type, value, out);
      ASSERT_TRUE(in[0] == out[0] && (bytes == 1 || in[1] == out[1]))
          << Row(type).name << " " << bits;
    }
  }
}

TEST(DType, RoundsToNearestEvenAndSaturates) {
  EXPECT_EQ(Round(DType::kI8, 2.5), 2);
  EXPECT_EQ(Round(DType::kI8, 3.5), 4);
  EXPECT_EQ(Round(DType::kI8, -2.5), -2);
  EXPECT_EQ(Round(DType::kI8, 300), 127);
  EXPECT_EQ(Round(DType::kU8, -1), 0);
  EXPECT_EQ(Round(DType::kI32, -kInf), -2147483648.0);
  EXPECT_EQ(Round(DType::kI32, std::nan("")), 0);
  EXPECT_EQ(Round(DType::kF16, 1 + 0x1p-11), 1.0);             // tie to even
  EXPECT_EQ(Round(DType::kF16, 1 + 3 * 0x1p-11), 1 + 0x1p-9);  // tie to even, upwards
  EXPECT_EQ(Round(DType::kF16, 65519), 65504);
  EXPECT_EQ(Round(DType::kF16, 65520), kInf);
  EXPECT_EQ(Round(DType::kF16, 0x1p-25), 0);
  EXPECT_EQ(Round(DType::kE4M3, 1e9), 448);
  EXPECT_EQ(Round(DType::kE4M3, -kInf), -448);
  EXPECT_EQ(Round(DType::kE5M2, 60000), 57344);
  EXPECT_TRUE(std::isnan(Round(DType::kE4M3, std::nan(""))));
  EXPECT_EQ(Round(DType::kE2M1, 2.5), 2);
  EXPECT_EQ(Round(DType::kE2M1, 3.5), 4);
  EXPECT_EQ(Round(DType::kE2M1, 0.25), 0);
  EXPECT_EQ(Round(DType::kE2M1, -5), -4);
  EXPECT_EQ(Round(DType::kE2M1, 1e9), 6);
  EXPECT_EQ(Round(DType::kE2M1, std::nan("")), 6);
  EXPECT_EQ(Round(DType::kI4, -9), -8);
  EXPECT_EQ(Round(DType::kU4, 99), 15);
  EXPECT_EQ(Round(DType::kU32, 1e10), 4294967295.0);
  for (const double v : {0.1, -1e-40, 3.4e38, 1e-45, 16777217.0}) {
    EXPECT_EQ(Round(DType::kF32, v), static_cast<double>(static_cast<float>(v))) << v;
  }
}

TEST(Conv, OneDimensionByHand) {
  const Dense x = Dense::Of({1, 1, 4}, {1, 2, 3, 4}), w = Dense::Of({1, 1, 3}, {10, 100, 1000});
  const ConvGeometry cross{.pre_padding = {1}, .post_padding = {0}, .stride = {1}, .dilation = {1}};
  // [0 1 2 3 4] with the filter at 0, 1, 2.
  EXPECT_EQ(Values(ConvFprop(cross, x, w, {}, {})), (std::vector<double>{2100, 3210, 4320}));
  ConvGeometry rotated = cross;
  rotated.flip = true;
  EXPECT_EQ(Values(ConvFprop(rotated, x, w, {}, {})), (std::vector<double>{120, 1230, 2340}));
}

TEST(Conv, StrideAndDilationByHand) {
  const Dense x = Dense::Of({1, 1, 7}, {1, 2, 3, 4, 5, 6, 7}), w = Dense::Of({1, 1, 2}, {1, 10});
  const ConvGeometry g{.pre_padding = {0}, .post_padding = {0}, .stride = {2}, .dilation = {3}};
  EXPECT_EQ(ConvOutputDims(g, x.dims, w.dims), (Dims{1, 1, 2}));
  EXPECT_EQ(Values(ConvFprop(g, x, w, {}, {})), (std::vector<double>{41, 63}));
}

TEST(Conv, GroupsSeeOnlyTheirChannels) {
  const Dense x = Dense::Of({1, 4, 1, 1}, {1, 2, 3, 4}),
              w = Dense::Of({2, 2, 1, 1}, {1, 10, 100, 1000});
  const ConvGeometry g{
      .pre_padding = {0, 0}, .post_padding = {0, 0}, .stride = {1, 1}, .dilation = {1, 1}};
  EXPECT_EQ(Values(ConvFprop(g, x, w, {}, {})), (std::vector<double>{21, 4300}));
}

TEST(Conv, AlphaAndBeta) {
  const Dense x = Dense::Of({1, 1, 2}, {1, 2}), w = Dense::Of({1, 1, 1}, {3}),
              y = Dense::Of({1, 1, 2}, {100, 200});
  const ConvGeometry g{.pre_padding = {0}, .post_padding = {0}, .stride = {1}, .dilation = {1}};
  EXPECT_EQ(Values(ConvFprop(g, x, w, {.alpha = 2, .beta = 0.5, .previous = &y}, {})),
            (std::vector<double>{56, 112}));
}

struct Shape {
  Dims x, w;
  ConvGeometry geometry;
};

// <y, fprop(x, w)> = <dgrad(y, w), x> = <wgrad(x, y), w>, exactly for integers.
TEST(Conv, GradientsAreAdjoints) {
  const std::vector<Shape> shapes = {
      {{2, 4, 9}, {6, 2, 3}, {{1}, {2}, {2}, {1}}},
      {{2, 3, 7, 8}, {5, 3, 3, 2}, {{1, 0}, {0, 2}, {2, 1}, {1, 2}}},
      {{2, 6, 7, 8}, {9, 2, 3, 3}, {{1, 2}, {1, 1}, {3, 2}, {2, 1}, true}},
      {{1, 2, 4, 5, 6}, {4, 1, 2, 3, 2}, {{1, 1, 0}, {0, 1, 1}, {1, 2, 3}, {2, 1, 1}}},
  };
  for (const Shape& s : shapes) {
    const Dense x = Numbers(s.x, 1), w = Numbers(s.w, 2);
    const Dense y = ConvFprop(s.geometry, x, w, {}, {});
    const Dense dy = Numbers(y.dims, 3);
    EXPECT_EQ(Dot(dy, y), Dot(ConvDgrad(s.geometry, dy, w, s.x, {}, {}), x));
    EXPECT_EQ(Dot(dy, y), Dot(ConvWgrad(s.geometry, x, dy, s.w, {}, {}), w));
  }
}

TEST(Conv, PointwiseFilterIsAMatmul) {
  const Dense x = Numbers({3, 5, 4, 6}, 1), w = Numbers({7, 5, 1, 1}, 2);
  const ConvGeometry g{
      .pre_padding = {0, 0}, .post_padding = {0, 0}, .stride = {1, 1}, .dilation = {1, 1}};
  Dense columns = x, rows = w;
  columns.dims = {3, 5, 24};
  rows.dims = {1, 7, 5};
  EXPECT_EQ(Values(ConvFprop(g, x, w, {}, {})), Values(Matmul(rows, columns, {}, {})));
}

TEST(Matmul, ByHandAndBroadcast) {
  const Dense a = Dense::Of({2, 1, 2}, {1, 2, 3, 4}), b = Dense::Of({1, 2, 2}, {1, 10, 100, 1000});
  EXPECT_EQ(Values(Matmul(a, b, {}, {})), (std::vector<double>{201, 2010, 403, 4030}));
}

TEST(Matmul, GroupedHeadsRepeatTheirMatrix) {
  const Dense a = Dense::Of({1, 4, 1, 1}, {1, 2, 3, 4}), b = Dense::Of({1, 2, 1, 1}, {10, 100});
  EXPECT_EQ(Values(Matmul(a, b, {}, {})), (std::vector<double>{10, 20, 300, 400}));
}

TEST(Matmul, OverridesLimitRowsColumnsAndDepth) {
  const Dense a = Dense::Of({2, 2, 2}, {1, 2, 3, 4, 1, 2, 3, 4}),
              b = Dense::Of({1, 2, 2}, {1, 10, 100, 1000});
  const Dense m = Dense::Of({2, 1, 1}, {1, 2}), k = Dense::Of({2, 1, 1}, {2, 1});
  EXPECT_EQ(Values(Matmul(a, b, {.m = &m, .k = &k, .padding_value = -5}, {})),
            (std::vector<double>{201, 2010, -5, -5, 1, 10, 3, 30}));
}

double Apply(const char* name, double x, double b = 0, double t = 0,
             const PointwiseParams& params = {}, DType compute = DType::kF32) {
  const PointwiseMode* mode = FindPointwiseMode(name);
  const Dense dx = Dense::Of({1}, {x}), db = Dense::Of({1}, {b}), dt = Dense::Of({1}, {t});
  const Dense* all[] = {&dx, &db, &dt};
  return Pointwise(*mode, params, std::span(all).first(static_cast<size_t>(mode->operands)), {1},
                   compute)
      .values[0]
      .v;
}

TEST(Pointwise, ValuesFromTables) {
  EXPECT_NEAR(Apply("gelu_fwd", 1), 0.8413447460685429, 1e-15);
  EXPECT_NEAR(Apply("gelu_approx_tanh_fwd", 1), 0.8411919906082768, 1e-15);
  EXPECT_NEAR(Apply("sigmoid_fwd", 2), 0.8807970779778823, 1e-15);
  EXPECT_NEAR(Apply("softplus_fwd", 0), std::log(2.0), 1e-15);
  EXPECT_NEAR(Apply("softplus_fwd", 1, 0, 0, {.softplus_beta = 2}), 1.0634640055214863, 1e-14);
  EXPECT_NEAR(Apply("swish_fwd", 1, 0, 0, {.swish_beta = 2}), 0.8807970779778823, 1e-15);
  EXPECT_NEAR(Apply("elu_fwd", -1, 0, 0, {.elu_alpha = 3}), 3 * (std::exp(-1.0) - 1), 1e-15);
  EXPECT_NEAR(Apply("erf", 0.5), 0.5204998778130465, 1e-15);
  EXPECT_EQ(Apply("add_square", 2, 3), 11);
  EXPECT_EQ(Apply("add", 2, 3, 0, {.alpha1 = 2, .alpha2 = -1}), 1);
  EXPECT_EQ(Apply("mod", -7, 3), -1);
  EXPECT_EQ(Apply("rsqrt", 4), 0.5);
  EXPECT_EQ(Apply("relu_fwd", -3, 0, 0, {.relu_slope = 0.5}), -1.5);
  EXPECT_EQ(Apply("relu_fwd", -kInf), 0);
  EXPECT_EQ(Apply("relu_fwd", 9, 0, 0, {.relu_upper = 6}), 6);
  EXPECT_EQ(Apply("relu_bwd", 5, 9, 0, {.relu_upper = 6}), 0);
  EXPECT_EQ(Apply("relu_bwd", 5, -1, 0, {.relu_slope = 0.5}), 2.5);
  EXPECT_EQ(Apply("binary_select", 1, 2, 1), 1);
  EXPECT_EQ(Apply("binary_select", 1, 2, 0), 2);
  EXPECT_EQ(Apply("div", 7, 2, 0, {}, DType::kI32), 3);
  EXPECT_EQ(Apply("max", std::nan(""), 2), 2);
  EXPECT_TRUE(std::isnan(Apply("add", std::nan(""), 2)));
}

// Each backward mode is the derivative of its forward mode.
TEST(Pointwise, BackwardModesAreDerivatives) {
  const PointwiseParams params{.relu_lower = -1,
                               .relu_upper = 1.5,
                               .relu_slope = 0.25,
                               .elu_alpha = 0.7,
                               .softplus_beta = 1.5,
                               .swish_beta = 1.3};
  for (const std::string name :
       {"relu", "tanh", "sigmoid", "elu", "gelu", "softplus", "swish", "gelu_approx_tanh"}) {
    for (const double x : {-2.3, -0.6, 0.4, 1.2, 2.8}) {
      const double h = 1e-5;
      const double numeric = (Apply((name + "_fwd").c_str(), x + h, 0, 0, params, DType::kF64) -
                              Apply((name + "_fwd").c_str(), x - h, 0, 0, params, DType::kF64)) /
                             (2 * h);
      EXPECT_NEAR(Apply((name + "_bwd").c_str(), 3, x, 0, params, DType::kF64), 3 * numeric, 1e-8)
          << name << " " << x;
    }
  }
}

TEST(Pointwise, NumbersAndNamesAreUnique) {
  for (const PointwiseMode& a : PointwiseModes()) {
    for (const PointwiseMode& b : PointwiseModes())
      EXPECT_EQ(&a == &b, a.cudnn == b.cudnn || a.name == b.name);
  }
}

TEST(Reduction, EveryModeByHand) {
  const Dense x = Dense::Of({2, 3}, {1, -4, 0, 2, 2, -3});
  const auto rows = [&](Reduce mode) { return Values(Reduction(mode, x, {2, 1}, DType::kF32)); };
  EXPECT_EQ(rows(Reduce::kAdd), (std::vector<double>{-3, 1}));
  EXPECT_EQ(rows(Reduce::kMul), (std::vector<double>{0, -12}));
  EXPECT_EQ(rows(Reduce::kMin), (std::vector<double>{-4, -3}));
  EXPECT_EQ(rows(Reduce::kMax), (std::vector<double>{1, 2}));
  EXPECT_EQ(rows(Reduce::kAmax), (std::vector<double>{4, 3}));
  EXPECT_EQ(rows(Reduce::kAvg), (std::vector<double>{-1, 1.0 / 3}));
  EXPECT_EQ(rows(Reduce::kNorm1), (std::vector<double>{5, 7}));
  EXPECT_EQ(rows(Reduce::kNorm2), (std::vector<double>{std::sqrt(17.0), std::sqrt(17.0)}));
  EXPECT_EQ(rows(Reduce::kMulNoZeros), (std::vector<double>{-4, -12}));
  EXPECT_EQ(Values(Reduction(Reduce::kAdd, x, {1, 3}, DType::kF32)),
            (std::vector<double>{3, -2, -3}));
}

TEST(BatchNorm, StatisticsNormaliseTheData) {
  const Dense x = Numbers({3, 2, 4, 5}, 1);
  const GenStatsResult stats = GenStats(x, DType::kF64);
  const Dense scale = Dense::Of({1, 2, 1, 1}, {2, -1}), bias = Dense::Of({1, 2, 1, 1}, {0.5, 3});
  const auto bn = BnFinalize({.sum = &stats.sum,
                              .sq_sum = &stats.sq_sum,
                              .scale = &scale,
                              .bias = &bias,
                              .epsilon = 0,
                              .factor = 1,
                              .count = 60},
                             DType::kF64);
  // scale * x + bias with the equivalent coefficients has mean `bias` and standard deviation
  // |scale|.
  double sum[2] = {}, squares[2] = {};
  for (size_t i = 0; i < x.values.size(); ++i) {
    const size_t c = i / 20 % 2;
    const double y = x.values[i].v * bn.eq_scale.values[c].v + bn.eq_bias.values[c].v;
    sum[c] += y / 60;
    squares[c] += y * y / 60;
  }
  for (const size_t c : {0, 1}) {
    EXPECT_NEAR(sum[c], bias.values[c].v, 1e-12);
    EXPECT_NEAR(std::sqrt(squares[c] - sum[c] * sum[c]), std::fabs(scale.values[c].v), 1e-12);
    const double inv_std = bn.saved_inv_std.values[c].v;
    EXPECT_NEAR(bn.updated_var.values[c].v, 60.0 / 59 / (inv_std * inv_std), 1e-10);
  }
}

// The gradient's formula against differences of the forward's, in every mode.
TEST(Norm, GradientsAreTheSlopesOfTheForward) {
  struct Row {
    Norm mode;
    Dims x, stats, weights;
  };
  for (const Row& row :
       {Row{Norm::kLayer, {3, 8}, {3, 1}, {1, 8}}, Row{Norm::kRms, {3, 8}, {3, 1}, {8}},
        Row{Norm::kInstance, {2, 3, 4}, {2, 3, 1}, {1, 3, 1}},
        Row{Norm::kBatch, {2, 3, 4}, {1, 3, 1}, {1, 3, 1}},
        Row{Norm::kGroup, {2, 6, 4}, {2, 2, 1}, {1, 6, 1}},
        Row{Norm::kAdaLayer, {2, 3, 8}, {2, 3, 1}, {2, 1, 8}}}) {
    SCOPED_TRACE(static_cast<int>(row.mode));
    const Dense dy = Numbers(row.x, 2);
    Dense x = Numbers(row.x, 1), scale = Numbers(row.weights, 3), bias = Numbers(row.weights, 4);
    const auto forward = [&] {
      return NormForward({.mode = row.mode,
                          .x = &x,
                          .scale = &scale,
                          .bias = &bias,
                          .stats = row.stats,
                          .epsilon = 0.5},
                         DType::kF64);
    };
    const NormForwardResult at = forward();
    const NormBackwardResult gradient =
        NormBackward({.x = &x,
                      .dy = &dy,
                      .mean = row.mode == Norm::kRms ? nullptr : &at.mean,
                      .inv_variance = &at.inv_variance,
                      .scale = &scale,
                      .weights = row.weights},
                     DType::kF64);
    const auto expect_slopes = [&](Dense& moved, const Dense& slopes) {
      for (size_t i = 0; i < moved.values.size(); ++i) {
        const double before = moved.values[i].v;
        moved.values[i].v = before + 1e-5;
        const double above = Dot(forward().y, dy);
        moved.values[i].v = before - 1e-5;
        const double below = Dot(forward().y, dy);
        moved.values[i].v = before;
        EXPECT_NEAR((above - below) / 2e-5, slopes.values[i].v, 1e-4) << i;
      }
    };
    expect_slopes(x, gradient.dx);
    expect_slopes(scale, gradient.dscale);
    expect_slopes(bias, gradient.dbias);
  }
}

TEST(Norm, BatchUpdatesRunningStatistics) {
  const Dense x = Dense::Of({4, 1}, {1, 1, 3, 3}), mean = Dense::Of({1, 1}, {10}),
              var = Dense::Of({1, 1}, {5});
  const NormForwardResult r = NormForward({.mode = Norm::kBatch,
                                           .x = &x,
                                           .running_mean = &mean,
                                           .running_var = &var,
                                           .stats = {1, 1},
                                           .factor = 0.25},
                                          DType::kF64);
  EXPECT_EQ(Values(r.y), (std::vector<double>{-1, -1, 1, 1}));
  EXPECT_EQ(r.next_mean.values[0].v, 8);
  EXPECT_NEAR(r.next_var.values[0].v, 0.75 * 5 + 0.25 * 4 / 3, 1e-12);
}

TEST(View, ByHand) {
  const Dense x = Dense::Of({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Values(Transpose(x, {1, 0})), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Values(Slice(x, {0, 2}, {1, -1}, {2, 2})), (std::vector<double>{3, 2, 6, 5}));
  EXPECT_EQ(Values(Reshape(x, {3, 1}, {3, 2}, {2, 1})), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Values(Reshape(x, {3, 1}, {3, 2}, {1, 3})), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  const Dense y = Dense::Of({2, 1}, {7, 8});
  const Dense* both[] = {&x, &y};
  EXPECT_EQ(Values(Concat(both, 1)), (std::vector<double>{1, 2, 3, 7, 4, 5, 6, 8}));
}

// ---- The comparison must see what is wrong. ----

TEST(Compare, AcceptsRoundingAndNothingElse) {
  const Dense want = Dense::Of({3}, {1, 1 + 0x1p-12, 1000.3});
  Image image = Image::Poisoned(DType::kF16, {3}, {2}, 1);
  EXPECT_FALSE(Compare(want, image).ok()) << "poison passed";
  image.Store({1, 1, 1000.5});
  EXPECT_TRUE(Compare(want, image).ok()) << Compare(want, image).error;
  image.Store({1, 1 + 0x1p-10, 1000.5});
  const Comparison wrong = Compare(want, image);
  EXPECT_EQ(wrong.wrong, 1);
  EXPECT_EQ(wrong.worst_index, (Dims{1}));
}

TEST(Compare, NanAndInfinityMustMatch) {
  const Dense want = Dense::Of({3}, {std::nan(""), kInf, 1});
  Image image = Image::Poisoned(DType::kF32, {3}, {1}, 1);
  for (const auto& [values, ok] : std::vector<std::pair<std::vector<double>, bool>>{
           {{std::nan(""), kInf, 1}, true},
           {{0, kInf, 1}, false},
           {{std::nan(""), 3e38, 1}, false},
           {{std::nan(""), -kInf, 1}, false},
           {{std::nan(""), kInf, std::nan("")}, false}}) {
    image.Store(values);
    EXPECT_EQ(Compare(want, image).ok(), ok) << values[0] << " " << values[1] << " " << values[2];
  }
}

TEST(Compare, SeesWritesBetweenElements) {
  const Image before = Image::Poisoned(DType::kF32, {2, 3}, {5, 1}, 1);
  Image after = before;
  after.Store({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(CheckGaps(before, after), "");
  after.bytes[static_cast<size_t>(Image::kGuard + 3 * 4)] ^= 1;
  EXPECT_NE(CheckGaps(before, after), "");
  after = before;
  after.bytes.back() ^= 1;
  EXPECT_NE(CheckGaps(before, after), "");
}

TEST(Compare, RefusesAnOracleThatKnowsNothing) {
  Dense want = Dense::Of({40}, std::vector<double>(40, 1));
  for (size_t i = 0; i < 10; ++i) want.values[i].e = kInf;
  Image image = Image::Poisoned(DType::kF32, {40}, {1}, 1);
  image.Store(std::vector<double>(40, 1));
  EXPECT_FALSE(Compare(want, image).ok());
}

// The share that may be unconstrained is a share of small outputs too.
TEST(Compare, RefusesSmallOutputsThatTheOracleDoesNotKnow) {
  for (const int64_t elements : {1, 2, 3, 19}) {
    const std::vector<double> ones(static_cast<size_t>(elements), 1);
    Dense want = Dense::Of({elements}, ones);
    want.values.back().e = kInf;
    Image image = Image::Poisoned(DType::kF32, {elements}, {1}, 1);
    image.Store(ones);
    EXPECT_FALSE(Compare(want, image).ok()) << elements;
    EXPECT_FALSE(CompareImages(want, image, image, {}).ok()) << elements;
    EXPECT_TRUE(Compare(Dense::Of({elements}, ones), image).ok()) << elements;
  }
}

// The authors' known answer for a counter and a key of zeros.
TEST(Random, WordsAreThoseOfPhilox) {
  constexpr uint32_t kWords[] = {0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48};
  for (int64_t place = 0; place < 4; ++place) EXPECT_EQ(RandomWord(place, 0, 0), kWords[place]);
  EXPECT_EQ(RandomHalf(2, 0, 0), 0x3f64);
  EXPECT_EQ(RandomHalf(3, 0, 0), 0x0d89);
}

// A float sum in any order lies inside the bound; one missing or doubled term does not.
TEST(Bounds, CoverEveryOrderOfSummationAndNoMistake) {
  std::vector<double> terms(1000);
  uint32_t state = 1;
  for (double& t : terms)
    t = static_cast<float>(static_cast<double>((state = state * 1664525u + 1013904223u) >> 8) *
                           0x1p-24);
  const Value sum = Reduction(Reduce::kAdd, Dense::Of({1000}, terms), {1}, DType::kF32).values[0];
  float forward = 0, backward = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    forward += static_cast<float>(terms[i]);
    backward += static_cast<float>(terms[terms.size() - 1 - i]);
  }
  EXPECT_LE(std::fabs(forward - sum.v), sum.e);
  EXPECT_LE(std::fabs(backward - sum.v), sum.e);
  EXPECT_LT(sum.e, 0.01);
}

}  // namespace
}  // namespace kiln::oracle
