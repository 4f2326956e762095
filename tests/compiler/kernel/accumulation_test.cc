// Sums of many terms, by interpretation of what either target runs. All terms are 1 + 2^-11, or
// such a number of two factors: an f32 chain adds these exactly as far as it may go, and loses the
// fraction of each where it goes on.
#include "compiler/kernel/accumulation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compiler/engines/registry.h"
#include "tests/compiler/case_plans.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;

// The first operand is all `value`, others are all `second`.
void ExpectSum(const std::string& line, double value, int64_t terms, const char* arch,
               const EngineChoice& choice = {}, double scale = 1, double second = 1) {
  SCOPED_TRACE(fmt::format("{}: {}", arch, line));
  const Graph g = GraphOf(line);
  graph::TensorValues inputs;
  bool is_first = true;
  for (const graph::TensorId id : graph::Inputs(g)) {
    inputs[id].assign(static_cast<size_t>(NumElements(g[id].dims)), is_first ? value : second);
    is_first = false;
  }
  const Result<TileRun> run = RunTiles(g, *TargetFromArch(arch), inputs, choice);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const double want = value * second * static_cast<double>(terms) * scale;
  const double bound = 0x1p-23 * std::sqrt(static_cast<double>(terms));
  for (const graph::TensorId id : graph::Outputs(g))
    for (const double got : run->outputs.at(id)) ASSERT_NEAR(got / want, 1, bound);
}

EngineChoice Choice(const char* engine, std::vector<KnobSetting> knobs) {
  return {.engine = EngineIndex(engine), .knobs = std::move(knobs)};
}

constexpr double kSingle = 1 + 0x1p-11;

// A step adds 16 products at once: of 16 * (1 - 14^2 / 2^20) sums above 65,536 lose the fraction.
TEST(AccumulationTest, ProductsOfTensorCores) {
  constexpr double kMore = 1 + 14 * 0x1p-10, kLess = 1 - 14 * 0x1p-10;
  for (const int splits : {1, 2})
    ExpectSum("matmul(a:f16[1,8,300000], b:f16[1,300000,8]) -> y:f32", kMore, 300000, "sm_90a",
              Choice("contract_mma", {{"tile_m", 64}, {"tile_n", 64}, {"split_k", splits}}), 1,
              kLess);
  // Read element by element.
  ExpectSum("relu_fwd(a:f16[1,8,150001]) -> %r:f16; matmul(%r, b:f16[1,150001,8]) -> y:f32", kMore,
            150001, "sm_90a", Choice("contract_mma", {{"tile_m", 64}, {"tile_n", 64}}), 1, kLess);
}

TEST(AccumulationTest, ProductsOfFmaUnits) {
  const std::string matmul = "matmul(a:f32[1,4,30000], b:f32[1,30000,4]) -> y:f32";
  for (const int splits : {1, 2})
    ExpectSum(matmul, kSingle, 30000, "sm_90a",
              Choice("contract_simt", {{"tile_m", 32}, {"tile_n", 32}, {"split_k", splits}}));
  ExpectSum(matmul, kSingle, 30000, "cpu");
}

TEST(AccumulationTest, Reductions) {
  const EngineChoice whole = Choice("reduce", {{"threads", 128}, {"splits", 1}});
  ExpectSum("reduce_add(x:f32[1,6000000]) -> y:f32[1,1]", kSingle, 6000000, "sm_90a", whole);
  ExpectSum("reduce_add(x:f32[200000,8]) -> y:f32[1,8]", kSingle, 200000, "sm_90a", whole);
  ExpectSum("reduce_add(x:f32[1,6000000]) -> y:f32[1,1]", kSingle, 6000000, "cpu");
  ExpectSum("reduce_add(x:f32[600000,8]) -> y:f32[1,8]", kSingle, 600000, "cpu");
}

TEST(AccumulationTest, WindowsOfManyTaps) {
  for (const char* arch : {"sm_90a", "cpu"})
    ExpectSum("avgpool(x:f32[1,2,151,151]) -> y:f32[1,2,2,2] window=150 stride=1", kSingle,
              150 * 150, arch, {}, 1.0 / (150 * 150));
}

}  // namespace
}  // namespace kiln::compiler
