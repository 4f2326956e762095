// Laying out and executing of programs. See executable.h.
#include "runtime/executable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

#include "ir/peers.h"
#include "runtime/peers.h"
#include "runtime/prepare.h"
#include "runtime/program_check.h"

namespace kiln::runtime {
namespace {

// Launches of up to this many arguments need no memory but the stack's.
constexpr size_t kInlineSlots = 96;
// The most tensor maps of one launch, whose arguments may have 4 KB.
constexpr size_t kMostMaps = 31;

std::optional<int64_t> LoadInteger(DType type, const void* host) {
  auto as = [host](auto value) {
    std::memcpy(&value, host, sizeof value);
    return static_cast<int64_t>(value);
  };
  switch (type) {
    case DType::kI8:
      return as(int8_t{});
    case DType::kU8:
      return as(uint8_t{});
    case DType::kI32:
      return as(int32_t{});
    case DType::kI64:
      return as(int64_t{});
    case DType::kU32:
      return as(uint32_t{});
    case DType::kBool:
      return as(uint8_t{}) != 0;
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
    case DType::kBF16:
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kE8M0:
    case DType::kE2M1:
    case DType::kI4:
    case DType::kU4:
    case DType::kC64:
    case DType::kC128:
    case DType::kB1:
      return std::nullopt;
  }
  return std::nullopt;
}

template <class T>
uint64_t Bits(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

bool IsEmpty(const Launch& launch) {
  return launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0;
}

}  // namespace

uint64_t ConvertScalar(DType from, const void* host, DType to) {
  std::optional<int64_t> integer = LoadInteger(from, host);
  if (!integer) {
    uint64_t bits = 0;
    StoreValue(to, LoadValue(from, host), &bits);
    return bits;
  }
  // Not by way of double, which has no room for the low bits of an i64.
  if (to == DType::kF32) return Bits(static_cast<float>(*integer));
  if (to == DType::kF64) return Bits(static_cast<double>(*integer));
  if (to == DType::kI64) return Bits(*integer);
  CHECK(to == DType::kI32, "by-value argument of type {}", Info(to).text);
  using Limits = std::numeric_limits<int32_t>;
  return Bits(static_cast<int32_t>(std::clamp<int64_t>(*integer, Limits::min(), Limits::max())));
}

Result<std::unique_ptr<Executable>> Executable::Create(Device& device, Program program) {
  RETURN_IF_ERROR(CheckProgram(program, device.target()));
  std::unique_ptr<Executable> executable(new Executable(device, std::move(program)));
  const Program& p = executable->program_;
  PrepareTogether(device, p.kernels);
  for (const KernelSource& source : p.kernels) {
    ASSIGN_OR_RETURN(std::shared_ptr<LoadedKernel> kernel, device.Load(source));
    executable->kernels_.push_back(std::move(kernel));
  }
  for (const Launch& launch : p.launches) {
    if (!IsEmpty(launch)) RETURN_IF_ERROR(executable->LayOut(launch));
  }
  return executable;
}

Status Executable::LayOut(const Launch& launch) {
  Step step = {
      .kernel = kernels_[static_cast<size_t>(launch.kernel)].get(),
      .kernel_index = launch.kernel,
      .shape = {.grid = launch.grid,
                .block = launch.block,
                .dynamic_shared_bytes = launch.dynamic_shared_bytes,
                .may_overlap = launch.may_overlap,
                .cooperative = launch.cooperative},
      .first_slot = static_cast<int>(slots_.size()),
      .slot_count = static_cast<int>(launch.args.size()),
      .first_patch = static_cast<int>(patches_.size()),
      .patch_count = 0,
  };
  for (size_t i = 0; i < launch.args.size(); ++i)
    RETURN_IF_ERROR(LayOutArgument(launch, launch.args[i], static_cast<int>(i)));
  step.patch_count = static_cast<int>(patches_.size()) - step.first_patch;
  most_slots_ = std::max(most_slots_, launch.args.size());
  steps_.push_back(step);
  return {};
}

Status Executable::LayOutArgument(const Launch& launch, const LaunchArg& arg, int slot) {
  slots_.push_back(arg.kind == LaunchArg::Kind::kScalar ? arg.bits : 0);
  if (arg.kind == LaunchArg::Kind::kScalar) return {};
  if (arg.kind == LaunchArg::Kind::kPeerLimit) {
    slots_.back() = static_cast<uint64_t>(PeerLimitNanoseconds());
    return {};
  }
  if (arg.kind == LaunchArg::Kind::kPeerRank) {
    LayOutRank(launch, arg, slot);
    return {};
  }
  Patch patch = {.kind = Patch::Kind::kTensor,
                 .from = DType::kF32,
                 .to = DType::kF32,
                 .slot = slot,
                 .tensor = arg.buffer.index,
                 .byte_offset = arg.buffer.byte_offset};
  if (arg.kind == LaunchArg::Kind::kFault) {
    RETURN_IF_ERROR(device_.FaultWord().status());
    patch.kind = Patch::Kind::kFault;
    patches_.push_back(patch);
    return {};
  }
  if (arg.kind == LaunchArg::Kind::kTensorMap) {
    patch.kind = Patch::Kind::kMap;
    patch.in_workspace = arg.buffer.kind == BufferRef::Kind::kWorkspace;
    patch.map = static_cast<int>(maps_.size());
    patch.byte_offset += launch.tensor_maps[arg.bits].offset_bytes;
    // Any aligned address does: the real one is put in at each execute.
    RETURN_IF_ERROR(device_.EncodeTensorMap(launch.tensor_maps[arg.bits],
                                            reinterpret_cast<void*>(uintptr_t{4096}),
                                            maps_.emplace_back()));
  }
  if (patch.in_workspace) {
    needs_workspace_ = true;
    patches_.push_back(patch);
    return {};
  }
  if (arg.buffer.kind == BufferRef::Kind::kWorkspace) {
    patch.kind = Patch::Kind::kWorkspace;
    needs_workspace_ = true;
    patches_.push_back(patch);
    return {};
  }
  const ProgramTensor& tensor = program_.tensors[static_cast<size_t>(arg.buffer.index)];
  if (arg.kind == LaunchArg::Kind::kByValue) {
    patch.kind = Patch::Kind::kScalar;
    patch.from = static_cast<DType>(tensor.dtype);
    patch.to = static_cast<DType>(arg.value_type);
  }
  patches_.push_back(patch);
  bool is_known = std::ranges::find(needs_, arg.buffer.index, &Need::tensor) != needs_.end();
  if (!tensor.is_empty && !is_known)
    needs_.push_back({.tensor = arg.buffer.index, .uid = tensor.uid});
  return {};
}

void Executable::LayOutRank(const Launch& launch, const LaunchArg& arg, int slot) {
  std::vector<int> buffers;
  for (int i = slot - static_cast<int>(arg.bits); i < slot; ++i)
    buffers.push_back(launch.args[static_cast<size_t>(i)].buffer.index);
  auto group = std::ranges::find(peers_, buffers);
  if (group == peers_.end()) group = peers_.insert(group, std::move(buffers));
  patches_.push_back({.kind = Patch::Kind::kRank,
                      .from = DType::kI32,
                      .to = DType::kI32,
                      .slot = slot,
                      .tensor = 0,
                      .byte_offset = 0,
                      .group = static_cast<int>(group - peers_.begin())});
}

Result<std::vector<int>> Executable::RanksOf(std::span<void* const> pointers) const {
  std::vector<int> ranks;
  ranks.reserve(peers_.size());
  for (const std::vector<int>& group : peers_) {
    std::array<void*, kMostPeers> buffers;
    for (size_t r = 0; r < group.size(); ++r) buffers[r] = pointers[static_cast<size_t>(group[r])];
    ASSIGN_OR_RETURN(ranks.emplace_back(), RankOf(device_, std::span(buffers).first(group.size())));
  }
  return ranks;
}

// All of it before the first launch, so that a call that fails has done nothing.
Status Executable::CheckPointers(std::span<void* const> pointers, const void* workspace) const {
  if (pointers.size() != program_.tensors.size()) [[unlikely]] {
    return Status::Error(Code::kInvalidValue, "{} pointers for the {} tensors of the plan",
                         pointers.size(), program_.tensors.size());
  }
  for (const Need& need : needs_) {
    if (pointers[static_cast<size_t>(need.tensor)] != nullptr) [[likely]]
      continue;
    return Status::Error(Code::kNullPointer, "the pointer of the tensor with uid {} is null",
                         need.uid);
  }
  if (!needs_workspace_) return {};
  if (workspace == nullptr) [[unlikely]] {
    return Status::Error(Code::kNullPointer, "the workspace is null; the plan needs {} bytes",
                         program_.workspace_bytes);
  }
  return {};
}

template <class F>
Status Executable::ForEachLaunch(std::span<void* const> pointers, void* workspace,
                                 F&& launch) const {
  RETURN_IF_ERROR(CheckPointers(pointers, workspace));
  std::vector<int> ranks;
  if (!peers_.empty()) {
    ASSIGN_OR_RETURN(ranks, RanksOf(pointers));
  }
  constexpr uintptr_t kMask = kWorkspaceAlignment - 1;
  workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace) + kMask) & ~kMask);
  if (most_slots_ <= kInlineSlots) [[likely]] {
    std::array<uint64_t, kInlineSlots> slots;
    std::array<void*, kInlineSlots> args;
    return Run(pointers, workspace, ranks, slots.data(), args.data(), launch);
  }
  std::vector<uint64_t> slots(most_slots_);
  std::vector<void*> args(most_slots_);
  return Run(pointers, workspace, ranks, slots.data(), args.data(), launch);
}

Status Executable::Execute(std::span<void* const> pointers, void* workspace, Stream stream) const {
  return ForEachLaunch(pointers, workspace, [&](const Step& step, void** args) {
    return device_.Launch(*step.kernel, step.shape, args, stream);
  });
}

Status Executable::Populate(std::span<void* const> pointers, void* workspace,
                            NativeGraph graph) const {
  ASSIGN_OR_RETURN(const std::vector<NativeNode> there, device_.NodesOf(graph));
  if (!there.empty()) {
    return Status::Error(Code::kCudaGraphMismatch,
                         "the CUDA graph has {} nodes already; an empty one is populated",
                         there.size());
  }
  NativeNode last = nullptr;
  return ForEachLaunch(pointers, workspace, [&](const Step& step, void** args) -> Status {
    ASSIGN_OR_RETURN(last, device_.AddNode(graph, last, *step.kernel, step.shape, args));
    return {};
  });
}

Status Executable::Update(std::span<void* const> pointers, void* workspace,
                          NativeGraph graph) const {
  ASSIGN_OR_RETURN(const std::vector<NativeNode> nodes, device_.NodesOf(graph));
  if (nodes.size() != steps_.size()) {
    return Status::Error(Code::kCudaGraphMismatch, "the CUDA graph has {} nodes; the plan's has {}",
                         nodes.size(), steps_.size());
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (device_.IsNodeOf(nodes[i], *steps_[i].kernel)) continue;
    return Status::Error(Code::kCudaGraphMismatch,
                         "node {} of the CUDA graph is not the plan's kernel {}", i,
                         program_.kernels[static_cast<size_t>(steps_[i].kernel_index)].entry);
  }
  auto node = nodes.begin();
  return ForEachLaunch(pointers, workspace, [&](const Step& step, void** args) {
    return device_.SetNode(*node++, *step.kernel, step.shape, args);
  });
}

Status Executable::PatchMap(const Patch& patch, std::span<void* const> pointers, void* workspace,
                            TensorMapBytes& map) const {
  map = maps_[static_cast<size_t>(patch.map)];
  char* base = static_cast<char*>(patch.in_workspace ? workspace
                                                     : pointers[static_cast<size_t>(patch.tensor)]);
  return device_.MoveTensorMap(map, base + patch.byte_offset);
}

template <class F>
Status Executable::Run(std::span<void* const> pointers, void* workspace, std::span<const int> ranks,
                       uint64_t* slots, void** args, F&& launch) const {
  std::array<TensorMapBytes, kMostMaps> maps;
  for (const Step& step : steps_) {
    for (int i = 0; i < step.slot_count; ++i) args[i] = &slots[i];
    size_t map_count = 0;
    std::copy_n(slots_.data() + step.first_slot, step.slot_count, slots);
    for (const Patch& patch : std::span(patches_).subspan(static_cast<size_t>(step.first_patch),
                                                          static_cast<size_t>(step.patch_count))) {
      if (patch.kind == Patch::Kind::kMap) {
        if (map_count == kMostMaps) [[unlikely]]
          return Status::Error(Code::kInternal, "more than {} tensor maps in a launch", kMostMaps);
        TensorMapBytes& map = maps[map_count++];
        RETURN_IF_ERROR(PatchMap(patch, pointers, workspace, map));
        args[patch.slot] = &map;
        continue;
      }
      uint64_t& slot = slots[patch.slot];
      if (patch.kind == Patch::Kind::kRank) {
        slot = static_cast<uint64_t>(ranks[static_cast<size_t>(patch.group)]);
        continue;
      }
      if (patch.kind == Patch::Kind::kFault) {
        ASSIGN_OR_RETURN(int32_t* const word, device_.FaultWord());
        slot = reinterpret_cast<uint64_t>(word);
        continue;
      }
      if (patch.kind == Patch::Kind::kWorkspace) {
        slot = reinterpret_cast<uint64_t>(workspace) + static_cast<uint64_t>(patch.byte_offset);
        continue;
      }
      void* pointer = pointers[static_cast<size_t>(patch.tensor)];
      slot = patch.kind == Patch::Kind::kScalar
                 ? (pointer != nullptr ? ConvertScalar(patch.from, pointer, patch.to) : 0)
                 : reinterpret_cast<uint64_t>(pointer) + static_cast<uint64_t>(patch.byte_offset);
    }
    RETURN_IF_ERROR(launch(step, args));
  }
  return {};
}

}  // namespace kiln::runtime
