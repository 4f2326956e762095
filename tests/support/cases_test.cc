// The case parser, the data it asks for, and the case files themselves: each parses, and on each
// the oracle accepts its own rounded result and refuses poison.
#include "tests/support/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/cases_rank.h"
#include "tests/support/evaluate.h"
#include "tests/support/oracle/compare.h"
#include "tests/support/oracle/oracle.h"
#include "tests/support/row_factor.h"

namespace kiln::testing {
namespace {

Case Parse(const std::string& line) {
  std::string error;
  const auto parsed = ParseCase(line, &error);
  EXPECT_TRUE(parsed.has_value()) << error;
  return parsed.value_or(Case{});
}

std::string ErrorOf(const std::string& line) {
  const CaseFile file = ParseCases("f", line);
  return file.errors.empty() ? "" : file.errors.front();
}

TEST(Cases, LayoutsGiveStrides) {
  const auto strides = [](const std::string& type) {
    return Parse("c: exp(x:" + type + ") -> y:f32").tensors[0].strides;
  };
  EXPECT_EQ(strides("f32[2,3,4,5]"), (Dims{60, 20, 5, 1}));
  EXPECT_EQ(strides("f32[2,3,4,5]@nhwc"), (Dims{60, 1, 15, 3}));
  EXPECT_EQ(strides("f32[2,3,4]@col"), (Dims{12, 1, 3}));
  EXPECT_EQ(strides("f32[2,3,4]@p201"), (Dims{3, 1, 6}));
  EXPECT_EQ(strides("f32[2,3,4]@row+2"), (Dims{18, 6, 1}));
  EXPECT_EQ(strides("f32[2,3]@row*2"), (Dims{6, 2}));
  EXPECT_EQ(strides("f32[2,3]@s7.2"), (Dims{7, 2}));
}

TEST(Cases, ResultsAreInferred) {
  EXPECT_EQ(Parse("c: conv_fprop(x:f32[2,4,9,9], w:f32[6,4,3,3]) -> y:f32 pad=1 stride=2")
                .tensors[2]
                .dims,
            (Dims{2, 6, 5, 5}));
  EXPECT_EQ(Parse("c: matmul(a:f32[1,2,3], b:f32[5,3,4]) -> c:f32").tensors[2].dims,
            (Dims{5, 2, 4}));
  const Case c = Parse("c: add(a:f32[2,1], b:f32[1,3]) -> %t:f16; exp(%t) -> y:f32@col");
  EXPECT_EQ(c.tensors[3].dims, (Dims{2, 3}));
  EXPECT_EQ(c.tensors[3].strides, (Dims{1, 2}));
  EXPECT_EQ(c.Inputs(), (std::vector<int>{0, 1}));
  EXPECT_EQ(c.Outputs(), (std::vector<int>{3}));
  EXPECT_EQ(c.Bytes(), (2 + 3 + 6) * 4);
}

TEST(Cases, ErrorsNameLineAndColumn) {
  EXPECT_EQ(ErrorOf("\nc: add(x:f32[2], y:f33[2]) -> z:f32"), "f:2:20: `f33` is no data type");
  EXPECT_EQ(ErrorOf("c: addd(x:f32[2], y:f32[2]) -> z:f32"), "f:1:4: unknown operation `addd`");
  EXPECT_NE(ErrorOf("c: add(x:f32[2]) -> z:f32").find("takes 2 to 2 operands"), std::string::npos);
  EXPECT_NE(ErrorOf("c: exp(x) -> z:f32").find("not declared"), std::string::npos);
  EXPECT_NE(ErrorOf("c: exp(x:f32[2]) -> x:f32").find("declared twice"), std::string::npos);
  EXPECT_NE(ErrorOf("c: exp(x:f32[2]@nhwc) -> z:f32").find("does not fit"), std::string::npos);
  EXPECT_NE(ErrorOf("c: exp(x:f32[2]!odd) -> z:f32").find("no fill"), std::string::npos);
  EXPECT_NE(ErrorOf("c: exp(x:f32[2]) -> z:f32 aplha1=2").find("unknown attribute"),
            std::string::npos);
  EXPECT_NE(ErrorOf("c: reduce_add(x:f32[2]) -> z:f32").find("needs its dims"), std::string::npos);
  EXPECT_NE(ErrorOf("c: exp(x:f32[2]) -> z:f32\nc: exp(x:f32[2]) -> z:f32").find("two cases"),
            std::string::npos);
  EXPECT_NE(ErrorOf("c: exp(x:f32[2]").find("expected"), std::string::npos);
}

TEST(Cases, DataDependOnTheSeedAndOnNothingElse) {
  EXPECT_EQ(FillValues("uniform", DType::kF32, 100, 7), FillValues("uniform", DType::kF32, 100, 7));
  EXPECT_NE(FillValues("uniform", DType::kF32, 100, 7), FillValues("uniform", DType::kF32, 100, 8));
}

TEST(Cases, FormsForNvidiaHaveRankFour) {
  const auto forms = FormsForNvidia(Parse("c: add(x:f32[7,33]@row+3, s:f32[1,1]=2) -> y:f32"));
  ASSERT_EQ(forms.size(), 2u);
  EXPECT_EQ(forms[0].tensors[0].dims, (Dims{1, 1, 7, 33}));
  EXPECT_EQ(forms[0].tensors[0].strides, (Dims{252, 252, 36, 1}));
  EXPECT_EQ(forms[0].tensors[1].dims, (Dims{1, 1, 1, 1}));
  EXPECT_EQ(forms[1].tensors[2].dims, (Dims{7, 33, 1, 1}));
  EXPECT_EQ(forms[1].tensors[2].strides, (Dims{33, 1, 33, 33}));
  const auto matrices = FormsForNvidia(Parse("c: matmul(a:f32[2,3], b:f32[3,4]) -> c:f32"));
  ASSERT_EQ(matrices.size(), 1u);
  EXPECT_EQ(matrices[0].tensors[2].dims, (Dims{1, 2, 4}));
  const auto index = FormsForNvidia(Parse("c: gen_index(x:f32[3,5,7]) -> y:i32 axis=1"));
  EXPECT_EQ(index[0].ops[0].Number("axis", 0), 2);
  EXPECT_EQ(index[1].ops[0].Number("axis", 0), 1);
  const auto image = FormsForNvidia(Parse("c: conv_fprop(x:f32[1,2,9], w:f32[4,2,3]) -> y:f32"));
  ASSERT_EQ(image.size(), 1u);
  EXPECT_EQ(image[0].tensors[0].dims.size(), 3u);
}

class CaseFiles : public ::testing::TestWithParam<const char*> {};

TEST_P(CaseFiles, TheOracleAcceptsItsOwnResultAndRefusesPoison) {
  const CaseFile file = LoadCases(std::string("tests/cases/") + GetParam());
  ASSERT_TRUE(file.errors.empty()) << file.errors.front();
  ASSERT_FALSE(file.List("smoke").empty());
  for (const Case& c : file.cases) {
    if (c.expects_bad_param) continue;
    const CaseData before = MakeData(c, 42);
    const auto expected = Evaluate(c, before);
    CaseData after = before;
    for (const auto& [tensor, dense] : expected) {
      std::vector<double> values;
      for (const oracle::Value& value : dense.values) values.push_back(value.v);
      after.images[static_cast<size_t>(tensor)].Store(values);
    }
    EXPECT_EQ(CheckRun(c, before, after, expected), "") << c.Label();
    EXPECT_NE(CheckRun(c, before, before, expected), "")
        << c.Label() << ": unwritten memory passes";
  }
}

// Bounds too, since a form is compared with the oracle on its own. Zero extents are refused in
// every form.
TEST_P(CaseFiles, AddedDimsChangeNeitherMemoryNorMeaning) {
  for (const Case& c : LoadCases(std::string("tests/cases/") + GetParam()).cases) {
    if (c.expects_bad_param) continue;
    const CaseData data = MakeData(c, 42);
    const auto expected = Evaluate(c, data);
    for (const Case& form : FormsForNvidia(c)) {
      const CaseData padded = MakeData(form, 42);
      for (size_t i = 0; i < c.tensors.size(); ++i)
        EXPECT_EQ(padded.images[i].bytes, data.images[i].bytes) << c.Label();
      const auto same = Evaluate(form, padded);
      ASSERT_EQ(same.size(), expected.size()) << c.Label();
      for (const auto& [tensor, dense] : expected) {
        const auto& values = same.at(tensor).values;
        ASSERT_EQ(values.size(), dense.values.size()) << c.Label();
        for (size_t i = 0; i < values.size(); ++i) {
          const bool equal = values[i].v == dense.values[i].v ||
                             (std::isnan(values[i].v) && std::isnan(dense.values[i].v));
          ASSERT_TRUE(equal && values[i].e == dense.values[i].e) << c.Label() << " element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CaseFiles,
                         ::testing::Values("conv.txt", "matmul.txt", "pointwise.txt",
                                           "reduction.txt", "fused.txt", "block_scale.txt",
                                           "rng.txt", "band.txt", "moe.txt", "conv_direct.txt",
                                           "attention.txt", "parts.txt", "rope.txt"));

const char kAttention[] =
    "a: matmul(q:bf16[1,2,9,8], k:bf16[1,2,8,30]) -> %s:f32; reduce_max(%s) -> %m:f32[1,2,9,1]; "
    "sub(%s, %m) -> %d:f32; exp(%d) -> %e:f32; reduce_add(%e) -> %l:f32[1,2,9,1]; "
    "div(%e, %l) -> %p:bf16; matmul(%p, v:bf16[1,2,30,4]) -> y:f32";

TEST(RowFactor, IsWhatASumCanBeDividedByLast) {
  const auto of = [](const std::string& line, const std::string& name) {
    const Case c = Parse(line);
    for (size_t i = 0; i < c.tensors.size(); ++i)
      if (c.tensors[i].name.ends_with(name)) return HasRowFactor(c, static_cast<int>(i));
    ADD_FAILURE() << "no tensor " << name;
    return false;
  };
  EXPECT_TRUE(of(kAttention, "p"));
  EXPECT_FALSE(of(kAttention, "e"));  // a reduction and a quotient read it
  EXPECT_FALSE(
      of("a: div(e:f32[2,9,30], l:f32[2,9,1]) -> p:bf16; matmul(p, v:bf16[2,30,4]) -> y:f32", "p"));
  EXPECT_FALSE(of(
      "a: div(e:f32[2,9,30], l:f32[2,1,30]) -> %p:bf16; matmul(%p, v:bf16[2,30,4]) -> y:f32", "p"));
  EXPECT_FALSE(of(
      "a: div(e:f32[2,30,4], l:f32[2,30,1]) -> %p:bf16; matmul(w:bf16[2,9,30], %p) -> y:f32", "p"));
  EXPECT_TRUE(
      of("a: div(e:f32[2,9,30], l:f32[2,9,1]) -> %p:f32; mul(%p, m:f32[2,9,30]) -> %q:f16; "
         "matmul(%q, v:f16[2,30,4]) -> y:f32",
         "q"));
  EXPECT_TRUE(
      of("a: sub(s:f32[2,9,30], l:f32[2,9,1]) -> %d:f32; exp(%d) -> %p:f16; matmul(%p, "
         "v:f16[2,30,4]) -> y:f32",
         "p"));
}

// Weights rounded before the division, as flash attention has them, are right; weights with a bit
// less are not.
TEST(RowFactor, BoundsHoldWeightsThatAreRoundedFirst) {
  const Case c = Parse(kAttention);
  CaseData data = MakeData(c, 7);
  const auto expected = Evaluate(c, data);
  const int y = c.Outputs().at(0);
  const auto in = [&](int i) { return data.images[static_cast<size_t>(c.Inputs()[i])].ToDense(); };
  const oracle::Dense q = in(0), k = in(1), v = in(2);
  const auto is_right = [&](DType weights) {
    std::vector<double> result;
    for (size_t row = 0; row < 18; ++row) {
      std::vector<double> e(30);
      double sum = 0, most = -1e30;
      for (size_t j = 0; j < 30; ++j) {
        for (size_t d = 0; d < 8; ++d)
          e[j] += q.values[row * 8 + d].v * k.values[(row / 9 * 8 + d) * 30 + j].v;
        most = std::max(most, e[j]);
      }
      for (double& x : e) sum += x = std::exp(x - most);
      for (size_t d = 0; d < 4; ++d) {
        result.push_back(0);
        for (size_t j = 0; j < 30; ++j)
          result.back() +=
              oracle::Round(weights, e[j]) * v.values[(row / 9 * 30 + j) * 4 + d].v / sum;
      }
    }
    oracle::Image image = data.images[static_cast<size_t>(y)];
    image.Store(result);
    return oracle::Compare(expected.at(y), image).ok();
  };
  EXPECT_TRUE(is_right(DType::kBF16));
  EXPECT_TRUE(is_right(DType::kF32));
  EXPECT_FALSE(is_right(DType::kE4M3));
}

TEST(CaseFilesTogether, CoverEveryPointwiseMode) {
  std::set<std::string> used;
  for (const Case& c : LoadCases("tests/cases/pointwise.txt").cases)
    used.insert(c.ops.front().name);
  for (const auto& mode : oracle::PointwiseModes())
    EXPECT_TRUE(used.contains(std::string(mode.name))) << mode.name;
}

}  // namespace
}  // namespace kiln::testing
