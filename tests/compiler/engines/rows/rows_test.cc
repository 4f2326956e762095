// Chains of reductions along rows are one kernel: softmax and norms as clients spell them, by
// interpretation, with every value of every knob. And what looks like a chain without being one.
#include <gtest/gtest.h>

#include "compiler/engines/registry.h"
#include "compiler/engines/rows/engine.h"
#include "compiler/patterns/row_chain.h"
#include "tests/compiler/case_plans.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using testing::Case;
using testing::CaseFile;

Target Gpu() { return *TargetFromArch("sm_90a"); }

const CaseFile& Cases() {
  static const CaseFile file = testing::LoadCases("tests/cases/rows.txt");
  return file;
}

TEST(RowsTest, CasesAreOneKernel) {
  ASSERT_TRUE(Cases().errors.empty()) << Cases().errors[0];
  int chains = 0, others = 0;
  for (const Case& c : Cases().cases) {
    SCOPED_TRACE(c.Label());
    const graph::Graph g = GraphOf(c);
    if (c.Label().find("apart/") != std::string::npos) {
      EXPECT_EQ(EnginesOf(g).find("rows"), std::string::npos) << EnginesOf(g);
      ++others;
      continue;
    }
    EXPECT_EQ(EnginesOf(g), "rows");
    EXPECT_EQ(KernelsOf(g), c.Label().find("columns/") == std::string::npos ? 1u : 2u);
    ++chains;
  }
  EXPECT_GE(chains, 20);
  EXPECT_GE(others, 3);
}

TEST(RowsTest, NormsAreOneKernel) {
  for (const char* line :
       {"norm_forward(x:bf16[600,4096], _, _, scale:f32[1,4096], bias:f32[1,4096], "
        "eps:f32[1,1]=1e-5) -> y:bf16, m:f32[600,1], v:f32[600,1] mode=layer",
        "norm_forward(x:bf16[600,4096], _, _, scale:bf16[1,4096], _, eps:f32[1,1]=1e-5) -> y:bf16, "
        "_, v:f32[600,1] mode=rms",
        "norm_forward(x:f16[64,128,1,1]@s128.1.128.128, _, _, scale:f32[1,128,1,1], "
        "bias:f32[1,128,1,1], eps:f32[1,1,1,1]=1e-5) -> y:f16@s128.1.128.128, m:f32[64,1,1,1], "
        "v:f32[64,1,1,1] mode=layer",
        "norm_forward(x:f32[20,3,15,17], _, _, scale:f32[1,3,1,1], bias:f32[1,3,1,1], "
        "eps:f32[1,1,1,1]=1e-5) -> y:f32, m:f32[20,3,1,1], v:f32[20,3,1,1] mode=instance",
        "norm_forward(x:bf16[3,5,16], _, _, scale:bf16[3,1,16], bias:bf16[3,1,16], "
        "eps:f32[1,1,1]=1e-5) -> y:bf16, m:f32[3,5,1], v:f32[3,5,1] mode=ada_layer",
        "norm_backward(x:f32[6,25], dy:f32[6,25], m:f32[6,1], v:f32[6,1]!pos) -> dx:f32 "
        "mode=layer"}) {
    SCOPED_TRACE(line);
    const graph::Graph g = GraphOf(line);
    EXPECT_EQ(EnginesOf(g), "rows");
    EXPECT_EQ(KernelsOf(g), 1u);
  }
}

TEST(RowsTest, GradientsAreTwoKernels) {
  for (const char* line :
       {"norm_backward(x:bf16[600,4096], dy:bf16[600,4096], m:f32[600,1], v:f32[600,1]!pos, "
        "scale:bf16[1,4096]) -> dx:bf16, ds:bf16, db:bf16 mode=layer",
        "norm_backward(x:bf16[600,16384], dy:bf16[600,16384], _, v:f32[600,1]!pos, "
        "scale:bf16[1,16384]) -> dx:bf16, ds:bf16 mode=rms"}) {
    SCOPED_TRACE(line);
    EXPECT_EQ(EnginesOf(GraphOf(line)), "rows");
    EXPECT_EQ(KernelsOf(GraphOf(line)), 2u);
  }
  // No registers for two sums of so many columns: they are kernels of their own.
  EXPECT_EQ(EnginesOf(GraphOf("norm_backward(x:bf16[600,32768], dy:bf16[600,32768], m:f32[600,1], "
                              "v:f32[600,1]!pos, scale:bf16[1,32768]) -> dx:bf16, ds:bf16, db:bf16 "
                              "mode=layer")),
            "rows, reduce");
}

TEST(RowsTest, EveryKnobRunsRight) {
  int runs = 0;
  for (const Case& c : Cases().cases) {
    SCOPED_TRACE(c.Label());
    if (c.Label().find("apart/") != std::string::npos) continue;
    const graph::Graph g = GraphOf(c);
    const graph::TensorValues inputs = graph::RandomInputs(g, 5, true);
    const auto expect_right = [&](const EngineChoice& choice) {
      const Result<TileRun> run = CheckTiles(g, Gpu(), inputs, choice, 1e-4);
      // Long rows leave no registers for columns where knobs give them few threads.
      const bool declined = run.status().message().find("hold no row") != std::string::npos;
      EXPECT_TRUE(run.ok() || (declined && !choice.knobs.empty())) << run.status().message();
      ++runs;
    };
    expect_right({});
    for (const KnobRow& row : kRowsEngine.knobs)
      for (const int value : row.domain.subspan(1))
        expect_right({.engine = EngineIndex("rows"), .knobs = {{row.name, value}}});
    // Little is held: long rows are read by each stage.
    expect_right({.engine = EngineIndex("rows"), .knobs = {{"threads", 64}, {"vectors", 1}}});
    expect_right({.engine = EngineIndex("rows"), .knobs = {{"threads", 128}, {"rows", 4}}});
  }
  EXPECT_GE(runs, 300);
}

// One multiprocessor, so that blocks have several rows: the next is read ahead, into registers or
// through a ring in shared memory, also where the last block has none.
TEST(RowsTest, BlocksThatWalkReadAhead) {
  Target small = Gpu();
  small.multiprocessors = 1;
  const struct {
    const char* line;
    const char* text;  // of its kernels
  } walks[] = {{"norm_forward(x:bf16[21,4096], _, _, scale:bf16[1,4096], bias:bf16[1,4096], "
                "eps:f32[1,1]=1e-5) -> y:bf16, m:f32[21,1], v:f32[21,1] mode=layer",
                "for turn in"},
               {"norm_backward(x:bf16[7,16384], dy:bf16[7,16384], m:f32[7,1], v:f32[7,1]!pos, "
                "scale:bf16[1,16384]) -> dx:bf16, ds:bf16, db:bf16 mode=layer",
                "wait_async 1"},
               {"norm_backward(x:bf16[6,12296], dy:bf16[6,12296], m:f32[6,1], v:f32[6,1]!pos, "
                "scale:bf16[1,12296]) -> dx:bf16, ds:bf16, db:bf16 mode=layer",
                "wait_async"},
               {"norm_backward(x:bf16[37,4096], dy:bf16[37,4096], _, v:f32[37,1]!pos, "
                "scale:bf16[1,4096]) -> dx:bf16, ds:bf16 mode=rms",
                "threads 512 min_blocks 1 {"},
               {"norm_backward(x:bf16[37,4096], dy:bf16[37,4096], _, v:f32[37,1]!pos, "
                "scale:bf16[1,4096]) -> dx:bf16, ds:bf16 mode=rms",
                "barrier of 128"},
               {"norm_backward(x:f16[67,1024], dy:f16[67,1024], m:f32[67,1], v:f32[67,1]!pos, "
                "scale:f16[1,1024]) -> dx:f16, ds:f16, db:f32 mode=layer",
                "for turn in"}};
  for (const auto& [line, text] : walks) {
    SCOPED_TRACE(line);
    const graph::Graph g = GraphOf(line);
    const Result<TileRun> run = CheckTiles(g, small, graph::RandomInputs(g, 5, true), {}, 1e-3);
    ASSERT_TRUE(run.ok()) << run.status().message();
    std::string kernels;
    for (const tile::Kernel& kernel : run->module.groups[0].lowered.kernels)
      kernels += tile::Print(kernel);
    EXPECT_NE(kernels.find(text), std::string::npos);
  }
}

// The variance of a row is joined from what threads have, where all have equally many elements.
TEST(RowsTest, MeanAndVarianceAreOneRoundBetweenThreads) {
  const auto kernel_of = [](int64_t length) {
    const graph::Graph g =
        GraphOf(fmt::format("norm_forward(x:bf16[5,{0}], _, _, scale:f32[1,{0}], bias:f32[1,{0}], "
                            "eps:f32[1,1]=1e-5) -> "
                            "y:f32, m:f32[5,1], v:f32[5,1] mode=layer",
                            length));
    graph::TensorValues inputs = graph::RandomInputs(g, 5, true);
    for (double& v : inputs.at(0)) v = RoundTo(DType::kBF16, 300 + 2 * v);
    const Result<TileRun> run = CheckTiles(g, Gpu(), inputs, {}, 1e-4);
    EXPECT_TRUE(run.ok()) << run.status().message();
    return run.ok() ? tile::Print(run->module.groups[0].lowered.kernels[0]) : "";
  };
  for (const int64_t length : {128, 256, 1024, 2048, 4096, 8192, 16384}) {
    SCOPED_TRACE(length);
    EXPECT_NE(kernel_of(length).find("mean_of_thread"), std::string::npos);
  }
  for (const int64_t length : {1000, 1032, 6000}) {
    SCOPED_TRACE(length);
    EXPECT_EQ(kernel_of(length).find("mean_of_thread"), std::string::npos);
  }
}

// Rows that no block has registers for, in shared memory: two of them, or one whose room the next
// one's vectors take as it is stored. One multiprocessor walks all.
TEST(RowsTest, LongRowsStayInSharedMemory) {
  Target small = Gpu();
  small.multiprocessors = 1;
  const struct {
    const char* line;
    const char* text;
    int64_t shared;  // elements
  } walks[] = {
      {"norm_forward(x:f16[171,3,14,14], _, _, scale:f32[1,3,1,1], bias:f32[1,3,1,1], "
       "eps:f32[1,1,1,1]=1e-5, f:f32[1,1,1,1]=0.1, rm:f32[1,3,1,1], rv:f32[1,3,1,1]!pos) -> y:f16, "
       "m:f32[1,3,1,1], v:f32[1,3,1,1], nm:f32[1,3,1,1], nv:f32[1,3,1,1] mode=batch",
       "lanes 4 if lt(row", 2 * 171 * 196},
      {"norm_backward(x:f16[171,3,14,14], dy:f16[171,3,14,14], m:f32[1,3,1,1], "
       "v:f32[1,3,1,1]!pos, scale:f32[1,3,1,1]) -> dx:f16, ds:f32, db:f32 mode=batch",
       "wait_async 0", 171 * 196},
      {"reduce_max(x:f32[3,34000]) -> %m:f32[3,1]; sub(x, %m) -> %d:f32; exp(%d) -> %e:f32; "
       "reduce_add(%e) -> %s:f32[3,1]; div(%e, %s) -> y:f32",
       "lanes 4 if lt(row", 34000}};
  for (const auto& [line, text, shared] : walks) {
    SCOPED_TRACE(line);
    const graph::Graph g = GraphOf(line);
    const Result<TileRun> run = CheckTiles(g, small, graph::RandomInputs(g, 5, true),
                                           {.engine = EngineIndex("rows")}, 1e-3);
    ASSERT_TRUE(run.ok()) << run.status().message();
    const std::string kernel = tile::Print(run->module.groups[0].lowered.kernels[0]);
    EXPECT_NE(kernel.find(text), std::string::npos);
    EXPECT_NE(kernel.find(fmt::format("[{}] shared", shared)), std::string::npos);
  }
}

TEST(RowsTest, RowsThatAreTooLongAreReadAgain) {
  const std::string softmax =
      "reduce_max(x:f32[{}]) -> %m:f32[{}]; sub(x, %m) -> %d:f32; exp(%d) -> %e:f32; "
      "reduce_add(%e) -> %s:f32[{}]; div(%e, %s) -> y:f32";
  const auto at = [&](int64_t rows, int64_t length) {
    return GraphOf(fmt::format(fmt::runtime(softmax), fmt::format("{},{}", rows, length),
                               fmt::format("{},1", rows), fmt::format("{},1", rows)));
  };
  EXPECT_EQ(EnginesOf(at(1, 32768)), "rows") << "what one block can hold";
  EXPECT_EQ(EnginesOf(at(500, 40000)), "rows") << "in shared memory";
  EXPECT_EQ(EnginesOf(at(500, 60001)), "rows") << "streams, from the cache";
  EXPECT_EQ(EnginesOf(at(2, 60001)).find("rows"), std::string::npos) << "two blocks alone";
  EXPECT_EQ(EnginesOf(at(500, 1 << 20)).find("rows"), std::string::npos) << "not in the cache";
}

// ---- structure

TEST(RowChainTest, OthersAreLeftAlone) {
  // A product stands between the two parts: they are two kernels with it between them.
  EXPECT_EQ(
      EnginesOf(
          GraphOf("reduce_max(x:f32[64,64]) -> %m:f32[64,1]; sub(x, %m) -> d:f32; matmul(d, "
                  "b:f32[64,64]) -> p:f32; reduce_add(p) -> %s:f32[64,1]; mul(d, %s) -> y:f32"))
          .find("rows"),
      0u);
  // A wide virtual tensor is read across rows: it would be stored for that alone.
  EXPECT_EQ(EnginesOf(GraphOf("reduce_max(x:f32[40,24]) -> %m:f32[40,1]; sub(x, %m) -> %d:f32; "
                              "reduce_add(%d) -> %s:f32[1,24]; mul(%d, %s) -> y:f32"))
                .find("rows"),
            std::string::npos);
  // Two chains, of other dims.
  EXPECT_EQ(EnginesOf(GraphOf("reduce_max(x:f32[40,24]) -> %m:f32[40,1]; sub(x, %m) -> y:f32; "
                              "reduce_max(a:f32[24,40]) -> %n:f32[24,1]; sub(a, %n) -> b:f32")),
            "rows, rows");
}

TEST(RowChainTest, CpuHasKernelsOfItsOwn) {
  const Result<CompiledPlan> plan = Compile(GraphOf(Cases().cases[0]), *TargetFromArch("cpu"));
  ASSERT_TRUE(plan.ok());
  for (const GroupReport& group : plan->groups) EXPECT_NE(group.engine, "rows");
}

}  // namespace
}  // namespace kiln::compiler
