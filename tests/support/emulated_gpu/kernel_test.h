// Fixture that the tests of the emulated GPU share: CUDA text through the system's NVRTC to PTX,
// launched on the driver that is linked in. Expected values are host loops of the tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/nvrtc.h"

extern "C" {
using namespace kiln::runtime;
CuResult cuDevicePrimaryCtxRetain(CuContext* out, CuDevice device);
CuResult cuCtxSetCurrent(CuContext context);
CuResult cuModuleLoadData(CuModule* module, const void* image);
CuResult cuModuleUnload(CuModule module);
CuResult cuModuleGetFunction(CuFunction* out, CuModule module, const char* name);
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunction function, void** args,
                          void** extra);
CuResult cuMemAlloc_v2(CuAddress* address, size_t bytes);
CuResult cuMemFree_v2(CuAddress address);
CuResult cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address,
                                const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                                const uint32_t* element_strides, int interleave, int swizzle,
                                int promotion, int fill);
CuResult cuTensorMapEncodeIm2col(void* map, int type, unsigned rank, void* address,
                                 const uint64_t* dims, const uint64_t* strides, const int* lower,
                                 const int* upper, unsigned channels, unsigned pixels,
                                 const uint32_t* element_strides, int interleave, int swizzle,
                                 int promotion, int fill);
}

namespace kiln::emulated {

// Memory of the emulated GPU.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t size) : size_(size) { cuMemAlloc_v2(&address_, size * sizeof(T)); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    std::memcpy(data(), values.data(), size_ * sizeof(T));
  }
  ~DeviceArray() { cuMemFree_v2(address_); }
  DeviceArray(const DeviceArray&) = delete;

  T* data() const { return reinterpret_cast<T*>(address_); }
  std::vector<T> values() const { return std::vector<T>(data(), data() + size_); }

 private:
  CuAddress address_ = 0;
  size_t size_;
};

// The 128 bytes of a CUtensorMap, as kernels take them.
struct alignas(64) MapBytes {
  unsigned char bytes[128];
};

struct Shape {
  std::array<unsigned, 3> grid = {1, 1, 1}, block = {32, 1, 1};
  unsigned shared_bytes = 0;
};

class KernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const auto* const opened = new auto(Nvrtc::Open("", 13000));
    if (!opened->ok()) GTEST_SKIP() << opened->status().message();
    nvrtc_ = opened->operator*().get();
    CuContext context = nullptr;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
  }

  // The function `f` of CUDA text that declares it as `extern "C" __global__`.
  CuFunction Compile(const std::string& text) {
    const KernelSource source{
        .kind = SourceKind::kCuda, .entry = "f", .text = text, .arch = "sm_90a"};
    const auto ptx = nvrtc_->Compile(source, NvrtcOutput::kPtx);
    EXPECT_TRUE(ptx.ok()) << ptx.status().message();
    return ptx.ok() ? Load(ptx->bytes) : nullptr;
  }
  CuFunction Load(const std::string& ptx) {
    CuModule module = nullptr;
    CuFunction function = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module, ptx.c_str()), 0);
    EXPECT_EQ(cuModuleGetFunction(&function, module, "f"), 0);
    return function;
  }

  template <class... Args>
  CuResult Launch(CuFunction function, const Shape& shape, Args... args) {
    void* pointers[] = {&args..., nullptr};
    const CuLaunchConfig config{.grid = {shape.grid[0], shape.grid[1], shape.grid[2]},
                                .block = {shape.block[0], shape.block[1], shape.block[2]},
                                .dynamic_shared_bytes = shape.shared_bytes,
                                .stream = nullptr,
                                .attributes = nullptr,
                                .attribute_count = 0};
    return cuLaunchKernelEx(&config, function, pointers, nullptr);
  }
  // Runs text, which has to succeed.
  template <class... Args>
  void Run(const std::string& text, const Shape& shape, Args... args) {
    const CuFunction function = Compile(text);
    ASSERT_NE(function, nullptr);
    ASSERT_EQ(Launch(function, shape, args...), 0) << text;
  }
  // Runs text, which has to fail; returns what is said about it.
  template <class... Args>
  std::string Complaint(const std::string& text, const Shape& shape, CuResult expected,
                        Args... args) {
    const CuFunction function = Compile(text);
    if (function == nullptr) return "";
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(Launch(function, shape, args...), expected);
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  const Nvrtc* nvrtc_ = nullptr;
};

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kiln::emulated
