// Random recurrent networks on the device against the oracle: compiled, loaded and run as a session
// does. Inference gives what training does; a second run gives the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string_view>

#include "compiler/compile.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/recurrence/plan.h"
#include "compiler/engines/registry.h"
#include "ir/graph/ops.h"
#include "runtime/device_select.h"
#include "runtime/executable.h"
#include "runtime/prepare.h"
#include "tests/support/rnn_case.h"

namespace kiln {
namespace {

using graph::TensorId;
using graph::TensorValues;
using testing::RnnCase;
using testing::RnnGraph;

// Device memory of one tensor or of the workspace.
class Memory {
 public:
  Memory(runtime::Device& device, int64_t bytes) : device_(device), bytes_(bytes) {
    Result<void*> at = device.Allocate(std::max<int64_t>(bytes, 1));
    EXPECT_TRUE(at.ok()) << at.status().message();
    if (at.ok()) at_ = *at;
  }
  Memory(const Memory&) = delete;
  ~Memory() {
    if (at_ != nullptr) device_.Free(at_);
  }
  void* at() const { return at_; }
  int64_t bytes() const { return bytes_; }

 private:
  runtime::Device& device_;
  int64_t bytes_;
  void* at_ = nullptr;
};

class DeviceRun {
 public:
  DeviceRun(runtime::Device& device, const graph::Graph& g,
            const compiler::EngineChoice& choice = {})
      : device_(device), g_(g) {
    Result<compiler::CompiledPlan> plan = compiler::Compile(g, device.target(), choice);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (!plan.ok()) return;
    runtime::PrepareTogether(device, plan->program.kernels);
    auto made = runtime::Executable::Create(device, std::move(plan->program));
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) executable_ = *std::move(made);
  }

  // The outputs; memory that nothing has written is NaN.
  TensorValues Run(const TensorValues& inputs) {
    TensorValues got;
    if (executable_ == nullptr) return got;
    std::map<int64_t, std::unique_ptr<Memory>> memory;
    for (TensorId id = 0; id < static_cast<TensorId>(g_.tensors.size()); ++id) {
      const graph::Tensor& t = g_[id];
      auto own = std::make_unique<Memory>(device_, graph::MemoryBytes(t));
      std::vector<std::byte> bytes(static_cast<size_t>(own->bytes()), std::byte{0xFF});
      if (const auto value = inputs.find(id); value != inputs.end())
        graph::Pack(t, value->second, bytes);
      EXPECT_TRUE(device_.CopyIn(own->at(), bytes.data(), own->bytes()).ok());
      memory[t.uid] = std::move(own);
    }
    const Program& program = executable_->program();
    Memory workspace(device_, program.workspace_bytes + 16);
    EXPECT_TRUE(device_.Fill(workspace.at(), std::byte{0xFF}, workspace.bytes()).ok());
    std::vector<void*> pointers;
    for (const ProgramTensor& t : program.tensors) pointers.push_back(memory.at(t.uid)->at());
    const Status status = executable_->Execute(pointers, workspace.at(), nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(device_.Synchronize(nullptr).ok());
    for (const TensorId id : graph::Outputs(g_)) {
      const graph::Tensor& t = g_[id];
      std::vector<std::byte> bytes(static_cast<size_t>(graph::MemoryBytes(t)));
      const void* from = memory.at(t.uid)->at();
      EXPECT_TRUE(device_.CopyOut(bytes.data(), from, graph::MemoryBytes(t)).ok());
      got[id] = graph::Unpack(t, bytes.data());
    }
    return got;
  }

  // Kernels of the engines whose name begins so.
  int64_t KernelsOf(std::string_view engine) const {
    if (executable_ == nullptr) return 0;
    return std::ranges::count_if(executable_->program().kernels, [&](const KernelSource& kernel) {
      return kernel.entry.starts_with(fmt::format("kiln_{}_", engine));
    });
  }

 private:
  runtime::Device& device_;
  const graph::Graph& g_;
  std::unique_ptr<runtime::Executable> executable_;
};

runtime::Device& TheDevice() {
  Result<runtime::Device*> device = runtime::DefaultDevice();
  if (!device.ok()) {
    ADD_FAILURE() << device.status().message();
    std::abort();
  }
  return **device;
}

void ExpectRight(const RnnCase& c) {
  SCOPED_TRACE(c.Text());
  runtime::Device& device = TheDevice();
  const RnnGraph training = TrainingGraph(c);
  DeviceRun run(device, training.graph);
  const TensorValues got = run.Run(training.inputs);
  ASSERT_EQ(CompareRnn(c, training, got, true, RnnTolerance(c)), "");
  const RnnGraph inference = InferenceGraph(c);
  const TensorValues forward = DeviceRun(device, inference.graph).Run(inference.inputs);
  ASSERT_EQ(CompareRnn(c, inference, forward, false, RnnTolerance(c)), "");
  if (c.attrs.dropout == 0) {
    EXPECT_EQ(forward.at(inference.y), got.at(training.y));
  }
}

// Batches of random networks, so that shards of the test share them: most of a network's time on a
// GPU is the compilation of its kernels, which NVRTC does faster in several processes.
constexpr int kBatches = 20;
class RandomNetworks : public ::testing::TestWithParam<int> {};

TEST_P(RandomNetworks, RunRight) {
  const char* const wish = std::getenv("RNN_TEST_NETWORKS");
  const uint64_t cases = wish != nullptr                  ? std::strtoull(wish, nullptr, 10)
                         : TheDevice().target().is_cuda() ? 500
                                                          : 24;
  for (uint64_t seed = 1 + static_cast<uint64_t>(GetParam());
       seed <= cases && !::testing::Test::HasFatalFailure(); seed += kBatches)
    ExpectRight(testing::RandomRnnCase(seed));
}

INSTANTIATE_TEST_SUITE_P(Batch, RandomNetworks, ::testing::Range(0, kBatches));

// Several blocks and passes over units, odd widths, sequences that end early in both directions.
TEST(Rnn, LargerNetworksRunRight) {
  for (const graph::RnnCell cell :
       {graph::RnnCell::kTanh, graph::RnnCell::kLstm, graph::RnnCell::kGru}) {
    for (const DType type : {DType::kF32, DType::kF16}) {
      ExpectRight({.attrs = {.cell = cell,
                             .layers = 2,
                             .hidden = 67,
                             .projected = cell == graph::RnnCell::kLstm ? 33 : 67,
                             .bidirectional = true},
                   .type = type,
                   .steps = 9,
                   .batch = 7,
                   .input = 20,
                   .lengths = {9, 1, 4, 0, 8, 9, 2},
                   .has_hx = true,
                   .has_cx = true,
                   .has_dhy = true,
                   .has_dcy = true});
    }
  }
}

// Layers as a wavefront, for knobs of the first way.
struct StackRow {
  graph::RnnCell cell;
  DType type;
  int64_t layers, hidden, steps, batch;
  double dropout;
  testing::RnnLayout layout;
  std::vector<compiler::KnobSetting> knobs;
};

// True if both ways of its training went by the stack: of a graph with two groups that could, the
// choice names that of the leading one.
bool BothWaysAreRight(const StackRow& row) {
  RnnCase c{.attrs = {.cell = row.cell,
                      .layers = row.layers,
                      .hidden = row.hidden,
                      .projected = row.hidden,
                      .dropout = row.dropout},
            .type = row.type,
            .steps = row.steps,
            .batch = row.batch,
            .input = 12,
            .layout = row.layout,
            .has_hx = true,
            .has_cx = true,
            .has_dhy = true,
            .has_dcy = row.layers == 2};
  for (int64_t b = 0; b < c.batch; ++b) c.lengths.push_back(std::max(c.steps - b, int64_t{1}));
  if (row.layout != testing::RnnLayout::kPacked) c.lengths.back() = 0;
  SCOPED_TRACE(c.Text());
  const char* const engine =
      row.type == DType::kF32 ? "recurrence_stack_sm80_tf32" : "recurrence_stack_sm80";
  const compiler::EngineChoice choice{.engine = compiler::EngineIndex(engine), .knobs = row.knobs};
  const double tolerance = row.type == DType::kF32 ? 2e-2 : RnnTolerance(c);
  const RnnGraph training = TrainingGraph(c);
  DeviceRun run(TheDevice(), training.graph, choice);
  EXPECT_GE(run.KernelsOf(engine), 2);  // a loop, and zeroes before
  const bool both = run.KernelsOf(engine) > 2;
  const TensorValues got = run.Run(training.inputs);
  EXPECT_EQ(CompareRnn(c, training, got, true, tolerance), "");
  EXPECT_EQ(run.Run(training.inputs), got);
  const RnnGraph inference = InferenceGraph(c);
  DeviceRun forward(TheDevice(), inference.graph, choice);
  EXPECT_GE(forward.KernelsOf(engine), 2);
  EXPECT_EQ(CompareRnn(c, inference, forward.Run(inference.inputs), false, tolerance), "");
  return both;
}

std::vector<compiler::KnobSetting> StackKnobs(int units, int columns, int exchange) {
  return {{"units", units}, {"sequences", columns}, {"exchange", exchange}};
}

constexpr auto kSteps = testing::RnnLayout::kTimeMajor, kByBatch = testing::RnnLayout::kBatchMajor,
               kPacked = testing::RnnLayout::kPacked;

// Every cell, two to four layers, dropout between them, sequences that end early, in memory packed
// and batch by batch; units and sequences that fill no block, groups of sequences one behind the
// other, and both ways to say in memory that states are there.
TEST(RnnStack, LayersAtOnceRunRight) {
  using graph::RnnCell;
  if (!TheDevice().target().is_cuda()) return;
  const auto counted = StackKnobs(2, 8, compiler::kCounted),
             numbered = StackKnobs(16, 8, compiler::kNumbered),
             wide = StackKnobs(32, 32, compiler::kCounted);
  const StackRow rows[] = {{RnnCell::kLstm, DType::kF16, 2, 32, 5, 37, 0, kSteps, counted},
                           {RnnCell::kLstm, DType::kBF16, 3, 48, 70, 19, 0.25, kSteps, numbered},
                           {RnnCell::kLstm, DType::kF32, 2, 20, 3, 9, 0.5, kByBatch, counted},
                           {RnnCell::kGru, DType::kF16, 4, 33, 40, 3, 0, kPacked, {}},
                           {RnnCell::kGru, DType::kBF16, 2, 64, 4, 37, 0.25, kByBatch, wide},
                           {RnnCell::kGru, DType::kF32, 2, 24, 1, 5, 0, kSteps, numbered},
                           {RnnCell::kTanh, DType::kF16, 3, 7, 6, 2, 0, kPacked, {}},
                           {RnnCell::kRelu, DType::kF16, 2, 96, 2, 12, 1, kSteps, numbered}};
  EXPECT_GE(std::ranges::count_if(rows, BothWaysAreRight), 4);
}

// Groups that are clusters, whose layers wait for one another.
TEST(RnnStack, ClustersRunRight) {
  using graph::RnnCell;
  if (!TheDevice().target().is_cuda() || TheDevice().target().sm_version < 90) return;
  const auto clustered = StackKnobs(16, 8, compiler::kClustered);
  const StackRow rows[] = {{RnnCell::kLstm, DType::kF16, 2, 64, 6, 11, 0.25, kSteps, clustered},
                           {RnnCell::kGru, DType::kBF16, 3, 40, 5, 7, 0, kByBatch, clustered},
                           {RnnCell::kLstm, DType::kF32, 2, 48, 36, 9, 0, kPacked, clustered}};
  EXPECT_GE(std::ranges::count_if(rows, BothWaysAreRight), 1);
}

TEST(Rnn, RunsAreBitwiseEqual) {
  const RnnCase c{
      .attrs = {.cell = graph::RnnCell::kLstm, .layers = 2, .hidden = 33, .projected = 33},
      .type = DType::kF32,
      .steps = 7,
      .batch = 6,
      .input = 12};
  const RnnGraph g = TrainingGraph(c);
  DeviceRun run(TheDevice(), g.graph);
  const TensorValues first = run.Run(g.inputs);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(run.Run(g.inputs), first);
}

// A sequence's results do not depend on its neighbours, nor on how many there are.
TEST(Rnn, SequencesDoNotKnowOfOneAnother) {
  RnnCase c{.attrs = {.cell = graph::RnnCell::kGru, .hidden = 19, .projected = 19},
            .type = DType::kF32,
            .steps = 5,
            .batch = 6,
            .input = 4};
  const RnnGraph many = InferenceGraph(c);
  const TensorValues all = DeviceRun(TheDevice(), many.graph).Run(many.inputs);
  c.batch = 1;
  RnnGraph one = InferenceGraph(c);
  one.inputs[one.w] = many.inputs.at(many.w);
  for (int64_t b = 0; b < 6; ++b) {
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t i = 0; i < 4; ++i)
        one.inputs[one.x][t * 4 + i] = many.inputs.at(many.x)[(t * 6 + b) * 4 + i];
    const TensorValues alone = DeviceRun(TheDevice(), one.graph).Run(one.inputs);
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t j = 0; j < 19; ++j)
        EXPECT_EQ(alone.at(one.y)[t * 19 + j], all.at(many.y)[(t * 6 + b) * 19 + j]);
  }
}

}  // namespace
}  // namespace kiln
