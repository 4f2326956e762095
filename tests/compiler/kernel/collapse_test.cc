// Random numbers by their places: one dim and vectors where all tensors are rows without gaps, one
// element a thread elsewhere; right by interpretation.
#include "compiler/kernel/collapse.h"

#include <gtest/gtest.h>

#include "tests/compiler/case_plans.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

std::string KernelOf(const std::string& line) {
  SCOPED_TRACE(line);
  const graph::Graph g = GraphOf(line);
  const Result<TileRun> run =
      CheckTiles(g, *TargetFromArch("sm_90a"), graph::RandomInputs(g, 17, true), {}, 1e-4);
  EXPECT_TRUE(run.ok()) << run.status().message();
  if (!run.ok() || run->module.program.kernels.size() != 1) return "";
  return run->module.program.kernels[0].text;
}

TEST(CollapseTest, PlacesOfRowsWithoutGapsAreOneDim) {
  for (const char* dims : {"[2,3,8,8]", "[2,3,5,7]", "[1,1,1,9]"}) {
    const std::string mask = fmt::format("rng() -> %k:f32{} probability=0.7 seed=5; ", dims);
    EXPECT_NE(KernelOf(fmt::format("{}mul(%k, x:f32{}) -> y:f32", mask, dims)).find("4 lanes"),
              std::string::npos);
    EXPECT_NE(KernelOf(fmt::format("{}mul(%k, x:f16{}) -> y:f16", mask, dims)).find("8 lanes"),
              std::string::npos);
  }
}

TEST(CollapseTest, PlacesOfOtherOrdersAreNot) {
  for (const char* line :
       {"rng() -> %k:f32[2,8,5,7] seed=5; mul(%k, x:f32[2,8,5,7]@nhwc) -> y:f32@nhwc",
        "rng() -> %k:f32[2,8,5,7] seed=5; mul(%k, x:f32[1,8,1,1]) -> y:f32"})
    EXPECT_NE(KernelOf(line).find("one element a thread"), std::string::npos) << line;
}

}  // namespace
}  // namespace kiln::compiler
