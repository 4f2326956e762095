// The members that kernels of conv_halo_sm90 and its kin set in device code.
#pragma once

#include "compiler/kernel/member_names.inc"
#include "compiler/kernel/members.h"

namespace kiln::compiler::halo {

// Members that not all of the skeletons have.
#define PLACES_INT INT
#define DEPTH_INT INT
#define WGRAD_INT INT
#include "codegen/cuda/device/conv/conv_halo.def"

}  // namespace kiln::compiler::halo
