// transpose: the pointwise schedule for layouts that conflict. The output is contiguous along one
// dim, some inputs along another: 64x64 tiles of those inputs (of bytes 128x128) go through shared
// memory, so that both sides of the copy are coalesced. The maps of the group are applied on the
// way out.
//
//        input, contiguous along i          shared [64][65]         output, contiguous along j
//        lanes walk i, rows walk j     →    store [j][i], pad  →    lanes walk j, rows walk i
#pragma once

#include <optional>
#include <vector>

#include "compiler/lowered.h"
#include "compiler/module.h"

namespace kiln::compiler {

struct TransposeShape {
  int64_t input_dim;   // where the inputs are contiguous
  int64_t output_dim;  // where the output is
  std::vector<graph::TensorId> inputs;
};

// The conflict of a collapsed group, if it has one that tiles repair: both dims have at least 16
// elements.
std::optional<TransposeShape> FindTranspose(const Group& group);

Lowered LowerTranspose(const Group& group, const Target& target, const TransposeShape& shape);

}  // namespace kiln::compiler
