// CUDNN_BACKEND_REDUCTION_DESCRIPTOR and its operation; attributes of 9.19, groups of rows, and
// operators that are sub-graphs of the client's.
#pragma once

#include "api/backend/operation_graph.h"
#include "ir/graph/user_reduction.h"

namespace kiln::api {

struct ReductionDesc : DescriptorOf<CUDNN_BACKEND_REDUCTION_DESCRIPTOR> {
  cudnnReduceTensorOp_t op = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  bool deterministic = false;

  static std::span<const AttrRow> Rows();
};

// Each dimension of y is that of x, 1, or a divisor of it; the last reduces runs of neighbours, as
// the heads of grouped-query attention are.
struct OperationReductionDesc : OperationOf<CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR> {
  Ref<ReductionDesc> reduction;
  // One each, but for a client's own operator, which may reduce a tuple.
  std::vector<Ref<TensorDesc>> x, y;
  // The places where groups of rows begin, ascending: x[1,rows,…], y[groups,1,…],
  // offsets[groups,1,…]. A group ends where the next begins, the last with the rows, or where one
  // offset more says.
  Ref<TensorDesc> offsets;

  // A client's own operator (ir/graph/user_reduction.h).
  InlineVector<int64_t, CUDNN_DIM_MAX> dims;
  Ref<OperationGraphDesc> subgraph;
  std::vector<int64_t> accumulators, currents, outputs;  // uids of the sub-graph
  std::vector<cudnnDataType_t> compute_types;
  std::vector<void*> initial_at;  // the client's pointers, and what was there
  std::vector<double> initial;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
  // Sets the initial value from elements of y's type, which must be known.
  Status SetInitial(const AttrIn& in);

 private:
  Status CheckGroups() const;
  Status CheckUser() const;
  Status CheckUserDims() const;
  Result<graph::UserReduction> Operator() const;
  Status ImportUser(GraphImport& graph) const;
};

}  // namespace kiln::api
