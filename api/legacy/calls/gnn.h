// Graphs in compressed columns, as the functions of cudnn_gnn_ops.h have them: the numbers and
// lists of one, and the nodes of a CallGraph that follow edges.
//
//   gnn_aggregate.cc   cudnnGnnAggSimple{Forward,Backward}
//   gnn_attention.cc   cudnnGnnMhaGat{,V2}Forward
//   gnn_attention_grad.cc   their gradients
//
// An edge has a place, where the columns have it, and a row, where tables of edges have it: that of
// mapCscToCoo, or its place. Whatever is computed for each edge lies in rows.
#pragma once

#include "api/legacy/plans/call.h"
#include "include/v9/cudnn_gnn_ops.h"
#include "ir/graph/attrs.h"

namespace kiln::api::legacy::gnn {

// A shape is what of a graph is part of a call's key.
struct Shape {
  int64_t sources = 0, destinations = 0, edges = 0;
  int32_t index = CUDNN_DATA_INT32;
  int32_t has_rows = 0;     // mapCscToCoo
  int32_t is_reversed = 0;  // both lists of the reversed graph are there
  int32_t padding = 0;
};

struct Graph {
  Shape shape;
  const void *offsets, *indices, *rows, *reverse_offsets, *reverse_rows;
};

// The checked graph; one without destinations has no edges.
Result<Graph> GraphOf(const void* csc_graph);
// Error: the type is not float, half or bfloat16.
Status CheckType(int type, std::string_view name);
// Checks that a pointer to something of `count` elements is there; of nothing it need not be.
Status Needs(const void* pointer, int64_t count, std::string_view name);
// Checks that a pointer is there just where its dimension is not 0; where there is nothing it may
// be NULL, too.
Status Matches(const void* pointer, int64_t dim, int64_t count, std::string_view name,
               std::string_view dim_name);
// Checks that an extent is a non-negative int, and no less than `least`.
Status CheckDim(int64_t dim, int64_t least, std::string_view name);

// A tensor with these extents and strides; all fit.
TensorDesc Described(int type, std::initializer_list<int64_t> dims,
                     std::initializer_list<int64_t> strides);

// The lists of a graph as operands of a call, of rank `rank`.
class Lists {
 public:
  Lists(Call& call, const Graph& graph, int rank);

  // Adds the nodes that find each edge's ends. Once for a call's graph.
  Status Make(CallGraph& g);

  // The ends of each row of edges.
  graph::TensorId sources() const { return sources_; }
  graph::TensorId destinations() const { return destinations_; }

  // x[i] of each edge, where i is its source or its destination: [E,…].
  graph::TensorId AtSources(CallGraph& g, graph::TensorId x) const { return At(g, x, sources_); }
  graph::TensorId AtDestinations(CallGraph& g, graph::TensorId x) const {
    return At(g, x, destinations_);
  }
  // x[N,…] at the first `count` rows; zeroes behind its end.
  graph::TensorId FirstRows(CallGraph& g, graph::TensorId x, int64_t count) const;

  // y[n] = sum, or as `mode` says, over the edges into n of x at the edge's row, or of x at its
  // source. In f32; or `into` memory, behind which positions may stand.
  graph::TensorId ReduceRows(CallGraph& g, graph::SegmentMode mode, graph::TensorId x,
                             std::vector<graph::TensorId> into = {}) const;
  graph::TensorId ReduceSources(CallGraph& g, graph::SegmentMode mode, graph::TensorId x,
                                std::vector<graph::TensorId> into = {}) const;
  // The sum over the edges out of each source of x at the edge's row: in the order of the reversed
  // graph where that is known, else in any order.
  // Sums that add in any order begin with `start`.
  graph::TensorId ReduceOut(CallGraph& g, graph::TensorId x, graph::TensorId start) const;
  // The edges into each destination, [N,1,…] f32.
  graph::TensorId Counts(CallGraph& g) const;

 private:
  graph::TensorId At(CallGraph& g, graph::TensorId x, graph::TensorId index) const;
  graph::TensorId Segments(CallGraph& g, graph::SegmentMode mode, graph::TensorId x,
                           graph::TensorId offsets, graph::TensorId rows,
                           std::vector<graph::TensorId> into) const;
  Dims ListDims(int64_t count) const;

  const Shape shape_;
  const int rank_;
  const TensorDesc offsets_desc_, edges_desc_, reverse_desc_;
  Operand offsets_, indices_, rows_, reverse_offsets_, reverse_rows_;
  // Tensors of the CallGraph.
  graph::TensorId offsets_id_ = graph::kAbsent, indices_id_ = graph::kAbsent,
                  rows_id_ = graph::kAbsent, reverse_offsets_id_ = graph::kAbsent,
                  reverse_rows_id_ = graph::kAbsent;
  graph::TensorId sources_ = graph::kAbsent, destinations_ = graph::kAbsent;
};

}  // namespace kiln::api::legacy::gnn
