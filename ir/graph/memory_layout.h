// Memory in an order that dims and strides cannot say: channels in vectors, scales in the tiles
// that tensor cores read, int8 filters in fragments. Operations see the plain tensor that a
// transpose and a reshape make of such memory, or that they make it of:
//
//   memory [N, C/4, H, W, 4]  <->  [N, C/4, 4, H, W]  <->  plain [N, C, H, W]
//
// Used by everything that makes graphs of what clients declare: the backend API's descriptors, the
// legacy API's, recorded graphs and those of cudnn-frontend.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::graph {

// The extents and strides of memory in such an order, and the permutation of its dims after which
// each plain dim is one or more of them, side by side.
struct MemoryLayout {
  Dims dims, strides, order;

  Dims Split() const;  // `dims` in `order`
};

// The layout of vectors of `count` elements along dim `along`, where `dims` and `strides` count
// vectors.
MemoryLayout VectorLayout(Dims dims, Dims strides, int64_t count, int64_t along);

// F8_128x4, how tensor cores read scales: tiles of 128 by 4, the 4 along the contiguous one of the
// last two dims. An error where these are no whole tiles.
Result<MemoryLayout> ScaleTileLayout(const Dims& dims, const Dims& strides);

// INT8x32, what cudnnReorderFilterAndBias makes of an int8 filter [O, I, …] and of a bias [1, O, …]
// for IMMA's fragments. An error where I or O are no multiples of 32.
enum class FragmentsOf : uint8_t { kFilter, kBias };
Result<MemoryLayout> FragmentLayout(const Dims& plain, FragmentsOf what);

// A client's declaration that a tensor has such a layout.
struct LayoutSpec {
  enum class Reordering : uint8_t { kNone, kScaleTiles, kFragments };
  Reordering reordering = Reordering::kNone;
  int64_t vector_count = 1, vector_dim = -1;

  bool IsPlain() const { return reordering == Reordering::kNone && vector_count == 1; }
};

// CUDNN_TENSOR_REORDERING_… by the name that stands behind the prefix: NONE, F16x16, F8_128x4,
// INT8x32. F16x16 is for what one graph stores and another reads, in an order that is the library's
// own; ours is that of the strides.
std::optional<LayoutSpec::Reordering> ReorderingFromText(std::string_view text);

// The tensors of a graph whose memory has such a layout.
class LaidOutTensors {
 public:
  // Adds `memory`, whose dims and strides are the client's, and the plain tensor, which is
  // returned. A virtual tensor gets the plain one alone.
  Result<TensorId> Add(Graph& graph, Tensor memory, const LayoutSpec& spec);
  // Adds a tensor's memory once more, with a plain tensor of its own: the version before a node
  // that reads and writes it. Absent where `plain` is no plain tensor of this.
  TensorId AddAgain(Graph& graph, TensorId plain, std::string_view suffix);
  // Connects plain tensors to their memory once all nodes are there: a node's results are stored to
  // memory, everything else is loaded from it.
  void Connect(Graph& graph) const;

 private:
  struct Pair {
    TensorId memory = kAbsent;
    MemoryLayout layout;
  };
  std::map<TensorId, Pair> pairs_;  // by the plain tensor
};

}  // namespace kiln::graph
