// Host memory with aligned_alloc; GPU memory with the driver's functions in the primary context,
// which is the one that libcudart, and so NVIDIA's cuDNN, uses too.
#include "tests/support/device_memory.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace kiln::testing {
namespace {

class HostDevice final : public Device {
 public:
  const std::string& name() const override { return name_; }
  bool is_gpu() const override { return false; }
  void* stream() const override { return nullptr; }
  void* Allocate(size_t bytes) override {
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  void Free(void* memory) override { std::free(memory); }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  std::string Synchronize() override { return ""; }

 private:
  std::string name_ = "host";
};

using DevicePtr = unsigned long long;  // CUdeviceptr
DevicePtr Address(const void* p) { return reinterpret_cast<DevicePtr>(p); }

// The driver's functions in use; resolved by name, all required.
struct Driver {
  int (*Init)(unsigned);
  int (*DriverGetVersion)(int*);
  int (*DeviceGet)(int*, int);
  int (*DeviceGetName)(char*, int, int);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*PrimaryCtxRetain)(void**, int);
  int (*CtxSetCurrent)(void*);
  int (*CtxSynchronize)();
  int (*MemAlloc)(DevicePtr*, size_t);
  int (*MemFree)(DevicePtr);
  int (*MemAllocHost)(void**, size_t);
  int (*MemFreeHost)(void*);
  int (*MemcpyHtoD)(DevicePtr, const void*, size_t);
  int (*MemcpyDtoH)(void*, DevicePtr, size_t);
  int (*MemcpyDtoDAsync)(DevicePtr, DevicePtr, size_t, void*);
  int (*MemsetD8Async)(DevicePtr, unsigned char, size_t, void*);
  int (*StreamCreate)(void**, unsigned);
  int (*EventCreate)(void**, unsigned);
  int (*EventRecord)(void*, void*);
  int (*EventSynchronize)(void*);
  int (*EventElapsedTime)(float*, void*, void*);
  int (*GetErrorString)(int, const char**);
  int (*ModuleLoadData)(void**, const void*);
  int (*ModuleGetFunction)(void**, void*, const char*);
  int (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void*, void**, void**);
};

struct Symbol {
  const char* name;
  void** slot;
};

std::string Load(Driver& d) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return fmt::format("libcuda.so.1: {}", dlerror());
  const auto slot = [](auto& function) { return reinterpret_cast<void**>(&function); };
  const Symbol symbols[] = {{"cuInit", slot(d.Init)},
                            {"cuDriverGetVersion", slot(d.DriverGetVersion)},
                            {"cuDeviceGet", slot(d.DeviceGet)},
                            {"cuDeviceGetName", slot(d.DeviceGetName)},
                            {"cuDeviceGetAttribute", slot(d.DeviceGetAttribute)},
                            {"cuDevicePrimaryCtxRetain", slot(d.PrimaryCtxRetain)},
                            {"cuCtxSetCurrent", slot(d.CtxSetCurrent)},
                            {"cuCtxSynchronize", slot(d.CtxSynchronize)},
                            {"cuMemAlloc_v2", slot(d.MemAlloc)},
                            {"cuMemFree_v2", slot(d.MemFree)},
                            {"cuMemAllocHost_v2", slot(d.MemAllocHost)},
                            {"cuMemFreeHost", slot(d.MemFreeHost)},
                            {"cuMemcpyHtoD_v2", slot(d.MemcpyHtoD)},
                            {"cuMemcpyDtoH_v2", slot(d.MemcpyDtoH)},
                            {"cuMemcpyDtoDAsync_v2", slot(d.MemcpyDtoDAsync)},
                            {"cuMemsetD8Async", slot(d.MemsetD8Async)},
                            {"cuStreamCreate", slot(d.StreamCreate)},
                            {"cuEventCreate", slot(d.EventCreate)},
                            {"cuEventRecord", slot(d.EventRecord)},
                            {"cuEventSynchronize", slot(d.EventSynchronize)},
                            {"cuEventElapsedTime", slot(d.EventElapsedTime)},
                            {"cuGetErrorString", slot(d.GetErrorString)},
                            {"cuModuleLoadData", slot(d.ModuleLoadData)},
                            {"cuModuleGetFunction", slot(d.ModuleGetFunction)},
                            {"cuLaunchKernel", slot(d.LaunchKernel)}};
  for (const Symbol& symbol : symbols) {
    *symbol.slot = dlsym(library, symbol.name);
    if (*symbol.slot == nullptr) return fmt::format("libcuda.so.1 has no {}", symbol.name);
  }
  return "";
}

class CudaDevice final : public GpuDevice {
 public:
  std::string Open() {
    if (std::string error = Load(driver_); !error.empty()) return error;
    int device = 0;
    char name[256] = {};
    if (int rc = driver_.Init(0)) return Text("cuInit", rc);
    if (int rc = driver_.DeviceGet(&device, 0)) return Text("cuDeviceGet", rc);
    driver_.DeviceGetName(name, sizeof(name), device);
    name_ = name;
    int major = 0, minor = 0;
    driver_.DeviceGetAttribute(&major, 75, device);  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    driver_.DeviceGetAttribute(&minor, 76, device);
    capability_ = major * 10 + minor;
    if (int rc = driver_.PrimaryCtxRetain(&context_, device))
      return Text("cuDevicePrimaryCtxRetain", rc);
    if (int rc = driver_.CtxSetCurrent(context_)) return Text("cuCtxSetCurrent", rc);
    if (int rc = driver_.StreamCreate(&stream_, 1))
      return Text("cuStreamCreate", rc);  // non-blocking
    driver_.EventCreate(&begin_, 0);
    driver_.EventCreate(&end_, 0);
    return "";
  }

  const std::string& name() const override { return name_; }
  bool is_gpu() const override { return true; }
  void* stream() const override { return stream_; }
  int ComputeCapability() const override { return capability_; }
  std::string DriverVersion() override {
    int version = 0;
    driver_.DriverGetVersion(&version);
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }
  void BindThread() override { driver_.CtxSetCurrent(context_); }
  void* AllocateHost(size_t bytes) override {
    void* memory = nullptr;
    return driver_.MemAllocHost(&memory, bytes) == 0 ? memory : nullptr;
  }
  void FreeHost(void* memory) override { driver_.MemFreeHost(memory); }
  std::string LoadEmptyKernel() override {
    static constexpr char kPtx[] =
        ".version 7.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d, .param "
        ".u32 e,\n"
        ".param .u32 f, .param .u32 g, .param .u32 h, .param .u32 i, .param .u32 j) { ret; }\n";
    void* module = nullptr;
    if (int rc = driver_.ModuleLoadData(&module, kPtx)) return Text("cuModuleLoadData", rc);
    if (int rc = driver_.ModuleGetFunction(&empty_, module, "empty"))
      return Text("cuModuleGetFunction", rc);
    return "";
  }
  void LaunchEmpty() override {
    uint64_t values[10] = {};
    void* args[10];
    for (int i = 0; i < 10; ++i) args[i] = &values[i];
    driver_.LaunchKernel(empty_, 1, 1, 1, 32, 1, 1, 0, stream_, args, nullptr);
  }
  void* Allocate(size_t bytes) override {
    DevicePtr memory = 0;
    return driver_.MemAlloc(&memory, bytes) == 0 ? reinterpret_cast<void*>(memory) : nullptr;
  }
  void Free(void* memory) override { driver_.MemFree(Address(memory)); }
  void CopyIn(void* device, const void* host, size_t bytes) override {
    Keep("cuCtxSynchronize", driver_.CtxSynchronize());  // the stream waits for no other
    Keep("cuMemcpyHtoD", driver_.MemcpyHtoD(Address(device), host, bytes));
    Keep("cuCtxSynchronize", driver_.CtxSynchronize());  // pageable copies may return early
  }
  void CopyOut(void* host, const void* device, size_t bytes) override {
    Keep("cuCtxSynchronize", driver_.CtxSynchronize());
    Keep("cuMemcpyDtoH", driver_.MemcpyDtoH(host, Address(device), bytes));
  }
  std::string Synchronize() override {
    Keep("cuCtxSynchronize", driver_.CtxSynchronize());
    return std::exchange(error_, "");
  }
  void CopyAsync(void* to, const void* from, size_t bytes) override {
    Keep("cuMemcpyDtoDAsync", driver_.MemcpyDtoDAsync(Address(to), Address(from), bytes, stream_));
  }
  void FillAsync(void* device, uint8_t byte, size_t bytes) override {
    Keep("cuMemsetD8Async", driver_.MemsetD8Async(Address(device), byte, bytes, stream_));
  }
  void RecordBegin() override { driver_.EventRecord(begin_, stream_); }
  void RecordEnd() override { driver_.EventRecord(end_, stream_); }
  double ElapsedMicroseconds() override {
    float milliseconds = 0;
    driver_.EventSynchronize(end_);
    driver_.EventElapsedTime(&milliseconds, begin_, end_);
    return milliseconds * 1e3;
  }

 private:
  std::string Text(const char* call, int rc) const {
    const char* text = nullptr;
    driver_.GetErrorString(rc, &text);
    return fmt::format("{}: {} ({})", call, text ? text : "unknown error", rc);
  }
  void Keep(const char* call, int rc) {
    if (rc != 0 && error_.empty()) error_ = Text(call, rc);
  }

  Driver driver_{};
  std::string name_, error_;
  int capability_ = 0;
  void* context_ = nullptr;
  void *stream_ = nullptr, *begin_ = nullptr, *end_ = nullptr, *empty_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> OpenHostDevice() { return std::make_unique<HostDevice>(); }

std::unique_ptr<GpuDevice> OpenGpuDevice(std::string* error) {
  auto device = std::make_unique<CudaDevice>();
  *error = device->Open();
  if (!error->empty()) return nullptr;
  return device;
}

std::unique_ptr<Device> OpenTestDevice(std::string* error) {
  const char* wanted = std::getenv("KILN_DEVICE");
  if (wanted != nullptr && std::strcmp(wanted, "cpu") == 0) return OpenHostDevice();
  return OpenGpuDevice(error);
}

}  // namespace kiln::testing
