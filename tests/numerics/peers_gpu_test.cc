// Batch norm over two GPUs of one process, forward and backward, against plain loops over the whole
// batch; calls one behind the other, and a peer that does not come. Without two GPUs that reach
// each other's memory it says so and checks nothing.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>

#include "cli/bindings.h"
#include "compiler/compile.h"
#include "runtime/cuda/cuda_compiler.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/executable.h"
#include "runtime/peers.h"
#include "tests/numerics/peers_graphs.h"

namespace kiln {
namespace {

using graph::Graph;
using graph::TensorId;
using graph::TensorValues;
using runtime::Device;

constexpr int kRanks = 2;

// Two GPUs, each of which may read the other's memory.
struct Pair {
  std::unique_ptr<Device> devices[kRanks];
};

// Why there are none: empty where there are.
std::string Open(Pair& pair) {
  const Result<const runtime::Driver*> opened = runtime::ProcessDriver();
  if (!opened.ok()) return opened.status().message();
  const runtime::Driver& driver = **opened;
  int count = 0;
  if (driver.DeviceGetCount(&count) != 0 || count < kRanks)
    return fmt::format("{} GPUs are here, two are needed", count);
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  using EnablePeerAccess = int (*)(runtime::CuContext, unsigned);
  const auto enable =
      library == nullptr
          ? nullptr
          : reinterpret_cast<EnablePeerAccess>(dlsym(library, "cuCtxEnablePeerAccess"));
  if (enable == nullptr) return "libcuda.so.1 has no cuCtxEnablePeerAccess";
  runtime::CuContext contexts[kRanks];
  for (int r = 0; r < kRanks; ++r) {
    runtime::CuDevice device = 0;
    if (driver.DeviceGet(&device, r) != 0 ||
        driver.DevicePrimaryCtxRetain(&contexts[r], device) != 0)
      return fmt::format("GPU {} gives no context", r);
  }
  for (int r = 0; r < kRanks; ++r) {
    driver.CtxPushCurrent(contexts[r]);
    const int result = enable(contexts[1 - r], 0);
    runtime::CuContext popped = nullptr;
    driver.CtxPopCurrent(&popped);
    constexpr int kAlreadyEnabled = 704;
    if (result != 0 && result != kAlreadyEnabled)
      return fmt::format("GPU {} does not reach the memory of GPU {} ({})", r, 1 - r, result);
    auto device = runtime::OpenCudaDevice(driver, r, runtime::ProcessCudaCompiler());
    if (!device.ok()) return device.status().message();
    pair.devices[r] = *std::move(device);
  }
  return "";
}

// One rank's plan with its memory; p0 and p1 are given.
class Rank {
 public:
  Rank(Device& device, const char* text, const TensorValues& inputs)
      : device_(device), graph_(*graph::Parse(text)) {
    auto plan = compiler::Compile(graph_, device.target(), {});
    CHECK(plan.ok(), "{}", plan.status().message());
    auto made = runtime::Executable::Create(device, std::move(plan->program));
    CHECK(made.ok(), "{}", made.status().message());
    executable_ = *std::move(made);
    auto bindings = cli::Bindings::Make(device, graph_, executable_->program(), inputs);
    CHECK(bindings.ok(), "{}", bindings.status().message());
    bindings_.emplace(*std::move(bindings));
    pointers_ = bindings_->pointers();
  }
  void*& PointerOf(const char* name) {
    const auto& tensors = executable_->program().tensors;
    const auto found = std::ranges::find(tensors, graph_[IdOf(name)].uid, &ProgramTensor::uid);
    CHECK(found != tensors.end(), "the program has no {}", name);
    return pointers_[static_cast<size_t>(found - tensors.begin())];
  }
  void Launch() {
    const Status status = executable_->Execute(pointers_, bindings_->workspace(), nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void Finish() { ASSERT_TRUE(device_.Synchronize(nullptr).ok()); }
  std::vector<double> Read(const char* name) {
    const auto values = bindings_->Read(device_, graph_[IdOf(name)]);
    CHECK(values.ok(), "{}", values.status().message());
    return *values;
  }
  int32_t TakeFault() { return device_.TakeFault(); }
  TensorId IdOf(std::string_view name) const {
    const auto found = std::ranges::find(graph_.tensors, name, &graph::Tensor::name);
    return static_cast<TensorId>(found - graph_.tensors.begin());
  }

 private:
  Device& device_;
  const Graph graph_;
  std::unique_ptr<runtime::Executable> executable_;
  std::optional<cli::Bindings> bindings_;
  std::vector<void*> pointers_;
};

std::vector<double> Numbers(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> numbers(count);
  for (double& v : numbers)
    v = static_cast<float>(std::uniform_real_distribution<double>(-3, 3)(random));
  return numbers;
}

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-5 * std::max(1.0, std::abs(want[i]))) << what << " at " << i;
}

// Each rank's buffer is its own, and the other's.
void Meet(Rank& first, Rank& second) {
  second.PointerOf("p0") = first.PointerOf("p0");
  first.PointerOf("p1") = second.PointerOf("p1");
}

class PeersGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string lacks = Open(pair_);
    has_pair_ = lacks.empty();
    if (!has_pair_) std::printf("nothing is checked: %s\n", lacks.c_str());
  }
  Pair pair_;
  bool has_pair_ = false;
};

TEST_F(PeersGpuTest, TwoGpusHaveTheNormOfTheWholeBatch) {
  if (!has_pair_) return;
  const std::vector<std::vector<double>> x = {Numbers(90, 5), Numbers(90, 6)},
                                         dy = {Numbers(90, 7), Numbers(90, 8)};
  const std::vector<double> scale = Numbers(5, 9), bias = Numbers(5, 10), zero(40, 0),
                            rm = Numbers(5, 11), rv = {1, 2, 3, 4, 5};
  const oracle::WholeNorm whole = oracle::ForwardOf(
      kNormExtents, x, scale, bias, {.epsilon = 0.001, .factor = 0.25, .mean = rm, .variance = rv});
  const oracle::WholeGradient gradient = oracle::BackwardOf(kNormExtents, x, dy, scale, whole);
  std::vector<std::unique_ptr<Rank>> forward, backward;
  for (size_t r = 0; r < kRanks; ++r) {
    Device& device = *pair_.devices[r];
    forward.push_back(std::make_unique<Rank>(
        device, kNormForward,
        TensorValues{{0, x[r]}, {1, scale}, {2, bias}, {5, rm}, {6, rv}, {7, zero}, {8, zero}}));
    backward.push_back(std::make_unique<Rank>(device, kNormBackward,
                                              TensorValues{{0, x[r]},
                                                           {1, dy[r]},
                                                           {2, whole.mean},
                                                           {3, whole.inv},
                                                           {4, scale},
                                                           {5, zero},
                                                           {6, zero}}));
  }
  Meet(*forward[0], *forward[1]);
  Meet(*backward[0], *backward[1]);
  for (int call = 0; call < 20; ++call) {
    SCOPED_TRACE(call);
    for (auto* const ranks : {&forward, &backward}) {
      for (const auto& rank : *ranks) rank->Launch();
      for (const auto& rank : *ranks) rank->Finish();
    }
    for (size_t r = 0; r < kRanks; ++r) {
      EXPECT_EQ(forward[r]->TakeFault(), 0);
      ExpectNear(forward[r]->Read("y"), whole.y[r], "y");
      ExpectNear(forward[r]->Read("nv"), whole.next_variance, "next_var");
      ExpectNear(backward[r]->Read("dx"), gradient.dx[r], "dx");
      ExpectNear(backward[r]->Read("dscale"), gradient.dscale, "dscale");
    }
    for (const char* name : {"m", "i", "nm", "nv"})
      EXPECT_EQ(forward[0]->Read(name), forward[1]->Read(name)) << name << " has other bits";
    for (const char* name : {"dscale", "dbias"})
      EXPECT_EQ(backward[0]->Read(name), backward[1]->Read(name)) << name << " has other bits";
  }
}

TEST_F(PeersGpuTest, AMissingPeerIsAFaultAndNoHang) {
  if (!has_pair_) return;
  const std::vector<double> one(5, 1), zero(40, 0);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (size_t r = 0; r < kRanks; ++r)
    ranks.push_back(std::make_unique<Rank>(
        *pair_.devices[r], kNormForward,
        TensorValues{
            {0, Numbers(90, 5)}, {1, one}, {2, one}, {5, one}, {6, one}, {7, zero}, {8, zero}}));
  Meet(*ranks[0], *ranks[1]);
  ranks[0]->Launch();
  ranks[0]->Finish();
  for (const double v : ranks[0]->Read("y")) EXPECT_TRUE(std::isnan(v));
  EXPECT_NE(runtime::StatusOfFault(ranks[0]->TakeFault()).message().find("the sums of rank 1"),
            std::string::npos);
}

}  // namespace
}  // namespace kiln
