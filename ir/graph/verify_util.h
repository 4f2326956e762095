// Questions of the Verify and Infer functions of several op families: operands by index, names for
// sentences, broadcasting, dtype rules.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "ir/graph/graph.h"

namespace kiln::graph {

// The tensor at `index` of the inputs or outputs; null where it is absent or left off the end.
const Tensor* InputOf(const Graph& graph, const Node& node, size_t index);
const Tensor* OutputOf(const Graph& graph, const Node& node, size_t index);

// The tensor in sentences: "%x 8x32x16x16".
std::string Shape(const Tensor& tensor);

// The extents that the operands broadcast to, aligned at the right; none where two extents
// disagree.
std::optional<Dims> BroadcastDims(const std::vector<const Tensor*>& operands);

// An error unless the tensor has these extents; `because` says what asks for them.
Status ExpectDims(const Tensor& tensor, const Dims& dims, std::string_view because);

// An error where a tensor is bool, for ops that compute with numbers.
enum class OnBoolInputs : uint8_t { kReject, kAccept };
Status RejectBool(const Graph& graph, const Node& node,
                  OnBoolInputs inputs = OnBoolInputs::kReject);

// Compute types are f64, f32, f16, bf16, i64, i32; bool where `allow_bool`.
Status CheckCompute(const Node& node, bool allow_bool);

// Limits on extents and strides under which no arithmetic on them overflows: 1 to 8 dims, extents
// up to kMaxExtent, kMaxElements elements and as many spanned. `strides` may be empty.
inline constexpr size_t kMaxRank = 8;
inline constexpr int64_t kMaxExtent = int64_t{1} << 38;
inline constexpr int64_t kMaxElements = int64_t{1} << 48;
Status CheckExtents(const Dims& dims, const Dims& strides);

// Sets dims and strides of a tensor that has none: dense, in the memory order of `like` where the
// ranks agree. Strides stay empty where the extents are absurd; Verify has the sentence.
void SetDims(Tensor& tensor, const Dims& dims, const Tensor* like);

// The integer of a compute type that `value` becomes: exact, wrapped to 32 bits for i32.
int64_t ToComputeInt(DType compute, double value);
int64_t WrapToCompute(DType compute, int64_t value);

}  // namespace kiln::graph
