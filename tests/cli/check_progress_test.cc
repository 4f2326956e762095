// The words of a long check on stderr; a short one says nothing.
#include "cli/check_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "ir/graph/builder.h"

namespace kiln::cli {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

graph::Graph TwoOperations() {
  graph::GraphBuilder b("two");
  const graph::TensorId x = b.Input("x", DType::kF32, {4, 4});
  b.Output(
      b.Reduction(graph::ReductionMode::kAdd, b.Pointwise(graph::PointwiseMode::kExp, {x}), {4, 1}),
      "y", DType::kF32);
  return *b.Finish();
}

// All nodes of a run, then a wait in the first node of the next.
std::string SaidOf(ProgressOptions options, milliseconds wait) {
  const graph::Graph graph = TwoOperations();
  ::testing::internal::CaptureStderr();
  {
    CheckProgress progress(graph, options);
    for (const graph::Node& node : graph.nodes) progress.Begin(node);
    progress.Begin(graph.nodes[0]);
    std::this_thread::sleep_for(wait);
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(CheckProgress, AShortCheckIsSilent) {
  EXPECT_EQ(SaidOf({.is_terminal = true, .first = milliseconds(60000)}, milliseconds(1)), "");
  EXPECT_EQ(SaidOf({.first = milliseconds(60000)}, milliseconds(1)), "");
}

TEST(CheckProgress, SaysWhichOperationOfWhichRun) {
  const std::string said =
      SaidOf({.first = milliseconds(1), .period = milliseconds(60000)}, milliseconds(300));
  EXPECT_EQ(said,
            "kiln: checking: 0 of 2 operations (pointwise) interpreted with disturbed results, run "
            "1, 0 s\n");
}

TEST(CheckProgress, ATerminalsLineIsWrittenOverAndTakenAway) {
  const std::string said =
      SaidOf({.is_terminal = true, .first = milliseconds(1), .period = milliseconds(60000)},
             milliseconds(300));
  EXPECT_THAT(said, HasSubstr("\r\x1b[Kchecking: 0 of 2 operations"));
  EXPECT_TRUE(said.ends_with("\r\x1b[K")) << said;
  EXPECT_THAT(said, Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace kiln::cli
