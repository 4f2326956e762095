#include "api/backend/moe.h"

#include <fmt/format.h>

#include "ir/graph/moe_backward.h"

namespace kiln::api {
namespace {

using Op = MoeGroupedMatmulDesc;
using Bwd = MoeGroupedMatmulBwdDesc;

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

constexpr AttrRow kBwdRows[] = {
    Attr<&Bwd::math_type>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_MATH_PREC, Use::kOptional),
    Attr<&Bwd::token>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC),
    Attr<&Bwd::dweight>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC),
    Attr<&Bwd::first_token_offset>(
        CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC),
    Attr<&Bwd::doutput>(CUDNN_ATTR_OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC),
};

Status CheckDims(const char* name, const Ref<TensorDesc>& tensor, const Dims& dims) {
  if (tensor == nullptr) return Status::Error(Code::kBadParam, "the {} is missing", name);
  if (std::ranges::equal(tensor->dims, dims)) return {};
  return Status::Error(Code::kBadParam, "the {} is {}, not {}", name, tensor->Text(),
                       fmt::join(dims, "x"));
}

// One for each expert, or for each expert of each batch.
Status CheckOffsets(const Ref<TensorDesc>& first, int64_t experts) {
  const bool has_batches =
      first->dims.size() == 3 && experts > 0 && first->dims[0] > 0 && first->dims[0] % experts == 0;
  return CheckDims("first token offset", first, {has_batches ? first->dims[0] : experts, 1, 1});
}

}  // namespace

std::span<const AttrRow> MoeGroupedMatmulDesc::Rows() { return kRows; }
std::span<const AttrRow> MoeGroupedMatmulBwdDesc::Rows() { return kBwdRows; }

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
  RETURN_IF_ERROR(CheckOffsets(first_token_offset, experts));
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

Status MoeGroupedMatmulBwdDesc::Finalize() {
  if (token->dims.size() != 3 || doutput->dims.size() != 3 || dweight->dims.size() != 3) {
    return Status::Error(
        Code::kBadParam,
        "tokens {}, gradients of outputs {} and of weights {} must have 3 dimensions",
        token->Text(), doutput->Text(), dweight->Text());
  }
  const int64_t rows = token->dims[1];
  RETURN_IF_ERROR(CheckDims("tokens", token, {1, rows, token->dims[2]}));
  RETURN_IF_ERROR(CheckDims("gradient of outputs", doutput, {1, rows, doutput->dims[2]}));
  RETURN_IF_ERROR(CheckDims("gradient of weights", dweight,
                            {dweight->dims[0], token->dims[2], doutput->dims[2]}));
  RETURN_IF_ERROR(CheckOffsets(first_token_offset, dweight->dims[0]));
  const cudnnDataType_t counts = first_token_offset->data_type;
  if (counts == CUDNN_DATA_INT32 || counts == CUDNN_DATA_INT64) return {};
  return Status::Error(
      Code::kBadParam,
      "the first token offset, {}, is {}; it counts tokens, so it must be an integer",
      first_token_offset->Text(), NameOf(counts));
}

Status MoeGroupedMatmulBwdDesc::Import(GraphImport& import) const {
  graph::MoeBackwardParts parts;
  ASSIGN_OR_RETURN(parts.compute, ComputeType(math_type));
  ASSIGN_OR_RETURN(parts.token, import.Read(*token, {dweight.get()}));
  ASSIGN_OR_RETURN(parts.doutput, import.Read(*doutput, {dweight.get()}));
  ASSIGN_OR_RETURN(parts.first_token_offset, import.Read(*first_token_offset, {dweight.get()}));
  ASSIGN_OR_RETURN(parts.dweight, import.Write(*dweight));
  graph::SpellMoeBackward(import.graph(), parts);
  return {};
}

}  // namespace kiln::api
