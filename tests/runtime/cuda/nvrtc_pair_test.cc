// Many threads compile by two copies of NVRTC what one thread compiles by the first, to the bit.
#include "runtime/cuda/nvrtc_pair.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kiln::runtime {
namespace {

constexpr int kThreads = 8, kKernels = 24;

KernelSource Scale(int factor) {
  KernelSource source;
  source.entry = fmt::format("scale_by_{}", factor);
  source.text =
      fmt::format("extern \"C\" __global__ void {}(float* y) {{ y[threadIdx.x] *= {}.f; }}\n",
                  source.entry, factor);
  source.arch = "sm_90a";
  return source;
}

class NvrtcPairTest : public testing::Test {
 protected:
  void SetUp() override {
    auto nvrtc = ProcessNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
    nvrtc_ = *nvrtc;
  }

  // The cubins of all kernels, compiled by kThreads threads at once.
  static std::vector<std::string> CompileAll(NvrtcPair& pair) {
    std::vector<std::string> cubins(kKernels);
    std::atomic<int> next = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int k = next++; k < kKernels; k = next++) {
          auto result = pair.Compile(Scale(k), NvrtcOutput::kCubin);
          cubins[static_cast<size_t>(k)] = result.ok() ? result->bytes : result.status().message();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return cubins;
  }

  void ExpectRight(const std::vector<std::string>& cubins) {
    for (int k = 0; k < kKernels; ++k) {
      auto expected = nvrtc_->Compile(Scale(k), NvrtcOutput::kCubin);
      ASSERT_TRUE(expected.ok()) << expected.status().message();
      EXPECT_EQ(cubins[static_cast<size_t>(k)], expected->bytes) << "kernel " << k;
    }
  }

  const Nvrtc* nvrtc_ = nullptr;
};

TEST_F(NvrtcPairTest, OneThreadNeedsNoSecond) {
  NvrtcPair pair(*nvrtc_, 2);
  for (int k = 0; k < 8; ++k) EXPECT_TRUE(pair.Compile(Scale(k), NvrtcOutput::kCubin).ok());
  EXPECT_FALSE(pair.has_second());
}

TEST_F(NvrtcPairTest, ManyThreadsGetASecond) {
  NvrtcPair pair(*nvrtc_, 2);
  ExpectRight(CompileAll(pair));
  EXPECT_TRUE(pair.has_second());
}

TEST_F(NvrtcPairTest, OneCopyIsOne) {
  NvrtcPair pair(*nvrtc_, 1);
  ExpectRight(CompileAll(pair));
  EXPECT_FALSE(pair.has_second());
}

TEST_F(NvrtcPairTest, ACopySaysWhatIsWrongAsTheFirstDoes) {
  auto copy = nvrtc_->OpenCopy();
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ((*copy)->SupportedArchs(), nvrtc_->SupportedArchs());
  KernelSource source = Scale(2);
  source.text = "extern \"C\" __global__ void scale_by_2() {\n  undeclared = 1;\n}\n";
  auto by_first = nvrtc_->Compile(source, NvrtcOutput::kCubin);
  auto by_copy = (*copy)->Compile(source, NvrtcOutput::kCubin);
  ASSERT_FALSE(by_first.ok() || by_copy.ok());
  EXPECT_EQ(by_copy.status().message(), by_first.status().message());
}

}  // namespace
}  // namespace kiln::runtime
