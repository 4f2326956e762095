// The CPU device: loading through both caches, launching from many threads, and its mistakes'
// sentences.
#include "runtime/cpu/cpu_device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <thread>
#include <vector>

namespace kiln::runtime {
namespace {

std::unique_ptr<CpuDevice> MakeDevice(int threads, const std::string& cache_root = "") {
  auto device = CpuDevice::Create({.threads = threads, .cache = {.root = cache_root}, .jit = {}});
  EXPECT_TRUE(device.ok()) << device.status().message();
  return std::move(*device);
}

KernelSource AddSource(const std::string& name = "add") {
  const std::string text = fmt::format(
      R"(kernel {}(a: ptr<f32> const, b: ptr<f32> const, y: ptr<f32>, n: i32) threads 1 {{
  for bx in 0..div(add(n, 4095), 4096) block_x {{
    for j in 0..min(4096, sub(n, mul(bx, 4096))) vector {{
      let i = add(mul(bx, 4096), j) : i32
      store y[i] = add(load a[i], load b[i])
    }}
  }}
}}
)",
      name);
  return {.kind = SourceKind::kTileIr, .entry = name, .text = text, .arch = "native"};
}

struct AddProblem {
  explicit AddProblem(int32_t count) : n(count), a(count), b(count), y(count, -1.0f) {
    for (int32_t i = 0; i < n; ++i)
      a[i] = static_cast<float>(i % 1000), b[i] = static_cast<float>(i / 1000);
  }
  Status Run(CpuDevice& device, const LoadedKernel& kernel) {
    float *pa = a.data(), *pb = b.data(), *py = y.data();
    void* args[] = {&pa, &pb, &py, &n};
    const LaunchShape shape{
        .grid = {uint32_t(n + 4095) / 4096, 1, 1}, .block = {1, 1, 1}, .dynamic_shared_bytes = 0};
    return device.Launch(kernel, shape, args, nullptr);
  }
  bool Right() const {
    for (int32_t i = 0; i < n; ++i) {
      if (y[i] != a[i] + b[i]) return false;
    }
    return true;
  }
  int32_t n;
  std::vector<float> a, b, y;
};

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kiln_cpu_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(CpuDevice, DescribesItself) {
  const auto device = MakeDevice(3);
  EXPECT_EQ(device->target().kind, TargetKind::kCpu);
  EXPECT_EQ(device->target().arch, "native");
  EXPECT_EQ(device->target().multiprocessors, 3);
  EXPECT_FALSE(device->target().name.empty());
}

TEST(CpuDevice, LaunchesOfEverySizeAndThreadCount) {
  for (const int threads : {1, 2, 4}) {
    const auto device = MakeDevice(threads);
    const auto kernel = device->Load(AddSource());
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    for (const int32_t n : {0, 1, 4095, 4096, 4097, 100000, 3000000}) {
      AddProblem problem(n);
      ASSERT_TRUE(problem.Run(*device, **kernel).ok());
      EXPECT_TRUE(problem.Right()) << n << " elements, " << threads << " threads";
    }
  }
}

TEST(CpuDevice, ManyThreadsLoadOnceAndLaunchTogether) {
  const auto device = MakeDevice(2);
  std::vector<std::thread> clients;
  std::vector<const LoadedKernel*> seen(8);
  std::vector<std::shared_ptr<LoadedKernel>> kernels(8);
  std::atomic<int> failures{0};
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&, t] {
      auto kernel = device->Load(AddSource());
      if (!kernel.ok()) return void(failures.fetch_add(1));
      kernels[t] = *kernel;
      for (int round = 0; round < 20; ++round) {
        AddProblem problem(20000 + 1000 * t + round);
        if (!problem.Run(*device, **kernel).ok() || !problem.Right()) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(device->compiles(), 1);
  for (const auto& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
}

TEST(CpuDevice, AnotherProcessFindsTheObjectOnDisk) {
  const TemporaryFolder folder;
  for (const int64_t expected : {1, 0}) {
    const auto device = MakeDevice(2, folder.path());
    const auto kernel = device->Load(AddSource());
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    EXPECT_EQ(device->compiles(), expected);
    AddProblem problem(10000);
    ASSERT_TRUE(problem.Run(*device, **kernel).ok());
    EXPECT_TRUE(problem.Right());
  }
}

TEST(CpuDevice, KernelsOutliveTheirDeviceAndReloadAfterRelease) {
  auto device = MakeDevice(1);
  std::shared_ptr<LoadedKernel> kernel = *device->Load(AddSource());
  kernel.reset();
  auto again = device->Load(AddSource());
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(device->compiles(), 1) << "the object is still in memory";
  AddProblem problem(5000);
  ASSERT_TRUE(problem.Run(*device, **again).ok());
  EXPECT_TRUE(problem.Right());
  device.reset();
  // Freed after the device: the code keeps what it needs.
}

TEST(CpuDevice, TwoKernelsOfOneNameCoexist) {
  const auto device = MakeDevice(1);
  KernelSource other = AddSource();
  other.text.replace(other.text.find("add(load a[i]"), 3, "mul");
  const auto add = device->Load(AddSource()), mul = device->Load(other);
  ASSERT_TRUE(add.ok() && mul.ok());
  AddProblem sum(100), product(100);
  ASSERT_TRUE(sum.Run(*device, **add).ok() && product.Run(*device, **mul).ok());
  EXPECT_TRUE(sum.Right());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(product.y[i], product.a[i] * product.b[i]);
}

TEST(CpuDevice, MistakesAreSentences) {
  const auto device = MakeDevice(1);
  KernelSource cuda{
      .kind = SourceKind::kCuda, .entry = "k", .text = "__global__ void k() {}", .arch = "sm_90a"};
  EXPECT_EQ(device->Load(cuda).status().code(), Code::kNotSupported);

  KernelSource misnamed = AddSource();
  misnamed.entry = "subtract";
  EXPECT_NE(device->Load(misnamed).status().message().find("subtract"), std::string::npos);

  KernelSource broken = AddSource();
  broken.text += "}";
  const auto failure = device->Load(broken);
  ASSERT_FALSE(failure.ok());
  EXPECT_EQ(device->compiles(), 0);

  KernelSource undefined = AddSource();
  undefined.text.replace(undefined.text.find("load b[i]"), 9, "load c[i]");
  EXPECT_NE(device->Load(undefined).status().message().find("no buffer is named c"),
            std::string::npos)
      << device->Load(undefined).status().message();
  EXPECT_FALSE(device->Allocate(-1).ok());
#ifndef __SANITIZE_ADDRESS__  // which ends the process instead of returning null
  EXPECT_EQ(device->Allocate(int64_t{1} << 60).status().code(), Code::kDeviceAllocationFailed);
#endif
}

TEST(CpuDevice, MemoryIsAlignedAndCopies) {
  const auto device = MakeDevice(1);
  for (const int64_t bytes : {0, 1, 255, 256, 100000}) {
    const auto memory = device->Allocate(bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 256, 0u);
    std::vector<unsigned char> in(bytes, 0x5a), out(bytes);
    ASSERT_TRUE(device->CopyIn(*memory, in.data(), bytes).ok());
    ASSERT_TRUE(device->CopyOut(out.data(), *memory, bytes).ok());
    EXPECT_EQ(in, out);
    device->Free(*memory);
  }
}

TEST(CpuDevice, AddOf64MegabytesIsTimed) {
  const auto device = MakeDevice(0);
  const auto kernel = device->Load(AddSource());
  ASSERT_TRUE(kernel.ok());
  AddProblem problem(16 << 20);
  const auto seconds = device->Measure([&] { return problem.Run(*device, **kernel); }, 9, nullptr);
  ASSERT_TRUE(seconds.ok());
  EXPECT_TRUE(problem.Right());
  EXPECT_GT(*seconds, 0);
  fmt::print("add of two 64 MiB tensors on {} threads: {:.2f} ms, {:.1f} GB/s\n",
             device->target().multiprocessors, 1e3 * *seconds,
             3 * 4.0 * problem.n / *seconds / 1e9);

  AddProblem tiny(1000);
  const auto launch = device->Measure([&] { return tiny.Run(*device, **kernel); }, 999, nullptr);
  ASSERT_TRUE(launch.ok());
  fmt::print("launch of 1000 elements: {:.0f} ns\n", 1e9 * *launch);
}

}  // namespace
}  // namespace kiln::runtime
