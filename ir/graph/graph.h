// The tensor graph: SSA values are tensors, nodes are operations of graph_ops.def.
//
//   graph csbr {
//     tensor %x uid=1 f16 [8,32,16,16] strides=[8192,1,512,32]
//     tensor %w uid=7 f16 [64,32,3,3] strides=[288,1,96,32]
//     tensor %conv uid=2 f32 [8,64,16,16] strides=[16384,1,1024,64] virtual
//     tensor %b uid=5 f32 [1,1,1,1] strides=[1,1,1,1] by_value value=0x1p-1
//     …
//     %conv = conv_fprop(%x, %w) compute=f32 pre_padding=[1,1] post_padding=[1,1]
//             stride=[1,1] dilation=[1,1]
//     %y = pointwise(%conv) compute=f32 mode=relu_fwd
//   }
//
// Every tensor rounds to its dtype: a node computes in its compute type and the result is converted
// to the output tensor's dtype, virtual tensors included. The interpreter (eval.h) computes in f64
// and rounds there too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/base/result.h"
#include "ir/dtype.h"
#include "ir/graph/attrs.h"
#include "ir/shape.h"

namespace kiln::graph {

using TensorId = int32_t;                // index into Graph::tensors; dense and stable
using NodeId = int32_t;                  // index into Graph::nodes
inline constexpr TensorId kAbsent = -1;  // an optional operand that is not there

struct Tensor {
  std::string name = {};  // unique in the graph, [A-Za-z_][A-Za-z0-9_]*
  int64_t uid =
      -1;  // the caller's; -1 for tensors that passes made. In-place graphs have two tensors of one
           // uid: the version that is read and the version that is written.
  DType dtype = DType::kF32;
  Dims dims = {};
  Dims strides = {};        // in elements; of a virtual tensor: a wish that only `reshape` reads
  int64_t alignment = 16;   // bytes that the pointer is promised to be aligned to
  bool is_virtual = false;  // never leaves the graph
  bool by_value = false;    // one element, a host pointer at execute time, or `value`
  std::optional<double> value =
      {};  // known now: a constant of the graph (by_value, no pointer asked for)
  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  bool is_constant() const { return value.has_value(); }
};

// The bytes from the first element to the last, both included.
inline int64_t MemoryBytes(const Tensor& tensor) {
  return BytesOf(tensor.dtype, SpanElements(tensor.dims, tensor.strides));
}

enum class GraphOp : uint8_t {
#define GRAPH_OP(Name, ...) k##Name,
#include "ir/graph/graph_ops.def"
#undef GRAPH_OP
};

struct Node {
  GraphOp op{};
  std::vector<TensorId> inputs;   // kAbsent where an optional operand is missing
  std::vector<TensorId> outputs;  // likewise
  DType compute = DType::kF32;
  Attrs attrs;
  std::string name;  // the client's, for messages; may be empty

  template <class A>
  const A& As() const {
    return std::get<A>(attrs);
  }
};

// An index of tensors by name, with which a graph finds free names without a look at every tensor.
// It follows what is appended or erased by others; a copy of a graph builds its own when it is
// asked.
class TensorNames {
 public:
  TensorNames() = default;
  TensorNames(const TensorNames&) {}
  TensorNames(TensorNames&&) = default;
  TensorNames& operator=(const TensorNames&);
  TensorNames& operator=(TensorNames&&) = default;

  bool Contains(const std::vector<Tensor>& tensors, const std::string& name);
  void Rename(TensorId id, const std::string& before, const std::string& after);

 private:
  std::unordered_map<std::string, TensorId> ids_;
  size_t indexed_ = 0;  // tensors that have been entered
};

struct Graph {
  std::string name = "graph";
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;  // topologically ordered after Normalize
  TensorNames names = {};

  TensorId AddTensor(Tensor tensor);                  // makes the name unique
  void Rename(TensorId id, const std::string& wish);  // makes the name unique
  NodeId AddNode(Node node);
  const Tensor& operator[](TensorId id) const { return tensors[static_cast<size_t>(id)]; }
  Tensor& operator[](TensorId id) { return tensors[static_cast<size_t>(id)]; }
};

// The node that writes each tensor, or -1; and the nodes that read it.
std::vector<NodeId> Producers(const Graph& graph);
std::vector<std::vector<NodeId>> Consumers(const Graph& graph);

// Sorts nodes topologically (stable: among ready nodes the original order), drops tensors that
// nothing names, and reports cycles and doubly written tensors. The API's ops may come in any
// order.
Status Normalize(Graph& graph);

// Checks everything that must hold: arity, attributes, shapes, dtypes, strides, one writer a
// tensor, topological order, virtual tensors written. Sentences name the node and the tensor.
Status Verify(const Graph& graph);

// Fills dims, strides and dtype of output tensors that have none (empty dims), node by node.
Status InferShapes(Graph& graph);

// ---- text: print → parse → print is the identity
std::string Print(const Graph& graph);
Result<Graph> Parse(std::string_view text);  // errors name line and column

// The canonical text that keys plans: names and uids renumbered in order of first use, strides of
// size-1 dims normalised, client's node names dropped. Graphs with equal canonical text run on the
// same plan.
std::string CanonicalText(const Graph& graph);

// The canonical text with the numbers that a reader of another graph of that text needs: uids[k] is
// the graph's uid for number k.
struct Canonical {
  std::string text;
  std::vector<int64_t> uids;
};
Canonical Canonicalize(const Graph& graph);

// The tensors that a caller must pass: non-virtual and without a known value, in order of first
// use.
std::vector<TensorId> Inputs(const Graph& graph);   // read before (or without) being written
std::vector<TensorId> Outputs(const Graph& graph);  // written and not virtual

}  // namespace kiln::graph
