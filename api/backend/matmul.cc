#include "api/backend/matmul.h"

namespace kiln::api {
namespace {

constexpr AttrRow kMatmulRows[] = {
    Attr<&MatmulDesc::compute_type>(CUDNN_ATTR_MATMUL_COMP_TYPE),
    Attr<&MatmulDesc::padding_value>(CUDNN_ATTR_MATMUL_PADDING_VALUE, Use::kOptional),
};

using Op = OperationMatmulDesc;

constexpr AttrRow kOperationRows[] = {
    Attr<&Op::a>(CUDNN_ATTR_OPERATION_MATMUL_ADESC),
    Attr<&Op::b>(CUDNN_ATTR_OPERATION_MATMUL_BDESC),
    Attr<&Op::c>(CUDNN_ATTR_OPERATION_MATMUL_CDESC),
    Attr<&Op::matmul>(CUDNN_ATTR_OPERATION_MATMUL_DESC),
    Attr<&Op::irregular_batch_count>(CUDNN_ATTR_OPERATION_MATMUL_IRREGULARLY_STRIDED_BATCH_COUNT,
                                     Use::kOptional),
    Attr<&Op::m_override>(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, Use::kOptional),
    Attr<&Op::n_override>(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, Use::kOptional),
    Attr<&Op::k_override>(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, Use::kOptional),
};

Status CheckOverride(const char* name, const Ref<TensorDesc>& tensor) {
  if (tensor == nullptr) return {};
  if (tensor->data_type == CUDNN_DATA_INT32 || tensor->data_type == CUDNN_DATA_INT64) return {};
  return Status::Error(Code::kBadParam,
                       "the override of {}, {}, is {}; it counts, so it must be an integer", name,
                       tensor->Text(), NameOf(tensor->data_type));
}

}  // namespace

std::span<const AttrRow> MatmulDesc::Rows() { return kMatmulRows; }
std::span<const AttrRow> OperationMatmulDesc::Rows() { return kOperationRows; }

Status OperationMatmulDesc::Finalize() {
  size_t rank = a->dims.size();
  if (rank < 2 || b->dims.size() != rank || c->dims.size() != rank) {
    return Status::Error(Code::kBadParam, "a {}, b {} and c {} must have one rank, of 2 at least",
                         a->Text(), b->Text(), c->Text());
  }
  int64_t m = a->dims[rank - 2], k = a->dims[rank - 1], n = b->dims[rank - 1];
  if (b->dims[rank - 2] != k || c->dims[rank - 2] != m || c->dims[rank - 1] != n) {
    return Status::Error(Code::kBadParam,
                         "a {} (M={}, K={}) times b {} (K={}, N={}) does not give c {}", a->Text(),
                         m, k, b->Text(), b->dims[rank - 2], n, c->Text());
  }
  for (size_t i = 0; i + 2 < rank; ++i) {
    int64_t da = a->dims[i], db = b->dims[i], dc = c->dims[i];
    if (std::max(da, db) == dc && dc % da == 0 && dc % db == 0) continue;
    return Status::Error(Code::kBadParam,
                         "batch dimension {}: {} of a and {} of b do not give {} of c", i, da, db,
                         dc);
  }
  if (irregular_batch_count < 1) {
    return Status::Error(Code::kBadParam, "{} irregularly strided batches", irregular_batch_count);
  }
  RETURN_IF_ERROR(CheckOverride("M", m_override));
  RETURN_IF_ERROR(CheckOverride("N", n_override));
  return CheckOverride("K", k_override);
}

Status OperationMatmulDesc::Import(GraphImport& import) const {
  if (irregular_batch_count != 1) {
    return Status::Error(Code::kNotSupported,
                         "{} irregularly strided batches: Kiln's matrices have one batch stride",
                         irregular_batch_count);
  }
  return import.Add(graph::GraphOp::kMatmul,
                    {a.get(), b.get(), m_override.get(), n_override.get(), k_override.get()},
                    {c.get()}, matmul->compute_type,
                    graph::MatmulAttrs{.padding_value = matmul->padding_value.value});
}

}  // namespace kiln::api
