// The notice for a client that waited for a compiler: its words, when and how often it comes.
#include "api/session/compile_notice.h"

#include <gtest/gtest.h>

#include <thread>

#include "ir/base/log.h"
#include "ir/graph/builder.h"

namespace kiln::api {
namespace {

graph::Graph MatmulRelu() {
  graph::GraphBuilder b("matmul");
  const auto x = b.Input("a", DType::kF16, {1, 8, 64}), z = b.Input("b", DType::kF16, {1, 64, 8});
  const auto product = b.Apply(graph::GraphOp::kMatmul, {x, z}, graph::MatmulAttrs{});
  const auto once = b.Pointwise(graph::PointwiseMode::kReluFwd, {product});
  b.Output(b.Pointwise(graph::PointwiseMode::kReluFwd, {once}), "y", DType::kF16);
  return *b.Finish();
}

TEST(CompileNotice, SaysWhatAndHowManyAndHowToAvoidIt) {
  EXPECT_EQ(CompileNotice::Text(MatmulRelu(), 3, 1.71, "/home/me/.cache/kiln/v1"),
            "a plan of matmul, pointwise waited 1.7 s for 3 kernels to be compiled (this is said "
            "once); kernels are kept in /home/me/.cache/kiln/v1 for the next process: run the "
            "program once where it is installed, or take that folder along (KILN_CACHE_DIR), and "
            "nothing is compiled");
  EXPECT_EQ(CompileNotice::Text(MatmulRelu(), 1, 2.04, ""),
            "a plan of matmul, pointwise waited 2.0 s for 1 kernel to be compiled (this is said "
            "once); there is no folder to keep kernels in, so that the next process waits again: "
            "KILN_CACHE_DIR names one, `kiln doctor` says more");
}

TEST(CompileNotice, IsForOneSlowPlan) {
  const graph::Graph graph = MatmulRelu();
  const auto told = [&](size_t kernels, int milliseconds) {
    testing::internal::CaptureStderr();
    {
      const CompileNotice notice(graph, kernels);
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    }
    return testing::internal::GetCapturedStderr().find("to be compiled") != std::string::npos;
  };
  EXPECT_FALSE(told(3, 20)) << "quick";
  EXPECT_FALSE(told(0, 1100)) << "nothing was compiled";
  EXPECT_TRUE(told(3, 1100));
  EXPECT_FALSE(told(3, 1100)) << "once";
}

}  // namespace
}  // namespace kiln::api
