// Sums over GPUs and signals on the emulated GPU, where the test plays the peers: it puts what they
// would publish into their buffers, and looks into this rank's own. Batch norm over two ranks
// against plain loops in f64 over the whole batch. peers_gpu_test has two GPUs.
#include "ir/peers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <random>

#include "cli/bindings.h"
#include "compiler/compile.h"
#include "compiler/engines/registry.h"
#include "ir/graph/eval.h"
#include "runtime/device_select.h"
#include "runtime/executable.h"
#include "runtime/peers.h"
#include "tests/numerics/peers_graphs.h"

namespace kiln {
namespace {

using graph::Graph;
using graph::TensorId;
using graph::TensorValues;
using runtime::Device;

// The device, on which no buffers of peers lie but those that the test says.
class RankDevice final : public Device {
 public:
  explicit RankDevice(Device& device) : device_(device) {}

  std::vector<const void*> own, others;

  runtime::Owner OwnerOf(const void* pointer) const override {
    const auto has = [&](const std::vector<const void*>& list) {
      return std::ranges::find(list, pointer) != list.end();
    };
    if (has(own)) return runtime::Owner::kThisDevice;
    return has(others) ? runtime::Owner::kOtherDevice : runtime::Owner::kNobody;
  }
  const Target& target() const override { return device_.target(); }
  Result<std::shared_ptr<runtime::LoadedKernel>> Load(const KernelSource& source) override {
    return device_.Load(source);
  }
  Status Launch(const runtime::LoadedKernel& kernel, const runtime::LaunchShape& shape, void** args,
                runtime::Stream stream) override {
    return device_.Launch(kernel, shape, args, stream);
  }
  Result<int32_t*> FaultWord() override { return device_.FaultWord(); }
  int32_t TakeFault() override { return device_.TakeFault(); }
  Result<void*> Allocate(int64_t bytes) override { return device_.Allocate(bytes); }
  void Free(void* pointer) override { device_.Free(pointer); }
  Status CopyIn(void* to, const void* host, int64_t bytes) override {
    return device_.CopyIn(to, host, bytes);
  }
  Status CopyOut(void* host, const void* from, int64_t bytes) override {
    return device_.CopyOut(host, from, bytes);
  }
  Status CopyWithin(void* to, const void* from, int64_t bytes) override {
    return device_.CopyWithin(to, from, bytes);
  }
  Status Fill(void* to, std::byte value, int64_t bytes) override {
    return device_.Fill(to, value, bytes);
  }
  Status Synchronize(runtime::Stream stream) override { return device_.Synchronize(stream); }
  Result<double> Measure(std::function<Status()> run, int repeats,
                         runtime::Stream stream) override {
    return device_.Measure(std::move(run), repeats, stream);
  }

 private:
  Device& device_;
};

Device& TheDevice() {
  const auto device = runtime::DefaultDevice();
  CHECK(device.ok(), "{}", device.status().message());
  return **device;
}

// A word as the two f32 that the tensor of a buffer has in its place.
double CallAsFloat(uint32_t call) { return std::bit_cast<float>(call); }

// Publishes `numbers`, from `first` on, as a rank's call.
void Publish(std::vector<double>& buffer, int64_t first, const std::vector<double>& numbers,
             uint32_t call) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t word = 2 * (static_cast<size_t>(first) + i) + call % 2;
    buffer[2 * word] = static_cast<float>(numbers[i]);
    buffer[2 * word + 1] = CallAsFloat(call);
  }
}

// A graph that runs on one rank of the emulated GPU.
class RankRun {
 public:
  RankRun(const char* text, TensorValues inputs, std::vector<const char*> own,
          std::vector<const char*> others)
      : device_(TheDevice()), graph_(Parsed(text)), inputs_(std::move(inputs)) {
    Result<compiler::CompiledPlan> plan = compiler::Compile(graph_, device_.target(), {});
    CHECK(plan.ok(), "{}", plan.status().message());
    auto made = runtime::Executable::Create(device_, std::move(plan->program));
    CHECK(made.ok(), "{}", made.status().message());
    executable_ = *std::move(made);
    auto bindings = cli::Bindings::Make(device_, graph_, executable_->program(), inputs_);
    CHECK(bindings.ok(), "{}", bindings.status().message());
    bindings_.emplace(*std::move(bindings));
    for (const char* name : own) device_.own.push_back(PointerOf(name));
    for (const char* name : others) device_.others.push_back(PointerOf(name));
  }

  Status Execute() {
    RETURN_IF_ERROR(executable_->Execute(bindings_->pointers(), bindings_->workspace(), nullptr));
    return device_.Synchronize(nullptr);
  }
  std::vector<double> Read(const char* name) {
    const auto values = bindings_->Read(device_, graph_[IdOf(name)]);
    CHECK(values.ok(), "{}", values.status().message());
    return *values;
  }
  void Write(const char* name, const std::vector<double>& values) {
    std::vector<std::byte> bytes;
    graph::Pack(graph_[IdOf(name)], values, bytes);
    const Status status =
        device_.CopyIn(PointerOf(name), bytes.data(), static_cast<int64_t>(bytes.size()));
    CHECK(status.ok(), "{}", status.message());
  }
  std::vector<double> ByInterpreter(const char* name) {
    TensorValues values = inputs_;
    CHECK(graph::Evaluate(graph_, values).ok());
    return values.at(IdOf(name));
  }
  Status TakeFault() { return runtime::StatusOfFault(device_.TakeFault()); }
  TensorId IdOf(std::string_view name) const {
    for (size_t t = 0; t < graph_.tensors.size(); ++t)
      if (graph_.tensors[t].name == name) return static_cast<TensorId>(t);
    CHECK(false, "no tensor is called {}", name);
  }
  int64_t launches() const { return std::ssize(executable_->program().launches); }

 private:
  static Graph Parsed(const char* text) {
    Result<Graph> g = graph::Parse(text);
    CHECK(g.ok(), "{}", g.status().message());
    return *std::move(g);
  }
  void* PointerOf(const char* name) const {
    const int64_t uid = graph_[IdOf(name)].uid;
    const auto& tensors = executable_->program().tensors;
    const auto found = std::ranges::find(tensors, uid, &ProgramTensor::uid);
    CHECK(found != tensors.end(), "the program has no {}", name);
    return bindings_->pointers()[static_cast<size_t>(found - tensors.begin())];
  }

  RankDevice device_;
  const Graph graph_;
  TensorValues inputs_;
  std::unique_ptr<runtime::Executable> executable_;
  std::optional<cli::Bindings> bindings_;
};

constexpr const char* kReduce = R"(graph g {
  tensor %x uid=1 f32 [37]
  tensor %s uid=2 f32 [2,3]
  tensor %p0 uid=3 f32 [180]
  tensor %p1 uid=4 f32 [180]
  tensor %p2 uid=5 f32 [180]
  tensor %y uid=6 f32 [37]
  tensor %t uid=7 f32 [2,3]
  %y, %t = peer_reduce(%x, %s, %p0, %p1, %p2) compute=f32 first=2
})";

std::vector<double> Numbers(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> numbers(count);
  for (double& v : numbers)
    v = static_cast<float>(std::uniform_real_distribution<double>(-3, 3)(random));
  return numbers;
}

TEST(Peers, SumsAreInTheOrderOfRanks) {
  constexpr int64_t kFirst = 2;
  constexpr const char* kBuffers[] = {"p0", "p1", "p2"};
  const std::vector<double> zero(180, 0);
  for (const size_t rank : {0, 1, 2}) {
    SCOPED_TRACE(rank);
    std::vector<std::vector<double>> numbers;
    for (uint64_t r = 0; r < 3; ++r) numbers.push_back(Numbers(37 + 6, 10 * rank + r));
    const auto& mine = numbers[rank];
    TensorValues inputs = {{0, {mine.begin(), mine.begin() + 37}},
                           {1, {mine.begin() + 37, mine.end()}},
                           {2, zero},
                           {3, zero},
                           {4, zero}};
    for (size_t r = 0; r < 3; ++r)
      if (r != rank) Publish(inputs[static_cast<TensorId>(2 + r)], kFirst, numbers[r], 1);
    std::vector<const char*> others;
    for (size_t r = 0; r < 3; ++r)
      if (r != rank) others.push_back(kBuffers[r]);
    RankRun run(kReduce, inputs, {kBuffers[rank]}, others);
    // Odd and even calls, and the same copies again.
    for (uint32_t call = 1; call <= 4; ++call) {
      SCOPED_TRACE(call);
      for (size_t r = 0; r < 3; ++r) {
        if (r == rank || call == 1) continue;
        std::vector<double> buffer = run.Read(kBuffers[r]);
        Publish(buffer, kFirst, numbers[r], call);
        run.Write(kBuffers[r], buffer);
      }
      const Status status = run.Execute();
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(run.TakeFault().message(), "");
      std::vector<double> want;
      for (size_t i = 0; i < mine.size(); ++i)
        want.push_back((static_cast<float>(numbers[0][i]) + static_cast<float>(numbers[1][i])) +
                       static_cast<float>(numbers[2][i]));
      std::vector<double> got = run.Read("y");
      const std::vector<double> second = run.Read("t");
      got.insert(got.end(), second.begin(), second.end());
      EXPECT_EQ(got, want);
      std::vector<double> own = zero;
      for (uint32_t done = 1; done <= call; ++done) Publish(own, kFirst, mine, done);
      EXPECT_EQ(run.Read(kBuffers[rank]), own);
    }
    if (rank != 0) continue;
    const std::vector<double> y = run.ByInterpreter("y"), now = run.Read("y");
    for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], now[i], 1e-6);
  }
}

TEST(Peers, OneBufferIsAGroupOfOne) {
  const std::vector<double> x = Numbers(5, 3);
  RankRun run(R"(graph g {
    tensor %x uid=1 f32 [5]
    tensor %p uid=2 f32 [20]
    tensor %y uid=3 f32 [5]
    %y = peer_reduce(%x, _, %p) compute=f32
  })",
              {{0, x}, {1, std::vector<double>(20, 7)}}, {}, {});
  ASSERT_TRUE(run.Execute().ok());
  EXPECT_EQ(run.Read("y"), x);
  EXPECT_EQ(run.Read("p"), std::vector<double>(20, 7)) << "nobody touches it";
}

TEST(Peers, WhoIsMissingIsSaid) {
  const std::vector<double> zero(180, 0), x = Numbers(37, 1), s = Numbers(6, 2);
  TensorValues inputs = {{0, x}, {1, s}, {2, zero}, {3, zero}, {4, zero}};
  std::vector<double> both = x;
  both.insert(both.end(), s.begin(), s.end());
  Publish(inputs[3], 2, both, 1);
  RankRun run(kReduce, inputs, {"p0"}, {"p1", "p2"});
  ASSERT_TRUE(run.Execute().ok());
  for (const double v : run.Read("y")) EXPECT_TRUE(std::isnan(v));
  for (const double v : run.Read("t")) EXPECT_TRUE(std::isnan(v));
  EXPECT_EQ(run.TakeFault().message(),
            "the sums of rank 2 did not come within 1 ms (KILN_PEER_TIMEOUT_MS); buffers of peers "
            "are zero before their first use");
  EXPECT_TRUE(run.TakeFault().ok()) << "it is said once";
  // The ranks go on where they meet again.
  for (const char* name : {"p1", "p2"}) {
    std::vector<double> buffer = zero;
    Publish(buffer, 2, both, 2);
    run.Write(name, buffer);
  }
  ASSERT_TRUE(run.Execute().ok());
  EXPECT_TRUE(run.TakeFault().ok());
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(run.Read("y")[i],
              (static_cast<float>(x[i]) + static_cast<float>(x[i])) + static_cast<float>(x[i]));
}

TEST(Peers, ExactlyOneBufferIsThisRanks) {
  const std::vector<double> zero(180, 0);
  const TensorValues inputs = {
      {0, Numbers(37, 1)}, {1, Numbers(6, 2)}, {2, zero}, {3, zero}, {4, zero}};
  RankRun two(kReduce, inputs, {"p0", "p2"}, {"p1"});
  EXPECT_NE(two.Execute().message().find("the peers' buffers 0 and 2 both lie on"),
            std::string::npos);
  RankRun none(kReduce, inputs, {}, {"p0", "p1"});
  EXPECT_NE(none.Execute().message().find("none of the 3 peers' buffers lies on"),
            std::string::npos);
  EXPECT_EQ(none.Read("p0"), zero) << "nothing was launched";
}

// ---- batch norm

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-5 * std::max(1.0, std::abs(want[i]))) << what << " at " << i;
}

// Rank 0 by the test or by the GPU, and the other one by the other: means that differ by rank.
TEST(PeersNorm, ForwardIsThatOfTheWholeBatch) {
  for (const size_t rank : {0, 1}) {
    SCOPED_TRACE(rank);
    std::vector<std::vector<double>> x = {Numbers(90, 5), Numbers(90, 6)};
    for (double& v : x[1]) v = static_cast<float>(v * 2 + 40);
    const std::vector<double> scale = Numbers(5, 7), bias = Numbers(5, 8), rm = Numbers(5, 9),
                              rv = {1, 2, 3, 4, 5};
    const oracle::WholeNorm whole =
        oracle::ForwardOf(kNormExtents, x, scale, bias,
                          {.epsilon = 0.001, .factor = 0.25, .mean = rm, .variance = rv});
    std::vector<double> peer(40, 0);
    Publish(peer, 0, whole.of_rank[1 - rank].mean, 1);
    Publish(peer, 5, whole.of_rank[1 - rank].from_all, 1);
    const std::vector<double> zero(40, 0);
    const TensorValues inputs = {{0, x[rank]},
                                 {1, scale},
                                 {2, bias},
                                 {5, rm},
                                 {6, rv},
                                 {7, rank == 0 ? zero : peer},
                                 {8, rank == 0 ? peer : zero}};
    RankRun run(kNormForward, inputs, {rank == 0 ? "p0" : "p1"}, {rank == 0 ? "p1" : "p0"});
    const Status status = run.Execute();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(run.TakeFault().message(), "");
    ExpectNear(run.Read("y"), whole.y[rank], "y");
    ExpectNear(run.Read("m"), whole.mean, "mean");
    ExpectNear(run.Read("i"), whole.inv, "inv_variance");
    ExpectNear(run.Read("nm"), whole.next_mean, "next_mean");
    ExpectNear(run.Read("nv"), whole.next_variance, "next_var");
    if (rank == 0) ExpectNear(run.ByInterpreter("y"), whole.y[0], "the interpreter's y");
    if (rank == 0) ExpectNear(run.ByInterpreter("nv"), whole.next_variance, "its next_var");
  }
}

TEST(PeersNorm, BackwardIsThatOfTheWholeBatch) {
  for (const size_t rank : {0, 1}) {
    SCOPED_TRACE(rank);
    const std::vector<std::vector<double>> x = {Numbers(90, 15), Numbers(90, 16)},
                                           dy = {Numbers(90, 17), Numbers(90, 18)};
    const std::vector<double> scale = Numbers(5, 19);
    const oracle::WholeNorm whole =
        oracle::ForwardOf(kNormExtents, x, scale, scale, {.epsilon = 0.1});
    const oracle::WholeGradient grad = oracle::BackwardOf(kNormExtents, x, dy, scale, whole);
    std::vector<double> peer(40, 0);
    Publish(peer, 0, grad.dbias_of_rank[1 - rank], 1);
    Publish(peer, 5, grad.dscale_of_rank[1 - rank], 1);
    const std::vector<double> zero(40, 0);
    const TensorValues inputs = {{0, x[rank]},
                                 {1, dy[rank]},
                                 {2, whole.mean},
                                 {3, whole.inv},
                                 {4, scale},
                                 {5, rank == 0 ? zero : peer},
                                 {6, rank == 0 ? peer : zero}};
    RankRun run(kNormBackward, inputs, {rank == 0 ? "p0" : "p1"}, {rank == 0 ? "p1" : "p0"});
    const Status status = run.Execute();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(run.TakeFault().message(), "");
    ExpectNear(run.Read("dx"), grad.dx[rank], "dx");
    ExpectNear(run.Read("dscale"), grad.dscale, "dscale");
    ExpectNear(run.Read("dbias"), grad.dbias, "dbias");
    if (rank == 0) ExpectNear(run.ByInterpreter("dx"), grad.dx[0], "the interpreter's dx");
  }
}

TEST(PeersNorm, OfAMissingPeerIsNaN) {
  const std::vector<double> zero(40, 0), five(5, 1);
  RankRun run(
      kNormForward,
      {{0, Numbers(90, 5)}, {1, five}, {2, five}, {5, five}, {6, five}, {7, zero}, {8, zero}},
      {"p1"}, {"p0"});
  ASSERT_TRUE(run.Execute().ok());
  for (const char* name : {"y", "m", "i", "nm", "nv"})
    for (const double v : run.Read(name)) EXPECT_TRUE(std::isnan(v)) << name;
  EXPECT_NE(run.TakeFault().message().find("the sums of rank 0 did not come"), std::string::npos);
}

// ---- signals

TEST(Signals, AFlagIsSetBehindY) {
  RankRun run(R"(graph g {
    tensor %x uid=1 f16 [2,3]
    tensor %t f16 [2,3] virtual
    tensor %flag uid=2 i64 [1]
    tensor %y uid=3 f16 [2,3] strides=[1,2]
    %t = pointwise(%x) compute=f32 mode=neg
    %flag, %y = signal_set(%t) compute=f32 value=5000000007
  })",
              {{0, {1, 2, 3, 4, 5, 6}}}, {}, {});
  ASSERT_TRUE(run.Execute().ok());
  EXPECT_EQ(run.Read("flag"), std::vector<double>{5000000007});
  EXPECT_EQ(run.Read("y"), (std::vector<double>{-1, -2, -3, -4, -5, -6}));
}

TEST(Signals, AWaitEndsWithTheFlagOrTheLimit) {
  constexpr const char* kWait = R"(graph g {
    tensor %x uid=1 bf16 [2,3]
    tensor %n uid=2 i32 [5]
    tensor %flag uid=3 i32 [1]
    tensor %t bf16 [2,3] virtual
    tensor %y uid=4 f32 [2,3]
    tensor %m uid=5 i32 [5]
    %t = signal_wait(%x, %flag) compute=f32 value=-3
    %y = pointwise(%t) compute=f32 mode=neg
    %m = signal_wait(%n, %flag) compute=f32 value=-3
  })";
  const TensorValues inputs = {{0, {1, 2, 3, 4, 5, 6}}, {1, {1, 2, 3, 4, 5}}, {2, {7}}};
  RankRun run(kWait, inputs, {}, {});
  ASSERT_TRUE(run.Execute().ok());
  for (const double v : run.Read("y")) EXPECT_TRUE(std::isnan(v));
  EXPECT_EQ(run.Read("m"), std::vector<double>(5, 0));
  EXPECT_EQ(run.TakeFault().message(),
            "a signal's flag did not get its value within 1 ms (KILN_PEER_TIMEOUT_MS)");
  run.Write("flag", {-3});
  ASSERT_TRUE(run.Execute().ok());
  EXPECT_TRUE(run.TakeFault().ok());
  EXPECT_EQ(run.Read("y"), (std::vector<double>{-1, -2, -3, -4, -5, -6}));
  EXPECT_EQ(run.Read("m"), (std::vector<double>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace kiln
