// Parts of PlanSm90 (plan.h): the convolution's half, and how either half reads a matrix.
#pragma once

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "compiler/engines/contract_wgmma/plan.h"
#include "compiler/kernel/map_dims.h"

namespace kiln::compiler {

template <class... A>
Status Decline(fmt::format_string<A...> format, A&&... args) {
  return Status::Error(Code::kUnsupportedShape, format, std::forward<A>(args)...);
}

// wgmma takes operands of 8 bits along k alone.
inline bool TakesOuter(DType type) { return SizeOf(type) > 1; }

// Whether a tensor map has the operand's own axis innermost, not k, for products of this type; or
// why it can have neither.
Result<bool> IsOuterMajor(const graph::Tensor& tensor, DType type, MapDim outer, MapDim k);

// The map of matrices {outer, k}, which `inner` and `last` number.
Result<TensorMapSpec> MatrixMap(const graph::Tensor& tensor, const Sm90Operand& operand,
                                MapDim outer, MapDim k, MapDim inner, MapDim last);

// The dims of pixels, innermost first; with the images behind them.
std::vector<int64_t> PixelDims(const graph::Tensor& tensor, bool with_images);

// The plan of a convolution, from one that has its type and its terms.
Result<Sm90Plan> PlanConvolution(const Group& group, const graph::Node& node, Sm90Plan plan);

}  // namespace kiln::compiler
