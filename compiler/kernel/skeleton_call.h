// Calls of skeletons, device functions that are written by hand: parameters of the functions that
// the skeleton calls back, and the call as the whole of a kernel.
#pragma once

#include <string>

#include "compiler/kernel/kernel_builder.h"
#include "compiler/kernel/members.h"

namespace kiln::compiler {

// Adds a parameter to a function.
tile::Expr AddScalar(KernelBuilder& b, tile::Call::Function& f, const char* name, DType type);
std::string AddArray(KernelBuilder& b, tile::Call::Function& f, const char* name, DType type,
                     int64_t size, bool is_output = false);

// Gives a member of the skeleton's shape its value, an argument of the launch that has its name.
void AddShapeMember(KernelBuilder& b, tile::Call& call, const ShapeMember& member, int64_t value);
// Gives one a value that is no argument.
void AddShapeMember(tile::Call& call, const ShapeMember& member, tile::Expr value);

// Writes a call for each block of the grid, `blocks` of them, as the whole of a kernel, after
// `before`.
tile::Block CallOfBlocks(KernelBuilder& b, int64_t blocks, tile::Call call,
                         tile::Block before = {});

}  // namespace kiln::compiler
