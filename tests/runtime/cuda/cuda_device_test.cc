// The CUDA device over a driver of the test's own: a table of functions that records what was
// called. So the order of calls, the contexts and the sentences are tested on every machine; the
// numbers are tested on a GPU by cuda_device_gpu_test.cc.
#include "runtime/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "ir/base/env.h"
#include "runtime/cuda/cuda_kernel.h"
#include "runtime/cuda/nvrtc.h"
#include "tests/support/cuda_standin/h200.h"

namespace kiln::runtime {
namespace {

// The state behind the fake driver; one, since functions of the table carry no context.
struct FakeGpu {
  std::vector<std::string> calls;
  CuContext current = nullptr;  // of the (one) thread
  std::vector<CuContext> pushed;
  CuContext context_at_launch = nullptr;
  CuResult load_result = kCuSuccess, launch_result = kCuSuccess;
  int max_dynamic_shared = 0;
  unsigned overlapping_grid = 0;
  int modules = 0;
  int ids_of_none = 0;  // that were asked for without a context
  // Contexts that live, by address; a module is the id of its context, and so is its function.
  std::map<CuContext, unsigned long long> ids;
  std::map<CuStream, CuContext> streams;
  unsigned long long last_id = 0;
  std::map<int, int> attributes;     // in place of an H200's
  std::set<int> unknown_attributes;  // that the driver refuses to tell

  int Count(const std::string& call) const {
    return static_cast<int>(std::count(calls.begin(), calls.end(), call));
  }
};

FakeGpu gpu;
constexpr CuResult kFakeInvalidValue = 1;

// A context begins at an address, whatever was there before.
CuContext Begin(CuContext context) { return gpu.ids[context] = ++gpu.last_id, context; }
void End(CuContext context) { gpu.ids.erase(context); }
unsigned long long IdOf(CuContext context) {
  const auto found = gpu.ids.find(context);
  return found == gpu.ids.end() ? 0 : found->second;
}

CuContext FakeContext(uintptr_t number) { return reinterpret_cast<CuContext>(number * 0x1000); }
const CuContext kPrimary = FakeContext(1);
const CuContext kCallers = FakeContext(2);
const CuContext kOfGpu1 = FakeContext(1000);

// Nodes of the fake graphs: they are their numbers from 1 on, one behind the other.
struct FakeNodes {
  std::vector<CuKernelNodeParams> params;
  size_t roots = 0;  // beside the first
};

FakeNodes nodes;

#define RECORD(name) gpu.calls.push_back(name)

CuGraphNode FakeNode(size_t number) { return reinterpret_cast<CuGraphNode>(number); }
size_t NumberOf(CuGraphNode node) { return reinterpret_cast<size_t>(node); }

void AddFakeGraphs(Driver& d) {
  d.GraphAddKernelNode = [](CuGraphNode* node, CuGraph, const CuGraphNode* after, size_t count,
                            const CuKernelNodeParams* params) {
    EXPECT_EQ(count, nodes.params.empty() ? 0u : 1u);
    EXPECT_EQ(NumberOf(*after), nodes.params.size()) << "0 stands for none";
    EXPECT_EQ(gpu.current, kPrimary);
    nodes.params.push_back(*params);
    return *node = FakeNode(nodes.params.size()), kCuSuccess;
  };
  d.GraphGetRootNodes = [](CuGraph, CuGraphNode* roots, size_t* count) {
    *count = std::min<size_t>(1, nodes.params.size()) + nodes.roots;
    if (roots != nullptr) *roots = FakeNode(1);
    return kCuSuccess;
  };
  d.GraphNodeGetDependentNodes = [](CuGraphNode node, CuGraphNode* dependents, size_t* count) {
    *count = NumberOf(node) < nodes.params.size() ? 1 : 0;
    if (dependents != nullptr) *dependents = FakeNode(NumberOf(node) + 1);
    return kCuSuccess;
  };
  d.GraphKernelNodeGetParams = [](CuGraphNode node, CuKernelNodeParams* params) {
    return *params = nodes.params[NumberOf(node) - 1], kCuSuccess;
  };
  d.GraphKernelNodeSetParams = [](CuGraphNode node, const CuKernelNodeParams* params) {
    return nodes.params[NumberOf(node) - 1] = *params, kCuSuccess;
  };
}

Driver FakeDriver() {
  Driver d;
  d.path = "fake";
  d.version = 13000;
  d.GetErrorName = [](CuResult, const char** text) {
    return *text = "CUDA_ERROR_FAKE", kCuSuccess;
  };
  d.GetErrorString = [](CuResult, const char** text) {
    return *text = "as the test asked", kCuSuccess;
  };
  d.DeviceGetCount = [](int* count) { return *count = 2, kCuSuccess; };
  d.DeviceGet = [](CuDevice* device, int ordinal) { return *device = ordinal, kCuSuccess; };
  d.DeviceGetName = [](char* name, int, CuDevice) {
    return std::strcpy(name, "NVIDIA H200"), kCuSuccess;
  };
  d.DeviceGetAttribute = [](int* value, int attribute, CuDevice) {
    if (gpu.unknown_attributes.contains(attribute)) return kFakeInvalidValue;
    const auto found = gpu.attributes.find(attribute);
    *value = found != gpu.attributes.end() ? found->second : AttributeOfH200(attribute);
    return kCuSuccess;
  };
  d.DevicePrimaryCtxRetain = [](CuContext* context, CuDevice) {
    RECORD("retain");
    if (IdOf(kPrimary) == 0) Begin(kPrimary);
    return *context = kPrimary, kCuSuccess;
  };
  d.CtxGetCurrent = [](CuContext* context) { return *context = gpu.current, kCuSuccess; };
  d.CtxPushCurrent = [](CuContext context) {
    EXPECT_NE(IdOf(context), 0u) << "pushing a dead context may end the process";
    gpu.pushed.push_back(std::exchange(gpu.current, context));
    return kCuSuccess;
  };
  d.CtxPopCurrent = [](CuContext* context) {
    *context = gpu.current;
    gpu.current = gpu.pushed.back();
    gpu.pushed.pop_back();
    return kCuSuccess;
  };
  // Also of a primary context that was reset. The contexts of GPU 1 stand high.
  d.CtxGetDevice = [](CuDevice* device) {
    if (gpu.current == nullptr) return kCuErrorInvalidContext;
    return *device = gpu.current >= kOfGpu1 ? 1 : 0, kCuSuccess;
  };
  d.CtxGetId = [](CuContext context, unsigned long long* id) {
    if (context == nullptr) context = gpu.current;
    if (context == nullptr) return ++gpu.ids_of_none, kCuErrorInvalidContext;
    return *id = IdOf(context), *id == 0 ? kCuErrorContextIsDestroyed : kCuSuccess;
  };
  d.StreamGetCtx = [](CuStream stream, CuContext* context) {
    return *context = gpu.streams.at(stream), kCuSuccess;
  };
  d.ModuleLoadData = [](CuModule* module, const void*) {
    RECORD("load");
    if (IdOf(gpu.current) == 0) return kCuErrorContextIsDestroyed;
    ++gpu.modules;
    return *module = reinterpret_cast<CuModule>(IdOf(gpu.current)), gpu.load_result;
  };
  d.ModuleUnload = [](CuModule) { return RECORD("unload"), kCuSuccess; };
  d.ModuleGetFunction = [](CuFunction* function, CuModule module, const char* name) {
    RECORD(std::string("function ") + name);
    return *function = reinterpret_cast<CuFunction>(module), kCuSuccess;
  };
  d.FuncLoad = [](CuFunction) { return RECORD("prefetch"), kCuSuccess; };
  d.FuncGetAttribute = [](int* value, int, CuFunction) { return *value = 1000, kCuSuccess; };
  d.FuncSetAttribute = [](CuFunction, int attribute, int value) {
    RECORD("attribute");
    if (attribute == CuFunctionAttribute::kMaxDynamicSharedSizeBytes)
      gpu.max_dynamic_shared = value;
    return kCuSuccess;
  };
  d.ThreadExchangeStreamCaptureMode = [](int* mode) {
    RECORD(*mode == kCuCaptureModeRelaxed ? "relax" : "restore");
    return *mode = 0, kCuSuccess;
  };
  d.LaunchKernel = [](CuFunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                      unsigned, unsigned, CuStream stream, void**, void**) {
    const CuContext context = stream == nullptr ? gpu.current : gpu.streams.at(stream);
    if (IdOf(context) == 0) return kCuErrorContextIsDestroyed;
    if (reinterpret_cast<unsigned long long>(function) != IdOf(context))
      return RECORD("stale launch"), kCuErrorInvalidHandle;
    RECORD("launch");
    gpu.context_at_launch = context;
    return gpu.launch_result;
  };
  d.LaunchKernelEx = [](const CuLaunchConfig* config, CuFunction, void**, void**) {
    const bool one = config->attribute_count == 1 && config->attributes->value[0] == 1;
    RECORD(one && config->attributes->id == 6   ? "overlapping launch"
           : one && config->attributes->id == 2 ? "cooperative launch"
                                                : "launch with attributes");
    gpu.overlapping_grid = config->grid[1];
    return gpu.launch_result;
  };
  d.PointerGetAttribute = [](int* value, int attribute, CuAddress address) {
    if (attribute != 9 || address == 0) return CuResult{1};
    return *value = static_cast<int>(address >> 32), kCuSuccess;  // GPU 1: from 4 GB on
  };
  AddFakeGraphs(d);
  return d;
}

enum FunctionNumber {
#define DRIVER_FUNCTION(Name, symbol, need, parameters) kNumberOf##Name,
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION
};
constexpr const char* kSymbols[] = {
#define DRIVER_FUNCTION(Name, symbol, need, parameters) symbol,
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION
};

template <int kNumber, class... Args>
void RecordAndFail(CuResult (*&function)(Args...)) {
  function = [](Args...) { return RECORD(kSymbols[kNumber]), CuResult{1}; };
}

// The driver that MinimalLaunchCallsNothingElse meets: all but finding the device, asking for the
// caller's context and the three calls that are allowed records itself and fails.
Driver MinimalDriver() {
  const Driver whole = FakeDriver();
  Driver d;
#define DRIVER_FUNCTION(Name, symbol, need, parameters) RecordAndFail<kNumberOf##Name>(d.Name);
#include "runtime/cuda/driver_functions.def"
#undef DRIVER_FUNCTION
  d.GetErrorName = whole.GetErrorName;
  d.GetErrorString = whole.GetErrorString;
  d.DeviceGet = whole.DeviceGet;
  d.DeviceGetName = whole.DeviceGetName;
  d.DeviceGetAttribute = whole.DeviceGetAttribute;
  d.CtxGetCurrent = whole.CtxGetCurrent;
  d.CtxGetDevice = whole.CtxGetDevice;
  d.CtxGetId = whole.CtxGetId;
  d.ModuleLoadData = whole.ModuleLoadData;
  d.ModuleGetFunction = whole.ModuleGetFunction;
  d.LaunchKernel = whole.LaunchKernel;
  return d;
}

KernelSource Source() {
  KernelSource source;
  source.entry = "k";
  source.text = "extern \"C\" __global__ void k(float* x) { x[0] = 1; }\n";
  source.arch = "sm_90a";
  return source;
}

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    gpu = {};
    Begin(kCallers);
    nodes = {};
    ::unsetenv("KILN_LAUNCH");
    ResetEnvForTest();
    if (auto nvrtc = ProcessNvrtc(); !nvrtc.ok()) GTEST_SKIP() << nvrtc.status().message();
  }
  void TearDown() override {
    ::unsetenv("KILN_LAUNCH");
    ResetEnvForTest();
  }
  std::unique_ptr<Device> Open() { return *OpenCudaDevice(driver_, 0, compiler_); }

  Driver driver_ = FakeDriver();
  KernelCache cache_{{.root = ""}};
  CudaCompiler compiler_{cache_};
  const LaunchShape shape_ = {.grid = {1, 2, 3}, .block = {32, 1, 1}, .dynamic_shared_bytes = 0};
};

TEST_F(CudaDeviceTest, TheTargetIsWhatTheDriverTells) {
  auto device = Open();
  const Target& target = device->target();
  EXPECT_EQ(target.arch, "sm_90a");
  EXPECT_EQ(target.name, "NVIDIA H200");
  EXPECT_EQ(target.sm_version, 90);
  EXPECT_EQ(target.multiprocessors, 132);
  EXPECT_EQ(target.shared_bytes_per_block, 232448);
  EXPECT_EQ(target.l2_bytes, 62914560);
  EXPECT_EQ(target.clock_hz, 1'980'000'000);
  EXPECT_EQ(target.memory_bytes_per_second, 4'916'736'000'000) << "both edges of 6144 lines";
  EXPECT_FALSE(target.minimal_launch);
  EXPECT_TRUE(gpu.calls.empty()) << "opening must not create a context";
}

// Rates are for models, which have others where a driver has none: nothing fails for them.
TEST_F(CudaDeviceTest, RatesThatTheDriverHasNotAreZero) {
  constexpr int kRates[] = {CuDeviceAttribute::kClockRate, CuDeviceAttribute::kMemoryClockRate,
                            CuDeviceAttribute::kMemoryBusWidth};
  for (const int odd : {0, -1, INT_MAX, INT_MIN}) {
    for (const int rate : kRates) gpu.attributes[rate] = odd;
    const auto device = Open();
    EXPECT_EQ(device->target().clock_hz, 0) << odd;
    EXPECT_EQ(device->target().memory_bytes_per_second, 0) << odd;
  }
  gpu.attributes.clear();
  gpu.attributes[CuDeviceAttribute::kMemoryBusWidth] = 0;
  EXPECT_EQ(Open()->target().memory_bytes_per_second, 0);
  EXPECT_EQ(Open()->target().clock_hz, 1'980'000'000);
  gpu.attributes.clear();
  for (const int rate : kRates) gpu.unknown_attributes.insert(rate);
  const auto device = OpenCudaDevice(driver_, 0, compiler_);
  ASSERT_TRUE(device.ok()) << device.status().message();
  EXPECT_EQ((*device)->target().clock_hz, 0);
  EXPECT_EQ((*device)->target().multiprocessors, 132);
  // The driver has to tell the number of multiprocessors.
  gpu.unknown_attributes = {CuDeviceAttribute::kMultiprocessorCount};
  EXPECT_FALSE(OpenCudaDevice(driver_, 0, compiler_).ok());
}

// An RTX 4090: 10.5 GHz of 384 lines.
TEST_F(CudaDeviceTest, MemoryMovesTwiceAClock) {
  gpu.attributes = {{CuDeviceAttribute::kMemoryClockRate, 10'501'000},
                    {CuDeviceAttribute::kMemoryBusWidth, 384}};
  EXPECT_EQ(Open()->target().memory_bytes_per_second, 1'008'096'000'000);
}

TEST_F(CudaDeviceTest, LoadsIntoThePrimaryContextWhereThereIsNone) {
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  EXPECT_EQ(gpu.calls, (std::vector<std::string>{"retain", "relax", "load", "function k",
                                                 "prefetch", "attribute", "attribute", "restore"}));
  EXPECT_EQ(gpu.max_dynamic_shared, 232448 - 1000);
  EXPECT_EQ(gpu.current, nullptr) << "the caller's thread must be left as it was";
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.context_at_launch, kPrimary);
  EXPECT_EQ(gpu.current, nullptr);
}

TEST_F(CudaDeviceTest, UsesTheCallersContext) {
  gpu.current = kCallers;
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  EXPECT_EQ(gpu.Count("retain"), 0);
  gpu.calls.clear();
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.context_at_launch, kCallers);
  EXPECT_EQ(gpu.calls, std::vector<std::string>{"launch"});
}

TEST_F(CudaDeviceTest, AKernelIsLoadedOnceAContext) {
  gpu.current = kCallers;
  auto device = Open();
  auto first = device->Load(Source());
  auto second = device->Load(Source());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(gpu.Count("load"), 1);
  Begin(kCallers);  // a new context at the old address, as after a device reset
  ASSERT_TRUE(device->Load(Source()).ok());
  EXPECT_EQ(gpu.Count("load"), 2);
  ASSERT_TRUE(device->Load(Source()).ok());
  EXPECT_EQ(gpu.Count("load"), 2);
}

// ---- contexts that come and go

// cudaDeviceReset: the primary context keeps its address, and is dead until it is retained again.
TEST_F(CudaDeviceTest, AKernelOutlivesAReset) {
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  for (int life = 2; life <= 4; ++life) {
    End(kPrimary);
    gpu.calls.clear();
    ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
    EXPECT_EQ(gpu.Count("retain"), 1) << "nobody else has";
    EXPECT_EQ(gpu.Count("load"), 1);
    EXPECT_EQ(gpu.context_at_launch, kPrimary);
    ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
    EXPECT_EQ(gpu.modules, life);
    EXPECT_EQ(gpu.Count("retain"), 1);
    EXPECT_EQ(gpu.Count("stale launch"), 0);
  }
  EXPECT_EQ(gpu.Count("unload"), 0) << "modules end with their context";
}

TEST_F(CudaDeviceTest, AResetOfTheCurrentPrimaryContext) {
  auto device = Open();
  gpu.current = Begin(kPrimary);
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  End(kPrimary);  // and stays current, as the driver has it
  ASSERT_TRUE(device->Load(Source()).ok());
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  Begin(kPrimary);  // cudaFree(nullptr), say
  gpu.calls.clear();
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.calls, (std::vector<std::string>{"relax", "load", "function k", "prefetch",
                                                 "attribute", "attribute", "restore", "launch"}));
  gpu.calls.clear();
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.calls, std::vector<std::string>{"launch"});
}

// A word of each context: kernels say there that they waited too long.
TEST_F(CudaDeviceTest, AFaultIsTakenOnceAndFromLivingContextsAlone) {
  static std::vector<std::unique_ptr<int32_t>> words;
  driver_.MemAllocHost = [](void** memory, size_t) {
    RECORD("allocate host");
    return *memory = words.emplace_back(std::make_unique<int32_t>(7)).get(), kCuSuccess;
  };
  auto device = Open();
  EXPECT_EQ(device->TakeFault(), 0) << "nobody has a word";
  gpu.current = kCallers;
  const auto first = device->FaultWord();
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(**first, 0);
  EXPECT_EQ(*device->FaultWord(), *first);
  EXPECT_EQ(gpu.Count("allocate host"), 1);
  **first = 3;
  EXPECT_EQ(device->TakeFault(), 3);
  EXPECT_EQ(device->TakeFault(), 0);
  **first = 4;
  End(kCallers);  // its memory ends with it, and nobody looks there
  EXPECT_EQ(device->TakeFault(), 0);
  gpu.current = Begin(FakeContext(3));
  const auto second = device->FaultWord();
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_NE(*second, *first);
  **second = 5;
  EXPECT_EQ(device->TakeFault(), 5);
  Begin(kCallers);
  driver_.MemAllocHost = nullptr;
  EXPECT_EQ(Open()->FaultWord().status().code(), Code::kNotSupported);
}

TEST_F(CudaDeviceTest, ContextsOfOneDeviceTakeTurns) {
  const CuContext contexts[] = {Begin(FakeContext(3)), Begin(FakeContext(4)), kCallers};
  gpu.current = contexts[0];
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  for (int turn = 0; turn < 9; ++turn) {
    gpu.current = contexts[turn % 3];
    ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
    EXPECT_EQ(gpu.context_at_launch, contexts[turn % 3]);
    EXPECT_EQ(gpu.current, contexts[turn % 3]);
  }
  EXPECT_EQ(gpu.modules, 3);
  EXPECT_EQ(gpu.Count("stale launch"), 0);
}

TEST_F(CudaDeviceTest, AStreamOfAnotherContext) {
  const CuContext other = Begin(FakeContext(3));
  const CuStream stream = &gpu;
  gpu.streams[stream] = other;
  gpu.current = kCallers;
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  for (const CuContext current : {kCallers, CuContext{nullptr}, Begin(kOfGpu1)}) {
    gpu.current = current;
    gpu.context_at_launch = nullptr;
    ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, stream).ok());
    EXPECT_EQ(gpu.context_at_launch, other);
    EXPECT_EQ(gpu.current, current);
  }
  EXPECT_EQ(gpu.modules, 2);
  gpu.current = kCallers;
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.context_at_launch, kCallers);
}

TEST_F(CudaDeviceTest, AThousandContextsLeaveNothingBehind) {
  auto device = Open();
  gpu.current = kCallers;
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  const auto& loaded = static_cast<const CudaKernel&>(**kernel);
  for (uintptr_t i = 0; i < 1000; ++i) {
    gpu.current = Begin(FakeContext(10 + i % 700));  // some addresses come again
    ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
    EXPECT_EQ(gpu.context_at_launch, gpu.current);
    End(gpu.current);
    EXPECT_LE(loaded.contexts(), CudaKernel::kMostContexts);
  }
  EXPECT_EQ(gpu.modules, 1001);
  EXPECT_EQ(gpu.Count("unload"), 0);
  EXPECT_EQ(gpu.Count("stale launch"), 0);
}

// The driver calls it an error, which tools that watch for errors report.
TEST_F(CudaDeviceTest, ThreadsWithoutAContextAskForNoId) {
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  std::jthread([&] {
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
    gpu.current = Begin(kCallers);
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
      EXPECT_EQ(gpu.context_at_launch, kCallers);
    }
    gpu.current = nullptr;
  }).join();
  EXPECT_EQ(gpu.Count("launch"), 6);
  EXPECT_EQ(gpu.ids_of_none, 0);
}

// Drivers before CUDA 12. What does not get better by loading anew is left as it was.
TEST_F(CudaDeviceTest, WithoutIdsAFailureTells) {
  driver_.CtxGetId = nullptr;
  gpu.current = kCallers;
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  Begin(kCallers);
  gpu.calls.clear();
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.Count("load"), 1);
  gpu.calls.clear();
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.calls, std::vector<std::string>{"launch"});

  const CuStream stream = &gpu;
  gpu.streams[stream] = Begin(kOfGpu1);
  EXPECT_FALSE(device->Launch(**kernel, shape_, nullptr, stream).ok());
  EXPECT_EQ(gpu.Count("unload"), 1);
  gpu.calls.clear();
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.calls, std::vector<std::string>{"launch"});
}

TEST_F(CudaDeviceTest, ThreadsWithContextsOfTheirOwn) {
  static thread_local CuContext own = nullptr;
  driver_.CtxGetCurrent = [](CuContext* context) { return *context = own, kCuSuccess; };
  driver_.CtxGetDevice = [](CuDevice* device) { return *device = 0, kCuSuccess; };
  driver_.CtxGetId = [](CuContext context, unsigned long long* id) {
    return *id = reinterpret_cast<uintptr_t>(context != nullptr ? context : own), kCuSuccess;
  };
  driver_.ModuleLoadData = [](CuModule* module, const void*) {
    return *module = reinterpret_cast<CuModule>(own), kCuSuccess;
  };
  driver_.ModuleGetFunction = [](CuFunction* function, CuModule module, const char*) {
    return *function = reinterpret_cast<CuFunction>(module), kCuSuccess;
  };
  driver_.FuncLoad = nullptr;
  driver_.ThreadExchangeStreamCaptureMode = [](int*) { return kCuSuccess; };
  driver_.FuncGetAttribute = [](int*, int, CuFunction) { return CuResult{1}; };
  driver_.LaunchKernel = [](CuFunction function, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, unsigned, CuStream, void**, void**) {
    return reinterpret_cast<CuContext>(function) == own ? kCuSuccess : kCuErrorInvalidHandle;
  };
  auto device = Open();
  own = FakeContext(20);
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  std::atomic<int> failed = 0;
  {
    std::vector<std::jthread> threads;
    for (uintptr_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (uintptr_t i = 0; i < 20000; ++i) {
          own = FakeContext(21 + (t + i / 100) % 6);
          failed += !device->Launch(**kernel, shape_, nullptr, nullptr).ok();
        }
      });
    }
  }
  EXPECT_EQ(failed, 0);
}

TEST_F(CudaDeviceTest, MinimalLaunchCallsNothingElse) {
  ::setenv("KILN_LAUNCH", "minimal", 1);
  ResetEnvForTest();
  gpu.current = kCallers;
  driver_ = MinimalDriver();
  auto device = Open();
  EXPECT_TRUE(device->target().minimal_launch);
  EXPECT_EQ(device->target().shared_limit(), 48 * 1024);
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.calls, (std::vector<std::string>{"load", "function k", "launch"}));
}

TEST_F(CudaDeviceTest, OverlapsLaunchesWhereTheDriverCanWhileCapturing) {
  LaunchShape shape = shape_;
  shape.may_overlap = true;
  for (const auto& [version, call] : {std::pair{12030, "overlapping launch"}, {12020, "launch"}}) {
    driver_.version = version;
    auto device = Open();
    auto kernel = device->Load(Source());
    ASSERT_TRUE(kernel.ok());
    gpu.calls.clear();
    ASSERT_TRUE(device->Launch(**kernel, shape, nullptr, nullptr).ok());
    EXPECT_EQ(gpu.calls, std::vector<std::string>{call}) << version;
    ASSERT_TRUE(device->Launch(**kernel, shape_, nullptr, nullptr).ok());
    EXPECT_EQ(gpu.calls.back(), "launch") << "the first launch of a plan waits for all before it";
  }
  EXPECT_EQ(gpu.overlapping_grid, 2u);
}

// Blocks that wait for one another: whatever the driver's age they are never launched otherwise.
TEST_F(CudaDeviceTest, CooperativeLaunchesAreThatOrFail) {
  LaunchShape shape = shape_;
  shape.cooperative = true;
  driver_.version = 12000;
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  gpu.calls.clear();
  ASSERT_TRUE(device->Launch(**kernel, shape, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.calls, std::vector<std::string>{"cooperative launch"});
  static int attribute_set = 0;
  driver_.GraphKernelNodeSetAttribute = [](CuGraphNode, int attribute, const void* value) {
    if (*static_cast<const int*>(value) == 1) attribute_set = attribute;
    return kCuSuccess;
  };
  NativeGraph graph = &nodes;
  const auto first = device->AddNode(graph, nullptr, **kernel, shape, nullptr);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(attribute_set, 2);
  driver_.GraphKernelNodeSetAttribute = nullptr;
  EXPECT_EQ(device->AddNode(graph, *first, **kernel, shape, nullptr).status().code(),
            Code::kNotSupported);
  driver_.LaunchKernelEx = nullptr;
  gpu.calls.clear();
  EXPECT_FALSE(device->Launch(**kernel, shape, nullptr, nullptr).ok());
  EXPECT_TRUE(gpu.calls.empty());
}

TEST_F(CudaDeviceTest, LaunchesBecomeNodesOneBehindTheOther) {
  auto device = Open();
  EXPECT_TRUE(device->has_graphs());
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  NativeGraph graph = &nodes;
  EXPECT_TRUE(device->NodesOf(graph)->empty());
  NativeNode last = nullptr;
  for (int i = 0; i < 3; ++i) {
    auto node = device->AddNode(graph, last, **kernel, shape_, nullptr);
    ASSERT_TRUE(node.ok()) << node.status().message();
    last = *node;
  }
  auto chain = device->NodesOf(graph);
  ASSERT_TRUE(chain.ok());
  ASSERT_EQ(chain->size(), 3u);
  EXPECT_EQ(chain->back(), last);
  EXPECT_EQ(nodes.params[0].grid[2], 3u);
  EXPECT_EQ(nodes.params[0].block[0], 32u);
  EXPECT_TRUE(device->IsNodeOf(last, **kernel));

  LaunchShape wider = shape_;
  wider.grid[0] = 9;
  wider.dynamic_shared_bytes = 64;
  ASSERT_TRUE(device->SetNode((*chain)[1], **kernel, wider, nullptr).ok());
  EXPECT_EQ(nodes.params[1].grid[0], 9u);
  EXPECT_EQ(nodes.params[1].dynamic_shared_bytes, 64u);
  gpu.current = kCallers;  // nodes stay in the context in which they were made
  EXPECT_TRUE(device->IsNodeOf(last, **kernel));
  ASSERT_TRUE(device->SetNode(last, **kernel, wider, nullptr).ok());
  gpu.current = nullptr;
  End(kPrimary);
  EXPECT_EQ(device->SetNode(last, **kernel, wider, nullptr).code(), Code::kCudaGraphMismatch);
  nodes.params[2].function = nullptr;
  EXPECT_FALSE(device->IsNodeOf(last, **kernel));
  nodes.roots = 1;
  EXPECT_EQ(device->NodesOf(graph).status().message(),
            "the CUDA graph has 2 nodes side by side; a plan's stand in a row");
  EXPECT_EQ(gpu.Count("launch"), 0);
}

TEST_F(CudaDeviceTest, GraphsNeedANewDriverAndMoreThanAMinimalLaunch) {
  Driver whole = FakeDriver();
  driver_.GraphKernelNodeSetParams = nullptr;
  EXPECT_FALSE(Open()->has_graphs());
  EXPECT_EQ(Open()->NodesOf(&nodes).status().message(), "graphs need a driver of CUDA 12.0");
  driver_ = whole;
  ::setenv("KILN_LAUNCH", "minimal", 1);
  ResetEnvForTest();
  EXPECT_FALSE(Open()->has_graphs());
  EXPECT_EQ(Open()->NodesOf(&nodes).status().code(), Code::kNotSupported);
}

TEST_F(CudaDeviceTest, KnowsMemoryOfAnotherGpu) {
  auto device = Open();
  EXPECT_EQ(device->OwnerOf(nullptr), Owner::kNobody) << "the driver does not know it";
  EXPECT_EQ(device->OwnerOf(reinterpret_cast<void*>(uintptr_t{4096})), Owner::kThisDevice);
  EXPECT_EQ(device->OwnerOf(reinterpret_cast<void*>(uintptr_t{1} << 32)), Owner::kOtherDevice);
  EXPECT_TRUE(gpu.calls.empty()) << "asking must not create a context";
}

TEST_F(CudaDeviceTest, ALaunchFailureNamesKernelAndShape) {
  auto device = Open();
  auto kernel = device->Load(Source());
  ASSERT_TRUE(kernel.ok());
  gpu.launch_result = 701;
  Status status = device->Launch(**kernel, shape_, nullptr, nullptr);
  EXPECT_EQ(status.code(), Code::kExecutionFailed);
  EXPECT_EQ(status.message(),
            "kernel k, grid 1x2x3, block 32x1x1, 0 bytes of shared memory: CUDA_ERROR_FAKE (as the "
            "test asked)");
}

TEST_F(CudaDeviceTest, CodeOfAnotherArchitectureIsAnArchMismatch) {
  auto device = Open();
  gpu.load_result = kCuErrorNoBinaryForGpu;
  auto kernel = device->Load(Source());
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), Code::kArchMismatch);
  EXPECT_NE(kernel.status().message().find("NVIDIA H200 (sm_90a)"), std::string::npos)
      << kernel.status().message();
  gpu.load_result = kCuSuccess;
  EXPECT_TRUE(device->Load(Source()).ok()) << "a failed load must not be remembered";
}

TEST_F(CudaDeviceTest, ACompileErrorCarriesTheLog) {
  auto device = Open();
  KernelSource source = Source();
  source.text = "extern \"C\" __global__ void k() { missing(); }\n";
  auto kernel = device->Load(source);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), Code::kCompilationFailed);
  EXPECT_NE(kernel.status().message().find("k.cu(1)"), std::string::npos);
}

}  // namespace
}  // namespace kiln::runtime
