// cudnnRNNDataDescriptor_t. Reference 7.2.5, 7.2.10, 7.2.19 and 7.2.47.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "api/legacy/descriptors/rnn_descriptor.h"
#include "api/legacy/functions.h"
#include "api/spec/generation.h"
#include "api/spec/names.h"
#include "ir/dtype.h"

namespace kiln::api::legacy {
namespace {

// Lengths make the descriptor more than the flat structs of object.h: it lives behind a pointer.
struct RnnDataObject {
  static constexpr uint64_t kTag = RnnDataDesc::kTag;
  std::unique_ptr<RnnDataDesc> value;
};

Result<RnnDataDesc*> From(const void* object) {
  if (const RnnDataObject* found = Find<RnnDataObject>(object)) return found->value.get();
  return Status::Error(Code::kBadParam, "{} is no {}, or was destroyed", fmt::ptr(object),
                       RnnDataDesc::kName);
}

Status CheckType(int type) {
  RETURN_IF_ERROR(CheckEnum(type, CUDNN_DATA_FP4_E2M1, "cudnnDataType_t"));
  const bool is_bfloat16 = type == CUDNN_DATA_BFLOAT16 && ThisGeneration().major >= 9;
  if (type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_HALF ||
      is_bfloat16)
    return {};
  return Status::Error(Code::kNotSupported, "RNN data of type {}",
                       NameOf(static_cast<cudnnDataType_t>(type)));
}

Status CheckLengths(const RnnDataDesc& d) {
  for (size_t b = 0; b < d.lengths.size(); ++b) {
    const int32_t n = d.lengths[b];
    if (n < 0 || n > d.steps)
      return Status::Error(Code::kBadParam, "sequence {} has {} steps; 0 to {} are possible", b, n,
                           d.steps);
    if (!d.IsPacked()) continue;
    if (n == 0) return Status::Error(Code::kBadParam, "packed sequence {} has no steps", b);
    if (b == 0 && n != d.steps)
      return Status::Error(Code::kBadParam, "the longest packed sequence has {} steps of {}", n,
                           d.steps);
    if (b > 0 && n > d.lengths[b - 1])
      return Status::Error(Code::kBadParam,
                           "packed sequence {} has {} steps, more than the {} of the one before", b,
                           n, d.lengths[b - 1]);
  }
  return {};
}

}  // namespace

bool RnnDataDesc::IsFull() const {
  return std::ranges::all_of(lengths, [this](int32_t n) { return n == steps; });
}

int64_t RnnDataDesc::Rows() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

double RnnDataDesc::FillValue() const {
  static constexpr std::pair<int, DType> kTypes[] = {{CUDNN_DATA_FLOAT, DType::kF32},
                                                     {CUDNN_DATA_DOUBLE, DType::kF64},
                                                     {CUDNN_DATA_HALF, DType::kF16},
                                                     {CUDNN_DATA_BFLOAT16, DType::kBF16}};
  const auto* row = std::ranges::find(kTypes, type, &std::pair<int, DType>::first);
  return LoadValue(row->second, &fill);
}

Result<const RnnDataDesc*> RnnDataFrom(const void* object, std::string_view name) {
  if (object == nullptr) return Status::Error(Code::kBadParam, "{} is NULL", name);
  ASSIGN_OR_RETURN(const RnnDataDesc* desc, From(object));
  if (desc->steps == 0) return Status::Error(Code::kBadParam, "{} was not set", name);
  return desc;
}

Status SetRnnData(RnnDataDesc& desc, int type, int layout, int steps, int batch, int width,
                  const int* lengths, const void* fill) {
  RETURN_IF_ERROR(NotNull(lengths, "seqLengthArray"));
  RETURN_IF_ERROR(
      CheckEnum(layout, CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED, "cudnnRNNDataLayout_t"));
  for (const int extent : {steps, batch, width}) {
    if (extent <= 0)
      return Status::Error(Code::kBadParam,
                           "maxSeqLength {}, batchSize {} and vectorSize {} are not all positive",
                           steps, batch, width);
  }
  RETURN_IF_ERROR(CheckType(type));
  RnnDataDesc made = {.type = type,
                      .layout = layout,
                      .steps = steps,
                      .batch = batch,
                      .width = width,
                      .lengths = {lengths, lengths + batch}};
  if (fill != nullptr) std::memcpy(&made.fill, fill, static_cast<size_t>(ElementBytes(type)));
  RETURN_IF_ERROR(CheckLengths(made));
  desc = std::move(made);
  return {};
}

Status CreateRNNDataDescriptor(void** out) {
  RETURN_IF_ERROR(NotNull(out, "the place for the cudnnRNNDataDescriptor_t"));
  auto value = std::make_unique<RnnDataDesc>();
  auto* object = Make<RnnDataObject>(out);
  if (object == nullptr)
    return Status::Error(Code::kHostAllocationFailed, "no memory for a {}", RnnDataDesc::kName);
  object->value = std::move(value);
  return {};
}

Status DestroyRNNDataDescriptor(void* object) {
  if (object == nullptr || Destroy<RnnDataObject>(object)) return {};
  return From(object).status();
}

Status SetRNNDataDescriptor(void* object, int type, int layout, int steps, int batch, int width,
                            const int* lengths, void* fill) {
  ASSIGN_OR_RETURN(RnnDataDesc * desc, From(object));
  return SetRnnData(*desc, type, layout, steps, batch, width, lengths, fill);
}

Status GetRNNDataDescriptor(void* object, int* type, int* layout, int* steps, int* batch,
                            int* width, int wanted, int* lengths, void* fill) {
  ASSIGN_OR_RETURN(const RnnDataDesc* desc, From(object));
  for (const void* place :
       {static_cast<void*>(type), static_cast<void*>(layout), static_cast<void*>(steps),
        static_cast<void*>(batch), static_cast<void*>(width), fill})
    RETURN_IF_ERROR(NotNull(place, "the place for a property"));
  if (wanted < 0) return Status::Error(Code::kBadParam, "{} lengths are asked for", wanted);
  if (wanted > 0) RETURN_IF_ERROR(NotNull(lengths, "seqLengthArray"));
  *type = desc->type;
  *layout = desc->layout;
  *steps = desc->steps;
  *batch = desc->batch;
  *width = desc->width;
  std::memcpy(fill, &desc->fill, static_cast<size_t>(ElementBytes(desc->type)));
  for (int b = 0; b < wanted; ++b)
    lengths[b] = b < desc->batch ? desc->lengths[static_cast<size_t>(b)] : 0;
  return {};
}

}  // namespace kiln::api::legacy
