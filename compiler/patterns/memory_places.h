// Tensors that need no memory of their own, because they stand in another tensor's: `partition`
// asks.
//
//   views   %part = slice(x) %m = reshape(%part) %t = transpose(%m)  what %t is lies in x already,
//           from some element on, with strides of its own: an engine whose operand is %t reads x
//   parts   %y = matmul … %z = recurrence … out = concat(%y, %z)  %y and %z are written where they
//           stand in out, and nothing is left to copy
//   rows    the same where %y and %z are concatenated along an inner dim: each has rows of out
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "compiler/module.h"
#include "compiler/patterns/memory_view.h"
#include "ir/graph/graph.h"

namespace kiln::compiler {

// The alignment of what stands `offset_bytes` behind something aligned to `alignment`.
int64_t AlignmentAt(int64_t alignment, int64_t offset_bytes);

// A result of the graph whose parts are computed in its memory: nothing is done for `node`.
struct Assembly {
  graph::NodeId node = -1;
  struct Part {
    graph::TensorId tensor;
    int64_t offset;  // elements
    // The strides of the tensor's dims, in the result. A part of a concatenation along an inner dim
    // has other parts between its rows.
    Dims strides;
  };
  std::vector<Part> parts = {};
};
// The concatenations, and copies of reshaped tensors, of which each part can be. One of the parts
// is the result of a node that stores what it computes in any case (a contraction with the maps
// after it, a loop over time): where all of them could be computed as they are put together there
// is nothing to gain.
std::vector<Assembly> FindAssemblies(const graph::Graph& g);

// The places of the tensors of groups: groups name the tensors of the module's graph that they read
// and write, and these may be views and parts.
class MemoryPlaces {
 public:
  explicit MemoryPlaces(const Module& module);

  // The place of a tensor: the tensor itself where it has memory of its own.
  MemoryPlace Of(graph::TensorId id) const;
  graph::TensorId MemoryOf(graph::TensorId id) const { return Of(id).memory; }
  int64_t OffsetBytesOf(graph::TensorId id) const;
  // The uid of the tensor in whose memory it stands.
  int64_t UidOf(graph::TensorId id) const { return g_[MemoryOf(id)].uid; }

 private:
  MemoryPlace OwnPlace(graph::TensorId id) const;

  const graph::Graph& g_;
  const std::vector<graph::NodeId> producers_;
  std::vector<char> is_written_;                       // by a group
  std::map<graph::TensorId, MemoryPlace> parts_ = {};  // of what no group writes as a whole
};

}  // namespace kiln::compiler
