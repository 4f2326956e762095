// CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR and …_BWD_DESCRIPTOR, attributes of 9.24. Spelled out
// when the graph is made (ir/graph/rope.h, which says what it computes), so that it joins what is
// around it.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

// x and y are dy and dx of the gradient.
template <cudnnBackendDescriptorType_t T>
struct RopeOf : OperationOf<T> {
  Ref<TensorDesc> x, y, freqs;
  float output_scale = 1;
  int64_t rope_dim = 0;  // 0 is all of the last dim, which it reads as once it is finalized

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

using RopeForwardDesc = RopeOf<CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR>;
using RopeBackwardDesc = RopeOf<CUDNN_BACKEND_OPERATION_ROPE_BWD_DESCRIPTOR>;

}  // namespace kiln::api
