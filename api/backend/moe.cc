#include "api/backend/moe.h"

#include <fmt/format.h>

namespace kiln::api {
namespace {

using Op = MoeGroupedMatmulDesc;

constexpr AttrRow kRows[] = {
    Attr<&Op::mode>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MODE, Use::kOptional),
    Attr<&Op::math_type>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_MATH_PREC, Use::kOptional),
    Attr<&Op::token>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC),
    Attr<&Op::weight>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC),
    Attr<&Op::first_token_offset>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC),
    Attr<&Op::output>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC),
    Attr<&Op::token_index>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_INDEX_DESC,
                           Use::kOptional),
    Attr<&Op::token_ks>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOKEN_KS_DESC, Use::kOptional),
    Attr<&Op::top_k>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_TOP_K, Use::kOptional),
};

Status CheckDims(const char* name, const Ref<TensorDesc>& tensor, const Dims& dims) {
  if (tensor == nullptr) return Status::Error(Code::kBadParam, "the {} is missing", name);
  if (std::ranges::equal(tensor->dims, dims)) return {};
  return Status::Error(Code::kBadParam, "the {} is {}, not {}", name, tensor->Text(),
                       fmt::join(dims, "x"));
}

}  // namespace

std::span<const AttrRow> MoeGroupedMatmulDesc::Rows() { return kRows; }

Status MoeGroupedMatmulDesc::Finalize() {
  if (token->dims.size() != 3 || weight->dims.size() != 3) {
    return Status::Error(Code::kBadParam, "tokens {} and weights {} must have 3 dimensions",
                         token->Text(), weight->Text());
  }
  const int64_t experts = weight->dims[0], depth = weight->dims[1], columns = weight->dims[2];
  const bool gathers = mode == CUDNN_MOE_GROUPED_MATMUL_MODE_GATHER;
  const bool scatters = mode == CUDNN_MOE_GROUPED_MATMUL_MODE_SCATTER;
  int64_t rows = token->dims[1];
  if (gathers && token_index != nullptr && token_index->dims.size() == 3)
    rows = token_index->dims[1];
  RETURN_IF_ERROR(CheckDims("tokens", token, {1, token->dims[1], depth}));
  const auto& offsets = first_token_offset->dims;
  const bool has_batches = offsets.size() == 3 && offsets[0] % experts == 0;
  RETURN_IF_ERROR(CheckDims("first token offset", first_token_offset,
                            {has_batches ? offsets[0] : experts, 1, 1}));
  if (gathers || scatters) RETURN_IF_ERROR(CheckDims("token index", token_index, {1, rows, 1}));
  if (scatters) RETURN_IF_ERROR(CheckDims("tokens' k", token_ks, {1, rows, 1}));
  if (scatters && top_k < 1)
    return Status::Error(Code::kBadParam, "top k is {}, not positive", top_k);
  return CheckDims("output", output, {1, rows, columns});
}

Status MoeGroupedMatmulDesc::Import(GraphImport& import) const {
  const bool routes = mode != CUDNN_MOE_GROUPED_MATMUL_MODE_NONE;
  const bool scatters = mode == CUDNN_MOE_GROUPED_MATMUL_MODE_SCATTER;
  return import.Add(
      graph::GraphOp::kMoeGroupedMatmul,
      {token.get(), weight.get(), first_token_offset.get(), routes ? token_index.get() : nullptr,
       scatters ? token_ks.get() : nullptr},
      {output.get()}, math_type,
      graph::MoeGroupedMatmulAttrs{.mode = static_cast<graph::MoeMode>(mode), .top_k = top_k});
}

}  // namespace kiln::api
