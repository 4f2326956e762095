// CUDNN_BACKEND_OPERATION_SIGNAL_DESCRIPTOR; attributes of 9.19. It is made and read back as in
// NVIDIA's; graphs with it are refused: a plan of Kiln is work of one stream, which neither waits
// for other devices nor tells them.
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
