// CUDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR: y = x, behind which a flag in memory that several GPUs
// see gets its value, or in front of which it is waited for (ir/graph/ops_peers.cc). As in NVIDIA's
// no attribute is required as such; what is missing is told when the operation graph is finalised.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

struct SignalDesc : OperationOf<CUDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR> {
  cudnnSignalMode_t mode = CUDNN_SIGNAL_SET;
  Ref<TensorDesc> flag, x, y;
  int64_t value = 0;

  static std::span<const AttrRow> Rows();
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
