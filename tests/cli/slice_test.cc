// A part by itself gives the part of the whole's results, to the last bit: for random graphs of
// every operation, for chains that are cut in several ways, and for graphs that cannot be cut.
#include "cli/slice.h"

#include <gtest/gtest.h>

#include "cli/memory.h"
#include "ir/graph/builder.h"
#include "ir/graph/eval.h"
#include "tests/support/random_graph.h"

namespace kiln::cli {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::TensorId;
using graph::TensorValues;

// Evaluates both, and compares every output; false where nothing was cut.
bool ExpectPartOfWhole(const Graph& graph, int64_t most_bytes, uint64_t seed) {
  const Slice slice = SliceOf(graph, most_bytes, seed);
  EXPECT_TRUE(graph::Verify(slice.graph).ok());
  TensorValues whole = graph::RandomInputs(graph, seed), part;
  for (const auto& [id, values] : whole) part[id] = PartOf(graph, slice, id, values);
  EXPECT_TRUE(graph::Evaluate(graph, whole).ok());
  EXPECT_TRUE(graph::Evaluate(slice.graph, part).ok());
  for (const TensorId id : graph::Outputs(graph)) {
    const std::vector<double> want = PartOf(graph, slice, id, whole.at(id));
    EXPECT_EQ(want.size(), part.at(id).size());
    for (size_t i = 0; i < want.size(); ++i) {
      const bool same =
          want[i] == part.at(id)[i] || (want[i] != want[i] && part.at(id)[i] != part.at(id)[i]);
      EXPECT_TRUE(same) << "seed " << seed << " element " << i << " of " << PlacesText(slice, id)
                        << ": " << part.at(id)[i] << ", in the whole " << want[i] << "\n"
                        << graph::Print(graph) << graph::Print(slice.graph);
      if (!same) return true;
    }
  }
  return slice.graph.tensors.size() == graph.tensors.size() &&
         CheckBytes(slice.graph) < CheckBytes(graph);
}

TEST(SliceOf, RandomGraphs) {
  int cut = 0;
  for (uint64_t seed = 1; seed <= 1000 && !HasFailure(); ++seed) {
    const Graph graph = graph::RandomGraph(seed, graph::MixedOptions(seed));
    for (const int64_t divisor : {2, 16})
      cut += ExpectPartOfWhole(graph, CheckBytes(graph) / divisor, seed) ? 1 : 0;
  }
  EXPECT_GT(cut, 150);
}

// Images of a convolution with its bias; rows and columns of a product.
TEST(SliceOf, CutsWhatIsLarge) {
  GraphBuilder b("conv");
  const TensorId x = b.Input("x", DType::kF32, {64, 3, 9, 9}),
                 w = b.Input("w", DType::kF32, {8, 3, 3, 3});
  const graph::ConvAttrs attrs{
      .pre_padding = {1, 1}, .post_padding = {1, 1}, .stride = {1, 1}, .dilation = {1, 1}};
  const TensorId c = b.Apply(graph::GraphOp::kConvFprop, {x, w}, attrs);
  const TensorId bias = b.Input("bias", DType::kF32, {1, 8, 1, 1});
  b.Output(b.Pointwise(graph::PointwiseMode::kAdd, {c, bias}), "y", DType::kF32);
  const Graph graph = *b.Finish();
  EXPECT_TRUE(ExpectPartOfWhole(graph, CheckBytes(graph) / 50, 3));
  const Slice slice = SliceOf(graph, CheckBytes(graph) / 50, 3);
  EXPECT_EQ(slice.graph[x].dims[1], 3);
  EXPECT_EQ(slice.graph[x].dims[2], 9);
  EXPECT_LE(slice.graph[x].dims[0], 2);
}

// Scores with a mask by places, dropout and lengths: the images of a batch from the first one on.
TEST(SliceOf, AttentionBeginsAtTheFirstImage) {
  GraphBuilder b("attention");
  const TensorId q = b.Input("q", DType::kF32, {16, 2, 24, 8}),
                 k = b.Input("k", DType::kF32, {16, 2, 8, 24});
  const TensorId lengths = b.Input("lengths", DType::kI32, {16, 1, 1, 1});
  const TensorId s =
      b.Apply(graph::GraphOp::kMatmul, {q, k, lengths, lengths}, graph::MatmulAttrs{});
  const TensorId row =
      b.Apply(graph::GraphOp::kPointwise, {s},
              graph::PointwiseAttrs{.mode = graph::PointwiseMode::kGenIndex, .axis = 2});
  const TensorId masked = b.Pointwise(graph::PointwiseMode::kAdd, {s, row});
  const TensorId keep =
      b.Apply(graph::GraphOp::kRng, {}, graph::RngAttrs{.seed = 5, .probability = 0.5},
              {.dims = {16, 2, 24, 24}});
  b.Output(b.Pointwise(graph::PointwiseMode::kMul, {masked, keep}), "y", DType::kF32);
  const Graph graph = *b.Finish();
  EXPECT_TRUE(ExpectPartOfWhole(graph, CheckBytes(graph) / 10, 7));
  const Slice slice = SliceOf(graph, CheckBytes(graph) / 10, 7);
  EXPECT_EQ(slice.starts[static_cast<size_t>(q)], (Dims{0, 0, 0, 0}));
  EXPECT_EQ(slice.graph[q].dims, (Dims{1, 2, 24, 8}));
}

TEST(SliceOf, SaysWhereNothingCanBeCut) {
  GraphBuilder b("sum");
  b.Output(b.Reduction(graph::ReductionMode::kAdd, b.Input("x", DType::kF32, {64, 64}), {1, 1}),
           "y", DType::kF32);
  const Graph graph = *b.Finish();
  EXPECT_EQ(CheckBytes(SliceOf(graph, CheckBytes(graph) / 2, 1).graph), CheckBytes(graph));
}

}  // namespace
}  // namespace kiln::cli
