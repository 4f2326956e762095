// Extents and strides. A stride counts elements; dims[0] is the outermost as cuDNN writes them
// (NCHW).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kiln {

using Dims = std::vector<int64_t>;

// The product of the extents; 1 for rank 0, 0 if any is 0.
int64_t NumElements(std::span<const int64_t> dims);
// The strides of a dense tensor, last dimension fastest.
Dims PackedStrides(std::span<const int64_t> dims);
// Dense strides in the order that `like` has (a channels-last tensor gives channels-last strides);
// ties and zero strides fall back to row-major order.
Dims PackedStridesLike(std::span<const int64_t> dims, std::span<const int64_t> like);
// The dims from the largest stride to the smallest, the order of memory; equal ones stay in theirs.
Dims MemoryOrder(std::span<const int64_t> strides);
// The number of elements from the first to the last addressed one, inclusive: 1 + sum((dim-1) *
// stride); 0 when empty.
int64_t SpanElements(std::span<const int64_t> dims, std::span<const int64_t> strides);

// The order in which elements of 4 bits or 1 lie in whole bytes, `per_byte` in each: the dims of
// `inner`, in the order of memory, are dense with each other and fill bytes from their low bits on;
// every other one begins at a whole byte. `inner` is empty where each element has a byte of its
// own. None where an element begins in another's byte that is not its neighbour along `inner`.
struct PackedRun {
  Dims outer, inner;   // dims; of extent 1 or 0, and of stride 0, they are outer ones
  int64_t extent = 1;  // elements of the inner dims
};
std::optional<PackedRun> PackedRunOf(std::span<const int64_t> dims,
                                     std::span<const int64_t> strides, int per_byte);

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t AlignUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// The extents as text: "8x64x56x56".
std::string DimsText(std::span<const int64_t> dims);

}  // namespace kiln
