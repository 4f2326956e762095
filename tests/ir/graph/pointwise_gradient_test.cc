// Derivatives of every pointwise mode that has one, against differences of the interpreter's
// values.
#include "ir/graph/pointwise_gradient.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ir/graph/builder.h"
#include "ir/graph/eval.h"

namespace kiln::graph {
namespace {

using M = PointwiseMode;

// x of no mode's edge; all positive, which logarithms and roots want.
const std::vector<double> kX = {0.3, 0.7, 1.2, 1.9, 2.6, 0.55};
const std::vector<double> kB = {1.1, 0.4, 2.0, 0.9, 1.7, 0.8};

struct Built {
  Graph graph;
  TensorId x, b, y, dx = kAbsent;
};

// y = mode(x, b), where `swapped` mode(b, x); with dx for a gradient of 1.
Result<Built> Build(M mode, bool swapped, double alpha) {
  GraphBuilder builder("chain");
  const Dims dims = {6};
  const TensorId x = builder.Input("x", DType::kF64, dims);
  const TensorId b = builder.Input("b", DType::kF64, dims);
  PointwiseAttrs attrs{.mode = mode, .alpha1 = alpha, .alpha2 = alpha};
  std::vector<TensorId> inputs = {swapped ? b : x};
  if (Info(mode).inputs == 2) inputs.push_back(swapped ? x : b);
  const ResultOptions options{.dtype = DType::kF64, .compute = DType::kF64};
  const TensorId y = builder.Apply(GraphOp::kPointwise, inputs, attrs, options);
  const size_t last = builder.graph().nodes.size();
  const TensorId one = builder.Constant("one", DType::kF64, 1);
  const TensorId dy =
      builder.Apply(GraphOp::kPointwise, {b, one}, PointwiseAttrs{.mode = M::kPow}, options);
  const TensorId unit =
      builder.Apply(GraphOp::kPointwise, {dy, b}, PointwiseAttrs{.mode = M::kDiv}, options);
  ASSIGN_OR_RETURN(
      const ChainGradient found,
      SpellChainGradient(builder.graph(), {.first = 0, .last = last, .x = x, .y = y, .dy = unit}));
  builder.Output(y, "y", DType::kF64);
  builder.Output(found.dx, "dx", DType::kF64);
  ASSIGN_OR_RETURN(Graph graph, builder.Finish());
  return Built{.graph = std::move(graph), .x = x, .b = b, .y = y, .dx = found.dx};
}

std::vector<double> Of(const Built& built, TensorId id, double step) {
  TensorValues values;
  values[built.x] = kX;
  for (double& x : values[built.x]) x += step;
  values[built.b] = kB;
  EXPECT_TRUE(Evaluate(built.graph, values).ok());
  return values[id];
}

TEST(PointwiseGradient, IsTheLimitOfDifferences) {
  constexpr double kStep = 1e-5;
  int tried = 0;
  for (int value = 0; value < 300; ++value) {
    const auto mode = PointwiseModeFromCudnn(value);
    if (!mode || Info(*mode).is_backward) continue;
    for (const bool swapped : {false, true}) {
      if (swapped && Info(*mode).inputs != 2) continue;
      SCOPED_TRACE(std::string(Info(*mode).text) + (swapped ? " of b" : ""));
      const Result<Built> built = Build(*mode, swapped, 1.25);
      if (!built.ok()) {
        const std::string text(built.status().message());
        EXPECT_TRUE(text.find("no derivative") != text.npos || text.find("steps") != text.npos)
            << text;
        continue;
      }
      ++tried;
      const auto dx = Of(*built, built->dx, 0), above = Of(*built, built->y, kStep),
                 below = Of(*built, built->y, -kStep);
      for (size_t i = 0; i < kX.size(); ++i)
        EXPECT_NEAR(dx[i], (above[i] - below[i]) / (2 * kStep), 1e-4 * (1 + std::abs(dx[i]))) << i;
    }
  }
  EXPECT_GE(tried, 30);
}

}  // namespace
}  // namespace kiln::graph
