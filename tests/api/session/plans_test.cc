// Plans as a GPU process makes them, over a driver that runs nothing
// (//tests/support/cuda_standin): what is compiled and when. With another driver (a GPU's) nothing
// is executed. Where "no compiler" is said, the test starts itself again with an NVRTC that does
// not exist, so that anything which would compile fails.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/cuda/nvrtc.h"
#include "tests/api/client.h"
#include "tests/support/pace.h"

namespace {

using namespace client;
using kiln::testing::Pace;
using kiln::testing::ThreadSeconds;
namespace fs = std::filesystem;

std::string Folder() { return std::string(std::getenv("TEST_TMPDIR")); }
bool IsChild() { return std::getenv("PLANS_TEST_CHILD") != nullptr; }

void WriteFile(const std::string& name, const std::string& text) {
  std::ofstream(Folder() + "/" + name) << text;
}
std::string ReadFile(const std::string& name) {
  std::stringstream text;
  text << std::ifstream(Folder() + "/" + name).rdbuf();
  return text.str();
}

// Kernels in the disk cache of this test.
int CubinsOnDisk() {
  int count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(Folder() + "/cache"))
    count += entry.path().filename() == "kernel.cubin";
  return count;
}

// The driver that runs nothing; null with another.
void* Driver() {
  const char* const path = std::getenv("KILN_LIBCUDA");
  return path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
}
template <class T>
T Ask(const char* function) {
  return reinterpret_cast<T (*)()>(dlsym(Driver(), function))();
}

// The named test in a new process that has no compiler; its exit status.
int RunWithoutCompiler(const std::string& test) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("KILN_NVRTC", "/nonexistent/libnvrtc.so", 1);
    setenv("PLANS_TEST_CHILD", "1", 1);
    unsetenv("TEST_PREMATURE_EXIT_FILE");  // of the parent
    const std::string filter = "--gtest_filter=" + test;
    execl("/proc/self/exe", "plans_test", filter.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Plans : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsChild()) {
      if (const auto nvrtc = kiln::runtime::ProcessNvrtc(); !nvrtc.ok())
        GTEST_SKIP() << nvrtc.status().message();
    }
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS) << LastError();
  }
  void TearDown() override {
    if (handle_ != nullptr) cudnnDestroy(handle_);
  }

  struct Shape {
    int64_t m, n = 256, k = 128;
    bool dynamic = false;  // one of many
    bool with_handle = true;
  };
  // y = relu(x W + b) over m rows.
  Desc MatmulGraph(const Shape& shape) const {
    const auto [m, n, k, dynamic, with_handle] = shape;
    const TensorOptions half{.type = CUDNN_DATA_HALF}, inner{.is_virtual = true};
    Desc a = Tensor(1, {1, m, k}, half), b = Tensor(2, {1, k, n}, half);
    Desc product = Tensor(100, {1, m, n}, inner), sum = Tensor(101, {1, m, n}, inner);
    Desc bias = Tensor(3, {1, 1, n}, half), y = Tensor(4, {1, m, n}, half);
    Desc matmul(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    matmul.Set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).Finalize();
    Desc op(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    op.Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, product)
        .Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul)
        .Finalize();
    Desc add = Pointwise(CUDNN_POINTWISE_ADD, product, &bias, sum);
    Desc relu = Pointwise(CUDNN_POINTWISE_RELU_FWD, sum, nullptr, y);
    Desc graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (with_handle) graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
    if (dynamic) graph.Set(CUDNN_ATTR_OPERATIONGRAPH_IS_DYNAMIC_SHAPE_ENABLED, true);
    graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, {&op, &add, &relu}).Finalize();
    EXPECT_EQ(graph.status(), CUDNN_STATUS_SUCCESS) << graph.error();
    return graph;
  }

  // Engine configurations of mode A.
  static std::vector<Desc> Configs(const Desc& graph, int32_t sm_count = -1,
                                   const Desc* device = nullptr) {
    Desc heur(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heur.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
        .Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A)
        .Set(CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, sm_count);
    if (device != nullptr) heur.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device);
    heur.Finalize();
    EXPECT_EQ(heur.status(), CUDNN_STATUS_SUCCESS) << heur.error();
    int64_t count = 0;
    const auto get = [&](int64_t requested, void* data) {
      EXPECT_EQ(cudnnBackendGetAttribute(heur.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, requested, &count, data),
                CUDNN_STATUS_SUCCESS);
    };
    get(0, nullptr);
    std::vector<Desc> configs;
    std::vector<cudnnBackendDescriptor_t> raws;
    for (int64_t i = 0; i < count; ++i)
      raws.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
    get(count, raws.data());
    return configs;
  }
  static Desc FirstConfig(const Desc& graph, int32_t sm_count = -1, const Desc* device = nullptr) {
    return std::move(Configs(graph, sm_count, device).front());
  }

  Desc Plan(const Desc& config, const Desc* cache = nullptr) const {
    Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_)
        .Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (cache != nullptr) plan.Set(CUDNN_ATTR_EXECUTION_PLAN_KERNEL_CACHE, *cache);
    plan.Finalize();
    EXPECT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
    return plan;
  }

  Desc Restored(const std::string& json) const {
    Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_)
        .Set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
             std::vector<char>(json.begin(), json.end()))
        .Finalize();
    return plan;
  }

  static std::string Json(const Desc& desc, cudnnBackendAttributeName_t name) {
    int64_t size = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(desc.raw(), name, CUDNN_TYPE_CHAR, 0, &size, nullptr),
              CUDNN_STATUS_SUCCESS);
    std::string text(static_cast<size_t>(size), '?');
    EXPECT_EQ(cudnnBackendGetAttribute(desc.raw(), name, CUDNN_TYPE_CHAR, size, &size, text.data()),
              CUDNN_STATUS_SUCCESS);
    return text;
  }
  static std::string PlanJson(const Desc& plan) {
    return Json(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  }

  // Aligned addresses that nobody reads.
  cudnnStatus_t Execute(const Desc& plan) const {
    if (Driver() == nullptr) return CUDNN_STATUS_SUCCESS;
    std::vector<void*> pointers;
    for (uintptr_t i = 1; i <= 4; ++i) pointers.push_back(reinterpret_cast<void*>(i << 20));
    Desc pack = Pack({1, 2, 3, 4}, pointers, reinterpret_cast<void*>(uintptr_t{1} << 30));
    return cudnnBackendExecute(handle_, plan.raw(), pack.raw());
  }

  Desc KernelCache(const Desc& graph, const std::string& json = "") const {
    Desc cache(CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR);
    cache.Set(CUDNN_ATTR_KERNEL_CACHE_OPERATION_GRAPH, graph);
    if (!json.empty())
      cache.Set(CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION,
                std::vector<char>(json.begin(), json.end()));
    cache.Finalize();
    EXPECT_EQ(cache.status(), CUDNN_STATUS_SUCCESS) << cache.error();
    return cache;
  }
  // 1 if the cache knows the kernels of the configuration, else 0; -1 where it does not say.
  static int64_t IsCached(const Desc& cache, const Desc& config) {
    cudnnBackendDescriptor_t raw = config.raw();
    int64_t count = -1;
    const cudnnStatus_t status =
        cudnnBackendGetAttribute(cache.raw(), CUDNN_ATTR_KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw);
    return status == CUDNN_STATUS_SUCCESS ? count : -1;
  }

  cudnnHandle_t handle_ = nullptr;
};

TEST_F(Plans, AreRestoredWithoutACompiler) {
  if (!IsChild()) {
    const Desc plan = Plan(FirstConfig(MatmulGraph({.m = 512})));
    ASSERT_EQ(Execute(plan), CUDNN_STATUS_SUCCESS) << LastError();
    WriteFile("plan.json", PlanJson(plan));
    EXPECT_EQ(RunWithoutCompiler("Plans.AreRestoredWithoutACompiler"), 0);
    return;
  }
  const std::string json = ReadFile("plan.json");
  const Desc plan = Restored(json);
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  EXPECT_EQ(PlanJson(plan), json);
  EXPECT_EQ(Execute(plan), CUDNN_STATUS_SUCCESS) << LastError();
  // A plan that was never compiled says so.
  Desc other(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  Desc x = Tensor(1, {3, 5}), y = Tensor(2, {3, 5});
  Desc tan = Pointwise(CUDNN_POINTWISE_TAN, x, nullptr, y);
  other.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_)
      .Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, FirstConfig(Graph(handle_, {&tan})))
      .Finalize();
  EXPECT_EQ(other.status(), CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
}

// Shapes of several magnitudes: whatever the model would like for them, what is compiled serves.
TEST_F(Plans, ANewShapeOfAKnownStructureNeedsNoCompiler) {
  if (!IsChild()) {
    const Desc graph = MatmulGraph({.m = 1024, .dynamic = true});
    const Desc cache = KernelCache(graph);
    const Desc config = FirstConfig(graph);
    EXPECT_EQ(IsCached(cache, config), 0);
    Plan(config, &cache);
    EXPECT_EQ(IsCached(cache, config), 1);
    const int compiled = CubinsOnDisk();
    ASSERT_GT(compiled, 0);
    const double pace = Pace();
    double slowest = 0;
    for (const int64_t m : {1536, 960, 2048, 768, 128, 8, 3000, 1000, 16384}) {
      const double begin = ThreadSeconds();
      const Desc other = MatmulGraph({.m = m, .dynamic = true});
      const Desc plan = Plan(FirstConfig(other), &cache);
      slowest = std::max(slowest, 1e3 * (ThreadSeconds() - begin));
      EXPECT_EQ(CubinsOnDisk(), compiled) << m << " rows";
      EXPECT_EQ(Execute(plan), CUDNN_STATUS_SUCCESS) << LastError();
    }
#ifdef NDEBUG
    // Milliseconds. Builds with checks, and sanitizers, take longer.
    EXPECT_LT(slowest, 10 * std::max(pace, Pace()));
#endif
    std::printf("a new shape took at most %.3f ms\n", slowest);
    WriteFile("cache.json", Json(cache, CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION));
    EXPECT_EQ(RunWithoutCompiler("Plans.ANewShapeOfAKnownStructureNeedsNoCompiler"), 0);
    return;
  }
  const Desc cache = KernelCache(MatmulGraph({.m = 64, .dynamic = true}), ReadFile("cache.json"));
  for (const int64_t m : {1100, 1800}) {
    const Desc config = FirstConfig(MatmulGraph({.m = m, .dynamic = true}));
    EXPECT_EQ(IsCached(cache, config), 1);
    EXPECT_EQ(Execute(Plan(config, &cache)), CUDNN_STATUS_SUCCESS) << LastError();
  }
}

// A kernel that the model thinks twice as slow is not taken for its being there.
TEST_F(Plans, AShapeThatIsWorthAKernelOfItsOwnGetsIt) {
  const Desc small = MatmulGraph({.m = 8, .n = 512, .dynamic = true});
  const Desc cache = KernelCache(small);
  const Desc config = FirstConfig(small);
  Plan(config, &cache);
  const Desc large = MatmulGraph({.m = 100000, .n = 512, .dynamic = true});
  EXPECT_EQ(IsCached(cache, FirstConfig(large)), 0);
  Plan(FirstConfig(large), &cache);
  EXPECT_EQ(IsCached(cache, FirstConfig(large)), 1);
}

TEST_F(Plans, NoMoreMultiprocessorsAreTakenThanTheClientAllows) {
  ASSERT_NE(Driver(), nullptr) << "asks the driver that runs nothing";
  const Desc graph = MatmulGraph({.m = 65536});
  const Desc whole = Plan(FirstConfig(graph));
  ASSERT_EQ(Execute(whole), CUDNN_STATUS_SUCCESS) << LastError();
  const auto blocks = [] { return Ask<int64_t>("standinLastBlocks"); };
  const int64_t most = blocks();
  EXPECT_GT(most, 64) << "a persistent kernel on 132 multiprocessors";
  EXPECT_LE(most, 132);
  for (const int32_t count : {0, -1, 132, 1000}) {
    ASSERT_EQ(Execute(Plan(FirstConfig(graph, count))), CUDNN_STATUS_SUCCESS) << LastError();
    EXPECT_EQ(blocks(), most) << count;
  }
  const Desc limited = Plan(FirstConfig(graph, 16));
  ASSERT_EQ(Execute(limited), CUDNN_STATUS_SUCCESS) << LastError();
  EXPECT_LE(blocks(), 16);
  EXPECT_GT(blocks(), 8);
  const Desc restored = Restored(PlanJson(limited));
  ASSERT_EQ(Execute(restored), CUDNN_STATUS_SUCCESS) << LastError();
  EXPECT_LE(blocks(), 16);
  EXPECT_EQ(PlanJson(restored), PlanJson(limited));
  ASSERT_EQ(Execute(whole), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(blocks(), most);
}

// The last configuration of a list whose first needs workspace.
TEST_F(Plans, ClientsWithALimitFindAConfigurationWithoutWorkspace) {
  const Desc graph = MatmulGraph({.m = 64, .n = 64, .k = 65536});
  const auto needs = [](const Desc& config) {
    int64_t bytes = -1;
    EXPECT_EQ(config.Get(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, &bytes), CUDNN_STATUS_SUCCESS);
    return bytes;
  };
  const std::vector<Desc> configs = Configs(graph);
  EXPECT_GT(needs(configs.front()), 0);
  EXPECT_EQ(needs(configs.back()), 0);
  const Desc plan = Plan(configs.back());
  int64_t bytes = -1;
  EXPECT_EQ(plan.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &bytes), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(bytes, 0);
  EXPECT_EQ(Execute(plan), CUDNN_STATUS_SUCCESS) << LastError();
  const Desc restored = Restored(PlanJson(plan));
  EXPECT_EQ(PlanJson(restored), PlanJson(plan));
  EXPECT_EQ(restored.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, &bytes), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(bytes, 0);
}

// Tensors between operations follow from those that are overridden.
TEST_F(Plans, OverriddenShapesNeedNoCompilerAndAreKept) {
  ASSERT_NE(Driver(), nullptr) << "asks the driver that runs nothing";
  const Desc plan = Plan(FirstConfig(MatmulGraph({.m = 4096})));
  const int compiled = CubinsOnDisk(), loaded = Ask<int>("standinModules");
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const int64_t m : {2048, 8192}) {
      const std::vector<std::vector<int64_t>> shapes = {{1, m, 128}, {1, m, 256}};
      const std::vector<std::vector<int64_t>> strides = {{m * 128, 128, 1}, {m * 256, 256, 1}};
      Desc pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
      std::vector<void*> pointers;
      for (uintptr_t i = 1; i <= 4; ++i) pointers.push_back(reinterpret_cast<void*>(i << 20));
      pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::vector<int64_t>{1, 2, 3, 4})
          .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
          .Set(CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, std::vector<int64_t>{1, 4});
      cudnnBackendSetAttribute(pack.raw(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES,
                               CUDNN_TYPE_VOID_PTR, 1, &shapes);
      cudnnBackendSetAttribute(pack.raw(), CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES,
                               CUDNN_TYPE_VOID_PTR, 1, &strides);
      pack.Finalize();
      EXPECT_EQ(cudnnBackendExecute(handle_, plan.raw(), pack.raw()), CUDNN_STATUS_SUCCESS)
          << LastError();
    }
  }
  EXPECT_EQ(CubinsOnDisk(), compiled);
  EXPECT_EQ(Ask<int>("standinModules"), loaded);
}

TEST_F(Plans, AKernelCacheOfAnotherFormatIsRefused) {
  Desc cache(CUDNN_BACKEND_KERNEL_CACHE_DESCRIPTOR);
  const std::string text = R"({"format": "another", "configurations": []})";
  cache
      .Set(CUDNN_ATTR_KERNEL_CACHE_JSON_REPRESENTATION, std::vector<char>(text.begin(), text.end()))
      .Finalize();
  EXPECT_EQ(cache.status(), CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH);
  const Desc empty = KernelCache(MatmulGraph({.m = 64, .dynamic = true}));
  int64_t count = 0;
  EXPECT_EQ(
      cudnnBackendGetAttribute(empty.raw(), CUDNN_ATTR_KERNEL_CACHE_IS_ENGINECFG_KERNEL_CACHED,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
      CUDNN_STATUS_BAD_PARAM);
}

// The other process has this device's properties and no compiler of its own.
TEST_F(Plans, ADescribedDevicesKernelsAreCompiledAheadOfTime) {
  if (!IsChild()) {
    Desc here(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    here.Set(CUDNN_ATTR_DEVICEPROP_HANDLE, handle_).Finalize();
    const std::string properties = Json(here, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    Desc device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device
        .Set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
             std::vector<char>(properties.begin(), properties.end()))
        .Finalize();
    ASSERT_EQ(device.status(), CUDNN_STATUS_SUCCESS) << device.error();
    const int before = CubinsOnDisk();
    const Desc graph = MatmulGraph({.m = 40, .n = 250, .with_handle = false});
    Desc plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device)
        .Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, FirstConfig(graph, -1, &device))
        .Finalize();
    ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
    EXPECT_GT(CubinsOnDisk(), before) << "nothing was compiled";
    WriteFile("ahead.json", PlanJson(plan));
    EXPECT_EQ(RunWithoutCompiler("Plans.ADescribedDevicesKernelsAreCompiledAheadOfTime"), 0);
    return;
  }
  const Desc plan = Restored(ReadFile("ahead.json"));
  ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS) << plan.error();
  EXPECT_EQ(Execute(plan), CUDNN_STATUS_SUCCESS) << LastError();
}

}  // namespace

// Before anything asks for the environment.
int main(int argc, char** argv) {
  setenv("KILN_CACHE_DIR", (Folder() + "/cache").c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
