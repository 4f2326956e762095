// The members that kernels of peer_reduce and its kin set in device code.
#pragma once

#include "compiler/kernel/member_names.inc"
#include "compiler/kernel/members.h"

namespace kiln::compiler::peers {

#define NUMBER(name) INT(name, 0)
#define WIDE NUMBER
#include "codegen/cuda/device/peers/peers.def"

}  // namespace kiln::compiler::peers
