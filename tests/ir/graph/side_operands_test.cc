// Side operands of other extents give what those of the usual ones do.
#include "ir/graph/side_operands.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ir/graph/builder.h"
#include "ir/graph/eval.h"

namespace kiln::graph {
namespace {

Result<Graph> Legal(const std::string& text) {
  auto graph = Parse("graph g {\n" + text + "\n}");
  if (!graph.ok()) return graph;
  RETURN_IF_ERROR(Legalize(*graph));
  return graph;
}

TensorId Written(const Graph& graph, int64_t uid) {
  for (const TensorId id : Outputs(graph))
    if (graph[id].uid == uid) return id;
  return kAbsent;
}

// Results by uid, of inputs that are 1/8, 2/8, … in the order of their elements.
std::map<int64_t, std::vector<double>> Results(const std::string& text) {
  std::map<int64_t, std::vector<double>> results;
  const auto graph = Legal(text);
  EXPECT_TRUE(graph.ok()) << graph.status().message() << text;
  if (!graph.ok()) return results;
  TensorValues values;
  for (const TensorId id : Inputs(*graph)) {
    const Tensor& t = (*graph)[id];
    if (t.is_constant()) continue;
    std::vector<double>& own = values[id];
    for (int64_t i = 0; i < NumElements(t.dims); ++i)
      own.push_back(static_cast<double>((i * 5 + t.uid) % 11 + 1) / 8);
  }
  EXPECT_TRUE(Evaluate(*graph, values).ok()) << text;
  for (const TensorId id : Outputs(*graph)) results[(*graph)[id].uid] = values[id];
  return results;
}

std::string BatchNorm(const std::string& weights, const std::string& stats) {
  return "tensor %x uid=1 f32 [2,6,2,2] tensor %scale uid=2 f32 " + weights +
         " tensor %bias uid=3 f32 " + weights + " tensor %eps f32 [1,1,1,1] by_value value=0.5 " +
         "tensor %y uid=4 f32 tensor %m uid=5 f32 " + stats + " tensor %v uid=6 f32 " + stats +
         " %y, %m, %v = norm_forward(%x, _, _, %scale, %bias, %eps) compute=f32 mode=batch";
}

TEST(FitSideOperands, ElementsInTheSameOrderGiveTheSame) {
  const auto usual = Results(BatchNorm("[1,6,1,1]", "[1,6,1,1]"));
  ASSERT_EQ(usual.size(), 3u);
  for (const char* weights : {"[6]", "[1,1,6,1]", "[6,1,1]", "[1,6,1,1,1]", "[1,1,6,1,1]"})
    for (const char* stats : {"[6]", "[1,6,1]", "[1,6,1,1]"})
      EXPECT_EQ(Results(BatchNorm(weights, stats)), usual) << weights << " " << stats;
}

TEST(FitSideOperands, MoreElementsThanChannelsAreTheFirstOnes) {
  const auto graph = Legal(BatchNorm("[1,9,1,1]", "[1,6,1,1]"));
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const auto scale = std::ranges::find(graph->tensors, 2, &Tensor::uid);
  EXPECT_EQ(scale->dims, (Dims{1, 6, 1, 1}));
  EXPECT_EQ(scale->strides[1], 1);
}

TEST(FitSideOperands, WhatOthersReadTooKeepsItsExtents) {
  const std::string also = " tensor %z uid=7 f32 [6] %z = pointwise(%scale) compute=f32 mode=neg";
  const auto graph = Legal(BatchNorm("[6]", "[1,6,1,1]") + also);
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(std::ranges::find(graph->tensors, 2, &Tensor::uid)->dims, Dims{6});
  auto results = Results(BatchNorm("[6]", "[1,6,1,1]") + also);
  results.erase(7);
  EXPECT_EQ(results, Results(BatchNorm("[1,6,1,1]", "[1,6,1,1]")));
}

TEST(FitSideOperands, OtherElementsAreRefused) {
  for (const char* weights : {"[5]", "[1,3,1,1]", "[2,6,1]", "[1,6,2]"})
    EXPECT_FALSE(Legal(BatchNorm(weights, "[1,6,1,1]")).ok()) << weights;
  for (const char* stats : {"[5]", "[1,1,1,1]", "[2,6,1,1]"})
    EXPECT_FALSE(Legal(BatchNorm("[1,6,1,1]", stats)).ok()) << stats;
}

std::string GenStats(const std::string& sums) {
  return "tensor %x uid=1 f32 [2,6,2,2] tensor %s uid=2 f32 " + sums + " tensor %q uid=3 f32 " +
         sums + " %s, %q = gen_stats(%x) compute=f32";
}

TEST(FitSideOperands, SumsAreThoseOfAllChannels) {
  const auto usual = Results(GenStats("[1,6,1,1]"));
  ASSERT_EQ(usual.size(), 2u);
  for (const char* sums : {"[6]", "[1,12,1,1]", "[1,3,1,1]", "[1,7,1,1]", "[1,6,1,1,1]"}) {
    EXPECT_EQ(Results(GenStats(sums)), usual) << sums;
    const auto graph = Legal(GenStats(sums));
    ASSERT_TRUE(graph.ok()) << graph.status().message();
    EXPECT_EQ(MemoryBytes((*graph)[Written(*graph, 2)]), 24) << sums;
  }
  EXPECT_FALSE(Legal(GenStats("[1,1,1,1]")).ok());
}

TEST(FitSideOperands, RowsHaveOneStatisticHoweverTheirWeightsAreWritten) {
  const auto layer = [](const std::string& weights, const std::string& stats) {
    return "tensor %x uid=1 f32 [5,6,1,1] tensor %scale uid=2 f32 " + weights +
           " tensor %bias uid=3 f32 " + weights +
           " tensor %eps f32 [1] by_value value=0.5 tensor %y uid=4 f32 tensor %m uid=5 f32 " +
           stats + " tensor %v uid=6 f32 " + stats +
           " %y, %m, %v = norm_forward(%x, _, _, %scale, %bias, %eps) compute=f32 mode=layer";
  };
  const auto usual = Results(layer("[1,6,1,1]", "[5,1,1,1]"));
  for (const char* weights : {"[6]", "[1,6]", "[1,6,1]", "[6,1,1]", "[1,1,6,1,1]"})
    EXPECT_EQ(Results(layer(weights, "[5]")), usual) << weights;
}

// One of them is not memory, whose first elements could be meant.
TEST(FitSideOperands, StatisticsOfDimsThatWeightsHaveTooKeepTheirExtents) {
  const std::string text =
      "tensor %x uid=1 f32 [1,8,7] tensor %mean uid=2 f32 [1,8,1] tensor %v uid=3 f32 [1,8,1]"
      " tensor %inv f32 [1,8,1] virtual tensor %scale uid=4 f32 [1,8,1]"
      " tensor %dx uid=5 f32 [1,8,7] tensor %ds uid=6 f32 [1,8,1]"
      " %inv = pointwise(%v) compute=f32 mode=abs"
      " %dx, %ds = norm_backward(%x, %x, %mean, %inv, %scale) compute=f32 mode=";
  const auto graph = Legal(text + "layer");
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(std::ranges::find(graph->tensors, 2, &Tensor::uid)->dims, (Dims{1, 8, 1}));
  EXPECT_EQ(Results(text + "layer"), Results(text + "instance"));
}

TEST(FitSideOperands, ANumberByValueIsOneWhateverItsExtents) {
  std::string text = BatchNorm("[1,6,1,1]", "[1,6,1,1]");
  text.replace(text.find("[1,1,1,1] by_value"), 9, "[2,1,1,3]");
  EXPECT_EQ(Results(text), Results(BatchNorm("[1,6,1,1]", "[1,6,1,1]")));
}

}  // namespace
}  // namespace kiln::graph
