#include "api/legacy/host_values.h"

#include <algorithm>
#include <cstring>

#include "api/legacy/call.h"

namespace kiln::api::legacy {
namespace {

using graph::GraphOp;
using graph::TensorId;
using M = graph::PointwiseMode;

// A launch has words of 64 bits as scalars, as many as a kernel has operands beside the memory.
// Small values, as labels mostly are, share a word as digits of a number that is not negative;
// others are its halves. Launches are whole, so that each way has one plan for all counts.
constexpr int kWords = 60;
static_assert(kWords < static_cast<int>(Call::kMostOperands));
struct Packing {
  int digits;    // values in a word
  int64_t base;  // they are below it; 0: any two values
  constexpr int64_t values() const { return int64_t{digits} * kWords; }
};
constexpr Packing kPackings[] = {{8, 1 << 7}, {4, 1 << 15}, {2, 0}};
constexpr int64_t kLeastValues = kPackings[std::size(kPackings) - 1].values();

using Words = std::array<int64_t, kWords>;

Words Pack(std::span<const int32_t> values, const Packing& packing) {
  Words words = {};
  if (packing.base == 0) {
    std::memcpy(words.data(), values.data(), values.size_bytes());
    return words;
  }
  for (size_t i = values.size(); i-- > 0;) {
    int64_t& word = words[i / static_cast<size_t>(packing.digits)];
    word = word * packing.base + values[i];
  }
  return words;
}

// The most that one launch writes of these values, with what is to become 0 behind them.
const Packing& PackingOf(std::span<const int32_t> values, int64_t places) {
  return *std::ranges::find_if(kPackings, [&](const Packing& packing) {
    const auto now = values.first(std::min(values.size(), static_cast<size_t>(packing.values())));
    return packing.base == 0 ||
           (packing.values() <= places && std::ranges::all_of(now, [&](int32_t value) {
              return value >= 0 && value < packing.base;
            }));
  });
}

TensorDesc PlacesDesc(const Packing& packing) {
  TensorDesc desc = {.type = packing.base == 0 ? CUDNN_DATA_INT64 : CUDNN_DATA_INT32, .rank = 2};
  const int columns = packing.base == 0 ? 1 : packing.digits;
  desc.dims[0] = kWords;
  desc.dims[1] = desc.strides[0] = columns;
  desc.strides[1] = 1;
  return desc;
}

TensorId Joined(CallGraph& g, std::vector<TensorId> parts, int64_t axis) {
  return g.builder().Apply(GraphOp::kConcat, std::move(parts), graph::ConcatAttrs{.axis = axis},
                           {.dtype = DType::kI64, .compute = DType::kI64});
}

// [kWords, digits] of [kWords, 1].
TensorId Digits(CallGraph& g, TensorId words, const Packing& packing) {
  constexpr int64_t kRank = 2;
  std::vector<TensorId> weights;
  for (int64_t digit = 0, weight = 1; digit < packing.digits; ++digit, weight *= packing.base)
    weights.push_back(g.Constant(static_cast<double>(weight), kRank, DType::kI64));
  const TensorId shifted =
      g.Pointwise(M::kDiv, {words, Joined(g, std::move(weights), 1)}, DType::kI64);
  const TensorId base = g.Constant(static_cast<double>(packing.base), kRank, DType::kI64);
  return g.Pointwise(M::kMod, {shifted, base}, DType::kI64);
}

Status WriteWords(Handle& handle, const Words& words, const Packing& packing, void* place) {
  const TensorDesc desc = PlacesDesc(packing);
  Call call(handle, "writing host values");
  const Operand memory =
      call.Memory(desc, place, packing.base == 0 ? alignof(int64_t) : alignof(int32_t));
  std::array<Scalar, kWords> scalars;
  for (size_t i = 0; i < words.size(); ++i) scalars[i] = call.Whole(&words[i]);
  return call.Run({}, [&](CallGraph& g) -> Status {
    std::vector<TensorId> parts;
    for (const Scalar& scalar : scalars) parts.push_back(g.Read(scalar, 2));
    const TensorId all = Joined(g, std::move(parts), 0);
    return g.Write(packing.base == 0 ? all : Digits(g, all, packing), memory);
  });
}

}  // namespace

int64_t HostValuesBytes(int64_t count) {
  return (count + kLeastValues - 1) / kLeastValues * kLeastValues * int64_t{sizeof(int32_t)};
}

Status WriteHostValues(Handle& handle, std::span<const int32_t> values, void* place) {
  while (!values.empty()) {
    const int64_t places =
        HostValuesBytes(static_cast<int64_t>(values.size())) / int64_t{sizeof(int32_t)};
    const Packing& packing = PackingOf(values, places);
    const auto now = values.first(std::min(values.size(), static_cast<size_t>(packing.values())));
    RETURN_IF_ERROR(WriteWords(handle, Pack(now, packing), packing, place));
    values = values.subspan(now.size());
    place = static_cast<int32_t*>(place) + packing.values();
  }
  return {};
}

}  // namespace kiln::api::legacy
