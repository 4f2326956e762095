#include "tests/support/legacy_run.h"

#include <algorithm>
#include <cmath>

#include "tests/support/cases.h"
#include "tests/support/evaluate.h"

namespace kiln::testing {
namespace {

using oracle::Dims;

int VectorOf(cudnnDataType_t type) {
  if (type == CUDNN_DATA_INT8x32) return 32;
  return type == CUDNN_DATA_INT8x4 || type == CUDNN_DATA_UINT8x4 ? 4 : 1;
}

Dims Packed(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return strides;
}

// Dims of the memory: of vectors one more.
Dims MemoryDims(const Layout& layout, const Dims& dims) {
  if (layout.order != Layout::kVectors) return dims;
  Dims memory = dims;
  memory[1] /= VectorOf(layout.type);
  memory.push_back(VectorOf(layout.type));
  return memory;
}

Dims StridesOf(const Layout& layout, const Dims& dims) {
  Dims strides = Packed(dims);
  if (layout.order == Layout::kNhwc) {
    strides[1] = 1;
    int64_t stride = dims[1];
    for (size_t d = dims.size(); d-- > 2; stride *= dims[d]) strides[d] = stride;
    strides[0] = stride;
  }
  if (layout.order == Layout::kGaps) {
    int64_t stride = 1;
    for (size_t d = dims.size(); d-- > 0; stride *= dims[d]) {
      if (d + 2 == dims.size() || d == 0) stride += 3;
      strides[d] = stride;
    }
  }
  return strides;
}

std::vector<int> Ints(const Dims& dims) { return std::vector<int>(dims.begin(), dims.end()); }

}  // namespace

oracle::DType ElementOf(cudnnDataType_t type) {
  using T = oracle::DType;
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return T::kF64;
    case CUDNN_DATA_HALF:
      return T::kF16;
    case CUDNN_DATA_BFLOAT16:
      return T::kBF16;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_INT8x4:
    case CUDNN_DATA_INT8x32:
      return T::kI8;
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_UINT8x4:
      return T::kU8;
    case CUDNN_DATA_INT32:
      return T::kI32;
    default:
      return T::kF32;
  }
}

oracle::DType FactorType(cudnnDataType_t type) {
  return type == CUDNN_DATA_DOUBLE ? oracle::DType::kF64 : oracle::DType::kF32;
}

LegacyTensor::LegacyTensor(LegacyClient& client, Device& device, const Layout& layout, Dims dims,
                           const std::string& fill, uint64_t seed)
    : device_(&device), layout_(layout), dims_(std::move(dims)) {
  const oracle::DType type = ElementOf(layout.type);
  const Dims memory = MemoryDims(layout, dims_);
  image_ = oracle::Image::Poisoned(type, memory, StridesOf(layout, memory), seed);
  image_.Store(FillValues(fill, type, oracle::Count(memory), seed));
  const int64_t bytes = static_cast<int64_t>(image_.bytes.size());
  offset_ = layout.misaligned * (image_.PayloadBytes() / std::max<int64_t>(image_.Span(), 1));
  buffer_ = std::make_unique<Buffer>(device, static_cast<size_t>(bytes + offset_));
  device.CopyIn(buffer_->data() + offset_, image_.bytes.data(), image_.bytes.size());
  desc_ = client.New<cudnnTensorDescriptor_t>("Tensor");
  const std::vector<int> extents = Ints(dims_);
  if (layout.order == Layout::kVectors) {
    KILN_CALL(client, cudnnSetTensorNdDescriptorEx, desc_, CUDNN_TENSOR_NCHW_VECT_C, layout.type,
              static_cast<int>(extents.size()), extents.data());
  } else {
    const std::vector<int> strides = Ints(image_.strides);
    KILN_CALL(client, cudnnSetTensorNdDescriptor, desc_, layout.type,
              static_cast<int>(extents.size()), extents.data(), strides.data());
  }
}

// [N, C/v, H, W, v] as [N, C, H, W].
Dense LegacyTensor::Logical(const oracle::Image& image) const {
  Dense dense = image.ToDense();
  if (layout_.order != Layout::kVectors) return dense;
  Dims order = {0, 1, static_cast<int64_t>(dims_.size())};
  for (size_t d = 2; d < dims_.size(); ++d) order.push_back(static_cast<int64_t>(d));
  Dense plain = oracle::Transpose(dense, order);
  plain.dims = dims_;
  return plain;
}

Dense LegacyTensor::InMemory(const Dense& logical) const {
  if (layout_.order != Layout::kVectors) return logical;
  Dense split = logical;
  split.dims[1] /= VectorOf(layout_.type);
  split.dims.insert(split.dims.begin() + 2, VectorOf(layout_.type));
  Dims order = {0, 1};
  for (size_t d = 2; d < dims_.size(); ++d) order.push_back(static_cast<int64_t>(d) + 1);
  order.push_back(2);
  return oracle::Transpose(split, order);
}

oracle::Image LegacyTensor::Download() const {
  oracle::Image image = image_;
  device_->CopyOut(image.bytes.data(), buffer_->data() + offset_, image.bytes.size());
  return image;
}

std::string LegacyTensor::Check(const Dense& expected, double ulps) const {
  const oracle::Image image = Download();
  if (std::string error = oracle::CheckGaps(image_, image); !error.empty()) return error;
  return oracle::Compare(InMemory(expected), image, {.output_ulps = ulps}).error;
}

std::string LegacyTensor::CheckUnchanged() const {
  return oracle::CheckUnchanged(image_, Download());
}

Dense Blended(const Dense& result, double alpha, double beta, const Dense& prior,
              oracle::DType compute) {
  const double u = oracle::UnitRoundoff(compute);
  Dense out = result;
  for (size_t i = 0; i < out.values.size(); ++i) {
    oracle::Value& value = out.values[i];
    const double scaled = alpha == 1 ? value.v : alpha * value.v;
    const double rest = beta == 0 ? 0 : beta * prior.values[i].v;
    value.e = std::fabs(alpha) * value.e;
    if (alpha != 1) value.e += u * std::fabs(scaled);
    if (beta != 0) value.e += 2 * u * (std::fabs(rest) + std::fabs(scaled));
    value.v = scaled + rest;
    if (!std::isfinite(value.v)) value.e = 0;
  }
  return out;
}

Dense Broadcast(const Dense& x, const Dims& dims) {
  Dense out{.dims = dims, .values = {}};
  out.values.reserve(static_cast<size_t>(oracle::Count(dims)));
  const Dims strides = Packed(x.dims);
  Dims index(dims.size(), 0);
  do {
    int64_t at = 0;
    for (size_t d = 0; d < dims.size(); ++d) at += x.dims[d] == 1 ? 0 : index[d] * strides[d];
    out.values.push_back(x.values[static_cast<size_t>(at)]);
  } while (oracle::Next(dims, index));
  return out;
}

}  // namespace kiln::testing
