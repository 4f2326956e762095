// The sampled oracle against the full one, element by element, and that the check notices what it
// must: poison, a wrong element anywhere, and which of two results is the wrong one.
#include "bench/contract/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/bench/contract/host_gpu.h"
#include "tests/support/evaluate.h"

namespace kiln::bench {
namespace {

using testing::Case;
using testing::CaseData;

Problem Parse(const std::string& line, const std::string& section = "s") {
  ProblemList list = ParseProblems("list.txt", "[" + section + "]\n" + line);
  EXPECT_TRUE(list.errors.empty()) << list.errors.front();
  return std::move(list.problems.at(0));
}

// The data of the bench as the full oracle takes it.
CaseData ToCaseData(const Problem& problem, const ProblemData& data) {
  const Case& c = problem.graph;
  CaseData full = testing::MakeData(c, 1);
  for (const int input : c.Inputs()) {
    const auto i = static_cast<size_t>(input);
    const auto bytes = data.Bytes(input, oracle::Count(c.tensors[i].dims));
    std::memcpy(&full.images[i].bytes[oracle::Image::kGuard], bytes.data(), bytes.size());
  }
  return full;
}

class SampledOracle : public ::testing::TestWithParam<const char*> {};

TEST_P(SampledOracle, IsTheFullOnePlaceByPlace) {
  const Problem problem = Parse(GetParam(), "keeps_fp32");
  static BlockStore store;  // a block takes a moment to make
  const ProblemData data(problem.graph, store);
  const SampleOracle sampled(problem, data);
  const auto expected = testing::Evaluate(problem.graph, ToCaseData(problem, data));
  for (const auto& [tensor, dense] : expected) {
    EXPECT_LT(sampled.CostOf(tensor), 1e9);
    oracle::Dims index(dense.dims.size(), 0);
    size_t at = 0;
    do {
      const oracle::Value want = dense.values[at++], got = sampled.At(tensor, index);
      ASSERT_NEAR(got.v, want.v, 1e-12 + 1e-9 * std::abs(want.v)) << oracle::ToText(index);
      // fp8 alone gets a wider bound.
      ASSERT_GE(got.e, want.e * (1 - 1e-6)) << oracle::ToText(index);
      ASSERT_LE(got.e, want.e * 1.5 + (problem.flops_per_second > 1e15 ? 1 : 1e-6))
          << oracle::ToText(index);
    } while (oracle::Next(dense.dims, index));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Operations, SampledOracle,
    ::testing::Values(
        "p: conv_fprop(x:f16[2,6,5,7]@nhwc, w:f16[4,3,3,2]@nhwc) -> y:f16@nhwc pad=1,2 stride=2,1",
        "p: conv_fprop(x:f32[2,3,9], w:f32[4,3,3]) -> y:f32 pad=2 dilation=2",
        "p: conv_dgrad(dy:f16[2,6,3,4]@nhwc, w:f16[6,2,3,3]@nhwc) -> dx:f16[2,4,6,7]@nhwc pad=1 "
        "stride=2",
        "p: conv_wgrad(x:f16[2,4,6,7]@nhwc, dy:f16[2,6,3,4]@nhwc) -> dw:f16[6,2,3,3]@nhwc pad=1 "
        "stride=2",
        "p: conv_fprop(x:f16[1,2,3,4,5]@nhwc, w:f16[3,2,3,3,3]@nhwc) -> y:f16@nhwc pad=1",
        "p: matmul(a:f16[3,5,7]@col, b:f16[1,7,4]) -> c:f16",
        "p: matmul(a:bf16[1,5,9], b:bf16[1,9,4]@col) -> %t:f32; add(%t, bias:bf16[1,1,4]) -> "
        "%u:f32; gelu_fwd(%u) -> c:bf16",
        "p: matmul(a:bf16[1,5,9], b:bf16[1,9,4]) -> gate:bf16; swish_fwd(gate) -> %s:f32; mul(%s, "
        "up:bf16[1,5,4]) -> c:bf16",
        "p: mul(x:f16[2,3,4,4]@nhwc, s:f16[1,3,1,1]@nhwc!pos) -> %s:f16@nhwc; relu_fwd(%s) -> "
        "%r:f16@nhwc; conv_fprop(%r, w:f16[4,3,3,3]@nhwc) -> y:f16@nhwc pad=1",
        "p: conv_fprop(x:f16[2,3,4,4]@nhwc, w:f16[4,3,3,3]@nhwc) -> y:f16@nhwc pad=1; "
        "gen_stats(y) -> s:f32@nhwc, q:f32@nhwc",
        "p: conv_fprop(x:i8[1,4,4,4]@nhwc, w:i8[4,4,3,3]@nhwc) -> %t:i32@nhwc pad=1 compute=i32; "
        "mul(%t, s:f32[1,1,1,1]=0.0078125) -> y:i8@nhwc",
        "p: matmul(a:e4m3[1,4,16], b:e4m3[1,16,4]@col) -> %t:f32; mul(%t, sa:f32[1,1,1]!pos) -> "
        "c:bf16"));

// A matmul whose right result is written by hand from the oracle.
class Checking : public ::testing::Test {
 protected:
  Checking()
      : problem_(Parse("p: matmul(a:f16[1,40,24], b:f16[1,24,50]) -> c:f16")),
        data_(problem_.graph, store_),
        memory_(gpu_, problem_.graph, data_, 16),
        buffers_(gpu_),
        checker_(gpu_, buffers_, problem_, data_) {
    memory_.Poison();
  }
  void WriteRight() {
    const SampleOracle oracle(problem_, data_);
    oracle::Dims index(3, 0);
    auto* c = static_cast<uint8_t*>(memory_.TensorAt(2));
    do {
      oracle::Encode(oracle::DType::kF16, oracle.At(2, index).v,
                     c + 2 * (index[1] * 50 + index[2]));
    } while (oracle::Next({1, 40, 50}, index));
  }
  void Spoil(int64_t row, int64_t column) {
    oracle::Encode(oracle::DType::kF16, 100,
                   static_cast<uint8_t*>(memory_.TensorAt(2)) + 2 * (row * 50 + column));
  }
  std::string Check() { return checker_.Check(memory_, Checker::kOurs, &blamed_); }

  testing::HostGpu gpu_;
  Problem problem_;
  BlockStore store_;
  ProblemData data_;
  ProblemMemory memory_;
  CheckBuffers buffers_;
  Checker checker_;
  std::string blamed_;
};

TEST_F(Checking, PoisonIsFound) { EXPECT_EQ(Check(), "c[0,0,0] is NaN or was not written"); }

TEST_F(Checking, ARightResultPassesTwice) {
  WriteRight();
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(blamed_, "");
}

TEST_F(Checking, OneWrongElementIsFoundByComparison) {
  WriteRight();
  ASSERT_EQ(Check(), "");
  Spoil(17, 23);
  EXPECT_NE(Check().find("c[0,17,23] is 100, the oracle says"), std::string::npos) << Check();
  EXPECT_EQ(blamed_, "");
}

TEST_F(Checking, TheWrongOneOfTwoIsBlamed) {
  WriteRight();
  // Somewhere no sample looks: found when a right result comes.
  for (int64_t row = 0; row < 40 && blamed_.empty(); ++row) {
    Spoil(row, 31);
    if (Check().empty()) {
      WriteRight();
      EXPECT_EQ(Check(), "");
      break;
    }
    WriteRight();
  }
  EXPECT_NE(blamed_.find("is 100, the oracle says"), std::string::npos) << blamed_;
}

// Sums of 2048 products; `rounded` operands keep TF32's 11 bits.
std::string CheckOfProduct(const std::string& section, bool rounded) {
  constexpr int64_t kRows = 24, kColumns = 16, kDepth = 2048;
  testing::HostGpu gpu;
  const Problem problem = Parse("p: matmul(a:f32[1,24,2048], b:f32[1,2048,16]) -> c:f32", section);
  BlockStore store;
  const ProblemData data(problem.graph, store);
  const ProblemMemory memory(gpu, problem.graph, data, 16);
  CheckBuffers buffers(gpu);
  Checker checker(gpu, buffers, problem, data);
  const auto operand = [&](int tensor, int64_t at) {
    const double value = data.At(tensor, at);
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    return rounded ? std::ldexp(std::round(std::ldexp(mantissa, 11)), exponent - 11) : value;
  };
  auto* c = static_cast<uint8_t*>(memory.TensorAt(2));
  for (int64_t m = 0; m < kRows; ++m)
    for (int64_t n = 0; n < kColumns; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < kDepth; ++k)
        sum += operand(0, m * kDepth + k) * operand(1, k * kColumns + n);
      oracle::Encode(oracle::DType::kF32, sum, c + 4 * (m * kColumns + n));
    }
  std::string blamed;
  return checker.Check(memory, Checker::kOthers, &blamed);
}

TEST(BenchCheck, RoundedOperandsAreNoF32) {
  EXPECT_EQ(CheckOfProduct("matmul_fp32", false), "");
  EXPECT_EQ(CheckOfProduct("matmul_tf32", true), "");
  EXPECT_NE(CheckOfProduct("matmul_fp32", true).find("its operands were rounded"),
            std::string::npos);
}

TEST(BenchData, RepeatsItsBlockAndKnowsEveryElement) {
  testing::HostGpu gpu;
  const Problem problem = Parse("p: matmul(a:f16[1,2500,900], b:f16[1,900,2]) -> c:f16");
  BlockStore store;
  const ProblemData data(problem.graph, store);
  ASSERT_GT(2500 * 900, BlockStore::kLength);
  const ProblemMemory memory(gpu, problem.graph, data, 0);
  const auto* a = static_cast<const uint8_t*>(memory.TensorAt(0));
  for (int64_t i = 0; i < 2500 * 900; ++i)
    ASSERT_EQ(oracle::Decode(oracle::DType::kF16, a + 2 * i), data.At(0, i)) << i;
  // The second operand is scaled by about 1/sqrt(900).
  double squares = 0;
  for (int64_t i = 0; i < 1800; ++i) squares += data.At(1, i) * data.At(1, i);
  EXPECT_NEAR(std::sqrt(squares / 1800) * 30, 1, 0.25);
}

// fp8 sums of 8192 products, as the shipped list has them, stay below e4m3's 448.
TEST(BenchData, ScalesKeepFp8InRange) {
  const Problem problem = Parse(
      "p: matmul(a:e4m3[1,4,8192], b:e4m3[1,8192,40]@col) -> %t:f32; mul(%t, sa:f32[1,1,1]) -> "
      "%d:f32; mul(%d, sb:f32[1,1,1]) -> c:e4m3");
  static BlockStore store;
  const ProblemData data(problem.graph, store);
  const SampleOracle oracle(problem, data);
  double largest = 0;
  for (int64_t n = 0; n < 40; ++n)
    largest = std::max(largest, std::abs(oracle.At(problem.graph.Outputs()[0], {0, n % 4, n}).v));
  EXPECT_GT(largest, 1);
  EXPECT_LT(largest, 50);
}

TEST(BenchCompare, FindsTheFarthestElementAndNan) {
  const std::vector<double> values(3 << 18, 1.0);
  auto bytes = [](const std::vector<double>& list) {
    std::vector<uint8_t> out(list.size() * 4);
    for (size_t i = 0; i < list.size(); ++i)
      oracle::Encode(oracle::DType::kF32, list[i], &out[4 * i]);
    return out;
  };
  auto other = values;
  const auto count = static_cast<int64_t>(values.size());
  const auto reference = bytes(values);
  EXPECT_EQ(Farthest(oracle::DType::kF32, reference.data(), reference.data(), count, 0.1).element,
            -1);
  other[500000] = 1.5;
  other[7] = 0.75;
  const Distance far =
      Farthest(oracle::DType::kF32, bytes(other).data(), reference.data(), count, 0.1);
  EXPECT_EQ(far.element, 500000);
  EXPECT_NEAR(far.ratio, 5, 0.01);
  EXPECT_EQ(FindNan(oracle::DType::kF32, reference.data(), count), -1);
  other[300001] = other[700001] = std::nan("");
  EXPECT_EQ(FindNan(oracle::DType::kF32, bytes(other).data(), count), 300001);
}

}  // namespace
}  // namespace kiln::bench
