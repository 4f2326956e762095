// The text of one wgmma instruction as a member function of a skeleton's configuration.
#pragma once

#include <string>
#include <vector>

#include "ir/tile/tile.h"

namespace kiln::cuda_codegen {

// using accumulator, kElementBytes, kLeftMajor, kRightMajor, and
// multiply(acc, left, right, accumulate): acc = left * right (+ acc where `accumulate`).
std::vector<std::string> WgmmaLines(const tile::Call::Wgmma& wgmma);
// Of one whose left operand is in registers, of 16 bits a value:
// multiply_registers(acc, left[4], right, accumulate).
std::vector<std::string> SecondWgmmaLines(const tile::Call::Wgmma& wgmma);

}  // namespace kiln::cuda_codegen
