#include "api/legacy/plans/host_values.h"

#include <algorithm>
#include <cstring>

#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::TensorId;
using M = graph::PointwiseMode;

// A launch has words of 64 bits as scalars, as many as a kernel has operands beside the memory.
// Launches are whole, so that one plan serves all counts.
constexpr int kWords = 60;
static_assert(kWords < static_cast<int>(Call::kMostOperands));
constexpr int64_t kLaunchBytes = kWords * int64_t{sizeof(int64_t)};
constexpr int64_t kValueBytes = sizeof(int32_t), kMostPackedBytes = kValueBytes / 2;
constexpr int kByteValues = 256;

using Words = std::array<int64_t, kWords>;

constexpr int64_t Launches(int64_t bytes) { return (bytes + kLaunchBytes - 1) / kLaunchBytes; }

// The launches of all values if each travels in that many of its low bytes: one more makes them
// whole.
constexpr int64_t PackedLaunches(int64_t launches, int64_t value_bytes) {
  return Launches(launches * kLaunchBytes / kValueBytes * value_bytes);
}

// The low bytes that values travel in: labels have one, mostly.
int64_t BytesOf(std::span<const int32_t> values) {
  int64_t bytes = 1;
  for (const int32_t value : values) {
    if (value < 0 || value >= kByteValues * kByteValues) return kValueBytes;
    if (value >= kByteValues) bytes = kMostPackedBytes;
  }
  const int64_t launches = Launches(static_cast<int64_t>(values.size_bytes()));
  return PackedLaunches(launches, bytes) + 1 < launches ? bytes : kValueBytes;
}

TensorDesc ColumnDesc(int type, int64_t rows, int64_t stride) {
  TensorDesc desc = {.type = type, .rank = 2};
  desc.dims[0] = rows;
  desc.dims[1] = desc.strides[1] = 1;
  desc.strides[0] = stride;
  return desc;
}

Status WriteWords(Handle& handle, const Words& words, void* place) {
  const TensorDesc desc = ColumnDesc(CUDNN_DATA_INT64, kWords, 1);
  Call call(handle, "writing host values");
  const Operand memory = call.Memory(desc, place, alignof(int64_t));
  std::array<Scalar, kWords> scalars;
  for (size_t i = 0; i < words.size(); ++i) scalars[i] = call.Whole(&words[i]);
  return call.Run({}, [&](CallGraph& g) -> Status {
    std::vector<TensorId> parts;
    for (const Scalar& scalar : scalars) parts.push_back(g.Read(scalar, 2));
    return g.Write(
        g.builder().Apply(GraphOp::kConcat, std::move(parts), graph::ConcatAttrs{.axis = 0},
                          {.dtype = DType::kI64, .compute = DType::kI64}),
        memory);
  });
}

Status WriteBytes(Handle& handle, std::span<const uint8_t> bytes, void* place) {
  auto* to = static_cast<uint8_t*>(place);
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), size_t{kLaunchBytes}));
    Words words = {};
    std::memcpy(words.data(), now.data(), now.size());
    RETURN_IF_ERROR(WriteWords(handle, words, to));
    bytes = bytes.subspan(now.size());
    to += kLaunchBytes;
  }
  return {};
}

// `rows` values at `place` of their `value_bytes` low bytes at `packed`.
Status Unpack(Handle& handle, int64_t rows, int64_t value_bytes, uint8_t* packed, void* place) {
  Call call(handle, "unpacking host values");
  const TensorDesc bytes = ColumnDesc(CUDNN_DATA_UINT8, rows, value_bytes),
                   desc = ColumnDesc(CUDNN_DATA_INT32, rows, 1);
  const Operand values = call.Memory(desc, place, kValueBytes), low = call.Memory(bytes, packed, 1);
  if (value_bytes == 1)
    return call.Run({}, [&](CallGraph& g) -> Status {
      ASSIGN_OR_RETURN(const TensorId all, g.Read(low));
      return g.Write(all, values);
    });
  const Operand high = call.Memory(bytes, packed + 1, 1);
  return call.Run({}, [&](CallGraph& g) -> Status {
    ASSIGN_OR_RETURN(const TensorId below, g.Read(low));
    ASSIGN_OR_RETURN(const TensorId above, g.Read(high));
    const TensorId scale = g.Constant(kByteValues, 2, DType::kI32),
                   scaled = g.Pointwise(M::kMul, {above, scale}, DType::kI32);
    return g.Write(g.Pointwise(M::kAdd, {below, scaled}, DType::kI32), values);
  });
}

}  // namespace

int64_t HostValuesBytes(int64_t count) {
  const int64_t launches = Launches(count * kValueBytes),
                packed = PackedLaunches(launches, kMostPackedBytes);
  return (launches + (PackedLaunches(launches, 1) + 1 < launches ? packed : 0)) * kLaunchBytes;
}

Status CheckPlace(const void* place, std::string_view name) {
  constexpr uintptr_t kAlignment = 16;
  RETURN_IF_ERROR(NotNull(place, name));
  if (reinterpret_cast<uintptr_t>(place) % kAlignment == 0) return {};
  return Status::Error(Code::kBadParam, "{} is not aligned to {} bytes", name, kAlignment);
}

Status WriteHostValues(Handle& handle, std::span<const int32_t> values, void* place) {
  const int64_t value_bytes = BytesOf(values);
  if (value_bytes == kValueBytes)
    return WriteBytes(
        handle, {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()}, place);
  const int64_t area = Launches(static_cast<int64_t>(values.size_bytes())) * kLaunchBytes;
  std::vector<uint8_t> packed(static_cast<size_t>(area / kValueBytes * value_bytes));
  for (size_t i = 0; i < packed.size() && i / static_cast<size_t>(value_bytes) < values.size(); ++i)
    packed[i] = static_cast<uint8_t>(values[i / static_cast<size_t>(value_bytes)] >>
                                     (i % static_cast<size_t>(value_bytes) * 8));
  uint8_t* const scratch = static_cast<uint8_t*>(place) + area;
  RETURN_IF_ERROR(WriteBytes(handle, packed, scratch));
  return Unpack(handle, area / kValueBytes, value_bytes, scratch, place);
}

}  // namespace kiln::api::legacy
