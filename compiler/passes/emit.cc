#include "compiler/passes/emit.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

#include "codegen/cuda/emit.h"
#include "compiler/engines/engine.h"
#include "compiler/engines/registry.h"
#include "compiler/passes/group_key.h"
#include "compiler/passes/workspace.h"
#include "compiler/patterns/memory_places.h"
#include "ir/base/check.h"
#include "ir/base/hash.h"

namespace kiln::compiler {
namespace {

using graph::Tensor;
using graph::TensorId;

// Stands for the entry's name until the text that it is a hash of is known; as long as the name
// will be.
constexpr std::string_view kNameDigits = "0000000000000000";

class Emitter {
 public:
  Emitter(Module& module, const Target& target)
      : m_(module), target_(target), layout_(LayOutWorkspace(module)), places_(module) {}

  Status Run() {
    CollectTensors();
    m_.program.workspace_bytes = layout_.bytes;
    for (size_t g = 0; g < m_.groups.size(); ++g) RETURN_IF_ERROR(EmitGroup(static_cast<int>(g)));
    return {};
  }

 private:
  // Collects the tensors that the caller passes, by uid; a tensor that is read and written under
  // one uid is one entry.
  void CollectTensors() {
    const graph::Graph& g = m_.graph;
    const auto add = [&](TensorId id, bool is_output) {
      const Tensor& t = g[id];
      if (t.is_constant() || t.uid < 0) return;
      const auto [entry, is_new] =
          by_uid_.try_emplace(t.uid, static_cast<int>(m_.program.tensors.size()));
      if (is_new) {
        m_.program.tensors.push_back({.uid = t.uid,
                                      .dtype = static_cast<uint8_t>(t.dtype),
                                      .by_value = t.by_value,
                                      .is_output = is_output,
                                      .is_empty = NumElements(t.dims) == 0});
      }
      m_.program.tensors[entry->second].is_output |= is_output;
    };
    for (TensorId id : graph::Inputs(g)) add(id, false);
    for (TensorId id : graph::Outputs(g)) add(id, true);
  }

  Status EmitGroup(int g) {
    Group& group = m_.groups[g];
    const std::vector<int> kernels = EmitKernels(group);
    for (const LoweredLaunch& launch : group.lowered.launches) {
      const tile::Kernel& kernel = group.lowered.kernels[launch.kernel];
      Launch out{.kernel = kernels[launch.kernel]};
      out.may_overlap = NeighboursOf(group, kernel).waits;
      out.cooperative = kernel.cooperative;
      for (int d = 0; d < 3; ++d) {
        if (launch.grid[d] < 0 || launch.grid[d] > (d == 0 ? INT32_MAX : 65535)) {
          return Status::Error(
              Code::kUnsupportedShape,
              "group {} needs a grid of {} x {} x {} blocks, more than a launch takes", g,
              launch.grid[0], launch.grid[1], launch.grid[2]);
        }
        out.grid[d] = static_cast<uint32_t>(launch.grid[d]);
      }
      out.block = {static_cast<uint32_t>(kernel.threads), 1, 1};
      if (target_.is_cuda()) {
        const int64_t dynamic = cuda_codegen::DynamicSharedBytes(kernel);
        CHECK(dynamic <= target_.shared_limit(),
              "group {} needs {} bytes of shared memory, which its engine did not announce", g,
              dynamic);
        out.dynamic_shared_bytes = static_cast<uint32_t>(dynamic);
      }
      for (size_t a = 0; a < launch.args.size(); ++a)
        out.args.push_back(Resolve(g, launch.args[a], kernel.params[a].type));
      out.tensor_maps = launch.tensor_maps;
      m_.program.launches.push_back(std::move(out));
    }
    return {};
  }

  // Indices of the group's kernels in the program; equal groups have equal ones.
  std::vector<int> EmitKernels(Group& group) {
    const auto [known, is_new] = by_group_.try_emplace(GroupKey(group));
    std::vector<int>& kernels = known->second;
    for (size_t k = 0; k < group.lowered.kernels.size(); ++k) {
      tile::Kernel& kernel = group.lowered.kernels[k];
      if (is_new)
        kernels.push_back(
            EmitKernel(kernel, Engines()[group.engine].name, NeighboursOf(group, kernel)));
      else
        kernel.name = m_.program.kernels[static_cast<size_t>(kernels[k])].entry;
    }
    return kernels;
  }

  LaunchArg Resolve(int g, const LoweredArg& arg, DType type) const {
    const Group& group = m_.groups[g];
    switch (arg.kind) {
      case LoweredArg::Kind::kScratch:
      case LoweredArg::Kind::kScratchMap: {
        const bool is_map = arg.kind == LoweredArg::Kind::kScratchMap;
        return {.kind = is_map ? LaunchArg::Kind::kTensorMap : LaunchArg::Kind::kPointer,
                .buffer = {BufferRef::Kind::kWorkspace, 0,
                           layout_.scratch[static_cast<size_t>(g)][arg.id]},
                .bits = is_map ? arg.bits : 0};
      }
      case LoweredArg::Kind::kScalar:
        return {.kind = LaunchArg::Kind::kScalar,
                .buffer = {},
                .size = static_cast<uint8_t>(SizeOf(type)),
                .bits = arg.bits};
      case LoweredArg::Kind::kPeerRank:
        return {.kind = LaunchArg::Kind::kPeerRank, .buffer = {}, .size = 4, .bits = arg.bits};
      case LoweredArg::Kind::kPeerLimit:
        return {.kind = LaunchArg::Kind::kPeerLimit, .buffer = {}, .size = 8};
      case LoweredArg::Kind::kFault:
        return {.kind = LaunchArg::Kind::kFault, .buffer = {}, .size = 8};
      case LoweredArg::Kind::kTensor:
      case LoweredArg::Kind::kByValue:
      case LoweredArg::Kind::kTensorMap:
        break;
    }
    const TensorId outer = places_.MemoryOf(group.outer[arg.id]);
    const int64_t offset = places_.OffsetBytesOf(group.outer[arg.id]);
    const bool is_map = arg.kind == LoweredArg::Kind::kTensorMap;
    const auto address = is_map ? LaunchArg::Kind::kTensorMap : LaunchArg::Kind::kPointer;
    const uint64_t map = is_map ? arg.bits : 0;
    const auto stored = layout_.intermediates.find(outer);
    if (stored != layout_.intermediates.end()) {
      return {.kind = address,
              .buffer = {BufferRef::Kind::kWorkspace, 0, stored->second + offset},
              .bits = map};
    }
    const int index = by_uid_.at(m_.graph[outer].uid);
    const bool by_value = arg.kind == LoweredArg::Kind::kByValue;
    return {.kind = by_value ? LaunchArg::Kind::kByValue : address,
            .buffer = {BufferRef::Kind::kTensor, index, offset},
            .size = static_cast<uint8_t>(by_value ? SizeOf(type) : 0),
            .value_type = static_cast<uint8_t>(type),
            .bits = map};
  }

  // Launches of one group overlap, and one of few blocks overlaps whatever stands before and behind
  // it. Where many blocks follow one another on each multiprocessor, the wait that every one of
  // them begins with costs more than there is to gain. Seen on an H200: 63 us instead of 46 for
  // cudnnSetTensor, 134 MB by 32768 blocks.
  cuda_codegen::Neighbours NeighboursOf(const Group& group, const tile::Kernel& kernel) const {
    if (!target_.is_cuda() || target_.sm_version < 90 || target_.minimal_launch) return {};
    if (kernel.cooperative) return {};  // it has the device to itself
    const auto& launches = group.lowered.launches;
    const auto& kernels = group.lowered.kernels;
    const bool is_small = std::ranges::all_of(launches, [&](const LoweredLaunch& launch) {
      return &kernels[launch.kernel] != &kernel || IsSmall(launch, kernel);
    });
    return {.waits = is_small || &kernel != &kernels[launches.front().kernel],
            .releases = is_small || &kernel != &kernels[launches.back().kernel]};
  }

  bool IsSmall(const LoweredLaunch& launch, const tile::Kernel& kernel) const {
    constexpr double kMostWaves = 2, kThreadsOfMultiprocessor = 2048;
    const double blocks = std::accumulate(launch.grid.begin(), launch.grid.end(), 1.0,
                                          [](double n, int64_t extent) { return n * extent; });
    return blocks * kernel.threads <=
           kMostWaves * kThreadsOfMultiprocessor * target_.multiprocessors;
  }

  // Index of the kernel's source in the program; equal texts are one.
  int EmitKernel(tile::Kernel& kernel, std::string_view engine,
                 cuda_codegen::Neighbours neighbours) {
    kernel.name = fmt::format("kiln_{}_{}", engine, kNameDigits);
    std::string text =
        target_.is_cuda() ? cuda_codegen::EmitCuda(kernel, neighbours) : tile::Print(kernel);
    const std::string name =
        fmt::format("kiln_{}_{}", engine, HashBytes(text).Hex().substr(0, kNameDigits.size()));
    for (size_t at = text.find(kernel.name); at != std::string::npos;
         at = text.find(kernel.name, at + name.size()))
      text.replace(at, name.size(), name);
    kernel.name = name;
    auto& kernels = m_.program.kernels;
    const auto [same, is_new] = by_name_.try_emplace(name, static_cast<int>(kernels.size()));
    if (!is_new) return same->second;
    kernels.push_back({.kind = target_.is_cuda() ? SourceKind::kCuda : SourceKind::kTileIr,
                       .entry = name,
                       .text = std::move(text),
                       .arch = target_.arch});
    return static_cast<int>(kernels.size()) - 1;
  }

  Module& m_;
  const Target& target_;
  const WorkspaceLayout layout_;
  const MemoryPlaces places_;
  std::map<int64_t, int> by_uid_;
  std::map<std::string, int> by_name_;  // of kernels
  std::unordered_map<std::string, std::vector<int>> by_group_;
};

}  // namespace

Result<bool> Emit(Module& module, const PassContext& context) {
  RETURN_IF_ERROR(Emitter(module, context.target).Run());
  module.form = Form::kProgram;
  return true;
}

}  // namespace kiln::compiler
