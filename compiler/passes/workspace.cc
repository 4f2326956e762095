#include "compiler/passes/workspace.h"

#include <algorithm>

#include "compiler/patterns/memory_places.h"
#include "ir/shape.h"

namespace kiln::compiler {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

int64_t PlaceBuffers(std::vector<LiveBuffer>& buffers) {
  int64_t total = 0;
  // In order of their steps, buffers that are dead for one are dead for all that follow.
  const bool in_order = std::ranges::is_sorted(buffers, {}, &LiveBuffer::first_step);
  std::vector<const LiveBuffer*> placed;  // by offset
  for (LiveBuffer& buffer : buffers) {
    const int64_t size = AlignUp(buffer.bytes, kAlignment);
    if (in_order) {
      std::erase_if(placed,
                    [&](const LiveBuffer* other) { return other->last_step < buffer.first_step; });
    }
    int64_t offset = 0;
    for (const LiveBuffer* other : placed) {
      if (other->first_step > buffer.last_step || buffer.first_step > other->last_step) continue;
      if (offset + size <= other->offset) break;
      offset = std::max(offset, other->offset + AlignUp(other->bytes, kAlignment));
    }
    buffer.offset = offset;
    total = std::max(total, offset + size);
    placed.insert(std::ranges::upper_bound(placed, offset, {}, &LiveBuffer::offset), &buffer);
  }
  return total;
}

WorkspaceLayout LayOutWorkspace(const Module& module) {
  std::vector<LiveBuffer> buffers;
  std::map<graph::TensorId, size_t> stored;
  std::vector<size_t> first_scratch;
  const MemoryPlaces places(module);
  for (size_t g = 0; g < module.groups.size(); ++g) {
    const Group& group = module.groups[g];
    const int step = static_cast<int>(g);
    for (const graph::TensorId id : graph::Outputs(group.graph)) {
      const graph::TensorId outer = group.outer[id];
      if (!module.graph[outer].is_virtual || places.MemoryOf(outer) != outer) continue;
      stored[outer] = buffers.size();
      const graph::Tensor& t = group.graph[id];
      buffers.push_back({.bytes = SpanElements(t.dims, t.strides) * SizeOf(t.dtype),
                         .first_step = step,
                         .last_step = step});
    }
    for (const graph::TensorId id : graph::Inputs(group.graph)) {
      const auto known = stored.find(places.MemoryOf(group.outer[id]));
      if (known != stored.end()) buffers[known->second].last_step = step;
    }
    first_scratch.push_back(buffers.size());
    for (const int64_t bytes : group.lowered.scratch_bytes)
      buffers.push_back({.bytes = bytes, .first_step = step, .last_step = step});
  }
  WorkspaceLayout layout{.bytes = PlaceBuffers(buffers), .intermediates = {}, .scratch = {}};
  for (const auto& [tensor, buffer] : stored) layout.intermediates[tensor] = buffers[buffer].offset;
  for (size_t g = 0; g < module.groups.size(); ++g) {
    layout.scratch.emplace_back();
    for (size_t s = 0; s < module.groups[g].lowered.scratch_bytes.size(); ++s)
      layout.scratch.back().push_back(buffers[first_scratch[g] + s].offset);
  }
  return layout;
}

}  // namespace kiln::compiler
