// The members that kernels of attention and its gradient set in device code.
#pragma once

#include "compiler/kernel/member_names.inc"
#include "compiler/kernel/members.h"

namespace kiln::compiler::attention {

#define NUMBER(name) INT(name, 0)
// Members that not all of the skeletons have.
#define FORWARD_NUMBER NUMBER
#define TILES_NUMBER NUMBER
#define TILES_INT INT
#define SHARED_INT INT
#define DECODE_NUMBER NUMBER
#define GRAD_NUMBER NUMBER
#define GRAD_INT INT
#include "codegen/cuda/device/attention/attention.def"

}  // namespace kiln::compiler::attention
