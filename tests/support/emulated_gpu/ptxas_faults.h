// Code that ptxas is known to compile wrongly, so that a kernel that has such code fails here as it
// would on a GPU.
#pragma once

#include <optional>
#include <string>

#include "tests/support/emulated_gpu/ptx_text.h"

namespace kiln::emulated {

// The sentence that says where the function has a complement of a register that a branch has shown
// to be equal to a constant, and where that goes into and, or or xor. ptxas of CUDA 12.8 and 13.0,
// for all of sm_75 to sm_90a, puts the constant there, and not its complement:
//
//   setp.ne.s32 %p, %n, 0; @%p bra later; not.b32 %t, %n; and.b32 %c, %t, 1;    %c becomes 0
//
// NVVM writes (n + 1) % 2 like that. Absent where there is none.
std::optional<std::string> FoldedComplement(const PtxFunction& function);

}  // namespace kiln::emulated
