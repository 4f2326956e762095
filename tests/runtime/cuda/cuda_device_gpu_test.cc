// The CUDA device on a GPU: compiles, loads, launches and checks a saxpy, under the conditions that
// a client brings (its own context, its own stream, a stream that is being captured), and prints
// what things cost. Needs a GPU, a driver and NVRTC; no toolkit, so streams and graphs are called
// through the driver library.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/executable.h"
#include "tests/runtime/cache/temporary_folder.h"

namespace kiln::runtime {
namespace {

constexpr int kCount = 1 << 20;
constexpr int kBlock = 256;
constexpr int64_t kBytes = kCount * int64_t{4};

KernelSource SaxpySource() {
  KernelSource source;
  source.entry = "kiln_saxpy";
  source.text = R"(
extern "C" __global__ void kiln_saxpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
)";
  source.arch = "native";
  return source;
}

// y += a x, with `a` a host scalar.
Program SaxpyProgram() {
  Program program;
  program.tensors.resize(3);
  for (int i = 0; i < 3; ++i) program.tensors[static_cast<size_t>(i)].uid = i;
  program.tensors[2].by_value = true;
  program.kernels = {SaxpySource()};
  Launch launch;
  launch.grid = {kCount / kBlock, 1, 1};
  launch.block = {kBlock, 1, 1};
  launch.args.resize(4);
  launch.args[0].kind = LaunchArg::Kind::kPointer;
  launch.args[0].buffer.index = 1;
  launch.args[1].kind = LaunchArg::Kind::kPointer;
  launch.args[1].buffer.index = 0;
  launch.args[2].kind = LaunchArg::Kind::kByValue;
  launch.args[2].buffer.index = 2;
  launch.args[3].size = 4;
  launch.args[3].bits = kCount;
  program.launches = {launch};
  return program;
}

// The functions of the driver that only clients call.
struct ClientDriver {
  int (*StreamCreate)(CuStream*, unsigned);
  int (*StreamDestroy)(CuStream);
  int (*StreamBeginCapture)(CuStream, int);
  int (*StreamEndCapture)(CuStream, void**);
  int (*GraphInstantiate)(void**, void*, unsigned long long);
  int (*GraphLaunch)(void*, CuStream);
  int (*GraphExecDestroy)(void*);
  int (*GraphDestroy)(void*);
  int (*CtxSetCurrent)(CuContext);

  explicit ClientDriver(const std::string& path) {
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    auto bind = [&](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, symbol));
    };
    bind(StreamCreate, "cuStreamCreate");
    bind(StreamDestroy, "cuStreamDestroy_v2");
    bind(StreamBeginCapture, "cuStreamBeginCapture_v2");
    bind(StreamEndCapture, "cuStreamEndCapture");
    bind(GraphInstantiate, "cuGraphInstantiateWithFlags");
    bind(GraphLaunch, "cuGraphLaunch");
    bind(GraphExecDestroy, "cuGraphExecDestroy");
    bind(GraphDestroy, "cuGraphDestroy");
    bind(CtxSetCurrent, "cuCtxSetCurrent");
  }
};

double Milliseconds(const std::function<void()>& work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

class CudaDeviceGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = ProcessDriver();
    ASSERT_TRUE(driver.ok()) << driver.status().message();
    driver_ = *driver;
    auto nvrtc = ProcessNvrtc();
    ASSERT_TRUE(nvrtc.ok()) << nvrtc.status().message();
    device_ = *OpenCudaDevice(*driver_, 0, compiler_);
    client_ = std::make_unique<ClientDriver>(driver_->path);
    x_ = *device_->Allocate(kBytes);
    y_ = *device_->Allocate(kBytes);
    std::vector<float> x(kCount), y(kCount);
    for (int i = 0; i < kCount; ++i) {
      x[static_cast<size_t>(i)] = static_cast<float>(i % 1000);
      y[static_cast<size_t>(i)] = static_cast<float>(i % 77);
    }
    ASSERT_TRUE(device_->CopyIn(x_, x.data(), kBytes).ok());
    ASSERT_TRUE(device_->CopyIn(y_, y.data(), kBytes).ok());
    // Streams and graphs of the client need a current context.
    ASSERT_EQ(driver_->DevicePrimaryCtxRetain(&primary_, 0), kCuSuccess);
  }
  void TearDown() override {
    if (device_ == nullptr) return;
    device_->Free(x_);
    device_->Free(y_);
    if (client_ != nullptr) client_->CtxSetCurrent(nullptr);
  }

  // y is y0 + `times` * a * x, exactly: all values are small integers.
  void ExpectAdded(int times) {
    std::vector<float> y(kCount);
    ASSERT_TRUE(device_->Synchronize(nullptr).ok());
    ASSERT_TRUE(device_->CopyOut(y.data(), y_, kBytes).ok());
    for (int i = 0; i < kCount; ++i) {
      float expected = static_cast<float>(i % 77) +
                       static_cast<float>(times) * a_ * static_cast<float>(i % 1000);
      ASSERT_EQ(y[static_cast<size_t>(i)], expected) << "element " << i;
    }
  }

  TemporaryFolder folder_;
  KernelCache cache_{{.root = folder_.path()}};
  CudaCompiler compiler_{cache_};
  const Driver* driver_ = nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ClientDriver> client_;
  CuContext primary_ = nullptr;
  void* x_ = nullptr;
  void* y_ = nullptr;
  float a_ = 2.0f;
};

TEST_F(CudaDeviceGpuTest, SaxpyIsRightWithoutACurrentContext) {
  auto executable = Executable::Create(*device_, SaxpyProgram());
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  void* pointers[] = {x_, y_, &a_};
  Status status = (*executable)->Execute(pointers, nullptr, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectAdded(1);
  fmt::print("{} ({}), {} SMs\n", device_->target().name, device_->target().arch,
             device_->target().multiprocessors);
}

TEST_F(CudaDeviceGpuTest, RunsOnAnotherThreadThanItWasLoadedOn) {
  auto executable = *Executable::Create(*device_, SaxpyProgram());
  void* pointers[] = {x_, y_, &a_};
  Status status;
  std::jthread([&] { status = executable->Execute(pointers, nullptr, nullptr); }).join();
  ASSERT_TRUE(status.ok()) << status.message();
  ExpectAdded(1);
}

TEST_F(CudaDeviceGpuTest, ExecutesAndLoadsInsideAStreamCapture) {
  ASSERT_EQ(client_->CtxSetCurrent(primary_), 0);
  auto executable = *Executable::Create(*device_, SaxpyProgram());
  CuStream stream = nullptr;
  ASSERT_EQ(client_->StreamCreate(&stream, 1), 0);
  ASSERT_EQ(client_->StreamBeginCapture(stream, /*global=*/0), 0);
  void* pointers[] = {x_, y_, &a_};
  Status executed = executable->Execute(pointers, nullptr, stream);
  int capturing = 0;
  driver_->StreamIsCapturing(stream, &capturing);
  KernelSource late = SaxpySource();
  late.text += "// loaded while a stream is captured\n";
  auto loaded = device_->Load(late);
  void* graph = nullptr;
  ASSERT_EQ(client_->StreamEndCapture(stream, &graph), 0) << "the capture was invalidated";
  ASSERT_TRUE(executed.ok()) << executed.message();
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(capturing, 1);
  ExpectAdded(0);  // recorded, not run

  executable.reset();  // a captured kernel outlives its plan
  void* instance = nullptr;
  ASSERT_EQ(client_->GraphInstantiate(&instance, graph, 0), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(client_->GraphLaunch(instance, stream), 0);
  ASSERT_TRUE(device_->Synchronize(stream).ok());
  ExpectAdded(3);
  client_->GraphExecDestroy(instance);
  client_->GraphDestroy(graph);
  client_->StreamDestroy(stream);
}

TEST_F(CudaDeviceGpuTest, LargeDynamicSharedMemoryNeedsNoFurtherCall) {
  KernelSource source = SaxpySource();
  source.entry = "kiln_shared";
  source.text = R"(
extern __shared__ float buffer[];
extern "C" __global__ void kiln_shared(float* y, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) buffer[i] = i;
  __syncthreads();
  if (threadIdx.x == 0) y[0] = buffer[n - 1];
}
)";
  auto kernel = device_->Load(source);
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  auto bytes = static_cast<uint32_t>(device_->target().shared_bytes_per_block);
  int n = static_cast<int>(bytes / 4);
  void* args[] = {&y_, &n};
  Status status = device_->Launch(
      **kernel, {.grid = {1, 1, 1}, .block = {256, 1, 1}, .dynamic_shared_bytes = bytes}, args,
      nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(device_->Synchronize(nullptr).ok());
  float last = 0;
  ASSERT_TRUE(device_->CopyOut(&last, y_, 4).ok());
  EXPECT_EQ(last, static_cast<float>(n - 1));
  status = device_->Launch(
      **kernel, {.grid = {1, 1, 1}, .block = {256, 1, 1}, .dynamic_shared_bytes = bytes + 4}, args,
      nullptr);
  EXPECT_EQ(status.code(), Code::kExecutionFailed);
  EXPECT_NE(status.message().find("kiln_shared"), std::string::npos);
}

TEST_F(CudaDeviceGpuTest, MeasuresBandwidthWithinReason) {
  auto executable = *Executable::Create(*device_, SaxpyProgram());
  void* pointers[] = {x_, y_, &a_};
  auto seconds = device_->Measure([&] { return executable->Execute(pointers, nullptr, nullptr); },
                                  20, nullptr);
  ASSERT_TRUE(seconds.ok()) << seconds.status().message();
  double gigabytes = 3.0 * kBytes * 1e-9 / *seconds;
  fmt::print("saxpy of {} elements: {:.2f} us, {:.0f} GB/s\n", kCount, *seconds * 1e6, gigabytes);
  EXPECT_GT(*seconds, 1e-7);
  EXPECT_LT(*seconds, 1e-2);
}

// From an empty cache, then from disk by a new device and cache, which is what the next process
// does.
TEST_F(CudaDeviceGpuTest, TimesOfLoading) {
  double first = Milliseconds([&] { ASSERT_TRUE(device_->Load(SaxpySource()).ok()); });
  KernelCache cache({.root = folder_.path()});
  CudaCompiler compiler(cache);
  auto device = *OpenCudaDevice(*driver_, 0, compiler);
  double from_disk = Milliseconds([&] { ASSERT_TRUE(device->Load(SaxpySource()).ok()); });
  double loaded = Milliseconds([&] { ASSERT_TRUE(device->Load(SaxpySource()).ok()); });
  fmt::print(
      "load: first {:.2f} ms (compile and module), from disk {:.3f} ms, loaded already {:.4f} ms\n",
      first, from_disk, loaded);
  EXPECT_LT(from_disk, first);
  EXPECT_LT(loaded, from_disk);
}

TEST_F(CudaDeviceGpuTest, HostTimeOfALaunch) {
  auto executable = *Executable::Create(*device_, SaxpyProgram());
  void* pointers[] = {x_, y_, &a_};
  auto launch = [&](int count) {
    return Milliseconds([&] {
      for (int i = 0; i < count; ++i) {
        if (!executable->Execute(pointers, nullptr, nullptr).ok()) FAIL();
      }
    });
  };
  constexpr int kBatch =
      200;  // below the depth of the launch queue, so that the host never waits for it
  for (bool has_context : {false, true}) {
    ASSERT_EQ(client_->CtxSetCurrent(has_context ? primary_ : nullptr), 0);
    double best_us = 1e9;
    for (int round = 0; round < 50; ++round) {
      best_us = std::min(best_us, launch(kBatch) * 1e3 / kBatch);
      ASSERT_TRUE(device_->Synchronize(nullptr).ok());
    }
    fmt::print("host time of a launch {}: {:.2f} us\n",
               has_context ? "in the caller's context" : "without a context", best_us);
    EXPECT_LT(best_us, 50);
  }
}

}  // namespace
}  // namespace kiln::runtime
