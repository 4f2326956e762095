// Native CUDA graphs on a GPU: what a populated graph computes is what Execute computes, to the
// bit; after an update it computes on other memory, also where the client has put a copy of the
// graph into a larger one, as frontends do.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/runner.h"

namespace kiln::testing {
namespace {

// The driver's own functions on graphs; each returns a CUresult.
struct GraphFunctions {
  int (*Create)(void** graph, unsigned flags);
  int (*Destroy)(void* graph);
  int (*AddChild)(void** node, void* graph, const void* after, size_t count, void* child);
  int (*GetChild)(void* node, void** child);
  int (*Instantiate)(void** exec, void* graph, unsigned long long flags);
  int (*Launch)(void* exec, void* stream);
  int (*DestroyExec)(void* exec);

  bool Load() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return false;
    const auto find = [&](const char* name, auto& function) {
      *reinterpret_cast<void**>(&function) = dlsym(driver, name);
      return function != nullptr;
    };
    return find("cuGraphCreate", Create) && find("cuGraphDestroy", Destroy) &&
           find("cuGraphAddChildGraphNode", AddChild) &&
           find("cuGraphChildGraphNodeGetGraph", GetChild) &&
           find("cuGraphInstantiateWithFlags", Instantiate) && find("cuGraphLaunch", Launch) &&
           find("cuGraphExecDestroy", DestroyExec);
  }
};

// Scalars by value, tensor maps, several kernels.
constexpr const char* kCases[] = {
    "pointwise: mul(x:f32[4,64,4,4]@nhwc, a:f32[1,1,1,1]=0.25) -> y:f32@nhwc",
    "conv: conv_fprop(x:f16[4,64,14,14]@nhwc, w:f16[128,64,3,3]@nhwc) -> %t:f32@nhwc pad=1; "
    "add(%t, b:f16[1,128,1,1]@nhwc) -> %u:f32@nhwc; relu_fwd(%u) -> y:f16@nhwc",
    "matmul: matmul(a:bf16[1,256,512], b:bf16[1,512,256]) -> c:bf16",
    "sums: matmul(a:f16[1,64,4096], b:f16[1,4096,64]) -> c:f32; reduce_add(c) -> s:f32[1,1,64]",
};

bool SameBytes(const CaseData& a, const CaseData& b) {
  return std::ranges::equal(a.images, b.images, {}, &oracle::Image::bytes, &oracle::Image::bytes);
}

class CudaGraph : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string error;
    device_ = OpenTestDevice(&error);
    ASSERT_TRUE(device_ && device_->is_gpu()) << error;
    cudnn_ = Cudnn::Open(TestOptions::Get().cudnn, device_->stream(), &error);
    ASSERT_TRUE(cudnn_) << error;
    ASSERT_TRUE(cuda_.Load());
    void* const library = dlopen(TestOptions::Get().cudnn.c_str(), RTLD_NOW);
    ASSERT_TRUE(library);
    Find(library, "cudnnBackendPopulateCudaGraph", populate_);
    Find(library, "cudnnBackendUpdateCudaGraph", update_);
  }
  template <class F>
  static void Find(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    ASSERT_NE(function, nullptr) << name;
  }

  // Launches a copy of the graph that is made for that.
  void Run(void* graph) {
    void* exec = nullptr;
    ASSERT_EQ(cuda_.Instantiate(&exec, graph, 0), 0);
    EXPECT_EQ(cuda_.Launch(exec, device_->stream()), 0);
    EXPECT_EQ(device_->Synchronize(), "");
    cuda_.DestroyExec(exec);
  }
  std::string ErrorOf(cudnnStatus_t status) const { return cudnn_->ErrorOf(status, "graph").text; }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Cudnn> cudnn_;
  GraphFunctions cuda_{};
  decltype(&cudnnBackendPopulateCudaGraph) populate_ = nullptr;
  decltype(&cudnnBackendUpdateCudaGraph) update_ = nullptr;
};

TEST_P(CudaGraph, ComputesWhatExecuteComputes) {
  std::string text;
  const auto c = ParseCase(GetParam(), &text);
  ASSERT_TRUE(c) << text;
  ClientError error;
  const auto graph = Graph::Build(*cudnn_, *c, &error);
  ASSERT_TRUE(graph) << error.text;
  ASSERT_TRUE(graph->Heuristics().ok());
  const auto plan = graph->MakePlan(0, &error);
  ASSERT_TRUE(plan) << error.text;

  const CaseData data[] = {MakeData(*c, 1), MakeData(*c, 2)};
  CaseData expected[] = {data[0], data[1]}, got[] = {data[0], data[1]};
  for (int i = 0; i < 2; ++i) {
    const CaseMemory memory(*device_, *c, data[i], plan->workspace_bytes);
    ASSERT_TRUE(plan->Execute(memory.pack()).ok());
    ASSERT_EQ(device_->Synchronize(), "");
    memory.Download(&expected[i]);
  }
  const CaseMemory first(*device_, *c, data[0], plan->workspace_bytes);
  const CaseMemory second(*device_, *c, data[1], plan->workspace_bytes);
  const Descriptor packs[] = {first.pack().Make(*cudnn_, &error),
                              second.pack().Make(*cudnn_, &error)};
  void *native = nullptr, *outer = nullptr, *node = nullptr, *child = nullptr;
  ASSERT_EQ(cuda_.Create(&native, 0), 0);
  cudnnStatus_t status = populate_(cudnn_->handle(), plan->descriptor().get(), packs[0].get(),
                                   static_cast<cudaGraph_t>(native));
  ASSERT_EQ(status, CUDNN_STATUS_SUCCESS) << ErrorOf(status);
  EXPECT_EQ(populate_(cudnn_->handle(), plan->descriptor().get(), packs[0].get(),
                      static_cast<cudaGraph_t>(native)),
            CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH);
  Run(native);
  first.Download(&got[0]);

  ASSERT_EQ(cuda_.Create(&outer, 0), 0);
  ASSERT_EQ(cuda_.AddChild(&node, outer, nullptr, 0, native), 0);
  ASSERT_EQ(cuda_.GetChild(node, &child), 0);
  status = update_(cudnn_->handle(), plan->descriptor().get(), packs[1].get(),
                   static_cast<cudaGraph_t>(child));
  ASSERT_EQ(status, CUDNN_STATUS_SUCCESS) << ErrorOf(status);
  Run(outer);
  second.Download(&got[1]);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(SameBytes(got[i], expected[i])) << "memory " << i;
    EXPECT_FALSE(SameBytes(got[i], data[i])) << "nothing was computed";
  }
  cuda_.Destroy(outer);
  cuda_.Destroy(native);
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaGraph, ::testing::ValuesIn(kCases), [](const auto& info) {
  const std::string text = info.param;
  return text.substr(0, text.find(':'));
});

}  // namespace
}  // namespace kiln::testing
