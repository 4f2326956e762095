// Executable: a Program whose kernels are loaded, ready to run on the caller's pointers, workspace
// and stream. Made when a plan is made; Execute allocates no device memory and never synchronises.
//
//   tensors x y, launch {k0, args: x ws+0 i32 64}  →  slots [x][ws+0][64], args [&0][&1][&2]  →
//   Launch
//
// All that does not depend on the call is laid out once: Execute copies a launch's slots, patches
// the pointers and host scalars in, and launches. Called by the session (api), the CLI and tuning.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/base/result.h"
#include "ir/dtype.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace kiln::runtime {

// The alignment of the workspace's parts, which generated code loads 16 bytes at a time. Clients
// need not know it: Execute takes any address and begins at the first aligned one, for which
// clients give this many bytes more, less one.
inline constexpr int64_t kWorkspaceAlignment = 16;

class Executable {
 public:
  // Checks the program (it may come from a file) and loads its kernels. `device` must outlive the
  // result.
  static Result<std::unique_ptr<Executable>> Create(Device& device, Program program);

  // Runs the program. `pointers` are in the order of program().tensors: device pointers, and host
  // pointers to by-value scalars. Safe from many threads at once.
  Status Execute(std::span<void* const> pointers, void* workspace, Stream stream) const;

  // Populate and Update write the launches of such an Execute as the nodes of a graph: of an empty
  // one, or in the place of what an earlier Populate of this executable put there. A call that
  // fails before the first node has done nothing.
  Status Populate(std::span<void* const> pointers, void* workspace, NativeGraph graph) const;
  Status Update(std::span<void* const> pointers, void* workspace, NativeGraph graph) const;

  const Program& program() const { return program_; }
  Device& device() const { return device_; }

 private:
  struct Patch {
    enum class Kind : uint8_t { kTensor, kWorkspace, kScalar, kMap, kRank, kFault };
    Kind kind;
    DType from, to;  // kScalar
    int slot;        // of the launch
    int tensor;      // kTensor, kScalar
    int64_t byte_offset;
    bool in_workspace = false;  // kMap
    int map = 0;                // kMap: into maps_
    int group = 0;              // kRank: into peers_
  };
  // One launch of the program; empty ones have no step.
  struct Step {
    const LoadedKernel* kernel;
    int kernel_index;  // of the program
    LaunchShape shape;
    int first_slot, slot_count;
    int first_patch, patch_count;
  };
  struct Need {
    int tensor;
    int64_t uid;
  };

  Executable(Device& device, Program program) : device_(device), program_(std::move(program)) {}

  Status LayOut(const Launch& launch);
  Status LayOutArgument(const Launch& launch, const LaunchArg& arg, int slot);
  void LayOutRank(const Launch& launch, const LaunchArg& arg, int slot);
  // The rank of this device in each of peers_, before the first launch.
  Result<std::vector<int>> RanksOf(std::span<void* const> pointers) const;
  Status CheckPointers(std::span<void* const> pointers, const void* workspace) const;
  // Calls launch(step, args) for each step in order.
  template <class F>
  Status ForEachLaunch(std::span<void* const> pointers, void* workspace, F&& launch) const;
  template <class F>
  Status Run(std::span<void* const> pointers, void* workspace, std::span<const int> ranks,
             uint64_t* slots, void** args, F&& launch) const;
  Status PatchMap(const Patch& patch, std::span<void* const> pointers, void* workspace,
                  TensorMapBytes& map) const;

  Device& device_;
  Program program_;
  std::vector<std::shared_ptr<LoadedKernel>> kernels_;
  std::vector<Step> steps_;
  std::vector<uint64_t> slots_;  // of all steps; those that are patched hold 0
  std::vector<Patch> patches_;
  std::vector<TensorMapBytes> maps_;     // of all steps, over some address
  std::vector<std::vector<int>> peers_;  // tensors that are the buffers of groups of devices
  std::vector<Need> needs_;              // tensors whose pointer may not be null
  bool needs_workspace_ = false;
  size_t most_slots_ = 0;
};

// Converts one element at `host` to the bits of a kernel argument of type `to` (f32, f64, i32 or
// i64): nearest value, saturating where `to` is an integer, as RoundTo of ir/dtype.h.
uint64_t ConvertScalar(DType from, const void* host, DType to);

}  // namespace kiln::runtime
