// Device: the interface to whatever runs kernels. It has two implementations, runtime/cuda (driver
// API) and runtime/cpu (LLVM ORC, a plug-in). Loading happens when a plan is made; launching
// allocates nothing and never synchronises.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/base/result.h"
#include "ir/program.h"
#include "ir/target.h"

namespace kiln::runtime {

// A kernel that is ready to launch, in whichever context its launch finds: a GPU may be reset, and
// have several contexts, while plans keep their kernels (runtime/cuda/cuda_kernel.h).
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
};

using Stream = void*;  // CUstream; ignored by the CPU device, which runs when called

// A cudaGraph_t of the caller, and one of its nodes.
using NativeGraph = void*;
using NativeNode = void*;

// The driver's encoding of a TensorMapSpec, passed to kernels by value.
struct alignas(64) TensorMapBytes {
  std::array<uint64_t, 16> words = {};
};

struct LaunchShape {
  std::array<uint32_t, 3> grid, block;
  uint32_t dynamic_shared_bytes;
  bool may_overlap = false;  // with the launch before; see ir/program.h
  bool cooperative = false;  // all blocks at a time
};

// Where memory lies, as far as the driver says.
enum class Owner : uint8_t { kNobody, kThisDevice, kOtherDevice };

class Device {
 public:
  virtual ~Device() = default;

  virtual const Target& target() const = 0;

  // Compiles (through the kernel cache) and loads. Safe from many threads; two threads that ask for
  // one source compile it once. Errors carry the compiler's log.
  virtual Result<std::shared_ptr<LoadedKernel>> Load(const KernelSource& source) = 0;

  // True if Load would need no compiler.
  virtual bool IsReady(const KernelSource&) { return false; }

  // Does the part of Load that needs no context, mostly the compiler's work, so that many threads
  // can prepare many sources. A failure is not reported here: Load fails the same way and says why.
  virtual void Prepare(const KernelSource&) {}

  // Encodes the map over `address`, or moves an encoded one to another address: host work only. A
  // device without such maps fails.
  virtual Status EncodeTensorMap(const TensorMapSpec&, void*, TensorMapBytes&) {
    return Status::Error(Code::kArchMismatch, "{} has no tensor maps", target().name);
  }
  virtual Status MoveTensorMap(TensorMapBytes&, void*) {
    return Status::Error(Code::kArchMismatch, "{} has no tensor maps", target().name);
  }

  // `args[i]` points at the i-th argument's bytes, as cuLaunchKernel takes them.
  virtual Status Launch(const LoadedKernel& kernel, const LaunchShape& shape, void** args,
                        Stream stream) = 0;

  // Graphs whose nodes are a plan's launches, one behind the other. Host work only; `has_graphs` is
  // false where the device or its driver has no such graphs, and then the other functions fail.
  virtual bool has_graphs() const { return false; }
  // Adds one launch behind the given node, which is null for the first.
  virtual Result<NativeNode> AddNode(NativeGraph, NativeNode, const LoadedKernel&,
                                     const LaunchShape&, void**) {
    return NoGraphs();
  }
  // The graph's nodes in their order. An error where they are not one behind the other.
  virtual Result<std::vector<NativeNode>> NodesOf(NativeGraph) { return NoGraphs(); }
  virtual bool IsNodeOf(NativeNode, const LoadedKernel&) { return false; }
  virtual Status SetNode(NativeNode, const LoadedKernel&, const LaunchShape&, void**) {
    return NoGraphs();
  }

  // Host memory, and what the driver does not know, is nobody's. No launch, no wait.
  virtual Owner OwnerOf(const void*) const { return Owner::kNobody; }

  // A word of memory that kernels and host share: kernels that waited too long for another device
  // say so there (ir/peers.h). It is allocated at the first call in a context, which is that of
  // Executable::Create; later ones find it.
  virtual Result<int32_t*> FaultWord() {
    return Status::Error(Code::kNotSupported, "{} waits for no other device", target().name);
  }
  // A fault that kernels have left since the last call, 0 for none. No launch, no wait.
  virtual int32_t TakeFault() { return 0; }

  // Allocates memory for launches on the stream between this call and FreeOn: both are in the
  // stream's order, and nobody waits for them.
  virtual Result<void*> AllocateOn(int64_t, Stream) {
    return Status::Error(Code::kNotSupported, "{} has no memory in the order of streams",
                         target().name);
  }
  virtual void FreeOn(void*, Stream) {}

  // For the CLI, tuning and tests only; the API's execute path calls none of these.
  virtual Result<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* pointer) = 0;
  virtual Status CopyIn(void* device, const void* host, int64_t bytes) = 0;
  virtual Status CopyOut(void* host, const void* device, int64_t bytes) = 0;
  // Copies between two places of the device that do not overlap.
  virtual Status CopyWithin(void* to, const void* from, int64_t bytes) = 0;
  virtual Status Fill(void* device, std::byte value, int64_t bytes) = 0;
  virtual Status Synchronize(Stream stream) = 0;
  // Median seconds of `run` over `repeats` calls, by device events; the L2 is flushed before each.
  virtual Result<double> Measure(std::function<Status()> run, int repeats, Stream stream) = 0;
  // False while `stream`, or a stream that would have to wait for it, is being captured: allocating
  // and waiting would break the capture.
  virtual bool CanMeasure(Stream) { return true; }

 protected:
  Status NoGraphs() const {
    return Status::Error(Code::kNotSupported, "{} has no CUDA graphs", target().name);
  }
};

}  // namespace kiln::runtime
