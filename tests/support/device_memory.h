// Memory where a library under test computes: the host's for the CPU device, a GPU's through
// libcuda.
//
// libcuda comes by dlopen and its types are spelled out here, so that tests and benchmarks build
// and load on machines that have neither a GPU nor CUDA's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace kiln::testing {

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;
  virtual bool is_gpu() const = 0;
  virtual void* stream() const = 0;          // a cudaStream_t; null on the host
  virtual void* Allocate(size_t bytes) = 0;  // aligned to 256; null when memory is out
  virtual void Free(void* memory) = 0;
  // Copies wait for all that was launched before.
  virtual void CopyIn(void* device, const void* host, size_t bytes) = 0;
  virtual void CopyOut(void* host, const void* device, size_t bytes) = 0;
  virtual std::string Synchronize() = 0;  // an error in words, or empty
};

// For benchmarks: asynchronous operations and timing on the device's stream.
class GpuDevice : public Device {
 public:
  virtual void CopyAsync(void* to, const void* from, size_t bytes) = 0;  // cuMemcpyDtoDAsync
  virtual void FillAsync(void* device, uint8_t byte, size_t bytes) = 0;
  virtual void RecordBegin() = 0;
  virtual void RecordEnd() = 0;
  virtual double ElapsedMicroseconds() = 0;   // waits for the end
  virtual int ComputeCapability() const = 0;  // 90 for sm_90
  virtual std::string DriverVersion() = 0;    // 13.0: what the driver supports
  virtual void BindThread() = 0;              // its context becomes the calling thread's
  // Page-locked host memory, which copies three times as fast; null when there is none.
  virtual void* AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;
  // A kernel that does nothing with ten arguments: what a launch costs at least.
  virtual std::string LoadEmptyKernel() = 0;
  virtual void LaunchEmpty() = 0;
};

std::unique_ptr<Device> OpenHostDevice();
std::unique_ptr<GpuDevice> OpenGpuDevice(std::string* error);

// The host where KILN_DEVICE=cpu, else the GPU.
std::unique_ptr<Device> OpenTestDevice(std::string* error);

// An allocation that frees itself.
class Buffer {
 public:
  Buffer(Device& device, size_t bytes)
      : device_(&device), data_(device.Allocate(bytes ? bytes : 1)) {}
  Buffer(Buffer&& other) noexcept : device_(other.device_), data_(other.data_) {
    other.data_ = nullptr;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) device_->Free(data_);
  }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  Device* device_;
  void* data_;
};

}  // namespace kiln::testing
