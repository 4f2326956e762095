// Graphs with complex tensors lose them when they come in: what becomes of operations, and the
// sentences of those that take none. Values are checked by tests/cases/complex.txt.
#include "ir/graph/complex.h"

#include <gtest/gtest.h>

#include "ir/graph/builder.h"
#include "ir/graph/eval.h"

namespace kiln::graph {
namespace {

Result<Graph> Split(const std::string& body) {
  ASSIGN_OR_RETURN(Graph graph, Parse("graph g {" + body + "}"));
  RETURN_IF_ERROR(Legalize(graph));
  return graph;
}

std::string Sentence(const std::string& body) {
  const auto graph = Split(body);
  return graph.ok() ? Print(*graph) : graph.status().message();
}

#define XY "tensor %x uid=1 c64 [2,3] tensor %y uid=2 c64 [2,3] "

TEST(SplitComplex, PartsLieBesideEachOther) {
  const auto graph = Split(
      "tensor %x uid=1 c64 [2,3] strides=[1,2] tensor %y uid=2 c128 [2,3] strides=[4,1] "
      "%y = pointwise(%x) compute=c128 mode=neg");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const std::string text = Print(*graph);
  for (const char* line : {"tensor %x uid=1 f32 [2,3,2] strides=[2,4,1]",
                           "tensor %y uid=2 f64 [2,3,2] strides=[8,2,1]", "compute=f64 axis=2"})
    EXPECT_NE(text.find(line), text.npos) << line << "\n" << text;
  EXPECT_EQ(text.find(" c64"), text.npos) << text;
  EXPECT_EQ(text.find(" c128"), text.npos) << text;
}

// (1 + 2i) (3 - i) = 5 + 5i, by hand.
TEST(SplitComplex, MultipliesByHand) {
  auto graph = Split(
      "tensor %x uid=1 c64 [1] tensor %b uid=2 c64 [1] tensor %y uid=3 c64 [1] "
      "%y = pointwise(%x, %b) compute=c64 mode=mul alpha1=2");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  TensorValues values;
  for (const TensorId id : Inputs(*graph))
    values[id] = (*graph)[id].uid == 1 ? std::vector<double>{1, 2} : std::vector<double>{3, -1};
  ASSERT_TRUE(Evaluate(*graph, values).ok());
  EXPECT_EQ(values.at(Outputs(*graph)[0]), (std::vector<double>{10, 10}));
}

// (1 + 2i) (3 - i) (2i) = -10 + 10i, with a zero between them that only one of the modes leaves
// out; of no numbers the product is 1.
TEST(SplitComplex, MultipliesAllOfThem) {
  const auto product = [](const std::string& mode, int count, std::vector<double> x) {
    auto graph = Split("tensor %x uid=1 c64 [1," + std::to_string(count) +
                       "] tensor %y uid=2 c64 [1,1] %y = reduction(%x) compute=c64 mode=" + mode);
    EXPECT_TRUE(graph.ok()) << graph.status().message();
    TensorValues values;
    values[Inputs(*graph)[0]] = std::move(x);
    EXPECT_TRUE(Evaluate(*graph, values).ok());
    return values.at(Outputs(*graph)[0]);
  };
  using Numbers = std::vector<double>;
  EXPECT_EQ(product("mul", 3, {1, 2, 3, -1, 0, 2}), (Numbers{-10, 10}));
  EXPECT_EQ(product("mul", 4, {1, 2, 0, 0, 3, -1, 0, 2}), (Numbers{0, 0}));
  EXPECT_EQ(product("mul_no_zeros", 4, {1, 2, 0, 0, 3, -1, 0, 2}), (Numbers{-10, 10}));
  EXPECT_EQ(product("mul", 0, {}), (Numbers{1, 0}));
}

// 5 + 12i has the magnitude 13, at any scale that f32 has.
TEST(SplitComplex, MagnitudesDoNotOverflow) {
  auto graph = Split(
      "tensor %x uid=1 c64 [6] tensor %y uid=2 f32 [6] %y = pointwise(%x) compute=c64 mode=abs");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  TensorValues values;
  values[Inputs(*graph)[0]] = {
      5, 12, 0x1p122 * 5, 0x1p122 * -12, 0x1p-126 * 5, 0x1p-126 * 12, 0, -0.0, kInf, 3, 3, -kInf};
  ASSERT_TRUE(Evaluate(*graph, values).ok());
  const std::vector<double>& y = values.at(Outputs(*graph)[0]);
  EXPECT_NEAR(y[0], 13, 2e-6);
  EXPECT_NEAR(y[1], 0x1p122 * 13, 0x1p122 * 2e-6);
  EXPECT_NEAR(y[2], 0x1p-126 * 13, 0x1p-126 * 2e-6);
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[4], kInf);
  EXPECT_EQ(y[5], kInf);
}

TEST(SplitComplex, SaysWhatTakesNone) {
  const std::pair<const char*, const char*> kRows[] = {
      {XY "%y = pointwise(%x) compute=c64 mode=sqrt", "%y: sqrt takes no complex numbers"},
      {XY "%y = pointwise(%x, %x) compute=c64 mode=max", "%y: max takes no complex numbers"},
      {XY "%y = pointwise(%x, %x, %x) compute=c64 mode=binary_select",
       "%y: a selection's condition takes no complex numbers"},
      {XY "%y = pointwise(%x) compute=i32 mode=neg", "%y: complex numbers in i32"},
      {"tensor %x uid=1 c64 [2,3] tensor %y uid=2 c64 [2,1] %y = reduction(%x) compute=c64 "
       "mode=min",
       "%y: min of complex numbers, which have no order"},
      {"tensor %x uid=1 c64 [2,3] tensor %y uid=2 c64 [2,1] %y = reduction(%x) compute=f32 "
       "mode=max",
       "%y: max of complex numbers, which have no order"},
      {"tensor %x uid=1 c64 [2,3,8,8] tensor %s uid=2 c64 [1,3,1,1] tensor %q uid=3 c64 "
       "[1,3,1,1] %s, %q = gen_stats(%x) compute=f32",
       "%s: gen_stats takes no complex numbers"},
      {"tensor %x uid=1 c64 [1,1] by_value tensor %y uid=2 c64 [1,1] %y = pointwise(%x) mode=neg",
       "%x is c64 and passed by value: two numbers"},
      {"tensor %x uid=1 c128 [1,1,1,1,1,1,1,2] tensor %y uid=2 f64 %y = pointwise(%x) mode=abs",
       "%x is c128 of 8 dims, must have 7 at most"}};
  for (const auto& [body, sentence] : kRows) EXPECT_EQ(Sentence(body), sentence) << body;
}

// A graph that was not split is refused, and a constant is a real number.
TEST(SplitComplex, IsWhatMakesGraphsLegal) {
  auto graph = Parse("graph g {" XY "%y = pointwise(%x) compute=c64 mode=neg}");
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(InferShapes(*graph).ok());
  EXPECT_EQ(Verify(*graph).message(), "%x: is c64: complex tensors are split first");
  const std::string text = Sentence(
      "tensor %x uid=1 c64 [2,3] tensor %c c64 [1,1] by_value value=0.5 tensor %y uid=2 c64 [2,3] "
      "%y = pointwise(%x, %c) compute=c64 mode=mul");
  EXPECT_NE(text.find("tensor %c f32 [1,1] strides=[1,1] by_value value=0.5"), text.npos) << text;
}

}  // namespace
}  // namespace kiln::graph
