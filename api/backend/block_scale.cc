#include "api/backend/block_scale.h"

#include "ir/graph/ops.h"

namespace kiln::api {
namespace {

using Dequantize = BlockScaleDequantizeDesc;
using Quantize = BlockScaleQuantizeDesc;

constexpr int64_t kMostBlockSizes = 2;

constexpr AttrRow kDequantizeRows[] = {
    Attr<&Dequantize::x>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_XDESC),
    Attr<&Dequantize::scale>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_SCALE_DESC),
    Attr<&Dequantize::y>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_YDESC),
    Attr<&Dequantize::math_type>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_MATH_PREC,
                                 Use::kOptional),
    Attr<&Dequantize::block_size>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_BLOCK_SIZE,
                                  Use::kOptional, kMostBlockSizes),
    Attr<&Dequantize::negative_scale>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_DEQUANTIZE_NEG_SCALE,
                                      Use::kOptional),
};

constexpr AttrRow kQuantizeRows[] = {
    Attr<&Quantize::x>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_XDESC),
    Attr<&Quantize::y>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_YDESC),
    Attr<&Quantize::scale>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_SCALE_DESC),
    Attr<&Quantize::math_type>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_MATH_PREC, Use::kOptional),
    Attr<&Quantize::block_size>(CUDNN_ATTR_OPERATION_BLOCK_SCALE_QUANTIZE_BLOCK_SIZE,
                                Use::kOptional),
};

bool IsNarrow(cudnnDataType_t type) {
  return type == CUDNN_DATA_FP8_E4M3 || type == CUDNN_DATA_FP8_E5M2 || type == CUDNN_DATA_FP4_E2M1;
}

}  // namespace

std::span<const AttrRow> BlockScaleDequantizeDesc::Rows() { return kDequantizeRows; }
std::span<const AttrRow> BlockScaleQuantizeDesc::Rows() { return kQuantizeRows; }

Status BlockScaleDequantizeDesc::Import(GraphImport& import) const {
  if (negative_scale) {
    return Status::Text(Code::kNotSupported,
                        "negative scales: what they stand for is not known to Kiln");
  }
  return import.Add(
      graph::GraphOp::kBlockScaleDequantize, {x.get(), scale.get()}, {y.get()}, math_type,
      graph::BlockScaleAttrs{.block_size = Dims(block_size.begin(), block_size.end())});
}

Status BlockScaleQuantizeDesc::Finalize() {
  if (!IsNarrow(y->data_type)) {
    return Status::Error(Code::kAttributeType, "y {} is {}; blocks become fp8 or fp4", y->Text(),
                         NameOf(y->data_type));
  }
  if (y->dims != x->dims) {
    return Status::Error(Code::kShapeMismatch, "x is {}, y is {}; they have the same extents",
                         x->Text(), y->Text());
  }
  const auto dims = [](const TensorDesc& t) {
    return graph::Tensor{.dims = Dims(t.dims.begin(), t.dims.end())};
  };
  ASSIGN_OR_RETURN(const Dims blocks, graph::BlockSizes({block_size}, dims(*x), dims(*scale)));
  for (size_t d = 0; d < blocks.size(); ++d) {
    const int64_t count = (x->dims[d] + blocks[d] - 1) / blocks[d];
    if (scale->dims[d] == count) continue;
    return Status::Error(Code::kShapeMismatch,
                         "{} in blocks of {} along dimension {} has {} scales, "
                         "and they are {}",
                         x->Text(), blocks[d], d, count, scale->Text());
  }
  return {};
}

Status BlockScaleQuantizeDesc::Import(GraphImport& import) const {
  return import.Add(graph::GraphOp::kBlockScaleQuantize, {x.get()}, {y.get(), scale.get()},
                    math_type, graph::BlockScaleAttrs{.block_size = {block_size}});
}

}  // namespace kiln::api
