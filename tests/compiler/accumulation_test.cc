// Sums of many terms, by interpretation of what either target runs. All terms are 1 + 2^-10, or
// 1 + 2^-11 where operands are f32: an f32 chain adds these exactly as far as it may go, and loses
// the fraction of each from twice that on.
#include "compiler/engines/accumulation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/compiler/case_plans.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;

// Inputs are all `value`, or 1 where they are the second operand.
void ExpectSum(const std::string& line, double value, int64_t terms, const char* arch,
               const EngineChoice& choice = {}, double scale = 1) {
  SCOPED_TRACE(fmt::format("{}: {}", arch, line));
  const Graph g = GraphOf(line);
  graph::TensorValues inputs;
  bool is_first = true;
  for (const graph::TensorId id : graph::Inputs(g)) {
    inputs[id].assign(static_cast<size_t>(NumElements(g[id].dims)), is_first ? value : 1);
    is_first = false;
  }
  const Result<TileRun> run = RunTiles(g, *TargetFromArch(arch), inputs, choice);
  ASSERT_TRUE(run.ok()) << run.status().message();
  const double want = value * static_cast<double>(terms) * scale;
  const double bound = 0x1p-23 * std::sqrt(static_cast<double>(terms));
  for (const graph::TensorId id : graph::Outputs(g))
    for (const double got : run->outputs.at(id)) ASSERT_NEAR(got / want, 1, bound);
}

EngineChoice Choice(const char* engine, std::vector<KnobSetting> knobs) {
  return {.engine = EngineIndex(engine), .knobs = std::move(knobs)};
}

constexpr double kHalf = 1 + 0x1p-10, kSingle = 1 + 0x1p-11;

TEST(AccumulationTest, ProductsOfTensorCores) {
  const std::string matmul = "matmul(a:f16[1,8,50000], b:f16[1,50000,8]) -> y:f32";
  for (const int splits : {1, 2})
    ExpectSum(matmul, kHalf, 50000, "sm_90a",
              Choice("contract_mma", {{"tile_m", 64}, {"tile_n", 64}, {"split_k", splits}}));
  // Read element by element.
  ExpectSum("relu_fwd(a:f16[1,8,40001]) -> %r:f16; matmul(%r, b:f16[1,40001,8]) -> y:f32", kHalf,
            40001, "sm_90a", Choice("contract_mma", {{"tile_m", 64}, {"tile_n", 64}}));
  ExpectSum("conv_wgrad(x:f16[9,8,70,70], dy:f16[9,8,70,70]) -> dw:f32[8,8,1,1]", kHalf, 44100,
            "sm_90a", Choice("contract_mma", {{"tile_m", 64}, {"tile_n", 64}}));
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
    ExpectSum("avgpool(x:f32[1,2,150,150]) -> y:f32[1,2,1,1] window=150 stride=1", kSingle,
              150 * 150, arch, {}, 1.0 / (150 * 150));
}

}  // namespace
}  // namespace kiln::compiler
