// One execution's memory: a buffer of the device for each tensor of a program, filled with the
// inputs. Used by `kiln run`, and by tests that run graphs.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "ir/graph/eval.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace kiln::cli {

// Memory of the device, freed with its owner.
class DeviceBuffer {
 public:
  static Result<DeviceBuffer> Make(runtime::Device& device, int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : device_(other.device_), memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (memory_ != nullptr) device_.Free(memory_);
  }
  void* get() const { return memory_; }

 private:
  DeviceBuffer(runtime::Device& device, void* memory) : device_(device), memory_(memory) {}
  runtime::Device& device_;
  void* memory_;
};

class Bindings {
 public:
  static Result<Bindings> Make(runtime::Device& device, const graph::Graph& graph,
                               const Program& program, const graph::TensorValues& inputs);

  const std::vector<void*>& pointers() const { return pointers_; }
  void* workspace() const { return workspace_; }

  Result<std::vector<double>> Read(runtime::Device& device, const graph::Tensor& tensor) const;
  // Checks that every tensor which the graph only reads has the bytes that it had.
  Status CheckInputs(runtime::Device& device, const graph::Graph& graph) const;

 private:
  struct Memory {
    void* device;
    std::vector<std::byte> before;
  };
  Status Add(runtime::Device& device, const graph::Graph& graph, const ProgramTensor& wanted,
             const graph::TensorValues& inputs);

  std::vector<DeviceBuffer> buffers_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> host_scalars_;
  std::vector<void*> pointers_;
  std::map<int64_t, Memory> by_uid_;
  void* workspace_ = nullptr;
};

}  // namespace kiln::cli
