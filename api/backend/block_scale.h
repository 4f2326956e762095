// CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR and
// CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR; attributes of 9.19.
#pragma once

#include "api/backend/operation.h"

namespace kiln::api {

// y = x * scale, one scale a block. One block size is that of the dim that has fewer scales than
// elements, two are those of the last two dims.
struct BlockScaleDequantizeDesc
    : OperationOf<CUDNN_BACKEND_OPERATION_BLOCK_SCALE_DEQUANTIZE_DESCRIPTOR> {
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  Ref<TensorDesc> x, scale, y;
  std::vector<int32_t> block_size;
  bool negative_scale = false;

  static std::span<const AttrRow> Rows();
  Status Import(GraphImport& graph) const override;
};

// scale = max |x| of a block / the largest value of y's type, rounded up; y = x / scale.
struct BlockScaleQuantizeDesc
    : OperationOf<CUDNN_BACKEND_OPERATION_BLOCK_SCALE_QUANTIZE_DESCRIPTOR> {
  cudnnDataType_t math_type = CUDNN_DATA_FLOAT;
  Ref<TensorDesc> x, y, scale;
  int32_t block_size = 1;

  static std::span<const AttrRow> Rows();
  Status Finalize() override;
  Status Import(GraphImport& graph) const override;
};

}  // namespace kiln::api
