// Fused operations: a constant pack says what is computed of which tensors, a plan is made of it,
// and a variant pack has the pointers of one execution. Reference 6.1.3 and 6.2.3 to 6.2.19; the
// parameters of the last two operations, of which the reference has no tables, are NVIDIA's 9.19's.
//
//   descriptors/fused_packs.h   the packs, the plan and their attributes
//   fused_ops.cc                plans: checks, operands, execution
//   fused_graphs.cc             the graph of each operation
#pragma once

#include <array>

#include "api/legacy/descriptors/fused_packs.h"
#include "api/legacy/plans/call.h"

namespace kiln::api::legacy {

// The operands of an execution, by the labels of their placeholders; those without a slot are not
// there.
struct FusedOperands {
  std::array<Operand, kConstLabels> tensors = {};
  // Memory that is read and written is two operands: these are what is written.
  Operand next_mean, next_variance;
  Scalar count, factor, epsilon;

  const Operand& operator[](int placeholder) const {
    return tensors[static_cast<size_t>(placeholder)];
  }
  bool Has(int placeholder) const { return (*this)[placeholder].slot >= 0; }
};

Status MakeFusedGraph(CallGraph& g, const FusedConstPack& pack, const FusedOperands& operands);

}  // namespace kiln::api::legacy
