// contract_grouped_sm90: products that need nothing of one another (grouped_products.h), of f16 and
// bf16, in one launch of wgmma (codegen/cuda/device/contract/contract_grouped_sm90.cuh). By
// themselves each leaves multiprocessors idle in its last wave; an operand in two tensors would be
// copied together, and sums of an operand would read it again.
#pragma once

#include "compiler/engines/engine.h"

namespace kiln::compiler {

extern const Engine kContractGroupedSm90Engine;

}  // namespace kiln::compiler
