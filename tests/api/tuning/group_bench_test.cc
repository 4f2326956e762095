// The bench on the CPU device: right candidates pass; wrong results, results that are not written,
// and writes outside of a buffer do not.
#include "api/tuning/group_bench.h"

#include <gtest/gtest.h>

#include "runtime/device_select.h"
#include "tests/api/tuning/small_groups.h"

namespace kiln::api {
namespace {

class GroupBenchTest : public testing::Test {
 protected:
  void Open(const graph::Graph& graph, const BenchOptions& options = {}) {
    const auto device = runtime::CpuDeviceOfProcess();
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *device;
    group_ = GroupOf(graph, device_->target());
    auto bench = GroupBench::Make(*device_, group_, options);
    ASSERT_TRUE(bench.ok()) << bench.status().message();
    bench_ = *std::move(bench);
  }
  Program First() const {
    const auto ranked = compiler::RankCandidates(group_, device_->target());
    return *compiler::CompileGroup(group_, device_->target(), ranked[0]);
  }
  Status Check(const Program& program) {
    const auto trial = bench_->Prepare(program);
    return trial.ok() ? (*trial)->Check() : trial.status();
  }

  runtime::Device* device_ = nullptr;
  compiler::Group group_;
  std::unique_ptr<GroupBench> bench_;
};

TEST_F(GroupBenchTest, RightCandidatesPassAndHaveATime) {
  for (const graph::Graph& graph : {SmallMatmul(33), SmallRelu(1000)}) {
    Open(graph, {.seconds_per_time = 1e-3});
    for (const compiler::Candidate& c : compiler::RankCandidates(group_, device_->target())) {
      const Program program = *compiler::CompileGroup(group_, device_->target(), c);
      const auto trial = bench_->Prepare(program);
      ASSERT_TRUE(trial.ok()) << trial.status().message();
      EXPECT_TRUE((*trial)->Check().ok()) << (*trial)->Check().message();
      const auto time = (*trial)->Time(0);
      ASSERT_TRUE(time.ok());
      EXPECT_GT(time->seconds, 0);
    }
  }
}

TEST_F(GroupBenchTest, WhatIsNotWrittenIsSeen) {
  Open(SmallRelu(1000));
  Program program = First();
  ASSERT_TRUE(Check(program).ok());
  program.launches.clear();
  const Status status = Check(program);
  EXPECT_EQ(status.code(), Code::kUnexpectedValue) << status.message();
  EXPECT_NE(status.message().find("nan"), std::string::npos) << status.message();
}

// A tensor that a scatter writes in part holds its input before each run.
TEST_F(GroupBenchTest, MemoryThatIsReadAndWrittenStartsAsTheInput) {
  graph::GraphBuilder b("scatter");
  const auto x = b.Input("x", DType::kF32, {100}), before = b.Input("before", DType::kF32, {1000});
  const auto index =
      b.Apply(graph::GraphOp::kIota, {}, graph::IotaAttrs{}, {.dtype = DType::kI32, .dims = {100}});
  graph::Tensor after = b.graph()[before];
  const auto y = b.graph().AddTensor(std::move(after));
  b.graph().AddNode({.op = graph::GraphOp::kScatter,
                     .inputs = {x, index, before},
                     .outputs = {y},
                     .attrs = graph::ScatterAttrs{}});
  const auto graph = b.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  Open(*graph);
  Program program = First();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Check(program).ok()) << Check(program).message();
  program.launches.clear();
  const Status status = Check(program);
  EXPECT_EQ(status.code(), Code::kUnexpectedValue);
  EXPECT_EQ(status.message().find("nan"), std::string::npos) << status.message();
}

TEST_F(GroupBenchTest, WrongResultsAreSeen) {
  // An output of the right size from another function.
  Open(SmallRelu(1000));
  graph::GraphBuilder b("neg");
  b.Output(b.Pointwise(graph::PointwiseMode::kNeg, {b.Input("x", DType::kF32, {1000})}), "y",
           DType::kF32);
  const compiler::Group other = GroupOf(*b.Finish(), device_->target());
  const Program program = *compiler::CompileGroup(
      other, device_->target(), compiler::RankCandidates(other, device_->target())[0]);
  const Status status = Check(program);
  EXPECT_EQ(status.code(), Code::kUnexpectedValue) << status.message();
}

// Tensor cores err to one side: by 1.5e-4 after 50,000 products, and never after 1,000.
TEST_F(GroupBenchTest, LongSumsMayBeFurtherOff) {
  const auto product = [](int64_t k, double factor) {
    graph::GraphBuilder b("product");
    const auto x = b.Input("a", DType::kF16, {1, 4, k}), z = b.Input("b", DType::kF16, {1, k, 4});
    const auto sum = b.Apply(graph::GraphOp::kMatmul, {x, z}, graph::MatmulAttrs{});
    const auto c = b.Constant("c", DType::kF32, factor, 3);
    const auto y = b.Pointwise(graph::PointwiseMode::kMul, {sum, c});
    b.Output(y, "y", DType::kF32);
    return *b.Finish();
  };
  for (const auto& [k, factor, right] : {std::tuple(50000, 1.0, true),
                                         {50000, 1.00015, true},
                                         {50000, 1.001, false},
                                         {1000, 1.00015, false}}) {
    Open(product(k, 1));
    const compiler::Group other = GroupOf(product(k, factor), device_->target());
    const Program program = *compiler::CompileGroup(
        other, device_->target(), compiler::RankCandidates(other, device_->target())[0]);
    EXPECT_EQ(Check(program).ok(), right) << k << " " << factor << ": " << Check(program).message();
  }
}

// Every integer argument in turn made larger, as a kernel with a wrong bound would have it: the
// count of elements is among them.
TEST_F(GroupBenchTest, WritesBehindABufferAreSeen) {
  Open(SmallRelu(1000));
  const Program right = First();
  int seen = 0;
  for (size_t a = 0; a < right.launches[0].args.size(); ++a) {
    Program program = right;
    LaunchArg& arg = program.launches[0].args[a];
    if (arg.kind != LaunchArg::Kind::kScalar || arg.bits != 1000) continue;
    arg.bits += 24;
    const Status status = Check(program);
    EXPECT_EQ(status.code(), Code::kUnexpectedValue);
    seen += status.message().find("behind") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(seen, 0);
  EXPECT_TRUE(Check(right).ok()) << Check(right).message();
}

TEST_F(GroupBenchTest, AJudgeIsAskedAboutSmallGroups) {
  int asked = 0;
  bool content = true;
  BenchOptions options;
  options.judge = [&](const graph::Graph&, const graph::TensorValues& inputs) -> Result<Judge> {
    EXPECT_EQ(inputs.size(), 2u);
    return Judge([&](graph::TensorId, const std::vector<double>& got) {
      EXPECT_EQ(got.size(), 33u * 70);
      ++asked;
      return content ? Status() : Status::Text(Code::kUnexpectedValue, "the judge objects");
    });
  };
  Open(SmallMatmul(33), options);
  EXPECT_EQ(asked, 1);  // about the generic engine
  EXPECT_TRUE(Check(First()).ok());
  content = false;
  EXPECT_EQ(Check(First()).message(), "the judge objects");
  asked = 0;
  content = true;
  options.judged_work = 100;
  Open(SmallMatmul(33), options);
  EXPECT_EQ(asked, 0);
}

// Large outputs are compared in windows; what is wrong everywhere, or at the end, is always seen.
TEST_F(GroupBenchTest, LargeOutputsAreComparedInWindows) {
  Open(SmallRelu(3 << 20), {.compared_bytes = 1 << 20});
  Program program = First();
  EXPECT_TRUE(Check(program).ok());
  program.launches.clear();
  EXPECT_EQ(Check(program).code(), Code::kUnexpectedValue);
}

}  // namespace
}  // namespace kiln::api
