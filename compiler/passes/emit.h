// emit: tile kernels become texts, their arguments the caller's pointers, places in the workspace
// and numbers.
//
//   before  kernel(x: ptr, scratch0: ptr, count: i32), launch args: tensor 0, scratch 0, 4096
//   after   program: kernels[0] = "extern \"C\" __global__ void kiln_reduce_…", launch args:
//           tensors[0], workspace + 256, i32 4096
//
// A kernel's name is its engine and a hash of its text, so equal kernels of a plan are one, and
// profilers show which cache entry ran. Intermediates share the workspace: each lies there from the
// launch that writes it to the last one that reads it.
#pragma once

#include "compiler/pass.h"

namespace kiln::compiler {

Result<bool> Emit(Module& module, const PassContext& context);

}  // namespace kiln::compiler
