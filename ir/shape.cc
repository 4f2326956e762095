// Arithmetic on extents and strides, shared by every level of IR and by the API's descriptors.
#include "ir/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/base/check.h"

namespace kiln {
namespace {

// Dense strides when dimensions are laid out in the given order, outermost first.
Dims StridesInOrder(std::span<const int64_t> dims, const std::vector<size_t>& outer_to_inner) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (auto d = outer_to_inner.rbegin(); d != outer_to_inner.rend(); ++d) {
    strides[*d] = stride;
    stride *= std::max<int64_t>(dims[*d], 1);
  }
  return strides;
}

}  // namespace

int64_t NumElements(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t extent : dims) count *= extent;
  return count;
}

Dims PackedStrides(std::span<const int64_t> dims) {
  std::vector<size_t> order(dims.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  return StridesInOrder(dims, order);
}

Dims PackedStridesLike(std::span<const int64_t> dims, std::span<const int64_t> like) {
  CHECK(dims.size() == like.size(), "{} extents, {} strides", dims.size(), like.size());
  std::vector<size_t> order;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (like[i] != 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return like[a] > like[b]; });
  // A zero stride says nothing of its place: the dimension goes directly outside its right
  // neighbour.
  for (size_t i = dims.size(); i-- > 0;) {
    if (like[i] == 0) order.insert(std::ranges::find(order, i + 1), i);
  }
  return StridesInOrder(dims, order);
}

Dims MemoryOrder(std::span<const int64_t> strides) {
  Dims order(strides.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  });
  return order;
}

int64_t SpanElements(std::span<const int64_t> dims, std::span<const int64_t> strides) {
  CHECK(dims.size() == strides.size(), "{} extents, {} strides", dims.size(), strides.size());
  int64_t last = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return 0;
    last += (dims[i] - 1) * strides[i];
  }
  return last + 1;
}

std::string DimsText(std::span<const int64_t> dims) {
  if (dims.empty()) return "scalar";
  return fmt::format("{}", fmt::join(dims, "x"));
}

std::optional<PackedRun> PackedRunOf(std::span<const int64_t> dims,
                                     std::span<const int64_t> strides, int per_byte) {
  const auto is_moving = [&](int64_t d) { return dims[d] > 1 && strides[d] > 0; };
  PackedRun run;
  Dims moving;
  for (const int64_t d : MemoryOrder(strides)) {
    if (is_moving(d)) moving.push_back(d);
  }
  while (std::ranges::any_of(moving, [&](int64_t d) { return strides[d] % per_byte != 0; })) {
    const int64_t innermost = moving.back();
    if (strides[innermost] != run.extent) return std::nullopt;
    run.inner.insert(run.inner.begin(), innermost);
    run.extent *= dims[innermost];
    moving.pop_back();
  }
  for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
    if (std::ranges::find(run.inner, d) == run.inner.end()) run.outer.push_back(d);
  }
  return run;
}

}  // namespace kiln
