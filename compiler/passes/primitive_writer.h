// PrimitiveWriter: how passes write arithmetic. Each call appends a node and returns its tensor, a
// virtual one of the compute type (bool for comparisons) with the broadcast shape of its operands.
//
//   PrimitiveWriter w(graph, DType::kF32, "gelu");
//   TensorId y = w.Mul(w.Mul(x, w.Number(0.5)), w.Add(w.Number(1), w.Map(ScalarOp::kErf, {…})));
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler/module.h"
#include "ir/graph/graph.h"

namespace kiln::compiler {

class PrimitiveWriter {
 public:
  PrimitiveWriter(graph::Graph& graph, DType compute, std::string name)
      : graph_(graph), first_node_(graph.nodes.size()), compute_(compute), name_(std::move(name)) {}

  graph::TensorId Number(double value, int64_t uid = kLiteralUid);
  graph::TensorId Map(ScalarOp op, std::initializer_list<graph::TensorId> operands);
  graph::TensorId Cast(graph::TensorId x, DType type);
  // Rounds x in the compute type to `type`.
  graph::TensorId Round(graph::TensorId x, DType type);
  // Dims come by value, as below: a reference into the graph would not survive the nodes that are
  // added.
  graph::TensorId Reduce(graph::Combine combine, graph::TensorId x, Dims result_dims);
  graph::TensorId Iota(int64_t axis, Dims dims);
  // The sums of x, and of `second` where it is not absent, over the ranks whose buffers these are.
  std::pair<graph::TensorId, graph::TensorId> PeerReduce(graph::TensorId x, graph::TensorId second,
                                                         std::vector<graph::TensorId> buffers,
                                                         int64_t first);

  // Views of x, in its dtype. `Reshape` keeps the row-major order: x is dense in that order, as
  // this writer's are, or no extents but ones are added and the strides say where the others stay.
  graph::TensorId Transpose(graph::TensorId x, Dims permutation);
  graph::TensorId Reshape(graph::TensorId x, Dims dims, std::optional<Dims> strides = {});
  graph::TensorId Slice(graph::TensorId x, Dims start, Dims dims);
  graph::TensorId SliceFront(graph::TensorId x, Dims dims);  // the first of each dim
  graph::TensorId Gather(graph::TensorId x, graph::TensorId index, int64_t axis, Dims dims);
  // The product a[...,M,K] b[...,K,N] in the compute type, or as `y`.
  graph::TensorId Matmul(graph::TensorId a, graph::TensorId b, graph::TensorId y = graph::kAbsent);

  graph::TensorId Add(graph::TensorId a, graph::TensorId b) { return Map(ScalarOp::kAdd, {a, b}); }
  graph::TensorId Sub(graph::TensorId a, graph::TensorId b) { return Map(ScalarOp::kSub, {a, b}); }
  graph::TensorId Mul(graph::TensorId a, graph::TensorId b) { return Map(ScalarOp::kMul, {a, b}); }
  graph::TensorId Div(graph::TensorId a, graph::TensorId b) { return Map(ScalarOp::kDiv, {a, b}); }
  graph::TensorId Select(graph::TensorId c, graph::TensorId a, graph::TensorId b) {
    return Map(ScalarOp::kSelect, {c, a, b});
  }

  // Makes the value of `from` the tensor `to`: retargets from's node if this writer made it and the
  // shapes agree, else appends an identity.
  void Write(graph::TensorId from, graph::TensorId to);

  DType compute() const { return compute_; }
  graph::Graph& graph() { return graph_; }

 private:
  graph::TensorId Virtual(const char* suffix, DType type, Dims dims);
  graph::TensorId Moved(graph::GraphOp op, std::vector<graph::TensorId> inputs, graph::Tensor y,
                        graph::Attrs attrs);

  graph::Graph& graph_;
  size_t first_node_;  // nodes from here on are this writer's
  DType compute_;
  std::string name_;
};

}  // namespace kiln::compiler
