// libcuda as far as Kiln uses it, on a machine without a GPU (KILN_LIBCUDA): one H200 that loads
// everything and runs nothing. What is launched is counted, and so is what is loaded; memory is the
// host's. With it the whole library takes the path that it takes on a GPU, down to the driver's
// functions: plans and their JSON, kernels on disk, graphs, and what a call costs on the host.
//
// Signatures are those of runtime/cuda/driver_functions.def.
#include <cstdlib>
#include <cstring>
#include <string>
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

int modules = 0, launches = 0;
int64_t last_blocks = 0;  // of the last launch's grid
int context = 0, function = 0;
CuContext current = nullptr;

constexpr CuResult kInvalidValue = 1;

CuContext Primary() { return reinterpret_cast<CuContext>(&context); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// For tests.
int standinModules() { return modules; }
int standinLaunches() { return launches; }
int64_t standinLastBlocks() { return last_blocks; }

CuResult cuInit(unsigned) { return kCuSuccess; }
CuResult cuDriverGetVersion(int* version) { return *version = 13000, kCuSuccess; }
CuResult cuGetErrorName(CuResult, const char** text) { return *text = "standin", kCuSuccess; }
CuResult cuGetErrorString(CuResult, const char** text) { return *text = "standin", kCuSuccess; }

CuResult cuDeviceGetCount(int* count) { return *count = 1, kCuSuccess; }
CuResult cuDeviceGet(CuDevice* device, int) { return *device = 0, kCuSuccess; }
CuResult cuDeviceGetName(char* name, int size, CuDevice) {
  return std::strncpy(name, "NVIDIA H200", static_cast<size_t>(size)), kCuSuccess;
}
CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  return *value = AttributeOfH200(attribute), kCuSuccess;
}
CuResult cuDevicePrimaryCtxRetain(CuContext* out, CuDevice) { return *out = Primary(), kCuSuccess; }

CuResult cuCtxGetCurrent(CuContext* out) { return *out = current, kCuSuccess; }
CuResult cuCtxPushCurrent_v2(CuContext pushed) { return current = pushed, kCuSuccess; }
CuResult cuCtxPopCurrent_v2(CuContext* popped) {
  *popped = current;
  return current = nullptr, kCuSuccess;
}
CuResult cuCtxGetDevice(CuDevice* device) { return *device = 0, kCuSuccess; }
CuResult cuCtxGetId(CuContext, unsigned long long* id) { return *id = 1, kCuSuccess; }

CuResult cuPointerGetAttribute(int*, int, CuAddress) { return kInvalidValue; }

CuResult cuModuleLoadData(CuModule* module, const void*) {
  ++modules;
  return *module = reinterpret_cast<CuModule>(&context), kCuSuccess;
}
CuResult cuModuleUnload(CuModule) { return kCuSuccess; }
CuResult cuModuleGetFunction(CuFunction* out, CuModule, const char*) {
  return *out = reinterpret_cast<CuFunction>(&function), kCuSuccess;
}
CuResult cuFuncGetAttribute(int* value, int, CuFunction) { return *value = 0, kCuSuccess; }
CuResult cuFuncSetAttribute(CuFunction, int, int) { return kCuSuccess; }
CuResult cuFuncLoad(CuFunction) { return kCuSuccess; }

CuResult cuTensorMapEncodeTiled(void*, int, unsigned, void*, const uint64_t*, const uint64_t*,
                                const uint32_t*, const uint32_t*, int, int, int, int) {
  return kCuSuccess;
}
CuResult cuTensorMapEncodeIm2col(void*, int, unsigned, void*, const uint64_t*, const uint64_t*,
                                 const int*, const int*, unsigned, unsigned, const uint32_t*, int,
                                 int, int, int) {
  return kCuSuccess;
}
CuResult cuTensorMapReplaceAddress(void*, void*) { return kCuSuccess; }
CuResult cuLaunchKernel(CuFunction, unsigned x, unsigned y, unsigned z, unsigned, unsigned,
                        unsigned, unsigned, CuStream, void**, void**) {
  ++launches;
  last_blocks = int64_t{x} * y * z;
  return kCuSuccess;
}
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunction function, void** args,
                          void** extra) {
  const auto& grid = config->grid;
  return cuLaunchKernel(function, grid[0], grid[1], grid[2], 1, 1, 1, 0, nullptr, args, extra);
}

CuResult cuGraphCreate(CuGraph* graph, unsigned) {
  return *graph = reinterpret_cast<CuGraph>(new Graph), kCuSuccess;
}
CuResult cuGraphDestroy(CuGraph graph) {
  auto* const whole = reinterpret_cast<Graph*>(graph);
  for (Node* node : whole->nodes) delete node;
  return delete whole, kCuSuccess;
}
CuResult cuGraphAddKernelNode_v2(CuGraphNode* out, CuGraph graph, const CuGraphNode*, size_t,
                                 const CuKernelNodeParams* params) {
  auto& nodes = reinterpret_cast<Graph*>(graph)->nodes;
  nodes.push_back(new Node{reinterpret_cast<Graph*>(graph), nodes.size(), *params});
  return *out = reinterpret_cast<CuGraphNode>(nodes.back()), kCuSuccess;
}
CuResult cuGraphKernelNodeGetParams_v2(CuGraphNode node, CuKernelNodeParams* params) {
  return *params = reinterpret_cast<Node*>(node)->params, kCuSuccess;
}
CuResult cuGraphKernelNodeSetParams_v2(CuGraphNode node, const CuKernelNodeParams* params) {
  return reinterpret_cast<Node*>(node)->params = *params, kCuSuccess;
}
CuResult cuGraphGetRootNodes(CuGraph graph, CuGraphNode* nodes, size_t* count) {
  const auto& all = reinterpret_cast<Graph*>(graph)->nodes;
  *count = all.empty() ? 0 : 1;
  if (nodes != nullptr && *count == 1) *nodes = reinterpret_cast<CuGraphNode>(all[0]);
  return kCuSuccess;
}
CuResult cuGraphNodeGetDependentNodes(CuGraphNode node, CuGraphNode* nodes, size_t* count) {
  const auto* const before = reinterpret_cast<Node*>(node);
  const auto& all = before->graph->nodes;
  *count = before->place + 1 < all.size() ? 1 : 0;
  if (nodes != nullptr && *count == 1)
    *nodes = reinterpret_cast<CuGraphNode>(all[before->place + 1]);
  return kCuSuccess;
}

CuResult cuStreamSynchronize(CuStream) { return kCuSuccess; }
CuResult cuStreamIsCapturing(CuStream, int* capture_status) {
  return *capture_status = 0, kCuSuccess;
}
CuResult cuThreadExchangeStreamCaptureMode(int*) { return kCuSuccess; }
CuResult cuEventCreate(CuEvent* event, unsigned) {
  return *event = reinterpret_cast<CuEvent>(&context), kCuSuccess;
}
CuResult cuEventRecord(CuEvent, CuStream) { return kCuSuccess; }
CuResult cuEventSynchronize(CuEvent) { return kCuSuccess; }
CuResult cuEventElapsedTime(float* milliseconds, CuEvent, CuEvent) {
  return *milliseconds = 1, kCuSuccess;
}
CuResult cuEventDestroy_v2(CuEvent) { return kCuSuccess; }

CuResult cuMemAlloc_v2(CuAddress* address, size_t bytes) {
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *address = reinterpret_cast<CuAddress>(memory), kCuSuccess;
}
CuResult cuMemFree_v2(CuAddress address) {
  return std::free(reinterpret_cast<void*>(address)), kCuSuccess;
}
CuResult cuMemcpyHtoD_v2(CuAddress to, const void* from, size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), kCuSuccess;
}
CuResult cuMemcpyDtoH_v2(void* to, CuAddress from, size_t bytes) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), kCuSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
