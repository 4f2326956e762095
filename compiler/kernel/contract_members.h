// The members that kernels of contract_sm90 and its kin set in device code.
#pragma once

#include "compiler/kernel/member_names.inc"
#include "compiler/kernel/members.h"

namespace kiln::compiler::contract {

#include "codegen/cuda/device/contract/contract_sm90.def"

}  // namespace kiln::compiler::contract
