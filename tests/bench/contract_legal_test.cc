// Every problem of the bench list is a legal graph: our library finalises it and offers a config
// for it, on the CPU device, without data. NVIDIA's, where it is installed, finalises the
// operations; its operation graphs need a handle, and so a GPU.
#include <gtest/gtest.h>

#include "bench/contract_plans.h"
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
