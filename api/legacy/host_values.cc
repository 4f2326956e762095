#include "api/legacy/host_values.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "api/legacy/call.h"

namespace kiln::api::legacy {
namespace {

using graph::TensorId;

// A launch writes as many words of two values each as a call has operands beside the memory. Every
// launch is whole, so that one plan serves all counts.
constexpr int kWords = Call::kMostOperands - 1;
constexpr int64_t kValues = 2 * kWords;
constexpr int64_t kLaunchBytes = kValues * int64_t{sizeof(int32_t)};

using Words = std::array<int64_t, kWords>;

TensorDesc WordsDesc() {
  TensorDesc desc = {.type = CUDNN_DATA_INT64, .rank = 1};
  desc.dims[0] = kWords;
  desc.strides[0] = 1;
  return desc;
}

Status WriteWords(Handle& handle, const Words& words, void* place) {
  const TensorDesc desc = WordsDesc();
  Call call(handle, "writing host values");
  const Operand memory = call.Memory(desc, place, alignof(int64_t));
  std::array<Scalar, kWords> scalars;
  for (size_t i = 0; i < words.size(); ++i) scalars[i] = call.Whole(&words[i]);
  return call.Run({}, [&](CallGraph& g) -> Status {
    std::vector<TensorId> parts;
    for (const Scalar& scalar : scalars) parts.push_back(g.Read(scalar, 1));
    const TensorId all =
        g.builder().Apply(graph::GraphOp::kConcat, std::move(parts), graph::ConcatAttrs{.axis = 0},
                          {.dtype = DType::kI64, .compute = DType::kI64});
    return g.Write(all, memory);
  });
}

}  // namespace

int64_t HostValuesBytes(int64_t count) { return (count + kValues - 1) / kValues * kLaunchBytes; }

Status WriteHostValues(Handle& handle, std::span<const int32_t> values, void* place) {
  while (!values.empty()) {
    const auto now = values.first(std::min<size_t>(values.size(), kValues));
    Words words = {};
    std::memcpy(words.data(), now.data(), now.size_bytes());
    RETURN_IF_ERROR(WriteWords(handle, words, place));
    values = values.subspan(now.size());
    place = static_cast<std::byte*>(place) + kLaunchBytes;
  }
  return {};
}

}  // namespace kiln::api::legacy
