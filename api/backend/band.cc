#include "api/backend/band.h"

namespace kiln::api {
namespace {

using Expand = ExpandBandMatrixDesc;
using Contract = ContractBandMatrixDesc;

constexpr AttrRow kExpandRows[] = {
    Attr<&Expand::x>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_XDESC),
    Attr<&Expand::y>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_YDESC),
    Attr<&Expand::lower>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_LOWER_BANDWIDTH),
    Attr<&Expand::upper>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_UPPER_BANDWIDTH),
    Attr<&Expand::axis>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_AXIS),
    Attr<&Expand::pad_value>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_PAD_VALUE, Use::kOptional),
    Attr<&Expand::kv_token_offset>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_KV_TOKEN_OFFSET_DESC,
                                   Use::kOptional),
    Attr<&Expand::speculative_mask>(CUDNN_ATTR_OPERATION_EXPAND_BAND_MATRIX_SPECULATIVE_MASK_DESC,
                                    Use::kOptional),
};

constexpr AttrRow kContractRows[] = {
    Attr<&Contract::x>(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_XDESC),
    Attr<&Contract::y>(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_YDESC),
    Attr<&Contract::lower>(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_LOWER_BANDWIDTH),
    Attr<&Contract::upper>(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_UPPER_BANDWIDTH),
    Attr<&Contract::axis>(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_AXIS),
    Attr<&Contract::pad_value>(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MATRIX_PAD_VALUE, Use::kOptional),
    Attr<&Contract::max_token_value>(CUDNN_ATTR_OPERATION_CONTRACT_BAND_MAX_TOKEN_VALUE,
                                     Use::kOptional),
};

// The band has lower + upper + 1 elements along the axis, and agrees with the matrix elsewhere.
template <class Desc>
Status Check(const Desc& d, const TensorDesc& band, const TensorDesc& matrix) {
  const auto rank = static_cast<int64_t>(band.dims.size());
  if (rank < 2 || matrix.dims.size() != band.dims.size()) {
    return Status::Error(Code::kShapeMismatch, "{} and {} must have one rank, of 2 at least",
                         band.Text(), matrix.Text());
  }
  if (d.axis != rank - 1 && d.axis != rank - 2) {
    return Status::Error(Code::kBadParam, "axis {} is none of the last two of {}", d.axis,
                         band.Text());
  }
  for (int64_t i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i == d.axis || band.dims[at] == matrix.dims[at]) continue;
    return Status::Error(Code::kShapeMismatch, "{} and {} must agree in all dimensions but {}",
                         band.Text(), matrix.Text(), d.axis);
  }
  const int64_t extent = band.dims[static_cast<size_t>(d.axis)];
  // One by one: their sum may be more than there are numbers.
  const bool fits =
      d.lower >= 0 && d.upper >= 0 && d.lower < extent && d.upper == extent - 1 - d.lower;
  if (fits) return {};
  return Status::Error(Code::kBadParam,
                       "bandwidths {} below and {} above the diagonal do not give the {} of {}",
                       d.lower, d.upper, extent, band.Text());
}

}  // namespace

std::span<const AttrRow> ExpandBandMatrixDesc::Rows() { return kExpandRows; }
std::span<const AttrRow> ContractBandMatrixDesc::Rows() { return kContractRows; }

Status ExpandBandMatrixDesc::Finalize() { return Check(*this, *x, *y); }
Status ContractBandMatrixDesc::Finalize() { return Check(*this, *y, *x); }

Status ExpandBandMatrixDesc::Import(GraphImport& import) const {
  if (kv_token_offset != nullptr || speculative_mask != nullptr) {
    return Status::Text(Code::kNotSupported,
                        "a band of speculative tokens: what its token offset and its mask stand "
                        "for is documented nowhere, so Kiln does not guess");
  }
  return import.Add(
      graph::GraphOp::kExpandBandMatrix, {x.get()}, {y.get()}, MovingType(y->data_type),
      graph::BandAttrs{.lower = lower, .upper = upper, .axis = axis, .pad_value = pad_value});
}

Status ContractBandMatrixDesc::Import(GraphImport& import) const {
  if (max_token_value >= 0) {
    return Status::Error(Code::kNotSupported,
                         "a band with the largest token {}: what it stands for is documented "
                         "nowhere, so Kiln does not guess",
                         max_token_value);
  }
  return import.Add(
      graph::GraphOp::kContractBandMatrix, {x.get()}, {y.get()}, MovingType(y->data_type),
      graph::BandAttrs{.lower = lower, .upper = upper, .axis = axis, .pad_value = pad_value});
}

}  // namespace kiln::api
