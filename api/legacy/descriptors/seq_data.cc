#include "api/legacy/descriptors/seq_data.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "api/legacy/descriptors/tensor.h"
#include "api/legacy/functions.h"
#include "include/v9/cudnn_adv.h"

namespace kiln::api::legacy {
namespace {

constexpr int kDims = CUDNN_SEQDATA_DIM_COUNT;
constexpr const char* kAxisNames[kDims] = {"time", "batch", "beam", "vector"};

// A descriptor has as many lengths as the client says, so that it is no flat struct.
struct Box {
  static constexpr uint64_t kTag = 0x6b696c6e'73657164;  // "kilnseqd"
  std::unique_ptr<SeqData> value;
};

Status CheckType(int type) {
  RETURN_IF_ERROR(CheckEnum(type, CUDNN_DATA_FAST_FLOAT_FOR_FP8, "cudnnDataType_t"));
  for (const int known : {int{CUDNN_DATA_FLOAT}, int{CUDNN_DATA_DOUBLE}, int{CUDNN_DATA_HALF},
                          int{CUDNN_DATA_BFLOAT16}})
    if (type == known) return {};
  return Status::Error(Code::kNotSupported,
                       "sequences of data type {}: float, double, half and bfloat16 are possible",
                       type);
}

Status CheckAxes(std::span<const int> dims, std::span<const int> axes) {
  std::array<bool, kDims> seen = {};
  for (size_t d = 0; d < kDims; ++d) {
    RETURN_IF_ERROR(CheckEnum(axes[d], kDims - 1, "cudnnSeqDataAxis_t"));
    if (std::exchange(seen[static_cast<size_t>(axes[d])], true))
      return Status::Error(Code::kBadParam, "axes[{}] is {} again", d, axes[d]);
    if (dims[d] <= 0)
      return Status::Error(Code::kBadParam, "the extent of {} is {}", kAxisNames[d], dims[d]);
  }
  if (axes[kDims - 1] == CUDNN_SEQDATA_VECT_DIM) return {};
  return Status::Error(Code::kBadParam, "the innermost axis is {}, not the vector",
                       kAxisNames[axes[kDims - 1]]);
}

Status CheckLengths(std::span<const int> dims, size_t count, std::span<const int> lengths) {
  const int64_t sequences = int64_t{dims[CUDNN_SEQDATA_BATCH_DIM]} * dims[CUDNN_SEQDATA_BEAM_DIM];
  if (static_cast<int64_t>(count) != sequences)
    return Status::Error(Code::kBadParam, "there are {} lengths of {} sequences", count, sequences);
  for (size_t i = 0; i < count; ++i)
    if (lengths[i] < 0 || lengths[i] > dims[CUDNN_SEQDATA_TIME_DIM])
      return Status::Error(Code::kBadParam, "the length of sequence {} is {}; there are {} steps",
                           i, lengths[i], dims[CUDNN_SEQDATA_TIME_DIM]);
  return {};
}

template <class T>
void CopyFirst(int64_t count, std::span<const T> from, T* to) {
  if (to == nullptr) return;
  std::copy_n(from.begin(), std::min<int64_t>(count, std::ssize(from)), to);
}

}  // namespace

bool SeqData::is_full() const {
  return std::ranges::all_of(lengths, [&](int32_t n) { return n == dims[CUDNN_SEQDATA_TIME_DIM]; });
}

Result<const SeqData*> SeqDataFrom(const void* object) {
  if (const Box* box = Find<Box>(object)) [[likely]]
    return box->value.get();
  if (object == nullptr) return Status::Error(Code::kBadParam, "the {} is NULL", SeqData::kName);
  return Status::Error(Code::kBadParam, "{} is no {}, or was destroyed", fmt::ptr(object),
                       SeqData::kName);
}

std::string Text(const SeqData& data) {
  return fmt::format("sequences of data type {}, time {}, batch {}, beam {}, vectors of {}",
                     data.type, data.Extent(CUDNN_SEQDATA_TIME_DIM),
                     data.Extent(CUDNN_SEQDATA_BATCH_DIM), data.Extent(CUDNN_SEQDATA_BEAM_DIM),
                     data.Extent(CUDNN_SEQDATA_VECT_DIM));
}

Status CreateSeqDataDescriptor(void** out) {
  RETURN_IF_ERROR(NotNull(out, "the place for the sequence data descriptor"));
  auto value = std::make_unique<SeqData>();
  Box* const box = Make<Box>(out);
  if (box == nullptr)
    return Status::Error(Code::kHostAllocationFailed, "no memory for a {}", SeqData::kName);
  box->value = std::move(value);
  return {};
}

Status DestroySeqDataDescriptor(void* object) {
  if (object == nullptr || Destroy<Box>(object)) return {};
  return SeqDataFrom(object).status();
}

Status SetSeqDataDescriptor(void* object, int type, int rank, const int* dims, const int* axes,
                            size_t count, const int* lengths, void* fill) {
  RETURN_IF_ERROR(SeqDataFrom(object).status());
  RETURN_IF_ERROR(NotNull(dims, "dimA"));
  RETURN_IF_ERROR(NotNull(axes, "axes"));
  RETURN_IF_ERROR(NotNull(lengths, "seqLengthArray"));
  RETURN_IF_ERROR(CheckType(type));
  if (rank <= 0) return Status::Error(Code::kBadParam, "nbDims is {}", rank);
  if (rank != kDims)
    return Status::Error(Code::kNotSupported, "nbDims is {}; sequences have {} dims", rank, kDims);
  RETURN_IF_ERROR(CheckAxes({dims, kDims}, {axes, kDims}));
  RETURN_IF_ERROR(CheckLengths({dims, kDims}, count, {lengths, count}));
  SeqData& data = *Find<Box>(object)->value;
  data.type = type;
  std::copy_n(dims, kDims, data.dims.begin());
  std::copy_n(axes, kDims, data.axes.begin());
  data.lengths.assign(lengths, lengths + count);
  data.fill = {};
  if (fill != nullptr) std::memcpy(data.fill.data(), fill, static_cast<size_t>(ElementBytes(type)));
  return {};
}

Status GetSeqDataDescriptor(void* object, int* type, int* rank, int rank_requested, int* dims,
                            int* axes, size_t* count, size_t count_requested, int* lengths,
                            void* fill) {
  ASSIGN_OR_RETURN(const SeqData* data, SeqDataFrom(object));
  if (rank_requested < 0)
    return Status::Error(Code::kBadParam, "nbDimsRequested is {}", rank_requested);
  Store(type, data->type);
  Store(rank, kDims);
  CopyFirst<int32_t>(rank_requested, data->dims, dims);
  CopyFirst<int32_t>(rank_requested, data->axes, axes);
  Store(count, data->lengths.size());
  CopyFirst<int32_t>(static_cast<int64_t>(std::min<size_t>(count_requested, INT64_MAX)),
                     data->lengths, lengths);
  if (fill != nullptr)
    std::memcpy(fill, data->fill.data(), static_cast<size_t>(ElementBytes(data->type)));
  return {};
}

}  // namespace kiln::api::legacy
