#include "api/backend/softmax.h"

#include <fmt/format.h>

#include "ir/graph/attention_parts.h"

namespace kiln::api {
namespace {

using Mask = DiagonalBandMaskDesc;

// The rows that must be set are kOptional too: cuDNN's status for their absence is its own
// (CheckSet).
constexpr AttrRow kSoftmaxRows[] = {
    Attr<&SoftmaxDesc::x>(CUDNN_ATTR_OPERATION_SOFTMAX_XDESC, Use::kOptional),
    Attr<&SoftmaxDesc::y>(CUDNN_ATTR_OPERATION_SOFTMAX_YDESC, Use::kOptional),
    Attr<&SoftmaxDesc::stats>(CUDNN_ATTR_OPERATION_SOFTMAX_STATS_DESC, Use::kOptional),
    Attr<&SoftmaxDesc::max>(CUDNN_ATTR_OPERATION_SOFTMAX_MAX_DESC, Use::kOptional),
    Attr<&SoftmaxDesc::sum_exp>(CUDNN_ATTR_OPERATION_SOFTMAX_SUM_EXP_DESC, Use::kOptional),
    Attr<&SoftmaxDesc::sink>(CUDNN_ATTR_OPERATION_SOFTMAX_SINK_DESC, Use::kOptional),
    Attr<&SoftmaxDesc::stats_log2>(CUDNN_ATTR_OPERATION_SOFTMAX_STATS_LOG2, Use::kOptional),
};

constexpr AttrRow kMaskRows[] = {
    Attr<&Mask::x>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_XDESC, Use::kOptional),
    Attr<&Mask::seq_len_kv>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_KVDESC, Use::kOptional),
    Attr<&Mask::seq_len_q>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SEQ_LEN_QDESC, Use::kOptional),
    Attr<&Mask::left_bound>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_LEFT_BOUND_DESC,
                            Use::kOptional),
    Attr<&Mask::shift_right_bound>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_SHIFT_RIGHT_BOUND_DESC,
                                   Use::kOptional),
    Attr<&Mask::fill>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_BDESC, Use::kOptional),
    Attr<&Mask::y>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_YDESC, Use::kOptional),
    Attr<&Mask::comparison>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_COMPARISON_MODE,
                            Use::kOptional),
    Attr<&Mask::cu_seq_len_kv>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_CU_SEQ_LEN_KVDESC,
                               Use::kOptional),
    Attr<&Mask::cu_seq_len_q>(CUDNN_ATTR_OPERATION_DIAGONAL_BAND_MASK_CU_SEQ_LEN_QDESC,
                              Use::kOptional),
};

// cuDNN says NOT_FINALIZED where one of these is not set.
Status CheckSet(std::initializer_list<std::pair<const char*, const TensorDesc*>> tensors) {
  for (const auto& [name, t] : tensors)
    if (t == nullptr) return Status::Error(Code::kNotFinalized, "{} is not set", name);
  return {};
}

Status CheckDims(const char* name, const Ref<TensorDesc>& t, const Dims& wanted) {
  if (t == nullptr || std::ranges::equal(t->dims, wanted)) return {};
  return Status::Error(Code::kBadParam, "{}, {}, must be {}", name, t->Text(), DimsText(wanted));
}

// One value that broadcasts to the tensor, or one for each of its rows or heads.
Status CheckBroadcast(const char* name, const Ref<TensorDesc>& t, const Dims& to) {
  if (t == nullptr) return {};
  bool fits = t->dims.size() == to.size();
  for (size_t d = 0; fits && d < to.size(); ++d) fits = t->dims[d] == 1 || t->dims[d] == to[d];
  if (fits) return {};
  return Status::Error(Code::kBadParam, "{}, {}, does not broadcast to {}", name, t->Text(),
                       DimsText(to));
}

Status CheckInteger(const char* name, const Ref<TensorDesc>& t) {
  if (t == nullptr || t->data_type == CUDNN_DATA_INT32 || t->data_type == CUDNN_DATA_INT64)
    return {};
  return Status::Error(Code::kBadParam, "{}, {}, is {}; it counts places, so it must be an integer",
                       name, t->Text(), NameOf(t->data_type));
}

Dims DimsOf(const TensorDesc& t) { return Dims(t.dims.begin(), t.dims.end()); }

// Lengths of the batches, or what they add up to, of which there is one more.
Status CheckLengths(const char* name, const Ref<TensorDesc>& lengths,
                    const Ref<TensorDesc>& cumulative, const Dims& x) {
  if (lengths != nullptr && cumulative != nullptr)
    return Status::Error(Code::kBadParam, "{} are given by themselves and cumulated", name);
  // One length for each batch, or one for all.
  Dims wanted(x.size(), 1);
  if (lengths != nullptr && NumElements(lengths->dims) != 1) wanted[0] = x[0];
  RETURN_IF_ERROR(CheckDims(name, lengths, wanted));
  wanted[0] = x[0] + 1;
  RETURN_IF_ERROR(CheckDims(name, cumulative, wanted));
  RETURN_IF_ERROR(CheckInteger(name, lengths));
  return CheckInteger(name, cumulative);
}

bool IsComparison(cudnnPointwiseMode_t mode) {
  return mode >= CUDNN_POINTWISE_CMP_EQ && mode <= CUDNN_POINTWISE_CMP_LE;
}

}  // namespace

std::span<const AttrRow> SoftmaxDesc::Rows() { return kSoftmaxRows; }
std::span<const AttrRow> DiagonalBandMaskDesc::Rows() { return kMaskRows; }

Status SoftmaxDesc::Finalize() {
  RETURN_IF_ERROR(CheckSet({{"x", x.get()}, {"y", y.get()}}));
  const Dims dims = DimsOf(*x);
  Dims rows = dims;
  rows.back() = 1;
  RETURN_IF_ERROR(CheckDims("y", y, dims));
  RETURN_IF_ERROR(CheckDims("the statistics", stats, rows));
  RETURN_IF_ERROR(CheckDims("the maxima", max, rows));
  RETURN_IF_ERROR(CheckDims("the sums", sum_exp, rows));
  RETURN_IF_ERROR(CheckBroadcast("the sink", sink, rows));
  if (stats_log2 && stats == nullptr)
    return Status::Text(Code::kBadParam, "statistics to base 2 are asked for, and none are given");
  return {};
}

Status SoftmaxDesc::Import(GraphImport& import) const {
  graph::SoftmaxParts parts{.log2 = stats_log2};
  ASSIGN_OR_RETURN(parts.x, import.Read(*x, {y.get(), stats.get(), max.get(), sum_exp.get()}));
  if (sink != nullptr) {
    ASSIGN_OR_RETURN(parts.sink,
                     import.Read(*sink, {y.get(), stats.get(), max.get(), sum_exp.get()}));
  }
  for (const auto& [tensor, id] : {std::pair{&y, &parts.y},
                                   {&stats, &parts.stats},
                                   {&max, &parts.max},
                                   {&sum_exp, &parts.sum}})
    if (*tensor != nullptr) {
      ASSIGN_OR_RETURN(*id, import.Write(**tensor));
    }
  graph::SpellSoftmax(import.graph(), parts);
  return {};
}

Status DiagonalBandMaskDesc::Finalize() {
  RETURN_IF_ERROR(CheckSet({{"x", x.get()}, {"y", y.get()}, {"the fill", fill.get()}}));
  const Dims dims = DimsOf(*x);
  if (dims.size() < 2)
    return Status::Error(Code::kBadParam, "x, {}, has no rows and columns", x->Text());
  RETURN_IF_ERROR(CheckDims("y", y, dims));
  RETURN_IF_ERROR(CheckBroadcast("the fill", fill, dims));
  RETURN_IF_ERROR(CheckLengths("the lengths of q", seq_len_q, cu_seq_len_q, dims));
  RETURN_IF_ERROR(CheckLengths("the lengths of k and v", seq_len_kv, cu_seq_len_kv, dims));
  if (left_bound != nullptr && shift_right_bound != nullptr)
    return Status::Text(Code::kBadParam, "a mask has a left bound or a shift, not both");
  for (const auto& [name, bound] :
       {std::pair{"the left bound", &left_bound}, {"the shift", &shift_right_bound}})
    RETURN_IF_ERROR(CheckBroadcast(name, *bound, dims));
  if (IsComparison(comparison)) return {};
  return Status::Error(Code::kBadParam, "{} compares nothing", NameOf(comparison));
}

Status DiagonalBandMaskDesc::Import(GraphImport& import) const {
  graph::BandMaskParts parts{.comparison = *graph::PointwiseModeFromCudnn(comparison)};
  for (const auto& [tensor, id] : {std::pair{&x, &parts.x},
                                   {&fill, &parts.fill},
                                   {&seq_len_q, &parts.len_q},
                                   {&seq_len_kv, &parts.len_kv},
                                   {&left_bound, &parts.left},
                                   {&shift_right_bound, &parts.shift}})
    if (*tensor != nullptr) {
      ASSIGN_OR_RETURN(*id, import.Read(**tensor, {y.get()}));
    }
  for (const auto& [tensor, id] :
       {std::pair{&cu_seq_len_q, &parts.len_q}, {&cu_seq_len_kv, &parts.len_kv}})
    if (*tensor != nullptr) {
      ASSIGN_OR_RETURN(const graph::TensorId cumulative, import.Read(**tensor, {y.get()}));
      *id = graph::SpellLengths(import.graph(), cumulative);
    }
  ASSIGN_OR_RETURN(parts.y, import.Write(*y));
  graph::SpellBandMask(import.graph(), parts);
  return {};
}

}  // namespace kiln::api
