// The host in the place of a GPU: memory by aligned_alloc, times by the clock. With it the bench's
// whole way is tested over the CPU target.
#pragma once

#include <chrono>
#include <cstring>

#include "tests/support/device_memory.h"

namespace kiln::testing {

class HostGpu final : public GpuDevice {
 public:
  const std::string& name() const override { return host_->name(); }
  bool is_gpu() const override { return false; }
  void* stream() const override { return nullptr; }
  void* Allocate(size_t bytes) override { return host_->Allocate(bytes); }
  void Free(void* memory) override { host_->Free(memory); }
  void CopyIn(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void CopyOut(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  std::string Synchronize() override { return fault; }
  void CopyAsync(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void FillAsync(void* device, uint8_t byte, size_t bytes) override {
    std::memset(device, byte, bytes);
  }
  void RecordBegin() override { begin_ = Clock::now(); }
  void RecordEnd() override { end_ = Clock::now(); }
  double ElapsedMicroseconds() override {
    return std::chrono::duration<double, std::micro>(end_ - begin_).count();
  }
  int ComputeCapability() const override { return 0; }
  std::string DriverVersion() override { return "none"; }
  void BindThread() override {}
  void* AllocateHost(size_t bytes) override { return host_->Allocate(bytes); }
  void FreeHost(void* memory) override { host_->Free(memory); }
  std::string LoadEmptyKernel() override { return "the host has no kernels"; }
  void LaunchEmpty() override {}

  std::string fault;  // what Synchronize says

 private:
  using Clock = std::chrono::steady_clock;
  std::unique_ptr<Device> host_ = OpenHostDevice();
  Clock::time_point begin_, end_;
};

}  // namespace kiln::testing
