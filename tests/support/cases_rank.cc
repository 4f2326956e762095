// Strides of added dims are such that a dense tensor stays dense in an order that engines know.
#include "tests/support/cases_rank.h"

#include <algorithm>
#include <string_view>

namespace kiln::testing {
namespace {

// Elements from the start of the tensor to its end in memory, were there one more entry behind it.
int64_t Period(const CaseTensor& tensor) {
  int64_t period = 1;
  for (size_t i = 0; i < tensor.dims.size(); ++i)
    period = std::max(period, std::max<int64_t>(tensor.dims[i], 1) * tensor.strides[i]);
  return period;
}

// Behind [N] and [N, C] the dims are spatial ones of NHWC; behind more dims they are innermost.
int64_t BackStride(const CaseTensor& tensor) {
  const size_t rank = tensor.dims.size();
  if (rank == 0) return 1;
  if (rank > 2) return std::max<int64_t>(1, *std::ranges::min_element(tensor.strides));
  return std::max<int64_t>(1, std::max<int64_t>(tensor.dims.back(), 1) * tensor.strides.back());
}

void PadTensor(CaseTensor& tensor, size_t rank, PadSide side) {
  if (tensor.dims.size() >= rank) return;
  const size_t count = rank - tensor.dims.size();
  const bool front = side == PadSide::kFront;
  const int64_t stride = front ? Period(tensor) : BackStride(tensor);
  tensor.dims.insert(front ? tensor.dims.begin() : tensor.dims.end(), count, 1);
  tensor.strides.insert(front ? tensor.strides.begin() : tensor.strides.end(), count, stride);
}

bool HasOp(const Case& c, std::string_view prefix) {
  return std::ranges::any_of(c.ops, [&](const CaseOp& op) { return op.name.starts_with(prefix); });
}

}  // namespace

Case PadRank(const Case& c, size_t rank, PadSide side) {
  Case padded = c;
  for (CaseOp& op : padded.ops) {
    if (side == PadSide::kBack || !op.Has("axis")) continue;
    const size_t own = c.tensors[static_cast<size_t>(op.inputs[0])].dims.size();
    const auto axis = static_cast<size_t>(op.Number("axis", 0));
    op.attributes["axis"] = std::to_string(axis + (rank > own ? rank - own : 0));
  }
  for (CaseTensor& tensor : padded.tensors) PadTensor(tensor, rank, side);
  return padded;
}

std::vector<Case> FormsForNvidia(const Case& c) {
  // Their dims have places: batch, channels, space; rows and columns; or numbers of their own.
  for (const char* placed :
       {"conv_", "gen_stats", "bn_", "norm_", "moe", "rope", "maxpool", "avgpool", "bilinear",
        "nearest", "softmax", "band_mask", "transpose", "slice"}) {
    if (HasOp(c, placed)) return {c};
  }
  const bool is_matmul = HasOp(c, "matmul");
  size_t least = 99, rank = is_matmul ? 3 : 4;
  for (const CaseTensor& tensor : c.tensors) {
    least = std::min(least, tensor.dims.size());
    rank = std::max(rank, tensor.dims.size());
  }
  if (least == rank) return {c};
  std::vector<Case> forms = {PadRank(c, rank, PadSide::kFront)};
  // Blocks lie along the last dims.
  if (!is_matmul && !HasOp(c, "block_scale_") && !HasOp(c, "expand_") && !HasOp(c, "contract_"))
    forms.push_back(PadRank(c, rank, PadSide::kBack));
  return forms;
}

}  // namespace kiln::testing
