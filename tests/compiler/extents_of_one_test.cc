// Contractions with maps behind them and extents of 1, by every engine that takes them. Maps ask
// for place 0 along such an extent, while a kernel may have a place there that it computes.
#include <gtest/gtest.h>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "tests/compiler/conv_problem.h"

namespace kiln::compiler {
namespace {

using graph::GraphOp;

// The number of engines that take the problem; each makes kernels of it, or the test ends in a
// failed check.
size_t Takers(const ConvProblem& problem, const Target& target) {
  const graph::Graph g = Build(problem);
  size_t count = 0;
  for (int engine = 0; engine < static_cast<int>(Engines().size()); ++engine)
    count += Compile(g, target, {.engine = engine}).ok() ? 1 : 0;
  return count;
}

TEST(ExtentsOfOneTest, EveryEngineOfAConvolutionWithMapsBehind) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const Target target = *TargetFromArch(arch);
    for (const GraphOp op : {GraphOp::kConvFprop, GraphOp::kConvDgrad, GraphOp::kConvWgrad})
      for (const DType type : {DType::kF16, DType::kF32})
        for (const bool last : {false, true})
          for (const bool before : {false, true}) {
            ConvProblem p{.name = "one", .op = op, .type = type, .groups = 1};
            p.channels = p.filters = 64;
            p.image = {8, 8};
            p.last = last;
            (before ? p.fused : p.followed) = true;
            const auto expect_takers = [&](auto change) {
              ConvProblem changed = p;
              change(changed);
              EXPECT_GE(Takers(changed, target), 1u) << arch;
            };
            expect_takers([](ConvProblem& c) { c.images = 1; });
            expect_takers([](ConvProblem& c) { c.channels = 1; });
            expect_takers([](ConvProblem& c) { c.filters = 1; });
            expect_takers([](ConvProblem& c) { c.image = {1, 8}; });
            expect_takers([](ConvProblem& c) { c.image = {1, 1}; });
            expect_takers([](ConvProblem& c) { c.images = c.channels = c.filters = 1; });
            expect_takers([](ConvProblem& c) { c.groups = 64, c.channels = c.filters = 1; });
          }
  }
}

}  // namespace
}  // namespace kiln::compiler
