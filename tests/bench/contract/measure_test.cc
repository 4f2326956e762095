// The whole way of one problem, on the host: two handles of our library stand for the two sides.
#include "bench/contract/measure.h"

#include <gtest/gtest.h>

#include "tests/bench/contract/host_gpu.h"
#include "tests/support/runner.h"

namespace kiln::bench {
namespace {

class Measuring : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string error;
    const std::string& path = testing::TestOptions::Get().cudnn;
    makers_ = PlanMakers::Open(
        gpu_, {.ours = path, .nvidia = path, .threads = 2, .every_engine = true}, &error);
    ASSERT_NE(makers_, nullptr) << error;
    watch_ = Stopwatch::Make(gpu_, makers_->ours(), &error);
    ASSERT_NE(watch_, nullptr) << error;
  }
  Row Measure(const std::string& line, const std::string& section = "s") {
    list_ = ParseProblems("list.txt", "[" + section + "]\n" + line);
    EXPECT_TRUE(list_.errors.empty()) << list_.errors.front();
    int64_t calls = 0;
    offers_ = makers_->Make({&list_.problems[0]}, [&](int64_t, int64_t) { ++calls; });
    Measurer measurer(gpu_, *watch_, nullptr,
                      {.seconds = 0.2, .looks = 2, .rounds = 5, .most_workspace = most_workspace_});
    return measurer.Measure(list_.problems[0], offers_.at(0));
  }
  const Problem& problem() const { return list_.problems[0]; }

  testing::HostGpu gpu_;
  std::unique_ptr<PlanMakers> makers_;
  std::unique_ptr<Stopwatch> watch_;
  ProblemList list_;
  std::vector<PlanMakers::Offers> offers_;
  int64_t most_workspace_ = int64_t{1} << 30;
};

TEST_F(Measuring, TimesBothSidesAndChecksBoth) {
  const Row row = Measure(
      "p: conv_fprop(x:f16[2,8,7,7]@nhwc, w:f16[16,8,3,3]@nhwc) -> %t:f32@nhwc pad=1; "
      "add(%t, b:f16[1,16,1,1]@nhwc) -> %u:f32@nhwc; relu_fwd(%u) -> y:f16@nhwc");
  EXPECT_EQ(row.wrong, "");
  EXPECT_EQ(row.fault, "");
  EXPECT_EQ(row.note, "");
  EXPECT_TRUE(row.has_oracle);
  for (const SideResult* side : {&row.kiln, &row.nvidia}) {
    EXPECT_EQ(side->error, "");
    EXPECT_GT(side->first.median, 0);
    EXPECT_GT(side->best.median, 0);
    EXPECT_LE(side->best.median, side->first.median);
    EXPECT_LE(side->best.p10, side->best.median);
    EXPECT_GE(side->best.p90, side->best.median);
    EXPECT_GT(side->timed, 0);
    EXPECT_NE(side->best_label.find("engine"), std::string::npos);
  }
  const std::string json = ToJson(problem(), row);
  EXPECT_NE(json.find(R"("section": "s", "name": "p")"), std::string::npos) << json;
  EXPECT_NE(json.find(R"("wrong": "")"), std::string::npos) << json;
  EXPECT_EQ(json.find('\n'), std::string::npos);
}

TEST_F(Measuring, ALostDeviceEndsTheProblem) {
  gpu_.fault = "cuCtxSynchronize: an illegal memory access was encountered (700)";
  const Row row = Measure("p: matmul(a:f32[1,8,8], b:f32[1,8,8]) -> c:f32");
  EXPECT_NE(row.fault.find("illegal memory access"), std::string::npos);
  EXPECT_EQ(row.kiln.best.median, 0);
}

TEST_F(Measuring, RefusalsAreRowsWithReasons) {
  most_workspace_ = -1;
  const Row row = Measure("p: matmul(a:f32[1,8,8], b:f32[1,8,8]) -> c:f32");
  EXPECT_EQ(row.kiln.best.median, 0);
  EXPECT_NE(row.kiln.error.find("bytes of workspace"), std::string::npos) << row.kiln.error;
  EXPECT_EQ(row.wrong, "");
}

TEST(BenchTimes, AreMedianAndDeciles) {
  std::vector<double> times;
  for (int i = 100; i >= 0; --i) times.push_back(i);
  const Timing t = Summarise(times);
  EXPECT_EQ(t.median, 50);
  EXPECT_EQ(t.p10, 10);
  EXPECT_EQ(t.p90, 90);
  EXPECT_EQ(Summarise({}).median, 0);
}

}  // namespace
}  // namespace kiln::bench
