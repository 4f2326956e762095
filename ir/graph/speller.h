// Speller: adds nodes of one result each to a graph, by which operations of the API that are no
// operation of ours are spelled out. Used by the Spell... functions (attention_parts.h,
// attention_gradient.h, pointwise_gradient.h, rope.h, moe_backward.h).
#pragma once

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::graph {

// Adds nodes with one result each; results are virtual, but for those that the caller has.
class Speller {
 public:
  Speller(Graph& graph, DType compute) : graph_(graph), compute_(compute) {}

  struct Form {
    DType dtype;
    Dims dims;
  };
  TensorId Temporary(const Form& form) {
    return graph_.AddTensor({.name = fmt::format("tmp{}", graph_.tensors.size()),
                             .dtype = form.dtype,
                             .dims = form.dims,
                             .strides = PackedStrides(form.dims),
                             .is_virtual = true});
  }
  TensorId Number(double value, const Form& of) {
    const Dims ones(of.dims.size(), 1);
    return graph_.AddTensor({.name = "number",
                             .dtype = of.dtype,
                             .dims = ones,
                             .strides = ones,
                             .by_value = true,
                             .value = value});
  }
  void Node(GraphOp op, std::vector<TensorId> inputs, TensorId to, DType compute, Attrs attrs) {
    graph_.AddNode({.op = op,
                    .inputs = std::move(inputs),
                    .outputs = {to},
                    .compute = compute,
                    .attrs = std::move(attrs)});
  }
  void PointwiseTo(TensorId to, PointwiseAttrs attrs, std::vector<TensorId> inputs) {
    Node(GraphOp::kPointwise, std::move(inputs), to, compute_, attrs);
  }
  void PointwiseTo(TensorId to, PointwiseMode mode, std::vector<TensorId> inputs) {
    PointwiseTo(to, PointwiseAttrs{.mode = mode}, std::move(inputs));
  }
  TensorId Pointwise(PointwiseMode mode, std::vector<TensorId> inputs, const Form& form) {
    const TensorId to = Temporary(form);
    PointwiseTo(to, mode, std::move(inputs));
    return to;
  }
  // Elements of x from `start` on, as many as `dims` has.
  TensorId Slice(TensorId x, Dims start, const Dims& dims) {
    const TensorId to = Temporary({.dtype = graph_[x].dtype, .dims = dims});
    SliceAttrs attrs{.start = std::move(start), .step = Dims(dims.size(), 1)};
    Node(GraphOp::kSlice, {x}, to, MovingType(graph_[x].dtype), std::move(attrs));
    return to;
  }
  // Dim d of the result is dim permutation[d] of x.
  TensorId Transpose(TensorId x, const Dims& permutation) {
    Form form{.dtype = graph_[x].dtype, .dims = {}};
    for (const int64_t from : permutation)
      form.dims.push_back(graph_[x].dims[static_cast<size_t>(from)]);
    const TensorId to = Temporary(form);
    Node(GraphOp::kTranspose, {x}, to, MovingType(graph_[x].dtype),
         TransposeAttrs{.permutation = permutation});
    return to;
  }
  void ReductionTo(TensorId to, ReductionMode mode, TensorId x) {
    Node(GraphOp::kReduction, {x}, to, compute_, ReductionAttrs{.mode = mode});
  }
  // The client's tensor where it has the form that the value is computed in; else a temporary,
  // which Store casts into the client's.
  TensorId Place(TensorId wanted, const Form& form) {
    const bool fits = wanted != kAbsent && graph_[wanted].dtype == form.dtype;
    return fits ? wanted : Temporary(form);
  }
  void Store(TensorId value, TensorId wanted) {
    if (wanted != kAbsent && wanted != value)
      PointwiseTo(wanted, PointwiseMode::kIdentity, {value});
  }

 private:
  Graph& graph_;
  const DType compute_;
};

// The ids without absent ones at the end.
inline std::vector<TensorId> Operands(std::vector<TensorId> ids) {
  while (!ids.empty() && ids.back() == kAbsent) ids.pop_back();
  return ids;
}

// The type of values between a tensor's elements and the rounded result.
inline DType FloatFor(const Tensor& x) {
  return x.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

}  // namespace kiln::graph
