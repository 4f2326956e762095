// libcuda as far as Kiln uses it, on a machine without a GPU (KILN_LIBCUDA): one H200 that loads
// everything and runs nothing. What is launched is counted, and so is what is loaded; memory is the
// host's. With it the whole library takes the path that it takes on a GPU, down to the driver's
// functions: plans and their JSON, kernels on disk, graphs, and what a call costs on the host.
//
// Contexts live and die: the primary one with standinReset, as with cudaDeviceReset, others with
// cuCtxCreate_v2 and cuCtxDestroy_v2. A function is of the context in which its module was loaded,
// and answers CUDA_ERROR_INVALID_HANDLE in any other.
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
std::atomic<long> new_launches = 0, stale_launches = 0, dead_pushed = 0;
// Functions that allocate, free, copy, wait or give up code.
std::mutex mutex;
std::set<std::string> violations;
std::string violations_text;
std::atomic<int64_t> last_blocks = 0;  // of the last launch's grid
int any_event = 0;

// Contexts stay where they were, so that asking of a dead one is no crash.
struct Context {
  std::atomic<unsigned long long> id = 0;  // 0: dead
};
std::atomic<unsigned long long> last_id = 0;
Context primary;
std::vector<Context*> spare;  // destroyed ones, whose addresses come again; under mutex
thread_local std::vector<CuContext> stack;

constexpr CuResult kInvalidValue = 1;

// STANDIN_CHIP=sm_80 or sm_100: the library sees that chip in place of an H200's.
struct Chip {
  const char *arch, *name;
  int major, minor, multiprocessors, shared_bytes;
};
constexpr Chip kChips[] = {{"sm_80", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912},
                           {"sm_100", "NVIDIA B200", 10, 0, 148, 232448}};
// Null: an H200.
const Chip* ChipOfEnvironment() {
  const char* const arch = std::getenv("STANDIN_CHIP");
  for (const Chip& chip : kChips)
    if (arch != nullptr && std::strcmp(arch, chip.arch) == 0) return &chip;
  return nullptr;
}

int AttributeOf(const Chip& chip, int attribute) {
  switch (attribute) {
    case CuDeviceAttribute::kComputeCapabilityMajor:
      return chip.major;
    case CuDeviceAttribute::kComputeCapabilityMinor:
      return chip.minor;
    case CuDeviceAttribute::kMultiprocessorCount:
      return chip.multiprocessors;
    case CuDeviceAttribute::kMaxSharedMemoryPerBlockOptin:
      return chip.shared_bytes;
  }
  return AttributeOfH200(attribute);
}

CuContext Primary() { return reinterpret_cast<CuContext>(&primary); }
Context* Of(CuContext context) { return reinterpret_cast<Context*>(context); }
CuContext Current() { return stack.empty() ? nullptr : stack.back(); }
unsigned long long CurrentId() { return stack.empty() ? 0 : Of(stack.back())->id.load(); }

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

// The emulated GPU (tests/support/emulated_gpu) has definitions of its own of these.
#pragma weak cuDeviceGetName
#pragma weak cuDeviceGetAttribute
#pragma weak cuGetErrorName
#pragma weak cuGetErrorString
#pragma weak cuModuleLoadData
#pragma weak cuModuleUnload
#pragma weak cuModuleGetFunction
#pragma weak cuFuncGetAttribute
#pragma weak cuLaunchKernel
#pragma weak cuLaunchKernelEx
#pragma weak cuMemAlloc_v2
#pragma weak cuMemFree_v2
#pragma weak cuMemAllocAsync
#pragma weak cuMemAllocHost_v2
#pragma weak cuMemFreeAsync
#pragma weak cuMemcpyHtoD_v2
#pragma weak cuMemcpyDtoH_v2
#pragma weak cuMemcpyDtoD_v2
#pragma weak cuMemsetD8_v2
#pragma weak cuStreamSynchronize
#pragma weak cuTensorMapEncodeTiled
#pragma weak cuTensorMapEncodeIm2col
#pragma weak cuTensorMapReplaceAddress

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
// cudaDeviceReset: the primary context stays current where it was, and is dead until the next
// cuDevicePrimaryCtxRetain.
void standinReset() { primary.id = 0; }
// Launches of functions of another context than the current one, and dead contexts made current.
long standinStaleCalls() { return stale_launches + dead_pushed; }
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
  const Chip* const chip = ChipOfEnvironment();
  std::strncpy(name, chip == nullptr ? "NVIDIA H200" : chip->name, static_cast<size_t>(size));
  return kCuSuccess;
}
CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice) {
  Hear("cuDeviceGetAttribute");
  const Chip* const chip = ChipOfEnvironment();
  *value = chip == nullptr ? AttributeOfH200(attribute) : AttributeOf(*chip, attribute);
  return kCuSuccess;
}
CuResult cuDevicePrimaryCtxRetain(CuContext* out, CuDevice) {
  Hear("cuDevicePrimaryCtxRetain");
  unsigned long long none = 0;
  primary.id.compare_exchange_strong(none, ++last_id);
  return *out = Primary(), kCuSuccess;
}

CuResult cuCtxCreate_v2(CuContext* out, unsigned, CuDevice) {
  const std::lock_guard lock(mutex);
  if (spare.empty()) spare.push_back(new Context);
  Context* const made = spare.back();
  spare.pop_back();
  made->id = ++last_id;
  stack.push_back(*out = reinterpret_cast<CuContext>(made));
  return kCuSuccess;
}
CuResult cuCtxDestroy_v2(CuContext context) {
  const std::lock_guard lock(mutex);
  Of(context)->id = 0;
  spare.push_back(Of(context));
  if (Current() == context) stack.pop_back();
  return kCuSuccess;
}
CuResult cuCtxSetCurrent(CuContext context) {
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return kCuSuccess;
}
CuResult cuCtxGetCurrent(CuContext* out) {
  Hear("cuCtxGetCurrent");
  return *out = Current(), kCuSuccess;
}
CuResult cuCtxPushCurrent_v2(CuContext pushed) {
  Hear("cuCtxPushCurrent_v2");
  if (Of(pushed)->id == 0) ++dead_pushed;
  return stack.push_back(pushed), kCuSuccess;
}
CuResult cuCtxPopCurrent_v2(CuContext* popped) {
  Hear("cuCtxPopCurrent_v2");
  *popped = Current();
  return stack.pop_back(), kCuSuccess;
}
CuResult cuCtxGetDevice(CuDevice* device) {
  Hear("cuCtxGetDevice");
  if (stack.empty()) return kCuErrorInvalidContext;
  return *device = 0, kCuSuccess;
}
CuResult cuCtxGetId(CuContext context, unsigned long long* id) {
  Hear("cuCtxGetId");
  if (context == nullptr) context = Current();
  if (context == nullptr) return kCuErrorInvalidContext;
  return *id = Of(context)->id, *id == 0 ? kCuErrorContextIsDestroyed : kCuSuccess;
}

CuResult cuPointerGetAttribute(int*, int, CuAddress) {
  Hear("cuPointerGetAttribute");
  return kInvalidValue;
}

// A module, and each function of it, is the id of its context.
CuResult cuModuleLoadData(CuModule* module, const void*) {
  Hear("cuModuleLoadData");
  if (CurrentId() == 0) return kCuErrorContextIsDestroyed;
  ++modules;
  return *module = reinterpret_cast<CuModule>(CurrentId()), kCuSuccess;
}
CuResult cuModuleUnload(CuModule) {
  Hear("cuModuleUnload");
  return Noted("cuModuleUnload");
}
CuResult cuModuleGetFunction(CuFunction* out, CuModule module, const char*) {
  Hear("cuModuleGetFunction");
  return *out = reinterpret_cast<CuFunction>(module), kCuSuccess;
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
CuResult cuLaunchKernel(CuFunction function, unsigned x, unsigned y, unsigned z, unsigned, unsigned,
                        unsigned, unsigned, CuStream, void**, void**) {
  Hear("cuLaunchKernel");
  if (CurrentId() == 0) return kCuErrorContextIsDestroyed;
  if (reinterpret_cast<unsigned long long>(function) != CurrentId())
    return ++stale_launches, kCuErrorInvalidHandle;
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
CuResult cuGraphKernelNodeSetAttribute(CuGraphNode, int, const void*) {
  return Hear("cuGraphKernelNodeSetAttribute"), kCuSuccess;
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
CuResult cuStreamGetCtx(CuStream, CuContext* own) {
  Hear("cuStreamGetCtx");
  return *own = Current(), stack.empty() ? kCuErrorInvalidContext : kCuSuccess;
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
  return *event = reinterpret_cast<CuEvent>(&any_event), Noted("cuEventCreate");
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
// Memory that a stream has been given is as good at once: launches do nothing here.
CuResult cuMemAllocAsync(CuAddress* address, size_t bytes, CuStream) {
  Hear("cuMemAllocAsync");
  void* const memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *address = reinterpret_cast<CuAddress>(memory), Noted("cuMemAllocAsync");
}
CuResult cuMemAllocHost_v2(void** memory, size_t bytes) {
  Hear("cuMemAllocHost_v2");
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return Noted("cuMemAllocHost_v2");
}
CuResult cuMemFreeAsync(CuAddress address, CuStream) {
  Hear("cuMemFreeAsync");
  return std::free(reinterpret_cast<void*>(address)), Noted("cuMemFreeAsync");
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
