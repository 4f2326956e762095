// Operations of the interface that Kiln does not compute yet: their kinds exist, so that a client
// is told which and why, and every attribute is refused.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

template <cudnnBackendDescriptorType_t T>
struct LaterOperation : OperationOf<T> {
  static std::span<const AttrRow> Rows();
  Status Import(GraphImport&) const override {
    return Status::Error(Code::kNotSupported, "Kiln does not compute {} yet", NameOf(T));
  }
  Status Finalize() override {
    return Status::Error(Code::kNotSupported, "Kiln does not compute {} yet", NameOf(T));
  }
};

using MoeGroupedMatmulBwdLater =
    LaterOperation<CUDNN_BACKEND_OPERATION_MOE_GROUPED_MATMUL_BWD_DESCRIPTOR>;
using RopeFwdLater = LaterOperation<CUDNN_BACKEND_OPERATION_ROPE_FWD_DESCRIPTOR>;
using RopeBwdLater = LaterOperation<CUDNN_BACKEND_OPERATION_ROPE_BWD_DESCRIPTOR>;

}  // namespace kiln::api
