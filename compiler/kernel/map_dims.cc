#include "compiler/kernel/map_dims.h"

namespace kiln::compiler {
namespace {

constexpr int64_t kMapAlignment = 16;

template <class... A>
Status Decline(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kUnsupportedShape, format, std::forward<A>(args)...);
}

}  // namespace

bool IsMapAligned(int64_t elements, DType type) {
  return elements * SizeOf(type) % kMapAlignment == 0;
}

Result<TensorMapSpec> MakeMap(const graph::Tensor& t, TensorMapSpec::Kind kind,
                              const std::vector<MapDim>& dims) {
  TensorMapSpec map{.kind = kind, .type = t.dtype, .rank = static_cast<int>(dims.size())};
  if (t.alignment % kMapAlignment != 0)
    return Decline("{} is aligned to {} bytes; tensor maps need 16", t.name, t.alignment);
  if (dims[0].extent != 1 && dims[0].stride != 1)
    return Decline("{} is not contiguous where a tensor map must be", t.name);
  for (size_t d = 0; d < dims.size(); ++d) {
    map.dims[d] = dims[d].extent;
    if (d == 0) continue;
    const bool is_free = dims[d].extent == 1;
    if (!is_free && (!IsMapAligned(dims[d].stride, t.dtype) || dims[d].stride <= 0))
      return Decline("{} has a stride of {} elements, {} bytes; tensor maps need multiples of 16",
                     t.name, dims[d].stride, dims[d].stride * SizeOf(t.dtype));
    map.stride_bytes[d - 1] = is_free ? kMapAlignment : dims[d].stride * SizeOf(t.dtype);
  }
  return map;
}

Status CheckStores(const TensorMapSpec& map, const graph::Tensor& t) {
  const int64_t bytes = map.dims[0] * SizeOf(t.dtype);
  if (bytes % kMapAlignment == 0) return {};
  return Decline("rows of {} are {} bytes; stores by tensor map write multiples of 16", t.name,
                 bytes);
}

bool IsLinear(const graph::Tensor& t, const std::vector<int64_t>& dims_innermost_first) {
  int64_t expected = 0;
  for (const int64_t d : dims_innermost_first) {
    if (t.dims[d] == 1) continue;
    if (expected != 0 && t.strides[d] != expected) return false;
    expected = t.strides[d] * t.dims[d];
  }
  return true;
}

int64_t LinearStride(const graph::Tensor& t, const std::vector<int64_t>& dims_innermost_first) {
  for (const int64_t d : dims_innermost_first)
    if (t.dims[d] != 1) return t.strides[d];
  return 0;
}

}  // namespace kiln::compiler
