// A libcuda.so.1 that has what KILN_LAUNCH=minimal may call, and nothing else: modules load, their
// functions are found and launched, questions about a device (an H200) are answered. Whatever else
// is called fails, and its name is kept for the test to see. No kernel runs; memory is the host's.
#include "tests/support/minimal_cuda/driver.h"

#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kNotPermitted = 800;  // CUDA_ERROR_NOT_PERMITTED

std::mutex mutex;
std::set<std::string> violations;
std::string violations_text;
long launches = 0;
int context, modules;

int Refuse(const char* function) {
  const std::lock_guard lock(mutex);
  violations.insert(function);
  return kNotPermitted;
}

int AttributeOf(int attribute) {
  switch (attribute) {
    case 1:
      return 1024;  // threads of a block
    case 13:
      return 1980000;  // kHz
    case 16:
      return 132;  // multiprocessors
    case 36:
      return 3201000;  // kHz of memory
    case 37:
      return 6144;  // bits of memory
    case 38:
      return 62914560;  // L2
    case 75:
      return 9;
    case 76:
      return 0;
    case 82:
      return 65536;  // registers
    case 97:
      return 232448;  // shared memory of a block
    default:
      return 0;
  }
}

}  // namespace

// ---- for the test

EXPORT const char* MinimalCudaViolations() {
  const std::lock_guard lock(mutex);
  violations_text.clear();
  for (const std::string& name : violations) violations_text += name + " ";
  violations.clear();
  return violations_text.c_str();
}

EXPORT long MinimalCudaLaunches() {
  const std::lock_guard lock(mutex);
  return std::exchange(launches, 0);
}

// ---- permitted

EXPORT int cuInit(unsigned) { return 0; }
EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
EXPORT int cuGetErrorName(int, const char** text) { return *text = "CUDA_ERROR_NOT_PERMITTED", 0; }
EXPORT int cuGetErrorString(int, const char** text) { return *text = "not permitted", 0; }
EXPORT int cuDeviceGetCount(int* count) { return *count = 1, 0; }
EXPORT int cuDeviceGet(int* device, int) { return *device = 0, 0; }
EXPORT int cuDeviceGetName(char* name, int size, int) {
  return std::strncpy(name, "NVIDIA H200", static_cast<size_t>(size)), 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  return *value = AttributeOf(attribute), 0;
}
EXPORT int cuCtxGetCurrent(void** current) { return *current = &context, 0; }
EXPORT int cuCtxGetDevice(int* device) { return *device = 0, 0; }
EXPORT int cuCtxGetId(void*, unsigned long long* id) { return *id = 1, 0; }
// All memory is the host's, which the driver does not know.
EXPORT int cuPointerGetAttribute(int*, int, unsigned long long) { return 1; }
EXPORT int cuStreamGetCtx(void*, void** own) { return *own = &context, 0; }
EXPORT int cuStreamIsCapturing(void*, int* status) { return *status = 0, 0; }
EXPORT int cuModuleLoadData(void** module, const void*) { return *module = &modules, 0; }
EXPORT int cuModuleGetFunction(void** function, void* module, const char*) {
  return *function = module, 0;
}
EXPORT int cuLaunchKernel(void*, unsigned x, unsigned y, unsigned z, unsigned, unsigned, unsigned,
                          unsigned dynamic_shared_bytes, void*, void**, void**) {
  const std::lock_guard lock(mutex);
  if (x == 0 || y == 0 || z == 0 || dynamic_shared_bytes != 0)
    violations.insert("cuLaunchKernel(empty, or dynamic shared memory)");
  ++launches;
  return 0;
}

// ---- refused

#define REFUSED(name) \
  EXPORT int name() { return Refuse(#name); }

REFUSED(cuDevicePrimaryCtxRetain)
REFUSED(cuCtxPushCurrent_v2)
REFUSED(cuCtxPopCurrent_v2)
REFUSED(cuModuleUnload)
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuFuncLoad)
REFUSED(cuTensorMapEncodeTiled)
REFUSED(cuTensorMapEncodeIm2col)
REFUSED(cuTensorMapReplaceAddress)
REFUSED(cuLaunchKernelEx)
REFUSED(cuGraphAddKernelNode_v2)
REFUSED(cuGraphKernelNodeGetParams_v2)
REFUSED(cuGraphKernelNodeSetParams_v2)
REFUSED(cuGraphKernelNodeSetAttribute)
REFUSED(cuGraphGetRootNodes)
REFUSED(cuGraphNodeGetDependentNodes)
REFUSED(cuStreamSynchronize)
REFUSED(cuThreadExchangeStreamCaptureMode)
REFUSED(cuEventCreate)
REFUSED(cuEventRecord)
REFUSED(cuEventSynchronize)
REFUSED(cuEventElapsedTime)
REFUSED(cuEventDestroy_v2)
REFUSED(cuMemAlloc_v2)
REFUSED(cuMemFree_v2)
REFUSED(cuMemAllocAsync)
REFUSED(cuMemAllocHost_v2)
REFUSED(cuMemFreeAsync)
REFUSED(cuMemcpyHtoD_v2)
REFUSED(cuMemcpyDtoH_v2)
REFUSED(cuMemcpyDtoD_v2)
REFUSED(cuMemsetD8_v2)
