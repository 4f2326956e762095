// Every problem of the bench list is a legal graph: our library finalises it and offers a config
// for it, on the CPU device and for a described H200, without data. NVIDIA's, where it is
// installed, finalises the operations; its operation graphs need a handle, and so a GPU.
#include <gtest/gtest.h>

#include "bench/contract/plans.h"
#include "tests/support/client_ops.h"
#include "tests/support/nvidia_library.h"
#include "tests/support/runner.h"

namespace kiln::bench {
namespace {

std::vector<Problem> Shipped() {
  ProblemList list = LoadProblems("tests/cases/bench_contract.txt");
  EXPECT_TRUE(list.errors.empty()) << list.errors.front();
  return std::move(list.problems);
}

TEST(BenchProblems, AreLegalForOurs) {
  std::string error;
  const auto cudnn = testing::Cudnn::Open(testing::TestOptions::Get().cudnn, nullptr, &error);
  ASSERT_NE(cudnn, nullptr) << error;
  for (const Problem& problem : Shipped()) {
    testing::ClientError refused;
    const auto graph = testing::Graph::Build(*cudnn, problem.graph, &refused);
    ASSERT_NE(graph, nullptr) << problem.Name() << ": " << refused.text;
    EXPECT_TRUE(graph->AddMode(CUDNN_HEUR_MODE_A).ok()) << problem.Name();
    ASSERT_GT(graph->configs(), 0u) << problem.Name();
    EXPECT_GE(graph->FactsOf(0).engine, 0) << problem.Name();
  }
}

// Compiled as far as the CUDA text for a described H200, with the config that its heuristics rank
// first.
TEST(BenchProblems, HavePlansForAnH200) {
  std::string error;
  const auto cudnn = testing::Cudnn::Open(testing::TestOptions::Get().cudnn, nullptr, &error);
  ASSERT_NE(cudnn, nullptr) << error;
  constexpr std::string_view kH200 = R"({"deviceVer": 900, "deviceName": "NVIDIA H200", )"
                                     R"("multiProcessorCount": 132})";
  testing::Descriptor device(*cudnn, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  device.Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
             static_cast<int64_t>(kH200.size()), kH200.data());
  ASSERT_TRUE(device.Finalize().ok()) << device.error().text;
  for (const Problem& problem : Shipped()) {
    SCOPED_TRACE(problem.Name());
    testing::ClientError refused;
    const auto graph = testing::Graph::Build(*cudnn, problem.graph, &refused);
    ASSERT_NE(graph, nullptr) << refused.text;
    testing::Descriptor heuristics(*cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph->descriptor())
        .SetEnum(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A)
        .Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    ASSERT_TRUE(heuristics.Finalize().ok()) << heuristics.error().text;
    const testing::Descriptor config(*cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    auto raw = config.get();
    int64_t count = 0;
    ASSERT_EQ(cudnn->getAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                  CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
              CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(count, 1);
    testing::Descriptor plan(*cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config)
        .Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    EXPECT_TRUE(plan.Finalize().ok()) << plan.error().text;
  }
}

TEST(BenchProblems, AreLegalForNvidias) {
  const std::string path = testing::NvidiaLibraryPath("");
  if (path.empty()) GTEST_SKIP() << "NVIDIA's libcudnn.so.9 is not installed";
  std::string error;
  const auto cudnn = testing::Cudnn::Load(path, &error);
  ASSERT_NE(cudnn, nullptr) << error;
  for (const Problem& problem : Shipped()) {
    testing::ClientError refused;
    const auto form = FormFor(Side::kNvidia, problem.graph);
    const auto operations = testing::MakeOperations(*cudnn, form, &refused);
    EXPECT_TRUE(refused.ok()) << problem.Name() << ": " << refused.text;
    EXPECT_EQ(operations.size(), problem.graph.ops.size());
  }
}

}  // namespace
}  // namespace kiln::bench
