// The numbers that launches of contract_grouped_sm90 set in device code.
#pragma once

#include "compiler/kernel/member_names.inc"
#include "compiler/kernel/members.h"

namespace kiln::compiler::grouped {

#define NUMBER(name) INT(name, 0)
#define PRODUCT_NUMBER NUMBER
#define PRODUCT_PAIR NUMBER
#include "codegen/cuda/device/contract/contract_grouped.def"

}  // namespace kiln::compiler::grouped
