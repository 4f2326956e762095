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
  bool override_shape = false;  // packs may have other shapes in any case
  // A hint for pattern matching, which is Kiln's own.
  cudnnBackendOperationGraphMode_t mode = CUDNN_OPERATIONGRAPH_MODE_AUTO;
  graph::Graph graph;  // after finalize: sorted, verified; empty where it is none by itself
  Status by_itself;    // why it is no graph but by another operation, as a sub-graph

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  // The handle's session, or the process's default one.
  Result<std::shared_ptr<Session>> SessionFor() const;
};

}  // namespace kiln::api
