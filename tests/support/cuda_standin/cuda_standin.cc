// libcuda as far as Kiln uses it, on a machine without a GPU (KILN_LIBCUDA): one H200 that loads
// everything and runs nothing. What is launched is counted, and so is what is loaded; memory is the
// host's. With it the whole library takes the path that it takes on a GPU, down to the driver's
// functions: plans and their JSON, kernels on disk, graphs, and what a call costs on the host.
//
// Signatures are those of runtime/cuda/driver_functions.def.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/driver.h"
#include "tests/support/cuda_standin/h200.h"

using namespace kiln::runtime;

namespace {

// A graph: its nodes in a row.
struct Graph {
  std::vector<struct Node*> nodes;
};
struct Node {
  Graph* graph;
  size_t place;
  CuKernelNodeParams params;
};

std::atomic<int> modules = 0, launches = 0;
std::atomic<long> new_launches = 0;
// Functions that allocate, free, copy, wait or give up code.
std::mutex mutex;
std::set<std::string> violations;
std::string violations_text;
std::atomic<int64_t> last_blocks = 0;  // of the last launch's grid
int context = 0, function = 0;
thread_local CuContext current = nullptr;

constexpr CuResult kInvalidValue = 1;

CuContext Primary() { return reinterpret_cast<CuContext>(&context); }

// From when on any call ends the process.
std::atomic<bool> over{false};
void Hear(const char* function) {
  if (!over.load(std::memory_order_relaxed)) return;
  std::fprintf(stderr, "%s is called when all is over\n", function);
  std::abort();
}

CuResult Noted(const char* function) {
  const std::lock_guard lock(mutex);
  violations.insert(function);
  return kCuSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// For tests.
int standinModules() { return modules; }
int standinLaunches() { return launches; }
int64_t standinLastBlocks() { return last_blocks; }
// As MinimalCudaViolations and MinimalCudaLaunches.
const char* standinViolations() {
  const std::lock_guard lock(mutex);
  violations_text.clear();
  for (const std::string& name : violations) violations_text += name + " ";
  violations.clear();
  return violations_text.c_str();
}
// No call may follow.
void standinIsOver() { over.store(true); }
long standinNewLaunches() { return new_launches.exchange(0); }

CuResult cuInit(unsigned) {
  Hear("cuInit");
  return kCuSuccess;
}
CuResult cuDriverGetVersion(int* version) {
  Hear("cuDriverGetVersion");
  return *version = 13000, kCuSuccess;
}
CuResult cuGetErrorName(CuResult, const char** text) {
  Hear("cuGetErrorName");
  return *text = "standin", kCuSuccess;
}
CuResult cuGetErrorString(CuResult, const char** text) {
  Hear("cuGetErrorString");
  return *text = "standin", kCuSuccess;
}

CuResult cuDeviceGetCount(int* count) {
  Hear("cuDeviceGetCount");
  return *count = 1, kCuSuccess;
}
CuResult cuDeviceGet(CuDevice* device, int) {
  Hear("cuDeviceGet");
  return *device = 0, kCuSuccess;
}
CuResult cuDeviceGetName(char* name, int size, CuDevice) {
  Hear("cuDeviceGetName");
  return std::strncpy(name, "NVIDIA H200", static_cast<size_t>(size)), kCuSuccess;
}
CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  Hear("cuDeviceGetAttribute");
  return *value = AttributeOfH200(attribute), kCuSuccess;
}
CuResult cuDevicePrimaryCtxRetain(CuContext* out, CuDevice) {
  Hear("cuDevicePrimaryCtxRetain");
  return *out = Primary(), kCuSuccess;
}

CuResult cuCtxGetCurrent(CuContext* out) {
  Hear("cuCtxGetCurrent");
  return *out = current, kCuSuccess;
}
CuResult cuCtxPushCurrent_v2(CuContext pushed) {
  Hear("cuCtxPushCurrent_v2");
  return current = pushed, kCuSuccess;
}
CuResult cuCtxPopCurrent_v2(CuContext* popped) {
  Hear("cuCtxPopCurrent_v2");
  *popped = current;
  return current = nullptr, kCuSuccess;
}
CuResult cuCtxGetDevice(CuDevice* device) {
  Hear("cuCtxGetDevice");
  return *device = 0, kCuSuccess;
}
CuResult cuCtxGetId(CuContext, unsigned long long* id) {
  Hear("cuCtxGetId");
  return *id = 1, kCuSuccess;
}

CuResult cuPointerGetAttribute(int*, int, CuAddress) {
  Hear("cuPointerGetAttribute");
  return kInvalidValue;
}

CuResult cuModuleLoadData(CuModule* module, const void*) {
  Hear("cuModuleLoadData");
  ++modules;
  return *module = reinterpret_cast<CuModule>(&context), kCuSuccess;
}
CuResult cuModuleUnload(CuModule) {
  Hear("cuModuleUnload");
  return Noted("cuModuleUnload");
}
CuResult cuModuleGetFunction(CuFunction* out, CuModule, const char*) {
  Hear("cuModuleGetFunction");
  return *out = reinterpret_cast<CuFunction>(&function), kCuSuccess;
}
CuResult cuFuncGetAttribute(int* value, int, CuFunction) {
  Hear("cuFuncGetAttribute");
  return *value = 0, kCuSuccess;
}
CuResult cuFuncSetAttribute(CuFunction, int, int) {
  Hear("cuFuncSetAttribute");
  return kCuSuccess;
}
CuResult cuFuncLoad(CuFunction) {
  Hear("cuFuncLoad");
  return kCuSuccess;
}

CuResult cuTensorMapEncodeTiled(void*, int, unsigned, void*, const uint64_t*, const uint64_t*,
                                const uint32_t*, const uint32_t*, int, int, int, int) {
  Hear("cuTensorMapEncodeTiled");
  return kCuSuccess;
}
CuResult cuTensorMapEncodeIm2col(void*, int, unsigned, void*, const uint64_t*, const uint64_t*,
                                 const int*, const int*, unsigned, unsigned, const uint32_t*, int,
                                 int, int, int) {
  Hear("cuTensorMapEncodeIm2col");
  return kCuSuccess;
}
CuResult cuTensorMapReplaceAddress(void*, void*) {
  Hear("cuTensorMapReplaceAddress");
  return kCuSuccess;
}
CuResult cuLaunchKernel(CuFunction, unsigned x, unsigned y, unsigned z, unsigned, unsigned,
                        unsigned, unsigned, CuStream, void**, void**) {
  Hear("cuLaunchKernel");
  ++launches, ++new_launches;
  last_blocks = int64_t{x} * y * z;
  return kCuSuccess;
}
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunction function, void** args,
                          void** extra) {
  Hear("cuLaunchKernelEx");
  const auto& grid = config->grid;
  return cuLaunchKernel(function, grid[0], grid[1], grid[2], 1, 1, 1, 0, nullptr, args, extra);
}

CuResult cuGraphCreate(CuGraph* graph, unsigned) {
  Hear("cuGraphCreate");
  return *graph = reinterpret_cast<CuGraph>(new Graph), kCuSuccess;
}
CuResult cuGraphDestroy(CuGraph graph) {
  Hear("cuGraphDestroy");
  auto* const whole = reinterpret_cast<Graph*>(graph);
  for (Node* node : whole->nodes) delete node;
  return delete whole, kCuSuccess;
}
CuResult cuGraphAddKernelNode_v2(CuGraphNode* out, CuGraph graph, const CuGraphNode*, size_t,
                                 const CuKernelNodeParams* params) {
  Hear("cuGraphAddKernelNode_v2");
  auto& nodes = reinterpret_cast<Graph*>(graph)->nodes;
  nodes.push_back(new Node{reinterpret_cast<Graph*>(graph), nodes.size(), *params});
  return *out = reinterpret_cast<CuGraphNode>(nodes.back()), kCuSuccess;
}
CuResult cuGraphKernelNodeGetParams_v2(CuGraphNode node, CuKernelNodeParams* params) {
  Hear("cuGraphKernelNodeGetParams_v2");
  return *params = reinterpret_cast<Node*>(node)->params, kCuSuccess;
}
CuResult cuGraphKernelNodeSetParams_v2(CuGraphNode node, const CuKernelNodeParams* params) {
  Hear("cuGraphKernelNodeSetParams_v2");
  return reinterpret_cast<Node*>(node)->params = *params, kCuSuccess;
}
CuResult cuGraphGetRootNodes(CuGraph graph, CuGraphNode* nodes, size_t* count) {
  Hear("cuGraphGetRootNodes");
  const auto& all = reinterpret_cast<Graph*>(graph)->nodes;
  *count = all.empty() ? 0 : 1;
  if (nodes != nullptr && *count == 1) *nodes = reinterpret_cast<CuGraphNode>(all[0]);
  return kCuSuccess;
}
CuResult cuGraphNodeGetDependentNodes(CuGraphNode node, CuGraphNode* nodes, size_t* count) {
  Hear("cuGraphNodeGetDependentNodes");
  const auto* const before = reinterpret_cast<Node*>(node);
  const auto& all = before->graph->nodes;
  *count = before->place + 1 < all.size() ? 1 : 0;
  if (nodes != nullptr && *count == 1)
    *nodes = reinterpret_cast<CuGraphNode>(all[before->place + 1]);
  return kCuSuccess;
}

CuResult cuStreamSynchronize(CuStream) {
  Hear("cuStreamSynchronize");
  return Noted("cuStreamSynchronize");
}
CuResult cuStreamIsCapturing(CuStream, int* capture_status) {
  Hear("cuStreamIsCapturing");
  return *capture_status = 0, kCuSuccess;
}
CuResult cuThreadExchangeStreamCaptureMode(int*) {
  Hear("cuThreadExchangeStreamCaptureMode");
  return kCuSuccess;
}
CuResult cuEventCreate(CuEvent* event, unsigned) {
  Hear("cuEventCreate");
  return *event = reinterpret_cast<CuEvent>(&context), Noted("cuEventCreate");
}
CuResult cuEventRecord(CuEvent, CuStream) {
  Hear("cuEventRecord");
  return Noted("cuEventRecord");
}
CuResult cuEventSynchronize(CuEvent) {
  Hear("cuEventSynchronize");
  return Noted("cuEventSynchronize");
}
CuResult cuEventElapsedTime(float* milliseconds, CuEvent, CuEvent) {
  Hear("cuEventElapsedTime");
  return *milliseconds = 1, Noted("cuEventElapsedTime");
}
CuResult cuEventDestroy_v2(CuEvent) {
  Hear("cuEventDestroy_v2");
  return Noted("cuEventDestroy_v2");
}

CuResult cuMemAlloc_v2(CuAddress* address, size_t bytes) {
  Hear("cuMemAlloc_v2");
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *address = reinterpret_cast<CuAddress>(memory), Noted("cuMemAlloc_v2");
}
CuResult cuMemFree_v2(CuAddress address) {
  Hear("cuMemFree_v2");
  return std::free(reinterpret_cast<void*>(address)), Noted("cuMemFree_v2");
}
CuResult cuMemcpyHtoD_v2(CuAddress to, const void* from, size_t bytes) {
  Hear("cuMemcpyHtoD_v2");
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), Noted("cuMemcpyHtoD_v2");
}
CuResult cuMemcpyDtoH_v2(void* to, CuAddress from, size_t bytes) {
  Hear("cuMemcpyDtoH_v2");
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), Noted("cuMemcpyDtoH_v2");
}
CuResult cuMemcpyDtoD_v2(CuAddress to, CuAddress from, size_t bytes) {
  Hear("cuMemcpyDtoD_v2");
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return Noted("cuMemcpyDtoD_v2");
}
CuResult cuMemsetD8_v2(CuAddress to, unsigned char value, size_t bytes) {
  Hear("cuMemsetD8_v2");
  return std::memset(reinterpret_cast<void*>(to), value, bytes), Noted("cuMemsetD8_v2");
}

}  // extern "C"
#pragma GCC visibility pop
