// Conveniences for code that makes graphs: importers, the API's legacy calls, tests.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph/graph.h"

namespace kiln::graph {

struct ResultOptions {
  DType dtype = DType::kF32;  // of the result
  DType compute = DType::kF32;
  Dims dims = {};  // of the result, where they do not follow from the operands
  Dims strides = {};
};

// Builds a graph op by op; results get their extents at once, so that they can be looked at.
//
//   GraphBuilder b("gelu");
//   const TensorId x = b.Input("x", DType::kF16, {8, 64});
//   b.Output(b.Pointwise(PointwiseMode::kGeluFwd, {x}), "y", DType::kF16);
//   ASSIGN_OR_RETURN(Graph graph, b.Finish());
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) { graph_.name = std::move(name); }

  // Non-virtual tensors get uids 1, 2, …; empty strides are dense row-major.
  TensorId Input(std::string name, DType dtype, Dims dims, Dims strides = {});
  TensorId Constant(std::string name, DType dtype, double value, int64_t rank = 1);
  TensorId ByValue(std::string name, DType dtype, int64_t rank = 1);

  // Adds a node with one result, virtual until Output says otherwise.
  TensorId Apply(GraphOp op, std::vector<TensorId> inputs, Attrs attrs, ResultOptions options = {});
  TensorId Pointwise(PointwiseMode mode, std::vector<TensorId> inputs, ResultOptions options = {});
  TensorId Reduction(ReductionMode mode, TensorId x, Dims dims, ResultOptions options = {});

  void Output(TensorId id, const std::string& name, DType dtype, Dims strides = {});

  Graph& graph() { return graph_; }
  Result<Graph> Finish();  // Legalize of what was built

 private:
  TensorId NewResult(std::string_view op, const ResultOptions& options);

  Graph graph_;
  int64_t next_uid_ = 1;
};

// The steps that every graph from outside goes through: Normalize, NarrowReductions,
// FitSideOperands, InferShapes, SplitGroupedReductions, SplitComplex, Verify,
// SettleSpelledAttention.
Status Legalize(Graph& graph);

// cudnn-frontend leaves the maximum of a softmax with a sink at its operand's extents. Its readers
// say what was meant: a dim in which no reader has room for more than one is reduced. The graph
// must be normalised.
void NarrowReductions(Graph& graph);

// cuDNN's reductions take more than one extent of 1: an output extent may also divide the input's,
// and then groups of consecutive elements are reduced (key and value gradients of grouped-query
// attention). Such a reduction becomes reshape, reduction, reshape. The graph must be normalised
// and inferred.
Status SplitGroupedReductions(Graph& graph);

// Makes tensors that were declared as rectangles ragged: `offsets` has, for each of them, the
// tensor of its offsets. Memory gets a flat tensor with the uid; the rectangle becomes virtual, and
// is loaded from it or stored to it. A virtual one is a rectangle anyway. Nodes need not be sorted.
Status MakeRagged(Graph& graph, const std::map<TensorId, TensorId>& offsets);

}  // namespace kiln::graph
