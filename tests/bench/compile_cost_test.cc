// What a training step of ResNet-50 costs before it runs, on a described H200: how many kernels,
// how many more for another batch size, and the host time of a plan whose kernels are known
// (docs/compile-cost.md). NVRTC's own time is measured by bench/compile_cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "bench/step_plans.h"

namespace kiln::bench {
namespace {

constexpr int64_t kImages = 64;
constexpr size_t kConvolutions = 69;
constexpr size_t kMostKernels = 40;

// What other batch sizes may compile beyond that: the model promises more than kWorthAKernel of it.
struct Another {
  int64_t images;
  size_t kernels;
};
constexpr Another kOthers[] = {{32, 5}, {96, 5}, {128, 2}, {256, 2}};

std::string Cases() {
  std::ifstream file("tests/cases/bench_contract.txt");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<StepProblem> Problems(int64_t images) {
  auto problems = StepProblems(Cases(), images);
  EXPECT_TRUE(problems.ok()) << problems.status().message();
  EXPECT_EQ(problems->size(), kConvolutions);
  return *std::move(problems);
}

StepPlans Plan(int64_t images) {
  auto step = PlanStep(Problems(images), H200());
  EXPECT_TRUE(step.ok()) << step.status().message();
  EXPECT_EQ(step->plans.size(), kConvolutions);
  return *std::move(step);
}

TEST(CompileCost, AStepNeedsFewKernels) {
  const StepPlans step = Plan(kImages);
  EXPECT_LE(step.kernels.size(), kMostKernels);
  EXPECT_GE(step.kernels.size(), 10u);  // all plans are there
}

TEST(CompileCost, AnotherBatchSizeCompilesAlmostNothing) {
  const StepPlans known = Plan(kImages);
  for (const Another& other : kOthers) {
    std::string fresh;
    size_t count = 0;
    for (const auto& [entry, kernel] : Plan(other.images).kernels) {
      if (known.kernels.contains(entry)) continue;
      ++count;
      fresh += entry + " " + kernel.text.substr(0, kernel.text.find('\n')) + "\n";
    }
    EXPECT_LE(count, other.kernels) << "N = " << other.images << "\n" << fresh;
  }
}

// Sharing kernels is not paid for with time, as far as the model sees it.
TEST(CompileCost, SharingCostsLittleTime) {
  for (const int64_t images : {16, 32, 64, 96, 128, 256}) {
    double logs = 0;
    for (const StepPlan& plan : Plan(images).plans) {
      const double ratio = plan.seconds / plan.least_seconds;
      EXPECT_LE(ratio, 1.1001) << "N = " << images << ", " << plan.name << ": " << plan.knobs;
      EXPECT_GE(ratio, 1) << plan.name;
      logs += std::log(ratio);
    }
    EXPECT_LE(std::exp(logs / kConvolutions), 1.02) << "N = " << images;
  }
}

// The same graphs give the same texts, whatever was planned before.
TEST(CompileCost, TheChoiceDoesNotDependOnWhatWasPlanned) {
  const StepPlans first = Plan(kImages);
  Plan(32);
  const StepPlans again = Plan(kImages);
  for (size_t i = 0; i < kConvolutions; ++i) {
    EXPECT_EQ(first.plans[i].knobs, again.plans[i].knobs);
    EXPECT_EQ(first.plans[i].kernels, again.plans[i].kernels);
  }
}

// The bar is 3 ms, of which the driver and the disk need their part. Builds with checks get ten
// times of it.
TEST(CompileCost, APlanTakesLittleHostTime) {
#ifdef NDEBUG
  constexpr double kMargin = 1;
#else
  constexpr double kMargin = 10;
#endif
  std::vector<double> times = PlanMilliseconds(Problems(kImages));
  std::ranges::sort(times);
  EXPECT_LE(times[times.size() / 2], 1.0 * kMargin);
  EXPECT_LE(times.back(), 3.0 * kMargin);
  std::printf("a plan takes %.2f ms in the median, %.2f at most\n", times[times.size() / 2],
              times.back());
}

}  // namespace
}  // namespace kiln::bench
