// The text of one wgmma instruction as a member function of a skeleton's configuration.
#pragma once

#include <string>
#include <vector>

#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

// The lines of a wgmma instruction's configuration: using accumulator, kElementBytes, kLeftMajor,
// kRightMajor, and multiply(acc, left, right, accumulate): acc = left * right (+ acc where
// `accumulate`).
std::vector<std::string> WgmmaLines(const tile::Call::Wgmma& wgmma, bool left_in_registers);

// The function alone, by another name, for skeletons that have several. A left operand in registers
// is an array of 16-bit pairs, of which it takes four words.
std::vector<std::string> WgmmaFunction(const tile::Call::Wgmma& wgmma, const std::string& name,
                                       bool in_registers);

}  // namespace kiln::cuda_codegen
