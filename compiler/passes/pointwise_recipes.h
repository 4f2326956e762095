// Recipes: how each pointwise mode is spelled in scalar primitives. Formulas as in
// ir/graph/ops_pointwise.cc, in forms that neither overflow nor lose what float can keep.
#pragma once

#include <span>

#include "compiler/passes/primitive_writer.h"

namespace kiln::compiler {

// Appends the mode's primitives; `in` are the operands, already scaled by alpha1 and alpha2.
graph::TensorId WritePointwise(PrimitiveWriter& w, const graph::PointwiseAttrs& attrs,
                               std::span<const graph::TensorId> in);

}  // namespace kiln::compiler
