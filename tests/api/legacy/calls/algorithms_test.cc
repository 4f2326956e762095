// Get says of the algorithms of a convolution what calls then need: over random geometries, on a
// driver that runs nothing (an H200's plans) and on the CPU device. An algorithm's size is enough
// whatever the factors and the pointers' alignment are, and a byte less is refused; one algorithm
// always needs none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

#include "ir/base/env.h"
#include "tests/api/legacy/legacy_convolution.h"

namespace kiln::api {
namespace {

struct Types {
  cudnnDataType_t type, y_type, compute;
  int multiple = 1;  // of channels and filters
};
constexpr Types kTypes[] = {
    {CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_HALF},
    {CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT},
    {CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE, CUDNN_DATA_DOUBLE},
    {CUDNN_DATA_INT8, CUDNN_DATA_INT8, CUDNN_DATA_INT32, 4},
    {CUDNN_DATA_INT8, CUDNN_DATA_FLOAT, CUDNN_DATA_INT32, 4},
};

std::string Text(const Geometry& g) {
  std::string text = "direction " + std::to_string(static_cast<int>(g.direction)) + " type " +
                     std::to_string(g.type) + " compute " + std::to_string(g.compute) + " format " +
                     std::to_string(g.format) + " x";
  for (const int extent : g.x) text += " " + std::to_string(extent);
  text += " w";
  for (const int extent : g.w) text += " " + std::to_string(extent);
  return text + " padding " + std::to_string(g.padding) + " stride " + std::to_string(g.stride) +
         " dilation " + std::to_string(g.dilation) + " groups " + std::to_string(g.groups) +
         " math " + std::to_string(g.math);
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int Below(int n) { return static_cast<int>(engine_() % static_cast<unsigned>(n)); }
  int Of(std::initializer_list<int> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }

 private:
  std::mt19937 engine_;
};

// Small ones, and ones for which splitting k or other layouts are worth a workspace.
Geometry RandomGeometry(Random& random, bool large) {
  Geometry g;
  const Types& types = kTypes[random.Below(std::size(kTypes))];
  g.type = types.type, g.y_type = types.y_type, g.compute = types.compute;
  g.direction =
      types.compute == CUDNN_DATA_INT32 ? Direction::kForward : kDirections[random.Below(3)];
  g.format = types.compute == CUDNN_DATA_INT32 || random.Below(2) == 0 ? CUDNN_TENSOR_NHWC
                                                                       : CUDNN_TENSOR_NCHW;
  const int volume = g.format == CUDNN_TENSOR_NCHW && random.Below(5) == 0;
  g.groups = random.Of({1, 1, 1, 2, 4});
  const int scale = (large ? random.Of({1, 8, 32, 128}) : random.Of({1, 2, 3})) * types.multiple;
  const int channels = scale * (1 + random.Below(3)), taps = random.Of({1, 1, 3, 3, 5});
  g.stride = 1 + random.Below(2), g.dilation = 1 + random.Below(2), g.padding = random.Below(3);
  g.x = {large ? random.Of({1, 8, 32}) : 1 + random.Below(3), channels * g.groups};
  g.w = {scale * g.groups * (1 + random.Below(2)), channels};
  for (int d = 0; d < 2 + volume; ++d) {
    g.w.push_back(d == 2 ? 1 : taps);
    g.x.push_back((taps - 1) * g.dilation + 1 + (large ? random.Below(30) : random.Below(6)));
  }
  g.math = static_cast<cudnnMathType_t>(random.Below(4));
  return g;
}

class Algorithms : public testing::Test {
 protected:
  static bool OnCpu() { return std::string(std::getenv("KILN_DEVICE")) == "cpu"; }
  static void SetUpTestSuite() {
    ::setenv("KILN_CACHE_DIR", (std::string(std::getenv("TEST_TMPDIR")) + "/cache").c_str(), 1);
    ResetEnvForTest();
  }
  void SetUp() override {
    ASSERT_EQ(cudnnCreate(&handle_), kOk);
    // Larger than any operand of the CPU's; the driver that runs nothing reads none.
    memory_.resize(4 * kEach);
  }
  void TearDown() override { EXPECT_EQ(cudnnDestroy(handle_), kOk); }

  static constexpr size_t kEach = 8 << 20;
  void* Memory(size_t i, size_t offset = 0) {
    const auto base = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<void*>((base + 255) / 256 * 256 + i * kEach / 2 + offset);
  }
  cudnnStatus_t Run(const Convolution& conv, int algorithm, size_t bytes, float beta = 0,
                    size_t offset = 0) {
    return conv.Run(handle_, algorithm, Memory(0, offset), Memory(1, offset), Memory(2, offset),
                    bytes == 0 ? nullptr : Memory(3), bytes, beta);
  }
  // True if it needs a workspace.
  bool Check(const Convolution& conv, const Perf& perf) {
    size_t bytes = 1;
    EXPECT_EQ(conv.WorkspaceSize(handle_, perf.algorithm, &bytes), kOk);
    EXPECT_EQ(perf.memory, bytes);
    EXPECT_EQ(perf.math, conv.geometry.math);
    EXPECT_EQ(perf.determinism, CUDNN_DETERMINISTIC);
    EXPECT_EQ(Run(conv, perf.algorithm, bytes), kOk);
    EXPECT_EQ(Run(conv, perf.algorithm, bytes, 1), kOk);
    const size_t element = conv.geometry.type == CUDNN_DATA_DOUBLE ? 8 : 4;
    EXPECT_EQ(Run(conv, perf.algorithm, bytes, 0, element), kOk) << "pointers of less alignment";
    if (bytes == 0) return false;
    EXPECT_TRUE(IsBadParam(Run(conv, perf.algorithm, bytes - 1)));
    EXPECT_TRUE(IsBadParam(Run(conv, perf.algorithm, 0)));
    return true;
  }

  cudnnHandle_t handle_ = nullptr;

 private:
  std::vector<std::byte> memory_;
};

TEST_F(Algorithms, AreWhatGetSays) {
  Random random(7);
  int with_workspace = 0;
  const int problems = OnCpu() ? 25 : 80;
  for (int i = 0; i < problems; ++i) {
    const Geometry geometry = RandomGeometry(random, !OnCpu() && i % 2 == 0);
    SCOPED_TRACE(std::to_string(i) + ": " + Text(geometry));
    const Convolution conv(geometry);
    int working = 0, without = 0;
    for (const Perf& perf : conv.Get(handle_)) {
      EXPECT_EQ(perf.time, -1) << "nothing was measured";
      if (perf.status != kOk) {
        EXPECT_TRUE(IsNotSupported(Run(conv, perf.algorithm, kEach / 2))) << perf.algorithm;
        continue;
      }
      ++working;
      without += perf.memory == 0;
      with_workspace += Check(conv, perf);
    }
    EXPECT_GE(working, 2);
    EXPECT_GE(without, 1) << "no algorithm without a workspace";
    if (HasFailure()) return;
  }
  EXPECT_GE(with_workspace, OnCpu() ? 0 : problems / 20) << "sizes that mean nothing";
}

}  // namespace
}  // namespace kiln::api
