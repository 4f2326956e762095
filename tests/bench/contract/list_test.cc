// The bench list: its rules, its counts of work, and that the shipped list is what it says.
#include "bench/contract/list.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "bench/contract/plans.h"
#include "tests/support/oracle/tensor.h"

namespace kiln::bench {
namespace {

constexpr const char* kShipped = "tests/cases/bench_contract.txt";

std::string FirstError(const std::string& text) {
  const ProblemList list = ParseProblems("list.txt", text);
  return list.errors.empty() ? "" : list.errors.front();
}

Problem Only(const std::string& line, const std::string& section = "s") {
  ProblemList list = ParseProblems("list.txt", "[" + section + "]\n" + line);
  EXPECT_TRUE(list.errors.empty()) << list.errors.front();
  return std::move(list.problems.at(0));
}

TEST(BenchList, BadLinesAreNamedByFileLineAndColumn) {
  EXPECT_EQ(FirstError("[s]\np: matmul(a:f16[1,4,4], b:f17[1,4,4]) -> c:f16"),
            "list.txt:2:27: `f17` is no data type");
  EXPECT_EQ(FirstError("[s]\n\np: relu_fwd(x:f16[4,4]) -> y:f16"),
            "list.txt:3:1: a problem has a convolution or a matmul; this one has neither");
  EXPECT_EQ(FirstError("p: matmul(a:f16[1,4,4], b:f16[1,4,4]) -> c:f16"),
            "list.txt:1:1: a problem stands in a [section]");
  EXPECT_EQ(FirstError("[s]\np: matmul(a:f16[1,4,4]@row+2, b:f16[1,4,4]) -> c:f16"),
            "list.txt:2:1: tensor a is not dense: 16 elements over 22 places");
  EXPECT_EQ(
      FirstError("[s]\np: matmul(a:f16[1,4,0], b:f16[1,0,4]) -> c:f16[1,4,4] expect=bad_param"),
      "list.txt:2:1: a problem is a legal graph: expect= has no place here");
  EXPECT_EQ(FirstError("# nothing\n"), "list.txt:1:1: the list has no problem");
  EXPECT_EQ(FirstError("[s]\np: matmul(a:f16[1,4,4], b:f16[1,4,4]) -> c:f16\n"
                       "p: matmul(a:f16[1,4,4], b:f16[1,4,4]) -> c:f16"),
            "list.txt:3:1: list [s] has two cases `p`");
  EXPECT_EQ(LoadProblems("no/such/file.txt").errors.at(0), "no/such/file.txt:0:0: cannot be read");
}

TEST(BenchList, WorkIsCountedInAllDirections) {
  const std::string x = ":f16[2,8,7,7]@nhwc", w = ":f16[16,4,3,3]@nhwc", y = ":f16[2,16,7,7]@nhwc";
  const double flops = 2.0 * 2 * 16 * 49 * 4 * 9;
  const Problem fprop = Only("p: conv_fprop(x" + x + ", w" + w + ") -> y" + y + " pad=1");
  const Problem dgrad = Only("p: conv_dgrad(dy" + y + ", w" + w + ") -> dx" + x + " pad=1");
  const Problem wgrad = Only("p: conv_wgrad(x" + x + ", dy" + y + ") -> dw" + w + " pad=1");
  for (const Problem* p : {&fprop, &dgrad, &wgrad}) {
    EXPECT_EQ(p->flops, flops);
    EXPECT_EQ(p->bytes, 2 * (2 * 8 * 49 + 16 * 4 * 9 + 2 * 16 * 49));
  }
  EXPECT_EQ(TermsOf(fprop.graph, fprop.graph.ops[0]), 36);
  EXPECT_EQ(TermsOf(dgrad.graph, dgrad.graph.ops[0]), 8 * 9);  // 16 filters in 2 groups
  EXPECT_EQ(TermsOf(wgrad.graph, wgrad.graph.ops[0]), 2 * 49);
  EXPECT_EQ(Only("p: matmul(a:f16[3,4,5], b:f16[3,5,6]) -> c:f16").flops, 2.0 * 3 * 4 * 5 * 6);
}

TEST(BenchList, FloorsFollowTypeAndSection) {
  const auto roof = [](const char* type, const char* section) {
    const std::string t = type;
    return Only("p: matmul(a:" + t + "[1,4,4], b:" + t + "[1,4,4]) -> c:f32", section)
               .flops_per_second *
           1e-12;
  };
  EXPECT_EQ(roof("bf16", "matmul"), 790);
  EXPECT_EQ(roof("e4m3", "matmul_fp8"), 1580);
  EXPECT_EQ(roof("f32", "matmul_tf32"), 395);
  EXPECT_EQ(roof("f32", "matmul_fp32"), 60);
  // 8192³ is bound by arithmetic, a row times a matrix by memory.
  EXPECT_NEAR(
      Only("p: matmul(a:bf16[1,8192,8192], b:bf16[1,8192,8192]) -> c:bf16").FloorMicroseconds(),
      1391.8, 0.1);
  EXPECT_NEAR(
      Only("p: matmul(a:bf16[1,16,8192], b:bf16[1,8192,8192]) -> c:bf16").FloorMicroseconds(), 31.3,
      0.1);
}

TEST(BenchList, TheShippedListHasWhatItPromises) {
  const ProblemList list = LoadProblems(kShipped);
  ASSERT_TRUE(list.errors.empty()) << list.errors.front();
  std::map<std::string, int> sections;
  std::set<std::string> resnet;
  for (const Problem& p : list.problems) {
    ++sections[p.section()];
    EXPECT_LT(p.bytes, int64_t{2} << 30) << p.Name();
    EXPECT_GT(p.FloorMicroseconds(), 0) << p.Name();
    if (p.section() == "resnet50_fprop_n256")
      resnet.insert(p.graph.text.substr(p.graph.text.find(':') + 1));
  }
  for (const char* direction : {"fprop_n256", "dgrad_n256", "wgrad_n256", "fprop_n16", "fprop_n1"})
    EXPECT_EQ(sections[std::string("resnet50_") + direction], 23);
  EXPECT_EQ(resnet.size(), 23u) << "distinct convolutions";
  for (const char* section : {"depthwise", "grouped", "dilated", "one_d", "three_d", "transposed",
                              "conv_tf32", "conv_fp32", "conv_bf16", "conv_fp8", "conv_int8",
                              "conv_fused", "matmul", "matmul_fused", "matmul_fp8", "matmul_tf32"})
    EXPECT_GT(sections[section], 0) << section;
}

// A convolution over a line and over an image of one row.
TEST(BenchList, OneDimensionBecomesAnImageForNvidia) {
  const Problem line =
      Only("p: conv_fprop(x:f16[2,8,9]@nhwc, w:f16[4,8,3]@nhwc) -> y:f16@nhwc pad=1 stride=2");
  const auto image = FormFor(Side::kNvidia, line.graph);
  EXPECT_EQ(image.tensors[0].dims, (oracle::Dims{2, 8, 1, 9}));
  EXPECT_EQ(image.tensors[0].strides, (oracle::Dims{72, 1, 72, 8}));
  EXPECT_EQ(image.tensors[2].dims, (oracle::Dims{2, 4, 1, 5}));
  EXPECT_EQ(image.ops[0].List("pad", {9, 9}), (oracle::Dims{0, 1}));
  EXPECT_EQ(image.ops[0].List("stride", {9, 9}), (oracle::Dims{1, 2}));
  EXPECT_EQ(FormFor(Side::kOurs, line.graph).tensors[0].dims.size(), 3u);
}

}  // namespace
}  // namespace kiln::bench
