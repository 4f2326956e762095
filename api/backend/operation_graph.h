// CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: operations become a graph::Graph. Reference 9.2.15.
#pragma once

#include "api/backend/operation.h"
#include "ir/graph/graph.h"

namespace kiln::api {

struct OperationGraphDesc : DescriptorOf<CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR> {
  HandleRef handle;  // absent for graphs that are compiled for a described device
  std::vector<Ref<Operation>> operations;
  // Extents are arguments of kernels anyway: what this says is that the heuristics prefer a
  // configuration whose kernels are compiled already.
  bool dynamic_shape = false;
  bool same_topology = false;
  graph::Graph graph;  // after finalize: sorted, verified

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  // The handle's session, or the process's default one.
  Result<std::shared_ptr<Session>> SessionFor() const;
};

}  // namespace kiln::api
