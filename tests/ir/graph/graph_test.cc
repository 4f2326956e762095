// Normalize, producers and consumers, inputs and outputs.
#include "ir/graph/graph.h"

#include <gtest/gtest.h>

#include "ir/graph/builder.h"

namespace kiln::graph {
namespace {

Graph Read(const std::string& body) {
  auto graph = Parse("graph g {" + body + "}");
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  return *std::move(graph);
}

std::string Modes(const Graph& graph) {
  std::string out;
  for (const Node& node : graph.nodes)
    out += std::string(Info(node.As<PointwiseAttrs>().mode).text) + " ";
  return out;
}

constexpr const char* kTensors =
    "tensor %x uid=1 f32 [2] tensor %a f32 [2] virtual tensor %b f32 [2] virtual tensor %unused "
    "f32 [2] "
    "tensor %y uid=2 f32 [2] ";

TEST(Normalize, SortsAndKeepsTheOrderOfWhatIsReady) {
  Graph graph = Read(
      std::string(kTensors) +
      "%y = pointwise(%a, %b) mode=add %b = pointwise(%x) mode=log %a = pointwise(%x) mode=exp");
  ASSERT_TRUE(Normalize(graph).ok());
  EXPECT_EQ(Modes(graph), "log exp add ");
  EXPECT_EQ(graph.tensors.size(), 4u);  // %unused is gone
  EXPECT_TRUE(Verify(graph).ok()) << Verify(graph).message();
}

TEST(Normalize, ReportsCyclesAndSecondWriters) {
  Graph cycle =
      Read(std::string(kTensors) + "%a = pointwise(%b) mode=exp %b = pointwise(%a) mode=log");
  EXPECT_EQ(Normalize(cycle).message(), "the graph has a cycle through node 0 (pointwise)");
  Graph twice = Read(std::string(kTensors) +
                     "%a = pointwise(%x) mode=exp %a = pointwise(%x) mode=log name=\"l\"");
  EXPECT_EQ(Normalize(twice).message(),
            "tensor %a is written twice: by node 0 (pointwise) and by node 1 \"l\" (pointwise)");
}

TEST(Normalize, ReadsTheOldVersionBeforeItIsOverwritten) {
  Graph graph = Read(
      "tensor %old uid=1 f32 [2] tensor %new uid=1 f32 [2] tensor %x uid=2 f32 [2] tensor %y uid=3 "
      "f32 [2] "
      "%new = pointwise(%x) mode=exp %y = pointwise(%old) mode=log");
  ASSERT_TRUE(Normalize(graph).ok());
  EXPECT_EQ(Modes(graph), "log exp ");
}

TEST(Graph, KnowsProducersConsumersInputsAndOutputs) {
  const Graph graph = Read(
      std::string("tensor %c uid=9 f32 [1] by_value value=1 tensor %p uid=8 f32 [1] by_value ") +
      kTensors +
      "%a = pointwise(%x, %c) mode=add %b = pointwise(%a, %a) mode=mul %y = pointwise(%b, %p) "
      "mode=add");
  EXPECT_EQ(Producers(graph), (std::vector<NodeId>{-1, -1, -1, 0, 1, -1, 2}));
  EXPECT_EQ(Consumers(graph)[3], std::vector<NodeId>{1});
  EXPECT_EQ(Inputs(graph), (std::vector<TensorId>{2, 1}));
  EXPECT_EQ(Outputs(graph), std::vector<TensorId>{6});
}

TEST(Graph, MakesNamesUniqueIdentifiers) {
  Graph graph;
  Tensor tensor;
  for (const char* name : {"conv::Y", "conv::Y", "", "3d"}) {
    tensor.name = name;
    graph.AddTensor(tensor);
  }
  EXPECT_EQ(graph.tensors[0].name, "conv__Y");
  EXPECT_EQ(graph.tensors[1].name, "conv__Y_1");
  EXPECT_EQ(graph.tensors[2].name, "t");
  EXPECT_EQ(graph.tensors[3].name, "t3d");
}

TEST(GraphBuilder, InfersAsItGoes) {
  GraphBuilder b("g");
  const TensorId x = b.Input("x", DType::kF16, {2, 1, 8});
  const TensorId sum = b.Pointwise(PointwiseMode::kAdd, {x, b.Input("b", DType::kF32, {4, 1})});
  EXPECT_EQ(b.graph()[sum].dims, (Dims{2, 4, 8}));
  b.Output(b.Reduction(ReductionMode::kMax, sum, {2, 1, 1}), "y", DType::kF32);
  const auto graph = b.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ((*graph)[Outputs(*graph)[0]].name, "y");
}

}  // namespace
}  // namespace kiln::graph
