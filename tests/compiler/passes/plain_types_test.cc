// Conversions to and from types that tensors have in memory alone, for every code and beside every
// border between two: GPU and CPU kernels by interpretation, against ir/dtype.h.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/graph/builder.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::GraphBuilder;
using graph::TensorId;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<double> AllCodes(DType type) {
  std::vector<double> values;
  for (uint8_t code = 0; code < 16; ++code) values.push_back(LoadValue(type, &code));
  return values;
}

// Numbers of f32 at the borders between those of 4-bit types, on both sides of them, and beyond.
std::vector<double> Borders() {
  std::vector<double> values = {NAN, -NAN, 1e-40, 1e-45, 3.4e38, 2147483648.0, 4294967296.0};
  for (float border = 0; border <= 18; border += 0.25f)
    values.insert(values.end(),
                  {border, std::nextafter(border, -kInf), std::nextafter(border, kInf)});
  values.push_back(kInf);
  for (size_t i = values.size(); i-- > 0;) values.push_back(-values[i]);
  return values;
}

// Compares what kernels of both kinds make of `values` in `from`, stored in `to`.
void ExpectConverted(DType from, DType to, const std::vector<double>& values, DType compute) {
  GraphBuilder b("convert");
  const auto count = static_cast<int64_t>(values.size());
  const TensorId x = b.Input("x", from, {count});
  b.Output(b.Pointwise(graph::PointwiseMode::kIdentity, {x}, {.compute = compute}), "y", to);
  const auto graph = b.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  for (const char* arch : {"sm_90a", "cpu"}) {
    const auto run = RunTiles(*graph, *TargetFromArch(arch), {{graph::Inputs(*graph)[0], values}});
    ASSERT_TRUE(run.ok()) << run.status().message();
    const std::vector<double>& got = run->outputs.begin()->second;
    for (size_t i = 0; i < values.size(); ++i) {
      const double want = RoundTo(to, RoundTo(from, values[i]));
      EXPECT_TRUE((std::isnan(got[i]) && std::isnan(want)) ||
                  (got[i] == want && std::signbit(got[i]) == std::signbit(want)))
          << arch << ": " << values[i] << " in " << Info(from).text << " became " << got[i]
          << " in " << Info(to).text << ", not " << want;
    }
  }
}

TEST(PlainTypes, EveryCodeKeepsItsValue) {
  for (const DType type : {DType::kE2M1, DType::kI4, DType::kU4}) {
    ExpectConverted(type, DType::kF32, AllCodes(type), DType::kF32);
    ExpectConverted(type, DType::kF64, AllCodes(type), DType::kF64);
    ExpectConverted(type, type, AllCodes(type), DType::kF32);
  }
}

TEST(PlainTypes, BordersRoundAsTheyShould) {
  for (const DType type : {DType::kE2M1, DType::kI4, DType::kU4, DType::kU32}) {
    ExpectConverted(DType::kF32, type, Borders(), DType::kF32);
    ExpectConverted(DType::kF64, type, Borders(), DType::kF64);
    ExpectConverted(DType::kI8, type, Borders(), DType::kF32);
  }
}

struct Layout {
  Dims dims, strides;
};

// Whole bytes and parts of them, dims that fill bytes together, gaps, and orders of dims.
const Layout kLayouts[] = {{{40}, {1}},
                           {{13}, {1}},
                           {{1}, {1}},
                           {{3, 5}, {5, 1}},
                           {{3, 5}, {8, 1}},
                           {{3, 24}, {40, 1}},
                           {{2, 32, 3, 2}, {192, 1, 64, 32}},
                           {{2, 12, 3, 2}, {72, 1, 24, 12}},
                           {{2, 5, 3, 2}, {48, 1, 16, 8}},
                           {{4, 3, 7}, {21, 7, 1}},
                           {{4, 3, 7}, {1, 28, 4}},
                           {{3, 4}, {32, 8}}};

TEST(PlainTypes, BitsAreWrittenInEveryLayout) {
  for (const Layout& layout : kLayouts) {
    GraphBuilder b("compare");
    const TensorId x = b.Input("x", DType::kF32, layout.dims),
                   zero = b.Constant("zero", DType::kF32, 0, std::ssize(layout.dims));
    b.Output(b.Pointwise(graph::PointwiseMode::kCmpNeq, {x, zero}), "y", DType::kB1,
             layout.strides);
    const auto graph = b.Finish();
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    std::vector<double> values(static_cast<size_t>(NumElements(layout.dims)));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = i % 11 == 7 ? NAN : i * 7 % 3 == 0 ? 0 : -1.5;
    for (const char* arch : {"sm_90a", "cpu"}) {
      const auto run = RunTiles(*graph, *TargetFromArch(arch), {{x, values}});
      ASSERT_TRUE(run.ok()) << run.status().message();
      const std::vector<double>& got = run->outputs.begin()->second;
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(got[i], values[i] != 0) << arch << " " << DimsText(layout.dims) << " at " << i;
    }
  }
}

TEST(PlainTypes, BitsAreReadInEveryLayout) {
  std::vector<Layout> layouts(std::begin(kLayouts), std::end(kLayouts));
  layouts.push_back({{3, 5}, {7, 1}});  // where elements of others share a byte
  layouts.push_back({{2, 3, 4}, {0, 9, 2}});
  for (const Layout& layout : layouts) {
    GraphBuilder b("select");
    const TensorId a = b.Input("a", DType::kF32, layout.dims),
                   m = b.Input("m", DType::kB1, layout.dims, layout.strides),
                   other = b.Constant("c", DType::kF32, -2, std::ssize(layout.dims));
    b.Output(b.Pointwise(graph::PointwiseMode::kBinarySelect, {a, other, m}), "y", DType::kF32);
    const auto graph = b.Finish();
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    const auto count = static_cast<size_t>(NumElements(layout.dims));
    std::vector<double> values(count), mask(count);
    const size_t period = layout.strides[0] == 0 ? count / 2 : count;  // of what lies in one place
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<double>(i) + 1;
      mask[i] = (i % period) * 5 % 7 < 3 ? 1 : 0;
    }
    for (const char* arch : {"sm_90a", "cpu"}) {
      const auto run = RunTiles(*graph, *TargetFromArch(arch), {{a, values}, {m, mask}});
      ASSERT_TRUE(run.ok()) << run.status().message();
      const std::vector<double>& got = run->outputs.begin()->second;
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(got[i], mask[i] != 0 ? values[i] : -2)
            << arch << " " << DimsText(layout.dims) << " at " << i;
    }
  }
}

TEST(PlainTypes, LargeWordsAreNotNegative) {
  const std::vector<double> words = {0, 1, 2147483647.0, 2147483648.0, 4294967295.0};
  for (const DType to : {DType::kF64, DType::kI64, DType::kU32, DType::kF32, DType::kI32})
    ExpectConverted(DType::kU32, to, words, to == DType::kF32 ? DType::kF32 : DType::kI64);
}

}  // namespace
}  // namespace kiln::compiler
