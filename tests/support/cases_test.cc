// The case parser, the data it asks for, and the case files themselves: each parses, and on each the oracle
// accepts its own rounded result and refuses poison.
#include "tests/support/cases.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/evaluate.h"
#include "tests/support/oracle/oracle.h"

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

INSTANTIATE_TEST_SUITE_P(All, CaseFiles,
                         ::testing::Values("conv.txt", "matmul.txt", "pointwise.txt",
                                           "reduction.txt", "fused.txt"));

TEST(CaseFilesTogether, CoverEveryPointwiseMode) {
  std::set<std::string> used;
  for (const Case& c : LoadCases("tests/cases/pointwise.txt").cases)
    used.insert(c.ops.front().name);
  for (const auto& mode : oracle::PointwiseModes())
    EXPECT_TRUE(used.contains(std::string(mode.name))) << mode.name;
}

}  // namespace
}  // namespace kiln::testing
