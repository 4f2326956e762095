// Growth of the compiler's time, its texts and its stack with a graph: n log n at most, kernels of
// bounded size, and no recursion over what a client chains; and that what is divided for that
// computes what it should.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "compiler/compile.h"
#include "compiler/group_limits.h"
#include "ir/graph/builder.h"
#include "ir/graph/eval.h"
#include "tests/compiler/growth_graphs.h"
#include "tests/support/pace.h"
#include "tests/support/random_graph.h"
#include "tests/support/run_tiles.h"

namespace kiln::compiler {
namespace {

using graph::Graph;
using graph::TensorId;

const Dims kMatrix = {64, 128};
constexpr size_t kMostText = 600'000;  // of a kernel

// From a client's graph to a plan: what the tool and the API do, but for compiling kernels.
CompiledPlan PlanOf(Graph g, bool least_workspace = false) {
  const Status legal = graph::Legalize(g);
  EXPECT_TRUE(legal.ok()) << legal.message();
  const Result<Graph> again = graph::Parse(graph::Print(g));
  EXPECT_TRUE(again.ok() && graph::CanonicalText(*again) == graph::CanonicalText(g));
  const Result<CompiledPlan> plan =
      Compile(g, *TargetFromArch("sm_90a"), {.least_workspace = least_workspace});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return plan.ok() ? *plan : CompiledPlan();
}

class GrowthTest : public ::testing::TestWithParam<GrowthShape> {};

double SecondsFor(const GrowthShape& shape, int nodes) {
  const Graph g = shape.make(nodes, kMatrix);
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < (nodes > 2000 ? 2 : 4); ++run) {
    const double begin = testing::ThreadSeconds();
    PlanOf(g);
    least = std::min(least, testing::ThreadSeconds() - begin);
  }
  return least;
}

TEST_P(GrowthTest, TimeGrowsAsNodesDo) {
  constexpr int kNodes[] = {1000, 2000, 4000, 8000};
  // n log n is n^1.1 here, n^2 doubles at each doubling: 2.6 lies between for a noisy machine.
  constexpr double kMostExponent = 1.35, kMostSeconds = 2;
  std::vector<double> seconds;
  std::string plot;
  const double pace = testing::Pace();
  for (const int nodes : kNodes) {
    seconds.push_back(SecondsFor(GetParam(), nodes));
    plot += fmt::format("  {} nodes {:.3f} s", nodes, seconds.back());
  }
  const double exponent = std::log(seconds.back() / seconds.front()) / std::log(8.0);
  fmt::print("{}:{}, n^{:.2f}\n", GetParam().name, plot, exponent);
  EXPECT_LT(exponent, kMostExponent) << plot;
  // 10,000 nodes within two seconds.
  EXPECT_LT(1.25 * seconds.back(), kMostSeconds * std::max(pace, testing::Pace())) << plot;
}

TEST_P(GrowthTest, KernelsAreBounded) {
  size_t texts[2] = {};
  constexpr int kNodes[] = {1000, 2000};
  for (int i = 0; i < 2; ++i) {
    const CompiledPlan plan = PlanOf(GetParam().make(kNodes[i], kMatrix));
    for (const KernelSource& kernel : plan.program.kernels) {
      EXPECT_LT(kernel.text.size(), kMostText) << kernel.entry;
      texts[i] += kernel.text.size();
    }
    for (const Launch& launch : plan.program.launches) {
      const auto is_pointer = [](const LaunchArg& a) {
        return a.kind == LaunchArg::Kind::kPointer;
      };
      EXPECT_LE(std::ranges::count_if(launch.args, is_pointer), std::ssize(launch.args));
      EXPECT_LE(static_cast<size_t>(std::ranges::count_if(launch.args, is_pointer)),
                kMostGroupOperands + kMostGroupDepth);
      EXPECT_LT(launch.args.size() * sizeof(void*), 4096u);  // what a launch takes everywhere
    }
  }
  EXPECT_LT(texts[1], 3 * texts[0]);
}

INSTANTIATE_TEST_SUITE_P(Shapes, GrowthTest,
                         ::testing::ValuesIn(GrowthShapes().begin(), GrowthShapes().end()),
                         [](const auto& info) { return std::string(info.param.name); });

// Windows that float are computed again in others.
TEST(LeastWorkspaceGrowthTest, DoublingsBetweenWindowsAreSeenOnce) {
  const double pace = testing::Pace(), begin = testing::ThreadSeconds();
  PlanOf(GrowthGraph("windows", 2000, {16, 16}), true);
  EXPECT_LT(testing::ThreadSeconds() - begin, 4 * std::max(pace, testing::Pace()));
}

// ---- what divided groups compute

TEST(DividedGroupsTest, ComputeWhatTheGraphSays) {
  for (const GrowthShape& shape : GrowthShapes()) {
    if (shape.name.starts_with("doubling") || shape.name == "windows" || shape.name == "residual")
      continue;
    const Graph g = shape.make(300, {3, 5});
    const Status status = CheckOnBoth(g, graph::RandomInputs(g, 23), 1e-4);
    EXPECT_TRUE(status.ok()) << shape.name << ": " << status.message();
  }
}

// Each of the parts reads some twenty tensors: what floats before them is too much for one kernel.
TEST(DividedGroupsTest, ManyLargeOperandsAreStored) {
  graph::GraphBuilder b("parts");
  std::vector<TensorId> parts;
  for (int p = 0; p < 30; ++p) {
    TensorId sum = b.Input("x", DType::kF32, {2, 3});
    for (int i = 0; i < 15; ++i)
      sum = b.Pointwise(graph::PointwiseMode::kAdd, {sum, b.Input("x", DType::kF32, {2, 3})});
    parts.push_back(sum);
  }
  b.Output(b.Apply(graph::GraphOp::kConcat, parts, graph::ConcatAttrs{.axis = 0}), "y",
           DType::kF32);
  const Result<Graph> g = b.Finish();
  ASSERT_TRUE(g.ok()) << g.status().message();
  const Status status = CheckOnBoth(*g, graph::RandomInputs(*g, 23), 1e-5);
  EXPECT_TRUE(status.ok()) << status.message();
  const CompiledPlan plan = PlanOf(*g);
  EXPECT_GT(plan.groups.size(), 1u);
  for (const Launch& launch : plan.program.launches) EXPECT_LT(launch.args.size(), 128u);
}

// ---- stack

// Runs on a thread of 256 KB, as those of servers and of other languages may be.
void OnSmallStack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread{};
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(
      pthread_create(&thread, &attributes, run, const_cast<void*>(static_cast<const void*>(&work))),
      0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// Import, text both ways, the interpreter, and a plan for either device.
void WalkThrough(std::string_view name, int nodes) {
  const Graph made = GrowthGraph(name, nodes, {2, 3});
  const Result<Graph> read = graph::Parse(graph::Print(made));
  ASSERT_TRUE(read.ok()) << read.status().message();
  Graph g = *read;
  const Status legal = graph::Legalize(g);
  ASSERT_TRUE(legal.ok()) << legal.message();
  EXPECT_EQ(graph::CanonicalText(g), graph::CanonicalText(made));
  graph::TensorValues values = graph::RandomInputs(g, 23);
  const Status evaluated = graph::Evaluate(g, values);
  EXPECT_TRUE(evaluated.ok()) << evaluated.message();
  for (const char* arch : {"sm_90a", "cpu"}) {
    const Result<CompiledPlan> plan = Compile(g, *TargetFromArch(arch));
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_FALSE(plan.ok() && plan->program.kernels.empty());
  }
}

TEST(SmallStackTest, TakesAHundredThousandNodes) {
  OnSmallStack([] { WalkThrough("chain", 100'000); });
  OnSmallStack([] { WalkThrough("doubling_before_softmax", 100'000); });
}

TEST(SmallStackTest, TakesEveryShape) {
  for (const GrowthShape& shape : GrowthShapes())
    OnSmallStack([&] { WalkThrough(shape.name, 10'000); });
}

}  // namespace
}  // namespace kiln::compiler
